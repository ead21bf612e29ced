//! Finished proofs and slips that are used for something else than what was proved: another model id, another batch header,
//! another request or text; and proofs with damaged bytes.

use std::sync::OnceLock;

use rayon::prelude::*;
use zkmoe_commit::channel::{Oracle, Reject, VerifierChannel};
use zkmoe_commit::codec::{Reader, Writer};
use zkmoe_commit::field::{K, from_i64};
use zkmoe_commit::params::{Grinding, Params};
use zkmoe_commit::transcript::Transcript;
use zkmoe_commit::whir::WhirParams;
use zkmoe_prover::key::{Key, KeyError};
use zkmoe_prover::prove::{BatchProof, Hook, NoHook, ProveError, Reply, prove};
use zkmoe_prover::trace::{Loads, Padding};
use zkmoe_verifier::batch::{BatchHeader, read_proof_header, write_proof_header};
use zkmoe_verifier::header::{Header, Scales, Sizes};
use zkmoe_verifier::id::ModelId;
use zkmoe_verifier::slip::Slip;
use zkmoe_verifier::verify::{
    Batch, Ended, PROTOCOL, VerifyError, check_slip, parameters, verify_batch, verify_messages,
};

use crate::case::{Case, accepted_with_foresight, case, demand, rejected, tried};
use crate::common::{Committed, answer, dishonest, fault, micro, trace_of};
use crate::confront::BLOCKS;

/// A batch of two requests under the parameters of a provider.
struct Honest {
    by: Committed,
    replies: Vec<Reply>,
    batch: BatchProof,
    accepted: Batch,
}

fn proved(by: &Committed, replies: &[Reply], seed: u8) -> BatchProof {
    let padding = Padding::default();
    let seed = [seed; 32];
    let mut key = by.key();
    prove(
        &by.model,
        &by.id,
        &mut key,
        replies,
        padding,
        seed,
        &mut NoHook,
    )
    .unwrap()
}

fn honest() -> &'static Honest {
    static HONEST: OnceLock<Honest> = OnceLock::new();
    HONEST.get_or_init(|| {
        let by = Committed::new(micro());
        let replies = vec![
            answer(&by.model, &[3, 5, 7], 3),
            answer(&by.model, &[1, 2, 3, 4], 3),
        ];
        let batch = proved(&by, &replies, 1);
        let accepted = verify_batch(&by.id, &batch.proof).unwrap();
        Honest {
            by,
            replies,
            batch,
            accepted,
        }
    })
}

/// An error unless a proof is rejected; gives the name of the check.
fn refuses(id: &ModelId, proof: &[u8], what: &str) -> Result<String, String> {
    tried(1);
    let name = match verify_batch(id, proof) {
        Ok(_) => return Err(format!("accepted: {what}")),
        Err(VerifyError::Rejected(Reject::Check(name))) => name,
        Err(VerifyError::Rejected(Reject::Malformed(_)) | VerifyError::Unusable(_)) => {
            "malformed".to_owned()
        }
    };
    rejected(&name);
    Ok(name)
}

// Damage.

/// A bit of every 499th byte.
fn any_changed_byte() -> Result<(), String> {
    let Honest { by, batch, .. } = honest();
    let changes: Vec<usize> = (0..batch.proof.len()).step_by(499).collect();
    changes.par_iter().try_for_each(|&n| {
        let mut changed = batch.proof.clone();
        changed[n] ^= 1 << (n % 8);
        refuses(&by.id, &changed, &format!("byte {n} changed")).map(drop)
    })
}

fn another_length() -> Result<(), String> {
    let Honest { by, batch, .. } = honest();
    let proof = &batch.proof;
    let shorter = (0..proof.len()).step_by(997);
    for length in shorter.chain([1, 12, 44, proof.len() - 1]) {
        refuses(&by.id, &proof[..length], &format!("{length} bytes"))?;
    }
    for more in [&[0][..], &[0; 16], proof] {
        refuses(&by.id, &[proof, more].concat(), "bytes after the end")?;
    }
    Ok(())
}

// Batch headers.

/// The proof with another header before the same messages.
fn with_header(id: &ModelId, proof: &[u8], edit: impl FnOnce(&mut BatchHeader)) -> Vec<u8> {
    let mut reader = Reader::new(proof);
    let (named, mut header) = read_proof_header(&mut reader, &id.header).unwrap();
    let rest = reader.raw(reader.remaining(), "proof").unwrap();
    edit(&mut header);
    let mut w = Writer::new();
    write_proof_header(&mut w, &named, &header);
    w.raw(rest);
    w.bytes
}

type HeaderEdit = fn(&mut BatchHeader);

/// Edits that change what the messages mean, and those that change the header alone.
const HEADER_EDITS: [(&str, bool, HeaderEdit); 17] = [
    ("a length is larger", false, |h| h.shape.lengths[0] += 1),
    ("a length is larger by a padding", false, |h| {
        h.shape.lengths[0] += 8;
    }),
    ("a length is smaller", false, |h| h.shape.lengths[1] -= 1),
    ("a load is larger", false, |h| h.shape.blocks[0].2 += 1),
    ("a load is smaller", false, |h| h.shape.blocks[1].2 -= 1),
    ("an expert is missing", false, |h| {
        h.shape.blocks.pop();
    }),
    ("an expert has another layer", false, |h| {
        let last = h.shape.blocks.iter().rposition(|b| b.0 == 0).unwrap();
        h.shape.blocks[last].0 = 1;
    }),
    ("loads are exchanged", false, |h| {
        let load = h.shape.blocks[0].2;
        let other = h.shape.blocks.iter().position(|b| b.2 != load).unwrap_or(1);
        h.shape.blocks[0].2 = h.shape.blocks[other].2;
        h.shape.blocks[other].2 = load + usize::from(h.shape.blocks[other].2 == load);
    }),
    ("more rows are decoded", false, |h| h.shape.decoded += 1),
    ("fewer rows are decoded", false, |h| h.shape.decoded -= 1),
    ("a request is missing", false, |h| {
        h.shape.lengths.pop();
        h.blocks.pop();
    }),
    ("a hash is changed", true, |h| h.blocks[0][0] ^= 1),
    ("the last hash is changed", true, |h| {
        h.blocks[1][31] ^= 0x80;
    }),
    ("hashes are swapped", true, |h| h.blocks.swap(0, 1)),
    ("it follows another proof", true, |h| h.link[0][7] ^= 1),
    ("another proof follows it", true, |h| h.link[1][31] ^= 0x80),
    ("it follows itself", false, |h| h.link[0] = h.link[1]),
];

/// A transcript that takes in nothing of the header.
struct Headless(Transcript);

impl Oracle for Headless {
    fn absorb(&mut self, label: &str, data: &[u8]) {
        if label != "parameters" {
            self.0.absorb(label, data);
        }
    }
    fn challenges(&mut self, label: &str, n: usize) -> Vec<K> {
        self.0.challenges(label, n)
    }
    fn positions(&mut self, label: &str, n: usize, log_size: u32) -> Vec<usize> {
        self.0.positions(label, n, log_size)
    }
    fn accepts(&self, label: &str, bits: u32, nonce: u64) -> bool {
        self.0.accepts(label, bits, nonce)
    }
}

/// Proves under a transcript that takes in nothing of the header.
struct ProvesHeadless;

impl Hook for ProvesHeadless {
    fn oracle(&mut self, protocol: &str) -> Box<dyn Oracle> {
        Box::new(Headless(Transcript::new(protocol)))
    }
}

/// A proof with another header is rejected. Where the header alone differs, it is the transcript that rejects: where both
/// sides leave the header out of it, the proof is accepted.
fn another_header((name, alone, edit): (&str, bool, HeaderEdit)) -> Result<(), String> {
    let Honest {
        by, replies, batch, ..
    } = honest();
    assert!(with_header(&by.id, &batch.proof, |_| ()) == batch.proof);
    refuses(&by.id, &with_header(&by.id, &batch.proof, edit), name)?;
    // Work is bound to the header; where none is asked for, the argument itself has to fail.
    let lazy = Committed::quick(micro());
    let trace = trace_of(&lazy.model, replies, Loads::Multiple(8));
    let proof = dishonest(&lazy, replies, &trace, &mut NoHook).proof;
    tried(1);
    let found = match verify_batch(&lazy.id, &with_header(&lazy.id, &proof, edit)) {
        Ok(_) => return Err("accepted without work".into()),
        Err(error) => error.to_string(),
    };
    let expected = [
        "opening: leaf of the model tree",
        "proof: `active experts`",
        "proof: `chain value of this proof`",
        "malformed proof: has ",
    ];
    demand(expected.iter().any(|e| found.starts_with(e)), || {
        format!("rejected by {found}")
    })?;
    rejected(&found);
    let proof = dishonest(&lazy, replies, &trace, &mut ProvesHeadless).proof;
    let changed = with_header(&lazy.id, &proof, edit);
    let mut reader = Reader::new(&changed);
    let Ok((named, header)) = read_proof_header(&mut reader, &lazy.id.header) else {
        return Ok(());
    };
    let channel = VerifierChannel::under(
        Box::new(Headless(Transcript::new(PROTOCOL))),
        &parameters(&named, &header),
        Box::new(reader),
    );
    let found = verify_messages(&lazy.id, header, channel).unwrap_err();
    let accepted = found.to_string().starts_with("soundness: ");
    demand(accepted == alone, || {
        format!("without the header in the transcript: {found}")
    })?;
    if alone {
        accepted_with_foresight();
    }
    Ok(())
}

// Model ids.

type IdEdit = fn(&mut ModelId);

/// An edit of every field of a model id, or of some entries where it is a table.
const ID_EDITS: [(&str, IdEdit); 69] = [
    ("vocab_size", |i| i.header.sizes.vocab_size += 1),
    ("hidden_size", |i| i.header.sizes.hidden_size += 1),
    ("intermediate_size", |i| {
        i.header.sizes.intermediate_size += 1;
    }),
    ("num_hidden_layers, one more", |i| {
        i.header.sizes.num_hidden_layers += 1;
    }),
    ("num_hidden_layers, one less", |i| {
        i.header.sizes.num_hidden_layers -= 1;
    }),
    ("num_key_value_heads", |i| {
        i.header.sizes.num_key_value_heads += 1;
    }),
    ("query_group", |i| i.header.sizes.query_group += 1),
    ("head_dim", |i| i.header.sizes.head_dim += 2),
    ("num_experts", |i| i.header.sizes.num_experts += 1),
    ("num_experts_per_tok, one more", |i| {
        i.header.sizes.num_experts_per_tok += 1;
    }),
    ("num_experts_per_tok, one less", |i| {
        i.header.sizes.num_experts_per_tok -= 1;
    }),
    ("max_position_embeddings", |i| {
        i.header.sizes.max_position_embeddings += 1;
    }),
    ("norm_factor", |i| i.header.scales.norm_factor += 1),
    ("norm_epsilon", |i| i.header.scales.norm_epsilon += 1),
    ("norm_shift", |i| i.header.scales.norm_shift -= 1),
    ("query_norm_factor", |i| {
        i.header.scales.query_norm_factor += 1;
    }),
    ("query_norm_epsilon", |i| {
        i.header.scales.query_norm_epsilon += 1;
    }),
    ("query_norm_shift", |i| {
        i.header.scales.query_norm_shift -= 1;
    }),
    ("key_norm_factor", |i| i.header.scales.key_norm_factor += 1),
    ("key_norm_epsilon", |i| {
        i.header.scales.key_norm_epsilon += 1;
    }),
    ("key_norm_shift", |i| i.header.scales.key_norm_shift -= 1),
    ("query_shift", |i| i.header.scales.query_shift -= 1),
    ("key_shift", |i| i.header.scales.key_shift -= 1),
    ("value_shift", |i| i.header.scales.value_shift -= 1),
    ("rope_shift", |i| i.header.scales.rope_shift -= 1),
    ("score_shift", |i| i.header.scales.score_shift -= 1),
    ("output_shift", |i| i.header.scales.output_shift -= 1),
    ("router_shift", |i| i.header.scales.router_shift -= 1),
    ("router_score_shift", |i| {
        i.header.scales.router_score_shift -= 1;
    }),
    ("gate_shift", |i| i.header.scales.gate_shift -= 1),
    ("up_shift", |i| i.header.scales.up_shift -= 1),
    ("product_shift", |i| i.header.scales.product_shift -= 1),
    ("down_shift", |i| i.header.scales.down_shift -= 1),
    ("head_shift", |i| i.header.scales.head_shift -= 1),
    ("eos_token", |i| i.header.eos_token ^= 1),
    ("pad_token", |i| i.header.pad_token ^= 1),
    ("exp_table, first entry", |i| i.header.exp_table[0] -= 1),
    ("exp_table, an entry", |i| i.header.exp_table[777] ^= 1),
    ("silu_table, first entry", |i| i.header.silu_table[0] ^= 1),
    ("silu_table, last entry", |i| {
        *i.header.silu_table.last_mut().unwrap() ^= 1;
    }),
    ("cos_table", |i| i.header.cos_table[3] -= 1),
    ("sin_table", |i| i.header.sin_table[3] += 1),
    ("tokenizer_hash", |i| i.header.tokenizer_hash[0] ^= 1),
    ("template_hash", |i| i.header.template_hash[31] ^= 0x80),
    ("log_row", |i| i.params.log_row += 1),
    ("log_code", |i| i.params.log_code += 1),
    ("model_tail", |i| i.params.model_tail *= 2),
    ("trace_tail", |i| i.params.trace_tail *= 2),
    ("queries, one more", |i| i.params.queries += 1),
    ("queries, one less", |i| i.params.queries -= 1),
    ("work before lookups", |i| i.params.grinding.lookup -= 1),
    ("work before combinations", |i| {
        i.params.grinding.combination -= 1;
    }),
    ("work before positions", |i| {
        i.params.grinding.positions -= 1;
    }),
    ("security_bits", |i| i.params.security_bits -= 1),
    ("whir_data.log_size", |i| i.params.whir_data.log_size += 1),
    ("whir_data.log_inv_rate", |i| {
        i.params.whir_data.log_inv_rate += 1;
    }),
    ("whir_data.folding", |i| i.params.whir_data.folding -= 1),
    ("whir_data.final_log_size", |i| {
        i.params.whir_data.final_log_size -= 1;
    }),
    ("whir_data.security_bits", |i| {
        i.params.whir_data.security_bits -= 1;
    }),
    ("whir_data.grinding_bits", |i| {
        i.params.whir_data.grinding_bits -= 1;
    }),
    ("whir_tail.log_size", |i| i.params.whir_tail.log_size += 1),
    ("whir_tail.log_inv_rate", |i| {
        i.params.whir_tail.log_inv_rate += 1;
    }),
    ("whir_tail.folding", |i| i.params.whir_tail.folding -= 1),
    ("whir_tail.final_log_size", |i| {
        i.params.whir_tail.final_log_size -= 1;
    }),
    ("whir_tail.grinding_bits", |i| {
        i.params.whir_tail.grinding_bits -= 1;
    }),
    ("whir_tail.security_bits", |i| {
        i.params.whir_tail.security_bits -= 1;
    }),
    ("root, one bit", |i| i.root[0] ^= 1),
    ("root, all zero", |i| i.root = [0; 32]),
    ("root, of nothing", |i| {
        i.root = *blake3::hash(b"").as_bytes();
    }),
];

/// Does not compile when a field is added to a model id, so that its edit is not forgotten above.
fn no_field_is_new(id: &ModelId) {
    let ModelId {
        header:
            Header {
                sizes:
                    Sizes {
                        vocab_size: _,
                        hidden_size: _,
                        intermediate_size: _,
                        num_hidden_layers: _,
                        num_key_value_heads: _,
                        query_group: _,
                        head_dim: _,
                        num_experts: _,
                        num_experts_per_tok: _,
                        max_position_embeddings: _,
                    },
                scales:
                    Scales {
                        norm_factor: _,
                        norm_epsilon: _,
                        norm_shift: _,
                        query_norm_factor: _,
                        query_norm_epsilon: _,
                        query_norm_shift: _,
                        key_norm_factor: _,
                        key_norm_epsilon: _,
                        key_norm_shift: _,
                        query_shift: _,
                        key_shift: _,
                        value_shift: _,
                        rope_shift: _,
                        score_shift: _,
                        output_shift: _,
                        router_shift: _,
                        router_score_shift: _,
                        gate_shift: _,
                        up_shift: _,
                        product_shift: _,
                        down_shift: _,
                        head_shift: _,
                    },
                eos_token: _,
                pad_token: _,
                exp_table: _,
                silu_table: _,
                cos_table: _,
                sin_table: _,
                tokenizer_hash: _,
                template_hash: _,
            },
        params:
            Params {
                log_row: _,
                log_code: _,
                model_tail: _,
                trace_tail: _,
                queries: _,
                grinding:
                    Grinding {
                        lookup: _,
                        combination: _,
                        positions: _,
                    },
                security_bits: _,
                whir_data:
                    WhirParams {
                        log_size: _,
                        log_inv_rate: _,
                        folding: _,
                        final_log_size: _,
                        security_bits: _,
                        grinding_bits: _,
                    },
                whir_tail:
                    WhirParams {
                        log_size: _,
                        log_inv_rate: _,
                        folding: _,
                        final_log_size: _,
                        security_bits: _,
                        grinding_bits: _,
                    },
            },
        root: _,
        // Its hash is in the header, and no id is read where they differ.
        tokenizer: _,
    } = id;
}

/// A proof is about one id, and another id cannot be written over it.
fn another_id(edit: IdEdit) -> Result<(), String> {
    let Honest { by, batch, .. } = honest();
    no_field_is_new(&by.id);
    let mut other = by.id.clone();
    edit(&mut other);
    demand(other.digest() != by.id.digest(), || {
        "the id does not depend on it".into()
    })?;
    let found = refuses(&other, &batch.proof, "under the other id")?;
    demand(
        found == "malformed" || found == "model id: the proof is about another model",
        || format!("rejected by {found}"),
    )?;
    // Most edits are no id at all. Those that are one do not pass off the proof as theirs.
    let Ok(other) = ModelId::decode(&other.encode()) else {
        rejected("malformed");
        return Ok(());
    };
    let mut renamed = batch.proof.clone();
    let place = renamed
        .windows(32)
        .position(|w| w == by.id.digest())
        .unwrap();
    renamed[place..place + 32].copy_from_slice(&other.digest());
    refuses(&other, &renamed, "renamed").map(drop)
}

/// The same weights under another commitment are another model.
fn another_commitment() -> Result<(), String> {
    let Honest {
        by, replies, batch, ..
    } = honest();
    let other = Committed::with(micro(), by.id.params.clone(), [4; 32]);
    let found = refuses(&other.id, &batch.proof, "another commitment")?;
    demand(found.starts_with("model id"), || found.clone())?;
    // The other key's randomness under this id: the key is refused, and a forced one opens other leaves.
    let theirs = other.key();
    let mut mixed = Key::new(
        by.id.digest(),
        theirs.seed(),
        theirs.tree().clone(),
        theirs.limit(),
        0,
    );
    let refused = prove(
        &by.model,
        &by.id,
        &mut mixed,
        replies,
        Padding::default(),
        [1; 32],
        &mut NoHook,
    );
    demand(
        matches!(&refused, Err(ProveError::Key(KeyError::Mismatch(why))) if why.contains("columns")),
        || format!("{refused:?}"),
    )?;
    let forced = Committed::with(micro(), by.id.params.clone(), [3; 32]).with_key(&mixed);
    assert_eq!(forced.id.digest(), by.id.digest());
    let trace = trace_of(&forced.model, replies, Loads::Multiple(8));
    let forged = dishonest(&forced, replies, &trace, &mut NoHook);
    let found = fault(&by.id, &forged);
    demand(
        found.as_deref() == Some("opening: leaf of the model tree"),
        || format!("{found:?}"),
    )?;
    rejected("opening: leaf of the model tree");
    Ok(())
}

// Slips.

/// A slip that is used for something else: an edit of the slip and of the prompt, and the check that refuses it.
type SlipEdit = fn(&mut Slip, &mut Vec<u32>);

/// What most slips are refused by.
const OTHER: &str = "holds another prompt, response or limit";

const SLIP_EDITS: [(&str, &str, SlipEdit); 25] = [
    ("the other request's slip", OTHER, |s, _| {
        *s = honest().batch.slips[1].clone();
    }),
    ("the other request's prompt", OTHER, |_, p| {
        p.clone_from(&honest().replies[1].prompt);
    }),
    ("the other request's number", OTHER, |s, _| s.request = 1),
    ("no such request", "no such request", |s, _| s.request = 2),
    ("the largest request", "no such request", |s, _| {
        s.request = u32::MAX;
    }),
    ("the slip of another batch", OTHER, |s, _| {
        let Honest { by, replies, .. } = honest();
        *s = proved(by, replies, 2).slips.remove(0);
    }),
    ("another prompt", OTHER, |_, p| p[2] += 1),
    ("a shorter prompt", OTHER, |_, p| {
        p.pop();
    }),
    ("a longer prompt", OTHER, |_, p| p.push(3)),
    ("no prompt", "do not fit", |_, p| p.clear()),
    ("too long a prompt", "do not fit", |_, p| *p = vec![3; 9]),
    (
        "a token of no vocabulary",
        "not in the vocabulary",
        |_, p| p[2] = 40,
    ),
    ("the largest token", "not in the vocabulary", |s, _| {
        s.response[0] = u32::MAX;
    }),
    ("another response", OTHER, |s, _| {
        s.response[1] = (s.response[1] + 1) % 40;
    }),
    ("a response in another order", OTHER, |s, _| {
        s.response.reverse();
    }),
    ("a shorter response", OTHER, |s, _| s.response.truncate(1)),
    ("a longer response", OTHER, |s, _| s.response.push(1)),
    ("no response", "do not fit", |s, _| s.response.clear()),
    ("a response token moved to the prompt", OTHER, |s, p| {
        p.push(s.response.remove(0));
    }),
    ("a prompt token moved to the response", OTHER, |s, p| {
        s.response.insert(0, p.pop().unwrap());
    }),
    ("a larger limit", OTHER, |s, _| s.max_tokens += 1),
    ("a smaller limit", OTHER, |s, _| s.max_tokens -= 1),
    ("another salt", OTHER, |s, _| s.salt[5] ^= 4),
    ("another first cell", OTHER, |s, _| {
        s.cells[0] += from_i64(1);
    }),
    ("another last cell", OTHER, |s, _| s.cells[3] += from_i64(1)),
];

/// A slip is for one request of one batch and for one text.
fn another_use((check, edit): (&str, SlipEdit)) -> Result<(), String> {
    let Honest {
        by,
        replies,
        batch,
        accepted,
    } = honest();
    let (mut slip, mut prompt) = (batch.slips[0].clone(), replies[0].prompt.clone());
    assert_ne!(
        check_slip(&by.id, accepted, &slip, &prompt).unwrap(),
        Ended::Early
    );
    edit(&mut slip, &mut prompt);
    refuses_slip(accepted, &slip, &prompt, check)
}

fn refuses_slip(accepted: &Batch, slip: &Slip, prompt: &[u32], check: &str) -> Result<(), String> {
    tried(1);
    match check_slip(&honest().by.id, accepted, slip, prompt) {
        Err(Reject::Check(found)) if found.contains(check) => {
            rejected(&found);
            Ok(())
        }
        other => Err(format!("{other:?}, expected `{check}`")),
    }
}

/// A batch whose header holds the hash that the customer computes, but whose proof is about another block.
fn evaluations_exchanged() -> Result<(), String> {
    let Honest {
        replies,
        batch,
        accepted,
        ..
    } = honest();
    let mut forged = accepted.clone();
    forged.evaluations.swap(0, 1);
    let check = "about another block";
    refuses_slip(&forged, &batch.slips[0], &replies[0].prompt, check)
}

/// The trace is of requests in another order than header and slips.
fn requests_in_another_order() -> Result<(), String> {
    let Honest { by, replies, .. } = honest();
    let swapped: Vec<Reply> = replies.iter().rev().cloned().collect();
    let trace = trace_of(&by.model, &swapped, Loads::Multiple(8));
    let found = fault(&by.id, &dishonest(by, replies, &trace, &mut NoHook));
    tried(1);
    demand(found.as_deref() == Some(BLOCKS), || format!("{found:?}"))?;
    rejected(BLOCKS);
    Ok(())
}

/// A reply whose first token is passed off as part of the prompt: the proof holds, the customer's slip does not.
fn a_reply_split_in_another_place() -> Result<(), String> {
    let by = &honest().by;
    let reply = answer(&by.model, &[3, 5, 7], 3);
    let (first, rest) = reply.response.split_first().unwrap();
    let split = Reply {
        prompt: [&reply.prompt[..], &[*first]].concat(),
        response: rest.to_vec(),
        max_tokens: 3,
    };
    let batch = proved(by, &[split], 1);
    let accepted = verify_batch(&by.id, &batch.proof).map_err(|e| e.to_string())?;
    let slip = &batch.slips[0];
    let claimed = Slip {
        response: reply.response.clone(),
        ..slip.clone()
    };
    for slip in [slip, &claimed] {
        refuses_slip(&accepted, slip, &reply.prompt, OTHER)?;
    }
    Ok(())
}

/// All cases.
pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        case("damage", "any byte changed", any_changed_byte),
        case("damage", "another length", another_length),
        case(
            "model id",
            "another commitment of the same model",
            another_commitment,
        ),
        case("slip", "evaluations exchanged", evaluations_exchanged),
        case(
            "statement",
            "requests in another order",
            requests_in_another_order,
        ),
        case(
            "statement",
            "a reply split in another place",
            a_reply_split_in_another_place,
        ),
    ];
    for edit in HEADER_EDITS {
        cases.push(case("batch header", edit.0, move || another_header(edit)));
    }
    for (name, edit) in ID_EDITS {
        cases.push(case("model id", name, move || another_id(edit)));
    }
    for (name, check, edit) in SLIP_EDITS {
        cases.push(case("slip", name, move || another_use((check, edit))));
    }
    cases
}
