//! `model.id.certified`: the note that a model's weights were shown to be in range, kept beside its id.
//!
//! A certificate is checked once and then relied on by each later `zkmoe verify` of the same id. The note is written by the
//! commands that check (`verify-model`, `verify-rotation`), for whoever ran them. Nothing in it is proved: who can write beside
//! the id can write a note, as they could replace the id, or the program. So it is never to be taken from somebody
//! else; take the certificate, and check it.
//!
//! It names the digest of the id, not its file, so that an id that is replaced loses its note.

use std::io;
use std::path::{Path, PathBuf};

use zkmoe_commit::codec::{DecodeError, Reader, Writer, read_magic, write_magic};

use crate::failure::Failure;
use crate::input;

/// The first bytes of a verdict file.
pub const VERDICT_MAGIC: [u8; 8] = *b"ZKMOVRD\0";
/// The version of the format.
pub const VERDICT_VERSION: u32 = 1;
/// What is appended to the name of the id.
const SUFFIX: &str = ".certified";

/// How it was shown that weights are in range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// By a certificate of the id itself.
    Certificate {
        /// The digest of the certificate's file.
        digest: [u8; 32],
    },
    /// By a rotation from an id with a verdict of its own.
    Rotation {
        /// The digest of that id.
        from: [u8; 32],
    },
}

/// What was shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Certified {
    /// How.
    pub how: How,
    /// `-log2` of the soundness error in tenths, rounded down; after a rotation that of certificate and rotations together.
    pub tenths: u32,
}

impl Certified {
    /// From the soundness error as `-log2`.
    pub fn new(how: How, soundness_bits: f64) -> Self {
        // No bound is near either end of the range.
        let tenths = (soundness_bits * 10.0).floor().clamp(0.0, 1e6) as u32;
        Self { how, tenths }
    }

    /// `-log2` of the soundness error.
    pub fn soundness_bits(&self) -> f64 {
        f64::from(self.tenths) / 10.0
    }
}

/// The verdict file of an id file.
pub fn verdict_path(id: &Path) -> PathBuf {
    let mut name = id.as_os_str().to_owned();
    name.push(SUFFIX);
    PathBuf::from(name)
}

/// What was shown about the id in the file `id` with this digest; none if there is no note or one about another id.
pub fn read_verdict(id: &Path, digest: &[u8; 32]) -> Result<Option<Certified>, Failure> {
    let path = verdict_path(id);
    if path
        .symlink_metadata()
        .is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    {
        return Ok(None);
    }
    let (about, certified) = decode(&input::read(&path)?).map_err(|error| {
        input::undecodable(
            &path,
            &error,
            "remove it and check the certificate again with `zkmoe verify-model`",
        )
    })?;
    Ok((about == *digest).then_some(certified))
}

/// Notes what was shown, whole or not at all; a note that was there is replaced.
pub fn write_verdict(id: &Path, digest: &[u8; 32], certified: &Certified) -> Result<(), Failure> {
    let mut w = Writer::new();
    write_magic(&mut w, &VERDICT_MAGIC, VERDICT_VERSION);
    w.raw(digest);
    let (kind, named) = match &certified.how {
        How::Certificate { digest } => (0, digest),
        How::Rotation { from } => (1, from),
    };
    w.u8(kind);
    w.raw(named);
    w.u32(certified.tenths);
    input::write(&verdict_path(id), &w.bytes)
}

/// Reads a note: the digest of the id that it is about, and what was shown.
pub fn decode(bytes: &[u8]) -> Result<([u8; 32], Certified), DecodeError> {
    let mut r = Reader::new(bytes);
    read_magic(&mut r, &VERDICT_MAGIC, VERDICT_VERSION, "verdict")?;
    let about = r.digest("model id")?;
    let kind = r.u8("kind")?;
    let named = r.digest("certificate or ancestor")?;
    let how = match kind {
        0 => How::Certificate { digest: named },
        1 => How::Rotation { from: named },
        _ => return Err(DecodeError::Invalid("kind")),
    };
    let tenths = r.u32("soundness")?;
    r.finish()?;
    Ok((about, Certified { how, tenths }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of its own, removed at the end.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let name = format!("zkmoe-verdict-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let _ = std::fs::remove_dir_all(&path);
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn verdicts_are_read_as_they_were_written() {
        let folder = Scratch::new("read");
        let id = folder.0.join("model.id");
        assert_eq!(read_verdict(&id, &[1; 32]), Ok(None));
        for how in [
            How::Certificate { digest: [5; 32] },
            How::Rotation { from: [6; 32] },
        ] {
            let certified = Certified::new(how, 103.19);
            assert!((certified.soundness_bits() - 103.1).abs() < 1e-9);
            write_verdict(&id, &[1; 32], &certified).unwrap();
            assert_eq!(read_verdict(&id, &[1; 32]), Ok(Some(certified)));
            assert_eq!(read_verdict(&id, &[2; 32]), Ok(None), "of another id");
        }
        let names = std::fs::read_dir(&folder.0).unwrap();
        let names: Vec<_> = names.map(|f| f.unwrap().file_name()).collect();
        assert_eq!(names, ["model.id.certified"]);
    }

    #[test]
    fn damaged_verdicts_are_failures() {
        let folder = Scratch::new("damaged");
        let id = folder.0.join("model.id");
        let how = How::Certificate { digest: [5; 32] };
        write_verdict(&id, &[1; 32], &Certified::new(how, 101.0)).unwrap();
        let path = verdict_path(&id);
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 81);
        let unusable = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let failure = read_verdict(&id, &[1; 32]).unwrap_err();
            assert!(failure.to_string().contains("model.id.certified"));
            assert!(failure.advice().unwrap().contains("verify-model"));
        };
        for n in 0..bytes.len() {
            unusable(&bytes[..n]);
        }
        unusable(&[&bytes[..], &[0]].concat());
        for at in [0, 8, 44] {
            let mut changed = bytes.clone();
            changed[at] ^= 0x40;
            unusable(&changed);
        }
    }
}
