//! The prover's half of the opening.

use super::{
    Claim, TreeKind, carriers, claims_of_parts, combination_bits, functional, in_base_field,
    scalars,
};
use crate::channel::{ProverChannel, powers};
use crate::field::{F, K, ext, lift, scale};
use crate::layout::{Functional, Layout};
use crate::merkle::{self, Tree};
use crate::params::Params;
use crate::rows::{RowCode, RowSource};
use crate::shape::AxisWeights;
use crate::whir;
use ark_ff::AdditiveGroup;
use rayon::prelude::*;
use std::borrow::Cow;

/// A committed tree as the prover holds it.
#[derive(Clone, Copy)]
pub struct ProverTree<'a> {
    /// Which commitment it is.
    pub kind: TreeKind,
    /// Where the tensors lie.
    pub layout: &'a Layout,
    /// The rows, mask rows last.
    pub rows: &'a dyn RowSource,
    /// The tree over their columns.
    pub tree: &'a Tree,
}

/// What a test's prover may falsify before it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Message {
    /// `M` and `B`.
    Values,
    /// The data part at rho.
    AtRho,
    /// Coefficients of `G0`.
    Data,
    /// Coefficients of `G1`.
    Tail,
}

/// Proves all claims; trees and claims are those of [`super::verify`].
///
/// # Panics
/// If trees, layouts and rows do not fit each other, or no tree or several trees hold mask rows.
pub fn prove(
    channel: &mut ProverChannel,
    params: &Params,
    code: &RowCode,
    trees: &[ProverTree<'_>],
    claims: &[Claim<K>],
) {
    prove_with(channel, params, code, trees, claims, |_, _| ());
}

/// As [`prove`]; `falsify` sees some messages before they are sent.
pub(super) fn prove_with(
    channel: &mut ProverChannel,
    params: &Params,
    code: &RowCode,
    trees: &[ProverTree<'_>],
    claims: &[Claim<K>],
    falsify: impl Fn(Message, &mut Vec<K>),
) {
    for tree in trees {
        let rows = tree.layout.rows() + tree.kind.mask_rows();
        assert_eq!(tree.rows.rows(), rows, "rows of {}", tree.kind.name());
        assert_eq!(tree.layout.log_row(), params.log_row, "length of rows");
    }
    let masked: Vec<_> = trees
        .iter()
        .filter(|t| t.kind == TreeKind::Round1)
        .collect();
    let [masked] = masked[..] else {
        panic!("one tree holds the mask rows");
    };
    let layouts: Vec<&Layout> = trees.iter().map(|t| t.layout).collect();
    let gammas = powers(channel.challenge("opening: gamma"), claims.len());
    let carriers = carriers(&layouts, claims);
    let room = HELD_SLOTS;
    let rho = sumcheck(channel, params, trees, claims, &gammas, &carriers, room);

    let l = scalars(&layouts, claims, &gammas, &rho, &carriers);
    channel.grind("opening: work before b", params.grinding.combination);
    let b = channel.challenges("opening: b", combination_bits(carriers.len()));
    let eq = AxisWeights::eq(&b).expand(carriers.len());
    let size = 1usize << params.log_row;
    let total = size + params.model_tail;
    let mask = mask(masked, total);
    let [claimed, proximity] = combine(trees, &carriers, &[&l, &eq], size, total);
    let point = AxisWeights::eq(&rho).expand(size);
    let mut stated = vec![inner(&mask, &point), inner(&proximity, &point)];
    falsify(Message::Values, &mut stated);
    channel.hidden("opening: values of mask and proximity row", &stated);
    channel.grind("opening: work before e", params.grinding.combination);
    let e = channel.challenge("opening: e");

    let mut data: Vec<K> = mask
        .par_iter()
        .zip(&claimed)
        .zip(&proximity)
        .with_min_len(1024)
        .map(|((&m, &u), &v)| m + e * (u + e * v))
        .collect();
    let mut tail = data.split_off(size);
    falsify(Message::Data, &mut data);
    falsify(Message::Tail, &mut tail);
    let falsify = |at_rho: &mut Vec<K>| falsify(Message::AtRho, at_rho);
    prove_combined_with(channel, params, code, trees, [data, tail], &rho, falsify);
}

/// The part of [`prove`] after `e`, in which all that is sent follows from the combined row `G`, given as data and tail, from
/// public points and from the opened symbols. The argument for hiding is that `G` is uniform; so whoever makes
/// one up needs this part as well.
pub fn prove_combined(
    channel: &mut ProverChannel,
    params: &Params,
    code: &RowCode,
    trees: &[ProverTree<'_>],
    combined: [Vec<K>; 2],
    rho: &[K],
) {
    prove_combined_with(channel, params, code, trees, combined, rho, |_| ());
}

fn prove_combined_with(
    channel: &mut ProverChannel,
    params: &Params,
    code: &RowCode,
    trees: &[ProverTree<'_>],
    [data, tail]: [Vec<K>; 2],
    rho: &[K],
    falsify: impl Fn(&mut Vec<K>),
) {
    let point = AxisWeights::eq(rho).expand(data.len());
    let data_witness = whir::commit(channel, &params.whir_data, data.clone());
    let tail_witness = whir::commit(channel, &params.whir_tail, tail.clone());
    let z = channel.challenge("opening: z");
    assert!(!in_base_field(z), "one of 2^64 challenges; prove again");
    let at_z = [univariate(&data, z), univariate(&tail, z)];
    channel.clear("opening: parts at z", &at_z);
    channel.grind(
        "opening: work before the positions",
        params.grinding.positions,
    );
    let positions = channel.positions("opening: positions", params.queries, params.log_code);

    for tree in trees {
        let rows: Vec<Vec<F>> = (0..tree.rows.rows())
            .into_par_iter()
            .map(|row| tree.rows.symbols(code, row, &positions))
            .collect();
        let columns: Vec<F> = (0..positions.len())
            .flat_map(|q| rows.iter().map(move |row| row[q]))
            .collect();
        channel.words(tree.kind.symbols_label(), &columns);
        merkle::open(channel, tree.kind.siblings_label(), tree.tree, &positions);
    }

    let at_positions: Vec<K> = at_domain(code, &data, &positions)
        .into_iter()
        .zip(at_domain(code, &tail, &positions))
        .flat_map(|(data, tail)| [data, tail])
        .collect();
    channel.clear("opening: parts at the positions", &at_positions);
    let mut at_rho = vec![inner(&data, &point)];
    falsify(&mut at_rho);
    channel.clear("opening: data part at rho", &at_rho);

    let (about_data, about_tail) =
        claims_of_parts(params, rho, at_rho[0], z, &at_z, &positions, &at_positions);
    whir::open(channel, &params.whir_data, data_witness, &about_data);
    whir::open(channel, &params.whir_tail, tail_witness, &about_tail);
}

/// A row and its functional while the sumcheck folds them.
struct Table<'a> {
    functional: Vec<K>,
    row: Row<'a>,
}

/// A row before and after its first round.
enum Row<'a> {
    Base(Cow<'a, [F]>),
    Extension(Vec<K>),
}

/// `g(0)` and `g(2)` of one pair of neighbours in each table.
type RoundSum = [K; 2];

fn add(a: RoundSum, b: RoundSum) -> RoundSum {
    [a[0] + b[0], a[1] + b[1]]
}

impl Table<'_> {
    /// This table's part of the round's polynomial.
    fn round(&self) -> RoundSum {
        let mut sum = [K::ZERO; 2];
        match &self.row {
            Row::Base(row) => {
                for (l, r) in self.functional.chunks_exact(2).zip(row.chunks_exact(2)) {
                    sum[0] += scale(l[0], r[0]);
                    sum[1] += scale(l[1] + l[1] - l[0], r[1] + r[1] - r[0]);
                }
            }
            Row::Extension(row) => {
                for (l, r) in self.functional.chunks_exact(2).zip(row.chunks_exact(2)) {
                    sum[0] += l[0] * r[0];
                    sum[1] += (l[1] + l[1] - l[0]) * (r[1] + r[1] - r[0]);
                }
            }
        }
        sum
    }

    /// Sets the lowest variable to `r`.
    fn fold(&mut self, r: K) {
        match &mut self.row {
            Row::Base(row) => {
                // A new vector, so that the memory of the long one is given back.
                self.functional = self
                    .functional
                    .chunks_exact(2)
                    .map(|pair| pair[0] + r * (pair[1] - pair[0]))
                    .collect();
                let folded = row
                    .chunks_exact(2)
                    .map(|pair| lift(pair[0]) + scale(r, pair[1] - pair[0]))
                    .collect();
                self.row = Row::Extension(folded);
            }
            Row::Extension(row) => {
                fold(&mut self.functional, r);
                fold(row, r);
            }
        }
    }
}

fn fold(values: &mut Vec<K>, r: K) {
    let half = values.len() / 2;
    for i in 0..half {
        let (low, high) = (values[2 * i], values[2 * i + 1]);
        values[i] = low + r * (high - low);
    }
    values.truncate(half);
}

/// Most slots whose rows and functionals are held during the sumcheck, 32 bytes each: four gigabytes.
const HELD_SLOTS: usize = 1 << 27;

/// Rows and functionals of the carriers while the sumcheck folds them. As long as they are more than `room` slots they are made
/// anew in each round, folded as far as they are, and forgotten: a model can be larger than memory. Each such round
/// costs a pass over all rows and halves what is left.
struct Tables<'a, M: Fn(usize) -> Table<'a> + Sync> {
    make: M,
    count: usize,
    room: usize,
    held: Option<Vec<Table<'a>>>,
}

impl<'a, M: Fn(usize) -> Table<'a> + Sync> Tables<'a, M> {
    /// The polynomial of the next round, after those at whose end are the challenges `rho`; `left` variables are not bound.
    fn round(&mut self, rho: &[K], left: u32) -> RoundSum {
        let zero = || [K::ZERO; 2];
        if let (Some(tables), Some(&r)) = (&mut self.held, rho.last()) {
            return tables
                .par_iter_mut()
                .map(|table| {
                    table.fold(r);
                    table.round()
                })
                .reduce(zero, add);
        }
        let make = |n: usize| {
            let mut table = (self.make)(n);
            rho.iter().for_each(|&r| table.fold(r));
            table
        };
        let all = (0..self.count).into_par_iter();
        if self.count.saturating_mul(1 << left) > self.room {
            return all.map(|n| make(n).round()).reduce(zero, add);
        }
        let tables: Vec<Table<'a>> = all.map(make).collect();
        let sum = tables.par_iter().map(Table::round).reduce(zero, add);
        self.held = Some(tables);
        sum
    }
}

/// Sumcheck over the slots, of which `room` may be held; returns its point.
pub(super) fn sumcheck(
    channel: &mut ProverChannel,
    params: &Params,
    trees: &[ProverTree<'_>],
    claims: &[Claim<K>],
    gammas: &[K],
    carriers: &[(usize, usize)],
    room: usize,
) -> Vec<K> {
    // Every row looks at the weights of every claim, so those of parts are listed once.
    let weights: Vec<Cow<'_, [AxisWeights]>> = claims.iter().map(|c| listed(&c.weights)).collect();
    let mut of_tree: Vec<Vec<Functional<'_>>> = vec![Vec::new(); trees.len()];
    for ((claim, weights), &gamma) in claims.iter().zip(&weights).zip(gammas) {
        if let Some(list) = of_tree.get_mut(claim.tree) {
            list.push(Functional {
                weights,
                ..functional(claim, gamma)
            });
        }
    }
    let make = |n: usize| {
        let (tree, row) = carriers[n];
        Table {
            functional: trees[tree].layout.functional(&of_tree[tree], row),
            row: Row::Base(trees[tree].rows.data(row)),
        }
    };
    let mut tables = Tables {
        make,
        count: carriers.len(),
        room,
        held: None,
    };
    let mut rho = Vec::with_capacity(params.log_row as usize);
    for round in 0..params.log_row {
        let sum = tables.round(&rho, params.log_row - round);
        channel.hidden("opening: sumcheck", &sum);
        rho.push(channel.challenge("opening: rho"));
    }
    rho
}

/// The weights of a claim, with none of them a part.
fn listed(weights: &[AxisWeights]) -> Cow<'_, [AxisWeights]> {
    if weights
        .iter()
        .any(|w| matches!(w, AxisWeights::Part { .. }))
    {
        let weights = weights.iter().map(|w| w.listed().into_owned());
        Cow::Owned(weights.collect())
    } else {
        Cow::Borrowed(weights)
    }
}

/// Linear combinations of the carriers' data and tails, one for each list of coefficients; shorter tails end in zeros.
fn combine<const N: usize>(
    trees: &[ProverTree<'_>],
    carriers: &[(usize, usize)],
    coefficients: &[&[K]; N],
    size: usize,
    total: usize,
) -> [Vec<K>; N] {
    let zero = || core::array::from_fn(|_| vec![K::ZERO; total]);
    let part = carriers.len().div_ceil(rayon::current_num_threads()).max(1);
    (0..carriers.len().div_ceil(part))
        .into_par_iter()
        .map(|p| {
            let mut sums: [Vec<K>; N] = zero();
            for k in p * part..((p + 1) * part).min(carriers.len()) {
                let (tree, row) = carriers[k];
                let (data, tail) = (trees[tree].rows.data(row), trees[tree].rows.tail(row));
                for (sum, coefficients) in sums.iter_mut().zip(coefficients) {
                    let (low, high) = sum.split_at_mut(size);
                    for (sums, values) in [(low, &data), (high, &tail)] {
                        for (s, &x) in sums.iter_mut().zip(values.iter()) {
                            *s += scale(coefficients[k], x);
                        }
                    }
                }
            }
            sums
        })
        .reduce(zero, |mut a, b| {
            for (a, b) in a.iter_mut().zip(&b) {
                a.iter_mut().zip(b).for_each(|(a, &b)| *a += b);
            }
            a
        })
}

/// The mask row over `K`, data then tail.
fn mask(tree: &ProverTree<'_>, total: usize) -> Vec<K> {
    let first = tree.layout.rows();
    let components = [first, first + 1].map(|row| {
        let mut all = tree.rows.data(row).into_owned();
        all.extend_from_slice(&tree.rows.tail(row));
        assert_eq!(all.len(), total, "a mask row covers the longest tail");
        all
    });
    components[0]
        .iter()
        .zip(&components[1])
        .map(|(&c0, &c1)| ext(c0, c1))
        .collect()
}

/// `sum_i a[i] b[i]` over the shorter of both.
fn inner(a: &[K], b: &[K]) -> K {
    a.iter().zip(b).map(|(&a, &b)| a * b).sum()
}

/// The polynomial with these coefficients at a point.
fn univariate(coefficients: &[K], x: K) -> K {
    coefficients
        .iter()
        .rev()
        .fold(K::ZERO, |acc, &c| acc * x + c)
}

/// The polynomial with these coefficients at positions of the rows' domain.
fn at_domain(code: &RowCode, coefficients: &[K], positions: &[usize]) -> Vec<K> {
    let size = 1 << code.log_row();
    let component = |part: fn(&K) -> F| {
        let mut data: Vec<F> = coefficients.iter().map(part).collect();
        data.resize(data.len().max(size), F::ZERO);
        let tail = data.split_off(size);
        code.symbols(&data, &tail, positions)
    };
    let (c0, c1) = rayon::join(|| component(|x| x.c0), || component(|x| x.c1));
    c0.into_iter().zip(c1).map(|(a, b)| ext(a, b)).collect()
}
