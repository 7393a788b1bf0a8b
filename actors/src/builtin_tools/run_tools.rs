//! Specs of the tools that the run state machine executes: `goal`, `agent`, `evaluate`, `ask_human`.
//!
//! This module describes them to models. Elsewhere: what they do (the run state machine).

use serde_json::{Value, json};
use soong_protocol::{ToolEffect, ToolSpec};

/// Returns the specs in the order in which models see them.
pub(crate) fn specs() -> Vec<ToolSpec> {
    vec![agent(), evaluate(), goal(), ask_human()]
}

/// Returns the schema of the messages with which the conversation of a sub-agent starts.
fn initial_messages_schema(description: &str) -> Value {
    json!({
        "type": "array",
        "description": description,
        "items": {
            "type": "object",
            "properties": {
                "role": {"enum": ["user", "assistant"]},
                "content": {"type": "string", "minLength": 1}
            },
            "required": ["role", "content"],
            "additionalProperties": false
        }
    })
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
                "description": "One task (delegate), or a list of tasks that are explored in parallel."
            },
            "messages": {
                "anyOf": [
                    initial_messages_schema("One conversation for all tasks."),
                    {"type": "array", "items": initial_messages_schema("The conversation of one task.")}
                ],
                "description": "What the sub-agents' conversations begin with: one list for all, or one for each task."
            },
            "agent_type": {"type": "string", "description": "Which kind of agent; chosen to fit if left out."},
            "context": {"type": "string", "description": "What the sub-agents need to know beyond their task."},
            "skills": {
                "type": "array", "items": {"type": "string"},
                "description": "The skills whose texts they are given; those of the agent type if left out."
            },
            "expected_output_schema": {
                "type": "object",
                "description": "A JSON schema that each answer has to fit."
            },
            "timeout_ms": {"type": "integer", "minimum": 1, "description": "How long each may work."},
            "continue_from": {
                "type": "string",
                "description": "The sub_trace_id of an earlier sub-agent that continues with this one task."
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
            "Lets sub-agents work and waits for all of them. They see only their task and context. A list of tasks \
             runs in parallel; results come back in task order, and one that fails does not stop the others.",
            schema,
        )
        .with_json_as_text(&["task", "context", "messages/content"])
    }
}

fn evaluate() -> ToolSpec {
    let schema = json!({
        "type": "object",
        "properties": {
            "target_goal_id": {"type": "string", "description": "The goal to judge; the focused one if left out."},
            "messages": initial_messages_schema("What the evaluator's conversation begins with."),
            "context": {"type": "string", "description": "What the evaluator should look at."},
            "continue_from": {"type": "string", "description": "The sub_trace_id of an earlier evaluation that continues."}
        },
        "additionalProperties": false
    });
    ToolSpec {
        effect: ToolEffect::Read,
        ..ToolSpec::write(
            "evaluate",
            "Evaluation",
            "Lets a sub-agent judge whether a goal is met: passed, summary, findings.",
            schema,
        )
        .with_json_as_text(&["context", "messages/content"])
    }
}

fn ask_human() -> ToolSpec {
    let schema = json!({
        "type": "object",
        "properties": {
            "question": {"type": "string", "minLength": 1, "description": "The question, with all that is needed to answer it."},
            "to": {"type": "string", "minLength": 1, "maxLength": 100, "description": "Who is asked, if that matters."}
        },
        "required": ["question"],
        "additionalProperties": false
    });
    ToolSpec::read(
        "ask_human",
        "Question",
        "Asks a person and waits for the answer, which may take long. Only for what you can neither find out nor decide.",
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
                ],
                "description": "Goals to add."
            },
            "reason": {"type": "string", "description": "Why they are added."},
            "under": {"type": "string", "description": "The goal that they are part of."},
            "after": {"type": "string", "description": "The goal that they come after."},
            "focus": {"type": "string", "description": "The goal to work on from now on."},
            "done": {"type": "string", "description": "Closes the focused goal: what came out."},
            "abandon": {"type": "string", "description": "Gives the focused goal up: why."}
        },
        "additionalProperties": false
    });
    ToolSpec::write(
        "goal",
        "Goals",
        "Keeps the plan: adds goals, focuses one, closes the focused one. Goals are named by their number.",
        schema,
    )
}
