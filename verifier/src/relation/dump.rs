//! The relation as text.

use super::{
    Constraint, Count, Expr, Fill, Index, Label, Lookup, Public, Ref, Relation, Round, Tensor, Term,
};
use core::fmt::Write;

impl Relation {
    /// One line for each tensor, constraint and lookup, grouped and in the order of the relation.
    pub fn dump(&self) -> String {
        let mut out = String::from("Tensors\n");
        for t in &self.tensors {
            let _ = writeln!(out, "  {}", tensor(t));
        }
        out.push_str("Constraints: zero at every index\n");
        for c in &self.constraints {
            let _ = writeln!(out, "  {}", self.constraint(c));
        }
        out.push_str("Lookups: for each multiset, counts on equal tuples cancel\n");
        for l in &self.lookups {
            let _ = writeln!(out, "  {}", self.lookup(l));
        }
        out
    }

    /// One constraint as text.
    pub fn constraint(&self, c: &Constraint) -> String {
        format!(
            "{} [{}]: 0 = {}",
            c.name,
            letters(&c.out),
            self.expr(&c.expr)
        )
    }

    /// One lookup as text.
    pub fn lookup(&self, l: &Lookup) -> String {
        let tuple: Vec<String> = l.tuple.iter().map(|e| self.expr(e)).collect();
        let count = match &l.count {
            Count::One => "+1".into(),
            Count::Causal => "+[u<=s]".into(),
            Count::Plus(r) => format!("+{}", self.reference(r)),
            Count::Minus(r) => format!("-{}", self.reference(r)),
        };
        format!(
            "{} [{}]: {:?} {} ({})",
            l.name,
            letters(&l.out),
            l.tag,
            count,
            tuple.join(", ")
        )
    }

    fn reference(&self, r: &Ref) -> String {
        let index: Vec<String> = r
            .index
            .iter()
            .map(|i| match i {
                Index::At(l) => l.letter(),
                Index::Shifted(l, n) => format!("{}+{n}", l.letter()),
                Index::Fixed(n) => n.to_string(),
                Index::BlockExpert => "x(a)".into(),
            })
            .collect();
        let name = self.tensors.get(r.tensor).map_or("?", |t| &t.name);
        format!("{name}[{}]", index.join(","))
    }

    fn expr(&self, e: &Expr) -> String {
        let mut out = String::new();
        for (n, term) in e.0.iter().enumerate() {
            let sign = match (n, term.coefficient < 0) {
                (0, true) => "-",
                (0, false) => "",
                (_, true) => " - ",
                (_, false) => " + ",
            };
            out.push_str(sign);
            out.push_str(&self.term(term));
        }
        out
    }

    fn term(&self, t: &Term) -> String {
        let mut factors = Vec::new();
        let c = t.coefficient.unsigned_abs();
        if c != 1 || (t.publics.is_empty() && t.refs.is_empty()) {
            factors.push(if c >= 256 && c.is_power_of_two() {
                format!("2^{}", c.ilog2())
            } else {
                c.to_string()
            });
        }
        factors.extend(t.publics.iter().map(|&p| public(p)));
        factors.extend(t.refs.iter().map(|r| self.reference(r)));
        factors.join("*")
    }
}

fn letters(labels: &[Label]) -> String {
    labels
        .iter()
        .map(|l| l.letter())
        .collect::<Vec<_>>()
        .join(",")
}

fn public(p: Public) -> String {
    match p {
        Public::Index(l) => format!("<{}>", l.letter()),
        Public::TokenId => "<token(r,s)>".into(),
        Public::BlockLayer => "<layer(a)>".into(),
        Public::BlockExpert => "<expert(a)>".into(),
        Public::LayerOfBlock => "<l = layer(a)>".into(),
        Public::Causal => "<u <= s>".into(),
        Public::Exists => "<u in r>".into(),
        Public::Cos => "<cos(s,j)>".into(),
        Public::Sin => "<sin(s,j)>".into(),
        Public::FingerprintPower(l) => format!("<beta^{}>", l.letter()),
        Public::TokenWeight => "<eq(tau, (r,s))>".into(),
        Public::ExpTable => "<exp(y)>".into(),
        Public::SiluTable => "<silu(y)>".into(),
        Public::NormScale => "<4^z>".into(),
        Public::NormFactor => "<2^(20-z)>".into(),
    }
}

fn tensor(t: &Tensor) -> String {
    let round = match t.round {
        Round::Model => "model",
        Round::First => "first root",
        Round::Second => "second root",
    };
    let fill = match &t.fill {
        Fill::Weights(_) => "weights",
        Fill::Trace => "value",
        Fill::Random => "random",
        Fill::Limb { .. } => "digit",
        Fill::Multiplicity(_) => "multiplicity",
        Fill::Fingerprint(_) => "fingerprint",
        Fill::RowWeight(_) => "row weight",
    };
    let field = if t.extension { "K" } else { "F" };
    format!(
        "{}[{}] in {field}, {round}, {fill}",
        t.name,
        letters(&t.axes)
    )
}
