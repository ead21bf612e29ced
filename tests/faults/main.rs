//! The `zkmoe` command on bad days: full disks, kills, damaged files, names that must not be written to, odd texts and two
//! commands at once. What it must never do is leave half a file under its final name, forget an opening, or end without
//! saying which file is at fault and what to do.
//!
//! Each test has a provider's folder of its own, whose model, id, key and reply are copies of a set that is made once.

#![cfg(unix)]

#[path = "../common/mod.rs"]
mod common;

mod crash;
mod full;
mod json;
mod killed;
mod model;
mod places;
mod prompts;
mod signals;
mod together;

use std::fs;
use std::path::Path;
use std::process::Child;
use std::sync::OnceLock;

use common::{CHECKPOINT, Place, SHORT_TEXTS, write_short_texts};
use zkmoe::prover::key::{KeyState, Ledger};

/// The arguments of most commands.
const COMMIT: &str = "commit model.zkm --id new.id --key new.key --batches 8";
const CERTIFY: &str = "certify model.zkm --key model.key --id model.id --out model.cert";
const PROVE: &str = "prove model.zkm --key model.key --id model.id story.json --out proofs";
const ROTATE: &str = "rotate model.zkm --key model.key --id model.id --out-id next.id --out-key next.key --proof rotate.proof";
const RUN: &str = "run model.zkm --prompt Once --max-tokens 2 --out new.json";

/// An import of the built-in checkpoint that takes no time.
fn import(out: &str) -> String {
    format!("import {CHECKPOINT} --out {out} {SHORT_TEXTS}")
}

/// Makes a model, its id and key, and a reply.
fn make(name: &str, checkpoint: &str) -> Place {
    let place = Place::new(name);
    write_short_texts(&place.0);
    place.expect(&import("model.zkm").replace(CHECKPOINT, checkpoint), 0);
    place.expect(&COMMIT.replace("new.", "model."), 0);
    place.expect(&RUN.replace("new.json", "story.json"), 0);
    place
}

/// The set that most folders are copies of.
fn original() -> &'static Place {
    static ORIGINAL: OnceLock<Place> = OnceLock::new();
    ORIGINAL.get_or_init(|| make("faults-original", CHECKPOINT))
}

/// A set whose id is larger than its key, so that a limit can be between the two. An id has the tokenizer in it, as a
/// text in which spaces are free.
fn with_large_id() -> &'static Place {
    static LARGE: OnceLock<(Place, Place)> = OnceLock::new();
    let (_, place) = LARGE.get_or_init(|| {
        let checkpoint = Place::new("faults-large-checkpoint");
        for file in ["config.json", "model.safetensors", "tokenizer.json"] {
            fs::copy(format!("{CHECKPOINT}/{file}"), checkpoint.file(file)).unwrap();
        }
        let mut tokenizer = checkpoint.read("tokenizer.json");
        tokenizer.resize(tokenizer.len() + (9 << 20), b' ');
        checkpoint.write("tokenizer.json", tokenizer);
        let folder = checkpoint.0.to_str().unwrap().to_owned();
        (checkpoint, make("faults-large", &folder))
    });
    place
}

/// A folder with a model, its id and key of which nothing was opened yet, and a reply.
fn provider(name: &str) -> Place {
    copy(original(), name)
}

fn copy(original: &Place, name: &str) -> Place {
    let place = Place::new(&format!("faults-{name}"));
    for file in ORIGINALS {
        fs::copy(original.file(file), place.file(file)).unwrap();
    }
    place
}

/// What is in a provider's folder at first, sorted.
const ORIGINALS: [&str; 6] = [
    "calibration.txt",
    "heldout.json",
    "model.id",
    "model.key",
    "model.zkm",
    "story.json",
];

/// The names beside those of the originals.
fn others(place: &Place) -> Vec<String> {
    let mut names = place.names();
    names.retain(|name| !ORIGINALS.contains(&&name[..]));
    names
}

fn ledger(key: &Path) -> Ledger {
    KeyState::read(key).unwrap().ledger
}

/// Batches, certificates and rotations that the provider's key has counted.
fn counted(place: &Place) -> [u32; 3] {
    let Ledger {
        batches,
        certificates,
        rotations,
        ..
    } = ledger(&place.file("model.key"));
    [batches, certificates, rotations]
}

/// Waits until the provider's key has counted something, while a command is under way that will count.
fn wait_until_counted(place: &Place, child: &mut Child) {
    while counted(place) == [0, 0, 0] {
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none(), "it ended before it counted: {ended:?}");
        std::thread::yield_now();
    }
}

/// The size of one of the originals, or of another file, in KiB, rounded up.
fn kib(place: &Place, name: &str) -> u64 {
    place.file(name).metadata().unwrap().len().div_ceil(1024)
}
