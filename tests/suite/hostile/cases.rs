//! What the hostile model is ordered to do, and what becomes of it: a row a case.
//!
//! In an order `$OUTSIDE`, `$USER`, `$PROJECT`, `$PORT`, `$TEST` and `$BYSTANDER` stand for the scene's places, `$BIG`
//! for a megabyte, `$DEEP` for what nests too deeply.

use serde_json::{Value, json};
use soong::RunRequest;

use super::{Leave, files, reach, runs};

/// Where the model finds its orders.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Channel {
    File,
    Child,
    Page,
    Artifact,
}

impl Channel {
    pub const ALL: [Self; 4] = [Self::File, Self::Child, Self::Page, Self::Artifact];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Child => "child",
            Self::Page => "page",
            Self::Artifact => "artifact",
        }
    }
}

/// What a case ends in.
#[derive(Clone, Copy)]
pub struct Want {
    /// Of each call `ok`, or the code of its error; one word stands for all calls.
    pub codes: &'static str,
    /// What changes in the project.
    pub changes: &'static [&'static str],
}

pub struct Case {
    pub name: &'static str,
    /// Orders as JSON.
    pub orders: Vec<String>,
    pub is_command: bool,
    /// `None` = any of them.
    pub channel: Option<Channel>,
    pub start: fn(RunRequest) -> RunRequest,
    pub nobody: Want,
    pub policy: Option<Want>,
    pub careless: Option<Want>,
}

impl Case {
    /// What becomes of it with this leave; `None` = it is not tried, for then it may do what it says.
    pub fn want(&self, leave: Leave) -> Option<Want> {
        match leave {
            Leave::Nobody => Some(self.nobody),
            Leave::Policy => self.policy,
            Leave::Careless => self.careless,
        }
    }

    pub fn new(name: &'static str, orders: Vec<Value>, codes: &'static str) -> Self {
        let nobody = Want { codes, changes: &[] };
        let orders = orders.iter().map(Value::to_string).collect();
        Self {
            name,
            orders,
            is_command: false,
            channel: None,
            start: |start| start,
            nobody,
            policy: None,
            careless: None,
        }
    }

    pub fn and(mut self, policy: Option<Want>, careless: Option<Want>) -> Self {
        (self.policy, self.careless) = (policy, careless);
        self
    }

    /// Orders that do not need their own way to the model keep the children of the run for themselves.
    pub fn by_file(mut self) -> Self {
        self.channel = Some(Channel::File);
        self
    }

    pub fn started(mut self, start: fn(RunRequest) -> RunRequest) -> Self {
        self.start = start;
        self
    }
}

impl Want {
    /// The outcome of each call.
    pub fn outcomes(&self, case: &Case) -> Vec<String> {
        let words: Vec<String> = self.codes.split(' ').map(str::to_owned).collect();
        let times = |order: &String| serde_json::from_str::<Value>(order).unwrap()["times"].as_u64().unwrap_or(1);
        let calls: u64 = case.orders.iter().map(times).sum();
        match words.as_slice() {
            [word] => vec![word.clone(); usize::try_from(calls).unwrap()],
            _ => words,
        }
    }
}

pub fn call(name: &str, arguments: Value) -> Value {
    json!({"name": name, "arguments": arguments})
}

/// Whatever leave there is, it comes to the same.
pub fn always(name: &'static str, orders: Vec<Value>, codes: &'static str) -> Case {
    let want = Some(Want { codes, changes: &[] });
    Case::new(name, orders, codes).and(want, want)
}

/// One call that is refused whatever leave there is.
pub fn never(name: &'static str, tool: &str, arguments: Value, code: &'static str) -> Case {
    always(name, vec![call(tool, arguments)], code)
}

/// One call that somebody has to allow, and the policy does not.
pub fn asks(name: &'static str, tool: &str, arguments: Value) -> Case {
    let denied = Want { codes: "permission_denied", changes: &[] };
    Case::new(name, vec![call(tool, arguments)], "permission_denied").and(Some(denied), None)
}

/// One call that the policy allows, and what it changes.
fn allowed(name: &'static str, tool: &str, arguments: Value, changes: &'static [&'static str]) -> Case {
    let done = Want { codes: "ok", changes };
    Case::new(name, vec![call(tool, arguments)], "permission_denied").and(Some(done), Some(done))
}

/// A command; where it may run, it runs confined.
pub fn command(name: &'static str, command: &str, code: &'static str, changes: &'static [&'static str]) -> Case {
    let done = Some(Want { codes: code, changes });
    let arguments = json!({"command": command, "timeout_ms": 10_000});
    let case = Case::new(name, vec![call("bash", arguments)], "permission_denied").and(done, done);
    Case { is_command: true, ..case }
}

pub fn all() -> Vec<Case> {
    let groups = [
        controls(),
        files::writes(),
        files::reads(),
        files::searches(),
        reach::commands(),
        reach::web(),
        runs::approvals(),
        runs::agents(),
        runs::budgets(),
        runs::artifacts(),
        runs::arguments(),
    ];
    groups.into_iter().flatten().collect()
}

/// What is allowed works: these have effects.
fn controls() -> Vec<Case> {
    let write = |path: &str| json!({"path": path, "content": "x"});
    vec![
        allowed("writes where it may", "write", write("out/new.txt"), &["out/new.txt"]),
        allowed("makes a folder where it may", "write", write("out/a/b.txt"), &["out/a", "out/a/b.txt"]),
        allowed("writes there by a longer way", "write", write("out/../out/./new.txt"), &["out/new.txt"]),
        allowed("writes there by an absolute path", "write", write("$PROJECT/out/new.txt"), &["out/new.txt"]),
        allowed(
            "replaces a file where it may",
            "write",
            json!({"path": "out/kept.txt", "content": "x", "overwrite": true}),
            &["out/kept.txt"],
        ),
        allowed(
            "edits a file where it may",
            "edit",
            json!({"path": "out/kept.txt", "edits": [{"old": "one", "new": "three"}]}),
            &["out/kept.txt"],
        ),
        command("runs a command", "echo x > out/made.txt", "ok", &["out/made.txt"]),
        never("reads a file of the project", "read", json!({"path": "a.txt"}), "ok"),
        never("searches the project", "grep", json!({"pattern": "alpha"}), "ok"),
        never("lists the project", "list_files", json!({"recursive": true}), "ok"),
        never("makes an artifact", "create_artifact", json!({"name": "notes", "content": "x"}), "ok"),
        never("asks a child", "agent", json!({"task": "say something"}), "ok").by_file(),
    ]
}
