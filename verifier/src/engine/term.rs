//! How one term of an expression is evaluated under a functional: which indices are bound at once, which need a
//! sumcheck, and what weight each axis of each factor gets.

use super::{Point, Publics};
use crate::relation::{Dims, Index, Label, Public, Ref, Relation, Term};
use ark_ff::AdditiveGroup;
use std::collections::BTreeMap;
use zkmoe_commit::field::K;
use zkmoe_commit::shape::AxisWeights;

/// What a factor is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A tensor of the relation.
    Tensor(usize),
    /// A public function.
    Public(Public),
}

/// What happens to one axis of a factor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AxisUse {
    /// It is bound: summed with these weights.
    Bind(AxisWeights),
    /// It stays, indexed as given.
    Keep(Index),
}

/// A factor of a product, some of whose axes are bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Factor {
    /// What it is made of.
    pub source: Source,
    /// One entry for each axis of the tensor, or each index of the public function.
    pub axes: Vec<AxisUse>,
}

impl Factor {
    /// The weights of all axes once the kept indices are bound to a point.
    pub fn weights_at(&self, dims: &Dims, point: &BTreeMap<Label, Vec<K>>) -> Vec<AxisWeights> {
        self.axes
            .iter()
            .map(|axis| match axis {
                AxisUse::Bind(w) => w.clone(),
                AxisUse::Keep(index) => {
                    let at = index
                        .label()
                        .and_then(|l| point.get(&l))
                        .map_or(&[][..], |p| &p[..]);
                    pull_back(dims, *index, &AxisWeights::eq(at))
                }
            })
            .collect()
    }
}

/// The weights of a tensor's axis, given those of the index through which it is read.
fn pull_back(dims: &Dims, index: Index, w: &AxisWeights) -> AxisWeights {
    match index {
        Index::At(_) => w.clone(),
        Index::Shifted(label, shift) => {
            let n = dims.size(label);
            let mut table = vec![K::ZERO; shift];
            table.extend(w.expand(n));
            AxisWeights::Table(table)
        }
        Index::Fixed(i) => AxisWeights::unit(i),
        Index::BlockExpert => {
            let experts = dims.sizes.num_experts;
            let mut table = vec![K::ZERO; dims.sizes.num_hidden_layers * experts];
            for (&(layer, expert, _), weight) in dims
                .batch()
                .blocks
                .iter()
                .zip(w.expand(dims.batch().blocks.len()))
            {
                table[layer * experts + expert] += weight;
            }
            AxisWeights::Table(table)
        }
    }
}

/// A term under a functional.
pub enum Weighted {
    /// It holds no tensor: a value that everyone knows.
    Public(K),
    /// `scale` times the sum over `labels`, with `weights`, of a product of factors.
    Product {
        /// A public scalar.
        scale: K,
        /// Indices that several factors share.
        labels: Vec<Label>,
        /// Their weight functions.
        weights: Vec<AxisWeights>,
        /// The factors.
        factors: Vec<Factor>,
    },
}

/// All indices of a term's tensors and of its public functions, ascending, without repetition.
pub fn labels(term: &Term) -> Vec<Label> {
    let mut all: Vec<Label> = term
        .refs
        .iter()
        .flat_map(|r| &r.index)
        .filter_map(|i| i.label())
        .collect();
    all.extend(
        term.publics
            .iter()
            .filter(|p| is_factor(**p))
            .flat_map(|p| p.labels()),
    );
    all.sort();
    all.dedup();
    all
}

/// Whether a public function stays a factor of its own; the others are weights of an index.
fn is_factor(p: Public) -> bool {
    !matches!(p, Public::FingerprintPower(_) | Public::LayerOfBlock)
}

/// Splits a term under the functional `at` of the indices `out`.
pub fn weigh(
    relation: &Relation,
    dims: &Dims,
    publics: &Publics<'_>,
    out: &[Label],
    at: &Point,
    term: &Term,
) -> Weighted {
    if term.refs.is_empty() {
        return Weighted::Public(publics.functional(term.publics.first().copied(), out, at));
    }
    let gathers = term.publics.contains(&Public::LayerOfBlock);
    let weight = |label: Label| -> AxisWeights {
        if out.contains(&label) {
            return at
                .get(&label)
                .cloned()
                .unwrap_or(AxisWeights::Table(Vec::new()));
        }
        if term.publics.contains(&Public::FingerprintPower(label)) {
            return AxisWeights::powers(publics.challenges.beta, dims.bits(label));
        }
        if gathers && label == Label::Block {
            let layers = at.get(&Label::Layer);
            let of_block =
                |&(layer, _, _): &(usize, usize, usize)| layers.map_or(K::ZERO, |w| w.at(layer));
            return AxisWeights::Table(dims.batch().blocks.iter().map(of_block).collect());
        }
        AxisWeights::sum(dims.bits(label))
    };
    let used = labels(term);
    // An index that no factor has: the same value at each of its entries. Requests, positions and layers of a gather
    // are accounted for by the weights of tokens and blocks.
    let scale = out
        .iter()
        .filter(|l| !used.contains(l) && !gathers)
        .map(|&l| at.get(&l).map_or(K::ZERO, |w| w.prefix_sum(dims.size(l))))
        .product();
    let has = |r: &Ref, l: Label| r.index.iter().any(|i| i.label() == Some(l));
    let factors_of = |l: Label| {
        term.refs.iter().filter(|r| has(r, l)).count()
            + term
                .publics
                .iter()
                .filter(|p| is_factor(**p) && p.labels().contains(&l))
                .count()
    };
    let shared: Vec<Label> = used
        .iter()
        .copied()
        .filter(|&l| factors_of(l) > 1)
        .collect();
    let axis = |index: Index| match index.label() {
        Some(l) if shared.contains(&l) => AxisUse::Keep(index),
        Some(l) => AxisUse::Bind(pull_back(dims, index, &weight(l))),
        None => AxisUse::Bind(pull_back(dims, index, &AxisWeights::Table(Vec::new()))),
    };
    let tensors = term.refs.iter().map(|r| {
        debug_assert_eq!(relation.tensors[r.tensor].axes.len(), r.index.len());
        Factor {
            source: Source::Tensor(r.tensor),
            axes: r.index.iter().map(|&i| axis(i)).collect(),
        }
    });
    let functions = term
        .publics
        .iter()
        .filter(|p| is_factor(**p))
        .map(|&p| Factor {
            source: Source::Public(p),
            axes: p.labels().into_iter().map(|l| axis(Index::At(l))).collect(),
        });
    Weighted::Product {
        scale,
        weights: shared.iter().map(|&l| weight(l)).collect(),
        factors: tensors.chain(functions).collect(),
        labels: shared,
    }
}
