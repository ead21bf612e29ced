//! How much a header may ask for, counted before anything is allocated for it.

use core::iter::Sum;
use core::ops::{AddAssign, Mul};
use zkmoe_commit::channel::Reject;
use zkmoe_commit::params::{MAX_ROWS, Params};
use zkmoe_commit::shape::Shape;

use crate::header::Header;
use crate::olmoe;
use crate::relation::{Dims, Relation, Round};

/// The most cells of all tensors, and of all lookups of a proof.
pub const MAX_CELLS: u64 = 1 << 36;
/// The most aligned bricks that tensors are cut into; a verifier holds some three hundred bytes for each.
pub const MAX_BRICKS: u64 = 1 << 20;

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
        for sizes in shape.groups() {
            let product = |of: fn(u64) -> u64| {
                sizes
                    .iter()
                    .fold(1u64, |n, &size| n.saturating_mul(of(size as u64)))
            };
            extent.cells = extent.cells.saturating_add(product(|size| size));
            let bricks = product(|size| u64::from(size.count_ones()));
            extent.bricks = extent.bricks.saturating_add(bricks);
        }
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
        // Bricks are aligned, so a tree has less than twice the rows that its cells would fill.
        if self.cells > MAX_CELLS
            || usize::try_from(self.cells).is_err()
            || self.cells >> params.log_row > MAX_ROWS as u64 / 2
            || self.bricks > MAX_BRICKS
        {
            return Err(Reject::check(format!("limits: {what} is too large")));
        }
        Ok(())
    }
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
    fn each_limit_is_refused() {
        let params = Params::choose(1 << 20, 1);
        let refused = |cells, bricks| Extent { cells, bricks }.check(&params, "it").is_err();
        assert!(!refused(1 << 20, MAX_BRICKS));
        assert!(refused(1 << 20, MAX_BRICKS + 1));
        assert!(refused(MAX_CELLS + 1, 1));
        let rows = (MAX_ROWS as u64 / 2) << params.log_row;
        assert!(rows < MAX_CELLS && !refused(rows, 1));
        assert!(refused(rows + (1 << params.log_row), 1));
    }
}
