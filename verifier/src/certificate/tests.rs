//! Plans cover each weight once, and what a chunk states is the range of its parts.

use super::*;
use crate::olmoe::tests::{header, odd_sizes, published_sizes};
use crate::relation::{Count, Declared, Expr};
use crate::weights::weight_shape;

fn sizes_of(header: &Header, tensor: WeightId) -> usize {
    weight_shape(&header.sizes, tensor).values()
}

fn every_cell_is_in_one_part(header: &Header, room: usize) {
    let plan = Plan::with_chunks(header, room);
    let mut next = [0; WeightId::ALL.len()];
    for chunk in plan.chunks() {
        let cells: usize = chunk.iter().map(|p| p.cells).sum();
        assert!((1..=room).contains(&cells), "{cells} cells for {room}");
        for part in chunk {
            // Parts come in the order of cells, so it is enough that each starts where the last ended.
            let next = &mut next[part.tensor.index()];
            assert_eq!(part.first_cell, *next, "{part:?}");
            *next += part.cells;
        }
    }
    for tensor in WeightId::ALL {
        let all = sizes_of(header, tensor);
        assert_eq!(next[tensor.index()], all, "{tensor:?} with room for {room}");
    }
}

#[test]
fn every_weight_is_in_one_part() {
    let header = header(odd_sizes());
    let all: usize = WeightId::ALL.iter().map(|&t| sizes_of(&header, t)).sum();
    for room in (1..20).chain([35, 36, 37, 100, 107, 108, 1000, all - 1, all, all + 1]) {
        every_cell_is_in_one_part(&header, room);
    }
    assert_eq!(Plan::with_chunks(&header, all).chunks().len(), 1);
    assert_eq!(Plan::with_chunks(&header, 1).chunks().len(), all);
}

/// A part's cells are those that its widened weights leave, in their order.
#[test]
fn claims_about_parts_are_claims_about_tensors() {
    let header = header(odd_sizes());
    for room in [1, 5, 36, 200] {
        let plan = Plan::with_chunks(&header, room);
        for part in plan.chunks().iter().flatten() {
            let axes = &plan.axes[part.tensor.index()];
            let whole = plan.dims.shape(axes);
            let depth = part.prefix.len();
            let mut own: Vec<usize> = axes[depth..].iter().map(|&l| plan.dims.size(l)).collect();
            own[0] = part.len;
            let one = |bits| AxisWeights::sum(bits);
            let ones = Shape::dense(&own).bits().into_iter().map(one).collect();
            let wide = plan.widen(part, ones);
            assert_eq!(wide.len(), axes.len());
            let inside = (0..whole.len()).map(|cell| {
                let selected = part.first_cell..part.first_cell + part.cells;
                if selected.contains(&cell) {
                    K::ZERO
                } else {
                    K::from(1u64)
                }
            });
            assert_eq!(whole.evaluate(inside, &wide), K::ZERO, "{part:?}");
            assert_eq!(
                whole.indicator(&wide),
                K::from(part.cells as u64),
                "{part:?}"
            );
        }
    }
}

#[test]
fn the_model_of_one_chunk_is_a_well_formed_relation() {
    let header = header(odd_sizes());
    let plan = Plan::with_chunks(&header, 1 << 20);
    let relation = plan.relation(0);
    let declared = Declared {
        statement: &[],
        bounded_otherwise: &[],
    };
    assert_eq!(relation.check(declared), [""; 0]);
    assert!(relation.constraints.is_empty());
    let names: Vec<&str> = relation.tensors.iter().map(|t| &*t.name).collect();
    assert_eq!(names.len(), 2 * WeightId::ALL.len() + TABLES.len());
    assert_eq!(names[0], "emb 0");
    assert_eq!(names[24..], ["table Range(8)", "table Range(16)"]);
}

/// What [`Relation::check`] does not say, as weights are bounded in a batch by the certificate: each is looked up itself,
/// at all of its cells, and with its digit.
#[test]
fn each_weight_of_each_chunk_is_looked_up() {
    let header = header(odd_sizes());
    for room in [1, 40, 1 << 20] {
        let plan = Plan::with_chunks(&header, room);
        for (n, chunk) in plan.chunks().iter().enumerate() {
            let relation = plan.relation(n);
            let tables = if n + 1 == plan.chunks().len() { 2 } else { 0 };
            assert_eq!(relation.lookups.len(), 2 * chunk.len() + tables);
            for (part, lookups) in chunk.iter().zip(relation.lookups.chunks(2)) {
                let name = format!("{} ", part.tensor.name());
                let [digit, low] = lookups else {
                    panic!("two lookups for {part:?}")
                };
                assert!(digit.name.starts_with(&name) && low.name.starts_with(&name));
                let tensor = |name: &str| relation.tensor(name).unwrap();
                let d = tensor(&digit.name);
                let w = tensor(low.name.strip_suffix(": range").unwrap());
                assert_eq!(
                    (d, relation.tensors[d].axes.clone()),
                    (w + 1, low.out.clone())
                );
                assert_eq!(relation.tensors[w].axes, low.out);
                assert_eq!(relation.tensors[w].fill, Fill::Weights(part.tensor));
                assert_eq!(tree_of(relation.tensors[w].round), 0);
                assert_eq!(plan.dims.shape(&low.out).len(), part.cells);
                let get = |t: usize| -> Expr {
                    let index = relation.tensors[t].axes.iter();
                    crate::relation::Ref {
                        tensor: t,
                        index: index.map(|&l| crate::relation::Index::At(l)).collect(),
                    }
                    .into()
                };
                assert_eq!(digit.tuple, [get(d)]);
                assert_eq!(low.tuple, [get(w) + (1 << 23) - get(d) * (1 << 16)]);
                assert_eq!((digit.tag, low.tag), (Tag::Range(8), Tag::Range(16)));
                assert!(lookups.iter().all(|l| l.count == Count::One));
            }
        }
    }
}

/// The largest sums that a header admits, with weights at the end of their range and the operands beside them at the end
/// of theirs: 16 bits.
#[test]
fn sums_of_certified_weights_do_not_wrap() {
    let weight = 1u128 << (WEIGHT_BITS - 1);
    let operand = 1u128 << 15;
    let (hidden, inner, width) = (1u128 << 14, 1u128 << 16, 1u128 << (10 + 9));
    let sums = [
        ("projections, router, head", hidden * operand * weight, 52),
        ("down projection", inner * operand * weight, 54),
        ("output projection", width * operand * weight, 57),
        ("rotation", 2 * operand * weight * (1 << 14), 53),
    ];
    for (what, sum, bits) in sums {
        assert_eq!(sum, 1 << bits, "{what}");
        assert!(bits < 62);
    }
    assert!(127 * 65535 < weight, "what an import writes is in range");
    // The embedding has the range of the stream that it is compared with.
    assert_eq!(WEIGHT_BITS, crate::header::RESIDUAL_BITS);
}

fn id_of(sizes: crate::header::Sizes, params: Params) -> ModelId {
    ModelId {
        header: header(sizes),
        params,
        root: [7; 32],
        tokenizer: Vec::new(),
    }
}

#[test]
fn the_published_size_has_a_bounded_number_of_chunks() {
    let sizes = published_sizes();
    let cells: usize = {
        let header = header(sizes.clone());
        WeightId::ALL.iter().map(|&t| sizes_of(&header, t)).sum()
    };
    assert_eq!(cells / 1_000_000, 6919);
    let id = id_of(sizes, Params::choose(cells, 64));
    let plan = Plan::new(&id).unwrap();
    let room = 1 << 26;
    for chunk in plan.chunks() {
        assert!(chunk.iter().map(|p| p.cells).sum::<usize>() <= room);
    }
    assert!((cells / room..2 * CHUNKS).contains(&plan.chunks().len()));
    every_cell_is_in_one_part(&id.header, room);
    let (values, products) = hidden_counts(&id, &plan).unwrap();
    println!(
        "{} chunks, {values} pads, {products} products",
        plan.chunks().len()
    );
    assert!(values < 1 << 18 && products < 1 << 14);
    let terms = plan.soundness(&id.params, 1 << 13, 4 * plan.chunks().len());
    assert!(crate::soundness::total_bits(&terms) >= zkmoe_commit::params::POLICY_BITS);
}

#[test]
fn models_above_the_limits_are_refused_before_memory_is_taken() {
    let largest = crate::header::Sizes {
        vocab_size: 1 << 20,
        hidden_size: 1 << 14,
        intermediate_size: 1 << 16,
        num_hidden_layers: 256,
        num_key_value_heads: 1024,
        query_group: 1,
        head_dim: 512,
        num_experts: 256,
        num_experts_per_tok: 8,
        max_position_embeddings: 2,
    };
    let id = |sizes, params| {
        let mut id = id_of(odd_sizes(), params);
        id.header.sizes = sizes;
        id
    };
    let plan = |id: &ModelId| {
        let plan = Plan::new(id).map_err(|reject| reject.to_string());
        plan.map(|p| p.chunks().len())
    };
    let refused = plan(&id(largest, Params::choose(1 << 30, 1))).unwrap_err();
    assert!(refused.contains("cells, at most 68719476736"), "{refused}");
    // Rows too short for so many weights.
    let short = Params::choose(4000, 1);
    assert_eq!(short.log_row, 10);
    let refused = plan(&id(published_sizes(), short.clone())).unwrap_err();
    assert!(refused.contains("full rows, at most 524288"), "{refused}");
    assert_eq!(plan(&id(odd_sizes(), short)), Ok(1));
    // A vocabulary that is cut along its longest axis, into many parts.
    let long = crate::header::Sizes {
        vocab_size: 1 << 20,
        hidden_size: 15 << 10,
        num_hidden_layers: 1,
        ..odd_sizes()
    };
    let refused = plan(&id(long, Params::choose(1 << 34, 1))).unwrap_err();
    assert!(
        refused.contains("indices of parts, at most 4194304"),
        "{refused}"
    );
}

#[test]
fn other_files_are_no_certificates() {
    let id = id_of(odd_sizes(), Params::choose(4000, 1));
    let mut w = Writer::new();
    write_certificate_header(&mut w, &id.digest());
    let start = w.bytes;
    for n in 0..start.len() {
        assert!(
            matches!(
                verify_certificate(&id, &start[..n]),
                Err(VerifyError::Unusable(_))
            ),
            "{n}"
        );
    }
    let rejected = |bytes: &[u8]| match verify_certificate(&id, bytes) {
        Err(VerifyError::Rejected(reject)) => reject,
        other => panic!("{other:?}"),
    };
    let length = certificate_length(&id, &Plan::new(&id).unwrap()).unwrap();
    assert_eq!(file_length(&id, &start), Ok(length));
    let Length { least, most } = length;
    for found in [start.len() as u64, least - 1, most + 1] {
        let mut file = start.clone();
        file.resize(found as usize, 0);
        let wrong = DecodeError::Length { found, least, most };
        assert_eq!(rejected(&file), wrong.into());
    }
    let mut other = start.clone();
    other[12] ^= 1;
    let about = "model id: the certificate is about another model";
    assert_eq!(rejected(&other), Reject::check(about));
    for at in [0, 8] {
        let mut other = start.clone();
        other[at] ^= 1;
        assert!(matches!(
            verify_certificate(&id, &other),
            Err(VerifyError::Unusable(_))
        ));
    }
    for byte in [0, 1, 255] {
        let mut garbage = start.clone();
        garbage.resize(least as usize, byte);
        let reject = rejected(&garbage);
        let wrong_length = matches!(reject, Reject::Malformed(DecodeError::Length { .. }));
        assert!(!wrong_length, "{reject}");
    }
}
