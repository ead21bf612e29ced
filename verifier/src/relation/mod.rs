//! The relation as data: which tensors are committed, and which equations and lookups bind them.
//!
//! Prover and verifier build the same [`Relation`] from the public header; sizes are symbolic ([`Label`]), so its
//! length depends on the kinds of operators and not on layers, tokens or experts. The engine reads it, and no
//! equation is written anywhere else.
//!
//! Everything is a sum of [`Term`]s. A term is an integer times public functions times at most three tensors, each
//! with an index for every axis, as in `x[r,l,s,i] * wq[l,i,h,g,c,j]`. Indices that are not among the indices of the
//! whole expression are summed over. A [`Constraint`] says that an expression is zero at every cell of its index set,
//! a [`Lookup`] that tuples of expressions form, with multiplicities, a multiset that cancels against all other
//! lookups of the same [`Tag`].

mod builder;
mod check;
mod dims;
mod dump;
mod expr;

pub use builder::Builder;
pub use check::Declared;
pub use dims::{BatchShape, Dims};
pub use expr::{Expr, Index, Public, Ref, Term};

use crate::weights::WeightId;

/// A symbolic index. The order of the variants is the order of axes inside the engine's sums: group axes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Label {
    /// Requests of the batch; sizes of `Position` and `Key` depend on it.
    Request,
    /// Active (layer, expert) pairs; the size of `Row` depends on it.
    Block,
    /// Blocks of the transformer.
    Layer,
    /// Residual streams: the input of each block, and the output of the last.
    Stream,
    /// Positions of a request.
    Position,
    /// Dispatched rows of an active expert.
    Row,
    /// Decoded positions of the batch.
    Decoded,
    /// Key and value heads.
    KvHead,
    /// Query heads that share a key head.
    Group,
    /// The two halves of a head that the rotary embedding rotates into each other.
    Half,
    /// Planes of rotation: half of a head.
    Plane,
    /// Positions that are attended to.
    Key,
    /// Width of the residual stream.
    Hidden,
    /// Experts of a layer.
    Expert,
    /// Experts of all layers.
    AnyExpert,
    /// Inner width of an expert.
    Inner,
    /// The vocabulary.
    Vocab,
    /// The random cells of a request.
    Cell,
    /// Entries of a public table of `2^n` rows.
    Entry(u8),
    /// Normalisation exponents of the norm's table.
    Exponent,
    /// So many neighbouring entries of another axis.
    Slice(u32),
}

impl Label {
    /// The letter under which the dump shows the index.
    pub fn letter(self) -> String {
        match self {
            Self::Request => "r".into(),
            Self::Block => "a".into(),
            Self::Layer => "l".into(),
            Self::Stream => "k".into(),
            Self::Position => "s".into(),
            Self::Row => "n".into(),
            Self::Decoded => "m".into(),
            Self::KvHead => "h".into(),
            Self::Group => "g".into(),
            Self::Half => "c".into(),
            Self::Plane => "j".into(),
            Self::Key => "u".into(),
            Self::Hidden => "i".into(),
            Self::Expert => "e".into(),
            Self::AnyExpert => "x".into(),
            Self::Inner => "f".into(),
            Self::Vocab => "v".into(),
            Self::Cell => "q".into(),
            Self::Entry(bits) => format!("y{bits}"),
            Self::Exponent => "z".into(),
            Self::Slice(n) => format!("p{n}"),
        }
    }
}

/// When a tensor is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Round {
    /// In the model id.
    Model,
    /// In the first root: the trace.
    First,
    /// In the second root: what depends on challenges drawn after the first.
    Second,
}

/// How an honest prover fills a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fill {
    /// Weights of the model.
    Weights(WeightId),
    /// A value of the integer model's trace.
    Trace,
    /// Uniform cells.
    Random,
    /// Digit number `position` in base `2^16` of the value of lookup `lookup`'s first column before limbs.
    Limb {
        /// The value.
        value: Expr,
        /// Which digit.
        position: u32,
    },
    /// How often each entry of a table is looked up.
    Multiplicity(Tag),
    /// `sum_i beta^i x[.., i]` over the last index of the tensor.
    Fingerprint(Ref),
    /// `eq(tau, id)` for token ids.
    RowWeight(Ref),
}

/// A committed tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// Its name, unique.
    pub name: String,
    /// Its axes.
    pub axes: Vec<Label>,
    /// When it is committed.
    pub round: Round,
    /// Whether its values lie in `K`; then it is committed as two tensors over `F`.
    pub extension: bool,
    /// How it is filled.
    pub fill: Fill,
}

/// An expression that is zero everywhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Constraint {
    /// What a violation means.
    pub name: String,
    /// The indices of the expression.
    pub out: Vec<Label>,
    /// The expression.
    pub expr: Expr,
    /// After which round its point is drawn.
    pub drawn_after: Round,
}

/// The multiset to which a lookup belongs. Its number is the constant part of every key, so that tuples of different
/// multisets never meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tag {
    /// `(x)` with `0 <= x < 2^bits`, `bits` from 1 to 16.
    Range(u8),
    /// `(index, exponential)`.
    Exp,
    /// `(input + 2^15, activation)`.
    Silu,
    /// `(z, 4^z, 2^(20 - z))`.
    Normalise,
    /// `(token, fingerprint of its embedding)`.
    Embedding,
    /// `(token id, weight of the token at the zero-check point)`.
    RowWeight,
    /// `(token id, layer, expert, fingerprint, gate)`.
    Dispatch,
    /// `(token id, fingerprint, next token)`.
    Gather,
}

impl Tag {
    /// The constant part of the key.
    pub fn number(self) -> u64 {
        match self {
            Self::Range(bits) => u64::from(bits),
            Self::Exp => 32,
            Self::Silu => 33,
            Self::Normalise => 34,
            Self::Embedding => 35,
            Self::RowWeight => 36,
            Self::Dispatch => 37,
            Self::Gather => 38,
        }
    }
}

/// With which multiplicity a lookup enters its multiset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Count {
    /// Once for every cell.
    One,
    /// Once for every pair that a causal mask admits.
    Causal,
    /// As often as the cell of a tensor says; on the looking side the tensor must be constrained boolean.
    Plus(Ref),
    /// The table's side: minus the cell of a tensor.
    Minus(Ref),
}

/// One side of a multiset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    /// What it is.
    pub name: String,
    /// The indices of its expressions.
    pub out: Vec<Label>,
    /// Its multiplicity.
    pub count: Count,
    /// The multiset.
    pub tag: Tag,
    /// The tuple; shorter tuples end in zeros.
    pub tuple: Vec<Expr>,
}

/// All tensors, constraints and lookups of a model family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relation {
    /// Committed tensors, in the order in which the gadgets declare them; weights first.
    pub tensors: Vec<Tensor>,
    /// Expressions that are zero.
    pub constraints: Vec<Constraint>,
    /// Both sides of every multiset.
    pub lookups: Vec<Lookup>,
}

impl Relation {
    /// The index of the tensor called `name`.
    pub fn tensor(&self, name: &str) -> Option<usize> {
        self.tensors.iter().position(|t| t.name == name)
    }
}
