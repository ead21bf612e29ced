//! Combine: the outputs of the experts return to the stream of their token, weighted by their gates.
//!
//! `x(l+1, t) = xm(l, t) + requant(sum over the rows n of token t in layer l of gate(n) * y(n), 14)`. Expert outputs `y` have 24
//! bits and residual units, so that the only rounding is that of the gate's fraction.
//!
//! # In the proof
//!
//! Which rows belong to a token is hidden. Let `tau` be the point at which the equation is checked. The sum over all
//! tokens of `eq(tau, t)` times the sum over the rows of `t` is the sum over all rows of `eq(tau, t(n)) gate(n) y(n)`. So
//! each row gets one committed weight `eq(tau, t(n))`; the layer's part of the factor is public, because the layer of a
//! block is. The weight is fixed by a lookup: `(t(n), weight)` is one of the pairs `(id, eq(tau, id))`, which are
//! public, and ids differ. Padding rows are looked up as well; their id is any token, their gate weight is zero.
//!
//! Rounds. The row weights depend on `tau`, so they are committed after `tau` is drawn; all else in the equation is
//! committed before. This is the one equation that holds a tensor of a later round than its point, and the lookup, whose
//! challenges come later still, is what makes that sound. For the same reason the remainder is committed here in full
//! and not an expression: the equation has to hold at `tau`.
//!
//! Bounds. A token has at most `2^8` rows in a layer ([`super::dispatch`] is a bijection, and padding rows have gate zero),
//! gates are below `2^16` and outputs below `2^23` in magnitude: the sum stays below `2^47`. The two streams have 24 bits,
//! the remainder 14. So the equation is one over the integers, and the output is unique.

use super::dispatch::Rows;
use crate::header::GATE_FRACTION_BITS;
use crate::relation::{Builder, Count, Expr, Fill, Label, Public, Round, Tag};

/// States that `change`, the difference of two streams with the indices `hidden`, is what the experts add; `outputs` are
/// those of the dispatched `rows`.
pub fn constrain(b: &mut Builder, hidden: &[Label], rows: Rows, outputs: Expr, change: Expr) {
    let (cells, tokens) = (
        [Label::Block, Label::Row],
        [Label::Request, Label::Position],
    );
    let ids = b.reference("row.tok", &[]);
    let weight = b.second("row.weight", &cells, Fill::RowWeight(ids));
    let multiplicity = Fill::Multiplicity(Tag::RowWeight);
    b.first("table RowWeight", &tokens, multiplicity);
    let count = Count::Minus(b.reference("table RowWeight", &[]));
    b.lookup(
        "combine: token weights",
        &tokens,
        count,
        Tag::RowWeight,
        vec![
            Expr::public(Public::TokenId),
            Expr::public(Public::TokenWeight),
        ],
    );
    b.lookup(
        "combine: row weights",
        &cells,
        Count::One,
        Tag::RowWeight,
        vec![rows.tok, weight.clone()],
    );
    let rem = b.trace("comb.rem", hidden);
    b.range(
        "combine: remainder",
        hidden,
        Count::One,
        rem.clone(),
        GATE_FRACTION_BITS,
    );
    let gathered = Expr::public(Public::LayerOfBlock) * weight * rows.gate * outputs;
    let half = 1i64 << (GATE_FRACTION_BITS - 1);
    b.zero_after(
        Round::First,
        "combine",
        hidden,
        gathered + half - rem - change * (1 << GATE_FRACTION_BITS),
    );
}
