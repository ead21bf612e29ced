//! `zkmoe inspect`: what a file is, and what it tells to whom.
//!
//! Files are told apart by their first bytes. What is printed is never secret: no seed, salt or cell, no weight, no text.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::{Value, json};
use zkmoe_commit::codec::Reader;
use zkmoe_prover::commitment::{KEY_MAGIC, Key};
use zkmoe_prover::import::config::Config;
use zkmoe_prover::model::{MODEL_MAGIC, Model};
use zkmoe_verifier::batch::{PROOF_MAGIC, read_proof_header};
use zkmoe_verifier::header::{Header, Sizes};
use zkmoe_verifier::id::{ID_MAGIC, ModelId};
use zkmoe_verifier::slip::{SLIP_MAGIC, Slip};

use crate::failure::{Failure, Outcome};
use crate::input;
use crate::output::{self, NOT_YET_ZERO_KNOWLEDGE, ZERO_KNOWLEDGE};
use crate::reply::Reply;

/// Say what a file is and what it tells to whom.
///
/// Knows models, ids, keys, proofs, slips, replies and the folders of checkpoints. Nothing secret is printed.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  zkmoe inspect model.id
  zkmoe inspect batch.proof --id model.id")]
pub struct Args {
    /// The file, or the folder of a checkpoint.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The model id of a proof; without it only the start of a proof can be read.
    #[arg(long, value_name = "FILE")]
    pub id: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Named facts in their order.
#[derive(Debug, Default)]
pub struct Facts(pub Vec<(&'static str, Value)>);

impl Facts {
    fn add(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.0.push((name, value.into()));
        self
    }
}

impl Serialize for Facts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// What a file is.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The file.
    pub file: String,
    /// Its kind.
    pub kind: &'static str,
    /// Its content, as far as it may be shown.
    pub facts: Facts,
    /// What it tells, and to whom.
    pub tells: &'static str,
    /// Whether proofs hide what they prove, where the file has to do with a proof.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zero_knowledge: Option<bool>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.file, self.kind)?;
        let width = self
            .facts
            .0
            .iter()
            .map(|(name, _)| name.len())
            .max()
            .unwrap_or(0);
        for (name, value) in &self.facts.0 {
            match value {
                Value::String(text) => writeln!(f, "  {name:<width$}  {text}")?,
                other => writeln!(f, "  {name:<width$}  {other}")?,
            }
        }
        writeln!(f, "{}", self.tells)?;
        match self.zero_knowledge {
            Some(false) => writeln!(f, "{NOT_YET_ZERO_KNOWLEDGE}"),
            _ => Ok(()),
        }
    }
}

fn size_facts(facts: Facts, sizes: &Sizes) -> Facts {
    facts
        .add("vocab_size", sizes.vocab_size)
        .add("hidden_size", sizes.hidden_size)
        .add("intermediate_size", sizes.intermediate_size)
        .add("num_hidden_layers", sizes.num_hidden_layers)
        .add(
            "num_attention_heads",
            sizes.num_key_value_heads * sizes.query_group,
        )
        .add("num_key_value_heads", sizes.num_key_value_heads)
        .add("head_dim", sizes.head_dim)
        .add("num_experts", sizes.num_experts)
        .add("num_experts_per_tok", sizes.num_experts_per_tok)
        .add("max_position_embeddings", sizes.max_position_embeddings)
}

fn header_facts(facts: Facts, header: &Header) -> Facts {
    size_facts(facts, &header.sizes)
        .add("tokenizer hash", output::hex(&header.tokenizer_hash))
        .add("chat template hash", output::hex(&header.template_hash))
}

/// What was found in a file.
struct Found {
    kind: &'static str,
    facts: Facts,
    tells: &'static str,
    about_proofs: bool,
}

fn model(path: &Path) -> Result<Found, Failure> {
    let model = Model::open(path).map_err(|error| {
        Failure::new(error).advise("import the checkpoint again, or copy the file again")
    })?;
    let facts = Facts::default()
        .add("weights", model.parameters())
        .add("bytes", model.file_size());
    Ok(Found {
        kind: "integer model (.zkm)",
        facts: header_facts(facts, model.header()),
        tells: "Private to the provider: it holds all weights.",
        about_proofs: false,
    })
}

fn id(path: &Path, bytes: &[u8]) -> Result<Found, Failure> {
    let id = ModelId::decode(bytes).map_err(|error| {
        input::undecodable(path, &error, "take the file that the provider published")
    })?;
    let params = &id.params;
    let facts = Facts::default()
        .add("model id", output::hex(&id.digest()))
        .add("batches", params.batches())
        .add("row length", 1u64 << params.log_row)
        .add("codeword length", 1u64 << params.log_code)
        .add("opened positions", params.queries)
        .add("tokenizer bytes", id.tokenizer.len());
    Ok(Found {
        kind: "model id (.id)",
        facts: header_facts(facts, &id.header),
        tells: "Public: it tells a stranger the architecture, its shifts and tables, and the tokenizer; its root binds \
                the weights without showing them.",
        about_proofs: false,
    })
}

fn key(path: &Path, bytes: &[u8]) -> Result<Found, Failure> {
    let key = Key::decode(bytes).map_err(|error| {
        input::undecodable(
            path,
            &error,
            "without a sound key nothing can be proved; commit again",
        )
    })?;
    let facts = Facts::default()
        .add("model id", output::hex(&key.id))
        .add("columns", 1u64 << key.tree.log_size())
        .add("seed", "(not shown)");
    Ok(Found {
        kind: "key (.key)",
        facts,
        tells: "Private to the provider, never copied: its seed is the randomness that hides the weights.",
        about_proofs: false,
    })
}

fn proof(args: &Args, bytes: &[u8]) -> Result<Found, Failure> {
    let advice = "take the batch.proof that came with the slip";
    let undecodable = |error| input::undecodable(&args.file, &error, advice);
    let mut facts = Facts::default().add("bytes", bytes.len());
    if let Some(path) = &args.id {
        let id = input::open_id(path)?;
        let (named, header) =
            read_proof_header(&mut Reader::new(bytes), &id.header).map_err(undecodable)?;
        if named != id.digest() {
            let reason = format!(
                "is about model {}, not about {}",
                output::hex(&named),
                path.display()
            );
            return Err(
                Failure::file(&args.file, reason).advise("name the id of that model with --id")
            );
        }
        let shape = &header.shape;
        let loads: Vec<Value> = shape
            .blocks
            .iter()
            .map(|&(layer, expert, load)| json!([layer, expert, load]))
            .collect();
        let rows: usize = shape.blocks.iter().map(|b| b.2).sum();
        facts = facts
            .add("model id", output::hex(&named))
            .add("requests", shape.lengths.len())
            .add("padded lengths", shape.lengths.clone())
            .add("response tokens of all requests, padded", shape.decoded)
            .add("active experts", shape.blocks.len())
            .add("rows of active experts, padded", rows);
        if args.json {
            facts = facts.add("layer, expert and load", loads);
        }
    } else {
        // Magic, version, model id; what follows needs the sizes of the model.
        let named = bytes
            .get(12..44)
            .ok_or_else(|| Failure::file(&args.file, "ends inside `model id`").advise(advice))?;
        facts = facts
            .add("model id", output::hex(named))
            .add("more", "name the model id with --id");
    }
    Ok(Found {
        kind: "proof of a batch (.proof)",
        facts,
        tells: "For all customers of its batch: it tells padded lengths of all requests and padded loads of experts.",
        about_proofs: true,
    })
}

fn slip(path: &Path, bytes: &[u8]) -> Result<Found, Failure> {
    let slip = Slip::decode(bytes)
        .map_err(|error| input::undecodable(path, &error, "ask the provider for the slip again"))?;
    let facts = Facts::default()
        .add("model id", output::hex(&slip.model))
        .add("request", slip.request)
        .add("max_tokens", slip.max_tokens)
        .add("response tokens", slip.response.len());
    Ok(Found {
        kind: "slip of one reply (.slip)",
        facts,
        tells: "Only for the customer of this reply: it holds the response's tokens, and with a guess of the prompt it \
                would confirm the guess.",
        about_proofs: true,
    })
}

fn reply(path: &Path, bytes: &[u8]) -> Result<Found, Failure> {
    let reply = Reply::parse(bytes).map_err(|reason| {
        Failure::file(path, reason)
            .advise("known are .zkm, .id, .key, .proof, .slip, replies and checkpoint folders")
    })?;
    let facts = Facts::default()
        .add("prompt tokens", reply.prompt_ids.len())
        .add("response tokens", reply.response_ids.len())
        .add("max_tokens", reply.max_tokens)
        .add("decoding", "greedy")
        .add("ended because", reply.ended.words());
    Ok(Found {
        kind: "reply (.json)",
        facts,
        tells: "For provider and customer: it holds prompt and response in clear.",
        about_proofs: false,
    })
}

fn checkpoint(folder: &Path) -> Result<Found, Failure> {
    let path = folder.join("config.json");
    let config = Config::parse(&input::read(&path)?).map_err(|error| {
        Failure::file(folder, error)
            .advise("`zkmoe import` takes OLMoE checkpoints in Hugging Face's layout")
    })?;
    let facts = Facts::default()
        .add("rope_theta", config.rope_theta)
        .add("rms_norm_eps", config.rms_norm_eps)
        .add("tie_word_embeddings", config.tie_word_embeddings);
    Ok(Found {
        kind: "checkpoint with a supported config.json",
        facts: size_facts(facts, &config.sizes),
        tells: "`zkmoe import` makes an integer model from it; weights were not read.",
        about_proofs: false,
    })
}

/// Finds out what the file is.
pub fn perform(args: &Args) -> Result<Report, Failure> {
    let path = args.file.as_path();
    let found = if path.is_dir() {
        checkpoint(path)?
    } else if starts_with(path, MODEL_MAGIC)? {
        // Mapped, not read: it may be larger than memory.
        model(path)?
    } else {
        let bytes = input::read(path)?;
        match bytes.first_chunk::<8>() {
            Some(magic) if *magic == ID_MAGIC => id(path, &bytes)?,
            Some(magic) if *magic == KEY_MAGIC => key(path, &bytes)?,
            Some(magic) if *magic == PROOF_MAGIC => proof(args, &bytes)?,
            Some(magic) if *magic == SLIP_MAGIC => slip(path, &bytes)?,
            _ => reply(path, &bytes)?,
        }
    };
    Ok(Report {
        file: path.display().to_string(),
        kind: found.kind,
        facts: found.facts,
        tells: found.tells,
        zero_knowledge: found.about_proofs.then_some(ZERO_KNOWLEDGE),
    })
}

fn starts_with(path: &Path, magic: [u8; 8]) -> Result<bool, Failure> {
    use std::io::Read;
    let mut start = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(8).read_to_end(&mut start))
        .map_err(|error| Failure::file(path, error))?;
    Ok(start == magic)
}

/// Prints what the file is.
pub fn execute(args: &Args) -> Result<Outcome, Failure> {
    output::emit(&perform(args)?, args.json)?;
    Ok(Outcome::Done)
}
