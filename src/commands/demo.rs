//! `zkmoe demo`: all steps with a small model that is built in, each through the command that a user would run.
//!
//! The demo ends well only if everything honest is accepted and everything tampered with is rejected.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use zkmoe_verifier::slip::Slip;

use super::decision::Options;
use super::{certify, commit, import, prove, run, verify, verify_model};
use crate::failure::{Failure, Outcome};
use crate::input::{self, Prompt, Response};
use crate::output;
use crate::signals;
use crate::state::StateArgs;
use crate::visible::{Line, shell_word};

/// The checkpoint, as files of one folder.
const CHECKPOINT: [(&str, &[u8]); 4] = [
    (
        "config.json",
        include_bytes!("../../data/olmoe-tiny/config.json"),
    ),
    (
        "model.safetensors",
        include_bytes!("../../data/olmoe-tiny/model.safetensors"),
    ),
    (
        "tokenizer.json",
        include_bytes!("../../data/olmoe-tiny/tokenizer.json"),
    ),
    (
        "heldout.json",
        include_bytes!("../../data/olmoe-tiny/heldout.json"),
    ),
];

/// Name, prompt and limit of each request.
const REQUESTS: [(&str, &str, u32); 4] = [
    ("story", "Once upon a time", 32),
    ("moses", "And the Lord said to Moses,", 24),
    (
        "emma",
        "Emma was very much pleased with her friend, and",
        40,
    ),
    ("meaning", "The meaning of the word is", 28),
];

/// The folder, within that of the demo, with the secret that marks the customer's note.
const STATE_FOLDER: &str = "state";

/// Go through all steps with a small model that is built in.
///
/// Imports, commits and certifies, answers four prompts, proves the replies in one batch and verifies each; then changes a word
/// of a reply and a byte of the proof, which has to be rejected. Exits with 0 only if every verdict is as it should be.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  zkmoe demo
  zkmoe demo --keep ./demo")]
pub struct Args {
    /// Leave all files in this folder, which must be empty or new; otherwise a temporary one is used and removed, also
    /// after Ctrl-C. Only a kill that cannot be caught leaves it.
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
}

/// The folder of a demo; a temporary one is removed at the end, also if that is a signal.
struct Folder {
    path: PathBuf,
    temporary: bool,
}

impl Folder {
    fn new(keep: Option<&PathBuf>) -> Result<Self, Failure> {
        if let Some(path) = keep {
            fs::create_dir_all(path).map_err(|error| Failure::io(path, &error))?;
            let mut entries = fs::read_dir(path).map_err(|error| Failure::io(path, &error))?;
            if entries.next().is_some() {
                return Err(
                    Failure::file(path, "is not empty").advise("choose another folder with --keep")
                );
            }
            return Ok(Self {
                path: path.clone(),
                temporary: false,
            });
        }
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |t| t.subsec_nanos());
        let path = std::env::temp_dir().join(format!("zkmoe-demo-{}-{now}", std::process::id()));
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        {
            use std::os::unix::fs::DirBuilderExt;
            // The folder will hold a key.
            builder.mode(0o700);
        }
        signals::remove_if_ended(path.clone());
        builder
            .create(&path)
            .map_err(|error| Failure::io(&path, &error))?;
        Ok(Self {
            path,
            temporary: true,
        })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// A state of the demo's own, so that it leaves nothing elsewhere.
    fn state(&self) -> StateArgs {
        StateArgs {
            folder: Some(self.file(STATE_FOLDER)),
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.temporary {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// A line of the report.
fn say(text: impl std::fmt::Display) -> Result<(), Failure> {
    output::print(format_args!("{}\n", Line(text)))
}

/// A text on one line.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Replaces one word of a text; an empty text gets one.
fn change_word(text: &str) -> (String, String, &'static str) {
    let words = text.split(|c: char| !c.is_ascii_alphabetic());
    match words
        .filter(|word| word.len() > 2)
        .max_by_key(|word| word.len())
    {
        Some(word) => {
            let new = if word == "nothing" {
                "everything"
            } else {
                "nothing"
            };
            (text.replacen(word, new, 1), word.to_owned(), new)
        }
        None => (format!("{text} nothing"), String::new(), "nothing"),
    }
}

/// The files of one demo.
struct Demo {
    folder: Folder,
    unexpected: usize,
    verdicts: usize,
}

impl Demo {
    fn prepare(&self) -> Result<(), Failure> {
        let folder = self.folder.file("checkpoint");
        fs::create_dir(&folder).map_err(|error| Failure::file(&folder, error))?;
        for (name, bytes) in CHECKPOINT {
            input::write(&folder.join(name), bytes)?;
        }
        let start = Instant::now();
        let report = import::perform(&import::Args {
            checkpoint: folder.clone(),
            out: self.folder.file("model.zkm"),
            calibration: None,
            heldout: Some(folder.join("heldout.json")),
            json: false,
        })?;
        let compared = &report.import.evaluation;
        say(format_args!(
            "Import    {} weights, {}, {}",
            report.import.parameters,
            output::bytes(report.import.file_size),
            output::seconds(start.elapsed().as_secs_f64())
        ))?;
        say(format_args!(
            "          perplexity {:.3} in floats, {:.3} in integers; same most likely token {:.1} %, same experts {:.1} %",
            compared.float_perplexity,
            compared.integer_perplexity,
            100.0 * compared.same_token,
            100.0 * compared.same_experts
        ))?;
        let report = commit::perform(&commit::Args {
            model: self.folder.file("model.zkm"),
            id: self.folder.file("model.id"),
            key: self.folder.file("model.key"),
            batches: Some(64),
            json: false,
        })?;
        say(format_args!(
            "Commit    {}, {}",
            report.model_id,
            output::seconds(report.seconds)
        ))
    }

    /// How the customer checks.
    fn options(&self) -> Options {
        Options {
            state: self.folder.state(),
            ..Options::default()
        }
    }

    /// Certifies the weights; the customer checks that, and the check is noted beside the id.
    fn certify(&mut self) -> Result<(), Failure> {
        let report = certify::perform(&certify::Args {
            model: self.folder.file("model.zkm"),
            key: self.folder.file("model.key"),
            id: self.folder.file("model.id"),
            out: self.folder.file("model.cert"),
            json: false,
        })?;
        say(format_args!(
            "Certify   all weights are in range: {}, {}",
            output::bytes(report.bytes as u64),
            output::seconds(report.seconds)
        ))?;
        let start = Instant::now();
        let verdict = verify_model::perform(&verify_model::Args {
            id: self.folder.file("model.id"),
            cert: self.folder.file("model.cert"),
            options: self.options(),
        })?;
        let decided = verdict.found().map(|found| found.soundness.soundness_bits);
        self.report("weights of the model", decided, start, true)
    }

    fn run(&self) -> Result<Vec<run::Report>, Failure> {
        let mut reports = Vec::new();
        for (name, prompt, max_tokens) in REQUESTS {
            let start = Instant::now();
            let report = run::perform(
                &run::Args {
                    model: self.folder.file("model.zkm"),
                    prompt: Prompt {
                        prompt: Some(prompt.to_owned()),
                        prompt_file: None,
                    },
                    max_tokens,
                    out: self.folder.file(&format!("{name}.json")),
                    json: false,
                },
                &mut |_| Ok(()),
            )?;
            // The customer's copies.
            input::write(
                &self.folder.file(&format!("{name}.prompt.txt")),
                prompt.as_bytes(),
            )?;
            input::write(
                &self.folder.file(&format!("{name}.response.txt")),
                report.reply.response.as_bytes(),
            )?;
            say(format_args!(
                "Run       {name}: [{prompt}] {}",
                one_line(&report.reply.response)
            ))?;
            say(format_args!(
                "          {} tokens, {}",
                report.reply.response_ids.len(),
                output::seconds(start.elapsed().as_secs_f64())
            ))?;
            reports.push(report);
        }
        Ok(reports)
    }

    fn prove(&self) -> Result<(), Failure> {
        let report = prove::perform(&prove::Args {
            model: self.folder.file("model.zkm"),
            replies: REQUESTS
                .iter()
                .map(|(name, ..)| self.folder.file(&format!("{name}.json")))
                .collect(),
            key: self.folder.file("model.key"),
            last_proof: None,
            id: self.folder.file("model.id"),
            out: self.folder.file("proofs"),
            sizes: prove::SizeArgs::default(),
            json: false,
        })?;
        say(format_args!(
            "Prove     {} replies in one batch: {}, {}",
            report.requests.len(),
            output::bytes(report.bytes as u64),
            output::seconds(report.seconds)
        ))?;
        for phase in &report.phases {
            say(format_args!(
                "          {}: {}",
                phase.phase,
                output::seconds(phase.seconds)
            ))?;
        }
        Ok(())
    }

    /// Verifies files of the demo.
    fn verify(&mut self, what: &str, files: &Files, accept: bool) -> Result<(), Failure> {
        let start = Instant::now();
        let verdict = verify::perform(&verify::Args {
            id: self.folder.file("model.id"),
            cert: None,
            proof: self.folder.file(&files.proof),
            slip: self.folder.file(&files.slip),
            prompt: Prompt {
                prompt: None,
                prompt_file: Some(self.folder.file(&files.prompt)),
            },
            response: Response {
                response: None,
                response_file: Some(self.folder.file(&files.response)),
            },
            expect_id: None,
            max_tokens: None,
            ended: None,
            options: self.options(),
        })?;
        let decided = verdict.found().map(|found| found.soundness.soundness_bits);
        self.report(what, decided, start, accept)
    }

    /// Prints a verdict, bits of soundness or the check that failed, and compares it with the one that is due.
    fn report(
        &mut self,
        what: &str,
        decided: Result<f64, String>,
        start: Instant,
        accept: bool,
    ) -> Result<(), Failure> {
        let seconds = output::seconds(start.elapsed().as_secs_f64());
        self.verdicts += 1;
        let (text, accepted) = match decided {
            Ok(bits) => (
                format!("ACCEPTED ({:.1} bits)", (bits * 10.0).floor() / 10.0),
                true,
            ),
            Err(check) => (format!("REJECTED: {check}"), false),
        };
        let note = if accepted == accept {
            ""
        } else {
            self.unexpected += 1;
            "  THIS IS NOT AS IT SHOULD BE"
        };
        say(format_args!("Verify    {what}: {text}, {seconds}{note}"))
    }

    /// Everything that has to be rejected.
    fn tamper(&mut self, story: &run::Report) -> Result<(), Failure> {
        let (name, _, _) = REQUESTS[0];
        let honest = Files::of(name);
        let (text, old, new) = change_word(&story.reply.response);
        input::write(&self.folder.file("forged.response.txt"), text.as_bytes())?;
        let forged = Files {
            response: "forged.response.txt".to_owned(),
            ..honest.clone()
        };
        self.verify(&format!("{name} with {new:?} for {old:?}"), &forged, false)?;

        let path = self.folder.file(&honest.slip);
        let mut slip =
            Slip::decode(&input::read(&path)?).map_err(|error| Failure::file(&path, error))?;
        let (_, tokenizer) = input::open_model(&self.folder.file("model.zkm"))?;
        slip.response = tokenizer.encode(&text).map_err(Failure::new)?;
        input::write_private(&self.folder.file("forged.slip"), &slip.encode())?;
        let forged = Files {
            slip: "forged.slip".to_owned(),
            ..forged
        };
        self.verify(
            &format!("{name} with {new:?} for {old:?}, slip forged to match"),
            &forged,
            false,
        )?;

        let path = self.folder.file(&honest.proof);
        let mut proof = input::read(&path)?;
        let middle = proof.len() / 2;
        proof[middle] ^= 1;
        input::write(&self.folder.file("forged.proof"), &proof)?;
        let forged = Files {
            proof: "forged.proof".to_owned(),
            ..honest
        };
        self.verify(
            &format!("{name} with bit 0 of byte {middle} of the proof flipped"),
            &forged,
            false,
        )
    }
}

/// Names of the files of one verification.
#[derive(Debug, Clone)]
struct Files {
    proof: String,
    slip: String,
    prompt: String,
    response: String,
}

impl Files {
    fn of(name: &str) -> Self {
        Self {
            proof: format!("proofs/{}", prove::PROOF_FILE),
            slip: format!("proofs/{name}.slip"),
            prompt: format!("{name}.prompt.txt"),
            response: format!("{name}.response.txt"),
        }
    }
}

/// The command that verifies one reply of a kept folder, on two lines.
fn command(folder: &Path) -> [String; 2] {
    let files = Files::of(REQUESTS[0].0);
    let quoted = |name: &str| shell_word(&folder.join(name));
    [
        format!(
            "zkmoe verify --id {} --state {} --proof {} --slip {} \\",
            quoted("model.id"),
            quoted(STATE_FOLDER),
            quoted(&files.proof),
            quoted(&files.slip)
        ),
        format!(
            "  --prompt-file {} --response-file {}",
            quoted(&files.prompt),
            quoted(&files.response)
        ),
    ]
}

/// Goes through all steps.
pub fn execute(args: &Args) -> Result<Outcome, Failure> {
    let mut demo = Demo {
        folder: Folder::new(args.keep.as_ref())?,
        unexpected: 0,
        verdicts: 0,
    };
    demo.prepare()?;
    demo.certify()?;
    let replies = demo.run()?;
    demo.prove()?;
    for (name, ..) in REQUESTS {
        demo.verify(name, &Files::of(name), true)?;
    }
    if let Some(story) = replies.first() {
        demo.tamper(story)?;
    }
    if demo.unexpected > 0 {
        return Err(Failure::new(format_args!(
            "{} of {} verdicts are not as they should be",
            demo.unexpected, demo.verdicts
        )));
    }
    say(format_args!(
        "All {} verdicts are as they should be.",
        demo.verdicts
    ))?;
    if let Some(folder) = &args.keep {
        say(format_args!(
            "The files are in {}. To verify one reply by hand:",
            folder.display()
        ))?;
        for line in command(folder) {
            say(format_args!("  {line}"))?;
        }
    }
    Ok(Outcome::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_word_changes() {
        assert_eq!(
            change_word(" to be here, a b"),
            (" to be nothing, a b".into(), "here".into(), "nothing")
        );
        assert_eq!(
            change_word("nothing"),
            ("everything".into(), "nothing".into(), "everything")
        );
        assert_eq!(
            change_word("1 2"),
            ("1 2 nothing".into(), String::new(), "nothing")
        );
    }

    #[test]
    fn temporary_folders_are_removed() {
        let folder = Folder::new(None).unwrap();
        let path = folder.path.clone();
        fs::write(folder.file("a"), "b").unwrap();
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn the_command_by_hand_names_the_state_of_the_demo() {
        let text = command(Path::new("/a 'b'")).concat();
        assert!(text.contains(r"--state '/a '\''b'\''/state'"), "{text}");
        let folder = Folder::new(None).unwrap();
        let state = folder.state().folder.unwrap();
        assert!(state.starts_with(&folder.path) && state.ends_with(STATE_FOLDER));
    }

    #[test]
    fn full_folders_are_refused() {
        let folder = Folder::new(None).unwrap();
        assert!(Folder::new(Some(&folder.file("new"))).is_ok());
        let error = Folder::new(Some(&folder.path)).err().unwrap();
        assert!(error.to_string().contains("not empty"));
    }
}
