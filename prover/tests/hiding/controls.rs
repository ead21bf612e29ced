//! Each source of randomness is needed: with one of them the same in all proofs, the comparison fails, and where it does
//! is what the source hides.

use std::collections::BTreeSet;

use ark_ff::{AdditiveGroup, Field};
use rayon::prelude::*;
use zkmoe_commit::codec::Reader;
use zkmoe_commit::field::{F, K};
use zkmoe_commit::rows;
use zkmoe_prover::key::Key;
use zkmoe_prover::prove::Purpose;
use zkmoe_verifier::batch::read_proof_header;
use zkmoe_verifier::id::ModelId;

use crate::common::programmed::Programmed;
use crate::simulator::model_coefficients;
use crate::statistics::{Sample, rank};
use crate::view::{HIDDEN, Seen, all_words, elements, listen, view};
use crate::{NONCES, ORACLE, Programming, Side, committed, proof, sides};

/// Views of each control; what repeats shows in a few.
const VIEWS: u64 = 12;

/// What is seen if some sources are the same in all proofs; `key` says which commitment a proof is under.
fn views(fixed: &[Purpose], key: impl Fn(u64) -> (ModelId, Key) + Sync) -> Vec<Vec<Seen>> {
    let [side, _] = sides();
    (0..VIEWS)
        .into_par_iter()
        .map(|n| {
            let (id, key) = key(n);
            let mut hook = Programming {
                oracle: ORACLE,
                fixed,
            };
            let batch = proof(side, &id, &key, 10_000 + n, &mut hook);
            view(&id, &batch.proof, &batch.slips[0], ORACLE)
        })
        .collect()
}

fn fresh_key(n: u64) -> (ModelId, Key) {
    committed(side(), 10_000 + n)
}

fn one_key(_: u64) -> (ModelId, Key) {
    committed(side(), 10_000)
}

fn side() -> &'static Side {
    &sides()[0]
}

fn failing(views: &[Vec<Seen>]) -> BTreeSet<&'static str> {
    Sample::new(views, &NONCES).failing()
}

/// The messages that are not uniform if these sources are the same in all proofs.
fn without(fixed: &[Purpose]) -> BTreeSet<&'static str> {
    failing(&views(fixed, fresh_key))
}

#[test]
fn as_few_views_of_honest_proofs_are_uniform() {
    assert_eq!(without(&[]), [].into());
}

#[test]
fn without_pads_all_hidden_values_are_seen() {
    let mut hidden = BTreeSet::from(HIDDEN);
    // Both depend on fresh rows: the one on the mask, the other on the random cells.
    hidden.remove("opening: values of mask and proximity row");
    assert_eq!(without(&[Purpose::Pads]), hidden);
}

#[test]
fn without_the_mask_the_data_of_the_combined_row_is_seen() {
    let expected = [
        "opening: parts at the positions",
        "whir final polynomial",
        "whir leaves",
        "whir sumcheck",
    ];
    assert_eq!(without(&[Purpose::Mask]), expected.into());
}

#[test]
fn without_tails_the_symbols_of_the_trace_are_seen() {
    let expected = [
        "opening: siblings of round 2",
        "opening: symbols of round 1",
        "opening: symbols of round 2",
        "second root",
    ];
    assert_eq!(without(&[Purpose::Tails]), expected.into());
}

/// A hash covers the random cells as well, so it takes both to make it repeat; each shows in the customer's own slip alone.
#[test]
fn without_salt_and_cells_requests_are_seen() {
    let (salt, cells) = ("salt of the slip", "cells of the slip");
    let evaluations = "block evaluations";
    assert_eq!(without(&[Purpose::Salt]), [salt].into());
    assert_eq!(without(&[Purpose::Cells]), [cells, evaluations].into());
    let both = [salt, cells, evaluations, "hashes of requests"];
    assert_eq!(without(&[Purpose::Salt, Purpose::Cells]), both.into());
}

/// Pads are uniform, and so are the columns of their rows whatever these are made of; but not together with the values that
/// were sent behind the same pads.
#[test]
fn without_random_coefficients_of_pad_rows_functionals_of_hidden_values_are_seen() {
    let expected = ["columns of pads less those of sent values"];
    assert_eq!(without(&[Purpose::PadRows]), expected.into());
}

#[test]
fn without_masks_of_the_proof_about_pads_its_products_are_seen() {
    let expected = [
        "pads columns of products",
        "pads products",
        "pads root of products",
        "pads siblings of products",
    ];
    assert_eq!(without(&[Purpose::PadProof]), expected.into());
}

/// The model's tails are drawn once for each commitment. Many commitments to one model are uniform, and with one seed
/// they are one commitment.
#[test]
fn without_the_models_tails_its_symbols_are_seen() {
    assert_eq!(failing(&views(&[], one_key)), of_one_model().into());
}

fn of_one_model() -> [&'static str; 3] {
    [
        "opening: siblings of the model",
        "opening: symbols of the model",
        "root of the model",
    ]
}

/// The mask's tail covers the longest tails, those of the model. Below them are the fresh tails of the trace.
#[test]
fn without_the_masks_tail_the_top_of_the_combined_row_is_seen() {
    let views = views(&[Purpose::MaskTail], one_key);
    let mut expected = BTreeSet::from(of_one_model());
    expected.insert("whir polynomial");
    assert_eq!(failing(&views), expected);

    let (id, _) = one_key(0);
    let tails: Vec<Vec<K>> = views.iter().map(|view| combined_tail(view)).collect();
    for (one, other) in tails.iter().zip(&tails[1..]) {
        assert_eq!(one.len(), id.params.model_tail);
        for (i, (a, b)) in one.iter().zip(other).enumerate() {
            assert_eq!(a == b, i >= id.params.trace_tail, "coefficient {i}");
        }
    }
}

fn combined_tail(view: &[Seen]) -> Vec<K> {
    elements(&all_words(view, "whir polynomial"))
}

/// Linear equations about the mask's coefficient and those of the model's tails at one degree: the coefficients of the combined
/// row there, two equations of each proof.
fn equations(fixed: &[Purpose], degree: usize) -> (ModelId, Key, Vec<Vec<F>>) {
    const PROOFS: u64 = 6;
    let (id, key) = one_key(0);
    let equations = (0..PROOFS)
        .into_par_iter()
        .flat_map_iter(|n| {
            let oracle = 100 + n;
            let mut hook = Programming { oracle, fixed };
            let batch = proof(side(), &id, &key, 20_000 + n, &mut hook);
            let (_, seen) = listen(&id, &batch.proof, Box::new(Programmed::new(oracle)));
            let top = combined_tail(&seen)[degree];
            let mut reader = Reader::new(&batch.proof);
            let (_, header) = read_proof_header(&mut reader, &id.header).unwrap();
            let coefficients = model_coefficients(&id, &header, oracle);
            let rows = coefficients.iter().map(|&(row, _)| row);
            assert!(rows.eq(0..coefficients.len()), "all rows carry a claim");
            let equation = |mask: [u64; 2], part: fn(&K) -> F| -> Vec<F> {
                let mask = mask.map(F::from);
                let tails = coefficients.iter().map(|(_, c)| part(c));
                mask.into_iter().chain(tails).chain([part(&top)]).collect()
            };
            [equation([1, 0], |x| x.c0), equation([0, 1], |x| x.c1)]
        })
        .collect();
    (id, key, equations)
}

/// The attack that the mask's tail prevents: proofs of a few batches give the top half of all random coefficients of the model's
/// rows, whatever the tail that they share. Then twice as many opened columns show more than what is left hides.
#[test]
fn a_mask_whose_tail_repeats_gives_the_models_tails_away() {
    let degree = 20;
    let (id, key, equations) = self::equations(&[Purpose::MaskTail], degree);
    assert!(degree >= id.params.trace_tail);
    let unknowns = equations[0].len() - 1;
    let solution = solve(equations.clone()).expect("a single solution");
    assert_eq!(rank(equations), unknowns);
    for (row, &found) in solution[2..].iter().enumerate() {
        let tail = rows::tail(&key.seed(), row as u64, id.params.model_tail);
        assert_eq!(found, tail[degree], "row {row}");
    }

    // Of honest proofs the same equations contradict each other.
    let (_, _, equations) = self::equations(&[], degree);
    assert_eq!(rank(equations.clone()), unknowns + 1);
    assert_eq!(solve(equations), None);
}

/// The solution of linear equations, each a row of coefficients with the constant last; none if there is none or more than one.
fn solve(mut rows: Vec<Vec<F>>) -> Option<Vec<F>> {
    let unknowns = rows[0].len() - 1;
    for i in 0..unknowns {
        let pivot = (i..rows.len()).find(|&r| rows[r][i] != F::ZERO)?;
        rows.swap(i, pivot);
        let inverse = rows[i][i].inverse()?;
        let pivot: Vec<F> = rows[i].iter().map(|&x| x * inverse).collect();
        for (r, row) in rows.iter_mut().enumerate() {
            let c = row[i];
            if r != i {
                row.iter_mut().zip(&pivot).for_each(|(x, &p)| *x -= c * p);
            }
        }
        rows[i] = pivot;
    }
    let contradicts = rows[unknowns..].iter().any(|row| row[unknowns] != F::ZERO);
    (!contradicts).then(|| rows[..unknowns].iter().map(|row| row[unknowns]).collect())
}
