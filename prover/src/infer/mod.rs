//! Integer inference: the arithmetic that is served and the arithmetic that is proved.
//!
//! There is one definition of a block, in [`block`]: it takes any number of new positions of one request together with
//! the keys and values of the positions before. Serving gives it one position at a time, a whole-sequence pass gives it
//! all of them, and the trace of a proof keeps its intermediate values. Integer sums do not depend on their order, so
//! all of these agree on every value.
//!
//! The model is a partial function: a value outside its range is an [`Overflow`], never clipped.

pub(crate) mod block;
mod generate;
pub(crate) mod product;
#[cfg(test)]
pub(crate) mod reference;
mod session;

use zkmoe_verifier::gadgets::OutOfRange;

use self::{
    block::{LayerCache, embed, head, layer},
    product::RowFault,
};
pub use self::{
    generate::{Ended, Generation, generate},
    session::Session,
};
use crate::model::Model;

/// Transcripts are padded to a multiple of this length, a public constant.
pub const POSITION_MULTIPLE: usize = 8;

/// A value left its range during inference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("overflow in {operator}, {}, position {position}: {fault}", place(*.layer))]
pub struct Overflow {
    /// The operator whose result does not fit.
    pub operator: &'static str,
    /// The layer; none after the last.
    pub layer: Option<usize>,
    /// The position in the transcript.
    pub position: usize,
    /// The value and its range.
    pub fault: OutOfRange,
}

fn place(layer: Option<usize>) -> String {
    layer.map_or_else(|| "head".to_owned(), |l| format!("layer {l}"))
}

/// Why inference did not give a result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InferError {
    /// A value left its range.
    #[error(transparent)]
    Overflow(#[from] Overflow),
    /// A token id is not in the vocabulary.
    #[error("token {token} at position {position} is not in the vocabulary of {vocab_size}")]
    Token {
        /// The token id.
        token: u32,
        /// The position at which it stands.
        position: usize,
        /// Entries of the vocabulary.
        vocab_size: usize,
    },
    /// The transcript does not fit the context.
    #[error(
        "{needed} positions do not fit the context of {available}: shorten the prompt or ask for less"
    )]
    Context {
        /// Positions that the request takes.
        needed: usize,
        /// Positions that the model has.
        available: usize,
    },
    /// There is no position whose next token could be computed.
    #[error("the prompt is empty: give it at least one token")]
    Empty,
}

/// Where a run of positions stands: what turns a fault in a row into an [`Overflow`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// The layer; none after the last.
    pub layer: Option<usize>,
    /// The position of row 0.
    pub start: usize,
}

impl Place {
    /// The fault of row `row` in `operator`.
    pub(crate) fn fault(
        self,
        operator: &'static str,
        row: usize,
    ) -> impl FnOnce(OutOfRange) -> Overflow {
        move |fault| Overflow {
            operator,
            layer: self.layer,
            position: self.start + row,
            fault,
        }
    }

    /// The fault of a product in `operator`.
    pub(crate) fn product(self, operator: &'static str) -> impl FnOnce(RowFault) -> Overflow {
        move |fault| self.fault(operator, fault.row)(fault.fault)
    }
}

/// Checks that `tokens`, which start at position `start`, are in the vocabulary and fit the context.
pub(crate) fn check_tokens(model: &Model, tokens: &[u32], start: usize) -> Result<(), InferError> {
    let sizes = model.sizes();
    let needed = start + tokens.len();
    if needed > sizes.max_position_embeddings {
        return Err(InferError::Context {
            needed,
            available: sizes.max_position_embeddings,
        });
    }
    match tokens.iter().position(|&t| t as usize >= sizes.vocab_size) {
        Some(i) => Err(InferError::Token {
            token: tokens[i],
            position: start + i,
            vocab_size: sizes.vocab_size,
        }),
        None => Ok(()),
    }
}

/// What a whole-sequence pass computes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forward {
    vocab_size: usize,
    experts_per_token: usize,
    logits: Vec<i32>,
    experts: Vec<Vec<u16>>,
}

impl Forward {
    /// How many positions were computed.
    pub fn positions(&self) -> usize {
        self.logits.len() / self.vocab_size
    }

    /// The logits at a position, in units of the head.
    pub fn logits(&self, position: usize) -> &[i32] {
        &self.logits[position * self.vocab_size..][..self.vocab_size]
    }

    /// The experts that served a position in a layer, ascending.
    pub fn experts(&self, layer: usize, position: usize) -> &[u16] {
        let k = self.experts_per_token;
        &self.experts[layer][position * k..][..k]
    }
}

/// Runs all positions of a sequence, without padding, and computes the logits of each of them.
pub fn forward(model: &Model, tokens: &[u32]) -> Result<Forward, InferError> {
    check_tokens(model, tokens, 0)?;
    let sizes = model.sizes();
    let mut x = embed(model, tokens);
    let mut experts = Vec::with_capacity(sizes.num_hidden_layers);
    for l in 0..sizes.num_hidden_layers {
        let pass = layer(model, l, &x, &mut LayerCache::default(), false)?;
        experts.push(
            pass.router
                .iter()
                .flat_map(|row| row.chosen.selected.iter().map(|&e| e as u16))
                .collect(),
        );
        x = pass.x;
    }
    Ok(Forward {
        vocab_size: sizes.vocab_size,
        experts_per_token: sizes.num_experts_per_tok,
        logits: head(model, &x, &|row| row)?.logits,
        experts,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use zkmoe_verifier::header::Sizes;

    use super::*;
    use crate::model::{SplitMix, Tensor, WeightId, random_model};

    pub(crate) fn micro() -> Sizes {
        Sizes {
            vocab_size: 37,
            hidden_size: 16,
            intermediate_size: 12,
            num_hidden_layers: 3,
            num_key_value_heads: 2,
            query_group: 2,
            head_dim: 4,
            num_experts: 5,
            num_experts_per_tok: 2,
            max_position_embeddings: 43,
        }
    }

    pub(crate) fn tokens(count: usize, vocab: usize, seed: u64) -> Vec<u32> {
        let mut random = SplitMix::new(seed);
        (0..count).map(|_| random.below(vocab as u32)).collect()
    }

    #[test]
    fn all_ways_through_the_model_agree() {
        let model = random_model(&micro(), 3);
        for count in [1, 2, 7, 8, 9, 31, 43] {
            let tokens = tokens(count, 37, count as u64);
            let whole = forward(&model, &tokens).unwrap();
            assert_eq!(whole.positions(), count);
            let mut steps = Session::new(&model);
            for (t, &token) in tokens.iter().enumerate() {
                steps.push(token).unwrap();
                assert_eq!(
                    steps.logits().unwrap(),
                    whole.logits(t),
                    "position {t} of {count}"
                );
            }
            let mut halves = Session::new(&model);
            let (first, second) = tokens.split_at(count / 2);
            halves.extend(first).unwrap();
            halves.extend(second).unwrap();
            assert_eq!(halves.logits().unwrap(), whole.logits(count - 1));
        }
    }

    #[test]
    fn the_definition_gives_the_same_logits() {
        for seed in 0..3 {
            let model = random_model(&micro(), seed);
            let tokens = tokens(13, 37, seed);
            let whole = forward(&model, &tokens).unwrap();
            let (layers, logits) = reference::run(&model, &tokens);
            for t in 0..13 {
                let found: Vec<i64> = whole.logits(t).iter().map(|&x| x.into()).collect();
                assert_eq!(found, logits[t], "position {t}");
                for l in 0..3 {
                    let selected: Vec<u16> = (0..5)
                        .filter(|&e| layers[t][l]["sel"][e as usize] == 1)
                        .collect();
                    assert_eq!(whole.experts(l, t), selected);
                }
            }
        }
    }

    #[test]
    fn later_tokens_change_nothing_before_them() {
        let model = random_model(&micro(), 4);
        let all = tokens(20, 37, 1);
        let whole = forward(&model, &all).unwrap();
        let part = forward(&model, &all[..11]).unwrap();
        for t in 0..11 {
            assert_eq!(whole.logits(t), part.logits(t));
            for l in 0..3 {
                assert_eq!(whole.experts(l, t), part.experts(l, t));
                assert_eq!(whole.experts(l, t).len(), 2);
            }
        }
    }

    #[test]
    fn overflows_are_named_and_leave_a_session_as_it_was() {
        let base = random_model(&micro(), 6);
        let mut header = base.header().clone();
        // Queries that leave 16 bits soon: 16 products of about 2^11 * 2^12, shifted by 3.
        header.scales.query_shift = 3;
        let parts = WeightId::ALL.map(|id| Tensor {
            values: base.values(id).to_vec(),
            multipliers: base.multipliers(id).to_vec(),
        });
        let model = Model::from_parts(header, parts.to_vec(), b"{}".to_vec()).unwrap();
        let tokens = tokens(6, 37, 1);
        let error = forward(&model, &tokens).unwrap_err();
        let InferError::Overflow(overflow) = &error else {
            panic!("{error}");
        };
        assert_eq!(overflow.operator, "query projection");
        assert_eq!((overflow.layer, overflow.position), (Some(0), 0));
        assert_eq!((overflow.fault.low, overflow.fault.high), (-32768, 32768));
        let message = error.to_string();
        assert!(
            message.starts_with("overflow in query projection, layer 0, position 0: value"),
            "{message}"
        );
        let mut session = Session::new(&model);
        assert_eq!(session.push(tokens[0]).unwrap_err(), error);
        assert!(session.is_empty());
        assert_eq!(session.next_token(), Err(InferError::Empty));
    }

    #[test]
    fn bad_tokens_and_lengths_are_named() {
        let model = random_model(&micro(), 5);
        let error = forward(&model, &[1, 2, 37]).unwrap_err();
        assert!(error.to_string().contains("token 37 at position 2"));
        let error = forward(&model, &[0; 44]).unwrap_err();
        assert!(error.to_string().contains("44 positions"));
    }
}
