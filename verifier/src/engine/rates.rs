//! For how many values of a challenge a lie passes [`run`], against the numerators of the terms.
//!
//! The relations are small ones made for this, the provers as good as is possible: a sumcheck's false claim is carried by
//! round polynomials that are right at as many points as they have degrees.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use super::*;
use crate::few::{at, compare, few, numerator, with_roots};
use crate::gadgets::{fingerprint, rms_norm::EXPONENT_MAX};
use crate::header::{Header, Sizes};
use crate::id::ModelId;
use crate::olmoe::tests::{header, odd_sizes};
use crate::relation::{Builder, Tag};
use zkmoe_commit::params::Params;
use zkmoe_commit::shape::Shape;
use zkmoe_commit::soundness::Term as Bound;
use zkmoe_commit::transcript::Transcript;

const FEW: u64 = 31;

/// Four rows of eight cells, and one row where an axis has to be short.
fn sizes() -> Sizes {
    Sizes {
        vocab_size: 4,
        hidden_size: 8,
        intermediate_size: 1,
        ..odd_sizes()
    }
}

fn id() -> &'static ModelId {
    static ID: OnceLock<ModelId> = OnceLock::new();
    ID.get_or_init(|| ModelId {
        header: header(sizes()),
        params: Params::choose(1 << 10, 1),
        root: [0; 32],
        tokenizer: Vec::new(),
    })
}

fn model_header() -> &'static Header {
    &id().header
}

fn random(seed: &str, n: usize) -> Vec<K> {
    Transcript::new(seed).challenges("random", n)
}

/// One end of the channel: a prover who lies and a verifier who notes what it finds.
struct Game<'a> {
    relation: &'a Relation,
    publics: &'a Publics<'a>,
    /// The cells of every tensor, committed before.
    cells: &'a [Vec<K>],
    /// Challenges by label and number; what is not listed is random.
    chosen: &'a [(&'static str, usize, K)],
    /// Whether products are stated as their equation wants them, and not as they are.
    lies: bool,
    drawn: BTreeMap<&'static str, usize>,
    last_tensor: K,
    stated: Vec<K>,
    sumcheck: Option<Play>,
    faults: Vec<String>,
}

/// A sumcheck in progress.
struct Play {
    /// The weights and every factor, over the variables that are left.
    weights: Vec<K>,
    factors: Vec<Vec<K>>,
    terms: Vec<(K, Vec<usize>)>,
    claim: K,
    /// The polynomial of the round that was sent.
    sent: Vec<K>,
}

impl Play {
    /// The value at `x` of the round's true polynomial.
    fn round(&self, x: K) -> K {
        let between = |table: &[K], i: usize| table[2 * i] + x * (table[2 * i + 1] - table[2 * i]);
        (0..self.weights.len() / 2)
            .map(|i| {
                let products = self.terms.iter().map(|(coefficient, numbers)| {
                    let factors = numbers.iter().map(|&n| between(&self.factors[n], i));
                    *coefficient * factors.product::<K>()
                });
                between(&self.weights, i) * products.sum::<K>()
            })
            .sum()
    }
}

impl<'a> Game<'a> {
    fn new(
        relation: &'a Relation,
        publics: &'a Publics<'a>,
        cells: &'a [Vec<K>],
        chosen: &'a [(&'static str, usize, K)],
        lies: bool,
    ) -> Self {
        Self {
            relation,
            publics,
            cells,
            chosen,
            lies,
            drawn: BTreeMap::new(),
            last_tensor: K::ZERO,
            stated: Vec::new(),
            sumcheck: None,
            faults: Vec::new(),
        }
    }

    fn shape(&self, tensor: usize) -> Shape {
        self.publics.dims.shape(&self.relation.tensors[tensor].axes)
    }

    /// The true value of a factor at a point of the labels that it keeps.
    fn factor(&self, factor: &Factor, point: &BTreeMap<Label, Vec<K>>) -> K {
        let weights = factor.weights_at(self.publics.dims, point);
        match factor.source {
            Source::Public(p) => self.publics.value(p, &weights),
            Source::Tensor(t) => self
                .shape(t)
                .evaluate(self.cells[t].iter().copied(), &weights),
        }
    }

    /// Every factor at every index of the label that all share.
    fn tables(&self, label: Label, factors: &[Factor]) -> Vec<Vec<K>> {
        let bits = self.publics.dims.bits(label);
        let corner = |i: usize| (0..bits).map(|j| K::from((i >> j & 1) as u64)).collect();
        let corners: Vec<BTreeMap<Label, Vec<K>>> = (0..1 << bits)
            .map(|i| BTreeMap::from([(label, corner(i))]))
            .collect();
        let table = |f: &Factor| corners.iter().map(|point| self.factor(f, point)).collect();
        factors.iter().map(table).collect()
    }
}

impl Party for Game<'_> {
    type Value = K;
    type Error = core::convert::Infallible;

    fn public(&self, x: K) -> K {
        x
    }
    fn challenge(&mut self, label: &'static str) -> K {
        let number = self.drawn.entry(label).or_default();
        let found = self
            .chosen
            .iter()
            .find(|(l, n, _)| *l == label && n == number);
        *number += 1;
        found.map_or_else(|| random(label, *number)[*number - 1], |&(_, _, x)| x)
    }
    fn fractions(&mut self) -> Result<Fractions<K>, Self::Error> {
        // What the tree of fractions shows, in clear: that the sum is zero, and the extensions at a random point.
        let lookups = &self.relation.lookups;
        let shapes: Vec<Shape> = lookups
            .iter()
            .map(|l| self.publics.dims.shape(&l.out))
            .collect();
        let columns = crate::gkr::layout(&shapes);
        let point = random("leaves", columns.variables());
        let (mut sum, mut numerator, mut denominator) = (K::ZERO, K::ZERO, K::ONE);
        for (c, lookup) in lookups.iter().enumerate() {
            let (selector, weights) =
                (columns.selector(c, &point), columns.axis_weights(c, &point));
            for cell in 0..shapes[c].len() {
                let (count, key) = self.fraction(lookup, cell);
                let pole = self.publics.challenges.alpha - key;
                match pole.inverse() {
                    Some(inverse) => sum += count * inverse,
                    None => self.faults.push("a denominator is zero".into()),
                }
                let [axis] = &weights[..] else {
                    panic!("lookups of one axis");
                };
                numerator += selector * axis.at(cell) * count;
                denominator += selector * axis.at(cell) * (pole - K::ONE);
            }
        }
        if sum != K::ZERO {
            self.faults.push("the fractions do not sum to zero".into());
        }
        Ok(Fractions {
            point,
            numerator,
            denominator,
        })
    }
    fn tensor(
        &mut self,
        t: usize,
        component: usize,
        weights: &[AxisWeights],
    ) -> Result<K, Self::Error> {
        // Cells over the extension are kept whole, in the first component.
        let value = self
            .shape(t)
            .evaluate(self.cells[t].iter().copied(), weights);
        self.last_tensor = if component == 0 { value } else { K::ZERO };
        Ok(self.last_tensor)
    }
    fn sum(
        &mut self,
        labels: &[Label],
        weights: &[AxisWeights],
        factors: &[Factor],
    ) -> Result<K, Self::Error> {
        let [label] = labels else {
            panic!("products over one index");
        };
        let tables = self.tables(*label, factors);
        let truth = (0..tables[0].len())
            .map(|i| weights[0].at(i) * tables.iter().map(|t| t[i]).product::<K>())
            .sum();
        let stated = if self.lies { self.last_tensor } else { truth };
        self.stated.push(stated);
        Ok(stated)
    }
    fn begin(&mut self, sumcheck: &Sumcheck) -> Result<(), Self::Error> {
        let [label] = sumcheck.labels[..] else {
            panic!("products over one index");
        };
        let factors = self.tables(label, &sumcheck.factors);
        let claims = self.stated.iter().zip(&sumcheck.terms);
        self.sumcheck = Some(Play {
            weights: sumcheck.weights[0].expand(factors[0].len()),
            factors,
            terms: sumcheck.terms.clone(),
            claim: claims.map(|(&x, (coefficient, _))| x * coefficient).sum(),
            sent: Vec::new(),
        });
        Ok(())
    }
    fn round(&mut self, degree: usize) -> Result<Vec<K>, Self::Error> {
        let play = self.sumcheck.as_mut().unwrap();
        let error = play.claim - play.round(K::ZERO) - play.round(K::ONE);
        // Zero at as many of the few challenges as the degree allows, and with the sum that makes up for the error.
        let lucky = with_roots(&few(FEW)[2..2 + degree]);
        let scale = (at(&lucky, K::ZERO) + at(&lucky, K::ONE))
            .inverse()
            .unwrap();
        play.sent = lucky.iter().map(|&c| c * scale * error).collect();
        let nodes = (0..=degree).filter(|&x| x != 1).map(|x| K::from(x as u64));
        Ok(nodes.map(|x| play.round(x) + at(&play.sent, x)).collect())
    }
    fn bind(&mut self, r: K) {
        let play = self.sumcheck.as_mut().unwrap();
        play.claim = play.round(r) + at(&play.sent, r);
        for table in core::iter::once(&mut play.weights).chain(&mut play.factors) {
            *table = table
                .chunks_exact(2)
                .map(|c| c[0] + r * (c[1] - c[0]))
                .collect();
        }
    }
    fn product(&mut self, a: K, b: K) -> K {
        a * b
    }
    fn assert_zero(&mut self, value: K, check: &dyn Fn() -> String) -> Result<(), Self::Error> {
        if value != K::ZERO {
            self.faults.push(check());
        }
        Ok(())
    }
}

impl Game<'_> {
    /// Multiplicity and key of one cell of a lookup whose tuple are tensors and public functions of its one axis.
    fn fraction(&self, lookup: &Lookup, cell: usize) -> (K, K) {
        let tensor = |t: usize| self.cells[t][cell];
        let mut key = K::from(lookup.tag.number());
        let mut fold = K::ONE;
        for expr in &lookup.tuple {
            fold *= self.publics.challenges.delta;
            let term = &expr.0[0];
            let value = match (&term.refs[..], &term.publics[..]) {
                ([r], []) => tensor(r.tensor),
                ([], [p]) => self.publics.cell(*p, &[cell]),
                _ => panic!("a tuple of one tensor or function each"),
            };
            key += fold * value;
        }
        let count = match &lookup.count {
            Count::One => K::ONE,
            Count::Minus(r) => -tensor(r.tensor),
            _ => panic!("lookups and tables"),
        };
        (count, key)
    }
}

/// What a game found, and the sumchecks that were counted in it.
fn play(
    relation: &Relation,
    challenges: &Challenges,
    cells: &[Vec<K>],
    chosen: &[(&'static str, usize, K)],
    lies: bool,
) -> (Vec<String>, Vec<SumcheckSize>) {
    let dims = Dims::of_model(model_header().sizes.clone());
    let publics = Publics {
        header: model_header(),
        dims: &dims,
        challenges,
    };
    let mut game = Game::new(relation, &publics, cells, chosen, lies);
    let Ok(reduced) = run(&mut game, relation, &dims, &publics);
    // The count is one of what was drawn.
    let drawn = |label| game.drawn.get(label).copied().unwrap_or(0);
    let rounds: usize = reduced.sumchecks.iter().map(|s| s.rounds).sum();
    assert_eq!(drawn("sumcheck"), rounds);
    assert_eq!(drawn("sumcheck batching"), reduced.sumchecks.len());
    (game.faults, reduced.sumchecks)
}

fn accepts(
    relation: &Relation,
    challenges: &Challenges,
    cells: &[Vec<K>],
    chosen: &[(&'static str, usize, K)],
    lies: bool,
) -> bool {
    play(relation, challenges, cells, chosen, lies).0.is_empty()
}

/// All terms for a relation.
fn terms(relation: &Relation, sumchecks: &[SumcheckSize]) -> Vec<Bound> {
    let dims = Dims::of_model(model_header().sizes.clone());
    crate::soundness::terms(id(), relation, &dims, sumchecks, 1, 1)
}

/// `z_n = sum_i x_n w_n` for some `n`, of which every `z_n` is wrong by its own number in all cells.
fn products(errors: &[K]) -> (Relation, Vec<Vec<K>>) {
    let mut b = Builder::new();
    let mut cells = Vec::new();
    for (n, &error) in errors.iter().enumerate() {
        let x = b.trace(&format!("x{n}"), &[Label::Vocab, Label::Hidden]);
        let w = b.trace(&format!("w{n}"), &[Label::Hidden]);
        let z = b.trace(&format!("z{n}"), &[Label::Vocab]);
        b.zero(&format!("product {n}"), &[Label::Vocab], z - x * w);
        let (x, w) = (random(&format!("x{n}"), 32), random(&format!("w{n}"), 8));
        let row = |row: &[K]| row.iter().zip(&w).map(|(&a, b)| a * b).sum::<K>() + error;
        let z = x.chunks_exact(8).map(row).collect();
        cells.extend([x, w, z]);
    }
    (b.finish(), cells)
}

fn drawn_points() -> Challenges {
    Challenges {
        tau2: BTreeMap::from([(Label::Vocab, random("tau2", 2))]),
        ..Challenges::default()
    }
}

#[test]
fn true_products_pass_with_any_challenges() {
    let (relation, cells) = products(&[K::ZERO; 3]);
    let (faults, sumchecks) = play(&relation, &drawn_points(), &cells, &[], false);
    assert_eq!(faults, Vec::<String>::new());
    let size = SumcheckSize {
        products: 3,
        rounds: 3,
        degree: 3,
    };
    assert_eq!(sumchecks, [size]);
}

#[test]
fn a_false_sum_passes_as_many_challenges_as_rounds_have_degrees() {
    // All triples are tried.
    const LESS: u64 = 13;
    let (relation, cells) = products(&[K::ONE]);
    let mut passing = 0;
    for r in few(LESS) {
        for s in few(LESS) {
            for t in few(LESS) {
                let chosen = [("sumcheck", 0, r), ("sumcheck", 1, s), ("sumcheck", 2, t)];
                passing += u32::from(accepts(&relation, &drawn_points(), &cells, &chosen, true));
            }
        }
    }
    let q = LESS as f64;
    let optimal = 1.0 - (1.0 - 3.0 / q).powi(3);
    let rate = f64::from(passing) / q.powi(3);
    assert!((rate - optimal).abs() < 1e-9, "{rate} instead of {optimal}");
    let (_, sumchecks) = play(&relation, &drawn_points(), &cells, &[], true);
    let bound = numerator(&terms(&relation, &sumchecks), "products: sumchecks", 0);
    compare("sumcheck of a product", rate * q, bound, 1.3);
}

#[test]
fn batched_products_pass_at_the_roots_of_their_errors() {
    let roots = &few(FEW)[..5];
    let (relation, cells) = products(&with_roots(roots));
    let passes = |&x: &K| {
        let chosen = [("sumcheck batching", 0, x)];
        accepts(&relation, &drawn_points(), &cells, &chosen, true)
    };
    let passing: Vec<K> = few(FEW).into_iter().filter(passes).collect();
    assert_eq!(passing, roots);
    let (_, sumchecks) = play(&relation, &drawn_points(), &cells, &[], true);
    let bound = numerator(&terms(&relation, &sumchecks), "products: batching", 0);
    compare("batching of products", passing.len() as f64, bound, 1.0);
}

#[test]
fn an_equation_that_fails_in_one_cell_passes_where_the_point_misses_it() {
    let (relation, mut cells) = products(&[K::ZERO]);
    cells[2][1] += K::ONE;
    let mut passing = 0;
    for s in few(FEW) {
        for t in few(FEW) {
            let mut challenges = drawn_points();
            challenges.tau2.insert(Label::Vocab, vec![s, t]);
            let accepted = accepts(&relation, &challenges, &cells, &[], false);
            // Cell one: the lowest bit is set and the other is not.
            assert_eq!(accepted, s == K::ZERO || t == K::ONE);
            passing += u32::from(accepted);
        }
    }
    let bound = numerator(&terms(&relation, &[]), "constraints: points", 0);
    compare(
        "point of an equation",
        f64::from(passing) / FEW as f64,
        bound,
        1.05,
    );
}

/// A value outside of a table of sixteen numbers, and multiplicities with which the sum of all fractions vanishes at as many
/// poles as its numerator has degrees.
#[test]
fn a_value_outside_of_a_table_passes_at_as_many_poles_as_there_are_entries() {
    let mut b = Builder::new();
    let x = b.trace("x", &[Label::Inner]);
    b.lookup("x", &[Label::Inner], Count::One, Tag::Range(4), vec![x]);
    let relation = b.finish();
    assert_eq!(relation.lookups.len(), 2);
    let tag = K::from(Tag::Range(4).number());
    let number = |n: u64| K::from(n);
    let outside = number(20);
    // Poles that hit no entry: the sum is prod (alpha - root) / prod (alpha - key), up to a factor.
    let roots: Vec<K> = few(64).into_iter().skip(40).take(16).collect();
    let keys: Vec<K> = (0..16)
        .map(number)
        .chain([outside])
        .map(|x| tag + x)
        .collect();
    let residue = |n: usize| {
        let others = keys.iter().filter(|&&k| k != keys[n]);
        let below: K = others.map(|&k| keys[n] - k).product();
        roots.iter().map(|&r| keys[n] - r).product::<K>() * below.inverse().unwrap()
    };
    let scale = residue(16).inverse().unwrap();
    let counts = (0..16).map(|n| -residue(n) * scale).collect();
    let cells = vec![vec![outside], counts];
    let passes = |&alpha: &K| {
        let challenges = Challenges {
            alpha,
            delta: K::ONE,
            ..Challenges::default()
        };
        accepts(&relation, &challenges, &cells, &[], false)
    };
    let passing: Vec<K> = few(64).into_iter().filter(passes).collect();
    assert_eq!(passing, roots);
    let work = id().params.grinding.lookup;
    let bound = numerator(&terms(&relation, &[]), "lookups: poles and keys", work);
    // N (W + 2) is what is left of two bounds that are each simpler than the exact (N - 1) max(W, 1).
    compare("pole of the lookups", passing.len() as f64, bound, 3.2);
}

/// A triple that is in no row of the norm's table, with the key of one that is, for as many folds as a tuple is long.
#[test]
fn a_tuple_that_is_in_no_table_passes_where_its_key_is_that_of_another() {
    let mut b = Builder::new();
    let columns = ["x", "y", "z"].map(|name| b.trace(name, &[Label::Inner]));
    b.lookup(
        "triple",
        &[Label::Inner],
        Count::One,
        Tag::Normalise,
        columns.to_vec(),
    );
    let relation = b.finish();
    // Row two of the table, moved by delta (delta - 1)(delta - 2).
    let roots = [K::ONE, K::from(2u64)];
    let moved = with_roots(&roots);
    let row = [2u64, 16, 1 << 18].map(K::from);
    let tuple: Vec<Vec<K>> = row.iter().zip(&moved).map(|(&x, &d)| vec![x + d]).collect();
    let mut counts = vec![K::ZERO; EXPONENT_MAX as usize + 1];
    counts[2] = K::ONE;
    let cells = [tuple, vec![counts]].concat();
    let passes = |&delta: &K| {
        let challenges = Challenges {
            alpha: random("alpha", 1)[0],
            delta,
            ..Challenges::default()
        };
        accepts(&relation, &challenges, &cells, &[], false)
    };
    let passing: Vec<K> = few(FEW).into_iter().filter(passes).collect();
    assert_eq!(passing, [K::ZERO, roots[0], roots[1]]);
    // Two keys of three elements collide at three folds; the term is for all pairs of all cells.
    let work = id().params.grinding.lookup;
    let bound = numerator(&terms(&relation, &[]), "lookups: poles and keys", work);
    let cells = f64::from(1 + EXPONENT_MAX + 1);
    compare(
        "fold of the lookups, for each cell",
        passing.len() as f64,
        bound / cells,
        1.7,
    );
}

/// Two rows whose difference vanishes as a polynomial at as many bases as it can.
#[test]
fn different_rows_have_one_fingerprint_at_as_many_bases_as_the_term_says_at_most() {
    let mut b = Builder::new();
    for name in ["x", "y"] {
        b.trace(name, &[Label::Inner, Label::Hidden]);
    }
    let fingerprints = ["x", "y"].map(|name| {
        let of = b.reference(name, &[]);
        fingerprint::constrain(&mut b, &format!("fp.{name}"), &[Label::Inner], of)
    });
    let [x, y] = fingerprints;
    // What a lookup says in the relation of a model.
    b.zero("equal", &[Label::Inner], x - y);
    let relation = b.finish();
    let roots = &few(FEW)[3..10];
    let rows = random("row", 8);
    let other: Vec<K> = rows
        .iter()
        .zip(with_roots(roots))
        .map(|(&x, d)| x + d)
        .collect();
    let passes = |&beta: &K| {
        let challenges = Challenges {
            beta,
            tau2: BTreeMap::from([(Label::Inner, Vec::new())]),
            ..Challenges::default()
        };
        let fp = vec![at(&rows, beta)];
        let cells = vec![rows.clone(), other.clone(), fp.clone(), fp];
        accepts(&relation, &challenges, &cells, &[], false)
    };
    let passing: Vec<K> = few(FEW).into_iter().filter(passes).collect();
    assert_eq!(passing, roots);
    let work = id().params.grinding.lookup;
    let bound = numerator(&terms(&relation, &[]), "fingerprints", work);
    // The term counts both sides of the pair, and one power more.
    compare("fingerprints", passing.len() as f64, bound, 2.3);
}
