//! The state folder: what belongs to the user who runs the command, and to no model.
//!
//! It holds one secret, which marks that user's notes of verified models ([`crate::verdict`]). Such a note lies
//! beside an id, and so may everything that came in one archive with the id. The secret is what a provider cannot
//! ship: it is drawn on this machine when the first note is made, and whoever knows it can make notes.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use zkmoe_commit::codec::{DecodeError, Reader, Writer, read_magic, write_magic};
use zkmoe_prover::commitment::os_randomness;
use zkmoe_prover::files::{Mode, write_file};

use crate::failure::Failure;
use crate::input;

/// The first bytes of the file with the secret.
pub const SECRET_MAGIC: [u8; 8] = *b"ZKMOSEC\0";
/// The version of its format.
pub const SECRET_VERSION: u32 = 1;
/// Its name in the state folder.
pub const SECRET_FILE: &str = "notes.secret";
/// The environment variable that names the state folder.
pub const STATE_VARIABLE: &str = "ZKMOE_STATE";

/// What helps where there is no usable state folder.
const OTHER_FOLDER: &str = "name a folder of your own with --state DIR or ZKMOE_STATE, or give the \
                            certificate to `zkmoe verify` each time with --cert";

/// Which state folder a command uses.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct StateArgs {
    /// The folder with the secret that marks your notes; never one that somebody else gave you.
    ///
    /// Without it `ZKMOE_STATE` names the folder, else it is zkmoe in `XDG_STATE_HOME`, else
    /// .local/state/zkmoe in `HOME`.
    #[arg(id = "state", long = "state", value_name = "DIR")]
    pub folder: Option<PathBuf>,
}

impl StateArgs {
    /// The state folder, which need not exist yet. Fails if neither the option nor the environment names one.
    pub fn locate(&self) -> Result<State, Failure> {
        locate(self.folder.as_deref(), |name| std::env::var_os(name)).map(State)
    }
}

/// The folder that the option names, or else the environment, of which `variable` gives the values.
fn locate(
    option: Option<&Path>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<PathBuf, Failure> {
    if let Some(folder) = option {
        return Ok(folder.to_owned());
    }
    let named = |name| {
        variable(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    // A relative name leads, inside an unpacked archive, to a secret that its sender chose.
    let absolute = |name| named(name).filter(|folder| folder.is_absolute());
    if named(STATE_VARIABLE).is_some() {
        return absolute(STATE_VARIABLE).ok_or_else(|| {
            Failure::new(format_args!(
                "{STATE_VARIABLE}: is not an absolute path, so it would be another folder in every place"
            ))
            .advise(OTHER_FOLDER)
        });
    }
    absolute("XDG_STATE_HOME")
        .map(|folder| folder.join("zkmoe"))
        .or_else(|| absolute("HOME").map(|folder| folder.join(".local/state/zkmoe")))
        .ok_or_else(|| {
            Failure::new(format_args!(
                "there is no folder for the secret that marks your notes: none of --state, {STATE_VARIABLE}, \
                 XDG_STATE_HOME and HOME names one"
            ))
            .advise(OTHER_FOLDER)
        })
}

/// A state folder.
#[derive(Debug, Clone)]
pub struct State(PathBuf);

impl State {
    /// The state in this folder, which need not exist yet.
    pub fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// The file with the secret.
    pub fn secret_path(&self) -> PathBuf {
        self.0.join(SECRET_FILE)
    }

    /// The secret; none if no note was made with this folder yet.
    pub fn secret(&self) -> Result<Option<Secret>, Failure> {
        let path = self.secret_path();
        if path
            .symlink_metadata()
            .is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        {
            return Ok(None);
        }
        read_secret(&path).map(Some)
    }

    /// The secret, drawn now if there is none.
    pub fn secret_or_new(&self) -> Result<Secret, Failure> {
        if let Some(secret) = self.secret()? {
            return Ok(secret);
        }
        make_private(&self.0)?;
        let path = self.secret_path();
        let secret = Secret(os_randomness().map_err(Failure::new)?);
        match write_file(&path, Mode::PrivateNew, |w| w.write_all(&secret.encode())) {
            Ok(()) => Ok(secret),
            // Another command was faster. The file has had all its bytes from the moment it had its name.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => read_secret(&path),
            Err(error) => Err(Failure::io(&path, &error).also(OTHER_FOLDER)),
        }
    }
}

/// Makes a folder that only its owner may enter; one that is there stays as it is.
fn make_private(folder: &Path) -> Result<(), Failure> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
        .create(folder)
        .map_err(|error| Failure::io(folder, &error).also(OTHER_FOLDER))
}

fn read_secret(path: &Path) -> Result<Secret, Failure> {
    let bytes = input::read(path).map_err(|failure| failure.advise(OTHER_FOLDER))?;
    Secret::decode(&bytes).map_err(|error| {
        input::undecodable(
            path,
            &error,
            "remove it; `zkmoe verify-model` then makes a new one, and has to be run again for each model id",
        )
    })
}

/// The key of the MAC of a user's notes. Whoever knows it can make notes that this user believes.
#[derive(Clone)]
pub struct Secret([u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(not shown)")
    }
}

impl Secret {
    /// Keyed BLAKE3 of `bytes`. Hashes are compared in constant time.
    pub fn mac(&self, bytes: &[u8]) -> blake3::Hash {
        blake3::keyed_hash(&self.0, bytes)
    }

    /// The bytes of its file.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        write_magic(&mut w, &SECRET_MAGIC, SECRET_VERSION);
        w.raw(&self.0);
        w.bytes
    }

    /// Reads a secret from the bytes of its file.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        read_magic(&mut r, &SECRET_MAGIC, SECRET_VERSION, "secret")?;
        let secret = r.digest("secret")?;
        r.finish()?;
        Ok(Self(secret))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A folder of its own for one test, removed at the end.
    pub(crate) struct Scratch(pub(crate) PathBuf);

    impl Scratch {
        pub(crate) fn new(name: &str) -> Self {
            let name = format!("zkmoe-state-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        /// A state in a folder that does not exist yet.
        pub(crate) fn state(&self, name: &str) -> State {
            State::new(self.0.join(name).join("zkmoe"))
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn marks(secret: &Secret) -> [u8; 32] {
        *secret.mac(b"a note").as_bytes()
    }

    #[test]
    fn a_secret_is_drawn_once_and_private() {
        let scratch = Scratch::new("once");
        let state = scratch.state("mine");
        assert!(state.secret().unwrap().is_none());
        assert!(!state.0.exists(), "looking makes nothing");
        let secret = state.secret_or_new().unwrap();
        assert_eq!(marks(&state.secret_or_new().unwrap()), marks(&secret));
        assert_eq!(marks(&state.secret().unwrap().unwrap()), marks(&secret));
        let other = scratch.state("other").secret_or_new().unwrap();
        assert_ne!(marks(&other), marks(&secret));
        assert!(!format!("{secret:?}").contains(&format!("{:?}", secret.0)));
        assert_eq!(fs::read_dir(&state.0).unwrap().count(), 1);
        #[cfg(unix)]
        for (path, mode) in [(state.secret_path(), 0o600), (state.0, 0o700)] {
            use std::os::unix::fs::PermissionsExt;
            let found = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(found & 0o777, mode, "{}", path.display());
        }
    }

    #[test]
    fn all_who_draw_at_once_get_one_secret() {
        let scratch = Scratch::new("race");
        let state = scratch.state("mine");
        let start = std::sync::Barrier::new(8);
        let draw = || {
            start.wait();
            marks(&state.secret_or_new().unwrap())
        };
        let drawn: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(draw)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let kept = marks(&state.secret().unwrap().unwrap());
        assert!(drawn.iter().all(|secret| *secret == kept));
        assert_eq!(fs::read_dir(&state.0).unwrap().count(), 1);
    }

    #[test]
    fn damaged_secrets_are_failures_and_stay() {
        let scratch = Scratch::new("damaged");
        let state = scratch.state("mine");
        state.secret_or_new().unwrap();
        let path = state.secret_path();
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 44);
        let unusable = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            for failure in [
                state.secret().unwrap_err(),
                state.secret_or_new().unwrap_err(),
            ] {
                assert!(failure.to_string().contains(SECRET_FILE), "{failure}");
                assert!(failure.advice().unwrap().contains("remove it"));
            }
            assert_eq!(fs::read(&path).unwrap(), bytes);
        };
        for n in 0..bytes.len() {
            unusable(&bytes[..n]);
        }
        unusable(&[&bytes[..], &[0]].concat());
        for at in 0..12 {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            unusable(&changed);
        }
    }

    #[test]
    fn folders_that_cannot_be_made_are_failures() {
        let scratch = Scratch::new("file");
        fs::write(scratch.0.join("mine"), "").unwrap();
        let failure = scratch.state("mine").secret_or_new().unwrap_err();
        assert!(failure.to_string().contains("mine/zkmoe"), "{failure}");
        assert!(failure.advice().unwrap().contains("--state"));
    }

    #[test]
    fn the_folder_is_named_by_option_then_environment() {
        let found = |option: Option<&str>, set: &[(&str, &str)]| {
            locate(option.map(Path::new), |name| {
                let value = set.iter().find(|(variable, _)| *variable == name);
                value.map(|(_, value)| value.into())
            })
        };
        let all = [
            (STATE_VARIABLE, "/own"),
            ("XDG_STATE_HOME", "/xdg"),
            ("HOME", "/home/me"),
        ];
        let is = |option, set: &[_], folder: &str| {
            assert_eq!(found(option, set).unwrap(), Path::new(folder), "{set:?}");
        };
        is(Some("here"), &all, "here");
        is(None, &all, "/own");
        is(None, &all[1..], "/xdg/zkmoe");
        is(None, &all[2..], "/home/me/.local/state/zkmoe");
        is(
            None,
            &[("XDG_STATE_HOME", "xdg"), all[2]],
            "/home/me/.local/state/zkmoe",
        );
        is(None, &[(STATE_VARIABLE, ""), all[1]], "/xdg/zkmoe");
        for set in [
            &[][..],
            &[("HOME", "")],
            &[("HOME", "home"), ("XDG_STATE_HOME", "./xdg")],
            &[(STATE_VARIABLE, "own"), all[2]],
        ] {
            let failure = found(None, set).unwrap_err();
            assert!(failure.to_string().contains(STATE_VARIABLE), "{failure}");
            let advice = failure.advice().unwrap();
            assert!(
                advice.contains("--state") && advice.contains("--cert"),
                "{advice}"
            );
        }
    }
}
