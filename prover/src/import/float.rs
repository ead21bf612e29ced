//! The float reference: a plain `f32` forward pass of `OLMoE` as Hugging Face computes it.
//!
//! It has two uses: it shows the calibration how large every kind of value gets, and it is what the integer model is
//! compared with. It follows the published semantics to the letter: norms of queries and keys over all heads at once,
//! `rotate_half`, softmax over all experts before the choice of the largest, no renormalisation.
//!
//! Layers run one after the other over all sequences, and each matrix is converted from the checkpoint when its turn
//! comes, so that no more than one layer's experts are ever held as floats. Keys and values of earlier positions are
//! kept in a [`Session`], so that text can be continued token by token.

use std::fmt;

use rayon::prelude::*;

use super::config::Config;
use super::tensors::{Checkpoint, names};

/// A kind of value whose size the calibration wants to know. All are in real units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Site {
    /// The residual stream, before a block, inside it and after the last.
    Residual,
    /// A vector divided by its root mean square, before any gain.
    Norm,
    /// Queries before their norm.
    Query,
    /// Keys before their norm.
    Key,
    /// Values, and with them the attention's weighted averages of values.
    Value,
    /// Queries divided by their root mean square, before the gain.
    QueryNorm,
    /// Keys divided by their root mean square, before the gain.
    KeyNorm,
    /// Queries after gain and rotation.
    QueryRotated,
    /// Keys after gain and rotation.
    KeyRotated,
    /// Largest minus smallest score of a row.
    ScoreSpread,
    /// Scores.
    Score,
    /// Router logits.
    Router,
    /// An expert's gate projection.
    Gate,
    /// An expert's up projection.
    Up,
    /// The activated gate times the up projection.
    Product,
    /// An expert's output before its gate weight.
    ExpertOutput,
    /// Logits of the head.
    Logit,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Residual => "residual stream",
            Self::Norm => "norm output",
            Self::Query => "query",
            Self::Key => "key",
            Self::Value => "value",
            Self::QueryNorm => "normed query",
            Self::KeyNorm => "normed key",
            Self::QueryRotated => "rotated query",
            Self::KeyRotated => "rotated key",
            Self::ScoreSpread => "spread of scores",
            Self::Score => "score",
            Self::Router => "router logit",
            Self::Gate => "gate",
            Self::Up => "up",
            Self::Product => "product of gate and up",
            Self::ExpertOutput => "expert output",
            Self::Logit => "logit",
        })
    }
}

/// Sees the values of a forward pass.
pub trait Observer {
    /// Some values of a kind in a layer. Values after the last block belong to layer `num_hidden_layers`.
    fn observe(&mut self, site: Site, layer: usize, values: &[f32]);
}

/// Looks away.
#[derive(Debug, Clone, Copy, Default)]
pub struct Blind;

impl Observer for Blind {
    fn observe(&mut self, _: Site, _: usize, _: &[f32]) {}
}

/// Tokens processed so far, with their keys and values.
#[derive(Debug, Clone)]
pub struct Session {
    sequences: Vec<Sequence>,
}

#[derive(Debug, Clone)]
struct Sequence {
    length: usize,
    /// `[layer][position][channel]`, rotated.
    keys: Vec<Vec<f32>>,
    values: Vec<Vec<f32>>,
}

/// What a pass computes for its new tokens, sequence after sequence.
#[derive(Debug, Clone)]
pub struct Pass {
    /// Output of the final norm, gain included, `[token][hidden]`.
    pub hidden: Vec<f32>,
    /// `[layer][token]`: the chosen experts, largest weight first.
    pub experts: Vec<Vec<Vec<usize>>>,
}

/// The float model.
#[derive(Debug, Clone, Copy)]
pub struct FloatModel<'a> {
    config: &'a Config,
    checkpoint: &'a Checkpoint,
}

/// Rows under one task: few enough that their inputs stay in the cache.
const ROW_BLOCK: usize = 32;
const LANES: usize = 8;

/// The products of `R` rows with one output channel. Partial sums run in lanes, which is the only order of addition
/// that the compiler may turn into vector instructions.
fn dots<const R: usize>(rows: [&[f32]; R], weights: &[f32]) -> [f32; R] {
    let mut sums = [[0f32; LANES]; R];
    let (blocks, rest) = weights.as_chunks::<LANES>();
    let split = rows.map(<[f32]>::as_chunks::<LANES>);
    for (i, w) in blocks.iter().enumerate() {
        for (sum, (x, _)) in sums.iter_mut().zip(&split) {
            let x = &x[i];
            for ((s, x), w) in sum.iter_mut().zip(x).zip(w) {
                *s += x * w;
            }
        }
    }
    std::array::from_fn(|r| {
        let tail: f32 = split[r].1.iter().zip(rest).map(|(x, w)| x * w).sum();
        sums[r].iter().sum::<f32>() + tail
    })
}

/// `x * w^T` for `x` of `[rows][inn]` and `w` of `[out][inn]`.
fn matmul(x: &[f32], w: &[f32], inn: usize) -> Vec<f32> {
    let out = w.len() / inn;
    let mut y = vec![0f32; x.len() / inn * out];
    y.par_chunks_mut(ROW_BLOCK * out)
        .zip(x.par_chunks(ROW_BLOCK * inn))
        .for_each(|(y, x)| {
            // Output channels outside: a channel's weights are read once for all rows of the block.
            for (o, weights) in w.chunks_exact(inn).enumerate() {
                let mut rows = x.chunks_exact(4 * inn);
                let mut r = 0;
                for four in &mut rows {
                    let row = |i: usize| &four[i * inn..(i + 1) * inn];
                    for value in dots([row(0), row(1), row(2), row(3)], weights) {
                        y[r * out + o] = value;
                        r += 1;
                    }
                }
                for row in rows.remainder().chunks_exact(inn) {
                    [y[r * out + o]] = dots([row], weights);
                    r += 1;
                }
            }
        });
    y
}

/// Every row divided by its root mean square.
fn normalise(x: &[f32], width: usize, eps: f64) -> Vec<f32> {
    let mut y = x.to_vec();
    y.par_chunks_exact_mut(width).for_each(|row| {
        let mean = row.iter().map(|x| x * x).sum::<f32>() / width as f32;
        let factor = 1.0 / (mean + eps as f32).sqrt();
        for x in row {
            *x *= factor;
        }
    });
    y
}

fn apply_gain(x: &[f32], gain: &[f32]) -> Vec<f32> {
    x.chunks_exact(gain.len())
        .flat_map(|row| row.iter().zip(gain).map(|(x, g)| x * g))
        .collect()
}

fn add(x: &mut [f32], y: &[f32]) {
    for (x, y) in x.iter_mut().zip(y) {
        *x += y;
    }
}

/// `x` times its logistic function.
fn silu(x: f32) -> f32 {
    x / (1.0 + (-x).exp())
}

/// Replaces values by the exponentials of their distances to the largest, divided by their sum.
fn softmax(row: &mut [f32]) {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    for x in &mut *row {
        *x = (*x - max).exp();
    }
    let sum: f32 = row.iter().sum();
    for x in row {
        *x /= sum;
    }
}

/// Largest minus smallest.
fn spread(row: &[f32]) -> f32 {
    let (min, max) = row
        .iter()
        .fold((f32::INFINITY, f32::NEG_INFINITY), |(min, max), &x| {
            (min.min(x), max.max(x))
        });
    max - min
}

impl<'a> FloatModel<'a> {
    /// The model of a checkpoint that was opened with this configuration.
    pub fn new(config: &'a Config, checkpoint: &'a Checkpoint) -> Self {
        Self { config, checkpoint }
    }

    /// Empty sequences.
    pub fn session(&self, sequences: usize) -> Session {
        let layers = self.config.sizes.num_hidden_layers;
        let empty = Sequence {
            length: 0,
            keys: vec![Vec::new(); layers],
            values: vec![Vec::new(); layers],
        };
        Session {
            sequences: vec![empty; sequences],
        }
    }

    /// Runs new tokens of every sequence. Token ids must be below the vocabulary's size.
    pub fn advance(
        &self,
        session: &mut Session,
        tokens: &[&[u32]],
        observer: &mut dyn Observer,
    ) -> Pass {
        let config = self.config;
        let sizes = &config.sizes;
        let hidden = sizes.hidden_size;
        let eps = config.rms_norm_eps;
        let embedding = self.checkpoint.tensor(names::EMBEDDING);
        let mut x: Vec<f32> = tokens
            .iter()
            .flat_map(|ids| ids.iter())
            .flat_map(|&id| &embedding[id as usize * hidden..][..hidden])
            .copied()
            .collect();
        drop(embedding);
        let mut experts = Vec::new();
        for layer in 0..sizes.num_hidden_layers {
            let tensor = |part| self.checkpoint.tensor(&names::layer(layer, part));
            observer.observe(Site::Residual, layer, &x);
            let unit = normalise(&x, hidden, eps);
            observer.observe(Site::Norm, layer, &unit);
            let input = apply_gain(&unit, &tensor("input_layernorm"));
            let mixed = self.attention(layer, &input, session, tokens, observer);
            add(&mut x, &mixed);
            observer.observe(Site::Residual, layer, &x);
            let unit = normalise(&x, hidden, eps);
            observer.observe(Site::Norm, layer, &unit);
            let input = apply_gain(&unit, &tensor("post_attention_layernorm"));
            let (output, chosen) = self.experts(layer, &input, observer);
            add(&mut x, &output);
            experts.push(chosen);
        }
        for (sequence, new) in session.sequences.iter_mut().zip(tokens) {
            sequence.length += new.len();
        }
        observer.observe(Site::Residual, sizes.num_hidden_layers, &x);
        let unit = normalise(&x, hidden, eps);
        observer.observe(Site::Norm, sizes.num_hidden_layers, &unit);
        Pass {
            hidden: apply_gain(&unit, &self.checkpoint.tensor(names::FINAL_NORM)),
            experts,
        }
    }

    fn attention(
        &self,
        layer: usize,
        input: &[f32],
        session: &mut Session,
        tokens: &[&[u32]],
        observer: &mut dyn Observer,
    ) -> Vec<f32> {
        let config = self.config;
        let sizes = &config.sizes;
        let hidden = sizes.hidden_size;
        let eps = config.rms_norm_eps;
        let (query_width, key_width) = (config.query_width(), config.key_width());
        let tensor = |part| self.checkpoint.tensor(&names::layer(layer, part));

        let query = matmul(input, &tensor("self_attn.q_proj"), hidden);
        observer.observe(Site::Query, layer, &query);
        let key = matmul(input, &tensor("self_attn.k_proj"), hidden);
        observer.observe(Site::Key, layer, &key);
        let value = matmul(input, &tensor("self_attn.v_proj"), hidden);
        observer.observe(Site::Value, layer, &value);

        let query = normalise(&query, query_width, eps);
        observer.observe(Site::QueryNorm, layer, &query);
        let mut query = apply_gain(&query, &tensor("self_attn.q_norm"));
        let key = normalise(&key, key_width, eps);
        observer.observe(Site::KeyNorm, layer, &key);
        let mut key = apply_gain(&key, &tensor("self_attn.k_norm"));
        let positions: Vec<usize> = session
            .sequences
            .iter()
            .zip(tokens)
            .flat_map(|(sequence, new)| sequence.length..sequence.length + new.len())
            .collect();
        self.rotate(&mut query, &positions);
        self.rotate(&mut key, &positions);
        observer.observe(Site::QueryRotated, layer, &query);
        observer.observe(Site::KeyRotated, layer, &key);

        let mut row = 0;
        let mut jobs = Vec::new();
        for (sequence, new) in session.sequences.iter_mut().zip(tokens) {
            let rows = row..row + new.len();
            let channels = rows.start * key_width..rows.end * key_width;
            sequence.keys[layer].extend(&key[channels.clone()]);
            sequence.values[layer].extend(&value[channels]);
            let sequence = &*sequence;
            jobs.extend(rows.map(|row| (sequence, row)));
            row += new.len();
        }
        let results: Vec<(Vec<f32>, Vec<f32>, Vec<f32>)> = jobs
            .into_par_iter()
            .map(|(sequence, row)| {
                self.attend(
                    layer,
                    sequence,
                    positions[row],
                    &query[row * query_width..(row + 1) * query_width],
                )
            })
            .collect();
        let mut mixed = Vec::with_capacity(query.len());
        for (out, scores, spreads) in results {
            observer.observe(Site::Score, layer, &scores);
            observer.observe(Site::ScoreSpread, layer, &spreads);
            mixed.extend(out);
        }
        matmul(&mixed, &tensor("self_attn.o_proj"), query_width)
    }

    /// All heads of one position: the mixed values, the scores and their spread in every head.
    fn attend(
        &self,
        layer: usize,
        sequence: &Sequence,
        position: usize,
        query: &[f32],
    ) -> (Vec<f32>, Vec<f32>, Vec<f32>) {
        let sizes = &self.config.sizes;
        let width = sizes.head_dim;
        let key_width = self.config.key_width();
        let scale = 1.0 / (width as f32).sqrt();
        let mut mixed = vec![0f32; query.len()];
        let mut scores = Vec::new();
        let mut spreads = Vec::new();
        let heads = query.chunks_exact(width).zip(mixed.chunks_exact_mut(width));
        for (head, (query, mixed)) in heads.enumerate() {
            let from = head / sizes.query_group * width;
            let part = |cache: &'_ [f32], u: usize| -> std::ops::Range<usize> {
                debug_assert!((u + 1) * key_width <= cache.len());
                u * key_width + from..u * key_width + from + width
            };
            let keys = &sequence.keys[layer];
            let values = &sequence.values[layer];
            let mut row: Vec<f32> = (0..=position)
                .map(|u| dots([query], &keys[part(keys, u)])[0] * scale)
                .collect();
            scores.extend(&row);
            spreads.push(spread(&row));
            softmax(&mut row);
            for (u, weight) in row.into_iter().enumerate() {
                for (m, v) in mixed.iter_mut().zip(&values[part(values, u)]) {
                    *m += weight * v;
                }
            }
        }
        (mixed, scores, spreads)
    }

    /// Rotates the two halves of every head into each other.
    fn rotate(&self, x: &mut [f32], positions: &[usize]) {
        let half = self.config.sizes.head_dim / 2;
        let theta = self.config.rope_theta;
        let frequencies: Vec<f32> = (0..half)
            .map(|j| theta.powf(-(j as f64) / half as f64) as f32)
            .collect();
        let width = x.len() / positions.len().max(1);
        x.par_chunks_exact_mut(width.max(1))
            .zip(positions)
            .for_each(|(row, &position)| {
                for head in row.chunks_exact_mut(2 * half) {
                    let (first, second) = head.split_at_mut(half);
                    for ((a, b), frequency) in first.iter_mut().zip(second).zip(&frequencies) {
                        let (sin, cos) = (position as f32 * frequency).sin_cos();
                        (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
                    }
                }
            });
    }

    fn experts(
        &self,
        layer: usize,
        input: &[f32],
        observer: &mut dyn Observer,
    ) -> (Vec<f32>, Vec<Vec<usize>>) {
        let sizes = &self.config.sizes;
        let hidden = sizes.hidden_size;
        let router = self.checkpoint.tensor(&names::layer(layer, "mlp.gate"));
        let mut weights = matmul(input, &router, hidden);
        observer.observe(Site::Router, layer, &weights);
        let mut chosen = Vec::new();
        let mut rows_of = vec![Vec::new(); sizes.num_experts];
        for (row, weights) in weights.chunks_exact_mut(sizes.num_experts).enumerate() {
            softmax(weights);
            let mut order: Vec<usize> = (0..sizes.num_experts).collect();
            order.sort_by(|&a, &b| weights[b].total_cmp(&weights[a]));
            order.truncate(sizes.num_experts_per_tok);
            for &expert in &order {
                rows_of[expert].push(row);
            }
            chosen.push(order);
        }
        let mut output = vec![0f32; input.len()];
        for (expert, rows) in rows_of.into_iter().enumerate() {
            if rows.is_empty() {
                continue;
            }
            let tensor = |part| self.checkpoint.tensor(&names::expert(layer, expert, part));
            let gathered: Vec<f32> = rows
                .iter()
                .flat_map(|row| &input[row * hidden..(row + 1) * hidden])
                .copied()
                .collect();
            let gate = matmul(&gathered, &tensor("gate_proj"), hidden);
            observer.observe(Site::Gate, layer, &gate);
            let up = matmul(&gathered, &tensor("up_proj"), hidden);
            observer.observe(Site::Up, layer, &up);
            let product: Vec<f32> = gate.iter().zip(&up).map(|(g, u)| silu(*g) * u).collect();
            observer.observe(Site::Product, layer, &product);
            let result = matmul(&product, &tensor("down_proj"), sizes.intermediate_size);
            observer.observe(Site::ExpertOutput, layer, &result);
            for (row, result) in rows.into_iter().zip(result.chunks_exact(hidden)) {
                let weight = weights[row * sizes.num_experts + expert];
                let output = &mut output[row * hidden..(row + 1) * hidden];
                for (o, r) in output.iter_mut().zip(result) {
                    *o += weight * r;
                }
            }
        }
        (output, chosen)
    }

    /// Calls `visit` with the logits of every row of [`Pass::hidden`]. A block of rows at a time, since the logits of all
    /// rows of a large vocabulary would not fit.
    pub fn logits(&self, rows: &[f32], mut visit: impl FnMut(usize, &[f32])) {
        let sizes = &self.config.sizes;
        let name = if self.config.tie_word_embeddings {
            names::EMBEDDING
        } else {
            names::HEAD
        };
        let head = self.checkpoint.tensor(name);
        let hidden = sizes.hidden_size;
        let mut row = 0;
        for block in rows.chunks(8 * ROW_BLOCK * hidden) {
            for logits in matmul(block, &head, hidden).chunks_exact(sizes.vocab_size) {
                visit(row, logits);
                row += 1;
            }
        }
    }
}

/// The position of the largest value; the first of equal ones.
pub fn argmax(values: &[f32]) -> usize {
    let mut best = 0;
    for (i, x) in values.iter().enumerate() {
        if *x > values[best] {
            best = i;
        }
    }
    best
}

/// Minus the logarithm of the probability that logits give to a token, all logits being multiples of `unit`.
pub fn negative_log_likelihood(logits: impl Iterator<Item = f64> + Clone, token: f64) -> f64 {
    let max = logits.clone().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.map(|x| (x - max).exp()).sum();
    max + sum.ln() - token
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::tests::bundled;

    #[test]
    fn matmul_agrees_with_the_definition() {
        let (rows, inn, out) = (71, 13, 5);
        let x: Vec<f32> = (0..rows * inn).map(|i| (i % 17) as f32 - 8.0).collect();
        let w: Vec<f32> = (0..out * inn).map(|i| (i % 11) as f32 - 5.0).collect();
        let y = matmul(&x, &w, inn);
        for r in 0..rows {
            for o in 0..out {
                let expected: f32 = (0..inn).map(|i| x[r * inn + i] * w[o * inn + i]).sum();
                assert!((y[r * out + o] - expected).abs() < 1e-4);
            }
        }
    }

    #[test]
    fn continuing_a_sequence_equals_running_it_at_once() {
        let (config, checkpoint) = bundled();
        let model = FloatModel::new(&config, &checkpoint);
        let ids: Vec<u32> = (0..24).map(|i| i * 37 % 2048).collect();
        let mut whole = model.session(1);
        let whole = model.advance(&mut whole, &[&ids], &mut Blind);
        let mut session = model.session(2);
        model.advance(&mut session, &[&ids[..20], &[5, 6, 7]], &mut Blind);
        let rest = model.advance(&mut session, &[&ids[20..], &[8]], &mut Blind);
        let hidden = config.sizes.hidden_size;
        for (a, b) in whole.hidden[20 * hidden..].iter().zip(&rest.hidden) {
            assert!((a - b).abs() < 1e-3, "{a} {b}");
        }
    }

    /// The reference was computed with Hugging Face transformers from the same file.
    #[test]
    fn reproduces_the_published_reference() {
        let (config, checkpoint) = bundled();
        let model = FloatModel::new(&config, &checkpoint);
        let reference: serde_json::Value =
            serde_json::from_slice(include_bytes!("../../../data/olmoe-tiny/reference.json"))
                .unwrap();
        let ids = |value: &serde_json::Value| -> Vec<u32> {
            serde_json::from_value(value.clone()).unwrap()
        };
        for prompt in reference["prompts"].as_array().unwrap() {
            let mut tokens = ids(&prompt["prompt_ids"]);
            let first = tokens.len() - 1;
            let generated = ids(&prompt["generated"]);
            tokens.extend(&generated[..generated.len() - 1]);
            let mut session = model.session(1);
            let pass = model.advance(&mut session, &[&tokens], &mut Blind);
            for (layer, chosen) in pass.experts.iter().enumerate() {
                let expected: Vec<Vec<usize>> =
                    serde_json::from_value(prompt["expert_ids"][layer.to_string()].clone())
                        .unwrap();
                assert_eq!(*chosen, expected, "layer {layer}");
            }
            let top: Vec<Vec<(usize, f32)>> =
                serde_json::from_value(prompt["top5"].clone()).unwrap();
            let hidden = &pass.hidden[first * config.sizes.hidden_size..];
            model.logits(hidden, |i, logits| {
                assert_eq!(argmax(logits), generated[i] as usize);
                for &(id, logit) in &top[i] {
                    assert!((logits[id] - logit).abs() < 2e-3, "{} {logit}", logits[id]);
                }
            });
        }
    }
}
