//! The same inputs and the same randomness give the same bytes, whatever the number of threads and however often; other
//! randomness gives others. Who has the seeds can so check any file of a provider by making it again.

use rayon::ThreadPoolBuilder;

use crate::common::{Committed, answer, micro};
use zkmoe_commit::params::Params;
use zkmoe_prover::certify::certify;
use zkmoe_prover::commitment::commit;
use zkmoe_prover::import::{ImportOptions, import};
use zkmoe_prover::key::{Key, Opening};
use zkmoe_prover::prove::{Hook, NoHook, prove};
use zkmoe_prover::rotate::{self, Side, recommit};
use zkmoe_prover::trace::Padding;
use zkmoe_verifier::certificate::verify_certificate;
use zkmoe_verifier::id::ModelId;
use zkmoe_verifier::relation::{Dims, Relation};
use zkmoe_verifier::rotation::verify_rotation;
use zkmoe_verifier::slip::Slip;
use zkmoe_verifier::verify::verify_batch;

/// Files by name.
type Files = Vec<(&'static str, Vec<u8>)>;

fn on_threads<T: Send>(threads: usize, make: impl FnOnce() -> T + Send) -> T {
    let pool = ThreadPoolBuilder::new().num_threads(threads).build();
    pool.unwrap().install(make)
}

/// Names of the files that differ.
fn differing(a: &Files, b: &Files) -> Vec<&'static str> {
    assert_eq!(a.len(), b.len());
    let pairs = a.iter().zip(b);
    let differing = pairs.filter(|((name, a), (other, b))| {
        assert_eq!(name, other);
        a != b
    });
    differing.map(|((name, _), _)| *name).collect()
}

/// The numbers of threads, each of which has to give what the first gives.
const THREADS: [usize; 4] = [1, 1, 2, 3];

#[track_caller]
fn same_on_all(make: impl Fn() -> Files + Sync) -> Files {
    let [first, others @ ..] = THREADS.map(|threads| on_threads(threads, &make));
    for (files, threads) in others.iter().zip(&THREADS[1..]) {
        assert_eq!(differing(&first, files), [""; 0], "{threads} threads");
    }
    first
}

/// The files of a commitment with seed `seed`.
fn commitment(seed: u8) -> Files {
    let model = micro();
    let params = Params::choose(model.parameters() as usize, 2);
    let (id, key) = commit(&model, params, [seed; 32], &|_, _| ());
    vec![("model.id", id.encode()), ("model.key", key.encode())]
}

#[test]
fn commitments_follow_from_their_seed() {
    let files = same_on_all(|| commitment(3));
    assert_eq!(differing(&files, &commitment(4)), ["model.id", "model.key"]);
}

/// What a key proves with some randomness: all files and the key's own bytes, which have its ledger.
fn proofs(by: &Committed, seed: u8) -> Files {
    /// What a hook is told.
    #[derive(Default)]
    struct Told {
        phases: Vec<&'static str>,
        filled: bool,
    }
    impl Hook for Told {
        fn phase(&mut self, name: &'static str) {
            self.phases.push(name);
        }
        fn first(&mut self, _: &Relation, _: &Dims, witness: &mut zkmoe_prover::engine::Witness) {
            self.filled = !witness.tensors.is_empty();
        }
    }
    let (model, id, mut key) = (&by.model, &by.id, by.key());
    let replies = [answer(model, &[3, 5, 7], 4), answer(model, &[11], 2)];
    let padding = Padding::default();
    let (randomness, mut hook) = ([seed; 32], Told::default());
    let batch = prove(
        model, id, &mut key, &replies, padding, randomness, &mut hook,
    )
    .unwrap();
    assert_eq!(hook.phases.first(), Some(&"run the model"));
    assert!(hook.filled);
    let cert = certify(model, id, &mut key, randomness, &mut NoHook).unwrap();
    let slips: Vec<u8> = batch.slips.iter().flat_map(Slip::encode).collect();
    vec![
        ("batch.proof", batch.proof),
        ("slips", slips),
        ("model.cert", cert.bytes),
        ("model.key", key.encode()),
    ]
}

#[test]
fn proofs_and_certificates_follow_from_their_randomness() {
    let model = micro();
    let params = Params::choose(model.parameters() as usize, 2);
    let by = Committed::with(model, params, [3; 32]);
    let files = same_on_all(|| proofs(&by, 9));
    verify_batch(&by.id, &files[0].1).unwrap();
    verify_certificate(&by.id, &files[2].1).unwrap();
    let names: Vec<_> = files.iter().map(|(name, _)| *name).collect();
    let others = proofs(&by, 8);
    verify_batch(&by.id, &others[0].1).unwrap();
    assert_eq!(differing(&files, &others), names);
    // Nor does the same randomness make the same proof a second time: the key has counted the first.
    let mut key = Key::decode(&files[3].1).unwrap();
    let replies = [
        answer(&by.model, &[3, 5, 7], 4),
        answer(&by.model, &[11], 2),
    ];
    let (model, id) = (&by.model, &by.id);
    let padding = Padding::default();
    let again = prove(model, id, &mut key, &replies, padding, [9; 32], &mut NoHook).unwrap();
    assert!(again.proof != files[0].1);
}

/// A rotation with some randomness.
fn rotation(by: &Committed, seed: u8) -> Files {
    fn side<'a>(by: &'a Committed, id: &'a ModelId, key: &'a Key) -> Side<'a> {
        let model = &by.model;
        Side { model, id, key }
    }
    let mut old = by.key();
    let from = side(by, &by.id, &old);
    let (id, key, new_permit) = recommit(&from, [seed; 32], &|_, _| ()).unwrap();
    let permit = old.spend_with(Opening::Rotation, [7; 32]).unwrap();
    let (from, to) = (side(by, &by.id, &old), side(by, &id, &key));
    let permits = [permit, new_permit];
    let rotation = rotate::prove(&from, &to, permits, [seed; 32], &mut NoHook).unwrap();
    verify_rotation(&by.id, &id, &rotation.proof).unwrap();
    vec![
        ("next.id", id.encode()),
        ("next.key", key.encode()),
        ("rotate.proof", rotation.proof),
    ]
}

#[test]
fn rotations_follow_from_their_randomness() {
    let model = micro();
    let params = Params::choose(model.parameters() as usize, 2);
    let by = Committed::with(model, params, [3; 32]);
    let files = same_on_all(|| rotation(&by, 5));
    let names: Vec<_> = files.iter().map(|(name, _)| *name).collect();
    assert_eq!(differing(&files, &rotation(&by, 6)), names);
}

/// Nothing of an import is random, and its sums of floats are in an order that does not depend on threads.
#[test]
fn an_import_follows_from_its_checkpoint() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("reproducible");
    std::fs::create_dir_all(&folder).unwrap();
    let options = ImportOptions {
        calibration: Some(folder.join("calibration.txt")),
        heldout: Some(folder.join("heldout.json")),
    };
    let text = "To be, or not to be, that is the question. ".repeat(20);
    std::fs::write(folder.join("calibration.txt"), text).unwrap();
    let heldout = r#"{"ids": [47, 78, 377, 1663, 259, 660, 5, 6, 7], "window": 4}"#;
    std::fs::write(folder.join("heldout.json"), heldout).unwrap();
    let checkpoint = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/olmoe-tiny");
    same_on_all(|| {
        let (model, report) = import(checkpoint.as_ref(), &options, &|_, _, _| ()).unwrap();
        let mut bytes = Vec::new();
        model.write(&mut bytes).unwrap();
        vec![
            ("model.zkm", bytes),
            ("report", serde_json::to_vec(&report).unwrap()),
        ]
    });
}
