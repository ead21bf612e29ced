//! A proof about pads by someone who has none. It is made of public values alone and has the distribution of a true proof,
//! so a true proof tells nothing else.
//!
//! It is accepted only under an oracle whose challenges are known beforehand: columns are made up at the positions that will
//! be opened, polynomials are made up among those that fit these columns, and everything else below the roots is
//! random digests. Under [`crate::transcript::Transcript`] positions depend on the roots, and no such proof passes.

use super::verifier::{Opened, lagrange};
use super::{Challenges, Column, Shape, Statement, digest, domain_point};
use crate::affine::System;
use crate::channel::{Oracle, ProverChannel};
use crate::field::{F, K, ext, scale};
use crate::merkle::{self, Digest, Tree, hash_leaf};
use crate::rows::stream;
use crate::whir::horner;
use ark_ff::{AdditiveGroup, Field};

/// What is sent first: a tree whose opened columns are uniform.
#[derive(Debug, Clone)]
pub struct Simulation {
    shape: Shape,
    positions: Vec<usize>,
    /// Columns at the positions, one after another.
    pads: Vec<K>,
    tree: Tree,
    seed: [u8; 32],
}

/// The positions that an oracle will open, if it draws them next.
pub fn positions(oracle: &mut dyn Oracle, shape: &Shape) -> Vec<usize> {
    oracle.positions("pads positions", shape.queries(), shape.log_code())
}

impl Simulation {
    /// Makes up the commitment to pads. The seed must be fresh for every simulation.
    pub fn new(shape: Shape, positions: Vec<usize>, seed: [u8; 32]) -> Self {
        let pads = uniform(&seed, 0, positions.len() * shape.pad_rows());
        let tree = tree(&shape, &positions, &pads, shape.pad_rows(), &seed, 0);
        Self {
            shape,
            positions,
            pads,
            tree,
            seed,
        }
    }

    /// The root of the pads, which the caller sends before all challenges.
    pub fn root(&self) -> Digest {
        self.tree.root()
    }

    /// Sends a proof that a system holds, whether or not there are pads for which it does.
    ///
    /// # Panics
    /// If the channel's oracle draws other positions than were said.
    pub fn prove(&self, channel: &mut ProverChannel, system: &System) {
        let shape = &self.shape;
        channel.absorb("pads system", &digest(shape, system));
        let later = uniform(&self.seed, 1, self.positions.len() * shape.later_rows());
        let later_tree = tree(
            shape,
            &self.positions,
            &later,
            shape.later_rows(),
            &self.seed,
            1,
        );
        channel.digest("pads root of products", &later_tree.root());

        let challenges = Challenges::draw(shape, system, |label, n| channel.challenges(label, n));
        let statement = Statement::combine(shape, system, &challenges.linear);
        let opened = Opened {
            positions: self.positions.clone(),
            pads: self.pads.clone(),
            later,
        };
        let [rows, linear, products] = self.polynomials(&challenges, &statement, &opened);
        channel.clear("pads rows", &rows);
        channel.clear("pads linear statements", &linear[1..]);
        channel.clear("pads products", &products);

        channel.grind("pads work before the positions", shape.grinding);
        let drawn = positions_of(channel, shape);
        assert_eq!(
            drawn, self.positions,
            "a simulator knows the positions beforehand"
        );
        channel.clear("pads columns of pads", &opened.pads);
        merkle::open(channel, "pads siblings of pads", &self.tree, &drawn);
        channel.clear("pads columns of products", &opened.later);
        merkle::open(channel, "pads siblings of products", &later_tree, &drawn);
    }

    /// Uniform polynomials of the three tests among those that the verifier accepts for these columns.
    fn polynomials(
        &self,
        challenges: &Challenges,
        statement: &Statement,
        opened: &Opened,
    ) -> [Vec<K>; 3] {
        let shape = &self.shape;
        let columns = opened
            .pads
            .chunks_exact(shape.pad_rows())
            .zip(opened.later.chunks_exact(shape.later_rows()));
        let mut points = Vec::with_capacity(self.positions.len());
        let mut values: [Vec<K>; 3] = Default::default();
        for (&position, (pads, later)) in self.positions.iter().zip(columns) {
            let x = domain_point(shape, position);
            let lagrange = lagrange(shape, x);
            let factors: Vec<K> = statement
                .weights
                .chunks_exact(shape.message())
                .map(|row| {
                    row.iter()
                        .zip(&lagrange)
                        .map(|(&w, &at)| scale(w, at))
                        .sum()
                })
                .collect();
            let at = Column::new(shape, pads, later)
                .map(|column| column.answers(shape, challenges, &factors, x))
                .unwrap_or_default();
            points.push(x);
            values.iter_mut().zip(at).for_each(|(all, x)| all.push(x));
        }
        let lengths = [
            shape.coefficients(),
            shape.linear_coefficients(),
            shape.quotient_coefficients(),
        ];
        let mut vanishing = Vec::new();
        let mut polynomials: [Vec<K>; 3] = core::array::from_fn(|test| {
            let mut polynomial = uniform(&self.seed, 2 + test as u64, lengths[test]);
            vanishing = interpolate(&mut polynomial, &points, &values[test]);
            polynomial
        });
        // The sum over `H` is what the statement demands.
        let sum = |polynomial: &[K]| -> K {
            let all: K = polynomial.iter().step_by(shape.message()).sum();
            scale(all, F::from(shape.message() as u64))
        };
        let lacks = -statement.constant - sum(&polynomials[1]);
        add_multiple(
            &mut polynomials[1],
            &vanishing,
            lacks * sum(&vanishing).inverse().unwrap_or(K::ZERO),
        );
        polynomials
    }
}

fn positions_of(channel: &mut ProverChannel, shape: &Shape) -> Vec<usize> {
    channel.positions("pads positions", shape.queries(), shape.log_code())
}

/// `n` uniform elements; streams of different indices are independent.
fn uniform(seed: &[u8; 32], index: u64, n: usize) -> Vec<K> {
    stream(seed, b"zkmoe simulated pads, v1", index, 2 * n)
        .chunks_exact(2)
        .map(|pair| ext(pair[0], pair[1]))
        .collect()
}

/// A tree with these columns at the positions and random digests elsewhere.
fn tree(
    shape: &Shape,
    positions: &[usize],
    columns: &[K],
    rows: usize,
    seed: &[u8; 32],
    index: u8,
) -> Tree {
    let mut leaves: Vec<Digest> = (0..shape.code() as u64)
        .map(|j| {
            let mut hasher = blake3::Hasher::new_keyed(seed);
            hasher.update(b"zkmoe simulated leaf, v1").update(&[index]);
            *hasher.update(&j.to_le_bytes()).finalize().as_bytes()
        })
        .collect();
    for (&position, column) in positions.iter().zip(columns.chunks_exact(rows)) {
        leaves[position] = hash_leaf(column);
    }
    Tree::new(leaves)
}

/// Moves a polynomial to these values at distinct points, and a uniform one to a uniform one among those that have them.
/// Returns the polynomial that vanishes at the points. (Newton's form.)
fn interpolate(polynomial: &mut [K], points: &[F], values: &[K]) -> Vec<K> {
    let mut vanishing = vec![K::ONE];
    for (&x, &value) in points.iter().zip(values) {
        let lacks = value - horner(polynomial, x);
        // Not zero, as the points are distinct.
        let at = horner(&vanishing, x).inverse().unwrap_or(K::ZERO);
        add_multiple(polynomial, &vanishing, lacks * at);
        vanishing.push(K::ZERO);
        for i in (0..vanishing.len()).rev() {
            let below = i.checked_sub(1).map_or(K::ZERO, |below| vanishing[below]);
            vanishing[i] = below - scale(vanishing[i], x);
        }
    }
    vanishing
}

/// Adds `c` times a polynomial.
fn add_multiple(to: &mut [K], polynomial: &[K], c: K) {
    to.iter_mut()
        .zip(polynomial)
        .for_each(|(to, &x)| *to += x * c);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::affine::{Affine, Variable};
    use crate::channel::{Reject, VerifierChannel};
    use crate::codec::Reader;
    use crate::ligero::{receive, verify};
    use crate::transcript::Transcript;

    /// Challenges that do not depend on messages.
    struct Deaf(Transcript);

    impl Oracle for Deaf {
        fn absorb(&mut self, _: &str, _: &[u8]) {}
        fn challenges(&mut self, label: &str, n: usize) -> Vec<K> {
            Deaf::at(&self.0, label).challenges(label, n)
        }
        fn positions(&mut self, label: &str, n: usize, log_size: u32) -> Vec<usize> {
            Deaf::at(&self.0, label).positions(label, n, log_size)
        }
        fn accepts(&self, _: &str, _: u32, _: u64) -> bool {
            true
        }
    }

    impl Deaf {
        fn new(protocol: &str) -> Self {
            Self(Transcript::new(protocol))
        }
        fn at(transcript: &Transcript, label: &str) -> Transcript {
            let mut transcript = transcript.clone();
            transcript.absorb(label, b"");
            transcript
        }
    }

    /// A system that no pads fulfil: a pad is zero and one.
    fn impossible() -> System {
        let pad = || Affine::variable(Variable::Pad(0), K::ONE);
        System {
            pads: 3,
            products: vec![[pad(), Affine::variable(Variable::Pad(1), K::ONE)]],
            zeros: vec![
                ("zero".into(), pad()),
                ("one".into(), pad() - Affine::public(K::ONE)),
            ],
        }
    }

    fn verdict(oracle: Box<dyn Oracle>, shape: &Shape, proof: &[u8]) -> Result<(), Reject> {
        let mut channel = VerifierChannel::under(oracle, b"", Box::new(Reader::new(proof)));
        let root = receive(&mut channel)?;
        verify(&mut channel, &root, shape, &impossible())?;
        channel.finish()
    }

    #[test]
    fn a_simulated_proof_is_accepted_where_challenges_are_known_and_nowhere_else() {
        let shape = Shape::choose(3, 1).unwrap();
        let expected = positions(&mut Deaf::new("one"), &shape);
        let simulation = Simulation::new(shape.clone(), expected, [7; 32]);
        let mut channel = ProverChannel::under(Box::new(Deaf::new("one")), b"");
        channel.digest("pads root", &simulation.root());
        simulation.prove(&mut channel, &impossible());
        let proof = channel.finish();

        let under = |oracle: Box<dyn Oracle>| verdict(oracle, &shape, &proof);
        assert_eq!(under(Box::new(Deaf::new("one"))), Ok(()));
        let other = under(Box::new(Deaf::new("two")));
        assert_eq!(
            other,
            Err(Reject::check("pads: leaf of the tree of pads")),
            "its columns are elsewhere"
        );
        let work = "proof of work: pads work before the positions";
        let real = under(Box::new(Transcript::new("one")));
        assert_eq!(real, Err(Reject::check(work)));
    }
}
