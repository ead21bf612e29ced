//! The sum of the terms, in which direction each of them moves, and the policy.

use super::*;
use crate::batch::{Block, BlockPoint};
use crate::few::{compare, few, numerator};
use crate::header::Sizes;
use crate::olmoe;
use crate::olmoe::tests::{header, odd_sizes};
use crate::relation::BatchShape;
use ark_ff::{AdditiveGroup, Field};
use std::collections::BTreeSet;
use zkmoe_commit::field::{F, K, ext};
use zkmoe_commit::params::Params;

/// Everything that the terms of a batch depend on.
#[derive(Clone)]
struct Inputs {
    id: ModelId,
    sizes: Sizes,
    batch: BatchShape,
    sumchecks: Vec<SumcheckSize>,
    rows: usize,
    claims: usize,
}

impl Inputs {
    fn new() -> Self {
        let sizes = Sizes {
            max_position_embeddings: 64,
            ..odd_sizes()
        };
        let batch = BatchShape {
            lengths: vec![9, 17],
            blocks: vec![(0, 1, 8), (1, 0, 16), (2, 3, 8)],
            decoded: 8,
        };
        let size = SumcheckSize {
            products: 3,
            rounds: 7,
            degree: 4,
        };
        Self {
            id: ModelId {
                header: header(sizes.clone()),
                params: Params::choose(1 << 20, 16),
                root: [0; 32],
                tokenizer: Vec::new(),
            },
            sizes,
            batch,
            sumchecks: vec![size; 4],
            rows: 300,
            claims: 900,
        }
    }

    fn terms(&self) -> Vec<Term> {
        let relation = olmoe::relation(&self.id.header);
        let Self {
            id,
            sizes,
            batch,
            sumchecks,
            rows,
            claims,
        } = self;
        let dims = Dims::new(sizes.clone(), batch.clone());
        terms(id, &relation, &dims, sumchecks, *rows, *claims)
    }
}

/// A change of the inputs.
type Change = fn(&mut Inputs);

/// Names of the terms that a change makes worse, and of those that it makes better.
type Moved = (&'static [&'static str], &'static [&'static str]);

/// What is changed, how, and which terms move. All others stay as they are.
const DIRECTIONS: [(&str, Change, Moved); 17] = [
    (
        "a longer request",
        |i| i.batch.lengths[1] = 40,
        (
            &[
                "blocks of requests",
                "constraints: points",
                "fingerprints",
                "lookup tree, numerator and denominator joined by lambda",
                "lookup tree, sumchecks",
                "lookup tree, two children joined",
                "lookups: poles and keys",
            ],
            &[],
        ),
    ),
    (
        "one request more",
        |i| i.batch.lengths.push(3),
        (
            &[
                "blocks of requests",
                "blocks of requests, joined",
                "constraints: points",
                "fingerprints",
                "lookup tree, numerator and denominator joined by lambda",
                "lookup tree, sumchecks",
                "lookup tree, two children joined",
                "lookups: poles and keys",
            ],
            &[],
        ),
    ),
    (
        "a busier expert",
        |i| i.batch.blocks[2].2 = 16,
        (&["fingerprints", "lookups: poles and keys"], &[]),
    ),
    (
        "wider rows of fingerprints",
        |i| i.sizes.hidden_size = 8,
        (&["fingerprints", "lookups: poles and keys"], &[]),
    ),
    (
        "a sumcheck more",
        |i| i.sumchecks.push(i.sumchecks[0]),
        (&["products: batching", "products: sumchecks"], &[]),
    ),
    (
        "one more product in a sumcheck",
        |i| i.sumchecks[0].products += 1,
        (&["products: batching"], &[]),
    ),
    (
        "one more round of a sumcheck",
        |i| i.sumchecks[0].rounds += 1,
        (&["products: sumchecks"], &[]),
    ),
    (
        "a higher degree",
        |i| i.sumchecks[0].degree += 1,
        (&["products: sumchecks"], &[]),
    ),
    (
        "more claims",
        |i| i.claims += 1,
        (&["opening: batching of claims"], &[]),
    ),
    (
        "twice the rows",
        |i| i.rows *= 2,
        (
            &[
                "opening: combination of rows by b",
                "opening: value of the combined row",
            ],
            &[],
        ),
    ),
    (
        "one more position",
        |i| i.id.params.queries += 1,
        (
            &[
                "data part: WHIR batching of claims",
                "tail part: WHIR batching of claims",
            ],
            &["opening: queried positions"],
        ),
    ),
    (
        "a longer tail of the model",
        |i| i.id.params.model_tail *= 2,
        (&["opening: queried positions"], &[]),
    ),
    (
        "a longer code",
        |i| i.id.params.log_code += 1,
        (
            &[
                "opening: combination by e",
                "opening: combination of rows by b",
            ],
            &["opening: queried positions"],
        ),
    ),
    (
        "longer rows",
        |i| i.id.params.log_row += 1,
        (
            &["opening: queried positions", "opening: sumcheck over slots"],
            &[],
        ),
    ),
    (
        "more work before lookups",
        |i| i.id.params.grinding.lookup += 1,
        (
            &[],
            &[
                "blocks of requests",
                "fingerprints",
                "lookups: poles and keys",
            ],
        ),
    ),
    (
        "more work before rows are combined",
        |i| i.id.params.grinding.combination += 1,
        (
            &[],
            &[
                "opening: combination by e",
                "opening: combination of rows by b",
                "opening: value of the combined row",
            ],
        ),
    ),
    (
        "more work before the positions",
        |i| i.id.params.grinding.positions += 1,
        (&[], &["opening: queried positions"]),
    ),
];

#[test]
fn every_term_moves_in_the_direction_that_its_formula_says() {
    let before = Inputs::new().terms();
    let mut moved = BTreeSet::new();
    for (what, change, (worse, better)) in DIRECTIONS {
        let mut inputs = Inputs::new();
        change(&mut inputs);
        let after = inputs.terms();
        let pairs = || before.iter().zip(&after);
        assert!(pairs().all(|(a, b)| a.name == b.name), "{what}");
        let names = |moves: fn(f64, f64) -> bool| -> BTreeSet<&str> {
            let found = pairs().filter(|(a, b)| moves(a.bits, b.bits));
            found.map(|(a, _)| a.name.as_str()).collect()
        };
        assert_eq!(
            names(|a, b| b < a),
            worse.iter().copied().collect(),
            "{what}: worse"
        );
        assert_eq!(
            names(|a, b| b > a),
            better.iter().copied().collect(),
            "{what}: better"
        );
        moved.extend(worse.iter().chain(better).copied());
        if better.is_empty() {
            assert!(total_bits(&after) < total_bits(&before), "{what}: the sum");
        }
    }
    // WHIR's parameters and the size of hashes are changed in tests of their own.
    let fixed = before
        .iter()
        .map(|t| t.name.as_str())
        .filter(|name| !moved.contains(name));
    for name in fixed {
        assert!(
            name.contains("WHIR round") || name == "hashes: collisions",
            "`{name}` never moves"
        );
    }
}

#[test]
fn work_counts_bit_by_bit() {
    let bits = |inputs: &Inputs, name: &str| {
        let terms = inputs.terms();
        terms.iter().find(|t| t.name == name).unwrap().bits
    };
    for (name, change) in [
        (
            "fingerprints",
            (|i| i.id.params.grinding.lookup += 1) as Change,
        ),
        ("opening: combination by e", |i| {
            i.id.params.grinding.combination += 1;
        }),
        ("opening: queried positions", |i| {
            i.id.params.grinding.positions += 1;
        }),
    ] {
        let mut inputs = Inputs::new();
        let before = bits(&inputs, name);
        change(&mut inputs);
        assert!((bits(&inputs, name) - before - 1.0).abs() < 1e-9, "{name}");
    }
}

fn term(bits: f64) -> Term {
    Term {
        name: "a term".into(),
        formula: String::new(),
        source: "",
        bits,
    }
}

#[test]
fn the_sum_is_minus_the_logarithm_of_the_sum_of_the_errors() {
    let terms = Inputs::new().terms();
    // Smallest first and in units of the policy, so that nothing is lost.
    let mut errors: Vec<f64> = terms
        .iter()
        .map(|t| (POLICY_BITS - t.bits).exp2())
        .collect();
    errors.sort_by(f64::total_cmp);
    let sum: f64 = errors.iter().sum();
    assert!((total_bits(&terms) - (POLICY_BITS - sum.log2())).abs() < 1e-9);
    assert!(terms.iter().all(|t| t.bits > total_bits(&terms)));
}

#[test]
fn the_policy_refuses_exactly_what_is_below_it() {
    assert_eq!(check(&[term(POLICY_BITS)]), Ok(()));
    assert!(check(&[term(POLICY_BITS.next_down())]).is_err());
    // The sum counts, not the worst term.
    let half = term(POLICY_BITS + 1.0);
    assert_eq!(check(&[half.clone(), half.clone()]), Ok(()));
    assert!(check(&[half.clone(), half.clone(), term(POLICY_BITS + 40.0)]).is_err());
    assert_eq!(check(&[term(f64::INFINITY), half.clone()]), Ok(()));
    // What is no number is no bound.
    for bits in [f64::NAN, f64::NEG_INFINITY, 0.0, -1.0] {
        assert!(check(&[half.clone(), term(bits)]).is_err(), "{bits}");
        assert!(check(&[term(bits), half.clone()]).is_err(), "{bits}");
    }
}

fn block(tok: u32, next: u32, cell: F, length: usize, at: usize) -> Block {
    let mut block = Block {
        salt: [0; 32],
        max_tokens: 1,
        tok: vec![0; length],
        next: vec![0; length],
        dec: vec![false; length],
        cells: [cell, F::ZERO, F::ZERO, F::ZERO],
    };
    (block.tok[at], block.next[at]) = (tok, next);
    block
}

/// Two blocks of one position whose difference is `6 - 7 c + c^3`, with the roots 1, 2 and -3, and two of eight positions
/// that differ in one token.
#[test]
fn different_blocks_evaluate_alike_as_rarely_as_the_term_says() {
    let point = |position: Vec<K>, fold: K| BlockPoint {
        position,
        fold,
        cells: K::ONE,
    };
    let (one, other) = (block(6, 0, F::ONE, 1, 0), block(0, 7, F::ZERO, 1, 0));
    let values = [few(15), few(16).into_iter().map(|x| -x).collect()].concat();
    let passing = values.iter().filter(|&&c| {
        let at = point(Vec::new(), c);
        one.evaluate(&at) == other.evaluate(&at)
    });
    assert_eq!(passing.count(), 3);

    let (one, other) = (block(5, 0, F::ZERO, 8, 6), block(4, 0, F::ZERO, 8, 6));
    let mut passing = 0;
    let q = 13;
    for x in few(q) {
        for y in few(q) {
            for z in few(q) {
                let at = point(vec![x, y, z], ext(F::ONE, F::from(9u64)));
                passing += u32::from(one.evaluate(&at) == other.evaluate(&at));
            }
        }
    }
    let rate = f64::from(passing) / (q as f64).powi(3);
    assert!((rate - (1.0 - (1.0 - 1.0 / q as f64).powi(3))).abs() < 1e-9);

    let mut inputs = Inputs::new();
    inputs.batch.lengths = vec![8];
    let work = inputs.id.params.grinding.lookup;
    let bound = numerator(&inputs.terms(), "blocks of requests", work);
    // The term adds up the degrees in the point, the fold and the last challenge.
    compare("blocks of requests", rate * q as f64 + 3.0, bound, 2.0);
}
