//! Division of hidden integers, rounded to the nearest with halves upwards.
//!
//! Takes `num` and `den >= 1` with `2|num| + den < 2^62`. Gives the `q` with `2 num + den = q * 2 den + rem` and
//! `0 <= rem < 2 den`. Used for `sum e v / sum e`, which lies between the least and the largest `v` and so keeps the
//! range of `v`, and for the gate weights.

/// `floor((2 num + den) / (2 den))`.
#[inline]
pub fn divide(num: i64, den: i64) -> i64 {
    debug_assert!(den >= 1 && num.unsigned_abs() < 1 << 60 && den < 1 << 60);
    (2 * num + den).div_euclid(2 * den)
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
