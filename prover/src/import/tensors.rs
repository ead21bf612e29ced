//! The float tensors of a checkpoint, read from safetensors files.
//!
//! The files are untrusted. Their headers are looked through entry by entry before any of them is kept ([`header`]), then
//! parsed by the checked parser of the `safetensors` crate, which refuses overlapping, missing or overlong ranges; on top
//! of that every tensor that the architecture has must be there exactly once with the exact shape, and nothing else: a bias
//! that nobody adds would be silently dropped otherwise. Not a number and infinity are refused before anything is computed.
//!
//! Files stay mapped, and a tensor becomes `f32` when it is asked for, so that a checkpoint larger than the memory can be
//! imported.

mod header;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use safetensors::{Dtype, SafeTensors};

use super::config::Config;
use super::folder::{Folder, FolderError, MAX_INDEX};
use crate::json;
use crate::map::Bytes;

/// Why the tensors of a checkpoint were refused.
#[derive(Debug, thiserror::Error)]
pub enum TensorError {
    /// A file cannot be read.
    #[error("{file}: {error}")]
    Io {
        /// The file.
        file: String,
        /// What the system said.
        error: io::Error,
    },
    /// A file is not read.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// A file is no safetensors file.
    #[error("{file}: {reason}")]
    Format {
        /// The file.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The index is not of the form `{"weight_map": {tensor: file}}`.
    #[error("model.safetensors.index.json: {0}")]
    Index(String),
    /// A tensor is not what the architecture needs.
    #[error("{file}: tensor `{tensor}` {reason}")]
    Tensor {
        /// The file that holds it, or should.
        file: String,
        /// The tensor.
        tensor: String,
        /// What is wrong with it.
        reason: String,
    },
}

fn tensor_error(file: &str, tensor: &str, reason: impl Into<String>) -> TensorError {
    TensorError::Tensor {
        file: file.to_owned(),
        tensor: tensor.to_owned(),
        reason: reason.into(),
    }
}

/// The float types that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Float {
    F32,
    F16,
    BF16,
}

/// Where a tensor lies.
#[derive(Debug, Clone)]
struct Location {
    file: usize,
    range: Range<usize>,
    float: Float,
}

/// The tensors of a checkpoint.
#[derive(Debug)]
pub struct Checkpoint {
    files: Vec<Bytes>,
    tensors: BTreeMap<String, Location>,
}

/// Names of the tensors of one block and of the rest; the only place that knows Hugging Face's naming.
pub mod names {
    /// Token embedding.
    pub const EMBEDDING: &str = "model.embed_tokens.weight";
    /// Gain of the last norm.
    pub const FINAL_NORM: &str = "model.norm.weight";
    /// Head.
    pub const HEAD: &str = "lm_head.weight";

    /// A tensor of block `layer`.
    pub fn layer(layer: usize, part: &str) -> String {
        format!("model.layers.{layer}.{part}.weight")
    }

    /// A projection of an expert.
    pub fn expert(layer: usize, expert: usize, part: &str) -> String {
        format!("model.layers.{layer}.mlp.experts.{expert}.{part}.weight")
    }
}

/// Every tensor of the architecture with its shape, output channels first.
pub fn expected_tensors(config: &Config) -> BTreeMap<String, Vec<usize>> {
    let sizes = &config.sizes;
    let hidden = sizes.hidden_size;
    let inner = sizes.intermediate_size;
    let (query, key) = (config.query_width(), config.key_width());
    let mut expected = BTreeMap::new();
    expected.insert(names::EMBEDDING.to_owned(), vec![sizes.vocab_size, hidden]);
    expected.insert(names::FINAL_NORM.to_owned(), vec![hidden]);
    if !config.tie_word_embeddings {
        expected.insert(names::HEAD.to_owned(), vec![sizes.vocab_size, hidden]);
    }
    for layer in 0..sizes.num_hidden_layers {
        for (part, shape) in [
            ("input_layernorm", vec![hidden]),
            ("post_attention_layernorm", vec![hidden]),
            ("self_attn.q_proj", vec![query, hidden]),
            ("self_attn.k_proj", vec![key, hidden]),
            ("self_attn.v_proj", vec![key, hidden]),
            ("self_attn.o_proj", vec![hidden, query]),
            ("self_attn.q_norm", vec![query]),
            ("self_attn.k_norm", vec![key]),
            ("mlp.gate", vec![sizes.num_experts, hidden]),
        ] {
            expected.insert(names::layer(layer, part), shape);
        }
        for expert in 0..sizes.num_experts {
            for (part, shape) in [
                ("gate_proj", vec![inner, hidden]),
                ("up_proj", vec![inner, hidden]),
                ("down_proj", vec![hidden, inner]),
            ] {
                expected.insert(names::expert(layer, expert, part), shape);
            }
        }
    }
    expected
}

/// A file and the tensors that the index promises in it; none where there is no index.
type Listed = (PathBuf, Option<BTreeSet<String>>);

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// The files of the checkpoint in `folder`.
fn list_files(folder: &Folder) -> Result<Vec<Listed>, TensorError> {
    let Some(index) = folder.find(INDEX)? else {
        return Ok(vec![(folder.require(SINGLE)?, None)]);
    };
    // Two answers to the question which weights these are is one too many.
    if folder.find(SINGLE)?.is_some() {
        return Err(TensorError::Index(
            "lies beside model.safetensors; remove the one that is out of date".to_owned(),
        ));
    }
    let files = parse_index(&super::folder::read(&index, MAX_INDEX)?)?;
    let listed = files.into_iter().map(|(file, tensors)| {
        let path = folder.require(&file)?;
        Ok::<Listed, TensorError>((path, Some(tensors)))
    });
    listed.collect()
}

/// Reads `model.safetensors.index.json`: the tensors that it promises in each file. Names of files are plain.
pub fn parse_index(bytes: &[u8]) -> Result<BTreeMap<String, BTreeSet<String>>, TensorError> {
    let value = json::parse(bytes).map_err(|e| TensorError::Index(e.to_string()))?;
    let map = value
        .get("weight_map")
        .and_then(|map| map.as_object())
        .ok_or_else(|| TensorError::Index("has no `weight_map` object".to_owned()))?;
    let mut files: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (tensor, file) in map {
        let file = file
            .as_str()
            .ok_or_else(|| TensorError::Index(format!("`{tensor}` has no file name")))?;
        // A name with a separator could read any file of this machine.
        let plain = Path::new(file).file_name().is_some_and(|name| name == file)
            && !file.contains(['/', '\\', '\0']);
        if !plain {
            return Err(TensorError::Index(format!(
                "{file:?} is not a plain file name"
            )));
        }
        files
            .entry(file.to_owned())
            .or_default()
            .insert(tensor.clone());
    }
    Ok(files)
}

/// A safetensors file of a checkpoint.
#[derive(Debug)]
pub struct Shard {
    /// Its name, for errors.
    pub name: String,
    /// The tensors that the index promises in it; none where there is no index.
    pub promised: Option<BTreeSet<String>>,
    /// Its content.
    pub bytes: Bytes,
}

impl Checkpoint {
    /// Opens the checkpoint in `folder` and checks that it holds exactly the tensors of `config`, all of them finite.
    pub fn open(folder: &Path, config: &Config) -> Result<Self, TensorError> {
        let folder = Folder::open(folder)?;
        let open = |(path, promised): Listed| {
            let name = path.display().to_string();
            let bytes = Bytes::open(&path).map_err(|error| TensorError::Io {
                file: name.clone(),
                error,
            })?;
            Ok(Shard {
                name,
                promised,
                bytes,
            })
        };
        Self::of_shards(list_files(&folder)?.into_iter().map(open), config)
    }

    /// As [`Checkpoint::open`], from files that are opened already or one by one.
    pub fn of_shards(
        shards: impl Iterator<Item = Result<Shard, TensorError>>,
        config: &Config,
    ) -> Result<Self, TensorError> {
        let expected = expected_tensors(config);
        let (mut files, mut names) = (Vec::new(), Vec::new());
        let mut tensors: BTreeMap<String, Location> = BTreeMap::new();
        for shard in shards {
            let Shard {
                name: file,
                promised,
                bytes,
            } = shard?;
            let format = |reason: String| TensorError::Format {
                file: file.clone(),
                reason,
            };
            header::check(&bytes, &expected).map_err(format)?;
            let (length, metadata) = SafeTensors::read_metadata(&bytes)
                .map_err(|error| format(format!("not a valid safetensors file: {error}")))?;
            // Eight bytes of length, the header, then the data to which offsets are relative.
            let data = 8 + length;
            let found: BTreeMap<String, _> = metadata.tensors().into_iter().collect();
            if let Some(promised) = &promised
                && let Some(missing) = promised.iter().find(|name| !found.contains_key(*name))
            {
                return Err(tensor_error(
                    &file,
                    missing,
                    "is not there, against the index",
                ));
            }
            for (name, info) in found {
                let Some(shape) = expected.get(&name) else {
                    return Err(tensor_error(
                        &file,
                        &name,
                        "is no part of this architecture, so the integer model would ignore it",
                    ));
                };
                if promised.as_ref().is_some_and(|p| !p.contains(&name)) {
                    let reason = "lies here against the index";
                    return Err(tensor_error(&file, &name, reason));
                }
                if info.shape != *shape {
                    let reason = format!("has shape {:?}, needs {shape:?}", info.shape);
                    return Err(tensor_error(&file, &name, reason));
                }
                let float = match info.dtype {
                    Dtype::F32 => Float::F32,
                    Dtype::F16 => Float::F16,
                    Dtype::BF16 => Float::BF16,
                    other => {
                        let reason = format!("has type {other:?}; supported: F32, F16, BF16");
                        return Err(tensor_error(&file, &name, reason));
                    }
                };
                let (from, to) = info.data_offsets;
                let location = Location {
                    file: files.len(),
                    range: data + from..data + to,
                    float,
                };
                if tensors.insert(name.clone(), location).is_some() {
                    return Err(tensor_error(&file, &name, "lies in another file as well"));
                }
            }
            names.push(file);
            files.push(bytes);
        }
        if let Some(missing) = expected.keys().find(|name| !tensors.contains_key(*name)) {
            let file = match &names[..] {
                [file] => file,
                _ => INDEX,
            };
            return Err(tensor_error(file, missing, "is missing"));
        }
        let checkpoint = Self { files, tensors };
        checkpoint.check_finite(&names)?;
        Ok(checkpoint)
    }

    fn check_finite(&self, files: &[String]) -> Result<(), TensorError> {
        let tensors: Vec<(&String, &Location)> = self.tensors.iter().collect();
        let broken = tensors
            .into_par_iter()
            .find_first(|(_, location)| !all_finite(self.bytes(location), location.float));
        let Some((name, location)) = broken else {
            return Ok(());
        };
        let reason = "holds a value that is not a finite number";
        Err(tensor_error(&files[location.file], name, reason))
    }

    fn bytes(&self, location: &Location) -> &[u8] {
        &self.files[location.file][location.range.clone()]
    }

    /// The values of a tensor that [`expected_tensors`] lists.
    pub fn tensor(&self, name: &str) -> Vec<f32> {
        let location = &self.tensors[name];
        decode(self.bytes(location), location.float)
    }
}

/// Whether all little-endian floats of a type are numbers: infinity and what is none have all bits of their exponent set.
fn all_finite(bytes: &[u8], float: Float) -> bool {
    let short = |exponent: u16| {
        let (words, _) = bytes.as_chunks::<2>();
        let mut words = words.iter().map(|&word| u16::from_le_bytes(word));
        words.all(|word| word & exponent != exponent)
    };
    match float {
        Float::F32 => {
            let (words, _) = bytes.as_chunks::<4>();
            words
                .iter()
                .all(|&word| f32::from_le_bytes(word).is_finite())
        }
        Float::F16 => short(0x7c00),
        Float::BF16 => short(0x7f80),
    }
}

/// Little-endian floats of a type as `f32`.
fn decode(bytes: &[u8], float: Float) -> Vec<f32> {
    match float {
        Float::F32 => {
            let (words, _) = bytes.as_chunks::<4>();
            words.iter().map(|&b| f32::from_le_bytes(b)).collect()
        }
        Float::F16 => {
            let (words, _) = bytes.as_chunks::<2>();
            words
                .iter()
                .map(|&b| from_half(u16::from_le_bytes(b)))
                .collect()
        }
        Float::BF16 => {
            let (words, _) = bytes.as_chunks::<2>();
            words
                .iter()
                .map(|&b| f32::from_bits(u32::from(u16::from_le_bytes(b)) << 16))
                .collect()
        }
    }
}

/// An IEEE half as `f32`; every half is exact.
fn from_half(bits: u16) -> f32 {
    let sign = if bits >> 15 == 0 { 1.0 } else { -1.0 };
    let exponent = i32::from(bits >> 10 & 31);
    let fraction = f32::from(bits & 1023);
    sign * match exponent {
        0 => fraction * 2f32.powi(-24),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        _ => (1024.0 + fraction) * 2f32.powi(exponent - 25),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::files::tests::Scratch;
    use std::fs;

    const CONFIG: &[u8] = br#"{"model_type": "olmoe", "hidden_size": 4, "intermediate_size": 2,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "num_experts": 2,
        "num_experts_per_tok": 1, "max_position_embeddings": 8, "vocab_size": 3, "eos_token_id": 0}"#;

    /// Name, type, shape and bytes of a tensor.
    pub(crate) type Entry = (String, &'static str, Vec<usize>, Vec<u8>);

    fn config() -> Config {
        Config::parse(CONFIG).unwrap()
    }

    fn entries() -> Vec<Entry> {
        expected_tensors(&config())
            .into_iter()
            .map(|(name, shape)| {
                let n = shape.iter().product::<usize>();
                let bytes = (0..n).flat_map(|i| (i as f32).to_le_bytes()).collect();
                (name, "F32", shape, bytes)
            })
            .collect()
    }

    /// A safetensors file written by hand, so that it can be wrong.
    pub(crate) fn safetensors_file(entries: &[Entry]) -> Vec<u8> {
        let mut header = serde_json::Map::new();
        let mut data = Vec::<u8>::new();
        for (name, dtype, shape, bytes) in entries {
            let from = data.len();
            data.extend(bytes);
            header.insert(
                name.clone(),
                serde_json::json!({"dtype": dtype, "shape": shape, "data_offsets": [from, data.len()]}),
            );
        }
        let header = serde_json::to_vec(&header).unwrap();
        let mut out = (header.len() as u64).to_le_bytes().to_vec();
        out.extend(header);
        out.extend(data);
        out
    }

    fn open(name: &str, files: &[(&str, Vec<u8>)]) -> Result<Checkpoint, TensorError> {
        let scratch = Scratch::new(name);
        for (file, bytes) in files {
            fs::write(scratch.0.join(file), bytes).unwrap();
        }
        Checkpoint::open(&scratch.0, &config())
    }

    fn refused(name: &str, entries: &[Entry]) -> String {
        open(name, &[("model.safetensors", safetensors_file(entries))])
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn a_complete_checkpoint() {
        let checkpoint = open(
            "tensors",
            &[("model.safetensors", safetensors_file(&entries()))],
        )
        .unwrap();
        assert_eq!(checkpoint.tensor("model.norm.weight"), [0.0, 1.0, 2.0, 3.0]);
    }

    #[test]
    fn unfit_tensors_are_named() {
        let change = |i: usize, f: &dyn Fn(&mut Entry)| {
            let mut entries = entries();
            f(&mut entries[i]);
            entries
        };
        let name = entries()[5].0.clone();
        let message = refused("tensors-shape", &change(5, &|e| e.2.reverse()));
        assert!(
            message.contains(&name) && message.contains("shape"),
            "{message}"
        );
        let message = refused("tensors-dtype", &change(5, &|e| e.1 = "I32"));
        assert!(
            message.contains(&name) && message.contains("I32"),
            "{message}"
        );
        let message = refused("tensors-name", &change(5, &|e| e.0 = "bias".to_owned()));
        assert!(message.contains("`bias`"), "{message}");
        for bad in [f32::NAN, f32::INFINITY] {
            let change = change(5, &|e| e.3[4..8].copy_from_slice(&bad.to_le_bytes()));
            let message = refused("tensors-nan", &change);
            assert!(
                message.contains(&name) && message.contains("finite"),
                "{message}"
            );
        }
        let mut missing = entries();
        missing.remove(5);
        let message = refused("tensors-missing", &missing);
        assert!(
            message.contains(&name) && message.contains("missing"),
            "{message}"
        );
    }

    #[test]
    fn broken_files_are_named() {
        let mut bytes = safetensors_file(&entries());
        bytes.pop();
        let message = open("tensors-short", &[("model.safetensors", bytes)])
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("model.safetensors: not a valid"),
            "{message}"
        );
        let message = open("tensors-none", &[]).unwrap_err().to_string();
        assert!(message.contains("model.safetensors"), "{message}");
    }

    fn index(pairs: &[(&str, &str)]) -> Vec<u8> {
        let map: BTreeMap<_, _> = pairs.iter().copied().collect();
        serde_json::to_vec(&serde_json::json!({ "weight_map": map })).unwrap()
    }

    #[test]
    fn several_files_with_an_index() {
        let entries = entries();
        let (a, b) = entries.split_at(4);
        let pairs: Vec<(&str, &str)> = entries
            .iter()
            .enumerate()
            .map(|(i, e)| {
                (
                    e.0.as_str(),
                    if i < 4 {
                        "a.safetensors"
                    } else {
                        "b.safetensors"
                    },
                )
            })
            .collect();
        let name = "model.safetensors.index.json";
        let files = [
            (name, index(&pairs)),
            ("a.safetensors", safetensors_file(a)),
            ("b.safetensors", safetensors_file(b)),
        ];
        open("tensors-index", &files).unwrap();

        // The same tensor in both files, once against the index.
        let mut twice = b.to_vec();
        twice.push(a[0].clone());
        let files = [
            (name, index(&pairs)),
            ("a.safetensors", safetensors_file(a)),
            ("b.safetensors", safetensors_file(&twice)),
        ];
        let message = open("tensors-twice", &files).unwrap_err().to_string();
        assert!(message.contains("against the index"), "{message}");

        let mut outside = pairs.clone();
        outside[0].1 = "../a.safetensors";
        let message = open("tensors-outside", &[(name, index(&outside))])
            .unwrap_err()
            .to_string();
        assert!(message.contains("not a plain file name"), "{message}");

        let files = [
            (name, index(&pairs)),
            ("a.safetensors", safetensors_file(&a[1..])),
            ("b.safetensors", safetensors_file(b)),
        ];
        let message = open("tensors-promised", &files).unwrap_err().to_string();
        assert!(
            message.contains("a.safetensors: tensor") && message.contains("is not there"),
            "{message}"
        );
    }

    #[test]
    fn halves_are_exact() {
        for (bits, value) in [
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x7bff, 65504.0),
            (0x0001, 2f32.powi(-24)),
            (0x0400, 2f32.powi(-14)),
            (0x3555, 0.333_251_95),
        ] {
            assert_eq!(from_half(bits).to_bits(), f32::to_bits(value));
        }
        assert!(from_half(0x7c00).is_infinite());
        assert!(from_half(0x7c01).is_nan());
        assert_eq!(decode(&[0x80, 0x3f], Float::BF16), [1.0]);
        for float in [Float::F16, Float::BF16] {
            for bits in 0..=u16::MAX {
                let bytes = bits.to_le_bytes();
                let finite = decode(&bytes, float)[0].is_finite();
                assert_eq!(all_finite(&bytes, float), finite, "{float:?} {bits:#x}");
            }
        }
    }
}
