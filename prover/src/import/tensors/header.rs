//! The header of a safetensors file, looked through before it is parsed for good.
//!
//! A header is JSON of any length about any number of tensors. Here one entry after another is read and let go, so that what
//! is left to the parser of the `safetensors` crate names each tensor of the architecture at most once, in entries
//! without anything else. Faults are reported with the name of the tensor.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use crate::json::repeated;

/// The most bytes of a header. The largest model that a header of ours allows takes about half.
const MAX_HEADER: u64 = 1 << 26;
/// Bytes in front of the header: its length.
const PREFIX: usize = 8;
/// No tensor of the architecture has more axes.
const MAX_AXES: usize = 2;
/// Under this name a header may hold texts.
const METADATA: &str = "__metadata__";

/// What a header says about a tensor.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

impl Entry {
    /// Why shape, type and offsets do not fit each other.
    fn fault(&self) -> Option<String> {
        let (from, to) = self.data_offsets;
        let axes = self.shape.len();
        if axes > MAX_AXES {
            return Some(format!("has {axes} axes, at most {MAX_AXES} are read"));
        }
        let width = match &self.dtype[..] {
            "F32" => 4,
            "F16" | "BF16" => 2,
            // Other types are refused once the shape is known to be right.
            _ => return None,
        };
        let bytes = self
            .shape
            .iter()
            .try_fold(width, |n: u64, &size| n.checked_mul(size));
        let found = to.checked_sub(from);
        match (bytes, found) {
            (None, _) => Some(format!(
                "has shape {:?}, more cells than there can be",
                self.shape
            )),
            (Some(bytes), Some(found)) if bytes == found => None,
            (Some(bytes), _) => Some(format!(
                "lies at `data_offsets` {from} to {to}, its shape {:?} and type {} need {bytes} bytes",
                self.shape, self.dtype
            )),
        }
    }
}

/// All entries of a header, each let go when it was looked at.
struct Entries<'a> {
    expected: &'a BTreeMap<String, Vec<usize>>,
}

impl<'de> DeserializeSeed<'de> for Entries<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Entries<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with one entry for each tensor")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let mut seen = BTreeSet::new();
        while let Some(name) = entries.next_key::<String>()? {
            let known = self.expected.contains_key(&name) || name == METADATA;
            if !known {
                let shown: String = name.chars().take(200).collect();
                return Err(A::Error::custom(format_args!(
                    "tensor `{shown}` is no part of this architecture, so the integer model would ignore it"
                )));
            }
            if name == METADATA {
                entries.next_value::<IgnoredAny>()?;
            } else {
                let entry: Entry = entries
                    .next_value()
                    .map_err(|error| A::Error::custom(format_args!("tensor `{name}`: {error}")))?;
                if let Some(fault) = entry.fault() {
                    return Err(A::Error::custom(format_args!("tensor `{name}` {fault}")));
                }
            }
            if seen.contains(&name) {
                return Err(repeated(&name));
            }
            seen.insert(name);
        }
        Ok(())
    }
}

/// Looks through the header of a safetensors file; the error says what is wrong with it.
pub(super) fn check(file: &[u8], expected: &BTreeMap<String, Vec<usize>>) -> Result<(), String> {
    let Some((length, rest)) = file.split_first_chunk::<PREFIX>() else {
        return Err(format!(
            "it has {} bytes, and {PREFIX} are needed for the length of its header",
            file.len()
        ));
    };
    let length = u64::from_le_bytes(*length);
    if length > MAX_HEADER {
        return Err(format!(
            "its header has {length} bytes, at most {MAX_HEADER} are allowed"
        ));
    }
    let header = rest.get(..length as usize).ok_or_else(|| {
        format!(
            "its header has {length} bytes, the file has {} behind its length",
            rest.len()
        )
    })?;
    let mut reader = serde_json::Deserializer::from_slice(header);
    Entries { expected }
        .deserialize(&mut reader)
        .and_then(|()| reader.end())
        .map_err(|error| format!("its header: {error}"))
}
