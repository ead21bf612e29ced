//! The relation of the family against its golden text.

use std::path::{Path, PathBuf};

use super::relation;
use crate::gadgets::{argmax, router::EXPERT_BITS, softmax::MAXIMUM_BITS};
use crate::header::{
    GATE_FRACTION_BITS, Header, LOGIT_BITS, RESIDUAL_BITS, ROUTER_BITS, Scales, Sizes, TABLE_SIZE,
};

/// Sizes of OLMoE-1B-7B.
pub(crate) fn published_sizes() -> Sizes {
    Sizes {
        vocab_size: 50304,
        hidden_size: 2048,
        intermediate_size: 1024,
        num_hidden_layers: 16,
        num_key_value_heads: 16,
        query_group: 1,
        head_dim: 128,
        num_experts: 64,
        num_experts_per_tok: 8,
        max_position_embeddings: 4096,
    }
}

/// Odd sizes, so that no axis is a power of two where it does not have to be.
pub(crate) fn odd_sizes() -> Sizes {
    Sizes {
        vocab_size: 11,
        hidden_size: 6,
        intermediate_size: 5,
        num_hidden_layers: 3,
        num_key_value_heads: 3,
        query_group: 2,
        head_dim: 6,
        num_experts: 5,
        num_experts_per_tok: 2,
        max_position_embeddings: 7,
    }
}

/// A header that passes every check; its tables hold arbitrary values.
pub(crate) fn header(sizes: Sizes) -> Header {
    let rope = sizes.max_position_embeddings * (sizes.head_dim / 2);
    let small = |step: usize| move |i: usize| (i * step % 32768) as i16 - 16384;
    let mut exp_table: Vec<u16> = (0..TABLE_SIZE).map(|i| u16::MAX - i as u16).collect();
    exp_table[TABLE_SIZE - 1] = 0;
    let header = Header {
        scales: Scales {
            norm_factor: 16,
            norm_epsilon: 1 << 20,
            norm_shift: 29,
            query_norm_factor: 1 << 20,
            query_norm_epsilon: (1 << 20) + 1,
            query_norm_shift: 21,
            key_norm_factor: 1 << 19,
            key_norm_epsilon: (1 << 20) + 2,
            key_norm_shift: 22,
            query_shift: 15,
            key_shift: 14,
            value_shift: 13,
            rope_shift: 27,
            score_shift: 12,
            output_shift: 16,
            router_shift: 9,
            router_score_shift: 6,
            gate_shift: 11,
            up_shift: 10,
            product_shift: 8,
            down_shift: 7,
            head_shift: 5,
        },
        eos_token: 0,
        pad_token: 1,
        exp_table,
        silu_table: (0..TABLE_SIZE).map(small(7)).collect(),
        cos_table: (0..rope).map(small(11)).collect(),
        sin_table: (0..rope).map(small(13)).collect(),
        tokenizer_hash: [0; 32],
        template_hash: [0; 32],
        sizes,
    };
    assert_eq!(header.check(), Ok(()));
    header
}

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// The relation is part of the protocol. If this fails on purpose, run the test with `UPDATE=1`, read the difference,
/// and say in `docs/protocol.md` what changed and why.
#[test]
fn the_relation_is_the_golden_one() {
    let path = repository("tests/vectors/olmoe.relation.txt");
    let dump = relation(&header(published_sizes())).dump();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &dump).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap();
    for (n, (found, expected)) in dump.lines().zip(golden.lines()).enumerate() {
        assert_eq!(found, expected, "line {}", n + 1);
    }
    assert_eq!(dump.len(), golden.len(), "number of lines");
}

/// The marked part of `docs/protocol.md` is the same text; `UPDATE=1` rewrites it as well.
#[test]
fn the_document_shows_the_relation() {
    let path = repository("docs/protocol.md");
    let document = std::fs::read_to_string(&path).unwrap();
    let dump = relation(&header(published_sizes())).dump();
    let start = "<!-- relation: start -->\n```text\n";
    let end = "```\n<!-- relation: end -->\n";
    let (before, rest) = document.split_once(start).unwrap();
    let (shown, after) = rest.split_once(end).unwrap();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, [before, start, &dump, end, after].concat()).unwrap();
    } else {
        assert!(shown == dump, "run this test with UPDATE=1");
    }
}

/// The largest sizes that a header admits, each alone.
#[test]
fn the_header_keeps_the_bounds_of_the_gadgets() {
    let refused = |change: &dyn Fn(&mut Sizes)| {
        let mut header = header(odd_sizes());
        change(&mut header.sizes);
        // Tables and norms that fit the new sizes, so that only the size itself can be refused.
        let rope = header.sizes.max_position_embeddings * (header.sizes.head_dim / 2);
        header.cos_table.resize(rope, 0);
        header.sin_table.resize(rope, 0);
        let s = &mut header.scales;
        (s.norm_factor, s.query_norm_factor, s.key_norm_factor) = (1, 1, 1);
        header.check().is_err()
    };
    let most = [
        (
            EXPERT_BITS,
            (|s, n| s.num_experts = n) as fn(&mut Sizes, usize),
        ),
        (20, |s, n| s.vocab_size = n),
        (14, |s, n| s.hidden_size = n),
        (16, |s, n| s.intermediate_size = n),
        (12, |s, n| s.max_position_embeddings = n),
        (9, |s, n| s.head_dim = n),
    ];
    for (bits, set) in most {
        assert!(!refused(&|s| set(s, 1 << bits)), "2^{bits}");
        assert!(refused(&|s| set(s, (1 << bits) + 2)), "2^{bits} + 2");
        assert!(refused(&|s| set(s, 0)), "none");
    }
    assert!(refused(&|s| s.num_experts_per_tok = 0));
    assert!(refused(&|s| s.num_experts_per_tok = s.num_experts + 1));
}

/// The sums that the prose of the gadgets calls small, with the largest sizes of a header.
#[test]
fn no_sum_of_the_relation_reaches_the_order_of_the_field() {
    let (weight, operand) = (127.0 * 65535.0, 2f64.powi(15));
    let bits = |x: f64| x.log2();
    let product = |width: i32| bits(operand * weight * 2f64.powi(width));
    // Projections, router, head; experts; output of 2^10 heads of 2^9.
    assert!(product(14) < 62.0 && product(16) < 62.0 && product(19) < 62.0);
    // Scores, gain with rotation.
    assert!(bits(operand * operand) + 9.0 < 62.0);
    assert!(bits(2.0 * operand * weight * 2f64.powi(14)) < 62.0);
    // Twice the largest denominator of a division fits the range of its remainder.
    let largest_sum = u64::from(u16::MAX) << 12;
    assert!(2 * largest_sum < 1 << 32);
    // A multiplier of a norm has 36 bits, a gate 16; differences of keys fit their ranges.
    const {
        assert!(RESIDUAL_BITS - 1 + 36 < 62);
        assert!(EXPERT_BITS + 16 + RESIDUAL_BITS - 1 < 62);
        assert!(RESIDUAL_BITS + GATE_FRACTION_BITS < 62);
        assert!(MAXIMUM_BITS + 16 < 62);
        assert!(ROUTER_BITS + EXPERT_BITS <= 32);
    }
    let top = (1i64 << (LOGIT_BITS - 1)) - 1;
    let spread = argmax::key(top, 0, 1 << 20) - argmax::key(-top - 1, (1 << 20) - 1, 1 << 20);
    assert!(spread < 1 << (LOGIT_BITS + 20));
}
