//! Embedding: the first stream of a position is the embedding row of its token.
//!
//! Rows are committed in units of the residual stream, so that nothing is rounded.
//!
//! # In the proof
//!
//! The table holds `(v, fp of row v)` for every token of the vocabulary, each position looks up `(tok, fp of stream 0)`. The
//! index `v` is public, so a pair that is found names one row, and `tok` is found only if it is a token of the vocabulary.
//! That is the only bound on `tok`, and the one it needs. Equal fingerprints mean equal rows, see [`super::fingerprint`].
//! Padding positions hold the pad token and are looked up like all others.

use super::fingerprint;
use crate::relation::{Builder, Count, Expr, Fill, Index, Label, Public, Tag};

/// States that stream 0 of `x` is the embedding of `tok`; `emb` is the tensor of rows.
pub fn constrain(b: &mut Builder, positions: &[Label], tok: Expr, emb: &str) {
    let vocabulary = [Label::Vocab];
    let first = b.reference("x", &[(Label::Stream, Index::Fixed(0))]);
    let fp_first = fingerprint::constrain(b, "fp.x0", positions, first);
    let rows = b.reference(emb, &[]);
    let fp_rows = fingerprint::constrain(b, "fp.emb", &vocabulary, rows);
    let multiplicity = Fill::Multiplicity(Tag::Embedding);
    b.first("table Embedding", &vocabulary, multiplicity);
    let count = Count::Minus(b.reference("table Embedding", &[]));
    b.lookup(
        "embedding: rows",
        &vocabulary,
        count,
        Tag::Embedding,
        vec![Expr::public(Public::Index(Label::Vocab)), fp_rows],
    );
    b.lookup(
        "embedding: tokens",
        positions,
        Count::One,
        Tag::Embedding,
        vec![tok, fp_first],
    );
}
