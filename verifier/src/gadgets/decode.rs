//! Decode: the rows of which the head computes logits are exactly the decoded positions.
//!
//! Norm, head and argmax run over decoded positions only. Their rows are a list of `M` entries, each a token id, the
//! position's vector of the last stream and the decoded token; some rows at the end are padding, `real = 0`.
//!
//! # In the proof
//!
//! Two multisets of `(token id, fingerprint of the last stream, token)` are equal: one over all positions with `dec = 1`, where
//! the token is `next`; one over the rows with `real = 1`, where it is the argmax of the row. `dec` and `real` are boolean and
//! ids differ, so this is a bijection: no decoded position can be left out, and each has the argmax of its own vector as
//! its next token. A row of the list that belongs to no position has `real = 0` and changes nothing. `dec` and `next`
//! are what the request's block is made of; that they fit prompt and response is checked in clear by whoever knows the
//! request, see [`crate::batch`].

use super::fingerprint;
use crate::relation::{Builder, Count, Expr, Index, Label, Public, Tag};

/// Declares the rows of decoded positions; gives their vectors and their tokens. `next` is the next token of each
/// position, and `dec` marks the decoded ones; the last stream has the number `last`.
pub fn constrain(b: &mut Builder, positions: &[Label], next: Expr, last: usize) -> (Expr, Expr) {
    let rows = [Label::Decoded];
    let id = b.trace("dr.id", &rows);
    b.trace("dr.real", &rows);
    b.boolean("dr.real");
    let x = b.trace("dr.x", &[Label::Decoded, Label::Hidden]);
    let stream = b.reference("x", &[(Label::Stream, Index::Fixed(last))]);
    let fp_positions = fingerprint::constrain(b, "fp.last", positions, stream);
    let vector = b.reference("dr.x", &[]);
    let fp_rows = fingerprint::constrain(b, "fp.dr", &rows, vector);
    let token = b.trace("am", &rows);
    let dec = b.reference("dec", &[]);
    let real = b.reference("dr.real", &[]);
    b.lookup(
        "decode: positions",
        positions,
        Count::Plus(dec),
        Tag::Gather,
        vec![Expr::public(Public::TokenId), fp_positions, next],
    );
    b.lookup(
        "decode: rows",
        &rows,
        Count::Minus(real),
        Tag::Gather,
        vec![id, fp_rows, token.clone()],
    );
    (x, token)
}
