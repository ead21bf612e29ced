//! What a proof will cost, told before the work starts.
//!
//! Nearly all of the cost is linear in three numbers that follow from the lengths of the replies: cells that are
//! committed, cells that are looked up, and weights. The columns of the code add a part that is fixed by the model. The
//! relation itself says how many of each there are. Only how the router will spread tokens over experts is unknown; the
//! estimate assumes that it spreads them evenly, but for one expert that is as busy as the busiest usually is.

use serde::Serialize;
use zkmoe_commit::params::{MAX_ROWS, Params};
use zkmoe_prover::trace::Padding;
use zkmoe_verifier::batch::{MAX_POSITIONS, MAX_REQUESTS};
use zkmoe_verifier::header::{Header, Sizes};
use zkmoe_verifier::limits::MAX_CELLS;
use zkmoe_verifier::olmoe;
use zkmoe_verifier::relation::{BatchShape, Dims, Round};

// The constants below were fitted to batches of 40 to 168 positions of the bundled model on two cores. For other sizes
// they are a guess, until they are measured there.

/// Bytes held for each committed cell of the trace: its value and its place in a row.
const BYTES_PER_CELL: f64 = 16.0;
/// Bytes held for each lookup: its tuple and the layers of its tree of fractions.
const BYTES_PER_LOOKUP: f64 = 46.0;
/// Bytes held for each weight: the file and its committed value.
const BYTES_PER_WEIGHT: f64 = 16.0;
/// Bytes held for each column of the code: the key, and the codewords that are being made.
const BYTES_PER_COLUMN: f64 = 300.0;
/// Nanoseconds of all cores together for each committed cell of the trace.
const NANOSECONDS_PER_CELL: f64 = 460.0;
/// Nanoseconds of all cores together for each lookup.
const NANOSECONDS_PER_LOOKUP: f64 = 460.0;
/// Nanoseconds of all cores together for each weight.
const NANOSECONDS_PER_WEIGHT: f64 = 250.0;
/// Nanoseconds of all cores together for each column of the code.
const NANOSECONDS_PER_COLUMN: f64 = 4400.0;

/// How much busier than all experts on average the busiest is: two to three times in batches of the bundled model. It
/// counts where loads are hidden, since all experts then get its load.
const BUSIEST: usize = 3;

/// The lengths of one reply, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lengths {
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Tokens of the response.
    pub response: usize,
}

/// What a proof will cost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// Positions of all requests, padding included.
    pub positions: usize,
    /// Cells that are committed for this batch.
    pub cells: u64,
    /// Lookups.
    pub lookups: u64,
    /// Memory at the peak, in bytes.
    pub memory_bytes: u64,
    /// Wall time on the cores of this machine.
    pub seconds: f64,
}

/// The public shape that a batch has if the router spreads tokens evenly, but for one busy expert.
pub fn likely_shape(sizes: &Sizes, replies: &[Lengths], padding: Padding) -> BatchShape {
    let lengths: Vec<usize> = replies
        .iter()
        .map(|r| padding.length(r.prompt + r.response, sizes.max_position_embeddings))
        .collect();
    let positions: usize = lengths.iter().sum();
    let experts = sizes.num_experts;
    let rows = positions * sizes.num_experts_per_tok;
    let even = |e: usize| rows / experts + usize::from(e < rows % experts);
    let mut chosen: Vec<usize> = (0..sizes.num_hidden_layers)
        .flat_map(|_| (0..experts).map(even))
        .collect();
    chosen[0] = (BUSIEST * chosen[0]).min(positions);
    let blocks = padding
        .loads
        .blocks(&chosen, experts, positions)
        .iter()
        .map(|b| (b.layer, b.expert, b.load))
        .collect();
    let decoded = padding.decoded(replies.iter().map(|r| r.response).sum());
    BatchShape {
        lengths,
        blocks,
        decoded,
    }
}

/// Estimates the cost of a batch on `cores` cores, or says why no verifier would take it.
pub fn estimate(
    header: &Header,
    params: &Params,
    weights: u64,
    replies: &[Lengths],
    padding: Padding,
    cores: usize,
) -> Result<Estimate, String> {
    if replies.len() > MAX_REQUESTS {
        return Err(format!(
            "a batch has at most {MAX_REQUESTS} replies, these are {}",
            replies.len()
        ));
    }
    let shape = likely_shape(&header.sizes, replies, padding);
    let positions = shape.lengths.iter().sum();
    if positions > MAX_POSITIONS {
        return Err(format!(
            "a batch has at most {MAX_POSITIONS} positions, these replies have {positions}"
        ));
    }
    let relation = olmoe::relation(header);
    let dims = Dims::new(header.sizes.clone(), shape);
    let cells: u64 = relation
        .tensors
        .iter()
        .filter(|t| t.round != Round::Model)
        .map(|t| dims.shape(&t.axes).len() as u64 * if t.extension { 2 } else { 1 })
        .sum();
    let lookups: u64 = relation
        .lookups
        .iter()
        .map(|l| dims.shape(&l.out).len() as u64)
        .sum();
    let all = weights + cells + lookups;
    if all > MAX_CELLS || all >> params.log_row > MAX_ROWS as u64 / 2 {
        return Err("these replies together are more than one proof may hold".to_owned());
    }
    let columns = 1u64 << params.log_code;
    let sum = |constants: [f64; 4]| {
        let numbers = [cells, lookups, weights, columns];
        let parts = constants.iter().zip(numbers);
        parts.map(|(constant, n)| constant * n as f64).sum::<f64>()
    };
    let memory = sum([
        BYTES_PER_CELL,
        BYTES_PER_LOOKUP,
        BYTES_PER_WEIGHT,
        BYTES_PER_COLUMN,
    ]);
    let work = sum([
        NANOSECONDS_PER_CELL,
        NANOSECONDS_PER_LOOKUP,
        NANOSECONDS_PER_WEIGHT,
        NANOSECONDS_PER_COLUMN,
    ]);
    Ok(Estimate {
        positions,
        cells,
        lookups,
        memory_bytes: memory as u64,
        seconds: work * 1e-9 / cores.max(1) as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use zkmoe_prover::model::random_model;
    use zkmoe_prover::trace::Loads;

    fn sizes() -> Sizes {
        Sizes {
            vocab_size: 40,
            hidden_size: 12,
            intermediate_size: 6,
            num_hidden_layers: 2,
            num_key_value_heads: 2,
            query_group: 2,
            head_dim: 4,
            num_experts: 5,
            num_experts_per_tok: 2,
            max_position_embeddings: 32,
        }
    }

    #[test]
    fn longer_batches_cost_more() {
        let model = random_model(&sizes(), 1);
        let params = Params::choose(model.parameters() as usize, 1);
        let padded = |n: usize, padding| {
            let replies = vec![
                Lengths {
                    prompt: 3,
                    response: 9
                };
                n
            ];
            let (header, weights) = (model.header(), model.parameters());
            estimate(header, &params, weights, &replies, padding, 2)
        };
        let cost = |n| padded(n, Padding::default());
        let (one, four) = (cost(1).unwrap(), cost(4).unwrap());
        assert_eq!((one.positions, four.positions), (16, 64));
        assert!(four.cells > one.cells && four.lookups > one.lookups && four.seconds > one.seconds);
        assert!(cost(MAX_REQUESTS + 1).unwrap_err().contains("4096"));
        let [exact, rounded, hidden] = [Loads::Exact, Loads::Multiple(8), Loads::Hidden]
            .map(|loads| padded(4, loads.into()).unwrap().cells);
        assert!(exact < rounded && rounded < hidden);
    }

    #[test]
    fn experts_are_spread_evenly_but_for_one() {
        let shape = |prompt, padding| {
            let replies = [Lengths {
                prompt,
                response: 9,
            }];
            likely_shape(&sizes(), &replies, padding)
        };
        let loads = |shape: &BatchShape| shape.blocks.iter().map(|b| b.2).collect::<Vec<_>>();
        // 32 rows over five experts are six or seven each; no expert serves more than 16 positions.
        let exact = shape(3, Loads::Exact.into());
        assert_eq!((&exact.lengths[..], exact.decoded), (&[16][..], 16));
        assert_eq!(loads(&exact), [16, 7, 6, 6, 6, 7, 7, 6, 6, 6]);
        let rounded = shape(3, Padding::default());
        assert_eq!(loads(&rounded), [16, 8, 8, 8, 8, 8, 8, 8, 8, 8]);
        assert_eq!(loads(&shape(3, Loads::Hidden.into())), [16; 10]);
        let powers = Padding {
            powers_of_two: true,
            loads: Loads::Hidden,
        };
        // 26 positions become 32, with 64 rows over five experts.
        assert_eq!(shape(17, powers).lengths, [32]);
        assert_eq!(loads(&shape(17, powers)), [32; 10]);
    }
}
