//! The folder of a checkpoint, which may come from anybody: no file is read that lies elsewhere, and none that is longer than
//! its kind can be.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::files::open_regular;

/// The most bytes of `config.json`.
pub const MAX_CONFIG: u64 = 1 << 20;
/// The most bytes of a chat template, or of the file that holds one.
pub const MAX_TEMPLATE: u64 = 1 << 24;
/// The most bytes of an index of tensors.
pub const MAX_INDEX: u64 = 1 << 26;
/// The most bytes of a text to calibrate or to evaluate on.
pub const MAX_TEXT: u64 = 1 << 28;

/// Why a file is not read.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// The system does not give it.
    #[error("{file}: {error}")]
    Io {
        /// The file.
        file: String,
        /// What the system said.
        error: io::Error,
    },
    /// It is a link that leads out of the folder.
    #[error("{file}: leads to {target}, outside of the folder")]
    Outside {
        /// The file.
        file: String,
        /// Where the link leads.
        target: String,
    },
    /// It is longer than a file of its kind can be.
    #[error("{file}: has {found} bytes, at most {most} are read")]
    Long {
        /// The file.
        file: String,
        /// Its bytes.
        found: u64,
        /// The most bytes that are read.
        most: u64,
    },
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> FolderError {
    let file = path.display().to_string();
    move |error| FolderError::Io { file, error }
}

/// Reads a file of at most `most` bytes.
pub fn read(path: &Path, most: u64) -> Result<Vec<u8>, FolderError> {
    let file = open_regular(path).map_err(io_error(path))?;
    let found = file.metadata().map_err(io_error(path))?.len();
    if found > most {
        let file = path.display().to_string();
        return Err(FolderError::Long { file, found, most });
    }
    let mut bytes = Vec::new();
    file.take(most)
        .read_to_end(&mut bytes)
        .map_err(io_error(path))?;
    Ok(bytes)
}

/// A folder whose files may be read.
#[derive(Debug, Clone)]
pub struct Folder {
    path: PathBuf,
    /// Where files may really lie.
    homes: Vec<PathBuf>,
}

impl Folder {
    /// Opens a folder.
    ///
    /// In the cache of the Hugging Face hub the files of `snapshots/REVISION` are links into `blobs` beside `snapshots`, so
    /// these may be followed.
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        let real = fs::canonicalize(path).map_err(io_error(path))?;
        if !real.is_dir() {
            let error = io::Error::new(io::ErrorKind::NotADirectory, "is not a folder");
            return Err(io_error(path)(error));
        }
        let snapshots = real.parent().filter(|p| p.ends_with("snapshots"));
        let blobs = snapshots.and_then(Path::parent).map(|p| p.join("blobs"));
        Ok(Self {
            path: path.to_owned(),
            homes: core::iter::once(real).chain(blobs).collect(),
        })
    }

    /// The path of the file with this plain name; none if there is no such file.
    pub fn find(&self, name: &str) -> Result<Option<PathBuf>, FolderError> {
        let path = self.path.join(name);
        match path.symlink_metadata() {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_error(&path)(error)),
        }
        let target = fs::canonicalize(&path).map_err(io_error(&path))?;
        let home = target.parent();
        if self.homes.iter().any(|allowed| home == Some(allowed)) {
            return Ok(Some(path));
        }
        Err(FolderError::Outside {
            file: path.display().to_string(),
            target: target.display().to_string(),
        })
    }

    /// The path of a file that has to be there.
    pub fn require(&self, name: &str) -> Result<PathBuf, FolderError> {
        self.find(name)?
            .ok_or_else(|| io_error(&self.path.join(name))(io::ErrorKind::NotFound.into()))
    }

    /// Reads a file that has to be there, of at most `most` bytes.
    pub fn read(&self, name: &str, most: u64) -> Result<Vec<u8>, FolderError> {
        read(&self.require(name)?, most)
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::files::tests::Scratch;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_stay_in_the_folder_or_lead_to_the_blobs_of_a_cache() {
        let scratch = Scratch::new("folder-links");
        let cache = scratch.0.join("models--a--b");
        let revision = cache.join("snapshots").join("0123");
        fs::create_dir_all(&revision).unwrap();
        fs::create_dir_all(cache.join("blobs")).unwrap();
        fs::write(cache.join("blobs/45"), "blob").unwrap();
        fs::write(cache.join("refs"), "elsewhere").unwrap();
        fs::write(revision.join("own"), "own").unwrap();
        symlink("../../blobs/45", revision.join("blob")).unwrap();
        symlink("own", revision.join("inside")).unwrap();
        symlink("../../refs", revision.join("outside")).unwrap();
        symlink("nowhere", revision.join("dangling")).unwrap();
        let folder = Folder::open(&revision).unwrap();
        for (name, content) in [("own", "own"), ("inside", "own"), ("blob", "blob")] {
            assert_eq!(
                folder.read(name, 100).unwrap(),
                content.as_bytes(),
                "{name}"
            );
        }
        let outside = folder.read("outside", 100).unwrap_err();
        assert!(matches!(outside, FolderError::Outside { .. }), "{outside}");
        assert!(outside.to_string().contains("refs"), "{outside}");
        // A link that leads nowhere is a fault, not a file that is not there.
        assert!(matches!(
            folder.find("dangling"),
            Err(FolderError::Io { .. })
        ));
        assert!(matches!(folder.find("none"), Ok(None)));
        // The same links elsewhere than in a cache.
        let other = scratch.0.join("checkpoint");
        fs::create_dir_all(&other).unwrap();
        symlink(cache.join("blobs/45"), other.join("blob")).unwrap();
        let refused = Folder::open(&other).unwrap().read("blob", 100).unwrap_err();
        assert!(matches!(refused, FolderError::Outside { .. }), "{refused}");
    }

    #[test]
    fn long_files_and_other_things_are_not_read() {
        let scratch = Scratch::new("folder-long");
        fs::write(scratch.0.join("a"), "12345").unwrap();
        let folder = Folder::open(&scratch.0).unwrap();
        assert_eq!(folder.read("a", 5).unwrap(), b"12345");
        let long = folder.read("a", 4).unwrap_err().to_string();
        assert!(long.contains("5 bytes, at most 4"), "{long}");
        assert!(folder.read("b", 4).is_err());
        fs::create_dir(scratch.0.join("c")).unwrap();
        assert!(folder.read("c", 4).is_err());
        assert!(Folder::open(&scratch.0.join("a")).is_err());
        assert!(Folder::open(&scratch.0.join("none")).is_err());
    }
}
