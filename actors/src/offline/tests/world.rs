//! A small session for tests of the offline model: real file tools on a temporary project; goals,
//! children and artifacts are handled as the run machine would.

use std::{collections::BTreeMap, sync::Mutex};

use futures::{FutureExt, future::BoxFuture};
use serde_json::json;
use soong_protocol::{
    GoalStatus, GoalTree, Message, Preset, Role, Timestamp, TraceId, builtin_presets,
};
use soong_tool::{ToolRegistry, testing::TestProject};

use super::super::*;
use crate::builtin_tools;

pub(super) const MAX_TURNS: usize = 25;

/// A small session. `tamper` may change the result of an agent call.
pub(super) struct TestSession {
    pub(super) project: TestProject,
    pub(super) registry: ToolRegistry,
    pub(super) artifacts: Mutex<BTreeMap<String, String>>,
    pub(super) goals: Mutex<GoalTree>,
    pub(super) children: Mutex<Vec<String>>,
    pub(super) tamper: fn(usize, &str, Value) -> Value,
}

/// How a run ended.
pub(super) struct Ended {
    pub(super) answer: String,
    pub(super) messages: Vec<std::sync::Arc<Message>>,
}

pub(super) struct Streamed(pub(super) String);

impl DeltaSink for Streamed {
    fn push(&mut self, delta: Delta) {
        if let Delta::Text { text } = delta {
            self.0.push_str(&text);
        }
    }
}

impl TestSession {
    pub(super) fn new(project: TestProject) -> Self {
        let registry =
            builtin_tools::registry(&Default::default(), &Default::default(), None).unwrap();
        Self {
            project,
            registry,
            artifacts: Mutex::default(),
            goals: Mutex::new(GoalTree::new("mission")),
            children: Mutex::default(),
            tamper: |_, _, result| result,
        }
    }

    pub(super) fn artifact(&self, name: &str) -> String {
        self.artifacts
            .lock()
            .unwrap()
            .get(name)
            .cloned()
            .unwrap_or_default()
    }

    pub(super) async fn orchestrate(&self, task: &str) -> Ended {
        self.run("orchestrator", task.to_owned(), Vec::new()).await
    }

    pub(super) fn run(
        &self,
        agent_type: &'static str,
        task: String,
        history: Vec<std::sync::Arc<Message>>,
    ) -> BoxFuture<'_, Ended> {
        async move {
            let preset: Preset = builtin_presets()
                .into_iter()
                .find(|preset| preset.name == agent_type)
                .unwrap();
            let is_child = agent_type != "orchestrator";
            let offered = self
                .registry
                .specs()
                .filter(|spec| preset.allows(&spec.name));
            let offered = offered
                .filter(|spec| !(is_child && matches!(spec.name.as_str(), "agent" | "evaluate")));
            let mut request = ModelRequest {
                system: vec![preset.instructions.as_str().into()],
                messages: history,
                tools: offered.cloned().collect(),
                ..ModelRequest::default()
            };
            add(&mut request, Role::User, task);
            for _ in 0..MAX_TURNS {
                let mut streamed = Streamed(String::new());
                let completion = Offline::new()
                    .complete(&request, &mut streamed)
                    .await
                    .unwrap();
                assert_eq!(streamed.0, completion.text);
                assert!(
                    completion
                        .usage
                        .is_some_and(|usage| usage.estimated && usage.prompt_tokens > 0)
                );
                let message = add(&mut request, Role::Assistant, completion.text.clone());
                message.tool_calls.clone_from(&completion.tool_calls);
                if completion.tool_calls.is_empty() {
                    return Ended {
                        answer: completion.text,
                        messages: request.messages,
                    };
                }
                for call in completion.tool_calls {
                    let result = self.call(&call).await;
                    add(&mut request, Role::Tool, result).tool_call_id = Some(call.id);
                }
            }
            panic!("{agent_type} did not end in {MAX_TURNS} turns");
        }
        .boxed()
    }

    async fn call(&self, call: &ToolCall) -> String {
        let arguments = match self.registry.check_arguments(&call.name, &call.arguments) {
            Ok(checked) => checked.value,
            Err(error) => panic!("{}: {error}", call.name),
        };
        let text = |name: &str| {
            arguments
                .get(name)
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        match call.name.as_str() {
            "goal" => self
                .goal(&arguments)
                .unwrap_or_else(|error| format!("error: goal_not_found: {error}")),
            "create_artifact" => {
                let name = text("name").unwrap();
                let mut artifacts = self.artifacts.lock().unwrap();
                if artifacts.contains_key(&name) {
                    return format!("error: artifact_exists: {name}");
                }
                artifacts.insert(name, text("content").unwrap());
                "<artifact version=\"1\"/>".to_owned()
            }
            "rewrite_artifact" => {
                self.artifacts
                    .lock()
                    .unwrap()
                    .insert(text("name").unwrap(), text("content").unwrap());
                "<artifact version=\"2\"/>".to_owned()
            }
            "update_artifact" => {
                let mut artifacts = self.artifacts.lock().unwrap();
                let content = artifacts.get_mut(&text("name").unwrap()).unwrap();
                let old = text("old").unwrap();
                let new = text("new").unwrap();
                assert_eq!(content.matches(&old).count(), 1, "{old:?} in {content}");
                *content = content.replace(&old, &new);
                "<artifact version=\"3\"/>".to_owned()
            }
            "read_artifact" => {
                let content = self
                    .artifacts
                    .lock()
                    .unwrap()
                    .get(&text("name").unwrap())
                    .cloned();
                content.unwrap_or_else(|| "error: artifact_not_found: no such artifact".to_owned())
            }
            "agent" => match &arguments["task"] {
                Value::Array(tasks) => {
                    let mut results = Vec::new();
                    for (index, task) in tasks.iter().enumerate() {
                        results.push(self.child(index, "explore", task.as_str().unwrap()).await);
                    }
                    json!({"mode": "explore", "results": results}).to_string()
                }
                task => self
                    .child(0, "delegate", task.as_str().unwrap())
                    .await
                    .to_string(),
            },
            "evaluate" => {
                let task = format!(
                    "Evaluate whether the goal is met.\n\n## Context\n{}",
                    text("context").unwrap()
                );
                self.child(0, "evaluate", &task).await.to_string()
            }
            reading => {
                let tool = self
                    .registry
                    .get(reading)
                    .and_then(|entry| entry.tool.clone())
                    .unwrap();
                self.project
                    .call(tool.as_ref(), arguments)
                    .await
                    .unwrap_or_else(|error| format!("error: {error}"))
            }
        }
    }

    async fn child(&self, index: usize, mode: &str, task: &str) -> Value {
        self.children.lock().unwrap().push(task.to_owned());
        let agent_type = match mode {
            "explore" => "explore",
            "delegate" => "default",
            _ => "evaluator",
        };
        let ended = self.run(agent_type, task.to_owned(), Vec::new()).await;
        let id = format!("s@{mode}-{:03}-20260101000000-001", index + 1);
        let mut result = json!({"mode": mode, "sub_trace_id": id, "run_id": "r", "status": "completed", "summary": ended.answer, "stats": {}});
        if mode == "evaluate" {
            let verdict: Value = serde_json::from_str(&ended.answer).unwrap();
            for name in ["passed", "summary", "findings"] {
                result[name] = verdict[name].clone();
            }
        }
        (self.tamper)(index, mode, result)
    }

    fn goal(&self, arguments: &Value) -> Result<String, soong_protocol::GoalError> {
        let mut goals = self.goals.lock().unwrap();
        let at = Timestamp::default();
        let text = |name: &str| arguments.get(name).and_then(Value::as_str);
        let mut next = goals.clone();
        if let Some(add) = arguments.get("add").and_then(Value::as_array) {
            let add: Vec<String> = add
                .iter()
                .map(|goal| goal.as_str().unwrap().to_owned())
                .collect();
            next.plan_add(&add, "", None, None, 0, at)?
                .iter()
                .for_each(|event| next.apply(event));
        }
        if let Some(done) = text("done") {
            next.plan_close(None, GoalStatus::Completed, done)?
                .iter()
                .for_each(|event| next.apply(event));
        }
        if let Some(focus) = text("focus") {
            next.plan_focus(focus)?
                .iter()
                .for_each(|event| next.apply(event));
        }
        *goals = next;
        Ok(goals.render(true))
    }
}

pub(super) fn add(request: &mut ModelRequest, role: Role, content: String) -> &mut Message {
    let sequence = request.messages.len() as u64 + 1;
    let message = Message::new(
        TraceId::new("s"),
        sequence,
        None,
        role,
        content,
        Timestamp::default(),
    );
    request.messages.push(message.into());
    std::sync::Arc::get_mut(request.messages.last_mut().unwrap()).unwrap()
}
