//! The slip: what a customer needs beside the proof to check that their own request is in the batch.
//!
//! A slip is secret to provider and customer. It holds the response's token ids, because several token sequences may spell one text;
//! the checker compares what they decode to with the text.

use zkmoe_commit::codec::{DecodeError, Reader, Writer, at_most, read_magic, write_magic};
use zkmoe_commit::field::F;

/// The first bytes of a slip.
pub const SLIP_MAGIC: [u8; 8] = *b"ZKMOSLP\0";
/// The version of the format.
pub const SLIP_VERSION: u32 = 1;
/// The most response tokens.
pub const MAX_RESPONSE: usize = 1 << 16;
/// The most bytes of a slip.
pub const MAX_SLIP: usize = 120 + 4 * MAX_RESPONSE;

/// The secret part of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slip {
    /// The model id that the provider claims; a hint for error messages.
    pub model: [u8; 32],
    /// The number of the request in its batch.
    pub request: u32,
    /// The limit on response tokens that was asked for.
    pub max_tokens: u32,
    /// The salt of the request's hash.
    pub salt: [u8; 32],
    /// The random cells of its block.
    pub cells: [F; 4],
    /// The response, with the end token if there was one.
    pub response: Vec<u32>,
}

impl Slip {
    /// The bytes of a slip.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        write_magic(&mut w, &SLIP_MAGIC, SLIP_VERSION);
        w.raw(&self.model);
        w.u32(self.request);
        w.u32(self.max_tokens);
        w.raw(&self.salt);
        self.cells.iter().for_each(|&x| w.f(x));
        w.u32(self.response.len() as u32);
        self.response.iter().for_each(|&x| w.u32(x));
        w.bytes
    }

    /// Reads a slip.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        read_magic(&mut r, &SLIP_MAGIC, SLIP_VERSION, "slip")?;
        let model = r.digest("model id")?;
        let request = r.u32("request")?;
        let max_tokens = r.u32("max_tokens")?;
        let salt = r.digest("salt")?;
        let cells = [r.f("cells")?, r.f("cells")?, r.f("cells")?, r.f("cells")?];
        let n = r.u32("response length")? as usize;
        at_most("response length", n, MAX_RESPONSE)?;
        let response = r.many(n, 4, "response", |r| r.u32("response"))?;
        r.finish()?;
        Ok(Self {
            model,
            request,
            max_tokens,
            salt,
            cells,
            response,
        })
    }
}
