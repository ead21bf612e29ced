//! How long a file with certain sizes is: known from its first bytes, before the rest is read.
//!
//! A proof has no lengths of its own; the headers say how many messages there are. So they also say, up to the digests of
//! Merkle openings, how long the file is, and a file of another length is refused before anything is allocated that its
//! sizes ask for. What a verifier allocates then is at most in proportion to bytes that are there.
//!
//! Messages before the opening are counted by walking through the verifier's own steps on a channel that makes messages
//! up ([`VerifierChannel::rehearsal`]), those of opening and proof about pads from their parameters.

use crate::limits::within_bytes;
use zkmoe_commit::channel::{Reject, VerifierChannel};
use zkmoe_commit::ligero;
use zkmoe_commit::opening;
use zkmoe_commit::params::Params;

pub use zkmoe_commit::length::Length;

/// The length of a file: `start` bytes before its messages, then messages of which those before the opening were rehearsed on
/// `channel`, with trees of `rows` rows, mask rows included. An error if the file would be longer than any may be.
pub(crate) fn of_file(
    start: usize,
    channel: &VerifierChannel<'_>,
    params: &Params,
    rows: &[usize],
) -> Result<Length, Reject> {
    let (values, products) = channel.counts();
    let values = values + opening::hidden_values(params);
    let about_pads = ligero::Shape::choose(values, products)?;
    let rehearsed = Length::exactly(start as u64 + channel.counted_bytes());
    let length = rehearsed + opening::length(params, rows)? + about_pads.length();
    within_bytes(&length)?;
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{BatchHeader, MAX_REQUESTS};
    use crate::certificate::{Plan, verify_messages};
    use crate::header::Sizes;
    use crate::id::ModelId;
    use crate::olmoe::tests::{header, odd_sizes};
    use crate::relation::BatchShape;
    use crate::verify::reduce;
    use std::borrow::Cow;
    use std::cell::Cell;
    use zkmoe_commit::channel::{Oracle, Source};
    use zkmoe_commit::codec::DecodeError;
    use zkmoe_commit::field::K;
    use zkmoe_commit::transcript::Transcript;

    /// True challenges, and all work accepted.
    struct Idle(Transcript);

    impl Oracle for Idle {
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

    /// Messages of zeros, and how many bytes of them were asked for.
    struct Zeros<'a>(&'a Cell<u64>);

    impl Source for Zeros<'_> {
        fn message(&mut self, _: &'static str, n: usize) -> Result<Cow<'_, [u8]>, DecodeError> {
            self.0.set(self.0.get() + n as u64);
            Ok(Cow::Owned(vec![0; n]))
        }
        fn finish(&mut self) -> Result<(), DecodeError> {
            Ok(())
        }
    }

    fn on_zeros(bytes: &Cell<u64>) -> VerifierChannel<'_> {
        let oracle = Box::new(Idle(Transcript::new("zeros")));
        VerifierChannel::under(oracle, &[], Box::new(Zeros(bytes)))
    }

    fn id_of(sizes: Sizes) -> ModelId {
        ModelId {
            header: header(sizes),
            params: Params::choose(4000, 1),
            root: [7; 32],
            tokenizer: Vec::new(),
        }
    }

    fn shapes() -> Vec<BatchShape> {
        let small = BatchShape {
            lengths: vec![1],
            blocks: vec![(1, 2, 1)],
            decoded: 1,
        };
        vec![
            small.clone(),
            BatchShape {
                lengths: vec![3, 7, 1, 6, 5],
                blocks: vec![(0, 1, 3), (0, 4, 1), (2, 0, 6)],
                decoded: 5,
            },
            // One position or one row each, so that some axes have no bits.
            BatchShape {
                lengths: vec![1; 9],
                blocks: (0..15).map(|n| (n / 5, n % 5, 1)).collect(),
                ..small.clone()
            },
            BatchShape {
                lengths: (0..300).map(|r| 1 + r % 7).collect(),
                blocks: vec![(0, 0, 1024), (1, 0, 8)],
                decoded: 700,
            },
        ]
    }

    /// A rehearsal does not tell hidden values apart and leaves public values out; what it counts has to be the same.
    #[test]
    fn a_rehearsal_counts_what_a_verifier_reads() {
        let id = id_of(odd_sizes());
        for shape in shapes() {
            let header = BatchHeader::of_sizes(&id.header, shape).unwrap();
            let mut rehearsal = VerifierChannel::rehearsal();
            let claims = reduce(&id, &header, &mut rehearsal).unwrap().claims.len();
            let bytes = Cell::new(0);
            let mut channel = on_zeros(&bytes);
            let read = reduce(&id, &header, &mut channel).unwrap().claims.len();
            assert_eq!(claims, read, "{:?}", header.shape);
            assert_eq!(rehearsal.counts(), channel.counts(), "{:?}", header.shape);
            assert_eq!(rehearsal.counted_bytes(), bytes.get(), "{:?}", header.shape);
        }
    }

    /// Zeros are no proof, but a certificate of zeros is read up to its first opened leaves.
    #[test]
    fn a_certificate_is_counted_in_the_same_way() {
        let id = id_of(odd_sizes());
        for room in [1 << 22, 36] {
            let plan = Plan::with_chunks(&id.header, room);
            let (values, products) = crate::certificate::hidden_counts(&id, &plan).unwrap();
            let length = crate::certificate::certificate_length(&id, &plan).unwrap();
            assert!(values > products && length.least > 16 * values as u64);
            let bytes = Cell::new(0);
            let rejected = verify_messages(&id, &plan, on_zeros(&bytes)).unwrap_err();
            assert_eq!(rejected.to_string(), "opening: leaf of the model tree");
            assert!((16 * values as u64..length.most).contains(&bytes.get()));
        }
    }

    #[test]
    fn lengths_grow_with_what_a_header_asks_for() {
        let id = id_of(odd_sizes());
        let mut shape = shapes().remove(1);
        let mut grown = vec![shape.clone()];
        let growths: [fn(&mut BatchShape); 4] = [
            |s| s.lengths.push(7),
            |s| s.blocks.push((2, 3, 5)),
            |s| s.blocks[0].2 += 1000,
            |s| s.lengths.extend([7; 300]),
        ];
        for grow in growths {
            grow(&mut shape);
            grown.push(shape.clone());
        }
        let lengths: Vec<Length> = grown
            .into_iter()
            .map(|shape| BatchHeader::of_sizes(&id.header, shape).unwrap())
            .map(|header| crate::verify::batch_length(&id, &header).unwrap())
            .collect();
        assert!(lengths.is_sorted_by_key(|length| length.least));
        assert!(lengths[0].least < lengths[4].least);
        // What may vary are paths of opened leaves, whatever the batch is.
        let spread: Vec<u64> = lengths.iter().map(|l| l.most - l.least).collect();
        assert!(
            spread.iter().all(|&s| s % 32 == 0 && s < 200_000),
            "{spread:?}"
        );
    }

    /// Sizes that are within each single limit and would still ask for more than any proof may have.
    #[test]
    fn no_proof_is_longer_than_the_limit() {
        let sizes = Sizes {
            max_position_embeddings: 256,
            intermediate_size: 64,
            hidden_size: 64,
            ..odd_sizes()
        };
        let id = id_of(sizes);
        let shape = BatchShape {
            lengths: vec![256; MAX_REQUESTS],
            blocks: vec![(0, 0, 8)],
            decoded: 1,
        };
        let header = BatchHeader::of_sizes(&id.header, shape).unwrap();
        let refused = crate::verify::batch_length(&id, &header).unwrap_err();
        let refused = refused.to_string();
        assert!(refused.starts_with("limits: "), "{refused}");
    }
}
