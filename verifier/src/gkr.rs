//! LogUp-GKR: the fractions of many columns sum to zero.
//!
//! Statement. There are columns `c`, each with a public index set ([`Shape`], possibly ragged), a numerator `p_c` and
//! a denominator `q_c` in `K` for every cell, and the sum of `p_c / q_c` over all columns and cells is zero, with no
//! denominator zero. Nothing is committed here; denominators depend on challenges that were drawn before.
//!
//! The virtual array. Every column is extended to the cube of its index bits by the fraction 0/1, then to the number
//! of bits `B` of the largest column by 0/1 wherever an extra bit is set, and the columns are concatenated with the
//! column index on top. Variables are numbered from the lowest: the bits of a column's last axis, then of the axis
//! before it, up to its first axis (the group axis if there is one), then the extra bits, then the column bits. 0/1
//! is the neutral element of adding fractions, so what is outside the columns never has to be visited.
//!
//! The tree. The parent of the fractions at `2i` and `2i + 1` is `(p0 q1 + p1 q0, q0 q1)`. The children of the root
//! are sent; their sum has to have numerator 0 and a denominator other than 0, which is the product of all
//! denominators. Then claims `(P, Q)` about one layer at a point are turned, layer by layer, into claims about its
//! children by the sumcheck
//!
//! `sum_x eq(point, x) (p0 q1 + p1 q0 + lambda (q0 q1 - 1))(x) = P + lambda (Q - 1)`,
//!
//! lowest variable first, with round polynomials of degree 3. The term `- 1` makes neutral nodes contribute nothing.
//!
//! Columns can also be taken in parts, each with a tree of its own ([`sum`]). The root of a part is then not judged: its
//! fraction stays hidden, hidden fractions are added ([`add`]), and the sum of all parts has to be zero ([`close`]).
//!
//! What leaves the file: a point and claims `P`, `Q` about numerators and denominators of the virtual array
//! ([`Leaves`]). With the functionals of [`Columns`] the caller has to check
//!
//! `P = sum_c selector(c) * p_c~`  and  `Q = 1 + sum_c selector(c) * (q_c~ - indicator_c)`,
//!
//! where `p_c~`, `q_c~` are the functional `axis_weights(c)` of the physical cells and `indicator_c` is
//! [`Shape::indicator`] of the same weights.
//!
//! U. Haboeck, "Multivariate lookups based on logarithmic derivatives", eprint 2022/1530; S. Papini and U. Haboeck,
//! "Improving logarithmic derivative lookups using GKR", eprint 2023/1284.

#[cfg(test)]
mod rates;

use ark_ff::{AdditiveGroup, Field};
use zkmoe_commit::channel::{Hidden, Reject, VerifierChannel};
use zkmoe_commit::field::{K, from_i64, lift};
use zkmoe_commit::shape::{AxisWeights, Shape, index_bits};
use zkmoe_commit::soundness::Term;

/// What is left to check: evaluations of the virtual array of fractions.
#[derive(Debug, Clone)]
pub struct Leaves {
    /// One coordinate for each variable, lowest first.
    pub point: Vec<K>,
    /// The extension of the numerators at the point.
    pub numerator: Hidden,
    /// The extension of the denominators at the point.
    pub denominator: Hidden,
}

/// A hidden sum of fractions.
#[derive(Debug, Clone)]
pub struct Fraction {
    /// The numerator.
    pub numerator: Hidden,
    /// The product of all denominators.
    pub denominator: Hidden,
}

/// How columns lie in the virtual array.
#[derive(Debug, Clone)]
pub struct Columns {
    /// For each column the bits of each axis, first axis first.
    axes: Vec<Vec<usize>>,
    bits: usize,
    column_bits: usize,
}

/// The layout of columns with these index sets; short for [`Columns::new`].
pub fn layout(shapes: &[Shape]) -> Columns {
    Columns::new(shapes)
}

impl Columns {
    /// The layout of columns with these index sets.
    pub fn new(shapes: &[Shape]) -> Self {
        let axes: Vec<Vec<usize>> = shapes
            .iter()
            .map(|s| s.bits().into_iter().map(|b| b as usize).collect())
            .collect();
        Self {
            bits: axes.iter().map(|a| a.iter().sum()).max().unwrap_or(0),
            column_bits: index_bits(axes.len()) as usize,
            axes,
        }
    }
    /// Number of columns.
    pub fn len(&self) -> usize {
        self.axes.len()
    }
    /// Whether there are no columns.
    pub fn is_empty(&self) -> bool {
        self.axes.is_empty()
    }
    /// Bits of the largest column.
    pub fn bits(&self) -> usize {
        self.bits
    }
    /// Number of variables of the virtual array.
    pub fn variables(&self) -> usize {
        self.bits + self.column_bits
    }
    /// Bits of one column; 0 for a column that does not exist.
    pub fn column_bits(&self, c: usize) -> usize {
        self.axes.get(c).map_or(0, |a| a.iter().sum())
    }

    /// The weight of column `c` at a point: `eq` of the column bits, and of zero on the column's extra bits.
    pub fn selector(&self, c: usize, point: &[K]) -> K {
        if c >= self.len() {
            return K::ZERO;
        }
        let extra = point.iter().take(self.bits).skip(self.column_bits(c));
        let top = point.iter().skip(self.bits).enumerate();
        extra.map(|&z| K::ONE - z).product::<K>()
            * top
                .map(|(j, &z)| if c >> j & 1 == 1 { z } else { K::ONE - z })
                .product::<K>()
    }

    /// The evaluation of column `c` at its own variables of a point, first axis first.
    pub fn axis_weights(&self, c: usize, point: &[K]) -> Vec<AxisWeights> {
        let mut low = 0;
        let mut weights: Vec<AxisWeights> = self
            .axes
            .get(c)
            .into_iter()
            .flatten()
            .rev()
            .map(|&bits| {
                let slice: Vec<K> = point.iter().skip(low).take(bits).copied().collect();
                low += bits;
                AxisWeights::eq(&slice)
            })
            .collect();
        weights.reverse();
        weights
    }
}

/// The next `N` hidden values.
fn receive<const N: usize>(
    channel: &mut VerifierChannel,
    label: &'static str,
) -> Result<[Hidden; N], Reject> {
    let values = channel.hidden(label, N)?;
    values
        .try_into()
        .map_err(|_| Reject::check("length of a message"))
}

/// The value at `r` of the cubic with these values at 0, 1, 2, 3.
fn cubic([g0, g1, g2, g3]: [Hidden; 4], r: K) -> Hidden {
    let at = |x: i64| r - lift(from_i64(x));
    let over = |x: i64| lift(from_i64(x)).inverse().unwrap_or(K::ZERO);
    // The claim's form is the longest, and the rounds' pads follow it.
    let mut sum = g1 * (at(0) * at(2) * at(3) * over(2));
    sum.add_scaled(&g0, at(1) * at(2) * at(3) * over(-6));
    sum.add_scaled(&g2, at(0) * at(1) * at(3) * over(-2));
    sum.add_scaled(&g3, at(0) * at(1) * at(2) * over(6));
    sum
}

/// Checks that the fractions of columns with these index sets sum to zero, up to the claims that are returned.
pub fn verify(channel: &mut VerifierChannel, shapes: &[Shape]) -> Result<Leaves, Reject> {
    let root = Root::receive(channel, shapes)?;
    close(channel, root.sum.clone())?;
    root.leaves(channel)
}

/// Reduces the fractions of columns with these index sets to claims, whatever their sum is, and gives the sum.
pub fn sum(channel: &mut VerifierChannel, shapes: &[Shape]) -> Result<(Fraction, Leaves), Reject> {
    let root = Root::receive(channel, shapes)?;
    let sum = root.sum.clone();
    Ok((sum, root.leaves(channel)?))
}

/// The sum of two fractions.
pub fn add(channel: &mut VerifierChannel, a: Fraction, b: Fraction) -> Fraction {
    let node = [a.numerator, b.numerator, a.denominator, b.denominator];
    let [numerator, denominator] = parent(channel, &node);
    Fraction {
        numerator,
        denominator,
    }
}

/// Demands that a sum of fractions is zero and that none of its denominators is.
pub fn close(channel: &mut VerifierChannel, sum: Fraction) -> Result<(), Reject> {
    channel.assert_zero(sum.numerator, || {
        "the fractions of a lookup sum to zero".into()
    })?;
    // A denominator of zero would let its fraction take any value. The product of all is witness-dependent, so that
    // it is not zero is shown by an inverse that stays hidden.
    let [inverse] = receive(channel, "gkr inverse")?;
    let one = channel.product(sum.denominator, inverse);
    channel.assert_zero(one - Hidden::public(K::ONE), || {
        "no denominator of a lookup is zero".into()
    })
}

/// A tree of which the root, or its children where there are any, was received.
struct Root {
    variables: usize,
    sum: Fraction,
    /// The children of the root; of no meaning where there are no variables.
    children: [Hidden; 4],
}

impl Root {
    fn receive(channel: &mut VerifierChannel, shapes: &[Shape]) -> Result<Self, Reject> {
        let variables = Columns::new(shapes).variables();
        let (children, [numerator, denominator]) = if variables == 0 {
            ([Hidden::ZERO; 4], receive(channel, "gkr root")?)
        } else {
            let children = receive(channel, "gkr root")?;
            let sum = parent(channel, &children);
            (children, sum)
        };
        Ok(Self {
            variables,
            sum: Fraction {
                numerator,
                denominator,
            },
            children,
        })
    }

    /// Follows the layers down to the leaves.
    fn leaves(self, channel: &mut VerifierChannel) -> Result<Leaves, Reject> {
        let variables = self.variables;
        let mut leaves = Leaves {
            point: Vec::with_capacity(variables),
            numerator: self.sum.numerator,
            denominator: self.sum.denominator,
        };
        if variables == 0 {
            return Ok(leaves);
        }
        descend(channel, &mut leaves, &self.children);
        for layer in 1..variables {
            let lambda = channel.challenge("gkr lambda");
            let mut claim = leaves.numerator.clone();
            claim.add_scaled(&leaves.denominator, lambda);
            claim -= Hidden::public(lambda);
            let mut eq = K::ONE;
            let mut bound = Vec::with_capacity(variables);
            for &z in &leaves.point {
                let [g0, g2, g3] = receive(channel, "gkr round")?;
                let r = channel.challenge("gkr point");
                let g1 = claim - g0.clone();
                claim = cubic([g0, g1, g2, g3], r);
                eq *= z * r + (K::ONE - z) * (K::ONE - r);
                bound.push(r);
            }
            let node = receive(channel, "gkr node")?;
            let [p, q] = parent(channel, &node);
            let end = p + (q - Hidden::public(K::ONE)) * lambda;
            channel.assert_zero(end * eq - claim, || {
                format!("layer {layer} of a lookup's tree of fractions")
            })?;
            leaves.point = bound;
            descend(channel, &mut leaves, &node);
        }
        Ok(leaves)
    }
}

/// The sum of two fractions `[p0, p1, q0, q1]`.
fn parent(channel: &mut VerifierChannel, node: &[Hidden; 4]) -> [Hidden; 2] {
    let [p0, p1, q0, q1] = node;
    let mut product = |a: &Hidden, b: &Hidden| channel.product(a.clone(), b.clone());
    [product(p0, q1) + product(p1, q0), product(q0, q1)]
}

/// From claims about both children of a layer's nodes to claims at one point, whose new lowest variable selects the
/// child.
fn descend(channel: &mut VerifierChannel, leaves: &mut Leaves, [p0, p1, q0, q1]: &[Hidden; 4]) {
    let r = channel.challenge("gkr child");
    let between = |a: &Hidden, b: &Hidden| a.clone() * (K::ONE - r) + b.clone() * r;
    leaves.numerator = between(p0, p1);
    leaves.denominator = between(q0, q1);
    leaves.point.insert(0, r);
}

/// The soundness error of [`verify`]: claims that come out true although the sum is not zero or a denominator is.
/// That the fractions can sum to zero by bad luck of the challenge inside the denominators is the caller's term.
pub fn soundness(shapes: &[Shape]) -> Vec<Term> {
    soundness_of_parts(&[Columns::new(shapes).variables()])
}

/// As [`soundness`], of several trees with these numbers of variables.
pub fn soundness_of_parts(variables: &[usize]) -> Vec<Term> {
    let total = |of: fn(f64, f64) -> f64| -> f64 {
        let each = variables.iter().map(|&n| n as f64);
        each.map(|n| of(n, (n - 1.0).max(0.0))).sum()
    };
    let trees = match variables {
        [n] => format!("n = {n}"),
        _ => format!("for each of {} trees of n variables", variables.len()),
    };
    let term = |name: &str, formula: &str, count: f64| {
        Term::over_field(
            name,
            format!("{formula}, {trees}"),
            "Papini, Haboeck, eprint 2023/1284",
            count,
            0,
        )
    };
    vec![
        term(
            "lookup tree, sumchecks",
            "3 n (n - 1) / 2 / |K|",
            total(|n, layers| 3.0 * n * layers / 2.0),
        ),
        term(
            "lookup tree, numerator and denominator joined by lambda",
            "(n - 1) / |K|",
            total(|_, layers| layers),
        ),
        term(
            "lookup tree, two children joined",
            "n / |K|",
            total(|n, _| n),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use zkmoe_commit::transcript::Transcript;

    #[test]
    fn selector_and_axis_weights_are_the_eq_of_the_position_in_the_array() {
        let shapes = [
            Shape::dense(&[3, 5]),
            Shape::grouped(vec![vec![2, 3], vec![1, 6], vec![3, 1]]),
            Shape::dense(&[]),
        ];
        let columns = Columns::new(&shapes);
        assert_eq!((columns.bits(), columns.variables()), (7, 9));
        let point = Transcript::new("test").challenges("p", 9);
        let eq = AxisWeights::eq(&point);
        for (c, shape) in shapes.iter().enumerate() {
            let bits = shape.bits();
            let weights = columns.axis_weights(c, &point);
            assert_eq!(weights.len(), bits.len());
            for index in 0..1usize << columns.column_bits(c) {
                let (mut rest, mut weight) = (index, columns.selector(c, &point));
                for (w, &b) in weights.iter().zip(&bits).rev() {
                    weight *= w.at(rest & ((1 << b) - 1));
                    rest >>= b;
                }
                assert_eq!(weight, eq.at(index | c << 7), "column {c}, index {index}");
            }
        }
        assert_eq!(columns.selector(3, &point), K::ZERO);
        assert!(columns.axis_weights(3, &point).is_empty());
    }

    #[test]
    fn a_cubic_is_interpolated() {
        let mut t = Transcript::new("test");
        let c = t.challenges("c", 4);
        let at = |x: K| ((c[3] * x + c[2]) * x + c[1]) * x + c[0];
        let values = [0, 1, 2, 3].map(|x| Hidden::public(at(lift(from_i64(x)))));
        let r = t.challenge("r");
        let difference = cubic(values, r) - Hidden::public(at(r));
        let mut channel = VerifierChannel::new("test", b"", &[]);
        assert_eq!(channel.assert_zero(difference, || "value".into()), Ok(()));
    }

    #[test]
    fn soundness_terms_add_up_to_what_the_rounds_say() {
        let shapes = vec![Shape::dense(&[1 << 20]); 100];
        let error: f64 = soundness(&shapes).iter().map(|t| (-t.bits).exp2()).sum();
        let count: u32 = 1 + (1..27).map(|j| 3 * j + 2).sum::<u32>();
        assert!((error.log2() + 128.0 - f64::from(count).log2()).abs() < 1e-6);
        assert!(soundness(&[]).iter().all(|t| t.bits > 127.0));
    }

    #[test]
    fn garbage_is_an_error() {
        for shapes in [
            vec![],
            vec![Shape::dense(&[1])],
            vec![Shape::grouped(vec![]), Shape::dense(&[7])],
        ] {
            for bytes in [&[][..], &[1; 160], &[255; 64], &[0; 4096]] {
                let mut channel = VerifierChannel::new("test", b"", bytes);
                let failed = verify(&mut channel, &shapes).is_err();
                let system = channel.take_system();
                assert!(
                    failed || !system.violated(&[]).is_empty() || channel.finish().is_err(),
                    "{shapes:?}"
                );
            }
        }
    }
}
