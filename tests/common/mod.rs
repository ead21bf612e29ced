//! What tests of the command share that break it on purpose: the checkpoint, a provider's folder, commands in it, and limits
//! on them.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// The built-in checkpoint.
pub const CHECKPOINT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/olmoe-tiny");

/// Options of an import that takes no time: enough text to calibrate on, and a few tokens to compare on.
pub const SHORT_TEXTS: &str = "--calibration calibration.txt --heldout heldout.json";

/// Writes the files that [`SHORT_TEXTS`] names.
pub fn write_short_texts(folder: &Path) {
    let text = "To be, or not to be, that is the question. ".repeat(20);
    fs::write(folder.join("calibration.txt"), text).unwrap();
    let ids = r#"{"ids": [47, 78, 377, 1663, 259, 660], "window": 6}"#;
    fs::write(folder.join("heldout.json"), ids).unwrap();
}

/// A folder of a test's own, removed when the test has passed.
pub struct Place(pub PathBuf);

/// How a command ended.
#[derive(Debug)]
pub struct Finished {
    pub status: ExitStatus,
    pub out: String,
    pub err: String,
}

impl Place {
    /// An empty folder.
    pub fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    /// A file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.file(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.file(name), bytes).unwrap();
    }

    pub fn has(&self, name: &str) -> bool {
        self.file(name).symlink_metadata().is_ok()
    }

    /// All names in the folder, sorted; those of a folder in it have its name in front.
    pub fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut open = vec![String::new()];
        while let Some(folder) = open.pop() {
            for entry in fs::read_dir(self.0.join(&folder)).unwrap() {
                let entry = entry.unwrap();
                let name = format!("{folder}{}", entry.file_name().to_str().unwrap());
                if entry.file_type().unwrap().is_dir() {
                    open.push(format!("{name}/"));
                }
                names.push(name);
            }
        }
        names.sort();
        names
    }

    /// The command with arguments that are separated by white space.
    pub fn command(&self, args: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_zkmoe"));
        command.args(args.split_whitespace());
        self.settle(&mut command);
        command
    }

    /// The command where no file may be longer than so many KiB. What it writes beyond is an error, or ends the process
    /// by a signal, which is as good as a kill between two writes.
    pub fn limited(&self, kib: u64, or: Beyond, args: &str) -> Command {
        let trap = match or {
            Beyond::Fails => "trap '' XFSZ;",
            Beyond::Kills => "",
        };
        let mut command = Command::new("bash");
        command
            .arg("-c")
            .arg(format!("ulimit -c 0; ulimit -f {kib}; {trap} exec \"$@\""))
            .arg("bash")
            .arg(env!("CARGO_BIN_EXE_zkmoe"))
            .args(args.split_whitespace());
        self.settle(&mut command);
        command
    }

    fn settle(&self, command: &mut Command) {
        command
            .current_dir(&self.0)
            .env("ZKMOE_STATE", self.file("state"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
    }

    /// Runs a command that has to end with a code.
    #[track_caller]
    pub fn expect(&self, args: &str, code: i32) -> Finished {
        finish(self.command(args)).with_code(code)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

/// What writing beyond the limit does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beyond {
    Fails,
    Kills,
}

/// Runs a command to its end.
pub fn finish(mut command: Command) -> Finished {
    let output = command.output().unwrap();
    Finished {
        status: output.status,
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

impl Finished {
    #[track_caller]
    pub fn with_code(self, code: i32) -> Self {
        assert_eq!(self.status.code(), Some(code), "{self:#?}");
        self
    }

    /// Ended by a write beyond its limit.
    #[track_caller]
    pub fn killed(&self) {
        const SIGXFSZ: i32 = 25;
        assert_eq!(self.status.signal(), Some(SIGXFSZ), "{self:#?}");
    }

    /// Nothing was reported.
    #[track_caller]
    pub fn silent(self) -> Self {
        assert!(self.out.is_empty(), "{}", self.out);
        self
    }

    /// Refused, with an error that has these parts and a line that says what to do.
    #[track_caller]
    pub fn refused(self, parts: &[&str]) -> Self {
        let this = self.with_code(2);
        for part in parts {
            assert!(this.err.contains(part), "{part}: {}", this.err);
        }
        let lines: Vec<&str> = this.err.lines().collect();
        let at = lines.iter().position(|line| line.starts_with("error: "));
        let advice = at.and_then(|at| lines.get(at + 1));
        assert!(
            advice.is_some_and(|line| line.starts_with("  ")),
            "no advice: {}",
            this.err
        );
        this
    }
}

/// A number in 0..1 that is the same in every run of a test.
pub fn random(label: &str, n: usize) -> f64 {
    let hash = blake3::hash(&[label.as_bytes(), &n.to_le_bytes()].concat());
    let (bytes, _) = hash.as_bytes().split_first_chunk().unwrap();
    u32::from_le_bytes(*bytes) as f64 / f64::from(u32::MAX)
}
