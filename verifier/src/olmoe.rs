//! The family of `OLMoE`: how the gadgets make up the model.
//!
//! A block is attention with norms of queries and keys over all heads, then experts chosen per token, each behind a norm
//! of the residual stream. The gains of these norms are folded into the matrices that follow; queries and keys
//! have theirs in the rotation. After the last block come a norm and the head, at decoded positions.
//!
//! Here tensors and operators get their names and indices. Why each operator's equations leave one result is said in its
//! file under [`crate::gadgets`].

use crate::gadgets::{
    OPERAND_BITS, activation, argmax, combine, decode, dispatch, divide, embedding, requant,
    residual, rms_norm, rope, router, softmax,
};
use crate::header::{Header, LOGIT_BITS, RESIDUAL_BITS, ROUTER_BITS};
use crate::relation::{Builder, Count, Fill, Index, Label, Relation};
use crate::weights::WeightId;
use Label::{
    AnyExpert, Block, Cell, Decoded, Expert, Group, Half, Hidden, Inner, Key, KvHead, Layer, Plane,
    Position, Request, Row, Vocab,
};

/// The tensors of a request's block, which the proof evaluates in clear; see [`crate::batch`].
pub const STATEMENT: [&str; 4] = ["tok", "next", "dec", "cells"];

/// Values that need no range check of their own, with the reason.
pub const BOUNDED_OTHERWISE: [(&str, &str); 17] = [
    ("tok", "found in the embedding table, whose ids are public"),
    (
        "next",
        "equal to an argmax where decoded; elsewhere part of the block alone",
    ),
    ("n1.f", "an equation: a product of bounded values"),
    ("qn.f", "an equation: a product of bounded values"),
    ("kn.f", "an equation: a product of bounded values"),
    ("n2.f", "an equation: a product of bounded values"),
    ("nf.f", "an equation: a product of bounded values"),
    ("att.sum", "an equation: a sum of table entries"),
    ("rt.sum", "an equation: a sum of table entries"),
    (
        "theta",
        "next to the key of a selected expert, of which there is at least one",
    ),
    ("row.tok", "found among public token ids"),
    (
        "row.gate",
        "equal to a gate weight on real rows, zero on others",
    ),
    (
        "row.x",
        "equal to a bounded vector on real rows, multiplied by zero on others",
    ),
    (
        "dr.id",
        "equal to a token id on real rows, of no effect on others",
    ),
    (
        "dr.x",
        "equal to a bounded vector on real rows, of no effect on others",
    ),
    ("am", "an equation: the index of the marked entry"),
    ("mk", "an equation: the key of the marked entry"),
];

/// The relation of a model with this header. Sizes stay symbolic; shifts and constants are numbers in it.
pub fn relation(header: &Header) -> Relation {
    let (sizes, s) = (&header.sizes, &header.scales);
    let [hidden_norm, query_norm, key_norm] = s.norms().map(rms_norm::NormParams::from);
    let mut builder = Builder::new();
    let b = &mut builder;
    let positions = [Request, Position];
    let rows = [Request, Layer, Position];
    let hidden = [Request, Layer, Position, Hidden];
    let query = [Request, Layer, Position, KvHead, Group, Half, Plane];
    let key = [Request, Layer, Position, KvHead, Half, Plane];
    let routed = [Request, Layer, Position, Expert];

    b.weights(WeightId::Emb, &[Vocab, Hidden]);
    let wq = b.weights(WeightId::Wq, &[Layer, Hidden, KvHead, Group, Half, Plane]);
    let wk = b.weights(WeightId::Wk, &[Layer, Hidden, KvHead, Half, Plane]);
    let wv = b.weights(WeightId::Wv, &[Layer, Hidden, KvHead, Half, Plane]);
    b.weights(WeightId::Gq, &[Layer, KvHead, Group, Half, Plane]);
    b.weights(WeightId::Gk, &[Layer, KvHead, Half, Plane]);
    let wo = b.weights(WeightId::Wo, &[Layer, KvHead, Group, Half, Plane, Hidden]);
    let wr = b.weights(WeightId::Wr, &[Layer, Hidden, Expert]);
    b.weights(WeightId::Wg, &[AnyExpert, Hidden, Inner]);
    b.weights(WeightId::Wu, &[AnyExpert, Hidden, Inner]);
    b.weights(WeightId::Wd, &[AnyExpert, Inner, Hidden]);
    let wh = b.weights(WeightId::Wh, &[Hidden, Vocab]);

    // What the requests are.
    let tok = b.trace("tok", &positions);
    let next = b.trace("next", &positions);
    b.trace("dec", &positions);
    b.first("cells", &[Request, Cell], Fill::Random);
    b.boolean("dec");

    let x = residual::declare(b, &hidden);
    embedding::constrain(b, &positions, tok, WeightId::Emb.name());

    // Attention.
    let n1 = rms_norm::constrain(b, "n1", &rows, &hidden, &x.input, hidden_norm);
    let project = |b: &mut Builder, name, axes: &[Label], w, shift| {
        requant::output(b, name, axes, n1.clone() * w, OPERAND_BITS, shift)
    };
    let q = project(b, "q", &query, wq, s.query_shift);
    let k = project(b, "k", &key, wk, s.key_shift);
    project(b, "v", &key, wv, s.value_shift);
    rms_norm::constrain(b, "qn", &rows, &query, &q, query_norm);
    rms_norm::constrain(b, "kn", &rows, &key, &k, key_norm);
    rope::constrain(b, "qr", &query, "qn.y", WeightId::Gq.name(), s.rope_shift);
    rope::constrain(b, "kr", &key, "kn.y", WeightId::Gk.name(), s.rope_shift);
    let attended = |b: &Builder, name| b.with(name, &[(Position, Index::At(Key))]);
    let scores = b.get("qr") * attended(b, "kr");
    let axes = softmax::Axes {
        rows: &[Request, Layer, KvHead, Group, Position],
        over: Key,
        causal: true,
    };
    let weights = softmax::constrain(b, "att", axes, scores, s.score_shift);
    let att = b.trace("att.out", &query);
    b.signed("att.out: output", &query, att.clone(), OPERAND_BITS);
    let mixed = weights.e * attended(b, "v");
    divide::constrain(b, "att.out", &query, mixed, weights.sum, att.clone());
    let change = x.middle.clone() - x.input;
    let shift = s.output_shift;
    requant::constrain(b, "xm", &hidden, Count::One, att * wo, change, shift);

    // Experts.
    let n2 = rms_norm::constrain(b, "n2", &rows, &hidden, &x.middle, hidden_norm);
    let logits = requant::output(b, "rl", &routed, n2 * wr, ROUTER_BITS, s.router_shift);
    router::select(
        b,
        &routed,
        &logits,
        sizes.num_experts,
        sizes.num_experts_per_tok,
    );
    let gate = router::gate_weights(b, &routed, logits, s.router_score_shift);
    let sent = dispatch::Routed {
        sel: b.reference("sel", &[]),
        gate,
        vector: b.reference("n2.y", &[]),
    };
    let sent = dispatch::constrain(b, &routed, sent);
    let active = |b: &Builder, id: WeightId| b.with(id.name(), &[(AnyExpert, Index::BlockExpert)]);
    let gates = sent.x.clone() * active(b, WeightId::Wg);
    let ups = sent.x.clone() * active(b, WeightId::Wu);
    let inner = activation::constrain(b, &[Block, Row, Inner], gates, ups, s);
    let downs = inner * active(b, WeightId::Wd);
    let served = [Block, Row, Hidden];
    let ey = requant::output(b, "ey", &served, downs, RESIDUAL_BITS, s.down_shift);
    combine::constrain(b, &hidden, sent, ey, x.output - x.middle);

    // Head.
    let (last, token) = decode::constrain(b, &positions, next, sizes.num_hidden_layers);
    let full = [Decoded, Hidden];
    let nf = rms_norm::constrain(b, "nf", &[Decoded], &full, &last, hidden_norm);
    let logits = [Decoded, Vocab];
    let lg = requant::output(b, "lg", &logits, nf * wh, LOGIT_BITS, s.head_shift);
    argmax::constrain(b, &logits, &lg, token, sizes.vocab_size);
    builder.finish()
}

#[cfg(test)]
pub(crate) mod tests;
