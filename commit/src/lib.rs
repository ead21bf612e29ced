//! Fields, transcript, Reed-Solomon rows, Merkle trees and WHIR.
pub mod codec;
pub mod field;
