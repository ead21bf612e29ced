//! A ledger in a file that survives a crash at every moment.
//!
//! A file starts with a head that never changes. Two slots follow, and ledgers are written to them in turn, in place:
//! a key has megabytes of digests that no opening changes, so it is not written anew. The slot with more openings holds
//! the ledger. A new one goes over the older slot, so until it is whole on the disk the other slot still holds what was
//! true before; and what waits for it (a proof) does not exist until then. A slot that was torn fails its checksum.
//!
//! Head and slots are blocks of their own, so where blocks of [`BLOCK`] bytes are written whole or torn apart, each is
//! torn alone. Where a device has larger units, it rewrites neighbouring bytes together with a slot, but with what they
//! held, so a unit that was torn still has the neighbours as they were. Both slots, or the head, are lost only where a
//! device damages bytes that nobody wrote, against its promise; then the key is refused.
//!
//! A newest slot that rots at rest cannot be told from one that was torn: the ledger falls back by one opening. The
//! file beside the key ([`super::last`]) knows of that opening, and the key is refused. Nothing notices if that file is
//! missing.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use zkmoe_commit::codec::{DecodeError, Reader, Writer};

use super::ledger::{LEDGER_BYTES, Ledger};

/// Bytes of the head and of each slot: the usual unit of devices and file systems. Larger ones are no harm, see above.
pub(super) const BLOCK: usize = 4096;
/// Bytes of head and slots.
pub(super) const SLOTS_END: usize = 3 * BLOCK;

/// A block.
pub(super) type Block = [u8; BLOCK];

/// Fills a block up with zeros.
pub(super) fn block(bytes: &[u8]) -> Block {
    let mut out = [0; BLOCK];
    out[..bytes.len()].copy_from_slice(bytes);
    out
}

/// The key of the checksums behind a head, so that no slot fits behind another one.
fn checksum_key(head: &Block) -> [u8; 32] {
    blake3::derive_key("zkmoe ledger v1", head)
}

/// The block of a ledger: the ledger and its checksum.
fn seal(key: &[u8; 32], ledger: &Ledger) -> Block {
    let mut w = Writer::new();
    ledger.encode(&mut w);
    let checksum = blake3::keyed_hash(key, &w.bytes);
    w.raw(checksum.as_bytes());
    block(&w.bytes)
}

/// The ledger of a block, if the block is one that [`seal`] makes.
fn unseal(key: &[u8; 32], slot: &[u8]) -> Option<Ledger> {
    let ledger = Ledger::decode(&mut Reader::new(slot.get(..LEDGER_BYTES)?)).ok()?;
    (seal(key, &ledger) == slot).then_some(ledger)
}

/// The first [`SLOTS_END`] bytes of a file, or all where there are fewer.
pub(super) fn read_start(file: &mut File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    Read::take(file, SLOTS_END as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The slots of a file as they were read.
pub(super) struct Slots {
    checksum_key: [u8; 32],
    newest: usize,
    ledger: Ledger,
}

impl Slots {
    /// Head and slots of a new file.
    pub(super) fn encode(head: &Block, ledger: &Ledger) -> Vec<u8> {
        let slot = seal(&checksum_key(head), ledger);
        [&head[..], &slot, &slot].concat()
    }

    /// Reads the slots from the first [`SLOTS_END`] bytes of a file, whose head is to be the one that its fields make.
    pub(super) fn decode(bytes: &[u8], expected: &Block) -> Result<Self, DecodeError> {
        let (head, slots) = bytes
            .split_first_chunk::<BLOCK>()
            .ok_or(DecodeError::Truncated("head"))?;
        // The checksums hold with any filler, if it was there before them; no writer puts one there.
        if head != expected {
            return Err(DecodeError::Invalid("zeros behind the head"));
        }
        let slots = slots
            .get(..2 * BLOCK)
            .ok_or(DecodeError::Truncated("ledger"))?;
        let (first, second) = slots.split_at(BLOCK);
        let checksum_key = checksum_key(head);
        let read = |slot| unseal(&checksum_key, slot);
        let (newest, ledger) = match (read(first), read(second)) {
            (Some(a), Some(b)) if b.follows(&a) => (1, b),
            (Some(a), Some(b)) if a == b || a.follows(&b) => (0, a),
            (Some(a), None) => (0, a),
            (None, Some(b)) => (1, b),
            _ => return Err(DecodeError::Invalid("ledger")),
        };
        Ok(Self {
            checksum_key,
            newest,
            ledger,
        })
    }

    /// The newest ledger.
    pub(super) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Writes the next ledger over the older slot of the file that this was read from, and returns when it is on the
    /// disk. After an error the file holds the old ledger or the new one, and this still holds the old one.
    pub(super) fn push(&mut self, file: &mut File, ledger: &Ledger) -> io::Result<()> {
        let slot = 1 - self.newest;
        file.seek(SeekFrom::Start(((1 + slot) * BLOCK) as u64))?;
        file.write_all(&seal(&self.checksum_key, ledger))?;
        file.sync_data()?;
        self.newest = slot;
        self.ledger = *ledger;
        Ok(())
    }
}
