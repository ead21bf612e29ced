//! `config.json` of an `OLMoE` checkpoint.
//!
//! The integer model is one fixed architecture. An option that would change what the model computes and that the
//! integer model does not have must stop the import, or the proofs would be about another model than the one that was
//! published. So every option is either used, or checked against the one value that is supported, or known to be
//! without effect on inference; any other option that is set is an error.

use serde_json::{Map, Value};
use zkmoe_commit::codec::DecodeError;
use zkmoe_verifier::header::Sizes;

use crate::json;

/// The longest transcript that a header allows. A longer context in the configuration is cut to it.
const MAX_POSITIONS: usize = 1 << 12;

/// Options that do not change what inference computes.
const WITHOUT_EFFECT: [&str; 16] = [
    "_name_or_path",
    "attention_dropout",
    "bos_token_id",
    "dtype",
    "initializer_range",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "return_dict",
    "router_aux_loss_coef",
    "sep_token_id",
    "tokenizer_class",
    "torch_dtype",
    "transformers_version",
    "use_cache",
    "_attn_implementation_autoset",
];

/// Why a configuration was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Not a JSON object.
    #[error("config.json is not a JSON object: {0}")]
    Json(String),
    /// An option is missing.
    #[error("config.json lacks `{0}`")]
    Missing(&'static str),
    /// An option has a value that the integer model does not support.
    #[error("config.json: `{option}` is {value}; supported: {supported}")]
    Unsupported {
        /// The option.
        option: String,
        /// Its value.
        value: String,
        /// What would be accepted.
        supported: String,
    },
    /// A size that no header may have.
    #[error("config.json: {0}, the integer model is not that large")]
    Sizes(DecodeError),
    /// An option that this program does not know.
    #[error(
        "config.json: this program does not know `{option}` (here {value}), which may change what the model computes"
    )]
    Unknown {
        /// The option.
        option: String,
        /// Its value.
        value: String,
    },
}

/// What the import needs from a configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// All sizes.
    pub sizes: Sizes,
    /// `max_position_embeddings` of the configuration; the sizes have at most 4096.
    pub declared_positions: usize,
    /// Base of the `RoPE` frequencies.
    pub rope_theta: f64,
    /// Added to the mean square in every norm.
    pub rms_norm_eps: f64,
    /// The head is the embedding.
    pub tie_word_embeddings: bool,
    /// The token that ends a text.
    pub eos_token: u32,
    /// The token that pads; the one that ends a text where the configuration names none.
    pub pad_token: u32,
}

/// The options that are left to look at.
struct Options(Map<String, Value>);

impl Options {
    fn unsupported(option: &str, value: &Value, supported: &str) -> ConfigError {
        ConfigError::Unsupported {
            option: option.to_owned(),
            value: value.to_string(),
            supported: supported.to_owned(),
        }
    }

    /// Takes an option; `null` counts as absent.
    fn take(&mut self, option: &str) -> Option<Value> {
        self.0.remove(option).filter(|value| !value.is_null())
    }

    fn integer(&mut self, option: &'static str) -> Result<Option<usize>, ConfigError> {
        self.take(option)
            .map(|value| match value.as_u64() {
                Some(x) if (1..=1 << 24).contains(&x) => Ok(x as usize),
                _ => Err(Self::unsupported(
                    option,
                    &value,
                    "a whole number from 1 to 2^24",
                )),
            })
            .transpose()
    }

    fn required(&mut self, option: &'static str) -> Result<usize, ConfigError> {
        self.integer(option)?.ok_or(ConfigError::Missing(option))
    }

    fn token(&mut self, option: &'static str, vocab: usize) -> Result<Option<u32>, ConfigError> {
        self.take(option)
            .map(|value| match value.as_u64() {
                Some(x) if x < vocab as u64 => Ok(x as u32),
                _ => Err(Self::unsupported(option, &value, "one id below vocab_size")),
            })
            .transpose()
    }

    fn number(
        &mut self,
        option: &'static str,
        default: f64,
        allowed: std::ops::RangeInclusive<f64>,
    ) -> Result<f64, ConfigError> {
        let Some(value) = self.take(option) else {
            return Ok(default);
        };
        match value.as_f64() {
            Some(x) if allowed.contains(&x) => Ok(x),
            _ => {
                let supported =
                    format!("a number from {:e} to {:e}", allowed.start(), allowed.end());
                Err(Self::unsupported(option, &value, &supported))
            }
        }
    }

    fn boolean(&mut self, option: &'static str, default: bool) -> Result<bool, ConfigError> {
        self.take(option).map_or(Ok(default), |value| {
            value
                .as_bool()
                .ok_or_else(|| Self::unsupported(option, &value, "true or false"))
        })
    }

    /// An option whose only supported value is `expected`, which is also its default.
    fn fixed(&mut self, option: &str, expected: &Value) -> Result<(), ConfigError> {
        match self.take(option) {
            Some(value) if value != *expected => {
                Err(Self::unsupported(option, &value, &expected.to_string()))
            }
            _ => Ok(()),
        }
    }
}

impl Config {
    /// Reads and checks `config.json`.
    pub fn parse(bytes: &[u8]) -> Result<Self, ConfigError> {
        let value = json::parse(bytes).map_err(|e| ConfigError::Json(e.to_string()))?;
        let Value::Object(map) = value else {
            return Err(ConfigError::Json("it is no object".to_owned()));
        };
        let mut options = Options(map);
        match options.take("model_type") {
            None => return Err(ConfigError::Missing("model_type")),
            Some(value) if value != "olmoe" => {
                return Err(Options::unsupported("model_type", &value, "\"olmoe\""));
            }
            Some(_) => {}
        }
        if let Some(value) = options.take("architectures")
            && value != serde_json::json!(["OlmoeForCausalLM"])
        {
            let supported = "[\"OlmoeForCausalLM\"]";
            return Err(Options::unsupported("architectures", &value, supported));
        }
        options.fixed("hidden_act", &"silu".into())?;
        options.fixed("attention_bias", &false.into())?;
        options.fixed("norm_topk_prob", &false.into())?;
        options.fixed("clip_qkv", &Value::Null)?;
        options.fixed("rope_scaling", &Value::Null)?;

        let heads = options.required("num_attention_heads")?;
        let key_heads = options.integer("num_key_value_heads")?.unwrap_or(heads);
        if heads % key_heads != 0 {
            let supported = format!("a divisor of num_attention_heads ({heads})");
            return Err(Options::unsupported(
                "num_key_value_heads",
                &key_heads.into(),
                &supported,
            ));
        }
        let hidden_size = options.required("hidden_size")?;
        // With rotate_half a head has two halves, so the width of a head is even.
        if hidden_size % (2 * heads) != 0 {
            let supported = format!("an even multiple of num_attention_heads ({heads})");
            return Err(Options::unsupported(
                "hidden_size",
                &hidden_size.into(),
                &supported,
            ));
        }
        let head_dim = hidden_size / heads;
        options.fixed("head_dim", &head_dim.into())?;
        let vocab_size = options.required("vocab_size")?;
        let declared_positions = options.required("max_position_embeddings")?;
        let sizes = Sizes {
            vocab_size,
            hidden_size,
            intermediate_size: options.required("intermediate_size")?,
            num_hidden_layers: options.required("num_hidden_layers")?,
            num_key_value_heads: key_heads,
            query_group: heads / key_heads,
            head_dim,
            num_experts: options.required("num_experts")?,
            num_experts_per_tok: options.required("num_experts_per_tok")?,
            max_position_embeddings: declared_positions.min(MAX_POSITIONS),
        };
        // Before anybody lists the tensors of so many layers and experts.
        sizes.check().map_err(ConfigError::Sizes)?;
        let rope_theta = Self::rope_theta(&mut options)?;
        let rms_norm_eps = options.number("rms_norm_eps", 1e-5, 0.0..=1.0)?;
        let tie_word_embeddings = options.boolean("tie_word_embeddings", false)?;
        let eos_token = options
            .token("eos_token_id", vocab_size)?
            .ok_or(ConfigError::Missing("eos_token_id"))?;
        let pad_token = options
            .token("pad_token_id", vocab_size)?
            .unwrap_or(eos_token);
        for option in WITHOUT_EFFECT {
            options.take(option);
        }
        if let Some((option, value)) = options.0.into_iter().find(|(_, value)| !value.is_null()) {
            return Err(ConfigError::Unknown {
                option,
                value: value.to_string(),
            });
        }
        Ok(Self {
            sizes,
            declared_positions,
            rope_theta,
            rms_norm_eps,
            tie_word_embeddings,
            eos_token,
            pad_token,
        })
    }

    /// The base of the frequencies, from `rope_theta` or, in newer files, from `rope_parameters`.
    fn rope_theta(options: &mut Options) -> Result<f64, ConfigError> {
        let allowed = 1.0..=1e12;
        match options.take("rope_parameters") {
            None => options.number("rope_theta", 10_000.0, allowed),
            Some(Value::Object(inner)) => {
                options.take("rope_theta");
                let mut inner = Options(inner);
                inner.fixed("rope_type", &"default".into())?;
                let theta = inner.number("rope_theta", 10_000.0, allowed)?;
                match inner.0.into_iter().find(|(_, value)| !value.is_null()) {
                    None => Ok(theta),
                    Some((option, value)) => Err(ConfigError::Unknown {
                        option: format!("rope_parameters.{option}"),
                        value: value.to_string(),
                    }),
                }
            }
            Some(value) => Err(Options::unsupported("rope_parameters", &value, "an object")),
        }
    }

    /// What of the configuration the integer model cannot keep, for people.
    pub fn warnings(&self) -> Vec<String> {
        let (declared, kept) = (self.declared_positions, self.sizes.max_position_embeddings);
        let cut = || {
            format!(
                "max_position_embeddings is {declared} and was cut to {kept}: prompt and response together have at most \
                 that many tokens"
            )
        };
        (declared > kept).then(cut).into_iter().collect()
    }

    /// Query heads.
    pub fn query_heads(&self) -> usize {
        self.sizes.num_key_value_heads * self.sizes.query_group
    }

    /// Width of all keys.
    pub fn key_width(&self) -> usize {
        self.sizes.num_key_value_heads * self.sizes.head_dim
    }

    /// Width of all queries.
    pub fn query_width(&self) -> usize {
        self.query_heads() * self.sizes.head_dim
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const BUNDLED: &[u8] = include_bytes!("../../../data/olmoe-tiny/config.json");

    fn with(changes: &[(&str, Value)]) -> Result<Config, ConfigError> {
        let mut map: Map<String, Value> = serde_json::from_slice(BUNDLED).unwrap();
        for (option, value) in changes {
            map.insert((*option).to_owned(), value.clone());
        }
        Config::parse(&serde_json::to_vec(&map).unwrap())
    }

    #[test]
    fn the_bundled_configuration() {
        let config = Config::parse(BUNDLED).unwrap();
        assert_eq!(config.sizes.head_dim, 32);
        assert_eq!(config.sizes.query_group, 1);
        assert_eq!((config.eos_token, config.pad_token), (0, 0));
        assert!(!config.tie_word_embeddings);
    }

    #[test]
    fn supported_variants() {
        let config = with(&[("num_key_value_heads", json!(2))]).unwrap();
        assert_eq!((config.sizes.query_group, config.key_width()), (2, 64));
        let config = with(&[("tie_word_embeddings", json!(true))]).unwrap();
        assert!(config.tie_word_embeddings);
        for (declared, kept, warnings) in [(65536, 4096, 1), (4097, 4096, 1), (4096, 4096, 0)] {
            let config = with(&[("max_position_embeddings", json!(declared))]).unwrap();
            assert_eq!(config.sizes.max_position_embeddings, kept);
            let found = config.warnings();
            assert_eq!(found.len(), warnings, "{found:?}");
            assert!(found.iter().all(|w| w.contains(&declared.to_string())));
        }
        let parameters = json!({"rope_theta": 5e5, "rope_type": "default"});
        let config = with(&[("rope_parameters", parameters)]).unwrap();
        assert!((config.rope_theta - 5e5).abs() < 1e-9);
    }

    #[test]
    fn unsupported_options_are_named_with_their_value() {
        let cases = [
            ("model_type", json!("mixtral")),
            ("architectures", json!(["OlmoForCausalLM"])),
            ("hidden_act", json!("gelu")),
            ("attention_bias", json!(true)),
            ("clip_qkv", json!(8.0)),
            ("rope_scaling", json!({"type": "linear", "factor": 2.0})),
            ("rope_parameters", json!({"rope_type": "yarn"})),
            ("norm_topk_prob", json!(true)),
            ("num_key_value_heads", json!(3)),
            ("head_dim", json!(64)),
            ("hidden_size", json!(130)),
            ("rms_norm_eps", json!(-1.0)),
            ("rope_theta", json!("10000")),
            ("eos_token_id", json!([0, 1])),
            ("eos_token_id", json!(2048)),
            ("vocab_size", json!(0)),
            ("num_experts", json!(-8)),
            ("sliding_window", json!(4096)),
            ("quantization_config", json!({"bits": 4})),
        ];
        for (option, value) in cases {
            let message = with(&[(option, value.clone())]).unwrap_err().to_string();
            let inner = value.get("rope_type").map_or(option, |_| "rope_type");
            assert!(message.contains(&format!("`{inner}`")), "{message}");
            if inner == option {
                assert!(message.contains(&value.to_string()), "{message}");
            }
        }
    }

    #[test]
    fn sizes_beyond_those_of_headers_are_refused() {
        for (option, value, named) in [
            ("num_hidden_layers", 257, "num_hidden_layers"),
            ("num_experts", 257, "num_experts"),
            ("num_experts_per_tok", 9, "num_experts_per_tok"),
            ("vocab_size", (1 << 20) + 1, "vocab_size"),
            ("hidden_size", 1 << 15, "hidden_size"),
            ("intermediate_size", (1 << 16) + 1, "intermediate_size"),
        ] {
            let error = with(&[(option, json!(value))]).unwrap_err();
            let limit = matches!(
                error,
                ConfigError::Sizes(DecodeError::Limit { field, found, .. })
                    if field == named && found == value as u64
            );
            assert!(limit, "{error}");
        }
    }

    #[test]
    fn missing_options_are_named() {
        let mut map: Map<String, Value> = serde_json::from_slice(BUNDLED).unwrap();
        map.remove("num_experts");
        let error = Config::parse(&serde_json::to_vec(&map).unwrap()).unwrap_err();
        assert_eq!(error, ConfigError::Missing("num_experts"));
        assert!(matches!(Config::parse(b"[1]"), Err(ConfigError::Json(_))));
        let twice = Config::parse(br#"{"vocab_size": 7, "vocab_size": 9}"#).unwrap_err();
        assert!(twice.to_string().contains("`vocab_size` occurs twice"));
    }
}
