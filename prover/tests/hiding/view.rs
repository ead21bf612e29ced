//! What someone sees who reads a proof: every message with its label, and what can be computed of them at once.
//!
//! A view belongs to the customer of request 0, so that the customer's own slip is a part of it.

use std::borrow::Cow;
use std::sync::Mutex;

use ark_ff::Field;
use zkmoe_commit::channel::{Oracle, Reject, Source, VerifierChannel};
use zkmoe_commit::codec::{DecodeError, Reader};
use zkmoe_commit::field::{F, K, batch_invert, ext, from_word, lift, root_of_unity, scale, word};
use zkmoe_commit::ligero::{Shape, simulator};
use zkmoe_commit::rows::SHIFT;
use zkmoe_verifier::batch::read_proof_header;
use zkmoe_verifier::id::ModelId;
use zkmoe_verifier::slip::Slip;
use zkmoe_verifier::verify::{Batch, hidden_counts, parameters, verify_messages};

use crate::common::programmed::Programmed;

/// The messages that are hidden values: those that depend on the witness and that no tail, mask row or cell covers.
pub const HIDDEN: [&str; 10] = [
    "block parts",
    "evaluations",
    "sums of products",
    "sumcheck rounds",
    "gkr root",
    "gkr inverse",
    "gkr round",
    "gkr node",
    "opening: sumcheck",
    "opening: values of mask and proximity row",
];

/// Something that is seen, as little-endian words: one for an element of `F`, two for one of `K`, four for a digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// What it is.
    pub label: &'static str,
    /// Its words.
    pub words: Vec<u64>,
}

/// Messages of a proof that pass by on their way to the verifier.
struct Listening<'a> {
    proof: Reader<'a>,
    heard: &'a Mutex<Vec<Seen>>,
}

impl Source for Listening<'_> {
    fn message(&mut self, label: &'static str, bytes: usize) -> Result<Cow<'_, [u8]>, DecodeError> {
        let message = self.proof.raw(bytes, label)?;
        let words = words(message);
        self.heard.lock().unwrap().push(Seen { label, words });
        Ok(Cow::Borrowed(message))
    }
    fn finish(&mut self) -> Result<(), DecodeError> {
        self.proof.clone().finish()
    }
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes
        .chunks_exact(8)
        .map(|b| u64::from_le_bytes(b.try_into().unwrap()))
        .collect()
}

/// Verifies a proof under any oracle, and says what was sent.
pub fn listen(
    id: &ModelId,
    proof: &[u8],
    oracle: Box<dyn Oracle + '_>,
) -> (Result<Batch, Reject>, Vec<Seen>) {
    let heard = Mutex::new(Vec::new());
    let mut reader = Reader::new(proof);
    let (named, header) = read_proof_header(&mut reader, &id.header).unwrap();
    assert_eq!(named, id.digest());
    let parameters = parameters(&named, &header);
    let source = Listening {
        proof: reader,
        heard: &heard,
    };
    let channel = VerifierChannel::under(oracle, &parameters, Box::new(source));
    let verdict = verify_messages(id, header, channel);
    (verdict, heard.into_inner().unwrap())
}

/// The check that rejects a proof under any oracle; none if it is accepted, or only its parameters are below the policy, as
/// those of quick proofs are. The policy is the last check.
pub fn rejection(id: &ModelId, proof: &[u8], oracle: Box<dyn Oracle + '_>) -> Option<String> {
    failed(listen(id, proof, oracle).0)
}

fn failed(verdict: Result<Batch, Reject>) -> Option<String> {
    match verdict {
        Ok(_) => None,
        Err(Reject::Check(why)) if why.starts_with("soundness: ") => None,
        Err(why) => Some(why.to_string()),
    }
}

/// Everything that the customer of request 0 sees of an accepted proof under a programmed oracle.
pub fn view(id: &ModelId, proof: &[u8], slip: &Slip, oracle: u64) -> Vec<Seen> {
    let (verdict, mut seen) = listen(id, proof, Box::new(Programmed::new(oracle)));
    assert_eq!(failed(verdict), None);
    let (_, header) = read_proof_header(&mut Reader::new(proof), &id.header).unwrap();
    let (pads, products) = hidden_counts(id, &header).unwrap();
    let shape = Shape::choose(pads, products).unwrap();
    let columns = columns_less_sent(&seen, &shape, oracle);
    let hashes: Vec<u8> = header.blocks.concat();
    let cells: Vec<u64> = slip.cells.iter().map(|&x| word(x)).collect();
    for (label, words) in [
        ("root of the model", words(&id.root)),
        ("hashes of requests", words(&hashes)),
        ("salt of the slip", words(&slip.salt)),
        ("cells of the slip", cells),
        ("columns of pads less those of sent values", columns),
    ] {
        seen.push(Seen { label, words });
    }
    seen
}

/// The hidden values of a proof, as they were sent.
pub fn sent_values(seen: &[Seen]) -> Vec<K> {
    seen.iter()
        .filter(|message| HIDDEN.contains(&message.label))
        .flat_map(|message| elements(&message.words))
        .collect()
}

fn element(w: u64) -> F {
    from_word(w).unwrap()
}

/// Words as elements of `K`.
pub fn elements(words: &[u64]) -> Vec<K> {
    words
        .chunks_exact(2)
        .map(|pair| ext(element(pair[0]), element(pair[1])))
        .collect()
}

/// The opened columns of the pads' rows, less what they would be if the pads were what was sent and the rows had no random
/// coefficients. Without these, it is a functional of the values behind the pads.
fn columns_less_sent(seen: &[Seen], shape: &Shape, oracle: u64) -> Vec<u64> {
    let sent = sent_values(seen);
    assert_eq!(sent.len(), shape.pads(), "a pad for every hidden value");
    let columns = seen
        .iter()
        .find(|message| message.label == "pads columns of pads")
        .map(|message| elements(&message.words))
        .unwrap();
    let positions = simulator::positions(&mut Programmed::new(oracle), shape);
    positions
        .iter()
        .zip(columns.chunks_exact(shape.pad_rows()))
        .flat_map(|(&position, column)| {
            let lagrange = lagrange(shape, position);
            let rows = sent.chunks(shape.message());
            let differences = column.iter().zip(rows).map(move |(&symbol, row)| {
                row.iter()
                    .zip(&lagrange)
                    .fold(symbol, |rest, (&sent, &at)| rest - scale(sent, at))
            });
            differences.collect::<Vec<_>>()
        })
        .flat_map(|x| [word(x.c0), word(x.c1)])
        .collect()
}

/// The values at a position of the code of pads of the polynomials that are one at one slot and zero at all others.
fn lagrange(shape: &Shape, position: usize) -> Vec<F> {
    let size = shape.message();
    let x = F::from(SHIFT) * root_of_unity(shape.log_code()).pow([position as u64]);
    let root = root_of_unity(size.trailing_zeros());
    let factor = (x.pow([size as u64]) - F::ONE) / F::from(size as u64);
    let slots: Vec<F> = core::iter::successors(Some(F::ONE), |&h| Some(h * root))
        .take(size)
        .collect();
    let mut inverses: Vec<K> = slots.iter().map(|&h| lift(x - h)).collect();
    batch_invert(&mut inverses);
    slots
        .iter()
        .zip(inverses)
        .map(|(&h, inverse)| factor * h * inverse.c0)
        .collect()
}

/// The words of all messages with a label.
pub fn all_words(seen: &[Seen], label: &str) -> Vec<u64> {
    seen.iter()
        .filter(|message| message.label == label)
        .flat_map(|message| message.words.iter().copied())
        .collect()
}
