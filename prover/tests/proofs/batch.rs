//! Batches of replies of micro models, proved and verified: honest proofs of every shape are accepted.

use crate::common::{Committed, answer, micro, micro_sizes};
use zkmoe_prover::infer::generate;
use zkmoe_prover::model::{Model, random_model};
use zkmoe_prover::prove::{BatchProof, NoHook, ProveError, Reply, check_shape, prove};
use zkmoe_prover::trace::{Loads, Padding};
use zkmoe_verifier::batch::{MAX_POSITIONS, MAX_REQUESTS, row_limit};
use zkmoe_verifier::header::Sizes;
use zkmoe_verifier::relation::BatchShape;
use zkmoe_verifier::verify::{Ended, batch_length, check_slip, verify_batch};

/// Proves, verifies and checks every slip.
fn accepted(by: &Committed, replies: &[Reply], padding: Padding) -> BatchProof {
    let (model, id, mut key) = (&by.model, &by.id, by.key());
    let batch = prove(model, id, &mut key, replies, padding, [9; 32], &mut NoHook).unwrap();
    let verified = verify_batch(id, &batch.proof).unwrap();
    assert_eq!(batch.slips.len(), replies.len());
    // The length follows from the header, but for the digests of opened leaves.
    let length = batch_length(id, &verified.header).unwrap();
    let more = batch.proof.len() as u64 - length.least;
    assert_eq!(more % 32, 0, "{more} bytes more than the least");
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

fn accepted_with(sizes: &Sizes, prompts: &[(Vec<u32>, u32)], padding: Padding) -> BatchProof {
    let (model, replies) = answering(sizes, prompts);
    accepted(&Committed::new(model), &replies, padding)
}

#[test]
fn an_honest_batch_is_accepted() {
    let batch = accepted_with(&micro_sizes(), &prompts(), Padding::default());
    println!("{} bytes {:?}", batch.proof.len(), batch.sizes);
}

#[test]
fn a_single_request_is_accepted() {
    accepted_with(&micro_sizes(), &[(vec![2], 1)], Padding::default());
}

#[test]
fn requests_of_very_different_lengths_are_accepted() {
    let longest = (0..27).map(|t| 1 + t % 39).collect();
    let mut prompts = vec![(vec![1], 1), (longest, 5), (vec![2], 7), (vec![4; 8], 8)];
    prompts.extend((0..5).map(|n| (vec![6 + n; 1 + n as usize], 2)));
    accepted_with(&micro_sizes(), &prompts, Padding::default());
}

/// Many experts and a context that is no power of two, so that every way to round up shows.
fn wide_sizes() -> Sizes {
    Sizes {
        num_experts: 9,
        max_position_embeddings: 27,
        ..micro_sizes()
    }
}

#[test]
fn loads_and_lengths_are_accepted_however_they_are_rounded() {
    let prompts = [(vec![3, 5, 7], 4), ((1..18).collect(), 6), (vec![11], 5)];
    let (model, replies) = answering(&wide_sizes(), &prompts);
    let by = Committed::new(model);
    let header = |padding| {
        let batch = accepted(&by, &replies, padding);
        verify_batch(&by.id, &batch.proof).unwrap().header.shape
    };
    let loads = |shape: &BatchShape| shape.blocks.iter().map(|b| b.2).collect::<Vec<_>>();
    let all = 2 * 9;

    let exact = header(Loads::Exact.into());
    assert_eq!(exact.lengths, [8, 24, 8]);
    // Each position of each layer is served twice.
    assert_eq!(loads(&exact).iter().sum::<usize>(), 40 * 2 * 2);

    let rounded = header(Loads::Multiple(8).into());
    assert_eq!(rounded.blocks.len(), all);
    assert!(loads(&rounded).iter().all(|n| n % 8 == 0));

    let hidden = header(Padding {
        powers_of_two: true,
        loads: Loads::Hidden,
    });
    // 32 would be above the context.
    assert_eq!(hidden.lengths, [8, 27, 8]);
    let tokens: usize = replies.iter().map(|r| r.response.len()).sum();
    assert_eq!(
        hidden.decoded,
        tokens.next_multiple_of(8).next_power_of_two()
    );
    assert_eq!(hidden.blocks.len(), all);
    assert_eq!(loads(&hidden), vec![hidden.blocks[0].2; all]);
}

#[test]
fn hidden_loads_and_equal_lengths_leave_nothing_to_tell_two_batches_apart() {
    let padding = Padding {
        powers_of_two: true,
        loads: Loads::Hidden,
    };
    // Other tokens, and other lengths below the same powers of two.
    let batches = [
        [(vec![3, 5, 7], 4), ((1..10).collect(), 5)],
        [(vec![30, 2], 5), ((20..31).collect(), 4)],
    ];
    let (model, replies) = answering(&wide_sizes(), &batches.concat());
    let by = Committed::new(model);
    let header = |replies: &[Reply], padding| {
        let batch = accepted(&by, replies, padding);
        verify_batch(&by.id, &batch.proof).unwrap().header
    };
    let one = header(&replies[..2], padding);
    let mut other = header(&replies[2..], padding);
    assert_ne!(one.blocks, other.blocks);
    // The one number that is left happens to be the same for these two.
    other.blocks.clone_from(&one.blocks);
    assert_eq!(one, other);
    // Without the options they differ.
    let exact = Loads::Exact.into();
    let (one, other) = (header(&replies[..2], exact), header(&replies[2..], exact));
    assert_ne!(one.shape.blocks, other.shape.blocks);
}

#[test]
fn slips_are_for_the_padded_length_of_the_header() {
    let (model, replies) = answering(&wide_sizes(), &[((1..18).collect(), 6)]);
    let by = Committed::new(model);
    let powers = Padding {
        powers_of_two: true,
        ..Padding::default()
    };
    let long = accepted(&by, &replies, powers);
    let short = accepted(&by, &replies, Padding::default());
    let [verified, other] = [&long, &short].map(|b| verify_batch(&by.id, &b.proof).unwrap());
    let lengths = [&verified, &other].map(|b| b.header.shape.lengths[0]);
    assert_eq!(lengths, [27, 24]);
    // Salt and cells follow from the trace, so each slip is for its own length alone.
    let prompt = &replies[0].prompt;
    assert!(check_slip(&by.id, &verified, &short.slips[0], prompt).is_err());
    assert!(check_slip(&by.id, &other, &long.slips[0], prompt).is_err());
    // The hash binds the length: another one in the header is another block.
    for length in [24, 26] {
        let mut changed = verified.clone();
        changed.header.shape.lengths[0] = length;
        let error = check_slip(&by.id, &changed, &long.slips[0], prompt).unwrap_err();
        assert!(
            error.to_string().contains("another prompt, response"),
            "{error}"
        );
    }
}

#[test]
fn batches_that_no_verifier_takes_are_refused_before_work() {
    let by = Committed::new(micro());
    let shape = |requests: usize, load: usize, decoded: usize| BatchShape {
        lengths: vec![8; requests],
        blocks: vec![(0, 0, load)],
        decoded,
    };
    let check = |shape: &BatchShape| check_shape(&by.id, shape);
    check(&shape(2, row_limit(16), row_limit(16))).unwrap();
    for (shape, field) in [
        (shape(MAX_REQUESTS + 1, 8, 8), "number of requests"),
        (shape(2, row_limit(16) + 1, 8), "load"),
        (shape(2, 8, row_limit(16) + 1), "decoded rows"),
        (
            BatchShape {
                lengths: vec![33],
                ..shape(1, 8, 8)
            },
            "length of a request",
        ),
    ] {
        let error = check(&shape).unwrap_err();
        assert!(matches!(error, ProveError::TooLarge(_)));
        let message = error.to_string();
        assert!(
            message.contains(field) && message.contains("fewer replies"),
            "{message}"
        );
    }
    // All experts with the largest load, at the limits of a model with many.
    let sizes = Sizes {
        num_experts: 256,
        max_position_embeddings: 4096,
        intermediate_size: 2,
        ..micro_sizes()
    };
    let many = Committed::new(random_model(&sizes, 1));
    let large = BatchShape {
        lengths: vec![4096; MAX_POSITIONS / 4096],
        blocks: (0..512)
            .map(|n| (n / 256, n % 256, MAX_POSITIONS))
            .collect(),
        decoded: 8,
    };
    let error = check_shape(&many.id, &large).unwrap_err().to_string();
    assert!(error.contains("limits: the batch has"), "{error}");
    assert!(error.contains("cells, at most 68719476736"), "{error}");
}

#[test]
fn experts_that_take_every_token_are_accepted() {
    for experts in [1, 3] {
        let sizes = Sizes {
            num_experts: experts,
            num_experts_per_tok: experts,
            ..micro_sizes()
        };
        accepted_with(&sizes, &prompts(), Padding::default());
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
    accepted_with(&sizes, &prompts(), Padding::default());
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
    accepted_with(&sizes, &prompts(), Padding::default());
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
    accepted_with(&sizes, &prompts(), Loads::Multiple(7).into());
}
