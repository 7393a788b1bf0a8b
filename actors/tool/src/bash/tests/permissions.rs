//! PERM-1: which permission a command requires.

use super::*;

#[test]
fn every_command_requires_permission_scoped_to_its_program() {
    let world = BashTest::new();
    let directory = world.project.path().to_str().unwrap().to_owned();
    let command = |executable: &str| Scope::Command {
        executable: executable.to_owned(),
        directory: directory.clone(),
    };
    let line = |line: &str| Scope::CommandLine {
        command: line.to_owned(),
        directory: directory.clone(),
    };
    let partial = Confinement::Partial {
        why: "it is old".to_owned(),
    };
    let none = Confinement::None {
        why: "it is odd".to_owned(),
    };
    for (confinement, command_text, scope, note) in [
        (Confinement::Full, "cargo test", command("cargo test"), None),
        (
            Confinement::Full,
            "cargo test | tail",
            line("cargo test | tail"),
            None,
        ),
        (Confinement::Full, "rm -r src", Scope::Call, None),
        (
            partial.clone(),
            "cargo test",
            Scope::Unconfined,
            Some("it would run only partly confined: it is old"),
        ),
        (
            none.clone(),
            "cargo test",
            Scope::Unconfined,
            Some("it would run unconfined: it is odd"),
        ),
        (
            none,
            "ls | sh",
            Scope::Unconfined,
            Some("it would run unconfined: it is odd"),
        ),
    ] {
        let bash = Bash::with_confinement(
            &ToolEnvironment::default(),
            Arc::default(),
            confinement.into(),
        );
        let access = bash
            .required_access(
                &world.project.context(),
                &json!({ "command": command_text }),
            )
            .unwrap()
            .unwrap();
        let is_sensitive = note.is_some(); // only a grant for unconfined commands covers it
        assert_eq!(
            (access.target, access.scope, access.is_sensitive),
            (command_text.to_owned(), scope, is_sensitive)
        );
        let message = access.note.unwrap();
        assert!(
            message.starts_with(note.unwrap_or_default()) && message.contains("the network"),
            "{command_text}: {message}"
        );
    }
}
