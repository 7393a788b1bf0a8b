//! Permission requests: asking for a decision, recording it, and notifying the run (PERM-1).
//!
//! A request is stored before anyone is asked, and a decision is stored before the run is notified. The first decision
//! counts.
//! Elsewhere: which calls require permission (`permission.rs`), how a call waits
//! (`run/machine/tool_calls/approval.rs`), how it is authorized (`run/tasks/authorize.rs`).

mod unclear;

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use soong_protocol::{
    Decision, ErrorCode, ErrorInfo, Permission, PermissionDecision, PermissionId, PermissionStatus, Remember, Write,
};
use soong_storage::store::{Append, PermissionFilter, StoreError};

pub(crate) use self::unclear::Awaited;
use crate::{
    actor_base::keep_trying,
    clock::now,
    live::Shared,
    permission::{Answer, Answerer, PermissionHandler, already_decided_permission},
    run::News,
};

/// Records a decision, and tells the run that waits for it.
///
/// Refused as `already_decided` if there is a decision already, or the run has ended.
pub(crate) async fn decide(shared: &Arc<Shared>, ruling: PermissionDecision) -> Result<Permission, ErrorInfo> {
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
                // The caller of the first decision may not know that it is stored.
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
        let ruling = PermissionDecision {
            permission_id: asked.permission_id,
            decision: Decision::AllowOnce,
            by: "rule".to_owned(),
            reason: Some(format!("covered by {}", given.permission_id)),
            at: now(),
        };
        // There may be a decision already.
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
                if let (Some(run), Some(ruling)) = (shared.run(&asked.run_id), PermissionDecision::of(asked)) {
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
            let ruling =
                PermissionDecision { permission_id: id.clone(), decision, by: by.to_owned(), reason, at: now() };
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
