//! Values of expressions at every cell of their index set, and what the prover derives from them: digits and
//! multiplicities.

use ark_ff::AdditiveGroup;
use core::ops::{AddAssign, Mul};
use rayon::prelude::*;
use zkmoe_commit::field::{F, K, from_i64, word};
use zkmoe_commit::shape::AxisWeights;
use zkmoe_verifier::engine::{AxisUse, Factor, Publics, Source};
use zkmoe_verifier::relation::{
    Count, Expr, Fill, Index, Label, Lookup, Public, Ref, Relation, Tag, Term,
};

use super::array::project;
use super::view::{View, Witness, cells, tensor_view};

/// The values of an expression, in memory order.
#[derive(Debug, Clone)]
pub enum Column {
    /// In the base field.
    Base(Vec<F>),
    /// In the extension, where a tensor of the expression lies there.
    Ext(Vec<K>),
}

/// A factor of a term: its cells and how they are read in each group.
struct Input<T> {
    data: Vec<T>,
    views: Vec<View>,
}

/// Everything that evaluation reads.
#[derive(Clone, Copy)]
pub struct Tables<'a> {
    /// The relation.
    pub relation: &'a Relation,
    /// Public functions.
    pub publics: &'a Publics<'a>,
    /// The tensors.
    pub witness: &'a Witness,
}

impl Tables<'_> {
    /// Evaluates `expr` at every cell of `out`.
    pub fn evaluate(&self, out: &[Label], expr: &Expr) -> Column {
        let extension = expr.0.iter().any(|t| {
            t.refs
                .iter()
                .any(|r| self.relation.tensors[r.tensor].extension)
                || t.publics
                    .iter()
                    .any(|p| matches!(p, Public::TokenWeight | Public::FingerprintPower(_)))
        });
        if extension {
            Column::Ext(self.sum(out, expr, |x| x, |f| K::new(f, F::ZERO)))
        } else {
            Column::Base(self.sum(out, expr, |x: K| x.c0, |f| f))
        }
    }

    fn sum<T>(
        &self,
        out: &[Label],
        expr: &Expr,
        of_ext: impl Fn(K) -> T + Sync,
        of_base: impl Fn(F) -> T + Sync,
    ) -> Vec<T>
    where
        T: Copy + Send + Sync + AddAssign + Mul<Output = T> + AdditiveGroup,
    {
        let shape = self.publics.dims.shape(out);
        let mut total = vec![T::ZERO; shape.len()];
        for term in &expr.0 {
            let coefficient = of_base(from_i64(term.coefficient));
            let inputs = self.inputs(out, term, &of_ext, &of_base);
            self.add_term(out, term, coefficient, &inputs, &mut total);
        }
        total
    }

    fn inputs<T: Copy>(
        &self,
        out: &[Label],
        term: &Term,
        of_ext: &(impl Fn(K) -> T + Sync),
        of_base: &(impl Fn(F) -> T + Sync),
    ) -> Vec<Input<T>> {
        let dims = self.publics.dims;
        let groups = dims.shape(out).group_count();
        let tensors = term.refs.iter().map(|r| {
            let tensor = &self.relation.tensors[r.tensor];
            let data = match &self.witness.tensors[r.tensor][..] {
                [base] => base.iter().map(|&x| of_base(x)).collect(),
                _ => cells(
                    self.relation,
                    self.publics,
                    self.witness,
                    Source::Tensor(r.tensor),
                )
                .into_iter()
                .map(of_ext)
                .collect(),
            };
            Input {
                data,
                views: (0..groups)
                    .map(|g| tensor_view(dims, &tensor.axes, &r.index, g))
                    .collect(),
            }
        });
        // Indicators of indices that exist are 1 at every cell that is visited.
        let publics = term
            .publics
            .iter()
            .filter(|p| **p != Public::Exists)
            .map(|&p| {
                let values = cells(self.relation, self.publics, self.witness, Source::Public(p));
                let labels = p.labels();
                let views = (0..groups)
                    .map(|g| {
                        let mut view = View {
                            offset: 0,
                            strides: Vec::new(),
                        };
                        let mut stride = 1;
                        for &l in labels.iter().rev() {
                            if out.first() == Some(&l) && matches!(l, Label::Request | Label::Block)
                            {
                                view.offset += g * stride;
                            } else {
                                view.strides.push((l, stride));
                            }
                            stride *= dims.size(l);
                        }
                        view
                    })
                    .collect();
                Input {
                    data: values.into_iter().map(of_ext).collect(),
                    views,
                }
            });
        tensors.chain(publics).collect()
    }

    fn add_term<T>(
        &self,
        out: &[Label],
        term: &Term,
        coefficient: T,
        inputs: &[Input<T>],
        total: &mut [T],
    ) where
        T: Copy + Send + Sync + AddAssign + Mul<Output = T> + AdditiveGroup,
    {
        let dims = self.publics.dims;
        let group_label = out
            .first()
            .copied()
            .filter(|l| matches!(l, Label::Request | Label::Block));
        let mut summed: Vec<Label> = term
            .refs
            .iter()
            .flat_map(|r| &r.index)
            .filter_map(|i| i.label())
            .collect();
        summed.sort();
        summed.dedup();
        summed.retain(|l| !out.contains(l));
        let inner = &out[usize::from(group_label.is_some())..];
        let shape = dims.shape(out);
        // Sizes of summed labels may depend on the group as well.
        let summed_labels: Vec<Label> = group_label
            .into_iter()
            .chain(summed.iter().copied())
            .collect();
        let summed_shape = dims.shape(&summed_labels);
        let mut rest = total;
        for (g, sizes) in shape.groups().iter().enumerate() {
            let (segment, tail) = rest.split_at_mut(sizes.iter().product());
            rest = tail;
            let summed_sizes = &summed_shape.group(g);
            let offsets: Vec<Vec<usize>> = inputs
                .iter()
                .map(|i| offsets(&summed, summed_sizes, &i.views[g]))
                .collect();
            let count: usize = summed_sizes.iter().product();
            let strides: Vec<Vec<usize>> = inputs
                .iter()
                .map(|i| inner.iter().map(|&l| i.views[g].stride(l)).collect())
                .collect();
            let row = sizes.last().copied().unwrap_or(1);
            let work = |(o, cells): (usize, &mut [T])| {
                let mut base: Vec<usize> = inputs.iter().map(|i| i.views[g].offset).collect();
                let mut left = o;
                for a in (0..sizes.len().saturating_sub(1)).rev() {
                    let i = left % sizes[a];
                    left /= sizes[a];
                    base.iter_mut()
                        .zip(&strides)
                        .for_each(|(b, s)| *b += i * s[a]);
                }
                let step: Vec<usize> = strides
                    .iter()
                    .map(|s| s.last().copied().unwrap_or(0))
                    .collect();
                for (n, cell) in cells.iter_mut().enumerate() {
                    let at = |f: usize| &inputs[f].data[base[f] + n * step[f]..];
                    let value = match inputs.len() {
                        0 => coefficient,
                        1 if count == 1 => at(0)[0] * coefficient,
                        2 if count == 1 => at(0)[0] * at(1)[0] * coefficient,
                        2 => {
                            let (a, b) = (at(0), at(1));
                            let mut sum = T::ZERO;
                            for (&i, &j) in offsets[0].iter().zip(&offsets[1]) {
                                sum += a[i] * b[j];
                            }
                            sum * coefficient
                        }
                        _ => {
                            let mut sum = T::ZERO;
                            for s in 0..count {
                                let mut product = at(0)[offsets[0][s]];
                                for f in 1..inputs.len() {
                                    product = product * at(f)[offsets[f][s]];
                                }
                                sum += product;
                            }
                            sum * coefficient
                        }
                    };
                    *cell += value;
                }
            };
            if segment.len() * count < 1 << 12 {
                segment.chunks_mut(row.max(1)).enumerate().for_each(work);
            } else {
                segment
                    .par_chunks_mut(row.max(1))
                    .enumerate()
                    .for_each(work);
            }
        }
    }
}

/// The offsets of a view at every combination of the labels.
fn offsets(labels: &[Label], sizes: &[usize], view: &View) -> Vec<usize> {
    let mut out = vec![0];
    for (&label, &n) in labels.iter().zip(sizes) {
        let stride = view.stride(label);
        out = out
            .iter()
            .flat_map(|&o| (0..n).map(move |i| o + i * stride))
            .collect();
    }
    out
}

/// The signed integer nearest to a residue.
fn signed(x: F) -> i64 {
    let w = word(x);
    if w > zkmoe_commit::field::MODULUS / 2 {
        w.wrapping_sub(zkmoe_commit::field::MODULUS) as i64
    } else {
        w as i64
    }
}

/// Digit number `position` in base `2^16` of values that an honest trace keeps in range.
pub fn digit(column: &Column, position: u32) -> Vec<F> {
    match column {
        Column::Base(values) => values
            .par_iter()
            .map(|&x| {
                let x = signed(x);
                // The upper digits of the top limb stay together; an honest value has none above it.
                from_i64((x >> (16 * position)) & 0xFFFF)
            })
            .collect(),
        Column::Ext(values) => vec![F::ZERO; values.len()],
    }
}

/// How often each entry of the table with this tag is looked up.
pub fn multiplicities(
    tables: &Tables<'_>,
    tag: Tag,
    size: usize,
    columns: &[Vec<Option<Column>>],
) -> Vec<F> {
    let mut counts = vec![0i64; size];
    for (lookup, columns) in tables.relation.lookups.iter().zip(columns) {
        if lookup.tag != tag || matches!(lookup.count, Count::Minus(_)) {
            continue;
        }
        let Some(Some(Column::Base(keys))) = columns.first() else {
            continue;
        };
        let weights = count_cells(tables, lookup);
        for (n, &key) in keys.iter().enumerate() {
            let key = word(key) as usize;
            let index = if tag == Tag::RowWeight {
                token_cell(tables, key)
            } else {
                Some(key)
            };
            if let Some(count) = index.and_then(|i| counts.get_mut(i)) {
                *count += weights.as_ref().map_or(1, |w| signed(w[n]));
            }
        }
    }
    counts.into_iter().map(from_i64).collect()
}

/// The position of a token id among all tokens.
fn token_cell(tables: &Tables<'_>, id: usize) -> Option<usize> {
    let bits = tables.publics.dims.token_id_bits();
    let (r, s) = (id >> bits, id & ((1 << bits) - 1));
    let lengths = &tables.publics.dims.batch().lengths;
    (s < *lengths.get(r)?).then(|| lengths[..r].iter().sum::<usize>() + s)
}

/// The count of a lookup at each cell, signs left out; `None` where it is 1 everywhere.
pub fn count_cells(tables: &Tables<'_>, lookup: &Lookup) -> Option<Vec<F>> {
    let expr = match &lookup.count {
        Count::One => return None,
        Count::Causal => Expr::public(Public::Causal),
        Count::Plus(r) | Count::Minus(r) => Expr::from(r.clone()),
    };
    match tables.evaluate(&lookup.out, &expr) {
        Column::Base(values) => Some(values),
        Column::Ext(_) => None,
    }
}

/// Evaluates every component of every tuple that does not depend on a tensor of the second round.
pub fn first_columns(tables: &Tables<'_>) -> Vec<Vec<Option<Column>>> {
    tables
        .relation
        .lookups
        .iter()
        .map(|l| {
            l.tuple
                .iter()
                .map(|e| {
                    (!depends_on_second(tables.relation, e)).then(|| tables.evaluate(&l.out, e))
                })
                .collect()
        })
        .collect()
}

/// Whether an expression can be evaluated only after the second round.
pub fn depends_on_second(relation: &Relation, expr: &Expr) -> bool {
    expr.0.iter().any(|t| {
        t.refs.iter().any(|r| relation.tensors[r.tensor].extension)
            || t.publics.contains(&Public::TokenWeight)
            // Multiplicities are not known yet; no tuple depends on them.
            || t.refs.iter().any(|r| matches!(relation.tensors[r.tensor].fill, Fill::Multiplicity(_)))
    })
}

/// The fingerprints `sum_i beta^i x[.., i]` of the rows of a tensor.
pub fn fingerprints(
    relation: &Relation,
    publics: &Publics<'_>,
    witness: &Witness,
    of: &Ref,
) -> Vec<K> {
    let axes = of
        .index
        .iter()
        .map(|&index| match index {
            Index::At(Label::Hidden) => {
                let bits = publics.dims.bits(Label::Hidden);
                AxisUse::Bind(AxisWeights::powers(publics.challenges.beta, bits))
            }
            Index::Fixed(i) => AxisUse::Bind(AxisWeights::unit(i)),
            index => AxisUse::Keep(index),
        })
        .collect();
    let array = project(
        relation,
        publics,
        witness,
        &Factor {
            source: Source::Tensor(of.tensor),
            axes,
        },
    );
    array.data.into_iter().flatten().collect()
}

/// `eq(tau, id)` of every row's token id; zero where no token has the id.
pub fn row_weights(publics: &Publics<'_>, witness: &Witness, ids: &Ref) -> Vec<K> {
    let dims = publics.dims;
    let bits = dims.token_id_bits();
    let requests = publics
        .tau(Label::Request)
        .expand(dims.size(Label::Request));
    let positions = publics.tau(Label::Position).expand(dims.longest());
    witness.tensors[ids.tensor][0]
        .par_iter()
        .map(|&id| {
            let id = word(id);
            let (r, s) = ((id >> bits) as usize, (id & ((1 << bits) - 1)) as usize);
            match (requests.get(r), positions.get(s)) {
                (Some(&r), Some(&s)) => r * s,
                _ => K::ZERO,
            }
        })
        .collect()
}
