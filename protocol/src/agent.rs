//! Presets: what kinds of agents there are (SUB-5).

use serde::{Deserialize, Serialize};

/// An agent type: tools, limits, prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Preset {
    /// Its name; what `agent_type` refers to.
    pub name: String,
    /// When to use it; shown to models and people.
    pub description: String,
    /// The tools it may use; `None` = all that its run may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_tools: Option<Vec<String>>,
    /// Tools it may not use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub denied_tools: Vec<String>,
    /// Most turns as a child; a main agent has no limit of the preset's own unless it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_iterations: Option<u32>,
    /// Sampling temperature in place of the profile's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Skills that its prompt holds; `None` = all that are built in (MEM-1). They are text, and grant no tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skills: Option<Vec<String>>,
    /// Model profile in place of the run's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What the agent is told to be.
    pub instructions: String,
    /// Whether it only coordinates: it hands on its whole ceiling, not just its own tools (SUB-6).
    #[serde(default)]
    pub coordinates: bool,
}

impl Preset {
    /// Returns whether the preset lets its agent use `tool`.
    pub fn allows(&self, tool: &str) -> bool {
        let listed = self.allowed_tools.as_ref().is_none_or(|tools| tools.iter().any(|name| name == tool));
        listed && !self.denied_tools.iter().any(|name| name == tool)
    }
}

const READING: [&str; 4] = ["read", "list_files", "glob", "grep"];

/// Returns the presets that every runtime has.
pub fn builtin_presets() -> Vec<Preset> {
    let preset = |name: &str, description: &str, instructions: &str| Preset {
        name: name.to_owned(),
        description: description.to_owned(),
        allowed_tools: None,
        denied_tools: Vec::new(),
        max_iterations: None,
        temperature: None,
        skills: None,
        model: None,
        instructions: instructions.to_owned(),
        coordinates: false,
    };
    let tools = |more: &[&str]| Some(READING.iter().chain(more).map(|name| (*name).to_owned()).collect());
    vec![
        Preset {
            max_iterations: Some(30),
            ..preset(
                "default",
                "Does a piece of work with all tools.",
                "You are a careful agent. Work on the task with the tools you have, verify what you claim, and \
                 end with an answer that stands on its own.",
            )
        },
        Preset {
            allowed_tools: tools(&["goal"]),
            max_iterations: Some(15),
            ..preset(
                "explore",
                "Reads and searches the project; changes nothing.",
                "You explore one part of a project for somebody else. Read only what the task needs. End with \
                 findings: what is there, with file names, and what it is for.",
            )
        },
        Preset {
            allowed_tools: tools(&["read_artifact", "list_artifacts", "web_search", "webfetch"]),
            max_iterations: Some(25),
            temperature: Some(0.3),
            ..preset(
                "analyst",
                "Compares and weighs what it reads; changes nothing.",
                "You analyse. Base every statement on something that you read, name the source, and keep what is \
                 known apart from what you conclude.",
            )
        },
        Preset {
            allowed_tools: tools(&["read_artifact", "list_artifacts"]),
            max_iterations: Some(15),
            ..preset(
                "evaluator",
                "Judges whether a goal is met.",
                "You judge whether a goal is met. Check the evidence yourself. Answer with one JSON object and \
                 nothing else: {\"passed\": true or false, \"summary\": \"…\", \"findings\": [\"…\"]}.",
            )
        },
        Preset {
            allowed_tools: tools(&[
                "goal",
                "agent",
                "evaluate",
                "ask_human",
                "create_artifact",
                "update_artifact",
                "rewrite_artifact",
                "read_artifact",
                "list_artifacts",
            ]),
            coordinates: true,
            ..preset(
                "orchestrator",
                "Plans goals and lets sub-agents do the work.",
                "You orchestrate. First look at what there is, then set goals with `goal` and write the plan as \
                 artifact `task_plan`, before the first `agent` call; tick it off with `update_artifact` after each \
                 result. Let sub-agents work: `agent` with a list of tasks explores in parallel, with \
                 one task it delegates; `evaluate` judges a goal. Give each sub-agent all it needs to know: it sees \
                 only its task. Close goals with a summary, store the result as an artifact, and end with a short \
                 answer that says where it is.",
            )
        },
    ]
}
