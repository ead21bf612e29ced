//! Proofs tell nothing but what is public. A simulator without weights and tokens makes proofs that cannot be told from
//! true ones; proofs of two models look alike; every source of randomness is needed; and what is revealed of each
//! row is less than its randomness.
//!
//! Challenges are programmed, the same in all proofs that are compared. So whatever is the same in honest proofs, or depends on
//! the witness, shows, and all that is left is the provider's randomness.

#[path = "../common/mod.rs"]
mod common;
mod controls;
mod rank;
mod simulator;
mod statistics;
mod view;

use std::sync::OnceLock;

use rayon::prelude::*;
use zkmoe_commit::channel::Oracle;
use zkmoe_commit::params::Params;
use zkmoe_commit::transcript::Transcript;
use zkmoe_commit::whir::WhirParams;
use zkmoe_prover::commitment::commit;
use zkmoe_prover::key::{self, Key};
use zkmoe_prover::model::Model;
use zkmoe_prover::prove::{BatchProof, Hook, Purpose, Reply, prove_trace};
use zkmoe_prover::trace::{Loads, Padding, RequestTokens, Trace, build_trace};
use zkmoe_verifier::id::ModelId;
use zkmoe_verifier::relation::BatchShape;
use zkmoe_verifier::verify::{Ended, PROTOCOL, VerifyError, check_slip, verify_batch};

use common::programmed::{Dice, Programmed};
use common::{answer, edited, micro, quick_params};
use simulator::FakeModel;
use statistics::{LIMIT, Sample};
use view::{Seen, listen, rejection, view};

/// Views of each kind that are compared.
const VIEWS: u64 = 128;
/// The oracle of all proofs that are compared.
const ORACLE: u64 = 1;

/// Messages that are the same in every proof under one oracle: it takes the first nonce. Under the true transcript a nonce
/// is what a search over hashes of messages finds, and everybody can repeat it.
const NONCES: [&str; 7] = [
    "work before the first challenges",
    "work before the lookups",
    "opening: work before b",
    "opening: work before e",
    "opening: work before the positions",
    "whir work",
    "pads work before the positions",
];

/// A model with replies to a batch of two requests.
struct Side {
    model: Model,
    replies: Vec<Reply>,
    trace: Trace,
}

impl Side {
    fn new(model: Model, prompts: [&[u32]; 2]) -> Self {
        let replies: Vec<Reply> = prompts.iter().map(|p| answer(&model, p, 4)).collect();
        let requests: Vec<RequestTokens> = replies
            .iter()
            .map(|reply| RequestTokens {
                prompt: reply.prompt.clone(),
                response: reply.response.clone(),
            })
            .collect();
        let padding = Padding {
            powers_of_two: true,
            loads: Loads::Hidden,
        };
        let trace = build_trace(&model, &requests, padding).unwrap();
        Self {
            model,
            replies,
            trace,
        }
    }

    fn shape(&self) -> BatchShape {
        self.trace.shape()
    }

    fn own(&self) -> &Reply {
        &self.replies[0]
    }
}

/// Two models that answer request 0 alike. They differ in a weight of every tensor, and their batches in request 1.
fn sides() -> &'static [Side; 2] {
    static SIDES: OnceLock<[Side; 2]> = OnceLock::new();
    SIDES.get_or_init(|| {
        let model = micro();
        let other = edited(&model, |tensors| {
            for tensor in tensors {
                let middle = tensor.values.len() / 2;
                tensor.values[middle] ^= 1;
            }
        });
        let one = Side::new(model, [&[3, 5, 7], &[11, 2]]);
        let two = Side::new(other, [&[3, 5, 7], &[30, 8, 9]]);
        assert_eq!(one.own(), two.own());
        assert_ne!(one.replies[1], two.replies[1]);
        assert_eq!(one.shape(), two.shape());
        assert_eq!(one.model.header(), two.model.header());
        assert_ne!(one.trace, two.trace);
        [one, two]
    })
}

/// Few positions, and short tails that are as much longer than what is opened as those of real parameters. The tail of
/// the combined row is sent in clear, which shows more of it than any opening of a commitment.
fn params(model: &Model) -> Params {
    let quick = quick_params(model);
    let model_tail = 32usize;
    let whir_tail = WhirParams {
        final_log_size: model_tail.trailing_zeros(),
        ..WhirParams::new(model_tail.trailing_zeros(), 4, 20)
    };
    let whir_data = WhirParams {
        final_log_size: 4,
        ..quick.whir_data
    };
    let params = Params {
        model_tail,
        trace_tail: 8,
        whir_data,
        whir_tail,
        ..quick
    };
    assert!(params.trace_tail >= params.queries + 4 && params.batches() >= 5);
    params
}

/// A provider whose challenges come from a programmed oracle, and some of whose randomness may be the same in all proofs.
struct Programming<'a> {
    oracle: u64,
    fixed: &'a [Purpose],
}

impl Hook for Programming<'_> {
    fn seed(&mut self, purpose: Purpose, n: u64, seed: &mut [u8; 32]) {
        if self.fixed.contains(&purpose) {
            *seed = Dice::new(purpose.name(), n).digest();
        }
    }
    fn oracle(&mut self, _: &str) -> Box<dyn Oracle> {
        Box::new(Programmed::new(self.oracle))
    }
}

/// The id and key of a commitment, the first of them fresh for each number.
fn committed(side: &Side, n: u64) -> (ModelId, Key) {
    let seed = Dice::new("key", n).digest();
    commit(&side.model, params(&side.model), seed, &|_, _| ())
}

/// Attempt number `n` at a proof of a side's replies.
fn proof(side: &Side, id: &ModelId, key: &Key, n: u64, hook: &mut Programming<'_>) -> BatchProof {
    let randomness = Dice::new("attempt", n).digest();
    let (model, replies, trace) = (&side.model, &side.replies, side.trace.clone());
    // A copy of the key, which is not held by any budget.
    let permit = Key::decode(&key.encode())
        .unwrap()
        .spend_with(key::Opening::Batch, Dice::new("chain", n).digest())
        .unwrap();
    let batch = prove_trace(model, id, key, permit, replies, trace, randomness, hook).unwrap();
    assert!(batch.violated.is_empty());
    batch
}

/// What is seen of attempt number `n`, under a fresh commitment.
fn real_view(side: &Side, n: u64) -> Vec<Seen> {
    let (id, key) = committed(side, n);
    let mut hook = Programming {
        oracle: ORACLE,
        fixed: &[],
    };
    let batch = proof(side, &id, &key, n, &mut hook);
    view(&id, &batch.proof, &batch.slips[0], ORACLE)
}

fn fake_model(params: &Params, oracles: &[u64], dice: &mut Dice) -> FakeModel {
    let [side, _] = sides();
    let tokenizer = side.model.tokenizer_json();
    FakeModel::new(
        side.model.header(),
        params,
        tokenizer,
        &side.shape(),
        oracles,
        dice,
    )
}

fn simulated_view(n: u64) -> Vec<Seen> {
    let [side, _] = sides();
    let mut dice = Dice::new("simulator", n);
    let model = fake_model(&params(&side.model), &[ORACLE], &mut dice);
    let batch = model.batch(&side.shape(), side.own(), ORACLE, &mut dice);
    view(&model.id, &batch.proof, &batch.slip, ORACLE)
}

/// Views of one kind, with its name.
type Views = (&'static str, Vec<Vec<Seen>>);

/// Views of proofs of both sides and of simulated ones, shared by the tests.
fn samples() -> &'static [Views; 3] {
    static SAMPLES: OnceLock<[Views; 3]> = OnceLock::new();
    SAMPLES.get_or_init(|| {
        let [one, two] = sides();
        let all = |view: &(dyn Fn(u64) -> Vec<Seen> + Sync)| {
            (0..VIEWS).into_par_iter().map(view).collect::<Vec<_>>()
        };
        [
            ("first model", all(&|n| real_view(one, n))),
            ("second model", all(&|n| real_view(two, VIEWS + n))),
            ("simulated", all(&simulated_view)),
        ]
    })
}

#[test]
fn proofs_of_two_models_and_simulated_ones_are_uniform() {
    for (kind, views) in samples() {
        let sample = Sample::new(views, &NONCES);
        assert_eq!(sample.dependent_across(500), 0, "{kind}");
        let worst = sample.examine();
        println!("{kind}: words, deviation of all words and of the worst word");
        for (label, w) in &worst {
            println!("  {label}: {}, {:.2}, {:.2}", w.words, w.pooled, w.single);
        }
        for (label, worst) in worst {
            assert!(!worst.fails(), "{kind}, {label}: {worst:?}, limit {LIMIT}");
        }
    }
}

#[test]
fn what_is_not_compared_is_the_same_in_every_proof() {
    let nonces = |view: &[Seen]| -> Vec<Seen> {
        let nonces = view.iter().filter(|seen| NONCES.contains(&seen.label));
        nonces.cloned().collect()
    };
    let expected = nonces(&samples()[0].1[0]);
    for nonce in NONCES {
        assert!(expected.iter().any(|seen| seen.label == nonce), "{nonce}");
    }
    assert!(expected.iter().all(|seen| seen.words == [0]));
    for (kind, views) in samples() {
        for view in views {
            assert_eq!(nonces(view), expected, "{kind}");
        }
    }
}

/// With the parameters of providers, so that nothing is left to complain about: the verifier's last check is its policy.
#[test]
fn a_simulated_proof_is_accepted_under_its_oracle_and_nowhere_else() {
    let [side, _] = sides();
    let mut dice = Dice::new("real parameters", 0);
    let params = Params::choose(side.model.parameters() as usize, 1);
    let model = fake_model(&params, &[ORACLE], &mut dice);
    let batch = model.batch(&side.shape(), side.own(), ORACLE, &mut dice);

    let under = |oracle| listen(&model.id, &batch.proof, oracle).0;
    let verified = under(Box::new(Programmed::new(ORACLE))).unwrap();
    let prompt = &side.own().prompt;
    let ended = check_slip(&model.id, &verified, &batch.slip, prompt).unwrap();
    assert_ne!(ended, Ended::Early);

    let other = rejection(&model.id, &batch.proof, Box::new(Programmed::new(2)));
    assert_eq!(other.as_deref(), Some("opening: leaf of the model tree"));
    let real = verify_batch(&model.id, &batch.proof).unwrap_err();
    let check = "proof of work: work before the first challenges";
    assert_eq!(real.to_string(), check);
}

/// Without work, what rejects is that the columns behind the roots are elsewhere.
#[test]
fn several_simulated_batches_of_one_model_are_accepted_each_under_its_own_oracle() {
    let [side, _] = sides();
    let mut dice = Dice::new("several batches", 0);
    let oracles = [ORACLE, 2, 3];
    let model = fake_model(&params(&side.model), &oracles, &mut dice);
    for oracle in oracles {
        let batch = model.batch(&side.shape(), side.own(), oracle, &mut dice);
        let rejection = |oracle| rejection(&model.id, &batch.proof, oracle);
        for other in oracles {
            let found = rejection(Box::new(Programmed::new(other)));
            assert_eq!(found.is_none(), other == oracle, "{found:?}");
        }
        let leaf = Some("opening: leaf of the model tree".to_owned());
        assert_eq!(rejection(Box::new(Programmed::new(4))), leaf);
        assert_eq!(rejection(Box::new(Transcript::new(PROTOCOL))), leaf);
        let real = verify_batch(&model.id, &batch.proof);
        assert!(matches!(real, Err(VerifyError::Rejected(_))), "{real:?}");
    }
}

/// The simulator takes no shortcut: a proof that fits no combined row is found by the same verifier.
#[test]
fn a_simulated_proof_with_another_symbol_is_refused() {
    let [side, _] = sides();
    let mut dice = Dice::new("another symbol", 0);
    let model = fake_model(&params(&side.model), &[ORACLE], &mut dice);
    let batch = model.batch(&side.shape(), side.own(), ORACLE, &mut dice);
    let seen = view(&model.id, &batch.proof, &batch.slip, ORACLE);
    for (label, check) in [
        (
            "opening: symbols of round 1",
            "opening: leaf of the tree of round 1",
        ),
        (
            "opening: parts at the positions",
            "opening: combined row at a queried position",
        ),
        ("gkr root", "pads: linear statements"),
    ] {
        let words = view::all_words(&seen, label);
        let needle: Vec<u8> = words[..2].iter().flat_map(|w| w.to_le_bytes()).collect();
        let mut proof = batch.proof.clone();
        let at = proof.windows(16).position(|w| w == needle).unwrap();
        proof[at] ^= 1;
        let found = rejection(&model.id, &proof, Box::new(Programmed::new(ORACLE)));
        assert_eq!(found.as_deref(), Some(check));
    }
}
