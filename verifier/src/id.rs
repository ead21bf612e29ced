//! The public side of a commitment: the file `model.id` and the 32-byte model id.
//!
//! The id is a hash of the header, of the parameters of the code, and of the root over all weight rows. Commitments
//! are randomized, so one model has as many ids as it has been committed to.

use crate::header::{Header, MAX_HEADER};
use crate::olmoe;
use crate::relation::{Dims, Relation, Round};
use zkmoe_commit::codec::{DecodeError, Reader, Writer, at_most, read_magic, write_magic};
use zkmoe_commit::layout::Layout;
use zkmoe_commit::params::{PARAMS_BYTES, Params};

/// The first bytes of a `model.id` file.
pub const ID_MAGIC: [u8; 8] = *b"ZKMOEID\0";
/// The version of the format.
pub const ID_VERSION: u32 = 1;
/// The largest tokenizer that a `model.id` file may hold, in bytes.
pub const MAX_TOKENIZER: usize = 1 << 25;
/// The most bytes of a `model.id` file.
pub const MAX_ID: usize = 12 + MAX_HEADER + PARAMS_BYTES + 32 + 4 + MAX_TOKENIZER;

/// Everything public about a committed model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelId {
    /// The integer model without its weights.
    pub header: Header,
    /// The code, the number of positions and the work of every opening.
    pub params: Params,
    /// The root over the columns of all weight rows.
    pub root: [u8; 32],
    /// The tokenizer file, whose hash is in the header.
    pub tokenizer: Vec<u8>,
}

impl ModelId {
    /// The 32 bytes that name the model.
    pub fn digest(&self) -> [u8; 32] {
        let mut w = Writer::new();
        self.header.encode(&mut w);
        self.params.encode(&mut w);
        w.raw(&self.root);
        blake3::derive_key("zkmoe model id v1", &w.bytes)
    }

    /// The bytes of a `model.id` file.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        write_magic(&mut w, &ID_MAGIC, ID_VERSION);
        self.header.encode(&mut w);
        self.params.encode(&mut w);
        w.raw(&self.root);
        w.u32(self.tokenizer.len() as u32);
        w.raw(&self.tokenizer);
        w.bytes
    }

    /// Reads a `model.id` file. Header and parameters are checked against every bound on which soundness rests.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        read_magic(&mut r, &ID_MAGIC, ID_VERSION, "model id")?;
        let header = Header::decode(&mut r)?;
        let params = Params::decode(&mut r)?;
        let root = r.digest("root")?;
        let n = r.u32("tokenizer length")? as usize;
        at_most("tokenizer length", n, MAX_TOKENIZER)?;
        let tokenizer = r.raw(n, "tokenizer")?.to_vec();
        r.finish()?;
        if *blake3::hash(&tokenizer).as_bytes() != header.tokenizer_hash {
            return Err(DecodeError::Invalid("tokenizer"));
        }
        Ok(Self {
            header,
            params,
            root,
            tokenizer,
        })
    }
}

/// Where the tensors of one round lie in rows. A tensor over `K` is two tensors.
pub fn layout(relation: &Relation, dims: &Dims, round: Round, params: &Params) -> Layout {
    let mut shapes = Vec::new();
    for tensor in relation.tensors.iter().filter(|t| t.round == round) {
        for _ in 0..if tensor.extension { 2 } else { 1 } {
            shapes.push(dims.shape(&tensor.axes));
        }
    }
    Layout::new(&shapes, params.log_row)
}

/// Where the weights of a model lie in rows. Their places do not depend on a batch, so the smallest one will do.
pub fn model_layout(header: &Header, params: &Params) -> Layout {
    let dims = Dims::of_model(header.sizes.clone());
    layout(&olmoe::relation(header), &dims, Round::Model, params)
}

/// The position in its round's layout of the first component of every tensor.
pub fn places(relation: &Relation) -> Vec<usize> {
    let mut next = [0; 3];
    relation
        .tensors
        .iter()
        .map(|tensor| {
            let counter = &mut next[tree_of(tensor.round)];
            let place = *counter;
            *counter += if tensor.extension { 2 } else { 1 };
            place
        })
        .collect()
}

/// The number of the tree that holds the tensors of a round.
pub const fn tree_of(round: Round) -> usize {
    match round {
        Round::Model => 0,
        Round::First => 1,
        Round::Second => 2,
    }
}
