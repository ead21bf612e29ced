//! The prover's half of the proof about pads.

use super::verifier::{Answers, Opened};
use super::{Challenges, Column, MASKS, Shape, Statement, digest, domain_point};
use crate::affine::System;
use crate::channel::{ProverChannel, Reject};
use crate::field::{F, K, ext, from_word, scale, word};
use crate::merkle::{self, Tree, hash_leaf};
use crate::rows::{SHIFT, stream};
use ark_ff::{AdditiveGroup, Field};
use rayon::prelude::*;
use zkmoe_kernels::ntt::{Extension, Ntt};

/// `n` uniform elements; streams of different domains and indices are independent.
fn uniform(seed: &[u8; 32], domain: &[u8], index: usize, n: usize) -> Vec<K> {
    stream(seed, domain, index as u64, 2 * n)
        .chunks_exact(2)
        .map(|pair| ext(pair[0], pair[1]))
        .collect()
}

/// `n` pads. The seed must be fresh for every attempt at a proof.
pub fn uniform_pads(seed: &[u8; 32], n: usize) -> Vec<K> {
    uniform(seed, b"zkmoe pads, v1", 0, n)
}

/// What a test's prover may change before it is used. The honest prover changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The random coefficients of one row.
    Randomness,
    /// Left factors, right factors and results.
    Values,
    /// The coefficients of the masks.
    Masks,
    /// The codewords of one tree.
    Words,
    /// The answers to the challenges.
    Answers,
}

/// The code of all rows.
pub(super) struct Code {
    shape: Shape,
    /// Between coefficients and values on `H`.
    message: Ntt,
    /// From coefficients to symbols.
    extension: Extension,
    /// Between coefficients and values on the subgroup of which the domain is a coset.
    domain: Ntt,
}

impl Code {
    pub fn new(shape: &Shape) -> Self {
        let log_coefficients = shape.coefficients().next_power_of_two().trailing_zeros();
        Self {
            shape: shape.clone(),
            message: Ntt::new(shape.log_message),
            extension: Extension::new(log_coefficients, SHIFT, shape.log_code()),
            domain: Ntt::new(shape.log_code()),
        }
    }

    /// The coefficients of the polynomial of degree below `l` with these values on `H`; missing values are zero.
    fn interpolate(&self, message: &[K]) -> Vec<K> {
        let mut message = message.to_vec();
        message.resize(self.shape.message(), K::ZERO);
        componentwise(&message, |mut words| {
            self.message.inverse(&mut words);
            words
        })
    }

    /// The coefficients of `m(X) + (X^l - 1) r(X)`.
    pub fn row(&self, message: &[K], randomness: &[K]) -> Vec<K> {
        let mut row = self.interpolate(message);
        row.resize(row.len() + randomness.len(), K::ZERO);
        for (i, &r) in randomness.iter().enumerate() {
            row[i] -= r;
            row[self.shape.message() + i] += r;
        }
        row
    }

    /// The codeword of a polynomial of up to `k` coefficients.
    pub fn encode(&self, coefficients: &[K]) -> Vec<K> {
        componentwise(coefficients, |words| self.extension.extend(&words))
    }

    /// The first `len` coefficients of the polynomial with these values on the domain.
    pub fn decode(&self, word: &[K], len: usize) -> Vec<K> {
        let mut coefficients = componentwise(word, |mut words| {
            self.domain.inverse(&mut words);
            words
        });
        coefficients.truncate(len);
        // SHIFT is not zero.
        let step = F::from(SHIFT).inverse().unwrap_or(F::ONE);
        let mut power = F::ONE;
        for c in &mut coefficients {
            *c = scale(*c, power);
            power *= step;
        }
        coefficients
    }
}

/// Applies a map on words that is linear over `F` to both components.
fn componentwise(values: &[K], map: impl Fn(Vec<u64>) -> Vec<u64>) -> Vec<K> {
    let low = map(values.iter().map(|x| word(x.c0)).collect());
    let high = map(values.iter().map(|x| word(x.c1)).collect());
    let element = |w| from_word(w).unwrap_or_default();
    low.into_iter()
        .zip(high)
        .map(|(a, b)| ext(element(a), element(b)))
        .collect()
}

/// Symbols of all rows at a position.
fn column(words: &[Vec<K>], position: usize) -> Vec<K> {
    words.iter().map(|word| word[position]).collect()
}

fn tree(shape: &Shape, words: &[Vec<K>]) -> Tree {
    let leaves = (0..shape.code())
        .into_par_iter()
        .map(|j| hash_leaf(&column(words, j)))
        .collect();
    Tree::new(leaves)
}

/// Codewords of values, `l` to a row; `rows` counts the rows that came before under the same domain.
fn encode_rows(
    code: &Code,
    rows: core::ops::Range<usize>,
    values: &[K],
    seed: &[u8; 32],
    domain: &[u8],
    change: &(impl Fn(Stage, &mut [Vec<K>]) + Sync),
) -> Vec<Vec<K>> {
    let length = code.shape.message();
    let start = rows.start;
    rows.into_par_iter()
        .map(|row| {
            let from = ((row - start) * length).min(values.len());
            let to = (from + length).min(values.len());
            let mut randomness = uniform(seed, domain, row, code.shape.randomness());
            change(Stage::Randomness, core::slice::from_mut(&mut randomness));
            code.encode(&code.row(&values[from..to], &randomness))
        })
        .collect()
}

/// Committed pads.
pub struct Pads {
    pub(super) shape: Shape,
    pub(super) values: Vec<K>,
    pub(super) words: Vec<Vec<K>>,
    pub(super) tree: Tree,
}

impl Pads {
    /// Commits to pads, sends the root, and has the channel use them for all hidden values that follow. A later system
    /// may have up to `products` products. The seed must be fresh for every attempt at a proof.
    ///
    /// An error if there are too many pads or products for one proof.
    pub fn commit(
        channel: &mut ProverChannel,
        values: Vec<K>,
        products: usize,
        seed: &[u8; 32],
    ) -> Result<Self, Reject> {
        let shape = Shape::choose(values.len(), products)?;
        let pads = Self::commit_with(channel, shape, values, seed, |_, _| ());
        channel.set_pads(pads.values.clone());
        Ok(pads)
    }

    /// As [`Pads::commit`]; `change` sees randomness and codewords before they are used.
    pub(super) fn commit_with(
        channel: &mut ProverChannel,
        shape: Shape,
        values: Vec<K>,
        seed: &[u8; 32],
        change: impl Fn(Stage, &mut [Vec<K>]) + Sync,
    ) -> Self {
        let code = Code::new(&shape);
        let rows = 0..shape.pad_rows();
        let mut words = encode_rows(&code, rows, &values, seed, b"zkmoe pad row, v1", &change);
        change(Stage::Words, &mut words);
        let tree = tree(&shape, &words);
        channel.digest("pads root", &tree.root());
        Self {
            shape,
            values,
            words,
            tree,
        }
    }

    /// The pads, in the order of their numbers.
    pub fn values(&self) -> &[K] {
        &self.values
    }

    /// The sizes of the proof.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }
}

/// Proves that the system holds; where it does not, the proof is one that the verifier rejects. The seed must be fresh
/// for every attempt at a proof.
///
/// # Panics
/// If the system has more products than the pads were committed for.
pub fn prove(channel: &mut ProverChannel, pads: &Pads, system: &System, seed: &[u8; 32]) {
    prove_with(channel, pads, system, seed, |_, _| ());
}

/// As [`prove`]; `change` sees what the proof is made of before it is used.
pub(super) fn prove_with(
    channel: &mut ProverChannel,
    pads: &Pads,
    system: &System,
    seed: &[u8; 32],
    change: impl Fn(Stage, &mut [Vec<K>]) + Sync,
) {
    let shape = &pads.shape;
    assert!(
        system.products.len() <= shape.products(),
        "products for which the pads were committed"
    );
    let code = Code::new(shape);
    channel.absorb("pads system", &digest(shape, system));

    let mut values = values(system, &pads.values);
    change(Stage::Values, &mut values);
    let rows = shape.product_rows();
    let mut words = Vec::with_capacity(shape.later_rows());
    for (i, values) in values.iter().enumerate() {
        let rows = i * rows..(i + 1) * rows;
        let domain = b"zkmoe product row, v1";
        words.extend(encode_rows(&code, rows, values, seed, domain, &change));
    }
    let mut masks = masks(shape, seed);
    change(Stage::Masks, &mut masks);
    words.extend(masks.iter().map(|mask| code.encode(mask)));
    change(Stage::Words, &mut words);
    let tree = tree(shape, &words);
    channel.digest("pads root of products", &tree.root());

    let challenges = Challenges::draw(shape, system, |label, n| channel.challenges(label, n));
    let statement = Statement::combine(shape, system, &challenges.linear);
    let mut answers = answers(&code, &statement, &challenges, &pads.words, &words);
    change(Stage::Answers, &mut answers.0);
    let Answers([rows, linear, products]) = &answers;
    channel.clear("pads rows", rows);
    channel.clear("pads linear statements", linear);
    channel.clear("pads products", products);

    channel.grind("pads work before the positions", shape.grinding);
    let positions = channel.positions("pads positions", shape.queries(), shape.log_code());
    let opened = open(&pads.words, &words, positions);
    channel.clear("pads columns of pads", &opened.pads);
    merkle::open(
        channel,
        "pads siblings of pads",
        &pads.tree,
        &opened.positions,
    );
    channel.clear("pads columns of products", &opened.later);
    merkle::open(
        channel,
        "pads siblings of products",
        &tree,
        &opened.positions,
    );
}

/// Left factors, right factors and results of all products.
pub(super) fn values(system: &System, pads: &[K]) -> [Vec<K>; 3] {
    let mut values: [Vec<K>; 3] = Default::default();
    for [a, b] in &system.products {
        let [left, right, results] = &mut values;
        let (a, b) = (a.value(pads, results), b.value(pads, results));
        left.push(a);
        right.push(b);
        results.push(a * b);
    }
    values
}

/// The masks of all tests: uniform, but that the sum of `v0 + X^(l-1) v1` over `H` is zero.
pub(super) fn masks(shape: &Shape, seed: &[u8; 32]) -> [Vec<K>; MASKS] {
    let mut masks: [Vec<K>; MASKS] =
        core::array::from_fn(|i| uniform(seed, b"zkmoe pad mask, v1", i, shape.coefficients()));
    // Only coefficients whose exponent `l` divides count in the sum.
    let length = shape.message();
    let [_, low, high, ..] = &mut masks;
    let rest: K = low.iter().skip(length).step_by(length).sum();
    let high: K = high.iter().skip(1 % length).step_by(length).sum();
    low[0] = -rest - high;
    masks
}

/// The answers to the challenges, for whatever words stand in the rows.
pub(super) fn answers(
    code: &Code,
    statement: &Statement,
    challenges: &Challenges,
    pads: &[Vec<K>],
    later: &[Vec<K>],
) -> Answers {
    let shape = &code.shape;
    let factors: Vec<Vec<K>> = statement
        .weights
        .par_chunks(shape.message())
        .map(|row| code.encode(&code.interpolate(row)))
        .collect();
    let at_positions: Vec<[K; 3]> = (0..shape.code())
        .into_par_iter()
        .map(|j| {
            let (pads, later) = (column(pads, j), column(later, j));
            let factors = column(&factors, j);
            Column::new(shape, &pads, &later).map_or([K::ZERO; 3], |column| {
                column.answers(shape, challenges, &factors, domain_point(shape, j))
            })
        })
        .collect();
    let polynomial = |test: usize, len| {
        let word: Vec<K> = at_positions.iter().map(|answers| answers[test]).collect();
        code.decode(&word, len)
    };
    let mut linear = polynomial(1, shape.linear_coefficients());
    linear.remove(0);
    Answers([
        polynomial(0, shape.coefficients()),
        linear,
        polynomial(2, shape.quotient_coefficients()),
    ])
}

/// The columns at these positions.
pub(super) fn open(pads: &[Vec<K>], later: &[Vec<K>], positions: Vec<usize>) -> Opened {
    let columns = |words: &[Vec<K>]| {
        positions
            .iter()
            .flat_map(|&position| column(words, position))
            .collect()
    };
    Opened {
        pads: columns(pads),
        later: columns(later),
        positions,
    }
}
