//! The residual stream.
//!
//! `x` holds the input of every block and, as one stream more, the output of the last; `xm` is the stream between attention
//! and experts. All have 24 bits with sign. A sum that leaves them is refused, as everywhere.
//!
//! # In the proof
//!
//! Layers are an index, so the layer shift needs no copy: the input of block `l` is stream `l` of the same tensor, its
//! output is stream `l + 1`. Both are views, and a claim about a view is one about the tensor. The two range checks
//! here bound the operands of everything that touches the stream: the sums of squares in the norms, and the
//! requantizations that write it, whose quotient is a difference of two of these values.

use crate::header::RESIDUAL_BITS;
use crate::relation::{Builder, Expr, Index, Label};

/// The streams of one block.
#[derive(Debug, Clone)]
pub struct Residual {
    /// Its input.
    pub input: Expr,
    /// Between attention and experts.
    pub middle: Expr,
    /// Its output.
    pub output: Expr,
}

/// Declares the streams; those of a block have the indices `hidden`, which contain the layer.
pub fn declare(b: &mut Builder, hidden: &[Label]) -> Residual {
    let streams: Vec<Label> = hidden
        .iter()
        .map(|&l| if l == Label::Layer { Label::Stream } else { l })
        .collect();
    let x = b.trace("x", &streams);
    b.signed("x: range", &streams, x, RESIDUAL_BITS);
    let middle = b.trace("xm", hidden);
    b.signed("xm: range", hidden, middle.clone(), RESIDUAL_BITS);
    let stream = |b: &Builder, shift| {
        let index = Index::Shifted(Label::Layer, shift);
        b.with("x", &[(Label::Stream, index)])
    };
    Residual {
        input: stream(b, 0),
        middle,
        output: stream(b, 1),
    }
}
