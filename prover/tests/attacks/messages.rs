//! Attacks on the conversation itself: a message that no challenge depends on, a challenge that is drawn too early, a
//! message that is changed, dropped, repeated or exchanged, rows that are opened elsewhere, work that was not done.
//!
//! The messages are those that a verifier asks for while it reads an honest proof, so a new one cannot be forgotten. In
//! the first two kinds the prover's transcript leaves a message out, or takes it in after the next challenge. A verifier
//! whose transcript did the same would accept; this one must not.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use zkmoe_commit::channel::{Oracle, Reject, Source, VerifierChannel};
use zkmoe_commit::codec::{DecodeError, Reader};
use zkmoe_commit::field::{K, MODULUS};
use zkmoe_commit::transcript::Transcript;
use zkmoe_prover::prove::{BatchProof, Hook, NoHook};
use zkmoe_verifier::batch::{BatchHeader, read_proof_header};
use zkmoe_verifier::verify::{PROTOCOL, parameters, verify_batch, verify_messages};

use crate::case::{Case, accepted_with_foresight, case, demand, rejected, tried};
use crate::common::programmed::Workless;
use crate::common::{Committed, answer, dishonest, micro, trace_of};
use crate::scene::{LOADS, scene};

/// Something that a verifier's oracle was asked.
#[derive(Debug, Clone)]
enum Event {
    /// A message was read: its label and length.
    Read(String, usize),
    /// The transcript took something in: a message that was read, or what both sides know.
    Absorbed(String, Vec<u8>),
    /// Challenges: label and answer.
    Drawn(String, Vec<K>),
    /// Positions: label and answer.
    Opened(String, Vec<usize>),
    /// Work: label and bits.
    Worked(String, u32),
}

/// A transcript that notes all that it is asked.
struct Noting {
    inner: Transcript,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Noting {
    fn note(&self, event: Event) {
        self.events.lock().unwrap().push(event);
    }
}

impl Oracle for Noting {
    fn absorb(&mut self, label: &str, data: &[u8]) {
        self.inner.absorb(label, data);
        self.note(Event::Absorbed(label.into(), data.into()));
    }
    fn challenges(&mut self, label: &str, n: usize) -> Vec<K> {
        let drawn = self.inner.challenges(label, n);
        self.note(Event::Drawn(label.into(), drawn.clone()));
        drawn
    }
    fn positions(&mut self, label: &str, n: usize, log_size: u32) -> Vec<usize> {
        let opened = self.inner.positions(label, n, log_size);
        self.note(Event::Opened(label.into(), opened.clone()));
        opened
    }
    fn accepts(&self, label: &str, bits: u32, nonce: u64) -> bool {
        self.note(Event::Worked(label.into(), bits));
        self.inner.accepts(label, bits, nonce)
    }
}

/// The messages of a proof, noting which are read.
struct NotingReader<'a> {
    inner: Reader<'a>,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Source for NotingReader<'_> {
    fn message(&mut self, label: &'static str, bytes: usize) -> Result<Cow<'_, [u8]>, DecodeError> {
        let mut events = self.events.lock().unwrap();
        events.push(Event::Read(label.into(), bytes));
        self.inner.raw(bytes, label).map(Cow::Borrowed)
    }
    fn finish(&mut self) -> Result<(), DecodeError> {
        self.inner.clone().finish()
    }
}

/// The challenges of an honest proof again, whatever is said.
struct Replayed {
    answers: std::vec::IntoIter<Event>,
}

impl Replayed {
    fn new(events: &[Event]) -> Self {
        let answers = events
            .iter()
            .filter(|e| matches!(e, Event::Drawn(..) | Event::Opened(..)));
        Self {
            answers: answers.cloned().collect::<Vec<_>>().into_iter(),
        }
    }
}

impl Oracle for Replayed {
    fn absorb(&mut self, _: &str, _: &[u8]) {}
    fn challenges(&mut self, label: &str, n: usize) -> Vec<K> {
        match self.answers.next() {
            Some(Event::Drawn(asked, drawn)) if asked == label && drawn.len() == n => drawn,
            other => panic!("challenges `{label}` where the honest proof has {other:?}"),
        }
    }
    fn positions(&mut self, label: &str, n: usize, _: u32) -> Vec<usize> {
        match self.answers.next() {
            Some(Event::Opened(asked, opened)) if asked == label && opened.len() == n => opened,
            other => panic!("positions `{label}` where the honest proof has {other:?}"),
        }
    }
    fn accepts(&self, _: &str, _: u32, _: u64) -> bool {
        true
    }
}

/// What a prover may do wrong with one label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// No challenge depends on the message.
    Unheard,
    /// The message is taken in after the next challenge.
    Late,
    /// Positions are exchanged for their neighbours.
    Neighbours,
    /// Any nonce will do.
    Idle,
}

/// A transcript with a fault.
struct Faulty {
    inner: Transcript,
    fault: Fault,
    label: String,
    held: Vec<Vec<u8>>,
}

impl Faulty {
    fn new(protocol: &str, fault: Fault, label: &str) -> Self {
        Self {
            inner: Transcript::new(protocol),
            fault,
            label: label.into(),
            held: Vec::new(),
        }
    }

    fn release(&mut self) {
        for data in core::mem::take(&mut self.held) {
            self.inner.absorb(&self.label, &data);
        }
    }
}

impl Oracle for Faulty {
    fn absorb(&mut self, label: &str, data: &[u8]) {
        match self.fault {
            Fault::Unheard if label == self.label => {}
            Fault::Late if label == self.label => self.held.push(data.into()),
            _ => self.inner.absorb(label, data),
        }
    }
    fn challenges(&mut self, label: &str, n: usize) -> Vec<K> {
        let drawn = self.inner.challenges(label, n);
        self.release();
        drawn
    }
    fn positions(&mut self, label: &str, n: usize, log_size: u32) -> Vec<usize> {
        let mut opened = self.inner.positions(label, n, log_size);
        self.release();
        if self.fault == Fault::Neighbours && label == self.label {
            opened.iter_mut().for_each(|p| *p ^= 1);
            opened.sort_unstable();
        }
        opened
    }
    fn accepts(&self, label: &str, bits: u32, nonce: u64) -> bool {
        // Only where one label's work is at stake is any other asked for.
        self.fault != Fault::Idle || label == self.label || self.inner.accepts(label, bits, nonce)
    }
}

impl Hook for Faulty {
    fn oracle(&mut self, protocol: &str) -> Box<dyn Oracle> {
        Box::new(Faulty::new(protocol, self.fault, &self.label))
    }
}

/// An honest proof, and what its verifier's oracle was asked.
struct Heard {
    batch: BatchProof,
    header: BatchHeader,
    /// Where the messages begin.
    start: usize,
    events: Vec<Event>,
}

impl Heard {
    fn new(by: &Committed, batch: BatchProof) -> Self {
        let mut reader = Reader::new(&batch.proof);
        let (_, header) = read_proof_header(&mut reader, &by.id.header).unwrap();
        let start = batch.proof.len() - reader.remaining();
        let events = Arc::new(Mutex::new(Vec::new()));
        let noting = Noting {
            inner: Transcript::new(PROTOCOL),
            events: events.clone(),
        };
        let messages = NotingReader {
            inner: reader,
            events: events.clone(),
        };
        let parameters = parameters(&by.id.digest(), &header);
        let channel = VerifierChannel::under(Box::new(noting), &parameters, Box::new(messages));
        assert_eq!(judge(by, &header, channel), None);
        let events = events.lock().unwrap().clone();
        Self {
            batch,
            header,
            start,
            events,
        }
    }

    fn messages(&self) -> &[u8] {
        &self.batch.proof[self.start..]
    }

    /// Where each message lies, by its label.
    fn places(&self) -> BTreeMap<&str, Vec<(usize, usize)>> {
        let mut places: BTreeMap<&str, Vec<(usize, usize)>> = BTreeMap::new();
        let mut at = 0;
        for event in &self.events {
            if let Event::Read(label, bytes) = event {
                places.entry(label).or_default().push((at, *bytes));
                at += bytes;
            }
        }
        places.retain(|_, places| places.iter().any(|p| p.1 > 0));
        places
    }

    /// Every byte is taken in by the transcript, where it is read and before anything is drawn.
    fn all_is_heard(&self) -> Result<(), String> {
        let (mut at, mut events) = (0, self.events.iter());
        while let Some(event) = events.next() {
            let Event::Read(label, bytes) = event else {
                continue;
            };
            let message = &self.messages()[at..at + bytes];
            let next = events.by_ref().find(|e| !matches!(e, Event::Worked(..)));
            let heard =
                matches!(next, Some(Event::Absorbed(l, data)) if l == label && data == message);
            demand(heard, || format!("after `{label}` comes {next:?}"))?;
            at += bytes;
        }
        demand(at == self.messages().len(), || {
            "some bytes are not read".into()
        })
    }
}

/// Three replies under parameters for lies.
fn heard() -> &'static Heard {
    static HEARD: OnceLock<Heard> = OnceLock::new();
    HEARD.get_or_init(|| {
        let scene = scene();
        let batch = dishonest(&scene.by, &scene.replies, &scene.trace, &mut NoHook);
        Heard::new(&scene.by, batch)
    })
}

/// The verdict on messages; `None` if nothing but the policy is against them.
fn verdict(
    by: &Committed,
    header: &BatchHeader,
    messages: &[u8],
    oracle: Box<dyn Oracle + '_>,
) -> Option<Reject> {
    let parameters = parameters(&by.id.digest(), header);
    let channel = VerifierChannel::under(oracle, &parameters, Box::new(Reader::new(messages)));
    judge(by, header, channel)
}

/// The verdict under the transcript.
fn honest_verdict(by: &Committed, header: &BatchHeader, messages: &[u8]) -> Option<Reject> {
    verdict(by, header, messages, Box::new(Transcript::new(PROTOCOL)))
}

fn judge(by: &Committed, header: &BatchHeader, channel: VerifierChannel<'_>) -> Option<Reject> {
    match verify_messages(&by.id, header.clone(), channel) {
        Ok(_) => None,
        Err(Reject::Check(check)) if check.starts_with("soundness: ") => None,
        Err(reject) => Some(reject),
    }
}

/// What rejects, by its name.
fn name(reject: &Reject) -> String {
    match reject {
        Reject::Check(check) => check.clone(),
        Reject::Malformed(_) => "malformed".into(),
    }
}

/// Proves with a faulty transcript. The verifier rejects, unless its own has the fault too.
fn faulty(fault: Fault, label: &str) -> Result<(), String> {
    let scene = scene();
    let mut hook = Faulty::new(PROTOCOL, fault, label);
    let batch = dishonest(&scene.by, &scene.replies, &scene.trace, &mut hook);
    let (header, messages) = (&heard().header, &batch.proof[heard().start..]);
    tried(1);
    let Some(found) = verdict(&scene.by, header, messages, Box::new(Workless::new())) else {
        return Err(format!("accepted with `{label}` {fault:?}"));
    };
    // A change of challenges shows where something is opened, or where work was done.
    let shows = ["opening: ", "pads: ", "WHIR: ", "proof of work: ", "Merkle"];
    demand(
        shows.iter().any(|check| name(&found).starts_with(check)),
        || format!("rejected by {found}"),
    )?;
    rejected(&name(&found));
    let alike = Box::new(Faulty::new(PROTOCOL, fault, label));
    let same = verdict(&scene.by, header, messages, alike);
    demand(same.is_none(), || {
        format!("a verifier with the same fault says {same:?}")
    })?;
    accepted_with_foresight();
    Ok(())
}

/// The check that rejects each message if it is changed where the challenges stay those of the honest proof; `None` for
/// nonces, which nothing but the transcript binds.
const BINDINGS: [(&str, Option<&str>); 43] = [
    ("pads root", Some("pads: leaf of the tree of pads")),
    ("first root", Some("opening: leaf of the tree of round 1")),
    ("work before the first challenges", None),
    ("second root", Some("opening: leaf of the tree of round 2")),
    ("work before the lookups", None),
    ("block evaluations", Some("pads: linear statements")),
    ("block parts", Some("pads: linear statements")),
    ("gkr root", Some("pads: linear statements")),
    ("gkr inverse", Some("pads: linear statements")),
    ("gkr round", Some("pads: linear statements")),
    ("gkr node", Some("pads: linear statements")),
    ("evaluations", Some("pads: linear statements")),
    ("sums of products", Some("pads: linear statements")),
    ("sumcheck rounds", Some("pads: linear statements")),
    ("opening: sumcheck", Some("pads: linear statements")),
    ("opening: work before b", None),
    (
        "opening: values of mask and proximity row",
        Some("pads: linear statements"),
    ),
    ("opening: work before e", None),
    ("opening: data part at rho", Some("WHIR: final sum")),
    ("opening: parts at z", Some("WHIR: final sum")),
    ("opening: work before the positions", None),
    (
        "opening: symbols of the model",
        Some("opening: leaf of the model tree"),
    ),
    (
        "opening: siblings of the model",
        Some("opening: leaf of the model tree"),
    ),
    (
        "opening: symbols of round 1",
        Some("opening: leaf of the tree of round 1"),
    ),
    (
        "opening: siblings of round 1",
        Some("opening: leaf of the tree of round 1"),
    ),
    (
        "opening: symbols of round 2",
        Some("opening: leaf of the tree of round 2"),
    ),
    (
        "opening: siblings of round 2",
        Some("opening: leaf of the tree of round 2"),
    ),
    (
        "opening: parts at the positions",
        Some("opening: combined row at a queried position"),
    ),
    ("whir root", Some("Merkle opening `whir paths`")),
    ("whir sumcheck", Some("WHIR: final sum")),
    ("whir work", None),
    ("whir leaves", Some("Merkle opening `whir paths`")),
    ("whir paths", Some("Merkle opening `whir paths`")),
    (
        "whir final polynomial",
        Some("WHIR: final polynomial at a queried position"),
    ),
    (
        "pads root of products",
        Some("pads: leaf of the tree of products"),
    ),
    ("pads rows", Some("pads: rows at an opened position")),
    ("pads linear statements", Some("pads: linear statements")),
    ("pads products", Some("pads: products")),
    ("pads work before the positions", None),
    (
        "pads columns of pads",
        Some("pads: leaf of the tree of pads"),
    ),
    (
        "pads siblings of pads",
        Some("pads: leaf of the tree of pads"),
    ),
    (
        "pads columns of products",
        Some("pads: leaf of the tree of products"),
    ),
    (
        "pads siblings of products",
        Some("pads: leaf of the tree of products"),
    ),
];

/// Changes of a message: a bit of its first, a middle and its last word.
fn changed(messages: &[u8], (at, len): (usize, usize)) -> Vec<Vec<u8>> {
    let words = len / 8;
    let mut places = vec![0, words / 2, words - 1];
    places.dedup();
    let mut all: Vec<Vec<u8>> = places
        .into_iter()
        .map(|word| {
            let mut changed = messages.to_vec();
            changed[at + 8 * word] ^= 1;
            changed
        })
        .collect();
    let mut zero = messages.to_vec();
    zero[at..at + len].fill(0);
    if zero != messages {
        all.push(zero);
    }
    all
}

fn change(label: &str) -> Result<(), String> {
    let (scene, heard) = (scene(), heard());
    let places = &heard.places()[label];
    let picks = [0, places.len() / 2, places.len() - 1];
    let mut picks: Vec<_> = picks
        .iter()
        .map(|&n| places[n])
        .filter(|p| p.1 > 0)
        .collect();
    picks.dedup();
    let binding = BINDINGS.iter().find(|(named, _)| *named == label);
    let (_, binding) = binding.ok_or_else(|| format!("nothing is said to bind `{label}`"))?;
    for place in picks {
        for messages in changed(heard.messages(), place) {
            tried(1);
            let found = honest_verdict(&scene.by, &heard.header, &messages);
            let Some(found) = found else {
                return Err(format!("`{label}` at {place:?} may be changed"));
            };
            rejected(&name(&found));
            let replayed = Replayed::new(&heard.events);
            let found = verdict(&scene.by, &heard.header, &messages, Box::new(replayed));
            let found = found.as_ref().map(name);
            demand(found.as_deref() == *binding, || {
                format!("with the honest challenges `{label}` is bound by {found:?}")
            })?;
            match found {
                Some(check) => rejected(&check),
                None => accepted_with_foresight(),
            }
        }
    }
    Ok(())
}

/// Some of the messages with one label, the first and the last among them: those of large arguments are hundreds.
fn some(places: &[(usize, usize)]) -> impl Iterator<Item = (usize, usize)> {
    const MOST: usize = 16;
    let n = places.len();
    let mut picks: Vec<usize> = (0..MOST).map(|i| i * (n - 1) / (MOST - 1)).collect();
    picks.dedup();
    picks.into_iter().map(|n| places[n])
}

/// A message that is left out, said twice, or exchanged with the one after it.
fn rearrange(label: &str) -> Result<(), String> {
    let (scene, heard) = (scene(), heard());
    let messages = heard.messages();
    for (at, len) in some(&heard.places()[label]) {
        let (before, message, after) = (
            &messages[..at],
            &messages[at..at + len],
            &messages[at + len..],
        );
        let next = &after[..len.min(after.len())];
        let mut ways = vec![
            ("left out", [before, after].concat()),
            ("said twice", [before, message, message, after].concat()),
        ];
        if next.len() == len && next != message {
            let rest = &after[next.len()..];
            ways.push(("exchanged", [before, next, message, rest].concat()));
        }
        for (way, messages) in ways {
            tried(1);
            let found = honest_verdict(&scene.by, &heard.header, &messages);
            let Some(found) = found else {
                return Err(format!("`{label}` at {at} may be {way}"));
            };
            rejected(&name(&found));
        }
    }
    Ok(())
}

/// Words that are no elements of the field, in place of each message of elements.
fn not_canonical(label: &str) -> Result<(), String> {
    let (scene, heard) = (scene(), heard());
    for (at, len) in some(&heard.places()[label]) {
        for word in [MODULUS, MODULUS + 1, u64::MAX] {
            for place in [0, len / 8 - 1] {
                tried(1);
                let mut messages = heard.messages().to_vec();
                messages[at + 8 * place..][..8].copy_from_slice(&word.to_le_bytes());
                let found = honest_verdict(&scene.by, &heard.header, &messages);
                demand(matches!(found, Some(Reject::Malformed(_))), || {
                    format!("`{label}` at {at} may be {word:#x}: {found:?}")
                })?;
                rejected("malformed");
            }
        }
    }
    Ok(())
}

/// A proof without the work that its label asks for, under the parameters of a provider.
fn idle(label: &str) -> Result<(), String> {
    let by = real();
    let replies = [answer(&by.model, &[3, 5, 7], 3)];
    let trace = trace_of(&by.model, &replies, LOADS);
    let mut hook = Faulty::new(PROTOCOL, Fault::Idle, label);
    let batch = dishonest(by, &replies, &trace, &mut hook);
    tried(1);
    let found = verify_batch(&by.id, &batch.proof)
        .err()
        .map(|e| e.to_string());
    let check = format!("proof of work: {label}");
    demand(found.as_deref() == Some(&check), || {
        format!("rejected by {found:?}, not by `{check}`")
    })?;
    rejected(&check);
    Ok(())
}

fn real() -> &'static Committed {
    static REAL: OnceLock<Committed> = OnceLock::new();
    REAL.get_or_init(|| Committed::new(micro()))
}

/// The labels of work under the parameters of a provider that ask for some.
fn works() -> Vec<String> {
    let by = real();
    let replies = [answer(&by.model, &[3, 5, 7], 3)];
    let trace = trace_of(&by.model, &replies, LOADS);
    let batch = dishonest(by, &replies, &trace, &mut NoHook);
    let mut labels: Vec<String> = Heard::new(by, batch)
        .events
        .into_iter()
        .filter_map(|event| match event {
            Event::Worked(label, bits) if bits > 0 => Some(label),
            _ => None,
        })
        .collect();
    labels.sort();
    labels.dedup();
    labels
}

/// Cases for every label that an honest proof has.
pub fn cases() -> Vec<Case> {
    let heard = heard();
    let mut cases = Vec::new();
    let places = heard.places();
    let labels: Vec<String> = places.keys().map(|&l| l.to_owned()).collect();
    let mut add = |kind, fault: fn(&str) -> Result<(), String>, label: &String| {
        let own = label.clone();
        cases.push(case(kind, label, move || fault(&own)));
    };
    // What comes after the last challenge is bound by what it opens.
    let drawn = |e: &Event| matches!(e, Event::Drawn(..) | Event::Opened(..));
    let last = heard.events.iter().rposition(drawn).expect("challenges");
    let mut taken_in: Vec<&String> = heard.events[..last]
        .iter()
        .filter_map(|event| match event {
            Event::Absorbed(label, data) if !data.is_empty() => Some(label),
            _ => None,
        })
        .collect();
    taken_in.sort();
    taken_in.dedup();
    for label in taken_in {
        add("unheard message", |l| faulty(Fault::Unheard, l), label);
        add("late message", |l| faulty(Fault::Late, l), label);
    }
    for label in &labels {
        add("changed message", change, label);
        add("rearranged message", rearrange, label);
        let elements = !["root", "sibling", "path", "work"]
            .iter()
            .any(|w| label.contains(w));
        if elements {
            add("element beyond the field", not_canonical, label);
        }
    }
    let mut opened: Vec<&String> = heard
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Opened(label, _) => Some(label),
            _ => None,
        })
        .collect();
    opened.sort();
    opened.dedup();
    for label in opened {
        add(
            "neighbouring positions",
            |l| faulty(Fault::Neighbours, l),
            label,
        );
    }
    for label in works() {
        add("work not done", idle, &label);
    }
    cases.push(case(
        "control",
        "the transcript takes in all that is read",
        || self::heard().all_is_heard(),
    ));
    cases
}
