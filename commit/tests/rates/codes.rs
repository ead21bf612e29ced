//! Combinations of rows as an opening makes them, over small fields.

use crate::compare;
use crate::decoding::Code;
use crate::small::Dice;

/// Errors at `e + 1` positions, for each of some rows: what the words of the rows are beside codewords.
struct Errors {
    positions: Vec<u32>,
    /// One list for each row, one entry for each position.
    rows: Vec<Vec<u32>>,
}

/// Rows with these errors, each beside another codeword.
fn words(code: &Code, errors: &Errors, dice: &mut Dice) -> Vec<Vec<u32>> {
    let row = |values: &Vec<u32>| {
        let mut word = code.random_codeword(dice);
        for (&at, &error) in errors.positions.iter().zip(values) {
            word[at as usize] = code.field.add(word[at as usize], error);
        }
        word
    };
    errors.rows.iter().map(row).collect()
}

/// `sum_i coefficients_i words_i`.
fn combine(code: &Code, words: &[Vec<u32>], coefficients: &[u32]) -> Vec<u32> {
    let f = code.field;
    (0..code.n())
        .map(|j| {
            let products = words.iter().zip(coefficients).map(|(w, &c)| f.mul(w[j], c));
            products.fold(0, |sum, x| f.add(sum, x))
        })
        .collect()
}

/// A field of 16 bits less two, and a code with a quarter of a rate: data, then a tail, as rows have.
#[test]
fn a_line_over_a_larger_field_is_near_where_its_errors_vanish_and_nowhere_else() {
    let code = Code::new(12289, 16, 4);
    let e = code.radius();
    assert_eq!(e, 5);
    let mut dice = Dice(2);
    let f = code.field;
    let zeros = dice.distinct(e + 1, f.0);
    let ones: Vec<u32> = zeros.iter().map(|_| 1).collect();
    // The error at the i-th wrong position is z - zero_i.
    let errors = Errors {
        positions: dice.distinct(e + 1, 16),
        rows: vec![zeros.iter().map(|&z| f.neg(z)).collect(), ones],
    };
    let words = words(&code, &errors, &mut dice);
    let near: Vec<u32> = (0..f.0)
        .filter(|&z| code.distance(&combine(&code, &words, &[1, z])).is_some())
        .collect();
    let mut expected = zeros;
    expected.sort_unstable();
    assert_eq!(near, expected);
    let (rate, bound) = (near.len() as f64 / f64::from(f.0), 16.0 / f64::from(f.0));
    compare("line, [16, 4] over F_12289", rate, bound, 3.0);
}

/// `V = sum_k eq(b, k) row_k` over all `b`: four rows, so two variables and a bound of `2 n / q`.
#[test]
fn rows_combined_by_b_are_near_as_often_as_the_term_says_at_most() {
    let code = Code::new(97, 8, 2);
    let (f, e) = (code.field, code.radius());
    let mut dice = Dice(3);
    let mut most = 0;
    for trial in 0..8 {
        let lucky: Vec<[u32; 2]> = (0..=e).map(|i| [i as u32 + 2, 50 + i as u32]).collect();
        // At the i-th wrong position the error is (b0 - s)(b1 - t), which is multilinear, or any other.
        let corners = |[s, t]: [u32; 2]| {
            [0u32, 1, 2, 3].map(|k| {
                if trial == 0 {
                    f.mul(f.sub(k & 1, s), f.sub(k >> 1, t))
                } else {
                    dice.below(f.0)
                }
            })
        };
        let corners: Vec<[u32; 4]> = lucky.into_iter().map(corners).collect();
        let errors = Errors {
            positions: dice.distinct(e + 1, 8),
            rows: (0..4)
                .map(|k| corners.iter().map(|c| c[k]).collect())
                .collect(),
        };
        let words = words(&code, &errors, &mut dice);
        let near = (0..f.0 * f.0)
            .filter(|b| {
                let (b0, b1) = (b % f.0, b / f.0);
                let (n0, n1) = (f.sub(1, b0), f.sub(1, b1));
                let eq = [f.mul(n0, n1), f.mul(b0, n1), f.mul(n0, b1), f.mul(b0, b1)];
                code.distance(&combine(&code, &words, &eq)).is_some()
            })
            .count();
        most = most.max(near);
    }
    let all = f64::from(f.0 * f.0);
    compare(
        "four rows by b, [8, 2] over F_97",
        f64::from(most as u32) / all,
        2.0 * 8.0 / f64::from(f.0),
        3.0,
    );
}

/// `G = mask + e U + e^2 V` over all `e`, where all three words are wrong at the same positions.
#[test]
fn mask_and_combined_rows_are_near_as_often_as_the_term_says_at_most() {
    let code = Code::new(12289, 16, 4);
    let (f, e) = (code.field, code.radius());
    let mut dice = Dice(4);
    let zeros = dice.distinct(2 * (e + 1), f.0);
    // The error at the i-th wrong position is (x - s_i)(x - t_i).
    let pairs = || zeros.chunks_exact(2).map(|c| (c[0], c[1]));
    let errors = Errors {
        positions: dice.distinct(e + 1, 16),
        rows: vec![
            pairs().map(|(s, t)| f.mul(s, t)).collect(),
            pairs().map(|(s, t)| f.neg(f.add(s, t))).collect(),
            pairs().map(|_| 1).collect(),
        ],
    };
    let words = words(&code, &errors, &mut dice);
    let near = (0..f.0)
        .filter(|&x| {
            code.distance(&combine(&code, &words, &[1, x, f.mul(x, x)]))
                .is_some()
        })
        .count();
    assert_eq!(near, 2 * (e + 1));
    let q = f64::from(f.0);
    compare(
        "mask and rows by e, [16, 4] over F_12289",
        near as f64 / q,
        2.0 * 16.0 / q,
        3.0,
    );
}

/// A word is folded along its pairs of points `x`, `-x`; words that differ from a codeword in more pairs than the folded
/// code decodes stay far for all but a few challenges. Pairs are the leaves of a tree with one fold.
#[test]
fn folded_words_are_near_as_often_as_the_term_says_at_most() {
    const Q: u32 = 97;
    // 28 has order 32 modulo 97; the coset of 5 is closed under negation.
    let base = Code::new(Q, 1, 1);
    let f = base.field;
    let points: Vec<u32> = core::iter::successors(Some(5), |&x| Some(f.mul(x, 28)))
        .take(32)
        .collect();
    assert_eq!(f.mul(points[31], 28), 5);
    assert!((0..16).all(|j| points[j + 16] == f.neg(points[j])));
    let code = Code {
        field: f,
        points,
        k: 8,
    };
    let folded = Code {
        field: f,
        points: code.points[..16].iter().map(|&x| f.mul(x, x)).collect(),
        k: 4,
    };
    let e = folded.radius();
    let mut dice = Dice(5);
    let mut word = code.random_codeword(&mut dice);
    let half = f.inverse(2);
    let fold = |word: &[u32], a: u32| -> Vec<u32> {
        (0..16)
            .map(|j| {
                let (u, v) = (word[j], word[j + 16]);
                let even = f.mul(f.add(u, v), half);
                let odd = f.mul(f.mul(f.sub(u, v), half), f.inverse(code.points[j]));
                f.add(f.mul(f.sub(1, a), even), f.mul(a, odd))
            })
            .collect()
    };
    // Before an error is put in, every fold is a codeword.
    assert!((0..Q).all(|a| folded.distance(&fold(&word, a)) == Some(0)));
    for (j, a) in dice
        .distinct(e + 1, 16)
        .into_iter()
        .zip(dice.distinct(e + 1, Q))
    {
        // An error in even and odd part that the fold by `a` does not see.
        let (even, odd) = (f.neg(a), f.sub(1, a));
        let shift = f.mul(code.points[j as usize], odd);
        let j = j as usize;
        word[j] = f.add(word[j], f.add(even, shift));
        word[j + 16] = f.add(word[j + 16], f.sub(even, shift));
    }
    let near = (0..Q)
        .filter(|&a| folded.distance(&fold(&word, a)).is_some())
        .count();
    assert_eq!(near, e + 1);
    compare(
        "fold of [32, 8] over F_97",
        near as f64 / f64::from(Q),
        16.0 / f64::from(Q),
        3.0,
    );
}
