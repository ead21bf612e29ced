//! Full disks: no file may be longer than a limit, so that a command fails at the write that the limit is chosen for.

use crate::common::{Beyond, Finished, Place, finish};
use crate::{
    CERTIFY, COMMIT, ORIGINALS, PROVE, ROTATE, RUN, copy, counted, import, kib, others, provider,
    wait_until_counted, with_large_id,
};

/// What the system says of a file that would be too long, and what helps.
const FULL: [&str; 2] = ["File too large", "ulimit -f"];

fn full(place: &Place, kib: u64, args: &str, parts: &[&str]) -> Finished {
    let finished = finish(place.limited(kib, Beyond::Fails, args));
    finished.refused(&[&FULL[..], parts].concat())
}

#[test]
fn an_import_that_does_not_fit_leaves_what_was_there() {
    let place = provider("full-import");
    full(&place, 1000, &import("new.zkm"), &["new.zkm"]);
    assert!(others(&place).is_empty());
    let before = place.read("model.zkm");
    full(&place, 1000, &import("model.zkm"), &["model.zkm"]);
    assert!(place.read("model.zkm") == before);
    assert_eq!(place.names(), ORIGINALS);
    place.expect(&import("new.zkm"), 0);
    // Nothing of an import is random.
    assert!(place.read("new.zkm") == before);
}

#[test]
fn a_reply_that_does_not_fit_leaves_what_was_there() {
    let place = provider("full-run");
    full(&place, 0, RUN, &["new.json"]);
    let before = place.read("story.json");
    full(
        &place,
        0,
        &RUN.replace("new.json", "story.json"),
        &["story.json"],
    );
    assert!(place.read("story.json") == before);
    assert_eq!(place.names(), ORIGINALS);
    place.expect(RUN, 0);
    assert!(place.read("new.json") == before);
}

#[test]
fn a_commitment_that_does_not_fit_leaves_neither_key_nor_id() {
    let place = copy(with_large_id(), "full-commit");
    let key = kib(&place, "model.key");
    assert!(key < kib(&place, "model.id"));
    full(&place, key - 1, COMMIT, &["new.key"]);
    assert!(others(&place).is_empty());
    full(&place, key, COMMIT, &["new.id"]);
    assert!(others(&place).is_empty());
    place.expect(COMMIT, 0);
    assert_eq!(others(&place), ["new.id", "new.key"]);
}

#[test]
fn a_certificate_that_does_not_fit_is_counted_and_that_is_said() {
    let place = provider("full-certify");
    // No room to count in.
    full(&place, 4, CERTIFY, &["model.key", "has counted nothing"]);
    assert_eq!(counted(&place), [0, 0, 0]);
    assert!(others(&place).is_empty());
    let parts = ["model.cert", "has counted it all the same", "zkmoe rotate"];
    full(&place, 12, CERTIFY, &parts);
    assert_eq!(counted(&place), [0, 1, 0]);
    assert_eq!(others(&place), ["model.key.last"]);
    let again = finish(place.command(CERTIFY));
    again.refused(&[
        "model.key: the certificate of this key is spent",
        "zkmoe rotate",
    ]);
    // What the advice is worth.
    place.expect(ROTATE, 0);
    place.expect(
        "certify model.zkm --key next.key --id next.id --out next.cert",
        0,
    );
    place.expect("verify-model --id next.id --cert next.cert", 0);
}

#[test]
fn a_proof_that_does_not_fit_is_counted_and_leaves_nothing_else() {
    let place = provider("full-prove");
    for kib in [4, 8] {
        full(&place, kib, PROVE, &["model.key", "has counted nothing"]);
        assert_eq!(counted(&place), [0, 0, 0]);
        assert!(others(&place).is_empty());
    }
    let parts = [
        "batch.proof",
        "has counted it all the same",
        "prove the batch again",
    ];
    full(&place, 12, &PROVE.replace("proofs", "deep/proofs"), &parts);
    assert_eq!(counted(&place), [1, 0, 0]);
    assert_eq!(others(&place), ["model.key.last"]);
    // Room for the key's next ledger, but not for that of the file beside it, which the next run brings up to date.
    let parts = ["model.key.last", "has counted it all the same"];
    full(&place, 8, PROVE, &parts);
    assert_eq!(counted(&place), [2, 0, 0]);
    assert_eq!(others(&place), ["model.key.last"]);
    place.expect(PROVE, 0);
    assert_eq!(counted(&place), [3, 0, 0]);
    assert_eq!(
        others(&place),
        [
            "model.key.last",
            "proofs",
            "proofs/batch.proof",
            "proofs/story.slip"
        ]
    );
}

#[test]
fn a_rotation_that_does_not_fit_leaves_no_key_and_no_id() {
    let place = copy(with_large_id(), "full-rotate");
    let key = kib(&place, "model.key");
    full(
        &place,
        key - 1,
        ROTATE,
        &["next.key", "has counted nothing"],
    );
    full(&place, key, ROTATE, &["next.id", "has counted nothing"]);
    assert!(others(&place).is_empty());
    assert_eq!(counted(&place), [0, 0, 0]);

    // A folder that goes away is as good as one that is full: the proof is the last to be written.
    std::fs::create_dir(place.file("out")).unwrap();
    let rotate = ROTATE.replace("rotate.proof", "out/rotate.proof");
    let mut child = place.command(&rotate).spawn().unwrap();
    wait_until_counted(&place, &mut child);
    std::fs::remove_dir(place.file("out")).unwrap();
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{err}");
    for part in [
        "out/rotate.proof",
        "has counted it all the same",
        "zkmoe commit",
    ] {
        assert!(err.contains(part), "{part}: {err}");
    }
    assert_eq!(counted(&place), [0, 0, 1]);
    assert_eq!(others(&place), ["model.key.last"]);
    let again = finish(place.command(ROTATE));
    again.refused(&[
        "model.key: the rotation of this key is spent",
        "zkmoe commit",
    ]);
    place.expect(COMMIT, 0);
}

#[test]
fn a_note_that_does_not_fit_is_no_verdict() {
    let place = provider("full-note");
    place.expect(CERTIFY, 0);
    let verify = "verify-model --id model.id --cert model.cert";
    full(&place, 0, verify, &["state/notes.secret", "--state"]);
    place.expect(verify, 0);
    std::fs::remove_file(place.file("model.id.certified")).unwrap();
    full(&place, 0, verify, &["model.id.certified", "--cert"]);
    assert!(!place.has("model.id.certified"));
    place.expect(verify, 0);
}

#[test]
fn a_demo_that_does_not_fit_leaves_nothing() {
    let place = Place::new("faults-full-demo");
    let mut demo = place.limited(1000, Beyond::Fails, "demo");
    demo.env("TMPDIR", &place.0);
    finish(demo).with_code(2);
    assert!(place.names().is_empty());
}

/// A device that is always full takes the place of standard output.
#[cfg(target_os = "linux")]
#[test]
fn a_report_that_does_not_fit_is_an_error_and_the_files_are_whole() {
    let place = provider("full-report");
    for args in [RUN, COMMIT, "inspect model.id", "inspect model.id --json"] {
        let mut command = place.command(args);
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
        command.stdout(full.unwrap());
        let finished = finish(command).refused(&["standard output: No space left"]);
        assert!(finished.err.contains("zkmoe inspect"), "{}", finished.err);
    }
    // A reply that nobody could read is not written; a commitment is made before it is reported.
    assert_eq!(others(&place), ["new.id", "new.key"]);
    place.expect("inspect new.key", 0);
}
