//! The trace against the slow definition of the model, and its relations one by one.

use zkmoe_verifier::gadgets::{argmax::key, requant::requant};

use super::*;
use crate::{
    infer::{
        Session, reference,
        tests::{micro, tokens},
    },
    model::{WeightId, random_model},
};

/// Greedy continuation without an end token, so that tests get responses of the length they want.
fn continued(model: &Model, prompt: Vec<u32>, count: usize) -> RequestTokens {
    let mut session = Session::new(model);
    session.extend(&prompt).unwrap();
    let mut response = Vec::new();
    for _ in 0..count {
        let next = session.next_token().unwrap();
        response.push(next);
        session.push(next).unwrap();
    }
    RequestTokens { prompt, response }
}

fn batch(model: &Model) -> Vec<RequestTokens> {
    [(3, 2), (1, 1), (10, 13), (4, 12)]
        .into_iter()
        .enumerate()
        .map(|(r, (prompt, response))| {
            continued(model, tokens(prompt, 37, 50 + r as u64), response)
        })
        .collect()
}

fn set_up() -> (Model, Vec<RequestTokens>, Trace) {
    let model = random_model(&micro(), 11);
    let requests = batch(&model);
    let trace = build_trace(&model, &requests, Padding::default()).unwrap();
    (model, requests, trace)
}

#[test]
fn shapes_are_those_of_the_table() {
    let (model, _, trace) = set_up();
    let s = model.sizes();
    assert_eq!(trace.padded, [8, 8, 24, 16]);
    assert_eq!(trace.decoded, 32);
    assert_eq!(position_bits(&trace.padded), 5);
    let positions: usize = trace.padded.iter().sum();
    let pairs: usize = trace.padded.iter().map(|p| p * p).sum();
    let rows: usize = trace.loads.iter().map(|b| b.load).sum();
    let l = s.num_hidden_layers;
    let key = s.num_key_value_heads * s.head_dim;
    let heads = s.num_key_value_heads * s.query_group;
    let mut expected = BTreeMap::new();
    let mut shape = |names: &[&str], count: usize| {
        for &name in names {
            expected.insert(name.to_owned(), count);
        }
    };
    shape(&["tok", "next", "dec"], positions);
    shape(&["x"], positions * (l + 1) * s.hidden_size);
    let wide = positions * l * s.hidden_size;
    shape(&["xm", "comb.rem", "n1.y", "n2.y"], wide);
    for prefix in ["n1", "n2", "qn", "kn", "nf"] {
        for scalar in ["z", "w4", "w2", "u", "r", "m", "f"] {
            let count = if prefix == "nf" { 32 } else { positions * l };
            shape(&[&format!("{prefix}.{scalar}")], count);
        }
    }
    shape(
        &["q", "qn.y", "qr", "att.out"],
        positions * l * key * s.query_group,
    );
    shape(&["k", "v", "kn.y", "kr"], positions * l * key);
    shape(&["att.max", "att.sum"], positions * l * heads);
    shape(&["att.idx", "att.ex", "att.z", "att.e"], pairs * l * heads);
    let choices = positions * l * s.num_experts;
    shape(
        &["rl", "sel", "rt.idx", "rt.ex", "rt.z", "rt.e", "gate"],
        choices,
    );
    shape(&["theta", "rt.max", "rt.sum"], positions * l);
    shape(&["row.tok", "row.gate", "row.real"], rows);
    shape(&["row.x", "ey"], rows * s.hidden_size);
    shape(&["eg", "ea", "eu", "eh"], rows * s.intermediate_size);
    shape(&["dr.id", "dr.real", "am", "mk"], 32);
    shape(&["dr.x", "nf.y"], 32 * s.hidden_size);
    shape(&["lg", "lg.z"], 32 * s.vocab_size);
    let found: BTreeMap<String, usize> = trace
        .tensors
        .iter()
        .map(|(name, values)| (name.clone(), values.len()))
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn values_are_those_of_the_definition() {
    let (model, requests, trace) = set_up();
    let s = model.sizes();
    let layers = s.num_hidden_layers;
    let mut start = 0;
    let mut decoded = 0;
    for (request, &length) in requests.iter().zip(&trace.padded) {
        let tokens = request.padded_tokens(length, model.header().pad_token);
        let (values, logits) = reference::run(&model, &tokens);
        for (t, by_layer) in values.iter().enumerate() {
            for (l, values) in by_layer.iter().enumerate() {
                for (name, reference) in [
                    ("q", "q"),
                    ("k", "k"),
                    ("v", "v"),
                    ("qr", "qr"),
                    ("kr", "kr"),
                    ("att.out", "out"),
                    ("xm", "xm"),
                    ("n2.y", "y2"),
                    ("rl", "rl"),
                    ("gate", "gate"),
                    ("sel", "sel"),
                ] {
                    let expected = &values[reference];
                    let at = ((start * layers) + l * length + t) * expected.len();
                    let found = &trace.tensor(name)[at..at + expected.len()];
                    assert_eq!(found, expected, "{name}, layer {l}, position {t}");
                }
                let at = (start * (layers + 1) + l * length + t) * s.hidden_size;
                assert_eq!(trace.tensor("x")[at..][..s.hidden_size], values["x"]);
                let after = at + length * s.hidden_size;
                assert_eq!(trace.tensor("x")[after..][..s.hidden_size], values["next"]);
            }
        }
        for position in request.decoded_positions() {
            let at = decoded * s.vocab_size;
            assert_eq!(trace.tensor("lg")[at..][..s.vocab_size], logits[position]);
            decoded += 1;
        }
        start += length;
    }
}

#[test]
fn every_selection_is_one_row_and_every_row_one_selection() {
    let (model, _, trace) = set_up();
    let s = model.sizes();
    let bits = position_bits(&trace.padded);
    let (layers, experts) = (s.num_hidden_layers, s.num_experts);
    let mut expected = Vec::new();
    let mut start = 0;
    for (r, &length) in trace.padded.iter().enumerate() {
        for l in 0..layers {
            for p in 0..length {
                let row = start * layers + l * length + p;
                let y2 = &trace.tensor("n2.y")[row * s.hidden_size..][..s.hidden_size];
                for e in 0..experts {
                    if trace.tensor("sel")[row * experts + e] == 1 {
                        let gate = trace.tensor("gate")[row * experts + e];
                        expected.push((l, e, token_id(r, p, bits), gate, y2.to_vec()));
                    }
                }
            }
        }
        start += length;
    }
    expected.sort();
    let mut found = Vec::new();
    let mut n = 0;
    let mut last = None;
    for block in &trace.loads {
        assert!(last < Some((block.layer, block.expert)) && block.load % 8 == 0);
        last = Some((block.layer, block.expert));
        for _ in 0..block.load {
            let x = &trace.tensor("row.x")[n * s.hidden_size..][..s.hidden_size];
            let (tok, gate) = (trace.tensor("row.tok")[n], trace.tensor("row.gate")[n]);
            if trace.tensor("row.real")[n] == 1 {
                found.push((block.layer, block.expert, tok, gate, x.to_vec()));
            } else {
                assert!(tok == 0 && gate == 0 && x.iter().all(|&x| x == 0));
            }
            n += 1;
        }
    }
    // Sorted by construction: blocks by layer and expert, rows by token id.
    assert_eq!(found, expected);
}

#[test]
fn rows_of_experts_satisfy_their_equations() {
    let (model, _, trace) = set_up();
    let s = model.sizes();
    let c = &model.header().scales;
    let column =
        |name: &str, n: usize, width: usize| trace.tensor(name)[n * width..][..width].to_vec();
    let product = |x: &[i64], id, outer, shift| -> Vec<i64> {
        (0..model.shape(id).out)
            .map(|o| {
                let sum = x
                    .iter()
                    .enumerate()
                    .map(|(i, x)| x * model.committed(id, outer, i, o))
                    .sum();
                requant(sum, shift)
            })
            .collect()
    };
    let mut n = 0;
    for block in &trace.loads {
        let outer = block.layer * s.num_experts + block.expert;
        for _ in 0..block.load {
            let x = column("row.x", n, s.hidden_size);
            let inner = |name| column(name, n, s.intermediate_size);
            let (eg, ea, eu, eh) = (inner("eg"), inner("ea"), inner("eu"), inner("eh"));
            assert_eq!(eg, product(&x, WeightId::Wg, outer, c.gate_shift));
            assert_eq!(eu, product(&x, WeightId::Wu, outer, c.up_shift));
            for i in 0..s.intermediate_size {
                let table = &model.header().silu_table;
                assert_eq!(ea[i], i64::from(table[(eg[i] + 32768) as usize]));
                assert_eq!(eh[i], requant(ea[i] * eu[i], c.product_shift));
            }
            let ey = column("ey", n, s.hidden_size);
            assert_eq!(ey, product(&eh, WeightId::Wd, outer, c.down_shift));
            n += 1;
        }
    }
}

#[test]
fn softmax_rows_satisfy_their_equations() {
    let (model, _, trace) = set_up();
    let s = model.sizes();
    let heads = s.num_key_value_heads * s.query_group;
    let mut rows = Vec::new();
    for &length in &trace.padded {
        for _ in 0..s.num_hidden_layers * heads {
            rows.extend((0..length).map(|p| (length, p + 1)));
        }
    }
    let routers = trace.tensor("rt.sum").len();
    let router_rows = vec![(s.num_experts, s.num_experts); routers];
    for (prefix, rows) in [("att", rows), ("rt", router_rows)] {
        let tensor = |name: &str| trace.tensor(&format!("{prefix}.{name}"));
        let mut at = 0;
        for (n, (width, live)) in rows.into_iter().enumerate() {
            let part = |name| &tensor(name)[at..at + width];
            let (idx, ex, z, e) = (part("idx"), part("ex"), part("z"), part("e"));
            assert_eq!(z.iter().sum::<i64>(), 1);
            assert_eq!(e.iter().sum::<i64>(), tensor("sum")[n]);
            for u in 0..width {
                if u >= live {
                    assert_eq!((idx[u], ex[u], z[u], e[u]), (0, 0, 0, 0));
                    continue;
                }
                assert_eq!(e[u], i64::from(model.header().exp_table[idx[u] as usize]));
                assert!(z[u] == 0 || idx[u] == 0);
                assert!(ex[u] == 0 || idx[u] == 65535);
            }
            at += width;
        }
    }
}

#[test]
fn norms_satisfy_their_equations() {
    let (model, _, trace) = set_up();
    let s = model.sizes();
    let [hidden, query, keys] = model.header().scales.norms();
    let key_width = s.num_key_value_heads * s.head_dim;
    // The inputs of the first norm: all entries of the residual stream but the last.
    let mut first = Vec::new();
    let mut at = 0;
    for &length in &trace.padded {
        let size = length * s.hidden_size;
        let layers = s.num_hidden_layers;
        first.extend(&trace.tensor("x")[at..at + layers * size]);
        at += (layers + 1) * size;
    }
    for (prefix, x, width, (factor, epsilon, shift)) in [
        ("n1", &first[..], s.hidden_size, hidden),
        ("n2", trace.tensor("xm"), s.hidden_size, hidden),
        ("nf", trace.tensor("dr.x"), s.hidden_size, hidden),
        ("qn", trace.tensor("q"), key_width * s.query_group, query),
        ("kn", trace.tensor("k"), key_width, keys),
    ] {
        let scalar = |name: &str, n: usize| trace.tensor(&format!("{prefix}.{name}"))[n];
        let y = trace.tensor(&format!("{prefix}.y"));
        assert_eq!(x.len(), y.len());
        for (n, (x, y)) in x.chunks(width).zip(y.chunks(width)).enumerate() {
            let ss = factor as i64 * x.iter().map(|x| x * x).sum::<i64>() + epsilon as i64;
            assert_eq!(ss, scalar("u", n) * scalar("w4", n) + scalar("r", n));
            assert_eq!(scalar("w4", n), 4i64.pow(scalar("z", n) as u32));
            assert_eq!(scalar("w2", n) << scalar("z", n), 1 << 20);
            assert_eq!(scalar("f", n), scalar("m", n) * scalar("w2", n));
            for (x, y) in x.iter().zip(y) {
                assert_eq!(*y, requant(x * scalar("f", n), shift));
            }
        }
    }
}

#[test]
fn router_head_and_combination_satisfy_their_equations() {
    let (model, requests, trace) = set_up();
    let s = model.sizes();
    let experts = s.num_experts;
    for (row, &theta) in trace.tensor("theta").iter().enumerate() {
        let at = row * experts;
        let sel = &trace.tensor("sel")[at..at + experts];
        assert_eq!(sel.iter().sum::<i64>(), s.num_experts_per_tok as i64);
        for e in 0..experts {
            let key = key(trace.tensor("rl")[at + e], e, experts);
            assert_eq!(key >= theta, sel[e] == 1);
        }
    }
    assert!(
        trace
            .tensor("comb.rem")
            .iter()
            .all(|r| (0..1 << 14).contains(r))
    );

    let next: Vec<i64> = trace
        .tensor("next")
        .iter()
        .zip(trace.tensor("dec"))
        .filter(|(_, dec)| **dec == 1)
        .map(|(next, _)| *next)
        .collect();
    let responses: Vec<i64> = requests
        .iter()
        .flat_map(|r| r.response.iter().map(|&t| t.into()))
        .collect();
    assert_eq!(next, responses);
    let real: i64 = trace.tensor("dr.real").iter().sum();
    assert_eq!(real as usize, responses.len());
    assert_eq!(trace.tensor("am")[..responses.len()], responses);
    for n in 0..trace.decoded {
        let row = |name| &trace.tensor(name)[n * s.vocab_size..][..s.vocab_size];
        let am = trace.tensor("am")[n] as usize;
        let keys: Vec<i64> = row("lg")
            .iter()
            .enumerate()
            .map(|(v, &x)| key(x, v, s.vocab_size))
            .collect();
        assert_eq!(trace.tensor("mk")[n], *keys.iter().max().unwrap());
        assert_eq!(trace.tensor("mk")[n], keys[am]);
        for v in 0..s.vocab_size {
            assert_eq!(row("lg.z")[v], i64::from(v == am));
        }
    }
    assert!(
        trace.tensor("lg")[responses.len() * s.vocab_size..]
            .iter()
            .all(|&x| x == 0)
    );
}

/// Layer, expert, token id, gate and vector of every row that is not padding.
fn dispatched(trace: &Trace, width: usize) -> Vec<(usize, usize, i64, i64, &[i64])> {
    let places = trace
        .loads
        .iter()
        .flat_map(|b| std::iter::repeat_n((b.layer, b.expert), b.load));
    let rows: Vec<_> = places
        .zip(trace.tensor("row.x").chunks(width))
        .enumerate()
        .map(|(n, ((layer, expert), x))| {
            let (tok, gate) = (trace.tensor("row.tok")[n], trace.tensor("row.gate")[n]);
            (trace.tensor("row.real")[n], (layer, expert, tok, gate, x))
        })
        .collect();
    assert_eq!(rows.len(), trace.tensor("row.real").len());
    rows.into_iter()
        .filter_map(|(real, row)| (real == 1).then_some(row))
        .collect()
}

#[test]
fn loads_only_change_padding_rows() {
    // With two of seven experts for each token, one request of a few tokens leaves some unused.
    let sizes = Sizes {
        num_experts: 7,
        ..micro()
    };
    let model = random_model(&sizes, 11);
    let requests = [continued(&model, tokens(3, 37, 50), 2)];
    let build = |loads: Loads| build_trace(&model, &requests, loads.into()).unwrap();
    let exact = build(Loads::Exact);
    assert!(exact.tensor("row.real").iter().all(|&x| x == 1));
    let width = sizes.hidden_size;
    let rows = dispatched(&exact, width);
    let all = sizes.num_hidden_layers * sizes.num_experts;
    assert_eq!(
        rows.len(),
        8 * sizes.num_hidden_layers * sizes.num_experts_per_tok
    );
    assert!(exact.loads.len() < all, "an expert that nobody chose");
    for loads in [Loads::Multiple(8), Loads::Multiple(3), Loads::Hidden] {
        let trace = build(loads);
        assert_eq!(dispatched(&trace, width), rows, "{loads:?}");
        assert_eq!(trace.loads.len(), all, "{loads:?}");
        for (name, values) in &trace.tensors {
            let of_blocks =
                name.starts_with("row.") || ["eg", "ea", "eu", "eh", "ey"].contains(&name.as_str());
            assert!(of_blocks || values == exact.tensor(name), "{name}");
        }
        for block in &trace.loads {
            let used = exact
                .loads
                .iter()
                .find(|b| (b.layer, b.expert) == (block.layer, block.expert))
                .map_or(0, |b| b.load);
            let expected = match loads {
                Loads::Multiple(n) => used.max(1).next_multiple_of(n),
                _ => 8,
            };
            assert_eq!(block.load, expected, "{loads:?}: {block:?}");
        }
    }
}

#[test]
fn powers_of_two_only_add_positions_of_padding() {
    let model = random_model(&micro(), 11);
    let requests = batch(&model);
    let eights = build_trace(&model, &requests, Padding::default()).unwrap();
    let padding = Padding {
        powers_of_two: true,
        ..Padding::default()
    };
    let powers = build_trace(&model, &requests, padding).unwrap();
    assert_eq!(eights.padded, [8, 8, 24, 16]);
    assert_eq!(powers.padded, [8, 8, 32, 16]);
    assert_eq!(powers.shape().lengths, powers.padded);
    let (mut a, mut b) = (0, 0);
    for (request, (&short, &long)) in requests
        .iter()
        .zip(eights.padded.iter().zip(&powers.padded))
    {
        for (name, rest) in [
            ("tok", model.header().pad_token),
            ("next", model.header().pad_token),
            ("dec", 0),
        ] {
            let (left, right) = (
                &eights.tensor(name)[a..a + short],
                &powers.tensor(name)[b..b + long],
            );
            assert_eq!(left, &right[..short], "{name}");
            let used = request.positions();
            assert!(
                right[used..].iter().all(|&x| x == i64::from(rest)),
                "{name}"
            );
        }
        (a, b) = (a + short, b + long);
    }
    let tokens: usize = requests.iter().map(|r| r.response.len()).sum();
    assert_eq!((tokens, powers.decoded), (28, 32));
    // Padding decodes nothing and changes nothing before it.
    assert_eq!(eights.tensor("lg"), powers.tensor("lg"));
}

#[test]
fn another_response_is_refused_at_its_first_difference() {
    let model = random_model(&micro(), 12);
    let mut requests = batch(&model);
    let good = requests[2].clone();
    requests[2].response[5] = (good.response[5] + 1) % 37;
    let error = build_trace(&model, &requests, Padding::default()).unwrap_err();
    assert_eq!(
        error,
        TraceError::NotThisModel {
            request: 2,
            position: 14,
            expected: requests[2].response[5],
            found: good.response[5],
        }
    );
    requests[2] = good;
    requests[1].response.clear();
    assert!(matches!(
        build_trace(&model, &requests, Padding::default()),
        Err(TraceError::Empty {
            request: 1,
            part: "response"
        })
    ));
    requests[1] = RequestTokens {
        prompt: vec![0; 40],
        response: vec![1],
    };
    let message = build_trace(&model, &requests, Padding::default())
        .unwrap_err()
        .to_string();
    assert!(message.contains("request 1: 48 positions"), "{message}");
    requests[1].prompt = vec![0, 99];
    let message = build_trace(&model, &requests, Padding::default())
        .unwrap_err()
        .to_string();
    assert!(message.contains("token 99 at position 1"), "{message}");
}

#[test]
fn the_end_of_the_context_can_be_traced() {
    // 43 positions are in the tables, so 40 can be used.
    let model = random_model(&micro(), 13);
    let requests = [continued(&model, tokens(30, 37, 1), 10)];
    let trace = build_trace(&model, &requests, Padding::default()).unwrap();
    assert_eq!(trace.padded, [40]);
    assert_eq!(trace.decoded, 16);
    let padding = Padding {
        powers_of_two: true,
        loads: Loads::Exact,
    };
    let trace = build_trace(&model, &requests, padding).unwrap();
    assert_eq!(trace.padded, [43]);
}
