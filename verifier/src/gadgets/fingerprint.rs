//! Fingerprints of rows: one field element that stands for a vector.
//!
//! `fp(..) = sum_i beta^i x(.., i)`, with `beta` in `K` drawn after the first root. There is no operator of the model behind
//! it. Rows move under hidden maps (which token an expert serves, which embedding a token has); a lookup moves the
//! fingerprint and so the whole row.
//!
//! # In the proof
//!
//! Rows are committed before `beta` is drawn, the fingerprints after, and the equation between them is checked at a
//! point that is drawn after the fingerprints: a point known before would let a prover choose fingerprints that only agree
//! there. Two different rows of width `d` that were both committed, and whose pairing was committed too, have equal
//! fingerprints with probability at most `d / |K|`. The pairing is fixed in each use by the other columns of the
//! lookup: token, or token id with layer and expert.

use crate::relation::{Builder, Expr, Fill, Label, Public, Ref};

/// Declares the fingerprints of the rows `of`, along the hidden axis, and gives them.
pub fn constrain(b: &mut Builder, name: &str, out: &[Label], of: Ref) -> Expr {
    let fp = b.second(name, out, Fill::Fingerprint(of.clone()));
    b.zero(
        &format!("{name}: fingerprint"),
        out,
        fp.clone() - Expr::from(of) * Expr::public(Public::FingerprintPower(Label::Hidden)),
    );
    fp
}
