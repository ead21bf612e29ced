//! Differences between two texts that nobody sees.
//!
//! A verdict is about texts byte for byte, and editors, shells and transfers add a newline, change line ends or put a byte
//! order mark in front. A rejection that says so saves its reader a search.

use crate::reply::first_difference;

/// Texts that differ from `text` only in what does not show, each with how it comes from `text`.
pub fn unseen_changes(text: &str) -> Vec<(&'static str, String)> {
    const MARK: char = '\u{feff}';
    let without_newline = text.strip_suffix('\n');
    let without_newline = without_newline.map(|rest| rest.strip_suffix('\r').unwrap_or(rest));
    let unix = text.replace("\r\n", "\n");
    let changes = [
        (
            "without the newline at its end",
            without_newline.map(str::to_owned),
        ),
        ("with a newline at its end", Some(format!("{text}\n"))),
        (
            "without the white space at its end",
            Some(text.trim_end().to_owned()),
        ),
        (
            "without the white space around it",
            Some(text.trim().to_owned()),
        ),
        (
            "without the byte order mark in front",
            text.strip_prefix(MARK).map(str::to_owned),
        ),
        (
            "with a byte order mark in front",
            Some(format!("{MARK}{text}")),
        ),
        ("with line ends of one character (LF)", Some(unix.clone())),
        (
            "with line ends of two characters (CRLF)",
            Some(unix.replace('\n', "\r\n")),
        ),
        (
            "with line ends of one character (LF) and without the newline at its end",
            unix.strip_suffix('\n').map(str::to_owned),
        ),
    ];
    let changed = changes.into_iter();
    let changed = changed.filter_map(|(how, changed)| changed.map(|changed| (how, changed)));
    changed.filter(|(_, changed)| changed != text).collect()
}

/// How `wanted` differs from the text that was `given`, in words; they must not be equal.
pub fn difference(given: &str, wanted: &str) -> String {
    let changes = unseen_changes(given);
    if let Some((how, _)) = changes.iter().find(|(_, changed)| changed == wanted) {
        return format!("it is the one that was given, {how}");
    }
    let [given, wanted] = [given, wanted].map(|text| text.chars().collect::<Vec<char>>());
    let at = first_difference(&given, &wanted).unwrap_or(0);
    format!(
        "they differ from character {} on: {} was given, the other has {}",
        at + 1,
        excerpt(&given, at),
        excerpt(&wanted, at)
    )
}

/// Some characters from a place on. Quoted, so that nothing of a text from elsewhere acts on a terminal.
fn excerpt(text: &[char], from: usize) -> String {
    const LENGTH: usize = 16;
    let part: String = text.iter().skip(from).take(LENGTH).collect();
    if part.is_empty() {
        "its end".to_owned()
    } else {
        format!("{part:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unseen_changes_are_named() {
        for (given, wanted, how) in [
            ("a\n", "a", "without the newline at its end"),
            ("a\r\n", "a", "without the newline at its end"),
            ("a\n\n", "a\n", "without the newline at its end"),
            ("a", "a\n", "with a newline at its end"),
            ("a \n", "a", "without the white space at its end"),
            (" a", "a", "without the white space around it"),
            ("\u{feff}a", "a", "without the byte order mark in front"),
            ("a", "\u{feff}a", "with a byte order mark in front"),
            ("a\r\nb", "a\nb", "(LF)"),
            ("a\nb", "a\r\nb", "(CRLF)"),
            ("a\r\nb\r\n", "a\nb", "(LF) and without the newline"),
        ] {
            let found = difference(given, wanted);
            assert!(
                found.starts_with("it is the one that was given, ") && found.contains(how),
                "{given:?} {wanted:?}: {found}"
            );
        }
        for text in ["", "a", " a\r\nb\n", "\u{feff}\r\n"] {
            let changes = unseen_changes(text);
            assert!(changes.iter().all(|(_, changed)| changed != text));
        }
    }

    #[test]
    fn other_changes_are_shown_where_they_are() {
        let found = difference("to be or not", "to be and not");
        assert_eq!(
            found,
            "they differ from character 7 on: \"or not\" was given, the other has \"and not\""
        );
        let found = difference("to be", "to be\u{1b}[2J");
        assert!(found.contains("its end was given"), "{found}");
        assert!(found.ends_with(r#""\u{1b}[2J""#), "{found}");
    }
}
