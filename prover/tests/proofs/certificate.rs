//! Certificates of micro models: those in range are accepted, and each way out of it is found by the check that is there
//! for it.
//!
//! Most lies use short openings without work ([`common::quick_params`]). What is sound but for that is rejected at the
//! very end, by the policy.

use std::collections::BTreeMap;

use crate::common::{Committed, edited, micro, micro_sizes, quick_params};
use ark_ff::Field;
use rayon::prelude::*;
use zkmoe_commit::channel::VerifierChannel;
use zkmoe_commit::field::{F, from_i64};
use zkmoe_commit::params::Params;
use zkmoe_commit::rows::{RowCode, Rows};
use zkmoe_prover::certify::{Cells, Certificate, certify, certify_cells};
use zkmoe_prover::commitment::committed_cells;
use zkmoe_prover::engine::Column;
use zkmoe_prover::key::{Key, Opening};
use zkmoe_prover::model::{Model, WeightId, random_model};
use zkmoe_prover::prove::{Hook, NoHook, Purpose};
use zkmoe_prover::streamed::{StreamedRows, commit_rows};
use zkmoe_verifier::certificate::{PROTOCOL, Plan, verify_certificate, verify_messages};
use zkmoe_verifier::header::Sizes;
use zkmoe_verifier::id::ModelId;
use zkmoe_verifier::soundness::total_bits;
use zkmoe_verifier::verify::VerifyError;

const LOOKUPS: &str = "the fractions of a lookup sum to zero";
const KEYS: &str = "lookups: keys at the final point";
const ROW: usize = 44;

/// An edit of a chunk's columns.
type EditColumns<'a> = dyn Fn(usize, &mut [Vec<Column>]) + Sync + 'a;

/// A model of which some cells are something else.
#[derive(Default)]
struct Edited<'a> {
    model: Option<&'a Model>,
    weights: BTreeMap<(WeightId, usize), F>,
    digits: BTreeMap<(WeightId, usize), F>,
    counts: BTreeMap<(u8, usize), F>,
    columns: Option<&'a EditColumns<'a>>,
}

fn apply(edits: &BTreeMap<(WeightId, usize), F>, tensor: WeightId, start: usize, out: &mut [F]) {
    for (&(_, cell), &value) in edits.range((tensor, start)..(tensor, start + out.len())) {
        out[cell - start] = value;
    }
}

/// Edited weights with the digits that any weights have.
struct Plain<'a, 'b>(&'a Edited<'b>);

impl Cells for Plain<'_, '_> {
    fn weights(&self, tensor: WeightId, start: usize, out: &mut [F]) {
        self.0.weights(tensor, start, out);
    }
}

impl Cells for Edited<'_> {
    fn weights(&self, tensor: WeightId, start: usize, out: &mut [F]) {
        committed_cells(self.model.unwrap(), tensor, start, out);
        apply(&self.weights, tensor, start, out);
    }
    fn digits(&self, tensor: WeightId, start: usize, out: &mut [F]) {
        Plain(self).digits(tensor, start, out);
        apply(&self.digits, tensor, start, out);
    }
    fn counts(&self, bits: u8, counts: &mut [F]) {
        for (&(_, entry), &change) in self.counts.range((bits, 0)..(bits + 1, 0)) {
            counts[entry] += change;
        }
    }
    fn columns(&self, chunk: usize, columns: &mut [Vec<Column>]) {
        if let Some(edit) = self.columns {
            edit(chunk, columns);
        }
    }
}

/// Committed weights in the rows and others in the lookups.
struct Two<'a>(&'a Model, &'a Model);
impl Cells for Two<'_> {
    fn weights(&self, tensor: WeightId, start: usize, out: &mut [F]) {
        // Rows are read from their places in the layout, parts as a whole.
        let from = if start == 0 && out.len() == values(self.0, tensor) {
            self.1
        } else {
            self.0
        };
        committed_cells(from, tensor, start, out);
    }
}

/// Commits to cells, whatever they are.
fn commit_to(cells: &dyn Cells, model: &Model, params: Params) -> (ModelId, Key) {
    let mut id = ModelId {
        header: model.header().clone(),
        params,
        root: [0; 32],
        tokenizer: model.tokenizer_json().to_vec(),
    };
    let (params, seed) = (&id.params, [3; 32]);
    let [layout, _] = Plan::with_chunks(&id.header, 1 << 20).layouts(params);
    let fill = |tensor: usize, cell: usize, out: &mut [F]| {
        cells.weights(WeightId::ALL[tensor], cell, out);
    };
    let rows = StreamedRows {
        layout: &layout,
        fill: &fill,
        seed,
        tail: params.model_tail,
        masks: Rows::default(),
    };
    let tree = commit_rows(
        &rows,
        &RowCode::new(params.log_row, params.log_code),
        &|_, _| (),
    );
    id.root = tree.root();
    let key = Key::new(id.digest(), seed, tree, 1, 0);
    (id, key)
}

/// Makes a certificate whatever the cells are, with a permit for one.
fn forced(
    cells: &dyn Cells,
    plan: &Plan,
    id: &ModelId,
    key: &Key,
    seed: [u8; 32],
    hook: &mut impl Hook,
) -> Certificate {
    // A copy, so that any number of certificates can be made.
    let mut copy = Key::decode(&key.encode()).unwrap();
    let permit = copy.spend_with(Opening::Certificate, [5; 32]).unwrap();
    certify_cells(cells, plan, id, key, permit, seed, hook).unwrap()
}

fn values(model: &Model, tensor: WeightId) -> usize {
    model.shape(tensor).values()
}

/// Commits to edited weights and certifies them with room for `room` cells in a chunk.
fn certified(cells: &Edited<'_>, room: usize) -> (ModelId, Plan, Certificate) {
    let model = cells.model.unwrap();
    let (id, key) = commit_to(cells, model, quick_params(model));
    let plan = Plan::with_chunks(&id.header, room);
    let made = forced(cells, &plan, &id, &key, [9; 32], &mut NoHook);
    (id, plan, made)
}

fn verified(id: &ModelId, plan: &Plan, bytes: &[u8]) -> Result<f64, String> {
    let channel = VerifierChannel::new(PROTOCOL, &id.digest(), &bytes[ROW..]);
    verify_messages(id, plan, channel)
        .map(|terms| total_bits(&terms))
        .map_err(|reject| reject.to_string())
}

/// The check that the certificate of edited cells fails.
#[track_caller]
fn fails(cells: &Edited<'_>, room: usize, check: &str, what: &str) {
    let (id, plan, made) = certified(cells, room);
    assert_eq!(
        made.violated.first().map(String::as_str),
        Some(check),
        "{what}"
    );
    let verdict = verified(&id, &plan, &made.bytes).unwrap_err();
    assert!(!verdict.starts_with("soundness"), "{what}: {verdict}");
}

/// That nothing but the policy is against the certificate of edited cells.
#[track_caller]
fn holds(cells: &Edited<'_>, room: usize, what: &str) {
    let (id, plan, made) = certified(cells, room);
    assert!(made.violated.is_empty(), "{what}");
    let verdict = verified(&id, &plan, &made.bytes).unwrap_err();
    assert!(verdict.starts_with("soundness"), "{what}: {verdict}");
}

/// First, last and some other cell of a tensor.
fn picked(model: &Model, tensor: WeightId) -> [usize; 3] {
    let n = values(model, tensor);
    [0, n - 1, (tensor.index() * 7919 + 13) % n]
}

#[test]
fn an_honest_certificate_is_accepted() {
    let by = Committed::new(micro());
    let made = certify(&by.model, &by.id, &mut by.key(), [9; 32], &mut NoHook).unwrap();
    let terms = verify_certificate(&by.id, &made.bytes).unwrap();
    assert!(total_bits(&terms) >= 100.0);
    assert!(terms.iter().any(|t| t.name == "lookups: poles and keys"));
    println!("{} bytes {:?}", made.bytes.len(), made.sizes);
    let sum: usize = made.sizes.iter().map(|(_, n)| n).sum();
    assert_eq!(made.bytes.len(), sum + ROW);
}

#[test]
fn certificates_of_many_chunks_are_accepted() {
    let by = Committed::new(micro());
    for room in [1000, 301] {
        let plan = Plan::with_chunks(&by.id.header, room);
        let chunks = plan.chunks().len();
        assert!(chunks > 3);
        let made = forced(&by.model, &plan, &by.id, &by.key(), [9; 32], &mut NoHook);
        assert!(made.violated.is_empty(), "{chunks} chunks");
        assert!(verified(&by.id, &plan, &made.bytes).unwrap() >= 100.0);
        // The same messages with other chunks mean nothing.
        assert!(verify_certificate(&by.id, &made.bytes).is_err());
    }
}

#[test]
fn chunks_of_one_cell_and_of_odd_sizes_hold() {
    let sizes = Sizes {
        vocab_size: 3,
        hidden_size: 3,
        intermediate_size: 1,
        num_hidden_layers: 1,
        num_key_value_heads: 1,
        query_group: 1,
        head_dim: 2,
        num_experts: 3,
        num_experts_per_tok: 1,
        max_position_embeddings: 4,
    };
    let model = random_model(&sizes, 5);
    let cells = Edited {
        model: Some(&model),
        ..Edited::default()
    };
    for room in [1, 2, 5, 11] {
        holds(&cells, room, &format!("chunks of {room}"));
    }
    let model = random_model(&micro_sizes(), 7);
    let cells = Edited {
        model: Some(&model),
        ..Edited::default()
    };
    holds(&cells, 97, "chunks of 97");
}

#[test]
fn both_ends_of_the_range_are_in_it() {
    let model = micro();
    let mut cells = Edited {
        model: Some(&model),
        ..Edited::default()
    };
    for tensor in WeightId::ALL {
        for (cell, value) in picked(&model, tensor)
            .into_iter()
            .zip([-(1 << 23), (1 << 23) - 1, 0])
        {
            cells.weights.insert((tensor, cell), from_i64(value));
        }
    }
    let (id, key) = commit_to(&cells, &model, Committed::new(micro()).id.params);
    for room in [1 << 20, 500] {
        let plan = Plan::with_chunks(&id.header, room);
        let made = forced(&cells, &plan, &id, &key, [9; 32], &mut NoHook);
        assert!(made.violated.is_empty());
        assert!(verified(&id, &plan, &made.bytes).unwrap() >= 100.0);
    }
}

#[test]
fn no_tensor_may_hold_a_weight_beyond_the_range() {
    let model = micro();
    let fraction = |x: i64| from_i64(x) * from_i64(1 << 16).inverse().unwrap();
    let beyond = [
        ("2^23", from_i64(1 << 23)),
        ("-2^23 - 1", from_i64(-(1 << 23) - 1)),
        ("2^24", from_i64(1 << 24)),
        ("2^39", from_i64(1 << 39)),
        ("2^62", from_i64(1 << 62)),
        ("1/2", from_i64(2).inverse().unwrap()),
        ("1/2^16", fraction(1)),
        ("-3/2^16", fraction(-3)),
        ("p/2^16, rounded down", F::from(0xFFFF_FFFF_0000u64)),
    ];
    let cases: Vec<_> = WeightId::ALL
        .into_iter()
        .flat_map(|tensor| beyond.iter().map(move |value| (tensor, *value)))
        .enumerate()
        .collect();
    cases.par_iter().for_each(|&(n, (tensor, (name, value)))| {
        let cell = picked(&model, tensor)[n % 3];
        let cells = Edited {
            model: Some(&model),
            weights: BTreeMap::from([((tensor, cell), value)]),
            ..Edited::default()
        };
        let room = [1 << 20, 400][n % 2];
        fails(
            &cells,
            room,
            LOOKUPS,
            &format!("{name} in {tensor:?} at {cell}"),
        );
    });
}

/// Digits that make up for a weight out of range, or for nothing.
#[test]
fn digits_are_bound() {
    let model = micro();
    let two_16 = from_i64(1 << 16);
    let cases: Vec<(WeightId, usize, F, F)> = WeightId::ALL
        .into_iter()
        .enumerate()
        .flat_map(|(n, tensor)| {
            let cell = picked(&model, tensor)[n % 3];
            let mut own = [F::default()];
            committed_cells(&model, tensor, cell, &mut own);
            let shifted = own[0] + from_i64(1 << 23);
            // One digit up or down; the digit that leaves zero, and the one that leaves the weight itself as lowest.
            let zero = shifted * two_16.inverse().unwrap();
            let digit = from_i64((zkmoe_commit::field::word(shifted) >> 16) as i64);
            [
                (tensor, cell, own[0], digit + from_i64(1)),
                (tensor, cell, own[0], digit - from_i64(1)),
                (tensor, cell, own[0], zero),
                (tensor, cell, from_i64(1 << 30), zero),
                (tensor, cell, from_i64(1 << 23), from_i64(255)),
                (tensor, cell, from_i64(1 << 40), from_i64((1 << 24) + 128)),
            ]
        })
        .collect();
    cases.par_iter().for_each(|&(tensor, cell, weight, digit)| {
        let cells = Edited {
            model: Some(&model),
            weights: BTreeMap::from([((tensor, cell), weight)]),
            digits: BTreeMap::from([((tensor, cell), digit)]),
            ..Edited::default()
        };
        let what = format!("{tensor:?} at {cell}: weight {weight}, digit {digit}");
        fails(&cells, 1 << 20, LOOKUPS, &what);
    });
}

#[test]
fn counts_are_bound() {
    let model = micro();
    let one = from_i64(1);
    let changes: [&[((u8, usize), F)]; 6] = [
        &[((8, 0), one)],
        &[((8, 255), -one)],
        &[((16, 0), one)],
        &[((16, 65535), one)],
        &[((16, 7), one), ((16, 8), -one)],
        &[((8, 7), one), ((16, 7), -one)],
    ];
    changes.par_iter().for_each(|change| {
        let cells = Edited {
            model: Some(&model),
            counts: change.iter().copied().collect(),
            ..Edited::default()
        };
        for room in [1 << 20, 700] {
            fails(&cells, room, LOOKUPS, &format!("{change:?}"));
        }
    });
}

/// Sums the fractions of other keys than those of the committed weight: leaves it out.
#[test]
fn no_cell_is_left_out() {
    let model = micro();
    let room = 400;
    let plan = Plan::with_chunks(model.header(), room);
    let chunks = plan.chunks();
    (0..chunks.len()).into_par_iter().for_each(|chunk| {
        let last = chunks[chunk].len() - 1;
        let part = &chunks[chunk][last];
        let cell = part.first_cell + part.cells - 1;
        let lie = |at: usize, columns: &mut [Vec<Column>]| {
            if at == chunk {
                for column in &mut columns[2 * last..2 * last + 2] {
                    if let Column::Base(keys) = &mut column[0] {
                        *keys.last_mut().unwrap() = from_i64(0);
                    }
                }
            }
        };
        let one = from_i64(1);
        let cells = Edited {
            model: Some(&model),
            weights: BTreeMap::from([((part.tensor, cell), from_i64(1 << 45))]),
            // What is left out has to be counted, as no key of it is in a table.
            counts: BTreeMap::from([((8, 0), one), ((16, 0), one)]),
            columns: Some(&lie),
            ..Edited::default()
        };
        fails(&cells, room, KEYS, &format!("{part:?}"));
    });
}

#[test]
fn a_certificate_of_fewer_weights_is_not_one_of_all() {
    let by = Committed::new(micro());
    let plan = Plan::new(&by.id).unwrap();
    let fewer = Sizes {
        num_hidden_layers: 1,
        ..micro_sizes()
    };
    let small = random_model(&fewer, 7);
    let mut header = by.model.header().clone();
    header.sizes = fewer;
    let short = Plan::with_chunks(&header, 1 << 20);
    let made = forced(&small, &short, &by.id, &by.key(), [9; 32], &mut NoHook);
    assert!(verified(&by.id, &plan, &made.bytes).is_err());
    assert!(verify_certificate(&by.id, &made.bytes).is_err());
}

#[test]
fn other_weights_than_the_committed_are_rejected() {
    let by = Committed::quick(micro());
    let plan = Plan::new(&by.id).unwrap();
    WeightId::ALL.par_iter().for_each(|&tensor| {
        let other = edited(&by.model, |parts| {
            let value = parts[tensor.index()].values.last_mut().unwrap();
            *value = if *value > 0 { *value - 1 } else { *value + 1 };
        });
        let made = forced(&other, &plan, &by.id, &by.key(), [9; 32], &mut NoHook);
        let leaf = "opening: leaf of the model tree";
        assert_eq!(
            made.violated.first().map(String::as_str),
            Some(leaf),
            "{tensor:?}"
        );
        assert!(verified(&by.id, &plan, &made.bytes).is_err());
    });
    let other = edited(&by.model, |parts| {
        let value = &mut parts[WeightId::Wk.index()].values[5];
        *value = if *value > 0 { *value - 1 } else { *value + 1 };
    });
    let made = forced(
        &Two(&by.model, &other),
        &plan,
        &by.id,
        &by.key(),
        [9; 32],
        &mut NoHook,
    );
    let value = "opening: value of the combined row at the point of the sumcheck";
    assert_eq!(made.violated.first().map(String::as_str), Some(value));
    assert!(verified(&by.id, &plan, &made.bytes).is_err());
}

#[test]
fn models_keys_and_ids_have_to_fit() {
    let by = Committed::quick(micro());
    let same = Committed::with(micro(), by.id.params.clone(), [4; 32]);
    let other = Committed::quick(random_model(
        &Sizes {
            hidden_size: 14,
            ..micro_sizes()
        },
        7,
    ));
    let refused = |model: &Model, id: &ModelId, mut key: Key| {
        let refusal = certify(model, id, &mut key, [9; 32], &mut NoHook);
        assert_eq!(key.left(Opening::Certificate), 1, "nothing was spent");
        refusal.unwrap_err().to_string()
    };
    assert_eq!(
        refused(&by.model, &by.id, same.key()),
        "the key belongs to another id"
    );
    assert_eq!(
        refused(&other.model, &by.id, by.key()),
        "the id belongs to another model"
    );
    // A model with other weights under the same header is noticed before anything leaves.
    let changed = edited(&by.model, |parts| parts[0].values[0] ^= 1);
    assert_eq!(
        refused(&changed, &by.id, by.key()),
        "the id belongs to other weights"
    );

    let made = forced(
        &by.model,
        &Plan::new(&by.id).unwrap(),
        &by.id,
        &by.key(),
        [9; 32],
        &mut NoHook,
    );
    let verdict = verify_certificate(&same.id, &made.bytes).unwrap_err();
    let about = "model id: the certificate is about another model";
    assert_eq!(verdict.to_string(), about);
    // With the digest of the other id written into it.
    let mut renamed = made.bytes;
    renamed[12..ROW].copy_from_slice(&same.id.digest());
    assert!(matches!(
        verify_certificate(&same.id, &renamed),
        Err(VerifyError::Rejected(_))
    ));
}

#[test]
fn damaged_certificates_are_never_accepted() {
    let by = Committed::new(micro());
    let made = certify(&by.model, &by.id, &mut by.key(), [9; 32], &mut NoHook).unwrap();
    let bytes = &made.bytes;
    assert!(verify_certificate(&by.id, bytes).is_ok());
    let spread = (0..48).map(|n| n * (bytes.len() - 1) / 47);
    let places: Vec<usize> = (0..300).step_by(9).chain(spread).collect();
    places.par_iter().for_each(|&at| {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        assert!(verify_certificate(&by.id, &changed).is_err(), "byte {at}");
        assert!(
            verify_certificate(&by.id, &bytes[..at]).is_err(),
            "cut at {at}"
        );
    });
    let longer = [&bytes[..], &[0]].concat();
    assert!(verify_certificate(&by.id, &longer).is_err());
}

/// Notes phases and seeds.
#[derive(Default)]
struct Watch {
    phases: Vec<&'static str>,
    seeds: BTreeMap<(Purpose, u64), [u8; 32]>,
}

impl Hook for Watch {
    fn phase(&mut self, name: &'static str) {
        self.phases.push(name);
    }
    fn seed(&mut self, purpose: Purpose, n: u64, seed: &mut [u8; 32]) {
        assert!(
            self.seeds.insert((purpose, n), *seed).is_none(),
            "{purpose:?} twice"
        );
    }
}

#[test]
fn a_certificate_depends_on_its_randomness_and_not_on_threads() {
    let by = Committed::quick(micro());
    let plan = Plan::with_chunks(&by.id.header, 600);
    let make = |id: &ModelId, key: &Key, threads, seed| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        pool.install(|| {
            let mut watch = Watch::default();
            let made = forced(&by.model, &plan, id, key, [seed; 32], &mut watch);
            assert_eq!(watch.phases.first(), Some(&"count digits"));
            (made.bytes, watch.seeds)
        })
    };
    let (one, seeds) = make(&by.id, &by.key(), 1, 9);
    let (two, _) = make(&by.id, &by.key(), 2, 9);
    let (other, other_seeds) = make(&by.id, &by.key(), 2, 8);
    assert!(one == two && one != other);
    // All seeds differ, between certificates and, if the generator repeats itself, between ids.
    let same = Committed::with(micro(), by.id.params.clone(), [4; 32]);
    let (_, of_other_id) = make(&same.id, &same.key(), 2, 9);
    let all: Vec<&[u8; 32]> = [&seeds, &other_seeds, &of_other_id]
        .into_iter()
        .flat_map(BTreeMap::values)
        .collect();
    let distinct: std::collections::BTreeSet<_> = all.iter().collect();
    assert_eq!(distinct.len(), all.len());
    for purpose in [
        Purpose::Tails,
        Purpose::Mask,
        Purpose::MaskTail,
        Purpose::Pads,
        Purpose::PadRows,
        Purpose::PadProof,
    ] {
        assert!(seeds.keys().any(|(p, _)| *p == purpose), "{purpose:?}");
    }
}
