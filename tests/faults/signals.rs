//! Signals that a process is told of: it tidies up, or says what happened.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};

use crate::common::{Finished, Place};
use crate::{PROVE, provider};

/// Waits for a line that has this part, on a stream of a child.
fn wait_for(stream: impl Read, part: &str) -> impl Read {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while !line.contains(part) {
        line.clear();
        let read = reader.read_line(&mut line).unwrap();
        assert!(read > 0, "ended before it said {part}");
    }
    reader
}

fn end(mut child: Child, mut out: impl Read, mut err: impl Read) -> Finished {
    let read = |stream: &mut dyn Read| {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    Finished {
        out: read(&mut out),
        err: read(&mut err),
        status: child.wait().unwrap(),
    }
}

#[test]
fn a_demo_that_is_told_to_end_leaves_nothing() {
    for (name, number) in [("TERM", 15), ("INT", 2), ("HUP", 1)] {
        let place = Place::new(&format!("faults-signal-{name}"));
        let mut demo = place.command("demo");
        let mut child = demo.env("TMPDIR", &place.0).spawn().unwrap();
        let out = wait_for(child.stdout.take().unwrap(), "Commit");
        assert!(
            place
                .names()
                .iter()
                .any(|name| name.ends_with("/model.key"))
        );
        let signal = Command::new("kill")
            .args([&format!("-{name}"), &child.id().to_string()])
            .status();
        assert!(signal.unwrap().success());
        let err = child.stderr.take().unwrap();
        let finished = end(child, out, err);
        // The thread that works may notice that its folder is gone before the process ends.
        let ended = finished.status.signal() == Some(number) || finished.status.code() == Some(2);
        assert!(ended, "{finished:#?}");
        assert!(place.names().is_empty(), "{:?}", place.names());
    }
}

/// Somebody writes another model over the one in use. The reply that was served no longer fits it, and is not to blame.
#[test]
fn a_model_that_is_written_over_while_in_use_is_named() {
    let place = provider("signal-changed");
    let mut child = place.command(PROVE).spawn().unwrap();
    let out = child.stdout.take().unwrap();
    // Said when the model was read and before it runs.
    let err = wait_for(child.stderr.take().unwrap(), "Estimate");
    let model = std::fs::OpenOptions::new()
        .write(true)
        .open(place.file("model.zkm"));
    let start = 600_000;
    let length = place.read("model.zkm").len() - start;
    model
        .unwrap()
        .write_all_at(&vec![1; length], start as u64)
        .unwrap();
    let finished = end(child, out, err).silent().with_code(2);
    for part in [
        "model.zkm: was written to while it was in use",
        "renaming",
        "the key has counted",
    ] {
        assert!(finished.err.contains(part), "{part}: {finished:#?}");
    }
    assert!(!place.has("proofs"));
}
