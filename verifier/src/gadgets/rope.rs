//! Gain and rotary position embedding of one pair of channels.
//!
//! Takes the two normalized values `y0`, `y1` of a pair (first and second half of a head), their committed gains and the
//! public cosine and sine of the position, scaled by `2^14`. Gives
//! `requant(y0 g0 cos - y1 g1 sin, shift)` and `requant(y1 g1 cos + y0 g0 sin, shift)`, 16 bits with sign. The gain has no
//! rounding of its own: `2^15 * 2^23 * 2^14` twice is below `2^53`, so the product of three stays exact.
//!
//! # In the proof
//!
//! Two requantizations, one for each half, over all other indices of a head. The halves are an axis of size two, so
//! "the other half" is a constant index and the rotation needs no permutation. Cosine and sine are public functions of
//! position and plane that enter the products as factors; the verifier evaluates them itself. The output has 16 bits, the
//! accumulator at most `2^53`, the shift at most 32, so nothing wraps. That each half reads the right gain and the right
//! neighbour is visible in the relation's text: no cell is committed twice, so there is nothing to swap.

use super::{
    OPERAND_BITS, OutOfRange, int16,
    requant::{self, requant},
};
use crate::relation::{Builder, Count, Expr, Index, Label, Public};

/// Applies gain and rotation to a pair.
#[inline]
pub fn rope(
    y: [i16; 2],
    gain: [i64; 2],
    cos: i16,
    sin: i16,
    shift: u32,
) -> Result<[i16; 2], OutOfRange> {
    let a = i64::from(y[0]) * gain[0];
    let b = i64::from(y[1]) * gain[1];
    let (cos, sin) = (i64::from(cos), i64::from(sin));
    Ok([
        int16(requant(a * cos - b * sin, shift))?,
        int16(requant(b * cos + a * sin, shift))?,
    ])
}

/// Declares the rotated heads `name` with the indices `axes`: the tensor `x`, with the gains `gain`.
pub fn constrain(b: &mut Builder, name: &str, axes: &[Label], x: &str, gain: &str, shift: u32) {
    let output = b.trace(name, axes);
    b.signed(&format!("{name}: output"), axes, output, OPERAND_BITS);
    let pair: Vec<Label> = axes.iter().copied().filter(|&l| l != Label::Half).collect();
    for (half, other, sign) in [(0, 1, -1), (1, 0, 1)] {
        let at = |b: &Builder, t: &str, c| b.with(t, &[(Label::Half, Index::Fixed(c))]);
        let same = at(b, x, half) * at(b, gain, half) * Expr::public(Public::Cos);
        let cross = at(b, x, other) * at(b, gain, other) * Expr::public(Public::Sin);
        let value = at(b, name, half);
        requant::constrain(
            b,
            &format!("{name}: half {half}"),
            &pair,
            Count::One,
            same + cross * sign,
            value,
            shift,
        );
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rotates_and_scales(y0 in any::<i16>(), y1 in any::<i16>(), g0 in 0i64..1 << 15, g1 in 0i64..1 << 15, angle in 0f64..6.3) {
            let unit = f64::from(1 << 14);
            let (cos, sin) = ((angle.cos() * unit).round(), (angle.sin() * unit).round());
            let (a, b) = (f64::from(y0) * g0 as f64, f64::from(y1) * g1 as f64);
            let scale = 2f64.powi(-30);
            let out = rope([y0, y1], [g0, g1], cos as i16, sin as i16, 30).unwrap();
            // The products are exact in f64; only the last rounding differs.
            prop_assert_eq!(i64::from(out[0]), ((a * cos - b * sin) * scale + 0.5).floor() as i64);
            prop_assert_eq!(i64::from(out[1]), ((b * cos + a * sin) * scale + 0.5).floor() as i64);
        }
    }

    #[test]
    fn ends_of_the_ranges() {
        let g = 127 * 65535;
        let one = 1 << 14;
        // The largest product: exact, and refused when the shift leaves more than 16 bits.
        assert!(rope([i16::MIN; 2], [g, g], one, one, 17).is_err());
        let out = rope([i16::MIN, 0], [1 << 16, 0], one, 0, 30).unwrap();
        assert_eq!(out, [i16::MIN, 0]);
        assert!(rope([i16::MIN, 0], [-(1 << 16), 0], one, 0, 30).is_err());
        assert_eq!(
            rope([1, 2], [1 << 16, 1 << 16], 0, one, 30).unwrap(),
            [-2, 1]
        );
    }
}
