//! How often cheating really works where fields and codes are so small that every challenge can be tried.
//!
//! The terms of the soundness error are upper bounds that theorems give. Here their numerators are taken from the
//! calculator itself and compared with what the best known cheat achieves, over all challenges or over all words. A rate
//! above the bound would mean that a formula is wrong; a bound far above the rate, that it says little.
//!
//! The crate's code is fixed to one field of 2^128 elements. What can be run there with few challenges is tested beside
//! the code (`opening`, `whir`, `ligero`, and the verifier's engine). Here are the codes: the only models of the crate's
//! steps are a word over a small prime field for a word over `K`, and its lines, curves and combinations.

mod codes;
mod decoding;
mod lines;
mod queries;
mod small;

/// Says what was measured, and fails if a rate is above its bound or the bound is more than `slack` times the rate.
#[track_caller]
fn compare(what: &str, rate: f64, bound: f64, slack: f64) {
    println!("{what}: rate {rate:.6}, bound {bound:.6}");
    assert!(rate <= bound, "{what}: {rate} is above the bound {bound}");
    assert!(
        bound <= slack * rate,
        "{what}: the bound {bound} says little about {rate}"
    );
}
