//! The artifact tools of models: `create_artifact`, `read_artifact`, `list_artifacts`.

use futures::{FutureExt, future::BoxFuture};
use serde::Deserialize;
use serde_json::{Value, json};
use soong_protocol::{
    Artifact, ArtifactName, ArtifactRef, ArtifactScope, ArtifactSource, ErrorCode, ErrorInfo, Provenance, ToolSpec,
    UpdateType,
};

use super::{Tool, ToolContext, ToolOutput, ToolResult, arguments};
use crate::artifact::Save;

/// Splits `user:NAME` from names of the session.
fn scope_of<'a>(context: &ToolContext, name: &'a str) -> (ArtifactScope, &'a str) {
    match name.strip_prefix("user:") {
        Some(name) => (ArtifactScope::User { uid: context.uid.to_string() }, name),
        None => (ArtifactScope::Session { session_id: context.session_id.clone() }, name),
    }
}

/// Escapes what stands between tags.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// `create_artifact`: stores a text under a new name.
pub(crate) struct CreateArtifact(ToolSpec);

impl CreateArtifact {
    pub(crate) fn new() -> Self {
        let schema = json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "Its name, such as report; user:NAME is seen from all sessions of the user."},
                "content": {"type": "string", "description": "The whole text."},
                "content_type": {"type": "string", "description": "MIME type; text/markdown if left out."},
                "title": {"type": "string", "description": "What people call it."}
            },
            "required": ["name", "content"],
            "additionalProperties": false
        });
        // Idempotent by the identity of its call: the store answers a repeated one with what it has.
        let spec = ToolSpec::write(
            "create_artifact",
            "Create artifact",
            "Stores a text as a named artifact of the session. Refused if the name exists.",
            schema,
        );
        Self(ToolSpec { idempotent: true, ..spec })
    }
}

#[derive(Deserialize)]
struct Create {
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

    fn call(&self, context: ToolContext, value: Value) -> BoxFuture<'static, ToolResult> {
        async move {
            let wish: Create = arguments(value)?;
            let (scope, name) = scope_of(&context, &wish.name);
            let name = ArtifactName::parse(name)
                .map_err(|error| ErrorInfo::new(ErrorCode::ValidationError, error.to_string()))?;
            let artifact = context
                .artifacts
                .save(Save {
                    scope,
                    name,
                    title: wish.title,
                    content_type: wish.content_type.unwrap_or_else(|| "text/markdown".to_owned()),
                    content: wish.content.into(),
                    source: ArtifactSource::Agent,
                    provenance: Provenance {
                        run_id: Some(context.run_id.clone()),
                        trace_id: Some(context.trace_id.clone()),
                        tool_call_id: Some(context.tool_call_id.clone()),
                    },
                    update_type: UpdateType::Create,
                })
                .await?;
            Ok(written(&artifact, "created"))
        }
        .boxed()
    }
}

/// Answers a write in short XML, with the reference beside it (ART-4).
fn written(artifact: &Artifact, verb: &str) -> ToolOutput {
    let (version, id) = (artifact.current_version, escape(&artifact.name));
    let output = format!("<artifact version=\"{version}\"><id>{id}</id>{verb}, {} bytes</artifact>", artifact.size);
    ToolOutput {
        title: format!("{} {verb}", artifact.name),
        output,
        artifact_delta: [(artifact.name.clone(), version)].into(),
        artifact_ref: Some(ArtifactRef {
            kind: Default::default(),
            artifact_id: artifact.artifact_id.clone(),
            name: artifact.name.clone(),
            version,
            content_type: artifact.content_type.clone(),
            size: artifact.size,
            summary: artifact.title.clone(),
        }),
    }
}

/// `read_artifact`: pages through an artifact's text by line.
pub(crate) struct ReadArtifact(ToolSpec);

impl ReadArtifact {
    pub(crate) fn new() -> Self {
        let schema = json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "Its name."},
                "version": {"type": "integer", "minimum": 1, "description": "A stored version; the current one if left out."},
                "offset": {"type": "integer", "minimum": 1, "description": "First line, from 1."},
                "limit": {"type": "integer", "minimum": 1, "description": "How many lines."}
            },
            "required": ["name"],
            "additionalProperties": false
        });
        Self(ToolSpec::read("read_artifact", "Read artifact", "Reads the text of an artifact, by line.", schema))
    }
}

#[derive(Deserialize)]
struct Read {
    name: String,
    version: Option<u64>,
    #[serde(default = "one")]
    offset: usize,
    limit: Option<usize>,
}

fn one() -> usize {
    1
}

impl Tool for ReadArtifact {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn call(&self, context: ToolContext, value: Value) -> BoxFuture<'static, ToolResult> {
        async move {
            let wish: Read = arguments(value)?;
            let (scope, name) = scope_of(&context, &wish.name);
            let Some((artifact, bytes)) = context.artifacts.load(&scope, name, wish.version).await? else {
                let message = format!("there is no artifact {:?} (of that version): see list_artifacts", wish.name);
                return Err(ErrorInfo::new(ErrorCode::ArtifactNotFound, message));
            };
            let Ok(text) = std::str::from_utf8(&bytes) else {
                let message = format!("{:?} is {}, {} bytes: no text", wish.name, artifact.content_type, bytes.len());
                return Err(ErrorInfo::new(ErrorCode::UnsupportedMedia, message));
            };
            Ok(ToolOutput::text(format!("read {}", artifact.name), page(text, &wish, context.output_limit_bytes)))
        }
        .boxed()
    }
}

/// Cuts a page of whole lines out of a text, and says how to go on.
fn page(text: &str, wish: &Read, limit_bytes: usize) -> String {
    let total = text.lines().count();
    let room = limit_bytes.saturating_sub(128);
    let mut out = String::new();
    let mut shown = 0;
    for line in text.lines().skip(wish.offset - 1).take(wish.limit.unwrap_or(usize::MAX)) {
        if out.len() + line.len() + 1 > room && shown > 0 {
            break;
        }
        out.push_str(line);
        out.push('\n');
        shown += 1;
    }
    let next = wish.offset + shown;
    if next <= total {
        out.push_str(&format!("[lines {} to {} of {total}; go on with offset={next}]", wish.offset, next - 1));
    }
    out
}

/// `list_artifacts`: the names of both scopes.
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
            let session = ArtifactScope::Session { session_id: context.session_id.clone() };
            let user = ArtifactScope::User { uid: context.uid.to_string() };
            let mut out = String::new();
            for (prefix, scope) in [("", session), ("user:", user)] {
                for artifact in context.artifacts.list(&scope).await? {
                    out.push_str(&format!(
                        "{prefix}{} (version {}, {}, {} bytes): {}\n",
                        artifact.name, artifact.current_version, artifact.content_type, artifact.size, artifact.title
                    ));
                }
            }
            if out.is_empty() {
                out.push_str("no artifacts yet");
            }
            Ok(ToolOutput::text("artifacts", out))
        }
        .boxed()
    }
}
