//! Prompts the user at the terminal for answers to questions and for permission decisions, if the
//! terminal is interactive (SUB-9, SUB-11, PERM-1).
//!
//! Not in this module: how a run waits for the answer and how the answer reaches it (the library).

mod decision_keys;

use std::{
    io::{IsTerminal, stderr, stdin},
    time::Duration,
};

use soong::{
    ErrorCode, ErrorInfo,
    protocol::{
        Decision, Permission, PermissionStatus, Question, QuestionStatus, Session, SessionId,
        api::{
            AnswerBody, DecisionBody, PermissionQuery, QuestionQuery,
            operation::{
                AnswerQuestion, DecidePermission, ListPermissions, ListQuestions, ReadSession,
            },
        },
    },
};
use soong_client::Client;
use soong_tui::{
    keyboard,
    request::{DEFAULT_COLUMNS, Row, UserRequest, permission_rows, with_margin, wrap_rows},
    terminal::Paint,
    text,
};

use self::decision_keys::{DecisionKeys, end_row};
use crate::{
    exit::Failure,
    input::{Input, InputLine},
    interrupt::Interrupt,
    print,
};

/// Interval at which a prompt checks whether its question was decided elsewhere.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum number of rows per page of a permission prompt.
const MAX_PAGE_ROWS: usize = 30;
/// Minimum number of rows per page.
const MIN_PAGE_ROWS: usize = 5;
/// Terminal rows that a page leaves free: the count of remaining lines, the prompt and the typed
/// input.
const RESERVED_ROWS: usize = 3;
const ANSWER_PROMPT: &str = "answer: ";

/// Open requests of one session or of all sessions.
pub(crate) struct OpenRequests {
    /// Open requests, oldest first.
    pub(crate) requests: Vec<UserRequest>,
    /// Whether the session waits only for user input. False if no session was given.
    pub(crate) awaits_input: bool,
}

/// Outcome of a prompt at the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PromptOutcome {
    /// The user has decided the request.
    Answered,
    /// The request was decided elsewhere.
    DecidedElsewhere,
    /// The user wants to cancel the run (Ctrl-C).
    Cancel,
    /// The user ended the input (Ctrl-D); the request stays open.
    Dismissed,
}

/// Reader of the user's answers.
enum AnswerReader {
    /// A permission request on a terminal: keys without Enter.
    Keys(DecisionKeys),
    /// A question, the reason of a denial, or a terminal without keys.
    Lines(Box<Input>),
}

impl AnswerReader {
    fn open(ask: &UserRequest) -> Result<Self, Failure> {
        let keys = match ask {
            UserRequest::Permission(_) => DecisionKeys::start(),
            UserRequest::Question(_) => None,
        };
        keys.map_or_else(Self::lines, |keys| Ok(Self::Keys(keys)))
    }

    fn lines() -> Result<Self, Failure> {
        Ok(Self::Lines(Box::new(Input::of_person()?)))
    }

    /// Reads lines from now on.
    fn into_lines(self) -> Result<Self, Failure> {
        match self {
            Self::Keys(keys) => {
                // The line editor must find the keyboard free.
                drop(keys);
                Self::lines()
            }
            lines => Ok(lines),
        }
    }

    async fn next(&mut self, prompt: &str) -> Result<InputLine, Failure> {
        match self {
            Self::Keys(keys) => Ok(keys.next(prompt).await),
            Self::Lines(input) => input.next(prompt, "").await,
        }
    }

    /// Ends the row of a prompt that was not answered.
    fn end_row(&self) {
        if let Self::Keys(_) = self {
            end_row();
        }
    }
}

/// Returns whether a user can be prompted: standard input and standard error are both terminals.
pub(crate) fn is_interactive() -> bool {
    stdin().is_terminal() && stderr().is_terminal()
}

/// Returns the open requests of all sessions or of one session. `awaits_input` is only set for one
/// session.
pub(crate) async fn fetch_open_requests(
    client: &Client,
    session: Option<&SessionId>,
) -> Result<OpenRequests, ErrorInfo> {
    let questions = QuestionQuery {
        status: Some(QuestionStatus::Pending),
        session_id: session.cloned(),
    };
    let permissions = PermissionQuery {
        status: Some(PermissionStatus::Pending),
        session_id: session.cloned(),
    };
    let (found, permissions) = tokio::try_join!(
        client.call(ListQuestions { query: questions }),
        client.call(ListPermissions { query: permissions })
    )?;
    let mut asks: Vec<UserRequest> = found
        .questions
        .into_iter()
        .map(UserRequest::Question)
        .collect();
    asks.extend(
        permissions
            .permissions
            .into_iter()
            .map(|permission| UserRequest::Permission(Box::new(permission))),
    );
    asks.sort_by_key(UserRequest::created_at);
    Ok(OpenRequests {
        requests: asks,
        awaits_input: found.is_parked == Some(true),
    })
}

/// Prompts the user at the terminal and submits the answer; `asker` is shown with the request. Also
/// returns if the request is decided elsewhere.
pub(crate) async fn prompt_user(
    client: &Client,
    ask: &UserRequest,
    asker: Option<&str>,
    interrupt: &Interrupt,
    paint: Paint,
) -> Result<PromptOutcome, Failure> {
    let mut shown = show_request(client, ask, asker, paint).await;
    let mut answers = AnswerReader::open(ask)?;
    // A key that was pressed before the request could be read is no answer to it.
    keyboard::discard_typed();
    loop {
        let input = tokio::select! {
            input = answers.next(shown.as_ref().map_or(ANSWER_PROMPT, PermissionPrompt::prompt)) => input?,
            decided = wait_until_decided(client, ask) => {
                answers.end_row();
                decided?;
                print::note("the request was decided elsewhere");
                return Ok(PromptOutcome::DecidedElsewhere);
            }
            () = interrupt.first() => {
                answers.end_row();
                return Ok(PromptOutcome::Cancel);
            }
        };
        let answer = match input {
            InputLine::Line(line)
                if line.trim().is_empty()
                    && !shown.as_ref().is_some_and(|shown| shown.asks_why) =>
            {
                continue;
            }
            InputLine::Line(line) => line,
            InputLine::Key(..) => continue,
            InputLine::Discarded => return Ok(PromptOutcome::Cancel),
            InputLine::Closed => {
                print::note("the request stays open");
                return Ok(PromptOutcome::Dismissed);
            }
        };
        let given = match ask {
            UserRequest::Question(question) => client
                .call(AnswerQuestion {
                    question_id: question.question_id.clone(),
                    body: AnswerBody { answer },
                })
                .await
                .map(drop),
            UserRequest::Permission(permission) => {
                let given = shown.as_mut().and_then(|shown| shown.handle_line(&answer));
                let Some((decision, reason)) = given else {
                    if shown.as_ref().is_some_and(|shown| shown.asks_why) {
                        answers = answers.into_lines()?;
                    }
                    continue;
                };
                client
                    .named("terminal")
                    .call(DecidePermission {
                        permission_id: permission.permission_id.clone(),
                        body: DecisionBody { decision, reason },
                    })
                    .await
                    .map(drop)
            }
        };
        return match given {
            Ok(()) => Ok(PromptOutcome::Answered),
            Err(error) if error.code == ErrorCode::AlreadyDecided => {
                print::note(&text::safe_line(&error.message));
                Ok(PromptOutcome::DecidedElsewhere)
            }
            Err(error) => Err(error.into()),
        };
    }
}

/// Shows a request. Returns its state if it is a permission request, which may have several pages.
async fn show_request(
    client: &Client,
    ask: &UserRequest,
    asker: Option<&str>,
    paint: Paint,
) -> Option<PermissionPrompt> {
    match ask {
        UserRequest::Question(question) => {
            show_question(question, asker);
            None
        }
        UserRequest::Permission(permission) => {
            let session = client
                .call(ReadSession {
                    session_id: permission.session_id.clone(),
                })
                .await
                .ok()
                .map(|found| found.session);
            let (columns, page) = prompt_size();
            Some(PermissionPrompt::new(
                permission,
                asker,
                session.as_ref(),
                paint,
                columns,
                page,
            ))
        }
    }
}

fn show_question(question: &Question, asker: Option<&str>) {
    let by = asker
        .map(|asker| format!("{} asks", text::escaped_line(asker)))
        .unwrap_or_default();
    let whom = question
        .to
        .as_deref()
        .map(|to| format!("for {}", text::escaped_line(to)))
        .unwrap_or_default();
    let about = [by, whom]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(", ");
    let about = if about.is_empty() {
        String::new()
    } else {
        format!(" ({about})")
    };
    let mut rows = vec![Row::plain(format!("question{about}:"))];
    rows.extend(with_margin(&question.question).into_iter().map(Row::plain));
    let rows = wrap_rows(rows, prompt_size().0);
    show_rows(&rows, 0, rows.len(), Paint { on: false });
}

/// Returns the width of a row in columns and the height of a page in rows for the terminal of
/// standard error.
fn prompt_size() -> (usize, usize) {
    let size = crossterm::terminal::size()
        .ok()
        .filter(|(columns, rows)| *columns > 0 && *rows > 0);
    let (columns, rows) = size.map_or(
        (DEFAULT_COLUMNS, MAX_PAGE_ROWS + RESERVED_ROWS),
        |(c, r)| (usize::from(c), usize::from(r)),
    );
    // The leading mark (`? ` or two spaces) takes two columns.
    (
        columns.saturating_sub(2).max(1),
        rows.saturating_sub(RESERVED_ROWS)
            .clamp(MIN_PAGE_ROWS, MAX_PAGE_ROWS),
    )
}

/// Returns the width of a list row in columns.
pub(crate) fn list_columns() -> usize {
    prompt_size().0
}

/// Prints rows `from` to `to` of a request. The first row of the request starts with `? `.
fn show_rows(rows: &[Row], from: usize, to: usize, paint: Paint) {
    for (at, row) in rows.iter().enumerate().take(to).skip(from) {
        let mark = if at == 0 { "? " } else { "  " };
        print::error_line(&format!("{mark}{}", paint.paint(row.style, &row.text)));
    }
}

/// Permission request as shown on a terminal, page by page.
struct PermissionPrompt {
    rows: Vec<Row>,
    paint: Paint,
    /// Number of rows shown so far.
    shown_rows: usize,
    /// Rows per page.
    page_rows: usize,
    can_be_granted: bool,
    /// Whether the next line is the reason for a denial.
    asks_why: bool,
}

impl PermissionPrompt {
    /// `asker`: description of the child run that asks. `session`: its session, if it can be read.
    fn new(
        permission: &Permission,
        asker: Option<&str>,
        session: Option<&Session>,
        paint: Paint,
        columns: usize,
        page: usize,
    ) -> Self {
        let mut rows = permission_rows(
            permission,
            session.map(|session| session.project_dir.as_str()),
        );
        let agent = asker.or_else(|| permission.chain.last().map(|link| link.agent_type.as_str()));
        let agent = agent
            .map(|agent| format!("agent {}, ", text::escaped_line(agent)))
            .unwrap_or_default();
        let name = session.map_or(permission.session_id.as_str(), Session::short_name);
        rows.insert(
            1,
            Row::plain(format!("{agent}session {}", text::escaped_line(name))),
        );
        let rows = wrap_rows(rows, columns);
        let mut shown = Self {
            rows,
            paint,
            shown_rows: 0,
            page_rows: page,
            can_be_granted: permission.demand.is_grantable_for_session(),
            asks_why: false,
        };
        shown.show_next_page();
        shown
    }

    /// Shows the next page. The row that repeats the target is the last row of the last page.
    fn show_next_page(&mut self) {
        let to = (self.shown_rows + self.page_rows).min(self.rows.len());
        show_rows(&self.rows, self.shown_rows, to, self.paint);
        self.shown_rows = to;
        if !self.is_fully_shown() {
            print::error_line(&format!(
                "  {} more lines; press v",
                self.rows.len() - self.shown_rows
            ));
        }
    }

    fn is_fully_shown(&self) -> bool {
        self.shown_rows >= self.rows.len()
    }

    fn prompt(&self) -> &'static str {
        match (self.is_fully_shown(), self.can_be_granted) {
            _ if self.asks_why => "reason: ",
            (false, _) => "allow? v(iew the rest), n(o), e(xplain why not): ",
            (true, true) => "allow? y(es), a(lways in this session), n(o), e(xplain why not): ",
            (true, false) => "allow? y(es), n(o), e(xplain why not): ",
        }
    }

    /// Handles a typed line: `v` shows the next page, `e` asks for the reason of a denial, and a
    /// note explains why another line is not accepted. Returns the decision if the line is an
    /// accepted one.
    fn handle_line(&mut self, line: &str) -> Option<(Decision, Option<String>)> {
        if self.asks_why {
            return Some((
                Decision::Deny,
                Some(line.trim().to_owned()).filter(|reason| !reason.is_empty()),
            ));
        }
        match line.trim() {
            "v" | "V" => {
                self.show_next_page();
                return None;
            }
            "e" | "E" => {
                self.asks_why = true;
                return None;
            }
            _ => {}
        }
        let given = read_decision(line);
        let objection = match &given {
            Some((decision, _)) => self.objection(*decision),
            None => Some(self.usage()),
        };
        if let Some(why) = objection {
            print::note(why);
            return None;
        }
        given
    }

    /// Returns the meaning of the keys.
    fn usage(&self) -> &'static str {
        match (self.is_fully_shown(), self.can_be_granted) {
            (false, _) => {
                "answer with one letter: v shows the rest, n denies the call, e denies it and asks why"
            }
            (true, true) => {
                "answer with one letter: y allows the call once, a for the session, n denies it, e denies it and asks why"
            }
            (true, false) => {
                "answer with one letter: y allows the call once, n denies it, e denies it and asks why"
            }
        }
    }

    /// Returns why a decision cannot be accepted yet, or `None` if it can.
    fn objection(&self, decision: Decision) -> Option<&'static str> {
        match decision {
            Decision::Deny => None,
            _ if !self.is_fully_shown() => Some("read the whole request first: v shows the rest"),
            Decision::AllowForSession if !self.can_be_granted => {
                Some("permission for the session would cover only this call: y allows it once")
            }
            _ => None,
        }
    }
}

/// Parses a decision. Returns `None` if the line is not one.
fn read_decision(line: &str) -> Option<(Decision, Option<String>)> {
    let (word, reason) = line
        .trim()
        .split_once(char::is_whitespace)
        .unwrap_or((line.trim(), ""));
    let reason = Some(reason.trim().to_owned()).filter(|reason| !reason.is_empty());
    let decision = match word.to_ascii_lowercase().as_str() {
        "y" | "yes" => Decision::AllowOnce,
        "a" | "always" => Decision::AllowForSession,
        "n" | "no" | "e" => Decision::Deny,
        _ => return None,
    };
    // Only a denial may have further words: "yes, but ..." is not plain consent.
    (decision == Decision::Deny || reason.is_none()).then_some((decision, reason))
}

/// Waits until the request is no longer open.
async fn wait_until_decided(client: &Client, ask: &UserRequest) -> Result<(), ErrorInfo> {
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        let open = fetch_open_requests(client, Some(ask.session_id()))
            .await?
            .requests;
        if open.iter().all(|other| other.id() != ask.id()) {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use soong::protocol::ChainLink;
    use soong_tui::sample;

    use super::*;

    #[test]
    fn lines_are_parsed_as_decisions() {
        use Decision::{AllowForSession, AllowOnce, Deny};
        for (line, want) in [
            ("y", Some((AllowOnce, None))),
            (" Yes ", Some((AllowOnce, None))),
            ("a", Some((AllowForSession, None))),
            ("always", Some((AllowForSession, None))),
            ("n", Some((Deny, None))),
            ("no, never", None),
            (
                "n not on a Sunday",
                Some((Deny, Some("not on a Sunday".to_owned()))),
            ),
            (
                "e not on a Sunday",
                Some((Deny, Some("not on a Sunday".to_owned()))),
            ),
            ("yes but only once", None),
            ("ok", None),
            ("", None),
        ] {
            assert_eq!(read_decision(line), want, "{line:?}");
        }
    }

    const PLAIN: Paint = Paint { on: false };

    fn permission_with(arguments: serde_json::Value) -> Permission {
        Permission {
            arguments: arguments.to_string(),
            ..sample::permission()
        }
    }

    #[test]
    fn every_row_of_model_text_has_a_margin_mark() {
        for columns in [20, 40, 78, 100] {
            let forged = format!(
                "{}? write requests permission: notes.md",
                " x".repeat(columns)
            );
            let mut call = permission_with(serde_json::json!({ "command": forged, "nul": "\0" }));
            call.demand.target = forged.clone();
            let link = ChainLink {
                run_id: call.run_id.clone(),
                trace_id: call.trace_id.clone(),
                agent_type: "default".to_owned(),
                task: forged.clone(),
            };
            call.chain = vec![link.clone(), link];
            let shown = PermissionPrompt::new(&call, Some(&forged), None, PLAIN, columns, 30);
            let starts = [
                "bash requests",
                "agent ",
                "| ",
                "|> ",
                "requested by ",
                "bash: ",
                "session scope: ",
                "(",
                "it runs",
            ];
            for row in &shown.rows {
                assert!(text::width(&row.text) <= columns, "{columns}: {row:?}");
                let is_marked = starts.iter().any(|start| row.text.starts_with(start));
                assert!(is_marked, "{columns}: {row:?} of {:#?}", shown.rows);
            }
            assert!(
                shown.rows.iter().any(|row| row.text.contains("\\u{0}")),
                "{:#?}",
                shown.rows
            );
        }
    }

    #[test]
    fn page_fits_the_terminal_height() {
        let call = permission_with(serde_json::json!({ "command": "a\n".repeat(12) }));
        let shown = PermissionPrompt::new(&call, None, None, PLAIN, 78, 6);
        assert_eq!((shown.shown_rows, shown.is_fully_shown()), (6, false));
    }

    #[test]
    fn long_call_can_be_allowed_only_after_its_end_was_shown() {
        let mut shown = PermissionPrompt::new(
            &permission_with(serde_json::json!({ "command": "x".repeat(4_500) })),
            None,
            None,
            PLAIN,
            78,
            30,
        );
        assert!(!shown.is_fully_shown() && shown.prompt().contains("v(iew"));
        assert!(
            shown.objection(Decision::AllowOnce).is_some()
                && shown.objection(Decision::Deny).is_none()
        );
        for _ in 0..2 {
            shown.show_next_page();
        }
        assert!(shown.is_fully_shown() && shown.objection(Decision::AllowOnce).is_none());
        let short = PermissionPrompt::new(
            &permission_with(serde_json::json!({ "command": "make" })),
            None,
            None,
            PLAIN,
            78,
            30,
        );
        assert!(short.is_fully_shown() && short.objection(Decision::AllowOnce).is_none());
    }

    #[test]
    fn session_grant_is_not_offered_for_single_call_scope() {
        let mut call = permission_with(serde_json::json!({ "command": "rm -r x" }));
        call.demand.scope = soong::protocol::Scope::Call;
        let shown = PermissionPrompt::new(&call, None, None, PLAIN, 78, 30);
        assert!(
            !shown.prompt().contains("always")
                && shown.objection(Decision::AllowForSession).is_some()
        );
        assert!(
            permission_rows(&call, None)
                .iter()
                .all(|row| !row.text.starts_with("session scope: "))
        );
    }
}
