//! Attacks that follow from the relation: every tensor, every constraint and every lookup has its own, so that nothing can be
//! added to the relation that no attack tries.
//!
//! Single cells are changed, thousands of them, and judged by the oracle; what depends on a changed cell and is not itself a
//! statement of the prover's (digits, multiplicities, fingerprints) follows. For each tensor one change is proved; for each
//! constraint and each lookup the change that violates it and as little else as possible.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock};

use ark_ff::Field;
use rayon::prelude::*;
use zkmoe_commit::channel::{Oracle as _, VerifierChannel};
use zkmoe_commit::codec::Reader;
use zkmoe_commit::field::{F, from_i64, lift, scale, word};
use zkmoe_verifier::batch::read_proof_header;
use zkmoe_verifier::gadgets::argmax::key;
use zkmoe_verifier::relation::{Count, Fill, Lookup, Relation, Round};
use zkmoe_verifier::verify::{check_slip, parameters, verify_messages};

use crate::case::{Case, case, demand, rejected, tried};
use crate::common::cells::{Cells, signed};
use crate::common::oracle::{Oracle, Violation};
use crate::common::programmed::{Programmed, Workless};
use crate::common::{Committed, Malice, Stage, dishonest, micro};
use crate::confront::{confront, verdict_with_foresight};
use crate::scene::{Scene, scene};

/// A change of one cell.
#[derive(Debug, Clone, Copy)]
struct Change {
    tensor: usize,
    component: usize,
    cell: usize,
    by: F,
}

/// A change and what it violates.
struct Judged {
    change: Change,
    violations: Vec<Violation>,
}

/// Whether the environment asks for every cell, which takes hours.
fn every_change() -> bool {
    std::env::var_os("ZKMOE_EVERY_CHANGE").is_some()
}

/// To both neighbours, by a whole digit, by a fraction, and to the other end of the field.
fn amounts() -> [F; 5] {
    let half = from_i64(2).inverse().unwrap();
    [
        from_i64(1),
        from_i64(-1),
        from_i64(1 << 16),
        half,
        from_i64(1 << 62),
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

/// When a tensor is changed, so that what follows from it follows.
fn stage(fill: &Fill) -> Stage {
    match fill {
        Fill::Weights(_) | Fill::Trace | Fill::Random => Stage::Trace,
        Fill::Limb { .. } => Stage::Digits,
        Fill::Multiplicity(_) => Stage::First,
        Fill::Fingerprint(_) | Fill::RowWeight(_) => Stage::Second,
    }
}

/// The kind of attack that a change of a tensor is.
fn kind(fill: &Fill) -> Option<&'static str> {
    match fill {
        // Weights are committed to elsewhere, and have attacks of their own.
        Fill::Weights(_) => None,
        Fill::Trace => Some("value"),
        Fill::Random => Some("random cell"),
        Fill::Limb { .. } => Some("digit"),
        Fill::Multiplicity(_) => Some("multiplicity"),
        Fill::Fingerprint(_) => Some("fingerprint"),
        Fill::RowWeight(_) => Some("row weight"),
    }
}

/// Changes of all tensors, judged.
fn judged() -> &'static [Judged] {
    static JUDGED: OnceLock<Vec<Judged>> = OnceLock::new();
    JUDGED.get_or_init(|| {
        let scene = scene();
        let oracle = Oracle::new(scene.by.model.header(), &scene.dims);
        let mut honest = scene.witness.clone();
        oracle.fill_second(&mut honest, None);
        assert_eq!(oracle.violations(&honest, None), []);
        let baseline = oracle.baseline(&honest);
        let judged: Vec<Judged> = (0..scene.relation.tensors.len())
            .into_par_iter()
            .filter(|&t| kind(&scene.relation.tensors[t].fill).is_some())
            .flat_map_iter(|t| {
                let mut witness = honest.clone();
                // Digits and fingerprints follow from a changed value; a changed digit stands.
                let followers = oracle.followers(t);
                let changed = [&[t][..], &followers].concat();
                let mut judged = Vec::new();
                for component in 0..honest.tensors[t].len() {
                    for cell in picked(honest.tensors[t][component].len(), t) {
                        for by in amounts() {
                            witness.tensors[t][component][cell] += by;
                            oracle.fill_digits(&mut witness, &followers);
                            oracle.fill_second(&mut witness, Some(&followers));
                            let since = Some((&baseline, &changed[..]));
                            judged.push(Judged {
                                change: Change {
                                    tensor: t,
                                    component,
                                    cell,
                                    by,
                                },
                                violations: oracle.violations(&witness, since),
                            });
                            witness.tensors[t][component][cell] -= by;
                        }
                    }
                }
                judged
            })
            .collect();
        tried(judged.len());
        judged
    })
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

/// What came of a confrontation.
type Verdict = Arc<OnceLock<Result<Vec<Violation>, String>>>;

impl Change {
    fn edit(self) -> impl Fn(&mut Cells<'_>) + Sync {
        move |cells| cells.witness.tensors[self.tensor][self.component][self.cell] += self.by
    }

    /// Proves the change in all ways; once, though several cases may rest on it.
    fn confront(self, scene: &Scene) -> Result<Vec<Violation>, String> {
        static VERDICTS: Mutex<BTreeMap<(usize, usize, usize, u64), Verdict>> =
            Mutex::new(BTreeMap::new());
        let key = (self.tensor, self.component, self.cell, word(self.by));
        let verdict = VERDICTS.lock().unwrap().entry(key).or_default().clone();
        let tensor = &scene.relation.tensors[self.tensor];
        let judge = || {
            confront(scene, stage(&tensor.fill), &self.edit())
                .map_err(|why| format!("{} {self:?}: {why}", tensor.name))
        };
        verdict.get_or_init(judge).clone()
    }
}

/// A change that nothing forbids is accepted under real parameters, and no slip notices.
fn is_free(change: Change) -> Result<(), String> {
    static BY: OnceLock<Committed> = OnceLock::new();
    let (scene, by) = (scene(), BY.get_or_init(|| Committed::new(micro())));
    let edit = change.edit();
    let mut hook = Malice::new(Stage::Trace, &edit);
    let batch = dishonest(by, &scene.replies, &scene.trace, &mut hook);
    let mut reader = Reader::new(&batch.proof);
    let (named, header) =
        read_proof_header(&mut reader, &by.id.header).map_err(|e| e.to_string())?;
    let channel = VerifierChannel::under(
        Box::new(Workless::new()),
        &parameters(&named, &header),
        Box::new(reader),
    );
    let accepted = verify_messages(&by.id, header, channel).map_err(|e| e.to_string())?;
    for (slip, reply) in batch.slips.iter().zip(&scene.replies) {
        check_slip(&by.id, &accepted, slip, &reply.prompt).map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// All changes of a tensor are bound or free for a reason; one of each is proved.
fn attack_tensor(t: usize) -> Result<(), String> {
    let scene = scene();
    let name = &scene.relation.tensors[t].name;
    let mut honest = scene.witness.clone();
    let fill = &scene.relation.tensors[t].fill;
    let own: Vec<&Judged> = judged().iter().filter(|j| j.change.tensor == t).collect();
    let (mut bound, mut free) = (Vec::new(), Vec::new());
    for judged in own {
        let change = judged.change;
        // Multiplicities are judged by the sum of the fractions alone, which every change of one moves.
        let counts = matches!(fill, Fill::Multiplicity(_));
        if !judged.violations.is_empty() || is_bound_by_the_block(name) || counts {
            bound.push(change);
            continue;
        }
        let value = scene.witness.tensors[t][change.component][change.cell] + change.by;
        let cells = Cells {
            relation: &scene.relation,
            dims: &scene.dims,
            witness: &mut honest,
        };
        if freedom(&cells, name, change.cell, value).is_none() {
            let at = cells.indices(t, change.cell);
            return Err(format!("nothing binds {name}{at:?}: it may be {value}"));
        }
        free.push(change);
    }
    demand(!bound.is_empty(), || format!("{name} is not bound at all"))?;
    let count = if every_change() { 16 } else { 1 };
    // What is proved for a statement need not be proved again.
    let chosen = statements().iter().filter_map(least);
    let shared = chosen.filter(|change| change.tensor == t).take(1);
    let own = (0..bound.len()).map(|n| bound[(t * 5 + n * 37) % bound.len()]);
    for change in shared.chain(own).take(count) {
        change.confront(scene)?;
    }
    free.first().map_or(Ok(()), |&change| is_free(change))
}

/// The change that violates a statement and as little else as possible; of several, one that is used elsewhere too.
fn least(named: &Violation) -> Option<Change> {
    let violating = judged().iter().filter(|j| j.violations.contains(named));
    violating
        .min_by_key(|j| (j.violations.len(), j.change.tensor))
        .map(|j| j.change)
}

/// Proves the change that violates a statement and as little else as possible.
fn attack_statement(named: &Violation) -> Result<(), String> {
    let change = least(named).ok_or_else(|| format!("no change of a cell violates {named:?}"))?;
    let found = change.confront(scene())?;
    demand(found.contains(named), || {
        format!("{named:?} is not violated by what was proved: {found:?}")
    })
}

/// All constraints, and all lookups that are not the side of a table.
fn statements() -> &'static [Violation] {
    static STATEMENTS: OnceLock<Vec<Violation>> = OnceLock::new();
    STATEMENTS.get_or_init(|| {
        let relation = &scene().relation;
        let constraints = relation.constraints.iter();
        let lookups = relation.lookups.iter();
        constraints
            .map(|c| Violation::Constraint(c.name.clone()))
            .chain(
                lookups
                    .filter(|l| table_of(relation, l).is_none())
                    .map(violation_of),
            )
            .collect()
    })
}

/// Exchanges the counts of two entries of a table.
fn attack_table(t: usize) -> Result<(), String> {
    let scene = scene();
    let counts = &scene.witness.tensors[t][0];
    let used = counts.iter().position(|&c| c != F::from(0u64));
    let other = counts
        .iter()
        .position(|&c| used.is_none_or(|u| c != counts[u]));
    let edit = |cells: &mut Cells<'_>| {
        let counts = &mut cells.witness.tensors[t][0];
        match (used, other) {
            (Some(used), Some(other)) => counts.swap(used, other),
            // An entry is taken away, or made up where none is used.
            (Some(used), None) => counts[used] = F::from(0u64),
            (None, _) => counts[0] = F::from(1u64),
        }
    };
    confront(scene, Stage::First, &edit).map(drop)
}

/// Two digits whose keys are the pole, by a prover that chooses the pole beforehand: both denominators are zero, and so are
/// numerator and denominator of the sum, whatever else is looked up.
fn attack_pole(t: usize) -> Result<(), String> {
    const SEED: u64 = 13;
    let scene = scene();
    let name = &scene.relation.tensors[t].name;
    let mut lookups = scene.relation.lookups.iter();
    let own = |l: &&Lookup| {
        l.tuple.len() == 1
            && l.tuple[0].0.len() == 1
            && l.tuple[0].0[0].refs.iter().any(|r| r.tensor == t)
    };
    let tag = lookups.find(own).ok_or("a digit is looked up")?.tag;
    let digit = from_i64(1 << 40);
    let mut known = Programmed::new(SEED);
    let delta = known.clone().challenges("delta", 1)[0];
    let pole = lift(from_i64(tag.number() as i64)) + scale(delta, digit);
    known.choose("alpha", 0, vec![pole]);
    let edit = |cells: &mut Cells<'_>| {
        for cell in &mut cells.witness.tensors[t][0][..2] {
            *cell = digit;
        }
    };
    let mut malice = Malice::new(Stage::Digits, &edit);
    malice.known = Some(known.clone());
    let batch = dishonest(&scene.by, &scene.replies, &scene.trace, &mut malice);
    tried(1);
    let check = "no denominator of a lookup is zero";
    let verdict = verdict_with_foresight(&scene.by.id, &batch.proof, &known);
    demand(batch.violated == [check] && verdict.is_some(), || {
        format!(
            "{name}: {:?} fail, the verifier says {verdict:?}",
            batch.violated
        )
    })?;
    rejected(check);
    Ok(())
}

/// The multiplicities behind a lookup that is the side of a table.
fn table_of(relation: &Relation, lookup: &Lookup) -> Option<usize> {
    match &lookup.count {
        Count::Minus(r) if matches!(relation.tensors[r.tensor].fill, Fill::Multiplicity(_)) => {
            Some(r.tensor)
        }
        _ => None,
    }
}

/// The name under which the oracle finds a lookup violated: its own, or that of the multiset if both sides are committed.
fn violation_of(lookup: &Lookup) -> Violation {
    use zkmoe_verifier::relation::Tag::{Dispatch, Gather};
    match lookup.tag {
        tag @ (Dispatch | Gather) => Violation::Lookup(format!("{tag:?}")),
        _ => Violation::Lookup(lookup.name.clone()),
    }
}

/// One case for each tensor that is not a weight, each constraint and each lookup.
pub fn cases() -> Vec<Case> {
    let relation: &Relation = &scene().relation;
    let mut cases = Vec::new();
    for (t, tensor) in relation.tensors.iter().enumerate() {
        if let Some(kind) = kind(&tensor.fill) {
            cases.push(case(kind, &tensor.name, move || attack_tensor(t)));
        }
    }
    let digits: Vec<usize> = (0..relation.tensors.len())
        .filter(|&t| matches!(relation.tensors[t].fill, Fill::Limb { .. }))
        .collect();
    for n in [0, digits.len() / 2, digits.len() - 1] {
        let t = digits[n];
        cases.push(case("pole", &relation.tensors[t].name, move || {
            attack_pole(t)
        }));
    }
    for constraint in &relation.constraints {
        let named = Violation::Constraint(constraint.name.clone());
        cases.push(case("constraint", &constraint.name, move || {
            attack_statement(&named)
        }));
    }
    for lookup in &relation.lookups {
        cases.push(if let Some(t) = table_of(relation, lookup) {
            case("table", &lookup.name, move || attack_table(t))
        } else {
            let named = violation_of(lookup);
            case("lookup", &lookup.name, move || attack_statement(&named))
        });
    }
    cases
}

/// That the rounds of the witness are those that the stages are for.
pub fn stages_fit() -> Result<(), String> {
    for tensor in &scene().relation.tensors {
        let second = tensor.round == Round::Second;
        demand(second == (stage(&tensor.fill) == Stage::Second), || {
            format!("{} is edited in another round", tensor.name)
        })?;
    }
    Ok(())
}
