//! The files of a checkpoint that is imported.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use zkmoe::prover::import::config::Config;
use zkmoe::prover::import::tensors::{Checkpoint, Shard, expected_tensors, parse_index};
use zkmoe::prover::map::Bytes;

use super::numbered;

/// A `config.json`. Sizes that are accepted are those that a header may have, and the tensors that they ask for can be
/// listed.
pub fn config(data: &[u8]) {
    let Ok(config) = Config::parse(data) else {
        return;
    };
    assert_eq!(config.sizes.check(), Ok(()));
    let vocab = config.sizes.vocab_size as u32;
    assert!(config.eos_token < vocab && config.pad_token < vocab);
    if config.sizes.num_hidden_layers * config.sizes.num_experts <= 1 << 10 {
        let _ = expected_tensors(&config);
    }
}

fn small() -> Value {
    json!({"architectures": ["OlmoeForCausalLM"], "model_type": "olmoe", "hidden_act": "silu", "hidden_size": 4,
        "intermediate_size": 2, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
        "num_experts": 2, "num_experts_per_tok": 1, "max_position_embeddings": 8, "vocab_size": 3, "eos_token_id": 0,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0})
}

/// The built-in one, a small one and one in a newer style.
pub fn config_seeds() -> Vec<(String, Vec<u8>)> {
    let mut newer = small();
    newer["rope_theta"] = Value::Null;
    newer["rope_parameters"] = json!({"rope_type": "default", "rope_theta": 500_000.0});
    newer["tie_word_embeddings"] = true.into();
    newer["pad_token_id"] = 2.into();
    numbered([
        include_bytes!("../../../data/olmoe-tiny/config.json").to_vec(),
        small().to_string().into_bytes(),
        newer.to_string().into_bytes(),
    ])
}

fn small_config() -> Config {
    Config::parse(small().to_string().as_bytes()).expect("a small configuration")
}

/// A safetensors file from its header, whose length is put in front, and its data.
fn shard(name: &str, header: &[u8], data: &[u8]) -> Shard {
    Shard {
        name: name.to_owned(),
        promised: None,
        bytes: Bytes::Owned([&(header.len() as u64).to_le_bytes(), header, data].concat()),
    }
}

/// The text before the first zero byte, and what follows it.
fn cut(data: &[u8]) -> (&[u8], &[u8]) {
    let at = data
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(data.len());
    (&data[..at], data.get(at + 1..).unwrap_or_default())
}

/// The tensors of a small configuration, as the first byte says: 0: one file as it is; 1: one file without the length of
/// its header, which ends at the first zero byte; 2: an index, which ends there too, and two files like that with the same data.
/// What is accepted has all tensors, in their shapes, and no number that is not finite.
pub fn safetensors(data: &[u8]) {
    let Some((&which, data)) = data.split_first() else {
        return;
    };
    let config = small_config();
    let shards = match which % 3 {
        0 => vec![Shard {
            name: "one".to_owned(),
            promised: None,
            bytes: Bytes::Owned(data.to_vec()),
        }],
        1 => {
            let (header, data) = cut(data);
            vec![shard("one", header, data)]
        }
        _ => {
            let (index, rest) = cut(data);
            let Ok(files) = parse_index(index) else {
                return;
            };
            let (first, rest) = cut(rest);
            let (second, data) = cut(rest);
            files
                .into_iter()
                .zip([first, second])
                .map(|((name, promised), header)| Shard {
                    promised: Some(promised),
                    ..shard(&name, header, data)
                })
                .collect()
        }
    };
    let Ok(checkpoint) = Checkpoint::of_shards(shards.into_iter().map(Ok), &config) else {
        return;
    };
    for (name, shape) in expected_tensors(&config) {
        let tensor = checkpoint.tensor(&name);
        assert_eq!(tensor.len(), shape.iter().product::<usize>(), "{name}");
        assert!(tensor.iter().all(|x| x.is_finite()), "{name}");
    }
}

/// A checkpoint in one file, with all types, and one in two files.
pub fn safetensors_seeds() -> Vec<(String, Vec<u8>)> {
    let expected = expected_tensors(&small_config());
    let header = |names: &[&String], types: &[(&str, usize)]| {
        let mut end = 0;
        let mut entries = serde_json::Map::new();
        for (n, &name) in names.iter().enumerate() {
            let (float, bytes) = types[n % types.len()];
            let (start, shape) = (end, &expected[name]);
            end += bytes * shape.iter().product::<usize>();
            entries.insert(
                name.clone(),
                json!({"dtype": float, "shape": shape, "data_offsets": [start, end]}),
            );
        }
        (Value::Object(entries).to_string().into_bytes(), end)
    };
    let all: Vec<&String> = expected.keys().collect();
    let (single, bytes) = header(&all, &[("F32", 4), ("F16", 2), ("BF16", 2)]);
    let data = vec![0x30; bytes];
    let length = (single.len() as u64).to_le_bytes();
    let whole = [&[0], &length[..], &single, &data].concat();
    let one = [&[1], &single[..], &[0], &data].concat();
    // Two files of the same length, so that they have the same data: tensors are of two sizes only if their order is kept.
    let half = |odd: usize| -> Vec<&String> {
        all.iter()
            .copied()
            .enumerate()
            .filter(|(n, _)| n % 2 == odd)
            .map(|(_, name)| name)
            .collect()
    };
    let (first, second) = (half(0), half(1));
    let map: BTreeMap<&String, &str> = first
        .iter()
        .map(|&name| (name, "1.safetensors"))
        .chain(second.iter().map(|&name| (name, "2.safetensors")))
        .collect();
    let index = json!({"metadata": {}, "weight_map": map}).to_string();
    let ((a, n), (b, _)) = (
        header(&first, &[("BF16", 2)]),
        header(&second, &[("BF16", 2)]),
    );
    let two = [
        &[2],
        index.as_bytes(),
        &[0],
        &a,
        &[0],
        &b,
        &[0],
        &vec![0x30; n],
    ]
    .concat();
    numbered([whole, one, two])
}
