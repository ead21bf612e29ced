//! The prover's half of WHIR.

use ark_ff::Field;
use rayon::prelude::*;
use zkmoe_kernels::ntt::Extension;

use super::params::{Round, WhirParams};
use super::{Claim, horner, next_value, shift, statement};
use crate::channel::{ProverChannel, powers};
use crate::field::{F, K, ext, from_word, root_of_unity, scale, word};
use crate::merkle::{Tree, hash_leaf, open as open_tree};
use crate::shape::AxisWeights;

/// A committed polynomial.
#[derive(Debug, Clone)]
pub struct Witness {
    /// The coefficients.
    pub(super) coefficients: Vec<K>,
    /// The codeword and its tree; none if the coefficients were sent.
    pub(super) oracle: Option<Oracle>,
}

impl Witness {
    /// The coefficients, filled up with zeros.
    pub fn coefficients(&self) -> &[K] {
        &self.coefficients
    }
}

/// A codeword, and the tree over its leaves of `2^folding` values.
#[derive(Debug, Clone)]
pub(super) struct Oracle {
    pub codeword: Vec<K>,
    pub tree: Tree,
}

impl Oracle {
    /// The codeword of a polynomial.
    pub fn encode(coefficients: &[K], log_domain: u32, folding: u32) -> Self {
        let log_size = coefficients.len().trailing_zeros();
        let extension = Extension::new(log_size, word(shift()), log_domain);
        let (low, high) = rayon::join(
            || extension.extend(&coefficients.iter().map(|x| word(x.c0)).collect::<Vec<_>>()),
            || extension.extend(&coefficients.iter().map(|x| word(x.c1)).collect::<Vec<_>>()),
        );
        let element = |w: u64| from_word(w).unwrap_or_default();
        let codeword = low
            .into_par_iter()
            .zip(high)
            .map(|(a, b)| ext(element(a), element(b)))
            .collect();
        Self::new(codeword, folding)
    }

    /// Any word.
    pub fn new(codeword: Vec<K>, folding: u32) -> Self {
        let leaves = codeword.len() >> folding;
        let digests = (0..leaves)
            .into_par_iter()
            .with_min_len(64)
            .map(|j| hash_leaf(&leaf(&codeword, leaves, j)))
            .collect();
        Self {
            codeword,
            tree: Tree::new(digests),
        }
    }
}

/// The values at the points that share their power with point `j`.
fn leaf(codeword: &[K], leaves: usize, j: usize) -> Vec<K> {
    codeword.iter().skip(j).step_by(leaves).copied().collect()
}

/// Commits to a polynomial; missing coefficients are zero.
///
/// # Panics
/// If there are more coefficients than `params` say, or `params` make no sense.
pub fn commit(channel: &mut ProverChannel, params: &WhirParams, coefficients: Vec<K>) -> Witness {
    let rounds = sensible_rounds(params);
    let mut coefficients = coefficients;
    assert!(
        coefficients.len() <= 1 << params.log_size,
        "coefficients fit the parameters"
    );
    coefficients.resize(1 << params.log_size, K::from(0u64));
    let oracle = rounds
        .first()
        .map(|round| Oracle::encode(&coefficients, round.log_domain, round.folding));
    match &oracle {
        Some(oracle) => channel.digest("whir root", &oracle.tree.root()),
        None => channel.clear("whir polynomial", &coefficients),
    }
    Witness {
        coefficients,
        oracle,
    }
}

fn sensible_rounds(params: &WhirParams) -> Vec<Round> {
    match params.rounds() {
        Ok(rounds) => rounds,
        Err(why) => panic!("{why}"),
    }
}

/// Proves the claims about a committed polynomial.
///
/// # Panics
/// If a claim has another number of variables than the polynomial, or `params` are not those of the commitment.
pub fn open(channel: &mut ProverChannel, params: &WhirParams, witness: Witness, claims: &[Claim]) {
    open_with(channel, params, witness, claims, |_, _, _, _| {});
}

/// As [`open`]; `tamper` sees the round, the weights, the folded polynomial and the running claim before the folded
/// polynomial is sent. Tests of the verifier cheat here.
pub(super) fn open_with(
    channel: &mut ProverChannel,
    params: &WhirParams,
    witness: Witness,
    claims: &[Claim],
    mut tamper: impl FnMut(usize, &[K], &mut [K], K),
) {
    let rounds = sensible_rounds(params);
    assert!(
        claims
            .iter()
            .all(|c| c.weights.len() == params.log_size as usize),
        "claims and polynomial have the same variables"
    );
    channel.absorb("whir statement", &statement(params, claims));
    let Witness {
        coefficients: mut g,
        oracle: Some(mut oracle),
    } = witness
    else {
        return;
    };
    let gamma = challenge(
        channel,
        "whir batching",
        params.batch_grinding(claims.len()),
    );
    let scales = powers(gamma, claims.len());
    let mut w = weight_table(claims, &scales, params.log_size);
    let mut value: K = claims.iter().zip(scales).map(|(c, s)| c.value * s).sum();
    for (i, round) in rounds.iter().enumerate() {
        for &work in &round.fold_grinding {
            let message = sumcheck_message(&w, &g);
            channel.clear("whir sumcheck", &message);
            let a = challenge(channel, "whir folding", work);
            value = next_value(value, message, a);
            rayon::join(|| fold(&mut w, a), || fold(&mut g, a));
        }
        tamper(i, &w, &mut g, value);
        let next = rounds
            .get(i + 1)
            .map(|next| Oracle::encode(&g, next.log_domain, next.folding));
        match &next {
            Some(next) => channel.digest("whir root", &next.tree.root()),
            None => channel.clear("whir final polynomial", &g),
        }
        let positions = query_positions(channel, round);
        let leaves = 1 << round.log_leaves();
        let opened: Vec<K> = positions
            .iter()
            .flat_map(|&j| leaf(&oracle.codeword, leaves, j))
            .collect();
        channel.clear("whir leaves", &opened);
        open_tree(channel, "whir paths", &oracle.tree, &positions);
        if let Some(next) = next {
            let gamma = challenge(channel, "whir query batching", round.batch_grinding);
            let power = root_of_unity(round.log_leaves());
            let offset = shift().pow([1 << round.folding]);
            let points: Vec<(F, K)> = positions
                .iter()
                .map(|&j| offset * power.pow([j as u64]))
                .zip(powers(gamma, positions.len() + 1).into_iter().skip(1))
                .collect();
            value += points.iter().map(|&(z, s)| s * horner(&g, z)).sum::<K>();
            add_powers(&mut w, &points);
            oracle = next;
        }
    }
}

/// A challenge after some work.
fn challenge(channel: &mut ProverChannel, label: &'static str, work: u32) -> K {
    if work > 0 {
        channel.grind("whir work", work);
    }
    channel.challenge(label)
}

fn query_positions(channel: &mut ProverChannel, round: &Round) -> Vec<usize> {
    if round.all {
        return (0..1 << round.log_leaves()).collect();
    }
    if round.query_grinding > 0 {
        channel.grind("whir work", round.query_grinding);
    }
    channel.positions("whir positions", round.queries, round.log_leaves())
}

/// `sum_c scales[c] * weights_c[x]` for all `x`: low bits and high bits expanded once for each claim, then all products.
fn weight_table(claims: &[Claim], scales: &[K], log_size: u32) -> Vec<K> {
    let low_bits = (log_size as usize).min(8);
    let expanded: Vec<(Vec<K>, Vec<K>)> = claims
        .par_iter()
        .zip(scales)
        .map(|(claim, &s)| {
            let (low, high) = claim.weights.split_at(low_bits);
            let mut high =
                AxisWeights::Bits(high.to_vec()).expand(1 << (log_size as usize - low_bits));
            for x in &mut high {
                *x *= s;
            }
            (AxisWeights::Bits(low.to_vec()).expand(1 << low_bits), high)
        })
        .collect();
    let mut table = vec![K::from(0u64); 1 << log_size];
    table
        .par_chunks_mut(1 << low_bits)
        .enumerate()
        .for_each(|(h, chunk)| {
            for (low, high) in &expanded {
                let factor = high[h];
                for (x, l) in chunk.iter_mut().zip(low) {
                    *x += *l * factor;
                }
            }
        });
    table
}

/// Adds `sum_i scale_i * z_i^x` to entry `x`.
fn add_powers(table: &mut [K], points: &[(F, K)]) {
    const CHUNK: usize = 64;
    table
        .par_chunks_mut(CHUNK)
        .enumerate()
        .for_each(|(c, chunk)| {
            // One running power for each point: the points are independent, so their products overlap.
            let mut running: Vec<(F, K)> = points
                .iter()
                .map(|&(z, s)| (z, scale(s, z.pow([(c * CHUNK) as u64]))))
                .collect();
            for x in chunk {
                for (z, power) in &mut running {
                    *x += *power;
                    *power = scale(*power, *z);
                }
            }
        });
}

/// The constant and the leading coefficient of `sum_x' W(t, x') g(t, x')`; the third coefficient follows from the claim.
fn sumcheck_message(w: &[K], g: &[K]) -> [K; 2] {
    let zero = K::from(0u64);
    w.par_chunks(2)
        .zip(g.par_chunks(2))
        .with_min_len(512)
        .map(|(w, g)| [w[0] * g[0], (w[1] - w[0]) * (g[1] - g[0])])
        .reduce(|| [zero; 2], |a, b| [a[0] + b[0], a[1] + b[1]])
}

/// Binds the lowest variable.
fn fold(table: &mut Vec<K>, a: K) {
    *table = table
        .par_chunks(2)
        .with_min_len(512)
        .map(|pair| pair[0] + a * (pair[1] - pair[0]))
        .collect();
}
