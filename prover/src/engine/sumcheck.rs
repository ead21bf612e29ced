//! The prover's half of a sumcheck over arrays of any sizes.
//!
//! Labels are bound from the last to the first, each from its lowest bit. When a label's turn comes, all later labels
//! are gone, so it is the innermost axis of every array that has it, and binding a bit halves rows in place. Arrays
//! are zero beyond their sizes; a group's missing half of a pair is zero, and so no padding is ever stored.

use ark_ff::{AdditiveGroup, Field};
use rayon::prelude::*;
use zkmoe_commit::field::{K, from_i64, lift};
use zkmoe_verifier::engine::Sumcheck;
use zkmoe_verifier::relation::{Dims, Label};

use super::array::{Array, is_group};

/// A running sumcheck.
pub struct State {
    labels: Vec<Label>,
    /// For each label its weights, folded as far as its variables are bound; one entry when all are.
    weights: Vec<Vec<K>>,
    arrays: Vec<Array>,
    terms: Vec<(K, Vec<usize>)>,
    /// For each label how many of its bits are bound.
    bound: Vec<u32>,
    bits: Vec<u32>,
    /// Sizes of the labels after the group label, for each group.
    sizes: Vec<Vec<usize>>,
}

/// Work below which threads do not pay.
const SERIAL: usize = 1 << 11;

impl State {
    /// Starts over the arrays of the sumcheck's factors.
    pub fn new(sumcheck: &Sumcheck, arrays: Vec<Array>, dims: &Dims) -> Self {
        let bits: Vec<u32> = sumcheck.labels.iter().map(|&l| dims.bits(l)).collect();
        let weights = sumcheck
            .weights
            .iter()
            .zip(&bits)
            .map(|(w, &b)| w.expand(1 << b))
            .collect();
        let sizes = dims.shape(&sumcheck.labels).groups();
        let mut state = Self {
            bound: vec![0; bits.len()],
            labels: sumcheck.labels.clone(),
            weights,
            arrays,
            terms: sumcheck.terms.clone(),
            bits,
            sizes,
        };
        for array in &mut state.arrays {
            if array.grouped && array.labels.len() == 1 {
                flatten(array);
            }
        }
        state.skip(state.labels.len());
        state
    }

    /// The label whose bit is bound next.
    fn current(&self) -> Option<usize> {
        (0..self.labels.len())
            .rev()
            .find(|&p| self.bound[p] < self.bits[p])
    }

    fn grouped(&self) -> bool {
        self.labels.first().is_some_and(|&l| is_group(l))
    }

    /// The sum over everything that is left.
    pub fn total(&self) -> K {
        match self.current() {
            Some(p) => {
                let values = self.evaluate(p, &[K::ZERO, K::ONE]);
                values[0] + values[1]
            }
            None => self.evaluate_bound(),
        }
    }

    fn evaluate_bound(&self) -> K {
        let weight: K = self.weights.iter().map(|w| w[0]).product();
        let values: Vec<K> = self.arrays.iter().map(|a| a.data[0][0]).collect();
        weight
            * self
                .terms
                .iter()
                .map(|(c, f)| *c * f.iter().map(|&i| values[i]).product::<K>())
                .sum::<K>()
    }

    /// The round polynomial at 0, 2, ..., degree.
    pub fn round(&self, degree: usize) -> Vec<K> {
        let nodes: Vec<K> = (0..=degree)
            .filter(|&t| t != 1)
            .map(|t| lift(from_i64(t as i64)))
            .collect();
        self.current()
            .map_or_else(|| vec![K::ZERO; nodes.len()], |p| self.evaluate(p, &nodes))
    }

    /// The round polynomial of label number `p` at the given nodes.
    fn evaluate(&self, p: usize, nodes: &[K]) -> Vec<K> {
        let first = usize::from(self.grouped());
        // (group, outer index) pairs; if the current label is the group label itself, a single one.
        let groups = if p < first { 1 } else { self.sizes.len() };
        let outer_sizes = |g: usize| -> &[usize] {
            if p < first {
                &[]
            } else {
                &self.sizes[g][..p - first]
            }
        };
        let mut items: Vec<(usize, usize)> = Vec::new();
        for g in 0..groups {
            items.extend((0..outer_sizes(g).iter().product()).map(|o| (g, o)));
        }
        let weights = &self.weights[p];
        let n_terms = self.terms.len();
        // Labels after the current one are bound: one weight each.
        let bound: K = self.weights[p + 1..].iter().map(|w| w[0]).product();
        let one = |&(g, o): &(usize, usize)| -> Vec<K> {
            let mut sums = vec![K::ZERO; nodes.len()];
            // Outer index, weight, and the row of each array.
            let sizes = outer_sizes(g);
            let mut index = vec![0; sizes.len()];
            let mut rest = o;
            for (i, &n) in index.iter_mut().zip(sizes).rev() {
                *i = rest % n;
                rest /= n;
            }
            let mut weight = bound;
            if p >= first && first == 1 {
                weight *= self.weights[0][g];
            }
            for (a, &i) in index.iter().enumerate() {
                weight *= self.weights[first + a][i];
            }
            if weight == K::ZERO {
                return sums;
            }
            let rows: Vec<(&[K], bool)> = self
                .arrays
                .iter()
                .map(|a| self.row(a, p, g, &index))
                .collect();
            // A row is zero beyond its end; so is a product beyond the shortest row of a varying factor in each term.
            let reach = |factors: &[usize]| {
                factors
                    .iter()
                    .filter(|&&f| rows[f].1)
                    .map(|&f| rows[f].0.len())
                    .min()
                    .unwrap_or(0)
            };
            let limits: Vec<usize> = self
                .terms
                .iter()
                .map(|(_, f)| reach(f).div_ceil(2))
                .collect();
            let pairs = limits.iter().copied().max().unwrap_or(0);
            let mut low = vec![K::ZERO; rows.len()];
            let mut step = vec![K::ZERO; rows.len()];
            for b in 0..pairs {
                for (f, (row, varies)) in rows.iter().enumerate() {
                    if *varies {
                        let x0 = row.get(2 * b).copied().unwrap_or(K::ZERO);
                        let x1 = row.get(2 * b + 1).copied().unwrap_or(K::ZERO);
                        (low[f], step[f]) = (x0, x1 - x0);
                    } else {
                        (low[f], step[f]) = (row.first().copied().unwrap_or(K::ZERO), K::ZERO);
                    }
                }
                let (w0, w1) = (weights[2 * b], weights[2 * b + 1]);
                for (sum, &t) in sums.iter_mut().zip(nodes) {
                    let mut total = K::ZERO;
                    for k in 0..n_terms {
                        if b >= limits[k] {
                            continue;
                        }
                        let (coefficient, factors) = &self.terms[k];
                        let mut product = *coefficient;
                        for &f in factors {
                            product *= if t == K::ZERO {
                                low[f]
                            } else if rows[f].1 {
                                low[f] + step[f] * t
                            } else {
                                low[f]
                            };
                        }
                        total += product;
                    }
                    *sum += total * (w0 + (w1 - w0) * t);
                }
            }
            sums.iter_mut().for_each(|s| *s *= weight);
            sums
        };
        let add = |mut a: Vec<K>, b: Vec<K>| {
            a.iter_mut().zip(b).for_each(|(x, y)| *x += y);
            a
        };
        let cells = items.len() * weights.len();
        if cells < SERIAL {
            items.iter().map(one).fold(vec![K::ZERO; nodes.len()], add)
        } else {
            items
                .par_iter()
                .with_min_len(SERIAL.div_ceil(weights.len()))
                .map(one)
                .reduce(|| vec![K::ZERO; nodes.len()], add)
        }
    }

    /// The row of an array along label `p` at an outer index, and whether the array has the label.
    fn row<'a>(&self, array: &'a Array, p: usize, g: usize, index: &[usize]) -> (&'a [K], bool) {
        let first = usize::from(self.grouped());
        let segment = if array.grouped && p >= first { g } else { 0 };
        let varies = array.labels.contains(&self.labels[p]);
        if p < first {
            // All inner labels are bound: one cell for each group.
            return (&array.data[0], varies);
        }
        if array.grouped && array.labels.len() == 1 {
            return (&array.data[0][g..=g], false);
        }
        let sizes = &array.segments[segment];
        let own = &array.labels[usize::from(array.grouped)..];
        let mut offset = 0;
        for (&label, &size) in own.iter().zip(sizes) {
            if let Some(outer) = self.labels[first..p].iter().position(|&l| l == label) {
                if index[outer] >= size {
                    return (&[], varies);
                }
                offset = offset * size + index[outer];
            }
        }
        let n = if varies {
            *sizes.last().unwrap_or(&1)
        } else {
            1
        };
        (&array.data[segment][offset * n..(offset + 1) * n], varies)
    }

    /// Binds the current variable.
    pub fn bind(&mut self, r: K) {
        let Some(p) = self.current() else { return };
        let label = self.labels[p];
        fold_row(&mut self.weights[p], r);
        self.bound[p] += 1;
        let last_bit = self.bound[p] == self.bits[p];
        for array in &mut self.arrays {
            if array.labels.last() == Some(&label) {
                if array.grouped && array.labels.len() == 1 {
                    // The group axis itself, once flattened.
                    fold_row(&mut array.data[0], r);
                } else {
                    let serial = array.data.iter().map(Vec::len).sum::<usize>() < SERIAL;
                    let fold = |(data, sizes): (&mut Vec<K>, &mut Vec<usize>)| {
                        let n = sizes.last().copied().unwrap_or(1);
                        *data = fold_rows(data, n, r);
                        if let Some(last) = sizes.last_mut() {
                            *last = n.div_ceil(2);
                        }
                    };
                    if serial {
                        array
                            .data
                            .iter_mut()
                            .zip(&mut array.segments)
                            .for_each(fold);
                    } else {
                        array
                            .data
                            .par_iter_mut()
                            .zip(&mut array.segments)
                            .for_each(fold);
                    }
                }
            }
        }
        if last_bit {
            self.retire(p);
            self.skip(p);
        }
    }

    /// Drops the labels before `p` that have a single entry, so that the next variable's label is the innermost one.
    fn skip(&mut self, mut p: usize) {
        while p > 0 && self.bits[p - 1] == 0 {
            p -= 1;
            self.retire(p);
        }
    }

    /// Drops a label whose bits are all bound, and flattens arrays of which only the group axis is left.
    fn retire(&mut self, p: usize) {
        for array in &mut self.arrays {
            if array.labels.last() == Some(&self.labels[p]) {
                if !(array.grouped && array.labels.len() == 1) {
                    for sizes in &mut array.segments {
                        sizes.pop();
                    }
                }
                array.labels.pop();
                if array.grouped && array.labels.len() == 1 {
                    flatten(array);
                }
            }
        }
    }
}

/// Makes one row of an array that has nothing but a group axis left.
fn flatten(array: &mut Array) {
    array.data = vec![
        array
            .data
            .iter()
            .map(|d| d.first().copied().unwrap_or(K::ZERO))
            .collect(),
    ];
}

fn fold_row(row: &mut Vec<K>, r: K) {
    *row = fold_rows(row, row.len(), r);
}

/// Folds every row of `n` cells.
fn fold_rows(data: &[K], n: usize, r: K) -> Vec<K> {
    let fold = |row: &[K]| -> Vec<K> {
        row.chunks(2)
            .map(|pair| match *pair {
                [x0, x1] => x0 + (x1 - x0) * r,
                [x0] => x0 - x0 * r,
                _ => K::ZERO,
            })
            .collect()
    };
    if n <= 1 {
        return data.iter().map(|&x| x - x * r).collect();
    }
    if data.len() < SERIAL {
        data.chunks(n).flat_map(fold).collect()
    } else if n >= 64 {
        data.par_chunks(n).flat_map_iter(fold).collect()
    } else {
        data.par_chunks(n * 64)
            .flat_map_iter(|rows| rows.chunks(n).flat_map(fold))
            .collect()
    }
}
