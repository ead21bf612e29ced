//! Greedy decoding of one reply that can always be proved.
//!
//! A proof covers a transcript padded to a multiple of eight positions, and padding positions run through the model
//! like any others. So a reply is complete only when its padding has been run too. If that overflows, the reply loses
//! its last token and the shorter transcript is padded and run, and so on. This ends: a transcript whose length is a
//! multiple of eight needs no padding, and all of its positions have been run.
//!
//! For the same reason tokens are released in groups. A token is handed to the caller once every position up to the
//! next multiple of eight has been run, or when the reply is complete. What has been released is never taken back,
//! and no token is released that could not be proved.

use std::ops::ControlFlow;

use super::{InferError, Overflow, POSITION_MULTIPLE, Session};
use crate::model::Model;

/// Why a reply ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The model ended the text; the end token is part of the reply.
    Eos,
    /// The reply has as many tokens as were asked for.
    Limit,
    /// The context is full.
    Context,
    /// The caller asked to stop.
    Stopped,
    /// A value left its range; the reply is what can be proved without it.
    Overflow(Overflow),
}

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generation {
    /// The token ids of the reply.
    pub response_ids: Vec<u32>,
    /// Why it ended.
    pub ended: Ended,
}

/// Decodes at most `max_tokens` tokens after the prompt; ties go to the lowest token id.
///
/// `on_token` gets each token of the reply when it is released, see the module's documentation. To break off takes
/// effect at the end of the released group, which is delivered whole.
///
/// Fails if the prompt is empty, does not fit the context with one token of reply, or overflows, and if nothing is left
/// of a reply that had to be cut.
pub fn generate(
    model: &Model,
    prompt_ids: &[u32],
    max_tokens: usize,
    mut on_token: impl FnMut(u32) -> ControlFlow<()>,
) -> Result<Generation, InferError> {
    let header = model.header();
    // The padded transcript must fit the context.
    let available = header.sizes.max_position_embeddings / POSITION_MULTIPLE * POSITION_MULTIPLE;
    let prompt = prompt_ids.len();
    if prompt == 0 {
        return Err(InferError::Empty);
    }
    if prompt >= available {
        return Err(InferError::Context {
            needed: prompt + 1,
            available,
        });
    }
    let mut session = Session::new(model);
    session.extend(prompt_ids)?;
    let mut response: Vec<u32> = Vec::new();
    let mut released = 0;
    let mut release = |response: &[u32], released: &mut usize| {
        let mut flow = ControlFlow::Continue(());
        for &token in &response[*released..] {
            if on_token(token).is_break() {
                flow = ControlFlow::Break(());
            }
        }
        *released = response.len();
        flow
    };

    let mut ended = loop {
        if response.len() >= max_tokens {
            break Ended::Limit;
        }
        if prompt + response.len() >= available {
            break Ended::Context;
        }
        let next = match session.next_token() {
            Ok(next) => next,
            Err(InferError::Overflow(overflow)) => break Ended::Overflow(overflow),
            Err(error) => return Err(error),
        };
        response.push(next);
        if next == header.eos_token {
            break Ended::Eos;
        }
        if let Err(error) = session.push(next) {
            match error {
                InferError::Overflow(overflow) => break Ended::Overflow(overflow),
                error => return Err(error),
            }
        }
        if session.len().is_multiple_of(POSITION_MULTIPLE)
            && release(&response, &mut released).is_break()
        {
            break Ended::Stopped;
        }
    };

    loop {
        let len = prompt + response.len();
        session.truncate(len);
        let mut rest = response[session.len() - prompt..].to_vec();
        rest.resize(
            len.next_multiple_of(POSITION_MULTIPLE) - session.len(),
            header.pad_token,
        );
        match session.extend(&rest) {
            Ok(()) => break,
            Err(InferError::Overflow(overflow)) => {
                if response.pop().is_none() {
                    return Err(overflow.into());
                }
                ended = Ended::Overflow(overflow);
            }
            Err(error) => return Err(error),
        }
    }
    match ended {
        Ended::Overflow(overflow) if response.is_empty() => Err(overflow.into()),
        ended => {
            // The reply is over, so a wish to stop changes nothing.
            let _ = release(&response, &mut released);
            Ok(Generation {
                response_ids: response,
                ended,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        infer::{
            forward,
            tests::{micro, tokens},
        },
        model::{Tensor, WeightId, random_model},
        trace::{Padding, RequestTokens, TraceError, build_trace},
    };

    /// A random model without an end token in reach, whose padding token has the largest embedding, at the edge of the
    /// residual stream. The output projection is `boost` times as strong as in other tests: at 1 nothing overflows, and
    /// from a few tens on it may take a padding position over the edge.
    fn model_with_padding(seed: u64, boost: u16) -> Model {
        let base = random_model(&micro(), seed);
        let mut header = base.header().clone();
        // No prompt of these tests holds the last token, and its row of the head is made the least.
        let last = header.sizes.vocab_size - 1;
        header.pad_token = last as u32;
        header.eos_token = last as u32;
        let width = header.sizes.hidden_size;
        let mut parts: Vec<Tensor> = WeightId::ALL
            .into_iter()
            .map(|id| Tensor {
                values: base.values(id).to_vec(),
                multipliers: base.multipliers(id).to_vec(),
            })
            .collect();
        let embedding = &mut parts[WeightId::Emb.index()];
        embedding.multipliers[last * width..].fill(u16::MAX);
        for value in &mut embedding.values[last * width..] {
            *value = if *value < 0 { -127 } else { 127 };
        }
        for multiplier in &mut parts[WeightId::Wo.index()].multipliers {
            *multiplier *= boost;
        }
        for line in parts[WeightId::Wh.index()].values.chunks_mut(last + 1) {
            line[last] = 0;
        }
        Model::from_parts(header, parts, base.tokenizer_json().to_vec()).unwrap()
    }

    fn all(model: &Model, prompt: &[u32], max_tokens: usize) -> Result<Generation, InferError> {
        let mut seen = Vec::new();
        let result = generate(model, prompt, max_tokens, |token| {
            seen.push(token);
            ControlFlow::Continue(())
        });
        let released = result.as_ref().map_or(&[][..], |g| &g.response_ids[..]);
        assert_eq!(seen, released, "what is released is the reply");
        result
    }

    /// The longest part of a reply whose padded transcript runs, found by trying all of them.
    fn longest(model: &Model, prompt: &[u32], count: usize) -> usize {
        let mut ids = prompt.to_vec();
        let mut best = 0;
        for k in 1..=count {
            let Ok(pass) = forward(model, &ids) else {
                break;
            };
            let logits = pass.logits(ids.len() - 1);
            let max = logits.iter().max().unwrap();
            ids.push(logits.iter().position(|x| x == max).unwrap() as u32);
            let mut padded = ids.clone();
            padded.resize(
                ids.len().next_multiple_of(POSITION_MULTIPLE),
                model.header().pad_token,
            );
            if forward(model, &padded).is_ok() {
                best = k;
            }
        }
        best
    }

    #[test]
    fn replies_are_greedy_and_end_where_they_should() {
        let model = model_with_padding(1, 1);
        let prompt = tokens(5, 36, 1);
        let reply = all(&model, &prompt, 20).unwrap();
        assert_eq!(
            (reply.response_ids.len(), &reply.ended),
            (20, &Ended::Limit)
        );
        let shorter = all(&model, &prompt, 7).unwrap();
        assert_eq!(shorter.response_ids, reply.response_ids[..7]);
        let ids = [&prompt[..], &reply.response_ids].concat();
        let pass = forward(&model, &ids).unwrap();
        for t in 4..24 {
            let logits = pass.logits(t);
            let next = logits[ids[t + 1] as usize];
            assert!(logits.iter().all(|&x| x <= next));
        }
        // 43 positions hold 40 that a padded transcript can use.
        let full = all(&model, &prompt, 1000).unwrap();
        assert_eq!(
            (full.response_ids.len(), &full.ended),
            (35, &Ended::Context)
        );
        let none = all(&model, &prompt, 0).unwrap();
        assert_eq!((none.response_ids.len(), &none.ended), (0, &Ended::Limit));
        assert!(matches!(all(&model, &[], 3), Err(InferError::Empty)));
        let long = tokens(40, 36, 1);
        assert!(matches!(
            all(&model, &long, 3),
            Err(InferError::Context { .. })
        ));
    }

    #[test]
    fn the_end_token_ends_the_reply() {
        let model = model_with_padding(1, 1);
        let prompt = tokens(5, 36, 1);
        let reply = all(&model, &prompt, 20).unwrap().response_ids;
        let mut header = model.header().clone();
        header.eos_token = reply[9];
        let parts = WeightId::ALL.map(|id| Tensor {
            values: model.values(id).to_vec(),
            multipliers: model.multipliers(id).to_vec(),
        });
        let model = Model::from_parts(header, parts.to_vec(), b"{}".to_vec()).unwrap();
        let first = reply.iter().position(|&t| t == reply[9]).unwrap();
        let ended = all(&model, &prompt, 20).unwrap();
        assert_eq!(ended.ended, Ended::Eos);
        assert_eq!(ended.response_ids, reply[..=first]);
    }

    #[test]
    fn breaking_off_keeps_the_released_group() {
        let model = model_with_padding(2, 1);
        let prompt = tokens(5, 36, 2);
        let mut seen = 0;
        let reply = generate(&model, &prompt, 20, |_| {
            seen += 1;
            if seen == 4 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
        .unwrap();
        // The groups end at positions 8, 16, ...: three tokens, then eight.
        assert_eq!((reply.response_ids.len(), seen), (11, 11));
        assert_eq!(reply.ended, Ended::Stopped);
    }

    #[test]
    fn padding_that_always_overflows_cuts_to_a_multiple() {
        let model = model_with_padding(3, 200);
        let prompt = tokens(5, 36, 3);
        let reply = all(&model, &prompt, 9).unwrap();
        assert_eq!(reply.response_ids.len(), 3);
        assert!(matches!(reply.ended, Ended::Overflow(_)));
        let exact = all(&model, &prompt, 11).unwrap();
        assert_eq!(
            (exact.response_ids.len(), &exact.ended),
            (11, &Ended::Limit)
        );
        assert!(matches!(
            all(&model, &prompt, 2),
            Err(InferError::Overflow(_))
        ));
        assert!(matches!(
            all(&model, &prompt, 0),
            Err(InferError::Overflow(_))
        ));
    }

    #[test]
    fn a_cut_reply_is_the_longest_that_can_be_proved() {
        let (mut cut, mut refused) = (0, 0);
        for seed in 0..40 {
            // Overflows of these sizes depend on what stands before the padding.
            let model = model_with_padding(seed, 12 + 2 * seed as u16);
            let prompt = tokens(1 + seed as usize % 7, 36, seed);
            let count = 4 + seed as usize % 11;
            let best = longest(&model, &prompt, count);
            match all(&model, &prompt, count) {
                Ok(reply) => {
                    assert_eq!(reply.response_ids.len(), best, "seed {seed}");
                    assert_eq!(reply.ended != Ended::Limit, best < count);
                    cut += usize::from(best < count);
                    let request = RequestTokens {
                        prompt,
                        response: reply.response_ids,
                    };
                    let requests = [request];
                    let eights = build_trace(&model, &requests, Padding::default()).unwrap();
                    // More padding than was served may overflow, and only in what is added.
                    let powers = Padding {
                        powers_of_two: true,
                        ..Padding::default()
                    };
                    match build_trace(&model, &requests, powers) {
                        Ok(trace) => assert!(trace.padded[0].is_power_of_two()),
                        Err(TraceError::Infer {
                            request: 0,
                            error: InferError::Overflow(overflow),
                        }) => {
                            assert!(overflow.position >= eights.padded[0], "seed {seed}");
                            refused += 1;
                        }
                        Err(error) => panic!("seed {seed}: {error}"),
                    }
                }
                Err(error) => {
                    assert!(matches!(error, InferError::Overflow(_)));
                    assert_eq!(best, 0, "seed {seed}");
                }
            }
        }
        assert!(cut > 5, "{cut}");
        assert!(refused > 0, "no padding to a power of two overflowed");
    }
}
