//! The public tables of a header, computed from real functions.
//!
//! Tables are computed once, at import, and are part of the header from then on. Nobody recomputes them, so the last
//! bit of this machine's `exp`, `sin` and `cos` is no matter of consensus.

use zkmoe_verifier::header::{EXP_FRACTION_BITS, ROPE_FRACTION_BITS, TABLE_SIZE};

/// `round(65535 * exp(-i / 2^EXP_FRACTION_BITS))`; the last entries are zero.
pub fn exp_table() -> Vec<u16> {
    let unit = f64::from(1 << EXP_FRACTION_BITS);
    (0..TABLE_SIZE)
        .map(|i| (65535.0 * (-(i as f64) / unit).exp()).round() as u16)
        .collect()
}

/// `silu(x / input_unit) * output_unit` for every signed 16-bit `x`, rounded, and clamped to 16 bits.
pub fn silu_table(input_unit: f64, output_unit: f64) -> Vec<i16> {
    (0..TABLE_SIZE)
        .map(|i| {
            let x = (i as f64 - 32768.0) / input_unit;
            let y = x / (1.0 + (-x).exp());
            // `as` saturates, so an output unit that is too large for the largest inputs clamps.
            (y * output_unit).round() as i16
        })
        .collect()
}

/// Cosines and sines of `position * theta^(-j / half)` for all positions, `half` of them each.
pub fn rope_tables(positions: usize, half: usize, theta: f64) -> (Vec<i16>, Vec<i16>) {
    let unit = f64::from(1 << ROPE_FRACTION_BITS);
    (0..positions * half)
        .map(|i| {
            let (position, j) = (i / half, i % half);
            let frequency = theta.powf(-(j as f64) / half as f64);
            let (sin, cos) = (position as f64 * frequency).sin_cos();
            ((cos * unit).round() as i16, (sin * unit).round() as i16)
        })
        .unzip()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_the_tables() {
        let exp = exp_table();
        assert_eq!((exp[0], exp[1024], exp[65535]), (65535, 24109, 0));
        assert!(exp.windows(2).all(|w| w[0] >= w[1]));
        let silu = silu_table(2048.0, 2048.0);
        assert_eq!(silu[32768], 0);
        assert_eq!(silu[65535], 32767);
        assert_eq!(silu[0], 0);
        assert_eq!(silu[32768 + 2048], 1497);
        let (cos, sin) = rope_tables(3, 2, 10000.0);
        assert_eq!((cos[0], sin[0]), (16384, 0));
        assert_eq!((cos[2], sin[2]), (8852, 13787));
    }
}
