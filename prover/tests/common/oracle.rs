//! The relation, decided without a proof: which constraints do not hold at some cell, and which lookups have a tuple
//! that is not in its table or, where both sides are committed, multisets that differ.
//!
//! Nothing here is random but fingerprints and token weights, for which challenges are made up. Tests use it in two
//! ways. Thousands of edits are judged in the time of one proof, by looking again only at what the edited tensor
//! touches. And where a proof is made, the oracle says which check of the verifier has to fail, so that a proof that is
//! rejected for another reason than its lie is noticed.

use std::collections::{BTreeMap, HashMap, HashSet};

use ark_ff::{AdditiveGroup, Field, batch_inversion};
use rayon::prelude::*;
use zkmoe_commit::channel::Oracle as _;
use zkmoe_commit::field::{F, K, ext, from_i64, lift, scale, word};
use zkmoe_commit::shape::AxisWeights;
use zkmoe_commit::transcript::Transcript;
use zkmoe_prover::engine::{Column, Tables, Witness, digit, fingerprints, row_weights};
use zkmoe_verifier::engine::{Challenges, Publics};
use zkmoe_verifier::header::Header;
use zkmoe_verifier::olmoe;
use zkmoe_verifier::relation::{
    Constraint, Count, Dims, Expr, Fill, Label, Lookup, Public, Ref, Relation, Round, Tag,
};
use zkmoe_verifier::verify::{draw_first, draw_points};

use super::cells::indices;
use super::programmed::Programmed;

/// Something that does not hold, by its name in the relation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// A lookup, or the multiset of two committed sides.
    Lookup(String),
    /// A constraint.
    Constraint(String),
}

impl Violation {
    /// The name.
    pub fn name(&self) -> &str {
        match self {
            Self::Lookup(name) | Self::Constraint(name) => name,
        }
    }
}

/// The verifier's check that fails first: all lookups are one sum and come before the constraints.
pub fn failing_check(violations: &[Violation]) -> Option<String> {
    let constraint = |v: &Violation| match v {
        Violation::Constraint(name) => Some(format!("constraint `{name}`")),
        Violation::Lookup(_) => None,
    };
    if violations.iter().any(|v| matches!(v, Violation::Lookup(_))) {
        Some("the fractions of a lookup sum to zero".into())
    } else {
        violations.iter().find_map(constraint)
    }
}

type Tuple = Vec<[u64; 2]>;

/// The constraint that holds at a random point of tokens only, since its row weights are those of the point.
pub const COMBINE: &str = "combine";

/// Tuples and counts of every lookup of a witness that holds.
pub struct Baseline(Vec<(Vec<Column>, Option<Vec<F>>)>);

/// The relation with sizes and made-up challenges.
pub struct Oracle {
    relation: Relation,
    header: Header,
    dims: Dims,
    challenges: Challenges,
}

impl Oracle {
    /// For batches of these sizes.
    pub fn new(header: &Header, dims: &Dims) -> Self {
        let relation = olmoe::relation(header);
        let mut random = Transcript::new("oracle");
        let mut draw = |round| draw_points(&relation, dims, round, |n| random.challenges("t", n));
        let (tau, tau2) = (draw(Round::First), draw(Round::Second));
        let challenges = Challenges {
            beta: random.challenge("beta"),
            tau,
            tau2,
            alpha: random.challenge("alpha"),
            delta: random.challenge("delta"),
        };
        Self {
            relation,
            header: header.clone(),
            dims: dims.clone(),
            challenges,
        }
    }

    /// As [`Oracle::new`], with the challenges that a proof under these answers has.
    pub fn under(header: &Header, dims: &Dims, mut answers: Programmed) -> Self {
        let relation = olmoe::relation(header);
        let (first, _) = draw_first(&relation, dims, |label, n| answers.challenges(label, n));
        let tau2 = draw_points(&relation, dims, Round::Second, |n| {
            answers.challenges("tau2", n)
        });
        let mut one = |label| answers.challenges(label, 1)[0];
        let challenges = Challenges {
            tau2,
            alpha: one("alpha"),
            delta: one("delta"),
            ..first
        };
        Self {
            relation,
            header: header.clone(),
            dims: dims.clone(),
            challenges,
        }
    }

    /// The relation.
    pub fn relation(&self) -> &Relation {
        &self.relation
    }

    fn publics(&self) -> Publics<'_> {
        Publics {
            header: &self.header,
            dims: &self.dims,
            challenges: &self.challenges,
        }
    }

    fn evaluate(
        &self,
        witness: &Witness,
        out: &[zkmoe_verifier::relation::Label],
        e: &Expr,
    ) -> Column {
        let publics = self.publics();
        Tables {
            relation: &self.relation,
            publics: &publics,
            witness,
        }
        .evaluate(out, e)
    }

    /// The tensors that an honest prover computes from a tensor of the trace.
    pub fn followers(&self, tensor: usize) -> Vec<usize> {
        let follows = |fill: &Fill| match fill {
            Fill::Limb { value, .. } => references(value).any(|t| t == tensor),
            Fill::Fingerprint(of) | Fill::RowWeight(of) => of.tensor == tensor,
            _ => false,
        };
        (0..self.relation.tensors.len())
            .filter(|&t| follows(&self.relation.tensors[t].fill))
            .collect()
    }

    /// Fills digits, all or those listed.
    pub fn fill_digits(&self, witness: &mut Witness, only: &[usize]) {
        for &t in only {
            let tensor = &self.relation.tensors[t];
            if let Fill::Limb { value, position } = &tensor.fill {
                let column = self.evaluate(witness, &tensor.axes, value);
                witness.tensors[t] = vec![digit(&column, *position)];
            }
        }
    }

    /// Fills tensors of the second round, all or those listed.
    pub fn fill_second(&self, witness: &mut Witness, only: Option<&[usize]>) {
        for (t, tensor) in self.relation.tensors.iter().enumerate() {
            if only.is_some_and(|only| !only.contains(&t)) {
                continue;
            }
            let publics = self.publics();
            let values = match &tensor.fill {
                Fill::Fingerprint(of) => fingerprints(&self.relation, &publics, witness, of),
                Fill::RowWeight(ids) => row_weights(&publics, witness, ids),
                _ => continue,
            };
            witness.tensors[t] = vec![
                values.iter().map(|x| x.c0).collect(),
                values.iter().map(|x| x.c1).collect(),
            ];
        }
    }

    /// What a witness that holds looks up.
    pub fn baseline(&self, witness: &Witness) -> Baseline {
        let lookups = self.relation.lookups.iter();
        Baseline(
            lookups
                .map(|l| (self.tuple(witness, l), self.count(witness, l)))
                .collect(),
        )
    }

    fn tuple(&self, witness: &Witness, lookup: &Lookup) -> Vec<Column> {
        let evaluate = |e| self.evaluate(witness, &lookup.out, e);
        lookup.tuple.iter().map(evaluate).collect()
    }

    fn count(&self, witness: &Witness, lookup: &Lookup) -> Option<Vec<F>> {
        let expr = match &lookup.count {
            Count::One => return None,
            Count::Causal => Expr::public(Public::Causal),
            Count::Plus(r) | Count::Minus(r) => Expr::from(r.clone()),
        };
        match self.evaluate(witness, &lookup.out, &expr) {
            Column::Base(counts) => Some(counts),
            Column::Ext(_) => panic!("{}: a count over the extension", lookup.name),
        }
    }

    /// What does not hold. `since` is what the witness looked like before the listed tensors changed, and held.
    pub fn violations(
        &self,
        witness: &Witness,
        since: Option<(&Baseline, &[usize])>,
    ) -> Vec<Violation> {
        let touched = |tensor: usize| since.is_none_or(|(_, changed)| changed.contains(&tensor));
        let mut found = Vec::new();
        // Tuples whose two sides are both committed: what is left of each.
        let mut open: BTreeMap<Tag, HashMap<Tuple, F>> = BTreeMap::new();
        for (n, lookup) in self.relation.lookups.iter().enumerate() {
            if self.is_table(lookup) || !lookup_references(lookup).any(touched) {
                continue;
            }
            let table = self.table(witness, lookup.tag);
            let before = since.map(|(baseline, _)| &baseline.0[n]);
            let (tuple, count) = (self.tuple(witness, lookup), self.count(witness, lookup));
            let mut missing = false;
            for cell in 0..length(&tuple[0]) {
                let now = (at(&tuple, cell), count.as_ref().map_or(F::ONE, |c| c[cell]));
                let then = before.map(|(tuple, count)| {
                    (at(tuple, cell), count.as_ref().map_or(F::ONE, |c| c[cell]))
                });
                if then.as_ref() == Some(&now) {
                    continue;
                }
                if matches!(lookup.tag, Tag::Dispatch | Tag::Gather) {
                    let negative = matches!(lookup.count, Count::Minus(_));
                    let open = open.entry(lookup.tag).or_default();
                    let sign = |count: F| if negative { -count } else { count };
                    *open.entry(now.0).or_insert(F::ZERO) += sign(now.1);
                    if let Some((tuple, count)) = then {
                        *open.entry(tuple).or_insert(F::ZERO) -= sign(count);
                    }
                } else if now.1 != F::ZERO {
                    missing |= !self.in_table(lookup.tag, &now.0, &table);
                }
            }
            if missing {
                found.push(Violation::Lookup(lookup.name.clone()));
            }
        }
        for (tag, open) in open {
            if open.values().any(|&left| left != F::ZERO) {
                found.push(Violation::Lookup(format!("{tag:?}")));
            }
        }
        for constraint in &self.relation.constraints {
            if !references(&constraint.expr).any(touched) {
                continue;
            }
            let holds = if constraint.name == COMBINE {
                self.combine_holds(witness) && self.combined(witness) == K::ZERO
            } else {
                match self.evaluate(witness, &constraint.out, &constraint.expr) {
                    Column::Base(values) => values.iter().all(|&x| x == F::ZERO),
                    Column::Ext(values) => {
                        values.iter().all(|x| x.c0 == F::ZERO && x.c1 == F::ZERO)
                    }
                }
            };
            if !holds {
                found.push(Violation::Constraint(constraint.name.clone()));
            }
        }
        found
    }

    /// The cells at which a constraint does not hold, by their indices. That of [`COMBINE`] is no matter of cells:
    /// see [`Oracle::combined`].
    pub fn failing_cells(&self, witness: &Witness, name: &str) -> Vec<Vec<usize>> {
        let constraint = self.constraint(name);
        let nonzero: Vec<bool> = match self.evaluate(witness, &constraint.out, &constraint.expr) {
            Column::Base(values) => values.iter().map(|&x| x != F::ZERO).collect(),
            Column::Ext(values) => values.iter().map(|&x| x != K::ZERO).collect(),
        };
        let failing = (0..nonzero.len()).filter(|&cell| nonzero[cell]);
        failing
            .map(|cell| indices(&self.dims, &constraint.out, cell))
            .collect()
    }

    /// A constraint of the relation.
    pub fn constraint(&self, name: &str) -> &Constraint {
        let mut constraints = self.relation.constraints.iter();
        constraints.find(|c| c.name == name).unwrap()
    }

    /// The value of the constraint [`COMBINE`] at its point.
    pub fn combined(&self, witness: &Witness) -> K {
        let point = self.challenges.point(self.constraint(COMBINE).drawn_after);
        let weights = |label| AxisWeights::eq(&point[&label]).expand(self.dims.size(label));
        let [requests, layers, positions, width] =
            [Label::Request, Label::Layer, Label::Position, Label::Hidden].map(weights);
        let read = |name: &str| &witness.tensors[self.relation.tensor(name).unwrap()][0];
        let weight = &witness.tensors[self.relation.tensor("row.weight").unwrap()];
        let (gate, ey) = (read("row.gate"), read("ey"));
        let (mut sum, mut row) = (K::ZERO, 0);
        for &(layer, _, load) in &self.dims.batch().blocks {
            for _ in 0..load {
                let cells = &ey[row * width.len()..][..width.len()];
                let inner: K = width.iter().zip(cells).map(|(w, &y)| scale(*w, y)).sum();
                sum +=
                    layers[layer] * scale(inner, gate[row]) * ext(weight[0][row], weight[1][row]);
                row += 1;
            }
        }
        let (x, xm, rem) = (read("x"), read("xm"), read("comb.rem"));
        let (half, unit) = (from_i64(1 << 13), from_i64(1 << 14));
        let (mut cell, mut stream) = (0, 0);
        for (request, &length) in requests.iter().zip(&self.dims.batch().lengths) {
            for (l, layer) in layers.iter().enumerate() {
                for s in 0..length {
                    let outer = *request * layer * positions[s];
                    for (i, w) in width.iter().enumerate() {
                        let out = x[stream + ((l + 1) * length + s) * width.len() + i];
                        let left = half - rem[cell] - (out - xm[cell]) * unit;
                        sum += scale(outer * w, left);
                        cell += 1;
                    }
                }
            }
            stream += (layers.len() + 1) * length * width.len();
        }
        sum
    }

    /// The sum of the fractions of all lookups, zero if they hold.
    pub fn fractions(&self, witness: &Witness) -> K {
        let lookups = self.relation.lookups.par_iter();
        lookups
            .map(|lookup| {
                let tuple = self.tuple(witness, lookup);
                let mut inverses: Vec<K> = (0..length(&tuple[0]))
                    .map(|cell| {
                        let parts = tuple.iter().map(|column| match column {
                            Column::Base(values) => lift(values[cell]),
                            Column::Ext(values) => values[cell],
                        });
                        self.denominator(lookup.tag, parts)
                    })
                    .collect();
                batch_inversion(&mut inverses);
                let counts = self.count(witness, lookup);
                let sum: K = match counts {
                    None => inverses.iter().sum(),
                    Some(counts) => inverses.iter().zip(counts).map(|(&x, n)| scale(x, n)).sum(),
                };
                match lookup.count {
                    Count::Minus(_) => -sum,
                    Count::One | Count::Causal | Count::Plus(_) => sum,
                }
            })
            .reduce(|| K::ZERO, |a, b| a + b)
    }

    /// `alpha` less the key of a tuple.
    pub fn denominator(&self, tag: Tag, tuple: impl Iterator<Item = K>) -> K {
        let Challenges { alpha, delta, .. } = self.challenges;
        let mut power = K::ONE;
        let key = tuple.fold(lift(from_i64(tag.number() as i64)), |key, part| {
            power *= delta;
            key + power * part
        });
        alpha - key
    }

    /// Whether a lookup is the side of a table, whose counts follow from the other side.
    fn is_table(&self, lookup: &Lookup) -> bool {
        match &lookup.count {
            Count::Minus(r) => {
                matches!(self.relation.tensors[r.tensor].fill, Fill::Multiplicity(_))
            }
            _ => false,
        }
    }

    /// The entries of a table that is committed or depends on challenges.
    fn table(&self, witness: &Witness, tag: Tag) -> HashSet<Tuple> {
        if !matches!(tag, Tag::Embedding | Tag::RowWeight) {
            return HashSet::new();
        }
        let mut sides = self.relation.lookups.iter();
        let side = sides.find(|l| l.tag == tag && self.is_table(l)).unwrap();
        let tuple = self.tuple(witness, side);
        (0..length(&tuple[0])).map(|n| at(&tuple, n)).collect()
    }

    fn in_table(&self, tag: Tag, tuple: &Tuple, table: &HashSet<Tuple>) -> bool {
        let base: Vec<u64> = tuple.iter().map(|x| x[0]).collect();
        let entry = usize::try_from(base[0]).unwrap_or(usize::MAX);
        match tag {
            Tag::Range(bits) => base[0] < 1 << bits,
            Tag::Exp => {
                let value = self.header.exp_table.get(entry);
                value.is_some_and(|&e| u64::from(e) == base[1])
            }
            Tag::Silu => {
                let value = self.header.silu_table.get(entry);
                value.is_some_and(|&a| word(from_i64(i64::from(a))) == base[1])
            }
            Tag::Normalise => {
                entry <= 20 && base[1] == 1 << (2 * entry) && base[2] == 1 << (20 - entry)
            }
            Tag::Embedding | Tag::RowWeight => table.contains(tuple),
            Tag::Dispatch | Tag::Gather => false,
        }
    }

    /// The sum over an expert's rows is one over the rows with a token's id; the relation writes it with weights of a
    /// random point.
    fn combine_holds(&self, witness: &Witness) -> bool {
        let read = |name: &str| &witness.tensors[self.relation.tensor(name).unwrap()][0];
        let (tok, gate, ey) = (read("row.tok"), read("row.gate"), read("ey"));
        let (x, xm, rem) = (read("x"), read("xm"), read("comb.rem"));
        let sizes = &self.dims.sizes;
        let (layers, width) = (sizes.num_hidden_layers, sizes.hidden_size);
        let mut gathered: HashMap<(usize, u64), Vec<F>> = HashMap::new();
        let mut row = 0;
        for &(layer, _, load) in &self.dims.batch().blocks {
            for _ in 0..load {
                let sums = gathered.entry((layer, word(tok[row]))).or_default();
                sums.resize(width, F::ZERO);
                for (sum, &y) in sums.iter_mut().zip(&ey[row * width..]) {
                    *sum += gate[row] * y;
                }
                row += 1;
            }
        }
        let (half, unit) = (from_i64(1 << 13), from_i64(1 << 14));
        let (mut cell, mut stream) = (0, 0);
        for (r, &length) in self.dims.batch().lengths.iter().enumerate() {
            for layer in 0..layers {
                for s in 0..length {
                    let id = (r << self.dims.token_id_bits() | s) as u64;
                    let sums = gathered.get(&(layer, id));
                    for i in 0..width {
                        let sum = sums.map_or(F::ZERO, |sums| sums[i]);
                        let out = x[stream + ((layer + 1) * length + s) * width + i];
                        if sum + half - rem[cell] != (out - xm[cell]) * unit {
                            return false;
                        }
                        cell += 1;
                    }
                }
            }
            stream += (layers + 1) * length * width;
        }
        true
    }
}

fn references(expr: &Expr) -> impl Iterator<Item = usize> + '_ {
    expr.0.iter().flat_map(|t| &t.refs).map(|r: &Ref| r.tensor)
}

fn lookup_references(lookup: &Lookup) -> impl Iterator<Item = usize> + '_ {
    let count = match &lookup.count {
        Count::Plus(r) | Count::Minus(r) => Some(r.tensor),
        Count::One | Count::Causal => None,
    };
    lookup.tuple.iter().flat_map(references).chain(count)
}

fn length(column: &Column) -> usize {
    match column {
        Column::Base(values) => values.len(),
        Column::Ext(values) => values.len(),
    }
}

fn at(tuple: &[Column], cell: usize) -> Tuple {
    tuple
        .iter()
        .map(|column| match column {
            Column::Base(values) => [word(values[cell]), 0],
            Column::Ext(values) => [word(values[cell].c0), word(values[cell].c1)],
        })
        .collect()
}
