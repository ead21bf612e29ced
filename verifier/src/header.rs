//! The public header of a model: everything about the integer model but its weights.
//!
//! The header is hashed into the model id, so two models that differ in one shift have different ids.

use crate::gadgets::router::EXPERT_BITS;
use zkmoe_commit::codec::{DecodeError, Reader, Writer, at_most};

/// How fine the input of the exponential table is: one unit is `2^-EXP_FRACTION_BITS`.
pub const EXP_FRACTION_BITS: u32 = 10;
/// Fraction bits of the RoPE tables.
pub const ROPE_FRACTION_BITS: u32 = 14;
/// Fraction bits of a gate weight.
pub const GATE_FRACTION_BITS: u32 = 14;
/// Bits of the signed residual stream and of expert outputs.
pub const RESIDUAL_BITS: u32 = 24;
/// Bits of a signed router logit.
pub const ROUTER_BITS: u32 = 24;
/// Bits of a signed logit of the head.
pub const LOGIT_BITS: u32 = 20;
/// Entries of the exponential and the `SiLU` table.
pub const TABLE_SIZE: usize = 1 << 16;

/// Sizes of an OLMoE-like model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes {
    /// Entries of the vocabulary, at least 2.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width of an expert's inner layer.
    pub intermediate_size: usize,
    /// Number of blocks.
    pub num_hidden_layers: usize,
    /// Number of key and value heads.
    pub num_key_value_heads: usize,
    /// Query heads for each key head.
    pub query_group: usize,
    /// Width of a head; even.
    pub head_dim: usize,
    /// Experts in each block.
    pub num_experts: usize,
    /// Experts that serve one token.
    pub num_experts_per_tok: usize,
    /// Positions for which RoPE tables exist: the longest transcript.
    pub max_position_embeddings: usize,
}

/// Shifts and constants of the integer model. Each requantization computes `floor((acc + 2^(s-1)) / 2^s)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scales {
    /// Sum of squares of a hidden vector is multiplied by this before [`Scales::norm_epsilon`] is added.
    pub norm_factor: u64,
    /// Added to the scaled sum of squares; at least `2^20`.
    pub norm_epsilon: u64,
    /// Output shift of the norms of the residual stream.
    pub norm_shift: u32,
    /// As `norm_factor`, for the norm of the queries.
    pub query_norm_factor: u64,
    /// As `norm_epsilon`, for the norm of the queries.
    pub query_norm_epsilon: u64,
    /// Output shift of the norm of the queries.
    pub query_norm_shift: u32,
    /// As `norm_factor`, for the norm of the keys.
    pub key_norm_factor: u64,
    /// As `norm_epsilon`, for the norm of the keys.
    pub key_norm_epsilon: u64,
    /// Output shift of the norm of the keys.
    pub key_norm_shift: u32,
    /// Shift after the query projection, 1 to 16.
    pub query_shift: u32,
    /// Shift after the key projection, 1 to 16.
    pub key_shift: u32,
    /// Shift after the value projection, 1 to 16.
    pub value_shift: u32,
    /// Shift after gain and RoPE, for queries and keys, 17 to 32.
    pub rope_shift: u32,
    /// Shift from products of queries and keys to units of the exponential table, 1 to 16.
    pub score_shift: u32,
    /// Shift from the output projection to the residual stream, 1 to 16.
    pub output_shift: u32,
    /// Shift after the router, 1 to 16.
    pub router_shift: u32,
    /// Shift from router logits to units of the exponential table, 1 to 16.
    pub router_score_shift: u32,
    /// Shift after the gate projection, 1 to 16.
    pub gate_shift: u32,
    /// Shift after the up projection, 1 to 16.
    pub up_shift: u32,
    /// Shift after the product of activation and up projection, 1 to 16.
    pub product_shift: u32,
    /// Shift after the down projection, 1 to 16; its result has the unit of the residual stream.
    pub down_shift: u32,
    /// Shift after the head, 1 to 16.
    pub head_shift: u32,
}

/// The public header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Sizes of all dimensions.
    pub sizes: Sizes,
    /// Shifts and constants.
    pub scales: Scales,
    /// The token that ends a text.
    pub eos_token: u32,
    /// The token that fills a transcript up to its padded length.
    pub pad_token: u32,
    /// `exp_table[i]` is `round(65535 * exp(-i / 2^EXP_FRACTION_BITS))`, zero at the last index.
    pub exp_table: Vec<u16>,
    /// `silu_table[i]` is the activation of the signed 16-bit input `i - 2^15`.
    pub silu_table: Vec<i16>,
    /// `cos_table[t * head_dim / 2 + j]`, scaled by `2^ROPE_FRACTION_BITS`.
    pub cos_table: Vec<i16>,
    /// As `cos_table`, the sine.
    pub sin_table: Vec<i16>,
    /// BLAKE3 of the tokenizer file.
    pub tokenizer_hash: [u8; 32],
    /// BLAKE3 of the chat template; of the empty string where there is none.
    pub template_hash: [u8; 32],
}

/// The most layers.
pub const MAX_LAYERS: usize = 1 << 8;
/// The most positions for which there are tables.
pub const MAX_CONTEXT: usize = 1 << 12;
/// The widest head.
pub const MAX_HEAD_DIM: usize = 1 << 9;
/// The most bytes of a header.
pub const MAX_HEADER: usize = 262_368 + 4 * MAX_CONTEXT * (MAX_HEAD_DIM / 2);

impl Sizes {
    fn fields(&self) -> [usize; 10] {
        [
            self.vocab_size,
            self.hidden_size,
            self.intermediate_size,
            self.num_hidden_layers,
            self.num_key_value_heads,
            self.query_group,
            self.head_dim,
            self.num_experts,
            self.num_experts_per_tok,
            self.max_position_embeddings,
        ]
    }

    /// The bounds on sizes alone.
    pub fn check(&self) -> Result<(), DecodeError> {
        let invalid = |field| Err(DecodeError::Invalid(field));
        if self.fields().contains(&0) {
            return invalid("sizes");
        }
        if self.vocab_size < 2 {
            return invalid("vocab_size");
        }
        if !self.head_dim.is_multiple_of(2) {
            return invalid("head_dim");
        }
        // Each is far below the largest number of any machine, their product need not be.
        let heads = self.num_key_value_heads.saturating_mul(self.query_group);
        for (field, found, most) in [
            ("vocab_size", self.vocab_size, 1 << 20),
            ("hidden_size", self.hidden_size, 1 << 14),
            ("intermediate_size", self.intermediate_size, 1 << 16),
            ("head_dim", self.head_dim, MAX_HEAD_DIM),
            ("num_experts", self.num_experts, 1 << EXPERT_BITS),
            (
                "num_experts_per_tok",
                self.num_experts_per_tok,
                self.num_experts,
            ),
            ("num_hidden_layers", self.num_hidden_layers, MAX_LAYERS),
            (
                "max_position_embeddings",
                self.max_position_embeddings,
                MAX_CONTEXT,
            ),
            ("num_key_value_heads times query_group", heads, 1 << 10),
        ] {
            at_most(field, found, most)?;
        }
        Ok(())
    }
}

impl Scales {
    /// The norm constants, `(factor, epsilon, shift)` of residual stream, queries and keys.
    pub fn norms(&self) -> [(u64, u64, u32); 3] {
        [
            (self.norm_factor, self.norm_epsilon, self.norm_shift),
            (
                self.query_norm_factor,
                self.query_norm_epsilon,
                self.query_norm_shift,
            ),
            (
                self.key_norm_factor,
                self.key_norm_epsilon,
                self.key_norm_shift,
            ),
        ]
    }

    /// The shifts that must lie in 1 to 16.
    fn short_shifts(&self) -> [u32; 12] {
        [
            self.query_shift,
            self.key_shift,
            self.value_shift,
            self.score_shift,
            self.output_shift,
            self.router_shift,
            self.router_score_shift,
            self.gate_shift,
            self.up_shift,
            self.product_shift,
            self.down_shift,
            self.head_shift,
        ]
    }
}

impl Header {
    /// Writes the header.
    pub fn encode(&self, w: &mut Writer) {
        for x in self.sizes.fields() {
            w.u32(x as u32);
        }
        for (factor, epsilon, shift) in self.scales.norms() {
            w.u64(factor);
            w.u64(epsilon);
            w.u32(shift);
        }
        for shift in self.scales.short_shifts() {
            w.u32(shift);
        }
        w.u32(self.scales.rope_shift);
        w.u32(self.eos_token);
        w.u32(self.pad_token);
        for &x in &self.exp_table {
            w.u16(x);
        }
        for table in [&self.silu_table, &self.cos_table, &self.sin_table] {
            for &x in table {
                w.u16(x as u16);
            }
        }
        w.raw(&self.tokenizer_hash);
        w.raw(&self.template_hash);
    }

    /// Reads a header and checks every bound on which the gadgets rely.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut size = |field| match r.u32(field)? as usize {
            0 => Err(DecodeError::Invalid(field)),
            x => Ok(x),
        };
        let sizes = Sizes {
            vocab_size: size("vocab_size")?,
            hidden_size: size("hidden_size")?,
            intermediate_size: size("intermediate_size")?,
            num_hidden_layers: size("num_hidden_layers")?,
            num_key_value_heads: size("num_key_value_heads")?,
            query_group: size("query_group")?,
            head_dim: size("head_dim")?,
            num_experts: size("num_experts")?,
            num_experts_per_tok: size("num_experts_per_tok")?,
            max_position_embeddings: size("max_position_embeddings")?,
        };
        // Before anything is computed from them.
        sizes.check()?;
        let mut norm = || {
            Ok((
                r.u64("norm factor")?,
                r.u64("norm epsilon")?,
                r.u32("norm shift")?,
            ))
        };
        let (hidden, query, key) = (norm()?, norm()?, norm()?);
        let mut shift = |field| r.u32(field);
        let scales = Scales {
            norm_factor: hidden.0,
            norm_epsilon: hidden.1,
            norm_shift: hidden.2,
            query_norm_factor: query.0,
            query_norm_epsilon: query.1,
            query_norm_shift: query.2,
            key_norm_factor: key.0,
            key_norm_epsilon: key.1,
            key_norm_shift: key.2,
            query_shift: shift("query_shift")?,
            key_shift: shift("key_shift")?,
            value_shift: shift("value_shift")?,
            score_shift: shift("score_shift")?,
            output_shift: shift("output_shift")?,
            router_shift: shift("router_shift")?,
            router_score_shift: shift("router_score_shift")?,
            gate_shift: shift("gate_shift")?,
            up_shift: shift("up_shift")?,
            product_shift: shift("product_shift")?,
            down_shift: shift("down_shift")?,
            head_shift: shift("head_shift")?,
            rope_shift: shift("rope_shift")?,
        };
        let eos_token = r.u32("eos_token")?;
        let pad_token = r.u32("pad_token")?;
        let rope = sizes.max_position_embeddings * (sizes.head_dim / 2);
        let exp_table = r.many(TABLE_SIZE, 2, "exp_table", |r| r.u16("exp_table"))?;
        let mut signed = |n, field| r.many(n, 2, field, |r| Ok(r.u16(field)? as i16));
        let silu_table = signed(TABLE_SIZE, "silu_table")?;
        let cos_table = signed(rope, "cos_table")?;
        let sin_table = signed(rope, "sin_table")?;
        let tokenizer_hash = r.digest("tokenizer_hash")?;
        let template_hash = r.digest("template_hash")?;
        let header = Self {
            sizes,
            scales,
            eos_token,
            pad_token,
            exp_table,
            silu_table,
            cos_table,
            sin_table,
            tokenizer_hash,
            template_hash,
        };
        header.check()?;
        Ok(header)
    }

    /// The bounds under which every sum of the integer model stays below `2^62`.
    pub fn check(&self) -> Result<(), DecodeError> {
        self.sizes.check()?;
        let s = &self.sizes;
        let invalid = |field| Err(DecodeError::Invalid(field));
        let query_width = s.num_key_value_heads * s.query_group * s.head_dim;
        let key_width = s.num_key_value_heads * s.head_dim;
        let widths = [
            (s.hidden_size, RESIDUAL_BITS),
            (query_width, 16),
            (key_width, 16),
        ];
        for ((factor, epsilon, shift), (width, bits)) in self.scales.norms().into_iter().zip(widths)
        {
            // factor * width * 2^(2 bits - 2) + epsilon < 2^62, computed without overflow.
            let largest = (u128::from(factor) * width as u128) << (2 * bits - 2);
            if factor == 0 || epsilon < 1 << 20 || largest + u128::from(epsilon) >= 1 << 62 {
                return invalid("norm factor");
            }
            if !(17..=32).contains(&shift) {
                return invalid("norm shift");
            }
        }
        if self
            .scales
            .short_shifts()
            .iter()
            .any(|s| !(1..=16).contains(s))
        {
            return invalid("shift");
        }
        if !(17..=32).contains(&self.scales.rope_shift) {
            return invalid("rope_shift");
        }
        let vocab = s.vocab_size as u32;
        if self.eos_token >= vocab || self.pad_token >= vocab {
            return invalid("eos_token");
        }
        if self.exp_table.len() != TABLE_SIZE
            || self.exp_table[TABLE_SIZE - 1] != 0
            || self.exp_table[0] == 0
        {
            return invalid("exp_table");
        }
        if self.silu_table.len() != TABLE_SIZE {
            return invalid("silu_table");
        }
        let rope = s.max_position_embeddings * (s.head_dim / 2);
        let bound = 1i16 << ROPE_FRACTION_BITS;
        for table in [&self.cos_table, &self.sin_table] {
            if table.len() != rope || table.iter().any(|x| !(-bound..=bound).contains(x)) {
                return invalid("cos_table");
            }
        }
        Ok(())
    }
}
