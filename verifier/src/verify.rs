//! The verifier: a proof against a model id, and a slip with its texts against a proof.

use crate::batch::{BatchHeader, Block, BlockPoint, read_proof_header};
use crate::engine::{Challenges, Publics, SumcheckSize, VerifierParty, point_labels, run};
use crate::id::{ModelId, layout, places, tree_of};
use crate::length::{self, Length};
use crate::limits::Extent;
use crate::olmoe;
use crate::relation::{Dims, Label, Relation, Round};
use crate::slip::Slip;
use std::collections::BTreeMap;
use zkmoe_commit::channel::{Hidden, Reject, VerifierChannel, powers};
use zkmoe_commit::codec::{DecodeError, Reader, Writer};
use zkmoe_commit::field::K;
use zkmoe_commit::layout::Layout;
use zkmoe_commit::ligero;
use zkmoe_commit::opening::{self, Claim, TreeKind, VerifierTree};
use zkmoe_commit::params::Params;
use zkmoe_commit::soundness::Term;

/// Separates this protocol's transcript from all others.
pub const PROTOCOL: &str = "zkmoe batch proof v1";

/// A proof that was accepted: what it says about the requests of its batch.
#[derive(Debug, Clone)]
pub struct Batch {
    /// The public header.
    pub header: BatchHeader,
    /// Where blocks were evaluated.
    pub point: BlockPoint,
    /// The evaluation of each request's block.
    pub evaluations: Vec<K>,
    /// The soundness error, term by term.
    pub soundness: Vec<Term>,
}

/// How a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// With the end-of-text token.
    EndOfText,
    /// At the limit that was asked for.
    Limit,
    /// Earlier; why is not proved.
    Early,
}

/// Why a file cannot be checked at all.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum VerifyError {
    /// The proof or slip is rejected.
    #[error(transparent)]
    Rejected(#[from] Reject),
    /// The file is not a proof.
    #[error("proof: {0}")]
    Unusable(DecodeError),
}

/// Everything public that the transcript starts with.
pub fn parameters(id: &[u8; 32], header: &BatchHeader) -> Vec<u8> {
    let mut w = Writer::new();
    w.raw(id);
    header.encode(&mut w);
    w.bytes
}

/// The points of all constraints drawn after a round.
pub fn draw_points(
    relation: &Relation,
    dims: &Dims,
    round: Round,
    mut draw: impl FnMut(usize) -> Vec<K>,
) -> BTreeMap<Label, Vec<K>> {
    point_labels(relation, round)
        .into_iter()
        .map(|l| (l, draw(dims.bits(l) as usize)))
        .collect()
}

/// What is drawn after the first root, in one order for both parties: the challenges of the second round's tensors and
/// the place where blocks are evaluated. The challenges that are drawn later are zero.
pub fn draw_first(
    relation: &Relation,
    dims: &Dims,
    mut draw: impl FnMut(&'static str, usize) -> Vec<K>,
) -> (Challenges, BlockPoint) {
    let beta: K = draw("beta", 1).into_iter().sum();
    let tau = draw_points(relation, dims, Round::First, |n| draw("tau", n));
    let point = BlockPoint {
        position: draw("block point", dims.bits(Label::Position) as usize),
        fold: draw("block fold", 1).into_iter().sum(),
        cells: draw("block cells", 1).into_iter().sum(),
    };
    let challenges = Challenges {
        beta,
        tau,
        ..Challenges::default()
    };
    (challenges, point)
}

/// Reads the start of a proof file.
fn begin(
    r: &mut Reader<'_>,
    id: &ModelId,
    digest: &[u8; 32],
) -> Result<(BatchHeader, Length), VerifyError> {
    let (named, header) = read_proof_header(r, &id.header).map_err(VerifyError::Unusable)?;
    if named != *digest {
        return Err(Reject::check("model id: the proof is about another model").into());
    }
    let length = batch_length(id, &header)?;
    Ok((header, length))
}

/// How long a proof file is that starts with these bytes. The first [`MAX_START`](crate::batch::MAX_START) of a file are
/// enough. Errors are those of [`verify_batch`].
pub fn file_length(id: &ModelId, start: &[u8]) -> Result<Length, VerifyError> {
    let (_, length) = begin(&mut Reader::new(start), id, &id.digest())?;
    Ok(length)
}

/// Checks a proof file against a model id.
///
/// A file that cannot have as many bytes as its sizes ask for, or more, is rejected before anything of these sizes is
/// allocated: memory is in proportion to the length of id and proof.
pub fn verify_batch(id: &ModelId, proof: &[u8]) -> Result<Batch, VerifyError> {
    let mut r = Reader::new(proof);
    let digest = id.digest();
    let (header, length) = begin(&mut r, id, &digest)?;
    length.check(proof.len() as u64).map_err(Reject::from)?;
    let rest = r
        .raw(r.remaining(), "proof")
        .map_err(VerifyError::Unusable)?;
    let channel = VerifierChannel::new(PROTOCOL, &parameters(&digest, &header), rest);
    Ok(verify_messages(id, header, channel)?)
}

/// Checks the messages behind the header of a proof. The channel has absorbed [`parameters`]; what is accepted under
/// another oracle than the transcript proves nothing.
pub fn verify_messages(
    id: &ModelId,
    header: BatchHeader,
    mut channel: VerifierChannel<'_>,
) -> Result<Batch, Reject> {
    let mut argument = argue(id, &header, &mut channel)?;
    let about_pads = ligero::conclude(channel, &argument.pads_root)?;
    argument.soundness.extend(about_pads);
    crate::soundness::check(&argument.soundness)?;
    Ok(Batch {
        header,
        point: argument.point,
        evaluations: argument.evaluations,
        soundness: argument.soundness,
    })
}

/// How many pads the hidden values of a batch take, and how many of their products the proof about them covers. They
/// follow from public sizes.
pub fn hidden_counts(id: &ModelId, header: &BatchHeader) -> Result<(usize, usize), Reject> {
    let mut channel = VerifierChannel::rehearsal();
    reduce(id, header, &mut channel)?;
    let (values, products) = channel.counts();
    Ok((values + opening::hidden_values(&id.params), products))
}

/// How long the file of a proof with this header is. An error if no verifier would take one with these sizes: a prover asks
/// before it works.
pub fn batch_length(id: &ModelId, header: &BatchHeader) -> Result<Length, Reject> {
    let mut channel = VerifierChannel::rehearsal();
    let [model, first, second] = reduce(id, header, &mut channel)?
        .layouts(&id.params)
        .map(|layout| layout.rows());
    let rows = [model, first + TreeKind::Round1.mask_rows(), second];
    length::of_file(header.start_length(), &channel, &id.params, &rows)
}

/// What was said about a batch before the proof about pads: true if the system on the channel holds.
#[derive(Debug)]
pub struct Argument {
    /// The commitment to the pads.
    pub pads_root: [u8; 32],
    /// Where blocks were evaluated.
    pub point: BlockPoint,
    /// The evaluation of each request's block.
    pub evaluations: Vec<K>,
    /// The soundness error without that of the proof about pads.
    pub soundness: Vec<Term>,
}

/// Follows the messages of a proof up to the proof about pads.
pub fn argue(
    id: &ModelId,
    header: &BatchHeader,
    channel: &mut VerifierChannel<'_>,
) -> Result<Argument, Reject> {
    let reduction = reduce(id, header, channel)?;
    let layouts = reduction.layouts(&id.params);
    let [pads_root, first_root, second_root] = reduction.roots;
    let [model, first, second] = &layouts;
    let trees = [
        VerifierTree {
            kind: TreeKind::Model,
            layout: model,
            root: id.root,
        },
        VerifierTree {
            kind: TreeKind::Round1,
            layout: first,
            root: first_root,
        },
        VerifierTree {
            kind: TreeKind::Round2,
            layout: second,
            root: second_root,
        },
    ];
    opening::verify(channel, &id.params, &trees, &reduction.claims)?;
    Ok(Argument {
        pads_root,
        soundness: reduction.soundness(id, &layouts),
        point: reduction.point,
        evaluations: reduction.evaluations,
    })
}

/// What the relation was reduced to: claims about committed tensors.
#[derive(Debug)]
pub struct Reduction {
    /// The relation.
    pub relation: Relation,
    /// The sizes of its indices.
    pub dims: Dims,
    /// Of the pads, of the first and of the second round.
    pub roots: [[u8; 32]; 3],
    /// Where blocks were evaluated.
    pub point: BlockPoint,
    /// The evaluation of each request's block.
    pub evaluations: Vec<K>,
    /// The claims; trees are numbered by [`tree_of`].
    pub claims: Vec<Claim<Hidden>>,
    /// The sumchecks of products that were run.
    pub sumchecks: Vec<SumcheckSize>,
}

impl Reduction {
    /// Where the tensors of the model, of the first and of the second round lie.
    pub fn layouts(&self, params: &Params) -> [Layout; 3] {
        [Round::Model, Round::First, Round::Second]
            .map(|round| layout(&self.relation, &self.dims, round, params))
    }

    /// The soundness error of everything but the proof about pads.
    pub fn soundness(&self, id: &ModelId, layouts: &[Layout; 3]) -> Vec<Term> {
        let rows = layouts.iter().map(Layout::rows).sum();
        let claims = self.claims.len();
        crate::soundness::terms(
            id,
            &self.relation,
            &self.dims,
            &self.sumchecks,
            rows,
            claims,
        )
    }
}

/// Follows the messages of a proof up to the opening.
pub fn reduce(
    id: &ModelId,
    header: &BatchHeader,
    channel: &mut VerifierChannel<'_>,
) -> Result<Reduction, Reject> {
    let relation = olmoe::relation(&id.header);
    let dims = Dims::new(id.header.sizes.clone(), header.shape.clone());
    check_size(id, &relation, &dims)?;
    follow(id, relation, dims, channel)
}

/// As [`reduce`], for sizes that the caller has checked.
pub(crate) fn follow(
    id: &ModelId,
    relation: Relation,
    dims: Dims,
    channel: &mut VerifierChannel<'_>,
) -> Result<Reduction, Reject> {
    let pads_root = ligero::receive(channel)?;
    let first_root = channel.digest("first root")?;
    channel.grind(
        "work before the first challenges",
        id.params.grinding.lookup,
    )?;
    let (challenges, point) = draw_first(&relation, &dims, |label, n| channel.challenges(label, n));
    let second_root = channel.digest("second root")?;
    let tau2 = draw_points(&relation, &dims, Round::Second, |n| {
        channel.challenges("tau2", n)
    });
    channel.grind("work before the lookups", id.params.grinding.lookup)?;
    let (alpha, delta) = (channel.challenge("alpha"), channel.challenge("delta"));
    let challenges = Challenges {
        tau2,
        alpha,
        delta,
        ..challenges
    };
    let publics = Publics {
        header: &id.header,
        dims: &dims,
        challenges: &challenges,
    };

    // Each block's evaluation in clear; all of them together tied to hidden evaluations of the trace.
    let place = places(&relation);
    let mut claims: Vec<Claim<Hidden>> = Vec::new();
    let evaluations = channel.clear("block evaluations", dims.size(Label::Request))?;
    let batching = channel.challenge("block batching");
    let stated: K = powers(batching, evaluations.len())
        .into_iter()
        .zip(&evaluations)
        .map(|(power, &x)| power * x)
        .sum();
    let functionals = point.functionals(&dims, batching);
    let parts = channel.hidden("block parts", functionals.len())?;
    let mut sum = -Hidden::public(stated);
    for ((name, coefficient, weights), value) in functionals.into_iter().zip(parts) {
        sum.add_scaled(&value, coefficient);
        let tensor = relation
            .tensor(name)
            .ok_or_else(|| Reject::check("relation"))?;
        claims.push(Claim {
            tree: 1,
            tensor: place[tensor],
            weights,
            value,
        });
    }
    channel.assert_zero(sum, || "blocks of requests: evaluations".into())?;

    let lookups = relation
        .lookups
        .iter()
        .map(|l| dims.shape(&l.out))
        .collect();
    let mut party = VerifierParty::new(channel, lookups);
    let reduced = run(&mut party, &relation, &dims, &publics)?;
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
    Ok(Reduction {
        relation,
        dims,
        roots: [pads_root, first_root, second_root],
        point,
        evaluations,
        claims,
        sumchecks: reduced.sumchecks,
    })
}

/// Refuses batches above the declared limits before anything is allocated for them. A prover asks as well, before it
/// works for a proof that nobody would take.
pub fn check_size(id: &ModelId, relation: &Relation, dims: &Dims) -> Result<(), Reject> {
    Extent::of_batch(relation, dims).check(&id.params, "the batch")
}

/// Checks that a request with this prompt and the slip's response is request number `slip.request` of an accepted
/// batch.
pub fn check_slip(
    id: &ModelId,
    batch: &Batch,
    slip: &Slip,
    prompt: &[u32],
) -> Result<Ended, Reject> {
    let header = &id.header;
    let r = slip.request as usize;
    let reject = |what: &str| Err(Reject::check(format!("slip: {what}")));
    let (Some(&length), Some(hash), Some(&stated)) = (
        batch.header.shape.lengths.get(r),
        batch.header.blocks.get(r),
        batch.evaluations.get(r),
    ) else {
        return reject("the batch has no such request");
    };
    if prompt
        .iter()
        .chain(&slip.response)
        .any(|&t| t as usize >= header.sizes.vocab_size)
    {
        return reject("a token is not in the vocabulary");
    }
    let block = Block::new(
        header,
        prompt,
        &slip.response,
        length,
        slip.max_tokens,
        slip.salt,
        slip.cells,
    );
    let Some(block) = block else {
        return reject("prompt and response do not fit the request's length");
    };
    if block.hash() != *hash {
        return reject("the batch holds another prompt, response or limit for this request");
    }
    if block.evaluate(&batch.point) != stated {
        return reject("the proof is about another block than the one in the batch header");
    }
    let Some((last, before)) = slip.response.split_last() else {
        return reject("the response is empty");
    };
    if before.contains(&header.eos_token) {
        return reject("the response goes on after the end of the text");
    }
    if slip.response.len() > slip.max_tokens as usize {
        return reject("the response is longer than its limit");
    }
    Ok(if *last == header.eos_token {
        Ended::EndOfText
    } else if slip.response.len() == slip.max_tokens as usize {
        Ended::Limit
    } else {
        Ended::Early
    })
}
