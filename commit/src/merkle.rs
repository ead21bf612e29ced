//! Binary BLAKE3 trees over `2^m` leaf digests, and openings of many leaves at once.
//!
//! What is committed: a list of digests, by the root. What leaves the file: the digests at a set of positions are those
//! of the committed list. An opening holds the *pruned* set of siblings: level by level from the leaves, by ascending
//! position, the sibling of every known node whose sibling is not itself known. Both sides derive this order, and so the
//! number of siblings, from the positions alone, and an opening carries no structure of its own.
//!
//! Inner nodes are hashed with a key of their own, and no leaf of the project uses it. Otherwise an inner node could be
//! opened as a leaf (R. Merkle, "A Digital Signature Based on a Conventional Encryption Function", 1987, has no such
//! separation; the attack is the classical second preimage by a subtree).

#[cfg(feature = "prove")]
use crate::channel::ProverChannel;
use crate::channel::{Reject, VerifierChannel};
use crate::field::{K, word};

/// A BLAKE3 digest.
pub type Digest = [u8; 32];

/// The key of inner nodes.
const NODE_KEY: &[u8; 32] = b"zkmoe merkle inner node, v1     ";
/// The key of leaves that are lists of extension elements.
const LEAF_KEY: &[u8; 32] = b"zkmoe merkle leaf over K, v1    ";

fn node(left: &Digest, right: &Digest) -> Digest {
    let mut block = [0; 64];
    block[..32].copy_from_slice(left);
    block[32..].copy_from_slice(right);
    *blake3::keyed_hash(NODE_KEY, &block).as_bytes()
}

/// The digest of a leaf of extension elements. Its length is not part of the hash: it is public.
pub fn hash_leaf(values: &[K]) -> Digest {
    let mut bytes = Vec::with_capacity(16 * values.len());
    for x in values {
        bytes.extend(word(x.c0).to_le_bytes());
        bytes.extend(word(x.c1).to_le_bytes());
    }
    *blake3::keyed_hash(LEAF_KEY, &bytes).as_bytes()
}

/// Visits the known nodes of one level; returns the positions of their parents.
///
/// `visit` gets the index of a known node, and whether its right sibling is known as well (then that is the next one).
fn climb(positions: &[usize], mut visit: impl FnMut(usize, bool)) -> Vec<usize> {
    let mut parents = Vec::with_capacity(positions.len());
    let mut i = 0;
    while let Some(&p) = positions.get(i) {
        let pair = p % 2 == 0 && positions.get(i + 1) == Some(&(p + 1));
        visit(i, pair);
        parents.push(p / 2);
        i += 1 + usize::from(pair);
    }
    parents
}

/// How many digests an opening of these ascending distinct positions holds.
pub fn sibling_count(log_size: u32, positions: &[usize]) -> usize {
    let mut known = positions.to_vec();
    let mut count = 0;
    for _ in 0..log_size {
        known = climb(&known, |_, pair| count += usize::from(!pair));
    }
    count
}

/// The fewest and the most digests that an opening of this many distinct positions can hold. There cannot be more positions
/// than leaves.
///
/// A node above the leaves has two children, so an opening holds twice the known nodes above the leaves, less those that
/// are known below the root. A level has the fewest known nodes if the positions are neighbours from an end of the leaves
/// on, and the most if they are spread evenly; both are so on all levels at once.
pub fn sibling_bounds(log_size: u32, positions: usize) -> (u64, u64) {
    let positions = positions as u64;
    if log_size == 0 || positions == 0 {
        return (0, 0);
    }
    let inner = 1..log_size;
    let fewest: u64 = inner
        .clone()
        .map(|level| positions.div_ceil(1 << (log_size - level)))
        .sum();
    let most: u64 = inner.map(|level| positions.min(1 << level)).sum();
    let count = |known: u64| (2 + known).saturating_sub(positions);
    (count(fewest), count(most))
}

/// How many digests an opening of this many distinct uniform positions holds on average.
pub fn expected_siblings(log_size: u32, positions: usize) -> f64 {
    let size = f64::from(log_size).exp2();
    // The chance that none of the positions is among these leaves.
    let none_of = |leaves: f64| -> f64 {
        (0..positions)
            .map(|drawn| (1.0 - leaves / (size - drawn as f64)).max(0.0))
            .product()
    };
    // At each level the nodes that are above a position and whose sibling is not.
    let at_level = |level: u32| {
        let nodes = f64::from(level).exp2();
        nodes * (none_of(size / nodes) - none_of(2.0 * size / nodes))
    };
    (1..=log_size).map(at_level).sum()
}

/// Whether `leaves` stand at the ascending distinct `positions` of the tree with this root.
pub fn verify(
    root: &Digest,
    log_size: u32,
    positions: &[usize],
    leaves: &[Digest],
    siblings: &[Digest],
) -> bool {
    let in_range = positions
        .last()
        .is_none_or(|&p| p.checked_shr(log_size).unwrap_or(0) == 0);
    if !in_range
        || !positions.windows(2).all(|w| w[0] < w[1])
        || leaves.len() != positions.len()
        || siblings.len() != sibling_count(log_size, positions)
    {
        return false;
    }
    let mut siblings = siblings.iter();
    let mut known = positions.to_vec();
    let mut digests = leaves.to_vec();
    for _ in 0..log_size {
        let mut next = Vec::with_capacity(digests.len());
        known = climb(&known, |i, pair| {
            let parent = if pair {
                node(&digests[i], &digests[i + 1])
            } else {
                // The count was checked, so the sibling is there.
                let sibling = siblings.next().unwrap_or(&[0; 32]);
                if known[i].is_multiple_of(2) {
                    node(&digests[i], sibling)
                } else {
                    node(sibling, &digests[i])
                }
            };
            next.push(parent);
        });
        digests = next;
    }
    digests.iter().all(|d| d == root)
}

/// Receives an opening and demands that `leaves` stand at the ascending distinct `positions`.
pub fn check(
    channel: &mut VerifierChannel<'_>,
    label: &'static str,
    root: &Digest,
    log_size: u32,
    positions: &[usize],
    leaves: &[Digest],
) -> Result<(), Reject> {
    let siblings = channel.digests(label, sibling_count(log_size, positions))?;
    if verify(root, log_size, positions, leaves, &siblings) {
        Ok(())
    } else {
        Err(Reject::check(format!("Merkle opening `{label}`")))
    }
}

/// A tree with all its nodes.
#[cfg(feature = "prove")]
#[derive(Debug, Clone)]
pub struct Tree {
    /// Leaves first, root last.
    levels: Vec<Vec<Digest>>,
}

#[cfg(feature = "prove")]
impl Tree {
    /// Hashes a tree.
    ///
    /// # Panics
    /// If the number of leaves is no power of two.
    pub fn new(leaves: Vec<Digest>) -> Self {
        use rayon::prelude::*;
        assert!(leaves.len().is_power_of_two(), "leaves fill their tree");
        let mut levels = vec![leaves];
        while let Some(last) = levels.last().filter(|l| l.len() > 1) {
            let next = last
                .par_chunks_exact(2)
                .with_min_len(256)
                .map(|pair| node(&pair[0], &pair[1]))
                .collect();
            levels.push(next);
        }
        Self { levels }
    }

    /// The commitment.
    pub fn root(&self) -> Digest {
        self.levels
            .last()
            .and_then(|l| l.first())
            .copied()
            .unwrap_or_default()
    }

    /// The leaves.
    pub fn leaves(&self) -> &[Digest] {
        &self.levels[0]
    }

    /// The base-two logarithm of the number of leaves.
    pub fn log_size(&self) -> u32 {
        self.levels.len() as u32 - 1
    }

    /// The digests that an opening of these ascending distinct positions sends.
    ///
    /// # Panics
    /// If a position is beyond the leaves.
    pub fn siblings(&self, positions: &[usize]) -> Vec<Digest> {
        let mut known = positions.to_vec();
        let mut out = Vec::new();
        for level in &self.levels[..self.levels.len() - 1] {
            known = climb(&known, |i, pair| {
                if !pair {
                    out.push(level[known[i] ^ 1]);
                }
            });
        }
        out
    }
}

/// Sends the opening of ascending distinct positions; the leaves themselves are the caller's.
#[cfg(feature = "prove")]
pub fn open(channel: &mut ProverChannel, label: &'static str, tree: &Tree, positions: &[usize]) {
    channel.digests(label, &tree.siblings(positions));
}

#[cfg(all(test, feature = "prove"))]
mod tests {
    use super::*;
    use crate::field::{from_i64, lift};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn leaves(log_size: u32) -> Vec<Digest> {
        (0..1i64 << log_size)
            .map(|i| hash_leaf(&[lift(from_i64(i)), lift(from_i64(-i))]))
            .collect()
    }

    /// One path after another, without pruning.
    fn slow_root(leaves: &[Digest]) -> Digest {
        if let [leaf] = leaves {
            return *leaf;
        }
        let (left, right) = leaves.split_at(leaves.len() / 2);
        node(&slow_root(left), &slow_root(right))
    }

    #[test]
    fn the_root_is_the_recursive_hash() {
        for log_size in 0..6 {
            let tree = Tree::new(leaves(log_size));
            assert_eq!(tree.root(), slow_root(&leaves(log_size)));
            assert_eq!(tree.log_size(), log_size);
        }
    }

    #[test]
    fn numbers_of_digests_stay_within_bounds_that_are_reached() {
        for log_size in 0..=4u32 {
            let leaves = 1usize << log_size;
            let mut found = vec![(usize::MAX, 0); leaves + 1];
            for set in 0u32..1 << leaves {
                let positions: Vec<usize> = (0..leaves).filter(|i| set >> i & 1 == 1).collect();
                let count = sibling_count(log_size, &positions);
                let (fewest, most) = &mut found[positions.len()];
                (*fewest, *most) = ((*fewest).min(count), (*most).max(count));
            }
            for (positions, (fewest, most)) in found.into_iter().enumerate() {
                let bounds = sibling_bounds(log_size, positions);
                assert_eq!(
                    bounds,
                    (fewest as u64, most as u64),
                    "{positions} of {leaves}"
                );
            }
        }
    }

    #[test]
    fn openings_of_drawn_positions_have_about_as_many_digests_as_expected() {
        const DRAWS: usize = 64;
        let mut transcript = crate::transcript::Transcript::new("test");
        for (positions, log_size) in [(1, 12), (40, 8), (131, 18), (136, 23)] {
            let found: usize = (0..DRAWS)
                .map(|_| transcript.positions("positions", positions, log_size))
                .map(|drawn| sibling_count(log_size, &drawn))
                .sum();
            let average = found as f64 / DRAWS as f64;
            let ratio = expected_siblings(log_size, positions) / average;
            assert!(
                (0.98..1.02).contains(&ratio),
                "{positions} of 2^{log_size}: {ratio}"
            );
        }
        assert!(expected_siblings(12, 0).abs() < 1e-9);
        assert!(expected_siblings(3, 8).abs() < 1e-9, "all leaves are known");
        assert!((expected_siblings(5, 1) - 5.0).abs() < 1e-9, "one path");
    }

    proptest! {
        #[test]
        fn openings_verify_and_every_change_is_refused(
            log_size in 0u32..8,
            picks in prop::collection::vec(0usize..256, 0..20),
            change in any::<usize>(),
        ) {
            let all = leaves(log_size);
            let tree = Tree::new(all.clone());
            let root = tree.root();
            let positions: Vec<usize> =
                picks.iter().map(|p| p & ((1 << log_size) - 1)).collect::<BTreeSet<_>>().into_iter().collect();
            let opened: Vec<Digest> = positions.iter().map(|&p| all[p]).collect();
            let siblings = tree.siblings(&positions);
            prop_assert_eq!(siblings.len(), sibling_count(log_size, &positions));
            prop_assert!(verify(&root, log_size, &positions, &opened, &siblings));
            if positions.is_empty() {
                return Ok(());
            }
            let mut other = opened.clone();
            other[change % opened.len()][change % 32] ^= 1;
            prop_assert!(!verify(&root, log_size, &positions, &other, &siblings));
            if !siblings.is_empty() {
                let mut other = siblings.clone();
                other[change % siblings.len()][change % 32] ^= 1;
                prop_assert!(!verify(&root, log_size, &positions, &opened, &other));
                prop_assert!(!verify(&root, log_size, &positions, &opened, &siblings[1..]));
            }
            prop_assert!(!verify(&root, log_size, &positions, &opened[1..], &siblings));
            prop_assert!(!verify(&[0; 32], log_size, &positions, &opened, &siblings));
            let mut more = siblings.clone();
            more.push([0; 32]);
            prop_assert!(!verify(&root, log_size, &positions, &opened, &more));
        }
    }

    #[test]
    fn positions_that_are_no_ascending_set_inside_the_tree_are_refused() {
        let all = leaves(3);
        let tree = Tree::new(all.clone());
        let root = tree.root();
        let siblings = tree.siblings(&[2, 5]);
        assert!(verify(&root, 3, &[2, 5], &[all[2], all[5]], &siblings));
        assert!(!verify(&root, 3, &[5, 2], &[all[5], all[2]], &siblings));
        assert!(!verify(&root, 3, &[2, 2], &[all[2], all[2]], &siblings));
        assert!(!verify(&root, 3, &[2, 13], &[all[2], all[5]], &siblings));
        assert!(!verify(&root, 2, &[1], &[all[1]], &siblings));
    }

    #[test]
    fn an_inner_node_is_no_leaf() {
        let all = leaves(3);
        let tree = Tree::new(all.clone());
        let inner = Tree::new(tree.levels[1].clone());
        assert!(verify(
            &tree.root(),
            2,
            &[1],
            &[inner.levels[0][1]],
            &inner.siblings(&[1])
        ));
        let pair = [all[2], all[3]].concat();
        assert_ne!(
            *blake3::keyed_hash(LEAF_KEY, &pair).as_bytes(),
            inner.levels[0][1]
        );
    }

    #[test]
    fn the_channel_carries_an_opening() {
        let all = leaves(4);
        let tree = Tree::new(all.clone());
        let positions = [0, 1, 7, 12];
        let opened: Vec<Digest> = positions.iter().map(|&p| all[p]).collect();
        let mut p = ProverChannel::new("test", b"");
        open(&mut p, "path", &tree, &positions);
        let proof = p.finish();
        let run = |leaves: &[Digest]| {
            let mut v = VerifierChannel::new("test", b"", &proof);
            check(&mut v, "path", &tree.root(), 4, &positions, leaves)?;
            v.finish()
        };
        assert_eq!(run(&opened), Ok(()));
        let swapped = [opened[1], opened[0], opened[2], opened[3]];
        assert_eq!(run(&swapped), Err(Reject::check("Merkle opening `path`")));
    }
}
