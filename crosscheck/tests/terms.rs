//! Every term of the calculator against the same bound in `p3-security`, the calculator of Plonky3.
//!
//! The two share no code, and the bounds there are arranged by other protocols. What is compared is, for each term, what
//! that crate charges for the same event with the same sizes: equal within [`TOLERANCE`], or more pessimistic here. Where it
//! is less, or where there is no counterpart, the reason stands in the table. A term that the table does not name fails.
//!
//! Only unique decoding is compared: it is the one regime that is used here, so bounds up to the Johnson radius have no
//! counterpart.

use std::collections::BTreeSet;

use p3_security::SecurityAssumption::UniqueDecoding;
use p3_security::fri::query_phase_error;
use p3_security::grinding::boost;
use p3_security::logup::{LogUpAir, fingerprint_error};
use p3_security::multilinear::{
    MultilinearAirParams, MultilinearLookupParams, column_batch_error, reduction_terms,
};
use p3_security::proximity::alpha_udr;
use p3_security::{ErrorBits, InstanceShape};
use zkmoe_commit::opening;
use zkmoe_commit::soundness::Term;
use zkmoe_commit::whir::{self, WhirParams};
use zkmoe_crosscheck::{Case, cases};
use zkmoe_verifier::engine::{SumcheckSize, soundness};
use zkmoe_verifier::gkr;
use zkmoe_verifier::relation::Label;

/// Bits. There the order of the field is 2^128; here it is smaller by a share of 2^-31.
const TOLERANCE: f64 = 1e-6;
const FIELD_BITS: usize = 128;

/// How a term compares.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Verdict {
    /// The same bits.
    Equal,
    /// Fewer bits here, and why.
    Pessimistic(&'static str),
    /// More bits here, at most so many, and why.
    Optimistic(f64, &'static str),
    /// Nothing there bounds this event, and what is done instead.
    NoCounterpart(&'static str),
}
use Verdict::{Equal, NoCounterpart, Optimistic, Pessimistic};

/// Every term, WHIR's without instance, round and variable.
const TERMS: [(&str, Verdict); 28] = [
    ("lookups: poles and keys", Equal),
    (
        "fingerprints",
        Pessimistic(
            "there a batch by powers has one root less than it has members, and here each side of a pair counts",
        ),
    ),
    (
        "blocks of requests",
        NoCounterpart(
            "there no statement is evaluated in clear; counted over all values in verifier/src/soundness/tests.rs",
        ),
    ),
    (
        "blocks of requests, joined",
        Pessimistic("a batch of n by powers has n - 1 roots; here n are counted"),
    ),
    ("constraints: points", Equal),
    ("products: sumchecks", Equal),
    ("products: batching", Equal),
    ("lookup tree, sumchecks", Equal),
    (
        "lookup tree, numerator and denominator joined by lambda",
        Optimistic(
            1.0,
            "there every layer draws one; here the children of the root are sent, so the first layer needs none",
        ),
    ),
    ("lookup tree, two children joined", Equal),
    (
        "opening: batching of claims",
        Pessimistic("a batch of n by powers has n - 1 roots; here n are counted"),
    ),
    ("opening: sumcheck over slots", Equal),
    ("opening: combination of rows by b", Equal),
    ("opening: combination by e", Equal),
    ("opening: value of the combined row", Equal),
    ("opening: queried positions", Equal),
    ("WHIR batching of claims", Equal),
    ("WHIR sumcheck", Equal),
    ("WHIR folding", Equal),
    ("WHIR queries", Equal),
    (
        "WHIR batching of queries",
        Optimistic(
            1.0,
            "there twice the number of roots is charged; here q claims join one by powers, which has q roots, and \
             commit/src/whir/tests/rates.rs finds exactly so many",
        ),
    ),
    ("pads: combination of rows", Equal),
    (
        "pads: positions where a row is no codeword",
        NoCounterpart(
            "there no two tests share their columns; counted over all values in commit/src/ligero/tests/rates.rs",
        ),
    ),
    ("pads: combination of linear statements", Equal),
    ("pads: combination of products", Equal),
    (
        "pads: queried positions",
        Optimistic(
            8.0,
            "there positions are drawn with repetition; here they are distinct, and commit/src/ligero/tests/rates.rs \
             finds exactly this share of all sets",
        ),
    ),
    ("rotation: points of the tensors", Equal),
    (
        "hashes: collisions",
        NoCounterpart(
            "there the resistance of the hash is an argument of the caller; 128 bits for 256 bits of output",
        ),
    ),
];

/// The name of a term without instance, round and variable of WHIR.
fn short(name: &str) -> String {
    let name = name
        .trim_start_matches("data part: ")
        .trim_start_matches("tail part: ");
    match name.split_once(", ") {
        Some((round, rest)) if round.starts_with("WHIR round") => {
            let rest = rest.rsplit(", ").next().unwrap_or(rest);
            format!("WHIR {rest}")
        }
        _ => name.into(),
    }
}

#[track_caller]
fn compare(place: &str, name: &str, ours: f64, theirs: f64) {
    let (_, verdict) = TERMS.iter().find(|(n, _)| *n == short(name)).unwrap();
    let difference = ours - theirs;
    let fits = match verdict {
        Equal => difference.abs() <= TOLERANCE,
        Pessimistic(_) => difference <= TOLERANCE,
        Optimistic(most, _) => (-TOLERANCE..=most + TOLERANCE).contains(&difference),
        NoCounterpart(_) => false,
    };
    assert!(
        fits,
        "{place}, {name}: {ours} bits, there {theirs}, expected {verdict:?}"
    );
}

/// A term of the sum of others, in bits.
fn one<'a>(terms: &'a [Term], name: &str) -> &'a Term {
    let mut found = terms.iter().filter(|t| t.name == name);
    match (found.next(), found.next()) {
        (Some(term), None) => term,
        _ => panic!("not one term `{name}`"),
    }
}

/// Bits of a batch by powers or of a sumcheck there: `terms` of a reduction with this label.
fn reduction(label: &str, constraints: usize, variables: usize, degree: usize) -> f64 {
    let air = MultilinearAirParams {
        num_instances: 1,
        max_num_constraints: constraints,
        num_variables: variables,
        constraint_degree: degree,
        lookup: None,
        skip: None,
        logup_star: None,
    };
    let terms = reduction_terms(&air, FIELD_BITS, FIELD_BITS);
    terms
        .iter()
        .find(|t| t.label == label)
        .map_or(f64::INFINITY, |t| t.bits.bits())
}

fn summed(bits: impl IntoIterator<Item = f64>) -> f64 {
    let errors: Vec<ErrorBits> = bits.into_iter().map(ErrorBits).collect();
    ErrorBits::sum(&errors).bits()
}

fn work(bits: f64, work: u32) -> f64 {
    boost(ErrorBits(bits), work as usize).bits()
}

#[test]
fn every_term_is_in_the_table_and_every_row_of_it_is_a_term() {
    let mut seen = BTreeSet::new();
    for case in cases() {
        for term in &case.terms {
            let name = short(&term.name);
            let known = TERMS.iter().any(|(n, _)| *n == name);
            assert!(
                known,
                "{}: `{}` is compared with nothing",
                case.name, term.name
            );
            seen.insert(name);
        }
    }
    for (name, verdict) in TERMS {
        assert!(seen.contains(name), "`{name}` is no term");
        let (Pessimistic(why) | NoCounterpart(why) | Optimistic(_, why)) = verdict else {
            continue;
        };
        assert!(why.len() > 20, "`{name}`: {verdict:?}");
    }
}

/// Terms of batches, from the relation and its sizes.
#[test]
fn terms_of_the_relation() {
    let batches = cases()
        .iter()
        .filter_map(|c| c.batch.as_ref().map(|batch| (c, batch)));
    for (case, (relation, dims)) in batches {
        let place = &case.name;
        let lookup = case.id.params.grinding.lookup;
        let ours = |name: &str| one(&case.terms, name).bits;
        let shape = InstanceShape {
            log_trace_length: 0,
            modulus_bits: FIELD_BITS,
            collision_resistance: 128,
            num_batched_functions: 1,
        };
        let shapes: Vec<_> = relation
            .lookups
            .iter()
            .map(|l| dims.shape(&l.out))
            .collect();
        let air = LogUpAir {
            num_interactions: shapes.iter().map(zkmoe_commit::shape::Shape::len).sum(),
            max_message_width: relation
                .lookups
                .iter()
                .map(|l| l.tuple.len())
                .max()
                .unwrap(),
        };
        let name = "lookups: poles and keys";
        let theirs = fingerprint_error(&air, &shape).bits();
        compare(place, name, ours(name), work(theirs, lookup));

        // Rows of experts alone, each with the row that it is claimed to equal.
        let loads = dims.batch().blocks.iter().map(|b| b.2);
        let each = reduction("constraint-batching", dims.size(Label::Hidden), 1, 1);
        let theirs = summed(loads.flat_map(|load| core::iter::repeat_n(each, load)));
        let name = "fingerprints";
        compare(place, name, ours(name), work(theirs, lookup));

        let requests = dims.size(Label::Request);
        let name = "blocks of requests, joined";
        compare(
            place,
            name,
            ours(name),
            reduction("constraint-batching", requests, 1, 1),
        );

        let variables =
            |labels: &[Label]| -> usize { labels.iter().map(|&l| dims.bits(l) as usize).sum() };
        let points = relation.constraints.iter().map(|c| variables(&c.out));
        let points = points
            .filter(|&n| n > 0)
            .map(|n| reduction("zerocheck", 1, n, 1));
        let name = "constraints: points";
        compare(place, name, ours(name), summed(points));

        compare_tree(place, &case.terms, &[gkr::layout(&shapes).variables()]);
    }
}

/// The three terms of trees of fractions, which are one term there.
#[track_caller]
fn compare_tree(place: &str, terms: &[Term], variables: &[usize]) {
    let names = [
        "lookup tree, sumchecks",
        "lookup tree, numerator and denominator joined by lambda",
        "lookup tree, two children joined",
    ];
    let their_tree = |&n: &usize| {
        let air = MultilinearAirParams {
            num_instances: 1,
            max_num_constraints: 1,
            num_variables: 1,
            constraint_degree: 1,
            lookup: Some(MultilinearLookupParams {
                num_variables: n,
                num_fractions: 1,
                max_message_width: 1,
            }),
            skip: None,
            logup_star: None,
        };
        let terms = reduction_terms(&air, FIELD_BITS, FIELD_BITS);
        terms
            .iter()
            .find(|t| t.label == "fractional-gkr")
            .unwrap()
            .bits
            .bits()
    };
    let numerator = |bits: f64| (FIELD_BITS as f64 - bits).exp2();
    let theirs: f64 = variables.iter().map(their_tree).map(numerator).sum();
    let ours: f64 = names
        .iter()
        .map(|name| numerator(one(terms, name).bits))
        .sum();
    // One challenge less for each tree, and nothing else.
    let missing = variables.len() as f64;
    assert!(
        ((ours + missing) / theirs - 1.0).abs() < 1e-6,
        "{place}: {ours}, there {theirs}"
    );
    let [rounds, lambda, children] = names.map(|name| one(terms, name).bits);
    let sum_of = |of: fn(usize) -> usize| variables.iter().map(|&n| of(n)).sum::<usize>();
    // Layer by layer: a sumcheck of degree three over as many variables as layers are above it.
    let layers = variables.iter().flat_map(|&n| 1..n);
    let their_rounds = layers.map(|v| reduction("constraint-sumcheck", 1, v, 2));
    compare(place, names[0], rounds, summed(their_rounds));
    compare(
        place,
        names[2],
        children,
        column_batch_error(1, sum_of(|n| n), FIELD_BITS).bits(),
    );
    compare(
        place,
        names[1],
        lambda,
        column_batch_error(1, sum_of(|n| n), FIELD_BITS).bits(),
    );
}

/// A certificate has several trees where the model is large.
#[test]
fn terms_of_trees() {
    for variables in [vec![2], vec![7, 7, 9], (20..40).collect(), vec![31]] {
        let place = format!("{variables:?}");
        compare_tree(&place, &gkr::soundness_of_parts(&variables), &variables);
    }
}

#[test]
fn terms_of_sumchecks() {
    for degree in 2..=4 {
        for rounds in [1, 3, 17, 40] {
            for products in [2, 5, 200] {
                for count in [1, 7, 300] {
                    let place =
                        format!("{count} times {products} products, {rounds} rounds of {degree}");
                    let size = SumcheckSize {
                        products,
                        rounds,
                        degree,
                    };
                    let ours = soundness(&vec![size; count]);
                    let times = |bits: f64| summed(vec![bits; count]);
                    // There the weight of equality raises the degree by one.
                    let theirs = reduction("constraint-sumcheck", 1, rounds, degree - 1);
                    let name = "products: sumchecks";
                    compare(&place, name, one(&ours, name).bits, times(theirs));
                    let theirs = reduction("constraint-batching", products, 1, 1);
                    let name = "products: batching";
                    compare(&place, name, one(&ours, name).bits, times(theirs));
                }
            }
        }
    }
}

/// Terms of the opening for the parameters of all cases, and for some that are weaker.
#[test]
fn terms_of_the_opening() {
    for case in cases() {
        for (rows, claims, queries) in [(1, 2, 1), (37, 150, 60), (1 << 20, 1 << 16, 200)] {
            let mut p = case.id.params.clone();
            p.queries = queries;
            let place = &format!(
                "{}, {rows} rows, {claims} claims, {queries} positions",
                case.name
            );
            let terms = opening::soundness(&p, rows, claims);
            let ours = |name: &str| one(&terms, name).bits;
            let inverse_rate = (p.log_code - p.log_row) as usize;
            let log_row = p.log_row as usize;

            let name = "opening: batching of claims";
            let theirs =
                UniqueDecoding.initial_claims_error(FIELD_BITS, log_row, inverse_rate, claims);
            compare(place, name, ours(name), theirs);

            let name = "opening: sumcheck over slots";
            compare(
                place,
                name,
                ours(name),
                reduction("constraint-sumcheck", 1, log_row, 1),
            );

            let gap =
                |words| UniqueDecoding.prox_gaps_error(log_row, inverse_rate, FIELD_BITS, words);
            let variables = rows.next_power_of_two().trailing_zeros() as usize;
            if variables > 0 {
                // A line of words for each variable.
                let name = "opening: combination of rows by b";
                let theirs = summed(vec![gap(2); variables]);
                compare(
                    place,
                    name,
                    ours(name),
                    work(theirs, p.grinding.combination),
                );
            }
            // A curve through three words.
            let name = "opening: combination by e";
            compare(
                place,
                name,
                ours(name),
                work(gap(3), p.grinding.combination),
            );

            let batch = UniqueDecoding.initial_claims_error(FIELD_BITS, log_row, inverse_rate, 3);
            let points = column_batch_error(1, variables, FIELD_BITS).bits();
            let name = "opening: value of the combined row";
            let theirs = work(summed([batch, points]), p.grinding.combination);
            compare(place, name, ours(name), theirs);

            // There coefficients beyond the trace come from openings, here from tails.
            let alpha = alpha_udr(log_row, inverse_rate, p.model_tail);
            let theirs = query_phase_error(alpha, queries, p.grinding.positions as usize).bits();
            let name = "opening: queried positions";
            compare(place, name, ours(name), theirs);
        }
    }
}

#[test]
fn terms_of_whir() {
    for log_size in [6, 11, 16, 22] {
        for log_inv_rate in 1..=4 {
            for security_bits in [100, 107, 120] {
                for claims in [2, 3, 140] {
                    let params = WhirParams::new(log_size, log_inv_rate, security_bits);
                    compare_whir(&params, claims);
                }
            }
        }
    }
}

/// One instance of WHIR, round by round. Work is read off the formula, since it is chosen for the target.
fn compare_whir(params: &WhirParams, claims: usize) {
    let place = format!("{params:?}, {claims} claims");
    let terms = whir::soundness(params, claims);
    let ground = |term: &Term| -> u32 {
        let (_, work) = term.formula.rsplit_once("2^").unwrap();
        work.parse().unwrap()
    };
    let check = |name: &str, theirs: f64| {
        let term = one(&terms, name);
        compare(&place, name, term.bits, work(theirs, ground(term)));
    };
    let (mut size, mut inverse_rate) = (params.log_size as usize, params.log_inv_rate as usize);
    let last = params.final_log_size as usize;
    if size <= last {
        assert!(terms.is_empty());
        return;
    }
    let first = UniqueDecoding.initial_claims_error(FIELD_BITS, size, inverse_rate, claims);
    check("WHIR batching of claims", first);
    let mut round = 0;
    while size > last {
        let folding = (params.folding as usize).min(size - last);
        for variable in 0..folding {
            size -= 1;
            let of = |what: &str| format!("WHIR round {round}, variable {variable}, {what}");
            let sumcheck = UniqueDecoding.fold_sumcheck_error(FIELD_BITS, size, inverse_rate);
            check(&of("sumcheck"), sumcheck);
            // The code after the fold.
            let gap = UniqueDecoding.prox_gaps_error(size, inverse_rate, FIELD_BITS, 2);
            check(&of("folding"), gap);
        }
        let name = format!("WHIR round {round}, queries");
        if let Some(term) = terms.iter().find(|t| t.name == name) {
            let (_, power) = term.formula.split_once(")^").unwrap();
            let queries: usize = power.split(' ').next().unwrap().parse().unwrap();
            check(&name, UniqueDecoding.queries_error(inverse_rate, queries));
            // As many as there are needed for what work leaves of the target.
            let target = (params.security_bits - params.grinding_bits) as usize;
            let needed = UniqueDecoding.queries(target, inverse_rate);
            assert!(
                (needed..=needed + 1).contains(&queries),
                "{place}: {queries}, there {needed}"
            );
        }
        if size > last {
            let name = format!("WHIR round {round}, batching of queries");
            let (queries, _) = one(&terms, &name).formula.split_once(' ').unwrap();
            let queries = queries.parse().unwrap();
            let theirs = UniqueDecoding.queries_combination_error(
                FIELD_BITS,
                size,
                inverse_rate,
                0,
                queries,
            );
            check(&name, theirs);
        }
        inverse_rate += folding - 1;
        round += 1;
    }
}

#[test]
fn terms_about_pads() {
    for case in cases() {
        let place = &case.name;
        let ours = |name: &str| one(&case.terms, name);
        let symbols = ours("pads: combination of rows");
        let (_, n) = symbols.formula.split_once("n = ").unwrap();
        let n: usize = n.parse().unwrap();
        let log_n = n.trailing_zeros() as usize;
        // An affine space has the bound of a line.
        let gap = UniqueDecoding.prox_gaps_error(0, log_n, FIELD_BITS, 2);
        compare(place, &symbols.name, symbols.bits, gap);
        let coefficient = column_batch_error(1, 1, FIELD_BITS).bits();
        for name in [
            "pads: combination of linear statements",
            "pads: combination of products",
        ] {
            compare(place, name, ours(name).bits, coefficient);
        }
        let wrong = ours("pads: positions where a row is no codeword");
        let (_, k) = wrong.formula.split_once("k = ").unwrap();
        let k: usize = k.parse().unwrap();
        let positions = ours("pads: queried positions");
        let (_, rest) = positions.formula.split_once("Q = ").unwrap();
        let (queries, rest) = rest.split_once(", ").unwrap();
        let (queries, bits): (usize, usize) = (
            queries.parse().unwrap(),
            rest.split(' ').next().unwrap().parse().unwrap(),
        );
        let agreeing = usize::midpoint(n, k).max(2 * k - 2);
        let theirs = query_phase_error(agreeing as f64 / n as f64, queries, bits).bits();
        compare(place, &positions.name, positions.bits, theirs);
    }
}

#[test]
fn terms_of_rotations() {
    let rotations = cases().iter().filter(|c| c.name.starts_with("rotation"));
    let rotations: Vec<&Case> = rotations.collect();
    assert_eq!(rotations.len(), 6);
    for case in rotations {
        let p = &case.id.params;
        let layout = zkmoe_verifier::id::model_layout(&case.id.header, p);
        let bits = (0..layout.tensors()).flat_map(|t| layout.shape(t).bits());
        let variables: u32 = bits.sum();
        let theirs = reduction("zerocheck", 1, variables as usize, 1);
        let name = "rotation: points of the tensors";
        let ours = one(&case.terms, name).bits;
        compare(&case.name, name, ours, work(theirs, p.grinding.lookup));
    }
}
