//! A dishonest prover: the honest one, with one thing falsified and everything that follows from it computed again.
//!
//! The falsified proof is complete and well formed, so what rejects it is the check that the lie runs into, and its
//! name is asserted. Which check that has to be is found without a proof, by [`common::oracle`]; so a lie that is
//! rejected by accident is noticed, and so is a cell that nothing binds.

#[path = "../common/mod.rs"]
mod common;
mod forgeries;
mod lies;
mod weights;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use ark_ff::{AdditiveGroup, Field};
use common::cells::{Cells, signed};
use common::oracle::{Oracle, failing_check};
use common::{Committed, Edit, Malice, Stage, answer, dishonest, fault, micro, trace_of};
use rayon::prelude::*;
use zkmoe_commit::field::{F, from_i64};
use zkmoe_prover::engine::Witness;
use zkmoe_prover::model::Model;
use zkmoe_prover::prove::Reply;
use zkmoe_prover::trace::{Loads, Trace};
use zkmoe_verifier::gadgets::argmax::key;
use zkmoe_verifier::olmoe;
use zkmoe_verifier::relation::{Dims, Fill, Relation};
use zkmoe_verifier::verify::{check_slip, verify_batch};

/// Loads are rounded up so far that every block has rows to spare for lies.
const LOAD_MULTIPLE: usize = 40;
const LOADS: Loads = Loads::Multiple(LOAD_MULTIPLE);
/// The check of all lookups.
const LOOKUPS: &str = "the fractions of a lookup sum to zero";

/// A model, replies to three requests of two lengths, and their honest witness.
struct Scene {
    by: Committed,
    replies: Vec<Reply>,
    trace: Trace,
    relation: Relation,
    dims: Dims,
    witness: Witness,
}

impl Scene {
    fn new(model: Model, prompts: &[(&[u32], u32)]) -> Self {
        let replies: Vec<Reply> = prompts.iter().map(|(p, n)| answer(&model, p, *n)).collect();
        let trace = trace_of(&model, &replies, LOADS);
        let by = Committed::quick(model);
        let mut hook = Malice::new(Stage::Trace, &|_| ());
        dishonest(&by, &replies, &trace, &mut hook);
        let (dims, witness) = hook.seen.unwrap();
        let relation = olmoe::relation(by.model.header());
        Self {
            by,
            replies,
            trace,
            relation,
            dims,
            witness,
        }
    }

    /// Proves with an edit; gives the hook, which saw the witness, and the check that rejects the proof.
    fn falsify<'a>(&self, stage: Stage, edit: &'a Edit<'a>) -> (Malice<'a>, Option<String>) {
        let mut hook = Malice::new(stage, edit);
        let batch = dishonest(&self.by, &self.replies, &self.trace, &mut hook);
        let check = fault(&self.by.id, &batch);
        (hook, check)
    }
}

fn scene() -> &'static Scene {
    static SCENE: OnceLock<Scene> = OnceLock::new();
    SCENE.get_or_init(|| {
        let long = [2, 4, 6, 8, 10, 12];
        Scene::new(
            micro(),
            &[(&[3, 5, 7], 3), (&[1, 2, 3, 4, 5], 2), (&long, 4)],
        )
    })
}

/// Whether the environment asks for every cell, which takes hours.
fn every_change() -> bool {
    std::env::var_os("ZKMOE_EVERY_CHANGE").is_some()
}

/// Changes of one cell: to both neighbours, by a whole digit, and by a fraction.
fn changes() -> [(&'static str, F); 4] {
    let half = from_i64(2).inverse().unwrap();
    [
        ("+ 1", from_i64(1)),
        ("- 1", from_i64(-1)),
        ("+ 2^16", from_i64(1 << 16)),
        ("+ 1/2", half),
    ]
}

/// Some cells of a tensor: both ends, the middle, and some that differ from tensor to tensor.
fn picked(len: usize, tensor: usize) -> BTreeSet<usize> {
    if every_change() {
        return (0..len).collect();
    }
    let spread = |n: usize| (tensor * 7919 + n * 104_729 + 13) % len;
    [0, len - 1, len / 2]
        .into_iter()
        .chain((0..6).map(spread))
        .collect()
}

/// The tensors that are also bound by the block of their request, whose evaluation is checked first. Nothing else binds
/// `next` where nothing is decoded: there the customer's slip says that it is the pad token.
fn is_bound_by_the_block(name: &str) -> bool {
    ["tok", "next", "dec", "cells"].contains(&name)
}

/// Why a cell may hold another value. Everything that is not listed here has exactly one.
fn freedom(cells: &Cells<'_>, name: &str, cell: usize, value: F) -> Option<&'static str> {
    let at = cells.indices(cells.tensor(name), cell);
    match name {
        "att.idx" if at[5] > at[4] => Some("a later position is not looked up and has no weight"),
        "theta" => {
            let (rl, sel) = (cells.slice("rl", &at), cells.slice("sel", &at));
            let theta = signed(value);
            let separates = rl.iter().zip(&sel).enumerate().all(|(e, (&rl, &sel))| {
                (key(rl, e, cells.dims.sizes.num_experts) >= theta) == (sel == 1)
            });
            separates.then_some("any threshold between the chosen keys and the rest will do")
        }
        "row.tok" if cells.get("row.real", &at) == 0 => {
            Some("a padding row has gate zero and is not dispatched; any token id will do")
        }
        "row.x" if cells.get("row.real", &at[..2]) == 0 => {
            Some("a padding row may hold any vector; here the products still round to zero")
        }
        "dr.id" if cells.get("dr.real", &at) == 0 => {
            Some("a padding row of the head takes no part in the gather")
        }
        _ => None,
    }
}

/// Judges every picked change of every tensor of a kind; gives what was accepted, with the reason.
struct Judgement {
    tried: usize,
    free: Vec<(String, usize, F, &'static str)>,
    bound: Vec<(String, usize, F, Option<String>)>,
}

fn judge(scene: &Scene, kind: impl Fn(&Fill) -> bool + Sync) -> Judgement {
    let oracle = Oracle::new(scene.by.model.header(), &scene.dims);
    let mut honest = scene.witness.clone();
    oracle.fill_second(&mut honest, None);
    assert_eq!(oracle.violations(&honest, None), []);
    let baseline = oracle.baseline(&honest);
    let tensors: Vec<usize> = (0..scene.relation.tensors.len())
        .filter(|&t| kind(&scene.relation.tensors[t].fill))
        .collect();
    let judged: Vec<_> = tensors
        .par_iter()
        .map(|&t| {
            let name = scene.relation.tensors[t].name.clone();
            let mut witness = honest.clone();
            let followers = oracle.followers(t);
            let changed = [&[t][..], &followers].concat();
            let mut judged = Vec::new();
            for cell in picked(witness.tensors[t][0].len(), t) {
                for (_, change) in changes() {
                    let before = witness.tensors[t][0][cell];
                    witness.tensors[t][0][cell] += change;
                    oracle.fill_digits(&mut witness, &followers);
                    oracle.fill_second(&mut witness, Some(&followers));
                    let violations = oracle.violations(&witness, Some((&baseline, &changed)));
                    let value = witness.tensors[t][0][cell];
                    witness.tensors[t][0][cell] = before;
                    judged.push((name.clone(), cell, value, failing_check(&violations)));
                }
                oracle.fill_digits(&mut witness, &followers);
                oracle.fill_second(&mut witness, Some(&followers));
            }
            judged
        })
        .flatten()
        .collect();
    let mut judgement = Judgement {
        tried: judged.len(),
        free: Vec::new(),
        bound: Vec::new(),
    };
    let mut unexplained = Vec::new();
    let cells = Cells {
        relation: &scene.relation,
        dims: &scene.dims,
        witness: &mut honest,
    };
    for (name, cell, value, check) in judged {
        if check.is_some() || is_bound_by_the_block(&name) {
            // The relation leaves this one cell to the block.
            let at = cells.indices(cells.tensor(&name), cell);
            assert!(check.is_some() || (name == "next" && cells.get("dec", &at) == 0));
            judgement.bound.push((name, cell, value, check));
        } else if let Some(reason) = freedom(&cells, &name, cell, value) {
            judgement.free.push((name, cell, value, reason));
        } else {
            let at = cells.indices(cells.tensor(&name), cell);
            unexplained.push(format!("{name}{at:?} may be {value}"));
        }
    }
    assert!(unexplained.is_empty(), "nothing binds: {unexplained:#?}");
    println!("{} changes judged", judgement.tried);
    judgement
}

/// A few of each tensor's changes, of other kinds and in other places from tensor to tensor.
fn sample<T: Clone>(by_tensor: &BTreeMap<String, Vec<T>>) -> Vec<(String, T)> {
    let count = if every_change() { 16 } else { 1 };
    let chosen = by_tensor
        .iter()
        .enumerate()
        .flat_map(|(n, (name, changes))| {
            let place = move |k: usize| (n * 5 + k * 37) % changes.len();
            (0..count.min(changes.len())).map(move |k| (name.clone(), changes[place(k)].clone()))
        });
    chosen.collect()
}

/// Proves some of the bound changes; the verifier has to fail where the oracle says.
fn refute(scene: &Scene, stage: Stage, judgement: &Judgement) -> usize {
    let mut by_tensor: BTreeMap<String, Vec<(usize, F, Option<String>)>> = BTreeMap::new();
    for (name, cell, value, check) in &judgement.bound {
        let changes = by_tensor.entry(name.clone()).or_default();
        changes.push((*cell, *value, check.clone()));
    }
    let chosen = sample(&by_tensor);
    let wrong: Vec<String> = chosen
        .par_iter()
        .filter_map(|(name, (cell, value, check))| {
            let edit = |cells: &mut Cells<'_>| {
                let tensor = cells.tensor(name);
                cells.witness.tensors[tensor][0][*cell] = *value;
            };
            let (_, found) = scene.falsify(stage, &edit);
            let expected = if is_bound_by_the_block(name) {
                "blocks of requests".to_owned()
            } else {
                check.clone().unwrap()
            };
            let named = found.as_ref().is_some_and(|f| f.starts_with(&expected));
            (!named).then(|| format!("{name} cell {cell}: {found:?} instead of `{expected}`"))
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    chosen.len()
}

#[test]
fn every_value_of_the_trace_is_bound() {
    let scene = scene();
    let judgement = judge(scene, |fill| *fill == Fill::Trace);
    let tensors: BTreeSet<&String> = judgement.bound.iter().map(|b| &b.0).collect();
    let proved = refute(scene, Stage::Trace, &judgement);
    println!(
        "values: {} tensors, {} changes, {} accepted with a reason, {proved} proved and rejected",
        tensors.len(),
        judgement.tried,
        judgement.free.len(),
    );
    let all = scene
        .relation
        .tensors
        .iter()
        .filter(|t| t.fill == Fill::Trace);
    assert_eq!(
        tensors.len(),
        all.count(),
        "some tensor is not bound at all"
    );
    // The freedoms are real: the same changes are accepted, and no slip notices.
    let mut shown = BTreeSet::new();
    let by = Committed::new(micro());
    for (name, cell, value, reason) in &judgement.free {
        if !shown.insert(name.clone()) {
            continue;
        }
        println!("{name}: {reason}");
        let edit = |cells: &mut Cells<'_>| {
            let tensor = cells.tensor(name);
            cells.witness.tensors[tensor][0][*cell] = *value;
        };
        let mut hook = Malice::new(Stage::Trace, &edit);
        let batch = dishonest(&by, &scene.replies, &scene.trace, &mut hook);
        let accepted = verify_batch(&by.id, &batch.proof).unwrap();
        for (slip, reply) in batch.slips.iter().zip(&scene.replies) {
            check_slip(&by.id, &accepted, slip, &reply.prompt).unwrap();
        }
    }
}

#[test]
fn every_digit_is_bound() {
    let scene = scene();
    let judgement = judge(scene, |fill| matches!(fill, Fill::Limb { .. }));
    assert!(judgement.free.is_empty());
    let proved = refute(scene, Stage::Digits, &judgement);
    println!(
        "digits: {} changes, {proved} proved and rejected",
        judgement.tried
    );
}

#[test]
fn every_multiplicity_is_bound() {
    let scene = scene();
    let mut edits = Vec::new();
    for (t, tensor) in scene.relation.tensors.iter().enumerate() {
        if matches!(tensor.fill, Fill::Multiplicity(_)) {
            let last = scene.witness.tensors[t][0].len() - 1;
            let changes = changes();
            edits.push((t, 0, changes[t % 4].1));
            edits.push((t, last, changes[(t + 1) % 4].1));
        }
    }
    edits.par_iter().for_each(|&(t, cell, change)| {
        let edit = |cells: &mut Cells<'_>| cells.witness.tensors[t][0][cell] += change;
        let (_, found) = scene.falsify(Stage::First, &edit);
        assert_eq!(
            found.as_deref(),
            Some(LOOKUPS),
            "{}",
            scene.relation.tensors[t].name
        );
    });
    println!("multiplicities: {} proved and rejected", edits.len());
}

/// An entry taken from one cell of a table of multiplicities and given to another.
#[test]
fn multiplicities_cannot_be_exchanged() {
    let scene = scene();
    for name in ["table Exp", "table Range(16)", "table Embedding"] {
        let t = scene.relation.tensor(name).unwrap();
        let counts = &scene.witness.tensors[t][0];
        let used = counts.iter().position(|&c| c != F::ZERO).unwrap();
        let other = counts.iter().position(|&c| c != counts[used]).unwrap();
        let edit = |cells: &mut Cells<'_>| cells.witness.tensors[t][0].swap(used, other);
        let (_, found) = scene.falsify(Stage::First, &edit);
        assert_eq!(found.as_deref(), Some(LOOKUPS), "{name}");
    }
}

/// An edit of the second round, and the check that it fails.
type SecondEdit<'a> = (&'static str, Box<Edit<'a>>);

#[test]
fn everything_in_the_second_round_is_bound() {
    let scene = scene();
    let last = scene.by.model.sizes().num_hidden_layers - 1;
    let one = from_i64(1);
    let ids = [(0, 1), (1, 2), (2, 9)];
    // On one side alone; on both sides of a lookup, so that it holds and the tie to the rows has to fail.
    let mut edits: Vec<SecondEdit<'_>> = Vec::new();
    for component in [0, 1] {
        for (name, index) in [
            ("fp.x0", vec![0, 1]),
            ("fp.emb", vec![3]),
            ("fp.n2", vec![1, last, 2]),
            ("fp.row", vec![0, 0]),
            ("row.weight", vec![0, 0]),
            ("row.weight", vec![1, LOAD_MULTIPLE - 1]),
        ] {
            let edit = move |cells: &mut Cells<'_>| cells.add(name, component, &index, one);
            edits.push((LOOKUPS, Box::new(edit)));
        }
        for (name, index) in [("fp.last", vec![0, 2]), ("fp.dr", vec![0])] {
            let edit = move |cells: &mut Cells<'_>| cells.add(name, component, &index, one);
            edits.push((LOOKUPS, Box::new(edit)));
        }
        // Where nothing is decoded or dispatched only the tie holds the fingerprint.
        for (name, check, index) in [
            ("fp.last", "constraint `fp.last", vec![0, 0]),
            (
                "fp.dr",
                "constraint `fp.dr",
                vec![scene.dims.batch.decoded - 1],
            ),
            ("fp.row", "constraint `fp.row", vec![0, LOAD_MULTIPLE - 1]),
            ("fp.emb", "constraint `fp.emb", vec![39]),
        ] {
            let edit = move |cells: &mut Cells<'_>| cells.add(name, component, &index, one);
            edits.push((check, Box::new(edit)));
        }
        for (request, position) in ids {
            edits.push((
                "constraint `fp.n2",
                Box::new(move |cells| {
                    let id = cells.token_id(request, position);
                    cells.add("fp.n2", component, &[request, last, position], one);
                    for (a, n) in cells.rows(last, id) {
                        cells.add("fp.row", component, &[a, n], one);
                    }
                }),
            ));
        }
        edits.push((
            "constraint `fp.x0",
            Box::new(move |cells| {
                let token = cells.get("tok", &[0, 1]);
                cells.add("fp.emb", component, &[token as usize], one);
                for r in 0..cells.dims.batch.lengths.len() {
                    for s in 0..cells.dims.batch.lengths[r] {
                        if cells.get("tok", &[r, s]) == token {
                            cells.add("fp.x0", component, &[r, s], one);
                        }
                    }
                }
            }),
        ));
        edits.push((
            "constraint `fp.last",
            Box::new(move |cells| {
                let m = cells.decoded_row(cells.token_id(1, 4)).unwrap();
                cells.add("fp.last", component, &[1, 4], one);
                cells.add("fp.dr", component, &[m], one);
            }),
        ));
    }
    edits.par_iter().enumerate().for_each(|(n, (check, edit))| {
        let (_, found) = scene.falsify(Stage::Second, edit);
        assert!(
            found.as_ref().is_some_and(|f| f.starts_with(check)),
            "{n}: {found:?}, not {check}"
        );
    });
    println!("second round: {} proved and rejected", edits.len());
}
