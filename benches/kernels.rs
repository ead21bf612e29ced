//! The hot loops of a proof, beside what the machine could do at best.
//!
//! Each loop is compared, in the same process, with the bandwidth of memory or with a plain way to do the same work, so
//! that a figure says something on another machine too. All times are the best of several runs, on one thread and on
//! all.

use std::hint::black_box;
use std::time::Instant;

use rayon::prelude::*;
use zkmoe::output::Table;
use zkmoe_commit::channel::{ProverChannel, VerifierChannel};
use zkmoe_commit::field::{F, K, MODULUS, from_i64, lift};
use zkmoe_commit::merkle::Tree;
use zkmoe_commit::rows::{RowCode, RowCommitter, tail};
use zkmoe_commit::shape::Shape;
use zkmoe_commit::transcript::Transcript;
use zkmoe_kernels::ntt::{Ntt, root_of_unity};
use zkmoe_prover::gkr::{self, Numerators};

/// Words of an array that no cache holds.
const LARGE: usize = 1 << 26;

/// The shortest of `runs` runs, in nanoseconds.
fn best<T>(runs: usize, mut run: impl FnMut() -> T) -> f64 {
    (0..runs)
        .map(|_| {
            let start = Instant::now();
            black_box(run());
            start.elapsed().as_secs_f64() * 1e9
        })
        .fold(f64::INFINITY, f64::min)
}

/// The same work on one thread and on all.
fn on_one_and_all(run: impl Fn() -> f64 + Sync) -> [f64; 2] {
    [1, 0].map(|threads| {
        rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .map_or(f64::NAN, |pool| pool.install(&run))
    })
}

fn main() {
    let mut rows = vec![
        ["", "one thread", "all threads", "beside"]
            .map(str::to_owned)
            .to_vec(),
    ];
    let mut row = |name: &str, [one, all]: [f64; 2], beside: String| {
        // What was not measured is no number.
        let cell = |x: f64| {
            if x.is_nan() {
                String::new()
            } else {
                format!("{x:.2} ns")
            }
        };
        rows.push(vec![name.to_owned(), cell(one), cell(all), beside]);
    };

    // A word that is read and written, from memory and back.
    let copy = on_one_and_all(copy);
    let gigabytes = |ns: f64| 16.0 / ns;
    row(
        "copy a word in memory",
        copy,
        format!(
            "{:.1} and {:.1} GB/s",
            gigabytes(copy[0]),
            gigabytes(copy[1])
        ),
    );
    for log in [12, 16, 18, 20, 22] {
        let [one, _] = on_one_and_all(|| transform(log));
        let all = on_one_and_all(|| transforms(log))[1];
        row(
            &format!("transform of 2^{log}, per element"),
            [one, all],
            format!("{:.1} copies of a word", one / copy[0]),
        );
        if log == 16 {
            let plain = plain_transform_time(log);
            row(
                "  the textbook's loop",
                [plain, f64::NAN],
                format!("x {:.1} of ours", plain / one),
            );
        }
    }

    let long = on_one_and_all(long_hash);
    row(
        "BLAKE3 of one long message, per 64 bytes",
        long,
        String::new(),
    );
    let single = on_one_and_all(single_hashes);
    row("BLAKE3, one call for each 64 bytes", single, String::new());
    let nodes = on_one_and_all(tree);
    row(
        "Merkle tree, per leaf",
        nodes,
        format!("x {:.2} of one long message", nodes[0] / long[0]),
    );
    let symbols = on_one_and_all(commit_rows);
    row(
        "commit to rows, per symbol of the code",
        symbols,
        "a transform, and a quarter of a hash".to_owned(),
    );

    let product = on_one_and_all(products);
    row("product in K", product, String::new());
    for log in [14, 18, 20] {
        let cell = on_one_and_all(|| fractions(log));
        row(
            &format!("LogUp-GKR, 2 columns of 2^{log}, per cell"),
            cell,
            format!("{:.1} products in K", cell[0] / product[0]),
        );
    }
    print!("{}", Table(rows));
}

fn copy() -> f64 {
    const PART: usize = 1 << 16;
    let from = vec![1u64; LARGE];
    let mut to = vec![2u64; LARGE];
    let time = best(5, || {
        to.par_chunks_mut(PART)
            .zip(from.par_chunks(PART))
            .for_each(|(to, from)| to.copy_from_slice(from));
    });
    black_box(&to);
    time / LARGE as f64
}

/// Canonical words that look random.
fn words(n: usize) -> Vec<u64> {
    (0..n as u64)
        .map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % MODULUS)
        .collect()
}

fn transform(log: u32) -> f64 {
    let plan = Ntt::new(log);
    let mut values = words(1 << log);
    best(5, || plan.forward(&mut values)) / (1u64 << log) as f64
}

/// One transform for each thread at a time, as rows are encoded.
fn transforms(log: u32) -> f64 {
    let plan = Ntt::new(log);
    let threads = rayon::current_num_threads();
    let mut many: Vec<Vec<u64>> = (0..threads).map(|_| words(1 << log)).collect();
    let time = best(5, || {
        many.par_iter_mut().for_each(|values| plan.forward(values));
    });
    time / (threads << log) as f64
}

fn times(a: u64, b: u64) -> u64 {
    (u128::from(a) * u128::from(b) % u128::from(MODULUS)) as u64
}

/// Radix 2 in place, as every textbook has it.
fn plain_transform(values: &mut [u64]) {
    let n = values.len();
    let bits = n.ilog2();
    for i in 0..n {
        let j = i.reverse_bits() >> (usize::BITS - bits);
        if i < j {
            values.swap(i, j);
        }
    }
    for level in 1..=bits {
        let step = root_of_unity(level);
        for block in values.chunks_exact_mut(1 << level) {
            let (low, high) = block.split_at_mut(1 << (level - 1));
            let mut w = 1;
            for (a, b) in low.iter_mut().zip(high) {
                let t = times(*b, w);
                let sum = u128::from(*a) + u128::from(t);
                let difference = u128::from(*a) + u128::from(MODULUS - t);
                *a = (sum % u128::from(MODULUS)) as u64;
                *b = (difference % u128::from(MODULUS)) as u64;
                w = times(w, step);
            }
        }
    }
}

fn plain_transform_time(log: u32) -> f64 {
    let start = words(1 << log);
    let (mut plain, mut ours) = (start.clone(), start);
    plain_transform(&mut plain);
    Ntt::new(log).forward(&mut ours);
    assert!(plain == ours, "both transforms agree");
    best(3, || plain_transform(&mut plain)) / (1u64 << log) as f64
}

fn long_hash() -> f64 {
    let message = vec![7u8; 1 << 24];
    let threads = rayon::current_num_threads();
    let part = message.len() / threads;
    let time = best(5, || {
        message.par_chunks(part).for_each(|part| {
            black_box(blake3::hash(part));
        });
    });
    time / (message.len() / 64) as f64
}

fn single_hashes() -> f64 {
    let message = vec![7u8; 1 << 22];
    let time = best(5, || {
        message
            .par_chunks(64)
            .with_min_len(1 << 10)
            .for_each(|block| {
                black_box(blake3::hash(block));
            });
    });
    time / (message.len() / 64) as f64
}

fn tree() -> f64 {
    let leaves = vec![[5u8; 32]; 1 << 18];
    let time = best(5, || Tree::new(leaves.clone()).root());
    time / leaves.len() as f64
}

/// Encoding and hashing of eight rows with the parameters of a small model.
fn commit_rows() -> f64 {
    const ROWS: usize = 8;
    let (log_row, log_code) = (16, 18);
    let code = RowCode::new(log_row, log_code);
    let rows: Vec<(Vec<F>, Vec<F>)> = (0..ROWS as u64)
        .map(|n| (tail(&[1; 32], n, 1 << log_row), tail(&[2; 32], n, 1 << 13)))
        .collect();
    let time = best(5, || {
        let mut committer = RowCommitter::new(&code, ROWS);
        committer.push(&rows);
        committer
    });
    time / (ROWS << log_code) as f64
}

fn products() -> f64 {
    let n = 1 << 16;
    let values = Transcript::new("bench").challenges("x", n);
    let time = best(5, || {
        values
            .par_chunks(1 << 12)
            .map(|part| {
                part.iter()
                    .zip(part.iter().rev())
                    .map(|(a, b)| *a * b)
                    .sum()
            })
            .reduce_with(|a: K, b| a + b)
    });
    time / n as f64
}

/// Two columns whose fractions cancel, `1/q` and `-1/q`.
fn fractions(log: u32) -> f64 {
    let n = 1usize << log;
    let shapes = [Shape::dense(&[n]), Shape::dense(&[n])];
    let denominators = Transcript::new("bench").challenges("q", n);
    let leaves = |c: usize| {
        let sign = lift(from_i64(if c == 0 { 1 } else { -1 }));
        (Numerators::Constant(sign), denominators.clone())
    };
    let mut proof = Vec::new();
    let time = best(3, || {
        let mut channel = ProverChannel::new("bench", b"");
        // No secret is at stake here.
        channel.set_pads(vec![K::from(0u64); 1 << 12]);
        gkr::prove(&mut channel, &shapes, &leaves);
        proof = channel.finish();
    });
    let mut channel = VerifierChannel::new("bench", b"", &proof);
    assert!(
        zkmoe_verifier::gkr::verify(&mut channel, &shapes).is_ok()
            && channel.take_system().violated(&[]).is_empty(),
        "the proof is accepted"
    );
    time / (2 * n) as f64
}
