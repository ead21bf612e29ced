//! What a reader of prompt and response may not see.
//!
//! A verdict is about texts as they are, byte for byte; whoever reads it has looked at them on a screen. Where the two may
//! differ, the verdict says so: characters that do not show, white space at an end, special tokens that a prompt spells out,
//! a prompt that the tokenizer does not keep, tokens without text. None of this makes a reply wrong. Letters that look alike
//! are not told apart here.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use zkmoe_prover::tokenizer::{Tokenizer, TokenizerError};

use crate::reply::{excerpt, first_difference};
use crate::visible::{code_point, is_visible};

/// Prompt and response, as texts and as tokens.
#[derive(Debug, Clone, Copy)]
pub struct Texts<'a> {
    /// The prompt.
    pub prompt: &'a str,
    /// The tokenizer's encoding of it.
    pub prompt_ids: &'a [u32],
    /// The response.
    pub response: &'a str,
    /// Its tokens, with the end token if there was one.
    pub response_ids: &'a [u32],
}

/// What deserves a closer look, in words; nothing if the texts are as they look.
pub fn remarks(
    tokenizer: &Tokenizer,
    texts: &Texts<'_>,
    end_token: u32,
) -> Result<Vec<String>, TokenizerError> {
    let mut remarks = Vec::new();
    remarks.extend(unseen("prompt", texts.prompt));
    remarks.extend(white_ends(texts.prompt));
    remarks.extend(spelled_out(tokenizer.special(texts.prompt_ids)));
    let read = tokenizer.spell(texts.prompt_ids)?;
    let (read, given): (Vec<char>, Vec<char>) =
        (read.chars().collect(), texts.prompt.chars().collect());
    if let Some(n) = first_difference(&read, &given) {
        remarks.push(format!(
            "the tokenizer does not keep the prompt: from character {} on the model read {:?}, the prompt has {:?}",
            n + 1,
            excerpt(&read, n),
            excerpt(&given, n)
        ));
    }
    remarks.extend(unseen("response", texts.response));
    let broken = texts.response.matches(char::REPLACEMENT_CHARACTER).count();
    if broken > 0 {
        remarks.push(format!(
            "the response has U+FFFD in {}: bytes of the model that are no character look like that, whatever they are",
            places(broken)
        ));
    }
    let mut ids = texts.response_ids;
    if let [before @ .., last] = ids
        && *last == end_token
    {
        ids = before;
    }
    let mut known: HashMap<u32, bool> = HashMap::new();
    let mut silent = 0;
    for &id in ids {
        let is_silent = match known.entry(id) {
            Entry::Occupied(is_silent) => *is_silent.get(),
            Entry::Vacant(place) => *place.insert(tokenizer.decode(&[id])?.is_empty()),
        };
        silent += usize::from(is_silent);
    }
    if silent > 0 {
        remarks.push(format!(
            "{silent} of {} tokens of the response are special ones and show no text",
            ids.len()
        ));
    }
    Ok(remarks)
}

fn places(n: usize) -> String {
    match n {
        1 => "one place".to_owned(),
        n => format!("{n} places"),
    }
}

/// Characters that do not show; ends of lines and tabs do, by what follows them.
fn unseen(name: &str, text: &str) -> Option<String> {
    let mut found = text
        .chars()
        .enumerate()
        .filter(|&(_, c)| !is_visible(c) && !matches!(c, '\n' | '\t'));
    let (at, first) = found.next()?;
    let others = found.count();
    Some(format!(
        "the {name} has characters that do not show, in {}: the first is character {}, {}",
        places(1 + others),
        at + 1,
        code_point(first)
    ))
}

/// Special tokens in the prompt, which looks like text and is not to the model.
fn spelled_out(special: usize) -> Option<String> {
    let what = match special {
        0 => return None,
        1 => "a special token".to_owned(),
        n => format!("{n} special tokens"),
    };
    Some(format!(
        "the prompt spells out {what}, read by the model as such and not as text"
    ))
}

/// White space at the ends of the prompt, which is part of it. A response often begins with a space.
fn white_ends(prompt: &str) -> Option<String> {
    let ends = |c: Option<char>| c.filter(|c| c.is_whitespace());
    let first = ends(prompt.chars().next()).map(|c| format!("begins with {}", code_point(c)));
    let last = ends(prompt.chars().next_back()).map(|c| format!("ends with {}", code_point(c)));
    let words: Vec<String> = first.into_iter().chain(last).collect();
    (!words.is_empty()).then(|| format!("the prompt {}", words.join(" and ")))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The bundled tokenizer after a change of its file.
    fn tokenizer(change: impl Fn(&mut Value)) -> Tokenizer {
        let bundled = include_bytes!("../data/olmoe-tiny/tokenizer.json");
        let mut json: Value = serde_json::from_slice(bundled).unwrap();
        change(&mut json);
        Tokenizer::from_json(json.to_string().as_bytes()).unwrap()
    }

    fn of(tokenizer: &Tokenizer, prompt: &str, response: &str) -> Vec<String> {
        let texts = Texts {
            prompt,
            prompt_ids: &tokenizer.encode(prompt).unwrap(),
            response: &tokenizer
                .decode(&tokenizer.encode(response).unwrap())
                .unwrap(),
            response_ids: &tokenizer.encode(response).unwrap(),
        };
        remarks(tokenizer, &texts, 0).unwrap()
    }

    #[track_caller]
    fn one(tokenizer: &Tokenizer, prompt: &str, response: &str, parts: &[&str]) {
        let found = of(tokenizer, prompt, response);
        assert_eq!(found.len(), 1, "{found:?}");
        for part in parts {
            assert!(found[0].contains(part), "{part}: {found:?}");
        }
    }

    #[test]
    fn texts_that_are_as_they_look_get_no_remark() {
        let plain = tokenizer(|_| ());
        for (prompt, response) in [
            ("Once upon a time", " there was"),
            ("two\nlines\tand \u{e9}\u{4e2d}", "\n\n and more\n"),
            ("e\u{301}", " end<|endoftext|>"),
            ("a<|endoftext|b", "x"),
        ] {
            let found = of(&plain, prompt, response);
            assert!(found.is_empty(), "{found:?}");
        }
    }

    #[test]
    fn what_does_not_show_is_named() {
        let plain = tokenizer(|_| ());
        let prompt = "a\u{200b}b\u{202e}c";
        one(
            &plain,
            prompt,
            "x",
            &["prompt", "2 places", "character 2", "U+200B"],
        );
        one(
            &plain,
            "a",
            " x\u{1b}[2J",
            &["response", "one place", "U+001B"],
        );
        one(&plain, "a\r\nb", "x", &["prompt", "U+000D"]);
        one(&plain, "a\n", "x", &["the prompt ends with U+000A"]);
        one(
            &plain,
            " a ",
            "x",
            &["begins with U+0020 and ends with U+0020"],
        );
        one(&plain, "a", "x\u{fffd}", &["U+FFFD"]);
        for (prompt, what) in [
            ("a<|endoftext|>b", "spells out a special token,"),
            ("<|endoftext|><|endoftext|>", "spells out 2 special tokens,"),
        ] {
            one(&plain, prompt, "x", &["the prompt", what]);
        }
        let silent = "one<|endoftext|> two<|endoftext|>";
        one(&plain, "a", silent, &["1 of 3 tokens of the response"]);
    }

    #[test]
    fn a_prompt_that_is_not_kept_is_told() {
        let normal = tokenizer(|j| j["normalizer"] = json!({"type": "NFKC"}));
        one(
            &normal,
            "e\u{301} \u{fb01}n",
            "x",
            &["does not keep", "character 1 on", r#""é fin""#],
        );
        assert!(of(&normal, "\u{e9} fin", "x").is_empty());
        let prefixed = tokenizer(|j| j["pre_tokenizer"]["add_prefix_space"] = true.into());
        one(
            &prefixed,
            "a",
            "x",
            &["does not keep", r#"the model read " a""#],
        );
    }
}
