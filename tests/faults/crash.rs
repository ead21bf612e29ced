//! Commands killed at any moment: keys count every proof that left, and nothing half-made is left behind.
//!
//! The moments are spread over the measured time of a whole run, so the tests wait between start and kill. Kills between
//! two certain writes are in `tests/faults`.

use std::fs;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::{Place, random};
use crate::{ORIGINALS, import, provider};
use zkmoe::prover::key::{Key, Opening};
use zkmoe::prover::model::Model;
use zkmoe::verifier::certificate::verify_certificate;
use zkmoe::verifier::id::ModelId;
use zkmoe::verifier::rotation::verify_rotation;
use zkmoe::verifier::slip::Slip;
use zkmoe::verifier::verify::{check_slip, verify_batch};

fn read_id(place: &Place, name: &str) -> ModelId {
    ModelId::decode(&place.read(name)).unwrap()
}

/// Runs a command to its end; gives the time that it took.
fn whole(mut command: Command) -> Duration {
    let start = Instant::now();
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert!(status.unwrap().success(), "{command:?}");
    start.elapsed()
}

/// Starts a command and kills it in the `n`-th of `kills` equal parts of the time that a whole run takes. Says whether it
/// had ended by itself.
fn kill(mut command: Command, label: &str, whole: Duration, n: usize, kills: usize) -> bool {
    let moment = (n as f64 + random(label, n)) / kills as f64;
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut child = child.unwrap();
    sleep(whole.mul_f64(moment).min(Duration::from_secs(120)));
    let _ = child.kill();
    child.wait().unwrap().success()
}

/// A model, its commitment and one reply, whose proofs are the folders `out0`, `out1` and so on.
struct Provider {
    place: Place,
    id: ModelId,
    prompt: Vec<u32>,
    /// Runs that were started.
    runs: usize,
    /// Openings that the key counted when it was last looked at.
    spent: u64,
}

impl Provider {
    fn new(name: &str, batches: usize) -> Self {
        let place = provider(name);
        for file in ["model.id", "model.key"] {
            fs::remove_file(place.file(file)).unwrap();
        }
        let commit = "commit model.zkm --id model.id --key model.key --batches";
        place.expect(&format!("{commit} {batches}"), 0);
        let id = read_id(&place, "model.id");
        let reply = zkmoe::reply::Reply::open(&place.file("story.json")).unwrap();
        Self {
            place,
            id,
            prompt: reply.prompt_ids,
            runs: 0,
            spent: 0,
        }
    }

    /// Starts to prove the reply, in a folder of its own.
    fn prove(&mut self) -> Command {
        let out = self.runs;
        self.runs += 1;
        self.place.command(&format!(
            "prove model.zkm --key model.key --id model.id story.json --out out{out}"
        ))
    }

    /// Looks at everything that may be there when no run is under way.
    fn check(&mut self) {
        for entry in fs::read_dir(&self.place.0).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let known = ORIGINALS.contains(&&name[..]) || name == "model.key.last";
            assert!(
                known || (0..self.runs).any(|n| name == format!("out{n}")),
                "{name}"
            );
        }
        let mut links = Vec::new();
        for n in 0..self.runs {
            links.extend(self.check_output(&format!("out{n}")));
        }
        let key = Key::open(&self.place.file("model.key")).unwrap();
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
    fn check_output(&self, out: &str) -> Option<[[u8; 32]; 2]> {
        let names: Vec<String> = fs::read_dir(self.place.file(out))
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
            there.then(|| self.place.read(&format!("{out}/{name}")))
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

fn survives(name: &str, kills: usize) {
    let mut provider = Provider::new(name, kills + 2);
    let time = whole(provider.prove());
    provider.check();
    assert_eq!(provider.spent, 1);
    let mut proofs = 0;
    for n in 0..kills {
        let prove = provider.prove();
        proofs += usize::from(kill(prove, name, time, n, kills));
        provider.check();
    }
    whole(provider.prove());
    provider.check();
    let key = Key::open(&provider.place.file("model.key")).unwrap();
    println!(
        "{time:?} for a whole run; {kills} kills, {proofs} too late; {} openings counted, {} left",
        provider.spent,
        key.left(Opening::Batch)
    );
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

/// Kills `command(n)` a few times, for numbers from 1 on, and looks at what each leaves with `check`; the runs with the
/// first and the last number come to their end.
fn killed_and_run_again(
    place: &Place,
    label: &str,
    command: impl Fn(usize) -> String,
    check: impl Fn(usize, bool),
) {
    const KILLS: usize = 4;
    let time = whole(place.command(&command(0)));
    check(0, true);
    for n in 0..KILLS {
        let done = kill(place.command(&command(n + 1)), label, time, n, KILLS);
        check(n + 1, done);
    }
    whole(place.command(&command(KILLS + 1)));
    check(KILLS + 1, true);
    let names = place.names();
    assert!(names.iter().all(|name| !name.contains(".tmp")), "{names:?}");
}

#[test]
fn killed_imports_and_commitments_leave_whole_files() {
    let place = provider("crash-files");
    let model = place.read("model.zkm");
    // Every other import replaces a model.
    let out = |n: usize| format!("import{}.zkm", n / 2);
    let into = |n| import(&out(n));
    killed_and_run_again(&place, "import", into, |n, done| {
        assert!(place.has(&out(n)) || !done);
        if place.has(&out(n)) {
            assert!(place.read(&out(n)) == model);
        }
    });
    let commit = |n| format!("commit model.zkm --id {n}.id --key {n}.key --batches 1");
    killed_and_run_again(&place, "commit", commit, |n, done| {
        let [key, id] = ["key", "id"].map(|end| format!("{n}.{end}"));
        assert!(place.has(&id) || !done);
        assert!(place.has(&key) || !place.has(&id), "an id without its key");
        if place.has(&key) {
            let key = Key::open(&place.file(&key)).unwrap();
            assert_eq!(key.ledger().openings(), 0);
            if place.has(&id) {
                key.check(&read_id(&place, &id)).unwrap();
            }
        }
    });
}

#[test]
fn killed_certificates_and_rotations_are_counted() {
    let place = provider("crash-proofs");
    let id = read_id(&place, "model.id");
    let model = Model::open(&place.file("model.zkm")).unwrap();
    assert!(id.header == *model.header());
    // Each run has the key as it was at first.
    let with_key = |n: usize, prefix: &str| {
        let key = format!("{prefix}{n}.key");
        fs::copy(place.file("model.key"), place.file(&key)).unwrap();
        key
    };
    let certify = |n| {
        let key = with_key(n, "c");
        format!("certify model.zkm --key {key} --id model.id --out {n}.cert")
    };
    killed_and_run_again(&place, "certify", certify, |n, done| {
        let cert = format!("{n}.cert");
        let key = Key::open(&place.file(&format!("c{n}.key"))).unwrap();
        assert!(place.has(&cert) || !done);
        if place.has(&cert) {
            verify_certificate(&id, &place.read(&cert)).unwrap();
            assert_eq!(key.left(Opening::Certificate), 0);
        }
        assert_eq!(
            key.ledger().openings(),
            u64::from(key.ledger().certificates)
        );
    });
    let rotate = |n| {
        let key = with_key(n, "r");
        let out = format!("--out-id next{n}.id --out-key next{n}.key --proof {n}.proof");
        format!("rotate model.zkm --key {key} --id model.id {out}")
    };
    killed_and_run_again(&place, "rotate", rotate, |n, done| {
        let [new_key, new_id] = ["key", "id"].map(|end| format!("next{n}.{end}"));
        let proof = format!("{n}.proof");
        let key = Key::open(&place.file(&format!("r{n}.key"))).unwrap();
        assert!(place.has(&proof) || !done);
        assert!(place.has(&new_id) || !place.has(&proof));
        assert!(place.has(&new_key) || !place.has(&new_id));
        if place.has(&new_id) {
            let next = Key::open(&place.file(&new_key)).unwrap();
            next.check(&read_id(&place, &new_id)).unwrap();
        }
        if place.has(&proof) {
            let to = read_id(&place, &new_id);
            verify_rotation(&id, &to, &place.read(&proof)).unwrap();
            assert_eq!(key.left(Opening::Rotation), 0);
        }
        assert_eq!(key.ledger().openings(), u64::from(key.ledger().rotations));
    });
}
