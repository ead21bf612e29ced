//! For how many values of one challenge, or sets of positions, a lie passes the proof about pads, against its terms. The
//! verifier's algebra is asked for all of them; trees have no part in it.

use super::*;
use crate::few::{compare, few, numerator, with_roots};

const FEW: u64 = 31;

/// Rows of four slots and codes of sixteen symbols.
fn tiny(pads: usize, products: usize, randomness: usize) -> Shape {
    Shape {
        pads,
        products,
        log_message: 2,
        log_code: 4,
        queries: 2,
        randomness,
        grinding: 0,
    }
}

/// All that both parties hold before the positions are drawn.
struct Play {
    shape: Shape,
    statement: Statement,
    challenges: Challenges,
    pads: Vec<Vec<K>>,
    later: Vec<Vec<K>>,
}

impl Play {
    /// With true codewords of these values and honest masks.
    fn new(shape: &Shape, system: &System, values: &[Vec<K>; 4], challenges: Challenges) -> Self {
        let code = Code::new(shape);
        let mut dice = Dice::new(1);
        let mut rows = |values: &[K], rows: usize| -> Vec<Vec<K>> {
            let mut values = values.to_vec();
            values.resize(rows * shape.message(), K::ZERO);
            values
                .chunks_exact(shape.message())
                .map(|row| code.encode(&code.row(row, &dice.elements(shape.randomness()))))
                .collect()
        };
        let [pads, factors @ ..] = values;
        let pads = rows(pads, shape.pad_rows());
        let mut later: Vec<Vec<K>> = factors
            .iter()
            .flat_map(|values| rows(values, shape.product_rows()))
            .collect();
        let masks = super::super::prover::masks(shape, &[1; 32]);
        later.extend(masks.iter().map(|mask| code.encode(mask)));
        Self {
            statement: Statement::combine(shape, system, &challenges.linear),
            shape: shape.clone(),
            challenges,
            pads,
            later,
        }
    }

    /// What an honest prover answers to the words as they are.
    fn answers(&self) -> Answers {
        let code = Code::new(&self.shape);
        answers(
            &code,
            &self.statement,
            &self.challenges,
            &self.pads,
            &self.later,
        )
    }

    fn accepts(&self, answers: &Answers, positions: &[usize]) -> bool {
        let opened = super::super::prover::open(&self.pads, &self.later, positions.to_vec());
        check(
            &self.shape,
            &self.statement,
            &self.challenges,
            answers,
            &opened,
        )
        .is_ok()
    }

    /// How many of all pairs of positions are accepted, and how many there are.
    fn passing(&self, answers: &Answers) -> (usize, usize) {
        let n = self.shape.code();
        let pairs = (0..n).flat_map(|b| (0..b).map(move |a| [a, b]));
        let accepted = pairs.clone().filter(|pair| self.accepts(answers, pair));
        (accepted.count(), pairs.count())
    }
}

fn draw(shape: &Shape, system: &System, seed: u64) -> Challenges {
    let mut dice = Dice::new(seed);
    Challenges::draw(shape, system, |_, n| dice.elements(n))
}

fn points(shape: &Shape) -> Vec<K> {
    (0..shape.code())
        .map(|j| lift(domain_point(shape, j)))
        .collect()
}

/// The rate over all pairs of positions against the term. All three cheats are compared with the one bound that covers
/// them; the largest has to meet it.
fn compare_positions(what: &str, shape: &Shape, (passing, all): (usize, usize), slack: f64) {
    let terms = soundness(shape);
    let term = terms
        .iter()
        .find(|t| t.name == "pads: queried positions")
        .unwrap();
    let (rate, bound) = (passing as f64 / all as f64, (-term.bits).exp2());
    println!(
        "{what}: {passing} of {all} pairs of positions pass, rate {rate:.4}, at most {bound:.4}"
    );
    assert!(
        rate <= bound * (1.0 + 1e-9),
        "{what}: more pass than the term says"
    );
    assert!(
        bound <= slack * rate * (1.0 + 1e-9),
        "{what}: the term says little"
    );
}

/// No statement at all, one row of pads, one product's rows where asked for.
fn empty(pads: &[K]) -> System {
    System {
        pads: pads.len(),
        ..System::default()
    }
}

#[test]
fn a_row_at_half_of_the_distance_passes_as_often_as_the_term_says() {
    let shape = tiny(4, 0, 2);
    let values = Dice::new(2).elements(4);
    let system = empty(&values);
    let challenges = draw(&shape, &system, 3);
    let mut play = Play::new(
        &shape,
        &system,
        &[values, vec![], vec![], vec![]],
        challenges,
    );
    let answers = play.answers();
    assert_eq!(play.passing(&answers), (120, 120));
    for symbol in &mut play.pads[0][..(shape.code() - shape.coefficients()) / 2] {
        *symbol += K::ONE;
    }
    // The answers are still those of the codeword.
    compare_positions("pads, a far row", &shape, play.passing(&answers), 1.0);
}

#[test]
fn a_false_statement_passes_at_fewer_positions_than_the_term_says() {
    let shape = tiny(4, 0, 2);
    let values = Dice::new(4).elements(4);
    let mut system = empty(&values);
    system
        .zeros
        .push(("one is zero".into(), Affine::public(K::ONE)));
    let challenges = draw(&shape, &system, 5);
    let play = Play::new(
        &shape,
        &system,
        &[values, vec![], vec![], vec![]],
        challenges,
    );
    let mut answers = play.answers();
    // What the verifier makes of these answers has the sum that it demands. The true polynomial has not, so their
    // difference is a constant. Adding what vanishes at all positions but that constant is of no use; a multiple of what
    // vanishes at as many positions as the degree has roots, with the same sum, is.
    let degree = shape.linear_coefficients() - 1;
    let vanishing = with_roots(&points(&shape)[..degree]);
    let sum: K = vanishing.iter().step_by(shape.message()).sum();
    let wrong = scale(play.statement.constant, F::from(4u64).inverse().unwrap());
    let factor = -wrong * sum.inverse().unwrap();
    let linear = answers.0[1].iter_mut().zip(&vanishing[1..]);
    linear.for_each(|(a, v)| *a += factor * v);
    let (passing, all) = play.passing(&answers);
    assert_eq!(passing, degree * (degree - 1) / 2);
    compare_positions("pads, a false statement", &shape, (passing, all), 2.0);
}

#[test]
fn false_products_pass_as_often_as_the_term_says() {
    // So high a rate that products decide.
    let shape = tiny(1, 4, 3);
    let mut dice = Dice::new(6);
    let (pads, left, right) = (dice.elements(1), dice.elements(4), dice.elements(4));
    let degree = 2 * shape.coefficients() - 2;
    assert!(degree > usize::midpoint(shape.code(), shape.coefficients()));
    let vanishing = with_roots(&points(&shape)[..degree]);
    // At the slots the errors are those of a polynomial that vanishes at as many positions as products have.
    let root = root_of_unity(shape.log_message);
    let errors = (0..4u64).map(|i| {
        let h = lift(root.pow([i]));
        vanishing.iter().rev().fold(K::ZERO, |sum, &c| sum * h + c)
    });
    let results = left
        .iter()
        .zip(&right)
        .zip(errors)
        .map(|((&a, &b), e)| a * b - e)
        .collect();
    let mut system = empty(&pads);
    system.products = (0..4)
        .map(|i| [left[i], right[i]].map(Affine::public))
        .collect();
    let challenges = draw(&shape, &system, 7);
    let b = challenges.products[0];
    let play = Play::new(&shape, &system, &[pads, left, right, results], challenges);
    let mut answers = play.answers();
    // The quotient of what is left of the products when b times that polynomial is taken away.
    let code = Code::new(&shape);
    let quotient: Vec<K> = (0..shape.code())
        .map(|j| {
            let x = domain_point(&shape, j);
            let rows = shape.product_rows();
            let (symbols, masks) = play.later.split_at(3 * rows);
            let at = |row: usize| symbols[row * rows][j];
            let taken = vanishing
                .iter()
                .rev()
                .fold(K::ZERO, |sum, &c| sum * lift(x) + c);
            let over = (x.pow([shape.message() as u64]) - F::ONE)
                .inverse()
                .unwrap();
            let mask = masks[3][j] + scale(masks[4][j], x.pow([shape.randomness() as u64 - 1]));
            mask + scale(b * (at(0) * at(1) - at(2) - taken), over)
        })
        .collect();
    answers.0[2] = code.decode(&quotient, shape.quotient_coefficients());
    let (passing, all) = play.passing(&answers);
    assert_eq!(passing, degree * (degree - 1) / 2);
    compare_positions("pads, false products", &shape, (passing, all), 1.0);
}

/// Mask and row are wrong at the same positions, one more than are decoded, and each of them is right in the combination for
/// one coefficient of its own.
#[test]
fn a_combination_of_far_rows_is_near_as_often_as_the_terms_say_at_most() {
    let shape = tiny(4, 0, 2);
    let values = Dice::new(8).elements(4);
    let system = empty(&values);
    let mut challenges = draw(&shape, &system, 9);
    // The statement, so that only the rows are looked at.
    challenges.linear.clear();
    let mut play = Play::new(
        &shape,
        &system,
        &[values, vec![], vec![], vec![]],
        challenges,
    );
    let e = (shape.code() - shape.coefficients() - 1) / 2;
    let mut near = 0;
    let lucky: Vec<K> = few(FEW).into_iter().take(e + 1).collect();
    let (clean_row, clean_mask) = (play.pads[0].clone(), play.later[0].clone());
    for a in few(FEW) {
        play.challenges.rows[0] = a;
        play.pads[0].clone_from(&clean_row);
        play.later[0].clone_from(&clean_mask);
        let answers = play.answers();
        for (j, &own) in lucky.iter().enumerate() {
            play.pads[0][j] += K::ONE;
            play.later[0][j] -= own;
        }
        let right = (0..=e)
            .filter(|&j| play.accepts(&answers, &[j, shape.code() - 1]))
            .count();
        assert_eq!(right, usize::from(lucky.contains(&a)));
        near += right;
    }
    let terms = soundness(&shape);
    let bound = numerator(&terms, "pads: combination of rows", 0);
    compare("pads, combination of rows", near as f64, bound, 4.0);
    // The same cheat, counted as positions at which a row is wrong and the combination right.
    let bound = numerator(&terms, "pads: positions where a row is no codeword", 0);
    compare(
        "pads, positions that are right by chance",
        near as f64,
        bound,
        1.0,
    );
}

#[test]
fn errors_of_two_statements_cancel_for_one_coefficient() {
    let shape = tiny(4, 0, 2);
    let values = Dice::new(10).elements(4);
    let mut system = empty(&values);
    for sign in [K::ONE, -K::ONE] {
        system.zeros.push(("not zero".into(), Affine::public(sign)));
    }
    let mut passing = Vec::new();
    for c in few(FEW) {
        let mut challenges = draw(&shape, &system, 11);
        challenges.linear = vec![K::from(7u64), c];
        let values = [values.clone(), vec![], vec![], vec![]];
        let play = Play::new(&shape, &system, &values, challenges);
        if play.passing(&play.answers()) == (120, 120) {
            passing.push(c);
        }
    }
    assert_eq!(passing, [K::from(7u64)]);
    let bound = numerator(
        &soundness(&shape),
        "pads: combination of linear statements",
        0,
    );
    compare("pads, combination of statements", 1.0, bound, 1.0);
}

#[test]
fn errors_of_two_products_cancel_for_one_coefficient() {
    // Two rows of products, wrong in the same slot.
    let shape = tiny(1, 8, 2);
    assert_eq!(shape.product_rows(), 2);
    let mut dice = Dice::new(12);
    let (pads, left, right) = (dice.elements(1), dice.elements(8), dice.elements(8));
    let mut results: Vec<K> = left.iter().zip(&right).map(|(&a, &b)| a * b).collect();
    results[2] += K::ONE;
    results[6] -= K::ONE;
    let mut system = empty(&pads);
    system.products = (0..8)
        .map(|i| [left[i], right[i]].map(Affine::public))
        .collect();
    let mut passing = Vec::new();
    for c in few(FEW) {
        let mut challenges = draw(&shape, &system, 13);
        challenges.products = vec![K::from(9u64), c];
        let values = [pads.clone(), left.clone(), right.clone(), results.clone()];
        let play = Play::new(&shape, &system, &values, challenges);
        if play.passing(&play.answers()) == (120, 120) {
            passing.push(c);
        }
    }
    assert_eq!(passing, [K::from(9u64)]);
    let bound = numerator(&soundness(&shape), "pads: combination of products", 0);
    compare("pads, combination of products", 1.0, bound, 1.0);
}
