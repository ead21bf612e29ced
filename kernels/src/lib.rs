//! Hot loops on raw slices.

pub mod ntt;
