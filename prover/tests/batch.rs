//! Batches of replies of micro models, proved and verified: honest proofs of every shape are accepted.

mod common;

use common::{Committed, answer, micro, micro_sizes};
use zkmoe_prover::infer::generate;
use zkmoe_prover::model::{Model, random_model};
use zkmoe_prover::prove::{BatchProof, Hook, NoHook, Reply, prove};
use zkmoe_verifier::header::Sizes;
use zkmoe_verifier::relation::{Dims, Relation};
use zkmoe_verifier::verify::{Ended, check_slip, verify_batch};

/// Proves, verifies and checks every slip.
fn accepted(by: &Committed, replies: &[Reply], load_multiple: usize) -> BatchProof {
    let (model, id, key) = (&by.model, &by.id, &by.key);
    let batch = prove(model, id, key, replies, load_multiple, [9; 32], &mut NoHook).unwrap();
    let verified = verify_batch(id, &batch.proof).unwrap();
    assert_eq!(batch.slips.len(), replies.len());
    for (reply, slip) in replies.iter().zip(&batch.slips) {
        let ended = check_slip(id, &verified, slip, &reply.prompt).unwrap();
        assert_ne!(ended, Ended::Early);
    }
    batch
}

/// The first of some random models that answers all prompts without overflow, with its answers.
fn answering(sizes: &Sizes, prompts: &[(Vec<u32>, u32)]) -> (Model, Vec<Reply>) {
    let whole = |model: &Model| {
        prompts.iter().all(|(prompt, limit)| {
            let go_on = |_| std::ops::ControlFlow::Continue(());
            generate(model, prompt, *limit as usize, go_on).is_ok_and(|g| {
                let last = g.response_ids.last();
                g.response_ids.len() == *limit as usize || last == Some(&model.header().eos_token)
            })
        })
    };
    let model = (1..64)
        .map(|seed| random_model(sizes, seed))
        .find(whole)
        .expect("a model that does not overflow");
    let replies = prompts.iter().map(|(p, n)| answer(&model, p, *n)).collect();
    (model, replies)
}

fn prompts() -> Vec<(Vec<u32>, u32)> {
    vec![
        (vec![3, 5, 7], 4),
        (vec![1, 2, 3, 4, 5, 6, 7, 8, 9], 6),
        (vec![11], 5),
    ]
}

fn accepted_with(sizes: &Sizes, prompts: &[(Vec<u32>, u32)], load_multiple: usize) -> BatchProof {
    let (model, replies) = answering(sizes, prompts);
    accepted(&Committed::new(model), &replies, load_multiple)
}

#[test]
fn an_honest_batch_is_accepted() {
    let batch = accepted_with(&micro_sizes(), &prompts(), 8);
    println!("{} bytes {:?}", batch.proof.len(), batch.sizes);
}

#[test]
fn a_single_request_is_accepted() {
    accepted_with(&micro_sizes(), &[(vec![2], 1)], 8);
}

#[test]
fn requests_of_very_different_lengths_are_accepted() {
    let longest = (0..27).map(|t| 1 + t % 39).collect();
    let mut prompts = vec![(vec![1], 1), (longest, 5), (vec![2], 7), (vec![4; 8], 8)];
    prompts.extend((0..5).map(|n| (vec![6 + n; 1 + n as usize], 2)));
    accepted_with(&micro_sizes(), &prompts, 8);
}

#[test]
fn exact_loads_are_accepted() {
    accepted_with(&micro_sizes(), &prompts(), 1);
}

#[test]
fn experts_that_take_every_token_are_accepted() {
    for experts in [1, 3] {
        let sizes = Sizes {
            num_experts: experts,
            num_experts_per_tok: experts,
            ..micro_sizes()
        };
        accepted_with(&sizes, &prompts(), 8);
    }
}

#[test]
fn a_layer_and_a_head_alone_are_accepted() {
    let sizes = Sizes {
        num_hidden_layers: 1,
        num_key_value_heads: 1,
        query_group: 1,
        head_dim: 2,
        num_experts_per_tok: 1,
        ..micro_sizes()
    };
    accepted_with(&sizes, &prompts(), 8);
}

#[test]
fn powers_of_two_are_accepted() {
    let sizes = Sizes {
        vocab_size: 32,
        hidden_size: 16,
        intermediate_size: 8,
        num_hidden_layers: 2,
        num_key_value_heads: 2,
        query_group: 2,
        head_dim: 4,
        num_experts: 4,
        num_experts_per_tok: 2,
        max_position_embeddings: 32,
    };
    accepted_with(&sizes, &prompts(), 8);
}

#[test]
fn odd_sizes_are_accepted() {
    let sizes = Sizes {
        vocab_size: 37,
        hidden_size: 13,
        intermediate_size: 7,
        num_hidden_layers: 3,
        num_key_value_heads: 3,
        query_group: 3,
        head_dim: 6,
        num_experts: 7,
        num_experts_per_tok: 3,
        max_position_embeddings: 31,
    };
    accepted_with(&sizes, &prompts(), 7);
}

/// Notes the phases.
struct Phases(Vec<&'static str>);

impl Hook for Phases {
    fn phase(&mut self, name: &'static str) {
        self.0.push(name);
    }
    fn first(&mut self, _: &Relation, _: &Dims, witness: &mut zkmoe_prover::engine::Witness) {
        assert!(!witness.tensors.is_empty());
    }
}

#[test]
fn a_proof_depends_on_its_randomness_and_not_on_threads() {
    let by = Committed::new(micro());
    let replies = [answer(&by.model, &[3, 5, 7], 4)];
    let prove_on = |threads, seed| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        pool.install(|| {
            let (model, id, key) = (&by.model, &by.id, &by.key);
            let mut hook = Phases(Vec::new());
            let batch = prove(model, id, key, &replies, 8, [seed; 32], &mut hook).unwrap();
            assert_eq!(hook.0.first(), Some(&"run the model"));
            batch
        })
    };
    let (one, two, other) = (prove_on(1, 9), prove_on(2, 9), prove_on(2, 8));
    assert!(one.proof == two.proof && one.slips == two.slips);
    assert!(one.proof != other.proof);
    assert_ne!(one.slips[0].salt, other.slips[0].salt);
    assert!(verify_batch(&by.id, &other.proof).is_ok());
}
