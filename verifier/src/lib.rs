//! The relation and the verifier.
#![forbid(unsafe_code)]
pub mod header;
