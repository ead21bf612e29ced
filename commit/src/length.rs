//! How long messages can be, told from public sizes.
//!
//! All lengths are exact but those of Merkle openings, whose number of digests depends on the positions that are drawn.

use crate::codec::DecodeError;
use crate::merkle;
use core::ops::{Add, AddAssign};

/// The fewest and the most bytes of something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Length {
    /// The fewest bytes.
    pub least: u64,
    /// The most bytes.
    pub most: u64,
}

impl Length {
    /// So many bytes.
    pub const fn exactly(bytes: u64) -> Self {
        Self {
            least: bytes,
            most: bytes,
        }
    }

    /// Of `n` elements of `K`.
    pub const fn elements(n: usize) -> Self {
        Self::exactly((n as u64).saturating_mul(16))
    }

    /// Of the digests of an opening of so many distinct positions in a tree with `2^log_size` leaves.
    pub fn siblings(log_size: u32, positions: usize) -> Self {
        let (fewest, most) = merkle::sibling_bounds(log_size, positions);
        Self {
            least: 32 * fewest,
            most: 32 * most,
        }
    }

    /// Refuses a length that is not in between.
    pub fn check(&self, found: u64) -> Result<(), DecodeError> {
        let Self { least, most } = *self;
        if (least..=most).contains(&found) {
            Ok(())
        } else {
            Err(DecodeError::Length { found, least, most })
        }
    }
}

impl Add for Length {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            least: self.least.saturating_add(other.least),
            most: self.most.saturating_add(other.most),
        }
    }
}
impl AddAssign for Length {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_outside_are_refused_with_all_numbers() {
        let length = Length::exactly(100) + Length::siblings(4, 2);
        // Neighbours share all but their own level; positions in different halves share nothing.
        assert_eq!((length.least, length.most), (100 + 3 * 32, 100 + 6 * 32));
        for found in [196, 200, 292] {
            assert_eq!(length.check(found), Ok(()));
        }
        for found in [0, 195, 293, u64::MAX] {
            let message = length.check(found).unwrap_err().to_string();
            for number in [found, 196, 292] {
                assert!(message.contains(&number.to_string()), "{message}");
            }
        }
    }

    #[test]
    fn sums_stop_at_the_largest_number() {
        let huge = Length::elements(usize::MAX) + Length::exactly(u64::MAX);
        assert_eq!(huge, Length::exactly(u64::MAX));
    }
}
