//! The trace of a batch: every committed value of the relation that is not a multiplicity or a challenge's product.
//!
//! Every request runs through the model once, whole, padded as [`Padding`] says, by the same code that serves. Its
//! intermediate values become tensors of signed integers, row-major in these axes: `R` request, `L` layer, `S`
//! position, `U` earlier position, `I` hidden channel, `H` key head, `G` query head of its group, `C` half of a head,
//! `J` channel of a half, `E` expert, `A` active block, `N` row of a block, `F` inner channel of an expert, `M` decoded
//! row, `V` vocabulary.
//!
//! Where the first axis is `R`, all of request 0 comes first, with its own length as `S` and `U`, then request 1.
//! Where it is `A`, blocks have their load as `N`. A position has the id `(request << bits) | position`.
//!
//! | tensors | axes |
//! |---|---|
//! | `tok` `next` `dec` | R S |
//! | `x` | R L+1 S I |
//! | `xm` `comb.rem` | R L S I |
//! | `n1.*` `n2.*` `qn.*` `kn.*` for `z w4 w2 u r m f` | R L S |
//! | `n1.y` `n2.y` | R L S I |
//! | `q` `qn.y` `qr` `att.out` | R L S H G C J |
//! | `k` `v` `kn.y` `kr` | R L S H C J |
//! | `att.max` `att.sum` | R L H G S |
//! | `att.idx` `att.ex` `att.z` `att.e`, zero where U > S | R L H G S U |
//! | `rl` `sel` `rt.idx` `rt.ex` `rt.z` `rt.e` `gate` | R L S E |
//! | `theta` `rt.max` `rt.sum` | R L S |
//! | `row.tok` `row.gate` `row.real` | A N |
//! | `row.x` `ey` | A N I |
//! | `eg` `ea` `eu` `eh` | A N F |
//! | `dr.id` `dr.real` `nf.*` `am` `mk` | M |
//! | `dr.x` `nf.y` | M I |
//! | `lg` `lg.z` | M V |
//!
//! Rows that fill a block or the decoded rows up to their public number hold what the model computes for a row of
//! zeros, so that every equation holds in them too.

mod padding;

use std::collections::BTreeMap;

use zkmoe_verifier::{
    gadgets::{activation::silu, argmax::argmax, softmax::Softmax},
    header::Sizes,
    relation::BatchShape,
};

pub use self::padding::{DECODED_MULTIPLE, LOAD_MULTIPLE, Loads, Padding};
use crate::{
    infer::{
        InferError, Overflow,
        block::{AttentionRow, LayerCache, LayerPass, Norms, embed, head, layer},
        check_tokens,
    },
    model::Model,
};

/// The tokens of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestTokens {
    /// What was asked.
    pub prompt: Vec<u32>,
    /// What the model answered, with the end token if there was one.
    pub response: Vec<u32>,
}

impl RequestTokens {
    /// Positions without padding.
    pub fn positions(&self) -> usize {
        self.prompt.len() + self.response.len()
    }

    /// The token at every position of a transcript of `length` positions, padding included.
    pub fn padded_tokens(&self, length: usize, pad_token: u32) -> Vec<u32> {
        let mut tokens = [&self.prompt[..], &self.response].concat();
        tokens.resize(length, pad_token);
        tokens
    }

    /// The positions that decode a response token: from the last of the prompt to the one before the last token.
    pub fn decoded_positions(&self) -> std::ops::Range<usize> {
        let last = self.prompt.len().saturating_sub(1);
        last..last + self.response.len()
    }
}

/// Why there is no trace of a batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// A request has no prompt or no response.
    #[error("request {request} has an empty {part}")]
    Empty {
        /// The request.
        request: usize,
        /// `prompt` or `response`.
        part: &'static str,
    },
    /// The model cannot run a request.
    #[error("request {request}: {error}")]
    Infer {
        /// The request.
        request: usize,
        /// What is wrong.
        error: InferError,
    },
    /// The model does not decode the response.
    #[error(
        "request {request} was not answered by this model: after position {position} it decodes token {found}, the \
         transcript has {expected}"
    )]
    NotThisModel {
        /// The request.
        request: usize,
        /// The first position that decodes another token.
        position: usize,
        /// The next token in the transcript.
        expected: u32,
        /// The next token that the model decodes.
        found: u32,
    },
}

/// The rows that one expert of one layer serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// The layer.
    pub layer: usize,
    /// The expert.
    pub expert: usize,
    /// Rows, padding included.
    pub load: usize,
}

/// All values of a batch, with its public shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// Values by name, see the module's documentation.
    pub tensors: BTreeMap<String, Vec<i64>>,
    /// The padded length of every request.
    pub padded: Vec<usize>,
    /// Experts that take part, by layer, then expert.
    pub loads: Vec<Block>,
    /// Decoded rows, rounded up.
    pub decoded: usize,
}

impl Trace {
    /// The values of a tensor.
    ///
    /// # Panics
    /// If there is no tensor of this name.
    pub fn tensor(&self, name: &str) -> &[i64] {
        &self.tensors[name]
    }

    /// The sizes that are public.
    pub fn shape(&self) -> BatchShape {
        BatchShape {
            lengths: self.padded.clone(),
            blocks: self
                .loads
                .iter()
                .map(|b| (b.layer, b.expert, b.load))
                .collect(),
            decoded: self.decoded,
        }
    }
}

/// Bits of a position in a token id: enough for the longest of the padded lengths.
pub fn position_bits(padded: &[usize]) -> u32 {
    let longest = padded.iter().copied().max().unwrap_or(1);
    longest.next_power_of_two().trailing_zeros()
}

/// Runs all requests and collects their values.
///
/// Fails if the model does not decode exactly the given responses, or overflows, be it at a position of padding.
pub fn build_trace(
    model: &Model,
    requests: &[RequestTokens],
    padding: Padding,
) -> Result<Trace, TraceError> {
    let sizes = model.sizes();
    let padded: Vec<usize> = requests
        .iter()
        .map(|r| padding.length(r.positions(), sizes.max_position_embeddings))
        .collect();
    let mut builder = Builder {
        model,
        bits: position_bits(&padded),
        tensors: BTreeMap::new(),
        blocks: (0..sizes.num_hidden_layers * sizes.num_experts)
            .map(|_| BlockRows::default())
            .collect(),
    };
    for (r, (request, &length)) in requests.iter().zip(&padded).enumerate() {
        for (part, tokens) in [("prompt", &request.prompt), ("response", &request.response)] {
            if tokens.is_empty() {
                return Err(TraceError::Empty { request: r, part });
            }
        }
        builder.request(r, request, length)?;
    }
    let decoded = builder.pad_decoded_rows(padding);
    let loads = builder.lay_out_blocks(padding.loads, padded.iter().sum());
    Ok(Trace {
        tensors: builder.tensors,
        padded,
        loads,
        decoded,
    })
}

/// The rows of one block, in the order of their token ids, while requests are still being added.
#[derive(Default)]
struct BlockRows {
    tok: Vec<i64>,
    router_gate: Vec<u16>,
    x: Vec<i16>,
    gate: Vec<i16>,
    activation: Vec<i16>,
    up: Vec<i16>,
    product: Vec<i16>,
    y: Vec<i32>,
}

struct Builder<'a> {
    model: &'a Model,
    bits: u32,
    tensors: BTreeMap<String, Vec<i64>>,
    blocks: Vec<BlockRows>,
}

impl Builder<'_> {
    fn sizes(&self) -> &Sizes {
        self.model.sizes()
    }

    fn extend<T: Into<i64>>(&mut self, name: &str, values: impl IntoIterator<Item = T>) {
        if !self.tensors.contains_key(name) {
            self.tensors.insert(name.to_owned(), Vec::new());
        }
        if let Some(tensor) = self.tensors.get_mut(name) {
            tensor.extend(values.into_iter().map(Into::into));
        }
    }

    fn copy<T: Copy + Into<i64>>(&mut self, name: &str, values: &[T]) {
        self.extend(name, values.iter().copied());
    }

    fn request(
        &mut self,
        r: usize,
        request: &RequestTokens,
        length: usize,
    ) -> Result<(), TraceError> {
        let model = self.model;
        let infer = |error| TraceError::Infer { request: r, error };
        let overflow = |error: Overflow| infer(error.into());
        let tokens = request.padded_tokens(length, model.header().pad_token);
        check_tokens(model, &tokens, 0).map_err(infer)?;
        let decoded = request.decoded_positions();
        let next: Vec<u32> = (0..tokens.len())
            .map(|s| {
                if decoded.contains(&s) {
                    tokens[s + 1]
                } else {
                    model.header().pad_token
                }
            })
            .collect();
        self.copy("tok", &tokens);
        self.copy("next", &next);
        self.extend("dec", (0..tokens.len()).map(|s| decoded.contains(&s)));

        let mut x = embed(model, &tokens);
        for l in 0..self.sizes().num_hidden_layers {
            let pass = layer(model, l, &x, &mut LayerCache::default(), true).map_err(overflow)?;
            self.copy("x", &x);
            self.layer(&pass);
            self.dispatch(r, l, &pass);
            x = pass.x;
        }
        self.copy("x", &x);

        let width = self.sizes().hidden_size;
        let rows = &x[decoded.start * width..decoded.end * width];
        let first = decoded.start;
        let found = self.decode(rows, &|row| first + row).map_err(overflow)?;
        for (position, found) in decoded.clone().zip(found) {
            if found != next[position] {
                return Err(TraceError::NotThisModel {
                    request: r,
                    position,
                    expected: next[position],
                    found,
                });
            }
        }
        let bits = self.bits;
        self.extend("dr.id", decoded.clone().map(|s| token_id(r, s, bits)));
        self.extend("dr.real", decoded.map(|_| true));
        Ok(())
    }

    /// All values of one layer of one request but those of its experts.
    fn layer(&mut self, pass: &LayerPass) {
        self.norms("n1", &pass.n1);
        self.copy("q", &pass.q);
        self.copy("k", &pass.k);
        self.copy("v", &pass.v);
        self.norms("qn", &pass.qn);
        self.norms("kn", &pass.kn);
        self.copy("qr", &pass.qr);
        self.copy("kr", &pass.kr);
        self.attention(&pass.attention);
        self.copy("xm", &pass.xm);
        self.norms("n2", &pass.n2);
        self.copy("rl", &pass.rl);
        let experts = self.sizes().num_experts;
        for row in &pass.router {
            let selected = &row.chosen.selected;
            self.extend("sel", (0..experts).map(|e| selected.contains(&e)));
            self.extend("theta", [row.chosen.theta]);
            self.extend("rt.max", [row.weights.max]);
            self.extend("rt.sum", [row.weights.sum]);
            self.weights("rt", &row.weights, experts);
            self.copy("gate", &row.gate);
        }
        self.copy("comb.rem", &pass.rem);
    }

    fn norms(&mut self, prefix: &str, norms: &Norms) {
        let roots = &norms.roots;
        self.extend(&format!("{prefix}.z"), roots.iter().map(|v| v.z));
        self.extend(&format!("{prefix}.w4"), roots.iter().map(|v| v.w4));
        self.extend(&format!("{prefix}.w2"), roots.iter().map(|v| v.w2));
        self.extend(&format!("{prefix}.u"), roots.iter().map(|v| v.u));
        self.extend(&format!("{prefix}.r"), roots.iter().map(|v| v.r));
        self.extend(&format!("{prefix}.m"), roots.iter().map(|v| v.m));
        self.extend(&format!("{prefix}.f"), roots.iter().map(|v| v.f));
        self.copy(&format!("{prefix}.y"), &norms.y);
    }

    fn attention(&mut self, rows: &[AttentionRow]) {
        let heads = self.sizes().num_key_value_heads * self.sizes().query_group;
        for head in 0..heads {
            for row in rows {
                let weights = &row.weights[head];
                self.extend("att.max", [weights.max]);
                self.extend("att.sum", [weights.sum]);
                self.weights("att", weights, rows.len());
            }
        }
        for row in rows {
            self.copy("att.out", &row.out);
        }
    }

    /// The per-entry columns of a softmax, filled with zeros up to `width`.
    fn weights(&mut self, prefix: &str, row: &Softmax, width: usize) {
        let zeros = || std::iter::repeat_n(0u16, width - row.e.len());
        for (name, column) in [("idx", &row.idx), ("ex", &row.ex), ("e", &row.e)] {
            let name = format!("{prefix}.{name}");
            self.extend(&name, column.iter().copied().chain(zeros()));
        }
        self.extend(&format!("{prefix}.z"), (0..width).map(|u| u == row.z));
    }

    /// Adds the rows of a layer's experts to their blocks.
    fn dispatch(&mut self, r: usize, l: usize, pass: &LayerPass) {
        let (experts, width) = (self.sizes().num_experts, self.sizes().hidden_size);
        let bits = self.bits;
        for expert in &pass.experts {
            let block = &mut self.blocks[l * experts + expert.expert];
            for &s in &expert.rows {
                block.tok.push(token_id(r, s, bits));
                block.router_gate.push(pass.router[s].gate[expert.expert]);
                block.x.extend(&pass.n2.y[s * width..][..width]);
            }
            block.gate.extend(&expert.gate);
            block.activation.extend(&expert.activation);
            block.up.extend(&expert.up);
            block.product.extend(&expert.product);
            block.y.extend(&expert.y);
        }
    }

    /// Head and argmax of some rows of the last residual stream; gives the decoded tokens.
    fn decode(
        &mut self,
        x: &[i32],
        position: &dyn Fn(usize) -> usize,
    ) -> Result<Vec<u32>, Overflow> {
        let vocab = self.sizes().vocab_size;
        let pass = head(self.model, x, position)?;
        self.copy("dr.x", x);
        self.norms("nf", &pass.norm);
        self.copy("lg", &pass.logits);
        let mut tokens = Vec::new();
        for logits in pass.logits.chunks_exact(vocab) {
            let best = argmax(logits);
            self.extend("am", [best.index as i64]);
            self.extend("mk", [best.key]);
            self.extend("lg.z", (0..vocab).map(|v| v == best.index));
            tokens.push(best.index as u32);
        }
        Ok(tokens)
    }

    /// Fills the decoded rows up to their public number with rows of zeros; gives that number.
    fn pad_decoded_rows(&mut self, padding: Padding) -> usize {
        let real = self.tensors.get("dr.id").map_or(0, Vec::len);
        let decoded = padding.decoded(real);
        let zeros = vec![0; (decoded - real) * self.sizes().hidden_size];
        let padded = self.decode(&zeros, &|_| 0);
        // Zeros have the norm zero and logits of zero.
        debug_assert!(padded.is_ok());
        self.extend("dr.id", std::iter::repeat_n(0, decoded - real));
        self.extend("dr.real", std::iter::repeat_n(false, decoded - real));
        decoded
    }

    /// Moves the blocks that take part into tensors and fills each up to its load.
    fn lay_out_blocks(&mut self, loads: Loads, positions: usize) -> Vec<Block> {
        let sizes = self.sizes().clone();
        let (hidden, inner) = (sizes.hidden_size, sizes.intermediate_size);
        let activation_of_zero = silu(0, &self.model.header().silu_table);
        let rows = std::mem::take(&mut self.blocks);
        let chosen: Vec<usize> = rows.iter().map(|block| block.tok.len()).collect();
        let blocks = loads.blocks(&chosen, sizes.num_experts, positions);
        for &Block {
            layer,
            expert,
            load,
        } in &blocks
        {
            let block = &rows[layer * sizes.num_experts + expert];
            let real = block.tok.len();
            let padding = load - real;
            let zeros = |width| std::iter::repeat_n(0i64, padding * width);
            self.copy("row.tok", &block.tok);
            self.extend("row.tok", zeros(1));
            self.copy("row.gate", &block.router_gate);
            self.extend("row.gate", zeros(1));
            self.extend("row.real", (0..load).map(|n| n < real));
            self.copy("row.x", &block.x);
            self.extend("row.x", zeros(hidden));
            for (name, values, pad) in [
                ("eg", &block.gate, 0),
                ("ea", &block.activation, activation_of_zero),
                ("eu", &block.up, 0),
                ("eh", &block.product, 0),
            ] {
                self.copy(name, values);
                self.extend(name, std::iter::repeat_n(pad, padding * inner));
            }
            self.copy("ey", &block.y);
            self.extend("ey", zeros(hidden));
        }
        blocks
    }
}

fn token_id(request: usize, position: usize, bits: u32) -> i64 {
    ((request as i64) << bits) | position as i64
}

#[cfg(test)]
mod tests;
