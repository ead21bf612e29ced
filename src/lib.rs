//! zkmoe.
