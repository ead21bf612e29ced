//! What inputs are about: a micro model with everything that its provider publishes and keeps.
//!
//! All of it is made once in a process, from fixed seeds, or read from the folder `FUZZ_FIXTURES` where another process left
//! it. The openings are short and without work, as in the tests of
//! lies: the argument is the same, but a proof takes milliseconds. The verifier's policy refuses such a proof in its last
//! check, by the name [`POLICY`]; whatever is refused by that check alone would have been accepted.

use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::OnceLock;

use zkmoe::commit::codec::Reader;
use zkmoe::commit::params::{Grinding, Params};
use zkmoe::commit::whir::WhirParams;
use zkmoe::prover::certify::certify;
use zkmoe::prover::commitment::commit;
use zkmoe::prover::infer::generate;
use zkmoe::prover::key::{Key, Opening};
use zkmoe::prover::model::{Model, random_model};
use zkmoe::prover::prove::{NoHook, Reply, prove};
use zkmoe::prover::rotate::{self, Side, recommit};
use zkmoe::prover::trace::Padding;
use zkmoe::state::Secret;
use zkmoe::verdict::{Certified, How, Note};
use zkmoe::verifier::batch::read_proof_header;
use zkmoe::verifier::header::Sizes;
use zkmoe::verifier::id::ModelId;
use zkmoe::verifier::slip::Slip;
use zkmoe::verifier::verify::{self, Batch};

use crate::edits::{self, Parts};

/// How the name of the check starts that refuses short openings.
pub const POLICY: &str = "soundness: ";

/// Odd sizes in every dimension that may be odd.
pub fn sizes() -> Sizes {
    Sizes {
        vocab_size: 40,
        hidden_size: 12,
        intermediate_size: 6,
        num_hidden_layers: 2,
        num_key_value_heads: 2,
        query_group: 2,
        head_dim: 4,
        num_experts: 5,
        num_experts_per_tok: 2,
        max_position_embeddings: 32,
    }
}

/// Few positions and no work.
fn short(model: &Model) -> Params {
    let params = Params::choose(model.parameters() as usize, 1);
    Params {
        queries: 4,
        grinding: Grinding {
            lookup: 0,
            combination: 0,
            positions: 0,
        },
        whir_data: WhirParams::new(params.log_row, 4, 20),
        whir_tail: WhirParams::new(params.model_tail.trailing_zeros(), 4, 20),
        ..params
    }
}

/// The model.
pub fn model() -> &'static Model {
    static MODEL: OnceLock<Model> = OnceLock::new();
    MODEL.get_or_init(|| random_model(&sizes(), 7))
}

/// Files of the folder `FUZZ_FIXTURES`: `count` of them, with the name and a number each. They are made if
/// there is no such folder, and kept if they are not in it. Nothing tells files that another version of the program made, so
/// each build needs a folder of its own.
fn kept(
    name: &str,
    count: usize,
    make: impl FnOnce() -> Vec<Vec<u8>>,
) -> impl Iterator<Item = Vec<u8>> {
    let Some(folder) = std::env::var_os("FUZZ_FIXTURES").map(PathBuf::from) else {
        return make().into_iter();
    };
    let path = |n: usize| folder.join(format!("{name}-{n}"));
    let found: Result<Vec<_>, _> = (0..count).map(|n| fs::read(path(n))).collect();
    let files = found.unwrap_or_else(|_| {
        let made = make();
        assert_eq!(made.len(), count, "files for {name}");
        for (n, bytes) in made.iter().enumerate() {
            fs::write(path(n), bytes).expect("a fixture that can be written");
        }
        made
    });
    files.into_iter()
}

/// As [`kept`], of one file.
fn kept_file(name: &str, make: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
    let mut files = kept(name, 1, || vec![make()]);
    files.next().expect("one file")
}

/// A commitment and what was made with it.
pub struct Provider {
    /// Public.
    pub id: ModelId,
    /// Private, before anything was opened.
    key: Vec<u8>,
}

impl Provider {
    /// A copy of the key as it was at first.
    pub fn key(&self) -> Key {
        Key::decode(&self.key).expect("a key that was just encoded")
    }
}

/// The root that the id of a key has.
fn root(key: &[u8]) -> [u8; 32] {
    let key = Key::decode(key).expect("a key that was just encoded");
    key.tree().root()
}

/// The commitment with short openings.
pub fn provider() -> &'static Provider {
    static PROVIDER: OnceLock<Provider> = OnceLock::new();
    PROVIDER.get_or_init(|| {
        let key = kept_file("key", || {
            let (_, key) = commit(model(), short(model()), [3; 32], &|_, _| ());
            key.encode()
        });
        let id = ModelId {
            header: model().header().clone(),
            params: short(model()),
            root: root(&key),
            tokenizer: model().tokenizer_json().to_vec(),
        };
        Provider { id, key }
    })
}

/// An id with parameters that the policy allows.
pub fn sound_id() -> ModelId {
    ModelId {
        params: Params::choose(model().parameters() as usize, 1),
        ..provider().id.clone()
    }
}

/// A batch with its requests.
pub struct Proved {
    /// What the customers sent and got.
    pub replies: Vec<Reply>,
    /// The proof.
    pub proof: Vec<u8>,
    /// One slip for each reply.
    pub slips: Vec<Slip>,
    /// What an accepted proof would say.
    pub accepted: Batch,
    /// The proof, message by message.
    pub parts: Parts,
}

fn proved(name: &str, prompts: &[(&[u32], u32)], randomness: u8) -> Proved {
    let Provider { id, .. } = provider();
    let answer = |&(prompt, limit): &(&[u32], u32)| Reply {
        prompt: prompt.to_vec(),
        response: generate(model(), prompt, limit as usize, |_| {
            ControlFlow::Continue(())
        })
        .expect("a reply")
        .response_ids,
        max_tokens: limit,
    };
    let replies: Vec<Reply> = prompts.iter().map(answer).collect();
    let mut files = kept(name, 1 + replies.len(), || {
        let mut key = provider().key();
        let padding = Padding::default();
        let seed = [randomness; 32];
        let made = prove(model(), id, &mut key, &replies, padding, seed, &mut NoHook);
        let made = made.expect("a proof");
        let slips = made.slips.iter().map(Slip::encode);
        std::iter::once(made.proof).chain(slips).collect()
    });
    let proof = files.next().expect("the proof");
    let slips = files.map(|slip| Slip::decode(&slip).expect("a slip that was just encoded"));
    let slips = slips.collect();
    let mut r = Reader::new(&proof);
    let (_, header) = read_proof_header(&mut r, &id.header).expect("a header");
    let start = proof.len() - r.remaining();
    let parameters = verify::parameters(&id.digest(), &header);
    let mut argument = None;
    let parts = edits::listen(
        &proof,
        start,
        verify::PROTOCOL,
        &parameters,
        |mut channel| {
            let said = verify::argue(id, &header, &mut channel).expect("an argument");
            let root = said.pads_root;
            argument = Some(said);
            zkmoe::commit::ligero::conclude(channel, &root).expect("a proof about pads");
        },
    );
    let argument = argument.expect("an argument");
    let accepted = Batch {
        header,
        point: argument.point,
        evaluations: argument.evaluations,
        soundness: argument.soundness,
    };
    Proved {
        replies,
        proof,
        slips,
        accepted,
        parts,
    }
}

/// Two batches: one of three requests, one of a single one.
pub fn batches() -> &'static [Proved; 2] {
    static BATCHES: OnceLock<[Proved; 2]> = OnceLock::new();
    BATCHES.get_or_init(|| {
        let three: [(&[u32], u32); 3] = [(&[3, 5, 7], 4), (&[1, 2, 3, 4, 5, 6], 6), (&[11], 5)];
        [
            proved("large", &three, 9),
            proved("small", &[(&[2], 1)], 10),
        ]
    })
}

/// The certificate.
pub fn certificate() -> &'static Parts {
    static CERTIFICATE: OnceLock<Parts> = OnceLock::new();
    CERTIFICATE.get_or_init(|| {
        use zkmoe::verifier::certificate::{PROTOCOL, Plan, argue};
        let Provider { id, .. } = provider();
        let certificate = kept_file("certificate", || {
            let mut key = provider().key();
            let made = certify(model(), id, &mut key, [11; 32], &mut NoHook);
            made.expect("a certificate").bytes
        });
        let plan = Plan::new(id).expect("a small model");
        edits::listen(&certificate, 44, PROTOCOL, &id.digest(), |mut channel| {
            let said = argue(id, &plan, &mut channel).expect("an argument");
            zkmoe::commit::ligero::conclude(channel, &said.pads_root).expect("a proof about pads");
        })
    })
}

/// A rotation.
pub struct Rotated {
    /// The new id.
    pub id: ModelId,
    /// The new key.
    pub key: Vec<u8>,
    /// The proof, message by message.
    pub parts: Parts,
}

/// The rotation to another commitment.
pub fn rotation() -> &'static Rotated {
    static ROTATION: OnceLock<Rotated> = OnceLock::new();
    ROTATION.get_or_init(|| {
        use zkmoe::verifier::rotation::{PROTOCOL, argue, parameters};
        let Provider { id, .. } = provider();
        let mut files = kept("rotation", 2, || {
            let (model, key) = (model(), provider().key());
            let from = Side {
                model,
                id,
                key: &key,
            };
            let (new_id, new_key, new) =
                recommit(&from, [12; 32], &|_, _| ()).expect("another commitment");
            let to = Side {
                model,
                id: &new_id,
                key: &new_key,
            };
            let old = provider().key().spend_with(Opening::Rotation, [13; 32]);
            let permits = [old.expect("a permit"), new];
            let made = rotate::prove(&from, &to, permits, [12; 32], &mut NoHook);
            vec![new_key.encode(), made.expect("a rotation").proof]
        });
        let mut next = || files.next().expect("two files");
        let (key, proof) = (next(), next());
        let new_id = ModelId {
            root: root(&key),
            ..id.clone()
        };
        let parameters = parameters(&[id.digest(), new_id.digest()]);
        let parts = edits::listen(&proof, 76, PROTOCOL, &parameters, |mut channel| {
            let said = argue(id, &new_id, &mut channel).expect("an argument");
            zkmoe::commit::ligero::conclude(channel, &said.pads_root).expect("a proof about pads");
        });
        Rotated {
            key,
            id: new_id,
            parts,
        }
    })
}

/// The secret of the user who checks.
pub fn secret() -> Secret {
    let bytes = [&b"ZKMOSEC\0\x01\0\0\0"[..], &[17; 32]].concat();
    Secret::decode(&bytes).expect("a secret")
}

/// That user's notes.
pub fn notes() -> [Note; 2] {
    let digest = provider().id.digest();
    let hows = [
        How::Certificate { digest: [5; 32] },
        How::Rotation { from: [6; 32] },
    ];
    hows.map(|how| Note::new(&secret(), &digest, &Certified::new(how, 101.5)))
}
