//! References to sessions and traces: slugs, recent sessions, parts of names, and sub-agents.

use serde_json::json;

use crate::{
    process::TestHome,
    pty::TestTerminal,
    served::{OFFLINE, TestServer},
};

/// Starts three sessions, the last one with an id of its own. Returns the slugs of the first two.
fn begin(world: &TestHome) -> [String; 2] {
    for (prompt, more) in [
        ("Plan a garden", &[][..]),
        ("Plan a pond", &[]),
        ("Water the beans", &["--session", "beans"]),
    ] {
        world
            .run(&[&["run", "--model", "offline", prompt], more].concat())
            .expect_code(0);
    }
    let sessions = world
        .run(&["sessions", "list", "--json"])
        .expect_code(0)
        .json();
    let slugs = [2, 1].map(|at: usize| sessions[at]["slug"].as_str().unwrap().to_owned());
    assert!(
        slugs[0].starts_with("plan-a-garden-") && slugs[1].starts_with("plan-a-pond-"),
        "{slugs:?}"
    );
    assert_eq!(sessions[0]["slug"], serde_json::Value::Null);
    slugs
}

#[test]
fn sessions_are_named_by_slug_place_and_part() {
    let world = TestHome::new();
    let [garden, pond] = begin(&world);
    let id_of = |reference: &str| {
        let shown = world
            .run(&["sessions", "show", reference, "--json"])
            .expect_code(0)
            .json();
        shown["session"]["session_id"].as_str().unwrap().to_owned()
    };
    let id = id_of(&garden);
    for reference in [&garden[..], "@3", "plan-a-g", &id, &id[24..]] {
        assert_eq!(id_of(reference), id, "{reference}");
    }
    assert_eq!(
        (id_of("last"), id_of("-")),
        ("beans".to_owned(), id_of(&pond))
    );
    let listed = world.run(&["sessions", "list"]).expect_code(0);
    assert!(
        listed.out.contains(&garden) && !listed.out.contains(&id),
        "{}",
        listed.out
    );
    world.run(&["traces", "messages", "@3"]).expect_code(0);
    world
        .run(&["sessions", "show", "plan"])
        .expect_code(2)
        .expect_stderr(&["matches several sessions", &garden, &pond]);
    world
        .run(&["sessions", "show", "baens"])
        .expect_code(3)
        .expect_stderr(&["Did you mean beans?"]);
    world.run(&["traces", "show", "@9"]).expect_code(3);

    for command in [
        "traces stop plan-a-g",
        "run --trace plan-a-g x",
        "artifacts delete x --session plan-a-g",
    ] {
        let args: Vec<&str> = command.split(' ').collect();
        world
            .run(&args)
            .expect_code(2)
            .expect_stderr(&["plan-a-g is only a part of the name of session", &garden]);
    }

    // A message makes its session the last one. A name that no session has begins one.
    world
        .run(&[
            "run",
            "--session",
            &garden,
            "--model",
            "offline",
            "Add a fence",
        ])
        .expect_code(0);
    assert_eq!(id_of("@1"), id);
    let begun = world
        .run(&["run", "--session", "plan-a-g", "--model", "offline", "x"])
        .expect_code(0);
    begun.expect_stderr(&[
        "note: this starts a new session plan-a-g; to continue",
        &garden,
    ]);
    assert_eq!(id_of("last"), "plan-a-g");
    world
        .run(&["run", "--session", "@9", "--model", "offline", "x"])
        .expect_code(3);

    // `--continue` begins no session.
    world
        .run(&[
            "run",
            "--continue=plan-a-po",
            "--model",
            "offline",
            "Add a frog",
        ])
        .expect_code(0);
    assert_eq!(id_of("last"), id_of(&pond));
    for command in ["run", "chat"] {
        world
            .run(&[command, "--continue=frogs", "--model", "offline"])
            .expect_code(3)
            .expect_stderr(&["frogs"]);
    }
}

#[test]
fn sub_agents_are_named_by_number() {
    let world = TestHome::new();
    world
        .run(&[
            "run",
            "--session",
            "s",
            "--mode",
            "orchestrator",
            "--model",
            "offline",
            "Report",
        ])
        .expect_code(0);
    let traces = world
        .run(&["traces", "list", "--json"])
        .expect_code(0)
        .json();
    let mut children: Vec<&str> = traces
        .as_array()
        .unwrap()
        .iter()
        .filter(|trace| trace["parent_trace_id"].is_string())
        .map(|trace| trace["trace_id"].as_str().unwrap())
        .collect();
    children.reverse();
    assert!(children.len() > 1, "{traces}");
    for (reference, child) in [("last#1", children[0]), ("s#2", children[1])] {
        let shown = world
            .run(&["traces", "show", reference, "--json"])
            .expect_code(0)
            .json();
        assert_eq!(shown["trace"]["trace_id"], child, "{reference}");
    }
    world
        .run(&["traces", "show", "s#99"])
        .expect_code(3)
        .expect_stderr(&["there is no sub-agent s#99"]);
}

#[test]
fn deletion_by_a_part_of_the_name_is_confirmed() {
    let world = TestHome::new();
    let [garden, pond] = begin(&world);
    let count = || {
        world
            .run(&["sessions", "list", "--json"])
            .expect_code(0)
            .json()
            .as_array()
            .unwrap()
            .len()
    };
    world
        .run(&["sessions", "delete", "plan-a-g"])
        .expect_code(2)
        .expect_stderr(&[&garden, "Give its whole id or slug"]);
    assert_eq!(count(), 3);
    for (answer, left) in [("n\r", 3), ("y\r", 2)] {
        let terminal =
            TestTerminal::start(&world, &["sessions", "delete", "plan-a-g"], (24, 100), &[]);
        terminal.wait_for_text("delete it? [y/N]");
        terminal.type_keys(answer);
        assert_eq!(terminal.wait_for_exit().0, Some(0));
        assert_eq!(count(), left, "{answer:?}");
    }
    world.run(&["sessions", "delete", &pond]).expect_code(0);
    world
        .run(&["sessions", "delete", "last"])
        .expect_code(2)
        .expect_stderr(&["last is session beans"]);
    world.run(&["sessions", "delete", "beans"]).expect_code(0);
    assert_eq!(count(), 0);
}

#[tokio::test]
async fn effort_keeps_other_parameters_of_the_session() {
    let served = TestServer::new(OFFLINE);
    let start = json!({
        "session_id": "s", "prompt": "Plan a garden", "temperature": 0.5,
        "llm_params": { "seed": 7, "reasoning_budget_tokens": 2000 },
    });
    let (_, accepted) = served.post("/api/traces", start).await;
    served
        .ended_run(&served.token(), accepted["run_id"].as_str().unwrap())
        .await;
    let params = async || served.get("/api/traces/s").await["trace"]["llm_params"].clone();
    let continued = ["--session", "s"];
    let world = &served.world;

    world
        .run(&[&["run", "More", "--effort", "low"], &continued[..]].concat())
        .expect_code(0);
    assert_eq!(
        params().await,
        json!({ "seed": 7, "temperature": 0.5, "effort": "low" })
    );
    world
        .run_with_input(
            &[&["chat"], &continued[..]].concat(),
            b"/effort high\nMore\n",
        )
        .expect_code(0);
    assert_eq!(
        params().await,
        json!({ "seed": 7, "temperature": 0.5, "effort": "high" })
    );
    let reset = ["run", "More", "--effort", "low", "--reset", "llm-params"];
    world.run(&[&reset, &continued[..]].concat()).expect_code(0);
    assert_eq!(params().await, json!({ "effort": "low" }));
}
