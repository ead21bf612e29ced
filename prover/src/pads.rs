//! The two ends of every proof: the commitment to its pads, and that the pads fit what was sent behind them.

use zkmoe_commit::channel::{Oracle, ProverChannel, Reject, VerifierChannel};
use zkmoe_commit::codec::Reader;
use zkmoe_commit::ligero::{self, Pads};

use crate::prove::Hook;
use crate::randomness::{Purpose, Randomness};

/// Draws pads for `values` hidden values, of which the proof has `products` products, and commits to them. An error if
/// they are more than one proof may have.
pub(crate) fn commit_pads(
    channel: &mut ProverChannel,
    (values, products): (usize, usize),
    random: &Randomness,
    hook: &mut impl Hook,
) -> Result<Pads, Reject> {
    let pads = ligero::uniform_pads(&random.seed(hook, Purpose::Pads, 0), values);
    let seed = random.seed(hook, Purpose::PadRows, 0);
    Pads::commit(channel, pads, products, &seed)
}

/// Proves what the verifier's own steps over the messages so far demand of the pads. `argue` is these steps, `oracle` and
/// `parameters` are what `channel` started with, `seed` is fresh. Gives the checks that fail, in their order: if
/// there are any, no verifier accepts the proof.
pub(crate) fn prove_pads(
    channel: &mut ProverChannel,
    pads: &Pads,
    seed: [u8; 32],
    oracle: Box<dyn Oracle>,
    parameters: &[u8],
    argue: impl FnOnce(&mut VerifierChannel<'_>) -> Result<(), Reject>,
) -> Vec<String> {
    let sent = channel.sent().to_vec();
    let mut replay = VerifierChannel::under(oracle, parameters, Box::new(Reader::new(&sent)));
    match argue(&mut replay) {
        Ok(()) => {
            let system = replay.take_system();
            ligero::prove(channel, pads, &system, &seed);
            let violated = system.violated(pads.values());
            violated.into_iter().map(str::to_owned).collect()
        }
        Err(reject) => vec![reject.to_string()],
    }
}
