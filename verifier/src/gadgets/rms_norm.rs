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

use super::{OutOfRange, int16, requant::requant};

/// Largest exponent `z`.
pub const EXPONENT_MAX: u32 = 20;
/// The lowest mantissa is `2^MANTISSA_BITS`.
pub const MANTISSA_BITS: u32 = 20;
/// `m^2 u` is at most `2^ROOT_BITS`.
pub const ROOT_BITS: u32 = 50;

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
