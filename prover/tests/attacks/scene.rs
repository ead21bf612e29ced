//! A model, replies and their honest witness: what the attacks start from.

use std::sync::OnceLock;

use ark_ff::AdditiveGroup;
use zkmoe_commit::field::{F, from_i64};
use zkmoe_prover::engine::Witness;
use zkmoe_prover::model::Model;
use zkmoe_prover::prove::Reply;
use zkmoe_prover::trace::{Loads, Trace};
use zkmoe_verifier::batch::Block;
use zkmoe_verifier::olmoe;
use zkmoe_verifier::relation::{Dims, Relation};

use crate::common::{Committed, Malice, Stage, answer, dishonest, micro, trace_of};

/// Loads are rounded up so far that every block has rows to spare for lies.
pub const LOAD_MULTIPLE: usize = 40;
/// The loads of all scenes.
pub const LOADS: Loads = Loads::Multiple(LOAD_MULTIPLE);

/// A model, replies to requests, and their honest witness.
pub struct Scene {
    /// The committed model.
    pub by: Committed,
    /// Its replies.
    pub replies: Vec<Reply>,
    /// The trace that is proved before edits.
    pub trace: Trace,
    /// The relation of the model.
    pub relation: Relation,
    /// Its sizes for this batch.
    pub dims: Dims,
    /// The witness of the first round.
    pub witness: Witness,
    /// What the customers' blocks say, by the name of the tensor that has to agree.
    pub stated: [(&'static str, Vec<F>); 4],
}

impl Scene {
    /// Replies of a model to prompts, each with its limit of tokens.
    pub fn new(model: Model, prompts: &[(&[u32], u32)]) -> Self {
        let replies: Vec<Reply> = prompts.iter().map(|(p, n)| answer(&model, p, *n)).collect();
        let trace = trace_of(&model, &replies, LOADS);
        Self::of(Committed::quick(model), replies, trace)
    }

    /// A trace under a commitment; it need not be the committed model's, nor that of the replies.
    pub fn of(by: Committed, replies: Vec<Reply>, trace: Trace) -> Self {
        let mut hook = Malice::new(Stage::Trace, &|_| ());
        dishonest(&by, &replies, &trace, &mut hook);
        let (dims, witness) = hook.seen.unwrap();
        let relation = olmoe::relation(by.model.header());
        let stated = stated(&by, &replies, &relation, &dims, &witness);
        Self {
            by,
            replies,
            trace,
            relation,
            dims,
            witness,
            stated,
        }
    }
}

fn stated(
    by: &Committed,
    replies: &[Reply],
    relation: &Relation,
    dims: &Dims,
    witness: &Witness,
) -> [(&'static str, Vec<F>); 4] {
    let header = by.model.header();
    let (mut tok, mut next, mut dec) = (Vec::new(), Vec::new(), Vec::new());
    for (reply, &length) in replies.iter().zip(&dims.batch().lengths) {
        let (prompt, response) = (&reply.prompt, &reply.response);
        let none = ([0; 32], [F::ZERO; 4]);
        let block = Block::new(
            header,
            prompt,
            response,
            length,
            reply.max_tokens,
            none.0,
            none.1,
        )
        .expect("a reply fits its request");
        let number = |&x: &u32| from_i64(i64::from(x));
        tok.extend(block.tok.iter().map(number));
        next.extend(block.next.iter().map(number));
        dec.extend(block.dec.iter().map(|&x| number(&u32::from(x))));
    }
    let cells = witness.tensors[relation.tensor("cells").unwrap()][0].clone();
    [("tok", tok), ("next", next), ("dec", dec), ("cells", cells)]
}

/// Three requests of two lengths under the micro model.
pub fn scene() -> &'static Scene {
    static SCENE: OnceLock<Scene> = OnceLock::new();
    SCENE.get_or_init(|| {
        let long = [2, 4, 6, 8, 10, 12];
        Scene::new(
            micro(),
            &[(&[3, 5, 7], 3), (&[1, 2, 3, 4, 5], 2), (&long, 4)],
        )
    })
}
