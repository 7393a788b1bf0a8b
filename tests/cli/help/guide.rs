//! The guide: its commands run, its configurations are valid, its links lead somewhere.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::process::{KillOnDrop, TestHome};

/// A fenced block of a page.
struct Block {
    language: String,
    line: usize,
    text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

/// Returns the pages of the guide by path. If `all`, also the other documents.
fn pages(all: bool) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root().join("bin/guide")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.insert(path.clone(), std::fs::read_to_string(path).unwrap());
            }
        }
    }
    assert!(found.len() > 20, "the guide has {} pages", found.len());
    if all {
        let others = [
            "README.md",
            "ARCHITECTURE.md",
            "CONTRIBUTING.md",
            "CHANGELOG.md",
            "SECURITY.md",
            "examples/bench/README.md",
        ];
        for name in others {
            let path = root().join(name);
            found.insert(path.clone(), std::fs::read_to_string(path).unwrap());
        }
    }
    found
}

fn blocks(text: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut open: Option<Block> = None;
    for (number, line) in text.lines().enumerate() {
        match (line.trim_start().strip_prefix("```"), &mut open) {
            (Some(language), None) => {
                open = Some(Block {
                    language: language.to_owned(),
                    line: number + 1,
                    text: String::new(),
                });
            }
            (Some(_), Some(_)) => found.extend(open.take()),
            (None, Some(block)) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    found
}

/// Returns the anchors of the headings of a page.
fn anchors(text: &str) -> Vec<String> {
    let mut inside = false;
    let headings = text.lines().filter(|line| {
        inside ^= line.trim_start().starts_with("```");
        !inside && line.starts_with('#')
    });
    headings
        .map(|line| {
            let text = line.trim_start_matches('#').trim().to_lowercase();
            let anchor_characters = text
                .chars()
                .filter(|char| char.is_alphanumeric() || matches!(char, ' ' | '-' | '_'));
            anchor_characters
                .map(|char| if char == ' ' { '-' } else { char })
                .collect()
        })
        .collect()
}

/// Returns the targets of the links of a page, without those in code.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        inside ^= line.trim_start().starts_with("```");
        if inside {
            continue;
        }
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        let mut rest = prose.as_str();
        while let Some((_, link)) = rest.split_once("](") {
            let (target, after) = link.split_once(')').unwrap_or((link, ""));
            found.push(target.to_owned());
            rest = after;
        }
    }
    found
}

#[test]
fn commands_of_the_guide_succeed() {
    let folder = Path::new(env!("CARGO_BIN_EXE_soong"))
        .parent()
        .unwrap()
        .to_owned();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let pages = pages(false);
    let run = |page: &Path, text: &str| -> Vec<String> {
        let world = TestHome::empty();
        std::fs::create_dir_all(world.home()).unwrap();
        std::fs::write(
            world.home().join("config.toml"),
            "[model]\nprovider = \"offline\"\n",
        )
        .unwrap();
        let mut wrong = Vec::new();
        for block in blocks(text).iter().filter(|block| block.language == "sh") {
            let mut command = Command::new("bash");
            command
                .args(["-e", "-c", &block.text])
                .current_dir(world.project());
            command
                .env_clear()
                .env("PATH", &path)
                .env("HOME", world.project().parent().unwrap());
            command
                .env("SOONG_AGENT_HOME", world.home())
                .env("LANG", "C.UTF-8");
            command
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            let ended = KillOnDrop {
                child: command.spawn().unwrap(),
            }
            .finish();
            if ended.code != Some(0) {
                let name = page.file_name().unwrap().display();
                wrong.push(format!(
                    "{name}:{}: {:?}\n{}\n{}",
                    block.line, ended.code, ended.out, ended.err
                ));
            }
        }
        wrong
    };
    let wrong: Vec<String> = std::thread::scope(|threads| {
        let work: Vec<_> = pages
            .iter()
            .map(|(page, text)| threads.spawn(move || run(page, text)))
            .collect();
        work.into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn configurations_of_the_guide_are_valid() {
    let world = TestHome::new();
    let file = world.project().join("page.toml");
    let mut count = 0;
    for (page, text) in pages(true) {
        for block in blocks(&text)
            .iter()
            .filter(|block| block.language == "toml")
        {
            if block.text.contains("[dependencies]") {
                continue;
            }
            std::fs::write(&file, &block.text).unwrap();
            let shown = world.run(&["config", "show", "--config", file.to_str().unwrap()]);
            assert_eq!(
                shown.code,
                Some(0),
                "{}:{}: {}",
                page.display(),
                block.line,
                shown.err
            );
            count += 1;
        }
    }
    assert!(count > 10, "{count} configurations");
}

#[test]
fn links_of_the_documents_exist() {
    let pages = pages(true);
    for (page, text) in &pages {
        for link in links(text).iter().filter(|link| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() {
                page.clone()
            } else {
                page.parent().unwrap().join(file)
            };
            let link_location = format!("{}: {link}", page.display());
            let target = target
                .canonicalize()
                .unwrap_or_else(|error| panic!("{link_location}: {error}"));
            if !anchor.is_empty() {
                let page_text = std::fs::read_to_string(&target).unwrap();
                assert!(
                    anchors(&page_text).iter().any(|name| name == anchor),
                    "{link_location}: no such heading"
                );
            }
        }
    }
}
