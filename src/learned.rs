//! What a stranger learns from a proof file: everything in it that is public, in words and as fields.
//!
//! The list is made from the whole header, taken apart field by field without a rest. So a field that is added to the
//! header does not compile here until somebody has said what it tells.

use std::fmt;

use serde::Serialize;
use serde_json::{Value, json};
use zkmoe_verifier::batch::BatchHeader;
use zkmoe_verifier::header::Sizes;
use zkmoe_verifier::id::ModelId;
use zkmoe_verifier::relation::BatchShape;

use crate::output;

/// Ends the list.
pub const NOTHING_ELSE: &str = "Nothing else in the file is public: the rest are the messages of the argument, which show \
                                nothing beyond this list.";

/// One thing that a stranger learns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Learned {
    /// What it is.
    pub what: &'static str,
    /// Its value as it stands in the file.
    pub value: Value,
    /// Its value for people.
    #[serde(skip)]
    pub text: String,
    /// What does not fit a line.
    #[serde(skip)]
    pub lines: Vec<String>,
}

impl fmt::Display for Learned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  {}: {}", self.what, self.text)?;
        let mut lines = self.lines.iter();
        lines.try_for_each(|line| writeln!(f, "      {line}"))
    }
}

/// How loads look to somebody who sees nothing but the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rounding {
    /// Every expert of every layer has this load.
    One(usize),
    /// All loads are multiples of this number, which is above 1.
    Multiple(usize),
    /// No rounding shows.
    Exact,
}

impl Rounding {
    fn of(blocks: &[(usize, usize, usize)], experts: usize) -> Self {
        let first = blocks.first().map_or(0, |b| b.2);
        if blocks.len() == experts && blocks.iter().all(|b| b.2 == first) {
            return Self::One(first);
        }
        match blocks.iter().fold(0, |n, b| gcd(n, b.2)) {
            0 | 1 => Self::Exact,
            n => Self::Multiple(n),
        }
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The loads of each layer on a line of its own: of all its experts in their order, or each behind its expert's number.
fn load_lines(blocks: &[(usize, usize, usize)], all: bool) -> Vec<String> {
    let show = |&(_, expert, load): &(usize, usize, usize)| {
        if all {
            load.to_string()
        } else {
            format!("{expert}:{load}")
        }
    };
    blocks
        .chunk_by(|a, b| a.0 == b.0)
        .map(|layer| {
            let loads: Vec<String> = layer.iter().map(show).collect();
            format!("layer {}: {}", layer[0].0, loads.join(" "))
        })
        .collect()
}

fn experts_text(blocks: usize, experts: usize) -> String {
    if blocks == experts {
        format!("all {experts} of all layers, so it does not show which of them tokens used")
    } else {
        format!("{blocks} of {experts} of all layers, so it shows which of them tokens used")
    }
}

fn loads_text(rounding: Rounding) -> String {
    match rounding {
        Rounding::One(load) => {
            format!("{load} for every expert of every layer: a single number, set by the busiest")
        }
        Rounding::Multiple(n) => format!("all are multiples of {n}"),
        Rounding::Exact => "no rounding shows".to_owned(),
    }
}

/// What somebody can do with loads who has a guess, and how to prevent it.
fn confirmation(rounding: Rounding) -> Option<&'static str> {
    match rounding {
        Rounding::One(_) => None,
        Rounding::Multiple(_) => Some(
            "rounded loads still confirm a guessed prompt of a few dozen tokens to someone who can isolate them; \
             `zkmoe prove --hide-loads` shows a single number instead",
        ),
        Rounding::Exact => Some(
            "loads as they are confirm a guessed prompt, even a short one, to someone who can isolate them; `zkmoe prove` \
             rounds them up without --exact-loads, and --hide-loads shows a single number instead",
        ),
    }
}

fn lengths_text(lengths: &[usize], sizes: &Sizes) -> String {
    let numbers: Vec<String> = lengths.iter().map(usize::to_string).collect();
    let rounded = lengths
        .iter()
        .all(|&n| n.is_power_of_two() || n == sizes.max_position_embeddings);
    let remark = if rounded {
        ""
    } else {
        "; `zkmoe prove --pad-lengths` rounds up to powers of two"
    };
    format!("{}{remark}", numbers.join(", "))
}

/// Everything that a stranger learns from a proof of `bytes` bytes with this header.
pub fn learned(id: &ModelId, header: &BatchHeader, bytes: usize) -> Vec<Learned> {
    // Without `..`: see the module's documentation.
    let BatchHeader {
        shape,
        blocks: hashes,
        link: [previous, current],
    } = header;
    let BatchShape {
        lengths,
        blocks,
        decoded,
    } = shape;
    let sizes = &id.header.sizes;
    let experts = sizes.num_hidden_layers * sizes.num_experts;
    let rounding = Rounding::of(blocks, experts);
    let model = output::hex(&id.digest());
    let hashes: Vec<String> = hashes.iter().map(|h| output::hex(h)).collect();
    let loads: Vec<Value> = blocks
        .iter()
        .map(|&(layer, expert, load)| json!([layer, expert, load]))
        .collect();
    let entry = |what, value: Value, text: String| Learned {
        what,
        value,
        text,
        lines: Vec::new(),
    };
    let plain = |what, text: &str| entry(what, text.into(), text.to_owned());
    let mut list = vec![
        entry(
            "model id",
            model.clone().into(),
            format!("{model}, and from its public file architecture, shifts and tables"),
        ),
        entry(
            "requests",
            lengths.len().into(),
            format!("{} in this batch", lengths.len()),
        ),
        entry(
            "padded lengths of all requests",
            lengths.clone().into(),
            lengths_text(lengths, sizes),
        ),
        entry(
            "hashes of all requests",
            hashes.into(),
            "salted, so that they confirm no guess without the slip".to_owned(),
        ),
        entry(
            "response tokens of all requests together, padded",
            (*decoded).into(),
            decoded.to_string(),
        ),
        entry(
            "experts that took part",
            blocks.len().into(),
            experts_text(blocks.len(), experts),
        ),
        Learned {
            lines: match rounding {
                Rounding::One(_) => Vec::new(),
                _ => load_lines(blocks, blocks.len() == experts),
            },
            ..entry(
                "padded loads of experts",
                loads.into(),
                loads_text(rounding),
            )
        },
        entry(
            "chain values before and of this proof",
            json!([output::hex(previous), output::hex(current)]),
            "random; proofs of one key that follow each other can be linked by them".to_owned(),
        ),
        entry(
            "bytes",
            bytes.into(),
            format!("{bytes}, which follow from the sizes above and from places drawn at random"),
        ),
        plain(
            "that the proof was made",
            "those who watch the provider also see when it served, and when it refused",
        ),
    ];
    if let Some(text) = confirmation(rounding) {
        list.push(plain("a guess that comes true", text));
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use zkmoe_commit::codec::{Reader, Writer};
    use zkmoe_prover::commitment::commit;
    use zkmoe_prover::model::random_model;
    use zkmoe_verifier::batch::{read_proof_header, write_proof_header};

    fn id() -> ModelId {
        let sizes = Sizes {
            vocab_size: 40,
            hidden_size: 12,
            intermediate_size: 6,
            num_hidden_layers: 2,
            num_key_value_heads: 2,
            query_group: 2,
            head_dim: 4,
            num_experts: 5,
            num_experts_per_tok: 2,
            max_position_embeddings: 48,
        };
        let model = random_model(&sizes, 1);
        let params = zkmoe_commit::params::Params::choose(model.parameters() as usize, 1);
        commit(&model, params, [1; 32], &|_, _| ()).0
    }

    fn header(blocks: Vec<(usize, usize, usize)>) -> BatchHeader {
        BatchHeader {
            shape: BatchShape {
                lengths: vec![24, 16],
                blocks,
                decoded: 8,
            },
            blocks: vec![[0xab; 32], [0xcd; 32]],
            link: [[1; 32], [2; 32]],
        }
    }

    fn text(id: &ModelId, blocks: Vec<(usize, usize, usize)>) -> String {
        let list = learned(id, &header(blocks), 1000);
        list.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_bit_of_a_header_is_in_the_list() {
        let id = id();
        let honest = header(vec![(0, 1, 8), (0, 3, 16), (1, 2, 8)]);
        let mut w = Writer::new();
        write_proof_header(&mut w, &id.digest(), &honest);
        let as_json = |header: &BatchHeader| serde_json::to_string(&learned(&id, header, 1000));
        let expected = as_json(&honest).unwrap();
        // Magic, version and model id are the same in all proofs under one id.
        let mut read = std::collections::BTreeSet::new();
        for at in 44..w.bytes.len() {
            for bit in 0..8 {
                let mut bytes = w.bytes.clone();
                bytes[at] ^= 1 << bit;
                let mut reader = Reader::new(&bytes);
                if let Ok((_, other)) = read_proof_header(&mut reader, &id.header) {
                    assert_ne!(as_json(&other).unwrap(), expected, "byte {at}, bit {bit}");
                    read.insert(at);
                }
            }
        }
        // Both lengths, both hashes, three numbers of each expert, the decoded rows.
        let least = 2 + 64 + 9 + 1;
        assert!(read.len() >= least, "{read:?}");
    }

    #[test]
    fn rounding_is_told_by_what_shows() {
        let all = |load: &dyn Fn(usize) -> usize| -> Vec<_> {
            (0..10).map(|n| (n / 5, n % 5, load(n))).collect()
        };
        for (blocks, expected) in [
            (all(&|_| 24), Rounding::One(24)),
            (all(&|n| 8 + 8 * (n % 2)), Rounding::Multiple(8)),
            (all(&|n| 8 + 4 * (n % 2)), Rounding::Multiple(4)),
            (all(&|n| 8 + n % 2), Rounding::Exact),
            (vec![(0, 0, 3), (1, 4, 7)], Rounding::Exact),
            // One load, but not of all: which experts took part shows.
            (vec![(0, 0, 8), (1, 4, 8)], Rounding::Multiple(8)),
        ] {
            assert_eq!(Rounding::of(&blocks, 10), expected, "{blocks:?}");
        }
    }

    #[test]
    fn the_words_fit_the_loads() {
        let id = id();
        let hidden = text(&id, (0..10).map(|n| (n / 5, n % 5, 24)).collect());
        assert!(
            hidden.contains("24 for every expert of every layer: a single number"),
            "{hidden}"
        );
        assert!(!hidden.contains("confirm a guessed"), "{hidden}");

        let rounded = text(
            &id,
            (0..10).map(|n| (n / 5, n % 5, 8 + n / 9 * 8)).collect(),
        );
        for part in [
            "all 10 of all layers",
            "all are multiples of 8",
            "layer 0: 8 8 8 8 8",
            "layer 1: 8 8 8 8 16",
            "rounded loads still confirm a guessed prompt",
            "--hide-loads",
        ] {
            assert!(rounded.contains(part), "{part}: {rounded}");
        }

        let exact = text(&id, vec![(0, 1, 3), (0, 3, 16), (1, 2, 8)]);
        for part in [
            "3 of 10 of all layers",
            "no rounding shows",
            "layer 0: 1:3 3:16",
            "layer 1: 2:8",
            "without --exact-loads",
        ] {
            assert!(exact.contains(part), "{part}: {exact}");
        }
    }

    #[test]
    fn lengths_that_could_tell_less_say_how() {
        let sizes = &id().header.sizes;
        assert_eq!(lengths_text(&[8, 32, 48], sizes), "8, 32, 48");
        let text = lengths_text(&[8, 24], sizes);
        assert!(text.starts_with("8, 24;") && text.contains("--pad-lengths"));
    }
}
