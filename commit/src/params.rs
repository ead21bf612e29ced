//! Parameters of rows, openings and proofs of work; part of the model's id.
//!
//! The prover chooses them once, when it commits to a model. The verifier trusts nothing in them: [`Params::decode`] ends
//! in [`Params::policy_check`], which bounds every size before anything is computed from it and adds up the soundness
//! error of an opening of the largest size that is allowed. Parameters that were never decoded (tests make small ones)
//! never reach a verifier that reads a model's id.

use crate::codec::{DecodeError, Reader, Writer};
use crate::opening;
use crate::shape::index_bits;
use crate::whir::WhirParams;

/// The least security that a verifier accepts, in bits.
pub const POLICY_BITS: f64 = 100.0;
/// The most rows that may carry a claim.
pub const MAX_ROWS: usize = 1 << 20;
/// The most batches that the randomness of one commitment may be made for.
pub const MAX_BATCHES: usize = 1 << 12;
/// The most positions at which one proof opens all rows.
pub const MAX_QUERIES: usize = 1 << 12;
/// Bytes of encoded parameters.
pub const PARAMS_BYTES: usize = 4 * (9 + 2 * 6);
/// The most claims in one opening.
pub const MAX_CLAIMS: usize = 1 << 16;
/// Bits for each of about sixty terms, so that their sum stays within the policy.
const TERM_BITS: u32 = 107;

/// Bits of work before some challenges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grinding {
    /// Before the challenges of the lookups.
    pub lookup: u32,
    /// Before each of the two challenges that combine rows.
    pub combination: u32,
    /// Before the positions at which rows are opened.
    pub positions: u32,
}

/// The parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Params {
    /// A row has `2^log_row` data slots.
    pub log_row: u32,
    /// A codeword has `2^log_code` symbols.
    pub log_code: u32,
    /// Random elements at the end of each row of the model, a power of two; also the tail of mask rows.
    pub model_tail: usize,
    /// Random elements at the end of each row of a trace, a power of two.
    pub trace_tail: usize,
    /// Positions at which each proof opens all rows.
    pub queries: usize,
    /// Bits of work.
    pub grinding: Grinding,
    /// Every term of the soundness error is at most two to minus this, grinding included.
    pub security_bits: u32,
    /// WHIR for the data part of the combined row.
    pub whir_data: WhirParams,
    /// WHIR for its tail.
    pub whir_tail: WhirParams,
}

/// Bits of one query: `-log2((1 + rate) / 2)`, where rows agree with no codeword on more than that share.
fn query_bits(rate: f64) -> f64 {
    -f64::midpoint(1.0, rate).log2()
}

impl Params {
    /// Parameters for a model of about `model_cells` weights and openings in `batches` batches before its randomness is
    /// used up, with room for a certificate, for a rotation, and for the rotation that may have made the commitment.
    ///
    /// Rows: an opening sends one symbol of each row at each position, so long rows make small proofs until WHIR, whose
    /// size grows with the length, is larger than the symbols. Traces are several times larger than a small model.
    ///
    /// # Panics
    /// If `batches` is above [`MAX_BATCHES`]: no code that the policy admits has room for such a tail.
    pub fn choose(model_cells: usize, batches: usize) -> Self {
        assert!(batches <= MAX_BATCHES, "batches of one commitment");
        let log_cells = index_bits(model_cells.max(1));
        let mut log_row = if log_cells <= 22 {
            log_cells.saturating_sub(6)
        } else {
            16 + (log_cells - 22) / 2
        }
        .clamp(10, 22);
        loop {
            for log_code in [log_row + 2, log_row + 3] {
                if let Some(params) = Self::with_sizes(log_row, log_code, batches) {
                    return params;
                }
            }
            log_row += 1;
        }
    }

    /// The parameters of a code, if its rows have room for the tail.
    fn with_sizes(log_row: u32, log_code: u32, batches: usize) -> Option<Self> {
        const POSITIONS: u32 = 20;
        // The number of queries and the tail depend on each other; both only grow.
        let (mut queries, mut model_tail) = (1usize, 1usize);
        loop {
            let rate = ((1 << log_row) + model_tail) as f64 / (log_code as f64).exp2();
            if model_tail > 1 << log_row || rate > 0.5 {
                return None;
            }
            let drawn = (f64::from(TERM_BITS - POSITIONS) / query_bits(rate)).ceil() as usize;
            let tail = (drawn * (batches.max(1) + 3) + 4).next_power_of_two();
            if drawn == queries && tail == model_tail {
                break;
            }
            queries = queries.max(drawn);
            model_tail = model_tail.max(tail);
        }
        let whir = |log_size: u32| {
            let log_inv_rate = match log_size {
                ..=18 => 4,
                19..=20 => 3,
                _ => 2,
            };
            WhirParams::new(log_size, log_inv_rate, TERM_BITS)
        };
        let params = Self {
            log_row,
            log_code,
            model_tail,
            trace_tail: (queries + 4).next_power_of_two(),
            queries,
            grinding: Grinding {
                lookup: 18,
                // n log(R) / |K| with log(R) = 20.
                combination: (TERM_BITS + log_code + 5).saturating_sub(128),
                positions: POSITIONS,
            },
            security_bits: TERM_BITS,
            whir_data: whir(log_row),
            whir_tail: whir(index_bits(model_tail)),
        };
        params.policy_check().is_ok().then_some(params)
    }

    /// Coefficients of the longest row for each symbol.
    pub fn rate(&self) -> f64 {
        ((self.log_row as f64).exp2() + self.model_tail as f64) / (self.log_code as f64).exp2()
    }

    /// `-log2` of the chance that no position shows a word to be far from the code, work included.
    pub fn position_bits(&self) -> f64 {
        self.queries as f64 * query_bits(self.rate()) + f64::from(self.grinding.positions)
    }

    /// How many batches may be proved before the randomness of the model's rows is used up: of the tail's positions, `Q`
    /// are kept for the certificate and `Q` for a rotation, and four never used, so that no hash of an unopened leaf
    /// confirms a guess. Under a commitment that a rotation made it is one less, as the rotation opened it.
    pub fn batches(&self) -> usize {
        (self.model_tail.saturating_sub(4) / self.queries.max(1)).saturating_sub(2)
    }

    /// Appends all parameters.
    pub fn encode(&self, w: &mut Writer) {
        for x in [
            self.log_row,
            self.log_code,
            index_bits(self.model_tail),
            index_bits(self.trace_tail),
            self.queries as u32,
            self.grinding.lookup,
            self.grinding.combination,
            self.grinding.positions,
            self.security_bits,
        ] {
            w.u32(x);
        }
        self.whir_data.write(w);
        self.whir_tail.write(w);
    }

    /// Reads parameters and refuses those that the policy refuses.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let log_row = r.u32("log_row")?;
        let log_code = r.u32("log_code")?;
        let model_tail = power_of_two(r, "model_tail")?;
        let trace_tail = power_of_two(r, "trace_tail")?;
        let params = Self {
            log_row,
            log_code,
            model_tail,
            trace_tail,
            queries: r.u32("queries")? as usize,
            grinding: Grinding {
                lookup: r.u32("lookup grinding")?,
                combination: r.u32("combination grinding")?,
                positions: r.u32("positions grinding")?,
            },
            security_bits: r.u32("security_bits")?,
            whir_data: read_whir(r)?,
            whir_tail: read_whir(r)?,
        };
        params.policy_check().map_err(DecodeError::Invalid)?;
        Ok(params)
    }

    /// Whether a verifier may use these parameters; the error names what is wrong.
    pub fn policy_check(&self) -> Result<(), &'static str> {
        let demand = |holds: bool, what| if holds { Ok(()) } else { Err(what) };
        demand(
            (4..=24).contains(&self.log_row),
            "code parameters: length of rows",
        )?;
        demand(
            self.log_code > self.log_row && self.log_code <= 28,
            "code parameters: length of codewords",
        )?;
        let n = 1usize << self.log_code;
        demand(
            self.model_tail.is_power_of_two() && self.model_tail <= n,
            "code parameters: tail of the model",
        )?;
        demand(
            self.trace_tail.is_power_of_two() && self.trace_tail <= self.model_tail,
            "code parameters: tail of the trace",
        )?;
        demand(
            (1 << self.log_row) + self.model_tail <= n / 2,
            "code parameters: rate above one half",
        )?;
        demand(
            self.queries > 0 && self.queries <= n / 2,
            "code parameters: number of positions",
        )?;
        // They are drawn before anything else about an opening is known.
        demand(
            self.queries <= MAX_QUERIES,
            "code parameters: opened positions",
        )?;
        demand(
            self.trace_tail >= self.queries + 4 && self.batches() >= 1,
            "code parameters: fewer random elements than opened positions",
        )?;
        let Grinding {
            lookup,
            combination,
            positions,
        } = self.grinding;
        demand(
            [lookup, combination, positions]
                .iter()
                .all(|&bits| bits <= 32),
            "code parameters: bits of work",
        )?;
        demand(
            (100..=128).contains(&self.security_bits),
            "code parameters: security bits",
        )?;
        for (whir, size) in [
            (&self.whir_data, self.log_row),
            (&self.whir_tail, index_bits(self.model_tail)),
        ] {
            demand(
                whir.log_size == size
                    && (1..=6).contains(&whir.log_inv_rate)
                    && (1..=6).contains(&whir.folding)
                    && whir.final_log_size <= 12
                    && (100..=128).contains(&whir.security_bits)
                    && whir.grinding_bits <= 32,
                "code parameters: WHIR",
            )?;
        }
        let error: f64 = opening::soundness(self, MAX_ROWS, MAX_CLAIMS)
            .iter()
            .map(|term| (-term.bits).exp2())
            .sum();
        demand(
            -error.log2() >= POLICY_BITS,
            "code parameters: less than 100 bits of security",
        )
    }
}

fn power_of_two(r: &mut Reader<'_>, field: &'static str) -> Result<usize, DecodeError> {
    match r.u32(field)? {
        log @ 0..=28 => Ok(1 << log),
        _ => Err(DecodeError::Invalid(field)),
    }
}

fn read_whir(r: &mut Reader<'_>) -> Result<WhirParams, DecodeError> {
    Ok(WhirParams {
        log_size: r.u32("whir log_size")?,
        log_inv_rate: r.u32("whir log_inv_rate")?,
        folding: r.u32("whir folding")?,
        final_log_size: r.u32("whir final_log_size")?,
        security_bits: r.u32("whir security_bits")?,
        grinding_bits: r.u32("whir grinding_bits")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(params: &Params) -> Vec<u8> {
        let mut w = Writer::new();
        params.encode(&mut w);
        w.bytes
    }

    fn decoded(bytes: &[u8]) -> Result<Params, DecodeError> {
        let mut r = Reader::new(bytes);
        let params = Params::decode(&mut r)?;
        r.finish()?;
        Ok(params)
    }

    #[test]
    fn chosen_parameters_pass_the_policy_and_survive_encoding() {
        for cells in [0, 1, 4000, 100_000, 2_400_000, 1 << 28, 7_000_000_000] {
            for batches in [1, 8, 64, 1000, MAX_BATCHES] {
                let params = Params::choose(cells, batches);
                assert_eq!(params.policy_check(), Ok(()));
                assert!(params.batches() > batches, "{params:?}");
                assert_eq!(decoded(&encoded(&params)), Ok(params));
            }
        }
        assert_eq!(Params::choose(2_400_000, 64).log_row, 16);
        assert_eq!(Params::choose(4000, 1).log_row, 10);
        assert!(Params::choose(7_000_000_000, 64).log_row >= 20);
    }

    #[test]
    fn weak_parameters_are_refused() {
        type Weaken = fn(&mut Params);
        let good = Params::choose(1 << 20, 8);
        let weaker: [(&str, Weaken); 13] = [
            ("fewer positions", |p| p.queries /= 2),
            ("more positions than random elements", |p| {
                p.queries = p.trace_tail - 3;
            }),
            ("no positions", |p| p.queries = 0),
            ("no work before positions", |p| p.grinding.positions = 0),
            ("unbounded work", |p| p.grinding.lookup = 33),
            ("unbounded positions", |p| {
                p.queries = MAX_QUERIES + 1;
                p.trace_tail = 2 * MAX_QUERIES;
                p.model_tail = p.trace_tail;
            }),
            ("short trace tail", |p| p.trace_tail = 64),
            ("short model tail", |p| {
                p.model_tail = p.queries.next_power_of_two();
            }),
            ("long model tail", |p| p.model_tail = 1 << p.log_row << 1),
            ("short code", |p| p.log_code = p.log_row + 1),
            ("low security", |p| p.security_bits = 60),
            ("weak WHIR", |p| p.whir_data.security_bits = 60),
            ("WHIR of another size", |p| p.whir_tail.log_size -= 1),
        ];
        for (what, weaken) in weaker {
            let mut params = good.clone();
            weaken(&mut params);
            assert!(params.policy_check().is_err(), "{what}");
            assert!(decoded(&encoded(&params)).is_err(), "{what}");
        }
    }

    #[test]
    fn damaged_encodings_are_errors() {
        let bytes = encoded(&Params::choose(1 << 20, 8));
        for n in 0..bytes.len() {
            assert!(decoded(&bytes[..n]).is_err(), "{n}");
            for byte in [0x80, 0xFF] {
                let mut other = bytes.clone();
                other[n] = byte;
                if let Ok(params) = decoded(&other) {
                    assert_eq!(params.policy_check(), Ok(()));
                }
            }
        }
    }
}
