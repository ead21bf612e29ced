//! One block of the model over a run of consecutive positions of one request, and what comes before and after all
//! blocks: embedding and head.
//!
//! A pass keeps the values that later steps and the trace need. Its rows are the new positions; the cache holds keys
//! and values of all positions, old and new.

use rayon::prelude::*;
use zkmoe_verifier::{
    gadgets::{
        activation::{gated, silu},
        divide::divide,
        int16,
        requant::{remainder, requant},
        rms_norm::{InverseRoot, NormParams, rms_norm},
        rope::rope,
        router::{TopK, gates, top_k},
        signed,
        softmax::{Softmax, softmax},
    },
    header::{GATE_FRACTION_BITS, Header, LOGIT_BITS, RESIDUAL_BITS, ROUTER_BITS},
};

use super::{Overflow, Place, product::Matrix};
use crate::model::{Model, WeightId};

/// Keys (after norm and rotation) and values of one layer, `[position][key head][channel]`.
#[derive(Debug, Clone, Default)]
pub(crate) struct LayerCache {
    pub keys: Vec<i16>,
    pub values: Vec<i16>,
    /// At least the squared length of every single key head.
    longest: u64,
}

/// Norms of some rows.
pub(crate) struct Norms {
    pub roots: Vec<InverseRoot>,
    pub y: Vec<i16>,
}

/// The attention of one position.
pub(crate) struct AttentionRow {
    /// One row of weights per query head; empty where the pass does not keep them.
    pub weights: Vec<Softmax>,
    pub out: Vec<i16>,
}

/// The router at one position.
pub(crate) struct RouterRow {
    pub chosen: TopK,
    pub weights: Softmax,
    pub gate: Vec<u16>,
}

/// One expert over the rows that chose it.
pub(crate) struct ExpertPass {
    pub expert: usize,
    /// Rows of the pass, ascending.
    pub rows: Vec<usize>,
    pub gate: Vec<i16>,
    pub activation: Vec<i16>,
    pub up: Vec<i16>,
    pub product: Vec<i16>,
    pub y: Vec<i32>,
}

/// One block over a run of positions.
pub(crate) struct LayerPass {
    pub n1: Norms,
    pub q: Vec<i16>,
    pub k: Vec<i16>,
    pub v: Vec<i16>,
    pub qn: Norms,
    pub kn: Norms,
    pub qr: Vec<i16>,
    pub kr: Vec<i16>,
    pub attention: Vec<AttentionRow>,
    pub xm: Vec<i32>,
    pub n2: Norms,
    pub rl: Vec<i32>,
    pub router: Vec<RouterRow>,
    /// Experts that some row chose, ascending.
    pub experts: Vec<ExpertPass>,
    /// Remainders of the gated sum.
    pub rem: Vec<i64>,
    /// The input of the next block.
    pub x: Vec<i32>,
}

/// The head over some rows.
pub(crate) struct HeadPass {
    pub norm: Norms,
    pub logits: Vec<i32>,
}

/// Rows below this number are not spread over threads.
const PARALLEL_ROWS: usize = 16;

/// `f` of every row, in parallel where there are many; of several errors the one of the first row.
fn each_row<T: Send>(
    rows: usize,
    f: impl Fn(usize) -> Result<T, Overflow> + Sync + Send,
) -> Result<Vec<T>, Overflow> {
    if rows < PARALLEL_ROWS {
        return (0..rows).map(f).collect();
    }
    let results: Vec<Result<T, Overflow>> = (0..rows).into_par_iter().map(f).collect();
    results.into_iter().collect()
}

fn norms<T: Copy + Into<i64> + Sync>(
    x: &[T],
    width: usize,
    params: (u64, u64, u32),
    operator: &'static str,
    place: Place,
) -> Result<Norms, Overflow> {
    let params = NormParams::from(params);
    let rows = each_row(x.len() / width, |row| {
        rms_norm(&x[row * width..][..width], params).map_err(place.fault(operator, row))
    })?;
    let mut y = Vec::with_capacity(x.len());
    let mut roots = Vec::with_capacity(rows.len());
    for row in rows {
        roots.push(row.root);
        y.extend(row.y);
    }
    Ok(Norms { roots, y })
}

/// Gain and rotation of all heads of all rows.
fn rotate(
    y: &[i16],
    gain: &[i64],
    header: &Header,
    operator: &'static str,
    place: Place,
) -> Result<Vec<i16>, Overflow> {
    let half = header.sizes.head_dim / 2;
    let width = gain.len();
    let rows = each_row(y.len() / width, |row| {
        let y = &y[row * width..][..width];
        let angle = (place.start + row) * half;
        let mut out = vec![0i16; width];
        for head in (0..width).step_by(2 * half) {
            for j in 0..half {
                let (a, b) = (head + j, head + half + j);
                let pair = rope(
                    [y[a], y[b]],
                    [gain[a], gain[b]],
                    header.cos_table[angle + j],
                    header.sin_table[angle + j],
                    header.scales.rope_shift,
                );
                [out[a], out[b]] = pair.map_err(place.fault(operator, row))?;
            }
        }
        Ok(out)
    })?;
    Ok(rows.concat())
}

/// The product of two heads; each term is at most `2^30`.
#[inline]
fn dot(a: &[i16], b: &[i16]) -> i64 {
    a.iter()
        .zip(b)
        .map(|(&a, &b)| i64::from(i32::from(a) * i32::from(b)))
        .sum()
}

/// [`dot`] modulo `2^32`, several times as fast: exact where the product fits 32 bits, whatever the sums on the way do.
#[inline]
fn dot_wrapping(a: &[i16], b: &[i16]) -> i64 {
    let sum = a.iter().zip(b).fold(0i32, |sum, (&a, &b)| {
        sum.wrapping_add(i32::from(a) * i32::from(b))
    });
    i64::from(sum)
}

fn squared_length(head: &[i16]) -> u64 {
    dot(head, head) as u64
}

/// The attention of the position of row `row`, whose rotated queries are `q`, over all positions up to it.
fn attend(
    header: &Header,
    q: &[i16],
    cache: &LayerCache,
    row: usize,
    place: Place,
    keep: bool,
) -> Result<AttentionRow, Overflow> {
    let sizes = &header.sizes;
    let width = sizes.head_dim;
    let stride = sizes.num_key_value_heads * width;
    let positions = place.start + row + 1;
    let mut weights = Vec::new();
    let mut out = Vec::with_capacity(q.len());
    let mut scores = vec![0i64; positions];
    let mut sums = vec![0i64; width];
    for (head, q) in q.chunks_exact(width).enumerate() {
        let offset = head / sizes.query_group * width;
        // No product exceeds the product of the lengths (Cauchy and Schwarz), which norms keep short.
        let short = u128::from(squared_length(q)) * u128::from(cache.longest) < 1 << 62;
        for (score, k) in scores.iter_mut().zip(cache.keys.chunks_exact(stride)) {
            let k = &k[offset..offset + width];
            let product = if short { dot_wrapping(q, k) } else { dot(q, k) };
            *score = requant(product, header.scales.score_shift);
        }
        let softmax = softmax(&scores, &header.exp_table)
            .map_err(place.fault("softmax of attention", row))?;
        sums.fill(0);
        for (&e, v) in softmax.e.iter().zip(cache.values.chunks_exact(stride)) {
            for (sum, &v) in sums.iter_mut().zip(&v[offset..offset + width]) {
                // At most 65535 * 2^15 < 2^31.
                *sum += i64::from(i32::from(e) * i32::from(v));
            }
        }
        for &sum in &sums {
            let mean = int16(divide(sum, softmax.sum));
            out.push(mean.map_err(place.fault("attention", row))?);
        }
        if keep {
            weights.push(softmax);
        }
    }
    Ok(AttentionRow { weights, out })
}

/// One expert of layer `l` over the given rows of the normalized residual stream `y2`.
fn run_expert(
    model: &Model,
    l: usize,
    expert: usize,
    rows: Vec<usize>,
    y2: &[i16],
    place: Place,
) -> Result<ExpertPass, Overflow> {
    let header = model.header();
    let (sizes, scales) = (&header.sizes, &header.scales);
    let width = sizes.hidden_size;
    let outer = l * sizes.num_experts + expert;
    let x: Vec<i16> = rows
        .iter()
        .flat_map(|&row| &y2[row * width..][..width])
        .copied()
        .collect();
    let at = |operator| {
        let rows = &rows;
        move |fault: super::RowFault| place.fault(operator, rows[fault.row])(fault.fault)
    };
    let gate = Matrix::of(model, WeightId::Wg, outer)
        .product(&x, |acc| int16(requant(acc, scales.gate_shift)))
        .map_err(at("gate projection"))?;
    let activation: Vec<i16> = gate.iter().map(|&x| silu(x, &header.silu_table)).collect();
    let up = Matrix::of(model, WeightId::Wu, outer)
        .product(&x, |acc| int16(requant(acc, scales.up_shift)))
        .map_err(at("up projection"))?;
    let mut product = Vec::with_capacity(up.len());
    for (i, (&a, &u)) in activation.iter().zip(&up).enumerate() {
        let row = rows[i / sizes.intermediate_size];
        product
            .push(gated(a, u, scales.product_shift).map_err(place.fault("gated activation", row))?);
    }
    let y = Matrix::of(model, WeightId::Wd, outer)
        .product(&product, |acc| {
            signed(requant(acc, scales.down_shift), RESIDUAL_BITS)
        })
        .map_err(at("down projection"))?;
    Ok(ExpertPass {
        expert,
        rows,
        gate,
        activation,
        up,
        product,
        y,
    })
}

/// Adds `delta` to the residual stream.
fn add_residual(
    x: &[i32],
    delta: impl Iterator<Item = i64>,
    width: usize,
    operator: &'static str,
    place: Place,
) -> Result<Vec<i32>, Overflow> {
    x.iter()
        .zip(delta)
        .enumerate()
        .map(|(i, (&x, delta))| {
            signed(i64::from(x) + delta, RESIDUAL_BITS).map_err(place.fault(operator, i / width))
        })
        .collect()
}

/// Embedding rows of tokens that are known to be in the vocabulary.
pub(crate) fn embed(model: &Model, tokens: &[u32]) -> Vec<i32> {
    // 127 * 65535 < 2^23, so that every embedding fits the residual stream.
    tokens
        .iter()
        .flat_map(|&token| Matrix::of(model, WeightId::Emb, token as usize).committed_row())
        .map(|c| c as i32)
        .collect()
}

/// Runs block `l` on the rows `x` of the residual stream. The rows stand at the positions after those in `cache`, which
/// must be inside the context, and are added to it; after an error the cache may hold some of them. `keep` says whether
/// the weights of the attention are wanted.
pub(crate) fn layer(
    model: &Model,
    l: usize,
    x: &[i32],
    cache: &mut LayerCache,
    keep: bool,
) -> Result<LayerPass, Overflow> {
    let header = model.header();
    let (sizes, scales) = (&header.sizes, &header.scales);
    let hidden = sizes.hidden_size;
    let key_width = sizes.num_key_value_heads * sizes.head_dim;
    let query_width = key_width * sizes.query_group;
    let rows = x.len() / hidden;
    let place = Place {
        layer: Some(l),
        start: cache.keys.len() / key_width,
    };
    let [hidden_norm, query_norm, key_norm] = scales.norms();

    let n1 = norms(x, hidden, hidden_norm, "norm before attention", place)?;
    let project = |id, shift, operator| {
        Matrix::of(model, id, l)
            .product(&n1.y, |acc| int16(requant(acc, shift)))
            .map_err(place.product(operator))
    };
    let q = project(WeightId::Wq, scales.query_shift, "query projection")?;
    let k = project(WeightId::Wk, scales.key_shift, "key projection")?;
    let v = project(WeightId::Wv, scales.value_shift, "value projection")?;
    let qn = norms(&q, query_width, query_norm, "norm of queries", place)?;
    let kn = norms(&k, key_width, key_norm, "norm of keys", place)?;
    let gain = |id| -> Vec<i64> { Matrix::of(model, id, l).committed_row().collect() };
    let qr = rotate(
        &qn.y,
        &gain(WeightId::Gq),
        header,
        "rotation of queries",
        place,
    )?;
    let kr = rotate(
        &kn.y,
        &gain(WeightId::Gk),
        header,
        "rotation of keys",
        place,
    )?;
    let lengths = kr.chunks_exact(sizes.head_dim).map(squared_length);
    cache.longest = lengths.fold(cache.longest, u64::max);
    cache.keys.extend(&kr);
    cache.values.extend(&v);

    let attention = each_row(rows, |row| {
        let q = &qr[row * query_width..][..query_width];
        attend(header, q, cache, row, place, keep)
    })?;
    let mut out = Vec::with_capacity(rows * query_width);
    for row in &attention {
        out.extend(&row.out);
    }
    let delta = Matrix::of(model, WeightId::Wo, l)
        .product(&out, |acc| Ok(requant(acc, scales.output_shift)))
        .map_err(place.product("output projection"))?;
    let xm = add_residual(
        x,
        delta.into_iter(),
        hidden,
        "residual stream after attention",
        place,
    )?;

    let n2 = norms(&xm, hidden, hidden_norm, "norm before experts", place)?;
    let rl = Matrix::of(model, WeightId::Wr, l)
        .product(&n2.y, |acc| {
            signed(requant(acc, scales.router_shift), ROUTER_BITS)
        })
        .map_err(place.product("router"))?;
    let router = each_row(rows, |row| {
        let logits = &rl[row * sizes.num_experts..][..sizes.num_experts];
        let (weights, gate) = gates(logits, scales.router_score_shift, &header.exp_table)
            .map_err(place.fault("softmax of router", row))?;
        Ok(RouterRow {
            chosen: top_k(logits, sizes.num_experts_per_tok),
            weights,
            gate,
        })
    })?;

    let mut chosen_by = vec![Vec::new(); sizes.num_experts];
    for (row, r) in router.iter().enumerate() {
        for &e in &r.chosen.selected {
            chosen_by[e].push(row);
        }
    }
    let active = chosen_by
        .into_iter()
        .enumerate()
        .filter(|(_, rows)| !rows.is_empty());
    let expert = |(e, rows)| run_expert(model, l, e, rows, &n2.y, place);
    let results: Vec<Result<ExpertPass, Overflow>> = if rows < PARALLEL_ROWS {
        active.map(expert).collect()
    } else {
        active
            .collect::<Vec<_>>()
            .into_par_iter()
            .map(expert)
            .collect()
    };
    let experts: Vec<ExpertPass> = results.into_iter().collect::<Result<_, _>>()?;

    let mut sums = vec![0i64; rows * hidden];
    for pass in &experts {
        for (&row, y) in pass.rows.iter().zip(pass.y.chunks_exact(hidden)) {
            let gate = i64::from(router[row].gate[pass.expert]);
            for (sum, &y) in sums[row * hidden..][..hidden].iter_mut().zip(y) {
                *sum += gate * i64::from(y);
            }
        }
    }
    let next = add_residual(
        &xm,
        sums.iter().map(|&acc| requant(acc, GATE_FRACTION_BITS)),
        hidden,
        "residual stream after experts",
        place,
    )?;
    let rem = sums
        .into_iter()
        .map(|acc| remainder(acc, GATE_FRACTION_BITS))
        .collect();
    Ok(LayerPass {
        n1,
        q,
        k,
        v,
        qn,
        kn,
        qr,
        kr,
        attention,
        xm,
        n2,
        rl,
        router,
        experts,
        rem,
        x: next,
    })
}

/// Final norm and head of some rows of the last residual stream; `position` gives the position of a row for errors.
pub(crate) fn head(
    model: &Model,
    x: &[i32],
    position: &dyn Fn(usize) -> usize,
) -> Result<HeadPass, Overflow> {
    let scales = &model.header().scales;
    let place = Place {
        layer: None,
        start: 0,
    };
    let run = || {
        let norm = norms(
            x,
            model.sizes().hidden_size,
            scales.norms()[0],
            "final norm",
            place,
        )?;
        let logits = Matrix::of(model, WeightId::Wh, 0)
            .product(&norm.y, |acc| {
                signed(requant(acc, scales.head_shift), LOGIT_BITS)
            })
            .map_err(place.product("head"))?;
        Ok(HeadPass { norm, logits })
    };
    run().map_err(|overflow: Overflow| Overflow {
        position: position(overflow.position),
        ..overflow
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_heads_are_exact_at_the_ends() {
        let (low, high) = (vec![i16::MIN; 512], vec![i16::MAX; 512]);
        assert_eq!(dot(&low, &low), 512 << 30);
        assert_eq!(dot(&low, &high), -512 * 32768 * 32767);
        assert_eq!(squared_length(&low), 512 << 30);
        // Sums on the way wrap, the whole does not.
        let mut a = vec![i16::MAX; 4];
        a[2..].fill(-i16::MAX);
        let mut b = vec![i16::MAX; 4];
        assert_eq!(dot_wrapping(&a, &b), dot(&a, &b));
        b.truncate(2);
        b.extend([1000, 999]);
        assert_eq!(dot(&a, &b), 2 * 32767 * 32767 - 32767 * 1999);
        assert_eq!(dot_wrapping(&a, &b), dot(&a, &b));
        // Just inside the length for which the fast sum is used, and parallel.
        let unit = vec![23170i16; 4];
        let square = u128::from(squared_length(&unit));
        assert!(square * square < 1 << 62 && dot_wrapping(&unit, &unit) == dot(&unit, &unit));
    }
}
