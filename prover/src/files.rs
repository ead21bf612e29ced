//! Files that appear whole or not at all.
//!
//! A reader must never find half a model under its final name, and a failed run must leave nothing behind. So a file
//! is written under a temporary name in the same folder (renames do not cross file systems), synced to the disk, and
//! only then renamed; on every error the temporary file is removed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Removes the temporary file unless the rename took place.
struct Temporary {
    path: PathBuf,
    renamed: bool,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.renamed {
            // Best effort: the error that brought us here is the one to report.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Creates a file next to `path` under a name that nobody uses.
fn create_temporary(path: &Path) -> io::Result<(File, Temporary)> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"))?;
    loop {
        let mut temporary = std::ffi::OsString::from(".");
        temporary.push(name);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        temporary.push(format!(".{}-{number}.tmp", std::process::id()));
        let candidate = path.with_file_name(temporary);
        match OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&candidate)
        {
            Ok(file) => {
                return Ok((
                    file,
                    Temporary {
                        path: candidate,
                        renamed: false,
                    },
                ));
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// Calls `write` on a temporary file and gives it the name `path` when all of it is on the disk. An existing file of
/// that name is replaced. After an error, from `write` or from the system, `path` is as it was before.
pub fn write_atomic<E: From<io::Error>>(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<(), E>,
) -> Result<(), E> {
    let (file, mut temporary) = create_temporary(path)?;
    let mut buffered = BufWriter::with_capacity(1 << 20, file);
    write(&mut buffered)?;
    let file = buffered
        .into_inner()
        .map_err(std::io::IntoInnerError::into_error)?;
    file.sync_all()?;
    drop(file);
    fs::rename(&temporary.path, path)?;
    temporary.renamed = true;
    // The new name lives in the folder, so the folder has to reach the disk too. Not every system can sync one.
    if let Some(folder) = path.parent() {
        let folder = if folder.as_os_str().is_empty() {
            Path::new(".")
        } else {
            folder
        };
        if let Ok(folder) = File::open(folder) {
            let _ = folder.sync_all();
        }
    }
    Ok(())
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
}
