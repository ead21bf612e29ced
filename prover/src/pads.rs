//! The end of every proof: that the pads fit what was sent behind them.

use zkmoe_commit::channel::{Oracle, ProverChannel, Reject, VerifierChannel};
use zkmoe_commit::codec::Reader;
use zkmoe_commit::ligero::{self, Pads};

/// Proves what the verifier's own steps over the messages so far demand of the pads. `argue` is these steps, `oracle` and
/// `parameters` are what `channel` started with, `seed` is fresh. Gives the check that fails, if one does: then no
/// verifier accepts the proof.
pub(crate) fn prove_pads(
    channel: &mut ProverChannel,
    pads: &Pads,
    seed: [u8; 32],
    oracle: Box<dyn Oracle>,
    parameters: &[u8],
    argue: impl FnOnce(&mut VerifierChannel<'_>) -> Result<(), Reject>,
) -> Option<String> {
    let sent = channel.sent().to_vec();
    let mut replay = VerifierChannel::under(oracle, parameters, Box::new(Reader::new(&sent)));
    match argue(&mut replay) {
        Ok(()) => {
            let system = replay.take_system();
            ligero::prove(channel, pads, &system, &seed);
            system.violated(pads.values()).map(str::to_owned)
        }
        Err(reject) => Some(reject.to_string()),
    }
}
