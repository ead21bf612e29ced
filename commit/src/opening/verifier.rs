//! The verifier's half of the opening.

use super::{
    Claim, TreeKind, claims_of_parts, coefficients, combination_variables, domain_point,
    in_base_field,
};
use crate::channel::{Hidden, Reject, VerifierChannel, powers};
use crate::field::{F, K, ext, scale};
use crate::layout::Layout;
use crate::merkle::{self, Digest};
use crate::params::Params;
use crate::rows::leaf;
use crate::whir;
use ark_ff::{AdditiveGroup, Field};

/// A committed tree as the verifier knows it.
#[derive(Debug, Clone, Copy)]
pub struct VerifierTree<'a> {
    /// Which commitment it is.
    pub kind: TreeKind,
    /// Where the tensors lie.
    pub layout: &'a Layout,
    /// The commitment, already part of the transcript.
    pub root: Digest,
}

impl VerifierTree<'_> {
    fn rows(&self) -> usize {
        self.layout.rows() + self.kind.mask_rows()
    }
}

/// Checks the proof of all claims. Trees, shapes and weights are public; the claims' values and all roots are in the
/// transcript already.
pub fn verify(
    channel: &mut VerifierChannel<'_>,
    params: &Params,
    trees: &[VerifierTree<'_>],
    claims: &[Claim<Hidden>],
) -> Result<(), Reject> {
    // Parameters that passed the policy are far inside these bounds.
    if params.log_code > 32 || params.queries > 1usize << params.log_code >> 1 {
        return Err(Reject::check("opening: code parameters"));
    }
    let masked = trees.iter().filter(|t| t.kind == TreeKind::Round1).count();
    if masked != 1 {
        return Err(Reject::check("opening: one tree holds the mask rows"));
    }
    if trees.iter().any(|t| t.layout.log_row() != params.log_row) {
        return Err(Reject::check("opening: rows of one length"));
    }
    let layouts: Vec<&Layout> = trees.iter().map(|t| t.layout).collect();
    let gamma = channel.challenge("opening: gamma");
    let mut claim = Hidden::ZERO;
    for (c, power) in claims.iter().zip(powers(gamma, claims.len())) {
        claim.add_scaled(&c.value, power);
    }

    let half = (K::ONE + K::ONE).inverse().unwrap_or(K::ZERO);
    let mut rho = Vec::with_capacity(params.log_row as usize);
    for _ in 0..params.log_row {
        let round = channel.hidden("opening: sumcheck", 2)?;
        let [at_zero, at_two] = &round[..] else {
            return Err(Reject::check("opening: sumcheck"));
        };
        let at_one = claim - at_zero.clone();
        let r = channel.challenge("opening: rho");
        let (less_one, less_two) = (r - K::ONE, r - K::ONE - K::ONE);
        claim = at_one * -(r * less_two);
        claim.add_scaled(at_zero, less_one * less_two * half);
        claim.add_scaled(at_two, r * less_one * half);
        rho.push(r);
    }

    channel.grind("opening: work before b", params.grinding.combination)?;
    let b = channel.challenges("opening: b", combination_variables(&layouts, claims));
    let stated = channel.hidden("opening: values of mask and proximity row", 2)?;
    let [mask_at_rho, proximity_at_rho] = &stated[..] else {
        return Err(Reject::check("opening: values of mask and proximity row"));
    };
    channel.grind("opening: work before e", params.grinding.combination)?;
    let e = channel.challenge("opening: e");

    let data = whir::receive(channel, &params.whir_data)?;
    let tail = whir::receive(channel, &params.whir_tail)?;
    let z = channel.challenge("opening: z");
    if in_base_field(z) {
        return Err(Reject::check("opening: point outside of the domain"));
    }
    let at_z = channel.clear("opening: parts at z", 2)?;
    channel.grind(
        "opening: work before the positions",
        params.grinding.positions,
    )?;
    let positions = channel.positions("opening: positions", params.queries, params.log_code);

    let mut symbols = Vec::with_capacity(trees.len());
    for tree in trees {
        let rows = tree.rows();
        let symbols_opened = positions.len().checked_mul(rows);
        let opened = channel.words(
            tree.kind.symbols_label(),
            symbols_opened.ok_or_else(|| Reject::check("opening: number of symbols"))?,
        )?;
        let leaves: Vec<Digest> = opened.chunks_exact(rows).map(leaf).collect();
        merkle::check(
            channel,
            tree.kind.siblings_label(),
            &tree.root,
            params.log_code,
            &positions,
            &leaves,
        )
        .map_err(|reject| match reject {
            Reject::Check(_) => Reject::check(format!("opening: leaf of {}", tree.kind.name())),
            malformed @ Reject::Malformed(_) => malformed,
        })?;
        symbols.push((rows, opened));
    }

    let weights = coefficients(&layouts, claims, gamma, &rho, &b, e);
    let at_positions = channel.clear("opening: parts at the positions", 2 * positions.len())?;
    for (q, (&position, parts)) in positions
        .iter()
        .zip(at_positions.chunks_exact(2))
        .enumerate()
    {
        let symbol = |tree: usize, row: usize| {
            symbols
                .get(tree)
                .and_then(|(rows, opened)| opened.get(q * rows + row))
                .copied()
                .unwrap_or(F::ZERO)
        };
        let mut combined = K::ZERO;
        for (tree, view) in trees.iter().enumerate() {
            if view.kind == TreeKind::Round1 {
                let mask = view.layout.rows();
                combined += ext(symbol(tree, mask), symbol(tree, mask + 1));
            }
        }
        for &(tree, row, weight) in &weights {
            combined += scale(weight, symbol(tree, row));
        }
        let x = domain_point(params, position);
        if parts[0] + scale(parts[1], x.pow([1u64 << params.log_row])) != combined {
            return Err(Reject::check("opening: combined row at a queried position"));
        }
    }

    let at_rho = channel.clear("opening: data part at rho", 1)?;
    let at_rho = at_rho.first().copied().unwrap_or(K::ZERO);
    let mut expected = mask_at_rho.clone();
    expected.add_scaled(&claim, e);
    expected.add_scaled(proximity_at_rho, e.square());
    channel.assert_zero(expected - Hidden::public(at_rho), || {
        "opening: value of the combined row at the point of the sumcheck".into()
    })?;

    let (about_data, about_tail) =
        claims_of_parts(params, &rho, at_rho, z, &at_z, &positions, &at_positions);
    whir::verify(channel, &params.whir_data, data, &about_data)?;
    whir::verify(channel, &params.whir_tail, tail, &about_tail)
}
