//! What a key has opened, as counts and as a chain of public values.
//!
//! Every opening of the committed rows shows `Q` positions of each, and their random tails hide a limited number. The
//! ledger counts openings by purpose. It is durable before an opening exists (see [`super::slots`]), so a proof that
//! left is always counted, and an attempt that failed is counted too.
//!
//! Each opening also draws a fresh chain value. A batch proof states the chain value before it and its own. Two proofs
//! under one id that state the same value before them were made by two copies of one key: one of them was counted in
//! a ledger that the other did not see.

use zkmoe_commit::codec::{DecodeError, Reader, Writer};

use super::KeyError;

/// What an opening of the committed rows is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// The proof of a batch of replies.
    Batch,
    /// The proof that all weights are in their ranges; once.
    Certificate,
    /// The proof that another commitment holds the same weights; once.
    Rotation,
}

impl Opening {
    /// The purpose in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Batch => "batch",
            Self::Certificate => "certificate",
            Self::Rotation => "rotation",
        }
    }
}

/// Bytes of an encoded ledger.
pub(super) const LEDGER_BYTES: usize = 3 * 4 + 2 * 32;

/// How many openings a key has spent on each purpose, and the chain values of the last two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ledger {
    /// Batches, those included of which no proof came.
    pub batches: u32,
    /// Certificates: 0 or 1.
    pub certificates: u32,
    /// Rotations: 0 or 1.
    pub rotations: u32,
    /// The chain values of the last opening but one and of the last one; zero where there was none.
    pub link: [[u8; 32]; 2],
}

impl Ledger {
    /// All openings. Each changes one count by one, so this also tells which of two ledgers is newer.
    pub const fn openings(&self) -> u64 {
        self.batches as u64 + self.certificates as u64 + self.rotations as u64
    }

    /// The chain value of the last opening; zero if there was none.
    pub const fn current(&self) -> [u8; 32] {
        self.link[1]
    }

    /// Openings that are left for a purpose, where `limit` batches were planned.
    pub const fn left(&self, purpose: Opening, limit: u32) -> u32 {
        match purpose {
            Opening::Batch => limit.saturating_sub(self.batches),
            Opening::Certificate => 1u32.saturating_sub(self.certificates),
            Opening::Rotation => 1u32.saturating_sub(self.rotations),
        }
    }

    /// The ledger after one more opening with the fresh chain value `chain`, if there is one left.
    pub(super) fn after(
        &self,
        purpose: Opening,
        limit: u32,
        chain: [u8; 32],
    ) -> Result<Self, KeyError> {
        if self.left(purpose, limit) == 0 {
            return Err(KeyError::Spent { purpose, limit });
        }
        // The verifier refuses a link to itself, and zero stands for no opening.
        if chain == self.current() || chain == [0; 32] {
            return Err(KeyError::Randomness("it repeats itself".into()));
        }
        let mut next = Self {
            link: [self.current(), chain],
            ..*self
        };
        *match purpose {
            Opening::Batch => &mut next.batches,
            Opening::Certificate => &mut next.certificates,
            Opening::Rotation => &mut next.rotations,
        } += 1;
        Ok(next)
    }

    /// Whether this can be the ledger one opening after `older`.
    pub(super) fn follows(&self, older: &Self) -> bool {
        self.openings() == older.openings() + 1
            && self.batches >= older.batches
            && self.certificates >= older.certificates
            && self.rotations >= older.rotations
            && self.link[0] == older.link[1]
    }

    /// Appends the ledger.
    pub(super) fn encode(&self, w: &mut Writer) {
        w.u32(self.batches);
        w.u32(self.certificates);
        w.u32(self.rotations);
        self.link.iter().for_each(|value| w.raw(value));
    }

    /// Reads a ledger.
    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let ledger = Self {
            batches: r.u32("batches")?,
            certificates: r.u32("certificates")?,
            rotations: r.u32("rotations")?,
            link: [
                r.digest("chain value before the last")?,
                r.digest("last chain value")?,
            ],
        };
        if ledger.certificates > 1 || ledger.rotations > 1 {
            return Err(DecodeError::Invalid("certificates and rotations"));
        }
        Ok(ledger)
    }
}
