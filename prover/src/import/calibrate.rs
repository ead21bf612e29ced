//! How large every kind of value gets on text.
//!
//! The scales of the integer model are chosen from the largest values that the float model shows on a calibration text:
//! windows of the text itself, half of them after an end-of-text token since real models treat the first position in a
//! special way, and continuations by the model, greedy and sampled, since that is what it will be asked for. The text
//! is bundled, or the user's own; held-out text that the report is measured on must not be used here.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::config::Config;
use super::float::{FloatModel, Observer, Site, argmax};
use crate::model::SplitMix;

/// Positions of a calibration window.
const WINDOW: usize = 256;
/// Tokens of a window that a continuation starts from.
const PROMPT: usize = 12;
/// Continuations, half of them greedy.
const CONTINUATIONS: usize = 16;
/// Tokens of a continuation.
const LENGTH: usize = 64;
/// Weights that all steps of a continuation may convert together; a model of billions of weights gets fewer steps.
const CONVERSIONS: u64 = 1 << 34;

/// Size of one kind of value in one layer.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Stat {
    /// Largest absolute value.
    pub max: f64,
    /// Sum of squares.
    pub squares: f64,
    /// How many values.
    pub count: u64,
}

impl Stat {
    fn merge(self, other: Self) -> Self {
        Self {
            max: self.max.max(other.max),
            squares: self.squares + other.squares,
            count: self.count + other.count,
        }
    }

    /// Root mean square.
    pub fn rms(&self) -> f64 {
        (self.squares / self.count.max(1) as f64).sqrt()
    }
}

/// Sizes of all kinds of values in all layers.
#[derive(Debug, Clone, Default)]
pub struct Ranges {
    stats: BTreeMap<(Site, usize), Stat>,
}

impl Observer for Ranges {
    fn observe(&mut self, site: Site, layer: usize, values: &[f32]) {
        let new = values
            .par_chunks(1 << 14)
            .map(|chunk| {
                chunk.iter().fold(Stat::default(), |stat, &x| Stat {
                    // What is no number is larger than any, and not left out as `max` would.
                    max: if x.is_nan() {
                        f64::INFINITY
                    } else {
                        stat.max.max(f64::from(x.abs()))
                    },
                    squares: stat.squares + f64::from(x) * f64::from(x),
                    count: stat.count + 1,
                })
            })
            .reduce(Stat::default, Stat::merge);
        let stat = self.stats.entry((site, layer)).or_default();
        *stat = stat.merge(new);
    }
}

impl Ranges {
    /// The values of a kind in a layer; zero where none were seen.
    pub fn layer(&self, site: Site, layer: usize) -> Stat {
        self.stats.get(&(site, layer)).copied().unwrap_or_default()
    }

    /// The first kind of value, and its layer, that was not a finite number.
    pub fn infinite(&self) -> Option<(Site, usize)> {
        let mut stats = self.stats.iter();
        stats
            .find(|(_, stat)| stat.max.is_infinite())
            .map(|(&at, _)| at)
    }

    /// The values of a kind in all layers.
    pub fn all(&self, site: Site) -> Stat {
        self.stats
            .iter()
            .filter(|((s, _), _)| *s == site)
            .fold(Stat::default(), |stat, (_, &new)| stat.merge(new))
    }
}

/// Runs the float model over the calibration tokens and over its own continuations of them. Returns the ranges and how
/// many positions were seen.
pub fn calibrate(
    config: &Config,
    model: FloatModel<'_>,
    tokens: &[u32],
    parameters: u64,
    progress: &dyn Fn(&str, u64, u64),
) -> (Ranges, u64) {
    let window = WINDOW.min(config.sizes.max_position_embeddings);
    // One token less than a window, to leave room for the end-of-text token in front.
    let windows: Vec<Vec<u32>> = tokens
        .chunks(window.max(2) - 1)
        .enumerate()
        .map(|(i, chunk)| {
            let first = (i % 2 == 0).then_some(config.eos_token);
            first.into_iter().chain(chunk.iter().copied()).collect()
        })
        .collect();
    let mut ranges = Ranges::default();
    let mut positions = 0;
    let groups = windows.len().div_ceil(8) as u64;
    for (i, group) in windows.chunks(8).enumerate() {
        progress("calibration text", i as u64, groups);
        let group: Vec<&[u32]> = group.iter().map(Vec::as_slice).collect();
        let mut session = model.session(group.len());
        let pass = model.advance(&mut session, &group, &mut ranges);
        let vocab = config.sizes.num_hidden_layers;
        model.logits(&pass.hidden, |_, logits| {
            ranges.observe(Site::Logit, vocab, logits);
        });
        positions += group.iter().map(|w| w.len() as u64).sum::<u64>();
    }
    progress("calibration text", groups, groups);
    positions += continuations(config, model, tokens, parameters, &mut ranges, progress);
    (ranges, positions)
}

/// Lets the model continue pieces of the text, greedily and by sampling, and watches.
fn continuations(
    config: &Config,
    model: FloatModel<'_>,
    tokens: &[u32],
    parameters: u64,
    ranges: &mut Ranges,
    progress: &dyn Fn(&str, u64, u64),
) -> u64 {
    let context = config.sizes.max_position_embeddings;
    let prompt = PROMPT.min(context.div_ceil(2)).min(tokens.len());
    let affordable = (CONVERSIONS / parameters.max(1)).clamp(4, LENGTH as u64) as usize;
    let length = affordable.min(context - prompt);
    let step = (tokens.len() - prompt) / CONTINUATIONS;
    let mut next: Vec<Vec<u32>> = (0..CONTINUATIONS)
        .map(|i| tokens[i * step..i * step + prompt].to_vec())
        .collect();
    let mut session = model.session(CONTINUATIONS);
    let mut random = SplitMix::new(1);
    let mut positions = 0;
    for i in 0..=length {
        progress("calibration by continuation", i as u64, length as u64 + 1);
        let new: Vec<&[u32]> = next.iter().map(Vec::as_slice).collect();
        positions += new.iter().map(|n| n.len() as u64).sum::<u64>();
        let pass = model.advance(&mut session, &new, ranges);
        let hidden = config.sizes.hidden_size;
        // The last row of every sequence decides its next token.
        let mut end = 0;
        let mut last = Vec::new();
        for new in new {
            end += new.len() * hidden;
            last.extend(&pass.hidden[end - hidden..end]);
        }
        let mut chosen = Vec::new();
        let layer = config.sizes.num_hidden_layers;
        model.logits(&last, |row, logits| {
            ranges.observe(Site::Logit, layer, logits);
            let token = if row % 2 == 0 {
                argmax(logits)
            } else {
                sample(logits, &mut random)
            };
            chosen.push(vec![token as u32]);
        });
        next = chosen;
        if i + 1 + prompt > context {
            break;
        }
    }
    progress(
        "calibration by continuation",
        length as u64 + 1,
        length as u64 + 1,
    );
    positions
}

/// A token drawn with the probabilities of the logits.
fn sample(logits: &[f32], random: &mut SplitMix) -> usize {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weight = |x: f32| f64::from(x - max).exp();
    let total: f64 = logits.iter().map(|&x| weight(x)).sum();
    let mut left = random.unit() * total;
    for (i, &x) in logits.iter().enumerate() {
        left -= weight(x);
        if left < 0.0 {
            return i;
        }
    }
    argmax(logits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::tests::bundled;

    #[test]
    fn ranges_merge() {
        let mut ranges = Ranges::default();
        ranges.observe(Site::Gate, 0, &[1.0, -3.0]);
        ranges.observe(Site::Gate, 1, &vec![2.0; 40_000]);
        ranges.observe(Site::Up, 1, &[9.0]);
        assert!((ranges.layer(Site::Gate, 0).max - 3.0).abs() < 1e-12);
        assert!((ranges.layer(Site::Gate, 1).rms() - 2.0).abs() < 1e-12);
        assert_eq!(ranges.all(Site::Gate).count, 40_002);
        assert_eq!(ranges.layer(Site::Key, 0), Stat::default());
        assert_eq!(ranges.infinite(), None);
    }

    #[test]
    fn what_is_no_number_is_kept_in_mind() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut ranges = Ranges::default();
            ranges.observe(Site::Up, 1, &[2.0, bad, 3.0]);
            ranges.observe(Site::Up, 1, &[4.0]);
            assert_eq!(ranges.infinite(), Some((Site::Up, 1)), "{bad}");
        }
    }

    #[test]
    fn samples_follow_the_probabilities() {
        let mut random = SplitMix::new(7);
        let logits = [0.0, (3f32).ln(), f32::NEG_INFINITY];
        let mut counts = [0; 3];
        for _ in 0..4000 {
            counts[sample(&logits, &mut random)] += 1;
        }
        assert_eq!(counts[2], 0);
        assert!((900..1100).contains(&counts[0]), "{counts:?}");
    }

    #[test]
    fn a_short_text_is_enough_and_runs_are_repeatable() {
        let (config, checkpoint) = bundled();
        let model = FloatModel::new(&config, &checkpoint);
        let run = || calibrate(&config, model, &[47, 78, 377], 1 << 31, &|_, _, _| {});
        let (a, positions) = run();
        let (b, _) = run();
        assert_eq!(positions, 4 + 16 * (3 + 8));
        for site in [Site::Residual, Site::Product, Site::Logit] {
            assert!((a.all(site).max - b.all(site).max).abs() < 1e-12);
        }
    }
}
