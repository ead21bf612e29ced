//! Dispatch: the rows of an expert are those of the tokens that selected it.
//!
//! An active block is a layer and an expert that takes part; all that tokens selected have to. It has as many rows as its
//! public load; a row is a token id, the gate weight of the token for this expert, and the token's normalized vector.
//! Loads may be rounded up and experts take part that no token selected, so some rows are padding: `real = 0`.
//!
//! # In the proof
//!
//! Two multisets of `(token id, layer, expert, fingerprint of the vector, gate weight)` are equal. One has a tuple
//! wherever `sel = 1`, with the token's own values. The other has a tuple for each row with `real = 1`, with the layer and
//! the expert of its block, which are public. `sel` and `real` are boolean; each id, layer and expert occurs once on the
//! first side, so equality is a bijection. What it excludes, case by case: a selected expert that is left out or has
//! no block (its tuple has no partner), a row for a token that did not select it, a row counted twice, another
//! vector, another gate weight. A `real` that is not boolean would allow a row with multiplicity 5 and a second with
//! -4, and gate weights that count five times.
//!
//! On padding rows the gate weight is zero by an equation; their vectors and ids are free, and nothing depends on them:
//! they add zero times something to the stream. Vectors of real rows need no range of their own, since they equal
//! vectors that have one.

use super::fingerprint;
use crate::relation::{Builder, Count, Expr, Label, Public, Ref, Tag};

/// The dispatched rows.
#[derive(Debug, Clone)]
pub struct Rows {
    /// Token ids.
    pub tok: Expr,
    /// Gate weights, zero on padding rows.
    pub gate: Expr,
    /// Normalized vectors.
    pub x: Expr,
}

/// What a token sends to the experts.
#[derive(Debug, Clone)]
pub struct Routed {
    /// Marks the selected experts.
    pub sel: Ref,
    /// Their gate weights.
    pub gate: Expr,
    /// The normalized vector.
    pub vector: Ref,
}

/// Declares the dispatched rows of the tokens; `routed` are the indices of `sel`.
pub fn constrain(b: &mut Builder, cells: &[Label], routed: Routed) -> Rows {
    let rows = [Label::Block, Label::Row];
    let tok = b.trace("row.tok", &rows);
    let gate = b.trace("row.gate", &rows);
    let real = b.trace("row.real", &rows);
    let x = b.trace("row.x", &[Label::Block, Label::Row, Label::Hidden]);
    b.boolean("row.real");
    b.zero(
        "row.gate: no gate on padding rows",
        &rows,
        gate.clone() - gate.clone() * real,
    );
    let tokens = &cells[..cells.len() - 1];
    let fp_tokens = fingerprint::constrain(b, "fp.n2", tokens, routed.vector);
    let vector = b.reference("row.x", &[]);
    let fp_rows = fingerprint::constrain(b, "fp.row", &rows, vector);
    b.lookup(
        "dispatch: routed",
        cells,
        Count::Plus(routed.sel),
        Tag::Dispatch,
        vec![
            Expr::public(Public::TokenId),
            Expr::public(Public::Index(Label::Layer)),
            Expr::public(Public::Index(Label::Expert)),
            fp_tokens,
            routed.gate,
        ],
    );
    let real = b.reference("row.real", &[]);
    b.lookup(
        "dispatch: rows",
        &rows,
        Count::Minus(real),
        Tag::Dispatch,
        vec![
            tok.clone(),
            Expr::public(Public::BlockLayer),
            Expr::public(Public::BlockExpert),
            fp_rows,
            gate.clone(),
        ],
    );
    Rows { tok, gate, x }
}
