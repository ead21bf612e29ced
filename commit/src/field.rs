//! The base field `F` (Goldilocks, `p = 2^64 - 2^32 + 1`) and its quadratic extension `K = F[X]/(X^2 - 7)`.
//!
//! `F` implements ark-ff's [`FpConfig`] on canonical words instead of Montgomery form: the prime's shape makes
//! the reduction of a 128-bit product two additions, and the words in memory are then the integers themselves, so
//! that they can be hashed, stored and handed to the kernels without a conversion.

use ark_ff::{
    AdditiveGroup, BigInt, Field, Fp, Fp2, Fp2Config, FpConfig, PrimeField, SqrtPrecomputation,
    Zero,
};
use ark_std::marker::PhantomData;

/// The order of `F`.
pub const MODULUS: u64 = 0xFFFF_FFFF_0000_0001;
/// `2^64 mod p`.
const EPSILON: u64 = 0xFFFF_FFFF;

/// The arithmetic of [`F`].
pub struct GoldilocksConfig;

/// The base field: integers modulo `2^64 - 2^32 + 1`.
pub type F = Fp<GoldilocksConfig, 1>;

/// The element with the canonical word `w`, which must be below [`MODULUS`].
const fn raw(w: u64) -> F {
    Fp(BigInt([w]), PhantomData)
}

/// `x mod p` for any 128-bit `x`, canonical: with `x = lo + 2^64 (a + 2^32 b)`, `2^64 = 2^32 - 1` and `2^96 = -1`.
#[inline]
const fn reduce(x: u128) -> u64 {
    let lo = x as u64;
    let hi = (x >> 64) as u64;
    let (t, borrow) = lo.overflowing_sub(hi >> 32);
    let t = t.wrapping_sub(EPSILON * borrow as u64);
    let (r, carry) = t.overflowing_add((hi & EPSILON) * EPSILON);
    let r = r.wrapping_add(EPSILON * carry as u64);
    if r >= MODULUS { r - MODULUS } else { r }
}

#[inline]
const fn add(a: u64, b: u64) -> u64 {
    // b <= p - 1, so p - b does not wrap; a + b - p = a - (p - b).
    let (d, borrow) = a.overflowing_sub(MODULUS - b);
    if borrow { d.wrapping_add(MODULUS) } else { d }
}

#[inline]
const fn sub(a: u64, b: u64) -> u64 {
    let (d, borrow) = a.overflowing_sub(b);
    if borrow { d.wrapping_add(MODULUS) } else { d }
}

impl FpConfig<1> for GoldilocksConfig {
    const MODULUS: BigInt<1> = BigInt([MODULUS]);
    const GENERATOR: F = raw(7);
    const ZERO: F = raw(0);
    const ONE: F = raw(1);
    const NEG_ONE: F = raw(MODULUS - 1);
    const TWO_ADICITY: u32 = 32;
    // 7^((p - 1) / 2^32)
    const TWO_ADIC_ROOT_OF_UNITY: F = raw(1_753_635_133_440_165_772);
    const SQRT_PRECOMP: Option<SqrtPrecomputation<F>> = None;

    #[inline]
    fn add_assign(a: &mut F, b: &F) {
        a.0.0[0] = add(a.0.0[0], b.0.0[0]);
    }
    #[inline]
    fn sub_assign(a: &mut F, b: &F) {
        a.0.0[0] = sub(a.0.0[0], b.0.0[0]);
    }
    #[inline]
    fn double_in_place(a: &mut F) {
        a.0.0[0] = add(a.0.0[0], a.0.0[0]);
    }
    #[inline]
    fn neg_in_place(a: &mut F) {
        a.0.0[0] = sub(0, a.0.0[0]);
    }
    #[inline]
    fn mul_assign(a: &mut F, b: &F) {
        a.0.0[0] = reduce(u128::from(a.0.0[0]) * u128::from(b.0.0[0]));
    }
    #[inline]
    fn sum_of_products<const T: usize>(a: &[F; T], b: &[F; T]) -> F {
        // Carries out of 128 bits are counted: 2^128 = -2^32 mod p.
        let mut acc = 0u128;
        let mut carries = 0u64;
        for (x, y) in a.iter().zip(b) {
            let (s, c) = acc.overflowing_add(u128::from(x.0.0[0]) * u128::from(y.0.0[0]));
            acc = s;
            carries += u64::from(c);
        }
        raw(sub(reduce(acc), reduce(u128::from(carries) << 32)))
    }
    #[inline]
    fn square_in_place(a: &mut F) {
        a.0.0[0] = reduce(u128::from(a.0.0[0]) * u128::from(a.0.0[0]));
    }
    fn inverse(a: &F) -> Option<F> {
        if a.is_zero() {
            None
        } else {
            Some(a.pow([MODULUS - 2]))
        }
    }
    #[inline]
    fn from_bigint(other: BigInt<1>) -> Option<F> {
        (other.0[0] < MODULUS).then(|| raw(other.0[0]))
    }
    #[inline]
    fn into_bigint(other: F) -> BigInt<1> {
        other.0
    }
}

/// The parameters of [`K`].
pub struct ExtensionConfig;

impl Fp2Config for ExtensionConfig {
    type Fp = F;
    const NONRESIDUE: F = raw(7);
    // 7^((p^i - 1) / 2) for i = 0, 1
    const FROBENIUS_COEFF_FP2_C1: &'static [F] = &[raw(1), raw(MODULUS - 1)];

    #[inline]
    fn mul_fp_by_nonresidue_in_place(x: &mut F) -> &mut F {
        *x = raw(reduce(u128::from(x.0.0[0]) * 7));
        x
    }
}

/// The extension field in which all challenges lie, about `2^128` elements.
pub type K = Fp2<ExtensionConfig>;

/// The canonical word of a base field element.
#[inline]
pub const fn word(x: F) -> u64 {
    x.0.0[0]
}

/// The base field element of a canonical word; `None` at and above the modulus.
#[inline]
pub fn from_word(w: u64) -> Option<F> {
    F::from_bigint(BigInt([w]))
}

/// The residue of a signed integer.
#[inline]
pub const fn from_i64(x: i64) -> F {
    // |x| <= 2^63 < p
    if x < 0 {
        raw(MODULUS - x.unsigned_abs())
    } else {
        raw(reduce(x as u128))
    }
}

/// The residue of a signed 128-bit integer.
pub const fn from_i128(x: i128) -> F {
    let m = reduce(x.unsigned_abs());
    if x < 0 { raw(sub(0, m)) } else { raw(m) }
}

/// `c0 + c1 X` as an element of `K`.
#[inline]
pub const fn ext(c0: F, c1: F) -> K {
    K::new(c0, c1)
}

/// A base field element as an element of `K`.
#[inline]
pub const fn lift(x: F) -> K {
    K::new(x, raw(0))
}

/// `a * x` with `x` in the base field: two base products instead of four.
#[inline]
pub fn scale(mut a: K, x: F) -> K {
    a.c0 *= x;
    a.c1 *= x;
    a
}

/// A primitive root of unity of order `2^log_n`, `log_n <= 32`.
pub fn root_of_unity(log_n: u32) -> F {
    let mut w = GoldilocksConfig::TWO_ADIC_ROOT_OF_UNITY;
    for _ in log_n..GoldilocksConfig::TWO_ADICITY {
        w.square_in_place();
    }
    w
}

/// Inverts every element of `xs` with one inversion (Montgomery's trick); zeros stay zero.
pub fn batch_invert(xs: &mut [K]) {
    let mut prefix = Vec::with_capacity(xs.len());
    let mut acc = K::ONE;
    for x in xs.iter() {
        prefix.push(acc);
        if !x.is_zero() {
            acc *= x;
        }
    }
    let mut inv = acc.inverse().unwrap_or(K::ZERO);
    for (x, before) in xs.iter_mut().zip(prefix).rev() {
        if !x.is_zero() {
            let next = inv * *x;
            *x = inv * before;
            inv = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn big(x: u64, y: u64, f: impl Fn(u128, u128) -> u128) -> u64 {
        (f(u128::from(x), u128::from(y)) % u128::from(MODULUS)) as u64
    }

    fn words() -> impl Strategy<Value = u64> {
        prop_oneof![
            0..MODULUS,
            0..4u64,
            MODULUS - 4..MODULUS,
            EPSILON - 2..EPSILON + 3,
        ]
    }

    proptest! {
        #[test]
        fn base_arithmetic_agrees_with_wide_integers(x in words(), y in words(), z in words()) {
            let (a, b, c) = (raw(x), raw(y), raw(z));
            prop_assert_eq!(word(a + b), big(x, y, |x, y| x + y));
            prop_assert_eq!(word(a * b), big(x, y, |x, y| x * y));
            prop_assert_eq!(word(a - b), big(x, y, |x, y| x + u128::from(MODULUS) - y));
            prop_assert_eq!(word(-a), big(x, 0, |x, _| u128::from(MODULUS) - x));
            prop_assert_eq!(F::sum_of_products(&[a, b, c], &[b, c, a]), a * b + b * c + c * a);
            prop_assert_eq!(a * (b + c), a * b + a * c);
            if x != 0 { prop_assert_eq!(a * a.inverse().unwrap(), F::ONE); }
        }

        #[test]
        fn extension_is_a_field(a0 in words(), a1 in words(), b0 in words(), b1 in words()) {
            let (a, b) = (ext(raw(a0), raw(a1)), ext(raw(b0), raw(b1)));
            let seven = raw(7);
            let product = ext(a.c0 * b.c0 + seven * a.c1 * b.c1, a.c0 * b.c1 + a.c1 * b.c0);
            prop_assert_eq!(a * b, product);
            prop_assert_eq!(a.square(), a * a);
            prop_assert_eq!(scale(a, b.c0), a * lift(b.c0));
            if !a.is_zero() { prop_assert_eq!(a * a.inverse().unwrap(), K::ONE); }
        }

        #[test]
        fn signed_integers_embed(x in any::<i64>(), y in any::<i128>()) {
            prop_assert_eq!(from_i64(x) + from_i64(-(x.max(-i64::MAX))), if x == i64::MIN { from_i64(-1) } else { F::ZERO });
            prop_assert_eq!(from_i128(i128::from(x)), from_i64(x));
            let m = i128::from(MODULUS);
            prop_assert_eq!(word(from_i128(y)), (((y % m) + m) % m) as u64);
        }
    }

    #[test]
    fn constants_are_what_they_claim() {
        assert_eq!(
            raw(7).pow([(MODULUS - 1) >> 32]),
            GoldilocksConfig::TWO_ADIC_ROOT_OF_UNITY
        );
        assert_eq!(raw(7).pow([(MODULUS - 1) / 2]), -F::ONE, "7 is no square");
        for q in [2u64, 3, 5, 17, 257, 65537] {
            assert_ne!(
                raw(7).pow([(MODULUS - 1) / q]),
                F::ONE,
                "7 generates the group"
            );
        }
        assert_eq!(root_of_unity(1), -F::ONE);
        assert_eq!(from_word(MODULUS), None);
        assert_eq!(from_word(MODULUS - 1), Some(-F::ONE));
    }

    #[test]
    fn batch_inversion_agrees_with_single_inversions() {
        let mut xs: Vec<K> = (0..20)
            .map(|i| ext(from_i64(i * i - 4 * i), from_i64(i * 3 % 4)))
            .collect();
        let expected: Vec<K> = xs.iter().map(|x| x.inverse().unwrap_or(K::ZERO)).collect();
        batch_invert(&mut xs);
        assert_eq!(xs, expected);
    }
}
