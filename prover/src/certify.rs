//! Proving that all weights of a commitment are in range; [`zkmoe_verifier::certificate`] is the twin.
//!
//! Weights are read from the model wherever they are needed, and digits are computed from them again: for the counts, for
//! the rows of the commitment, chunk by chunk for the lookups, and for the rows of the opening. So beside the opening
//! nothing is held but one chunk.

use rayon::prelude::*;
use zkmoe_commit::channel::ProverChannel;
use zkmoe_commit::codec::Writer;
use zkmoe_commit::field::{F, from_i64, word};
use zkmoe_commit::opening::{self, ProverTree, TreeKind};
use zkmoe_commit::rows::{RowCode, Rows};
use zkmoe_verifier::certificate::{
    PROTOCOL, Part, Plan, TABLES, WEIGHT_BITS, argue, certificate_length, hidden_counts,
    write_certificate_header,
};
use zkmoe_verifier::engine::{Challenges, Publics, run};
use zkmoe_verifier::id::ModelId;
use zkmoe_verifier::relation::{Fill, Relation, Tag};
use zkmoe_verifier::weights::WeightId;

use crate::commitment::{ModelRows, committed_cells, model_layout};
use crate::engine::{Column, ProverParty, Tables, Witness, digit, first_columns};
use crate::gkr;
use crate::key::{self, Key, KeyError, Permit};
use crate::model::Model;
use crate::pads::{commit_pads, prove_pads};
use crate::prove::{Hook, ProveError};
use crate::randomness::{Purpose, Randomness, chain_value};
use crate::streamed::{StreamedRows, commit_rows};

/// What a certificate is made from. An honest prover reads its model; what else these functions may give is for tests.
pub trait Cells: Sync {
    /// The committed values of a tensor from cell `start` on.
    fn weights(&self, tensor: WeightId, start: usize, out: &mut [F]);
    /// Their upper digits.
    fn digits(&self, tensor: WeightId, start: usize, out: &mut [F]) {
        self.weights(tensor, start, out);
        let shifted = out.iter().map(|&w| w + from_i64(1 << (WEIGHT_BITS - 1)));
        let upper = digit(&Column::Base(shifted.collect()), 1);
        out.copy_from_slice(&upper);
    }
    /// Sees how often each entry of the table of `bits` bits is looked up before that is committed to.
    fn counts(&self, _bits: u8, _counts: &mut [F]) {}
    /// Sees the tuples of a chunk's lookups before their fractions are summed.
    fn columns(&self, _chunk: usize, _columns: &mut [Vec<Column>]) {}
}

impl Cells for Model {
    fn weights(&self, tensor: WeightId, start: usize, out: &mut [F]) {
        committed_cells(self, tensor, start, out);
    }
}

/// A finished certificate.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// The bytes of the file.
    pub bytes: Vec<u8>,
    /// Bytes by kind of message.
    pub sizes: Vec<(&'static str, usize)>,
    /// The checks that fail and so let a verifier reject the certificate; none if all weights are in range.
    pub violated: Vec<String>,
}

/// Certifies a commitment. `randomness` must be fresh for every call. Nothing of the key's randomness is used before model,
/// id and key are known to belong together.
pub fn certify(
    model: &Model,
    id: &ModelId,
    key: &mut Key,
    randomness: [u8; 32],
    hook: &mut impl Hook,
) -> Result<Certificate, ProveError> {
    if id.header != *model.header() {
        return Err(ProveError::Mismatch("the id belongs to another model"));
    }
    key.check(id)?;
    key.demand(key::Opening::Certificate)?;
    // Before the only opening for a certificate is spent.
    let plan = Plan::new(id)
        .and_then(|plan| certificate_length(id, &plan).map(|_| plan))
        .map_err(|reject| ProveError::Violated(reject.to_string()))?;
    hook.phase("compare model and key");
    let layout = model_layout(model, &id.params);
    let rows = ModelRows::new(model, &layout, &id.params, key.seed());
    let code = RowCode::new(id.params.log_row, id.params.log_code);
    if commit_rows(&rows, &code, &|_, _| ()).root() != id.root {
        return Err(ProveError::Mismatch("the id belongs to other weights"));
    }
    let chain = chain_value(&randomness, key.ledger());
    let permit = key.spend_with(key::Opening::Certificate, chain)?;
    let certificate = certify_cells(model, &plan, id, key, permit, randomness, hook)?;
    match certificate.violated.first() {
        None => Ok(certificate),
        Some(check) => Err(ProveError::Violated(check.clone())),
    }
}

/// Makes a certificate of cells, whether or not they are in range or what was committed: what a dishonest prover calls as
/// well. Only a permit of this key for a certificate opens anything.
pub fn certify_cells(
    cells: &dyn Cells,
    plan: &Plan,
    id: &ModelId,
    key: &Key,
    permit: Permit,
    randomness: [u8; 32],
    hook: &mut impl Hook,
) -> Result<Certificate, ProveError> {
    let (digest, params) = (id.digest(), &id.params);
    let link = permit.redeem(&digest, key::Opening::Certificate)?;
    if key.id() != digest {
        return Err(KeyError::Mismatch("the key belongs to another id").into());
    }
    // The key's seed is private, so that a broken generator alone does not give the masks away.
    let random = Randomness::new(randomness, |hasher| {
        for part in [
            PROTOCOL.as_bytes(),
            &digest,
            &key.seed(),
            &link[0],
            &link[1],
        ] {
            hasher.update(part);
        }
    });
    let mut channel = ProverChannel::under(hook.oracle(PROTOCOL), &digest);
    let code = RowCode::new(params.log_row, params.log_code);
    let [weight_layout, digit_layout] = plan.layouts(params);

    hook.phase("count digits");
    let counts = counts(cells, plan);

    hook.phase("commit to the digits");
    let fill_weights = |tensor: usize, cell: usize, out: &mut [F]| {
        cells.weights(WeightId::ALL[tensor], cell, out);
    };
    let weight_rows = StreamedRows {
        layout: &weight_layout,
        fill: &fill_weights,
        seed: key.seed(),
        tail: params.model_tail,
        masks: Rows::default(),
    };
    let fill_digits = |tensor: usize, cell: usize, out: &mut [F]| {
        if let Some(&id) = WeightId::ALL.get(tensor) {
            cells.digits(id, cell, out);
        } else {
            let counts = &counts[tensor - WeightId::ALL.len()];
            out.copy_from_slice(&counts[cell..cell + out.len()]);
        }
    };
    let mut masks = Rows::default();
    masks.push_masks(
        &random.seed(hook, Purpose::Mask, 0),
        &random.seed(hook, Purpose::MaskTail, 0),
        params.log_row,
        params.model_tail,
    );
    let digit_rows = StreamedRows {
        layout: &digit_layout,
        fill: &fill_digits,
        seed: random.seed(hook, Purpose::Tails, 1),
        tail: params.trace_tail,
        masks,
    };
    let digit_tree = commit_rows(&digit_rows, &code, &|_, _| ());
    let pads = hidden_counts(id, plan)
        .and_then(|counts| commit_pads(&mut channel, counts, &random, hook))
        .expect("the prover's own plan is that of the verifier");
    channel.digest("first root", &digit_tree.root());
    channel.grind("work before the lookups", params.grinding.lookup);
    let challenges = Challenges {
        alpha: channel.challenge("alpha"),
        delta: channel.challenge("delta"),
        ..Challenges::default()
    };
    let publics = Publics {
        header: &id.header,
        dims: plan.dims(),
        challenges: &challenges,
    };

    hook.phase("prove lookups");
    let mut claims = Vec::new();
    let mut total = None;
    for (chunk, parts) in plan.chunks().iter().enumerate() {
        let relation = plan.relation(chunk);
        let witness = witness(cells, &relation, parts, &counts);
        let tables = Tables {
            relation: &relation,
            publics: &publics,
            witness: &witness,
        };
        let mut columns: Vec<Vec<Column>> = first_columns(&tables)
            .into_iter()
            .map(|tuple| tuple.into_iter().flatten().collect())
            .collect();
        cells.columns(chunk, &mut columns);
        let mut party =
            ProverParty::new(&mut channel, &relation, &publics, &witness, &columns).of_part();
        let Ok(found) = run(&mut party, &relation, plan.dims(), &publics);
        total = match (total, party.into_sum()) {
            (Some(total), Some(sum)) => Some(gkr::add(total, sum)),
            (total, sum) => total.or(sum),
        };
        let about_parts = found.claims.into_iter();
        claims.extend(about_parts.map(|claim| plan.claim(chunk, &relation, claim)));
    }
    gkr::close(&mut channel, total.unwrap_or_default());

    hook.phase("open the commitments");
    let trees = [
        ProverTree {
            kind: TreeKind::Model,
            layout: &weight_layout,
            rows: &weight_rows,
            tree: key.tree(),
        },
        ProverTree {
            kind: TreeKind::Round1,
            layout: &digit_layout,
            rows: &digit_rows,
            tree: &digit_tree,
        },
    ];
    opening::prove(&mut channel, params, &code, &trees, &claims);

    hook.phase("prove that the pads fit");
    let seed = random.seed(hook, Purpose::PadProof, 0);
    let violated = prove_pads(
        &mut channel,
        &pads,
        seed,
        hook.oracle(PROTOCOL),
        &digest,
        |replay| argue(id, plan, replay).map(drop),
    );
    let sizes = channel.sizes().to_vec();
    let mut w = Writer::new();
    write_certificate_header(&mut w, &digest);
    w.raw(&channel.finish());
    Ok(Certificate {
        bytes: w.bytes,
        sizes,
        violated,
    })
}

/// Cells that are read at a time.
const BLOCK: usize = 1 << 14;

/// How often each entry of each table is looked up.
fn counts(cells: &dyn Cells, plan: &Plan) -> Vec<Vec<F>> {
    let zero = || TABLES.map(|bits| vec![0i64; 1 << bits]);
    let blocks: Vec<(&Part, usize)> = plan
        .chunks()
        .iter()
        .flatten()
        .flat_map(|part| (0..part.cells).step_by(BLOCK).map(move |at| (part, at)))
        .collect();
    let counted = blocks
        .into_par_iter()
        .fold(zero, |mut counts, (part, at)| {
            let n = BLOCK.min(part.cells - at);
            let (mut weights, mut digits) = (vec![F::default(); n], vec![F::default(); n]);
            cells.weights(part.tensor, part.first_cell + at, &mut weights);
            cells.digits(part.tensor, part.first_cell + at, &mut digits);
            for (w, d) in weights.into_iter().zip(digits) {
                let low = w + from_i64(1 << (WEIGHT_BITS - 1)) - d * from_i64(1 << 16);
                for (counts, entry) in counts.iter_mut().zip([d, low]) {
                    // What is in no table is not counted, and is what a verifier will find.
                    if let Some(count) = counts.get_mut(word(entry) as usize) {
                        *count += 1;
                    }
                }
            }
            counts
        })
        .reduce(zero, |mut a, b| {
            for (a, b) in a.iter_mut().zip(&b) {
                a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
            }
            a
        });
    TABLES
        .into_iter()
        .zip(counted)
        .map(|(bits, counts)| {
            let mut counts: Vec<F> = counts.into_iter().map(from_i64).collect();
            cells.counts(bits, &mut counts);
            counts
        })
        .collect()
}

/// The tensors of a chunk's relation.
fn witness(cells: &dyn Cells, relation: &Relation, parts: &[Part], counts: &[Vec<F>]) -> Witness {
    let read = |part: &Part, fill: &(dyn Fn(usize, &mut [F]) + Sync)| {
        let mut out = vec![F::default(); part.cells];
        out.par_chunks_mut(BLOCK)
            .enumerate()
            .for_each(|(n, block)| fill(part.first_cell + n * BLOCK, block));
        vec![out]
    };
    let mut tensors = Vec::with_capacity(relation.tensors.len());
    for part in parts {
        let tensor = part.tensor;
        tensors.push(read(part, &|start, out| cells.weights(tensor, start, out)));
        tensors.push(read(part, &|start, out| cells.digits(tensor, start, out)));
    }
    for tensor in &relation.tensors[tensors.len()..] {
        if let Fill::Multiplicity(tag) = tensor.fill {
            let table = TABLES.iter().zip(counts);
            let counts = table
                .filter(|(bits, _)| tag == Tag::Range(**bits))
                .map(|(_, counts)| counts.clone());
            tensors.push(counts.collect());
        }
    }
    Witness { tensors }
}
