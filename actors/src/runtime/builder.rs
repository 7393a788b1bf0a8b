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
    blob::{BlobPlace, Blobs},
    fault::{FaultPlan, FaultStore},
    sqlite::{SqliteReader, SqliteStore},
    store::{Removal, Store, StoreError},
};
use tokio::sync::oneshot;

use super::{
    Inner, Runtime,
    provider::{self, config_error},
    recovery::{self, LeftBehind, Recover},
    services::Services,
    wiring::{self, OpenStore, Settings},
};
use crate::{
    actor_base::{ONLY, restart},
    environment::Environment,
    fault::{FaultHook, Faults, plan_of},
    home_file,
    hook::Hooks,
    mcp::Mcp,
    memory::Memories,
    model::{
        Model,
        gateways::{ModelFactory, ModelGateways, StartGateway},
    },
    observatory::ActorKind,
    permission::{Answerer, PermissionHandler, Permissions, unknown_tools},
    preset::{self, KnownPreset, PresetFiles},
    project_text::ProjectTexts,
    reading::DATABASE,
    redaction::Redactor,
    run::{Prompts, RunResolver, watch_for_idle_runs, watch_for_stuck_runs},
    runtime::supervisor::RuntimeSupervisorActor,
    session::{SessionServices, SessionSupervisorMsg},
    skill::Skills,
    task_journal::TaskPlace,
    tool::{Roots, Surroundings, Tool, ToolRegistry},
};

/// Gathers what a runtime is made of.
#[derive(Default)]
pub struct RuntimeBuilder {
    home: Option<PathBuf>,
    project_dir: Option<PathBuf>,
    refuses_home_projects: bool,
    /// The configuration that was given.
    config: Option<Config>,
    loads_config: bool,
    /// Grants beside those of the configuration.
    allow: Vec<String>,
    is_offline: bool,
    environment: Option<Environment>,
    models: BTreeMap<String, Arc<dyn Model>>,
    tools: Vec<Arc<dyn Tool>>,
    answerer: Answerer,
    presets: Vec<Preset>,
    ignores_home_files: bool,
    faults: Faults,
    faults_from_env: bool,
    recover: Recover,
    wrap_store: Option<StoreWrapper>,
    task_place: Option<TaskPlace>,
}

/// Puts something between the journal and the store.
type StoreWrapper = Box<dyn FnOnce(SqliteStore) -> Box<dyn Store> + Send>;

impl RuntimeBuilder {
    /// Sets the home directory; otherwise `SOONG_AGENT_HOME`, else `~/.soong-agent`. It is made if
    /// missing, on Unix for its owner alone.
    #[must_use]
    pub fn home(mut self, home: impl Into<PathBuf>) -> Self {
        self.home = Some(home.into());
        self
    }

    /// Refuses new sessions whose project is the user's home folder or above it, unless they ask for it with
    /// [`Start::allow_home_project`](field@crate::Start::allow_home_project). Without this they are allowed.
    #[must_use]
    pub fn refuse_home_projects(mut self) -> Self {
        self.refuses_home_projects = true;
        self
    }

    /// Sets the project directory of new sessions; otherwise the current one. A file means its parent.
    #[must_use]
    pub fn project_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.project_dir = Some(dir.into());
        self
    }

    /// Allows what every run may do without asking: a tool, or a tool and a scope, such as `write:docs` or
    /// `bash:unconfined`. Adds to `permissions.allow` of the configuration.
    #[must_use]
    pub fn allow(mut self, grant: impl Into<String>) -> Self {
        self.allow.push(grant.into());
        self
    }

    /// Sets the configuration; otherwise defaults. A file is read by [`Config::parse`], that of the home by
    /// [`load_config`](Self::load_config).
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = Some(config);
        self
    }

    /// Uses the configuration of the home: its `config.toml`, unless one is given by [`config`](Self::config), and the
    /// commands of its `hooks.json`. Without this neither is read.
    #[must_use]
    pub fn load_config(mut self) -> Self {
        self.loads_config = true;
        self
    }

    /// Makes the built-in rule-based stand-in the default model: no key, no network, no language model.
    #[must_use]
    pub fn offline(mut self) -> Self {
        self.is_offline = true;
        self
    }

    /// Sets what stands for the process's environment.
    #[must_use]
    pub fn environment(mut self, environment: Environment) -> Self {
        self.environment = Some(environment);
        self
    }

    /// Uses `model` for a profile; `default` is the default one.
    #[must_use]
    pub fn register_provider(mut self, profile: impl Into<String>, model: Arc<dyn Model>) -> Self {
        self.models.insert(profile.into(), model);
        self
    }

    /// Adds a tool beside the built-in ones.
    #[must_use]
    pub fn register_tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.push(tool);
        self
    }

    /// Has a program decide about calls that need leave (PERM-1). People may decide too, and be faster. Without a
    /// handler, and without people, what needs leave is refused at once.
    #[must_use]
    pub fn permission_handler(mut self, handler: Arc<dyn PermissionHandler>) -> Self {
        self.answerer = Answerer::Program(handler);
        self
    }

    /// Has runs wait for people where a call needs leave: until [`Runtime::decide_permission`], the command line or the
    /// server decides, without end unless `permissions.timeout_s` says so.
    #[must_use]
    pub fn permissions_by_people(mut self) -> Self {
        self.answerer = Answerer::People;
        self
    }

    /// Adds a preset. It stands in for one of that name that is built in, a file of the home, or in the
    /// configuration (SUB-5).
    #[must_use]
    pub fn register_preset(mut self, preset: Preset) -> Self {
        self.presets.push(preset);
        self
    }

    /// Leaves the files of the home alone that make presets and skills: `agents/*.md`, `skills/*.md`.
    #[must_use]
    pub fn without_home_files(mut self) -> Self {
        self.ignores_home_files = true;
        self
    }

    /// Calls `hook` at every fault point of every run; it may panic to crash the run's actor.
    #[must_use]
    pub fn fault_hook(mut self, hook: FaultHook) -> Self {
        self.faults.hook = Some(hook);
        self
    }

    /// Lets things go wrong as `plan` says: runs, commits, bytes of artifacts.
    #[must_use]
    pub fn faults(mut self, plan: FaultPlan) -> Self {
        self.faults.plan = Some(plan);
        self
    }

    /// Lets things go wrong as the environment variable `SOONG_FAULTS` says, in the words of [`FaultPlan`], where no
    /// plan is given. Such a plan may end the process. The variable has no effect without this.
    #[must_use]
    pub fn faults_from_env(mut self) -> Self {
        self.faults_from_env = true;
        self
    }

    /// Returns what will go wrong on purpose, if anything: the plan that was given, or the environment's.
    ///
    /// # Errors
    /// `config_error` where the environment holds a text that is no plan, as [`RuntimeBuilder::build`] will say.
    pub fn fault_plan(&self) -> Result<Option<FaultPlan>, ErrorInfo> {
        match (&self.faults.plan, &self.environment) {
            (Some(plan), _) => Ok(Some(plan.clone())),
            (None, _) if !self.faults_from_env => Ok(None),
            (None, Some(environment)) => plan_of(environment),
            (None, None) => plan_of(&Environment::process()),
        }
    }

    /// Puts something between the journal and the store, such as one that fails by plan.
    #[must_use]
    pub fn wrap_store(mut self, wrap: impl FnOnce(SqliteStore) -> Box<dyn Store> + Send + 'static) -> Self {
        self.wrap_store = Some(Box::new(wrap));
        self
    }

    /// Sets which of the runs that an earlier process left behind are taken up at once; all by default.
    #[must_use]
    pub fn recover(mut self, recover: Recover) -> Self {
        self.recover = recover;
        self
    }

    /// Sets where task journals are kept; otherwise in the project, and under the home where that takes none
    /// (TASK-1).
    #[must_use]
    pub fn task_journals(mut self, place: TaskPlace) -> Self {
        self.task_place = Some(place);
        self
    }

    /// Opens the home, takes its ownership, and starts the tree.
    ///
    /// Runs that an earlier owner left behind go on, or are ended (see [`RuntimeBuilder::recover`]); sessions that it had begun to
    /// delete go on going, in the background. Fails with
    /// `home_locked` if another process owns the home, and with `config_error` where the configuration, a preset or a
    /// skill of the home cannot be used; changes nothing then.
    pub async fn build(mut self) -> Result<Runtime, ErrorInfo> {
        let environment = self.environment.clone().unwrap_or_else(Environment::process);
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
        let place = BlobPlace::parse(&config.artifacts.store)
            .map_err(|error| config_error(format!("artifacts.store: {error}")))?;
        let redactor = Redactor::new(&environment, &config);
        let permissions = Permissions::new(self.answerer.clone(), &config)
            .map_err(|error| config_error(format!("permissions: {error}")))?;
        let user_home = environment.get("HOME").map(PathBuf::from);
        let refused_home = user_home.filter(|_| self.refuses_home_projects);
        let (resolver, presets) = self.resolver(&config, environment.clone(), &home, redactor)?;
        let (home, lock) = super::home::open(&home)?;
        let open = self.open_store(&home, config.storage.durability, place, environment).await?;
        let (faults, task_place) = (self.faults, self.task_place);
        let wired = wiring::wire(open, Settings { home, resolver, permissions, faults, task_place })?;
        let (services, threads) = (Arc::new(wired.services), wired.threads);
        let mended = async {
            services.artifacts.repair().await?;
            let found = self.recover.look(&services).await?;
            let journals = services.task_journals.left_behind().await?;
            Ok((found, journals, services.reader.read(|reader| reader.removals()).await?))
        };
        let ((left_behind, unfinished), journals, removals) = match mended.await {
            Ok(found) => found,
            Err(error) => {
                services.journal.close(threads).await; // before the lock goes
                return Err(error);
            }
        };
        let root = start_tree(&services, wired.sessions).await?;
        services.task_journals.complete(journals);
        // What an earlier owner had begun to delete goes on, while others work.
        for Removal { session_id: session, .. } in removals {
            services.sessions.to_supervisor(SessionSupervisorMsg::Delete { session, reply: oneshot::channel().0 });
        }
        let (threads, lock) = (Mutex::new(Some(threads)), Mutex::new(Some(lock)));
        let project_dir = project_dir.into();
        let LeftBehind { resumed, ended, untouched } = left_behind;
        let version = env!("CARGO_PKG_VERSION");
        tracing::info!(home = %services.home.display(), version, resumed, ended, untouched, "the home is open");
        let closed = tokio::sync::OnceCell::new();
        let inner = Inner { services, root, project_dir, refused_home, threads, lock, closed, left_behind, presets };
        let runtime = Runtime { inner: Arc::new(inner) };
        if !unfinished.is_empty() {
            runtime.inner.services.resolver.mcp.settled().await;
        }
        recovery::take_up(&runtime.inner.services, &unfinished).await?;
        Ok(runtime)
    }

    /// Opens the store of a home, with the faults and the wrapper that were set.
    async fn open_store(
        &mut self,
        home: &Path,
        durability: Durability,
        place: BlobPlace,
        environment: Environment,
    ) -> Result<OpenStore, ErrorInfo> {
        let home = home.to_owned();
        let open = move || -> Result<_, StoreError> {
            let database = home.join(DATABASE);
            let store = SqliteStore::open(&database, durability)?;
            let reader = SqliteReader::open(&database)?;
            Ok((store, reader, Blobs::open(&home, &place, &|name| environment.get(name).map(str::to_owned))?))
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

    /// Returns the configuration that was given, else that of the home if it is to be used, with what was set beside it.
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
        let memory = Arc::new(Memories::of_home(home, config, &environment));
        let surroundings = Surroundings {
            tools: config.tools.clone(),
            permissions: config.permissions.clone(),
            environment: environment.clone(),
            home: Some(home.to_owned()),
            skills: Arc::clone(&skills),
            memory: Some(Arc::clone(&memory)),
        };
        let mut tools = ToolRegistry::with_builtins(&surroundings).map_err(broken)?;
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
        home_file::refuse(&files.faults)?;
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
            mcp: Arc::new(Mcp::new(tools, config, &variables)),
            presets: Arc::new(presets),
            skills,
            memory,
            projects: Arc::new(ProjectTexts::new(Arc::new(Roots::new(&surroundings)))),
            prompts: Prompts::default(),
            hooks,
            redactor,
        };
        Ok((resolver, known_presets))
    }
}

/// Starts the actors of a runtime, and the tasks that watch its runs.
async fn start_tree(services: &Services, sessions: SessionServices) -> Result<ActorRef<StartGateway>, ErrorInfo> {
    let gauge = services.observatory.enter(ActorKind::RuntimeSupervisor, ONLY, None, restart::NEVER.shown, None);
    let idle_after = Duration::from_secs(services.config.runtime.idle_session_s);
    let root = RuntimeSupervisorActor {
        journal: services.journal.clone(),
        artifacts: Arc::clone(&services.artifacts),
        mcp: Arc::clone(&services.resolver.mcp),
        runs: Arc::clone(&services.runs),
        sessions: Arc::new(sessions),
        hub: Arc::clone(&services.hub),
        observatory: Arc::clone(&services.observatory),
        lifetime: services.lifetime.clone(),
        idle_after,
        gauge,
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

/// Reads a configuration file; one that is not there sets nothing.
fn read_config(path: &Path) -> Result<Config, ErrorInfo> {
    match std::fs::read_to_string(path) {
        Ok(text) => Config::parse(&path.display().to_string(), &text).map_err(|error| config_error(error.to_string())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Config::default()),
        Err(error) => Err(config_error(format!("{} cannot be read: {error}", path.display()))),
    }
}

/// Resolves a project directory: symlinks once, a file means its parent (RT-2).
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
