//! Public functions: their cells, and their functionals as the verifier computes them.

use super::{Challenges, Point};
use crate::gadgets::rms_norm::EXPONENT_MAX;
use crate::header::Header;
use crate::relation::{Dims, Label, Public};
use ark_ff::{AdditiveGroup, Field};
use zkmoe_commit::field::{F, K, from_i64, lift, scale};
use zkmoe_commit::shape::{AxisWeights, causal_sum};

/// Everything on which public functions depend.
#[derive(Debug, Clone, Copy)]
pub struct Publics<'a> {
    /// The tables of the model.
    pub header: &'a Header,
    /// Sizes.
    pub dims: &'a Dims,
    /// Challenges.
    pub challenges: &'a Challenges,
}

fn number(x: usize) -> F {
    from_i64(x as i64)
}

/// `sum_{x < n} x w(x)`.
fn moment(w: &AxisWeights, n: usize) -> K {
    let AxisWeights::Bits(pairs) = w else {
        return (0..n).map(|x| scale(w.at(x), number(x))).sum();
    };
    if n >> pairs.len() > 1 || n == 0 {
        return (0..n.min(1 << pairs.len()))
            .map(|x| scale(w.at(x), number(x)))
            .sum();
    }
    // Sum and moment of the low parts below the low part of n, and of all low parts.
    let (mut below, mut below_moment) = (K::ZERO, K::ZERO);
    let (mut all, mut all_moment) = (K::ONE, K::ZERO);
    for (j, [w0, w1]) in pairs.iter().enumerate() {
        let bit = number(1 << j);
        let high = |sum: K, moment: K| *w1 * (moment + scale(sum, bit));
        if n >> j & 1 == 1 {
            below_moment = *w0 * all_moment + high(below, below_moment);
            below = *w0 * all + *w1 * below;
        } else {
            below_moment *= w0;
            below *= w0;
        }
        all_moment = *w0 * all_moment + high(all, all_moment);
        all *= *w0 + w1;
    }
    if n >> pairs.len() == 1 {
        all_moment
    } else {
        below_moment
    }
}

/// The product of two weight functions, cell by cell.
fn pointwise(a: &AxisWeights, b: &AxisWeights, n: usize) -> AxisWeights {
    match (a, b) {
        (AxisWeights::Bits(a), AxisWeights::Bits(b)) if a.len() == b.len() => AxisWeights::Bits(
            a.iter()
                .zip(b)
                .map(|(x, y)| [x[0] * y[0], x[1] * y[1]])
                .collect(),
        ),
        _ => AxisWeights::Table(
            a.expand(n)
                .into_iter()
                .zip(b.expand(n))
                .map(|(x, y)| x * y)
                .collect(),
        ),
    }
}

impl Publics<'_> {
    /// The value of a function at one cell; `index` in the order of [`Public::labels`].
    pub fn cell(&self, p: Public, index: &[usize]) -> K {
        let h = self.header;
        let plane = self.dims.size(Label::Plane);
        let small = |x: i64| lift(from_i64(x));
        match (p, index) {
            (Public::Index(_), &[x]) => lift(number(x)),
            (Public::TokenId, &[r, s]) => lift(number(r << self.dims.token_id_bits() | s)),
            (Public::BlockLayer, &[a]) => lift(number(self.dims.batch().blocks[a].0)),
            (Public::BlockExpert, &[a]) => lift(number(self.dims.batch().blocks[a].1)),
            (Public::LayerOfBlock, &[a, l]) => small(i64::from(self.dims.batch().blocks[a].0 == l)),
            (Public::Causal, &[s, u]) => small(i64::from(u <= s)),
            (Public::Exists, &[r, u]) => small(i64::from(u < self.dims.batch().lengths[r])),
            (Public::Cos, &[s, j]) => small(i64::from(h.cos_table[s * plane + j])),
            (Public::Sin, &[s, j]) => small(i64::from(h.sin_table[s * plane + j])),
            (Public::FingerprintPower(l), &[x]) => {
                AxisWeights::powers(self.challenges.beta, self.dims.bits(l)).at(x)
            }
            (Public::TokenWeight, &[r, s]) => {
                self.tau(Label::Request).at(r) * self.tau(Label::Position).at(s)
            }
            (Public::ExpTable, &[y]) => small(i64::from(h.exp_table[y])),
            (Public::SiluTable, &[y]) => small(i64::from(h.silu_table[y])),
            (Public::NormScale, &[z]) => small(1 << (2 * z)),
            (Public::NormFactor, &[z]) => small(1 << (EXPONENT_MAX as usize - z)),
            _ => K::ZERO,
        }
    }

    /// All cells of a function, the last of its indices fastest.
    pub fn cells(&self, p: Public) -> Vec<K> {
        let size = |l| self.dims.size(l);
        // One cell of these takes a product over the bits of its index.
        match p {
            Public::FingerprintPower(l) => {
                return AxisWeights::powers(self.challenges.beta, self.dims.bits(l))
                    .expand(size(l));
            }
            Public::TokenWeight => {
                let of = |l| self.tau(l).expand(size(l));
                let positions = of(Label::Position);
                let requests = of(Label::Request).into_iter();
                return requests
                    .flat_map(|r| positions.iter().map(move |&s| r * s))
                    .collect();
            }
            _ => {}
        }
        let sizes: Vec<usize> = p.labels().iter().map(|&l| size(l)).collect();
        let mut index = vec![0; sizes.len()];
        let cells = (0..sizes.iter().product()).map(|_: usize| {
            let cell = self.cell(p, &index);
            for (i, &n) in index.iter_mut().zip(&sizes).rev() {
                *i += 1;
                if *i < n {
                    break;
                }
                *i = 0;
            }
            cell
        });
        cells.collect()
    }

    /// The weights of the zero-check point that is drawn after the first root.
    pub fn tau(&self, label: Label) -> AxisWeights {
        AxisWeights::eq(self.challenges.tau.get(&label).map_or(&[][..], |p| &p[..]))
    }

    /// The functional of a function over its own indices, whose cells are those below [`Dims::size`].
    pub fn value(&self, p: Public, weights: &[AxisWeights]) -> K {
        let size = |l| self.dims.size(l);
        match (p, weights) {
            (Public::Index(l), [w]) => moment(w, size(l)),
            (Public::Causal, [s, u]) => causal_sum(s, u, size(Label::Position)),
            (Public::Exists, [r, u]) => {
                let lengths = self.dims.batch().lengths.iter().enumerate();
                lengths.map(|(g, &n)| r.at(g) * u.prefix_sum(n)).sum()
            }
            (Public::Cos | Public::Sin, [s, j]) => {
                let table = if p == Public::Cos {
                    &self.header.cos_table
                } else {
                    &self.header.sin_table
                };
                let planes = j.expand(size(Label::Plane));
                let positions = s.expand(size(Label::Position));
                positions
                    .iter()
                    .zip(table.chunks(planes.len()))
                    .map(|(&w, row)| {
                        w * row
                            .iter()
                            .zip(&planes)
                            .map(|(&x, &j)| scale(j, from_i64(i64::from(x))))
                            .sum::<K>()
                    })
                    .sum()
            }
            _ => {
                // The remaining functions have one short index.
                let labels = p.labels();
                match (&labels[..], weights) {
                    ([l], [w]) => (0..size(*l)).map(|x| w.at(x) * self.cell(p, &[x])).sum(),
                    _ => K::ZERO,
                }
            }
        }
    }

    /// The functional `at` of a function that stands alone in an expression with the indices `out`: over the cells
    /// of that index set. `None` is the function 1.
    pub fn functional(&self, p: Option<Public>, out: &[Label], at: &Point) -> K {
        let shape = self.dims.shape(out);
        let none = AxisWeights::Table(Vec::new());
        let weights: Vec<&AxisWeights> = out.iter().map(|l| at.get(l).unwrap_or(&none)).collect();
        let (group, inner) = weights.split_at(usize::from(shape.is_grouped()));
        let inner_labels = &out[group.len()..];
        let mut total = K::ZERO;
        shape.each_group(|g, sizes| {
            let outer = group.first().map_or(K::ONE, |w| w.at(g));
            let sums = || sizes.iter().zip(inner).map(|(&n, w)| w.prefix_sum(n));
            // One inner axis with a functional of its own, plain sums along the others.
            let along = |label: Label, own: &dyn Fn(&AxisWeights, usize) -> K| -> K {
                let axes = inner_labels.iter().zip(sizes).zip(inner);
                axes.map(|((&l, &n), w)| {
                    if l == label {
                        own(w, n)
                    } else {
                        w.prefix_sum(n)
                    }
                })
                .product()
            };
            let ones = || sums().product::<K>();
            total += outer
                * match p {
                    None => ones(),
                    Some(Public::Index(l)) => along(l, &moment),
                    Some(Public::TokenId) => {
                        scale(ones(), number(g << self.dims.token_id_bits()))
                            + along(Label::Position, &moment)
                    }
                    Some(Public::BlockLayer) => {
                        scale(ones(), number(self.dims.batch().blocks[g].0))
                    }
                    Some(Public::BlockExpert) => {
                        scale(ones(), number(self.dims.batch().blocks[g].1))
                    }
                    Some(Public::TokenWeight) => {
                        let tau = self.tau(Label::Position);
                        let weighted =
                            |w: &AxisWeights, n: usize| pointwise(w, &tau, n).prefix_sum(n);
                        self.tau(Label::Request).at(g) * along(Label::Position, &weighted)
                    }
                    Some(Public::Causal) => {
                        let axis = |l| inner_labels.iter().position(|&x| x == l);
                        match (axis(Label::Position), axis(Label::Key)) {
                            (Some(s), Some(u)) => {
                                let others = (0..inner.len()).filter(|&a| a != s && a != u);
                                let others: K =
                                    others.map(|a| inner[a].prefix_sum(sizes[a])).product();
                                others * causal_sum(inner[s], inner[u], sizes[s])
                            }
                            _ => K::ZERO,
                        }
                    }
                    Some(table) => {
                        let own = |w: &AxisWeights, n: usize| {
                            let w = w.expand(n);
                            w.into_iter()
                                .enumerate()
                                .map(|(y, w)| w * self.cell(table, &[y]))
                                .sum()
                        };
                        table.labels().first().map_or(K::ZERO, |&l| along(l, &own))
                    }
                };
        });
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::olmoe::tests::{header, odd_sizes};
    use crate::relation::BatchShape;
    use std::collections::BTreeMap;
    use zkmoe_commit::transcript::Transcript;

    /// Every index set in which the relation uses a public function, with those functions, and some more.
    fn uses() -> Vec<(Vec<Label>, Vec<Option<Public>>)> {
        use Label::{
            Block, Decoded, Entry, Expert, Exponent, Group, Hidden, Key, KvHead, Layer, Position,
            Request, Row, Vocab,
        };
        let index = |l| Some(Public::Index(l));
        let tokens = || vec![None, Some(Public::TokenId), Some(Public::TokenWeight)];
        vec![
            (vec![], vec![None]),
            (
                vec![Request, Position],
                [tokens(), vec![index(Position)]].concat(),
            ),
            (
                vec![Request, Layer, Position, Expert],
                [tokens(), vec![index(Layer), index(Expert)]].concat(),
            ),
            (
                vec![Request, Layer, KvHead, Group, Position, Key],
                vec![None, Some(Public::Causal), index(Key)],
            ),
            (
                vec![Block, Row, Hidden],
                vec![
                    None,
                    Some(Public::BlockLayer),
                    Some(Public::BlockExpert),
                    index(Row),
                ],
            ),
            (vec![Decoded, Vocab], vec![None, index(Vocab)]),
            (vec![Vocab], vec![None, index(Vocab)]),
            (vec![Entry(5)], vec![None, index(Entry(5))]),
            (
                vec![Entry(16)],
                vec![Some(Public::ExpTable), Some(Public::SiluTable)],
            ),
            (
                vec![Exponent],
                vec![
                    index(Exponent),
                    Some(Public::NormScale),
                    Some(Public::NormFactor),
                ],
            ),
        ]
    }

    /// Factors of products, over their own indices.
    const FACTORS: [Public; 14] = [
        Public::Index(Label::Vocab),
        Public::Index(Label::Position),
        Public::Index(Label::Entry(7)),
        Public::BlockLayer,
        Public::BlockExpert,
        Public::Causal,
        Public::Exists,
        Public::Cos,
        Public::Sin,
        Public::FingerprintPower(Label::Hidden),
        Public::ExpTable,
        Public::SiluTable,
        Public::NormScale,
        Public::NormFactor,
    ];

    fn dims() -> Dims {
        let batch = BatchShape {
            lengths: vec![3, 7, 1, 6, 5],
            blocks: vec![(0, 1, 3), (0, 4, 1), (2, 0, 6)],
            decoded: 5,
        };
        Dims::new(odd_sizes(), batch)
    }

    /// What public functions depend on.
    struct Sides {
        header: Header,
        dims: Dims,
        challenges: Challenges,
    }

    impl Sides {
        fn new() -> Self {
            let (dims, mut t) = (dims(), Transcript::new("challenges"));
            let mut point = |l| (l, t.challenges("tau", dims.bits(l) as usize));
            let tau = BTreeMap::from([point(Label::Request), point(Label::Position)]);
            let challenges = Challenges {
                tau,
                tau2: BTreeMap::new(),
                beta: t.challenge("beta"),
                alpha: K::ZERO,
                delta: K::ZERO,
            };
            let header = header(odd_sizes());
            Self {
                header,
                dims,
                challenges,
            }
        }

        fn publics(&self) -> Publics<'_> {
            Publics {
                header: &self.header,
                dims: &self.dims,
                challenges: &self.challenges,
            }
        }
    }

    /// Weights for an index: product over bits, or listed one by one.
    fn weights(dims: &Dims, t: &mut Transcript, label: Label, listed: bool) -> AxisWeights {
        let bits = dims.bits(label) as usize;
        let pairs = t.challenges("w", 2 * bits);
        let w = AxisWeights::Bits(pairs.chunks(2).map(|c| [c[0], c[1]]).collect());
        if listed {
            AxisWeights::Table(w.expand(dims.size(label)))
        } else {
            w
        }
    }

    #[test]
    fn functionals_are_plain_sums_over_ragged_index_sets() {
        let sides = Sides::new();
        let (publics, mut t) = (sides.publics(), Transcript::new("weights"));
        for (out, functions) in uses() {
            let shape = publics.dims.shape(&out);
            for listed in [false, true] {
                let at: Point = out
                    .iter()
                    .map(|&l| (l, weights(publics.dims, &mut t, l, listed)))
                    .collect();
                let mut sums = vec![K::ZERO; functions.len()];
                for (g, sizes) in shape.groups().iter().enumerate() {
                    for flat in 0..sizes.iter().product() {
                        let mut index: BTreeMap<Label, usize> = BTreeMap::new();
                        let mut rest = flat;
                        let inner = &out[usize::from(shape.is_grouped())..];
                        for (&l, &n) in inner.iter().zip(sizes).rev() {
                            index.insert(l, rest % n);
                            rest /= n;
                        }
                        if shape.is_grouped() {
                            index.insert(out[0], g);
                        }
                        let weight: K = index.iter().map(|(l, &x)| at[l].at(x)).product();
                        for (sum, p) in sums.iter_mut().zip(&functions) {
                            let cell = p.map_or(K::ONE, |p| {
                                let own: Vec<usize> = p.labels().iter().map(|l| index[l]).collect();
                                publics.cell(p, &own)
                            });
                            *sum += weight * cell;
                        }
                    }
                }
                for (&p, sum) in functions.iter().zip(sums) {
                    assert_eq!(publics.functional(p, &out, &at), sum, "{p:?} over {out:?}");
                }
            }
        }
    }

    #[test]
    fn values_are_plain_sums() {
        let sides = Sides::new();
        let (publics, mut t) = (sides.publics(), Transcript::new("weights"));
        for p in FACTORS {
            let labels = p.labels();
            for listed in [false, true] {
                let w: Vec<AxisWeights> = labels
                    .iter()
                    .map(|&l| weights(publics.dims, &mut t, l, listed))
                    .collect();
                let first = publics.dims.size(labels[0]);
                let second = labels.get(1).map_or(1, |&l| publics.dims.size(l));
                let mut sum = K::ZERO;
                for (x, y) in (0..first).flat_map(|x| (0..second).map(move |y| (x, y))) {
                    let index = &[x, y][..labels.len()];
                    let weight: K = w.iter().zip(index).map(|(w, &x)| w.at(x)).product();
                    sum += weight * publics.cell(p, index);
                }
                assert_eq!(publics.value(p, &w), sum, "{p:?}");
            }
        }
    }

    #[test]
    fn cells_are_those_of_every_index() {
        let sides = Sides::new();
        let publics = sides.publics();
        let others = [Public::TokenId, Public::TokenWeight, Public::LayerOfBlock];
        for p in FACTORS.into_iter().chain(others) {
            let labels = p.labels();
            let first = publics.dims.size(labels[0]);
            let second = labels.get(1).map_or(1, |&l| publics.dims.size(l));
            let indices = (0..first).flat_map(|x| (0..second).map(move |y| [x, y]));
            let each: Vec<K> = indices
                .map(|index| publics.cell(p, &index[..labels.len()]))
                .collect();
            assert_eq!(publics.cells(p), each, "{p:?}");
        }
    }

    #[test]
    fn moments_agree_with_the_plain_sum() {
        let mut t = Transcript::new("test");
        let w = AxisWeights::Bits(
            t.challenges("w", 8)
                .chunks(2)
                .map(|c| [c[0], c[1]])
                .collect(),
        );
        for n in 0..=16 {
            let slow: K = (0..n).map(|x| scale(w.at(x), number(x))).sum();
            assert_eq!(moment(&w, n), slow, "{n}");
        }
        assert_eq!(moment(&w, 20), moment(&w, 16));
        assert_eq!(
            moment(&AxisWeights::Table(w.expand(16)), 11),
            moment(&w, 11)
        );
    }
}
