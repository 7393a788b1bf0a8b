//! A tool that writes: it needs leave, and remembers what it did.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use futures::future::{BoxFuture, FutureExt};
use serde_json::{Value, json};
use soong::{
    ErrorInfo,
    protocol::{Demand, Scope, ToolSpec},
    tool::{Tool, ToolContext, ToolOutput, ToolResult},
};

/// Stamps a word; what it touches is the place that the arguments name, in the folder that the world says.
pub struct Stamp {
    spec: ToolSpec,
    /// What was done, in order.
    pub done: Arc<Mutex<Vec<String>>>,
    /// The folder that every place is in; a test may move it between question and answer.
    pub folder: Arc<Mutex<String>>,
    /// How many calls, of those to come, never end.
    pub hanging: AtomicUsize,
}

impl Stamp {
    pub fn new() -> Arc<Self> {
        Self::of(ToolSpec::write("stamp", "Stamp", "Stamps a word.", json!({ "type": "object" })))
    }

    /// Makes one that may be repeated after a crash.
    pub fn repeatable() -> Arc<Self> {
        let spec = ToolSpec::write("stamp", "Stamp", "Stamps a word.", json!({ "type": "object" }));
        Self::of(ToolSpec { idempotent: true, ..spec })
    }

    fn of(spec: ToolSpec) -> Arc<Self> {
        let folder = Arc::new(Mutex::new("/folder".to_owned()));
        Arc::new(Self { spec, done: Arc::default(), folder, hanging: AtomicUsize::new(0) })
    }

    pub fn done(&self) -> Vec<String> {
        self.done.lock().unwrap().clone()
    }
}

impl Tool for Stamp {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn demand(&self, _: &ToolContext, arguments: &Value) -> Result<Option<Demand>, ErrorInfo> {
        let path = match arguments["place"].as_str() {
            Some("free") => return Ok(None),
            Some(place) => format!("{}/{place}", self.folder.lock().unwrap()),
            None => self.folder.lock().unwrap().clone(),
        };
        let is_unconfined = arguments["unconfined"] == true;
        let is_sensitive = is_unconfined || arguments["sensitive"] == true;
        let target = format!("{path}/f");
        let scope = if is_unconfined { Scope::Unconfined } else { Scope::Directory { path } };
        Ok(Some(Demand { target, scope, is_sensitive, note: None }))
    }

    fn call(&self, _: ToolContext, arguments: Value) -> BoxFuture<'static, ToolResult> {
        let word = arguments["word"].as_str().unwrap_or_default().to_owned();
        self.done.lock().unwrap().push(word.clone());
        if self.hanging.try_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
            return std::future::pending().boxed();
        }
        async move { Ok(ToolOutput::text("stamped", format!("stamped {word}"))) }.boxed()
    }
}
