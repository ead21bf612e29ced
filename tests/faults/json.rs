//! `--json`: standard output is one JSON object, also where a command fails.

use serde_json::Value;

use crate::common::{Finished, finish};
use crate::{CERTIFY, COMMIT, PROVE, ROTATE, RUN, import, original, provider};

/// The object that a failed command prints.
#[track_caller]
fn failed(finished: Finished) -> (Value, String) {
    let finished = finished.with_code(2);
    let json: Value = serde_json::from_str(&finished.out)
        .unwrap_or_else(|error| panic!("{error}: {finished:#?}"));
    assert_eq!(json["exit_code"], 2, "{json}");
    assert!(json.get("verdict").is_none(), "{json}");
    (json, finished.err)
}

#[test]
fn every_failure_is_one_object() {
    let place = provider("json");
    let missing = "missing.xyz";
    let out = "--out new";
    for args in [
        import("new.zkm").replace(crate::CHECKPOINT, missing),
        RUN.replace("model.zkm", missing),
        COMMIT.replace("model.zkm", missing),
        CERTIFY.replace("model.key", missing),
        PROVE.replace("story.json", missing),
        ROTATE.replace("model.id", missing),
        format!("verify-model --id {missing} --cert {missing}"),
        format!("verify --id {missing} --proof {missing} --slip {missing} --prompt a --response b"),
        format!("verify-rotation --from {missing} --to {missing} --proof {missing}"),
        format!("inspect {missing}"),
        format!("relation --id {missing}"),
        format!("params --config {missing}"),
        format!("params --id {missing}"),
        format!("import {missing} {out}"),
    ] {
        let (json, err) = failed(finish(place.command(&format!("{args} --json"))));
        let error = json["error"].as_str().unwrap();
        assert!(error.contains(missing), "{args}: {json}");
        // People read the same.
        assert!(err.contains(&format!("error: {error}\n")), "{args}: {err}");
        let advice = json["advice"].as_str();
        assert!(advice.is_none_or(|advice| err.contains(advice)), "{err}");
        // Without the option standard output stays empty.
        let plain = finish(place.command(&args)).with_code(2);
        assert!(plain.out.is_empty(), "{}", plain.out);
        assert_eq!(plain.err.lines().next(), err.lines().next());
    }
}

#[test]
fn arguments_that_cannot_be_used_are_one_object() {
    for args in [
        "--json",
        "unknown --json",
        "import --json",
        "run model.zkm --prompt a --max-tokens 0 --out new.json --json",
        "run model.zkm --prompt a --max-tokens 65537 --out new.json --json",
        "verify --json",
    ] {
        let (json, err) = failed(finish(original().command(args)));
        let error = json["error"].as_str().unwrap();
        assert!(!error.is_empty() && !error.contains('\u{1b}'), "{json}");
        assert!(err.contains(error.lines().next().unwrap()), "{err}");
    }
    let help = original().expect("run --help --json", 0);
    assert!(help.out.contains("REPLY.json"), "help is help");
}

#[test]
fn a_report_and_a_failure_are_not_two_objects() {
    let args = "params --id model.id --tokens 512 --replies 800 --json";
    let finished = original().expect(args, 2);
    let json: Value = serde_json::from_str(&finished.out).unwrap();
    assert!(json["refused"].is_string(), "{json}");
    assert!(
        finished.err.contains("would be refused"),
        "{}",
        finished.err
    );
}
