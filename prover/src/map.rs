//! Read-only bytes of a file, memory-mapped, and bytes seen as signed bytes.
//!
//! This is the only file of the crate with `unsafe` code: a real model has gigabytes of weights, which are mapped
//! rather than read, and used where they lie.

use std::fs::{File, Metadata};
use std::io;
use std::ops::Deref;
use std::path::Path;
use std::time::SystemTime;

use memmap2::Mmap;

use crate::files::open_regular;

/// Bytes that are either mapped from a file or owned.
#[derive(Debug)]
pub enum Bytes {
    /// Mapped from a file.
    Mapped(Mapping),
    /// Held in memory.
    Owned(Vec<u8>),
}

/// A file that is mapped, and what it was like when it was.
#[derive(Debug)]
pub struct Mapping {
    map: Mmap,
    file: File,
    stamp: Stamp,
}

/// What changes when somebody writes to a file.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    len: u64,
    modified: Option<SystemTime>,
}

impl From<Metadata> for Stamp {
    fn from(about: Metadata) -> Self {
        Self {
            len: about.len(),
            modified: about.modified().ok(),
        }
    }
}

impl Bytes {
    /// Maps the file at `path`.
    #[allow(unsafe_code)]
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = open_regular(path)?;
        let stamp = file.metadata()?.into();
        // SAFETY: the mapping is read-only. Should another process change the file while it is mapped, the bytes
        // change under us; they are plain integers of which every pattern is valid, and the files of this program
        // are replaced by renames, never written in place.
        let map = unsafe { Mmap::map(&file)? };
        Ok(Self::Mapped(Mapping { map, file, stamp }))
    }

    /// Whether the file, if there is one, has not been written to since it was mapped. What was read of one that was may be
    /// of before and of after.
    pub fn is_unchanged(&self) -> io::Result<bool> {
        match self {
            Self::Mapped(Mapping { file, stamp, .. }) => {
                Ok(*stamp == Stamp::from(file.metadata()?))
            }
            Self::Owned(_) => Ok(true),
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(mapping) => &mapping.map,
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
    use crate::files::tests::Scratch;

    #[test]
    fn a_file_that_is_written_to_is_noticed_and_one_that_is_replaced_is_not() {
        let scratch = Scratch::new("map-changed");
        let path = scratch.0.join("a");
        // Of a time before, since the clock of a file system may stand still for a moment.
        let write = |path: &Path, text: &str| {
            std::fs::write(path, text).unwrap();
            let file = File::options().write(true).open(path).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        };
        write(&path, "abc");
        let bytes = Bytes::open(&path).unwrap();
        assert!(bytes.is_unchanged().unwrap());
        let other = scratch.0.join("b");
        write(&other, "abd");
        std::fs::rename(&other, &path).unwrap();
        assert!(bytes.is_unchanged().unwrap());
        assert_eq!(&bytes[..], b"abc");
        let bytes = Bytes::open(&path).unwrap();
        std::fs::write(&path, "abe").unwrap();
        assert!(!bytes.is_unchanged().unwrap());
    }

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
