//! Times one batch on the bundled checkpoint.
use std::path::Path;
use std::time::Instant;
use zkmoe_commit::params::Params;
use zkmoe_prover::commitment::commit;
use zkmoe_prover::infer::generate;
use zkmoe_prover::model::Model;
use zkmoe_prover::prove::{Hook, Reply, prove};
use zkmoe_prover::tokenizer::Tokenizer;
use zkmoe_verifier::verify::{check_slip, verify_batch};

struct Phases(Instant);
impl Hook for Phases {
    fn phase(&mut self, name: &'static str) {
        eprintln!("{:8.2?} {name}", self.0.elapsed());
    }
}

fn main() {
    let path = Path::new("/tmp/tiny.zkm");
    if !path.exists() {
        let (model, _) = zkmoe_prover::import::import(
            Path::new("data/olmoe-tiny"),
            &zkmoe_prover::import::ImportOptions {
                calibration: None,
                heldout: None,
            },
            &|_, _, _| (),
        )
        .unwrap();
        model.save(path).unwrap();
    }
    let model = Model::open(path).unwrap();
    let t = Instant::now();
    let (id, key) = commit(
        &model,
        Params::choose(model.parameters() as usize, 64),
        [3; 32],
        &|_, _| (),
    );
    eprintln!("commit {:?} params {:?}", t.elapsed(), id.params);
    let tokenizer = Tokenizer::from_json(model.tokenizer_json()).unwrap();
    let total: usize = std::env::args()
        .nth(1)
        .and_then(|s| s.parse().ok())
        .unwrap_or(96);
    let texts = [
        "Once upon a time",
        "And the Lord said to Moses,",
        "Emma was very much pleased with her friend, and",
        "The meaning of the word is",
    ];
    let replies: Vec<Reply> = texts
        .iter()
        .map(|text| {
            let prompt = tokenizer.encode(text).unwrap();
            let n = total - prompt.len();
            let g = generate(&model, &prompt, n, |_| std::ops::ControlFlow::Continue(())).unwrap();
            Reply {
                prompt,
                response: g.response_ids,
                max_tokens: n as u32,
            }
        })
        .collect();
    let t = Instant::now();
    let batch = prove(
        &model,
        &id,
        &key,
        &replies,
        8,
        [9; 32],
        &mut Phases(Instant::now()),
    )
    .unwrap();
    eprintln!("prove {:?}, {} bytes", t.elapsed(), batch.proof.len());
    for (label, n) in &batch.sizes {
        eprintln!("{n:9} {label}");
    }
    let t = Instant::now();
    let accepted = verify_batch(&id, &batch.proof).unwrap();
    eprintln!("verify {:?}", t.elapsed());
    for (reply, slip) in replies.iter().zip(&batch.slips) {
        eprintln!(
            "{:?}",
            check_slip(&id, &accepted, slip, &reply.prompt).unwrap()
        );
    }
    for t in &accepted.soundness {
        eprintln!("{:.1} {}: {}", t.bits, t.name, t.formula);
    }
    eprintln!(
        "total {:.2}",
        zkmoe_verifier::soundness::total_bits(&accepted.soundness)
    );
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    eprintln!(
        "{}",
        status.lines().find(|l| l.starts_with("VmHWM")).unwrap()
    );
}
