//! Lies about the id: another one, one with another tokenizer, an edited one.

use zkmoe::prover::tokenizer::Tokenizer;
use zkmoe::verifier::id::ModelId;

use crate::cases::Cases;
use crate::provider::tokenizer_json;
use crate::world::World;

/// A change of a model id.
type Change<'a> = dyn Fn(&mut ModelId) + 'a;

/// What another id is rejected for.
const OTHER_ID: &str = "model id: the slip was issued under ";

/// An id whose tokenizer is exchanged, with the hash that belongs to it.
fn with_tokenizer(id: &mut ModelId, tokenizer: Vec<u8>) {
    id.header.tokenizer_hash = *blake3::hash(&tokenizer).as_bytes();
    id.tokenizer = tokenizer;
}

/// The first reply under `NAME.id`, which [`World::relabel`] made.
fn relabelled(name: &str) -> [String; 4] {
    ["id", "proof", "slip", "cert"].map(|end| format!("{name}.{end}"))
}

/// An id that was edited, with everything that names it edited too. Whatever the customer has, it is not accepted: without a
/// certificate, with that of the honest id, and even if they once noted that its weights are in range.
fn lie(c: &mut Cases<'_>, w: &World, name: &str, what: &str, change: impl Fn(&mut ModelId)) {
    w.relabel(name, &change);
    let [id, proof, slip, cert] = relabelled(name);
    c.rejected(what, &[("--id", &id)], OTHER_ID);
    // The text that the tokenizer of this id makes of the tokens.
    let tokenizer = Tokenizer::from_json(&w.folder.id(&id).tokenizer).unwrap();
    let text = tokenizer.decode(&w.folder.slip(&slip).response).unwrap();
    let files = [
        ("--id", &id[..]),
        ("--proof", &proof),
        ("--slip", &slip),
        ("--response", &text),
    ];
    let uncertified = [
        &id[..],
        "its weights were not shown to be in range",
        "zkmoe verify-model",
    ];
    c.unusable(
        &format!("{what}, and files that name it"),
        &files,
        &uncertified,
    );
    let certified = [&files[..], &[("--cert", &cert)]].concat();
    c.rejected(
        &format!("{what}, and a certificate that names it"),
        &certified,
        "certificate: ",
    );
    let honest = [&files[..], &[("--cert", "model.cert")]].concat();
    let check = "certificate: model id: the certificate is about another model";
    c.rejected(
        &format!("{what}, and the honest certificate"),
        &honest,
        check,
    );
    let expected = w.digest("model.id");
    let compared = [&certified[..], &[("--expect-id", &expected)]].concat();
    c.rejected(
        &format!("{what}, but the id is known"),
        &compared,
        "is not the id that was expected",
    );

    let noted = format!("{name}-noted");
    w.relabel(&noted, &change);
    let [id, proof, slip, _] = relabelled(&noted);
    w.note(&id);
    let files = [
        ("--id", &id[..]),
        ("--proof", &proof),
        ("--slip", &slip),
        ("--response", &text),
    ];
    c.rejected(&format!("{what}, though certified"), &files, "");
}

pub fn tokenizers(w: &World) -> Cases<'_> {
    let mut c = Cases::new(w);
    c.kind("tokenizer");
    let merges = |reverse: bool| {
        tokenizer_json(|json| {
            let merges = json["model"]["merges"].as_array_mut().unwrap();
            if reverse {
                merges.reverse();
            } else {
                merges.pop();
            }
        })
    };
    let renamed = tokenizer_json(|json| {
        let vocab = json["model"]["vocab"].as_object_mut().unwrap();
        let (a, b) = (vocab["a"].clone(), vocab["e"].clone());
        vocab["a"] = b;
        vocab["e"] = a;
    });
    let tokenizers = [
        (
            "other-order",
            "the same tokens, merged in another order",
            merges(true),
        ),
        ("fewer", "the same tokens, one merge less", merges(false)),
        ("renamed", "two letters exchanged", renamed),
        (
            "silent",
            "a word made special, which shows no text",
            tokenizer_json(|json| {
                json["added_tokens"].as_array_mut().unwrap().push(serde_json::json!({
                "id": 8, "content": "e", "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true
            }));
            }),
        ),
        ("spaces", "other bytes of the same JSON", {
            let mut same = tokenizer_json(|_| ());
            same.push(b'\n');
            same
        }),
    ];
    for (name, what, tokenizer) in tokenizers {
        let file = format!("{name}-unfit.id");
        let mut id = w.folder.id("model.id");
        id.tokenizer.clone_from(&tokenizer);
        w.folder.write(&file, id.encode());
        let parts = [&file[..], "`tokenizer` holds a value that is not allowed"];
        c.unusable(
            &format!("{what}, beside the hash"),
            &[("--id", &file)],
            &parts,
        );
        lie(&mut c, w, name, what, |id| {
            with_tokenizer(id, tokenizer.clone());
        });
    }
    for (what, tokenizer) in [
        ("none", Vec::new()),
        ("no JSON", b"{".to_vec()),
        ("JSON", b"{}".to_vec()),
    ] {
        let file = format!("tokenizer-{what}.id");
        let mut id = w.folder.id("model.id");
        with_tokenizer(&mut id, tokenizer);
        w.folder.write(&file, id.encode());
        c.unusable(what, &[("--id", &file)], &[&file, "tokenizer.json: "]);
    }
    // A model that was committed to with another tokenizer, and its own honest reply.
    c.rejected("of another commitment", &[("--id", "normal.id")], OTHER_ID);
    let files = [
        ("--proof", "normal/batch.proof"),
        ("--slip", "normal/normal-story.slip"),
    ];
    c.rejected("a reply of the other one", &files, OTHER_ID);
    let proof = [("--proof", "normal/batch.proof")];
    c.rejected(
        "a proof of the other one",
        &proof,
        "model id: the proof is about another model",
    );

    c.kind("chat template");
    lie(&mut c, w, "template", "another one", |id| {
        id.header.template_hash = [1; 32];
    });
    c
}

pub fn others(w: &World) -> Cases<'_> {
    let mut c = Cases::new(w);
    c.kind("id");
    for (what, id) in [
        ("of another model", "stranger.id"),
        ("of the same model, committed to again", "twin.id"),
        ("rotated to", "next.id"),
        ("of the same weights with another tokenizer", "normal.id"),
    ] {
        c.rejected(what, &[("--id", id)], OTHER_ID);
        // With a slip that says it belongs to it, and with the proof too.
        let name = format!("under-{id}");
        let digest = w.folder.id(id).digest();
        w.slip(&name, "proofs/story.slip", |s| s.model = digest);
        let slip = format!("{name}.slip");
        if id == "next.id" {
            w.note(id);
        }
        let check = "model id: the proof is about another model";
        c.rejected(
            &format!("{what}, in the slip"),
            &[("--id", id), ("--slip", &slip)],
            check,
        );
        let proof = format!("{name}.proof");
        w.edit(&proof, "proofs/batch.proof", |bytes| {
            bytes[12..44].copy_from_slice(&digest);
        });
        let files = [("--id", id), ("--slip", &slip), ("--proof", &proof)];
        c.rejected(&format!("{what}, in slip and proof"), &files, "");
    }
    for (what, file) in [
        ("a slip", "proofs/story.slip"),
        ("a proof", "proofs/batch.proof"),
        ("a certificate", "model.cert"),
        ("a key", "model.key"),
        ("a model", "model.zkm"),
    ] {
        c.unusable(
            what,
            &[("--id", file)],
            &[file, "this is not a model id file"],
        );
    }

    c.kind("expected id");
    for (what, id) in [
        ("of another model", "stranger.id"),
        ("of the same model", "twin.id"),
    ] {
        let check = "model id: model.id is not the id that was expected";
        c.rejected(what, &[("--expect-id", &w.digest(id))], check);
    }
    let mut near = w.folder.id("model.id").digest();
    near[31] ^= 1;
    let near = zkmoe::output::hex(&near);
    c.rejected(
        "one bit off",
        &[("--expect-id", &near)],
        "is not the id that was expected",
    );
    for (what, digits) in [
        ("too short", &near[..62]),
        ("no digits", &"g".repeat(64)),
        ("empty", ""),
    ] {
        c.unusable(
            what,
            &[("--expect-id", digits)],
            &["--expect-id", "64 hexadecimal digits"],
        );
    }
    // Everything of a stranger fits together; only the id tells.
    let stranger = [
        ("--id", "stranger.id"),
        ("--proof", "stranger/batch.proof"),
        ("--slip", "stranger/stranger-story.slip"),
        ("--response-file", "stranger-story.txt"),
    ];
    let expected = w.digest("model.id");
    let compared = [&stranger[..], &[("--expect-id", &expected)]].concat();
    c.rejected(
        "all of a stranger",
        &compared,
        "stranger.id is not the id that was expected",
    );
    c
}

pub fn edited(w: &World) -> Cases<'_> {
    let mut c = Cases::new(w);
    c.kind("edited id");
    let lies: [(&str, &str, &Change<'_>); 10] = [
        ("shift", "one shift", &|id| id.header.scales.gate_shift += 1),
        ("epsilon", "one epsilon", &|id| {
            id.header.scales.norm_epsilon += 1;
        }),
        ("end", "the end token", &|id| id.header.eos_token = 5),
        ("pad", "the pad token", &|id| id.header.pad_token = 5),
        ("exp", "an entry of a table", &|id| {
            id.header.exp_table[40] ^= 1;
        }),
        ("angle", "an angle", &|id| id.header.cos_table[9] ^= 1),
        ("top", "one expert more for each token", &|id| {
            id.header.sizes.num_experts_per_tok += 1;
        }),
        ("root", "one bit of the root", &|id| id.root[0] ^= 1),
        ("zero", "a root of zeros", &|id| id.root = [0; 32]),
        ("swapped-root", "the root of another commitment", &|id| {
            id.root = w.folder.id("twin.id").root;
        }),
    ];
    for (name, what, change) in lies {
        lie(&mut c, w, name, what, change);
    }

    // Weaker parameters are no id.
    c.kind("id with weak parameters");
    let weak: [(&str, &Change<'_>); 9] = [
        ("half of the positions", &|id| id.params.queries /= 2),
        ("no positions", &|id| id.params.queries = 0),
        ("fewer bits", &|id| id.params.security_bits = 80),
        ("fewer bits of WHIR", &|id| {
            id.params.whir_data.security_bits = 60;
        }),
        ("fewer bits of the tail", &|id| {
            id.params.whir_tail.security_bits = 60;
        }),
        ("no work", &|id| id.params.grinding.positions = 0),
        ("shorter codewords", &|id| {
            id.params.log_code = id.params.log_row + 1;
        }),
        ("shorter tails", &|id| id.params.trace_tail = 1),
        ("no tails", &|id| {
            (id.params.model_tail, id.params.trace_tail) = (1, 1);
        }),
    ];
    for (what, change) in weak {
        let file = format!("weak {what}.id");
        let mut id = w.folder.id("model.id");
        change(&mut id);
        w.folder.write(&file, id.encode());
        c.unusable(
            what,
            &[("--id", &file)],
            &[&file, "`code parameters: ", "is not allowed"],
        );
    }

    // One bit anywhere. The file holds nothing that does not count.
    c.kind("one bit of the id");
    let bytes = w.folder.read("model.id");
    let step = bytes.len() / 61;
    for at in (0..bytes.len()).step_by(step) {
        let file = format!("bit{at}.id");
        w.edit(&file, "model.id", |bytes| bytes[at] ^= 1 << (at % 8));
        let changed = w.folder.read(&file);
        match ModelId::decode(&changed) {
            Ok(_) => c.rejected(&format!("byte {at}"), &[("--id", &file)], OTHER_ID),
            Err(_) => c.unusable(&format!("byte {at}"), &[("--id", &file)], &[&file]),
        }
    }
    for (what, change) in [
        (
            "cut",
            &(|bytes: &mut Vec<u8>| bytes.truncate(100_000)) as &dyn Fn(&mut Vec<u8>),
        ),
        ("cut at the end", &|bytes| bytes.truncate(bytes.len() - 1)),
        ("extended", &|bytes| bytes.push(0)),
        ("empty", &|bytes| bytes.clear()),
        ("of another version", &|bytes| bytes[8] = 2),
    ] {
        let file = format!("{what}.id");
        w.edit(&file, "model.id", change);
        c.unusable(what, &[("--id", &file)], &[&file]);
    }
    c
}
