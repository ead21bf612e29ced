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

/// Where the bricks of one tensor start.
#[derive(Debug, Clone)]
struct Tensor {
    shape: Shape,
    /// Bricks, large ones counted once for each row that they fill.
    bricks: usize,
    /// The slot, counted over all rows, of the first brick of `2^log` cells, for each `log`. Those of one size lie behind
    /// one another.
    starts: Vec<usize>,
}

/// The places of all tensors of one commitment. Its size does not depend on the number of groups, bricks or rows.
#[derive(Debug, Clone)]
pub struct Layout {
    log_row: u32,
    rows: usize,
    tensors: Vec<Tensor>,
    /// The bricks by rows, for who holds rows; made when it is first asked for.
    #[cfg(feature = "prove")]
    table: std::sync::OnceLock<prove::Table>,
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

/// The first binary block of what is left of an axis of size `n` from `start` on: the largest.
fn block_from(start: usize, n: usize) -> Option<Block> {
    let bits = n.checked_sub(start)?.checked_ilog2()?;
    Some(Block { start, bits })
}

/// Visits all products of one binary block of each axis, the last axis fastest; none if an axis is empty.
fn each_product(sizes: &[usize], mut visit: impl FnMut(&[Block])) {
    let Some(mut blocks) = sizes
        .iter()
        .map(|&n| block_from(0, n))
        .collect::<Option<Vec<Block>>>()
    else {
        return;
    };
    loop {
        visit(&blocks);
        // The last axis that has a further block takes it, and those behind start again.
        let further = blocks.iter().zip(sizes).rposition(|(block, &n)| {
            let end = block.start + (1 << block.bits);
            end < n
        });
        let Some(axis) = further else {
            return;
        };
        for (a, (block, &n)) in blocks.iter_mut().zip(sizes).enumerate().skip(axis) {
            let start = if a == axis {
                block.start + (1 << block.bits)
            } else {
                0
            };
            // There is one: the axis is not empty, and goes on at `axis`.
            *block = block_from(start, n).unwrap_or(*block);
        }
    }
}

/// The base-two logarithm of the number of cells of a product of blocks.
fn log_cells(blocks: &[Block]) -> u32 {
    blocks.iter().map(|b| b.bits).sum()
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
    /// The work is in proportion to the number of bricks; the caller bounds the shapes. The memory is in proportion to the
    /// number of tensors.
    pub fn new(shapes: &[Shape], log_row: u32) -> Self {
        const LOGS: usize = usize::BITS as usize;
        let counts: Vec<[usize; LOGS]> = shapes
            .iter()
            .map(|shape| {
                let mut counts = [0; LOGS];
                shape.each_group(|_, sizes| {
                    each_product(sizes, |blocks| counts[log_cells(blocks) as usize] += 1);
                });
                counts
            })
            .collect();
        let mut tensors: Vec<Tensor> = shapes
            .iter()
            .zip(&counts)
            .map(|(shape, counts)| Tensor {
                shape: shape.clone(),
                bricks: (0..)
                    .zip(counts)
                    .map(|(log, &n)| n << u32::saturating_sub(log, log_row))
                    .sum(),
                starts: vec![0; LOGS],
            })
            .collect();
        let mut offset = 0;
        for log in (0..LOGS).rev() {
            for (tensor, counts) in tensors.iter_mut().zip(&counts) {
                tensor.starts[log] = offset;
                offset += counts[log] << log;
            }
        }
        Self {
            log_row,
            // Two rows at least: a leaf hides its symbols only while they have 128 bits of entropy, and a row's tail gives
            // each symbol 64.
            rows: offset.div_ceil(1 << log_row).max(2),
            tensors,
            #[cfg(feature = "prove")]
            table: std::sync::OnceLock::new(),
        }
    }

    /// Visits the bricks of a tensor, group by group, each with its blocks.
    fn each_brick(&self, tensor: &Tensor, mut visit: impl FnMut(Brick, &[Block])) {
        let mut next = tensor.starts.clone();
        let mut piece_blocks = Vec::new();
        tensor.shape.each_group(|group, sizes| {
            each_product(sizes, |blocks| {
                let log = log_cells(blocks);
                let excess = log.saturating_sub(self.log_row);
                let offset = &mut next[log as usize];
                for piece in 0..1usize << excess {
                    piece_blocks.clear();
                    piece_blocks.extend(cut(blocks, excess, piece));
                    let brick = Brick {
                        group,
                        row: *offset >> self.log_row,
                        slot: *offset & ((1 << self.log_row) - 1),
                        log: log - excess,
                    };
                    *offset += 1 << brick.log;
                    visit(brick, &piece_blocks);
                }
            });
        });
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
        self.tensors[tensor].bricks
    }

    /// Adds `coefficient * L_row(rho)` to `scalars[row]` for every row that holds cells of the claim's tensor; `rho` is
    /// a point over the bits of a slot's index, lowest first.
    pub fn functional_at(&self, claim: &Functional<'_>, rho: &[K], scalars: &mut [K]) {
        let Some(tensor) = self.tensors.get(claim.tensor) else {
            return;
        };
        // Tables of parts are held while their claim is looked at and no longer.
        let listed: Vec<_> = claim.weights.iter().map(AxisWeights::listed).collect();
        let (group, inner) =
            listed.split_at(usize::from(tensor.shape.is_grouped()).min(listed.len()));
        self.each_brick(tensor, |brick, blocks| {
            let mut value = claim.coefficient;
            if let Some(weight) = group.first() {
                value *= weight.at(brick.group);
            }
            if value == K::ZERO {
                return;
            }
            let (inside, above) = rho.split_at((brick.log as usize).min(rho.len()));
            let mut rest = inside;
            for (block, weight) in blocks.iter().zip(inner).rev() {
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
        });
    }

    /// Marks every row that carries the claim: it holds a cell all of whose listed weights are nonzero. A zero in a
    /// table says that the index takes no part (an expert that no token uses, another layer), and so does an index outside
    /// of a part; a weight that is a product over bits counts as nonzero whatever its value, so that the marks depend on
    /// nothing but what is public.
    pub fn carries(&self, claim: &Functional<'_>, rows: &mut [bool]) {
        let Some(tensor) = self.tensors.get(claim.tensor) else {
            return;
        };
        let grouped = usize::from(tensor.shape.is_grouped());
        self.each_brick(tensor, |brick, blocks| {
            let group = Block {
                start: brick.group,
                bits: 0,
            };
            let takes_part = core::iter::once(&group)
                .take(grouped)
                .chain(blocks)
                .zip(claim.weights)
                .all(|(block, weight)| match weight {
                    AxisWeights::Bits(_) => true,
                    AxisWeights::Table(_) => {
                        table_block(weight, *block).iter().any(|&w| w != K::ZERO)
                    }
                    AxisWeights::Part { start, len, .. } => {
                        let end = block.start + (1 << block.bits);
                        *len > 0 && block.start < start + len && *start < end
                    }
                });
            if let (true, Some(row)) = (takes_part, rows.get_mut(brick.row)) {
                *row = true;
            }
        });
    }
}

/// The entries of a table inside a block.
fn table_block(weight: &AxisWeights, block: Block) -> &[K] {
    match weight {
        AxisWeights::Bits(_) | AxisWeights::Part { .. } => &[],
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
        AxisWeights::Part { .. } => block_extension(&weight.listed(), block, point),
    }
}

#[cfg(feature = "prove")]
mod prove {
    use super::{
        AdditiveGroup, AxisWeights, Block, Brick, F, Field, Functional, K, Layout, Run, Tensor,
        above_block, table_block,
    };

    /// All bricks in the order of their places.
    #[derive(Debug, Clone)]
    pub(super) struct Table {
        placed: Vec<Placed>,
        /// The bricks of row `r` are `placed[row_starts[r]..row_starts[r + 1]]`.
        row_starts: Vec<usize>,
        /// The blocks of all bricks.
        blocks: Vec<Block>,
        /// For each tensor its groups.
        groups: Vec<Vec<Group>>,
    }

    /// A brick, its tensor, and where its blocks start.
    #[derive(Debug, Clone, Copy)]
    struct Placed {
        tensor: usize,
        brick: Brick,
        blocks: usize,
    }

    /// The sizes of a group and its first cell.
    #[derive(Debug, Clone)]
    struct Group {
        cell: usize,
        sizes: Vec<usize>,
    }

    impl Group {
        fn all(tensor: &Tensor) -> Vec<Self> {
            let mut groups = Vec::new();
            let mut cell = 0;
            tensor.shape.each_group(|_, sizes| {
                let sizes = sizes.to_vec();
                let cells: usize = sizes.iter().product();
                groups.push(Self { cell, sizes });
                cell += cells;
            });
            groups
        }

        /// The runs of cells of a brick in this group.
        fn runs(&self, tensor: usize, brick: Brick, blocks: &[Block], visit: &mut impl FnMut(Run)) {
            let Self { cell, sizes } = self;
            // Axes from the last on that the brick covers whole belong to one run, with the axis before them.
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
            let inside = blocks.iter().zip(&strides).map(|(b, s)| b.start * s);
            let first = cell + inside.sum::<usize>();
            for n in 0..(1usize << brick.log) / len {
                let (mut rest, mut at) = (n, first);
                for a in (0..outer).rev() {
                    at += (rest & ((1 << blocks[a].bits) - 1)) * strides[a];
                    rest >>= blocks[a].bits;
                }
                visit(Run {
                    tensor,
                    cell: at,
                    row: brick.row,
                    slot: brick.slot + n * len,
                    len,
                });
            }
        }
    }

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
            AxisWeights::Part { .. } => block_weights(&weight.listed(), block),
        }
    }

    /// `a[i] * b[j]` at `i * b.len() + j`.
    fn outer_product(a: &[K], b: &[K]) -> Vec<K> {
        a.iter()
            .flat_map(|&x| b.iter().map(move |&y| x * y))
            .collect()
    }

    impl Layout {
        fn table(&self) -> &Table {
            self.table.get_or_init(|| {
                let (mut placed, mut all) = (Vec::new(), Vec::new());
                for (tensor, place) in self.tensors.iter().enumerate() {
                    self.each_brick(place, |brick, blocks| {
                        placed.push(Placed {
                            tensor,
                            brick,
                            blocks: all.len(),
                        });
                        all.extend_from_slice(blocks);
                    });
                }
                placed.sort_unstable_by_key(|p| (p.brick.row, p.brick.slot));
                let mut row_starts = vec![0; self.rows + 1];
                for p in &placed {
                    row_starts[p.brick.row + 1] += 1;
                }
                for row in 0..self.rows {
                    row_starts[row + 1] += row_starts[row];
                }
                Table {
                    placed,
                    row_starts,
                    blocks: all,
                    groups: self.tensors.iter().map(Group::all).collect(),
                }
            })
        }

        /// The bricks of a row with their blocks, by ascending slot.
        fn bricks_of_row(&self, row: usize) -> impl Iterator<Item = (usize, Brick, &[Block])> {
            let table = self.table();
            let placed = &table.placed[table.row_starts[row]..table.row_starts[row + 1]];
            placed.iter().map(move |p| {
                let axes = table.groups[p.tensor][p.brick.group].sizes.len();
                let blocks = &table.blocks[p.blocks..p.blocks + axes];
                (p.tensor, p.brick, blocks)
            })
        }

        /// The runs of cells in a row, by ascending slot.
        pub fn row_runs(&self, row: usize, mut visit: impl FnMut(Run)) {
            let groups = &self.table().groups;
            for (tensor, brick, blocks) in self.bricks_of_row(row) {
                groups[tensor][brick.group].runs(tensor, brick, blocks, &mut visit);
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
            let groups = Group::all(&self.tensors[tensor]);
            self.each_brick(&self.tensors[tensor], |brick, blocks| {
                groups[brick.group].runs(tensor, brick, blocks, &mut |run| {
                    let from = &cells[run.cell..run.cell + run.len];
                    let to = &mut rows[run.row][run.slot..run.slot + run.len];
                    to.iter_mut()
                        .zip(from)
                        .for_each(|(to, &from)| *to = convert(from));
                });
            });
        }

        /// Rows of zeros, to be filled by [`Layout::scatter`].
        pub fn empty_rows(&self) -> Vec<Vec<F>> {
            vec![vec![F::ZERO; 1 << self.log_row]; self.rows]
        }

        /// The functional of one row, slot by slot: the sum of the claims' weights times their coefficients.
        pub fn functional(&self, claims: &[Functional<'_>], row: usize) -> Vec<K> {
            let mut out = vec![K::ZERO; 1 << self.log_row];
            for (tensor, brick, blocks) in self.bricks_of_row(row) {
                let slots = &mut out[brick.slot..brick.slot + (1 << brick.log)];
                for claim in claims.iter().filter(|claim| claim.tensor == tensor) {
                    self.add_brick(claim, brick, blocks, slots);
                }
            }
            out
        }

        fn add_brick(
            &self,
            claim: &Functional<'_>,
            brick: Brick,
            blocks: &[Block],
            slots: &mut [K],
        ) {
            let grouped = usize::from(self.tensors[claim.tensor].shape.is_grouped());
            let (group, weights) = claim.weights.split_at(grouped.min(claim.weights.len()));
            let shared = group.iter().map(|weight| weight.at(brick.group));
            let outer = claim.coefficient * shared.product::<K>();
            if outer == K::ZERO {
                return;
            }
            // Two factors of about equal size, so that building them costs little beside their product.
            let half = brick.log / 2;
            let (mut low, mut high) = (vec![K::ONE], vec![outer]);
            let mut low_bits = 0;
            for (block, weight) in blocks.iter().zip(weights).rev() {
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
                let kind = word_of(t) % 5;
                match kind {
                    2 => {
                        // Any part, also one that leaves the axis or has no index.
                        let start = word_of(t) % (n + 1);
                        let len = word_of(t) % (n + 2);
                        let bits = crate::shape::index_bits(len) as usize;
                        let pairs = t.challenges("pairs", 2 * bits);
                        let pairs = pairs.chunks(2).map(|c| [c[0], c[1]]).collect();
                        AxisWeights::Part { start, len, pairs }
                    }
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

    /// Bricks as they are defined: listed, sorted by descending size, and placed one after the other.
    #[test]
    fn bricks_lie_where_sorting_puts_them() {
        for log_row in [0, 3, 5, 20] {
            let shapes = shapes();
            let layout = Layout::new(&shapes, log_row);
            let mut listed: Vec<(usize, usize, Vec<Block>)> = Vec::new();
            for (tensor, shape) in shapes.iter().enumerate() {
                shape.each_group(|group, sizes| {
                    let mut bricks = vec![Vec::new()];
                    for &n in sizes {
                        let bits = (0..usize::BITS).rev().filter(|b| n >> b & 1 == 1);
                        let blocks: Vec<Block> = bits
                            .map(|bits| {
                                let start = n >> bits >> 1 << bits << 1;
                                Block { start, bits }
                            })
                            .collect();
                        let longer = |head: &Vec<Block>| {
                            let head = head.clone();
                            let with = |&b: &Block| [&head[..], &[b]].concat();
                            blocks.iter().map(with).collect::<Vec<_>>()
                        };
                        bricks = bricks.iter().flat_map(longer).collect();
                    }
                    listed.extend(bricks.into_iter().map(|blocks| (tensor, group, blocks)));
                });
            }
            listed.sort_by_key(|(_, _, blocks)| core::cmp::Reverse(log_cells(blocks)));
            let mut offset = 0;
            let expected: Vec<Vec<(usize, usize, usize)>> = listed
                .iter()
                .map(|(tensor, group, blocks)| {
                    let start = offset;
                    offset += 1 << log_cells(blocks);
                    (start..offset)
                        .step_by(1 << log_cells(blocks).min(log_row))
                        .map(|at| (*tensor, *group, at))
                        .collect()
                })
                .collect();
            let mut found = Vec::new();
            for tensor in 0..layout.tensors() {
                let before = found.len();
                layout.each_brick(&layout.tensors[tensor], |brick, _| {
                    found.push((tensor, brick.group, (brick.row << log_row) + brick.slot));
                });
                assert_eq!(found.len() - before, layout.bricks(tensor));
            }
            let mut expected = expected.concat();
            expected.sort_unstable();
            found.sort_unstable();
            assert_eq!(found, expected, "rows of 2^{log_row}");
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
