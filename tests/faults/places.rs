//! Places that cannot or must not be written to. A command finds that out before it does the work, and before a key counts.

use std::fs;
use std::process::Command;

use crate::common::{Place, SHORT_TEXTS, finish};
use crate::{CERTIFY, COMMIT, ORIGINALS, PROVE, ROTATE, RUN, counted, import, others, provider};

/// Each command with one of its outputs, to be given another name.
fn outputs() -> Vec<(String, &'static str)> {
    vec![
        (import("new.zkm"), "new.zkm"),
        (RUN.to_owned(), "new.json"),
        (COMMIT.to_owned(), "new.id"),
        (COMMIT.to_owned(), "new.key"),
        (CERTIFY.to_owned(), "model.cert"),
        (ROTATE.to_owned(), "next.id"),
        (ROTATE.to_owned(), "next.key"),
        (ROTATE.to_owned(), "rotate.proof"),
    ]
}

#[test]
fn unusable_places_are_refused_before_anything_is_done() {
    let place = provider("places");
    fs::create_dir(place.file("folder")).unwrap();
    let pipe = Command::new("mkfifo").arg(place.file("pipe")).status();
    assert!(pipe.unwrap().success());
    std::os::unix::fs::symlink("/dev/null", place.file("null")).unwrap();
    let before = place.names();
    let long = "x".repeat(256);
    let mut names = vec![
        (&long[..], "File name too long"),
        ("missing/x", "missing"),
        ("folder", "folder"),
        ("folder/", "folder"),
        ("story.json/x", "story.json"),
        ("pipe", "pipe"),
        ("null", "null"),
        (".", "."),
        ("..", ".."),
        ("/", "/"),
    ];
    if cfg!(target_os = "linux") {
        // Nobody makes files here, whatever their rights.
        names.push(("/proc/x", "/proc"));
        names.push(("/proc/self/fd/x", "/proc/self/fd"));
    }
    for (args, output) in outputs() {
        for (name, named) in &names {
            let args = args.replace(output, name);
            finish(place.command(&args)).refused(&[named]).silent();
            assert_eq!(place.names(), before, "{args}");
        }
    }
    // `prove` writes into a folder, which it makes.
    for (name, named) in [
        ("story.json", "story.json: is not a folder"),
        ("story.json/x", "story.json: is not a folder"),
        ("pipe/x", "pipe: is not a folder"),
        ("null", "null: is not a folder"),
        ("/proc/x", "/proc: no file can be made in it"),
    ] {
        finish(place.command(&PROVE.replace("proofs", name))).refused(&[named]);
        assert_eq!(place.names(), before, "{name}");
    }
    assert_eq!(counted(&place), [0, 0, 0]);
}

#[test]
fn names_that_are_taken_are_refused() {
    let place = provider("places-taken");
    std::os::unix::fs::symlink("nowhere", place.file("link")).unwrap();
    for (args, output) in outputs().into_iter().skip(2) {
        for name in ["model.zkm", "link"] {
            let args = args.replace(output, name);
            finish(place.command(&args)).refused(&[name, "exists"]);
        }
    }
    assert_eq!(others(&place), ["link"]);
    assert_eq!(counted(&place), [0, 0, 0]);
}

/// What `import` and `run` write replaces an older one, and never a file of another kind.
#[test]
fn only_a_model_replaces_a_model_and_a_reply_a_reply() {
    let place = provider("places-kinds");
    fs::create_dir(place.file("checkpoint")).unwrap();
    for entry in fs::read_dir(crate::CHECKPOINT).unwrap() {
        let entry = entry.unwrap();
        let to = place.file("checkpoint").join(entry.file_name());
        fs::copy(entry.path(), to).unwrap();
    }
    fs::copy(place.file("story.json"), place.file("old.json")).unwrap();
    fs::copy(place.file("model.zkm"), place.file("old.zkm")).unwrap();
    place.write("empty", "");
    let contents = |place: &Place| {
        let names = place.names().into_iter();
        let files = names.filter(|name| place.file(name).is_file());
        files
            .map(|name| (place.read(&name), name))
            .collect::<Vec<_>>()
    };
    let before = contents(&place);
    let import = format!("import checkpoint {SHORT_TEXTS} --out");
    for (args, out, reason) in [
        (&import[..], "model.key", "is no model"),
        (&import, "model.id", "is no model"),
        (&import, "old.json", "is no model"),
        (&import, "checkpoint/config.json", "is no model"),
        (&import, "checkpoint/model.safetensors", "is no model"),
        (&import, "calibration.txt", "which is read"),
        (&import, "./heldout.json", "which is read"),
        ("run model.zkm --prompt a --out", "model.key", "is no reply"),
        ("run model.zkm --prompt a --out", "old.zkm", "is no reply"),
        (
            "run model.zkm --prompt a --out",
            "model.zkm",
            "which is read",
        ),
        (
            "run model.zkm --prompt a --out",
            "checkpoint/config.json",
            "is no reply",
        ),
        (
            "run model.zkm --prompt-file old.json --out",
            "old.json",
            "which is read",
        ),
    ] {
        finish(place.command(&format!("{args} {out}"))).refused(&[out, reason]);
        assert!(contents(&place) == before, "{args} {out}");
    }
    for out in ["old.zkm", "empty"] {
        place.expect(&format!("{import} {out}"), 0);
        assert!(place.read(out) == place.read("model.zkm"));
    }
    place.write("empty", "");
    for out in ["old.json", "empty"] {
        place.expect(&RUN.replace("new.json", out), 0);
        assert!(place.read(out) == place.read("story.json"));
    }
}

#[test]
fn a_note_is_not_written_over_what_it_is_about() {
    let place = provider("places-note");
    place.expect(&CERTIFY.replace("model.cert", "model.id.certified"), 0);
    let cert = place.read("model.id.certified");
    let args = "verify-model --id model.id --cert model.id.certified";
    finish(place.command(args)).refused(&["model.id.certified", "which is read"]);
    assert!(place.read("model.id.certified") == cert);
    place.write("model.cert", &cert);
    fs::remove_file(place.file("model.id.certified")).unwrap();
    place.expect("verify-model --id model.id --cert model.cert", 0);
}

#[test]
fn a_context_that_is_cut_is_said() {
    let place = provider("places-context");
    fs::create_dir(place.file("long")).unwrap();
    for file in ["model.safetensors", "tokenizer.json"] {
        let from = format!("{}/{file}", crate::CHECKPOINT);
        fs::copy(from, place.file("long").join(file)).unwrap();
    }
    let config = fs::read(format!("{}/config.json", crate::CHECKPOINT)).unwrap();
    let mut config: serde_json::Value = serde_json::from_slice(&config).unwrap();
    for (declared, warned) in [(4096, false), (5000, true)] {
        config["max_position_embeddings"] = declared.into();
        place.write("long/config.json", config.to_string());
        let out = place
            .expect(&format!("import long --out long.zkm {SHORT_TEXTS}"), 0)
            .out;
        let warning = "warning: max_position_embeddings is 5000 and was cut to 4096";
        assert_eq!(out.contains(warning), warned, "{out}");
    }
    assert!(place.names().iter().all(|name| !name.contains(".tmp")));
    assert!(ORIGINALS.iter().all(|name| place.has(name)));
}
