//! Import, inference and prover.
pub mod certify;
pub mod commitment;
pub mod engine;
pub mod files;
pub mod gkr;
pub mod import;
pub mod infer;
pub mod key;
pub mod map;
pub mod model;
mod pads;
pub mod prove;
mod randomness;
pub mod rotate;
pub mod streamed;
pub mod tables;
pub mod tokenizer;
pub mod trace;
