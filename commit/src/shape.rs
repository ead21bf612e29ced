//! Index sets of tensors, and the linear functionals in which claims about tensors are stated.
//!
//! A tensor's cells are a product of axes, row-major. Sizes need not be powers of two: the multilinear extension of a
//! tensor is that of its extension by zero to the next power of two in every axis, and cells outside are never
//! stored, hashed or visited. If the first axis is a *group* axis (requests of a batch, active experts), the sizes of
//! the other axes may differ from group to group (lengths, loads); the extension is then by zero to the largest.
//!
//! A claim about a tensor is a functional `sum over cells of prod over axes w_a(index_a) * cell` with one weight
//! function for each axis. [`AxisWeights::Bits`] are products over the bits of the index: an evaluation of the
//! multilinear extension has `w_j = (1 - p_j, p_j)`, a plain sum `(1, 1)`, a sum with powers of `beta`
//! `(1, beta^(2^j))`. [`AxisWeights::Table`] lists the weights of a short axis one by one.

use crate::field::K;
use ark_ff::{AdditiveGroup, Field};
use std::borrow::Cow;
use std::sync::Arc;

/// The weight of each index along one axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AxisWeights {
    /// `prod_j pair_j[bit j of the index]`, lowest bit first.
    Bits(Vec<[K; 2]>),
    /// The weight of index 0, 1, ...; zero beyond.
    Table(Vec<K>),
    /// The weights of a part of the axis, a product over the bits of the index inside the part; zero elsewhere.
    Part {
        /// The first index of the part.
        start: usize,
        /// How many indices it has.
        len: usize,
        /// As of [`AxisWeights::Bits`], for the index minus `start`.
        pairs: Vec<[K; 2]>,
    },
}

/// `prod_j pair_j[bit j of the index]`; zero beyond the bits.
fn product_over_bits(pairs: &[[K; 2]], index: usize) -> K {
    if index >> pairs.len() != 0 {
        return K::ZERO;
    }
    let chosen = pairs.iter().enumerate();
    chosen.map(|(j, pair)| pair[index >> j & 1]).product()
}

/// [`product_over_bits`] of all indices below the smallest power of two that is at least `n`, or as many as there are.
fn products_over_bits(pairs: &[[K; 2]], n: usize) -> Vec<K> {
    let mut out = vec![K::ONE];
    for pair in pairs {
        // The index's new highest bit selects the half.
        let half = out.len();
        if half >= n {
            for x in &mut out {
                *x *= pair[0];
            }
        } else {
            out.extend_from_within(..);
            let (low, high) = out.split_at_mut(half);
            low.iter_mut().for_each(|x| *x *= pair[0]);
            high.iter_mut().for_each(|x| *x *= pair[1]);
        }
    }
    out
}

/// The sum of [`product_over_bits`] over all indices below `n`.
fn sum_over_bits(pairs: &[[K; 2]], n: usize) -> K {
    if n >> pairs.len() != 0 {
        return pairs.iter().map(|p| p[0] + p[1]).product();
    }
    // From the lowest bit up: `below` sums the low parts that are less than the low part of n.
    let (mut below, mut all) = (K::ZERO, K::ONE);
    for (j, pair) in pairs.iter().enumerate() {
        below = if n >> j & 1 == 1 {
            pair[0] * all + pair[1] * below
        } else {
            pair[0] * below
        };
        all *= pair[0] + pair[1];
    }
    below
}

impl AxisWeights {
    /// The evaluation point `point`, lowest variable first: `eq(point, index)`.
    pub fn eq(point: &[K]) -> Self {
        Self::Bits(point.iter().map(|&p| [K::ONE - p, p]).collect())
    }
    /// The plain sum over an axis of `bits` bits.
    pub fn sum(bits: u32) -> Self {
        Self::Bits(vec![[K::ONE; 2]; bits as usize])
    }
    /// Powers of `base`: weight `base^index`.
    pub fn powers(base: K, bits: u32) -> Self {
        let squares = core::iter::successors(Some(base), |b| Some(b.square()));
        Self::Bits(squares.take(bits as usize).map(|b| [K::ONE, b]).collect())
    }
    /// One index alone.
    pub fn unit(index: usize) -> Self {
        let mut table = vec![K::ZERO; index + 1];
        table[index] = K::ONE;
        Self::Table(table)
    }

    /// The weight of one index; zero beyond the axis.
    pub fn at(&self, index: usize) -> K {
        match self {
            Self::Bits(pairs) => product_over_bits(pairs, index),
            Self::Table(table) => table.get(index).copied().unwrap_or(K::ZERO),
            Self::Part { start, len, pairs } => match index.checked_sub(*start) {
                Some(inside) if inside < *len => product_over_bits(pairs, inside),
                _ => K::ZERO,
            },
        }
    }

    /// The weights of indices `0..n`; zeros where `n` exceeds the axis.
    pub fn expand(&self, n: usize) -> Vec<K> {
        let mut out = match self {
            Self::Bits(pairs) => products_over_bits(pairs, n),
            Self::Table(table) => table.clone(),
            Self::Part { start, len, pairs } => {
                let mut out = vec![K::ZERO; (*start).min(n)];
                let mut inside = products_over_bits(pairs, (*len).min(n - out.len()));
                inside.truncate(*len);
                out.append(&mut inside);
                out
            }
        };
        out.resize(n, K::ZERO);
        out
    }

    /// The same weights, those of a part listed one by one.
    pub fn listed(&self) -> Cow<'_, Self> {
        match self {
            Self::Part { start, len, .. } => Cow::Owned(Self::Table(self.expand(start + len))),
            _ => Cow::Borrowed(self),
        }
    }

    /// `sum_{index < n} w(index)`.
    pub fn prefix_sum(&self, n: usize) -> K {
        match self {
            Self::Table(table) => table.iter().take(n).sum(),
            Self::Bits(pairs) => sum_over_bits(pairs, n),
            Self::Part { start, len, pairs } => {
                sum_over_bits(pairs, n.saturating_sub(*start).min(*len))
            }
        }
    }

    /// The multilinear extension of the weights at a point, lowest variable first.
    pub fn extension(&self, point: &[K]) -> K {
        match self {
            Self::Bits(pairs) => {
                let inside: K = pairs
                    .iter()
                    .zip(point)
                    .map(|(p, &r)| p[0] + (p[1] - p[0]) * r)
                    .product();
                inside
                    * point
                        .iter()
                        .skip(pairs.len())
                        .map(|&r| K::ONE - r)
                        .product::<K>()
            }
            Self::Table(table) => {
                let eq = Self::eq(point).expand(table.len());
                table.iter().zip(eq).map(|(&t, e)| t * e).sum()
            }
            Self::Part { .. } => self.listed().extension(point),
        }
    }
}

/// `sum w_s(s) * w_u(u)` over `u <= s < n`: the weight of a causal mask.
pub fn causal_sum(ws: &AxisWeights, wu: &AxisWeights, n: usize) -> K {
    match (ws, wu) {
        (AxisWeights::Bits(ps), AxisWeights::Bits(pu))
            if ps.len() == pu.len() && n >> ps.len() == 0 =>
        {
            // From the lowest bit up, by how the low bits compare: s against n (< or >=) and u against s (<= or >).
            let mut sums = [[K::ZERO; 2]; 2];
            sums[1][0] = K::ONE;
            for (j, (ps, pu)) in ps.iter().zip(pu).enumerate() {
                let bit = n >> j & 1;
                let mut next = [[K::ZERO; 2]; 2];
                for s in 0..2 {
                    for u in 0..2 {
                        let weight = ps[s] * pu[u];
                        for (s_not_below, row) in sums.iter().enumerate() {
                            for (u_above, &sum) in row.iter().enumerate() {
                                let s_not_below = if s == bit {
                                    s_not_below
                                } else {
                                    usize::from(s > bit)
                                };
                                let u_above = if u == s { u_above } else { usize::from(u > s) };
                                next[s_not_below][u_above] += sum * weight;
                            }
                        }
                    }
                }
                sums = next;
            }
            sums[0][0]
        }
        _ => {
            let mut prefix = K::ZERO;
            (0..n)
                .map(|s| {
                    prefix += wu.at(s);
                    ws.at(s) * prefix
                })
                .sum()
        }
    }
}

/// How many bits an index below `n` takes.
pub const fn index_bits(n: usize) -> u32 {
    n.next_power_of_two().trailing_zeros()
}

/// Sizes of an axis that differ from group to group. Shapes share them, so that many shapes over many groups are small.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ragged {
    sizes: Arc<[usize]>,
    largest: usize,
}

impl Ragged {
    /// The sizes in all groups.
    pub fn new(sizes: Vec<usize>) -> Self {
        Self {
            largest: sizes.iter().copied().max().unwrap_or(0),
            sizes: sizes.into(),
        }
    }

    /// The largest size.
    pub fn largest(&self) -> usize {
        self.largest
    }

    /// Number of groups.
    pub fn groups(&self) -> usize {
        self.sizes.len()
    }
}

/// The size of an axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AxisSize {
    /// The same in each group.
    Same(usize),
    /// One for each group.
    Each(Ragged),
}

impl AxisSize {
    fn largest(&self) -> usize {
        match self {
            Self::Same(n) => *n,
            Self::Each(ragged) => ragged.largest,
        }
    }

    fn of(&self, group: usize) -> usize {
        match self {
            Self::Same(n) => *n,
            Self::Each(ragged) => ragged.sizes.get(group).copied().unwrap_or(0),
        }
    }
}

/// The index set of a tensor. It takes no more memory for many groups than for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    grouped: bool,
    /// Entries of the group axis; one where there is none.
    groups: usize,
    /// Sizes of the axes that are not the group axis.
    axes: Vec<AxisSize>,
}

impl Shape {
    /// A plain product of axes.
    pub fn dense(sizes: &[usize]) -> Self {
        Self {
            grouped: false,
            groups: 1,
            axes: sizes.iter().map(|&n| AxisSize::Same(n)).collect(),
        }
    }

    /// A group axis of `sizes.len()` entries, followed by axes of the sizes listed for each group.
    ///
    /// # Panics
    /// If groups differ in their number of axes.
    pub fn grouped(sizes: Vec<Vec<usize>>) -> Self {
        let groups = sizes.len();
        let mut axes = vec![Vec::with_capacity(groups); sizes.first().map_or(0, Vec::len)];
        for group in sizes {
            assert_eq!(group.len(), axes.len(), "groups have the same axes");
            for (axis, size) in axes.iter_mut().zip(group) {
                axis.push(size);
            }
        }
        let axes = axes
            .into_iter()
            .map(|axis| AxisSize::Each(Ragged::new(axis)));
        Self::by_axis(groups, axes.collect())
    }

    /// A group axis of so many entries, followed by these axes. In a group for which an axis lists no size it is empty.
    pub fn by_axis(groups: usize, axes: Vec<AxisSize>) -> Self {
        Self {
            grouped: true,
            groups,
            axes,
        }
    }

    /// Whether the first axis is a group axis.
    pub fn is_grouped(&self) -> bool {
        self.grouped
    }

    /// For each group the sizes of the axes after the group axis; one entry where there is none. The list is made for the
    /// caller: [`Shape::each_group`] goes through the groups without one.
    pub fn groups(&self) -> Vec<Vec<usize>> {
        let mut all = Vec::new();
        self.each_group(|_, sizes| all.push(sizes.to_vec()));
        all
    }

    /// Visits all groups, each with the sizes of the axes after the group axis; one group where there is no such axis.
    pub fn each_group(&self, mut visit: impl FnMut(usize, &[usize])) {
        let mut sizes = vec![0; self.axes.len()];
        for group in 0..self.groups {
            for (size, axis) in sizes.iter_mut().zip(&self.axes) {
                *size = axis.of(group);
            }
            visit(group, &sizes);
        }
    }

    /// Entries of the group axis; one where there is none.
    pub fn group_count(&self) -> usize {
        self.groups
    }

    /// The sizes of the axes after the group axis in one group.
    pub fn group(&self, group: usize) -> Vec<usize> {
        self.axes.iter().map(|axis| axis.of(group)).collect()
    }

    /// Number of axes, the group axis included.
    pub fn axes(&self) -> usize {
        self.axes.len() + usize::from(self.grouped)
    }

    /// The size of an axis, the largest of all groups.
    pub fn size(&self, axis: usize) -> usize {
        match axis.checked_sub(usize::from(self.grouped)) {
            None => self.groups,
            Some(inner) => self.axes[inner].largest(),
        }
    }

    /// Bits of the index along each axis.
    pub fn bits(&self) -> Vec<u32> {
        (0..self.axes()).map(|a| index_bits(self.size(a))).collect()
    }

    /// Number of cells.
    pub fn len(&self) -> usize {
        let mut cells = 0;
        self.each_group(|_, sizes| cells += sizes.iter().product::<usize>());
        cells
    }

    /// Whether there are no cells.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The functional `weights` applied to the tensor of ones: the extension of the index set's indicator.
    pub fn indicator(&self, weights: &[AxisWeights]) -> K {
        let (group, inner) = weights.split_at(usize::from(self.grouped));
        let mut total = K::ZERO;
        self.each_group(|g, sizes| {
            let outer = group.first().map_or(K::ONE, |w| w.at(g));
            let sums = sizes.iter().zip(inner).map(|(&n, w)| w.prefix_sum(n));
            total += outer * sums.product::<K>();
        });
        total
    }

    /// The functional `weights` applied to `cells`, in the slowest and most obvious way.
    pub fn evaluate(&self, cells: impl IntoIterator<Item = K>, weights: &[AxisWeights]) -> K {
        let mut cells = cells.into_iter();
        let (group, inner) = weights.split_at(usize::from(self.grouped));
        let mut total = K::ZERO;
        self.each_group(|g, sizes| {
            let outer = group.first().map_or(K::ONE, |w| w.at(g));
            for flat in 0..sizes.iter().product() {
                let (mut rest, mut weight) = (flat, outer);
                for (&n, w) in sizes.iter().zip(inner).rev() {
                    weight *= w.at(rest % n);
                    rest /= n;
                }
                total += weight * cells.next().unwrap_or(K::ZERO);
            }
        });
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transcript::Transcript;

    fn bits(t: &mut Transcript, n: usize) -> AxisWeights {
        AxisWeights::Bits(
            t.challenges("w", 2 * n)
                .chunks(2)
                .map(|c| [c[0], c[1]])
                .collect(),
        )
    }

    /// The smallest product over bits that covers a part.
    fn part(t: &mut Transcript, start: usize, len: usize) -> AxisWeights {
        match bits(t, index_bits(len) as usize) {
            AxisWeights::Bits(pairs) => AxisWeights::Part { start, len, pairs },
            other => other,
        }
    }

    #[test]
    fn the_weights_of_a_part_are_zero_outside() {
        let mut t = Transcript::new("test");
        let AxisWeights::Part { start, len, pairs } = part(&mut t, 5, 6) else {
            panic!("a part")
        };
        let inside = AxisWeights::Bits(pairs.clone());
        let part = AxisWeights::Part { start, len, pairs };
        let expected: Vec<K> = (0..20)
            .map(|i| {
                if (5..11).contains(&i) {
                    inside.at(i - 5)
                } else {
                    K::ZERO
                }
            })
            .collect();
        assert_eq!(part.expand(20), expected);
        assert_eq!(*part.listed(), AxisWeights::Table(expected[..11].to_vec()));
        assert_eq!(part.expand(7), expected[..7]);
        assert_eq!(part.expand(3), [K::ZERO; 3]);
    }

    #[test]
    fn ragged_shapes_know_their_groups_however_they_were_made() {
        let lengths = Ragged::new(vec![5, 1, 6]);
        let by_axis = Shape::by_axis(3, vec![AxisSize::Same(2), AxisSize::Each(lengths)]);
        let listed = Shape::grouped(vec![vec![2, 5], vec![2, 1], vec![2, 6]]);
        assert_eq!(by_axis.groups(), listed.groups());
        for shape in [by_axis, listed] {
            assert_eq!((shape.axes(), shape.len()), (3, 24));
            assert_eq!([0, 1, 2].map(|axis| shape.size(axis)), [3, 2, 6]);
        }
        let none = Shape::grouped(Vec::new());
        assert_eq!((none.axes(), none.size(0), none.len()), (1, 0, 0));
    }

    #[test]
    fn expansion_prefix_sums_and_extension_agree_with_single_weights() {
        let mut t = Transcript::new("test");
        for (w, n_max) in [
            (bits(&mut t, 4), 20),
            (AxisWeights::Table(t.challenges("w", 11)), 20),
            (bits(&mut t, 0), 3),
            (part(&mut t, 3, 7), 14),
            (part(&mut t, 5, 8), 16),
            (part(&mut t, 0, 1), 2),
        ] {
            for n in 0..=n_max {
                let each: Vec<K> = (0..n).map(|i| w.at(i)).collect();
                assert_eq!(w.expand(n), each, "expand {n}");
                assert_eq!(w.prefix_sum(n), each.iter().sum::<K>(), "prefix {n}");
            }
            let point = t.challenges("p", 4);
            let eq = AxisWeights::eq(&point);
            let slow: K = (0..16).map(|i| eq.at(i) * w.at(i)).sum();
            assert_eq!(w.extension(&point), slow);
        }
    }

    #[test]
    fn causal_sum_agrees_with_the_double_loop() {
        let mut t = Transcript::new("test");
        let (ws, wu) = (bits(&mut t, 3), bits(&mut t, 3));
        for n in 0..=8 {
            let slow: K = (0..n)
                .flat_map(|s| (0..=s).map(move |u| (s, u)))
                .map(|(s, u)| ws.at(s) * wu.at(u))
                .sum();
            assert_eq!(causal_sum(&ws, &wu, n), slow, "{n}");
            assert_eq!(
                causal_sum(&AxisWeights::Table(ws.expand(8)), &wu, n),
                slow,
                "{n}"
            );
        }
    }

    #[test]
    fn indicator_is_the_functional_of_ones() {
        let mut t = Transcript::new("test");
        let shape = Shape::grouped(vec![vec![3, 5, 2], vec![4, 1, 2], vec![1, 6, 2]]);
        assert_eq!(shape.bits(), [2, 2, 3, 1]);
        assert_eq!(shape.len(), 30 + 8 + 12);
        let w: Vec<_> = shape
            .bits()
            .iter()
            .map(|&b| bits(&mut t, b as usize))
            .collect();
        assert_eq!(
            shape.indicator(&w),
            shape.evaluate(vec![K::ONE; shape.len()], &w)
        );
    }
}
