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
use zkmoe_prover::files::{self, Mode, open_regular, write_atomic, write_file};
use zkmoe_prover::key::{Key, KeyError, KeyState, Opening, last_name};
use zkmoe_prover::model::{Model, ModelError};
use zkmoe_prover::tokenizer::Tokenizer;
use zkmoe_verifier::id::{MAX_ID, ModelId};
use zkmoe_verifier::length::Length;
use zkmoe_verifier::verify::VerifyError;

use crate::failure::{Failure, io_advice};
use crate::output::note;
use crate::visible::shell_word;

/// The most bytes of a file for which there is no closer limit: texts, replies, configurations.
const MAX_FILE: u64 = 1 << 24;

/// Opens a file and asks for its length. Devices and pipes without end are refused.
fn open(path: &Path) -> Result<(File, u64), Failure> {
    let io = |error| Failure::io(path, &error);
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
        .map_err(|error| Failure::io(path, &error))?;
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
            .map_err(|error| Failure::io(path, &error))?;
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
            .map_err(|error| Failure::io(&self.path, &error))?;
        Ok(Ok(bytes))
    }
}

/// Reads a text file.
pub fn read_text(path: &Path) -> Result<String, Failure> {
    utf8(read(path)?).map_err(|reason| {
        Failure::file(path, format_args!("is {reason}")).advise("convert it to UTF-8")
    })
}

/// Bytes as text; the error says where they are none.
pub fn utf8(bytes: Vec<u8>) -> Result<String, String> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        format!("not UTF-8 text (byte {at})")
    })
}

/// Writes a file, whole or not at all.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    write_atomic(path, |w| w.write_all(bytes)).map_err(|error: io::Error| Failure::io(path, &error))
}

/// Writes a file whose name must be free.
pub fn write_new(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    write_file(path, Mode::PublicNew, |w| w.write_all(bytes))
        .map_err(|error: io::Error| Failure::io(path, &error))
}

/// Writes a file that only its owner may read.
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    write_file(path, Mode::Private, |w| w.write_all(bytes))
        .map_err(|error: io::Error| Failure::io(path, &error))
}

/// Writes a file that only its owner may read and whose name must be free.
pub fn write_private_new(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    write_file(path, Mode::PrivateNew, |w| w.write_all(bytes))
        .map_err(|error: io::Error| Failure::io(path, &error))
}

/// Refuses a path that no file can be written to, before hours of work are done for it.
pub fn check_folder_of(path: &Path) -> Result<(), Failure> {
    if path.file_name().is_none() || path.is_dir() {
        return Err(Failure::file(path, "is not the name of a file").advise("add a file name"));
    }
    // Too long, perhaps.
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::InvalidFilename => {
            return Err(Failure::file(path, error).advise("choose another name"));
        }
        _ => {}
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    match folder.metadata() {
        Ok(about) if about.is_dir() => probe(folder),
        Ok(_) => Err(
            Failure::file(path, format_args!("{} is not a folder", folder.display()))
                .advise("choose another folder"),
        ),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(Failure::file(path, "its folder does not exist")
                .advise(format!("create {} first", folder.display())))
        }
        Err(error) => Err(Failure::io(path, &error)),
    }
}

/// Refuses a folder in which no file can be made.
fn probe(folder: &Path) -> Result<(), Failure> {
    files::check_writable(folder).map_err(|error| {
        Failure::file(folder, format_args!("no file can be made in it: {error}"))
            .advise("choose another folder")
    })
}

/// Refuses to replace a file that is not of the kind that will be written, so that a slip of the hand costs no key and no
/// checkpoint. An empty file is of every kind; `kind` is what to look for, as a noun, and `is` finds it in the file.
pub fn check_replaceable(
    path: &Path,
    kind: &str,
    is: impl FnOnce(&[u8]) -> bool,
) -> Result<(), Failure> {
    let Ok(about) = path.metadata() else {
        return Ok(());
    };
    if !about.is_file() {
        return Err(Failure::file(path, "is not a regular file").advise("choose another name"));
    }
    // Models are large, and their first bytes tell.
    let mut start = Vec::new();
    open_regular(path)
        .and_then(|file| file.take(1 << 24).read_to_end(&mut start))
        .map_err(|error| Failure::io(path, &error))?;
    if start.is_empty() || is(&start) {
        return Ok(());
    }
    Err(Failure::file(path, format_args!("exists and is no {kind}"))
        .advise("choose another name, or remove the file if nobody needs it"))
}

/// Refuses to write to a file that is read as well.
pub fn check_apart(out: &Path, inputs: &[Option<&Path>]) -> Result<(), Failure> {
    let real = |path: &Path| path.canonicalize().ok();
    let Some(out_real) = real(out) else {
        return Ok(());
    };
    let mut inputs = inputs.iter().flatten();
    match inputs.find(|input| real(input).as_ref() == Some(&out_real)) {
        None => Ok(()),
        Some(input) => Err(Failure::file(
            out,
            format_args!("would be written over {}, which is read", input.display()),
        )
        .advise("choose another name")),
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
        return Err(Failure::file(path, reason).advise(format!(
            "choose another name; `zkmoe inspect {}` tells what it belongs to and what it has opened",
            shell_word(path)
        )));
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
        let advice = match &error {
            ModelError::Io { error, .. } if error.kind() != io::ErrorKind::NotFound => {
                io_advice(error)
            }
            _ => None,
        };
        Failure::new(error).advise(
            advice.unwrap_or("`zkmoe import CHECKPOINT_DIR --out model.zkm` makes a model file"),
        )
    })?;
    let tokenizer = tokenizer(path, model.tokenizer_json())?;
    Ok((model, tokenizer))
}

/// Refuses what was made of a model whose file was written to meanwhile.
pub fn check_unchanged(path: &Path, model: &Model) -> Result<(), Failure> {
    match model.is_unchanged() {
        Ok(true) => Ok(()),
        Ok(false) => Err(
            Failure::file(path, "was written to while it was in use").advise(
                "replace a model by renaming another to its name, as `zkmoe import` does, and run the command again",
            ),
        ),
        Err(error) => Err(Failure::io(path, &error)),
    }
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
    probe(there)
}

/// What to do about a key that cannot be used.
pub fn key_advice(error: &KeyError) -> String {
    match error {
        KeyError::InUse(key) => format!(
            "one command uses a key at a time, so that no opening is counted twice: wait until the other one has ended; \
             `lsof {}` names it",
             shell_word(Path::new(key))
        ),
        KeyError::Exists(_) => "choose another name".to_owned(),
        KeyError::Io { error, .. } if error.kind() != io::ErrorKind::NotFound => io_advice(error)
            .unwrap_or("see that the key and the file beside it can be read and written")
            .to_owned(),
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

/// Adds to a failure whether the key has counted the opening that it ended, given how many it had counted before.
/// `then` is what to do if it has.
pub fn counted(failure: Failure, key: &Path, before: u64, then: &str) -> Failure {
    match KeyState::read(key) {
        Ok(state) if state.ledger.openings() > before => {
            failure.also(format_args!("the key has counted it all the same; {then}"))
        }
        Ok(_) => failure.also("the key has counted nothing"),
        Err(_) => failure.also(format_args!(
            "`zkmoe inspect {}` tells whether the key has counted it",
            shell_word(key)
        )),
    }
}

/// Files and folders that are removed again unless everything succeeds.
#[derive(Debug, Default)]
pub struct Written(Vec<PathBuf>);

impl Written {
    /// A file that was written.
    pub fn push(&mut self, path: &Path) {
        self.0.push(path.to_owned());
    }

    /// What does not exist yet of a folder and those that it is in.
    pub fn push_folders(&mut self, folder: &Path) {
        let mut missing: Vec<&Path> = folder
            .ancestors()
            .take_while(|path| !path.as_os_str().is_empty() && path.symlink_metadata().is_err())
            .collect();
        missing.reverse();
        missing.into_iter().for_each(|path| self.push(path));
    }

    /// Everything succeeded.
    pub fn keep(&mut self) {
        self.0.clear();
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        // The last first: it relies on those before it, as an id on its key and a proof on its slips.
        for path in self.0.iter().rev() {
            // A folder goes only if nothing else is in it.
            let _ = if path.is_dir() {
                fs::remove_dir(path)
            } else {
                fs::remove_file(path)
            };
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::Scratch;

    #[test]
    fn what_was_written_is_removed_unless_it_is_kept() {
        let scratch = Scratch::new("written");
        let there = scratch.0.join("there");
        fs::create_dir(&there).unwrap();
        let deep = there.join("a/b/c");
        let make = |keep: bool, other: Option<&str>| {
            let mut written = Written::default();
            written.push_folders(&deep);
            fs::create_dir_all(&deep).unwrap();
            fs::write(deep.join("x"), "").unwrap();
            written.push(&deep.join("x"));
            if let Some(other) = other {
                fs::write(there.join(other), "").unwrap();
            }
            if keep {
                written.keep();
            }
        };
        make(false, None);
        assert!(there.exists() && !there.join("a").exists());
        make(false, Some("a/of somebody else"));
        assert!(there.join("a").exists() && !there.join("a/b").exists());
        make(true, None);
        assert!(deep.join("x").exists());
    }

    #[test]
    fn only_files_of_the_kind_are_replaced() {
        let scratch = Scratch::new("replaceable");
        let path = scratch.0.join("model.key");
        let check = || check_replaceable(&path, "reply", |bytes| bytes.starts_with(b"{"));
        check().unwrap();
        for (bytes, fine) in [("", true), ("{}", true), ("ZKMOKEY", false)] {
            fs::write(&path, bytes).unwrap();
            assert_eq!(check().is_ok(), fine, "{bytes}");
        }
        let failure = check().unwrap_err();
        assert!(failure.to_string().contains("exists and is no reply"));
        assert!(check_apart(&path, &[None, Some(&scratch.0)]).is_ok());
        let spelled = scratch.0.join("./model.key");
        let failure = check_apart(&path, &[None, Some(&spelled)]).unwrap_err();
        assert!(failure.to_string().contains("which is read"));
    }

    #[test]
    fn a_refusal_of_the_system_comes_with_advice() {
        use io::ErrorKind as Kind;
        let advice = |kind: Kind| Failure::io(Path::new("a"), &kind.into());
        for (kind, part) in [
            (Kind::StorageFull, "free some space"),
            (Kind::QuotaExceeded, "free some space"),
            (Kind::FileTooLarge, "ulimit -f"),
            (Kind::ReadOnlyFilesystem, "another place"),
            (Kind::PermissionDenied, "another place"),
        ] {
            let failure = advice(kind).also("nothing was written");
            let found = failure.advice().unwrap();
            assert!(found.contains(part), "{found}");
            assert!(found.ends_with("; nothing was written"), "{found}");
        }
        let failure = advice(Kind::Other);
        assert_eq!(failure.advice(), None);
        assert_eq!(failure.also("b").advice(), Some("b"));
    }
}
