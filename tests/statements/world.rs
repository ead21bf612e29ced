//! The files of all cases: honest ones, made by the command itself, and the means to falsify them.

use std::sync::OnceLock;

use zkmoe::prover::infer::generate;
use zkmoe::prover::key::Key;
use zkmoe::prover::model::Model;
use zkmoe::prover::prove::{BatchProof, NoHook, Reply, prove};
use zkmoe::prover::tokenizer::Tokenizer;
use zkmoe::prover::trace::Padding;
use zkmoe::reply::Ended;
use zkmoe::state::State;
use zkmoe::verdict::{Certified, How, write_verdict};
use zkmoe::verifier::id::ModelId;
use zkmoe::verifier::slip::Slip;

use crate::cases::Cases;
use crate::provider::{Folder, Head, hex, model, prompt_that_ends, tokenizer_json};

/// The prompt of the first reply.
pub const STORY: &str = "Once upon a time";
/// That of the second.
pub const WORD: &str = "The meaning of the word is";
/// One prompt in two normal forms.
pub const COMPOSED: &str = "caf\u{e9} noir";
pub const DECOMPOSED: &str = "cafe\u{301} noir";
/// The limit of tokens.
pub const LIMIT: u32 = 8;

/// A provider's and a customer's files.
pub struct World {
    pub folder: Folder,
    pub model: Model,
    pub tokenizer: Tokenizer,
    /// A prompt whose reply ends with the end of the text.
    pub ending: String,
}

/// Model ids: `model` and `twin` of one model, `next` rotated from `model`, `heir` from `twin`; `stranger` of other weights;
/// `normal` of the same weights with a tokenizer that normalizes. Batches: `proofs` and `again` of the same five replies
/// under `model`, `alone` of the first one, `padded` of the first two with padded lengths, `twin`, `stranger` and `normal`
/// of the first two under those ids, `cut` of replies that were cut short.
pub fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        let folder = Folder::new("statements");
        let plain = tokenizer_json(|_| ());
        let tokenizer = Tokenizer::from_json(&plain).unwrap();
        let normal =
            tokenizer_json(|json| json["normalizer"] = serde_json::json!({"type": "NFKC"}));
        let committed = model(plain.clone(), Head::Letters, 7);
        let save = |name: &str, model: &Model| model.save(&folder.0.join(name)).unwrap();
        save("model.zkm", &committed);
        save("stranger.zkm", &model(plain, Head::Letters, 8));
        save("normal.zkm", &model(normal, Head::Letters, 7));
        let ending = prompt_that_ends(&committed, &tokenizer, LIMIT as usize);

        for name in ["model", "twin"] {
            folder.commit("model.zkm", name);
        }
        for name in ["stranger", "normal"] {
            folder.commit(&format!("{name}.zkm"), name);
        }
        for (from, to) in [("model", "next"), ("twin", "heir")] {
            let files = ["--id", "--key", "--out-id", "--out-key", "--proof"];
            let names = [
                format!("{from}.id"),
                format!("{from}.key"),
                format!("{to}.id"),
                format!("{to}.key"),
                format!("{to}.proof"),
            ];
            let pairs = files.iter().zip(&names);
            let options = pairs.flat_map(|(option, name)| [*option, name.as_str()]);
            let args: Vec<&str> = ["rotate", "model.zkm"].into_iter().chain(options).collect();
            folder.done(&args);
        }

        for (name, prompt) in [
            ("story", STORY),
            ("word", WORD),
            ("ending", &ending),
            ("composed", COMPOSED),
            ("decomposed", DECOMPOSED),
        ] {
            folder.run("model.zkm", name, prompt, LIMIT);
        }
        let all = ["story", "word", "ending", "composed", "decomposed"];
        folder.prove("model.zkm", "model", &all, "proofs");
        folder.prove("model.zkm", "model", &all, "again");
        folder.prove("model.zkm", "model", &all[..1], "alone");
        folder.prove("model.zkm", "twin", &all[..2], "twin");
        let pad = [
            "--key",
            "model.key",
            "--id",
            "model.id",
            "--out",
            "padded",
            "--pad-lengths",
        ];
        let replies = ["prove", "model.zkm", "story.json", "word.json"];
        folder.done(&[&replies[..], &pad].concat());
        for name in ["stranger", "normal"] {
            let (file, reply) = (format!("{name}.zkm"), format!("{name}-story"));
            folder.run(&file, &reply, STORY, LIMIT);
            folder.prove(&file, name, &[&reply], name);
        }

        // The first reply, cut short: once as if it could not go on, once as if no more had been asked for.
        let mut cut = folder.reply("story");
        assert_eq!(cut.ended, Ended::Limit);
        cut.response_ids.truncate(5);
        cut.response = tokenizer.decode(&cut.response_ids).unwrap();
        for (name, limit, ended) in [
            ("early", LIMIT, Ended::Overflow),
            ("limited", 5, Ended::Limit),
        ] {
            cut.max_tokens = limit;
            cut.ended = ended;
            cut.save(&folder.0.join(format!("{name}.json"))).unwrap();
            folder.write(&format!("{name}.txt"), &cut.response);
        }
        folder.prove("model.zkm", "model", &["early", "limited"], "cut");
        assert_eq!(folder.reply("ending").ended, Ended::Eos);
        World {
            folder,
            model: committed,
            tokenizer,
            ending,
        }
    })
}

impl World {
    pub fn digest(&self, id: &str) -> String {
        hex(&self.folder.id(id).digest())
    }

    /// The slip `NAME.slip`: another one after a change.
    pub fn slip(&self, name: &str, from: &str, change: impl FnOnce(&mut Slip)) {
        let mut slip = self.folder.slip(from);
        change(&mut slip);
        self.folder.write(&format!("{name}.slip"), slip.encode());
    }

    /// The text of a slip's response.
    pub fn text(&self, slip: &str) -> String {
        self.tokenizer
            .decode(&self.folder.slip(slip).response)
            .unwrap()
    }

    /// A file after a change of its bytes.
    pub fn edit(&self, name: &str, from: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = self.folder.read(from);
        change(&mut bytes);
        self.folder.write(name, bytes);
    }

    /// The id `NAME.id` after a change, with the proof, the slip and the certificate of the honest id changed so far that
    /// they name the new one: `NAME.proof`, `NAME.slip`, `NAME.cert`.
    pub fn relabel(&self, name: &str, change: impl FnOnce(&mut ModelId)) {
        let mut id = self.folder.id("model.id");
        change(&mut id);
        let digest = id.digest();
        self.folder.write(&format!("{name}.id"), id.encode());
        let name_it = |bytes: &mut Vec<u8>| bytes[12..44].copy_from_slice(&digest);
        for (end, from) in [
            ("proof", "proofs/batch.proof"),
            ("slip", "proofs/story.slip"),
            ("cert", "model.cert"),
        ] {
            self.edit(&format!("{name}.{end}"), from, name_it);
        }
    }

    /// A note of the customer's own beside the id, as if a certificate had been accepted.
    pub fn note(&self, id: &str) {
        let secret = State::new(self.folder.0.join("state"))
            .secret_or_new()
            .unwrap();
        let certified = Certified::new(How::Certificate { digest: [9; 32] }, 101.0);
        let digest = self.folder.id(id).digest();
        write_verdict(&secret, &self.folder.0.join(id), &digest, &certified).unwrap();
    }

    /// What the model decodes for a list of tokens.
    pub fn answer(&self, prompt: &[u32]) -> Vec<u32> {
        let go_on = |_| std::ops::ControlFlow::Continue(());
        generate(&self.model, prompt, LIMIT as usize, go_on)
            .unwrap()
            .response_ids
    }

    /// A proof of one request by a provider who does not look at texts: `NAME.proof` and `NAME.slip` under `model`.
    pub fn prove_tokens(&self, name: &str, prompt: Vec<u32>, response: Vec<u32>) {
        let id = self.folder.id("model.id");
        // A copy, which spends nothing.
        let mut key = Key::decode(&self.folder.read("model.key")).unwrap();
        let max_tokens = response.len() as u32;
        let reply = Reply {
            prompt,
            response,
            max_tokens,
        };
        let padding = Padding::default();
        let BatchProof { proof, slips, .. } = prove(
            &self.model,
            &id,
            &mut key,
            &[reply],
            padding,
            [4; 32],
            &mut NoHook,
        )
        .unwrap();
        self.folder.write(&format!("{name}.proof"), proof);
        self.folder
            .write(&format!("{name}.slip"), slips[0].encode());
    }
}

/// Everything that other cases start from.
pub fn honest(w: &World) -> Cases<'_> {
    let mut c = Cases::new(w);
    c.kind("honest");
    let id = w.digest("model.id");
    c.accepted("story", &[]);
    c.accepted(
        "everything compared",
        &[
            ("--expect-id", &id),
            ("--max-tokens", "8"),
            ("--ended", "limit"),
        ],
    );
    for (name, prompt) in [
        ("word", WORD),
        ("ending", &w.ending),
        ("composed", COMPOSED),
        ("decomposed", DECOMPOSED),
    ] {
        let (slip, text) = (format!("proofs/{name}.slip"), format!("{name}.txt"));
        let changes = [
            ("--slip", &slip[..]),
            ("--response-file", &text),
            ("--prompt", prompt),
        ];
        c.accepted(name, &changes);
    }
    for batch in ["again", "alone", "padded"] {
        let (proof, slip) = (
            format!("{batch}/batch.proof"),
            format!("{batch}/story.slip"),
        );
        c.accepted(batch, &[("--proof", &proof), ("--slip", &slip)]);
    }
    let twin = [
        ("--id", "twin.id"),
        ("--proof", "twin/batch.proof"),
        ("--slip", "twin/story.slip"),
    ];
    c.accepted("under another id of the same model", &twin);
    c.accepted("with its certificate", &[("--cert", "model.cert")]);
    for name in ["stranger", "normal"] {
        let names = [
            format!("{name}.id"),
            format!("{name}/batch.proof"),
            format!("{name}/{name}-story.slip"),
            format!("{name}-story.txt"),
        ];
        let options = ["--id", "--proof", "--slip", "--response-file"];
        let changes: Vec<_> = options
            .into_iter()
            .zip(names.iter().map(String::as_str))
            .collect();
        c.accepted(name, &changes);
    }
    c
}
