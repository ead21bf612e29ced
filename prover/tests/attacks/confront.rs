//! A lie, told to the verifier in three ways.
//!
//! What the lie violates is found first, without a proof, by [`Oracle`]. Then:
//!
//! - Under the transcript the checks that fail are those of the violated constraints and of the lookups, no other, and the
//!   first of them is what rejects.
//! - A prover that knows the lookups' challenges beforehand makes up multiplicities for which the fractions sum to zero, and
//!   one that knows where blocks are evaluated makes up the random cells that cover the difference. Then the constraints,
//!   if any is violated, are left to reject, and do.
//! - A prover that also knows at which cell constraints are looked at, and lies elsewhere, has its lie accepted. So the proof
//!   was complete and right in all but the lie, and it is the challenges, drawn when the lie was committed to, that reject it.

use std::collections::BTreeMap;

use ark_ff::{AdditiveGroup, Field};
use zkmoe_commit::channel::Oracle as _;
use zkmoe_commit::field::{F, K, from_i64, lift};
use zkmoe_prover::engine::{Witness, functional};
use zkmoe_prover::prove::BatchProof;
use zkmoe_verifier::engine::point_labels;
use zkmoe_verifier::id::ModelId;
use zkmoe_verifier::relation::{Dims, Label, Round, Tag};
use zkmoe_verifier::verify::draw_first;

use crate::case::{accepted_with_foresight, demand, rejected, tried};
use crate::common::oracle::{COMBINE, Oracle, Violation};
use crate::common::programmed::{Dice, Programmed};
use crate::common::{Edit, Malice, Stage, dishonest, fault_without_work, verdict_under};
use crate::scene::Scene;

/// The check of all lookups.
pub const LOOKUPS: &str = "the fractions of a lookup sum to zero";
/// The check of all blocks.
pub const BLOCKS: &str = "blocks of requests: evaluations";
/// The seed of known challenges.
const SEED: u64 = 11;
/// Choices of cells that are tried before a lie is said to be everywhere.
const CHOICES: u64 = 4000;

/// Two corrections that add up to a value of `K`, as multiples of two weights.
fn cover(value: K, weights: [K; 2]) -> Option<[F; 2]> {
    let [a, b] = weights;
    let inverse = (a.c0 * b.c1 - a.c1 * b.c0).inverse()?;
    let x = (value.c0 * b.c1 - value.c1 * b.c0) * inverse;
    let y = (a.c0 * value.c1 - a.c1 * value.c0) * inverse;
    Some([x, y])
}

/// The name of a violation's check.
fn check_of(violation: &Violation) -> String {
    match violation {
        Violation::Lookup(_) => LOOKUPS.to_owned(),
        Violation::Constraint(name) => format!("constraint `{name}`"),
    }
}

/// The verdict on a proof under known challenges; `None` if nothing but the policy is against it.
pub fn verdict_with_foresight(id: &ModelId, proof: &[u8], known: &Programmed) -> Option<String> {
    let verdict = verdict_under(id, proof, Box::new(known.clone()));
    verdict.filter(|found| !found.starts_with("soundness: "))
}

/// Where a constraint fails: how its point is drawn, its indices, and the cells.
type Failing<'a> = (&'a str, Vec<Label>, Vec<Vec<usize>>);

/// A confrontation of one lie.
struct Confrontation<'a> {
    scene: &'a Scene,
    stage: Stage,
    edit: &'a Edit<'a>,
    /// The witness of the first round with the lie in it.
    seen: (Dims, Witness),
    /// What the lie violates.
    violations: Vec<Violation>,
    /// Whether the trace's blocks are not those of the batch header.
    blocks: bool,
}

impl Confrontation<'_> {
    fn constraints(&self) -> Vec<&str> {
        let constraints = self.violations.iter().filter_map(|v| match v {
            Violation::Constraint(name) => Some(name.as_str()),
            Violation::Lookup(_) => None,
        });
        constraints.collect()
    }

    /// A hook that tells the lie, and has seen it told.
    fn malice(&self) -> Malice<'_> {
        let mut malice = Malice::new(self.stage, self.edit);
        malice.seen = Some(self.seen.clone());
        malice
    }

    /// Challenges under which constraints are looked at where they hold, or anywhere.
    fn known(&self, blind: bool) -> Result<Programmed, String> {
        let known = Programmed::new(SEED);
        if !blind {
            return Ok(known);
        }
        let honest = Oracle::under(self.scene.by.model.header(), &self.seen.0, known.clone());
        let witness = self.malice().completed(&honest);
        let rounds = [("tau", Round::First), ("tau2", Round::Second)];
        let failing: Vec<Failing<'_>> = self
            .constraints()
            .into_iter()
            .filter(|&name| name != COMBINE)
            .map(|name| {
                let constraint = honest.constraint(name);
                let question = rounds[usize::from(constraint.drawn_after != Round::First)].0;
                let failing = honest.failing_cells(&witness, name);
                (question, constraint.out.clone(), failing)
            })
            .collect();
        for choice in 0..CHOICES {
            let mut dice = Dice::new("cell", choice);
            let mut known = known.clone();
            let mut cell: BTreeMap<(&str, Label), usize> = BTreeMap::new();
            for (question, round) in rounds {
                let labels = point_labels(&self.scene.relation, round);
                for (count, label) in labels.into_iter().enumerate() {
                    let at = usize::from(dice.digest()[0]) % self.seen.0.size(label);
                    let bits = 0..self.seen.0.bits(label);
                    let point = bits.map(|b| lift(from_i64((at >> b & 1) as i64))).collect();
                    known.choose(question, count as u64, point);
                    cell.insert((question, label), at);
                }
            }
            let seen = failing.iter().any(|(question, out, failing)| {
                let at: Vec<usize> = out.iter().map(|&l| cell[&(*question, l)]).collect();
                failing.contains(&at)
            });
            if seen {
                continue;
            }
            let oracle = Oracle::under(self.scene.by.model.header(), &self.seen.0, known.clone());
            if oracle.combined(&self.malice().completed(&oracle)) == K::ZERO {
                return Ok(known);
            }
        }
        Err(format!("{:?} fail in every cell", self.constraints()))
    }

    /// Multiplicities for which the fractions sum to zero all the same.
    fn balance(&self, known: &Programmed) -> Vec<(usize, usize, F)> {
        let oracle = Oracle::under(self.scene.by.model.header(), &self.seen.0, known.clone());
        let excess = oracle.fractions(&self.malice().completed(&oracle));
        let table = self.scene.relation.tensor("table Range(16)").unwrap();
        let entries = [5, 9];
        let weights = entries.map(|entry| {
            let tuple = core::iter::once(lift(from_i64(entry as i64)));
            let fraction = oracle.denominator(Tag::Range(16), tuple).inverse();
            fraction.expect("no entry is a pole")
        });
        // The table's side is subtracted.
        let counts = cover(excess, weights).expect("two fractions are a basis");
        entries
            .into_iter()
            .zip(counts)
            .map(|(entry, count)| (table, entry, count))
            .collect()
    }

    /// Random cells with which the blocks evaluate to what the header's do.
    fn conceal(&self, known: &Programmed) -> Vec<(usize, usize, F)> {
        let (relation, dims) = (&self.scene.relation, &self.seen.0);
        let mut answers = known.clone();
        let (_, point) = draw_first(relation, dims, |label, n| answers.challenges(label, n));
        let batching = answers.challenges("block batching", 1)[0];
        let functionals = point.functionals(dims, batching);
        let parts = functionals.iter().zip(&self.scene.stated);
        let difference: K = parts
            .map(|((name, coefficient, weights), (_, stated))| {
                let tensor = relation.tensor(name).unwrap();
                let shape = dims.shape(&relation.tensors[tensor].axes);
                let lied = functional(&shape, &self.seen.1.tensors[tensor][0], weights);
                *coefficient * (functional(&shape, stated, weights) - lied)
            })
            .sum();
        let (_, coefficient, weights) = &functionals[3];
        // Two cells of the first request that the lie itself may have left alone.
        let weight = |cell: usize| *coefficient * weights[0].at(0) * weights[1].at(cell);
        let tensor = relation.tensor("cells").unwrap();
        let cells = [2, 3];
        let values = cover(difference, cells.map(weight)).expect("two cells are a basis");
        cells
            .into_iter()
            .zip(values)
            .map(|(cell, value)| (tensor, cell, value))
            .collect()
    }

    /// Proves with foresight; gives all checks that fail.
    fn with_foresight(&self, lookups: bool, points: bool) -> Result<Vec<String>, String> {
        let known = self.known(points)?;
        let mut malice = Malice::new(self.stage, self.edit);
        if self.blocks {
            malice.corrections.extend(self.conceal(&known));
        }
        if lookups {
            malice.corrections.extend(self.balance(&known));
        }
        malice.known = Some(known.clone());
        let batch = dishonest(
            &self.scene.by,
            &self.scene.replies,
            &self.scene.trace,
            &mut malice,
        );
        let verdict = verdict_with_foresight(&self.scene.by.id, &batch.proof, &known);
        demand(verdict.is_none() == batch.violated.is_empty(), || {
            format!(
                "the prover expects {:?}, the verifier says {verdict:?}",
                batch.violated
            )
        })?;
        Ok(batch.violated)
    }
}

/// Tells a lie in all ways, and gives what it violates.
pub fn confront(scene: &Scene, stage: Stage, edit: &Edit<'_>) -> Result<Vec<Violation>, String> {
    let mut malice = Malice::new(stage, edit);
    let batch = dishonest(&scene.by, &scene.replies, &scene.trace, &mut malice);
    let found = fault_without_work(&scene.by.id, &batch);
    let violations = malice.violations(&scene.by.model);
    let seen = malice.seen.take().expect("a proof has a first round");
    let blocks = scene.stated.iter().any(|(name, stated)| {
        let tensor = scene.relation.tensor(name).unwrap();
        seen.1.tensors[tensor][0] != *stated
    });
    let told = Confrontation {
        scene,
        stage,
        edit,
        seen,
        violations,
        blocks,
    };
    tried(1);

    let lookups = (told.violations.iter()).any(|v| matches!(v, Violation::Lookup(_)))
        || multiplicities_differ(scene, &told);
    let mut expected = Vec::new();
    if blocks {
        expected.push(BLOCKS.to_owned());
    }
    if lookups {
        expected.push(LOOKUPS.to_owned());
    }
    let constraints: Vec<String> = (told.violations.iter())
        .filter(|v| matches!(v, Violation::Constraint(_)))
        .map(check_of)
        .collect();
    expected.extend(constraints.iter().cloned());
    expect(&batch, &expected, "under the transcript")?;
    match (&found, expected.first()) {
        (Some(found), Some(first)) if found == first => rejected(found),
        _ => return Err(format!("rejected by {found:?}, expected {expected:?}")),
    }

    let agree = |way: &str, found: Vec<String>, expected: &[String]| {
        demand(found == expected, || {
            format!("{way}: {found:?} fail, expected {expected:?}")
        })
    };
    if lookups && !constraints.is_empty() {
        let found = told.with_foresight(true, false)?;
        agree("with known lookups", found, &constraints)?;
        rejected(&constraints[0]);
    }
    let found = told.with_foresight(lookups, !constraints.is_empty())?;
    agree("with all known", found, &[])?;
    accepted_with_foresight();
    Ok(told.violations)
}

/// A witness whose values are looked up truly may still have false multiplicities.
fn multiplicities_differ(scene: &Scene, told: &Confrontation<'_>) -> bool {
    let known = Programmed::new(SEED);
    let oracle = Oracle::under(scene.by.model.header(), &told.seen.0, known);
    oracle.fractions(&told.malice().completed(&oracle)) != K::ZERO
}

fn expect(batch: &BatchProof, expected: &[String], way: &str) -> Result<(), String> {
    demand(batch.violated == expected, || {
        format!("{way}: {:?} fail, expected {expected:?}", batch.violated)
    })
}
