//! Two commands that use one key at once.

use std::collections::BTreeSet;
use std::process::Child;

use zkmoe::commit::codec::Reader;
use zkmoe::prover::key::{Key, Opening};
use zkmoe::verifier::batch::read_proof_header;
use zkmoe::verifier::id::ModelId;

use crate::common::{Place, finish};
use crate::{CERTIFY, PROVE, ROTATE, counted, others, provider};

fn links(place: &Place, proofs: &[String]) -> BTreeSet<[[u8; 32]; 2]> {
    let id = ModelId::decode(&place.read("model.id")).unwrap();
    let link = |name: &String| {
        let proof = place.read(&format!("{name}/batch.proof"));
        let (_, header) = read_proof_header(&mut Reader::new(&proof), &id.header).unwrap();
        header.link
    };
    proofs.iter().map(link).collect()
}

#[test]
fn of_two_provers_one_waits_its_turn() {
    const ROUNDS: usize = 3;
    let place = provider("together-prove");
    let (mut proved, mut refused) = (Vec::new(), 0);
    for round in 0..ROUNDS {
        let names = ["a", "b"].map(|side| format!("{side}{round}"));
        let start = |name: &String| {
            place
                .command(&PROVE.replace("proofs", name))
                .spawn()
                .unwrap()
        };
        let both: Vec<Child> = names.iter().map(start).collect();
        for (child, name) in both.into_iter().zip(names) {
            let output = child.wait_with_output().unwrap();
            let err = String::from_utf8(output.stderr).unwrap();
            match output.status.code() {
                Some(0) => proved.push(name),
                Some(2) => {
                    for part in ["model.key: is in use", "wait until", "lsof model.key"] {
                        assert!(err.contains(part), "{part}: {err}");
                    }
                    assert!(!place.has(&name), "{name}");
                    refused += 1;
                }
                other => panic!("{other:?}: {err}"),
            }
        }
    }
    // Of two that meet one is refused, and one always proves.
    assert!(proved.len() >= ROUNDS, "{proved:?}");
    assert_eq!(proved.len() + refused, 2 * ROUNDS);
    assert_eq!(counted(&place), [proved.len() as u32, 0, 0]);
    let links = links(&place, &proved);
    let before: BTreeSet<_> = links.iter().map(|link| link[0]).collect();
    assert_eq!(before.len(), proved.len(), "two proofs after one");
}

#[test]
fn whatever_opens_a_key_is_refused_while_it_is_in_use() {
    let place = provider("together-all");
    let held = Key::open(&place.file("model.key")).unwrap();
    for args in [PROVE, CERTIFY, ROTATE] {
        let parts = ["model.key: is in use by another process", "wait until"];
        finish(place.command(args)).refused(&parts);
    }
    place.expect("inspect model.key", 0);
    assert!(others(&place).is_empty());
    drop(held);
    assert_eq!(counted(&place), [0, 0, 0]);
}

#[test]
fn a_backup_that_comes_back_during_a_proof_is_noticed() {
    let place = provider("together-restored");
    let path = place.file("model.key");
    let spend = |key: &mut Key| key.spend(Opening::Batch).unwrap();
    spend(&mut Key::open(&path).unwrap());
    let backup = place.read("model.key");
    let mut held = Key::open(&path).unwrap();
    // Moved to its name: another file with a lock of its own, but the one beside it is in use.
    place.write("backup.key", &backup);
    std::fs::rename(place.file("backup.key"), &path).unwrap();
    finish(place.command(PROVE)).refused(&["model.key.last: is in use", "wait until"]);
    spend(&mut held);
    drop(held);
    let restored = [
        "model.key: is older than the last proof made with it",
        "take the newest key",
    ];
    for args in [PROVE, CERTIFY, ROTATE] {
        finish(place.command(args)).refused(&restored);
    }
    assert_eq!(others(&place), ["model.key.last"]);
    assert_eq!(counted(&place), [1, 0, 0], "nothing was written");
}
