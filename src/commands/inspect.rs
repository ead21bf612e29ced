//! `zkmoe inspect`: what a file is, and what it tells to whom.
//!
//! Files are told apart by their first bytes. What is printed is never secret: no seed, salt or cell, no weight, no text.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::Value;
use zkmoe_commit::codec::Reader;
use zkmoe_prover::import::config::Config;
use zkmoe_prover::key::{KEY_MAGIC, KeyState, LAST_MAGIC, Ledger, Opening, read_last};
use zkmoe_prover::model::{MODEL_MAGIC, Model};
use zkmoe_verifier::batch::{MAX_START, PROOF_MAGIC, read_proof_header};
use zkmoe_verifier::certificate::{self, CERTIFICATE_MAGIC, read_certificate_header};
use zkmoe_verifier::header::{Header, Sizes};
use zkmoe_verifier::id::ID_MAGIC;
use zkmoe_verifier::rotation::{self, ROTATION_MAGIC, read_rotation_header};
use zkmoe_verifier::slip::{MAX_SLIP, SLIP_MAGIC, Slip};
use zkmoe_verifier::verify::batch_length;

use crate::failure::{Failure, Outcome};
use crate::input;
use crate::learned::{Learned, NOTHING_ELSE, learned};
use crate::output;
use crate::reply::Reply;
use crate::state::StateArgs;
use crate::verdict::{How, Note, VERDICT_MAGIC};
use crate::visible::{Line, Named};

/// What files are told apart, as advice.
const KNOWN: &str = "known are models (.zkm), model ids (.id), keys (.key), certificates (.cert), verdicts \
                     (.certified), proofs of batches and of rotations (.proof), slips (.slip), replies (.json) and \
                     folders of checkpoints";

/// Say what a file is and what it tells to whom.
///
/// This is no verdict: of proofs, certificates, slips and replies nothing is checked, and what is printed is what the
/// file says. Verdicts are given by `zkmoe verify`, `zkmoe verify-model` and `zkmoe verify-rotation`.
///
/// Knows models, ids, keys, certificates, proofs of batches and of rotations, slips, replies and the folders of
/// checkpoints. Of the proof of a batch it lists everything that a stranger learns from it. Nothing secret is printed.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  zkmoe inspect model.id
  zkmoe inspect batch.proof --id model.id
  zkmoe inspect rotate.proof")]
pub struct Args {
    /// The file, or the folder of a checkpoint.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The model id of the proof of a batch; without it only the start of the proof can be read.
    #[arg(long, value_name = "FILE")]
    pub id: Option<PathBuf>,
    /// Where the secret is that marks the user's notes.
    #[command(flatten)]
    pub state: StateArgs,
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
    pub file: Named,
    /// Its kind.
    pub kind: &'static str,
    /// Its content, as far as it may be shown.
    pub facts: Facts,
    /// Who decides whether it is true, where the facts are what the file says of itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_checked: Option<&'static str>,
    /// What a stranger learns from it, where it is a proof whose model id was named.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub learned: Vec<Learned>,
    /// What it tells, and to whom.
    pub tells: &'static str,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The kind first: a file can have the name of a verdict.
        writeln!(f, "{}: {}", self.kind, self.file)?;
        if let Some(who) = self.not_checked {
            writeln!(f, "Not checked, only read: {who}")?;
        }
        if self.learned.is_empty() {
            let width = self
                .facts
                .0
                .iter()
                .map(|(name, _)| name.len())
                .max()
                .unwrap_or(0);
            for (name, value) in &self.facts.0 {
                match value {
                    Value::String(text) => writeln!(f, "  {name:<width$}  {}", Line(text))?,
                    other => writeln!(f, "  {name:<width$}  {other}")?,
                }
            }
        } else {
            // The list has all the facts.
            writeln!(f, "What a stranger learns from this proof:")?;
            self.learned.iter().try_for_each(|l| write!(f, "{l}"))?;
            writeln!(f, "{NOTHING_ELSE}")?;
        }
        writeln!(f, "{}", self.tells)?;
        Ok(())
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
    not_checked: Option<&'static str>,
    learned: Vec<Learned>,
    tells: &'static str,
}

/// Who decides about a file of a reply.
const BY_VERIFY: Option<&str> = Some("`zkmoe verify` decides about a reply.");

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
        not_checked: None,
        tells: "Private to the provider: it holds all weights.",
        learned: Vec::new(),
    })
}

fn id(path: &Path) -> Result<Found, Failure> {
    let id = input::open_id(path)?;
    let params = &id.params;
    let facts = Facts::default()
        .add("model id", output::hex(&id.digest()))
        .add("batches, at most", params.batches())
        .add("row length", 1u64 << params.log_row)
        .add("codeword length", 1u64 << params.log_code)
        .add("opened positions", params.queries)
        .add("tokenizer bytes", id.tokenizer.len());
    Ok(Found {
        kind: "model id (.id)",
        facts: header_facts(facts, &id.header),
        not_checked: None,
        tells: "Public: it tells a stranger the architecture, its shifts and tables, and the tokenizer; its root binds \
                the weights without showing them. It does not say whose model that is: compare the model id with one that \
                you know from elsewhere.",
        learned: Vec::new(),
    })
}

fn last_chain_value(facts: Facts, ledger: &Ledger) -> Facts {
    let value = match ledger.openings() {
        0 => "none: nothing was opened yet".to_owned(),
        _ => output::hex(&ledger.current()),
    };
    facts.add("last chain value", value)
}

/// A key, also while a prover is using it.
fn key(path: &Path) -> Result<Found, Failure> {
    let state = KeyState::read(path).map_err(|error| {
        Failure::new(error).advise("without a sound key nothing can be proved; commit again")
    })?;
    let left = |purpose| state.ledger.left(purpose, state.limit);
    let once = |purpose| match left(purpose) {
        0 => "spent",
        _ => "available",
    };
    let facts = Facts::default()
        .add("model id", output::hex(&state.id))
        .add("batches left", left(Opening::Batch))
        .add("batches spent", state.ledger.batches)
        .add("certificate", once(Opening::Certificate))
        .add("rotation", once(Opening::Rotation));
    let facts = last_chain_value(facts, &state.ledger)
        .add("columns", 1u64 << state.log_columns)
        .add("seed", "(not shown)");
    Ok(Found {
        kind: "key (.key)",
        facts,
        not_checked: None,
        tells: "Private to the provider, never copied: its seed is the randomness that hides the weights, and a copy does \
                not know what the other one has opened.",
        learned: Vec::new(),
    })
}

fn last(path: &Path) -> Result<Found, Failure> {
    let (id, ledger) = read_last(path).map_err(|error| {
        Failure::new(error).advise("the next proof writes it again if it is gone")
    })?;
    let facts = Facts::default()
        .add("model id", output::hex(&id))
        .add("batches spent", ledger.batches);
    Ok(Found {
        kind: "last opening of a key (.key.last)",
        facts: last_chain_value(facts, &ledger),
        not_checked: None,
        tells: "Private to the provider: it stays beside its key, and shows when an older key takes that place.",
        learned: Vec::new(),
    })
}

fn proof(args: &Args) -> Result<Found, Failure> {
    let advice = "take the batch.proof that came with the slip";
    let file = input::Proof::open(&args.file, MAX_START)?;
    let (start, bytes) = (file.start(), file.length());
    let mut facts = Facts::default().add("bytes", bytes);
    let mut list = Vec::new();
    if let Some(path) = &args.id {
        let id = input::open_id(path)?;
        let undecodable = |error| input::undecodable(&args.file, &error, advice);
        let (named, header) =
            read_proof_header(&mut Reader::new(start), &id.header).map_err(undecodable)?;
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
        let refused = |error| Failure::file(&args.file, error).advise(advice);
        let length = batch_length(&id, &header).map_err(refused)?;
        length.check(bytes).map_err(undecodable)?;
        facts = facts.add("model id", output::hex(&named));
        list = learned(&id, &header, bytes as usize);
    } else {
        // Magic, version, model id; what follows needs the sizes of the model.
        let named = start
            .get(12..44)
            .ok_or_else(|| Failure::file(&args.file, "ends inside `model id`").advise(advice))?;
        facts = facts
            .add("model id", output::hex(named))
            .add("what a stranger learns", "name the model id with --id");
    }
    Ok(Found {
        kind: "proof of a batch (.proof)",
        facts,
        not_checked: BY_VERIFY,
        tells: "For all customers of its batch: it tells padded lengths of all requests and padded loads of experts.",
        learned: list,
    })
}

fn certificate(path: &Path) -> Result<Found, Failure> {
    let file = input::Proof::open(path, certificate::START)?;
    let named = read_certificate_header(&mut Reader::new(file.start())).map_err(|error| {
        let advice = "take the certificate that the provider published with the id";
        input::undecodable(path, &error, advice)
    })?;
    let facts = Facts::default()
        .add("model id", output::hex(&named))
        .add("bytes", file.length());
    Ok(Found {
        kind: "certificate of a model (.cert)",
        facts,
        not_checked: Some("`zkmoe verify-model` decides about it."),
        tells: "Public: `zkmoe verify-model` checks it. It tells nothing but that all weights are in range.",
        learned: Vec::new(),
    })
}

fn rotation(path: &Path) -> Result<Found, Failure> {
    let file = input::Proof::open(path, rotation::START)?;
    let [from, to] = read_rotation_header(&mut Reader::new(file.start())).map_err(|error| {
        let advice = "take the proof that the provider published with the new id";
        input::undecodable(path, &error, advice)
    })?;
    let facts = Facts::default()
        .add("old model id", output::hex(&from))
        .add("new model id", output::hex(&to))
        .add("bytes", file.length());
    Ok(Found {
        kind: "proof of a rotation (.proof)",
        facts,
        not_checked: Some("`zkmoe verify-rotation` decides about it."),
        tells: "Public: `zkmoe verify-rotation` checks it. It tells nothing but that both ids commit to the same weights.",
        learned: Vec::new(),
    })
}

/// Whether a note carries the MAC of the user's secret. Nothing is drawn: who has no secret has made no note.
fn made_by_you(state: &StateArgs, note: &Note) -> String {
    match state.locate().and_then(|state| state.secret()) {
        Ok(Some(secret)) if note.is_by(&secret) => "yes".to_owned(),
        Ok(_) => "no: `zkmoe verify` does not believe it here".to_owned(),
        Err(failure) => format!("not known: {failure}"),
    }
}

fn verdict(path: &Path, bytes: &[u8], state: &StateArgs) -> Result<Found, Failure> {
    let note = Note::decode(bytes).map_err(|error| {
        input::undecodable(path, &error, "remove it and run `zkmoe verify-model` again")
    })?;
    let (by, named) = match note.certified.how {
        How::Certificate { digest } => ("certificate", digest),
        How::Rotation { from } => ("rotation from", from),
    };
    let facts = Facts::default()
        .add("model id", output::hex(&note.about))
        .add(by, output::hex(&named))
        .add("soundness bits", note.certified.soundness_bits())
        .add("made by you", made_by_you(state, &note));
    Ok(Found {
        kind: "note of a verified model (.certified)",
        facts,
        not_checked: None,
        tells: "For whoever made it: their own `zkmoe verify` believes it. It proves nothing to others.",
        learned: Vec::new(),
    })
}

fn slip(path: &Path) -> Result<Found, Failure> {
    let slip = Slip::decode(&input::read_at_most(path, MAX_SLIP as u64)?)
        .map_err(|error| input::undecodable(path, &error, "ask the provider for the slip again"))?;
    let facts = Facts::default()
        .add("model id", output::hex(&slip.model))
        .add("request", slip.request)
        .add("max_tokens", slip.max_tokens)
        .add("response tokens", slip.response.len());
    Ok(Found {
        kind: "slip of one reply (.slip)",
        facts,
        not_checked: BY_VERIFY,
        tells: "Only for the customer of this reply: it holds the response's tokens, and with a guess of the prompt it \
                would confirm the guess.",
        learned: Vec::new(),
    })
}

fn reply(path: &Path, bytes: &[u8]) -> Result<Found, Failure> {
    let unknown = "is of no kind that is known";
    let reply = Reply::parse(bytes).map_err(|reason| {
        // Why it is no reply matters only where it may be meant to be one.
        let failure = if bytes.trim_ascii_start().starts_with(b"{") {
            Failure::file(path, format_args!("{unknown} (as JSON: {reason})"))
        } else {
            Failure::file(path, unknown)
        };
        failure.advise(KNOWN)
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
        not_checked: BY_VERIFY,
        tells: "For provider and customer: it holds prompt and response in clear.",
        learned: Vec::new(),
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
        not_checked: None,
        tells: "`zkmoe import` makes an integer model from it; weights were not read.",
        learned: Vec::new(),
    })
}

/// Finds out what the file is.
pub fn perform(args: &Args) -> Result<Report, Failure> {
    let path = args.file.as_path();
    let found = if path.is_dir() {
        checkpoint(path)?
    } else {
        // No more is read than the kind of file has.
        match input::Proof::open(path, 8)?.start().first_chunk::<8>() {
            Some(&MODEL_MAGIC) => model(path)?,
            Some(&KEY_MAGIC) => key(path)?,
            Some(&LAST_MAGIC) => last(path)?,
            Some(&ID_MAGIC) => id(path)?,
            Some(&PROOF_MAGIC) => proof(args)?,
            Some(&CERTIFICATE_MAGIC) => certificate(path)?,
            Some(&ROTATION_MAGIC) => rotation(path)?,
            Some(&VERDICT_MAGIC) => verdict(path, &input::read(path)?, &args.state)?,
            Some(&SLIP_MAGIC) => slip(path)?,
            _ => reply(path, &input::read(path)?)?,
        }
    };
    Ok(Report {
        file: Named::file(path),
        kind: found.kind,
        facts: found.facts,
        not_checked: found.not_checked,
        learned: found.learned,
        tells: found.tells,
    })
}

/// Prints what the file is.
pub fn execute(args: &Args) -> Result<Outcome, Failure> {
    output::emit(&perform(args)?, args.json)?;
    Ok(Outcome::Done)
}
