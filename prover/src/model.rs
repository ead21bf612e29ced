//! A quantized model: its public header, its weights and its tokenizer, and the `.zkm` file that holds them.
//!
//! The file is: magic `ZKMODEL\0`, version, header, length and bytes of `tokenizer.json`, then for every tensor in
//! the order of [`WeightId::ALL`] its values and its multipliers, little-endian. After that comes one BLAKE3 hash for
//! every chunk of 1 MiB of everything before it, and the hash of these hashes. Sizes follow from the header, so the
//! file holds no lengths that could disagree with it.
//!
//! The hashes find damage, not malice: whoever can write the file can write fitting hashes. What ties a proof to the
//! weights is the commitment. All chunks are checked when the file is opened, in parallel; for a model of many
//! gigabytes that reads the whole file once. The file stays mapped after that, since it may be larger than memory: whoever
//! makes something of a model asks [`Model::is_unchanged`] before it leaves. A file that is cut short meanwhile ends the
//! process by a bus error, as a kill would.

use std::fmt;
use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;

use rayon::prelude::*;
use zkmoe_commit::codec::{DecodeError, Reader, Writer, at_most, read_magic, write_magic};
use zkmoe_verifier::header::{Header, Scales, Sizes};
use zkmoe_verifier::id::MAX_TOKENIZER;
pub use zkmoe_verifier::weights::{WeightId, WeightShape, weight_shape};

use crate::files::{Mode, write_file};
use crate::map::{Bytes, as_signed, as_unsigned};
use crate::tables;

/// The first bytes of a `.zkm` file.
pub const MODEL_MAGIC: [u8; 8] = *b"ZKMODEL\0";
/// The version of the format that this program reads and writes.
pub const MODEL_VERSION: u32 = 1;
/// Bytes under one hash.
const CHUNK: usize = 1 << 20;
const HASH: usize = 32;

/// Why a model could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The operating system refused.
    #[error("{file}: {error}")]
    Io {
        /// The file.
        file: String,
        /// What the system said.
        error: io::Error,
    },
    /// The bytes are no model.
    #[error("{file}: {fault}")]
    Invalid {
        /// The file, or `model` for bytes in memory.
        file: String,
        /// What is wrong with it.
        fault: Fault,
    },
}

/// What is wrong with the bytes of a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A field cannot be decoded.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// A hash does not fit, so the file is damaged.
    #[error(
        "the hash of bytes {} to {} does not fit; the file is damaged, import or copy it again",
        .0.start,
        .0.end
    )]
    Hash(Range<usize>),
    /// A tensor has the wrong number of values or multipliers.
    #[error("`{tensor}` has {found} {what}, its shape needs {expected}")]
    Length {
        /// The tensor.
        tensor: &'static str,
        /// Values or multipliers.
        what: &'static str,
        /// How many there should be.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// A tensor holds -128 as a value or 0 as a multiplier.
    #[error("`{tensor}` holds {what}, which no weight may be")]
    Range {
        /// The tensor.
        tensor: &'static str,
        /// The forbidden number.
        what: &'static str,
    },
    /// The tokenizer is not the one in the header.
    #[error("`tokenizer` is not the one whose hash is in the header")]
    Tokenizer,
}

impl Fault {
    fn within(self, file: &str) -> ModelError {
        ModelError::Invalid {
            file: file.to_owned(),
            fault: self,
        }
    }
}

/// Values and multipliers of one weight tensor that is held in memory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tensor {
    /// Layout `[outer][in][out]`, in -127..=127.
    pub values: Vec<i8>,
    /// Layout `[outer][out]`, at least 1.
    pub multipliers: Vec<u16>,
}

/// Where the values of the tensors lie.
enum Values {
    /// In the bytes of a file.
    File {
        bytes: Bytes,
        ranges: Vec<Range<usize>>,
    },
    /// In vectors of their own.
    Parts(Vec<Vec<i8>>),
}

/// A quantized model.
pub struct Model {
    header: Header,
    tokenizer_json: Vec<u8>,
    values: Values,
    multipliers: Vec<Vec<u16>>,
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Weights are private and large: neither belongs into a log.
        f.debug_struct("Model")
            .field("sizes", &self.header.sizes)
            .finish_non_exhaustive()
    }
}

impl Model {
    /// Maps the `.zkm` file at `path` and checks all of it.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        let file = path.display().to_string();
        let bytes = Bytes::open(path).map_err(|error| ModelError::Io {
            file: file.clone(),
            error,
        })?;
        Self::decode(bytes).map_err(|fault| fault.within(&file))
    }

    /// Reads the content of a `.zkm` file from memory.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, ModelError> {
        Self::decode(Bytes::Owned(bytes)).map_err(|fault| fault.within("model"))
    }

    /// A model from tensors in the order of [`WeightId::ALL`].
    pub fn from_parts(
        header: Header,
        parts: Vec<Tensor>,
        tokenizer_json: Vec<u8>,
    ) -> Result<Self, ModelError> {
        let (values, multipliers) = parts
            .into_iter()
            .map(|part| (part.values, part.multipliers))
            .unzip();
        let model = Self {
            header,
            tokenizer_json,
            values: Values::Parts(values),
            multipliers,
        };
        model.check().map_err(|fault| fault.within("model"))?;
        Ok(model)
    }

    /// Whether the file that the model was opened from has not been written to since.
    pub fn is_unchanged(&self) -> io::Result<bool> {
        match &self.values {
            Values::File { bytes, .. } => bytes.is_unchanged(),
            Values::Parts(_) => Ok(true),
        }
    }

    /// The public header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The sizes of the header.
    pub fn sizes(&self) -> &Sizes {
        &self.header.sizes
    }

    /// The bytes of `tokenizer.json`.
    pub fn tokenizer_json(&self) -> &[u8] {
        &self.tokenizer_json
    }

    /// The shape of a tensor.
    pub fn shape(&self, id: WeightId) -> WeightShape {
        weight_shape(&self.header.sizes, id)
    }

    /// The values of a tensor, `[outer][in][out]`.
    pub fn values(&self, id: WeightId) -> &[i8] {
        match &self.values {
            Values::File { bytes, ranges } => as_signed(&bytes[ranges[id.index()].clone()]),
            Values::Parts(parts) => &parts[id.index()],
        }
    }

    /// The multipliers of a tensor, `[outer][out]`.
    pub fn multipliers(&self, id: WeightId) -> &[u16] {
        &self.multipliers[id.index()]
    }

    /// The committed value of a weight: value times multiplier.
    pub fn committed(&self, id: WeightId, outer: usize, inn: usize, out: usize) -> i64 {
        let shape = self.shape(id);
        let value = self.values(id)[(outer * shape.inn + inn) * shape.out + out];
        i64::from(value) * i64::from(self.multipliers(id)[outer * shape.out + out])
    }

    /// How many weights the model has.
    pub fn parameters(&self) -> u64 {
        WeightId::ALL
            .iter()
            .map(|&id| self.shape(id).values() as u64)
            .sum()
    }

    /// The size of the model's file.
    pub fn file_size(&self) -> u64 {
        let mut head = Writer::new();
        self.encode_head(&mut head);
        let tensors: usize = WeightId::ALL
            .iter()
            .map(|&id| self.shape(id).values() + 2 * self.shape(id).multipliers())
            .sum();
        let body = head.bytes.len() + tensors;
        (body + (body.div_ceil(CHUNK) + 1) * HASH) as u64
    }

    /// Writes the file, whole or not at all, readable by its owner alone.
    pub fn save(&self, path: &Path) -> Result<(), ModelError> {
        write_file(path, Mode::Private, |w| self.write(w)).map_err(|error: io::Error| {
            ModelError::Io {
                file: path.display().to_string(),
                error,
            }
        })
    }

    /// Writes the content of a `.zkm` file.
    pub fn write(&self, w: &mut dyn Write) -> io::Result<()> {
        let mut w = Chunks::new(w);
        let mut head = Writer::new();
        self.encode_head(&mut head);
        w.write(&head.bytes)?;
        for id in WeightId::ALL {
            w.write(as_unsigned(self.values(id)))?;
            for block in self.multipliers(id).chunks(1 << 15) {
                let bytes: Vec<u8> = block.iter().flat_map(|m| m.to_le_bytes()).collect();
                w.write(&bytes)?;
            }
        }
        w.finish()
    }

    fn encode_head(&self, w: &mut Writer) {
        write_magic(w, &MODEL_MAGIC, MODEL_VERSION);
        self.header.encode(w);
        w.u64(self.tokenizer_json.len() as u64);
        w.raw(&self.tokenizer_json);
    }

    fn decode(bytes: Bytes) -> Result<Self, Fault> {
        let mut r = Reader::new(&bytes);
        let start = bytes.len();
        read_magic(&mut r, &MODEL_MAGIC, MODEL_VERSION, "zkmoe model")?;
        let header = Header::decode(&mut r)?;
        let length = usize::try_from(r.u64("tokenizer length")?).unwrap_or(usize::MAX);
        at_most("tokenizer length", length, MAX_TOKENIZER)?;
        let tokenizer_json = r.raw(length, "tokenizer")?.to_vec();
        let mut ranges = Vec::new();
        let mut packed = Vec::new();
        for id in WeightId::ALL {
            let shape = weight_shape(&header.sizes, id);
            let from = start - r.remaining();
            r.raw(shape.values(), id.name())?;
            ranges.push(from..from + shape.values());
            packed.push(r.raw(2 * shape.multipliers(), id.name())?);
        }
        let body = start - r.remaining();
        check_hashes(&bytes[..body], r)?;
        let multipliers = packed
            .into_iter()
            .map(|bytes| {
                let (pairs, _) = bytes.as_chunks::<2>();
                pairs.iter().map(|&pair| u16::from_le_bytes(pair)).collect()
            })
            .collect();
        let model = Self {
            header,
            tokenizer_json,
            values: Values::File { bytes, ranges },
            multipliers,
        };
        model.check()?;
        Ok(model)
    }

    /// Lengths and ranges of everything that later code indexes or multiplies without a check of its own.
    fn check(&self) -> Result<(), Fault> {
        self.header.check()?;
        if *blake3::hash(&self.tokenizer_json).as_bytes() != self.header.tokenizer_hash {
            return Err(Fault::Tokenizer);
        }
        let parts = match &self.values {
            Values::File { ranges, .. } => ranges.len(),
            Values::Parts(parts) => parts.len(),
        };
        for (i, id) in WeightId::ALL.into_iter().enumerate() {
            let shape = self.shape(id);
            let tensor = id.name();
            let values = if i < parts { self.values(id) } else { &[] };
            let multipliers = self.multipliers.get(i).map_or(&[][..], |m| m);
            for (what, found, expected) in [
                ("values", values.len(), shape.values()),
                ("multipliers", multipliers.len(), shape.multipliers()),
            ] {
                if found != expected {
                    return Err(Fault::Length {
                        tensor,
                        what,
                        expected,
                        found,
                    });
                }
            }
            // -128 would break the symmetric range that the model certificate proves.
            if values
                .par_chunks(CHUNK)
                .any(|chunk| chunk.contains(&i8::MIN))
            {
                return Err(Fault::Range {
                    tensor,
                    what: "the value -128",
                });
            }
            if multipliers.contains(&0) {
                return Err(Fault::Range {
                    tensor,
                    what: "the multiplier 0",
                });
            }
        }
        Ok(())
    }
}

/// Checks every chunk of `body` against the hashes that follow it.
fn check_hashes(body: &[u8], mut r: Reader<'_>) -> Result<(), Fault> {
    let count = body.len().div_ceil(CHUNK);
    let table = r.raw(count * HASH, "chunk hashes")?;
    let root = r.digest("hash of the chunk hashes")?;
    // Before all of the file is read.
    r.finish()?;
    if *blake3::hash(table).as_bytes() != root {
        return Err(Fault::Hash(body.len()..body.len() + table.len()));
    }
    let (hashes, _) = table.as_chunks::<HASH>();
    let damaged = body
        .par_chunks(CHUNK)
        .zip(hashes)
        .position_first(|(chunk, hash)| blake3::hash(chunk).as_bytes() != hash);
    match damaged {
        None => Ok(()),
        Some(i) => Err(Fault::Hash(i * CHUNK..body.len().min((i + 1) * CHUNK))),
    }
}

/// Passes bytes on and collects the hash of every chunk.
struct Chunks<'a> {
    sink: &'a mut dyn Write,
    hasher: blake3::Hasher,
    filled: usize,
    hashes: Vec<u8>,
}

impl<'a> Chunks<'a> {
    fn new(sink: &'a mut dyn Write) -> Self {
        Self {
            sink,
            hasher: blake3::Hasher::new(),
            filled: 0,
            hashes: Vec::new(),
        }
    }

    fn close_chunk(&mut self) {
        self.hashes.extend(self.hasher.finalize().as_bytes());
        self.hasher.reset();
        self.filled = 0;
    }

    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        self.sink.write_all(bytes)?;
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(CHUNK - self.filled));
            self.hasher.update(now);
            self.filled += now.len();
            if self.filled == CHUNK {
                self.close_chunk();
            }
            bytes = later;
        }
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        if self.filled > 0 {
            self.close_chunk();
        }
        self.sink.write_all(&self.hashes)?;
        self.sink.write_all(blake3::hash(&self.hashes).as_bytes())
    }
}

/// A small generator with a fixed sequence, for test weights and sampled calibration text; no secrets come from it.
#[derive(Debug, Clone)]
pub(crate) struct SplitMix(u64);

impl SplitMix {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which must be small against `2^32`.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        (((self.next() >> 32) * u64::from(bound)) >> 32) as u32
    }

    /// A real number in `[0, 1)`.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The largest `factor = 2^k` of a norm over `width` inputs of `bits` bits that `Header::check` allows, as `k`.
pub(crate) fn norm_factor_bits(width: usize, bits: u32) -> u32 {
    // factor * width * 2^(2 bits - 2) must leave room for an epsilon below 2^62, so it stays at or below 2^61.
    (63 - 2 * bits) - width.next_power_of_two().trailing_zeros()
}

/// A header for random weights: shifts under which the worst or, where only that is possible, the typical case of
/// every sum stays far inside its range. All tests of all crates use it, at any size.
pub fn random_header(sizes: &Sizes, tokenizer_json: &[u8]) -> Header {
    let key_width = sizes.num_key_value_heads * sizes.head_dim;
    let query_width = key_width * sizes.query_group;
    // A norm of factor 2^k maps a vector to one of length 2^(45 - shift - k/2). Length 2^14 to 2^14.5 keeps every
    // single element inside 16 bits even when it holds all of the vector's length.
    let norm = |width, bits| {
        let k = norm_factor_bits(width, bits);
        (1u64 << k, 1 << 20, (31 - k / 2).clamp(17, 32))
    };
    let hidden = norm(sizes.hidden_size, 24);
    let query = norm(query_width, 16);
    let key = norm(key_width, 16);
    // Scores are products of two vectors of length 2^14 * sqrt(head_dim / width) with a random angle; shift them to
    // differences of about 2^11, two units of the natural exponent. At least 13, so that no difference leaves the table.
    let logarithm = |x: usize| (x as f64).log2();
    let score = 28.0 + logarithm(sizes.head_dim) / 2.0 - logarithm(query_width) - 11.0;
    let scales = Scales {
        norm_factor: hidden.0,
        norm_epsilon: hidden.1,
        norm_shift: hidden.2,
        query_norm_factor: query.0,
        query_norm_epsilon: query.1,
        query_norm_shift: query.2,
        key_norm_factor: key.0,
        key_norm_epsilon: key.1,
        key_norm_shift: key.2,
        query_shift: 15,
        key_shift: 15,
        value_shift: 15,
        rope_shift: 27,
        score_shift: (score.round() as u32).clamp(13, 16),
        output_shift: 16,
        router_shift: 9,
        router_score_shift: 6,
        gate_shift: 15,
        up_shift: 15,
        product_shift: 14,
        down_shift: 12,
        head_shift: 14,
    };
    let (cos_table, sin_table) =
        tables::rope_tables(sizes.max_position_embeddings, sizes.head_dim / 2, 10_000.0);
    Header {
        sizes: sizes.clone(),
        scales,
        eos_token: 0,
        pad_token: 1,
        exp_table: tables::exp_table(),
        silu_table: tables::silu_table(2048.0, 2048.0),
        cos_table,
        sin_table,
        tokenizer_hash: *blake3::hash(tokenizer_json).as_bytes(),
        template_hash: *blake3::hash(b"").as_bytes(),
    }
}

/// A model with random weights whose inference does not overflow, for tests and benches. Its tokenizer is the empty
/// JSON object.
pub fn random_model(sizes: &Sizes, seed: u64) -> Model {
    let tokenizer_json = b"{}".to_vec();
    let header = random_header(sizes, &tokenizer_json);
    let mut random = SplitMix::new(seed);
    let parts = WeightId::ALL
        .into_iter()
        .map(|id| {
            let shape = weight_shape(sizes, id);
            // The largest multiplier; see `random_header` for the shift that goes with it.
            let largest: u32 = match id {
                WeightId::Emb => 1024,
                WeightId::Wo | WeightId::Wd | WeightId::Wh => 256,
                _ => 64,
            };
            Tensor {
                values: (0..shape.values())
                    .map(|_| (random.below(255) as i32 - 127) as i8)
                    .collect(),
                multipliers: (0..shape.multipliers())
                    .map(|_| (largest / 2 + 1 + random.below(largest / 2)) as u16)
                    .collect(),
            }
        })
        .collect();
    Model::from_parts(header, parts, tokenizer_json)
        .expect("sizes that pass Header::check give a valid model")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;
    use crate::files::tests::Scratch;

    fn micro() -> Sizes {
        Sizes {
            vocab_size: 13,
            hidden_size: 8,
            intermediate_size: 4,
            num_hidden_layers: 2,
            num_key_value_heads: 1,
            query_group: 2,
            head_dim: 4,
            num_experts: 3,
            num_experts_per_tok: 2,
            max_position_embeddings: 16,
        }
    }

    fn bytes(model: &Model) -> Vec<u8> {
        let mut bytes = Vec::new();
        model.write(&mut bytes).unwrap();
        bytes
    }

    fn fault(bytes: Vec<u8>) -> Fault {
        match Model::from_bytes(bytes).unwrap_err() {
            ModelError::Invalid { fault, .. } => fault,
            ModelError::Io { error, .. } => panic!("{error}"),
        }
    }

    #[test]
    fn a_saved_model_reads_back() {
        let scratch = Scratch::new("model");
        let path = scratch.0.join("m.zkm");
        let model = random_model(&micro(), 1);
        model.save(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), model.file_size());
        let read = Model::open(&path).unwrap();
        assert_eq!(read.header(), model.header());
        assert_eq!(read.tokenizer_json(), model.tokenizer_json());
        for id in WeightId::ALL {
            assert_eq!(read.values(id), model.values(id));
            assert_eq!(read.multipliers(id), model.multipliers(id));
        }
        assert_eq!(bytes(&read), bytes(&model));
    }

    #[test]
    fn committed_values_follow_the_layout() {
        let model = random_model(&micro(), 2);
        let id = WeightId::Wd;
        let shape = model.shape(id);
        let (outer, inn, out) = (4, 3, 7);
        let value = model.values(id)[outer * shape.inn * shape.out + inn * shape.out + out];
        let multiplier = model.multipliers(id)[outer * shape.out + out];
        assert_eq!(
            model.committed(id, outer, inn, out),
            i64::from(value) * i64::from(multiplier)
        );
    }

    #[test]
    fn damage_is_located() {
        // More than one chunk: the tables of the header alone take a quarter of one.
        let sizes = Sizes {
            vocab_size: 700,
            hidden_size: 1024,
            ..micro()
        };
        let good = bytes(&random_model(&sizes, 3));
        assert!(good.len() > 2 * CHUNK);
        let mut bad = good.clone();
        bad[CHUNK + 7] ^= 1;
        assert_eq!(fault(bad), Fault::Hash(CHUNK..2 * CHUNK));
        let mut bad = good.clone();
        let end = bad.len() - 1;
        bad[end] ^= 1;
        assert!(matches!(fault(bad), Fault::Hash(_)));
        let mut bad = good.clone();
        bad.push(0);
        assert_eq!(fault(bad), Fault::Decode(DecodeError::Trailing(1)));
        let mut bad = good;
        bad.truncate(CHUNK);
        assert_eq!(fault(bad), Fault::Decode(DecodeError::Truncated("emb")));
    }

    #[test]
    fn errors_name_file_and_field() {
        let scratch = Scratch::new("model-errors");
        let path = scratch.0.join("bad.zkm");
        fs::write(&path, b"ZKMODEL\0\x01\0\0\0").unwrap();
        let message = Model::open(&path).unwrap_err().to_string();
        assert!(message.contains("bad.zkm"), "{message}");
        assert!(message.contains("vocab_size"), "{message}");
        fs::write(&path, b"something else").unwrap();
        let message = Model::open(&path).unwrap_err().to_string();
        assert!(message.contains("not a zkmoe model"), "{message}");
    }

    #[test]
    fn forbidden_weights_are_refused() {
        let model = random_model(&micro(), 4);
        let parts = || -> Vec<Tensor> {
            WeightId::ALL
                .iter()
                .map(|&id| Tensor {
                    values: model.values(id).to_vec(),
                    multipliers: model.multipliers(id).to_vec(),
                })
                .collect()
        };
        let build = |parts| {
            Model::from_parts(model.header().clone(), parts, b"{}".to_vec())
                .unwrap_err()
                .to_string()
        };
        let mut bad = parts();
        bad[3].values[5] = -128;
        assert!(build(bad).contains("`wv` holds the value -128"));
        let mut bad = parts();
        bad[11].multipliers[0] = 0;
        assert!(build(bad).contains("`wh` holds the multiplier 0"));
        let mut bad = parts();
        bad[2].values.pop();
        assert!(build(bad).contains("`wk` has 63 values"), "wk");
        let mut bad = parts();
        bad.pop();
        assert!(build(bad).contains("`wh` has 0 values"));
        let wrong = Model::from_parts(model.header().clone(), parts(), b"[]".to_vec());
        assert!(wrong.unwrap_err().to_string().contains("tokenizer"));
    }

    #[test]
    fn norm_factors_are_the_largest_allowed() {
        for (width, bits) in [(128, 24), (8, 24), (1 << 14, 24), (96, 16), (4096, 16)] {
            let k = norm_factor_bits(width, bits);
            let largest = |k: u32| (width as u128) << (k + 2 * bits - 2);
            assert!(largest(k) + (1 << 20) < 1 << 62);
            assert!(largest(k + 1) >= 1 << 61);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_flipped_bit_is_noticed(position in any::<prop::sample::Index>(), bit in 0..8u32) {
            let mut bad = bytes(&random_model(&micro(), 5));
            let position = position.index(bad.len());
            bad[position] ^= 1 << bit;
            prop_assert!(Model::from_bytes(bad).is_err());
        }

        #[test]
        fn any_prefix_is_refused(position in any::<prop::sample::Index>()) {
            let mut bad = bytes(&random_model(&micro(), 6));
            bad.truncate(position.index(bad.len()));
            prop_assert!(Model::from_bytes(bad).is_err());
        }
    }
}
