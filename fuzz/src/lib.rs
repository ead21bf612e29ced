//! Coverage-guided tests of everything in zkmoe that reads bytes from others.
//!
//! Each target is a function of bytes that panics when a property does not hold. The program `fuzz` gives them to
//! libFuzzer; the test in `tests/` runs the seeds and what was found once, under `regressions/`.

#![forbid(unsafe_code)]

pub mod compact;
pub mod edits;
pub mod fixtures;
pub mod targets;

use std::alloc::System;

use cap::Cap;

#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

/// What a target demands.
pub struct Target {
    /// Its name.
    pub name: &'static str,
    /// Panics if a property does not hold.
    pub check: fn(&[u8]),
    /// Prepares what all inputs share, so that no input is charged for it.
    pub prepare: fn(),
    /// Inputs to start from, with their names.
    pub seeds: fn() -> Vec<(String, Vec<u8>)>,
    /// The most memory, in bytes, that one input may take. One more is out of memory, and the program aborts.
    pub heap: usize,
}

impl Target {
    /// Runs the target on an input.
    ///
    /// # Panics
    /// If a property does not hold.
    pub fn run(&self, data: &[u8]) {
        (self.prepare)();
        let before = HEAP.allocated();
        HEAP.set_limit(before.saturating_add(self.heap))
            .expect("more than is in use");
        (self.check)(data);
        HEAP.set_limit(usize::MAX).expect("more than is in use");
    }
}

/// The target of this name.
pub fn target(name: &str) -> Option<&'static Target> {
    targets::ALL.iter().find(|target| target.name == name)
}
