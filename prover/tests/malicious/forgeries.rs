//! Finished proofs and slips that are changed, truncated, relabelled or used for something else.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use rayon::prelude::*;
use zkmoe_commit::channel::Reject;
use zkmoe_commit::codec::{Reader, Writer};
use zkmoe_commit::field::from_i64;
use zkmoe_prover::key::{Key, KeyError};
use zkmoe_prover::prove::{BatchProof, NoHook, ProveError, Reply, prove};
use zkmoe_prover::trace::{Loads, Padding};
use zkmoe_verifier::batch::{BatchHeader, read_proof_header, write_proof_header};
use zkmoe_verifier::slip::Slip;
use zkmoe_verifier::verify::{Ended, VerifyError, check_slip, verify_batch};

use crate::common::{Committed, answer, dishonest, fault, micro, rejection, trace_of};

/// An honest batch under real parameters.
fn honest() -> &'static (Committed, Vec<Reply>, BatchProof) {
    static HONEST: OnceLock<(Committed, Vec<Reply>, BatchProof)> = OnceLock::new();
    HONEST.get_or_init(|| {
        let by = Committed::new(micro());
        let replies = vec![
            answer(&by.model, &[3, 5, 7], 3),
            answer(&by.model, &[1, 2, 3, 4], 3),
        ];
        let batch = prove(
            &by.model,
            &by.id,
            &mut by.key(),
            &replies,
            Padding::default(),
            [1; 32],
            &mut NoHook,
        )
        .unwrap();
        assert_eq!(fault(&by.id, &batch), None);
        (by, replies, batch)
    })
}

#[test]
fn any_changed_byte_is_rejected() {
    let (by, _, batch) = honest();
    let proof = &batch.proof;
    let positions: Vec<usize> = (0..proof.len()).step_by(97).collect();
    let checks: BTreeMap<String, usize> = positions
        .par_iter()
        .map(|&n| {
            let mut changed = proof.clone();
            changed[n] ^= 1 << (n % 8);
            match verify_batch(&by.id, &changed) {
                Ok(_) => panic!("byte {n} may be changed"),
                Err(VerifyError::Rejected(Reject::Check(name))) => name,
                Err(_) => "decoding".into(),
            }
        })
        .fold(
            BTreeMap::new,
            |mut counts: BTreeMap<String, usize>, name| {
                *counts.entry(name).or_default() += 1;
                counts
            },
        )
        .reduce(BTreeMap::new, |mut a, b| {
            for (name, n) in b {
                *a.entry(name).or_default() += n;
            }
            a
        });
    println!("{} bytes changed: {checks:#?}", positions.len());
}

#[test]
fn a_proof_of_another_length_is_rejected() {
    let (by, _, batch) = honest();
    let proof = &batch.proof;
    for length in (0..proof.len())
        .step_by(9973)
        .chain([1, 12, 44, proof.len() - 1])
    {
        assert!(
            verify_batch(&by.id, &proof[..length]).is_err(),
            "{length} bytes"
        );
    }
    for more in [&[0][..], &[0; 16], proof] {
        assert!(verify_batch(&by.id, &[proof, more].concat()).is_err());
    }
}

/// The proof with another header before the same messages.
fn with_header(by: &Committed, proof: &[u8], edit: impl FnOnce(&mut BatchHeader)) -> Vec<u8> {
    let mut reader = Reader::new(proof);
    let (id, mut header) = read_proof_header(&mut reader, &by.id.header).unwrap();
    let rest = reader.raw(reader.remaining(), "proof").unwrap();
    edit(&mut header);
    let mut w = Writer::new();
    write_proof_header(&mut w, &id, &header);
    w.raw(rest);
    w.bytes
}

type HeaderEdit = fn(&mut BatchHeader);

#[test]
fn another_batch_header_is_rejected() {
    let (by, replies, batch) = honest();
    let proof = &batch.proof;
    assert!(with_header(by, proof, |_| ()) == *proof);
    let edits: [(&str, HeaderEdit); 17] = [
        ("a length is larger", |h| h.shape.lengths[0] += 1),
        ("a length is larger by a padding", |h| {
            h.shape.lengths[0] += 8;
        }),
        ("a length is smaller", |h| h.shape.lengths[1] -= 1),
        ("a load is larger", |h| h.shape.blocks[0].2 += 1),
        ("a load is smaller", |h| h.shape.blocks[1].2 -= 1),
        ("an expert is missing", |h| {
            h.shape.blocks.pop();
        }),
        ("an expert has another layer", |h| {
            let last = h.shape.blocks.iter().rposition(|b| b.0 == 0).unwrap();
            h.shape.blocks[last].0 = 1;
        }),
        ("loads are exchanged", |h| {
            let load = h.shape.blocks[0].2;
            let other = h.shape.blocks.iter().position(|b| b.2 != load).unwrap_or(1);
            h.shape.blocks[0].2 = h.shape.blocks[other].2;
            h.shape.blocks[other].2 = load + usize::from(h.shape.blocks[other].2 == load);
        }),
        ("more rows are decoded", |h| h.shape.decoded += 1),
        ("fewer rows are decoded", |h| h.shape.decoded -= 1),
        ("a hash is changed", |h| h.blocks[0][0] ^= 1),
        ("the last hash is changed", |h| h.blocks[1][31] ^= 0x80),
        ("hashes are swapped", |h| h.blocks.swap(0, 1)),
        ("a request is missing", |h| {
            h.shape.lengths.pop();
            h.blocks.pop();
        }),
        ("it follows another proof", |h| h.link[0][7] ^= 1),
        ("another proof follows it", |h| h.link[1][31] ^= 0x80),
        ("it follows itself", |h| h.link[0] = h.link[1]),
    ];
    // The work is bound to the header; where none is asked for, the argument itself has to fail.
    let lazy = Committed::quick(micro());
    let trace = trace_of(&lazy.model, replies, Loads::Multiple(8));
    let other = dishonest(&lazy, replies, &trace, &mut NoHook).proof;
    for (name, edit) in edits {
        assert!(
            verify_batch(&by.id, &with_header(by, proof, edit)).is_err(),
            "{name}"
        );
        match verify_batch(&lazy.id, &with_header(&lazy, &other, edit)) {
            Ok(_) => panic!("{name}"),
            Err(error) => {
                let error = error.to_string();
                // What is malformed never reaches the argument.
                let expected = [
                    "opening: leaf of the model tree",
                    "proof: `active experts`",
                    "proof: `chain value of this proof`",
                ];
                assert!(
                    expected.iter().any(|e| error.starts_with(e)),
                    "{name}: {error}"
                );
            }
        }
    }
}

#[test]
fn another_commitment_of_the_same_model_is_another_model() {
    let (by, replies, batch) = honest();
    let other = Committed::with(micro(), by.id.params.clone(), [4; 32]);
    let found = rejection(&other.id, &batch.proof).unwrap();
    assert!(found.starts_with("model id"), "{found}");
    // The same messages under the other id.
    let mut renamed = batch.proof.clone();
    let place = renamed
        .windows(32)
        .position(|w| w == by.id.digest())
        .unwrap();
    renamed[place..place + 32].copy_from_slice(&other.id.digest());
    assert!(rejection(&other.id, &renamed).is_some());
    // The other key's randomness under this id: the key is refused, and a forced one opens other leaves.
    let theirs = other.key();
    let mut mixed = Key::new(
        by.id.digest(),
        theirs.seed(),
        theirs.tree().clone(),
        theirs.limit(),
        0,
    );
    let refused = prove(
        &by.model,
        &by.id,
        &mut mixed,
        replies,
        Padding::default(),
        [1; 32],
        &mut NoHook,
    );
    assert!(
        matches!(&refused, Err(ProveError::Key(KeyError::Mismatch(why))) if why.contains("columns")),
        "{refused:?}"
    );
    let forced = Committed::with(micro(), by.id.params.clone(), [3; 32]).with_key(&mixed);
    assert_eq!(forced.id.digest(), by.id.digest());
    let trace = trace_of(&forced.model, replies, Loads::Multiple(8));
    let forged = dishonest(&forced, replies, &trace, &mut NoHook);
    let found = fault(&by.id, &forged);
    assert_eq!(found.as_deref(), Some("opening: leaf of the model tree"));
}

#[test]
fn a_slip_is_for_one_request_and_one_text() {
    let (by, replies, batch) = honest();
    let accepted = verify_batch(&by.id, &batch.proof).unwrap();
    let (slip, prompt) = (&batch.slips[0], &replies[0].prompt);
    assert_ne!(
        check_slip(&by.id, &accepted, slip, prompt).unwrap(),
        Ended::Early
    );
    let seeds = [2; 32];
    let mut key = by.key();
    let padding = Padding::default();
    let twin = prove(
        &by.model,
        &by.id,
        &mut key,
        replies,
        padding,
        seeds,
        &mut NoHook,
    )
    .unwrap();
    let reject = |name: &str, slip: &Slip, prompt: &[u32], check: &str| match check_slip(
        &by.id, &accepted, slip, prompt,
    ) {
        Err(Reject::Check(found)) => assert!(found.contains(check), "{name}: {found}"),
        other => panic!("{name}: {other:?}"),
    };
    let other = "holds another prompt, response or limit";
    let change = |edit: &dyn Fn(&mut Slip)| {
        let mut changed = slip.clone();
        edit(&mut changed);
        changed
    };
    reject("the other request's slip", &batch.slips[1], prompt, other);
    reject(
        "the other request's prompt",
        slip,
        &replies[1].prompt,
        other,
    );
    reject(
        "the other request's number",
        &change(&|s| s.request = 1),
        prompt,
        other,
    );
    reject(
        "no such request",
        &change(&|s| s.request = 2),
        prompt,
        "no such request",
    );
    reject("another batch", &twin.slips[0], prompt, other);
    reject("another prompt", slip, &[3, 5, 8], other);
    reject("a shorter prompt", slip, &[3, 5], other);
    reject("no prompt", slip, &[], "do not fit");
    reject("too long a prompt", slip, &[3; 9], "do not fit");
    reject(
        "a token of no vocabulary",
        slip,
        &[3, 5, 40],
        "not in the vocabulary",
    );
    reject(
        "another response",
        &change(&|s| s.response[1] = (s.response[1] + 1) % 40),
        prompt,
        other,
    );
    reject(
        "an exchanged response",
        &change(&|s| s.response.reverse()),
        prompt,
        other,
    );
    reject(
        "a shorter response",
        &change(&|s| s.response.truncate(1)),
        prompt,
        other,
    );
    reject(
        "a longer response",
        &change(&|s| s.response.push(1)),
        prompt,
        other,
    );
    reject(
        "no response",
        &change(&|s| s.response.clear()),
        prompt,
        "do not fit",
    );
    reject(
        "another limit",
        &change(&|s| s.max_tokens += 1),
        prompt,
        other,
    );
    reject("another salt", &change(&|s| s.salt[5] ^= 4), prompt, other);
    for n in 0..4 {
        let changed = change(&|s| s.cells[n] += from_i64(1));
        reject("other cells", &changed, prompt, other);
    }
    // A batch whose header holds the hash that the customer computes, but whose proof is about another block.
    let mut forged = accepted.clone();
    forged.evaluations.swap(0, 1);
    let found = check_slip(&by.id, &forged, slip, prompt);
    assert!(
        matches!(&found, Err(Reject::Check(name)) if name.contains("about another block")),
        "{found:?}"
    );
}

/// Two requests change places after proving: their hashes, or their stated evaluations.
#[test]
fn requests_keep_their_places() {
    let (by, replies, batch) = honest();
    let swapped: Vec<Reply> = replies.iter().rev().cloned().collect();
    let trace = trace_of(&by.model, &swapped, Loads::Multiple(8));
    // The trace is of the swapped order, header and slips are of the claimed one.
    let forged = dishonest(by, replies, &trace, &mut NoHook);
    let found = fault(&by.id, &forged);
    assert_eq!(found.as_deref(), Some("blocks of requests: evaluations"));
    let hashes = with_header(by, &batch.proof, |h| h.blocks.swap(0, 1));
    assert!(verify_batch(&by.id, &hashes).is_err());
}

/// A reply whose first token is passed off as part of the prompt: the proof holds, the customer's slip does not.
#[test]
fn a_reply_split_in_another_place_is_noticed_by_the_slip() {
    let by = Committed::new(micro());
    let reply = answer(&by.model, &[3, 5, 7], 3);
    let (first, rest) = reply.response.split_first().unwrap();
    let split = Reply {
        prompt: [&reply.prompt[..], &[*first]].concat(),
        response: rest.to_vec(),
        max_tokens: 3,
    };
    let batch = prove(
        &by.model,
        &by.id,
        &mut by.key(),
        &[split],
        Padding::default(),
        [1; 32],
        &mut NoHook,
    )
    .unwrap();
    let accepted = verify_batch(&by.id, &batch.proof).unwrap();
    let slip = &batch.slips[0];
    let honest = Slip {
        response: reply.response.clone(),
        ..slip.clone()
    };
    for slip in [slip, &honest] {
        let found = check_slip(&by.id, &accepted, slip, &reply.prompt);
        let Err(Reject::Check(name)) = found else {
            panic!("{found:?}");
        };
        assert!(name.contains("another prompt, response or limit"), "{name}");
    }
}
