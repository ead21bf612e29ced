//! The interactive argument for a relation, written once for both parties.
//!
//! [`run`] takes the relation from its lookups and constraints down to claims about committed tensors. A [`Party`]
//! is one end of the channel: the prover's computes and sends what is asked for, the verifier's receives it. Since
//! both follow the same function, no message, check or challenge can differ between them.
//!
//! 1. Every lookup is a column of fractions `count / (alpha - key)`, `key = tag + sum_j delta^j tuple_j`; one
//!    LogUp-GKR proof shows that all fractions sum to zero and leaves a claim at a random point of each column.
//! 2. Every constraint is an expression whose extension vanishes at a random point.
//! 3. So all that is left are values of expressions at points. A term with a single tensor is at once a claim about
//!    that tensor, also when it is summed over an index, since the sum's weights are a product over bits. A term with several factors is
//!    proved by a sumcheck over the indices that its factors share; the other indices are bound right away. Terms
//!    with the same indices and weights share a sumcheck (Thaler, "Time-optimal interactive proofs for circuit
//!    evaluation", eprint 2013/351, for the matrix products).
//! 4. The sumchecks end in claims about tensors, which the opening proves.

mod party;
mod public;
#[cfg(test)]
mod rates;
mod soundness;
mod term;

pub use party::VerifierParty;
pub use public::Publics;
pub use soundness::{SumcheckSize, soundness};
pub use term::{AxisUse, Factor, Source, Weighted, weigh};

use crate::relation::{Count, Dims, Expr, Label, Lookup, Public, Relation, Round, Term};
use ark_ff::{AdditiveGroup, Field};
use core::ops::{Add, Mul, Sub};
use std::collections::BTreeMap;

use zkmoe_commit::channel::powers;
use zkmoe_commit::field::{K, ext, from_i64, lift};
use zkmoe_commit::shape::AxisWeights;

/// A point for every index.
pub type Point = BTreeMap<Label, AxisWeights>;

/// One end of the channel.
pub trait Party {
    /// A value that depends on the witness.
    type Value: Clone
        + Add<Output = Self::Value>
        + Sub<Output = Self::Value>
        + Mul<K, Output = Self::Value>;
    /// Why the party gives up.
    type Error;

    /// A value that both parties know.
    fn public(&self, x: K) -> Self::Value;
    /// Whether nothing is asked but how many messages there are. Values that both parties know are then not computed:
    /// that takes a pass over all groups for each.
    fn only_counts(&self) -> bool {
        false
    }
    /// Draws a challenge.
    fn challenge(&mut self, label: &'static str) -> K;
    /// Proves that the fractions of all columns sum to zero, or keeps their sum where the columns are a part of all; ends in a point and the values of the concatenated
    /// numerators and denominators there.
    fn fractions(&mut self) -> Result<Fractions<Self::Value>, Self::Error>;
    /// The functional `weights` of a tensor of the relation over `F`, or of one component of a tensor over `K`.
    fn tensor(
        &mut self,
        tensor: usize,
        component: usize,
        weights: &[AxisWeights],
    ) -> Result<Self::Value, Self::Error>;
    /// The sum over `labels` of the product of the factors, weighted by `weights` for each label.
    fn sum(
        &mut self,
        labels: &[Label],
        weights: &[AxisWeights],
        factors: &[Factor],
    ) -> Result<Self::Value, Self::Error>;
    /// Prepares a sumcheck over `labels` of `sum_k coefficients_k * product of the factors with numbers terms_k`.
    fn begin(&mut self, sumcheck: &Sumcheck) -> Result<(), Self::Error>;
    /// The next round polynomial's values at 0, 2, ..., degree.
    fn round(&mut self, degree: usize) -> Result<Vec<Self::Value>, Self::Error>;
    /// Binds the round's variable.
    fn bind(&mut self, r: K);
    /// A product of hidden values.
    fn product(&mut self, a: Self::Value, b: Self::Value) -> Self::Value;
    /// States that a value is zero.
    fn assert_zero(
        &mut self,
        value: Self::Value,
        check: &dyn Fn() -> String,
    ) -> Result<(), Self::Error>;
}

/// What a proof about fractions ends in: claims about the concatenation of all columns.
#[derive(Debug, Clone)]
pub struct Fractions<V> {
    /// The point.
    pub point: Vec<K>,
    /// The numerators' extension there.
    pub numerator: V,
    /// The denominators' extension there.
    pub denominator: V,
}

/// A sumcheck instance: several products over the same indices with the same weights.
#[derive(Debug, Clone)]
pub struct Sumcheck {
    /// The indices, outermost first; variables are bound from the last label's lowest bit.
    pub labels: Vec<Label>,
    /// The weight function of each index.
    pub weights: Vec<AxisWeights>,
    /// The distinct factors.
    pub factors: Vec<Factor>,
    /// For each product its coefficient and the numbers of its factors.
    pub terms: Vec<(K, Vec<usize>)>,
}

/// A claim about a committed tensor that is left for the opening.
#[derive(Debug, Clone)]
pub struct TensorClaim<V> {
    /// The tensor of the relation.
    pub tensor: usize,
    /// 0 for a tensor over `F`; which component of a tensor over `K`.
    pub component: usize,
    /// The functional.
    pub weights: Vec<AxisWeights>,
    /// Its value.
    pub value: V,
}

/// What a relation was reduced to.
#[derive(Debug, Clone)]
pub struct Reduced<V> {
    /// Claims about committed tensors.
    pub claims: Vec<TensorClaim<V>>,
    /// The sumchecks that led to them, in their order.
    pub sumchecks: Vec<SumcheckSize>,
}

/// The challenges on which the relation's public functions and points depend.
#[derive(Debug, Clone, Default)]
pub struct Challenges {
    /// Base of fingerprints; drawn after the first root.
    pub beta: K,
    /// Points of constraints between tensors of the first round; drawn after the first root.
    pub tau: BTreeMap<Label, Vec<K>>,
    /// Points of all other constraints; drawn after the second root.
    pub tau2: BTreeMap<Label, Vec<K>>,
    /// The pole of the lookups; drawn after the second root.
    pub alpha: K,
    /// Folds tuples into keys; drawn after the second root.
    pub delta: K,
}

/// The indices of all constraints whose point is drawn after `round`, in their order.
pub fn point_labels(relation: &Relation, round: Round) -> Vec<Label> {
    let mut labels: Vec<Label> = relation
        .constraints
        .iter()
        .filter(|c| c.drawn_after == round)
        .flat_map(|c| c.out.clone())
        .collect();
    labels.sort();
    labels.dedup();
    labels
}

/// Where an expression is evaluated. Expressions at the same place share their evaluations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place<'a> {
    /// At the slices of the lookups' final point; equal for equal lists of indices.
    Column(&'a [Label]),
    /// At the point drawn after a round.
    Drawn(Round),
}

struct Pending<V> {
    labels: Vec<Label>,
    weights: Vec<AxisWeights>,
    factors: Vec<Factor>,
    value: V,
    name: String,
}

struct Run<'a, P: Party> {
    party: &'a mut P,
    relation: &'a Relation,
    dims: &'a Dims,
    publics: &'a Publics<'a>,
    claims: Vec<TensorClaim<P::Value>>,
    pending: Vec<Pending<P::Value>>,
    sumchecks: Vec<SumcheckSize>,
    known: Vec<(Place<'a>, Vec<Label>, Term, P::Value)>,
}

/// Reduces the relation to claims about tensors.
pub fn run<P: Party>(
    party: &mut P,
    relation: &Relation,
    dims: &Dims,
    publics: &Publics<'_>,
) -> Result<Reduced<P::Value>, P::Error> {
    let mut run = Run {
        party,
        relation,
        dims,
        publics,
        claims: Vec::new(),
        pending: Vec::new(),
        sumchecks: Vec::new(),
        known: Vec::new(),
    };
    run.lookups()?;
    run.constraints()?;
    run.sumchecks()?;
    Ok(Reduced {
        claims: run.claims,
        sumchecks: run.sumchecks,
    })
}

impl<'a, P: Party> Run<'a, P> {
    fn lookups(&mut self) -> Result<(), P::Error> {
        let Fractions {
            point,
            numerator,
            denominator,
        } = self.party.fractions()?;
        let shapes: Vec<_> = self
            .relation
            .lookups
            .iter()
            .map(|l| self.dims.shape(&l.out))
            .collect();
        let columns = crate::gkr::layout(&shapes);
        let mut p = self.party.public(K::ZERO);
        let mut q = self.party.public(K::ONE);
        for (c, lookup) in self.relation.lookups.iter().enumerate() {
            let selector = columns.selector(c, &point);
            let at: Point = lookup
                .out
                .iter()
                .copied()
                .zip(columns.axis_weights(c, &point))
                .collect();
            let ones = self.functional(None, &lookup.out, &at);
            p = p + self.count(lookup, &at, ones)? * selector;
            let key = self.key(lookup, &at, ones)?;
            let alpha = self.publics.challenges.alpha;
            q = q + (self.party.public((alpha - K::ONE) * ones) - key) * selector;
        }
        self.party.assert_zero(p - numerator, &|| {
            "lookups: counts at the final point".into()
        })?;
        self.party.assert_zero(q - denominator, &|| {
            "lookups: keys at the final point".into()
        })
    }

    /// The functional of a public function over an index set.
    fn functional(&self, p: Option<Public>, out: &[Label], at: &Point) -> K {
        if self.party.only_counts() {
            K::ONE
        } else {
            self.publics.functional(p, out, at)
        }
    }

    fn count(&mut self, lookup: &'a Lookup, at: &Point, ones: K) -> Result<P::Value, P::Error> {
        let (sign, reference) = match &lookup.count {
            Count::One => return Ok(self.party.public(ones)),
            Count::Causal => {
                let causal = self.functional(Some(Public::Causal), &lookup.out, at);
                return Ok(self.party.public(causal));
            }
            Count::Plus(r) => (K::ONE, r),
            Count::Minus(r) => (-K::ONE, r),
        };
        let expr = Expr::from(reference.clone());
        Ok(self.evaluate(
            Place::Column(&lookup.out),
            &lookup.out,
            at,
            &expr,
            &lookup.name,
        )? * sign)
    }

    /// `tag + sum_j delta^(j+1) tuple_j`.
    fn key(&mut self, lookup: &'a Lookup, at: &Point, ones: K) -> Result<P::Value, P::Error> {
        let mut key = self
            .party
            .public(ones * lift(from_i64(lookup.tag.number() as i64)));
        let mut fold = K::ONE;
        for expr in &lookup.tuple {
            fold *= self.publics.challenges.delta;
            key = key
                + self.evaluate(
                    Place::Column(&lookup.out),
                    &lookup.out,
                    at,
                    expr,
                    &lookup.name,
                )? * fold;
        }
        Ok(key)
    }

    fn constraints(&mut self) -> Result<(), P::Error> {
        for constraint in &self.relation.constraints {
            let at: Point = self
                .publics
                .challenges
                .point(constraint.drawn_after)
                .iter()
                .map(|(&label, point)| (label, AxisWeights::eq(point)))
                .collect();
            let place = Place::Drawn(constraint.drawn_after);
            let value = self.evaluate(
                place,
                &constraint.out,
                &at,
                &constraint.expr,
                &constraint.name,
            )?;
            self.party
                .assert_zero(value, &|| format!("constraint `{}`", constraint.name))?;
        }
        Ok(())
    }

    /// The functional `at` of an expression.
    fn evaluate(
        &mut self,
        place: Place<'a>,
        out: &[Label],
        at: &Point,
        expr: &Expr,
        name: &str,
    ) -> Result<P::Value, P::Error> {
        let mut total = self.party.public(K::ZERO);
        for term in &expr.0 {
            let coefficient = lift(from_i64(term.coefficient));
            if term.refs.is_empty() && self.party.only_counts() {
                continue;
            }
            match weigh(self.relation, self.dims, self.publics, out, at, term) {
                Weighted::Public(x) => total = total + self.party.public(x * coefficient),
                Weighted::Product {
                    scale,
                    labels,
                    weights,
                    factors,
                } => {
                    let bare = Term {
                        coefficient: 1,
                        ..term.clone()
                    };
                    let mut summed: Vec<Label> = term::labels(term);
                    summed.retain(|l| !out.contains(l));
                    let known = self
                        .known
                        .iter()
                        .find(|(p, s, t, _)| *p == place && *s == summed && *t == bare);
                    let value = if let Some((_, _, _, value)) = known {
                        value.clone()
                    } else {
                        let value = self.product(labels, weights, factors, name)?;
                        self.known.push((place, summed, bare, value.clone()));
                        value
                    };
                    total = total + value * (scale * coefficient);
                }
            }
        }
        Ok(total)
    }

    /// The value of a product of factors: a claim about a tensor, or a sum that is left for a sumcheck.
    fn product(
        &mut self,
        labels: Vec<Label>,
        weights: Vec<AxisWeights>,
        factors: Vec<Factor>,
        name: &str,
    ) -> Result<P::Value, P::Error> {
        if let [factor] = &factors[..]
            && labels.is_empty()
        {
            return self.claim(factor, &BTreeMap::new());
        }
        let value = self.party.sum(&labels, &weights, &factors)?;
        self.pending.push(Pending {
            labels,
            weights,
            factors,
            value: value.clone(),
            name: name.into(),
        });
        Ok(value)
    }

    /// Asks for the value of a factor at a point of the labels it keeps, and notes the claims about its tensor.
    fn claim(
        &mut self,
        factor: &Factor,
        point: &BTreeMap<Label, Vec<K>>,
    ) -> Result<P::Value, P::Error> {
        let weights = factor.weights_at(self.dims, point);
        match factor.source {
            Source::Public(_) if self.party.only_counts() => Ok(self.party.public(K::ONE)),
            Source::Public(p) => Ok(self.party.public(self.publics.value(p, &weights))),
            Source::Tensor(tensor) => {
                let components = if self.relation.tensors[tensor].extension {
                    2
                } else {
                    1
                };
                let mut total = self.party.public(K::ZERO);
                for component in 0..components {
                    let value = self.party.tensor(tensor, component, &weights)?;
                    let unit = if component == 0 {
                        K::ONE
                    } else {
                        ext(from_i64(0), from_i64(1))
                    };
                    self.claims.push(TensorClaim {
                        tensor,
                        component,
                        weights: weights.clone(),
                        value: value.clone(),
                    });
                    total = total + value * unit;
                }
                Ok(total)
            }
        }
    }

    fn sumchecks(&mut self) -> Result<(), P::Error> {
        let mut pending = core::mem::take(&mut self.pending);
        while !pending.is_empty() {
            // Everything that shares indices and weights with the first one that is left.
            let labels = pending[0].labels.clone();
            let weights = pending[0].weights.clone();
            let (group, rest): (Vec<_>, Vec<_>) = pending
                .into_iter()
                .partition(|p| p.labels == labels && p.weights == weights);
            pending = rest;
            self.sumcheck(labels, weights, &group)?;
        }
        Ok(())
    }

    fn sumcheck(
        &mut self,
        labels: Vec<Label>,
        weights: Vec<AxisWeights>,
        group: &[Pending<P::Value>],
    ) -> Result<(), P::Error> {
        let batching = powers(self.party.challenge("sumcheck batching"), group.len());
        let mut claim = self.party.public(K::ZERO);
        let mut factors: Vec<Factor> = Vec::new();
        let mut terms = Vec::new();
        for (pending, &coefficient) in group.iter().zip(&batching) {
            claim = claim + pending.value.clone() * coefficient;
            let numbers = pending
                .factors
                .iter()
                .map(|factor| {
                    factors.iter().position(|f| f == factor).unwrap_or_else(|| {
                        factors.push(factor.clone());
                        factors.len() - 1
                    })
                })
                .collect();
            terms.push((coefficient, numbers));
        }
        let degree = 1 + terms
            .iter()
            .map(|(_, t): &(K, Vec<usize>)| t.len())
            .max()
            .unwrap_or(0);
        let sumcheck = Sumcheck {
            labels,
            weights,
            factors,
            terms,
        };
        self.party.begin(&sumcheck)?;
        let mut size = SumcheckSize {
            products: group.len(),
            rounds: 0,
            degree,
        };
        let mut point: BTreeMap<Label, Vec<K>> =
            sumcheck.labels.iter().map(|&l| (l, Vec::new())).collect();
        for &label in sumcheck.labels.iter().rev() {
            for _ in 0..self.dims.bits(label) {
                size.rounds += 1;
                let values = self.party.round(degree)?;
                let r = self.party.challenge("sumcheck");
                self.party.bind(r);
                claim = next_claim(&claim, &values, r);
                if let Some(p) = point.get_mut(&label) {
                    p.push(r);
                }
            }
        }
        self.sumchecks.push(size);
        let mut values = Vec::with_capacity(sumcheck.factors.len());
        for factor in &sumcheck.factors {
            values.push(self.claim(factor, &point)?);
        }
        let mut weight = K::ONE;
        for (label, w) in sumcheck.labels.iter().zip(&sumcheck.weights) {
            weight *= w.extension(&point[label]);
        }
        let mut total = self.party.public(K::ZERO);
        for (coefficient, numbers) in &sumcheck.terms {
            let mut product: Option<P::Value> = None;
            for &n in numbers {
                let value: P::Value = values[n].clone();
                product = Some(match product {
                    None => value,
                    Some(p) => self.party.product(p, value),
                });
            }
            if let Some(p) = product {
                total = total + p * (*coefficient * weight);
            }
        }
        let name = || {
            let names: Vec<&str> = group.iter().map(|p| p.name.as_str()).collect();
            format!("sumcheck of `{}`", names.join("`, `"))
        };
        self.party.assert_zero(total - claim, &name)
    }
}

/// `g(r)` of the polynomial with the values `g(0), claim - g(0), g(2), ..., g(d)` at `0..=d`.
pub fn next_claim<V>(claim: &V, values: &[V], r: K) -> V
where
    V: Clone + Add<Output = V> + Sub<Output = V> + Mul<K, Output = V>,
{
    let d = values.len();
    let at = |i: usize| {
        if i == 1 {
            claim.clone() - values[0].clone()
        } else {
            values[i.saturating_sub(usize::from(i > 1))].clone()
        }
    };
    let coefficients = lagrange(d, r);
    (1..=d).fold(at(0) * coefficients[0], |sum, i| {
        sum + at(i) * coefficients[i]
    })
}

/// The Lagrange polynomials of the nodes `0..=d` at `r`.
fn lagrange(d: usize, r: K) -> Vec<K> {
    let node = |i: usize| lift(from_i64(i as i64));
    (0..=d)
        .map(|i| {
            let (mut num, mut den) = (K::ONE, K::ONE);
            for j in (0..=d).filter(|&j| j != i) {
                num *= r - node(j);
                den *= node(i) - node(j);
            }
            // Distinct nodes below the characteristic.
            num * den.inverse().unwrap_or(K::ZERO)
        })
        .collect()
}

impl Challenges {
    /// The point drawn after `round`.
    pub fn point(&self, round: Round) -> &BTreeMap<Label, Vec<K>> {
        if round == Round::First {
            &self.tau
        } else {
            &self.tau2
        }
    }
}
