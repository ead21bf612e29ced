//! The `zkmoe` command as a user runs it: one honest run from checkpoint to verdict, and everything that has to be
//! rejected (exit code 1) or refused (exit code 2) along the way.
//!
//! All tests share one folder with a committed model, two replies and their proof.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use zkmoe::prover::commitment::Key;
use zkmoe::prover::tokenizer::Tokenizer;
use zkmoe::reply::Reply;
use zkmoe::verifier::id::ModelId;
use zkmoe::verifier::slip::Slip;

const PROMPTS: [(&str, &str); 2] = [
    ("story", "Once upon a time"),
    ("word", "The meaning of the word is"),
];

fn zkmoe(args: &[&str], stdin: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_zkmoe"))
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
    let output = zkmoe(args, stdin);
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

/// The folder with a model, two commitments to it, two replies and their proof.
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
                "4",
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
            assert_eq!(text, format!("{}\n", reply.response));
            assert_eq!(reply.prompt, prompt);
            fs::write(folder().join(format!("{name}.txt")), &reply.response).unwrap();
        }
        let (out, err) = expect(&prove_args(&["story.json", "word.json"], "proofs"), 0);
        assert!(
            out.contains("NOT YET ZERO-KNOWLEDGE") && out.contains("run the model"),
            "{out}"
        );
        assert!(err.contains("Estimate"), "{err}");
    });
    folder()
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
        "NOT YET ZERO-KNOWLEDGE",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    let (out, _) = expect(&verify_args(&[("--json", "")]), 0);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["verdict"], "ACCEPTED");
    assert_eq!(json["model_id"], id);
    assert_eq!(json["zero_knowledge"], false);
    assert!(json["soundness_bits"].as_f64().unwrap() >= 100.0);
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
    let before = fs::read(folder.join("model.key")).unwrap();
    let (_, err) = expect(
        &[
            "commit",
            "missing.zkm",
            "--id",
            "new.id",
            "--key",
            "model.key",
        ],
        2,
    );
    assert!(
        err.contains("model.key: exists; a key is never overwritten"),
        "{err}"
    );
    assert_eq!(fs::read(folder.join("model.key")).unwrap(), before);
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
    for private in ["model.key", "proofs/story.slip"] {
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
    assert!(err.contains("is the model itself"), "{err}");
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
        let (_, err) = expect(&prove_args(&["word.json", &file], name), 2);
        for part in parts.iter().chain(&[&file[..]]) {
            assert!(err.contains(part), "{part}: {err}");
        }
        assert!(!folder().join(name).join("batch.proof").exists());
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
    let key = Key::open(&folder.join("model.key")).unwrap();
    let (slip, _) = forged_slips();
    let secrets = [hex(&key.seed), hex(&slip.salt)];
    let checkpoint = concat!(env!("CARGO_MANIFEST_DIR"), "/data/olmoe-tiny");
    for (file, kind) in [
        ("model.zkm", "integer model"),
        ("model.id", "model id"),
        ("model.key", "key"),
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
    let (out, _) = expect(&["inspect", "proofs/batch.proof", "--id", "model.id"], 0);
    assert!(
        out.contains("padded lengths") && out.contains("NOT YET ZERO-KNOWLEDGE"),
        "{out}"
    );
    let (_, err) = expect(&["inspect", "proofs/batch.proof", "--id", "other.id"], 2);
    assert!(err.contains("is about model"), "{err}");
    expect(&["inspect", "story.txt"], 2);
    let (out, _) = expect(&["relation", "--id", "model.id"], 0);
    assert!(out.contains("Constraints: zero at every index"), "{out}");
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
        ["import", "commit", "run", "prove", "verify"]
            .iter()
            .all(|c| out.contains(&format!("zkmoe {c}"))),
        "{out}"
    );
    for command in [
        "import", "commit", "run", "prove", "verify", "inspect", "relation", "demo",
    ] {
        let (out, _) = expect(&[command, "--help"], 0);
        assert!(out.contains("Example"), "{out}");
    }
}
