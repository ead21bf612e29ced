//! Challenges that are known beforehand, and randomness for tests.

use std::collections::BTreeMap;

use ark_ff::Field;
use zkmoe_commit::channel::Oracle;
use zkmoe_commit::field::{F, K, ext, from_word, root_of_unity};
use zkmoe_commit::params::Params;
use zkmoe_commit::rows::SHIFT;
use zkmoe_commit::transcript::Transcript;
use zkmoe_verifier::verify::PROTOCOL;

/// An oracle whose answers follow from a seed, a label and how often that label was asked for, whatever was absorbed.
/// It takes every nonce. Both ends of a channel have one of their own.
#[derive(Clone)]
pub struct Programmed {
    seed: u64,
    drawn: BTreeMap<String, u64>,
    chosen: BTreeMap<(String, u64), Vec<K>>,
}

impl Programmed {
    /// The oracle of a seed, from its start.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            drawn: BTreeMap::new(),
            chosen: BTreeMap::new(),
        }
    }

    /// The same with the answer to the `count`-th question for a label as it is given.
    pub fn choose(&mut self, label: &str, count: u64, answer: Vec<K>) {
        self.chosen.insert((label.to_owned(), count), answer);
    }

    fn next(&mut self, label: &str) -> Transcript {
        let count = self.drawn.entry(label.to_owned()).or_default();
        let mut transcript = Transcript::new("programmed oracle");
        transcript.absorb("seed", &self.seed.to_le_bytes());
        transcript.absorb("count", &count.to_le_bytes());
        *count += 1;
        transcript
    }
}

impl Oracle for Programmed {
    fn absorb(&mut self, _: &str, _: &[u8]) {}
    fn challenges(&mut self, label: &str, n: usize) -> Vec<K> {
        let count = self.drawn.get(label).copied().unwrap_or_default();
        let drawn = self.next(label).challenges(label, n);
        match self.chosen.get(&(label.to_owned(), count)) {
            Some(chosen) => {
                assert_eq!(chosen.len(), n, "challenges `{label}`");
                chosen.clone()
            }
            None => drawn,
        }
    }
    fn positions(&mut self, label: &str, n: usize, log_size: u32) -> Vec<usize> {
        self.next(label).positions(label, n, log_size)
    }
    fn accepts(&self, _: &str, _: u32, _: u64) -> bool {
        true
    }
}

/// A transcript that takes every nonce. Work is about how often challenges can be drawn, not about what they catch; without
/// it a proof for a test takes half the time.
pub struct Workless(Transcript);

impl Workless {
    /// A transcript of the batch protocol.
    pub fn new() -> Self {
        Self(Transcript::new(PROTOCOL))
    }
}

impl Oracle for Workless {
    fn absorb(&mut self, label: &str, data: &[u8]) {
        self.0.absorb(label, data);
    }
    fn challenges(&mut self, label: &str, n: usize) -> Vec<K> {
        self.0.challenges(label, n)
    }
    fn positions(&mut self, label: &str, n: usize, log_size: u32) -> Vec<usize> {
        self.0.positions(label, n, log_size)
    }
    fn accepts(&self, _: &str, _: u32, _: u64) -> bool {
        true
    }
}

/// The positions at which a programmed oracle has rows opened.
pub fn row_positions(params: &Params, oracle: u64) -> Vec<usize> {
    let mut oracle = Programmed::new(oracle);
    oracle.positions("opening: positions", params.queries, params.log_code)
}

/// The point of the rows' domain at a position.
pub fn row_point(params: &Params, position: usize) -> F {
    F::from(SHIFT) * root_of_unity(params.log_code).pow([position as u64])
}

/// Uniform values from a seed.
pub struct Dice(blake3::OutputReader);

impl Dice {
    /// The dice of a use and a number.
    pub fn new(purpose: &str, n: u64) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("zkmoe tests of hiding");
        hasher.update(&n.to_le_bytes()).update(purpose.as_bytes());
        Self(hasher.finalize_xof())
    }

    /// Any bytes.
    pub fn digest(&mut self) -> [u8; 32] {
        let mut digest = [0; 32];
        self.0.fill(&mut digest);
        digest
    }

    fn word(&mut self) -> F {
        loop {
            let mut bytes = [0; 8];
            self.0.fill(&mut bytes);
            if let Some(x) = from_word(u64::from_le_bytes(bytes)) {
                return x;
            }
        }
    }

    /// Elements of `F`.
    pub fn words(&mut self, n: usize) -> Vec<F> {
        (0..n).map(|_| self.word()).collect()
    }

    /// Elements of `K`.
    pub fn elements(&mut self, n: usize) -> Vec<K> {
        (0..n).map(|_| ext(self.word(), self.word())).collect()
    }
}
