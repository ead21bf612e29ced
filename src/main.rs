//! The zkmoe command.
fn main() {}
