//! For how many values of one challenge, or sets of positions, a lie passes WHIR, against the terms.

use super::*;
use crate::chosen::{Choice, Chosen};
use crate::codec::Reader;
use crate::few::{compare, few, numerator, with_roots};
use crate::field::{F, scale};
use crate::whir::soundness;

const FEW: u64 = 13;

/// Two queries in each round, so that their sets can be listed, and no work.
fn short(log_size: u32, folding: u32, final_log_size: u32) -> WhirParams {
    let params = WhirParams {
        log_size,
        log_inv_rate: 2,
        folding,
        final_log_size,
        security_bits: 1,
        grinding_bits: 0,
    };
    assert_eq!(params.rounds().unwrap()[0].queries, 2);
    params
}

/// Challenges by number, and positions of the first set of queries.
#[derive(Clone, Default)]
struct Picked {
    challenges: Vec<(&'static str, usize, K)>,
    positions: Option<Vec<usize>>,
}

impl Choice for Picked {
    fn challenge(&self, label: &str, n: usize) -> Option<K> {
        self.challenges.challenge(label, n)
    }
    fn positions(&self, label: &str, n: usize) -> Option<Vec<usize>> {
        let first = label == "whir positions" && n == 0;
        self.positions.clone().filter(|_| first)
    }
}

/// Whether the verifier accepts what a prover sends under the same oracle.
fn accepts(
    params: &WhirParams,
    claims: &[Claim],
    picked: &Picked,
    prove: impl FnOnce(&mut ProverChannel),
) -> bool {
    let oracle = || Box::new(Chosen::new(picked, 1));
    let mut channel = ProverChannel::under(oracle(), b"");
    prove(&mut channel);
    let proof = channel.finish();
    let mut channel = VerifierChannel::under(oracle(), b"", Box::new(Reader::new(&proof)));
    let commitment = receive(&mut channel, params).unwrap();
    verify(&mut channel, params, commitment, claims).is_ok() && channel.finish().is_ok()
}

/// A prover who committed to any word and goes on as if it were the codeword of `g`.
fn prove_beside(
    channel: &mut ProverChannel,
    params: &WhirParams,
    g: &[K],
    word: &[K],
    claims: &[Claim],
) {
    let mut witness = commit(&mut ProverChannel::new("unused", b""), params, g.to_vec());
    let oracle = Oracle::new(word.to_vec(), params.folding);
    channel.digest("whir root", &oracle.tree.root());
    witness.oracle = Some(oracle);
    open(channel, params, witness, claims);
}

fn codeword(params: &WhirParams, g: &[K]) -> Vec<K> {
    Oracle::encode(g, params.log_size + params.log_inv_rate, params.folding).codeword
}

#[test]
fn batched_claims_pass_at_the_roots_of_their_errors() {
    let params = short(4, 2, 2);
    let g = random("g", 1 << 4);
    let mut claims = claims(&g, 4, 9);
    let roots: Vec<K> = few(FEW).into_iter().take(8).collect();
    for (claim, error) in claims.iter_mut().zip(with_roots(&roots)) {
        claim.value += error;
    }
    let passing = few(FEW).into_iter().filter(|&gamma| {
        let picked = Picked {
            challenges: vec![("whir batching", 0, gamma)],
            ..Picked::default()
        };
        accepts(&params, &claims, &picked, |channel| {
            let witness = commit(channel, &params, g.clone());
            open(channel, &params, witness, &claims);
        })
    });
    let passing: Vec<K> = passing.collect();
    assert_eq!(passing, roots);
    let bound = numerator(&soundness(&params, 9), "WHIR batching of claims", 0);
    compare("WHIR, batching of claims", passing.len() as f64, bound, 1.0);
}

/// What is sent of a round's polynomial is true, so with a false sum it is right at zero. A prover who lies about it has a
/// second point; this one does not look for it.
#[test]
fn a_false_sum_passes_a_round_at_one_of_two_points() {
    let params = short(4, 2, 2);
    let g = random("g", 1 << 4);
    let mut claims = claims(&g, 4, 1);
    claims[0].value += K::ONE;
    let mut passing = 0;
    for a in few(FEW) {
        for b in few(FEW) {
            let picked = Picked {
                challenges: vec![("whir folding", 0, a), ("whir folding", 1, b)],
                ..Picked::default()
            };
            let accepted = accepts(&params, &claims, &picked, |channel| {
                let witness = commit(channel, &params, g.clone());
                open(channel, &params, witness, &claims);
            });
            assert_eq!(accepted, a == K::ZERO || b == K::ZERO);
            passing += u32::from(accepted);
        }
    }
    let terms = soundness(&params, 1);
    let bound: f64 = (0..2)
        .map(|j| numerator(&terms, &format!("WHIR round 0, variable {j}, sumcheck"), 0))
        .sum();
    compare(
        "WHIR, two rounds of a sumcheck",
        f64::from(passing) / FEW as f64,
        bound,
        2.1,
    );
}

/// One leaf more is wrong than the folded code decodes. Each of these leaves folds to the right symbol for one challenge of
/// its own, so for these challenges the folded word is near.
#[test]
fn a_far_word_folds_to_a_near_one_for_as_many_challenges_as_the_term_says_at_most() {
    let params = short(3, 1, 2);
    let round = params.rounds().unwrap().remove(0);
    let leaves = 1usize << round.log_leaves();
    // The largest integer below half of the distance of the folded code.
    let e = (leaves - (1 << (round.log_size - 1)) - 1) / 2;
    let g = random("g", 1 << 3);
    let claims = claims(&g, 3, 2);
    let lucky: Vec<(usize, K)> = (0..=e)
        .map(|j| 2 * j)
        .zip(few(FEW).into_iter().skip(2))
        .collect();
    let mut word = codeword(&params, &g);
    for &(j, a) in &lucky {
        // Even part -a and odd part 1 - a, which cancel in (1 - a) even + a odd.
        let x = shift() * root_of_unity(round.log_domain).pow([j as u64]);
        let (even, odd) = (-a, scale(K::ONE - a, x));
        word[j] += even + odd;
        word[j + leaves] += even - odd;
    }
    let near: Vec<K> = few(FEW)
        .into_iter()
        .filter(|&a| {
            // A query at a wrong leaf shows whether it is right after the fold.
            let right = lucky.iter().filter(|&&(j, own)| {
                let mut positions = vec![1, j];
                positions.sort_unstable();
                let picked = Picked {
                    challenges: vec![("whir folding", 0, a)],
                    positions: Some(positions),
                };
                let accepted = accepts(&params, &claims, &picked, |channel| {
                    prove_beside(channel, &params, &g, &word, &claims);
                });
                assert_eq!(accepted, a == own, "leaf {j} folded by {a}");
                accepted
            });
            right.count() > 0
        })
        .collect();
    assert_eq!(near.len(), e + 1);
    let bound = numerator(
        &soundness(&params, 2),
        "WHIR round 0, variable 0, folding",
        0,
    );
    compare("WHIR, folding", near.len() as f64, bound, 3.0);
}

/// As near to the code as a word may be that is not decoded: all sets of positions are tried.
#[test]
fn a_far_word_passes_as_often_as_the_term_says_at_most() {
    let params = short(4, 2, 2);
    let round = params.rounds().unwrap().remove(0);
    let leaves = 1usize << round.log_leaves();
    let agreeing = usize::midpoint(leaves, 1 << 2);
    let g = random("g", 1 << 4);
    let claims = claims(&g, 4, 3);
    let (mut word, noise) = (codeword(&params, &g), random("noise", 64));
    for (at, symbol) in word.iter_mut().enumerate() {
        // One symbol of a leaf is enough.
        if at < leaves && at * 3 % leaves >= agreeing {
            *symbol += noise[at];
        }
    }
    let (mut passing, mut all) = (0, 0);
    for b in 0..leaves {
        for a in 0..b {
            let picked = Picked {
                positions: Some(vec![a, b]),
                ..Picked::default()
            };
            let accepted = accepts(&params, &claims, &picked, |channel| {
                prove_beside(channel, &params, &g, &word, &claims);
            });
            passing += u32::from(accepted);
            all += 1;
        }
    }
    let terms = soundness(&params, 3);
    let term = terms
        .iter()
        .find(|t| t.name == "WHIR round 0, queries")
        .unwrap();
    let (rate, bound) = (f64::from(passing) / f64::from(all), (-term.bits).exp2());
    println!(
        "WHIR, queries: {passing} of {all} sets of positions pass, rate {rate:.4}, at most {bound:.4}"
    );
    assert_eq!((passing, all), (45, 120));
    assert!(rate <= bound && bound < 1.1 * rate);
}

/// The polynomial that a prover sends after the fold is false at the positions that are then opened, in such a way that the
/// errors cancel for as many challenges as there are positions.
#[test]
fn batched_queries_pass_at_the_roots_of_their_errors() {
    let params = short(6, 2, 2);
    let round = params.rounds().unwrap().remove(0);
    assert_eq!(params.rounds().unwrap().len(), 2);
    let g = random("g", 1 << 6);
    let claims = claims(&g, 6, 2);
    let positions = vec![17, 40];
    let roots: Vec<K> = few(FEW).into_iter().skip(1).take(2).collect();
    let errors = with_roots(&roots);
    let points: Vec<F> = positions
        .iter()
        .map(|&j: &usize| {
            let point = shift() * root_of_unity(round.log_domain).pow([j as u64]);
            point.pow([1 << round.folding])
        })
        .collect();
    let lifted: Vec<K> = points.iter().map(|&z| lift(z)).collect();
    let passing = few(FEW).into_iter().filter(|&gamma| {
        let picked = Picked {
            challenges: vec![("whir query batching", 0, gamma)],
            positions: Some(positions.clone()),
        };
        accepts(&params, &claims, &picked, |channel| {
            let witness = commit(channel, &params, g.clone());
            open_with(channel, &params, witness, &claims, |round, w, g, _| {
                if round == 0 {
                    let change = change(w, &lifted, &errors);
                    g.iter_mut().zip(&change).for_each(|(g, c)| *g += c);
                }
            });
        })
    });
    let passing: Vec<K> = passing.collect();
    assert_eq!(passing, roots);
    let bound = numerator(
        &soundness(&params, 2),
        "WHIR round 0, batching of queries",
        0,
    );
    compare(
        "WHIR, batching of queries",
        passing.len() as f64,
        bound,
        1.0,
    );
}

/// A polynomial with the values `errors[1..]` at some points whose sum with weights `w` is `errors[0]`.
fn change(w: &[K], points: &[K], errors: &[K]) -> Vec<K> {
    let sum = |p: &[K]| w.iter().zip(p).map(|(w, c)| *w * c).sum::<K>();
    let at = |p: &[K], z: K| p.iter().rev().fold(K::ZERO, |sum, &c| sum * z + c);
    let mut out = vec![K::ZERO; w.len()];
    let mut add = |p: &[K], factor: K| p.iter().zip(&mut out).for_each(|(p, c)| *c += factor * p);
    for (&point, &error) in points.iter().zip(&errors[1..]) {
        let others: Vec<K> = points.iter().copied().filter(|&z| z != point).collect();
        let basis = with_roots(&others);
        add(&basis, error * at(&basis, point).inverse().unwrap());
    }
    // As much of what vanishes at the points as the sum needs.
    let vanishing = with_roots(points);
    let left = errors[0] - sum(&out);
    let factor = left * sum(&vanishing).inverse().unwrap();
    vanishing
        .iter()
        .zip(&mut out)
        .for_each(|(v, c)| *c += factor * v);
    out
}
