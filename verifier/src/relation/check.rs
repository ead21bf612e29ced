//! Whether a relation is well formed, read off its data.
//!
//! The engine follows whatever relation it is given, so a slip in a gadget would not fail: it would prove something else.
//! The checks here are about slips that testing honest proofs cannot find. None of them looks at values or sizes.
//!
//! - Every committed tensor is used, by an equation, a lookup or the statement. A tensor that nothing binds is free.
//! - Every term has a form that the engine evaluates as written: at most three factors, public functions only where their
//!   extension is known, and along an axis whose size differs between groups a factor that ends with the group. A term
//!   without one would count cells that do not exist.
//! - An equation whose point is drawn after a round holds no tensor of a later round. The row weights of a gather are the
//!   exception, and a lookup has to bind them.
//! - Fingerprints have their equation.
//! - Every multiset has both sides, one tuple length, and a number that no other has. Counts that are not multiplicities
//!   of a public or committed table are boolean.
//! - Every value of the trace is bounded by itself: it stands alone in a lookup of a public table, or is boolean, or the
//!   family says why it needs no such check. Without this, both operands of a comparison could be off by the same
//!   fraction modulo the order of the field.

use std::collections::{BTreeMap, BTreeSet};

use super::{Count, Expr, Fill, Index, Label, Lookup, Public, Ref, Relation, Round, Tag, Term};

/// What a family adds about its relation, because it cannot be read off the data.
#[derive(Debug, Clone, Copy)]
pub struct Declared<'a> {
    /// Tensors whose evaluation the proof states.
    pub statement: &'a [&'a str],
    /// Values without a range check of their own, each with the reason.
    pub bounded_otherwise: &'a [(&'a str, &'a str)],
}

impl Relation {
    /// All faults that are found, each as a sentence; none for a relation that is well formed.
    pub fn check(&self, declared: Declared<'_>) -> Vec<String> {
        let mut check = Check {
            relation: self,
            declared,
            faults: Vec::new(),
        };
        check.tensors();
        check.constraints();
        check.lookups();
        check.tags();
        check.second_round();
        check.bounds();
        check.faults
    }
}

/// The group index on which the size of an index depends.
fn group_of(label: Label) -> Option<Label> {
    match label {
        Label::Position | Label::Key => Some(Label::Request),
        Label::Row => Some(Label::Block),
        _ => None,
    }
}

fn is_group(label: Label) -> bool {
    matches!(label, Label::Request | Label::Block)
}

fn is_public_table(tag: Tag) -> bool {
    matches!(tag, Tag::Range(_) | Tag::Exp | Tag::Silu | Tag::Normalise)
}

/// Whether a public function weighs an index instead of being a factor.
fn is_weight(p: Public) -> bool {
    matches!(p, Public::FingerprintPower(_) | Public::LayerOfBlock)
}

struct Check<'a> {
    relation: &'a Relation,
    declared: Declared<'a>,
    faults: Vec<String>,
}

impl Check<'_> {
    fn fault(&mut self, place: &str, what: &str) {
        self.faults.push(format!("{place}: {what}"));
    }

    /// Indices of a tensor, an equation or a lookup.
    fn axes(&mut self, place: &str, axes: &[Label]) {
        let distinct: BTreeSet<&Label> = axes.iter().collect();
        if distinct.len() != axes.len() {
            self.fault(place, "an index occurs twice");
        }
        for (n, &label) in axes.iter().enumerate() {
            if is_group(label) && n > 0 {
                self.fault(place, "a group index is not the first");
            }
            if group_of(label).is_some_and(|group| axes.first() != Some(&group)) {
                self.fault(place, "an index without the group that gives its size");
            }
        }
    }

    fn tensors(&mut self) {
        let relation = self.relation;
        let mut used: BTreeSet<usize> = BTreeSet::new();
        let exprs = relation.constraints.iter().map(|c| &c.expr);
        let exprs = exprs.chain(relation.lookups.iter().flat_map(|l| &l.tuple));
        used.extend(exprs.flat_map(refs_of).map(|r| r.tensor));
        for lookup in &relation.lookups {
            if let Count::Plus(r) | Count::Minus(r) = &lookup.count {
                used.insert(r.tensor);
            }
        }
        let mut names = BTreeSet::new();
        for (t, tensor) in relation.tensors.iter().enumerate() {
            self.axes(&tensor.name, &tensor.axes);
            if !names.insert(&tensor.name) {
                self.fault(&tensor.name, "declared twice");
            }
            if !used.contains(&t) && !self.declared.statement.contains(&&*tensor.name) {
                self.fault(&tensor.name, "nothing refers to it");
            }
            let second = matches!(tensor.fill, Fill::Fingerprint(_) | Fill::RowWeight(_));
            if second != (tensor.round == Round::Second) {
                self.fault(&tensor.name, "committed in the wrong round");
            }
        }
        for name in self.declared.statement {
            if relation.tensor(name).is_none() {
                self.fault(name, "part of the statement, but not declared");
            }
        }
    }

    fn constraints(&mut self) {
        for constraint in &self.relation.constraints {
            let place = &constraint.name;
            self.axes(place, &constraint.out);
            self.expr(place, &constraint.out, &constraint.expr);
            for term in &constraint.expr.0 {
                let gathers = term.publics.contains(&Public::LayerOfBlock);
                for r in &term.refs {
                    let Some(tensor) = self.relation.tensors.get(r.tensor) else {
                        continue;
                    };
                    let exempt = gathers && matches!(tensor.fill, Fill::RowWeight(_));
                    if tensor.round > constraint.drawn_after && !exempt {
                        let what =
                            format!("its point is known when `{}` is committed", tensor.name);
                        self.fault(place, &what);
                    }
                }
            }
        }
    }

    fn expr(&mut self, place: &str, out: &[Label], expr: &Expr) {
        for term in &expr.0 {
            if term.refs.is_empty() {
                self.public_term(place, out, term);
            } else {
                self.term(place, out, term);
            }
        }
    }

    /// A term without tensors.
    fn public_term(&mut self, place: &str, out: &[Label], term: &Term) {
        let p = match term.publics[..] {
            [] => return,
            [p] => p,
            _ => return self.fault(place, "two public functions in a term without tensors"),
        };
        let has_all = p.labels().iter().all(|l| out.contains(l));
        let first = |l: Label| out.first() == Some(&l);
        let supported = match p {
            Public::Index(l) => !is_group(l),
            Public::TokenId | Public::TokenWeight => first(Label::Request),
            Public::BlockLayer | Public::BlockExpert => first(Label::Block),
            Public::Causal
            | Public::ExpTable
            | Public::SiluTable
            | Public::NormScale
            | Public::NormFactor => true,
            Public::LayerOfBlock
            | Public::Exists
            | Public::Cos
            | Public::Sin
            | Public::FingerprintPower(_) => false,
        };
        if !has_all || !supported {
            self.fault(place, &format!("{p:?} cannot stand alone here"));
        }
    }

    fn term(&mut self, place: &str, out: &[Label], term: &Term) {
        let functions = term.publics.iter().filter(|p| !is_weight(**p));
        if term.refs.len() + functions.clone().count() > 3 {
            self.fault(place, "a term of more than three factors");
        }
        for r in &term.refs {
            self.reference(place, r);
        }
        let indexed: BTreeSet<Label> = term.refs.iter().flat_map(labels_of).collect();
        for p in functions {
            let labels = p.labels();
            if !labels
                .iter()
                .all(|l| out.contains(l) || indexed.contains(l))
            {
                self.fault(place, &format!("{p:?} is summed alone"));
            }
            if labels.len() > 1 && matches!(p, Public::TokenId | Public::TokenWeight) {
                self.fault(place, &format!("{p:?} cannot be a factor"));
            }
        }
        for p in &term.publics {
            if let Public::FingerprintPower(l) = p
                && (out.contains(l) || !indexed.contains(l))
            {
                self.fault(place, "powers of beta along an index that is not summed");
            }
        }
        if term.publics.contains(&Public::LayerOfBlock) {
            return self.gather(place, out, term, &indexed);
        }
        // Tensors are extended by zero, so a tensor's own index ends with its group. Of the public functions only these
        // two do.
        let ends = |l: Label| {
            indexed.contains(&l)
                || l == Label::Key
                    && (term.publics.contains(&Public::Exists)
                        || term.publics.contains(&Public::Causal)
                            && indexed.contains(&Label::Position))
        };
        for &label in out {
            let Some(group) = group_of(label) else {
                continue;
            };
            if !ends(label) || !indexed.contains(&group) {
                self.fault(
                    place,
                    &format!("a term does not end where index {} does", label.letter()),
                );
            }
        }
    }

    /// A sum over rows that goes to tokens and layers.
    fn gather(&mut self, place: &str, out: &[Label], term: &Term, indexed: &BTreeSet<Label>) {
        let weighted = term
            .refs
            .iter()
            .filter_map(|r| self.relation.tensors.get(r.tensor))
            .any(|t| matches!(t.fill, Fill::RowWeight(_)));
        let moved = [Label::Request, Label::Layer, Label::Position];
        let left = out.iter().filter(|l| !indexed.contains(l));
        if !weighted
            || !moved
                .iter()
                .all(|l| out.contains(l) && !indexed.contains(l))
            || !left.into_iter().all(|l| moved.contains(l))
            || !indexed.contains(&Label::Block)
            || out.contains(&Label::Block)
        {
            self.fault(
                place,
                "a gather needs row weights, and tokens with layers to gather to",
            );
        }
    }

    fn reference(&mut self, place: &str, r: &Ref) {
        let Some(tensor) = self.relation.tensors.get(r.tensor) else {
            return self.fault(place, "a reference to no tensor");
        };
        if tensor.axes.len() != r.index.len() {
            return self.fault(
                place,
                &format!("`{}` has another number of axes", tensor.name),
            );
        }
        for (&axis, &index) in tensor.axes.iter().zip(&r.index) {
            let fits = match index {
                Index::At(l) => l == axis || (axis, l) == (Label::Position, Label::Key),
                Index::Shifted(l, shift) => {
                    (axis, l) == (Label::Stream, Label::Layer) && shift <= 1
                }
                Index::Fixed(_) => !is_group(axis) && group_of(axis).is_none(),
                Index::BlockExpert => axis == Label::AnyExpert,
            };
            if !fits {
                let what = format!("`{}` is read through an index of another size", tensor.name);
                self.fault(place, &what);
            }
        }
    }

    fn lookups(&mut self) {
        for lookup in &self.relation.lookups {
            let place = &lookup.name;
            self.axes(place, &lookup.out);
            for expr in &lookup.tuple {
                self.expr(place, &lookup.out, expr);
            }
            let (Count::Plus(r) | Count::Minus(r)) = &lookup.count else {
                continue;
            };
            self.reference(place, r);
            let Some(tensor) = self.relation.tensors.get(r.tensor) else {
                continue;
            };
            let own = r.index.iter().zip(&tensor.axes);
            let plain = own.clone().all(|(&i, &l)| i == Index::At(l));
            if !plain || !same_set(&tensor.axes, &lookup.out) {
                self.fault(place, "its count has other indices");
            }
            let boolean = self.is_boolean(r.tensor);
            match (&lookup.count, &tensor.fill) {
                (Count::Minus(_), Fill::Multiplicity(tag)) if *tag == lookup.tag => (),
                _ if boolean => (),
                _ => self.fault(
                    place,
                    &format!("its count `{}` is not boolean", tensor.name),
                ),
            }
        }
    }

    fn is_boolean(&self, tensor: usize) -> bool {
        let x = || Expr::from(plain_ref(self.relation, tensor));
        let expr = x() * x() - x();
        let axes = &self.relation.tensors[tensor].axes;
        let mut constraints = self.relation.constraints.iter();
        constraints.any(|c| c.expr == expr && c.out == *axes)
    }

    fn tags(&mut self) {
        let mut numbers: BTreeMap<u64, Tag> = BTreeMap::new();
        let mut sides: BTreeMap<Tag, (Vec<&Lookup>, Vec<&Lookup>)> = BTreeMap::new();
        for lookup in &self.relation.lookups {
            let (plus, minus) = sides.entry(lookup.tag).or_default();
            if matches!(lookup.count, Count::Minus(_)) {
                minus.push(lookup);
            } else {
                plus.push(lookup);
            }
        }
        for (tag, (plus, minus)) in sides {
            let place = format!("{tag:?}");
            if let Some(other) = numbers.insert(tag.number(), tag) {
                self.fault(&place, &format!("has the number of {other:?}"));
            }
            if plus.is_empty() || minus.len() != 1 {
                self.fault(&place, "needs lookups and one table");
            }
            let mut widths = plus.iter().chain(&minus).map(|l| l.tuple.len());
            let width = widths.next();
            if widths.any(|w| Some(w) != width) {
                self.fault(&place, "tuples of different lengths");
            }
        }
    }

    /// Tensors that depend on challenges have what binds them to the first round.
    fn second_round(&mut self) {
        let relation = self.relation;
        for (t, tensor) in relation.tensors.iter().enumerate() {
            let own = || Expr::from(plain_ref(relation, t));
            let bound = match &tensor.fill {
                Fill::Fingerprint(of) => {
                    let power = Expr::public(Public::FingerprintPower(Label::Hidden));
                    let expr = own() - Expr::from(of.clone()) * power;
                    let mut constraints = relation.constraints.iter();
                    constraints.any(|c| c.expr == expr && c.drawn_after == Round::Second)
                }
                Fill::RowWeight(ids) => {
                    let tuple = [Expr::from(ids.clone()), own()];
                    let mut lookups = relation.lookups.iter();
                    lookups.any(|l| {
                        l.tag == Tag::RowWeight && l.count == Count::One && l.tuple == tuple
                    })
                }
                _ => continue,
            };
            if !bound {
                self.fault(&tensor.name, "nothing says what it is made of");
            }
        }
    }

    fn bounds(&mut self) {
        let relation = self.relation;
        let looked_up: BTreeSet<usize> = relation
            .lookups
            .iter()
            .filter(|l| is_public_table(l.tag) && matches!(l.count, Count::One | Count::Causal))
            .flat_map(|l| l.tuple.iter().map(move |e| (l, e)))
            .filter_map(|(l, e)| alone(relation, &l.out, e))
            .collect();
        for (t, tensor) in relation.tensors.iter().enumerate() {
            if !matches!(tensor.fill, Fill::Trace | Fill::Limb { .. }) {
                continue;
            }
            let bounded = looked_up.contains(&t) || self.is_boolean(t);
            let listed = self.declared.bounded_otherwise.iter();
            let listed = listed.filter(|(name, _)| *name == tensor.name).count();
            match (bounded, listed) {
                (false, 0) => self.fault(&tensor.name, "has no range of its own"),
                (true, 1..) => self.fault(&tensor.name, "is listed without need"),
                _ => (),
            }
        }
        for (name, reason) in self.declared.bounded_otherwise {
            if relation.tensor(name).is_none() || reason.is_empty() {
                self.fault(
                    name,
                    "is listed as bounded, but unknown or without a reason",
                );
            }
        }
    }
}

fn refs_of(expr: &Expr) -> impl Iterator<Item = &Ref> {
    expr.0.iter().flat_map(|t| &t.refs)
}

fn labels_of(r: &Ref) -> impl Iterator<Item = Label> {
    r.index.iter().filter_map(|i| i.label())
}

fn same_set(a: &[Label], b: &[Label]) -> bool {
    a.iter().collect::<BTreeSet<_>>() == b.iter().collect()
}

/// A tensor with its own axes as indices.
fn plain_ref(relation: &Relation, tensor: usize) -> Ref {
    let axes = &relation.tensors[tensor].axes;
    Ref {
        tensor,
        index: axes.iter().map(|&l| Index::At(l)).collect(),
    }
}

/// The tensor that an expression over all of its cells bounds: up to sign, a constant and digits it is the expression.
/// Digits are tensors with a bound of their own.
fn alone(relation: &Relation, out: &[Label], expr: &Expr) -> Option<usize> {
    let digit = |t: &&Term| {
        matches!(&t.refs[..], [r]
            if relation.tensors.get(r.tensor).is_some_and(|t| matches!(t.fill, Fill::Limb { .. })))
    };
    let with_tensors = expr.0.iter().filter(|t| !t.refs.is_empty());
    let (digits, values): (Vec<&Term>, Vec<&Term>) = with_tensors.partition(digit);
    let terms = if values.is_empty() { digits } else { values };
    let [term] = terms[..] else { return None };
    let [r] = &term.refs[..] else { return None };
    let tensor = relation.tensors.get(r.tensor)?;
    // A multiple of a fraction can be a small integer, so nothing but a sign is allowed.
    let plain = matches!(term.coefficient, 1 | -1)
        && term.publics.is_empty()
        && *r == plain_ref(relation, r.tensor)
        && same_set(&tensor.axes, out);
    plain.then_some(r.tensor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::olmoe::tests::{header, odd_sizes};
    use crate::olmoe::{BOUNDED_OTHERWISE, STATEMENT, relation};
    use crate::relation::{Constraint, Tensor};

    const DECLARED: Declared<'_> = Declared {
        statement: &STATEMENT,
        bounded_otherwise: &BOUNDED_OTHERWISE,
    };

    fn olmoe() -> Relation {
        relation(&header(odd_sizes()))
    }

    fn constraint<'a>(r: &'a mut Relation, name: &str) -> &'a mut Constraint {
        r.constraints.iter_mut().find(|c| c.name == name).unwrap()
    }

    fn lookup<'a>(r: &'a mut Relation, name: &str) -> &'a mut Lookup {
        r.lookups.iter_mut().find(|l| l.name == name).unwrap()
    }

    fn tensor<'a>(r: &'a mut Relation, name: &str) -> &'a mut Tensor {
        r.tensors.iter_mut().find(|t| t.name == name).unwrap()
    }

    fn drop_lookup(r: &mut Relation, name: &str) {
        lookup(r, name);
        r.lookups.retain(|l| l.name != name);
    }

    fn drop_constraint(r: &mut Relation, name: &str) {
        constraint(r, name);
        r.constraints.retain(|c| c.name != name);
    }

    fn get(r: &Relation, name: &str) -> Expr {
        plain_ref(r, r.tensor(name).unwrap()).into()
    }

    #[test]
    fn the_relation_of_olmoe_is_well_formed() {
        assert_eq!(olmoe().check(DECLARED), [""; 0]);
    }

    /// A change to the relation, and what has to be said about it.
    type Slip = (&'static str, fn(&mut Relation), &'static str);

    #[test]
    fn every_slip_is_found() {
        let slips: &[Slip] = &[
            (
                "a quotient loses its range",
                |r| drop_lookup(r, "q: output"),
                "q: has no range of its own",
            ),
            (
                "the maximum of a softmax loses its range",
                |r| drop_lookup(r, "att: maximum"),
                "att.max: has no range of its own",
            ),
            (
                "a digit loses its range",
                |r| drop_lookup(r, "xm: range.1"),
                "xm: range.1: has no range of its own",
            ),
            (
                "the range of twice a value admits fractions",
                |r| {
                    let l = lookup(r, "q: output");
                    l.tuple[0] = l.tuple[0].clone() * 2;
                },
                "q: has no range of its own",
            ),
            (
                "a range covers one half of the cells",
                |r| {
                    let l = lookup(r, "qr: output");
                    l.out.retain(|&x| x != Label::Half);
                    l.tuple[0].0[0].refs[0].index[5] = Index::Fixed(0);
                },
                "qr: has no range of its own",
            ),
            (
                "an exclusive mark is no mark",
                |r| drop_constraint(r, "sel is boolean"),
                "dispatch: routed: its count `sel` is not boolean",
            ),
            (
                "rows count as often as the prover likes",
                |r| drop_constraint(r, "row.real is boolean"),
                "dispatch: rows: its count `row.real` is not boolean",
            ),
            (
                "fingerprints are chosen for a known point",
                |r| constraint(r, "fp.x0: fingerprint").drawn_after = Round::First,
                "its point is known when `fp.x0` is committed",
            ),
            (
                "a trace tensor moves behind the challenges",
                |r| tensor(r, "comb.rem").round = Round::Second,
                "combine: its point is known when `comb.rem` is committed",
            ),
            (
                "a fingerprint without its equation",
                |r| drop_constraint(r, "fp.dr: fingerprint"),
                "fp.dr: nothing says what it is made of",
            ),
            (
                "free row weights",
                |r| drop_lookup(r, "combine: row weights"),
                "row.weight: nothing says what it is made of",
            ),
            (
                "two multisets of one number",
                |r| lookup(r, "ea: activation").tag = Tag::Range(33),
                "has the number of",
            ),
            (
                "a multiset without a table",
                |r| drop_lookup(r, "table Exp"),
                "Exp: needs lookups and one table",
            ),
            (
                "tuples of different lengths",
                |r| lookup(r, "rt: exponential").tuple.truncate(1),
                "Exp: tuples of different lengths",
            ),
            (
                "a tensor that nothing uses",
                |r| {
                    drop_lookup(r, "decode: positions");
                    drop_lookup(r, "decode: rows");
                },
                "dr.id: nothing refers to it",
            ),
            (
                "a product of four",
                |r| {
                    let m = get(r, "n1.m");
                    let c = constraint(r, "n1: factor");
                    c.expr = c.expr.clone() * m.clone() * m;
                },
                "n1: factor: a term of more than three factors",
            ),
            (
                "a maximum at keys that do not exist",
                |r| {
                    let l = lookup(r, "att: score: remainder");
                    l.tuple[0].0.iter_mut().for_each(|t| t.publics.clear());
                },
                "att: score: remainder: a term does not end where index u does",
            ),
            (
                "a term of one position at all positions",
                |r| {
                    let emb = get(r, "emb");
                    let c = constraint(r, "fp.last: fingerprint");
                    c.expr = c.expr.clone() + emb;
                },
                "fp.last: fingerprint: a term does not end where index s does",
            ),
            (
                "a public function that the engine would drop",
                |r| {
                    let c = constraint(r, "argmax: the maximum is attained");
                    let v = || Expr::public(Public::Index(Label::Vocab));
                    c.expr = c.expr.clone() + v() * v();
                },
                "two public functions in a term without tensors",
            ),
            (
                "a public function without an extension of its own",
                |r| {
                    let c = constraint(r, "fp.x0: fingerprint");
                    c.expr = c.expr.clone() + Expr::public(Public::FingerprintPower(Label::Hidden));
                },
                "cannot stand alone here",
            ),
            (
                "a gather without row weights",
                |r| {
                    constraint(r, "combine").expr.0[0]
                        .refs
                        .retain(|x| x.index.len() != 2);
                },
                "combine: a gather needs row weights",
            ),
            (
                "a shift beyond the last stream",
                |r| {
                    constraint(r, "combine").expr.0[3].refs[0].index[1] =
                        Index::Shifted(Label::Layer, 2);
                },
                "combine: `x` is read through an index of another size",
            ),
            (
                "a group index inside",
                |r| tensor(r, "tok").axes.reverse(),
                "tok: a group index is not the first",
            ),
        ];
        for (slip, make, expected) in slips {
            let mut relation = olmoe();
            make(&mut relation);
            let faults = relation.check(DECLARED);
            assert!(
                faults.iter().any(|f| f.contains(expected)),
                "{slip}: {faults:?}"
            );
        }
    }

    #[test]
    fn declarations_are_checked_as_well() {
        let faults = |statement, bounded_otherwise| {
            let declared = Declared {
                statement,
                bounded_otherwise,
            };
            olmoe().check(declared).join("\n")
        };
        assert!(faults(&[], &BOUNDED_OTHERWISE).contains("cells: nothing refers to it"));
        assert!(faults(&["prompt"], &BOUNDED_OTHERWISE).contains("prompt: part of the statement"));
        assert!(faults(&STATEMENT, &[]).contains("theta: has no range of its own"));
        assert!(faults(&STATEMENT, &[("q", "small")]).contains("q: is listed without need"));
        assert!(faults(&STATEMENT, &[("am", "")]).contains("am: is listed as bounded, but"));
        assert!(faults(&STATEMENT, &[("an", "odd")]).contains("an: is listed as bounded, but"));
    }
}
