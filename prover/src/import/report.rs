//! What an import tells about the model that it made: how much room is left, and how close it is to the float model.

use serde::Serialize;

use super::config::Config;
use super::float::{Blind, FloatModel, argmax, negative_log_likelihood};
use super::quantize::{LOGIT_FRACTION_BITS, Multipliers};
use super::tensors::Checkpoint;
use crate::infer::forward;
use crate::model::Model;

/// The result of an import.
#[derive(Debug, Clone, Serialize)]
pub struct ImportReport {
    /// Weights of the model.
    pub parameters: u64,
    /// Bytes of its file.
    pub file_size: u64,
    /// Positions that were seen during calibration.
    pub calibration_positions: u64,
    /// For every kind of value, the layer that used most of its range.
    pub head_room: Vec<HeadRoom>,
    /// Sizes of the multipliers.
    pub multipliers: Vec<Multipliers>,
    /// The comparison with the float model on held-out text.
    pub evaluation: Evaluation,
    /// What deserves a look.
    pub warnings: Vec<String>,
}

/// How much of its range a kind of value used during calibration.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HeadRoom {
    /// The kind of value.
    pub kind: &'static str,
    /// The layer that used most; the number of layers stands for what comes after the last.
    pub layer: usize,
    /// The largest value there, in real units.
    pub largest: f64,
    /// The share of the range that it took; an overflow is 1.
    pub share: f64,
}

/// The integer model beside the float model on the same text.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Evaluation {
    /// Tokens of the text.
    pub tokens: usize,
    /// Tokens that were predicted by both, all but the first of each window.
    pub scored: usize,
    /// Perplexity of the float model.
    pub float_perplexity: f64,
    /// Perplexity of the integer model.
    pub integer_perplexity: f64,
    /// Share of positions at which both find the same token most likely.
    pub same_token: f64,
    /// Share of layers and positions at which both choose the same set of experts.
    pub same_experts: f64,
    /// Windows that the integer model refused because a value left its range, and why; they are not in the figures.
    pub overflows: Vec<String>,
}

/// Sums over windows.
#[derive(Default)]
struct Sums {
    scored: usize,
    float: f64,
    integer: f64,
    positions: usize,
    same_token: usize,
    routed: usize,
    same_experts: usize,
}

/// A share or a mean; of nothing, zero.
fn ratio(part: f64, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part / whole as f64 }
}

/// Compares both models on windows of a text, each window on its own.
pub fn evaluate(
    config: &Config,
    checkpoint: &Checkpoint,
    model: &Model,
    tokens: &[u32],
    window: usize,
    progress: &dyn Fn(&str, u64, u64),
) -> Evaluation {
    let float = FloatModel::new(config, checkpoint);
    let hidden = config.sizes.hidden_size;
    let windows: Vec<&[u32]> = tokens.chunks(window).collect();
    let mut sums = Sums::default();
    let mut overflows = Vec::new();
    for (i, group) in windows.chunks(16).enumerate() {
        progress("evaluation", 16 * i as u64, windows.len() as u64);
        let mut session = float.session(group.len());
        let pass = float.advance(&mut session, group, &mut Blind);
        let mut row = 0;
        for (j, ids) in group.iter().enumerate() {
            progress("evaluation", (16 * i + j) as u64, windows.len() as u64);
            let rows = row..row + ids.len();
            row = rows.end;
            let integer = match forward(model, ids) {
                Ok(integer) => integer,
                Err(error) => {
                    overflows.push(error.to_string());
                    continue;
                }
            };
            let unit = f64::from(LOGIT_FRACTION_BITS).exp2().recip();
            float.logits(
                &pass.hidden[rows.start * hidden..rows.end * hidden],
                |t, logits| {
                    let exact = integer.logits(t);
                    let best = exact
                        .iter()
                        .enumerate()
                        .max_by_key(|&(id, &logit)| (logit, std::cmp::Reverse(id)))
                        .map_or(0, |(id, _)| id);
                    sums.positions += 1;
                    sums.same_token += usize::from(best == argmax(logits));
                    if let Some(&next) = ids.get(t + 1) {
                        let next = next as usize;
                        let reals = logits.iter().map(|&x| f64::from(x));
                        sums.float += negative_log_likelihood(reals, f64::from(logits[next]));
                        let reals = exact.iter().map(|&x| f64::from(x) * unit);
                        sums.integer +=
                            negative_log_likelihood(reals, f64::from(exact[next]) * unit);
                        sums.scored += 1;
                    }
                },
            );
            for (layer, chosen) in pass.experts.iter().enumerate() {
                for (t, chosen) in chosen[rows.clone()].iter().enumerate() {
                    let exact = integer.experts(layer, t);
                    let same = exact.iter().all(|&e| chosen.contains(&usize::from(e)));
                    sums.routed += 1;
                    sums.same_experts += usize::from(same);
                }
            }
        }
    }
    progress("evaluation", windows.len() as u64, windows.len() as u64);
    Evaluation {
        tokens: tokens.len(),
        scored: sums.scored,
        float_perplexity: ratio(sums.float, sums.scored).exp(),
        integer_perplexity: ratio(sums.integer, sums.scored).exp(),
        same_token: ratio(sums.same_token as f64, sums.positions),
        same_experts: ratio(sums.same_experts as f64, sums.routed),
        overflows,
    }
}
