//! `zkmoe prove`: one proof for a batch of replies, and a slip for each.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Serialize;
use zkmoe_commit::codec::Reader;
use zkmoe_prover::commitment::os_randomness;
use zkmoe_prover::infer::InferError;
use zkmoe_prover::key::{Key, KeyError, Opening};
use zkmoe_prover::prove::{Hook, ProveError, prove};
use zkmoe_prover::tokenizer::Tokenizer;
use zkmoe_prover::trace::{LOAD_MULTIPLE, Loads, Padding, TraceError};
use zkmoe_verifier::batch::{MAX_START, read_proof_header};
use zkmoe_verifier::id::ModelId;

use crate::estimate::{Estimate, Lengths, estimate};
use crate::failure::{Failure, Outcome};
use crate::input::{self, Written};
use crate::output::{self, Progress, Table};
use crate::reply::{Reply, show};
use crate::visible::Named;

/// The name of the proof in its folder.
pub const PROOF_FILE: &str = "batch.proof";

/// Prove replies in one batch.
///
/// Writes a slip for each reply, NAME.slip for NAME.json, and then batch.proof. The proof is for all customers of the
/// batch; each slip is for its own customer only, together with prompt and response. The weights are read a fixed
/// number of times for a batch, so many replies in one batch cost less than one by one.
///
/// Sizes of a batch are public: the length of each request, the load of each expert, the number of response tokens.
/// They are rounded up, so that they tell less; `zkmoe inspect` lists what is left to see.
///
/// The key counts the batch before its proof exists, also if the command is interrupted later; a key that has proved all
/// its batches proves nothing more. Beside the key, KEY.last remembers the last proof. If it knows of a proof that the
/// key does not count, the key is an older copy and is refused. A copy of both files is not noticed: never copy a key.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  zkmoe prove model.zkm --key model.key --id model.id story.json --out proofs
  zkmoe prove model.zkm --key model.key --id model.id replies/*.json --out proofs --json
  zkmoe prove model.zkm --key model.key --id model.id replies/*.json --out proofs --pad-lengths --hide-loads")]
pub struct Args {
    /// The model file.
    #[arg(value_name = "MODEL.zkm")]
    pub model: PathBuf,
    /// Replies as `zkmoe run` wrote them; their file names without ending must differ.
    #[arg(value_name = "REPLY.json", required = true)]
    pub replies: Vec<PathBuf>,
    /// The private key.
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
    /// The last proof that was released under this key: refuse the key unless it is the last one that it counts.
    #[arg(long, value_name = "FILE")]
    pub last_proof: Option<PathBuf>,
    /// The public id that belongs to the key.
    #[arg(long, value_name = "FILE")]
    pub id: PathBuf,
    /// The folder to write to; it is made if there is none, and must not hold a proof yet.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// How public sizes are rounded up.
    #[command(flatten)]
    pub sizes: SizeArgs,
    /// Print the report as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// How the public sizes of a batch are rounded up.
#[derive(Debug, Clone, clap::Args)]
pub struct SizeArgs {
    /// Round the length of each request and the number of response tokens up to powers of two, at most the model's
    /// context; otherwise to multiples of eight. Loads tell how much of it is padding: combine it with --hide-loads.
    #[arg(long)]
    pub pad_lengths: bool,
    /// Round the load of every expert up to a multiple of N; experts that no token used get N rows too.
    #[arg(
        long,
        value_name = "N",
        default_value_t = LOAD_MULTIPLE as u32,
        value_parser = clap::value_parser!(u32).range(1..=1024),
        conflicts_with_all = ["exact_loads", "hide_loads"]
    )]
    pub load_multiple: u32,
    /// Show loads as they are and leave unused experts out: costs least, tells most.
    #[arg(long, conflicts_with = "hide_loads")]
    pub exact_loads: bool,
    /// Give every expert of every layer the load of the busiest, so that a single number shows: costs most, tells least.
    #[arg(long)]
    pub hide_loads: bool,
}

impl Default for SizeArgs {
    fn default() -> Self {
        Self {
            pad_lengths: false,
            load_multiple: LOAD_MULTIPLE as u32,
            exact_loads: false,
            hide_loads: false,
        }
    }
}

impl SizeArgs {
    /// The rounding that these options ask for.
    pub(super) fn padding(&self) -> Padding {
        let loads = match (self.exact_loads, self.hide_loads) {
            (true, _) => Loads::Exact,
            (false, true) => Loads::Hidden,
            (false, false) => Loads::Multiple(self.load_multiple as usize),
        };
        Padding {
            powers_of_two: self.pad_lengths,
            loads,
        }
    }
}

/// One reply of the batch.
#[derive(Debug, Serialize)]
pub struct Request {
    /// Its name: the name of its file without ending.
    pub name: Named,
    /// Its slip.
    pub slip: Named,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens of the response.
    pub response_tokens: usize,
}

/// Bytes of one kind of message.
#[derive(Debug, Serialize)]
pub struct Part {
    /// The kind.
    pub part: &'static str,
    /// Its bytes.
    pub bytes: usize,
}

impl Part {
    /// From what a channel counted.
    pub(super) fn list(sizes: &[(&'static str, usize)]) -> Vec<Self> {
        let parts = sizes.iter();
        parts.map(|&(part, bytes)| Self { part, bytes }).collect()
    }

    /// For people.
    pub(super) fn table(parts: &[Self]) -> Table {
        let row = |p: &Self| vec![p.part.to_owned(), output::bytes(p.bytes as u64)];
        Table(parts.iter().map(row).collect())
    }
}

/// Wall time of one phase.
#[derive(Debug, Serialize)]
pub struct Phase {
    /// The phase.
    pub phase: &'static str,
    /// Its wall time.
    pub seconds: f64,
}

impl Phase {
    /// For people.
    pub(super) fn table(phases: &[Self]) -> Table {
        let row = |p: &Self| vec![p.phase.to_owned(), output::seconds(p.seconds)];
        Table(phases.iter().map(row).collect())
    }
}

/// A proof that was made.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The proof file.
    pub proof: Named,
    /// Its bytes.
    pub bytes: usize,
    /// The model id, in hexadecimal.
    pub model_id: String,
    /// The replies, by request number.
    pub requests: Vec<Request>,
    /// Bytes by kind of message.
    pub parts: Vec<Part>,
    /// Wall time by phase.
    pub phases: Vec<Phase>,
    /// Wall time of all phases.
    pub seconds: f64,
    /// What was expected.
    pub estimate: Estimate,
    /// Batches that the key has spent, this one included.
    pub batches_spent: u32,
    /// Batches that the key has left.
    pub batches_left: u32,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.proof, output::bytes(self.bytes as u64))?;
        write!(f, "{}", Part::table(&self.parts))?;
        for (n, request) in self.requests.iter().enumerate() {
            let Request {
                name,
                slip,
                prompt_tokens,
                response_tokens,
            } = request;
            writeln!(
                f,
                "{slip}: request {n}, {name}, {prompt_tokens} + {response_tokens} tokens, only for its customer"
            )?;
        }
        writeln!(f, "Took {}", output::seconds(self.seconds))?;
        write!(f, "{}", Phase::table(&self.phases))?;
        let left = self.batches_left;
        writeln!(
            f,
            "The key has {left} of {} batches left",
            left + self.batches_spent
        )?;
        Ok(())
    }
}

/// Watches the phases of a proof.
pub(super) struct Watch {
    progress: Progress,
    running: Option<(&'static str, Instant)>,
    pub(super) phases: Vec<Phase>,
}

impl Watch {
    pub(super) fn new() -> Self {
        Self {
            progress: Progress::spinner(),
            running: None,
            phases: Vec::new(),
        }
    }

    pub(super) fn close(&mut self) {
        if let Some((phase, start)) = self.running.take() {
            self.phases.push(Phase {
                phase,
                seconds: start.elapsed().as_secs_f64(),
            });
        }
    }
}

impl Hook for Watch {
    fn phase(&mut self, name: &'static str) {
        self.close();
        self.progress.stage(name, self.phases.len() as u64, 0);
        self.running = Some((name, Instant::now()));
    }
}

/// Names of replies; two of the same name would overwrite each other's slip.
fn names(replies: &[PathBuf]) -> Result<Vec<String>, Failure> {
    let mut seen: BTreeMap<String, &Path> = BTreeMap::new();
    let mut names = Vec::new();
    for path in replies {
        let Some(name) = path.file_stem().and_then(|stem| stem.to_str()) else {
            return Err(
                Failure::file(path, "its name cannot name a slip").advise("rename the file")
            );
        };
        if let Some(other) = seen.insert(name.to_owned(), path) {
            let reason = format!(
                "has the same name as {}, so both would write {name}.slip",
                other.display()
            );
            return Err(Failure::file(path, reason).advise("rename one of the files"));
        }
        names.push(name.to_owned());
    }
    Ok(names)
}

/// Why there is no proof, in terms of the reply's file and text.
fn explain(
    error: ProveError,
    paths: &[PathBuf],
    replies: &[Reply],
    tokenizer: &Tokenizer,
    padding: Padding,
) -> Failure {
    let fallback = error.to_string();
    let at = |request: usize| paths.get(request).zip(replies.get(request));
    match error {
        ProveError::Trace(TraceError::NotThisModel {
            request,
            position,
            expected,
            found,
        }) => {
            let Some((path, reply)) = at(request) else {
                return Failure::new(fallback);
            };
            // `position` decodes the token behind it.
            let n = (position + 2).saturating_sub(reply.prompt_ids.len());
            let before = reply
                .response_ids
                .get(..n.saturating_sub(1))
                .unwrap_or_default();
            let before = tokenizer.decode(before).unwrap_or_default();
            let message = format!(
                "the model does not decode this reply: response token {n} is {}, the model decodes {} there, after {:?}",
                show(tokenizer, Some(&expected)),
                show(tokenizer, Some(&found)),
                before
            );
            Failure::file(path, message)
                .advise("a reply that was edited, or made by another model, has no proof")
        }
        ProveError::Trace(TraceError::Infer { request, error }) => match at(request) {
            Some((path, reply)) => {
                // Where the reply was served, its positions did not overflow, and neither did the next multiple of eight.
                let served = reply.prompt_ids.len() + reply.response_ids.len();
                let added = matches!(&error, InferError::Overflow(o) if o.position >= served);
                Failure::file(path, error).advise(if added && padding.powers_of_two {
                    "this is in its padding: leave this reply out, or prove it without --pad-lengths"
                } else {
                    "leave this reply out, or make it again"
                })
            }
            None => Failure::new(fallback),
        },
        ProveError::Key(error) => {
            let advice = input::key_advice(&error);
            Failure::new(error).advise(advice)
        }
        _ => Failure::new(fallback),
    }
}

/// Opens the key, and refuses one that cannot prove a batch under `id`.
fn open_key(args: &Args, id: &ModelId) -> Result<Key, Failure> {
    let key = input::open_key(&args.key)?;
    if key.id() != id.digest() {
        let reason = format!("is the key of another id than {}", args.id.display());
        return Err(Failure::file(&args.key, reason)
            .advise("take the two files that one `zkmoe commit` wrote"));
    }
    if let Some(path) = &args.last_proof {
        let last = input::Proof::open(path, MAX_START)?;
        let (named, header) = read_proof_header(&mut Reader::new(last.start()), &id.header)
            .map_err(|error| input::undecodable(path, &error, "name a batch.proof"))?;
        if named != key.id() {
            return Err(Failure::file(path, "is a proof under another id")
                .advise("name the last proof that was made with this key"));
        }
        if header.link[1] != key.ledger().current() {
            let reason = format!(
                "{} is not the last proof that it counts: an older copy of the key was restored, a later proof was made, \
                 or a later attempt was interrupted",
                path.display()
            );
            return Err(Failure::file(&args.key, reason)
                .advise("take the newest key and its last proof; leave --last-proof out only after an interruption"));
        }
    }
    if key.left(Opening::Batch) == 0 {
        let (purpose, limit) = (Opening::Batch, key.limit());
        let spent = KeyError::Spent { purpose, limit };
        return Err(Failure::file(&args.key, &spent).advise(input::key_advice(&spent)));
    }
    Ok(key)
}

/// Proves and writes slips and proof.
pub fn perform(args: &Args) -> Result<Report, Failure> {
    let names = names(&args.replies)?;
    let proof_path = args.out.join(PROOF_FILE);
    // A link that leads nowhere takes a name as well.
    if proof_path.symlink_metadata().is_ok() {
        return Err(Failure::file(
            &proof_path,
            "exists, and slips that were handed out need it",
        )
        .advise("choose another folder with --out"));
    }
    for name in &names {
        let slip = args.out.join(format!("{name}.slip"));
        if slip.symlink_metadata().is_ok() {
            let reason = "exists without its proof, as an interrupted run leaves it";
            return Err(Failure::file(&slip, reason)
                .advise("remove it if nobody was given it, or choose another folder with --out"));
        }
    }
    input::check_writable(&args.out)?;
    let replies: Vec<Reply> = args
        .replies
        .iter()
        .map(|path| Reply::open(path))
        .collect::<Result<_, _>>()?;
    let id = input::open_id(&args.id)?;
    let mut key = open_key(args, &id)?;
    let (model, tokenizer) = input::open_model(&args.model)?;
    if id.header != *model.header() {
        let reason = format!("is not the model of {}", args.id.display());
        return Err(
            Failure::file(&args.model, reason).advise("take the model file that was committed to")
        );
    }
    for (path, reply) in args.replies.iter().zip(&replies) {
        reply.check(&tokenizer, &id.header).map_err(|reason| {
            Failure::file(path, reason)
                .advise("a reply that was edited has no proof; `zkmoe run` makes new ones")
        })?;
    }
    let lengths: Vec<Lengths> = replies
        .iter()
        .map(|r| Lengths {
            prompt: r.prompt_ids.len(),
            response: r.response_ids.len(),
        })
        .collect();
    let padding = args.sizes.padding();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let estimate = estimate(
        &id.header,
        &id.params,
        model.parameters(),
        &lengths,
        padding,
        cores,
    )
    .map_err(|reason| Failure::new(reason).advise("prove them in several batches"))?;
    output::note(format_args!(
        "Estimate: {} and {} of memory, for {} committed cells and {} lookups at {} positions",
        output::seconds(estimate.seconds),
        output::bytes(estimate.memory_bytes),
        output::count(estimate.cells),
        output::count(estimate.lookups),
        estimate.positions
    ));

    let requests: Vec<zkmoe_prover::prove::Reply> = replies
        .iter()
        .map(|r| zkmoe_prover::prove::Reply {
            prompt: r.prompt_ids.clone(),
            response: r.response_ids.clone(),
            max_tokens: r.max_tokens,
        })
        .collect();
    let randomness = os_randomness().map_err(Failure::new)?;
    let before = key.ledger().openings();
    let counted = |failure| input::counted(failure, &args.key, before, "prove the batch again");
    let mut watch = Watch::new();
    let start = Instant::now();
    let batch = prove(
        &model, &id, &mut key, &requests, padding, randomness, &mut watch,
    )
    .map_err(|error| {
        // What looks like a wrong reply may be another model.
        let unchanged = input::check_unchanged(&args.model, &model);
        counted(
            unchanged
                .err()
                .unwrap_or_else(|| explain(error, &args.replies, &replies, &tokenizer, padding)),
        )
    })?;
    watch.close();
    let seconds = start.elapsed().as_secs_f64();

    // Only now is there something to put into the folder. The proof comes last: where it stands, all its slips do.
    let mut written = Written::default();
    written.push_folders(&args.out);
    fs::create_dir_all(&args.out).map_err(|error| counted(Failure::io(&args.out, &error)))?;
    let mut requests = Vec::new();
    for ((name, slip), lengths) in names.into_iter().zip(&batch.slips).zip(&lengths) {
        let path = args.out.join(format!("{name}.slip"));
        input::write_private_new(&path, &slip.encode()).map_err(counted)?;
        written.push(&path);
        requests.push(Request {
            name: Named(name),
            slip: Named::file(&path),
            prompt_tokens: lengths.prompt,
            response_tokens: lengths.response,
        });
    }
    input::write_new(&proof_path, &batch.proof).map_err(counted)?;
    written.keep();
    Ok(Report {
        proof: Named::file(&proof_path),
        bytes: batch.proof.len(),
        model_id: output::hex(&id.digest()),
        requests,
        parts: Part::list(&batch.sizes),
        phases: watch.phases,
        seconds,
        estimate,
        batches_spent: key.ledger().batches,
        batches_left: key.left(Opening::Batch),
    })
}

/// Proves and prints sizes and times.
pub fn execute(args: &Args) -> Result<Outcome, Failure> {
    output::emit(&perform(args)?, args.json)?;
    Ok(Outcome::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::{Decoding, Ended};
    use zkmoe_prover::infer::Overflow;
    use zkmoe_verifier::gadgets::OutOfRange;

    #[test]
    fn names_must_differ() {
        let paths = |list: &[&str]| list.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(
            names(&paths(&["a/x.json", "y.z.json"])).unwrap(),
            ["x", "y.z"]
        );
        let error = names(&paths(&["a/x.json", "y.json", "b/x.json"]))
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("b/x.json") && error.contains("a/x.json"),
            "{error}"
        );
        assert!(names(&paths(&[".."])).is_err());
    }

    #[test]
    fn an_overflow_in_added_padding_names_the_option() {
        let tokenizer =
            Tokenizer::from_json(include_bytes!("../../data/olmoe-tiny/tokenizer.json")).unwrap();
        let reply = Reply {
            version: 1,
            prompt: "a".into(),
            response: "b".into(),
            prompt_ids: vec![1; 5],
            response_ids: vec![2; 6],
            max_tokens: 6,
            decoding: Decoding::Greedy,
            ended: Ended::Limit,
        };
        let advice = |position, powers_of_two| {
            let error = TraceError::Infer {
                request: 0,
                error: InferError::Overflow(Overflow {
                    operator: "norm",
                    layer: Some(1),
                    position,
                    fault: OutOfRange {
                        value: 40_000,
                        low: -32_768,
                        high: 32_768,
                    },
                }),
            };
            let padding = Padding {
                powers_of_two,
                ..Padding::default()
            };
            let replies = std::slice::from_ref(&reply);
            let failure = explain(
                error.into(),
                &["x.json".into()],
                replies,
                &tokenizer,
                padding,
            );
            assert!(failure.to_string().starts_with("x.json: overflow in norm"));
            failure.advice().unwrap().to_owned()
        };
        assert!(advice(20, true).contains("without --pad-lengths"));
        // Positions of the reply itself, or the padding that it was served with.
        assert!(!advice(10, true).contains("--pad-lengths"));
        assert!(!advice(20, false).contains("--pad-lengths"));
    }
}
