//! MCP servers with a URL (streamable HTTP).

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use serde_json::{Value, json};
use soong::{
    Environment,
    protocol::{McpConfig, RunStatus},
};

use super::{caller, config, offered, server_view};
use crate::support::{
    model::{Turn, scripted_model},
    scripted::{Reply, Request, ScriptedServer},
    world::{TestRuntime, kinds, read_to_end, wait_until, with_timeout},
};

fn answer(request: &Request, result: Value) -> Reply {
    let body = json!({"jsonrpc": "2.0", "id": request.body["id"], "result": result});
    Reply::status(200, body.to_string()).header("content-type", "application/json")
}

/// Replies like a server with one tool, `echo`.
fn echo(request: &Request) -> Reply {
    match request.body["method"].as_str().unwrap_or_default() {
        "initialize" => answer(
            request,
            json!({
                "protocolVersion": request.body["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "echo", "version": "1"},
            }),
        ),
        "tools/list" => {
            let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}});
            answer(
                request,
                json!({"tools": [{"name": "echo", "description": "Echoes.", "inputSchema": schema}]}),
            )
        }
        "tools/call" => {
            let text = request.body["params"]["arguments"]["text"].clone();
            answer(
                request,
                json!({"content": [{"type": "text", "text": text}]}),
            )
        }
        "" => Reply::status(405, "no stream here"),
        _ => Reply::status(202, ""),
    }
}

fn at(server: &ScriptedServer) -> McpConfig {
    McpConfig {
        url: Some(format!("{}/mcp", server.base_url())),
        header_env: [("Authorization".to_owned(), "AUTH".to_owned())].into(),
        timeout_ms: 5_000,
        ..McpConfig::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_calls_a_tool_with_the_configured_headers() {
    let server = ScriptedServer::start(echo);
    let model = caller(vec![("mcp.web.echo", json!({"text": "hello"}))]);
    let environment = Environment::of([("AUTH", "Bearer s3cret")]);
    let world = TestRuntime::with(model, |b| {
        b.config(config([("web", at(&server))]))
            .environment(environment)
    })
    .await;
    let outcome = with_timeout(world.runtime().start("go").await.unwrap().wait())
        .await
        .unwrap();
    assert_eq!(
        (outcome.status, outcome.output.as_str()),
        (RunStatus::Completed, "hello")
    );
    let requests = server.requests();
    assert!(requests.len() >= 4, "{requests:?}");
    for request in &requests {
        assert_eq!(
            request.headers.get("authorization").map(String::as_str),
            Some("Bearer s3cret"),
            "{request:?}"
        );
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_errors_are_reported_and_redirects_not_followed() {
    let elsewhere = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&elsewhere);
    let trap = ScriptedServer::start(move |_| {
        counted.fetch_add(1, SeqCst);
        Reply::status(200, "caught")
    });
    let to_trap = trap.base_url();
    let redirects =
        ScriptedServer::start(move |_| Reply::status(307, "").header("location", &to_trap));
    let refuses = ScriptedServer::start(|_| {
        Reply::status(401, "who are you").header("www-authenticate", "Bearer")
    });
    let silent = ScriptedServer::start(|_| Reply::hang());
    let good = ScriptedServer::start(echo);
    let gone = {
        let server = ScriptedServer::start(echo);
        at(&server)
    };
    let no_variable = McpConfig {
        header_env: [("X".to_owned(), "NOT_SET".to_owned())].into(),
        ..at(&good)
    };
    for (name, bad, want) in [
        ("a redirect", at(&redirects), "307"),
        ("a refusal", at(&refuses), "uth"),
        (
            "silence",
            McpConfig {
                start_timeout_ms: 1_000,
                ..at(&silent)
            },
            "answer",
        ),
        ("nobody", gone, "error"),
        ("a variable", no_variable, "NOT_SET (mcp.bad.header_env.X)"),
        (
            "no address",
            McpConfig {
                url: Some("ftp://x".into()),
                ..McpConfig::default()
            },
            "mcp.bad.url",
        ),
    ] {
        let model = scripted_model(|request| Turn::say(offered(request).join(" ")));
        let environment = Environment::of([("AUTH", "Bearer s3cret")]);
        let servers = [("bad", bad), ("good", at(&good))];
        let world = TestRuntime::with(model, |b| {
            b.config(config(servers)).environment(environment)
        })
        .await;
        let run = world.runtime().start("go").await.unwrap();
        let events = run.events().unwrap();
        assert_eq!(
            with_timeout(run.wait()).await.unwrap().output,
            "mcp.good.echo",
            "{name}"
        );
        let events = read_to_end(events).await;
        let failure = events
            .iter()
            .find(|event| event.event.kind() == "mcp_server_failed");
        let failure = failure
            .unwrap_or_else(|| panic!("{name}: {:?}", kinds(&events)))
            .event
            .data_json();
        assert!(
            failure.contains(want) && !failure.contains("s3cret"),
            "{name}: {failure}"
        );
        world.finish().await;
    }
    assert_eq!(elsewhere.load(SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_may_be_a_stream_that_starts_with_progress() {
    let server = ScriptedServer::start(|request| {
        if request.body["method"] != "tools/call" {
            return echo(request);
        }
        let token = &request.body["params"]["_meta"]["progressToken"];
        let news = json!({
            "jsonrpc": "2.0",
            "method": "notifications/progress",
            "params": {"progressToken": token, "progress": 1, "message": "half way"},
        });
        // The client rejects the server's own request, which delays nothing.
        let asks = json!({"jsonrpc": "2.0", "id": "q", "method": "roots/list"});
        let result = json!({"content": [{"type": "text", "text": "streamed"}]});
        let answer = json!({"jsonrpc": "2.0", "id": request.body["id"], "result": result});
        Reply::stream(
            [news, asks, answer].map(|message| format!("event: message\ndata: {message}\n\n")),
        )
    });
    let model = caller(vec![("mcp.web.echo", json!({"text": "hello"}))]);
    let environment = Environment::of([("AUTH", "Bearer s3cret")]);
    let world = TestRuntime::with(model, |b| {
        b.config(config([("web", at(&server))]))
            .environment(environment)
    })
    .await;
    let run = world.runtime().start("go").await.unwrap();
    assert_eq!(with_timeout(run.wait()).await.unwrap().output, "streamed");
    let refused = || {
        server
            .requests()
            .iter()
            .any(|r| r.body["id"] == "q" && r.body["error"]["code"] == -32601)
    };
    wait_until("the server is answered", refused).await;
    world.finish().await;
}

/// No server information in JSON or in a stream, and messages of a stream in an array.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sloppy_answers_are_read() {
    for is_stream in [false, true] {
        let server = ScriptedServer::start(move |request| {
            let mut result = match request.body["method"].as_str() {
                Some("initialize") => json!({
                    "protocolVersion": request.body["params"]["protocolVersion"],
                    "capabilities": {"tools": {}},
                }),
                Some("tools/call") => json!({"content": [{"type": "text", "text": "read"}]}),
                _ => return echo(request),
            };
            if !is_stream {
                return answer(request, result.take());
            }
            let news = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}});
            let answer = json!({"jsonrpc": "2.0", "id": request.body["id"], "result": result});
            Reply::stream([format!(
                "event: message\ndata: {}\n\n",
                json!([news, answer])
            )])
        });
        let model = caller(vec![("mcp.web.echo", json!({"text": "hello"}))]);
        let environment = Environment::of([("AUTH", "Bearer s3cret")]);
        let servers = config([("web", at(&server))]);
        let world = TestRuntime::with(model, |b| b.config(servers).environment(environment)).await;
        let outcome = with_timeout(world.runtime().start("go").await.unwrap().wait())
            .await
            .unwrap();
        assert_eq!(outcome.output, "read", "{is_stream}");
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oversized_answer_fails_immediately() {
    for is_stream in [false, true] {
        let server = ScriptedServer::start(move |request| {
            if request.body["method"] != "tools/call" {
                return echo(request);
            }
            let text = "x".repeat(17 * 1_024 * 1_024);
            let result = json!({"content": [{"type": "text", "text": text}]});
            if is_stream {
                let answer = json!({"jsonrpc": "2.0", "id": request.body["id"], "result": result});
                return Reply::stream([format!("event: message\ndata: {answer}\n\n")]).then_hang();
            }
            answer(request, result)
        });
        let web = McpConfig {
            timeout_ms: 600_000,
            ..at(&server)
        };
        let model = caller(vec![("mcp.web.echo", json!({"text": "hello"}))]);
        let environment = Environment::of([("AUTH", "Bearer s3cret")]);
        let world = TestRuntime::with(model, |b| {
            b.config(config([("web", web)])).environment(environment)
        })
        .await;
        let outcome = with_timeout(world.runtime().start("go").await.unwrap().wait())
            .await
            .unwrap();
        assert!(
            outcome.output.contains("16777216 bytes"),
            "{is_stream}: {}",
            outcome.output
        );
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_without_an_answer_times_out() {
    let server = ScriptedServer::start(|request| {
        if request.body["method"] == "tools/call" {
            Reply::hang()
        } else {
            echo(request)
        }
    });
    let web = McpConfig {
        timeout_ms: 1_000,
        ..at(&server)
    };
    let model = caller(vec![("mcp.web.echo", json!({"text": "hello"}))]);
    let environment = Environment::of([("AUTH", "Bearer s3cret")]);
    let world = TestRuntime::with(model, |b| {
        b.config(config([("web", web)])).environment(environment)
    })
    .await;
    let outcome = with_timeout(world.runtime().start("go").await.unwrap().wait())
        .await
        .unwrap();
    assert!(
        outcome.output.contains("within 1000 ms") && outcome.output.contains("unknown"),
        "{}",
        outcome.output
    );
    let is_notified = || {
        server
            .requests()
            .iter()
            .any(|request| request.body["method"] == "notifications/cancelled")
    };
    wait_until("the server hears of it", is_notified).await;
    world.finish().await;
}

/// Replies like `echo` within a session whose id is `number`. Requests with another session id get
/// the reply of `refusal`.
fn in_session(request: &Request, number: usize, refusal: fn(&Request) -> Reply) -> Reply {
    let number = number.to_string();
    if request.body["method"] != "initialize"
        && request.headers.get("mcp-session-id") != Some(&number)
    {
        return refusal(request);
    }
    echo(request).header("mcp-session-id", &number)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_restarts_is_initialized_again() {
    type Refusal = fn(&Request) -> Reply;
    let refusals: [(&str, Refusal); 4] = [
        ("404", |_| Reply::status(404, "no such session")),
        ("400", |_| Reply::status(400, "no such session")),
        ("400 with an error that names no request", |_| {
            let error = json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32000, "message": "No valid session"}});
            Reply::status(400, error.to_string()).header("content-type", "application/json")
        }),
        ("400 with an id of its own", |_| {
            let error = json!({"jsonrpc": "2.0", "id": "server-error", "error": {"code": -32600, "message": "bad"}});
            Reply::status(400, error.to_string()).header("content-type", "application/json")
        }),
    ];
    for (name, refusal) in refusals {
        let starts = Arc::new(AtomicUsize::new(1));
        let number = Arc::clone(&starts);
        let server =
            ScriptedServer::start(move |request| in_session(request, number.load(SeqCst), refusal));
        let model = caller(vec![("mcp.web.echo", json!({"text": "hello"}))]);
        let web = McpConfig {
            timeout_ms: 60_000,
            ..at(&server)
        };
        let environment = Environment::of([("AUTH", "Bearer s3cret")]);
        let world = TestRuntime::with(model, |b| {
            b.config(config([("web", web)])).environment(environment)
        })
        .await;
        wait_until("it is there", || {
            server_view(world.runtime(), "web").is_some_and(|view| view.state == "running")
        })
        .await;
        starts.store(2, SeqCst);
        let outcome = with_timeout(world.runtime().start("go").await.unwrap().wait())
            .await
            .unwrap();
        assert_eq!(outcome.output, "hello", "{name}");
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_to_a_stopped_server_fails_fast_and_the_tree_shows_it() {
    let server = ScriptedServer::start(echo);
    let model = caller(vec![("mcp.web.echo", json!({"text": "hello"}))]);
    let web = McpConfig {
        timeout_ms: 600_000,
        start_timeout_ms: 500,
        ..at(&server)
    };
    let environment = Environment::of([("AUTH", "Bearer s3cret")]);
    let world = TestRuntime::with(model, |b| {
        b.config(config([("web", web)])).environment(environment)
    })
    .await;
    let runtime = world.runtime();
    wait_until("it is there", || {
        server_view(runtime, "web").is_some_and(|view| view.state == "running")
    })
    .await;
    drop(server);
    let outcome = with_timeout(runtime.start("go").await.unwrap().wait())
        .await
        .unwrap();
    // A reused idle connection breaks during the call.
    let errors = [
        "\"web\" is not available",
        "could not be sent",
        "its connection ended during",
    ];
    assert!(
        errors.iter().any(|errors| outcome.output.contains(errors)),
        "{}",
        outcome.output
    );
    let is_shown = || {
        let view = server_view(runtime, "web").unwrap();
        view.state == "connecting" && view.activity.starts_with("not available: ")
    };
    wait_until("the tree shows it", is_shown).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_ends_without_the_answer_fails_its_call() {
    let server = ScriptedServer::start(|request| {
        if request.body["method"] == "tools/call" {
            Reply::stream([": nothing yet\n\n"])
        } else {
            echo(request)
        }
    });
    let model = caller(vec![("mcp.web.echo", json!({"text": "hello"}))]);
    let web = McpConfig {
        timeout_ms: 600_000,
        ..at(&server)
    };
    let environment = Environment::of([("AUTH", "Bearer s3cret")]);
    let world = TestRuntime::with(model, |b| {
        b.config(config([("web", web)])).environment(environment)
    })
    .await;
    let outcome = with_timeout(world.runtime().start("go").await.unwrap().wait())
        .await
        .unwrap();
    assert!(
        outcome.output.contains("ended before the response"),
        "{}",
        outcome.output
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_requires_a_task_is_not_offered() {
    let server = ScriptedServer::start(|request| {
        if request.body["method"] != "tools/list" {
            return echo(request);
        }
        let tool = |name: &str, support: &str| json!({"name": name, "inputSchema": {"type": "object"}, "execution": {"taskSupport": support}});
        let result = json!({"tools": [tool("long", "required"), tool("short", "optional")]});
        let answer = json!({"jsonrpc": "2.0", "id": request.body["id"], "result": result});
        Reply::stream([format!("event: message\ndata: {answer}\n\n")])
    });
    let model = scripted_model(|request| Turn::say(offered(request).join(" ")));
    let environment = Environment::of([("AUTH", "Bearer s3cret")]);
    let probed = soong::mcp::probe(
        "web",
        &at(&server),
        &soong::protocol::ToolsConfig::default(),
        &environment,
    )
    .await;
    let left_out = probed.unwrap().left_out;
    assert!(
        left_out.len() == 1
            && left_out[0].contains("mcp.web.long: it can only be called as an MCP task"),
        "{left_out:?}"
    );
    let world = TestRuntime::with(model, |b| {
        b.config(config([("web", at(&server))]))
            .environment(environment)
    })
    .await;
    let outcome = with_timeout(world.runtime().start("go").await.unwrap().wait())
        .await
        .unwrap();
    assert_eq!(outcome.output, "mcp.web.short");
    world.finish().await;
}

/// Runs one call of `echo` with these replies to `tools/call`, and returns the output of the run,
/// and the number of calls that the server has received.
async fn output_of_call(
    reply: impl Fn(usize, &Request) -> Reply + Send + Sync + 'static,
) -> (String, usize) {
    let calls = AtomicUsize::new(0);
    let server = ScriptedServer::start(move |request| {
        if request.body["method"] == "tools/call" {
            reply(calls.fetch_add(1, SeqCst), request)
        } else {
            echo(request)
        }
    });
    let model = caller(vec![("mcp.web.echo", json!({"text": "hello"}))]);
    let environment = Environment::of([("AUTH", "Bearer s3cret")]);
    let world = TestRuntime::with(model, |b| {
        b.config(config([("web", at(&server))]))
            .environment(environment)
    })
    .await;
    let outcome = with_timeout(world.runtime().start("go").await.unwrap().wait())
        .await
        .unwrap();
    world.finish().await;
    let received = server
        .requests()
        .iter()
        .filter(|request| request.body["method"] == "tools/call")
        .count();
    (outcome.output.clone(), received)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_that_the_server_may_have_made_is_not_said_to_be_unsent() {
    for (name, status, content_type, body, is_unknown) in [
        (
            "an error of the server",
            500,
            "text/plain",
            "Internal Server Error",
            true,
        ),
        (
            "an error of a proxy",
            502,
            "text/html",
            "<html>bad gateway</html>",
            true,
        ),
        ("an empty answer", 200, "application/json", "", true),
        (
            "an answer that is cut off",
            200,
            "application/json",
            "{\"jsonrpc\":\"2.0\",\"id\":",
            true,
        ),
        ("a page", 200, "text/html", "<html>proxy</html>", true),
        ("a rejection", 403, "text/plain", "no", false),
        ("a limit", 429, "text/plain", "slow down", false),
    ] {
        let reply =
            move |_, _: &Request| Reply::status(status, body).header("content-type", content_type);
        let (output, received) = output_of_call(reply).await;
        assert_eq!(received, 1, "{name}: it is not sent again");
        assert!(!output.contains("could not be sent"), "{name}: {output}");
        assert_eq!(
            output.contains("it is unknown whether the request took effect"),
            is_unknown,
            "{name}: {output}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_is_sent_again_after_a_short_delay_that_the_server_asks_for() {
    for status in [429, 503] {
        let reply = move |number, request: &Request| match number {
            0 => Reply::status(status, "busy").header("retry-after", "0"),
            _ => echo(request),
        };
        assert_eq!(
            output_of_call(reply).await,
            ("hello".to_owned(), 2),
            "{status}"
        );
        let reply =
            move |_, _: &Request| Reply::status(status, "busy").header("retry-after", "3600");
        assert_eq!(
            output_of_call(reply).await.1,
            1,
            "{status}: the delay is too long"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirect_to_the_same_host_is_followed_and_another_one_is_named() {
    let reply = |number, request: &Request| match number {
        0 => Reply::status(307, "").header("location", "/moved"),
        _ => echo(request),
    };
    assert_eq!(output_of_call(reply).await.0, "hello");
    for (status, target) in [(307, "http://127.0.0.1:9/other"), (302, "/moved")] {
        let reply = move |_, _: &Request| Reply::status(status, "").header("location", target);
        let (output, received) = output_of_call(reply).await;
        let path = target.rsplit('/').next().unwrap();
        assert!(
            output.contains("redirects to") && output.contains(path),
            "{target}: {output}"
        );
        assert!(!output.contains("unknown whether"), "{output}");
        assert_eq!(received, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_success_answers_a_notification_and_a_server_may_have_no_tools() {
    for (status, content_type, body) in [
        (200, "text/plain; charset=utf-8", "Accepted"),
        (201, "text/plain", ""),
        (200, "text/html", "<p>ok</p>"),
    ] {
        let server = ScriptedServer::start(move |request| {
            match request.body["method"].as_str().unwrap_or_default() {
                "notifications/initialized" => {
                    Reply::status(status, body).header("content-type", content_type)
                }
                _ => echo(request),
            }
        });
        let model = scripted_model(|request| Turn::say(offered(request).join(" ")));
        let environment = Environment::of([("AUTH", "Bearer s3cret")]);
        let servers = [("web", at(&server))];
        let world = TestRuntime::with(model, |b| {
            b.config(config(servers)).environment(environment)
        })
        .await;
        let outcome = with_timeout(world.runtime().start("go").await.unwrap().wait())
            .await
            .unwrap();
        assert_eq!(outcome.output, "mcp.web.echo", "{status} {content_type}");
        world.finish().await;
    }
    let server = ScriptedServer::start(|request| {
        if request.body["method"] == "tools/list" {
            let error = json!({"code": -32_601, "message": "Method not found"});
            let body = json!({"jsonrpc": "2.0", "id": request.body["id"], "error": error});
            Reply::status(200, body.to_string()).header("content-type", "application/json")
        } else {
            echo(request)
        }
    });
    let model = scripted_model(|request| Turn::say(offered(request).join(" ")));
    let environment = Environment::of([("AUTH", "Bearer s3cret")]);
    let servers = [("web", at(&server))];
    let world = TestRuntime::with(model, |b| {
        b.config(config(servers)).environment(environment)
    })
    .await;
    let run = world.runtime().start("go").await.unwrap();
    let events = run.events().unwrap();
    assert_eq!(with_timeout(run.wait()).await.unwrap().output, "");
    let events = read_to_end(events).await;
    assert!(
        !kinds(&events).contains(&"mcp_server_failed"),
        "{:?}",
        kinds(&events)
    );
    world.finish().await;
}
