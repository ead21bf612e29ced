//! Prime fields whose order is known at run time only, and what is needed of linear algebra.

/// The integers modulo a prime below 2^31.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field(pub u32);

impl Field {
    pub fn add(self, a: u32, b: u32) -> u32 {
        (a + b) % self.0
    }
    pub fn neg(self, a: u32) -> u32 {
        (self.0 - a) % self.0
    }
    pub fn sub(self, a: u32, b: u32) -> u32 {
        self.add(a, self.neg(b))
    }
    pub fn mul(self, a: u32, b: u32) -> u32 {
        (u64::from(a) * u64::from(b) % u64::from(self.0)) as u32
    }
    /// The inverse by Fermat's theorem; zero has none and gives zero.
    pub fn inverse(self, a: u32) -> u32 {
        let (mut base, mut exponent, mut out) = (a, self.0 - 2, 1);
        while exponent > 0 {
            if exponent & 1 == 1 {
                out = self.mul(out, base);
            }
            base = self.mul(base, base);
            exponent >>= 1;
        }
        out
    }
    /// The value of a polynomial, its constant coefficient first.
    pub fn horner(self, coefficients: &[u32], x: u32) -> u32 {
        let step = |sum, &c: &u32| self.add(self.mul(sum, x), c);
        coefficients.iter().rev().fold(0, step)
    }

    /// A solution of linear equations `sum_j row[j] x_j = row[last]`, if there is one.
    pub fn solve(self, mut rows: Vec<Vec<u32>>, unknowns: usize) -> Option<Vec<u32>> {
        let mut pivots = Vec::new();
        for column in 0..unknowns {
            let done = pivots.len();
            let Some(found) = (done..rows.len()).find(|&r| rows[r][column] != 0) else {
                continue;
            };
            rows.swap(done, found);
            let inverse = self.inverse(rows[done][column]);
            for x in &mut rows[done] {
                *x = self.mul(*x, inverse);
            }
            let pivot = rows[done].clone();
            for (r, row) in rows.iter_mut().enumerate() {
                let factor = row[column];
                if r != done && factor != 0 {
                    for (x, &p) in row.iter_mut().zip(&pivot) {
                        *x = self.sub(*x, self.mul(factor, p));
                    }
                }
            }
            pivots.push(column);
        }
        if rows[pivots.len()..].iter().any(|row| row[unknowns] != 0) {
            return None;
        }
        let mut solution = vec![0; unknowns];
        for (row, &column) in rows.iter().zip(&pivots) {
            solution[column] = row[unknowns];
        }
        Some(solution)
    }
}

/// Numbers that look random and are the same in every run (Marsaglia's xorshift).
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, n: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 33) % u64::from(n)) as u32
    }
    /// `n` distinct numbers below `range`.
    pub fn distinct(&mut self, n: usize, range: u32) -> Vec<u32> {
        let mut out = Vec::new();
        while out.len() < n {
            let x = self.below(range);
            if !out.contains(&x) {
                out.push(x);
            }
        }
        out
    }
}
