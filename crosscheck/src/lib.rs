//! Models and batches of many sizes, whose proofs are told from sizes alone: what the comparison in `tests/` runs over.

use std::sync::OnceLock;

use zkmoe_commit::params::Params;
use zkmoe_commit::soundness::Term;
use zkmoe_verifier::batch::BatchHeader;
use zkmoe_verifier::forecast::Forecast;
use zkmoe_verifier::header::{Header, Scales, Sizes, TABLE_SIZE};
use zkmoe_verifier::id::ModelId;
use zkmoe_verifier::limits::Extent;
use zkmoe_verifier::relation::{BatchShape, Dims, Relation};
use zkmoe_verifier::{certificate, olmoe, rotation};

/// The sizes of the bundled model, of OLMoE-1B-7B and of one in which no size is a power of two.
pub fn models() -> [Sizes; 3] {
    [
        Sizes {
            vocab_size: 2048,
            hidden_size: 128,
            intermediate_size: 128,
            num_hidden_layers: 4,
            num_key_value_heads: 2,
            query_group: 2,
            head_dim: 32,
            num_experts: 8,
            num_experts_per_tok: 2,
            max_position_embeddings: 512,
        },
        Sizes {
            vocab_size: 50304,
            hidden_size: 2048,
            intermediate_size: 1024,
            num_hidden_layers: 16,
            num_key_value_heads: 16,
            query_group: 1,
            head_dim: 128,
            num_experts: 64,
            num_experts_per_tok: 8,
            max_position_embeddings: 4096,
        },
        Sizes {
            vocab_size: 11,
            hidden_size: 6,
            intermediate_size: 5,
            num_hidden_layers: 3,
            num_key_value_heads: 3,
            query_group: 2,
            head_dim: 6,
            num_experts: 5,
            num_experts_per_tok: 2,
            max_position_embeddings: 300,
        },
    ]
}

/// A header with these sizes and with shifts that use every range.
fn header(sizes: Sizes) -> Header {
    let rope = sizes.max_position_embeddings * (sizes.head_dim / 2);
    let mut exp_table: Vec<u16> = (0..TABLE_SIZE).map(|i| u16::MAX - i as u16).collect();
    exp_table[TABLE_SIZE - 1] = 0;
    let header = Header {
        scales: Scales {
            norm_factor: 16,
            norm_epsilon: 1 << 20,
            norm_shift: 29,
            query_norm_factor: 1 << 4,
            query_norm_epsilon: 1 << 20,
            query_norm_shift: 30,
            key_norm_factor: 1 << 4,
            key_norm_epsilon: 1 << 20,
            key_norm_shift: 31,
            query_shift: 1,
            key_shift: 2,
            value_shift: 3,
            score_shift: 4,
            output_shift: 5,
            router_shift: 6,
            router_score_shift: 7,
            gate_shift: 8,
            up_shift: 9,
            product_shift: 10,
            down_shift: 11,
            head_shift: 12,
            rope_shift: 32,
        },
        eos_token: 0,
        pad_token: 1,
        exp_table,
        silu_table: vec![0; TABLE_SIZE],
        cos_table: vec![0; rope],
        sin_table: vec![0; rope],
        tokenizer_hash: [0; 32],
        template_hash: [0; 32],
        sizes,
    };
    assert_eq!(header.check(), Ok(()));
    header
}

/// A proof that might be made: the terms of its error and what they depend on.
pub struct Case {
    /// For messages.
    pub name: String,
    /// The id that it is about.
    pub id: ModelId,
    /// The relation and the sizes of its indices; none for a certificate or a rotation.
    pub batch: Option<(Relation, Dims)>,
    /// The terms of the verifier.
    pub terms: Vec<Term>,
}

/// Batches of several sizes, a certificate and a rotation for each model and for budgets of few and of many batches.
///
/// # Panics
/// If the verifier cannot count one of them.
pub fn cases() -> &'static [Case] {
    static CASES: OnceLock<Vec<Case>> = OnceLock::new();
    CASES.get_or_init(make_cases)
}

fn make_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for sizes in models() {
        for budget in [1, 1000] {
            let header = header(sizes.clone());
            let relation = olmoe::relation(&header);
            let cells = Extent::of_model(&header).cells as usize;
            let id = ModelId {
                params: Params::choose(cells, budget),
                header,
                root: [0; 32],
                tokenizer: Vec::new(),
            };
            let name = format!("{cells} weights for {budget} batches");
            for (requests, positions) in [(1, 8), (3, 120), (2, sizes.max_position_embeddings)] {
                cases.push(batch(&name, &id, &relation, requests, positions));
            }
            let other = |kind: &str, terms| Case {
                name: format!("{kind} of {name}"),
                id: id.clone(),
                batch: None,
                terms,
            };
            cases.push(other("certificate", certificate::forecast(&id).unwrap()));
            cases.push(other("rotation", rotation::forecast(&id).unwrap()));
        }
    }
    cases
}

fn batch(name: &str, id: &ModelId, relation: &Relation, requests: usize, positions: usize) -> Case {
    let sizes = &id.header.sizes;
    let load = (requests * positions * sizes.num_experts_per_tok / sizes.num_experts).max(1);
    let experts = (0..sizes.num_hidden_layers)
        .flat_map(|layer| (0..sizes.num_experts).map(move |expert| (layer, expert, load)));
    let shape = BatchShape {
        lengths: vec![positions; requests],
        blocks: experts.collect(),
        decoded: requests * positions,
    };
    let header = BatchHeader::of_sizes(&id.header, shape.clone()).unwrap();
    let forecast = Forecast::new(id, &header).unwrap();
    Case {
        name: format!("{requests} requests of {positions} positions, {name}"),
        id: id.clone(),
        batch: Some((relation.clone(), Dims::new(sizes.clone(), shape))),
        terms: forecast.soundness,
    }
}
