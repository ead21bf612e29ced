//! The soundness error of a batch proof, by source, added up in one place.

use crate::engine::{self, SumcheckSize};
use crate::gkr;
use crate::id::ModelId;
use crate::relation::{Dims, Fill, Label, Relation};
use zkmoe_commit::channel::Reject;
use zkmoe_commit::opening;
use zkmoe_commit::params::POLICY_BITS;
use zkmoe_commit::soundness::Term;
pub use zkmoe_commit::soundness::total_bits;

/// All terms for a batch that was reduced by these sumchecks and whose opening covers `rows` rows and `claims` claims.
pub fn terms(
    id: &ModelId,
    relation: &Relation,
    dims: &Dims,
    sumchecks: &[SumcheckSize],
    rows: usize,
    claims: usize,
) -> Vec<Term> {
    let shapes: Vec<_> = relation
        .lookups
        .iter()
        .map(|l| dims.shape(&l.out))
        .collect();
    let cells: f64 = shapes.iter().map(|s| s.len() as f64).sum();
    let width = relation
        .lookups
        .iter()
        .map(|l| l.tuple.len())
        .max()
        .unwrap_or(0) as f64;
    let work = id.params.grinding.lookup;
    let fingerprinted: f64 = relation
        .tensors
        .iter()
        .filter(|t| matches!(t.fill, Fill::Fingerprint(_)))
        .map(|t| dims.shape(&t.axes).len() as f64)
        .sum();
    let hidden = dims.size(Label::Hidden) as f64;
    let variables: f64 = relation
        .constraints
        .iter()
        .flat_map(|c| &c.out)
        .map(|&l| f64::from(dims.bits(l)))
        .sum();
    let positions = f64::from(dims.bits(Label::Position)) + 4.0 + 3.0;
    let requests = dims.size(Label::Request) as f64;
    let mut terms = vec![
        Term::over_field(
            "lookups: poles and keys",
            format!("N (W + 2) / |K|, N = {cells} cells, W = {width}, {work} bits of work"),
            "Haboeck, eprint 2022/1530, theorem 1 and Schwartz-Zippel",
            cells * (width + 2.0),
            work,
        ),
        Term::over_field(
            "fingerprints",
            format!("rows d / |K|, {fingerprinted} rows of d = {hidden}, {work} bits of work"),
            "Schwartz-Zippel, once for each row and the row it is claimed to equal",
            fingerprinted * hidden,
            work,
        ),
        Term::over_field(
            "blocks of requests",
            format!(
                "requests (variables + degree of the fold) / |K|, {requests} requests, {work} bits of work"
            ),
            "Schwartz-Zippel",
            positions * requests,
            work,
        ),
        Term::over_field(
            "blocks of requests, joined",
            format!("{requests} requests / |K|"),
            "Schwartz-Zippel",
            requests,
            0,
        ),
        Term::over_field(
            "constraints: points",
            format!("{variables} variables / |K|"),
            "Schwartz-Zippel",
            variables,
            0,
        ),
    ];
    terms.extend(engine::soundness(sumchecks));
    terms.extend(gkr::soundness(&shapes));
    terms.extend(opening::soundness(&id.params, rows, claims));
    terms
}

/// Refuses a proof below the policy.
pub fn check(terms: &[Term]) -> Result<(), Reject> {
    let bits = total_bits(terms);
    if bits >= POLICY_BITS {
        Ok(())
    } else {
        Err(Reject::check(format!(
            "soundness: {bits:.1} bits are less than the policy's {POLICY_BITS}"
        )))
    }
}

#[cfg(test)]
mod tests;
