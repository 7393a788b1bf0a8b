//! Building a runtime: home, lock, store, models, tools, and the tree (RT-1, RT-2).

use std::{
    borrow::Cow,
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::BoxFuture;
use ractor::{Actor, ActorRef};
use soong_model::{ModelCatalog, selection::complete_default_model};
use soong_protocol::{
    Config, Durability, ErrorCode, ErrorInfo, ModelConfig, Preset, Provider, Run, RunId,
    api::SettingsDigests,
};
use soong_storage::{
    blob::{BlobLocation, BlobStore},
    fault::FaultStore,
    sqlite::{SqliteReader, SqliteStore},
    store::{SessionDeletion, Store, StoreError},
};
use soong_text::{Environment, Redactor};
use soong_tool::{PathPolicy, ToolEnvironment, ToolRegistry, command_shell};
use tokio::sync::oneshot;

use super::RuntimeBuilder;
use crate::{
    actor_base::{SINGLETON_ID, restart},
    actor_tree::ActorKind,
    builtin_tools,
    callback::Callbacks,
    gateways::{ModelFactory, ModelGateways, StartGateway},
    hook::Hooks,
    mcp::McpServers,
    memory::MemoryFiles,
    model_facts::ModelFacts,
    permission::{Permissions, unknown_tools},
    preset::{self, KnownPreset, PresetFiles},
    project_instructions::ProjectInstructionsCache,
    run::{PromptCache, RunResolver, watch_for_idle_runs, watch_for_stuck_runs},
    runtime::{
        Inner, Runtime, home,
        project::resolve_project,
        provider::{self, config_error},
        recovery::{self, InterruptedRuns, RecoveryPolicy},
        services::Services,
        settings_digests::digests_of,
        supervisor::RuntimeSupervisorActor,
        wiring::{self, OpenStore, Settings},
    },
    session::{SessionServices, SessionSupervisorMsg},
    skill::Skills,
    store_reader::DATABASE,
};

impl RuntimeBuilder {
    /// Opens the home, takes its ownership, and starts the actor tree.
    ///
    /// Interrupted runs of an earlier owner are resumed or ended (see [`RuntimeBuilder::recover`]).
    /// Session deletions that an earlier owner started continue in the background.
    ///
    /// # Errors
    /// `home_locked` if another process owns the home; `config_error` if the configuration, a
    /// preset or a skill of the home is invalid. In both cases nothing is changed.
    pub fn build(self) -> BoxFuture<'static, Result<Runtime, ErrorInfo>> {
        // Boxed, so that the actor tree is compiled with this crate, and not again with each that
        // awaits it.
        Box::pin(self.open_home())
    }

    /// Returns digests of the settings that [`build`](Self::build) would use, to compare them with
    /// those of the process that owns the home: see
    /// [`RuntimeInfo::settings_digests`](crate::RuntimeInfo::settings_digests).
    ///
    /// # Errors
    /// `config_error`.
    pub fn settings_digests(mut self) -> Result<SettingsDigests, ErrorInfo> {
        let environment = self
            .environment
            .clone()
            .unwrap_or_else(Environment::from_process);
        let home = self.home_folder(&environment)?;
        Ok(self.configuration(&home, &environment)?.digests)
    }

    fn home_folder(&self, environment: &Environment) -> Result<PathBuf, ErrorInfo> {
        let home = self.home.clone().or_else(|| environment.home());
        home.ok_or_else(|| {
            config_error("no home directory: set SOONG_AGENT_HOME, or pass one".to_owned())
        })
    }

    async fn open_home(mut self) -> Result<Runtime, ErrorInfo> {
        let environment = self
            .environment
            .clone()
            .unwrap_or_else(Environment::from_process);
        self.faults.program.plan = self.fault_plan()?;
        if let Some(plan) = &self.faults.program.plan {
            tracing::warn!(%plan, "fault injection enabled");
        }
        let project_dir = match &self.project_dir {
            Some(dir) => resolve_project(dir)?,
            None => resolve_project(Path::new("."))?,
        };
        let home = self.home_folder(&environment)?;
        let configuration = self.configuration(&home, &environment)?;
        let config = &configuration.config;
        let location = BlobLocation::parse(&config.artifacts.store)
            .map_err(|error| config_error(format!("artifacts.store: {error}")))?;
        let redactor = Redactor::new(&environment, config);
        let permissions = Permissions::new(self.approver.clone(), config)
            .map_err(|error| config_error(format!("permissions: {error}")))?;
        let user_home = environment.user_home();
        let rejected_home = user_home.filter(|_| self.rejects_home_projects);
        let (resolver, presets) =
            self.resolver(&configuration, environment.clone(), &home, redactor)?;
        let settings_digests = configuration.digests.clone();
        let (home, lock) = home::open(&home).await?;
        let open = self
            .open_store(&home, config.storage.durability, location, environment)
            .await?;
        let faults = self.faults.program;
        let task_place = self.task_journal_location;
        let wired = wiring::wire(
            open,
            Settings {
                home,
                settings_digests,
                resolver,
                permissions,
                faults,
                task_place,
            },
        )?;
        let services = Arc::new(wired.services);
        let threads = wired.threads;
        let unfinished = match UnfinishedWork::find(&services, &self.recover).await {
            Ok(unfinished) => unfinished,
            Err(error) => {
                services.core.journal.close(threads).await; // before the home is unlocked
                return Err(error);
            }
        };
        let root = start_tree(&services, wired.sessions).await?;
        services
            .task_journals
            .complete_ended(unfinished.task_journals);
        // Deletions that an earlier owner started continue in the background.
        for SessionDeletion {
            session_id: session,
            ..
        } in unfinished.session_deletions
        {
            services
                .sessions
                .send_to_supervisor(SessionSupervisorMsg::Delete {
                    session,
                    reply: oneshot::channel().0,
                });
        }
        let threads = Mutex::new(Some(threads));
        let lock = Mutex::new(Some(lock));
        let project_dir = project_dir.into();
        let interrupted_runs = unfinished.interrupted_runs;
        let InterruptedRuns {
            resumed,
            ended,
            unchanged,
        } = &interrupted_runs;
        let resumed = resumed.len();
        let ended = ended.len();
        let untouched = unchanged.len();
        let version = env!("CARGO_PKG_VERSION");
        tracing::info!(home = %services.home.display(), version, resumed, ended, untouched, "home opened");
        let closed = tokio::sync::OnceCell::new();
        let inner = Inner {
            services,
            root,
            project_dir,
            rejected_home,
            threads,
            lock,
            closed,
            interrupted_runs,
            presets,
        };
        let runtime = Runtime {
            inner: Arc::new(inner),
        };
        if !unfinished.runs.is_empty() {
            runtime.inner.services.resolver.mcp.wait_started().await;
        }
        recovery::resume_runs(&runtime.inner.services, &unfinished.runs).await?;
        Ok(runtime)
    }

    /// Returns the table of models: that of the home, unless files of the home are ignored.
    fn catalog(&self, home: &Path) -> Result<Cow<'static, ModelCatalog>, ErrorInfo> {
        if self.ignores_home_files {
            Ok(Cow::Borrowed(ModelCatalog::built_in()))
        } else {
            ModelCatalog::of_home(home).map_err(config_error)
        }
    }

    /// Opens the store of a home, with the configured faults and wrapper.
    async fn open_store(
        &mut self,
        home: &Path,
        durability: Durability,
        location: BlobLocation,
        environment: Environment,
    ) -> Result<OpenStore, ErrorInfo> {
        let home = home.to_owned();
        let open = move || -> Result<_, StoreError> {
            let database = home.join(DATABASE);
            let store = SqliteStore::open(&database, durability)?;
            let reader = SqliteReader::open(&database)?;
            Ok((
                store,
                reader,
                BlobStore::open(&home, &location, &|name| {
                    environment.get(name).map(str::to_owned)
                })?,
            ))
        };
        let opened = tokio::task::spawn_blocking(open).await;
        let opened =
            opened.map_err(|error| ErrorInfo::new(ErrorCode::InternalError, error.to_string()))?;
        let (store, reader, blobs) = opened.map_err(|error| ErrorInfo::from(&error))?;
        let store: Box<dyn Store> = match self.wrap_store.take() {
            Some(wrap) => wrap(store),
            None => Box::new(store),
        };
        let reader = Arc::new(reader);
        Ok(match &self.faults.program.plan {
            Some(plan) => {
                let store = Box::new(FaultStore::new(store, plan.clone()));
                OpenStore {
                    store,
                    reader,
                    blobs: blobs.with_faults(plan.clone()),
                }
            }
            None => OpenStore {
                store,
                reader,
                blobs,
            },
        })
    }

    /// Returns the program's configuration, else that of the home if it is to be loaded, with the
    /// builder's other settings applied and the default model completed.
    fn configuration(
        &mut self,
        home: &Path,
        environment: &Environment,
    ) -> Result<Configuration, ErrorInfo> {
        let catalog = self.catalog(home)?;
        let mut config = match self.config.program.take() {
            Some(config) => config,
            None if self.config.loads_home => read_config(&home.join("config.toml"))?,
            None => Config::default(),
        };
        config.permissions.allow.append(&mut self.config.allow);
        if self.config.is_offline {
            config.model.provider = Some(Provider::Offline);
            config.model.name = None;
        }
        if let Some((base_url, name)) = self.config.default_model.take() {
            let is_compatible =
                base_url.is_some() || environment.get(Provider::Openai.base_url_env()).is_some();
            let known = catalog
                .find(&name)
                .and_then(|entry| entry.provider)
                .filter(|_| !is_compatible);
            let is_own = |provider: &Provider| provider.is_same_vendor(Provider::Openai);
            let provider = known.filter(is_own).unwrap_or(Provider::Openai);
            let ModelConfig {
                api_key_env,
                headers,
                header_env,
                query,
                params,
                ..
            } = ModelConfig::default();
            let service = (api_key_env, headers, header_env, query, params);
            let model = &mut config.model;
            model.provider = Some(provider);
            model.base_url = base_url;
            model.name = Some(name);
            // The key and the headers of another service must not be sent to this one.
            (
                model.api_key_env,
                model.headers,
                model.header_env,
                model.query,
                model.params,
            ) = service;
        }
        config.tools.env_allowlist = config.command_variables();
        // The default model may follow from a key, whose digest is compared on its own.
        let digests = digests_of(&config, environment);
        let default_takes_names = complete_default_model(&mut config, &catalog, environment);
        Ok(Configuration {
            config: Arc::new(config),
            catalog,
            default_takes_names,
            digests,
        })
    }

    /// Reads the hooks, skills, presets and memory of the home, and registers tools and models.
    fn resolver(
        &self,
        Configuration {
            config,
            catalog,
            default_takes_names,
            ..
        }: &Configuration,
        environment: Environment,
        home: &Path,
        redactor: Redactor,
    ) -> Result<(RunResolver, Vec<KnownPreset>), ErrorInfo> {
        let hooks = if self.config.loads_home {
            Hooks::load(home, config, &environment)?
        } else {
            Hooks::default()
        };
        let hooks = Arc::new(hooks);
        let skills = Arc::new(if self.ignores_home_files {
            Skills::default()
        } else {
            Skills::load(home)?
        });
        let memory = Arc::new(MemoryFiles::of_home(home, config, &environment));
        let tool_environment = ToolEnvironment {
            tools: config.tools.clone(),
            max_undo_bytes: config.artifacts.max_undo_bytes,
            permissions: config.permissions.clone(),
            environment: environment.clone(),
            home: Some(home.to_owned()),
        };
        let tools = self.register_tools(config, &tool_environment, &skills, &memory)?;
        let files = if self.ignores_home_files {
            PresetFiles::default()
        } else {
            let names: Vec<&str> = tools.specs().map(|spec| spec.name.as_str()).collect();
            PresetFiles::read(home, &names, config)
        };
        if let Some(fault) = &files.folder_fault {
            return Err(ErrorInfo::from(fault));
        }
        let known_presets = preset::presets(&files, config, &self.presets);
        let presets: BTreeMap<String, Preset> = known_presets
            .iter()
            .map(|known| (known.preset.name.clone(), known.preset.clone()))
            .collect();
        let models = self.models.clone();
        let variables = environment.clone();
        let make_model: ModelFactory = Box::new(move |profile, config| match models.get(profile) {
            Some(model) => Ok(Arc::clone(model)),
            None => provider::make_model(profile, config, &environment),
        });
        let registered = self
            .models
            .iter()
            .map(|(profile, model)| (profile.clone(), model.name().to_owned()))
            .collect();
        let resolver = RunResolver {
            config: Arc::clone(config),
            models: Arc::new(ModelGateways::new(
                Arc::clone(config),
                catalog.clone(),
                *default_takes_names,
                make_model,
                registered,
                ModelFacts::load(
                    (!self.ignores_home_files).then_some(home),
                    variables.clone(),
                ),
            )),
            mcp: Arc::new(McpServers::new(tools, config, &variables)),
            presets: Arc::new(presets),
            has_own_tools: !self.extensions.tools.is_empty()
                || self.extensions.excludes_builtin_tools,
            unusable_presets: Arc::new(files.unusable),
            skills,
            memory,
            projects: Arc::new(ProjectInstructionsCache::new(Arc::new(PathPolicy::new(
                &tool_environment,
            )))),
            prompts: PromptCache::default(),
            hooks,
            callbacks: Callbacks::new(self.extensions.callbacks.clone()),
            redactor,
            shell: command_shell(&variables)
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
        };
        Ok((resolver, known_presets))
    }

    /// Registers the built-in tools and those of the program. Fails if the configuration names an
    /// unknown tool.
    fn register_tools(
        &self,
        config: &Config,
        environment: &ToolEnvironment,
        skills: &Arc<Skills>,
        memory: &Arc<MemoryFiles>,
    ) -> Result<ToolRegistry, ErrorInfo> {
        let broken = |error| {
            ErrorInfo::new(
                ErrorCode::InternalError,
                format!("a built-in tool is invalid: {error}"),
            )
        };
        let mut tools = if self.extensions.excludes_builtin_tools {
            ToolRegistry::default()
        } else {
            builtin_tools::registry(environment, skills, Some(Arc::clone(memory)))
                .map_err(broken)?
        };
        for tool in &self.extensions.tools {
            let name = tool.spec().name.clone();
            tools
                .register(Arc::clone(tool))
                .map_err(|error| config_error(format!("tool {name:?}: {error}")))?;
        }
        let known: Vec<String> = tools.specs().map(|spec| spec.name.clone()).collect();
        match unknown_tools(config, &known).into_iter().next() {
            Some(unknown) => Err(config_error(unknown)),
            None => Ok(tools),
        }
    }
}

/// The configuration of a runtime.
struct Configuration {
    config: Arc<Config>,
    catalog: Cow<'static, ModelCatalog>,
    /// Whether the service of the default model is configured, so that model names belong to it.
    default_takes_names: bool,
    digests: SettingsDigests,
}

/// Work that earlier owners of the home did not finish.
struct UnfinishedWork {
    interrupted_runs: InterruptedRuns,
    /// The interrupted runs to resume.
    runs: Vec<Run>,
    /// The ended runs whose task journals are incomplete.
    task_journals: Vec<RunId>,
    session_deletions: Vec<SessionDeletion>,
}

impl UnfinishedWork {
    /// Deletes unregistered blobs, ends the interrupted runs that are not resumed, and returns the
    /// rest of the work.
    async fn find(services: &Arc<Services>, policy: &RecoveryPolicy) -> Result<Self, ErrorInfo> {
        services
            .core
            .artifacts
            .store()
            .delete_unregistered_blobs()
            .await?;
        let (interrupted_runs, runs) = policy.find_interrupted(services).await?;
        let task_journals = services.task_journals.incomplete_ended_runs().await?;
        let session_deletions = services
            .core
            .reader
            .read(|reader| reader.session_deletions())
            .await?;
        Ok(Self {
            interrupted_runs,
            runs,
            task_journals,
            session_deletions,
        })
    }
}

/// Starts the actors of a runtime, and the tasks that detect stuck and idle runs.
async fn start_tree(
    services: &Services,
    sessions: SessionServices,
) -> Result<ActorRef<StartGateway>, ErrorInfo> {
    let status = services.actor_tree.register(
        ActorKind::RuntimeSupervisor,
        SINGLETON_ID,
        None,
        restart::NEVER.label,
        None,
    );
    let idle_after = Duration::from_secs(services.core.config.runtime.idle_session_s);
    let root = RuntimeSupervisorActor {
        journal: services.core.journal.clone(),
        artifacts: Arc::clone(services.core.artifacts.store()),
        mcp: Arc::clone(&services.resolver.mcp),
        runs: Arc::clone(&services.core.runs),
        sessions: Arc::new(sessions),
        bus: Arc::clone(&services.core.bus),
        actor_tree: Arc::clone(&services.actor_tree),
        lifetime: services.core.lifetime.clone(),
        idle_after,
        status,
    };
    let (root, _) = Actor::spawn(None, root, ()).await.map_err(|error| {
        ErrorInfo::new(
            ErrorCode::InternalError,
            format!("the actor tree did not start: {error}"),
        )
    })?;
    services.resolver.models.set_supervisor(root.clone());
    let runs = &services.core.runs;
    let lifetime = &services.core.lifetime;
    let stuck_after_ms = wiring::stuck_after_ms(&services.core.config);
    lifetime.spawn(watch_for_stuck_runs(
        Arc::clone(runs),
        lifetime.clone(),
        stuck_after_ms,
    ));
    lifetime.spawn(watch_for_idle_runs(
        Arc::clone(runs),
        lifetime.clone(),
        idle_after,
    ));
    Ok(root)
}

/// Reads a configuration file. A missing file yields the defaults.
fn read_config(path: &Path) -> Result<Config, ErrorInfo> {
    match std::fs::read_to_string(path) {
        Ok(text) => Config::parse(&path.display().to_string(), &text)
            .map_err(|error| config_error(error.to_string())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Config::default()),
        Err(error) => Err(config_error(format!(
            "{} cannot be read: {error}",
            path.display()
        ))),
    }
}
