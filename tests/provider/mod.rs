//! A provider of a micro model that writes plain text, and the `zkmoe` command as its customers run it.
//!
//! The model has random weights, a vocabulary cut from that of the bundled model, and a head that knows printable ASCII
//! and the end of the text alone. It answers nonsense, but in letters, and proves it in a fraction of the time.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use zkmoe::prover::infer::generate;
use zkmoe::prover::model::{Model, Tensor, WeightId, random_header, random_model};
use zkmoe::prover::tokenizer::Tokenizer;
use zkmoe::reply::Reply;
use zkmoe::verifier::header::Sizes;
use zkmoe::verifier::id::ModelId;
use zkmoe::verifier::slip::Slip;

/// Merges that are left of the bundled tokenizer.
const MERGES: usize = 120;
/// The end of the text.
const END: usize = 0;
/// Tokens that are no merges: the end of the text and all bytes.
const BASE: usize = 257;

/// `tokenizer.json` with the first merges of the bundled one, after some changes.
pub fn tokenizer_json(change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let bundled = include_bytes!("../../data/olmoe-tiny/tokenizer.json");
    let mut json: Value = serde_json::from_slice(bundled).unwrap();
    let model = &mut json["model"];
    let vocab = model["vocab"].as_object_mut().unwrap();
    vocab.retain(|_, id| (id.as_u64().unwrap() as usize) < BASE + MERGES);
    assert_eq!(vocab.len(), BASE + MERGES, "ids follow the order of merges");
    model["merges"].as_array_mut().unwrap().truncate(MERGES);
    change(&mut json);
    serde_json::to_vec(&json).unwrap()
}

/// Which tokens the head of a model knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Head {
    /// Printable ASCII, and the end of the text.
    Letters,
    /// Bytes that begin no character, and no others.
    Broken,
    /// Controls that a terminal acts on, and no others.
    Controls,
}

/// A micro model.
pub fn model(tokenizer: Vec<u8>, head: Head, seed: u64) -> Model {
    let sizes = Sizes {
        vocab_size: BASE + MERGES,
        hidden_size: 12,
        intermediate_size: 6,
        num_hidden_layers: 2,
        num_key_value_heads: 2,
        query_group: 2,
        head_dim: 4,
        num_experts: 5,
        num_experts_per_tok: 2,
        max_position_embeddings: 128,
    };
    let random = random_model(&sizes, seed);
    let texts = Tokenizer::from_json(&tokenizer).unwrap();
    let known: Vec<bool> = (0..sizes.vocab_size as u32)
        .map(|id| {
            let text = texts.decode(&[id]).unwrap();
            match head {
                Head::Letters => text.bytes().all(|b| matches!(b, b' '..=b'~')),
                Head::Broken => text == "\u{fffd}",
                Head::Controls => {
                    text.chars().all(|c| c.is_control() && !c.is_whitespace()) && !text.is_empty()
                }
            }
        })
        .collect();
    let parts = WeightId::ALL.map(|id| {
        let mut values = random.values(id).to_vec();
        if id == WeightId::Wh {
            for (n, value) in values.iter_mut().enumerate() {
                if !known[n % known.len()] {
                    *value = 0;
                }
            }
        }
        Tensor {
            values,
            multipliers: random.multipliers(id).to_vec(),
        }
    });
    let header = random_header(&sizes, &tokenizer);
    let model = Model::from_parts(header.clone(), parts.clone().into(), tokenizer.clone()).unwrap();
    if head != Head::Letters {
        return model;
    }
    // Where the second token of some reply stood, the end of the text stands: its column of the head is that token's, a
    // little longer.
    let go_on = |_| std::ops::ControlFlow::Continue(());
    let ids = texts.encode("Tell me of 7").unwrap();
    let reply = generate(&model, &ids, 3, go_on).unwrap().response_ids;
    assert_ne!(reply[0], reply[1]);
    let mut parts = parts;
    let (end, out) = (&mut parts[WeightId::Wh.index()], sizes.vocab_size);
    for row in end.values.chunks_mut(out) {
        row[END] = row[reply[1] as usize];
    }
    end.multipliers[END] = end.multipliers[reply[1] as usize] + 1;
    Model::from_parts(header, parts.into(), tokenizer).unwrap()
}

/// A prompt whose reply ends with the end of the text, after more than one token and below the limit.
pub fn prompt_that_ends(model: &Model, tokenizer: &Tokenizer, limit: usize) -> String {
    let go_on = |_| std::ops::ControlFlow::Continue(());
    (0..4096)
        .map(|n| format!("Tell me of {n}"))
        .find(|prompt| {
            let ids = tokenizer.encode(prompt).unwrap();
            let reply = generate(model, &ids, limit, go_on).unwrap().response_ids;
            (2..limit).contains(&reply.len()) && reply.last() == Some(&model.header().eos_token)
        })
        .expect("one reply in a few hundred ends")
}

/// A folder with what provider and customer have.
pub struct Folder(pub PathBuf);

impl Folder {
    /// The folder of this name, empty.
    pub fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Runs the command in the folder, as a customer whose state is the folder `state`.
    pub fn zkmoe(&self, args: &[&str]) -> Output {
        // A key is locked while it is used.
        static KEYS: Mutex<()> = Mutex::new(());
        let _turn = args
            .contains(&"--key")
            .then(|| KEYS.lock().unwrap_or_else(PoisonError::into_inner));
        let child = Command::new(env!("CARGO_BIN_EXE_zkmoe"))
            .env("ZKMOE_STATE", self.0.join("state"))
            .args(args)
            .current_dir(&self.0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.wait_with_output().unwrap()
    }

    /// Runs a command that has to succeed; its standard output.
    #[track_caller]
    pub fn done(&self, args: &[&str]) -> String {
        let output = self.zkmoe(args);
        let (out, err) = texts(&output);
        assert_eq!(output.status.code(), Some(0), "{args:?}\n{out}\n{err}");
        out
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.0.join(name)).unwrap()
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.0.join(name), bytes).unwrap();
    }

    pub fn copy(&self, from: &str, to: &str) {
        fs::copy(self.0.join(from), self.0.join(to)).unwrap();
    }

    pub fn id(&self, name: &str) -> ModelId {
        ModelId::decode(&self.read(name)).unwrap()
    }

    pub fn slip(&self, name: &str) -> Slip {
        Slip::decode(&self.read(name)).unwrap()
    }

    pub fn reply(&self, name: &str) -> Reply {
        Reply::open(&self.0.join(format!("{name}.json"))).unwrap()
    }

    /// Commits to `model`, certifies, and lets the customer check that: `NAME.id`, `NAME.key`, `NAME.cert`.
    pub fn commit(&self, model: &str, name: &str) {
        let [id, key, cert] = ["id", "key", "cert"].map(|end| format!("{name}.{end}"));
        let files = ["--id", &id, "--key", &key];
        self.done(&[&["commit", model, "--batches", "8"], &files[..]].concat());
        self.done(&[&["certify", model, "--out", &cert], &files[..]].concat());
        self.done(&["verify-model", "--id", &id, "--cert", &cert]);
    }

    /// Answers a prompt: `NAME.json` and the response in `NAME.txt`.
    pub fn run(&self, model: &str, name: &str, prompt: &str, limit: u32) {
        let (out, limit) = (format!("{name}.json"), limit.to_string());
        let prompt = ["--prompt", prompt, "--max-tokens", &limit];
        self.done(&[&["run", model, "--out", &out], &prompt[..]].concat());
        self.write(&format!("{name}.txt"), self.reply(name).response);
    }

    /// Proves replies under an id: a folder with slips and proof.
    pub fn prove(&self, model: &str, name: &str, replies: &[&str], out: &str) {
        let [id, key] = ["id", "key"].map(|end| format!("{name}.{end}"));
        let replies: Vec<String> = replies.iter().map(|r| format!("{r}.json")).collect();
        let mut args = vec!["prove", model, "--id", &id, "--key", &key, "--out", out];
        args.extend(replies.iter().map(String::as_str));
        self.done(&args);
    }
}

/// Standard output and standard error.
pub fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

/// A digest as commands print it.
pub fn hex(bytes: &[u8]) -> String {
    zkmoe::output::hex(bytes)
}
