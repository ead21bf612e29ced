//! `reply.json`: a reply as `zkmoe run` serves it and `zkmoe prove` takes it back.
//!
//! It holds texts and token ids of both sides, because several lists of tokens spell one text and the proof is about
//! tokens. Whoever edits it gets no proof: [`Reply::check`] compares ids and texts, and the prover runs the model.

use std::path::Path;

use serde::{Deserialize, Serialize};
use zkmoe_prover::infer::{Ended as Reason, POSITION_MULTIPLE};
use zkmoe_prover::json;
use zkmoe_prover::tokenizer::Tokenizer;
use zkmoe_verifier::header::Header;

use crate::failure::Failure;
use crate::input;
use crate::visible;

/// The version of the format.
pub const REPLY_VERSION: u32 = 1;

/// How tokens were chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decoding {
    /// The most likely token, ties to the lowest id.
    Greedy,
}

/// Why a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ended {
    /// The model ended the text; the end token is the last response id.
    Eos,
    /// The reply has as many tokens as were asked for.
    Limit,
    /// The model's context is full.
    Context,
    /// A value left its range; the reply is what can be proved without it.
    Overflow,
}

impl Ended {
    /// The reason for people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Eos => "the model ended the text",
            Self::Limit => "the limit of tokens was reached",
            Self::Context => "the context of the model is full",
            Self::Overflow => {
                "a value left the range of the integer model, so the reply was cut to what can be proved"
            }
        }
    }
}

impl From<&Reason> for Ended {
    fn from(reason: &Reason) -> Self {
        match reason {
            Reason::Eos => Self::Eos,
            // Nobody asks `zkmoe run` to stop; a caller who did would have set the limit.
            Reason::Limit | Reason::Stopped => Self::Limit,
            Reason::Context => Self::Context,
            Reason::Overflow(_) => Self::Overflow,
        }
    }
}

/// A reply with everything that a proof of it needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reply {
    /// The version of the format.
    pub version: u32,
    /// The prompt.
    pub prompt: String,
    /// The response, without special tokens.
    pub response: String,
    /// The tokens of the prompt.
    pub prompt_ids: Vec<u32>,
    /// The tokens of the response, with the end token if there was one.
    pub response_ids: Vec<u32>,
    /// The limit on response tokens that was asked for.
    pub max_tokens: u32,
    /// How tokens were chosen.
    pub decoding: Decoding,
    /// Why the reply ended.
    pub ended: Ended,
}

impl Reply {
    /// Reads a reply.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        Self::parse(&input::read(path)?).map_err(|reason| {
            Failure::file(path, reason)
                .advise("`zkmoe run` writes replies; make this one again with the same prompt")
        })
    }

    /// Reads a reply from the bytes of its file; the error says which field is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let value = json::parse(bytes).map_err(|error| format!("is not a reply: {error}"))?;
        match value.get("version").and_then(serde_json::Value::as_u64) {
            Some(version) if version == u64::from(REPLY_VERSION) => {}
            Some(version) => {
                return Err(format!(
                    "`version` is {version}, this program reads {REPLY_VERSION}"
                ));
            }
            None => return Err("is not a reply: `version` is missing".to_owned()),
        }
        serde_json::from_value(value).map_err(|error| format!("is not a reply: {error}"))
    }

    /// Whether these are the bytes of a reply, of whatever version.
    pub fn is_one(bytes: &[u8]) -> bool {
        let value: Option<serde_json::Value> = serde_json::from_slice(bytes).ok();
        value.is_some_and(|v| v.get("version").is_some() && v.get("response_ids").is_some())
    }

    /// Writes the reply.
    pub fn save(&self, path: &Path) -> Result<(), Failure> {
        let mut text = visible::json(self).map_err(|error| Failure::file(path, error))?;
        text.push('\n');
        input::write_private(path, text.as_bytes())
    }

    /// How a reply with these tokens ended. Decoding goes on until the end token, the limit or the end of the context, in
    /// this order; where it stopped before all of them, a value left its range.
    fn ended_by_tokens(&self, header: &Header) -> Ended {
        let used = self.prompt_ids.len() + self.response_ids.len();
        let context = header.sizes.max_position_embeddings / POSITION_MULTIPLE * POSITION_MULTIPLE;
        if self.response_ids.last() == Some(&header.eos_token) {
            Ended::Eos
        } else if self.response_ids.len() >= self.max_tokens as usize {
            Ended::Limit
        } else if used >= context {
            Ended::Context
        } else {
            Ended::Overflow
        }
    }

    /// Checks that texts and ids are the same under a tokenizer, and that `ended` is what the tokens say; the error names the
    /// field and the first difference.
    pub fn check(&self, tokenizer: &Tokenizer, header: &Header) -> Result<(), String> {
        for (name, ids) in [
            ("prompt_ids", &self.prompt_ids),
            ("response_ids", &self.response_ids),
        ] {
            if ids.is_empty() {
                return Err(format!("`{name}` is empty, so there is nothing to prove"));
            }
        }
        if self.response_ids.len() > self.max_tokens as usize {
            return Err(format!(
                "`response_ids` has {} tokens, more than `max_tokens`",
                self.response_ids.len()
            ));
        }
        let canonical = tokenizer
            .encode_prompt(&self.prompt, header.sizes.max_position_embeddings)
            .map_err(|error| format!("`prompt`: {error}"))?;
        if let Some(n) = first_difference(&canonical, &self.prompt_ids) {
            return Err(format!(
                "`prompt_ids` is not the encoding of `prompt`: token {} is {}, the encoding has {}",
                n + 1,
                show(tokenizer, self.prompt_ids.get(n)),
                show(tokenizer, canonical.get(n))
            ));
        }
        let decoded = tokenizer
            .decode_beside(&self.response_ids, &self.response)
            .map_err(|error| format!("`response_ids`: {error}"))?
            .ok_or("`response` is not what `response_ids` decode to, which is far longer")?;
        let (there, here): (Vec<char>, Vec<char>) =
            (decoded.chars().collect(), self.response.chars().collect());
        if let Some(n) = first_difference(&there, &here) {
            return Err(format!(
                "`response` is not what `response_ids` decode to: they differ from character {} on, {:?} in the text, \
                 {:?} from the tokens",
                n + 1,
                excerpt(&here, n),
                excerpt(&there, n)
            ));
        }
        let ended = self.ended_by_tokens(header);
        if ended != self.ended {
            return Err(format!(
                "`ended` says that {}, but by its tokens {}",
                self.ended.words(),
                ended.words()
            ));
        }
        Ok(())
    }
}

/// Some characters from the first different one on.
pub fn excerpt(text: &[char], from: usize) -> String {
    text.iter().skip(from).take(16).collect()
}

/// The first position at which two lists differ.
pub fn first_difference<T: PartialEq>(a: &[T], b: &[T]) -> Option<usize> {
    let common = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    (common < a.len().max(b.len())).then_some(common)
}

/// A token for people.
pub fn show(tokenizer: &Tokenizer, token: Option<&u32>) -> String {
    let Some(&id) = token else {
        return "missing".to_owned();
    };
    match tokenizer.decode(&[id]) {
        Ok(text) if text.is_empty() => format!("a special token (token {id})"),
        Ok(text) => format!("{text:?} (token {id})"),
        Err(_) => format!("token {id}"),
    }
}

#[cfg(test)]
mod tests {
    use zkmoe_prover::import::config::Config;

    use super::*;

    fn tokenizer() -> Tokenizer {
        Tokenizer::from_json(include_bytes!("../data/olmoe-tiny/tokenizer.json")).unwrap()
    }

    fn header() -> Header {
        let config = Config::parse(include_bytes!("../data/olmoe-tiny/config.json")).unwrap();
        crate::neutral::header(&config).unwrap()
    }

    fn reply() -> Reply {
        let tokenizer = tokenizer();
        let (prompt, response) = ("Once upon a time", " there was a reply");
        Reply {
            version: REPLY_VERSION,
            prompt: prompt.to_owned(),
            response: response.to_owned(),
            prompt_ids: tokenizer.encode(prompt).unwrap(),
            response_ids: tokenizer.encode(response).unwrap(),
            max_tokens: 40,
            decoding: Decoding::Greedy,
            ended: Ended::Overflow,
        }
    }

    #[test]
    fn files_round_trip() {
        let reply = reply();
        let text = serde_json::to_string(&reply).unwrap();
        assert!(
            text.contains(r#""decoding":"greedy","ended":"overflow""#),
            "{text}"
        );
        assert_eq!(Reply::parse(text.as_bytes()).unwrap(), reply);
        assert_eq!(reply.check(&tokenizer(), &header()), Ok(()));
    }

    #[test]
    fn damaged_files_name_the_field() {
        let text = serde_json::to_string(&reply()).unwrap();
        for (from, to, named) in [
            (r#""version":1"#, r#""version":2"#, "version"),
            (r#""version":1,"#, "", "version"),
            (r#""version":1"#, r#""version":1,"version":1"#, "version"),
            ("greedy", "beam", "beam"),
            ("response_ids", "ids", "`ids`"),
            (r#""max_tokens":40"#, r#""max_tokens":-1"#, "-1"),
        ] {
            let error = Reply::parse(text.replacen(from, to, 1).as_bytes()).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn edits_are_found_where_they_are() {
        let (tokenizer, header) = (tokenizer(), header());
        let error = |edit: fn(&mut Reply)| {
            let mut reply = reply();
            edit(&mut reply);
            reply.check(&tokenizer, &header).unwrap_err()
        };
        assert!(error(|r| r.prompt.push('!')).contains("`prompt_ids`"));
        assert!(error(|r| r.prompt_ids[2] += 1).contains("token 3"));
        assert!(error(|r| r.response.replace_range(7..8, "W")).contains("character 8"));
        assert!(error(|r| r.response_ids[0] = 1 << 30).contains("`response_ids`"));
        assert!(error(|r| r.response_ids.clear()).contains("`response_ids` is empty"));
        assert!(error(|r| r.max_tokens = 1).contains("`max_tokens`"));
    }

    #[test]
    fn how_a_reply_ended_is_what_its_tokens_say() {
        let (tokenizer, header) = (tokenizer(), header());
        let all = [Ended::Eos, Ended::Limit, Ended::Context, Ended::Overflow];
        let only = |edit: &dyn Fn(&mut Reply), expected: Ended| {
            let mut reply = reply();
            edit(&mut reply);
            for ended in all {
                reply.ended = ended;
                let checked = reply.check(&tokenizer, &header);
                if ended == expected {
                    assert_eq!(checked, Ok(()));
                } else {
                    let error = checked.unwrap_err();
                    assert!(error.contains("`ended`"), "{error}");
                    assert!(error.ends_with(expected.words()), "{error}");
                }
            }
        };
        only(&|_| (), Ended::Overflow);
        let end = |r: &mut Reply| r.response_ids.push(header.eos_token);
        only(&end, Ended::Eos);
        // The end of the text comes before the limit.
        only(
            &|r| {
                end(r);
                r.max_tokens = r.response_ids.len() as u32;
            },
            Ended::Eos,
        );
        let at_limit = |r: &mut Reply| r.max_tokens = r.response_ids.len() as u32;
        only(&at_limit, Ended::Limit);
        let full = |r: &mut Reply| {
            let context = header.sizes.max_position_embeddings;
            r.max_tokens = context as u32;
            r.response_ids = vec![r.response_ids[0]; context - r.prompt_ids.len()];
            r.response = tokenizer.decode(&r.response_ids).unwrap();
        };
        only(&full, Ended::Context);
        only(
            &|r| {
                full(r);
                r.response_ids.pop();
                r.response = tokenizer.decode(&r.response_ids).unwrap();
            },
            Ended::Overflow,
        );
    }
}
