//! Expressions: integer combinations of products of indexed tensors.

use super::Label;
use core::ops::{Add, Mul, Neg, Sub};

/// How one axis of a tensor is indexed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Index {
    /// By an index of the same size.
    At(Label),
    /// By an index plus a constant.
    Shifted(Label, usize),
    /// By a constant.
    Fixed(usize),
    /// The axis `AnyExpert` by an active block: its layer and expert.
    BlockExpert,
}

impl Index {
    /// The symbolic index that occurs.
    pub fn label(self) -> Option<Label> {
        match self {
            Self::At(l) | Self::Shifted(l, _) => Some(l),
            Self::Fixed(_) => None,
            Self::BlockExpert => Some(Label::Block),
        }
    }
}

/// A tensor with an index for every axis.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ref {
    /// Position of the tensor in the relation.
    pub tensor: usize,
    /// One index for each axis.
    pub index: Vec<Index>,
}

/// A public function of indices with a multilinear extension that the verifier computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Public {
    /// The index itself, as a number.
    Index(Label),
    /// The id of a token: request and position in one number.
    TokenId,
    /// The layer of an active block.
    BlockLayer,
    /// The expert of an active block.
    BlockExpert,
    /// 1 where the layer is that of the block: takes a sum over blocks to layers.
    LayerOfBlock,
    /// 1 where the attended position is not after the attending one.
    Causal,
    /// 1 where the attended position exists in the request.
    Exists,
    /// RoPE's cosines, by position and plane.
    Cos,
    /// RoPE's sines, by position and plane.
    Sin,
    /// `beta^index`.
    FingerprintPower(Label),
    /// The weight of a token at the zero-check point.
    TokenWeight,
    /// The exponential table.
    ExpTable,
    /// The `SiLU` table.
    SiluTable,
    /// `4^z`.
    NormScale,
    /// `2^(20 - z)`.
    NormFactor,
}

impl Public {
    /// The indices on which the function depends.
    pub fn labels(self) -> Vec<Label> {
        match self {
            Self::Index(l) | Self::FingerprintPower(l) => vec![l],
            Self::TokenId | Self::TokenWeight => vec![Label::Request, Label::Position],
            Self::BlockLayer | Self::BlockExpert => vec![Label::Block],
            Self::LayerOfBlock => vec![Label::Block, Label::Layer],
            Self::Causal => vec![Label::Position, Label::Key],
            Self::Exists => vec![Label::Request, Label::Key],
            Self::Cos | Self::Sin => vec![Label::Position, Label::Plane],
            Self::ExpTable | Self::SiluTable => vec![Label::Entry(16)],
            Self::NormScale | Self::NormFactor => vec![Label::Exponent],
        }
    }
}

/// `coefficient * publics * refs`, summed over every index that the expression does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    /// An integer.
    pub coefficient: i64,
    /// Public functions.
    pub publics: Vec<Public>,
    /// Tensors, at most three.
    pub refs: Vec<Ref>,
}

/// A sum of terms.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Expr(pub Vec<Term>);

impl Expr {
    /// The same number everywhere.
    pub fn constant(coefficient: i64) -> Self {
        Self(vec![Term {
            coefficient,
            publics: vec![],
            refs: vec![],
        }])
    }
    /// A public function.
    pub fn public(p: Public) -> Self {
        Self(vec![Term {
            coefficient: 1,
            publics: vec![p],
            refs: vec![],
        }])
    }
}

impl From<Ref> for Expr {
    fn from(r: Ref) -> Self {
        Self(vec![Term {
            coefficient: 1,
            publics: vec![],
            refs: vec![r],
        }])
    }
}

impl Add for Expr {
    type Output = Self;
    fn add(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }
}

impl Neg for Expr {
    type Output = Self;
    fn neg(self) -> Self {
        self * -1
    }
}

impl Sub for Expr {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self + -other
    }
}

impl Mul<i64> for Expr {
    type Output = Self;
    fn mul(mut self, factor: i64) -> Self {
        for term in &mut self.0 {
            term.coefficient *= factor;
        }
        self
    }
}

impl Mul for Expr {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        let mut terms = Vec::with_capacity(self.0.len() * other.0.len());
        for a in &self.0 {
            for b in &other.0 {
                terms.push(Term {
                    coefficient: a.coefficient * b.coefficient,
                    publics: [&a.publics[..], &b.publics].concat(),
                    refs: [&a.refs[..], &b.refs].concat(),
                });
            }
        }
        Self(terms)
    }
}

impl Add<i64> for Expr {
    type Output = Self;
    fn add(self, constant: i64) -> Self {
        self + Self::constant(constant)
    }
}

impl Sub<i64> for Expr {
    type Output = Self;
    fn sub(self, constant: i64) -> Self {
        self + -constant
    }
}
