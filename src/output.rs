//! What commands print: a report for people or one JSON object, and progress for whoever watches a terminal.
//!
//! Results go to standard output, progress and estimates to standard error. Neither gets a character that a terminal would
//! act on, see [`crate::visible`].

use std::fmt::{self, Display};
use std::io::{self, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::failure::{Failure, Report};
use crate::visible::{self, Line, Lines};

/// Writes to standard output, as it is. A reader who has seen enough and closed the pipe is no error.
pub fn print(text: impl Display) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match write!(stdout, "{text}").and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(format_args!("standard output: {error}"))
                .advise("files that were written are whole; what they are, `zkmoe inspect` tells"))
        }
        _ => Ok(()),
    }
}

/// Prints a report, as text or as one JSON object.
pub fn emit(report: &(impl Serialize + Display), json: bool) -> Result<(), Failure> {
    if json {
        emit_json(report)
    } else {
        print(Lines(report))
    }
}

/// Prints one JSON object.
pub fn emit_json(report: &impl Serialize) -> Result<(), Failure> {
    print(visible::json(report).map_err(Failure::new)? + "\n")
}

/// Prints a failure to standard output, as one JSON object.
pub fn print_failure(failure: &Failure) {
    // There is no other place to report to.
    let _ = emit_json(&Report::from(failure));
}

/// Says why a command failed: to people, and to whoever asked for JSON. Where a stream is closed, the exit code still tells.
pub fn report_failure(failure: &Failure, json: bool) {
    note(format_args!("error: {failure}"));
    if let Some(advice) = failure.advice() {
        note(format_args!("  {advice}"));
    }
    if json && !failure.is_reported() {
        print_failure(failure);
    }
}

/// Writes a line to standard error, which may be closed.
pub fn note(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{}", Line(text));
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    use fmt::Write;
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

/// Reads a model id from the command line.
pub fn parse_id(text: &str) -> Result<[u8; 32], String> {
    let wrong = || {
        format!(
            "a model id is 64 hexadecimal digits, this has {} characters",
            text.chars().count()
        )
    };
    let mut id = [0; 32];
    if text.len() != 64 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    for (byte, digits) in id.iter_mut().zip(text.as_bytes().chunks(2)) {
        let digits = std::str::from_utf8(digits).map_err(|_| wrong())?;
        *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
    }
    Ok(id)
}

/// A number of bytes for people.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
    let mut x = n as f64;
    let mut unit = "bytes";
    for next in UNITS {
        if x < 1000.0 {
            break;
        }
        x /= 1000.0;
        unit = next;
    }
    if unit == "bytes" {
        format!("{n} bytes")
    } else {
        format!("{x:.1} {unit}")
    }
}

/// A number of things for people.
pub fn count(n: u64) -> String {
    match n {
        0..10_000 => n.to_string(),
        10_000..1_000_000 => format!("{:.1} thousand", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} million", n as f64 / 1e6),
        _ => format!("{:.1} billion", n as f64 / 1e9),
    }
}

/// A duration for people.
pub fn seconds(x: f64) -> String {
    match x {
        x if x < 0.0995 => format!("{:.1} ms", x * 1e3),
        x if x < 120.0 => format!("{x:.1} s"),
        x if x < 7200.0 => format!("{:.0} min", x / 60.0),
        x => format!("{:.1} h", x / 3600.0),
    }
}

/// Rows of cells in aligned columns: the first to the left, all others to the right.
pub struct Table(pub Vec<Vec<String>>);

impl Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.0.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|c| {
                self.0
                    .iter()
                    .filter_map(|row| row.get(c))
                    .map(|cell| cell.chars().count())
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        for row in &self.0 {
            for (c, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                if c == 0 {
                    write!(f, "  {cell:<width$}")?;
                } else {
                    write!(f, "  {cell:>width$}")?;
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// A progress bar on standard error. Where that is no terminal, nothing is drawn.
pub struct Progress(ProgressBar);

impl Progress {
    /// A bar that counts `unit`s, with their rate if the unit has a name.
    pub fn new(unit: &str) -> Self {
        let template = if unit.is_empty() {
            "{msg:34} [{bar:30}] {human_pos}/{human_len}  {elapsed}".to_owned()
        } else {
            format!(
                "{{msg:34}} [{{bar:30}}] {{human_pos}}/{{human_len}} {unit}  {{per_sec}}  {{eta}} left"
            )
        };
        let bar = ProgressBar::new(0);
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style.progress_chars("=> "));
        }
        Self(bar)
    }

    /// A spinner for work that cannot say how far it is.
    pub fn spinner() -> Self {
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}  {elapsed}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(120));
        Self(bar)
    }

    /// A stage of the work and how far it is.
    pub fn stage(&self, name: &str, done: u64, total: u64) {
        if self.0.message() != name {
            self.0.reset();
            self.0.set_message(name.to_owned());
        }
        self.0.set_length(total);
        self.0.set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_they_are_printed() {
        let id: [u8; 32] = std::array::from_fn(|i| (i * 37) as u8);
        assert_eq!(parse_id(&hex(&id)), Ok(id));
        assert_eq!(parse_id(&hex(&id).to_uppercase()), Ok(id));
        for wrong in [
            "",
            "00",
            &hex(&id)[1..],
            &"+1".repeat(32),
            &"\u{e9}".repeat(32),
        ] {
            assert!(parse_id(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn figures_are_readable() {
        assert_eq!(bytes(999), "999 bytes");
        assert_eq!(bytes(1_234_567), "1.2 MB");
        assert_eq!(count(9_999), "9999");
        assert_eq!(count(12_345), "12.3 thousand");
        assert_eq!(count(2_365_568), "2.4 million");
        assert_eq!(count(12_400_000), "12.4 million");
        assert_eq!(seconds(0.0123), "12.3 ms");
        assert_eq!(seconds(61.25), "61.2 s");
        assert_eq!(seconds(600.0), "10 min");
    }

    #[test]
    fn tables_are_aligned() {
        let table = Table(vec![
            vec!["a".into(), "10".into()],
            vec!["bcd".into(), "7".into()],
        ]);
        assert_eq!(table.to_string(), "  a    10\n  bcd   7\n");
    }
}
