//! Notes of verified models and the secret that marks them.

use zkmoe::state::Secret;
use zkmoe::verdict::Note;

use super::numbered;
use crate::fixtures::{notes, secret};

/// A note or a secret. What is read is written with the same bytes, and only the two notes that were made with the
/// secret count as made with it.
pub fn verdict(data: &[u8]) {
    if let Ok(note) = Note::decode(data) {
        assert_eq!(note.encode(), data);
        assert_eq!(note.is_by(&secret()), notes().contains(&note));
        let _ = note.certified.is_enough();
    }
    if let Ok(secret) = Secret::decode(data) {
        assert_eq!(secret.encode(), data);
    }
}

/// Both notes and the secret.
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    let [a, b] = notes().map(|note| note.encode());
    numbered([a, b, secret().encode()])
}
