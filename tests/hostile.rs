//! Files that are made to hurt: a gigabyte of anything, and small files that claim to be large. Each has to be refused
//! for the right reason, with little more memory than an honest file takes.
//!
//! Times are printed and not judged:
//!
//!     cargo test --release --test hostile -- --nocapture

#![cfg(target_os = "linux")]

mod common;
mod measure;

use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use common::{CHECKPOINT, SHORT_TEXTS, write_short_texts};
use measure::{Ended, ROOM, megabytes};
use zkmoe::commit::codec::Writer;
use zkmoe::verifier::batch::{BatchHeader, write_proof_header};
use zkmoe::verifier::id::ModelId;
use zkmoe::verifier::relation::BatchShape;
use zkmoe::verifier::slip::Slip;
use zkmoe::verifier::verify::batch_length;

const GIGABYTE: u64 = 1 << 30;
const PROMPT: &str = "Once upon a time";

fn run(args: &[&str]) -> Ended {
    measure::run(folder(), args)
}

/// The folder of the tests, empty at first.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hostile");
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        path
    })
}

/// A model, its commitment and certificate, a reply and its proof, and a rotation.
fn prepare() {
    write_short_texts(folder());
    let short: Vec<&str> = SHORT_TEXTS.split(' ').collect();
    let key = ["--key", "model.key", "--id", "model.id"];
    let step = |args: &[&[&str]]| {
        let ended = run(&args.concat());
        assert_eq!(ended.code, Some(0), "{args:?}\n{}", ended.text);
    };
    step(&[&["import", CHECKPOINT, "--out", "model.zkm"], &short]);
    step(&[&["commit", "model.zkm", "--batches", "8"], &key]);
    step(&[&["certify", "model.zkm", "--out", "model.cert"], &key]);
    let length = ["--max-tokens", "2"];
    step(&[
        &[
            "run",
            "model.zkm",
            "--out",
            "story.json",
            "--prompt",
            PROMPT,
        ],
        &length,
    ]);
    step(&[
        &["prove", "model.zkm", "story.json", "--out", "proofs"],
        &key,
    ]);
    let new = [
        "--out-id",
        "next.id",
        "--out-key",
        "next.key",
        "--proof",
        "rotate.proof",
    ];
    step(&[&["rotate", "model.zkm"], &key, &new]);
    let story = zkmoe::reply::Reply::open(&folder().join("story.json")).unwrap();
    fs::write(folder().join("story.txt"), story.response).unwrap();
}

/// What is asked about a file. Each word `FILE` in its arguments stands for the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ask {
    Proof,
    Slip,
    Id,
    Cert,
    Model,
    ModelId,
    Rotation,
    RotationId,
    Inspect,
    InspectProof,
    InspectId,
}

impl Ask {
    const ALL: [Self; 11] = [
        Self::Proof,
        Self::Slip,
        Self::Id,
        Self::Cert,
        Self::Model,
        Self::ModelId,
        Self::Rotation,
        Self::RotationId,
        Self::Inspect,
        Self::InspectProof,
        Self::InspectId,
    ];

    fn args(self, file: &str) -> Vec<&str> {
        let verify = |option: &'static str, value| {
            let mut options = [
                ("--id", "model.id"),
                ("--cert", "model.cert"),
                ("--proof", "proofs/batch.proof"),
                ("--slip", "proofs/story.slip"),
                ("--prompt", PROMPT),
                ("--response-file", "story.txt"),
            ];
            options
                .iter_mut()
                .filter(|o| o.0 == option)
                .for_each(|o| o.1 = value);
            let options = options.iter().flat_map(|&(name, value)| [name, value]);
            core::iter::once("verify").chain(options).collect()
        };
        let rotation = |to, proof| {
            let from = ["verify-rotation", "--from", "model.id"];
            [&from[..], &["--to", to, "--proof", proof]].concat()
        };
        match self {
            Self::Proof => verify("--proof", file),
            Self::Slip => verify("--slip", file),
            Self::Id => verify("--id", file),
            Self::Cert => verify("--cert", file),
            Self::Model => vec!["verify-model", "--id", "model.id", "--cert", file],
            Self::ModelId => vec!["verify-model", "--id", file, "--cert", "model.cert"],
            Self::Rotation => rotation("next.id", file),
            Self::RotationId => rotation(file, "rotate.proof"),
            Self::Inspect => vec!["inspect", file],
            Self::InspectProof => vec!["inspect", file, "--id", "model.id"],
            Self::InspectId => vec!["inspect", "proofs/batch.proof", "--id", file],
        }
    }

    /// The honest file in the place of the hostile one.
    fn honest(self) -> &'static str {
        match self {
            Self::Proof | Self::Inspect | Self::InspectProof => "proofs/batch.proof",
            Self::Slip => "proofs/story.slip",
            Self::Id | Self::ModelId | Self::InspectId => "model.id",
            Self::Cert | Self::Model => "model.cert",
            Self::Rotation => "rotate.proof",
            Self::RotationId => "next.id",
        }
    }
}

/// What has to be said about a hostile file: the exit code and a part of the text.
type Answer<'a> = (Ask, i32, &'a str);

/// A hostile file and the answers that it has to get.
struct Case<'a> {
    name: &'a str,
    /// How the file starts.
    start: Vec<u8>,
    /// How long it is made; what is beyond the start is a hole in the file.
    length: u64,
    answers: &'a [Answer<'a>],
}

fn honest(file: &str) -> Vec<u8> {
    fs::read(folder().join(file)).unwrap()
}

/// An honest file with other bytes at some place.
fn with(file: &str, at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut changed = honest(file);
    changed[at..at + bytes.len()].copy_from_slice(bytes);
    changed
}

/// The start of a proof file of a batch of these sizes.
fn start(id: &ModelId, shape: &BatchShape) -> (BatchHeader, Vec<u8>) {
    let header = BatchHeader::of_sizes(&id.header, shape.clone()).unwrap();
    let mut w = Writer::new();
    write_proof_header(&mut w, &id.digest(), &header);
    (header, w.bytes)
}

/// Requests of one length, and all experts with one load.
fn batch(id: &ModelId, requests: usize, length: usize, load: usize) -> BatchShape {
    let sizes = &id.header.sizes;
    let experts = 0..sizes.num_hidden_layers * sizes.num_experts;
    BatchShape {
        lengths: vec![length; requests],
        blocks: experts
            .map(|n| (n / sizes.num_experts, n % sizes.num_experts, load))
            .collect(),
        decoded: load,
    }
}

/// The figures of honest files, with which the others are compared.
struct Honest(Vec<(Ask, Ended)>);

impl Honest {
    fn measure() -> Self {
        let measure = |ask: Ask| {
            let ended = run(&ask.args(ask.honest()));
            assert_eq!(ended.code, Some(0), "{ask:?}\n{}", ended.text);
            print("honest", ask, &ended, 0);
            (ask, ended)
        };
        Self(Ask::ALL.map(measure).into())
    }

    fn peak(&self, ask: Ask) -> u64 {
        let found = self.0.iter().find(|(a, _)| *a == ask);
        found.map_or(0, |(_, ended)| ended.peak)
    }
}

fn print(name: &str, ask: Ask, ended: &Ended, honest: u64) {
    let more = megabytes(ended.peak) - megabytes(honest);
    println!(
        "{name:44} {ask:12} exit {} {:7.3} s {:7.1} MB ({more:+.1})",
        ended.code.unwrap_or(-1),
        ended.seconds,
        megabytes(ended.peak),
        ask = format!("{ask:?}"),
    );
}

impl Case<'_> {
    fn check(&self, honest: &Honest) {
        let path = folder().join("hostile");
        fs::write(&path, &self.start).unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(self.length).unwrap();
        self.ask("hostile", honest);
        fs::remove_file(path).unwrap();
    }

    fn ask(&self, file: &str, honest: &Honest) {
        for &(ask, code, text) in self.answers {
            let name = self.name;
            let ended = run(&ask.args(file));
            let peak = honest.peak(ask);
            print(name, ask, &ended, peak);
            assert_eq!(ended.code, Some(code), "{name}, {ask:?}\n{}", ended.text);
            assert!(
                ended.text.contains(text),
                "{name}, {ask:?}: {text:?}\n{}",
                ended.text
            );
            assert!(
                ended.peak <= peak + ROOM,
                "{name}, {ask:?}: {:.1} MB, an honest file takes {:.1} MB",
                megabytes(ended.peak),
                megabytes(peak)
            );
        }
    }
}

/// A gigabyte of noise, the same in each run.
fn write_noise(path: &Path) {
    let mut noise = blake3::Hasher::new_derive_key("noise of a test").finalize_xof();
    let mut block = vec![0; 1 << 20];
    let mut file = BufWriter::new(File::create(path).unwrap());
    for _ in 0..GIGABYTE >> 20 {
        noise.fill(&mut block);
        file.write_all(&block).unwrap();
    }
    file.flush().unwrap();
}

#[test]
fn hostile_files_are_refused_with_little_memory() {
    prepare();
    let honest_files = Honest::measure();
    let id = ModelId::decode(&honest("model.id")).unwrap();
    let slip = Slip::decode(&honest("proofs/story.slip")).unwrap();
    let response = 116;
    assert_eq!(
        honest("proofs/story.slip").len(),
        120 + 4 * slip.response.len()
    );
    // Magic, version and model id, then the number of requests; with one request, the number of experts follows.
    let (requests, experts) = (44, 84);
    let tokenizer = honest("model.id").len() - id.tokenizer.len() - 4;

    let no_file: &[Answer] = &[
        (Ask::Proof, 2, "this is not a proof file"),
        (Ask::Slip, 2, "a file of this kind has at most 262264"),
        (Ask::Id, 2, "a file of this kind has at most"),
        (Ask::Cert, 2, "this is not a certificate file"),
        (Ask::Model, 2, "this is not a certificate file"),
        (Ask::ModelId, 2, "a file of this kind has at most"),
        (Ask::Rotation, 2, "this is not a rotation file"),
        (Ask::RotationId, 2, "a file of this kind has at most"),
        (Ask::Inspect, 2, "a file of this kind has at most"),
        (Ask::InspectId, 2, "a file of this kind has at most"),
    ];
    let length = "has 1073741824 bytes, with the sizes that it states it has";
    let extended: &[(&str, &[Answer])] = &[
        (
            "proofs/batch.proof",
            &[
                (Ask::Proof, 1, length),
                (Ask::InspectProof, 2, length),
                (Ask::Inspect, 0, "1073741824"),
                (Ask::Rotation, 2, "this is not a rotation file"),
            ],
        ),
        (
            "model.cert",
            &[
                (Ask::Model, 1, length),
                (Ask::Cert, 1, length),
                (Ask::Inspect, 0, "1073741824"),
            ],
        ),
        (
            "rotate.proof",
            &[(Ask::Rotation, 1, length), (Ask::Inspect, 0, "1073741824")],
        ),
        (
            "proofs/story.slip",
            &[
                (Ask::Slip, 2, "has 1073741824 bytes"),
                (Ask::Inspect, 2, "has 1073741824 bytes"),
            ],
        ),
        (
            "model.id",
            &[
                (Ask::Id, 2, "has 1073741824 bytes"),
                (Ask::ModelId, 2, "has 1073741824 bytes"),
                (Ask::Inspect, 2, "has 1073741824 bytes"),
            ],
        ),
        ("model.zkm", &[(Ask::Inspect, 2, "surplus bytes")]),
    ];
    let largest = u32::MAX.to_le_bytes();
    let proof = |at| with("proofs/batch.proof", at, &largest);
    let (_, many_requests) = start(&id, &batch(&id, 4096, 256, 1 << 20));
    let (_, many_short) = start(&id, &batch(&id, 4096, 1, 1));
    let (one, of_one) = start(&id, &batch(&id, 1, 8, 1 << 10));
    let right_length = batch_length(&id, &one).unwrap();

    let noise = folder().join("noise");
    write_noise(&noise);
    let noisy = Case {
        name: "random bytes",
        start: Vec::new(),
        length: 0,
        answers: no_file,
    };
    noisy.ask("noise", &honest_files);
    fs::remove_file(noise).unwrap();

    let case = |name: &str, start: Vec<u8>, length: u64, answers: &[Answer]| {
        Case {
            name,
            start,
            length,
            answers,
        }
        .check(&honest_files);
    };
    case("zeros", Vec::new(), GIGABYTE, no_file);
    for &(file, answers) in extended {
        case(
            &format!("{file}, extended"),
            honest(file),
            GIGABYTE,
            answers,
        );
    }
    for (name, start, text) in [
        (
            "4294967295 requests",
            proof(requests),
            "`number of requests` is 4294967295, at most 4096",
        ),
        (
            "a request of 4294967295",
            proof(requests + 4),
            "`length of a request` is 4294967295, at most 512",
        ),
        (
            "4294967295 experts",
            proof(experts),
            "`number of active experts` is 4294967295, at most 32",
        ),
        (
            "a load of 4294967295",
            proof(experts + 12),
            "`load of an active expert` is 4294967295, at most 1024",
        ),
    ] {
        let answers = [(Ask::Proof, 2, text), (Ask::InspectProof, 2, text)];
        case(name, start, GIGABYTE, &answers);
    }
    let answers = [
        (Ask::Proof, 1, "limits: "),
        (Ask::InspectProof, 2, "limits: "),
    ];
    for length in [many_requests.len() as u64, GIGABYTE] {
        case(
            "sizes above the limits together",
            many_requests.clone(),
            length,
            &answers,
        );
    }
    let wrong = "bytes, with the sizes that it states it has";
    let answers = [(Ask::Proof, 1, wrong), (Ask::InspectProof, 2, wrong)];
    for length in [many_short.len() as u64, GIGABYTE] {
        case(
            "4096 requests and nothing else",
            many_short.clone(),
            length,
            &answers,
        );
    }
    for length in [right_length.least - 1, right_length.most + 1] {
        case(
            "a byte too few or too many",
            of_one.clone(),
            length,
            &answers,
        );
    }
    let work = "proof of work: work before the first challenges";
    case(
        "zeros behind a header",
        of_one,
        right_length.least,
        &[(Ask::Proof, 1, work)],
    );

    let claims = with("proofs/story.slip", response, &largest);
    let text = "`response length` is 4294967295, at most 65536";
    let answers = [(Ask::Slip, 2, text), (Ask::Inspect, 2, text)];
    case(
        "a slip with 4294967295 tokens",
        claims.clone(),
        claims.len() as u64,
        &answers,
    );
    long_tokens(&id, &honest_files);
    long_prompts(&honest_files);

    let claims = with("model.id", tokenizer, &largest);
    let text = "`tokenizer length` is 4294967295, at most 33554432";
    let answers = [
        (Ask::Id, 2, text),
        (Ask::ModelId, 2, text),
        (Ask::Inspect, 2, text),
    ];
    case(
        "a tokenizer of 4294967295 bytes",
        claims.clone(),
        claims.len() as u64,
        &answers,
    );
}

/// Prompts that take many times their size to split into tokens.
fn long_prompts(honest: &Honest) {
    let peak = honest.peak(Ask::Proof);
    for unit in ["<|", " ", "a", PROMPT, "<|endoftext|>"] {
        fs::write(
            folder().join("long.txt"),
            unit.repeat((1 << 24) / unit.len()),
        )
        .unwrap();
        let files = ["--id", "model.id", "--cert", "model.cert"];
        let others = [
            "--proof",
            "proofs/batch.proof",
            "--slip",
            "proofs/story.slip",
        ];
        let texts = ["--prompt-file", "long.txt", "--response-file", "story.txt"];
        let ended = run(&[&["verify"][..], &files, &others, &texts].concat());
        assert_eq!(ended.code, Some(1), "{}", ended.text);
        let why = "with a context of 512 tokens a prompt has at most 32768";
        assert!(ended.text.contains(why), "{}", ended.text);
        print(&format!("a prompt of {unit:?}"), Ask::Slip, &ended, peak);
        assert!(ended.peak <= peak + ROOM, "{} bytes", ended.peak);
    }
}

/// A slip of 65,536 tokens under an id in whose tokenizer that token is as long as one may be: a text of 64 MB, of which a
/// verifier would hold several copies. And an id with a token that takes minutes to build an automaton for.
fn long_tokens(id: &ModelId, honest: &Honest) {
    let mut id = id.clone();
    let mut json: serde_json::Value = serde_json::from_slice(&id.tokenizer).unwrap();
    json["model"]["vocab"]["Z".repeat(1 << 10)] = 2048.into();
    id.tokenizer = serde_json::to_vec(&json).unwrap();
    id.header.tokenizer_hash = *blake3::hash(&id.tokenizer).as_bytes();
    let mut slip = Slip::decode(&fs::read(folder().join("proofs/story.slip")).unwrap()).unwrap();
    slip.model = id.digest();
    slip.max_tokens = 65_536;
    slip.response = vec![2048; 65_536];
    fs::write(folder().join("long.id"), id.encode()).unwrap();
    fs::write(folder().join("long.slip"), slip.encode()).unwrap();
    let files = ["--id", "long.id", "--slip", "long.slip"];
    let others = ["--proof", "proofs/batch.proof", "--cert", "model.cert"];
    let texts = ["--prompt", PROMPT, "--response-file", "story.txt"];
    let args = [&["verify"][..], &files, &others, &texts].concat();
    let ended = run(&args);
    assert_eq!(ended.code, Some(1), "{}", ended.text);
    let why = "response: the slip is for another text; it is far longer";
    assert!(ended.text.contains(why), "{}", ended.text);
    let peak = honest.peak(Ask::Proof);
    print("a long token 65536 times", Ask::Slip, &ended, peak);
    assert!(ended.peak <= peak + ROOM, "{} bytes", ended.peak);

    json["added_tokens"][0]["content"] = "<".repeat(1 << 20).into();
    id.tokenizer = serde_json::to_vec(&json).unwrap();
    id.header.tokenizer_hash = *blake3::hash(&id.tokenizer).as_bytes();
    fs::write(folder().join("long.id"), id.encode()).unwrap();
    let ended = run(&args);
    assert_eq!(ended.code, Some(2), "{}", ended.text);
    let why = "has 1048576 bytes, at most 1024 are supported";
    assert!(ended.text.contains(why), "{}", ended.text);
    print("a token of a megabyte", Ask::Id, &ended, peak);
    assert!(ended.peak <= peak + ROOM, "{} bytes", ended.peak);
}
