//! `model.id.certified`: the note that a model's weights were shown to be in range, kept beside its id.
//!
//! A certificate is checked once and then relied on by each later `zkmoe verify` of the same id. The note is written
//! by the commands that check (`verify-model`, `verify-rotation`), for whoever ran them, and is found by its name. An
//! id comes from the provider, so what lies beside it may have come along. A note is therefore believed only if it
//! carries a MAC under the secret of the user who reads it ([`crate::state`]). To anybody else it proves nothing;
//! take the certificate, and check it.
//!
//! It names the digest of the id, not its file, so that an id that is replaced loses its note. The MAC covers the
//! names of the protocols that were checked: if a later version of this program checks something else, its user
//! checks again.

use std::io;
use std::path::{Path, PathBuf};

use zkmoe_commit::codec::{DecodeError, Reader, Writer, read_magic, write_magic};
use zkmoe_verifier::{certificate, rotation};

use crate::failure::Failure;
use crate::input;
use crate::state::{Secret, State};

/// The first bytes of a verdict file.
pub const VERDICT_MAGIC: [u8; 8] = *b"ZKMOVRD\0";
/// The version of the format.
pub const VERDICT_VERSION: u32 = 2;
/// What is appended to the name of the id.
const SUFFIX: &str = ".certified";
/// The least `-log2` of the soundness error that is relied on, in tenths.
///
/// A certificate and a rotation have at least 100 bits each, so one of both together at least 99. Below that the
/// certificate of the new id has to be checked: otherwise a long enough chain of rotations would end at nothing.
pub const FLOOR_TENTHS: u32 = 990;
/// The protocols whose proofs a note stands for.
const PROTOCOLS: [&str; 2] = [certificate::PROTOCOL, rotation::PROTOCOL];

/// [`FLOOR_TENTHS`] in bits.
pub fn floor_bits() -> f64 {
    f64::from(FLOOR_TENTHS) / 10.0
}

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

    /// Whether it may be relied on, see [`FLOOR_TENTHS`].
    pub fn is_enough(&self) -> bool {
        self.tenths >= FLOOR_TENTHS
    }
}

/// `-log2` of the sum of two errors that are given as `-log2`: either proof may be the one that is false.
pub fn together(a: f64, b: f64) -> f64 {
    let (worse, better) = (a.min(b), a.max(b));
    worse - (1.0 + (worse - better).exp2()).log2()
}

/// A note as it stands in its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The digest of the id that it is about.
    pub about: [u8; 32],
    /// What was shown.
    pub certified: Certified,
    mac: blake3::Hash,
}

impl Note {
    /// A note that is marked with this secret.
    pub fn new(secret: &Secret, about: &[u8; 32], certified: &Certified) -> Self {
        Self {
            about: *about,
            certified: *certified,
            mac: mac(secret, &body(about, certified), PROTOCOLS),
        }
    }

    /// Whether it was made with this secret, by a program that checks the same protocols.
    pub fn is_by(&self, secret: &Secret) -> bool {
        self.mac == mac(secret, &body(&self.about, &self.certified), PROTOCOLS)
    }

    /// The bytes of its file.
    pub fn encode(&self) -> Vec<u8> {
        [&body(&self.about, &self.certified)[..], self.mac.as_bytes()].concat()
    }

    /// Reads a note, whoever made it.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
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
        let mac = blake3::Hash::from_bytes(r.digest("MAC")?);
        r.finish()?;
        Ok(Self {
            about,
            certified: Certified { how, tenths },
            mac,
        })
    }
}

/// All of a note but its MAC.
fn body(about: &[u8; 32], certified: &Certified) -> Vec<u8> {
    let mut w = Writer::new();
    write_magic(&mut w, &VERDICT_MAGIC, VERDICT_VERSION);
    w.raw(about);
    let (kind, named) = match &certified.how {
        How::Certificate { digest } => (0, digest),
        How::Rotation { from } => (1, from),
    };
    w.u8(kind);
    w.raw(named);
    w.u32(certified.tenths);
    w.bytes
}

/// The MAC of a note. Its body has a fixed length and each name has its own in front, so no two inputs are alike.
fn mac(secret: &Secret, body: &[u8], protocols: [&str; 2]) -> blake3::Hash {
    let mut w = Writer::new();
    w.raw(body);
    for name in protocols {
        w.u32(name.len() as u32);
        w.raw(name.as_bytes());
    }
    secret.mac(&w.bytes)
}

/// The verdict file of an id file.
pub fn verdict_path(id: &Path) -> PathBuf {
    let mut name = id.as_os_str().to_owned();
    name.push(SUFFIX);
    PathBuf::from(name)
}

/// What was shown, to the user of this state, about the id in the file `id` with this digest; or why no note says so.
pub fn read_verdict(
    state: &State,
    id: &Path,
    digest: &[u8; 32],
) -> Result<Result<Certified, String>, Failure> {
    let path = verdict_path(id);
    let file = path.display();
    if path
        .symlink_metadata()
        .is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    {
        return Ok(Err(format!("there is no {file}")));
    }
    let note = Note::decode(&input::read(&path)?).map_err(|error| {
        input::undecodable(
            &path,
            &error,
            "remove it and check the certificate again with `zkmoe verify-model`, or give that to `zkmoe verify` with \
             --cert",
        )
    })?;
    let refused = |reason: &str| Ok(Err(format!("{file} {reason}")));
    if note.about != *digest {
        return refused("is about another model id");
    }
    let secret_path = state.secret_path();
    let secret_file = secret_path.display();
    let Some(secret) = state.secret()? else {
        return refused(&format!("was not made here: there is no {secret_file}"));
    };
    if !note.is_by(&secret) {
        return refused(&format!(
            "was not made with your secret in {secret_file}, but by somebody else, with another state folder or by \
             another version of this program"
        ));
    }
    if !note.certified.is_enough() {
        return refused(&format!(
            "is for {:.1} bits, and {:.1} are needed",
            note.certified.soundness_bits(),
            floor_bits()
        ));
    }
    Ok(Ok(note.certified))
}

/// Notes what was shown, whole or not at all; a note that was there is replaced.
pub fn write_verdict(
    secret: &Secret,
    id: &Path,
    digest: &[u8; 32],
    certified: &Certified,
) -> Result<(), Failure> {
    let note = Note::new(secret, digest, certified);
    input::write(&verdict_path(id), &note.encode())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::Scratch;

    const ID: [u8; 32] = [1; 32];
    const CERTIFICATE: How = How::Certificate { digest: [5; 32] };

    /// A folder with a state that has a secret, and the name of an id.
    fn prepared(name: &str) -> (Scratch, State, Secret, PathBuf) {
        let scratch = Scratch::new(name);
        let state = scratch.state("mine");
        let secret = state.secret_or_new().unwrap();
        let id = scratch.0.join("model.id");
        (scratch, state, secret, id)
    }

    #[track_caller]
    fn refused(state: &State, id: &Path, digest: &[u8; 32], part: &str) {
        let reason = read_verdict(state, id, digest).unwrap().unwrap_err();
        assert!(reason.contains("model.id.certified"), "{reason}");
        assert!(reason.contains(part), "{part}: {reason}");
    }

    #[test]
    fn verdicts_are_read_as_they_were_written() {
        let (scratch, state, secret, id) = prepared("verdict-read");
        refused(&state, &id, &ID, "there is no");
        for how in [CERTIFICATE, How::Rotation { from: [6; 32] }] {
            let certified = Certified::new(how, 103.19);
            assert!((certified.soundness_bits() - 103.1).abs() < 1e-9);
            write_verdict(&secret, &id, &ID, &certified).unwrap();
            assert_eq!(read_verdict(&state, &id, &ID), Ok(Ok(certified)));
            refused(&state, &id, &[2; 32], "about another model id");
        }
        let names = std::fs::read_dir(&scratch.0).unwrap();
        let mut names: Vec<_> = names.map(|f| f.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["mine", "model.id.certified"]);
    }

    #[test]
    fn notes_of_others_are_refused() {
        let (scratch, state, secret, id) = prepared("verdict-others");
        let provider = scratch.state("provider");
        let certified = Certified::new(CERTIFICATE, 120.0);
        let theirs = provider.secret_or_new().unwrap();
        write_verdict(&theirs, &id, &ID, &certified).unwrap();
        assert_eq!(read_verdict(&provider, &id, &ID), Ok(Ok(certified)));
        refused(&state, &id, &ID, "was not made with your secret");
        let fresh = scratch.state("fresh");
        refused(&fresh, &id, &ID, "was not made here");
        assert!(fresh.secret().unwrap().is_none(), "reading draws no secret");

        // A MAC for another id, and one for other protocols, are none for this note.
        let path = verdict_path(&id);
        let mut moved = Note::new(&secret, &[2; 32], &certified);
        moved.about = ID;
        std::fs::write(&path, moved.encode()).unwrap();
        refused(&state, &id, &ID, "was not made with your secret");
        let body = body(&ID, &certified);
        for n in 0..2 {
            let mut protocols = PROTOCOLS;
            protocols[n] = "zkmoe of another version";
            let old = [&body[..], mac(&secret, &body, protocols).as_bytes()].concat();
            std::fs::write(&path, old).unwrap();
            refused(&state, &id, &ID, "another version");
        }
        let current = [&body[..], mac(&secret, &body, PROTOCOLS).as_bytes()].concat();
        std::fs::write(&path, current).unwrap();
        assert_eq!(read_verdict(&state, &id, &ID), Ok(Ok(certified)));
    }

    #[test]
    fn a_lost_or_damaged_secret_voids_notes() {
        let (_scratch, state, secret, id) = prepared("verdict-secret");
        write_verdict(&secret, &id, &ID, &Certified::new(CERTIFICATE, 101.0)).unwrap();
        let path = state.secret_path();
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..43]).unwrap();
        let failure = read_verdict(&state, &id, &ID).unwrap_err();
        assert!(failure.to_string().contains("notes.secret"), "{failure}");
        std::fs::remove_file(&path).unwrap();
        refused(&state, &id, &ID, "was not made here");
        state.secret_or_new().unwrap();
        refused(&state, &id, &ID, "was not made with your secret");
        std::fs::write(&path, &bytes).unwrap();
        assert!(read_verdict(&state, &id, &ID).unwrap().is_ok());
    }

    #[test]
    fn errors_add_up_and_have_a_floor() {
        assert!((together(100.0, 100.0) - 99.0).abs() < 1e-12);
        assert!((together(100.0, 110.0) - together(110.0, 100.0)).abs() < 1e-12);
        let sum = together(101.0, 103.0);
        assert!((sum - (101.0 - 1.25f64.log2())).abs() < 1e-12, "{sum}");
        assert!((together(100.0, 3000.0) - 100.0).abs() < 1e-12);

        let (_scratch, state, secret, id) = prepared("verdict-floor");
        let least = Certified::new(CERTIFICATE, together(100.0, 100.0));
        assert!(least.is_enough(), "one certificate and one rotation");
        write_verdict(&secret, &id, &ID, &least).unwrap();
        assert_eq!(read_verdict(&state, &id, &ID), Ok(Ok(least)));
        let less = Certified::new(CERTIFICATE, 98.99);
        assert!(!less.is_enough());
        write_verdict(&secret, &id, &ID, &less).unwrap();
        refused(&state, &id, &ID, "is for 98.9 bits, and 99.0 are needed");
    }

    #[test]
    fn damaged_verdicts_are_refused() {
        let (_scratch, state, secret, id) = prepared("verdict-damaged");
        write_verdict(&secret, &id, &ID, &Certified::new(CERTIFICATE, 101.0)).unwrap();
        let path = verdict_path(&id);
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 113);
        let read = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            read_verdict(&state, &id, &ID)
        };
        let unusable = |bytes: &[u8]| {
            let failure = read(bytes).unwrap_err();
            assert!(failure.to_string().contains("model.id.certified"));
            let advice = failure.advice().unwrap();
            assert!(advice.contains("verify-model") && advice.contains("--cert"));
        };
        for n in 0..bytes.len() {
            unusable(&bytes[..n]);
        }
        unusable(&[&bytes[..], &[0]].concat());
        let mut old = bytes[..81].to_vec();
        old[8] = 1;
        unusable(&old);
        for at in 0..bytes.len() {
            for bit in [0x01, 0x40] {
                let mut changed = bytes.clone();
                changed[at] ^= bit;
                // A flipped bit makes the file unreadable, or a note that nobody made.
                match read(&changed) {
                    Err(failure) => assert!(failure.to_string().contains("model.id.certified")),
                    Ok(read) => assert!(read.is_err(), "byte {at}"),
                }
            }
        }
        assert!(read(&bytes).unwrap().is_ok());
    }
}
