//! Requantization: the exact sum of a product goes back to the width of an operand.
//!
//! Takes an accumulator `acc` with `|acc| < 2^62` and a public shift `s` in 1 to 32. Gives the `q` with
//! `acc + 2^(s-1) = q * 2^s + rem` and `0 <= rem < 2^s`: the quotient rounded to the nearest integer, halves upwards.
//! `q` and `rem` are unique once both have their ranges. The range of `q` is that of its use, see [`super::signed`].

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
