//! How the public sizes of a batch are rounded up, so that they tell less about the requests.
//!
//! A header states the length of every request, the load of every expert that takes part, and the number of decoded
//! rows. Loads follow from routing, and routing from prompts: whoever knows the weights, or watched enough of them at
//! work, can compare a guess of a prompt with the loads that it would have. What is rounded away costs rows that are
//! proved for nothing.

use zkmoe_verifier::batch::row_limit;

use super::Block;
use crate::infer::POSITION_MULTIPLE;

/// Decoded rows are rounded up to a multiple of this number. No verifier knows it: a header may state any number.
pub const DECODED_MULTIPLE: usize = 8;
/// Default of the number to a multiple of which loads are rounded up.
pub const LOAD_MULTIPLE: usize = 8;

/// How many rows each expert of each layer gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loads {
    /// Loads are rounded up to a multiple of this number (0 counts as 1), and experts that no token chose get as many
    /// rows: whether an expert was used does not show.
    Multiple(usize),
    /// Loads as they are; experts that no token chose take no part.
    Exact,
    /// All experts of all layers get what the busiest of them needs, rounded up to a multiple of [`LOAD_MULTIPLE`]: one
    /// number shows.
    Hidden,
}

impl Loads {
    /// The blocks of a batch, by layer, then expert. `chosen` holds for each expert of each layer how many rows tokens
    /// need, `experts` of them for one layer; `positions` is the sum of all padded lengths.
    ///
    /// Each block has at least the rows that tokens need. None has more than a header may state, which takes a multiple
    /// that is no power of two; no expert needs more than that, since a token chooses it once.
    pub fn blocks(self, chosen: &[usize], experts: usize, positions: usize) -> Vec<Block> {
        let limit = row_limit(positions);
        let round = |rows: usize, multiple: usize| {
            let rounded = rows.max(1).next_multiple_of(multiple.max(1));
            rounded.min(limit).max(rows)
        };
        let busiest = chosen.iter().copied().max().unwrap_or(0);
        chosen
            .iter()
            .enumerate()
            .map(|(n, &rows)| Block {
                layer: n / experts,
                expert: n % experts,
                load: match self {
                    Self::Multiple(multiple) => round(rows, multiple),
                    Self::Exact => rows,
                    Self::Hidden => round(busiest, LOAD_MULTIPLE),
                },
            })
            .filter(|block| block.load > 0)
            .collect()
    }
}

/// How all public sizes of a batch are rounded up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Padding {
    /// Whether lengths and the number of decoded rows become powers of two, and not only multiples of eight.
    pub powers_of_two: bool,
    /// The loads of experts.
    pub loads: Loads,
}

impl Default for Padding {
    fn default() -> Self {
        Loads::Multiple(LOAD_MULTIPLE).into()
    }
}

impl From<Loads> for Padding {
    fn from(loads: Loads) -> Self {
        Self {
            powers_of_two: false,
            loads,
        }
    }
}

impl Padding {
    /// The padded length of a request with `positions` tokens under a model with a context of `context` positions.
    ///
    /// Powers of two end at the context: where the next one would not fit, the length is the context itself. A request
    /// that fits in no way gets a length above the context, which the model refuses.
    pub fn length(self, positions: usize, context: usize) -> usize {
        if self.powers_of_two && positions <= context {
            let least = positions.max(POSITION_MULTIPLE);
            least.next_power_of_two().min(context)
        } else {
            positions.next_multiple_of(POSITION_MULTIPLE)
        }
    }

    /// The rows for `tokens` decoded tokens of all requests together.
    pub fn decoded(self, tokens: usize) -> usize {
        let rows = tokens.max(1).next_multiple_of(DECODED_MULTIPLE);
        if self.powers_of_two {
            rows.next_power_of_two()
        } else {
            rows
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two layers of four experts; tokens chose five of these.
    const CHOSEN: [usize; 8] = [3, 0, 16, 0, 8, 9, 0, 2];

    fn loads(loads: Loads) -> Vec<(usize, usize, usize)> {
        let blocks = loads.blocks(&CHOSEN, 4, 24);
        blocks.iter().map(|b| (b.layer, b.expert, b.load)).collect()
    }

    /// The load of every expert of both layers.
    fn all(found: &[(usize, usize, usize)]) -> Vec<usize> {
        let places: Vec<_> = found.iter().map(|b| (b.0, b.1)).collect();
        let expected: Vec<_> = (0..8).map(|n| (n / 4, n % 4)).collect();
        assert_eq!(places, expected);
        found.iter().map(|b| b.2).collect()
    }

    #[test]
    fn unused_experts_look_like_experts_of_few_tokens() {
        assert_eq!(all(&loads(Loads::Multiple(8))), [8, 8, 16, 8, 8, 16, 8, 8]);
        assert_eq!(all(&loads(Loads::Multiple(5))), [5, 5, 20, 5, 10, 10, 5, 5]);
        let ones = [3, 1, 16, 1, 8, 9, 1, 2];
        assert_eq!(all(&loads(Loads::Multiple(1))), ones);
        assert_eq!(all(&loads(Loads::Multiple(0))), ones);
    }

    #[test]
    fn exact_loads_leave_unused_experts_out() {
        let expected = [(0, 0, 3), (0, 2, 16), (1, 0, 8), (1, 1, 9), (1, 3, 2)];
        assert_eq!(loads(Loads::Exact), expected);
    }

    #[test]
    fn hidden_loads_are_one_number() {
        assert_eq!(all(&loads(Loads::Hidden)), [16; 8]);
        let blocks = Loads::Hidden.blocks(&[17, 0], 2, 24);
        assert!(blocks.iter().all(|b| b.load == 24));
    }

    #[test]
    fn loads_stay_below_the_limit_of_headers_and_above_what_tokens_need() {
        for positions in [1, 8, 1000, 1024, 1032, 3000, 1 << 20] {
            let limit = row_limit(positions);
            for multiple in [1, 7, 8, 1000, 1023, 1024] {
                for rows in [0, 1, positions / 2, positions - 1, positions] {
                    for loads in [Loads::Multiple(multiple), Loads::Hidden] {
                        let block = loads.blocks(&[rows], 1, positions)[0];
                        assert!(
                            (rows.max(1)..=limit).contains(&block.load),
                            "{loads:?}: {rows} of {positions} rows become {}",
                            block.load
                        );
                    }
                }
            }
        }
        // The multiple is kept where it can be.
        assert_eq!(Loads::Multiple(1024).blocks(&[3], 1, 8)[0].load, 1024);
        assert_eq!(Loads::Multiple(1000).blocks(&[1001], 1, 1010)[0].load, 1024);
    }

    #[test]
    fn lengths_are_multiples_of_eight_or_powers_of_two() {
        let eights = Padding::default();
        let powers = Padding {
            powers_of_two: true,
            ..eights
        };
        for (positions, eight, power) in [
            (1, 8, 8),
            (8, 8, 8),
            (9, 16, 16),
            (17, 24, 32),
            (32, 32, 32),
            // The largest power of two below the context of 43 is 32.
            (33, 40, 43),
            (43, 48, 43),
            // Nothing makes this fit.
            (44, 48, 48),
        ] {
            assert_eq!(eights.length(positions, 43), eight, "{positions}");
            assert_eq!(powers.length(positions, 43), power, "{positions}");
        }
        assert_eq!(powers.length(40, 64), 64);
        assert_eq!(powers.length(3, 5), 5);
        assert_eq!(
            [0, 1, 8, 9, 17].map(|n| eights.decoded(n)),
            [8, 8, 8, 16, 24]
        );
        assert_eq!(
            [0, 1, 8, 9, 17].map(|n| powers.decoded(n)),
            [8, 8, 8, 16, 32]
        );
    }
}
