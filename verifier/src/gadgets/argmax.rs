//! The largest of a row of logits, ties to the lowest index.
//!
//! `key(i) = logit * n + (n - 1 - i)` for a row of `n`: keys differ whenever indices differ, and they order first by
//! logit, then by descending index. The maximum of the keys is attained at exactly one place, which is the answer.
//!
//! # In the proof
//!
//! Committed per row: the maximum `mk` and the answer `am`; per entry: the mark `z`. Logits have 20 bits with sign, so keys
//! are integers of at most 40 bits. `z` is boolean, sums to 1 over a row, and `z (mk - key) = 0`: `mk` is the key of the
//! marked entry, hence an integer in the range of keys without a check of its own. `mk - key` has a range at every
//! entry, wide enough for each difference of keys and far below `p`: no key is above `mk`. Keys differ, so one entry
//! alone can be marked, and `am = sum_v v z(v)` is its index. Two checks stop two attacks: without the range, any
//! entry could be marked; without the mark, `mk` could be larger than all keys and `am` anything.

use crate::header::LOGIT_BITS;
use crate::relation::{Builder, Count, Expr, Label, Public};
use zkmoe_commit::shape::index_bits;

/// The key of one entry of a row of `count`; below `2^40` for logits of 20 bits and a vocabulary of `2^20`.
#[inline]
pub fn key(logit: i64, index: usize, count: usize) -> i64 {
    logit * count as i64 + (count - 1 - index) as i64
}

/// The place of the largest logit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Argmax {
    /// Its index.
    pub index: usize,
    /// Its key.
    pub key: i64,
}

/// Finds the largest logit. The row must not be empty.
pub fn argmax<T: Copy + Into<i64>>(logits: &[T]) -> Argmax {
    let count = logits.len();
    let mut best = Argmax {
        index: 0,
        key: i64::MIN,
    };
    for (index, &logit) in logits.iter().enumerate() {
        let key = key(logit.into(), index, count);
        if key > best.key {
            best = Argmax { index, key };
        }
    }
    best
}

/// [`key`] as an expression: the entries of a row of `count` are counted by `over`.
pub(super) fn key_expr(logits: &Expr, over: Label, count: usize) -> Expr {
    let count = count as i64;
    logits.clone() * count + (count - 1) - Expr::public(Public::Index(over))
}

/// States that `token` is the place of the largest of the `logits`, which have [`LOGIT_BITS`] bits. The last of the
/// indices `cells` counts the `vocabulary`.
pub fn constrain(b: &mut Builder, cells: &[Label], logits: &Expr, token: Expr, vocabulary: usize) {
    let (rows, over) = (&cells[..cells.len() - 1], cells[cells.len() - 1]);
    let mk = b.trace("mk", rows);
    let z = b.trace("lg.z", cells);
    let gap = mk - key_expr(logits, over, vocabulary);
    b.range(
        "argmax: no key above the maximum",
        cells,
        Count::One,
        gap.clone(),
        // Keys of a row differ by less than 2^LOGIT_BITS times the vocabulary; the bit above that is spare.
        LOGIT_BITS + index_bits(vocabulary) + 1,
    );
    b.boolean("lg.z");
    b.zero("argmax: the maximum is attained", cells, z.clone() * gap);
    b.zero("argmax: one maximum is marked", rows, z.clone() - 1);
    b.zero(
        "argmax: token",
        rows,
        z * Expr::public(Public::Index(over)) - token,
    );
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn is_the_first_maximum(logits in prop::collection::vec(-3i64..3, 1..50)) {
            let found = argmax(&logits);
            let max = *logits.iter().max().unwrap();
            prop_assert_eq!(found.index, logits.iter().position(|&x| x == max).unwrap());
            prop_assert_eq!(found.key, key(max, found.index, logits.len()));
            for (i, &x) in logits.iter().enumerate() {
                prop_assert_eq!(key(x, i, logits.len()) == found.key, i == found.index);
            }
        }
    }

    #[test]
    fn ends_of_the_ranges() {
        let logits = [-(1i32 << 19), (1 << 19) - 1, (1 << 19) - 1];
        assert_eq!(argmax(&logits).index, 1);
        assert_eq!(argmax(&[-(1i32 << 19)]).index, 0);
        assert!(key((1 << 19) - 1, 0, 1 << 20) < 1 << 40);
        assert!(key(-(1 << 19), (1 << 20) - 1, 1 << 20) >= -(1 << 40));
    }
}
