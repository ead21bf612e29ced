//! `zkmoe prove`, killed at any moment: the key counts every proof that left, and nothing half-made is left behind.
//!
//! The moments are spread over the measured time of a whole run, so the test waits between start and kill.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use zkmoe::prover::key::{Key, Opening};
use zkmoe::verifier::id::ModelId;
use zkmoe::verifier::slip::Slip;
use zkmoe::verifier::verify::{check_slip, verify_batch};

/// A model, its commitment and one reply in an own folder, whose proofs are the folders `out0`, `out1` and so on.
struct Provider {
    folder: PathBuf,
    id: ModelId,
    prompt: Vec<u32>,
    /// Runs that were started.
    runs: usize,
    /// Openings that the key counted when it was last looked at.
    spent: u64,
}

impl Provider {
    fn new(name: &str, batches: usize) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let checkpoint = concat!(env!("CARGO_MANIFEST_DIR"), "/data/olmoe-tiny");
        let batches = batches.to_string();
        for args in [
            &["import", checkpoint, "--out", "model.zkm"][..],
            &[
                "commit",
                "model.zkm",
                "--id",
                "model.id",
                "--key",
                "model.key",
                "--batches",
                &batches,
            ],
            &[
                "run",
                "model.zkm",
                "--prompt",
                "Once upon",
                "--max-tokens",
                "2",
                "--out",
                "story.json",
            ],
        ] {
            assert!(zkmoe(&folder, args).status().unwrap().success(), "{args:?}");
        }
        let id = ModelId::decode(&fs::read(folder.join("model.id")).unwrap()).unwrap();
        let reply = zkmoe::reply::Reply::open(&folder.join("story.json")).unwrap();
        Self {
            folder,
            id,
            prompt: reply.prompt_ids,
            runs: 0,
            spent: 0,
        }
    }

    /// Starts to prove the reply, in a folder of its own.
    fn prove(&mut self) -> Command {
        let out = format!("out{}", self.runs);
        self.runs += 1;
        let args = [
            "prove",
            "model.zkm",
            "--key",
            "model.key",
            "--id",
            "model.id",
            "story.json",
            "--out",
            &out,
        ];
        zkmoe(&self.folder, &args)
    }

    /// Looks at everything that may be there when no run is under way.
    fn check(&mut self) {
        for entry in fs::read_dir(&self.folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let known = [
                "model.zkm",
                "model.id",
                "model.key",
                "model.key.last",
                "story.json",
            ];
            assert!(
                known.contains(&&name[..]) || (0..self.runs).any(|n| name == format!("out{n}")),
                "{name}"
            );
        }
        let mut links = Vec::new();
        for n in 0..self.runs {
            links.extend(self.check_output(&self.folder.join(format!("out{n}"))));
        }
        let key = Key::open(&self.folder.join("model.key")).unwrap();
        let spent = key.ledger().openings();
        assert_eq!(spent, u64::from(key.ledger().batches));
        assert!(spent >= links.len() as u64, "a proof is not counted");
        assert!(
            (self.spent..=self.runs as u64).contains(&spent),
            "{} openings became {spent}, after {} runs",
            self.spent,
            self.runs
        );
        self.spent = spent;
        // Proofs with one value before them would look like those of a copied key.
        for (n, link) in links.iter().enumerate() {
            assert!(links[..n].iter().all(|other| other[0] != link[0]));
        }
    }

    /// All that a run may leave: nothing, whole slips, or whole slips and their proof. Gives the link of the proof.
    fn check_output(&self, out: &Path) -> Option<[[u8; 32]; 2]> {
        let names: Vec<String> = fs::read_dir(out)
            .ok()?
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert!(
            names
                .iter()
                .all(|name| name == "story.slip" || name == "batch.proof"),
            "{names:?}"
        );
        let read = |name: &str| {
            let there = names.iter().any(|n| n == name);
            there.then(|| fs::read(out.join(name)).unwrap())
        };
        let slip = read("story.slip").map(|bytes| Slip::decode(&bytes).unwrap());
        let proof = read("batch.proof")?;
        let batch = verify_batch(&self.id, &proof).unwrap();
        check_slip(
            &self.id,
            &batch,
            &slip.expect("no proof without its slip"),
            &self.prompt,
        )
        .unwrap();
        Some(batch.header.link)
    }
}

fn zkmoe(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zkmoe"));
    command
        .args(args)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// A number in 0..1 that is the same in every run of the test.
fn random(n: usize) -> f64 {
    let hash = blake3::hash(&[b"crash", &n.to_le_bytes()[..]].concat());
    let (bytes, _) = hash.as_bytes().split_first_chunk().unwrap();
    u32::from_le_bytes(*bytes) as f64 / f64::from(u32::MAX)
}

fn survives(name: &str, kills: usize) {
    let mut provider = Provider::new(name, kills + 2);
    let start = Instant::now();
    assert!(provider.prove().status().unwrap().success());
    let whole = start.elapsed();
    provider.check();
    assert_eq!(provider.spent, 1);
    let mut proofs = 0;
    for n in 0..kills {
        // One moment in each of as many equal parts of the run.
        let moment = (n as f64 + random(n)) / kills as f64;
        let mut child = provider.prove().spawn().unwrap();
        sleep(whole.mul_f64(moment).min(Duration::from_secs(120)));
        // It may have ended by itself.
        let _ = child.kill();
        let status = child.wait().unwrap();
        proofs += usize::from(status.success());
        provider.check();
    }
    assert!(provider.prove().status().unwrap().success());
    provider.check();
    let left = Key::open(&provider.folder.join("model.key"))
        .unwrap()
        .left(Opening::Batch);
    println!(
        "{whole:?} for a whole run; {kills} kills, {proofs} too late; {} openings counted, {left} left",
        provider.spent
    );
    fs::remove_dir_all(&provider.folder).unwrap();
}

#[test]
fn a_killed_prover_is_counted() {
    survives("crash", 4);
}

#[test]
#[ignore = "takes minutes; the test above kills less often"]
fn a_prover_killed_fifty_times_is_counted() {
    survives("crash-fifty", 50);
}
