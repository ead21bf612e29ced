//! Import, inference and prover.
