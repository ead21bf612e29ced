//! Parameters of WHIR: what is chosen, what follows for each round, and the soundness error.

use crate::channel::Reject;
use crate::codec::Writer;
use crate::length::Length;
use crate::soundness::Term;

/// What is chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WhirParams {
    /// The polynomial has two to this number of coefficients.
    pub log_size: u32,
    /// The first codeword is longer than the polynomial by two to this number.
    pub log_inv_rate: u32,
    /// Variables bound in each round; the last round binds fewer if fewer are left.
    pub folding: u32,
    /// Polynomials of at most two to this number of coefficients are sent in clear.
    pub final_log_size: u32,
    /// Every term of the soundness error is at most two to minus this number, grinding included.
    pub security_bits: u32,
    /// The most bits of work before a challenge; query phases always use all of them, other challenges what they lack.
    pub grinding_bits: u32,
}

/// What follows for one round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Round {
    /// Variables at the start of the round.
    pub log_size: u32,
    /// The order of the domain of the codeword that is folded.
    pub log_domain: u32,
    /// Variables that the round binds.
    pub folding: u32,
    /// Leaves opened; all of them if more than half would be drawn.
    pub queries: usize,
    /// Whether all leaves are opened. Then the positions are no challenge.
    pub all: bool,
    /// Bits of work before the positions are drawn.
    pub query_grinding: u32,
    /// Bits of work before each folding challenge.
    pub fold_grinding: Vec<u32>,
    /// Bits of work before the challenge that batches the opened values.
    pub batch_grinding: u32,
}

impl Round {
    /// Leaves of the tree of the codeword that is folded.
    pub fn log_leaves(&self) -> u32 {
        self.log_domain - self.folding
    }
    /// The rate of the codeword that is folded is two to minus this.
    pub fn log_inv_rate(&self) -> u32 {
        self.log_domain - self.log_size
    }
}

/// Size of `K`, rounded; the bounds of [`WhirParams::work`] leave room for the rounding.
const FIELD_BITS: u32 = 128;
/// Fractional bits of [`query_bits`].
const FRACTION: u32 = 32;

/// A lower bound for `-log2((1 + rate) / 2)`, the bits of one query at the unique-decoding radius, times `2^FRACTION`.
///
/// In integers, because both sides must find the same number of queries and a platform's `log2` may differ.
fn query_bits(log_inv_rate: u32) -> u64 {
    // log2(1 + 2^-r) bit by bit, every rounding upward.
    const ONE: u32 = 62;
    let mut x = (1u64 << ONE) + ((1u64 << ONE) >> log_inv_rate);
    let mut log = 0;
    for _ in 0..FRACTION {
        let square = (u128::from(x) * u128::from(x)).div_ceil(1 << ONE);
        let bit = u64::from(square >> (ONE + 1) != 0);
        x = (square >> bit) as u64 + u64::from(bit == 1 && square & 1 == 1);
        log = 2 * log + bit;
    }
    (1 << FRACTION) - log - 1
}

impl WhirParams {
    /// The default for a size: folding by 16, up to 18 bits of work, and the final size with the smallest proof.
    ///
    /// A last round costs its queries, each with a leaf and a path; up to a few thousand coefficients in clear are
    /// smaller. Beyond `2^10` the verifier's time for them would show.
    pub fn new(log_size: u32, log_inv_rate: u32, security_bits: u32) -> Self {
        let with = |final_log_size| Self {
            log_size,
            log_inv_rate,
            folding: 4,
            final_log_size,
            security_bits,
            grinding_bits: 18,
        };
        (4..=10)
            .map(with)
            .min_by_key(Self::estimated_size)
            .unwrap_or_else(|| with(6))
    }

    /// About how many bytes a commitment and its opening take. Paths are taken to share their top levels only.
    pub fn estimated_size(&self) -> usize {
        let Ok(rounds) = self.rounds() else {
            return usize::MAX;
        };
        let last = rounds
            .last()
            .map_or(self.log_size, |r| r.log_size - r.folding);
        let rounds: usize = rounds
            .iter()
            .map(|r| {
                let path = r.log_leaves().saturating_sub(r.queries.ilog2()) as usize;
                48 + 40 * r.folding as usize + r.queries * ((16 << r.folding) + 32 * path)
            })
            .sum();
        rounds + (16usize << last)
    }

    /// How many bytes a commitment and its opening for so many claims take.
    pub fn length(&self, claims: usize) -> Result<Length, Reject> {
        let rounds = self.rounds()?;
        let Some((last, _)) = rounds.split_last() else {
            return Ok(Length::elements(1 << self.log_size));
        };
        let work = |bits: u32| Length::exactly(if bits > 0 { 8 } else { 0 });
        let root = Length::exactly(32);
        let mut length = root + work(self.batch_grinding(claims));
        for round in &rounds {
            for &bits in &round.fold_grinding {
                length += Length::elements(2) + work(bits);
            }
            length += work(round.query_grinding);
            length += Length::elements(round.queries << round.folding);
            length += Length::siblings(round.log_leaves(), round.queries);
        }
        for round in &rounds[..rounds.len() - 1] {
            length += root + work(round.batch_grinding);
        }
        Ok(length + Length::elements(1 << (last.log_size - last.folding)))
    }

    /// Bits of work before a challenge at which a false statement survives for `2^loss` of all elements, at most.
    fn work(&self, loss: u32) -> u32 {
        (self.security_bits + loss)
            .saturating_sub(FIELD_BITS)
            .min(self.grinding_bits)
    }

    /// Bits of work before the challenge that batches `n` claims, a zero of a polynomial of degree below `n`.
    pub(super) fn batch_grinding(&self, n: usize) -> u32 {
        self.work(n.max(1).ilog2() + 1)
    }

    /// The rounds; none if the polynomial is sent in clear. An error names parameters that make no sense: the verifier
    /// may have read them.
    pub(super) fn rounds(&self) -> Result<Vec<Round>, Reject> {
        let fine = (1..=8).contains(&self.log_inv_rate)
            && self.log_size.saturating_add(self.log_inv_rate) <= 32
            && (1..=8).contains(&self.folding)
            && self.final_log_size <= 16
            && self.security_bits <= FIELD_BITS
            && self.grinding_bits <= 32;
        if !fine {
            return Err(Reject::check(format!("WHIR parameters {self:?}")));
        }
        let mut rounds = Vec::new();
        let (mut log_size, mut log_domain) = (self.log_size, self.log_size + self.log_inv_rate);
        while log_size > self.final_log_size {
            let folding = self.folding.min(log_size - self.final_log_size);
            let log_leaves = log_domain - folding;
            let bits = u64::from(self.security_bits.saturating_sub(self.grinding_bits));
            let drawn = (bits << FRACTION).div_ceil(query_bits(log_domain - log_size)) as usize;
            let leaves = 1usize << log_leaves;
            let all = 2 * drawn > leaves;
            let queries = if all { leaves } else { drawn };
            rounds.push(Round {
                log_size,
                log_domain,
                folding,
                queries,
                all,
                query_grinding: if all {
                    0
                } else {
                    self.grinding_bits.min(self.security_bits)
                },
                // Degree 2 of the sumcheck and the folded domain's size: n + 2 <= 2n, or 4.
                fold_grinding: (0..folding)
                    .map(|j| self.work((log_domain - j).max(2)))
                    .collect(),
                batch_grinding: self.batch_grinding(queries + 1),
            });
            log_size -= folding;
            log_domain -= 1;
        }
        Ok(rounds)
    }

    /// Appends all parameters.
    pub fn write(&self, w: &mut Writer) {
        for x in [
            self.log_size,
            self.log_inv_rate,
            self.folding,
            self.final_log_size,
            self.security_bits,
            self.grinding_bits,
        ] {
            w.u32(x);
        }
    }
}

/// The terms of the soundness error of one commitment with this number of claims; none if the polynomial is sent in
/// clear. Parameters that make no sense have one term of zero bits.
pub fn soundness(params: &WhirParams, number_of_claims: usize) -> Vec<Term> {
    const SUMCHECK: &str = "Schwartz-Zippel; eprint 2024/1586, Theorem 5.2";
    const PROXIMITY: &str = "eprint 2020/654, Theorem 4.1; eprint 2024/1586, Corollary 4.11";
    const QUERIES: &str = "eprint 2024/1586, Theorem 5.2";
    let rounds = match params.rounds() {
        Ok(rounds) => rounds,
        Err(why) => {
            return vec![Term {
                name: "WHIR parameters".into(),
                formula: why.to_string(),
                source: "",
                bits: 0.0,
            }];
        }
    };
    let mut terms = Vec::new();
    if !rounds.is_empty() {
        let degree = number_of_claims.saturating_sub(1);
        let work = params.batch_grinding(number_of_claims);
        terms.push(Term::over_field(
            "WHIR batching of claims",
            format!("{degree} / |K| / 2^{work}"),
            SUMCHECK,
            degree as f64,
            work,
        ));
    }
    for (i, round) in rounds.iter().enumerate() {
        for (j, &work) in round.fold_grinding.iter().enumerate() {
            terms.push(Term::over_field(
                format!("WHIR round {i}, variable {j}, sumcheck"),
                format!("2 / |K| / 2^{work}"),
                SUMCHECK,
                2.0,
                work,
            ));
            let log = round.log_domain - j as u32 - 1;
            terms.push(Term::over_field(
                format!("WHIR round {i}, variable {j}, folding"),
                format!("2^{log} / |K| / 2^{work}"),
                PROXIMITY,
                f64::from(log).exp2(),
                work,
            ));
        }
        if !round.all {
            let rate = (-f64::from(round.log_inv_rate())).exp2();
            let work = round.query_grinding;
            terms.push(Term {
                name: format!("WHIR round {i}, queries"),
                formula: format!(
                    "((1 + 2^-{}) / 2)^{} / 2^{work}",
                    round.log_inv_rate(),
                    round.queries
                ),
                source: QUERIES,
                bits: -f64::midpoint(1.0, rate).log2() * round.queries as f64 + f64::from(work),
            });
        }
        if i + 1 < rounds.len() {
            let (n, work) = (round.queries, round.batch_grinding);
            terms.push(Term::over_field(
                format!("WHIR round {i}, batching of queries"),
                format!("{n} / |K| / 2^{work}"),
                SUMCHECK,
                n as f64,
                work,
            ));
        }
    }
    terms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::soundness::total_bits;

    #[test]
    fn the_bits_of_a_query_are_a_tight_lower_bound() {
        for r in 1..=31 {
            let exact = -f64::midpoint(1.0, (-f64::from(r)).exp2()).log2();
            let bound = query_bits(r) as f64 / f64::from(FRACTION).exp2();
            assert!(
                bound <= exact && exact - bound < 1e-8,
                "{r}: {bound} {exact}"
            );
        }
    }

    #[test]
    fn every_term_reaches_the_target() {
        for log_size in 0..=24 {
            for log_inv_rate in 1..=4 {
                let params = WhirParams::new(log_size, log_inv_rate, 106);
                let terms = soundness(&params, 140);
                for term in &terms {
                    assert!(term.bits >= 106.0, "{params:?}: {term}");
                }
                assert!(total_bits(&terms) >= 100.0, "{params:?}");
            }
        }
    }

    #[test]
    fn too_little_work_shows_in_the_terms() {
        let params = WhirParams {
            grinding_bits: 0,
            ..WhirParams::new(22, 2, 120)
        };
        let worst = soundness(&params, 140)
            .iter()
            .map(|t| t.bits)
            .fold(f64::INFINITY, f64::min);
        assert!((104.0..106.0).contains(&worst), "{worst}");
    }

    #[test]
    fn rounds_halve_the_domain_and_end_at_the_final_size() {
        let params = WhirParams {
            log_size: 15,
            log_inv_rate: 2,
            folding: 4,
            final_log_size: 6,
            security_bits: 106,
            grinding_bits: 16,
        };
        let rounds = params.rounds().unwrap();
        let shape: Vec<_> = rounds
            .iter()
            .map(|r| (r.log_size, r.log_domain, r.folding))
            .collect();
        assert_eq!(shape, [(15, 17, 4), (11, 16, 4), (7, 15, 1)]);
    }

    #[test]
    fn parameters_that_make_no_sense_are_refused() {
        let good = WhirParams::new(16, 2, 106);
        for bad in [
            WhirParams {
                log_size: u32::MAX,
                ..good.clone()
            },
            WhirParams {
                log_size: 31,
                ..good.clone()
            },
            WhirParams {
                log_inv_rate: 0,
                ..good.clone()
            },
            WhirParams {
                log_inv_rate: 9,
                ..good.clone()
            },
            WhirParams {
                folding: 0,
                ..good.clone()
            },
            WhirParams {
                folding: 30,
                ..good.clone()
            },
            WhirParams {
                final_log_size: 31,
                ..good.clone()
            },
            WhirParams {
                security_bits: u32::MAX,
                ..good.clone()
            },
            WhirParams {
                grinding_bits: 64,
                ..good.clone()
            },
        ] {
            assert!(bad.rounds().is_err(), "{bad:?}");
            assert_eq!(soundness(&bad, 1).len(), 1);
        }
    }
}
