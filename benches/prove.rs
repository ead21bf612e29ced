//! What a proof costs, beside the integer inference that it proves.
//!
//! Two groups. `bundled` proves 1, 4 and 16 replies of the bundled checkpoint in one batch: how much a batch shares.
//! `experts` proves the same number of tokens of random models with 8, 32 and 128 experts, 8 of which serve each token:
//! how much it costs that a model has experts which a token does not use. `cargo bench --bench prove -- bundled` runs
//! one group alone.
//!
//! Every configuration runs in a process of its own, so that its peak of memory is its own. Inference and verification
//! are the best of several runs, because they are short; a proof is made once. Beside wall time stands processor time,
//! summed over threads: on a machine that does other work as well, the ratio of processor times is the one to trust.
//!
//! The verifier has no clock inside. Its parts are timed by cutting the proof off where a part ends: the time until the
//! cut is noticed is the time of everything before it.

use std::error::Error;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use zkmoe::output::{Table, bytes, count, seconds};
use zkmoe_commit::codec::Reader;
use zkmoe_commit::params::Params;
use zkmoe_prover::commitment::commit;
use zkmoe_prover::import::{ImportOptions, import};
use zkmoe_prover::infer::{forward, generate};
use zkmoe_prover::model::{Model, random_model};
use zkmoe_prover::prove::{BatchProof, Hook, Reply, prove};
use zkmoe_prover::trace::Padding;
use zkmoe_verifier::batch::{BatchHeader, read_proof_header};
use zkmoe_verifier::header::Sizes;
use zkmoe_verifier::id::ModelId;
use zkmoe_verifier::olmoe;
use zkmoe_verifier::relation::{Dims, Round};
use zkmoe_verifier::verify::{check_slip, verify_batch};

/// Tokens of every prompt.
const PROMPT: usize = 32;
/// Tokens of every reply, its prompt included; a multiple of eight, so that no position is padding.
const TOKENS: usize = 128;
/// Batches that a commitment is made for, as `zkmoe commit` does.
const BATCHES: usize = 64;
/// Replies in a batch of the group `experts`.
const REPLIES: usize = 4;

type Failure = Box<dyn Error>;

/// What one configuration measured. Times are in seconds.
#[derive(Debug, Serialize, Deserialize)]
struct Figures {
    weights: u64,
    commit: f64,
    replies: usize,
    positions: usize,
    forward: f64,
    forward_processor: Option<f64>,
    generate: f64,
    prove: f64,
    prove_processor: Option<f64>,
    phases: Vec<(String, f64)>,
    requantized: u64,
    cells: u64,
    lookups: u64,
    active_experts: usize,
    peak: Option<u64>,
    proof: usize,
    parts: Vec<(String, usize)>,
    verify: f64,
    verifier: Vec<(String, f64)>,
    slip: f64,
    soundness: f64,
}

fn main() -> ExitCode {
    // Cargo adds arguments of its own, all with dashes.
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with("--"))
        .collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args[..] {
        ["child", "bundled", model, replies] => child_bundled(Path::new(model), replies),
        ["child", "experts", experts] => child_experts(experts),
        [] => groups(|_| true),
        [group] => groups(|name| name == group),
        _ => Err("usage: cargo bench --bench prove [-- bundled|experts]".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// A folder that is removed at the end.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn groups(wanted: impl Fn(&str) -> bool) -> Result<(), Failure> {
    println!("{}", machine());
    if wanted("bundled") {
        let folder =
            Scratch(std::env::temp_dir().join(format!("zkmoe-bench-{}", std::process::id())));
        fs::create_dir_all(&folder.0)?;
        let path = folder.0.join("model.zkm");
        let start = Instant::now();
        let (model, _) = import(&checkpoint(), &ImportOptions::default(), &|_, _, _| ())?;
        model.save(&path)?;
        println!("import {}", seconds(start.elapsed().as_secs_f64()));
        let path = path.display().to_string();
        let mut columns = Vec::new();
        for (name, replies) in [("1 reply", "1"), ("4 replies", "4"), ("16 replies", "16")] {
            columns.push((name.to_owned(), child(&["bundled", &path, replies])?));
        }
        println!("\nBundled checkpoint, replies of {TOKENS} tokens of which {PROMPT} are prompt");
        report(&columns);
    }
    if wanted("experts") {
        let mut columns = Vec::new();
        for experts in ["8", "32", "128"] {
            columns.push((format!("{experts} experts"), child(&["experts", experts])?));
        }
        println!(
            "\nRandom models, 8 experts serve each token, {REPLIES} replies of {TOKENS} tokens"
        );
        report(&columns);
        // Ratios to the model without idle experts, by phase.
        let ratio = |name: &str, time: &dyn Fn(&Figures) -> f64| -> Vec<String> {
            let first = time(&columns[0].1);
            let ratios = columns.iter().map(|(_, f)| times(time(f) / first));
            std::iter::once(name.to_owned()).chain(ratios).collect()
        };
        let mut rows = vec![ratio("prove, over 8 experts", &|f| f.prove)];
        if columns.iter().all(|c| c.1.prove_processor.is_some()) {
            rows.push(ratio("  processor", &|f| {
                f.prove_processor.unwrap_or(f64::NAN)
            }));
        }
        for (n, (name, _)) in columns[0].1.phases.iter().enumerate() {
            rows.push(ratio(&format!("  {name}"), &|f| f.phases[n].1));
        }
        rows.push(ratio("commit", &|f| f.commit));
        print!("\n{}", Table(rows));
    }
    Ok(())
}

/// The processor in words.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name| {
        let line = info.lines().find(|l| l.starts_with(name))?;
        Some(line.split_once(':')?.1.trim())
    };
    let vector = match field("flags").unwrap_or_default() {
        flags if flags.contains("avx512f") => "AVX-512",
        flags if flags.contains("avx2") => "AVX2",
        _ => "vector unit not known",
    };
    let model = field("model name").unwrap_or("processor not known");
    format!("{model}, {cores} cores, {vector}")
}

fn checkpoint() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/olmoe-tiny")
}

/// Runs a configuration in a process of its own.
fn child(args: &[&str]) -> Result<Figures, Failure> {
    let output = Command::new(std::env::current_exe()?)
        .arg("child")
        .args(args)
        .stderr(std::process::Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(format!("{args:?} failed").into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn child_bundled(path: &Path, replies: &str) -> Result<(), Failure> {
    measure(&Model::open(path)?, replies.parse()?)
}

fn child_experts(experts: &str) -> Result<(), Failure> {
    let sizes = Sizes {
        vocab_size: 2048,
        hidden_size: 128,
        intermediate_size: 128,
        num_hidden_layers: 4,
        num_key_value_heads: 4,
        query_group: 1,
        head_dim: 32,
        num_experts: experts.parse()?,
        num_experts_per_tok: 8,
        max_position_embeddings: 512,
    };
    measure(&random_model(&sizes, 1), REPLIES)
}

/// Replies of exactly [`TOKENS`] tokens to prompts from the held-out text.
fn make_replies(model: &Model, number: usize) -> Result<Vec<Reply>, Failure> {
    let text: serde_json::Value =
        serde_json::from_slice(&fs::read(checkpoint().join("heldout.json"))?)?;
    let ids: Vec<u32> = serde_json::from_value(text["ids"].clone())?;
    let limit = TOKENS - PROMPT;
    let mut replies = Vec::new();
    for prompt in ids.chunks_exact(PROMPT) {
        if replies.len() == number {
            break;
        }
        // A reply that ends earlier or overflows would make configurations differ.
        if let Ok(generation) = generate(model, prompt, limit, |_| ControlFlow::Continue(()))
            && generation.response_ids.len() == limit
        {
            replies.push(Reply {
                prompt: prompt.to_vec(),
                response: generation.response_ids,
                max_tokens: limit as u32,
            });
        }
    }
    if replies.len() < number {
        return Err(format!(
            "only {} prompts have replies of {limit} tokens",
            replies.len()
        )
        .into());
    }
    Ok(replies)
}

/// Times phases.
struct Watch {
    phases: Vec<(String, Instant)>,
}

impl Hook for Watch {
    fn phase(&mut self, name: &'static str) {
        self.phases.push((name.to_owned(), Instant::now()));
    }
}

impl Watch {
    fn times(&self) -> Vec<(String, f64)> {
        let ends = self.phases.iter().map(|p| p.1).skip(1);
        let ends = ends.chain(std::iter::once(Instant::now()));
        self.phases
            .iter()
            .zip(ends)
            .map(|((name, start), end)| (name.clone(), (end - *start).as_secs_f64()))
            .collect()
    }
}

/// How often short work is repeated.
const RUNS: usize = 7;

/// The shortest of some runs.
fn best<T>(mut run: impl FnMut() -> T) -> f64 {
    (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            std::hint::black_box(run());
            start.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min)
}

/// Seconds that all living threads have been on a processor; none where the system does not say.
fn processor() -> Option<f64> {
    let mut nanoseconds = 0;
    for task in fs::read_dir("/proc/self/task").ok()? {
        let statistics = fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        nanoseconds += statistics.split_whitespace().next()?.parse::<u64>().ok()?;
    }
    Some(nanoseconds as f64 * 1e-9)
}

/// Processor time since `start`.
fn processor_since(start: Option<f64>) -> Option<f64> {
    Some(processor()? - start?)
}

/// The largest resident size since [`forget_peak`]; none where the system does not say.
fn peak() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// Lets the peak start again. Where that is not possible, the peak includes what came before.
fn forget_peak() {
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// Measures one configuration and prints its figures for the parent process.
fn measure(model: &Model, number: usize) -> Result<(), Failure> {
    let start = Instant::now();
    let params = Params::choose(model.parameters() as usize, BATCHES);
    let (id, mut key) = commit(model, params, [3; 32], &|_, _| ());
    let commit = start.elapsed().as_secs_f64();

    let start = Instant::now();
    let replies = make_replies(model, number)?;
    let generate = start.elapsed().as_secs_f64();
    let tokens: Vec<Vec<u32>> = replies
        .iter()
        .map(|r| [&r.prompt[..], &r.response].concat())
        .collect();
    let start = processor();
    let forward = best(|| {
        for tokens in &tokens {
            std::hint::black_box(forward(model, tokens).is_ok());
        }
    });

    let forward_processor = processor_since(start).map(|all| all / RUNS as f64);

    forget_peak();
    let mut watch = Watch { phases: Vec::new() };
    let before = processor();
    let start = Instant::now();
    let batch = prove(
        model,
        &id,
        &mut key,
        &replies,
        Padding::default(),
        [9; 32],
        &mut watch,
    )?;
    let prove = start.elapsed().as_secs_f64();
    let prove_processor = processor_since(before);
    let phases = watch.times();
    let peak = peak();

    let accepted = verify_batch(&id, &batch.proof)?;
    let verify = best(|| verify_batch(&id, &batch.proof).is_ok());
    let slip = best(|| check_slip(&id, &accepted, &batch.slips[0], &replies[0].prompt).is_ok());
    for (slip, reply) in batch.slips.iter().zip(&replies) {
        check_slip(&id, &accepted, slip, &reply.prompt)?;
    }

    let mut reader = Reader::new(&batch.proof);
    let (_, header) = read_proof_header(&mut reader, &id.header)?;
    let sizes = count_cells(&id, &header);
    let figures = Figures {
        weights: model.parameters(),
        commit,
        replies: number,
        positions: header.shape.lengths.iter().sum(),
        forward,
        forward_processor,
        generate,
        prove,
        prove_processor,
        phases,
        requantized: sizes.requantized,
        cells: sizes.committed,
        lookups: sizes.lookups,
        active_experts: header.shape.blocks.len(),
        peak,
        proof: batch.proof.len(),
        parts: proof_parts(&batch),
        verify,
        verifier: verifier_parts(&id, &batch, verify),
        slip,
        soundness: zkmoe_verifier::soundness::total_bits(&accepted.soundness),
    };
    println!("{}", serde_json::to_string(&figures)?);
    Ok(())
}

struct Cells {
    requantized: u64,
    committed: u64,
    lookups: u64,
}

/// How much of everything a batch of this shape has.
fn count_cells(id: &ModelId, header: &BatchHeader) -> Cells {
    let relation = olmoe::relation(&id.header);
    let dims = Dims::new(id.header.sizes.clone(), header.shape.clone());
    let cells = relation.tensors.iter().filter(|t| t.round != Round::Model);
    let cells = cells.map(|t| dims.shape(&t.axes).len() as u64 * if t.extension { 2 } else { 1 });
    let lookups = |suffix: &str| -> u64 {
        relation
            .lookups
            .iter()
            .filter(|l| l.name.ends_with(suffix))
            .map(|l| dims.shape(&l.out).len() as u64)
            .sum()
    };
    Cells {
        // Every requantization looks up its remainder, once under this name.
        requantized: lookups(": remainder"),
        committed: cells.sum(),
        lookups: lookups(""),
    }
}

/// To which part of the argument a message belongs.
fn part_of(label: &str) -> &'static str {
    match label {
        "evaluations" | "sums of products" | "sumcheck rounds" => "values and sumchecks",
        _ if label.starts_with("gkr") => "lookups",
        _ if label.starts_with("opening: symbols of") => "opened symbols",
        _ if label.starts_with("opening: siblings of") => "paths of opened symbols",
        _ if label.starts_with("opening:") => "rest of the opening",
        _ if label.starts_with("whir") => "WHIR",
        _ if label.starts_with("pads") => "proof about the pads",
        _ => "roots and blocks",
    }
}

/// Bytes by part; the batch header first.
fn proof_parts(batch: &BatchProof) -> Vec<(String, usize)> {
    let messages: usize = batch.sizes.iter().map(|s| s.1).sum();
    let mut parts = vec![("header".to_owned(), batch.proof.len() - messages)];
    for &(label, size) in &batch.sizes {
        let part = part_of(label);
        match parts.iter_mut().find(|p| p.0 == part) {
            Some(found) => found.1 += size,
            None => parts.push((part.to_owned(), size)),
        }
    }
    parts
}

/// Times of the verifier by part; see the top of the file.
fn verifier_parts(id: &ModelId, batch: &BatchProof, whole: f64) -> Vec<(String, f64)> {
    let size = |wanted: &dyn Fn(&str) -> bool| -> usize {
        batch
            .sizes
            .iter()
            .filter(|s| wanted(s.0))
            .map(|s| s.1)
            .sum()
    };
    let of = |parts: &'static [&'static str]| size(&move |label| parts.contains(&part_of(label)));
    // The two commitments are sent before the symbols, all else of WHIR at the end.
    let early: usize = [&id.params.whir_data, &id.params.whir_tail]
        .map(|whir| {
            if whir.log_size > whir.final_log_size {
                32
            } else {
                16 << whir.log_size
            }
        })
        .iter()
        .sum();
    let end = batch.proof.len();
    let opening = &[
        "opened symbols",
        "paths of opened symbols",
        "rest of the opening",
        "WHIR",
    ];
    // The root of the pads comes first, the proof about them last.
    let pads = end - (of(&["proof about the pads"]) - 32);
    let opening = pads - of(opening);
    let values = opening - of(&["values and sumchecks"]);
    let lookups = values - of(&["lookups"]);
    let whir = pads - (of(&["WHIR"]) - early);
    let mut before = 0.0;
    [
        ("header, relation, blocks", lookups),
        ("lookups", values),
        ("values and sumchecks", opening),
        ("opened rows", whir),
        ("WHIR", pads),
        ("proof about the pads", end),
    ]
    .into_iter()
    .map(|(name, cut)| {
        let until = if cut == end {
            whole
        } else {
            best(|| {
                assert!(
                    verify_batch(id, &batch.proof[..cut]).is_err(),
                    "a cut proof"
                );
            })
        };
        let time = until - before;
        before = until;
        (name.to_owned(), time)
    })
    .collect()
}

/// A ratio for people.
fn times(x: f64) -> String {
    if x < 10.0 {
        format!("x {x:.2}")
    } else {
        format!("x {x:.1}")
    }
}

/// Prints one column for each configuration.
fn report(columns: &[(String, Figures)]) {
    let mut rows = Vec::new();
    let mut row = |name: &str, cell: &dyn Fn(&Figures) -> String| {
        let cells = columns.iter().map(|(_, figures)| cell(figures));
        rows.push(
            std::iter::once(name.to_owned())
                .chain(cells)
                .collect::<Vec<_>>(),
        );
    };
    let per = |time: f64, n: u64| format!("{:.1} ns", 1e9 * time / n as f64);
    row("weights", &|f| count(f.weights));
    row("commit", &|f| seconds(f.commit));
    row("commit, per weight", &|f| per(f.commit, f.weights));
    row("positions", &|f| f.positions.to_string());
    row("requantized values", &|f| count(f.requantized));
    row("committed cells", &|f| count(f.cells));
    row("lookups", &|f| count(f.lookups));
    row("active experts, all layers", &|f| {
        f.active_experts.to_string()
    });
    row("forward pass", &|f| seconds(f.forward));
    row("decoding token by token", &|f| seconds(f.generate));
    row("prove", &|f| seconds(f.prove));
    let phases = columns.first().map_or(0, |c| c.1.phases.len());
    for n in 0..phases {
        let name = format!("  {}", columns[0].1.phases[n].0);
        row(&name, &|f| {
            f.phases.get(n).map_or_else(String::new, |p| seconds(p.1))
        });
    }
    // What hiding adds: all that would not be there if values were sent in clear.
    row("hiding, over the rest of prove", &|f| {
        let hiding: f64 = f
            .phases
            .iter()
            .filter(|(name, _)| name.contains("pads"))
            .map(|p| p.1)
            .sum();
        format!("{:.1} %", 100.0 * hiding / (f.prove - hiding))
    });
    row("prove, over forward pass", &|f| times(f.prove / f.forward));
    let optional = |x: Option<f64>| x.map_or_else(|| "not known".to_owned(), seconds);
    row("forward pass, processor", &|f| {
        optional(f.forward_processor)
    });
    row("prove, processor", &|f| optional(f.prove_processor));
    row("prove, over forward pass, processor", &|f| {
        let ratio = f.prove_processor.zip(f.forward_processor);
        ratio.map_or_else(String::new, |(prove, forward)| times(prove / forward))
    });
    row("prove, over decoding", &|f| times(f.prove / f.generate));
    row("prove, per position", &|f| {
        seconds(f.prove / f.positions as f64)
    });
    row("prove, per requantized value", &|f| {
        per(f.prove, f.requantized)
    });
    row("  processor", &|f| {
        f.prove_processor
            .map_or_else(String::new, |p| per(p, f.requantized))
    });
    row("prove, per lookup", &|f| per(f.prove, f.lookups));
    row("peak of memory", &|f| {
        f.peak.map_or_else(|| "not known".to_owned(), bytes)
    });
    row("peak, per lookup", &|f| {
        f.peak.map_or_else(String::new, |p| {
            format!("{:.0} bytes", p as f64 / f.lookups as f64)
        })
    });
    row("proof", &|f| bytes(f.proof as u64));
    let parts = columns.first().map_or(0, |c| c.1.parts.len());
    for n in 0..parts {
        let name = columns[0].1.parts[n].0.clone();
        row(&format!("  {name}"), &|f| {
            let part = f.parts.iter().find(|p| p.0 == name);
            part.map_or_else(String::new, |p| bytes(p.1 as u64))
        });
    }
    row("proof, per reply", &|f| bytes((f.proof / f.replies) as u64));
    row("verify", &|f| seconds(f.verify));
    let parts = columns.first().map_or(0, |c| c.1.verifier.len());
    for n in 0..parts {
        let name = format!("  {}", columns[0].1.verifier[n].0);
        row(&name, &|f| {
            f.verifier.get(n).map_or_else(String::new, |p| seconds(p.1))
        });
    }
    row("check of one slip", &|f| format!("{:.1} us", 1e6 * f.slip));
    row("soundness", &|f| format!("{:.1} bits", f.soundness));
    let mut head = vec![String::new()];
    head.extend(columns.iter().map(|c| c.0.clone()));
    rows.insert(0, head);
    print!("{}", Table(rows));
}
