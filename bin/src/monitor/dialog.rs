//! Dialogs: the input that the monitor requests before an action.
//!
//! Pure. Elsewhere: the actions (`state.rs`), rendering (`draw/dialog.rs`).

use ratatui::crossterm::event::{KeyCode, KeyEvent};
use soong::protocol::{Decision, Permission, Timestamp, TraceId};

use super::{
    deed::Command,
    keys::{KeyAction, RowMove, action},
    prompt::{Prompt, PromptResult},
};
use crate::people::UserRequest;

/// The open dialog.
#[derive(Debug, Default)]
pub(crate) enum Dialog {
    #[default]
    None,
    /// The help, from this line on.
    Help(usize),
    /// Confirmation of an action.
    Confirm { question: String, deed: Command },
    /// Pending requests of runs: id of the shown request, the text being typed, the first visible line, whether its
    /// end has been visible, and the time before which keys are ignored.
    Asks { id: String, typed: Option<Prompt>, from: usize, is_read: bool, not_before: Timestamp },
    /// Folder to which a trace is exported.
    Folder { trace: TraceId, typed: Prompt },
    /// Text that the rows must contain.
    Filter(Prompt),
}

/// Result of a key in a dialog.
#[derive(Debug, PartialEq)]
pub(crate) enum DialogResult {
    /// The dialog stays open.
    Waits,
    /// The dialog closes.
    Closes,
    /// The dialog closes, and the action is executed.
    Does(Command),
    /// The action is executed, and the next pending request is shown if there is one.
    DoesAndWaits(Command),
    /// The filter changes.
    Filters(String),
    /// Another pending request is shown.
    Shows(String),
    /// The dialog closes, and the filter is removed.
    Unfilters,
}

impl Dialog {
    /// Handles a key; `asks` are the pending requests.
    pub(crate) fn key(&mut self, key: KeyEvent, asks: &[UserRequest], now: Timestamp) -> DialogResult {
        match self {
            Self::None => DialogResult::Closes,
            Self::Help(at) => match action(key) {
                Some(KeyAction::Move(RowMove::Up)) => scroll(at, at.saturating_sub(1)),
                Some(KeyAction::Move(RowMove::Down)) => scroll(at, *at + 1),
                Some(KeyAction::Move(RowMove::PageUp)) => scroll(at, at.saturating_sub(10)),
                Some(KeyAction::Move(RowMove::PageDown)) => scroll(at, *at + 10),
                _ => DialogResult::Closes,
            },
            Self::Confirm { deed, .. } => match key.code {
                KeyCode::Char('y') => DialogResult::Does(deed.clone()),
                KeyCode::Char('n' | 'q') | KeyCode::Esc => DialogResult::Closes,
                _ if action(key) == Some(KeyAction::Interrupt) => DialogResult::Closes,
                _ => DialogResult::Waits,
            },
            Self::Folder { trace, typed } => match typed.key(key) {
                PromptResult::On => DialogResult::Waits,
                PromptResult::Left => DialogResult::Closes,
                PromptResult::Done if typed.text.trim().is_empty() => DialogResult::Waits,
                PromptResult::Done => {
                    DialogResult::Does(Command::Export { trace: trace.clone(), dir: typed.text.trim().to_owned() })
                }
            },
            Self::Filter(typed) => match typed.key(key) {
                PromptResult::On => DialogResult::Filters(typed.text.to_lowercase()),
                PromptResult::Done => DialogResult::Closes,
                PromptResult::Left => DialogResult::Unfilters,
            },
            Self::Asks { id, typed, from, is_read, not_before } => {
                let Some(at) = asks.iter().position(|ask| ask.id() == id.as_str()) else {
                    // The request was decided elsewhere. Text that was being typed for it is not used for another
                    // one.
                    return match key.code {
                        KeyCode::Enter => {
                            asks.first().map_or(DialogResult::Closes, |next| DialogResult::Shows(next.id().to_owned()))
                        }
                        KeyCode::Esc => DialogResult::Closes,
                        _ => DialogResult::Waits,
                    };
                };
                if now < *not_before {
                    // The key was pressed before the request could be read.
                    return DialogResult::Waits;
                }
                match action(key) {
                    Some(KeyAction::Move(RowMove::PageDown)) if typed.is_none() => scroll(from, *from + 5),
                    Some(KeyAction::Move(RowMove::PageUp)) if typed.is_none() => scroll(from, from.saturating_sub(5)),
                    _ => answer(key, asks, at, *is_read, typed),
                }
            }
        }
    }

    /// Creates a dialog that shows a pending request.
    pub(crate) fn ask(id: String, not_before: Timestamp) -> Self {
        Self::Asks { id, typed: None, from: 0, is_read: false, not_before }
    }

    /// Handles pasted text.
    pub(crate) fn paste(&mut self, text: &str) -> DialogResult {
        match self {
            Self::Folder { typed, .. } | Self::Asks { typed: Some(typed), .. } => typed.paste(text),
            Self::Filter(typed) => {
                typed.paste(text);
                return DialogResult::Filters(typed.text.to_lowercase());
            }
            Self::None | Self::Help(_) | Self::Confirm { .. } | Self::Asks { typed: None, .. } => {}
        }
        DialogResult::Waits
    }
}

fn scroll(at: &mut usize, to: usize) -> DialogResult {
    *at = to;
    DialogResult::Waits
}

fn answer(key: KeyEvent, asks: &[UserRequest], at: usize, is_read: bool, typed: &mut Option<Prompt>) -> DialogResult {
    let ask = &asks[at];
    if let Some(prompt) = typed {
        let deed = match (prompt.key(key), ask) {
            (PromptResult::On, _) => return DialogResult::Waits,
            (PromptResult::Left, _) => {
                *typed = None;
                return DialogResult::Waits;
            }
            (PromptResult::Done, UserRequest::Question(_)) if prompt.text.trim().is_empty() => {
                return DialogResult::Waits;
            }
            (PromptResult::Done, UserRequest::Question(question)) => {
                Command::Answer { id: question.question_id.clone(), text: prompt.text.clone() }
            }
            (PromptResult::Done, UserRequest::Permission(asked)) => {
                let reason = Some(prompt.text.trim().to_owned()).filter(|reason| !reason.is_empty());
                Command::Decide { id: asked.permission_id.clone(), decision: Decision::Deny, reason }
            }
        };
        *typed = None;
        return DialogResult::DoesAndWaits(deed);
    }
    let decide = |decision, asked: &Permission| {
        DialogResult::DoesAndWaits(Command::Decide { id: asked.permission_id.clone(), decision, reason: None })
    };
    let to = |at: usize| DialogResult::Shows(asks.get(at).unwrap_or(ask).id().to_owned());
    match (key.code, ask) {
        // A request can be allowed only after its last line has been visible.
        (KeyCode::Char('y' | 's'), UserRequest::Permission(_)) if !is_read => {}
        (KeyCode::Char('y'), UserRequest::Permission(asked)) => return decide(Decision::AllowOnce, asked),
        (KeyCode::Char('s'), UserRequest::Permission(asked)) if asked.demand.can_be_granted() => {
            return decide(Decision::AllowForSession, asked);
        }
        (KeyCode::Char('n'), UserRequest::Permission(_)) | (KeyCode::Enter, UserRequest::Question(_)) => {
            *typed = Some(Prompt::default());
        }
        _ => match action(key) {
            Some(KeyAction::Move(RowMove::Up)) => return to(at.saturating_sub(1)),
            Some(KeyAction::Move(RowMove::Down)) => return to(at + 1),
            Some(KeyAction::Close | KeyAction::Quit | KeyAction::Interrupt | KeyAction::Answer) => {
                return DialogResult::Closes;
            }
            _ => {}
        },
    }
    DialogResult::Waits
}
