//! The `zkmoe` command: reads the command line, runs one subcommand, and turns its result into an exit code.
//!
//! Exit codes: 0 done or accepted; 1 a reply was rejected; 2 the input cannot be used, or the work was refused.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use zkmoe::commands::Cli;
use zkmoe::failure::{FAILED, Failure};
use zkmoe::output;

fn main() -> ExitCode {
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(usage) => return refuse(&usage),
    };
    let json = cli.command.json();
    match cli.command.execute() {
        Ok(outcome) => ExitCode::from(outcome.exit_code()),
        Err(failure) => {
            output::report_failure(&failure, json);
            ExitCode::from(FAILED)
        }
    }
}

/// Prints help, or why the command line cannot be used.
fn refuse(usage: &clap::Error) -> ExitCode {
    // Where the streams are closed, the exit code still tells.
    let _ = usage.print();
    if usage.use_stderr() && std::env::args_os().any(|arg| arg == "--json") {
        let text = usage.render().to_string();
        let text = text.trim().trim_start_matches("error: ");
        output::print_failure(&Failure::new(text));
    }
    ExitCode::from(u8::try_from(usage.exit_code()).unwrap_or(FAILED))
}
