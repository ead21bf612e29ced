//! A zero-knowledge proof of a [`System`]: statements about pads that were committed before any challenge.
//!
//! Ligero (S. Ames, C. Hazay, Y. Ishai, M. Venkitasubramaniam, "Ligero: lightweight sublinear arguments without a
//! trusted setup", eprint 2022/1608) over `K`. That field is so large that each test is done once.
//!
//! **Committed.** Values are put into rows of `l` slots. With `H` the subgroup of order `l` and `m(X)` the polynomial
//! that has the values of a row on `H`, the row is `m(X) + (X^l - 1) r(X)`, where `r` has `t` random coefficients; so
//! it has `k = l + t` coefficients, and its codeword is its values on the coset `7 <w>` of order `n`, which does not
//! meet `H`. A first tree is over the columns of the pads' rows; its root is sent before all challenges. When the
//! system is known, a second tree is over the rows of the left factors, the right factors and the results of all
//! products, and five rows of masks. Slots that nothing was put into hold zero. Of a row of pads they may hold
//! anything, since no statement refers to them; of the others they may hold any products, for the same reason.
//!
//! **Tested**, with challenges that are drawn after the second root, all independent:
//!
//! 1. *Rows.* `u + sum_i a_i row_i` over all other rows of both trees has `k` coefficients. `u` is a mask, uniform.
//! 2. *Linear statements*: the zeros of the system, and that factor `n` is the form that it should be. Together they
//!    are one functional, `sum_i sum_(h in H) c_i(h) row_i(h) = c`. With `c_i(X)` of degree below `l`, the polynomial
//!    `v + sum_i c_i row_i` has `k + l - 1` coefficients and the sum `c` over `H`. Its constant coefficient follows
//!    from the sum and is not sent. The mask `v = v0 + X^(l-1) v1` is uniform with sum zero.
//! 3. *Products.* `sum_j b_j (left_j right_j - result_j)` vanishes on `H`. Sent is its quotient by `X^l - 1`, with a
//!    mask: `s + (...) / (X^l - 1)` has `k + t - 1` coefficients. The mask `s = s0 + X^(t-1) s1` is uniform.
//!
//! Then, after some work, `Q` positions are drawn, the columns of both trees are opened there, and all three
//! polynomials have to fit the columns.
//!
//! **Why a false statement is found.** Both trees are fixed before the challenges. Let `e` be the largest integer below
//! `(n - k) / 2`. Suppose first that the combination of test 1 is further than `e` from the polynomial that was sent.
//! Then it agrees with it at no more than `(n + k) / 2` positions, and all queries have to fall there. Otherwise, but
//! for an error of `n / |K|`, there is one set of at least `n - e` positions on which all rows, masks included, agree
//! with codewords (E. Ben-Sasson, D. Carmon, Y. Ishai, S. Kopparty, S. Saraf, "Proximity gaps for Reed-Solomon codes",
//! eprint 2020/654, theorem 1.6; coefficients are independent, so this is an affine space). These codewords are unique,
//! since `2e` is less than the distance. The same combination of the codewords is within `e` as well, so it is what was
//! sent. At each of the at most `e` positions where some row is not its codeword, the combination differs from that of
//! the codewords but for an error of `1 / |K|`: but for `e / |K|`, no query that falls there passes test 1. So only
//! positions count at which all rows are their codewords. If a linear statement is false for these, the sum of test 2
//! is wrong but for an error of `1 / |K|`, whatever the sum of the mask is: that was fixed before. Then the polynomial
//! that was sent is not the combination, and agrees with it at no more than `k + l - 2` positions. If a product is
//! false, test 3 in the same way is left with `2k - 2` positions. Altogether the queries are `Q` distinct positions
//! which all lie in a set of at most `max((n + k) / 2, 2k - 2)`.
//!
//! This is also why the masks of tests 2 and 3 are two rows each, with `k` coefficients like all others. A single mask
//! of higher degree would be bound by its own, smaller distance, and more positions would have to be opened.
//!
//! The pads are bound by the first root alone: its rows have at most one codeword within `e`.
//!
//! **Why nothing else is learned.** Everything opened or sent is uniform but for what it has to satisfy. As `Q <= t`,
//! and `x^l` is never one on the domain, the opened symbols of a row are uniform whatever it holds. Let `V` be the
//! polynomial that vanishes at the opened points. What is then still unknown about a polynomial of tests 1 to 3 is a
//! multiple of `V` (of test 2: with sum zero). Every such multiple is a multiple of `V` in the masks: for `u` that is
//! clear; `V a + X^(l-1) V b` with `a`, `b` of `k - Q` coefficients covers all of them if `k - Q >= l - 1`, and
//! `V a + X^(t-1) V b` if `k - Q >= t - 1`, that is `Q <= l + 1`. So masks that leave the opened columns as they are
//! take every witness to every other one with equal probability. Leaves that are not opened hide their column: each
//! holds at least one element that is uniform given all that is seen, because `t > Q`.

#[cfg(feature = "prove")]
mod prover;
mod shape;
#[cfg(feature = "prove")]
pub mod simulator;
mod verifier;

#[cfg(all(test, feature = "prove"))]
mod tests;

#[cfg(feature = "prove")]
pub use prover::{Pads, prove, uniform_pads};
pub use shape::{Shape, soundness};
pub use verifier::{conclude, receive, verify};

use crate::affine::{Affine, System, Variable};
use crate::codec::Writer;
use crate::field::{F, K, root_of_unity, scale};
use crate::merkle::Digest;
use crate::rows::SHIFT;
use ark_ff::{AdditiveGroup, Field};

/// Rows of masks: of the rows, two of the linear statements, two of the products.
const MASKS: usize = 5;

/// What the verifier draws for the three tests.
#[derive(Debug, Clone)]
struct Challenges {
    /// One for each row of both trees but the mask of the rows.
    rows: Vec<K>,
    /// Two for each product, then one for each zero.
    linear: Vec<K>,
    /// One for each row of products.
    products: Vec<K>,
}

impl Challenges {
    /// Draws all, from either end of the channel.
    fn draw(
        shape: &Shape,
        system: &System,
        mut draw: impl FnMut(&'static str, usize) -> Vec<K>,
    ) -> Self {
        Self {
            rows: draw(
                "pads coefficients of rows",
                shape.pad_rows() + shape.later_rows() - 1,
            ),
            linear: draw(
                "pads coefficients of linear statements",
                2 * system.products.len() + system.zeros.len(),
            ),
            products: draw("pads coefficients of products", shape.product_rows()),
        }
    }
}

/// All linear statements as one: `constant + sum weight slot = 0` over the slots of pads, left factors, right factors
/// and results.
#[derive(Debug, Clone)]
struct Statement {
    weights: Vec<K>,
    constant: K,
}

impl Statement {
    /// Combines the linear statements of a system.
    fn combine(shape: &Shape, system: &System, challenges: &[K]) -> Self {
        let of_products = shape.product_rows() * shape.message();
        let left = shape.pad_rows() * shape.message();
        let (right, results) = (left + of_products, left + 2 * of_products);
        let mut out = Self {
            weights: vec![K::ZERO; left + 3 * of_products],
            constant: K::ZERO,
        };
        let (of_factors, of_zeros) =
            challenges.split_at(challenges.len().min(2 * system.products.len()));
        for (n, (forms, c)) in system
            .products
            .iter()
            .zip(of_factors.chunks_exact(2))
            .enumerate()
        {
            for (slot, (form, &c)) in [left + n, right + n].into_iter().zip(forms.iter().zip(c)) {
                out.add(form, c, results);
                out.weight(slot, -c);
            }
        }
        for ((_, form), &c) in system.zeros.iter().zip(of_zeros) {
            out.add(form, c, results);
        }
        out
    }

    fn add(&mut self, form: &Affine, c: K, results: usize) {
        self.constant += form.constant * c;
        for &(variable, coefficient) in &form.terms {
            let slot = match variable {
                Variable::Pad(n) => n as usize,
                Variable::Result(n) => results + n as usize,
            };
            self.weight(slot, coefficient * c);
        }
    }

    fn weight(&mut self, slot: usize, by: K) {
        // The verifier refuses systems with other variables before it comes here.
        if let Some(weight) = self.weights.get_mut(slot) {
            *weight += by;
        }
    }
}

/// A hash of the system, so that the challenges depend on it whatever it was derived from. Terms with coefficient zero
/// say nothing and are left out.
fn digest(shape: &Shape, system: &System) -> Digest {
    let mut hasher = blake3::Hasher::new_derive_key("zkmoe system about pads, v1");
    let mut w = Writer::new();
    shape.write(&mut w);
    w.u64(system.products.len() as u64);
    w.u64(system.zeros.len() as u64);
    let zeros = system.zeros.iter().map(|(_, form)| form);
    for form in system.products.iter().flatten().chain(zeros) {
        w.k(form.constant);
        let terms = form.terms.iter().filter(|(_, c)| *c != K::ZERO);
        w.u64(terms.clone().count() as u64);
        for &(variable, coefficient) in terms {
            let (kind, n) = match variable {
                Variable::Pad(n) => (0, n),
                Variable::Result(n) => (1, n),
            };
            w.u8(kind);
            w.u32(n);
            w.k(coefficient);
        }
        hasher.update(&w.bytes);
        w.bytes.clear();
    }
    hasher.update(&w.bytes);
    *hasher.finalize().as_bytes()
}

/// The point of the domain at a position.
fn domain_point(shape: &Shape, position: usize) -> F {
    F::from(SHIFT) * root_of_unity(shape.log_code()).pow([position as u64])
}

/// The symbols of all rows at one position.
#[derive(Debug, Clone, Copy)]
struct Column<'a> {
    pads: &'a [K],
    left: &'a [K],
    right: &'a [K],
    results: &'a [K],
    masks: &'a [K; MASKS],
}

impl<'a> Column<'a> {
    /// The parts of a column of each tree; none if their lengths are not those of the shape.
    fn new(shape: &Shape, pads: &'a [K], later: &'a [K]) -> Option<Self> {
        let rows = shape.product_rows();
        let (left, rest) = later.split_at_checked(rows)?;
        let (right, rest) = rest.split_at_checked(rows)?;
        let (results, masks) = rest.split_at_checked(rows)?;
        (pads.len() == shape.pad_rows()).then_some(Self {
            pads,
            left,
            right,
            results,
            masks: masks.try_into().ok()?,
        })
    }

    /// The values of the three polynomials at the column's point `x`; `factors` are those of the rows of [`Statement`]
    /// there.
    fn answers(&self, shape: &Shape, challenges: &Challenges, factors: &[K], x: F) -> [K; 3] {
        let &[u, v0, v1, s0, s1] = self.masks;
        let data = || {
            [self.pads, self.left, self.right, self.results]
                .into_iter()
                .flatten()
        };
        let dot = |coefficients: &[K], mask: K| {
            data()
                .chain(self.masks.iter().skip(1))
                .zip(coefficients)
                .fold(mask, |sum, (&symbol, &c)| sum + symbol * c)
        };
        let at = |exponent: usize| x.pow([exponent as u64]);
        let products: K = challenges
            .products
            .iter()
            .zip(self.left.iter().zip(self.right).zip(self.results))
            .map(|(&b, ((&left, &right), &result))| b * (left * right - result))
            .sum();
        // The domain does not meet `H`.
        let vanishing = (at(shape.message()) - F::ONE).inverse().unwrap_or(F::ZERO);
        [
            dot(&challenges.rows, u),
            dot(factors, v0 + scale(v1, at(shape.message() - 1))),
            s0 + scale(s1, at(shape.randomness() - 1)) + scale(products, vanishing),
        ]
    }
}
