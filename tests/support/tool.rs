//! A tool whose first call never returns, for tests of interrupted calls.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use futures::future::{BoxFuture, FutureExt};
use serde_json::{Value, json};
use soong::{
    protocol::ToolSpec,
    tool::{Tool, ToolContext, ToolOutput, ToolResult},
};

/// Tool that hangs on its first call and counts its calls.
pub struct HangOnceTool {
    pub begun: Arc<AtomicUsize>,
    pub spec: ToolSpec,
}

impl HangOnceTool {
    pub fn new(idempotent: bool, begun: &Arc<AtomicUsize>) -> Arc<Self> {
        let spec = ToolSpec::read(
            "hang",
            "Hang",
            "Hangs the first time.",
            json!({ "type": "object" }),
        );
        let spec = ToolSpec { idempotent, ..spec };
        Arc::new(Self {
            begun: Arc::clone(begun),
            spec,
        })
    }
}

impl Tool for HangOnceTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call(&self, _: ToolContext, _: Value) -> BoxFuture<'static, ToolResult> {
        let begun = Arc::clone(&self.begun);
        async move {
            if begun.fetch_add(1, SeqCst) == 0 {
                std::future::pending::<()>().await;
            }
            Ok(ToolOutput::text("done", "done"))
        }
        .boxed()
    }
}
