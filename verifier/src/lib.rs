//! The relation and the verifier.
#![forbid(unsafe_code)]
pub mod batch;
pub mod certificate;
pub mod engine;
#[cfg(test)]
#[path = "../../commit/src/few.rs"]
mod few;
pub mod forecast;
pub mod gadgets;
pub mod gkr;
pub mod header;
pub mod id;
pub mod length;
pub mod limits;
pub mod olmoe;
pub mod relation;
pub mod rotation;
pub mod slip;
pub mod soundness;
pub mod verify;
pub mod weights;
