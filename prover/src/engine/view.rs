//! Strided views: how an indexed tensor or a public function lies in memory.

use ark_ff::AdditiveGroup;
use zkmoe_commit::field::{F, K};
use zkmoe_commit::shape::Shape;
use zkmoe_verifier::engine::{Publics, Source};
use zkmoe_verifier::relation::{Dims, Index, Label, Relation};

/// The values of all tensors of a relation, in memory order; two components where a tensor lies over `K`.
#[derive(Debug, Clone, Default)]
pub struct Witness {
    /// `tensors[t][component]`, empty where not filled yet.
    pub tensors: Vec<Vec<Vec<F>>>,
}

/// Offset of the first cell of each group, and the total at the end.
pub fn group_offsets(shape: &Shape) -> Vec<usize> {
    let mut offsets = vec![0];
    shape.each_group(|_, sizes| {
        offsets.push(offsets[offsets.len() - 1] + sizes.iter().product::<usize>());
    });
    offsets
}

/// A tensor read through indices, within one group.
#[derive(Debug, Clone)]
pub struct View {
    /// Offset of the cell at index zero everywhere.
    pub offset: usize,
    /// The step of each label; labels that do not occur have none.
    pub strides: Vec<(Label, usize)>,
}

impl View {
    /// The step of `label`; zero where it does not occur.
    pub fn stride(&self, label: Label) -> usize {
        self.strides
            .iter()
            .find(|(l, _)| *l == label)
            .map_or(0, |(_, s)| *s)
    }
}

/// The view of a tensor in group `group` (the request or the active block) of the index set that reads it.
pub fn tensor_view(dims: &Dims, axes: &[Label], index: &[Index], group: usize) -> View {
    let shape = dims.shape(axes);
    let grouped = usize::from(shape.is_grouped());
    let own_group = if grouped == 1 { group } else { 0 };
    let sizes = shape.group(own_group);
    let mut view = View {
        offset: group_offsets(&shape)[own_group],
        strides: Vec::new(),
    };
    let mut stride = 1;
    for (&index, &size) in index[grouped..].iter().zip(&sizes).rev() {
        match index {
            Index::At(l) => view.strides.push((l, stride)),
            Index::Shifted(l, shift) => {
                view.strides.push((l, stride));
                view.offset += shift * stride;
            }
            Index::Fixed(i) => view.offset += i * stride,
            Index::BlockExpert => {
                let (layer, expert, _) = dims.batch().blocks[group];
                view.offset += (layer * dims.sizes.num_experts + expert) * stride;
            }
        }
        stride *= size;
    }
    view
}

/// The cells of a source over its own axes.
pub fn cells(
    relation: &Relation,
    publics: &Publics<'_>,
    witness: &Witness,
    source: Source,
) -> Vec<K> {
    match source {
        Source::Tensor(t) => {
            let components = &witness.tensors[t];
            match &components[..] {
                [base] => base.iter().map(|&x| K::new(x, F::ZERO)).collect(),
                [c0, c1] => c0.iter().zip(c1).map(|(&a, &b)| K::new(a, b)).collect(),
                _ => unreachable!("tensor {} is not filled", relation.tensors[t].name),
            }
        }
        Source::Public(p) => publics.cells(p),
    }
}
