//! Odd prompts: every byte, every length around the context, and what editors and shells do to a text.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

use serde_json::Value;
use zkmoe::commands::run;
use zkmoe::failure::Failure;
use zkmoe::input::Prompt;
use zkmoe::prover::model::Model;
use zkmoe::prover::tokenizer::Tokenizer;
use zkmoe::reply::{Ended, Reply};

use crate::common::{Place, finish};
use crate::{CERTIFY, PROVE, others, provider};

const CONTEXT: usize = 512;

/// Answers the prompt in a file, in this process, and writes `NAME.json`.
fn answer(place: &Place, name: &str, max_tokens: u32) -> Result<run::Report, Failure> {
    let args = run::Args {
        model: place.file("model.zkm"),
        prompt: Prompt {
            prompt: None,
            prompt_file: Some(place.file(&format!("{name}.txt"))),
        },
        max_tokens,
        out: place.file(&format!("{name}.json")),
        json: false,
    };
    run::perform(&args, &mut |_| Ok(()))
}

fn tokenizer() -> Tokenizer {
    Tokenizer::from_json(include_bytes!("../../data/olmoe-tiny/tokenizer.json")).unwrap()
}

/// A text of so many tokens.
fn tokens(n: usize) -> String {
    let text = " a".repeat(n);
    assert_eq!(tokenizer().encode(&text).unwrap().len(), n);
    text
}

#[test]
fn every_byte_alone_is_a_prompt_or_no_text() {
    let place = provider("prompts-bytes");
    let model = Model::open(&place.file("model.zkm")).unwrap();
    for byte in 0..=u8::MAX {
        place.write("byte.txt", [byte]);
        let answered = answer(&place, "byte", 1);
        if byte.is_ascii() {
            let reply = answered.unwrap().reply;
            assert_eq!(reply.prompt.as_bytes(), [byte]);
            assert_eq!(reply.check(&tokenizer(), model.header()), Ok(()));
            assert_eq!(Reply::open(&place.file("byte.json")).unwrap(), reply);
        } else {
            let failure = answered.unwrap_err();
            let message = failure.to_string();
            assert!(
                message.ends_with("byte.txt: is not UTF-8 text (byte 0)"),
                "{message}"
            );
            assert_eq!(failure.advice(), Some("convert it to UTF-8"));
        }
    }
}

#[test]
fn what_is_no_text_is_refused_wherever_it_comes_from() {
    let place = provider("prompts-utf8");
    let mut child = place
        .command("run model.zkm --out new.json")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"Once \xff").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let err = String::from_utf8(output.stderr).unwrap();
    for part in [
        "standard input",
        "not UTF-8 text (byte 5)",
        "convert it to UTF-8",
    ] {
        assert!(err.contains(part), "{part}: {err}");
    }
    let mut command = place.command("run model.zkm --out new.json --prompt");
    command.arg(OsStr::from_bytes(b"Once \xff"));
    let finished = finish(command).with_code(2);
    assert!(finished.err.contains("UTF-8"), "{}", finished.err);
    assert!(others(&place).is_empty());
}

#[test]
fn lengths_around_the_context_are_served_or_named() {
    let place = provider("prompts-length");
    let answered = |n: usize, max_tokens: u32| {
        place.write("long.txt", tokens(n));
        answer(&place, "long", max_tokens).map(|report| report.reply)
    };
    for n in [CONTEXT, CONTEXT + 1, 20 * CONTEXT] {
        let failure = answered(n, 1).unwrap_err();
        let needed = format!(
            "its {n} tokens and one of response need {} positions",
            n + 1
        );
        let message = failure.to_string();
        for part in [&needed[..], "model.zkm has 512"] {
            assert!(message.contains(part), "{part}: {message}");
        }
        assert_eq!(failure.advice(), Some("shorten the prompt"));
    }
    // Whatever is asked for, a reply ends where the context does.
    for (n, max_tokens, most) in [
        (CONTEXT - 1, 65_536, 1),
        (CONTEXT - 3, 2, 2),
        (CONTEXT - 9, 65_536, 9),
    ] {
        let reply = answered(n, max_tokens).unwrap();
        let length = reply.response_ids.len();
        assert!((1..=most).contains(&length), "{n}: {length}");
        match reply.ended {
            Ended::Context => assert_eq!(n + length, CONTEXT),
            Ended::Limit => assert_eq!(length, max_tokens as usize),
            Ended::Eos => assert_eq!(reply.response_ids.last(), Some(&0)),
            Ended::Overflow => panic!("{n}: overflow"),
        }
    }
    place.write("long.txt", "");
    let failure = answer(&place, "long", 1).unwrap_err();
    assert!(failure.to_string().contains("prompt: it is empty"));
    for limit in ["0", "65537", "-1", "18446744073709551616"] {
        let args = format!("run model.zkm --prompt a --max-tokens={limit} --out new.json");
        let finished = finish(place.command(&args)).with_code(2);
        assert!(finished.err.contains("--max-tokens"), "{}", finished.err);
    }
}

/// Prompts that are proved in one batch.
fn odd() -> Vec<(&'static str, String)> {
    let longest = tokens(CONTEXT - 1);
    let prompts = [
        ("nul", "\0"),
        ("nuls", "Once\0upon\0"),
        ("plain", "Once upon a time"),
        ("newline", "Once upon a time\n"),
        ("unix", "Once\nupon\na time\n"),
        ("dos", "Once\r\nupon\r\na time"),
        ("mark", "\u{feff}Once"),
        ("unmarked", "Twice"),
        ("spaces", "   "),
        ("white", " \t\r\n"),
        ("indented", "  Once"),
        ("special", "Once<|endoftext|>upon"),
        ("only-special", "<|endoftext|><|endoftext|>"),
        ("nearly-special", "<|endoftext|"),
        ("marks", "e\u{301}\u{202e}\u{1f980}\u{1b}[2J"),
        ("byte", "x"),
        ("longest", &longest),
    ];
    prompts.map(|(name, text)| (name, text.to_owned())).to_vec()
}

#[test]
fn odd_prompts_are_proved_and_verified_byte_for_byte() {
    let place = provider("prompts-odd");
    for (name, prompt) in odd() {
        place.write(&format!("{name}.txt"), &prompt);
        let reply = answer(&place, name, 2).unwrap().reply;
        assert_eq!(reply.prompt, prompt);
        place.write(&format!("{name}.response"), &reply.response);
    }
    let names = odd().into_iter().map(|(name, _)| name);
    let replies: Vec<String> = names.map(|name| format!("{name}.json")).collect();
    let replies = replies.join(" ");
    place.expect(&PROVE.replace("story.json", &replies), 0);
    place.expect(CERTIFY, 0);
    place.expect("verify-model --id model.id --cert model.cert", 0);
    let verify = |name: &str, prompt: &str, response: &str, code| {
        let slip = format!("--proof proofs/batch.proof --slip proofs/{name}.slip");
        let texts = format!("--prompt-file {prompt} --response-file {response}");
        let args = format!("verify --id model.id {slip} {texts} --json");
        let out = place.expect(&args, code).out;
        serde_json::from_str::<Value>(&out).unwrap()
    };
    for (name, _) in odd() {
        let [prompt, response] = ["txt", "response"].map(|end| format!("{name}.{end}"));
        let verdict = verify(name, &prompt, &response, 0);
        let special = match name {
            "special" => 1,
            "only-special" => 2,
            _ => 0,
        };
        assert_eq!(verdict["special_in_prompt"], special, "{name}");
    }
    // What is accepted says that tokens were spelled out.
    let args = "verify --id model.id --proof proofs/batch.proof --slip proofs/only-special.slip --prompt-file \
                only-special.txt --response-file only-special.response";
    let out = place.expect(args, 0).out;
    assert!(
        out.contains("Look closely: the prompt spells out 2 special tokens"),
        "{out}"
    );

    let rejected = |name: &str, prompt: &str, response: &str, part: &str| {
        let verdict = verify(name, prompt, response, 1);
        let check = verdict["check"].as_str().unwrap();
        assert!(check.contains(part), "{part}: {check}");
    };
    // Prompts of others that look the same, and texts that were changed on the way.
    place.write("empty", "");
    place.write("marked-twice", "\u{feff}Twice");
    place.write("dos-newline", "Once\r\nupon\r\na time\r\n");
    place.write("less-space", "Once");
    for (name, prompt, part) in [
        (
            "plain",
            "newline.txt",
            "the prompt that was given, without the newline at its end",
        ),
        (
            "newline",
            "plain.txt",
            "the prompt that was given, with a newline at its end",
        ),
        (
            "unix",
            "dos-newline",
            "the prompt that was given, with line ends of one character",
        ),
        (
            "dos",
            "dos-newline",
            "the prompt that was given, without the newline at its end",
        ),
        (
            "mark",
            "less-space",
            "the prompt that was given, with a byte order mark in front",
        ),
        (
            "unmarked",
            "marked-twice",
            "the prompt that was given, without the byte order mark",
        ),
        ("plain", "nul.txt", "the batch holds another prompt"),
        ("plain", "empty", "prompt: it is empty"),
    ] {
        rejected(name, prompt, &format!("{name}.response"), part);
    }
    let response = String::from_utf8(place.read("plain.response")).unwrap();
    place.write("longer", format!("{response}\n"));
    place.write("spaced", format!("{response} \n\n"));
    place.write("other", format!("{response}!"));
    for (given, part) in [
        (
            "longer",
            "another text; it is the one that was given, without the newline at its end",
        ),
        (
            "spaced",
            "it is the one that was given, without the white space at its end",
        ),
        ("other", "\"!\" was given, the other has its end"),
        ("empty", "its end was given"),
    ] {
        rejected("plain", "plain.txt", given, part);
    }
    let args = "verify --id model.id --proof proofs/batch.proof --slip proofs/nul.slip --prompt-file model.zkm --response a";
    finish(place.command(args)).refused(&["model.zkm: is not UTF-8 text (byte "]);
}
