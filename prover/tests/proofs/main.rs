//! Proofs of every kind on micro models: what is honest is accepted, what is not is named. One program, since linking is what
//! takes long.

#[path = "../common/mod.rs"]
mod common;

mod batch;
mod budget;
mod certificate;
mod challenges;
mod policy;
mod reproducible;
mod rotation;
