//! The sizes of a proof about pads, as they follow from the numbers of pads and products, and its soundness error.

use super::MASKS;
use crate::channel::Reject;
use crate::codec::Writer;
use crate::length::Length;
use crate::soundness::Term;

/// The most pads, and the most products, of one proof.
const LIMIT: usize = 1 << 20;
/// `-log2` of the soundness error, all terms added up and the work included.
const SECURITY_BITS: u32 = 105;
/// Bits of work before the positions are drawn.
const GRINDING: u32 = 20;
/// Random coefficients of a row beyond the number of opened columns.
const SPARE: usize = 4;
/// `log2 |K|`, rounded up by less than `2^-30`.
const FIELD_BITS: u32 = 128;
/// The bound on the error of the positions counts in units of `2^-FIELD_BITS`, and `2 n` of them are left for all other
/// terms, so longer codes have no bits left.
const MAX_LOG_CODE: u32 = 20;

/// The sizes of a proof. Both sides compute them from public counts with [`Shape::choose`], and there is no other way to
/// get any, so a proof cannot choose its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Pads.
    pub(super) pads: usize,
    /// Products.
    pub(super) products: usize,
    /// A row has two to this number of slots; this is `log2 l`.
    pub(super) log_message: u32,
    /// A codeword has two to this number of symbols; this is `log2 n`.
    pub(super) log_code: u32,
    /// Columns that are opened, `Q`.
    pub(super) queries: usize,
    /// Random coefficients of a row, `t`.
    pub(super) randomness: usize,
    /// Bits of work before the positions are drawn.
    pub(super) grinding: u32,
}

/// `log2 l` and `log2 n` of all shapes that are looked at.
fn lengths() -> impl Iterator<Item = (u32, u32)> {
    (7..=15).flat_map(|log_message| (1..=6).map(move |extra| (log_message, log_message + extra)))
}

impl Shape {
    /// The sizes with the smallest proof for at most `pads` pads and `products` products.
    ///
    /// An error if there are more than `2^20` of either.
    pub fn choose(pads: usize, products: usize) -> Result<Self, Reject> {
        for (what, count) in [("pads", pads), ("products", products)] {
            if count > LIMIT {
                return Err(Reject::check(format!(
                    "pads: a proof about {count} {what}; prove at most {LIMIT} at once"
                )));
            }
        }
        let mut best: Option<(usize, Self)> = None;
        for (log_message, log_code) in lengths() {
            let least = best.as_ref().map_or(usize::MAX, |(size, _)| *size);
            let found = Self::with_lengths(pads, products, log_message, log_code, least);
            let found = found.map(|shape| (shape.estimated_size(), shape));
            best = found.filter(|(size, _)| *size < least).or(best);
        }
        best.map(|(_, shape)| shape)
            .ok_or_else(|| Reject::check("pads: sizes of the proof"))
    }

    /// The fewest queries for these lengths that reach [`SECURITY_BITS`]; none if there are none, and perhaps none if the
    /// proof would not have fewer than `less` bytes.
    fn with_lengths(
        pads: usize,
        products: usize,
        log_message: u32,
        log_code: u32,
        less: usize,
    ) -> Option<Self> {
        if log_code > MAX_LOG_CODE {
            return None;
        }
        // The masks of products hide if there are at most `l + 1` queries, and the polynomial of products has to fit the domain.
        let most = (1usize << log_message).min(1 << (log_code - 1));
        (1..=most)
            .map(|queries| Self {
                pads,
                products,
                log_message,
                log_code,
                queries,
                randomness: queries + SPARE,
                grinding: GRINDING,
            })
            .take_while(|shape| 2 * shape.coefficients() <= shape.code())
            // Every query adds elements.
            .take_while(|shape| 16 * shape.elements() < less)
            .find(Self::is_sound)
    }

    /// Whether the terms of [`soundness`] add up to at most `2^-SECURITY_BITS`. In integers: both sides must find the same
    /// sizes, and the logarithms of two platforms may differ.
    fn is_sound(&self) -> bool {
        const ONE: u32 = 40;
        // All in units of `2^-FIELD_BITS`: the target, and what is left of it for the positions. The other terms are `n`, at
        // most `n / 2`, and 2; the rest of the `2 n` is more than what `FIELD_BITS` was rounded by.
        let left = (1u64 << (FIELD_BITS - SECURITY_BITS)) - 2 * self.code() as u64;
        // The bound is `mantissa * 2^-exponent`, with `mantissa <= 2^ONE`, and every rounding is upward.
        let (mut mantissa, mut exponent) = (1u64 << ONE, ONE);
        for (passing, all) in self.draws() {
            mantissa = (mantissa * passing as u64).div_ceil(all as u64);
            while mantissa != 0 && mantissa < 1 << (ONE - 1) {
                mantissa <<= 1;
                exponent += 1;
            }
        }
        match (exponent + self.grinding).checked_sub(FIELD_BITS) {
            Some(down) if down < 64 => mantissa.div_ceil(1 << down) <= left,
            Some(_) => true,
            None => false,
        }
    }

    /// For each query how many positions let a false statement pass, and out of how many; positions are distinct.
    fn draws(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (n, k) = (self.code(), self.coefficients());
        let passing = usize::midpoint(n, k).max(2 * k - 2).min(n);
        (0..self.queries).map(move |i| (passing.saturating_sub(i), n - i))
    }

    /// About how many bytes a proof has. Paths are taken to share their top levels only.
    pub fn estimated_size(&self) -> usize {
        let top = self.queries.max(1).ilog2();
        let path = (self.log_code - top) as usize * self.queries - (self.queries - (1 << top));
        16 * (self.elements() + 1) + 2 * 32 * (path + 1)
    }

    /// How many field elements a proof has.
    fn elements(&self) -> usize {
        self.queries * (self.pad_rows() + self.later_rows())
            + self.coefficients()
            + self.linear_coefficients()
            - 1
            + self.quotient_coefficients()
    }

    /// How many bytes a proof has.
    pub fn length(&self) -> Length {
        let siblings = Length::siblings(self.log_code, self.queries);
        // A root and a nonce.
        Length::exactly(32 + 8) + Length::elements(self.elements()) + siblings + siblings
    }

    /// The number of pads that it was chosen for.
    pub fn pads(&self) -> usize {
        self.pads
    }
    /// The number of products that it was chosen for.
    pub fn products(&self) -> usize {
        self.products
    }
    /// Columns that are opened, `Q`.
    pub fn queries(&self) -> usize {
        self.queries
    }
    /// Slots of a row, `l`.
    pub fn message(&self) -> usize {
        1 << self.log_message
    }
    /// Random coefficients of a row, `t`.
    pub fn randomness(&self) -> usize {
        self.randomness
    }
    /// Coefficients of a row, `k = l + t`.
    pub fn coefficients(&self) -> usize {
        self.message() + self.randomness
    }
    /// Symbols of a codeword, `n`.
    pub fn code(&self) -> usize {
        1 << self.log_code
    }
    /// `log2 n`.
    pub fn log_code(&self) -> u32 {
        self.log_code
    }
    /// Rows of the first tree. There is always one.
    pub fn pad_rows(&self) -> usize {
        self.pads.div_ceil(self.message()).max(1)
    }
    /// Rows of each of left factors, right factors and results.
    pub fn product_rows(&self) -> usize {
        self.products.div_ceil(self.message())
    }
    /// Rows of the second tree.
    pub fn later_rows(&self) -> usize {
        3 * self.product_rows() + MASKS
    }
    /// Coefficients of the polynomial of linear statements, the constant one included.
    pub(super) fn linear_coefficients(&self) -> usize {
        self.coefficients() + self.message() - 1
    }
    /// Coefficients of the quotient that is the polynomial of products.
    pub(super) fn quotient_coefficients(&self) -> usize {
        self.coefficients() + self.randomness - 1
    }

    /// Appends all sizes.
    pub(super) fn write(&self, w: &mut Writer) {
        for x in [self.pads, self.products, self.queries, self.randomness] {
            w.u64(x as u64);
        }
        for x in [self.log_message, self.log_code, self.grinding] {
            w.u32(x);
        }
    }
}

/// The terms of the soundness error of one proof. The number of statements has no part in it, since each has a
/// coefficient of its own.
pub fn soundness(shape: &Shape) -> Vec<Term> {
    let (n, k) = (shape.code(), shape.coefficients());
    let queries: f64 = shape
        .draws()
        .map(|(passing, all)| -(passing as f64 / all as f64).log2())
        .sum();
    vec![
        Term::over_field(
            "pads: combination of rows",
            format!("n/|K|, n = {n}"),
            "eprint 2020/654, theorem 1.6",
            n as f64,
            0,
        ),
        Term::over_field(
            "pads: positions where a row is no codeword",
            format!("(n - k)/2/|K|, k = {k}"),
            "Schwartz-Zippel at each position",
            (n - k) as f64 / 2.0,
            0,
        ),
        Term::over_field(
            "pads: combination of linear statements",
            "1/|K|",
            "Schwartz-Zippel",
            1.0,
            0,
        ),
        Term::over_field(
            "pads: combination of products",
            "1/|K|",
            "Schwartz-Zippel",
            1.0,
            0,
        ),
        Term {
            name: "pads: queried positions".into(),
            formula: format!(
                "C(m, Q)/C(n, Q), m = max((n + k)/2, 2k - 2), Q = {}, {} bits of work",
                shape.queries, shape.grinding
            ),
            source: "unique decoding, eprint 2020/654",
            bits: queries + f64::from(shape.grinding),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::soundness::total_bits;

    const COUNTS: [(usize, usize); 9] = [
        (0, 0),
        (1, 0),
        (0, 1),
        (500, 20),
        (3_200, 300),
        (20_000, 2_000),
        (100_000, 10),
        (LIMIT, 0),
        (LIMIT, LIMIT),
    ];

    #[test]
    fn terms_of_chosen_shapes_add_up_to_the_target_and_one_query_less_does_not() {
        for (pads, products) in COUNTS {
            let shape = Shape::choose(pads, products).unwrap();
            let bits = f64::from(SECURITY_BITS);
            assert!(total_bits(&soundness(&shape)) >= bits, "{shape:?}");
            // With its coefficients left as they are, so that only the queries are weaker.
            let weaker = Shape {
                queries: shape.queries - 1,
                ..shape.clone()
            };
            assert!(total_bits(&soundness(&weaker)) < bits, "{shape:?}");
            let lazier = Shape {
                grinding: GRINDING - 1,
                ..shape
            };
            assert!(total_bits(&soundness(&lazier)) < bits);
        }
    }

    #[test]
    fn chosen_shapes_are_what_the_arguments_need() {
        for (pads, products) in COUNTS {
            let shape = Shape::choose(pads, products).unwrap();
            assert!(
                shape.randomness >= shape.queries + SPARE,
                "columns are hidden"
            );
            assert!(
                shape.queries <= shape.message() + 1,
                "the mask of products hides"
            );
            assert!(2 * shape.coefficients() <= shape.code(), "products fit");
            assert!(2 * shape.queries <= shape.code(), "positions can be drawn");
            assert!(shape.pad_rows() * shape.message() >= pads);
            assert!(shape.product_rows() * shape.message() >= products);
        }
    }

    #[test]
    fn no_lengths_give_a_smaller_proof() {
        for (pads, products) in COUNTS {
            let chosen = Shape::choose(pads, products).unwrap();
            let first = lengths()
                .filter_map(|(m, c)| Shape::with_lengths(pads, products, m, c, usize::MAX))
                .min_by_key(Shape::estimated_size);
            assert_eq!(Some(chosen), first);
        }
    }

    #[test]
    fn the_choice_in_integers_agrees_with_logarithms() {
        let chosen = Shape::choose(3_200, 300).unwrap();
        for queries in 60..=128 {
            for log_code in 9..14 {
                let shape = Shape {
                    queries,
                    log_code,
                    randomness: queries + SPARE,
                    ..chosen.clone()
                };
                let exact = total_bits(&soundness(&shape)) - f64::from(SECURITY_BITS);
                // Within a hundredth of a bit either answer is fine, as long as it errs to the safe side.
                if shape.is_sound() {
                    assert!(exact >= 0.0, "{shape:?}");
                } else {
                    assert!(exact < 0.01, "{shape:?}");
                }
            }
        }
    }

    #[test]
    fn too_many_pads_or_products_are_refused() {
        for (pads, products) in [(LIMIT + 1, 0), (0, LIMIT + 1), (usize::MAX, usize::MAX)] {
            let Err(Reject::Check(why)) = Shape::choose(pads, products) else {
                panic!("{pads} pads, {products} products");
            };
            assert!(why.contains("at most 1048576"), "{why}");
        }
    }
}
