//! The table of attacks: what each is, where it strikes, and what came of it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many mutations were tried, over all cases that ran.
static TRIED: AtomicUsize = AtomicUsize::new(0);
/// How many of them were made into whole proofs that the verifier saw.
static PROVED: AtomicUsize = AtomicUsize::new(0);
/// How many of those were accepted where the prover knew the challenges beforehand.
static KNOWN: AtomicUsize = AtomicUsize::new(0);
/// How often each check was the one that rejected.
static CHECKS: Mutex<Vec<(String, usize)>> = Mutex::new(Vec::new());

/// One line of the table.
pub struct Case {
    /// The kind of attack.
    pub kind: &'static str,
    /// Where it is made.
    pub place: String,
    /// Tries it, with all mutations of this kind at this place.
    pub run: Box<dyn FnOnce() -> Result<(), String> + Send>,
}

/// A line of the table.
pub fn case(
    kind: &'static str,
    place: impl Into<String>,
    run: impl FnOnce() -> Result<(), String> + Send + 'static,
) -> Case {
    Case {
        kind,
        place: place.into(),
        run: Box::new(run),
    }
}

/// Counts mutations that were judged, with or without a proof.
pub fn tried(n: usize) {
    TRIED.fetch_add(n, Ordering::Relaxed);
}

/// Counts a proof that the verifier rejected by a check.
pub fn rejected(check: &str) {
    PROVED.fetch_add(1, Ordering::Relaxed);
    let mut checks = CHECKS.lock().unwrap();
    match checks.iter_mut().find(|(name, _)| name == check) {
        Some((_, n)) => *n += 1,
        None => checks.push((check.to_owned(), 1)),
    }
}

/// Counts a proof that was accepted because its prover knew the challenges.
pub fn accepted_with_foresight() {
    KNOWN.fetch_add(1, Ordering::Relaxed);
}

/// What all cases came to.
pub fn summary(kinds: usize, places: usize) -> String {
    let mut checks = CHECKS.lock().unwrap().clone();
    checks.sort();
    let rejections: usize = checks.iter().map(|c| c.1).sum();
    format!(
        "{kinds} kinds at {places} places: {} mutations tried, {} whole proofs of them rejected by {} checks, \
         {} accepted where the challenges were known beforehand ({rejections} rejections in all)",
        TRIED.load(Ordering::Relaxed),
        PROVED.load(Ordering::Relaxed),
        checks.len(),
        KNOWN.load(Ordering::Relaxed),
    )
}

/// An error unless something holds.
pub fn demand(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}
