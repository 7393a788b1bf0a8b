//! A tool that writes: it requires permission and records its calls.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use futures::future::{BoxFuture, FutureExt};
use serde_json::{Value, json};
use soong::{
    ErrorInfo,
    protocol::{AccessRequest, Scope, ToolSpec},
    tool::{Tool, ToolContext, ToolOutput, ToolResult},
};

/// Tool that stamps a word. It accesses the path given by its arguments, within `folder`.
pub struct StampTool {
    spec: ToolSpec,
    /// Stamped words, in order.
    pub done: Arc<Mutex<Vec<String>>>,
    /// Folder that contains every path. A test can change it between the request and the decision.
    pub folder: Arc<Mutex<String>>,
    /// Number of further calls that never return.
    pub hanging: AtomicUsize,
}

impl StampTool {
    pub fn new() -> Arc<Self> {
        Self::of(ToolSpec::write(
            "stamp",
            "Stamp",
            "Stamps a word.",
            json!({ "type": "object" }),
        ))
    }

    /// Returns a tool that may be repeated after a crash.
    pub fn repeatable() -> Arc<Self> {
        let spec = ToolSpec::write(
            "stamp",
            "Stamp",
            "Stamps a word.",
            json!({ "type": "object" }),
        );
        Self::of(ToolSpec {
            idempotent: true,
            ..spec
        })
    }

    fn of(spec: ToolSpec) -> Arc<Self> {
        let folder = Arc::new(Mutex::new("/folder".to_owned()));
        Arc::new(Self {
            spec,
            done: Arc::default(),
            folder,
            hanging: AtomicUsize::new(0),
        })
    }

    pub fn done(&self) -> Vec<String> {
        self.done.lock().unwrap().clone()
    }
}

impl Tool for StampTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn required_access(
        &self,
        _: &ToolContext,
        arguments: &Value,
    ) -> Result<Option<AccessRequest>, ErrorInfo> {
        let path = match arguments["place"].as_str() {
            Some("free") => return Ok(None),
            Some(folder) => format!("{}/{folder}", self.folder.lock().unwrap()),
            None => self.folder.lock().unwrap().clone(),
        };
        let is_unconfined = arguments["unconfined"] == true;
        let is_sensitive = is_unconfined || arguments["sensitive"] == true;
        let target = format!("{path}/f");
        let scope = if is_unconfined {
            Scope::Unconfined
        } else {
            Scope::Directory { path }
        };
        Ok(Some(AccessRequest {
            target,
            scope,
            is_sensitive,
            note: None,
        }))
    }

    fn call(&self, _: ToolContext, arguments: Value) -> BoxFuture<'static, ToolResult> {
        let word = arguments["word"].as_str().unwrap_or_default().to_owned();
        self.done.lock().unwrap().push(word.clone());
        if self
            .hanging
            .try_update(SeqCst, SeqCst, |left| left.checked_sub(1))
            .is_ok()
        {
            return std::future::pending().boxed();
        }
        async move { Ok(ToolOutput::text("stamped", format!("stamped {word}"))) }.boxed()
    }
}
