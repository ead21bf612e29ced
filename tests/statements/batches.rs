//! Lies about the batch: another proof, requests in another order, other lengths.

use zkmoe::commit::codec::{Reader, Writer};
use zkmoe::verifier::batch::{BatchHeader, read_proof_header, write_proof_header};

use crate::cases::{Cases, unusable, verify_args};
use crate::world::{STORY, WORD, World};

/// A change of a batch header.
type Change = dyn Fn(&mut BatchHeader);

/// A proof after a change of its header, followed by the messages as they were.
fn reheaded(w: &World, name: &str, change: impl FnOnce(&mut BatchHeader)) {
    w.edit(name, "proofs/batch.proof", |bytes| {
        let id = w.folder.id("model.id");
        let mut reader = Reader::new(bytes);
        let (named, mut header) = read_proof_header(&mut reader, &id.header).unwrap();
        let messages = bytes[bytes.len() - reader.remaining()..].to_vec();
        change(&mut header);
        let mut w = Writer::new();
        write_proof_header(&mut w, &named, &header);
        *bytes = [w.bytes, messages].concat();
    });
}

pub fn others(w: &World) -> Cases<'_> {
    let mut c = Cases::new(w);
    c.kind("batch");
    c.mismatch(
        "another one with the same texts",
        &[("--proof", "again/batch.proof")],
    );
    c.mismatch(
        "one with this reply alone",
        &[("--proof", "alone/batch.proof")],
    );
    c.mismatch(
        "one with padded lengths",
        &[("--proof", "padded/batch.proof")],
    );
    c.mismatch(
        "one with the reply cut short",
        &[("--proof", "cut/batch.proof")],
    );
    for (what, proof) in [
        ("one of the same model under another id", "twin/batch.proof"),
        ("one of another model", "stranger/batch.proof"),
    ] {
        c.rejected(
            what,
            &[("--proof", proof)],
            "model id: the proof is about another model",
        );
    }
    for (what, file) in [
        ("a certificate", "model.cert"),
        ("a rotation", "next.proof"),
        ("a slip", "proofs/story.slip"),
        ("an id", "model.id"),
        ("a note", "model.id.certified"),
        ("a reply", "story.json"),
    ] {
        let parts = [file, "this is not a proof file", "take the batch.proof"];
        c.unusable(what, &[("--proof", file)], &parts);
    }
    c.unusable("nothing", &[("--proof", "no.proof")], &["no.proof"]);

    // The messages of one proof behind the header of another with the same sizes.
    w.edit("grafted.proof", "proofs/batch.proof", |bytes| {
        let id = w.folder.id("model.id");
        let header = |file: &str| {
            let bytes = w.folder.read(file);
            let mut reader = Reader::new(&bytes);
            read_proof_header(&mut reader, &id.header).unwrap();
            bytes.len() - reader.remaining()
        };
        let (ours, theirs) = (header("proofs/batch.proof"), header("again/batch.proof"));
        bytes.splice(ours.., w.folder.read("again/batch.proof").drain(theirs..));
    });
    c.rejected(
        "the messages of another one",
        &[("--proof", "grafted.proof")],
        "",
    );

    c.kind("edited batch");
    let changes: [(&str, &Change); 9] = [
        ("the hash of this request", &|h| h.blocks[0][0] ^= 1),
        ("the hash of another request", &|h| h.blocks[3][0] ^= 1),
        ("a load", &|h| h.shape.blocks[0].2 += 8),
        ("an expert less", &|h| {
            h.shape.blocks.pop();
        }),
        ("decoded rows", &|h| h.shape.decoded += 8),
        ("a request less", &|h| {
            h.shape.lengths.pop();
            h.blocks.pop();
        }),
        ("a request more", &|h| {
            h.shape.lengths.push(8);
            h.blocks.push([1; 32]);
        }),
        ("the proof before it", &|h| h.link[0][0] ^= 1),
        ("its own chain value", &|h| h.link[1][0] ^= 1),
    ];
    for (what, change) in changes {
        let proof = format!("{what}.proof");
        reheaded(w, &proof, change);
        c.rejected(what, &[("--proof", &proof)], "");
    }
    // The slip fits the edited header, so the hash of the block does; the messages do not.
    w.slip("salted", "proofs/story.slip", |s| s.salt = [7; 32]);
    let slip = w.folder.slip("salted.slip");
    let id = w.folder.id("model.id");
    let prompt = w.tokenizer.encode(STORY).unwrap();
    reheaded(w, "salted.proof", |h| {
        let block = zkmoe::verifier::batch::Block::new(
            &id.header,
            &prompt,
            &slip.response,
            h.shape.lengths[0],
            slip.max_tokens,
            slip.salt,
            slip.cells,
        );
        h.blocks[0] = block.unwrap().hash();
    });
    let files = [("--proof", "salted.proof"), ("--slip", "salted.slip")];
    c.rejected("a hash that fits an edited slip", &files, "");
    let bytes = w.folder.read("proofs/batch.proof");
    for n in 0..24 {
        let at = 44 + (bytes.len() - 45) * n / 23;
        let proof = format!("byte{at}.proof");
        w.edit(&proof, "proofs/batch.proof", |bytes| {
            bytes[at] ^= 1 << (n % 8);
        });
        let changed = w.folder.read(&proof);
        let what = format!("byte {at}");
        match read_proof_header(&mut Reader::new(&changed), &id.header) {
            Ok(_) => c.rejected(&what, &[("--proof", &proof)], ""),
            Err(_) => c.unusable(&what, &[("--proof", &proof)], &[&proof]),
        }
    }
    c
}

pub fn order_and_length(w: &World) -> Cases<'_> {
    let mut c = Cases::new(w);
    c.kind("order");
    let word = [("--prompt", WORD), ("--response-file", "word.txt")];
    let story_slip = [&word[..], &[("--slip", "proofs/story.slip")]].concat();
    c.rejected(
        "slips exchanged",
        &story_slip,
        "response: the slip is for another text",
    );
    for (name, from, number) in [("first", "word", 0), ("second", "story", 1)] {
        w.slip(name, &format!("proofs/{from}.slip"), |s| s.request = number);
    }
    c.mismatch("numbers exchanged", &[("--slip", "second.slip")]);
    let first = [&word[..], &[("--slip", "first.slip")]].concat();
    c.mismatch("numbers exchanged, the other one", &first);
    // The header's requests are exchanged as well, so that numbers and hashes fit.
    reheaded(w, "reordered.proof", |h| {
        h.blocks.swap(0, 1);
        h.shape.lengths.swap(0, 1);
    });
    let files = [("--slip", "second.slip"), ("--proof", "reordered.proof")];
    c.rejected("numbers and hashes exchanged", &files, "");
    let files = [
        &word[..],
        &[("--slip", "first.slip"), ("--proof", "reordered.proof")],
    ]
    .concat();
    c.rejected("numbers and hashes exchanged, the other one", &files, "");
    reheaded(w, "twice.proof", |h| h.blocks[1] = h.blocks[0]);
    c.rejected(
        "one request twice",
        &[("--proof", "twice.proof"), ("--slip", "second.slip")],
        "",
    );

    c.kind("length");
    let context = w.model.header().sizes.max_position_embeddings;
    for (what, change) in [
        (
            "a longer request",
            &(|n: &mut usize| *n += 8) as &dyn Fn(&mut usize),
        ),
        ("a shorter request", &|n| *n -= 8),
        ("a request of one more", &|n| *n += 1),
        ("the longest request", &|n| *n = context),
    ] {
        let proof = format!("{what}.proof");
        reheaded(w, &proof, |h| change(&mut h.shape.lengths[0]));
        c.rejected(what, &[("--proof", &proof)], "");
    }
    for (what, length) in [
        ("no length", 0),
        ("a length above the context", context + 1),
    ] {
        let proof = format!("{what}.proof");
        reheaded(w, &proof, |h| h.shape.lengths[0] = length);
        c.unusable(
            what,
            &[("--proof", &proof)],
            &[&proof, "`length of a request`"],
        );
    }
    // Padding, passed off as text: the pad token is an exclamation mark here.
    let pad = w.model.header().pad_token;
    for n in [1, 2, 40] {
        let name = format!("padding{n}");
        w.slip(&name, "proofs/story.slip", |s| {
            s.response.extend(vec![pad; n]);
        });
        let slip = format!("{name}.slip");
        let text = w.text(&slip);
        assert!(text.ends_with('!'));
        let files = [("--slip", &slip[..]), ("--response", &text)];
        c.mismatch(&format!("{n} tokens of padding in the response"), &files);
    }
    let longer = format!("{STORY}!");
    c.mismatch("padding in the prompt", &[("--prompt", &longer)]);
    let long = "word ".repeat(40);
    c.mismatch("a prompt that does not fit", &[("--prompt", &long)]);

    // As many requests as a header may not have, and none.
    for (what, count) in [("no requests", 0u32), ("a million requests", 1 << 20)] {
        let proof = format!("{what}.proof");
        w.edit(&proof, "proofs/batch.proof", |bytes| {
            bytes[44..48].copy_from_slice(&count.to_le_bytes());
        });
        let args = verify_args(&[("--proof", &proof)]);
        c.command(what, &args, unusable(&[&proof, "`number of requests`"]));
    }
    c
}
