//! A batch of replies of a micro model, proved and verified.

use zkmoe_commit::params::Params;
use zkmoe_prover::commitment::{Key, commit};
use zkmoe_prover::infer::generate;
use zkmoe_prover::model::{Model, random_model};
use zkmoe_prover::prove::{NoHook, Reply, prove};
use zkmoe_verifier::header::Sizes;
use zkmoe_verifier::id::ModelId;
use zkmoe_verifier::verify::{Ended, check_slip, verify_batch};

fn micro() -> (Model, ModelId, Key) {
    let sizes = Sizes {
        vocab_size: 40,
        hidden_size: 12,
        intermediate_size: 6,
        num_hidden_layers: 2,
        num_key_value_heads: 2,
        query_group: 2,
        head_dim: 4,
        num_experts: 5,
        num_experts_per_tok: 2,
        max_position_embeddings: 32,
    };
    let model = random_model(&sizes, 7);
    let params = Params::choose(model.parameters() as usize, 1);
    let (id, key) = commit(&model, params, [3; 32], &|_, _| ());
    (model, id, key)
}

fn replies(model: &Model) -> Vec<Reply> {
    [vec![3, 5, 7], vec![1, 2, 3, 4, 5, 6, 7, 8, 9], vec![39]]
        .into_iter()
        .zip([4u32, 6, 5])
        .map(|(prompt, max_tokens)| {
            let generation = generate(model, &prompt, max_tokens as usize, |_| {
                std::ops::ControlFlow::Continue(())
            })
            .unwrap();
            Reply {
                prompt,
                response: generation.response_ids,
                max_tokens,
            }
        })
        .collect()
}

#[test]
fn an_honest_batch_is_accepted() {
    let (model, id, key) = micro();
    let replies = replies(&model);
    let start = std::time::Instant::now();
    let batch = prove(&model, &id, &key, &replies, 8, [9; 32], &mut NoHook).unwrap();
    println!(
        "prove {:?}, {} bytes {:?}",
        start.elapsed(),
        batch.proof.len(),
        batch.sizes
    );
    let start = std::time::Instant::now();
    let accepted = verify_batch(&id, &batch.proof).unwrap();
    println!("verify {:?}", start.elapsed());
    for (reply, slip) in replies.iter().zip(&batch.slips) {
        let ended = check_slip(&id, &accepted, slip, &reply.prompt).unwrap();
        assert_ne!(ended, Ended::Early);
    }
}
