//! The weights `eq(point, x)` of the cells of ragged arrays, from one table for each axis.

use ark_ff::{AdditiveGroup, Field, Zero};
use rayon::prelude::*;
use zkmoe_commit::field::K;
use zkmoe_commit::shape::AxisWeights;

use super::fold::{Geometry, Position, Task};
use super::sums::Sums;
use super::{Forest, Node};

/// Bits of the index that a low table of [`struct@Eq`] covers.
pub(super) const LOW_BITS: usize = 10;

/// `eq(point, i)` for a range of indices, as a product of two tables.
pub(super) struct Eq {
    pub(super) low: Vec<K>,
    /// One entry for each repetition of `low`; a single entry is 1.
    pub(super) high: Vec<K>,
    pub(super) low_bits: usize,
}

impl Eq {
    fn new(point: &[K], size: usize) -> Self {
        let low_bits = point.len().min(LOW_BITS);
        let (low, high) = point.split_at(low_bits);
        let mut low = AxisWeights::eq(low).expand(size.min(1 << low_bits));
        let mut high = AxisWeights::eq(high).expand(size.div_ceil(1 << low_bits));
        if let [only] = &mut high[..] {
            for x in &mut low {
                *x *= &*only;
            }
            *only = K::ONE;
        }
        Self {
            low,
            high,
            low_bits,
        }
    }

    #[inline]
    pub(super) fn at(&self, i: usize) -> K {
        if self.high.len() == 1 {
            self.low[i]
        } else {
            self.low[i & ((1 << self.low_bits) - 1)] * self.high[i >> self.low_bits]
        }
    }
}

/// The `eq` weights of one layer's sumcheck, by axis.
pub(super) struct Weights {
    /// The coordinate of each variable; 0 below the layer.
    pub(super) coordinates: Vec<K>,
    /// `eq` of the column bits for each column; 1 once the columns are merged.
    selectors: Vec<K>,
    /// At `v`, the product of `1 - coordinate` over the variables from `v` to the last extra bit.
    neutral: Vec<K>,
    /// For each column and axis the table of an axis that is not reached yet.
    outer: Vec<Outer>,
}

#[derive(Default)]
struct Outer {
    group: Option<Eq>,
    axes: Vec<Option<Eq>>,
}

impl Weights {
    pub(super) fn new(forest: &Forest, coordinates: Vec<K>, depth: usize) -> Self {
        let bits = forest.bits;
        let mut neutral = vec![K::ONE; bits + 1];
        for v in (0..bits).rev() {
            neutral[v] = neutral[v + 1] * (K::ONE - coordinates[v]);
        }
        let mut weights = Self {
            coordinates,
            selectors: Vec::new(),
            neutral,
            outer: Vec::new(),
        };
        if depth >= bits {
            weights.merge(forest, depth);
        } else {
            weights.selectors =
                AxisWeights::eq(&weights.coordinates[bits..]).expand(forest.shapes.len());
            weights.outer = forest
                .geometries
                .iter()
                .map(|g| weights.outer(g, depth))
                .collect();
        }
        weights
    }

    /// Goes on along the column axis.
    pub(super) fn merge(&mut self, forest: &Forest, variable: usize) {
        self.selectors = vec![K::ONE];
        self.outer = vec![self.outer(&forest.top, variable)];
    }

    /// The tables of the axes after that of `variable`.
    fn outer(&self, geometry: &Geometry, variable: usize) -> Outer {
        let Position::Axis { axis, end, .. } = geometry.position(variable) else {
            return Outer::default();
        };
        let mut start = end;
        let mut axes: Vec<Option<Eq>> = (0..geometry.bits.len()).map(|_| None).collect();
        for a in (0..axis).rev() {
            let end = start + geometry.bits[a];
            let size = geometry.sizes.iter().map(|s| s[a]).max().unwrap_or(0);
            axes[a] = Some(Eq::new(&self.coordinates[start..end], size));
            start = end;
        }
        let end = start + geometry.group_bits;
        Outer {
            group: Some(Eq::new(&self.coordinates[start..end], geometry.sizes.len())),
            axes,
        }
    }

    /// For one column `sum_x eq(x) h(x, X)` over all variables after this one: the value at 0 and the coefficient of
    /// `X^2`.
    pub(super) fn sums(
        &self,
        geometry: &Geometry,
        column: usize,
        variable: usize,
        nodes: &[Node],
        join: K,
        lambda: K,
    ) -> [K; 2] {
        let level = geometry.level(variable);
        debug_assert_eq!(level.input, nodes.len());
        let position = geometry.position(variable);
        let (end, last) = match &position {
            Position::Axis { end, .. } => {
                let inner: usize = geometry.bits.iter().sum();
                (*end, geometry.base + inner + geometry.group_bits)
            }
            Position::Group { end, .. } => (*end, *end),
        };
        let after = &self.coordinates[(variable + 1).min(end)..end];
        let inner = Eq::new(after, level.longest);
        // Extra bits of the column have to be zero; the merged columns have none.
        let neutral = self.neutral.get(last.max(variable + 1));
        let base = self.selectors[column] * neutral.copied().unwrap_or(K::ONE);
        let outer = &self.outer[column];
        let joined = !join.is_zero();
        let evaluate = |task: &Task| {
            let mut base = base;
            let mut tables = Vec::new();
            if let Position::Axis { axis, .. } = position {
                base *= outer.group.as_ref().map_or(K::ONE, |g| g.at(task.group));
                let sizes = &geometry.sizes[task.group];
                tables.extend(
                    outer.axes[..axis]
                        .iter()
                        .flatten()
                        .zip(sizes.iter().copied()),
                );
            }
            let mut runs = Runs::new(tables, base, task.first_run);
            let mut sums = Sums::new(joined.then_some(join), lambda);
            let cells = task.runs * task.cells;
            for run in nodes[task.input..task.input + cells].chunks_exact(task.cells) {
                sums.run(run, &inner, task.first_pair, runs.weight());
                runs.step();
            }
            sums.finish()
        };
        if let [task] = &level.tasks[..] {
            return evaluate(task);
        }
        level
            .tasks
            .par_iter()
            .map(evaluate)
            .reduce(|| [K::ZERO; 2], |a, b| [a[0] + b[0], a[1] + b[1]])
    }
}

/// The weights of runs one after the other: a product over the outer axes.
struct Runs<'a> {
    tables: Vec<(&'a Eq, usize)>,
    index: Vec<usize>,
    /// Products over the first axes.
    prefix: Vec<K>,
}

impl<'a> Runs<'a> {
    fn new(tables: Vec<(&'a Eq, usize)>, base: K, first: usize) -> Self {
        let mut rest = first;
        let mut index = vec![0; tables.len()];
        for (i, (_, size)) in index.iter_mut().zip(&tables).rev() {
            (*i, rest) = (rest % size, rest / size);
        }
        let mut runs = Self {
            prefix: vec![base; tables.len() + 1],
            index,
            tables,
        };
        runs.update(0);
        runs
    }

    fn update(&mut self, from: usize) {
        for k in from..self.index.len() {
            self.prefix[k + 1] = self.prefix[k] * self.tables[k].0.at(self.index[k]);
        }
    }

    fn weight(&self) -> K {
        self.prefix[self.index.len()]
    }

    fn step(&mut self) {
        for k in (0..self.index.len()).rev() {
            self.index[k] += 1;
            if self.index[k] < self.tables[k].1 {
                self.update(k);
                return;
            }
            self.index[k] = 0;
        }
    }
}
