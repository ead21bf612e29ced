//! Root mean square normalization.
//!
//! Takes a vector `x`, a public factor, epsilon and shift. With `ss = factor * sum x^2 + epsilon`:
//! - `ss = u * 4^z + r`, `0 <= r < 4^z`, `2^20 <= u < 2^22`, `0 <= z <= 20`: a floating point number of 22 bits whose
//!   exponent is even. Both ends of `u` are needed: with one of them, two normalizations of one `ss` would be allowed.
//! - `m` is the largest integer with `m^2 u <= 2^50`, so `2^14 < m <= 2^15`: the inverse root of the mantissa.
//! - `f = m * 2^(20-z)`, and each output is `requant(x f, shift)`, 16 bits with sign.
//!
//! `Header::check` bounds factor, epsilon and width such that `2^20 <= ss < 2^62` for every `x` in its range. There is
//! no gain: it is folded into the next matrix, or applied by `RoPE`.
//!
//! # In the proof
//!
//! Committed per vector: `z`, `w4 = 4^z`, `w2 = 2^(20-z)`, `u`, `r`, `m`, `f`; per element: `y`. What each check is for:
//! - `(z, w4, w2)` is a line of a public table of 21 lines. So `w4` is an integer up to `2^40` and fits to `w2`: a prover
//!   cannot normalize with one exponent and scale with another.
//! - `u - 2^20` and `2^22 - 1 - u` are below `2^22`, `r` and `w4 - 1 - r` below `2^40`. With `u` below `2^22` and `w4` at
//!   most `2^40`, `u w4 + r` is an integer below `2^62 + 2^40`; so is the left side, by `Header::check` and the range
//!   of `x`, which the caller states. Hence `ss = u 4^z + r` over the integers. `0 <= r < 4^z` makes `u` the floor of
//!   `ss / 4^z`, and only one `z` brings this floor into `2^20..2^22`. With one end of `u` open, a neighbouring
//!   exponent would give a second result, with one end of `r` open any `u` would do.
//! - `m` has 16 bits, so `m^2 u` and `(m+1)^2 u` are integers below `2^55`. Both gaps, `2^50 - m^2 u` and
//!   `(m+1)^2 u - 2^50 - 1`, are below `2^38` and not negative: `m` is the largest integer that fits. 38 bits suffice
//!   for the true `m`, since the two gaps add up to less than `(2m+1) u < 2^38`. A bracket on `ss` itself would need a
//!   product of `2^92`, which wraps; this is why the mantissa is cut to 22 bits first.
//! - `f = m w2` is an equation, so `f <= 2^16 * 2^20`, and `x f` is below `2^59`: the requantization of `y` is exact.

use super::{
    OPERAND_BITS, OutOfRange, int16,
    requant::{self, requant},
};
use crate::relation::{Builder, Count, Expr, Label, Tag};

/// Largest exponent `z`.
pub const EXPONENT_MAX: u32 = 20;
/// The lowest mantissa is `2^MANTISSA_BITS`.
pub const MANTISSA_BITS: u32 = 20;
/// `m^2 u` is at most `2^ROOT_BITS`.
pub const ROOT_BITS: u32 = 50;
/// Bits of the inverse root.
const INVERSE_BITS: u32 = 16;
/// Bits of the gaps by which `m^2 u` and `(m+1)^2 u` miss `2^ROOT_BITS`.
const GAP_BITS: u32 = 38;

/// Public constants of one norm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NormParams {
    /// Multiplies the sum of squares.
    pub factor: u64,
    /// Is added to the product.
    pub epsilon: u64,
    /// Output shift, 17 to 32.
    pub shift: u32,
}

impl From<(u64, u64, u32)> for NormParams {
    fn from((factor, epsilon, shift): (u64, u64, u32)) -> Self {
        Self {
            factor,
            epsilon,
            shift,
        }
    }
}

/// The scalars of one norm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InverseRoot {
    /// Half the exponent.
    pub z: u32,
    /// The mantissa.
    pub u: i64,
    /// What the mantissa drops.
    pub r: i64,
    /// `4^z`.
    pub w4: i64,
    /// `2^(20-z)`.
    pub w2: i64,
    /// The inverse root of the mantissa.
    pub m: i64,
    /// The multiplier of the vector, below `2^36`.
    pub f: i64,
}

/// A norm with all its intermediate values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RmsNorm {
    /// The scalars.
    pub root: InverseRoot,
    /// The normalized vector.
    pub y: Vec<i16>,
}

/// The scalars that belong to a scaled sum of squares; an error below `2^20` and from `2^62`.
pub fn inverse_root(ss: u128) -> Result<InverseRoot, OutOfRange> {
    let (low, high) = (1u64 << MANTISSA_BITS, 1u64 << 62);
    let ss = match u64::try_from(ss) {
        Ok(ss) if (low..high).contains(&ss) => ss,
        _ => {
            return Err(OutOfRange {
                value: i64::try_from(ss).unwrap_or(i64::MAX),
                low: low as i64,
                high: high as i64,
            });
        }
    };
    let z = (ss.ilog2() - MANTISSA_BITS) / 2;
    let u = ss >> (2 * z);
    // m^2 <= 2^50 / u holds for an integer m^2 exactly when it holds for the floor.
    let m = ((1u64 << ROOT_BITS) / u).isqrt();
    let w2 = 1i64 << (EXPONENT_MAX - z);
    Ok(InverseRoot {
        z,
        u: u as i64,
        r: (ss - (u << (2 * z))) as i64,
        w4: 1 << (2 * z),
        w2,
        m: m as i64,
        f: m as i64 * w2,
    })
}

/// Normalizes `x`, which must have at most 24 bits with sign.
pub fn rms_norm<T: Copy + Into<i64>>(x: &[T], params: NormParams) -> Result<RmsNorm, OutOfRange> {
    let squares: u64 = x
        .iter()
        .map(|&x| x.into().unsigned_abs())
        .map(|x| x * x)
        .sum();
    let ss = u128::from(params.factor) * u128::from(squares) + u128::from(params.epsilon);
    let root = inverse_root(ss)?;
    let y = x
        .iter()
        .map(|&x| int16(requant(x.into() * root.f, params.shift)))
        .collect::<Result<_, _>>()?;
    Ok(RmsNorm { root, y })
}

/// Declares the norm of `x` and gives its output. The vectors have the indices `rows`, their elements `full`, and the
/// elements of `x` at most 24 bits with sign.
pub fn constrain(
    b: &mut Builder,
    name: &str,
    rows: &[Label],
    full: &[Label],
    x: &Expr,
    params: NormParams,
) -> Expr {
    let n = |field: &str| format!("{name}.{field}");
    let says = |what: &str| format!("{name}: {what}");
    let z = b.trace(&n("z"), rows);
    let w4 = b.trace(&n("w4"), rows);
    let w2 = b.trace(&n("w2"), rows);
    let u = b.trace(&n("u"), rows);
    let r = b.trace(&n("r"), rows);
    let m = b.trace(&n("m"), rows);
    let f = b.trace(&n("f"), rows);
    let y = b.trace(&n("y"), full);
    let range = |b: &mut Builder, what: &str, expr: Expr, bits: u32| {
        b.range(&says(what), rows, Count::One, expr, bits);
    };

    let line = vec![z, w4.clone(), w2.clone()];
    b.lookup(&says("powers of z"), rows, Count::One, Tag::Normalise, line);
    let ss = x.clone() * x.clone() * params.factor as i64 + params.epsilon as i64;
    let mantissa = u.clone() * w4.clone();
    b.zero(&says("sum of squares"), rows, ss - mantissa - r.clone());
    let bits = MANTISSA_BITS + 2;
    range(b, "u from below", u.clone() - (1 << MANTISSA_BITS), bits);
    range(b, "u from above", -u.clone() + ((1 << bits) - 1), bits);
    range(b, "r from below", r.clone(), 2 * EXPONENT_MAX);
    range(b, "r from above", w4 - r - 1, 2 * EXPONENT_MAX);

    let root = 1i64 << ROOT_BITS;
    let square = m.clone() * m.clone() * u.clone();
    let next = square.clone() + m.clone() * u.clone() * 2 + u;
    range(b, "m", m.clone(), INVERSE_BITS);
    range(b, "m is not too large", -square + root, GAP_BITS);
    range(b, "m is not too small", next - (root + 1), GAP_BITS);

    b.zero(&says("factor"), rows, f.clone() - m * w2);
    b.signed(&says("output"), full, y.clone(), OPERAND_BITS);
    requant::constrain(
        b,
        &says("output"),
        full,
        Count::One,
        x.clone() * f,
        y.clone(),
        params.shift,
    );
    y
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(ss: u64) {
        let v = inverse_root(u128::from(ss)).unwrap();
        assert!(v.z <= 20 && (1 << 20..1 << 22).contains(&v.u));
        assert!((0..v.w4).contains(&v.r));
        assert_eq!(v.w4, 4i64.pow(v.z));
        assert_eq!(v.w2 << v.z, 1 << 20);
        assert_eq!(v.u as u64 * v.w4 as u64 + v.r as u64, ss);
        assert!(v.m * v.m * v.u <= 1 << 50);
        assert!((v.m + 1) * (v.m + 1) * v.u > 1 << 50);
        assert_eq!(v.f, v.m * v.w2);
        // No other exponent gives a mantissa in range.
        let exponents = (0..=31).filter(|z| (1 << 20..1 << 22).contains(&(ss >> (2 * z))));
        assert_eq!(exponents.count(), 1);
    }

    proptest! {
        #[test]
        fn scalars_are_the_definition(bits in 20u32..62, mix in any::<u64>()) {
            check((1 << bits) | (mix & ((1 << bits) - 1)));
        }

        #[test]
        fn outputs_have_the_expected_length(x in prop::collection::vec(-(1i32 << 23)..1 << 23, 64)) {
            // y = x / rms(x) * 2^45 / (sqrt(factor * 64) * 2^shift) up to rounding.
            let params = NormParams { factor: 1 << 8, epsilon: 1 << 20, shift: 28 };
            let out = rms_norm(&x, params).unwrap();
            let squares: f64 = x.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
            for (&x, &y) in x.iter().zip(&out.y) {
                let unit = 2f64.powi(45 - 28) / (256.0 * squares + f64::from(1 << 20)).sqrt();
                prop_assert!((f64::from(x) * unit - f64::from(y)).abs() < 0.6 + f64::from(y).abs() * 1e-4);
            }
        }
    }

    #[test]
    fn ends_of_every_exponent() {
        for bits in 20..62 {
            check(1 << bits);
            check((1 << bits) + 1);
            check((2 << bits) - 1);
        }
        for bad in [
            0,
            1,
            (1 << 20) - 1,
            1 << 62,
            u128::from(u64::MAX),
            u128::MAX,
        ] {
            assert!(inverse_root(bad).is_err());
        }
    }

    #[test]
    fn the_root_of_every_kind_of_mantissa_is_exact() {
        // All mantissas in coarse steps, and around those where m changes.
        for u in (1u64 << 20..1 << 22).step_by(97) {
            check(u);
        }
        for m in (1u64 << 14) + 1..=1 << 15 {
            let u = (1u64 << 50) / (m * m);
            for u in [u - 1, u, u + 1] {
                if (1 << 20..1 << 22).contains(&u) {
                    check(u);
                }
            }
        }
        assert_eq!(inverse_root(1 << 20).unwrap().m, 1 << 15);
    }

    #[test]
    fn zero_and_overflow() {
        let params = NormParams {
            factor: 1 << 8,
            epsilon: 1 << 20,
            shift: 17,
        };
        assert_eq!(rms_norm(&[0i64; 5], params).unwrap().y, [0i16; 5]);
        // A lone entry has length one: 2^45 / (2^4 * 2^17) = 2^24 is no int16.
        let error = rms_norm(&[0i64, 1 << 20, 0], params).unwrap_err();
        assert_eq!((error.low, error.high), (-32768, 32768));
        let wide = NormParams {
            factor: 1 << 30,
            ..params
        };
        assert!(rms_norm(&[1i64 << 23; 64], wide).is_err());
    }
}
