//! Settings of a runtime to be built.
//!
//! Elsewhere: building it (`builder/build.rs`).

mod build;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use soong_model::Model;
use soong_protocol::{Config, ErrorInfo, Permission, Preset};
use soong_storage::{fault::FaultPlan, sqlite::SqliteStore, store::Store};
use soong_text::Environment;
use soong_tool::Tool;

use super::recovery::RecoveryPolicy;
#[cfg(any(test, feature = "testing"))]
use crate::fault::{DifferenceHook, FaultHook};
use crate::{
    callback::Callback,
    fault::{Faults, plan_from_env},
    permission::{ApprovalDecision, Approver, HandlerFn, PermissionHandler},
    task_journal::TaskPlace,
};

/// Builder of a [`Runtime`](crate::Runtime).
#[derive(Default)]
pub struct RuntimeBuilder {
    home: Option<PathBuf>,
    project_dir: Option<PathBuf>,
    rejects_home_projects: bool,
    config: ConfigSource,
    environment: Option<Environment>,
    models: BTreeMap<String, Arc<dyn Model>>,
    extensions: Extensions,
    approver: Approver,
    presets: Vec<Preset>,
    ignores_home_files: bool,
    faults: FaultSource,
    recover: RecoveryPolicy,
    wrap_store: Option<StoreWrapper>,
    task_journal_location: Option<TaskPlace>,
}

/// Tools and callbacks of the program.
#[derive(Default)]
struct Extensions {
    tools: Vec<Arc<dyn Tool>>,
    excludes_builtin_tools: bool,
    callbacks: Vec<Callback>,
}

/// Where the configuration comes from, and the changes to it.
#[derive(Default)]
struct ConfigSource {
    /// The configuration set by the program.
    program: Option<Config>,
    /// Whether `config.toml` and `hooks.json` of the home are read.
    loads_home: bool,
    /// Permission grants in addition to those of the configuration.
    allow: Vec<String>,
    is_offline: bool,
    /// Base URL and name of the default model.
    default_model: Option<(Option<String>, String)>,
}

/// Where injected faults come from.
#[derive(Default)]
struct FaultSource {
    /// The faults set by the program.
    program: Faults,
    /// Whether `SOONG_FAULTS` is read.
    loads_environment: bool,
}

/// Wraps the store that the journal writes to.
type StoreWrapper = Box<dyn FnOnce(SqliteStore) -> Box<dyn Store> + Send>;

impl RuntimeBuilder {
    /// Sets the home directory. Default: `SOONG_AGENT_HOME`, else `~/.soong-agent`. The directory
    /// is created if it is missing; on Unix, only its owner can access it.
    #[must_use]
    pub fn home(mut self, home: impl Into<PathBuf>) -> Self {
        self.home = Some(home.into());
        self
    }

    /// Rejects new sessions whose project is the user's home folder or one of its parents, unless
    /// they set [`RunRequest::allow_home_project`](crate::RunRequest::allow_home_project). By
    /// default they are allowed.
    #[must_use]
    pub fn reject_home_projects(mut self) -> Self {
        self.rejects_home_projects = true;
        self
    }

    /// Sets the project directory of new sessions. Default: the current directory. For a file, its
    /// parent is used.
    #[must_use]
    pub fn project_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.project_dir = Some(dir.into());
        self
    }

    /// Grants a permission to every run: a tool, or a tool and a scope, such as `write:docs` or
    /// `bash:unconfined`. Extends `permissions.allow` of the configuration.
    #[must_use]
    pub fn allow(mut self, grant: impl Into<String>) -> Self {
        self.config.allow.push(grant.into());
        self
    }

    /// Sets the configuration. Default: built-in defaults. To read a file, use [`Config::parse`];
    /// to read the file of the home, use [`load_config`](Self::load_config).
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config.program = Some(config);
        self
    }

    /// Loads the configuration of the home: `config.toml`, unless [`config`](Self::config) sets
    /// one, and the hooks of `hooks.json`. By default neither file is read.
    #[must_use]
    pub fn load_config(mut self) -> Self {
        self.config.loads_home = true;
        self
    }

    /// Uses the built-in rule-based model as the default model. It needs no key and no network, and
    /// is no language model.
    #[must_use]
    pub fn offline(mut self) -> Self {
        self.config.is_offline = true;
        self
    }

    /// Sets the environment to use instead of the process's environment.
    #[must_use]
    pub fn environment(mut self, environment: Environment) -> Self {
        self.environment = Some(environment);
        self
    }

    /// Uses this model of OpenAI as the default model, with the key of `OPENAI_API_KEY`;
    /// `OPENAI_BASE_URL` can name another service. Replaces the service of the configuration, with
    /// its key, headers and parameters; profiles that inherit from it change as well.
    #[must_use]
    pub fn openai(mut self, model: impl Into<String>) -> Self {
        self.config.default_model = Some((None, model.into()));
        self
    }

    /// Uses a model of an OpenAI-compatible server as the default model, such as
    /// `.openai_compatible("http://localhost:11434/v1", "qwen3")`. Replaces the service of the
    /// configuration, like [`openai`](Self::openai). The server receives the key of
    /// `OPENAI_API_KEY` if that is set.
    #[must_use]
    pub fn openai_compatible(
        mut self,
        base_url: impl Into<String>,
        model: impl Into<String>,
    ) -> Self {
        self.config.default_model = Some((Some(base_url.into()), model.into()));
        self
    }

    /// Uses `model` for a profile. The default profile is named `default`.
    #[must_use]
    pub fn model(mut self, profile: impl Into<String>, model: impl Model) -> Self {
        self.models.insert(profile.into(), Arc::new(model));
        self
    }

    /// Adds a tool to the built-in ones.
    #[must_use]
    pub fn tool(mut self, tool: impl Tool) -> Self {
        self.extensions.tools.push(Arc::new(tool));
        self
    }

    /// Adds a callback. Callbacks before a step are called in the order in which they are added,
    /// callbacks after it in reverse order.
    #[must_use]
    pub fn callback(mut self, callback: Callback) -> Self {
        self.extensions.callbacks.push(callback);
        self
    }

    /// Leaves out the built-in tools for files, commands, the web, skills and experiences, so that
    /// runs have only the tools of this program, and those that plan goals, start children, use
    /// artifacts and ask users. Permissions and presets that name a built-in tool are then errors
    /// of [`build`](Self::build).
    #[must_use]
    pub fn without_builtin_tools(mut self) -> Self {
        self.extensions.excludes_builtin_tools = true;
        self
    }

    /// Sets a program that decides permission requests (PERM-1). Users can decide them too; the
    /// first decision counts. Without a handler or
    /// [`permissions_by_users`](Self::permissions_by_users), calls that require permission are
    /// denied immediately.
    #[must_use]
    pub fn permission_handler(mut self, handler: impl PermissionHandler) -> Self {
        self.approver = Approver::Handler(Arc::new(handler));
        self
    }

    /// Sets a function that decides permission requests; otherwise like
    /// [`permission_handler`](Self::permission_handler).
    ///
    /// ```
    /// use soong::{Runtime, protocol::Decision};
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Deploy {
    ///     environment: String,
    /// }
    ///
    /// let builder = Runtime::builder().on_permission(|request| async move {
    ///     match request.arguments_as::<Deploy>() {
    ///         Ok(deploy) if deploy.environment == "staging" => Decision::AllowOnce,
    ///         _ => Decision::Deny,
    ///     }
    /// });
    /// ```
    #[must_use]
    pub fn on_permission<F, R, D>(self, decide: F) -> Self
    where
        F: Fn(Permission) -> R + Send + Sync + 'static,
        R: Future<Output = D> + Send + 'static,
        D: Into<ApprovalDecision> + 'static,
    {
        self.permission_handler(HandlerFn(decide))
    }

    /// Lets runs wait for a user's decision if a call requires permission: through
    /// [`Permissions::decide`](crate::Permissions::decide), the command line or the server. The
    /// wait is unlimited unless `permissions.timeout_s` is set.
    #[must_use]
    pub fn permissions_by_users(mut self) -> Self {
        self.approver = Approver::Users;
        self
    }

    /// Adds a preset. It replaces a preset of the same name that is built in, in a file of the
    /// home, or in the configuration (SUB-5).
    #[must_use]
    pub fn preset(mut self, preset: Preset) -> Self {
        self.presets.push(preset);
        self
    }

    /// Ignores the preset and skill files of the home: `agents/*.md` and `skills/*.md`.
    #[must_use]
    pub fn without_home_files(mut self) -> Self {
        self.ignores_home_files = true;
        self
    }

    /// Calls `hook` at every fault point of every run. The hook may panic to crash the run's actor.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn fault_hook(mut self, hook: FaultHook) -> Self {
        self.faults.program.hook = Some(hook);
        self
    }

    /// Compares the live state of each run with the state rebuilt from the store, after each of its
    /// appends except the last, and calls `hook` with the differences. Each comparison reads all
    /// events of the run.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn difference_hook(mut self, hook: DifferenceHook) -> Self {
        self.faults.program.difference_hook = Some(hook);
        self
    }

    /// Injects faults according to `plan`, in runs, commits and artifact bytes.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn faults(mut self, plan: FaultPlan) -> Self {
        self.faults.program.plan = Some(plan);
        self
    }

    /// Injects faults according to the environment variable `SOONG_FAULTS` (syntax: [`FaultPlan`]),
    /// if no plan is set. Such a plan may terminate the process. Without this call the variable has
    /// no effect.
    #[must_use]
    pub fn faults_from_env(mut self) -> Self {
        self.faults.loads_environment = true;
        self
    }

    /// Returns the fault plan in effect: the one set by the program, else that of the environment.
    ///
    /// # Errors
    /// `config_error` if the environment holds an invalid plan; [`RuntimeBuilder::build`] fails
    /// with the same error.
    pub fn fault_plan(&self) -> Result<Option<FaultPlan>, ErrorInfo> {
        match (&self.faults.program.plan, &self.environment) {
            (Some(plan), _) => Ok(Some(plan.clone())),
            (None, _) if !self.faults.loads_environment => Ok(None),
            (None, Some(environment)) => plan_from_env(environment),
            (None, None) => plan_from_env(&Environment::from_process()),
        }
    }

    /// Wraps the store that the journal writes to, for example to inject failures.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn wrap_store(
        mut self,
        wrap: impl FnOnce(SqliteStore) -> Box<dyn Store> + Send + 'static,
    ) -> Self {
        self.wrap_store = Some(Box::new(wrap));
        self
    }

    /// Sets which interrupted runs of an earlier process are resumed when the home is opened.
    /// Default: all.
    #[must_use]
    pub fn recover(mut self, recover: RecoveryPolicy) -> Self {
        self.recover = recover;
        self
    }

    /// Sets where task journals are stored. Default: in the project, or under the home if the
    /// project is not writable (TASK-1).
    #[must_use]
    pub fn task_journals(mut self, location: TaskPlace) -> Self {
        self.task_journal_location = Some(location);
        self
    }
}
