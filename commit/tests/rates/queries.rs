//! Positions and proofs of work, as the transcript draws and accepts them.

use crate::compare;
use zkmoe_commit::channel::ProverChannel;
use zkmoe_commit::params::Params;
use zkmoe_commit::transcript::Transcript;

/// A measured share and the standard deviation of its measurement.
fn within_five_deviations(what: &str, hits: u32, trials: u32, expected: f64) -> f64 {
    let share = f64::from(hits) / f64::from(trials);
    let deviation = (expected * (1.0 - expected) / f64::from(trials)).sqrt();
    assert!(
        (share - expected).abs() <= 5.0 * deviation,
        "{what}: {share} instead of {expected} within {deviation}"
    );
    share
}

/// The share of sets of `queries` positions of `n` that lie in `agreeing` of them.
fn all_inside(agreeing: u32, n: u32, queries: u32) -> f64 {
    (0..queries)
        .map(|i| f64::from(agreeing - i) / f64::from(n - i))
        .product()
}

#[test]
fn a_far_word_passes_as_often_as_positions_miss_its_errors() {
    const TRIALS: u32 = 40_000;
    for (log_n, k, queries) in [(4, 4, 2), (4, 4, 6), (6, 16, 8), (8, 64, 10)] {
        let n = 1u32 << log_n;
        // As near to the code as a word may be that is not decoded.
        let agreeing = u32::midpoint(n, k);
        let mut transcript = Transcript::new("queries");
        let hits = (0..TRIALS).filter(|_| {
            let positions = transcript.positions("positions", queries as usize, log_n);
            // Which positions are wrong makes no difference; here they are spread.
            positions.iter().all(|&j| j as u32 * 5 % n < agreeing)
        });
        let hits = hits.count() as u32;
        let exact = all_inside(agreeing, n, queries);
        let what = format!("{queries} positions of {n}, {agreeing} agree");
        within_five_deviations(&what, hits, TRIALS, exact);
        // The term of the opening and of WHIR forgets that positions are distinct.
        let term = f64::midpoint(1.0, f64::from(k) / f64::from(n)).powi(queries as i32);
        let slack = if queries * 4 > n { 2.5 } else { 1.6 };
        compare(&what, exact, term, slack);
    }
}

/// The opening's own term, with its rate and its number of positions.
#[test]
fn the_term_of_the_positions_is_the_power_that_is_tested_here() {
    let params = Params::choose(1 << 16, 1);
    let power = f64::midpoint(1.0, params.rate()).powi(params.queries as i32);
    let bits = -power.log2() + f64::from(params.grinding.positions);
    assert!((bits - params.position_bits()).abs() < 1e-9);
    let n = 1 << params.log_code;
    let k = (1 << params.log_row) + params.model_tail as u32;
    let exact = all_inside(u32::midpoint(n, k), n, params.queries as u32);
    compare("the opening's positions", exact, power, 1e4);
}

#[test]
fn work_takes_as_many_tries_as_its_bits_say() {
    const TRIALS: u32 = 2_000;
    for bits in [0, 1, 4, 7] {
        let mut transcript = Transcript::new("work");
        let mut tries = 0u64;
        for trial in 0..TRIALS {
            transcript.absorb("trial", &trial.to_le_bytes());
            let first = (0..u64::MAX).find(|&nonce| transcript.accepts("work", bits, nonce));
            tries += first.unwrap() + 1;
        }
        let mean = tries as f64 / f64::from(TRIALS);
        let expected = f64::from(bits).exp2();
        // Geometric: the standard deviation of one is below its mean.
        let deviation = (expected * (expected - 1.0) / f64::from(TRIALS)).sqrt();
        println!("{bits} bits of work: {mean:.2} tries");
        assert!(
            (mean - expected).abs() <= 5.0 * deviation,
            "{bits} bits: {mean} tries"
        );
    }
}

#[test]
fn work_before_a_challenge_draws_it_anew() {
    // With two nonces that are both accepted, what is drawn next differs.
    let mut drawn = Vec::new();
    for trial in 0..2u8 {
        let mut channel = ProverChannel::new("test", &[trial]);
        channel.grind("work", 5);
        drawn.push(channel.challenge("c"));
    }
    let start = Transcript::new("work");
    let accepted = (0..u64::MAX)
        .filter(|&nonce| start.accepts("work", 5, nonce))
        .take(2);
    drawn.extend(accepted.map(|nonce| {
        let mut transcript = start.clone();
        transcript.absorb("work", &nonce.to_le_bytes());
        transcript.challenge("c")
    }));
    let distinct = (0..4).all(|i| !drawn[..i].contains(&drawn[i]));
    assert!(distinct);
}
