//! Tests of skill files: valid and invalid files, and which skills are part of a prompt.

use std::fs;

use super::*;

/// The built-in skill of builds with web tools, as a list of names starts with it.
const WEB: &str = if cfg!(feature = "web-tools") {
    "browser, "
} else {
    ""
};

fn home(files: &[(&str, &str)]) -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join(FOLDER)).unwrap();
    for (name, text) in files {
        fs::write(home.path().join(FOLDER).join(name), text).unwrap();
    }
    home
}

fn file(name: &str) -> String {
    format!("---\nname: {name}\ndescription: about {name}\n---\n\nText of {name}.\n")
}

#[test]
fn call_skills_override_those_of_the_preset() {
    let home = home(&[("a.md", &file("a")), ("b.md", &file("b"))]);
    let skills = Skills::load(home.path()).unwrap();
    type Names<'a> = Option<&'a [&'a str]>;
    let cases: [(Names<'_>, Names<'_>, &[&str]); 6] = [
        (None, None, &[]),
        (None, Some(&["b"]), &["b"]),
        (None, Some(&[]), &[]),
        (Some(&["b", "a", "b"]), Some(&["planning"]), &["b", "a"]),
        (Some(&[]), Some(&["a"]), &[]),
        (Some(&["a"]), Some(&["nothing"]), &["a"]),
    ];
    for (call, preset, want) in cases {
        let owned = |names: Names<'_>| {
            names.map(|names| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>())
        };
        let chosen = skills
            .select(owned(call).as_deref(), owned(preset).as_deref())
            .unwrap();
        let names: Vec<&str> = chosen.iter().map(|skill| skill.name.as_str()).collect();
        assert_eq!(names, want, "{call:?} {preset:?}");
    }
    let unknown = ["a".to_owned(), "c".to_owned()];
    let error = skills.select(Some(&unknown), None).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "skill_not_found: there is no skill \"c\"; available: a, b, {WEB}planning, research"
        )
    );
}

#[test]
fn home_file_overrides_built_in_skill() {
    let home = home(&[("x.md", &file("planning"))]);
    let skills = Skills::load(home.path()).unwrap();
    let own = skills.get("planning").unwrap();
    assert_eq!(
        (own.text.as_str(), &own.origin),
        (
            "Text of planning.",
            &SkillOrigin::Home(home.path().join("skills/x.md"))
        )
    );
    assert_eq!(
        skills
            .list()
            .filter(|skill| skill.name == "planning")
            .count(),
        1
    );
    assert_eq!(
        Skills::default().get("planning").unwrap().origin,
        SkillOrigin::BuiltIn
    );
}

#[test]
fn skills_are_listed_or_are_prompt_sections() {
    let home = home(&[("x.md", &file("a")), ("y.md", &file("b"))]);
    let skills = Arc::new(Skills::load(home.path()).unwrap());
    let chosen = skills
        .select(Some(&["a".to_owned(), "b".to_owned()]), None)
        .unwrap();
    let whole = "\n\n## Skill: a\n\nText of a.\n\n## Skill: b\n\nText of b.";
    assert_eq!(render(&chosen, &skills.others(&chosen), false), whole);
    assert_eq!(render(&[], &[], false), "");
    let of_project = Skill {
        origin: SkillOrigin::Project("skills/p.md".into()),
        ..skills.get("a").unwrap().clone()
    };
    let all = skills.with_project(&[Skill {
        name: "p".to_owned(),
        ..of_project
    }]);
    let chosen = all
        .select(
            Some(&["b".to_owned(), "planning".to_owned(), "research".to_owned()]),
            None,
        )
        .unwrap();
    let others = all.others(&chosen);
    let listed = render(&chosen[..1], &others, true);
    let start = "\n\nLoad these skills with `skill` before you start:\n- b: about b\n\nSkills; load one with `skill` when \
                 it fits:\n- a: about a\n";
    assert!(
        listed.starts_with(start) && listed.ends_with("\n- p: about a (of the project)"),
        "{listed:?}"
    );
    assert_eq!(render(&[], &[], true), "");
}

#[test]
fn invalid_skill_is_rejected_and_further_ones_counted() {
    let head = "---\nname: large\ndescription: d\n---\n";
    let large = head.to_owned() + &"x".repeat(65_537 - head.len());
    for (files, want) in [
        (
            &[("a.md", "---\nname: a\ndescription: d\n---\n \n")][..],
            "a.md:2: `name` has no text",
        ),
        (
            &[("a.md", "---\nname: a\n---\nText")],
            "a.md:1: `description` is missing",
        ),
        (
            &[("a.md", "---\nname: a\ndescriptoin: d\n---\nText")],
            "a.md:1: `description` is missing",
        ),
        (
            &[("a.md", large.as_str())],
            "a.md: is larger than 65536 bytes: shorten it",
        ),
        (
            &[("a.md", "x"), ("b.md", "x"), ("c.md", "x")],
            "a.md:1: the file must begin with",
        ),
    ] {
        let home = home(files);
        let skills = Skills::load(home.path()).unwrap();
        let error = skills.select(Some(&["a".to_owned()]), None).unwrap_err();
        assert_eq!(error.code, ErrorCode::ConfigError, "{want}");
        assert!(error.message.contains(want), "{want:?}: {error}");
        assert!(
            skills.get("planning").is_some(),
            "only its own name is unusable"
        );
        assert_eq!(Skills::load_usable(home.path()).1.len(), files.len());
    }
    // A file that cannot be used replaces the built-in skill nevertheless.
    let replaced = home(&[("planning.md", "x")]);
    let skills = Skills::load(replaced.path()).unwrap();
    assert!(skills.get("planning").is_none());
    assert_eq!(
        skills
            .select(None, Some(&["planning".to_owned()]))
            .unwrap_err()
            .code,
        ErrorCode::ConfigError
    );
    fs::remove_dir_all(replaced.path().join(FOLDER)).unwrap();
    fs::write(replaced.path().join(FOLDER), "no folder").unwrap();
    assert_eq!(
        Skills::load(replaced.path()).unwrap_err().code,
        ErrorCode::ConfigError
    );
    let home = home(&[("a.md", &large[..65_536])]);
    let built_in = if WEB.is_empty() { 2 } else { 3 };
    assert_eq!(
        Skills::load(home.path()).unwrap().list().count(),
        built_in + 1
    );
    assert_eq!(
        Skills::load(Path::new("no/where")).unwrap().list().count(),
        built_in
    );
}

#[test]
fn folder_is_loaded_as_skill_and_foreign_keys_reported() {
    let home = home(&[("flat.md", &file("flat"))]);
    let folder = home.path().join("skills/deploy");
    fs::create_dir_all(folder.join("scripts")).unwrap();
    fs::write(folder.join("README.md"), "no skill").unwrap();
    fs::create_dir(home.path().join("skills/empty")).unwrap();
    let text = "---\nname: deploy\ndescription: how to deploy\nlicense: MIT\nmetadata:\n  author: me\nallowed-tools: Bash(git:*)\n---\n\
                Run it.\n";
    fs::write(folder.join(FILE_IN_FOLDER), text).unwrap();
    let skills = Skills::load(home.path()).unwrap();
    let deploy = skills.get("deploy").unwrap();
    assert_eq!(
        (deploy.text.as_str(), &deploy.origin),
        (
            "Run it.",
            &SkillOrigin::Home(home.path().join("skills/deploy/SKILL.md"))
        )
    );
    assert!(skills.get("flat").is_some());
    let warnings: Vec<String> = skills.warnings().iter().map(ToString::to_string).collect();
    assert!(
        warnings.len() == 1
            && warnings[0].ends_with("SKILL.md:4: ignored keys of another program: `license`, `metadata`, `allowed-tools`"),
        "{warnings:?}"
    );
}
