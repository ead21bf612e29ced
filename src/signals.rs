//! Signals that ask the process to end.
//!
//! Files need no help: one that is not complete has no name ([`zkmoe_prover::files`]). Only a folder with temporary files has
//! to be removed when the user has seen enough. Nothing helps against a kill that no process can catch.

use std::path::PathBuf;

/// From now on a folder is removed when the user or the system asks the process to end.
#[cfg(unix)]
pub fn remove_if_ended(folder: PathBuf) {
    use std::io::ErrorKind;

    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;
    use signal_hook::low_level::emulate_default_handler;

    // Where that cannot be set up, signals end the process as they would without.
    let Ok(mut signals) = Signals::new([SIGINT, SIGTERM, SIGHUP]) else {
        return;
    };
    std::thread::spawn(move || {
        let Some(signal) = signals.forever().next() else {
            return;
        };
        // Another thread may still be writing a file, which keeps the folder from being empty for a moment.
        for _ in 0..100 {
            match std::fs::remove_dir_all(&folder) {
                Err(error) if error.kind() != ErrorKind::NotFound => {}
                _ => break,
            }
        }
        let _ = emulate_default_handler(signal);
    });
}

/// Where there are no such signals, there is nothing to wait for.
#[cfg(not(unix))]
pub fn remove_if_ended(_: PathBuf) {}
