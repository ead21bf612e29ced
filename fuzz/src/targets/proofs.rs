//! Proofs of batches, certificates, rotations, and slips.

use zkmoe::commit::channel::Reject;
use zkmoe::commit::codec::{Reader, Writer};
use zkmoe::verifier::batch::{read_proof_header, write_proof_header};
use zkmoe::verifier::certificate::verify_certificate;
use zkmoe::verifier::rotation::verify_rotation;
use zkmoe::verifier::slip::Slip;
use zkmoe::verifier::verify::{VerifyError, check_slip, verify_batch};

use super::numbered;
use crate::edits::{self, edit};
use crate::fixtures::{self, POLICY, batches, provider};

/// Panics if a file gets as far as the policy, which is the last check, and is none of those that may.
fn refused<T>(verdict: Result<T, VerifyError>, valid: bool, what: &str) {
    match verdict {
        Ok(_) => panic!("{what}: short openings are accepted"),
        Err(VerifyError::Rejected(Reject::Check(name))) if name.starts_with(POLICY) => {
            assert!(valid, "{what}: a changed file holds but for the policy");
        }
        Err(error) => assert!(!valid, "{what}: an honest file fails: {error}"),
    }
}

/// The bytes of a batch proof, whatever they are. Only the two valid ones may hold, and a header that is read is written
/// with the same bytes.
pub fn proof(data: &[u8]) {
    let id = &provider().id;
    let mut r = Reader::new(data);
    if let Ok((named, header)) = read_proof_header(&mut r, &id.header) {
        let mut w = Writer::new();
        write_proof_header(&mut w, &named, &header);
        assert_eq!(w.bytes, data[..data.len() - r.remaining()]);
    }
    let valid = batches().iter().any(|b| b.proof == data);
    refused(verify_batch(id, data), valid, "batch");
}

/// Both proofs, and starts of the smaller one.
pub fn proof_seeds() -> Vec<(String, Vec<u8>)> {
    let [large, small] = batches();
    let small = &small.proof;
    let starts = [44, 48, 400, 2000, small.len() - 1].map(|n| small[..n].to_vec());
    numbered(
        [large.proof.clone(), small.clone()]
            .into_iter()
            .chain(starts),
    )
}

/// Edits of a valid batch proof; the first byte says of which. None but the two valid ones may hold.
pub fn proof_mutated(data: &[u8]) {
    let Some((&which, program)) = data.split_first() else {
        return;
    };
    let [a, b] = batches();
    let (of, other) = if which & 1 == 0 { (b, a) } else { (a, b) };
    let bytes = edit(&of.parts, &other.parts, program);
    let valid = batches().iter().any(|b| b.proof == bytes);
    refused(verify_batch(&provider().id, &bytes), valid, "batch");
}

/// Edits of the certificate, or its bytes as they are where the first one is odd.
pub fn certificate(data: &[u8]) {
    let Some((&which, program)) = data.split_first() else {
        return;
    };
    let valid = fixtures::certificate();
    let bytes = if which & 1 == 0 {
        edit(valid, valid, program)
    } else {
        program.to_vec()
    };
    let same = bytes == valid.bytes();
    refused(
        verify_certificate(&provider().id, &bytes),
        same,
        "certificate",
    );
}

/// Edits of the rotation, or its bytes as they are where the first one is odd. Its ids are never taken for each other.
pub fn rotation(data: &[u8]) {
    let Some((&which, program)) = data.split_first() else {
        return;
    };
    let rotated = fixtures::rotation();
    let (old, new) = (&provider().id, &rotated.id);
    let bytes = if which & 1 == 0 {
        edit(&rotated.parts, &rotated.parts, program)
    } else {
        program.to_vec()
    };
    let same = bytes == rotated.parts.bytes();
    refused(verify_rotation(old, new, &bytes), same, "rotation");
    if which & 2 != 0 {
        refused(verify_rotation(new, old, &bytes), false, "turned rotation");
    }
}

/// All kinds of edits.
pub fn programs() -> Vec<(String, Vec<u8>)> {
    let first = |(name, program): (String, Vec<u8>)| (name, [&[0][..], &program].concat());
    edits::programs().into_iter().map(first).collect()
}

/// A slip. What is read is written with the same bytes, and only the slip of a request is good for that request's prompt.
pub fn slip(data: &[u8]) {
    let Ok(slip) = Slip::decode(data) else {
        return;
    };
    assert_eq!(slip.encode(), data);
    for proved in batches() {
        for (n, reply) in proved.replies.iter().enumerate() {
            let verdict = check_slip(&provider().id, &proved.accepted, &slip, &reply.prompt);
            // The name of the model in a slip is a hint and decides nothing.
            let issued = Slip {
                model: slip.model,
                ..proved.slips[n].clone()
            };
            assert_eq!(verdict.is_ok(), slip == issued, "request {n}: {verdict:?}");
        }
    }
}

/// All slips.
pub fn slip_seeds() -> Vec<(String, Vec<u8>)> {
    let slips = batches().iter().flat_map(|b| &b.slips);
    numbered(slips.map(Slip::encode))
}
