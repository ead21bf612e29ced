//! A simulator of whole proofs: it knows what is public, and for its own customer the customer's request, but no weights and
//! no other tokens. It chooses challenges first.
//!
//! What it makes in place of a provider's work:
//!
//! - trees whose opened columns are uniform, with random digests in all other leaves;
//! - uniform hidden values;
//! - a uniform combined row. The symbols of the mask rows are what makes it fit the other symbols;
//! - a simulated proof about the pads ([`zkmoe_commit::ligero::simulator`]).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Mutex;

use ark_ff::AdditiveGroup;
use zkmoe_commit::channel::{Hidden, Oracle, ProverChannel, Source, VerifierChannel};
use zkmoe_commit::codec::{DecodeError, Reader, Writer};
use zkmoe_commit::field::{F, K, scale};
use zkmoe_commit::layout::Layout;
use zkmoe_commit::ligero::Shape;
use zkmoe_commit::ligero::simulator::{self, Simulation};
use zkmoe_commit::merkle::{Digest, Tree};
use zkmoe_commit::opening::{self, Claim, ProverTree, TreeKind};
use zkmoe_commit::params::Params;
use zkmoe_commit::rows::{RowCode, RowSource, leaf};
use zkmoe_prover::prove::Reply;
use zkmoe_verifier::batch::{BatchHeader, Block, write_proof_header};
use zkmoe_verifier::header::Header;
use zkmoe_verifier::id::{ModelId, layout};
use zkmoe_verifier::olmoe;
use zkmoe_verifier::relation::{BatchShape, Dims, Round};
use zkmoe_verifier::slip::Slip;
use zkmoe_verifier::verify::{argue, draw_first, hidden_counts, parameters, reduce};

use crate::common::programmed::{Dice, Programmed, row_point, row_positions};

/// A tree of which only some columns exist.
struct Columns {
    /// Symbols of all rows, by position.
    at: BTreeMap<usize, Vec<F>>,
    rows: usize,
    tree: Tree,
}

impl Columns {
    fn new(at: BTreeMap<usize, Vec<F>>, rows: usize, log_code: u32, dice: &mut Dice) -> Self {
        let mut leaves: Vec<Digest> = (0..1 << log_code).map(|_| dice.digest()).collect();
        for (&position, column) in &at {
            leaves[position] = leaf(column);
        }
        let tree = Tree::new(leaves);
        Self { at, rows, tree }
    }

    fn uniform(positions: &[usize], rows: usize, dice: &mut Dice) -> BTreeMap<usize, Vec<F>> {
        positions.iter().map(|&j| (j, dice.words(rows))).collect()
    }
}

impl RowSource for Columns {
    fn rows(&self) -> usize {
        self.rows
    }
    fn data(&self, _: usize) -> Cow<'_, [F]> {
        unreachable!("a simulated row has symbols only")
    }
    fn tail(&self, _: usize) -> Cow<'_, [F]> {
        unreachable!("a simulated row has symbols only")
    }
    fn symbols(&self, _: &RowCode, row: usize, positions: &[usize]) -> Vec<F> {
        positions.iter().map(|j| self.at[j][row]).collect()
    }
}

/// Messages before the opening, made up: uniform elements, but for roots and for what the customer can compute.
struct Inventor<'a> {
    given: Vec<(&'static str, Vec<u8>)>,
    dice: Dice,
    sent: &'a Mutex<Vec<u8>>,
}

impl Source for Inventor<'_> {
    fn message(&mut self, label: &'static str, bytes: usize) -> Result<Cow<'_, [u8]>, DecodeError> {
        let given = self.given.iter().find(|(l, _)| *l == label);
        let message = match given {
            Some((_, message)) => message.clone(),
            // The first nonce is as good as any.
            None if bytes == 8 => vec![0; 8],
            None => {
                let mut w = Writer::new();
                self.dice.words(bytes / 8).iter().for_each(|&x| w.f(x));
                w.bytes
            }
        };
        assert_eq!(message.len(), bytes, "{label}");
        self.sent.lock().unwrap().extend_from_slice(&message);
        Ok(Cow::Owned(message))
    }
    fn finish(&mut self) -> Result<(), DecodeError> {
        Ok(())
    }
}

/// A model id behind which there is no model, for batches whose challenges are known.
pub struct FakeModel {
    /// The id.
    pub id: ModelId,
    columns: Columns,
}

/// A batch that nobody computed.
pub struct FakeBatch {
    /// The bytes of `batch.proof`.
    pub proof: Vec<u8>,
    /// The slip of request 0.
    pub slip: Slip,
}

impl FakeModel {
    /// Makes up a commitment. `shape` is that of any batch: the places of weights do not depend on it.
    pub fn new(
        header: &Header,
        params: &Params,
        tokenizer: &[u8],
        shape: &BatchShape,
        oracles: &[u64],
        dice: &mut Dice,
    ) -> Self {
        let dims = Dims::new(header.sizes.clone(), shape.clone());
        let rows = layout(&olmoe::relation(header), &dims, Round::Model, params).rows();
        let mut positions: Vec<usize> = oracles
            .iter()
            .flat_map(|&oracle| row_positions(params, oracle))
            .collect();
        positions.sort_unstable();
        positions.dedup();
        let at = Columns::uniform(&positions, rows, dice);
        let columns = Columns::new(at, rows, params.log_code, dice);
        let id = ModelId {
            header: header.clone(),
            params: params.clone(),
            root: columns.tree.root(),
            tokenizer: tokenizer.to_vec(),
        };
        Self { id, columns }
    }

    /// Makes up a batch of this shape in which request 0 has this reply, for the challenges of an oracle.
    pub fn batch(
        &self,
        shape: &BatchShape,
        own: &Reply,
        oracle: u64,
        dice: &mut Dice,
    ) -> FakeBatch {
        let (id, params) = (&self.id, &self.id.params);
        let relation = olmoe::relation(&id.header);
        let dims = Dims::new(id.header.sizes.clone(), shape.clone());

        // Requests: the customer's own, and hashes for all others.
        let (salt, cells) = (dice.digest(), dice.words(4));
        let cells = cells.try_into().expect("four cells");
        let (prompt, response) = (&own.prompt, &own.response);
        let (length, limit) = (shape.lengths[0], own.max_tokens);
        let block = Block::new(&id.header, prompt, response, length, limit, salt, cells)
            .expect("the reply fits its length");
        let mut blocks: Vec<Digest> = shape.lengths.iter().map(|_| dice.digest()).collect();
        blocks[0] = block.hash();
        let slip = Slip {
            model: id.digest(),
            request: 0,
            max_tokens: limit,
            salt,
            cells,
            response: response.clone(),
        };
        let header = BatchHeader {
            shape: shape.clone(),
            blocks,
            link: [dice.digest(), dice.digest()],
        };
        let mut ahead = Programmed::new(oracle);
        let (_, point) = draw_first(&relation, &dims, |label, n| ahead.challenges(label, n));
        let mut evaluations = dice.elements(shape.lengths.len());
        evaluations[0] = block.evaluate(&point);

        // What is opened.
        let layouts = layouts(id, shape);
        let claims = claims(id, &header, oracle);
        let opened = Opening::new(&layouts, &claims, &self.columns, params, oracle, dice);
        let (pads, products) = hidden_counts(id, &header).expect("sizes are within the limits");
        let pad_shape = Shape::choose(pads, products).expect("sizes are within the limits");
        let expected = simulator::positions(&mut Programmed::new(oracle), &pad_shape);
        let pads = Simulation::new(pad_shape, expected, dice.digest());

        // The messages, in their order.
        let mut w = Writer::new();
        evaluations.iter().for_each(|&x| w.k(x));
        let given = vec![
            ("pads root", pads.root().to_vec()),
            ("first root", opened.first.tree.root().to_vec()),
            ("second root", opened.second.tree.root().to_vec()),
            ("block evaluations", w.bytes),
        ];
        let parameters = parameters(&id.digest(), &header);
        let sent = Mutex::new(Vec::new());
        let inventor = Inventor {
            given,
            dice: Dice::new("hidden values", u64::from_le_bytes(first_word(dice))),
            sent: &sent,
        };
        let programmed = || Box::new(Programmed::new(oracle));
        let mut channel = VerifierChannel::under(programmed(), &parameters, Box::new(inventor));
        reduce(id, &header, &mut channel).expect("nothing in clear is checked before the opening");
        drop(channel);
        let mut messages = sent.into_inner().unwrap();
        messages.extend(opened.prove(&layouts, &self.columns, params, programmed(), dice));

        let source = Box::new(Reader::new(&messages));
        let mut replay = VerifierChannel::under(programmed(), &parameters, source);
        argue(id, &header, &mut replay).expect("all checks in clear hold");
        let system = replay.take_system();
        drop(replay);
        let mut channel = ProverChannel::under(programmed(), &parameters);
        pads.prove(&mut channel, &system);
        messages.extend(channel.finish());

        let mut w = Writer::new();
        write_proof_header(&mut w, &id.digest(), &header);
        w.raw(&messages);
        FakeBatch {
            proof: w.bytes,
            slip,
        }
    }
}

/// The claims of the opening: their functionals follow from the challenges, whatever the messages are.
fn claims(id: &ModelId, header: &BatchHeader, oracle: u64) -> Vec<Claim<Hidden>> {
    let sent = Mutex::new(Vec::new());
    let given = ["pads root", "first root", "second root"].map(|root| (root, vec![0; 32]));
    let rehearsal = Inventor {
        given: given.to_vec(),
        dice: Dice::new("rehearsal", 0),
        sent: &sent,
    };
    let oracle = Box::new(Programmed::new(oracle));
    let mut channel = VerifierChannel::under(oracle, b"", Box::new(rehearsal));
    reduce(id, header, &mut channel)
        .expect("nothing in clear is checked before the opening")
        .claims
}

/// The places of the model's, the first and the second round's tensors.
fn layouts(id: &ModelId, shape: &BatchShape) -> [Layout; 3] {
    let relation = olmoe::relation(&id.header);
    let dims = Dims::new(id.header.sizes.clone(), shape.clone());
    [Round::Model, Round::First, Round::Second]
        .map(|round| layout(&relation, &dims, round, &id.params))
}

/// The coefficients with which rows enter the combined row: tree, row and coefficient.
fn coefficients(
    layouts: &[Layout; 3],
    claims: &[Claim<Hidden>],
    params: &Params,
    oracle: u64,
) -> Vec<(usize, usize, K)> {
    let layouts: Vec<&Layout> = layouts.iter().collect();
    let mut ahead = Programmed::new(oracle);
    let gamma = ahead.challenges("opening: gamma", 1)[0];
    let rho: Vec<K> = (0..params.log_row)
        .flat_map(|_| ahead.challenges("opening: rho", 1))
        .collect();
    let variables = opening::combination_variables(&layouts, claims);
    let b = ahead.challenges("opening: b", variables);
    let e = ahead.challenges("opening: e", 1)[0];
    opening::coefficients(&layouts, claims, gamma, &rho, &b, e)
}

/// The coefficients with which the model's rows enter the combined row of a batch. They are public.
pub fn model_coefficients(id: &ModelId, header: &BatchHeader, oracle: u64) -> Vec<(usize, K)> {
    let claims = claims(id, header, oracle);
    let layouts = layouts(id, &header.shape);
    coefficients(&layouts, &claims, &id.params, oracle)
        .into_iter()
        .filter(|&(tree, ..)| tree == 0)
        .map(|(_, row, c)| (row, c))
        .collect()
}

fn first_word(dice: &mut Dice) -> [u8; 8] {
    let digest = dice.digest();
    core::array::from_fn(|i| digest[i])
}

/// What an opening is made of.
struct Opening {
    first: Columns,
    second: Columns,
    /// The combined row, data and tail.
    combined: [Vec<K>; 2],
}

impl Opening {
    fn new(
        layouts: &[Layout; 3],
        claims: &[Claim<Hidden>],
        model: &Columns,
        params: &Params,
        oracle: u64,
        dice: &mut Dice,
    ) -> Self {
        let coefficients = coefficients(layouts, claims, params, oracle);
        let positions = row_positions(params, oracle);
        let [first, second] = [(1, TreeKind::Round1), (2, TreeKind::Round2)]
            .map(|(tree, kind): (usize, TreeKind)| layouts[tree].rows() + kind.mask_rows());
        let mut at_first = Columns::uniform(&positions, first, dice);
        let at_second = Columns::uniform(&positions, second, dice);
        let data = dice.elements(1 << params.log_row);
        let tail = dice.elements(params.model_tail);
        for (&position, column) in &mut at_first {
            let x = row_point(params, position);
            let combined = data
                .iter()
                .chain(&tail)
                .rev()
                .fold(K::ZERO, |sum, &c| scale(sum, x) + c);
            let others: K = coefficients
                .iter()
                .map(|&(tree, row, c)| {
                    let columns = [&model.at[&position], &*column, &at_second[&position]];
                    scale(c, columns[tree][row])
                })
                .sum();
            let mask = combined - others;
            let row = layouts[1].rows();
            (column[row], column[row + 1]) = (mask.c0, mask.c1);
        }
        Self {
            first: Columns::new(at_first, first, params.log_code, dice),
            second: Columns::new(at_second, second, params.log_code, dice),
            combined: [data, tail],
        }
    }

    /// The messages of the opening.
    fn prove(
        &self,
        layouts: &[Layout; 3],
        model: &Columns,
        params: &Params,
        oracle: Box<dyn Oracle>,
        dice: &mut Dice,
    ) -> Vec<u8> {
        let mut channel = ProverChannel::under(oracle, b"");
        let mut rho = Vec::new();
        for _ in 0..params.log_row {
            channel.clear("opening: sumcheck", &dice.elements(2));
            rho.push(channel.challenge("opening: rho"));
        }
        channel.grind("opening: work before b", params.grinding.combination);
        let stated = dice.elements(2);
        channel.clear("opening: values of mask and proximity row", &stated);
        channel.grind("opening: work before e", params.grinding.combination);
        let code = RowCode::new(params.log_row, params.log_code);
        let kinds = [TreeKind::Model, TreeKind::Round1, TreeKind::Round2];
        let columns = [model, &self.first, &self.second];
        let trees: [ProverTree<'_>; 3] = core::array::from_fn(|i| ProverTree {
            kind: kinds[i],
            layout: &layouts[i],
            rows: columns[i],
            tree: &columns[i].tree,
        });
        let combined = self.combined.clone();
        opening::prove_combined(&mut channel, params, &code, &trees, combined, &rho);
        channel.finish()
    }
}
