//! Transforms of `2^8` values and more, as two passes of short transforms (D. Bailey, "FFTs in external or hierarchical
//! memory", 1990), written so that a compiler turns the lanes of a block into vector registers.
//!
//! With `n = n1 n2` and index `r n2 + c`, the value at `w^(k1 + n1 k2)` is
//! `sum_c w_n2^(c k2) w_n^(c k1) sum_r x[r n2 + c] w_n1^(r k1)`. The first pass takes [`LANES`] columns `c` at a time into
//! a buffer that fits the fastest cache, transforms over `r`, multiplies by `w_n^(c k1)` and writes transposed; the
//! second takes [`LANES`] values of `k1` at a time, transforms over `c` and writes to natural order. Every butterfly works
//! on whole rows of a buffer, with the same twiddles for all lanes.

use super::{MODULUS, QUARTER, mul, passes, root_of_unity};

/// Columns transformed together: two registers of eight words, and rows of whole cache lines.
pub(super) const LANES: usize = 16;
/// The smallest size with at least [`LANES`] rows and columns.
pub(super) const MIN_LOG: u32 = 8;

type Row = [u64; LANES];
const EPSILON: u64 = 0xFFFF_FFFF;

/// A plan for one size.
#[derive(Debug, Clone)]
pub(super) struct Blocked {
    log_rows: u32,
    log_columns: u32,
    row_passes: Vec<Vec<[u64; 3]>>,
    column_passes: Vec<Vec<[u64; 3]>>,
    /// `w_n^(c k1)`: by block of columns, then `k1`, then column in the block.
    twiddles: Vec<Row>,
}

impl Blocked {
    pub fn new(log_n: u32) -> Self {
        let (log_rows, log_columns) = (log_n / 2, log_n - log_n / 2);
        let w = root_of_unity(log_n);
        let mut twiddles = Vec::with_capacity(1 << (log_n - LANES.trailing_zeros()));
        // Bases w^c of one block, from one block to the next.
        let mut base: Row = [1; LANES];
        for l in 1..LANES {
            base[l] = mul(base[l - 1], w);
        }
        let step = mul(base[LANES - 1], w);
        for _ in 0..(1usize << log_columns) / LANES {
            let mut row: Row = [1; LANES];
            for _ in 0..1usize << log_rows {
                twiddles.push(row);
                for (x, b) in row.iter_mut().zip(&base) {
                    *x = mul(*x, *b);
                }
            }
            for b in &mut base {
                *b = mul(*b, step);
            }
        }
        Self {
            log_rows,
            log_columns,
            row_passes: passes(log_rows),
            column_passes: passes(log_columns),
            twiddles,
        }
    }

    /// The first pass: from coefficients to what [`Blocked::second`] takes.
    pub fn first(&self, coefficients: &[u64], out: &mut [u64]) {
        #[cfg(target_arch = "x86_64")]
        if wide() {
            // SAFETY: the processor has the features, as `wide` says; the function has no other condition.
            unsafe { first_avx512(self, coefficients, out) };
            return;
        }
        first::<false>(self, coefficients, out);
    }

    /// The second pass, for several coefficient vectors whose values are interleaved.
    pub fn second(&self, input: &[u64], out: &mut [u64]) {
        #[cfg(target_arch = "x86_64")]
        if wide() {
            // SAFETY: as in `first`.
            unsafe { second_avx512(self, input, out) };
            return;
        }
        second::<false>(self, input, out);
    }

    /// The second pass for one coefficient vector, to bit-reversed order.
    pub fn second_reversed(&self, input: &[u64], out: &mut [u64]) {
        #[cfg(target_arch = "x86_64")]
        if wide() {
            // SAFETY: as in `first`.
            unsafe { second_reversed_avx512(self, input, out) };
            return;
        }
        second_reversed::<false>(self, input, out);
    }
}

/// `a[i] *= b[i]`.
pub(super) fn multiply(a: &mut [u64], b: &[u64]) {
    #[cfg(target_arch = "x86_64")]
    if wide() {
        // SAFETY: the processor has the features, as `wide` says; the function has no other condition.
        unsafe { multiply_avx512(a, b) };
        return;
    }
    multiply_lanes::<false>(a, b);
}

#[cfg(target_arch = "x86_64")]
fn wide() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl")]
fn first_avx512(plan: &Blocked, coefficients: &[u64], out: &mut [u64]) {
    first::<true>(plan, coefficients, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl")]
fn second_avx512(plan: &Blocked, input: &[u64], out: &mut [u64]) {
    second::<true>(plan, input, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl")]
fn second_reversed_avx512(plan: &Blocked, input: &[u64], out: &mut [u64]) {
    second_reversed::<true>(plan, input, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl")]
fn multiply_avx512(a: &mut [u64], b: &[u64]) {
    multiply_lanes::<true>(a, b);
}

// Everything below is compiled once for each instruction set, into its callers above.

#[inline(always)]
#[allow(clippy::inline_always, reason = "takes the features of its caller")]
fn multiply_lanes<const WIDE: bool>(a: &mut [u64], b: &[u64]) {
    for (x, y) in a.iter_mut().zip(b) {
        *x = product::<WIDE>(*x, *y);
    }
}

#[inline(always)]
#[allow(clippy::inline_always, reason = "takes the features of its caller")]
fn first<const WIDE: bool>(plan: &Blocked, coefficients: &[u64], out: &mut [u64]) {
    let (rows, columns) = (1usize << plan.log_rows, 1usize << plan.log_columns);
    assert!(coefficients.len() == rows * columns && out.len() == rows * columns);
    let mut buffer = vec![[0; LANES]; rows];
    for (block, (out, twiddles)) in out
        .chunks_exact_mut(LANES * rows)
        .zip(plan.twiddles.chunks_exact(rows))
        .enumerate()
    {
        for (row, x) in buffer.iter_mut().zip(coefficients.chunks_exact(columns)) {
            row.copy_from_slice(&x[block * LANES..(block + 1) * LANES]);
        }
        transform::<WIDE>(&mut buffer, &plan.row_passes);
        // Eight rows at a time, so that cache lines of the output are written whole.
        for start in (0..rows).step_by(8) {
            let mut strip = [[0; LANES]; 8];
            for (i, row) in strip.iter_mut().enumerate() {
                let k1 = start + i;
                let values = &buffer[reversed(k1, plan.log_rows)];
                for l in 0..LANES {
                    row[l] = product::<WIDE>(values[l], twiddles[k1][l]);
                }
            }
            for (l, column) in out.chunks_exact_mut(rows).enumerate() {
                for (x, row) in column[start..start + 8].iter_mut().zip(&strip) {
                    *x = row[l];
                }
            }
        }
    }
}

#[inline(always)]
#[allow(clippy::inline_always, reason = "takes the features of its caller")]
fn second<const WIDE: bool>(plan: &Blocked, input: &[u64], out: &mut [u64]) {
    let (rows, columns) = (1usize << plan.log_rows, 1usize << plan.log_columns);
    let count = input.len() / (rows * columns);
    assert!(input.len() == count * rows * columns && out.len() == input.len());
    let mut buffer = vec![[0; LANES]; count * columns];
    for start in (0..rows).step_by(LANES) {
        for (row, x) in buffer.iter_mut().zip(input.chunks_exact(rows)) {
            row.copy_from_slice(&x[start..start + LANES]);
        }
        for part in buffer.chunks_exact_mut(columns) {
            transform::<WIDE>(part, &plan.column_passes);
        }
        for (k2, x) in out.chunks_exact_mut(rows * count).enumerate() {
            let x = &mut x[start * count..(start + LANES) * count];
            let from = reversed(k2, plan.log_columns);
            if count == 1 {
                x.copy_from_slice(&buffer[from]);
            } else if count == 4 {
                let part = |i: usize| &buffer[i * columns + from];
                let parts = [part(0), part(1), part(2), part(3)];
                for (l, x) in x.chunks_exact_mut(4).enumerate() {
                    for i in 0..4 {
                        x[i] = parts[i][l];
                    }
                }
            } else {
                for (l, x) in x.chunks_exact_mut(count).enumerate() {
                    for (i, x) in x.iter_mut().enumerate() {
                        *x = buffer[i * columns + from][l];
                    }
                }
            }
        }
    }
}

#[inline(always)]
#[allow(clippy::inline_always, reason = "takes the features of its caller")]
fn second_reversed<const WIDE: bool>(plan: &Blocked, input: &[u64], out: &mut [u64]) {
    let (rows, columns) = (1usize << plan.log_rows, 1usize << plan.log_columns);
    assert!(input.len() == rows * columns && out.len() == input.len());
    let mut buffer = vec![[0; LANES]; columns];
    for start in (0..rows).step_by(LANES) {
        for (row, x) in buffer.iter_mut().zip(input.chunks_exact(rows)) {
            row.copy_from_slice(&x[start..start + LANES]);
        }
        transform::<WIDE>(&mut buffer, &plan.column_passes);
        // The bits of k1 + n1 k2 reversed are those of k2, as the buffer has them, below those of k1.
        for l in 0..LANES {
            let at = reversed(start + l, plan.log_rows) * columns;
            for (x, row) in out[at..at + columns].iter_mut().zip(&buffer) {
                *x = row[l];
            }
        }
    }
}

#[inline(always)]
#[allow(clippy::inline_always, reason = "takes the features of its caller")]
fn reversed(index: usize, bits: u32) -> usize {
    index.reverse_bits() >> (usize::BITS - bits)
}

/// Decimation in frequency down the rows of a buffer, to bit-reversed order, the same in every lane.
#[inline(always)]
#[allow(clippy::inline_always, reason = "takes the features of its caller")]
fn transform<const WIDE: bool>(buffer: &mut [Row], passes: &[Vec<[u64; 3]>]) {
    let mut size = buffer.len();
    for pass in passes {
        let quarter = size / 4;
        for block in buffer.chunks_exact_mut(size) {
            let (low, high) = block.split_at_mut(2 * quarter);
            let (v0, v1) = low.split_at_mut(quarter);
            let (v2, v3) = high.split_at_mut(quarter);
            for j in 0..quarter {
                let [w1, w2, w3] = pass[j];
                let (a, b, c, d) = (&mut v0[j], &mut v1[j], &mut v2[j], &mut v3[j]);
                for l in 0..LANES {
                    let (s0, d0) = (add(a[l], c[l]), sub(a[l], c[l]));
                    let (s1, d1) = (add(b[l], d[l]), quarter_turn(sub(b[l], d[l])));
                    a[l] = add(s0, s1);
                    if quarter == 1 {
                        b[l] = sub(s0, s1);
                        c[l] = add(d0, d1);
                        d[l] = sub(d0, d1);
                    } else {
                        b[l] = product::<WIDE>(sub(s0, s1), w2);
                        c[l] = product::<WIDE>(add(d0, d1), w1);
                        d[l] = product::<WIDE>(sub(d0, d1), w3);
                    }
                }
            }
        }
        size = quarter;
    }
    if size == 2 {
        for pair in buffer.chunks_exact_mut(2) {
            for l in 0..LANES {
                let (a, b) = (pair[0][l], pair[1][l]);
                pair[0][l] = add(a, b);
                pair[1][l] = sub(a, b);
            }
        }
    }
}

#[inline(always)]
#[allow(clippy::inline_always, reason = "takes the features of its caller")]
fn add(a: u64, b: u64) -> u64 {
    let complement = MODULUS - b;
    let d = a.wrapping_sub(complement);
    if a < complement {
        d.wrapping_add(MODULUS)
    } else {
        d
    }
}

#[inline(always)]
#[allow(clippy::inline_always, reason = "takes the features of its caller")]
fn sub(a: u64, b: u64) -> u64 {
    let d = a.wrapping_sub(b);
    if a < b { d.wrapping_add(MODULUS) } else { d }
}

/// `lo + 2^64 hi mod p`, without branches.
#[inline(always)]
#[allow(clippy::inline_always, reason = "takes the features of its caller")]
fn reduce(lo: u64, hi: u64) -> u64 {
    let top = hi >> 32;
    let t = lo.wrapping_sub(top);
    let t = t.wrapping_sub(if lo < top { EPSILON } else { 0 });
    let low = hi & EPSILON;
    let m = (low << 32).wrapping_sub(low);
    let r = t.wrapping_add(m);
    let r = r.wrapping_add(if r < m { EPSILON } else { 0 });
    // Below p the difference wraps to something larger.
    r.min(r.wrapping_sub(MODULUS))
}

/// The product with [`QUARTER`].
#[inline(always)]
#[allow(clippy::inline_always, reason = "takes the features of its caller")]
fn quarter_turn(a: u64) -> u64 {
    const SHIFT: u32 = QUARTER.trailing_zeros();
    reduce(a << SHIFT, a >> (64 - SHIFT))
}

/// Vector units multiply 32-bit halves, scalar ones whole words.
#[inline(always)]
#[allow(clippy::inline_always, reason = "takes the features of its caller")]
fn product<const WIDE: bool>(a: u64, b: u64) -> u64 {
    if !WIDE {
        return mul(a, b);
    }
    let (a0, a1, b0, b1) = (a & EPSILON, a >> 32, b & EPSILON, b >> 32);
    let (low, high) = (a0 * b0, a1 * b1);
    // Neither sum overflows: (2^32 - 1)^2 + 2^32 - 1 < 2^64.
    let t = a1 * b0 + (low >> 32);
    let u = a0 * b1 + (t & EPSILON);
    reduce((u << 32) | (low & EPSILON), high + (t >> 32) + (u >> 32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_instruction_sets_agree() {
        let n = 1 << 9;
        let plan = Blocked::new(9);
        let x: Vec<u64> = (0..n as u64)
            .map(|i| (i * i).wrapping_mul(0x9E37_79B9_7F4A_7C15) % MODULUS)
            .collect();
        let run = |wide: bool| {
            let (mut middle, mut out) = (vec![0; n], vec![0; n]);
            if wide {
                first::<true>(&plan, &x, &mut middle);
                second::<true>(&plan, &middle, &mut out);
                multiply_lanes::<true>(&mut out, &x);
            } else {
                first::<false>(&plan, &x, &mut middle);
                second::<false>(&plan, &middle, &mut out);
                multiply_lanes::<false>(&mut out, &x);
            }
            out
        };
        let (wide, narrow) = (run(true), run(false));
        assert_eq!(wide, narrow);
        let mut middle = vec![0; n];
        let mut out = vec![0; n];
        plan.first(&x, &mut middle);
        plan.second(&middle, &mut out);
        multiply(&mut out, &x);
        assert_eq!(out, wide);
    }

    #[test]
    fn products_of_extreme_words_agree() {
        let words = [
            0,
            1,
            2,
            EPSILON - 1,
            EPSILON,
            EPSILON + 1,
            EPSILON << 32,
            MODULUS - 2,
            MODULUS - 1,
            1 << 63,
        ];
        for a in words {
            for b in words {
                assert_eq!(product::<true>(a, b), mul(a, b), "{a} {b}");
                assert_eq!(
                    u128::from(add(a, b)),
                    (u128::from(a) + u128::from(b)) % u128::from(MODULUS)
                );
                assert_eq!(add(sub(a, b), b), a);
            }
            assert_eq!(quarter_turn(a), mul(a, QUARTER));
        }
    }
}
