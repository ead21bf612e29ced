//! All lines, curves and planes of words of tiny codes.
//!
//! The theorem behind "combination of rows" says: if words have no common set of `n - e` positions on which they all
//! agree with codewords, then at most `n` points of their line are within `e` of the code, `l n` points of a curve of
//! degree `l`, and a share of `n / q` of an affine space. Whether a word is near depends on its syndrome alone, so here
//! all words are tried by trying all syndromes.

use crate::compare;
use crate::small::Field;
use zkmoe_commit::opening;
use zkmoe_commit::params::Params;
use zkmoe_commit::soundness::{Term, field_bits};

/// The syndromes of a code of length `n` and dimension `k`, as numbers in base `q`.
struct Syndromes {
    q: usize,
    /// For each syndrome the sets of `e` positions that can hold its whole error, one bit for each set.
    supports: Vec<u32>,
    digits: u32,
}

impl Syndromes {
    fn new(q: u32, n: u32, k: u32) -> Self {
        let f = Field(q);
        let (digits, e) = (n - k, (n - k - 1) / 2);
        // The dual code: powers of each point, over the product of its differences to all others.
        let columns: Vec<usize> = (0..n)
            .map(|x| {
                let others = (0..n).filter(|&y| y != x);
                let mut entry = f.inverse(others.fold(1, |p, y| f.mul(p, f.sub(x, y))));
                (0..digits).fold(0, |column, digit| {
                    let sum = column + entry as usize * (q as usize).pow(digit);
                    entry = f.mul(entry, x);
                    sum
                })
            })
            .collect();
        let mut out = Self {
            q: q as usize,
            supports: vec![0; (q as usize).pow(digits)],
            digits,
        };
        let sets = (0u32..1 << n).filter(|set| set.count_ones() == e);
        for (bit, set) in sets.enumerate() {
            let mut spanned = vec![0];
            for (x, &column) in columns
                .iter()
                .enumerate()
                .filter(|(x, _)| set >> x & 1 == 1)
            {
                debug_assert!(x < n as usize);
                let multiples = core::iter::successors(Some(0), |&s| Some(out.add(s, column)));
                let multiples: Vec<usize> = multiples.take(out.q).collect();
                spanned = spanned
                    .iter()
                    .flat_map(|&s| multiples.iter().map(move |&m| (s, m)))
                    .map(|(s, m)| out.add(s, m))
                    .collect();
            }
            for s in spanned {
                out.supports[s] |= 1 << bit;
            }
        }
        out
    }

    fn add(&self, mut a: usize, mut b: usize) -> usize {
        let (mut sum, mut unit) = (0, 1);
        for _ in 0..self.digits {
            sum += (a % self.q + b % self.q) % self.q * unit;
            (a, b, unit) = (a / self.q, b / self.q, unit * self.q);
        }
        sum
    }

    fn times(&self, s: usize, by: usize) -> usize {
        (0..by).fold(0, |sum, _| self.add(sum, s))
    }

    fn near(&self, s: usize) -> bool {
        self.supports[s] != 0
    }

    fn all(&self) -> core::ops::Range<usize> {
        0..self.supports.len()
    }

    /// Directions up to a factor: syndromes whose highest digit that is not zero is one, with the unit of that digit.
    fn directions(&self) -> Vec<(usize, usize)> {
        let units = (0..self.digits).map(|digit| self.q.pow(digit));
        units
            .flat_map(|unit| (unit..2 * unit).map(move |s| (s, unit)))
            .collect()
    }

    /// Syndromes up to multiples of a direction: those with a zero at its leading digit.
    fn without(&self, unit: usize) -> Vec<usize> {
        let q = self.q;
        self.all()
            .filter(|s| (s / unit).is_multiple_of(q))
            .collect()
    }

    /// The same up to a factor: if all words and the parameter are multiplied, the same points are near.
    fn scaled_without(&self, unit: usize) -> Vec<usize> {
        let q = self.q;
        let scaled = self.directions().into_iter().map(|(s, _)| s);
        let others = scaled.filter(|s| (s / unit).is_multiple_of(q));
        core::iter::once(0).chain(others).collect()
    }

    /// The largest number of near points on a line of words without common agreement.
    fn worst_line(&self) -> usize {
        let mut worst = 0;
        for (direction, unit) in self.directions() {
            let steps: Vec<usize> = (0..self.q).map(|z| self.times(direction, z)).collect();
            for start in self.scaled_without(unit) {
                if self.supports[start] & self.supports[direction] == 0 {
                    let near = steps.iter().filter(|&&s| self.near(self.add(start, s)));
                    worst = worst.max(near.count());
                }
            }
        }
        worst
    }

    /// As [`Syndromes::worst_line`], of curves of degree two. A shift of the parameter clears one digit.
    fn worst_curve(&self) -> usize {
        let mut worst = 0;
        for (square, unit) in self.directions() {
            for linear in self.scaled_without(unit) {
                let at =
                    |z: usize| self.add(self.times(linear, z), self.times(square, z * z % self.q));
                let steps: Vec<usize> = (0..self.q).map(at).collect();
                let common = self.supports[linear] & self.supports[square];
                for start in self.all() {
                    if self.supports[start] & common == 0 {
                        let near = steps.iter().filter(|&&s| self.near(self.add(start, s)));
                        worst = worst.max(near.count());
                    }
                }
            }
        }
        worst
    }

    /// As [`Syndromes::worst_line`], of planes; out of `q^2` points.
    fn worst_plane(&self) -> usize {
        let mut worst = 0;
        for (first, unit) in self.directions() {
            for second in self.without(unit) {
                let points = (0..self.q * self.q).map(|z| {
                    self.add(
                        self.times(first, z % self.q),
                        self.times(second, z / self.q),
                    )
                });
                let points: Vec<usize> = points.collect();
                let common = self.supports[first] & self.supports[second];
                for start in self.without(unit) {
                    if self.supports[start] & common == 0 {
                        let near = points.iter().filter(|&&s| self.near(self.add(start, s)));
                        worst = worst.max(near.count());
                    }
                }
            }
        }
        worst
    }
}

/// How much of the bound of a term of the opening there is for each symbol of the code.
fn per_symbol(name: &str) -> f64 {
    let params = Params::choose(1 << 16, 1);
    let terms = opening::soundness(&params, 2, 1);
    let found: Vec<&Term> = terms.iter().filter(|t| t.name == name).collect();
    let [term] = found[..] else {
        panic!("no term `{name}`");
    };
    let numerator = field_bits() + f64::from(params.grinding.combination) - term.bits;
    (numerator - f64::from(params.log_code)).exp2()
}

#[test]
fn no_line_of_words_has_more_near_points_than_the_code_has_symbols() {
    let each = per_symbol("opening: combination of rows by b");
    assert!((each - 1.0).abs() < 1e-6);
    // Radii of one and of two errors. The known cheat has e + 1 wrong positions, each of them right at one point.
    for (q, n, k, e) in [(13, 8, 4, 1), (13, 6, 2, 1), (29, 4, 1, 1), (7, 6, 1, 2)] {
        let worst = Syndromes::new(q, n, k).worst_line();
        assert!(worst > e, "[{n}, {k}] over {q}: the known cheat");
        let (rate, bound) = (
            worst as f64 / f64::from(q),
            each * f64::from(n) / f64::from(q),
        );
        compare(
            &format!("lines, [{n}, {k}] over F_{q}, {worst} points"),
            rate,
            bound,
            4.0,
        );
    }
}

#[test]
fn no_curve_of_words_has_more_near_points_than_degree_times_symbols() {
    let each = per_symbol("opening: combination by e");
    assert!((each - 2.0).abs() < 1e-6);
    let (q, n, k) = (11, 4, 1);
    let worst = Syndromes::new(q, n, k).worst_curve();
    let (rate, bound) = (
        worst as f64 / f64::from(q),
        each * f64::from(n) / f64::from(q),
    );
    compare(
        &format!("curves, [{n}, {k}] over F_{q}, {worst} points"),
        rate,
        bound,
        2.0,
    );
}

#[test]
fn no_plane_of_words_has_a_larger_share_of_near_points_than_a_line_may_have() {
    let (q, n, k) = (5, 4, 1);
    let worst = Syndromes::new(q, n, k).worst_plane();
    let (rate, bound) = (worst as f64 / f64::from(q * q), f64::from(n) / f64::from(q));
    compare(
        &format!("planes, [{n}, {k}] over F_{q}, {worst} points"),
        rate,
        bound,
        3.0,
    );
}
