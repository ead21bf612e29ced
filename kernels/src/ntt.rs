//! Number-theoretic transforms over Goldilocks, `p = 2^64 - 2^32 + 1`, on canonical words.
//!
//! What leaves this file: the evaluations of a polynomial, given by coefficients, on a subgroup or on a coset of one,
//! in natural order: position `j` holds the value at `shift * w^j`. The root `w` of order `2^log_n` is
//! `7^((p-1) / 2^32)` squared down, the same as in the crate that owns the field.
//!
//! Short transforms are decimation in frequency, radix 4, and a permutation. From `2^8` values on, a transform is two
//! passes of short ones over blocks that fit the cache, vectorized where the processor has AVX-512 ([`blocked`]). An
//! extension by a factor `2^b` is `2^b` transforms of the size of the coefficients, one for each coset of the small
//! subgroup in the large one: the butterflies on the zeros that a long transform would be padded with are never done. No
//! threads: callers transform rows in parallel.
//!
//! All words that enter and leave are canonical, below `p`. So are all between: then additions and subtractions need
//! no second carry.

mod blocked;

use blocked::Blocked;

/// The order of the field.
pub const MODULUS: u64 = 0xFFFF_FFFF_0000_0001;
/// `2^64 mod p`.
const EPSILON: u64 = 0xFFFF_FFFF;
/// `7^((p-1) / 2^32)`, of order `2^32`.
const ROOT: u64 = 1_753_635_133_440_165_772;
/// The power of [`ROOT`] that has order 4. A product with a power of two is shifts.
const QUARTER: u64 = 1 << 48;

/// `x mod p`: with `x = lo + 2^64 (a + 2^32 b)`, `2^64 = 2^32 - 1` and `2^96 = -1`.
#[inline(always)]
#[allow(clippy::inline_always, reason = "a call costs more than the reduction")]
const fn reduce(x: u128) -> u64 {
    let lo = x as u64;
    let hi = (x >> 64) as u64;
    let (t, borrow) = lo.overflowing_sub(hi >> 32);
    let t = t.wrapping_sub(EPSILON * borrow as u64);
    let (r, carry) = t.overflowing_add((hi & EPSILON) * EPSILON);
    let r = r.wrapping_add(EPSILON * carry as u64);
    if r >= MODULUS { r - MODULUS } else { r }
}

#[inline(always)]
#[allow(clippy::inline_always, reason = "three instructions")]
const fn add(a: u64, b: u64) -> u64 {
    let (d, borrow) = a.overflowing_sub(MODULUS - b);
    if borrow { d.wrapping_add(MODULUS) } else { d }
}

#[inline(always)]
#[allow(clippy::inline_always, reason = "three instructions")]
const fn sub(a: u64, b: u64) -> u64 {
    let (d, borrow) = a.overflowing_sub(b);
    if borrow { d.wrapping_add(MODULUS) } else { d }
}

#[inline(always)]
#[allow(clippy::inline_always, reason = "a call costs more than the product")]
const fn mul(a: u64, b: u64) -> u64 {
    reduce(a as u128 * b as u128)
}

fn pow(mut base: u64, mut exponent: u64) -> u64 {
    let mut out = 1;
    while exponent != 0 {
        if exponent & 1 == 1 {
            out = mul(out, base);
        }
        base = mul(base, base);
        exponent >>= 1;
    }
    out
}

/// The root of order `2^log_n` that all transforms use; `log_n <= 32`.
pub fn root_of_unity(log_n: u32) -> u64 {
    (log_n..32).fold(ROOT, |w, _| mul(w, w))
}

/// `1, base, base^2, ...`
fn powers(base: u64, n: usize) -> Vec<u64> {
    core::iter::successors(Some(1), |&x| Some(mul(x, base)))
        .take(n)
        .collect()
}

/// For each radix-4 pass, largest first: `[w^j, w^2j, w^3j]` for `j` below a quarter of the pass's size.
fn passes(log_n: u32) -> Vec<Vec<[u64; 3]>> {
    let mut passes = Vec::new();
    let mut log = log_n;
    while log >= 2 {
        let w = root_of_unity(log);
        let (w2, w3) = (mul(w, w), mul(w, mul(w, w)));
        let mut t = [1, 1, 1];
        let mut pass = Vec::with_capacity(1 << (log - 2));
        for _ in 0..1usize << (log - 2) {
            pass.push(t);
            t = [mul(t[0], w), mul(t[1], w2), mul(t[2], w3)];
        }
        passes.push(pass);
        log -= 2;
    }
    passes
}

/// A plan for transforms of one size.
#[derive(Debug, Clone)]
pub struct Ntt {
    log_n: u32,
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    Short(Vec<Vec<[u64; 3]>>),
    Long(Blocked),
}

impl Ntt {
    /// The plan for `2^log_n` values, `log_n <= 32`.
    ///
    /// # Panics
    /// If the field has no root of this order.
    pub fn new(log_n: u32) -> Self {
        assert!(log_n <= 32, "the field's two-adicity is 32");
        let kind = if log_n < blocked::MIN_LOG {
            Kind::Short(passes(log_n))
        } else {
            Kind::Long(Blocked::new(log_n))
        };
        Self { log_n, kind }
    }

    /// Number of values of a transform.
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        1 << self.log_n
    }

    /// Coefficients to values at `w^j`, both in natural order.
    ///
    /// # Panics
    /// If the slice has another length than the plan.
    pub fn forward(&self, values: &mut [u64]) {
        assert_eq!(values.len(), self.len(), "length of the transform");
        match &self.kind {
            Kind::Short(passes) => {
                frequency(values, passes);
                bit_reverse(values);
            }
            Kind::Long(plan) => {
                let mut middle = vec![0; values.len()];
                plan.first(values, &mut middle);
                plan.second(&middle, values);
            }
        }
    }

    /// Coefficients in natural order to values at `w^j`, where `j` is the position with its bits reversed.
    ///
    /// # Panics
    /// If the slice has another length than the plan.
    pub fn forward_bit_reversed(&self, values: &mut [u64]) {
        assert_eq!(values.len(), self.len(), "length of the transform");
        match &self.kind {
            Kind::Short(passes) => frequency(values, passes),
            Kind::Long(plan) => {
                let mut middle = vec![0; values.len()];
                plan.first(values, &mut middle);
                plan.second_reversed(&middle, values);
            }
        }
    }

    /// Values at `w^j` to coefficients, both in natural order.
    ///
    /// # Panics
    /// If the slice has another length than the plan.
    pub fn inverse(&self, values: &mut [u64]) {
        self.forward(values);
        // Evaluation at w^-j instead of w^j, divided by n.
        values[1..].reverse();
        let inverse = pow(self.len() as u64 % MODULUS, MODULUS - 2);
        for x in values {
            *x = mul(*x, inverse);
        }
    }
}

fn frequency(values: &mut [u64], passes: &[Vec<[u64; 3]>]) {
    let Some((pass, rest)) = passes.split_first() else {
        if let [a, b] = values {
            (*a, *b) = (add(*a, *b), sub(*a, *b));
        }
        return;
    };
    let quarter = values.len() / 4;
    let (low, high) = values.split_at_mut(2 * quarter);
    let (v0, v1) = low.split_at_mut(quarter);
    let (v2, v3) = high.split_at_mut(quarter);
    for ((((a, b), c), d), t) in v0
        .iter_mut()
        .zip(v1.iter_mut())
        .zip(v2.iter_mut())
        .zip(v3.iter_mut())
        .zip(pass)
    {
        let (s0, d0) = (add(*a, *c), sub(*a, *c));
        let (s1, d1) = (add(*b, *d), mul(sub(*b, *d), QUARTER));
        *a = add(s0, s1);
        *b = mul(sub(s0, s1), t[1]);
        *c = mul(add(d0, d1), t[0]);
        *d = mul(sub(d0, d1), t[2]);
    }
    for block in [v0, v1, v2, v3] {
        frequency(block, rest);
    }
}

fn bit_reverse(values: &mut [u64]) {
    let n = values.len();
    if n < 2 {
        return;
    }
    let shift = usize::BITS - n.trailing_zeros();
    for i in 0..n {
        let j = i.reverse_bits() >> shift;
        if i < j {
            values.swap(i, j);
        }
    }
}

/// Transforms a slice whose length is a power of two, both orders natural; for many of one size make a plan.
///
/// # Panics
/// If the length is no power of two up to `2^32`.
pub fn ntt(values: &mut [u64]) {
    assert!(values.len().is_power_of_two(), "length of the transform");
    Ntt::new(values.len().trailing_zeros()).forward(values);
}

/// A plan for low-degree extensions of one size onto one coset.
#[derive(Debug, Clone)]
pub struct Extension {
    log_n: u32,
    small: Ntt,
    /// Powers of the shift.
    shift: Vec<u64>,
    /// Powers of the large root: from one coset of the small subgroup to the next.
    step: Vec<u64>,
}

impl Extension {
    /// Up to `2^log_size` coefficients, values on `shift * <w>` of order `2^log_n`.
    ///
    /// # Panics
    /// If `log_n` is less than `log_size` or more than 32.
    pub fn new(log_size: u32, shift: u64, log_n: u32) -> Self {
        assert!(
            log_size <= log_n && log_n <= 32,
            "an extension does not shrink"
        );
        Self {
            log_n,
            small: Ntt::new(log_size),
            shift: powers(shift, 1 << log_size),
            step: powers(root_of_unity(log_n), 1 << log_size),
        }
    }

    /// Number of values.
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        1 << self.log_n
    }

    /// Writes to `out[j]` the value at `shift * w^j` of the polynomial with these coefficients, lowest first; missing
    /// coefficients are zero.
    ///
    /// # Panics
    /// If there are too many coefficients, or `out` has another length than the domain.
    pub fn extend_into(&self, coeffs: &[u64], out: &mut [u64]) {
        let size = self.small.len();
        assert!(coeffs.len() <= size, "more coefficients than planned");
        assert_eq!(out.len(), self.len(), "size of the domain");
        let cosets = out.len() / size;
        let mut scaled = coeffs.to_vec();
        scaled.resize(size, 0);
        blocked::multiply(&mut scaled, &self.shift);
        let mut middle = match &self.small.kind {
            Kind::Short(_) => vec![0; size],
            Kind::Long(_) => vec![0; out.len()],
        };
        for coset in 0..cosets {
            if coset > 0 {
                blocked::multiply(&mut scaled, &self.step);
            }
            match &self.small.kind {
                Kind::Short(_) => {
                    middle.copy_from_slice(&scaled);
                    self.small.forward(&mut middle);
                    for (chunk, &x) in out.chunks_exact_mut(cosets).zip(&middle) {
                        chunk[coset] = x;
                    }
                }
                Kind::Long(plan) => {
                    plan.first(&scaled, &mut middle[coset * size..(coset + 1) * size]);
                }
            }
        }
        if let Kind::Long(plan) = &self.small.kind {
            plan.second(&middle, out);
        }
    }

    /// As [`Extension::extend_into`], in a new vector.
    pub fn extend(&self, coeffs: &[u64]) -> Vec<u64> {
        let mut out = vec![0; self.len()];
        self.extend_into(coeffs, &mut out);
        out
    }
}

/// The values on `shift * <w>`, in natural order, of the polynomial with these coefficients; for many of one size make
/// an [`Extension`].
///
/// # Panics
/// If there are more than `2^log_n` coefficients or `log_n` exceeds 32.
pub fn coset_low_degree_extend(coeffs: &[u64], shift: u64, log_n: u32) -> Vec<u64> {
    let log_size = coeffs.len().next_power_of_two().trailing_zeros();
    Extension::new(log_size, shift, log_n).extend(coeffs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn horner(coeffs: &[u64], x: u64) -> u64 {
        coeffs.iter().rev().fold(0, |acc, &c| add(mul(acc, x), c))
    }

    fn words(n: usize, seed: u64) -> Vec<u64> {
        // A word generator with enough edge cases: every seventh word is extreme.
        (0..n as u64)
            .map(|i| match (i + seed) % 7 {
                0 => MODULUS - 1,
                1 => EPSILON + 1,
                _ => pow(seed + i + 3, 0xDEAD_BEEF_1234_5677),
            })
            .collect()
    }

    #[test]
    fn the_roots_are_those_of_the_generator_seven() {
        assert_eq!(pow(7, (MODULUS - 1) >> 32), ROOT);
        assert_eq!(root_of_unity(2), QUARTER);
        assert_eq!(root_of_unity(1), MODULUS - 1);
        assert_eq!(root_of_unity(0), 1);
    }

    #[test]
    fn transforms_agree_with_horner() {
        for log_n in 0..13 {
            let coeffs = words(1 << log_n, 5);
            let mut values = coeffs.clone();
            ntt(&mut values);
            let w = root_of_unity(log_n);
            // All points where that is quick, else a thirteenth of them.
            let stride = if log_n < 9 { 1 } else { 13 };
            for (j, &v) in values.iter().enumerate().step_by(stride) {
                assert_eq!(v, horner(&coeffs, pow(w, j as u64)), "{log_n} {j}");
            }
            let mut reversed = coeffs.clone();
            Ntt::new(log_n).forward_bit_reversed(&mut reversed);
            bit_reverse(&mut reversed);
            assert_eq!(reversed, values);
            Ntt::new(log_n).inverse(&mut values);
            assert_eq!(values, coeffs);
        }
    }

    #[test]
    fn a_large_transform_agrees_with_horner_at_some_points() {
        let coeffs = words(3 << 12, 1);
        let values = coset_low_degree_extend(&coeffs, 7, 16);
        let w = root_of_unity(16);
        for j in [0usize, 1, 2, 3, 4097, 40_000, 65_535] {
            assert_eq!(values[j], horner(&coeffs, mul(7, pow(w, j as u64))));
        }
    }

    proptest! {
        #[test]
        fn products_agree_with_wide_integers(a in 0..MODULUS, b in prop_oneof![0..MODULUS, MODULUS - 3..MODULUS]) {
            let m = u128::from(MODULUS);
            prop_assert_eq!(u128::from(mul(a, b)), u128::from(a) * u128::from(b) % m);
            prop_assert_eq!(u128::from(add(a, b)), (u128::from(a) + u128::from(b)) % m);
            prop_assert_eq!(u128::from(sub(a, b)), (u128::from(a) + m - u128::from(b)) % m);
        }

        #[test]
        fn extensions_agree_with_horner(n in prop_oneof![0usize..70, 129usize..600], extra in 0u32..4, shift in 1..MODULUS, seed in 0u64..1000) {
            let coeffs = words(n, seed);
            let log_n = n.next_power_of_two().trailing_zeros() + extra;
            let values = coset_low_degree_extend(&coeffs, shift, log_n);
            let w = root_of_unity(log_n);
            for (j, &v) in values.iter().enumerate().step_by(1 + n / 70) {
                prop_assert_eq!(v, horner(&coeffs, mul(shift, pow(w, j as u64))));
            }
        }
    }
}
