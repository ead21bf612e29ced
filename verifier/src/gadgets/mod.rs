//! The operators of the integer model, one file each.
//!
//! Each file opens with its statement: the values it takes, the equations between them and the ranges that make these
//! equations have one solution. The functions here are the definition. Serving, tracing and proving call them, so
//! there is one rounding and one tie rule in the whole project. They are pure functions on integers, without threads
//! and files.
//!
//! The model is a partial function. A value outside its range is [`OutOfRange`], never clipped: a clipped value would
//! need a comparison of its own in the proof, and with enough head-room it would never be used.
//!
//! The second half of each file is the operator in the proof. A function, mostly called `constrain`, declares the tensors
//! and states equations and lookups through [`crate::relation::Builder`]; the prose at the top says why they leave no
//! other result. Arguments are about integers, the proof is about residues modulo `p = 2^64 - 2^32 + 1`, so each of
//! them has the same two steps. First, every operand has a range of its own, so both sides of an equation are integers
//! below `2^63` in magnitude, and equal residues are equal integers. Second, the equation has one solution over the
//! integers. An operand without its own range would break the first step: all quotients of a row could be moved by the
//! same fraction modulo `p`, and every comparison between them would still hold.
//!
//! Bounds on sizes and shifts come from [`crate::header::Header::check`], bounds on weights from the model's certificate:
//! a committed weight is a byte times a multiplier, so at most `127 * 65535 < 2^23` in magnitude.

pub mod activation;
pub mod argmax;
pub mod combine;
pub mod decode;
pub mod dispatch;
pub mod divide;
pub mod embedding;
pub mod fingerprint;
pub mod requant;
pub mod residual;
pub mod rms_norm;
pub mod rope;
pub mod router;
pub mod softmax;

/// Bits of a signed operand of a matrix product.
pub const OPERAND_BITS: u32 = 16;

/// A value left the range for which its operator is defined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("value {value} lies outside {low}..{high}")]
pub struct OutOfRange {
    /// The value, as near as 64 bits can say it.
    pub value: i64,
    /// The lowest value that is allowed.
    pub low: i64,
    /// The first value above the range.
    pub high: i64,
}

/// Accepts a value that fits `bits` bits with sign.
#[inline]
pub fn signed(value: i64, bits: u32) -> Result<i32, OutOfRange> {
    debug_assert!((1..=32).contains(&bits));
    let high = 1i64 << (bits - 1);
    if (-high..high).contains(&value) {
        Ok(value as i32)
    } else {
        Err(OutOfRange {
            value,
            low: -high,
            high,
        })
    }
}

/// Accepts a value that fits 16 bits with sign, the width of everything that enters a matrix product.
#[inline]
pub fn int16(value: i64) -> Result<i16, OutOfRange> {
    signed(value, OPERAND_BITS).map(|x| x as i16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_end_where_they_say() {
        for bits in [16, 20, 24] {
            let high = 1i64 << (bits - 1);
            for inside in [-high, -1, 0, high - 1] {
                assert_eq!(signed(inside, bits), Ok(inside as i32));
            }
            for outside in [-high - 1, high, i64::MIN, i64::MAX] {
                let error = signed(outside, bits).unwrap_err();
                assert_eq!((error.value, error.low, error.high), (outside, -high, high));
            }
        }
        assert_eq!(int16(-32768), Ok(i16::MIN));
        assert!(int16(32768).is_err());
    }
}
