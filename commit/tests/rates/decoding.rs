//! Reed-Solomon codes over small fields, with a decoder (E. Berlekamp, L. Welch, 1986).

use crate::small::{Dice, Field};

/// Polynomials with `k` coefficients, as their values at some points.
#[derive(Debug, Clone)]
pub struct Code {
    pub field: Field,
    pub points: Vec<u32>,
    pub k: usize,
}

impl Code {
    /// A code of length `n` over the field of order `q`, at the points `1..=n`.
    pub fn new(q: u32, n: u32, k: usize) -> Self {
        assert!(n < q);
        Self {
            field: Field(q),
            points: (1..=n).collect(),
            k,
        }
    }
    pub fn n(&self) -> usize {
        self.points.len()
    }
    /// The largest integer below half of `n - k`: the radius of all of the calculator's terms.
    pub fn radius(&self) -> usize {
        (self.n() - self.k - 1) / 2
    }
    pub fn encode(&self, coefficients: &[u32]) -> Vec<u32> {
        let at = |&x: &u32| self.field.horner(coefficients, x);
        self.points.iter().map(at).collect()
    }
    pub fn random_codeword(&self, dice: &mut Dice) -> Vec<u32> {
        let coefficients: Vec<u32> = (0..self.k).map(|_| dice.below(self.field.0)).collect();
        self.encode(&coefficients)
    }

    /// The number of positions at which a word differs from a codeword, if that is at most [`Code::radius`] for some.
    pub fn distance(&self, word: &[u32]) -> Option<usize> {
        let (f, e) = (self.field, self.radius());
        // An error locator E, monic of degree e, and N = P E of degree below k + e: N(x) - w E(x) = 0 everywhere.
        let rows = self.points.iter().zip(word).map(|(&x, &w)| {
            let powers = core::iter::successors(Some(1), |&p| Some(f.mul(p, x)));
            let powers: Vec<u32> = powers.take(self.k + e).collect();
            let locator = powers.iter().take(e).map(|&p| f.neg(f.mul(w, p)));
            let mut row: Vec<u32> = powers.iter().copied().chain(locator).collect();
            let leading = core::iter::repeat_n(x, e).fold(1, |p, x| f.mul(p, x));
            row.push(f.mul(w, leading));
            row
        });
        let solution = f.solve(rows.collect(), self.k + 2 * e)?;
        let (numerator, locator) = solution.split_at(self.k + e);
        let polynomial = self.divide(numerator.to_vec(), &[locator, &[1]].concat())?;
        let decoded = self.encode(&polynomial);
        let differing = decoded.iter().zip(word).filter(|(a, b)| a != b).count();
        (differing <= e).then_some(differing)
    }

    /// The quotient by a monic polynomial, if there is no remainder.
    fn divide(&self, mut numerator: Vec<u32>, by: &[u32]) -> Option<Vec<u32>> {
        let (f, degree) = (self.field, by.len() - 1);
        let mut quotient = vec![0; numerator.len() - degree];
        for i in (0..quotient.len()).rev() {
            let c = numerator[i + degree];
            quotient[i] = c;
            for (j, &b) in by.iter().enumerate() {
                numerator[i + j] = f.sub(numerator[i + j], f.mul(c, b));
            }
        }
        numerator.iter().all(|&x| x == 0).then_some(quotient)
    }
}

/// The decoder against a search of all codewords.
#[test]
fn the_decoder_finds_the_nearest_codeword() {
    let code = Code::new(11, 8, 2);
    let words: Vec<Vec<u32>> = (0..11 * 11)
        .map(|c| code.encode(&[c % 11, c / 11]))
        .collect();
    let mut dice = Dice(1);
    let mut near = [0; 2];
    for round in 0..500 {
        let mut word = words[round % words.len()].clone();
        for at in dice.distinct(round % 5, 8) {
            word[at as usize] = dice.below(11);
        }
        let differing = |c: &Vec<u32>| c.iter().zip(&word).filter(|(a, b)| a != b).count();
        let nearest = words
            .iter()
            .map(differing)
            .min()
            .filter(|&d| d <= code.radius());
        assert_eq!(code.distance(&word), nearest);
        near[usize::from(nearest.is_some())] += 1;
    }
    assert!(near.iter().all(|&n| n > 50), "{near:?}");
}
