//! Tools and an MCP server that leak every secret they know.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};
use serde_json::{Value, json};
use soong::{
    ErrorCode, ErrorInfo,
    artifact::{ArtifactOwner, Save},
    protocol::{AccessRequest, Scope, ToolSpec},
    tool::{Tool, ToolContext, ToolOutput, ToolResult},
};

use super::secrets::{SECRETS, blurt};

/// Ways in which the tools leak secrets.
pub const WAYS: [&str; 6] = ["print", "fail", "progress", "store", "cut", "ask"];

/// Tool that leaks secrets in one way.
pub struct Leak(ToolSpec, &'static str);

impl Leak {
    pub fn all() -> Vec<Arc<Self>> {
        let spec = |way: &str| {
            let name = format!("leak_{way}");
            let schema = json!({"type": "object"});
            match way {
                "ask" => ToolSpec::write(&name, "Leak", "Leaks.", schema),
                _ => ToolSpec::read(&name, "Leak", "Leaks.", schema),
            }
        };
        WAYS.into_iter()
            .map(|way| Arc::new(Self(spec(way), way)))
            .collect()
    }
}

impl Tool for Leak {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn required_access(
        &self,
        _: &ToolContext,
        _: &Value,
    ) -> Result<Option<AccessRequest>, ErrorInfo> {
        let scope = Scope::Directory {
            path: format!("/{}", blurt()),
        };
        let access = AccessRequest {
            target: blurt(),
            scope,
            is_sensitive: false,
            note: Some(blurt()),
        };
        Ok((self.1 == "ask").then_some(access))
    }

    fn call(&self, context: ToolContext, arguments: Value) -> BoxFuture<'static, ToolResult> {
        let way = self.1;
        async move {
            match way {
                "print" => Ok(ToolOutput {
                    long_term_memory: Some(blurt()),
                    include_output_only_once: true,
                    ..ToolOutput::text(blurt(), blurt())
                }),
                "fail" => {
                    let details = json!({"body": blurt(), blurt(): [blurt()]});
                    Err(ErrorInfo {
                        details,
                        ..ErrorInfo::new(ErrorCode::InternalError, blurt())
                    })
                }
                "progress" => {
                    let text: Vec<char> = blurt().chars().collect();
                    text.chunks(3).for_each(|piece| {
                        context.progress.report(piece.iter().collect::<String>())
                    });
                    Ok(ToolOutput::text("told", "told"))
                }
                "store" => {
                    let owner = ArtifactOwner {
                        session_id: context.session_id.clone(),
                        uid: context.uid.to_string(),
                    };
                    let mut save = Save::new("stored", "text/plain", blurt());
                    save.title = blurt();
                    save.summary = Some(blurt());
                    save.metadata
                        .insert("from".to_owned(), json!({ "where": blurt() }));
                    context.artifacts()?.save(&owner, save).await?;
                    Ok(ToolOutput {
                        store_output: true,
                        ..ToolOutput::text(blurt(), blurt())
                    })
                }
                "cut" => Ok(cut(&arguments)),
                _ => Ok(ToolOutput::text("asked", blurt())),
            }
        }
        .boxed()
    }
}

/// Returns a text in which a cut after `at` characters removes the last two characters of a secret.
fn cut(arguments: &Value) -> ToolOutput {
    let number = |name: &str| usize::try_from(arguments[name].as_u64().unwrap_or(0)).unwrap();
    let secret = SECRETS[number("secret") % SECRETS.len()].1;
    let before = number("at").saturating_sub(secret.chars().count() - 2);
    let text = format!(
        "{}{secret}{}",
        "x".repeat(before),
        "y".repeat(number("more"))
    );
    ToolOutput::text(
        if arguments["titled"] == true {
            text.clone()
        } else {
            String::new()
        },
        text,
    )
}

/// MCP server that includes its secret in everything it sends. Run by Python.
pub const SERVER: &str = r#"
import json, os, sys
secret = os.environ["SECRET"]
print(secret, file=sys.stderr, flush=True)
def reply(id, result): print(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}, ensure_ascii=False), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    id, method = message.get("id"), message.get("method")
    if method == "initialize":
        reply(id, {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
                   "serverInfo": {"name": secret, "version": secret}, "instructions": secret})
    elif method == "tools/list":
        reply(id, {"tools": [{"name": name, "description": secret, "inputSchema": {"type": "object"}}
                             for name in ("tell", "refuse", "crash")]})
    elif method == "tools/call":
        name = message["params"]["name"]
        if name == "crash":
            print("crashed with " + secret, file=sys.stderr, flush=True)
            sys.exit(9)
        if name == "refuse":
            print(json.dumps({"jsonrpc": "2.0", "id": id, "error": {"code": -32000, "message": secret}}), flush=True)
        else:
            reply(id, {"content": [{"type": "text", "text": secret}], "structuredContent": {"secret": secret}})
    elif id is not None:
        reply(id, {})
"#;
