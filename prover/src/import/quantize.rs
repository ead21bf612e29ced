//! From float weights and calibrated ranges to the integer model.
//!
//! Every kind of integer has a unit: the integer is the real value times the unit. A unit is chosen so that the largest
//! calibrated value leaves head-room in the kind's range. Where one shift serves all layers but their values differ in
//! size, units differ per layer and the multipliers take up the difference: the committed weight of a projection is
//! `weight * unit(output) * 2^shift / unit(input)`.
//!
//! Norm gains are folded into the next matrix while everything is still float, so that one rounding covers both.

use rayon::prelude::*;
use serde::Serialize;
use zkmoe_verifier::header::{
    EXP_FRACTION_BITS, Header, LOGIT_BITS, RESIDUAL_BITS, ROPE_FRACTION_BITS, ROUTER_BITS, Scales,
};

use super::ImportError;
use super::calibrate::Ranges;
use super::config::Config;
use super::float::Site;
use super::report::HeadRoom;
use super::tensors::{Checkpoint, names};
use crate::model::{Model, Tensor, WeightId, norm_factor_bits, weight_shape};
use crate::tables;

/// Fraction bits of a logit: real logit = integer logit * `2^-LOGIT_FRACTION_BITS`.
pub const LOGIT_FRACTION_BITS: u32 = 13;

/// Room above the largest calibrated value of a 16-bit kind.
const HEAD_ROOM: f64 = 1.75;
/// Room of the residual stream, whose 24 bits have plenty.
const RESIDUAL_HEAD_ROOM: f64 = 2.5;
/// Largest 16-bit value.
const INT16: f64 = 32767.0;
/// Largest multiplier.
const MULTIPLIER: f64 = 65535.0;
/// A shift is as large as it can be while the median multiplier stays below this: a multiplier of hundreds rounds the
/// scale of a channel to a fraction of a percent of what its weights lose anyway, and larger ones buy nothing.
const MEDIAN_MULTIPLIER: f64 = 1024.0;

/// Units of all kinds of values; vectors are per layer.
#[derive(Debug, Clone)]
pub struct Units {
    /// Residual stream and expert outputs.
    pub residual: f64,
    /// Outputs of the norms of the residual stream.
    pub norm: f64,
    /// Queries before their norm.
    pub query: Vec<f64>,
    /// Keys before their norm.
    pub key: Vec<f64>,
    /// Values and their averages.
    pub value: Vec<f64>,
    /// Output of the norm of the queries.
    pub query_norm: f64,
    /// Output of the norm of the keys.
    pub key_norm: f64,
    /// Queries after gain and rotation.
    pub query_rotated: Vec<f64>,
    /// Keys after gain and rotation.
    pub key_rotated: Vec<f64>,
    /// Scores; fixed by the exponential table.
    pub score: f64,
    /// Router logits.
    pub router: f64,
    /// Gate projections and activated gates; one for all layers, since there is one activation table.
    pub gate: f64,
    /// Up projections.
    pub up: Vec<f64>,
    /// Products of activated gate and up projection.
    pub product: Vec<f64>,
    /// Logits of the head.
    pub logit: f64,
}

/// `2^x`.
fn power(x: u32) -> f64 {
    f64::from(x).exp2()
}

/// The unit in which `largest * room` is `limit`; for values that were never seen, or are all zero, any unit does.
fn unit(limit: f64, largest: f64, room: f64) -> f64 {
    limit / (largest * room).max(1e-6)
}

/// Factor and shift of a norm over `width` inputs of `bits` bits, and the unit of its outputs.
///
/// The norm computes `x * 2^(45 - shift) / sqrt(factor * sum of squares)`, so its unit is
/// `2^(45 - shift) / sqrt(factor * width)`. No element of a normalised vector exceeds `sqrt(width)`.
fn norm(width: usize, bits: u32, largest: f64) -> (u64, u32, f64) {
    let k = norm_factor_bits(width, bits);
    let wanted = (largest * HEAD_ROOM).min((width as f64).sqrt() * 1.001);
    let unit = |shift: u32| (power(k) * width as f64).sqrt().recip() * power(45 - shift);
    let shift = (17..32)
        .find(|&shift| unit(shift) * wanted < INT16)
        .unwrap_or(32);
    (1 << k, shift, unit(shift))
}

impl Units {
    /// Units from calibrated ranges, and the constants that they fix. Shifts of matrix products and of `RoPE` are set
    /// later, when the weights have been seen. `largest_embedding` covers tokens that the calibration did not meet.
    fn choose(config: &Config, ranges: &Ranges, largest_embedding: f64) -> (Self, Scales) {
        let sizes = &config.sizes;
        let layers = 0..sizes.num_hidden_layers;
        let per_layer = |site| -> Vec<f64> {
            layers
                .clone()
                .map(|l| unit(INT16, ranges.layer(site, l).max, HEAD_ROOM))
                .collect()
        };
        let wide = f64::from((1i32 << (RESIDUAL_BITS - 1)) - 1);
        let residual = unit(
            wide,
            (ranges.all(Site::Residual).max * RESIDUAL_HEAD_ROOM)
                .max(ranges.all(Site::ExpertOutput).max * RESIDUAL_HEAD_ROOM)
                // Its committed values stop at 127 * 65535, a little below 24 bits.
                .max(largest_embedding * 1.1),
            1.0,
        );
        let (norm_factor, norm_shift, norm_unit) =
            norm(sizes.hidden_size, RESIDUAL_BITS, ranges.all(Site::Norm).max);
        let (query_norm_factor, query_norm_shift, query_norm) =
            norm(config.query_width(), 16, ranges.all(Site::QueryNorm).max);
        let (key_norm_factor, key_norm_shift, key_norm) =
            norm(config.key_width(), 16, ranges.all(Site::KeyNorm).max);
        let epsilon =
            config.rms_norm_eps * sizes.hidden_size as f64 * residual.powi(2) * norm_factor as f64;

        // Scores come out in units of the exponential table, so the units of rotated queries and keys have a fixed
        // product. The layer with the largest product of ranges decides the shift.
        let rotated: Vec<(f64, f64)> = layers
            .clone()
            .map(|l| {
                let largest = |site| ranges.layer(site, l).max.max(1e-3);
                (largest(Site::QueryRotated), largest(Site::KeyRotated))
            })
            .collect();
        let largest = rotated.iter().map(|(q, k)| q * k).fold(0.0, f64::max);
        let root = (sizes.head_dim as f64).sqrt();
        let product_limit = (INT16 / HEAD_ROOM).powi(2) / largest;
        let score_shift = (product_limit * root).log2().floor() - f64::from(EXP_FRACTION_BITS);
        let score_shift = score_shift.clamp(1.0, 16.0) as u32;
        let product = power(EXP_FRACTION_BITS + score_shift) / root;
        let (query_rotated, key_rotated) = rotated
            .iter()
            .map(|(q, k)| ((product * k / q).sqrt(), (product * q / k).sqrt()))
            .unzip();

        let router_limit = f64::from(1i32 << (ROUTER_BITS - 1));
        let router_score_shift = unit(router_limit, ranges.all(Site::Router).max, 2.0)
            .log2()
            .floor()
            - f64::from(EXP_FRACTION_BITS);
        let router_score_shift = router_score_shift.clamp(1.0, 16.0) as u32;

        // An activated gate is never larger than the gate, so one unit serves both.
        let gate = unit(INT16, ranges.all(Site::Gate).max, HEAD_ROOM);
        let up_limits = per_layer(Site::Up);
        let product_limits = per_layer(Site::Product);
        // unit(product) = unit(gate) * unit(up) / 2^shift. The shift at which both limits bind is rounded in the mean,
        // and each layer then takes the unit that respects both.
        let mean = up_limits
            .iter()
            .zip(&product_limits)
            .map(|(up, product)| (gate * up / product).log2())
            .sum::<f64>()
            / up_limits.len() as f64;
        let product_shift = mean.round().clamp(1.0, 16.0) as u32;
        let ratio = gate / power(product_shift);
        let up: Vec<f64> = up_limits
            .iter()
            .zip(&product_limits)
            .map(|(up, product)| up.min(product / ratio))
            .collect();
        let product = up.iter().map(|up| up * ratio).collect();

        // The inputs of the norms of queries and keys have another unit in every layer, so no constant stands for the
        // checkpoint's epsilon in all of them. It is negligible against the sum of squares of 16-bit values (the report
        // warns where it is not), and so is the least constant that the header allows.
        let negligible = 1 << 20;
        let scales = Scales {
            norm_factor,
            norm_epsilon: (epsilon.round() as u64).clamp(1 << 20, 1 << 60),
            norm_shift,
            query_norm_factor,
            query_norm_epsilon: negligible,
            query_norm_shift,
            key_norm_factor,
            key_norm_epsilon: negligible,
            key_norm_shift,
            query_shift: 1,
            key_shift: 1,
            value_shift: 1,
            rope_shift: 17,
            score_shift,
            output_shift: 1,
            router_shift: 1,
            router_score_shift,
            gate_shift: 1,
            up_shift: 1,
            product_shift,
            down_shift: 1,
            head_shift: 1,
        };
        let units = Self {
            residual,
            norm: norm_unit,
            query: per_layer(Site::Query),
            key: per_layer(Site::Key),
            value: per_layer(Site::Value),
            query_norm,
            key_norm,
            query_rotated,
            key_rotated,
            score: power(EXP_FRACTION_BITS),
            router: power(EXP_FRACTION_BITS + router_score_shift),
            gate,
            up,
            product,
            logit: power(LOGIT_FRACTION_BITS),
        };
        (units, scales)
    }

    /// How much of its range every kind of value used during calibration.
    pub fn head_room(&self, ranges: &Ranges) -> Vec<HeadRoom> {
        let layers = self.query.len();
        let wide = power(RESIDUAL_BITS - 1);
        // The distance between two scores may reach one table and one excess, `2^17` units.
        let distance = 2.0 * INT16 * 2.0;
        let same = |unit: f64| vec![unit; layers + 1];
        let router_score = power(EXP_FRACTION_BITS);
        [
            (
                "residual stream",
                Site::Residual,
                wide,
                &same(self.residual),
            ),
            ("norm output", Site::Norm, INT16, &same(self.norm)),
            ("query", Site::Query, INT16, &self.query),
            ("key", Site::Key, INT16, &self.key),
            ("value", Site::Value, INT16, &self.value),
            (
                "normed query",
                Site::QueryNorm,
                INT16,
                &same(self.query_norm),
            ),
            ("normed key", Site::KeyNorm, INT16, &same(self.key_norm)),
            (
                "rotated query",
                Site::QueryRotated,
                INT16,
                &self.query_rotated,
            ),
            ("rotated key", Site::KeyRotated, INT16, &self.key_rotated),
            ("score", Site::Score, wide, &same(self.score)),
            (
                "spread of scores",
                Site::ScoreSpread,
                distance,
                &same(self.score),
            ),
            (
                "router logit",
                Site::Router,
                power(ROUTER_BITS - 1),
                &same(self.router),
            ),
            (
                "half spread of router logits",
                Site::Router,
                distance / 2.0,
                &same(router_score),
            ),
            ("gate", Site::Gate, INT16, &same(self.gate)),
            ("up", Site::Up, INT16, &self.up),
            (
                "product of gate and up",
                Site::Product,
                INT16,
                &self.product,
            ),
            (
                "expert output",
                Site::ExpertOutput,
                wide,
                &same(self.residual),
            ),
            (
                "logit",
                Site::Logit,
                power(LOGIT_BITS - 1),
                &same(self.logit),
            ),
        ]
        .into_iter()
        .map(|(kind, site, limit, units)| {
            let (share, layer) = units
                .iter()
                .enumerate()
                .map(|(layer, unit)| (ranges.layer(site, layer).max * unit / limit, layer))
                .fold((0.0, 0), |a, b| if b.0 > a.0 { b } else { a });
            HeadRoom {
                kind,
                layer,
                largest: ranges.layer(site, layer).max,
                share,
            }
        })
        .collect()
    }
}

/// One float matrix `[out][in]` of a tensor with the factor that turns its weights into committed values at shift 0.
struct Block {
    weights: Vec<f32>,
    factor: f64,
}

/// Multiplies every input channel of `[out][in]` weights by its gain.
fn fold(mut weights: Vec<f32>, gain: &[f32]) -> Vec<f32> {
    for row in weights.chunks_exact_mut(gain.len()) {
        for (w, g) in row.iter_mut().zip(gain) {
            *w *= g;
        }
    }
    weights
}

/// Loads blocks of tensors in the units of the integer model.
struct Source<'a> {
    config: &'a Config,
    checkpoint: &'a Checkpoint,
    units: &'a Units,
}

impl Source<'_> {
    /// Block `outer` of a matrix tensor.
    fn block(&self, id: WeightId, outer: usize) -> Block {
        let units = self.units;
        let experts = self.config.sizes.num_experts;
        let (tensor, expert) = (
            |l, part| self.checkpoint.tensor(&names::layer(l, part)),
            |part| {
                let name = names::expert(outer / experts, outer % experts, part);
                self.checkpoint.tensor(&name)
            },
        );
        let first = |part| fold(tensor(outer, part), &tensor(outer, "input_layernorm"));
        let second = |weights, layer| fold(weights, &tensor(layer, "post_attention_layernorm"));
        let layer = outer / experts;
        let (weights, factor) = match id {
            WeightId::Wq => (first("self_attn.q_proj"), units.query[outer] / units.norm),
            WeightId::Wk => (first("self_attn.k_proj"), units.key[outer] / units.norm),
            WeightId::Wv => (first("self_attn.v_proj"), units.value[outer] / units.norm),
            WeightId::Wo => (
                tensor(outer, "self_attn.o_proj"),
                units.residual / units.value[outer],
            ),
            WeightId::Wr => (
                second(tensor(outer, "mlp.gate"), outer),
                units.router / units.norm,
            ),
            WeightId::Wg => (second(expert("gate_proj"), layer), units.gate / units.norm),
            WeightId::Wu => (
                second(expert("up_proj"), layer),
                units.up[layer] / units.norm,
            ),
            WeightId::Wd => (expert("down_proj"), units.residual / units.product[layer]),
            WeightId::Wh => {
                let name = if self.config.tie_word_embeddings {
                    names::EMBEDDING
                } else {
                    names::HEAD
                };
                let gain = self.checkpoint.tensor(names::FINAL_NORM);
                let weights = fold(self.checkpoint.tensor(name), &gain);
                (weights, units.logit / units.norm)
            }
            WeightId::Emb | WeightId::Gq | WeightId::Gk => {
                unreachable!("tensors with one input channel are quantized channel by channel")
            }
        };
        Block { weights, factor }
    }

    /// Committed values of the gains of queries or keys, all layers, for a shift of `RoPE`.
    fn gains(&self, id: WeightId, rope_shift: u32) -> Vec<f64> {
        let (part, rotated, normed) = match id {
            WeightId::Gq => (
                "self_attn.q_norm",
                &self.units.query_rotated,
                self.units.query_norm,
            ),
            _ => (
                "self_attn.k_norm",
                &self.units.key_rotated,
                self.units.key_norm,
            ),
        };
        rotated
            .iter()
            .enumerate()
            .flat_map(|(layer, rotated)| {
                let scale = rotated / normed * power(rope_shift - ROPE_FRACTION_BITS);
                let gains = self.checkpoint.tensor(&names::layer(layer, part));
                gains.into_iter().map(move |g| f64::from(g) * scale)
            })
            .collect()
    }
}

/// Median and largest of multipliers, as real numbers at shift 0, before they are rounded.
fn median_and_largest(mut multipliers: Vec<f64>) -> (f64, f64) {
    multipliers.sort_by(f64::total_cmp);
    let median = multipliers[multipliers.len() / 2];
    (median, multipliers[multipliers.len() - 1])
}

/// The largest shift of a range that keeps multipliers, given at shift 0, of a useful size.
fn choose_shift(
    tensor: &'static str,
    multipliers: Vec<f64>,
    shifts: std::ops::RangeInclusive<u32>,
) -> Result<u32, ImportError> {
    let (median, largest) = median_and_largest(multipliers);
    let fits = |shift: u32| largest * power(shift) <= MULTIPLIER - 1.0;
    let first = *shifts.start();
    shifts
        .rev()
        .find(|&shift| fits(shift) && median * power(shift) <= MEDIAN_MULTIPLIER)
        .or_else(|| fits(first).then_some(first))
        .ok_or_else(|| ImportError::Weights {
            tensor,
            reason: format!(
                "needs a multiplier of {:.0} where 65535 is the limit: some of its channels are far larger than its \
                 inputs and outputs allow",
                largest * power(first)
            ),
        })
}

/// Refuses a tensor of which nothing is left: the model would compute as if it were not there.
fn check_not_lost(
    tensor: &'static str,
    largest: f64,
    quantized: &Tensor,
) -> Result<(), ImportError> {
    if largest > 0.0 && quantized.values.iter().all(|&value| value == 0) {
        return Err(ImportError::Weights {
            tensor,
            reason: format!(
                "has weights that all round to zero, the largest to {largest:e}: they are far too small beside the values \
                 that they are added to"
            ),
        });
    }
    Ok(())
}

/// Quantizes rows of `[out][in]` weights at `scale` to `[in][out]` bytes and one multiplier for each row.
fn quantize_matrix(weights: &[f32], out: usize, scale: f64, tensor: &mut Tensor) {
    let inn = weights.len() / out;
    let rows: Vec<(u16, Vec<i8>)> = weights
        .par_chunks_exact(inn)
        .map(|row| {
            let largest = row.iter().fold(0f32, |max, w| max.max(w.abs()));
            // Rounded up, so that the largest weight is at most 127 multipliers.
            let multiplier = (f64::from(largest) * scale / 127.0)
                .ceil()
                .clamp(1.0, MULTIPLIER);
            let values = row
                .iter()
                .map(|w| {
                    (f64::from(*w) * scale / multiplier)
                        .round()
                        .clamp(-127.0, 127.0) as i8
                })
                .collect();
            (multiplier as u16, values)
        })
        .collect();
    tensor.multipliers.extend(rows.iter().map(|(m, _)| m));
    let from = tensor.values.len();
    tensor.values.resize(from + weights.len(), 0);
    tensor.values[from..]
        .par_chunks_exact_mut(out)
        .enumerate()
        .for_each(|(i, channel)| {
            for (value, (_, row)) in channel.iter_mut().zip(&rows) {
                *value = row[i];
            }
        });
}

/// The byte and the multiplier whose product is closest to a committed value of a tensor with one input channel.
///
/// A value below 128 is its own byte. For larger ones every byte of 64 or more is tried with the multiplier that fits it
/// best; smaller bytes would need multipliers of more than half the range without a closer product in return.
fn quantize_single(committed: f64) -> (i8, u16) {
    let target = committed.round().abs().min(127.0 * MULTIPLIER) as u32;
    let sign = if committed < 0.0 { -1 } else { 1 };
    if target < 128 {
        return (sign * target as i8, 1);
    }
    let mut best = (u32::MAX, 0i8, 0u16);
    for byte in (64..=127u32).rev() {
        let multiplier = ((target + byte / 2) / byte).min(MULTIPLIER as u32);
        let error = (multiplier * byte).abs_diff(target);
        if error < best.0 {
            best = (error, byte as i8, multiplier as u16);
            if error == 0 {
                break;
            }
        }
    }
    (sign * best.1, best.2)
}

fn quantize_singles(committed: &[f64]) -> Tensor {
    let (values, multipliers) = committed.par_iter().map(|&c| quantize_single(c)).unzip();
    Tensor {
        values,
        multipliers,
    }
}

/// Multipliers of a tensor, for the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Multipliers {
    /// The tensor.
    pub tensor: &'static str,
    /// The shift after its product; none for the embedding.
    pub shift: Option<u32>,
    /// Smallest multiplier.
    pub smallest: u16,
    /// Median multiplier.
    pub median: u16,
    /// Largest multiplier.
    pub largest: u16,
}

impl Multipliers {
    fn of(tensor: &'static str, shift: Option<u32>, multipliers: &[u16]) -> Self {
        let mut sorted = multipliers.to_vec();
        sorted.sort_unstable();
        Self {
            tensor,
            shift,
            smallest: sorted[0],
            median: sorted[sorted.len() / 2],
            largest: sorted[sorted.len() - 1],
        }
    }
}

/// What a quantized model is made of.
pub struct Quantized {
    /// The integer model.
    pub model: Model,
    /// Its units.
    pub units: Units,
    /// Its multipliers.
    pub multipliers: Vec<Multipliers>,
}

/// Quantizes a checkpoint.
pub fn quantize(
    config: &Config,
    checkpoint: &Checkpoint,
    ranges: &Ranges,
    tokenizer_json: Vec<u8>,
    template_hash: [u8; 32],
    progress: &dyn Fn(&str, u64, u64),
) -> Result<Quantized, ImportError> {
    let sizes = &config.sizes;
    let embedding = checkpoint.tensor(names::EMBEDDING);
    let largest = embedding.iter().fold(0f32, |max, x| max.max(x.abs()));
    let (units, mut scales) = Units::choose(config, ranges, f64::from(largest));
    let source = Source {
        config,
        checkpoint,
        units: &units,
    };
    let mut parts = vec![Tensor::default(); WeightId::ALL.len()];
    let mut multipliers = Vec::new();

    let committed: Vec<f64> = embedding
        .into_iter()
        .map(|x| f64::from(x) * units.residual)
        .collect();
    let largest_of = |committed: &[f64]| committed.iter().fold(0.0, |max: f64, x| max.max(x.abs()));
    parts[WeightId::Emb.index()] = quantize_singles(&committed);
    check_not_lost("emb", largest_of(&committed), &parts[WeightId::Emb.index()])?;

    let gains = [WeightId::Gq, WeightId::Gk];
    let first = 17;
    // Bytes of a single channel are 64 to 127, so a channel's multiplier is at most its committed value over 64.
    let sizes_of_gains = gains
        .iter()
        .flat_map(|&id| source.gains(id, first))
        .map(|c| c.abs() / 100.0 / power(first))
        .collect();
    scales.rope_shift = choose_shift("gq", sizes_of_gains, first..=32)?;
    for id in gains {
        let committed = source.gains(id, scales.rope_shift);
        parts[id.index()] = quantize_singles(&committed);
        check_not_lost(id.name(), largest_of(&committed), &parts[id.index()])?;
    }

    for (id, shift) in [
        (WeightId::Wq, &mut scales.query_shift),
        (WeightId::Wk, &mut scales.key_shift),
        (WeightId::Wv, &mut scales.value_shift),
        (WeightId::Wo, &mut scales.output_shift),
        (WeightId::Wr, &mut scales.router_shift),
        (WeightId::Wg, &mut scales.gate_shift),
        (WeightId::Wu, &mut scales.up_shift),
        (WeightId::Wd, &mut scales.down_shift),
        (WeightId::Wh, &mut scales.head_shift),
    ] {
        let shape = weight_shape(sizes, id);
        let stage = format!("quantize {}", id.name());
        let total = 2 * shape.outer as u64;
        let mut row_sizes = Vec::with_capacity(shape.multipliers());
        for outer in 0..shape.outer {
            progress(&stage, outer as u64, total);
            let block = source.block(id, outer);
            row_sizes.par_extend(block.weights.par_chunks_exact(shape.inn).map(|row| {
                let largest = row.iter().fold(0f32, |max, w| max.max(w.abs()));
                f64::from(largest) * block.factor / 127.0
            }));
        }
        let largest = row_sizes.iter().copied().fold(0.0, f64::max);
        *shift = choose_shift(id.name(), row_sizes, 1..=16)?;
        let tensor = &mut parts[id.index()];
        tensor.values.reserve_exact(shape.values());
        for outer in 0..shape.outer {
            progress(&stage, (shape.outer + outer) as u64, total);
            let block = source.block(id, outer);
            quantize_matrix(
                &block.weights,
                shape.out,
                block.factor * power(*shift),
                tensor,
            );
        }
        check_not_lost(id.name(), 127.0 * largest * power(*shift), tensor)?;
        progress(&stage, total, total);
        multipliers.push(Multipliers::of(
            id.name(),
            Some(*shift),
            &tensor.multipliers,
        ));
    }
    for (id, shift) in [
        (WeightId::Emb, None),
        (WeightId::Gq, Some(scales.rope_shift)),
        (WeightId::Gk, Some(scales.rope_shift)),
    ] {
        let tensor = &parts[id.index()];
        multipliers.push(Multipliers::of(id.name(), shift, &tensor.multipliers));
    }

    let (cos_table, sin_table) = tables::rope_tables(
        sizes.max_position_embeddings,
        sizes.head_dim / 2,
        config.rope_theta,
    );
    let header = Header {
        sizes: sizes.clone(),
        scales,
        eos_token: config.eos_token,
        pad_token: config.pad_token,
        exp_table: tables::exp_table(),
        silu_table: tables::silu_table(units.gate, units.gate),
        cos_table,
        sin_table,
        tokenizer_hash: *blake3::hash(&tokenizer_json).as_bytes(),
        template_hash,
    };
    let model = Model::from_parts(header, parts, tokenizer_json)?;
    Ok(Quantized {
        model,
        units,
        multipliers,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn norm_units_are_what_the_integer_norm_computes() {
        // A vector of equal elements normalises to ones: check the unit against the definition of the norm.
        for (width, bits, x) in [(128usize, 24, 70_000i64), (96, 16, 900), (2048, 24, 3)] {
            let (factor, shift, unit) = norm(width, bits, 5.0);
            let ss = factor * width as u64 * (x * x) as u64;
            let z = (0..=20).find(|z| ss >> (2 * z) < 1 << 22).unwrap();
            let u = ss >> (2 * z);
            let m = ((1u64 << 50) / u).isqrt();
            let y = (x as f64) * (m << (20 - z)) as f64 / power(shift);
            assert!((y / unit - 1.0).abs() < 1e-3, "{y} {unit}");
            assert!(unit * 5.0 * 1.6 < 32768.0);
        }
    }

    #[test]
    fn shifts_are_the_largest_useful_ones() {
        assert_eq!(choose_shift("wq", vec![1.0; 9], 1..=16).unwrap(), 10);
        assert_eq!(choose_shift("wq", vec![1e-9; 9], 1..=16).unwrap(), 16);
        let mut outlier = vec![1.0; 9];
        outlier.push(1000.0);
        assert_eq!(choose_shift("wq", outlier, 1..=16).unwrap(), 6);
        assert_eq!(choose_shift("wq", vec![2000.0; 9], 1..=16).unwrap(), 1);
        let error = choose_shift("wq", vec![40_000.0; 9], 1..=16).unwrap_err();
        assert!(error.to_string().contains("`wq`"), "{error}");
    }

    #[test]
    fn gains_fold_into_input_channels() {
        assert_eq!(
            fold(vec![1.0, 2.0, 3.0, 4.0], &[10.0, 0.5]),
            [10.0, 1.0, 30.0, 2.0]
        );
    }

    proptest! {
        #[test]
        fn matrices_round_to_half_a_multiplier(
            weights in prop::collection::vec(-1.0f32..1.0, 12),
            exponent in -3.0..15.0f64,
        ) {
            let scale = exponent.exp2() * 100.0;
            let (inn, out) = (4, 3);
            let mut tensor = Tensor::default();
            quantize_matrix(&weights, out, scale, &mut tensor);
            for o in 0..out {
                let m = f64::from(tensor.multipliers[o]);
                for i in 0..inn {
                    let committed = m * f64::from(tensor.values[i * out + o]);
                    let wanted = f64::from(weights[o * inn + i]) * scale;
                    prop_assert!((committed - wanted).abs() <= m / 2.0 + 1e-6);
                }
            }
        }

        #[test]
        fn single_channels_are_nearly_exact(committed in -8_300_000.0..8_300_000.0f64) {
            let (w, m) = quantize_single(committed);
            let error = (f64::from(w) * f64::from(m) - committed).abs();
            prop_assert!(w != i8::MIN && m >= 1);
            // Small values are exact but for their own rounding. Larger ones are at most half a byte away, and at most
            // one step where the multiplier is small.
            prop_assert!(error <= 0.5 + 64.0 * f64::from(u8::from(committed.abs() >= 128.0)));
            prop_assert!(error <= 0.5 + committed.abs() * 0.004);
        }
    }
}
