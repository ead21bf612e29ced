//! Kills between two writes: the limit on the length of files ends the process by a signal, at the write that the limit is
//! chosen for. What the kill leaves is whole, and the next run says what it is or works.
//!
//! `crash.rs` kills at any moment of each command.

use crate::common::{Beyond, Place, finish};
use crate::{
    CERTIFY, COMMIT, ORIGINALS, PROVE, ROTATE, RUN, copy, counted, import, kib, others, provider,
    wait_until_counted, with_large_id,
};

fn killed(place: &Place, kib: u64, args: &str) {
    finish(place.limited(kib, Beyond::Kills, args)).killed();
}

#[test]
fn a_killed_import_leaves_what_was_there() {
    let place = provider("killed-import");
    let before = place.read("model.zkm");
    for kib in [0, 1, 1024, kib(&place, "model.zkm") - 1] {
        killed(&place, kib, &import("new.zkm"));
        killed(&place, kib, &import("model.zkm"));
        assert_eq!(place.names(), ORIGINALS);
        assert!(place.read("model.zkm") == before);
    }
    killed(&place, 0, RUN);
    assert_eq!(place.names(), ORIGINALS);
}

#[test]
fn a_killed_commit_leaves_no_id_without_its_key() {
    let place = copy(with_large_id(), "killed-commit");
    let key = kib(&place, "model.key");
    for kib in [0, 8, key - 1] {
        killed(&place, kib, COMMIT);
        assert!(others(&place).is_empty());
    }
    killed(&place, key, COMMIT);
    assert_eq!(others(&place), ["new.key"]);
    place.expect("inspect new.key", 0);
    // It stands in the way, and the error says how to find out what it is.
    let again = finish(place.command(COMMIT));
    again.refused(&["new.key: exists", "zkmoe inspect new.key"]);
    std::fs::remove_file(place.file("new.key")).unwrap();
    place.expect(COMMIT, 0);
}

#[test]
fn a_killed_certificate_or_proof_is_counted_and_not_half_there() {
    let place = provider("killed-certify");
    // Before a byte of the ledger is written.
    killed(&place, 8, CERTIFY);
    assert_eq!(counted(&place), [0, 0, 0]);
    // When all of it but the zeros at the end was.
    killed(&place, 9, CERTIFY);
    assert_eq!(counted(&place), [0, 1, 0]);
    assert!(others(&place).is_empty());
    let again = finish(place.command(CERTIFY));
    again.refused(&[
        "model.key: the certificate of this key is spent",
        "zkmoe rotate",
    ]);

    killed(&place, 200, PROVE);
    assert_eq!(counted(&place), [1, 1, 0]);
    let left = ["model.key.last", "proofs", "proofs/story.slip"];
    assert_eq!(others(&place), left);
    let again = finish(place.command(PROVE));
    again.refused(&["proofs/story.slip: exists without its proof", "--out"]);
    place.expect(&PROVE.replace("proofs", "again"), 0);
    assert_eq!(counted(&place), [2, 1, 0]);
}

#[test]
fn a_killed_rotation_leaves_a_commitment_or_nothing() {
    let place = copy(with_large_id(), "killed-rotate");
    let key = kib(&place, "model.key");
    killed(&place, key - 1, ROTATE);
    assert!(others(&place).is_empty());
    killed(&place, key, ROTATE);
    assert_eq!(others(&place), ["next.key"]);
    assert_eq!(counted(&place), [0, 0, 0]);
    let again = finish(place.command(ROTATE));
    again.refused(&["next.key: exists", "zkmoe inspect next.key"]);
    std::fs::remove_file(place.file("next.key")).unwrap();

    // Between the count and the end of the proof.
    let mut child = place.command(ROTATE).spawn().unwrap();
    wait_until_counted(&place, &mut child);
    child.kill().unwrap();
    child.wait().unwrap();
    let left = others(&place);
    assert!(
        left.ends_with(&["next.id".to_owned(), "next.key".to_owned()]),
        "{left:?}"
    );
    assert_eq!(counted(&place), [0, 0, 1]);
    let again = finish(place.command(&ROTATE.replace("next.", "third.")));
    again.refused(&[
        "model.key: the rotation of this key is spent",
        "zkmoe commit",
    ]);
    // What is left is an ordinary commitment.
    place.expect(
        "certify model.zkm --key next.key --id next.id --out next.cert",
        0,
    );
    place.expect("verify-model --id next.id --cert next.cert", 0);
}
