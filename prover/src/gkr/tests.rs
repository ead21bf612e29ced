//! Both halves against the virtual array written out in full.

use super::fold::CHUNK;
use super::weights::LOW_BITS;
use super::*;
use zkmoe_commit::channel::{Hidden, Reject, VerifierChannel};
use zkmoe_commit::field::word;
use zkmoe_commit::transcript::Transcript;
use zkmoe_verifier::gkr::verify;

type Column = (Numerators, Vec<K>);

fn below(t: &mut Transcript, n: usize) -> usize {
    (word(t.challenge("size").c0) % n as u64) as usize
}

/// Columns with random fractions that sum to zero, if there is a cell with a numerator of its own.
fn random(t: &mut Transcript, shapes: &[Shape]) -> Vec<Column> {
    let mut columns: Vec<Column> = shapes
        .iter()
        .enumerate()
        .map(|(c, shape)| {
            let numerators = if c % 3 == 1 {
                Numerators::Constant(t.challenge("p"))
            } else {
                Numerators::Values(t.challenges("p", shape.len()))
            };
            (numerators, t.challenges("q", shape.len()))
        })
        .collect();
    let total = sum(&columns);
    for (p, q) in &mut columns {
        if let (Numerators::Values(p), Some(&q)) = (p, q.last())
            && let Some(p) = p.last_mut()
        {
            *p -= total * q;
            break;
        }
    }
    columns
}

fn sum(columns: &[Column]) -> K {
    let fraction = |(p, q): &Column| -> K {
        let terms = q.iter().enumerate();
        terms.map(|(i, q)| p.at(i) * q.inverse().unwrap()).sum()
    };
    columns.iter().map(fraction).sum()
}

/// The virtual array, cell by cell from the definition.
fn array(shapes: &[Shape], columns: &[Column]) -> [Vec<K>; 2] {
    let layout = Columns::new(shapes);
    let size = 1 << layout.variables();
    let [mut ps, mut qs] = [vec![K::ZERO; size], vec![K::ONE; size]];
    for (c, (shape, (p, q))) in shapes.iter().zip(columns).enumerate() {
        let bits = shape.bits();
        let (group_bits, bits) = bits.split_at(usize::from(shape.is_grouped()));
        let inner: u32 = bits.iter().sum();
        assert!(group_bits.len() < 2);
        let mut cell = 0;
        for (g, sizes) in shape.groups().iter().enumerate() {
            for flat in 0..sizes.iter().product() {
                let (mut rest, mut low) = (flat, 0);
                let mut index = c << layout.bits() | g << inner;
                for (&n, &b) in sizes.iter().zip(bits).rev() {
                    index |= (rest % n) << low;
                    rest /= n;
                    low += b;
                }
                (ps[index], qs[index]) = (p.at(cell), q[cell]);
                cell += 1;
            }
        }
    }
    [ps, qs]
}

fn evaluate(mut values: Vec<K>, point: &[K]) -> K {
    for &r in point {
        values = values
            .chunks(2)
            .map(|pair| pair[0] + (pair[1] - pair[0]) * r)
            .collect();
    }
    assert_eq!(values.len(), 1);
    values[0]
}

fn proof(shapes: &[Shape], columns: &[Column]) -> (Vec<u8>, (Vec<K>, K, K)) {
    let mut channel = ProverChannel::new("test", b"");
    channel.set_pads(pads());
    let claims = prove(&mut channel, shapes, &|c| columns[c].clone());
    (channel.finish(), claims)
}

/// The whole verification, the claims about the columns included.
fn check(shapes: &[Shape], columns: &[Column], proof: &[u8]) -> Result<Vec<K>, Reject> {
    let mut channel = VerifierChannel::new("test", b"", proof);
    let leaves = verify(&mut channel, shapes)?;
    let layout = Columns::new(shapes);
    let (mut p_sum, mut q_sum) = (K::ZERO, K::ONE);
    for (c, (shape, (p, q))) in shapes.iter().zip(columns).enumerate() {
        let weights = layout.axis_weights(c, &leaves.point);
        let selector = layout.selector(c, &leaves.point);
        p_sum += selector * shape.evaluate((0..q.len()).map(|i| p.at(i)), &weights);
        let q = shape.evaluate(q.iter().copied(), &weights);
        q_sum += selector * (q - shape.indicator(&weights));
    }
    channel.assert_zero(leaves.numerator - Hidden::public(p_sum), || "leaf p".into())?;
    channel.assert_zero(leaves.denominator - Hidden::public(q_sum), || {
        "leaf q".into()
    })?;
    if let Some(check) = channel.take_system().violated(&pads()).first() {
        return Err(Reject::check(*check));
    }
    channel.finish()?;
    Ok(leaves.point)
}

/// Pads for all hidden values of a test.
fn pads() -> Vec<K> {
    Transcript::new("pads").challenges("pads", 1 << 11)
}

fn agrees(shapes: &[Shape], columns: &[Column]) {
    let (proof, (point, p, q)) = proof(shapes, columns);
    let [ps, qs] = array(shapes, columns);
    assert_eq!(p, evaluate(ps, &point), "{shapes:?}");
    assert_eq!(q, evaluate(qs, &point), "{shapes:?}");
    assert_eq!(check(shapes, columns, &proof), Ok(point), "{shapes:?}");
}

fn random_shape(t: &mut Transcript, largest: usize) -> Shape {
    let axes = below(t, 4);
    let sizes = |t: &mut Transcript| -> Vec<usize> {
        (0..axes)
            .map(|_| match below(t, 12) {
                0 => 0,
                1..4 => 1 << below(t, 3),
                _ => 1 + below(t, largest),
            })
            .collect()
    };
    if below(t, 2) == 0 {
        Shape::dense(&sizes(t))
    } else {
        let groups = below(t, 6);
        Shape::grouped((0..groups).map(|_| sizes(t)).collect())
    }
}

#[test]
fn random_ragged_columns_agree_with_the_array_written_out() {
    let mut t = Transcript::new("gkr shapes");
    for round in 0..400 {
        let columns = 1 + below(&mut t, 6);
        let mut shapes: Vec<Shape> = (0..columns)
            .map(|_| random_shape(&mut t, 1 + round % 7))
            .collect();
        // A cell that brings the sum to zero.
        shapes[0] = Shape::dense(&[3]);
        let columns = random(&mut t, &shapes);
        agrees(&shapes, &columns);
    }
}

#[test]
fn ragged_axes_are_folded_group_by_group() {
    let mut t = Transcript::new("gkr ragged");
    for shapes in [
        vec![Shape::grouped(vec![
            vec![3, 5, 2],
            vec![4, 1, 2],
            vec![1, 6, 2],
        ])],
        vec![Shape::grouped(vec![vec![4, 7], vec![4, 7]])],
        vec![Shape::grouped(vec![vec![5], vec![0], vec![2], vec![0]])],
        vec![Shape::grouped(vec![vec![], vec![], vec![]])],
        vec![Shape::dense(&[3, 1, 1, 5])],
        vec![Shape::dense(&[9, 8, 4]), Shape::dense(&[1])],
        vec![Shape::dense(&[2]), Shape::grouped(vec![])],
    ] {
        let columns = random(&mut t, &shapes);
        agrees(&shapes, &columns);
    }
}

#[test]
fn tasks_and_tables_are_split() {
    // Beyond one task, one low table and one column in every direction.
    let mut t = Transcript::new("gkr large");
    for shapes in [
        vec![Shape::dense(&[3 * CHUNK + 5])],
        vec![Shape::dense(&[5 * CHUNK + 17, 3])],
        vec![
            Shape::grouped(vec![
                vec![3, 2 * CHUNK + 3],
                vec![2, 17],
                vec![1, 4 * CHUNK],
            ]),
            Shape::dense(&[(1 << LOW_BITS) + 1, 5, 3]),
        ],
    ] {
        let columns = random(&mut t, &shapes);
        agrees(&shapes, &columns);
    }
}

#[test]
fn single_cells_and_many_columns() {
    let mut t = Transcript::new("gkr cells");
    agrees(&[], &[]);
    let one = [Shape::dense(&[1])];
    agrees(
        &one,
        &[(Numerators::Constant(K::ZERO), vec![t.challenge("q")])],
    );
    for n in [2, 3, 8, 37, 100] {
        let shapes = vec![Shape::dense(&[]); n];
        let columns = random(&mut t, &shapes);
        agrees(&shapes, &columns);
    }
}

#[test]
fn a_table_and_its_lookups() {
    let mut t = Transcript::new("gkr table");
    let alpha = t.challenge("alpha");
    let shapes = [Shape::dense(&[7, 50]), Shape::dense(&[16])];
    let looked_up: Vec<usize> = (0..350).map(|_| below(&mut t, 13)).collect();
    let key = |x: usize| alpha - lift(from_i64(x as i64));
    let mut columns = vec![
        (
            Numerators::Constant(K::ONE),
            looked_up.iter().map(|&x| key(x)).collect(),
        ),
        (
            Numerators::Values(
                (0..16)
                    .map(|x| looked_up.iter().filter(|&&y| x == y).count())
                    .map(|n| lift(from_i64(-(n as i64))))
                    .collect(),
            ),
            (0..16).map(key).collect::<Vec<K>>(),
        ),
    ];
    agrees(&shapes, &columns);

    // A value that the table does not have.
    columns[0].1[123] = key(16);
    let (proof, _) = proof(&shapes, &columns);
    assert_eq!(
        check(&shapes, &columns, &proof),
        Err(Reject::check("the fractions of a lookup sum to zero"))
    );
}

#[test]
fn sums_that_are_not_zero_are_rejected() {
    let mut t = Transcript::new("gkr sums");
    for shapes in [
        vec![Shape::dense(&[1])],
        vec![Shape::dense(&[2])],
        vec![Shape::dense(&[5, 3]), Shape::dense(&[7])],
    ] {
        let mut columns = random(&mut t, &shapes);
        columns[0].1[0] += K::ONE;
        if let Numerators::Values(p) = &mut columns[0].0 {
            p[0] += K::ONE;
        }
        let (proof, _) = proof(&shapes, &columns);
        assert_eq!(
            check(&shapes, &columns, &proof),
            Err(Reject::check("the fractions of a lookup sum to zero"))
        );
    }
}

#[test]
fn zero_denominators_are_rejected() {
    let mut t = Transcript::new("gkr zero");
    for shapes in [
        vec![Shape::dense(&[1])],
        vec![Shape::dense(&[2])],
        vec![Shape::dense(&[5, 3]), Shape::dense(&[7])],
    ] {
        let mut columns = random(&mut t, &shapes);
        // The numerator of the root is 0 if two denominators are.
        for (p, q) in &mut columns {
            q[0] = K::ZERO;
            let last = q.len() - 1;
            q[last] = K::ZERO;
            *p = Numerators::Values(vec![K::ZERO; q.len()]);
        }
        let (proof, _) = proof(&shapes, &columns);
        assert_eq!(
            check(&shapes, &columns, &proof),
            Err(Reject::check("no denominator of a lookup is zero"))
        );
    }
}

#[test]
fn changed_bytes_are_never_accepted() {
    let mut t = Transcript::new("gkr bytes");
    for shapes in [
        vec![Shape::dense(&[1])],
        vec![Shape::dense(&[2])],
        vec![
            Shape::grouped(vec![vec![2, 3], vec![1, 1]]),
            Shape::dense(&[3]),
        ],
    ] {
        let columns = random(&mut t, &shapes);
        let (proof, _) = proof(&shapes, &columns);
        check(&shapes, &columns, &proof).unwrap();
        for i in 0..proof.len() {
            for flip in [1, 0x80] {
                let mut changed = proof.clone();
                changed[i] ^= flip;
                assert!(check(&shapes, &columns, &changed).is_err(), "byte {i}");
            }
            assert!(check(&shapes, &columns, &proof[..i]).is_err(), "cut at {i}");
        }
        let longer = [&proof[..], &[0]].concat();
        assert!(check(&shapes, &columns, &longer).is_err());
    }
}

#[test]
fn a_wrong_layer_is_named() {
    let shapes = [Shape::dense(&[8])];
    let columns = random(&mut Transcript::new("gkr layer"), &shapes);
    let (proof, _) = proof(&shapes, &columns);
    // Root and inverse, a round of the first layer and its node, two rounds of the second.
    for (message, layer) in [(5, 1), (8, 1), (12, 2), (17, 2)] {
        let mut changed = proof.clone();
        changed[16 * message] ^= 1;
        assert_eq!(
            check(&shapes, &columns, &changed),
            Err(Reject::check(format!(
                "layer {layer} of a lookup's tree of fractions"
            )))
        );
    }
}

#[test]
fn claims_about_other_columns_do_not_hold() {
    let mut t = Transcript::new("gkr other");
    let shapes = [Shape::dense(&[5]), Shape::dense(&[3, 3])];
    let columns = random(&mut t, &shapes);
    let (proof, _) = proof(&shapes, &columns);
    let mut other = columns.clone();
    other[1].1[8] += K::ONE;
    assert_eq!(check(&shapes, &other, &proof), Err(Reject::check("leaf q")));
    other.clone_from(&columns);
    other[1].0 = Numerators::Constant(t.challenge("p"));
    assert_eq!(check(&shapes, &other, &proof), Err(Reject::check("leaf p")));
}
