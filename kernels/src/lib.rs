//! Hot loops on raw slices.
