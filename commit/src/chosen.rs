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
