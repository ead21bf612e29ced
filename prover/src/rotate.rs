//! Rotating a commitment: the same weights under a new id, and the proof that they are the same.
//!
//! [`zkmoe_verifier::rotation`] is the twin and says what is argued. The order of use is [`check`], [`recommit`], [`prove`]:
//! a model file that is not the committed one is noticed before anything is spent on it.
//!
//! The proof opens `Q` positions of the rows of both commitments, so it counts against the randomness of both keys. Rows
//! are made from the model file whenever they are needed; only the opening holds them all, as field elements.

use rayon::prelude::*;
use zkmoe_commit::channel::ProverChannel;
use zkmoe_commit::codec::Writer;
use zkmoe_commit::field::{F, K};
use zkmoe_commit::opening::{self, ProverTree, TreeKind};
use zkmoe_commit::rows::{RowCode, RowSource, Rows, leaf};
use zkmoe_commit::transcript::Transcript;
use zkmoe_verifier::id::ModelId;
use zkmoe_verifier::rotation::{
    PROTOCOL, argue, claims, draw_points, hidden_counts, mask_layout, parameters,
    write_rotation_header,
};
use zkmoe_verifier::weights::WeightId;

use crate::commitment::{ModelRows, commit, committed_values, model_layout};
use crate::engine::functional;
use crate::key::{self, Key, KeyError, Permit};
use crate::model::Model;
use crate::pads::{commit_pads, prove_pads};
use crate::prove::{Hook, NoHook};
use crate::randomness::{Purpose, Randomness};

/// Columns of the commitment that [`check`] makes again. Other weights differ from the committed ones in more than half of
/// all columns.
const CHECKED_COLUMNS: usize = 24;

/// A commitment as its owner holds it.
#[derive(Clone, Copy)]
pub struct Side<'a> {
    /// The weights.
    pub model: &'a Model,
    /// The public half.
    pub id: &'a ModelId,
    /// The private half.
    pub key: &'a Key,
}

/// Why there is no rotation.
#[derive(Debug, thiserror::Error)]
pub enum RotateError {
    /// The header of the model is not that of the id.
    #[error("the id belongs to a model with other sizes, shifts or tables")]
    OtherModel,
    /// The key is of another id, has been rotated, or could not count.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A rotated commitment has an opening less.
    #[error("the code of this id has no room for a batch beside a rotation")]
    NoRoom,
    /// The model or the key is not what was committed to.
    #[error("the weights are not those that were committed to with this key")]
    OtherWeights,
    /// No verifier would accept the proof: the commitments differ, or there is a fault in this program.
    #[error("the proof does not hold: {0}")]
    Violated(String),
}

/// A finished proof.
#[derive(Debug, Clone)]
pub struct RotationProof {
    /// The bytes of the rotation file.
    pub proof: Vec<u8>,
    /// Bytes of the proof by kind of message.
    pub sizes: Vec<(&'static str, usize)>,
    /// The checks that fail and so let a verifier reject the proof; none if both sides hold the same weights.
    pub violated: Vec<String>,
}

/// Whether model, id and key belong together, as far as some columns of the commitment show.
pub fn check(side: &Side<'_>) -> Result<(), RotateError> {
    let Side { model, id, key } = side;
    if id.header != *model.header() {
        return Err(RotateError::OtherModel);
    }
    key.check(id)?;
    key.demand(key::Opening::Rotation)?;
    let params = &id.params;
    if params.batches() < 2 {
        return Err(RotateError::NoRoom);
    }
    let layout = model_layout(model, params);
    let rows = ModelRows::new(model, &layout, params, key.seed());
    let code = RowCode::new(params.log_row, params.log_code);
    // Nobody chooses weights to deceive their owner, so any positions will do that no pattern of weights prefers.
    let positions = Transcript::new("zkmoe rotation: columns of the model file").positions(
        "positions",
        CHECKED_COLUMNS.min(1 << params.log_code >> 1),
        params.log_code,
    );
    let symbols: Vec<Vec<F>> = (0..rows.rows())
        .into_par_iter()
        .map(|row| rows.symbols(&code, row, &positions))
        .collect();
    let fits = positions.iter().enumerate().all(|(q, &position)| {
        let column: Vec<F> = symbols.iter().map(|row| row[q]).collect();
        key.tree().leaves().get(position) == Some(&leaf(&column))
    });
    if fits {
        Ok(())
    } else {
        Err(RotateError::OtherWeights)
    }
}

/// Commits to the same model again, with the same parameters and fresh tails. The new key counts the opening that the
/// rotation takes, and the permit is for that. `randomness` must be fresh; `progress` is called with the number of rows
/// done and all rows.
pub fn recommit(
    side: &Side<'_>,
    randomness: [u8; 32],
    progress: &dyn Fn(usize, usize),
) -> Result<(ModelId, Key, Permit), RotateError> {
    let random = Randomness::new(randomness, |hasher| {
        hasher.update(&side.key.seed());
    });
    let seed = random.seed(&mut NoHook, Purpose::Tails, 0);
    let (id, key) = commit(side.model, side.id.params.clone(), seed, progress);
    let room = id.params.batches().saturating_sub(1) as u32;
    let limit = side.key.limit().min(room);
    let (key, permit) = key.with_limit(limit).of_rotation()?;
    Ok((id, key, permit))
}

/// Proves that the id of `to`, which [`recommit`] made, commits to the weights of `from`. `randomness` must be fresh for
/// every call, but may be that of [`recommit`].
pub fn prove(
    from: &Side<'_>,
    to: &Side<'_>,
    permits: [Permit; 2],
    randomness: [u8; 32],
    hook: &mut impl Hook,
) -> Result<RotationProof, RotateError> {
    for side in [from, to] {
        side.key.check(side.id)?;
    }
    let rotation = prove_sides(from, to, permits, randomness, hook)?;
    match rotation.violated.first() {
        None => Ok(rotation),
        Some(check) => Err(RotateError::Violated(check.clone())),
    }
}

/// Proves, whether or not both sides hold the same weights: what a dishonest prover calls as well. Only permits of both keys
/// for a rotation open anything.
///
/// # Panics
/// If the two sides have other headers or parameters.
pub fn prove_sides(
    from: &Side<'_>,
    to: &Side<'_>,
    permits: [Permit; 2],
    randomness: [u8; 32],
    hook: &mut impl Hook,
) -> Result<RotationProof, RotateError> {
    for (permit, side) in permits.into_iter().zip([from, to]) {
        permit.redeem(&side.key.id(), key::Opening::Rotation)?;
    }
    let params = &from.id.params;
    assert!(
        from.id.header == to.id.header && *params == to.id.params,
        "both ids have one header and one code"
    );
    let random = Randomness::new(randomness, |hasher| {
        hasher.update(&from.key.seed());
        hasher.update(&to.key.seed());
    });
    let digests = [from.id.digest(), to.id.digest()];
    let parameters = parameters(&digests);
    let mut channel = ProverChannel::under(hook.oracle(PROTOCOL), &parameters);
    let code = RowCode::new(params.log_row, params.log_code);

    hook.phase("commit to the mask");
    let masks = mask_layout(params);
    let tails = random.seed(hook, Purpose::Tails, 1);
    let mut mask_rows = Rows::with_tails(masks.empty_rows(), &tails, params.trace_tail);
    mask_rows.push_masks(
        &random.seed(hook, Purpose::Mask, 0),
        &random.seed(hook, Purpose::MaskTail, 0),
        params.log_row,
        params.model_tail,
    );
    let mask_tree = mask_rows.commit(&code);
    let pads = hidden_counts(from.id)
        .and_then(|counts| commit_pads(&mut channel, counts, &random, hook))
        .expect("the prover's own model is within the limits");
    channel.digest("mask root", &mask_tree.root());
    channel.grind("work before the points", params.grinding.lookup);

    hook.phase("evaluate the weights");
    let layout = model_layout(from.model, params);
    let points = draw_points(&layout, |label, n| channel.challenges(label, n));
    let values: Vec<K> = points
        .iter()
        .enumerate()
        .map(|(tensor, weights)| {
            let cells = committed_values(from.model, WeightId::ALL[tensor]);
            functional(layout.shape(tensor), &cells, weights)
        })
        .collect();
    channel.hidden("values of the tensors", &values);
    let claims = claims(points, values);

    hook.phase("open the commitments");
    let old_rows = ModelRows::new(from.model, &layout, params, from.key.seed());
    let new_rows = ModelRows::new(to.model, &layout, params, to.key.seed());
    let trees = [
        ProverTree {
            kind: TreeKind::Model,
            layout: &layout,
            rows: &old_rows,
            tree: from.key.tree(),
        },
        ProverTree {
            kind: TreeKind::NewModel,
            layout: &layout,
            rows: &new_rows,
            tree: to.key.tree(),
        },
        ProverTree {
            kind: TreeKind::Round1,
            layout: &masks,
            rows: &mask_rows,
            tree: &mask_tree,
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
        &parameters,
        |replay| argue(from.id, to.id, replay).map(drop),
    );

    let sizes = channel.sizes().to_vec();
    let mut w = Writer::new();
    write_rotation_header(&mut w, &digests);
    w.raw(&channel.finish());
    Ok(RotationProof {
        proof: w.bytes,
        sizes,
        violated,
    })
}
