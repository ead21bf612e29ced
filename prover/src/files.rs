//! Files that appear whole or not at all.
//!
//! A reader must never find half a file under its final name, and a run that ends early, even by a kill, must leave
//! nothing behind. On Linux a file is written without a name, synced, and given its name at the end: a process that
//! dies takes its unnamed file along. Where there are no unnamed files, a temporary file in the same folder (renames do
//! not cross file systems) takes its place, which is removed on every error.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Who may read a new file, and what becomes of an old one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Readable as the user's settings say; replaces a file of the same name.
    Public,
    /// As `Public`, but fails with [`io::ErrorKind::AlreadyExists`] if the name is taken.
    PublicNew,
    /// Readable by its owner alone, from the first byte on; replaces a file of the same name.
    Private,
    /// As `Private`, but fails with [`io::ErrorKind::AlreadyExists`] if the name is taken.
    PrivateNew,
}

impl Mode {
    fn is_new(self) -> bool {
        matches!(self, Self::PublicNew | Self::PrivateNew)
    }

    fn bits(self) -> u32 {
        match self {
            Self::Public | Self::PublicNew => 0o666,
            Self::Private | Self::PrivateNew => 0o600,
        }
    }
}

/// Opens a regular file for reading. Anything else is refused before it is opened: opening a pipe waits for its other end.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let regular = |about: fs::Metadata| {
        if about.is_file() {
            Ok(())
        } else {
            let reason = "is not a regular file";
            Err(io::Error::new(io::ErrorKind::InvalidInput, reason))
        }
    };
    regular(fs::metadata(path)?)?;
    let file = File::open(path)?;
    // It may have been exchanged in between.
    regular(file.metadata()?)?;
    Ok(file)
}

/// A file without its final name.
struct Unnamed {
    file: File,
    /// The temporary name, if the file system has no unnamed files.
    name: Option<PathBuf>,
}

impl Drop for Unnamed {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // Best effort: the error that brought us here is the one to report.
            let _ = fs::remove_file(name);
        }
    }
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// A name beside `path` that nobody uses.
fn temporary_name(path: &Path) -> io::Result<PathBuf> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"))?;
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(name);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    temporary.push(format!(".{}-{number}.tmp", std::process::id()));
    Ok(path.with_file_name(temporary))
}

#[cfg(target_os = "linux")]
fn open_unnamed(path: &Path, bits: u32) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags, open};
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    Ok(File::from(open(
        folder(path),
        flags,
        Mode::from_raw_mode(bits),
    )?))
}

#[cfg(not(target_os = "linux"))]
fn open_unnamed(_: &Path, _: u32) -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

fn create(path: &Path, mode: Mode) -> io::Result<Unnamed> {
    let bits = mode.bits();
    if let Ok(file) = open_unnamed(path, bits) {
        return Ok(Unnamed { file, name: None });
    }
    loop {
        let name = temporary_name(path)?;
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, bits);
        match options.open(&name) {
            Ok(file) => {
                return Ok(Unnamed {
                    file,
                    name: Some(name),
                });
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// Gives an unnamed file a name that is free.
#[cfg(target_os = "linux")]
fn link(file: &File, path: &Path) -> io::Result<()> {
    use rustix::fs::{AtFlags, CWD, linkat};
    use std::os::fd::AsRawFd;
    let source = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(linkat(CWD, source, CWD, path, AtFlags::SYMLINK_FOLLOW)?)
}

#[cfg(not(target_os = "linux"))]
fn link(_: &File, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

impl Unnamed {
    fn rename(mut self, path: &Path, mode: Mode) -> io::Result<()> {
        self.file.sync_all()?;
        match self.name.take() {
            // A name that is free is taken in one step. Links do not replace, so an old file needs a second name for
            // the moment between two calls.
            None => match link(&self.file, path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && !mode.is_new() => {
                    let name = temporary_name(path)?;
                    link(&self.file, &name)?;
                    fs::rename(&name, path).inspect_err(|_| drop(fs::remove_file(&name)))?;
                }
                linked => linked?,
            },
            Some(name) => {
                let moved = if mode.is_new() {
                    fs::hard_link(&name, path)
                } else {
                    fs::rename(&name, path)
                };
                self.name = (moved.is_err() || mode.is_new()).then_some(name);
                moved?;
            }
        }
        // The new name lives in the folder, so the folder has to reach the disk too. Not every system can sync one.
        if let Ok(folder) = File::open(folder(path)) {
            let _ = folder.sync_all();
        }
        Ok(())
    }
}

/// Calls `write` on a file without a name and calls it `path` when all of it is on the disk. After an error, from
/// `write` or from the system, `path` is as it was before.
pub fn write_file<E: From<io::Error>>(
    path: &Path,
    mode: Mode,
    write: impl FnOnce(&mut dyn Write) -> Result<(), E>,
) -> Result<(), E> {
    let unnamed = create(path, mode)?;
    let mut buffered = BufWriter::with_capacity(1 << 20, &unnamed.file);
    write(&mut buffered)?;
    buffered.flush()?;
    drop(buffered);
    Ok(unnamed.rename(path, mode)?)
}

/// [`write_file`] of a public file.
pub fn write_atomic<E: From<io::Error>>(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<(), E>,
) -> Result<(), E> {
    write_file(path, Mode::Public, write)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A folder for one test that is removed at the end.
    pub(crate) struct Scratch(pub(crate) PathBuf);

    impl Scratch {
        pub(crate) fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("zkmoe-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn replaces_a_file_as_a_whole() {
        let scratch = Scratch::new("files-replace");
        let path = scratch.0.join("a");
        for text in ["first", "second, longer"] {
            write_atomic::<io::Error>(&path, |w| w.write_all(text.as_bytes())).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 1);
    }

    #[test]
    fn an_error_leaves_everything_as_it_was() {
        let scratch = Scratch::new("files-error");
        let path = scratch.0.join("a");
        fs::write(&path, "old").unwrap();
        let result = write_atomic::<io::Error>(&path, |w| {
            w.write_all(b"half")?;
            Err(io::Error::other("disk on fire"))
        });
        assert_eq!(result.unwrap_err().to_string(), "disk on fire");
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn pipes_are_refused_without_waiting_for_their_other_end() {
        let scratch = Scratch::new("files-pipe");
        let path = scratch.0.join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        for path in [&path, &scratch.0] {
            let error = open_regular(path).unwrap_err();
            assert_eq!(error.to_string(), "is not a regular file");
        }
        fs::write(scratch.0.join("a"), "text").unwrap();
        assert!(open_regular(&scratch.0.join("a")).is_ok());
    }

    #[test]
    fn a_new_file_never_replaces_and_is_private() {
        let scratch = Scratch::new("files-new");
        let path = scratch.0.join("key");
        write_file::<io::Error>(&path, Mode::PrivateNew, |w| w.write_all(b"first")).unwrap();
        let error = write_file::<io::Error>(&path, Mode::PrivateNew, |w| w.write_all(b"second"))
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).unwrap(), "first");
        assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 1);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(
                fs::metadata(&path).unwrap().permissions().mode() & 0o777,
                0o600
            );
        }
    }
}
