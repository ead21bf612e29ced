//! What each target demands.

mod checkpoint;
mod ids;
mod inspect;
mod keys;
mod notes;
mod proofs;
mod texts;

use crate::Target;
use crate::fixtures;

/// For decoders: they hold a file, what they read from it, and little more.
const SMALL: usize = 64 << 20;
/// For verifiers, until what they hold for a header is bounded by its messages.
const LARGE: usize = 1 << 30;

/// Seeds with numbers for names.
fn numbered(seeds: impl IntoIterator<Item = Vec<u8>>) -> Vec<(String, Vec<u8>)> {
    let name = |(n, bytes)| (format!("seed-{n:02}"), bytes);
    seeds.into_iter().enumerate().map(name).collect()
}

fn nothing() {}

fn all_proofs() {
    fixtures::batches();
    fixtures::certificate();
    fixtures::rotation();
}

/// All targets.
pub const ALL: &[Target] = &[
    Target {
        name: "proof",
        check: proofs::proof,
        prepare: || {
            fixtures::batches();
        },
        seeds: proofs::proof_seeds,
        heap: LARGE,
    },
    Target {
        name: "proof_mutated",
        check: proofs::proof_mutated,
        prepare: || {
            fixtures::batches();
        },
        seeds: proofs::programs,
        heap: LARGE,
    },
    Target {
        name: "certificate",
        check: proofs::certificate,
        prepare: || {
            fixtures::certificate();
        },
        seeds: proofs::programs,
        heap: LARGE,
    },
    Target {
        name: "rotation",
        check: proofs::rotation,
        prepare: || {
            fixtures::rotation();
        },
        seeds: proofs::programs,
        heap: LARGE,
    },
    Target {
        name: "slip",
        check: proofs::slip,
        prepare: || {
            fixtures::batches();
        },
        seeds: proofs::slip_seeds,
        heap: SMALL,
    },
    Target {
        name: "id",
        check: ids::id,
        prepare: || {
            fixtures::model();
        },
        seeds: ids::id_seeds,
        heap: LARGE,
    },
    Target {
        name: "key",
        check: keys::key,
        prepare: || {
            fixtures::provider();
        },
        seeds: keys::key_seeds,
        heap: SMALL,
    },
    Target {
        name: "last",
        check: keys::last,
        prepare: nothing,
        seeds: keys::last_seeds,
        heap: SMALL,
    },
    Target {
        name: "verdict",
        check: notes::verdict,
        prepare: || {
            fixtures::provider();
        },
        seeds: notes::seeds,
        heap: SMALL,
    },
    Target {
        name: "reply",
        check: texts::reply,
        prepare: || {
            texts::bundled();
        },
        seeds: texts::reply_seeds,
        heap: SMALL,
    },
    Target {
        name: "config",
        check: checkpoint::config,
        prepare: nothing,
        seeds: checkpoint::config_seeds,
        heap: SMALL,
    },
    Target {
        name: "safetensors",
        check: checkpoint::safetensors,
        prepare: nothing,
        seeds: checkpoint::safetensors_seeds,
        heap: SMALL,
    },
    Target {
        name: "tokenizer",
        check: texts::tokenizer,
        prepare: nothing,
        seeds: texts::tokenizer_seeds,
        heap: SMALL,
    },
    Target {
        name: "model",
        check: ids::model,
        prepare: || {
            fixtures::model();
        },
        seeds: ids::model_seeds,
        heap: SMALL,
    },
    Target {
        name: "inspect",
        check: inspect::inspect,
        prepare: all_proofs,
        seeds: inspect::seeds,
        heap: LARGE,
    },
];
