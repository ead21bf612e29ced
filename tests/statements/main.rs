//! Statements that are not true, as an auditor meets them on the command line: a provider hands over id, proof, slip,
//! prompt and response, and lies about one of them.
//!
//! Every case exchanges one thing of an honest reply and says which exit code and which check that has to end in: 1 is a
//! verdict, 2 a file that cannot be used. Each is run for people and as JSON, and both have to say the same.

#[path = "../provider/mod.rs"]
mod provider;

mod batches;
mod cases;
mod ends;
mod ids;
mod notes;
mod slips;
mod texts;
mod world;

use std::collections::BTreeMap;

use cases::{Case, Cases};
use rayon::prelude::*;
use world::world;

/// Runs all cases of a kind of lie, and prints how many of them ended how.
#[track_caller]
fn all_end_as_they_should(cases: Cases<'_>) {
    let cases = cases.list;
    let failed: Vec<String> = cases.par_iter().filter_map(Case::run).collect();
    let mut counts: BTreeMap<(&str, i32), usize> = BTreeMap::new();
    for case in &cases {
        *counts.entry((case.kind, case.expect.code())).or_default() += 1;
    }
    for ((kind, code), n) in counts {
        let word = ["accepted", "rejected", "refused without a verdict"][code as usize];
        println!("{kind}: {n} {word} (exit code {code}), each as text and as JSON");
    }
    let n = failed.len();
    assert!(
        n == 0,
        "{n} of {} cases:\n{}",
        cases.len(),
        failed.join("\n")
    );
}

#[test]
fn honest_statements_are_accepted() {
    all_end_as_they_should(world::honest(world()));
}

#[test]
fn prompts_are_not_exchanged() {
    all_end_as_they_should(texts::prompts(world()));
}

#[test]
fn responses_are_not_exchanged() {
    all_end_as_they_should(texts::responses(world()));
}

#[test]
fn a_text_is_proved_in_the_tokens_that_were_decoded() {
    all_end_as_they_should(texts::tokenizations(world()));
}

#[test]
fn tokenizers_and_templates_are_not_exchanged() {
    all_end_as_they_should(ids::tokenizers(world()));
}

#[test]
fn ids_are_not_exchanged() {
    all_end_as_they_should(ids::others(world()));
}

#[test]
fn edited_ids_are_other_ids() {
    all_end_as_they_should(ids::edited(world()));
}

#[test]
fn slips_are_not_exchanged() {
    all_end_as_they_should(slips::cases(world()));
}

#[test]
fn batches_are_not_exchanged() {
    all_end_as_they_should(batches::others(world()));
}

#[test]
fn order_and_length_are_part_of_a_batch() {
    all_end_as_they_should(batches::order_and_length(world()));
}

#[test]
fn replies_end_as_they_are_said_to() {
    all_end_as_they_should(ends::cases(world()));
}

#[test]
fn certificates_and_notes_are_not_exchanged() {
    all_end_as_they_should(notes::certificates(world()));
}

#[test]
fn rotations_are_not_exchanged() {
    all_end_as_they_should(notes::rotations(world()));
}
