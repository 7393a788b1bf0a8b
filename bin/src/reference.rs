//! References to sessions, as users type them: an id, a slug, a recent session (`last`, `-`, `@3`),
//! or the beginning or end of an id or slug.
//!
//! Pure. Elsewhere: reading the sessions (`source.rs`).

use std::cmp::Reverse;

use soong::{ErrorCode, protocol::Session};
use soong_tui::text;

use crate::{
    cli::nearest_of,
    exit::{Exit, Failure},
};

/// Minimum length of a part of an id or slug, in characters.
const MIN_PART_CHARS: usize = 4;
/// Maximum number of sessions that an error names.
const MAX_NAMED: usize = 5;

/// Beginning of the suggestion of a similar name.
const SUGGESTION: &str = ". Did you mean ";

/// How a reference names a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Match {
    /// By its id, its slug or its position among the recent sessions.
    Exact,
    /// By the beginning or end of its id or slug.
    Partial,
}

/// Returns the position in the list of recent sessions that a reference names, from 1.
pub(crate) fn recent_position(reference: &str) -> Option<usize> {
    match reference {
        "last" => Some(1),
        "-" => Some(2),
        _ => reference
            .strip_prefix('@')?
            .parse()
            .ok()
            .filter(|position| *position > 0),
    }
}

/// Splits the reference to a sub-agent (`SESSION#N`) into that of its session and its number.
pub(crate) fn split_sub_agent(reference: &str) -> Option<(&str, usize)> {
    let (session, number) = reference.rsplit_once('#')?;
    Some((session, number.parse().ok().filter(|number| *number > 0)?))
}

/// Sorts sessions by the start of their last run, newest first.
fn sort_by_recency(sessions: &mut [Session]) {
    sessions.sort_by_key(|session| Reverse(session.last_run_at.unwrap_or(session.created_at)));
}

/// Finds the session that a reference names.
///
/// # Errors
/// No session has this name, or it matches several sessions, which the failure names.
pub(crate) fn find(
    mut sessions: Vec<Session>,
    reference: &str,
) -> Result<(Session, Match), Failure> {
    sort_by_recency(&mut sessions);
    if let Some(position) = recent_position(reference) {
        let count = sessions.len();
        return sessions
            .into_iter()
            .nth(position - 1)
            .map(|session| (session, Match::Exact))
            .ok_or_else(|| {
                let what = format!(
                    "there is no session {reference}: the home has {count} ({})",
                    ErrorCode::SessionNotFound
                );
                Failure::new(Exit::NotFound, what, "See `soong sessions list`.")
            });
    }
    let names = |session: &Session| [Some(session.session_id.to_string()), session.slug.clone()];
    let has = |session: &Session, is: &dyn Fn(&str) -> bool| {
        names(session).iter().flatten().any(|name| is(name))
    };
    if let Some(at) = sessions
        .iter()
        .position(|session| has(session, &|name| name == reference))
    {
        return Ok((sessions.swap_remove(at), Match::Exact));
    }
    let is_part = |name: &str| name.starts_with(reference) || name.ends_with(reference);
    let is_long_enough = reference.chars().count() >= MIN_PART_CHARS;
    let (mut found, others): (Vec<_>, Vec<_>) = sessions
        .into_iter()
        .partition(|session| is_long_enough && has(session, &is_part));
    match found.len() {
        0 => Err(not_found(reference, &others)),
        1 => Ok((found.swap_remove(0), Match::Partial)),
        _ => {
            let named: Vec<&str> = found
                .iter()
                .take(MAX_NAMED)
                .map(Session::short_name)
                .collect();
            let more = if found.len() > MAX_NAMED { ", …" } else { "" };
            let what = format!(
                "{} matches several sessions: {}{more}",
                text::safe_line(reference),
                named.join(", ")
            );
            Err(Failure::usage(
                what,
                "Give more characters of the id or slug.",
            ))
        }
    }
}

/// Returns the failure for a command that changes something, if the reference is only a part of the
/// session's name.
pub(crate) fn too_short(reference: &str, session: &Session) -> Failure {
    let what = format!(
        "{} is only a part of the name of session {}",
        text::safe_line(reference),
        session.short_name()
    );
    Failure::usage(what, "Give its whole id or slug.")
}

/// Returns whether a reference that names nothing was meant for a session: by its form, or because
/// a session has a similar name.
pub(crate) fn names_a_session(reference: &str, failure: &Failure) -> bool {
    let is_form = recent_position(reference).is_some() || split_sub_agent(reference).is_some();
    is_form || failure.what.contains(SUGGESTION)
}

fn not_found(reference: &str, sessions: &[Session]) -> Failure {
    let nearest = nearest_of(reference, sessions.iter().map(Session::short_name));
    let hint = nearest
        .map(|near| format!("{SUGGESTION}{near}?"))
        .unwrap_or_default();
    let what = format!(
        "there is no session {}{hint} ({})",
        text::safe_line(reference),
        ErrorCode::SessionNotFound
    );
    Failure::new(Exit::NotFound, what, "See `soong sessions list`.")
}

#[cfg(test)]
mod tests {
    use soong::protocol::{SessionId, SessionKind, Timestamp};

    use super::*;

    fn session(id: &str, slug: Option<&str>, last_run: Option<i64>) -> Session {
        Session {
            session_id: SessionId::new(id),
            slug: slug.map(str::to_owned),
            name: None,
            kind: SessionKind::Conversation,
            uid: "local".to_owned(),
            project_dir: "/p".to_owned(),
            incarnation: 1,
            first_session_seq: 1,
            last_session_seq: 1,
            live_runs: 0,
            created_at: Timestamp::from_millis(1),
            updated_at: Timestamp::from_millis(9),
            last_run_at: last_run.map(Timestamp::from_millis),
        }
    }

    #[test]
    fn sessions_are_found_by_every_kind_of_name() {
        let sessions = || {
            vec![
                session("01a2-aaaa", Some("plan-a-garden-aa"), Some(3)),
                session("01a2-bbbb", Some("plan-a-pond-bb"), Some(7)),
                session("garden", None, Some(5)),
                session("empty", None, None),
            ]
        };
        let exact = |id: &'static str| Ok((id, Match::Exact));
        let partial = |id: &'static str| Ok((id, Match::Partial));
        for (reference, want) in [
            ("01a2-aaaa", exact("01a2-aaaa")),
            ("plan-a-pond-bb", exact("01a2-bbbb")),
            ("garden", exact("garden")),
            ("last", exact("01a2-bbbb")),
            ("@1", exact("01a2-bbbb")),
            ("-", exact("garden")),
            ("@2", exact("garden")),
            ("@4", exact("empty")),
            ("@5", Err("there is no session @5: the home has 4")),
            ("@0", Err("there is no session @0 (session_not_found)")),
            ("plan-a-g", partial("01a2-aaaa")),
            ("d-bb", partial("01a2-bbbb")),
            ("aaaa", partial("01a2-aaaa")),
            (
                "plan",
                Err("plan matches several sessions: plan-a-pond-bb, plan-a-garden-aa"),
            ),
            ("01a", Err("there is no session 01a")),
            ("gardne", Err("Did you mean garden?")),
            (
                "nothing",
                Err("there is no session nothing (session_not_found)"),
            ),
            ("", Err("there is no session  (session_not_found)")),
        ] {
            let found = find(sessions(), reference);
            let found = found
                .as_ref()
                .map(|(session, how)| (session.session_id.as_str(), *how));
            match (found, want) {
                (Ok(found), Ok(want)) => assert_eq!(found, want, "{reference:?}"),
                (Err(failure), Err(want)) => assert!(
                    failure.what.contains(want),
                    "{reference:?}: {}",
                    failure.what
                ),
                (found, _) => panic!(
                    "{reference:?}: {:?}",
                    found.map_err(|failure| failure.what.clone())
                ),
            }
        }
    }

    #[test]
    fn sub_agents_are_named_by_session_and_number() {
        for (reference, want) in [
            ("last#3", Some(("last", 3))),
            ("a#b#2", Some(("a#b", 2))),
            ("last#0", None),
            ("last#", None),
            ("last", None),
        ] {
            assert_eq!(split_sub_agent(reference), want, "{reference}");
        }
    }
}
