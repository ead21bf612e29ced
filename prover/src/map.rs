//! Read-only bytes of a file, memory-mapped, and bytes seen as signed bytes.
//!
//! This is the only file of the crate with `unsafe` code: a real model has gigabytes of weights, which are mapped
//! rather than read, and used where they lie.

use std::io;
use std::ops::Deref;
use std::path::Path;

use memmap2::Mmap;

use crate::files::open_regular;

/// Bytes that are either mapped from a file or owned.
#[derive(Debug)]
pub enum Bytes {
    /// Mapped from a file.
    Mapped(Mmap),
    /// Held in memory.
    Owned(Vec<u8>),
}

impl Bytes {
    /// Maps the file at `path`.
    #[allow(unsafe_code)]
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = open_regular(path)?;
        // SAFETY: the mapping is read-only. Should another process change the file while it is mapped, the bytes
        // change under us; they are plain integers of which every pattern is valid, and the files of this program
        // are replaced by renames, never written in place.
        Ok(Self::Mapped(unsafe { Mmap::map(&file)? }))
    }
}

impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Owned(bytes) => bytes,
        }
    }
}

/// The same bytes with a sign.
#[allow(unsafe_code)]
pub fn as_signed(bytes: &[u8]) -> &[i8] {
    // SAFETY: u8 and i8 have the same size and alignment, and every byte is a valid i8; the lifetime is inherited.
    unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len()) }
}

/// The same bytes without a sign.
#[allow(unsafe_code)]
pub fn as_unsigned(values: &[i8]) -> &[u8] {
    // SAFETY: as in `as_signed`.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), values.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_round_trip() {
        let bytes: Vec<u8> = (0..=255).collect();
        let signed = as_signed(&bytes);
        assert_eq!(signed[127], 127);
        assert_eq!(signed[128], -128);
        assert_eq!(as_unsigned(signed), &bytes[..]);
        assert!(as_signed(&[]).is_empty());
    }
}
