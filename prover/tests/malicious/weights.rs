//! Proofs with other weights than those that were committed to. The trace is consistent with the other weights, so it
//! is the opening that has to fail.

use std::collections::BTreeSet;

use rayon::prelude::*;
use zkmoe_prover::model::{Model, Tensor, WeightId, random_model};
use zkmoe_prover::prove::{NoHook, ProveError, Reply, prove};
use zkmoe_prover::trace::{Loads, Padding};
use zkmoe_verifier::header::Sizes;

use crate::common::{
    Committed, OtherWeights, answer, dishonest, edited, fault, micro_sizes, trace_of,
};
use crate::{LOADS, scene};

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
        let trace = trace_of(other, &replies, LOADS);
        // The rows are those that were committed to, the witness is the other model's.
        let batch = dishonest(by, &replies, &trace, &mut OtherWeights(other));
        let found = fault(&by.id, &batch);
        let expected = "opening: value of the combined row";
        assert!(
            found.as_ref().is_some_and(|f| f.starts_with(expected)),
            "{name}: {found:?}"
        );
        // Rows and witness are the other model's.
        let mut key = by.key();
        let padding = Padding::default();
        let refused = prove(
            other,
            &by.id,
            &mut key,
            &replies,
            padding,
            [9; 32],
            &mut NoHook,
        );
        let check = "opening: leaf of the model tree";
        assert!(
            matches!(&refused, Err(ProveError::Violated(found)) if found == check),
            "{name}: {refused:?}"
        );
        let forced = Committed::forged(edited(other, |_| ()), &by.id, &by.key());
        let batch = dishonest(&forced, &replies, &trace, &mut NoHook);
        assert_eq!(fault(&by.id, &batch).as_deref(), Some(check), "{name}");
    });
    println!("weights: {} proved and rejected", 2 * neighbours.len());
}

#[test]
fn an_expert_that_is_left_out_does_not_matter() {
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
            let value = &mut parts[WeightId::Wu.index()].values[expert * shape.inn * shape.out];
            *value = if *value > 0 { *value - 1 } else { *value + 1 };
        })
    };
    let honest = dishonest(&by, &replies, &trace, &mut NoHook);
    let same = dishonest(&by, &replies, &trace, &mut OtherWeights(&change(idle)));
    assert!(honest.proof == same.proof);
    assert_eq!(fault(&by.id, &same), None);
    let other = dishonest(&by, &replies, &trace, &mut OtherWeights(&change(busy)));
    assert!(fault(&by.id, &other).is_some());
}
