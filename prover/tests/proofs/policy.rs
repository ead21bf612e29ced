//! The policy on real proofs: with one position fewer, what was accepted is refused.

use crate::common::{Committed, answer, dishonest, fault, micro, trace_of};
use zkmoe_commit::codec::Reader;
use zkmoe_commit::params::{POLICY_BITS, Params};
use zkmoe_prover::prove::NoHook;
use zkmoe_prover::trace::Loads;
use zkmoe_verifier::batch::read_proof_header;
use zkmoe_verifier::forecast::Forecast;
use zkmoe_verifier::id::ModelId;
use zkmoe_verifier::soundness::total_bits;

/// The parameters that a provider would have, but for the number of positions.
fn params(queries: Option<usize>) -> Params {
    let chosen = Params::choose(1 << 10, 1);
    Params {
        queries: queries.unwrap_or(chosen.queries),
        ..chosen
    }
}

#[test]
fn a_proof_is_refused_exactly_when_its_terms_add_up_to_less_than_the_policy() {
    let proof = |params: Params| {
        let by = Committed::with(micro(), params, [3; 32]);
        let replies = [answer(&by.model, &[3, 5, 7], 3)];
        let trace = trace_of(&by.model, &replies, Loads::Multiple(8));
        let made = dishonest(&by, &replies, &trace, &mut NoHook);
        (by.id, made)
    };
    let (id, made) = proof(params(None));
    assert_eq!(fault(&id, &made), None);
    let (_, header) = read_proof_header(&mut Reader::new(&made.proof), &id.header).unwrap();
    let bits = |queries| {
        let id = ModelId {
            params: params(Some(queries)),
            ..id.clone()
        };
        total_bits(&Forecast::new(&id, &header).unwrap().soundness)
    };
    let fewest = (1..id.params.queries)
        .find(|&n| bits(n) >= POLICY_BITS)
        .expect("fewer positions than a provider has");
    println!("{} bits with {fewest} positions", bits(fewest));

    let (id, made) = proof(params(Some(fewest)));
    assert_eq!(fault(&id, &made), None);
    let (id, made) = proof(params(Some(fewest - 1)));
    let why = fault(&id, &made).expect("less than the policy");
    assert!(why.starts_with("soundness: 99."), "{why}");
}
