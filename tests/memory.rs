//! What a verifier allocates is in proportion to the bytes that it is given, whatever they claim.
//!
//! Sizes are taken from the corners of what headers and ids may say. Each time a file of the right length is made up,
//! all work is accepted, and so the verifier goes on to the first opened leaves: by then it holds all tables that
//! it ever makes. Most bytes per byte are needed where a small file has many requests, experts or parts.

use std::alloc::System;

use cap::Cap;
use serde_json::json;
use zkmoe::commit::channel::{Oracle, VerifierChannel};
use zkmoe::commit::codec::Reader;
use zkmoe::commit::field::K;
use zkmoe::commit::params::{MAX_QUERIES, Params};
use zkmoe::commit::transcript::Transcript;
use zkmoe::commit::whir::WhirParams;
use zkmoe::neutral;
use zkmoe::prover::import::config::Config;
use zkmoe::verifier::batch::BatchHeader;
use zkmoe::verifier::certificate::{self, Plan, certificate_length};
use zkmoe::verifier::header::Sizes;
use zkmoe::verifier::id::ModelId;
use zkmoe::verifier::limits::Extent;
use zkmoe::verifier::relation::BatchShape;
use zkmoe::verifier::verify::{batch_length, verify_messages};

#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

/// Bytes that a verifier may hold whatever it is given.
const CONSTANT: usize = 16 << 20;
/// Bytes that it may hold for each byte that it is given.
const EACH: usize = 16;

/// True challenges, and all work accepted.
struct Idle(Transcript);

impl Oracle for Idle {
    fn absorb(&mut self, label: &str, data: &[u8]) {
        self.0.absorb(label, data);
    }
    fn challenges(&mut self, label: &str, n: usize) -> Vec<K> {
        self.0.challenges(label, n)
    }
    fn positions(&mut self, label: &str, n: usize, log_size: u32) -> Vec<usize> {
        self.0.positions(label, n, log_size)
    }
    fn accepts(&self, _: &str, _: u32, _: u64) -> bool {
        true
    }
}

fn channel(messages: &[u8]) -> VerifierChannel<'_> {
    let oracle = Box::new(Idle(Transcript::new("idle")));
    VerifierChannel::under(oracle, &[], Box::new(Reader::new(messages)))
}

/// The header of a small model with some sizes changed.
fn id(changes: &[(&str, usize)], change: impl FnOnce(&mut Params)) -> ModelId {
    let mut config = json!({"model_type": "olmoe", "hidden_size": 8, "intermediate_size": 2, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 2, "num_experts": 2, "num_experts_per_tok": 1,
        "max_position_embeddings": 16, "vocab_size": 16, "eos_token_id": 0});
    for &(name, value) in changes {
        config[name] = value.into();
    }
    let config = Config::parse(config.to_string().as_bytes()).unwrap();
    let header = neutral::header(&config).unwrap();
    let cells = Extent::of_model(&header).cells as usize;
    let mut params = Params::choose(cells, 1);
    change(&mut params);
    assert_eq!(params.policy_check(), Ok(()));
    ModelId {
        header,
        params,
        root: [0; 32],
        tokenizer: Vec::new(),
    }
}

/// All experts with one load.
fn all_experts(sizes: &Sizes, load: usize) -> Vec<(usize, usize, usize)> {
    let layers = 0..sizes.num_hidden_layers;
    layers
        .flat_map(|l| (0..sizes.num_experts).map(move |e| (l, e, load)))
        .collect()
}

/// What is claimed, and what a verifier is given to check it.
enum Claim {
    Batch(BatchHeader),
    Certificate,
}

struct Case {
    name: &'static str,
    id: ModelId,
    claim: Claim,
}

impl Case {
    fn batch(name: &'static str, id: ModelId, shape: BatchShape) -> Self {
        let header = BatchHeader::of_sizes(&id.header, shape).unwrap();
        let claim = Claim::Batch(header);
        Self { name, id, claim }
    }

    fn certificate(name: &'static str, id: ModelId) -> Self {
        let claim = Claim::Certificate;
        Self { name, id, claim }
    }

    /// The least length of a file with these sizes.
    fn length(&self) -> usize {
        let length = match &self.claim {
            Claim::Batch(header) => batch_length(&self.id, header),
            Claim::Certificate => {
                Plan::new(&self.id).and_then(|plan| certificate_length(&self.id, &plan))
            }
        };
        length.unwrap().least as usize
    }

    fn start(&self) -> usize {
        match &self.claim {
            Claim::Batch(header) => header.start_length(),
            Claim::Certificate => certificate::START,
        }
    }

    fn verify(&self, messages: &[u8]) -> String {
        let channel = channel(messages);
        let rejected = match &self.claim {
            Claim::Batch(header) => verify_messages(&self.id, header.clone(), channel).map(|_| ()),
            Claim::Certificate => {
                let plan = Plan::new(&self.id).unwrap();
                certificate::verify_messages(&self.id, &plan, channel).map(|_| ())
            }
        };
        rejected.unwrap_err().to_string()
    }
}

fn cases() -> Vec<Case> {
    let one = |sizes: &Sizes| BatchShape {
        lengths: vec![1],
        blocks: all_experts(sizes, 1)[..1].to_vec(),
        decoded: 1,
    };
    let small = || id(&[], |_| ());
    let many_experts = || id(&[("num_hidden_layers", 256), ("num_experts", 256)], |_| ());
    let odd = || {
        // Sizes of many binary blocks, so that tensors are cut into many bricks.
        id(
            &[
                ("hidden_size", 28),
                ("num_hidden_layers", 7),
                ("vocab_size", 511),
            ],
            |_| (),
        )
    };
    let open_much = id(&[], |params| {
        params.grinding.combination = 32;
        params.log_row = 16;
        params.log_code = 18;
        params.queries = MAX_QUERIES;
        params.trace_tail = 2 * MAX_QUERIES;
        params.model_tail = 4 * MAX_QUERIES;
        params.whir_data = WhirParams::new(16, 4, 107);
        params.whir_tail = WhirParams::new(14, 4, 107);
    });
    let long_rows = id(&[], |params| {
        params.grinding.combination = 32;
        params.log_row = 22;
        params.log_code = 24;
        params.whir_data = WhirParams::new(22, 2, 107);
    });
    let sizes = small().header.sizes;
    let many = many_experts();
    let requests = |lengths: Vec<usize>| BatchShape {
        lengths,
        ..one(&sizes)
    };
    let loads = BatchShape {
        blocks: all_experts(&many.header.sizes, 1),
        ..one(&sizes)
    };
    let ragged = (0..3600).map(|r| 1 + r % 15).collect();
    let bricks = (0..560).map(|r| [7, 15, 11][r % 3]).collect();
    vec![
        Case::batch("one of everything", small(), one(&sizes)),
        Case::batch("long rows", long_rows, one(&sizes)),
        Case::batch("4096 opened positions", open_much, one(&sizes)),
        Case::batch("4096 short requests", small(), requests(vec![1; 4096])),
        Case::batch("3600 ragged requests", small(), requests(ragged)),
        Case::batch("many bricks", odd(), requests(bricks)),
        Case::batch(
            "65536 experts, one of them busy",
            many_experts(),
            one(&sizes),
        ),
        Case::batch("65536 busy experts", many, loads),
        Case::certificate("a certificate", small()),
        Case::certificate("a certificate of 65536 experts", many_experts()),
        Case::certificate(
            "a certificate of many parts",
            id(
                &[
                    ("vocab_size", 1 << 17),
                    ("hidden_size", 512),
                    ("num_hidden_layers", 2),
                ],
                |_| (),
            ),
        ),
    ]
}

#[test]
fn memory_is_in_proportion_to_what_is_given() {
    let mut noise = blake3::Hasher::new_derive_key("messages of a test").finalize_xof();
    // The peak is that of the whole process, so cases that may hold more come later.
    let mut cases: Vec<(usize, Case)> = cases().into_iter().map(|c| (c.length(), c)).collect();
    cases.sort_by_key(|(length, case)| length + case.id.encode().len());
    for (length, case) in &cases {
        let given = length + case.id.encode().len();
        let before = HEAP.allocated();
        let start = std::time::Instant::now();
        assert_eq!(case.length(), *length);
        let telling = start.elapsed();
        let mut messages = vec![0; length - case.start()];
        noise.fill(&mut messages);
        let start = std::time::Instant::now();
        let rejected = case.verify(&messages);
        let verifying = start.elapsed();
        drop(messages);
        let peak = HEAP.max_allocated().saturating_sub(before);
        println!(
            "{:32} {given:9} bytes, at most {:5.1} MB held; length told in {:6.1} ms, refused after {:7.1} ms",
            case.name,
            peak as f64 / f64::from(1 << 20),
            1e3 * telling.as_secs_f64(),
            1e3 * verifying.as_secs_f64(),
        );
        // Zeros are no leaf; where they have the least length, they may end before that is seen.
        let ends = [
            "opening: leaf of the model tree",
            "malformed proof: ends inside",
        ];
        let ended = ends.iter().any(|end| rejected.starts_with(end));
        assert!(ended, "{}: {rejected}", case.name);
        let most = CONSTANT + EACH * given;
        assert!(
            peak <= most,
            "{}: {peak} bytes held, at most {most}",
            case.name
        );
    }
}
