//! One statement and how checking it has to end.

use serde_json::Value;
use zkmoe::commit::codec::Reader;
use zkmoe::verifier::batch::read_proof_header;
use zkmoe::visible::Line;

use crate::provider::{hex, texts};
use crate::world::World;

/// How a command has to end.
#[derive(Debug, Clone)]
pub enum Expect {
    /// Exit code 0.
    Accepted,
    /// Exit code 1, and a check that says this.
    Rejected(String),
    /// Exit code 2, no verdict, and a message that says all of this.
    Unusable(Vec<String>),
}

impl Expect {
    pub fn code(&self) -> i32 {
        match self {
            Self::Accepted => 0,
            Self::Rejected(_) => 1,
            Self::Unusable(_) => 2,
        }
    }
}

/// A statement.
pub struct Case<'w> {
    world: &'w World,
    /// What kind of thing is exchanged.
    pub kind: &'static str,
    /// By what.
    what: String,
    args: Vec<String>,
    /// How it has to end.
    pub expect: Expect,
}

impl Case<'_> {
    /// Runs the command for people and as JSON; what is wrong, if something is.
    pub fn run(&self) -> Option<String> {
        let fault = self.fault()?;
        Some(format!("{}, {}: {fault}", self.kind, self.what))
    }

    fn output(&self, json: bool) -> (Option<i32>, String, String) {
        let mut args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        args.extend(json.then_some("--json"));
        let output = self.world.folder.zkmoe(&args);
        let (out, err) = texts(&output);
        (output.status.code(), out, err)
    }

    fn fault(&self) -> Option<String> {
        let (code, text, err) = self.output(false);
        let (json_code, json, json_err) = self.output(true);
        let expected = Some(self.expect.code());
        if code != expected || json_code != expected {
            return Some(format!(
                "ended with {code:?} and {json_code:?}: {text}{json}{err}{json_err}"
            ));
        }
        let demand = |holds: bool, what: &str| {
            (!holds).then(|| format!("{what}:\n{text}\n{json}\n{err}\n{json_err}"))
        };
        match &self.expect {
            Expect::Unusable(parts) => demand(text.is_empty(), "a verdict")
                .or_else(|| demand(is_failure(&json), "no failure, or a verdict"))
                .or_else(|| demand(err == json_err, "other messages"))
                .or_else(|| demand(err.starts_with("error: "), "no message"))
                .or_else(|| {
                    let missing = parts.iter().find(|part| !err.contains(*part))?;
                    demand(false, &format!("no word of {missing:?}"))
                }),
            Expect::Rejected(part) => {
                let Ok(verdict) = serde_json::from_str::<Value>(&json) else {
                    return demand(false, "no JSON");
                };
                let check = verdict["check"].as_str().unwrap_or_default();
                demand(err.is_empty() && json_err.is_empty(), "a message")
                    .or_else(|| demand(!check.is_empty(), "no check"))
                    .or_else(|| demand(check.contains(part), &format!("no word of {part:?}")))
                    .or_else(|| {
                        demand(
                            text == format!("REJECTED: {}\n", Line(check)),
                            "another verdict",
                        )
                    })
                    .or_else(|| demand(verdict == self.rejection(check), "other fields"))
            }
            Expect::Accepted => {
                let Ok(verdict) = serde_json::from_str::<Value>(&json) else {
                    return demand(false, "no JSON");
                };
                demand(err.is_empty() && json_err.is_empty(), "a message")
                    .or_else(|| demand(text.starts_with("ACCEPTED "), "another verdict"))
                    .or_else(|| demand(verdict["verdict"] == "ACCEPTED", "another verdict"))
            }
        }
    }

    /// All of the JSON object of a rejection.
    fn rejection(&self, check: &str) -> Value {
        let mut verdict = serde_json::json!({"verdict": "REJECTED", "check": check});
        for (option, field) in [("--id", "model_id"), ("--from", "from"), ("--to", "to")] {
            if let Some(at) = self.args.iter().position(|arg| arg == option) {
                let id = self.world.folder.id(&self.args[at + 1]);
                verdict[field] = hex(&id.digest()).into();
            }
        }
        verdict
    }
}

/// Cases of some kinds.
pub struct Cases<'w> {
    world: &'w World,
    kind: &'static str,
    pub list: Vec<Case<'w>>,
}

impl<'w> Cases<'w> {
    pub fn new(world: &'w World) -> Self {
        Self {
            world,
            kind: "",
            list: Vec::new(),
        }
    }

    /// What follows is of this kind.
    pub fn kind(&mut self, kind: &'static str) {
        self.kind = kind;
    }

    /// Any command.
    pub fn command(&mut self, what: &str, args: &[&str], expect: Expect) {
        self.list.push(Case {
            world: self.world,
            kind: self.kind,
            what: what.to_owned(),
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            expect,
        });
    }

    /// The verification of the first reply after some changes, which has to be rejected by this check.
    pub fn rejected(&mut self, what: &str, changes: &[(&str, &str)], check: &str) {
        self.verify(what, changes, Expect::Rejected(check.to_owned()));
    }

    /// The same with a request that is not the one in the batch: it has other tokens, or more than there is room for.
    pub fn mismatch(&mut self, what: &str, changes: &[(&str, &str)]) {
        let args = verify_args(changes);
        let value = |option: &str| {
            let at = args.iter().position(|&arg| arg == option)?;
            Some(args[at + 1])
        };
        let folder = &self.world.folder;
        let prompt = match value("--prompt") {
            Some(text) => text.to_owned(),
            None => String::from_utf8(folder.read(value("--prompt-file").unwrap())).unwrap(),
        };
        let slip = folder.slip(value("--slip").unwrap());
        let proof = folder.read(value("--proof").unwrap());
        let header = folder.id(value("--id").unwrap()).header;
        let (_, batch) = read_proof_header(&mut Reader::new(&proof), &header).unwrap();
        let used = self.world.tokenizer.encode(&prompt).unwrap().len() + slip.response.len();
        let fits = used <= batch.shape.lengths[slip.request as usize];
        let check = if fits && !slip.response.is_empty() {
            "slip: the batch holds another prompt, response or limit for this request"
        } else {
            "slip: prompt and response do not fit the request's length"
        };
        self.rejected(what, changes, check);
    }

    /// The same without a verdict, with a message that names all of these.
    pub fn unusable(&mut self, what: &str, changes: &[(&str, &str)], parts: &[&str]) {
        self.verify(what, changes, unusable(parts));
    }

    /// The same, which has to be accepted.
    pub fn accepted(&mut self, what: &str, changes: &[(&str, &str)]) {
        self.verify(what, changes, Expect::Accepted);
    }

    fn verify(&mut self, what: &str, changes: &[(&str, &str)], expect: Expect) {
        let args = verify_args(changes);
        self.command(what, &args, expect);
    }
}

/// No verdict, and a message that names all of these.
pub fn unusable(parts: &[&str]) -> Expect {
    Expect::Unusable(parts.iter().map(|&part| part.to_owned()).collect())
}

/// The arguments that verify the first reply, after some changes: pairs of an option and its new value. A text in place of a
/// file takes the file's place.
pub fn verify_args<'a>(changes: &[(&'a str, &'a str)]) -> Vec<&'a str> {
    let mut options = vec![
        ("--id", "model.id"),
        ("--proof", "proofs/batch.proof"),
        ("--slip", "proofs/story.slip"),
        ("--prompt", crate::world::STORY),
        ("--response-file", "story.txt"),
    ];
    for &(option, value) in changes {
        let same = |name: &str| name.trim_end_matches("-file") == option.trim_end_matches("-file");
        options.retain(|(name, _)| !same(name));
        options.push((option, value));
    }
    let options = options.into_iter().flat_map(|(name, value)| [name, value]);
    ["verify"].into_iter().chain(options).collect()
}

/// Whether this is one JSON object that says what failed, and nothing of a verdict.
fn is_failure(json: &str) -> bool {
    let object: serde_json::Value = serde_json::from_str(json).unwrap_or_default();
    object["error"].is_string() && object["exit_code"] == 2 && object.get("verdict").is_none()
}
