//! Softmax over a row of scores, without its division.
//!
//! Takes scores in units of the exponential table. `max` bounds the row and is attained. For each score `d = max - sc`
//! is split as `idx = min(d, 65535)` and `ex = d - idx`, `0 <= ex < 2^16`, and `e` is the table's entry at `idx`. The
//! table ends in zero, so what lies beyond it has weight zero. `z` marks the first place where `d = 0`; `sum` is the sum
//! of all `e`, at least the table's first entry, so a division by it is defined.
//!
//! A row whose spread reaches `65535 + 2^16` is refused, as is a maximum that does not fit 24 bits. Both are far
//! outside of what a calibrated model computes, and each bound is one limb in the proof.
//!
//! # In the proof
//!
//! Committed per row: `max`, `sum`; per cell: `idx`, `ex`, `e` and the mark `z`. A cell is a pair that the mask admits, for
//! a causal row the pairs with `u <= s`; lookups count these pairs alone. The quantized score is not committed. It is
//! the expression `max - idx - ex`, and a requantization ties it to the raw score.
//! - `max` has 24 bits with sign, `idx` is an index of the exponential table and `ex` has 16 bits, each by its own lookup.
//!   So `max - idx - ex` is an integer below `2^24` in magnitude, and the requantization has one solution. If `max`
//!   had no range, `max` of a row could be off by a fraction modulo `p` together with all its scores.
//! - `idx` and `ex` are not negative, so no admitted score is above `max`. `z` is boolean, zero off the mask, sums to 1 over
//!   a row, and `z (idx + ex) = 0`: both are zero at the marked cell, so `max` is attained. A sum of at most `2^12`
//!   booleans does not wrap. Too large a maximum would flatten the row, a wrong one in the other direction fails
//!   the ranges; this is where either is caught.
//! - `ex (65535 - idx) = 0`: what is above the table's end sits in `ex` only once `idx` is the last index. Without it, a
//!   prover could move distance from `idx` to `ex` and give every score the weight of the maximum.
//! - `(idx, e)` is a line of the table. `e` is zero off the mask, where no lookup sees it. `sum` is the sum of `e` by an
//!   equation, at most `2^12 * 65535`; the marked cell adds the table's first entry, which is not zero, so `sum >= 1`.
//!
//! Which of several maxima is marked is free, and so are `idx` and `ex` off the mask; neither has an effect on `e` and `sum`.

use super::{OutOfRange, requant, signed};
use crate::header::TABLE_SIZE;
use crate::relation::{Builder, Count, Expr, Label, Public, Tag};

/// Bits of the signed maximum of a row.
pub const MAXIMUM_BITS: u32 = 24;
/// Bits of what clipping takes away from a distance.
pub const EXCESS_BITS: u32 = 16;

/// A row of weights with all its intermediate values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Softmax {
    /// The largest score.
    pub max: i64,
    /// Distance to the maximum, clipped to the table.
    pub idx: Vec<u16>,
    /// What clipping took away.
    pub ex: Vec<u16>,
    /// The first place at which the maximum is attained.
    pub z: usize,
    /// Weights, not normalized.
    pub e: Vec<u16>,
    /// The sum of the weights.
    pub sum: i64,
}

/// Computes the weights of a row. The row must not be empty; `table` has [`TABLE_SIZE`] entries.
pub fn softmax(scores: &[i64], table: &[u16]) -> Result<Softmax, OutOfRange> {
    let (mut max, mut z) = (i64::MIN, 0);
    for (u, &score) in scores.iter().enumerate() {
        if score > max {
            (max, z) = (score, u);
        }
    }
    signed(max, MAXIMUM_BITS)?;
    let last = TABLE_SIZE as i64 - 1;
    let mut row = Softmax {
        max,
        idx: Vec::with_capacity(scores.len()),
        ex: Vec::with_capacity(scores.len()),
        z,
        e: Vec::with_capacity(scores.len()),
        sum: 0,
    };
    for &score in scores {
        let d = max - score;
        let idx = d.min(last);
        let ex = u16::try_from(d - idx).map_err(|_| OutOfRange {
            value: d,
            low: 0,
            high: last + (1 << EXCESS_BITS),
        })?;
        let e = table[idx as usize];
        row.idx.push(idx as u16);
        row.ex.push(ex);
        row.e.push(e);
        row.sum += i64::from(e);
    }
    Ok(row)
}

/// Over which indices rows of weights extend.
#[derive(Debug, Clone, Copy)]
pub struct Axes<'a> {
    /// One row for each of these.
    pub rows: &'a [Label],
    /// The index inside a row.
    pub over: Label,
    /// Whether a row holds only the positions up to its own.
    pub causal: bool,
}

/// What a softmax leaves for the division that follows it.
#[derive(Debug, Clone)]
pub struct Weights {
    /// Weights, not normalized; zero off the mask.
    pub e: Expr,
    /// The sum of a row.
    pub sum: Expr,
}

/// Declares the weights of raw scores; `shift` takes a score to units of the table.
pub fn constrain(b: &mut Builder, name: &str, axes: Axes<'_>, score: Expr, shift: u32) -> Weights {
    let rows = axes.rows;
    let cells = [rows, &[axes.over]].concat();
    let n = |field: &str| format!("{name}.{field}");
    let says = |what: &str| format!("{name}: {what}");
    let count = if axes.causal {
        Count::Causal
    } else {
        Count::One
    };
    let max = b.trace(&n("max"), rows);
    let sum = b.trace(&n("sum"), rows);
    let idx = b.trace(&n("idx"), &cells);
    let ex = b.trace(&n("ex"), &cells);
    let z = b.trace(&n("z"), &cells);
    let e = b.trace(&n("e"), &cells);

    b.signed(&says("maximum"), rows, max.clone(), MAXIMUM_BITS);
    let line = vec![idx.clone(), e.clone()];
    b.lookup(&says("exponential"), &cells, count.clone(), Tag::Exp, line);
    b.range(
        &says("excess"),
        &cells,
        count.clone(),
        ex.clone(),
        EXCESS_BITS,
    );
    let scaled = max - idx.clone() - ex.clone();
    requant::constrain(b, &says("score"), &cells, count, score, scaled, shift);

    b.boolean(&n("z"));
    let at_maximum = z.clone() * (idx.clone() + ex.clone());
    b.zero(&says("the maximum is attained"), &cells, at_maximum);
    let last = TABLE_SIZE as i64 - 1;
    b.zero(
        &says("excess only past the table's end"),
        &cells,
        ex.clone() * last - ex * idx,
    );
    b.zero(&says("one maximum is marked"), rows, z.clone() - 1);
    b.zero(&says("sum"), rows, e.clone() - sum.clone());
    if axes.causal {
        let mask = || Expr::public(Public::Causal);
        b.zero(
            &says("no weight on later positions"),
            &cells,
            e.clone() - e.clone() * mask(),
        );
        b.zero(
            &says("no maximum at later positions"),
            &cells,
            z.clone() - z * mask(),
        );
    }
    Weights { e, sum }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn table() -> Vec<u16> {
        let entry = |i: usize| (65535.0 * (-(i as f64) / 1024.0).exp()).round() as u16;
        let mut table: Vec<u16> = (0..TABLE_SIZE).map(entry).collect();
        table[TABLE_SIZE - 1] = 0;
        table
    }

    proptest! {
        #[test]
        fn is_the_definition(scores in prop::collection::vec(-70_000i64..50_000, 1..40)) {
            let table = table();
            let row = softmax(&scores, &table).unwrap();
            prop_assert_eq!(row.max, *scores.iter().max().unwrap());
            prop_assert_eq!(row.z, scores.iter().position(|&s| s == row.max).unwrap());
            for (u, &score) in scores.iter().enumerate() {
                let (idx, ex) = (i64::from(row.idx[u]), i64::from(row.ex[u]));
                prop_assert_eq!(row.max - score, idx + ex);
                prop_assert!(ex == 0 || idx == 65535);
                prop_assert_eq!(row.e[u], table[idx as usize]);
            }
            prop_assert_eq!(row.sum, row.e.iter().map(|&e| i64::from(e)).sum::<i64>());
            prop_assert!(row.sum >= 65535);
        }

        #[test]
        fn is_near_the_real_softmax(scores in prop::collection::vec(-5000i64..5000, 1..20)) {
            let row = softmax(&scores, &table()).unwrap();
            let real: Vec<f64> = scores.iter().map(|&s| ((s - row.max) as f64 / 1024.0).exp()).collect();
            let sum: f64 = real.iter().sum();
            for (&e, real) in row.e.iter().zip(&real) {
                prop_assert!((f64::from(e) / row.sum as f64 - real / sum).abs() < 1e-4);
            }
        }
    }

    #[test]
    fn ends_of_the_ranges() {
        let table = table();
        let top = (1 << 23) - 1;
        assert!(softmax(&[top], &table).is_ok());
        assert!(softmax(&[top + 1], &table).is_err());
        assert!(softmax(&[-top - 1], &table).is_ok());
        assert!(softmax(&[-top - 2], &table).is_err());
        let widest = 65535 + 65535;
        let row = softmax(&[0, -widest, -65535, -65536, -65534], &table).unwrap();
        assert_eq!(row.idx, [0, 65535, 65535, 65535, 65534]);
        assert_eq!(row.ex, [0, 65535, 0, 1, 0]);
        assert_eq!(row.e[1..4], [0, 0, 0]);
        assert!(softmax(&[0, -widest - 1], &table).is_err());
        // The first of several maxima is marked.
        assert_eq!(softmax(&[-3, 7, 7, 7], &table).unwrap().z, 1);
    }
}
