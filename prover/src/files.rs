//! Files that appear whole or not at all.
//!
//! A reader must never find half a file under its final name, and a run that ends early, even by a kill, must leave
//! nothing behind. On Linux a file is written without a name, synced, and given its name at the end: a process that
//! dies takes its unnamed file along. Where there are no unnamed files, a temporary file in the same folder (renames do
//! not cross file systems) takes its place, which is removed on every error. A kill leaves it: `.NAME.PID-N.tmp`. Its
//! writer has it locked, so one that can be locked belongs to nobody, and whoever writes `NAME` next removes it.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, TryLockError};
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

/// Whether `name` is what [`temporary_name`] makes for a file called `of`.
fn is_temporary_of(name: &OsStr, of: &OsStr) -> bool {
    let digits = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    let middle = name
        .as_encoded_bytes()
        .strip_prefix(b".")
        .and_then(|rest| rest.strip_prefix(of.as_encoded_bytes()))
        .and_then(|rest| rest.strip_prefix(b"."))
        .and_then(|rest| rest.strip_suffix(b".tmp"));
    let mut parts = middle.unwrap_or_default().split(|&byte| byte == b'-');
    matches!((parts.next(), parts.next(), parts.next()), (Some(a), Some(b), None) if digits(a) && digits(b))
}

/// Removes temporary files that writers of `path` left when they were killed. Best effort: they do no harm but take room.
pub fn sweep(path: &Path) {
    let Some(of) = path.file_name() else {
        return;
    };
    let Ok(entries) = fs::read_dir(folder(path)) else {
        return;
    };
    for entry in entries.flatten() {
        if !is_temporary_of(&entry.file_name(), of) {
            continue;
        }
        let file = entry.path();
        let abandoned = fs::symlink_metadata(&file).is_ok_and(|about| about.is_file())
            && OpenOptions::new()
                .write(true)
                .open(&file)
                .is_ok_and(|opened| opened.try_lock().is_ok());
        if abandoned {
            let _ = fs::remove_file(&file);
        }
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

/// Refuses to put a file in the place of a folder, a device or a pipe.
fn check_replaceable(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(about) if !about.is_file() => {
            let reason = "is not a regular file, and only such a file is replaced";
            Err(io::Error::new(io::ErrorKind::InvalidInput, reason))
        }
        _ => Ok(()),
    }
}

fn create(path: &Path, mode: Mode) -> io::Result<Unnamed> {
    sweep(path);
    match open_unnamed(path, mode.bits()) {
        Ok(file) => {
            // A lock on it means something once it has a temporary name.
            let _ = file.try_lock();
            Ok(Unnamed { file, name: None })
        }
        Err(_) => create_named(path, mode),
    }
}

fn create_named(path: &Path, mode: Mode) -> io::Result<Unnamed> {
    let bits = mode.bits();
    loop {
        let name = temporary_name(path)?;
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, bits);
        match options.open(&name) {
            // Somebody who sweeps had it locked for a moment, and removes it.
            Ok(file) if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) => {}
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

/// Gives an unnamed file a temporary name beside `path`.
fn link_beside(file: &File, path: &Path) -> io::Result<PathBuf> {
    loop {
        let name = temporary_name(path)?;
        match link(file, &name) {
            Ok(()) => return Ok(name),
            // A process with the same number was killed here, and its file could not be swept.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// Gives a file a name that is free, in one step where the system has one: without, a kill leaves the file two names.
#[cfg(target_os = "linux")]
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        Err(error) if error == rustix::io::Errno::EXIST => Err(error.into()),
        // The file system does not know the flag.
        Err(_) => link_and_remove(from, to),
    }
}

#[cfg(not(target_os = "linux"))]
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    link_and_remove(from, to)
}

fn link_and_remove(from: &Path, to: &Path) -> io::Result<()> {
    fs::hard_link(from, to)?;
    // What is left here has its name, so it is complete; `sweep` removes the other one.
    let _ = fs::remove_file(from);
    Ok(())
}

impl Unnamed {
    fn rename(mut self, path: &Path, mode: Mode) -> io::Result<()> {
        self.file.sync_all()?;
        match self.name.take() {
            // A name that is free is taken in one step. Links do not replace, so an old file needs a second name for
            // the moment between two calls.
            None => match link(&self.file, path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && !mode.is_new() => {
                    let name = link_beside(&self.file, path)?;
                    fs::rename(&name, path).inspect_err(|_| drop(fs::remove_file(&name)))?;
                }
                linked => linked?,
            },
            Some(name) => {
                let moved = if mode.is_new() {
                    rename_new(&name, path)
                } else {
                    fs::rename(&name, path)
                };
                self.name = moved.is_err().then_some(name);
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
/// `write` or from the system, `path` is as it was before. A folder, a device or a pipe is never replaced.
pub fn write_file<E: From<io::Error>>(
    path: &Path,
    mode: Mode,
    write: impl FnOnce(&mut dyn Write) -> Result<(), E>,
) -> Result<(), E> {
    if !mode.is_new() {
        check_replaceable(path)?;
    }
    let unnamed = create(path, mode)?;
    let mut buffered = BufWriter::with_capacity(1 << 20, &unnamed.file);
    write(&mut buffered)?;
    buffered.flush()?;
    drop(buffered);
    Ok(unnamed.rename(path, mode)?)
}

/// Refuses a folder in which no file can be made, and leaves it as it is.
pub fn check_writable(folder: &Path) -> io::Result<()> {
    create(&folder.join("probe"), Mode::Private).map(drop)
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

    fn names(scratch: &Scratch) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(&scratch.0)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// As where there are no unnamed files.
    fn write_named(path: &Path, mode: Mode, text: &str) -> io::Result<()> {
        let named = create_named(path, mode)?;
        (&named.file).write_all(text.as_bytes())?;
        named.rename(path, mode)
    }

    #[test]
    fn without_unnamed_files_it_is_the_same() {
        let scratch = Scratch::new("files-named");
        let path = scratch.0.join("a");
        for (mode, text, kept) in [
            (Mode::PublicNew, "first", "first"),
            (Mode::PublicNew, "second", "first"),
            (Mode::Public, "third", "third"),
        ] {
            let written = write_named(&path, mode, text);
            let taken = written.map_err(|error| error.kind());
            assert_eq!(taken.is_ok(), text == kept, "{taken:?}");
            assert!(taken.is_ok() || taken == Err(io::ErrorKind::AlreadyExists));
            assert_eq!(fs::read_to_string(&path).unwrap(), kept);
            assert_eq!(names(&scratch), ["a"]);
        }
        let other = scratch.0.join("b");
        fs::write(&other, "b").unwrap();
        assert!(link_and_remove(&other, &path).is_err());
        fs::remove_file(&path).unwrap();
        link_and_remove(&other, &path).unwrap();
        assert_eq!(names(&scratch), ["a"]);
    }

    #[test]
    fn what_a_killed_writer_left_is_swept_and_what_a_living_one_has_is_not() {
        let scratch = Scratch::new("files-sweep");
        let path = scratch.0.join("a");
        let living = create_named(&path, Mode::Private).unwrap();
        let of_the_living = living.name.clone().unwrap();
        let of_the_living = of_the_living.file_name().unwrap().to_str().unwrap();
        let left = [".a.7-0.tmp", ".a.123456-99.tmp"];
        let others = [
            ".a.7-.tmp",
            ".a.7-0-1.tmp",
            ".a.7.tmp",
            ".b.7-0.tmp",
            ".aa.7-0.tmp",
            "a.7-0.tmp",
            "a.tmp",
        ];
        for name in left.iter().chain(&others) {
            fs::write(scratch.0.join(name), "half").unwrap();
        }
        fs::create_dir(scratch.0.join(".a.8-0.tmp")).unwrap();
        write_atomic::<io::Error>(&path, |w| w.write_all(b"whole")).unwrap();
        let mut expected = [&others[..], &[of_the_living, ".a.8-0.tmp", "a"]].concat();
        expected.sort_unstable();
        assert_eq!(names(&scratch), expected);
        drop(living);
        assert_eq!(names(&scratch).len(), expected.len() - 1);
    }

    #[cfg(unix)]
    #[test]
    fn only_regular_files_are_replaced() {
        let scratch = Scratch::new("files-special");
        let (folder, pipe) = (scratch.0.join("folder"), scratch.0.join("pipe"));
        fs::create_dir(&folder).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        std::os::unix::fs::symlink("/dev/null", scratch.0.join("link")).unwrap();
        for path in [&folder, &pipe, &scratch.0.join("link")] {
            let error = write_atomic::<io::Error>(path, |w| w.write_all(b"a")).unwrap_err();
            assert!(
                error.to_string().contains("is not a regular file"),
                "{error}"
            );
        }
        assert_eq!(names(&scratch), ["folder", "link", "pipe"]);
        let nowhere = scratch.0.join("nowhere");
        std::os::unix::fs::symlink("missing", &nowhere).unwrap();
        write_atomic::<io::Error>(&nowhere, |w| w.write_all(b"a")).unwrap();
        assert!(fs::symlink_metadata(&nowhere).unwrap().is_file());
    }

    #[test]
    fn folders_are_probed_and_stay_as_they_are() {
        let scratch = Scratch::new("files-probe");
        check_writable(&scratch.0).unwrap();
        assert!(names(&scratch).is_empty());
        assert!(check_writable(&scratch.0.join("missing")).is_err());
        // Nobody makes files here, whatever their rights.
        #[cfg(target_os = "linux")]
        assert!(check_writable(Path::new("/proc")).is_err());
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
