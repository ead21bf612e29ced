//! The weight tensors of the integer model and their shapes.
//!
//! Every weight is a signed byte `w` in -127..=127 times a multiplier `m` of its output channel, 1..=65535; what the
//! model computes with, and what the commitment binds, is the product `m * w`. A tensor's values are laid out
//! `[outer][in][out]`, its multipliers `[outer][out]`. The shapes follow from the public sizes alone, so that the
//! verifier never takes one from a prover.
//!
//! Channels of projected queries are numbered `((h * G + g) * 2 + c) * J + j`: key head `h`, query head `g` of that
//! head's group, half `c` of the head (`RoPE` rotates the halves into each other), position `j` in the half. Keys and
//! values drop `g`.

use crate::header::Sizes;

/// A weight tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WeightId {
    /// Token embedding, in residual units.
    Emb,
    /// Query projection; the gain of the first norm is folded in.
    Wq,
    /// Key projection; the gain of the first norm is folded in.
    Wk,
    /// Value projection; the gain of the first norm is folded in.
    Wv,
    /// Gain of the norm of the queries.
    Gq,
    /// Gain of the norm of the keys.
    Gk,
    /// Output projection of the attention; its result has residual units.
    Wo,
    /// Router; the gain of the second norm is folded in.
    Wr,
    /// Gate projection of an expert; the gain of the second norm is folded in.
    Wg,
    /// Up projection of an expert; the gain of the second norm is folded in.
    Wu,
    /// Down projection of an expert; its result has residual units.
    Wd,
    /// Head; the gain of the final norm is folded in.
    Wh,
}

impl WeightId {
    /// All tensors, in the order in which files and commitments hold them.
    pub const ALL: [Self; 12] = [
        Self::Emb,
        Self::Wq,
        Self::Wk,
        Self::Wv,
        Self::Gq,
        Self::Gk,
        Self::Wo,
        Self::Wr,
        Self::Wg,
        Self::Wu,
        Self::Wd,
        Self::Wh,
    ];

    /// The name that error messages and reports use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Emb => "emb",
            Self::Wq => "wq",
            Self::Wk => "wk",
            Self::Wv => "wv",
            Self::Gq => "gq",
            Self::Gk => "gk",
            Self::Wo => "wo",
            Self::Wr => "wr",
            Self::Wg => "wg",
            Self::Wu => "wu",
            Self::Wd => "wd",
            Self::Wh => "wh",
        }
    }

    /// The position in [`WeightId::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// The shape of a weight tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WeightShape {
    /// Independent matrices: layers, layers times experts (expert fastest), or token ids.
    pub outer: usize,
    /// Input channels of one matrix.
    pub inn: usize,
    /// Output channels of one matrix.
    pub out: usize,
}

impl WeightShape {
    /// How many values the tensor has.
    pub const fn values(self) -> usize {
        self.outer * self.inn * self.out
    }

    /// How many multipliers the tensor has.
    pub const fn multipliers(self) -> usize {
        self.outer * self.out
    }
}

/// The shape of tensor `id`. Products stay far below `2^64` for sizes that pass `Header::check`.
pub fn weight_shape(sizes: &Sizes, id: WeightId) -> WeightShape {
    let hidden = sizes.hidden_size;
    let inner = sizes.intermediate_size;
    let layers = sizes.num_hidden_layers;
    let experts = sizes.num_experts;
    let key_width = sizes.num_key_value_heads * sizes.head_dim;
    let query_width = key_width * sizes.query_group;
    let (outer, inn, out) = match id {
        WeightId::Emb => (sizes.vocab_size, 1, hidden),
        WeightId::Wq => (layers, hidden, query_width),
        WeightId::Wk | WeightId::Wv => (layers, hidden, key_width),
        WeightId::Gq => (layers, 1, query_width),
        WeightId::Gk => (layers, 1, key_width),
        WeightId::Wo => (layers, query_width, hidden),
        WeightId::Wr => (layers, hidden, experts),
        WeightId::Wg | WeightId::Wu => (layers * experts, hidden, inner),
        WeightId::Wd => (layers * experts, inner, hidden),
        WeightId::Wh => (1, hidden, sizes.vocab_size),
    };
    WeightShape { outer, inn, out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_names_agree() {
        for (i, id) in WeightId::ALL.into_iter().enumerate() {
            assert_eq!(id.index(), i);
            assert_eq!(id.name(), format!("{id:?}").to_lowercase());
        }
    }

    #[test]
    fn parameters_of_a_small_model() {
        let sizes = Sizes {
            vocab_size: 2048,
            hidden_size: 128,
            intermediate_size: 128,
            num_hidden_layers: 4,
            num_key_value_heads: 2,
            query_group: 2,
            head_dim: 32,
            num_experts: 8,
            num_experts_per_tok: 2,
            max_position_embeddings: 512,
        };
        let total: usize = WeightId::ALL
            .iter()
            .map(|&id| weight_shape(&sizes, id).values())
            .sum();
        let attention = 128 * (128 + 64 + 64) + 128 + 64 + 128 * 128;
        let experts = 128 * 8 + 8 * 3 * 128 * 128;
        assert_eq!(total, 2 * 2048 * 128 + 4 * (attention + experts));
    }
}
