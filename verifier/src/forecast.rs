//! What a proof would be, told from its public sizes alone: counts, soundness error and length.
//!
//! The verifier's own steps are walked through on blank messages, so the numbers are those that it arrives at for a true
//! proof of these sizes. Only the length is an estimate, since opened positions share more or less of their paths.

use crate::batch::{BatchHeader, write_proof_header};
use crate::id::ModelId;
use crate::limits::{Extent, MAX_BRICKS};
use crate::olmoe;
use crate::relation::{Dims, Relation, Round};
use crate::verify::follow;
use zkmoe_commit::channel::{Reject, VerifierChannel};
use zkmoe_commit::codec::Writer;
use zkmoe_commit::layout::Layout;
use zkmoe_commit::opening::{self, TreeKind};
use zkmoe_commit::params::MAX_ROWS;
use zkmoe_commit::soundness::Term;
use zkmoe_commit::{ligero, merkle::Digest};

/// What a batch proof would be.
#[derive(Debug, Clone, PartialEq)]
pub struct Forecast {
    /// Cells of the tensors of the model, of the first and of the second round, those over the extension twice.
    pub cells: [u64; 3],
    /// Cells of all lookups, tables included.
    pub lookups: u64,
    /// Rows of the model, of the first and of the second round, without the mask.
    pub rows: [usize; 3],
    /// Claims that the opening proves.
    pub claims: usize,
    /// Values that are sent hidden.
    pub hidden_values: usize,
    /// Products of hidden values.
    pub products: usize,
    /// About how many bytes the proof has, its header included.
    pub bytes: usize,
    /// The soundness error, term by term.
    pub soundness: Vec<Term>,
}

impl Forecast {
    /// Of a batch with this header, of which only the sizes count.
    ///
    /// Whether a verifier would take such a proof is not asked: that is [`crate::verify::check_size`] and
    /// [`crate::soundness::check`]. An error only if there are too many pieces to count them, or more hidden values than
    /// a proof about pads may have.
    pub fn new(id: &ModelId, header: &BatchHeader) -> Result<Self, Reject> {
        let relation = olmoe::relation(&id.header);
        let dims = Dims::new(id.header.sizes.clone(), header.shape.clone());
        let extent = Extent::of_batch(&relation, &dims);
        // Time and memory follow from rows and bricks.
        if extent.bricks > MAX_BRICKS || extent.cells >> id.params.log_row > MAX_ROWS as u64 {
            return Err(Reject::check(
                "limits: the batch is too large to be counted",
            ));
        }
        let cells = [Round::Model, Round::First, Round::Second]
            .map(|round| committed(&relation, &dims, round));
        let lookups = relation.lookups.iter();
        let lookups = lookups.map(|l| dims.shape(&l.out).len() as u64).sum();

        let mut channel = VerifierChannel::rehearsal();
        let reduction = follow(id, relation, dims, &mut channel)?;
        let (reduced, products) = channel.counts();
        let layouts = reduction.layouts(&id.params);
        let rows = layouts.each_ref().map(Layout::rows);
        let hidden_values = reduced + opening::hidden_values(&id.params);
        let about_pads = ligero::Shape::choose(hidden_values, products)?;
        let mut soundness = reduction.soundness(id, &layouts);
        soundness.extend(ligero::soundness(&about_pads));

        let mut start = Writer::new();
        write_proof_header(&mut start, &id.digest(), header);
        // Three roots, two nonces, the blocks' evaluations in clear, and what is hidden.
        let messages = 3 * size_of::<Digest>() + 16 + 16 * (reduction.evaluations.len() + reduced);
        let [model, first, second] = rows;
        let opened = [model, first + TreeKind::Round1.mask_rows(), second];
        let bytes = start.bytes.len()
            + messages
            + opening::estimated_size(&id.params, &opened)
            + about_pads.estimated_size();
        Ok(Self {
            cells,
            lookups,
            rows,
            claims: reduction.claims.len(),
            hidden_values,
            products,
            bytes,
            soundness,
        })
    }
}

/// Cells of all tensors of one round.
fn committed(relation: &Relation, dims: &Dims, round: Round) -> u64 {
    let tensors = relation.tensors.iter().filter(|t| t.round == round);
    tensors
        .map(|t| dims.shape(&t.axes).len() as u64 * if t.extension { 2 } else { 1 })
        .sum()
}
