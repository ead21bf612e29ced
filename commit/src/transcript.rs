//! The Fiat-Shamir transcript: a chain of keyed BLAKE3 hashes.
//!
//! Every message enters with a length-prefixed label and its own length, so no two sequences of messages share a
//! state. A challenge is read from the state and then moves it, so it depends on all that came before and all that
//! comes after depends on it. The first message is a hash of all parameters, which separates configurations.

use crate::field::{F, K, ext, from_word};

/// The state of a transcript.
#[derive(Clone)]
pub struct Transcript {
    state: [u8; 32],
}

impl Transcript {
    /// Starts a transcript for one protocol.
    pub fn new(protocol: &str) -> Self {
        Self {
            state: blake3::derive_key("zkmoe transcript v1", protocol.as_bytes()),
        }
    }

    fn step(&self, kind: &[u8], label: &str, data: &[u8]) -> blake3::Hasher {
        let mut h = blake3::Hasher::new_keyed(&self.state);
        h.update(kind);
        h.update(&(label.len() as u64).to_le_bytes());
        h.update(label.as_bytes());
        h.update(&(data.len() as u64).to_le_bytes());
        h.update(data);
        h
    }

    /// Makes everything that follows depend on `data`.
    pub fn absorb(&mut self, label: &str, data: &[u8]) {
        self.state = *self.step(b"absorb  ", label, data).finalize().as_bytes();
    }

    /// Reads from the state, then moves it.
    fn squeeze<T>(&mut self, label: &str, read: impl FnOnce(&mut blake3::OutputReader) -> T) -> T {
        let out = read(&mut self.step(b"squeeze ", label, &[]).finalize_xof());
        self.state = *self.step(b"squeezed", label, &[]).finalize().as_bytes();
        out
    }

    /// `n` uniform elements of `K`.
    pub fn challenges(&mut self, label: &str, n: usize) -> Vec<K> {
        self.squeeze(label, |xof| {
            (0..n).map(|_| ext(uniform(xof), uniform(xof))).collect()
        })
    }

    /// One uniform element of `K`.
    pub fn challenge(&mut self, label: &str) -> K {
        self.squeeze(label, |xof| ext(uniform(xof), uniform(xof)))
    }

    /// `n` distinct uniform positions below `2^log_size`, ascending; `n` is at most half of the range.
    pub fn positions(&mut self, label: &str, n: usize, log_size: u32) -> Vec<usize> {
        assert!(
            n <= 1 << (log_size - 1),
            "more positions than half the range"
        );
        self.squeeze(label, |xof| {
            let mut seen = std::collections::BTreeSet::new();
            while seen.len() < n {
                seen.insert((next_word(xof) & ((1u64 << log_size) - 1)) as usize);
            }
            seen.into_iter().collect()
        })
    }

    /// Whether `nonce` is a proof of `bits` bits of work on the present state.
    pub fn accepts(&self, label: &str, bits: u32, nonce: u64) -> bool {
        let hash = self
            .step(b"grind   ", label, &nonce.to_le_bytes())
            .finalize();
        let mut word = [0; 8];
        word.copy_from_slice(&hash.as_bytes()[..8]);
        u64::from_le_bytes(word).trailing_zeros() >= bits
    }
}

fn next_word(xof: &mut blake3::OutputReader) -> u64 {
    let mut bytes = [0; 8];
    xof.fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// A uniform base field element, by rejection of words that are not canonical.
fn uniform(xof: &mut blake3::OutputReader) -> F {
    loop {
        if let Some(x) = from_word(next_word(xof)) {
            return x;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_messages_do_not_run_into_each_other() {
        let run = |messages: &[(&str, &[u8])]| {
            let mut t = Transcript::new("test");
            for (label, data) in messages {
                t.absorb(label, data);
            }
            t.challenge("c")
        };
        let outputs = [
            run(&[]),
            run(&[("", b"")]),
            run(&[("a", b"b")]),
            run(&[("ab", b"")]),
            run(&[("", b"ab")]),
            run(&[("a", b""), ("b", b"")]),
            run(&[("b", b""), ("a", b"")]),
        ];
        for (i, a) in outputs.iter().enumerate() {
            assert!(
                outputs.iter().skip(i + 1).all(|b| a != b),
                "case {i} collides"
            );
        }
        assert_ne!(
            Transcript::new("x").challenge("c"),
            Transcript::new("y").challenge("c")
        );
    }

    #[test]
    fn a_challenge_moves_the_state() {
        let mut t = Transcript::new("test");
        assert_ne!(t.challenge("c"), t.challenge("c"));
        let ks = Transcript::new("test").challenges("c", 3);
        assert_eq!(ks[0], Transcript::new("test").challenge("c"));
    }

    #[test]
    fn positions_are_distinct_and_ascending() {
        let p = Transcript::new("test").positions("p", 100, 8);
        assert_eq!(p.len(), 100);
        assert!(p.windows(2).all(|w| w[0] < w[1]) && p[99] < 256);
    }

    #[test]
    fn work_is_bound_to_state_and_label() {
        let t = Transcript::new("test");
        let nonce = (0..u64::MAX).find(|&n| t.accepts("g", 8, n)).unwrap();
        assert!(!t.accepts("h", 8, nonce) || !Transcript::new("other").accepts("g", 8, nonce));
        assert!(t.accepts("g", 0, nonce ^ 1));
    }
}
