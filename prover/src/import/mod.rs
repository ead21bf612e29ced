//! Import of a float checkpoint: from a folder in Hugging Face's layout to a quantized model and a report about it.
//!
//! The steps, one file each: [`config`] refuses what the integer model does not have; [`tensors`] reads exactly the
//! weights that it does have; [`float`] runs the checkpoint as published; [`mod@calibrate`] watches that run on text;
//! [`mod@quantize`] chooses units and shifts and rounds the weights; [`report`] compares the result with the float model on
//! text that none of the earlier steps has seen.

pub mod calibrate;
pub mod config;
pub mod float;
pub mod folder;
pub mod quantize;
pub mod report;
pub mod tensors;

use std::path::{Path, PathBuf};

use serde::Deserialize;
use zkmoe_verifier::id::MAX_TOKENIZER;

use self::calibrate::Ranges;
use self::config::{Config, ConfigError};
use self::float::{FloatModel, Site};
use self::folder::{Folder, FolderError, MAX_CONFIG, MAX_TEMPLATE, MAX_TEXT};
use self::quantize::{Quantized, quantize};
pub use self::report::{Evaluation, HeadRoom, ImportReport};
use self::tensors::{Checkpoint, TensorError};
use crate::json;
use crate::model::{Model, ModelError, WeightId, weight_shape};
use crate::tokenizer::{Tokenizer, TokenizerError};

/// Prose in several styles, written for this purpose.
const CALIBRATION_TEXT: &str = include_str!("../../../data/calibration.txt");
/// Held-out token ids of the bundled checkpoint, and the tokenizer that they belong to.
const HELDOUT: &[u8] = include_bytes!("../../../data/olmoe-tiny/heldout.json");
const HELDOUT_TOKENIZER: &[u8] = include_bytes!("../../../data/olmoe-tiny/tokenizer.json");
/// Window of a held-out text that names none.
const HELDOUT_WINDOW: usize = 256;
/// Fewer tokens than this say nothing about ranges.
const LEAST_CALIBRATION: usize = 64;
/// Above this share of its range a kind of value earns a warning.
const TIGHT: f64 = 0.8;
/// Above this relation of the checkpoint's epsilon to the mean square of queries or keys, leaving it out is felt.
const EPSILON_SHARE: f64 = 1e-3;

/// Where calibration and evaluation take their text from.
#[derive(Debug, Clone, Default)]
pub struct ImportOptions {
    /// A text file to calibrate on, instead of the bundled text.
    pub calibration: Option<PathBuf>,
    /// A text file, or a JSON file `{"ids": [..], "window": n}`, to evaluate on, instead of the bundled tokens.
    pub heldout: Option<PathBuf>,
}

/// Why an import stopped.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// A file is not read.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The configuration is not supported.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The tensors are not those of the configuration.
    #[error(transparent)]
    Tensors(#[from] TensorError),
    /// The tokenizer cannot be used.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The tokenizer does not fit the model.
    #[error(
        "tokenizer.json has tokens up to {largest}, but `vocab_size` in config.json is {vocab_size}"
    )]
    Vocabulary {
        /// The largest id of the tokenizer.
        largest: u32,
        /// Entries of the model's vocabulary.
        vocab_size: usize,
    },
    /// The chat template has a form that is not supported.
    #[error("tokenizer_config.json: {0}")]
    Template(String),
    /// A text file cannot be used.
    #[error("{file}: {reason}")]
    Text {
        /// The file.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A value does not fit the integer model's range, even without head-room.
    #[error(
        "{kind} reaches {largest:.3} in layer {layer}, {share:.2} times what the integer model can hold"
    )]
    Range {
        /// The kind of value.
        kind: &'static str,
        /// The layer.
        layer: usize,
        /// The largest calibrated value.
        largest: f64,
        /// Its relation to the range.
        share: f64,
    },
    /// The float model itself computes something that is no number.
    #[error(
        "the checkpoint's {kind} in layer {layer} is not a finite number on the calibration text: its weights are too large"
    )]
    NotFinite {
        /// The kind of value.
        kind: Site,
        /// The layer.
        layer: usize,
    },
    /// A weight tensor cannot be quantized.
    #[error("tensor `{tensor}` {reason}")]
    Weights {
        /// The tensor of the integer model.
        tensor: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The result is no valid model.
    #[error(transparent)]
    Model(#[from] ModelError),
}

impl ImportError {
    /// What to do about it.
    pub fn advice(&self) -> &'static str {
        const AGAIN: &str = "a checkpoint is a folder with config.json, tokenizer.json and safetensors files; download it \
                             again, with all of its files in one folder";
        match self {
            Self::Folder(error) | Self::Tensors(TensorError::Folder(error)) => match error {
                FolderError::Io { .. } => AGAIN,
                FolderError::Outside { .. } => "copy the file itself into the folder",
                FolderError::Long { .. } => {
                    "no file of this kind is that long; take the one of the checkpoint"
                }
            },
            Self::Config(ConfigError::Json(_) | ConfigError::Missing(_)) => {
                "take the config.json that was published with the checkpoint"
            }
            Self::Config(ConfigError::Sizes(_)) => "the README lists the limits of models",
            Self::Config(ConfigError::Unsupported { .. } | ConfigError::Unknown { .. }) => {
                "only models of the OLMoE family without further options can be imported"
            }
            Self::Tensors(TensorError::Tensor { .. }) => {
                "take config.json and safetensors files of one checkpoint, as they were published"
            }
            Self::Tensors(_) => AGAIN,
            Self::Tokenizer(_) => {
                "take the tokenizer.json of the checkpoint; only byte-level BPE is supported"
            }
            Self::Vocabulary { .. } => "take config.json and tokenizer.json of one checkpoint",
            Self::Template(_) => "mend the file or remove it; no template is applied to prompts",
            Self::Text { .. } => "name another text with --calibration or --heldout",
            Self::Range { .. } => {
                "calibrate on text without such values (--calibration); if there is none, the model cannot be imported"
            }
            Self::NotFinite { .. } | Self::Weights { .. } => {
                "the checkpoint is damaged, or no model of this kind; the integer model cannot hold its weights"
            }
            Self::Model(_) => "this is a fault of this program, please report it",
        }
    }
}

fn read_text(path: &Path) -> Result<String, ImportError> {
    String::from_utf8(folder::read(path, MAX_TEXT)?).map_err(|_| ImportError::Text {
        file: path.display().to_string(),
        reason: "is not UTF-8 text".to_owned(),
    })
}

/// The hash of the chat template: of `chat_template.jinja`, or of the template in `tokenizer_config.json`, or of the
/// empty string where there is none.
fn template_hash(folder: &Folder) -> Result<[u8; 32], ImportError> {
    if let Some(file) = folder.find("chat_template.jinja")? {
        return Ok(*blake3::hash(&folder::read(&file, MAX_TEMPLATE)?).as_bytes());
    }
    let Some(file) = folder.find("tokenizer_config.json")? else {
        return Ok(*blake3::hash(b"").as_bytes());
    };
    let value = json::parse(&folder::read(&file, MAX_TEMPLATE)?)
        .map_err(|error| ImportError::Template(error.to_string()))?;
    match value.get("chat_template") {
        None | Some(serde_json::Value::Null) => Ok(*blake3::hash(b"").as_bytes()),
        Some(serde_json::Value::String(text)) => Ok(*blake3::hash(text.as_bytes()).as_bytes()),
        Some(_) => Err(ImportError::Template(
            "`chat_template` is not a single text; leave one template in it".to_owned(),
        )),
    }
}

/// A held-out text as a file holds it.
#[derive(Debug, Deserialize)]
struct HeldoutFile {
    ids: Vec<u32>,
    window: Option<usize>,
}

/// Token ids and the window in which they are evaluated.
fn heldout(
    options: &ImportOptions,
    config: &Config,
    tokenizer: &Tokenizer,
    tokenizer_json: &[u8],
) -> Result<(Vec<u32>, usize), ImportError> {
    let fault = |file: &str, reason: String| ImportError::Text {
        file: file.to_owned(),
        reason,
    };
    let (file, (ids, window)) = match &options.heldout {
        None => {
            let file = "the bundled held-out text";
            let bundled: HeldoutFile =
                serde_json::from_slice(HELDOUT).map_err(|e| fault(file, e.to_string()))?;
            // Ids mean something to their own tokenizer only; for another one the text is encoded anew.
            let ids = if tokenizer_json == HELDOUT_TOKENIZER {
                bundled.ids
            } else {
                let text = Tokenizer::from_json(HELDOUT_TOKENIZER)?.decode(&bundled.ids)?;
                tokenizer.encode(&text)?
            };
            (file.to_owned(), (ids, bundled.window))
        }
        Some(path) if path.extension().is_some_and(|e| e == "json") => {
            let file = path.display().to_string();
            let heldout: HeldoutFile = serde_json::from_slice(&folder::read(path, MAX_TEXT)?)
                .map_err(|e| fault(&file, e.to_string()))?;
            (file, (heldout.ids, heldout.window))
        }
        Some(path) => {
            let ids = tokenizer.encode(&read_text(path)?)?;
            (path.display().to_string(), (ids, None))
        }
    };
    let vocab_size = config.sizes.vocab_size;
    if let Some(id) = ids.iter().find(|&&id| id as usize >= vocab_size) {
        return Err(fault(
            &file,
            format!("holds token {id}, the model has {vocab_size}"),
        ));
    }
    let window = window.unwrap_or(HELDOUT_WINDOW);
    if window < 2 || ids.len() < 2 {
        return Err(fault(
            &file,
            "needs at least two tokens and a window of two".to_owned(),
        ));
    }
    Ok((ids, window.min(config.sizes.max_position_embeddings)))
}

/// Refuses ranges that are no numbers. Units could not be chosen from them.
fn check_finite(ranges: &Ranges) -> Result<(), ImportError> {
    match ranges.infinite() {
        Some((kind, layer)) => Err(ImportError::NotFinite { kind, layer }),
        None => Ok(()),
    }
}

/// Everything that follows from the head-room of a calibrated model: errors where values do not fit, else warnings.
fn check_ranges(
    config: &Config,
    ranges: &Ranges,
    head_room: &[HeadRoom],
) -> Result<Vec<String>, ImportError> {
    let mut warnings = Vec::new();
    for room in head_room {
        if room.share >= 1.0 {
            return Err(ImportError::Range {
                kind: room.kind,
                layer: room.layer,
                largest: room.largest,
                share: room.share,
            });
        }
        if room.share > TIGHT {
            warnings.push(format!(
                "{} uses {:.0} % of its range in layer {}: a request may stop with an overflow",
                room.kind,
                100.0 * room.share,
                room.layer
            ));
        }
    }
    for (site, name) in [(Site::Query, "queries"), (Site::Key, "keys")] {
        for layer in 0..config.sizes.num_hidden_layers {
            let mean_square = ranges.layer(site, layer).rms().powi(2);
            if config.rms_norm_eps > EPSILON_SHARE * mean_square {
                warnings.push(format!(
                    "rms_norm_eps is {:.1} % of the mean square of {name} in layer {layer}; the integer model leaves it out",
                    100.0 * config.rms_norm_eps / mean_square
                ));
            }
        }
    }
    Ok(warnings)
}

/// Imports the checkpoint in `folder`. `progress` is told the name of a stage, how much of it is done, and its total.
pub fn import(
    folder: &Path,
    options: &ImportOptions,
    progress: &dyn Fn(&str, u64, u64),
) -> Result<(Model, ImportReport), ImportError> {
    progress("read checkpoint", 0, 1);
    let files = Folder::open(folder)?;
    let config = Config::parse(&files.read("config.json", MAX_CONFIG)?)?;
    let tokenizer_json = files.read("tokenizer.json", MAX_TOKENIZER as u64)?;
    let tokenizer = Tokenizer::from_json(&tokenizer_json)?;
    if tokenizer.id_bound() as usize > config.sizes.vocab_size {
        return Err(ImportError::Vocabulary {
            largest: tokenizer.id_bound() - 1,
            vocab_size: config.sizes.vocab_size,
        });
    }
    let template_hash = template_hash(&files)?;
    let (heldout, window) = heldout(options, &config, &tokenizer, &tokenizer_json)?;
    let (file, text) = match &options.calibration {
        None => (
            "the bundled calibration text".to_owned(),
            CALIBRATION_TEXT.to_owned(),
        ),
        Some(path) => (path.display().to_string(), read_text(path)?),
    };
    let text = tokenizer.encode(&text)?;
    if text.len() < LEAST_CALIBRATION {
        return Err(ImportError::Text {
            file,
            reason: format!(
                "has {} tokens, calibration needs {LEAST_CALIBRATION}",
                text.len()
            ),
        });
    }
    let checkpoint = Checkpoint::open(folder, &config)?;
    progress("read checkpoint", 1, 1);

    let parameters = WeightId::ALL
        .iter()
        .map(|&id| weight_shape(&config.sizes, id).values() as u64)
        .sum();
    let float = FloatModel::new(&config, &checkpoint);
    let (ranges, calibration_positions) =
        calibrate::calibrate(&config, float, &text, parameters, progress);
    check_finite(&ranges)?;
    let Quantized {
        model,
        units,
        multipliers,
    } = quantize(
        &config,
        &checkpoint,
        &ranges,
        tokenizer_json,
        template_hash,
        progress,
    )?;
    let head_room = units.head_room(&ranges);
    let mut warnings = config.warnings();
    warnings.extend(check_ranges(&config, &ranges, &head_room)?);
    let evaluation = report::evaluate(&config, &checkpoint, &model, &heldout, window, progress);
    if !evaluation.overflows.is_empty() {
        warnings.push(format!(
            "{} windows of the held-out text stopped with an overflow; calibrate on text that is more like it",
            evaluation.overflows.len()
        ));
    }
    let report = ImportReport {
        parameters,
        file_size: model.file_size(),
        calibration_positions,
        head_room,
        multipliers,
        evaluation,
        warnings,
    };
    Ok((model, report))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::tensors::{expected_tensors, tests::safetensors_file};
    use super::*;
    use crate::files::tests::Scratch;
    use crate::model::SplitMix;
    use std::fs;

    pub(crate) fn folder() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/olmoe-tiny")
    }

    pub(crate) fn bundled() -> (Config, Checkpoint) {
        let config = Config::parse(&fs::read(folder().join("config.json")).unwrap()).unwrap();
        let checkpoint = Checkpoint::open(&folder(), &config).unwrap();
        (config, checkpoint)
    }

    /// The accuracy that the project promises, on the text that the checkpoint's makers held out.
    #[test]
    fn the_bundled_checkpoint_keeps_its_accuracy() {
        let (model, report) = import(&folder(), &ImportOptions::default(), &|_, _, _| {}).unwrap();
        let text = serde_json::to_string_pretty(&report).unwrap();
        println!("{text}");
        let evaluation = &report.evaluation;
        assert_eq!((evaluation.tokens, evaluation.scored), (4096, 4080));
        assert!((evaluation.float_perplexity - 33.505).abs() < 0.005);
        assert!((evaluation.integer_perplexity / 33.505 - 1.0).abs() < 0.005);
        assert!(evaluation.same_token >= 0.975);
        assert!(evaluation.same_experts >= 0.97);
        assert!(evaluation.overflows.is_empty());
        assert_eq!(report.warnings, Vec::<String>::new());
        assert_eq!(report.parameters, 2_365_568 - 9 * 128);
        let mut bytes = Vec::new();
        model.write(&mut bytes).unwrap();
        assert_eq!(bytes.len() as u64, report.file_size);
        for m in &report.multipliers {
            assert!(m.smallest >= 1 && m.median <= 1024, "{m:?}");
        }
    }

    /// Calibration has to leave room for text that is like nothing it has seen.
    #[test]
    fn random_tokens_do_not_overflow() {
        let (config, checkpoint) = bundled();
        let tokenizer_json = fs::read(folder().join("tokenizer.json")).unwrap();
        let text = Tokenizer::from_json(&tokenizer_json)
            .unwrap()
            .encode(CALIBRATION_TEXT)
            .unwrap();
        let float = FloatModel::new(&config, &checkpoint);
        let quiet = |_: &str, _, _| {};
        let (ranges, _) = calibrate::calibrate(&config, float, &text, 1 << 30, &quiet);
        let quantized = quantize(
            &config,
            &checkpoint,
            &ranges,
            tokenizer_json,
            [0; 32],
            &quiet,
        )
        .unwrap();
        let mut random = SplitMix::new(11);
        for _ in 0..4 {
            let tokens: Vec<u32> = (0..256).map(|_| random.below(2048)).collect();
            crate::infer::forward(&quantized.model, &tokens).unwrap();
        }
    }

    /// A checkpoint with random weights and a different shape: shared keys, a tied head, odd sizes.
    fn random_checkpoint(folder: &Path, tied: bool) {
        let config = serde_json::json!({
            "model_type": "olmoe", "hidden_size": 48, "intermediate_size": 20, "num_hidden_layers": 2,
            "num_attention_heads": 6, "num_key_value_heads": 2, "num_experts": 5, "num_experts_per_tok": 3,
            "max_position_embeddings": 100, "vocab_size": 2050, "eos_token_id": 0, "rope_theta": 500.0,
            "tie_word_embeddings": tied, "pad_token_id": 1,
        });
        fs::write(folder.join("config.json"), config.to_string()).unwrap();
        fs::write(folder.join("tokenizer.json"), HELDOUT_TOKENIZER).unwrap();
        let config = Config::parse(config.to_string().as_bytes()).unwrap();
        let mut random = SplitMix::new(5);
        let entries: Vec<_> = expected_tensors(&config)
            .into_iter()
            .map(|(name, shape)| {
                let gain = shape.len() == 1;
                let size = if name.contains("embed") {
                    0.5
                } else {
                    (shape[shape.len() - 1] as f64).sqrt().recip()
                };
                let bytes = (0..shape.iter().product::<usize>())
                    .flat_map(|_| {
                        let normal = (0..12).map(|_| random.unit()).sum::<f64>() - 6.0;
                        let x = if gain {
                            1.0 + 0.2 * normal
                        } else {
                            1.5 * size * normal
                        };
                        (x as f32).to_le_bytes()
                    })
                    .collect();
                (name, "F32", shape, bytes)
            })
            .collect();
        fs::write(folder.join("model.safetensors"), safetensors_file(&entries)).unwrap();
    }

    #[test]
    fn other_shapes_agree_with_the_float_model() {
        for tied in [false, true] {
            let scratch = Scratch::new(if tied { "import-tied" } else { "import-untied" });
            random_checkpoint(&scratch.0, tied);
            let (model, report) =
                import(&scratch.0, &ImportOptions::default(), &|_, _, _| {}).unwrap();
            let evaluation = &report.evaluation;
            println!("{evaluation:?}");
            assert_eq!(model.sizes().query_group, 3);
            assert_eq!(model.header().pad_token, 1);
            assert!(evaluation.overflows.is_empty());
            let ratio = evaluation.integer_perplexity / evaluation.float_perplexity;
            assert!((ratio - 1.0).abs() < 0.01, "{ratio}");
            // Random weights decide by narrow margins, so the bounds are wider than for a trained checkpoint. A head or an
            // expert in the wrong place would leave no agreement at all.
            assert!(evaluation.same_token > 0.9);
            assert!(evaluation.same_experts > 0.9);
        }
    }

    #[test]
    fn unusable_texts_are_named() {
        let scratch = Scratch::new("import-texts");
        let stop = |name: &str, content: &[u8], heldout: bool| {
            let path = scratch.0.join(name);
            fs::write(&path, content).unwrap();
            let options = if heldout {
                ImportOptions {
                    heldout: Some(path),
                    ..ImportOptions::default()
                }
            } else {
                ImportOptions {
                    calibration: Some(path),
                    ..ImportOptions::default()
                }
            };
            let error = import(&folder(), &options, &|_, _, _| {}).unwrap_err();
            let message = error.to_string();
            assert!(message.contains(name), "{message}");
            message
        };
        assert!(stop("short.txt", b"too short", false).contains("calibration needs 64"));
        assert!(stop("bytes.txt", &[0xff; 100], false).contains("UTF-8"));
        assert!(stop("ids.json", br#"{"ids": [1, 2048]}"#, true).contains("2048"));
        assert!(stop("window.json", br#"{"ids": [1, 2], "window": 1}"#, true).contains("window"));
        assert!(stop("empty.txt", b"", true).contains("two tokens"));
    }

    #[test]
    fn a_missing_tokenizer_is_named() {
        let scratch = Scratch::new("import-tokenizer");
        fs::copy(folder().join("config.json"), scratch.0.join("config.json")).unwrap();
        let error = import(&scratch.0, &ImportOptions::default(), &|_, _, _| {}).unwrap_err();
        assert!(error.to_string().contains("tokenizer.json"));
    }

    #[test]
    fn templates_are_found() {
        let scratch = Scratch::new("import-template");
        let hash = |text: &[u8]| *blake3::hash(text).as_bytes();
        let folder = Folder::open(&scratch.0).unwrap();
        assert_eq!(template_hash(&folder).unwrap(), hash(b""));
        let config = scratch.0.join("tokenizer_config.json");
        fs::write(&config, r#"{"chat_template": "a{{ b }}"}"#).unwrap();
        assert_eq!(template_hash(&folder).unwrap(), hash(b"a{{ b }}"));
        fs::write(&config, r#"{"chat_template": [1]}"#).unwrap();
        assert!(template_hash(&folder).is_err());
        fs::write(scratch.0.join("chat_template.jinja"), "c").unwrap();
        assert_eq!(template_hash(&folder).unwrap(), hash(b"c"));
    }
}
