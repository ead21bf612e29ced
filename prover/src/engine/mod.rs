//! The prover's half of the engine: values of expressions, arrays for sumchecks, and the party that answers the
//! verifier's engine.

mod array;
mod columns;
mod party;
mod sumcheck;
mod view;

pub use array::functional;
pub use columns::{
    Column, Tables, depends_on_second, digit, fingerprints, first_columns, multiplicities,
    row_weights,
};
pub use party::ProverParty;
pub use view::Witness;

#[cfg(test)]
mod tests;
