//! Fields, transcript, Reed-Solomon rows, Merkle trees, WHIR and the commitment to a model.
//!
//! What the verifier needs builds without the feature `prove`: no threads, no files, no kernels.

pub mod affine;
pub mod channel;
#[cfg(all(test, feature = "prove"))]
mod chosen;
pub mod codec;
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
