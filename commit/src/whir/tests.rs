//! WHIR as a whole: completeness, and each kind of cheating with the check that stops it.

mod rates;

use ark_ff::{AdditiveGroup, Field};

use super::prover::{Oracle, open_with};
use super::{Claim, WhirParams, Witness, apply, commit, open, receive, shift, verify};
use crate::channel::{ProverChannel, Reject, VerifierChannel};
use crate::field::{K, from_i64, lift, root_of_unity};
use crate::length::Length;
use crate::shape::AxisWeights;
use crate::transcript::Transcript;

fn params(log_size: u32, folding: u32, final_log_size: u32) -> WhirParams {
    WhirParams {
        log_size,
        log_inv_rate: 2,
        folding,
        final_log_size,
        security_bits: 30,
        grinding_bits: 3,
    }
}

fn random(seed: &str, n: usize) -> Vec<K> {
    Transcript::new(seed).challenges("values", n)
}

/// Claims of all kinds: evaluations in both bases, and weights of no special form.
fn claims(g: &[K], log_size: u32, n: usize) -> Vec<Claim> {
    let mut t = Transcript::new("claims");
    (0..n)
        .map(|i| {
            let mut claim = match i % 4 {
                0 => Claim::multilinear(&t.challenges("point", log_size as usize), K::ZERO),
                1 => Claim::univariate(t.challenge("z"), log_size, K::ZERO),
                2 => Claim::univariate(
                    lift(shift() * root_of_unity(log_size + 2)),
                    log_size,
                    K::ZERO,
                ),
                _ => Claim {
                    weights: t
                        .challenges("pairs", 2 * log_size as usize)
                        .chunks(2)
                        .map(|c| [c[0], c[1]])
                        .collect(),
                    value: K::ZERO,
                },
            };
            claim.value = apply(&claim.weights, g);
            claim
        })
        .collect()
}

fn prove_with(
    params: &WhirParams,
    g: Vec<K>,
    claims: &[Claim],
    cheat: impl FnOnce(&mut Witness),
) -> Vec<u8> {
    let mut channel = ProverChannel::new("test", b"");
    let mut witness = commit(&mut ProverChannel::new("test", b""), params, g);
    cheat(&mut witness);
    match &witness.oracle {
        Some(oracle) => channel.digest("whir root", &oracle.tree.root()),
        None => channel.clear("whir polynomial", &witness.coefficients),
    }
    open(&mut channel, params, witness, claims);
    channel.finish()
}

fn prove(params: &WhirParams, g: Vec<K>, claims: &[Claim]) -> Vec<u8> {
    let mut channel = ProverChannel::new("test", b"");
    let witness = commit(&mut channel, params, g);
    open(&mut channel, params, witness, claims);
    channel.finish()
}

fn check(params: &WhirParams, claims: &[Claim], proof: &[u8]) -> Result<(), Reject> {
    let mut channel = VerifierChannel::new("test", b"", proof);
    let commitment = receive(&mut channel, params)?;
    verify(&mut channel, params, commitment, claims)?;
    channel.finish()
}

#[test]
fn true_claims_are_accepted() {
    for log_size in 0..=12 {
        let g = random("g", 1 << log_size);
        for (folding, last) in [(1, 3), (2, 2), (3, 0), (4, 6), (4, 1)] {
            let params = params(log_size, folding, last);
            for n in [0, 1, 2, 9] {
                let claims = claims(&g, log_size, n);
                let proof = prove(&params, g.clone(), &claims);
                assert_eq!(
                    check(&params, &claims, &proof),
                    Ok(()),
                    "{params:?}, {n} claims"
                );
            }
        }
    }
}

#[test]
fn missing_coefficients_are_zero() {
    let params = params(7, 3, 2);
    let g = random("g", 77);
    let claims = claims(&[&g[..], &[K::ZERO; 51]].concat(), 7, 4);
    let proof = prove(&params, g, &claims);
    assert_eq!(check(&params, &claims, &proof), Ok(()));
}

#[test]
fn the_default_parameters_are_complete_and_their_proof_has_the_estimated_size() {
    for log_size in [4, 13] {
        let params = WhirParams {
            grinding_bits: 8,
            ..WhirParams::new(log_size, 2, 106)
        };
        let g = random("g", 1 << log_size);
        let claims = claims(&g, log_size, 140);
        let proof = prove(&params, g, &claims);
        assert_eq!(check(&params, &claims, &proof), Ok(()));
        let ratio = proof.len() as f64 / params.estimated_size() as f64;
        assert!((0.85..1.15).contains(&ratio), "{} {ratio}", proof.len());
    }
}

/// Without the digests of opened leaves the length is exact.
#[test]
fn the_length_of_a_proof_is_known() {
    for (log_size, folding, last, grinding_bits) in
        [(2, 2, 3, 8), (4, 1, 1, 0), (9, 3, 2, 0), (10, 4, 3, 6)]
    {
        let params = WhirParams {
            grinding_bits,
            ..params(log_size, folding, last)
        };
        let g = random("g", 1 << log_size);
        let claims = claims(&g, log_size, 5);
        let mut channel = ProverChannel::new("test", b"");
        let witness = commit(&mut channel, &params, g);
        open(&mut channel, &params, witness, &claims);
        let sent = |label: &str| -> u64 {
            let sizes = channel.sizes().iter().filter(|(l, _)| *l == label);
            sizes.map(|&(_, n)| n as u64).sum()
        };
        let paths = params
            .rounds()
            .unwrap()
            .iter()
            .fold(Length::default(), |sum, round| {
                sum + Length::siblings(round.log_leaves(), round.queries)
            });
        let length = params.length(claims.len()).unwrap();
        let found = sent("whir paths");
        assert_eq!(paths.check(found), Ok(()), "{params:?}");
        let all = channel.finish().len() as u64;
        assert_eq!(length.check(all), Ok(()), "{params:?}");
        assert_eq!(length.least - paths.least, all - found, "{params:?}");
        assert_eq!(length.most - paths.most, all - found, "{params:?}");
    }
}

#[test]
fn a_wrong_value_is_refused() {
    for (log_size, check_name) in [
        (8, "WHIR: final sum"),
        (4, "WHIR: final sum"),
        (2, "WHIR: claim on a polynomial in clear"),
    ] {
        let params = params(log_size, 3, 2);
        let g = random("g", 1 << log_size);
        for wrong in 0..6 {
            let mut claims = claims(&g, log_size, 6);
            claims[wrong].value += K::ONE;
            let proof = prove(&params, g.clone(), &claims);
            assert_eq!(
                check(&params, &claims, &proof),
                Err(Reject::check(check_name))
            );
        }
    }
}

#[test]
fn a_proof_for_other_claims_or_parameters_is_refused() {
    let right = params(8, 3, 2);
    let g = random("g", 1 << 8);
    let all = claims(&g, 8, 5);
    let proof = prove(&right, g, &all);
    assert!(check(&right, &all[..4], &proof).is_err());
    let mut swapped = all.clone();
    swapped.swap(1, 2);
    assert!(
        check(&right, &swapped, &proof).is_err(),
        "claims are true but not those of the proof"
    );
    for other in [
        params(8, 3, 1),
        params(8, 2, 2),
        params(7, 3, 2),
        params(8, 3, 8),
        WhirParams {
            security_bits: 31,
            ..right.clone()
        },
        WhirParams {
            grinding_bits: 2,
            ..right.clone()
        },
        WhirParams {
            log_inv_rate: 0,
            ..right.clone()
        },
    ] {
        assert!(check(&other, &all, &proof).is_err(), "{other:?}");
    }
    let mut short = all.clone();
    short[3].weights.pop();
    assert_eq!(
        check(&right, &short, &proof),
        Err(Reject::check("WHIR: variables of a claim"))
    );
}

#[test]
fn a_commitment_of_other_parameters_is_refused() {
    let (small, large) = (params(2, 3, 2), params(8, 3, 2));
    let small_proof = prove(&small, random("g", 4), &[]);
    let large_proof = prove(&large, random("g", 256), &[]);
    for (received, verified, proof) in
        [(&small, &large, small_proof), (&large, &small, large_proof)]
    {
        let mut channel = VerifierChannel::new("test", b"", &proof);
        let commitment = receive(&mut channel, received).unwrap();
        assert_eq!(
            verify(&mut channel, verified, commitment, &[]),
            Err(Reject::check("WHIR: commitment of other parameters"))
        );
    }
}

#[test]
fn every_changed_byte_is_refused() {
    for (log_size, folding) in [(2, 3), (6, 2), (9, 4)] {
        let params = params(log_size, folding, 2);
        let g = random("g", 1 << log_size);
        let claims = claims(&g, log_size, 4);
        let proof = prove(&params, g, &claims);
        let stride = (proof.len() / 400).max(1);
        for at in (0..proof.len()).step_by(stride) {
            for flip in [1, 0x80, 0xff] {
                let mut changed = proof.clone();
                changed[at] ^= flip;
                assert!(
                    check(&params, &claims, &changed).is_err(),
                    "byte {at} of {}",
                    proof.len()
                );
            }
        }
    }
}

#[test]
fn truncated_and_extended_proofs_are_malformed() {
    let params = params(9, 3, 2);
    let g = random("g", 1 << 9);
    let claims = claims(&g, 9, 2);
    let proof = prove(&params, g, &claims);
    for cut in (0..proof.len()).step_by(proof.len() / 200) {
        assert!(check(&params, &claims, &proof[..cut]).is_err());
    }
    let longer = [&proof[..], &[0]].concat();
    assert!(matches!(
        check(&params, &claims, &longer),
        Err(Reject::Malformed(_))
    ));
    assert!(check(&params, &claims, &vec![0; proof.len()]).is_err());
    assert!(check(&params, &claims, &vec![0xff; proof.len()]).is_err());
}

/// Coefficients beyond the degree: the prover folds the lower half honestly and hopes that the word passes.
#[test]
fn a_polynomial_of_twice_the_degree_is_refused() {
    let params = params(8, 3, 2);
    let long = random("g", 1 << 9);
    let claims = claims(&long[..1 << 8], 8, 3);
    let proof = prove_with(&params, long[..1 << 8].to_vec(), &claims, |witness| {
        witness.oracle = Some(Oracle::encode(&long, 10, 3));
    });
    assert_eq!(
        check(&params, &claims, &proof),
        Err(Reject::check("WHIR: final sum"))
    );

    // With one round the queries meet the final polynomial itself.
    let params = self::params(4, 3, 2);
    let claims = self::claims(&long[..1 << 4], 4, 3);
    let proof = prove_with(&params, long[..1 << 4].to_vec(), &claims, |witness| {
        witness.oracle = Some(Oracle::encode(&long[..1 << 5], 6, 2));
    });
    assert_eq!(
        check(&params, &claims, &proof),
        Err(Reject::check(
            "WHIR: final polynomial at a queried position"
        ))
    );
}

#[test]
fn words_far_from_the_code_are_refused() {
    let params = params(8, 3, 2);
    let g = random("g", 1 << 8);
    let claims = claims(&g, 8, 3);
    let noise = random("noise", 1 << 10);
    let proof = prove_with(&params, g.clone(), &claims, |witness| {
        witness.oracle = Some(Oracle::new(noise.clone(), 3));
    });
    assert!(check(&params, &claims, &proof).is_err());
    // Half of the leaves are honest: beyond the radius of 3/8.
    let proof = prove_with(&params, g, &claims, |witness| {
        let mut word = witness.oracle.as_ref().unwrap().codeword.clone();
        for (j, x) in word.iter_mut().enumerate() {
            if j % 128 < 64 {
                *x = noise[j];
            }
        }
        witness.oracle = Some(Oracle::new(word, 3));
    });
    assert!(check(&params, &claims, &proof).is_err());
}

/// A prover who is stuck with a false sum sends, in one round, a folded polynomial that makes it true. Then it is the
/// opened leaves that disagree: in clear at the end, as false claims before.
#[test]
fn a_folded_polynomial_that_repairs_the_sum_is_refused() {
    let params = params(8, 3, 2);
    let g = random("g", 1 << 8);
    let mut claims = claims(&g, 8, 4);
    claims[2].value += K::ONE;
    for (at, check_name) in [
        (0, "WHIR: final sum"),
        (1, "WHIR: final polynomial at a queried position"),
    ] {
        let mut channel = ProverChannel::new("test", b"");
        let witness = commit(&mut channel, &params, g.clone());
        open_with(
            &mut channel,
            &params,
            witness,
            &claims,
            |round, w, g, value| {
                if round == at {
                    let sum: K = w.iter().zip(g.iter()).map(|(w, g)| *w * g).sum();
                    assert_ne!(sum, value, "the claim was false");
                    g[0] += (value - sum) * w[0].inverse().unwrap();
                }
            },
        );
        assert_eq!(
            check(&params, &claims, &channel.finish()),
            Err(Reject::check(check_name)),
            "round {at}"
        );
    }
}

/// The running claim that cheats rely on is the verifier's own.
#[test]
fn the_prover_keeps_the_running_claim() {
    let params = params(9, 2, 1);
    let g = random("g", 1 << 9);
    let claims = claims(&g, 9, 4);
    let mut channel = ProverChannel::new("test", b"");
    let witness = commit(&mut channel, &params, g);
    let mut rounds = 0;
    open_with(&mut channel, &params, witness, &claims, |_, w, g, value| {
        let sum: K = w.iter().zip(g.iter()).map(|(w, g)| *w * g).sum();
        assert_eq!(sum, value);
        rounds += 1;
    });
    assert_eq!(rounds, 4);
}

/// Swapping in another polynomial between commitment and opening.
#[test]
fn another_polynomial_than_the_committed_one_is_refused() {
    let params = params(8, 3, 2);
    let (g, other) = (random("g", 1 << 8), random("other", 1 << 8));
    let claims = claims(&other, 8, 3);
    let proof = prove_with(&params, g, &claims, |witness| witness.coefficients = other);
    assert_eq!(
        check(&params, &claims, &proof),
        Err(Reject::check("WHIR: final sum"))
    );
}

#[test]
fn functionals_agree_with_the_expanded_weights() {
    for log_size in 0..6u32 {
        let g = random("g", 1 << log_size);
        for claim in claims(&g, log_size, 4) {
            let weights = AxisWeights::Bits(claim.weights).expand(g.len());
            let slow: K = weights.iter().zip(&g).map(|(w, c)| *w * c).sum();
            assert_eq!(claim.value, slow);
        }
        let z = K::new(from_i64(3), from_i64(5));
        let horner = g.iter().rev().fold(K::ZERO, |acc, c| acc * z + c);
        assert_eq!(
            apply(&Claim::univariate(z, log_size, K::ZERO).weights, &g),
            horner
        );
    }
}
