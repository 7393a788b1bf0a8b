//! Tests of the parts that need no server: credentials, accepted tools, and the meaning of
//! responses.

use reqwest::header::HeaderName;
use rmcp::model::{CallToolResult, ServerResult};
use serde_json::{Value, json};
use soong_protocol::{Config, ContentPart, ErrorCode, McpConfig, ToolEffect, ToolsConfig};
use soong_text::Environment;

use super::{
    Server,
    result::convert,
    target::Target,
    tool::register_all,
    tool_list::{ListedTool, ToolPage, convert_tool, sanitize},
};

fn config(table: &str) -> McpConfig {
    Config::parse("c", &format!("[mcp.s]\n{table}"))
        .unwrap()
        .mcp
        .remove("s")
        .unwrap()
}

fn means(table: &str) -> Result<Target, String> {
    let variables = [
        ("PATH", "/bin"),
        ("HOME", "/home/x"),
        ("KEY", "k3y"),
        ("SECRET", "s3cret"),
        ("BAD", "a\nb"),
    ];
    let environment = Environment::of(variables);
    let tools = ToolsConfig {
        env_allowlist: vec!["PATH".into(), "LANG".into()],
        ..ToolsConfig::default()
    };
    Target::resolve("s", &config(table), &tools, &environment).map_err(|error| {
        assert_eq!(error.code, ErrorCode::ConfigError, "{error}");
        error.message
    })
}

#[test]
fn server_process_gets_only_named_variables() {
    for (env, want) in [
        ("", vec![("PATH", "/bin")]),
        (
            "env = { TOKEN = \"KEY\" }",
            vec![("PATH", "/bin"), ("TOKEN", "k3y")],
        ),
        // A variable of the server replaces one of the allowlist.
        ("env = { PATH = \"KEY\" }", vec![("PATH", "k3y")]),
    ] {
        let Ok(Target::Program { variables, .. }) = means(&format!("command = \"x\"\n{env}"))
        else {
            panic!("{env}")
        };
        let variables: Vec<(&str, &str)> = variables
            .iter()
            .map(|(name, value)| (&**name, &**value))
            .collect();
        assert_eq!(variables, want, "{env}");
    }
}

#[test]
fn header_takes_whole_value_of_its_variable() {
    let table = "url = \"https://h/mcp\"\nheader_env = { Authorization = \"SECRET\" }";
    let Ok(Target::Http { url, headers }) = means(table) else {
        panic!("{table}")
    };
    assert_eq!(url.as_str(), "https://h/mcp");
    let value = &headers[&HeaderName::from_static("authorization")];
    assert!(
        value == "s3cret" && value.is_sensitive(),
        "it is kept out of logs"
    );
}

#[test]
fn missing_credentials_are_reported_with_variable_and_key() {
    for (table, want) in [
        (
            "command = \"x\"\nenv = { TOKEN = \"NOT_SET\" }",
            "environment variable NOT_SET (mcp.s.env.TOKEN)",
        ),
        (
            "url = \"http://h\"\nheader_env = { X = \"NOT_SET\" }",
            "environment variable NOT_SET (mcp.s.header_env.X)",
        ),
        (
            "url = \"http://h\"\nheader_env = { \"a b\" = \"KEY\" }",
            "\"a b\" is not a valid header name",
        ),
        (
            "url = \"http://h\"\nheader_env = { X = \"BAD\" }",
            "BAD (mcp.s.header_env.X) contains characters",
        ),
        (
            "url = \"file:///x\"",
            "mcp.s.url is not an http or https URL",
        ),
        (
            "url = \"me:s3cret@h\"",
            "mcp.s.url is not an http or https URL",
        ),
    ] {
        let Err(message) = means(table) else {
            panic!("{table}")
        };
        assert!(
            message.contains(want) && !message.contains("s3cret") && !message.contains("a\nb"),
            "{table}: {message}"
        );
    }
}

/// Converts a tool that a server lists. An error is the reason why it is omitted.
fn listed_tool(tool: Value) -> Result<ListedTool, String> {
    let result: ServerResult = serde_json::from_value(json!({"tools": [tool]})).unwrap();
    let offered = ToolPage::read(result).unwrap().tools.remove(0);
    let listed = convert_tool("s", &config("command = \"x\"\ntimeout_ms = 7"), offered?)?;
    let server = Server::new("s", &McpConfig::default());
    let mut left_out = None;
    match register_all(&server, vec![listed.clone()], |error| {
        left_out = Some(error.to_string())
    })
    .pop()
    {
        Some(_) => Ok(listed),
        None => Err(left_out.unwrap()),
    }
}

#[test]
fn tool_description_is_sanitized_and_truncated() {
    let listed = listed_tool(json!({
        "name": "search",
        "title": "Search\u{1b}[31m\n files",
        "description": format!("  Finds\u{7} things.\nIn files. {}", "x".repeat(3_000)),
        "inputSchema": {"properties": {"q": {"type": "string"}}},
        "annotations": {"readOnlyHint": true, "destructiveHint": true},
    }))
    .unwrap();
    let spec = &listed.spec;
    assert_eq!(
        (listed.remote_name.as_str(), spec.name.as_str()),
        ("search", "mcp.s.search")
    );
    assert_eq!(spec.title, "Search [31m files");
    assert!(
        spec.description.starts_with("Finds things.\nIn files. x"),
        "{}",
        spec.description
    );
    assert_eq!(spec.description.chars().count(), 2_001, "cut, and it shows");
    assert_eq!(
        spec.parameters["type"], "object",
        "arguments are one, whether it says so or not"
    );
    assert_eq!(
        (spec.effect, spec.idempotent, spec.timeout_ms),
        (ToolEffect::Read, true, Some(70))
    );
    assert_eq!(spec.tags, ["mcp", "network"]);
}

#[test]
fn every_mcp_tool_requires_permission_despite_annotations() {
    for (annotations, effect) in [
        (Value::Null, ToolEffect::Dangerous),
        (
            json!({"readOnlyHint": false, "idempotentHint": true}),
            ToolEffect::Dangerous,
        ),
        (
            json!({"readOnlyHint": true, "openWorldHint": false}),
            ToolEffect::Read,
        ),
    ] {
        let mut tool = json!({"name": "t", "inputSchema": {"type": "object"}});
        if !annotations.is_null() {
            tool["annotations"] = annotations.clone();
        }
        let listed = listed_tool(tool).unwrap();
        assert_eq!(
            (listed.spec.effect, listed.spec.idempotent),
            (effect, effect == ToolEffect::Read),
            "{annotations}"
        );
        assert!(listed.spec.requires_permission(), "{annotations}");
        assert_eq!(
            (listed.spec.title.as_str(), listed.spec.description.as_str()),
            ("t", "t"),
            "it says nothing"
        );
    }
}

#[test]
fn invalid_tool_is_skipped_with_reason() {
    let object = json!({"type": "object"});
    for (name, schema, want) in [
        ("bad name", object.clone(), "is not a valid tool name"),
        ("ünder", object.clone(), "is not a valid tool name"),
        ("", object.clone(), "no name"),
        (&*"x".repeat(60), object.clone(), "is not a valid tool name"),
        ("t", json!({"type": "array"}), "\"type\": \"object\""),
        (
            "t",
            json!({"type": "object", "required": 5}),
            "not a valid schema",
        ),
        (
            "t",
            json!({"type": "object", "properties": {"a": {"type": "nothing"}}}),
            "not a valid schema",
        ),
        (
            "t",
            json!({"type": "object", "$ref": "https://127.0.0.1:9/x"}),
            "not a valid schema",
        ),
        (
            "t",
            json!({"type": "object", "title": "x".repeat(70_000)}),
            "at most 65536",
        ),
        ("t", json!("none"), "tool t: "),
        ("t", Value::Null, "tool t: "),
    ] {
        let why = listed_tool(json!({"name": name, "inputSchema": schema})).unwrap_err();
        assert!(why.contains(want), "{name} {schema}: {why}");
    }
}

#[test]
fn invalid_page_is_rejected_and_invalid_tool_hides_no_other() {
    let read = |value: Value| ToolPage::read(serde_json::from_value(value).unwrap());
    for none in [
        json!({}),
        json!({"tools": 5}),
        json!({"content": []}),
        json!(null),
        json!([1]),
    ] {
        assert!(read(none.clone()).is_none(), "{none}");
    }
    let good = json!({"name": "good", "inputSchema": {"type": "object"}});
    let page = read(json!({"tools": [7, good, {"name": "x"}], "nextCursor": "c"})).unwrap();
    let fit: Vec<bool> = page.tools.iter().map(Result::is_ok).collect();
    assert_eq!(
        (fit, page.next.as_deref()),
        (vec![false, true, false], Some("c"))
    );
}

fn of(result: Value) -> Result<String, (ErrorCode, String)> {
    let result: ServerResult = serde_json::from_value(result).unwrap();
    convert("s", "Title", result)
        .map(|output| output.output)
        .map_err(|error| (error.code, error.message))
}

#[test]
fn call_results_map_to_output_or_error() {
    let text = |text: &str| json!({"type": "text", "text": text});
    for (result, want) in [
        (json!({"content": [text("one"), text("two")]}), "one\ntwo"),
        (json!({"content": []}), "(no output)"),
        (
            json!({"content": [text("\u{1b}[2Ja\r\n\tb\u{7}\u{202e}")]}),
            "[2Ja\n\tb",
        ),
        (
            json!({"content": [text("")], "structuredContent": {"a": 1}}),
            "{\n  \"a\": 1\n}",
        ),
        (
            json!({"content": [text("said")], "structuredContent": {"a": 1}}),
            "said\n{\n  \"a\": 1\n}",
        ),
        (
            json!({"content": [text("{\"a\":1}")], "structuredContent": {"a": 1}}),
            "{\"a\":1}",
        ),
        (
            json!({"content": [text("[1]")], "structuredContent": {"result": [1]}}),
            "[1]",
        ),
        (
            json!({"content": [text("x"), {"type": "new", "a": 1}]}),
            "x\n{\"type\":\"new\",\"a\":1}",
        ),
        (
            json!({"content": [{"type": "text", "text": "x", "annotations": {"audience": ["system"]}}]}),
            "x",
        ),
        (json!({"content": "only a text"}), "only a text"),
        (
            json!({"content": [{"type": "image", "data": "AAAA", "mimeType": "image/tiff"}, text("x")]}),
            "[image image/tiff, about 3 bytes; not shown]\nx",
        ),
        (
            json!({"content": [{"type": "resource", "resource": {"uri": "f://a", "blob": "AAAA"}}]}),
            "[resource of unknown type, about 3 bytes, f://a; not shown]",
        ),
        (
            json!({"content": [{"type": "resource_link", "uri": "f://a", "name": "a\nb", "size": 5}]}),
            "[resource a b, f://a, 5 bytes; not read]",
        ),
    ] {
        assert_eq!(of(result.clone()).as_deref(), Ok(want), "{result}");
    }
    let image = json!({"type": "image", "data": "AAEC", "mimeType": "image/png"});
    let pdf = json!({"type": "resource", "resource":
        {"uri": "f://docs/a.pdf", "blob": "AAEC", "mimeType": "application/pdf"}});
    let result: ServerResult =
        serde_json::from_value(json!({"content": [text("x"), image, pdf]})).unwrap();
    let output = convert("s", "Title", result).unwrap();
    let files = [
        ContentPart::inline("image/png", None, [0, 1, 2]),
        ContentPart::inline("application/pdf", Some("a.pdf".to_owned()), [0, 1, 2]),
    ];
    assert_eq!(
        (output.output.as_str(), output.files),
        ("x", files.to_vec())
    );
    let unknown = json!({"type": "hologram", "data": "x"});
    assert_eq!(
        of(json!({"content": [unknown]})).unwrap(),
        unknown.to_string(),
        "of a later protocol"
    );
    // One unknown detail must not hide that the call failed.
    let failed = json!({"isError": true, "content": [{"type": "image", "data": "AAEC", "mimeType": 5}, text("no")]});
    assert_eq!(of(failed).unwrap_err().0, ErrorCode::ProviderError);
    for (result, want) in [
        (
            json!({"content": [text("the moon")], "isError": true}),
            "server \"s\" returned an error: the moon",
        ),
        (
            json!({"content": [text("\u{1b}[1mred")], "isError": true}),
            "error: [1mred",
        ),
        (json!({"content": [], "isError": true}), "no details given"),
        (json!({"tools": []}), "not a tool result"),
        (json!(5), "not a tool result"),
    ] {
        let (code, message) = of(result.clone()).unwrap_err();
        assert!(
            code == ErrorCode::ProviderError && message.contains(want),
            "{result}: {message}"
        );
    }
}

#[test]
fn long_answer_is_truncated_with_a_note() {
    let long = "ä".repeat(3 * 1024 * 1024);
    let mut result = CallToolResult::default();
    result.content = vec![rmcp::model::ContentBlock::text(long)];
    let output = convert("s", "t", ServerResult::CallToolResult(result))
        .unwrap()
        .output;
    assert!(
        output.ends_with("\n[cut: the answer has 6291456 bytes, and the first 4194304 are kept]")
    );
    assert!(output.len() < 4 * 1024 * 1024 + 100);
}

#[test]
fn foreign_text_is_one_line_without_control_characters() {
    for (text, most, want) in [
        ("a\r\n\tb", 9, "a b"),
        ("\u{1b}]0;x\u{7}y", 9, "]0;x y"),
        ("  ", 9, ""),
        ("äöü!", 3, "äöü…"),
        ("äöü", 3, "äöü"),
    ] {
        assert_eq!(sanitize(text, most), want, "{text:?}");
    }
}

#[test]
fn server_name_is_read_from_tool_name() {
    for (name, server) in [
        ("mcp.s.t", Some("s")),
        ("mcp.s.t.u", Some("s")),
        ("mcp.s", None),
        ("read", None),
        ("xmcp.s.t", None),
    ] {
        assert_eq!(McpConfig::server_of(name), server, "{name}");
    }
}

#[test]
fn images_are_recognized_by_their_bytes_in_any_base64() {
    // The signature of a PNG file and the beginning of its header.
    let png = [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, 0xfb, 0xff];
    let expected = ContentPart::inline("image/png", None, png);
    for (data, content_type) in [
        ("iVBORw0KGgr7/w==", "image/jpeg"),
        ("iVBORw0KGgr7/w", "application/octet-stream"),
        ("iVBORw0K\r\nGgr7_w==\n", "image/png"),
        ("data:image/png;base64,iVBORw0KGgr7/w==", "image/png"),
    ] {
        let block = json!({"type": "image", "data": data, "mimeType": content_type});
        let result: ServerResult = serde_json::from_value(json!({"content": [block]})).unwrap();
        assert_eq!(
            convert("s", "Title", result).unwrap().files,
            std::slice::from_ref(&expected),
            "{data}"
        );
    }
}

#[test]
fn identity_names_the_program_and_differs_for_another_one() {
    let identity = |table: &str| Server::new("s", &config(table)).identity();
    let program = identity("command = \"npx\"\nargs = [\"-y\", \"files\"]");
    assert!(
        program.starts_with("MCP server \"s\" runs npx with 2 arguments ("),
        "{program}"
    );
    let remote = identity("url = \"https://me:s3cret@h:8443/mcp?key=s3cret\"");
    assert!(
        remote.starts_with("MCP server \"s\" is at https://h:8443 ("),
        "{remote}"
    );
    for other in [
        "command = \"npx\"\nargs = [\"-y\", \"files\", \"--all\"]",
        "command = \"npx\"\nargs = [\"-y files\"]",
        "url = \"https://me:s3cret@h:8443/mcp?key=other\"",
    ] {
        let other = identity(other);
        assert!(other != program && other != remote, "{other}");
    }
    assert_eq!(
        identity("command = \"npx\"\nargs = [\"-y\", \"files\"]\ntimeout_ms = 7"),
        program,
        "not the limits"
    );
}
