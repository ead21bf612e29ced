//! Division of hidden integers, rounded to the nearest with halves upwards.
//!
//! Takes `num` and `den >= 1` with `2|num| + den < 2^62`. Gives the `q` with `2 num + den = q * 2 den + rem` and
//! `0 <= rem < 2 den`. Used for `sum e v / sum e`, which lies between the least and the largest `v` and so keeps the
//! range of `v`, and for the gate weights.
//!
//! # In the proof
//!
//! Nothing is committed but the quotient: `rem = 2 num + den - 2 den q` and `2 den - 1 - rem` are expressions, each with a
//! range of 32 bits. The caller bounds `num`, `den` and `q`, each by itself, such that `2 |num| + den + 2 den |q| < 2^62`
//! and `1 <= den < 2^31`. Then both expressions are integers, the two ranges say `0 <= rem < 2 den`, and the quotient is
//! unique. With the upper range alone missing, a prover could lower `q` as long as `rem` still fits 32 bits. The
//! two uses have `den < 2^28`, a sum of at most `2^12` entries of the exponential table, with `|q| <= 2^15` and
//! `q < 2^16`. `den = 0` would allow no `rem` at all, so a prover gains nothing from it.

use crate::relation::{Builder, Count, Expr, Label};

/// Bits of the remainder, and of its distance from `2 den`.
const REST_BITS: u32 = 32;

/// `floor((2 num + den) / (2 den))`.
#[inline]
pub fn divide(num: i64, den: i64) -> i64 {
    debug_assert!(den >= 1 && num.unsigned_abs() < 1 << 60 && den < 1 << 60);
    (2 * num + den).div_euclid(2 * den)
}

/// States that `quotient` is `num / den`, rounded. The caller bounds all three.
pub fn constrain(b: &mut Builder, name: &str, out: &[Label], num: Expr, den: Expr, quotient: Expr) {
    let rest = num * 2 + den.clone() - den.clone() * quotient * 2;
    for (side, expr) in [("below", rest.clone()), ("above", den * 2 - rest - 1)] {
        let name = format!("{name}: rest from {side}");
        b.range(&name, out, Count::One, expr, REST_BITS);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn is_the_nearest_quotient(num in -(1i64 << 44)..1 << 44, near in -300i64..300, den in 1i64..1 << 28, small in 1i64..40) {
            for (num, den) in [(num, den), (near, small), (near, den), (num, small)] {
                let q = i128::from(divide(num, den));
                let (n, d) = (i128::from(num), i128::from(den));
                // q - 1/2 <= n / d < q + 1/2, times 2d.
                prop_assert!((2 * q - 1) * d <= 2 * n && 2 * n < (2 * q + 1) * d);
            }
        }
    }

    #[test]
    fn a_weighted_mean_keeps_its_range() {
        for v in [-32768i64, -1, 0, 32767] {
            let sum = 65535 * 4096;
            assert_eq!(divide(v * sum, sum), v);
        }
        assert_eq!(divide(5, 2), 3);
        assert_eq!(divide(-5, 2), -2);
        assert_eq!(divide(-1, 2), 0);
    }
}
