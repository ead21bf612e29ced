//! Terms of the soundness error, and their sum.
//!
//! Each sub-protocol lists its own terms beside its code: one for every event in which a false statement survives a
//! challenge. By the union bound the error of the whole is at most the sum of the terms. A term's bits include the work
//! that the prover must do for each draw of the challenge: with `2^w` hashes a draw, `2^s` hashes give `2^(s-w)` draws.

use std::fmt;

/// One term of the soundness error.
#[derive(Debug, Clone, PartialEq)]
pub struct Term {
    /// What goes wrong in this event.
    pub name: String,
    /// How the bound follows from sizes and parameters.
    pub formula: String,
    /// The paper or section that proves the bound.
    pub source: &'static str,
    /// `-log2` of the bound, grinding included; infinite where the event cannot happen.
    pub bits: f64,
}

impl Term {
    /// A term `numerator / |K|` with `grinding` bits of work before the challenge.
    pub fn over_field(
        name: impl Into<String>,
        formula: impl Into<String>,
        source: &'static str,
        numerator: f64,
        grinding: u32,
    ) -> Self {
        Self {
            name: name.into(),
            formula: formula.into(),
            source,
            // log2(0) is minus infinity: an event that cannot happen.
            bits: field_bits() - numerator.log2() + f64::from(grinding),
        }
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            formula,
            source,
            bits,
        } = self;
        write!(f, "{bits:7.2} bits  {name}: {formula} ({source})")
    }
}

/// That two inputs of the hash collide, in a tree, in the transcript or in an id. Of `T` hashes of 256 bits two are equal
/// with probability at most `T^2 / 2^257`, which is at most `T / 2^128` up to `T = 2^129`: as if each had a chance of
/// `2^-128`.
pub fn collisions() -> Term {
    Term {
        name: "hashes: collisions".into(),
        formula: "T^2 / 2^257 for T hashes, so at most 2^-128 for each of up to 2^128".into(),
        source: "birthday bound, BLAKE3 as a random oracle",
        bits: 128.0,
    }
}

/// `log2 |K|`, a little less than 128.
pub fn field_bits() -> f64 {
    2.0 * (crate::field::MODULUS as f64).log2()
}

/// The bits of the sum of the terms; infinite without terms.
pub fn total_bits(terms: &[Term]) -> f64 {
    // The worst is factored out: the terms themselves may be smaller than the smallest number.
    let worst = terms.iter().map(|t| t.bits).fold(f64::INFINITY, f64::min);
    if worst.is_infinite() {
        return worst;
    }
    let sum: f64 = terms.iter().map(|t| (worst - t.bits).exp2()).sum();
    worst - sum.log2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_add_up() {
        let term = |numerator, grinding| Term::over_field("a", "b", "c", numerator, grinding);
        assert!((term(1.0, 0).bits - 128.0).abs() < 1e-8);
        assert!((term(1024.0, 3).bits - 121.0).abs() < 1e-8);
        assert!(term(0.0, 0).bits.is_infinite());
        let mut terms = vec![term(4.0, 0); 4];
        terms.push(term(0.0, 0));
        assert!((total_bits(&terms) - 124.0).abs() < 1e-8);
        assert!(total_bits(&[]).is_infinite());
        assert!(terms[0].to_string().starts_with(" 126.00 bits"));
    }
}
