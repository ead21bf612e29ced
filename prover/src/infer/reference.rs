//! The integer model once more, straight from its definition and as slowly as that takes: one token at a time, one
//! committed value at a time, no caches, no shared helper. Only tests use it.

use std::collections::HashMap;

use crate::model::{Model, WeightId};

/// Values of one position by name; layers in order.
pub(crate) type Values = HashMap<&'static str, Vec<i64>>;

fn requant(acc: i64, shift: u32) -> i64 {
    let (n, d) = (i128::from(acc) + (1 << (shift - 1)), 1i128 << shift);
    n.div_euclid(d) as i64
}

fn divide(num: i64, den: i64) -> i64 {
    (2 * num + den).div_euclid(2 * den)
}

fn norm(x: &[i64], (factor, epsilon, shift): (u64, u64, u32)) -> Vec<i64> {
    let squares: i128 = x.iter().map(|&x| i128::from(x) * i128::from(x)).sum();
    let ss = i128::from(factor) * squares + i128::from(epsilon);
    let mut z = 0;
    while ss >> (2 * z) >= 1 << 22 {
        z += 1;
    }
    let u = ss >> (2 * z);
    let (mut low, mut high) = (0i128, 1 << 16);
    while high - low > 1 {
        let m = i128::midpoint(low, high);
        if m * m * u <= 1 << 50 {
            low = m;
        } else {
            high = m;
        }
    }
    let f = (low << (20 - z)) as i64;
    x.iter().map(|&x| requant(x * f, shift)).collect()
}

fn weights(scores: &[i64], table: &[u16]) -> (Vec<i64>, i64) {
    let max = *scores.iter().max().unwrap();
    let e: Vec<i64> = scores
        .iter()
        .map(|s| i64::from(table[(max - s).min(65535) as usize]))
        .collect();
    let sum = e.iter().sum();
    (e, sum)
}

/// Everything that the model computes for `tokens`: values per position and layer, and logits per position.
pub(crate) fn run(model: &Model, tokens: &[u32]) -> (Vec<Vec<Values>>, Vec<Vec<i64>>) {
    let header = model.header();
    let (s, c) = (&header.sizes, &header.scales);
    let [hidden_norm, query_norm, key_norm] = c.norms();
    let half = s.head_dim / 2;
    let (heads, group) = (s.num_key_value_heads, s.query_group);
    let product = |x: &[i64], id: WeightId, outer: usize, shift: u32| -> Vec<i64> {
        let shape = model.shape(id);
        assert_eq!(x.len(), shape.inn);
        (0..shape.out)
            .map(|o| {
                let acc = (0..shape.inn)
                    .map(|i| x[i] * model.committed(id, outer, i, o))
                    .sum();
                requant(acc, shift)
            })
            .collect()
    };
    let rotate = |y: &[i64], id: WeightId, l: usize, t: usize| -> Vec<i64> {
        let gained: Vec<i64> = (0..y.len())
            .map(|i| y[i] * model.committed(id, l, 0, i))
            .collect();
        (0..y.len())
            .map(|i| {
                let j = i % half;
                let cos = i64::from(header.cos_table[t * half + j]);
                let sin = i64::from(header.sin_table[t * half + j]);
                let acc = if i / half % 2 == 0 {
                    gained[i] * cos - gained[i + half] * sin
                } else {
                    gained[i] * cos + gained[i - half] * sin
                };
                requant(acc, c.rope_shift)
            })
            .collect()
    };
    let mut all: Vec<Vec<Values>> = Vec::new();
    let mut logits = Vec::new();
    for (t, &token) in tokens.iter().enumerate() {
        let mut x: Vec<i64> = (0..s.hidden_size)
            .map(|i| model.committed(WeightId::Emb, token as usize, 0, i))
            .collect();
        let mut layers: Vec<Values> = Vec::new();
        for l in 0..s.num_hidden_layers {
            let mut values = Values::from([("x", x.clone())]);
            let y = norm(&x, hidden_norm);
            let q = product(&y, WeightId::Wq, l, c.query_shift);
            let k = product(&y, WeightId::Wk, l, c.key_shift);
            values.insert("v", product(&y, WeightId::Wv, l, c.value_shift));
            let qr = rotate(&norm(&q, query_norm), WeightId::Gq, l, t);
            values.insert("kr", rotate(&norm(&k, key_norm), WeightId::Gk, l, t));
            let before: Vec<&Values> = all
                .iter()
                .map(|layers| &layers[l])
                .chain([&values])
                .collect();
            let mut out = Vec::new();
            for n in 0..heads * group {
                let at = |i: usize| n / group * s.head_dim + i;
                let scores: Vec<i64> = before
                    .iter()
                    .map(|past| {
                        let acc = (0..s.head_dim)
                            .map(|i| qr[n * s.head_dim + i] * past["kr"][at(i)])
                            .sum();
                        requant(acc, c.score_shift)
                    })
                    .collect();
                let (e, sum) = weights(&scores, &header.exp_table);
                for i in 0..s.head_dim {
                    let acc = e.iter().zip(&before).map(|(e, p)| e * p["v"][at(i)]).sum();
                    out.push(divide(acc, sum));
                }
            }
            let delta = product(&out, WeightId::Wo, l, c.output_shift);
            let xm: Vec<i64> = x.iter().zip(delta).map(|(x, d)| x + d).collect();
            let y = norm(&xm, hidden_norm);
            let rl = product(&y, WeightId::Wr, l, c.router_shift);
            let scores: Vec<i64> = rl
                .iter()
                .map(|&r| requant(r, c.router_score_shift))
                .collect();
            let (e, sum) = weights(&scores, &header.exp_table);
            let gate: Vec<i64> = e.iter().map(|e| divide(e << 14, sum)).collect();
            // An expert is selected when fewer than k others come before it.
            let before = |a: usize, b: usize| rl[a] > rl[b] || rl[a] == rl[b] && a < b;
            let sel: Vec<i64> = (0..s.num_experts)
                .map(|b| (0..s.num_experts).filter(|&a| before(a, b)).count())
                .map(|rank| i64::from(rank < s.num_experts_per_tok))
                .collect();
            let mut acc = vec![0; s.hidden_size];
            for n in (0..s.num_experts).filter(|&n| sel[n] == 1) {
                let outer = l * s.num_experts + n;
                let eg = product(&y, WeightId::Wg, outer, c.gate_shift);
                let eu = product(&y, WeightId::Wu, outer, c.up_shift);
                let eh: Vec<i64> = eg
                    .iter()
                    .zip(&eu)
                    .map(|(g, u)| {
                        let a = i64::from(header.silu_table[(g + 32768) as usize]);
                        requant(a * u, c.product_shift)
                    })
                    .collect();
                let ey = product(&eh, WeightId::Wd, outer, c.down_shift);
                for (acc, ey) in acc.iter_mut().zip(ey) {
                    *acc += gate[n] * ey;
                }
            }
            x = xm
                .iter()
                .zip(acc)
                .map(|(x, acc)| x + requant(acc, 14))
                .collect();
            values.extend([
                ("q", q),
                ("k", k),
                ("qr", qr),
                ("out", out),
                ("xm", xm),
                ("y2", y),
                ("rl", rl),
                ("gate", gate),
                ("sel", sel),
                ("next", x.clone()),
            ]);
            layers.push(values);
        }
        all.push(layers);
        let y = norm(&x, hidden_norm);
        logits.push(product(&y, WeightId::Wh, 0, c.head_shift));
    }
    (all, logits)
}
