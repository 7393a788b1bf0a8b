//! Checks of the source tree: the direction of dependencies between crates, the names that each
//! file may use, files that no build includes, and examples in documentation that no test runs.
//!
//! The checks search plain text without a parser. Except for those examples, only code counts, not
//! comments or test modules. Each check is a function from text to findings, so that its own tests
//! can show that it finds something. A finding says what to do.

#![allow(
    clippy::unwrap_used,
    reason = "a tree that cannot be read is a failed test"
)]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Folder, package name and allowed dependencies of each crate.
const CRATES: [(&str, &str, &[&str]); 15] = [
    ("protocol", "soong-protocol", &[]),
    ("storage", "soong-storage", &["soong-protocol"]),
    ("actors/sandbox", "soong-sandbox", &[]),
    ("actors/text", "soong-text", &["soong-protocol"]),
    ("actors/http", "soong-http", &[]),
    ("actors/match", "soong-match", &["soong-protocol"]),
    (
        "actors/model",
        "soong-model",
        &["soong-protocol", "soong-http", "soong-text"],
    ),
    (
        "actors/tool",
        "soong-tool",
        &[
            "soong-protocol",
            "soong-text",
            "soong-model",
            "soong-sandbox",
        ],
    ),
    (
        "actors/web",
        "soong-web",
        &["soong-protocol", "soong-http", "soong-text", "soong-tool"],
    ),
    // Its examples use the library with the feature `testing`.
    ("actors", "soong", LIBRARY),
    (
        "bin/client",
        "soong-client",
        &["soong-protocol", "soong-http"],
    ),
    ("bin/docx", "soong-docx", &["soong-protocol"]),
    (
        "bin/server",
        "soong-server",
        &["soong", "soong-client", "soong-docx"],
    ),
    ("bin/tui", "soong-tui", &["soong-protocol", "soong-text"]),
    ("bin", "soong-cli", BINARY),
];

/// Crates of this workspace that the binary may use.
const BINARY: &[&str] = &[
    "soong-protocol",
    "soong-storage",
    "soong-sandbox",
    "soong-text",
    "soong",
    "soong-client",
    "soong-docx",
    "soong-http",
    "soong-server",
    "soong-tui",
];

/// Crates of this workspace that the library may use.
const LIBRARY: &[&str] = &[
    "soong-protocol",
    "soong-storage",
    "soong-sandbox",
    "soong-text",
    "soong-http",
    "soong-match",
    "soong-model",
    "soong-tool",
    "soong-web",
    "soong",
];

/// Pure files outside [`MACHINE`]: they use no actors, no async runtime and no clock.
const DECIDING: [&str; 31] = [
    "actors/src/permission/grant.rs",
    "actors/tool/src/edit/change.rs",
    "actors/tool/src/command.rs",
    "actors/tool/src/command/line.rs",
    "actors/tool/src/command/tables.rs",
    "actors/web/src/policy.rs",
    "actors/web/src/address.rs",
    "actors/text/src/redaction/stream.rs",
    "actors/src/budget/ledger.rs",
    "actors/src/actor_base/restart.rs",
    "actors/model/src/retry.rs",
    "actors/model/src/limiter.rs",
    "actors/model/src/breaker.rs",
    "actors/src/gateway/ledger.rs",
    "actors/src/gateway/queue.rs",
    "actors/src/gateway/pause.rs",
    "actors/src/fair_queue.rs",
    "actors/match/src/lib.rs",
    "actors/src/context/truncate.rs",
    "actors/src/context/compaction.rs",
    "actors/src/context/prune.rs",
    "actors/src/context/summary_request.rs",
    "actors/src/context/summary.rs",
    "actors/src/context/transcript.rs",
    "actors/src/context/message_group.rs",
    "actors/src/front_matter.rs",
    "actors/src/front_matter/value.rs",
    "actors/src/task_journal/line.rs",
    "actors/src/task_journal/projection.rs",
    "actors/src/memory/date.rs",
    "actors/tool/src/coercion.rs",
];

/// Folder of the run state machine. Its files are pure as well.
const MACHINE: &str = "actors/src/run/machine";

#[path = "architecture/event_consumers.rs"]
mod event_consumers;
#[path = "architecture/imports.rs"]
mod imports;
#[path = "architecture/locals.rs"]
mod locals;
#[path = "architecture/modules.rs"]
mod modules;
#[path = "architecture/plain_lines.rs"]
mod plain_lines;
#[path = "architecture/pointers.rs"]
mod pointers;
#[path = "architecture/public_api.rs"]
mod public_api;
#[path = "architecture/rules.rs"]
mod rules;
#[path = "architecture/run_state.rs"]
mod run_state;
#[path = "architecture/words.rs"]
mod words;

struct Source {
    /// Path relative to the workspace, with `/` as separator.
    path: String,
    text: String,
}

impl Source {
    fn read(path: PathBuf) -> Self {
        let relative = path.strip_prefix(root()).unwrap();
        let parts: Vec<_> = relative.iter().map(|part| part.to_str().unwrap()).collect();
        Self {
            path: parts.join("/"),
            text: fs::read_to_string(&path).unwrap(),
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path))
        .unwrap_or_else(|error| panic!("{path} read failed: {error}"))
}

fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// Returns every Rust file below a folder of the workspace, sorted by path.
fn rust_files(folder: &str) -> Vec<Source> {
    let mut paths = Vec::new();
    walk(&root().join(folder), &mut paths);
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "rs"));
    paths.sort();
    paths.into_iter().map(Source::read).collect()
}

/// Returns every file of the product with one of these extensions: in the workspace root and in its
/// folders.
fn text_files(endings: &[&str]) -> Vec<Source> {
    let is_wanted = |path: &Path| {
        path.extension()
            .is_some_and(|ending| endings.iter().any(|known| ending == *known))
    };
    let mut paths: Vec<PathBuf> = fs::read_dir(root())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.retain(|path| path.is_file());
    for folder in ["protocol", "storage", "actors", "bin", "tests", "examples"] {
        walk(&root().join(folder), &mut paths);
    }
    paths.retain(|path| is_wanted(path));
    paths.sort();
    paths.into_iter().map(Source::read).collect()
}

/// Returns every Rust source file of the crates.
fn crate_files() -> Vec<Source> {
    CRATES
        .iter()
        .flat_map(|(folder, ..)| rust_files(&format!("{folder}/src")))
        .collect()
}

fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

/// Returns the lines before the inline test module of a file.
fn production(text: &str) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().collect();
    let is_module = |at: usize| {
        lines[at].trim() == "#[cfg(test)]"
            && lines
                .get(at + 1)
                .is_some_and(|next| next.trim_start().starts_with("mod ") && next.ends_with('{'))
    };
    let end = (0..lines.len())
        .find(|at| is_module(*at))
        .unwrap_or(lines.len());
    lines[..end].to_vec()
}

/// Returns the numbered lines of production code, without comments. Files of test modules contain
/// none.
fn code(source: &Source) -> Vec<(usize, &str)> {
    if is_test_file(&source.path) {
        return Vec::new();
    }
    let lines = production(&source.text).into_iter().enumerate();
    lines
        .map(|(at, line)| {
            (
                at + 1,
                if line.trim_start().starts_with("//") {
                    ""
                } else {
                    line
                },
            )
        })
        .map(|(number, line)| {
            (
                number,
                line.find(" // ").map_or(line, |comment| &line[..comment]),
            )
        })
        .collect()
}

/// Whether `line` contains `word` as a whole word.
fn names(line: &str, word: &str) -> bool {
    let part_of_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(word).any(|(at, _)| {
        !part_of_word(line[..at].chars().next_back())
            && !part_of_word(line[at + word.len()..].chars().next())
    })
}

/// Returns a finding for every line of code that contains one of `words`.
fn lines_that_name(source: &Source, words: &[&str], advice: &str) -> Vec<String> {
    let mut findings = Vec::new();
    for (number, line) in code(source) {
        for word in words.iter().filter(|word| names(line, word)) {
            findings.push(format!("{}:{number} names `{word}`: {advice}", source.path));
        }
    }
    findings
}

/// Returns the dependencies of a manifest: the keys of all tables whose name ends in
/// `dependencies`.
fn dependencies(manifest: &str) -> Vec<&str> {
    let mut inside = false;
    let mut found = Vec::new();
    for line in manifest.lines().map(str::trim) {
        if let Some(table) = line
            .strip_prefix('[')
            .and_then(|line| line.strip_suffix(']'))
        {
            inside = table.ends_with("dependencies");
            // The table `[dependencies.name]` declares one dependency.
            found.extend(table.split_once("dependencies.").map(|(_, name)| name));
        } else if inside && !line.starts_with('#') {
            found.extend(
                line.split(['.', '=', ' '])
                    .next()
                    .filter(|key| !key.is_empty()),
            );
        }
    }
    found
}

/// Returns the paths of the targets of one kind that a manifest declares, relative to the
/// workspace.
fn declared<'a>(manifest: &'a str, kind: &str) -> BTreeSet<&'a str> {
    let mut inside = false;
    let mut found = BTreeSet::new();
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            inside = line == format!("[[{kind}]]");
        } else if inside && let Some(path) = line.strip_prefix("path") {
            let path = path.trim_start_matches([' ', '=']).trim_matches('"');
            found.insert(path.trim_start_matches("../"));
        }
    }
    found
}

fn direction_findings(folder: &str, allowed: &[&str], manifest: &str) -> Vec<String> {
    // A crate may depend on itself, which turns on features for its tests.
    let others = CRATES.iter().filter(|(other, ..)| *other != folder);
    let ours: Vec<&str> = others.map(|(_, package, _)| *package).collect();
    let wrong = dependencies(manifest)
        .into_iter()
        .filter(|name| ours.contains(name) && !allowed.contains(name));
    wrong
        .map(|name| {
            format!(
                "{folder}/Cargo.toml depends on {name}: dependencies run bin → actors → storage → protocol; move \
                 what is needed down, or ask for it through an argument"
            )
        })
        .collect()
}

fn protocol_manifest_findings(manifest: &str) -> Vec<String> {
    let foreign = [
        "tokio",
        "tokio-util",
        "ractor",
        "rusqlite",
        "futures",
        "reqwest",
    ];
    let wrong = dependencies(manifest)
        .into_iter()
        .filter(|name| foreign.contains(name));
    wrong
        .map(|name| {
            format!("protocol/Cargo.toml depends on {name}: protocol is data only; move it up")
        })
        .collect()
}

fn naming_findings(source: &Source) -> Vec<String> {
    let path = source.path.as_str();
    let mut findings = Vec::new();
    let mut forbid =
        |words: &[&str], advice: &str| findings.extend(lines_that_name(source, words, advice));
    if path.starts_with("protocol/") {
        forbid(
            &["tokio", "ractor", "rusqlite"],
            "protocol has only data; move code that uses it to a higher crate",
        );
    }
    if !path.starts_with("storage/") && !path.starts_with("protocol/") {
        forbid(
            &["rusqlite"],
            "only storage knows SQL; ask for it through `Store` or `Reader`",
        );
    }
    if !path.starts_with("actors/model/src/") {
        forbid(
            &["async_openai"],
            "only actors/model/src/ knows providers; go through `Model`",
        );
    }
    if !path.starts_with("bin/") && path != "actors/text/src/environment.rs" {
        forbid(
            &["std::env", "env::var", "env::vars"],
            "the environment is read once, by `Environment`; take it from there",
        );
    }
    if !path.starts_with("bin/") {
        forbid(
            &["println!", "eprintln!", "print!", "eprint!"],
            "only bin prints; use `tracing`, or return it",
        );
    }
    if DECIDING.contains(&path) || path.starts_with(MACHINE) {
        let advice = "this file decides; let time and ids arrive as arguments, and leave acting to the shell";
        forbid(
            &[
                "ractor",
                "tokio",
                "Instant::now",
                "SystemTime",
                "crate::clock",
            ],
            advice,
        );
    }
    if path.starts_with(MACHINE) {
        forbid(
            &["soong_storage"],
            "the state machine knows no store; take the type from soong_protocol",
        );
    }
    findings
}

/// The only file that may contain unsafe code, which runs in a child process before it executes
/// another program.
const UNSAFE: &str = "actors/sandbox/src/before_exec.rs";

/// Finds unsafe code, and attributes that allow it, in every file except [`UNSAFE`], tests
/// included.
fn unsafe_findings(source: &Source) -> Vec<String> {
    if source.path == UNSAFE {
        return Vec::new();
    }
    let lines = source
        .text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim_start().starts_with("//"));
    let wrong = lines.filter(|(_, line)| {
        let allows_lint = line.contains("#[allow(")
            || line.contains("#![allow(")
            || line.contains("expect(unsafe_code");
        (allows_lint && names(line, "unsafe_code")) || has_unsafe_code(line)
    });
    let advice = "only one file may; find a safe way, or let that file do it";
    wrong
        .map(|(at, _)| {
            format!(
                "{}:{} allows or holds unsafe code: {advice}",
                source.path,
                at + 1
            )
        })
        .collect()
}

/// Returns whether a line has the keyword in front of what it may stand in front of. A list of
/// keywords is no code.
fn has_unsafe_code(line: &str) -> bool {
    let follows = ["{", "(", "fn ", "impl", "trait ", "extern "];
    let mut after = line
        .match_indices("unsafe")
        .map(|(at, word)| line[at + word.len()..].trim_start());
    names(line, "unsafe")
        && after.any(|rest| rest.is_empty() || follows.iter().any(|start| rest.starts_with(start)))
}

fn header_findings(source: &Source) -> Vec<String> {
    let headed = source.text.starts_with("//! ");
    let advice =
        "begin it with `//! ` and what it owns or decides, its invariants, and what is not here";
    (!headed)
        .then(|| format!("{} has no header: {advice}", source.path))
        .into_iter()
        .collect()
}

fn file_name_findings(path: &str) -> Vec<String> {
    let stems = path
        .split('/')
        .map(|part| part.strip_suffix(".rs").unwrap_or(part));
    let vague = ["util", "utils", "helper", "helpers", "common", "misc"];
    stems
        .filter(|stem| vague.contains(stem))
        .map(|stem| {
            format!("{path}: `{stem}` says nothing; name the file after the noun that it holds")
        })
        .collect()
}

/// Returns the modules that a file declares: the value of `#[path]`, if any, and the name.
fn modules(text: &str) -> Vec<(Option<&str>, &str)> {
    let mut path = None;
    let mut found = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("#[path = \"") {
            path = rest.strip_suffix("\"]");
        } else if let Some(name) = line
            .trim_start_matches("pub ")
            .strip_prefix("mod ")
            .and_then(|l| l.strip_suffix(';'))
        {
            found.push((path.take(), name));
        }
    }
    found
}

/// Returns the files that are compiled with the declared ones: their modules, recursively.
fn reachable(declared: &BTreeSet<&str>, files: &[Source]) -> BTreeSet<String> {
    let mut reached: BTreeSet<String> = declared.iter().map(|path| (*path).to_owned()).collect();
    let mut open: Vec<String> = reached.iter().cloned().collect();
    while let Some(path) = open.pop() {
        let Some(source) = files.iter().find(|source| source.path == path) else {
            continue;
        };
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let is_root = declared.contains(path.as_str()) || path.ends_with("/mod.rs");
        let inner = if is_root {
            folder.to_owned()
        } else {
            path.trim_end_matches(".rs").to_owned()
        };
        for (given, name) in modules(&source.text) {
            let candidates = match given {
                Some(given) => vec![format!("{folder}/{given}")],
                None => vec![
                    format!("{inner}/{name}.rs"),
                    format!("{inner}/{name}/mod.rs"),
                ],
            };
            let known = candidates
                .into_iter()
                .filter(|candidate| files.iter().any(|file| file.path == *candidate));
            for candidate in known {
                if reached.insert(candidate.clone()) {
                    open.push(candidate);
                }
            }
        }
    }
    reached
}

fn forgotten_test_findings(manifest: &str, files: &[Source]) -> Vec<String> {
    let reachable_paths = reachable(&declared(manifest, "test"), files);
    let is_test = |line: &str| {
        let line = line.trim();
        line == "#[test]" || line.starts_with("#[tokio::test") || line == "proptest! {"
    };
    files
        .iter()
        .filter(|file| file.text.lines().any(is_test) && !reachable_paths.contains(&file.path))
        .map(|file| {
            format!(
                "{} holds tests that never run: declare it in bin/Cargo.toml as [[test]], or as a module of a file \
                 that is",
                file.path
            )
        })
        .collect()
}

fn forgotten_example_findings(declared: &BTreeSet<&str>, files: &[Source]) -> Vec<String> {
    let reachable_paths = reachable(declared, files);
    let forgotten = files
        .iter()
        .filter(|file| !reachable_paths.contains(&file.path));
    let finding = |file: &Source| {
        format!(
            "{} is never built: declare it in actors/Cargo.toml as [[example]], in examples/bench/Cargo.toml as \
             [[bin]], or as a module of a file that is",
            file.path
        )
    };
    forgotten.map(finding).collect()
}

/// Finds examples in the documentation of a crate whose manifest turns documentation tests off.
fn untested_example_findings(manifest: &str, files: &[Source]) -> Vec<String> {
    if !manifest
        .lines()
        .any(|line| line.replace(' ', "") == "doctest=false")
    {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for file in files {
        let mut is_inside = false;
        for (at, line) in file.text.lines().enumerate() {
            let line = line.trim_start();
            let text = line
                .strip_prefix("///")
                .or_else(|| line.strip_prefix("//!"));
            let Some(language) = text.and_then(|text| text.trim_start().strip_prefix("```")) else {
                continue;
            };
            is_inside = !is_inside;
            if is_inside && language != "text" {
                let advice =
                    "remove `doctest = false` from the manifest, so that this example is tested";
                findings.push(format!("{}:{}: {advice}", file.path, at + 1));
            }
        }
    }
    findings
}

#[track_caller]
fn assert_none(findings: Vec<String>) {
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}

#[test]
fn dependencies_run_one_way() {
    for (folder, _, allowed) in CRATES {
        let manifest = read(&format!("{folder}/Cargo.toml"));
        assert!(
            !dependencies(&manifest).is_empty(),
            "{folder}/Cargo.toml: no dependency was found; mend this test"
        );
        assert_none(direction_findings(folder, allowed, &manifest));
    }
    assert_none(protocol_manifest_findings(&read("protocol/Cargo.toml")));
}

#[test]
fn restricted_names_are_used_only_in_allowed_files() {
    let files = crate_files();
    for path in DECIDING.iter().chain(&[
        "actors/text/src/environment.rs",
        "actors/src/run/machine.rs",
    ]) {
        assert!(
            files.iter().any(|file| file.path == *path),
            "{path} is gone: bring the lists of this test up to date"
        );
    }
    assert_none(files.iter().flat_map(naming_findings).collect());
}

#[test]
fn unsafe_code_is_in_one_file_only() {
    let files = crate_files();
    assert!(
        files.iter().any(|file| file.path == UNSAFE),
        "{UNSAFE} is gone: bring this test up to date"
    );
    let lints = read("Cargo.toml");
    assert!(
        lints.contains("\nunsafe_code = \"deny\"\n"),
        "Cargo.toml: unsafe code must be denied"
    );
    assert_none(files.iter().flat_map(unsafe_findings).collect());
}

#[test]
fn unsafe_code_check_finds_code_and_attributes() {
    for (path, text, want) in [
        (
            "actors/src/a.rs",
            "#![allow(unsafe_code, reason = \"x\")]",
            1,
        ),
        ("actors/src/a.rs", "    unsafe { f() }", 1),
        ("bin/src/a.rs", "unsafe fn f() {}", 1),
        ("actors/src/a/tests.rs", "unsafe { f() }", 1),
        ("actors/src/a.rs", "#[expect(unsafe_code)]\nfn f() {}", 1),
        (
            "actors/src/a.rs",
            "// nothing unsafe here\nlet unsafely = 1;",
            0,
        ),
        ("actors/src/a.rs", "unsafe\n{ f() }", 1),
        ("bin/tui/src/a.rs", "\"type unsafe use\"", 0),
        ("actors/sandbox/src/before_exec.rs", "unsafe { f() }", 0),
    ] {
        assert_eq!(
            unsafe_findings(&source(path, text)).len(),
            want,
            "{path}: {text}"
        );
    }
}

#[test]
fn every_file_has_a_module_header() {
    assert_none(crate_files().iter().flat_map(header_findings).collect());
}

#[test]
fn no_file_name_is_vague() {
    let folders = ["tests", "examples"].into_iter().flat_map(rust_files);
    assert_none(
        crate_files()
            .into_iter()
            .chain(folders)
            .flat_map(|file| file_name_findings(&file.path))
            .collect(),
    );
}

#[test]
fn every_test_file_is_declared() {
    assert_none(forgotten_test_findings(
        &read("bin/Cargo.toml"),
        &rust_files("tests"),
    ));
}

#[test]
fn every_example_file_is_declared() {
    let examples = read("actors/Cargo.toml");
    let benchmarks = read("examples/bench/Cargo.toml");
    let programs = declared(&benchmarks, "bin");
    let paths: Vec<String> = programs
        .iter()
        .map(|path| match path.strip_prefix("support/") {
            Some(name) => format!("examples/support/{name}"),
            None => format!("examples/bench/{path}"),
        })
        .collect();
    let mut files = declared(&examples, "example");
    files.extend(paths.iter().map(String::as_str));
    assert_none(forgotten_example_findings(&files, &rust_files("examples")));
}

#[test]
fn every_example_in_documentation_is_tested() {
    for (folder, _, _) in CRATES {
        let manifest = read(&format!("{folder}/Cargo.toml"));
        assert_none(untested_example_findings(
            &manifest,
            &rust_files(&format!("{folder}/src")),
        ));
    }
}

fn source(path: &str, text: &str) -> Source {
    Source {
        path: path.to_owned(),
        text: text.to_owned(),
    }
}

#[test]
fn naming_check_finds_exactly_the_wrong_lines() {
    for (path, text, want) in [
        ("protocol/src/run.rs", "use tokio::sync::watch;", 1),
        (
            "protocol/src/run.rs",
            "//! Knows no tokio, no ractor.\nuse std::fmt; // not tokio",
            0,
        ),
        ("protocol/src/run.rs", "fn tokio_like() {}", 0), // part of another word
        ("actors/src/journal.rs", "let c: rusqlite::Connection;", 1),
        ("storage/src/sqlite.rs", "use rusqlite::Connection;", 0),
        ("actors/tool/src/lib.rs", "use async_openai::Client;", 1),
        ("actors/model/src/openai.rs", "use async_openai::Client;", 0),
        (
            "actors/src/runtime.rs",
            "let home = std::env::var_os(\"HOME\");",
            1,
        ),
        ("actors/text/src/environment.rs", "std::env::vars_os()", 0),
        (
            "bin/src/main.rs",
            "println!(\"{}\", std::env::args().len());",
            0,
        ),
        ("storage/src/blob.rs", "    eprintln!(\"oh\");", 1),
        (
            "storage/src/blob.rs",
            "#[cfg(test)]\nmod tests {\n    println!(\"fine\");\n}",
            0,
        ),
        (
            "storage/src/blob.rs",
            "#[cfg(test)]\nmod tests;\nfn f() { println!(\"not fine\"); }",
            1,
        ),
        (
            "actors/model/src/openai/tests/odd.rs",
            "println!(\"fine\");",
            0,
        ),
        (
            "actors/src/run/machine/turn.rs",
            "let now = Instant::now();",
            1,
        ),
        ("actors/src/run/machine.rs", "use std::time::Instant;", 0), // allowed as an argument type
        (
            "actors/src/fair_queue.rs",
            "use ractor::ActorRef;\nuse tokio::time;",
            2,
        ),
        ("actors/src/run/actor.rs", "use ractor::ActorRef;", 0),
    ] {
        let findings = naming_findings(&source(path, text));
        assert_eq!(findings.len(), want, "{path}: {text}\n{findings:?}");
    }
}

#[test]
fn dependency_check_finds_wrong_manifests() {
    for (text, want) in [
        ("[dependencies]\nsoong.workspace = true\n", 1),
        ("[dev-dependencies]\nsoong = { path = \"../actors\" }\n", 1),
        ("[dependencies.soong]\npath = \"../actors\"\n", 1),
        (
            "[dependencies]\nsoong-protocol.workspace = true\n# soong.workspace = true\n",
            0,
        ),
        (
            "[package]\nname = \"soong\"\n[dependencies]\nbytes = \"1\"\n",
            0,
        ),
    ] {
        assert_eq!(
            direction_findings("storage", &["soong-protocol"], text).len(),
            want,
            "{text}"
        );
    }
    assert_eq!(
        protocol_manifest_findings("[dependencies]\ntokio.workspace = true\n").len(),
        1
    );
}

#[test]
fn file_checks_find_missing_header_and_vague_name() {
    for (path, text, want) in [
        ("actors/src/a.rs", "use std::fmt;\n", 1),
        ("actors/src/a.rs", "//! A.\nuse std::fmt;\n", 0),
        ("actors/src/util/a.rs", "//! A.\n", 1),
        ("bin/src/helpers.rs", "//! A.\n", 1),
        ("bin/src/commonplace.rs", "//! A.\n", 0),
    ] {
        let file = source(path, text);
        let findings = [header_findings(&file), file_name_findings(path)].concat();
        assert_eq!(findings.len(), want, "{path}: {findings:?}");
    }
}

#[test]
fn undeclared_test_and_example_files_are_found() {
    let test = "//! T.\n#[test]\nfn t() {}\n";
    let manifest = "[[test]]\nname = \"suite\"\npath = \"../tests/suite.rs\"\n\n[dependencies]\npath = \"x\"\n";
    for (suite, want) in [
        (
            "//! S.\n",
            vec!["tests/a.rs", "tests/a/b.rs", "tests/support/c.rs"],
        ),
        ("mod a;\n", vec!["tests/support/c.rs"]),
        ("mod a;\n#[path = \"support/c.rs\"]\nmod c;\n", vec![]),
    ] {
        let files = [
            source("tests/suite.rs", suite),
            source("tests/a.rs", "#[test]\nfn t() {}\nmod b;\n"),
            source("tests/a/b.rs", "#[tokio::test]\nasync fn t() {}\n"),
            source("tests/support/c.rs", test),
            source("tests/support/world.rs", "//! No test of its own.\n"),
        ];
        let findings = forgotten_test_findings(manifest, &files);
        let paths: Vec<&str> = findings
            .iter()
            .filter_map(|finding| finding.split(' ').next())
            .collect();
        assert_eq!(paths, want, "{suite}");
    }
    let manifest = "[[example]]\nname = \"a\"\npath = \"../examples/a.rs\"\n";
    let files = [
        source(
            "examples/a.rs",
            "//! A.\n#[path = \"a/part.rs\"]\nmod part;\n",
        ),
        source("examples/a/part.rs", "//! P.\n"),
        source("examples/b.rs", "//! B.\n"),
    ];
    assert_eq!(
        forgotten_example_findings(&declared(manifest, "example"), &files).len(),
        1
    );
}

#[test]
fn untested_documentation_examples_are_found() {
    let text = "//! L.\n\n/// F.\n///\n/// ```\n/// f();\n/// ```\nfn f() {}\n\n/// ```text\n/// x\n/// ```\nfn g() {}\n";
    for (manifest, want) in [("[lib]\ndoctest = false\n", 1), ("[lib]\n", 0)] {
        let findings = untested_example_findings(manifest, &[source("src/lib.rs", text)]);
        assert_eq!(findings.len(), want, "{manifest}: {findings:?}");
    }
}
