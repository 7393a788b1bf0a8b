//! Tools `create_artifact`, `update_artifact`, `rewrite_artifact`: the edits of models (ART-4,
//! ART-7).

use futures::{FutureExt, future::BoxFuture};
use serde::Deserialize;
use serde_json::{Value, json};
use soong_protocol::{
    AccessRequest, ArtifactSource, EffectId, ErrorCode, ErrorInfo, Provenance, ToolSpec, TraceId,
};
use soong_tool::{
    Tool, ToolContext, ToolResult, arguments,
    artifact::{Change, ChangeCondition, EditRequest},
};

use super::{artifact_owner, edit_output};
use crate::artifact::PLAN;

/// Description of artifact names in the tool schemas.
const NAME_DESCRIPTION: &str =
    "Such as `report`; `user:NAME` is visible in all sessions of the user.";

/// Makes the spec of an editing tool. Its calls are identified by their effect, so they may be
/// repeated after a crash (DUR-4).
fn spec(name: &str, title: &str, description: &str, parameters: Value) -> ToolSpec {
    ToolSpec {
        idempotent: true,
        ..ToolSpec::write(name, title, description, parameters)
    }
}

/// Makes the edit of a call.
async fn edit(context: ToolContext, key: String, change: Change) -> ToolResult {
    if key == PLAN && context.trace_id != TraceId::root(&context.session_id) {
        let message = format!(
            "only the main agent writes {PLAN}: tell what you found in your answer instead"
        );
        return Err(ErrorInfo::new(ErrorCode::PermissionDenied, message));
    }
    let request = EditRequest {
        condition: ChangeCondition::default(),
        key,
        change,
        source: ArtifactSource::Agent,
        provenance: Provenance {
            run_id: Some(context.run_id.clone()),
            trace_id: Some(context.trace_id.clone()),
            message_sequence: context.message_sequence,
            tool_call_id: Some(context.tool_call_id.clone()),
        },
        effect: Some(EffectId {
            run_id: context.run_id.clone(),
            turn: context.turn,
            tool_call_id: context.tool_call_id.clone(),
        }),
    };
    let edited = context
        .artifacts()?
        .edit(&artifact_owner(&context), request)
        .await?;
    Ok(edit_output(&edited))
}

/// The tool `create_artifact`: stores a text under a new name.
pub(crate) struct CreateArtifact(ToolSpec);

impl CreateArtifact {
    pub(crate) fn new() -> Self {
        let schema = json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": NAME_DESCRIPTION},
                "content": {"type": "string"},
                "content_type": {"type": "string", "description": "Default: text/markdown."},
                "title": {"type": "string"}
            },
            "required": ["name", "content"],
            "additionalProperties": false
        });
        Self(
            spec(
                "create_artifact",
                "Create artifact",
                "Stores a new text under a name. To change an existing one, update or rewrite it.",
                schema,
            )
            .with_json_as_text(&["content"]),
        )
    }
}

#[derive(Deserialize)]
struct CreateArguments {
    name: String,
    content: String,
    content_type: Option<String>,
    #[serde(default)]
    title: String,
}

impl Tool for CreateArtifact {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn required_access(
        &self,
        _: &ToolContext,
        _: &Value,
    ) -> Result<Option<AccessRequest>, ErrorInfo> {
        Ok(None) // documents of the session; all their versions are kept
    }

    fn call(&self, context: ToolContext, value: Value) -> BoxFuture<'static, ToolResult> {
        async move {
            let CreateArguments {
                name,
                content,
                content_type,
                title,
            } = arguments(value)?;
            let content_type = content_type.unwrap_or_else(|| "text/markdown".to_owned());
            edit(
                context,
                name,
                Change::Create {
                    content,
                    content_type,
                    title,
                },
            )
            .await
        }
        .boxed()
    }
}

/// The tool `update_artifact`: replaces a part of a text.
pub(crate) struct UpdateArtifact(ToolSpec);

impl UpdateArtifact {
    pub(crate) fn new() -> Self {
        let schema = json!({
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "old": {
                    "type": "string",
                    "minLength": 1,
                    "description": "The part to replace. It must not occur more than once."
                },
                "new": {"type": "string"}
            },
            "required": ["name", "old", "new"],
            "additionalProperties": false
        });
        Self(spec(
            "update_artifact",
            "Update artifact",
            "Replaces one part of an artifact's text; if it is not found exactly, the most similar part. The result \
             says which.",
            schema,
        ))
    }
}

#[derive(Deserialize)]
struct UpdateArguments {
    name: String,
    old: String,
    new: String,
}

impl Tool for UpdateArtifact {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn required_access(
        &self,
        _: &ToolContext,
        _: &Value,
    ) -> Result<Option<AccessRequest>, ErrorInfo> {
        Ok(None) // documents of the session; all their versions are kept
    }

    fn call(&self, context: ToolContext, value: Value) -> BoxFuture<'static, ToolResult> {
        async move {
            let UpdateArguments { name, old, new } = arguments(value)?;
            edit(context, name, Change::Update { old, new }).await
        }
        .boxed()
    }
}

/// The tool `rewrite_artifact`: replaces a whole text.
pub(crate) struct RewriteArtifact(ToolSpec);

impl RewriteArtifact {
    pub(crate) fn new() -> Self {
        let schema = json!({
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "content": {"type": "string"}
            },
            "required": ["name", "content"],
            "additionalProperties": false
        });
        Self(
            spec(
                "rewrite_artifact",
                "Rewrite artifact",
                "Replaces the whole text of an artifact.",
                schema,
            )
            .with_json_as_text(&["content"]),
        )
    }
}

#[derive(Deserialize)]
struct RewriteArguments {
    name: String,
    content: String,
}

impl Tool for RewriteArtifact {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn required_access(
        &self,
        _: &ToolContext,
        _: &Value,
    ) -> Result<Option<AccessRequest>, ErrorInfo> {
        Ok(None) // documents of the session; all their versions are kept
    }

    fn call(&self, context: ToolContext, value: Value) -> BoxFuture<'static, ToolResult> {
        async move {
            let RewriteArguments { name, content } = arguments(value)?;
            edit(context, name, Change::Rewrite { content }).await
        }
        .boxed()
    }
}
