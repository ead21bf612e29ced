//! A header for a model that was not imported yet, to count what its proofs would be.
//!
//! Import measures activations and chooses shifts by them. Of all shifts a proof's sizes depend on one thing: a remainder
//! of `b` bits is looked up in the table of `2^b` entries, and each width in use has one table. The shifts here are all
//! different, so that every width from 1 to 16 is in use. No other shifts have more tables, more lookups or more claims,
//! so no term of the error is better than that of the imported model; but for those about pads, whose code is chosen for
//! the number of hidden values and always reaches its target.

use zkmoe_commit::codec::DecodeError;
use zkmoe_prover::import::config::Config;
use zkmoe_prover::tables;
use zkmoe_verifier::header::{Header, Scales};

/// The header of a model of this configuration; an error if its sizes are above the limits. Nothing can be computed with
/// it: its shifts fit no weights.
pub fn header(config: &Config) -> Result<Header, DecodeError> {
    // Before tables are made, whose lengths follow from sizes.
    config.sizes.check()?;
    // The least factor and epsilon, which leave room for the widest vectors.
    let (factor, epsilon) = (1, 1 << 20);
    let scales = Scales {
        query_shift: 1,
        key_shift: 2,
        value_shift: 3,
        score_shift: 4,
        output_shift: 5,
        router_shift: 6,
        router_score_shift: 7,
        gate_shift: 8,
        up_shift: 9,
        product_shift: 10,
        down_shift: 11,
        head_shift: 12,
        // Above 16 bits a remainder has a digit of 16 bits and one of those that are left: here 13 to 16.
        norm_factor: factor,
        norm_epsilon: epsilon,
        norm_shift: 16 + 13,
        query_norm_factor: factor,
        query_norm_epsilon: epsilon,
        query_norm_shift: 16 + 14,
        key_norm_factor: factor,
        key_norm_epsilon: epsilon,
        key_norm_shift: 16 + 15,
        rope_shift: 16 + 16,
    };
    let sizes = &config.sizes;
    let (cos_table, sin_table) = tables::rope_tables(
        sizes.max_position_embeddings,
        sizes.head_dim / 2,
        config.rope_theta,
    );
    Ok(Header {
        sizes: sizes.clone(),
        scales,
        eos_token: config.eos_token,
        pad_token: config.pad_token,
        exp_table: tables::exp_table(),
        silu_table: tables::silu_table(1.0, 1.0),
        cos_table,
        sin_table,
        tokenizer_hash: *blake3::hash(b"").as_bytes(),
        template_hash: *blake3::hash(b"").as_bytes(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use zkmoe_verifier::olmoe;
    use zkmoe_verifier::relation::Tag;

    #[test]
    fn every_width_has_a_table() {
        let config = Config::parse(include_bytes!("../data/olmoe-tiny/config.json")).unwrap();
        let header = header(&config).unwrap();
        assert_eq!(header.check(), Ok(()));
        let relation = olmoe::relation(&header);
        for bits in 1..=16 {
            let looked_up = relation
                .lookups
                .iter()
                .filter(|l| l.tag == Tag::Range(bits));
            assert!(looked_up.count() >= 2, "{bits} bits");
        }
    }
}
