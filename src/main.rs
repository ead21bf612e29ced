//! The `zkmoe` command: reads the command line, runs one subcommand, and turns its result into an exit code.
//!
//! Exit codes: 0 done or accepted; 1 a reply was rejected; 2 the input cannot be used, or the work was refused.

#![forbid(unsafe_code)]

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use zkmoe::commands::Cli;

fn main() -> ExitCode {
    match Cli::parse().command.execute() {
        Ok(outcome) => ExitCode::from(outcome.exit_code()),
        Err(failure) => {
            // Where standard error is closed, the exit code still tells.
            let mut stderr = std::io::stderr().lock();
            let _ = writeln!(stderr, "error: {failure}");
            if let Some(advice) = failure.advice() {
                let _ = writeln!(stderr, "  {advice}");
            }
            ExitCode::from(2)
        }
    }
}
