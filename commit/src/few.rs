//! What tests of rates share: few values of a challenge, polynomials with chosen roots, and numerators of terms.
//!
//! A bound of `d / |K|` for a challenge from `K` is one of `d / n` for a challenge from any `n` elements of it, so it can
//! be counted how many of a few pass. This file is part of the tests of two crates, hence the name that it calls this one by.

use ark_ff::AdditiveGroup;
use zkmoe_commit::field::{F, K, lift};
use zkmoe_commit::soundness::{Term, field_bits};

/// The first elements of `F`.
pub(crate) fn few(n: u64) -> Vec<K> {
    (0..n).map(|x| lift(F::from(x))).collect()
}

/// The coefficients of `prod (X - root)`, the constant one first.
pub(crate) fn with_roots(roots: &[K]) -> Vec<K> {
    let mut out = vec![K::from(1u64)];
    for &root in roots {
        out.insert(0, K::ZERO);
        for i in 0..out.len() - 1 {
            let next = out[i + 1];
            out[i] -= root * next;
        }
    }
    out
}

/// The value of a polynomial.
pub(crate) fn at(coefficients: &[K], x: K) -> K {
    coefficients
        .iter()
        .rev()
        .fold(K::ZERO, |sum, &c| sum * x + c)
}

/// The numerator over `|K|` of the one term with this name; `work` are the bits of work before its challenge.
#[track_caller]
pub(crate) fn numerator(terms: &[Term], name: &str, work: u32) -> f64 {
    let found: Vec<&Term> = terms.iter().filter(|t| t.name == name).collect();
    let [term] = found[..] else {
        panic!("not one term `{name}`");
    };
    (field_bits() + f64::from(work) - term.bits).exp2()
}

/// Says what was counted, and fails if more values of a challenge pass than the numerator of its term says, or if that
/// numerator is more than `slack` times as large.
#[track_caller]
pub(crate) fn compare(what: &str, passing: f64, numerator: f64, slack: f64) {
    println!("{what}: {passing:.3} values of the challenge pass, at most {numerator:.3}");
    assert!(
        passing <= numerator * (1.0 + 1e-6),
        "{what}: more pass than the term says"
    );
    assert!(
        numerator <= slack * passing * (1.0 + 1e-6),
        "{what}: the term says little"
    );
}

#[test]
fn roots_are_roots() {
    let roots = few(5);
    let polynomial = with_roots(&roots);
    assert_eq!(polynomial.len(), 6);
    for x in few(9) {
        assert_eq!(at(&polynomial, x) == K::ZERO, roots.contains(&x));
    }
}
