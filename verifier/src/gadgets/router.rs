//! The router's choice of experts and their gate weights.
//!
//! Takes the router's logits of one token, 24 bits with sign, one per expert. Experts are ordered by the keys of
//! [`super::argmax::key`], so that no two tie; the `k` largest are selected, and `theta` is the least key among them:
//! every selected key is at least `theta`, every other is below. The choice is made before the exponential, which
//! would create ties.
//!
//! The gate weights are a softmax over all experts, in `0..=2^14`: they are not renormalized over the selected ones.
//!
//! # In the proof
//!
//! Committed: the marks `sel` and the threshold `theta` of a token, and the gate weight of every expert. `sel` is boolean
//! and sums to `k` over the experts (a sum of at most `2^8` booleans does not wrap). One range check per expert compares
//! its key with `theta`: the expression `(2 sel - 1)(key - theta) - (1 - sel)` is `key - theta` where `sel = 1` and
//! `theta - key - 1` where `sel = 0`, and has to lie in `0..2^32`.
//!
//! Why the selection is that of the keys: logits have 24 bits with sign by a range check of their own and there are at
//! most `2^8` experts, so keys are integers in `-2^31..2^31`. `theta` needs no check of its own: `k >= 1` experts
//! are selected, and for one of them `theta = key - d` with `0 <= d < 2^32`, an integer above `-2^33` and below `2^31`.
//! So all differences are integers, each selected key is at least `theta` and every other one below. Keys differ, so
//! exactly one set of `k` experts fits; `theta` may be any value that separates it, and is used nowhere else. If the
//! logits had no range, keys could be chosen so that the comparisons run in a circle modulo `p`; if keys could tie, a
//! prover could choose among the tied experts.

use super::{
    OPERAND_BITS, OutOfRange,
    argmax::{self, key},
    divide::{self, divide},
    requant::requant,
    softmax::{self, Softmax, softmax},
};
use crate::header::{GATE_FRACTION_BITS, ROUTER_BITS};
use crate::relation::{Builder, Count, Expr, Label};

/// `Header::check` refuses more than `2^EXPERT_BITS` experts.
pub const EXPERT_BITS: u32 = 8;

/// The selected experts of one token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopK {
    /// Their indices, ascending.
    pub selected: Vec<usize>,
    /// The least key among them.
    pub theta: i64,
}

/// Selects the `k` experts with the largest keys, `1 <= k <= logits.len()`.
pub fn top_k<T: Copy + Into<i64>>(logits: &[T], k: usize) -> TopK {
    let count = logits.len();
    let mut keys: Vec<(i64, usize)> = logits
        .iter()
        .enumerate()
        .map(|(e, &logit)| (key(logit.into(), e, count), e))
        .collect();
    keys.sort_unstable_by(|a, b| b.cmp(a));
    keys.truncate(k);
    let theta = keys[k - 1].0;
    let mut selected: Vec<usize> = keys.into_iter().map(|(_, e)| e).collect();
    selected.sort_unstable();
    TopK { selected, theta }
}

/// The gate weights of all experts, with the softmax they come from; `shift` takes a logit to units of the table.
pub fn gates<T: Copy + Into<i64>>(
    logits: &[T],
    shift: u32,
    table: &[u16],
) -> Result<(Softmax, Vec<u16>), OutOfRange> {
    let scores: Vec<i64> = logits.iter().map(|&x| requant(x.into(), shift)).collect();
    let row = softmax(&scores, table)?;
    let gate = row
        .e
        .iter()
        .map(|&e| divide(i64::from(e) << GATE_FRACTION_BITS, row.sum) as u16)
        .collect();
    Ok((row, gate))
}

/// States that `sel` marks the `k` experts with the largest keys. `logits` have [`ROUTER_BITS`] bits, and
/// the last of the indices `cells` counts the `experts`.
pub fn select(b: &mut Builder, cells: &[Label], logits: &Expr, experts: usize, k: usize) {
    let (rows, over) = (&cells[..cells.len() - 1], cells[cells.len() - 1]);
    let sel = b.trace("sel", cells);
    let theta = b.trace("theta", rows);
    b.boolean("sel");
    b.zero("router: number of experts", rows, sel.clone() - k as i64);
    let above = argmax::key_expr(logits, over, experts) - theta;
    let gap = sel.clone() * above.clone() * 2 - above - 1 + sel;
    b.range(
        "router: chosen before the rest",
        cells,
        Count::One,
        gap,
        ROUTER_BITS + EXPERT_BITS,
    );
}

/// Declares the gate weights of all experts and gives them; `shift` takes a logit to units of the exponential table.
pub fn gate_weights(b: &mut Builder, cells: &[Label], logits: Expr, shift: u32) -> Expr {
    let axes = softmax::Axes {
        rows: &cells[..cells.len() - 1],
        over: cells[cells.len() - 1],
        causal: false,
    };
    let weights = softmax::constrain(b, "rt", axes, logits, shift);
    let gate = b.trace("gate", cells);
    b.range(
        "gate: output",
        cells,
        Count::One,
        gate.clone(),
        OPERAND_BITS,
    );
    let one = 1i64 << GATE_FRACTION_BITS;
    divide::constrain(b, "gate", cells, weights.e * one, weights.sum, gate.clone());
    gate
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn selects_as_repeated_maxima_do(logits in prop::collection::vec(-4i32..4, 1..20), k in 1usize..20) {
            let k = k.min(logits.len());
            let found = top_k(&logits, k);
            let mut taken = vec![false; logits.len()];
            let mut last = 0;
            for _ in 0..k {
                let free = (0..logits.len()).filter(|&e| !taken[e]);
                // `max_by_key` keeps the last of equals, so count down to keep the first.
                last = free.rev().max_by_key(|&e| logits[e]).unwrap();
                taken[last] = true;
            }
            let expected: Vec<usize> = (0..logits.len()).filter(|&e| taken[e]).collect();
            prop_assert_eq!(&found.selected, &expected);
            prop_assert_eq!(found.theta, key(logits[last].into(), last, logits.len()));
            for (e, &logit) in logits.iter().enumerate() {
                prop_assert_eq!(key(logit.into(), e, logits.len()) >= found.theta, taken[e]);
            }
        }
    }

    #[test]
    fn gates_are_shares_of_one() {
        let mut table = vec![0u16; 1 << 16];
        for (i, entry) in table.iter_mut().enumerate().take(1 << 15) {
            *entry = (65535 >> (i / 1024)).max(1) as u16;
        }
        let (row, gate) = gates(&[5i32], 3, &table).unwrap();
        assert_eq!((row.max, gate[0]), (1, 1 << 14));
        let (_, gate) = gates(&[7i32, 7], 1, &table).unwrap();
        assert_eq!(gate, [1 << 13; 2]);
        let (_, gate) = gates(&[1i32 << 17, 0, 0], 1, &table).unwrap();
        assert_eq!(gate, [1 << 14, 0, 0]);
        // The widest spread that 24-bit logits may have, and one beyond it.
        assert!(gates(&[65535 * 4, 0], 1, &table).is_ok());
        assert!(gates(&[65535 * 4 + 2, 0], 1, &table).is_err());
    }
}
