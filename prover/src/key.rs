//! The private key of a commitment, and the budget of what may be opened with it.
//!
//! A key holds the seed of the rows' random tails, the digests of all columns (only so that a proof need not encode the
//! whole model again), and a [`Ledger`] of the openings that were made. Whatever opens the rows needs a [`Permit`], and
//! [`Key::spend`] is the only source of permits: it counts before it gives one out, on the disk for a key that was
//! opened from a file. So no crash and no retry lets a proof leave that is not counted.
//!
//! A file that is open as a key is locked, since two provers that read one ledger would both write the same next one.

mod last;
mod ledger;
mod slots;
#[cfg(test)]
mod tests;

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use zkmoe_commit::codec::{DecodeError, Reader, Writer, read_magic, write_magic};
use zkmoe_commit::merkle::Tree;
use zkmoe_verifier::id::ModelId;

use crate::commitment::os_randomness;
use crate::files::{Mode, open_regular, sweep, write_file};
pub use last::{LAST_MAGIC, decode_last, last_name, read_last};
pub use ledger::{Ledger, Opening};

use last::Last;
use slots::{Block, SLOTS_END, Slots, block, read_start};

/// The first bytes of a key file.
pub const KEY_MAGIC: [u8; 8] = *b"ZKMOKEY\0";
/// The version of the format.
pub const KEY_VERSION: u32 = 2;
/// The most columns, as a logarithm: the longest code that a verifier takes.
const MAX_LOG_COLUMNS: u32 = 28;
/// The most batches: no row has room for a longer tail.
const MAX_LIMIT: u32 = 1 << 28;

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The operating system refused.
    #[error("{file}: {error}")]
    Io {
        /// The file.
        file: String,
        /// What the system said.
        error: io::Error,
    },
    /// A device, a pipe or a folder.
    #[error("{0}: is not a regular file")]
    NoFile(String),
    /// The bytes are no key.
    #[error("{file}: {error}")]
    Decode {
        /// The file.
        file: String,
        /// What is wrong.
        error: DecodeError,
    },
    /// A key would be lost.
    #[error(
        "{0}: exists; a key is never overwritten, because without it nothing can be proved under its model id"
    )]
    Exists(String),
    /// A key that has a file would get a second one, with a ledger of its own.
    #[error("this key has a file already; a copy would count its openings apart")]
    Copied,
    /// Another process holds the lock.
    #[error("{0}: is in use by another process")]
    InUse(String),
    /// The file beside the key knows of openings that the key does not count.
    #[error(
        "{key}: {}: a copy or a backup was restored. It counts {counted} openings, {last} knows of {known}",
        if counted <= known { "is older than the last proof made with it" } else { "the file beside it is older" }
    )]
    Restored {
        /// The key.
        key: String,
        /// The file beside it.
        last: String,
        /// The openings in the key.
        counted: u64,
        /// The openings in the file beside it.
        known: u64,
    },
    /// The file beside the key is about another key.
    #[error("{0}: belongs to another key than the one beside it")]
    OtherLast(String),
    /// Nothing is left of the budget.
    #[error("{}", match purpose {
        Opening::Batch => format!("all {limit} batches of this key are spent"),
        Opening::Certificate | Opening::Rotation => format!(
            "the {} of this key is spent; an attempt counts even if nothing came of it",
            purpose.name()
        ),
    })]
    Spent {
        /// What was asked for.
        purpose: Opening,
        /// The batches of the key.
        limit: u32,
    },
    /// Key and id do not belong together.
    #[error("{0}")]
    Mismatch(&'static str),
    /// The operating system has no randomness.
    #[error("the operating system's random generator failed: {0}")]
    Randomness(String),
}

fn io_error(path: &Path) -> impl Fn(io::Error) -> KeyError {
    move |error| KeyError::Io {
        file: path.display().to_string(),
        error,
    }
}

fn decode_error(path: &Path) -> impl Fn(DecodeError) -> KeyError {
    move |error| KeyError::Decode {
        file: path.display().to_string(),
        error,
    }
}

/// Keeps other provers from a file, until it is closed.
fn lock(path: &Path, file: &File) -> Result<(), KeyError> {
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => KeyError::InUse(path.display().to_string()),
        TryLockError::Error(error) => io_error(path)(error),
    })
}

/// The size of a regular file. Anything else may have no end.
fn regular_size(path: &Path, file: &File) -> Result<u64, KeyError> {
    let about = file.metadata().map_err(io_error(path))?;
    if about.is_file() {
        Ok(about.len())
    } else {
        Err(KeyError::NoFile(path.display().to_string()))
    }
}

/// Leave to open the rows of one commitment once, for one purpose. It was counted before it came to be.
#[derive(Debug, PartialEq, Eq)]
pub struct Permit {
    id: [u8; 32],
    purpose: Opening,
    link: [[u8; 32]; 2],
}

impl Permit {
    /// Uses the permit up, and refuses a use that is not the one that was counted. Gives the chain value of the opening
    /// before this one, zero if there was none, and the one of this opening.
    pub fn redeem(self, id: &[u8; 32], purpose: Opening) -> Result<[[u8; 32]; 2], KeyError> {
        if self.id != *id {
            return Err(KeyError::Mismatch("the permit is for another model id"));
        }
        if self.purpose != purpose {
            return Err(KeyError::Mismatch("the permit is for another purpose"));
        }
        Ok(self.link)
    }
}

/// What of a key never changes, but for its digests: the head of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Head {
    id: [u8; 32],
    seed: [u8; 32],
    limit: u32,
    initial: u32,
    log_columns: u32,
}

impl Head {
    fn encode(&self) -> Block {
        let mut w = Writer::new();
        write_magic(&mut w, &KEY_MAGIC, KEY_VERSION);
        w.raw(&self.id);
        w.raw(&self.seed);
        w.u32(self.limit);
        w.u32(self.initial);
        w.u32(self.log_columns);
        block(&w.bytes)
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        read_magic(&mut r, &KEY_MAGIC, KEY_VERSION, "key")?;
        let head = Self {
            id: r.digest("model id")?,
            seed: r.digest("seed")?,
            limit: r.u32("limit")?,
            initial: r.u32("initial openings")?,
            log_columns: r.u32("columns")?,
        };
        if head.limit == 0 || head.limit > MAX_LIMIT {
            return Err(DecodeError::Invalid("limit"));
        }
        if head.initial > 1 {
            return Err(DecodeError::Invalid("initial openings"));
        }
        if head.log_columns > MAX_LOG_COLUMNS {
            return Err(DecodeError::Invalid("columns"));
        }
        Ok(head)
    }

    /// Bytes of the whole file.
    fn file_size(&self) -> u64 {
        SLOTS_END as u64 + (32 << self.log_columns)
    }

    /// Head and slots from the start of a file, and the size of the file against both.
    fn with_slots(start: &[u8], size: u64) -> Result<(Self, Slots), DecodeError> {
        let head = Self::decode(start)?;
        let slots = Slots::decode(start, &head.encode())?;
        if slots.ledger().batches > head.limit {
            return Err(DecodeError::Invalid("batches"));
        }
        match size.checked_sub(head.file_size()) {
            None => Err(DecodeError::Truncated("columns")),
            Some(0) => Ok((head, slots)),
            Some(n) => Err(DecodeError::Trailing(n as usize)),
        }
    }
}

/// What a key file says without its secrets, read without a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyState {
    /// The id that it belongs to.
    pub id: [u8; 32],
    /// The logarithm of the number of columns.
    pub log_columns: u32,
    /// Batches that may be proved with the key, from its first to its last.
    pub limit: u32,
    /// Openings that were spent on making the key: 1 if a rotation made it.
    pub initial: u32,
    /// The openings that were made.
    pub ledger: Ledger,
}

impl KeyState {
    /// Reads the state of a key file, also while a prover is using it.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let mut file = open_regular(path).map_err(io_error(path))?;
        let size = regular_size(path, &file)?;
        let start = read_start(&mut file).map_err(io_error(path))?;
        Self::decode(&start, size).map_err(decode_error(path))
    }

    /// Reads the state from the start of a key that has `size` bytes: head and ledgers, which are checked, without its
    /// digests.
    pub fn decode(start: &[u8], size: u64) -> Result<Self, DecodeError> {
        let (head, slots) = Head::with_slots(start, size)?;
        Ok(Self {
            id: head.id,
            log_columns: head.log_columns,
            limit: head.limit,
            initial: head.initial,
            ledger: *slots.ledger(),
        })
    }
}

/// Where the ledger of a key is kept.
enum Store {
    /// In memory: the key was made just now, or decoded from bytes.
    Memory(Ledger),
    /// In a file.
    File(Box<Opened>),
}

/// A key file that is open and locked, with the file beside it.
struct Opened {
    path: PathBuf,
    // Closed first: whoever finds the key free finds both free.
    last: Last,
    file: File,
    slots: Slots,
}

impl Opened {
    /// Writes the next ledger to both files, the key first.
    fn count(&mut self, next: &Ledger) -> Result<(), KeyError> {
        // Should an earlier attempt have failed between the two, the second would fall two behind.
        self.last.remember(self.slots.ledger())?;
        self.slots
            .push(&mut self.file, next)
            .map_err(io_error(&self.path))?;
        self.last.remember(next)
    }

    /// Compares the two files, and brings the second up to date if the last opening was interrupted between them.
    fn compare(&mut self) -> Result<(), KeyError> {
        let ledger = self.slots.ledger();
        match self.last.ledger() {
            None => Ok(()),
            Some(known) if known == ledger || ledger.follows(known) => self.last.remember(ledger),
            Some(known) => Err(KeyError::Restored {
                key: self.path.display().to_string(),
                last: self.last.name(),
                counted: ledger.openings(),
                known: known.openings(),
            }),
        }
    }
}

/// The private half of a commitment.
pub struct Key {
    head: Head,
    tree: Tree,
    store: Store,
}

impl Key {
    /// A key that has opened nothing yet, which it counts in memory until it is saved and opened: the id that it
    /// belongs to, the seed of the random tails, the tree over the columns of all weight rows, how many batches may
    /// be proved (1 to 2^28), and how many openings were spent on making it: 1 by a rotation, else 0.
    ///
    /// The seed must be fresh: a second key with the same seed would count its openings apart.
    pub fn new(id: [u8; 32], seed: [u8; 32], tree: Tree, limit: u32, initial: u32) -> Self {
        let head = Head {
            id,
            seed,
            limit: limit.clamp(1, MAX_LIMIT),
            initial: initial.min(1),
            log_columns: tree.log_size(),
        };
        Self {
            head,
            tree,
            store: Store::Memory(Ledger::default()),
        }
    }

    /// The same key for at most `limit` batches.
    #[must_use]
    pub fn with_limit(mut self, limit: u32) -> Self {
        self.head.limit = self.head.limit.min(limit.max(1));
        self
    }

    /// The key of a fresh commitment as one that a rotation makes, with leave for the one opening that making it takes and
    /// that it counts from now on.
    pub fn of_rotation(mut self) -> Result<(Self, Permit), KeyError> {
        let fresh = matches!(self.store, Store::Memory(_)) && self.ledger().openings() == 0;
        if !fresh || self.head.initial != 0 {
            return Err(KeyError::Mismatch("the new key was used already"));
        }
        self.head.initial = 1;
        let permit = Permit {
            id: self.head.id,
            purpose: Opening::Rotation,
            link: self.ledger().link,
        };
        Ok((self, permit))
    }

    /// The id that it belongs to.
    pub fn id(&self) -> [u8; 32] {
        self.head.id
    }

    /// The seed of the random tails.
    pub fn seed(&self) -> [u8; 32] {
        self.head.seed
    }

    /// The tree over the columns of all weight rows.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Batches that may be proved with the key, from its first to its last.
    pub fn limit(&self) -> u32 {
        self.head.limit
    }

    /// The openings that were made.
    pub fn ledger(&self) -> &Ledger {
        match &self.store {
            Store::Memory(ledger) => ledger,
            Store::File(opened) => opened.slots.ledger(),
        }
    }

    /// Bytes of its file.
    pub fn file_size(&self) -> u64 {
        self.head.file_size()
    }

    /// Openings that are left for a purpose.
    pub fn left(&self, purpose: Opening) -> u32 {
        self.ledger().left(purpose, self.head.limit)
    }

    /// Refuses a purpose for which nothing is left, before work is done for it.
    pub fn demand(&self, purpose: Opening) -> Result<(), KeyError> {
        let limit = self.head.limit;
        if self.left(purpose) == 0 {
            return Err(KeyError::Spent { purpose, limit });
        }
        Ok(())
    }

    /// Whether openings were made, but no file beside the key remembers the last one.
    pub fn is_unwatched(&self) -> bool {
        match &self.store {
            Store::Memory(_) => false,
            Store::File(opened) => self.ledger().openings() > 0 && opened.last.ledger().is_none(),
        }
    }

    /// Refuses an id that the key does not belong to, or whose rows have no room for all openings of the key.
    pub fn check(&self, id: &ModelId) -> Result<(), KeyError> {
        if self.head.id != id.digest() {
            return Err(KeyError::Mismatch("the key belongs to another id"));
        }
        if self.tree.root() != id.root {
            return Err(KeyError::Mismatch(
                "the key is damaged: its columns are not those of its id",
            ));
        }
        if self.head.limit as usize + self.head.initial as usize > id.params.batches() {
            return Err(KeyError::Mismatch(
                "the key is for more batches than its id has randomness for",
            ));
        }
        Ok(())
    }

    /// Counts one opening and gives leave for it. For a key from a file the count is on the disk before this returns;
    /// after an error it may be there too, but nothing may be opened.
    pub fn spend(&mut self, purpose: Opening) -> Result<Permit, KeyError> {
        self.spend_with(purpose, os_randomness()?)
    }

    /// [`Key::spend`] with the chain value of the opening: 32 bytes that are random and fresh. It becomes public.
    pub fn spend_with(&mut self, purpose: Opening, chain: [u8; 32]) -> Result<Permit, KeyError> {
        let next = self.ledger().after(purpose, self.head.limit, chain)?;
        match &mut self.store {
            Store::Memory(ledger) => *ledger = next,
            Store::File(opened) => opened.count(&next)?,
        }
        Ok(Permit {
            id: self.head.id,
            purpose,
            link: next.link,
        })
    }

    /// The bytes of a key file.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Slots::encode(&self.head.encode(), self.ledger());
        bytes.extend(self.tree.leaves().iter().flatten());
        bytes
    }

    /// Reads the bytes of a key file as a key in memory, whose openings the file will not count. Provers take
    /// [`Key::open`].
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let start = &bytes[..bytes.len().min(SLOTS_END)];
        let (head, slots) = Head::with_slots(start, bytes.len() as u64)?;
        Ok(Self {
            head,
            tree: read_tree(&head, &bytes[SLOTS_END..])?,
            store: Store::Memory(*slots.ledger()),
        })
    }

    /// Opens and locks a key file, and compares its ledger with the file beside it.
    pub fn open(path: &Path) -> Result<Self, KeyError> {
        // Wherever a link to the key lies, there is one file beside it.
        let real = path.canonicalize().map_err(io_error(path))?;
        // Before the lock, which a second name of the same file would share.
        sweep(&real);
        sweep(&last_name(&real));
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .map_err(io_error(path))?;
        let size = regular_size(path, &file)?;
        lock(path, &file)?;
        let start = read_start(&mut file).map_err(io_error(path))?;
        let (head, slots) = Head::with_slots(&start, size).map_err(decode_error(path))?;
        // The file was found to have this size.
        let mut leaves = Vec::with_capacity(32 << head.log_columns);
        Read::take(&mut file, 32 << head.log_columns)
            .read_to_end(&mut leaves)
            .map_err(io_error(path))?;
        let tree = read_tree(&head, &leaves).map_err(decode_error(path))?;
        let last = Last::open(last_name(&real), head.id)?;
        let mut opened = Opened {
            path: path.to_owned(),
            file,
            slots,
            last,
        };
        opened.compare()?;
        Ok(Self {
            head,
            tree,
            store: Store::File(Box::new(opened)),
        })
    }

    /// Writes a key file that does not exist yet. The key is gone with it, so that from now on the file counts.
    pub fn save_new(self, path: &Path) -> Result<(), KeyError> {
        if matches!(self.store, Store::File(_)) {
            return Err(KeyError::Copied);
        }
        write_file(path, Mode::PrivateNew, |w| w.write_all(&self.encode())).map_err(
            |error: io::Error| match error.kind() {
                io::ErrorKind::AlreadyExists => KeyError::Exists(path.display().to_string()),
                _ => io_error(path)(error),
            },
        )
    }
}

fn read_tree(head: &Head, bytes: &[u8]) -> Result<Tree, DecodeError> {
    let mut r = Reader::new(bytes);
    let leaves = r.many(1 << head.log_columns, 32, "columns", |r| {
        r.digest("columns")
    })?;
    r.finish()?;
    Ok(Tree::new(leaves))
}
