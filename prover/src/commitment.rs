//! The commitment to a model: its weights as rows, the private key, and the public id.
//!
//! Rows are made one after the other from the memory-mapped weights, encoded, absorbed by the chains over all columns
//! and forgotten, so nothing of the size of the encoded model is ever held.

use ark_ff::AdditiveGroup;
use rayon::prelude::*;
use std::borrow::Cow;
use zkmoe_commit::field::{F, from_i64};
use zkmoe_commit::layout::Layout;
use zkmoe_commit::params::Params;
use zkmoe_commit::rows::{self, RowCode, RowSource};
use zkmoe_verifier::id::{self, ModelId};
use zkmoe_verifier::weights::{WeightId, weight_shape};

use crate::key::{Key, KeyError};
use crate::model::Model;
use crate::streamed::commit_rows;

/// Fresh bytes from the operating system.
pub fn os_randomness() -> Result<[u8; 32], KeyError> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|e| KeyError::Randomness(e.to_string()))?;
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
            committed_cells(self.model, WeightId::ALL[run.tensor], run.cell, slots);
        });
        Cow::Owned(out)
    }

    fn tail(&self, row: usize) -> Cow<'_, [F]> {
        Cow::Owned(rows::tail(&self.seed, row as u64, self.tail))
    }
}

/// Committed values of a tensor, from cell `start` on.
pub fn committed_cells(model: &Model, id: WeightId, start: usize, out: &mut [F]) {
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
        .for_each(|(n, chunk)| committed_cells(model, id, n << 14, chunk));
    out
}

/// The places of the weights of a model.
pub fn model_layout(model: &Model, params: &Params) -> Layout {
    id::model_layout(model.header(), params)
}

/// Commits to a model with tails from `seed`. The key is for all batches that the parameters have randomness for, and
/// counts in memory until it is saved and opened. `progress` is called with the number of rows done and all rows.
pub fn commit(
    model: &Model,
    params: Params,
    seed: [u8; 32],
    progress: &dyn Fn(usize, usize),
) -> (ModelId, Key) {
    let layout = model_layout(model, &params);
    let rows = ModelRows::new(model, &layout, &params, seed);
    let code = RowCode::new(params.log_row, params.log_code);
    let tree = commit_rows(&rows, &code, progress);
    let id = ModelId {
        header: model.header().clone(),
        params,
        root: tree.root(),
        tokenizer: model.tokenizer_json().to_vec(),
    };
    let limit = id.params.batches() as u32;
    let key = Key::new(id.digest(), seed, tree, limit, 0);
    (id, key)
}
