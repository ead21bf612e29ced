//! The soundness error of the engine's own sumchecks, from a count of their challenges.

use zkmoe_commit::soundness::Term;

/// What the challenges of one sumcheck of products can hide. [`super::run`] notes it for each that it runs, so the terms
/// are about the challenges that were drawn and not about what a relation should need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SumcheckSize {
    /// Products that powers of one challenge combine, at least one.
    pub products: usize,
    /// Rounds, one for each variable.
    pub rounds: usize,
    /// Degree of a round's polynomial.
    pub degree: usize,
}

/// The terms of all sumchecks of a proof; none where there are none.
pub fn soundness(sumchecks: &[SumcheckSize]) -> Vec<Term> {
    let total = |of: fn(&SumcheckSize) -> usize| sumchecks.iter().map(of).sum::<usize>();
    let rounds = total(|s| s.rounds);
    let degrees = total(|s| s.rounds * s.degree);
    let batching = total(|s| s.products.saturating_sub(1));
    let term = |name: &str, formula: String, source, numerator: usize| {
        (numerator > 0).then(|| Term::over_field(name, formula, source, numerator as f64, 0))
    };
    let count = sumchecks.len();
    [
        term(
            "products: sumchecks",
            format!(
                "degrees of all rounds / |K|, {degrees} in {rounds} rounds of {count} sumchecks"
            ),
            "Lund, Fortnow, Karloff, Nisan 1992",
            degrees,
        ),
        term(
            "products: batching",
            format!("products but one of each sumcheck / |K|, {batching}"),
            "Schwartz-Zippel",
            batching,
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use zkmoe_commit::soundness::field_bits;

    #[test]
    fn each_round_and_each_batched_product_counts() {
        let size = |products, rounds, degree| SumcheckSize {
            products,
            rounds,
            degree,
        };
        let bits = |sizes: &[SumcheckSize]| -> Vec<f64> {
            let terms = soundness(sizes).into_iter();
            terms
                .map(|t| (field_bits() - t.bits).exp2().round())
                .collect()
        };
        assert_eq!(bits(&[size(3, 5, 4), size(1, 2, 3)]), [26.0, 2.0]);
        // A challenge that combines one product hides nothing.
        assert_eq!(bits(&[size(1, 2, 3)]), [6.0]);
        assert_eq!(bits(&[size(2, 0, 2)]), [1.0]);
        assert!(soundness(&[]).is_empty());
    }
}
