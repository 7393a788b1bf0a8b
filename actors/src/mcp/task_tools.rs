//! Tools that a server only allows to be called as tasks (`execution.taskSupport: "required"`),
//! which is not supported.
//!
//! The SDK drops that field, so messages are inspected before the SDK parses them.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use serde::Deserialize;

use super::leniency::messages_of_batch;

/// Names of these tools. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct TaskTools(Arc<Mutex<BTreeSet<String>>>);

impl TaskTools {
    /// Returns whether a tool can only be called as a task.
    pub(super) fn contains(&self, tool: &str) -> bool {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(tool)
    }

    /// Inspects a message of the server, or several in an array. Messages other than tool lists are
    /// ignored.
    pub(super) fn inspect(&self, message: &[u8]) {
        #[derive(Deserialize)]
        struct Message {
            result: List,
        }
        #[derive(Deserialize)]
        struct List {
            tools: Vec<Tool>,
        }
        #[derive(Deserialize)]
        struct Tool {
            name: String,
            execution: Option<Execution>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Execution {
            task_support: Option<String>,
        }
        const FIELD: &[u8] = b"\"taskSupport\"";
        if !message.windows(FIELD.len()).any(|window| window == FIELD) {
            return;
        }
        let message = message
            .strip_prefix("\u{feff}".as_bytes())
            .unwrap_or(message);
        if let Some(messages) = messages_of_batch(message) {
            for message in messages {
                self.inspect(message.as_bytes());
            }
            return;
        }
        let Ok(Message { result }) = serde_json::from_slice::<Message>(message) else {
            return;
        };
        let mut tools = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for Tool { name, execution } in result.tools {
            match execution
                .and_then(|execution| execution.task_support)
                .as_deref()
            {
                Some("required") => drop(tools.insert(name)),
                _ => drop(tools.remove(&name)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn task_requirement_is_kept_until_tool_list_changes_it() {
        let list = |support: &str| {
            let tools =
                json!([{"name": "a", "execution": {"taskSupport": support}}, {"name": "b"}]);
            json!({"jsonrpc": "2.0", "id": 1, "result": {"tools": tools}}).to_string()
        };
        let tools = TaskTools::default();
        for (message, want) in [
            (list("required"), true),
            ("\"taskSupport\" nonsense".to_owned(), true),
            (list("optional"), false),
            (list("required"), true),
            (json!({"result": {"taskSupport": 1}}).to_string(), true),
        ] {
            tools.inspect(message.as_bytes());
            assert_eq!(
                (tools.contains("a"), tools.contains("b")),
                (want, false),
                "{message}"
            );
        }
    }
}
