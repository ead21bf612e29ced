//! What the tests of whole batches share: micro models and their replies, a hook that falsifies a proof in the
//! making, and the verdict of the verifier.
//!
//! A test that lies uses [`quick_params`]: the argument is the same, only the opening is short and the work is left
//! out, so that hundreds of proofs take minutes. Such a proof is below the verifier's policy, which the verifier
//! checks last; every lie has to be caught before that, and tests that expect acceptance use the real parameters.

#![allow(dead_code, reason = "each test binary uses its own part")]

pub mod cells;
pub mod oracle;
pub mod programmed;
pub mod recompute;

use std::ops::ControlFlow;

use zkmoe_commit::channel::{self, Reject, VerifierChannel};
use zkmoe_commit::codec::Reader;
use zkmoe_commit::field::F;
use zkmoe_commit::params::{Grinding, Params};
use zkmoe_commit::whir::WhirParams;
use zkmoe_prover::commitment::{commit, committed_values};
use zkmoe_prover::engine::Witness;
use zkmoe_prover::infer::generate;
use zkmoe_prover::key::{Key, Opening};
use zkmoe_prover::model::{Model, Tensor, WeightId, random_model};
use zkmoe_prover::prove::{BatchProof, Hook, Reply, prove_trace};
use zkmoe_prover::trace::{Loads, RequestTokens, Trace, build_trace};
use zkmoe_verifier::batch::read_proof_header;
use zkmoe_verifier::header::Sizes;
use zkmoe_verifier::id::ModelId;
use zkmoe_verifier::relation::{Dims, Fill, Relation};
use zkmoe_verifier::verify::{VerifyError, parameters, verify_batch, verify_messages};

use self::cells::Cells;
use self::oracle::{Oracle, Violation};
use self::programmed::{Programmed, Workless};

/// A committed model.
pub struct Committed {
    /// The weights.
    pub model: Model,
    /// The public side.
    pub id: ModelId,
    /// The private side, as it was when nothing was proved.
    key: Vec<u8>,
}

impl Committed {
    /// Commits with the parameters that a provider would use.
    pub fn new(model: Model) -> Self {
        let params = Params::choose(model.parameters() as usize, 1);
        Self::with(model, params, [3; 32])
    }

    /// Commits with parameters for lies.
    pub fn quick(model: Model) -> Self {
        let params = quick_params(&model);
        Self::with(model, params, [3; 32])
    }

    /// Commits with given parameters and tails.
    pub fn with(model: Model, params: Params, seed: [u8; 32]) -> Self {
        let (id, key) = commit(&model, params, seed, &|_, _| ());
        let key = key.encode();
        Self { model, id, key }
    }

    /// A copy of the key as it was at first. Who copies keys is not held by any budget, so tests may prove at will.
    pub fn key(&self) -> Key {
        Key::decode(&self.key).unwrap()
    }

    /// A model under the id and the key of another.
    pub fn forged(model: Model, id: &ModelId, key: &Key) -> Self {
        let (id, key) = (id.clone(), key.encode());
        Self { model, id, key }
    }

    /// The same with a key that a forger made.
    pub fn with_key(mut self, key: &Key) -> Self {
        self.key = key.encode();
        self
    }
}

/// Few positions and no work.
pub fn quick_params(model: &Model) -> Params {
    let params = Params::choose(model.parameters() as usize, 1);
    let tail_bits = params.model_tail.trailing_zeros();
    Params {
        queries: 4,
        grinding: Grinding {
            lookup: 0,
            combination: 0,
            positions: 0,
        },
        whir_data: WhirParams::new(params.log_row, 4, 20),
        whir_tail: WhirParams::new(tail_bits, 4, 20),
        ..params
    }
}

/// Odd sizes in every dimension that may be odd.
pub fn micro_sizes() -> Sizes {
    Sizes {
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
    }
}

/// The micro model.
pub fn micro() -> Model {
    random_model(&micro_sizes(), 7)
}

/// A model that differs from another in its weights alone.
pub fn edited(model: &Model, edit: impl FnOnce(&mut [Tensor])) -> Model {
    let mut parts: Vec<Tensor> = WeightId::ALL
        .iter()
        .map(|&id| Tensor {
            values: model.values(id).to_vec(),
            multipliers: model.multipliers(id).to_vec(),
        })
        .collect();
    edit(&mut parts);
    let header = model.header().clone();
    Model::from_parts(header, parts, model.tokenizer_json().to_vec()).unwrap()
}

/// What the model answers.
pub fn answer(model: &Model, prompt: &[u32], max_tokens: u32) -> Reply {
    let go_on = |_| ControlFlow::Continue(());
    let generation = generate(model, prompt, max_tokens as usize, go_on).unwrap();
    Reply {
        prompt: prompt.to_vec(),
        response: generation.response_ids,
        max_tokens,
    }
}

/// The trace of replies that the model gave.
pub fn trace_of(model: &Model, replies: &[Reply], loads: Loads) -> Trace {
    let requests: Vec<RequestTokens> = replies
        .iter()
        .map(|r| RequestTokens {
            prompt: r.prompt.clone(),
            response: r.response.clone(),
        })
        .collect();
    build_trace(model, &requests, loads.into()).unwrap()
}

/// When an edit takes place; everything later follows from it as in an honest proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Before digits.
    Trace,
    /// Before multiplicities.
    Digits,
    /// Before the first root.
    First,
    /// Before the second root.
    Second,
}

/// An edit of a witness.
pub type Edit<'a> = dyn Fn(&mut Cells<'_>) + Sync + 'a;

/// A hook that edits the witness at one stage and keeps what the first root commits to.
pub struct Malice<'a> {
    stage: Stage,
    edit: &'a Edit<'a>,
    /// Challenges that the prover knows beforehand, in place of a transcript's.
    pub known: Option<Programmed>,
    /// What is added to cells of the first round before they are committed to: tensor, cell, and how much.
    pub corrections: Vec<(usize, usize, F)>,
    /// The witness of the first root with its sizes, before the corrections.
    pub seen: Option<(Dims, Witness)>,
}

impl<'a> Malice<'a> {
    /// Edits at a stage.
    pub fn new(stage: Stage, edit: &'a Edit<'a>) -> Self {
        Self {
            stage,
            edit,
            known: None,
            corrections: Vec::new(),
            seen: None,
        }
    }

    fn apply(&self, stage: Stage, relation: &Relation, dims: &Dims, witness: &mut Witness) {
        if self.stage == stage {
            (self.edit)(&mut Cells {
                relation,
                dims,
                witness,
            });
        }
    }

    /// What the committed witness violates, an edit of the second round included.
    pub fn violations(&self, model: &Model) -> Vec<Violation> {
        let (dims, _) = self.seen.as_ref().unwrap();
        let oracle = Oracle::new(model.header(), dims);
        oracle.violations(&self.completed(&oracle), None)
    }

    /// The committed witness with the second round as it follows from the oracle's challenges and the edit.
    pub fn completed(&self, oracle: &Oracle) -> Witness {
        let (dims, witness) = self.seen.as_ref().unwrap();
        let mut witness = witness.clone();
        oracle.fill_second(&mut witness, None);
        self.apply(Stage::Second, oracle.relation(), dims, &mut witness);
        witness
    }
}

impl Hook for Malice<'_> {
    fn trace(&mut self, relation: &Relation, dims: &Dims, witness: &mut Witness) {
        self.apply(Stage::Trace, relation, dims, witness);
    }
    fn digits(&mut self, relation: &Relation, dims: &Dims, witness: &mut Witness) {
        self.apply(Stage::Digits, relation, dims, witness);
    }
    fn first(&mut self, relation: &Relation, dims: &Dims, witness: &mut Witness) {
        self.apply(Stage::First, relation, dims, witness);
        self.seen = Some((dims.clone(), witness.clone()));
        for &(tensor, cell, change) in &self.corrections {
            witness.tensors[tensor][0][cell] += change;
        }
    }
    fn oracle(&mut self, _: &str) -> Box<dyn channel::Oracle> {
        match &self.known {
            Some(known) => Box::new(known.clone()),
            None => Box::new(Workless::new()),
        }
    }
    fn second(&mut self, relation: &Relation, dims: &Dims, witness: &mut Witness) {
        self.apply(Stage::Second, relation, dims, witness);
    }
}

/// A hook that proves with the weights of another model than the committed one.
pub struct OtherWeights<'a>(pub &'a Model);

impl Hook for OtherWeights<'_> {
    fn oracle(&mut self, _: &str) -> Box<dyn channel::Oracle> {
        Box::new(Workless::new())
    }
    fn weights(&mut self, relation: &Relation, witness: &mut Witness) {
        for (tensor, cells) in relation.tensors.iter().zip(&mut witness.tensors) {
            if let Fill::Weights(id) = tensor.fill {
                *cells = vec![committed_values(self.0, id)];
            }
        }
    }
}

/// A hook that changes nothing, and does no work.
pub struct Lazy;

impl Hook for Lazy {
    fn oracle(&mut self, _: &str) -> Box<dyn channel::Oracle> {
        Box::new(Workless::new())
    }
}

/// Proves a trace as a hook wants it.
pub fn dishonest(
    by: &Committed,
    replies: &[Reply],
    trace: &Trace,
    hook: &mut impl Hook,
) -> BatchProof {
    let (model, id, mut key) = (&by.model, &by.id, by.key());
    let permit = key.spend_with(Opening::Batch, [5; 32]).unwrap();
    let trace = trace.clone();
    prove_trace(model, id, &key, permit, replies, trace, [9; 32], hook).unwrap()
}

/// The check that fails in a proof, `None` if it is accepted.
///
/// The verifier sees of the checks on hidden values only that the proof about the pads does not fit; their names come from the prover,
/// who knows the pads. Both have to agree on whether there is a fault at all.
pub fn fault(id: &ModelId, batch: &BatchProof) -> Option<String> {
    named(rejection(id, &batch.proof).as_deref(), batch)
}

/// As [`fault`], for a proof without work.
pub fn fault_without_work(id: &ModelId, batch: &BatchProof) -> Option<String> {
    let found = verdict_under(id, &batch.proof, Box::new(Workless::new()));
    named(found.as_deref(), batch)
}

/// The verdict on a proof under an oracle.
pub fn verdict_under(
    id: &ModelId,
    proof: &[u8],
    oracle: Box<dyn channel::Oracle>,
) -> Option<String> {
    let mut reader = Reader::new(proof);
    let (named, header) = read_proof_header(&mut reader, &id.header).unwrap();
    assert_eq!(named, id.digest());
    let parameters = parameters(&named, &header);
    let channel = VerifierChannel::under(oracle, &parameters, Box::new(reader));
    let verdict = verify_messages(id, header, channel);
    verdict.err().map(|reject| reject.to_string())
}

fn named(found: Option<&str>, batch: &BatchProof) -> Option<String> {
    let named = batch.violated.first().map(String::as_str);
    let check = match (found, named) {
        (None, None) => None,
        (Some(found), None) if found.starts_with("soundness: ") => Some(found),
        (Some(found), Some(named)) if found.starts_with("pads: ") => Some(named),
        (Some(found), Some(named)) if named.starts_with(found) => Some(found),
        _ => panic!("the verifier found {found:?}, the prover {named:?}"),
    };
    check.map(str::to_owned)
}

/// The name of the check that rejects a proof, `None` if it is accepted. A proof made by the prover's own code is
/// always well formed, unless the prover stopped at a fault that shows before the proof about the pads.
pub fn rejection(id: &ModelId, proof: &[u8]) -> Option<String> {
    match verify_batch(id, proof) {
        Ok(_) => None,
        Err(VerifyError::Rejected(Reject::Check(name))) => Some(name),
        Err(other) => panic!("not rejected by a check: {other}"),
    }
}
