//! How much a header may ask for, counted before anything is allocated for it.

use core::iter::Sum;
use core::ops::{AddAssign, Mul};
use zkmoe_commit::channel::Reject;
use zkmoe_commit::length::Length;
use zkmoe_commit::params::{MAX_ROWS, Params};
use zkmoe_commit::shape::Shape;

use crate::header::Header;
use crate::olmoe;
use crate::relation::{Dims, Relation, Round};

/// The most cells of all tensors, and of all lookups of a proof.
pub const MAX_CELLS: u64 = 1 << 36;
/// The most aligned bricks that tensors are cut into; a verifier goes through all of them for each claim.
pub const MAX_BRICKS: u64 = 1 << 20;
/// The most bytes of a proof, a certificate or a rotation.
pub const MAX_PROOF_BYTES: u64 = 1 << 28;

/// How large some shapes are together. Counts stop at their largest value instead of wrapping.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extent {
    /// Cells.
    pub cells: u64,
    /// Bricks of a layout, see [`zkmoe_commit::layout`].
    pub bricks: u64,
}

impl Extent {
    /// Of a tensor of this shape.
    pub fn of(shape: &Shape) -> Self {
        let mut extent = Self::default();
        shape.each_group(|_, sizes| {
            let product = |of: fn(u64) -> u64| {
                sizes
                    .iter()
                    .fold(1u64, |n, &size| n.saturating_mul(of(size as u64)))
            };
            extent.cells = extent.cells.saturating_add(product(|size| size));
            let bricks = product(|size| u64::from(size.count_ones()));
            extent.bricks = extent.bricks.saturating_add(bricks);
        });
        extent
    }

    /// Of all weights of a model.
    pub fn of_model(header: &Header) -> Self {
        let dims = Dims::of_model(header.sizes.clone());
        let relation = olmoe::relation(header);
        let weights = relation.tensors.iter().filter(|t| t.round == Round::Model);
        weights.map(|t| Self::of(&dims.shape(&t.axes))).sum()
    }

    /// Of all tensors of a batch, the weights included, and of all its lookups, which are not committed.
    pub fn of_batch(relation: &Relation, dims: &Dims) -> Self {
        let tensors = relation.tensors.iter().map(|tensor| {
            let components = if tensor.extension { 2 } else { 1 };
            Self::of(&dims.shape(&tensor.axes)) * components
        });
        let mut extent: Self = tensors.sum();
        for lookup in &relation.lookups {
            let cells = Self::of(&dims.shape(&lookup.out)).cells;
            extent.cells = extent.cells.saturating_add(cells);
        }
        extent
    }

    /// Refuses more than a proof may have; `what` names what is too large.
    pub fn check(&self, params: &Params, what: &str) -> Result<(), Reject> {
        // Indices of cells are numbers of the machine.
        let cells = MAX_CELLS.min(usize::MAX as u64);
        within(what, self.cells, cells, "cells")?;
        // Bricks are aligned, so a tree has less than twice the rows that its cells would fill.
        let rows = self.cells >> params.log_row;
        within(what, rows, MAX_ROWS as u64 / 2, "full rows")?;
        within(what, self.bricks, MAX_BRICKS, "bricks")
    }
}

/// Refuses more than a limit, with both numbers.
pub(crate) fn within(what: &str, found: u64, most: u64, unit: &str) -> Result<(), Reject> {
    if found <= most {
        return Ok(());
    }
    // Counts stop at the largest number.
    let or_more = if found == u64::MAX { " or more" } else { "" };
    Err(Reject::check(format!(
        "limits: {what} has {found}{or_more} {unit}, at most {most} are allowed"
    )))
}

/// Refuses files that cannot have as few bytes as [`MAX_PROOF_BYTES`].
pub(crate) fn within_bytes(length: &Length) -> Result<(), Reject> {
    within("the proof", length.least, MAX_PROOF_BYTES, "bytes")
}

impl AddAssign for Extent {
    fn add_assign(&mut self, other: Self) {
        self.cells = self.cells.saturating_add(other.cells);
        self.bricks = self.bricks.saturating_add(other.bricks);
    }
}
impl Mul<u64> for Extent {
    type Output = Self;
    fn mul(self, times: u64) -> Self {
        Self {
            cells: self.cells.saturating_mul(times),
            bricks: self.bricks.saturating_mul(times),
        }
    }
}
impl Sum for Extent {
    fn sum<I: Iterator<Item = Self>>(extents: I) -> Self {
        extents.fold(Self::default(), |mut sum, extent| {
            sum += extent;
            sum
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_and_bricks_are_counted_as_layouts_cut_them() {
        let shapes = [
            Shape::dense(&[3, 5]),
            Shape::grouped(vec![vec![7, 6], vec![8, 1]]),
            Shape::dense(&[0, 9]),
        ];
        let extent: Extent = shapes.iter().map(Extent::of).sum();
        assert_eq!(extent.cells, 15 + 42 + 8);
        let layout = zkmoe_commit::layout::Layout::new(&shapes, 10);
        let bricks: usize = (0..3).map(|tensor| layout.bricks(tensor)).sum();
        assert_eq!(extent.bricks, bricks as u64);
        let huge = Shape::dense(&[usize::MAX, usize::MAX]);
        assert_eq!(Extent::of(&huge).cells, u64::MAX);
    }

    #[test]
    fn each_limit_is_refused_with_both_numbers() {
        let params = Params::choose(1 << 20, 1);
        let check = |cells, bricks| {
            let checked = Extent { cells, bricks }.check(&params, "it");
            checked.map_err(|error| error.to_string())
        };
        let most = MAX_ROWS as u64 / 2;
        let rows = most << params.log_row;
        assert!(rows < MAX_CELLS);
        assert_eq!(check(rows, MAX_BRICKS), Ok(()));
        for (cells, bricks, message) in [
            (1 << 20, MAX_BRICKS + 1, "1048577 bricks, at most 1048576"),
            (MAX_CELLS + 1, 1, "68719476737 cells, at most 68719476736"),
            (u64::MAX, 1, "18446744073709551615 or more cells"),
            (
                rows + (1 << params.log_row),
                1,
                "524289 full rows, at most 524288",
            ),
        ] {
            let refused = check(cells, bricks).unwrap_err();
            assert!(refused.starts_with("limits: it has "), "{refused}");
            assert!(refused.contains(message), "{refused}");
        }
        let bytes = |least| {
            let most = u64::MAX;
            within_bytes(&Length { least, most }).map_err(|error| error.to_string())
        };
        assert_eq!(bytes(MAX_PROOF_BYTES), Ok(()));
        let refused = bytes(MAX_PROOF_BYTES + 1).unwrap_err();
        assert!(
            refused.contains("268435457 bytes, at most 268435456"),
            "{refused}"
        );
    }
}
