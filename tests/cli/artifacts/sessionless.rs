//! A user's artifacts in a home without sessions.

use serde_json::{Value, json};

use super::{Owned, artifact, fails, lived_in};
use crate::{process::TestHome, service::ManualModelService};

/// Returns a home whose only session was deleted after `user:style` had been stored.
fn home() -> TestHome {
    let world = lived_in();
    artifact(&world, &["put", "user:style", "README.md"]);
    artifact(&world, &["put", "plan", "README.md"]);
    world.run(&["sessions", "delete", "s"]).expect_code(0);
    world
}

#[test]
fn user_artifacts_are_usable_without_any_session() {
    let world = home();
    let listed = artifact(&world, &["list"]);
    assert!(
        listed.out.contains("user:style") && !listed.out.contains("plan"),
        "{}",
        listed.out
    );
    listed.expect_stderr(&["no sessions: only artifacts of the user"]);
    assert_eq!(
        artifact(&world, &["get", "user:style"]).out,
        "# Lighthouse\n\nCounts ships.\n"
    );
    assert!(
        artifact(&world, &["show", "user:style"])
            .out
            .contains("scope     user local")
    );
    artifact(
        &world,
        &["edit", "user:style", "--old", "ships", "--new", "boats"],
    );
    artifact(&world, &["put", "user:style", "docs/guide.md"]);
    artifact(&world, &["put", "user:new", "docs/guide.md"]);
    artifact(&world, &["export", "user:style", "-o", "x.docx"]);
    let versions = artifact(&world, &["versions", "user:style", "--json"]).json();
    let numbers: Vec<&Value> = versions
        .as_array()
        .unwrap()
        .iter()
        .map(|version| &version["version"])
        .collect();
    assert_eq!(numbers, [1, 2, 3]);
    assert_eq!(
        artifact(&world, &["delete", "user:style"]).out,
        "deleted user:style: versions 1, 2, 3\n"
    );
    let listed = artifact(&world, &["list", "--json"]).json();
    assert_eq!(
        (listed.as_array().unwrap().len(), &listed[0]["name"]),
        (1, &json!("new"))
    );
    for args in [
        &["get", "plan"][..],
        &["put", "plan", "README.md"],
        &["delete", "plan"],
    ] {
        fails(&world, args, 3, &["the project", "--session ID"]);
    }
    fails(
        &world,
        &["get", "user:no"],
        3,
        &["there is no artifact \"user:no\""],
    );
    assert_eq!(
        world.run(&["sessions", "list"]).expect_code(0).out,
        "no sessions\n",
        "none was made on the way"
    );
    artifact(&world, &["delete", "user:new"]);
    assert_eq!(artifact(&world, &["list"]).out, "no artifacts\n");
}

#[test]
fn dash_in_a_route_means_no_session() {
    let world = home();
    let owned = Owned::begin(&world, &ManualModelService::new(), "o");
    artifact(&world, &["put", "note", "README.md", "--session", "o"]);
    let at = |method: &str, more: &str| format!("{method} /api/sessions/-/artifacts{more}");
    let ask = |line: &str, body: &[u8]| super::routes::ask(&world, line, "", body);
    let listed = ask(&at("GET", ""), b"").is(200).json();
    assert_eq!(
        (
            listed["artifacts"].as_array().unwrap().len(),
            &listed["artifacts"][0]["name"]
        ),
        (1, &json!("style"))
    );
    assert_eq!(
        ask(&at("PUT", "/user:style"), b"x").is(200).json()["version"],
        2
    );
    assert_eq!(
        ask(&at("GET", "/user:style/content"), b"").is(200).body,
        b"x"
    );
    ask(&at("GET", "/user:style/versions/1"), b"").is(200);
    ask(&at("GET", "/note"), b"").refuses(404, "artifact_not_found");
    ask(&at("PUT", "/note"), b"x").refuses(404, "session_not_found");
    ask(&at("DELETE", "/user:style"), b"").is(204);
    owned.end();
}
