use crate::header::Header;
use crate::relation::{Builder, Count, Expr, Fill, Index, Label, Public, Relation, Round, Tag};
use crate::weights::WeightId;
use Label::{
    AnyExpert, Block, Cell, Decoded, Expert, Group, Half, Hidden, Inner, Key, KvHead, Layer, Plane,
    Position, Request, Row, Stream, Vocab,
};

/// `value = floor((acc + 2^(shift-1)) / 2^shift)`.
pub fn requant(
    b: &mut Builder,
    name: &str,
    out: &[Label],
    count: Count,
    acc: Expr,
    value: Expr,
    shift: u32,
) {
    b.range(
        &format!("{name}: remainder"),
        out,
        count,
        acc + (1i64 << (shift - 1)) - value * (1i64 << shift),
        shift,
    );
}

/// Norm.
pub struct NormAxes<'a> {
    pub rows: &'a [Label],
    pub width: &'a [Label],
    pub full: &'a [Label],
}

pub fn norm(
    b: &mut Builder,
    name: &str,
    axes: &NormAxes<'_>,
    x: &Expr,
    (factor, epsilon, shift): (u64, u64, u32),
) -> Expr {
    let rows = axes.rows;
    let n = |field: &str| format!("{name}.{field}");
    let z = b.trace(&n("z"), rows);
    let w4 = b.trace(&n("w4"), rows);
    let w2 = b.trace(&n("w2"), rows);
    let u = b.trace(&n("u"), rows);
    let r = b.trace(&n("r"), rows);
    let m = b.trace(&n("m"), rows);
    let f = b.trace(&n("f"), rows);
    let y = b.trace(&n("y"), axes.full);
    b.lookup(
        &format!("{name}: powers of z"),
        rows,
        Count::One,
        Tag::Normalise,
        vec![z, w4.clone(), w2.clone()],
    );
    let squares = x.clone() * x.clone() * factor as i64;
    b.zero(
        &format!("{name}: sum of squares"),
        rows,
        squares + epsilon as i64 - u.clone() * w4.clone() - r.clone(),
    );
    b.range(
        &format!("{name}: u from below"),
        rows,
        Count::One,
        u.clone() - (1 << 20),
        22,
    );
    b.range(
        &format!("{name}: u from above"),
        rows,
        Count::One,
        -u.clone() + ((1 << 22) - 1),
        22,
    );
    b.range(
        &format!("{name}: r from below"),
        rows,
        Count::One,
        r.clone(),
        40,
    );
    b.range(
        &format!("{name}: r from above"),
        rows,
        Count::One,
        w4 - r - 1,
        40,
    );
    b.range(&format!("{name}: m"), rows, Count::One, m.clone(), 16);
    let square = m.clone() * m.clone() * u.clone();
    b.range(
        &format!("{name}: m is not too large"),
        rows,
        Count::One,
        -square.clone() + (1i64 << 50),
        38,
    );
    let next = square + m.clone() * u.clone() * 2 + u - ((1i64 << 50) + 1);
    b.range(
        &format!("{name}: m is not too small"),
        rows,
        Count::One,
        next,
        38,
    );
    b.zero(&format!("{name}: factor"), rows, f.clone() - m * w2);
    b.signed(&format!("{name}: output"), axes.full, y.clone(), 16);
    requant(
        b,
        &format!("{name}: output"),
        axes.full,
        Count::One,
        x.clone() * f,
        y.clone(),
        shift,
    );
    y
}

pub fn rope(b: &mut Builder, name: &str, axes: &[Label], x: &str, gain: &str, shift: u32) {
    b.trace(name, axes);
    b.signed(&format!("{name}: output"), axes, b.get(name), 16);
    let out: Vec<Label> = axes.iter().copied().filter(|&l| l != Half).collect();
    for (half, other, sign) in [(0, 1, -1), (1, 0, 1)] {
        let at = |b: &Builder, t: &str, c| b.with(t, &[(Half, Index::Fixed(c))]);
        let same = at(b, x, half) * at(b, gain, half) * Expr::public(Public::Cos);
        let cross = at(b, x, other) * at(b, gain, other) * Expr::public(Public::Sin);
        let value = at(b, name, half);
        requant(
            b,
            &format!("{name}: half {half}"),
            &out,
            Count::One,
            same + cross * sign,
            value,
            shift,
        );
    }
}

pub struct SoftmaxAxes<'a> {
    pub rows: &'a [Label],
    pub over: Label,
    pub causal: bool,
}

pub fn softmax(b: &mut Builder, name: &str, axes: &SoftmaxAxes<'_>, score: Expr, shift: u32) {
    let rows = axes.rows;
    let cells = [rows, &[axes.over]].concat();
    let n = |field: &str| format!("{name}.{field}");
    let count = if axes.causal {
        Count::Causal
    } else {
        Count::One
    };
    let max = b.trace(&n("max"), rows);
    let sum = b.trace(&n("sum"), rows);
    let idx = b.trace(&n("idx"), &cells);
    let ex = b.trace(&n("ex"), &cells);
    let z = b.trace(&n("z"), &cells);
    let e = b.trace(&n("e"), &cells);
    b.signed(&format!("{name}: maximum"), rows, max.clone(), 24);
    b.lookup(
        &format!("{name}: exponential"),
        &cells,
        count.clone(),
        Tag::Exp,
        vec![idx.clone(), e.clone()],
    );
    b.range(
        &format!("{name}: excess"),
        &cells,
        count.clone(),
        ex.clone(),
        16,
    );
    let scaled = max - idx.clone() - ex.clone();
    requant(
        b,
        &format!("{name}: score"),
        &cells,
        count,
        score,
        scaled,
        shift,
    );
    b.boolean(&n("z"));
    b.zero(
        &format!("{name}: the maximum is attained"),
        &cells,
        z.clone() * (idx.clone() + ex.clone()),
    );
    b.zero(
        &format!("{name}: excess only past the table's end"),
        &cells,
        ex.clone() * 65535 - ex * idx,
    );
    b.zero(
        &format!("{name}: one maximum is marked"),
        rows,
        z.clone() - 1,
    );
    b.zero(&format!("{name}: sum"), rows, e.clone() - sum);
    if axes.causal {
        let mask = Expr::public(Public::Causal);
        b.zero(
            &format!("{name}: no weight on later positions"),
            &cells,
            e.clone() - e * mask.clone(),
        );
        b.zero(
            &format!("{name}: no maximum at later positions"),
            &cells,
            z.clone() - z * mask,
        );
    }
}

pub fn divide(b: &mut Builder, name: &str, out: &[Label], num: Expr, den: Expr, quotient: Expr) {
    let rest = num * 2 + den.clone() - den.clone() * quotient * 2;
    b.range(
        &format!("{name}: rest from below"),
        out,
        Count::One,
        rest.clone(),
        32,
    );
    b.range(
        &format!("{name}: rest from above"),
        out,
        Count::One,
        den * 2 - rest - 1,
        32,
    );
}

pub fn relation(header: &Header) -> Relation {
    let s = &header.scales;
    let mut b = Builder::new();
    let b = &mut b;
    let query = [Request, Layer, Position, KvHead, Group, Half, Plane];
    let key = [Request, Layer, Position, KvHead, Half, Plane];
    let rows = [Request, Layer, Position];
    let hidden = [Request, Layer, Position, Hidden];
    let routed = [Request, Layer, Position, Expert];

    let emb = b.weights(WeightId::Emb, &[Vocab, Hidden]);
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
    let block = |b: &Builder, name: &str| b.with(name, &[(AnyExpert, Index::BlockExpert)]);

    // statement
    let tok = b.trace("tok", &[Request, Position]);
    let next = b.trace("next", &[Request, Position]);
    b.trace("dec", &[Request, Position]);
    b.first("cells", &[Request, Cell], Fill::Random);
    b.boolean("dec");

    // residual streams
    let x = b.trace("x", &[Request, Stream, Position, Hidden]);
    b.signed("x: range", &[Request, Stream, Position, Hidden], x, 24);
    let xm = b.trace("xm", &hidden);
    b.signed("xm: range", &hidden, xm.clone(), 24);
    let x_in = b.with("x", &[(Stream, Index::Shifted(Layer, 0))]);
    let x_out = b.with("x", &[(Stream, Index::Shifted(Layer, 1))]);

    // embedding
    let x0 = b.reference("x", &[(Stream, Index::Fixed(0))]);
    let fp_x0 = fingerprint(b, "fp.x0", &[Request, Position], x0);
    let emb_ref = emb.0[0].refs[0].clone();
    let fp_emb = fingerprint(b, "fp.emb", &[Vocab], emb_ref);
    b.first(
        "table Embedding",
        &[Vocab],
        Fill::Multiplicity(Tag::Embedding),
    );
    let count = Count::Minus(b.reference("table Embedding", &[]));
    b.lookup(
        "embedding: rows",
        &[Vocab],
        count,
        Tag::Embedding,
        vec![Expr::public(Public::Index(Vocab)), fp_emb],
    );
    b.lookup(
        "embedding: tokens",
        &[Request, Position],
        Count::One,
        Tag::Embedding,
        vec![tok, fp_x0],
    );

    // attention
    let n1 = norm(
        b,
        "n1",
        &NormAxes {
            rows: &rows,
            width: &[Hidden],
            full: &hidden,
        },
        &x_in,
        (s.norm_factor, s.norm_epsilon, s.norm_shift),
    );
    for (name, axes, w, shift) in [
        ("q", &query[..], wq, s.query_shift),
        ("k", &key[..], wk, s.key_shift),
        ("v", &key[..], wv, s.value_shift),
    ] {
        let value = b.trace(name, axes);
        b.signed(&format!("{name}: output"), axes, value.clone(), 16);
        requant(b, name, axes, Count::One, n1.clone() * w, value, shift);
    }
    let (q, k) = (b.get("q"), b.get("k"));
    norm(
        b,
        "qn",
        &NormAxes {
            rows: &rows,
            width: &query[3..],
            full: &query,
        },
        &q,
        (
            s.query_norm_factor,
            s.query_norm_epsilon,
            s.query_norm_shift,
        ),
    );
    norm(
        b,
        "kn",
        &NormAxes {
            rows: &rows,
            width: &key[3..],
            full: &key,
        },
        &k,
        (s.key_norm_factor, s.key_norm_epsilon, s.key_norm_shift),
    );
    rope(b, "qr", &query, "qn.y", "gq", s.rope_shift);
    rope(b, "kr", &key, "kn.y", "gk", s.rope_shift);
    let qr = b.get("qr");
    let kr = b.with("kr", &[(Position, Index::At(Key))]);
    let v = b.with("v", &[(Position, Index::At(Key))]);
    let att_rows = [Request, Layer, KvHead, Group, Position];
    softmax(
        b,
        "att",
        &SoftmaxAxes {
            rows: &att_rows,
            over: Key,
            causal: true,
        },
        qr * kr,
        s.score_shift,
    );
    let att = b.trace("att.out", &query);
    b.signed("att.out: output", &query, att.clone(), 16);
    let (e, sum) = (b.get("att.e"), b.get("att.sum"));
    divide(b, "att.out", &query, e * v, sum, att.clone());
    requant(
        b,
        "xm",
        &hidden,
        Count::One,
        att * wo,
        xm.clone() - x_in,
        s.output_shift,
    );

    // router
    let n2 = norm(
        b,
        "n2",
        &NormAxes {
            rows: &rows,
            width: &[Hidden],
            full: &hidden,
        },
        &xm,
        (s.norm_factor, s.norm_epsilon, s.norm_shift),
    );
    let rl = b.trace("rl", &routed);
    b.signed("rl: output", &routed, rl.clone(), 24);
    requant(
        b,
        "rl",
        &routed,
        Count::One,
        n2.clone() * wr,
        rl.clone(),
        s.router_shift,
    );
    router(
        b,
        header.sizes.num_experts as i64,
        header.sizes.num_experts_per_tok as i64,
        &routed,
        &rl,
    );
    softmax(
        b,
        "rt",
        &SoftmaxAxes {
            rows: &rows,
            over: Expert,
            causal: false,
        },
        rl,
        s.router_score_shift,
    );
    let gate = b.trace("gate", &routed);
    b.range("gate: output", &routed, Count::One, gate.clone(), 16);
    let (e, sum) = (b.get("rt.e"), b.get("rt.sum"));
    divide(b, "gate", &routed, e * (1 << 14), sum, gate.clone());

    // dispatch
    let row_tok = b.trace("row.tok", &[Block, Row]);
    let row_gate = b.trace("row.gate", &[Block, Row]);
    let row_real = b.trace("row.real", &[Block, Row]);
    let row_x = b.trace("row.x", &[Block, Row, Hidden]);
    b.boolean("row.real");
    b.zero(
        "row.gate: no gate on padding rows",
        &[Block, Row],
        row_gate.clone() - row_gate.clone() * row_real,
    );
    let n2_ref = b.reference("n2.y", &[]);
    let fp_y = fingerprint(b, "fp.n2", &rows, n2_ref);
    let row_ref = b.reference("row.x", &[]);
    let fp_row = fingerprint(b, "fp.row", &[Block, Row], row_ref);
    let sel = b.reference("sel", &[]);
    b.lookup(
        "dispatch: routed",
        &routed,
        Count::Plus(sel),
        Tag::Dispatch,
        vec![
            Expr::public(Public::TokenId),
            Expr::public(Public::Index(Layer)),
            Expr::public(Public::Index(Expert)),
            fp_y,
            gate,
        ],
    );
    let real = b.reference("row.real", &[]);
    b.lookup(
        "dispatch: rows",
        &[Block, Row],
        Count::Minus(real),
        Tag::Dispatch,
        vec![
            row_tok.clone(),
            Expr::public(Public::BlockLayer),
            Expr::public(Public::BlockExpert),
            fp_row,
            row_gate.clone(),
        ],
    );

    // experts
    let inner = [Block, Row, Inner];
    let out = [Block, Row, Hidden];
    let eg = b.trace("eg", &inner);
    let ea = b.trace("ea", &inner);
    let eu = b.trace("eu", &inner);
    let eh = b.trace("eh", &inner);
    let ey = b.trace("ey", &out);
    let (wg, wu, wd) = (block(b, "wg"), block(b, "wu"), block(b, "wd"));
    requant(
        b,
        "eg",
        &inner,
        Count::One,
        row_x.clone() * wg,
        eg.clone(),
        s.gate_shift,
    );
    b.lookup(
        "ea: activation",
        &inner,
        Count::One,
        Tag::Silu,
        vec![eg + (1 << 15), ea.clone()],
    );
    b.signed("eu: output", &inner, eu.clone(), 16);
    requant(
        b,
        "eu",
        &inner,
        Count::One,
        row_x * wu,
        eu.clone(),
        s.up_shift,
    );
    b.signed("eh: output", &inner, eh.clone(), 16);
    requant(
        b,
        "eh",
        &inner,
        Count::One,
        ea * eu,
        eh.clone(),
        s.product_shift,
    );
    b.signed("ey: output", &out, ey.clone(), 24);
    requant(b, "ey", &out, Count::One, eh * wd, ey.clone(), s.down_shift);

    // combine
    let row_weight = {
        let ids = b.reference("row.tok", &[]);
        b.second("row.weight", &[Block, Row], Fill::RowWeight(ids))
    };
    b.first(
        "table RowWeight",
        &[Request, Position],
        Fill::Multiplicity(Tag::RowWeight),
    );
    let count = Count::Minus(b.reference("table RowWeight", &[]));
    b.lookup(
        "combine: token weights",
        &[Request, Position],
        count,
        Tag::RowWeight,
        vec![
            Expr::public(Public::TokenId),
            Expr::public(Public::TokenWeight),
        ],
    );
    b.lookup(
        "combine: row weights",
        &[Block, Row],
        Count::One,
        Tag::RowWeight,
        vec![row_tok, row_weight.clone()],
    );
    let rem = b.trace("comb.rem", &hidden);
    b.range("combine: remainder", &hidden, Count::One, rem.clone(), 14);
    let gathered = Expr::public(Public::LayerOfBlock) * row_weight * row_gate * ey;
    b.zero_after(
        Round::First,
        "combine",
        &hidden,
        gathered + (1 << 13) - rem - (x_out - xm) * (1 << 14),
    );

    // decode
    let id = b.trace("dr.id", &[Decoded]);
    b.trace("dr.real", &[Decoded]);
    b.boolean("dr.real");
    let dr_x = b.trace("dr.x", &[Decoded, Hidden]);
    let last = b.reference(
        "x",
        &[(Stream, Index::Fixed(header.sizes.num_hidden_layers))],
    );
    let fp_last = fingerprint(b, "fp.last", &[Request, Position], last);
    let dr_ref = b.reference("dr.x", &[]);
    let fp_dr = fingerprint(b, "fp.dr", &[Decoded], dr_ref);
    let am = b.trace("am", &[Decoded]);
    let dec = b.reference("dec", &[]);
    let real = b.reference("dr.real", &[]);
    b.lookup(
        "decode: positions",
        &[Request, Position],
        Count::Plus(dec),
        Tag::Gather,
        vec![Expr::public(Public::TokenId), fp_last, next],
    );
    b.lookup(
        "decode: rows",
        &[Decoded],
        Count::Minus(real),
        Tag::Gather,
        vec![id, fp_dr, am],
    );
    let nf = norm(
        b,
        "nf",
        &NormAxes {
            rows: &[Decoded],
            width: &[Hidden],
            full: &[Decoded, Hidden],
        },
        &dr_x,
        (s.norm_factor, s.norm_epsilon, s.norm_shift),
    );
    let logits = [Decoded, Vocab];
    let lg = b.trace("lg", &logits);
    b.signed("lg: output", &logits, lg.clone(), 20);
    requant(
        b,
        "lg",
        &logits,
        Count::One,
        nf * wh,
        lg.clone(),
        s.head_shift,
    );
    argmax(b, header.sizes.vocab_size, &logits, &lg);
    core::mem::take(b).finish()
}

pub fn fingerprint(b: &mut Builder, name: &str, out: &[Label], of: crate::relation::Ref) -> Expr {
    let fp = b.second(name, out, Fill::Fingerprint(of.clone()));
    b.zero(
        &format!("{name}: fingerprint"),
        out,
        fp.clone() - Expr::from(of) * Expr::public(Public::FingerprintPower(Hidden)),
    );
    fp
}

pub fn router(b: &mut Builder, experts: i64, k: i64, cells: &[Label], rl: &Expr) {
    let rows = &cells[..cells.len() - 1];
    let sel = b.trace("sel", cells);
    let theta = b.trace("theta", rows);
    b.boolean("sel");
    b.zero("router: number of experts", rows, sel.clone() - k);
    let key = rl.clone() * experts + (experts - 1) - Expr::public(Public::Index(Expert));
    let above = key - theta;
    // (2 sel - 1)(key - theta) - (1 - sel)
    let gap = sel.clone() * above.clone() * 2 - above - 1 + sel;
    b.range("router: chosen before the rest", cells, Count::One, gap, 32);
}

pub fn argmax(b: &mut Builder, vocab: usize, cells: &[Label], lg: &Expr) {
    let rows = &cells[..cells.len() - 1];
    let mk = b.trace("mk", rows);
    let z = b.trace("lg.z", cells);
    let am = b.get("am");
    let v = vocab as i64;
    let key = lg.clone() * v + (v - 1) - Expr::public(Public::Index(Vocab));
    let gap = mk - key;
    let bits = 20 + zkmoe_commit::shape::index_bits(vocab) + 1;
    b.range(
        "argmax: no key above the maximum",
        cells,
        Count::One,
        gap.clone(),
        bits,
    );
    b.boolean("lg.z");
    b.zero("argmax: the maximum is attained", cells, z.clone() * gap);
    b.zero("argmax: one maximum is marked", rows, z.clone() - 1);
    b.zero(
        "argmax: token",
        rows,
        z * Expr::public(Public::Index(Vocab)) - am,
    );
}
