//! Building a runtime: home, lock, store, models, tools, and the tree (RT-1, RT-2).

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use ractor::{Actor, ActorRef};
use soong_protocol::{Config, Durability, ErrorCode, ErrorInfo, Preset, Provider};
use soong_storage::{
    blob::{BlobLocation, BlobStore},
    fault::{FaultPlan, FaultStore},
    sqlite::{SqliteReader, SqliteStore},
    store::{SessionDeletion, Store, StoreError},
};
use tokio::sync::oneshot;

use super::{
    Inner, Runtime,
    provider::{self, config_error},
    recovery::{self, InterruptedRuns, RecoveryPolicy},
    services::Services,
    wiring::{self, OpenStore, Settings},
};
use crate::{
    actor_base::{SINGLETON_ID, restart},
    actor_tree::ActorKind,
    environment::Environment,
    fault::{FaultHook, Faults, plan_from_env},
    home_file,
    hook::Hooks,
    mcp::McpServers,
    memory::MemoryFiles,
    model::{
        Model,
        gateways::{ModelFactory, ModelGateways, StartGateway},
    },
    permission::{Approver, PermissionHandler, Permissions, unknown_tools},
    preset::{self, KnownPreset, PresetFiles},
    project_instructions::ProjectInstructionsCache,
    redaction::Redactor,
    run::{PromptCache, RunResolver, watch_for_idle_runs, watch_for_stuck_runs},
    runtime::supervisor::RuntimeSupervisorActor,
    session::{SessionServices, SessionSupervisorMsg},
    skill::Skills,
    store_reader::DATABASE,
    task_journal::TaskPlace,
    tool::{PathPolicy, Tool, ToolEnvironment, ToolRegistry},
};

/// Builder of a [`Runtime`].
#[derive(Default)]
pub struct RuntimeBuilder {
    home: Option<PathBuf>,
    project_dir: Option<PathBuf>,
    rejects_home_projects: bool,
    /// The configuration set by the program.
    config: Option<Config>,
    loads_config: bool,
    /// Permission grants in addition to those of the configuration.
    allow: Vec<String>,
    is_offline: bool,
    environment: Option<Environment>,
    models: BTreeMap<String, Arc<dyn Model>>,
    tools: Vec<Arc<dyn Tool>>,
    approver: Approver,
    presets: Vec<Preset>,
    ignores_home_files: bool,
    faults: Faults,
    faults_from_env: bool,
    recover: RecoveryPolicy,
    wrap_store: Option<StoreWrapper>,
    task_journal_location: Option<TaskPlace>,
}

/// Wraps the store that the journal writes to.
type StoreWrapper = Box<dyn FnOnce(SqliteStore) -> Box<dyn Store> + Send>;

impl RuntimeBuilder {
    /// Sets the home directory. Default: `SOONG_AGENT_HOME`, else `~/.soong-agent`. The directory is created if it is
    /// missing; on Unix, only its owner can access it.
    #[must_use]
    pub fn home(mut self, home: impl Into<PathBuf>) -> Self {
        self.home = Some(home.into());
        self
    }

    /// Rejects new sessions whose project is the user's home folder or one of its parents, unless they set
    /// [`RunRequest::allow_home_project`](field@crate::RunRequest::allow_home_project). By default they are allowed.
    #[must_use]
    pub fn reject_home_projects(mut self) -> Self {
        self.rejects_home_projects = true;
        self
    }

    /// Sets the project directory of new sessions. Default: the current directory. For a file, its parent is used.
    #[must_use]
    pub fn project_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.project_dir = Some(dir.into());
        self
    }

    /// Grants a permission to every run: a tool, or a tool and a scope, such as `write:docs` or `bash:unconfined`.
    /// Extends `permissions.allow` of the configuration.
    #[must_use]
    pub fn allow(mut self, grant: impl Into<String>) -> Self {
        self.allow.push(grant.into());
        self
    }

    /// Sets the configuration. Default: built-in defaults. To read a file, use [`Config::parse`]; to read the file of
    /// the home, use [`load_config`](Self::load_config).
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = Some(config);
        self
    }

    /// Loads the configuration of the home: `config.toml`, unless [`config`](Self::config) sets one, and the hooks of
    /// `hooks.json`. By default neither file is read.
    #[must_use]
    pub fn load_config(mut self) -> Self {
        self.loads_config = true;
        self
    }

    /// Uses the built-in rule-based model as the default model. It needs no key and no network, and is no language
    /// model.
    #[must_use]
    pub fn offline(mut self) -> Self {
        self.is_offline = true;
        self
    }

    /// Sets the environment to use instead of the process's environment.
    #[must_use]
    pub fn environment(mut self, environment: Environment) -> Self {
        self.environment = Some(environment);
        self
    }

    /// Uses `model` for a profile. The default profile is named `default`.
    #[must_use]
    pub fn register_provider(mut self, profile: impl Into<String>, model: Arc<dyn Model>) -> Self {
        self.models.insert(profile.into(), model);
        self
    }

    /// Adds a tool to the built-in ones.
    #[must_use]
    pub fn register_tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.push(tool);
        self
    }

    /// Sets a program that decides permission requests (PERM-1). Users can decide them too; the first decision
    /// counts. Without a handler or [`permissions_by_users`](Self::permissions_by_users), calls that require
    /// permission are denied immediately.
    #[must_use]
    pub fn permission_handler(mut self, handler: Arc<dyn PermissionHandler>) -> Self {
        self.approver = Approver::Handler(handler);
        self
    }

    /// Lets runs wait for a user's decision if a call requires permission: through [`Runtime::decide_permission`],
    /// the command line or the server. The wait is unlimited unless `permissions.timeout_s` is set.
    #[must_use]
    pub fn permissions_by_users(mut self) -> Self {
        self.approver = Approver::Users;
        self
    }

    /// Adds a preset. It replaces a preset of the same name that is built in, in a file of the home, or in the
    /// configuration (SUB-5).
    #[must_use]
    pub fn register_preset(mut self, preset: Preset) -> Self {
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
    #[must_use]
    pub fn fault_hook(mut self, hook: FaultHook) -> Self {
        self.faults.hook = Some(hook);
        self
    }

    /// Injects faults according to `plan`, in runs, commits and artifact bytes.
    #[must_use]
    pub fn faults(mut self, plan: FaultPlan) -> Self {
        self.faults.plan = Some(plan);
        self
    }

    /// Injects faults according to the environment variable `SOONG_FAULTS` (syntax: [`FaultPlan`]), if no plan is
    /// set. Such a plan may terminate the process. Without this call the variable has no effect.
    #[must_use]
    pub fn faults_from_env(mut self) -> Self {
        self.faults_from_env = true;
        self
    }

    /// Returns the fault plan in effect: the one set by the program, else that of the environment.
    ///
    /// # Errors
    /// `config_error` if the environment holds an invalid plan; [`RuntimeBuilder::build`] fails with the same error.
    pub fn fault_plan(&self) -> Result<Option<FaultPlan>, ErrorInfo> {
        match (&self.faults.plan, &self.environment) {
            (Some(plan), _) => Ok(Some(plan.clone())),
            (None, _) if !self.faults_from_env => Ok(None),
            (None, Some(environment)) => plan_from_env(environment),
            (None, None) => plan_from_env(&Environment::from_process()),
        }
    }

    /// Wraps the store that the journal writes to, for example to inject failures.
    #[must_use]
    pub fn wrap_store(mut self, wrap: impl FnOnce(SqliteStore) -> Box<dyn Store> + Send + 'static) -> Self {
        self.wrap_store = Some(Box::new(wrap));
        self
    }

    /// Sets which interrupted runs of an earlier process are resumed when the home is opened. Default: all.
    #[must_use]
    pub fn recover(mut self, recover: RecoveryPolicy) -> Self {
        self.recover = recover;
        self
    }

    /// Sets where task journals are stored. Default: in the project, or under the home if the project is not writable
    /// (TASK-1).
    #[must_use]
    pub fn task_journals(mut self, place: TaskPlace) -> Self {
        self.task_journal_location = Some(place);
        self
    }

    /// Opens the home, takes its ownership, and starts the actor tree.
    ///
    /// Interrupted runs of an earlier owner are resumed or ended (see [`RuntimeBuilder::recover`]). Session deletions
    /// that an earlier owner started continue in the background.
    ///
    /// # Errors
    /// `home_locked` if another process owns the home; `config_error` if the configuration, a preset or a skill of
    /// the home is invalid. In both cases nothing is changed.
    pub async fn build(mut self) -> Result<Runtime, ErrorInfo> {
        let environment = self.environment.clone().unwrap_or_else(Environment::from_process);
        self.faults.plan = self.fault_plan()?;
        if let Some(plan) = &self.faults.plan {
            tracing::warn!(%plan, "faults are on purpose");
        }
        let project_dir = match &self.project_dir {
            Some(dir) => resolve_project(dir)?,
            None => resolve_project(Path::new("."))?,
        };
        let home = self
            .home
            .clone()
            .or_else(|| environment.home())
            .ok_or_else(|| config_error("no home directory: set SOONG_AGENT_HOME, or give one".to_owned()))?;
        let config = Arc::new(self.effective_config(&home)?);
        let place = BlobLocation::parse(&config.artifacts.store)
            .map_err(|error| config_error(format!("artifacts.store: {error}")))?;
        let redactor = Redactor::new(&environment, &config);
        let permissions = Permissions::new(self.approver.clone(), &config)
            .map_err(|error| config_error(format!("permissions: {error}")))?;
        let user_home = environment.get("HOME").map(PathBuf::from);
        let rejected_home = user_home.filter(|_| self.rejects_home_projects);
        let (resolver, presets) = self.resolver(&config, environment.clone(), &home, redactor)?;
        let (home, lock) = super::home::open(&home)?;
        let open = self.open_store(&home, config.storage.durability, place, environment).await?;
        let (faults, task_place) = (self.faults, self.task_journal_location);
        let wired = wiring::wire(open, Settings { home, resolver, permissions, faults, task_place })?;
        let (services, threads) = (Arc::new(wired.services), wired.threads);
        let mended = async {
            services.artifacts.delete_unregistered_blobs().await?;
            let found = self.recover.find_interrupted(&services).await?;
            let journals = services.task_journals.incomplete_ended_runs().await?;
            Ok((found, journals, services.reader.read(|reader| reader.session_deletions()).await?))
        };
        let ((interrupted_runs, unfinished), journals, removals) = match mended.await {
            Ok(found) => found,
            Err(error) => {
                services.journal.close(threads).await; // before the home is unlocked
                return Err(error);
            }
        };
        let root = start_tree(&services, wired.sessions).await?;
        services.task_journals.complete_ended(journals);
        // Deletions that an earlier owner started continue in the background.
        for SessionDeletion { session_id: session, .. } in removals {
            services.sessions.send_to_supervisor(SessionSupervisorMsg::Delete { session, reply: oneshot::channel().0 });
        }
        let (threads, lock) = (Mutex::new(Some(threads)), Mutex::new(Some(lock)));
        let project_dir = project_dir.into();
        let InterruptedRuns { resumed, ended, unchanged: untouched } = interrupted_runs;
        let version = env!("CARGO_PKG_VERSION");
        tracing::info!(home = %services.home.display(), version, resumed, ended, untouched, "the home is open");
        let closed = tokio::sync::OnceCell::new();
        let inner =
            Inner { services, root, project_dir, rejected_home, threads, lock, closed, interrupted_runs, presets };
        let runtime = Runtime { inner: Arc::new(inner) };
        if !unfinished.is_empty() {
            runtime.inner.services.resolver.mcp.wait_started().await;
        }
        recovery::resume_runs(&runtime.inner.services, &unfinished).await?;
        Ok(runtime)
    }

    /// Opens the store of a home, with the configured faults and wrapper.
    async fn open_store(
        &mut self,
        home: &Path,
        durability: Durability,
        place: BlobLocation,
        environment: Environment,
    ) -> Result<OpenStore, ErrorInfo> {
        let home = home.to_owned();
        let open = move || -> Result<_, StoreError> {
            let database = home.join(DATABASE);
            let store = SqliteStore::open(&database, durability)?;
            let reader = SqliteReader::open(&database)?;
            Ok((store, reader, BlobStore::open(&home, &place, &|name| environment.get(name).map(str::to_owned))?))
        };
        let opened = tokio::task::spawn_blocking(open).await;
        let opened = opened.map_err(|error| ErrorInfo::new(ErrorCode::InternalError, error.to_string()))?;
        let (store, reader, blobs) = opened.map_err(|error| ErrorInfo::from(&error))?;
        let store: Box<dyn Store> = match self.wrap_store.take() {
            Some(wrap) => wrap(store),
            None => Box::new(store),
        };
        let reader = Arc::new(reader);
        Ok(match &self.faults.plan {
            Some(plan) => {
                let store = Box::new(FaultStore::new(store, plan.clone()));
                OpenStore { store, reader, blobs: blobs.with_faults(plan.clone()) }
            }
            None => OpenStore { store, reader, blobs },
        })
    }

    /// Returns the program's configuration, else that of the home if it is to be loaded, with the builder's other
    /// settings applied.
    fn effective_config(&mut self, home: &Path) -> Result<Config, ErrorInfo> {
        let mut config = match self.config.take() {
            Some(config) => config,
            None if self.loads_config => read_config(&home.join("config.toml"))?,
            None => Config::default(),
        };
        config.permissions.allow.append(&mut self.allow);
        if self.is_offline {
            config.model.provider = Provider::Offline;
            config.model.name = "offline".to_owned();
        }
        config.tools.env_allowlist = config.command_variables();
        Ok(config)
    }

    /// Reads the hooks, skills, presets and memory of the home, and registers tools and models.
    fn resolver(
        &self,
        config: &Arc<Config>,
        environment: Environment,
        home: &Path,
        redactor: Redactor,
    ) -> Result<(RunResolver, Vec<KnownPreset>), ErrorInfo> {
        let hooks = if self.loads_config { Hooks::load(home, config, &environment)? } else { Hooks::default() };
        let hooks = Arc::new(hooks);
        let broken = |error| ErrorInfo::new(ErrorCode::InternalError, format!("a built-in tool: {error}"));
        let skills = Arc::new(if self.ignores_home_files { Skills::default() } else { Skills::load(home)? });
        let memory = Arc::new(MemoryFiles::of_home(home, config, &environment));
        let tool_environment = ToolEnvironment {
            tools: config.tools.clone(),
            permissions: config.permissions.clone(),
            environment: environment.clone(),
            home: Some(home.to_owned()),
            skills: Arc::clone(&skills),
            memory: Some(Arc::clone(&memory)),
        };
        let mut tools = ToolRegistry::with_builtins(&tool_environment).map_err(broken)?;
        for tool in &self.tools {
            let name = tool.spec().name.clone();
            tools.register(Arc::clone(tool)).map_err(|error| config_error(format!("tool {name:?}: {error}")))?;
        }
        let known: Vec<String> = tools.specs().map(|spec| spec.name.clone()).collect();
        if let Some(unknown) = unknown_tools(config, &known).into_iter().next() {
            return Err(config_error(unknown));
        }
        let files = match self.ignores_home_files {
            true => PresetFiles::default(),
            false => {
                let names: Vec<&str> = tools.specs().map(|spec| spec.name.as_str()).collect();
                PresetFiles::read(home, &names, config)
            }
        };
        home_file::into_config_error(&files.faults)?;
        let known_presets = preset::presets(&files, config, &self.presets);
        let presets: BTreeMap<String, Preset> =
            known_presets.iter().map(|known| (known.preset.name.clone(), known.preset.clone())).collect();
        let models = self.models.clone();
        let variables = environment.clone();
        let make_model: ModelFactory = Box::new(move |profile, config| match models.get(profile) {
            Some(model) => Ok(Arc::clone(model)),
            None => provider::make_model(profile, config, &environment),
        });
        let registered =
            self.models.iter().map(|(profile, model)| (profile.clone(), model.name().to_owned())).collect();
        let resolver = RunResolver {
            config: Arc::clone(config),
            models: Arc::new(ModelGateways::new(Arc::clone(config), make_model, registered)),
            mcp: Arc::new(McpServers::new(tools, config, &variables)),
            presets: Arc::new(presets),
            skills,
            memory,
            projects: Arc::new(ProjectInstructionsCache::new(Arc::new(PathPolicy::new(&tool_environment)))),
            prompts: PromptCache::default(),
            hooks,
            redactor,
        };
        Ok((resolver, known_presets))
    }
}

/// Starts the actors of a runtime, and the tasks that detect stuck and idle runs.
async fn start_tree(services: &Services, sessions: SessionServices) -> Result<ActorRef<StartGateway>, ErrorInfo> {
    let status =
        services.actor_tree.register(ActorKind::RuntimeSupervisor, SINGLETON_ID, None, restart::NEVER.label, None);
    let idle_after = Duration::from_secs(services.config.runtime.idle_session_s);
    let root = RuntimeSupervisorActor {
        journal: services.journal.clone(),
        artifacts: Arc::clone(&services.artifacts),
        mcp: Arc::clone(&services.resolver.mcp),
        runs: Arc::clone(&services.runs),
        sessions: Arc::new(sessions),
        hub: Arc::clone(&services.hub),
        actor_tree: Arc::clone(&services.actor_tree),
        lifetime: services.lifetime.clone(),
        idle_after,
        status,
    };
    let (root, _) = Actor::spawn(None, root, ())
        .await
        .map_err(|error| ErrorInfo::new(ErrorCode::InternalError, format!("the tree did not start: {error}")))?;
    services.resolver.models.set_supervisor(root.clone());
    let (runs, lifetime) = (&services.runs, &services.lifetime);
    let stuck_after_ms = wiring::stuck_after_ms(&services.config);
    lifetime.spawn(watch_for_stuck_runs(Arc::clone(runs), lifetime.clone(), stuck_after_ms));
    lifetime.spawn(watch_for_idle_runs(Arc::clone(runs), lifetime.clone(), idle_after));
    Ok(root)
}

/// Reads a configuration file. A missing file yields the defaults.
fn read_config(path: &Path) -> Result<Config, ErrorInfo> {
    match std::fs::read_to_string(path) {
        Ok(text) => Config::parse(&path.display().to_string(), &text).map_err(|error| config_error(error.to_string())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Config::default()),
        Err(error) => Err(config_error(format!("{} cannot be read: {error}", path.display()))),
    }
}

/// Resolves a project directory: follows symlinks once; for a file, returns its parent (RT-2).
pub(super) fn resolve_project(dir: &Path) -> Result<PathBuf, ErrorInfo> {
    let refuse = |error: std::io::Error| {
        let message = format!("the project directory {} cannot be used: {error}", dir.display());
        ErrorInfo::new(ErrorCode::FileNotFound, message)
    };
    let resolved = dir.canonicalize().map_err(refuse)?;
    match resolved.parent() {
        Some(parent) if resolved.is_file() => Ok(parent.to_owned()),
        _ => Ok(resolved),
    }
}
