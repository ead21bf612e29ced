//! Factors of a sumcheck as arrays: bound axes are summed out, kept axes stay.

use ark_ff::{AdditiveGroup, Field};
use rayon::prelude::*;
use zkmoe_commit::field::{F, K, scale};
use zkmoe_commit::shape::{AxisWeights, Shape};
use zkmoe_verifier::engine::{AxisUse, Factor, Publics, Source};
use zkmoe_verifier::relation::{Index, Label, Relation};

use super::view::{Witness, cells};

/// An array over an ascending list of labels. If the first label is a group label, there is a segment for each group,
/// else one segment.
#[derive(Debug, Clone)]
pub struct Array {
    /// The labels.
    pub labels: Vec<Label>,
    /// For each segment the sizes of the labels, the group label left out.
    pub segments: Vec<Vec<usize>>,
    /// Whether the first label is a group label.
    pub grouped: bool,
    /// For each segment its cells, row-major.
    pub data: Vec<Vec<K>>,
}

/// Whether a label is a group axis.
pub fn is_group(label: Label) -> bool {
    matches!(label, Label::Request | Label::Block)
}

enum Cells<'a> {
    Base(&'a [F]),
    Ext(Vec<K>),
}

/// Sums an axis out of `[outer][axis][inner]`.
fn bind<T: Copy + Sync>(
    input: &[T],
    axis: usize,
    inner: usize,
    weights: &[K],
    times: impl Fn(K, T) -> K + Sync,
) -> Vec<K> {
    let outer = input.len() / (axis * inner).max(1);
    let mut out = vec![K::ZERO; outer * inner];
    let one = |o: usize, row: &mut [K]| {
        let block = &input[o * axis * inner..(o + 1) * axis * inner];
        for (&w, cells) in weights.iter().zip(block.chunks(inner)) {
            if w == K::ZERO {
                continue;
            }
            if w == K::ONE {
                row.iter_mut()
                    .zip(cells)
                    .for_each(|(x, &c)| *x += times(K::ONE, c));
            } else {
                row.iter_mut()
                    .zip(cells)
                    .for_each(|(x, &c)| *x += times(w, c));
            }
        }
    };
    if input.len() < 1 << 13 {
        out.chunks_mut(inner)
            .enumerate()
            .for_each(|(o, row)| one(o, row));
    } else if inner == 1 {
        out.par_iter_mut()
            .with_min_len(64)
            .enumerate()
            .for_each(|(o, x)| one(o, core::slice::from_mut(x)));
    } else {
        out.par_chunks_mut(inner)
            .enumerate()
            .for_each(|(o, row)| one(o, row));
    }
    out
}

/// Binds the axes of one group's cells, innermost first. Kept axes are cut to the entries that their index reaches.
/// Returns the sizes of the kept axes and the cells.
fn bind_group(
    cells: &Cells<'_>,
    range: core::ops::Range<usize>,
    sizes: &[usize],
    uses: &[&AxisUse],
    reach: &dyn Fn(Index, usize) -> (usize, usize),
) -> (Vec<usize>, Vec<K>) {
    let mut kept = Vec::new();
    let mut inner = 1;
    let mut current: Option<Vec<K>> = None;
    for (axis_use, &size) in uses.iter().zip(sizes).rev() {
        match axis_use {
            AxisUse::Bind(w) => {
                let weights = w.expand(size);
                current = Some(match (&current, cells) {
                    (Some(x), _) => bind(x, size, inner, &weights, |w, c| w * c),
                    (None, Cells::Base(x)) => bind(&x[range.clone()], size, inner, &weights, scale),
                    (None, Cells::Ext(x)) => {
                        bind(&x[range.clone()], size, inner, &weights, |w, c| w * c)
                    }
                });
            }
            AxisUse::Keep(index) => {
                let (start, n) = reach(*index, size);
                if (start, n) != (0, size) {
                    let x = current
                        .take()
                        .unwrap_or_else(|| to_ext(cells, range.clone()));
                    current = Some(
                        x.chunks(size * inner)
                            .flat_map(|c| c[start * inner..(start + n) * inner].iter().copied())
                            .collect(),
                    );
                }
                inner *= n;
                kept.push(n);
            }
        }
    }
    kept.reverse();
    (kept, current.unwrap_or_else(|| to_ext(cells, range)))
}

fn to_ext(cells: &Cells<'_>, range: core::ops::Range<usize>) -> Vec<K> {
    match cells {
        Cells::Base(x) => x[range]
            .par_iter()
            .with_min_len(4096)
            .map(|&x| K::new(x, F::ZERO))
            .collect(),
        Cells::Ext(x) => x[range].to_vec(),
    }
}

/// Brings the axes of a row-major array into the order `order` (positions of the old axes).
fn transpose(data: &[K], sizes: &[usize], order: &[usize]) -> Vec<K> {
    if order.windows(2).all(|w| w[0] < w[1]) {
        return data.to_vec();
    }
    let mut strides = vec![1; sizes.len()];
    for a in (1..sizes.len()).rev() {
        strides[a - 1] = strides[a] * sizes[a];
    }
    let new_sizes: Vec<usize> = order.iter().map(|&a| sizes[a]).collect();
    let new_strides: Vec<usize> = order.iter().map(|&a| strides[a]).collect();
    let mut out = Vec::with_capacity(data.len());
    let mut index = vec![0; order.len()];
    let mut offset = 0;
    for _ in 0..data.len() {
        out.push(data[offset]);
        for a in (0..index.len()).rev() {
            index[a] += 1;
            offset += new_strides[a];
            if index[a] < new_sizes[a] {
                break;
            }
            offset -= new_strides[a] * new_sizes[a];
            index[a] = 0;
        }
    }
    out
}

/// The array of a factor over the labels it keeps.
pub fn project(
    relation: &Relation,
    publics: &Publics<'_>,
    witness: &Witness,
    factor: &Factor,
) -> Array {
    let dims = publics.dims;
    let (axes, cells) = match factor.source {
        Source::Tensor(t) => {
            let components = &witness.tensors[t];
            let cells = match &components[..] {
                [base] => Cells::Base(base),
                _ => Cells::Ext(cells(relation, publics, witness, factor.source)),
            };
            (relation.tensors[t].axes.clone(), cells)
        }
        Source::Public(p) => (
            p.labels(),
            Cells::Ext(cells(relation, publics, witness, factor.source)),
        ),
    };
    // Public functions are stored over the largest sizes, as dense arrays.
    let shape = match factor.source {
        Source::Tensor(_) => dims.shape(&axes),
        Source::Public(_) => Shape::dense(&axes.iter().map(|&l| dims.size(l)).collect::<Vec<_>>()),
    };
    let reach = |index: Index, size: usize| match index {
        Index::Shifted(label, start) => (start, dims.size(label)),
        _ => (0, size),
    };
    let offsets = super::view::group_offsets(&shape);
    // The pieces that are projected one by one: groups, or single entries of a dense first axis that blocks select.
    let by_block = factor.axes.first() == Some(&AxisUse::Keep(Index::BlockExpert));
    let split = by_block || shape.is_grouped();
    let pieces: Vec<(core::ops::Range<usize>, Vec<usize>)> = if by_block {
        let sizes = shape.group(0)[1..].to_vec();
        let inner: usize = sizes.iter().product();
        let blocks = dims
            .batch()
            .blocks
            .iter()
            .map(|&(l, e, _)| l * dims.sizes.num_experts + e);
        blocks
            .map(|x| (x * inner..(x + 1) * inner, sizes.clone()))
            .collect()
    } else {
        let groups = shape.groups().into_iter().enumerate();
        groups
            .map(|(g, sizes)| (offsets[g]..offsets[g + 1], sizes))
            .collect()
    };
    let outer = usize::from(split);
    let uses: Vec<&AxisUse> = factor.axes[outer..].iter().collect();
    let mut segments: Vec<(Vec<usize>, Vec<K>)> = pieces
        .par_iter()
        .enumerate()
        .map(|(g, (range, sizes))| match &factor.axes[..outer] {
            [AxisUse::Bind(w)] if w.at(g) == K::ZERO => (Vec::new(), Vec::new()),
            _ => bind_group(&cells, range.clone(), sizes, &uses, &reach),
        })
        .collect();
    let mut labels: Vec<Label> = factor.axes[outer..]
        .iter()
        .filter_map(|a| {
            if let AxisUse::Keep(i) = a {
                i.label()
            } else {
                None
            }
        })
        .collect();
    let mut group_label = None;
    match factor.axes[..outer].first() {
        Some(AxisUse::Bind(w)) => {
            // Groups are summed into one array of the largest sizes.
            let largest: Vec<usize> = labels.iter().map(|&l| dims.size(l)).collect();
            let mut sum = vec![K::ZERO; largest.iter().product()];
            for (g, (sizes, data)) in segments
                .iter()
                .enumerate()
                .filter(|(_, (_, data))| !data.is_empty())
            {
                let weight = w.at(g);
                for (flat, &x) in data.iter().enumerate() {
                    let (mut rest, mut at, mut stride) = (flat, 0, 1);
                    for (&n, &m) in sizes.iter().zip(&largest).rev() {
                        at += rest % n * stride;
                        rest /= n;
                        stride *= m;
                    }
                    sum[at] += weight * x;
                }
            }
            segments = vec![(largest, sum)];
        }
        Some(AxisUse::Keep(index)) => group_label = index.label(),
        // A public function of a group label: its first axis becomes the group axis.
        None if labels.first().is_some_and(|&l| is_group(l)) => {
            let (sizes, data) = segments.remove(0);
            let inner: usize = sizes[1..].iter().product();
            group_label = Some(labels.remove(0));
            segments = data
                .chunks(inner)
                .map(|row| (sizes[1..].to_vec(), row.to_vec()))
                .collect();
        }
        None => {}
    }
    // Ascending labels.
    let mut order: Vec<usize> = (0..labels.len()).collect();
    order.sort_by_key(|&a| labels[a]);
    let sorted: Vec<Label> = order.iter().map(|&a| labels[a]).collect();
    let (sizes, data) = segments
        .into_iter()
        .map(|(sizes, data)| {
            let moved = transpose(&data, &sizes, &order);
            (order.iter().map(|&a| sizes[a]).collect(), moved)
        })
        .unzip();
    Array {
        grouped: group_label.is_some(),
        labels: group_label.into_iter().chain(sorted).collect(),
        segments: sizes,
        data,
    }
}

/// The functional of a tensor's component.
pub fn functional(shape: &Shape, cells: &[F], weights: &[AxisWeights]) -> K {
    // A dense first axis with listed weights is walked entry by entry: most of them are zero.
    let listed = matches!(weights.first(), Some(AxisWeights::Table(_)));
    let pieces: Vec<Vec<usize>> = match (shape.is_grouped(), listed) {
        (false, true) => vec![shape.group(0)[1..].to_vec(); shape.size(0)],
        _ => shape.groups(),
    };
    let (group, inner) = weights.split_at(usize::from(shape.is_grouped() || listed));
    let uses: Vec<AxisUse> = inner.iter().map(|w| AxisUse::Bind(w.clone())).collect();
    let uses: Vec<&AxisUse> = uses.iter().collect();
    let mut start = 0;
    let ranges: Vec<_> = pieces
        .iter()
        .map(|sizes| {
            start += sizes.iter().product::<usize>();
            start - sizes.iter().product::<usize>()..start
        })
        .collect();
    pieces
        .par_iter()
        .zip(ranges)
        .enumerate()
        .map(|(g, (sizes, range))| {
            let outer = group.first().map_or(K::ONE, |w| w.at(g));
            if outer == K::ZERO {
                return K::ZERO;
            }
            let (_, value) = bind_group(&Cells::Base(cells), range, sizes, &uses, &|_, size| {
                (0, size)
            });
            outer * value.first().copied().unwrap_or(K::ZERO)
        })
        .reduce(|| K::ZERO, |a, b| a + b)
}
