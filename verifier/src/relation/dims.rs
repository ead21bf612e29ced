//! Sizes of symbolic indices for one model and one batch.

use super::Label;
use crate::gadgets::rms_norm::EXPONENT_MAX;
use crate::header::Sizes;
use zkmoe_commit::shape::{AxisSize, Ragged, Shape, index_bits};

/// The public sizes of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchShape {
    /// Padded length of each request.
    pub lengths: Vec<usize>,
    /// Layer, expert and padded load of each active expert, in this order.
    pub blocks: Vec<(usize, usize, usize)>,
    /// Rows of decoded positions, padding included.
    pub decoded: usize,
}

/// The size of every index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dims {
    /// Sizes of the model.
    pub sizes: Sizes,
    /// Sizes of the batch; they stay as they are, since the two below follow from them.
    batch: BatchShape,
    /// Lengths and loads, as all shapes share them.
    lengths: Ragged,
    loads: Ragged,
}

/// Exponents of the norm's table.
pub const EXPONENTS: usize = EXPONENT_MAX as usize + 1;
/// Random cells of a request, which hide its evaluation.
pub const CELLS: usize = 4;

impl Dims {
    /// Sizes for one model and one batch.
    pub fn new(sizes: Sizes, batch: BatchShape) -> Self {
        let lengths = Ragged::new(batch.lengths.clone());
        let loads = Ragged::new(batch.blocks.iter().map(|b| b.2).collect());
        Self {
            sizes,
            batch,
            lengths,
            loads,
        }
    }

    /// Sizes for a model alone. Nothing about weights depends on a batch, so the smallest stands for any.
    pub fn of_model(sizes: Sizes) -> Self {
        let batch = BatchShape {
            lengths: vec![1],
            blocks: vec![(0, 0, 1)],
            decoded: 1,
        };
        Self::new(sizes, batch)
    }

    /// Sizes of the batch.
    pub fn batch(&self) -> &BatchShape {
        &self.batch
    }

    /// The longest padded length.
    pub fn longest(&self) -> usize {
        self.lengths.largest().max(1)
    }

    /// The size of an index in a shape with this group axis.
    fn size_in(&self, label: Label, group: Label) -> AxisSize {
        match (label, group) {
            (Label::Position | Label::Key, Label::Request) => AxisSize::Each(self.lengths.clone()),
            (Label::Row, Label::Block) => AxisSize::Each(self.loads.clone()),
            _ => AxisSize::Same(self.size(label)),
        }
    }

    /// The size of an index, the largest over all groups.
    pub fn size(&self, label: Label) -> usize {
        let s = &self.sizes;
        match label {
            Label::Request => self.batch.lengths.len(),
            Label::Block => self.batch.blocks.len(),
            Label::Layer => s.num_hidden_layers,
            Label::Stream => s.num_hidden_layers + 1,
            Label::Position | Label::Key => self.longest(),
            Label::Row => self.loads.largest().max(1),
            Label::Decoded => self.batch.decoded,
            Label::KvHead => s.num_key_value_heads,
            Label::Group => s.query_group,
            Label::Half => 2,
            Label::Plane => s.head_dim / 2,
            Label::Hidden => s.hidden_size,
            Label::Expert => s.num_experts,
            Label::AnyExpert => s.num_hidden_layers * s.num_experts,
            Label::Inner => s.intermediate_size,
            Label::Vocab => s.vocab_size,
            Label::Cell => CELLS,
            Label::Entry(bits) => 1 << bits,
            Label::Exponent => EXPONENTS,
            Label::Slice(n) => n as usize,
        }
    }

    /// Bits of an index.
    pub fn bits(&self, label: Label) -> u32 {
        index_bits(self.size(label))
    }

    /// The index set of a list of indices, a group index first if there is one.
    pub fn shape(&self, labels: &[Label]) -> Shape {
        match labels.split_first() {
            Some((&group @ (Label::Request | Label::Block), inner)) => Shape::by_axis(
                self.size(group),
                inner.iter().map(|&l| self.size_in(l, group)).collect(),
            ),
            _ => Shape::dense(&labels.iter().map(|&l| self.size(l)).collect::<Vec<_>>()),
        }
    }

    /// The stride of requests in token ids.
    pub fn token_id_bits(&self) -> u32 {
        self.bits(Label::Position)
    }
}
