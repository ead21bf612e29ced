//! The commitment to a model: its weights as rows, the private key file, and the public id.
//!
//! Rows are made one after the other from the memory-mapped weights, encoded, absorbed by the chains over all columns
//! and forgotten, so nothing of the size of the encoded model is ever held. The key holds the seed of the rows' random
//! tails and the digests of all columns; the latter are there only so that a proof need not encode the whole model
//! again.

use ark_ff::AdditiveGroup;
use rayon::prelude::*;
use std::borrow::Cow;
use std::path::Path;
use zkmoe_commit::codec::{DecodeError, Reader, Writer, read_magic, write_magic};
use zkmoe_commit::field::{F, from_i64};
use zkmoe_commit::layout::Layout;
use zkmoe_commit::merkle::Tree;
use zkmoe_commit::params::Params;
use zkmoe_commit::rows::{self, RowCode, RowCommitter, RowSource};
use zkmoe_verifier::id::{ModelId, layout};
use zkmoe_verifier::olmoe;
use zkmoe_verifier::relation::{BatchShape, Dims, Round};
use zkmoe_verifier::weights::{WeightId, weight_shape};

use crate::files::{Mode, write_file};
use crate::model::Model;

/// The first bytes of a key file.
pub const KEY_MAGIC: [u8; 8] = *b"ZKMOKEY\0";
/// The version of the format.
pub const KEY_VERSION: u32 = 1;

/// Why a commitment or its key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The operating system refused.
    #[error("{file}: {error}")]
    Io {
        /// The file.
        file: String,
        /// What the system said.
        error: std::io::Error,
    },
    /// The bytes are no key.
    #[error("{file}: {error}")]
    Decode {
        /// The file.
        file: String,
        /// What is wrong.
        error: DecodeError,
    },
    /// A key would be lost.
    #[error(
        "{0} exists; a key is never overwritten, because without it nothing can be proved under its model id. Choose another name"
    )]
    KeyExists(String),
    /// Key, id and model do not belong together.
    #[error("{0}")]
    Mismatch(&'static str),
    /// The operating system has no randomness.
    #[error("the operating system's random generator failed: {0}")]
    Randomness(String),
}

/// The private half of a commitment.
pub struct Key {
    /// The id that it belongs to.
    pub id: [u8; 32],
    /// The seed of the random tails.
    pub seed: [u8; 32],
    /// The tree over the columns of all weight rows.
    pub tree: Tree,
}

impl Key {
    /// The bytes of a key file.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        write_magic(&mut w, &KEY_MAGIC, KEY_VERSION);
        w.raw(&self.id);
        w.raw(&self.seed);
        w.u32(self.tree.log_size());
        self.tree.leaves().iter().for_each(|d| w.raw(d));
        w.bytes
    }

    /// Reads a key file.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        read_magic(&mut r, &KEY_MAGIC, KEY_VERSION, "key")?;
        let id = r.digest("model id")?;
        let seed = r.digest("seed")?;
        let log_size = r.u32("columns")?;
        if log_size > 28 {
            return Err(DecodeError::Invalid("columns"));
        }
        let leaves = r.many(1 << log_size, 32, "columns", |r| r.digest("columns"))?;
        r.finish()?;
        Ok(Self {
            id,
            seed,
            tree: Tree::new(leaves),
        })
    }

    /// Opens a key file.
    pub fn open(path: &Path) -> Result<Self, CommitError> {
        let file = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|error| CommitError::Io {
            file: file.clone(),
            error,
        })?;
        Self::decode(&bytes).map_err(|error| CommitError::Decode { file, error })
    }

    /// Writes a key file that does not exist yet.
    pub fn save_new(&self, path: &Path) -> Result<(), CommitError> {
        let file = path.display().to_string();
        let written = write_file(path, Mode::PrivateNew, |w| w.write_all(&self.encode()));
        written.map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => CommitError::KeyExists(file),
            _ => CommitError::Io { file, error },
        })
    }
}

/// Fresh bytes from the operating system.
pub fn os_randomness() -> Result<[u8; 32], CommitError> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|e| CommitError::Randomness(e.to_string()))?;
    Ok(seed)
}

/// The rows of a model, made on demand.
pub struct ModelRows<'a> {
    model: &'a Model,
    layout: &'a Layout,
    seed: [u8; 32],
    tail: usize,
}

impl<'a> ModelRows<'a> {
    /// The rows of a model in the places of `layout`, with tails from `seed`.
    pub fn new(model: &'a Model, layout: &'a Layout, params: &Params, seed: [u8; 32]) -> Self {
        Self {
            model,
            layout,
            seed,
            tail: params.model_tail,
        }
    }
}

impl RowSource for ModelRows<'_> {
    fn rows(&self) -> usize {
        self.layout.rows()
    }

    fn data(&self, row: usize) -> Cow<'_, [F]> {
        let mut out = vec![F::ZERO; 1 << self.layout.log_row()];
        self.layout.row_runs(row, |run| {
            let slots = &mut out[run.slot..run.slot + run.len];
            copy_weights(self.model, WeightId::ALL[run.tensor], run.cell, slots);
        });
        Cow::Owned(out)
    }

    fn tail(&self, row: usize) -> Cow<'_, [F]> {
        Cow::Owned(rows::tail(&self.seed, row as u64, self.tail))
    }
}

/// Committed values of a tensor, from cell `start` on.
fn copy_weights(model: &Model, id: WeightId, start: usize, out: &mut [F]) {
    let shape = weight_shape(model.sizes(), id);
    let (values, multipliers) = (model.values(id), model.multipliers(id));
    let matrix = shape.inn * shape.out;
    for (n, slot) in out.iter_mut().enumerate() {
        let cell = start + n;
        let multiplier = multipliers[cell / matrix * shape.out + cell % shape.out];
        *slot = from_i64(i64::from(values[cell]) * i64::from(multiplier));
    }
}

/// All committed values of a tensor.
pub fn committed_values(model: &Model, id: WeightId) -> Vec<F> {
    let mut out = vec![F::ZERO; weight_shape(model.sizes(), id).values()];
    out.par_chunks_mut(1 << 14)
        .enumerate()
        .for_each(|(n, chunk)| copy_weights(model, id, n << 14, chunk));
    out
}

/// The sizes of a model with the smallest batch; the places of weights do not depend on the batch.
fn no_batch(model: &Model) -> Dims {
    let shape = BatchShape {
        lengths: vec![1],
        blocks: vec![(0, 0, 1)],
        decoded: 1,
    };
    Dims::new(model.sizes().clone(), shape)
}

/// The places of the weights of a model.
pub fn model_layout(model: &Model, params: &Params) -> Layout {
    layout(
        &olmoe::relation(model.header()),
        &no_batch(model),
        Round::Model,
        params,
    )
}

/// Commits to a model with tails from `seed`. `progress` is called with the number of rows done and all rows.
pub fn commit(
    model: &Model,
    params: Params,
    seed: [u8; 32],
    progress: &dyn Fn(usize, usize),
) -> (ModelId, Key) {
    let layout = model_layout(model, &params);
    let rows = ModelRows::new(model, &layout, &params, seed);
    let code = RowCode::new(params.log_row, params.log_code);
    let mut committer = RowCommitter::new(&code, layout.rows());
    let mut done = 0;
    while done < layout.rows() {
        let next = layout.rows().min(done + 4);
        let batch: Vec<(Vec<F>, Vec<F>)> = (done..next)
            .into_par_iter()
            .map(|r| (rows.data(r).into_owned(), rows.tail(r).into_owned()))
            .collect();
        committer.push(&batch);
        done = next;
        progress(done, layout.rows());
    }
    let tree = committer.finish();
    let id = ModelId {
        header: model.header().clone(),
        params,
        root: tree.root(),
        tokenizer: model.tokenizer_json().to_vec(),
    };
    let key = Key {
        id: id.digest(),
        seed,
        tree,
    };
    (id, key)
}
