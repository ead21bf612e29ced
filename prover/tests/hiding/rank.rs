//! Bookkeeping of randomness: all that proofs reveal of a row is linear in its random part, and the rank of what is revealed is
//! the number of functionals that the verifier does not compute from others. So whatever the row holds, what is seen
//! of it is uniform. Four more functionals, the symbols of leaves that are not opened, stay uniform after that.

use std::collections::BTreeSet;
use std::sync::Mutex;

use ark_ff::{AdditiveGroup, Field};
use zkmoe_commit::channel::Oracle;
use zkmoe_commit::codec::Reader;
use zkmoe_commit::field::{F, K, lift, root_of_unity};
use zkmoe_commit::ligero::{Shape, uniform_pads};
use zkmoe_commit::params::Params;
use zkmoe_commit::rows::SHIFT;
use zkmoe_commit::transcript::Transcript;
use zkmoe_prover::commitment::commit;
use zkmoe_prover::key::Opening;
use zkmoe_prover::prove::{NoHook, Purpose, prove_trace};
use zkmoe_verifier::batch::read_proof_header;
use zkmoe_verifier::verify::{PROTOCOL, hidden_counts};

use crate::common::programmed::{Dice, Programmed, row_point, row_positions};
use crate::statistics::rank;
use crate::view::{listen, sent_values};
use crate::{ORACLE, Programming, committed, params, proof, sides};

/// Symbols beyond the opened ones that have to be uniform given these.
const SPARE: usize = 4;

/// An oracle that writes down the positions that it draws.
struct Watched<'a> {
    oracle: Transcript,
    drawn: &'a Mutex<Vec<(String, Vec<usize>)>>,
}

impl Oracle for Watched<'_> {
    fn absorb(&mut self, label: &str, data: &[u8]) {
        self.oracle.absorb(label, data);
    }
    fn challenges(&mut self, label: &str, n: usize) -> Vec<K> {
        self.oracle.challenges(label, n)
    }
    fn positions(&mut self, label: &str, n: usize, log_size: u32) -> Vec<usize> {
        let positions = self.oracle.positions(label, n, log_size);
        let mut drawn = self.drawn.lock().unwrap();
        drawn.push((label.to_owned(), positions.clone()));
        positions
    }
    fn accepts(&self, label: &str, bits: u32, nonce: u64) -> bool {
        self.oracle.accepts(label, bits, nonce)
    }
}

/// What the symbols at some points are of random coefficients: `factor(x) x^i` for `i` below `t`.
fn symbols(points: &[F], t: usize, factor: impl Fn(F) -> F) -> Vec<Vec<F>> {
    points
        .iter()
        .map(|&x| powers(x, t).map(|power| factor(x) * power).collect())
        .collect()
}

fn powers(x: F, n: usize) -> impl Iterator<Item = F> {
    core::iter::successors(Some(F::ONE), move |&p| Some(p * x)).take(n)
}

/// Demands that the symbols of a row of a commitment at `positions`, and [`SPARE`] more, are independent in its tail.
fn assert_hidden(params: &Params, positions: &BTreeSet<usize>, tail: usize) {
    assert!(tail >= positions.len() + SPARE, "coefficients of a tail");
    let unopened = (0..1 << params.log_code).filter(|j| !positions.contains(j));
    let all = positions.iter().copied().chain(unopened.take(SPARE));
    let points: Vec<F> = all.map(|j| row_point(params, j)).collect();
    let shift = 1u64 << params.log_row;
    assert_eq!(
        rank(symbols(&points, tail, |x| x.pow([shift]))),
        points.len()
    );
}

/// The positions of a proof with the parameters and the transcript of providers.
#[test]
fn a_real_proof_reveals_less_than_the_randomness_of_its_rows() {
    let [side, _] = sides();
    let model = &side.model;
    let params = Params::choose(model.parameters() as usize, 1);
    let (id, mut key) = commit(model, params.clone(), [3; 32], &|_, _| ());
    let permit = key.spend_with(Opening::Batch, [5; 32]).unwrap();
    let (replies, trace) = (&side.replies, side.trace.clone());
    let seed = [9; 32];
    let batch = prove_trace(model, &id, &key, permit, replies, trace, seed, &mut NoHook).unwrap();

    let drawn = Mutex::new(Vec::new());
    let oracle = Watched {
        oracle: Transcript::new(PROTOCOL),
        drawn: &drawn,
    };
    let (verdict, seen) = listen(&id, &batch.proof, Box::new(oracle));
    verdict.unwrap();
    let drawn = drawn.into_inner().unwrap();
    let of = |label: &str| -> BTreeSet<usize> {
        let mut lists = drawn.iter().filter(|(l, _)| l == label);
        let (_, positions) = lists.next().expect("positions");
        assert!(lists.next().is_none(), "rows are opened once");
        positions.iter().copied().collect()
    };

    let rows = of("opening: positions");
    assert_eq!(rows.len(), params.queries);
    assert_hidden(&params, &rows, params.model_tail);
    assert_hidden(&params, &rows, params.trace_tail);

    let (_, header) = read_proof_header(&mut Reader::new(&batch.proof), &id.header).unwrap();
    let (pads, products) = hidden_counts(&id, &header).unwrap();
    assert_eq!(sent_values(&seen).len(), pads);
    let shape = Shape::choose(pads, products).unwrap();
    let columns = of("pads positions");
    assert_eq!(columns.len(), shape.queries());
    let point = |j: usize| F::from(SHIFT) * root_of_unity(shape.log_code()).pow([j as u64]);
    let points: Vec<F> = columns.iter().map(|&j| point(j)).collect();

    // Rows of values: `(x^l - 1) r(x)`.
    let unopened = (0..shape.code()).filter(|j| !columns.contains(j));
    let more: Vec<F> = unopened.take(SPARE).map(point).collect();
    let message = shape.message();
    let vanishing = |x: F| x.pow([message as u64]) - F::ONE;
    let seen = symbols(
        &[&points[..], &more[..]].concat(),
        shape.randomness(),
        vanishing,
    );
    assert!(shape.randomness() >= points.len() + SPARE);
    assert_eq!(rank(seen), points.len() + SPARE);

    // Of each test's masks the polynomial and the opened symbols are seen. The verifier computes one symbol at each
    // position from all others and the polynomial; everything else is independent.
    let (k, q) = (shape.coefficients(), shape.queries());
    assert_eq!(rank(of_one_mask(k, &points)), k);
    let linear = of_two_masks(k, message - 1, Some(message), &points);
    assert_eq!(linear.len(), k + message - 2 + 2 * q);
    assert_eq!(rank(linear), k + message - 2 + q);
    let t = shape.randomness();
    let products = of_two_masks(k, t - 1, None, &points);
    assert_eq!(products.len(), k + t - 1 + 2 * q);
    assert_eq!(rank(products), k + t - 1 + q);
}

/// The coefficients of a mask and its symbols.
fn of_one_mask(k: usize, points: &[F]) -> Vec<Vec<F>> {
    let mut seen: Vec<Vec<F>> = (0..k).map(|i| unit(i, k)).collect();
    seen.extend(symbols(points, k, |_| F::ONE));
    seen
}

fn unit(i: usize, n: usize) -> Vec<F> {
    let mut unit = vec![F::ZERO; n];
    unit[i] = F::ONE;
    unit
}

/// The coefficients of `a + X^shift b`, two masks of `k` coefficients, and the symbols of both. With a period the sum of all
/// coefficients whose exponent it divides is zero: then the first of `a` follows, and that of the polynomial is not sent.
fn of_two_masks(k: usize, shift: usize, period: Option<usize>, points: &[F]) -> Vec<Vec<F>> {
    let mut seen: Vec<Vec<F>> = (0..k + shift)
        .map(|i| {
            let mut functional = vec![F::ZERO; 2 * k];
            if i < k {
                functional[i] += F::ONE;
            }
            if i >= shift {
                functional[k + i - shift] += F::ONE;
            }
            functional
        })
        .collect();
    for &x in points {
        let symbol: Vec<F> = powers(x, k).collect();
        let none = vec![F::ZERO; k];
        seen.push([&symbol[..], &none[..]].concat());
        seen.push([none, symbol].concat());
    }
    if let Some(period) = period {
        seen.remove(0);
        for functional in &mut seen {
            let first = functional[0];
            for i in 0..k {
                for (at, exponent) in [(i, i), (k + i, i + shift)] {
                    if exponent.is_multiple_of(period) {
                        functional[at] -= first;
                    }
                }
            }
        }
    }
    seen
}

/// All openings of one commitment up to the last batch of its budget, and one each for a certificate and a rotation.
#[test]
fn all_batches_of_a_budget_reveal_less_than_the_models_tails() {
    let model = &sides()[0].model;
    for params in [
        params(model),
        Params::choose(model.parameters() as usize, 1),
        Params {
            model_tail: 256,
            ..params(model)
        },
    ] {
        let openings = params.batches() + 2;
        let opened: BTreeSet<usize> = (0..openings as u64)
            .flat_map(|oracle| row_positions(&params, oracle))
            .collect();
        // Positions may meet, but nothing relies on it.
        assert!(params.model_tail >= openings * params.queries + SPARE);
        assert!(params.model_tail < (openings + 1) * params.queries + SPARE);
        assert_hidden(&params, &opened, params.model_tail);
    }
}

/// Openings of one model as a whole: masks and all tails against the combined rows and all symbols.
struct Shown {
    params: Params,
    /// Random coefficients of the masks' tails.
    mask_tail: usize,
    /// How many openings there are, at distinct positions.
    openings: usize,
    /// Positions of each.
    positions: usize,
}

/// Random coefficients of one row, of neighbouring degrees.
struct Part {
    /// The first one's place in the list of all.
    start: usize,
    /// Its degree.
    degree: usize,
    len: usize,
    /// The opening that the row belongs to; none for a row of the model.
    opening: Option<usize>,
    /// With what it enters the two components of the combined row of each opening.
    weights: Vec<[F; 2]>,
}

impl Shown {
    const MODEL_ROWS: usize = 2;
    const TRACE_ROWS: usize = 3;

    /// Small, with the proportions of real parameters.
    fn honest(openings: usize) -> Self {
        let params = Params {
            log_row: 3,
            log_code: 6,
            model_tail: 16,
            trace_tail: 8,
            ..params(&sides()[0].model)
        };
        Self {
            mask_tail: params.model_tail,
            openings,
            positions: params.queries,
            params,
        }
    }

    fn parts(&self) -> Vec<Part> {
        let size = 1 << self.params.log_row;
        let mut dice = Dice::new("combined rows", 0);
        let mut parts: Vec<Part> = Vec::new();
        let mut push = |degree, len, opening, weights| {
            let start = parts.last().map_or(0, |last: &Part| last.start + last.len);
            parts.push(Part {
                start,
                degree,
                len,
                opening,
                weights,
            });
        };
        let mut random = |n: usize| -> Vec<[F; 2]> {
            let elements = dice.elements(n).into_iter();
            elements.map(|x| [x.c0, x.c1]).collect()
        };
        for _ in 0..Self::MODEL_ROWS {
            push(size, self.params.model_tail, None, random(self.openings));
        }
        for opening in 0..self.openings {
            for mask in [[F::ONE, F::ZERO], [F::ZERO, F::ONE]] {
                let weights = vec![mask; self.openings];
                push(0, size + self.mask_tail, Some(opening), weights);
            }
            for _ in 0..Self::TRACE_ROWS {
                let weights = random(self.openings);
                push(size, self.params.trace_tail, Some(opening), weights);
            }
        }
        parts
    }

    /// What is seen, as functionals over `F` of all random coefficients.
    fn seen(&self) -> Vec<Vec<F>> {
        let parts = self.parts();
        let end = parts.last().map_or(0, |last| last.start + last.len);
        let total = (1 << self.params.log_row) + self.params.model_tail;
        let all = self.openings * self.positions;
        let positions = Programmed::new(ORACLE).positions("p", all, self.params.log_code);
        let mut seen = Vec::new();
        for (opening, positions) in positions.chunks(self.positions).enumerate() {
            let own = || {
                let takes_part = |part: &&Part| part.opening.is_none_or(|n| n == opening);
                parts.iter().filter(takes_part)
            };
            for (degree, component) in (0..total).flat_map(|degree| [(degree, 0), (degree, 1)]) {
                let mut functional = vec![F::ZERO; end];
                for part in own() {
                    if (part.degree..part.degree + part.len).contains(&degree) {
                        let weight = part.weights[opening][component];
                        functional[part.start + degree - part.degree] = weight;
                    }
                }
                seen.push(functional);
            }
            for &position in positions {
                let x = row_point(&self.params, position);
                for part in own() {
                    let mut functional = vec![F::ZERO; end];
                    let coefficients = functional[part.start..][..part.len].iter_mut();
                    let powers = powers(x, part.degree + part.len).skip(part.degree);
                    coefficients.zip(powers).for_each(|(c, power)| *c = power);
                    seen.push(functional);
                }
            }
        }
        seen
    }

    /// Functionals that follow from others, beyond the two for each position with which the verifier checks the combined row.
    fn missing(&self) -> usize {
        let seen = self.seen();
        seen.len() - 2 * self.openings * self.positions - rank(seen)
    }
}

#[test]
fn combined_rows_and_all_symbols_reveal_nothing_together() {
    let openings = Shown::honest;
    let (model_tail, trace_tail) = (openings(1).params.model_tail, openings(1).params.trace_tail);
    let with = |openings, positions| Shown {
        positions,
        ..Shown::honest(openings)
    };
    // As many positions as there are random coefficients, and one more: of each opening for the rows of the trace, of
    // all openings together for the rows of the model.
    assert_eq!(openings(1).missing(), 0);
    assert_eq!(with(1, trace_tail).missing(), 0);
    assert_eq!(with(1, trace_tail + 1).missing(), Shown::TRACE_ROWS);
    assert_eq!(openings(4).positions * 4, model_tail);
    assert_eq!(openings(4).missing(), 0);
    assert_eq!(openings(5).missing(), 4 * Shown::MODEL_ROWS);
    // A mask that covers the data and the tails of the trace, but not all of the model's, by half or by one coefficient: what the
    // combined rows show of the model's tails is missing for the symbols.
    let short = |openings, mask_tail| Shown {
        mask_tail,
        ..Shown::honest(openings)
    };
    assert_ne!(short(3, trace_tail).missing(), 0);
    assert_ne!(short(4, model_tail - 1).missing(), 0);
    assert_eq!(openings(3).missing(), 0);
}

/// Two proofs that share everything but the pads differ by the difference of the pads, number by number: each pad is used
/// once, so the functionals of pads that are seen are the identity.
#[test]
fn every_pad_covers_one_value() {
    let [side, _] = sides();
    let (id, key) = committed(side, 0);
    let shared: Vec<Purpose> = Purpose::ALL
        .into_iter()
        .filter(|&purpose| purpose != Purpose::Pads)
        .collect();
    let of = |own: &[Purpose], n: u64| {
        let fixed = [&shared[..], own].concat();
        let mut hook = Programming {
            oracle: ORACLE,
            fixed: &fixed,
        };
        let batch = proof(side, &id, &key, n, &mut hook);
        sent_values(&listen(&id, &batch.proof, Box::new(Programmed::new(ORACLE))).1)
    };
    let known = of(&[Purpose::Pads], 0);
    let pads = uniform_pads(&Dice::new(Purpose::Pads.name(), 0).digest(), known.len());
    let values: Vec<K> = known
        .iter()
        .zip(&pads)
        .map(|(&sent, &pad)| sent - pad)
        .collect();
    // Values are the witness's: with other pads they are behind other pads.
    let others: BTreeSet<K> = (1..3)
        .flat_map(|n| {
            let sent = of(&[], n);
            assert_eq!(sent.len(), values.len());
            let pads = sent.iter().zip(&values).map(|(&sent, &value)| sent - value);
            pads.collect::<Vec<_>>()
        })
        .chain(pads.iter().copied())
        .collect();
    assert_eq!(others.len(), 3 * known.len(), "no pad occurs twice");
    assert!(!others.contains(&lift(F::ZERO)));
}
