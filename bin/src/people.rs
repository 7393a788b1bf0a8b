//! The person at the terminal: who is asked what a run wants to know or to do, if anybody is there (SUB-9, SUB-11,
//! PERM-1).
//!
//! Not here: that a run waits for an answer, and where the answer goes (the library).

use std::{
    io::{IsTerminal, stderr, stdin},
    time::Duration,
};

use serde::Serialize;
use soong::{
    ErrorCode, ErrorInfo,
    protocol::{Decision, Permission, PermissionStatus, Question, QuestionStatus, RunId, SessionId, Timestamp},
};

use crate::{
    client::Client,
    exit::Failure,
    http::{PermissionQuery, QuestionQuery},
    input::{Input, Said},
    interrupt::Interrupt,
    print, text,
};

/// How often is looked whether somebody else has answered.
const LOOK: Duration = Duration::from_millis(500);
/// Longest arguments that are shown of a call that asks, in characters.
const ARGUMENTS_CHARS: usize = 4_000;

/// What a run waits for that people give.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub(crate) enum Ask {
    /// An answer.
    Question(Question),
    /// Leave for a tool call.
    Permission(Box<Permission>),
}

/// What waits for people.
pub(crate) struct Open {
    /// The oldest first.
    pub(crate) asks: Vec<Ask>,
    /// Whether the session waits for people, and for nothing else.
    pub(crate) is_parked: bool,
}

impl Ask {
    /// Returns the id that an answer names.
    pub(crate) fn id(&self) -> &str {
        match self {
            Self::Question(question) => question.question_id.as_str(),
            Self::Permission(asked) => asked.permission_id.as_str(),
        }
    }

    pub(crate) fn run_id(&self) -> &RunId {
        match self {
            Self::Question(question) => &question.run_id,
            Self::Permission(asked) => &asked.run_id,
        }
    }

    pub(crate) fn session_id(&self) -> &SessionId {
        match self {
            Self::Question(question) => &question.session_id,
            Self::Permission(asked) => &asked.session_id,
        }
    }

    fn created_at(&self) -> Timestamp {
        match self {
            Self::Question(question) => question.created_at,
            Self::Permission(asked) => asked.created_at,
        }
    }

    /// Says on one line what is asked, with its id.
    pub(crate) fn line(&self) -> String {
        match self {
            Self::Question(question) => {
                format!("{:?} (question {})", text::line(&question.question), question.question_id)
            }
            Self::Permission(asked) => {
                let (tool, target) = (text::line(&asked.tool), text::line(&asked.demand.target));
                format!("leave for {tool} of {target} (permission {})", asked.permission_id)
            }
        }
    }

    /// Says how it is answered by a command.
    pub(crate) fn how(&self, soong: &str) -> String {
        match self {
            Self::Question(question) => format!("{soong} questions answer {} \"…\"", question.question_id),
            Self::Permission(asked) => {
                let id = &asked.permission_id;
                format!("{soong} permissions allow {id} (or deny {id})")
            }
        }
    }
}

/// What became of a question to the person at the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// It is answered; perhaps by somebody else.
    Answered,
    /// They want the run to end (Ctrl-C).
    Cancel,
    /// They left (Ctrl-D); the question stays open.
    Left,
}

/// Returns whether somebody sits there who reads and types.
pub(crate) fn is_somebody_there() -> bool {
    stdin().is_terminal() && stderr().is_terminal()
}

/// Reads what sessions wait for that people give, or one of them; only then it is said whether it is parked.
pub(crate) async fn open(client: &Client, session: Option<&SessionId>) -> Result<Open, ErrorInfo> {
    let questions = QuestionQuery { status: Some(QuestionStatus::Pending), session_id: session.cloned() };
    let permissions = PermissionQuery { status: Some(PermissionStatus::Pending), session_id: session.cloned() };
    let (found, permissions) = tokio::try_join!(client.questions(&questions), client.permissions(&permissions))?;
    let mut asks: Vec<Ask> = found.questions.into_iter().map(Ask::Question).collect();
    asks.extend(permissions.permissions.into_iter().map(|asked| Ask::Permission(Box::new(asked))));
    asks.sort_by_key(Ask::created_at);
    Ok(Open { asks, is_parked: found.is_parked == Some(true) })
}

/// Asks the person at the terminal, and hands the answer on; `asker` is named with the question. Ends as well when
/// somebody else decides it.
pub(crate) async fn ask(
    client: &Client,
    ask: &Ask,
    asker: Option<&str>,
    interrupt: &Interrupt,
) -> Result<Asked, Failure> {
    let prompt = match ask {
        Ask::Question(question) => show_question(question, asker),
        Ask::Permission(asked) => show_permission(asked, asker),
    };
    let mut input = Input::of_person()?;
    loop {
        let said = tokio::select! {
            said = input.next(prompt) => said?,
            decided = decided(client, ask) => {
                decided?;
                print::error_line("note: it was decided elsewhere");
                return Ok(Asked::Answered);
            }
            () = interrupt.first() => return Ok(Asked::Cancel),
        };
        let answer = match said {
            Said::Line(line) if line.trim().is_empty() => continue,
            Said::Line(line) => line,
            Said::Nothing => return Ok(Asked::Cancel),
            Said::End => {
                print::error_line("note: it stays open");
                return Ok(Asked::Left);
            }
        };
        let given = match ask {
            Ask::Question(question) => client.answer(&question.question_id, &answer).await.map(drop),
            Ask::Permission(asked) => {
                let Some((decision, reason)) = read_decision(&answer) else {
                    print::error_line("note: y allows it once, a for the session, n refuses it (n REASON says why)");
                    continue;
                };
                client.decide(&asked.permission_id, decision, reason).await.map(drop)
            }
        };
        return match given {
            Ok(()) => Ok(Asked::Answered),
            Err(error) if error.code == ErrorCode::AlreadyDecided => {
                print::error_line(&format!("note: {}", text::line(&error.message)));
                Ok(Asked::Answered)
            }
            Err(error) => Err(error.into()),
        };
    }
}

fn show_question(question: &Question, asker: Option<&str>) -> &'static str {
    let by = asker.map(|asker| format!("{asker} asks")).unwrap_or_default();
    let whom = question.to.as_deref().map(|to| format!("for {}", text::line(to))).unwrap_or_default();
    let about = [by, whom].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
    let about = if about.is_empty() { String::new() } else { format!(" ({about})") };
    print::error_line(&format!("? {}{about}", text::block(&question.question)));
    "answer: "
}

fn show_permission(asked: &Permission, asker: Option<&str>) -> &'static str {
    let by = asker.map(|asker| format!(" ({asker} asks)")).unwrap_or_default();
    for (at, line) in described(asked).iter().enumerate() {
        let (mark, by) = if at == 0 { ("? ", by.as_str()) } else { ("  ", "") };
        print::error_line(&format!("{mark}{line}{by}"));
    }
    "allow? y(es), a(lways in this session), n(o): "
}

/// Says what a call wants to do, and who works for whom; harmless on a terminal.
pub(crate) fn described(asked: &Permission) -> Vec<String> {
    let demand = &asked.demand;
    let sensitive = if demand.is_sensitive { ", sensitive" } else { "" };
    let mut lines =
        vec![format!("{} wants to act on {}{sensitive}", text::line(&asked.tool), text::line(&demand.target))];
    lines.extend(demand.note.as_deref().map(text::line));
    let arguments = text::block(&pretty(&asked.arguments));
    let shown = text::cut(&arguments, ARGUMENTS_CHARS, "…");
    lines.extend(shown.lines().map(|line| format!("  {line}")));
    if shown != arguments {
        lines.push("  this is not all of it: `soong permissions list --json` has the rest".to_owned());
    }
    if asked.chain.len() > 1 {
        let chain: Vec<String> = asked
            .chain
            .iter()
            .map(|link| format!("{} ({})", text::line(&link.agent_type), text::line(&link.task)))
            .collect();
        lines.push(format!("asked by {}", chain.join(" > ")));
    }
    if !demand.is_sensitive {
        lines.push(format!("for the session this would allow: {}", text::line(&demand.scope.to_string())));
    }
    lines
}

/// Writes JSON so that its texts can be read as they stand.
fn pretty(json: &str) -> String {
    let Ok(serde_json::Value::Object(fields)) = serde_json::from_str(json) else { return json.to_owned() };
    let shown = fields.iter().map(|(key, value)| match value {
        serde_json::Value::String(text) => format!("{key}: {text}"),
        other => format!("{key}: {other}"),
    });
    shown.collect::<Vec<_>>().join("\n")
}

/// Reads a decision; `None` = it is none.
fn read_decision(line: &str) -> Option<(Decision, Option<String>)> {
    let (word, reason) = line.trim().split_once(char::is_whitespace).unwrap_or((line.trim(), ""));
    let reason = Some(reason.trim().to_owned()).filter(|reason| !reason.is_empty());
    let decision = match word.to_ascii_lowercase().as_str() {
        "y" | "yes" => Decision::AllowOnce,
        "a" | "always" => Decision::AllowForSession,
        "n" | "no" => Decision::Deny,
        _ => return None,
    };
    // Who says more than yes means something else.
    (decision == Decision::Deny || reason.is_none()).then_some((decision, reason))
}

/// Waits until it is open no more.
async fn decided(client: &Client, ask: &Ask) -> Result<(), ErrorInfo> {
    loop {
        tokio::time::sleep(LOOK).await;
        let open = open(client, Some(ask.session_id())).await?.asks;
        if open.iter().all(|other| other.id() != ask.id()) {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_a_decision_or_none() {
        use Decision::{AllowForSession, AllowOnce, Deny};
        for (line, want) in [
            ("y", Some((AllowOnce, None))),
            (" Yes ", Some((AllowOnce, None))),
            ("a", Some((AllowForSession, None))),
            ("always", Some((AllowForSession, None))),
            ("n", Some((Deny, None))),
            ("no, never", None),
            ("n not on a Sunday", Some((Deny, Some("not on a Sunday".to_owned())))),
            ("yes but only once", None),
            ("ok", None),
            ("", None),
        ] {
            assert_eq!(read_decision(line), want, "{line:?}");
        }
    }

    #[test]
    fn what_is_left_out_of_arguments_is_said() {
        let Ask::Permission(mut asked) = crate::monitor::tests::permission() else { unreachable!("it is one") };
        assert_eq!(described(&asked)[1], "  command: make docs");
        asked.arguments = serde_json::json!({ "command": "#".repeat(ARGUMENTS_CHARS) }).to_string();
        let said = described(&asked);
        assert!(said.iter().any(|line| line.contains("`soong permissions list --json` has the rest")), "{said:?}");
    }
}
