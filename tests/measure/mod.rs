//! A command in a process of its own, with its exit code, what it said, and the most memory that it held.
//!
//! A system counts the memory of children only together, so each command gets a parent that has no other one: this test
//! program again.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use nix::sys::resource::{UsageWho, getrusage};
use serde::{Deserialize, Serialize};

/// Under these names a parent finds the command line and the file for its report.
const COMMAND: &str = "ZKMOE_TEST_COMMAND";
const REPORT: &str = "ZKMOE_TEST_REPORT";

/// What a hostile file may cost beyond an honest one, in bytes of memory.
pub const ROOM: u64 = 50 << 20;

/// A command that has ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ended {
    /// The exit code; none if a signal ended it.
    pub code: Option<i32>,
    /// Standard output, then standard error.
    pub text: String,
    /// The largest resident size, in bytes.
    pub peak: u64,
    /// Wall time.
    pub seconds: f64,
}

/// Runs the command in the environment as the only child of this process.
#[test]
#[ignore = "the parent of one command; the other tests start it"]
fn parent_of_one_command() {
    let args = env::var(COMMAND).expect("other tests start this one");
    let start = Instant::now();
    let output = Command::new(env!("CARGO_BIN_EXE_zkmoe"))
        .args(args.split('\n'))
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    let ended = Ended {
        seconds: start.elapsed().as_secs_f64(),
        code: output.status.code(),
        text: text.concat(),
        // Linux counts in kilobytes.
        peak: getrusage(UsageWho::RUSAGE_CHILDREN).unwrap().max_rss() as u64 * 1024,
    };
    let report = serde_json::to_vec(&ended).unwrap();
    fs::write(env::var(REPORT).unwrap(), report).unwrap();
}

/// Runs `zkmoe` with these arguments in a folder, with a state folder of its own.
pub fn run(folder: &Path, args: &[&str]) -> Ended {
    let report = folder.join("report.json");
    let parent = Command::new(env::current_exe().unwrap())
        .args(["--ignored", "--exact", "measure::parent_of_one_command"])
        .env(COMMAND, args.join("\n"))
        .env(REPORT, &report)
        .env("ZKMOE_STATE", folder.join("state"))
        .current_dir(folder)
        .output()
        .unwrap();
    let said = [parent.stdout, parent.stderr].map(|b| String::from_utf8_lossy(&b).into_owned());
    assert!(parent.status.success(), "{args:?}\n{}", said.concat());
    let ended = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
    fs::remove_file(report).unwrap();
    ended
}

/// Bytes in megabytes.
pub fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
