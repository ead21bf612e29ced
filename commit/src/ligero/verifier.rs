//! The verifier's half of the proof about pads.

use super::{Challenges, Column, Shape, Statement, digest, domain_point, soundness};
use crate::affine::{Affine, System, Variable};
use crate::channel::{Reject, VerifierChannel};
use crate::field::{F, K, batch_invert, lift, root_of_unity, scale};
use crate::merkle::{self, Digest, hash_leaf};
use crate::soundness::Term;
use crate::whir::horner;
use ark_ff::{AdditiveGroup, Field};

/// What the prover answers to the challenges: coefficients of the combination of all rows, of the polynomial of linear
/// statements without the constant one, and of the quotient for the products.
#[derive(Debug, Clone)]
pub(super) struct Answers(pub [Vec<K>; 3]);

/// The opened columns, one after another for each tree.
#[derive(Debug, Clone)]
pub(super) struct Opened {
    pub positions: Vec<usize>,
    pub pads: Vec<K>,
    pub later: Vec<K>,
}

/// Receives the root of the pads.
pub fn receive(channel: &mut VerifierChannel<'_>) -> Result<Digest, Reject> {
    channel.digest("pads root")
}

/// Ends a verification: demands that all that was said about hidden values on the channel holds for the pads under `root`,
/// and that no message is left. Gives the soundness error of that.
pub fn conclude(mut channel: VerifierChannel<'_>, root: &Digest) -> Result<Vec<Term>, Reject> {
    let system = channel.take_system();
    let shape = Shape::choose(system.pads, system.products.len())?;
    verify(&mut channel, root, &shape, &system)?;
    channel.finish()?;
    Ok(soundness(&shape))
}

/// Demands that the system holds for the pads under `root`.
///
/// `shape` comes from counts that were public when the pads were committed; a system that goes beyond them is refused.
/// Memory and time follow from the shape and the system alone.
pub fn verify(
    channel: &mut VerifierChannel<'_>,
    root: &Digest,
    shape: &Shape,
    system: &System,
) -> Result<(), Reject> {
    within(shape, system)?;
    let (challenges, answers, opened) = read(channel, root, shape, system)?;
    let statement = Statement::combine(shape, system, &challenges.linear);
    check(shape, &statement, &challenges, &answers, &opened)
}

/// Reads all messages; the opened columns are those of the trees.
pub(super) fn read(
    channel: &mut VerifierChannel<'_>,
    root: &Digest,
    shape: &Shape,
    system: &System,
) -> Result<(Challenges, Answers, Opened), Reject> {
    channel.absorb("pads system", &digest(shape, system));
    let later_root = channel.digest("pads root of products")?;
    let challenges = Challenges::draw(shape, system, |label, n| channel.challenges(label, n));
    let answers = Answers([
        channel.clear("pads rows", shape.coefficients())?,
        channel.clear("pads linear statements", shape.linear_coefficients() - 1)?,
        channel.clear("pads products", shape.quotient_coefficients())?,
    ]);
    channel.grind("pads work before the positions", shape.grinding)?;
    let positions = channel.positions("pads positions", shape.queries(), shape.log_code());

    let mut columns = |rows, symbols, siblings, root, tree| {
        let opened = channel.clear(symbols, positions.len() * rows)?;
        let leaves: Vec<Digest> = opened.chunks_exact(rows).map(hash_leaf).collect();
        merkle::check(
            channel,
            siblings,
            root,
            shape.log_code(),
            &positions,
            &leaves,
        )
        .map_err(|reject| match reject {
            Reject::Check(_) => Reject::check(format!("pads: leaf of the tree of {tree}")),
            malformed @ Reject::Malformed(_) => malformed,
        })?;
        Ok::<_, Reject>(opened)
    };
    let pads = columns(
        shape.pad_rows(),
        "pads columns of pads",
        "pads siblings of pads",
        root,
        "pads",
    )?;
    let later = columns(
        shape.later_rows(),
        "pads columns of products",
        "pads siblings of products",
        &later_root,
        "products",
    )?;
    let opened = Opened {
        positions,
        pads,
        later,
    };
    Ok((challenges, answers, opened))
}

/// Refuses a system that the shape was not chosen for, and one whose products are not in order.
fn within(shape: &Shape, system: &System) -> Result<(), Reject> {
    let counts = [
        ("pads", system.pads, shape.pads()),
        ("products", system.products.len(), shape.products()),
    ];
    for (what, used, declared) in counts {
        if used > declared {
            return Err(Reject::check(format!(
                "pads: {used} {what} are used, {declared} were declared"
            )));
        }
    }
    let fine = |form: &Affine, results: usize| {
        form.terms.iter().all(|&(variable, _)| match variable {
            Variable::Pad(n) => (n as usize) < system.pads,
            Variable::Result(n) => (n as usize) < results,
        })
    };
    let products = &system.products;
    let in_order = products
        .iter()
        .enumerate()
        .all(|(n, forms)| forms.iter().all(|form| fine(form, n)));
    if in_order
        && system
            .zeros
            .iter()
            .all(|(_, form)| fine(form, products.len()))
    {
        Ok(())
    } else {
        Err(Reject::check(
            "pads: a statement about a pad or a product that there is not",
        ))
    }
}

/// The part of the verifier that is algebra: whether the answers fit the opened columns.
///
/// Test by test over all positions, so that the name of the check says which statement is false.
pub(super) fn check(
    shape: &Shape,
    statement: &Statement,
    challenges: &Challenges,
    answers: &Answers,
    opened: &Opened,
) -> Result<(), Reject> {
    const NAMES: [&str; 3] = [
        "pads: rows at an opened position",
        "pads: linear statements",
        "pads: products",
    ];
    let Answers([rows, linear, products]) = answers;
    let linear = with_constant(shape, statement, linear);
    let polynomials = [rows, &linear, products];
    let columns = opened
        .pads
        .chunks_exact(shape.pad_rows())
        .zip(opened.later.chunks_exact(shape.later_rows()));
    let mut fits = [true; 3];
    for (&position, (pads, later)) in opened.positions.iter().zip(columns) {
        let column = Column::new(shape, pads, later).ok_or_else(|| Reject::check(NAMES[0]))?;
        let x = domain_point(shape, position);
        let lagrange = lagrange(shape, x);
        let factors: Vec<K> = statement
            .weights
            .chunks_exact(shape.message())
            .map(|row| {
                row.iter()
                    .zip(&lagrange)
                    .fold(K::ZERO, |sum, (&weight, &at)| sum + scale(weight, at))
            })
            .collect();
        let expected = column.answers(shape, challenges, &factors, x);
        for ((fits, polynomial), expected) in fits.iter_mut().zip(polynomials).zip(expected) {
            *fits &= horner(polynomial, x) == expected;
        }
    }
    match NAMES.into_iter().zip(fits).find(|(_, fits)| !fits) {
        None => Ok(()),
        Some((name, _)) => Err(Reject::check(name)),
    }
}

/// The polynomial of linear statements with its constant coefficient: over `H` it has the sum that the statement demands,
/// which is `l` times the sum of the coefficients whose exponent `l` divides.
fn with_constant(shape: &Shape, statement: &Statement, others: &[K]) -> Vec<K> {
    let size = F::from(shape.message() as u64);
    let demanded = scale(-statement.constant, size.inverse().unwrap_or(F::ZERO));
    let rest: K = others
        .iter()
        .skip(shape.message() - 1)
        .step_by(shape.message())
        .sum();
    core::iter::once(demanded - rest)
        .chain(others.iter().copied())
        .collect()
}

/// The values at `x` of the polynomials of degree below `l` that are one at one point of `H` and zero at all others:
/// `(x^l - 1) / l * h / (x - h)`.
pub(super) fn lagrange(shape: &Shape, x: F) -> Vec<F> {
    let root = root_of_unity(shape.log_message);
    let points = core::iter::successors(Some(F::ONE), |&h| Some(h * root)).take(shape.message());
    let size = F::from(shape.message() as u64);
    let common = (x.pow([shape.message() as u64]) - F::ONE) * size.inverse().unwrap_or(F::ZERO);
    let mut inverses: Vec<K> = points.clone().map(|h| lift(x - h)).collect();
    batch_invert(&mut inverses);
    points
        .zip(inverses)
        .map(|(h, inverse)| common * h * inverse.c0)
        .collect()
}
