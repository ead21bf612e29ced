//! Proving a batch of replies.
//!
//! The order of messages is that of section "Transcript" in docs/protocol.md; [`zkmoe_verifier::verify`] is its twin.
//! All randomness of an attempt comes from one seed: fresh bytes of the operating system, mixed with everything that tells
//! two attempts apart, so that a broken generator alone does not make them share a mask.

use zkmoe_commit::channel::{Oracle, ProverChannel};
use zkmoe_commit::codec::Writer;
use zkmoe_commit::field::{F, K, from_i64};
use zkmoe_commit::layout::Layout;
use zkmoe_commit::opening::{self, Claim, ProverTree, TreeKind};
use zkmoe_commit::params::Params;
use zkmoe_commit::rows::{RowCode, RowSource, Rows, mask_row};
use zkmoe_commit::transcript::Transcript;
use zkmoe_verifier::batch::{BatchHeader, Block, write_proof_header};
use zkmoe_verifier::engine::{Challenges, Publics, run};
use zkmoe_verifier::id::{ModelId, layout, places, tree_of};
use zkmoe_verifier::olmoe;
use zkmoe_verifier::relation::{BatchShape, Dims, Fill, Relation, Round};
use zkmoe_verifier::slip::Slip;
use zkmoe_verifier::verify::{
    PROTOCOL, argue, batch_length, draw_first, draw_points, hidden_counts, parameters,
};

use crate::commitment::{ModelRows, committed_values, model_layout};
use crate::engine::{
    Column, ProverParty, Tables, Witness, depends_on_second, digit, fingerprints, first_columns,
    multiplicities, row_weights,
};
use crate::key::{self, Key, KeyError, Permit};
use crate::model::Model;
use crate::pads::{commit_pads, prove_pads};
pub use crate::randomness::Purpose;
use crate::randomness::{Randomness, chain_value};
use crate::trace::{Padding, RequestTokens, Trace, TraceError, build_trace};

/// A reply to be proved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Token ids of the prompt.
    pub prompt: Vec<u32>,
    /// Token ids of the response, with the end token if there was one.
    pub response: Vec<u32>,
    /// The limit on response tokens that was asked for.
    pub max_tokens: u32,
}

/// Why there is no proof.
#[derive(Debug, thiserror::Error)]
pub enum ProveError {
    /// The replies are not what the model decodes.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Model and id do not belong together.
    #[error("{0}")]
    Mismatch(&'static str),
    /// The key does not belong to the id, has nothing left, or could not count.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A reply does not have the form of one.
    #[error("request {0}: the response is longer than its limit")]
    TooLong(usize),
    /// No verifier would accept the proof: the trace is wrong, or there is a fault in this program.
    #[error("the proof does not hold: {0}")]
    Violated(String),
    /// No verifier would take a proof of this size.
    #[error(
        "{0}: the batch is larger than a proof may be; prove fewer replies at once, or round lengths and loads up less"
    )]
    TooLarge(String),
}

/// A finished batch.
#[derive(Debug, Clone)]
pub struct BatchProof {
    /// The bytes of `batch.proof`.
    pub proof: Vec<u8>,
    /// One slip for each reply.
    pub slips: Vec<Slip>,
    /// Bytes of the proof by kind of message.
    pub sizes: Vec<(&'static str, usize)>,
    /// The checks that fail and so let a verifier reject the proof, in their order; none of a trace that is the model's.
    pub violated: Vec<String>,
}

/// What may watch or, in tests, falsify a proof. The default methods do nothing and cost nothing.
pub trait Hook {
    /// A phase begins.
    fn phase(&mut self, _name: &'static str) {}
    /// The tensors of the trace are filled; digits and multiplicities are not.
    fn trace(&mut self, _relation: &Relation, _dims: &Dims, _witness: &mut Witness) {}
    /// Digits are filled.
    fn digits(&mut self, _relation: &Relation, _dims: &Dims, _witness: &mut Witness) {}
    /// Multiplicities are filled: everything that the first root commits to.
    fn first(&mut self, _relation: &Relation, _dims: &Dims, _witness: &mut Witness) {}
    /// Everything that the second root commits to is filled.
    fn second(&mut self, _relation: &Relation, _dims: &Dims, _witness: &mut Witness) {}
    /// A seed was drawn from the attempt's randomness.
    fn seed(&mut self, _purpose: Purpose, _n: u64, _seed: &mut [u8; 32]) {}
    /// Where challenges come from; each call gives the same from its start.
    fn oracle(&mut self, protocol: &str) -> Box<dyn Oracle> {
        Box::new(Transcript::new(protocol))
    }
    /// The weights that the trace is proved with.
    fn weights(&mut self, _relation: &Relation, _witness: &mut Witness) {}
    /// The rows that the model's commitment is opened with.
    fn model_rows<'a>(&mut self, honest: ModelRows<'a>) -> Box<dyn RowSource + 'a> {
        Box::new(honest)
    }
}

/// A hook that does nothing.
pub struct NoHook;
impl Hook for NoHook {}

/// Refuses sizes that a verifier would refuse.
pub fn check_shape(id: &ModelId, shape: &BatchShape) -> Result<(), ProveError> {
    let header = BatchHeader::of_sizes(&id.header, shape.clone())
        .map_err(|error| ProveError::TooLarge(error.to_string()))?;
    batch_length(id, &header).map_err(|error| ProveError::TooLarge(error.to_string()))?;
    Ok(())
}

/// Proves replies under a commitment. Lengths and loads are public, rounded up as `padding` says. `randomness` must be
/// fresh for every call.
///
/// The key counts the batch after everything that can be refused was checked, and before the first byte of the proof
/// depends on the weights; from then on it is spent, whatever happens.
pub fn prove(
    model: &Model,
    id: &ModelId,
    key: &mut Key,
    replies: &[Reply],
    padding: Padding,
    randomness: [u8; 32],
    hook: &mut impl Hook,
) -> Result<BatchProof, ProveError> {
    if id.header != *model.header() {
        return Err(ProveError::Mismatch("the id belongs to another model"));
    }
    key.check(id)?;
    key.demand(key::Opening::Batch)?;
    if let Some(n) = replies
        .iter()
        .position(|r| r.response.len() > r.max_tokens as usize)
    {
        return Err(ProveError::TooLong(n));
    }
    hook.phase("run the model");
    let requests: Vec<RequestTokens> = replies
        .iter()
        .map(|r| RequestTokens {
            prompt: r.prompt.clone(),
            response: r.response.clone(),
        })
        .collect();
    let trace = build_trace(model, &requests, padding)?;
    check_shape(id, &trace.shape())?;
    let chain = chain_value(&randomness, key.ledger());
    let permit = key.spend_with(key::Opening::Batch, chain)?;
    let batch = prove_trace(model, id, key, permit, replies, trace, randomness, hook)?;
    match batch.violated.first() {
        None => Ok(batch),
        Some(check) => Err(ProveError::Violated(check.clone())),
    }
}

/// The seeds of an attempt to prove a trace. Attempts that differ in anything, be it only in what the key has opened before,
/// have different seeds even if the generator repeats itself.
fn seeds(
    randomness: [u8; 32],
    key: &Key,
    link: &[[u8; 32]; 2],
    replies: &[Reply],
    trace: &Trace,
) -> Randomness {
    Randomness::new(randomness, |hasher| {
        for part in [&key.id(), &key.seed(), &link[0], &link[1]] {
            hasher.update(part);
        }
        for reply in replies {
            hasher.update(&reply.max_tokens.to_le_bytes());
            for tokens in [&reply.prompt, &reply.response] {
                hasher.update(&(tokens.len() as u64).to_le_bytes());
                let bytes: Vec<u8> = tokens.iter().flat_map(|t| t.to_le_bytes()).collect();
                hasher.update(&bytes);
            }
        }
        for (name, values) in &trace.tensors {
            hasher.update(&(name.len() as u64).to_le_bytes());
            hasher.update(name.as_bytes());
            hasher.update(&(values.len() as u64).to_le_bytes());
            for chunk in values.chunks(1024) {
                let bytes: Vec<u8> = chunk.iter().flat_map(|x| x.to_le_bytes()).collect();
                hasher.update(&bytes);
            }
        }
    })
}

/// Proves a trace, whether or not it is one of the model: what a dishonest prover calls as well. Only a permit of this
/// key for a batch opens anything.
///
/// # Panics
/// If the sizes are not within the limits, see [`check_shape`].
#[expect(
    clippy::too_many_arguments,
    reason = "model, id and key are files of their own, and a dishonest prover mixes them"
)]
pub fn prove_trace(
    model: &Model,
    id: &ModelId,
    key: &Key,
    permit: Permit,
    replies: &[Reply],
    trace: Trace,
    randomness: [u8; 32],
    hook: &mut impl Hook,
) -> Result<BatchProof, ProveError> {
    let digest = id.digest();
    let link = permit.redeem(&digest, key::Opening::Batch)?;
    if key.id() != digest {
        return Err(KeyError::Mismatch("the key belongs to another id").into());
    }
    let random = seeds(randomness, key, &link, replies, &trace);
    let shape = trace.shape();
    let (blocks, slips) = bind_requests(id, replies, &shape.lengths, &random, hook);
    let relation = olmoe::relation(&id.header);
    let dims = Dims::new(id.header.sizes.clone(), shape.clone());
    let header = BatchHeader {
        shape,
        blocks: blocks.iter().map(Block::hash).collect(),
        link,
    };
    let params = &id.params;
    let oracle = hook.oracle(PROTOCOL);
    let mut channel = ProverChannel::under(oracle, &parameters(&digest, &header));

    hook.phase("fill the trace");
    let mut witness = fill_trace(model, &relation, trace, &blocks);
    let unknown = Challenges::default();
    let publics = Publics {
        header: &id.header,
        dims: &dims,
        challenges: &unknown,
    };
    hook.weights(&relation, &mut witness);
    hook.trace(&relation, &dims, &mut witness);
    fill_digits(&relation, &publics, &mut witness);
    hook.digits(&relation, &dims, &mut witness);
    let columns = first_columns(&Tables {
        relation: &relation,
        publics: &publics,
        witness: &witness,
    });
    fill_multiplicities(&relation, &publics, &mut witness, &columns);
    hook.first(&relation, &dims, &mut witness);

    hook.phase("commit to the pads");
    let pads = hidden_counts(id, &header)
        .and_then(|counts| commit_pads(&mut channel, counts, &random, hook))
        .expect("sizes were checked");

    hook.phase("commit to the trace");
    let code = RowCode::new(params.log_row, params.log_code);
    let layouts =
        [Round::Model, Round::First, Round::Second].map(|r| layout(&relation, &dims, r, params));
    let mut rows1 = rows_of(
        &relation,
        &witness,
        Round::First,
        &layouts[1],
        params,
        &random.seed(hook, Purpose::Tails, 1),
    );
    rows1.push_masks(
        &random.seed(hook, Purpose::Mask, 0),
        &random.seed(hook, Purpose::MaskTail, 0),
        params.log_row,
        params.model_tail,
    );
    let tree1 = rows1.commit(&code);
    channel.digest("first root", &tree1.root());

    channel.grind("work before the first challenges", params.grinding.lookup);
    let (first_challenges, point) =
        draw_first(&relation, &dims, |label, n| channel.challenges(label, n));
    let publics = Publics {
        challenges: &first_challenges,
        ..publics
    };
    fill_second(&relation, &publics, &mut witness);
    hook.second(&relation, &dims, &mut witness);
    let rows2 = rows_of(
        &relation,
        &witness,
        Round::Second,
        &layouts[2],
        params,
        &random.seed(hook, Purpose::Tails, 2),
    );
    let tree2 = rows2.commit(&code);
    channel.digest("second root", &tree2.root());

    let tau2 = draw_points(&relation, &dims, Round::Second, |n| {
        channel.challenges("tau2", n)
    });
    channel.grind("work before the lookups", params.grinding.lookup);
    let (alpha, delta) = (channel.challenge("alpha"), channel.challenge("delta"));
    let challenges = Challenges {
        tau2,
        alpha,
        delta,
        ..first_challenges.clone()
    };
    let publics = Publics {
        header: &id.header,
        dims: &dims,
        challenges: &challenges,
    };

    hook.phase("prove lookups and products");
    let place = places(&relation);
    let evaluations: Vec<K> = blocks.iter().map(|b| b.evaluate(&point)).collect();
    channel.clear("block evaluations", &evaluations);
    let batching = channel.challenge("block batching");
    let mut claims = Vec::new();
    for (name, _, weights) in point.functionals(&dims, batching) {
        let Some(tensor) = relation.tensor(name) else {
            continue;
        };
        let shape = dims.shape(&relation.tensors[tensor].axes);
        let value = crate::engine::functional(&shape, &witness.tensors[tensor][0], &weights);
        claims.push(Claim {
            tree: 1,
            tensor: place[tensor],
            weights,
            value,
        });
    }
    let parts: Vec<K> = claims.iter().map(|claim| claim.value).collect();
    channel.hidden("block parts", &parts);
    let columns = all_columns(&relation, &publics, &witness, columns);
    let mut party = ProverParty::new(&mut channel, &relation, &publics, &witness, &columns);
    let Ok(reduced) = run(&mut party, &relation, &dims, &publics);
    for claim in reduced.claims {
        let tree = tree_of(relation.tensors[claim.tensor].round);
        let tensor = place[claim.tensor] + claim.component;
        claims.push(Claim {
            tree,
            tensor,
            weights: claim.weights,
            value: claim.value,
        });
    }
    drop(columns);
    drop(witness);

    hook.phase("open the commitments");
    let weight_layout = model_layout(model, params);
    let weight_rows = hook.model_rows(ModelRows::new(model, &weight_layout, params, key.seed()));
    let trees = [
        ProverTree {
            kind: TreeKind::Model,
            layout: &weight_layout,
            rows: &*weight_rows,
            tree: key.tree(),
        },
        ProverTree {
            kind: TreeKind::Round1,
            layout: &layouts[1],
            rows: &rows1,
            tree: &tree1,
        },
        ProverTree {
            kind: TreeKind::Round2,
            layout: &layouts[2],
            rows: &rows2,
            tree: &tree2,
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
        &parameters(&digest, &header),
        |replay| argue(id, &header, replay).map(drop),
    );

    let sizes = channel.sizes().to_vec();
    let mut w = Writer::new();
    write_proof_header(&mut w, &digest, &header);
    w.raw(&channel.finish());
    Ok(BatchProof {
        proof: w.bytes,
        slips,
        sizes,
        violated,
    })
}

/// Four uniform elements.
fn elements(seed: &[u8; 32]) -> [F; 4] {
    let mut drawn = mask_row(seed, 0, 4).into_iter();
    core::array::from_fn(|_| drawn.next().unwrap_or_default())
}

fn bind_requests(
    id: &ModelId,
    replies: &[Reply],
    lengths: &[usize],
    random: &Randomness,
    hook: &mut impl Hook,
) -> (Vec<Block>, Vec<Slip>) {
    let model = id.digest();
    replies
        .iter()
        .zip(lengths)
        .enumerate()
        .filter_map(|(n, (reply, &length))| {
            let salt = random.seed(hook, Purpose::Salt, n as u64);
            let cells = elements(&random.seed(hook, Purpose::Cells, n as u64));
            let Reply {
                prompt,
                response,
                max_tokens,
            } = reply;
            let block = Block::new(
                &id.header,
                prompt,
                response,
                length,
                *max_tokens,
                salt,
                cells,
            )?;
            let slip = Slip {
                model,
                request: n as u32,
                max_tokens: *max_tokens,
                salt,
                cells,
                response: response.clone(),
            };
            Some((block, slip))
        })
        .unzip()
}

/// Weights, values of the trace and random cells.
fn fill_trace(model: &Model, relation: &Relation, mut trace: Trace, blocks: &[Block]) -> Witness {
    let tensors = relation
        .tensors
        .iter()
        .map(|tensor| match &tensor.fill {
            Fill::Weights(id) => vec![committed_values(model, *id)],
            Fill::Trace => {
                let values = trace.tensors.remove(&tensor.name).unwrap_or_default();
                vec![values.into_iter().map(from_i64).collect()]
            }
            Fill::Random => vec![blocks.iter().flat_map(|b| b.cells).collect()],
            Fill::Limb { .. }
            | Fill::Multiplicity(_)
            | Fill::Fingerprint(_)
            | Fill::RowWeight(_) => Vec::new(),
        })
        .collect();
    Witness { tensors }
}

fn fill_digits(relation: &Relation, publics: &Publics<'_>, witness: &mut Witness) {
    // The digits of one value are neighbours in the relation.
    let mut last: Option<(&zkmoe_verifier::relation::Expr, Column)> = None;
    for (t, tensor) in relation.tensors.iter().enumerate() {
        if let Fill::Limb { value, position } = &tensor.fill {
            let column = match last.take() {
                Some((expr, column)) if expr == value => column,
                _ => Tables {
                    relation,
                    publics,
                    witness,
                }
                .evaluate(&tensor.axes, value),
            };
            witness.tensors[t] = vec![digit(&column, *position)];
            last = Some((value, column));
        }
    }
}

fn fill_multiplicities(
    relation: &Relation,
    publics: &Publics<'_>,
    witness: &mut Witness,
    columns: &[Vec<Option<Column>>],
) {
    for (t, tensor) in relation.tensors.iter().enumerate() {
        if let Fill::Multiplicity(tag) = tensor.fill {
            let size = publics.dims.shape(&tensor.axes).len();
            let tables = Tables {
                relation,
                publics,
                witness,
            };
            let counts = multiplicities(&tables, tag, size, columns);
            witness.tensors[t] = vec![counts];
        }
    }
}

fn fill_second(relation: &Relation, publics: &Publics<'_>, witness: &mut Witness) {
    for (t, tensor) in relation.tensors.iter().enumerate() {
        let values = match &tensor.fill {
            Fill::Fingerprint(of) => fingerprints(relation, publics, witness, of),
            Fill::RowWeight(ids) => row_weights(publics, witness, ids),
            _ => continue,
        };
        witness.tensors[t] = vec![
            values.iter().map(|x| x.c0).collect(),
            values.iter().map(|x| x.c1).collect(),
        ];
    }
}

/// The columns of all lookups, those of the second round included.
fn all_columns(
    relation: &Relation,
    publics: &Publics<'_>,
    witness: &Witness,
    first: Vec<Vec<Option<Column>>>,
) -> Vec<Vec<Column>> {
    let tables = Tables {
        relation,
        publics,
        witness,
    };
    relation
        .lookups
        .iter()
        .zip(first)
        .map(|(lookup, columns)| {
            lookup
                .tuple
                .iter()
                .zip(columns)
                .map(|(expr, column)| match column {
                    Some(column) if !depends_on_second(relation, expr) => column,
                    _ => tables.evaluate(&lookup.out, expr),
                })
                .collect()
        })
        .collect()
}

/// The rows of one round.
fn rows_of(
    relation: &Relation,
    witness: &Witness,
    round: Round,
    layout: &Layout,
    params: &Params,
    seed: &[u8; 32],
) -> Rows {
    let mut data = layout.empty_rows();
    let places = places(relation);
    for (t, _) in relation
        .tensors
        .iter()
        .enumerate()
        .filter(|(_, t)| t.round == round)
    {
        for (component, cells) in witness.tensors[t].iter().enumerate() {
            layout.scatter(places[t] + component, cells, |x| x, &mut data);
        }
    }
    Rows::with_tails(data, seed, params.trace_tail)
}
