//! Whether views of many proofs are uniform, word by word, label by label and jointly.
//!
//! All views are under the same challenges, so whatever is not random shows as the same in all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use ark_ff::{AdditiveGroup, Field};
use rayon::prelude::*;
use zkmoe_commit::field::F;
use zkmoe_commit::transcript::Transcript;

use crate::view::Seen;

/// A uniform sample exceeds this with a probability of about 10^-12, and there are about 10^6 statistics. Seeds are fixed,
/// so a test that passes passes always.
pub const LIMIT: f64 = 7.0;

/// Views of the same kind, word by word.
pub struct Sample {
    /// Every message's label and place.
    messages: Vec<(&'static str, Range<usize>)>,
    views: Vec<Vec<u64>>,
}

/// The worst that a label shows.
#[derive(Debug, Clone, Copy, Default)]
pub struct Worst {
    /// Words in one view.
    pub words: usize,
    /// The largest deviation of bytes over all words of the label, in standard deviations.
    pub pooled: f64,
    /// The largest deviation of half a byte of one word.
    pub single: f64,
    /// Groups of words that are linearly dependent.
    pub dependent: usize,
}

impl Worst {
    /// Whether the label is not uniform.
    pub fn fails(&self) -> bool {
        self.pooled > LIMIT || self.single > LIMIT || self.dependent > 0
    }
}

impl Sample {
    /// Takes views with the same messages, but for those with these labels.
    pub fn new(views: &[Vec<Seen>], without: &[&str]) -> Self {
        let mut messages = Vec::new();
        let mut end = 0;
        let kept = |seen: &&Seen| !without.contains(&seen.label);
        for seen in views[0].iter().filter(kept) {
            let start = end;
            end += seen.words.len();
            messages.push((seen.label, start..end));
        }
        let views = views
            .iter()
            .map(|view| {
                let labels = view.iter().filter(kept).map(|s| (s.label, s.words.len()));
                let expected = messages.iter().map(|(label, at)| (*label, at.len()));
                assert!(labels.eq(expected), "views of one kind");
                let words = view.iter().filter(kept).flat_map(|s| &s.words);
                words.copied().collect()
            })
            .collect();
        Self { messages, views }
    }

    /// The number of views.
    pub fn len(&self) -> usize {
        self.views.len()
    }

    /// The words of a label in all views.
    fn places(&self) -> BTreeMap<&'static str, Vec<usize>> {
        let mut places: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for (label, at) in &self.messages {
            places.entry(*label).or_default().extend(at.clone());
        }
        places
    }

    /// Examines every label.
    pub fn examine(&self) -> BTreeMap<&'static str, Worst> {
        self.places()
            .into_par_iter()
            .map(|(label, places)| {
                let worst = Worst {
                    words: places.len(),
                    pooled: self.pooled(&places),
                    single: self.single(&places),
                    dependent: self.dependent(&places),
                };
                (label, worst)
            })
            .collect()
    }

    /// The labels that are not uniform.
    pub fn failing(&self) -> BTreeSet<&'static str> {
        let failing = self.examine().into_iter().filter(|(_, w)| w.fails());
        failing.map(|(label, _)| label).collect()
    }

    /// Lowest and highest byte, or half a byte if there are few words.
    fn pooled(&self, places: &[usize]) -> f64 {
        let words = || {
            let of_view = |view: &'_ Vec<u64>| places.iter().map(|&i| view[i]).collect::<Vec<_>>();
            self.views.iter().flat_map(of_view)
        };
        let bits = if places.len() * self.len() >= 5 << 8 {
            8
        } else {
            4
        };
        both_ends(words, bits)
    }

    fn single(&self, places: &[usize]) -> f64 {
        places
            .par_iter()
            .map(|&i| both_ends(|| self.views.iter().map(|view| view[i]), 4))
            .reduce(|| 0.0, f64::max)
    }

    /// Differences from the first view, for groups of neighbours about a third as wide as there are views. The rank of uniform
    /// ones is full but for a chance of p to the minus two thirds of the number of views.
    fn dependent(&self, places: &[usize]) -> usize {
        places
            .par_chunks((self.len() / 3).max(1))
            .filter(|group| self.are_dependent(group))
            .count()
    }

    /// As for neighbours, for groups of random words of all messages. What the verifier checks are relations of more words.
    pub fn dependent_across(&self, groups: u64) -> usize {
        let words = self.views[0].len();
        (0..groups)
            .into_par_iter()
            .filter(|&n| {
                let mut transcript = Transcript::new("groups of words");
                transcript.absorb("group", &n.to_le_bytes());
                let bits = words.ilog2() + 1;
                let mut group = transcript.positions("words", self.len() / 2, bits);
                group.retain(|&i| i < words);
                self.are_dependent(&group)
            })
            .count()
    }

    fn are_dependent(&self, group: &[usize]) -> bool {
        let (first, rest) = self.views.split_first().expect("a view");
        let differences = rest
            .iter()
            .map(|view| {
                let difference = |&i: &usize| F::from(view[i]) - F::from(first[i]);
                group.iter().map(difference).collect()
            })
            .collect();
        rank(differences) < group.len()
    }
}

/// The larger deviation from the uniform distribution of the lowest and the highest bits.
fn both_ends<I: Iterator<Item = u64>>(words: impl Fn() -> I, bits: u32) -> f64 {
    let low = words().map(|w| w & ((1 << bits) - 1));
    let high = words().map(|w| w >> (64 - bits));
    deviation(low, 1 << bits).max(deviation(high, 1 << bits))
}

/// Pearson's chi-square statistic against the uniform distribution, as the standard deviations of a normal distribution (E. Wilson,
/// M. Hilferty, "The distribution of chi-square", 1931). Too even counts as much as too uneven.
fn deviation(values: impl Iterator<Item = u64>, bins: usize) -> f64 {
    let mut counts = vec![0u32; bins];
    values.for_each(|v| counts[v as usize] += 1);
    let n: u32 = counts.iter().sum();
    let expected = f64::from(n) / bins as f64;
    let chi_square: f64 = counts
        .iter()
        .map(|&c| (f64::from(c) - expected).powi(2) / expected)
        .sum();
    let degrees = bins as f64 - 1.0;
    let spread = 2.0 / (9.0 * degrees);
    (((chi_square / degrees).cbrt() - 1.0 + spread) / spread.sqrt()).abs()
}

/// The rank of a matrix, by elimination.
pub fn rank(mut rows: Vec<Vec<F>>) -> usize {
    let width = rows.first().map_or(0, Vec::len);
    let mut rank = 0;
    for column in 0..width {
        let Some(pivot) = (rank..rows.len()).find(|&r| rows[r][column] != F::ZERO) else {
            continue;
        };
        rows.swap(rank, pivot);
        let (done, rest) = rows.split_at_mut(rank + 1);
        let pivot = &done[rank][column..];
        let inverse = pivot[0].inverse().expect("not zero");
        rest.par_iter_mut().with_min_len(16).for_each(|row| {
            let c = row[column] * inverse;
            if c != F::ZERO {
                let row = row[column..].iter_mut();
                row.zip(pivot).for_each(|(x, &p)| *x -= c * p);
            }
        });
        rank += 1;
    }
    rank
}

#[test]
fn deviations_are_those_of_known_distributions() {
    // One of 16 bins alone, as of a word that is always the same.
    assert!(deviation(core::iter::repeat_n(3, 16), 16) > 12.0);
    // The 0.999 quantiles of chi-square with 15 and 255 degrees are 37.70 and 330.52: three standard deviations and a bit.
    let of_statistic = |chi_square: f64, bins: usize| {
        // Two bins apart by the same amount, all others as expected: chi-square is 2 d^2 / expected.
        let expected = 1000.0;
        let d = (chi_square * expected / 2.0).sqrt().round() as usize;
        let values = (0..bins as u64).flat_map(move |bin| {
            let n = match bin {
                0 => 1000 + d,
                1 => 1000 - d,
                _ => 1000,
            };
            core::iter::repeat_n(bin, n)
        });
        deviation(values, bins)
    };
    assert!((of_statistic(37.70, 16) - 3.09).abs() < 0.05);
    assert!((of_statistic(330.52, 256) - 3.09).abs() < 0.05);
    // As even as can be is suspicious as well.
    assert!(of_statistic(0.0, 256) > 10.0);
}

#[test]
fn ranks_are_those_of_known_matrices() {
    let row = |values: &[u64]| values.iter().map(|&x| F::from(x)).collect::<Vec<F>>();
    assert_eq!(rank(vec![row(&[0, 1, 2]), row(&[0, 2, 4])]), 1);
    assert_eq!(
        rank(vec![row(&[0, 1, 2]), row(&[0, 2, 5]), row(&[0, 0, 0])]),
        2
    );
    assert_eq!(rank(vec![row(&[1, 1]), row(&[1, 2]), row(&[1, 3])]), 2);
    assert_eq!(rank(Vec::new()), 0);
}
