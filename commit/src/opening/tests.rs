//! Openings that must pass, and provers that cheat in one way each and follow the protocol otherwise.

mod rates;

use super::prover::{Message, prove_with, sumcheck};
use super::*;
use crate::channel::{Hidden, Oracle, ProverChannel, Reject, VerifierChannel};
use crate::codec::Reader;
use crate::field::scale;
use crate::layout::tests::random_weights;
use crate::merkle::{Digest, Tree};
use crate::params::Grinding;
use crate::rows::{RowCode, RowCommitter, RowSource, Rows, tail};
use crate::shape::Shape;
use crate::transcript::Transcript;
use crate::whir::WhirParams;
use proptest::prelude::*;
use std::borrow::Cow;

const COMBINED: &str = "opening: combined row at a queried position";
const VALUE: &str = "opening: value of the combined row at the point of the sumcheck";

fn small_params(log_row: u32) -> Params {
    let whir = |log_size| WhirParams {
        log_size,
        log_inv_rate: 2,
        folding: 2,
        final_log_size: 3,
        security_bits: 16,
        // So many that no changed message passes by luck where its test expects a name.
        grinding_bits: 6,
    };
    Params {
        log_row,
        log_code: log_row + 2,
        model_tail: 32,
        trace_tail: 16,
        queries: 12,
        grinding: Grinding {
            lookup: 0,
            combination: 3,
            positions: 4,
        },
        security_bits: 16,
        whir_data: whir(log_row),
        whir_tail: whir(5),
    }
}

/// One tree: where its tensors lie, their cells, its rows.
struct Side {
    kind: TreeKind,
    layout: Layout,
    cells: Vec<Vec<F>>,
    rows: Rows,
    tree: Tree,
}

struct Fixture {
    params: Params,
    code: RowCode,
    sides: Vec<Side>,
    claims: Vec<Claim<K>>,
}

fn side(params: &Params, code: &RowCode, kind: TreeKind, shapes: &[Shape], seed: u64) -> Side {
    let layout = Layout::new(shapes, params.log_row);
    let key = |what: u8| {
        let mut key = [what; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8] = kind as u8;
        key
    };
    let cells: Vec<Vec<F>> = shapes
        .iter()
        .enumerate()
        .map(|(i, shape)| tail(&key(1), i as u64, shape.len()))
        .collect();
    let mut data = layout.empty_rows();
    for (i, cells) in cells.iter().enumerate() {
        layout.scatter(i, cells, |x| x, &mut data);
    }
    let t = match kind {
        TreeKind::Model | TreeKind::NewModel => params.model_tail,
        TreeKind::Round1 | TreeKind::Round2 => params.trace_tail,
    };
    let mut rows = Rows::with_tails(data, &key(2), t);
    if kind == TreeKind::Round1 {
        rows.push_masks(&key(3), &key(4), params.log_row, params.model_tail);
    }
    let tree = rows.commit(code);
    Side {
        kind,
        layout,
        cells,
        rows,
        tree,
    }
}

fn true_value(side: &Side, tensor: usize, weights: &[AxisWeights]) -> K {
    let cells = side.cells[tensor].iter().map(|&x| lift(x));
    side.layout.shape(tensor).evaluate(cells, weights)
}

/// Three trees with shapes of the caller's and one to three claims on each tensor.
fn fixture_of(log_row: u32, shapes: [&[Shape]; 3], seed: u64) -> Fixture {
    let params = small_params(log_row);
    let code = RowCode::new(params.log_row, params.log_code);
    let kinds = [TreeKind::Model, TreeKind::Round1, TreeKind::Round2];
    let sides: Vec<Side> = kinds
        .into_iter()
        .zip(shapes)
        .map(|(kind, shapes)| side(&params, &code, kind, shapes, seed))
        .collect();
    let mut t = Transcript::new("claims");
    t.absorb("seed", &seed.to_le_bytes());
    let mut claims = Vec::new();
    for (tree, side) in sides.iter().enumerate() {
        for tensor in 0..side.layout.tensors() {
            for _ in 0..=(tensor + seed as usize) % 3 {
                let weights = random_weights(&mut t, side.layout.shape(tensor));
                claims.push(Claim {
                    tree,
                    tensor,
                    value: true_value(side, tensor, &weights),
                    weights,
                });
            }
        }
    }
    Fixture {
        params,
        code,
        sides,
        claims,
    }
}

fn fixture(seed: u64) -> Fixture {
    let model = [Shape::dense(&[2, 11, 13]), Shape::dense(&[5, 9])];
    let round1 = [
        Shape::grouped(vec![vec![5, 6], vec![12, 6], vec![3, 6]]),
        Shape::dense(&[40]),
    ];
    let round2 = [Shape::grouped(vec![vec![5, 6], vec![12, 6], vec![3, 6]])];
    fixture_of(6, [&model, &round1, &round2], seed)
}

impl Fixture {
    fn roots(&self) -> Vec<Digest> {
        self.sides.iter().map(|s| s.tree.root()).collect()
    }

    fn layouts(&self) -> Vec<&Layout> {
        self.sides.iter().map(|s| &s.layout).collect()
    }

    fn channel(&self) -> ProverChannel {
        self.channel_under(Box::new(Transcript::new("test")))
    }

    fn channel_under(&self, oracle: Box<dyn Oracle>) -> ProverChannel {
        let mut channel = ProverChannel::under(oracle, b"opening");
        channel.set_pads(pads());
        for root in self.roots() {
            channel.absorb("root", &root);
        }
        let values: Vec<K> = self.claims.iter().map(|c| c.value).collect();
        channel.hidden("values", &values);
        channel
    }

    fn trees<'a>(&'a self, sources: &[&'a dyn RowSource]) -> Vec<ProverTree<'a>> {
        self.sides
            .iter()
            .zip(sources)
            .map(|(side, &rows)| ProverTree {
                kind: side.kind,
                layout: &side.layout,
                rows,
                tree: &side.tree,
            })
            .collect()
    }

    fn prove_to(
        &self,
        channel: &mut ProverChannel,
        sources: &[&dyn RowSource],
        falsify: impl Fn(Message, &mut Vec<K>),
    ) {
        prove_with(
            channel,
            &self.params,
            &self.code,
            &self.trees(sources),
            &self.claims,
            falsify,
        );
    }

    fn sources(&self) -> Vec<&dyn RowSource> {
        self.sides
            .iter()
            .map(|s| &s.rows as &dyn RowSource)
            .collect()
    }

    fn prove_falsely(&self, falsify: impl Fn(Message, &mut Vec<K>)) -> Vec<u8> {
        let mut channel = self.channel();
        self.prove_to(&mut channel, &self.sources(), falsify);
        channel.finish()
    }

    fn prove(&self) -> Vec<u8> {
        self.prove_falsely(|_, _| ())
    }

    fn verify(&self, proof: &[u8]) -> Result<(), Reject> {
        self.verify_with(proof, &self.roots(), |_| ())
    }

    fn verify_with(
        &self,
        proof: &[u8],
        roots: &[Digest],
        change: impl FnOnce(&mut Vec<Claim<Hidden>>),
    ) -> Result<(), Reject> {
        self.verify_under(Box::new(Transcript::new("test")), proof, roots, change)
    }

    fn verify_under(
        &self,
        oracle: Box<dyn Oracle>,
        proof: &[u8],
        roots: &[Digest],
        change: impl FnOnce(&mut Vec<Claim<Hidden>>),
    ) -> Result<(), Reject> {
        let messages = Box::new(Reader::new(proof));
        let mut channel = VerifierChannel::under(oracle, b"opening", messages);
        for root in roots {
            channel.absorb("root", root);
        }
        let values = channel.hidden("values", self.claims.len())?;
        let mut claims = self
            .claims
            .iter()
            .zip(values)
            .map(|(c, value)| Claim {
                tree: c.tree,
                tensor: c.tensor,
                weights: c.weights.clone(),
                value,
            })
            .collect();
        change(&mut claims);
        let trees: Vec<VerifierTree<'_>> = self
            .sides
            .iter()
            .zip(roots)
            .map(|(side, &root)| VerifierTree {
                kind: side.kind,
                layout: &side.layout,
                root,
            })
            .collect();
        verify(&mut channel, &self.params, &trees, &claims)?;
        match channel.take_system().violated(&pads()).first() {
            Some(check) => Err(Reject::check(*check)),
            None => channel.finish(),
        }
    }
}

/// Pads for all hidden values of a test.
fn pads() -> Vec<K> {
    Transcript::new("pads").challenges("pads", 1 << 10)
}

#[track_caller]
#[allow(
    clippy::needless_pass_by_value,
    reason = "every caller has it by value"
)]
fn rejected_by(result: Result<(), Reject>, check: &str) {
    assert_eq!(result, Err(Reject::check(check)));
}

#[test]
fn honest_openings_pass() {
    for seed in 0..4 {
        let fixture = fixture(seed);
        assert_eq!(fixture.verify(&fixture.prove()), Ok(()), "{seed}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn honest_openings_of_random_shapes_pass(
        log_row in 6u32..9,
        model in proptest::collection::vec(proptest::collection::vec(1usize..20, 0..3), 0..3),
        ragged in proptest::collection::vec((0usize..9, 1usize..20), 1..4),
        seed in any::<u64>(),
    ) {
        let model: Vec<Shape> = model.iter().map(|s| Shape::dense(s)).collect();
        let ragged = [Shape::grouped(ragged.iter().map(|&(a, b)| vec![a, b]).collect())];
        let f = fixture_of(log_row, [&model, &ragged, &[]], seed);
        prop_assert_eq!(f.verify(&f.prove()), Ok(()));
    }
}

#[test]
fn no_claims_and_claims_on_nothing_pass() {
    let mut f = fixture(1);
    f.claims.clear();
    assert_eq!(f.verify(&f.prove()), Ok(()));
    f.claims.push(Claim {
        tree: 0,
        tensor: 1,
        weights: vec![AxisWeights::Table(vec![K::ZERO; 5]), AxisWeights::sum(4)],
        value: K::ZERO,
    });
    assert!(carriers(&f.layouts(), &f.claims).is_empty());
    assert_eq!(f.verify(&f.prove()), Ok(()));
    f.claims[0].value = K::ONE;
    rejected_by(f.verify(&f.prove()), VALUE);
}

#[test]
fn a_wrong_value_of_any_claim_is_rejected() {
    let honest = fixture(2);
    for c in 0..honest.claims.len() {
        let mut f = fixture(2);
        f.claims[c].value += K::ONE;
        rejected_by(f.verify(&f.prove()), VALUE);
    }
}

#[test]
fn values_of_another_tensor_or_tree_are_rejected() {
    let mut f = fixture(0);
    // The same shape, in the other trace tree.
    let weights = f
        .claims
        .iter()
        .find(|c| c.tree == 1)
        .map(|c| c.weights.clone());
    let weights = weights.unwrap_or_default();
    let value = true_value(&f.sides[1], 0, &weights);
    let claim = |tree| Claim {
        tree,
        tensor: 0,
        weights: weights.clone(),
        value,
    };
    f.claims = vec![claim(1)];
    assert_eq!(f.verify(&f.prove()), Ok(()));
    f.claims = vec![claim(2)];
    rejected_by(f.verify(&f.prove()), VALUE);
}

#[test]
fn a_proof_of_other_weights_is_rejected() {
    let f = fixture(3);
    let proof = f.prove();
    let mut tried = 0;
    for (c, claim) in f.claims.iter().enumerate() {
        let mut other = claim.weights.clone();
        let Some(AxisWeights::Bits(pairs)) =
            other.iter_mut().find(|w| matches!(w, AxisWeights::Bits(_)))
        else {
            continue;
        };
        pairs[0][0] += K::ONE;
        // Under an empty part of another axis nothing has a weight.
        let side = &f.sides[claim.tree];
        if true_value(side, claim.tensor, &other) != claim.value {
            let result = f.verify_with(&proof, &f.roots(), |claims| claims[c].weights = other);
            rejected_by(result, COMBINED);
            tried += 1;
        }
    }
    assert!(tried > 0);
    let missing = f.verify_with(&proof, &f.roots(), |claims| {
        claims.pop();
    });
    assert!(missing.is_err());
}

#[test]
fn misstated_values_and_parts_are_rejected() {
    let f = fixture(0);
    let falsified = |message, index: usize| {
        f.verify(&f.prove_falsely(|m, values| {
            if m == message {
                values[index] += K::ONE;
            }
        }))
    };
    rejected_by(falsified(Message::Values, 0), VALUE);
    rejected_by(falsified(Message::Values, 1), VALUE);
    rejected_by(falsified(Message::AtRho, 0), "WHIR: final sum");
    rejected_by(falsified(Message::Data, 5), COMBINED);
    rejected_by(falsified(Message::Tail, 31), COMBINED);
}

#[test]
fn the_length_of_an_opening_is_known() {
    let f = fixture(3);
    let mut channel = f.channel();
    let before = channel.sent().len();
    f.prove_to(&mut channel, &f.sources(), |_, _| ());
    let sent = |part: &str| -> u64 {
        let sizes = channel.sizes().iter().filter(|(l, _)| l.starts_with(part));
        sizes.map(|&(_, n)| n as u64).sum()
    };
    let rows: Vec<usize> = f.sides.iter().map(|s| s.rows.rows()).collect();
    let length = length(&f.params, &rows).unwrap();
    let found = (channel.sent().len() - before) as u64;
    assert_eq!(length.check(found), Ok(()));
    // Without WHIR, which has a test of its own, and without siblings it is exact.
    let siblings = Length::siblings(f.params.log_code, f.params.queries);
    let whir = [&f.params.whir_data, &f.params.whir_tail]
        .map(|whir| whir.length(f.params.queries + 2).unwrap().least);
    assert_eq!(
        length.least - 3 * siblings.least - whir[0] - whir[1],
        found - sent("opening: siblings") - sent("whir")
    );
}

/// The bytes of the message with this label. Among the messages before it only WHIR's roots share their label with later
/// ones; two of them are sent by then.
fn message(channel: &ProverChannel, label: &str) -> core::ops::Range<usize> {
    let mut start = 0;
    for &(l, n) in channel.sizes() {
        if l == label {
            return start..start + n;
        }
        start += if l == "whir root" { 64 } else { n };
    }
    panic!("no message `{label}`")
}

#[test]
fn every_changed_symbol_sibling_and_part_is_rejected() {
    let f = fixture(1);
    let mut channel = f.channel();
    f.prove_to(&mut channel, &f.sources(), |_, _| ());
    let mut messages = vec![
        (
            message(&channel, "opening: parts at the positions"),
            8,
            COMBINED.to_owned(),
        ),
        (
            message(&channel, "opening: data part at rho"),
            8,
            "proof of work: whir work".to_owned(),
        ),
    ];
    for side in &f.sides {
        let check = format!("opening: leaf of {}", side.kind.name());
        messages.push((
            message(&channel, side.kind.symbols_label()),
            8,
            check.clone(),
        ));
        messages.push((message(&channel, side.kind.siblings_label()), 32, check));
    }
    let proof = channel.finish();
    for (range, size, check) in messages {
        assert!(!range.is_empty());
        for at in range.step_by(size) {
            let mut other = proof.clone();
            other[at] ^= 1;
            rejected_by(f.verify(&other), &check);
        }
    }
}

#[test]
fn damaged_proofs_are_errors() {
    let f = fixture(2);
    let proof = f.prove();
    for at in 0..proof.len() {
        if at < 2000 || at % 7 == 0 {
            let mut other = proof.clone();
            other[at] ^= 1 << (at % 8);
            assert!(f.verify(&other).is_err(), "byte {at}");
        }
        if at % 97 == 0 {
            assert!(f.verify(&proof[..at]).is_err(), "first {at} bytes");
        }
    }
    assert!(f.verify(&[&proof[..], &[0]].concat()).is_err());
    assert!(f.verify(&vec![0xFF; proof.len()]).is_err());
    assert!(f.verify(&vec![0; proof.len()]).is_err());
}

#[test]
fn another_model_under_the_same_root_is_rejected() {
    let f = fixture(0);
    // Same shapes, other weights; the prover knows the root that is asked for.
    let other = side(
        &f.params,
        &f.code,
        TreeKind::Model,
        &[Shape::dense(&[2, 11, 13]), Shape::dense(&[5, 9])],
        77,
    );
    let mut channel = f.channel();
    let mut cheat = fixture(0);
    for claim in cheat.claims.iter_mut().filter(|c| c.tree == 0) {
        claim.value = true_value(&other, claim.tensor, &claim.weights);
    }
    let mut sources = f.sources();
    sources[0] = &other.rows;
    f.prove_to(&mut channel, &sources, |_, _| ());
    rejected_by(
        f.verify(&channel.finish()),
        "opening: leaf of the model tree",
    );
}

/// Rows of which one is any word.
struct FarRow {
    rows: Rows,
    row: usize,
    word: Vec<F>,
}

impl RowSource for FarRow {
    fn rows(&self) -> usize {
        self.rows.rows()
    }
    fn data(&self, row: usize) -> Cow<'_, [F]> {
        self.rows.data(row)
    }
    fn tail(&self, row: usize) -> Cow<'_, [F]> {
        self.rows.tail(row)
    }
    fn symbols(&self, code: &RowCode, row: usize, positions: &[usize]) -> Vec<F> {
        if row == self.row {
            positions.iter().map(|&j| self.word[j]).collect()
        } else {
            self.rows.symbols(code, row, positions)
        }
    }
}

impl FarRow {
    fn commit(&self, code: &RowCode) -> Tree {
        let all: Vec<usize> = (0..1 << code.log_code()).collect();
        let mut committer = RowCommitter::new(code, self.rows());
        for row in 0..self.rows() {
            committer.push_word(&self.symbols(code, row, &all));
        }
        committer.finish()
    }
}

/// A proof in which row `row` of tree `tree` is replaced by what `word` makes of its codeword.
fn with_far_row(
    tree: usize,
    row: usize,
    word: impl FnOnce(&Fixture, Vec<F>) -> Vec<F>,
) -> Result<(), Reject> {
    let mut f = fixture(1);
    let rows = f.sides[tree].rows.clone();
    let honest = f.code.codeword(&rows.data[row], &rows.tails[row]);
    let far = FarRow {
        word: word(&f, honest),
        rows,
        row,
    };
    f.sides[tree].tree = far.commit(&f.code);
    let mut channel = f.channel();
    let mut sources = f.sources();
    sources[tree] = &far;
    f.prove_to(&mut channel, &sources, |_, _| ());
    f.verify(&channel.finish())
}

#[test]
fn a_word_far_from_the_code_is_rejected_in_every_row_and_tree() {
    let f = fixture(1);
    for (tree, row) in carriers(&f.layouts(), &f.claims) {
        assert_eq!(with_far_row(tree, row, |_, word| word), Ok(()), "control");
        let far = with_far_row(tree, row, |_, mut word| {
            word.iter_mut().step_by(2).for_each(|x| *x += F::ONE);
            word
        });
        rejected_by(far, COMBINED);
    }
    let mask = f.sides[1].layout.rows();
    for row in [mask, mask + 1] {
        let far = with_far_row(1, row, |_, mut word| {
            word.iter_mut().step_by(2).for_each(|x| *x += F::ONE);
            word
        });
        rejected_by(far, COMBINED);
    }
}

#[test]
fn a_row_that_agrees_with_two_codewords_is_rejected() {
    let f = fixture(1);
    for (tree, row) in carriers(&f.layouts(), &f.claims) {
        let half = with_far_row(tree, row, |f, mut word| {
            let other = f
                .code
                .codeword(&tail(&[8; 32], 0, 64), &tail(&[8; 32], 1, 16));
            word.iter_mut()
                .zip(other)
                .step_by(2)
                .for_each(|(x, y)| *x = y);
            word
        });
        rejected_by(half, COMBINED);
    }
}

#[test]
fn a_row_of_twice_the_degree_is_rejected() {
    for (tree, row) in [(0, 1), (1, 0), (2, 0)] {
        let mut f = fixture(1);
        let long = tail(&[9; 32], 0, 64);
        let rows = &mut f.sides[tree].rows;
        rows.tails[row] = long;
        f.sides[tree].tree = f.sides[tree].rows.commit(&f.code);
        rejected_by(f.verify(&f.prove()), COMBINED);
    }
}

#[test]
fn exactly_one_tree_holds_the_mask() {
    let mut f = fixture(0);
    let proof = f.prove();
    f.sides[1].kind = TreeKind::Round2;
    rejected_by(f.verify(&proof), "opening: one tree holds the mask rows");
    f.sides[0].kind = TreeKind::Round1;
    f.sides[1].kind = TreeKind::Round1;
    rejected_by(f.verify(&proof), "opening: one tree holds the mask rows");
}

#[test]
fn the_tail_of_the_mask_hides_the_tails_of_the_model() {
    // With a single carrier, G1 is a multiple of its tail wherever the mask is zero.
    let leaks = |zero_mask_tail: bool| {
        let mut f = fixture_of(6, [&[Shape::dense(&[5])], &[], &[]], 0);
        assert_eq!(carriers(&f.layouts(), &f.claims).len(), 1);
        let (_, row) = carriers(&f.layouts(), &f.claims)[0];
        if zero_mask_tail {
            for tail in f.sides[1].rows.tails.iter_mut().rev().take(2) {
                tail.fill(F::ZERO);
            }
            f.sides[1].tree = f.sides[1].rows.commit(&f.code);
        }
        let tail = f.sides[0].rows.tails[row].clone();
        let seen = std::cell::Cell::new(false);
        f.prove_falsely(|m, g1| {
            if m == Message::Tail {
                let ratio = |i: usize| scale(g1[i], tail[0]) == scale(g1[0], tail[i]);
                seen.set((1..tail.len()).all(ratio));
            }
        });
        seen.get()
    };
    assert!(
        leaks(true),
        "the control: without the mask's tail the model's shows"
    );
    assert!(!leaks(false));
}

#[test]
fn soundness_terms_add_up_for_chosen_parameters() {
    let params = Params::choose(2_400_000, 64);
    let terms = soundness(&params, 400, 150);
    let error: f64 = terms.iter().map(|t| (-t.bits).exp2()).sum();
    assert!(-error.log2() >= 100.0, "{terms:#?}");
    let fewer = Params {
        queries: params.queries - 20,
        ..params
    };
    let error: f64 = soundness(&fewer, 400, 150)
        .iter()
        .map(|t| (-t.bits).exp2())
        .sum();
    assert!(-error.log2() < 100.0);
}

/// Prints the times and sizes of an opening of realistic size; `cargo test -p zkmoe-commit -- --ignored --nocapture`.
#[test]
#[ignore = "takes seconds and checks nothing that the small ones do not"]
fn times_of_a_large_opening() {
    use std::time::Instant;
    let params = Params::choose(2_400_000, 64);
    println!("{params:?}");
    let start = Instant::now();
    let code = RowCode::new(params.log_row, params.log_code);
    println!("code {:?}", start.elapsed());
    // Weights: one claim for each tensor. Traces: three claims for each, ragged in the sequence.
    let model: Vec<Shape> = (0..12).map(|_| Shape::dense(&[4, 3, 128, 128])).collect();
    let lengths = [200usize, 136, 64, 312];
    let round1: Vec<Shape> = (0..40)
        .map(|_| Shape::grouped(lengths.iter().map(|&n| vec![4, n, 150]).collect()))
        .collect();
    let round2: Vec<Shape> = (0..4)
        .map(|_| Shape::grouped(lengths.iter().map(|&n| vec![4, n]).collect()))
        .collect();
    let shapes = [&model[..], &round1, &round2];
    let kinds = [TreeKind::Model, TreeKind::Round1, TreeKind::Round2];
    let mut t = Transcript::new("large");
    let mut sides = Vec::new();
    for (kind, shapes) in kinds.into_iter().zip(shapes) {
        let start = Instant::now();
        let layout = Layout::new(shapes, params.log_row);
        println!("layout of {} rows: {:?}", layout.rows(), start.elapsed());
        let side = side(&params, &code, kind, shapes, 1);
        println!("cells, tails and commitment: {:?}", start.elapsed());
        let start = Instant::now();
        side.rows.commit(&code);
        println!("commitment alone: {:?}", start.elapsed());
        sides.push(side);
    }
    let mut claims = Vec::new();
    for (tree, side) in sides.iter().enumerate() {
        for tensor in 0..side.layout.tensors() {
            for _ in 0..[1, 3, 3][tree] {
                let shape = side.layout.shape(tensor);
                let weights: Vec<AxisWeights> = shape
                    .bits()
                    .iter()
                    .map(|&bits| AxisWeights::eq(&t.challenges("point", bits as usize)))
                    .collect();
                let groups = shape.groups();
                // The value of one row after the other, faster than `Shape::evaluate`.
                let value = (0..side.layout.rows())
                    .map(|row| {
                        let claim = Functional {
                            tensor,
                            weights: &weights,
                            coefficient: K::ONE,
                        };
                        let mut marks = vec![false; side.layout.rows()];
                        side.layout.carries(&claim, &mut marks);
                        if !marks[row] {
                            return K::ZERO;
                        }
                        let dense = side.layout.functional(&[claim], row);
                        let pairs = dense.iter().zip(&side.rows.data[row]);
                        pairs.map(|(&w, &x)| scale(w, x)).sum()
                    })
                    .sum();
                assert!(!groups.is_empty());
                claims.push(Claim {
                    tree,
                    tensor,
                    weights,
                    value,
                });
            }
        }
    }
    println!("{} claims", claims.len());
    let f = Fixture {
        params,
        code,
        sides,
        claims,
    };
    for _ in 0..2 {
        let start = Instant::now();
        let mut channel = f.channel();
        f.prove_to(&mut channel, &f.sources(), |_, _| ());
        println!("opening: {:?}", start.elapsed());
        let sizes = channel.sizes().to_vec();
        let proof = channel.finish();
        let start = Instant::now();
        assert_eq!(f.verify(&proof), Ok(()));
        println!(
            "verification: {:?}, {} bytes: {sizes:?}",
            start.elapsed(),
            proof.len()
        );
    }
}

#[test]
fn the_sumcheck_is_the_same_whatever_is_held() {
    let fixture = fixture(2);
    let sources = fixture.sources();
    let trees = fixture.trees(&sources);
    let carriers = carriers(&fixture.layouts(), &fixture.claims);
    let run = |room: usize| {
        let mut channel = fixture.channel();
        let gammas = channel.challenges("gamma", fixture.claims.len());
        let (params, claims) = (&fixture.params, &fixture.claims);
        let rho = sumcheck(
            &mut channel,
            params,
            &trees,
            claims,
            &gammas,
            &carriers,
            room,
        );
        (channel.finish(), rho)
    };
    let all = run(usize::MAX);
    // Held from the first, from a later, and from no round on.
    for bits in 0..=fixture.params.log_row {
        assert!(run(carriers.len() << bits) == all, "{bits} bits");
    }
    assert!(run(0) == all);
}
