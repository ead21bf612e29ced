//! The gated activation of an expert: `requant(SiLU(gate) * up, shift)`.
//!
//! `SiLU` is a public table over all 16-bit inputs: entry `i` belongs to the input `i - 2^15`. Its output times the up
//! projection is requantized to 16 bits. The pair (input, output) is one lookup in the proof.
//!
//! # In the proof
//!
//! `eg` is the requantized gate projection, `ea` its activation, `eu` the requantized up projection, `eh` the product. The
//! lookup of `(eg + 2^15, ea)` has two effects: an index of the table lies in `0..2^16`, which is the range of 16 bits
//! that `eg` needs, and `ea` is the one entry at that index. `eu` and `eh` have range checks of 16 bits. So
//! accumulators are below `2^54`, the product below `2^30`, and the three requantizations are exact.

use super::{
    OPERAND_BITS, OutOfRange, int16,
    requant::{self, requant},
};
use crate::header::Scales;
use crate::relation::{Builder, Count, Expr, Label, Tag};

/// The place of an input in the table.
#[inline]
pub fn silu_index(x: i16) -> usize {
    (i32::from(x) + (1 << 15)) as usize
}

/// The activation of `x`; `table` has `2^16` entries.
#[inline]
pub fn silu(x: i16, table: &[i16]) -> i16 {
    table[silu_index(x)]
}

/// The product of activation and up projection.
#[inline]
pub fn gated(activation: i16, up: i16, shift: u32) -> Result<i16, OutOfRange> {
    int16(requant(i64::from(activation) * i64::from(up), shift))
}

/// Declares the inner values of experts and gives their product; `gate` and `up` are the projections' accumulators.
pub fn constrain(b: &mut Builder, inner: &[Label], gate: Expr, up: Expr, scales: &Scales) -> Expr {
    let eg = b.trace("eg", inner);
    let ea = b.trace("ea", inner);
    requant::constrain(
        b,
        "eg",
        inner,
        Count::One,
        gate,
        eg.clone(),
        scales.gate_shift,
    );
    let line = vec![eg + (1 << (OPERAND_BITS - 1)), ea.clone()];
    b.lookup("ea: activation", inner, Count::One, Tag::Silu, line);
    let eu = requant::output(b, "eu", inner, up, OPERAND_BITS, scales.up_shift);
    requant::output(b, "eh", inner, ea * eu, OPERAND_BITS, scales.product_shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_input_has_its_own_entry() {
        let table: Vec<i16> = (i16::MIN..=i16::MAX).collect();
        for x in [i16::MIN, -1, 0, 1, i16::MAX] {
            assert_eq!(silu(x, &table), x);
        }
    }

    #[test]
    fn products_end_where_int16_ends() {
        assert_eq!(gated(i16::MIN, i16::MIN, 16), Ok(1 << 14));
        assert!(gated(i16::MIN, i16::MIN, 15).is_err());
        assert_eq!(gated(i16::MIN, i16::MAX, 15), Ok(-32767));
        assert_eq!(gated(3, 1, 1), Ok(2));
        assert_eq!(gated(-3, 1, 1), Ok(-1));
    }
}
