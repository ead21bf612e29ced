//! The seeds of one attempt at a proof.
//!
//! They all come from fresh bytes of the operating system, mixed with something private of what is proved, so that a
//! broken generator alone does not make two different proofs share a mask.

use crate::key::Ledger;
use crate::prove::Hook;

/// What one attempt at a proof needs randomness for. Each purpose has seeds of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// The salt of a request's hash.
    Salt,
    /// The random cells of a request's block.
    Cells,
    /// The tails of the rows of a tree: 0 for a commitment to a model, 1 and 2 for the rounds of a proof.
    Tails,
    /// The data part of the mask row.
    Mask,
    /// The tail of the mask row.
    MaskTail,
    /// The pads of hidden values.
    Pads,
    /// The rows that commit to the pads.
    PadRows,
    /// The masks of the proof about the pads.
    PadProof,
}

impl Purpose {
    /// All purposes.
    pub const ALL: [Self; 8] = [
        Self::Salt,
        Self::Cells,
        Self::Tails,
        Self::Mask,
        Self::MaskTail,
        Self::Pads,
        Self::PadRows,
        Self::PadProof,
    ];

    /// The name that separates its seeds from those of others.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Salt => "salt",
            Self::Cells => "cells",
            Self::Tails => "tails",
            Self::Mask => "mask",
            Self::MaskTail => "mask tail",
            Self::Pads => "pads",
            Self::PadRows => "pad rows",
            Self::PadProof => "pad proof",
        }
    }
}

/// The chain value of an attempt with a key. It becomes public, so it is a derivation that nothing else shares; and it differs
/// from the one before even if the generator repeats itself.
pub(crate) fn chain_value(randomness: &[u8; 32], ledger: &Ledger) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("zkmoe chain value v1");
    hasher.update(randomness);
    hasher.update(&ledger.current());
    *hasher.finalize().as_bytes()
}

/// Independent seeds of one attempt.
pub(crate) struct Randomness([u8; 32]);

impl Randomness {
    /// Seeds from fresh bytes and from what `mix` adds to their hash.
    pub(crate) fn new(randomness: [u8; 32], mix: impl FnOnce(&mut blake3::Hasher)) -> Self {
        let mut hasher = blake3::Hasher::new_keyed(&randomness);
        mix(&mut hasher);
        Self(*hasher.finalize().as_bytes())
    }

    /// Seed number `n` for a purpose; the hook sees it.
    pub(crate) fn seed(&self, hook: &mut impl Hook, purpose: Purpose, n: u64) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(&(purpose.name().len() as u64).to_le_bytes());
        hasher.update(purpose.name().as_bytes());
        hasher.update(&n.to_le_bytes());
        let mut seed = *hasher.finalize().as_bytes();
        hook.seed(purpose, n, &mut seed);
        seed
    }
}
