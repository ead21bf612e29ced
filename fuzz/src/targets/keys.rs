//! Keys and the files beside them, as they are and with sealed ledgers.

use zkmoe::prover::key::{Key, KeyState, Opening, decode_last};

use super::numbered;
use crate::compact;
use crate::fixtures::{provider, rotation};

/// A key: where the first byte is odd a file, else the short form of one. What is read, head and ledger, is not changed by
/// writing; and a file with equal ledgers, as a writer makes them, is written with the same bytes.
pub fn key(data: &[u8]) {
    let Some((&which, data)) = data.split_first() else {
        return;
    };
    let file = if which & 1 == 0 {
        compact::key(data)
    } else {
        data.to_vec()
    };
    let state = KeyState::decode(&file[..file.len().min(3 * 4096)], file.len() as u64);
    let key = match (Key::decode(&file), &state) {
        (Ok(key), Ok(_)) => key,
        (Err(a), Err(b)) if a == *b => return,
        (key, _) => panic!("{:?}, but the state is {state:?}", key.err()),
    };
    let state = state.expect("just matched");
    assert_eq!(
        (key.id(), key.limit(), key.ledger()),
        (state.id, state.limit, &state.ledger)
    );
    let written = key.encode();
    if file[4096..8192] == file[8192..12288] {
        assert_eq!(written, file);
    }
    let read = Key::decode(&written).expect("a key that was just written");
    assert_eq!(
        (read.id(), read.seed(), read.ledger()),
        (key.id(), key.seed(), key.ledger())
    );
    assert_eq!(read.tree().root(), key.tree().root());
    let _ = key.check(&provider().id);
}

/// A new key, one after openings of each kind, and that of a rotation, as files and in short forms.
pub fn key_seeds() -> Vec<(String, Vec<u8>)> {
    let mut used = provider().key();
    for (n, purpose) in [Opening::Batch, Opening::Certificate]
        .into_iter()
        .enumerate()
    {
        used.spend_with(purpose, [n as u8 + 1; 32])
            .expect("a permit");
    }
    let files = [
        provider().key().encode(),
        used.encode(),
        rotation().key.clone(),
    ];
    let short = |file: &Vec<u8>| {
        let ledger = |n: usize| &file[4096 * n..4096 * n + 76];
        let leaves = &file[3 * 4096..][..64];
        let mut short = [
            &[0],
            &file[..compact::KEY_HEAD],
            &[0],
            ledger(1),
            ledger(2),
            leaves,
        ]
        .concat();
        // As many columns as the leaves are repeated for.
        short[compact::KEY_HEAD - 3] = 2;
        short
    };
    let shorts: Vec<Vec<u8>> = files.iter().map(short).collect();
    let whole = files.iter().map(|file| [&[1], &file[..]].concat());
    numbered(whole.chain(shorts))
}

/// The file beside a key, as [`key`].
pub fn last(data: &[u8]) {
    let Some((&which, data)) = data.split_first() else {
        return;
    };
    let file = if which & 1 == 0 {
        compact::last(data)
    } else {
        data.to_vec()
    };
    if let Ok((id, ledger)) = decode_last(&file) {
        assert_eq!(id, file[12..44]);
        assert!(ledger.certificates <= 1 && ledger.rotations <= 1);
        assert_eq!(file.len(), 3 * 4096);
        assert!(file[44..4096].iter().all(|&byte| byte == 0));
    }
}

/// One after a batch, as a file and in short form, and one whose second ledger follows on the first.
pub fn last_seeds() -> Vec<(String, Vec<u8>)> {
    let head = [&b"ZKMOLST\0\x01\0\0\0"[..], &[4; 32]].concat();
    let ledger = |counts: [u8; 3], link: [u8; 2]| {
        let mut bytes: Vec<u8> = counts.iter().flat_map(|&n| [n, 0, 0, 0]).collect();
        bytes.extend(link.iter().flat_map(|&value| [value; 32]));
        bytes
    };
    let (one, two) = (ledger([1, 0, 0], [0, 1]), ledger([1, 1, 0], [1, 2]));
    let same = [&[0][..], &head, &[32], &one].concat();
    let follows = [&[0][..], &head, &[0], &one, &two].concat();
    let whole = [&[1][..], &compact::last(&same[1..])].concat();
    for short in [&same, &follows] {
        assert!(decode_last(&compact::last(&short[1..])).is_ok());
    }
    numbered([same, follows, whole])
}
