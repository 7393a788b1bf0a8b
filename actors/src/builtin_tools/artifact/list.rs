//! Tool `list_artifacts`: lists the artifacts of the session and of the user (ART-6).

use futures::{FutureExt, future::BoxFuture};
use serde_json::{Value, json};
use soong_protocol::ToolSpec;
use soong_tool::{Tool, ToolContext, ToolOutput, ToolResult};

use super::artifact_owner;

/// The tool `list_artifacts`.
pub(crate) struct ListArtifacts(ToolSpec);

impl ListArtifacts {
    pub(crate) fn new() -> Self {
        let schema = json!({"type": "object", "properties": {}, "additionalProperties": false});
        Self(ToolSpec::read(
            "list_artifacts",
            "List artifacts",
            "Lists the artifacts of the session and of the user.",
            schema,
        ))
    }
}

impl Tool for ListArtifacts {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn call(&self, context: ToolContext, _: Value) -> BoxFuture<'static, ToolResult> {
        async move {
            let mut out = String::new();
            for artifact in context.artifacts()?.list(&artifact_owner(&context)).await? {
                if artifact.debug {
                    continue;
                }
                out.push_str(&format!(
                    "{} (version {}, {}, {} bytes): {}\n",
                    artifact.key(),
                    artifact.current_version,
                    artifact.content_type,
                    artifact.size,
                    artifact.title
                ));
            }
            if out.is_empty() {
                out.push_str("no artifacts yet");
            }
            Ok(ToolOutput::text("artifacts", out))
        }
        .boxed()
    }
}
