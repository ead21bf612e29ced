//! Lies about the prompt and about the response.

use crate::cases::Cases;
use crate::world::{COMPOSED, DECOMPOSED, STORY, WORD, World};

pub fn prompts(w: &World) -> Cases<'_> {
    let mut c = Cases::new(w);
    c.kind("prompt");
    for (what, prompt) in [
        ("one character", "Once upon a tine"),
        ("a word", "Once upon a place"),
        ("a character less", "Once upon a tim"),
        ("case", "once upon a time"),
        ("a newline at the end", "Once upon a time\n"),
        ("a space at the end", "Once upon a time "),
        ("a space at the start", " Once upon a time"),
        ("two spaces", "Once  upon a time"),
        ("a newline within", "Once upon\na time"),
        ("a space that does not break", "Once\u{a0}upon a time"),
        ("a look-alike", "\u{41e}nce upon a time"),
        ("a full-width letter", "\u{ff2f}nce upon a time"),
        ("a space of no width", "Once\u{200b} upon a time"),
        ("a byte order mark", "\u{feff}Once upon a time"),
        ("a change of direction", "Once upon a time\u{202e}"),
        ("an invisible tag", "Once upon a time\u{e0061}"),
        ("a control character", "Once upon a time\u{1}"),
        ("an escape sequence", "Once upon a time\u{1b}[8m!\u{1b}[0m"),
        ("end-of-text in letters", "Once upon a time<|endoftext|>"),
        ("end-of-text before it", "<|endoftext|>Once upon a time"),
        ("another request's", WORD),
        ("twice", "Once upon a timeOnce upon a time"),
    ] {
        c.mismatch(what, &[("--prompt", prompt)]);
    }
    c.rejected("none", &[("--prompt", "")], "prompt: it is empty");
    for (what, reply, prompt) in [
        ("decomposed", "composed", DECOMPOSED),
        ("composed", "decomposed", COMPOSED),
        ("without its mark", "composed", "cafe noir"),
    ] {
        let (slip, text) = (format!("proofs/{reply}.slip"), format!("{reply}.txt"));
        let changes = [
            ("--slip", &slip[..]),
            ("--response-file", &text),
            ("--prompt", prompt),
        ];
        c.mismatch(what, &changes);
    }
    w.folder.write("crlf.txt", "Once upon a time\r\n");
    w.folder.write("line.txt", "Once upon a time\n");
    w.folder.write("latin.txt", b"caf\xe9 noir");
    w.folder.write("wide.txt", b"O\0n\0c\0e\0 \0\xd8\xd8");
    w.folder.write("nothing.txt", "");
    c.mismatch(
        "a file with a last newline",
        &[("--prompt-file", "line.txt")],
    );
    c.mismatch("a file of another system", &[("--prompt-file", "crlf.txt")]);
    c.rejected(
        "an empty file",
        &[("--prompt-file", "nothing.txt")],
        "prompt: it is empty",
    );
    for file in ["latin.txt", "wide.txt"] {
        c.unusable(
            "no UTF-8",
            &[("--prompt-file", file)],
            &[file, "is not UTF-8 text"],
        );
    }
    c.unusable("no file", &[("--prompt-file", "none.txt")], &["none.txt"]);

    c.kind("prompt and response");
    // The same text altogether, with the border elsewhere: as given, and with a slip that fits the response.
    let response = w.text("proofs/story.slip");
    let first = w
        .tokenizer
        .decode(&w.folder.slip("proofs/story.slip").response[..1])
        .unwrap();
    let rest = &response[first.len()..];
    let longer = format!("{STORY}{first}");
    let moved = [("--prompt", &longer[..]), ("--response", rest)];
    c.rejected(
        "a token moved to the prompt",
        &moved,
        "response: the slip is for another text",
    );
    w.slip("moved", "proofs/story.slip", |s| {
        s.response.remove(0);
    });
    c.mismatch(
        "and to the slip",
        &[&moved[..], &[("--slip", "moved.slip")]].concat(),
    );
    let longer = format!(" time{response}");
    let moved = [("--prompt", "Once upon a"), ("--response", &longer)];
    c.rejected(
        "a word moved to the response",
        &moved,
        "response: the slip is for another text",
    );
    let word = w.tokenizer.encode(" time").unwrap();
    w.slip("grown", "proofs/story.slip", |s| {
        s.response.splice(0..0, word.clone());
    });
    c.mismatch(
        "and to the slip",
        &[&moved[..], &[("--slip", "grown.slip")]].concat(),
    );
    w.slip("all", "proofs/story.slip", |s| {
        s.response.splice(0..0, w.tokenizer.encode(STORY).unwrap());
    });
    let whole = format!("{STORY}{response}");
    let moved = [
        ("--prompt", ""),
        ("--response", &whole),
        ("--slip", "all.slip"),
    ];
    c.rejected("all of it in the response", &moved, "prompt: it is empty");
    let swapped = [("--prompt", &response[..]), ("--response", STORY)];
    c.rejected(
        "swapped",
        &swapped,
        "response: the slip is for another text",
    );
    w.slip("swapped", "proofs/story.slip", |s| {
        s.response = w.tokenizer.encode(STORY).unwrap();
    });
    c.mismatch(
        "and in the slip",
        &[&swapped[..], &[("--slip", "swapped.slip")]].concat(),
    );
    c
}

pub fn responses(w: &World) -> Cases<'_> {
    let mut c = Cases::new(w);
    let honest = w.text("proofs/story.slip");
    let other = w.text("proofs/word.slip");
    let (first, last) = (
        honest.chars().next().unwrap(),
        honest.chars().next_back().unwrap(),
    );
    let without_last = honest.strip_suffix(last).unwrap();
    let changed = |c: char| if c == 'x' { 'y' } else { 'x' };
    c.kind("response");
    for (what, response) in [
        (
            "first character",
            honest.replacen(first, &changed(first).to_string(), 1),
        ),
        ("last character", format!("{without_last}{}", changed(last))),
        ("a character less", without_last.to_owned()),
        ("a character more", format!("{honest}!")),
        ("another request's", other.clone()),
        ("twice", honest.repeat(2)),
        ("none", String::new()),
        ("the prompt before it", format!("{STORY}{honest}")),
        ("a newline at the end", format!("{honest}\n")),
        ("a space at the end", format!("{honest} ")),
        ("a space at the start", format!(" {honest}")),
        ("case", honest.chars().map(other_case).collect()),
        ("end-of-text in letters", format!("{honest}<|endoftext|>")),
        ("a space of no width", format!("{honest}\u{200b}")),
        ("a change of direction", format!("\u{202e}{honest}")),
        ("a control character", format!("{honest}\u{1}")),
        (
            "a verdict behind it",
            format!("{honest}\nACCEPTED request 0"),
        ),
    ] {
        let check = "response: the slip is for another text";
        c.rejected(what, &[("--response", &response)], check);
        // The provider edits the slip so that it fits the text.
        let name = format!("response {what}");
        w.slip(&name, "proofs/story.slip", |s| {
            s.response = w.tokenizer.encode(&response).unwrap();
        });
        let slip = format!("{name}.slip");
        let shown = w.text(&slip);
        c.mismatch(
            &format!("{what}, in the slip too"),
            &[("--response", &shown), ("--slip", &slip)],
        );
    }
    for cut in 1..w.folder.slip("proofs/story.slip").response.len() {
        let name = format!("cut{cut}");
        w.slip(&name, "proofs/story.slip", |s| s.response.truncate(cut));
        let slip = format!("{name}.slip");
        let text = w.text(&slip);
        c.mismatch(
            &format!("{cut} tokens left"),
            &[("--response", &text), ("--slip", &slip)],
        );
    }
    w.folder.write("latin-response.txt", b"caf\xe9");
    c.unusable(
        "no UTF-8",
        &[("--response-file", "latin-response.txt")],
        &["latin-response.txt", "is not UTF-8 text"],
    );
    c
}

fn other_case(c: char) -> char {
    if c.is_ascii_lowercase() {
        c.to_ascii_uppercase()
    } else {
        c.to_ascii_lowercase()
    }
}

/// Tokens of a text, one for each of its bytes.
fn letters(w: &World, text: &str) -> Vec<u32> {
    let one = |c: char| w.tokenizer.encode(&c.to_string()).unwrap();
    let ids: Vec<u32> = text.chars().flat_map(one).collect();
    assert_eq!(w.tokenizer.decode(&ids).unwrap(), text);
    ids
}

/// One text, other tokens. A prompt stands for the tokens that the tokenizer makes of it, and for no others; a response for
/// those that the model decoded, whichever they were.
pub fn tokenizations(w: &World) -> Cases<'_> {
    let mut c = Cases::new(w);
    c.kind("tokenization");
    let text = w.text("proofs/story.slip");
    let decoded = w.folder.slip("proofs/story.slip").response;
    for (what, ids) in [
        ("of the response, letter by letter", letters(w, &text)),
        (
            "of the response, as the tokenizer has it",
            w.tokenizer.encode(&text).unwrap(),
        ),
    ] {
        if ids == decoded {
            continue;
        }
        let name = what.replace(' ', "-");
        w.slip(&name, "proofs/story.slip", |s| s.response = ids);
        let slip = format!("{name}.slip");
        assert_eq!(w.text(&slip), text);
        c.mismatch(what, &[("--slip", &slip)]);
    }
    assert!(!c.list.is_empty(), "the response has one tokenization");

    // A provider who feeds the model other tokens of the same prompt, and proves what it decodes then.
    let prompt = letters(w, STORY);
    assert_ne!(prompt, w.tokenizer.encode(STORY).unwrap());
    w.prove_tokens("spelled", prompt.clone(), w.answer(&prompt));
    let text = w.text("spelled.slip");
    let files = [
        ("--proof", "spelled.proof"),
        ("--slip", "spelled.slip"),
        ("--response", &text),
    ];
    c.mismatch("of the prompt, letter by letter", &files);

    // What has many tokenizations is accepted in the one that the model decoded.
    let canonical = w.tokenizer.encode(STORY).unwrap();
    let answer = w.answer(&canonical);
    w.prove_tokens("plain", canonical, answer);
    let text = w.text("plain.slip");
    let files = [
        ("--proof", "plain.proof"),
        ("--slip", "plain.slip"),
        ("--response", &text),
    ];
    c.accepted("as it was decoded", &files);
    c
}
