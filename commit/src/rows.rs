//! The Reed-Solomon rows of a commitment and the leaves over their columns.
//!
//! What is committed: rows of `2^k` data elements, each followed by a tail of `t` random elements at the top degrees.
//! A row is the polynomial `data(X) + X^(2^k) tail(X)` and its codeword is `c[j] = row(7 w^j)` for `j < n`, `w` of order
//! `n`; the coset keeps zero and the small roots of unity out of the domain. Leaf `j` binds the symbols `c[j]` of all
//! rows in their order, as a chain: `d <- BLAKE3(d | four symbols)`, the last block padded with zeros. The chain starts
//! at a hash of the number of rows, so the padding is no ambiguity, and start, step and the inner nodes of the Merkle
//! tree above have keys of their own, so that none of them can be passed off as another.
//!
//! The chain is why a commitment streams: between two rows it holds 32 bytes for each position, and no codeword
//! outlives the step that hashes it. A single hash over each column would need all codewords at once, a tree for each
//! row a path for each row.
//!
//! The tail hides: any `t` symbols of a row are uniform and independent whatever the data is (the code of the tails
//! alone is MDS, and its factor `x^(2^k)` is never zero on the domain). An opened column shows one symbol of each row,
//! so `t` must exceed the number of positions ever opened.
//!
//! The encoding is by cosets: `x^(2^k)` is constant on `s <w'>`, `w'` of order `2^k`, so there the tail is added to the
//! lowest coefficients, times that constant, and a codeword costs `n / 2^k` transforms of size `2^k`.

use crate::field::{F, word};
use crate::merkle::Digest;

/// The element that moves the domain off the subgroup.
pub const SHIFT: u64 = 7;
/// Symbols that one step of a leaf's chain takes up.
const STEP_SYMBOLS: usize = 4;
/// Key of the value at which chains start.
const START_KEY: &[u8; 32] = b"zkmoe column chain start, v1    ";
/// Key of a step of a chain.
const STEP_KEY: &[u8; 32] = b"zkmoe column chain step, v1     ";

/// Where the chain of a leaf over `rows` symbols starts.
fn chain_start(rows: usize) -> Digest {
    *blake3::keyed_hash(START_KEY, &(rows as u64).to_le_bytes()).as_bytes()
}

/// The leaf over one column of symbols.
pub fn leaf(symbols: &[F]) -> Digest {
    symbols
        .chunks(STEP_SYMBOLS)
        .fold(chain_start(symbols.len()), |digest, step| {
            let mut block = [0; 64];
            block[..32].copy_from_slice(&digest);
            for (to, &symbol) in block[32..].chunks_exact_mut(8).zip(step) {
                to.copy_from_slice(&word(symbol).to_le_bytes());
            }
            *blake3::keyed_hash(STEP_KEY, &block).as_bytes()
        })
}

#[cfg(feature = "prove")]
pub(crate) use prove::stream;
#[cfg(feature = "prove")]
pub use prove::{RowCode, RowCommitter, RowSource, Rows, mask_row, tail};

#[cfg(feature = "prove")]
mod prove {
    use super::{Digest, F, SHIFT, STEP_KEY, STEP_SYMBOLS, chain_start, word};
    use crate::field::{from_word, root_of_unity};
    use crate::merkle::Tree;
    use ark_ff::{AdditiveGroup, Field};
    use rayon::prelude::*;
    use std::borrow::Cow;
    use zkmoe_kernels::ntt::Ntt;

    /// `n` uniform elements from a seed, by rejection of words that are not canonical. Streams of different domains and
    /// indices are independent.
    pub(crate) fn stream(seed: &[u8; 32], domain: &[u8], index: u64, n: usize) -> Vec<F> {
        let mut hasher = blake3::Hasher::new_keyed(seed);
        hasher.update(domain);
        hasher.update(&index.to_le_bytes());
        let mut xof = hasher.finalize_xof();
        let mut buffer = [0; 1024];
        let mut out = Vec::with_capacity(n);
        while out.len() < n {
            xof.fill(&mut buffer);
            let words = buffer.chunks_exact(8).map(|bytes| {
                let mut w = [0; 8];
                w.copy_from_slice(bytes);
                u64::from_le_bytes(w)
            });
            out.extend(words.filter_map(from_word).take(n - out.len()));
        }
        out
    }

    /// The tail of row `row`: `t` uniform elements.
    pub fn tail(seed: &[u8; 32], row: u64, t: usize) -> Vec<F> {
        stream(seed, b"zkmoe row tail, v1", row, t)
    }

    /// One base component of a mask row: `n` uniform elements. The seed must be fresh for every attempt at a proof.
    pub fn mask_row(seed: &[u8; 32], component: u64, n: usize) -> Vec<F> {
        stream(seed, b"zkmoe mask row, v1", component, n)
    }

    /// `1, x, .., x^(n - 1)`.
    fn powers_of(x: F, n: usize) -> Vec<F> {
        core::iter::successors(Some(F::ONE), |&p| Some(p * x))
            .take(n)
            .collect()
    }

    /// The code of all rows: from coefficients to symbols.
    pub struct RowCode {
        log_row: u32,
        log_code: u32,
        transform: Ntt,
        /// For every coset `s <w'>` the powers `1, s, .., s^(2^k - 1)`.
        powers: Vec<Vec<F>>,
        /// For every halving of [`RowCode::symbols`], longest first, the powers of `w'` below half of the length.
        twiddles: Vec<Vec<F>>,
    }

    impl RowCode {
        /// Rows of `2^log_row` data elements and codewords of `2^log_code` symbols.
        ///
        /// # Panics
        /// If the codeword is shorter than the row, or the field has no such domain.
        pub fn new(log_row: u32, log_code: u32) -> Self {
            assert!(log_row <= log_code && log_code <= 32, "a code extends");
            let root = root_of_unity(log_code);
            let powers = (0..1u64 << (log_code - log_row))
                .into_par_iter()
                .map(|coset| powers_of(F::from(SHIFT) * root.pow([coset]), 1 << log_row))
                .collect();
            let twiddles = (1..=log_row)
                .rev()
                .map(|log| powers_of(root_of_unity(log), 1 << (log - 1)))
                .collect();
            Self {
                log_row,
                log_code,
                transform: Ntt::new(log_row),
                powers,
                twiddles,
            }
        }

        /// Number of cosets, `n / 2^k`.
        fn cosets(&self) -> usize {
            self.powers.len()
        }

        /// The base-two logarithm of the number of symbols.
        pub fn log_code(&self) -> u32 {
            self.log_code
        }

        /// The base-two logarithm of the number of data elements.
        pub fn log_row(&self) -> u32 {
            self.log_row
        }

        /// Coset of position `j`, and its place there.
        fn place(&self, j: usize) -> (usize, usize) {
            (j % self.cosets(), j / self.cosets())
        }

        /// The coefficients of a polynomial that agrees with the row on one coset `s <w'>`, in `x / s`.
        ///
        /// A tail longer than the row wraps around more than once; no honest row has one.
        fn on_coset<'v>(
            &self,
            data: &'v [F],
            tail: &[F],
            coset: usize,
        ) -> impl Iterator<Item = F> + use<'v, '_> {
            let powers = &self.powers[coset];
            let next = powers.get(1).copied().unwrap_or_else(|| self.shift(coset));
            // s^(2^k)
            let wrap = powers[powers.len() - 1] * next;
            let mut factor = wrap;
            let mut added = vec![F::ZERO; tail.len().min(data.len())];
            for part in tail.chunks(data.len()) {
                added
                    .iter_mut()
                    .zip(part)
                    .for_each(|(c, &r)| *c += factor * r);
                factor *= wrap;
            }
            let added = added.into_iter().chain(core::iter::repeat(F::ZERO));
            data.iter()
                .zip(added)
                .zip(powers)
                .map(|((&c, r), &p)| (c + r) * p)
        }

        /// The symbols on one coset.
        fn encode_coset(&self, data: &[F], tail: &[F], coset: usize, out: &mut [u64]) {
            for (out, x) in out.iter_mut().zip(self.on_coset(data, tail, coset)) {
                *out = word(x);
            }
            self.transform.forward(out);
        }

        fn shift(&self, coset: usize) -> F {
            F::from(SHIFT) * root_of_unity(self.log_code).pow([coset as u64])
        }

        /// The symbols of one row at some positions.
        ///
        /// The same halvings as in a transform, but only of those halves that lead to a position: for the hundred or two
        /// positions of an opening less than half of a transform's work is left.
        pub fn symbols(&self, data: &[F], tail: &[F], positions: &[usize]) -> Vec<F> {
            let size = 1usize << self.log_row;
            let mut out = vec![F::ZERO; positions.len()];
            let mut space = vec![F::ZERO; 2 * size];
            for coset in 0..self.cosets() {
                // Where in the coset, and which symbol.
                let wanted: Vec<(usize, usize)> = positions
                    .iter()
                    .enumerate()
                    .map(|(i, &j)| (self.place(j), i))
                    .filter(|((at, _), _)| *at == coset)
                    .map(|((_, inside), i)| (inside, i))
                    .collect();
                if wanted.is_empty() {
                    continue;
                }
                let (values, scratch) = space.split_at_mut(size);
                for (value, x) in values.iter_mut().zip(self.on_coset(data, tail, coset)) {
                    *value = x;
                }
                evaluate(values, scratch, &self.twiddles, wanted, &mut out);
            }
            out
        }

        /// The whole codeword; for tests and small sizes.
        pub fn codeword(&self, data: &[F], tail: &[F]) -> Vec<F> {
            let positions: Vec<usize> = (0..1 << self.log_code).collect();
            self.symbols(data, tail, &positions)
        }
    }

    /// Writes to `out[i]` the value at `w'^j` of the polynomial with coefficients `values`, for all `(j, i)` in `wanted`.
    ///
    /// Decimation in frequency: values at even powers are those of `values[i] + values[i + half]`, values at odd powers
    /// those of `(values[i] - values[i + half]) w'^i`, both for the root of half the order.
    fn evaluate(
        values: &[F],
        scratch: &mut [F],
        twiddles: &[Vec<F>],
        wanted: Vec<(usize, usize)>,
        out: &mut [F],
    ) {
        let Some((powers, rest)) = twiddles.split_first() else {
            for (_, i) in wanted {
                out[i] = values[0];
            }
            return;
        };
        let (low, high) = values.split_at(powers.len());
        let (half, scratch) = scratch.split_at_mut(powers.len());
        let (even, odd): (Vec<_>, Vec<_>) = wanted.into_iter().partition(|(j, _)| j % 2 == 0);
        let halve = |list: Vec<(usize, usize)>| list.into_iter().map(|(j, i)| (j / 2, i)).collect();
        if !even.is_empty() {
            for ((h, &a), &b) in half.iter_mut().zip(low).zip(high) {
                *h = a + b;
            }
            evaluate(half, scratch, rest, halve(even), out);
        }
        if !odd.is_empty() {
            for (((h, &a), &b), &w) in half.iter_mut().zip(low).zip(high).zip(powers) {
                *h = (a - b) * w;
            }
            evaluate(half, scratch, rest, halve(odd), out);
        }
    }

    /// Hashes rows into the chains of all leaves, one after the other.
    pub struct RowCommitter<'a> {
        code: &'a RowCode,
        rows: usize,
        pushed: usize,
        /// The codewords of up to four rows that wait for their step, coset by coset.
        waiting: Vec<Vec<u64>>,
        /// The chains, in the same order.
        chains: Vec<Digest>,
    }

    impl<'a> RowCommitter<'a> {
        /// Starts a commitment to `rows` rows.
        pub fn new(code: &'a RowCode, rows: usize) -> Self {
            Self {
                code,
                rows,
                pushed: 0,
                waiting: Vec::new(),
                chains: vec![chain_start(rows); 1 << code.log_code],
            }
        }

        /// Adds some rows, each a pair of data and tail.
        ///
        /// # Panics
        /// If a row's data has not `2^k` elements.
        pub fn push<R: AsRef<[F]> + Sync>(&mut self, rows: &[(R, R)]) {
            let size = 1usize << self.code.log_row;
            for step in rows.chunks(STEP_SYMBOLS) {
                let mut words = vec![vec![0u64; 1 << self.code.log_code]; step.len()];
                words
                    .par_iter_mut()
                    .zip(step)
                    .flat_map(|(words, row)| {
                        words
                            .par_chunks_mut(size)
                            .enumerate()
                            .map(move |(coset, out)| (coset, out, row))
                    })
                    .for_each(|(coset, out, (data, tail))| {
                        let (data, tail) = (data.as_ref(), tail.as_ref());
                        assert_eq!(data.len(), size, "a row has 2^k data elements");
                        self.code.encode_coset(data, tail, coset, out);
                    });
                for codeword in words {
                    self.push_codeword(codeword);
                }
            }
        }

        /// Adds a word that need not be a codeword, in natural order. No honest prover has a use for it; tests of the
        /// verifier do.
        pub fn push_word(&mut self, symbols: &[F]) {
            let size = 1 << self.code.log_row;
            let mut words = vec![0; symbols.len()];
            for (j, &symbol) in symbols.iter().enumerate() {
                let (coset, inside) = self.code.place(j);
                words[coset * size + inside] = word(symbol);
            }
            self.push_codeword(words);
        }

        fn push_codeword(&mut self, words: Vec<u64>) {
            self.waiting.push(words);
            self.pushed += 1;
            if self.waiting.len() == STEP_SYMBOLS {
                self.step();
            }
        }

        /// Takes the waiting codewords into the chains.
        fn step(&mut self) {
            const CHUNK: usize = 64;
            let waiting = &self.waiting;
            self.chains
                .par_chunks_mut(CHUNK)
                .with_min_len(16)
                .enumerate()
                .for_each(|(chunk, chains)| {
                    let mut blocks = [[0; 64]; CHUNK];
                    for (i, (block, chain)) in blocks.iter_mut().zip(chains.iter()).enumerate() {
                        block[..32].copy_from_slice(chain);
                        let words = block[32..].chunks_exact_mut(8);
                        for (to, codeword) in words.zip(waiting) {
                            to.copy_from_slice(&codeword[chunk * CHUNK + i].to_le_bytes());
                        }
                    }
                    hash_blocks(STEP_KEY, &blocks[..chains.len()], chains);
                });
            self.waiting.clear();
        }

        /// The tree over the leaves.
        ///
        /// # Panics
        /// If there were more or fewer rows than announced.
        pub fn finish(mut self) -> Tree {
            assert_eq!(self.pushed, self.rows, "rows of the commitment");
            if !self.waiting.is_empty() {
                self.step();
            }
            let size = 1usize << self.code.log_row;
            let leaves = (0..self.chains.len())
                .into_par_iter()
                .map(|j| {
                    let (coset, inside) = self.code.place(j);
                    self.chains[coset * size + inside]
                })
                .collect();
            Tree::new(leaves)
        }
    }

    /// `out[i] = BLAKE3(key, blocks[i])`, several blocks at a time in the lanes of the vector unit: a third to a tenth of
    /// the time of one call for each.
    fn hash_blocks(key: &[u8; 32], blocks: &[[u8; 64]], out: &mut [Digest]) {
        use blake3::platform::{Platform, words_from_le_bytes_32};
        // The flags of a keyed hash of a single block, from the paper "BLAKE3: one function, fast everywhere", table 3.
        const CHUNK_START: u8 = 1 << 0;
        const CHUNK_END: u8 = 1 << 1;
        const ROOT: u8 = 1 << 3;
        const KEYED_HASH: u8 = 1 << 4;
        let platform = Platform::detect();
        let key = words_from_le_bytes_32(key);
        let mut inputs: Vec<&[u8; 64]> = Vec::with_capacity(blocks.len());
        inputs.extend(blocks);
        platform.hash_many(
            &inputs,
            &key,
            0,
            blake3::IncrementCounter::No,
            KEYED_HASH,
            CHUNK_START,
            CHUNK_END | ROOT,
            out.as_flattened_mut(),
        );
    }

    /// Rows as the opening reads them.
    pub trait RowSource: Sync {
        /// Number of rows.
        fn rows(&self) -> usize;
        /// The `2^k` data elements of a row.
        fn data(&self, row: usize) -> Cow<'_, [F]>;
        /// The tail of a row.
        fn tail(&self, row: usize) -> Cow<'_, [F]>;
        /// The symbols of a row at some positions.
        fn symbols(&self, code: &RowCode, row: usize, positions: &[usize]) -> Vec<F> {
            code.symbols(&self.data(row), &self.tail(row), positions)
        }
    }

    /// Rows in memory.
    #[derive(Debug, Clone, Default)]
    pub struct Rows {
        /// Data of every row.
        pub data: Vec<Vec<F>>,
        /// Tail of every row.
        pub tails: Vec<Vec<F>>,
    }

    impl Rows {
        /// Adds tails of `t` elements from a seed.
        pub fn with_tails(data: Vec<Vec<F>>, seed: &[u8; 32], t: usize) -> Self {
            let tails = (0..data.len() as u64)
                .into_par_iter()
                .map(|row| tail(seed, row, t))
                .collect();
            Self { data, tails }
        }

        /// Adds the two mask rows of a proof as the last rows: uniform in all `2^k + t_max` coefficients.
        pub fn push_masks(&mut self, data: &[u8; 32], tail: &[u8; 32], log_row: u32, t_max: usize) {
            for component in 0..2 {
                self.data.push(mask_row(data, component, 1 << log_row));
                self.tails.push(self::tail(tail, component, t_max));
            }
        }

        /// Commits to all rows.
        pub fn commit(&self, code: &RowCode) -> Tree {
            let mut committer = RowCommitter::new(code, self.data.len());
            let rows: Vec<(&[F], &[F])> = self
                .data
                .iter()
                .zip(&self.tails)
                .map(|(data, tail)| (&data[..], &tail[..]))
                .collect();
            committer.push(&rows);
            committer.finish()
        }
    }

    impl RowSource for Rows {
        fn rows(&self) -> usize {
            self.data.len()
        }
        fn data(&self, row: usize) -> Cow<'_, [F]> {
            Cow::Borrowed(&self.data[row])
        }
        fn tail(&self, row: usize) -> Cow<'_, [F]> {
            Cow::Borrowed(&self.tails[row])
        }
    }
}

#[cfg(all(test, feature = "prove"))]
mod tests {
    use super::*;
    use crate::field::{from_word, root_of_unity};
    use crate::merkle::Tree;
    use ark_ff::{AdditiveGroup, Field};

    fn slow_symbol(coefficients: &[F], log_code: u32, j: usize) -> F {
        let x = F::from(SHIFT) * root_of_unity(log_code).pow([j as u64]);
        coefficients
            .iter()
            .rev()
            .fold(F::ZERO, |acc, &c| acc * x + c)
    }

    /// The transform and the order of the domain, against a library that knows neither.
    #[test]
    fn codewords_agree_with_an_independent_transform() {
        use ark_poly::{EvaluationDomain, Radix2EvaluationDomain};
        for (log_row, log_code, t) in [(6, 8, 16), (9, 11, 200)] {
            let data = tail(&[1; 32], 0, 1 << log_row);
            let tail = tail(&[2; 32], 1, t);
            let domain = Radix2EvaluationDomain::<F>::new(1 << log_code).unwrap();
            let coset = domain.get_coset(F::from(SHIFT)).unwrap();
            let expected = coset.fft(&[&data[..], &tail[..]].concat());
            assert_eq!(
                RowCode::new(log_row, log_code).codeword(&data, &tail),
                expected
            );
        }
    }

    #[test]
    fn symbols_are_evaluations_of_the_row() {
        for (log_row, log_code, t) in [(0, 2, 1), (3, 5, 4), (4, 6, 16), (5, 8, 0), (4, 7, 40)] {
            let data = tail(&[1; 32], 0, 1 << log_row);
            let tail = tail(&[2; 32], 1, t);
            let code = RowCode::new(log_row, log_code);
            let all = [&data[..], &tail[..]].concat();
            let word = code.codeword(&data, &tail);
            for (j, &symbol) in word.iter().enumerate() {
                assert_eq!(symbol, slow_symbol(&all, log_code, j), "{log_row} {j}");
            }
            let positions = [1, 2, (1 << log_code) - 1];
            let some = code.symbols(&data, &tail, &positions);
            assert_eq!(some, positions.map(|j| word[j]));
        }
    }

    #[test]
    fn the_streamed_tree_is_the_tree_over_the_columns() {
        let code = RowCode::new(4, 6);
        for count in [2usize, 3, 4, 5, 8, 11] {
            let data = (0..count as u64).map(|r| tail(&[3; 32], r, 16)).collect();
            let rows = Rows::with_tails(data, &[4; 32], 5);
            let words: Vec<Vec<F>> = (0..count)
                .map(|r| rows.symbols(&code, r, &(0..64).collect::<Vec<_>>()))
                .collect();
            let leaves = (0..64)
                .map(|j| leaf(&words.iter().map(|w| w[j]).collect::<Vec<_>>()))
                .collect();
            let root = rows.commit(&code).root();
            assert_eq!(root, Tree::new(leaves).root(), "{count} rows");

            let mut by_word = RowCommitter::new(&code, count);
            for word in &words {
                by_word.push_word(word);
            }
            assert_eq!(by_word.finish().root(), root);
            let mut one_by_one = RowCommitter::new(&code, count);
            for (data, tail) in rows.data.iter().zip(&rows.tails) {
                one_by_one.push(&[(data, tail)]);
            }
            assert_eq!(one_by_one.finish().root(), root);
        }
    }

    #[test]
    fn leaves_separate_lengths_and_symbols() {
        let one = F::ONE;
        let zero = F::ZERO;
        let all = [
            leaf(&[]),
            leaf(&[zero]),
            leaf(&[zero, zero]),
            leaf(&[one, zero]),
            leaf(&[zero, one]),
            leaf(&[zero; 4]),
            leaf(&[zero; 5]),
        ];
        for (i, a) in all.iter().enumerate() {
            assert!(all.iter().skip(i + 1).all(|b| a != b), "{i}");
        }
    }

    #[test]
    fn tails_differ_by_row_seed_and_use() {
        let a = tail(&[0; 32], 0, 300);
        assert_eq!(a.len(), 300);
        assert_eq!(a[..20], tail(&[0; 32], 0, 20));
        assert_ne!(a, tail(&[0; 32], 1, 300));
        assert_ne!(a, tail(&[1; 32], 0, 300));
        assert_ne!(a, mask_row(&[0; 32], 0, 300));
        assert!(a.iter().all(|&x| from_word(word(x)) == Some(x)));
    }
}
