//! Building a relation: declares tensors, states equations, and completes both so that the engine needs no cases.

use super::{
    Constraint, Count, Expr, Fill, Index, Label, Lookup, Public, Ref, Relation, Round, Tag, Tensor,
};
use crate::weights::WeightId;

/// Collects a relation. Names are those of the family's own code, so an unknown name is a fault of that code and
/// panics; no input reaches this.
#[derive(Debug, Default)]
pub struct Builder {
    tensors: Vec<Tensor>,
    constraints: Vec<Constraint>,
    lookups: Vec<Lookup>,
}

impl Builder {
    /// An empty relation.
    pub fn new() -> Self {
        Self::default()
    }

    fn declare(&mut self, tensor: Tensor) -> Expr {
        assert!(
            self.tensors.iter().all(|t| t.name != tensor.name),
            "{} declared twice",
            tensor.name
        );
        let index = tensor.axes.iter().map(|&l| Index::At(l)).collect();
        self.tensors.push(tensor);
        Ref {
            tensor: self.tensors.len() - 1,
            index,
        }
        .into()
    }

    /// Declares a tensor of weights.
    pub fn weights(&mut self, id: WeightId, axes: &[Label]) -> Expr {
        self.part_of_weights(id.name(), id, axes)
    }

    /// Declares a part of a tensor of weights, of which there may be several.
    pub fn part_of_weights(&mut self, name: &str, id: WeightId, axes: &[Label]) -> Expr {
        self.declare(Tensor {
            name: name.into(),
            axes: axes.to_vec(),
            round: Round::Model,
            extension: false,
            fill: Fill::Weights(id),
        })
    }

    /// Declares a tensor of the trace.
    pub fn trace(&mut self, name: &str, axes: &[Label]) -> Expr {
        self.first(name, axes, Fill::Trace)
    }

    /// Declares a tensor that is committed before the first challenge.
    pub fn first(&mut self, name: &str, axes: &[Label], fill: Fill) -> Expr {
        self.declare(Tensor {
            name: name.into(),
            axes: axes.to_vec(),
            round: Round::First,
            extension: false,
            fill,
        })
    }

    /// Declares a tensor over `K` that is committed after the first challenges.
    pub fn second(&mut self, name: &str, axes: &[Label], fill: Fill) -> Expr {
        self.declare(Tensor {
            name: name.into(),
            axes: axes.to_vec(),
            round: Round::Second,
            extension: true,
            fill,
        })
    }

    /// A declared tensor with its own axes as indices.
    pub fn get(&self, name: &str) -> Expr {
        let tensor = self.find(name);
        let index = self.tensors[tensor]
            .axes
            .iter()
            .map(|&l| Index::At(l))
            .collect();
        Ref { tensor, index }.into()
    }

    /// A declared tensor with the axis `axis` indexed in another way.
    pub fn with(&self, name: &str, replacements: &[(Label, Index)]) -> Expr {
        self.reference(name, replacements).into()
    }

    /// As [`Builder::with`], as a bare reference.
    pub fn reference(&self, name: &str, replacements: &[(Label, Index)]) -> Ref {
        let tensor = self.find(name);
        let axes = &self.tensors[tensor].axes;
        assert!(
            replacements.iter().all(|(l, _)| axes.contains(l)),
            "{name} lacks an axis"
        );
        // An axis read with a shorter index would let the extension see the cells beyond it.
        let same_size = |axis, index| match index {
            Index::At(label) => axis == label || (axis, label) == (Label::Position, Label::Key),
            Index::Shifted(..) | Index::Fixed(_) | Index::BlockExpert => true,
        };
        assert!(
            replacements.iter().all(|&(l, i)| same_size(l, i)),
            "{name}: an index of another size"
        );
        let index = axes
            .iter()
            .map(|&axis| {
                replacements
                    .iter()
                    .find(|(l, _)| *l == axis)
                    .map_or(Index::At(axis), |r| r.1)
            })
            .collect();
        Ref { tensor, index }
    }

    fn find(&self, name: &str) -> usize {
        self.tensors
            .iter()
            .position(|t| t.name == name)
            .unwrap_or_else(|| panic!("no tensor {name}"))
    }

    /// A term that lacks the index `Key` stands for the same value at every key; where the number of keys differs from
    /// request to request, the extension needs the indicator of the keys that exist.
    fn complete(out: &[Label], mut expr: Expr) -> Expr {
        for term in &mut expr.0 {
            if term.refs.is_empty() {
                continue;
            }
            let has = |l: Label| {
                term.refs
                    .iter()
                    .flat_map(|r| &r.index)
                    .any(|i| i.label() == Some(l))
                    || term.publics.iter().any(|p| p.labels().contains(&l))
            };
            if out.contains(&Label::Key) && !has(Label::Key) {
                term.publics.push(Public::Exists);
            }
        }
        expr
    }

    /// States that an expression is zero at every cell of its index set.
    pub fn zero(&mut self, name: &str, out: &[Label], expr: Expr) {
        self.zero_after(Round::Second, name, out, expr);
    }

    /// As [`Builder::zero`], with the round after which the point is drawn.
    pub fn zero_after(&mut self, drawn_after: Round, name: &str, out: &[Label], expr: Expr) {
        let expr = Self::complete(out, expr);
        self.constraints.push(Constraint {
            name: name.into(),
            out: out.to_vec(),
            expr,
            drawn_after,
        });
    }

    /// States that every cell of a tensor is 0 or 1.
    pub fn boolean(&mut self, name: &str) {
        let (x, out) = (self.get(name), self.tensors[self.find(name)].axes.clone());
        self.zero(
            &format!("{name} is boolean"),
            &out,
            x.clone() * x.clone() - x,
        );
    }

    /// One side of a multiset.
    pub fn lookup(&mut self, name: &str, out: &[Label], count: Count, tag: Tag, tuple: Vec<Expr>) {
        let tuple = tuple.into_iter().map(|e| Self::complete(out, e)).collect();
        self.lookups.push(Lookup {
            name: name.into(),
            out: out.to_vec(),
            count,
            tag,
            tuple,
        });
    }

    /// States `0 <= expr < 2^bits` wherever `count` says so. More than 16 bits are cut into digits in base `2^16`: the
    /// upper ones are committed, the lowest is what they leave. Each digit lies in a range of its own, so the sum
    /// is an integer below `2^bits` and no fraction modulo the field's order passes.
    // Expressions are built where they are stated.
    #[allow(clippy::needless_pass_by_value)]
    pub fn range(&mut self, name: &str, out: &[Label], count: Count, expr: Expr, bits: u32) {
        assert!((1..=48).contains(&bits), "{name}: {bits} bits");
        let upper = bits.div_ceil(16) - 1;
        let mut lowest = expr.clone();
        for position in 1..=upper {
            let limb = format!("{name}.{position}");
            let digit = self.first(
                &limb,
                out,
                Fill::Limb {
                    value: expr.clone(),
                    position,
                },
            );
            lowest = lowest - digit.clone() * (1 << (16 * position));
            let digit_bits = if position == upper {
                bits - 16 * upper
            } else {
                16
            };
            self.lookup(
                &limb,
                out,
                count.clone(),
                Tag::Range(digit_bits as u8),
                vec![digit],
            );
        }
        let low_bits = if upper == 0 { bits } else { 16 };
        self.lookup(name, out, count, Tag::Range(low_bits as u8), vec![lowest]);
    }

    /// States that a signed value lies in `[-2^(bits-1), 2^(bits-1))`.
    pub fn signed(&mut self, name: &str, out: &[Label], expr: Expr, bits: u32) {
        self.range(name, out, Count::One, expr + (1i64 << (bits - 1)), bits);
    }

    /// The relation, with the tables' sides of all public tables that are in use.
    pub fn finish(mut self) -> Relation {
        let mut tags: Vec<Tag> = self.lookups.iter().map(|l| l.tag).collect();
        tags.sort();
        tags.dedup();
        for tag in tags {
            let (axis, columns) = match tag {
                Tag::Range(bits) => (Label::Entry(bits), vec![]),
                Tag::Exp => (Label::Entry(16), vec![Public::ExpTable]),
                Tag::Silu => (Label::Entry(16), vec![Public::SiluTable]),
                Tag::Normalise => (Label::Exponent, vec![Public::NormScale, Public::NormFactor]),
                // Their tables are committed or belong to a gadget.
                Tag::Embedding | Tag::RowWeight | Tag::Dispatch | Tag::Gather => continue,
            };
            let name = format!("table {tag:?}");
            self.first(&name, &[axis], Fill::Multiplicity(tag));
            let count = Count::Minus(self.reference(&name, &[]));
            let tuple = core::iter::once(Public::Index(axis))
                .chain(columns)
                .map(Expr::public)
                .collect();
            self.lookup(&name, &[axis], count, tag, tuple);
        }
        self.finish_without_tables()
    }

    /// The relation as it is: the tables' sides are elsewhere.
    pub fn finish_without_tables(self) -> Relation {
        Relation {
            tensors: self.tensors,
            constraints: self.constraints,
            lookups: self.lookups,
        }
    }
}
