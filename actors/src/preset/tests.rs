//! Tests of preset files: valid and invalid files, and which of two presets takes effect.

use std::fs;

use super::*;

const TOOLS: [&str; 3] = ["read", "grep", "goal"];

/// Creates a home with these files in `agents/`.
fn home(files: &[(&str, &str)]) -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join(FOLDER)).unwrap();
    for (name, text) in files {
        fs::write(home.path().join(FOLDER).join(name), text).unwrap();
    }
    home
}

/// Reads the presets of a home. Returns the errors, without the path of the home.
fn faults(home: &Path) -> Vec<String> {
    let faults = PresetFiles::read(home, &TOOLS, &Config::default()).faults;
    let folder = format!("{}/", home.join(FOLDER).display());
    faults
        .iter()
        .map(|fault| fault.to_string().replace(&folder, ""))
        .collect()
}

#[test]
fn preset_file_body_becomes_instructions() {
    let all = "---\nname: reviewer\ndescription: \"Reviews: all\"\nallowed_tools: [read, grep]\ndenied_tools:\n  - goal\n\
               max_iterations: 20\ntemperature: 0.2\neffort: high\nskills: [style]\nmodel: small\ncoordinates: true\n---\n\n# You review\n";
    let home = home(&[
        ("a.md", all),
        ("b.md", "---\nname: plain\ndescription: p\n---\n"),
        (".c.md", "x"),
        ("d.txt", "x"),
    ]);
    let read = PresetFiles::read(home.path(), &TOOLS, &Config::default());
    assert_eq!(read.faults, []);
    let plain = &read.presets[0].0;
    let reviewer = &read.presets[1].0;
    let texts = |names: &[&str]| {
        names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<_>>()
    };
    let want = Preset {
        name: "reviewer".into(),
        description: "Reviews: all".into(),
        allowed_tools: Some(texts(&["read", "grep"])),
        denied_tools: texts(&["goal"]),
        max_turns: Some(20),
        temperature: Some(0.2),
        effort: Some(Effort::High),
        reasoning_budget_tokens: None,
        skills: Some(texts(&["style"])),
        model: Some("small".into()),
        instructions: "# You review".into(),
        coordinates: true,
    };
    assert_eq!((read.presets.len(), reviewer), (2, &want));
    assert_eq!(read.presets[1].1, home.path().join("agents/a.md"));
    assert_eq!(
        (
            plain.allowed_tools.as_ref(),
            plain.skills.as_ref(),
            plain.instructions.as_str()
        ),
        (None, None, "")
    );
    assert_eq!(
        PresetFiles::read(Path::new("no/where"), &TOOLS, &Config::default()),
        PresetFiles::default()
    );
}

#[test]
fn invalid_preset_is_rejected_with_file_line_and_key() {
    for (head, want) in [
        ("description: d", "a.md:1: `name` is missing"),
        ("name: a", "a.md:1: `description` is missing"),
        (
            "name: a b\ndescription: d",
            "a.md:2: `name` must be 1 to 64 letters",
        ),
        ("name: ../a\ndescription: d", "a.md:2: `name` must be"),
        ("name: \"\"\ndescription: d", "a.md:2: `name` must be"),
        ("name: é\ndescription: d", "a.md:2: `name` must be"),
        (
            "name: [a]\ndescription: d",
            "a.md:2: `name` must be a single text",
        ),
        (
            "name: a\ndescription: d\ntoolz: [read]",
            "a.md:4: `toolz` is not a known key; known keys: name, description,",
        ),
        (
            "name: a\ndescription: d\nmax-iterations: 3",
            "a.md:4: `max-iterations` is not a known key, did you mean `max_iterations`?",
        ),
        (
            "name: a\ndescription: d\nallowed_tools: read",
            "a.md:4: `allowed_tools` must be a list",
        ),
        (
            "name: a\ndescription: d\nallowed_tools: [Read]",
            "a.md:4: `allowed_tools` names an unknown tool: \"Read\"",
        ),
        (
            "name: a\ndescription: d\ndenied_tools:\n- raed",
            "a.md:4: `denied_tools` names an unknown tool: \"raed\"",
        ),
        (
            "name: a\ndescription: d\nmax_iterations: 0",
            "a.md:4: `max_iterations` must be a whole number",
        ),
        (
            "name: a\ndescription: d\nmax_iterations: 1.5",
            "a.md:4: `max_iterations` must be a whole number",
        ),
        (
            "name: a\ndescription: d\ntemperature: 2.1",
            "a.md:4: `temperature` must be a number from 0 to 2",
        ),
        (
            "name: a\ndescription: d\ntemperature: NaN",
            "a.md:4: `temperature` must be",
        ),
        (
            "name: a\ndescription: d\ncoordinates: yes",
            "a.md:4: `coordinates` must be `true` or `false`",
        ),
        (
            "name: a\ndescription: d\nskills: style",
            "a.md:4: `skills` must be a list",
        ),
        (
            "name: a\nname: b\ndescription: d",
            "a.md:3: `name` is already set in line 2",
        ),
        ("name a", "a.md:2: expected keys such as `name: …`"),
    ] {
        let home = home(&[("a.md", &format!("---\n{head}\n---\nYou.\n"))]);
        let found_faults = faults(home.path());
        assert!(
            found_faults.len() == 1 && found_faults[0].starts_with(want),
            "{head:?}: {found_faults:?}"
        );
    }
}

#[test]
fn unreadable_files_are_reported_and_valid_ones_loaded() {
    let good = |name: &str| format!("---\nname: {name}\ndescription: d\n---\n");
    let large = good("large") + &"x".repeat(65_536);
    let home = home(&[
        ("a.md", &good("one")),
        ("b.md", &good("one")),
        ("c.md", &large),
        ("e.md", "You."),
    ]);
    let folder = home.path().join(FOLDER);
    fs::create_dir(folder.join("d.md")).unwrap();
    fs::write(
        folder.join("f.md"),
        b"---\nname: f\ndescription: \xff\n---\n",
    )
    .unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink("nowhere", folder.join("g.md")).unwrap();
    fs::write(folder.join("h.md"), good("two")).unwrap();
    let names: Vec<String> = PresetFiles::read(home.path(), &TOOLS, &Config::default())
        .presets
        .into_iter()
        .map(|(preset, _)| preset.name)
        .collect();
    assert_eq!(names, ["two"], "two files use the other name");
    let found_faults = faults(home.path());
    for (fault, want) in found_faults.iter().zip([
        "b.md:2: `name` \"one\" is also used by a.md",
        "c.md: is larger than 65536 bytes",
        "d.md: is not a regular file",
        "e.md:1: the file must begin with a line `---`",
        "f.md:3: this is not UTF-8",
        "g.md: cannot be read",
    ]) {
        assert!(fault.starts_with(want), "{want:?}: {found_faults:?}");
    }
    assert_eq!(found_faults.len(), 5 + usize::from(cfg!(unix)));

    fs::remove_dir_all(&folder).unwrap();
    fs::write(&folder, "no folder").unwrap();
    assert!(faults(home.path())[0].contains("the folder cannot be read"));
}

#[test]
fn folder_with_too_many_files_is_rejected() {
    let home = home(&[]);
    for n in 0..=home_file::MAX_FILES {
        fs::write(
            home.path().join(FOLDER).join(format!("{n}.md")),
            format!("---\nname: n{n}\ndescription: d\n---\n"),
        )
        .unwrap();
    }
    let read = PresetFiles::read(home.path(), &TOOLS, &Config::default());
    assert_eq!((read.presets.len(), read.faults.len()), (0, 1));
    assert!(
        read.faults[0]
            .to_string()
            .ends_with("the folder contains more than 256 *.md files: remove some")
    );
    fs::remove_file(home.path().join(FOLDER).join("0.md")).unwrap();
    assert_eq!(
        PresetFiles::read(home.path(), &TOOLS, &Config::default())
            .presets
            .len(),
        home_file::MAX_FILES
    );
}

#[test]
fn later_preset_source_overrides_earlier_one() {
    let of = |name: &str| format!("---\nname: {name}\ndescription: file\n---\n");
    let home = home(&[
        ("a.md", &of("explore")),
        ("b.md", &of("analyst")),
        ("c.md", &of("default")),
        ("d.md", &of("own")),
    ]);
    let config =
        "[presets.analyst]\ndescription = \"config\"\n[presets.default]\n[presets.third]\n";
    let config = Config::parse("c", config).unwrap();
    let registered = Preset {
        description: "code".into(),
        ..builtin_presets().remove(0)
    };
    let all = presets(
        &PresetFiles::read(home.path(), &TOOLS, &Config::default()),
        &config,
        &[registered],
    );
    let shown: Vec<String> = all
        .iter()
        .map(|known| {
            let origin = match &known.origin {
                PresetOrigin::File(file) => file.file_name().unwrap().display().to_string(),
                other => format!("{other:?}"),
            };
            format!(
                "{} {origin} {}",
                known.preset.name,
                known.preset.allowed_tools.is_some()
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            "small BuiltIn true",
            "evaluator BuiltIn true",
            "orchestrator BuiltIn true",
            "explore a.md false",
            "own d.md false",
            "analyst Config false",
            "third Config false",
            "default Code false",
        ]
    );
}

#[test]
fn foreign_preset_file_is_loaded_and_ignored_keys_reported() {
    let text = "---\nname: reviewer\ndescription: Use this agent: it reviews.\ntools: Read, Grep\nmodel: sonnet\ncolor: blue\n\
                permissionMode: plan\nskills: style, tone\nhooks:\n  Stop:\n    - command: x\n---\n\nYou review.\n";
    let home = home(&[
        ("a.md", text),
        (
            "b.md",
            &text.replace("sonnet", "gpt-5").replace("reviewer", "other"),
        ),
    ]);
    let read = PresetFiles::read(home.path(), &TOOLS, &Config::default());
    assert_eq!(read.faults, []);
    let other = &read.presets[0].0;
    let preset = &read.presets[1].0;
    assert_eq!(
        (preset.model.as_deref(), other.model.as_deref()),
        (None, Some("gpt-5"))
    );
    assert_eq!(
        (preset.instructions.as_str(), preset.allowed_tools.as_ref()),
        ("You review.", None)
    );
    assert_eq!(
        preset.skills.as_deref(),
        Some(&["style".to_owned(), "tone".to_owned()][..])
    );
    assert_eq!(read.warnings.len(), 2);
    let found_faults = read.warnings[0].to_string();
    assert!(
        found_faults.ends_with(
            "a.md:4: ignored keys of another program: `tools`, `color`, `permissionMode`, `hooks`"
        ),
        "{found_faults}"
    );
}
