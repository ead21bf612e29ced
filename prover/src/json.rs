//! JSON from others, read without a choice.
//!
//! JSON allows a key twice and does not say which one counts, so two programs may read two things from one file. Here such
//! a file is an error. Lists and objects may be nested as deep as `serde_json` takes them without being asked, 128 levels.
//! A value takes many times the two bytes that it may have in a file, so their number is limited.

use std::cell::Cell;
use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// The most values of one file, those inside of others counted too. The largest tokenizers that are in use have fewer.
pub const MAX_VALUES: usize = 1 << 21;
/// Characters of a key that a message shows.
const SHOWN: usize = 80;

/// Reads one value. The error says what is wrong and where.
pub fn parse(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = Strict(&Cell::new(0)).deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// The error for a key that was there before.
pub fn repeated<E: Error>(key: &str) -> E {
    let shown: String = key.chars().take(SHOWN).collect();
    E::custom(format_args!("the key `{shown}` occurs twice"))
}

/// Any value whose objects have each key once, and how many values there were.
#[derive(Clone, Copy)]
struct Strict<'a>(&'a Cell<usize>);

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        self.0.set(self.0.get() + 1);
        if self.0.get() > MAX_VALUES {
            let message = format_args!("more than {MAX_VALUES} values");
            return Err(D::Error::custom(message));
        }
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }
    fn visit_bool<E>(self, x: bool) -> Result<Value, E> {
        Ok(x.into())
    }
    fn visit_i64<E>(self, x: i64) -> Result<Value, E> {
        Ok(x.into())
    }
    fn visit_u64<E>(self, x: u64) -> Result<Value, E> {
        Ok(x.into())
    }
    fn visit_f64<E>(self, x: f64) -> Result<Value, E> {
        Ok(x.into())
    }
    fn visit_str<E>(self, x: &str) -> Result<Value, E> {
        Ok(x.into())
    }
    fn visit_string<E>(self, x: String) -> Result<Value, E> {
        Ok(x.into())
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(list.into())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if map.contains_key(&key) {
                return Err(repeated(&key));
            }
            let value = entries.next_value_seed(self)?;
            map.insert(key, value);
        }
        Ok(map.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_the_usual_reader() {
        for text in [
            r#"{"a": [1, -2, 2.5, 1e300, true, null, "\u00e9"], "b": {"a": {}}, "": []}"#,
            "18446744073709551615",
            " [] ",
        ] {
            let usual: Value = serde_json::from_str(text).unwrap();
            assert_eq!(parse(text.as_bytes()).unwrap(), usual, "{text}");
        }
    }

    #[test]
    fn a_key_that_occurs_twice_is_named_with_its_place() {
        for (text, key, line) in [
            ("{\"a\": 1,\n\"a\": 1}", "`a`", "line 2"),
            (
                r#"[{"x": {"deep": 1, "": 2, "deep": 3}}]"#,
                "`deep`",
                "line 1",
            ),
            (r#"{"\u0061": 1, "a": 2}"#, "`a`", "line 1"),
        ] {
            let error = parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(key) && error.contains(line), "{error}");
        }
        let long = "k".repeat(1000);
        let error = parse(format!("{{\"{long}\":1,\"{long}\":1}}").as_bytes()).unwrap_err();
        assert!(error.to_string().len() < 200);
    }

    #[test]
    fn the_number_of_values_is_limited() {
        let list = |n: usize| format!("[{}]", vec!["0"; n].join(","));
        // The list is a value as well.
        assert!(parse(list(MAX_VALUES - 1).as_bytes()).is_ok());
        let error = parse(list(MAX_VALUES).as_bytes()).unwrap_err().to_string();
        assert!(error.contains("more than 2097152 values"), "{error}");
    }

    #[test]
    fn what_is_no_json_is_an_error() {
        let deep = [b"[".repeat(200), b"]".repeat(200)].concat();
        for bytes in [
            &b""[..],
            b"{",
            b"{} {}",
            b"[1,]",
            b"\xff",
            b"1e999",
            b"NaN",
            &deep,
        ] {
            assert!(parse(bytes).is_err(), "{:?}", bytes.first());
        }
    }
}
