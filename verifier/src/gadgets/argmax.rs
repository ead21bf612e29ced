//! The largest of a row of logits, ties to the lowest index.
//!
//! `key(i) = logit * n + (n - 1 - i)` for a row of `n`: keys differ whenever indices differ, and they order first by
//! logit, then by descending index. The maximum of the keys is attained at exactly one place, which is the answer.

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
