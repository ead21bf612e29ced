//! LogUp-GKR, the prover's half; the statement, the order of variables and the messages are in
//! [`zkmoe_verifier::gkr`].
//!
//! Only physical cells are visited. After folding `d` variables a column is again a ragged array: its innermost axis
//! that is not used up has length `ceil(n / 2^d')` in each group, and a cell whose partner is missing has the neutral
//! fraction 0/1 for it. The tree keeps every layer but the leaves as pairs of siblings `[p0, p1, q0, q1]`, which are
//! just the four multilinear factors of that layer's sumcheck; folding them in place binds the lowest variable.
//! Layers are freed as the sumchecks use them up, and the leaves are computed a second time for the last one, so
//! that at any time 32 bytes for each cell of all columns are held, and for a moment up to 64 more for those of the
//! columns on which threads are working.
//!
//! Inside a sumcheck the current factor of `eq` is kept apart, so that what is summed has degree 2: A. Gruen, "Some
//! improvements for the PIOP for `ZeroCheck`", eprint 2024/108. With `p0' = p0 + lambda q0` the summand is
//! `p0' q1 + p1 q0 - lambda`, two products.

use ark_ff::{AdditiveGroup, Field, Zero};
use rayon::prelude::*;
use zkmoe_commit::channel::ProverChannel;
use zkmoe_commit::field::{K, from_i64, lift};
use zkmoe_commit::shape::Shape;
use zkmoe_verifier::gkr::Columns;

use fold::Geometry;
use sums::{dot, mul};
use weights::Weights;

mod fold;
mod sums;
#[cfg(test)]
mod tests;
mod weights;

/// The numerators of a column.
#[derive(Debug, Clone)]
pub enum Numerators {
    /// The same in every cell.
    Constant(K),
    /// One for each cell.
    Values(Vec<K>),
}

/// Two sibling fractions `[p0, p1, q0, q1]`.
type Node = [K; 4];

/// Proves that the fractions of columns with these index sets sum to zero. `leaves(c)` computes numerators and
/// denominators of column `c`, cells in memory order; it is called twice for each column.
///
/// Returns the point and the extensions of numerators and denominators of the virtual array there. A sum that is not
/// zero gives a proof that is rejected.
///
/// # Panics
/// If `leaves` returns the wrong number of values.
pub fn prove(
    channel: &mut ProverChannel,
    shapes: &[Shape],
    leaves: &(dyn Fn(usize) -> (Numerators, Vec<K>) + Sync),
) -> (Vec<K>, K, K) {
    let root = Root::send(channel, Forest::new(shapes, leaves));
    close(channel, root.sum());
    root.descend(channel)
}

/// As [`prove`], of columns whose fractions have the sum that is returned before the rest.
pub fn prove_sum(
    channel: &mut ProverChannel,
    shapes: &[Shape],
    leaves: &(dyn Fn(usize) -> (Numerators, Vec<K>) + Sync),
) -> ([K; 2], (Vec<K>, K, K)) {
    let root = Root::send(channel, Forest::new(shapes, leaves));
    (root.sum(), root.descend(channel))
}

/// The sum of two fractions, numerator before denominator.
pub fn add([p0, q0]: [K; 2], [p1, q1]: [K; 2]) -> [K; 2] {
    [dot(p0, q1, p1, q0), mul(q0, q1)]
}

/// Shows that no denominator of a sum of fractions is zero.
pub fn close(channel: &mut ProverChannel, [_, q]: [K; 2]) {
    channel.hidden("gkr inverse", &[q.inverse().unwrap_or(K::ZERO)]);
}

/// A tree whose root was sent.
struct Root<'a> {
    forest: Forest<'a>,
    tree: Vec<Layer>,
    /// The children of the root; the root and a neutral sibling where there are no variables.
    children: Node,
}

impl<'a> Root<'a> {
    fn send(channel: &mut ProverChannel, forest: Forest<'a>) -> Self {
        if forest.variables == 0 {
            let (p, q) = forest.cells(0);
            let (p, q) = (p.at(0), q[0]);
            channel.hidden("gkr root", &[p, q]);
            return Self {
                forest,
                tree: Vec::new(),
                children: [p, K::ZERO, q, K::ONE],
            };
        }
        let (tree, children) = forest.tree();
        channel.hidden("gkr root", &children);
        Self {
            forest,
            tree,
            children,
        }
    }

    fn sum(&self) -> [K; 2] {
        let [p0, p1, q0, q1] = self.children;
        add([p0, q0], [p1, q1])
    }

    /// Layer by layer down to the leaves.
    fn descend(mut self, channel: &mut ProverChannel) -> (Vec<K>, K, K) {
        let [p, _, q, _] = self.children;
        let mut claims = Claims {
            point: Vec::new(),
            numerator: p,
            denominator: q,
        };
        if self.forest.variables > 0 {
            claims.descend(channel, self.children);
        }
        for depth in (1..self.forest.variables).rev() {
            // The tree has a layer for each depth of children but 0, the leaves.
            let nodes = self.tree.pop().unwrap_or_else(|| self.forest.leaf_nodes());
            let node = self.forest.sumcheck(channel, nodes, depth, &mut claims);
            claims.descend(channel, node);
        }
        (claims.point, claims.numerator, claims.denominator)
    }
}

/// Claims about one layer.
struct Claims {
    point: Vec<K>,
    numerator: K,
    denominator: K,
}

impl Claims {
    fn descend(&mut self, channel: &mut ProverChannel, [p0, p1, q0, q1]: Node) {
        let r = channel.challenge("gkr child");
        self.numerator = p0 + (p1 - p0) * r;
        self.denominator = q0 + (q1 - q0) * r;
        self.point.insert(0, r);
    }
}

impl Numerators {
    fn at(&self, i: usize) -> K {
        match self {
            Self::Constant(p) => *p,
            Self::Values(ps) => ps[i],
        }
    }
}

/// All columns and how they fold.
struct Forest<'a> {
    leaves: &'a (dyn Fn(usize) -> (Numerators, Vec<K>) + Sync),
    shapes: &'a [Shape],
    geometries: Vec<Geometry>,
    /// The column axis: one cell for each column, once all variables below are folded.
    top: Geometry,
    bits: usize,
    variables: usize,
}

/// Cells or nodes of one depth: one array for each column, or a single one along the column axis.
type Layer = Vec<Vec<Node>>;

impl<'a> Forest<'a> {
    fn new(
        shapes: &'a [Shape],
        leaves: &'a (dyn Fn(usize) -> (Numerators, Vec<K>) + Sync),
    ) -> Self {
        let columns = Columns::new(shapes);
        let mut top = Geometry::new(&Shape::dense(&[columns.len().max(1)]));
        top.base = columns.bits();
        Self {
            leaves,
            shapes,
            geometries: shapes.iter().map(Geometry::new).collect(),
            top,
            bits: columns.bits(),
            variables: columns.variables(),
        }
    }

    /// What the arrays of a layer whose lowest variable is `depth` look like.
    fn geometries(&self, depth: usize) -> &[Geometry] {
        if depth < self.bits {
            &self.geometries
        } else {
            core::slice::from_ref(&self.top)
        }
    }

    /// The leaves of a column, with the neutral fraction for each group that has no cells.
    fn cells(&self, c: usize) -> (Numerators, Vec<K>) {
        let Some(shape) = self.shapes.get(c) else {
            return (Numerators::Constant(K::ZERO), vec![K::ONE]);
        };
        let (mut p, mut q) = (self.leaves)(c);
        assert_eq!(q.len(), shape.len(), "denominators of column {c}");
        if let Numerators::Values(p) = &p {
            assert_eq!(p.len(), shape.len(), "numerators of column {c}");
        }
        let groups = shape.groups();
        if groups.is_empty() {
            return (Numerators::Constant(K::ZERO), vec![K::ONE]);
        }
        if groups.iter().any(|g| g.contains(&0)) {
            let mut next = 0;
            let (mut filled_p, mut filled_q) = (Vec::new(), Vec::new());
            for group in groups {
                let n = group.iter().product::<usize>();
                filled_p.extend((next..next + n).map(|i| p.at(i)));
                filled_q.extend_from_slice(&q[next..next + n]);
                if n == 0 {
                    filled_p.push(K::ZERO);
                    filled_q.push(K::ONE);
                }
                next += n;
            }
            (p, q) = (Numerators::Values(filled_p), filled_q);
        }
        (p, q)
    }

    /// The leaves of one column, or of all one-cell columns together, as pairs of siblings.
    fn leaf_pairs(geometry: &Geometry, (p, q): &(Numerators, Vec<K>)) -> Vec<Node> {
        geometry.level(0).pairs(
            |i| (p.at(i), q[i]),
            |a, b| {
                let b = b.unwrap_or((K::ZERO, K::ONE));
                [a.0, b.0, a.1, b.1]
            },
        )
    }

    /// The leaves as pairs of siblings.
    fn leaf_nodes(&self) -> Layer {
        if self.bits > 0 {
            let layer = (0..self.shapes.len())
                .into_par_iter()
                .map(|c| Self::leaf_pairs(&self.geometries[c], &self.cells(c)))
                .collect();
            return self.merged(layer, 1);
        }
        let (p, q) = (0..self.shapes.len())
            .map(|c| self.cells(c))
            .map(|(p, q)| (p.at(0), q[0]))
            .unzip();
        vec![Self::leaf_pairs(&self.top, &(Numerators::Values(p), q))]
    }

    /// Concatenates the columns once their own variables are used up.
    fn merged(&self, layer: Layer, depth: usize) -> Layer {
        if depth == self.bits {
            vec![layer.concat()]
        } else {
            layer
        }
    }

    /// The children of the root, and the pairs of siblings of every depth from the root's grandchildren down to 1.
    fn tree(&self) -> (Vec<Layer>, Node) {
        let mut layers: Vec<Layer> = Vec::new();
        let mut current = if self.bits > 0 {
            // Column by column, so that the leaves of only a few are held at a time.
            let chains: Vec<(Vec<Vec<Node>>, Vec<Node>)> = (0..self.shapes.len())
                .into_par_iter()
                .map(|c| {
                    let geometry = &self.geometries[c];
                    let leaves = self.cells(c);
                    // Where partners are neighbours the pairs of leaves need not be written down first.
                    let (mut nodes, start) = if self.bits > 1 && geometry.level(0).aligned {
                        let (p, q) = &leaves;
                        let pair = |i: usize| match q.get(2 * i + 1) {
                            Some(&q1) => [p.at(2 * i), p.at(2 * i + 1), q[2 * i], q1],
                            None => [p.at(2 * i), K::ZERO, q[2 * i], K::ONE],
                        };
                        (grow(geometry, pair, 1), 2)
                    } else {
                        (Self::leaf_pairs(geometry, &leaves), 1)
                    };
                    drop(leaves);
                    let mut chain = Vec::with_capacity(self.bits);
                    for depth in start..self.bits {
                        let next = grow(geometry, |i| nodes[i], depth);
                        if depth > 1 {
                            chain.push(nodes);
                        }
                        nodes = next;
                    }
                    (chain, nodes)
                })
                .collect();
            layers.resize_with(self.bits.saturating_sub(2), Vec::new);
            let mut last = Vec::with_capacity(chains.len());
            for (chain, nodes) in chains {
                layers.iter_mut().zip(chain).for_each(|(l, n)| l.push(n));
                last.push(nodes);
            }
            self.merged(last, self.bits)
        } else {
            self.leaf_nodes()
        };
        let start = self.bits.max(1);
        for depth in start..self.variables {
            let next = vec![grow(&self.top, |i| current[0][i], depth)];
            if depth > 1 {
                layers.push(current);
            }
            current = next;
        }
        (layers, current[0][0])
    }

    /// One layer's sumcheck, over nodes of this depth: `nodes` are the pairs of their children. Returns what the
    /// pairs fold to.
    fn sumcheck(
        &self,
        channel: &mut ProverChannel,
        mut nodes: Layer,
        depth: usize,
        claims: &mut Claims,
    ) -> Node {
        let lambda = channel.challenge("gkr lambda");
        let mut coordinates = vec![K::ZERO; depth];
        coordinates.append(&mut claims.point);
        let mut weights = Weights::new(self, coordinates, depth);
        // What is left of the claim and of eq, so that claim = eq * sum over h's cube.
        let mut claim = claims.numerator + (claims.denominator - K::ONE) * lambda;
        let mut eq = K::ONE;
        for variable in depth..self.variables {
            if variable == self.bits && variable > depth {
                nodes = self.merged(nodes, variable);
                weights.merge(self, variable);
            }
            let z = weights.coordinates[variable];
            let geometries = self.geometries(variable);
            // A round's first pass joins numerator and denominator, so that this costs no pass of its own.
            let join = if variable == depth { lambda } else { K::ZERO };
            let [h0, h_inf] = nodes
                .par_iter()
                .enumerate()
                .map(|(c, nodes)| weights.sums(&geometries[c], c, variable, nodes, join, lambda))
                .reduce(|| [K::ZERO; 2], |a, b| [a[0] + b[0], a[1] + b[1]]);
            let h1 = (claim - (K::ONE - z) * h0) * z.inverse().unwrap_or(K::ZERO);
            let linear = h1 - h0 - h_inf;
            let h = |x: K| (h_inf * x + linear) * x + h0;
            let eq_at = |x: K| eq * (z * x + (K::ONE - z) * (K::ONE - x));
            let message = [0, 2, 3].map(|x| {
                let x = lift(from_i64(x));
                eq_at(x) * h(x)
            });
            channel.hidden("gkr round", &message);
            let r = channel.challenge("gkr point");
            (claim, eq) = (h(r), eq_at(r));
            claims.point.push(r);
            nodes
                .par_iter_mut()
                .zip(geometries)
                .for_each(|(nodes, g)| bind(g, nodes, variable, r, join, lambda));
        }
        let [p0, p1, q0, q1] = nodes[0][0];
        let node = [p0 - lambda * q0, p1, q0, q1];
        channel.hidden("gkr node", &node);
        node
    }
}

/// The next layer up: nodes of `depth` from the pairs of their children, as pairs of siblings.
fn grow(geometry: &Geometry, node: impl Fn(usize) -> Node + Sync, depth: usize) -> Vec<Node> {
    let sum = |[p0, p1, q0, q1]: Node| (dot(p0, q1, p1, q0), mul(q0, q1));
    geometry.level(depth).pairs(node, |a, b| {
        let a = sum(a);
        let b = b.map_or((K::ZERO, K::ONE), sum);
        [a.0, b.0, a.1, b.1]
    })
}

/// Binds a variable to `r`, in place; `join` times the denominators of left children are added to their numerators.
fn bind(geometry: &Geometry, nodes: &mut Vec<Node>, variable: usize, r: K, join: K, lambda: K) {
    let level = geometry.level(variable);
    let missing = [lambda, K::ZERO, K::ONE, K::ONE];
    // Spelled out, as the compiler does not inline `array::from_fn` here.
    let at = |a: K, b: K| a + mul(r, b - a);
    let mix = |a: Node, b: Node| {
        [
            at(a[0], b[0]),
            at(a[1], b[1]),
            at(a[2], b[2]),
            at(a[3], b[3]),
        ]
    };
    let joined = !join.is_zero();
    let pair = |a: Node, b: Node| {
        let mut out = mix(a, b);
        if joined {
            out[0] += mul(join, out[2]);
        }
        out
    };
    let alone = |mut a: Node| {
        if joined {
            a[0] += mul(join, a[2]);
        }
        mix(a, missing)
    };
    level.fold_in_place(nodes, pair, alone);
}
