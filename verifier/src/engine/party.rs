//! The verifier's end of [`super::run`].

use super::{Factor, Fractions, Party, Sumcheck};
use crate::gkr::{self, Fraction};
use crate::relation::Label;
use zkmoe_commit::channel::{Hidden, Reject, VerifierChannel};
use zkmoe_commit::field::K;
use zkmoe_commit::shape::{AxisWeights, Shape};

/// The verifier's party: it receives what the prover's computes.
pub struct VerifierParty<'a, 'b> {
    /// The channel.
    pub channel: &'a mut VerifierChannel<'b>,
    /// Index sets of all lookups.
    lookups: Vec<Shape>,
    /// Whether the lookups are a part of those whose fractions sum to zero.
    is_part: bool,
    /// The sum of the fractions of a part, once it is known.
    sum: Option<Fraction>,
}

impl<'a, 'b> VerifierParty<'a, 'b> {
    /// A party for a relation whose lookups have these index sets.
    pub fn new(channel: &'a mut VerifierChannel<'b>, lookups: Vec<Shape>) -> Self {
        Self {
            channel,
            lookups,
            is_part: false,
            sum: None,
        }
    }

    /// As [`VerifierParty::new`] for lookups whose fractions sum to zero only together with those of other parts. The
    /// caller has to see to that, with the sum that [`VerifierParty::into_sum`] gives.
    pub fn of_part(channel: &'a mut VerifierChannel<'b>, lookups: Vec<Shape>) -> Self {
        Self {
            is_part: true,
            ..Self::new(channel, lookups)
        }
    }

    /// The sum of the fractions of a part; none before [`super::run`].
    pub fn into_sum(self) -> Option<Fraction> {
        self.sum
    }

    fn one(&mut self, label: &'static str) -> Result<Hidden, Reject> {
        let values = self.channel.hidden(label, 1)?;
        values
            .into_iter()
            .next()
            .ok_or_else(|| Reject::check(label))
    }
}

impl Party for VerifierParty<'_, '_> {
    type Value = Hidden;
    type Error = Reject;

    fn public(&self, x: K) -> Hidden {
        Hidden::public(x)
    }
    fn only_counts(&self) -> bool {
        self.channel.is_rehearsal()
    }
    fn challenge(&mut self, label: &'static str) -> K {
        self.channel.challenge(label)
    }
    fn fractions(&mut self) -> Result<Fractions<Hidden>, Reject> {
        let leaves = if self.is_part {
            let (sum, leaves) = gkr::sum(self.channel, &self.lookups)?;
            self.sum = Some(sum);
            leaves
        } else {
            gkr::verify(self.channel, &self.lookups)?
        };
        Ok(Fractions {
            point: leaves.point,
            numerator: leaves.numerator,
            denominator: leaves.denominator,
        })
    }
    fn tensor(&mut self, _: usize, _: usize, _: &[AxisWeights]) -> Result<Hidden, Reject> {
        self.one("evaluations")
    }
    fn sum(&mut self, _: &[Label], _: &[AxisWeights], _: &[Factor]) -> Result<Hidden, Reject> {
        self.one("sums of products")
    }
    fn begin(&mut self, _: &Sumcheck) -> Result<(), Reject> {
        Ok(())
    }
    fn round(&mut self, degree: usize) -> Result<Vec<Hidden>, Reject> {
        self.channel.hidden("sumcheck rounds", degree)
    }
    fn bind(&mut self, _: K) {}
    fn product(&mut self, a: Hidden, b: Hidden) -> Hidden {
        self.channel.product(a, b)
    }
    fn assert_zero(&mut self, value: Hidden, check: &dyn Fn() -> String) -> Result<(), Reject> {
        self.channel.assert_zero(value, check)
    }
}
