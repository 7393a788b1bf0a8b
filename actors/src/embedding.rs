//! Guide: embedding Soong in a program. This module has no items.
//!
//! # Start a run
//!
//! A [`Runtime`](crate::Runtime) owns one home: the folder of the database and the artifacts. A run
//! belongs to a session; without one, it gets a new session.
//!
//! ```
//! # tokio_test(async {
//! # let home = tempfile::tempdir().unwrap();
//! use soong::Runtime;
//!
//! let runtime = Runtime::builder().home(home.path()).project_dir(home.path()).offline().build().await?;
//! let run = runtime.start("What is in this project?").await?;
//! println!("{}", run.answer().await?);
//! runtime.close().await;
//! # Ok::<(), soong::ErrorInfo>(()) });
//! # fn tokio_test<E: std::fmt::Debug>(run: impl Future<Output = Result<(), E>>) {
//! #     tokio::runtime::Runtime::new().unwrap().block_on(run).unwrap();
//! # }
//! ```
//!
//! # Choose a model
//!
//! `openai` needs the environment variable `OPENAI_API_KEY`, `openai_compatible` the URL of a
//! server. `load_config` reads `config.toml` of the home instead, with any number of profiles.
//!
//! ```no_run
//! # async fn example() -> Result<(), soong::ErrorInfo> {
//! use soong::Runtime;
//!
//! let hosted = Runtime::builder().openai("gpt-4.1-mini").build().await?;
//! let local = Runtime::builder().openai_compatible("http://localhost:11434/v1", "qwen3").build().await?;
//! let configured = Runtime::builder().load_config().build().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Follow a run
//!
//! Stored events come first, then live ones; no event is missed or repeated, from any cursor.
//! `text_stream` yields the text of the answers only.
//!
//! ```no_run
//! # async fn example(runtime: soong::Runtime, id: soong::protocol::RunId) -> Result<(), soong::ErrorInfo> {
//! let mut events = runtime.run_events(&id, 0).await?;
//! while let Some(item) = events.next().await {
//!     let item = item?;
//!     // A server-sent event: the id is the cursor from which a client continues.
//!     println!("id: {:?}\nevent: {}\ndata: {}\n", item.id(), item.kind(), serde_json::to_string(&item).unwrap());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Typed answers
//!
//! [`Runtime::ask`](crate::Runtime::ask) returns the answer to a prompt as text, `ask_as` as a value:
//!
//! ```no_run
//! # async fn example(runtime: soong::Runtime) -> Result<(), soong::ErrorInfo> {
//! use soong::schemars::{self, JsonSchema};
//!
//! #[derive(serde::Deserialize, JsonSchema)]
//! struct Report {
//!     /// Files that nothing uses.
//!     unused: Vec<String>,
//! }
//!
//! let report: Report = runtime.ask_as("Which files are unused?").await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Tools
//!
//! The schema is derived from the type of the arguments. A tool that writes requires permission.
//!
//! ```
//! use soong::{Runtime, schemars::{self, JsonSchema}, tool::{self, ToolContext}};
//!
//! #[derive(serde::Deserialize, JsonSchema)]
//! struct Deploy {
//!     /// `staging` or `production`.
//!     environment: String,
//! }
//!
//! let deploy = tool::function("deploy", "Deploys the project.", |context: ToolContext, deploy: Deploy| async move {
//!     std::fs::write(context.project_dir.join("deployed"), &deploy.environment)?;
//!     Ok(format!("deployed to {}", deploy.environment))
//! });
//! let builder = Runtime::builder().tool(deploy.writes().build());
//! ```
//!
//! A tool can also act on the tree of its run: start children and wait for them, keep
//! collaborators, ask people, and use artifacts by name.
//!
//! ```
//! use soong::{ChildSpec, tool::{self, ToolContext}};
//!
//! # #[derive(serde::Deserialize, soong::schemars::JsonSchema)]
//! # #[schemars(crate = "soong::schemars")]
//! # struct Review { files: Vec<String> }
//! let review = tool::function("review", "Reviews files.", |context: ToolContext, review: Review| async move {
//!     let specs = review.files.into_iter().map(|file| ChildSpec::explore(format!("Review {file}")));
//!     let mut report = String::new();
//!     for child in context.spawn_all(specs).await? {
//!         report.push_str(&child.result().await?.summary);
//!     }
//!     context.named_artifacts()?.save("review.md", "text/markdown", report.clone()).await?;
//!     Ok(report)
//! });
//! # let _ = review.reads().timeout_ms(600_000).build();
//! ```
//!
//! # Callbacks
//!
//! Functions that are called before and after runs, model calls and tool calls: see
//! [`callback`](crate::callback).
//!
//! ```
//! use soong::{ErrorCode, ErrorInfo, Runtime, callback::{Before, Callback}};
//!
//! let policy = Callback::new("policy").before_tool(|context, call| async move {
//!     let refused = || ErrorInfo::new(ErrorCode::PermissionDenied, "sub-agents do not deploy");
//!     Ok(if call.name == "deploy" && context.depth > 0 { Before::Answer(Err(refused())) } else { Before::Continue })
//! });
//! let builder = Runtime::builder().callback(policy);
//! ```
//!
//! # Permissions
//!
//! Without an approver, calls that require permission are denied. A function can decide, or users
//! can, through the command line, the server or
//! [`Permissions::decide`](crate::Permissions::decide).
//!
//! ```
//! use soong::{Runtime, protocol::Decision};
//!
//! let builder = Runtime::builder().allow("write:docs").on_permission(|request| async move {
//!     if request.tool == "deploy" { Decision::AllowOnce } else { Decision::Deny }
//! });
//! ```
//!
//! # Child runs
//!
//! A driven run has no model: the program starts its children, which are supervised, limited and
//! shown like any other.
//!
//! ```no_run
//! # async fn example(runtime: soong::Runtime) -> Result<(), soong::ErrorInfo> {
//! use soong::{ChildSpec, RunRequest};
//!
//! let parent = runtime.start(RunRequest::driven("Review the crates")).await?;
//! let children = parent.spawn_all(["core", "server"].map(ChildSpec::explore)).await?;
//! for outcome in children.join().await {
//!     println!("{}", outcome?.output);
//! }
//! parent.finish("reviewed")?;
//! # Ok(())
//! # }
//! ```
//!
//! # Limits
//!
//! ```no_run
//! # async fn example(runtime: soong::Runtime) -> Result<(), soong::ErrorInfo> {
//! use std::time::Duration;
//! use soong::{RunRequest, protocol::Budget};
//!
//! let budget = Budget { model_calls: Some(20), tokens: Some(200_000), ..Budget::default() };
//! let request = RunRequest::new("Fix the failing test").budget(budget).timeout(Duration::from_secs(600));
//! let run = runtime.start(request.tools(["read", "edit", "bash"])).await?;
//! // Cancels the run with all its children, and waits for their ends.
//! run.cancel().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Recovery
//!
//! Runs of an earlier process continue when the home is opened, unless the builder says otherwise.
//!
//! ```no_run
//! # async fn example() -> Result<(), soong::ErrorInfo> {
//! use soong::{RecoveryPolicy, RunFilter, Runtime};
//!
//! let runtime = Runtime::builder().load_config().recover(RecoveryPolicy::All).build().await?;
//! for run in runtime.runs(RunFilter::active()) {
//!     println!("{} continues: {}", run.session_id(), run.wait().await?.status.as_str());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Tests
//!
//! The feature `testing` has a scripted model, so that tests need no key and no network.
//!
//! ```
//! # tokio_test(async {
//! # let home = tempfile::tempdir().unwrap();
//! use serde_json::json;
//! use soong::{Runtime, testing::{call, script, text}};
//!
//! let model = script([call("list_files", json!({})), text("done")]);
//! let runtime =
//!     Runtime::builder().home(home.path()).project_dir(home.path()).model("default", model).build().await?;
//! assert_eq!(runtime.start("look around").await?.answer().await?, "done");
//! runtime.close().await;
//! # Ok::<(), soong::ErrorInfo>(()) });
//! # fn tokio_test<E: std::fmt::Debug>(run: impl Future<Output = Result<(), E>>) {
//! #     tokio::runtime::Runtime::new().unwrap().block_on(run).unwrap();
//! # }
//! ```
