//! The verifier's half of WHIR.

use ark_ff::{AdditiveGroup, Field};

use super::params::{Round, WhirParams};
use super::{Claim, apply, bind, horner, next_value, shift, statement};
use crate::channel::{Reject, VerifierChannel, powers};
use crate::field::{F, K, root_of_unity, scale};
use crate::merkle::{Digest, check as check_tree, hash_leaf};

/// What the verifier holds of a committed polynomial.
#[derive(Debug, Clone)]
pub struct Commitment(Held);

#[derive(Debug, Clone)]
enum Held {
    Root(Digest),
    Clear(Vec<K>),
}

/// Receives a commitment.
pub fn receive(
    channel: &mut VerifierChannel<'_>,
    params: &WhirParams,
) -> Result<Commitment, Reject> {
    let held = if params.rounds()?.is_empty() {
        Held::Clear(channel.clear("whir polynomial", 1 << params.log_size)?)
    } else {
        Held::Root(channel.digest("whir root")?)
    };
    Ok(Commitment(held))
}

/// Values of a folded polynomial that became claims.
struct Queries {
    /// Points and coefficients in the running claim.
    points: Vec<(F, K)>,
    /// How many variables were bound before.
    bound: usize,
}

/// Checks the claims about a committed polynomial.
pub fn verify(
    channel: &mut VerifierChannel<'_>,
    params: &WhirParams,
    commitment: Commitment,
    claims: &[Claim],
) -> Result<(), Reject> {
    let rounds = params.rounds()?;
    if claims
        .iter()
        .any(|c| c.weights.len() != params.log_size as usize)
    {
        return Err(Reject::check("WHIR: variables of a claim"));
    }
    channel.absorb("whir statement", &statement(params, claims));
    let mut root = match commitment.0 {
        Held::Root(root) if !rounds.is_empty() => root,
        Held::Clear(g) if rounds.is_empty() && g.len() == 1 << params.log_size => {
            return if claims.iter().all(|c| apply(&c.weights, &g) == c.value) {
                Ok(())
            } else {
                Err(Reject::check("WHIR: claim on a polynomial in clear"))
            };
        }
        _ => return Err(Reject::check("WHIR: commitment of other parameters")),
    };

    let gamma = challenge(
        channel,
        "whir batching",
        params.batch_grinding(claims.len()),
    )?;
    let scales = powers(gamma, claims.len());
    let mut value: K = claims.iter().zip(&scales).map(|(c, s)| c.value * s).sum();
    let mut bound: Vec<K> = Vec::new();
    let mut queries: Vec<Queries> = Vec::new();
    let mut last = Vec::new();
    for (i, round) in rounds.iter().enumerate() {
        for &work in &round.fold_grinding {
            let message = channel.clear("whir sumcheck", 2)?;
            let [constant, leading] = message[..] else {
                return Err(Reject::check("WHIR: sumcheck message"));
            };
            let a = challenge(channel, "whir folding", work)?;
            value = next_value(value, [constant, leading], a);
            bound.push(a);
        }
        let next = if i + 1 < rounds.len() {
            Some(channel.digest("whir root")?)
        } else {
            let left = round.log_size - round.folding;
            last = channel.clear("whir final polynomial", 1 << left)?;
            None
        };
        let positions = query_positions(channel, round)?;
        let challenges = &bound[bound.len() - round.folding as usize..];
        let opened = open_folded(channel, &root, round, &positions, challenges)?;
        if let Some(next) = next {
            let gamma = challenge(channel, "whir query batching", round.batch_grinding)?;
            let scales = powers(gamma, opened.len() + 1).into_iter().skip(1);
            let points: Vec<(F, K)> = opened.iter().map(|&(z, _)| z).zip(scales).collect();
            value += opened
                .iter()
                .zip(&points)
                .map(|((_, y), (_, s))| *y * s)
                .sum::<K>();
            queries.push(Queries {
                points,
                bound: bound.len(),
            });
            root = next;
        } else if opened.iter().any(|&(z, y)| horner(&last, z) != y) {
            // The last word is compared with the polynomial itself.
            return Err(Reject::check(
                "WHIR: final polynomial at a queried position",
            ));
        }
    }

    // The running claim, sum_x W(x) g(x) over what is left of the variables, computed in full.
    let mut total = K::ZERO;
    for (claim, scale) in claims.iter().zip(scales) {
        let (gone, left) = claim.weights.split_at(bound.len());
        total += scale * bind(gone, &bound) * apply(left, &last);
    }
    for Queries {
        points,
        bound: before,
    } in &queries
    {
        for &(mut z, mut factor) in points {
            for &a in &bound[*before..] {
                // (1 - a) + a z
                factor *= K::ONE + scale(a, z - F::ONE);
                z.square_in_place();
            }
            total += factor * horner(&last, z);
        }
    }
    if total == value {
        Ok(())
    } else {
        Err(Reject::check("WHIR: final sum"))
    }
}

fn challenge(
    channel: &mut VerifierChannel<'_>,
    label: &'static str,
    work: u32,
) -> Result<K, Reject> {
    if work > 0 {
        channel.grind("whir work", work)?;
    }
    Ok(channel.challenge(label))
}

fn query_positions(channel: &mut VerifierChannel<'_>, round: &Round) -> Result<Vec<usize>, Reject> {
    if round.all {
        return Ok((0..1 << round.log_leaves()).collect());
    }
    if round.query_grinding > 0 {
        channel.grind("whir work", round.query_grinding)?;
    }
    Ok(channel.positions("whir positions", round.queries, round.log_leaves()))
}

/// Receives leaves, checks them against the root, and folds each: points `z` of the folded domain and values there.
fn open_folded(
    channel: &mut VerifierChannel<'_>,
    root: &Digest,
    round: &Round,
    positions: &[usize],
    challenges: &[K],
) -> Result<Vec<(F, K)>, Reject> {
    let leaf_size = 1usize << round.folding;
    let values = channel.clear("whir leaves", leaf_size * positions.len())?;
    let digests: Vec<Digest> = values.chunks(leaf_size).map(hash_leaf).collect();
    check_tree(
        channel,
        "whir paths",
        root,
        round.log_leaves(),
        positions,
        &digests,
    )?;

    let root_of_domain = root_of_unity(round.log_domain);
    let inverse = |x: F| x.inverse().unwrap_or_default();
    let (inverse_root, inverse_shift) = (inverse(root_of_domain), inverse(shift()));
    // Inverses of the roots of unity by which the points of a leaf differ.
    let zeta = inverse(root_of_unity(round.folding));
    let zetas: Vec<F> = core::iter::successors(Some(F::ONE), |&x| Some(x * zeta))
        .take(leaf_size)
        .collect();
    let half = inverse(F::from(2u64));
    Ok(positions
        .iter()
        .zip(values.chunks(leaf_size))
        .map(|(&j, leaf)| {
            let y = shift() * root_of_domain.pow([j as u64]);
            let y_inverse = inverse_shift * inverse_root.pow([j as u64]);
            let mut z = y;
            for _ in 0..round.folding {
                z.square_in_place();
            }
            (z, fold_leaf(leaf, y_inverse, &zetas, half, challenges))
        })
        .collect())
}

/// Folds the values at `y * zeta^t` down to one. Values half a leaf apart belong to opposite points.
fn fold_leaf(leaf: &[K], mut y_inverse: F, zetas: &[F], half: F, challenges: &[K]) -> K {
    let mut values = leaf.to_vec();
    for (level, &a) in challenges.iter().enumerate() {
        let (low, high) = values.split_at(values.len() / 2);
        let factor = y_inverse * half;
        values = low
            .iter()
            .zip(high)
            .enumerate()
            .map(|(t, (&u, &v))| {
                let even = scale(u + v, half);
                let odd = scale(u - v, factor * zetas[t << level]);
                even + a * (odd - even)
            })
            .collect();
        y_inverse.square_in_place();
    }
    values.first().copied().unwrap_or_default()
}
