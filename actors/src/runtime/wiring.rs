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
        Approvals, Authorizer, CallbackCalls, Core, DebugArtifacts, Finalizer, HookCalls,
        ModelCaller, RunRegistry, RunResolver, RunServices, TaskServices, ToolRunner,
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
        redactor.clone(),
    );
    let runs = RunRegistry::new(Arc::clone(&actor_tree), journal.clone(), lifetime.clone());
    let core = Arc::new(Core {
        config,
        redactor,
        reader,
        journal,
        bus,
        artifacts: ArtifactHandle::new(&Arc::new(artifacts), lifetime.tasks()),
        runs: Arc::new(runs),
        lifetime,
    });
    let task_journals = Arc::new(TaskJournals {
        journal: core.journal.clone(),
        store: core.reader.clone(),
        bus: Arc::clone(&core.bus),
        faults: faults.clone(),
        home: home.clone(),
        location: task_place.unwrap_or(TaskPlace::Project),
        tasks: core.lifetime.tasks().clone(),
        closing: core.lifetime.closing().clone(),
    });
    let approvals = Approvals::new(&core, &permissions);
    let finalizer = Arc::new(Finalizer {
        core: Arc::clone(&core),
        resolver: Arc::clone(&resolver),
        task_journals: Arc::clone(&task_journals),
    });
    let services = Services {
        core,
        disk_checks: DiskChecks::new(home.clone()),
        settings_digests,
        home,
        approvals: Arc::new(approvals),
        finalizer,
        task_journals,
        sessions: Arc::new(SessionRegistry::default()),
        resolver,
        actor_tree,
        token_deviations: Arc::new(TokenDeviations::default()),
        detached_jobs: TaskTracker::new(),
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
    let core = &services.core;
    let keeps_debug_artifacts = core.config.runtime.debug_artifacts;
    let debug_artifacts = keeps_debug_artifacts.then(|| DebugArtifacts::new(core));
    let run_services = RunServices {
        core: Arc::clone(core),
        tasks: Arc::new(tasks(services, permissions, &debug_artifacts)),
        task_journals: Arc::clone(&services.task_journals),
        approvals: Arc::clone(&services.approvals),
        finalizer: Arc::clone(&services.finalizer),
        debug_artifacts,
        faults,
        stuck_after_ms: stuck_after_ms(&core.config),
    };
    let deleter = SessionDeleter {
        core: Arc::clone(core),
        sessions: Arc::clone(&services.sessions),
        permissions: Arc::clone(permissions),
    };
    SessionServices {
        core: Arc::clone(core),
        sessions: Arc::clone(&services.sessions),
        run_services: Arc::new(run_services),
        resolver: Arc::clone(&services.resolver),
        finalizer: Arc::clone(&services.finalizer),
        actor_tree: Arc::clone(&services.actor_tree),
        deleter: Arc::new(deleter),
    }
}

/// Creates the handles of the tasks that runs start.
fn tasks(
    services: &Services,
    permissions: &Arc<Permissions>,
    debug_artifacts: &Option<Arc<DebugArtifacts>>,
) -> TaskServices {
    let core = &services.core;
    let resolver = &services.resolver;
    let starter = Arc::new(services.child_starter());
    let callbacks = Arc::new(CallbackCalls {
        core: Arc::clone(core),
        starter: Arc::clone(&starter),
    });
    let models = ModelCaller {
        core: Arc::clone(core),
        callbacks: Arc::clone(&callbacks),
        models: Arc::clone(&resolver.models),
        token_deviations: Arc::clone(&services.token_deviations),
        warm_prefix: core.config.agents.warm_prefix,
        debug_artifacts: debug_artifacts.clone(),
    };
    let hooks = HookCalls {
        core: Arc::clone(core),
        debug_artifacts: debug_artifacts.clone(),
    };
    let authorizer = Authorizer {
        core: Arc::clone(core),
        permissions: Arc::clone(permissions),
    };
    let tools = ToolRunner {
        core: Arc::clone(core),
        authorizer,
        starter,
        hooks: hooks.clone(),
        callbacks: Arc::clone(&callbacks),
    };
    TaskServices {
        core: Arc::clone(core),
        models,
        tools,
        callbacks,
        hooks,
        memory: Arc::clone(&resolver.memory),
        max_recalled: core.config.memory.top_k,
        detached_jobs: services.detached_jobs.clone(),
    }
}

/// Returns the time without progress after which a run is reported as stuck, in milliseconds.
pub(super) fn stuck_after_ms(config: &Config) -> u64 {
    config.runtime.stuck_after_s.saturating_mul(1_000)
}
