//! Sample trees for tests.

use std::sync::Arc;

use soong_protocol::{
    RunId, RunMode, Timestamp, TraceId, Usd,
    tree::{ActorKind, ActorRun, ActorView, TreeEvent},
};

/// A running actor.
pub(crate) fn actor(kind: ActorKind, id: &str, parent: Option<&str>) -> ActorView {
    ActorView {
        actor_id: format!("{}:{id}", kind.as_str()),
        kind,
        id: id.to_owned(),
        name: kind.as_str().to_owned(),
        parent: parent.map(str::to_owned),
        state: "running".into(),
        activity: String::new(),
        since: Timestamp::default(),
        started_at: Timestamp::default(),
        restarts: 0,
        restart_limit: "3/60s".into(),
        mailbox: 0,
        handled: 0,
        last_error: None,
        run: None,
        gateway: None,
        children: Vec::new(),
    }
}

/// A run of the session `s`.
pub(crate) fn run(id: &str, parent: Option<&str>) -> ActorView {
    let supervisor = if parent.is_some() {
        "sub_agent_supervisor:s"
    } else {
        "run_supervisor:s"
    };
    ActorView {
        name: "default".to_owned(),
        activity: "model call".to_owned(),
        run: Some(ActorRun {
            trace_id: TraceId::new(if parent.is_some() {
                format!("s@{id}")
            } else {
                "s".to_owned()
            }),
            parent_run_id: parent.map(RunId::new),
            mode: RunMode::Normal,
            agent_type: if parent.is_some() {
                "explore"
            } else {
                "orchestrator"
            }
            .to_owned(),
            task: format!("the task of run {id}"),
            turn: 1,
            goal: None,
            tokens: 0,
            cost: Some(Usd::default()),
            estimated: false,
            events: 0,
            asks: 0,
            last_progress: Some(Timestamp::default()),
            budget: Vec::new(),
            stuck: false,
            passive: false,
        }),
        ..actor(ActorKind::Run, id, Some(supervisor))
    }
}

/// A change of the tree: changed actors, and the ids of ended ones.
pub(crate) fn changed(changed: Vec<ActorView>, gone: &[&str]) -> TreeEvent {
    let gone = gone.iter().map(|id| (*id).to_owned()).collect();
    TreeEvent::Changed {
        changed: changed.into(),
        gone,
        ended: Arc::default(),
        dropped: 0,
    }
}

/// A snapshot of a tree with runs of one session.
pub(crate) fn tree(runs: Vec<ActorView>) -> TreeEvent {
    let root = "runtime_supervisor:0";
    let sessions = "session_supervisor:0";
    let mut supervisors = [
        actor(ActorKind::RunSupervisor, "s", Some("session:s")),
        actor(ActorKind::SubAgentSupervisor, "s", Some("session:s")),
    ];
    for run in runs {
        let index = usize::from(run.parent.as_deref() == Some("sub_agent_supervisor:s"));
        supervisors[index].children.push(run);
    }
    let mut session = actor(ActorKind::Session, "s", Some(sessions));
    session.children = supervisors.into();
    let mut sessions = actor(ActorKind::SessionSupervisor, "0", Some(root));
    sessions.children = vec![session];
    let mut tree = actor(ActorKind::RuntimeSupervisor, "0", None);
    tree.children = vec![sessions, actor(ActorKind::Journal, "0", Some(root))];
    TreeEvent::Snapshot {
        tree: Box::new(tree),
        dropped: 0,
    }
}
