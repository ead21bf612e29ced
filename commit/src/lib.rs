//! Fields, transcript, Reed-Solomon rows, Merkle trees, WHIR and the commitment to a model.
//!
//! What the verifier needs builds without the feature `prove`: no threads, no files, no kernels.

pub mod affine;
pub mod channel;
#[cfg(all(test, feature = "prove"))]
mod chosen;
pub mod codec;
#[cfg(all(test, feature = "prove"))]
mod few;
pub mod field;
pub mod layout;
pub mod length;
pub mod ligero;
pub mod merkle;
pub mod opening;
pub mod params;
pub mod rows;
pub mod shape;
pub mod soundness;
pub mod transcript;
pub mod whir;

// The name by which files that other crates' tests share call this one.
#[cfg(test)]
extern crate self as zkmoe_commit;
