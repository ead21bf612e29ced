//! Every challenge that a verifier draws is covered by a term of the soundness error, and every term by a challenge.
//!
//! A verification of each kind of proof runs under an oracle that notes what is drawn, after which messages and after how
//! much work. A table names for each label the terms that cover it. From what was drawn follows how many values of each
//! challenge let a lie pass at most; the terms have to add up to no less, in the units in which they count work.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use crate::common::{Committed, answer, micro};
use zkmoe_commit::channel::{Oracle, VerifierChannel};
use zkmoe_commit::codec::Reader;
use zkmoe_commit::field::K;
use zkmoe_commit::params::Params;
use zkmoe_commit::soundness::{Term, field_bits};
use zkmoe_commit::transcript::Transcript;
use zkmoe_commit::whir::WhirParams;
use zkmoe_prover::certify::certify;
use zkmoe_prover::key::{Key, Opening};
use zkmoe_prover::prove::{NoHook, prove};
use zkmoe_prover::rotate::{self, Side, recommit};
use zkmoe_prover::trace::Padding;
use zkmoe_verifier::batch::read_proof_header;
use zkmoe_verifier::certificate::{self, Plan, read_certificate_header};
use zkmoe_verifier::forecast::Forecast;
use zkmoe_verifier::id::ModelId;
use zkmoe_verifier::olmoe;
use zkmoe_verifier::relation::{Dims, Label};
use zkmoe_verifier::rotation::{self, read_rotation_header};
use zkmoe_verifier::verify;

/// The terms that cover each label. Rounds and variables of WHIR are left out of their names, and which of its two
/// instances it is.
const COVERED: [(&str, &[&str]); 30] = [
    ("beta", &["fingerprints"]),
    ("tau", &["constraints: points"]),
    ("tau2", &["constraints: points"]),
    ("block point", &["blocks of requests"]),
    ("block fold", &["blocks of requests"]),
    ("block cells", &["blocks of requests"]),
    ("block batching", &["blocks of requests, joined"]),
    ("alpha", &["lookups: poles and keys"]),
    ("delta", &["lookups: poles and keys"]),
    ("gkr child", &["lookup tree, two children joined"]),
    (
        "gkr lambda",
        &["lookup tree, numerator and denominator joined by lambda"],
    ),
    ("gkr point", &["lookup tree, sumchecks"]),
    ("sumcheck batching", &["products: batching"]),
    ("sumcheck", &["products: sumchecks"]),
    ("point of a tensor", &["rotation: points of the tensors"]),
    ("opening: gamma", &["opening: batching of claims"]),
    ("opening: rho", &["opening: sumcheck over slots"]),
    ("opening: b", &["opening: combination of rows by b"]),
    (
        "opening: e",
        &[
            "opening: combination by e",
            "opening: value of the combined row",
        ],
    ),
    // Within the radius of unique decoding both parts are fixed by their roots, so nothing rests on their values there.
    ("opening: z", &[]),
    ("opening: positions", &["opening: queried positions"]),
    ("whir batching", &["WHIR batching of claims"]),
    ("whir folding", &["WHIR sumcheck", "WHIR folding"]),
    ("whir positions", &["WHIR queries"]),
    ("whir query batching", &["WHIR batching of queries"]),
    (
        "pads coefficients of rows",
        &[
            "pads: combination of rows",
            "pads: positions where a row is no codeword",
        ],
    ),
    (
        "pads coefficients of linear statements",
        &["pads: combination of linear statements"],
    ),
    (
        "pads coefficients of products",
        &["pads: combination of products"],
    ),
    ("pads positions", &["pads: queried positions"]),
    // No label: what rests on no challenge.
    ("", &["hashes: collisions"]),
];

/// One draw.
#[derive(Debug, Clone)]
struct Draw {
    label: String,
    /// Challenges or positions.
    n: usize,
    /// Bits of the range of positions.
    log_size: u32,
    /// Bits of work that were done since the last message.
    work: u32,
}

/// What an oracle was asked for.
#[derive(Default)]
struct Notes {
    draws: Vec<Draw>,
    /// For each label the number of messages and of their bytes.
    messages: BTreeMap<String, (usize, usize)>,
    /// Label and bits of work that was accepted and not followed by a message other than its own nonce.
    work: Option<(String, u32)>,
}

/// The transcript of a real verification, noted.
struct Noting {
    transcript: Transcript,
    notes: Arc<Mutex<Notes>>,
}

impl Noting {
    fn draw(&self, label: &str, n: usize, log_size: u32) {
        let mut notes = self.notes.lock().unwrap();
        let work = notes.work.as_ref().map_or(0, |(_, bits)| *bits);
        notes.draws.push(Draw {
            label: label.into(),
            n,
            log_size,
            work,
        });
    }
}

impl Oracle for Noting {
    fn absorb(&mut self, label: &str, data: &[u8]) {
        self.transcript.absorb(label, data);
        let mut notes = self.notes.lock().unwrap();
        let (messages, bytes) = notes.messages.entry(label.into()).or_default();
        *messages += 1;
        *bytes += data.len();
        if notes.work.as_ref().is_none_or(|(own, _)| own != label) {
            notes.work = None;
        }
    }
    fn challenges(&mut self, label: &str, n: usize) -> Vec<K> {
        self.draw(label, n, 0);
        self.transcript.challenges(label, n)
    }
    fn positions(&mut self, label: &str, n: usize, log_size: u32) -> Vec<usize> {
        self.draw(label, n, log_size);
        self.transcript.positions(label, n, log_size)
    }
    fn accepts(&self, label: &str, bits: u32, nonce: u64) -> bool {
        let accepted = self.transcript.accepts(label, bits, nonce);
        self.notes.lock().unwrap().work = accepted.then(|| (label.into(), bits));
        accepted
    }
}

/// A verification of one kind of proof.
struct Verified {
    kind: &'static str,
    id: ModelId,
    notes: Notes,
    terms: Vec<Term>,
    /// What the messages do not tell: for each batch of `alpha` and `delta` the cells of all lookups and the longest tuple;
    /// for `beta` pairs of rows that are claimed to be equal, and their width.
    lookups: (usize, usize),
    rows: (usize, usize),
    requests: usize,
}

impl Verified {
    fn under<T>(
        kind: &'static str,
        id: &ModelId,
        protocol: &str,
        run: impl FnOnce(Box<dyn Oracle>) -> (T, Vec<Term>),
    ) -> (T, Self) {
        let notes = Arc::new(Mutex::new(Notes::default()));
        let (result, terms) = run(Box::new(Noting {
            transcript: Transcript::new(protocol),
            notes: notes.clone(),
        }));
        let verified = Self {
            kind,
            id: id.clone(),
            notes: std::mem::take(&mut *notes.lock().unwrap()),
            terms,
            lookups: (0, 0),
            rows: (0, 0),
            requests: 0,
        };
        (result, verified)
    }

    fn draws<'a>(&'a self, label: &'a str) -> impl Iterator<Item = &'a Draw> {
        self.notes.draws.iter().filter(move |d| d.label == label)
    }

    /// Values of 16 bytes that were sent under a label.
    fn values(&self, label: &str) -> usize {
        self.notes
            .messages
            .get(label)
            .map_or(0, |(_, bytes)| bytes / 16)
    }

    /// For how many values of each challenge under a label a lie passes at most, one entry for each draw or one for all of
    /// them; and for positions the bits of one draw.
    fn degrees(&self, label: &str) -> Vec<f64> {
        let p = &self.id.params;
        let n = f64::from(p.log_code).exp2();
        let count = self.draws(label).count();
        let drawn: usize = self.draws(label).map(|d| d.n).sum();
        let each = |degree: usize| vec![degree as f64; count];
        let (cells, width) = self.lookups;
        let (rows, of) = self.rows;
        let about_pads = || {
            let (log_code, symbols) = self
                .draws("pads positions")
                .map(|d| (d.log_size, f64::from(d.log_size).exp2()))
                .next()
                .unwrap();
            assert!(log_code > 0);
            (symbols, self.values("pads rows") as f64)
        };
        match label {
            "beta" => each(rows * (of - 1)),
            // Each coordinate is a variable of at least one equation, or of a tensor.
            "tau" | "tau2" | "point of a tensor" => self.draws(label).map(|d| d.n as f64).collect(),
            "block point" | "block cells" => each(self.requests * drawn),
            "block fold" => each(self.requests * 3),
            "block batching" => each(self.requests - 1),
            // Numerators of a sum of fractions, whose keys have the degree of a tuple in delta.
            "alpha" => each((cells - 1) * width),
            "delta" | "opening: z" => each(0),
            "gkr child"
            | "gkr lambda"
            | "pads coefficients of linear statements"
            | "pads coefficients of products" => each(1),
            "gkr point" => each(3),
            // All products of the relation, less the one of each sumcheck that has coefficient one.
            "sumcheck batching" => vec![(self.values("sums of products") - count) as f64],
            // A round's polynomial is sent at all of its degree's nodes but one.
            "sumcheck" => vec![self.values("sumcheck rounds") as f64],
            "opening: gamma" => each(self.claims() - 1),
            "opening: rho" => each(2),
            "opening: b" => vec![n * drawn as f64],
            "opening: e" => each(2).into_iter().map(|values| 2.0 * n + values).collect(),
            "whir batching" => vec![(p.queries + 1) as f64, p.queries as f64],
            "whir folding" => self.foldings().map(|domain| 2.0 + domain).collect(),
            "whir query batching" => {
                // As many as the positions before it.
                let mut last = 0;
                let in_order = self.notes.draws.iter().filter_map(|d| {
                    if d.label == "whir positions" {
                        last = d.n;
                    }
                    (d.label == label).then_some(last as f64)
                });
                in_order.collect()
            }
            "pads coefficients of rows" => {
                let (n, k) = about_pads();
                vec![n + (n - k) / 2.0]
            }
            _ => panic!("{}: no degree of `{label}`", self.kind),
        }
    }

    /// Claims of the opening.
    fn claims(&self) -> usize {
        match self.kind {
            // One for each value of a tensor, in two trees.
            "rotation" => 2 * self.values("values of the tensors"),
            _ => self.values("evaluations") + self.values("block parts"),
        }
    }

    /// Sizes of the domains to which WHIR folds, for both of its instances.
    fn foldings(&self) -> impl Iterator<Item = f64> {
        let of = |whir: &WhirParams| {
            let (mut size, mut domain) = (whir.log_size, whir.log_size + whir.log_inv_rate);
            let mut out = Vec::new();
            while size > whir.final_log_size {
                let folding = whir.folding.min(size - whir.final_log_size);
                out.extend((1..=folding).map(|j| f64::from(domain - j).exp2()));
                (size, domain) = (size - folding, domain - 1);
            }
            out
        };
        let p = &self.id.params;
        [of(&p.whir_data), of(&p.whir_tail)].into_iter().flatten()
    }

    /// The bits that sets of positions have, work included, one entry for each draw.
    fn position_bits(&self, label: &str) -> Vec<f64> {
        let p = &self.id.params;
        let whir_rates = || {
            [&p.whir_data, &p.whir_tail].into_iter().flat_map(|whir| {
                let rounds = 0..whir.log_size;
                let rate = move |round: u32| {
                    // Each round binds some variables and halves the domain.
                    let bound: u32 = (round * whir.folding).min(whir.log_size);
                    let left = whir.log_size - bound;
                    (left > whir.final_log_size)
                        .then(|| -f64::from(whir.log_inv_rate + bound - round))
                };
                rounds.map_while(rate).map(f64::exp2)
            })
        };
        let agreeing: Vec<f64> = match label {
            "opening: positions" => vec![p.rate()],
            "whir positions" => whir_rates().collect(),
            _ => {
                let k = self.values("pads rows") as f64;
                let rates = self.draws(label).map(|d| k / f64::from(d.log_size).exp2());
                rates.collect()
            }
        };
        let draws: Vec<&Draw> = self.draws(label).collect();
        assert_eq!(
            agreeing.len(),
            draws.len(),
            "{}: rates of `{label}`",
            self.kind
        );
        let bits = |(rate, draw): (f64, &&Draw)| {
            let chance: f64 = if label == "pads positions" {
                // They are distinct, and products may be right at more of them than rows.
                let n = f64::from(draw.log_size).exp2();
                let passing = f64::midpoint(n, rate * n).floor().max(2.0 * rate * n - 2.0);
                let before = (0..draw.n).map(|i| i as f64);
                before.map(|i| ((passing - i) / (n - i)).log2()).sum()
            } else {
                f64::midpoint(1.0, rate).log2() * draw.n as f64
            };
            f64::from(draw.work) - chance
        };
        agreeing.into_iter().zip(&draws).map(bits).collect()
    }

    /// The terms that a name of the table means.
    fn named(&self, name: &str) -> Vec<&Term> {
        self.terms
            .iter()
            .filter(|t| short(&t.name) == name)
            .collect()
    }

    /// What the terms leave for lies, in units of one value of a challenge: work makes it less.
    fn left(&self, names: &[&str]) -> f64 {
        let terms = names.iter().flat_map(|name| self.named(name));
        terms.map(|t| (field_bits() - t.bits).exp2()).sum()
    }
}

/// The name of a term without the instance, round and variable of WHIR.
fn short(name: &str) -> String {
    let name = name
        .trim_start_matches("data part: ")
        .trim_start_matches("tail part: ");
    let parts = name
        .split(", ")
        .map(|part| part.split(' ').collect::<Vec<_>>());
    let kept: Vec<String> = parts
        .filter(|words| words[0] != "variable")
        .map(|words| match words[..] {
            ["WHIR", "round", _] => "WHIR".to_owned(),
            _ => words.join(" "),
        })
        .collect();
    if kept[0] == "WHIR" {
        format!("WHIR {}", kept[1..].join(", "))
    } else {
        kept.join(", ")
    }
}

fn copy(key: &Key) -> Key {
    Key::decode(&key.encode()).unwrap()
}

/// Rows so long that WHIR has several rounds for both parts.
fn params() -> Params {
    let params = Params {
        whir_data: WhirParams {
            final_log_size: 4,
            ..WhirParams::new(12, 4, 107)
        },
        ..Params::choose(1 << 18, 8)
    };
    assert_eq!(params.log_row, 12);
    let tail = params.model_tail.trailing_zeros();
    Params {
        whir_tail: WhirParams {
            final_log_size: 4,
            ..WhirParams::new(tail, 4, 107)
        },
        ..params
    }
}

fn batch(by: &Committed) -> Verified {
    let replies = [answer(&by.model, &[3, 5, 7], 4), answer(&by.model, &[2], 3)];
    let padding = Padding::default();
    let (model, id) = (&by.model, &by.id);
    let made = prove(
        model,
        id,
        &mut by.key(),
        &replies,
        padding,
        [9; 32],
        &mut NoHook,
    )
    .unwrap();
    let mut reader = Reader::new(&made.proof);
    let (digest, header) = read_proof_header(&mut reader, &id.header).unwrap();
    let messages = reader.raw(reader.remaining(), "messages").unwrap();
    let forecast = Forecast::new(id, &header).unwrap();
    let start = verify::parameters(&digest, &header);
    let (accepted, mut verified) = Verified::under("batch", id, verify::PROTOCOL, |oracle| {
        let channel = VerifierChannel::under(oracle, &start, Box::new(Reader::new(messages)));
        let accepted = verify::verify_messages(id, header.clone(), channel).unwrap();
        let terms = accepted.soundness.clone();
        (accepted, terms)
    });
    assert_eq!(forecast.soundness, verified.terms);
    let relation = olmoe::relation(&id.header);
    let shape = accepted.header.shape;
    let (positions, loads): (usize, usize) = (
        shape.lengths.iter().sum(),
        shape.blocks.iter().map(|b| b.2).sum(),
    );
    let dims = Dims::new(id.header.sizes.clone(), shape.clone());
    let widths = relation.lookups.iter().map(|l| l.tuple.len());
    let cells = relation.lookups.iter().map(|l| dims.shape(&l.out).len());
    verified.lookups = (cells.sum(), widths.max().unwrap());
    // Tokens and rows of the embedding, rows of experts and positions, decoded rows and positions.
    verified.rows = (positions + loads + shape.decoded, dims.size(Label::Hidden));
    verified.requests = shape.lengths.len();
    verified
}

fn certified(by: &Committed) -> Verified {
    let id = &by.id;
    let made = certify(&by.model, id, &mut by.key(), [4; 32], &mut NoHook).unwrap();
    let mut reader = Reader::new(&made.bytes);
    let digest = read_certificate_header(&mut reader).unwrap();
    let messages = reader.raw(reader.remaining(), "messages").unwrap();
    let plan = Plan::new(id).unwrap();
    let ((), mut verified) = Verified::under("certificate", id, certificate::PROTOCOL, |oracle| {
        let channel = VerifierChannel::under(oracle, &digest, Box::new(Reader::new(messages)));
        (
            (),
            certificate::verify_messages(id, &plan, channel).unwrap(),
        )
    });
    assert_eq!(certificate::forecast(id).unwrap(), verified.terms);
    // Two digits for each weight, and both tables.
    let weights = by.model.parameters() as usize;
    verified.lookups = (2 * weights + (1 << 8) + (1 << 16), 1);
    verified
}

fn rotated(by: &Committed) -> Verified {
    let key = by.key();
    let from = Side {
        model: &by.model,
        id: &by.id,
        key: &key,
    };
    let (id, new_key, _) = recommit(&from, [5; 32], &|_, _| ()).unwrap();
    let to = Side {
        model: &by.model,
        id: &id,
        key: &new_key,
    };
    let parts = (new_key.id(), new_key.seed(), new_key.tree().clone());
    let (_, permit) = Key::new(parts.0, parts.1, parts.2, 1, 0)
        .of_rotation()
        .unwrap();
    let permits = [
        copy(&key).spend_with(Opening::Rotation, [7; 32]).unwrap(),
        permit,
    ];
    let made = rotate::prove(&from, &to, permits, [6; 32], &mut NoHook).unwrap();
    let mut reader = Reader::new(&made.proof);
    let digests = read_rotation_header(&mut reader).unwrap();
    let messages = reader.raw(reader.remaining(), "messages").unwrap();
    let start = rotation::parameters(&digests);
    let ((), verified) = Verified::under("rotation", &by.id, rotation::PROTOCOL, |oracle| {
        let channel = VerifierChannel::under(oracle, &start, Box::new(Reader::new(messages)));
        let accepted = rotation::verify_messages(&by.id, &id, channel).unwrap();
        ((), accepted.soundness)
    });
    assert_eq!(rotation::forecast(&by.id).unwrap(), verified.terms);
    verified
}

#[test]
fn every_challenge_has_a_term_and_every_term_a_challenge() {
    let by = Committed::with(micro(), params(), [3; 32]);
    let all = [batch(&by), certified(&by), rotated(&by)];
    let table: BTreeMap<&str, &[&str]> = COVERED.into_iter().collect();
    assert_eq!(table.len(), COVERED.len(), "a label has two rows");
    let mut seen: BTreeSet<&str> = BTreeSet::from([""]);
    for verified in &all {
        let kind = verified.kind;
        for draw in &verified.notes.draws {
            let row = table.get_key_value(draw.label.as_str());
            let (label, names) =
                row.unwrap_or_else(|| panic!("{kind}: `{}` has no row", draw.label));
            seen.insert(label);
            for name in *names {
                assert!(!verified.named(name).is_empty(), "{kind}: no term `{name}`");
            }
        }
        let covered: BTreeSet<&str> = table
            .values()
            .flat_map(|names| names.iter().copied())
            .collect();
        for term in &verified.terms {
            let name = short(&term.name);
            assert!(
                covered.contains(name.as_str()),
                "{kind}: `{}` covers no label",
                term.name
            );
            let drawn = COVERED.iter().any(|(label, names)| {
                let own = names.contains(&name.as_str());
                own && (label.is_empty() || verified.draws(label).next().is_some())
            });
            assert!(
                drawn,
                "{kind}: nothing was drawn that `{}` covers",
                term.name
            );
        }
        let names: BTreeSet<&str> = verified.terms.iter().map(|t| t.name.as_str()).collect();
        assert_eq!(
            names.len(),
            verified.terms.len(),
            "{kind}: two terms of one name"
        );
        counted(verified);
    }
    let unseen: Vec<&&str> = table
        .keys()
        .filter(|label| !seen.contains(*label))
        .collect();
    assert!(unseen.is_empty(), "never drawn: {unseen:?}");
}

/// The draws of a verification against the sizes of its terms. Labels that share a term are added up.
fn counted(verified: &Verified) {
    let kind = verified.kind;
    let mut groups: BTreeMap<&[&str], f64> = BTreeMap::new();
    for (label, names) in COVERED {
        let draws: Vec<&Draw> = verified.draws(label).collect();
        if draws.is_empty() || names.is_empty() {
            continue;
        }
        if draws[0].log_size > 0 {
            // Positions: each set against a term of its own.
            let mut drawn = verified.position_bits(label);
            let mut terms: Vec<f64> = verified.named(names[0]).iter().map(|t| t.bits).collect();
            assert_eq!(drawn.len(), terms.len(), "{kind}: `{label}`");
            drawn.sort_by(f64::total_cmp);
            terms.sort_by(f64::total_cmp);
            for (drawn, term) in drawn.iter().zip(&terms) {
                assert!(
                    (term - drawn).abs() <= 1e-6,
                    "{kind}: {draws:?} are worth {drawn} bits, their term has {term}"
                );
            }
            continue;
        }
        let degrees = verified.degrees(label);
        let works: Vec<u32> = draws.iter().map(|d| d.work).collect();
        let passing: f64 = if degrees.len() == draws.len() {
            let each = degrees.iter().zip(&works);
            each.map(|(degree, &work)| degree * (-f64::from(work)).exp2())
                .sum()
        } else {
            assert!(
                works.iter().all(|w| *w == works[0]),
                "{kind}: work before `{label}`"
            );
            degrees.iter().sum::<f64>() * (-f64::from(works[0])).exp2()
        };
        *groups.entry(names).or_default() += passing;
    }
    for (names, passing) in groups {
        let left = verified.left(names);
        println!("{kind}, {names:?}: {passing:.4} of {left:.4}");
        assert!(
            passing <= left * (1.0 + 1e-6),
            "{kind}: lies pass for {passing} values of what {names:?} leave {left}"
        );
    }
}

#[test]
fn names_of_terms_are_shortened_as_the_table_has_them() {
    for (name, expected) in [
        (
            "data part: WHIR round 2, variable 3, folding",
            "WHIR folding",
        ),
        (
            "tail part: WHIR batching of claims",
            "WHIR batching of claims",
        ),
        ("data part: WHIR round 0, queries", "WHIR queries"),
        (
            "data part: WHIR round 1, batching of queries",
            "WHIR batching of queries",
        ),
        ("blocks of requests, joined", "blocks of requests, joined"),
        ("lookups: poles and keys", "lookups: poles and keys"),
    ] {
        assert_eq!(short(name), expected);
    }
}
