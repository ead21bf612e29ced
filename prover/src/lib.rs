//! Import, inference and prover.
pub mod commitment;
pub mod engine;
pub mod files;
pub mod gkr;
pub mod import;
pub mod infer;
pub mod map;
pub mod model;
pub mod prove;
pub mod tables;
pub mod tokenizer;
pub mod trace;
