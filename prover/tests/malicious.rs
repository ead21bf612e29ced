//! A dishonest prover: the honest one, with one thing falsified and everything that follows from it computed again.
//!
//! The falsified proof is complete and well formed, so what rejects it is the check that the lie runs into, and its
//! name is asserted. Which check that has to be is found without a proof, by [`common::oracle`]; so a lie that is
//! rejected by accident is noticed, and so is a cell that nothing binds.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use ark_ff::{AdditiveGroup, Field};
use common::cells::Cells;
use common::oracle::{Oracle, failing_check};
use common::recompute::{Step, Token};
use common::{
    Committed, Edit, Malice, OtherWeights, Stage, answer, dishonest, edited, micro, micro_sizes,
    rejection, trace_of,
};
use rayon::prelude::*;
use zkmoe_commit::channel::Reject;
use zkmoe_commit::codec::{Reader, Writer};
use zkmoe_commit::field::{F, from_i64};
use zkmoe_prover::engine::Witness;
use zkmoe_prover::model::{Model, Tensor, WeightId, random_model};
use zkmoe_prover::prove::{BatchProof, NoHook, Reply, prove};
use zkmoe_prover::trace::Trace;
use zkmoe_verifier::batch::{BatchHeader, read_proof_header, write_proof_header};
use zkmoe_verifier::gadgets::argmax::key;
use zkmoe_verifier::gadgets::rms_norm::inverse_root;
use zkmoe_verifier::header::Sizes;
use zkmoe_verifier::olmoe;
use zkmoe_verifier::relation::{Dims, Fill, Relation};
use zkmoe_verifier::slip::Slip;
use zkmoe_verifier::verify::{Ended, VerifyError, check_slip, verify_batch};

/// Loads are rounded up so far that every block has rows to spare for lies.
const LOAD_MULTIPLE: usize = 40;
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
        let trace = trace_of(&model, &replies, LOAD_MULTIPLE);
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
        let check = rejection(&self.by.id, &batch.proof);
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
            let theta = common::cells::signed(value);
            let separates = rl
                .iter()
                .zip(&sel)
                .enumerate()
                .all(|(e, (&rl, &sel))| (key(rl, e, sel_len(cells)) >= theta) == (sel == 1));
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

fn sel_len(cells: &Cells<'_>) -> usize {
    cells.dims.sizes.num_experts
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
                "block of request".to_owned()
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

#[test]
fn everything_in_the_second_round_is_bound() {
    let scene = scene();
    let last = scene.by.model.sizes().num_hidden_layers - 1;
    let one = from_i64(1);
    let ids = [(0, 1), (1, 2), (2, 9)];
    // On one side alone; on both sides of a lookup, so that it holds and the tie to the rows has to fail.
    type SecondEdit<'a> = (&'static str, Box<Edit<'a>>);
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

/// The token of most lies: in a prompt, not decoded.
const TOKEN: (usize, usize) = (1, 2);
/// A token that decodes.
const DECODES: (usize, usize) = (2, 7);

type Lie = Box<dyn Fn(&mut Token<'_, '_, '_>) + Sync>;

fn lie(
    name: &'static str,
    checks: &'static [&'static str],
    tell: impl Fn(&mut Token<'_, '_, '_>) + Sync + 'static,
) -> (&'static str, &'static [&'static str], Lie) {
    (name, checks, Box::new(tell))
}

impl Token<'_, '_, '_> {
    fn add(&mut self, name: &str, rest: &[usize], value: i64) {
        let index = [&self.row()[..], rest].concat();
        self.cells.add(name, 0, &index, from_i64(value));
    }

    fn keys(&self) -> Vec<i64> {
        let rl = self.cells.slice("rl", &self.row());
        let key = |(e, &rl)| key(rl, e, rl_len(self));
        rl.iter().enumerate().map(key).collect()
    }

    /// Experts by falling key.
    fn ranked(&self) -> Vec<usize> {
        let keys = self.keys();
        let mut experts: Vec<usize> = (0..keys.len()).collect();
        experts.sort_by_key(|&e| -keys[e]);
        experts
    }

    /// Chooses other experts, with a threshold at the key of one.
    fn choose(&mut self, experts: &[usize], threshold: usize) {
        let (row, theta) = (self.row(), self.keys()[threshold]);
        let sel: Vec<i64> = (0..rl_len(self))
            .map(|e| i64::from(experts.contains(&e)))
            .collect();
        self.cells.set_slice("sel", &row, &sel);
        self.cells.set("theta", &row, theta);
        self.from(Step::Dispatch);
    }

    /// The first row that serves the token.
    fn served(&self) -> (usize, usize) {
        self.cells.rows(self.layer(), self.id())[0]
    }

    /// Another normalisation of the sum of squares: `u` and `r` as they are given.
    fn normalise(&mut self, z: u32, change: i64) {
        let row = self.row();
        let (factor, epsilon, _) = self.model.header().scales.norms()[0];
        let xm = self.cells.slice("xm", &row);
        let squares: i64 = xm.iter().map(|x| x * x).sum();
        let ss = factor as i64 * squares + epsilon as i64;
        let u = (ss >> (2 * z)) + change;
        let m = ((1u64 << 50) / u as u64).isqrt() as i64;
        for (name, value) in [
            ("n2.z", i64::from(z)),
            ("n2.w4", 1 << (2 * z)),
            ("n2.w2", 1 << (20 - z)),
            ("n2.u", u),
            ("n2.r", ss - (u << (2 * z))),
            ("n2.m", m),
            ("n2.f", m << (20 - z)),
        ] {
            self.cells.set(name, &row, value);
        }
        self.from(Step::NormOutput);
    }

    fn exponent(&self) -> u32 {
        self.cells.get("n2.z", &self.row()) as u32
    }

    /// The inverse root of the second norm, off by some units.
    fn root(&mut self, change: i64) {
        let row = self.row();
        let m = self.cells.get("n2.m", &row) + change;
        let w2 = self.cells.get("n2.w2", &row);
        self.cells.set("n2.m", &row, m);
        self.cells.set("n2.f", &row, m * w2);
        self.from(Step::NormOutput);
    }

    /// The router's weights with all distances to the maximum, and the maximum, larger by one.
    fn raise_maximum(&mut self) {
        let row = self.row();
        let table = self.model.header().exp_table.clone();
        let idx: Vec<i64> = self
            .cells
            .slice("rt.idx", &row)
            .iter()
            .map(|i| i + 1)
            .collect();
        let e: Vec<u16> = idx.iter().map(|&i| table[i as usize]).collect();
        self.cells.set_slice("rt.idx", &row, &idx);
        self.cells.set_slice("rt.e", &row, &e);
        self.cells
            .set("rt.sum", &row, e.iter().map(|&e| i64::from(e)).sum());
        self.add("rt.max", &[], 1);
    }

    /// One value of the first served row, off by one, and what follows from it in the expert.
    fn expert_value(&mut self, name: &str) {
        let (a, n) = self.served();
        let header = self.model.header();
        let scales = header.scales.clone();
        let table = header.silu_table.clone();
        let (layer, expert, _) = self.cells.dims.batch.blocks[a];
        let outer = layer * header.sizes.num_experts + expert;
        let add = |cells: &mut Cells<'_>, name: &str| cells.add(name, 0, &[a, n, 0], from_i64(1));
        add(self.cells, name);
        let read = |cells: &Cells<'_>, name: &str| cells.slice(name, &[a, n]);
        if name == "eg" {
            let ea: Vec<i16> = read(self.cells, "eg")
                .iter()
                .map(|&g| table[(g + (1 << 15)) as usize])
                .collect();
            self.cells.set_slice("ea", &[a, n], &ea);
        }
        let requant = zkmoe_verifier::gadgets::requant::requant;
        if ["eg", "ea", "eu"].contains(&name) {
            let eh: Vec<i64> = read(self.cells, "ea")
                .iter()
                .zip(read(self.cells, "eu"))
                .map(|(a, u)| requant(a * u, scales.product_shift))
                .collect();
            self.cells.set_slice("eh", &[a, n], &eh);
        }
        if name != "ey" {
            let eh = read(self.cells, "eh");
            let ey: Vec<i64> = (0..header.sizes.hidden_size)
                .map(|o| {
                    let product =
                        |(i, x): (usize, &i64)| x * self.model.committed(WeightId::Wd, outer, i, o);
                    requant(eh.iter().enumerate().map(product).sum(), scales.down_shift)
                })
                .collect();
            self.cells.set_slice("ey", &[a, n], &ey);
        }
        self.from(Step::Combine);
    }
}

fn rl_len(token: &Token<'_, '_, '_>) -> usize {
    token.model.sizes().num_experts
}

fn lies_about_attention() -> Vec<(&'static str, &'static [&'static str], Lie)> {
    vec![
        lie(
            "a token sees the next one",
            &["att: no weight on later", "att: no maximum at later"],
            |t| {
                t.attention(t.position + 2);
                t.from(Step::Mix);
            },
        ),
        lie(
            "a token does not see itself",
            &["att: exponential", "att: score"],
            |t| {
                t.attention(t.position);
                t.from(Step::Mix);
            },
        ),
        lie(
            "a query is rotated as at the next position",
            &["qr: half 0", "qr: half 1"],
            |t| {
                let [r, l, s] = t.row();
                let header = t.model.header();
                let (planes, shift) = (header.sizes.head_dim / 2, header.scales.rope_shift);
                let (cos, sin) = (&header.cos_table, &header.sin_table);
                let heads = header.sizes.num_key_value_heads * header.sizes.query_group;
                let y = t.cells.slice("qn.y", &[r, l, s]);
                let gain = |n: usize| t.model.committed(WeightId::Gq, l, 0, n);
                let mut qr = vec![0; y.len()];
                for head in 0..heads {
                    for j in 0..planes {
                        let (low, high) = (head * 2 * planes + j, (head * 2 + 1) * planes + j);
                        let at = (s + 1) * planes + j;
                        let (c, d) = (i64::from(cos[at]), i64::from(sin[at]));
                        let (p, q) = (y[low] * gain(low), y[high] * gain(high));
                        let requant = zkmoe_verifier::gadgets::requant::requant;
                        qr[low] = requant(p * c - q * d, shift);
                        qr[high] = requant(q * c + p * d, shift);
                    }
                }
                t.cells.set_slice("qr", &[r, l, s], &qr);
                t.from(Step::Attention);
            },
        ),
        lie(
            "an attention output is off by one",
            &["att.out: rest"],
            |t| {
                t.add("att.out", &[0, 1, 0, 1], 1);
                t.from(Step::Residual);
            },
        ),
        lie("a residual is off by one", &["xm: remainder"], |t| {
            t.add("xm", &[3], -1);
            t.from(Step::Norm);
        }),
    ]
}

fn lies_about_norms() -> Vec<(&'static str, &'static [&'static str], Lie)> {
    vec![
        lie(
            "an inverse root is too small",
            &["n2: m is not too small"],
            |t| t.root(-1),
        ),
        lie(
            "an inverse root is too large",
            &["n2: m is not too large"],
            |t| t.root(1),
        ),
        lie(
            "a mantissa is normalised too far",
            &["n2: u from below", "n2: m"],
            |t| {
                t.normalise(t.exponent() + 1, 0);
            },
        ),
        lie(
            "a mantissa is not normalised",
            &["n2: u from above", "n2: u from below", "n2: m"],
            |t| {
                t.normalise(t.exponent() - 1, 0);
            },
        ),
        lie("a mantissa is rounded up", &["n2: r from below"], |t| {
            t.normalise(t.exponent(), 1)
        }),
        lie(
            "a mantissa is rounded down twice",
            &["n2: r from above"],
            |t| {
                t.normalise(t.exponent(), -1);
            },
        ),
        lie(
            "a norm's output is off by one",
            &["n2: output: remainder"],
            |t| {
                t.add("n2.y", &[5], 1);
                t.from(Step::Logits);
            },
        ),
    ]
}

fn lies_about_the_router() -> Vec<(&'static str, &'static [&'static str], Lie)> {
    vec![
        lie(
            "an expert that was not chosen",
            &["router: chosen before the rest"],
            |t| {
                let ranked = t.ranked();
                t.choose(&[ranked[0], ranked[2]], ranked[1]);
            },
        ),
        lie(
            "the same with a lower threshold",
            &["router: chosen before the rest"],
            |t| {
                let ranked = t.ranked();
                t.choose(&[ranked[0], ranked[2]], ranked[2]);
            },
        ),
        lie("one expert too few", &["router: number of experts"], |t| {
            let ranked = t.ranked();
            t.choose(&[ranked[0]], ranked[0]);
        }),
        lie("one expert too many", &["router: number of experts"], |t| {
            let ranked = t.ranked();
            t.choose(&[ranked[0], ranked[1], ranked[2]], ranked[2]);
        }),
        lie("one expert twice", &["sel is boolean"], |t| {
            let ranked = t.ranked();
            t.choose(&[ranked[0]], ranked[0]);
            let (a, _) = t.served();
            let n = t.cells.free_row(a).unwrap();
            let (row, id) = (t.row(), t.id());
            let x = t.cells.slice("n2.y", &row);
            let gate = t.cells.slice("gate", &row)[ranked[0]];
            t.serve(a, n, Some((id, gate)), &x);
            t.add("sel", &[ranked[0]], 1);
            t.from(Step::Combine);
        }),
        lie("a router logit is off by one", &["rl: remainder"], |t| {
            t.add("rl", &[2], 1);
            t.from(Step::Choice);
        }),
        lie(
            "all router logits are off by a fraction",
            &["rl: output", "rl: remainder", "rt: score"],
            |t| {
                let half = from_i64(2).inverse().unwrap();
                let (row, experts) = (t.row(), rl_len(t));
                for e in 0..experts {
                    t.cells.add("rl", 0, &[&row[..], &[e]].concat(), half);
                }
                t.cells
                    .add("theta", 0, &row, half * from_i64(experts as i64));
            },
        ),
        lie(
            "a maximum that is too large by one",
            &["rt: the maximum is attained"],
            |t| {
                t.raise_maximum();
                t.from(Step::Gate);
            },
        ),
        lie(
            "a maximum that nothing attains",
            &["rt: one maximum is marked"],
            |t| {
                t.raise_maximum();
                let (row, experts) = (t.row(), rl_len(t));
                t.cells.set_slice("rt.z", &row, &vec![0; experts]);
                t.from(Step::Gate);
            },
        ),
        lie(
            "a distance that is cut before the table's end",
            &["rt: excess only past"],
            |t| {
                let last = *t.ranked().last().unwrap();
                let row = [&t.row()[..], &[last]].concat();
                let idx = t.cells.get("rt.idx", &row) - 1;
                let e = i64::from(t.model.header().exp_table[idx as usize]);
                t.add("rt.sum", &[], e - t.cells.get("rt.e", &row));
                t.cells.set("rt.idx", &row, idx);
                t.cells.set("rt.ex", &row, 1);
                t.cells.set("rt.e", &row, e);
                t.from(Step::Gate);
            },
        ),
        lie(
            "an exponential of the next entry",
            &["rt: exponential"],
            |t| {
                let second = t.ranked()[1];
                t.add("rt.e", &[second], 1);
                t.add("rt.sum", &[], 1);
                t.from(Step::Gate);
            },
        ),
        lie("a sum of exponentials off by one", &["rt: sum"], |t| {
            t.add("rt.sum", &[], 1);
            t.from(Step::Gate);
        }),
        lie("a gate off by one", &["gate: rest"], |t| {
            let first = t.ranked()[0];
            t.add("gate", &[first], -1);
            t.from(Step::Dispatch);
        }),
        lie("a gate off by one for a row alone", &["Dispatch"], |t| {
            let (a, n) = t.served();
            t.cells.add("row.gate", 0, &[a, n], from_i64(1));
            t.from(Step::Combine);
        }),
    ]
}

fn lies_about_rows() -> Vec<(&'static str, &'static [&'static str], Lie)> {
    vec![
        lie("a row is dispatched twice", &["Dispatch"], |t| {
            let (a, n) = t.served();
            let (gate, x) = (
                t.cells.get("row.gate", &[a, n]),
                t.cells.slice("row.x", &[a, n]),
            );
            let (id, free) = (t.id(), t.cells.free_row(a).unwrap());
            t.serve(a, free, Some((id, gate)), &x);
            t.from(Step::Combine);
        }),
        lie("a row is split in two", &["Dispatch"], |t| {
            let (a, n) = t.served();
            let (gate, x) = (
                t.cells.get("row.gate", &[a, n]),
                t.cells.slice("row.x", &[a, n]),
            );
            let (id, free) = (t.id(), t.cells.free_row(a).unwrap());
            t.serve(a, n, Some((id, gate / 2)), &x);
            t.serve(a, free, Some((id, gate - gate / 2)), &x);
            t.from(Step::Combine);
        }),
        lie("a row is dropped", &["Dispatch"], |t| {
            let (a, n) = t.served();
            let x = t.cells.slice("row.x", &[a, n]);
            t.serve(a, n, None, &x);
            t.from(Step::Combine);
        }),
        lie(
            "a padding row adds to the token",
            &["row.gate: no gate on padding"],
            |t| {
                let (a, n) = t.served();
                let (gate, x) = (
                    t.cells.get("row.gate", &[a, n]),
                    t.cells.slice("row.x", &[a, n]),
                );
                let (id, free) = (t.id(), t.cells.free_row(a).unwrap());
                t.serve(a, free, Some((id, gate)), &x);
                t.cells.set("row.real", &[a, free], 0);
                t.from(Step::Combine);
            },
        ),
        lie("a row is given to another request", &["Dispatch"], |t| {
            let (a, n) = t.served();
            let (request, position) = (0, 1);
            let id = t.cells.token_id(request, position);
            t.cells.set("row.tok", &[a, n], id);
            t.from(Step::Combine);
            let (mine, place) = (t.request, t.position);
            (t.request, t.position) = (request, position);
            t.step(Step::Combine);
            (t.request, t.position) = (mine, place);
        }),
        lie("a row is moved to another expert", &["Dispatch"], |t| {
            let (a, n) = t.served();
            let (gate, x) = (
                t.cells.get("row.gate", &[a, n]),
                t.cells.slice("row.x", &[a, n]),
            );
            let layer = t.layer();
            let used: Vec<usize> = t.cells.rows(layer, t.id()).iter().map(|r| r.0).collect();
            let blocks = t.cells.dims.batch.blocks.iter().enumerate();
            let other = blocks
                .filter(|(b, block)| block.0 == layer && !used.contains(b))
                .map(|(b, _)| b)
                .next()
                .unwrap();
            let (id, free) = (t.id(), t.cells.free_row(other).unwrap());
            t.serve(a, n, None, &x);
            t.serve(other, free, Some((id, gate)), &x);
            t.from(Step::Combine);
        }),
        lie("a row of another layer's block", &["Dispatch"], |t| {
            let (a, n) = t.served();
            let x = t.cells.slice("row.x", &[a, n]);
            let (id, free) = (t.id(), t.cells.free_row(0).unwrap());
            t.serve(a, n, None, &x);
            // With the gate zero, so that the sum of that layer stays what it was.
            t.serve(0, free, Some((id, 0)), &x);
            t.from(Step::Combine);
        }),
        lie("a row holds another token's vector", &["Dispatch"], |t| {
            let (a, n) = t.served();
            let x = t.cells.slice("n2.y", &[0, t.layer(), 0]);
            t.cells.set_slice("row.x", &[a, n], &x);
            t.expert(a, n);
            t.from(Step::Combine);
        }),
        lie("a gate projection is off by one", &["eg: remainder"], |t| {
            t.expert_value("eg")
        }),
        lie("an activation is off by one", &["ea: activation"], |t| {
            t.expert_value("ea")
        }),
        lie("an up projection is off by one", &["eu: remainder"], |t| {
            t.expert_value("eu")
        }),
        lie("a gated value is off by one", &["eh: remainder"], |t| {
            t.expert_value("eh")
        }),
        lie(
            "an expert's output is off by one",
            &["ey: remainder"],
            |t| t.expert_value("ey"),
        ),
        lie("an expert's output is made up", &["ey: remainder"], |t| {
            let (a, n) = t.served();
            let width = t.model.sizes().hidden_size as i64;
            let ey: Vec<i64> = (0..width).map(|i| 1000 * i - 3).collect();
            t.cells.set_slice("ey", &[a, n], &ey);
            t.from(Step::Combine);
        }),
        lie(
            "a combined sum is rounded the other way",
            &["combine: remainder"],
            |t| {
                let [r, l, s] = t.row();
                t.cells.add("x", 0, &[r, l + 1, s, 4], from_i64(1));
                t.add("comb.rem", &[4], -(1 << 14));
            },
        ),
    ]
}

fn lies_about_decoding() -> Vec<(&'static str, &'static [&'static str], Lie)> {
    let row = |t: &Token<'_, '_, '_>| t.cells.decoded_row(t.id()).unwrap();
    let padding = |t: &Token<'_, '_, '_>| t.cells.dims.batch.decoded - 1;
    vec![
        lie("a decoded position is left out", &["Gather"], move |t| {
            let m = row(t);
            t.cells.set("dr.real", &[m], 0);
        }),
        lie(
            "a decoded position is gathered twice",
            &["Gather"],
            move |t| {
                let (m, free, id) = (row(t), padding(t), t.id());
                assert_eq!(t.cells.get("dr.real", &[free]), 0);
                for name in ["dr.x", "nf.y", "lg", "lg.z"] {
                    let values = t.cells.slice(name, &[m]);
                    t.cells.set_slice(name, &[free], &values);
                }
                for name in ["z", "w4", "w2", "u", "r", "m", "f"].map(|n| format!("nf.{n}")) {
                    let value = t.cells.get(&name, &[m]);
                    t.cells.set(&name, &[free], value);
                }
                for name in ["am", "mk"] {
                    let value = t.cells.get(name, &[m]);
                    t.cells.set(name, &[free], value);
                }
                t.cells.set("dr.id", &[free], id);
                t.cells.set("dr.real", &[free], 1);
            },
        ),
        lie(
            "a decoded row belongs to another position",
            &["Gather"],
            move |t| {
                let (m, other) = (row(t), t.cells.token_id(0, 0));
                t.cells.set("dr.id", &[m], other);
            },
        ),
        lie(
            "another position is decoded in place of this",
            &["Gather"],
            move |t| {
                let m = row(t);
                let (request, position) = (t.request, t.position);
                let last = t.layer() + 1;
                let own = t.cells.slice("x", &[request, last, position]);
                let other = t.cells.slice("x", &[request, last, position - 3]);
                t.cells.set_slice("x", &[request, last, position], &other);
                t.from(Step::FinalNorm);
                t.cells.set_slice("x", &[request, last, position], &own);
                assert_eq!(t.cells.slice("dr.x", &[m]), other);
            },
        ),
        lie(
            "the last inverse root is too small",
            &["nf: m is not too small"],
            move |t| {
                let m = row(t);
                let root = t.cells.get("nf.m", &[m]) - 1;
                let f = root * t.cells.get("nf.w2", &[m]);
                t.cells.set("nf.m", &[m], root);
                t.cells.set("nf.f", &[m], f);
                let shift = t.model.header().scales.norm_shift;
                let output = |x: &i64| zkmoe_verifier::gadgets::requant::requant(x * f, shift);
                let y: Vec<i64> = t.cells.slice("dr.x", &[m]).iter().map(output).collect();
                t.cells.set_slice("nf.y", &[m], &y);
                t.from(Step::Head);
            },
        ),
        lie("a logit is off by one", &["lg: remainder"], move |t| {
            let m = row(t);
            let best = t.cells.get("am", &[m]) as usize;
            t.cells.add("lg", 0, &[m, best], from_i64(1));
            t.from(Step::Argmax);
        }),
        lie(
            "all logits are off by a fraction",
            &["lg: output", "lg: remainder"],
            move |t| {
                let half = from_i64(2).inverse().unwrap();
                let (m, vocab) = (row(t), t.model.sizes().vocab_size);
                for v in 0..vocab {
                    t.cells.add("lg", 0, &[m, v], half);
                }
                t.cells.add("mk", 0, &[m], half * from_i64(vocab as i64));
            },
        ),
        lie(
            "a maximum of the keys that is too large",
            &["argmax: the maximum is attained"],
            move |t| {
                let m = row(t);
                t.cells.add("mk", 0, &[m], from_i64(1));
            },
        ),
        lie(
            "two tokens are marked",
            &["argmax: one maximum is marked", "argmax:"],
            move |t| {
                let m = row(t);
                let other = usize::from(t.cells.get("am", &[m]) == 0);
                t.cells.set("lg.z", &[m, other], 1);
            },
        ),
    ]
}

/// Proves a lie; the oracle must find what the lie was said to violate and nothing else, and the verifier must fail
/// there.
fn expose(scene: &Scene, name: &str, checks: &[&str], edit: &Edit<'_>) {
    let (hook, found) = scene.falsify(Stage::Trace, edit);
    let violations = hook.violations(&scene.by.model);
    let first = violations.iter().any(|v| v.name().starts_with(checks[0]));
    let only = violations
        .iter()
        .all(|v| checks.iter().any(|check| v.name().starts_with(check)));
    assert!(first && only, "{name}: {violations:?}, expected {checks:?}");
    assert_eq!(found, failing_check(&violations), "{name}: {violations:?}");
}

#[test]
fn an_honest_token_is_computed_as_in_the_trace() {
    let scene = scene();
    let mut witness = scene.witness.clone();
    let model = &scene.by.model;
    for (request, &length) in scene.dims.batch.lengths.iter().enumerate() {
        for position in 0..length {
            let cells = &mut Cells {
                relation: &scene.relation,
                dims: &scene.dims,
                witness: &mut witness,
            };
            let mut token = Token {
                model,
                cells,
                request,
                position,
            };
            token.from(Step::Attention);
        }
    }
    assert!(witness.tensors == scene.witness.tensors);
    assert_eq!(scene.falsify(Stage::Trace, &|_| ()).0.violations(model), []);
}

#[test]
fn consistent_lies_are_caught_by_name() {
    let scene = scene();
    let mut lies = lies_about_attention();
    lies.extend(lies_about_norms());
    lies.extend(lies_about_the_router());
    lies.extend(lies_about_rows());
    let first_of_decoding = lies.len();
    lies.extend(lies_about_decoding());
    lies.par_iter()
        .enumerate()
        .for_each(|(n, (name, checks, tell))| {
            let (request, position) = if n < first_of_decoding {
                TOKEN
            } else {
                DECODES
            };
            expose(scene, name, checks, &|cells| {
                tell(&mut Token {
                    model: &scene.by.model,
                    cells,
                    request,
                    position,
                });
            });
        });
    println!("consistent lies: {} proved and rejected", lies.len());
}

/// Sets a column of the head, or of the router of one layer, to another one, or to zero.
fn set_column(
    part: &mut Tensor,
    (inn, out): (usize, usize),
    outer: usize,
    to: usize,
    from: Option<usize>,
) {
    for i in 0..inn {
        let row = (outer * inn + i) * out;
        part.values[row + to] = from.map_or(0, |from| part.values[row + from]);
    }
    if let Some(from) = from {
        part.multipliers[outer * out + to] = part.multipliers[outer * out + from];
    }
}

fn with_column(model: &Model, id: WeightId, outer: usize, to: usize, from: Option<usize>) -> Model {
    let shape = model.shape(id);
    edited(model, |parts| {
        set_column(
            &mut parts[id.index()],
            (shape.inn, shape.out),
            outer,
            to,
            from,
        );
    })
}

/// Replies of a model whose head cannot say what the true model would: the trace is true up to the logits, which are
/// those of the true model again, and the last step is told in every way.
fn pass_off(model: Model, liar: &Model, prompt: &[u32]) {
    let honest = answer(&model, prompt, 1).response[0];
    let reply = answer(liar, prompt, 1);
    let lie = reply.response[0];
    assert_ne!(lie, honest);
    let scene = Scene {
        trace: trace_of(liar, std::slice::from_ref(&reply), LOAD_MULTIPLE),
        replies: vec![reply],
        by: Committed::quick(model),
        relation: olmoe::relation(liar.header()),
        dims: scene().dims.clone(),
        witness: Witness::default(),
    };
    type Variant = (
        &'static str,
        &'static [&'static str],
        fn(&mut Token<'_, '_, '_>, usize, usize),
    );
    let variants: [Variant; 4] = [
        (
            "the token is not what the row gives",
            &["Gather"],
            |_, _, _| (),
        ),
        (
            "its key is the maximum",
            &["argmax: no key above the maximum"],
            |t, _, lie| {
                t.decode_as(0, lie);
            },
        ),
        (
            "it is marked",
            &["argmax: the maximum is attained"],
            |t, honest, lie| {
                t.decode_as(0, honest);
                t.cells.set("lg.z", &[0, honest], 0);
                t.cells.set("lg.z", &[0, lie], 1);
                t.cells.set("am", &[0], lie as i64);
            },
        ),
        ("it is named", &["argmax: token"], |t, _, lie| {
            t.cells.set("am", &[0], lie as i64)
        }),
    ];
    for (name, checks, tell) in variants {
        expose(&scene, name, checks, &|cells| {
            let position = scene.replies[0].prompt.len() - 1;
            let mut token = Token {
                model: &scene.by.model,
                cells,
                request: 0,
                position,
            };
            token.from(Step::Head);
            tell(&mut token, honest as usize, lie as usize);
        });
    }
}

#[test]
fn the_second_best_token_is_rejected() {
    let prompt = [3, 5, 7];
    let best = answer(&micro(), &prompt, 1).response[0] as usize;
    pass_off(
        micro(),
        &with_column(&micro(), WeightId::Wh, 0, best, None),
        &prompt,
    );
}

#[test]
fn of_equal_logits_the_higher_token_is_rejected() {
    let prompt = [1, 2, 3, 4, 5];
    let best = answer(&micro(), &prompt, 1).response[0] as usize;
    let twin = best + 1;
    let tied = with_column(&micro(), WeightId::Wh, 0, twin, Some(best));
    let liar = with_column(&tied, WeightId::Wh, 0, best, None);
    assert_eq!(answer(&tied, &prompt, 1).response, [best as u32]);
    assert_eq!(answer(&liar, &prompt, 1).response, [twin as u32]);
    pass_off(tied, &liar, &prompt);
}

#[test]
fn of_equal_experts_the_higher_one_is_rejected() {
    let layer = micro_sizes().num_hidden_layers - 1;
    let pairs = (0..5).flat_map(|a| (a + 1..5).map(move |b| (a, b)));
    let (scene, position) = pairs
        .filter_map(|(a, b)| {
            let model = with_column(&micro(), WeightId::Wr, layer, b, Some(a));
            let scene = Scene::new(
                model,
                &[(&[3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27], 2)],
            );
            let mut witness = scene.witness.clone();
            let cells = Cells {
                relation: &scene.relation,
                dims: &scene.dims,
                witness: &mut witness,
            };
            // Not the last of the prompt, which decodes.
            let tie = |&s: &usize| {
                let sel = cells.slice("sel", &[0, layer, s]);
                sel[a] == 1 && sel[b] == 0
            };
            // The higher one serves some token, beside the lower one, and has rows to spare.
            let blocks = &scene.dims.batch.blocks;
            blocks
                .iter()
                .find(|block| (block.0, block.1) == (layer, b))?;
            (0..12).find(tie).map(|s| (scene, s))
        })
        .next()
        .unwrap();
    for lower in [false, true] {
        expose(
            &scene,
            "a tie",
            &["router: chosen before the rest"],
            &|cells| {
                let mut token = Token {
                    model: &scene.by.model,
                    cells,
                    request: 0,
                    position,
                };
                let ranked = token.ranked();
                assert_eq!(
                    token.cells.get("rl", &[0, layer, position, ranked[1]]),
                    token.cells.get("rl", &[0, layer, position, ranked[2]])
                );
                token.choose(&[ranked[0], ranked[2]], ranked[1 + usize::from(lower)]);
            },
        );
    }
}

/// The reply to another prompt, all of it consistent, under the prompt that was asked.
#[test]
fn the_embedding_of_another_token_is_rejected() {
    let other = answer(&micro(), &[3, 6, 7], 2);
    let claimed = Reply {
        prompt: vec![3, 5, 7],
        ..other.clone()
    };
    let scene = Scene {
        trace: trace_of(&micro(), &[other], LOAD_MULTIPLE),
        replies: vec![claimed],
        by: Committed::quick(micro()),
        relation: olmoe::relation(micro().header()),
        dims: scene().dims.clone(),
        witness: Witness::default(),
    };
    expose(&scene, "a token", &["embedding: tokens"], &|cells| {
        cells.set("tok", &[0, 1], 5)
    });
}

/// A reply whose first token is passed off as part of the prompt: the proof holds, the customer's slip does not.
#[test]
fn a_reply_split_in_another_place_is_noticed_by_the_slip() {
    let by = Committed::new(micro());
    let reply = answer(&by.model, &[3, 5, 7], 3);
    let (first, rest) = reply.response.split_first().unwrap();
    let split = Reply {
        prompt: [&reply.prompt[..], &[*first]].concat(),
        response: rest.to_vec(),
        max_tokens: 3,
    };
    let batch = prove(
        &by.model,
        &by.id,
        &by.key,
        &[split],
        8,
        [1; 32],
        &mut NoHook,
    )
    .unwrap();
    let accepted = verify_batch(&by.id, &batch.proof).unwrap();
    let slip = &batch.slips[0];
    let honest = Slip {
        response: reply.response.clone(),
        ..slip.clone()
    };
    for slip in [slip, &honest] {
        let found = check_slip(&by.id, &accepted, slip, &reply.prompt);
        let Err(Reject::Check(name)) = found else {
            panic!("{found:?}");
        };
        assert!(name.contains("another prompt, response or limit"), "{name}");
    }
}

/// Exchanges the weights of two experts of a layer.
fn swap_experts(model: &Model, a: usize, b: usize) -> Model {
    let shapes = [WeightId::Wg, WeightId::Wu, WeightId::Wd].map(|id| (id, model.shape(id)));
    edited(model, |parts| {
        for (id, shape) in shapes {
            let (part, matrix) = (&mut parts[id.index()], shape.inn * shape.out);
            for i in 0..matrix {
                part.values.swap(a * matrix + i, b * matrix + i);
            }
            for o in 0..shape.out {
                part.multipliers.swap(a * shape.out + o, b * shape.out + o);
            }
        }
    })
}

/// Models that differ from the committed one by little.
fn neighbours(model: &Model) -> Vec<(String, Model)> {
    let mut all: Vec<(String, Model)> = WeightId::ALL
        .into_iter()
        .map(|id| {
            let edit = |parts: &mut [Tensor]| {
                let values = &mut parts[id.index()].values;
                let n = values.len() * 3 / 7;
                values[n] = if values[n] > 0 {
                    values[n] - 1
                } else {
                    values[n] + 1
                };
            };
            (format!("one weight of {}", id.name()), edited(model, edit))
        })
        .collect();
    let scale = |parts: &mut [Tensor]| parts[WeightId::Wd.index()].multipliers[1] += 1;
    all.push(("one scale".into(), edited(model, scale)));
    all.push((
        "experts of a layer swapped".into(),
        swap_experts(model, 1, 3),
    ));
    all.push((
        "experts of two layers swapped".into(),
        swap_experts(model, 0, 5),
    ));
    all
}

#[test]
fn other_weights_than_the_committed_are_rejected() {
    let scene = scene();
    let by = &scene.by;
    let neighbours = neighbours(&by.model);
    neighbours.par_iter().for_each(|(name, other)| {
        let prompts = scene.replies.iter().map(|r| (&r.prompt, r.max_tokens));
        let replies: Vec<Reply> = prompts.map(|(p, n)| answer(other, p, n)).collect();
        let trace = trace_of(other, &replies, LOAD_MULTIPLE);
        // The rows are those that were committed to, the witness is the other model's.
        let batch = dishonest(by, &replies, &trace, &mut OtherWeights(other));
        let found = rejection(&by.id, &batch.proof);
        let expected = "opening: value of the combined row";
        assert!(
            found.as_ref().is_some_and(|f| f.starts_with(expected)),
            "{name}: {found:?}"
        );
        // Rows and witness are the other model's.
        let batch = prove(other, &by.id, &by.key, &replies, 8, [9; 32], &mut NoHook).unwrap();
        let found = rejection(&by.id, &batch.proof);
        assert_eq!(
            found.as_deref(),
            Some("opening: leaf of the model tree"),
            "{name}"
        );
    });
    println!("weights: {} proved and rejected", 2 * neighbours.len());
}

#[test]
fn an_expert_that_serves_nobody_does_not_matter() {
    let sizes = Sizes {
        num_experts: 16,
        ..micro_sizes()
    };
    let by = Committed::new(random_model(&sizes, 7));
    let replies = [answer(&by.model, &[3, 5, 7], 3)];
    let trace = trace_of(&by.model, &replies, 8);
    let active: BTreeSet<usize> = trace
        .loads
        .iter()
        .map(|b| b.layer * 16 + b.expert)
        .collect();
    let idle = (0..32).find(|x| !active.contains(x)).unwrap();
    let busy = *active.first().unwrap();
    let change = |expert: usize| {
        let shape = by.model.shape(WeightId::Wu);
        edited(&by.model, |parts| {
            let value = &mut parts[WeightId::Wu.index()].values[expert * shape.inn * shape.out];
            *value = if *value > 0 { *value - 1 } else { *value + 1 };
        })
    };
    let honest = dishonest(&by, &replies, &trace, &mut NoHook);
    let same = dishonest(&by, &replies, &trace, &mut OtherWeights(&change(idle)));
    assert!(honest.proof == same.proof);
    assert_eq!(rejection(&by.id, &same.proof), None);
    let other = dishonest(&by, &replies, &trace, &mut OtherWeights(&change(busy)));
    assert!(rejection(&by.id, &other.proof).is_some());
}

/// An honest batch under real parameters.
fn honest() -> &'static (Committed, Vec<Reply>, BatchProof) {
    static HONEST: OnceLock<(Committed, Vec<Reply>, BatchProof)> = OnceLock::new();
    HONEST.get_or_init(|| {
        let by = Committed::new(micro());
        let replies = vec![
            answer(&by.model, &[3, 5, 7], 3),
            answer(&by.model, &[1, 2, 3, 4], 3),
        ];
        let batch = prove(
            &by.model,
            &by.id,
            &by.key,
            &replies,
            8,
            [1; 32],
            &mut NoHook,
        )
        .unwrap();
        assert_eq!(rejection(&by.id, &batch.proof), None);
        (by, replies, batch)
    })
}

#[test]
fn any_changed_byte_is_rejected() {
    let (by, _, batch) = honest();
    let proof = &batch.proof;
    let positions: Vec<usize> = (0..proof.len()).step_by(97).collect();
    let checks: BTreeMap<String, usize> = positions
        .par_iter()
        .map(|&n| {
            let mut changed = proof.clone();
            changed[n] ^= 1 << (n % 8);
            match verify_batch(&by.id, &changed) {
                Ok(_) => panic!("byte {n} may be changed"),
                Err(VerifyError::Rejected(Reject::Check(name))) => name,
                Err(_) => "decoding".into(),
            }
        })
        .fold(
            BTreeMap::new,
            |mut counts: BTreeMap<String, usize>, name| {
                *counts.entry(name).or_default() += 1;
                counts
            },
        )
        .reduce(BTreeMap::new, |mut a, b| {
            b.into_iter()
                .for_each(|(name, n)| *a.entry(name).or_default() += n);
            a
        });
    println!("{} bytes changed: {checks:#?}", positions.len());
}

#[test]
fn a_proof_of_another_length_is_rejected() {
    let (by, _, batch) = honest();
    let proof = &batch.proof;
    for length in (0..proof.len())
        .step_by(9973)
        .chain([1, 12, 44, proof.len() - 1])
    {
        assert!(
            verify_batch(&by.id, &proof[..length]).is_err(),
            "{length} bytes"
        );
    }
    for more in [&[0][..], &[0; 16], proof] {
        assert!(verify_batch(&by.id, &[proof, more].concat()).is_err());
    }
}

/// The proof with another header before the same messages.
fn with_header(by: &Committed, proof: &[u8], edit: impl FnOnce(&mut BatchHeader)) -> Vec<u8> {
    let mut reader = Reader::new(proof);
    let (id, mut header) = read_proof_header(&mut reader, &by.id.header).unwrap();
    let rest = reader.raw(reader.remaining(), "proof").unwrap();
    edit(&mut header);
    let mut w = Writer::new();
    write_proof_header(&mut w, &id, &header);
    w.raw(rest);
    w.bytes
}

#[test]
fn another_batch_header_is_rejected() {
    let (by, _, batch) = honest();
    let proof = &batch.proof;
    assert!(with_header(by, proof, |_| ()) == *proof);
    type HeaderEdit = fn(&mut BatchHeader);
    let edits: [(&str, HeaderEdit); 14] = [
        ("a length is larger", |h| h.shape.lengths[0] += 1),
        ("a length is larger by a padding", |h| {
            h.shape.lengths[0] += 8
        }),
        ("a length is smaller", |h| h.shape.lengths[1] -= 1),
        ("a load is larger", |h| h.shape.blocks[0].2 += 1),
        ("a load is smaller", |h| h.shape.blocks[1].2 -= 1),
        ("an expert is missing", |h| {
            h.shape.blocks.pop();
        }),
        ("an expert has another layer", |h| {
            let last = h.shape.blocks.iter().rposition(|b| b.0 == 0).unwrap();
            h.shape.blocks[last].0 = 1;
        }),
        ("loads are exchanged", |h| {
            let load = h.shape.blocks[0].2;
            let other = h.shape.blocks.iter().position(|b| b.2 != load).unwrap_or(1);
            h.shape.blocks[0].2 = h.shape.blocks[other].2;
            h.shape.blocks[other].2 = load + usize::from(h.shape.blocks[other].2 == load);
        }),
        ("more rows are decoded", |h| h.shape.decoded += 1),
        ("fewer rows are decoded", |h| h.shape.decoded -= 1),
        ("a hash is changed", |h| h.blocks[0][0] ^= 1),
        ("the last hash is changed", |h| h.blocks[1][31] ^= 0x80),
        ("hashes are swapped", |h| h.blocks.swap(0, 1)),
        ("a request is missing", |h| {
            h.shape.lengths.pop();
            h.blocks.pop();
        }),
    ];
    for (name, edit) in edits {
        let found = verify_batch(&by.id, &with_header(by, proof, edit));
        assert!(found.is_err(), "{name}");
        println!("{name}: {}", found.unwrap_err());
    }
}

#[test]
fn another_commitment_of_the_same_model_is_another_model() {
    let (by, replies, batch) = honest();
    let other = Committed::with(micro(), by.id.params.clone(), [4; 32]);
    let found = rejection(&other.id, &batch.proof).unwrap();
    assert!(found.starts_with("model id"), "{found}");
    // The same messages under the other id.
    let mut renamed = batch.proof.clone();
    let place = renamed
        .windows(32)
        .position(|w| w == by.id.digest())
        .unwrap();
    renamed[place..place + 32].copy_from_slice(&other.id.digest());
    assert!(rejection(&other.id, &renamed).is_some());
    // The other key's randomness under this id: the key is refused, and a forced one opens other leaves.
    let forced = Committed {
        key: zkmoe_prover::commitment::Key {
            id: by.key.id,
            seed: other.key.seed,
            tree: other.key.tree,
        },
        model: micro(),
        id: by.id.clone(),
    };
    let trace = trace_of(&forced.model, replies, 8);
    let proof = dishonest(&forced, replies, &trace, &mut NoHook).proof;
    let found = rejection(&by.id, &proof);
    assert_eq!(found.as_deref(), Some("opening: leaf of the model tree"));
}

#[test]
fn a_slip_is_for_one_request_and_one_text() {
    let (by, replies, batch) = honest();
    let accepted = verify_batch(&by.id, &batch.proof).unwrap();
    let (slip, prompt) = (&batch.slips[0], &replies[0].prompt);
    assert_ne!(
        check_slip(&by.id, &accepted, slip, prompt).unwrap(),
        Ended::Early
    );
    let seeds = [2; 32];
    let twin = prove(&by.model, &by.id, &by.key, replies, 8, seeds, &mut NoHook).unwrap();
    let reject = |name: &str, slip: &Slip, prompt: &[u32], check: &str| match check_slip(
        &by.id, &accepted, slip, prompt,
    ) {
        Err(Reject::Check(found)) => assert!(found.contains(check), "{name}: {found}"),
        other => panic!("{name}: {other:?}"),
    };
    let other = "holds another prompt, response or limit";
    let change = |edit: &dyn Fn(&mut Slip)| {
        let mut changed = slip.clone();
        edit(&mut changed);
        changed
    };
    reject("the other request's slip", &batch.slips[1], prompt, other);
    reject(
        "the other request's prompt",
        slip,
        &replies[1].prompt,
        other,
    );
    reject(
        "the other request's number",
        &change(&|s| s.request = 1),
        prompt,
        other,
    );
    reject(
        "no such request",
        &change(&|s| s.request = 2),
        prompt,
        "no such request",
    );
    reject("another batch", &twin.slips[0], prompt, other);
    reject("another prompt", slip, &[3, 5, 8], other);
    reject("a shorter prompt", slip, &[3, 5], other);
    reject("no prompt", slip, &[], "do not fit");
    reject("too long a prompt", slip, &[3; 9], "do not fit");
    reject(
        "a token of no vocabulary",
        slip,
        &[3, 5, 40],
        "not in the vocabulary",
    );
    reject(
        "another response",
        &change(&|s| s.response[1] = (s.response[1] + 1) % 40),
        prompt,
        other,
    );
    reject(
        "an exchanged response",
        &change(&|s| s.response.reverse()),
        prompt,
        other,
    );
    reject(
        "a shorter response",
        &change(&|s| s.response.truncate(1)),
        prompt,
        other,
    );
    reject(
        "a longer response",
        &change(&|s| s.response.push(1)),
        prompt,
        other,
    );
    reject(
        "no response",
        &change(&|s| s.response.clear()),
        prompt,
        "do not fit",
    );
    reject(
        "another limit",
        &change(&|s| s.max_tokens += 1),
        prompt,
        other,
    );
    reject("another salt", &change(&|s| s.salt[5] ^= 4), prompt, other);
    for n in 0..4 {
        let changed = change(&|s| s.cells[n] += from_i64(1));
        reject("other cells", &changed, prompt, other);
    }
    // A batch whose header holds the hash that the customer computes, but whose proof is about another block.
    let mut forged = accepted.clone();
    forged.evaluations.swap(0, 1);
    let found = check_slip(&by.id, &forged, slip, prompt);
    assert!(
        matches!(&found, Err(Reject::Check(name)) if name.contains("about another block")),
        "{found:?}"
    );
}

/// Two requests change places after proving: their hashes, or their stated evaluations.
#[test]
fn requests_keep_their_places() {
    let (by, replies, batch) = honest();
    let swapped: Vec<Reply> = replies.iter().rev().cloned().collect();
    let trace = trace_of(&by.model, &swapped, 8);
    // The trace is of the swapped order, header and slips are of the claimed one.
    let proof = dishonest(by, replies, &trace, &mut NoHook).proof;
    let found = rejection(&by.id, &proof).unwrap();
    assert!(found.starts_with("block of request 0"), "{found}");
    let hashes = with_header(by, &batch.proof, |h| h.blocks.swap(0, 1));
    assert!(verify_batch(&by.id, &hashes).is_err());
}

/// The definition that the tests recompute with is the prover's own.
#[test]
fn an_inverse_root_is_unique() {
    for ss in [
        1u128 << 20,
        (1 << 22) - 1,
        1 << 22,
        (1 << 40) + 12345,
        (1 << 62) - 1,
    ] {
        let root = inverse_root(ss).unwrap();
        assert_eq!(root.u * root.w4 + root.r, ss as i64);
        assert!(root.m * root.m * root.u <= 1 << 50);
        assert!((root.m + 1) * (root.m + 1) * root.u > 1 << 50);
    }
}
