//! For how many values of one challenge a lie passes an opening, against the numerators of the terms.

use super::*;
use crate::chosen::{Choice, Chosen};
use crate::few::{compare, few, numerator, with_roots};

const FEW: u64 = 31;

/// The verdict on a proof, both made and checked under chosen challenges.
fn accepts<C: Choice>(
    f: &Fixture,
    choice: &C,
    sources: &[&dyn RowSource],
    falsify: impl Fn(Message, &mut Vec<K>),
) -> bool {
    let oracle = || Box::new(Chosen::new(choice, 1));
    let mut channel = f.channel_under(oracle());
    f.prove_to(&mut channel, sources, falsify);
    let proof = channel.finish();
    f.verify_under(oracle(), &proof, &f.roots(), |_| ()).is_ok()
}

/// As [`accepts`], of a prover who follows the protocol from false claims on.
fn accepts_claims<C: Choice>(f: &Fixture, choice: &C) -> bool {
    accepts(f, choice, &f.sources(), |_, _| ())
}

fn terms(f: &Fixture) -> Vec<crate::soundness::Term> {
    let rows = f.sides.iter().map(|s| s.layout.rows()).sum();
    soundness(&f.params, rows, f.claims.len())
}

#[test]
fn batched_claims_pass_at_the_roots_of_their_errors() {
    let mut f = fixture(2);
    let m = f.claims.len();
    let roots: Vec<K> = few(FEW).into_iter().take(m - 1).collect();
    for (claim, error) in f.claims.iter_mut().zip(with_roots(&roots)) {
        claim.value += error;
    }
    let at = |gamma| accepts_claims(&f, &vec![("opening: gamma", 0, gamma)]);
    let passing: Vec<K> = few(FEW).into_iter().filter(|&gamma| at(gamma)).collect();
    assert_eq!(passing, roots);
    // The term counts one more.
    let bound = numerator(&terms(&f), "opening: batching of claims", 0);
    compare("batching of claims", passing.len() as f64, bound, 1.2);
}

/// A round's polynomial is sent at 0 and 2, so what is true there and a false sum make one that is right at two points.
#[test]
fn each_round_of_the_sumcheck_passes_at_two_points() {
    let mut f = fixture(0);
    f.claims[0].value += K::ONE;
    let rounds = f.params.log_row as usize;
    let mut passing = 0;
    for round in 0..rounds {
        let others = (0..rounds).filter(|&i| i != round);
        // At one the error of the sum is handed on as it is.
        let others: Vec<_> = others.map(|i| ("opening: rho", i, K::ONE)).collect();
        for r in few(9) {
            let choice = [&others[..], &[("opening: rho", round, r)]].concat();
            let passes = accepts_claims(&f, &choice);
            assert_eq!(
                passes,
                r == K::ZERO || r == K::from(2u64),
                "round {round} at {r}"
            );
            passing += u32::from(passes);
        }
    }
    let bound = numerator(&terms(&f), "opening: sumcheck over slots", 0);
    compare("sumcheck over slots", f64::from(passing), bound, 1.0);
}

/// A false claim `A`, and `M` and `B` misstated so that `M + e A + e^2 B` is right for two values of `e`.
#[test]
fn a_misstated_value_of_the_combined_row_passes_for_two_values_of_e() {
    let mut f = fixture(1);
    f.claims[0].value += K::ONE;
    let rounds = f.params.log_row as usize;
    let (s, t) = (K::from(3u64), K::from(5u64));
    // b (e - s)(e - t) with the linear coefficient one.
    let b = -(s + t).inverse().unwrap();
    let passing = few(FEW).into_iter().filter(|&e| {
        let mut choice: Vec<_> = (0..rounds).map(|i| ("opening: rho", i, K::ONE)).collect();
        choice.push(("opening: e", 0, e));
        accepts(&f, &choice, &f.sources(), |message, values| {
            if message == Message::Values {
                values[0] += b * s * t;
                values[1] += b;
            }
        })
    });
    let passing: Vec<K> = passing.collect();
    assert_eq!(passing, [s, t]);
    let work = f.params.grinding.combination;
    let bound = numerator(&terms(&f), "opening: value of the combined row", work);
    // The term counts the variables of `b` as well.
    compare(
        "value of the combined row",
        passing.len() as f64,
        bound,
        4.0,
    );
}

/// Positions of rows that a test chooses.
#[derive(Clone)]
struct At(Vec<usize>);

impl Choice for At {
    fn positions(&self, label: &str, _: usize) -> Option<Vec<usize>> {
        (label == "opening: positions").then(|| self.0.clone())
    }
}

/// A row, or the mask, wrong at half of the distance passes if and only if no wrong position is opened. So the rate is the
/// share of such positions, which `tests/rates` counts.
#[test]
fn a_far_row_passes_if_no_wrong_position_is_opened() {
    let mut f = fixture(1);
    f.params.queries = 3;
    let n = 1 << f.params.log_code;
    let k = (1 << f.params.log_row) + f.params.model_tail;
    let wrong = |j: usize| j * 37 % n < (n - k) / 2;
    let (tree, row) = carriers(&f.layouts(), &f.claims)[0];
    let mask = (1, f.sides[1].layout.rows());
    let mut seen = [0, 0];
    for (tree, row) in [(tree, row), mask] {
        let rows = f.sides[tree].rows.clone();
        let mut word = f.code.codeword(&rows.data[row], &rows.tails[row]);
        for (j, symbol) in word.iter_mut().enumerate().filter(|(j, _)| wrong(*j)) {
            *symbol += F::from(1 + j as u64);
        }
        let far = FarRow { rows, row, word };
        let honest = std::mem::replace(&mut f.sides[tree].tree, far.commit(&f.code));
        let mut transcript = Transcript::new("positions");
        for _ in 0..30 {
            let positions = transcript.positions("p", f.params.queries, f.params.log_code);
            let missed = !positions.iter().any(|&j| wrong(j));
            let mut sources = f.sources();
            sources[tree] = &far;
            let choice = At(positions);
            assert_eq!(
                accepts(&f, &choice, &sources, |_, _| ()),
                missed,
                "{:?}",
                choice.0
            );
            seen[usize::from(missed)] += 1;
        }
        f.sides[tree].tree = honest;
    }
    assert!(seen.iter().all(|&n| n > 5), "{seen:?}");
    let agreeing = usize::midpoint(n, k);
    let exact: f64 = (0..3)
        .map(|i| (agreeing - i) as f64 / (n - i) as f64)
        .product();
    let term = (f64::from(f.params.grinding.positions) - f.params.position_bits()).exp2();
    assert!(exact <= term && term < 1.05 * exact, "{exact} {term}");
}
