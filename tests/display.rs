//! What reaches a terminal: names of files and words within them may be chosen to be read as something else, or to make a
//! terminal do something. Nothing of that is printed as it is, by no command, on no way.

#![cfg(unix)]

mod provider;

use std::sync::OnceLock;

use provider::{Folder, Head, model, texts, tokenizer_json};
use serde_json::{Value, json};
use zkmoe::commit::field::F;
use zkmoe::verifier::slip::Slip;
use zkmoe::visible::is_visible;

/// Erases the screen, begins a line of its own that looks like a verdict, turns the direction round, and colours the rest, in
/// the controls of both sets. What it is the name of comes behind it.
const HOSTILE: &str = "x\u{1b}[2J\nACCEPTED request 0\r\u{202e}\u{9b}31m\u{200b}\u{7f}\u{e0041}";

/// A change of a JSON file.
type Change = dyn Fn(&mut Value);

fn hostile(name: &str) -> String {
    format!("{HOSTILE}{name}")
}

/// A folder in which every file of an honest reply has a hostile name.
fn folder() -> &'static Folder {
    static FOLDER: OnceLock<Folder> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Folder::new("display");
        for (name, head) in [
            ("model.zkm", Head::Letters),
            ("controls.zkm", Head::Controls),
        ] {
            let model = model(tokenizer_json(|_| ()), head, 7);
            model.save(&folder.0.join(hostile(name))).unwrap();
        }
        folder
    })
}

/// Runs a command and looks at all that it prints: standard output and standard error, if it ends with this code.
#[track_caller]
fn run(args: &[&str], code: i32) -> (String, String) {
    let output = folder().zkmoe(args);
    let (out, err) = texts(&output);
    assert_eq!(
        output.status.code(),
        Some(code),
        "{args:?}\n{out:?}\n{err:?}"
    );
    for text in [&out, &err] {
        let odd = text.chars().find(|&c| !is_visible(c) && c != '\n');
        assert_eq!(odd, None, "{args:?}: {text:?}");
        let verdicts = text
            .lines()
            .filter(|line| line.starts_with("ACCEPTED"))
            .count();
        let due =
            args[0].starts_with("verify") && code == 0 && text == &out && !args.contains(&"--json");
        assert_eq!(verdicts, usize::from(due), "{args:?}: {text}");
        // Commands say what they have to say in lines that can be read.
        assert!(text.lines().all(|line| line.len() < 40_000), "{args:?}");
    }
    (out, err)
}

/// The same for people and as JSON; whatever the text escapes, the JSON has as it is.
#[track_caller]
fn both(args: &[&str]) -> Value {
    let (out, _) = run(args, 0);
    assert!(
        out.contains(r"x\u{1b}[2J\nACCEPTED request 0\r\u{202e}\u{9b}31m"),
        "{out}"
    );
    as_json(args)
}

#[track_caller]
fn as_json(args: &[&str]) -> Value {
    let (out, _) = run(&[args, &["--json"]].concat(), 0);
    serde_json::from_str(&out).unwrap()
}

#[test]
fn honest_files_with_hostile_names_print_no_such_name() {
    let folder = folder();
    let name = |name: &str| hostile(name);
    let [zkm, id, key, cert, story, out] = [
        "model.zkm",
        "model.id",
        "model.key",
        "model.cert",
        "story.json",
        "proofs",
    ]
    .map(name);
    let [next_id, next_key, next_proof] = ["next.id", "next.key", "next.proof"].map(name);
    let [id2, key2, cert2] = ["twin.id", "twin.key", "twin.cert"].map(name);
    let batches = ["--batches", "8"];
    let files = ["--id", &id[..], "--key", &key];
    let (text, _) = run(
        &[
            &["commit", &zkm, "--id", &id2, "--key", &key2],
            &batches[..],
        ]
        .concat(),
        0,
    );
    assert!(text.contains(r"x\u{1b}[2J"), "{text}");
    let json = as_json(&[&["commit", &zkm], &files[..], &batches].concat());
    assert_eq!(json["id"], id);
    assert_eq!(json["key"], key);
    run(
        &[
            "certify", &zkm, "--id", &id2, "--key", &key2, "--out", &cert2,
        ],
        0,
    );
    let json = as_json(&[&["certify", &zkm], &files[..], &["--out", &cert]].concat());
    assert_eq!(json["certificate"], cert);
    let prompt = hostile("Once upon a time");
    let answer = [
        "run",
        &zkm,
        "--prompt",
        &prompt,
        "--out",
        &story,
        "--max-tokens",
        "8",
    ];
    let (_, err) = run(&answer, 0);
    assert!(err.contains(r"x\u{1b}[2J"), "{err}");
    let json = as_json(&answer);
    assert_eq!(json["file"], story);
    assert_eq!(json["reply"]["prompt"], prompt);
    let response = json["reply"]["response"].as_str().unwrap();

    let folder_of = |dir: &str| format!("{out}{dir}");
    for (dir, json) in [("1", false), ("2", true)] {
        let out = folder_of(dir);
        let args = [&["prove", &zkm], &files[..], &[&story, "--out", &out]].concat();
        if json {
            let report = as_json(&args);
            assert_eq!(report["requests"][0]["name"], hostile("story"));
            assert_eq!(report["proof"], format!("{out}/batch.proof"));
        } else {
            let (text, _) = run(&args, 0);
            assert!(text.contains(r"x\u{1b}[2J"), "{text}");
        }
    }
    let json = both(&["verify-model", "--id", &id, "--cert", &cert]);
    let note = format!("{id}.certified");
    assert_eq!(json["verdict_file"], note);
    let proof = format!("{}/batch.proof", folder_of("1"));
    let slip = format!("{}/{}", folder_of("1"), hostile("story.slip"));
    let verify = [
        "verify",
        "--id",
        &id,
        "--proof",
        &proof,
        "--slip",
        &slip,
        "--prompt",
        &prompt,
        "--response",
        response,
    ];
    let json = both(&verify);
    assert_eq!(json["weights"]["file"], note);
    let remarks = json["look_closely"].as_array().unwrap();
    let remark = remarks[0].as_str().unwrap();
    assert!(
        remark.contains("the prompt has characters that do not show"),
        "{remark}"
    );
    assert!(remark.contains("U+001B"), "{remark}");

    let rotate = [
        "rotate",
        &zkm,
        "--id",
        &id,
        "--key",
        &key,
        "--out-id",
        &next_id,
        "--out-key",
        &next_key,
        "--proof",
        &next_proof,
    ];
    let json = as_json(&rotate);
    assert_eq!(json["id"], next_id);
    let mut again = rotate;
    (again[3], again[5]) = (&id2, &key2);
    let other = ["heir.id", "heir.key", "heir.proof"].map(name);
    (again[7], again[9], again[11]) = (&other[0], &other[1], &other[2]);
    run(&again, 0);
    let rotation = [
        "verify-rotation",
        "--from",
        &id,
        "--to",
        &next_id,
        "--proof",
        &next_proof,
    ];
    let json = both(&rotation);
    assert_eq!(json["certified"], format!("{next_id}.certified"));
    let inherited = [
        "verify-rotation",
        "--from",
        &id2,
        "--to",
        &other[0],
        "--proof",
        &other[2],
    ];
    let json = both(&inherited);
    assert!(json["not_certified"].as_str().unwrap().contains(HOSTILE));

    let last = format!("{key}.last");
    for file in [
        &zkm,
        &id,
        &key,
        &last,
        &cert,
        &note,
        &story,
        &proof,
        &slip,
        &next_proof,
    ] {
        let json = both(&["inspect", file]);
        assert_eq!(json["file"], file[..]);
        both(&["inspect", file, "--id", &id]);
    }
    both(&["params", "--id", &id]);
    run(&["relation", "--id", &id], 0);

    // Verdicts that name files and texts.
    let zeros = "0".repeat(64);
    let other_id = [&verify[..], &["--expect-id", &zeros]].concat();
    let (text, _) = run(&other_id, 1);
    assert!(
        text.starts_with(r"REJECTED: model id: x\u{1b}[2J"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 1, "{text}");
    let mut other_text = verify;
    other_text[10] = HOSTILE;
    let (text, _) = run(&other_text, 1);
    assert_eq!(text.lines().count(), 1, "{text}");
    // Files that do not belong together.
    let mut wrong = verify;
    wrong[2] = &id2;
    run(&wrong, 1);
    for (at, file) in [(2, &proof), (4, &id), (6, &id)] {
        let mut wrong = verify;
        wrong[at] = file;
        let (_, err) = run(&wrong, 2);
        assert!(err.contains(r"x\u{1b}[2J"), "{err}");
    }
    run(
        &[
            &["prove", &zkm],
            &files[..],
            &[&story, "--out", &folder_of("1")],
        ]
        .concat(),
        2,
    );
    run(
        &[
            "prove", &zkm, "--id", &id2, "--key", &key, &story, "--out", "x",
        ],
        2,
    );
    run(
        &["certify", &zkm, "--id", &id2, "--key", &key, "--out", "x"],
        2,
    );
    folder.write(&hostile("taken"), "");
    run(
        &[
            "commit",
            &zkm,
            "--id",
            &hostile("taken"),
            "--key",
            &hostile("new"),
        ],
        2,
    );
    run(
        &["commit", &zkm, "--id", "new", "--key", &hostile("taken")],
        2,
    );
    run(&["inspect", &hostile("taken")], 2);
}

#[test]
fn a_command_that_is_proposed_can_be_copied() {
    let folder = folder();
    folder.done(&[
        "commit",
        &hostile("model.zkm"),
        "--id",
        "x; echo '$HOME'.id",
        "--key",
        "y",
        "--batches",
        "2",
    ]);
    folder.copy("x; echo '$HOME'.id", "any.proof");
    let id = folder.id("any.proof");
    let slip = Slip {
        model: id.digest(),
        ..some_slip()
    };
    folder.write("any.slip", slip.encode());
    let text = "!";
    let args = [
        "verify",
        "--id",
        "x; echo '$HOME'.id",
        "--proof",
        "any.proof",
        "--slip",
        "any.slip",
        "--prompt",
        "p",
        "--response",
        text,
    ];
    let (_, err) = run(&args, 2);
    assert!(
        err.contains(r"zkmoe verify-model --id 'x; echo '\''$HOME'\''.id' --cert"),
        "{err}"
    );
}

fn some_slip() -> Slip {
    Slip {
        model: [1; 32],
        request: 0,
        max_tokens: 1,
        salt: [0; 32],
        cells: [F::default(); 4],
        response: vec![1],
    }
}

#[test]
fn names_that_lead_nowhere_are_escaped() {
    let no = &hostile("nothing")[..];
    let many = &hostile("/a/b/c")[..];
    let plain = hostile("plain");
    folder().write(&plain, "");
    for args in [
        &["import", no, "--out", "m"][..],
        &["import", ".", "--out", many],
        &["commit", no, "--id", "i", "--key", "k"],
        &["commit", "m", "--id", many, "--key", "k"],
        &["commit", "m", "--id", "i", "--key", many],
        &["certify", "m", "--key", no, "--id", no, "--out", "c"],
        &["run", no, "--prompt", "p", "--out", "r"],
        &["run", "m", "--prompt-file", no, "--out", "r"],
        &["run", "m", "--prompt", "p", "--out", many],
        &["prove", "m", "--key", "k", "--id", "i", no, "--out", "o"],
        &[
            "prove", "m", "--key", "k", "--id", "i", no, no, "--out", "o",
        ],
        &[
            "verify",
            "--id",
            no,
            "--proof",
            no,
            "--slip",
            no,
            "--prompt-file",
            no,
            "--response",
            "r",
        ],
        &["verify-model", "--id", no, "--cert", no],
        &["verify-rotation", "--from", no, "--to", no, "--proof", no],
        &[
            "rotate",
            "m",
            "--key",
            no,
            "--id",
            no,
            "--out-id",
            "i",
            "--out-key",
            "k",
            "--proof",
            "p",
        ],
        &[
            "rotate",
            "m",
            "--key",
            "k",
            "--id",
            "i",
            "--out-id",
            many,
            "--out-key",
            "k2",
            "--proof",
            "p",
        ],
        &["inspect", no],
        &["relation", "--id", no],
        &["params", "--id", no],
        &["params", "--config", no],
        &["demo", "--keep", &format!("{plain}/a")],
        &["verify-model", "--id", "i", "--cert", "c", "--state", many],
        // What clap has to say about the command line.
        &[no],
        &["inspect", "a", no],
        &["inspect", "a", &format!("--{no}")],
        &["verify", "--max-tokens", no],
        &["verify", "--ended", no],
        &["verify", "--expect-id", no],
    ] {
        let (out, err) = run(args, 2);
        assert!(out.is_empty() && !err.is_empty(), "{args:?}: {out}{err}");
    }
}

#[test]
fn words_within_files_are_escaped() {
    let folder = folder();
    let zkm = &hostile("model.zkm")[..];
    folder.done(&[
        "commit",
        zkm,
        "--id",
        "words.id",
        "--key",
        "words.key",
        "--batches",
        "2",
    ]);
    let refused = |args: &[&str]| {
        let (out, err) = run(args, 2);
        assert!(out.is_empty(), "{args:?}: {out}");
        err
    };

    // reply.json
    folder.done(&[
        "run",
        zkm,
        "--prompt",
        "Once",
        "--max-tokens",
        "4",
        "--out",
        "words.json",
    ]);
    let honest: Value = serde_json::from_slice(&folder.read("words.json")).unwrap();
    let edits: [(&str, &Change); 6] = [
        ("key", &|j| j[HOSTILE] = json!(1)),
        ("decoding", &|j| j["decoding"] = json!(HOSTILE)),
        ("ended", &|j| j["ended"] = json!(HOSTILE)),
        ("prompt", &|j| j["prompt"] = json!(HOSTILE)),
        ("response", &|j| j["response"] = json!(HOSTILE)),
        ("version", &|j| j["version"] = json!(HOSTILE)),
    ];
    for (name, edit) in edits {
        let file = format!("words-{name}.json");
        let mut reply = honest.clone();
        edit(&mut reply);
        folder.write(&file, reply.to_string());
        refused(&[
            "prove",
            zkm,
            "--key",
            "words.key",
            "--id",
            "words.id",
            &file,
            "--out",
            "never",
        ]);
        let output = folder.zkmoe(&["inspect", &file]);
        run(&["inspect", &file], output.status.code().unwrap());
    }
    // Without end, too.
    let mut reply = honest;
    reply[HOSTILE.repeat(5000)] = json!(1);
    folder.write("words-endless.json", reply.to_string());
    let err = refused(&["inspect", "words-endless.json"]);
    assert!(err.contains("characters more"), "{}", err.len());

    // The tokenizer of an id. Some of it the library does not read.
    folder.write("words.slip", some_slip().encode());
    for (n, change) in [
        (&|j: &mut Value| j["normalizer"] = json!({"type": HOSTILE})) as &Change,
        &|j| j["decoder"]["type"] = json!(HOSTILE.repeat(5000)),
        &|j| j["model"]["dropout"] = json!({HOSTILE: HOSTILE}),
        &|j| j["model"]["vocab"][HOSTILE] = json!(5),
        &|j| j["model"]["merges"][0] = json!([HOSTILE, HOSTILE]),
        &|j| j["added_tokens"][0][HOSTILE] = json!(HOSTILE),
        &|j| j["added_tokens"][0]["id"] = json!(HOSTILE),
        &|j| j["model"][HOSTILE] = json!(HOSTILE),
    ]
    .into_iter()
    .enumerate()
    {
        let file = format!("words{n}.id");
        let mut id = folder.id("words.id");
        id.tokenizer = tokenizer_json(change);
        id.header.tokenizer_hash = *blake3::hash(&id.tokenizer).as_bytes();
        folder.write(&file, id.encode());
        let args = [
            "verify",
            "--id",
            &file,
            "--proof",
            "words.id",
            "--slip",
            "words.slip",
            "--prompt",
            "p",
            "--response",
            "r",
        ];
        let code = folder.zkmoe(&args).status.code().unwrap();
        assert!(code != 0);
        run(&args, code);
        run(&["inspect", &file], 0);
    }

    // A checkpoint.
    let bundled = concat!(env!("CARGO_MANIFEST_DIR"), "/data/olmoe-tiny");
    let config: Value =
        serde_json::from_slice(&std::fs::read(format!("{bundled}/config.json")).unwrap()).unwrap();
    std::fs::create_dir_all(folder.0.join("checkpoint")).unwrap();
    for file in ["tokenizer.json", "model.safetensors"] {
        std::fs::copy(
            format!("{bundled}/{file}"),
            folder.0.join("checkpoint").join(file),
        )
        .unwrap();
    }
    let edits: [(&str, Value); 5] = [
        (HOSTILE, json!(1)),
        ("hidden_size", json!(HOSTILE)),
        ("hidden_act", json!(HOSTILE)),
        ("rope_scaling", json!({HOSTILE: HOSTILE})),
        ("architectures", json!([HOSTILE])),
    ];
    for (option, value) in edits {
        let mut config = config.clone();
        config[option] = value;
        folder.write("checkpoint/config.json", config.to_string());
        refused(&["import", "checkpoint", "--out", "never"]);
        refused(&["params", "--config", "checkpoint/config.json"]);
        refused(&["inspect", "checkpoint"]);
    }
    folder.write("checkpoint/config.json", config.to_string());
    let index = json!({"weight_map": {HOSTILE: HOSTILE}});
    folder.write("checkpoint/model.safetensors.index.json", index.to_string());
    std::fs::remove_file(folder.0.join("checkpoint/model.safetensors")).unwrap();
    refused(&["import", "checkpoint", "--out", "never"]);
    std::fs::remove_file(folder.0.join("checkpoint/model.safetensors.index.json")).unwrap();
    let header =
        json!({HOSTILE: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).to_string();
    let tensors = [
        &(header.len() as u64).to_le_bytes()[..],
        header.as_bytes(),
        &[0; 4],
    ]
    .concat();
    folder.write("checkpoint/model.safetensors", tensors);
    refused(&["import", "checkpoint", "--out", "never"]);
}

#[test]
fn what_a_model_writes_reaches_files_as_it_is_and_nothing_else() {
    let folder = folder();
    let zkm = &hostile("controls.zkm")[..];
    let args = [
        "run",
        zkm,
        "--prompt",
        "Once",
        "--max-tokens",
        "6",
        "--out",
        "controls.json",
    ];
    // To a file, byte for byte.
    let output = folder.zkmoe(&args);
    let (out, err) = texts(&output);
    let reply = folder.reply("controls");
    assert_eq!(out, reply.response);
    assert!(
        reply.response.chars().all(char::is_control),
        "{:?}",
        reply.response
    );
    assert!(err.chars().all(|c| is_visible(c) || c == '\n'), "{err:?}");
    // The file of the reply can be printed.
    let file = String::from_utf8(folder.read("controls.json")).unwrap();
    assert!(file.chars().all(|c| is_visible(c) || c == '\n'), "{file:?}");

    let files = ["--id", "controls.id", "--key", "controls.key"];
    folder.done(&[&["commit", zkm, "--batches", "2"], &files[..]].concat());
    folder.done(&[&["certify", zkm, "--out", "controls.cert"], &files[..]].concat());
    folder.done(
        &[
            &["prove", zkm, "controls.json", "--out", "controls"],
            &files[..],
        ]
        .concat(),
    );
    let mut args = [
        "verify",
        "--id",
        "controls.id",
        "--cert",
        "controls.cert",
        "--proof",
        "controls/batch.proof",
        "--slip",
        "controls/controls.slip",
        "--prompt",
        "Once",
        "--response-file",
        "controls.txt",
    ];
    folder.write("controls.txt", &reply.response);
    let (text, _) = run(&args, 0);
    assert!(
        text.contains("Look closely: the response has characters that do not show"),
        "{text}"
    );
    args[12] = "controls.id";
    run(&args, 2);
    folder.write("controls.txt", format!("{}\u{1b}[2J", reply.response));
    args[12] = "controls.txt";
    let (text, _) = run(&args, 1);
    assert!(text.contains(r#""\u{1b}[2J""#), "{text}");
}
