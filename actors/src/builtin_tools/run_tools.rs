//! Specs of the tools that the run state machine executes: `goal`, `agent`, `evaluate`,
//! `ask_human`.
//!
//! This module describes them to models. Elsewhere: what they do (the run state machine).

use serde_json::json;
use soong_protocol::{ToolEffect, ToolSpec};

/// Returns the specs in the order in which models see them.
pub(crate) fn specs() -> Vec<ToolSpec> {
    vec![agent(), evaluate(), goal(), ask_human()]
}

fn agent() -> ToolSpec {
    let schema = json!({
        "type": "object",
        "properties": {
            "task": {
                "anyOf": [
                    {"type": "string", "minLength": 1},
                    {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1}
                ],
                "description": "One task, or a list to run in parallel."
            },
            // Their shape is checked when the call is executed: the whole schema would double the
            // tool's tokens.
            "messages": {
                "type": "array",
                "items": {"anyOf": [{"type": "object"}, {"type": "array", "items": {"type": "object"}}]},
                "description": "Messages {role, content} before the task: one list for all, or one each."
            },
            "agent_type": {"type": "string", "description": "Default: explore (read-only) for a list, else default."},
            "context": {
                "anyOf": [{"type": "string"}, {"type": "object"}],
                "description": "What sub-agents must know besides their task."
            },
            "skills": {
                "type": "array", "items": {"type": "string"},
                "description": "Default: those of the agent type."
            },
            "expected_output_schema": {
                "type": "object",
                "description": "JSON schema of each answer."
            },
            "timeout_ms": {"type": "integer", "minimum": 1},
            "continue_from": {
                "type": "string",
                "description": "sub_trace_id of an earlier sub-agent that continues."
            }
        },
        "required": ["task"],
        "additionalProperties": false
    });
    ToolSpec {
        effect: ToolEffect::Read,
        ..ToolSpec::write(
            "agent",
            "Sub-agents",
            "Runs sub-agents and waits for all. They see only their task and context. Results are in task order; \
             a failure does not stop the others.",
            schema,
        )
        .with_json_as_text(&["task", "messages/content"])
    }
}

fn evaluate() -> ToolSpec {
    let schema = json!({
        "type": "object",
        "properties": {
            "target_goal_id": {"type": "string", "description": "Default: the focused goal."},
            "messages": {
                "type": "array",
                "items": {"type": "object"},
                "description": "Messages {role, content}."
            },
            "context": {"anyOf": [{"type": "string"}, {"type": "object"}], "description": "What to check."},
            "continue_from": {"type": "string", "description": "sub_trace_id of an earlier evaluation."}
        },
        "additionalProperties": false
    });
    ToolSpec {
        effect: ToolEffect::Read,
        ..ToolSpec::write(
            "evaluate",
            "Evaluation",
            "Lets a sub-agent judge whether a goal is met.",
            schema,
        )
        .with_json_as_text(&["messages/content"])
    }
}

fn ask_human() -> ToolSpec {
    let schema = json!({
        "type": "object",
        "properties": {
            "question": {"type": "string", "minLength": 1},
            "to": {"type": "string", "minLength": 1, "maxLength": 100, "description": "Who is asked, if it matters."}
        },
        "required": ["question"],
        "additionalProperties": false
    });
    ToolSpec::read(
        "ask_human",
        "Question",
        "Asks a person and waits for the answer. Only for what you can neither find out nor decide.",
        schema,
    )
    .with_json_as_text(&["question"])
}

fn goal() -> ToolSpec {
    let schema = json!({
        "type": "object",
        "properties": {
            "add": {
                "anyOf": [
                    {"type": "string", "minLength": 1},
                    {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1}
                ]
            },
            "reason": {"type": "string", "description": "Why they are added."},
            "under": {"type": "string", "description": "Their parent goal."},
            "after": {"type": "string", "description": "The goal before them."},
            "focus": {"type": "string", "description": "The goal to work on now."},
            "done": {"type": "string", "description": "Result of the focused goal; closes it."},
            "abandon": {"type": "string", "description": "Why the focused goal is given up."}
        },
        "additionalProperties": false
    });
    ToolSpec::write(
        "goal",
        "Goals",
        "Keeps the plan: adds, focuses and closes goals, named by number.",
        schema,
    )
}
