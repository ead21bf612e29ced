//! The one place through which prover and verifier exchange messages.
//!
//! Both halves keep the same transcript. Values that depend on the witness travel as *hidden* messages: the verifier
//! receives them as [`Hidden`], on which it can only compute affine combinations, name products and assert zeros.
//! So the way in which hidden values are masked, and the argument that the assertions hold for what lies behind the
//! masks, can be exchanged here without touching a gadget, the relation or a sub-protocol.
//!
//! A proof is the bare concatenation of the messages. Its structure follows from public headers, so it holds no
//! lengths, and a reader that knows the headers knows every size before it reads.

use crate::codec::{DecodeError, Reader, Writer};
use crate::field::{F, K};
use crate::transcript::Transcript;
use ark_ff::{AdditiveGroup, Field};
use core::ops::{Add, AddAssign, Mul, Neg, Sub};

/// Why a proof was rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reject {
    /// The named check failed.
    #[error("{0}")]
    Check(String),
    /// The bytes are no proof of the expected structure.
    #[error("malformed proof: {0}")]
    Malformed(#[from] DecodeError),
}

impl Reject {
    /// The named check failed.
    pub fn check(name: impl Into<String>) -> Self {
        Self::Check(name.into())
    }
}

/// A value that the verifier may combine but not see: an affine form in what the prover sent.
#[derive(Debug, Clone, Copy)]
pub struct Hidden(K);

impl Hidden {
    /// A value that both sides know.
    pub const fn public(x: K) -> Self {
        Self(x)
    }
    /// Zero.
    pub const ZERO: Self = Self(K::ZERO);
}

impl Add for Hidden {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}
impl AddAssign for Hidden {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}
impl Sub for Hidden {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}
impl Neg for Hidden {
    type Output = Self;
    fn neg(self) -> Self {
        Self(-self.0)
    }
}
impl Mul<K> for Hidden {
    type Output = Self;
    fn mul(self, scalar: K) -> Self {
        Self(self.0 * scalar)
    }
}

/// The prover's end.
pub struct ProverChannel {
    transcript: Transcript,
    proof: Writer,
    sizes: Vec<(&'static str, usize)>,
}

impl ProverChannel {
    /// Starts a proof; `parameters` is everything public that fixes the protocol.
    pub fn new(protocol: &str, parameters: &[u8]) -> Self {
        let mut transcript = Transcript::new(protocol);
        transcript.absorb("parameters", parameters);
        Self {
            transcript,
            proof: Writer::new(),
            sizes: Vec::new(),
        }
    }

    fn send(&mut self, label: &'static str, write: impl FnOnce(&mut Writer)) {
        let start = self.proof.bytes.len();
        write(&mut self.proof);
        let sent = &self.proof.bytes[start..];
        self.transcript.absorb(label, sent);
        match self.sizes.iter_mut().find(|(l, _)| *l == label) {
            Some((_, n)) => *n += sent.len(),
            None => self.sizes.push((label, sent.len())),
        }
    }

    /// Makes the transcript depend on public bytes that the verifier has already.
    pub fn absorb(&mut self, label: &'static str, data: &[u8]) {
        self.transcript.absorb(label, data);
    }
    /// Sends values that depend on the witness.
    pub fn hidden(&mut self, label: &'static str, values: &[K]) {
        self.send(label, |w| values.iter().for_each(|&x| w.k(x)));
    }
    /// Names the product of two hidden values; the verifier's twin is [`VerifierChannel::product`].
    pub fn product(&mut self, a: K, b: K) -> K {
        a * b
    }
    /// Sends values that may be seen.
    pub fn clear(&mut self, label: &'static str, values: &[K]) {
        self.send(label, |w| values.iter().for_each(|&x| w.k(x)));
    }
    /// Sends base field elements that may be seen.
    pub fn words(&mut self, label: &'static str, values: &[F]) {
        self.send(label, |w| values.iter().for_each(|&x| w.f(x)));
    }
    /// Sends the root of a tree.
    pub fn digest(&mut self, label: &'static str, digest: &[u8; 32]) {
        self.send(label, |w| w.raw(digest));
    }
    /// Sends the digests of an opening.
    pub fn digests(&mut self, label: &'static str, digests: &[[u8; 32]]) {
        self.send(label, |w| digests.iter().for_each(|d| w.raw(d)));
    }
    /// One challenge.
    pub fn challenge(&mut self, label: &'static str) -> K {
        self.transcript.challenge(label)
    }
    /// Several challenges.
    pub fn challenges(&mut self, label: &'static str, n: usize) -> Vec<K> {
        self.transcript.challenges(label, n)
    }
    /// Distinct ascending positions.
    pub fn positions(&mut self, label: &'static str, n: usize, log_size: u32) -> Vec<usize> {
        self.transcript.positions(label, n, log_size)
    }
    /// Does `bits` bits of work, so that a challenge drawn next costs that much to draw again.
    pub fn grind(&mut self, label: &'static str, bits: u32) {
        let nonce = find_nonce(&self.transcript, label, bits);
        self.send(label, |w| w.u64(nonce));
    }
    /// The proof.
    pub fn finish(self) -> Vec<u8> {
        self.proof.bytes
    }
    /// Bytes sent so far, by label in order of first use.
    pub fn sizes(&self) -> &[(&'static str, usize)] {
        &self.sizes
    }
}

#[cfg(feature = "prove")]
fn find_nonce(transcript: &Transcript, label: &str, bits: u32) -> u64 {
    use rayon::prelude::*;
    // Batches keep the result the smallest nonce whatever the number of threads.
    (0u64..)
        .find_map(|batch| {
            (batch << 14..(batch + 1) << 14)
                .into_par_iter()
                .find_first(|&nonce| transcript.accepts(label, bits, nonce))
        })
        .unwrap_or_default()
}

#[cfg(not(feature = "prove"))]
fn find_nonce(transcript: &Transcript, label: &str, bits: u32) -> u64 {
    (0u64..)
        .find(|&nonce| transcript.accepts(label, bits, nonce))
        .unwrap_or_default()
}

/// The verifier's end.
pub struct VerifierChannel<'a> {
    transcript: Transcript,
    proof: Reader<'a>,
}

impl<'a> VerifierChannel<'a> {
    /// Starts reading a proof; the arguments as for [`ProverChannel::new`].
    pub fn new(protocol: &str, parameters: &[u8], proof: &'a [u8]) -> Self {
        let mut transcript = Transcript::new(protocol);
        transcript.absorb("parameters", parameters);
        Self {
            transcript,
            proof: Reader::new(proof),
        }
    }

    fn receive<T>(
        &mut self,
        label: &'static str,
        n: usize,
        size: usize,
        item: impl FnMut(&mut Reader<'a>) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, Reject> {
        let mut sent = self.proof.clone();
        let values = self.proof.many(n, size, label, item)?;
        self.transcript.absorb(label, sent.raw(n * size, label)?);
        Ok(values)
    }

    /// The twin of [`ProverChannel::absorb`].
    pub fn absorb(&mut self, label: &'static str, data: &[u8]) {
        self.transcript.absorb(label, data);
    }
    /// Receives `n` hidden values.
    pub fn hidden(&mut self, label: &'static str, n: usize) -> Result<Vec<Hidden>, Reject> {
        self.receive(label, n, 16, |r| r.k(label).map(Hidden))
    }
    /// The product of two hidden values, as a new hidden value.
    pub fn product(&mut self, a: Hidden, b: Hidden) -> Hidden {
        Hidden(a.0 * b.0)
    }
    /// Demands that a hidden value is zero; `check` names what it means if it is not.
    pub fn assert_zero(
        &mut self,
        value: Hidden,
        check: impl FnOnce() -> String,
    ) -> Result<(), Reject> {
        if value.0 == K::ZERO {
            Ok(())
        } else {
            Err(Reject::Check(check()))
        }
    }
    /// Receives `n` values in clear.
    pub fn clear(&mut self, label: &'static str, n: usize) -> Result<Vec<K>, Reject> {
        self.receive(label, n, 16, |r| r.k(label))
    }
    /// Receives `n` base field elements in clear.
    pub fn words(&mut self, label: &'static str, n: usize) -> Result<Vec<F>, Reject> {
        self.receive(label, n, 8, |r| r.f(label))
    }
    /// Receives the root of a tree.
    pub fn digest(&mut self, label: &'static str) -> Result<[u8; 32], Reject> {
        let mut digests = self.digests(label, 1)?;
        digests
            .pop()
            .ok_or(Reject::Malformed(DecodeError::Truncated(label)))
    }
    /// Receives `n` digests.
    pub fn digests(&mut self, label: &'static str, n: usize) -> Result<Vec<[u8; 32]>, Reject> {
        self.receive(label, n, 32, |r| r.digest(label))
    }
    /// One challenge.
    pub fn challenge(&mut self, label: &'static str) -> K {
        self.transcript.challenge(label)
    }
    /// Several challenges.
    pub fn challenges(&mut self, label: &'static str, n: usize) -> Vec<K> {
        self.transcript.challenges(label, n)
    }
    /// Distinct ascending positions.
    pub fn positions(&mut self, label: &'static str, n: usize, log_size: u32) -> Vec<usize> {
        self.transcript.positions(label, n, log_size)
    }
    /// Checks the work that [`ProverChannel::grind`] did.
    pub fn grind(&mut self, label: &'static str, bits: u32) -> Result<(), Reject> {
        let before = self.transcript.clone();
        let nonce = self.receive(label, 1, 8, |r| r.u64(label))?;
        if nonce.iter().all(|&n| before.accepts(label, bits, n)) {
            Ok(())
        } else {
            Err(Reject::check(format!("proof of work: {label}")))
        }
    }
    /// Refuses bytes after the last message.
    pub fn finish(self) -> Result<(), Reject> {
        Ok(self.proof.finish()?)
    }
}

/// Powers `1, x, x^2, ...` of a batching challenge.
pub fn powers(x: K, n: usize) -> Vec<K> {
    core::iter::successors(Some(K::ONE), |&p| Some(p * x))
        .take(n)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::{from_i64, lift};

    #[test]
    fn both_ends_draw_the_same_challenges() {
        let values = [lift(from_i64(5)), lift(from_i64(-7))];
        let mut p = ProverChannel::new("test", b"params");
        p.hidden("values", &values);
        p.digest("root", &[3; 32]);
        p.grind("work", 6);
        let c = p.challenge("c");
        let proof = p.finish();

        let mut v = VerifierChannel::new("test", b"params", &proof);
        let hidden = v.hidden("values", 2).unwrap();
        assert_eq!(v.digest("root").unwrap(), [3; 32]);
        v.grind("work", 6).unwrap();
        assert_eq!(v.challenge("c"), c);
        let sum = hidden[0] + hidden[1] + Hidden::public(lift(from_i64(2)));
        v.assert_zero(sum, || "sum".into()).unwrap();
        let product = v.product(hidden[0], hidden[1]);
        assert_eq!(
            v.assert_zero(product, || "product".into()),
            Err(Reject::check("product"))
        );
        v.finish().unwrap();
    }

    #[test]
    fn truncated_extended_and_non_canonical_messages_are_errors() {
        let mut p = ProverChannel::new("test", b"");
        p.clear("x", &[lift(from_i64(1))]);
        let proof = p.finish();
        let read = |bytes: &[u8]| {
            let mut v = VerifierChannel::new("test", b"", bytes);
            v.clear("x", 1)?;
            v.finish()
        };
        assert_eq!(read(&proof), Ok(()));
        assert_eq!(read(&proof[..15]), Err(DecodeError::Truncated("x").into()));
        assert_eq!(
            read(&[&proof[..], &[0]].concat()),
            Err(DecodeError::Trailing(1).into())
        );
        let mut high = proof.clone();
        high[..8].copy_from_slice(&crate::field::MODULUS.to_le_bytes());
        assert_eq!(read(&high), Err(DecodeError::Invalid("x").into()));
        let mut v = VerifierChannel::new("test", b"", &proof);
        assert!(
            v.clear("x", usize::MAX).is_err(),
            "a huge count is refused before memory is taken"
        );
    }
}
