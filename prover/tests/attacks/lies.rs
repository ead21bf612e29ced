//! Consistent lies: one false step, and everything after it computed again from there, so that the step itself is all
//! that a check can catch.

use ark_ff::Field;
use zkmoe_commit::field::from_i64;
use zkmoe_prover::model::{Model, Tensor, WeightId};
use zkmoe_prover::prove::Reply;
use zkmoe_verifier::gadgets::argmax::key;
use zkmoe_verifier::gadgets::requant::requant;

use crate::case::{Case, case, demand};
use crate::common::cells::Cells;
use crate::common::recompute::{Step, Token};
use crate::common::{
    Committed, Edit, Malice, Stage, answer, dishonest, edited, micro, micro_sizes, trace_of,
};
use crate::confront::confront;
use crate::scene::{LOADS, Scene, scene};

/// The token of most lies: in a prompt, not decoded.
const TOKEN: (usize, usize) = (1, 2);
/// A token that decodes.
const DECODES: (usize, usize) = (2, 7);

type Lie = Box<dyn Fn(&mut Token<'_, '_, '_>) + Send + Sync>;

fn lie(
    name: &'static str,
    checks: &'static [&'static str],
    tell: impl Fn(&mut Token<'_, '_, '_>) + Send + Sync + 'static,
) -> (&'static str, &'static [&'static str], Lie) {
    (name, checks, Box::new(tell))
}

impl Token<'_, '_, '_> {
    fn add(&mut self, name: &str, rest: &[usize], value: i64) {
        let index = [&self.row()[..], rest].concat();
        self.cells.add(name, 0, &index, from_i64(value));
    }

    fn keys(&self) -> Vec<i64> {
        let rl = self.cells.slice("rl", &self.row());
        let key = |(e, &rl)| key(rl, e, rl_len(self));
        rl.iter().enumerate().map(key).collect()
    }

    /// Experts by falling key.
    fn ranked(&self) -> Vec<usize> {
        let keys = self.keys();
        let mut experts: Vec<usize> = (0..keys.len()).collect();
        experts.sort_by_key(|&e| -keys[e]);
        experts
    }

    /// Chooses other experts, with a threshold at the key of one.
    fn choose(&mut self, experts: &[usize], threshold: usize) {
        let (row, theta) = (self.row(), self.keys()[threshold]);
        let sel: Vec<i64> = (0..rl_len(self))
            .map(|e| i64::from(experts.contains(&e)))
            .collect();
        self.cells.set_slice("sel", &row, &sel);
        self.cells.set("theta", &row, theta);
        self.from(Step::Dispatch);
    }

    /// The first row that serves the token.
    fn served(&self) -> (usize, usize) {
        self.cells.rows(self.layer(), self.id())[0]
    }

    /// Another normalisation of the sum of squares: `u` and `r` as they are given.
    fn normalise(&mut self, z: u32, change: i64) {
        let row = self.row();
        let (factor, epsilon, _) = self.model.header().scales.norms()[0];
        let xm = self.cells.slice("xm", &row);
        let squares: i64 = xm.iter().map(|x| x * x).sum();
        let ss = factor as i64 * squares + epsilon as i64;
        let u = (ss >> (2 * z)) + change;
        let m = ((1u64 << 50) / u as u64).isqrt() as i64;
        for (name, value) in [
            ("n2.z", i64::from(z)),
            ("n2.w4", 1 << (2 * z)),
            ("n2.w2", 1 << (20 - z)),
            ("n2.u", u),
            ("n2.r", ss - (u << (2 * z))),
            ("n2.m", m),
            ("n2.f", m << (20 - z)),
        ] {
            self.cells.set(name, &row, value);
        }
        self.from(Step::NormOutput);
    }

    fn exponent(&self) -> u32 {
        self.cells.get("n2.z", &self.row()) as u32
    }

    /// The inverse root of the second norm, off by some units.
    fn root(&mut self, change: i64) {
        let row = self.row();
        let m = self.cells.get("n2.m", &row) + change;
        let w2 = self.cells.get("n2.w2", &row);
        self.cells.set("n2.m", &row, m);
        self.cells.set("n2.f", &row, m * w2);
        self.from(Step::NormOutput);
    }

    /// The router's weights with all distances to the maximum, and the maximum, larger by one.
    fn raise_maximum(&mut self) {
        let row = self.row();
        let table = self.model.header().exp_table.clone();
        let idx: Vec<i64> = self
            .cells
            .slice("rt.idx", &row)
            .iter()
            .map(|i| i + 1)
            .collect();
        let e: Vec<u16> = idx.iter().map(|&i| table[i as usize]).collect();
        self.cells.set_slice("rt.idx", &row, &idx);
        self.cells.set_slice("rt.e", &row, &e);
        self.cells
            .set("rt.sum", &row, e.iter().map(|&e| i64::from(e)).sum());
        self.add("rt.max", &[], 1);
    }

    /// One value of the first served row, off by one, and what follows from it in the expert.
    fn expert_value(&mut self, name: &str) {
        let (a, n) = self.served();
        let header = self.model.header();
        let scales = header.scales.clone();
        let table = header.silu_table.clone();
        let (layer, expert, _) = self.cells.dims.batch().blocks[a];
        let outer = layer * header.sizes.num_experts + expert;
        let add = |cells: &mut Cells<'_>, name: &str| cells.add(name, 0, &[a, n, 0], from_i64(1));
        add(self.cells, name);
        let read = |cells: &Cells<'_>, name: &str| cells.slice(name, &[a, n]);
        if name == "eg" {
            let ea: Vec<i16> = read(self.cells, "eg")
                .iter()
                .map(|&g| table[(g + (1 << 15)) as usize])
                .collect();
            self.cells.set_slice("ea", &[a, n], &ea);
        }
        if ["eg", "ea", "eu"].contains(&name) {
            let eh: Vec<i64> = read(self.cells, "ea")
                .iter()
                .zip(read(self.cells, "eu"))
                .map(|(a, u)| requant(a * u, scales.product_shift))
                .collect();
            self.cells.set_slice("eh", &[a, n], &eh);
        }
        if name != "ey" {
            let eh = read(self.cells, "eh");
            let ey: Vec<i64> = (0..header.sizes.hidden_size)
                .map(|o| {
                    let product =
                        |(i, x): (usize, &i64)| x * self.model.committed(WeightId::Wd, outer, i, o);
                    requant(eh.iter().enumerate().map(product).sum(), scales.down_shift)
                })
                .collect();
            self.cells.set_slice("ey", &[a, n], &ey);
        }
        self.from(Step::Combine);
    }
}

fn rl_len(token: &Token<'_, '_, '_>) -> usize {
    token.model.sizes().num_experts
}

fn lies_about_attention() -> Vec<(&'static str, &'static [&'static str], Lie)> {
    vec![
        lie(
            "a token sees the next one",
            &["att: no weight on later", "att: no maximum at later"],
            |t| {
                t.attention(t.position + 2);
                t.from(Step::Mix);
            },
        ),
        lie(
            "a token does not see itself",
            &["att: exponential", "att: score"],
            |t| {
                t.attention(t.position);
                t.from(Step::Mix);
            },
        ),
        lie(
            "a query is rotated as at the next position",
            &["qr: half 0", "qr: half 1"],
            |t| {
                let [r, l, s] = t.row();
                let header = t.model.header();
                let (planes, shift) = (header.sizes.head_dim / 2, header.scales.rope_shift);
                let (cos, sin) = (&header.cos_table, &header.sin_table);
                let heads = header.sizes.num_key_value_heads * header.sizes.query_group;
                let y = t.cells.slice("qn.y", &[r, l, s]);
                let gain = |n: usize| t.model.committed(WeightId::Gq, l, 0, n);
                let mut qr = vec![0; y.len()];
                for head in 0..heads {
                    for j in 0..planes {
                        let (low, high) = (head * 2 * planes + j, (head * 2 + 1) * planes + j);
                        let at = (s + 1) * planes + j;
                        let (c, d) = (i64::from(cos[at]), i64::from(sin[at]));
                        let (p, q) = (y[low] * gain(low), y[high] * gain(high));
                        qr[low] = requant(p * c - q * d, shift);
                        qr[high] = requant(q * c + p * d, shift);
                    }
                }
                t.cells.set_slice("qr", &[r, l, s], &qr);
                t.from(Step::Attention);
            },
        ),
        lie(
            "an attention output is off by one",
            &["att.out: rest"],
            |t| {
                t.add("att.out", &[0, 1, 0, 1], 1);
                t.from(Step::Residual);
            },
        ),
        lie("a residual is off by one", &["xm: remainder"], |t| {
            t.add("xm", &[3], -1);
            t.from(Step::Norm);
        }),
    ]
}

fn lies_about_norms() -> Vec<(&'static str, &'static [&'static str], Lie)> {
    vec![
        lie(
            "an inverse root is too small",
            &["n2: m is not too small"],
            |t| t.root(-1),
        ),
        lie(
            "an inverse root is too large",
            &["n2: m is not too large"],
            |t| t.root(1),
        ),
        lie(
            "a mantissa is normalised too far",
            &["n2: u from below", "n2: m"],
            |t| {
                t.normalise(t.exponent() + 1, 0);
            },
        ),
        lie(
            "a mantissa is not normalised",
            &["n2: u from above", "n2: u from below", "n2: m"],
            |t| {
                t.normalise(t.exponent() - 1, 0);
            },
        ),
        lie("a mantissa is rounded up", &["n2: r from below"], |t| {
            t.normalise(t.exponent(), 1);
        }),
        lie(
            "a mantissa is rounded down twice",
            &["n2: r from above"],
            |t| {
                t.normalise(t.exponent(), -1);
            },
        ),
        lie(
            "a norm's output is off by one",
            &["n2: output: remainder"],
            |t| {
                t.add("n2.y", &[5], 1);
                t.from(Step::Logits);
            },
        ),
    ]
}

fn lies_about_the_router() -> Vec<(&'static str, &'static [&'static str], Lie)> {
    vec![
        lie(
            "an expert that was not chosen",
            &["router: chosen before the rest"],
            |t| {
                let ranked = t.ranked();
                t.choose(&[ranked[0], ranked[2]], ranked[1]);
            },
        ),
        lie(
            "the same with a lower threshold",
            &["router: chosen before the rest"],
            |t| {
                let ranked = t.ranked();
                t.choose(&[ranked[0], ranked[2]], ranked[2]);
            },
        ),
        lie("one expert too few", &["router: number of experts"], |t| {
            let ranked = t.ranked();
            t.choose(&[ranked[0]], ranked[0]);
        }),
        lie("one expert too many", &["router: number of experts"], |t| {
            let ranked = t.ranked();
            t.choose(&[ranked[0], ranked[1], ranked[2]], ranked[2]);
        }),
        lie("one expert twice", &["sel is boolean"], |t| {
            let ranked = t.ranked();
            t.choose(&[ranked[0]], ranked[0]);
            let (a, _) = t.served();
            let n = t.cells.free_row(a).unwrap();
            let (row, id) = (t.row(), t.id());
            let x = t.cells.slice("n2.y", &row);
            let gate = t.cells.slice("gate", &row)[ranked[0]];
            t.serve(a, n, Some((id, gate)), &x);
            t.add("sel", &[ranked[0]], 1);
            t.from(Step::Combine);
        }),
        lie("a router logit is off by one", &["rl: remainder"], |t| {
            t.add("rl", &[2], 1);
            t.from(Step::Choice);
        }),
        lie(
            "all router logits are off by a fraction",
            &["rl: output", "rl: remainder", "rt: score"],
            |t| {
                let half = from_i64(2).inverse().unwrap();
                let (row, experts) = (t.row(), rl_len(t));
                for e in 0..experts {
                    t.cells.add("rl", 0, &[&row[..], &[e]].concat(), half);
                }
                t.cells
                    .add("theta", 0, &row, half * from_i64(experts as i64));
            },
        ),
        lie(
            "a maximum that is too large by one",
            &["rt: the maximum is attained"],
            |t| {
                t.raise_maximum();
                t.from(Step::Gate);
            },
        ),
        lie(
            "a maximum that nothing attains",
            &["rt: one maximum is marked"],
            |t| {
                t.raise_maximum();
                let (row, experts) = (t.row(), rl_len(t));
                t.cells.set_slice("rt.z", &row, &vec![0; experts]);
                t.from(Step::Gate);
            },
        ),
        lie(
            "a distance that is cut before the table's end",
            &["rt: excess only past"],
            |t| {
                let last = *t.ranked().last().unwrap();
                let row = [&t.row()[..], &[last]].concat();
                let idx = t.cells.get("rt.idx", &row) - 1;
                let e = i64::from(t.model.header().exp_table[idx as usize]);
                t.add("rt.sum", &[], e - t.cells.get("rt.e", &row));
                t.cells.set("rt.idx", &row, idx);
                t.cells.set("rt.ex", &row, 1);
                t.cells.set("rt.e", &row, e);
                t.from(Step::Gate);
            },
        ),
        lie(
            "an exponential of the next entry",
            &["rt: exponential"],
            |t| {
                let second = t.ranked()[1];
                t.add("rt.e", &[second], 1);
                t.add("rt.sum", &[], 1);
                t.from(Step::Gate);
            },
        ),
        lie("a sum of exponentials off by one", &["rt: sum"], |t| {
            t.add("rt.sum", &[], 1);
            t.from(Step::Gate);
        }),
        lie("a gate off by one", &["gate: rest"], |t| {
            let first = t.ranked()[0];
            t.add("gate", &[first], -1);
            t.from(Step::Dispatch);
        }),
        lie("a gate off by one for a row alone", &["Dispatch"], |t| {
            let (a, n) = t.served();
            t.cells.add("row.gate", 0, &[a, n], from_i64(1));
            t.from(Step::Combine);
        }),
    ]
}

fn lies_about_rows() -> Vec<(&'static str, &'static [&'static str], Lie)> {
    vec![
        lie("a row is dispatched twice", &["Dispatch"], |t| {
            let (a, n) = t.served();
            let (gate, x) = (
                t.cells.get("row.gate", &[a, n]),
                t.cells.slice("row.x", &[a, n]),
            );
            let (id, free) = (t.id(), t.cells.free_row(a).unwrap());
            t.serve(a, free, Some((id, gate)), &x);
            t.from(Step::Combine);
        }),
        lie("a row is split in two", &["Dispatch"], |t| {
            let (a, n) = t.served();
            let (gate, x) = (
                t.cells.get("row.gate", &[a, n]),
                t.cells.slice("row.x", &[a, n]),
            );
            let (id, free) = (t.id(), t.cells.free_row(a).unwrap());
            t.serve(a, n, Some((id, gate / 2)), &x);
            t.serve(a, free, Some((id, gate - gate / 2)), &x);
            t.from(Step::Combine);
        }),
        lie("a row is dropped", &["Dispatch"], |t| {
            let (a, n) = t.served();
            let x = t.cells.slice("row.x", &[a, n]);
            t.serve(a, n, None, &x);
            t.from(Step::Combine);
        }),
        lie(
            "a padding row adds to the token",
            &["row.gate: no gate on padding"],
            |t| {
                let (a, n) = t.served();
                let (gate, x) = (
                    t.cells.get("row.gate", &[a, n]),
                    t.cells.slice("row.x", &[a, n]),
                );
                let (id, free) = (t.id(), t.cells.free_row(a).unwrap());
                t.serve(a, free, Some((id, gate)), &x);
                t.cells.set("row.real", &[a, free], 0);
                t.from(Step::Combine);
            },
        ),
        lie("a row is given to another request", &["Dispatch"], |t| {
            let (a, n) = t.served();
            let (request, position) = (0, 1);
            let id = t.cells.token_id(request, position);
            t.cells.set("row.tok", &[a, n], id);
            t.from(Step::Combine);
            let (mine, place) = (t.request, t.position);
            (t.request, t.position) = (request, position);
            t.step(Step::Combine);
            (t.request, t.position) = (mine, place);
        }),
        lie("a row is moved to another expert", &["Dispatch"], |t| {
            let (a, n) = t.served();
            let (gate, x) = (
                t.cells.get("row.gate", &[a, n]),
                t.cells.slice("row.x", &[a, n]),
            );
            let layer = t.layer();
            let used: Vec<usize> = t.cells.rows(layer, t.id()).iter().map(|r| r.0).collect();
            let blocks = t.cells.dims.batch().blocks.iter().enumerate();
            let other = blocks
                .filter(|(b, block)| block.0 == layer && !used.contains(b))
                .map(|(b, _)| b)
                .next()
                .unwrap();
            let (id, free) = (t.id(), t.cells.free_row(other).unwrap());
            t.serve(a, n, None, &x);
            t.serve(other, free, Some((id, gate)), &x);
            t.from(Step::Combine);
        }),
        lie("a row of another layer's block", &["Dispatch"], |t| {
            let (a, n) = t.served();
            let x = t.cells.slice("row.x", &[a, n]);
            let (id, free) = (t.id(), t.cells.free_row(0).unwrap());
            t.serve(a, n, None, &x);
            // With the gate zero, so that the sum of that layer stays what it was.
            t.serve(0, free, Some((id, 0)), &x);
            t.from(Step::Combine);
        }),
        lie("a row holds another token's vector", &["Dispatch"], |t| {
            let (a, n) = t.served();
            let x = t.cells.slice("n2.y", &[0, t.layer(), 0]);
            t.cells.set_slice("row.x", &[a, n], &x);
            t.expert(a, n);
            t.from(Step::Combine);
        }),
        lie("a gate projection is off by one", &["eg: remainder"], |t| {
            t.expert_value("eg");
        }),
        lie("an activation is off by one", &["ea: activation"], |t| {
            t.expert_value("ea");
        }),
        lie("an up projection is off by one", &["eu: remainder"], |t| {
            t.expert_value("eu");
        }),
        lie("a gated value is off by one", &["eh: remainder"], |t| {
            t.expert_value("eh");
        }),
        lie(
            "an expert's output is off by one",
            &["ey: remainder"],
            |t| t.expert_value("ey"),
        ),
        lie("an expert's output is made up", &["ey: remainder"], |t| {
            let (a, n) = t.served();
            let width = t.model.sizes().hidden_size as i64;
            let ey: Vec<i64> = (0..width).map(|i| 1000 * i - 3).collect();
            t.cells.set_slice("ey", &[a, n], &ey);
            t.from(Step::Combine);
        }),
        lie(
            "a combined sum is rounded the other way",
            &["combine: remainder"],
            |t| {
                let [r, l, s] = t.row();
                t.cells.add("x", 0, &[r, l + 1, s, 4], from_i64(1));
                t.add("comb.rem", &[4], -(1 << 14));
            },
        ),
    ]
}

fn lies_about_decoding() -> Vec<(&'static str, &'static [&'static str], Lie)> {
    let row = |t: &Token<'_, '_, '_>| t.cells.decoded_row(t.id()).unwrap();
    let padding = |t: &Token<'_, '_, '_>| t.cells.dims.batch().decoded - 1;
    vec![
        lie("a decoded position is left out", &["Gather"], move |t| {
            let m = row(t);
            t.cells.set("dr.real", &[m], 0);
        }),
        lie(
            "a decoded position is gathered twice",
            &["Gather"],
            move |t| {
                let (m, free, id) = (row(t), padding(t), t.id());
                assert_eq!(t.cells.get("dr.real", &[free]), 0);
                for name in ["dr.x", "nf.y", "lg", "lg.z"] {
                    let values = t.cells.slice(name, &[m]);
                    t.cells.set_slice(name, &[free], &values);
                }
                for name in ["z", "w4", "w2", "u", "r", "m", "f"].map(|n| format!("nf.{n}")) {
                    let value = t.cells.get(&name, &[m]);
                    t.cells.set(&name, &[free], value);
                }
                for name in ["am", "mk"] {
                    let value = t.cells.get(name, &[m]);
                    t.cells.set(name, &[free], value);
                }
                t.cells.set("dr.id", &[free], id);
                t.cells.set("dr.real", &[free], 1);
            },
        ),
        lie(
            "a decoded row belongs to another position",
            &["Gather"],
            move |t| {
                let (m, other) = (row(t), t.cells.token_id(0, 0));
                t.cells.set("dr.id", &[m], other);
            },
        ),
        lie(
            "another position is decoded in place of this",
            &["Gather"],
            move |t| {
                let m = row(t);
                let (request, position) = (t.request, t.position);
                let last = t.layer() + 1;
                let own = t.cells.slice("x", &[request, last, position]);
                let other = t.cells.slice("x", &[request, last, position - 3]);
                t.cells.set_slice("x", &[request, last, position], &other);
                t.from(Step::FinalNorm);
                t.cells.set_slice("x", &[request, last, position], &own);
                assert_eq!(t.cells.slice("dr.x", &[m]), other);
            },
        ),
        lie(
            "the last inverse root is too small",
            &["nf: m is not too small"],
            move |t| {
                let m = row(t);
                let root = t.cells.get("nf.m", &[m]) - 1;
                let f = root * t.cells.get("nf.w2", &[m]);
                t.cells.set("nf.m", &[m], root);
                t.cells.set("nf.f", &[m], f);
                let shift = t.model.header().scales.norm_shift;
                let output = |x: &i64| requant(x * f, shift);
                let y: Vec<i64> = t.cells.slice("dr.x", &[m]).iter().map(output).collect();
                t.cells.set_slice("nf.y", &[m], &y);
                t.from(Step::Head);
            },
        ),
        lie("a logit is off by one", &["lg: remainder"], move |t| {
            let m = row(t);
            let best = t.cells.get("am", &[m]) as usize;
            t.cells.add("lg", 0, &[m, best], from_i64(1));
            t.from(Step::Argmax);
        }),
        lie(
            "all logits are off by a fraction",
            &["lg: output", "lg: remainder"],
            move |t| {
                let half = from_i64(2).inverse().unwrap();
                let (m, vocab) = (row(t), t.model.sizes().vocab_size);
                for v in 0..vocab {
                    t.cells.add("lg", 0, &[m, v], half);
                }
                t.cells.add("mk", 0, &[m], half * from_i64(vocab as i64));
            },
        ),
        lie(
            "a maximum of the keys that is too large",
            &["argmax: the maximum is attained"],
            move |t| {
                let m = row(t);
                t.cells.add("mk", 0, &[m], from_i64(1));
            },
        ),
        lie(
            "two tokens are marked",
            &["argmax: one maximum is marked", "argmax:"],
            move |t| {
                let m = row(t);
                let other = usize::from(t.cells.get("am", &[m]) == 0);
                t.cells.set("lg.z", &[m, other], 1);
            },
        ),
    ]
}

/// Tells a lie in all ways; it must violate what it was said to violate, and nothing else.
fn expose(scene: &Scene, checks: &[&str], edit: &Edit<'_>) -> Result<(), String> {
    let violations = confront(scene, Stage::Trace, edit)?;
    let first = violations.iter().any(|v| v.name().starts_with(checks[0]));
    let only = violations
        .iter()
        .all(|v| checks.iter().any(|check| v.name().starts_with(check)));
    demand(first && only, || {
        format!("{violations:?}, expected {checks:?}")
    })
}

/// What the lies are computed with agrees with the trace wherever nobody lies.
fn an_honest_token_is_computed_as_in_the_trace() -> Result<(), String> {
    let scene = scene();
    let mut witness = scene.witness.clone();
    let model = &scene.by.model;
    for (request, &length) in scene.dims.batch().lengths.iter().enumerate() {
        for position in 0..length {
            let cells = &mut Cells {
                relation: &scene.relation,
                dims: &scene.dims,
                witness: &mut witness,
            };
            let mut token = Token {
                model,
                cells,
                request,
                position,
            };
            token.from(Step::Attention);
            demand(witness.tensors == scene.witness.tensors, || {
                format!("token {position} of request {request} differs")
            })?;
        }
    }
    let mut hook = Malice::new(Stage::Trace, &|_| ());
    dishonest(&scene.by, &scene.replies, &scene.trace, &mut hook);
    let violations = hook.violations(model);
    demand(violations.is_empty(), || format!("{violations:?}"))
}

/// One case for each lie.
pub fn cases() -> Vec<Case> {
    let mut cases = vec![case(
        "control",
        "an honest token is computed as in the trace",
        an_honest_token_is_computed_as_in_the_trace,
    )];
    for (kind, (request, position), lies) in [
        ("attention", TOKEN, lies_about_attention()),
        ("norm", TOKEN, lies_about_norms()),
        ("router", TOKEN, lies_about_the_router()),
        ("expert rows", TOKEN, lies_about_rows()),
        ("decoding", DECODES, lies_about_decoding()),
    ] {
        for (name, checks, tell) in lies {
            cases.push(case(kind, name, move || {
                let scene = scene();
                expose(scene, checks, &|cells| {
                    tell(&mut Token {
                        model: &scene.by.model,
                        cells,
                        request,
                        position,
                    });
                })
            }));
        }
    }
    cases.extend(cases_of_decoding());
    cases
}

/// Sets a column of the head, or of the router of one layer, to another one, or to zero.
fn set_column(
    part: &mut Tensor,
    (inn, out): (usize, usize),
    outer: usize,
    to: usize,
    from: Option<usize>,
) {
    for i in 0..inn {
        let row = (outer * inn + i) * out;
        part.values[row + to] = from.map_or(0, |from| part.values[row + from]);
    }
    if let Some(from) = from {
        part.multipliers[outer * out + to] = part.multipliers[outer * out + from];
    }
}

fn with_column(model: &Model, id: WeightId, outer: usize, to: usize, from: Option<usize>) -> Model {
    let shape = model.shape(id);
    edited(model, |parts| {
        set_column(
            &mut parts[id.index()],
            (shape.inn, shape.out),
            outer,
            to,
            from,
        );
    })
}

/// The telling of a lie about a decoded row, given the honest token and the lie.
type Variant = (
    &'static str,
    &'static [&'static str],
    fn(&mut Token<'_, '_, '_>, usize, usize),
);

/// The ways in which the last step is told.
const VARIANTS: [Variant; 4] = [
    (
        "the token is not what the row gives",
        &["Gather"],
        |_, _, _| (),
    ),
    (
        "its key is the maximum",
        &["argmax: no key above the maximum"],
        |t, _, lie| t.decode_as(0, lie),
    ),
    (
        "it is marked",
        &["argmax: the maximum is attained"],
        |t, honest, lie| {
            t.decode_as(0, honest);
            t.cells.set("lg.z", &[0, honest], 0);
            t.cells.set("lg.z", &[0, lie], 1);
            t.cells.set("am", &[0], lie as i64);
        },
    ),
    ("it is named", &["argmax: token"], |t, _, lie| {
        t.cells.set("am", &[0], lie as i64);
    }),
];

/// A reply of a model whose head cannot say what the true model would: the trace is true up to the logits, which are
/// those of the true model again, and the last step is told in one way.
fn pass_off(
    model: Model,
    liar: &Model,
    prompt: &[u32],
    (_, checks, tell): Variant,
) -> Result<(), String> {
    let honest = answer(&model, prompt, 1).response[0];
    let reply = answer(liar, prompt, 1);
    let lie = reply.response[0];
    demand(lie != honest, || "both models say the same".into())?;
    let trace = trace_of(liar, std::slice::from_ref(&reply), LOADS);
    let scene = Scene::of(Committed::quick(model), vec![reply], trace);
    expose(&scene, checks, &|cells| {
        let position = scene.replies[0].prompt.len() - 1;
        let mut token = Token {
            model: &scene.by.model,
            cells,
            request: 0,
            position,
        };
        token.from(Step::Head);
        tell(&mut token, honest as usize, lie as usize);
    })
}

fn second_best(variant: Variant) -> Result<(), String> {
    let prompt = [3, 5, 7];
    let best = answer(&micro(), &prompt, 1).response[0] as usize;
    let liar = with_column(&micro(), WeightId::Wh, 0, best, None);
    pass_off(micro(), &liar, &prompt, variant)
}

fn higher_of_equals(variant: Variant) -> Result<(), String> {
    let prompt = [1, 2, 3, 4, 5];
    let best = answer(&micro(), &prompt, 1).response[0] as usize;
    let twin = best + 1;
    let tied = with_column(&micro(), WeightId::Wh, 0, twin, Some(best));
    let liar = with_column(&tied, WeightId::Wh, 0, best, None);
    let says = |model: &Model, token: usize| {
        let said = answer(model, &prompt, 1).response;
        demand(said == [token as u32], || format!("{said:?}, not {token}"))
    };
    says(&tied, best)?;
    says(&liar, twin)?;
    pass_off(tied, &liar, &prompt, variant)
}

fn cases_of_decoding() -> Vec<Case> {
    let mut cases = Vec::new();
    for variant in VARIANTS {
        let place = |what: &str| format!("{what}: {}", variant.0);
        cases.push(case(
            "decoding",
            place("the second best token"),
            move || second_best(variant),
        ));
        cases.push(case(
            "decoding",
            place("of equal logits the higher token"),
            move || higher_of_equals(variant),
        ));
    }
    for lower in [false, true] {
        let theta = if lower { "its own" } else { "the other's" };
        cases.push(case(
            "router",
            format!("of equal experts the higher one, threshold at {theta} key"),
            move || of_equal_experts_the_higher_one(lower),
        ));
    }
    cases.push(case(
        "statement",
        "the reply to another prompt under the one that was asked",
        the_embedding_of_another_token,
    ));
    cases
}

fn of_equal_experts_the_higher_one(lower: bool) -> Result<(), String> {
    let layer = micro_sizes().num_hidden_layers - 1;
    let mut pairs = (0..5).flat_map(|a| (a + 1..5).map(move |b| (a, b)));
    let (scene, position) = pairs
        .find_map(|(a, b)| {
            let model = with_column(&micro(), WeightId::Wr, layer, b, Some(a));
            let scene = Scene::new(
                model,
                &[(&[3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27], 2)],
            );
            let mut witness = scene.witness.clone();
            let cells = Cells {
                relation: &scene.relation,
                dims: &scene.dims,
                witness: &mut witness,
            };
            // Not the last of the prompt, which decodes.
            let tie = |&s: &usize| {
                let sel = cells.slice("sel", &[0, layer, s]);
                sel[a] == 1 && sel[b] == 0
            };
            // The higher one serves some token, beside the lower one, and has rows to spare.
            let blocks = &scene.dims.batch().blocks;
            blocks
                .iter()
                .find(|block| (block.0, block.1) == (layer, b))?;
            (0..12).find(tie).map(|s| (scene, s))
        })
        .unwrap();
    expose(&scene, &["router: chosen before the rest"], &|cells| {
        let mut token = Token {
            model: &scene.by.model,
            cells,
            request: 0,
            position,
        };
        let ranked = token.ranked();
        assert_eq!(
            token.cells.get("rl", &[0, layer, position, ranked[1]]),
            token.cells.get("rl", &[0, layer, position, ranked[2]])
        );
        token.choose(&[ranked[0], ranked[2]], ranked[1 + usize::from(lower)]);
    })
}

/// The reply to another prompt, all of it consistent, under the prompt that was asked.
fn the_embedding_of_another_token() -> Result<(), String> {
    let other = answer(&micro(), &[3, 6, 7], 2);
    let claimed = Reply {
        prompt: vec![3, 5, 7],
        ..other.clone()
    };
    let trace = trace_of(&micro(), &[other], LOADS);
    let scene = Scene::of(Committed::quick(micro()), vec![claimed], trace);
    expose(&scene, &["embedding: tokens"], &|cells| {
        cells.set("tok", &[0, 1], 5);
    })
}
