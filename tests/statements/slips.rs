//! Lies about the slip.

use zkmoe::commit::field::from_i64;
use zkmoe::verifier::slip::Slip;

use crate::cases::Cases;
use crate::world::{WORD, World};

/// A change of a slip.
type Change = dyn Fn(&mut Slip);

/// Damage to a file.
type Damage<'a> = dyn Fn(&mut Vec<u8>) + 'a;

/// The response of another slip is another text.
const OTHER_TEXT: &str = "response: the slip is for another text";
/// The slip names another id.
const OTHER_ID: &str = "model id: the slip was issued under ";

pub fn cases(w: &World) -> Cases<'_> {
    let mut c = Cases::new(w);
    c.kind("slip");
    c.rejected(
        "of another request",
        &[("--slip", "proofs/word.slip")],
        OTHER_TEXT,
    );
    let texts = [
        ("--slip", "proofs/word.slip"),
        ("--response-file", "word.txt"),
    ];
    c.mismatch("and response of another request", &texts);
    let texts = [("--slip", "proofs/word.slip"), ("--prompt", WORD)];
    c.rejected("and prompt of another request", &texts, OTHER_TEXT);
    c.mismatch(
        "of another batch with the same texts",
        &[("--slip", "again/story.slip")],
    );
    c.mismatch(
        "of a batch with this reply alone",
        &[("--slip", "alone/story.slip")],
    );
    c.mismatch(
        "of the same reply, padded",
        &[("--slip", "padded/story.slip")],
    );
    c.rejected("of another key", &[("--slip", "twin/story.slip")], OTHER_ID);
    c.rejected(
        "of another model",
        &[("--slip", "stranger/stranger-story.slip")],
        OTHER_ID,
    );

    c.kind("edited slip");
    let changes: [(&str, &Change); 14] = [
        ("another number", &|s| s.request = 1),
        ("the last number", &|s| s.request = 4),
        ("a higher limit", &|s| s.max_tokens += 1),
        ("a lower limit", &|s| s.max_tokens -= 1),
        ("no limit", &|s| s.max_tokens = 0),
        ("the highest limit", &|s| s.max_tokens = u32::MAX),
        ("a bit of the salt", &|s| s.salt[31] ^= 0x80),
        ("no salt", &|s| s.salt = [0; 32]),
        ("the first cell", &|s| s.cells[0] += from_i64(1)),
        ("the second cell", &|s| s.cells[1] += from_i64(1)),
        ("the third cell", &|s| s.cells[2] += from_i64(1)),
        ("the last cell", &|s| s.cells[3] += from_i64(1)),
        ("no cells", &|s| s.cells = [from_i64(0); 4]),
        ("two cells exchanged", &|s| s.cells.swap(0, 1)),
    ];
    for (what, change) in changes {
        w.slip(what, "proofs/story.slip", change);
        c.mismatch(what, &[("--slip", &format!("{what}.slip"))]);
    }
    let not_there = "slip: the batch has no such request";
    let changes: [(&str, &Change, &str); 3] = [
        ("a number that is not there", &|s| s.request = 5, not_there),
        ("the largest number", &|s| s.request = u32::MAX, not_there),
        ("the model id", &|s| s.model[31] ^= 1, OTHER_ID),
    ];
    for (what, change, check) in changes {
        w.slip(what, "proofs/story.slip", change);
        c.rejected(what, &[("--slip", &format!("{what}.slip"))], check);
    }
    // The response is edited, and the text with it.
    let vocabulary = w.tokenizer.id_bound();
    let changes: [(&str, &Change); 6] = [
        ("its first token", &|s| s.response[0] ^= 1),
        ("its last token", &|s| *s.response.last_mut().unwrap() ^= 1),
        ("two tokens exchanged", &|s| exchange(&mut s.response)),
        ("a token less", &|s| {
            s.response.pop();
        }),
        ("a token more", &|s| s.response.push(5)),
        ("the end of the text", &|s| s.response.push(0)),
    ];
    for (what, change) in changes {
        w.slip(what, "proofs/story.slip", change);
        let slip = format!("{what}.slip");
        let text = w.text(&slip);
        c.mismatch(what, &[("--slip", &slip), ("--response", &text)]);
    }
    w.slip("unknown", "proofs/story.slip", |s| {
        s.response[0] = vocabulary;
    });
    let check = format!("response: the tokenizer has no token {vocabulary}");
    c.rejected(
        "a token of no vocabulary",
        &[("--slip", "unknown.slip")],
        &check,
    );

    c.kind("damaged slip");
    let largest = u64::MAX.to_le_bytes();
    let damages: [(&str, &Damage<'_>, &str); 8] = [
        (
            "cut",
            &|bytes| bytes.truncate(bytes.len() - 1),
            "ends inside `response`",
        ),
        (
            "extended",
            &|bytes| bytes.push(0),
            "1 surplus bytes at the end",
        ),
        ("empty", &|bytes| bytes.clear(), "this is not a slip file"),
        (
            "of another version",
            &|bytes| bytes[8] = 9,
            "slip version 9",
        ),
        (
            "a cell out of range",
            &|bytes| bytes[84..92].copy_from_slice(&largest),
            "`cells`",
        ),
        (
            "a huge length",
            &|bytes| bytes[116..120].copy_from_slice(&[255; 4]),
            "`response length`",
        ),
        (
            "a longer length",
            &|bytes| bytes[116] += 1,
            "ends inside `response`",
        ),
        (
            "a shorter length",
            &|bytes| bytes[116] -= 1,
            "4 surplus bytes at the end",
        ),
    ];
    for (what, damage, part) in damages {
        let file = format!("slip {what}");
        w.edit(&file, "proofs/story.slip", damage);
        c.unusable(
            what,
            &[("--slip", &file)],
            &[&file, part, "ask the provider for the slip"],
        );
    }
    for (what, file) in [
        ("a proof", "proofs/batch.proof"),
        ("an id", "model.id"),
        ("a reply", "story.json"),
        ("a note", "model.id.certified"),
        ("a folder", "proofs"),
        ("nothing", "no.slip"),
    ] {
        c.unusable(what, &[("--slip", file)], &[file]);
    }
    c
}

/// Exchanges the first token with the next one that differs from it.
fn exchange(response: &mut [u32]) {
    let other = response.iter().position(|&id| id != response[0]).unwrap();
    response.swap(0, other);
}
