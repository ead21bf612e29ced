//! Rotations of micro models: honest ones are accepted, and nothing else is.
//!
//! As in the tests of batches, lies use short openings without work. The verifier's policy refuses such a proof after all
//! other checks, so a lie has to be caught before that, and tests that expect acceptance use real parameters.

use std::sync::OnceLock;

use crate::common::{Committed, answer, edited, micro, micro_sizes};
use zkmoe_commit::channel::{Reject, VerifierChannel};
use zkmoe_commit::codec::{Reader, Writer};
use zkmoe_commit::transcript::Transcript;
use zkmoe_prover::key::{Key, Opening, Permit};
use zkmoe_prover::model::{Model, WeightId, random_model};
use zkmoe_prover::prove::{NoHook, prove as prove_batch};
use zkmoe_prover::rotate::{self, RotateError, RotationProof, Side, check, recommit};
use zkmoe_prover::trace::Padding;
use zkmoe_verifier::header::Sizes;
use zkmoe_verifier::id::{ModelId, model_layout};
use zkmoe_verifier::rotation::{
    self, read_rotation_header, verify_rotation, write_rotation_header,
};
use zkmoe_verifier::soundness::total_bits;
use zkmoe_verifier::verify::{Ended, VerifyError, check_slip, verify_batch};

/// What fails if a value is not that of a committed tensor.
const VALUE: &str = "opening: value of the combined row at the point of the sumcheck";

/// A commitment with its key at hand.
struct Held {
    model: Model,
    id: ModelId,
    key: Key,
}

impl Held {
    fn of(by: Committed) -> Self {
        let key = by.key();
        let Committed { model, id, .. } = by;
        Self { model, id, key }
    }

    fn new(model: Model) -> Self {
        Self::of(Committed::new(model))
    }

    fn quick(model: Model) -> Self {
        Self::of(Committed::quick(model))
    }
}

/// A copy of a key, as it was.
fn copy(key: &Key) -> Key {
    Key::decode(&key.encode()).unwrap()
}

/// Leave to rotate; taken from copies, so that any number of rotations can be made.
fn permits(from: &Side<'_>, to: &Side<'_>) -> [Permit; 2] {
    let mut old = copy(from.key);
    let (id, seed, tree) = (to.key.id(), to.key.seed(), to.key.tree().clone());
    let (_, new) = Key::new(id, seed, tree, 1, 0).of_rotation().unwrap();
    [old.spend_with(Opening::Rotation, [7; 32]).unwrap(), new]
}

/// Proves whatever the two sides hold.
fn prove_sides(from: &Side<'_>, to: &Side<'_>, seed: [u8; 32], hook: &mut NoHook) -> RotationProof {
    rotate::prove_sides(from, to, permits(from, to), seed, hook).unwrap()
}

/// As a provider does.
fn prove(
    from: &Side<'_>,
    to: &Side<'_>,
    seed: [u8; 32],
    hook: &mut NoHook,
) -> Result<RotationProof, RotateError> {
    rotate::prove(from, to, permits(from, to), seed, hook)
}

fn side(by: &Held) -> Side<'_> {
    Side {
        model: &by.model,
        id: &by.id,
        key: &by.key,
    }
}

/// Another commitment to a model, by the same owner.
fn rotated(by: &Held, model: &Model, seed: u8) -> Held {
    let owner = Side { model, ..side(by) };
    let (id, key, _) = recommit(&owner, [seed; 32], &|_, _| ()).unwrap();
    Held {
        model: edited(model, |_| ()),
        id,
        key,
    }
}

/// An honest rotation under short parameters.
struct Quick {
    old: Held,
    new: Held,
    proof: Vec<u8>,
}

fn quick() -> &'static Quick {
    static QUICK: OnceLock<Quick> = OnceLock::new();
    QUICK.get_or_init(|| {
        let old = Held::quick(micro());
        let new = rotated(&old, &old.model, 5);
        let rotation = prove_sides(&side(&old), &side(&new), [6; 32], &mut NoHook);
        assert!(rotation.violated.is_empty());
        Quick {
            proof: rotation.proof,
            old,
            new,
        }
    })
}

/// The check that rejects a proof.
fn rejection(from: &ModelId, to: &ModelId, proof: &[u8]) -> String {
    match verify_rotation(from, to, proof) {
        Err(VerifyError::Rejected(Reject::Check(name))) => name,
        other => panic!("not rejected by a check: {other:?}"),
    }
}

#[track_caller]
fn rejected(from: &ModelId, to: &ModelId, proof: &[u8], check: &str) {
    let found = rejection(from, to, proof);
    assert!(found.starts_with(check), "{found} instead of {check}");
}

/// Rejected by a check, whatever the length: a prover that sees a check in clear fail does not go on.
#[track_caller]
fn rejected_whatever_its_length(from: &ModelId, to: &ModelId, proof: &[u8], check: &str) {
    let mut reader = Reader::new(proof);
    let start = rotation::parameters(&read_rotation_header(&mut reader).unwrap());
    let messages = Box::new(reader);
    let oracle = Box::new(Transcript::new(rotation::PROTOCOL));
    let channel = VerifierChannel::under(oracle, &start, messages);
    let found = rotation::verify_messages(from, to, channel).unwrap_err();
    assert_eq!(found.to_string(), check);
}

/// Rejected with a check on hidden values. The prover knows which fails; to the verifier it is a statement about pads.
#[track_caller]
fn caught(old: &Held, new: &Held, lie: &RotationProof, check: &str, what: &str) {
    assert_eq!(
        lie.violated.first().map(String::as_str),
        Some(check),
        "{what}"
    );
    let found = rejection(&old.id, &new.id, &lie.proof);
    assert!(
        found == check || found.starts_with("pads: "),
        "{what}: {found}"
    );
}

/// The messages of a proof as if they were about other ids.
fn about(digests: [[u8; 32]; 2], proof: &[u8]) -> Vec<u8> {
    let mut w = Writer::new();
    write_rotation_header(&mut w, &digests);
    let header = w.bytes.len();
    w.raw(&proof[header..]);
    w.bytes
}

fn with(id: &ModelId, change: impl FnOnce(&mut ModelId)) -> ModelId {
    let mut id = id.clone();
    change(&mut id);
    id
}

#[test]
fn an_honest_rotation_is_accepted_and_the_new_id_proves_replies() {
    let old = Held::new(micro());
    check(&side(&old)).unwrap();
    let new = rotated(&old, &old.model, 5);
    check(&side(&new)).unwrap();
    assert_ne!(old.id.root, new.id.root);
    let rotation = prove(&side(&old), &side(&new), [6; 32], &mut NoHook).unwrap();
    let verified = verify_rotation(&old.id, &new.id, &rotation.proof).unwrap();
    assert!(total_bits(&verified.soundness) >= 100.0);
    // The rows of both trees carry claims, two for each tensor.
    let rows = 2 * model_layout(&old.id.header, &old.id.params).rows();
    let claims = 2 * WeightId::ALL.len();
    for counted in [format!(", R = {rows}, "), format!(" with {claims} claims")] {
        let terms = &verified.soundness;
        assert!(
            terms.iter().any(|t| t.formula.contains(&counted)),
            "{counted}: {terms:?}"
        );
    }
    println!("{} bytes {:?}", rotation.proof.len(), rotation.sizes);

    let replies = [answer(&new.model, &[3, 5, 7], 4)];
    let batch = prove_batch(
        &new.model,
        &new.id,
        &mut copy(&new.key),
        &replies,
        Padding::default(),
        [9; 32],
        &mut NoHook,
    )
    .unwrap();
    let accepted = verify_batch(&new.id, &batch.proof).unwrap();
    let ended = check_slip(&new.id, &accepted, &batch.slips[0], &replies[0].prompt).unwrap();
    assert_ne!(ended, Ended::Early);
    assert!(verify_batch(&old.id, &batch.proof).is_err());
}

#[test]
fn models_of_few_and_of_many_rows_are_rotated() {
    let tiny = Sizes {
        vocab_size: 3,
        hidden_size: 2,
        intermediate_size: 1,
        num_hidden_layers: 1,
        num_key_value_heads: 1,
        query_group: 1,
        head_dim: 2,
        num_experts: 1,
        num_experts_per_tok: 1,
        max_position_embeddings: 4,
    };
    let wide = Sizes {
        vocab_size: 96,
        hidden_size: 24,
        ..micro_sizes()
    };
    for sizes in [tiny, wide] {
        let old = Held::new(random_model(&sizes, 1));
        let new = rotated(&old, &old.model, 2);
        check(&side(&old)).unwrap();
        let rotation = prove(&side(&old), &side(&new), [3; 32], &mut NoHook).unwrap();
        verify_rotation(&old.id, &new.id, &rotation.proof).unwrap();
    }
}

#[test]
fn proofs_differ_by_their_randomness_alone() {
    let Quick { old, new, proof } = quick();
    let again = |seed| prove_sides(&side(old), &side(new), [seed; 32], &mut NoHook).proof;
    assert!(again(6) == *proof);
    let other = again(7);
    assert_eq!(other.len() / 1000, proof.len() / 1000);
    let header = 12 + 64;
    assert!(other[..header] == proof[..header]);
    assert!(other[header..header + 256] != proof[header..header + 256]);
    let third = rotated(old, &old.model, 8);
    assert_ne!(third.id.digest(), new.id.digest());
    assert_ne!(third.key.seed(), new.key.seed());
    // A generator that repeats itself does not repeat the seed of another owner.
    assert_ne!(rotated(new, &new.model, 5).key.seed(), new.key.seed());
}

#[test]
fn one_other_weight_in_any_tensor_is_caught() {
    let old = &quick().old;
    for id in WeightId::ALL {
        let last = old.model.values(id).len() - 1;
        for cell in [0, last] {
            let other = edited(&old.model, |parts| {
                let value = &mut parts[id.index()].values[cell];
                *value += if *value == 127 { -1 } else { 1 };
            });
            let new = rotated(old, &other, 5);
            let what = format!("{} cell {cell}", id.name());
            let lie = prove_sides(&side(old), &side(&new), [6; 32], &mut NoHook);
            caught(old, &new, &lie, VALUE, &what);
            // The owner of the old key notices before anything is opened.
            let wrong = Side {
                model: &other,
                ..side(old)
            };
            assert!(
                matches!(check(&wrong), Err(RotateError::OtherWeights)),
                "{what}"
            );
        }
    }
}

#[test]
fn nothing_is_released_that_would_be_rejected() {
    let old = &quick().old;
    let other = edited(&old.model, |parts| parts[0].values[0] ^= 1);
    let new = rotated(old, &other, 5);
    let refused = prove(&side(old), &side(&new), [6; 32], &mut NoHook);
    assert!(matches!(refused, Err(RotateError::Violated(check)) if check == VALUE));
}

#[test]
fn another_multiplier_is_another_weight_and_another_factoring_is_not() {
    let id = WeightId::Wq;
    // Even values and small multipliers leave room for both.
    let model = edited(&micro(), |parts| {
        parts[id.index()]
            .values
            .iter_mut()
            .for_each(|v| *v = *v / 2 * 2);
        parts[id.index()].values[0] = 6;
        parts[id.index()]
            .multipliers
            .iter_mut()
            .for_each(|m| *m = (*m).min(30_000));
    });
    let old = Held::quick(model);
    let other = edited(&old.model, |parts| parts[id.index()].multipliers[0] += 1);
    let new = rotated(&old, &other, 5);
    let lie = prove_sides(&side(&old), &side(&new), [6; 32], &mut NoHook);
    caught(&old, &new, &lie, VALUE, "a multiplier");
    let halved = edited(&old.model, |parts| {
        parts[id.index()].values.iter_mut().for_each(|v| *v /= 2);
        parts[id.index()]
            .multipliers
            .iter_mut()
            .for_each(|m| *m *= 2);
    });
    let new = rotated(&old, &halved, 5);
    let same = prove_sides(&side(&old), &side(&new), [6; 32], &mut NoHook);
    assert!(same.violated.is_empty());
}

#[test]
fn rows_that_are_not_the_committed_ones_are_caught() {
    let Quick { old, new, .. } = quick();
    let other = edited(&old.model, |parts| parts[3].values[5] ^= 1);
    // Both sides opened with the new weights: the old root does not have them.
    let (id, key, _) = recommit(
        &Side {
            model: &other,
            ..side(old)
        },
        [5; 32],
        &|_, _| (),
    )
    .unwrap();
    let to = Side {
        model: &other,
        id: &id,
        key: &key,
    };
    let lie = prove_sides(
        &Side {
            model: &other,
            ..side(old)
        },
        &to,
        [6; 32],
        &mut NoHook,
    );
    let leaf = "opening: leaf of the model tree";
    assert_eq!(lie.violated.first().map(String::as_str), Some(leaf));
    rejected_whatever_its_length(&old.id, &id, &lie.proof, leaf);
    // Both opened with the old weights: the new root does not have them.
    let to = Side {
        model: &old.model,
        ..to
    };
    let lie = prove_sides(&side(old), &to, [6; 32], &mut NoHook);
    let leaf = "opening: leaf of the new model tree";
    assert_eq!(lie.violated.first().map(String::as_str), Some(leaf));
    rejected_whatever_its_length(&old.id, &id, &lie.proof, leaf);
    // A root that nobody has opened.
    let foreign = with(&new.id, |id| id.root[0] ^= 1);
    let to = Side {
        id: &foreign,
        ..side(new)
    };
    let lie = prove_sides(&side(old), &to, [6; 32], &mut NoHook);
    assert_eq!(lie.violated.first().map(String::as_str), Some(leaf));
    rejected_whatever_its_length(&old.id, &foreign, &lie.proof, leaf);
}

#[test]
fn other_ids_are_rejected() {
    let Quick { old, new, proof } = quick();
    let (old, new) = (&old.id, &new.id);
    rejected(
        new,
        old,
        proof,
        "model ids: the proof leads from the new id to the old one",
    );
    rejected(old, old, proof, "model ids: both are the same");
    let third = rotated(&quick().old, &quick().old.model, 8).id;
    rejected(
        old,
        &third,
        proof,
        "model ids: the proof is about other ids",
    );
    rejected(
        &third,
        new,
        proof,
        "model ids: the proof is about other ids",
    );
    let shift = with(new, |id| id.header.scales.query_shift ^= 1);
    rejected(old, &shift, proof, "model ids: the headers differ");
    rejected(
        &with(old, |id| id.header.exp_table[7] ^= 1),
        new,
        proof,
        "model ids: the headers differ",
    );
    let tokenizer = with(new, |id| id.tokenizer.push(b' '));
    rejected(old, &tokenizer, proof, "model ids: the tokenizers differ");
    let params = with(new, |id| id.params.queries += 1);
    rejected(old, &params, proof, "model ids: the code parameters differ");
    let root = with(new, |id| id.root[31] ^= 1);
    rejected(old, &root, proof, "model ids: the proof is about other ids");
}

#[test]
fn messages_do_not_fit_other_ids() {
    let Quick { old, new, proof } = quick();
    let (old, new) = (&old.id, &new.id);
    assert!(about([old.digest(), new.digest()], proof) == *proof);
    let third = rotated(&quick().old, &quick().old.model, 8).id;
    for (from, to) in [(new, old), (old, &third), (&third, new)] {
        let moved = about([from.digest(), to.digest()], proof);
        let found = verify_rotation(from, to, &moved).unwrap_err().to_string();
        assert!(
            !found.starts_with("model ids") && !found.starts_with("soundness"),
            "{found}"
        );
    }
}

#[test]
fn proofs_below_the_policy_are_rejected() {
    let Quick { old, new, proof } = quick();
    rejected(&old.id, &new.id, proof, "soundness: ");
}

#[test]
fn every_damaged_message_is_an_error() {
    let Quick { old, new, proof } = quick();
    let verify = |bytes: &[u8]| {
        let error = verify_rotation(&old.id, &new.id, bytes).unwrap_err();
        assert!(
            !error.to_string().starts_with("soundness"),
            "accepted but for the policy"
        );
        error
    };
    for at in (0..proof.len()).filter(|&at| at < 400 || at % 229 == 0) {
        let mut other = proof.clone();
        other[at] ^= 1 << (at % 8);
        let error = verify(&other);
        assert_eq!(
            at < 12,
            matches!(error, VerifyError::Unusable(_)),
            "byte {at}: {error}"
        );
    }
    for n in (0..proof.len()).filter(|&n| n < 400 || n % 997 == 0) {
        let error = verify(&proof[..n]);
        assert_eq!(
            n < 76,
            matches!(error, VerifyError::Unusable(_)),
            "first {n} bytes: {error}"
        );
    }
    let long = verify(&[&proof[..], &[0]].concat());
    assert!(
        matches!(long, VerifyError::Rejected(Reject::Malformed(_))),
        "{long}"
    );
    verify(&vec![0xFF; proof.len()]);
}

#[test]
fn what_does_not_belong_together_is_refused() {
    let Quick { old, new, .. } = quick();
    let mixed = Side {
        key: &new.key,
        ..side(old)
    };
    let refused = check(&mixed).unwrap_err().to_string();
    assert_eq!(refused, "the key belongs to another id");
    let other = random_model(
        &Sizes {
            vocab_size: 41,
            ..micro_sizes()
        },
        7,
    );
    let mixed = Side {
        model: &other,
        ..side(old)
    };
    assert!(matches!(check(&mixed), Err(RotateError::OtherModel)));
    // A key whose columns are those of another commitment.
    let key = Key::new(
        old.id.digest(),
        old.key.seed(),
        new.key.tree().clone(),
        1,
        0,
    );
    let mixed = Side {
        key: &key,
        ..side(old)
    };
    let refused = check(&mixed).unwrap_err().to_string();
    assert!(refused.contains("columns"), "{refused}");
    let key = Key::new(
        old.id.digest(),
        new.key.seed(),
        old.key.tree().clone(),
        1,
        0,
    );
    let mixed = Side {
        key: &key,
        ..side(old)
    };
    assert!(matches!(check(&mixed), Err(RotateError::OtherWeights)));
}

#[test]
fn models_above_the_limits_are_rejected_before_anything_is_allocated() {
    let huge = |root: u8| {
        with(&quick().old.id, |id| {
            let sizes = &mut id.header.sizes;
            sizes.num_hidden_layers = 256;
            sizes.num_experts = 256;
            sizes.hidden_size = 1 << 14;
            sizes.intermediate_size = 1 << 16;
            id.root = [root; 32];
        })
    };
    let (from, to) = (huge(1), huge(2));
    let proof = about([from.digest(), to.digest()], &quick().proof);
    rejected(&from, &to, &proof, "limits: the model has");
}
