//! Exact integer matrix products: 16-bit inputs times signed bytes, times the multiplier of the output channel.
//!
//! `sum_i x_i (m w_i) = m sum_i x_i w_i`, so the inner loop works on bytes and the multiplier comes last. One term is
//! below `2^15 * 127`, so 512 of them fit 32 bits with sign; longer sums are spilled to 64 bits in between.
//!
//! Work is cut into tiles of rows and columns. A tile's weights stay in the first cache level while its rows pass, and
//! its sums stay in registers. Tiles are independent, so they are spread over threads when there is enough work; the
//! result does not depend on how.

use rayon::prelude::*;
use zkmoe_verifier::gadgets::OutOfRange;

use crate::model::{Model, WeightId};

/// Terms whose sum is exact in 32 bits: `512 * 2^15 * 127 < 2^31`.
const EXACT_TERMS: usize = 512;
/// Columns whose sums are held in registers.
const LANES: usize = 16;
/// Columns of a tile.
const TILE_COLUMNS: usize = 128;
/// Rows of a tile.
const TILE_ROWS: usize = 32;
/// Below this number of products, threads cost more than they save.
const PARALLEL_WORK: usize = 1 << 18;

/// One matrix of a weight tensor.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    values: &'a [i8],
    multipliers: &'a [u16],
    inn: usize,
    out: usize,
}

/// A value of a product that is out of its range, and the row in which it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowFault {
    pub row: usize,
    pub fault: OutOfRange,
}

impl<'a> Matrix<'a> {
    /// Matrix number `outer` of tensor `id`.
    pub(crate) fn of(model: &'a Model, id: WeightId, outer: usize) -> Self {
        let shape = model.shape(id);
        let block = shape.inn * shape.out;
        Self {
            values: &model.values(id)[outer * block..][..block],
            multipliers: &model.multipliers(id)[outer * shape.out..][..shape.out],
            inn: shape.inn,
            out: shape.out,
        }
    }

    /// The committed values of a matrix with one input channel: a gain or an embedding row.
    pub(crate) fn committed_row(self) -> impl Iterator<Item = i64> + 'a {
        self.values
            .iter()
            .zip(self.multipliers)
            .map(|(&w, &m)| i64::from(w) * i64::from(m))
    }

    /// Multiplies every row of `x`, laid out `[row][in]`, and passes each sum through `narrow`, the requantization of
    /// the product. The result is `[row][out]`. Of several faults the one in the first row is reported.
    pub(crate) fn product<T, N>(self, x: &[i16], narrow: N) -> Result<Vec<T>, RowFault>
    where
        T: Copy + Default + Send,
        N: Fn(i64) -> Result<T, OutOfRange> + Sync,
    {
        let rows = x.len() / self.inn;
        let column_tiles = self.out.div_ceil(TILE_COLUMNS);
        let tile = |index: usize| {
            let (row, column) = (index / column_tiles, index % column_tiles);
            let rows = row * TILE_ROWS..rows.min((row + 1) * TILE_ROWS);
            let first = rows.start;
            let columns = column * TILE_COLUMNS..self.out.min((column + 1) * TILE_COLUMNS);
            self.tile(
                &x[rows.start * self.inn..rows.end * self.inn],
                columns,
                &narrow,
            )
            .map_err(|fault| RowFault {
                row: fault.row + first,
                ..fault
            })
        };
        let tiles = rows.div_ceil(TILE_ROWS) * column_tiles;
        let results: Vec<Result<Vec<T>, RowFault>> =
            if tiles > 1 && rows * self.inn * self.out >= PARALLEL_WORK {
                (0..tiles).into_par_iter().map(tile).collect()
            } else {
                (0..tiles).map(tile).collect()
            };
        if let Some(fault) = results
            .iter()
            .filter_map(|r| r.as_ref().err())
            .min_by_key(|fault| fault.row)
        {
            return Err(*fault);
        }
        let mut out = vec![T::default(); rows * self.out];
        for (index, result) in results.into_iter().enumerate() {
            let (row, column) = (index / column_tiles, index % column_tiles);
            let start = column * TILE_COLUMNS;
            let width = TILE_COLUMNS.min(self.out - start);
            let block = result.unwrap_or_default();
            for (i, part) in block.chunks_exact(width).enumerate() {
                let to = (row * TILE_ROWS + i) * self.out + start;
                out[to..to + width].copy_from_slice(part);
            }
        }
        Ok(out)
    }

    /// The product of some rows with some columns.
    fn tile<T, N>(
        self,
        x: &[i16],
        columns: std::ops::Range<usize>,
        narrow: &N,
    ) -> Result<Vec<T>, RowFault>
    where
        N: Fn(i64) -> Result<T, OutOfRange>,
    {
        let width = columns.len();
        let rows = x.len() / self.inn;
        let mut sums = vec![0i64; rows * width];
        for from in (0..self.inn).step_by(EXACT_TERMS) {
            let to = self.inn.min(from + EXACT_TERMS);
            let weights = &self.values[from * self.out..to * self.out];
            for lane in (0..width).step_by(LANES) {
                let lanes = LANES.min(width - lane);
                let column = columns.start + lane;
                let mut row = 0;
                while row < rows {
                    let inputs = |r: usize| &x[r * self.inn + from..r * self.inn + to];
                    let mut add = |r: usize, part: &[i32; LANES]| {
                        let sums = &mut sums[r * width + lane..][..lanes];
                        for (sum, &part) in sums.iter_mut().zip(part) {
                            *sum += i64::from(part);
                        }
                    };
                    if row + 1 < rows {
                        let parts = dot([inputs(row), inputs(row + 1)], weights, self.out, column);
                        add(row, &parts[0]);
                        add(row + 1, &parts[1]);
                        row += 2;
                    } else {
                        add(row, &dot([inputs(row)], weights, self.out, column)[0]);
                        row += 1;
                    }
                }
            }
        }
        let multipliers = &self.multipliers[columns];
        let mut out = Vec::with_capacity(rows * width);
        for (row, sums) in sums.chunks_exact(width).enumerate() {
            for (&sum, &m) in sums.iter().zip(multipliers) {
                // Below 2^16 terms of 2^15 * 127, times 2^16: far below 2^62.
                out.push(narrow(sum * i64::from(m)).map_err(|fault| RowFault { row, fault })?);
            }
        }
        Ok(out)
    }
}

/// Sums of at most [`EXACT_TERMS`] products for some rows and the [`LANES`] columns from `column`; lanes past the last
/// column hold nothing of use.
#[inline]
fn dot<const ROWS: usize>(
    x: [&[i16]; ROWS],
    weights: &[i8],
    out: usize,
    column: usize,
) -> [[i32; LANES]; ROWS] {
    let mut sums = [[0i32; LANES]; ROWS];
    let mut buffer = [0i8; LANES];
    for (i, line) in weights.chunks_exact(out).enumerate() {
        let line = &line[column..];
        let w = if let Some(w) = line.first_chunk::<LANES>() {
            w
        } else {
            buffer[..line.len()].copy_from_slice(line);
            &buffer
        };
        for r in 0..ROWS {
            let x = i32::from(x[r][i]);
            for (sum, &w) in sums[r].iter_mut().zip(w) {
                *sum += x * i32::from(w);
            }
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SplitMix;

    fn check(rows: usize, inn: usize, out: usize, extreme: bool) {
        let mut random = SplitMix::new((rows * inn + out) as u64);
        let mut x = vec![i16::MIN; rows * inn];
        let mut values = vec![127i8; inn * out];
        let mut multipliers = vec![u16::MAX; out];
        if !extreme {
            for x in &mut x {
                *x = random.next() as i16;
            }
            for w in &mut values {
                *w = (random.below(255) as i32 - 127) as i8;
            }
            for m in &mut multipliers {
                *m = 1 + random.below(65535) as u16;
            }
        }
        let matrix = Matrix {
            values: &values,
            multipliers: &multipliers,
            inn,
            out,
        };
        let found = matrix.product(&x, Ok::<i64, OutOfRange>).unwrap();
        assert_eq!(found.len(), rows * out);
        for row in 0..rows {
            for o in 0..out {
                let slow: i64 = (0..inn)
                    .map(|i| {
                        let c = i64::from(values[i * out + o]) * i64::from(multipliers[o]);
                        i64::from(x[row * inn + i]) * c
                    })
                    .sum();
                assert_eq!(found[row * out + o], slow, "row {row}, column {o}");
            }
        }
    }

    #[test]
    fn agrees_with_the_plain_sum() {
        for (rows, inn, out) in [
            (1, 1, 1),
            (1, 8, 16),
            (2, 5, 17),
            (3, 512, 8),
            (5, 513, 33),
            (33, 40, 129),
            (67, 128, 300),
            (0, 4, 4),
        ] {
            check(rows, inn, out, false);
        }
    }

    #[test]
    fn the_largest_sums_are_exact() {
        check(2, 2048, 20, true);
    }

    #[test]
    fn the_first_faulty_row_is_named() {
        let matrix = Matrix {
            values: &[1; 200],
            multipliers: &[1; 200],
            inn: 1,
            out: 200,
        };
        let x: Vec<i16> = (0..100).collect();
        let narrow = |sum: i64| {
            if sum >= 70 {
                Err(OutOfRange {
                    value: sum,
                    low: 0,
                    high: 70,
                })
            } else {
                Ok(sum)
            }
        };
        let fault = matrix.product(&x, narrow).unwrap_err();
        assert_eq!((fault.row, fault.fault.value), (70, 70));
    }
}
