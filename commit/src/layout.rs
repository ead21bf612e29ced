//! Where the cells of tensors lie in the rows of a commitment, and what a claim about a tensor means for the rows.
//!
//! A commitment holds rows of `2^k` slots. Sizes of real models are no powers of two, and nothing is padded: every axis
//! of a tensor is cut into the binary blocks of its size, largest first (1408 = 1024 + 256 + 128), so the start of a
//! block is a multiple of its size. A *brick* is a product of blocks, one of each axis, and has `2^b` cells; inside it
//! the index concatenates the low bits of the axes, the last axis lowest. Groups of a grouped tensor are cut each on
//! its own. All bricks of all tensors are sorted by descending size (stable: tensor, group, position) and placed one
//! after the other, so every brick is aligned to its size: a small one lies inside one row, a large one fills whole
//! rows and is stored as its pieces of one row each.
//!
//! A claim `sum_cells prod_a w_a(index_a) * cell = v` ([`crate::shape`]) thus becomes `sum_rows sum_x L_row(x) row(x)`
//! with `L_row` a sum of aligned products, and its multilinear extension `L_row(rho)` costs a few multiplications for
//! each brick and bit. This is all that the verifier ever computes of it.
//!
//! Everything here follows from public shapes. Slots that hold no cell hold zero and have weight zero.

#[cfg(feature = "prove")]
use crate::field::F;
use crate::field::K;
use crate::shape::{AxisWeights, Shape};
use ark_ff::{AdditiveGroup, Field};

/// A run of indices of one axis: `start .. start + 2^bits`, where `start` is a multiple of `2^bits`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Block {
    start: usize,
    bits: u32,
}

/// A product of blocks inside one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Brick {
    /// The tensor's group; zero where it has no group axis.
    group: usize,
    /// The row that holds the brick.
    row: usize,
    /// Its first slot, a multiple of `2^log`.
    slot: usize,
    /// Its size is `2^log`.
    log: u32,
}

/// The bricks of one tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Tensor {
    shape: Shape,
    /// Axes without the group axis.
    axes: usize,
    bricks: Vec<Brick>,
    /// The blocks of brick `i` are the `axes` entries from `i * axes`.
    blocks: Vec<Block>,
}

impl Tensor {
    fn blocks(&self, brick: usize) -> &[Block] {
        &self.blocks[brick * self.axes..(brick + 1) * self.axes]
    }
}

/// The places of all tensors of one commitment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    log_row: u32,
    rows: usize,
    tensors: Vec<Tensor>,
    /// `(tensor, brick)` in the order of places.
    placed: Vec<(usize, usize)>,
    /// The bricks of row `r` are `placed[row_starts[r]..row_starts[r + 1]]`.
    row_starts: Vec<usize>,
}

/// A claim, as far as one layout is concerned.
#[derive(Debug, Clone, Copy)]
pub struct Functional<'a> {
    /// Which of the layout's tensors.
    pub tensor: usize,
    /// One weight function for each axis, the group axis first if there is one.
    pub weights: &'a [AxisWeights],
    /// The factor of the whole functional.
    pub coefficient: K,
}

/// Cells that lie next to each other both in the tensor and in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The tensor.
    pub tensor: usize,
    /// Index of the first cell in the tensor's row-major order, groups one after the other.
    pub cell: usize,
    /// The row.
    pub row: usize,
    /// The slot of the first cell.
    pub slot: usize,
    /// How many cells.
    pub len: usize,
}

/// The binary blocks of an axis of size `n`, largest first.
fn binary_blocks(n: usize) -> Vec<Block> {
    let mut start = 0;
    (0..usize::BITS)
        .rev()
        .filter(|bits| n >> bits & 1 == 1)
        .map(|bits| {
            let block = Block { start, bits };
            start += 1 << bits;
            block
        })
        .collect()
}

/// All products of one block of each axis, the last axis fastest; none if an axis is empty.
fn products(sizes: &[usize]) -> Vec<Vec<Block>> {
    let mut out = vec![Vec::with_capacity(sizes.len())];
    for &n in sizes {
        let blocks = binary_blocks(n);
        out = out
            .iter()
            .flat_map(|head| {
                blocks.iter().map(move |&block| {
                    let mut brick = head.clone();
                    brick.push(block);
                    brick
                })
            })
            .collect();
    }
    out
}

/// Piece `piece` of a brick whose top `excess` index bits choose the piece.
fn cut(blocks: &[Block], excess: u32, piece: usize) -> impl Iterator<Item = Block> + '_ {
    let mut left = excess;
    blocks.iter().map(move |&Block { start, bits }| {
        let taken = bits.min(left);
        left -= taken;
        // The next `taken` bits of `piece`, counted from its top.
        let chosen = piece >> left & ((1 << taken) - 1);
        Block {
            start: start + (chosen << (bits - taken)),
            bits: bits - taken,
        }
    })
}

impl Layout {
    /// Places tensors of the given shapes into rows of `2^log_row` slots.
    ///
    /// The work and the memory are in proportion to the number of bricks and rows; the caller bounds the shapes.
    pub fn new(shapes: &[Shape], log_row: u32) -> Self {
        let mut tensors: Vec<Tensor> = shapes
            .iter()
            .map(|shape| Tensor {
                axes: shape.axes() - usize::from(shape.is_grouped()),
                shape: shape.clone(),
                bricks: Vec::new(),
                blocks: Vec::new(),
            })
            .collect();
        let mut bricks = Vec::new();
        for (tensor, shape) in shapes.iter().enumerate() {
            for (group, sizes) in shape.groups().iter().enumerate() {
                for blocks in products(sizes) {
                    let log: u32 = blocks.iter().map(|b| b.bits).sum();
                    bricks.push((log, tensor, group, blocks));
                }
            }
        }
        bricks.sort_by_key(|brick| core::cmp::Reverse(brick.0));

        let mut placed = Vec::with_capacity(bricks.len());
        let mut row_starts = Vec::new();
        let mut offset = 0usize;
        for (log, tensor, group, blocks) in bricks {
            let excess = log.saturating_sub(log_row);
            for piece in 0..1usize << excess {
                let log = log - excess;
                let (row, slot) = (offset >> log_row, offset & ((1 << log_row) - 1));
                while row_starts.len() <= row {
                    row_starts.push(placed.len());
                }
                let place = &mut tensors[tensor];
                placed.push((tensor, place.bricks.len()));
                place.bricks.push(Brick {
                    group,
                    row,
                    slot,
                    log,
                });
                place.blocks.extend(cut(&blocks, excess, piece));
                offset += 1 << log;
            }
        }
        // Two rows at least: a leaf hides its symbols only while they have 128 bits of entropy, and a row's tail gives
        // each symbol 64.
        let rows = row_starts.len().max(2);
        row_starts.resize(rows + 1, placed.len());
        Self {
            log_row,
            rows,
            tensors,
            placed,
            row_starts,
        }
    }

    /// Slots of a row are `2^log_row`.
    pub fn log_row(&self) -> u32 {
        self.log_row
    }

    /// Number of rows, at least two: a leaf over a column of them hides its symbols behind their tails, and one random
    /// element of `F` would be too little.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of tensors.
    pub fn tensors(&self) -> usize {
        self.tensors.len()
    }

    /// The shape of a tensor.
    pub fn shape(&self, tensor: usize) -> &Shape {
        &self.tensors[tensor].shape
    }

    /// Number of bricks of a tensor, large ones counted once for each row that they fill.
    pub fn bricks(&self, tensor: usize) -> usize {
        self.tensors[tensor].bricks.len()
    }

    /// The factor that all cells of a brick share: the claim's coefficient and the weight of the group.
    fn outer<'a>(&self, claim: &Functional<'a>, brick: &Brick) -> (K, &'a [AxisWeights]) {
        let grouped = self.tensors[claim.tensor].shape.is_grouped();
        match claim.weights.split_first() {
            Some((group, inner)) if grouped => (claim.coefficient * group.at(brick.group), inner),
            _ => (claim.coefficient, claim.weights),
        }
    }

    /// Adds `coefficient * L_row(rho)` to `scalars[row]` for every row that holds cells of the claim's tensor; `rho` is
    /// a point over the bits of a slot's index, lowest first.
    pub fn functional_at(&self, claim: &Functional<'_>, rho: &[K], scalars: &mut [K]) {
        let Some(tensor) = self.tensors.get(claim.tensor) else {
            return;
        };
        for (i, brick) in tensor.bricks.iter().enumerate() {
            let (mut value, weights) = self.outer(claim, brick);
            if value == K::ZERO {
                continue;
            }
            let (inside, above) = rho.split_at((brick.log as usize).min(rho.len()));
            let mut rest = inside;
            for (block, weight) in tensor.blocks(i).iter().zip(weights).rev() {
                let (point, next) = rest.split_at((block.bits as usize).min(rest.len()));
                value *= block_extension(weight, *block, point);
                rest = next;
            }
            for (j, &r) in above.iter().enumerate() {
                let bit = brick.slot >> (brick.log as usize + j) & 1;
                value *= if bit == 1 { r } else { K::ONE - r };
            }
            if let Some(scalar) = scalars.get_mut(brick.row) {
                *scalar += value;
            }
        }
    }

    /// Marks every row that carries the claim: it holds a cell all of whose listed weights are nonzero. A zero in a
    /// table says that the index takes no part (an expert that no token uses, another layer); a weight that is a product
    /// over bits counts as nonzero whatever its value, so that the marks depend on nothing but what is public.
    pub fn carries(&self, claim: &Functional<'_>, rows: &mut [bool]) {
        let Some(tensor) = self.tensors.get(claim.tensor) else {
            return;
        };
        let grouped = usize::from(tensor.shape.is_grouped());
        for (i, brick) in tensor.bricks.iter().enumerate() {
            let group = Block {
                start: brick.group,
                bits: 0,
            };
            let takes_part = core::iter::once(&group)
                .take(grouped)
                .chain(tensor.blocks(i))
                .zip(claim.weights)
                .all(|(block, weight)| match weight {
                    AxisWeights::Bits(_) => true,
                    AxisWeights::Table(_) => {
                        table_block(weight, *block).iter().any(|&w| w != K::ZERO)
                    }
                });
            if let (true, Some(row)) = (takes_part, rows.get_mut(brick.row)) {
                *row = true;
            }
        }
    }
}

/// The entries of a table inside a block.
fn table_block(weight: &AxisWeights, block: Block) -> &[K] {
    match weight {
        AxisWeights::Bits(_) => &[],
        AxisWeights::Table(table) => {
            let end = (block.start + (1 << block.bits)).min(table.len());
            table.get(block.start..end).unwrap_or(&[])
        }
    }
}

/// What the bits above a block contribute to a weight that is a product over bits.
fn above_block(pairs: &[[K; 2]], block: Block) -> K {
    if block.start.checked_shr(pairs.len() as u32).unwrap_or(0) != 0 {
        return K::ZERO;
    }
    pairs
        .iter()
        .enumerate()
        .skip(block.bits as usize)
        .map(|(j, pair)| pair[block.start >> j & 1])
        .product()
}

/// The multilinear extension, over the low bits, of the weights inside a block.
fn block_extension(weight: &AxisWeights, block: Block, point: &[K]) -> K {
    match weight {
        AxisWeights::Bits(pairs) => {
            let low = &pairs[..pairs.len().min(block.bits as usize)];
            let inside: K = low
                .iter()
                .zip(point)
                .map(|(pair, &r)| pair[0] + (pair[1] - pair[0]) * r)
                .product();
            let beyond: K = point.iter().skip(low.len()).map(|&r| K::ONE - r).product();
            inside * beyond * above_block(pairs, block)
        }
        AxisWeights::Table(_) => {
            let table = table_block(weight, block);
            if let [first] = table
                && point.is_empty()
            {
                return *first;
            }
            let eq = AxisWeights::eq(point).expand(table.len());
            table.iter().zip(eq).map(|(&t, e)| t * e).sum()
        }
    }
}

#[cfg(feature = "prove")]
mod prove {
    use super::{
        AdditiveGroup, AxisWeights, Block, F, Field, Functional, K, Layout, Run, above_block,
        table_block,
    };

    /// The weights inside a block.
    fn block_weights(weight: &AxisWeights, block: Block) -> Vec<K> {
        let n = 1usize << block.bits;
        match weight {
            AxisWeights::Bits(pairs) => {
                let low = AxisWeights::Bits(pairs[..pairs.len().min(block.bits as usize)].to_vec());
                let above = above_block(pairs, block);
                let mut out = low.expand(n);
                if above != K::ONE {
                    for x in &mut out {
                        *x *= above;
                    }
                }
                out
            }
            AxisWeights::Table(_) => {
                let mut out = table_block(weight, block).to_vec();
                out.resize(n, K::ZERO);
                out
            }
        }
    }

    /// `a[i] * b[j]` at `i * b.len() + j`.
    fn outer_product(a: &[K], b: &[K]) -> Vec<K> {
        a.iter()
            .flat_map(|&x| b.iter().map(move |&y| x * y))
            .collect()
    }

    impl Layout {
        fn brick_runs(&self, tensor: usize, brick: usize, visit: &mut impl FnMut(Run)) {
            let place = &self.tensors[tensor];
            let b = place.bricks[brick];
            let groups = place.shape.groups();
            let sizes = &groups[b.group];
            let mut cell: usize = groups[..b.group]
                .iter()
                .map(|s| s.iter().product::<usize>())
                .sum();
            // Axes from the last on that the brick covers whole belong to one run, with the axis before them.
            let blocks = place.blocks(brick);
            let mut len = 1usize;
            let mut outer = sizes.len();
            while outer > 0 {
                outer -= 1;
                len <<= blocks[outer].bits;
                if 1 << blocks[outer].bits != sizes[outer] {
                    break;
                }
            }
            let mut strides = vec![1; sizes.len()];
            for a in (1..sizes.len()).rev() {
                strides[a - 1] = strides[a] * sizes[a];
            }
            cell += blocks
                .iter()
                .zip(&strides)
                .map(|(b, s)| b.start * s)
                .sum::<usize>();
            for n in 0..(1usize << b.log) / len {
                let (mut rest, mut at) = (n, cell);
                for a in (0..outer).rev() {
                    at += (rest & ((1 << blocks[a].bits) - 1)) * strides[a];
                    rest >>= blocks[a].bits;
                }
                visit(Run {
                    tensor,
                    cell: at,
                    row: b.row,
                    slot: b.slot + n * len,
                    len,
                });
            }
        }

        /// The runs of cells in a row, by ascending slot.
        pub fn row_runs(&self, row: usize, mut visit: impl FnMut(Run)) {
            for &(tensor, brick) in &self.placed[self.row_starts[row]..self.row_starts[row + 1]] {
                self.brick_runs(tensor, brick, &mut visit);
            }
        }

        /// Copies a tensor's cells (row-major, groups one after the other) to their slots.
        ///
        /// # Panics
        /// If there are fewer cells, rows or slots than the layout has.
        pub fn scatter<T: Copy>(
            &self,
            tensor: usize,
            cells: &[T],
            convert: impl Fn(T) -> F,
            rows: &mut [Vec<F>],
        ) {
            for brick in 0..self.tensors[tensor].bricks.len() {
                self.brick_runs(tensor, brick, &mut |run| {
                    let from = &cells[run.cell..run.cell + run.len];
                    let to = &mut rows[run.row][run.slot..run.slot + run.len];
                    to.iter_mut()
                        .zip(from)
                        .for_each(|(to, &from)| *to = convert(from));
                });
            }
        }

        /// Rows of zeros, to be filled by [`Layout::scatter`].
        pub fn empty_rows(&self) -> Vec<Vec<F>> {
            vec![vec![F::ZERO; 1 << self.log_row]; self.rows]
        }

        /// The functional of one row, slot by slot: the sum of the claims' weights times their coefficients.
        pub fn functional(&self, claims: &[Functional<'_>], row: usize) -> Vec<K> {
            let mut out = vec![K::ZERO; 1 << self.log_row];
            for &(tensor, brick) in &self.placed[self.row_starts[row]..self.row_starts[row + 1]] {
                let place = self.tensors[tensor].bricks[brick];
                let slots = &mut out[place.slot..place.slot + (1 << place.log)];
                for claim in claims.iter().filter(|claim| claim.tensor == tensor) {
                    self.add_brick(claim, brick, slots);
                }
            }
            out
        }

        fn add_brick(&self, claim: &Functional<'_>, brick: usize, slots: &mut [K]) {
            let tensor = &self.tensors[claim.tensor];
            let (outer, weights) = self.outer(claim, &tensor.bricks[brick]);
            if outer == K::ZERO {
                return;
            }
            // Two factors of about equal size, so that building them costs little beside their product.
            let half = tensor.bricks[brick].log / 2;
            let (mut low, mut high) = (vec![K::ONE], vec![outer]);
            let mut low_bits = 0;
            for (block, weight) in tensor.blocks(brick).iter().zip(weights).rev() {
                let axis = block_weights(weight, *block);
                if low_bits < half {
                    low = if low_bits == 0 {
                        low_factor(axis, low[0])
                    } else {
                        outer_product(&axis, &low)
                    };
                    low_bits += block.bits;
                } else {
                    high = outer_product(&axis, &high);
                }
            }
            for (slots, &h) in slots.chunks_mut(low.len()).zip(&high) {
                if h != K::ZERO {
                    slots.iter_mut().zip(&low).for_each(|(s, &l)| *s += h * l);
                }
            }
        }
    }

    /// `factor * axis`, without a multiplication where the factor is one.
    fn low_factor(mut axis: Vec<K>, factor: K) -> Vec<K> {
        if factor != K::ONE {
            for x in &mut axis {
                *x *= factor;
            }
        }
        axis
    }
}

#[cfg(all(test, feature = "prove"))]
pub(crate) mod tests {
    use super::*;
    use crate::field::{from_i64, lift};
    use crate::transcript::Transcript;
    use proptest::prelude::*;

    pub(crate) fn random_weights(t: &mut Transcript, shape: &Shape) -> Vec<AxisWeights> {
        (0..shape.axes())
            .map(|a| {
                let n = shape.size(a);
                let bits = crate::shape::index_bits(n) as usize;
                let kind = word_of(t) % 4;
                match kind {
                    0 => AxisWeights::Table(t.challenges("table", n)),
                    1 => {
                        let mut table = t.challenges("table", n);
                        for (i, x) in table.iter_mut().enumerate() {
                            if i % 3 != 1 {
                                *x = K::ZERO;
                            }
                        }
                        AxisWeights::Table(table)
                    }
                    _ => AxisWeights::Bits(
                        t.challenges("pairs", 2 * bits)
                            .chunks(2)
                            .map(|c| [c[0], c[1]])
                            .collect(),
                    ),
                }
            })
            .collect()
    }

    fn word_of(t: &mut Transcript) -> usize {
        crate::field::word(t.challenge("pick").c0) as usize
    }

    fn shapes() -> Vec<Shape> {
        vec![
            Shape::dense(&[3, 11]),
            Shape::grouped(vec![vec![5, 3, 2], vec![1, 7, 2], vec![0, 4, 2]]),
            Shape::dense(&[]),
            Shape::dense(&[2, 4, 13, 2]),
            Shape::dense(&[1, 100]),
            Shape::grouped(vec![vec![16], vec![40]]),
        ]
    }

    fn check(shapes: &[Shape], log_row: u32, seed: u64) {
        let layout = Layout::new(shapes, log_row);
        let mut t = Transcript::new("layout");
        t.absorb("seed", &seed.to_le_bytes());
        let cells: Vec<Vec<F>> = shapes
            .iter()
            .map(|s| {
                t.challenges("cells", s.len())
                    .into_iter()
                    .map(|x| x.c0)
                    .collect()
            })
            .collect();
        let mut rows = layout.empty_rows();
        for (i, cells) in cells.iter().enumerate() {
            layout.scatter(i, cells, |x| x, &mut rows);
        }
        let filled = rows.iter().flatten().filter(|&&x| x != F::ZERO).count();
        let total: usize = shapes.iter().map(Shape::len).sum();
        assert_eq!(filled, total, "every cell has a slot of its own");
        assert_eq!(layout.rows(), total.div_ceil(1 << log_row).max(2));

        let weights: Vec<_> = shapes.iter().map(|s| random_weights(&mut t, s)).collect();
        let coefficients = t.challenges("coefficients", shapes.len());
        let claims: Vec<_> = (0..shapes.len())
            .map(|i| Functional {
                tensor: i,
                weights: &weights[i],
                coefficient: coefficients[i],
            })
            .collect();
        let rho = t.challenges("rho", log_row as usize);
        let eq = AxisWeights::eq(&rho).expand(1 << log_row);
        for (i, claim) in claims.iter().enumerate() {
            let expected = coefficients[i]
                * shapes[i].evaluate(cells[i].iter().map(|&x| lift(x)), &weights[i]);
            let mut total = K::ZERO;
            let mut scalars = vec![K::ZERO; layout.rows()];
            layout.functional_at(claim, &rho, &mut scalars);
            let mut carries = vec![false; layout.rows()];
            layout.carries(claim, &mut carries);
            for row in 0..layout.rows() {
                let dense = layout.functional(&[*claim], row);
                total += dense
                    .iter()
                    .zip(&rows[row])
                    .map(|(&w, &x)| w * lift(x))
                    .sum::<K>();
                let at: K = dense.iter().zip(&eq).map(|(&w, &e)| w * e).sum();
                assert_eq!(scalars[row], at, "tensor {i} row {row}");
                assert_eq!(carries[row], dense.iter().any(|&w| w != K::ZERO));
            }
            assert_eq!(total, expected, "tensor {i}");
        }
        let mut sum = vec![K::ZERO; layout.rows()];
        for claim in &claims {
            layout.functional_at(claim, &rho, &mut sum);
        }
        for row in 0..layout.rows() {
            let dense = layout.functional(&claims, row);
            let at: K = dense.iter().zip(&eq).map(|(&w, &e)| w * e).sum();
            assert_eq!(sum[row], at);
            let mut filled = 0;
            layout.row_runs(row, |run| {
                assert_eq!(run.row, row);
                for i in 0..run.len {
                    assert_eq!(rows[row][run.slot + i], cells[run.tensor][run.cell + i]);
                }
                filled += run.len;
            });
            assert_eq!(filled, rows[row].iter().filter(|&&x| x != F::ZERO).count());
        }
    }

    #[test]
    fn functionals_agree_with_the_definition() {
        for log_row in 0..=9 {
            check(&shapes(), log_row, 1);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn functionals_agree_for_random_shapes(
            dense in proptest::collection::vec(proptest::collection::vec(1usize..14, 0..4), 0..4),
            ragged in proptest::collection::vec((0usize..9, 1usize..20), 1..5),
            log_row in 0u32..8,
            seed in any::<u64>(),
        ) {
            let mut shapes: Vec<Shape> = dense.iter().map(|s| Shape::dense(s)).collect();
            shapes.push(Shape::grouped(ragged.iter().map(|&(a, b)| vec![a, b, 3]).collect()));
            check(&shapes, log_row, seed);
        }
    }

    #[test]
    fn bricks_are_the_binary_blocks_and_small_tables_of_bricks_are_cheap() {
        let layout = Layout::new(&[Shape::dense(&[1408, 64])], 12);
        assert_eq!(layout.rows(), 1408 * 64 / 4096);
        assert_eq!(layout.bricks(0), 16 + 4 + 2);
        let ragged: Vec<Vec<usize>> = (0..500).map(|i| vec![i % 37, 21]).collect();
        let layout = Layout::new(&vec![Shape::grouped(ragged); 4], 10);
        assert!(layout.bricks(0) > 3000);
        assert_eq!(Layout::new(&[], 4).rows(), 2);
    }

    #[test]
    fn weights_that_do_not_reach_the_axis_are_zero_beyond() {
        let shape = Shape::dense(&[12]);
        let layout = Layout::new(core::slice::from_ref(&shape), 4);
        let ones: Vec<K> = (1..=12).map(|i| lift(from_i64(i))).collect();
        for weights in [
            AxisWeights::sum(2),
            AxisWeights::Table(vec![K::ONE; 5]),
            AxisWeights::unit(9),
        ] {
            let claim = Functional {
                tensor: 0,
                weights: core::slice::from_ref(&weights),
                coefficient: K::ONE,
            };
            let dense = layout.functional(&[claim], 0);
            let value: K = dense.iter().zip(&ones).map(|(&w, &x)| w * x).sum();
            assert_eq!(
                value,
                shape.evaluate(ones.clone(), core::slice::from_ref(&weights))
            );
            let rho = Transcript::new("rho").challenges("rho", 4);
            let mut scalars = vec![K::ZERO; 2];
            layout.functional_at(&claim, &rho, &mut scalars);
            let eq = AxisWeights::eq(&rho).expand(16);
            assert_eq!(
                scalars[0],
                dense.iter().zip(&eq).map(|(&w, &e)| w * e).sum::<K>()
            );
        }
    }
}
