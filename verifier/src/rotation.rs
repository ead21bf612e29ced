//! The rotation of a commitment: a proof that two ids commit to the same weights.
//!
//! Every opening shows some symbols of the committed rows, and the random tails that hide the rest are used up by it. A
//! provider who has no openings left commits to the model again, with fresh tails and so under a new id, and proves that
//! nothing else is new. What was known about the weights of the old id is then known about those of the new one.
//!
//! Public: two different ids with equal headers, tokenizers and code parameters. Equal parameters are demanded because
//! one opening combines rows of both commitments, which takes rows of one length in one code; and since they follow from
//! the sizes of a model and from the number of batches, an honest provider has no reason to change them. With header and
//! parameters the layouts are equal too, so row `k` of one commitment has the place of row `k` of the other.
//!
//! The argument, after both roots (the ids are absorbed first), the commitment to the pads and a tree that holds nothing
//! but the mask rows of the opening:
//!
//! 1. Work, then a random point for every weight tensor.
//! 2. One hidden value for each tensor. It is claimed of the old tensor and of the new one: both extensions at the point
//!    are the same unknown, so there is no equation left to check.
//! 3. One opening of both claims on all tensors. A weight `eq(point, cell)` is zero for no cell, but for a chance that the
//!    soundness error covers, so every row that holds weights takes part, in both commitments.
//!
//! If a cell of some tensor differs, so do the tensor's two extensions, which are multilinear, and at a random point they
//! agree with probability at most `variables / |K|` (J. T. Schwartz, "Fast probabilistic algorithms for verification of
//! polynomial identities", 1980; R. Zippel, "Probabilistic algorithms for sparse polynomials", 1979).

use crate::id::{ModelId, model_layout};
use crate::length::{self, Length};
use crate::limits::Extent;
use crate::soundness::check;
use crate::verify::VerifyError;
use zkmoe_commit::channel::{Hidden, Reject, VerifierChannel};
use zkmoe_commit::codec::{DecodeError, Reader, Writer, read_magic, write_magic};
use zkmoe_commit::field::K;
use zkmoe_commit::layout::Layout;
use zkmoe_commit::ligero;
use zkmoe_commit::opening::{self, Claim, TreeKind, VerifierTree};
use zkmoe_commit::params::Params;
use zkmoe_commit::shape::AxisWeights;
use zkmoe_commit::soundness::Term;

/// Separates this protocol's transcript from all others.
pub const PROTOCOL: &str = "zkmoe rotation v1";
/// The first bytes of a rotation file.
pub const ROTATION_MAGIC: [u8; 8] = *b"ZKMOROT\0";
/// The version of the format.
pub const ROTATION_VERSION: u32 = 1;

/// A rotation that was accepted.
#[derive(Debug, Clone)]
pub struct Rotation {
    /// The soundness error, term by term.
    pub soundness: Vec<Term>,
}

/// Bytes of a rotation file before its messages.
pub const START: usize = 12 + 2 * 32;

/// Starts a rotation file: magic, version, the digests of the old and of the new id.
pub fn write_rotation_header(w: &mut Writer, digests: &[[u8; 32]; 2]) {
    write_magic(w, &ROTATION_MAGIC, ROTATION_VERSION);
    digests.iter().for_each(|digest| w.raw(digest));
}

/// Reads the digests of the old and of the new id from the start of a rotation file.
pub fn read_rotation_header(r: &mut Reader<'_>) -> Result<[[u8; 32]; 2], DecodeError> {
    read_magic(r, &ROTATION_MAGIC, ROTATION_VERSION, "rotation")?;
    Ok([r.digest("old model id")?, r.digest("new model id")?])
}

/// Everything public that the transcript starts with: the digests of both ids, which bind header, parameters and root.
pub fn parameters(digests: &[[u8; 32]; 2]) -> Vec<u8> {
    digests.concat()
}

/// Checks a rotation file against the old and the new id.
///
/// A file that cannot have as many bytes as the sizes of the model ask for, or more, is rejected before anything of these
/// sizes is allocated.
pub fn verify_rotation(
    from: &ModelId,
    to: &ModelId,
    proof: &[u8],
) -> Result<Rotation, VerifyError> {
    let mut r = Reader::new(proof);
    let digests = [from.digest(), to.digest()];
    let length = begin(&mut r, from, to, &digests)?;
    length.check(proof.len() as u64).map_err(Reject::from)?;
    let messages = r
        .raw(r.remaining(), "rotation")
        .map_err(VerifyError::Unusable)?;
    let channel = VerifierChannel::new(PROTOCOL, &parameters(&digests), messages);
    Ok(verify_messages(from, to, channel)?)
}

/// Reads the start of a rotation file.
fn begin(
    r: &mut Reader<'_>,
    from: &ModelId,
    to: &ModelId,
    digests: &[[u8; 32]; 2],
) -> Result<Length, VerifyError> {
    let named = read_rotation_header(r).map_err(VerifyError::Unusable)?;
    check_ids(from, to)?;
    let &[old, new] = digests;
    if named == [new, old] {
        return Err(
            Reject::check("model ids: the proof leads from the new id to the old one").into(),
        );
    }
    if named != *digests {
        return Err(Reject::check("model ids: the proof is about other ids").into());
    }
    Ok(rotation_length(from)?)
}

/// How long a rotation file is that starts with these bytes, the first [`START`] of a file. Errors are those of
/// [`verify_rotation`].
pub fn file_length(from: &ModelId, to: &ModelId, start: &[u8]) -> Result<Length, VerifyError> {
    let digests = [from.digest(), to.digest()];
    begin(&mut Reader::new(start), from, to, &digests)
}

/// How long the file of a rotation from this id is.
pub fn rotation_length(id: &ModelId) -> Result<Length, Reject> {
    let mut channel = VerifierChannel::rehearsal();
    let rows = reduce(id, &mut channel)?.layout.rows();
    let masks = mask_layout(&id.params).rows() + TreeKind::Round1.mask_rows();
    length::of_file(START, &channel, &id.params, &[rows, rows, masks])
}

/// Checks the messages behind the header. The channel has absorbed [`parameters`]; what is accepted under another oracle
/// than the transcript proves nothing.
pub fn verify_messages(
    from: &ModelId,
    to: &ModelId,
    mut channel: VerifierChannel<'_>,
) -> Result<Rotation, Reject> {
    let Argument {
        pads_root,
        mut soundness,
    } = argue(from, to, &mut channel)?;
    soundness.extend(ligero::conclude(channel, &pads_root)?);
    check(&soundness)?;
    Ok(Rotation { soundness })
}

/// Whether one id may be a rotation of the other, as far as the ids tell.
pub fn check_ids(from: &ModelId, to: &ModelId) -> Result<(), Reject> {
    let demand = |holds: bool, what| {
        if holds {
            Ok(())
        } else {
            Err(Reject::check(format!("model ids: {what}")))
        }
    };
    demand(
        from.header == to.header,
        "the headers differ, so the ids are of models with other sizes, shifts, tables, tokenizers or chat templates",
    )?;
    demand(from.tokenizer == to.tokenizer, "the tokenizers differ")?;
    demand(from.params == to.params, "the code parameters differ")?;
    demand(
        from.root != to.root,
        "both are the same, so nothing was rotated",
    )
}

/// How many pads the hidden values of a rotation take, and how many of their products the proof about them covers.
pub fn hidden_counts(id: &ModelId) -> Result<(usize, usize), Reject> {
    let mut channel = VerifierChannel::rehearsal();
    reduce(id, &mut channel)?;
    let (values, products) = channel.counts();
    Ok((values + opening::hidden_values(&id.params), products))
}

/// The soundness error of a rotation of this id before it is made, term by term, as its verifier will arrive at it.
pub fn forecast(id: &ModelId) -> Result<Vec<Term>, Reject> {
    let mut channel = VerifierChannel::rehearsal();
    let Reduction { layout, claims, .. } = reduce(id, &mut channel)?;
    let (values, products) = channel.counts();
    let about_pads = ligero::Shape::choose(values + opening::hidden_values(&id.params), products)?;
    let mut soundness = terms(&id.params, &layout, claims.len());
    soundness.extend(ligero::soundness(&about_pads));
    Ok(soundness)
}

/// What was said before the proof about pads: true if the system on the channel holds.
#[derive(Debug)]
pub struct Argument {
    /// The commitment to the pads.
    pub pads_root: [u8; 32],
    /// The soundness error without that of the proof about pads.
    pub soundness: Vec<Term>,
}

/// Follows the messages of a proof up to the proof about pads.
pub fn argue(
    from: &ModelId,
    to: &ModelId,
    channel: &mut VerifierChannel<'_>,
) -> Result<Argument, Reject> {
    check_ids(from, to)?;
    let Reduction {
        layout,
        roots: [pads_root, mask_root],
        claims,
    } = reduce(from, channel)?;
    let masks = mask_layout(&from.params);
    let tree = |kind, layout, root| VerifierTree { kind, layout, root };
    let trees = [
        tree(TreeKind::Model, &layout, from.root),
        tree(TreeKind::NewModel, &layout, to.root),
        tree(TreeKind::Round1, &masks, mask_root),
    ];
    opening::verify(channel, &from.params, &trees, &claims)?;
    Ok(Argument {
        pads_root,
        soundness: terms(&from.params, &layout, claims.len()),
    })
}

/// The places in a tree without tensors: its rows are the mask rows, and what its layout fills up with.
pub fn mask_layout(params: &Params) -> Layout {
    Layout::new(&[], params.log_row)
}

/// The weights at a random point of every tensor of a layout, drawn in one order for both parties.
pub fn draw_points(
    layout: &Layout,
    mut draw: impl FnMut(&'static str, usize) -> Vec<K>,
) -> Vec<Vec<AxisWeights>> {
    (0..layout.tensors())
        .map(|tensor| {
            let bits = layout.shape(tensor).bits();
            let point = |&bits: &u32| AxisWeights::eq(&draw("point of a tensor", bits as usize));
            bits.iter().map(point).collect()
        })
        .collect()
}

/// The claims of both trees, the value of each tensor twice.
pub fn claims<V: Clone>(
    points: Vec<Vec<AxisWeights>>,
    values: impl IntoIterator<Item = V>,
) -> Vec<Claim<V>> {
    let mut claims = Vec::with_capacity(2 * points.len());
    for (tensor, (weights, value)) in points.into_iter().zip(values).enumerate() {
        for tree in 0..2 {
            claims.push(Claim {
                tree,
                tensor,
                weights: weights.clone(),
                value: value.clone(),
            });
        }
    }
    claims
}

/// What the equality of two commitments was reduced to: claims about their tensors.
struct Reduction {
    layout: Layout,
    /// Of the pads and of the mask rows.
    roots: [[u8; 32]; 2],
    claims: Vec<Claim<Hidden>>,
}

/// Follows the messages of a proof up to the opening.
fn reduce(id: &ModelId, channel: &mut VerifierChannel<'_>) -> Result<Reduction, Reject> {
    check_size(id)?;
    let layout = model_layout(&id.header, &id.params);
    let pads_root = ligero::receive(channel)?;
    let mask_root = channel.digest("mask root")?;
    channel.grind("work before the points", id.params.grinding.lookup)?;
    let points = draw_points(&layout, |label, n| channel.challenges(label, n));
    let values = channel.hidden("values of the tensors", layout.tensors())?;
    Ok(Reduction {
        layout,
        roots: [pads_root, mask_root],
        claims: claims(points, values),
    })
}

/// Refuses models above the declared limits before anything is allocated for them.
fn check_size(id: &ModelId) -> Result<(), Reject> {
    // Rows of both commitments carry claims.
    (Extent::of_model(&id.header) * 2).check(&id.params, "the model")
}

/// The soundness error of a rotation with so many claims, without that of the proof about pads.
fn terms(params: &Params, layout: &Layout, claims: usize) -> Vec<Term> {
    let variables: u32 = (0..layout.tensors())
        .flat_map(|tensor| layout.shape(tensor).bits())
        .sum();
    let work = params.grinding.lookup;
    let mut terms = vec![Term::over_field(
        "rotation: points of the tensors",
        format!("{variables} variables of all tensors / |K|, {work} bits of work"),
        "Schwartz-Zippel",
        f64::from(variables),
        work,
    )];
    terms.extend(opening::soundness(params, 2 * layout.rows(), claims));
    terms
}
