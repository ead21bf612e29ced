//! Words of others, made safe to print.
//!
//! Names of files, texts, and messages about them are chosen by whoever made the files. Printed as they are, they could
//! move the cursor, erase or colour what stands there, turn the direction of a line round, or begin a new line that
//! looks like a verdict. So whatever does not show as itself is printed as its number, `\u{1b}`, and what has no end
//! is cut off. In JSON such characters are escaped as JSON escapes them, so that a reader gets them back.

use std::fmt::{self, Display, Write};
use std::path::Path;

use serde::Serialize;

/// The most characters of one name or message that are printed; longer than any path.
pub const MOST_SHOWN: usize = 8192;

/// What Unicode calls ignorable by default, where the standard library calls it printable, and a blank that is no space.
const BLANK: [(char, char); 9] = [
    ('\u{34f}', '\u{34f}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180b}', '\u{180f}'),
    ('\u{2800}', '\u{2800}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{fe00}', '\u{fe0f}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{e0000}', '\u{e0fff}'),
];

/// Whether a character shows as itself: neither a control, nor a direction, nor a separator other than the space, nor one
/// of those that leave no mark.
pub fn is_visible(c: char) -> bool {
    if c.is_ascii() {
        return matches!(c, ' '..='~');
    }
    if BLANK
        .iter()
        .any(|&(first, last)| (first..=last).contains(&c))
    {
        return false;
    }
    // The standard library's table of what can be printed, which it does not show otherwise. Behind a letter it lets
    // marks pass that sit on one.
    let pair = String::from_iter(['x', c]);
    pair.escape_debug().eq(pair.chars())
}

/// One line: everything that is not visible is escaped, and what is too long is cut off.
pub struct Line<T>(pub T);

impl<T: Display> Display for Line<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut escape = Escape {
            to: f,
            keep: '\0',
            left: MOST_SHOWN,
            cut: 0,
        };
        write!(escape, "{}", self.0)?;
        match escape.cut {
            0 => Ok(()),
            n => write!(f, "... ({n} characters more)"),
        }
    }
}

/// Any number of lines: what is not visible is escaped, but for the ends of lines.
///
/// Names and texts within it have to be [`Line`]s, because the end of a line in a name is none of ours.
pub struct Lines<T>(pub T);

impl<T: Display> Display for Lines<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut escape = Escape {
            to: f,
            keep: '\n',
            left: usize::MAX,
            cut: 0,
        };
        write!(escape, "{}", self.0)
    }
}

/// Passes characters on.
struct Escape<'a, 'b> {
    to: &'a mut fmt::Formatter<'b>,
    /// Passed on as it is, though it is not visible.
    keep: char,
    /// Characters that may still be passed on.
    left: usize,
    /// Characters that were not.
    cut: usize,
}

impl Write for Escape<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            if self.left == 0 {
                self.cut += 1;
                continue;
            }
            self.left -= 1;
            if is_visible(c) || (c == self.keep && c != '\0') {
                self.to.write_char(c)?;
            } else {
                write!(self.to, "{}", number(c))?;
            }
        }
        Ok(())
    }
}

/// A character as its number; the ends of lines and tabs as they are usually written.
fn number(c: char) -> String {
    match c {
        '\n' | '\r' | '\t' => c.escape_default().to_string(),
        c => c.escape_unicode().to_string(),
    }
}

/// A character's number as Unicode's tables print it.
pub fn code_point(c: char) -> String {
    format!("U+{:04X}", u32::from(c))
}

/// A name or a remark with one in it: escaped as text, as it is in JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Named(pub String);

impl Named {
    /// The name of a file.
    pub fn file(path: &Path) -> Self {
        Self(path.display().to_string())
    }
}

impl Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Line(&self.0).fmt(f)
    }
}

/// The name of a file in a command that somebody may copy into a shell: quoted, unless it is plain.
pub fn shell_word(path: &Path) -> String {
    let name = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./+,:=@%".contains(c);
    if name.chars().all(plain) && !name.is_empty() {
        name
    } else {
        format!("'{}'", name.replace('\'', r"'\''"))
    }
}

/// JSON with everything escaped that is not visible, but for the ends of its own lines.
pub fn json(value: &impl Serialize) -> serde_json::Result<String> {
    let text = serde_json::to_string_pretty(value)?;
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        // Outside of strings JSON is ASCII, and within them an end of a line is escaped already.
        if is_visible(c) || c == '\n' {
            out.push(c);
        } else {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                // Writing to a string does not fail.
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
    }
    Ok(out)
}

/// Text of a model for a terminal: it keeps ends of lines, tabs, and what writing systems need; controls and changes of
/// direction are escaped.
pub struct Prose<'a>(pub &'a str);

impl Display for Prose<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
            let breaks = matches!(c, '\u{2028}' | '\u{2029}');
            if turns || breaks || (c.is_control() && !matches!(c, '\n' | '\t')) {
                write!(f, "{}", number(c))?;
            } else {
                f.write_char(c)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of each kind some: controls of both sets, directions, separators, what leaves no mark.
    const HIDDEN: &str = "\0\u{7}\u{8}\t\n\u{b}\u{c}\r\u{1b}\u{7f}\u{80}\u{85}\u{9b}\u{9d}\u{a0}\u{ad}\u{34f}\u{61c}\u{115f}\
                          \u{1680}\u{180b}\u{180e}\u{200b}\u{200d}\u{200e}\u{2028}\u{2029}\u{202a}\u{202e}\u{202f}\u{2060}\
                          \u{2066}\u{2069}\u{2800}\u{3000}\u{3164}\u{e000}\u{fe0f}\u{feff}\u{ffa0}\u{fff9}\u{1d173}\u{e0001}\
                          \u{e0041}\u{e0100}\u{10ffff}";
    const SHOWN: &str = " ~\"'\\a\u{301}e\u{308}\u{e9}\u{df}\u{430}\u{3b1}\u{5d0}\u{627}\u{e33}\u{4e2d}\u{1f980}\u{fffd}";

    #[test]
    fn what_does_not_show_is_escaped() {
        assert!(SHOWN.chars().all(is_visible));
        assert_eq!(Line(SHOWN).to_string(), SHOWN);
        for c in HIDDEN.chars() {
            assert!(!is_visible(c), "{c:?}");
            let text = Line(format!("a{c}b")).to_string();
            assert!(
                text.is_ascii() && text.starts_with("a\\") && text.ends_with('b'),
                "{text}"
            );
        }
        assert_eq!(
            Line("x\u{1b}[2J\nACCEPTED\r\u{202e}").to_string(),
            r"x\u{1b}[2J\nACCEPTED\r\u{202e}"
        );
        assert_eq!(Lines("a\u{1b}\nb\r\n").to_string(), "a\\u{1b}\nb\\r\n");
        // What was escaped stays as it is.
        let once = Line(HIDDEN).to_string();
        assert_eq!(Lines(&once).to_string(), once);
    }

    #[test]
    fn no_character_passes_that_a_terminal_acts_on() {
        for c in (0..=0x0010_ffff).filter_map(char::from_u32) {
            if c.is_control() {
                assert!(!is_visible(c), "{c:?}");
                let shown = Prose(&c.to_string()).to_string();
                assert_eq!(shown.contains(c), matches!(c, '\n' | '\t'), "{c:?}");
            }
            if c.is_alphanumeric() && !BLANK.iter().any(|r| (r.0..=r.1).contains(&c)) {
                assert!(is_visible(c), "{c:?}");
            }
        }
    }

    #[test]
    fn endless_words_are_cut() {
        let long = "ab".repeat(MOST_SHOWN);
        let text = Line(&long).to_string();
        assert!(text.starts_with("abab") && text.len() < MOST_SHOWN + 40);
        assert!(text.ends_with(&format!("... ({MOST_SHOWN} characters more)")));
        assert_eq!(Line(&long[..MOST_SHOWN]).to_string(), &long[..MOST_SHOWN]);
    }

    #[test]
    fn json_gives_back_what_it_was_given() {
        let text = [HIDDEN, SHOWN].concat();
        let escaped = json(&[&text]).unwrap();
        assert!(
            escaped.chars().all(|c| is_visible(c) || c == '\n'),
            "{escaped}"
        );
        let back: Vec<String> = serde_json::from_str(&escaped).unwrap();
        assert_eq!(back, [text]);
        let name = Named("a\u{1b}".to_owned());
        assert_eq!(json(&name).unwrap(), r#""a\u001b""#);
        assert_eq!(name.to_string(), r"a\u{1b}");
    }

    #[test]
    fn names_in_commands_are_quoted() {
        for (name, word) in [
            ("a/b-c_1.id", "a/b-c_1.id"),
            ("", "''"),
            ("a b", "'a b'"),
            ("x; rm $HOME `y` \"z\"", "'x; rm $HOME `y` \"z\"'"),
            ("it's", r"'it'\''s'"),
            ("~", "'~'"),
            ("\u{e9}", "'\u{e9}'"),
        ] {
            assert_eq!(shell_word(Path::new(name)), word);
        }
    }

    #[test]
    fn prose_keeps_what_writing_needs() {
        let text = "a\u{301} \u{5d0}\t\u{1f468}\u{200d}\u{1f469}\n\u{3000}\u{a0}";
        assert_eq!(Prose(text).to_string(), text);
        assert_eq!(
            Prose("\u{1b}]0;x\u{7}\u{202e}").to_string(),
            r"\u{1b}]0;x\u{7}\u{202e}"
        );
    }
}
