//! Sums of weighted summands over runs of cells: where the time goes.
//!
//! Products are added up as integers and reduced once for each block.

use ark_ff::{AdditiveGroup, Field};
use zkmoe_commit::field::{F, K, from_i64, word};

use super::Node;
use super::weights::Eq;

/// `a b`; `a` is what a loop keeps.
#[inline]
pub(super) fn mul(a: K, b: K) -> K {
    K::new(
        F::sum_of_products(&[a.c0, a.c1 * from_i64(7)], &[b.c0, b.c1]),
        F::sum_of_products(&[a.c0, a.c1], &[b.c1, b.c0]),
    )
}

/// `a b + c d` with two reductions instead of four.
#[inline]
pub(super) fn dot(a: K, b: K, c: K, d: K) -> K {
    let seven = |x: F| x * from_i64(7);
    K::new(
        F::sum_of_products(
            &[a.c0, seven(a.c1), c.c0, seven(c.c1)],
            &[b.c0, b.c1, d.c0, d.c1],
        ),
        F::sum_of_products(&[a.c0, a.c1, c.c0, c.c1], &[b.c1, b.c0, d.c1, d.c0]),
    )
}

/// A sum of products of words, reduced only at the end.
#[derive(Clone, Copy, Default)]
struct Wide {
    low: u128,
    carries: u64,
}

impl Wide {
    #[inline]
    fn add(&mut self, a: F, b: F) {
        let (low, carry) = self
            .low
            .overflowing_add(u128::from(word(a)) * u128::from(word(b)));
        self.low = low;
        self.carries += u64::from(carry);
    }
    fn reduce(self) -> F {
        // 2^64 = 2^32 - 1 and 2^128 = -2^32 modulo p.
        let two_32 = F::from(1u64 << 32);
        F::from(self.low as u64) + F::from((self.low >> 64) as u64) * (two_32 - F::ONE)
            - F::from(self.carries) * two_32
    }
}

/// A sum of products in `K`, reduced only at the end.
#[derive(Clone, Copy, Default)]
struct Sum {
    c00: Wide,
    c01: Wide,
    c11: Wide,
}

impl Sum {
    #[inline]
    fn add(&mut self, a: K, b: K) {
        self.c00.add(a.c0, b.c0);
        self.c01.add(a.c0, b.c1);
        self.c01.add(a.c1, b.c0);
        self.c11.add(a.c1, b.c1);
    }
    fn reduce(self) -> K {
        K::new(
            self.c00.reduce() + self.c11.reduce() * from_i64(7),
            self.c01.reduce(),
        )
    }
}

/// The sums of one task.
pub(super) struct Sums {
    join: Option<K>,
    lambda: K,
    total: [K; 2],
    short: [Sum; 2],
}

impl Sums {
    /// `join` times denominators of left children are still to be added to their numerators.
    pub(super) fn new(join: Option<K>, lambda: K) -> Self {
        Self {
            join,
            lambda,
            total: [K::ZERO; 2],
            short: [Sum::default(); 2],
        }
    }

    #[inline]
    fn joined(&self, mut node: Node) -> Node {
        if let Some(join) = self.join {
            node[0] += mul(join, node[2]);
        }
        node
    }

    /// The summand at 0 and its coefficient of `X^2`.
    #[inline]
    fn summand(&self, a: Node, b: Node) -> [K; 2] {
        let d = [b[0] - a[0], b[1] - a[1], b[2] - a[2], b[3] - a[3]];
        [
            dot(a[0], a[3], a[1], a[2]) - self.lambda,
            dot(d[0], d[3], d[1], d[2]),
        ]
    }

    #[inline]
    fn pair(&self, cells: &[Node]) -> [K; 2] {
        let a = self.joined(cells[0]);
        match cells.get(1) {
            Some(&b) => self.summand(a, self.joined(b)),
            None => self.summand(a, [self.lambda, K::ZERO, K::ONE, K::ONE]),
        }
    }

    /// Adds pairs of one run, from its pair `first_pair` on; `weight` is that of the run.
    pub(super) fn run(&mut self, cells: &[Node], eq: &Eq, first_pair: usize, weight: K) {
        if cells.len() <= 16 {
            // For a short run multiplying the weights is cheaper than a reduction of its own.
            for (k, pair) in cells.chunks(2).enumerate() {
                let w = weight * eq.at(first_pair + k);
                let [h0, h_inf] = self.pair(pair);
                self.short[0].add(w, h0);
                self.short[1].add(w, h_inf);
            }
            return;
        }
        let high = &eq.high[first_pair >> eq.low_bits..];
        for (block, high) in cells.chunks(2 << eq.low_bits).zip(high) {
            let mut sums = [Sum::default(); 2];
            let mut pairs = block.chunks_exact(2);
            let mut low = eq.low.iter();
            for (pair, &w) in pairs.by_ref().zip(low.by_ref()) {
                let [h0, h_inf] = self.pair(pair);
                sums[0].add(w, h0);
                sums[1].add(w, h_inf);
            }
            if let (single @ [_], Some(&w)) = (pairs.remainder(), low.next()) {
                let [h0, h_inf] = self.pair(single);
                sums[0].add(w, h0);
                sums[1].add(w, h_inf);
            }
            let weight = weight * high;
            for (total, sum) in self.total.iter_mut().zip(sums) {
                *total += weight * sum.reduce();
            }
        }
    }

    /// The value at 0 and the coefficient of `X^2`.
    pub(super) fn finish(self) -> [K; 2] {
        core::array::from_fn(|k| self.total[k] + self.short[k].reduce())
    }
}
