//! Keys and their ledgers: what is refused, and that no crash makes a ledger forget an opening.

use std::fs;
use std::path::PathBuf;

use super::slots::BLOCK;
use super::*;
use crate::files::tests::Scratch;

/// A key with two columns for some batches.
fn key(seed: u8, limit: u32) -> Key {
    let tree = Tree::new(vec![[seed; 32], [9; 32]]);
    Key::new([7; 32], [seed; 32], tree, limit, 0)
}

/// A folder with a key that may prove three batches.
struct Saved {
    scratch: Scratch,
}

impl Saved {
    fn new(name: &str) -> Self {
        let scratch = Scratch::new(&format!("key-{name}"));
        key(1, 3).save_new(&scratch.0.join("model.key")).unwrap();
        Self { scratch }
    }

    fn path(&self) -> PathBuf {
        self.scratch.0.join("model.key")
    }

    fn last(&self) -> PathBuf {
        self.scratch.0.join("model.key.last")
    }

    fn open(&self) -> Key {
        Key::open(&self.path()).unwrap()
    }

    fn refused(&self) -> KeyError {
        Key::open(&self.path()).err().expect("the key is refused")
    }

    fn spend(&self, purpose: Opening) -> Permit {
        self.open().spend(purpose).unwrap()
    }

    fn bytes(&self) -> (Vec<u8>, Option<Vec<u8>>) {
        (fs::read(self.path()).unwrap(), fs::read(self.last()).ok())
    }

    fn restore(&self, key: &[u8], last: Option<&Vec<u8>>) {
        fs::write(self.path(), key).unwrap();
        match last {
            Some(last) => fs::write(self.last(), last).unwrap(),
            None => drop(fs::remove_file(self.last())),
        }
    }
}

#[test]
fn every_purpose_has_its_own_budget() {
    let saved = Saved::new("purposes");
    let once = [
        (Opening::Batch, 3),
        (Opening::Certificate, 1),
        (Opening::Rotation, 1),
    ];
    for (purpose, n) in once {
        for left in (0..n).rev() {
            let mut key = saved.open();
            assert_eq!(key.left(purpose), left + 1);
            key.spend(purpose).unwrap();
            assert_eq!(key.left(purpose), left);
        }
        let before = saved.bytes();
        let error = saved.open().spend(purpose).unwrap_err();
        assert!(
            matches!(error, KeyError::Spent { purpose: p, limit: 3 } if p == purpose),
            "{error}"
        );
        assert!(error.to_string().contains(purpose.name()), "{error}");
        assert!(saved.bytes() == before, "a refusal writes nothing");
    }
    let ledger = *saved.open().ledger();
    assert_eq!(
        (ledger.batches, ledger.certificates, ledger.rotations),
        (3, 1, 1)
    );
}

#[test]
fn a_key_in_memory_counts_too() {
    let mut key = key(1, 9).with_limit(2);
    let first = key.spend(Opening::Batch).unwrap();
    let second = key.spend(Opening::Batch).unwrap();
    assert!(key.spend(Opening::Batch).is_err());
    assert_eq!(key.limit(), 2);
    assert_eq!(first.link[0], [0; 32]);
    assert_eq!(first.link[1], second.link[0]);
    assert_ne!(second.link[0], second.link[1]);
    // What was decoded goes on from where it was encoded.
    assert!(
        Key::decode(&key.encode())
            .unwrap()
            .spend(Opening::Batch)
            .is_err()
    );
}

#[test]
fn chain_values_are_fresh_and_continue_over_files() {
    let saved = Saved::new("chain");
    let mut current = [0; 32];
    for purpose in [
        Opening::Batch,
        Opening::Certificate,
        Opening::Batch,
        Opening::Rotation,
    ] {
        let [before, own] = saved.spend(purpose).link;
        assert_eq!(before, current);
        assert_ne!(own, current);
        assert_eq!(saved.open().ledger().current(), own);
        assert_eq!(read_last(&saved.last()).unwrap().1.current(), own);
        current = own;
    }
    let mut open = saved.open();
    for stuck in [current, [0; 32]] {
        let error = open.spend_with(Opening::Batch, stuck).unwrap_err();
        assert!(matches!(error, KeyError::Randomness(_)), "{error}");
    }
}

#[test]
fn permits_are_for_one_id_and_one_purpose() {
    let permit = || key(1, 3).spend(Opening::Batch).unwrap();
    assert!(permit().redeem(&[7; 32], Opening::Batch).is_ok());
    for (id, purpose) in [
        ([8; 32], Opening::Batch),
        ([7; 32], Opening::Certificate),
        ([7; 32], Opening::Rotation),
    ] {
        let found = permit().redeem(&id, purpose);
        assert!(matches!(found, Err(KeyError::Mismatch(_))), "{found:?}");
    }
}

#[test]
fn a_key_in_use_is_refused() {
    let saved = Saved::new("lock");
    let mut first = saved.open();
    let error = saved.refused();
    assert!(matches!(error, KeyError::InUse(_)), "{error}");
    assert!(error.to_string().contains("in use by another process"));
    // Looking at it takes no lock.
    first.spend(Opening::Batch).unwrap();
    assert_eq!(KeyState::read(&saved.path()).unwrap().ledger.batches, 1);
    drop(first);
    assert_eq!(saved.open().left(Opening::Batch), 2);
}

#[test]
fn a_backup_moved_over_a_key_in_use_is_refused() {
    let saved = Saved::new("moved");
    saved.spend(Opening::Batch);
    let (bytes, _) = saved.bytes();
    let mut first = saved.open();
    let backup = saved.scratch.0.join("backup");
    fs::write(&backup, &bytes).unwrap();
    fs::rename(&backup, saved.path()).unwrap();
    // Its own lock is free, and its ledger is the newest.
    let error = saved.refused();
    assert!(
        matches!(&error, KeyError::InUse(file) if file.ends_with("model.key.last")),
        "{error}"
    );
    first.spend(Opening::Batch).unwrap();
    drop(first);
    let error = saved.refused();
    assert!(matches!(error, KeyError::Restored { .. }), "{error}");
}

#[test]
fn provers_at_once_never_make_one_opening_twice() {
    const PROVERS: usize = 8;
    const EACH: usize = 25;
    let scratch = Scratch::new("key-race");
    let path = scratch.0.join("model.key");
    let limit = (PROVERS * EACH) as u32;
    key(1, limit).save_new(&path).unwrap();
    let start = std::sync::Barrier::new(PROVERS);
    let prover = || {
        let mut links = Vec::new();
        start.wait();
        while links.len() < EACH {
            match Key::open(&path) {
                Ok(mut key) => links.push(key.spend(Opening::Batch).unwrap().link),
                Err(KeyError::InUse(_)) => {}
                Err(other) => panic!("{other}"),
            }
        }
        links
    };
    let all: Vec<Vec<[[u8; 32]; 2]>> = std::thread::scope(|scope| {
        let provers: Vec<_> = (0..PROVERS).map(|_| scope.spawn(prover)).collect();
        provers.into_iter().map(|p| p.join().unwrap()).collect()
    });
    // All openings are one chain.
    let mut after: std::collections::BTreeMap<[u8; 32], [u8; 32]> =
        std::collections::BTreeMap::new();
    for [before, own] in all.iter().flatten() {
        assert_eq!(after.insert(*before, *own), None, "two after one");
    }
    let mut last = [0; 32];
    for _ in 0..PROVERS * EACH {
        last = after[&last];
    }
    let key = Key::open(&path).unwrap();
    assert_eq!(key.ledger().current(), last);
    assert_eq!(key.left(Opening::Batch), 0);
}

#[test]
fn what_a_killed_commit_left_beside_a_key_is_swept() {
    let saved = Saved::new("sweep");
    let left = [".model.key.7-0.tmp", ".model.key.last.7-1.tmp"].map(|n| saved.scratch.0.join(n));
    for file in &left {
        fs::write(file, "half a key").unwrap();
    }
    // A second name of the key itself, as left where files are linked and not renamed.
    let second = saved.scratch.0.join(".model.key.8-0.tmp");
    fs::hard_link(saved.path(), &second).unwrap();
    let open = saved.open();
    assert!(left.iter().chain([&second]).all(|file| !file.exists()));
    drop(open);
    assert_eq!(saved.open().left(Opening::Batch), 3);
}

#[test]
fn a_key_is_saved_once_and_never_over_another() {
    let saved = Saved::new("save");
    let before = saved.bytes();
    let error = key(2, 3).save_new(&saved.path()).unwrap_err();
    assert!(matches!(error, KeyError::Exists(_)), "{error}");
    let error = saved
        .open()
        .save_new(&saved.scratch.0.join("copy.key"))
        .unwrap_err();
    assert!(matches!(error, KeyError::Copied), "{error}");
    assert!(saved.bytes() == before);
    assert_eq!(fs::read_dir(&saved.scratch.0).unwrap().count(), 1);
}

#[test]
fn a_restored_key_is_noticed() {
    let saved = Saved::new("restored");
    let (fresh, _) = saved.bytes();
    saved.spend(Opening::Batch);
    let (one, last_of_one) = saved.bytes();
    saved.spend(Opening::Batch);
    let (two, last_of_two) = saved.bytes();
    let older = |key: &[u8], last: Option<&Vec<u8>>| {
        saved.restore(key, last);
        let error = saved.refused();
        assert!(matches!(error, KeyError::Restored { .. }), "{error}");
        assert!(error.to_string().contains("a copy or a backup"), "{error}");
        // Looking at it changes nothing.
        assert!(saved.bytes() == (key.to_vec(), last.cloned()));
    };
    older(&fresh, last_of_one.as_ref());
    older(&fresh, last_of_two.as_ref());
    older(&one, last_of_two.as_ref());
    // A copy that proved as often, and only then came back.
    saved.restore(&one, last_of_one.as_ref());
    saved.spend(Opening::Batch);
    let (other, _) = saved.bytes();
    older(&other, last_of_two.as_ref());
    // The file beside it was restored, by more than an interruption explains.
    saved.restore(&two, last_of_two.as_ref());
    saved.spend(Opening::Batch);
    let (three, _) = saved.bytes();
    older(&three, last_of_one.as_ref());
    // What cannot be noticed: both together.
    saved.restore(&one, last_of_one.as_ref());
    assert_eq!(saved.open().left(Opening::Batch), 2);
}

#[test]
fn a_missing_or_foreign_file_beside_the_key() {
    let saved = Saved::new("beside");
    assert!(!saved.open().is_unwatched(), "nothing to remember yet");
    saved.spend(Opening::Batch);
    fs::remove_file(saved.last()).unwrap();
    let mut open = saved.open();
    assert!(open.is_unwatched());
    let permit = open.spend(Opening::Batch).unwrap();
    assert!(!open.is_unwatched());
    drop(open);
    assert_eq!(
        read_last(&saved.last()).unwrap().1.current(),
        permit.link[1]
    );

    let other = Scratch::new("key-beside-other");
    let path = other.0.join("other.key");
    Key::new([8; 32], [8; 32], Tree::new(vec![[1; 32]]), 2, 0)
        .save_new(&path)
        .unwrap();
    Key::open(&path).unwrap().spend(Opening::Batch).unwrap();
    fs::copy(other.0.join("other.key.last"), saved.last()).unwrap();
    let error = saved.refused();
    assert!(matches!(error, KeyError::OtherLast(_)), "{error}");
    fs::write(saved.last(), "no ledger").unwrap();
    let error = saved.refused();
    assert!(error.to_string().contains("model.key.last"), "{error}");
}

#[cfg(unix)]
#[test]
fn files_are_private_and_links_are_followed() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let saved = Saved::new("link");
    let elsewhere = saved.scratch.0.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let link = elsewhere.join("link.key");
    symlink(saved.path(), &link).unwrap();
    Key::open(&link).unwrap().spend(Opening::Batch).unwrap();
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);
    for path in [saved.path(), saved.last()] {
        let mode = fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    for device in ["/dev/zero", "/dev/null"] {
        assert!(matches!(
            Key::open(Path::new(device)),
            Err(KeyError::NoFile(_))
        ));
    }
    assert!(Key::open(&elsewhere).is_err());
}

/// Every state that a crash can leave while one opening is spent: the slot torn at every byte of its record, in front
/// or at the back, with the file beside the key not yet written, torn, or written.
#[test]
fn a_crash_at_any_moment_forgets_nothing() {
    let saved = Saved::new("crash");
    for spent in 0..3u64 {
        let (old, last_old) = saved.bytes();
        let permit = saved.spend(Opening::Batch);
        let (new, last_new) = saved.bytes();
        let (old, new) = (&old[..], &new[..]);
        // The write of the key: nothing has left yet, so either ledger is true, and the key is usable.
        for (n, state) in torn(old, new).into_iter().enumerate() {
            saved.restore(&state, last_old.as_ref());
            let found = saved.open().ledger().openings();
            assert_eq!(found, spent + u64::from(state == new));
            // Syncing takes long, so not every state goes on.
            if n % 23 == 0 {
                saved.spend(Opening::Certificate);
                assert_eq!(saved.open().ledger().openings(), found + 1);
            }
        }
        // The write of the file beside it: the key counts already.
        let states = match (&last_old, &last_new) {
            (Some(old), Some(new)) => torn(old, new),
            (None, Some(new)) => vec![new.clone()],
            _ => unreachable!("the file is there after the first opening"),
        };
        let states = states.iter().step_by(9).map(Some);
        for state in states.chain([last_new.as_ref(), last_old.as_ref()]) {
            saved.restore(new, state);
            let key = saved.open();
            assert_eq!(key.ledger().openings(), spent + 1);
            assert_eq!(key.ledger().current(), permit.link[1]);
        }
        saved.restore(new, last_new.as_ref());
    }
}

/// All files between two that differ in one slot: a beginning of the new bytes, or an end.
fn torn(old: &[u8], new: &[u8]) -> Vec<Vec<u8>> {
    let differs = |n: &usize| old[*n] != new[*n];
    let first = (0..new.len()).find(differs).unwrap();
    let end = 1 + (0..new.len()).rev().find(differs).unwrap();
    assert_eq!(first / BLOCK, (end - 1) / BLOCK, "one slot is written");
    assert!(end - first <= 128, "the record alone changes");
    (first..=end)
        .flat_map(|cut| {
            let front = [&new[..cut], &old[cut..]].concat();
            let back = [&old[..cut], &new[cut..]].concat();
            [front, back]
        })
        .collect()
}

/// A crash between the two files, and then another one in the same place, is no restored key.
#[test]
fn two_crashes_in_a_row_are_no_backup() {
    let saved = Saved::new("twice");
    saved.spend(Opening::Batch);
    for n in 2..=3 {
        let (_, last) = saved.bytes();
        saved.spend(Opening::Batch);
        let (key, _) = saved.bytes();
        saved.restore(&key, last.as_ref());
        assert_eq!(saved.open().ledger().openings(), n);
    }
}

#[test]
fn one_damaged_slot_is_survived_and_two_are_not() {
    let saved = Saved::new("slots");
    saved.spend(Opening::Batch);
    let (good, _) = saved.bytes();
    let flip = |bytes: &[u8], at: &[usize]| {
        let mut bytes = bytes.to_vec();
        at.iter().for_each(|&n| bytes[n] ^= 1 << (n % 8));
        bytes
    };
    let ledger = |bytes: &[u8]| Key::decode(bytes).map(|key| key.ledger().batches);
    // A new key has the same in both; the first opening goes to the second.
    for n in 0..BLOCK {
        let (first, second) = (BLOCK + n, 2 * BLOCK + n);
        assert_eq!(ledger(&flip(&good, &[first])), Ok(1));
        assert_eq!(ledger(&flip(&good, &[second])), Ok(0));
        let both = ledger(&flip(&good, &[first, second]));
        assert_eq!(both, Err(DecodeError::Invalid("ledger")));
    }
    // A slot that went back after its proof had left is seen by the file beside the key.
    saved.restore(
        &flip(&good, &[2 * BLOCK]),
        fs::read(saved.last()).ok().as_ref(),
    );
    assert!(matches!(saved.refused(), KeyError::Restored { .. }));
    // Slots of another key, or of another moment, fit nowhere.
    let mut other = key(2, 3);
    other.spend(Opening::Batch).unwrap();
    let other = other.encode();
    let mixed = [&good[..BLOCK], &other[BLOCK..3 * BLOCK], &good[3 * BLOCK..]].concat();
    assert_eq!(ledger(&mixed), Err(DecodeError::Invalid("ledger")));
    let mut fork = key(1, 3);
    fork.spend(Opening::Certificate).unwrap();
    fork.spend(Opening::Batch).unwrap();
    let fork = fork.encode();
    let mixed = [&good[..2 * BLOCK], &fork[2 * BLOCK..]].concat();
    assert_eq!(ledger(&mixed), Err(DecodeError::Invalid("ledger")));
}

#[test]
fn the_format_is_strict() {
    let mut sample = key(1, 3);
    sample.spend(Opening::Batch).unwrap();
    let good = sample.encode();
    assert_eq!(good.len(), 3 * BLOCK + 2 * 32);
    let copy = Key::decode(&good).unwrap();
    assert!(copy.encode() == good);
    assert_eq!(copy.ledger(), sample.ledger());
    for n in (0..200)
        .chain((200..good.len()).step_by(61))
        .chain([good.len() - 1])
    {
        assert!(Key::decode(&good[..n]).is_err(), "{n} bytes");
    }
    let longer = [&good[..], &[0]].concat();
    assert_eq!(Key::decode(&longer).err(), Some(DecodeError::Trailing(1)));
    // Every byte of the head is part of what the slots are sealed with.
    for n in 0..BLOCK {
        let mut changed = good.clone();
        changed[n] ^= 1;
        assert!(Key::decode(&changed).is_err(), "byte {n}");
    }
    let with_head = |edit: &dyn Fn(&mut Head)| {
        let mut head = sample.head;
        edit(&mut head);
        let mut bytes = Slots::encode(&head.encode(), sample.ledger());
        bytes.extend(sample.tree.leaves().iter().flatten());
        Key::decode(&bytes).err()
    };
    let invalid = |field| Some(DecodeError::Invalid(field));
    assert_eq!(with_head(&|_| ()), None);
    assert_eq!(with_head(&|h| h.limit = 0), invalid("limit"));
    assert_eq!(with_head(&|h| h.limit = u32::MAX), invalid("limit"));
    assert_eq!(with_head(&|h| h.initial = 2), invalid("initial openings"));
    assert_eq!(with_head(&|h| h.log_columns = 29), invalid("columns"));
    assert_eq!(with_head(&|h| h.log_columns = u32::MAX), invalid("columns"));
    let truncated = Some(DecodeError::Truncated("columns"));
    assert_eq!(with_head(&|h| h.log_columns = 28), truncated);
    assert_eq!(with_head(&|h| h.log_columns = 2), truncated);
    let surplus = Some(DecodeError::Trailing(32));
    assert_eq!(with_head(&|h| h.log_columns = 0), surplus);
    let with_ledger = |ledger: Ledger| {
        let mut bytes = Slots::encode(&sample.head.encode(), &ledger);
        bytes.extend(sample.tree.leaves().iter().flatten());
        Key::decode(&bytes).err()
    };
    for (batches, certificates, rotations, error) in [
        (3, 1, 1, None),
        (4, 0, 0, invalid("batches")),
        (0, 2, 0, invalid("ledger")),
        (0, 0, 2, invalid("ledger")),
    ] {
        let ledger = Ledger {
            batches,
            certificates,
            rotations,
            ..Ledger::default()
        };
        assert_eq!(with_ledger(ledger), error);
    }
    let version_one = [&b"ZKMOKEY\0\x01\0\0\0"[..], &good[12..]].concat();
    assert!(matches!(
        Key::decode(&version_one),
        Err(DecodeError::Version { found: 1, .. })
    ));
}

#[test]
fn the_head_is_filled_up_with_zeros_even_under_a_checksum() {
    let sample = key(1, 3);
    let filled = |head: &Block, n: usize| {
        let mut head = *head;
        head[n] = 1;
        Slots::encode(&head, sample.ledger())
    };
    let error = Some(DecodeError::Invalid("zeros behind the head"));
    let head = sample.head.encode();
    for n in (88..BLOCK).step_by(61).chain([BLOCK - 1]) {
        let mut file = filled(&head, n);
        file.extend(sample.tree.leaves().iter().flatten());
        assert_eq!(Key::decode(&file).err(), error, "byte {n}");
        let state = KeyState::decode(&file[..SLOTS_END], file.len() as u64);
        assert_eq!(state.err(), error, "byte {n}");
    }
    let head = last::head(&sample.head.id);
    assert!(decode_last(&Slots::encode(&head, sample.ledger())).is_ok());
    for n in (44..BLOCK).step_by(61).chain([BLOCK - 1]) {
        let found = decode_last(&filled(&head, n));
        assert_eq!(found.err(), error, "byte {n}");
    }
}

#[test]
fn a_file_is_read_as_its_bytes_are() {
    let saved = Saved::new("file");
    saved.spend(Opening::Batch);
    let (good, last) = saved.bytes();
    for n in [0, 7, 11, 12, 100, BLOCK, 3 * BLOCK, good.len() - 1] {
        saved.restore(&good[..n], last.as_ref());
        assert!(matches!(saved.refused(), KeyError::Decode { .. }), "{n}");
        assert!(KeyState::read(&saved.path()).is_err(), "{n}");
    }
    saved.restore(&[&good[..], &[0]].concat(), last.as_ref());
    assert!(matches!(saved.refused(), KeyError::Decode { .. }));
    let last = last.unwrap();
    for n in [0, 7, 11, 12, 43, BLOCK, 3 * BLOCK - 1] {
        saved.restore(&good, Some(&last[..n].to_vec()));
        assert!(matches!(saved.refused(), KeyError::Decode { .. }), "{n}");
    }
    saved.restore(&good, Some(&[&last[..], &[0]].concat()));
    assert!(matches!(saved.refused(), KeyError::Decode { .. }));
    for n in (0..64).chain((64..BLOCK).step_by(61)) {
        let mut changed = last.clone();
        changed[n] ^= 1;
        saved.restore(&good, Some(&changed));
        saved.refused();
    }
}
