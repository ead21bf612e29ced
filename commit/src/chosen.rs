//! An oracle for tests that choose some challenges, so that all values of one can be tried while others stay random.

use std::collections::BTreeMap;

use crate::channel::Oracle;
use crate::field::K;
use crate::transcript::Transcript;

/// What a test chooses: challenge number `n` under a label, or set number `n` of positions. What it leaves open comes from a
/// transcript.
pub(crate) trait Choice: Clone + Send + Sync + 'static {
    /// The challenge.
    fn challenge(&self, _label: &str, _n: usize) -> Option<K> {
        None
    }
    /// The positions, ascending.
    fn positions(&self, _label: &str, _n: usize) -> Option<Vec<usize>> {
        None
    }
}

/// Chosen values for single draws under a label, by number.
impl Choice for Vec<(&'static str, usize, K)> {
    fn challenge(&self, label: &str, n: usize) -> Option<K> {
        let found = self.iter().find(|(l, m, _)| *l == label && *m == n);
        found.map(|&(_, _, x)| x)
    }
}

/// An oracle that asks a [`Choice`] first and takes every nonce.
pub(crate) struct Chosen<C> {
    choice: C,
    transcript: Transcript,
    drawn: BTreeMap<String, usize>,
}

impl<C: Choice> Chosen<C> {
    pub(crate) fn new(choice: &C, seed: u64) -> Self {
        let mut transcript = Transcript::new("chosen");
        transcript.absorb("seed", &seed.to_le_bytes());
        Self {
            choice: choice.clone(),
            transcript,
            drawn: BTreeMap::new(),
        }
    }
}

impl<C: Choice> Oracle for Chosen<C> {
    fn absorb(&mut self, label: &str, data: &[u8]) {
        self.transcript.absorb(label, data);
    }
    fn challenges(&mut self, label: &str, n: usize) -> Vec<K> {
        let before = self.drawn.entry(label.to_owned()).or_default();
        let numbers = *before..*before + n;
        *before += n;
        let random = self.transcript.challenges(label, n);
        let chosen = numbers.zip(random);
        chosen
            .map(|(i, x)| self.choice.challenge(label, i).unwrap_or(x))
            .collect()
    }
    fn positions(&mut self, label: &str, n: usize, log_size: u32) -> Vec<usize> {
        let before = self.drawn.entry(label.to_owned()).or_default();
        let number = *before;
        *before += 1;
        let random = self.transcript.positions(label, n, log_size);
        let chosen = self.choice.positions(label, number).unwrap_or(random);
        assert_eq!(chosen.len(), n, "positions under `{label}`");
        chosen
    }
    fn accepts(&self, _: &str, _: u32, _: u64) -> bool {
        true
    }
}

/// The first elements of `F` as challenges: a bound of `d / |K|` for a challenge from `K` is one of `d / n` for a challenge
/// from any `n` elements.
pub(crate) fn few(n: u64) -> impl Iterator<Item = K> {
    (0..n).map(|x| crate::field::lift(crate::field::F::from(x)))
}

/// The coefficients of `prod (X - root)`, the constant one first.
pub(crate) fn with_roots(roots: &[K]) -> Vec<K> {
    let mut out = vec![K::from(1u64)];
    for &root in roots {
        out.insert(0, K::from(0u64));
        for i in 0..out.len() - 1 {
            let next = out[i + 1];
            out[i] -= root * next;
        }
    }
    out
}

/// The numerator over `|K|` of a term, by its name; `work` are the bits of work before its challenge.
pub(crate) fn numerator(terms: &[crate::soundness::Term], name: &str, work: u32) -> f64 {
    let mut found = terms.iter().filter(|t| t.name == name);
    let (Some(term), None) = (found.next(), found.next()) else {
        panic!("not one term `{name}`");
    };
    (crate::soundness::field_bits() + f64::from(work) - term.bits).exp2()
}

/// Says what was counted, and fails if more of a challenge's values pass than the numerator of its term says, or that
/// numerator is more than `slack` times as large.
#[track_caller]
pub(crate) fn compare(what: &str, passing: f64, numerator: f64, slack: f64) {
    println!("{what}: {passing} values of the challenge pass, at most {numerator:.3}");
    assert!(
        passing <= numerator * (1.0 + 1e-6),
        "{what}: more pass than the term says"
    );
    assert!(
        numerator <= slack * passing * (1.0 + 1e-6),
        "{what}: the term says little"
    );
}

#[test]
fn roots_are_roots() {
    let roots: Vec<K> = few(5).collect();
    let polynomial = with_roots(&roots);
    assert_eq!(polynomial.len(), 6);
    for x in few(9) {
        let value = polynomial
            .iter()
            .rev()
            .fold(K::from(0u64), |sum, &c| sum * x + c);
        assert_eq!(value == K::from(0u64), roots.contains(&x));
    }
}
