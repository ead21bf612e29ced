//! The file beside a key that remembers its ledger, so that a key from a backup is noticed.
//!
//! It has the ledger of the last opening. It is written after the key's own, and before the opening exists, so it is
//! at most one opening behind. A key that is further behind, or has other chain values, is not the key that made the
//! last opening. Both files restored or copied together look sound; only the chain values of their proofs tell then.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use zkmoe_commit::codec::{DecodeError, Reader, Writer, read_magic, write_magic};

use super::ledger::Ledger;
use super::slots::{Block, SLOTS_END, Slots, block, read_start};
use super::{KeyError, decode_error, io_error, lock, regular_size};
use crate::files::{Mode, open_regular, write_file};

/// The first bytes of the file.
pub const LAST_MAGIC: [u8; 8] = *b"ZKMOLST\0";
/// The version of the format.
pub const LAST_VERSION: u32 = 1;

/// The first block of the file.
pub(super) fn head(id: &[u8; 32]) -> Block {
    let mut w = Writer::new();
    write_magic(&mut w, &LAST_MAGIC, LAST_VERSION);
    w.raw(id);
    block(&w.bytes)
}

/// The model id of a head.
fn read_head(bytes: &[u8]) -> Result<[u8; 32], DecodeError> {
    let mut r = Reader::new(bytes);
    read_magic(&mut r, &LAST_MAGIC, LAST_VERSION, "last ledger")?;
    r.digest("model id")
}

/// The name of the file beside a key.
pub fn last_name(key: &Path) -> PathBuf {
    let mut name = OsString::from(key);
    name.push(".last");
    name.into()
}

/// Reads the model id and the ledger of such a file.
pub fn read_last(path: &Path) -> Result<([u8; 32], Ledger), KeyError> {
    let mut file = open_regular(path).map_err(io_error(path))?;
    let (id, slots) = read(path, &mut file)?;
    Ok((id, *slots.ledger()))
}

fn read(path: &Path, file: &mut File) -> Result<([u8; 32], Slots), KeyError> {
    let size = regular_size(path, file)?;
    let bytes = read_start(file).map_err(io_error(path))?;
    decode(&bytes, size).map_err(decode_error(path))
}

/// Reads the start of a file of `size` bytes, which is all of it.
fn decode(start: &[u8], size: u64) -> Result<([u8; 32], Slots), DecodeError> {
    let id = read_head(start)?;
    let slots = Slots::decode(start, &head(&id))?;
    match size.saturating_sub(SLOTS_END as u64) {
        0 => Ok((id, slots)),
        n => Err(DecodeError::Trailing(n as usize)),
    }
}

/// As [`read_last`], from the bytes of the file.
pub fn decode_last(bytes: &[u8]) -> Result<([u8; 32], Ledger), DecodeError> {
    let start = &bytes[..bytes.len().min(SLOTS_END)];
    let (id, slots) = decode(start, bytes.len() as u64)?;
    Ok((id, *slots.ledger()))
}

/// The file beside a key that is open.
pub(super) struct Last {
    path: PathBuf,
    id: [u8; 32],
    found: Option<(File, Slots)>,
}

impl Last {
    /// Opens the file beside the key of model `id`, if there is one, and locks it: where a backup was moved to the name of a
    /// key that is in use, the key itself is another file, and this is the one that both provers share.
    pub(super) fn open(path: PathBuf, id: [u8; 32]) -> Result<Self, KeyError> {
        let found = match OpenOptions::new().read(true).write(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(io_error(&path)(error)),
            Ok(mut file) => {
                lock(&path, &file)?;
                let (named, slots) = read(&path, &mut file)?;
                if named != id {
                    return Err(KeyError::OtherLast(path.display().to_string()));
                }
                Some((file, slots))
            }
        };
        Ok(Self { path, id, found })
    }

    /// The ledger that was remembered last.
    pub(super) fn ledger(&self) -> Option<&Ledger> {
        self.found.as_ref().map(|(_, slots)| slots.ledger())
    }

    /// The path, for messages.
    pub(super) fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Remembers a ledger, durably. One without openings is not worth a file.
    pub(super) fn remember(&mut self, ledger: &Ledger) -> Result<(), KeyError> {
        match &mut self.found {
            Some((_, slots)) if slots.ledger() == ledger => Ok(()),
            Some((file, slots)) => slots.push(file, ledger).map_err(io_error(&self.path)),
            None if ledger.openings() == 0 => Ok(()),
            None => {
                let bytes = Slots::encode(&head(&self.id), ledger);
                write_file(&self.path, Mode::PrivateNew, |w| w.write_all(&bytes))
                    .map_err(io_error(&self.path))?;
                *self = Self::open(self.path.clone(), self.id)?;
                Ok(())
            }
        }
    }
}
