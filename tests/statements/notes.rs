//! Lies about what shows that weights are in range: certificates, notes and rotations.

use crate::cases::{Cases, Expect, unusable};
use crate::world::World;

/// A copy of the honest id, with this note beside it.
fn noted(w: &World, name: &str, note: &[u8]) -> String {
    let file = format!("{name}.id");
    w.folder.copy("model.id", &file);
    w.folder.write(&format!("{file}.certified"), note);
    file
}

/// Notes are 113 bytes: magic, version, id, kind, what was shown, bits, MAC.
fn edited(note: &[u8], change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut note = note.to_vec();
    assert_eq!(note.len(), 113);
    change(&mut note);
    note
}

pub fn certificates(w: &World) -> Cases<'_> {
    let mut c = Cases::new(w);
    c.kind("certificate");
    let other = "model id: the certificate is about another model";
    w.folder.copy("model.id", "bare.id");
    let model = w.folder.id("model.id").digest();
    for (what, cert) in [
        ("of the same model under another id", "twin.cert"),
        ("of another model", "stranger.cert"),
    ] {
        let files = [("--id", "bare.id"), ("--cert", cert)];
        c.rejected(what, &files, &format!("certificate: {other}"));
        let args = ["verify-model", "--id", "bare.id", "--cert", cert];
        c.command(
            &format!("{what}, checked once"),
            &args,
            Expect::Rejected(other.to_owned()),
        );
        let relabelled = format!("relabelled-{cert}");
        w.edit(&relabelled, cert, |bytes| {
            bytes[12..44].copy_from_slice(&model);
        });
        let files = [("--id", "bare.id"), ("--cert", &relabelled)];
        c.rejected(&format!("{what}, relabelled"), &files, "certificate: ");
        let args = ["verify-model", "--id", "bare.id", "--cert", &relabelled];
        c.command(
            &format!("{what}, relabelled, checked once"),
            &args,
            Expect::Rejected(String::new()),
        );
    }
    for (what, file) in [
        ("a proof of a batch", "proofs/batch.proof"),
        ("a rotation", "next.proof"),
        ("a note", "model.id.certified"),
        ("an id", "model.id"),
    ] {
        let parts = [
            file,
            "this is not a certificate file",
            "take the certificate",
        ];
        c.unusable(what, &[("--id", "bare.id"), ("--cert", file)], &parts);
        let args = ["verify-model", "--id", "bare.id", "--cert", file];
        c.command(&format!("{what}, checked once"), &args, unusable(&parts));
    }
    c.unusable(
        "none",
        &[("--id", "bare.id")],
        &[
            "bare.id: its weights were not shown to be in range",
            "there is no bare.id.certified",
        ],
    );

    c.kind("note");
    let note = w.folder.read("model.id.certified");
    let twin = w.folder.read("twin.id.certified");
    let about_other = "is about another model id";
    let not_mine = "was not made with your secret";
    let notes: [(&str, Vec<u8>, &str); 11] = [
        ("of another id", twin.clone(), about_other),
        (
            "of another id, relabelled",
            edited(&twin, |n| n[12..44].copy_from_slice(&model)),
            not_mine,
        ),
        (
            "of another certificate",
            edited(&note, |n| n[45] ^= 1),
            not_mine,
        ),
        ("of another kind", edited(&note, |n| n[44] = 1), not_mine),
        (
            "of more bits",
            edited(&note, |n| n[77..81].copy_from_slice(&9999u32.to_le_bytes())),
            not_mine,
        ),
        ("of other bits", edited(&note, |n| n[77] ^= 1), not_mine),
        (
            "with one bit of its MAC changed",
            edited(&note, |n| n[112] ^= 1),
            not_mine,
        ),
        (
            "with a MAC of zeros",
            edited(&note, |n| n[81..].fill(0)),
            not_mine,
        ),
        (
            "with the MAC of another note",
            edited(&note, |n| n[81..].copy_from_slice(&twin[81..])),
            not_mine,
        ),
        (
            "of an unknown kind",
            edited(&note, |n| n[44] = 2),
            "`kind` holds a value that is not allowed",
        ),
        ("cut", note[..81].to_vec(), "ends inside `MAC`"),
    ];
    for (n, (what, bytes, part)) in notes.into_iter().enumerate() {
        let file = noted(w, &format!("noted{n}"), &bytes);
        let name = format!("{file}.certified");
        c.unusable(
            what,
            &[("--id", &file)],
            &[&name, part, "zkmoe verify-model", "--cert"],
        );
        // A certificate at hand does not need it.
        c.accepted(
            &format!("{what}, with a certificate"),
            &[("--id", &file), ("--cert", "model.cert")],
        );
    }
    // A note that was right when it was made, and an id file that was replaced since. The new id is honest, too.
    w.folder.copy("twin.id", "stale.id");
    w.folder.write("stale.id.certified", &note);
    let stale = [
        ("--id", "stale.id"),
        ("--proof", "twin/batch.proof"),
        ("--slip", "twin/story.slip"),
    ];
    c.unusable("stale", &stale, &["stale.id.certified", about_other]);
    // Of the provider, who has a secret too.
    w.folder.copy("model.id", "shipped.id");
    w.folder.done(&[
        "verify-model",
        "--id",
        "shipped.id",
        "--cert",
        "model.cert",
        "--state",
        "provider",
    ]);
    c.unusable(
        "of the provider",
        &[("--id", "shipped.id")],
        &["shipped.id.certified", not_mine],
    );
    c.unusable(
        "of the provider, to one who has no secret",
        &[("--id", "shipped.id"), ("--state", "nobody")],
        &["shipped.id.certified", "was not made here"],
    );
    c
}

fn args<'a>(from: &'a str, to: &'a str, proof: &'a str) -> [&'a str; 7] {
    [
        "verify-rotation",
        "--from",
        from,
        "--to",
        to,
        "--proof",
        proof,
    ]
}

pub fn rotations(w: &World) -> Cases<'_> {
    let mut c = Cases::new(w);
    c.kind("rotation");
    w.folder.copy("next.id", "rotated.id");
    c.command(
        "honest",
        &args("model.id", "rotated.id", "next.proof"),
        Expect::Accepted,
    );
    w.folder.copy("heir.id", "inherited.id");
    c.command(
        "honest, the other one",
        &args("twin.id", "inherited.id", "heir.proof"),
        Expect::Accepted,
    );
    let other = "model ids: the proof is about other ids";
    let reversed = "model ids: the proof leads from the new id to the old one";
    for (what, from, to, proof, check) in [
        ("reversed", "next.id", "model.id", "next.proof", reversed),
        (
            "from another id of the same model",
            "twin.id",
            "next.id",
            "next.proof",
            other,
        ),
        (
            "to another id of the same model",
            "model.id",
            "twin.id",
            "next.proof",
            other,
        ),
        (
            "from another model",
            "stranger.id",
            "next.id",
            "next.proof",
            other,
        ),
        (
            "to another model",
            "model.id",
            "stranger.id",
            "next.proof",
            other,
        ),
        (
            "to another tokenizer",
            "model.id",
            "normal.id",
            "next.proof",
            "model ids: the headers differ",
        ),
        (
            "to itself",
            "model.id",
            "model.id",
            "next.proof",
            "model ids: both are the same",
        ),
        (
            "of another pair",
            "model.id",
            "next.id",
            "heir.proof",
            other,
        ),
        (
            "to the other heir",
            "model.id",
            "heir.id",
            "heir.proof",
            other,
        ),
    ] {
        c.command(
            what,
            &args(from, to, proof),
            Expect::Rejected(check.to_owned()),
        );
    }
    // Relabelled: the proof names the ids that are given.
    for (n, (what, from, to, proof, check)) in [
        ("from another id", "twin.id", "next.id", "next.proof", ""),
        ("to another id", "model.id", "twin.id", "next.proof", ""),
        ("to the other heir", "model.id", "heir.id", "heir.proof", ""),
        ("reversed", "next.id", "model.id", "next.proof", ""),
        (
            "to another model",
            "model.id",
            "stranger.id",
            "next.proof",
            "",
        ),
        (
            "to another tokenizer",
            "model.id",
            "normal.id",
            "next.proof",
            "model ids: the headers differ",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let file = format!("relabelled{n}.proof");
        let ids = [from, to].map(|id| w.folder.id(id).digest());
        w.edit(&file, proof, |bytes| {
            bytes[12..76].copy_from_slice(&ids.concat());
        });
        let what = format!("{what}, relabelled");
        c.command(
            &what,
            &args(from, to, &file),
            Expect::Rejected(check.to_owned()),
        );
    }
    for (what, file) in [
        ("a batch", "proofs/batch.proof"),
        ("a certificate", "model.cert"),
        ("an id", "model.id"),
    ] {
        let parts = [file, "this is not a rotation file", "take the proof"];
        c.command(what, &args("model.id", "next.id", file), unusable(&parts));
    }
    for (what, from, to) in [
        ("a slip as the old id", "proofs/story.slip", "next.id"),
        ("a key as the new id", "model.id", "next.key"),
    ] {
        let file = if to == "next.id" { from } else { to };
        c.command(
            what,
            &args(from, to, "next.proof"),
            unusable(&[file, "this is not a model id file"]),
        );
    }
    // A reply under the old id says nothing about the new one, rotation or not.
    let files = [("--id", "next.id")];
    c.rejected(
        "a reply under the old id",
        &files,
        "model id: the slip was issued under ",
    );
    c
}
