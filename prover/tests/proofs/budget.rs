//! Nothing is opened that was not counted: permits, budgets and the chain of proofs.

use crate::common::{Committed, answer, micro, trace_of};
use zkmoe_commit::codec::Reader;
use zkmoe_commit::params::Params;
use zkmoe_prover::key::{KeyError, Opening};
use zkmoe_prover::prove::{Hook, NoHook, ProveError, Reply, prove, prove_trace};
use zkmoe_prover::trace::{Loads, Padding};
use zkmoe_verifier::batch::read_proof_header;
use zkmoe_verifier::verify::verify_batch;

#[test]
fn a_permit_opens_nothing_but_what_it_was_counted_for() {
    let by = Committed::quick(micro());
    let other = Committed::with(micro(), by.id.params.clone(), [4; 32]);
    let replies = [answer(&by.model, &[3, 5, 7], 3)];
    let trace = trace_of(&by.model, &replies, Loads::Multiple(8));
    let attempt = |source: &Committed, purpose, id: &Committed, key: &Committed| {
        let permit = source.key().spend(purpose).unwrap();
        let (trace, seed) = (trace.clone(), [9; 32]);
        let proof = prove_trace(
            &by.model,
            &id.id,
            &key.key(),
            permit,
            &replies,
            trace,
            seed,
            &mut NoHook,
        );
        match proof {
            Ok(_) => None,
            Err(ProveError::Key(KeyError::Mismatch(why))) => Some(why),
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!(attempt(&by, Opening::Batch, &by, &by), None);
    let (id, purpose) = (
        Some("the permit is for another model id"),
        Some("the permit is for another purpose"),
    );
    assert_eq!(attempt(&other, Opening::Batch, &by, &by), id);
    assert_eq!(attempt(&by, Opening::Batch, &other, &by), id);
    let key = Some("the key belongs to another id");
    assert_eq!(attempt(&by, Opening::Batch, &by, &other), key);
    assert_eq!(attempt(&by, Opening::Certificate, &by, &by), purpose);
    assert_eq!(attempt(&by, Opening::Rotation, &by, &by), purpose);
}

/// Notes the phases.
#[derive(Default)]
struct Phases(Vec<&'static str>);

impl Hook for Phases {
    fn phase(&mut self, name: &'static str) {
        self.0.push(name);
    }
}

#[test]
fn a_batch_is_counted_once_it_can_no_longer_be_refused() {
    let model = micro();
    let params = Params::choose(model.parameters() as usize, 3);
    let by = Committed::with(model, params, [3; 32]);
    let mut key = by.key().with_limit(2);
    let reply = answer(&by.model, &[3, 5, 7], 4);
    // Refusals cost nothing: too long, and not what the model decodes.
    let long = Reply {
        max_tokens: 3,
        ..reply.clone()
    };
    let mut edited = reply.clone();
    edited.response[1] = (edited.response[1] + 1) % 40;
    for wrong in [long, edited] {
        let proof = prove(
            &by.model,
            &by.id,
            &mut key,
            &[wrong],
            Padding::default(),
            [1; 32],
            &mut NoHook,
        );
        let error = proof.unwrap_err();
        assert_eq!(key.left(Opening::Batch), 2, "{error}");
    }
    let mut before = [0; 32];
    let mut proofs = Vec::new();
    for left in [1, 0] {
        let replies = [reply.clone()];
        let seed = [left as u8; 32];
        let batch = prove(
            &by.model,
            &by.id,
            &mut key,
            &replies,
            Padding::default(),
            seed,
            &mut NoHook,
        )
        .unwrap();
        assert_eq!(key.left(Opening::Batch), left);
        verify_batch(&by.id, &batch.proof).unwrap();
        let (_, header) = read_proof_header(&mut Reader::new(&batch.proof), &by.id.header).unwrap();
        assert_eq!(header.link, [before, key.ledger().current()]);
        before = header.link[1];
        proofs.push(batch.proof);
    }
    assert!(proofs[0] != proofs[1]);
    // What is spent is refused before the model runs.
    let mut phases = Phases::default();
    let proof = prove(
        &by.model,
        &by.id,
        &mut key,
        &[reply],
        Padding::default(),
        [1; 32],
        &mut phases,
    );
    assert!(
        matches!(
            proof,
            Err(ProveError::Key(KeyError::Spent { limit: 2, .. }))
        ),
        "{proof:?}"
    );
    assert!(phases.0.is_empty());
}

#[test]
fn a_key_for_more_batches_than_its_id_is_refused() {
    let by = Committed::quick(micro());
    let all = by.id.params.batches() as u32;
    let made = |limit, initial| {
        let key = by.key();
        let (seed, tree) = (key.seed(), key.tree().clone());
        zkmoe_prover::key::Key::new(by.id.digest(), seed, tree, limit, initial).check(&by.id)
    };
    assert!(made(all, 0).is_ok() && made(all - 1, 1).is_ok());
    for (limit, initial) in [(all + 1, 0), (all, 1)] {
        let found = made(limit, initial);
        assert!(
            matches!(&found, Err(KeyError::Mismatch(why)) if why.contains("more batches")),
            "{found:?}"
        );
    }
}
