//! Dialogs: the input that the monitor requests before an action.
//!
//! Pure. Elsewhere: the actions (`state.rs`), rendering (`draw/dialog.rs`).

use ratatui::crossterm::event::{KeyCode, KeyEvent};
use soong_protocol::{Decision, Permission, Timestamp, TraceId};

use super::{
    command::Command,
    keys::{KeyAction, Navigation, RowMove, action, row_move},
    prompt::{Prompt, PromptResult},
};
use crate::request::UserRequest;

/// The open dialog.
#[derive(Debug, Default)]
pub(crate) enum Dialog {
    #[default]
    None,
    /// The help, from this line on.
    Help(usize),
    /// Confirmation of an action.
    Confirm { question: String, command: Command },
    /// Pending requests of runs: id of the shown request, the text being typed, the first visible
    /// line, whether its end has been visible, and the time before which keys are ignored.
    Request {
        id: String,
        typed: Option<Prompt>,
        from: usize,
        is_read: bool,
        not_before: Timestamp,
    },
    /// Folder to which a trace is exported.
    Folder { trace: TraceId, typed: Prompt },
    /// Text that the rows must contain.
    Filter(Prompt),
}

/// Result of a key in a dialog.
#[derive(Debug, PartialEq)]
pub(crate) enum DialogResult {
    /// The dialog stays open.
    StayOpen,
    /// The dialog closes.
    Close,
    /// The dialog closes, and the action is executed.
    Execute(Command),
    /// The action is executed, and the next pending request is shown if there is one.
    ExecuteAndShowNext(Command),
    /// The filter changes.
    SetFilter(String),
    /// Another pending request is shown.
    ShowRequest(String),
    /// The dialog closes, and the filter is removed.
    ClearFilter,
}

impl Dialog {
    /// Handles a key; `asks` are the pending requests.
    pub(crate) fn key(
        &mut self,
        key: KeyEvent,
        asks: &[UserRequest],
        now: Timestamp,
    ) -> DialogResult {
        match self {
            Self::None => DialogResult::Close,
            Self::Help(at) => match row_move(key) {
                Some(RowMove::Up) => scroll(at, at.saturating_sub(1)),
                Some(RowMove::Down) => scroll(at, *at + 1),
                Some(RowMove::PageUp) => scroll(at, at.saturating_sub(10)),
                Some(RowMove::PageDown) => scroll(at, *at + 10),
                _ => DialogResult::Close,
            },
            Self::Confirm { command, .. } => match key.code {
                KeyCode::Char('y') => DialogResult::Execute(command.clone()),
                KeyCode::Char('n' | 'q') | KeyCode::Esc => DialogResult::Close,
                _ if action(key) == Some(KeyAction::Interrupt) => DialogResult::Close,
                _ => DialogResult::StayOpen,
            },
            Self::Folder { trace, typed } => match typed.key(key) {
                PromptResult::Editing => DialogResult::StayOpen,
                PromptResult::Cancelled => DialogResult::Close,
                PromptResult::Submitted if typed.text.trim().is_empty() => DialogResult::StayOpen,
                PromptResult::Submitted => DialogResult::Execute(Command::Export {
                    trace: trace.clone(),
                    dir: typed.text.trim().to_owned(),
                }),
            },
            Self::Filter(typed) => match typed.key(key) {
                PromptResult::Editing => DialogResult::SetFilter(typed.text.to_lowercase()),
                PromptResult::Submitted => DialogResult::Close,
                PromptResult::Cancelled => DialogResult::ClearFilter,
            },
            Self::Request {
                id,
                typed,
                from,
                is_read,
                not_before,
            } => {
                let Some(at) = asks.iter().position(|ask| ask.id() == id.as_str()) else {
                    // The request was decided elsewhere. Text that was being typed for it is not
                    // used for another one.
                    return match key.code {
                        KeyCode::Enter => asks.first().map_or(DialogResult::Close, |next| {
                            DialogResult::ShowRequest(next.id().to_owned())
                        }),
                        KeyCode::Esc => DialogResult::Close,
                        _ => DialogResult::StayOpen,
                    };
                };
                if now < *not_before {
                    // The key was pressed before the request could be read.
                    return DialogResult::StayOpen;
                }
                match row_move(key) {
                    Some(RowMove::PageDown) if typed.is_none() => scroll(from, *from + 5),
                    _ if key.code == KeyCode::Char('v') && typed.is_none() => {
                        scroll(from, *from + 5)
                    }
                    Some(RowMove::PageUp) if typed.is_none() => {
                        scroll(from, from.saturating_sub(5))
                    }
                    _ => answer(key, asks, at, *is_read, typed),
                }
            }
        }
    }

    /// Creates a dialog that shows a pending request.
    pub(crate) fn ask(id: String, not_before: Timestamp) -> Self {
        Self::Request {
            id,
            typed: None,
            from: 0,
            is_read: false,
            not_before,
        }
    }

    /// Handles pasted text.
    pub(crate) fn paste(&mut self, text: &str) -> DialogResult {
        match self {
            Self::Folder { typed, .. }
            | Self::Request {
                typed: Some(typed), ..
            } => typed.paste(text),
            Self::Filter(typed) => {
                typed.paste(text);
                return DialogResult::SetFilter(typed.text.to_lowercase());
            }
            Self::None
            | Self::Help(_)
            | Self::Confirm { .. }
            | Self::Request { typed: None, .. } => {}
        }
        DialogResult::StayOpen
    }
}

fn scroll(at: &mut usize, to: usize) -> DialogResult {
    *at = to;
    DialogResult::StayOpen
}

fn answer(
    key: KeyEvent,
    asks: &[UserRequest],
    at: usize,
    is_read: bool,
    typed: &mut Option<Prompt>,
) -> DialogResult {
    let ask = &asks[at];
    if let Some(prompt) = typed {
        let command = match (prompt.key(key), ask) {
            (PromptResult::Editing, _) => return DialogResult::StayOpen,
            (PromptResult::Cancelled, _) => {
                *typed = None;
                return DialogResult::StayOpen;
            }
            (PromptResult::Submitted, UserRequest::Question(_))
                if prompt.text.trim().is_empty() =>
            {
                return DialogResult::StayOpen;
            }
            (PromptResult::Submitted, UserRequest::Question(question)) => Command::Answer {
                id: question.question_id.clone(),
                text: prompt.text.clone(),
            },
            (PromptResult::Submitted, UserRequest::Permission(permission)) => {
                let reason =
                    Some(prompt.text.trim().to_owned()).filter(|reason| !reason.is_empty());
                Command::Decide {
                    id: permission.permission_id.clone(),
                    decision: Decision::Deny,
                    reason,
                }
            }
        };
        *typed = None;
        return DialogResult::ExecuteAndShowNext(command);
    }
    let decide = |decision, permission: &Permission| {
        DialogResult::ExecuteAndShowNext(Command::Decide {
            id: permission.permission_id.clone(),
            decision,
            reason: None,
        })
    };
    let to = |at: usize| DialogResult::ShowRequest(asks.get(at).unwrap_or(ask).id().to_owned());
    match (key.code, ask) {
        // A request can be allowed only after its last line has been visible.
        (KeyCode::Char('y' | 'a' | 's'), UserRequest::Permission(_)) if !is_read => {}
        (KeyCode::Char('y'), UserRequest::Permission(permission)) => {
            return decide(Decision::AllowOnce, permission);
        }
        // `s` was the key of earlier versions.
        (KeyCode::Char('a' | 's'), UserRequest::Permission(permission)) => {
            if permission.demand.is_grantable_for_session() {
                return decide(Decision::AllowForSession, permission);
            }
        }
        (KeyCode::Char('n'), UserRequest::Permission(permission)) => {
            return decide(Decision::Deny, permission);
        }
        (KeyCode::Char('e'), UserRequest::Permission(_))
        | (KeyCode::Enter, UserRequest::Question(_)) => {
            *typed = Some(Prompt::default());
        }
        (KeyCode::Char('l'), _) => return DialogResult::Close,
        _ => match action(key) {
            Some(KeyAction::Navigate(Navigation::Move(RowMove::Up))) => {
                return to(at.saturating_sub(1));
            }
            Some(KeyAction::Navigate(Navigation::Move(RowMove::Down))) => return to(at + 1),
            Some(
                KeyAction::Navigate(Navigation::Close)
                | KeyAction::Quit
                | KeyAction::Interrupt
                | KeyAction::Answer,
            ) => {
                return DialogResult::Close;
            }
            _ => {}
        },
    }
    DialogResult::StayOpen
}
