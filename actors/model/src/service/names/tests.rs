//! Tests of names: every name that is sent comes back as the original one.

use std::sync::Arc;

use serde_json::json;
use soong_protocol::{Message, Role, Timestamp, ToolSpec, TraceId};

use super::*;

fn request(offered: &[&str], called: &[&str]) -> ModelRequest {
    let tool = |name: &&str| Arc::new(ToolSpec::read(name, "T", "T.", json!({"type": "object"})));
    let mut asks = Message::new(
        TraceId::new("t"),
        1,
        None,
        Role::Assistant,
        String::new(),
        Timestamp::from_millis(0),
    );
    asks.tool_calls = called.iter().map(|name| call(name)).collect();
    ModelRequest {
        system: Vec::new(),
        messages: vec![Arc::new(asks)],
        tools: offered.iter().map(tool).collect(),
        ..ModelRequest::default()
    }
}

fn call(name: &str) -> ToolCall {
    ToolCall {
        id: "c".to_owned(),
        name: name.to_owned(),
        arguments: "{}".to_owned(),
    }
}

#[test]
fn tool_names_are_encoded_and_restored() {
    let long = format!("mcp.{}.x", "a".repeat(58));
    let twin = format!("mcp.{}.y", "a".repeat(58));
    let long_encoded = format!("mcp__{}_", "a".repeat(58));
    let twin_encoded = format!("mcp__{}_2", "a".repeat(57));
    for (offered, called, want) in [
        (
            vec!["read", "a-b_c"],
            vec!["read"],
            vec!["read", "a-b_c", "read"],
        ),
        (
            vec!["read", "mcp.s.add"],
            vec!["mcp.s.add"],
            vec!["read", "mcp__s__add", "mcp__s__add"],
        ),
        // A name that fits is kept, whatever its position.
        (
            vec!["mcp.s.add", "mcp__s__add"],
            vec![],
            vec!["mcp__s__add_2", "mcp__s__add"],
        ),
        (
            vec!["a.b", "a..b", "a__b_2"],
            vec!["a__b"],
            vec!["a__b_3", "a____b", "a__b_2", "a__b"],
        ),
        // Two names that would be truncated to the same one.
        (
            vec![long.as_str(), twin.as_str()],
            vec![],
            vec![long_encoded.as_str(), twin_encoded.as_str()],
        ),
        // Names that are not offered any more or that a model made up.
        (
            vec![],
            vec!["mcp.gone.x", "no tool", "ü"],
            vec!["mcp__gone__x", "no_tool", "_"],
        ),
    ] {
        let request = request(&offered, &called);
        let names = ToolNames::of(&request);
        let all: Vec<&str> = offered.iter().chain(&called).copied().collect();
        let outgoing: Vec<&str> = all.iter().map(|name| names.outgoing_name(name)).collect();
        assert_eq!(outgoing, want, "{offered:?} {called:?}");
        assert!(outgoing.iter().all(|name| is_valid(name)), "{outgoing:?}");
        let mut back: Vec<ToolCall> = outgoing.iter().map(|name| call(name)).collect();
        names.restore(&mut back);
        let back: Vec<&str> = back.iter().map(|call| call.name.as_str()).collect();
        assert_eq!(back, all, "{offered:?} {called:?}");
    }
}

#[test]
fn unknown_tool_name_is_not_restored() {
    let names = ToolNames::of(&request(&["mcp.s.add"], &[]));
    let mut calls = vec![call("mcp__s__sub"), call("mcp__s__add")];
    names.restore(&mut calls);
    assert_eq!(
        (calls[0].name.as_str(), calls[1].name.as_str()),
        ("mcp__s__sub", "mcp.s.add")
    );
}

#[test]
fn half_characters_of_stored_arguments_are_replaced() {
    let call = ToolCall {
        id: "c".into(),
        name: "t".into(),
        arguments: r#"{"a": "\ud83d", "b": 1}"#.into(),
    };
    let calls = [call];
    let sent = ToolNames::default().outgoing_calls(&calls).into_owned();
    assert_eq!(sent[0].arguments, r#"{"a": "\ufffd", "b": 1}"#);
}
