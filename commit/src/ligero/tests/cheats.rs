//! Provers that cheat in one way each and follow the protocol otherwise.

use super::*;

#[test]
fn every_zero_that_does_not_hold_is_found() {
    for broken in 0..12 {
        let mut case = Case::new(3, 35, 10, 12);
        case.system.zeros[broken].1.constant += K::ONE;
        assert!(!case.system.violated(&case.values).is_empty());
        assert_eq!(case.verify(&case.prove()), fails(LINEAR), "zero {broken}");
    }
}

#[test]
fn two_zeros_whose_errors_cancel_are_found() {
    let mut case = Case::new(4, 35, 10, 12);
    case.system.zeros[2].1.constant += K::ONE;
    case.system.zeros[3].1.constant -= K::ONE;
    assert_eq!(case.verify(&case.prove()), fails(LINEAR));
}

#[test]
fn every_wrong_result_is_found() {
    // Without zeros, and where no product uses another, nothing else can be wrong.
    let mut dice = Dice::new(5);
    let mut case = Case::new(5, 20, 20, 0);
    for factors in &mut case.system.products {
        *factors = [dice.form(20, 0), dice.form(20, 0)];
    }
    for broken in 0..20 {
        let verdict = case.cheat(|stage, of| {
            if let (Stage::Values, [_, _, results]) = (stage, of) {
                results[broken] += K::ONE;
            }
        });
        assert_eq!(verdict, fails(PRODUCTS), "product {broken}");
    }
}

#[test]
fn wrong_results_that_cancel_are_found() {
    let mut case = Case::new(6, 20, 34, 0);
    case.system.products = vec![case.system.products[0].clone(); 34];
    // In one row, and at the same slot of two rows.
    for (first, second) in [(3, 4), (3, 19)] {
        let verdict = case.cheat(|stage, of| {
            if let (Stage::Values, [_, _, results]) = (stage, of) {
                results[first] += K::ONE;
                results[second] -= K::ONE;
            }
        });
        assert_eq!(verdict, fails(PRODUCTS));
    }
}

#[test]
fn factors_other_than_their_forms_are_found() {
    let case = Case::new(7, 20, 18, 3);
    for side in 0..2 {
        for broken in [0, 5, 17] {
            // The product holds for what stands in the rows; the last result is used by nobody.
            let verdict = case.cheat(|stage, of| {
                if stage == Stage::Values {
                    of[side][broken] += K::ONE;
                    of[2][broken] = of[0][broken] * of[1][broken];
                }
            });
            assert_eq!(verdict, fails(LINEAR), "side {side}, product {broken}");
        }
    }
}

#[test]
fn a_chain_over_a_wrong_result_is_found() {
    // Each product squares the result before, and the prover goes on from a wrong one.
    let mut case = Case::new(8, 1, 0, 0);
    case.shape = small(1, 20);
    let last = |n: u32| n.checked_sub(1).map_or(Variable::Pad(0), Variable::Result);
    case.system.products = (0..20)
        .map(|n| [0, 1].map(|_| Affine::variable(last(n), K::ONE)))
        .collect();
    assert_eq!(case.verify(&case.prove()), Ok(()));
    let verdict = case.cheat(|stage, of| {
        if let (Stage::Values, [left, right, results]) = (stage, of) {
            results[6] += K::ONE;
            for n in 7..20 {
                left[n] = results[n - 1];
                right[n] = results[n - 1];
                results[n] = left[n] * right[n];
            }
        }
    });
    assert_eq!(verdict, fails(PRODUCTS));
}

#[test]
fn other_pads_than_the_committed_ones_are_found() {
    let case = Case::new(9, 40, 6, 10);
    for pad in [0, 16, 39] {
        let mut other = case.values.clone();
        other[pad] += K::ONE;
        let mut system = case.system.clone();
        system.zeros.clear();
        let of_pad =
            |value: K| Affine::variable(Variable::Pad(pad as u32), K::ONE) - Affine::public(value);
        system
            .zeros
            .push(("value of the pad".into(), of_pad(other[pad])));

        let mut channel = ProverChannel::new("test", b"pads");
        let mut pads = Pads::commit_with(
            &mut channel,
            case.shape.clone(),
            case.values.clone(),
            &case.seed,
            |_, _| (),
        );
        pads.values = other;
        assert!(system.violated(&pads.values).is_empty(), "for its new pads");
        prove_with(&mut channel, &pads, &system, &case.seed, |_, _| ());
        let proof = channel.finish();
        assert_eq!(
            verify_bytes(&case.shape, &system, &proof),
            fails(LINEAR),
            "pad {pad}"
        );

        // Rows of the new pads do not fit the root of the old.
        let fresh = Pads::commit_with(
            &mut ProverChannel::new("test", b"pads"),
            case.shape.clone(),
            pads.values.clone(),
            &case.seed,
            |_, _| (),
        );
        let mut channel = ProverChannel::new("test", b"pads");
        channel.digest("pads root", &pads.tree.root());
        prove_with(&mut channel, &fresh, &system, &case.seed, |_, _| ());
        assert_eq!(
            verify_bytes(&case.shape, &system, &channel.finish()),
            fails("pads: leaf of the tree of pads")
        );
    }
}

/// The codeword of a polynomial with too many coefficients.
fn too_long(shape: &Shape, coefficients: usize, seed: u64) -> Vec<K> {
    let polynomial = Dice::new(seed).elements(coefficients);
    (0..shape.code())
        .map(|j| horner(&polynomial, domain_point(shape, j)))
        .collect()
}

#[test]
fn rows_that_are_no_codewords_are_found() {
    let case = Case::new(10, 40, 20, 5);
    let shape = &case.shape;
    let k = shape.coefficients();
    let words = [
        Dice::new(10).elements(shape.code()),
        too_long(shape, 2 * k, 11),
        too_long(shape, k + 1, 12),
    ];
    for word in &words {
        for row in 0..shape.pad_rows() {
            let proof = case.prove_with(
                |stage, of| {
                    if stage == Stage::Words {
                        of[row].clone_from(word);
                    }
                },
                |_, _| (),
            );
            assert_eq!(case.verify(&proof), fails(ROWS), "row {row} of the pads");
        }
        for row in 0..shape.later_rows() {
            let verdict = case.cheat(|stage, of| {
                if stage == Stage::Words {
                    of[row].clone_from(word);
                }
            });
            assert_eq!(verdict, fails(ROWS), "row {row} of the second tree");
        }
    }
}

#[test]
fn a_word_between_two_codewords_is_found() {
    // It is each of them on half of the positions, so the queries would have to miss one half.
    let case = Case::new(11, 40, 4, 5);
    let other = Case {
        seed: [9; 32],
        ..Case::new(11, 40, 4, 5)
    };
    let take = |case: &Case| {
        let mut channel = ProverChannel::new("test", b"pads");
        let (shape, values) = (case.shape.clone(), case.values.clone());
        Pads::commit_with(&mut channel, shape, values, &case.seed, |_, _| ()).words
    };
    let words = take(&other);
    assert_ne!(take(&case), words);
    let proof = case.prove_with(
        |stage, of| {
            if stage == Stage::Words {
                let half = of[1].len() / 2;
                of[1][..half].copy_from_slice(&words[1][..half]);
            }
        },
        |_, _| (),
    );
    assert_eq!(case.verify(&proof), fails(ROWS));
}

#[test]
fn masks_do_not_carry_a_false_statement() {
    // A mask whose sum makes up for a false zero would have to know the coefficient of that zero.
    let mut case = Case::new(12, 20, 5, 4);
    case.system.zeros[1].1.constant += K::ONE;
    let sum = |by: K| {
        move |stage: Stage, of: &mut [Vec<K>]| {
            if let (Stage::Masks, [_, low, ..]) = (stage, of) {
                low[0] += by;
            }
        }
    };
    for by in [
        K::ZERO,
        K::ONE,
        -K::ONE,
        lift(F::from(16u64).inverse().unwrap()),
    ] {
        assert_eq!(case.cheat(sum(by)), fails(LINEAR));
    }
    // Nor may the mask have another sum where all statements hold: it would be an answer to another statement.
    case.system.zeros[1].1.constant -= K::ONE;
    assert_eq!(case.cheat(sum(K::ZERO)), Ok(()));
    assert_eq!(case.cheat(sum(K::ONE)), fails(LINEAR));
}

#[test]
fn a_mask_of_products_that_does_not_vanish_is_found() {
    let case = Case::new(13, 20, 5, 0);
    // On the words, a mask with the quotient 1 / (X^l - 1): its product with the vanishing polynomial is one.
    let shape = case.shape.clone();
    let verdict = case.cheat(|stage, of| {
        if stage == Stage::Words {
            let row = of.len() - 2;
            for (j, symbol) in of[row].iter_mut().enumerate() {
                let x = domain_point(&shape, j).pow([shape.message() as u64]);
                *symbol += lift((x - F::ONE).inverse().unwrap());
            }
        }
    });
    assert_eq!(verdict, fails(ROWS));
}

#[test]
fn a_change_of_any_answer_is_found_by_its_own_check() {
    let case = Case::new(14, 20, 5, 3);
    let shape = &case.shape;
    for (test, name, len) in [
        (0, ROWS, shape.coefficients()),
        (1, LINEAR, shape.linear_coefficients() - 1),
        (2, PRODUCTS, shape.quotient_coefficients()),
    ] {
        for i in [0, 1, len / 2, len - 1] {
            let verdict = case.cheat(|stage, of| {
                if stage == Stage::Answers {
                    of[test][i] += K::ONE;
                }
            });
            assert_eq!(verdict, fails(name), "coefficient {i}");
        }
    }
}
