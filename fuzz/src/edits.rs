//! Edits of a proof that know its messages.
//!
//! Random bytes seldom get past the first checks of a verifier. So a valid proof is cut into its messages, by listening to
//! a verifier who reads it, and the fuzzer's bytes are a program of edits: other words, other orders, other lengths.

use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;

use zkmoe::commit::channel::{Source, VerifierChannel};
use zkmoe::commit::codec::{DecodeError, Reader};
use zkmoe::commit::transcript::Transcript;

/// The order of the field.
const MODULUS: u64 = 0xffff_ffff_0000_0001;
/// The most edits of one input.
const MAX_EDITS: usize = 6;

/// A proof in parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parts {
    /// What comes before the messages.
    pub header: Vec<u8>,
    /// The messages in their order.
    pub messages: Vec<Vec<u8>>,
}

impl Parts {
    /// The bytes of the file.
    pub fn bytes(&self) -> Vec<u8> {
        [&self.header[..], &self.messages.concat()].concat()
    }
}

/// Passes messages on and keeps copies.
struct Listening<'a> {
    reader: Reader<'a>,
    heard: Rc<RefCell<Vec<Vec<u8>>>>,
}

impl Source for Listening<'_> {
    fn message(&mut self, label: &'static str, bytes: usize) -> Result<Cow<'_, [u8]>, DecodeError> {
        let message = self.reader.raw(bytes, label)?;
        self.heard.borrow_mut().push(message.to_vec());
        Ok(Cow::Borrowed(message))
    }
    fn finish(&mut self) -> Result<(), DecodeError> {
        self.reader.clone().finish()
    }
}

/// Cuts a file, whose messages start at `start`, into its messages as `verify` reads them.
pub fn listen(
    file: &[u8],
    start: usize,
    protocol: &str,
    parameters: &[u8],
    verify: impl FnOnce(VerifierChannel<'_>),
) -> Parts {
    let heard = Rc::new(RefCell::new(Vec::new()));
    let (header, messages) = file.split_at(start);
    let source = Listening {
        reader: Reader::new(messages),
        heard: Rc::clone(&heard),
    };
    let oracle = Box::new(Transcript::new(protocol));
    verify(VerifierChannel::under(oracle, parameters, Box::new(source)));
    let parts = Parts {
        header: header.to_vec(),
        messages: heard.take(),
    };
    assert_eq!(parts.bytes(), file, "the verifier reads the whole file");
    parts
}

/// Numbers from the fuzzer's bytes; zeros when there are no more.
pub struct Program<'a>(pub &'a [u8]);

impl<'a> Program<'a> {
    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let taken = self.take(N);
        out[..taken.len()].copy_from_slice(taken);
        out
    }
    /// Up to `n` bytes.
    pub fn take(&mut self, n: usize) -> &'a [u8] {
        let (head, tail) = self.0.split_at(n.min(self.0.len()));
        self.0 = tail;
        head
    }
    /// One byte.
    pub fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.array())
    }
    /// Two bytes.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }
    /// Four bytes.
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }
    /// Eight bytes.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }
    /// An index below `n`, which is not zero.
    pub fn below(&mut self, n: usize) -> usize {
        usize::from(self.u16()) % n
    }
}

/// A word of a message, as the eight bytes from its place on; none in an empty message.
fn word(bytes: &mut [u8], at: usize) -> Option<&mut [u8; 8]> {
    let words = bytes.len() / 8;
    let at = at.checked_rem(words)? * 8;
    bytes.get_mut(at..at + 8)?.try_into().ok()
}

/// Edits a valid proof as the program says. `other` is another valid proof to take messages from.
pub fn edit(valid: &Parts, other: &Parts, program: &[u8]) -> Vec<u8> {
    let mut p = Program(program);
    let mut parts = valid.clone();
    for _ in 0..MAX_EDITS {
        if p.0.is_empty() {
            break;
        }
        let kind = p.u8() % 16;
        let count = parts.messages.len();
        if count == 0 {
            break;
        }
        let at = p.below(count);
        match kind {
            // A word is something else, or something near.
            0 | 1 => {
                let place = p.below(1 << 16);
                let value = p.u64();
                if let Some(word) = word(&mut parts.messages[at], place) {
                    *word = (value % MODULUS).to_le_bytes();
                }
            }
            2 | 3 => {
                let place = p.below(1 << 16);
                let change = u64::from(p.u8());
                if let Some(word) = word(&mut parts.messages[at], place) {
                    let sum = u64::from_le_bytes(*word).wrapping_add(change);
                    *word = sum.to_le_bytes();
                }
            }
            // The same element in another writing, which must not be one.
            4 => {
                let place = p.below(1 << 16);
                if let Some(word) = word(&mut parts.messages[at], place) {
                    let sum = u64::from_le_bytes(*word).wrapping_add(MODULUS);
                    *word = sum.to_le_bytes();
                }
            }
            5 => {
                let message = &mut parts.messages[at];
                if !message.is_empty() {
                    let place = p.below(message.len());
                    message[place] ^= p.u8();
                }
            }
            // Whole messages.
            6 => {
                let to = p.below(count);
                parts.messages.swap(at, to);
            }
            7 => {
                parts.messages.remove(at);
            }
            8 => {
                let message = parts.messages[at].clone();
                parts.messages.insert(at, message);
            }
            9 => {
                let from = p.below(count);
                let message = parts.messages[from].clone();
                parts.messages[at] = message;
            }
            10 => {
                if let Some(message) = other.messages.get(at) {
                    parts.messages[at].clone_from(message);
                }
            }
            11 => {
                let tail = other.messages.get(at..).unwrap_or_default();
                parts.messages.truncate(at);
                parts.messages.extend_from_slice(tail);
            }
            // Lengths.
            12 => {
                let n = usize::from(p.u8());
                let bytes = p.take(n).to_vec();
                parts.messages.push(bytes);
            }
            13 => {
                let message = &mut parts.messages[at];
                let n = p.below(message.len() + 1);
                message.truncate(n);
            }
            // The header.
            14 => {
                let value = p.u32().to_le_bytes();
                let places = parts.header.len().saturating_sub(3);
                if let Some(place) = at.checked_rem(places) {
                    parts.header[place..place + 4].copy_from_slice(&value);
                }
            }
            _ => {
                let n = p.below(parts.header.len() + 1);
                let inserted = usize::from(p.u8());
                let bytes = p.take(inserted);
                let removed = p.below(64).min(parts.header.len() - n);
                parts.header.splice(n..n + removed, bytes.iter().copied());
            }
        }
    }
    parts.bytes()
}

/// Programs that use each kind of edit, at the first and at later messages.
pub fn programs() -> Vec<(String, Vec<u8>)> {
    let mut programs = vec![("none".to_owned(), Vec::new())];
    for kind in 0..16u8 {
        for at in [0u16, 1, 40, 1000] {
            let [low, high] = at.to_le_bytes();
            let program = [&[kind, low, high][..], &[1, 0, 1, 0, 0, 0, 0, 0, 0, 0]].concat();
            programs.push((format!("edit-{kind:02}-{at}"), program));
        }
    }
    programs
}
