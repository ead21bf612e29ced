//! Text to token ids and back.
//!
//! Wraps the `tokenizers` crate under two rules. Encoding adds nothing: no special token, no padding, no truncation,
//! whatever the file asks for, because the prompt that is proved has to be the prompt that the customer reads. Decoding
//! leaves special tokens out, so an end-of-text token at the end of a reply adds no text; where the exact ids matter, the
//! ids are compared, never the text.
//!
//! A tokenizer file may come from the party under suspicion, and the crate was not made for that: some components panic on
//! settings that no trainer writes, and chains of replacements grow a text without bound. So only the components that byte-level BPE
//! models use are let in, see [`Tokenizer::from_json`].

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use serde_json::Value;
use tokenizers::Tokenizer as Inner;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

use crate::json;

/// Why text or ids could not be converted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenizerError {
    /// The file is no tokenizer.
    #[error("tokenizer.json: {0}")]
    File(String),
    /// The text cannot be encoded.
    #[error("the tokenizer cannot encode this text: {0}")]
    Encode(String),
    /// The ids cannot be decoded.
    #[error("the tokenizer cannot decode these tokens: {0}")]
    Decode(String),
    /// A prompt is longer than any that a model of its context takes.
    #[error(
        "it has {bytes} bytes, and with a context of {context} tokens a prompt has at most {most}"
    )]
    Long {
        /// The bytes of the prompt.
        bytes: usize,
        /// The positions of the context.
        context: usize,
        /// The most bytes.
        most: usize,
    },
    /// An id names no token.
    #[error("the tokenizer has no token {0}")]
    UnknownToken(u32),
}

/// The most bytes of a token as it is written in a file. The longest published ones have a few hundred. Slips name tokens by
/// number, and a few bytes must not stand for many.
const MAX_TOKEN: usize = 1 << 10;
/// The most bytes of a prompt for each position of the context: over ten times what a token of running text has. To split a text
/// takes up to two hundred times its size, whatever it turns out to be.
const MAX_PROMPT: usize = 1 << 6;
/// The most bytes of all added tokens. The crate looks for them with an automaton that takes quadratic time to build.
const MAX_ADDED: usize = 1 << 20;

/// Refuses every component and setting but those listed here.
fn check_components(json: &Value) -> Result<(), TokenizerError> {
    let refuse = |field: &str, value: &Value| {
        Err(TokenizerError::File(format!(
            "`{field}` is {value}, which is not supported"
        )))
    };
    if !json.is_object() {
        return Err(TokenizerError::File("it is not a JSON object".into()));
    }
    for (field, allowed) in [
        ("normalizer", &["NFC", "NFD", "NFKC", "NFKD"][..]),
        ("pre_tokenizer", &["ByteLevel"]),
        ("decoder", &["ByteLevel"]),
    ] {
        let component = &json[field];
        let known = component["type"]
            .as_str()
            .is_some_and(|t| allowed.contains(&t));
        let absent = component.is_null() && field == "normalizer";
        if !(known || absent) {
            return refuse(field, &component["type"]);
        }
    }
    let model = &json["model"];
    if model["type"].as_str() != Some("BPE") {
        return refuse("model.type", &model["type"]);
    }
    // With dropout one text has many encodings; prefixes and suffixes are not byte-level.
    for field in ["dropout", "continuing_subword_prefix", "end_of_word_suffix"] {
        let value = &model[field];
        if !value.is_null() && value.as_str() != Some("") && value.as_f64() != Some(0.0) {
            return refuse(&format!("model.{field}"), value);
        }
    }
    Ok(())
}

/// Demands that every token has an id, and every id one token in the vocabulary and one of the added tokens. The crate would
/// keep one of several without a word, and two programs may keep two. An added token may repeat one of the
/// vocabulary; published files do, and the crate then takes the id from there.
fn check_ids(json: &Value) -> Result<(), TokenizerError> {
    let fault = |reason: String| Err(TokenizerError::File(reason));
    let Some(vocab) = json["model"]["vocab"].as_object() else {
        return fault("`model.vocab` is no object of tokens with their ids".into());
    };
    let Some(added) = json["added_tokens"]
        .as_array()
        .map(Vec::as_slice)
        .or_else(|| {
            let absent = json["added_tokens"].is_null();
            absent.then_some(&[][..])
        })
    else {
        return fault("`added_tokens` is no list".into());
    };
    let of_vocab = vocab.iter().map(|(token, id)| (token.as_str(), id));
    // Taking the spaces around it away takes time that grows faster than the text.
    let strips = |token: &&Value| ["lstrip", "rstrip"].iter().any(|side| token[side] == true);
    if let Some(blank) = added.iter().filter(strips).find(|token| {
        let content = token["content"].as_str().unwrap_or_default();
        content.trim().is_empty()
    }) {
        return fault(format!(
            "`added_tokens`: {} is white space and strips white space around it, which is not supported",
            blank["content"]
        ));
    }
    let of_added = added.iter().map(|token| {
        let content = token["content"].as_str().unwrap_or_default();
        (content, &token["id"])
    });
    let long = |field: &str, token: &str| {
        let start: String = token.chars().take(80).collect();
        let length = token.len();
        fault(format!(
            "`{field}`: {start:?}... has {length} bytes, at most {MAX_TOKEN} are supported"
        ))
    };
    if let Some((token, _)) = of_vocab.clone().find(|(token, _)| token.len() > MAX_TOKEN) {
        return long("model.vocab", token);
    }
    if let Some((token, _)) = of_added.clone().find(|(token, _)| token.len() > MAX_TOKEN) {
        return long("added_tokens", token);
    }
    let all: usize = of_added.clone().map(|(token, _)| token.len()).sum();
    if all > MAX_ADDED {
        return fault(format!(
            "`added_tokens` have {all} bytes together, at most {MAX_ADDED} are supported"
        ));
    }
    check_unique("model.vocab", of_vocab)?;
    check_unique("added_tokens", of_added)
}

/// Demands a token for every byte. The crate drops what it has no token for, and two texts would be one prompt.
fn check_bytes(json: &Value) -> Result<(), TokenizerError> {
    let vocab = &json["model"]["vocab"];
    let absent = ByteLevel::alphabet()
        .into_iter()
        .filter(|letter| vocab.get(letter.to_string()).is_none());
    match absent.min() {
        None => Ok(()),
        Some(letter) => Err(TokenizerError::File(format!(
            "`model.vocab` has no token for the byte that is written {letter:?}, so texts would lose it"
        ))),
    }
}

/// Demands that the ids of these tokens are different numbers.
fn check_unique<'a>(
    field: &str,
    tokens: impl Iterator<Item = (&'a str, &'a Value)>,
) -> Result<(), TokenizerError> {
    let show = |token: &str| token.chars().take(80).collect::<String>();
    let mut known: HashMap<u32, &str> = HashMap::new();
    for (token, id) in tokens {
        let Some(number) = id.as_u64().and_then(|id| u32::try_from(id).ok()) else {
            return Err(TokenizerError::File(format!(
                "`{field}`: the id of {:?} is {id}, no number of 32 bits",
                show(token)
            )));
        };
        if let Some(other) = known.insert(number, token) {
            return Err(TokenizerError::File(format!(
                "`{field}`: the id {number} belongs to two tokens, {:?} and {:?}",
                show(other),
                show(token)
            )));
        }
    }
    Ok(())
}

/// Refuses tokenizers in which two tokens have one id: two texts would be one prompt, and which of them a response shows
/// would be left to chance. The crate itself gives out ids that are taken where a vocabulary has gaps.
fn check_built(inner: &Inner) -> Result<(), TokenizerError> {
    let mut tokens: Vec<(u32, String)> = inner
        .get_vocab(true)
        .into_iter()
        .map(|(token, id)| (id, token))
        .collect();
    tokens.sort_unstable();
    match tokens.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        None => Ok(()),
        Some(pair) => Err(TokenizerError::File(format!(
            "`model.vocab` and `added_tokens` have the id {} for {:?} and for {:?}",
            pair[0].0, pair[0].1, pair[1].1
        ))),
    }
}

/// A tokenizer read from the bytes of `tokenizer.json`.
#[derive(Debug, Clone)]
pub struct Tokenizer(Inner);

impl Tokenizer {
    /// Reads `tokenizer.json`: byte-level BPE without dropout, and at most a Unicode normalization before it. The
    /// post-processor is left out, since it only adds special tokens and moves offsets.
    pub fn from_json(bytes: &[u8]) -> Result<Self, TokenizerError> {
        let file = |error: tokenizers::Error| TokenizerError::File(error.to_string());
        let mut json =
            json::parse(bytes).map_err(|error| TokenizerError::File(error.to_string()))?;
        check_components(&json)?;
        check_ids(&json)?;
        check_bytes(&json)?;
        json["post_processor"] = Value::Null;
        let mut inner = Inner::from_bytes(json.to_string()).map_err(file)?;
        inner.with_truncation(None).map_err(file)?;
        inner.with_padding(None);
        check_built(&inner)?;
        Ok(Self(inner))
    }

    /// The ids of a text. A special token that is spelled out in the text becomes that token.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        self.0
            .encode(text, false)
            .map(|encoding| encoding.get_ids().to_vec())
            .map_err(|error| TokenizerError::Encode(error.to_string()))
    }

    /// The ids of a prompt for a model with this many positions. Whoever serves and whoever verifies have to ask the same, or a
    /// reply could be served that nobody can check.
    ///
    /// An error beyond that is [`TokenizerError::Long`] if the text has more than 64 bytes for each position.
    pub fn encode_prompt(&self, text: &str, context: usize) -> Result<Vec<u32>, TokenizerError> {
        let (bytes, most) = (text.len(), context.saturating_mul(MAX_PROMPT));
        if bytes > most {
            return Err(TokenizerError::Long {
                bytes,
                context,
                most,
            });
        }
        self.encode(text)
    }

    /// The text of ids, without special tokens. Bytes that are no UTF-8 become U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> Result<String, TokenizerError> {
        self.text(ids, true)
    }

    /// The text of ids as [`Self::decode`] makes it, but with special tokens spelled out.
    pub fn spell(&self, ids: &[u32]) -> Result<String, TokenizerError> {
        self.text(ids, false)
    }

    /// The text of ids as [`Self::decode`] makes it, to be compared with another; `None` if it is so much longer that there is
    /// nothing to compare. A small file may name a long token many times, so that is found before the text is made.
    pub fn decode_beside(
        &self,
        ids: &[u32],
        other: &str,
    ) -> Result<Option<String>, TokenizerError> {
        let special = self.is_special();
        let shown: Vec<u32> = ids.iter().filter(|id| !special(id)).copied().collect();
        if self.least_bytes(&shown)? > 4 * other.len() + (1 << 16) {
            return Ok(None);
        }
        self.text(&shown, true).map(Some)
    }

    /// How many bytes the text of ids has at least: a letter of a token stands for a byte, and what is no UTF-8 is replaced by
    /// no fewer bytes.
    fn least_bytes(&self, ids: &[u32]) -> Result<usize, TokenizerError> {
        // The crate hands out copies of tokens, so each is asked for once.
        let mut known: HashMap<u32, usize> = HashMap::new();
        let mut sum = 0usize;
        for &id in ids {
            let letters = match known.entry(id) {
                Entry::Occupied(letters) => *letters.get(),
                Entry::Vacant(place) => {
                    let token = self.0.id_to_token(id);
                    // The crate drops ids that it does not know; a reply must not look shorter than it is.
                    let token = token.ok_or(TokenizerError::UnknownToken(id))?;
                    *place.insert(token.chars().count())
                }
            };
            sum = sum.saturating_add(letters);
        }
        Ok(sum)
    }

    fn text(&self, ids: &[u32], skip_special: bool) -> Result<String, TokenizerError> {
        self.least_bytes(ids)?;
        self.0
            .decode(ids, skip_special)
            .map_err(|error| TokenizerError::Decode(error.to_string()))
    }

    /// How many of `ids` are special tokens. In an encoded text these are the ones that it spells out; what decodes to text
    /// does not show them.
    pub fn special(&self, ids: &[u32]) -> usize {
        let special = self.is_special();
        ids.iter().filter(|id| special(id)).count()
    }

    fn is_special(&self) -> impl Fn(&u32) -> bool + use<> {
        let added = self.0.get_added_tokens_decoder();
        move |id| added.get(id).is_some_and(|token| token.special)
    }

    /// One more than the largest token id.
    pub fn id_bound(&self) -> u32 {
        let largest = self.0.get_vocab(true).into_values().max();
        largest.map_or(0, |id| id.saturating_add(1))
    }

    /// Starts to decode a reply as it grows.
    pub fn stream(&self) -> DecodeStream<'_> {
        DecodeStream {
            tokenizer: self,
            ids: Vec::new(),
            shown: String::new(),
        }
    }
}

/// Decodes a growing list of ids piece by piece. All pieces together are what [`Tokenizer::decode`] makes of the list.
#[derive(Debug)]
pub struct DecodeStream<'a> {
    tokenizer: &'a Tokenizer,
    ids: Vec<u32>,
    shown: String,
}

impl DecodeStream<'_> {
    /// Adds a token and returns the text that is complete now; empty while a character still lacks bytes.
    pub fn push(&mut self, id: u32) -> Result<String, TokenizerError> {
        self.ids.push(id);
        let text = self.tokenizer.decode(&self.ids)?;
        // A character that is cut off shows as replacement characters at the end, which the next token may mend.
        Ok(self.advance(text.trim_end_matches(char::REPLACEMENT_CHARACTER)))
    }

    /// Returns what is left at the end: replacement characters for bytes that never became a character.
    pub fn finish(mut self) -> Result<String, TokenizerError> {
        let text = self.tokenizer.decode(&self.ids)?;
        Ok(self.advance(&text))
    }

    fn advance(&mut self, text: &str) -> String {
        let Some(new) = text.strip_prefix(self.shown.as_str()) else {
            return String::new();
        };
        let new = new.to_owned();
        self.shown.push_str(&new);
        new
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bundled() -> Tokenizer {
        Tokenizer::from_json(include_bytes!("../../data/olmoe-tiny/tokenizer.json")).unwrap()
    }

    #[test]
    fn known_ids() {
        let tokenizer = bundled();
        let ids = tokenizer.encode("Once upon a time").unwrap();
        assert_eq!(ids, [47, 78, 377, 1663, 259, 660]);
        assert_eq!(tokenizer.decode(&ids).unwrap(), "Once upon a time");
        assert_eq!(tokenizer.id_bound(), 2048);
    }

    /// A token of the vocabulary and a special one, both as long as they may be, whose texts would be 64 MB each.
    #[test]
    fn long_tokens_that_are_named_often_are_not_spelled_out() {
        let mut json: Value =
            serde_json::from_slice(include_bytes!("../../data/olmoe-tiny/tokenizer.json")).unwrap();
        let long = |letter: &str| letter.repeat(MAX_TOKEN);
        json["model"]["vocab"][long("Z")] = 2048.into();
        let mut special = json["added_tokens"][0].clone();
        special["content"] = long("<").into();
        special["id"] = 2049.into();
        json["added_tokens"].as_array_mut().unwrap().push(special);
        let tokenizer = Tokenizer::from_json(json.to_string().as_bytes()).unwrap();
        let often = |id: u32| vec![id; 1 << 16];
        assert_eq!(tokenizer.decode_beside(&often(2048), "Z").unwrap(), None);
        let silent = tokenizer.decode_beside(&often(2049), "Z").unwrap();
        assert_eq!(silent.as_deref(), Some(""));
        let once = tokenizer.decode_beside(&[2048], &long("Z")).unwrap();
        assert_eq!(once, Some(long("Z")));
        let near = tokenizer.decode_beside(&[47, 78], "").unwrap();
        assert_eq!(near, Some(tokenizer.decode(&[47, 78]).unwrap()));
        let unknown = tokenizer.decode_beside(&[5000], "Z").unwrap_err();
        assert!(matches!(unknown, TokenizerError::UnknownToken(5000)));
    }

    #[test]
    fn end_of_text_is_silent() {
        let tokenizer = bundled();
        let ids = tokenizer.encode("so be it<|endoftext|>").unwrap();
        assert_eq!(ids.last(), Some(&0));
        assert_eq!(tokenizer.decode(&ids).unwrap(), "so be it");
        assert_eq!(tokenizer.special(&ids), 1);
        let plain = tokenizer.encode("so be it<|endoftext").unwrap();
        assert_eq!(tokenizer.special(&plain), 0);
    }

    #[test]
    fn unknown_ids_are_errors() {
        let error = bundled().decode(&[47, 2048]).unwrap_err();
        assert_eq!(error, TokenizerError::UnknownToken(2048));
    }

    #[test]
    fn no_tokenizer_is_an_error() {
        let error = Tokenizer::from_json(b"{}").unwrap_err();
        assert!(error.to_string().starts_with("tokenizer.json: "));
    }

    #[test]
    fn a_split_character_waits_for_its_bytes() {
        let tokenizer = bundled();
        let ids = tokenizer.encode("a \u{1F980}!").unwrap();
        let mut stream = tokenizer.stream();
        let pieces: Vec<String> = ids.iter().map(|&id| stream.push(id).unwrap()).collect();
        assert!(pieces.iter().all(|p| !p.contains('\u{FFFD}')));
        assert!(pieces.iter().any(String::is_empty));
        assert_eq!(pieces.concat(), "a \u{1F980}!");
        assert_eq!(stream.finish().unwrap(), "");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn text_round_trips(text in "\\PC{0,40}") {
            let tokenizer = bundled();
            prop_assume!(!text.contains("<|endoftext|>"));
            let ids = tokenizer.encode(&text).unwrap();
            prop_assert_eq!(tokenizer.decode(&ids).unwrap(), text);
        }

        #[test]
        fn a_stream_shows_what_decode_shows(ids in prop::collection::vec(0..2048u32, 0..40)) {
            let tokenizer = bundled();
            let mut stream = tokenizer.stream();
            let mut text = String::new();
            for &id in &ids {
                text.push_str(&stream.push(id).unwrap());
            }
            text.push_str(&stream.finish().unwrap());
            prop_assert_eq!(text, tokenizer.decode(&ids).unwrap());
        }
    }

    /// Files that made the crate panic, grow without bound, or encode at random.
    #[test]
    fn hostile_and_foreign_components_are_refused() {
        type Change = dyn Fn(&mut Value);
        let bundled: Value =
            serde_json::from_slice(include_bytes!("../../data/olmoe-tiny/tokenizer.json")).unwrap();
        let with = |change: &Change| {
            let mut json = bundled.clone();
            change(&mut json);
            Tokenizer::from_json(json.to_string().as_bytes())
        };
        assert!(with(&|_| ()).is_ok());
        assert!(with(&|j| j["normalizer"] = serde_json::json!({"type": "NFC"})).is_ok());
        let refused: [(&str, &Change); 11] = [
            ("normalizer", &|j| {
                j["normalizer"] =
                    serde_json::json!({"type": "Precompiled", "precompiled_charsmap": "AAAA"});
            }),
            ("normalizer", &|j| {
                let twice = serde_json::json!({"type": "Replace", "pattern": {"String": "e"}, "content": "ee"});
                j["normalizer"] =
                    serde_json::json!({"type": "Sequence", "normalizers": vec![twice; 40]});
            }),
            ("pre_tokenizer", &|j| {
                j["pre_tokenizer"] = serde_json::json!({"type": "FixedLength", "length": 0});
            }),
            ("decoder", &|j| j["decoder"] = Value::Null),
            ("model.type", &|j| j["model"]["type"] = "WordPiece".into()),
            ("model.dropout", &|j| j["model"]["dropout"] = 0.5.into()),
            ("model.continuing_subword_prefix", &|j| {
                j["model"]["continuing_subword_prefix"] = "\u{e9}\u{e9}".into();
            }),
            ("model.vocab", &|j| {
                j["model"]["vocab"]
                    .as_object_mut()
                    .unwrap()
                    .remove("\u{100}");
            }),
            ("model.vocab", &|j| j["model"]["vocab"] = Value::Null),
            ("model.vocab", &|j| j["model"]["vocab"]["Once"] = 300.into()),
            // A token that is added gets the number of tokens as its id, which is taken where there are gaps.
            ("added_tokens", &|j| {
                let vocab = j["model"]["vocab"].as_object_mut().unwrap();
                let added = vocab.len();
                let last = vocab.values_mut().find(|id| id.as_u64() == Some(2047));
                *last.unwrap() = added.into();
                j["added_tokens"][0]["content"] = "<|other|>".into();
            }),
        ];
        for (field, change) in refused {
            let error = with(change).unwrap_err().to_string();
            assert!(error.contains(&format!("`{field}`")), "{error}");
        }
        // The post-processor never takes part.
        let template = serde_json::json!({"type": "TemplateProcessing", "single": [{"Sequence": {"id": "B"}}],
            "pair": [], "special_tokens": {}});
        let odd = with(&move |j| j["post_processor"] = template.clone()).unwrap();
        assert_eq!(
            odd.encode("a b").unwrap(),
            with(&|_| ()).unwrap().encode("a b").unwrap()
        );
        let ids: [(&str, &Change); 10] = [
            ("two tokens, \"!\" and \"\\\"\"", &|j| {
                let id = j["model"]["vocab"]["!"].clone();
                j["model"]["vocab"]["\""] = id;
            }),
            ("is -1, no number", &|j| {
                j["model"]["vocab"]["!"] = (-1).into();
            }),
            ("no number of 32 bits", &|j| {
                j["model"]["vocab"]["!"] = (1u64 << 32).into();
            }),
            ("`added_tokens`: the id 0 belongs to two tokens", &|j| {
                let added = j["added_tokens"][0].clone();
                j["added_tokens"] = vec![added.clone(), added].into();
            }),
            ("`model.vocab`: \"ZZZ", &|j| {
                j["model"]["vocab"]["Z".repeat(MAX_TOKEN + 1)] = 2048.into();
            }),
            ("`added_tokens`: \"<<<", &|j| {
                j["added_tokens"][0]["content"] = "<".repeat(1 << 20).into();
            }),
            ("`added_tokens` have 1048577 bytes together", &|j| {
                let mut added = vec![j["added_tokens"][0].clone(); 1025];
                for (n, token) in added.iter_mut().enumerate() {
                    let length = if n == 1024 { 1 } else { MAX_TOKEN };
                    token["content"] = "<".repeat(length).into();
                    token["id"] = (2048 + n).into();
                }
                j["added_tokens"] = added.into();
            }),
            ("strips white space around it", &|j| {
                j["added_tokens"][0]["content"] = " ".into();
                j["added_tokens"][0]["rstrip"] = true.into();
            }),
            ("`added_tokens` is no list", &|j| {
                j["added_tokens"] = 7.into();
            }),
            ("`model.vocab` is no object", &|j| {
                j["model"]["vocab"] = Value::Null;
            }),
        ];
        for (text, change) in ids {
            let error = with(change).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
        for no_object in ["[]", "1", "{}", "null"] {
            assert!(Tokenizer::from_json(no_object.as_bytes()).is_err());
        }
    }
}
