//! Ids and models, in their short forms.

use std::ops::ControlFlow;

use zkmoe::prover::infer::generate;
use zkmoe::prover::model::Model;
use zkmoe::verifier::certificate::Plan;
use zkmoe::verifier::id::ModelId;

use super::numbered;
use crate::compact;
use crate::fixtures::{provider, sound_id};

/// Models up to this number of weights are run.
const SMALL_MODEL: u64 = 1 << 14;

/// An id. What is read is written with the same bytes, and a verifier of certificates makes its plan for it or refuses it.
pub fn id(data: &[u8]) {
    let file = compact::id(data);
    let Ok(id) = ModelId::decode(&file) else {
        return;
    };
    assert_eq!(id.encode(), file);
    let _ = id.digest();
    let _ = Plan::new(&id);
}

/// The micro model's id with short openings, which the policy refuses, and with those that it allows.
pub fn id_seeds() -> Vec<(String, Vec<u8>)> {
    let ids = [provider().id.encode(), sound_id().encode()];
    let short = ids.map(|file| compact::short_id(&file));
    assert!(ModelId::decode(&compact::id(&short[1])).is_ok());
    numbered(short)
}

/// A model. What is read is written with the same bytes, and if it is small it answers a prompt: none of its sums may
/// leave the range that its header promises.
pub fn model(data: &[u8]) {
    let file = compact::model(data);
    let Ok(model) = Model::from_bytes(file.clone()) else {
        return;
    };
    let mut written = Vec::new();
    model.write(&mut written).expect("a vector");
    assert_eq!(written, file);
    assert_eq!(model.file_size(), file.len() as u64);
    if model.parameters() <= SMALL_MODEL && model.sizes().max_position_embeddings > 4 {
        let last = model.sizes().vocab_size as u32 - 1;
        let _ = generate(&model, &[0, last], 2, |_| ControlFlow::Continue(()));
    }
}

/// The micro model.
pub fn model_seeds() -> Vec<(String, Vec<u8>)> {
    let short = compact::short_model();
    assert!(Model::from_bytes(compact::model(&short)).is_ok());
    numbered([short])
}
