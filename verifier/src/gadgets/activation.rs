//! The gated activation of an expert: `requant(SiLU(gate) * up, shift)`.
//!
//! `SiLU` is a public table over all 16-bit inputs: entry `i` belongs to the input `i - 2^15`. Its output times the up
//! projection is requantized to 16 bits. The pair (input, output) is one lookup in the proof.

use super::{OutOfRange, int16, requant::requant};

/// The place of an input in the table.
#[inline]
pub fn silu_index(x: i16) -> usize {
    (i32::from(x) + (1 << 15)) as usize
}

/// The activation of `x`; `table` has `2^16` entries.
#[inline]
pub fn silu(x: i16, table: &[i16]) -> i16 {
    table[silu_index(x)]
}

/// The product of activation and up projection.
#[inline]
pub fn gated(activation: i16, up: i16, shift: u32) -> Result<i16, OutOfRange> {
    int16(requant(i64::from(activation) * i64::from(up), shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_input_has_its_own_entry() {
        let table: Vec<i16> = (i16::MIN..=i16::MAX).collect();
        for x in [i16::MIN, -1, 0, 1, i16::MAX] {
            assert_eq!(silu(x, &table), x);
        }
    }

    #[test]
    fn products_end_where_int16_ends() {
        assert_eq!(gated(i16::MIN, i16::MIN, 16), Ok(1 << 14));
        assert!(gated(i16::MIN, i16::MIN, 15).is_err());
        assert_eq!(gated(i16::MIN, i16::MAX, 15), Ok(-32767));
        assert_eq!(gated(3, 1, 1), Ok(2));
        assert_eq!(gated(-3, 1, 1), Ok(-1));
    }
}
