//! WHIR: a polynomial over `K` is committed by its Reed-Solomon codeword, and linear claims about it are proved.
//!
//! G. Arnon, A. Chiesa, G. Fenzi, E. Yogev, "WHIR: Reed-Solomon Proximity Testing with Super-Fast Verification",
//! eprint 2024/1586 (the paper's constrained Reed-Solomon codes), in the unique-decoding regime.
//!
//! **Committed.** A polynomial with `2^m` coefficients `g[x]`, `x` in `{0,1}^m`, lowest bit first. Its codeword is the
//! values of `sum_x g[x] X^x` on the coset `7 <w>` of order `2^(m + log_inv_rate)` of `F`. Values at the `2^k` points
//! that share their `2^k`-th power form one leaf of a Merkle tree, so that one leaf folds `k` times by itself.
//!
//! **Claimed.** `sum_x w(x) g[x] = v` with `w(x) = prod_j pair_j[bit j of x]`: with pairs `(1 - rho_j, rho_j)` the
//! value at `rho` of the multilinear polynomial that takes `g[x]` at `x`; with pairs `(1, z^(2^j))` the value at `z`
//! of the univariate polynomial. Claims are batched by powers of a challenge into one weight table `W`.
//!
//! **A round.** Sumcheck over the lowest `k` variables of `sum_x W(x) g(x) = v`, both factors multilinear, with
//! challenges `a`. Binding one variable turns the coefficients into `g' = (1-a) g_even + a g_odd` and, at the squares
//! of the domain, the codeword into `f' = (1-a) f_e + a f_o` with `f_e(x^2) = (f(x) + f(-x)) / 2` and
//! `f_o(x^2) = (f(x) - f(-x)) / 2x`: even and odd coefficients are even and odd part. The prover commits the folded
//! polynomial afresh on a coset of half the order, or sends it in clear once it has at most `2^final_log_size`
//! coefficients. Leaves of the *previous* tree are opened at random positions and folded; the results are values of the
//! folded polynomial at `z = y^(2^k)`, and become new claims with pairs `(1, z^(2^j))`, batched into the running one.
//!
//! **What leaves the file.** Acceptance means: within the unique-decoding radius of the committed word there is a
//! codeword, and all claims hold for its polynomial. All messages are public.
//!
//! **Why no out-of-domain samples.** They would pick one of several codewords near a word. Distances are counted in leaves
//! here, and no smaller than the usual ones; within `(1 - rate) / 2` there is at most one codeword, and which one is fixed
//! before any challenge is drawn. A word that is further from all codewords stays so under folding, but for an error of
//! (size of the folded domain) / `|K|` for each challenge (E. Ben-Sasson, D. Carmon, Y. Ishai, S. Kopparty, S. Saraf,
//! "Proximity Gaps for Reed-Solomon Codes", eprint 2020/654, Theorem 4.1; that no new positions of agreement appear
//! either, the mutual form, is WHIR's Corollary 4.11). The theorem holds strictly below the radius; distances are
//! fractions of a finite number of leaves, so a word that is far for every smaller radius is at least this far. The
//! folded word of a round is then near at most one polynomial, the fold of the committed one. A prover who sends another
//! disagrees with the folded leaves at no less than `(1 - rate) / 2` of all positions: some query shows it, and is a
//! false claim about what was sent.
//!
//! **Why every domain may be a coset of the same shift.** Claims are carried by the sumcheck and never divided out of a
//! codeword, so a domain may meet the points of earlier queries. All it needs is that it has no zero, that folding
//! maps it two to one, and that it is fixed in advance.
//!
//! A polynomial that is small from the start is sent in clear instead of its commitment, and the claims are computed.

mod params;
#[cfg(feature = "prove")]
mod prover;
#[cfg(all(test, feature = "prove"))]
mod tests;
mod verifier;

pub use params::{WhirParams, soundness};
#[cfg(feature = "prove")]
pub use prover::{Witness, commit, open};
pub use verifier::{Commitment, receive, verify};

use crate::codec::Writer;
use crate::field::{F, K, from_i64, scale};
use ark_ff::{AdditiveGroup, Field};

/// The statement `sum_x prod_j weights[j][bit j of x] * g[x] = value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// One pair for each variable, lowest first.
    pub weights: Vec<[K; 2]>,
    /// What the functional gives.
    pub value: K,
}

impl Claim {
    /// The value at `point` of the multilinear polynomial with values `g[x]`, lowest variable first.
    pub fn multilinear(point: &[K], value: K) -> Self {
        let weights = point.iter().map(|&p| [K::ONE - p, p]).collect();
        Self { weights, value }
    }

    /// The value at `z` of the univariate polynomial with `2^log_size` coefficients `g[x]`.
    pub fn univariate(z: K, log_size: u32, value: K) -> Self {
        let squares = core::iter::successors(Some(z), |z| Some(z.square()));
        let weights = squares
            .take(log_size as usize)
            .map(|z| [K::ONE, z])
            .collect();
        Self { weights, value }
    }
}

/// The functional of a claim, applied to coefficients: one pass that halves them for each pair.
pub fn apply(weights: &[[K; 2]], coefficients: &[K]) -> K {
    let mut table = coefficients.to_vec();
    for [even, odd] in weights {
        table = table
            .chunks(2)
            .map(|c| *even * c[0] + c.get(1).map_or(K::ZERO, |&c| *odd * c))
            .collect();
    }
    table.first().copied().unwrap_or_default()
}

/// The shift of every domain: the generator of the group of `F` lies in no proper subgroup.
fn shift() -> F {
    from_i64(7)
}

/// Everything that the batching challenge must depend on and that is not a message: parameters and claims. The caller
/// has absorbed what the claims were derived from, but a caller can forget.
fn statement(params: &WhirParams, claims: &[Claim]) -> Vec<u8> {
    let mut w = Writer::new();
    params.write(&mut w);
    w.u64(claims.len() as u64);
    for claim in claims {
        for &x in claim.weights.iter().flatten() {
            w.k(x);
        }
        w.k(claim.value);
    }
    w.bytes
}

/// The factor that a claim keeps when its lowest variables take the values `point`.
fn bind(weights: &[[K; 2]], point: &[K]) -> K {
    weights
        .iter()
        .zip(point)
        .map(|(pair, &a)| pair[0] + a * (pair[1] - pair[0]))
        .product()
}

/// The claim of the next sumcheck round: the value at `a` of the polynomial with this constant and leading coefficient
/// whose values at 0 and 1 add up to the claim so far. The middle coefficient follows and is not sent.
fn next_value(value: K, [constant, leading]: [K; 2], a: K) -> K {
    let middle = value - constant.double() - leading;
    constant + a * (middle + a * leading)
}

/// The value at a base field point of the univariate polynomial with these coefficients.
pub(crate) fn horner(coefficients: &[K], z: F) -> K {
    coefficients
        .iter()
        .rev()
        .fold(K::ZERO, |acc, &c| scale(acc, z) + c)
}
