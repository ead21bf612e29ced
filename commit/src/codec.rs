//! Strict binary encoding: little-endian integers, canonical field elements, nothing optional.
//!
//! A [`Reader`] never allocates on the word of its input: the caller says how many items it expects, from public
//! sizes, and the reader checks that the bytes are there before it makes room for them.

use crate::field::{F, K, ext, from_word, word};

/// Why bytes were refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The input ends inside the named field.
    #[error("ends inside `{0}`")]
    Truncated(&'static str),
    /// Bytes are left after the last field.
    #[error("{0} surplus bytes at the end")]
    Trailing(usize),
    /// The named field holds a value that no writer produces.
    #[error("`{0}` holds a value that is not allowed")]
    Invalid(&'static str),
    /// The named field holds a number above its limit.
    #[error("`{field}` is {found}, at most {most} is allowed")]
    Limit {
        /// The field.
        field: &'static str,
        /// The number in the input.
        found: u64,
        /// The largest number that is allowed.
        most: u64,
    },
    /// There are more or fewer bytes than the sizes in the headers ask for.
    #[error("has {found} bytes, with the sizes that it states it has {least} to {most}")]
    Length {
        /// The bytes that there are.
        found: u64,
        /// The fewest that there can be.
        least: u64,
        /// The most that there can be.
        most: u64,
    },
    /// The file starts with another magic.
    #[error("this is not a {0} file")]
    Magic(&'static str),
    /// The file has another version of its format.
    #[error("{what} version {found}, this program reads version {expected}")]
    Version {
        /// The kind of file.
        what: &'static str,
        /// The version in the file.
        found: u32,
        /// The version that this program reads.
        expected: u32,
    },
}

/// Refuses a number above a limit.
pub fn at_most(field: &'static str, found: usize, most: usize) -> Result<(), DecodeError> {
    if found <= most {
        return Ok(());
    }
    let (found, most) = (found as u64, most as u64);
    Err(DecodeError::Limit { field, found, most })
}

/// Appends values to a byte vector.
#[derive(Debug, Default, Clone)]
pub struct Writer {
    /// What was written so far.
    pub bytes: Vec<u8>,
}

impl Writer {
    /// An empty writer.
    pub fn new() -> Self {
        Self::default()
    }
    /// One byte.
    pub fn u8(&mut self, x: u8) {
        self.bytes.push(x);
    }
    /// Two bytes.
    pub fn u16(&mut self, x: u16) {
        self.bytes.extend(x.to_le_bytes());
    }
    /// Four bytes.
    pub fn u32(&mut self, x: u32) {
        self.bytes.extend(x.to_le_bytes());
    }
    /// Eight bytes.
    pub fn u64(&mut self, x: u64) {
        self.bytes.extend(x.to_le_bytes());
    }
    /// Bytes as they are, without a length.
    pub fn raw(&mut self, x: &[u8]) {
        self.bytes.extend_from_slice(x);
    }
    /// A base field element, eight bytes.
    pub fn f(&mut self, x: F) {
        self.u64(word(x));
    }
    /// An extension element, sixteen bytes.
    pub fn k(&mut self, x: K) {
        self.f(x.c0);
        self.f(x.c1);
    }
}

/// Takes values from a byte slice.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads from the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }
    /// How many bytes are left.
    pub fn remaining(&self) -> usize {
        self.bytes.len()
    }
    /// The next `n` bytes.
    pub fn raw(&mut self, n: usize, field: &'static str) -> Result<&'a [u8], DecodeError> {
        let (head, tail) = self
            .bytes
            .split_at_checked(n)
            .ok_or(DecodeError::Truncated(field))?;
        self.bytes = tail;
        Ok(head)
    }
    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], DecodeError> {
        let (head, tail) = self
            .bytes
            .split_first_chunk()
            .ok_or(DecodeError::Truncated(field))?;
        self.bytes = tail;
        Ok(*head)
    }
    /// One byte.
    pub fn u8(&mut self, field: &'static str) -> Result<u8, DecodeError> {
        Ok(u8::from_le_bytes(self.array(field)?))
    }
    /// Two bytes.
    pub fn u16(&mut self, field: &'static str) -> Result<u16, DecodeError> {
        Ok(u16::from_le_bytes(self.array(field)?))
    }
    /// Four bytes.
    pub fn u32(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array(field)?))
    }
    /// Eight bytes.
    pub fn u64(&mut self, field: &'static str) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array(field)?))
    }
    /// A 32-byte digest.
    pub fn digest(&mut self, field: &'static str) -> Result<[u8; 32], DecodeError> {
        self.array(field)
    }
    /// A canonical base field element.
    pub fn f(&mut self, field: &'static str) -> Result<F, DecodeError> {
        from_word(self.u64(field)?).ok_or(DecodeError::Invalid(field))
    }
    /// A canonical extension element.
    pub fn k(&mut self, field: &'static str) -> Result<K, DecodeError> {
        Ok(ext(self.f(field)?, self.f(field)?))
    }
    /// `n` items of `size` bytes each, read by `item` after the bytes are known to be there.
    pub fn many<T>(
        &mut self,
        n: usize,
        size: usize,
        field: &'static str,
        mut item: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        if n.checked_mul(size)
            .is_none_or(|total| total > self.bytes.len())
        {
            return Err(DecodeError::Truncated(field));
        }
        (0..n).map(|_| item(self)).collect()
    }
    /// Refuses bytes after the last field.
    pub fn finish(self) -> Result<(), DecodeError> {
        if self.bytes.is_empty() {
            Ok(())
        } else {
            Err(DecodeError::Trailing(self.bytes.len()))
        }
    }
}

/// Starts a file: an eight-byte magic and a version.
pub fn write_magic(w: &mut Writer, magic: &[u8; 8], version: u32) {
    w.raw(magic);
    w.u32(version);
}

/// Checks the start of a file against [`write_magic`]; `what` names the kind of file in errors.
pub fn read_magic(
    r: &mut Reader<'_>,
    magic: &[u8; 8],
    version: u32,
    what: &'static str,
) -> Result<(), DecodeError> {
    if r.raw(8, "magic").map_err(|_| DecodeError::Magic(what))? != magic {
        return Err(DecodeError::Magic(what));
    }
    match r.u32("version")? {
        v if v == version => Ok(()),
        found => Err(DecodeError::Version {
            what,
            found,
            expected: version,
        }),
    }
}
