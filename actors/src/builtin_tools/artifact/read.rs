//! Tool `read_artifact`: pages through the text of an artifact by line (ART-6).

use futures::{FutureExt, future::BoxFuture};
use serde::Deserialize;
use serde_json::{Value, json};
use soong_model::tokens::estimate_tokens;
use soong_protocol::{ErrorCode, ErrorInfo, ToolSpec};
use soong_tool::{Tool, ToolContext, ToolOutput, ToolResult, arguments};

use super::artifact_owner;

/// Space that a page reserves for the line that says how to continue, in bytes.
const FOOTER_BYTES: usize = 128;

/// The tool `read_artifact`.
pub(crate) struct ReadArtifact(ToolSpec);

impl ReadArtifact {
    pub(crate) fn new() -> Self {
        let schema = json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "Name or id."},
                "version": {
                    "type": "integer",
                    "minimum": 1,
                    "description": "Default: the current text."
                },
                "offset": {"type": "integer", "minimum": 1},
                "limit": {"type": "integer", "minimum": 1}
            },
            "required": ["name"],
            "additionalProperties": false
        });
        let spec = ToolSpec::read(
            "read_artifact",
            "Read artifact",
            "Reads the text of an artifact, by line.",
            schema,
        );
        Self(ToolSpec {
            paged: true,
            ..spec
        })
    }
}

#[derive(Deserialize)]
struct ReadArguments {
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
            let arguments: ReadArguments = arguments(value)?;
            let owner = artifact_owner(&context);
            let Some(loaded) = context
                .artifacts()?
                .load(&owner, &arguments.name, arguments.version)
                .await?
            else {
                return Err(not_found_error(&context, &arguments).await?);
            };
            let title = format!("read {}", loaded.artifact.key());
            let text = loaded.text().await?;
            let limit = context.output_limit;
            let shown = page(&text, &arguments, limit.bytes, limit.tokens);
            Ok(ToolOutput::text(title, shown))
        }
        .boxed()
    }
}

/// Returns the error for a missing artifact or a missing version.
async fn not_found_error(
    context: &ToolContext,
    arguments: &ReadArguments,
) -> Result<ErrorInfo, ErrorInfo> {
    let artifacts = context.artifacts()?;
    let owner = artifact_owner(context);
    let Some(version) = arguments.version else {
        return Ok(crate::artifact::not_found(&arguments.name));
    };
    let versions = artifacts.list_versions(&owner, &arguments.name).await?;
    if versions.is_empty()
        && artifacts
            .load(&owner, &arguments.name, None)
            .await?
            .is_none()
    {
        return Ok(crate::artifact::not_found(&arguments.name));
    }
    let known: Vec<String> = versions.iter().map(|one| one.version.to_string()).collect();
    let known = if known.is_empty() {
        "none stored yet, omit `version` to read the current content".to_owned()
    } else {
        format!("stored versions: {}", known.join(", "))
    };
    let message = format!(
        "{:?} has no stored version {version}; {known}",
        arguments.name
    );
    Ok(ErrorInfo::new(ErrorCode::VersionNotFound, message))
}

/// Returns a page of whole lines, and how to continue. Only a line that is longer than a page is
/// cut.
fn page(text: &str, arguments: &ReadArguments, limit_bytes: usize, limit_tokens: u64) -> String {
    let total = text.lines().count();
    if arguments.offset > total.max(1) {
        return format!("[the text has {total} lines]");
    }
    let room = limit_bytes.saturating_sub(FOOTER_BYTES).max(1);
    let mut out = String::new();
    let mut tokens = 0;
    let mut shown = 0;
    for line in text
        .lines()
        .skip(arguments.offset - 1)
        .take(arguments.limit.unwrap_or(usize::MAX))
    {
        tokens += estimate_tokens(line);
        let is_full = out.len() + line.len() + 1 > room || tokens > limit_tokens;
        if is_full && shown > 0 {
            break;
        }
        shown += 1;
        if is_full {
            // A token has at least one byte.
            let most = room.min(usize::try_from(limit_tokens).unwrap_or(usize::MAX));
            let end = (0..=most.min(line.len()))
                .rev()
                .find(|end| line.is_char_boundary(*end))
                .unwrap_or(0);
            out.push_str(&format!(
                "{}\n[this line has {} bytes: cut]\n",
                &line[..end],
                line.len()
            ));
            break;
        }
        out.push_str(line);
        out.push('\n');
    }
    let next = arguments.offset + shown;
    if next <= total {
        out.push_str(&format!(
            "[lines {} to {} of {total}; continue with offset={next}]",
            arguments.offset,
            next - 1
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page_of(offset: usize, limit: Option<usize>) -> ReadArguments {
        ReadArguments {
            name: "a".into(),
            version: None,
            offset,
            limit,
        }
    }

    #[test]
    fn page_ends_at_limits_and_gives_next_offset() {
        let text = "one\ntwo\nthree\n";
        for (offset, limit, bytes, tokens, want) in [
            (1, None, 1_000, 1_000, "one\ntwo\nthree\n"),
            (
                2,
                Some(1),
                1_000,
                1_000,
                "two\n[lines 2 to 2 of 3; continue with offset=3]",
            ),
            (
                1,
                None,
                FOOTER_BYTES + 8,
                1_000,
                "one\ntwo\n[lines 1 to 2 of 3; continue with offset=3]",
            ),
            (
                1,
                None,
                1_000,
                2,
                "one\ntwo\n[lines 1 to 2 of 3; continue with offset=3]",
            ),
            (4, None, 1_000, 1_000, "[the text has 3 lines]"),
        ] {
            assert_eq!(
                page(text, &page_of(offset, limit), bytes, tokens),
                want,
                "{offset} {limit:?} {bytes} {tokens}"
            );
        }
        let long = page(
            &"好".repeat(100),
            &page_of(1, None),
            FOOTER_BYTES + 10,
            1_000,
        );
        assert_eq!(long, "好好好\n[this line has 300 bytes: cut]\n");
        assert_eq!(page("", &page_of(1, None), 100, 100), "");
    }
}
