//! Proofs with other weights than those that were committed to. The trace is consistent with the other weights, so it is
//! the opening that has to fail.
//!
//! The control is a prover that knows beforehand where rows are opened: it gives each row of the other weights a tail
//! with which its codeword has the committed symbols there, and is accepted.

use std::borrow::Cow;
use std::collections::BTreeSet;

use ark_ff::{AdditiveGroup, Field};
use zkmoe_commit::field::F;
use zkmoe_commit::rows::RowSource;
use zkmoe_prover::commitment::{ModelRows, model_layout};
use zkmoe_prover::model::{Model, Tensor, WeightId, random_model};
use zkmoe_prover::prove::{Hook, NoHook, ProveError, Reply, prove};
use zkmoe_prover::trace::{Loads, Padding, Trace};
use zkmoe_verifier::header::Sizes;
use zkmoe_verifier::weights::WeightShape;

use crate::case::{Case, accepted_with_foresight, case, demand, rejected, tried};
use crate::common::programmed::{Programmed, Workless, row_point, row_positions};
use crate::common::{
    Committed, Lazy, OtherWeights, answer, dishonest, edited, fault_without_work, micro_sizes,
    trace_of, verdict_under,
};
use crate::confront::verdict_with_foresight;
use crate::scene::{LOADS, scene};

/// The seed of known challenges.
const SEED: u64 = 12;

/// What another model differs in.
type Edit = fn(&mut Tensor, WeightShape);

/// To a neighbour, within the range of weights.
fn nudge(value: &mut i8) {
    *value += if *value > 0 { -1 } else { 1 };
}

/// Exchanges two matrices with their scales.
fn exchange(part: &mut Tensor, shape: WeightShape, a: usize, b: usize) {
    let matrix = shape.inn * shape.out;
    for i in 0..matrix {
        part.values.swap(a * matrix + i, b * matrix + i);
    }
    for o in 0..shape.out {
        part.multipliers.swap(a * shape.out + o, b * shape.out + o);
    }
}

/// Puts one matrix in the place of another as well.
fn repeat(part: &mut Tensor, shape: WeightShape, from: usize, to: usize) {
    let (matrix, out) = (shape.inn * shape.out, shape.out);
    part.values
        .copy_within(from * matrix..(from + 1) * matrix, to * matrix);
    part.multipliers
        .copy_within(from * out..(from + 1) * out, to * out);
}

const EDITS: [(&str, Edit); 8] = [
    ("the first weight", |part, _| nudge(&mut part.values[0])),
    ("a weight in the middle", |part, _| {
        let n = part.values.len() * 3 / 7;
        nudge(&mut part.values[n]);
    }),
    ("the last weight", |part, _| {
        nudge(part.values.last_mut().unwrap());
    }),
    ("a scale", |part, _| part.multipliers[1] += 1),
    ("two output channels exchanged", |part, shape| {
        for i in 0..shape.inn {
            part.values.swap(i * shape.out, i * shape.out + 1);
        }
        part.multipliers.swap(0, 1);
    }),
    ("the first two matrices exchanged", |part, shape| {
        exchange(part, shape, 0, 1 % shape.outer);
    }),
    ("the first and the last matrix exchanged", |part, shape| {
        exchange(part, shape, 0, shape.outer - 1);
    }),
    ("the first matrix repeated as the last", |part, shape| {
        repeat(part, shape, 0, shape.outer - 1);
    }),
];

/// Another model, made of a model.
type Exchange = fn(&Model) -> Model;

/// Rows of other weights, each with something added to its tail.
struct Disguised<'a> {
    rows: ModelRows<'a>,
    added: Vec<Vec<F>>,
}

impl RowSource for Disguised<'_> {
    fn rows(&self) -> usize {
        self.rows.rows()
    }
    fn data(&self, row: usize) -> Cow<'_, [F]> {
        self.rows.data(row)
    }
    fn tail(&self, row: usize) -> Cow<'_, [F]> {
        let mut tail = self.rows.tail(row).into_owned();
        tail.iter_mut()
            .zip(&self.added[row])
            .for_each(|(to, &x)| *to += x);
        Cow::Owned(tail)
    }
}

/// The coefficients of the polynomial of least degree with these values.
fn interpolate(points: &[F], values: &[F]) -> Vec<F> {
    let mut sum = vec![F::ZERO; points.len()];
    for (i, (&at, &value)) in points.iter().zip(values).enumerate() {
        let (mut basis, mut scale) = (vec![F::ONE], F::ONE);
        for &other in points[..i].iter().chain(&points[i + 1..]) {
            let mut next = vec![F::ZERO; basis.len() + 1];
            for (n, &c) in basis.iter().enumerate() {
                next[n + 1] += c;
                next[n] -= other * c;
            }
            basis = next;
            scale *= at - other;
        }
        let scale = value * scale.inverse().expect("points differ");
        sum.iter_mut()
            .zip(basis)
            .for_each(|(to, c)| *to += scale * c);
    }
    sum
}

/// A hook that knows all challenges, and opens the rows of other weights as if they were the committed ones.
struct Foresight {
    known: Programmed,
    added: Vec<Vec<F>>,
}

impl Foresight {
    fn new(by: &Committed, other: &Model) -> Self {
        let params = &by.id.params;
        let layout = model_layout(&by.model, params);
        let seed = by.key().seed();
        let [committed, lied] =
            [&by.model, other].map(|model| ModelRows::new(model, &layout, params, seed));
        let points: Vec<F> = row_positions(params, SEED)
            .into_iter()
            .map(|position| row_point(params, position))
            .collect();
        let added = (0..committed.rows())
            .map(|row| {
                let (true_data, false_data) = (committed.data(row), lied.data(row));
                let wanted: Vec<F> = points
                    .iter()
                    .map(|z| {
                        let differences = true_data.iter().zip(false_data.iter()).rev();
                        let at = differences.fold(F::ZERO, |sum, (&a, &b)| sum * z + a - b);
                        let shift = z.pow([1 << params.log_row]).inverse();
                        at * shift.expect("no point is zero")
                    })
                    .collect();
                interpolate(&points, &wanted)
            })
            .collect();
        Self {
            known: Programmed::new(SEED),
            added,
        }
    }
}

impl Hook for Foresight {
    fn oracle(&mut self, _: &str) -> Box<dyn zkmoe_commit::channel::Oracle> {
        Box::new(self.known.clone())
    }
    fn model_rows<'a>(&mut self, honest: ModelRows<'a>) -> Box<dyn RowSource + 'a> {
        Box::new(Disguised {
            rows: honest,
            added: self.added.clone(),
        })
    }
}

/// Rows and witness are another model's. A prover who means well notices, and so does the verifier.
fn attack_with_rows(other: &Model) -> Result<(), String> {
    let (by, replies, trace, forged) = told(other);
    tried(1);
    let leaf = "opening: leaf of the model tree";
    let refused = prove(
        other,
        &by.id,
        &mut by.key(),
        &replies,
        Padding::default(),
        [9; 32],
        &mut NoHook,
    );
    demand(
        matches!(&refused, Err(ProveError::Violated(found)) if found == leaf),
        || format!("the prover says {refused:?}"),
    )?;
    rejects(&forged, &replies, &trace, &mut Lazy, leaf)
}

/// Replies and trace of another model, and the model under the commitment of the scene.
fn told(other: &Model) -> (&'static Committed, Vec<Reply>, Trace, Committed) {
    let by = &scene().by;
    let prompts = scene().replies.iter().map(|r| (&r.prompt, r.max_tokens));
    let replies: Vec<Reply> = prompts.map(|(p, n)| answer(other, p, n)).collect();
    let trace = trace_of(other, &replies, LOADS);
    let forged = Committed::forged(edited(other, |_| ()), &by.id, &by.key());
    (by, replies, trace, forged)
}

/// The rows are those that were committed to, the witness is another model's.
fn attack(other: &Model) -> Result<(), String> {
    let (by, replies, trace, forged) = told(other);
    tried(1);
    let value = "opening: value of the combined row at the point of the sumcheck";
    rejects(by, &replies, &trace, &mut OtherWeights(other), value)?;
    // The same by a prover that knows where the rows are opened.
    let mut foresight = Foresight::new(by, other);
    let batch = dishonest(&forged, &replies, &trace, &mut foresight);
    let verdict = verdict_with_foresight(&by.id, &batch.proof, &foresight.known);
    demand(verdict.is_none() && batch.violated.is_empty(), || {
        format!("with foresight: {verdict:?}, {:?}", batch.violated)
    })?;
    accepted_with_foresight();
    Ok(())
}

fn rejects(
    by: &Committed,
    replies: &[Reply],
    trace: &Trace,
    hook: &mut impl Hook,
    check: &str,
) -> Result<(), String> {
    let batch = dishonest(by, replies, trace, hook);
    let found = fault_without_work(&by.id, &batch);
    demand(
        found.as_deref() == Some(check) && batch.violated.len() == 1,
        || {
            format!(
                "rejected by {found:?} of {:?}, not by `{check}`",
                batch.violated
            )
        },
    )?;
    rejected(check);
    Ok(())
}

/// Another model that differs in one tensor; none if the edit does not apply or changes nothing.
fn neighbour(model: &Model, id: WeightId, edit: Edit) -> Option<Model> {
    let shape = model.shape(id);
    let other = edited(model, |parts| edit(&mut parts[id.index()], shape));
    let differs =
        other.values(id) != model.values(id) || other.multipliers(id) != model.multipliers(id);
    differs.then_some(other)
}

/// Exchanges the three matrices of two experts.
fn exchange_experts(model: &Model, a: usize, b: usize) -> Model {
    let shapes = [WeightId::Wg, WeightId::Wu, WeightId::Wd].map(|id| (id, model.shape(id)));
    edited(model, |parts| {
        for (id, shape) in shapes {
            exchange(&mut parts[id.index()], shape, a, b);
        }
    })
}

/// A layer in the place of another, or both exchanged, in all tensors that have layers.
fn move_layer(model: &Model, layers: [usize; 2], keep: bool) -> Model {
    let sizes = model.sizes();
    let shapes = WeightId::ALL
        .into_iter()
        .filter(|id| !matches!(id, WeightId::Emb | WeightId::Wh))
        .map(|id| (id, model.shape(id)));
    let (shapes, count) = (shapes.collect::<Vec<_>>(), sizes.num_hidden_layers);
    edited(model, |parts| {
        for (id, shape) in shapes {
            // All matrices of a layer as one.
            let each = shape.outer / count;
            for n in 0..each {
                let [a, b] = layers.map(|layer| layer * each + n);
                let part = &mut parts[id.index()];
                if keep {
                    exchange(part, shape, a, b);
                } else {
                    repeat(part, shape, a, b);
                }
            }
        }
    })
}

/// Weights of an expert that no token chose do not enter a proof, those of any other do.
fn an_expert_that_is_left_out_does_not_matter() -> Result<(), String> {
    let sizes = Sizes {
        num_experts: 16,
        ..micro_sizes()
    };
    let by = Committed::new(random_model(&sizes, 7));
    let replies = [answer(&by.model, &[3, 5, 7], 3)];
    let trace = trace_of(&by.model, &replies, Loads::Exact);
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
            nudge(&mut parts[WeightId::Wu.index()].values[expert * shape.inn * shape.out]);
        })
    };
    let honest = dishonest(&by, &replies, &trace, &mut Lazy);
    let same = dishonest(&by, &replies, &trace, &mut OtherWeights(&change(idle)));
    demand(
        honest.proof == same.proof
            && verdict_under(&by.id, &same.proof, Box::new(Workless::new())).is_none(),
        || "an idle expert enters the proof".into(),
    )?;
    let other = dishonest(&by, &replies, &trace, &mut OtherWeights(&change(busy)));
    demand(fault_without_work(&by.id, &other).is_some(), || {
        "a busy expert does not enter the proof".into()
    })
}

/// One case for each tensor of weights and each edit, and those that touch several tensors.
pub fn cases() -> Vec<Case> {
    let model = &scene().by.model;
    let mut cases = Vec::new();
    for id in WeightId::ALL {
        for (name, edit) in EDITS {
            if neighbour(model, id, edit).is_some() {
                cases.push(case(
                    "weights",
                    format!("{}: {name}", id.name()),
                    move || attack(&neighbour(&scene().by.model, id, edit).expect("it differs")),
                ));
            }
        }
    }
    for id in WeightId::ALL {
        let (name, edit) = EDITS[1];
        cases.push(case("rows", format!("{}: {name}", id.name()), move || {
            attack_with_rows(&neighbour(&scene().by.model, id, edit).expect("it differs"))
        }));
    }
    let several: [(&str, Exchange); 4] = [
        ("two experts of a layer exchanged", |model| {
            exchange_experts(model, 1, 3)
        }),
        ("experts of two layers exchanged", |model| {
            exchange_experts(model, 0, 5)
        }),
        ("two layers exchanged", |model| {
            move_layer(model, [0, 1], true)
        }),
        ("a layer repeated in place of the next", |model| {
            move_layer(model, [0, 1], false)
        }),
    ];
    for (name, other) in several {
        cases.push(case("weights", name, move || {
            attack(&other(&scene().by.model))
        }));
    }
    cases.push(case(
        "control",
        "an expert that is left out does not matter",
        an_expert_that_is_left_out_does_not_matter,
    ));
    cases
}
