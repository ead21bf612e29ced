//! Serving one request, position by position, with the keys and values of all earlier positions at hand.

use zkmoe_verifier::gadgets::argmax::argmax;

use super::{
    InferError,
    block::{LayerCache, embed, head, layer},
    check_tokens,
};
use crate::model::Model;

/// The state of one request.
#[derive(Debug, Clone)]
pub struct Session<'a> {
    model: &'a Model,
    caches: Vec<LayerCache>,
    len: usize,
    /// The residual stream at the last position, after the last block; none where [`Session::truncate`] forgot it.
    last: Option<Vec<i32>>,
}

impl<'a> Session<'a> {
    /// A request without tokens.
    pub fn new(model: &'a Model) -> Self {
        Self {
            model,
            caches: vec![LayerCache::default(); model.sizes().num_hidden_layers],
            len: 0,
            last: None,
        }
    }

    /// How many positions have been run.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no position has been run.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Runs one position.
    pub fn push(&mut self, token: u32) -> Result<(), InferError> {
        self.extend(&[token])
    }

    /// Runs some positions in one pass. After an error the session is as it was before.
    pub fn extend(&mut self, tokens: &[u32]) -> Result<(), InferError> {
        check_tokens(self.model, tokens, self.len)?;
        if tokens.is_empty() {
            return Ok(());
        }
        let mut x = embed(self.model, tokens);
        for l in 0..self.caches.len() {
            match layer(self.model, l, &x, &mut self.caches[l], false) {
                Ok(pass) => x = pass.x,
                Err(overflow) => {
                    self.cut_caches();
                    return Err(overflow.into());
                }
            }
        }
        self.len += tokens.len();
        x.drain(..x.len() - self.model.sizes().hidden_size);
        self.last = Some(x);
        Ok(())
    }

    /// The logits that follow the last position.
    pub fn logits(&self) -> Result<Vec<i32>, InferError> {
        let x = self.last.as_ref().ok_or(InferError::Empty)?;
        Ok(head(self.model, x, &|_| self.len - 1)?.logits)
    }

    /// The token that follows the last position.
    pub fn next_token(&self) -> Result<u32, InferError> {
        Ok(argmax(&self.logits()?).index as u32)
    }

    /// Forgets all positions from `len` on. The next token of the position that is last then is not known any more,
    /// until another position is run.
    pub(crate) fn truncate(&mut self, len: usize) {
        if len < self.len {
            self.len = len;
            self.last = None;
            self.cut_caches();
        }
    }

    fn cut_caches(&mut self) {
        let sizes = self.model.sizes();
        let width = sizes.num_key_value_heads * sizes.head_dim;
        for cache in &mut self.caches {
            cache.keys.truncate(self.len * width);
            cache.values.truncate(self.len * width);
        }
    }
}
