//! Commands on a machine with a server: the output is the same through the control socket, with
//! `--url`, and without a server.

use reqwest::Method;
use rustix::process::Signal;
use serde_json::json;

use crate::{
    process::KillOnDrop,
    served::{BOB, OFFLINE, TestServer, answer},
    service::ManualModelService,
};

#[tokio::test]
async fn output_is_the_same_by_socket_by_url_and_without_server() {
    let mut served = TestServer::new(OFFLINE);
    let orchestrate =
        json!({ "prompt": "Report on this", "mode": "orchestrator", "session_id": "s" });
    let (_, accepted) = served.post("/api/traces", orchestrate).await;
    served
        .ended_run(&served.token(), accepted["run_id"].as_str().unwrap())
        .await;
    let commands: Vec<Vec<&str>> = vec![
        vec!["sessions", "list"],
        vec!["sessions", "show", "s", "--json"],
        vec!["traces", "list", "--json"],
        vec!["traces", "show", "s"],
        vec!["traces", "messages", "s", "--json"],
        vec!["traces", "events", "s", "--json"],
        vec!["artifacts", "list", "--session", "s", "--json"],
        vec!["artifacts", "show", "report", "--session", "s"],
        vec!["artifacts", "get", "report", "--session", "s"],
        vec!["questions", "list", "--all"],
        vec!["permissions", "list", "--all"],
        vec!["usage", "--by", "session", "--json"],
    ];
    let url = served.url.clone();
    let mut outputs = Vec::new();
    for command in &commands {
        let beside = served.world.run(command).expect_code(0);
        let at = served
            .world
            .run(&[&["--url", &url][..], command].concat())
            .expect_code(0);
        assert_eq!(at.out, beside.out, "{command:?}");
        outputs.push(beside.out);
    }
    served.signal(Signal::TERM);
    served.wait_for_exit().expect_code(0);
    for (command, beside) in commands.iter().zip(outputs) {
        assert_eq!(
            served.world.run(command).expect_code(0).out,
            beside,
            "{command:?}"
        );
    }

    served.restart();
    let run = served
        .world
        .run(&["--url", &url, "run", "--json", "--session", "s", "And now?"])
        .expect_code(0);
    let result = run.json_lines().pop().unwrap();
    assert_eq!(
        (&result["result"]["status"], &result["result"]["session_id"]),
        (&json!("completed"), &json!("s"))
    );
    // Commands about the local machine reject `--url`. If the server is unreachable, commands fail
    // instead of working locally.
    for command in [&["doctor"][..], &["demo"], &["serve"], &["config", "show"]] {
        served
            .world
            .run(&[&["--url", &url][..], command].concat())
            .expect_code(2)
            .expect_stderr(&["not a server"]);
    }
    served
        .world
        .run(&["--url", "http://127.0.0.1:1", "usage"])
        .expect_code(4)
        .expect_stderr(&["cannot connect to http://127.0.0.1:1"]);
    served
        .world
        .run(&["--url", "127.0.0.1:1", "usage"])
        .expect_code(2)
        .expect_stderr(&["such as http://127.0.0.1:7788"]);
    let wrong = served
        .world
        .command(&["--url", &url, "usage"])
        .env("SOONG_TOKEN", "wrong-wrong-wrong")
        .output()
        .unwrap();
    assert_eq!(
        wrong.status.code(),
        Some(4),
        "{}",
        String::from_utf8_lossy(&wrong.stderr)
    );
}

#[tokio::test]
async fn local_operator_sees_and_deletes_sessions_of_all_users() {
    let served = TestServer::with_users(OFFLINE);
    served.run_to_end(BOB, "bobs", "hello").await;
    let (status, listed) = answer(served.request(Method::GET, "/api/sessions")).await;
    assert_eq!(
        (
            status.as_u16(),
            listed["sessions"].as_array().unwrap().len()
        ),
        (200, 0),
        "the token is local's"
    );
    let listed = served
        .world
        .run(&["sessions", "list", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(
        listed[0]["uid"], "bob",
        "the socket is the operator's: {listed}"
    );
    served
        .world
        .run(&["sessions", "delete", "bobs"])
        .expect_code(0);
    assert_eq!(
        answer(served.request_as(BOB, Method::GET, "/api/sessions/bobs"))
            .await
            .0,
        404
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_continues_at_the_server_when_its_client_is_terminated() {
    let service = ManualModelService::new();
    let served = TestServer::new(&format!(
        "[model]\nbase_url = \"{}\"\nname = \"m\"\n",
        service.address
    ));
    let token = served.token();
    let mut command =
        served
            .world
            .command(&["--url", &served.url, "run", "--json", "--session", "s", "x"]);
    let mut client = KillOnDrop {
        child: command.env("SOONG_TOKEN", &token).spawn().unwrap(),
    };
    let request = tokio::task::block_in_place(|| service.next());
    // The client knows that the run has started once it prints an event.
    let mut events = std::io::BufReader::new(client.child.stdout.take().unwrap());
    let read = tokio::task::block_in_place(|| {
        std::io::BufRead::read_line(&mut events, &mut String::new())
    });
    assert!(read.unwrap() > 0);
    let begun = std::time::Instant::now();
    let pid = rustix::process::Pid::from_child(&client.child);
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    let code = tokio::task::block_in_place(|| client.child.wait().unwrap()).code();
    assert!(
        begun.elapsed() < std::time::Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
    let ran = client.finish();
    assert_eq!(code, Some(130), "{}", ran.err);
    ran.expect_stderr(&["continues on the server", "traces events s --follow"]);
    request.answer("done");
    let runs = served.get("/api/traces/s").await;
    assert_ne!(runs["trace"]["status"], "stopped", "{runs}");
}
