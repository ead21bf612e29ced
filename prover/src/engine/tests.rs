//! Every term of the relation, evaluated in two ways on random tensors: cell by cell and then folded, and by the
//! engine's split into bound indices, arrays and a sumcheck.

use ark_ff::{AdditiveGroup, Field};
use std::collections::BTreeMap;
use zkmoe_commit::field::{F, K, from_i64, lift};
use zkmoe_commit::shape::AxisWeights;
use zkmoe_commit::transcript::Transcript;
use zkmoe_verifier::engine::{
    Challenges, Factor, Point, Publics, Source, Sumcheck, Weighted, next_claim, point_labels, weigh,
};
use zkmoe_verifier::header::Sizes;
use zkmoe_verifier::olmoe;
use zkmoe_verifier::relation::{BatchShape, Dims, Expr, Label, Public, Relation, Round, Term};

use super::array::{functional, project};
use super::columns::{Column, Tables};
use super::sumcheck::State;
use super::view::Witness;
use crate::model::random_header;

/// Odd and even sizes, requests of different lengths, blocks of different loads.
fn dims() -> Dims {
    let sizes = Sizes {
        vocab_size: 11,
        hidden_size: 6,
        intermediate_size: 5,
        num_hidden_layers: 3,
        num_key_value_heads: 1,
        query_group: 3,
        head_dim: 4,
        num_experts: 3,
        num_experts_per_tok: 2,
        max_position_embeddings: 16,
    };
    let batch = BatchShape {
        lengths: vec![3, 8, 1],
        blocks: vec![(0, 1, 4), (1, 0, 1), (1, 2, 7), (2, 2, 3)],
        decoded: 5,
    };
    Dims::new(sizes, batch)
}

fn random_witness(relation: &Relation, dims: &Dims, t: &mut Transcript) -> Witness {
    let mut random =
        |n: usize| -> Vec<F> { t.challenges("cells", n).iter().map(|k| k.c0).collect() };
    let tensors = relation
        .tensors
        .iter()
        .map(|tensor| {
            let n = dims.shape(&tensor.axes).len();
            (0..if tensor.extension { 2 } else { 1 })
                .map(|_| random(n))
                .collect()
        })
        .collect();
    Witness { tensors }
}

fn random_point(out: &[Label], dims: &Dims, t: &mut Transcript) -> Point {
    out.iter()
        .map(|&l| {
            (
                l,
                AxisWeights::eq(&t.challenges("point", dims.bits(l) as usize)),
            )
        })
        .collect()
}

/// The engine's value of a product, and a whole run of its sumcheck.
fn prove_product(
    relation: &Relation,
    publics: &Publics<'_>,
    witness: &Witness,
    (labels, weights, factors): (Vec<Label>, Vec<AxisWeights>, Vec<Factor>),
    t: &mut Transcript,
    name: &str,
) -> K {
    let dims = publics.dims;
    let arrays = factors
        .iter()
        .map(|f| project(relation, publics, witness, f))
        .collect();
    let terms = vec![(K::ONE, (0..factors.len()).collect())];
    let sumcheck = Sumcheck {
        labels,
        weights,
        factors,
        terms,
    };
    let mut state = State::new(&sumcheck, arrays, dims);
    let total = state.total();
    let mut claim = total;
    let degree = sumcheck.factors.len() + 1;
    let mut point: BTreeMap<Label, Vec<K>> = BTreeMap::new();
    for &label in sumcheck.labels.iter().rev() {
        point.insert(label, Vec::new());
        for _ in 0..dims.bits(label) {
            let values = state.round(degree);
            let r = t.challenge("r");
            claim = next_claim(&claim, &values, r);
            state.bind(r);
            assert_eq!(
                state.total(),
                claim,
                "{name}: round polynomial of {label:?}"
            );
            if let Some(p) = point.get_mut(&label) {
                p.push(r);
            }
        }
    }
    let mut product: K = sumcheck
        .labels
        .iter()
        .zip(&sumcheck.weights)
        .map(|(l, w)| w.extension(&point[l]))
        .product();
    for factor in &sumcheck.factors {
        let at = factor.weights_at(dims, &point);
        product *= match factor.source {
            Source::Public(p) => publics.value(p, &at),
            Source::Tensor(tensor) => tensor_value(relation, dims, witness, tensor, &at),
        };
    }
    assert_eq!(product, claim, "{name}: factors at the final point");
    total
}

/// The functional of a tensor, by the fast and by the obvious way.
fn tensor_value(
    relation: &Relation,
    dims: &Dims,
    witness: &Witness,
    tensor: usize,
    at: &[AxisWeights],
) -> K {
    let shape = dims.shape(&relation.tensors[tensor].axes);
    let components = &witness.tensors[tensor];
    let mut value = K::ZERO;
    for (n, cells) in components.iter().enumerate() {
        let fast = functional(&shape, cells, at);
        assert_eq!(
            fast,
            shape.evaluate(cells.iter().map(|&x| lift(x)), at),
            "{}",
            relation.tensors[tensor].name
        );
        value += if n == 0 {
            fast
        } else {
            fast * K::new(F::ZERO, F::ONE)
        };
    }
    value
}

#[test]
fn every_term_is_what_its_cells_say() {
    let dims = dims();
    let header = random_header(&dims.sizes, b"{}");
    let relation = olmoe::relation(&header);
    let mut t = Transcript::new("terms");
    let witness = random_witness(&relation, &dims, &mut t);
    let draw = |round, t: &mut Transcript| -> BTreeMap<Label, Vec<K>> {
        point_labels(&relation, round)
            .into_iter()
            .map(|l| (l, t.challenges("tau", dims.bits(l) as usize)))
            .collect()
    };
    let challenges = Challenges {
        beta: t.challenge("beta"),
        tau: draw(Round::First, &mut t),
        tau2: draw(Round::Second, &mut t),
        alpha: t.challenge("alpha"),
        delta: t.challenge("delta"),
    };
    let publics = Publics {
        header: &header,
        dims: &dims,
        challenges: &challenges,
    };
    let tables = Tables {
        relation: &relation,
        publics: &publics,
        witness: &witness,
    };

    let constraints = relation
        .constraints
        .iter()
        .map(|c| (&c.name, &c.out, vec![&c.expr]));
    let lookups = relation
        .lookups
        .iter()
        .map(|l| (&l.name, &l.out, l.tuple.iter().collect()));
    let mut products = 0;
    for (name, out, exprs) in constraints.chain(lookups) {
        let at = random_point(out, &dims, &mut t);
        let weights: Vec<AxisWeights> = out.iter().map(|l| at[l].clone()).collect();
        for term in exprs.iter().flat_map(|e| &e.0) {
            if term.publics.contains(&Public::LayerOfBlock) {
                continue;
            }
            let single = Expr(vec![Term {
                coefficient: 1,
                ..term.clone()
            }]);
            let slow = match evaluate(&tables, &publics, out, &single) {
                Column::Base(cells) => dims
                    .shape(out)
                    .evaluate(cells.into_iter().map(lift), &weights),
                Column::Ext(cells) => dims.shape(out).evaluate(cells, &weights),
            };
            let fast = match weigh(&relation, &dims, &publics, out, &at, term) {
                Weighted::Public(x) => x,
                Weighted::Product {
                    scale,
                    labels,
                    weights,
                    factors,
                } => {
                    products += 1;
                    scale
                        * prove_product(
                            &relation,
                            &publics,
                            &witness,
                            (labels, weights, factors),
                            &mut t,
                            name,
                        )
                }
            };
            assert_eq!(fast, slow, "{name}: {term:?}");
        }
    }
    assert!(products > 100, "the relation has many products");
}

/// As [`Tables::evaluate`], but fingerprints' powers become a tensor's worth of factors by hand.
fn evaluate(tables: &Tables<'_>, publics: &Publics<'_>, out: &[Label], expr: &Expr) -> Column {
    let [term] = &expr.0[..] else {
        return tables.evaluate(out, expr);
    };
    match (&term.publics[..], &term.refs[..]) {
        ([Public::FingerprintPower(Label::Hidden)], [reference]) => {
            let fp =
                super::columns::fingerprints(tables.relation, publics, tables.witness, reference);
            Column::Ext(fp)
        }
        _ => tables.evaluate(out, expr),
    }
}

#[test]
fn fingerprints_are_powers_times_cells() {
    let dims = dims();
    let header = random_header(&dims.sizes, b"{}");
    let relation = olmoe::relation(&header);
    let mut t = Transcript::new("fingerprints");
    let witness = random_witness(&relation, &dims, &mut t);
    let challenges = Challenges {
        beta: t.challenge("beta"),
        ..Challenges::default()
    };
    let publics = Publics {
        header: &header,
        dims: &dims,
        challenges: &challenges,
    };
    let tensor = relation.tensor("row.x").unwrap();
    let reference = zkmoe_verifier::relation::Ref {
        tensor,
        index: relation.tensors[tensor]
            .axes
            .iter()
            .map(|&l| zkmoe_verifier::relation::Index::At(l))
            .collect(),
    };
    let fast = super::columns::fingerprints(&relation, &publics, &witness, &reference);
    let width = dims.sizes.hidden_size;
    let slow: Vec<K> = witness.tensors[tensor][0]
        .chunks(width)
        .map(|row| {
            row.iter()
                .rev()
                .fold(K::ZERO, |sum, &x| sum * challenges.beta + lift(x))
        })
        .collect();
    assert_eq!(fast, slow);
}

#[test]
fn the_gather_of_expert_outputs_is_the_sum_over_blocks() {
    let dims = dims();
    let header = random_header(&dims.sizes, b"{}");
    let relation = olmoe::relation(&header);
    let mut t = Transcript::new("gather");
    let witness = random_witness(&relation, &dims, &mut t);
    let challenges = Challenges::default();
    let publics = Publics {
        header: &header,
        dims: &dims,
        challenges: &challenges,
    };
    let combine = relation
        .constraints
        .iter()
        .find(|c| c.drawn_after == Round::First)
        .unwrap();
    let at = random_point(&combine.out, &dims, &mut t);
    let term = combine
        .expr
        .0
        .iter()
        .find(|t| t.publics.contains(&Public::LayerOfBlock))
        .unwrap();
    let Weighted::Product {
        scale,
        labels,
        weights,
        factors,
    } = weigh(&relation, &dims, &publics, &combine.out, &at, term)
    else {
        panic!("the gather has factors")
    };
    let fast = scale
        * prove_product(
            &relation,
            &publics,
            &witness,
            (labels, weights, factors),
            &mut t,
            "gather",
        );

    let cells = |name: &str| &witness.tensors[relation.tensor(name).unwrap()];
    let (weight, gate, y) = (cells("row.weight"), cells("row.gate"), cells("ey"));
    let width = dims.sizes.hidden_size;
    let (mut row, mut slow) = (0, K::ZERO);
    for &(layer, _, load) in &dims.batch().blocks {
        for _ in 0..load {
            let inner: K = (0..width)
                .map(|i| at[&Label::Hidden].at(i) * lift(y[0][row * width + i]))
                .sum();
            slow += at[&Label::Layer].at(layer)
                * K::new(weight[0][row], weight[1][row])
                * lift(gate[0][row])
                * inner;
            row += 1;
        }
    }
    assert_eq!(
        fast,
        slow * lift(from_i64(term.coefficient)),
        "coefficient is 1"
    );
}
