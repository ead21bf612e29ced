//! Checkpoints that are made to hurt. Each has to be refused with an error that names the file and the field and says
//! what to do, and nothing may be left of the import.
//!
//! Every case starts from a folder that is imported without complaint.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use zkmoe::prover::import::config::Config;
use zkmoe::prover::import::tensors::expected_tensors;
use zkmoe::prover::import::{ImportError, ImportOptions, import};

#[cfg(target_os = "linux")]
mod measure;

const TOKENIZER: &[u8] = include_bytes!("../data/olmoe-tiny/tokenizer.json");
const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// A folder that is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("import-{name}"));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn config() -> Value {
    json!({"model_type": "olmoe", "hidden_size": 8, "intermediate_size": 4, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 1, "num_experts": 2, "num_experts_per_tok": 1,
        "max_position_embeddings": 64, "vocab_size": 2048, "eos_token_id": 0})
}

/// A tensor in a file.
#[derive(Clone)]
struct Tensor {
    name: String,
    dtype: &'static str,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

/// The tensors of the configuration, with weights of a sensible size.
fn tensors() -> Vec<Tensor> {
    let config = Config::parse(config().to_string().as_bytes()).unwrap();
    let mut noise = blake3::Hasher::new_derive_key("weights of a test").finalize_xof();
    let mut weight = |gain: bool| {
        let mut byte = [0];
        noise.fill(&mut byte);
        let x = f32::from(byte[0]) / 128.0 - 1.0;
        (if gain { 1.0 + 0.1 * x } else { 0.6 * x }).to_le_bytes()
    };
    let filled = |(name, shape): (String, Vec<usize>)| {
        let gain = shape.len() == 1;
        let cells = shape.iter().product::<usize>();
        Tensor {
            name,
            dtype: "F32",
            bytes: (0..cells).flat_map(|_| weight(gain)).collect(),
            shape,
        }
    };
    expected_tensors(&config).into_iter().map(filled).collect()
}

/// The header of a file with these tensors one after the other, and its data.
fn parts(tensors: &[Tensor]) -> (Value, Vec<u8>) {
    let (mut header, mut data) = (json!({}), Vec::new());
    for t in tensors {
        let from = data.len();
        data.extend(&t.bytes);
        let offsets = [from, data.len()];
        header[&t.name] = json!({"dtype": t.dtype, "shape": t.shape, "data_offsets": offsets});
    }
    (header, data)
}

/// A safetensors file with any header.
fn file(header: &str, data: &[u8]) -> Vec<u8> {
    let length = (header.len() as u64).to_le_bytes();
    [&length[..], header.as_bytes(), data].concat()
}

fn safetensors(tensors: &[Tensor]) -> Vec<u8> {
    let (header, data) = parts(tensors);
    file(&header.to_string(), &data)
}

/// A folder that can be imported, in one file or with an index.
struct Checkpoint<'a>(&'a Path);

impl Checkpoint<'_> {
    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.0.join(name), content).unwrap();
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.0.join(name)).unwrap();
    }

    fn fill(&self) {
        self.write("config.json", config().to_string());
        self.write("tokenizer.json", TOKENIZER);
        self.write(SINGLE, safetensors(&tensors()));
    }

    /// Changes an option of the configuration.
    fn option(&self, name: &str, value: Value) {
        let mut config = config();
        config[name] = value;
        self.write("config.json", config.to_string());
    }

    /// Changes the header, as JSON.
    fn header(&self, change: impl FnOnce(&mut Value)) {
        let (mut header, data) = parts(&tensors());
        change(&mut header);
        self.write(SINGLE, file(&header.to_string(), &data));
    }

    /// Changes the header, as text.
    fn header_text(&self, change: impl FnOnce(String) -> String) {
        let (header, data) = parts(&tensors());
        self.write(SINGLE, file(&change(header.to_string()), &data));
    }

    /// Changes the tensor of this name.
    fn tensor(&self, name: &str, change: impl FnOnce(&mut Tensor)) {
        let mut tensors = tensors();
        change(tensors.iter_mut().find(|t| t.name == name).unwrap());
        self.write(SINGLE, safetensors(&tensors));
    }

    fn tokenizer(&self, change: impl FnOnce(&mut Value)) {
        let mut json = serde_json::from_slice(TOKENIZER).unwrap();
        change(&mut json);
        self.write("tokenizer.json", json.to_string());
    }

    /// Two files and their index, after some change of what the index says.
    fn sharded(&self, change: impl FnOnce(&mut Value)) {
        self.remove(SINGLE);
        let tensors = tensors();
        let (a, b) = tensors.split_at(4);
        let mut index = json!({"metadata": {}, "weight_map": {}});
        for (name, part) in [("a.safetensors", a), ("b.safetensors", b)] {
            self.write(name, safetensors(part));
            part.iter()
                .for_each(|t| index["weight_map"][&t.name] = name.into());
        }
        change(&mut index);
        self.write(INDEX, index.to_string());
    }
}

/// Nested so deep that a reader by recursion would leave its stack.
fn deep() -> String {
    "[".repeat(1 << 20)
}

const NORM: &str = "model.norm.weight";
const EMBEDDING: &str = "model.embed_tokens.weight";
const OUT: &str = "model.layers.0.self_attn.o_proj.weight";
const QUERY: &str = "model.layers.0.self_attn.q_proj.weight";

/// What is done to a checkpoint, and what has to be in the error.
type Case = (&'static str, Spoil, &'static [&'static str]);

/// What makes a good checkpoint a hostile one.
type Spoil = fn(&Checkpoint);

const CONFIGURATIONS: &[Case] = &[
    (
        "no config.json",
        |c| c.remove("config.json"),
        &["config.json"],
    ),
    (
        "an empty config.json",
        |c| c.write("config.json", ""),
        &["config.json"],
    ),
    (
        "a config.json that is a list",
        |c| c.write("config.json", "[1]"),
        &["config.json", "no object"],
    ),
    (
        "a config.json without end",
        |c| c.write("config.json", deep()),
        &["config.json"],
    ),
    (
        "a config.json in a folder of its name",
        |c| {
            c.remove("config.json");
            fs::create_dir(c.0.join("config.json")).unwrap();
        },
        &["config.json", "not a regular file"],
    ),
    (
        "an option twice",
        |c| {
            let text = config().to_string();
            c.write("config.json", text.replacen('{', r#"{"vocab_size":7,"#, 1));
        },
        &["config.json", "`vocab_size` occurs twice"],
    ),
    (
        "fewer than no experts",
        |c| c.option("num_experts", json!(-2)),
        &["`num_experts` is -2"],
    ),
    (
        "half a layer",
        |c| c.option("num_hidden_layers", json!(0.5)),
        &["`num_hidden_layers` is 0.5"],
    ),
    (
        "layers without end",
        |c| c.option("num_hidden_layers", json!(1 << 24)),
        &[
            "config.json",
            "`num_hidden_layers` is 16777216, at most 256",
        ],
    ),
    (
        "a number that no machine has",
        |c| c.option("hidden_size", json!(1e300)),
        &["config.json", "`hidden_size` is 1e+300"],
    ),
    (
        "heads whose number wraps around",
        |c| {
            let mut wide = config();
            for (name, value) in [("num_attention_heads", 1 << 23), ("hidden_size", 1 << 24)] {
                wide[name] = value.into();
            }
            c.write("config.json", wide.to_string());
        },
        &["config.json", "is 16777216, at most 16384"],
    ),
    (
        "a size as text",
        |c| c.option("vocab_size", json!("2048")),
        &["`vocab_size` is \"2048\""],
    ),
    (
        "a size that is missing",
        |c| c.option("intermediate_size", Value::Null),
        &["lacks `intermediate_size`"],
    ),
    (
        "an unknown option",
        |c| c.option("sliding_window", json!(8)),
        &["`sliding_window`", "8"],
    ),
    (
        "an end beyond the vocabulary",
        |c| c.option("eos_token_id", json!(2048)),
        &["`eos_token_id` is 2048"],
    ),
    (
        "another width than the tensors have",
        |c| c.option("hidden_size", json!(16)),
        &[SINGLE, "tensor `", "has shape", "needs"],
    ),
    (
        "more experts than there are",
        |c| c.option("num_experts", json!(3)),
        &[SINGLE, "mlp.gate.weight", "needs [3, 8]"],
    ),
    (
        "a head beside one that is the embedding",
        |c| c.option("tie_word_embeddings", json!(true)),
        &[SINGLE, "`lm_head.weight` is no part"],
    ),
    (
        "a config.json that is long",
        |c| c.write("config.json", " ".repeat((1 << 20) + 1)),
        &["config.json", "1048577 bytes, at most 1048576"],
    ),
];

const HEADERS: &[Case] = &[
    (
        "an empty file",
        |c| c.write(SINGLE, ""),
        &[SINGLE, "0 bytes, and 8"],
    ),
    (
        "half a length",
        |c| c.write(SINGLE, [1; 4]),
        &[SINGLE, "4 bytes, and 8"],
    ),
    (
        "a header of 2^64 - 1 bytes",
        |c| c.write(SINGLE, [255; 64]),
        &[SINGLE, "18446744073709551615 bytes, at most"],
    ),
    (
        "a header that is longer than the file",
        |c| c.write(SINGLE, [&1000u64.to_le_bytes()[..], b"{}"].concat()),
        &[SINGLE, "header has 1000 bytes, the file has 2"],
    ),
    (
        "no header",
        |c| c.write(SINGLE, file("", b"")),
        &[SINGLE, "header"],
    ),
    (
        "a header that is no UTF-8",
        |c| c.write(SINGLE, [&4u64.to_le_bytes()[..], b"{\"\xff\""].concat()),
        &[SINGLE, "header"],
    ),
    (
        "a header that is a list",
        |c| c.header_text(|_| "[]".into()),
        &[SINGLE, "header", "an object"],
    ),
    (
        "a header without end",
        |c| c.header_text(|_| deep()),
        &[SINGLE, "header"],
    ),
    (
        "texts about the file without end",
        |c| c.header_text(|h| h.replacen('{', &format!("{{\"__metadata__\":{},", deep()), 1)),
        &[SINGLE, "header"],
    ),
    (
        "texts about the file that are none",
        |c| c.header(|h| h["__metadata__"] = json!({"a": [1]})),
        &[SINGLE, "header"],
    ),
    (
        "a tensor twice",
        |c| {
            c.header_text(|h| {
                let again =
                    format!(r#"{{"{NORM}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}},"#);
                h.replacen('{', &again, 1)
            });
        },
        &[SINGLE, "`model.norm.weight` occurs twice"],
    ),
    (
        "a field of a tensor twice",
        |c| {
            c.header_text(|h| {
                h.replacen(r#"{"data_offsets""#, r#"{"dtype":"F16","data_offsets""#, 1)
            });
        },
        &[SINGLE, "tensor `", "duplicate field `dtype`"],
    ),
    (
        "a tensor without a type",
        |c| c.header(|h| h[NORM] = json!({"shape": [8], "data_offsets": [0, 32]})),
        &[SINGLE, NORM, "`dtype`"],
    ),
    (
        "a tensor that is a number",
        |c| c.header(|h| h[NORM] = json!(7)),
        &[SINGLE, NORM],
    ),
    (
        "a field that is unknown",
        |c| c.header(|h| h[NORM]["strides"] = json!([1])),
        &[SINGLE, NORM, "`strides`"],
    ),
    (
        "a negative size",
        |c| c.header(|h| h[NORM]["shape"] = json!([-8])),
        &[SINGLE, NORM, "-8"],
    ),
    (
        "a size that is no whole number",
        |c| c.header(|h| h[NORM]["shape"] = json!([8.5])),
        &[SINGLE, NORM, "8.5"],
    ),
    (
        "sizes whose product wraps around",
        |c| c.header(|h| h[NORM]["shape"] = json!([1u64 << 33, 1u64 << 31])),
        &[SINGLE, NORM, "more cells than there can be"],
    ),
    (
        "bytes whose number wraps around",
        |c| c.header(|h| h[NORM]["shape"] = json!([(1u64 << 62) + 8])),
        &[SINGLE, NORM, "more cells than there can be"],
    ),
    (
        "a tensor with a million axes",
        |c| c.header(|h| h[NORM]["shape"] = vec![1; 1_000_000].into()),
        &[SINGLE, NORM, "1000000 axes"],
    ),
    (
        "offsets in the wrong order",
        |c| c.header(|h| h[NORM]["data_offsets"] = json!([64, 32])),
        &[SINGLE, NORM, "`data_offsets` 64 to 32"],
    ),
    (
        "offsets beyond the file",
        |c| c.header(|h| h[NORM]["data_offsets"] = json!([1u64 << 40, (1u64 << 40) + 32])),
        &[SINGLE, "invalid offset", "`model."],
    ),
    (
        "the largest offsets",
        |c| c.header(|h| h[NORM]["data_offsets"] = json!([u64::MAX - 32, u64::MAX])),
        &[SINGLE, "invalid offset", "`model."],
    ),
    (
        "two tensors in one place",
        |c| c.header(|h| h[OUT]["data_offsets"] = h[QUERY]["data_offsets"].clone()),
        &[SINGLE, "invalid offset", "`model.layers.0.self_attn."],
    ),
    (
        "a hole between two tensors",
        |c| {
            c.header(|h| {
                for entry in h.as_object_mut().unwrap().values_mut() {
                    for offset in entry["data_offsets"].as_array_mut().unwrap() {
                        *offset = (offset.as_u64().unwrap() + 4).into();
                    }
                }
            });
        },
        &[SINGLE, "invalid offset", "`"],
    ),
    (
        "bytes behind the last tensor",
        |c| c.write(SINGLE, [safetensors(&tensors()), vec![0; 4]].concat()),
        &[SINGLE, "not fully covered"],
    ),
    (
        "a file that ends early",
        |c| {
            let whole = safetensors(&tensors());
            c.write(SINGLE, &whole[..whole.len() - 4]);
        },
        &[SINGLE, "not fully covered"],
    ),
];

const TENSORS: &[Case] = &[
    (
        "whole numbers",
        |c| c.tensor(NORM, |t| t.dtype = "I32"),
        &[SINGLE, NORM, "has type I32", "F32, F16, BF16"],
    ),
    (
        "a type that there is not",
        |c| c.tensor(NORM, |t| t.dtype = "F8_Q9"),
        &[SINGLE, "F8_Q9"],
    ),
    (
        "a type of another width",
        |c| c.tensor(NORM, |t| t.dtype = "F16"),
        &[SINGLE, NORM, "need 16 bytes"],
    ),
    (
        "a matrix that is turned",
        |c| c.tensor(EMBEDDING, |t| t.shape.reverse()),
        &[SINGLE, EMBEDDING, "has shape [8, 2048], needs [2048, 8]"],
    ),
    (
        "a tensor that is missing",
        |c| c.write(SINGLE, safetensors(&tensors()[1..])),
        &[SINGLE, "tensor `lm_head.weight` is missing"],
    ),
    (
        "a bias",
        |c| {
            let mut more = tensors();
            let bias = Tensor {
                name: "model.layers.0.self_attn.q_proj.bias".into(),
                ..more[0].clone()
            };
            more.push(bias);
            c.write(SINGLE, safetensors(&more));
        },
        &[SINGLE, "`model.layers.0.self_attn.q_proj.bias` is no part"],
    ),
    (
        "not a number",
        |c| {
            c.tensor(OUT, |t| {
                t.bytes[8..12].copy_from_slice(&f32::NAN.to_le_bytes());
            });
        },
        &[SINGLE, OUT, "not a finite number"],
    ),
    (
        "infinity in half precision",
        |c| {
            c.tensor(OUT, |t| {
                t.dtype = "F16";
                t.bytes.truncate(t.bytes.len() / 2);
                t.bytes[..2].copy_from_slice(&0xfc00u16.to_le_bytes());
                t.bytes[2..].fill(0);
            });
        },
        &[SINGLE, OUT, "not a finite number"],
    ),
    (
        "not a number in bfloat16",
        |c| {
            c.tensor(OUT, |t| {
                t.dtype = "BF16";
                t.bytes.truncate(t.bytes.len() / 2);
                t.bytes.fill(0x7f);
                t.bytes[1..].fill(0);
                t.bytes[3] = 0x7f;
                t.bytes[2] = 0xff;
            });
        },
        &[SINGLE, OUT, "not a finite number"],
    ),
    (
        "weights beside which the embedding vanishes",
        |c| scale(c, OUT, 1e38),
        &["tensor `emb`", "round to zero"],
    ),
    (
        "weights beside which all others vanish",
        |c| scale(c, EMBEDDING, 1e30),
        &["tensor `", "round to zero"],
    ),
];

/// Multiplies all values of a tensor.
fn scale(c: &Checkpoint, name: &str, by: f32) {
    c.tensor(name, |t| {
        let values = t.bytes.as_chunks::<4>().0.to_vec();
        let scaled = values.iter().map(|&b| f32::from_le_bytes(b) * by);
        t.bytes = scaled.flat_map(f32::to_le_bytes).collect();
    });
}

/// Sets the file of the embedding in the index.
fn lies_in(c: &Checkpoint, name: &str) {
    c.sharded(|index| index["weight_map"][EMBEDDING] = name.into());
}

const INDICES: &[Case] = &[
    ("no weights", |c| c.remove(SINGLE), &[SINGLE]),
    (
        "an index beside the single file",
        |c| c.write(INDEX, "{}"),
        &[INDEX, "lies beside"],
    ),
    (
        "an index that is no JSON",
        |c| {
            c.sharded(|_| ());
            c.write(INDEX, "{");
        },
        &[INDEX],
    ),
    (
        "an index without end",
        |c| {
            c.sharded(|_| ());
            c.write(INDEX, deep());
        },
        &[INDEX],
    ),
    (
        "an index of nothing",
        |c| c.sharded(|index| *index = json!({})),
        &[INDEX, "`weight_map`"],
    ),
    (
        "an index that lists no tensor",
        |c| c.sharded(|index| index["weight_map"] = json!({})),
        &[INDEX, "is missing"],
    ),
    (
        "a file whose name is a number",
        |c| c.sharded(|i| i["weight_map"][EMBEDDING] = json!(1)),
        &[INDEX, EMBEDDING, "no file name"],
    ),
    (
        "a file in the folder above",
        |c| lies_in(c, "../a.safetensors"),
        &[INDEX, "not a plain file name"],
    ),
    (
        "a file anywhere",
        |c| lies_in(c, "/etc/passwd"),
        &[INDEX, "not a plain file name"],
    ),
    (
        "a file in the folder above, elsewhere",
        |c| lies_in(c, "..\\a.safetensors"),
        &[INDEX, "not a plain file name"],
    ),
    (
        "the folder above",
        |c| lies_in(c, ".."),
        &[INDEX, "not a plain file name"],
    ),
    (
        "the folder itself",
        |c| lies_in(c, "."),
        &[INDEX, "not a plain file name"],
    ),
    (
        "a file without a name",
        |c| lies_in(c, ""),
        &[INDEX, "not a plain file name"],
    ),
    (
        "a file that is not there",
        |c| lies_in(c, "c.safetensors"),
        &["c.safetensors"],
    ),
    (
        "a file of another kind",
        |c| lies_in(c, "config.json"),
        &["a.safetensors", "against the index"],
    ),
    (
        "a tensor in two files",
        |c| {
            c.sharded(|_| ());
            c.write("b.safetensors", safetensors(&tensors()));
        },
        &["b.safetensors", "tensor `", "against the index"],
    ),
    (
        "a tensor in another file than the index says",
        |c| lies_in(c, "b.safetensors"),
        &[EMBEDDING, "against the index"],
    ),
    (
        "a tensor twice in the index",
        |c| {
            c.sharded(|_| ());
            let index = fs::read_to_string(c.0.join(INDEX)).unwrap();
            let again = format!(r#""weight_map":{{"{EMBEDDING}":"b.safetensors","#);
            c.write(INDEX, index.replacen(r#""weight_map":{"#, &again, 1));
        },
        &[INDEX, "`model.embed_tokens.weight` occurs twice"],
    ),
    (
        "a tensor that no file has",
        |c| c.sharded(|i| i["weight_map"]["bias"] = "a.safetensors".into()),
        &["a.safetensors", "tensor `bias`", "not there"],
    ),
];

const TEXTS: &[Case] = &[
    (
        "no tokenizer",
        |c| c.remove("tokenizer.json"),
        &["tokenizer.json"],
    ),
    (
        "a tokenizer that is no JSON",
        |c| c.write("tokenizer.json", b"{\"\xff\": 1}"),
        &["tokenizer.json"],
    ),
    (
        "a tokenizer without end",
        |c| c.write("tokenizer.json", deep()),
        &["tokenizer.json"],
    ),
    (
        "a tokenizer that is long",
        |c| {
            let file = OpenOptions::new()
                .write(true)
                .open(c.0.join("tokenizer.json"))
                .unwrap();
            file.set_len((1 << 26) + 1).unwrap();
        },
        &["tokenizer.json", "67108865 bytes, at most 33554432"],
    ),
    (
        "another kind of tokenizer",
        |c| c.tokenizer(|t| t["model"]["type"] = "Unigram".into()),
        &["tokenizer.json", "`model.type`", "Unigram"],
    ),
    (
        "tokens that are no bytes",
        |c| c.tokenizer(|t| t["pre_tokenizer"] = json!({"type": "Whitespace"})),
        &["tokenizer.json", "`pre_tokenizer`", "Whitespace"],
    ),
    (
        "a token beyond the vocabulary",
        |c| c.tokenizer(|t| t["model"]["vocab"]["zzzzzz"] = 2048.into()),
        &["tokenizer.json", "2048", "`vocab_size`", "config.json"],
    ),
    (
        "two tokens with one id",
        |c| c.tokenizer(|t| t["model"]["vocab"]["zzzzzz"] = 7.into()),
        &["tokenizer.json", "`model.vocab`: the id 7", "zzzzzz"],
    ),
    (
        "a token twice",
        |c| {
            let text = String::from_utf8(TOKENIZER.to_vec()).unwrap();
            c.write(
                "tokenizer.json",
                text.replacen("\"!\": 1,", "\"!\": 1, \"!\": 1,", 1),
            );
        },
        &["tokenizer.json", "`!` occurs twice"],
    ),
    (
        "an id below zero",
        |c| c.tokenizer(|t| t["model"]["vocab"]["!"] = json!(-1)),
        &["tokenizer.json", "`model.vocab`", "-1"],
    ),
    (
        "a merge of what is no token",
        |c| c.tokenizer(|t| t["model"]["merges"][0] = json!("qq zz")),
        &["tokenizer.json", "MergeType"],
    ),
    (
        "a configuration of the tokenizer that is no JSON",
        |c| c.write("tokenizer_config.json", "{"),
        &["tokenizer_config.json"],
    ),
    (
        "a configuration of the tokenizer without end",
        |c| c.write("tokenizer_config.json", deep()),
        &["tokenizer_config.json"],
    ),
    (
        "several chat templates",
        |c| {
            c.write(
                "tokenizer_config.json",
                r#"{"chat_template": [{"name": "a"}]}"#,
            );
        },
        &["tokenizer_config.json", "`chat_template`"],
    ),
    (
        "a chat template in a folder of its name",
        |c| fs::create_dir(c.0.join("chat_template.jinja")).unwrap(),
        &["chat_template.jinja", "not a regular file"],
    ),
];

/// Puts a link in the place of a file, which is moved out of the folder.
#[cfg(unix)]
fn link(c: &Checkpoint, name: &str) {
    let outside = c.0.with_extension("outside");
    fs::rename(c.0.join(name), &outside).unwrap();
    std::os::unix::fs::symlink(&outside, c.0.join(name)).unwrap();
}

#[cfg(unix)]
const LINKS: &[Case] = &[
    (
        "a config.json elsewhere",
        |c| link(c, "config.json"),
        &["config.json", "outside of the folder"],
    ),
    (
        "a tokenizer elsewhere",
        |c| link(c, "tokenizer.json"),
        &["tokenizer.json", "outside of the folder"],
    ),
    (
        "weights elsewhere",
        |c| link(c, SINGLE),
        &[SINGLE, "outside of the folder"],
    ),
    (
        "an index elsewhere",
        |c| {
            c.sharded(|_| ());
            link(c, INDEX);
        },
        &[INDEX, "outside of the folder"],
    ),
    (
        "a part of the weights elsewhere",
        |c| {
            c.sharded(|_| ());
            link(c, "a.safetensors");
        },
        &["a.safetensors", "outside of the folder"],
    ),
    (
        "a chat template that leads nowhere",
        |c| std::os::unix::fs::symlink("nowhere", c.0.join("chat_template.jinja")).unwrap(),
        &["chat_template.jinja"],
    ),
];

fn quietly(folder: &Path) -> Result<(), ImportError> {
    import(folder, &ImportOptions::default(), &|_, _, _| {}).map(|_| ())
}

/// Every case of a list, in one folder after the other; all that fail are told.
fn check(name: &str, cases: &[Case]) {
    let mut wrong = Vec::new();
    for (n, (case, change, parts)) in cases.iter().enumerate() {
        let scratch = Scratch::new(&format!("{name}-{n}"));
        let folder = scratch.0.join("checkpoint");
        fs::create_dir(&folder).unwrap();
        let checkpoint = Checkpoint(&folder);
        checkpoint.fill();
        change(&checkpoint);
        match quietly(&folder) {
            Ok(()) => wrong.push(format!("{case}: was imported")),
            Err(error) => {
                let message = error.to_string();
                let missing = parts.iter().find(|part| !message.contains(**part));
                if let Some(part) = missing {
                    wrong.push(format!("{case}: lacks {part:?}: {message}"));
                }
                if message.len() > 1000 || error.advice().is_empty() {
                    wrong.push(format!(
                        "{case}: {} characters, {:?}",
                        message.len(),
                        error.advice()
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_checkpoint_that_all_cases_change_can_be_imported() {
    for sharded in [false, true] {
        let scratch = Scratch::new("whole");
        let checkpoint = Checkpoint(&scratch.0);
        checkpoint.fill();
        if sharded {
            checkpoint.sharded(|_| ());
        }
        quietly(&scratch.0).unwrap();
    }
}

#[test]
fn configurations() {
    check("config", CONFIGURATIONS);
}

#[test]
fn headers_of_safetensors_files() {
    check("headers", HEADERS);
}

#[test]
fn tensors_and_their_values() {
    check("tensors", TENSORS);
}

#[test]
fn indices_and_their_files() {
    check("index", INDICES);
}

#[test]
fn tokenizers_and_templates() {
    check("texts", TEXTS);
}

#[cfg(unix)]
#[test]
fn links_out_of_the_folder() {
    check("links", LINKS);
}

/// Makes a file a gigabyte long, with a hole behind what it holds.
#[cfg(target_os = "linux")]
fn extend(folder: &Path, name: &str) {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(folder.join(name));
    file.unwrap().set_len(1 << 30).unwrap();
}

/// The command as a whole: exit code, advice, memory, and no file where the model would be.
#[cfg(target_os = "linux")]
#[test]
fn the_command_refuses_long_files_with_little_memory() {
    let scratch = Scratch::new("command");
    let folder = scratch.0.join("checkpoint");
    fs::create_dir(&folder).unwrap();
    let run = || measure::run(&scratch.0, &["import", "checkpoint", "--out", "model.zkm"]);
    let checkpoint = Checkpoint(&folder);
    checkpoint.fill();
    let honest = run();
    assert_eq!(honest.code, Some(0), "{}", honest.text);
    fs::remove_file(scratch.0.join("model.zkm")).unwrap();
    let report = |name: &str, ended: &measure::Ended| {
        let peak = measure::megabytes(ended.peak);
        println!("{name:44} {:7.3} s {peak:7.1} MB", ended.seconds);
    };
    report("honest", &honest);

    let cases: [(&str, Spoil, &str); 7] = [
        (
            "config.json",
            |c| extend(c.0, "config.json"),
            "config.json: has 1073741824 bytes",
        ),
        (
            "tokenizer.json",
            |c| extend(c.0, "tokenizer.json"),
            "tokenizer.json: has 1073741824 bytes",
        ),
        (
            "a chat template",
            |c| extend(c.0, "chat_template.jinja"),
            "chat_template.jinja: has 1073741824 bytes",
        ),
        (
            "an index",
            |c| {
                c.sharded(|_| ());
                extend(c.0, INDEX);
            },
            "index.json: has 1073741824 bytes",
        ),
        (
            "weights, extended",
            |c| extend(c.0, SINGLE),
            "not fully covered",
        ),
        (
            "weights of zeros",
            |c| {
                c.remove(SINGLE);
                extend(c.0, SINGLE);
            },
            "its header",
        ),
        (
            "a header as long as it may be",
            |c| {
                c.write(SINGLE, (1u64 << 26).to_le_bytes());
                extend(c.0, SINGLE);
            },
            "its header",
        ),
    ];
    for (name, change, text) in cases {
        fs::remove_dir_all(&folder).unwrap();
        fs::create_dir(&folder).unwrap();
        checkpoint.fill();
        change(&checkpoint);
        let ended = run();
        report(name, &ended);
        assert_eq!(ended.code, Some(2), "{name}\n{}", ended.text);
        assert!(ended.text.contains(text), "{name}\n{}", ended.text);
        assert!(
            ended.text.starts_with("error: checkpoint"),
            "{name}\n{}",
            ended.text
        );
        assert!(
            ended.text.lines().count() > 1,
            "{name}: no advice\n{}",
            ended.text
        );
        assert!(
            ended.peak <= honest.peak + measure::ROOM,
            "{name}: {:.1} MB, an honest checkpoint takes {:.1} MB",
            measure::megabytes(ended.peak),
            measure::megabytes(honest.peak)
        );
        let left: Vec<_> = fs::read_dir(&scratch.0)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .filter(|name| name != "checkpoint" && name != "state")
            .collect();
        assert!(left.is_empty(), "{name}: {left:?}");
    }
}
