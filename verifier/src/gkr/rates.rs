//! For how many values of its challenges a false sum passes a tree of fractions, against the numerators of the terms.
//!
//! The tree has four leaves and so every kind of challenge: two that join children, one that joins numerator and
//! denominator, and the round of a sumcheck. The prover lies at the root and hands its error on in such a way that every
//! challenge has as many lucky values as its term has degrees.

use super::*;
use crate::few::{at, compare, few, numerator, with_roots};
use zkmoe_commit::channel::Oracle;
use zkmoe_commit::codec::{Reader, Writer};
use zkmoe_commit::transcript::Transcript;

const FEW: u64 = 9;

/// The lucky values of the four challenges.
const CHILD: u64 = 3;
const LAMBDA: u64 = 5;
const ROUND: [u64; 3] = [2, 4, 6];
const LAST_CHILD: u64 = 7;

fn number(x: u64) -> K {
    lift(from_i64(x as i64))
}

/// Challenges in the order in which they are drawn.
struct Listed(Vec<K>);

impl Oracle for Listed {
    fn absorb(&mut self, _: &str, _: &[u8]) {}
    fn challenges(&mut self, _: &str, n: usize) -> Vec<K> {
        self.0.drain(..n).collect()
    }
    fn positions(&mut self, label: &str, _: usize, _: u32) -> Vec<usize> {
        panic!("positions under `{label}`")
    }
    fn accepts(&self, _: &str, _: u32, _: u64) -> bool {
        true
    }
}

/// Numerators and denominators of the leaves, and what is sent instead of the root's children.
struct Lie {
    numerators: [K; 4],
    denominators: [K; 4],
    root: [K; 4],
}

impl Lie {
    /// Random leaves, but for one numerator that makes the false root's sum zero.
    fn new() -> Self {
        let mut t = Transcript::new("lie");
        let mut draw = || -> [K; 4] { core::array::from_fn(|_| t.challenge("leaf")) };
        let (mut numerators, denominators) = (draw(), draw());
        let step = draw()[0];
        // Errors of the denominators are step (r - CHILD) at r, those of the numerators -LAMBDA times as large.
        let error = |child: u64| step * (number(child) - number(CHILD));
        let lambda = -number(LAMBDA);
        let [_, [p1, q1]] = children(&numerators, &denominators);
        let q0 = denominators[0] * denominators[1];
        let [q0, q1] = [q0 + error(0), q1 + error(1)];
        let p1 = p1 + lambda * error(1);
        let p0 = -(p1 * q0) * q1.inverse().unwrap();
        // p0 - lambda error(0) = a0 b1 + a1 b0
        let [b0, b1, ..] = denominators;
        let rest = p0 - lambda * error(0) - numerators[1] * b0;
        numerators[0] = rest * b1.inverse().unwrap();
        Self {
            numerators,
            denominators,
            root: [p0, p1, q0, q1],
        }
    }

    /// A proof for challenges of which each message uses only those that were drawn before it.
    fn proof(&self, challenges: &[K; 4]) -> Vec<u8> {
        let &[r, lambda, x, _] = challenges;
        let mut w = Writer::new();
        let [p0, p1, q0, q1] = self.root;
        let inverse = (q0 * q1).inverse().unwrap();
        self.root.iter().chain([&inverse]).for_each(|&x| w.k(x));
        let claim = p0 + r * (p1 - p0) + lambda * (q0 + r * (q1 - q0)) - lambda;
        // The round's true polynomial, and one more that makes up for what the claim is wrong by.
        let truth = |x: K| {
            let node = self.node(x);
            let eq = r * x + (K::ONE - r) * (K::ONE - x);
            eq * parent_of(&node, lambda)
        };
        let lucky = with_roots(&ROUND.map(number));
        let error = claim - truth(K::ZERO) - truth(K::ONE);
        let scale = error
            * (at(&lucky, K::ZERO) + at(&lucky, K::ONE))
                .inverse()
                .unwrap();
        let sent = |x: K| truth(x) + scale * at(&lucky, x);
        [0, 2, 3].map(number).into_iter().for_each(|x| w.k(sent(x)));
        // Numerators of the node that fit, with an error of step (r - LAST_CHILD).
        let [p0, p1, q0, q1] = self.node(x);
        let eq = r * x + (K::ONE - r) * (K::ONE - x);
        let missing = sent(x) * eq.inverse().unwrap() - parent_of(&[p0, p1, q0, q1], lambda);
        let child = number(LAST_CHILD);
        let step = missing * ((K::ONE - child) * q0 - child * q1).inverse().unwrap();
        let node = [p0 - step * child, p1 + step * (K::ONE - child), q0, q1];
        node.iter().for_each(|&x| w.k(x));
        w.bytes
    }

    /// The extensions of both children of a layer's nodes at a point: numerators, then denominators.
    fn node(&self, x: K) -> [K; 4] {
        let between = |of: &[K; 4], child: usize| of[child] + x * (of[child + 2] - of[child]);
        let (p, q) = (&self.numerators, &self.denominators);
        [between(p, 0), between(p, 1), between(q, 0), between(q, 1)]
    }

    fn accepts(&self, challenges: [K; 4]) -> bool {
        let proof = self.proof(&challenges);
        let oracle = Box::new(Listed(challenges.to_vec()));
        let mut channel = VerifierChannel::under(oracle, b"", Box::new(Reader::new(&proof)));
        let leaves = verify(&mut channel, &[Shape::dense(&[4])]).unwrap();
        let system = channel.take_system();
        channel.finish().unwrap();
        // Hidden values behind pads of zero.
        let pads = vec![K::ZERO; system.pads];
        let results = system.results(&pads);
        let weights = [AxisWeights::eq(&leaves.point)];
        let holds = |claim: &Hidden, cells: [K; 4]| {
            claim.value(&pads, &results) == Shape::dense(&[4]).evaluate(cells, &weights)
        };
        system.violated(&pads).is_empty()
            && holds(&leaves.numerator, self.numerators)
            && holds(&leaves.denominator, self.denominators)
    }
}

/// The fractions that the two halves of the leaves add up to.
fn children(p: &[K; 4], q: &[K; 4]) -> [[K; 2]; 2] {
    [0, 2].map(|i| [p[i] * q[i + 1] + p[i + 1] * q[i], q[i] * q[i + 1]])
}

/// `p0 q1 + p1 q0 + lambda (q0 q1 - 1)`.
fn parent_of(&[p0, p1, q0, q1]: &[K; 4], lambda: K) -> K {
    p0 * q1 + p1 * q0 + lambda * (q0 * q1 - K::ONE)
}

#[test]
fn a_false_sum_passes_as_many_challenges_as_the_terms_have_degrees() {
    let lie = Lie::new();
    let [[p0, q0], [p1, q1]] = children(&lie.numerators, &lie.denominators);
    assert_ne!(p0 * q1 + p1 * q0, K::ZERO, "the sum is not zero");
    // From two on: the weight of a node is zero where one challenge is zero and another is one.
    let values = &few(FEW + 2)[2..];
    let mut passing = 0u32;
    for &child in values {
        for &lambda in values {
            for &x in values {
                for &last in values {
                    let lucky = child == number(CHILD)
                        || lambda == number(LAMBDA)
                        || ROUND.map(number).contains(&x)
                        || last == number(LAST_CHILD);
                    let challenges = [child, lambda, x, last];
                    assert_eq!(lie.accepts(challenges), lucky, "{challenges:?}");
                    passing += u32::from(lucky);
                }
            }
        }
    }
    let q = FEW as f64;
    let rate = f64::from(passing) / q.powi(4);
    assert!((rate - (1.0 - (1.0 - 1.0 / q).powi(3) * (1.0 - 3.0 / q))).abs() < 1e-9);
    let terms = soundness(&[Shape::dense(&[4])]);
    let bound: f64 = [
        "lookup tree, sumchecks",
        "lookup tree, numerator and denominator joined by lambda",
        "lookup tree, two children joined",
    ]
    .map(|name| numerator(&terms, name, 0))
    .iter()
    .sum();
    assert!((bound - 6.0).abs() < 1e-6);
    compare("tree of four fractions", rate * q, bound, 1.3);
}
