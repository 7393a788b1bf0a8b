//! Wiring of a runtime: gives each actor and task the handles that it uses.

use std::{path::PathBuf, sync::Arc};

use soong_model::tokens::TokenDeviations;
use soong_protocol::{Config, ErrorCode, ErrorInfo, api::SettingsDigests};
use soong_storage::{
    blob::BlobStore,
    store::{Reader, Store},
};
use tokio_util::task::TaskTracker;

use super::services::Services;
use crate::{
    actor_base::Lifetime,
    actor_tree::ActorTree,
    artifact::{ArtifactHandle, ArtifactStore},
    disk::DiskChecks,
    events::EventBus,
    fault::Faults,
    journal::{JournalHandle, JournalTasks},
    permission::Permissions,
    run::{
        Approvals, Authorizer, CallbackCalls, DebugArtifacts, Finalizer, HookCalls, ModelCaller,
        RunRegistry, RunResolver, RunServices, TaskServices, ToolRunner,
    },
    session::{SessionDeleter, SessionRegistry, SessionServices},
    store_reader::StoreReader,
    task_journal::{TaskJournals, TaskPlace},
};

/// The opened store of a home.
pub(super) struct OpenStore {
    pub(super) store: Box<dyn Store>,
    pub(super) reader: Arc<dyn Reader>,
    pub(super) blobs: BlobStore,
}

/// Settings from which the parts of a runtime are built.
pub(super) struct Settings {
    pub(super) home: PathBuf,
    pub(super) settings_digests: SettingsDigests,
    pub(super) resolver: RunResolver,
    pub(super) permissions: Permissions,
    pub(super) faults: Faults,
    pub(super) task_place: Option<TaskPlace>,
}

/// The services of a runtime whose actors are not started yet.
pub(super) struct Wired {
    pub(super) services: Services,
    /// Services of the session supervisor.
    pub(super) sessions: SessionServices,
    pub(super) threads: JournalTasks,
}

/// Starts the journal, and creates all handles of a runtime.
pub(super) fn wire(open: OpenStore, settings: Settings) -> Result<Wired, ErrorInfo> {
    let Settings {
        home,
        settings_digests,
        resolver,
        permissions,
        faults,
        task_place,
    } = settings;
    let resolver = Arc::new(resolver);
    let permissions = Arc::new(permissions);
    let config = Arc::clone(&resolver.config);
    let redactor = resolver.redactor.clone();
    let lifetime = Lifetime::default();
    let bus = Arc::new(EventBus::default());
    let actor_tree = Arc::new(ActorTree::default());
    let (journal, threads) = JournalHandle::start(open.store, Arc::clone(&bus), redactor.clone())
        .map_err(|error| {
        ErrorInfo::new(
            ErrorCode::InternalError,
            format!("could not start the writer thread: {error}"),
        )
    })?;
    let reader = StoreReader::new(open.reader);
    let artifacts = ArtifactStore::new(
        journal.clone(),
        reader.clone(),
        open.blobs,
        config.artifacts.clone(),
        redactor,
    );
    let artifacts = Arc::new(artifacts);
    let task_journals = Arc::new(TaskJournals {
        journal: journal.clone(),
        store: reader.clone(),
        bus: Arc::clone(&bus),
        faults: faults.clone(),
        home: home.clone(),
        location: task_place.unwrap_or(TaskPlace::Project),
        tasks: lifetime.tasks().clone(),
        closing: lifetime.closing().clone(),
    });
    let runs = Arc::new(RunRegistry::new(
        Arc::clone(&actor_tree),
        journal.clone(),
        lifetime.clone(),
    ));
    let approvals = Approvals::new(
        &config.permissions,
        Arc::clone(&permissions),
        Arc::clone(&runs),
        journal.clone(),
        reader.clone(),
        lifetime.clone(),
    );
    let approvals = Arc::new(approvals);
    let finalizer = Arc::new(Finalizer {
        runs: Arc::clone(&runs),
        resolver: Arc::clone(&resolver),
        journal: journal.clone(),
        reader: reader.clone(),
        artifacts: ArtifactHandle::new(&artifacts, lifetime.tasks()),
        task_journals: Arc::clone(&task_journals),
        lifetime: lifetime.clone(),
    });
    let services = Services {
        config,
        disk_checks: DiskChecks::new(home.clone()),
        settings_digests,
        home,
        reader,
        journal,
        bus,
        artifacts,
        runs,
        approvals,
        finalizer,
        task_journals,
        sessions: Arc::new(SessionRegistry::default()),
        resolver,
        actor_tree,
        token_deviations: Arc::new(TokenDeviations::default()),
        detached_jobs: TaskTracker::new(),
        lifetime,
    };
    let sessions = sessions(&services, &permissions, faults);
    Ok(Wired {
        services,
        sessions,
        threads,
    })
}

/// Creates the handles of the session supervisor and of everything below it.
fn sessions(
    services: &Services,
    permissions: &Arc<Permissions>,
    faults: Faults,
) -> SessionServices {
    let create = || {
        DebugArtifacts::new(
            services.artifact_handle(),
            services.resolver.redactor.clone(),
            services.lifetime.clone(),
        )
    };
    let debug_artifacts = services.config.runtime.debug_artifacts.then(create);
    let run_services = RunServices {
        runs: Arc::clone(&services.runs),
        tasks: Arc::new(tasks(services, permissions, &debug_artifacts)),
        journal: services.journal.clone(),
        artifacts: services.artifact_handle(),
        task_journals: Arc::clone(&services.task_journals),
        approvals: Arc::clone(&services.approvals),
        finalizer: Arc::clone(&services.finalizer),
        debug_artifacts,
        faults,
        lifetime: services.lifetime.clone(),
        stuck_after_ms: stuck_after_ms(&services.config),
    };
    let deleter = SessionDeleter {
        sessions: Arc::clone(&services.sessions),
        runs: Arc::clone(&services.runs),
        journal: services.journal.clone(),
        reader: services.reader.clone(),
        artifacts: Arc::clone(&services.artifacts),
        permissions: Arc::clone(permissions),
        bus: Arc::clone(&services.bus),
        lifetime: services.lifetime.clone(),
    };
    SessionServices {
        sessions: Arc::clone(&services.sessions),
        run_services: Arc::new(run_services),
        runs: Arc::clone(&services.runs),
        resolver: Arc::clone(&services.resolver),
        finalizer: Arc::clone(&services.finalizer),
        journal: services.journal.clone(),
        reader: services.reader.clone(),
        artifacts: Arc::clone(&services.artifacts),
        bus: Arc::clone(&services.bus),
        actor_tree: Arc::clone(&services.actor_tree),
        deleter: Arc::new(deleter),
        config: Arc::clone(&services.config),
        lifetime: services.lifetime.clone(),
    }
}

/// Creates the handles of the tasks that runs start.
fn tasks(
    services: &Services,
    permissions: &Arc<Permissions>,
    debug_artifacts: &Option<Arc<DebugArtifacts>>,
) -> TaskServices {
    let config = &services.config;
    let resolver = &services.resolver;
    let starter = Arc::new(services.child_starter());
    let callbacks = CallbackCalls {
        starter: Arc::clone(&starter),
        artifacts: services.artifact_handle(),
    };
    let callbacks = Arc::new(callbacks);
    let models = ModelCaller {
        callbacks: Arc::clone(&callbacks),
        models: Arc::clone(&resolver.models),
        runs: Arc::clone(&services.runs),
        artifacts: services.artifact_handle(),
        token_deviations: Arc::clone(&services.token_deviations),
        warm_prefix: config.agents.warm_prefix,
        debug_artifacts: debug_artifacts.clone(),
    };
    let hooks = HookCalls {
        runs: Arc::clone(&services.runs),
        lifetime: services.lifetime.clone(),
        debug_artifacts: debug_artifacts.clone(),
    };
    let authorizer = Authorizer {
        permissions: Arc::clone(permissions),
        network: config.permissions.network,
        reader: services.reader.clone(),
        redactor: resolver.redactor.clone(),
    };
    let tools = ToolRunner {
        config: Arc::clone(config),
        authorizer,
        runs: Arc::clone(&services.runs),
        starter,
        hooks: hooks.clone(),
        callbacks: Arc::clone(&callbacks),
        artifacts: services.artifact_handle(),
        journal: services.journal.clone(),
        reader: services.reader.clone(),
        redactor: resolver.redactor.clone(),
    };
    TaskServices {
        models,
        tools,
        callbacks,
        hooks,
        memory: Arc::clone(&resolver.memory),
        max_recalled: config.memory.top_k,
        artifacts: services.artifact_handle(),
        journal: services.journal.clone(),
        reader: services.reader.clone(),
        redactor: resolver.redactor.clone(),
        detached_jobs: services.detached_jobs.clone(),
        lifetime: services.lifetime.clone(),
    }
}

/// Returns the time without progress after which a run is reported as stuck, in milliseconds.
pub(super) fn stuck_after_ms(config: &Config) -> u64 {
    config.runtime.stuck_after_s.saturating_mul(1_000)
}
