//! Short forms of files in which only the interesting bytes are left to the fuzzer.
//!
//! The header of a model has tables of 262,144 bytes, and hashes that no fuzzer guesses. In the short form the tables
//! are those of the micro model, with a few entries changed, and hashes are computed. What a short form stands for may
//! still be wrong in every other way.

use zkmoe::commit::codec::Writer;

use crate::edits::Program;
use crate::fixtures;

/// Bytes of a header before its tables.
pub const HEAD: usize = 10 * 4 + 3 * 20 + 13 * 4 + 2 * 4;
/// The most entries of the cosine and the sine table that are made.
const MAX_ROPE: usize = 1 << 16;
/// The most entries that are changed.
const MAX_CHANGES: u8 = 8;

/// Whether a hash that the short form leaves out is the right one.
fn hash(right: bool, of: &[u8]) -> [u8; 32] {
    let mut hash = *blake3::hash(of).as_bytes();
    hash[0] ^= u8::from(!right);
    hash
}

/// Writes the header of a model from its short form: the bytes before the tables, the number of changes, and for each the
/// table (u8), the place (u16) and the value (u16).
fn header(w: &mut Writer, p: &mut Program<'_>, tokenizer_hash: &[u8; 32]) {
    let mut head = [0; HEAD];
    let taken = p.take(HEAD);
    head[..taken.len()].copy_from_slice(taken);
    let field = |n: usize| {
        let bytes = [0, 1, 2, 3].map(|i| head[4 * n + i]);
        u32::from_le_bytes(bytes) as usize
    };
    let rope = field(9).saturating_mul(field(6) / 2).min(MAX_ROPE);
    let model = fixtures::model().header();
    let mut tables = [
        model.exp_table.clone(),
        model
            .silu_table
            .iter()
            .map(|&x| x.cast_unsigned())
            .collect(),
        vec![1; rope],
        vec![2; rope],
    ];
    for _ in 0..p.u8().min(MAX_CHANGES) {
        let table = usize::from(p.u8()) % tables.len();
        let (place, value) = (usize::from(p.u16()), p.u16());
        if let Some(entry) = tables[table].get_mut(place) {
            *entry = value;
        }
    }
    w.raw(&head);
    tables.iter().flatten().for_each(|&entry| w.u16(entry));
    w.raw(tokenizer_hash);
    w.raw(&[0; 32]);
}

/// The short form of the header of the micro model.
fn short_header(w: &mut Writer) {
    let mut full = Writer::new();
    fixtures::model().header().encode(&mut full);
    w.raw(&full.bytes[..HEAD]);
    w.u8(0);
}

/// A file `model.id`: header, then flags (u8; 1: the hash of the tokenizer does not fit), then the bytes behind the
/// header. 120 bytes of them come before the tokenizer.
pub fn id(short: &[u8]) -> Vec<u8> {
    let mut w = Writer::new();
    w.raw(b"ZKMOEID\0\x01\0\0\0");
    // What comes behind the header has to be known first.
    let mut p = Program(short);
    p.take(HEAD);
    let changes = p.u8().min(MAX_CHANGES);
    p.take(5 * usize::from(changes));
    let flags = p.u8();
    let rest = p.0;
    let tokenizer = rest.get(ID_REST..).unwrap_or_default();
    let tokenizer_hash = hash(flags & 1 == 0, tokenizer);
    header(&mut w, &mut Program(short), &tokenizer_hash);
    w.raw(rest);
    w.bytes
}

/// Parameters (21 u32), root and length of the tokenizer.
const ID_REST: usize = 21 * 4 + 32 + 4;

/// The short form of an id.
pub fn short_id(file: &[u8]) -> Vec<u8> {
    let mut w = Writer::new();
    short_header(&mut w);
    w.u8(0);
    let tokenizer = fixtures::model().tokenizer_json();
    w.raw(&file[file.len() - ID_REST - tokenizer.len()..]);
    w.bytes
}

/// A file `model.zkm`: header, then flags (u8; 1: the hash of the tokenizer does not fit, 2: the hashes of the chunks do
/// not), then length (u64) and bytes of the tokenizer and the tensors.
pub fn model(short: &[u8]) -> Vec<u8> {
    let mut w = Writer::new();
    w.raw(b"ZKMODEL\0\x01\0\0\0");
    let mut p = Program(short);
    p.take(HEAD);
    let changes = p.u8().min(MAX_CHANGES);
    p.take(5 * usize::from(changes));
    let flags = p.u8();
    let rest = p.0;
    let length = usize::try_from(p.u64()).unwrap_or(usize::MAX);
    let tokenizer_hash = hash(flags & 1 == 0, p.take(length));
    header(&mut w, &mut Program(short), &tokenizer_hash);
    w.raw(rest);
    let chunks = w.bytes.chunks(1 << 20);
    let hashes: Vec<u8> = chunks.flat_map(|c| hash(flags & 2 == 0, c)).collect();
    w.raw(&hashes);
    w.raw(blake3::hash(&hashes).as_bytes());
    w.bytes
}

/// The short form of the micro model.
pub fn short_model() -> Vec<u8> {
    let mut file = Vec::new();
    fixtures::model().write(&mut file).expect("a vector");
    let mut full = Writer::new();
    fixtures::model().header().encode(&mut full);
    let rest = &file[12 + full.bytes.len()..];
    let hashes = 32 * (file.len().div_ceil(1 << 20) + 1);
    let mut w = Writer::new();
    short_header(&mut w);
    w.u8(0);
    w.raw(&rest[..rest.len() - hashes]);
    w.bytes
}

/// Bytes of a block of a key.
const BLOCK: usize = 4096;
/// Bytes of a ledger without its checksum.
const LEDGER: usize = 3 * 4 + 2 * 32;

fn block(bytes: &[u8], filler: u8) -> Vec<u8> {
    let mut block = bytes.to_vec();
    block.resize(BLOCK, filler);
    block
}

/// The first three blocks of a file with ledgers, from `head` bytes that come first in the short form, flags (u8) and two
/// ledgers. Flags: 1 and 2: the checksum of the first, of the second ledger does not fit; 4, 8, 16: head, first, second
/// ledger are not filled up with zeros; 32: both ledgers are the first one.
fn blocks(p: &mut Program<'_>, head: usize) -> Vec<u8> {
    let head = p.take(head);
    let flags = p.u8();
    let filler = |bit: u8| u8::from(flags & bit != 0);
    let mut file = block(head, filler(4));
    let key = blake3::derive_key("zkmoe ledger v1", &file);
    let first = p.take(LEDGER);
    let second = if flags & 32 == 0 {
        p.take(LEDGER)
    } else {
        first
    };
    for (ledger, wrong, bit) in [(first, 1, 8), (second, 2, 16)] {
        let mut checksum = *blake3::keyed_hash(&key, ledger).as_bytes();
        checksum[0] ^= filler(wrong);
        file.extend(block(&[ledger, &checksum].concat(), filler(bit)));
    }
    file
}

/// Bytes of the fields at the start of a key.
pub const KEY_HEAD: usize = 12 + 2 * 32 + 3 * 4;
/// Bytes of the fields at the start of the file beside a key.
pub const LAST_HEAD: usize = 12 + 32;

/// A file `model.key`: its blocks, and the leaves, repeated up to the number in the head where that is small.
pub fn key(short: &[u8]) -> Vec<u8> {
    let mut p = Program(short);
    let mut file = blocks(&mut p, KEY_HEAD);
    let columns = file[KEY_HEAD - 4];
    let leaves = if p.0.is_empty() { &[0][..] } else { p.0 };
    let bytes = if columns <= 8 {
        32usize << columns
    } else {
        leaves.len()
    };
    file.extend(leaves.iter().cycle().take(bytes));
    file
}

/// A file `model.key.last`.
pub fn last(short: &[u8]) -> Vec<u8> {
    let mut p = Program(short);
    let mut file = blocks(&mut p, LAST_HEAD);
    file.extend(p.0);
    file
}
