//! A dishonest prover: the honest one, with one thing falsified and everything that follows from it computed again.
//!
//! The falsified proof is complete and well formed, so what rejects it is the check that the lie runs into, and its
//! name is asserted. Which check that has to be is found without a proof, by [`common::oracle`]; so a lie that is
//! rejected by accident is noticed, and so is a cell that nothing binds. That the proof was right in all but the lie is
//! shown by proving it again with challenges that the prover knows beforehand: see [`confront`].
//!
//! Each kind of attack at each place is a test of its own: `--list` shows them, and any part of a name selects some.

#[path = "../common/mod.rs"]
mod common;

mod case;
mod confront;
mod lies;
mod messages;
mod relation;
mod scene;
mod statement;
mod weights;

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use rayon::{ThreadPool, ThreadPoolBuilder};

/// Has this thread do its own work. There are as many tests at a time as cores, and to hand small proofs to other threads
/// piece by piece takes a sixth of the time.
fn work_alone() {
    thread_local! {
        static OWN: OnceCell<ThreadPool> = const { OnceCell::new() };
    }
    let pool = || ThreadPoolBuilder::new().num_threads(1).use_current_thread();
    OWN.with(|own| {
        own.get_or_init(|| pool().build().expect("a pool of one thread"));
    });
}

fn main() -> ExitCode {
    let mut cases = relation::cases();
    cases.extend(lies::cases());
    cases.extend(weights::cases());
    cases.extend(messages::cases());
    cases.extend(statement::cases());
    cases.push(case::case(
        "control",
        "tensors are edited in their round",
        relation::stages_fit,
    ));
    let kinds: BTreeSet<&str> = cases.iter().map(|c| c.kind).collect();
    let (kinds, places) = (kinds.len(), cases.len());
    let trials: Vec<Trial> = cases
        .into_iter()
        .map(|case| {
            let name = format!("{}: {}", case.kind, case.place);
            Trial::test(name, move || {
                work_alone();
                Ok((case.run)()?)
            })
        })
        .collect();
    let names: BTreeSet<&str> = trials.iter().map(Trial::name).collect();
    assert_eq!(names.len(), places, "two cases have one name");
    let arguments = Arguments::from_args();
    let listing = arguments.list;
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !listing {
        println!("{}", case::summary(kinds, places));
    }
    conclusion.exit_code()
}
