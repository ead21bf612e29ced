//! The `zkmoe` command as a user runs it: one honest run from checkpoint to verdict, and everything that has to be
//! rejected (exit code 1) or refused (exit code 2) along the way.
//!
//! All tests share one folder with a committed model, two replies and their proof.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use zkmoe::commands::decision::TermReport;
use zkmoe::commit::codec::Reader;
use zkmoe::prover::key::{Key, KeyState};
use zkmoe::prover::model::{Model, Tensor, WeightId};
use zkmoe::prover::tokenizer::Tokenizer;
use zkmoe::reply::Reply;
use zkmoe::state::State;
use zkmoe::verdict::{Certified, How, write_verdict};
use zkmoe::verifier::batch::read_proof_header;
use zkmoe::verifier::forecast::Forecast;
use zkmoe::verifier::id::ModelId;
use zkmoe::verifier::slip::Slip;
use zkmoe::verifier::verify::verify_batch;

const PROMPTS: [(&str, &str); 2] = [
    ("story", "Once upon a time"),
    ("word", "The meaning of the word is"),
];

fn zkmoe(args: &[&str], stdin: &[u8]) -> Output {
    zkmoe_under(&[("ZKMOE_STATE", Some("state"))], args, stdin)
}

/// Runs the command with variables of the environment changed: folders within that of the tests, or none.
fn zkmoe_under(changes: &[(&str, Option<&str>)], args: &[&str], stdin: &[u8]) -> Output {
    // A key is locked while it is used, and most tests share one.
    static KEYS: Mutex<()> = Mutex::new(());
    let _turn = args
        .contains(&"--key")
        .then(|| KEYS.lock().unwrap_or_else(PoisonError::into_inner));
    let mut command = Command::new(env!("CARGO_BIN_EXE_zkmoe"));
    for (variable, value) in changes {
        match value {
            Some(name) => command.env(variable, folder().join(name)),
            None => command.env_remove(variable),
        };
    }
    let mut child = command
        .args(args)
        .current_dir(folder())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that needs no input may have ended before it is given any.
    let _ = child.stdin.take().unwrap().write_all(stdin);
    child.wait_with_output().unwrap()
}

#[track_caller]
fn expect(args: &[&str], code: i32) -> (String, String) {
    expect_with(args, b"", code)
}

#[track_caller]
fn expect_with(args: &[&str], stdin: &[u8], code: i32) -> (String, String) {
    expected(args, zkmoe(args, stdin), code)
}

#[track_caller]
fn expect_under(changes: &[(&str, Option<&str>)], args: &[&str], code: i32) -> (String, String) {
    expected(args, zkmoe_under(changes, args, b""), code)
}

#[track_caller]
fn expected(args: &[&str], output: Output, code: i32) -> (String, String) {
    let (out, err) = (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    );
    assert_eq!(output.status.code(), Some(code), "{args:?}\n{out}\n{err}");
    (out, err)
}

/// The folder, empty.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cli");
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        path
    })
}

/// The folder with a model, two commitments to it of which one is certified, two replies and their proof.
fn prepared() -> &'static Path {
    static PREPARED: OnceLock<()> = OnceLock::new();
    PREPARED.get_or_init(|| {
        let checkpoint = concat!(env!("CARGO_MANIFEST_DIR"), "/data/olmoe-tiny");
        let (out, _) = expect(&["import", checkpoint, "--out", "model.zkm"], 0);
        assert!(
            out.contains("perplexity, integer") && out.contains("same experts"),
            "{out}"
        );
        let (out, _) = expect(
            &[
                "commit",
                "model.zkm",
                "--id",
                "model.id",
                "--key",
                "model.key",
                "--batches",
                "8",
            ],
            0,
        );
        let id = ModelId::decode(&fs::read(folder().join("model.id")).unwrap()).unwrap();
        assert!(
            out.contains(&hex(&id.digest())) && out.contains("many ids"),
            "{out}"
        );
        expect(
            &[
                "commit",
                "model.zkm",
                "--id",
                "other.id",
                "--key",
                "other.key",
                "--batches",
                "4",
            ],
            0,
        );
        let (out, _) = expect(&certify_args("model.cert"), 0);
        assert!(
            out.contains("publish it") && out.contains("ns for each"),
            "{out}"
        );
        println!("{out}");
        let (out, _) = expect(&verify_model_args("model.id", "model.cert"), 0);
        assert!(out.starts_with("ACCEPTED "), "{out}");
        for (name, prompt) in PROMPTS {
            let out = format!("{name}.json");
            let (text, _) = expect(
                &[
                    "run",
                    "model.zkm",
                    "--prompt",
                    prompt,
                    "--max-tokens",
                    "8",
                    "--out",
                    &out,
                ],
                0,
            );
            let reply = reply(name);
            assert_eq!(text, reply.response, "to a file, byte for byte");
            assert_eq!(reply.prompt, prompt);
            fs::write(folder().join(format!("{name}.txt")), text).unwrap();
        }
        let (out, err) = expect(&prove_args(&["story.json", "word.json"], "proofs"), 0);
        assert!(
            out.contains("batches left") && out.contains("run the model"),
            "{out}"
        );
        assert!(err.contains("Estimate"), "{err}");
    });
    folder()
}

fn certify_args(out: &str) -> [&str; 8] {
    let key = ["--key", "model.key", "--id", "model.id", "--out"];
    let [a, b, c, d, e] = key;
    ["certify", "model.zkm", a, b, c, d, e, out]
}

fn verify_model_args<'a>(id: &'a str, cert: &'a str) -> [&'a str; 5] {
    ["verify-model", "--id", id, "--cert", cert]
}

fn hex(bytes: &[u8]) -> String {
    zkmoe::output::hex(bytes)
}

fn reply(name: &str) -> Reply {
    Reply::open(&folder().join(format!("{name}.json"))).unwrap()
}

fn tokenizer() -> Tokenizer {
    Tokenizer::from_json(include_bytes!("../data/olmoe-tiny/tokenizer.json")).unwrap()
}

fn prove_args<'a>(replies: &[&'a str], out: &'a str) -> Vec<&'a str> {
    [
        &[
            "prove",
            "model.zkm",
            "--key",
            "model.key",
            "--id",
            "model.id",
            "--out",
            out,
        ],
        replies,
    ]
    .concat()
}

/// The arguments that verify the first reply, after some changes: pairs of an option and its new value.
fn verify_args<'a>(changes: &[(&'a str, &'a str)]) -> Vec<&'a str> {
    let mut options = vec![
        ("--id", "model.id"),
        ("--proof", "proofs/batch.proof"),
        ("--slip", "proofs/story.slip"),
        ("--prompt", PROMPTS[0].1),
        ("--response-file", "story.txt"),
    ];
    for &(option, value) in changes {
        match options.iter_mut().find(|(name, _)| *name == option) {
            Some(entry) => entry.1 = value,
            None => options.push((option, value)),
        }
    }
    let mut args = vec!["verify"];
    args.extend(
        options
            .into_iter()
            .flat_map(|(name, value)| [name, value])
            .filter(|x| !x.is_empty()),
    );
    args
}

#[track_caller]
fn rejected(changes: &[(&str, &str)], reason: &str) {
    let (out, _) = expect(&verify_args(changes), 1);
    assert!(
        out.starts_with("REJECTED: ") && out.contains(reason),
        "{out}"
    );
    assert_eq!(out.lines().count(), 1, "{out}");
}

#[test]
fn honest_replies_are_accepted() {
    let folder = prepared();
    let id = hex(
        &ModelId::decode(&fs::read(folder.join("model.id")).unwrap())
            .unwrap()
            .digest(),
    );
    let (out, _) = expect(
        &verify_args(&[("--expect-id", &id), ("--max-tokens", "8")]),
        0,
    );
    assert!(out.starts_with("ACCEPTED "), "{out}");
    for part in [
        &id[..],
        "token for token",
        "batch of 2",
        "limit of 8 tokens",
        "Weights in range: ",
        "Soundness: ",
        "Altogether: ",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    let (out, _) = expect(&verify_args(&[("--json", "")]), 0);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["verdict"], "ACCEPTED");
    assert_eq!(json["model_id"], id);
    let bits = json["soundness_bits"].as_f64().unwrap();
    let weights = json["weights"]["soundness_bits"].as_f64().unwrap();
    let total = json["total_bits"].as_f64().unwrap();
    assert!(bits >= 100.0 && weights >= 100.0, "{json}");
    let sum = (-bits).exp2() + (-weights).exp2();
    assert!((total + sum.log2()).abs() < 1e-6, "{json}");
    let other = [
        ("--slip", "proofs/word.slip"),
        ("--prompt", PROMPTS[1].1),
        ("--response-file", "word.txt"),
    ];
    let (out, _) = expect(
        &verify_args(&[&other[..], &[("--verbose", "")]].concat()),
        0,
    );
    assert!(out.contains("lookups: poles and keys"), "{out}");
}

#[test]
fn other_texts_are_rejected() {
    let folder = prepared();
    let response = reply("story").response;
    fs::write(folder.join("longer.txt"), format!("{response}\n")).unwrap();
    rejected(
        &[("--response-file", "longer.txt")],
        "response: the slip is for another text",
    );
    fs::write(folder.join("changed.txt"), response.replacen(' ', " un", 1)).unwrap();
    rejected(&[("--response-file", "changed.txt")], "response");
    rejected(&[("--response-file", "word.txt")], "response");
    rejected(&[("--prompt", "Once upon a Time")], "slip");
    rejected(&[("--prompt", "Once upon a time ")], "slip");
    rejected(&[("--prompt", PROMPTS[1].1)], "slip");
    let (_, slips) = forged_slips();
    for (slip, reason) in slips {
        rejected(&[("--slip", slip)], reason);
    }
    // A provider who changes the tokens of the slip to fit a changed text does not get through either.
    rejected(
        &[("--slip", "tokens.slip"), ("--response-file", "tokens.txt")],
        "the batch holds another prompt",
    );
}

/// Slips that no honest provider hands out, with the reason for their rejection beside the honest response.
fn forged_slips() -> (Slip, Vec<(&'static str, &'static str)>) {
    let folder = prepared();
    let honest = Slip::decode(&fs::read(folder.join("proofs/story.slip")).unwrap()).unwrap();
    let forge = |name: &str, change: &dyn Fn(&mut Slip)| {
        let mut slip = honest.clone();
        change(&mut slip);
        fs::write(folder.join(name), slip.encode()).unwrap();
        slip
    };
    forge("salt.slip", &|s| s.salt[0] ^= 1);
    forge("request.slip", &|s| s.request = 1);
    forge("missing.slip", &|s| s.request = 2);
    forge("limit.slip", &|s| s.max_tokens = 9);
    forge("model.slip", &|s| s.model[0] ^= 1);
    forge("unknown.slip", &|s| s.response[0] = 1 << 20);
    let changed = forge("tokens.slip", &|s| s.response[3] ^= 1);
    fs::write(
        folder.join("tokens.txt"),
        tokenizer().decode(&changed.response).unwrap(),
    )
    .unwrap();
    let reasons = vec![
        ("salt.slip", "slip: the batch holds another prompt"),
        ("request.slip", "slip"),
        ("missing.slip", "slip: the batch has no such request"),
        ("limit.slip", "slip: the batch holds another prompt"),
        ("model.slip", "model id"),
        ("unknown.slip", "response"),
        ("proofs/word.slip", "response"),
    ];
    (honest, reasons)
}

#[test]
fn other_models_and_limits_are_rejected() {
    prepared();
    rejected(&[("--id", "other.id")], "model id");
    rejected(&[("--expect-id", &"0".repeat(64))], "model id");
    rejected(&[("--max-tokens", "9")], "limit");
    let (out, _) = expect(&verify_args(&[("--max-tokens", "9"), ("--json", "")]), 1);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["verdict"], "REJECTED");
    assert!(json["check"].as_str().unwrap().starts_with("limit"));
}

#[test]
fn damaged_proofs_are_rejected() {
    let folder = prepared();
    let proof = fs::read(folder.join("proofs/batch.proof")).unwrap();
    let verify = |name: &str, bytes: &[u8], code| {
        fs::write(folder.join(name), bytes).unwrap();
        let (out, err) = expect(&verify_args(&[("--proof", name)]), code);
        assert_eq!(code == 1, out.starts_with("REJECTED: "), "{out}");
        assert_eq!(code == 2, err.contains(name), "{err}");
    };
    let flip = |at: usize| {
        let mut bytes = proof.clone();
        bytes[at] ^= 1;
        bytes
    };
    // Model id; hash of a request; then the messages of the argument, from the first root to the last byte.
    for (n, at) in [12, 52]
        .into_iter()
        .chain((1..8).map(|n| proof.len() * n / 8))
        .enumerate()
    {
        verify(&format!("flipped{n}.proof"), &flip(at), 1);
    }
    verify("end.proof", &flip(proof.len() - 1), 1);
    verify("cut.proof", &proof[..proof.len() - 1], 1);
    verify("long.proof", &[&proof[..], &[0]].concat(), 1);
    verify("magic.proof", &flip(0), 2);
    verify("version.proof", &flip(8), 2);
    verify("empty.proof", &[], 2);
}

/// Leaves a note of the tests' own user beside an id.
fn leave_note(id: &str, digest: &[u8; 32], how: How, bits: f64) {
    let secret = State::new(folder().join("state")).secret_or_new().unwrap();
    let certified = Certified::new(how, bits);
    write_verdict(&secret, &folder().join(id), digest, &certified).unwrap();
}

fn digest(id: &str) -> [u8; 32] {
    let bytes = fs::read(folder().join(id)).unwrap();
    ModelId::decode(&bytes).unwrap().digest()
}

/// A copy of the id, without a verdict beside it.
fn bare_id(name: &str) -> String {
    let file = format!("{name}.id");
    fs::copy(prepared().join("model.id"), folder().join(&file)).unwrap();
    file
}

#[test]
fn nothing_is_accepted_of_a_model_that_is_not_certified() {
    let folder = prepared();
    let id = bare_id("bare");
    let (out, err) = expect(&verify_args(&[("--id", &id)]), 2);
    assert!(out.is_empty(), "{out}");
    for part in [
        "bare.id",
        "bare.id.certified",
        "zkmoe verify-model",
        "--cert",
    ] {
        assert!(err.contains(part), "{part}: {err}");
    }
    // A certificate may also be checked each time, which leaves no note.
    let (out, _) = expect(&verify_args(&[("--id", &id), ("--cert", "model.cert")]), 0);
    assert!(
        out.starts_with("ACCEPTED ") && out.contains("by model.cert"),
        "{out}"
    );
    assert!(!folder.join("bare.id.certified").exists());
    // What is rejected needs no certificate.
    rejected(&[("--id", &id), ("--max-tokens", "9")], "limit");

    let (out, _) = expect(&verify_model_args(&id, "model.cert"), 0);
    assert!(
        out.contains("bare.id.certified") && out.contains("in its range"),
        "{out}"
    );
    let (out, _) = expect(&verify_args(&[("--id", &id)]), 0);
    assert!(out.contains("by bare.id.certified"), "{out}");

    // A note about another id, one that is damaged, and one that a rotation left.
    let mut note = fs::read(folder.join("bare.id.certified")).unwrap();
    note[12] ^= 1;
    fs::write(folder.join("bare.id.certified"), &note).unwrap();
    let (_, err) = expect(&verify_args(&[("--id", &id)]), 2);
    assert!(
        err.contains("bare.id.certified is about another model id"),
        "{err}"
    );
    fs::write(folder.join("bare.id.certified"), &note[..40]).unwrap();
    let (_, err) = expect(&verify_args(&[("--id", &id)]), 2);
    assert!(
        err.contains("bare.id.certified") && err.contains("remove it"),
        "{err}"
    );
    let digest = digest(&id);
    let how = How::Rotation { from: [7; 32] };
    leave_note(&id, &digest, how, 98.9);
    let (_, err) = expect(&verify_args(&[("--id", &id)]), 2);
    assert!(
        err.contains("is for 98.9 bits, and 99.0 are needed"),
        "{err}"
    );
    leave_note(&id, &digest, how, 100.5);
    let (out, _) = expect(&verify_args(&[("--id", &id), ("--json", "")]), 0);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["weights"]["shown_by"], "rotation");
    assert_eq!(json["weights"]["soundness_bits"], 100.5);
}

#[test]
fn notes_of_others_are_not_believed() {
    let folder = prepared();
    let id = bare_id("shipped");
    let note = folder.join("shipped.id.certified");
    let made_by_you = |state: &str| {
        let args = ["inspect", "shipped.id.certified", "--state", state];
        let (text, _) = expect(&args, 0);
        assert!(text.contains("note of a verified model"), "{text}");
        let (json, _) = expect(&[&args[..], &["--json"]].concat(), 0);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["facts"]["model id"], hex(&digest("model.id")));
        json["facts"]["made by you"].as_str().unwrap().to_owned()
    };
    let refused = |state: &str, reason: &str| {
        let (out, err) = expect(&verify_args(&[("--id", &id), ("--state", state)]), 2);
        assert!(out.is_empty(), "{out}");
        for part in [
            "shipped.id.certified",
            reason,
            "zkmoe verify-model",
            "--cert",
        ] {
            assert!(err.contains(part), "{part}: {err}");
        }
    };

    // The provider makes a note, about exactly this id, and ships both.
    let provider = [&verify_model_args(&id, "model.cert")[..], &["--state", "p"]].concat();
    expect(&provider, 0);
    let forged = fs::read(&note).unwrap();
    refused("state", "was not made with your secret in ");
    refused("nobody", "was not made here: there is no nobody/");
    assert_eq!(made_by_you("p"), "yes");
    assert!(made_by_you("state").starts_with("no: "));
    assert!(made_by_you("nobody").starts_with("no: "));
    assert!(!folder.join("nobody").exists(), "looking makes no secret");
    let (out, _) = expect(&verify_args(&[("--id", &id), ("--cert", "model.cert")]), 0);
    assert!(out.contains("by model.cert"), "{out}");

    // A check of one's own replaces it.
    expect(&verify_model_args(&id, "model.cert"), 0);
    expect(&verify_args(&[("--id", &id)]), 0);
    refused("p", "was not made with your secret in ");
    let mine = fs::read(&note).unwrap();
    assert!(mine[..81] == forged[..81] && mine[81..] != forged[81..]);

    // Magic, version, model id, kind, certificate, soundness, MAC.
    for at in [0, 8, 12, 43, 44, 45, 76, 77, 80, 81, 112] {
        let mut flipped = mine.clone();
        flipped[at] ^= 1;
        fs::write(&note, flipped).unwrap();
        refused("state", "");
    }
    // Version 1 had no MAC.
    let mut old = mine[..81].to_vec();
    old[8] = 1;
    fs::write(&note, old).unwrap();
    refused("state", "verdict version 1, this program reads version 2");
    fs::write(&note, mine).unwrap();
    expect(&verify_args(&[("--id", &id)]), 0);
}

#[test]
fn without_its_secret_a_note_is_void() {
    let folder = prepared();
    let id = bare_id("void");
    let make = [
        &verify_model_args(&id, "model.cert")[..],
        &["--state", "mine"],
    ]
    .concat();
    let verify = verify_args(&[("--id", &id), ("--state", "mine")]);
    // What is rejected draws no secret.
    let mut wrong = make.clone();
    wrong[2] = "other.id";
    expect(&wrong, 1);
    assert!(!folder.join("mine").exists());
    expect(&make, 0);
    expect(&verify, 0);
    let secret = folder.join("mine/notes.secret");
    let bytes = fs::read(&secret).unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::metadata(&secret).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    let note = fs::read(folder.join("void.id.certified")).unwrap();
    for damaged in [&bytes[..43], &[&bytes[..], &[0]].concat(), b""] {
        fs::write(&secret, damaged).unwrap();
        for args in [&verify, &make] {
            let (out, err) = expect(args, 2);
            assert!(
                out.is_empty() && err.contains("mine/notes.secret") && err.contains("remove it"),
                "{err}"
            );
        }
        assert_eq!(fs::read(&secret).unwrap(), damaged);
        assert_eq!(
            fs::read(folder.join("void.id.certified")).unwrap(),
            note,
            "stays"
        );
    }
    fs::remove_file(&secret).unwrap();
    let (_, err) = expect(&verify, 2);
    assert!(err.contains("was not made here"), "{err}");
    assert!(!secret.exists(), "`verify` draws no secret");
    expect(&make, 0);
    expect(&verify, 0);
    fs::write(&secret, &bytes).unwrap();
    let (_, err) = expect(&verify, 2);
    assert!(err.contains("was not made with your secret"), "{err}");
}

#[test]
fn the_state_folder_comes_from_option_or_environment() {
    let folder = prepared();
    let nowhere = [
        ("ZKMOE_STATE", None),
        ("XDG_STATE_HOME", None),
        ("HOME", None),
    ];
    let id = bare_id("stateless");
    let make = verify_model_args(&id, "model.cert");
    let verify = verify_args(&[("--id", &id)]);
    for args in [
        &make[..],
        &verify,
        &verify_rotation_args("model.id", "stateless.id", "missing.proof"),
    ] {
        let (out, err) = expect_under(&nowhere, args, 2);
        assert!(out.is_empty(), "{out}");
        for part in ["--state", "ZKMOE_STATE", "XDG_STATE_HOME", "HOME", "--cert"] {
            assert!(err.contains(part), "{part}: {err}");
        }
    }
    assert!(!folder.join("stateless.id.certified").exists());
    // Neither a certificate at hand nor a rejection needs it, and other notes can be looked at.
    let with_cert = verify_args(&[("--id", &id), ("--cert", "model.cert")]);
    expect_under(&nowhere, &with_cert, 0);
    let too_long = verify_args(&[("--id", &id), ("--max-tokens", "9")]);
    expect_under(&nowhere, &too_long, 1);
    let (out, _) = expect_under(&nowhere, &["inspect", "model.id.certified"], 0);
    assert!(out.contains("not known: there is no folder"), "{out}");

    let mut under = nowhere;
    for (n, name, secret) in [
        (2, "home", "home/.local/state/zkmoe/notes.secret"),
        (1, "xdg", "xdg/zkmoe/notes.secret"),
        (0, "own", "own/notes.secret"),
    ] {
        under[n].1 = Some(name);
        expect_under(&under, &make, 0);
        assert!(folder.join(secret).exists(), "{secret}");
        expect_under(&under, &verify, 0);
        expect(&verify, 2);
    }
    let option = [&make[..], &["--state", "named"]].concat();
    expect_under(&under, &option, 0);
    assert!(folder.join("named/notes.secret").exists());
    expect_under(&under, &verify, 2);

    // A folder that cannot be made is no verdict.
    fs::write(folder.join("file"), "").unwrap();
    let (out, err) = expect(&[&make[..], &["--state", "file/x"]].concat(), 2);
    assert!(
        out.is_empty() && err.contains("file/x") && err.contains("--state"),
        "{err}"
    );
}

#[test]
fn two_checks_at_once_both_leave_notes() {
    prepared();
    // The first use of a state folder; of the four, two write the same note.
    let ids = ["left", "right"].map(bare_id);
    let state = ["--state", "raced"];
    std::thread::scope(|scope| {
        for id in ids.iter().chain(&ids) {
            scope.spawn(move || {
                let args = verify_model_args(id, "model.cert");
                expect(&[&args[..], &state].concat(), 0);
            });
        }
    });
    for id in &ids {
        expect(&verify_args(&[("--id", id), ("--state", "raced")]), 0);
    }
    let left = fs::read_dir(folder().join("raced")).unwrap();
    let left: Vec<_> = left.map(|f| f.unwrap().file_name()).collect();
    assert_eq!(left, ["notes.secret"]);
}

#[test]
fn bad_certificates_are_rejected_and_leave_no_note() {
    let folder = prepared();
    let cert = fs::read(folder.join("model.cert")).unwrap();
    let id = bare_id("picky");
    let verify = |name: &str, bytes: &[u8], code| {
        fs::write(folder.join(name), bytes).unwrap();
        let (out, err) = expect(&verify_model_args(&id, name), code);
        assert_eq!(code == 1, out.starts_with("REJECTED: "), "{out}");
        assert_eq!(code == 2, out.is_empty() && err.contains(name), "{err}");
        let (out, err) = expect(&verify_args(&[("--id", &id), ("--cert", name)]), code);
        assert_eq!(
            code == 1,
            out.starts_with("REJECTED: certificate: "),
            "{out}"
        );
        assert_eq!(code == 2, out.is_empty() && err.contains(name), "{err}");
    };
    let flip = |at: usize| {
        let mut bytes = cert.clone();
        bytes[at] ^= 1;
        bytes
    };
    for (n, at) in [12, 44, cert.len() / 2, cert.len() - 1]
        .into_iter()
        .enumerate()
    {
        verify(&format!("flipped{n}.cert"), &flip(at), 1);
    }
    verify("cut.cert", &cert[..cert.len() - 1], 1);
    verify("long.cert", &[&cert[..], &[0]].concat(), 1);
    verify("magic.cert", &flip(0), 2);
    verify("version.cert", &flip(8), 2);
    verify("empty.cert", &[], 2);
    assert!(!folder.join("picky.id.certified").exists());

    // A note that cannot be written is no verdict.
    fs::create_dir_all(folder.join("stuck.id.certified/x")).unwrap();
    let (out, err) = expect(&verify_model_args(&bare_id("stuck"), "model.cert"), 2);
    assert!(
        out.is_empty() && err.contains("stuck.id.certified") && err.contains("--cert"),
        "{err}"
    );

    // Of another id.
    let (out, _) = expect(&verify_model_args("other.id", "model.cert"), 1);
    assert!(out.starts_with("REJECTED: model id"), "{out}");
    assert!(!folder.join("other.id.certified").exists());
    let mut args = verify_model_args("other.id", "model.cert").to_vec();
    args.push("--json");
    let (out, _) = expect(&args, 1);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["verdict"], "REJECTED");

    // A bad file takes nothing away from what a good one has shown.
    let mut args = verify_model_args(&id, "model.cert").to_vec();
    args.extend(["--json", "--verbose"]);
    let (out, _) = expect(&args, 0);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["verdict"], "ACCEPTED");
    assert!(json["soundness_bits"].as_f64().unwrap() >= 100.0);
    assert!(json["terms"].as_array().unwrap().len() > 10);
    let note = fs::read(folder.join("picky.id.certified")).unwrap();
    expect(&verify_model_args(&id, "cut.cert"), 1);
    assert_eq!(fs::read(folder.join("picky.id.certified")).unwrap(), note);
}

#[test]
fn certificates_are_not_overwritten_and_need_key_and_model() {
    let folder = prepared();
    let (_, err) = expect(&certify_args("model.cert"), 2);
    assert!(err.contains("model.cert: exists"), "{err}");
    let (_, err) = expect(&certify_args("nowhere/new.cert"), 2);
    assert!(err.contains("nowhere"), "{err}");
    for (n, file, reason) in [
        (3, "other.key", "other.key: is the key of another id"),
        (5, "other.id", "model.key: is the key of another id"),
        (1, "missing.zkm", "missing.zkm"),
        (3, "model.id", "model.id"),
    ] {
        let mut args = certify_args("new.cert");
        args[n] = file;
        let (_, err) = expect(&args, 2);
        assert!(err.contains(reason), "{err}");
    }
    assert!(!folder.join("new.cert").exists());
}

#[test]
fn unusable_files_are_no_verdicts() {
    prepared();
    for (option, file) in [
        ("--id", "missing.id"),
        ("--id", "proofs/story.slip"),
        ("--proof", "."),
        ("--proof", "model.id"),
        ("--slip", "proofs/batch.proof"),
        ("--response-file", "missing.txt"),
        ("--response-file", "model.zkm"),
        // A device has no end.
        #[cfg(unix)]
        ("--proof", "/dev/zero"),
        #[cfg(unix)]
        ("--slip", "/dev/zero"),
    ] {
        let (out, err) = expect(&verify_args(&[(option, file)]), 2);
        assert!(out.is_empty() && err.contains(file), "{out}{err}");
    }
}

#[test]
fn keys_are_never_overwritten() {
    let folder = prepared();
    let before = fs::read(folder.join("other.key")).unwrap();
    let (_, err) = expect(
        &[
            "commit",
            "missing.zkm",
            "--id",
            "new.id",
            "--key",
            "other.key",
        ],
        2,
    );
    assert!(
        err.contains("other.key: exists; a key is never overwritten"),
        "{err}"
    );
    assert_eq!(fs::read(folder.join("other.key")).unwrap(), before);
    expect(
        &[
            "commit",
            "missing.zkm",
            "--id",
            "model.id",
            "--key",
            "new.key",
        ],
        2,
    );
    assert!(!folder.join("new.id").exists() && !folder.join("new.key").exists());
    #[cfg(unix)]
    for private in ["other.key", "proofs/story.slip"] {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(
            fs::metadata(folder.join(private))
                .unwrap()
                .permissions()
                .mode()
                & 0o777,
            0o600
        );
    }
}

#[test]
fn two_spellings_of_one_name_cost_no_key_and_no_model() {
    let folder = prepared();
    expect(
        &["commit", "model.zkm", "--id", "same", "--key", "./same"],
        2,
    );
    assert!(
        !folder.join("same").exists(),
        "neither a key without an id nor an id without a key"
    );
    let before = fs::read(folder.join("model.zkm")).unwrap();
    let (_, err) = expect(
        &[
            "run",
            "model.zkm",
            "--prompt",
            "Once",
            "--out",
            "./model.zkm",
        ],
        2,
    );
    assert!(err.contains("model.zkm, which is read"), "{err}");
    assert!(
        fs::read(folder.join("model.zkm")).unwrap() == before,
        "the model is still there"
    );
}

#[test]
fn only_whole_batches_are_proved() {
    prepared();
    fs::create_dir_all(folder().join("again")).unwrap();
    fs::copy(
        folder().join("story.json"),
        folder().join("again/story.json"),
    )
    .unwrap();
    // Names are compared before anything is read.
    let (_, err) = expect(
        &[
            "prove",
            "missing.zkm",
            "--key",
            "k",
            "--id",
            "i",
            "story.json",
            "again/story.json",
            "--out",
            "x",
        ],
        2,
    );
    assert!(
        err.contains("same name") && err.contains("again/story.json"),
        "{err}"
    );
    let (_, err) = expect(&prove_args(&["story.json"], "proofs"), 2);
    assert!(err.contains("batch.proof: exists"), "{err}");
    let mut args = prove_args(&["story.json"], "x");
    args[3] = "other.key";
    let (_, err) = expect(&args, 2);
    assert!(err.contains("other.key: is the key of another id"), "{err}");
    assert!(!folder().join("x").exists());
}

#[test]
fn edited_replies_have_no_proof() {
    prepared();
    let tokenizer = tokenizer();
    let refused = |name: &str, edit: &dyn Fn(&mut Reply), parts: &[&str]| {
        let mut edited = reply("story");
        edit(&mut edited);
        let file = format!("{name}.json");
        edited.save(&folder().join(&file)).unwrap();
        // A key that proves nothing else.
        let mut args = prove_args(&["word.json", &file], name);
        (args[3], args[5]) = ("other.key", "other.id");
        let (_, err) = expect(&args, 2);
        for part in parts.iter().chain(&[&file[..]]) {
            assert!(err.contains(part), "{part}: {err}");
        }
        assert!(!folder().join(name).exists(), "nothing to write");
    };
    refused(
        "word-changed",
        &|r| r.response.insert(4, 'X'),
        &["`response`", "character 5"],
    );
    refused(
        "prompt-changed",
        &|r| r.prompt.push('!'),
        &["`prompt_ids`", "token 7"],
    );
    refused("limit-changed", &|r| r.max_tokens = 7, &["`max_tokens`"]);
    let replace = |r: &mut Reply| {
        r.response_ids[4] = if r.response_ids[4] == 300 { 301 } else { 300 };
        r.response = tokenizer.decode(&r.response_ids).unwrap();
    };
    refused(
        "tokens-changed",
        &replace,
        &["response token 5", "(token 300)"],
    );
    let cut = |r: &mut Reply| {
        r.prompt.push('?');
        r.prompt_ids = tokenizer.encode(&r.prompt).unwrap();
    };
    refused(
        "both-changed",
        &cut,
        &["the model does not decode this reply"],
    );
    fs::write(folder().join("broken.json"), r#"{"version": 1}"#).unwrap();
    let (_, err) = expect(&prove_args(&["broken.json"], "y"), 2);
    assert!(
        err.contains("broken.json") && err.contains("`prompt`"),
        "{err}"
    );
    let (_, err) = expect(&prove_args(&["word.json"], "word.json/out"), 2);
    assert!(
        err.contains("word.json: is not a folder"),
        "refused before the model runs: {err}"
    );
    let ledger = KeyState::read(&folder().join("other.key")).unwrap().ledger;
    assert_eq!(ledger.openings(), 0, "refusals cost no batch");
}

#[test]
fn a_key_proves_as_many_batches_as_it_is_for() {
    let folder = prepared();
    let commit = [
        "commit",
        "model.zkm",
        "--id",
        "few.id",
        "--key",
        "few.key",
        "--batches",
        "2",
    ];
    let (out, _) = expect(&commit, 0);
    for part in [
        "for 2 batches",
        "codeword",
        "positions of a proof",
        "cheapest",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    let args = |out, more: &[&'static str]| {
        let mut args = prove_args(&["word.json"], out);
        (args[3], args[5]) = ("few.key", "few.id");
        [&args[..], more].concat()
    };
    let key = folder.join("few.key");
    let (fresh, about) = (
        fs::read(&key).unwrap(),
        expect(&["inspect", "few.key"], 0).0,
    );
    assert!(about.contains("nothing was opened yet"), "{about}");

    // While it is in use, others may look at the key and nothing more.
    let held = Key::open(&key).unwrap();
    let (_, err) = expect(&args("few1", &[]), 2);
    assert!(
        err.contains("few.key: is in use by another process"),
        "{err}"
    );
    expect(&["inspect", "few.key"], 0);
    drop(held);

    let (out, _) = expect(&args("few1", &["--json"]), 0);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&json["batches_spent"], &json["batches_left"]),
        (&1.into(), &1.into())
    );
    let one = fs::read(&key).unwrap();
    let current = hex(&KeyState::read(&key).unwrap().ledger.current());
    let (about, _) = expect(&["inspect", "few.key"], 0);
    assert!(
        about.contains(&current) && about.contains("available"),
        "{about}"
    );
    let (about, _) = expect(&["inspect", "few.key.last", "--json"], 0);
    assert!(about.contains(&current), "{about}");

    // A restored key proves nothing, unless the file beside it was lost as well; then the last proof tells.
    fs::write(&key, &fresh).unwrap();
    let (_, err) = expect(&args("few2", &[]), 2);
    assert!(
        err.contains("few.key: is older than the last proof"),
        "{err}"
    );
    let last = fs::read(folder.join("few.key.last")).unwrap();
    fs::remove_file(folder.join("few.key.last")).unwrap();
    let (_, err) = expect(&args("few2", &["--last-proof", "few1/batch.proof"]), 2);
    assert!(
        err.contains("is not the last proof that it counts"),
        "{err}"
    );
    fs::write(&key, &one).unwrap();
    let (_, err) = expect(&args("few2", &["--last-proof", "proofs/batch.proof"]), 2);
    assert!(err.contains("is a proof under another id"), "{err}");
    let (_, err) = expect(&args("few2", &["--last-proof", "few1/word.slip"]), 2);
    assert!(
        err.contains("few1/word.slip: this is not a proof file"),
        "{err}"
    );
    assert!(!folder.join("few2").exists());

    let (out, err) = expect(&args("few2", &["--last-proof", "few1/batch.proof"]), 0);
    assert!(out.contains("0 of 2 batches left"), "{out}");
    assert!(err.contains("few.key.last) is missing"), "{err}");
    let proofs =
        ["few1", "few2"].map(|out| fs::read(folder.join(out).join("batch.proof")).unwrap());
    assert!(proofs[0] != proofs[1]);

    // The tail is a power of two and has room for more, but the key was made for two.
    let id = ModelId::decode(&fs::read(folder.join("few.id")).unwrap()).unwrap();
    assert!(id.params.batches() > 2);
    let spent = fs::read(&key).unwrap();
    let (_, err) = expect(&args("few3", &[]), 2);
    assert!(
        err.contains("few.key: all 2 batches of this key are spent")
            && err.contains("zkmoe rotate"),
        "{err}"
    );
    assert!(!folder.join("few3").exists() && fs::read(&key).unwrap() == spent);

    // A key that is gone leaves its file beside it, which the next key of that name must not inherit.
    fs::remove_file(&key).unwrap();
    fs::write(folder.join("few.key.last"), last).unwrap();
    let mut commit = commit;
    commit[3] = "few-again.id";
    let (_, err) = expect(&commit, 2);
    assert!(err.contains("few.key.last: exists"), "{err}");
}

/// The arguments that rotate the commitment, after some changes: pairs of an option and its new value.
fn rotate_args<'a>(model: &'a str, changes: &[(&'a str, &'a str)]) -> Vec<&'a str> {
    let mut options = [
        ("--key", "model.key"),
        ("--id", "model.id"),
        ("--out-id", "next.id"),
        ("--out-key", "next.key"),
        ("--proof", "rotate.proof"),
    ];
    for &(option, value) in changes {
        let entry = options.iter_mut().find(|(name, _)| *name == option);
        entry.unwrap().1 = value;
    }
    let options = options.into_iter().flat_map(|(name, value)| [name, value]);
    ["rotate", model].into_iter().chain(options).collect()
}

fn verify_rotation_args<'a>(from: &'a str, to: &'a str, proof: &'a str) -> [&'a str; 7] {
    [
        "verify-rotation",
        "--from",
        from,
        "--to",
        to,
        "--proof",
        proof,
    ]
}

/// The folder with a rotated commitment, and the report about it.
fn rotated() -> &'static serde_json::Value {
    static REPORT: OnceLock<serde_json::Value> = OnceLock::new();
    REPORT.get_or_init(|| {
        prepared();
        let args = [&rotate_args("model.zkm", &[])[..], &["--json"]].concat();
        let (out, err) = expect(&args, 0);
        assert!(err.is_empty(), "{err}");
        serde_json::from_str(&out).unwrap()
    })
}

#[test]
fn a_rotated_commitment_is_accepted_and_proves_replies() {
    let report = rotated();
    let folder = folder();
    let digest = |name: &str| hex(&digest(name));
    assert_eq!(report["from"], digest("model.id"));
    assert_eq!(report["to"], digest("next.id"));
    assert_eq!(
        report["bytes"],
        fs::metadata(folder.join("rotate.proof")).unwrap().len()
    );
    println!("{report:#}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = |name: &str| {
            fs::metadata(folder.join(name))
                .unwrap()
                .permissions()
                .mode()
        };
        assert_eq!(mode("next.key") & 0o777, 0o600);
    }
    let args = verify_rotation_args("model.id", "next.id", "rotate.proof");
    let (out, _) = expect(&args, 0);
    assert!(
        out.starts_with("ACCEPTED ") && out.contains(&digest("next.id")),
        "{out}"
    );
    let (out, _) = expect(&[&args[..], &["--verbose"]].concat(), 0);
    assert!(out.contains("rotation: points of the tensors"), "{out}");
    let (out, _) = expect(&[&args[..], &["--json"]].concat(), 0);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["verdict"], "ACCEPTED");
    assert_eq!(json["certified"], "next.id.certified");
    assert_eq!(json["from"], digest("model.id"));
    assert!(json["soundness_bits"].as_f64().unwrap() >= 100.0);

    let args = [
        "prove",
        "model.zkm",
        "--key",
        "next.key",
        "--id",
        "next.id",
        "story.json",
        "--out",
        "rotated",
    ];
    expect(&args, 0);
    let files = [
        ("--id", "next.id"),
        ("--proof", "rotated/batch.proof"),
        ("--slip", "rotated/story.slip"),
    ];
    let (out, _) = expect(&verify_args(&files), 0);
    assert!(out.contains(&digest("next.id")), "{out}");
    rejected(
        &[("--proof", files[1].1), ("--slip", files[2].1)],
        "model id",
    );
}

#[test]
fn a_rotation_hands_on_notes_of_ones_own_and_keeps_better_ones() {
    rotated();
    let folder = folder();
    let from = bare_id("before");
    fs::copy(folder.join("next.id"), folder.join("after.id")).unwrap();
    let (old, new) = (digest(&from), digest("after.id"));
    let note = folder.join("after.id.certified");
    let rotate = || {
        let args = verify_rotation_args(&from, "after.id", "rotate.proof");
        let (out, _) = expect(&[&args[..], &["--json"]].concat(), 0);
        let json: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!(json["verdict"], "ACCEPTED");
        json
    };
    let kept = || fs::read(&note).ok();
    let not_certified = |reason: &str| {
        let before = kept();
        let json = rotate();
        assert!(json["certified"].is_null(), "{json}");
        let found = json["not_certified"].as_str().unwrap();
        assert!(found.contains(reason), "{found}");
        assert_eq!(kept(), before);
    };
    let by_certificate = How::Certificate { digest: [3; 32] };

    not_certified("there is no before.id.certified");
    let args = [
        &verify_model_args(&from, "model.cert")[..],
        &["--state", "q"],
    ]
    .concat();
    expect(&args, 0);
    not_certified("before.id.certified was not made with your secret");
    let (out, _) = expect(&verify_rotation_args(&from, "after.id", "rotate.proof"), 0);
    assert!(
        out.contains("It is not known here") && out.contains("zkmoe verify-model"),
        "{out}"
    );
    // Certificate and rotations together have to be worth something.
    leave_note(&from, &old, by_certificate, 99.0);
    not_certified("and 99.0 are needed");

    // A note that came with the new id, readable or not, is replaced.
    leave_note(&from, &old, by_certificate, 101.0);
    let bits = rotate()["soundness_bits"].as_f64().unwrap();
    let sum = -((-101f64).exp2() + (-bits).exp2()).log2();
    let tenths = (sum * 10.0).floor() as u32;
    let inherited = kept().unwrap();
    assert_eq!(inherited[77..81], tenths.to_le_bytes());
    for foreign in [&b"ZKMOVRD\0"[..], &[&inherited[..81], &[7; 32]].concat()] {
        fs::write(&note, foreign).unwrap();
        assert_eq!(rotate()["certified"], "after.id.certified");
        assert_eq!(kept().as_deref(), Some(&inherited[..]));
    }

    // Of two notes of one's own the better one stays.
    leave_note("after.id", &new, by_certificate, sum - 0.2);
    rotate();
    assert_eq!(kept().as_deref(), Some(&inherited[..]));
    for better in [f64::from(tenths) / 10.0 + 0.01, 103.0] {
        leave_note("after.id", &new, by_certificate, better);
        let before = kept();
        assert_eq!(rotate()["certified"], "after.id.certified");
        assert_eq!(kept(), before);
    }
    fs::remove_file(folder.join("before.id.certified")).unwrap();
    let json = rotate();
    assert_eq!(json["certified"], "after.id.certified");
}

#[test]
fn other_ids_and_damaged_rotations_are_rejected() {
    rotated();
    let folder = folder();
    let rejected = |from: &str, to: &str, proof: &str, reason: &str| {
        let (out, _) = expect(&verify_rotation_args(from, to, proof), 1);
        assert!(
            out.starts_with("REJECTED: ") && out.contains(reason),
            "{out}"
        );
    };
    rejected(
        "next.id",
        "model.id",
        "rotate.proof",
        "from the new id to the old one",
    );
    rejected("model.id", "other.id", "rotate.proof", "model ids");
    rejected("other.id", "next.id", "rotate.proof", "model ids");
    rejected("model.id", "model.id", "rotate.proof", "model ids");
    let proof = fs::read(folder.join("rotate.proof")).unwrap();
    let write = |name: &'static str, bytes: &[u8]| {
        fs::write(folder.join(name), bytes).unwrap();
        name
    };
    let mut flipped = proof.clone();
    flipped[proof.len() / 2] ^= 1;
    rejected("model.id", "next.id", write("r1.proof", &flipped), "");
    let cut = write("r2.proof", &proof[..proof.len() - 1]);
    rejected("model.id", "next.id", cut, "malformed");
    let long = write("r3.proof", &[&proof[..], &[0]].concat());
    rejected("model.id", "next.id", long, "malformed");
    flipped[0] ^= 1;
    write("r4.proof", &flipped);
    for (from, to, proof, named) in [
        ("model.id", "next.id", "r4.proof", "r4.proof"),
        (
            "model.id",
            "next.id",
            "proofs/batch.proof",
            "proofs/batch.proof",
        ),
        ("model.id", "next.id", "missing", "missing"),
        ("missing", "next.id", "rotate.proof", "missing"),
        ("model.id", "next.key", "rotate.proof", "next.key"),
    ] {
        let (out, err) = expect(&verify_rotation_args(from, to, proof), 2);
        assert!(out.is_empty() && err.contains(named), "{out}{err}");
    }
}

#[test]
fn rotations_that_would_fail_write_nothing() {
    let folder = prepared();
    let refused = |model: &str, changes: &[(&str, &str)], reason: &str| {
        let outputs = [
            ("--out-id", "no.id"),
            ("--out-key", "no.key"),
            ("--proof", "no.proof"),
        ];
        let changes = [&outputs[..], changes].concat();
        let (out, err) = expect(&rotate_args(model, &changes), 2);
        assert!(out.is_empty() && err.contains(reason), "{out}{err}");
        for (_, file) in outputs {
            assert!(!folder.join(file).exists(), "{file}");
        }
    };
    let model = Model::open(&folder.join("model.zkm")).unwrap();
    let mut parts: Vec<Tensor> = WeightId::ALL
        .iter()
        .map(|&id| Tensor {
            values: model.values(id).to_vec(),
            multipliers: model.multipliers(id).to_vec(),
        })
        .collect();
    let last = parts[11].values.last_mut().unwrap();
    *last = i8::from(*last == 0);
    Model::from_parts(
        model.header().clone(),
        parts,
        model.tokenizer_json().to_vec(),
    )
    .unwrap()
    .save(&folder.join("edited.zkm"))
    .unwrap();
    refused(
        "edited.zkm",
        &[("--key", "other.key"), ("--id", "other.id")],
        "edited.zkm: does not have the weights that other.key was made from",
    );
    refused(
        "model.zkm",
        &[("--key", "other.key")],
        "other.key: is the key of another id",
    );
    refused(
        "model.zkm",
        &[("--id", "other.id")],
        "model.key: is the key of another id",
    );
    refused("missing.zkm", &[], "missing.zkm");
    // Names are looked at before anything is read.
    refused(
        "missing.zkm",
        &[("--out-id", "model.id")],
        "model.id: exists",
    );
    refused(
        "missing.zkm",
        &[("--out-key", "model.key")],
        "model.key: exists; a key is never overwritten",
    );
    refused(
        "missing.zkm",
        &[("--proof", "model.zkm")],
        "model.zkm: exists",
    );
    refused(
        "missing.zkm",
        &[("--proof", "./no.id")],
        "./no.id: cannot be two",
    );
    refused("missing.zkm", &[("--out-key", "nowhere/no.key")], "nowhere");
    // The next key of a name must not inherit the file beside a key that is gone.
    let last = folder.join("no.key.last");
    fs::write(&last, "of another key").unwrap();
    refused(
        "missing.zkm",
        &[],
        "no.key.last: exists; it belongs to a key that was here",
    );
    assert_eq!(fs::read(&last).unwrap(), b"of another key");
    fs::remove_file(&last).unwrap();
}

#[test]
fn a_rotation_can_be_inspected() {
    let report = rotated();
    let folder = folder();
    let (out, _) = expect(&["inspect", "rotate.proof"], 0);
    assert!(
        out.starts_with("proof of a rotation (.proof): rotate.proof\n")
            && out.contains("zkmoe verify-rotation"),
        "{out}"
    );
    let (json, _) = expect(&["inspect", "rotate.proof", "--json"], 0);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    for (fact, value) in [
        ("old model id", &report["from"]),
        ("new model id", &report["to"]),
        ("bytes", &report["bytes"]),
    ] {
        assert_eq!(&json["facts"][fact], value, "{fact}");
    }
    for id in ["from", "to"] {
        assert!(out.contains(report[id].as_str().unwrap()), "{id}: {out}");
    }

    let proof = fs::read(folder.join("rotate.proof")).unwrap();
    let mut later = proof.clone();
    later[8] += 1;
    for (name, bytes, reason) in [
        ("cut-rotation.proof", &proof[..75], "new model id"),
        ("later-rotation.proof", &later[..], "version"),
    ] {
        fs::write(folder.join(name), bytes).unwrap();
        let (out, err) = expect(&["inspect", name], 2);
        assert!(out.is_empty(), "{out}");
        for part in [name, reason, "take the proof"] {
            assert!(err.contains(part), "{part}: {err}");
        }
    }
}

#[test]
fn prompts_are_read_from_everywhere() {
    prepared();
    fs::write(folder().join("prompt.txt"), PROMPTS[0].1).unwrap();
    let run = ["run", "model.zkm", "--max-tokens", "8"];
    expect_with(
        &[&run[..], &["--out", "stdin.json"]].concat(),
        PROMPTS[0].1.as_bytes(),
        0,
    );
    let (out, _) = expect(
        &[
            &run[..],
            &[
                "--prompt-file",
                "prompt.txt",
                "--out",
                "file.json",
                "--json",
            ],
        ]
        .concat(),
        0,
    );
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["reply"]["decoding"], "greedy");
    assert_eq!(reply("stdin"), reply("story"));
    assert_eq!(reply("file"), reply("story"));
    let refused = |prompt: &str, reason: &str| {
        let (out, err) = expect(
            &[&run[..], &["--prompt", prompt, "--out", "refused.json"]].concat(),
            2,
        );
        assert!(out.is_empty() && err.contains(reason), "{err}");
        assert!(!folder().join("refused.json").exists());
    };
    refused("", "prompt: it is empty");
    refused(&"word ".repeat(600), "shorten the prompt");
    let (_, err) = expect(
        &[&run[..], &["--prompt", "x", "--out", "nowhere/x.json"]].concat(),
        2,
    );
    assert!(err.contains("nowhere"), "{err}");
}

#[test]
fn every_file_can_be_inspected() {
    let folder = prepared();
    let key = Key::decode(&fs::read(folder.join("model.key")).unwrap()).unwrap();
    let (slip, _) = forged_slips();
    let secrets = [hex(&key.seed()), hex(&slip.salt)];
    let checkpoint = concat!(env!("CARGO_MANIFEST_DIR"), "/data/olmoe-tiny");
    for (file, kind) in [
        ("model.zkm", "integer model"),
        ("model.id", "model id"),
        ("model.key", "key"),
        ("model.cert", "certificate of a model"),
        ("model.id.certified", "note of a verified model"),
        ("proofs/batch.proof", "proof of a batch"),
        ("proofs/story.slip", "slip of one reply"),
        ("story.json", "reply"),
        (checkpoint, "checkpoint"),
    ] {
        let (out, _) = expect(&["inspect", file], 0);
        assert!(out.contains(kind), "{out}");
        let (json, _) = expect(&["inspect", file, "--id", "model.id", "--json"], 0);
        serde_json::from_str::<serde_json::Value>(&json).unwrap();
        for secret in &secrets {
            assert!(!out.contains(secret) && !json.contains(secret), "{file}");
        }
    }
    let (_, err) = expect(&["inspect", "proofs/batch.proof", "--id", "other.id"], 2);
    assert!(err.contains("is about model"), "{err}");
    for file in ["story.txt", "broken-kind.json", "empty"] {
        if file != "story.txt" {
            let text = if file == "empty" { "" } else { r#"{"a": 1}"# };
            fs::write(folder.join(file), text).unwrap();
        }
        let (out, err) = expect(&["inspect", file], 2);
        assert!(out.is_empty(), "{out}");
        for part in [
            file,
            "is of no kind that is known",
            "model ids (.id)",
            "proofs of batches and of rotations (.proof)",
            "replies (.json)",
        ] {
            assert!(err.contains(part), "{part}: {err}");
        }
    }
    let (out, _) = expect(&["relation", "--id", "model.id"], 0);
    assert!(out.contains("Constraints: zero at every index"), "{out}");
}

/// What `inspect` lists about a proof: the text, and the JSON list by name.
fn learned(proof: &str) -> (String, BTreeMap<String, serde_json::Value>) {
    let args = ["inspect", proof, "--id", "model.id"];
    let (text, _) = expect(&args, 0);
    assert!(
        text.contains("What a stranger learns from this proof:")
            && text.contains("Nothing else in the file is public"),
        "{text}"
    );
    let (json, _) = expect(&[&args[..], &["--json"]].concat(), 0);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let list = json["learned"].as_array().unwrap();
    let by_name = list
        .iter()
        .map(|entry| {
            assert_eq!(entry.as_object().unwrap().len(), 2, "{entry}");
            let what = entry["what"].as_str().unwrap().to_owned();
            assert!(text.contains(&what), "{what}: {text}");
            (what, entry["value"].clone())
        })
        .collect();
    (text, by_name)
}

#[test]
fn a_stranger_learns_what_inspect_lists() {
    let folder = prepared();
    let (text, list) = learned("proofs/batch.proof");
    let id = ModelId::decode(&fs::read(folder.join("model.id")).unwrap()).unwrap();
    let experts = id.header.sizes.num_hidden_layers * id.header.sizes.num_experts;
    let bytes = fs::metadata(folder.join("proofs/batch.proof"))
        .unwrap()
        .len();
    assert_eq!(list["model id"], hex(&id.digest()));
    assert_eq!(list["requests"], 2);
    assert_eq!(list["bytes"], bytes);
    assert_eq!(list["experts that took part"], experts);
    let loads = list["padded loads of experts"].as_array().unwrap();
    assert_eq!(loads.len(), experts);
    assert!(loads.iter().all(|l| l[2].as_u64().unwrap() % 8 == 0));
    let lengths: Vec<usize> = PROMPTS
        .map(|(name, _)| {
            let reply = reply(name);
            (reply.prompt_ids.len() + reply.response_ids.len()).next_multiple_of(8)
        })
        .to_vec();
    assert_eq!(
        list["padded lengths of all requests"],
        serde_json::json!(lengths)
    );
    assert_eq!(list["hashes of all requests"].as_array().unwrap().len(), 2);
    assert!(text.contains("so it does not show which of them tokens used"));
    // Nothing of the replies is among it.
    for (name, prompt) in PROMPTS {
        assert!(!text.contains(prompt) && !text.contains(&reply(name).response));
    }
}

/// The report of `params`.
#[track_caller]
fn params(options: &[&str], code: i32) -> serde_json::Value {
    let (out, _) = expect(&[&["params", "--json"], options].concat(), code);
    serde_json::from_str(&out).unwrap()
}

/// The terms that `verify` prints for a proof of the first reply.
#[track_caller]
fn verbose(proof: &str, slip: &str) -> serde_json::Value {
    let changes = [
        ("--proof", proof),
        ("--slip", slip),
        ("--verbose", ""),
        ("--json", ""),
    ];
    let (out, _) = expect(&verify_args(&changes), 0);
    let mut verdict: serde_json::Value = serde_json::from_str(&out).unwrap();
    verdict["terms"].take()
}

/// `config.json` of the bundled checkpoint after some changes, written under a name.
fn write_config(name: &str, changes: &[(&str, usize)]) {
    let bundled = include_bytes!("../data/olmoe-tiny/config.json");
    let mut config: serde_json::Value = serde_json::from_slice(bundled).unwrap();
    for &(option, value) in changes {
        config[option] = value.into();
    }
    fs::write(folder().join(name), config.to_string()).unwrap();
}

/// The sizes of `OLMoE-1B-7B`.
const OLMOE_1B_7B: [(&str, usize); 9] = [
    ("hidden_size", 2048),
    ("intermediate_size", 1024),
    ("num_hidden_layers", 16),
    ("num_attention_heads", 16),
    ("num_key_value_heads", 16),
    ("num_experts", 64),
    ("num_experts_per_tok", 8),
    ("vocab_size", 50304),
    ("max_position_embeddings", 4096),
];

#[test]
fn the_error_of_a_proof_is_known_from_its_sizes() {
    let folder = prepared();
    let id = ModelId::decode(&fs::read(folder.join("model.id")).unwrap()).unwrap();
    let proof = fs::read(folder.join("proofs/batch.proof")).unwrap();
    let (_, header) = read_proof_header(&mut Reader::new(&proof), &id.header).unwrap();
    let forecast = Forecast::new(&id, &header).unwrap();
    let verified = verify_batch(&id, &proof).unwrap();
    assert_eq!(forecast.soundness, verified.soundness);
    let terms = serde_json::to_string(&TermReport::list(&forecast.soundness)).unwrap();
    let terms: serde_json::Value = serde_json::from_str(&terms).unwrap();
    assert_eq!(terms, verbose("proofs/batch.proof", "proofs/story.slip"));
    let ratio = forecast.bytes as f64 / proof.len() as f64;
    println!(
        "{} bytes were expected, there are {}",
        forecast.bytes,
        proof.len()
    );
    assert!((0.9..1.1).contains(&ratio), "{ratio}");
}

#[test]
fn sizes_of_an_id_are_told_and_those_of_its_checkpoint_are_no_better() {
    prepared();
    write_config("tiny.json", &[]);
    let batch = ["--tokens", "512", "--replies", "3"];
    let by_id = params(&[&["--id", "model.id"], &batch[..]].concat(), 0);
    let options = ["--config", "tiny.json", "--batches", "8"];
    let by_config = params(&[&options, &batch[..]].concat(), 0);
    assert_eq!(by_id["positions"], 3 * 512);
    assert_eq!(by_id["decoded"], 1536);
    for same in ["code", "decoded", "expert_rows"] {
        assert_eq!(by_id[same], by_config[same], "{same}");
    }
    assert_eq!(by_id["sizes"]["weights"], by_config["sizes"]["weights"]);
    let terms = |report: &serde_json::Value| report["terms"].as_array().unwrap().clone();
    let (by_id, by_config) = (terms(&by_id), terms(&by_config));
    assert_eq!(by_id.len(), by_config.len());
    for (known, bound) in by_id.iter().zip(&by_config) {
        assert_eq!(known["name"], bound["name"]);
        let bits = |term: &serde_json::Value| term["bits"].as_f64().unwrap_or(f64::INFINITY);
        let name = known["name"].as_str().unwrap();
        assert!(
            name.starts_with("pads") || bits(bound) <= bits(known),
            "{name}"
        );
        assert!(bits(known) - bits(bound) < 1.0, "{name}");
    }

    // As `zkmoe commit` chooses.
    let chosen = params(&["--config", "tiny.json"], 0);
    assert_eq!(chosen["positions"], 512);
    assert!(chosen["code"]["batches"].as_u64().unwrap() > 8);
    let (text, _) = expect(&["params", "--config", "tiny.json"], 0);
    for part in [
        "slots of a row",
        "hidden values",
        "Soundness: ",
        "lookups: poles and keys",
        "Haboeck",
        "pads: queried positions",
        "Policy: at least 100 bits; met",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (_, err) = expect(&["params", "--id", "model.id", "--tokens", "520"], 2);
    assert!(err.contains("context of 512"), "{err}");
    let many = ["params", "--id", "model.id", "--replies", "4096"];
    let (_, err) = expect(&many, 2);
    assert!(err.contains("length of all requests"), "{err}");
    let (_, err) = expect(&["params", "--id", "tiny.json"], 2);
    assert!(err.contains("tiny.json"), "{err}");
    let options = ["--tokens", "16", "--response", "16"];
    let (_, err) = expect(&[&["params", "--id", "model.id"], &options[..]].concat(), 2);
    assert!(err.contains("--response"), "{err}");
}

#[test]
fn sizes_of_a_large_model_are_told_from_its_configuration() {
    write_config("large.json", &OLMOE_1B_7B);
    let large =
        |options: &[&str], code| params(&[&["--config", "large.json"], options].concat(), code);
    let one = large(&["--tokens", "512"], 0);
    assert_eq!(one["sizes"]["weights"].as_u64().unwrap(), 6_919_094_272);
    assert!(one["soundness_bits"].as_f64().unwrap() >= 100.0, "{one}");
    assert!(one.get("refused").is_none());

    // More than a proof may hold: counted all the same.
    let many = ["--tokens", "4096", "--replies", "16"];
    let refused = large(&many, 2);
    assert_eq!(refused["positions"], 16 * 4096);
    assert_eq!(
        refused["refused"],
        "limits: the batch has 841450862534 cells, at most 68719476736 are allowed"
    );
    assert!(!refused["terms"].as_array().unwrap().is_empty());
    let args = [&["params", "--config", "large.json"], &many[..]].concat();
    let (out, err) = expect(&args, 2);
    assert!(out.contains("would be refused: limits"), "{out}");
    assert!(err.contains("would be refused: limits"), "{err}");

    write_config("wide.json", &[("num_hidden_layers", 257)]);
    let (_, err) = expect(&["params", "--config", "wide.json"], 2);
    assert!(err.contains("num_hidden_layers"), "{err}");
    write_config("broken.json", &[("num_experts", 0)]);
    let (_, err) = expect(&["params", "--config", "broken.json"], 2);
    assert!(
        err.contains("broken.json") && err.contains("num_experts"),
        "{err}"
    );
}

#[test]
fn options_round_the_public_sizes_up() {
    prepared();
    let prove = |out: &str, options: &[&str]| {
        expect(
            &[&prove_args(&["story.json"], out)[..], options].concat(),
            0,
        );
        let proof = format!("{out}/batch.proof");
        let slip = format!("{out}/story.slip");
        let (verdict, _) = expect(&verify_args(&[("--proof", &proof), ("--slip", &slip)]), 0);
        assert!(verdict.starts_with("ACCEPTED"), "{verdict}");
        learned(&proof)
    };
    let (text, list) = prove("hidden", &["--pad-lengths", "--hide-loads"]);
    assert!(text.contains("a single number"), "{text}");
    assert!(!text.contains("a guess that comes true"), "{text}");
    let length = list["padded lengths of all requests"][0].as_u64().unwrap();
    assert!(length.is_power_of_two());
    // All sizes of this batch are those that are expected of one, so its error was known before.
    let tokens = length.to_string();
    let options = ["--tokens", &tokens, "--response", "8", "--hide-loads"];
    let expected = params(&[&["--id", "model.id"], &options[..]].concat(), 0);
    let id = ModelId::decode(&fs::read(folder().join("model.id")).unwrap()).unwrap();
    let proof = fs::read(folder().join("hidden/batch.proof")).unwrap();
    let (_, header) = read_proof_header(&mut Reader::new(&proof), &id.header).unwrap();
    let rows: usize = header.shape.blocks.iter().map(|b| b.2).sum();
    assert_eq!(expected["expert_rows"], rows);
    assert_eq!(expected["decoded"], header.shape.decoded);
    let terms = verbose("hidden/batch.proof", "hidden/story.slip");
    assert_eq!(expected["terms"], terms);

    let (text, list) = prove("exact", &["--exact-loads"]);
    assert!(text.contains("a guess that comes true") && text.contains("no rounding shows"));
    let loads = list["padded loads of experts"].as_array().unwrap();
    let rows: u64 = loads.iter().map(|l| l[2].as_u64().unwrap()).sum();
    let id = ModelId::decode(&fs::read(folder().join("model.id")).unwrap()).unwrap();
    let each = (id.header.sizes.num_hidden_layers * id.header.sizes.num_experts_per_tok) as u64;
    let length = list["padded lengths of all requests"][0].as_u64().unwrap();
    assert_eq!(rows, length * each);

    for pair in [
        &["--exact-loads", "--hide-loads"][..],
        &["--exact-loads", "--load-multiple", "8"],
        &["--hide-loads", "--load-multiple", "4"],
        &["--load-multiple", "0"],
        &["--load-multiple", "1025"],
    ] {
        let args = [&prove_args(&["story.json"], "none")[..], pair].concat();
        let (_, err) = expect(&args, 2);
        assert!(err.contains("--help"), "{pair:?}: {err}");
        assert!(!folder().join("none").exists());
    }
}

#[test]
fn usage_errors_are_refusals() {
    let id = "0".repeat(63);
    for args in [
        &[][..],
        &["unknown"],
        &["import", "x"],
        &[
            "run",
            "model.zkm",
            "--prompt",
            "x",
            "--prompt-file",
            "y",
            "--out",
            "z",
        ],
        &[
            "run",
            "model.zkm",
            "--prompt",
            "x",
            "--max-tokens",
            "0",
            "--out",
            "z",
        ],
        &[
            "prove",
            "model.zkm",
            "--key",
            "k",
            "--id",
            "i",
            "--out",
            "o",
        ],
        &[
            "verify",
            "--id",
            "i",
            "--proof",
            "p",
            "--slip",
            "s",
            "--response",
            "r",
        ],
        &[
            "verify", "--id", "i", "--proof", "p", "--slip", "s", "--prompt", "p",
        ],
        &[
            "verify",
            "--id",
            "i",
            "--proof",
            "p",
            "--slip",
            "s",
            "--prompt",
            "p",
            "--response",
            "r",
            "--expect-id",
            &id,
        ],
    ] {
        let (out, err) = expect(args, 2);
        assert!(
            out.is_empty() && err.contains("--help"),
            "{args:?}: {out}{err}"
        );
    }
    let (out, _) = expect(&["--help"], 0);
    assert!(
        [
            "import",
            "commit",
            "certify",
            "run",
            "prove",
            "verify-model",
            "verify",
            "rotate",
            "verify-rotation",
            "params"
        ]
        .iter()
        .all(|c| out.contains(&format!("zkmoe {c}"))),
        "{out}"
    );
    for command in [
        "import",
        "commit",
        "certify",
        "run",
        "prove",
        "verify-model",
        "verify",
        "rotate",
        "verify-rotation",
        "inspect",
        "relation",
        "params",
        "demo",
    ] {
        let (out, _) = expect(&[command, "--help"], 0);
        assert!(out.contains("Example"), "{out}");
    }
}
