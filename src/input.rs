//! Files and texts that commands read and write.
//!
//! Texts are taken byte for byte: a final newline belongs to the prompt, because the prompt that is proved has to be the
//! prompt that the customer holds. Every file is written under a temporary name and renamed, so that an interrupted
//! command leaves nothing that looks finished.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use zkmoe_commit::channel::Reject;
use zkmoe_commit::codec::DecodeError;
use zkmoe_prover::files::{Mode, open_regular, write_atomic, write_file};
use zkmoe_prover::key::{Key, KeyError, Opening, last_name};
use zkmoe_prover::model::Model;
use zkmoe_prover::tokenizer::Tokenizer;
use zkmoe_verifier::id::{MAX_ID, ModelId};
use zkmoe_verifier::length::Length;
use zkmoe_verifier::verify::VerifyError;

use crate::failure::Failure;
use crate::output::note;

/// The most bytes of a file for which there is no closer limit: texts, replies, configurations.
const MAX_FILE: u64 = 1 << 24;

/// Opens a file and asks for its length. Devices and pipes without end are refused.
fn open(path: &Path) -> Result<(File, u64), Failure> {
    let io = |error| Failure::file(path, error);
    // Asked before it is opened, since opening a pipe waits for its other end.
    if !fs::metadata(path).map_err(io)?.is_file() {
        return Err(Failure::file(path, "is not a regular file").advise("copy it to a file first"));
    }
    let file = open_regular(path).map_err(io)?;
    let length = file.metadata().map_err(io)?.len();
    Ok((file, length))
}

/// Reads a text, a reply or something as small.
pub fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    read_at_most(path, MAX_FILE)
}

/// Reads a file of a kind that has at most this many bytes. A longer one is refused without being read.
pub fn read_at_most(path: &Path, most: u64) -> Result<Vec<u8>, Failure> {
    let (file, length) = open(path)?;
    if length > most {
        let reason = format!("has {length} bytes; a file of this kind has at most {most}");
        return Err(Failure::file(path, reason));
    }
    let mut bytes = Vec::new();
    file.take(most)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::file(path, error))?;
    Ok(bytes)
}

/// A proof of which the start was read. The start says how long the whole is, and a file of another length is not read.
pub struct Proof {
    path: PathBuf,
    file: File,
    length: u64,
    start: Vec<u8>,
}

impl Proof {
    /// Opens a file and reads its first bytes, at most `start` of them.
    pub fn open(path: &Path, start: usize) -> Result<Self, Failure> {
        let (mut file, length) = open(path)?;
        let mut bytes = Vec::new();
        (&mut file)
            .take(start as u64)
            .read_to_end(&mut bytes)
            .map_err(|error| Failure::file(path, error))?;
        Ok(Self {
            path: path.to_owned(),
            file,
            length,
            start: bytes,
        })
    }

    /// The first bytes.
    pub fn start(&self) -> &[u8] {
        &self.start
    }

    /// How many bytes the file has.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Checks the length of the file against what its start says, and reads the rest.
    pub fn read(
        self,
        length: impl FnOnce(&[u8]) -> Result<Length, VerifyError>,
    ) -> Result<Result<Vec<u8>, VerifyError>, Failure> {
        let checked = length(&self.start).and_then(|length| {
            let checked = length.check(self.length);
            Ok(checked.map_err(Reject::from)?)
        });
        if let Err(error) = checked {
            return Ok(Err(error));
        }
        let mut bytes = self.start;
        let left = self.length.saturating_sub(bytes.len() as u64);
        bytes.reserve_exact(left as usize);
        self.file
            .take(left)
            .read_to_end(&mut bytes)
            .map_err(|error| Failure::file(&self.path, error))?;
        Ok(Ok(bytes))
    }
}

/// Reads a text file.
pub fn read_text(path: &Path) -> Result<String, Failure> {
    String::from_utf8(read(path)?).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::file(path, format_args!("is not UTF-8 text (byte {at})"))
            .advise("convert it to UTF-8")
    })
}

/// Writes a file, whole or not at all.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    write_atomic(path, |w| w.write_all(bytes))
        .map_err(|error: io::Error| Failure::file(path, error))
}

/// Writes a file whose name must be free.
pub fn write_new(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    write_file(path, Mode::PublicNew, |w| w.write_all(bytes))
        .map_err(|error: io::Error| Failure::file(path, error))
}

/// Writes a file that only its owner may read.
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    write_file(path, Mode::Private, |w| w.write_all(bytes))
        .map_err(|error: io::Error| Failure::file(path, error))
}

/// Writes a file that only its owner may read and whose name must be free.
pub fn write_private_new(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    write_file(path, Mode::PrivateNew, |w| w.write_all(bytes))
        .map_err(|error: io::Error| Failure::file(path, error))
}

/// Refuses a path in a folder that does not exist, before hours of work are done for it.
pub fn check_folder_of(path: &Path) -> Result<(), Failure> {
    if path.file_name().is_none() || path.is_dir() {
        return Err(Failure::file(path, "is not the name of a file").advise("add a file name"));
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if folder.is_dir() {
        Ok(())
    } else {
        Err(Failure::file(path, "its folder does not exist")
            .advise(format!("create {} first", folder.display())))
    }
}

/// Refuses a name for a new key that is taken, before hours of work are done for it.
///
/// The file beside a key that is gone takes the name as well: the new key would be refused as one that does not fit it.
pub fn check_new_key(path: &Path) -> Result<(), Failure> {
    check_folder_of(path)?;
    // A link that leads nowhere takes a name as well.
    let taken = |path: &Path| path.symlink_metadata().is_ok();
    if taken(path) {
        let reason = "exists; a key is never overwritten, because without it nothing can be proved under its model id";
        return Err(Failure::file(path, reason).advise("choose another name"));
    }
    let last = last_name(path);
    if taken(&last) {
        return Err(
            Failure::file(&last, "exists; it belongs to a key that was here").advise(
                "if that key is gone for good, remove the file; otherwise choose another name",
            ),
        );
    }
    Ok(())
}

/// A tokenizer from the bytes inside `path`.
pub fn tokenizer(path: &Path, json: &[u8]) -> Result<Tokenizer, Failure> {
    Tokenizer::from_json(json).map_err(|error| Failure::file(path, error))
}

/// Opens a quantized model and its tokenizer.
pub fn open_model(path: &Path) -> Result<(Model, Tokenizer), Failure> {
    let model = Model::open(path).map_err(|error| {
        Failure::new(error)
            .advise("`zkmoe import CHECKPOINT_DIR --out model.zkm` makes a model file")
    })?;
    let tokenizer = tokenizer(path, model.tokenizer_json())?;
    Ok((model, tokenizer))
}

/// Why bytes are not what they should be, with where to get better ones.
pub fn undecodable(path: &Path, error: &DecodeError, advice: &str) -> Failure {
    Failure::file(path, error).advise(advice)
}

/// Opens a model id.
pub fn open_id(path: &Path) -> Result<ModelId, Failure> {
    let advice = "`zkmoe commit` writes model ids; take the file that the provider published";
    let bytes = read_at_most(path, MAX_ID as u64)?;
    ModelId::decode(&bytes).map_err(|error| undecodable(path, &error, advice))
}

/// Refuses a folder that cannot be made or written to. Nothing is made: a command that ends early leaves no folder.
pub fn check_writable(folder: &Path) -> Result<(), Failure> {
    let there = folder
        .ancestors()
        .map(|path| {
            if path.as_os_str().is_empty() {
                Path::new(".")
            } else {
                path
            }
        })
        .find(|path| path.symlink_metadata().is_ok())
        .unwrap_or(folder);
    if !there.is_dir() {
        return Err(Failure::file(there, "is not a folder").advise("choose another folder"));
    }
    // A file that never gets its name shows whether there could be one.
    let cancelled = || io::Error::other("cancelled");
    let mut writable = false;
    let probe = write_file(&there.join("probe"), Mode::Private, |_| {
        writable = true;
        Err(cancelled())
    });
    match probe {
        Err(error) if !writable => Err(Failure::file(there, error).advise("choose another folder")),
        _ => Ok(()),
    }
}

/// What to do about a key that cannot be used.
pub fn key_advice(error: &KeyError) -> String {
    match error {
        KeyError::InUse(_) => "wait until the other command has ended".to_owned(),
        KeyError::Restored { last, .. } => format!(
            "take the newest key; proofs of two copies together may show weights. If the newest is lost, commit again, or \
             remove {last} at the price of what the lost proofs have shown"
        ),
        KeyError::OtherLast(_) => {
            "the file beside a key has the key's name with `.last` behind it; move it to its own key".to_owned()
        }
        KeyError::Spent {
            purpose: Opening::Rotation,
            ..
        } => "`zkmoe commit` makes a new id and key, and a new certificate shows its weights".to_owned(),
        KeyError::Spent { .. } => {
            "`zkmoe rotate` makes a new key and a new id for the same weights; old proofs stay valid, and the new key can \
             certify its id"
                .to_owned()
        }
        _ => "`zkmoe commit` writes the key beside the model id".to_owned(),
    }
}

/// Opens a key and keeps others from using it.
pub fn open_key(path: &Path) -> Result<Key, Failure> {
    let key = Key::open(path).map_err(|error| {
        let advice = key_advice(&error);
        Failure::new(error).advise(advice)
    })?;
    if key.is_unwatched() {
        note(format_args!(
            "warning: {}: the file beside it with its last proof ({}.last) is missing, so a restored copy of the key \
             would not be noticed; the next proof writes it again",
            path.display(),
            path.display()
        ));
    }
    Ok(key)
}

/// A text from the command line or from a file.
fn text(inline: Option<&String>, file: Option<&PathBuf>) -> Result<Option<String>, Failure> {
    match (inline, file) {
        (Some(text), _) => Ok(Some(text.clone())),
        (None, Some(path)) => read_text(path).map(Some),
        (None, None) => Ok(None),
    }
}

/// Where a prompt comes from.
#[derive(Debug, Clone, Default, Args)]
#[group(multiple = false)]
pub struct Prompt {
    /// The prompt, byte for byte.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub prompt: Option<String>,
    /// A UTF-8 file that holds the prompt, byte for byte: a final newline belongs to it.
    #[arg(long, value_name = "FILE")]
    pub prompt_file: Option<PathBuf>,
}

impl Prompt {
    /// The prompt, if one was named.
    pub fn text(&self) -> Result<Option<String>, Failure> {
        text(self.prompt.as_ref(), self.prompt_file.as_ref())
    }
}

/// Where a response comes from.
#[derive(Debug, Clone, Default, Args)]
#[group(required = true, multiple = false)]
pub struct Response {
    /// The response, byte for byte.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub response: Option<String>,
    /// A UTF-8 file that holds the response, byte for byte.
    #[arg(long, value_name = "FILE")]
    pub response_file: Option<PathBuf>,
}

impl Response {
    /// The response.
    pub fn text(&self) -> Result<String, Failure> {
        text(self.response.as_ref(), self.response_file.as_ref())?.ok_or_else(|| {
            Failure::new("no response was given").advise("add --response or --response-file")
        })
    }
}
