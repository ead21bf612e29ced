//! One opening for all claims of a proof, over the rows of up to three trees.
//!
//! What is committed before: rows ([`crate::rows`]) of the model, of the trace of round 1 and of the trace of round 2,
//! each tree under one root and with one [`Layout`]. The tree of round 1 ends with two mask rows, the base components
//! of a row over `K` that is uniform in all `2^k + t_max` coefficients, `t_max` the model's tail, the longest.
//!
//! What is proved: claims `sum_cells w(cell) cell = v_c` about tensors, with hidden values `v_c`.
//!
//! 1. With powers of `gamma` the claims become one, `sum_k sum_x L_k(x) row_k(x) = v`. Sumcheck over the `k` bits of
//!    `x` (C. Lund, L. Fortnow, H. Karloff, N. Nisan, "Algebraic methods for interactive proof systems", 1992) ends in
//!    `A = sum_k l_k row_k(rho)`, where `l_k = L_k(rho)` are public.
//! 2. Only rows that carry a claim take part ([`Layout::carries`]); `R` is their number. With `b` in `K^(log R)` the
//!    prover states, hidden, `B = sum_k eq(b,k) row_k(rho)` and `M = mask(rho)`. Then, with `e`,
//!    `G = mask + e sum_k l_k row_k + e^2 sum_k eq(b,k) row_k` over data and tails. So each row enters with a random
//!    coefficient (the `l_k` are not: a prover chooses data after seeing none of them, but they may vanish), `G` is
//!    uniform, and `G0(rho) = M + e A + e^2 B` holds for a misstated `A`, `B` or `M` for two values of `e` at most.
//! 3. `G = G0(X) + X^(2^k) G1(X)`. Both parts are committed with WHIR ([`crate::whir`]), which proves that `G0` has
//!    `2^k` and `G1` has `t_max` coefficients and no more. Otherwise a row of twice the degree would pass, and with it
//!    a word half-way between two models.
//! 4. At a point `z` outside of all domains `G0(z)` and `G1(z)` are sent. At `Q` positions, drawn after that, the
//!    symbols of all rows are opened, also of rows without a claim, because a leaf covers all; the verifier recomputes
//!    `G` there from the rows that carry a claim. WHIR proves `G0` at `rho`, `z` and the `Q` points, `G1` at `z` and
//!    the `Q` points.
//!
//! What is learned: that the claims hold. All of `G` may be seen, since the mask covers it; opened symbols are covered
//! by the tails; the values of steps 1 and 2 are sent hidden.
//!
//! Soundness is by unique decoding: the distance is `(1 - rate) / 2` with the rate of the longest row, and correlated
//! agreement of the rows is that of E. Ben-Sasson, D. Carmon, Y. Ishai, S. Kopparty, S. Saraf, "Proximity gaps for
//! Reed-Solomon codes", eprint 2020/654, applied once for each variable of `b` and to the curve in `e`. With list
//! decoding a prover could switch between nearby models.

#[cfg(feature = "prove")]
mod prover;
mod verifier;

#[cfg(all(test, feature = "prove"))]
mod tests;

#[cfg(feature = "prove")]
pub use prover::{ProverTree, prove, prove_combined};
pub use verifier::{VerifierTree, verify};

use crate::channel::{Reject, powers};
use crate::field::{F, K, lift, root_of_unity};
use crate::layout::{Functional, Layout};
use crate::length::Length;
use crate::merkle;
use crate::params::Params;
use crate::rows::SHIFT;
use crate::shape::{AxisWeights, index_bits};
use crate::soundness::{Term, collisions, field_bits};
use crate::whir::{self, WhirParams};
use ark_ff::{AdditiveGroup, Field};

/// Which commitment a tree is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeKind {
    /// The model's weights.
    Model,
    /// What the prover commits to first; its last two rows are the mask.
    Round1,
    /// What depends on the first challenges.
    Round2,
    /// The weights under another commitment.
    NewModel,
}

impl TreeKind {
    /// The name in the verifier's errors.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Model => "the model tree",
            Self::Round1 => "the tree of round 1",
            Self::Round2 => "the tree of round 2",
            Self::NewModel => "the new model tree",
        }
    }

    /// Rows beyond those of the layout.
    pub const fn mask_rows(self) -> usize {
        match self {
            Self::Round1 => 2,
            Self::Model | Self::Round2 | Self::NewModel => 0,
        }
    }

    const fn symbols_label(self) -> &'static str {
        match self {
            Self::Model => "opening: symbols of the model",
            Self::Round1 => "opening: symbols of round 1",
            Self::Round2 => "opening: symbols of round 2",
            Self::NewModel => "opening: symbols of the new model",
        }
    }

    const fn siblings_label(self) -> &'static str {
        match self {
            Self::Model => "opening: siblings of the model",
            Self::Round1 => "opening: siblings of round 1",
            Self::Round2 => "opening: siblings of round 2",
            Self::NewModel => "opening: siblings of the new model",
        }
    }
}

/// How many hidden values an opening sends.
pub const fn hidden_values(params: &Params) -> usize {
    2 * params.log_row as usize + 2
}

/// A claim about one tensor.
#[derive(Debug, Clone)]
pub struct Claim<V> {
    /// Index in the list of trees.
    pub tree: usize,
    /// Index in the tree's layout.
    pub tensor: usize,
    /// One weight function for each axis of the tensor.
    pub weights: Vec<AxisWeights>,
    /// What the functional gives.
    pub value: V,
}

/// The rows that carry a claim, as pairs of tree and row, in order.
fn carriers<V>(layouts: &[&Layout], claims: &[Claim<V>]) -> Vec<(usize, usize)> {
    let mut carries: Vec<Vec<bool>> = layouts.iter().map(|l| vec![false; l.rows()]).collect();
    for claim in claims {
        if let (Some(layout), Some(rows)) = (layouts.get(claim.tree), carries.get_mut(claim.tree)) {
            layout.carries(&functional(claim, K::ONE), rows);
        }
    }
    let mut out = Vec::new();
    for (tree, rows) in carries.iter().enumerate() {
        out.extend((0..rows.len()).filter(|&r| rows[r]).map(|r| (tree, r)));
    }
    out
}

/// `l_k = L_k(rho)` of every row of `carriers`.
fn scalars<V>(
    layouts: &[&Layout],
    claims: &[Claim<V>],
    gammas: &[K],
    rho: &[K],
    carriers: &[(usize, usize)],
) -> Vec<K> {
    let mut all: Vec<Vec<K>> = layouts.iter().map(|l| vec![K::ZERO; l.rows()]).collect();
    for (claim, &gamma) in claims.iter().zip(gammas) {
        if let (Some(layout), Some(rows)) = (layouts.get(claim.tree), all.get_mut(claim.tree)) {
            layout.functional_at(&functional(claim, gamma), rho, rows);
        }
    }
    carriers.iter().map(|&(tree, row)| all[tree][row]).collect()
}

/// The coefficients `e l_k + e^2 eq(b, k)` with which rows enter the combined row, as tree, row and coefficient. The
/// mask enters with one.
pub fn coefficients<V>(
    layouts: &[&Layout],
    claims: &[Claim<V>],
    gamma: K,
    rho: &[K],
    b: &[K],
    e: K,
) -> Vec<(usize, usize, K)> {
    let gammas = powers(gamma, claims.len());
    let carriers = carriers(layouts, claims);
    let l = scalars(layouts, claims, &gammas, rho, &carriers);
    let eq = AxisWeights::eq(b).expand(carriers.len());
    carriers
        .into_iter()
        .zip(l.iter().zip(eq))
        .map(|((tree, row), (&l, q))| (tree, row, e * (l + e * q)))
        .collect()
}

/// How many rows carry a claim, as the number of variables of `b`.
pub fn combination_variables<V>(layouts: &[&Layout], claims: &[Claim<V>]) -> usize {
    combination_bits(carriers(layouts, claims).len())
}

fn functional<V>(claim: &Claim<V>, coefficient: K) -> Functional<'_> {
    Functional {
        tensor: claim.tensor,
        weights: &claim.weights,
        coefficient,
    }
}

/// How many variables `b` has.
fn combination_bits(carriers: usize) -> usize {
    index_bits(carriers.max(1)) as usize
}

/// Whether `z` lies in `F`, and so possibly in a domain.
fn in_base_field(z: K) -> bool {
    z.c1 == F::ZERO
}

/// The point of the domain at a position.
fn domain_point(params: &Params, position: usize) -> F {
    F::from(SHIFT) * root_of_unity(params.log_code).pow([position as u64])
}

/// The claims about both parts: `(about G0, about G1)`.
fn claims_of_parts(
    params: &Params,
    rho: &[K],
    g0_at_rho: K,
    z: K,
    at_z: &[K],
    positions: &[usize],
    at_positions: &[K],
) -> (Vec<whir::Claim>, Vec<whir::Claim>) {
    let points: Vec<K> = core::iter::once(z)
        .chain(positions.iter().map(|&j| lift(domain_point(params, j))))
        .collect();
    let values = |part: usize| {
        at_z.iter()
            .chain(at_positions)
            .skip(part)
            .step_by(2)
            .copied()
    };
    let log_tail = params.whir_tail.log_size;
    let mut about_data = vec![whir::Claim::multilinear(rho, g0_at_rho)];
    about_data.extend(
        points
            .iter()
            .zip(values(0))
            .map(|(&x, value)| whir::Claim::univariate(x, params.log_row, value)),
    );
    let about_tail = points
        .iter()
        .zip(values(1))
        .map(|(&x, value)| whir::Claim::univariate(x, log_tail, value))
        .collect();
    (about_data, about_tail)
}

/// About how many bytes an opening takes, for trees of `rows` rows each, mask rows included.
pub fn estimated_size(params: &Params, rows: &[usize]) -> usize {
    let queries = params.queries;
    let siblings = merkle::expected_siblings(params.log_code, queries).ceil() as usize;
    let tree = |rows: &usize| 8 * queries * rows + size_of::<merkle::Digest>() * siblings;
    let trees: usize = rows.iter().map(tree).sum();
    // Both parts at the positions and at z, the data part at rho, and three nonces.
    let parts = 16 * (2 * queries + 3) + 24;
    let whir = [&params.whir_data, &params.whir_tail].map(WhirParams::estimated_size);
    let sizes = [trees, 16 * hidden_values(params), parts];
    sizes.into_iter().chain(whir).fold(0, usize::saturating_add)
}

/// How many bytes an opening takes, for trees of `rows` rows each, mask rows included.
pub fn length(params: &Params, rows: &[usize]) -> Result<Length, Reject> {
    let queries = params.queries;
    // Three nonces; both parts at z and at the positions, and the data part at rho.
    let mut length = Length::exactly(3 * 8) + Length::elements(hidden_values(params));
    length += Length::elements(2 + 2 * queries + 1);
    for &rows in rows {
        let symbols = (queries as u64).saturating_mul(rows as u64);
        length += Length::exactly(symbols.saturating_mul(8));
        length += Length::siblings(params.log_code, queries);
    }
    // The data part has a claim at rho, and both have claims at z and at the positions.
    length += params.whir_data.length(queries + 2)?;
    Ok(length + params.whir_tail.length(queries + 1)?)
}

/// The soundness error of an opening of `claims` claims of which `rows` rows carry one, WHIR included. Since every proof has
/// one opening, what hashes contribute to a proof is counted here.
pub fn soundness(params: &Params, rows: usize, claims: usize) -> Vec<Term> {
    let over_field = |numerator: f64| field_bits() - numerator.max(1.0).log2();
    let n = (params.log_code as f64).exp2();
    let combination = f64::from(params.grinding.combination);
    let work = format!("{} bits of work", params.grinding.combination);
    let variables = combination_bits(rows) as f64;
    let term = |name: &str, formula: String, source, bits| Term {
        name: format!("opening: {name}"),
        formula,
        source,
        bits,
    };
    let mut terms = vec![
        term(
            "batching of claims",
            format!("claims/|K| with {claims} claims"),
            "Schwartz-Zippel",
            over_field(claims as f64),
        ),
        term(
            "sumcheck over slots",
            format!("2*k/|K| with k = {}", params.log_row),
            "Lund, Fortnow, Karloff, Nisan 1992",
            over_field(2.0 * f64::from(params.log_row)),
        ),
        term(
            "combination of rows by b",
            format!(
                "n*log(R)/|K|, n = 2^{}, R = {rows}, {work}",
                params.log_code
            ),
            "eprint 2020/654, theorem 1.4, once for each variable",
            over_field(n * variables) + combination,
        ),
        term(
            "combination by e",
            format!("2*n/|K|, n = 2^{}, {work}", params.log_code),
            "eprint 2020/654, theorem 1.5",
            over_field(2.0 * n) + combination,
        ),
        term(
            "value of the combined row",
            format!("(log(R) + 2)/|K|, {work}"),
            "Schwartz-Zippel",
            over_field(variables + 2.0) + combination,
        ),
        term(
            "queried positions",
            format!(
                "((1 + rate)/2)^Q, rate = {:.4}, Q = {}, {} bits of work",
                params.rate(),
                params.queries,
                params.grinding.positions
            ),
            "unique decoding, eprint 2020/654",
            params.position_bits(),
        ),
    ];
    for (part, whir, claims) in [
        ("data part", &params.whir_data, params.queries + 2),
        ("tail part", &params.whir_tail, params.queries + 1),
    ] {
        terms.extend(whir::soundness(whir, claims).into_iter().map(|t| Term {
            name: format!("{part}: {}", t.name),
            ..t
        }));
    }
    terms.push(collisions());
    terms
}
