//! Damaged model files: every section with a flipped byte, cut at every boundary, and too long.

use std::fs;

use zkmoe::input::open_model;
use zkmoe::prover::model::{Model, WeightId};

use crate::common::{Place, finish};
use crate::{CERTIFY, COMMIT, PROVE, ROTATE, RUN, counted, others, provider};

/// Name and end of every section of the file, in order.
fn sections(place: &Place) -> Vec<(String, usize)> {
    let model = Model::open(&place.file("model.zkm")).unwrap();
    let sizes = model.sizes();
    let header = 262_368 + 4 * sizes.max_position_embeddings * (sizes.head_dim / 2);
    let mut lengths = vec![
        ("magic".to_owned(), 8),
        ("version".to_owned(), 4),
        ("sizes".to_owned(), 4 * 10),
        ("scales".to_owned(), 3 * 20 + 4 * 13),
        ("special tokens".to_owned(), 4 * 2),
        ("tables".to_owned(), header - 40 - 112 - 8 - 64),
        ("hashes of tokenizer and template".to_owned(), 64),
        ("length of the tokenizer".to_owned(), 8),
        ("tokenizer".to_owned(), model.tokenizer_json().len()),
    ];
    for id in WeightId::ALL {
        let shape = model.shape(id);
        lengths.push((format!("values of {}", id.name()), shape.values()));
        let multipliers = format!("multipliers of {}", id.name());
        lengths.push((multipliers, 2 * shape.multipliers()));
    }
    let body: usize = lengths.iter().map(|(_, length)| length).sum();
    lengths.push(("hashes".to_owned(), 32 * body.div_ceil(1 << 20)));
    lengths.push(("hash of the hashes".to_owned(), 32));
    let mut end = 0;
    let sections = lengths.into_iter().map(|(name, length)| {
        end += length;
        (name, end)
    });
    sections.collect()
}

#[track_caller]
fn refused(place: &Place, bytes: &[u8], what: &str) {
    place.write("damaged.zkm", bytes);
    let path = place.file("damaged.zkm");
    let Err(failure) = open_model(&path) else {
        panic!("{what}: opened");
    };
    assert!(
        failure.to_string().contains("damaged.zkm: "),
        "{what}: {failure}"
    );
    assert!(
        failure.advice().unwrap().contains("zkmoe import"),
        "{what}: {failure}"
    );
}

#[test]
fn a_flipped_byte_is_found_in_every_section() {
    let place = provider("model-flipped");
    let good = place.read("model.zkm");
    let sections = sections(&place);
    assert_eq!(sections.last().unwrap().1, good.len());
    assert_eq!(sections.len(), 9 + 2 * 12 + 2);
    let mut start: usize = 0;
    for (name, end) in sections {
        for at in [start, start.midpoint(end), end - 1] {
            for bit in [0x01, 0x80] {
                let mut bytes = good.clone();
                bytes[at] ^= bit;
                refused(&place, &bytes, &format!("byte {at}, in {name}"));
            }
        }
        start = end;
    }
}

#[test]
fn a_file_that_is_cut_or_too_long_is_found() {
    let place = provider("model-cut");
    let good = place.read("model.zkm");
    for (name, end) in sections(&place) {
        for length in [end - 1, end, end + 1] {
            if length < good.len() {
                let what = format!("{length} bytes, up to the end of {name}");
                refused(&place, &good[..length], &what);
            }
        }
    }
    for length in [0, 1, 1 << 20, 2 << 20] {
        refused(&place, &good[..length], &format!("{length} bytes"));
    }
    for more in [1, 31, 32, 64, 1 << 20] {
        let long = [&good[..], &vec![0; more]].concat();
        refused(&place, &long, &format!("{more} bytes more"));
    }
    refused(&place, &[&good[..], &good].concat(), "twice");
}

#[test]
fn no_command_uses_a_damaged_model() {
    let place = provider("model-unused");
    let mut bytes = place.read("model.zkm");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    place.write("model.zkm", bytes);
    for args in [RUN, COMMIT, CERTIFY, PROVE, ROTATE, "inspect model.zkm"] {
        let finished = finish(place.command(args));
        let parts = ["model.zkm: the hash of bytes", "import or copy it again"];
        finished.refused(&parts).silent();
    }
    assert!(others(&place).is_empty());
    assert_eq!(counted(&place), [0, 0, 0]);
    fs::remove_file(place.file("model.zkm")).unwrap();
    fs::create_dir(place.file("model.zkm")).unwrap();
    for args in [RUN, COMMIT, CERTIFY, PROVE, ROTATE] {
        finish(place.command(args)).refused(&["model.zkm: is not a regular file"]);
    }
}
