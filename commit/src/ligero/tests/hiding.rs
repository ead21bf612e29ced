//! What a proof tells: nothing. A simulator without pads makes messages of the same distribution, and each source of
//! randomness is needed.

use super::*;
use crate::ligero::prover::masks;
use crate::ligero::verifier::read;

/// Proofs that are compared.
const PROOFS: u64 = 300;
/// Bins of a histogram: half a byte.
const BINS: usize = 16;
/// Beyond this a statistic with 15 degrees of freedom comes once in ten million times.
const LIMIT: f64 = 61.0;

/// Few slots, few queries, no work. It hides as well as any other; it is not sound.
fn tiny(pads: usize, products: usize) -> Shape {
    Shape {
        pads,
        products,
        log_message: 2,
        log_code: 6,
        queries: 4,
        randomness: 8,
        grinding: 0,
    }
}

/// One system that holds for two different lists of pads.
fn two_witnesses() -> (Shape, System, [Vec<K>; 2]) {
    let mut dice = Dice::new(100);
    // Small, and the same at each run: what hides them is the proof alone.
    let small = |from: u64| (0..6).map(|i| lift(F::from(from + i))).collect::<Vec<K>>();
    let witnesses = [small(1), small(100)];
    let mut system = System {
        pads: 6,
        ..System::default()
    };
    for n in 0..3 {
        system.products.push([dice.form(6, n), dice.form(6, n)]);
    }
    let results = witnesses.clone().map(|pads| system.results(&pads));
    for n in 0..2 {
        let mut form = dice.form(6, 3);
        let value = |form: &Affine, i: usize| form.value(&witnesses[i], &results[i]);
        let slope = (value(&form, 0) - value(&form, 1)) / (witnesses[1][n] - witnesses[0][n]);
        form += Affine::variable(Variable::Pad(n as u32), slope);
        form.constant -= value(&form, 0);
        system.zeros.push((format!("zero {n}"), form));
    }
    for pads in &witnesses {
        assert!(system.violated(pads).is_empty());
    }
    (tiny(6, 3), system, witnesses)
}

/// All field elements of a proof in the order of the messages, and last the polynomial of linear statements on `H` less what it
/// would be there without its mask for the first witness: what someone would compute to confirm a guess.
fn view(
    shape: &Shape,
    system: &System,
    guess: &[K],
    challenges: &Challenges,
    answers: &Answers,
    opened: &Opened,
) -> Vec<K> {
    let statement = Statement::combine(shape, system, &challenges.linear);
    let mut slots = guess.to_vec();
    slots.resize(shape.pad_rows() * shape.message(), K::ZERO);
    let results = system.results(guess);
    let factors = |side: usize| system.products.iter().map(move |forms| &forms[side]);
    for mut values in [
        factors(0).map(|f| f.value(guess, &results)).collect(),
        factors(1).map(|f| f.value(guess, &results)).collect(),
        results.clone(),
    ] {
        values.resize(shape.product_rows() * shape.message(), K::ZERO);
        slots.extend::<Vec<K>>(values);
    }
    let length = shape.message();
    let root = root_of_unity(shape.log_message);
    // The constant coefficient is known by the sum; differences of neighbours need no constant.
    let residue = |i: usize| {
        let linear = [&[K::ZERO], &answers.0[1][..]].concat();
        let guessed: K = (i..slots.len())
            .step_by(length)
            .map(|at| slots[at] * statement.weights[at])
            .sum();
        horner(&linear, root.pow([i as u64])) - guessed
    };
    let residues = (1..length).map(|i| residue(i) - residue(0));
    [
        &answers.0[0],
        &answers.0[1],
        &answers.0[2],
        &opened.pads,
        &opened.later,
    ]
    .into_iter()
    .flatten()
    .copied()
    .chain(residues)
    .collect()
}

/// Views of proofs for one witness.
fn real_views(witness: usize, change: impl Fn(Stage, &mut [Vec<K>]) + Sync + Copy) -> Vec<Vec<K>> {
    let (shape, system, witnesses) = two_witnesses();
    (0..PROOFS)
        .map(|i| {
            let case = Case {
                shape: shape.clone(),
                values: witnesses[witness].clone(),
                system: system.clone(),
                seed: Dice::new(1_000 * (witness as u64 + 1) + i).seed(),
            };
            let proof = case.prove_with(change, change);
            assert_eq!(case.verify(&proof), Ok(()));
            let mut channel = VerifierChannel::new("test", b"pads", &proof);
            let root = receive(&mut channel).unwrap();
            let (challenges, answers, opened) = read(&mut channel, &root, &shape, &system).unwrap();
            view(
                &shape,
                &system,
                &witnesses[0],
                &challenges,
                &answers,
                &opened,
            )
        })
        .collect()
}

/// The product of `X - x` over these points.
fn vanishing(points: &[F]) -> Vec<K> {
    points.iter().fold(vec![K::ONE], |product, &x| {
        let mut next = vec![K::ZERO; product.len() + 1];
        for (i, &c) in product.iter().enumerate() {
            next[i + 1] += c;
            next[i] -= scale(c, x);
        }
        next
    })
}

/// A uniform polynomial with `len` coefficients among those with these values.
fn with_values(dice: &mut Dice, len: usize, points: &[F], values: &[K]) -> Vec<K> {
    let mut polynomial = dice.elements(len);
    for (i, (&x, &value)) in points.iter().zip(values).enumerate() {
        // One at `x`, zero at all points before.
        let basis = vanishing(&points[..i]);
        let c = (value - horner(&polynomial, x)) / horner(&basis, x);
        for (to, b) in polynomial.iter_mut().zip(basis) {
            *to += b * c;
        }
    }
    polynomial
}

/// The sum over `H`.
fn sum(shape: &Shape, polynomial: &[K]) -> K {
    let all: K = polynomial.iter().step_by(shape.message()).sum();
    scale(all, F::from(shape.message() as u64))
}

/// A proof by someone who knows the system and not the pads, but chooses challenges and positions first.
fn simulated_view(seed: u64) -> Vec<K> {
    let (shape, system, witnesses) = two_witnesses();
    let mut dice = Dice::new(seed);
    let challenges = Challenges::draw(&shape, &system, |_, n| dice.elements(n));
    let positions = dice
        .0
        .positions("positions", shape.queries(), shape.log_code());
    let opened = Opened {
        pads: dice.elements(positions.len() * shape.pad_rows()),
        later: dice.elements(positions.len() * shape.later_rows()),
        positions,
    };
    let statement = Statement::combine(&shape, &system, &challenges.linear);
    let points: Vec<F> = opened
        .positions
        .iter()
        .map(|&j| domain_point(&shape, j))
        .collect();
    let mut values: [Vec<K>; 3] = Default::default();
    for (q, &x) in points.iter().enumerate() {
        let part = |all: &[K], rows| all.chunks_exact(rows).nth(q).unwrap().to_vec();
        let pads = part(&opened.pads, shape.pad_rows());
        let later = part(&opened.later, shape.later_rows());
        let factors: Vec<K> = statement
            .weights
            .chunks_exact(shape.message())
            .map(|row| horner(&interpolate(&shape, row), x))
            .collect();
        let column = Column::new(&shape, &pads, &later).unwrap();
        let at = column.answers(&shape, &challenges, &factors, x);
        values
            .iter_mut()
            .zip(at)
            .for_each(|(values, at)| values.push(at));
    }
    let [rows, linear, products] = values;
    let mut linear = with_values(&mut dice, shape.linear_coefficients(), &points, &linear);
    let basis = vanishing(&points);
    let c = (-statement.constant - sum(&shape, &linear)) / sum(&shape, &basis);
    for (to, b) in linear.iter_mut().zip(basis) {
        *to += b * c;
    }
    linear.remove(0);
    let answers = Answers([
        with_values(&mut dice, shape.coefficients(), &points, &rows),
        linear,
        with_values(&mut dice, shape.quotient_coefficients(), &points, &products),
    ]);
    assert_eq!(
        check(&shape, &statement, &challenges, &answers, &opened),
        Ok(())
    );
    view(
        &shape,
        &system,
        &witnesses[0],
        &challenges,
        &answers,
        &opened,
    )
}

fn simulated_views() -> Vec<Vec<K>> {
    (0..PROOFS).map(|i| simulated_view(10_000 + i)).collect()
}

/// For every element of a view, and lowest and highest bits of both components, how often each value comes.
fn histograms(views: &[Vec<K>]) -> Vec<[f64; BINS]> {
    let mut out = vec![[0.0; BINS]; 4 * views[0].len()];
    for view in views {
        let bits = view.iter().flat_map(|x| {
            let [a, b] = [x.c0, x.c1].map(crate::field::word);
            [a % 16, a >> 60, b % 16, b >> 60]
        });
        out.iter_mut()
            .zip(bits)
            .for_each(|(histogram, bin)| histogram[bin as usize] += 1.0);
    }
    out
}

/// The largest chi-square statistic against the uniform distribution.
fn against_uniform(views: &[Vec<K>]) -> f64 {
    let expected = views.len() as f64 / BINS as f64;
    histograms(views)
        .iter()
        .map(|h| h.iter().map(|n| (n - expected).powi(2) / expected).sum())
        .fold(0.0, f64::max)
}

/// The largest chi-square statistic of two samples of one size.
fn against_each_other(a: &[Vec<K>], b: &[Vec<K>]) -> f64 {
    let statistic = |(a, b): (&[f64; BINS], &[f64; BINS])| {
        a.iter()
            .zip(b)
            .filter(|(a, b)| *a + *b > 0.0)
            .map(|(a, b)| (a - b).powi(2) / (a + b))
            .sum()
    };
    histograms(a)
        .iter()
        .zip(&histograms(b))
        .map(statistic)
        .fold(0.0, f64::max)
}

#[test]
fn proofs_for_two_witnesses_and_simulated_ones_look_alike() {
    let views = [
        real_views(0, |_, _| ()),
        real_views(1, |_, _| ()),
        simulated_views(),
    ];
    for (i, a) in views.iter().enumerate() {
        let statistic = against_uniform(a);
        assert!(statistic < LIMIT, "view {i}: {statistic}");
        for b in &views[..i] {
            let statistic = against_each_other(a, b);
            assert!(statistic < LIMIT, "view {i}: {statistic}");
        }
    }
}

/// Without one source of randomness the same comparison fails, for every pair that it is made of.
fn assert_seen(change: impl Fn(Stage, &mut [Vec<K>]) + Sync + Copy) {
    let broken = real_views(0, change);
    assert!(against_uniform(&broken) > LIMIT);
    assert!(against_each_other(&broken, &simulated_views()) > LIMIT);
}

#[test]
fn rows_without_random_coefficients_are_seen() {
    assert_seen(|stage, of| {
        if stage == Stage::Randomness {
            of[0].fill(K::ZERO);
        }
    });
}

#[test]
fn rows_without_their_mask_are_seen() {
    assert_seen(|stage, of| {
        if let (Stage::Masks, [mask, ..]) = (stage, of) {
            mask.fill(K::ZERO);
        }
    });
}

#[test]
fn linear_statements_without_their_mask_are_seen() {
    assert_seen(|stage, of| {
        if let (Stage::Masks, [_, low, high, ..]) = (stage, of) {
            low.fill(K::ZERO);
            high.fill(K::ZERO);
        }
    });
}

/// Both rows of the mask are random, and so are their columns, but they cancel.
#[test]
fn linear_statements_with_a_mask_that_cancels_are_seen() {
    let shape = two_witnesses().0;
    assert_seen(|stage, of| {
        if let (Stage::Masks, [_, low, high, ..]) = (stage, of) {
            let z: Vec<K> = high[..=shape.randomness()].to_vec();
            low.fill(K::ZERO);
            high.fill(K::ZERO);
            for (i, z) in z.into_iter().enumerate() {
                low[shape.message() - 1 + i] = z;
                high[i] = -z;
            }
        }
    });
}

#[test]
fn products_without_their_mask_are_seen() {
    assert_seen(|stage, of| {
        if let (Stage::Masks, [.., low, high]) = (stage, of) {
            low.fill(K::ZERO);
            high.fill(K::ZERO);
        }
    });
}

/// The rank of a matrix, by elimination.
fn rank(mut rows: Vec<Vec<K>>) -> usize {
    let mut rank = 0;
    for column in 0..rows.first().map_or(0, Vec::len) {
        let Some(pivot) = (rank..rows.len()).find(|&r| rows[r][column] != K::ZERO) else {
            continue;
        };
        rows.swap(rank, pivot);
        let (done, rest) = rows.split_at_mut(rank + 1);
        let pivot = &done[rank];
        for row in rest {
            let c = row[column] / pivot[column];
            if c != K::ZERO {
                row.iter_mut().zip(pivot).for_each(|(x, &p)| *x -= p * c);
            }
        }
        rank += 1;
    }
    rank
}

/// How many dimensions the masks lack to make everything that is seen uniform, but for what the verifier checks.
///
/// For any content of the other rows, what the masks add to the view is linear in them. The verifier checks three values
/// at each opened column, and that the sum of a mask is zero; in all other directions the masks have to move the view.
fn missing(shape: &Shape, without: &[usize]) -> usize {
    let mut dice = Dice::new(200);
    let (_, mut system, _) = two_witnesses();
    system.products.truncate(shape.products());
    let challenges = Challenges::draw(shape, &system, |_, n| dice.elements(n));
    let statement = Statement::combine(shape, &system, &challenges.linear);
    let positions = dice
        .0
        .positions("positions", shape.queries(), shape.log_code());
    let code = Code::new(shape);
    let (k, n) = (shape.coefficients(), shape.code());
    let none = vec![vec![K::ZERO; n]; shape.pad_rows()];

    let mut images = Vec::new();
    for mask in (0..MASKS).filter(|mask| !without.contains(mask)) {
        for i in 0..k {
            let mut coefficients: [Vec<K>; MASKS] = core::array::from_fn(|_| vec![K::ZERO; k]);
            coefficients[mask][i] = K::ONE;
            // The constant coefficient of `v0` is what makes the sum zero.
            let free = i + if mask == 2 { shape.message() - 1 } else { 0 };
            if [1, 2].contains(&mask) && free % shape.message() == 0 {
                coefficients[1][0] -= K::ONE;
            }
            let mut later = vec![vec![K::ZERO; n]; 3 * shape.product_rows()];
            later.extend(coefficients.iter().map(|mask| code.encode(mask)));
            let answers = answers(&code, &statement, &challenges, &none, &later);
            let columns = crate::ligero::prover::open(
                &[],
                &later[3 * shape.product_rows()..],
                positions.clone(),
            );
            images.push([answers.0.concat(), columns.later].concat());
        }
    }
    let seen = images[0].len();
    assert_eq!(
        seen,
        k + shape.linear_coefficients() - 1
            + shape.quotient_coefficients()
            + MASKS * shape.queries()
    );
    // Without its constant coefficient the polynomial of linear statements is not bound by its sum.
    seen - 3 * shape.queries() - rank(images)
}

#[test]
fn the_masks_move_all_that_is_seen() {
    let shape = tiny(6, 3);
    assert_eq!(missing(&shape, &[]), 0);
    // Four columns leave two of the masks' rows; the polynomial of rows sees the others too, but not enough of them.
    for mask in 0..MASKS {
        assert_ne!(missing(&shape, &[mask]), 0, "without mask {mask}");
    }
    // As many queries as the arguments allow, and one more.
    let with = |queries| Shape {
        queries,
        ..shape.clone()
    };
    assert_eq!(missing(&with(shape.message() + 1), &[]), 0);
    assert_ne!(missing(&with(shape.message() + 2), &[]), 0);
}

#[test]
fn random_coefficients_move_all_symbols_of_a_row_as_long_as_there_are_enough() {
    let shape = tiny(6, 3);
    let symbols = |queries: usize| {
        let positions = Dice::new(300).0.positions("p", queries, shape.log_code());
        let rows = (0..shape.randomness())
            .map(|i| {
                positions
                    .iter()
                    .map(|&j| {
                        let x = domain_point(&shape, j);
                        lift((x.pow([shape.message() as u64]) - F::ONE) * x.pow([i as u64]))
                    })
                    .collect()
            })
            .collect();
        rank(rows)
    };
    // All opened symbols, and one more of a leaf that is not opened.
    assert_eq!(symbols(shape.queries() + 1), shape.queries() + 1);
    assert_eq!(symbols(shape.randomness()), shape.randomness());
    assert_eq!(symbols(shape.randomness() + 1), shape.randomness());
}

#[test]
fn the_mask_of_linear_statements_has_sum_zero_and_is_free_otherwise() {
    for shape in [
        tiny(6, 3),
        small(40, 20),
        Shape::choose(3_200, 300).unwrap(),
    ] {
        let [_, low, high, ..] = masks(&shape, &[5; 32]);
        let mut mask = vec![K::ZERO; shape.linear_coefficients()];
        low.iter().enumerate().for_each(|(i, &c)| mask[i] += c);
        high.iter()
            .enumerate()
            .for_each(|(i, &c)| mask[shape.message() - 1 + i] += c);
        let root = root_of_unity(shape.log_message);
        let sum: K = (0..shape.message() as u64)
            .map(|i| horner(&mask, root.pow([i])))
            .sum();
        assert_eq!(sum, K::ZERO);
        assert!(mask.iter().all(|&c| c != K::ZERO));
    }
}
