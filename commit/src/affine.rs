//! Values that the verifier may combine but not see, and the statements about them that are left at the end.
//!
//! A hidden value travels as `value + pad`, where the pad is one of a list that was committed before. So to the verifier it
//! is `sent - pad`, an affine form in the pads; sums and multiples of such forms are forms again. The product of two is not,
//! so it becomes a new variable. What is left after a proof is a [`System`]: forms that have to be zero, and
//! products that have to hold. (M. Frigo, a. shelat, "Anonymous credentials from ECDSA", eprint 2024/2010.)

use crate::field::K;
use ark_ff::{AdditiveGroup, Field};
use core::cmp::Ordering;
use core::ops::{Add, AddAssign, Mul, Neg, Sub, SubAssign};

/// An unknown of a [`System`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Variable {
    /// The pad with this number.
    Pad(u32),
    /// The result of the product with this number.
    Result(u32),
}

/// `constant + sum_i coefficient_i variable_i`, variables ascending.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Affine {
    /// What does not depend on a variable.
    pub constant: K,
    /// Each variable at most once, in ascending order. A coefficient may be zero.
    pub terms: Vec<(Variable, K)>,
}

impl Affine {
    /// Zero.
    pub const ZERO: Self = Self {
        constant: K::ZERO,
        terms: Vec::new(),
    };

    /// A value that both sides know.
    pub const fn public(constant: K) -> Self {
        Self {
            constant,
            terms: Vec::new(),
        }
    }

    /// A variable alone.
    pub fn variable(variable: Variable, coefficient: K) -> Self {
        Self {
            constant: K::ZERO,
            terms: vec![(variable, coefficient)],
        }
    }

    /// The constant, if there is no variable.
    pub fn known(&self) -> Option<K> {
        self.terms.is_empty().then_some(self.constant)
    }

    /// The value where the variables have these values; a variable beyond them is zero.
    pub fn value(&self, pads: &[K], results: &[K]) -> K {
        self.terms.iter().fold(self.constant, |sum, &(v, c)| {
            let x = match v {
                Variable::Pad(n) => pads.get(n as usize),
                Variable::Result(n) => results.get(n as usize),
            };
            sum + x.map_or(K::ZERO, |&x| x * c)
        })
    }

    /// Adds `scale` times another form.
    pub fn add_scaled(&mut self, other: &Self, scale: K) {
        self.constant += other.constant * scale;
        if other.terms.is_empty() {
            return;
        }
        // Most sums grow at their end: forms are built in the order of messages.
        if self.terms.last().is_none_or(|l| l.0 < other.terms[0].0) {
            self.terms
                .extend(other.terms.iter().map(|&(v, c)| (v, c * scale)));
            return;
        }
        let mut merged = Vec::with_capacity(self.terms.len() + other.terms.len());
        let (mut mine, mut theirs) = (self.terms.iter().peekable(), other.terms.iter().peekable());
        loop {
            let order = match (mine.peek(), theirs.peek()) {
                (None, None) => break,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(a), Some(b)) => a.0.cmp(&b.0),
            };
            let a = if order == Ordering::Greater {
                None
            } else {
                mine.next()
            };
            let b = if order == Ordering::Less {
                None
            } else {
                theirs.next()
            };
            match (a, b) {
                (Some(&a), None) => merged.push(a),
                (None, Some(&(v, c))) => merged.push((v, c * scale)),
                (Some(&(v, a)), Some(&(_, b))) => merged.push((v, a + b * scale)),
                (None, None) => {}
            }
        }
        self.terms = merged;
    }
}

impl AddAssign for Affine {
    fn add_assign(&mut self, other: Self) {
        self.add_scaled(&other, K::ONE);
    }
}
impl SubAssign for Affine {
    fn sub_assign(&mut self, other: Self) {
        self.add_scaled(&other, -K::ONE);
    }
}
impl Add for Affine {
    type Output = Self;
    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}
impl Sub for Affine {
    type Output = Self;
    fn sub(mut self, other: Self) -> Self {
        self -= other;
        self
    }
}
impl Neg for Affine {
    type Output = Self;
    fn neg(self) -> Self {
        self * -K::ONE
    }
}
impl Mul<K> for Affine {
    type Output = Self;
    fn mul(mut self, scalar: K) -> Self {
        self.constant *= scalar;
        self.terms.iter_mut().for_each(|(_, c)| *c *= scalar);
        self
    }
}

/// What has to hold for the pads behind the messages of a proof.
#[derive(Debug, Clone, Default)]
pub struct System {
    /// How many pads were used.
    pub pads: usize,
    /// The factors of each product; result `n` is the product of pair `n`, whose forms hold no later result.
    pub products: Vec<[Affine; 2]>,
    /// Forms that have to be zero, each with the name of the check.
    pub zeros: Vec<(String, Affine)>,
}

impl System {
    /// The results of all products.
    pub fn results(&self, pads: &[K]) -> Vec<K> {
        let mut results = Vec::with_capacity(self.products.len());
        for [a, b] in &self.products {
            results.push(a.value(pads, &results) * b.value(pads, &results));
        }
        results
    }

    /// The checks that fail for these pads, in their order.
    pub fn violated(&self, pads: &[K]) -> Vec<&str> {
        let results = self.results(pads);
        self.zeros
            .iter()
            .filter(|(_, form)| form.value(pads, &results) != K::ZERO)
            .map(|(name, _)| name.as_str())
            .collect()
    }
}
