//! Permissions: who is asked whether a tool call may run, and what holds without asking (PERM-1).
//!
//! A question is a stored row before anybody hears of it, and so is the answer: the first one counts, whoever gives it.
//! Leave for a session is kept in memory, and ends with the process that owns the home.
//! Not here: what a call needs leave for (the tools), that a call waits for it (`run/leave.rs`), that a call runs only
//! with it (`run/gate.rs`).

mod command;
mod grant;
mod names;

use std::{panic::AssertUnwindSafe, path::Path, sync::Arc, time::Duration};

use command::{CommandPattern, Rules};

pub(crate) use command::{Verdict, session_scope};
use dashmap::{DashMap, DashSet};
use futures::{FutureExt, future::BoxFuture};
pub use grant::{Grant, GrantError};
pub(crate) use grant::{UNCONFINED, check_tool, exact_grants};
#[cfg(feature = "mcp")]
pub(crate) use names::missing_mcp_tools;
pub use names::unknown_tools;
use sha2::{Digest, Sha256};
use soong_protocol::{
    Config, Decision, Demand, ErrorCode, ErrorInfo, Permission, PermissionId, PermissionStatus, Remember, Scope,
    SessionId,
};
use soong_storage::store::{Append, PermissionFilter, Ruling, StoreError, Write};

use crate::{
    actor_base::keep_trying,
    clock::now,
    live::Shared,
    run::{News, RunSpec},
    unclear::Awaited,
};

/// The tool that runs commands.
const BASH: &str = "bash";

/// An answer to whether a call may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The decision.
    pub decision: Decision,
    /// Why; the model reads it where the call is refused.
    pub reason: Option<String>,
}

impl From<Decision> for Answer {
    fn from(decision: Decision) -> Self {
        Self { decision, reason: None }
    }
}

/// Decides whether calls may run: a program's own policy.
pub trait PermissionHandler: Send + Sync + 'static {
    /// Decides about a call. An error, a panic, and an answer later than `permissions.timeout_s` count as a refusal. The
    /// future is dropped when the run ends, or somebody else was first.
    fn decide(&self, asked: Permission) -> BoxFuture<'static, Result<Answer, ErrorInfo>>;
}

/// Allows every call that asks: for tests, and for programs whose tools are harmless.
#[derive(Debug, Clone, Copy, Default)]
pub struct AllowAll;

impl PermissionHandler for AllowAll {
    fn decide(&self, _: Permission) -> BoxFuture<'static, Result<Answer, ErrorInfo>> {
        async { Ok(Decision::AllowOnce.into()) }.boxed()
    }
}

/// Who is asked.
#[derive(Clone, Default)]
pub(crate) enum Answerer {
    /// Nobody: what needs leave is refused at once.
    #[default]
    Nobody,
    /// People, by API, command line or monitor; the run waits for them.
    People,
    /// The program; people may be faster.
    Program(Arc<dyn PermissionHandler>),
}

/// What a runtime knows of permissions beyond their rows.
pub(crate) struct Permissions {
    answerer: Answerer,
    /// What the configuration allows.
    configured: Vec<Grant>,
    /// Deny rules of the configuration.
    denied: Vec<Grant>,
    /// Leave for sessions.
    granted: DashMap<SessionId, Vec<(String, Scope)>>,
    /// Those for which somebody is being asked.
    asking: DashSet<PermissionId>,
}

impl Permissions {
    pub(crate) fn new(answerer: Answerer, config: &Config) -> Result<Self, GrantError> {
        let parsed = |texts: &[String]| texts.iter().map(|text| Grant::parse(text)).collect::<Result<_, _>>();
        let (configured, denied) = (parsed(&config.permissions.allow)?, parsed(&config.permissions.deny)?);
        Ok(Self { answerer, configured, denied, granted: DashMap::new(), asking: DashSet::new() })
    }

    /// Returns whether somebody could answer what a run asks.
    pub(crate) fn can_ask(&self, spec: &RunSpec) -> bool {
        !spec.settings.unattended && !matches!(self.answerer, Answerer::Nobody)
    }

    /// Returns whether no call of a tool may run, whatever it is about.
    pub(crate) fn denies_tool(&self, spec: &RunSpec, tool: &str) -> bool {
        self.denied(spec).iter().any(|grant| grant.denies_tool(tool))
    }

    /// Returns whether a tool may not open a file or folder, whose links are resolved.
    pub(crate) fn denies_path(&self, spec: &RunSpec, project: &Path, tool: &str, path: &Path) -> bool {
        self.denied(spec).iter().any(|grant| grant.denies_path(tool, path, project))
    }

    /// Decides about a call by configuration, by its run, and by what was granted for its session.
    pub(crate) fn verdict(&self, spec: &RunSpec, project: &Path, tool: &str, demand: &Demand) -> Verdict {
        let of_run = spec.settings.allow.iter().filter_map(|text| Grant::parse(text).ok());
        let granted: Vec<Grant> = self.configured.iter().cloned().chain(of_run).collect();
        let denied = self.denied(spec);
        if tool == BASH {
            return self.command_verdict(&spec.session_id, project, demand, (&granted, &denied));
        }
        if denied.iter().any(|grant| grant.denies(tool, demand, project)) {
            return Verdict::Refuse;
        }
        let is_granted = granted.iter().any(|grant| grant.covers(tool, demand, project))
            || self.is_remembered(&spec.session_id, tool, demand);
        if is_granted { Verdict::Run } else { Verdict::Ask }
    }

    fn denied(&self, spec: &RunSpec) -> Vec<Grant> {
        let of_run = spec.settings.deny.iter().filter_map(|text| Grant::parse(text).ok());
        self.denied.iter().cloned().chain(of_run).collect()
    }

    /// Decides about a command. Where nothing confines it, only grants for that count.
    fn command_verdict(
        &self,
        session: &SessionId,
        project: &Path,
        demand: &Demand,
        (granted, denied): (&[Grant], &[Grant]),
    ) -> Verdict {
        let is_unconfined = demand.scope == Scope::Unconfined;
        let granted: Vec<&Grant> = granted.iter().filter(|grant| grant.is_of(BASH)).collect();
        let allows_all = granted.iter().any(|grant| match is_unconfined {
            true => grant.program() == Some(UNCONFINED),
            false => grant.is_whole(),
        });
        let confined: &[&Grant] = if is_unconfined { &[] } else { &granted };
        let of_session = self.granted.get(session).filter(|_| !is_unconfined);
        let scopes = of_session.iter().flat_map(|granted| granted.iter());
        let scopes: Vec<&Scope> = scopes.filter(|(tool, _)| tool == BASH).map(|(_, scope)| scope).collect();
        let denied_programs: Vec<_> =
            denied.iter().filter_map(Grant::program).map(CommandPattern::of_program).collect();
        let denied = denied.iter().filter(|grant| grant.is_of(BASH)).filter_map(Grant::pattern);
        let rules = Rules {
            allows_all,
            patterns: &confined.iter().filter_map(|grant| grant.pattern()).collect::<Vec<_>>(),
            programs: &confined.iter().filter_map(|grant| grant.program()).collect::<Vec<_>>(),
            session: &scopes,
            denied: &denied.chain(&denied_programs).collect::<Vec<_>>(),
        };
        command::decide(&demand.target, &project.to_string_lossy(), rules)
    }

    /// Whether a call is covered by what was granted for its session.
    fn is_remembered(&self, session: &SessionId, tool: &str, demand: &Demand) -> bool {
        let directory = match &demand.scope {
            Scope::Command { directory, .. } | Scope::CommandLine { directory, .. } => directory,
            scope => {
                let is_same = |(known, granted): &(String, Scope)| known == tool && granted == scope;
                return demand.can_be_granted()
                    && self.granted.get(session).is_some_and(|granted| granted.iter().any(is_same));
            }
        };
        self.command_verdict(session, Path::new(directory), demand, (&[], &[])) == Verdict::Run
    }

    fn remember(&self, asked: &Permission) {
        let Permission { session_id, tool, demand, .. } = asked;
        if demand.can_be_granted() && !self.is_remembered(session_id, tool, demand) {
            self.granted.entry(session_id.clone()).or_default().push((tool.clone(), demand.scope.clone()));
        }
    }

    /// Forgets what was allowed in a session.
    pub(crate) fn forget(&self, session: &SessionId) {
        self.granted.remove(session);
    }
}

/// Ties a decision to a call: to its tool, its exact arguments, and what it touches.
pub(crate) fn fingerprint(tool: &str, arguments: &str, demand: &Demand, diff: Option<&str>) -> String {
    let demand = serde_json::to_string(demand).unwrap_or_default();
    let mut hash = Sha256::new();
    for part in [tool, arguments, &demand].into_iter().chain(diff) {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Records a decision, and tells the run that waits for it.
///
/// Refused as `already_decided` where somebody was first, or the run has ended.
pub(crate) async fn decide(shared: &Arc<Shared>, ruling: Ruling) -> Result<Permission, ErrorInfo> {
    let id = ruling.permission_id.clone();
    let (asked, awaited) = (read(shared, &id).await?, Awaited::Permission(id.clone()));
    let write = || Append { fence: None, writes: vec![Write::Decision(ruling.clone())] };
    let (written, is_second) = shared.journal.append_again(write).await;
    match written {
        Ok(_) => {}
        Err(StoreError::Decided(_)) => {
            let stored = read(shared, &id).await?;
            let is_same = stored.decision == Some(ruling.decision) && stored.decided_at == Some(ruling.at);
            if !is_second || !is_same || stored.by.as_ref() != Some(&ruling.by) {
                // Whoever was first may not know that it is stored.
                awaited.notify(shared).await;
                return Err(already_decided_permission(&stored));
            }
        }
        Err(error) => {
            awaited.notify_later(shared);
            return Err(ErrorInfo::from(&error));
        }
    }
    if let Some(run) = shared.run(&asked.run_id) {
        shared.tell(&run, News::PermissionDecided(Box::new(ruling)));
    }
    let decided = read(shared, &id).await?;
    settle(shared, &decided).await?;
    Ok(decided)
}

/// Remembers a decision that is for its session, and allows what else waits there and is covered by it.
pub(crate) async fn settle(shared: &Arc<Shared>, decided: &Permission) -> Result<(), ErrorInfo> {
    let is_for_session =
        decided.decision == Some(Decision::AllowForSession) && shared.config.permissions.remember == Remember::Session;
    if is_for_session {
        shared.permissions.remember(decided);
        grant_others(shared, decided).await?;
    }
    Ok(())
}

/// Allows what else waits in the session and is covered by the leave that was just given.
async fn grant_others(shared: &Arc<Shared>, given: &Permission) -> Result<(), ErrorInfo> {
    let filter = PermissionFilter {
        status: Some(PermissionStatus::Pending),
        session_id: Some(given.session_id.clone()),
        ..PermissionFilter::default()
    };
    let waiting = shared.reading.read(move |reader| reader.permissions(&filter)).await?;
    let is_covered =
        |asked: &Permission| shared.permissions.is_remembered(&asked.session_id, &asked.tool, &asked.demand);
    for asked in waiting.into_iter().filter(is_covered) {
        let ruling = Ruling {
            permission_id: asked.permission_id,
            decision: Decision::AllowOnce,
            by: "rule".to_owned(),
            reason: Some(format!("covered by {}", given.permission_id)),
            at: now(),
        };
        // Somebody may have been faster.
        match Box::pin(decide(shared, ruling)).await {
            Err(error) if error.code != ErrorCode::AlreadyDecided => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

async fn read(shared: &Shared, id: &PermissionId) -> Result<Permission, ErrorInfo> {
    let wanted = id.clone();
    let found = shared.reading.read(move |reader| reader.permission(&wanted)).await?;
    found.ok_or_else(|| {
        let message = format!("there is no permission {id:?}: list those that there are");
        ErrorInfo::new(ErrorCode::PermissionNotFound, message)
    })
}

/// Says that a permission takes no decision any more, and why.
pub fn already_decided_permission(asked: &Permission) -> ErrorInfo {
    let id = &asked.permission_id;
    let message = match asked.status {
        PermissionStatus::Withdrawn => format!("permission {id} is not open any more: its run has ended"),
        status => {
            format!("permission {id} is {} already, by {}", status.as_str(), asked.by.as_deref().unwrap_or("somebody"))
        }
    };
    ErrorInfo::new(ErrorCode::AlreadyDecided, message)
}

/// Has a call that waits for leave decided: by the program, and where nobody does in time, by refusing it. People
/// need no asking: they find the row.
pub(crate) fn see_to(shared: &Arc<Shared>, id: PermissionId) {
    let timeout_s = shared.config.permissions.timeout_s;
    let handler = match &shared.permissions.answerer {
        Answerer::Program(handler) => Some(Arc::clone(handler)),
        Answerer::Nobody | Answerer::People => None,
    };
    if (handler.is_none() && timeout_s == 0) || !shared.permissions.asking.insert(id.clone()) {
        return;
    }
    let shared = Arc::clone(shared);
    shared.tasks.clone().spawn(async move {
        let done = async {
            let asked = read(&shared, &id).await?;
            if asked.status != PermissionStatus::Pending {
                if let (Some(run), Some(ruling)) = (shared.run(&asked.run_id), Ruling::of(asked)) {
                    shared.tell(&run, News::PermissionDecided(Box::new(ruling)));
                }
                return Ok(());
            }
            let gone = shared.run(&asked.run_id).map(|run| run.token.clone()).unwrap_or_default();
            let (by, answer) = tokio::select! {
                // The row stays open, and its run is cancelled or taken up later.
                () = shared.closing.cancelled() => return Ok(()),
                () = gone.cancelled() => return Ok(()),
                answered = answer(&asked, handler, timeout_s) => answered,
            };
            let Answer { decision, reason } = answer;
            let ruling = Ruling { permission_id: id.clone(), decision, by: by.to_owned(), reason, at: now() };
            let record = || async { decide(&shared, ruling.clone()).await.map(drop) };
            keep_trying(&shared.closing, "recording a decision", record).await
        };
        match done.await {
            Err(error) if error.code != ErrorCode::AlreadyDecided => {
                tracing::warn!(permission = %id, %error, "a permission could not be decided");
            }
            _ => {}
        }
        shared.permissions.asking.remove(&id);
    });
}

/// Gets an answer, from the program or from the clock.
async fn answer(
    asked: &Permission,
    handler: Option<Arc<dyn PermissionHandler>>,
    timeout_s: u64,
) -> (&'static str, Answer) {
    let deny = |reason: String| Answer { decision: Decision::Deny, reason: Some(reason) };
    let too_late = async {
        match timeout_s {
            0 => std::future::pending().await,
            limit => {
                // Not from `created_at`: the clock on the wall may have been set since. A restart begins anew.
                tokio::time::sleep(Duration::from_millis(limit.saturating_mul(1_000))).await;
                deny(format!("nobody answered within {limit} s (permissions.timeout_s)"))
            }
        }
    };
    let answered = async {
        match handler {
            None => std::future::pending().await,
            Some(handler) => match AssertUnwindSafe(async { handler.decide(asked.clone()).await }).catch_unwind().await
            {
                Ok(Ok(answer)) => answer,
                Ok(Err(error)) => deny(format!("the permission handler failed: {}", error.message)),
                Err(_) => deny("the permission handler crashed".to_owned()),
            },
        }
    };
    tokio::select! {
        biased;
        answer = answered => ("handler", answer),
        answer = too_late => ("timeout", answer),
    }
}
