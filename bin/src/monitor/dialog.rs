//! Dialogs: the input that the monitor requests before an action.
//!
//! Pure. Elsewhere: the actions (`state.rs`), rendering (`draw/dialog.rs`).

use ratatui::crossterm::event::{KeyCode, KeyEvent};
use soong::protocol::{Decision, Permission, Timestamp, TraceId};

use super::{
    deed::Deed,
    keys::{Action, Step, action},
    prompt::{Prompt, Typed},
};
use crate::people::Ask;

/// The open dialog.
#[derive(Debug, Default)]
pub(crate) enum Dialog {
    #[default]
    None,
    /// The help, from this line on.
    Help(usize),
    /// Confirmation of an action.
    Confirm { question: String, deed: Deed },
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
pub(crate) enum Then {
    /// The dialog stays open.
    Waits,
    /// The dialog closes.
    Closes,
    /// The dialog closes, and the action is executed.
    Does(Deed),
    /// The action is executed, and the next pending request is shown if there is one.
    DoesAndWaits(Deed),
    /// The filter changes.
    Filters(String),
    /// Another pending request is shown.
    Shows(String),
    /// The dialog closes, and the filter is removed.
    Unfilters,
}

impl Dialog {
    /// Handles a key; `asks` are the pending requests.
    pub(crate) fn key(&mut self, key: KeyEvent, asks: &[Ask], now: Timestamp) -> Then {
        match self {
            Self::None => Then::Closes,
            Self::Help(at) => match action(key) {
                Some(Action::Move(Step::Up)) => scroll(at, at.saturating_sub(1)),
                Some(Action::Move(Step::Down)) => scroll(at, *at + 1),
                Some(Action::Move(Step::PageUp)) => scroll(at, at.saturating_sub(10)),
                Some(Action::Move(Step::PageDown)) => scroll(at, *at + 10),
                _ => Then::Closes,
            },
            Self::Confirm { deed, .. } => match key.code {
                KeyCode::Char('y') => Then::Does(deed.clone()),
                KeyCode::Char('n' | 'q') | KeyCode::Esc => Then::Closes,
                _ if action(key) == Some(Action::Interrupt) => Then::Closes,
                _ => Then::Waits,
            },
            Self::Folder { trace, typed } => match typed.key(key) {
                Typed::On => Then::Waits,
                Typed::Left => Then::Closes,
                Typed::Done if typed.text.trim().is_empty() => Then::Waits,
                Typed::Done => Then::Does(Deed::Export { trace: trace.clone(), dir: typed.text.trim().to_owned() }),
            },
            Self::Filter(typed) => match typed.key(key) {
                Typed::On => Then::Filters(typed.text.to_lowercase()),
                Typed::Done => Then::Closes,
                Typed::Left => Then::Unfilters,
            },
            Self::Asks { id, typed, from, is_read, not_before } => {
                let Some(at) = asks.iter().position(|ask| ask.id() == id.as_str()) else {
                    // The request was decided elsewhere. Text that was being typed for it is not used for another
                    // one.
                    return match key.code {
                        KeyCode::Enter => asks.first().map_or(Then::Closes, |next| Then::Shows(next.id().to_owned())),
                        KeyCode::Esc => Then::Closes,
                        _ => Then::Waits,
                    };
                };
                if now < *not_before {
                    // The key was pressed before the request could be read.
                    return Then::Waits;
                }
                match action(key) {
                    Some(Action::Move(Step::PageDown)) if typed.is_none() => scroll(from, *from + 5),
                    Some(Action::Move(Step::PageUp)) if typed.is_none() => scroll(from, from.saturating_sub(5)),
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
    pub(crate) fn paste(&mut self, text: &str) -> Then {
        match self {
            Self::Folder { typed, .. } | Self::Asks { typed: Some(typed), .. } => typed.paste(text),
            Self::Filter(typed) => {
                typed.paste(text);
                return Then::Filters(typed.text.to_lowercase());
            }
            Self::None | Self::Help(_) | Self::Confirm { .. } | Self::Asks { typed: None, .. } => {}
        }
        Then::Waits
    }
}

fn scroll(at: &mut usize, to: usize) -> Then {
    *at = to;
    Then::Waits
}

fn answer(key: KeyEvent, asks: &[Ask], at: usize, is_read: bool, typed: &mut Option<Prompt>) -> Then {
    let ask = &asks[at];
    if let Some(prompt) = typed {
        let deed = match (prompt.key(key), ask) {
            (Typed::On, _) => return Then::Waits,
            (Typed::Left, _) => {
                *typed = None;
                return Then::Waits;
            }
            (Typed::Done, Ask::Question(_)) if prompt.text.trim().is_empty() => return Then::Waits,
            (Typed::Done, Ask::Question(question)) => {
                Deed::Answer { id: question.question_id.clone(), text: prompt.text.clone() }
            }
            (Typed::Done, Ask::Permission(asked)) => {
                let reason = Some(prompt.text.trim().to_owned()).filter(|reason| !reason.is_empty());
                Deed::Decide { id: asked.permission_id.clone(), decision: Decision::Deny, reason }
            }
        };
        *typed = None;
        return Then::DoesAndWaits(deed);
    }
    let decide = |decision, asked: &Permission| {
        Then::DoesAndWaits(Deed::Decide { id: asked.permission_id.clone(), decision, reason: None })
    };
    let to = |at: usize| Then::Shows(asks.get(at).unwrap_or(ask).id().to_owned());
    match (key.code, ask) {
        // A request can be allowed only after its last line has been visible.
        (KeyCode::Char('y' | 's'), Ask::Permission(_)) if !is_read => {}
        (KeyCode::Char('y'), Ask::Permission(asked)) => return decide(Decision::AllowOnce, asked),
        (KeyCode::Char('s'), Ask::Permission(asked)) if asked.demand.can_be_granted() => {
            return decide(Decision::AllowForSession, asked);
        }
        (KeyCode::Char('n'), Ask::Permission(_)) | (KeyCode::Enter, Ask::Question(_)) => {
            *typed = Some(Prompt::default());
        }
        _ => match action(key) {
            Some(Action::Move(Step::Up)) => return to(at.saturating_sub(1)),
            Some(Action::Move(Step::Down)) => return to(at + 1),
            Some(Action::Close | Action::Quit | Action::Interrupt | Action::Answer) => return Then::Closes,
            _ => {}
        },
    }
    Then::Waits
}
