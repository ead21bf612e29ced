//! Requantization: the exact sum of a product goes back to the width of an operand.
//!
//! Takes an accumulator `acc` with `|acc| < 2^62` and a public shift `s` in 1 to 32. Gives the `q` with
//! `acc + 2^(s-1) = q * 2^s + rem` and `0 <= rem < 2^s`: the quotient rounded to the nearest integer, halves upwards.
//! `q` and `rem` are unique once both have their ranges. The range of `q` is that of its use, see [`super::signed`].
//!
//! # In the proof
//!
//! `rem` is not committed. It is the expression `acc + 2^(s-1) - q 2^s`, whose range of `s` bits is a lookup; above 16
//! bits its upper digit is committed, and the lowest digit is again an expression. The product inside `acc` is then proved at
//! the lookup's point.
//!
//! Why `q` is the quotient: `q` is known to have `b` bits with sign, by a range check that does not mention `acc`. Then
//! `q 2^s` is an integer of at most `b - 1 + s` bits, `rem` one of `s` bits, and `|acc| < 2^62` for operands in their
//! ranges. So the equation holds over the integers, and a quotient with a remainder in `0..2^s` is unique. Without the
//! range of `q`, `q = (acc + 2^(s-1) - rem) / 2^s` modulo `p` would have a solution for every `rem`: the prover
//! could choose among `2^s` results. Without the range of `rem`, every `q` would do.

use crate::relation::{Builder, Count, Expr, Label};

/// `floor((acc + 2^(shift-1)) / 2^shift)`.
#[inline]
pub fn requant(acc: i64, shift: u32) -> i64 {
    debug_assert!((1..=32).contains(&shift) && acc.unsigned_abs() < 1 << 62);
    (acc + (1 << (shift - 1))) >> shift
}

/// The remainder that belongs to [`requant`], in `0..2^shift`.
#[inline]
pub fn remainder(acc: i64, shift: u32) -> i64 {
    (acc + (1 << (shift - 1))) & ((1 << shift) - 1)
}

/// States that `value` is the requantized `acc` wherever `count` says so. The caller bounds `value`.
pub fn constrain(
    b: &mut Builder,
    name: &str,
    out: &[Label],
    count: Count,
    acc: Expr,
    value: Expr,
    shift: u32,
) {
    b.range(
        &format!("{name}: remainder"),
        out,
        count,
        acc + (1i64 << (shift - 1)) - value * (1i64 << shift),
        shift,
    );
}

/// Declares a tensor of `bits` bits with sign that is the requantized `acc`.
pub fn output(
    b: &mut Builder,
    name: &str,
    out: &[Label],
    acc: Expr,
    bits: u32,
    shift: u32,
) -> Expr {
    let value = b.trace(name, out);
    b.signed(&format!("{name}: output"), out, value.clone(), bits);
    constrain(b, name, out, Count::One, acc, value.clone(), shift);
    value
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn slow(acc: i64, shift: u32) -> i64 {
        let (n, d) = (i128::from(acc) + (1 << (shift - 1)), 1i128 << shift);
        let q = n / d;
        (if n % d < 0 { q - 1 } else { q }) as i64
    }

    proptest! {
        #[test]
        fn agrees_with_floor_division(acc in -(1i64 << 62) + 1..1 << 62, small in -99_999i64..99_999, shift in 1u32..=32) {
            for acc in [acc, small] {
                let q = requant(acc, shift);
                prop_assert_eq!(q, slow(acc, shift));
                prop_assert_eq!(acc + (1 << (shift - 1)), (q << shift) + remainder(acc, shift));
                prop_assert!((0..1 << shift).contains(&remainder(acc, shift)));
            }
        }
    }

    #[test]
    fn halves_go_up() {
        let rounded: Vec<i64> = (-5..=5).map(|x| requant(x, 1)).collect();
        assert_eq!(rounded, [-2, -2, -1, -1, 0, 0, 1, 1, 2, 2, 3]);
        let end = (1 << 62) - 1;
        assert_eq!(requant(end, 32), 1 << 30);
        assert_eq!(requant(-end, 32), -(1 << 30));
        assert_eq!(requant(end, 1), 1 << 61);
    }
}
