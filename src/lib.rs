//! Proofs that a reply came from exactly the committed Mixture-of-Experts model.
//!
//! This package is the `zkmoe` command. The work is done by three libraries, which it re-exports: [`commit`] (fields,
//! rows, openings), [`verifier`] (the relation and everything that decides a verdict) and [`prover`] (import, inference
//! and proving). What is left here is files, texts and tokenizers: the verifier knows token ids only, so the commands
//! decide that a text and a list of ids are the same.

#![forbid(unsafe_code)]

pub mod appearance;
pub mod commands;
pub mod estimate;
pub mod failure;
pub mod input;
pub mod learned;
pub mod neutral;
pub mod output;
pub mod reply;
pub mod signals;
pub mod state;
pub mod texts;
pub mod verdict;
pub mod visible;

pub use zkmoe_commit as commit;
pub use zkmoe_prover as prover;
pub use zkmoe_verifier as verifier;
