//! Replies and tokenizers.

use std::sync::OnceLock;

use serde_json::json;
use zkmoe::prover::tokenizer::Tokenizer;
use zkmoe::reply::Reply;

use super::numbered;
use crate::fixtures;

/// The tokenizer of the built-in model.
pub fn bundled() -> &'static Tokenizer {
    static BUNDLED: OnceLock<Tokenizer> = OnceLock::new();
    BUNDLED.get_or_init(|| {
        Tokenizer::from_json(include_bytes!("../../../data/olmoe-tiny/tokenizer.json"))
            .expect("the built-in tokenizer")
    })
}

/// A reply. What is read survives writing and reading; texts and ids are compared without a fault, and if they fit, they
/// still fit.
pub fn reply(data: &[u8]) {
    let Ok(reply) = Reply::parse(data) else {
        return;
    };
    let written = serde_json::to_vec(&reply).expect("a reply can be written");
    assert_eq!(Reply::parse(&written).as_ref(), Ok(&reply));
    // Whose header it is says no more than how a reply ends.
    if reply.check(bundled(), fixtures::model().header()).is_ok() {
        assert_eq!(
            bundled().encode(&reply.prompt).as_ref(),
            Ok(&reply.prompt_ids)
        );
    }
}

/// A reply that fits, and one that does not.
pub fn reply_seeds() -> Vec<(String, Vec<u8>)> {
    let reply = |prompt: &str, response: &str, limit: u32| {
        let encode = |text: &str| bundled().encode(text).expect("ids");
        let value = json!({
            "version": 1, "prompt": prompt, "response": response, "prompt_ids": encode(prompt),
            "response_ids": encode(response), "max_tokens": limit, "decoding": "greedy", "ended": "limit",
        });
        value.to_string().into_bytes()
    };
    numbered([
        reply("Once upon", " a time", 4),
        reply("a \u{1f980}!", "\u{e9}", 0),
    ])
}

/// A tokenizer and, behind the first zero byte, a text, which is encoded. Its ids and the numbers of its bytes are decoded, at once and
/// one by one, with the same result.
pub fn tokenizer(data: &[u8]) {
    let (json, text) = match data.iter().position(|&byte| byte == 0) {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (data, &b"so be it"[..]),
    };
    let Ok(tokenizer) = Tokenizer::from_json(json) else {
        return;
    };
    let _ = tokenizer.id_bound();
    let ids = tokenizer
        .encode(&String::from_utf8_lossy(text))
        .unwrap_or_default();
    let numbers: Vec<u32> = text.iter().map(|&byte| u32::from(byte)).collect();
    for ids in [ids, numbers] {
        let Ok(whole) = tokenizer.decode(&ids) else {
            continue;
        };
        let mut stream = tokenizer.stream();
        let mut pieces = String::new();
        for &id in &ids {
            pieces += &stream.push(id).expect("ids that can be decoded");
        }
        pieces += &stream.finish().expect("ids that can be decoded");
        assert_eq!(pieces, whole);
    }
}

/// A byte-level tokenizer with few merges, in some variants.
pub fn tokenizer_seeds() -> Vec<(String, Vec<u8>)> {
    let vocab = json!({"<|end|>": 0, "a": 1, "b": 2, "s": 3, "o": 4, "e": 5, "i": 6, "t": 7, "\u{120}": 8,
        "so": 9, "\u{120}b": 10, "it": 11});
    let special = json!([{"id": 0, "content": "<|end|>", "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false, "special": true}]);
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let merges = json!([["s", "o"], ["\u{120}", "b"], ["i", "t"]]);
    let file = |normalizer: serde_json::Value,
                special: &serde_json::Value,
                merges: serde_json::Value| {
        let json = json!({"version": "1.0", "truncation": null, "padding": null, "added_tokens": special,
            "normalizer": normalizer, "pre_tokenizer": byte_level, "post_processor": null, "decoder": byte_level,
            "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
                "vocab": vocab, "merges": merges}});
        [json.to_string().as_bytes(), b"\0so be it<|end|>"].concat()
    };
    let none = serde_json::Value::Null;
    numbered([
        file(none.clone(), &special, merges.clone()),
        file(json!({"type": "NFKC"}), &json!([]), merges),
        file(none, &special, json!(["s o", "i t"])),
    ])
}
