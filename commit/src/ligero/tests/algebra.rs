//! The algebra of the tests, for challenges that are known before, against direct evaluation.

use super::*;

/// The answer of the verifier's algebra to rows with these values and masks, for challenges that are known before.
fn algebra(
    case: &Case,
    challenges: &Challenges,
    values: &[Vec<K>; 3],
    masks: &[Vec<K>; MASKS],
) -> Result<(), Reject> {
    let shape = &case.shape;
    let code = Code::new(shape);
    let mut dice = Dice::new(400);
    let mut encode = |values: &Vec<K>, rows: usize| -> Vec<Vec<K>> {
        let mut values = values.clone();
        values.resize(rows * shape.message(), K::ZERO);
        values
            .chunks_exact(shape.message())
            .map(|row| code.encode(&code.row(row, &dice.elements(shape.randomness()))))
            .collect()
    };
    let pads = encode(&case.values, shape.pad_rows());
    let mut later: Vec<Vec<K>> = values
        .iter()
        .flat_map(|values| encode(values, shape.product_rows()))
        .collect();
    later.extend(masks.iter().map(|mask| code.encode(mask)));
    let statement = Statement::combine(shape, &case.system, &challenges.linear);
    let answers = answers(&code, &statement, challenges, &pads, &later);
    let positions = dice.0.positions("p", shape.queries(), shape.log_code());
    let opened = super::prover::open(&pads, &later, positions);
    check(shape, &statement, challenges, &answers, &opened)
}

/// Controls: the cheats of the tests above fail for no other reason than that the challenges come too late for them.
#[test]
fn who_knows_the_challenges_can_cheat() {
    let mut case = Case::new(20, 20, 20, 4);
    let mut dice = Dice::new(20);
    let challenges = Challenges::draw(&case.shape, &case.system, |_, n| dice.elements(n));
    let masks = super::prover::masks(&case.shape, &[1; 32]);
    let values = super::prover::values(&case.system, &case.values);
    assert_eq!(algebra(&case, &challenges, &values, &masks), Ok(()));

    // A zero that is one, and a mask whose sum makes up for it.
    case.system.zeros[2].1.constant += K::ONE;
    assert_eq!(algebra(&case, &challenges, &values, &masks), fails(LINEAR));
    let mut adapted = masks.clone();
    let size = F::from(case.shape.message() as u64);
    adapted[1][0] -= scale(challenges.linear[42], size.inverse().unwrap());
    assert_eq!(algebra(&case, &challenges, &values, &adapted), Ok(()));

    // Wrong results at the same slot of two rows, which no other statement uses.
    case.system.zeros.clear();
    for factors in &mut case.system.products {
        *factors = [dice.form(20, 0), dice.form(20, 0)];
    }
    let mut values = super::prover::values(&case.system, &case.values);
    assert_eq!(algebra(&case, &challenges, &values, &masks), Ok(()));
    values[2][3] += challenges.products[1];
    assert_eq!(
        algebra(&case, &challenges, &values, &masks),
        fails(PRODUCTS)
    );
    values[2][19] -= challenges.products[0];
    assert_eq!(algebra(&case, &challenges, &values, &masks), Ok(()));
}

/// The combined statement is the sum of all statements, and the polynomials are what their definitions say.
#[test]
fn the_algebra_agrees_with_direct_evaluation() {
    let case = Case::new(19, 37, 18, 7);
    let (shape, system) = (&case.shape, &case.system);
    let mut dice = Dice::new(19);
    let challenges = Challenges::draw(shape, system, |_, n| dice.elements(n));
    let statement = Statement::combine(shape, system, &challenges.linear);

    // Values that have nothing to do with each other: the functional is compared, not whether it is zero.
    let pads = dice.elements(37);
    let [left, right, results] = [18; 3].map(|n| dice.elements(n));
    let mut direct = K::ZERO;
    for (n, [a, b]) in system.products.iter().enumerate() {
        direct += challenges.linear[2 * n] * (a.value(&pads, &results) - left[n]);
        direct += challenges.linear[2 * n + 1] * (b.value(&pads, &results) - right[n]);
    }
    for ((_, form), &c) in system.zeros.iter().zip(&challenges.linear[36..]) {
        direct += c * form.value(&pads, &results);
    }
    let slots: Vec<K> = [
        (&pads, shape.pad_rows()),
        (&left, 2),
        (&right, 2),
        (&results, 2),
    ]
    .into_iter()
    .flat_map(|(values, rows)| {
        let mut values = values.clone();
        values.resize(rows * shape.message(), K::ZERO);
        values
    })
    .collect();
    assert_eq!(slots.len(), statement.weights.len());
    let combined = slots
        .iter()
        .zip(&statement.weights)
        .fold(statement.constant, |sum, (&x, &w)| sum + x * w);
    assert_eq!(combined, direct);

    // Without masks and without random coefficients the polynomials show on `H` what the rows hold.
    let code = Code::new(shape);
    let words: Vec<Vec<K>> = slots
        .chunks_exact(shape.message())
        .map(|row| code.encode(&interpolate(shape, row)))
        .collect();
    let (pad_words, later) = words.split_at(shape.pad_rows());
    let later = [later, &vec![vec![K::ZERO; shape.code()]; MASKS]].concat();
    let answers = answers(&code, &statement, &challenges, pad_words, &later);
    for i in 0..shape.message() {
        let h = root_of_unity(shape.log_message).pow([i as u64]);
        let expected: K = slots
            .chunks_exact(shape.message())
            .zip(&challenges.rows)
            .map(|(row, &a)| a * row[i])
            .sum();
        assert_eq!(horner(&answers.0[0], h), expected);
    }
    let in_slots = |values: &[K]| {
        let root = root_of_unity(shape.log_message);
        core::iter::successors(Some(F::ONE), |&h| Some(h * root))
            .take(shape.message())
            .map(|h| horner(values, h))
            .sum::<K>()
    };
    let linear = [&[K::ZERO], &answers.0[1][..]].concat();
    let constant = direct - statement.constant - in_slots(&linear);
    let linear = {
        let mut linear = linear;
        linear[0] = scale(constant, F::from(16u64).inverse().unwrap());
        linear
    };
    assert_eq!(in_slots(&linear), direct - statement.constant);
    for x in [3u64, 1 << 40].map(F::from) {
        let at = |values: &[K]| horner(&interpolate(shape, values), x);
        let mut expected = K::ZERO;
        for (row, weights) in slots
            .chunks_exact(shape.message())
            .zip(statement.weights.chunks_exact(shape.message()))
        {
            expected += at(row) * at(weights);
        }
        assert_eq!(horner(&linear, x), expected, "linear statements at {x}");
    }

    // With right results the quotient is exact.
    let mut values = [left, right, results];
    values[2] = values[0]
        .iter()
        .zip(&values[1])
        .map(|(&a, &b)| a * b)
        .collect();
    let mut words: Vec<Vec<K>> = values
        .iter()
        .flat_map(|values| values.chunks(shape.message()))
        .map(|row| code.encode(&interpolate(shape, row)))
        .collect();
    words.extend(vec![vec![K::ZERO; shape.code()]; MASKS]);
    let answers = super::prover::answers(&code, &statement, &challenges, pad_words, &words);
    for x in [5u64, 1 << 50].map(F::from) {
        let vanishing = x.pow([shape.message() as u64]) - F::ONE;
        let at = |values: &[K]| horner(&interpolate(shape, values), x);
        let mut expected = K::ZERO;
        for (j, &b) in challenges.products.iter().enumerate() {
            let row = |side: usize| at(values[side].chunks(shape.message()).nth(j).unwrap());
            expected += b * (row(0) * row(1) - row(2));
        }
        assert_eq!(
            scale(horner(&answers.0[2], x), vanishing),
            expected,
            "products at {x}"
        );
    }
}
