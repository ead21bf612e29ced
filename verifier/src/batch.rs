//! What is public about a batch, and how one request is bound into it.
//!
//! The header of a batch holds sizes, two values that chain it to the proof before it and, for every request, a salted
//! hash of its block: the decoding parameters, the tokens, for every position the next token and whether it was decoded,
//! and four random cells. The header is part of the transcript before the first commitment. The proof states an
//! evaluation of every block at a point drawn after that. Whoever knows the block recomputes both; who does not learns
//! nothing from them, because the cells cover the evaluation and the salt the hash. The hash has to come first: a
//! provider who knew the point could choose cells that fit any text.

use crate::gadgets::router::EXPERT_BITS;
use crate::header::{Header, MAX_LAYERS};
use crate::relation::{BatchShape, Dims, Label};
use ark_ff::{AdditiveGroup, Field};
use zkmoe_commit::codec::{DecodeError, Reader, Writer, at_most, read_magic, write_magic};
use zkmoe_commit::field::{F, K, ext, from_i64, lift, scale};
use zkmoe_commit::shape::AxisWeights;

/// The first bytes of a proof file.
pub const PROOF_MAGIC: [u8; 8] = *b"ZKMOPRF\0";
/// The version of the format.
pub const PROOF_VERSION: u32 = 2;
/// The most requests in a batch.
pub const MAX_REQUESTS: usize = 1 << 12;
/// The most positions in a batch.
pub const MAX_POSITIONS: usize = 1 << 20;
/// The most experts of all layers that a header can have.
const MAX_EXPERTS: usize = MAX_LAYERS << EXPERT_BITS;

/// The most rows that a header may state for one expert, or for decoded tokens, of a batch with `positions` positions.
/// No expert serves a position twice, and none is decoded twice; what is above that is room for rounding up.
pub fn row_limit(positions: usize) -> usize {
    positions.next_power_of_two().max(1 << 10)
}

/// The public header of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchHeader {
    /// Padded lengths, active experts with their padded loads, decoded rows.
    pub shape: BatchShape,
    /// For each request the salted hash of its block.
    pub blocks: Vec<[u8; 32]>,
    /// The chain value of the opening before this proof under the same key, zero if there was none, and the one of this
    /// proof. Two proofs with one value before them were made by two copies of a key.
    pub link: [[u8; 32]; 2],
}

impl BatchHeader {
    /// A header with these sizes, if one may have them, that is about no requests: to count what a proof would be.
    pub fn of_sizes(header: &Header, shape: BatchShape) -> Result<Self, DecodeError> {
        let sized = Self {
            blocks: vec![[0; 32]; shape.lengths.len()],
            shape,
            link: [[0; 32], [1; 32]],
        };
        let mut w = Writer::new();
        sized.encode(&mut w);
        Self::decode(&mut Reader::new(&w.bytes), header)
    }

    /// How many bytes a proof file with this header has before its messages.
    pub fn start_length(&self) -> usize {
        let Self { shape, blocks, .. } = self;
        12 + 32 + 4 + 36 * blocks.len() + 4 + 12 * shape.blocks.len() + 4 + 64
    }

    /// Appends the header.
    pub fn encode(&self, w: &mut Writer) {
        w.u32(self.shape.lengths.len() as u32);
        for (&length, hash) in self.shape.lengths.iter().zip(&self.blocks) {
            w.u32(length as u32);
            w.raw(hash);
        }
        w.u32(self.shape.blocks.len() as u32);
        for &(layer, expert, load) in &self.shape.blocks {
            w.u32(layer as u32);
            w.u32(expert as u32);
            w.u32(load as u32);
        }
        w.u32(self.shape.decoded as u32);
        self.link.iter().for_each(|value| w.raw(value));
    }

    /// Reads a header and checks every size against the model's header and the declared limits.
    pub fn decode(r: &mut Reader<'_>, header: &Header) -> Result<Self, DecodeError> {
        let sizes = &header.sizes;
        let requests = r.u32("number of requests")? as usize;
        between("number of requests", requests, MAX_REQUESTS)?;
        let mut lengths = Vec::new();
        let mut blocks = Vec::new();
        for _ in 0..requests {
            let length = r.u32("length of a request")? as usize;
            between("length of a request", length, sizes.max_position_embeddings)?;
            lengths.push(length);
            blocks.push(r.digest("hash of a request")?);
        }
        let positions: usize = lengths.iter().sum();
        at_most("length of all requests", positions, MAX_POSITIONS)?;
        let active = r.u32("number of active experts")? as usize;
        let all_experts = sizes.num_hidden_layers * sizes.num_experts;
        between("number of active experts", active, all_experts)?;
        let mut experts: Vec<(usize, usize, usize)> = Vec::new();
        for _ in 0..active {
            let block = (
                r.u32("layer of an active expert")? as usize,
                r.u32("number of an active expert")? as usize,
                r.u32("load of an active expert")? as usize,
            );
            // Ascending, so that no expert of a layer occurs twice.
            let ascends = experts
                .last()
                .is_none_or(|last| (last.0, last.1) < (block.0, block.1));
            if !ascends || block.0 >= sizes.num_hidden_layers || block.1 >= sizes.num_experts {
                return Err(DecodeError::Invalid("active experts"));
            }
            between("load of an active expert", block.2, row_limit(positions))?;
            experts.push(block);
        }
        let decoded = r.u32("decoded rows")? as usize;
        between("decoded rows", decoded, row_limit(positions))?;
        let link = [
            r.digest("chain value before this proof")?,
            r.digest("chain value of this proof")?,
        ];
        if link[0] == link[1] {
            return Err(DecodeError::Invalid("chain value of this proof"));
        }
        Ok(Self {
            shape: BatchShape {
                lengths,
                blocks: experts,
                decoded,
            },
            blocks,
            link,
        })
    }
}

/// Refuses zero, and more than a limit.
fn between(field: &'static str, found: usize, most: usize) -> Result<(), DecodeError> {
    if found == 0 {
        return Err(DecodeError::Invalid(field));
    }
    at_most(field, found, most)
}

/// The most bytes that the start of a proof file has, up to its messages: all of it can be read before anything is known
/// about the rest.
pub const MAX_START: usize = 12 + 32 + 4 + MAX_REQUESTS * 36 + 4 + MAX_EXPERTS * 12 + 4 + 64;

/// The start of a proof file; the messages of the argument follow.
pub fn write_proof_header(w: &mut Writer, id: &[u8; 32], header: &BatchHeader) {
    write_magic(w, &PROOF_MAGIC, PROOF_VERSION);
    w.raw(id);
    header.encode(w);
}

/// Reads the start of a proof file: the id of the model that it names, and the batch.
pub fn read_proof_header(
    r: &mut Reader<'_>,
    header: &Header,
) -> Result<([u8; 32], BatchHeader), DecodeError> {
    read_magic(r, &PROOF_MAGIC, PROOF_VERSION, "proof")?;
    Ok((r.digest("model id")?, BatchHeader::decode(r, header)?))
}

/// One request as its customer knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Secret to provider and customer.
    pub salt: [u8; 32],
    /// The limit on response tokens that was asked for.
    pub max_tokens: u32,
    /// The token at each position of the padded transcript.
    pub tok: Vec<u32>,
    /// The next token where one was decoded, else the pad token.
    pub next: Vec<u32>,
    /// Whether a token was decoded at this position.
    pub dec: Vec<bool>,
    /// Random elements that belong to no token.
    pub cells: [F; 4],
}

impl Block {
    /// The block of a prompt and its response, padded to `length` positions; `None` if they do not fit, or one is
    /// empty.
    pub fn new(
        header: &Header,
        prompt: &[u32],
        response: &[u32],
        length: usize,
        max_tokens: u32,
        salt: [u8; 32],
        cells: [F; 4],
    ) -> Option<Self> {
        let used = prompt.len() + response.len();
        if prompt.is_empty() || response.is_empty() || used > length {
            return None;
        }
        let mut tok = [prompt, response].concat();
        tok.resize(length, header.pad_token);
        let dec: Vec<bool> = (0..length)
            .map(|t| t + 1 >= prompt.len() && t + 1 < used)
            .collect();
        let next = (0..length)
            .map(|t| if dec[t] { tok[t + 1] } else { header.pad_token })
            .collect();
        Some(Self {
            salt,
            max_tokens,
            tok,
            next,
            dec,
            cells,
        })
    }

    /// The salted hash that the batch header holds.
    pub fn hash(&self) -> [u8; 32] {
        let mut w = Writer::new();
        w.raw(&self.salt);
        w.u32(self.max_tokens);
        w.u32(self.tok.len() as u32);
        self.tok.iter().for_each(|&x| w.u32(x));
        self.next.iter().for_each(|&x| w.u32(x));
        self.dec.iter().for_each(|&x| w.u8(u8::from(x)));
        self.cells.iter().for_each(|&x| w.f(x));
        blake3::derive_key("zkmoe request block v1", &w.bytes)
    }

    /// The evaluation that the proof states.
    pub fn evaluate(&self, at: &BlockPoint) -> K {
        let weights = AxisWeights::eq(&at.position).expand(self.tok.len());
        let fold = at.fold;
        let mut total = K::ZERO;
        for (t, w) in weights.into_iter().enumerate() {
            let number = |x: u32| lift(from_i64(i64::from(x)));
            let cell = number(self.tok[t])
                + fold * number(self.next[t])
                + fold.square() * number(u32::from(self.dec[t]));
            total += w * cell;
        }
        let cells = at.cell_weights().expand(self.cells.len());
        let cells: K = cells
            .into_iter()
            .zip(&self.cells)
            .map(|(w, &x)| scale(w, x))
            .sum();
        total + fold.square() * fold * cells
    }
}

/// Where blocks are evaluated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockPoint {
    /// A point over positions.
    pub position: Vec<K>,
    /// Folds tokens, next tokens, decoded flags and cells.
    pub fold: K,
    /// What the second pair of cells is multiplied with.
    pub cells: K,
}

impl BlockPoint {
    /// The weights of the random cells. Two of them are a basis of `K` over `F`, so the cells cover an evaluation whatever
    /// was drawn.
    pub fn cell_weights(&self) -> AxisWeights {
        let generator = ext(from_i64(0), from_i64(1));
        AxisWeights::Bits(vec![[K::ONE, generator], [K::ONE, self.cells]])
    }

    /// The sum of the evaluations of all blocks, that of request `r` times `batching^r`, as functionals of the tensors `tok`,
    /// `next`, `dec` and `cells`, with their coefficients.
    pub fn functionals(
        &self,
        dims: &Dims,
        batching: K,
    ) -> [(&'static str, K, Vec<AxisWeights>); 4] {
        debug_assert_eq!(self.position.len(), dims.bits(Label::Position) as usize);
        let requests = || AxisWeights::powers(batching, dims.bits(Label::Request));
        let tokens = || vec![requests(), AxisWeights::eq(&self.position)];
        let fold = self.fold;
        [
            ("tok", K::ONE, tokens()),
            ("next", fold, tokens()),
            ("dec", fold.square(), tokens()),
            (
                "cells",
                fold.square() * fold,
                vec![requests(), self.cell_weights()],
            ),
        ]
    }
}
