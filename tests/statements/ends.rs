//! Lies about how a reply ended.
//!
//! That a reply ended is in its tokens, which are proved. `reply.json` says it too, for people: `prove` refuses a file that
//! does not say what the tokens say, and a verdict never comes from that file.

use zkmoe::reply::{Ended, Reply};

use crate::cases::{Cases, unusable};
use crate::world::{LIMIT, World};

pub fn cases(w: &World) -> Cases<'_> {
    let mut c = Cases::new(w);
    let end = w.model.header().eos_token;
    c.kind("end");
    let ending = [
        ("--slip", "proofs/ending.slip"),
        ("--response-file", "ending.txt"),
        ("--prompt", w.ending.as_str()),
    ];
    let with = |options: &[(&'static str, &'static str)]| [&ending[..], options].concat();
    let at_limit = "end: the reply ended at its limit of 8 tokens";
    let at_end = "end: the reply ended with the end of the text";
    c.rejected(
        "a limit passed off as the end",
        &[("--ended", "eos")],
        at_limit,
    );
    c.rejected(
        "a limit passed off as early",
        &[("--ended", "early")],
        at_limit,
    );
    c.rejected(
        "the end passed off as a limit",
        &with(&[("--ended", "limit")]),
        at_end,
    );
    c.rejected(
        "the end passed off as early",
        &with(&[("--ended", "early")]),
        at_end,
    );
    c.accepted("the end as the end", &with(&[("--ended", "eos")]));
    c.accepted("the limit as the limit", &[("--ended", "limit")]);

    // The end of the text has no letters, so the text stays as it was.
    w.slip("ended", "proofs/story.slip", |s| {
        *s.response.last_mut().unwrap() = end;
    });
    let text = w.text("ended.slip");
    let files = [("--slip", "ended.slip"), ("--response", &text[..])];
    c.mismatch("the last token exchanged for the end", &files);
    w.slip("ended-more", "proofs/story.slip", |s| s.response.push(end));
    c.mismatch("the end behind the limit", &[("--slip", "ended-more.slip")]);
    w.slip("ended-twice", "proofs/ending.slip", |s| {
        s.response.push(end);
    });
    c.mismatch("the end twice", &with(&[("--slip", "ended-twice.slip")]));
    w.slip("endless", "proofs/ending.slip", |s| {
        s.response.pop();
    });
    c.mismatch("the end taken away", &with(&[("--slip", "endless.slip")]));
    let tokens = w.folder.slip("proofs/ending.slip").response.len() as u32;
    w.slip("limit-at-end", "proofs/ending.slip", |s| {
        s.max_tokens = tokens;
    });
    c.mismatch(
        "the limit moved to the end",
        &with(&[("--slip", "limit-at-end.slip")]),
    );
    w.slip("limit-at-end-too", "proofs/ending.slip", |s| {
        s.response.pop();
        s.max_tokens = tokens - 1;
    });
    let files = with(&[("--slip", "limit-at-end-too.slip"), ("--ended", "limit")]);
    c.mismatch("the end taken away and the limit lowered", &files);

    // Text behind the end, by a provider who lets the model go on and proves that.
    let prompt = w.tokenizer.encode(&w.ending).unwrap();
    let mut response = w.folder.slip("proofs/ending.slip").response;
    let more = w.answer(&[&prompt[..], &response].concat());
    response.extend(more);
    w.prove_tokens("beyond", prompt, response);
    let text = w.text("beyond.slip");
    let files = [
        ("--slip", "beyond.slip"),
        ("--proof", "beyond.proof"),
        ("--prompt", w.ending.as_str()),
        ("--response", &text),
    ];
    c.rejected(
        "text behind the end",
        &files,
        "slip: the response goes on after the end of the text",
    );

    // A reply that was cut and honestly proved is accepted, and said to be cut; whoever demands more has the means.
    let early = [
        ("--proof", "cut/batch.proof"),
        ("--slip", "cut/early.slip"),
        ("--response-file", "early.txt"),
    ];
    let limited = [
        ("--proof", "cut/batch.proof"),
        ("--slip", "cut/limited.slip"),
        ("--response-file", "limited.txt"),
    ];
    c.accepted(
        "cut, as early",
        &[&early[..], &[("--ended", "early")]].concat(),
    );
    c.accepted(
        "cut, as its limit",
        &[&limited[..], &[("--ended", "limit"), ("--max-tokens", "5")]].concat(),
    );
    let stopped = "end: the reply was stopped early, below its limit of 8 tokens";
    for ended in ["eos", "limit"] {
        c.rejected(
            "cut, passed off as whole",
            &[&early[..], &[("--ended", ended)]].concat(),
            stopped,
        );
    }
    let check = "limit: the reply was made with a limit of 5 tokens, not 8";
    c.rejected(
        "cut, with a limit of its own",
        &[&limited[..], &[("--max-tokens", "8")]].concat(),
        check,
    );
    c.rejected(
        "cut, as the whole",
        &[("--response-file", "early.txt")],
        "response: the slip is for another text",
    );
    c.unusable(
        "no such end",
        &[("--ended", "overflow")],
        &["--ended", "early"],
    );

    c.kind("limit");
    for limit in ["7", "9", "1", "4294967295"] {
        let check = format!("limit: the reply was made with a limit of 8 tokens, not {limit}");
        c.rejected(limit, &[("--max-tokens", limit)], &check);
    }
    c.unusable("none", &[("--max-tokens", "0")], &["--max-tokens"]);

    c.kind("end in reply.json");
    let files = ["--key", "model.key", "--id", "model.id", "--out", "never"];
    for (name, tokens) in [
        ("story", Ended::Limit),
        ("ending", Ended::Eos),
        ("early", Ended::Overflow),
    ] {
        for ended in [Ended::Eos, Ended::Limit, Ended::Context, Ended::Overflow] {
            if ended == tokens {
                continue;
            }
            let file = format!("{name}-{ended:?}.json");
            let reply = Reply {
                ended,
                ..w.folder.reply(name)
            };
            assert_eq!(reply.max_tokens, LIMIT);
            reply.save(&w.folder.0.join(&file)).unwrap();
            let args = [&["prove", "model.zkm", &file][..], &files].concat();
            let expect = unusable(&[&file, "`ended` says that", tokens.words()]);
            c.command(&format!("{name} as {ended:?}"), &args, expect);
        }
    }
    c
}
