//! The certificate of a model: every committed weight is an integer in `[-2^23, 2^23)`.
//!
//! A commitment binds field elements, and everything that is proved about a batch takes them for integers whose sums do
//! not wrap. So it is proved once for each commitment that they are. All bounds of the gadgets use this one range, for
//! every tensor: an honest weight is a byte in -127..=127 times a multiplier up to 65535, which lies inside, and the sum
//! that comes nearest to `2^62`, that of the output projection, stays below `2^57`.
//!
//! # The argument
//!
//! For each weight `w` its upper digit `d` is committed, and two lookups say `0 <= d < 2^8` and
//! `0 <= w + 2^23 - 2^16 d < 2^16`. Both are integers, so `w + 2^23` is one below `2^24`. This is the range check of
//! the relation's [`Builder::signed`], with all weights of the model as its only tensors: no equations, one tuple length.
//! Digits and the counts of both tables are committed under one root before the pole of the lookups is drawn.
//!
//! # Parts and chunks
//!
//! A prover should not need memory for fractions of the whole model. So tensors are cut into [`Part`]s, boxes of
//! cells that lie next to each other, and parts are collected in chunks of a public size ([`Plan`]). Each chunk is a
//! relation of its own that [`engine::run`] takes down to claims about its parts; the sum of its
//! fractions stays hidden, and the sum over all chunks, the tables being in the last one, has to be zero. A claim about a part is a
//! claim about the whole tensor whose weights are zero outside of the part. At the end all claims are opened at once.
//!
//! That each weight is in some part is what makes the certificate one for the whole model; `Plan` makes the parts, and a
//! test counts the cells.

use crate::engine::{self, Challenges, Publics, SumcheckSize, TensorClaim, VerifierParty, run};
use crate::gkr::{self, Columns, Fraction};
use crate::header::Header;
use crate::id::{ModelId, tree_of};
use crate::length::{self, Length};
use crate::limits::{self, Extent};
use crate::olmoe;
use crate::relation::{Builder, Dims, Fill, Label, Relation, Tag};
use crate::verify::VerifyError;
use crate::weights::WeightId;
use ark_ff::AdditiveGroup;
use zkmoe_commit::channel::{Hidden, Reject, VerifierChannel};
use zkmoe_commit::codec::{DecodeError, Reader, Writer, read_magic, write_magic};
use zkmoe_commit::field::K;
use zkmoe_commit::layout::Layout;
use zkmoe_commit::ligero;
use zkmoe_commit::opening::{self, Claim, TreeKind, VerifierTree};
use zkmoe_commit::params::Params;
use zkmoe_commit::shape::{AxisWeights, Shape};
use zkmoe_commit::soundness::Term;

/// Separates this protocol's transcript from all others.
pub const PROTOCOL: &str = "zkmoe model certificate v1";
/// The first bytes of a certificate.
pub const CERTIFICATE_MAGIC: [u8; 8] = *b"ZKMOCRT\0";
/// The version of the format.
pub const CERTIFICATE_VERSION: u32 = 1;
/// A weight has so many bits, its sign included.
pub const WEIGHT_BITS: u32 = 24;
/// The least number of cells for which a chunk has room.
const CHUNK_CELLS: usize = 1 << 22;
/// About how many chunks a large model has: more of them take less memory and make a longer certificate.
const CHUNKS: usize = 128;
/// The most indices, counted from the first of their axis on, of all parts together. A prover holds a weight for each.
const MAX_PART_INDICES: u64 = 1 << 22;

/// Cells of a weight tensor: all whose first indices are `prefix` and whose next index is one of `len` from `start` on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The tensor.
    pub tensor: WeightId,
    /// Indices of the first axes.
    pub prefix: Vec<usize>,
    /// The first index of the axis after these.
    pub start: usize,
    /// How many indices.
    pub len: usize,
    /// The first cell in the tensor's row-major order.
    pub first_cell: usize,
    /// How many cells.
    pub cells: usize,
}

/// How the weights of a model are cut.
#[derive(Debug, Clone)]
pub struct Plan {
    dims: Dims,
    /// The axes of every weight tensor.
    axes: Vec<Vec<Label>>,
    chunks: Vec<Vec<Part>>,
}

impl Plan {
    /// The plan for a committed model. Refuses models above the limits before anything is allocated for them.
    pub fn new(id: &ModelId) -> Result<Self, Reject> {
        let extent = Extent::of_model(&id.header);
        // Digits take as much as weights.
        (extent * 2).check(&id.params, "the model")?;
        let shared = (extent.cells as usize).div_ceil(CHUNKS).next_power_of_two();
        let plan = Self::with_chunks(&id.header, shared.max(CHUNK_CELLS));
        // The weights of a claim about a part are listed from the first index of its axis on.
        let parts = plan.chunks.iter().flatten().map(|p| p.start + p.len);
        let indices = parts.sum::<usize>() as u64;
        limits::within("the model", indices, MAX_PART_INDICES, "indices of parts")?;
        Ok(plan)
    }

    /// A plan whose chunks have room for `room` cells, at least one. Prover and verifier need the same.
    pub fn with_chunks(header: &Header, room: usize) -> Self {
        let dims = Dims::of_model(header.sizes.clone());
        let axes: Vec<Vec<Label>> = olmoe::relation(header)
            .tensors
            .into_iter()
            .filter(|t| matches!(t.fill, Fill::Weights(_)))
            .map(|t| t.axes)
            .collect();
        let mut chunks: Vec<Vec<Part>> = vec![Vec::new()];
        let mut used = 0;
        for (tensor, axes) in WeightId::ALL.into_iter().zip(&axes) {
            let sizes: Vec<usize> = axes.iter().map(|&l| dims.size(l)).collect();
            for part in parts(tensor, &sizes, room.max(1)) {
                if used + part.cells > room && used > 0 {
                    chunks.push(Vec::new());
                    used = 0;
                }
                used += part.cells;
                if let Some(chunk) = chunks.last_mut() {
                    chunk.push(part);
                }
            }
        }
        Self { dims, axes, chunks }
    }

    /// The parts of every chunk.
    pub fn chunks(&self) -> &[Vec<Part>] {
        &self.chunks
    }

    /// Sizes of indices.
    pub fn dims(&self) -> &Dims {
        &self.dims
    }

    /// What has to hold for the parts of a chunk: for each a tensor of weights, then one of digits. The last chunk ends
    /// with the counts of the tables.
    pub fn relation(&self, chunk: usize) -> Relation {
        let mut b = Builder::new();
        for (n, part) in self.chunks.get(chunk).into_iter().flatten().enumerate() {
            let mut axes = self.axes[part.tensor.index()][part.prefix.len()..].to_vec();
            if let Some(axis) = axes.first_mut() {
                *axis = Label::Slice(part.len as u32);
            }
            let name = format!("{} {n}", part.tensor.name());
            let weights = b.part_of_weights(&name, part.tensor, &axes);
            b.signed(&format!("{name}: range"), &axes, weights, WEIGHT_BITS);
        }
        if chunk + 1 == self.chunks.len() {
            b.finish()
        } else {
            b.finish_without_tables()
        }
    }

    /// A claim about a tensor of a chunk's relation as one about what is committed.
    pub fn claim<V>(&self, chunk: usize, relation: &Relation, claim: TensorClaim<V>) -> Claim<V> {
        let tensor = &relation.tensors[claim.tensor];
        let tree = tree_of(tensor.round);
        let part = self.chunks.get(chunk).and_then(|c| c.get(claim.tensor / 2));
        let (place, weights) = match (&tensor.fill, part) {
            (Fill::Multiplicity(tag), _) => (WeightId::ALL.len() + table(*tag), claim.weights),
            (_, Some(part)) => (part.tensor.index(), self.widen(part, claim.weights)),
            // A relation has two tensors for each part, and then its tables.
            (_, None) => (usize::MAX, claim.weights),
        };
        Claim {
            tree,
            tensor: place,
            weights,
            value: claim.value,
        }
    }

    /// The weights of a whole tensor that are those of a part inside and zero outside.
    fn widen(&self, part: &Part, weights: Vec<AxisWeights>) -> Vec<AxisWeights> {
        let axis = self.axes[part.tensor.index()][part.prefix.len()];
        let mut wide: Vec<AxisWeights> =
            part.prefix.iter().map(|&i| AxisWeights::unit(i)).collect();
        let mut weights = weights.into_iter();
        if let Some(own) = weights.next() {
            let (start, len) = (part.start, part.len);
            wide.push(match own {
                own if len == self.dims.size(axis) => own,
                AxisWeights::Bits(pairs) => AxisWeights::Part { start, len, pairs },
                own => {
                    let mut table = vec![K::ZERO; start];
                    table.extend(own.expand(len));
                    AxisWeights::Table(table)
                }
            });
        }
        wide.extend(weights);
        wide
    }

    /// Where weights, and where digits and the counts of the tables lie.
    pub fn layouts(&self, params: &Params) -> [Layout; 2] {
        let mut shapes: Vec<Shape> = self.axes.iter().map(|a| self.dims.shape(a)).collect();
        let weights = Layout::new(&shapes, params.log_row);
        shapes.extend(TABLES.map(|bits| Shape::dense(&[1 << bits])));
        [weights, Layout::new(&shapes, params.log_row)]
    }

    /// All terms of the soundness error but that of the proof about pads, for `claims` claims.
    fn soundness(&self, params: &Params, rows: usize, claims: usize) -> Vec<Term> {
        let mut cells = 0.0;
        let mut variables = Vec::with_capacity(self.chunks.len());
        for chunk in 0..self.chunks.len() {
            let shapes = self.lookups(&self.relation(chunk));
            cells += shapes.iter().map(|s| s.len() as f64).sum::<f64>();
            variables.push(Columns::new(&shapes).variables());
        }
        let work = params.grinding.lookup;
        let mut terms = vec![Term::over_field(
            "lookups: poles and keys",
            format!("3 N / |K|, N = {cells} cells, {work} bits of work"),
            "Haboeck, eprint 2022/1530, theorem 1 and Schwartz-Zippel",
            3.0 * cells,
            work,
        )];
        terms.extend(gkr::soundness_of_parts(&variables));
        terms.extend(opening::soundness(params, rows, claims));
        terms
    }

    fn lookups(&self, relation: &Relation) -> Vec<Shape> {
        let lookups = relation.lookups.iter();
        lookups.map(|l| self.dims.shape(&l.out)).collect()
    }
}

/// Bits of the tables, in the order in which their counts are committed.
pub const TABLES: [u8; 2] = [(WEIGHT_BITS - 16) as u8, 16];

/// The number of a table in [`TABLES`].
fn table(tag: Tag) -> usize {
    usize::from(tag == Tag::Range(TABLES[1]))
}

/// Cuts a tensor into parts of at most `room` cells, in the order of cells: along the first axis an entry of which
/// has that few.
fn parts(tensor: WeightId, sizes: &[usize], room: usize) -> Vec<Part> {
    let inner = |axis: usize| sizes[axis + 1..].iter().product::<usize>();
    let axis = (0..sizes.len())
        .find(|&a| inner(a) <= room)
        .unwrap_or(sizes.len() - 1);
    let (size, inner) = (sizes[axis], inner(axis));
    // As many parts as are needed, of about the same length.
    let count = size.div_ceil((room / inner).max(1));
    let len = size.div_ceil(count);
    let outer: usize = sizes[..axis].iter().product();
    let mut parts = Vec::with_capacity(outer * count);
    for flat in 0..outer {
        let mut rest = flat;
        let mut prefix = vec![0; axis];
        for (index, &n) in prefix.iter_mut().zip(sizes).rev() {
            *index = rest % n;
            rest /= n;
        }
        for start in (0..size).step_by(len) {
            let len = len.min(size - start);
            parts.push(Part {
                tensor,
                prefix: prefix.clone(),
                start,
                len,
                first_cell: (flat * size + start) * inner,
                cells: len * inner,
            });
        }
    }
    parts
}

/// Bytes of a certificate before its messages.
pub const START: usize = 12 + 32;

/// Starts a certificate: what comes before its messages.
pub fn write_certificate_header(w: &mut Writer, id: &[u8; 32]) {
    write_magic(w, &CERTIFICATE_MAGIC, CERTIFICATE_VERSION);
    w.raw(id);
}

/// Reads the start of a certificate: the digest of the id that it is about.
pub fn read_certificate_header(r: &mut Reader<'_>) -> Result<[u8; 32], DecodeError> {
    read_magic(r, &CERTIFICATE_MAGIC, CERTIFICATE_VERSION, "certificate")?;
    r.digest("model id")
}

/// A digest of the whole file, under which a verdict about it can be kept.
pub fn certificate_digest(certificate: &[u8]) -> [u8; 32] {
    blake3::derive_key("zkmoe certificate file v1", certificate)
}

/// Checks a certificate against a model id; gives the soundness error, term by term.
///
/// A file that cannot have as many bytes as the sizes of the model ask for, or more, is rejected before anything of these
/// sizes is allocated.
pub fn verify_certificate(id: &ModelId, certificate: &[u8]) -> Result<Vec<Term>, VerifyError> {
    let mut r = Reader::new(certificate);
    let digest = id.digest();
    let (plan, length) = begin(&mut r, id, &digest)?;
    let found = certificate.len() as u64;
    length.check(found).map_err(Reject::from)?;
    let messages = r
        .raw(r.remaining(), "certificate")
        .map_err(VerifyError::Unusable)?;
    let channel = VerifierChannel::new(PROTOCOL, &digest, messages);
    Ok(verify_messages(id, &plan, channel)?)
}

/// Reads the start of a certificate.
fn begin(
    r: &mut Reader<'_>,
    id: &ModelId,
    digest: &[u8; 32],
) -> Result<(Plan, Length), VerifyError> {
    let named = read_certificate_header(r).map_err(VerifyError::Unusable)?;
    if named != *digest {
        return Err(Reject::check("model id: the certificate is about another model").into());
    }
    let plan = Plan::new(id)?;
    let length = certificate_length(id, &plan)?;
    Ok((plan, length))
}

/// How long a certificate is that starts with these bytes, the first [`START`] of a file. Errors are those of
/// [`verify_certificate`].
pub fn file_length(id: &ModelId, start: &[u8]) -> Result<Length, VerifyError> {
    let (_, length) = begin(&mut Reader::new(start), id, &id.digest())?;
    Ok(length)
}

/// How long a certificate of this model is.
pub fn certificate_length(id: &ModelId, plan: &Plan) -> Result<Length, Reject> {
    let mut channel = VerifierChannel::rehearsal();
    reduce(id, plan, &mut channel)?;
    let [weights, digits] = plan.layouts(&id.params).map(|layout| layout.rows());
    let rows = [weights, digits + TreeKind::Round1.mask_rows()];
    length::of_file(START, &channel, &id.params, &rows)
}

/// Whether there can be a certificate of this model under these parameters; nothing is proved under an id without one.
pub fn check_limits(id: &ModelId) -> Result<(), Reject> {
    let plan = Plan::new(id)?;
    certificate_length(id, &plan).map(drop)
}

/// Checks the messages behind the header of a certificate. The channel has absorbed the digest of the id; what is
/// accepted under another oracle than the transcript proves nothing.
pub fn verify_messages(
    id: &ModelId,
    plan: &Plan,
    mut channel: VerifierChannel<'_>,
) -> Result<Vec<Term>, Reject> {
    let mut argument = argue(id, plan, &mut channel)?;
    let about_pads = ligero::conclude(channel, &argument.pads_root)?;
    argument.soundness.extend(about_pads);
    crate::soundness::check(&argument.soundness)?;
    Ok(argument.soundness)
}

/// How many pads the hidden values of a certificate take, and how many of their products the proof about them covers.
pub fn hidden_counts(id: &ModelId, plan: &Plan) -> Result<(usize, usize), Reject> {
    let mut channel = VerifierChannel::rehearsal();
    reduce(id, plan, &mut channel)?;
    let (values, products) = channel.counts();
    Ok((values + opening::hidden_values(&id.params), products))
}

/// The soundness error of a certificate before it is made, term by term, as its verifier will arrive at it.
pub fn forecast(id: &ModelId) -> Result<Vec<Term>, Reject> {
    let plan = Plan::new(id)?;
    let mut channel = VerifierChannel::rehearsal();
    let reduction = reduce(id, &plan, &mut channel)?;
    let (values, products) = channel.counts();
    let about_pads = ligero::Shape::choose(values + opening::hidden_values(&id.params), products)?;
    let mut soundness = reduction.soundness(id, &plan, &plan.layouts(&id.params));
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

/// Follows the messages up to the proof about pads.
pub fn argue(
    id: &ModelId,
    plan: &Plan,
    channel: &mut VerifierChannel<'_>,
) -> Result<Argument, Reject> {
    let reduction = reduce(id, plan, channel)?;
    let [pads_root, first_root] = reduction.roots;
    let layouts = plan.layouts(&id.params);
    let [weights, digits] = &layouts;
    let trees = [
        VerifierTree {
            kind: TreeKind::Model,
            layout: weights,
            root: id.root,
        },
        VerifierTree {
            kind: TreeKind::Round1,
            layout: digits,
            root: first_root,
        },
    ];
    opening::verify(channel, &id.params, &trees, &reduction.claims)?;
    Ok(Argument {
        pads_root,
        soundness: reduction.soundness(id, plan, &layouts),
    })
}

/// What the ranges were reduced to: claims about committed tensors.
struct Reduction {
    /// Of the pads, and of digits and counts.
    roots: [[u8; 32]; 2],
    claims: Vec<Claim<Hidden>>,
    /// Ranges need no sumchecks of products; were there any, they would count.
    sumchecks: Vec<SumcheckSize>,
}

impl Reduction {
    /// The soundness error of everything but the proof about pads.
    fn soundness(&self, id: &ModelId, plan: &Plan, layouts: &[Layout; 2]) -> Vec<Term> {
        let rows = layouts.iter().map(Layout::rows).sum();
        let mut terms = plan.soundness(&id.params, rows, self.claims.len());
        terms.extend(engine::soundness(&self.sumchecks));
        terms
    }
}

/// Follows the messages up to the opening.
fn reduce(
    id: &ModelId,
    plan: &Plan,
    channel: &mut VerifierChannel<'_>,
) -> Result<Reduction, Reject> {
    let pads_root = ligero::receive(channel)?;
    let first_root = channel.digest("first root")?;
    channel.grind("work before the lookups", id.params.grinding.lookup)?;
    let challenges = Challenges {
        alpha: channel.challenge("alpha"),
        delta: channel.challenge("delta"),
        ..Challenges::default()
    };
    let publics = Publics {
        header: &id.header,
        dims: &plan.dims,
        challenges: &challenges,
    };
    let mut claims = Vec::new();
    let mut sumchecks = Vec::new();
    let mut total: Option<Fraction> = None;
    for chunk in 0..plan.chunks.len() {
        let relation = plan.relation(chunk);
        let mut party = VerifierParty::of_part(channel, plan.lookups(&relation));
        let found = run(&mut party, &relation, &plan.dims, &publics)?;
        let sum = party
            .into_sum()
            .ok_or_else(|| Reject::check("relation of a chunk"))?;
        total = Some(match total {
            None => sum,
            Some(total) => gkr::add(channel, total, sum),
        });
        sumchecks.extend(found.sumchecks);
        let about_parts = found.claims.into_iter();
        claims.extend(about_parts.map(|claim| plan.claim(chunk, &relation, claim)));
    }
    let total = total.ok_or_else(|| Reject::check("relation of a chunk"))?;
    gkr::close(channel, total)?;
    Ok(Reduction {
        roots: [pads_root, first_root],
        claims,
        sumchecks,
    })
}

#[cfg(test)]
mod tests;
