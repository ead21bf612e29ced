//! Rows that are made when they are read, so that the rows of a large tree are never held together.

use ark_ff::AdditiveGroup;
use rayon::prelude::*;
use std::borrow::Cow;
use zkmoe_commit::field::F;
use zkmoe_commit::layout::Layout;
use zkmoe_commit::merkle::Tree;
use zkmoe_commit::rows::{RowCode, RowCommitter, RowSource, Rows, tail};

/// Writes the cells of a tensor of the layout from a cell on.
pub type Fill<'a> = dyn Fn(usize, usize, &mut [F]) + Sync + 'a;

/// The rows of a layout, with cells from a function and tails from a seed; mask rows may follow.
pub struct StreamedRows<'a> {
    /// Where tensors lie.
    pub layout: &'a Layout,
    /// Makes cells.
    pub fill: &'a Fill<'a>,
    /// The seed of the tails.
    pub seed: [u8; 32],
    /// Elements of a tail.
    pub tail: usize,
    /// Rows at the end that are held.
    pub masks: Rows,
}

impl RowSource for StreamedRows<'_> {
    fn rows(&self) -> usize {
        self.layout.rows() + self.masks.data.len()
    }

    fn data(&self, row: usize) -> Cow<'_, [F]> {
        if let Some(mask) = row.checked_sub(self.layout.rows()) {
            return Cow::Borrowed(&self.masks.data[mask]);
        }
        let mut out = vec![F::ZERO; 1 << self.layout.log_row()];
        self.layout.row_runs(row, |run| {
            let slots = &mut out[run.slot..run.slot + run.len];
            (self.fill)(run.tensor, run.cell, slots);
        });
        Cow::Owned(out)
    }

    fn tail(&self, row: usize) -> Cow<'_, [F]> {
        match row.checked_sub(self.layout.rows()) {
            Some(mask) => Cow::Borrowed(&self.masks.tails[mask]),
            None => Cow::Owned(tail(&self.seed, row as u64, self.tail)),
        }
    }
}

/// Commits to rows, a few at a time. `progress` is called with the number of rows done and all rows.
pub fn commit_rows(rows: &dyn RowSource, code: &RowCode, progress: &dyn Fn(usize, usize)) -> Tree {
    /// As many as one step of the leaves takes.
    const BATCH: usize = 4;
    let total = rows.rows();
    let mut committer = RowCommitter::new(code, total);
    for start in (0..total).step_by(BATCH) {
        let end = total.min(start + BATCH);
        let batch = (start..end).into_par_iter();
        let batch = batch.map(|row| (rows.data(row), rows.tail(row)));
        committer.push(&batch.collect::<Vec<_>>());
        progress(end, total);
    }
    committer.finish()
}
