//! The one place through which prover and verifier exchange messages.
//!
//! Both halves keep the same transcript. Values that depend on the witness travel as *hidden* messages: the prover adds
//! to each a pad, a uniform element that it committed to before any challenge and uses once. The verifier holds such a
//! value as [`Hidden`], an affine form in the pads, on which it can compute affine combinations, name products and demand
//! zeros. Nothing is decided by that: the demands pile up in a [`System`], and a proof about the pads
//! ([`crate::ligero`]) shows at the end that all of them hold. No gadget, relation or sub-protocol knows about pads.
//!
//! A proof is the bare concatenation of the messages. Its structure follows from public headers, so it holds no
//! lengths, and a reader that knows the headers knows every size before it reads.

use crate::affine::{Affine, System, Variable};
use crate::codec::{DecodeError, Reader, Writer};
use crate::field::{F, K};
use crate::transcript::Transcript;
use ark_ff::{AdditiveGroup, Field};
use std::borrow::Cow;

/// A value that the verifier may combine but not see.
pub type Hidden = Affine;

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

/// Where challenges come from. A verdict means something under [`Transcript`] alone; simulators and
/// controls of tests have others.
pub trait Oracle: Send + Sync {
    /// Makes everything that follows depend on `data`.
    fn absorb(&mut self, label: &str, data: &[u8]);
    /// `n` uniform elements of `K`.
    fn challenges(&mut self, label: &str, n: usize) -> Vec<K>;
    /// `n` distinct uniform positions below `2^log_size`, ascending.
    fn positions(&mut self, label: &str, n: usize, log_size: u32) -> Vec<usize>;
    /// Whether `nonce` is a proof of `bits` bits of work on the present state.
    fn accepts(&self, label: &str, bits: u32, nonce: u64) -> bool;
}

impl Oracle for Transcript {
    fn absorb(&mut self, label: &str, data: &[u8]) {
        Self::absorb(self, label, data);
    }
    fn challenges(&mut self, label: &str, n: usize) -> Vec<K> {
        Self::challenges(self, label, n)
    }
    fn positions(&mut self, label: &str, n: usize, log_size: u32) -> Vec<usize> {
        Self::positions(self, label, n, log_size)
    }
    fn accepts(&self, label: &str, bits: u32, nonce: u64) -> bool {
        Self::accepts(self, label, bits, nonce)
    }
}

/// Where a verifier's messages come from: the bytes of a proof, or something that makes them up.
pub trait Source {
    /// The next message; `bytes` is its length.
    fn message(&mut self, label: &'static str, bytes: usize) -> Result<Cow<'_, [u8]>, DecodeError>;
    /// Refuses messages that nobody asked for.
    fn finish(&mut self) -> Result<(), DecodeError>;
}

impl Source for Reader<'_> {
    fn message(&mut self, label: &'static str, bytes: usize) -> Result<Cow<'_, [u8]>, DecodeError> {
        self.raw(bytes, label).map(Cow::Borrowed)
    }
    fn finish(&mut self) -> Result<(), DecodeError> {
        self.clone().finish()
    }
}

/// The oracle of a rehearsal: challenges as different from each other as true ones, since equal claims are
/// proved once, and all work accepted.
struct Rehearsal(Transcript);

/// What a rehearsal counts.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    values: usize,
    products: usize,
    bytes: u64,
}

impl Oracle for Rehearsal {
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

/// Messages of a rehearsal: zeros.
struct Blank;

impl Source for Blank {
    fn message(&mut self, _: &'static str, bytes: usize) -> Result<Cow<'_, [u8]>, DecodeError> {
        Ok(Cow::Owned(vec![0; bytes]))
    }
    fn finish(&mut self) -> Result<(), DecodeError> {
        Ok(())
    }
}

/// The prover's end.
pub struct ProverChannel {
    transcript: Box<dyn Oracle>,
    pads: Vec<K>,
    used: usize,
    proof: Writer,
    sizes: Vec<(&'static str, usize)>,
}

impl ProverChannel {
    /// Starts a proof; `parameters` is everything public that fixes the protocol.
    pub fn new(protocol: &str, parameters: &[u8]) -> Self {
        Self::under(Box::new(Transcript::new(protocol)), parameters)
    }

    /// As [`ProverChannel::new`], with challenges from elsewhere.
    pub fn under(mut oracle: Box<dyn Oracle>, parameters: &[u8]) -> Self {
        oracle.absorb("parameters", parameters);
        Self {
            transcript: oracle,
            pads: Vec::new(),
            used: 0,
            proof: Writer::new(),
            sizes: Vec::new(),
        }
    }

    /// Gives the pads for all hidden messages that follow. They have to be committed to and fresh.
    ///
    /// # Panics
    /// If there are pads already: none may be used twice.
    pub fn set_pads(&mut self, pads: Vec<K>) {
        assert!(self.pads.is_empty(), "pads are given once");
        self.pads = pads;
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
    /// Sends values that depend on the witness, each behind a pad of its own.
    ///
    /// # Panics
    /// If there are not as many pads: a value is never sent without one.
    pub fn hidden(&mut self, label: &'static str, values: &[K]) {
        let end = self.used + values.len();
        assert!(end <= self.pads.len(), "more hidden values than pads");
        let padded: Vec<K> = values
            .iter()
            .zip(&self.pads[self.used..end])
            .map(|(&x, &pad)| x + pad)
            .collect();
        self.used = end;
        self.clear(label, &padded);
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
        one(&mut *self.transcript, label)
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
        let nonce = find_nonce(&*self.transcript, label, bits);
        self.send(label, |w| w.u64(nonce));
    }
    /// The messages so far.
    pub fn sent(&self) -> &[u8] {
        &self.proof.bytes
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
fn find_nonce(transcript: &dyn Oracle, label: &str, bits: u32) -> u64 {
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
#[allow(
    clippy::maybe_infinite_iter,
    reason = "one nonce in 2^bits is accepted"
)]
fn find_nonce(transcript: &dyn Oracle, label: &str, bits: u32) -> u64 {
    (0u64..)
        .find(|&nonce| transcript.accepts(label, bits, nonce))
        .unwrap_or_default()
}

/// The verifier's end.
pub struct VerifierChannel<'a> {
    transcript: Box<dyn Oracle + 'a>,
    proof: Box<dyn Source + 'a>,
    system: System,
    /// In a rehearsal, what was counted so far.
    counted: Option<Counts>,
}

/// A hidden value of a rehearsal: there is but one, so that sums of them stay short.
fn anything() -> Hidden {
    Hidden::variable(Variable::Pad(0), K::ONE)
}

fn one(oracle: &mut dyn Oracle, label: &str) -> K {
    oracle.challenges(label, 1).into_iter().sum()
}

impl<'a> VerifierChannel<'a> {
    /// Starts reading a proof; the arguments as for [`ProverChannel::new`].
    pub fn new(protocol: &str, parameters: &[u8], proof: &'a [u8]) -> Self {
        let oracle = Box::new(Transcript::new(protocol));
        Self::under(oracle, parameters, Box::new(Reader::new(proof)))
    }

    /// As [`VerifierChannel::new`], with challenges and messages from elsewhere.
    pub fn under(
        mut oracle: Box<dyn Oracle + 'a>,
        parameters: &[u8],
        messages: Box<dyn Source + 'a>,
    ) -> Self {
        oracle.absorb("parameters", parameters);
        Self {
            transcript: oracle,
            proof: messages,
            system: System::default(),
            counted: None,
        }
    }

    /// A channel on which the verifier's steps can be walked through, to learn how many hidden values, products and bytes
    /// they have. Its messages are zeros, so a check in clear may fail. Hidden values are not told apart and demands are
    /// forgotten, so that it takes little time and no memory however many there are.
    pub fn rehearsal() -> Self {
        let oracle = Rehearsal(Transcript::new("rehearsal"));
        Self {
            counted: Some(Counts::default()),
            ..Self::under(Box::new(oracle), &[], Box::new(Blank))
        }
    }

    /// Whether this is a rehearsal: then values that both sides know may be made up as well.
    pub fn is_rehearsal(&self) -> bool {
        self.counted.is_some()
    }

    fn receive<T>(
        &mut self,
        label: &'static str,
        n: usize,
        size: usize,
        item: impl FnMut(&mut Reader<'_>) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, Reject> {
        let bytes = n
            .checked_mul(size)
            .ok_or(DecodeError::Truncated(label))
            .and_then(|bytes| self.proof.message(label, bytes))?;
        if let Some(counts) = &mut self.counted {
            counts.bytes += bytes.len() as u64;
        }
        self.transcript.absorb(label, &bytes);
        Ok(Reader::new(&bytes).many(n, size, label, item)?)
    }

    /// The twin of [`ProverChannel::absorb`].
    pub fn absorb(&mut self, label: &'static str, data: &[u8]) {
        self.transcript.absorb(label, data);
    }
    /// Receives `n` hidden values.
    pub fn hidden(&mut self, label: &'static str, n: usize) -> Result<Vec<Hidden>, Reject> {
        let sent = self.clear(label, n)?;
        if let Some(counts) = &mut self.counted {
            counts.values += n;
            return Ok(vec![anything(); n]);
        }
        let first = self.system.pads;
        self.system.pads += n;
        let forms = sent.into_iter().zip(first..).map(|(sent, pad)| Affine {
            constant: sent,
            terms: vec![(Variable::Pad(pad as u32), -K::ONE)],
        });
        Ok(forms.collect())
    }
    /// The product of two hidden values, as a new hidden value.
    pub fn product(&mut self, a: Hidden, b: Hidden) -> Hidden {
        match (a.known(), b.known()) {
            (Some(x), _) => b * x,
            (_, Some(x)) => a * x,
            _ if self.is_rehearsal() => {
                if let Some(counts) = &mut self.counted {
                    counts.products += 1;
                }
                anything()
            }
            _ => {
                let n = self.system.products.len();
                self.system.products.push([a, b]);
                Hidden::variable(Variable::Result(n as u32), K::ONE)
            }
        }
    }
    /// Demands that a hidden value is zero; `check` names what it means if it is not. Only a value without pads is
    /// judged at once.
    pub fn assert_zero(
        &mut self,
        value: Hidden,
        check: impl FnOnce() -> String,
    ) -> Result<(), Reject> {
        match value.known() {
            Some(x) if x == K::ZERO => Ok(()),
            Some(_) => Err(Reject::Check(check())),
            None if self.is_rehearsal() => Ok(()),
            None => {
                self.system.zeros.push((check(), value));
                Ok(())
            }
        }
    }
    /// How many hidden values and how many of their products there were so far.
    pub fn counts(&self) -> (usize, usize) {
        match &self.counted {
            Some(counts) => (counts.values, counts.products),
            None => (self.system.pads, self.system.products.len()),
        }
    }
    /// How many bytes the messages of a rehearsal had so far; nothing on other channels.
    pub fn counted_bytes(&self) -> u64 {
        self.counted.map_or(0, |counts| counts.bytes)
    }
    /// Takes all demands on hidden values, which the caller has to see proved.
    pub fn take_system(&mut self) -> System {
        core::mem::take(&mut self.system)
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
        one(&mut *self.transcript, label)
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
        let nonce = self.proof.message(label, 8)?.into_owned();
        if let Some(counts) = &mut self.counted {
            counts.bytes += 8;
        }
        let accepted = Reader::new(&nonce)
            .u64(label)
            .map(|n| self.transcript.accepts(label, bits, n))?;
        self.transcript.absorb(label, &nonce);
        if accepted {
            Ok(())
        } else {
            Err(Reject::check(format!("proof of work: {label}")))
        }
    }
    /// Refuses bytes after the last message, and demands that nobody took.
    pub fn finish(mut self) -> Result<(), Reject> {
        if !self.system.zeros.is_empty() {
            return Err(Reject::check("demands on hidden values were not proved"));
        }
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
        let pads = [11, 13].map(|x| lift(from_i64(x)));
        p.set_pads(pads.to_vec());
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
        let [five, minus_seven] = &hidden[..] else {
            panic!("two values")
        };
        let number = |x: i64| Hidden::public(lift(from_i64(x)));
        let sum = five.clone() + minus_seven.clone() + number(2);
        v.assert_zero(sum, || "sum".into()).unwrap();
        let product = v.product(five.clone(), minus_seven.clone());
        let square = v.product(product.clone(), product.clone());
        v.assert_zero(square - number(35 * 35), || "square".into())
            .unwrap();
        assert_eq!(v.counts(), (2, 2));
        v.assert_zero(product, || "product".into()).unwrap();
        assert_eq!(v.assert_zero(number(0), || "zero".into()), Ok(()));
        assert_eq!(
            v.assert_zero(number(1), || "one".into()),
            Err(Reject::check("one"))
        );
        let system = v.take_system();
        assert_eq!(system.zeros.len(), 3);
        assert_eq!(system.violated(&pads), ["product"]);
        assert_eq!(
            system.violated(&[pads[0], K::ONE]),
            ["sum", "square", "product"]
        );
        v.finish().unwrap();
    }

    #[test]
    fn demands_that_nobody_proves_are_refused() {
        let mut p = ProverChannel::new("test", b"");
        p.set_pads(vec![K::ONE]);
        p.hidden("x", &[K::ZERO]);
        let proof = p.finish();
        let mut v = VerifierChannel::new("test", b"", &proof);
        let x = v.hidden("x", 1).unwrap().remove(0);
        v.assert_zero(x, || "x".into()).unwrap();
        assert!(v.finish().is_err());
    }

    #[test]
    #[should_panic(expected = "more hidden values than pads")]
    fn nothing_hidden_is_sent_without_a_pad() {
        let mut p = ProverChannel::new("test", b"");
        p.set_pads(vec![K::ONE]);
        p.hidden("x", &[K::ZERO, K::ZERO]);
    }

    #[test]
    fn a_rehearsal_counts() {
        let mut v = VerifierChannel::rehearsal();
        let x = v.hidden("x", 3).unwrap();
        v.grind("work", 60).unwrap();
        v.product(x[0].clone(), x[2].clone());
        v.product(x[0].clone(), Hidden::public(K::ONE));
        v.digest("root").unwrap();
        assert_eq!(v.counts(), (3, 1));
        assert_eq!(v.counted_bytes(), 3 * 16 + 8 + 32);
        v.assert_zero(x[1].clone() + x[2].clone(), || "sum".into())
            .unwrap();
        // Claims at equal points are merged, so a rehearsal must not make points equal that differ in a proof.
        let drawn = [v.challenges("a", 2), v.challenges("a", 2)].concat();
        assert!(
            drawn
                .iter()
                .enumerate()
                .all(|(i, x)| !drawn[..i].contains(x))
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
