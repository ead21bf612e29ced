//! The prover's end of [`zkmoe_verifier::engine::run`].

use ark_ff::Field;
use core::convert::Infallible;
use zkmoe_commit::channel::ProverChannel;
use zkmoe_commit::field::{K, from_i64, lift, scale};
use zkmoe_commit::shape::{AxisWeights, Shape};
use zkmoe_verifier::engine::{Factor, Fractions, Party, Publics, Sumcheck};
use zkmoe_verifier::relation::{Count, Label, Relation};

use super::array::{Array, functional, project};
use super::columns::{Column, Tables, count_cells};
use super::sumcheck::State;
use super::view::Witness;
use crate::gkr;

/// The prover's party.
pub struct ProverParty<'a> {
    /// The channel.
    pub channel: &'a mut ProverChannel,
    /// The relation.
    pub relation: &'a Relation,
    /// Public functions.
    pub publics: &'a Publics<'a>,
    /// The filled tensors.
    pub witness: &'a Witness,
    /// The evaluated tuples of all lookups.
    pub columns: &'a [Vec<Column>],
    /// Whether the lookups are a part of those whose fractions sum to zero.
    is_part: bool,
    /// The sum of the fractions of a part, once it is known.
    sum: Option<[K; 2]>,
    shapes: Vec<Shape>,
    arrays: Vec<(Factor, Array)>,
    state: Option<State>,
}

impl<'a> ProverParty<'a> {
    /// A party over filled tensors.
    pub fn new(
        channel: &'a mut ProverChannel,
        relation: &'a Relation,
        publics: &'a Publics<'a>,
        witness: &'a Witness,
        columns: &'a [Vec<Column>],
    ) -> Self {
        let shapes = relation
            .tensors
            .iter()
            .map(|t| publics.dims.shape(&t.axes))
            .collect();
        Self {
            channel,
            relation,
            publics,
            witness,
            columns,
            is_part: false,
            sum: None,
            shapes,
            arrays: Vec::new(),
            state: None,
        }
    }

    /// Makes it the party of a part, as [`zkmoe_verifier::engine::VerifierParty::of_part`].
    #[must_use]
    pub fn of_part(mut self) -> Self {
        self.is_part = true;
        self
    }

    /// The sum of the fractions of a part, numerator and denominator; none before the run.
    pub fn into_sum(self) -> Option<[K; 2]> {
        self.sum
    }

    /// Counts and denominators of one lookup.
    fn fractions_of(&self, c: usize) -> (gkr::Numerators, Vec<K>) {
        let lookup = &self.relation.lookups[c];
        let challenges = self.publics.challenges;
        let constant = challenges.alpha - lift(from_i64(lookup.tag.number() as i64));
        let mut denominators = match &self.columns[c][0] {
            Column::Base(first) => first
                .iter()
                .map(|&x| constant - scale(challenges.delta, x))
                .collect::<Vec<_>>(),
            Column::Ext(first) => first
                .iter()
                .map(|&x| constant - challenges.delta * x)
                .collect(),
        };
        let mut fold = challenges.delta;
        for column in &self.columns[c][1..] {
            fold *= challenges.delta;
            match column {
                Column::Base(xs) => denominators
                    .iter_mut()
                    .zip(xs)
                    .for_each(|(d, &x)| *d -= scale(fold, x)),
                Column::Ext(xs) => denominators
                    .iter_mut()
                    .zip(xs)
                    .for_each(|(d, &x)| *d -= fold * x),
            }
        }
        let tables = Tables {
            relation: self.relation,
            publics: self.publics,
            witness: self.witness,
        };
        let sign = if matches!(lookup.count, Count::Minus(_)) {
            -K::ONE
        } else {
            K::ONE
        };
        let counts = count_cells(&tables, lookup)
            .map_or(gkr::Numerators::Constant(K::ONE), |counts| {
                gkr::Numerators::Values(counts.into_iter().map(|x| sign * lift(x)).collect())
            });
        (counts, denominators)
    }

    fn arrays_of(&mut self, factors: &[Factor]) -> Vec<Array> {
        factors
            .iter()
            .map(
                |factor| match self.arrays.iter().position(|(f, _)| f == factor) {
                    Some(n) => self.arrays.swap_remove(n).1,
                    None => project(self.relation, self.publics, self.witness, factor),
                },
            )
            .collect()
    }
}

impl Party for ProverParty<'_> {
    type Value = K;
    type Error = Infallible;

    fn public(&self, x: K) -> K {
        x
    }

    fn challenge(&mut self, label: &'static str) -> K {
        self.channel.challenge(label)
    }

    fn fractions(&mut self) -> Result<Fractions<K>, Infallible> {
        let shapes: Vec<Shape> = self
            .relation
            .lookups
            .iter()
            .map(|l| self.publics.dims.shape(&l.out))
            .collect();
        let mut channel = core::mem::replace(self.channel, ProverChannel::new("", &[]));
        let leaves = |c| self.fractions_of(c);
        let (sum, (point, numerator, denominator)) = if self.is_part {
            let (sum, claims) = gkr::prove_sum(&mut channel, &shapes, &leaves);
            (Some(sum), claims)
        } else {
            (None, gkr::prove(&mut channel, &shapes, &leaves))
        };
        self.sum = sum;
        *self.channel = channel;
        Ok(Fractions {
            point,
            numerator,
            denominator,
        })
    }

    fn tensor(
        &mut self,
        tensor: usize,
        component: usize,
        weights: &[AxisWeights],
    ) -> Result<K, Infallible> {
        let value = functional(
            &self.shapes[tensor],
            &self.witness.tensors[tensor][component],
            weights,
        );
        self.channel.hidden("evaluations", &[value]);
        Ok(value)
    }

    fn sum(
        &mut self,
        labels: &[Label],
        weights: &[AxisWeights],
        factors: &[Factor],
    ) -> Result<K, Infallible> {
        let arrays: Vec<Array> = factors
            .iter()
            .map(|factor| {
                if let Some((_, array)) = self.arrays.iter().find(|(f, _)| f == factor) {
                    return array.clone();
                }
                let array = project(self.relation, self.publics, self.witness, factor);
                self.arrays.push((factor.clone(), array.clone()));
                array
            })
            .collect();
        let sumcheck = Sumcheck {
            labels: labels.to_vec(),
            weights: weights.to_vec(),
            factors: Vec::new(),
            terms: vec![(K::ONE, (0..arrays.len()).collect())],
        };
        let value = State::new(&sumcheck, arrays, self.publics.dims).total();
        self.channel.hidden("sums of products", &[value]);
        Ok(value)
    }

    fn begin(&mut self, sumcheck: &Sumcheck) -> Result<(), Infallible> {
        let arrays = self.arrays_of(&sumcheck.factors);
        self.state = Some(State::new(sumcheck, arrays, self.publics.dims));
        Ok(())
    }

    fn round(&mut self, degree: usize) -> Result<Vec<K>, Infallible> {
        let values = self
            .state
            .as_ref()
            .map(|s| s.round(degree))
            .unwrap_or_default();
        self.channel.hidden("sumcheck rounds", &values);
        Ok(values)
    }

    fn bind(&mut self, r: K) {
        if let Some(state) = &mut self.state {
            state.bind(r);
        }
    }

    fn product(&mut self, a: K, b: K) -> K {
        a * b
    }

    fn assert_zero(&mut self, _: K, _: &dyn Fn() -> String) -> Result<(), Infallible> {
        // The honest prover's values satisfy every check; a dishonest one's are the verifier's affair.
        Ok(())
    }
}
