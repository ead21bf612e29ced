//! One token's way through the last layer, computed again from any step on: what a liar needs so that everything after
//! the lie follows from it.
//!
//! The last layer, because nothing else reads what a token computes there: a change stays with the token.

use zkmoe_prover::model::{Model, WeightId};
use zkmoe_verifier::gadgets::{
    activation::{gated, silu},
    argmax::{argmax, key},
    divide::divide,
    requant::requant,
    rms_norm::{NormParams, rms_norm},
    router::top_k,
    softmax::{Softmax, softmax},
};
use zkmoe_verifier::header::Scales;

use super::cells::Cells;

/// The steps, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Scores and attention weights.
    Attention,
    /// Weighted values.
    Mix,
    /// Output projection.
    Residual,
    /// Second norm.
    Norm,
    /// The norm's output, given its factor.
    NormOutput,
    /// Router.
    Logits,
    /// The choice of experts.
    Choice,
    /// The router's exponentials.
    Softmax,
    /// Gate weights.
    Gate,
    /// Rows of the chosen experts.
    Dispatch,
    /// Output of the rows.
    Experts,
    /// The sum over experts.
    Combine,
    /// Norm of a decoded row.
    FinalNorm,
    /// Logits.
    Head,
    /// The next token.
    Argmax,
}

const STEPS: [Step; 15] = [
    Step::Attention,
    Step::Mix,
    Step::Residual,
    Step::Norm,
    Step::NormOutput,
    Step::Logits,
    Step::Choice,
    Step::Softmax,
    Step::Gate,
    Step::Dispatch,
    Step::Experts,
    Step::Combine,
    Step::FinalNorm,
    Step::Head,
    Step::Argmax,
];

/// A token in the last layer of a witness.
pub struct Token<'a, 'b, 'c> {
    /// The weights.
    pub model: &'a Model,
    /// The witness.
    pub cells: &'b mut Cells<'c>,
    /// Its request.
    pub request: usize,
    /// Its position.
    pub position: usize,
}

impl Token<'_, '_, '_> {
    /// The last layer.
    pub fn layer(&self) -> usize {
        self.model.sizes().num_hidden_layers - 1
    }

    /// Request, layer and position: the leading indices of most tensors.
    pub fn row(&self) -> [usize; 3] {
        [self.request, self.layer(), self.position]
    }

    /// The token's id.
    pub fn id(&self) -> i64 {
        self.cells.token_id(self.request, self.position)
    }

    fn scales(&self) -> Scales {
        self.model.header().scales.clone()
    }

    fn indexed(&self, name: &str, rest: &[usize]) -> Vec<i64> {
        self.cells.slice(name, &[&self.row()[..], rest].concat())
    }

    /// Computes a step and all that come after it.
    pub fn from(&mut self, first: Step) {
        for step in STEPS.into_iter().filter(|&s| s >= first) {
            self.step(step);
        }
    }

    /// Computes one step.
    pub fn step(&mut self, step: Step) {
        let scales = self.scales();
        let row = self.row();
        let [r, l, s] = row;
        match step {
            Step::Attention => self.attention(s + 1),
            Step::Mix => self.mix(),
            Step::Residual => {
                let out = self.indexed("att.out", &[]);
                let product = self.product(WeightId::Wo, l, &out, scales.output_shift);
                let x = self.cells.slice("x", &row);
                let xm: Vec<i64> = x.iter().zip(product).map(|(x, p)| x + p).collect();
                self.cells.set_slice("xm", &row, &xm);
            }
            Step::Norm => {
                let params = NormParams::from(scales.norms()[0]);
                let xm = self.indexed("xm", &[]);
                self.norm("n2", &row, &xm, params);
            }
            Step::NormOutput => {
                let (xm, f) = (self.indexed("xm", &[]), self.cells.get("n2.f", &row));
                let output = |x: &i64| requant(x * f, scales.norm_shift);
                let y: Vec<i64> = xm.iter().map(output).collect();
                self.cells.set_slice("n2.y", &row, &y);
            }
            Step::Logits => {
                let y = self.indexed("n2.y", &[]);
                let rl = self.product(WeightId::Wr, l, &y, scales.router_shift);
                self.cells.set_slice("rl", &row, &rl);
            }
            Step::Choice => {
                let rl = self.indexed("rl", &[]);
                let chosen = top_k(&rl, self.model.sizes().num_experts_per_tok);
                let sel: Vec<i64> = (0..rl.len())
                    .map(|e| i64::from(chosen.selected.contains(&e)))
                    .collect();
                self.cells.set_slice("sel", &row, &sel);
                self.cells.set("theta", &row, chosen.theta);
            }
            Step::Softmax => {
                let rl = self.indexed("rl", &[]);
                let score = |x: &i64| requant(*x, scales.router_score_shift);
                let scores: Vec<i64> = rl.iter().map(score).collect();
                let weights = softmax(&scores, &self.model.header().exp_table).unwrap();
                self.cells.set("rt.max", &row, weights.max);
                self.cells.set("rt.sum", &row, weights.sum);
                self.weights("rt", &row, &weights, scores.len());
            }
            Step::Gate => {
                let sum = self.cells.get("rt.sum", &row);
                let e = self.indexed("rt.e", &[]);
                let gate: Vec<i64> = e.iter().map(|e| divide(e << 14, sum)).collect();
                self.cells.set_slice("gate", &row, &gate);
            }
            Step::Dispatch => self.dispatch(),
            Step::Experts => {
                for (a, n) in self.cells.rows(l, self.id()) {
                    self.expert(a, n);
                }
            }
            Step::Combine => self.combine(),
            Step::FinalNorm | Step::Head | Step::Argmax => {
                let Some(m) = self.cells.decoded_row(self.id()) else {
                    return;
                };
                if step == Step::FinalNorm {
                    let x = self.cells.slice("x", &[r, l + 1, s]);
                    self.cells.set_slice("dr.x", &[m], &x);
                    self.norm("nf", &[m], &x, NormParams::from(scales.norms()[0]));
                } else if step == Step::Head {
                    let y = self.cells.slice("nf.y", &[m]);
                    let lg = self.product(WeightId::Wh, 0, &y, scales.head_shift);
                    self.cells.set_slice("lg", &[m], &lg);
                } else {
                    let best = argmax(&self.cells.slice("lg", &[m])).index;
                    self.decode_as(m, best);
                }
            }
        }
    }

    /// Marks a token as the one that a decoded row gives, with its own key as the maximum.
    pub fn decode_as(&mut self, m: usize, token: usize) {
        let lg = self.cells.slice("lg", &[m]);
        let z: Vec<i64> = (0..lg.len()).map(|v| i64::from(v == token)).collect();
        self.cells.set("am", &[m], token as i64);
        self.cells.set("mk", &[m], key(lg[token], token, lg.len()));
        self.cells.set_slice("lg.z", &[m], &z);
    }

    /// Attention over the first `visible` positions of the request.
    pub fn attention(&mut self, visible: usize) {
        let sizes = self.model.sizes().clone();
        let [r, l, s] = self.row();
        let width = self.cells.dims.batch().lengths[r];
        for h in 0..sizes.num_key_value_heads {
            for g in 0..sizes.query_group {
                let query = self.indexed("qr", &[h, g]);
                let scores: Vec<i64> = (0..visible)
                    .map(|u| {
                        let kr = self.cells.slice("kr", &[r, l, u, h]);
                        let dot = query.iter().zip(kr).map(|(q, k)| q * k).sum();
                        requant(dot, self.scales().score_shift)
                    })
                    .collect();
                let weights = softmax(&scores, &self.model.header().exp_table).unwrap();
                let row = [r, l, h, g, s];
                self.cells.set("att.max", &row, weights.max);
                self.cells.set("att.sum", &row, weights.sum);
                self.weights("att", &row, &weights, width);
            }
        }
    }

    fn mix(&mut self) {
        let sizes = self.model.sizes().clone();
        let [r, l, s] = self.row();
        for h in 0..sizes.num_key_value_heads {
            for g in 0..sizes.query_group {
                let e = self.cells.slice("att.e", &[r, l, h, g, s]);
                let sum = self.cells.get("att.sum", &[r, l, h, g, s]);
                let mut num = vec![0; sizes.head_dim];
                for (u, e) in e.iter().enumerate() {
                    let v = self.cells.slice("v", &[r, l, u, h]);
                    num.iter_mut().zip(v).for_each(|(n, v)| *n += e * v);
                }
                let out: Vec<i64> = num.iter().map(|&n| divide(n, sum)).collect();
                self.cells.set_slice("att.out", &[r, l, s, h, g], &out);
            }
        }
    }

    fn weights(&mut self, prefix: &str, row: &[usize], weights: &Softmax, width: usize) {
        for (name, column) in [
            ("idx", &weights.idx),
            ("ex", &weights.ex),
            ("e", &weights.e),
        ] {
            let mut column = column.clone();
            column.resize(width, 0);
            self.cells
                .set_slice(&format!("{prefix}.{name}"), row, &column);
        }
        let z: Vec<i64> = (0..width).map(|u| i64::from(u == weights.z)).collect();
        self.cells.set_slice(&format!("{prefix}.z"), row, &z);
    }

    fn norm(&mut self, prefix: &str, row: &[usize], x: &[i64], params: NormParams) {
        let norm = rms_norm(x, params).unwrap();
        let root = norm.root;
        for (name, value) in [
            ("z", i64::from(root.z)),
            ("w4", root.w4),
            ("w2", root.w2),
            ("u", root.u),
            ("r", root.r),
            ("m", root.m),
            ("f", root.f),
        ] {
            self.cells.set(&format!("{prefix}.{name}"), row, value);
        }
        self.cells.set_slice(&format!("{prefix}.y"), row, &norm.y);
    }

    /// A matrix product with its requantization.
    fn product(&self, id: WeightId, outer: usize, x: &[i64], shift: u32) -> Vec<i64> {
        (0..self.model.shape(id).out)
            .map(|o| {
                let term = |(i, x): (usize, &i64)| x * self.model.committed(id, outer, i, o);
                requant(x.iter().enumerate().map(term).sum(), shift)
            })
            .collect()
    }

    /// Gives the token one row with each expert that `sel` marks, and takes all others away.
    fn dispatch(&mut self) {
        let [_, l, _] = self.row();
        let row = self.row();
        let (y, id) = (self.cells.slice("n2.y", &row), self.id());
        let rows = self.cells.rows(l, id);
        for (a, (layer, expert, _)) in self
            .cells
            .dims
            .batch()
            .blocks
            .clone()
            .into_iter()
            .enumerate()
        {
            if layer != l {
                continue;
            }
            let mut own: Vec<usize> = rows.iter().filter(|r| r.0 == a).map(|r| r.1).collect();
            let selected = self.indexed("sel", &[expert])[0] == 1;
            if selected && own.is_empty() {
                own.push(self.cells.free_row(a).expect("a free row"));
            }
            for n in own {
                let gate = self.indexed("gate", &[expert])[0];
                self.serve(a, n, selected.then_some((id, gate)), &y);
            }
        }
    }

    /// Makes a row serve a token, or nobody.
    pub fn serve(&mut self, a: usize, n: usize, token: Option<(i64, i64)>, x: &[i64]) {
        let (id, gate) = token.unwrap_or((0, 0));
        self.cells.set("row.tok", &[a, n], id);
        self.cells.set("row.gate", &[a, n], gate);
        self.cells
            .set("row.real", &[a, n], i64::from(token.is_some()));
        let x = if token.is_some() {
            x.to_vec()
        } else {
            vec![0; x.len()]
        };
        self.cells.set_slice("row.x", &[a, n], &x);
        self.expert(a, n);
    }

    /// The expert's output for a row.
    pub fn expert(&mut self, a: usize, n: usize) {
        let scales = self.scales();
        let header = self.model.header();
        let (layer, expert, _) = self.cells.dims.batch().blocks[a];
        let outer = layer * header.sizes.num_experts + expert;
        let x = self.cells.slice("row.x", &[a, n]);
        let eg = self.product(WeightId::Wg, outer, &x, scales.gate_shift);
        let eu = self.product(WeightId::Wu, outer, &x, scales.up_shift);
        let ea: Vec<i16> = eg
            .iter()
            .map(|&g| silu(g as i16, &header.silu_table))
            .collect();
        let eh: Vec<i64> = ea
            .iter()
            .zip(&eu)
            .map(|(&a, &u)| gated(a, u as i16, scales.product_shift).unwrap().into())
            .collect();
        let ey = self.product(WeightId::Wd, outer, &eh, scales.down_shift);
        self.cells.set_slice("eg", &[a, n], &eg);
        self.cells.set_slice("ea", &[a, n], &ea);
        self.cells.set_slice("eu", &[a, n], &eu);
        self.cells.set_slice("eh", &[a, n], &eh);
        self.cells.set_slice("ey", &[a, n], &ey);
    }

    /// The sum over all rows of the layer with the token's id, those that are not real included.
    fn combine(&mut self) {
        let [r, l, s] = self.row();
        let xm = self.indexed("xm", &[]);
        let mut acc = vec![0; xm.len()];
        for (a, &(layer, _, load)) in self.cells.dims.batch().blocks.iter().enumerate() {
            for n in (0..load).filter(|_| layer == l) {
                let gate = self.cells.get("row.gate", &[a, n]);
                if self.cells.get("row.tok", &[a, n]) == self.id() && gate != 0 {
                    let ey = self.cells.slice("ey", &[a, n]);
                    acc.iter_mut().zip(ey).for_each(|(sum, y)| *sum += gate * y);
                }
            }
        }
        let x: Vec<i64> = xm
            .iter()
            .zip(&acc)
            .map(|(xm, &sum)| xm + requant(sum, 14))
            .collect();
        let rem: Vec<i64> = acc
            .iter()
            .map(|sum| (sum + (1 << 13)) & ((1 << 14) - 1))
            .collect();
        self.cells.set_slice("x", &[r, l + 1, s], &x);
        self.cells.set_slice("comb.rem", &[r, l, s], &rem);
    }
}
