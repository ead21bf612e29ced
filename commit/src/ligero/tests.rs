//! Proofs that must pass, and bytes and systems that are refused.

mod algebra;
mod cheats;
mod hiding;
mod rates;

use super::prover::{Code, Stage, answers, prove_with};
use super::verifier::{Answers, Opened, check};
use super::*;
use crate::channel::{ProverChannel, Reject, VerifierChannel};
use crate::field::lift;
use crate::soundness::total_bits;
use crate::transcript::Transcript;
use crate::whir::horner;

const ROWS: &str = "pads: rows at an opened position";
const LINEAR: &str = "pads: linear statements";
const PRODUCTS: &str = "pads: products";

/// Short rows, and so many queries that a false proof passes for less than one seed in a thousand.
fn small(pads: usize, products: usize) -> Shape {
    Shape {
        pads,
        products,
        log_message: 4,
        log_code: 8,
        queries: 14,
        randomness: 18,
        grinding: 3,
    }
}

/// A source of random choices for tests.
struct Dice(Transcript);

impl Dice {
    fn new(seed: u64) -> Self {
        let mut t = Transcript::new("dice");
        t.absorb("seed", &seed.to_le_bytes());
        Self(t)
    }
    fn element(&mut self) -> K {
        self.0.challenge("element")
    }
    fn elements(&mut self, n: usize) -> Vec<K> {
        self.0.challenges("elements", n)
    }
    fn below(&mut self, n: usize) -> usize {
        (crate::field::word(self.element().c0) % n as u64) as usize
    }
    fn seed(&mut self) -> [u8; 32] {
        let mut seed = [0; 32];
        for (to, x) in seed.chunks_exact_mut(8).zip(self.elements(4)) {
            to.copy_from_slice(&crate::field::word(x.c0).to_le_bytes());
        }
        seed
    }
    /// A form with up to five variables, a zero coefficient among them now and then.
    fn form(&mut self, pads: usize, results: usize) -> Affine {
        let mut form = Affine::public(self.element());
        for _ in 0..self.below(6) {
            let at = self.below((pads + results).max(1));
            let variable = if at < pads {
                Variable::Pad(at as u32)
            } else if at < pads + results {
                Variable::Result((at - pads) as u32)
            } else {
                break;
            };
            let coefficient = if self.below(7) == 0 {
                K::ZERO
            } else {
                self.element()
            };
            form += Affine::variable(variable, coefficient);
        }
        form
    }
    /// A system that holds for these pads.
    fn system(&mut self, pads: &[K], products: usize, zeros: usize) -> System {
        let mut system = System {
            pads: pads.len(),
            ..System::default()
        };
        for n in 0..products {
            let factors = [self.form(pads.len(), n), self.form(pads.len(), n)];
            system.products.push(factors);
        }
        let results = system.results(pads);
        for n in 0..zeros {
            let mut form = self.form(pads.len(), products);
            form.constant -= form.value(pads, &results);
            system.zeros.push((format!("zero {n}"), form));
        }
        assert!(system.violated(pads).is_empty());
        system
    }
}

/// Which prover makes a proof.
struct Case {
    shape: Shape,
    values: Vec<K>,
    system: System,
    seed: [u8; 32],
}

impl Case {
    fn new(seed: u64, pads: usize, products: usize, zeros: usize) -> Self {
        let mut dice = Dice::new(seed);
        let values = dice.elements(pads);
        Self {
            shape: small(pads, products),
            system: dice.system(&values, products, zeros),
            values,
            seed: dice.seed(),
        }
    }

    fn prove_with(
        &self,
        on_pads: impl Fn(Stage, &mut [Vec<K>]) + Sync,
        change: impl Fn(Stage, &mut [Vec<K>]) + Sync,
    ) -> Vec<u8> {
        let mut channel = ProverChannel::new("test", b"pads");
        let (shape, values) = (self.shape.clone(), self.values.clone());
        let pads = Pads::commit_with(&mut channel, shape, values, &self.seed, on_pads);
        prove_with(&mut channel, &pads, &self.system, &self.seed, change);
        channel.finish()
    }

    fn prove(&self) -> Vec<u8> {
        self.prove_with(|_, _| (), |_, _| ())
    }

    fn verify(&self, proof: &[u8]) -> Result<(), Reject> {
        verify_bytes(&self.shape, &self.system, proof)
    }

    /// What the verifier says to a prover that changes something.
    fn cheat(&self, change: impl Fn(Stage, &mut [Vec<K>]) + Sync) -> Result<(), Reject> {
        self.verify(&self.prove_with(|_, _| (), change))
    }
}

fn verify_bytes(shape: &Shape, system: &System, proof: &[u8]) -> Result<(), Reject> {
    let mut channel = VerifierChannel::new("test", b"pads", proof);
    let root = receive(&mut channel)?;
    verify(&mut channel, &root, shape, system)?;
    channel.finish()
}

fn fails(check: &str) -> Result<(), Reject> {
    Err(Reject::check(check))
}

/// Coefficients of the polynomial with these values on `H`, by the definition of the inverse transform.
fn interpolate(shape: &Shape, values: &[K]) -> Vec<K> {
    let size = shape.message() as u64;
    let root = root_of_unity(shape.log_message).inverse().unwrap();
    let inverse = F::from(size).inverse().unwrap();
    (0..size)
        .map(|i| scale(horner(values, root.pow([i])), inverse))
        .collect()
}

#[test]
fn systems_that_hold_are_accepted_at_all_sizes() {
    for (i, (pads, products, zeros)) in [
        (0, 0, 0),
        (1, 0, 0),
        (1, 0, 1),
        (0, 3, 2),
        (1, 1, 1),
        (16, 16, 3),
        (17, 0, 9),
        (40, 17, 30),
        (33, 50, 5),
    ]
    .into_iter()
    .enumerate()
    {
        let case = Case::new(i as u64, pads, products, zeros);
        let proof = case.prove();
        assert_eq!(case.verify(&proof), Ok(()), "{pads} {products} {zeros}");
        // The root of the pads is not counted.
        let (length, found) = (case.shape.length(), proof.len() as u64 - 32);
        assert_eq!(length.check(found), Ok(()), "{pads} {products} {zeros}");
        assert_eq!((found - length.least) % 32, 0, "{pads} {products} {zeros}");
    }
}

#[test]
fn a_system_may_use_less_than_was_declared() {
    let mut case = Case::new(1, 20, 5, 4);
    case.shape = small(60, 40);
    assert_eq!(case.verify(&case.prove()), Ok(()));
}

#[test]
fn a_real_size_is_accepted_and_its_proof_is_small() {
    let mut dice = Dice::new(2);
    let values = uniform_pads(&dice.seed(), 3_200);
    let system = dice.system(&values, 300, 40);
    let mut channel = ProverChannel::new("test", b"pads");
    let pads = Pads::commit(&mut channel, values, 300, &dice.seed()).unwrap();
    prove(&mut channel, &pads, &system, &dice.seed());
    let proof = channel.finish();
    assert!(proof.len() < 110_000, "{} bytes", proof.len());
    let shape = Shape::choose(3_200, 300).unwrap();
    assert_eq!(&shape, pads.shape());
    assert_eq!(verify_bytes(&shape, &system, &proof), Ok(()));
    assert!(total_bits(&soundness(&shape)) >= 105.0);

    let mut broken = system;
    broken.zeros[7].1.constant += K::ONE;
    let mut channel = ProverChannel::new("test", b"pads");
    let pads = Pads::commit(&mut channel, pads.values().to_vec(), 300, &dice.seed()).unwrap();
    prove(&mut channel, &pads, &broken, &dice.seed());
    assert_eq!(
        verify_bytes(&shape, &broken, &channel.finish()),
        fails(LINEAR)
    );
}

#[test]
fn pads_are_fresh_for_every_seed() {
    let a = uniform_pads(&[0; 32], 500);
    assert_eq!(a[..20], uniform_pads(&[0; 32], 20));
    assert_ne!(a, uniform_pads(&[1; 32], 500));
}

#[test]
fn every_changed_byte_is_an_error() {
    let case = Case::new(15, 33, 18, 6);
    let proof = case.prove();
    assert_eq!(case.verify(&proof), Ok(()));
    for at in (0..proof.len()).filter(|at| at % 13 < 2) {
        for bit in [0, 7] {
            let mut changed = proof.clone();
            changed[at] ^= 1 << bit;
            assert!(case.verify(&changed).is_err(), "bit {bit} of byte {at}");
        }
    }
}

#[test]
fn truncated_and_extended_proofs_are_errors() {
    let case = Case::new(16, 33, 18, 6);
    let proof = case.prove();
    for len in (0..proof.len()).step_by(37).chain([proof.len() - 1]) {
        let verdict = case.verify(&proof[..len]);
        assert!(matches!(verdict, Err(Reject::Malformed(_))), "{len} bytes");
    }
    let extended = [&proof[..], &[0]].concat();
    assert!(matches!(case.verify(&extended), Err(Reject::Malformed(_))));
}

#[test]
fn a_proof_is_for_its_own_system_and_shape() {
    let case = Case::new(17, 33, 18, 6);
    let proof = case.prove();
    let mut renamed = case.system.clone();
    renamed.zeros[0].0 = "another name".into();
    let padded = &mut renamed.zeros[1].1;
    *padded += Affine::variable(Variable::Pad(7), K::ZERO);
    assert_eq!(
        verify_bytes(&case.shape, &renamed, &proof),
        Ok(()),
        "it says the same"
    );

    let mut others = vec![case.system.clone(); 5];
    others[0].zeros.swap(0, 1);
    others[1].zeros.pop();
    others[2].products.pop();
    others[2].zeros.clear();
    others[3].products[3].swap(0, 1);
    others[4].zeros[2].1 = others[4].zeros[2].1.clone() * lift(F::from(2u64));
    for (i, other) in others.iter().enumerate() {
        assert!(
            verify_bytes(&case.shape, other, &proof).is_err(),
            "system {i}"
        );
    }
    for shape in [
        small(34, 18),
        small(33, 19),
        small(60, 18),
        Shape {
            queries: 13,
            ..case.shape.clone()
        },
    ] {
        assert!(
            verify_bytes(&shape, &case.system, &proof).is_err(),
            "{shape:?}"
        );
    }
}

#[test]
fn systems_beyond_what_was_declared_are_refused() {
    let case = Case::new(18, 20, 5, 3);
    let proof = case.prove();
    let verdict = |shape: &Shape, system: &System| match verify_bytes(shape, system, &proof) {
        Err(Reject::Check(why)) => why,
        other => panic!("{other:?}"),
    };
    let name = verdict(&small(19, 5), &case.system);
    assert_eq!(name, "pads: 20 pads are used, 19 were declared");
    let name = verdict(&small(20, 4), &case.system);
    assert_eq!(name, "pads: 5 products are used, 4 were declared");

    let unknown = "pads: a statement about a pad or a product that there is not";
    let bad = |variable| Affine::variable(variable, K::ONE);
    let mut systems = vec![case.system.clone(); 4];
    systems[0].zeros[0].1 = bad(Variable::Pad(20));
    systems[1].zeros[0].1 = bad(Variable::Result(5));
    systems[2].products[3][1] = bad(Variable::Result(3));
    systems[3].products[3][0] = bad(Variable::Pad(u32::MAX));
    for (i, system) in systems.iter().enumerate() {
        assert_eq!(verdict(&case.shape, system), unknown, "system {i}");
        // The prover makes a proof all the same.
        let cheat = Case {
            system: system.clone(),
            ..Case::new(18, 20, 5, 3)
        };
        assert!(cheat.verify(&cheat.prove()).is_err());
    }
}
