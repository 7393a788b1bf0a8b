//! Key bindings of the monitor. The help is generated from the same table.
//!
//! Pure. Elsewhere: the actions (`state.rs`), text input (`prompt.rs`).

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::pane::Pane;

/// Action of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyAction {
    Navigate(Navigation),
    Filter,
    NextUrgent,
    Cancel,
    Answer,
    Export,
    Kill,
    Help,
    Quit,
    Redraw,
    Suspend,
    Interrupt,
}

/// A change of what the tree and the pane show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Navigation {
    Move(RowMove),
    /// Unfold the row, or move to its first child.
    In,
    /// Fold the row, or move to its parent.
    Out,
    Open,
    Close,
    Switch,
    Pane(Pane),
    NextPane,
    FoldAll,
    Sort,
    OnlyUrgent,
    Arrange,
    Ended,
    Follow,
}

/// A movement through rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowMove {
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
}

/// Keys with their action, and their description in the help.
struct Binding {
    keys: &'static [KeyCode],
    action: KeyAction,
    shown: &'static str,
    help: &'static str,
}

const fn bind(
    keys: &'static [KeyCode],
    action: KeyAction,
    shown: &'static str,
    help: &'static str,
) -> Binding {
    Binding {
        keys,
        action,
        shown,
        help,
    }
}

const fn navigate(
    keys: &'static [KeyCode],
    navigation: Navigation,
    shown: &'static str,
    help: &'static str,
) -> Binding {
    bind(keys, KeyAction::Navigate(navigation), shown, help)
}

use KeyCode::{BackTab, Char, Down, End, Enter, Esc, Home, Left, PageDown, PageUp, Right, Tab, Up};

/// All key bindings. A binding without help is described together with the previous one.
const BINDINGS: &[Binding] = &[
    navigate(
        &[Up, Char('k')],
        Navigation::Move(RowMove::Up),
        "Up Down",
        "previous or next row (k, j)",
    ),
    navigate(&[Down, Char('j')], Navigation::Move(RowMove::Down), "", ""),
    navigate(
        &[PageUp],
        Navigation::Move(RowMove::PageUp),
        "PgUp PgDn",
        "a page up or down",
    ),
    navigate(&[PageDown], Navigation::Move(RowMove::PageDown), "", ""),
    navigate(
        &[Home, Char('g')],
        Navigation::Move(RowMove::First),
        "Home End",
        "first or last row (g, G)",
    ),
    navigate(&[End, Char('G')], Navigation::Move(RowMove::Last), "", ""),
    navigate(
        &[Left, Char('h')],
        Navigation::Out,
        "Left Right",
        "fold or unfold; in a pane: previous or next pane (h, l)",
    ),
    navigate(&[Right, Char('l')], Navigation::In, "", ""),
    navigate(&[Char('z')], Navigation::FoldAll, "z", "fold or unfold all"),
    navigate(
        &[Enter],
        Navigation::Open,
        "Enter",
        "show the pane alone; there: preview an artifact, or toggle details",
    ),
    navigate(
        &[Esc],
        Navigation::Close,
        "Esc",
        "back to the tree, or remove the filter",
    ),
    navigate(
        &[Tab],
        Navigation::Switch,
        "Tab",
        "switch between tree and pane",
    ),
    navigate(&[BackTab], Navigation::NextPane, "Shift-Tab", "next pane"),
    navigate(
        &[Char('1')],
        Navigation::Pane(Pane::Facts),
        "1 to 8",
        "Facts, Goals, Team, Events, Messages, Artifacts, Timeline, Transcript",
    ),
    navigate(&[Char('2')], Navigation::Pane(Pane::Goals), "", ""),
    navigate(&[Char('3')], Navigation::Pane(Pane::Team), "", ""),
    navigate(&[Char('4')], Navigation::Pane(Pane::Events), "", ""),
    navigate(&[Char('5')], Navigation::Pane(Pane::Messages), "", ""),
    navigate(&[Char('6')], Navigation::Pane(Pane::Artifacts), "", ""),
    navigate(&[Char('7')], Navigation::Pane(Pane::Timeline), "", ""),
    navigate(&[Char('8')], Navigation::Pane(Pane::Transcript), "", ""),
    navigate(
        &[Char('d')],
        Navigation::Pane(Pane::Diff),
        "d",
        "Diff: changes that the run made to files",
    ),
    navigate(
        &[Char('$')],
        Navigation::Pane(Pane::Cost),
        "$",
        "Cost: tokens and money, with sub-agents",
    ),
    navigate(
        &[Char('p')],
        Navigation::Pane(Pane::Prompt),
        "p",
        "Prompt: the system messages in full",
    ),
    bind(
        &[Char('n')],
        KeyAction::NextUrgent,
        "n",
        "next alert: stuck, asking, failed, restarted",
    ),
    navigate(
        &[Char('!')],
        Navigation::OnlyUrgent,
        "!",
        "show only actors that are stuck, asking or failed",
    ),
    bind(
        &[Char('/')],
        KeyAction::Filter,
        "/",
        "filter by text: id, task, state, error",
    ),
    navigate(
        &[Char('s')],
        Navigation::Sort,
        "s",
        "change the sort order: start, urgency, tokens, cost, ...",
    ),
    navigate(
        &[Char('t')],
        Navigation::Arrange,
        "t",
        "group by parent run or by supervisor",
    ),
    navigate(
        &[Char('e')],
        Navigation::Ended,
        "e",
        "show or hide ended runs",
    ),
    navigate(
        &[Char('f')],
        Navigation::Follow,
        "f",
        "follow the latest activity; in a pane: stay at the end",
    ),
    bind(
        &[Char('a')],
        KeyAction::Answer,
        "a",
        "answer pending permissions and questions",
    ),
    bind(
        &[Char('c')],
        KeyAction::Cancel,
        "c",
        "cancel a run with its sub-agents, or all runs of a session",
    ),
    bind(
        &[Char('x')],
        KeyAction::Export,
        "x",
        "export a run's trace with its sub-agents to a folder",
    ),
    bind(
        &[Char('K')],
        KeyAction::Kill,
        "K",
        "test: crash a run, session, working set or gateway",
    ),
    bind(&[Char('?')], KeyAction::Help, "?", "show this help"),
    bind(
        &[Char('q')],
        KeyAction::Quit,
        "q",
        "exit; active runs continue",
    ),
    // Keys with Ctrl are handled in `action`.
    bind(
        &[],
        KeyAction::Interrupt,
        "Ctrl-C",
        "exit; first cancels the run that the monitor was started with",
    ),
    bind(
        &[],
        KeyAction::Redraw,
        "Ctrl-L",
        "redraw the screen; Ctrl-Z: suspend the process",
    ),
];

/// Returns the action of a key.
pub(crate) fn action(key: KeyEvent) -> Option<KeyAction> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            Char('c') => Some(KeyAction::Interrupt),
            Char('l') => Some(KeyAction::Redraw),
            Char('z') => Some(KeyAction::Suspend),
            Char('d') => Some(KeyAction::Navigate(Navigation::Move(RowMove::PageDown))),
            Char('u') => Some(KeyAction::Navigate(Navigation::Move(RowMove::PageUp))),
            _ => None,
        };
    }
    if key.modifiers.contains(KeyModifiers::ALT) {
        return None;
    }
    BINDINGS
        .iter()
        .find(|binding| binding.keys.contains(&key.code))
        .map(|binding| binding.action)
}

/// Returns the movement of a key; `None` if the key has another action or none.
pub(crate) fn row_move(key: KeyEvent) -> Option<RowMove> {
    match action(key) {
        Some(KeyAction::Navigate(Navigation::Move(step))) => Some(step),
        _ => None,
    }
}

/// Returns the lines of the help: keys and descriptions.
pub(crate) fn help() -> impl Iterator<Item = (&'static str, &'static str)> {
    BINDINGS
        .iter()
        .filter(|binding| !binding.help.is_empty())
        .map(|binding| (binding.shown, binding.help))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_is_bound_once() {
        let keys: Vec<KeyCode> = BINDINGS
            .iter()
            .flat_map(|binding| binding.keys)
            .copied()
            .collect();
        for (at, key) in keys.iter().enumerate() {
            assert!(!keys[..at].contains(key), "{key:?} is bound twice");
        }
        let of = |code, modifiers| action(KeyEvent::new(code, modifiers));
        for (code, modifiers, want) in [
            (Char('q'), KeyModifiers::NONE, Some(KeyAction::Quit)),
            (Char('K'), KeyModifiers::SHIFT, Some(KeyAction::Kill)),
            (Char('c'), KeyModifiers::CONTROL, Some(KeyAction::Interrupt)),
            (Char('c'), KeyModifiers::NONE, Some(KeyAction::Cancel)),
            (Char('k'), KeyModifiers::ALT, None),
            (Char('ü'), KeyModifiers::NONE, None),
            (
                Char('8'),
                KeyModifiers::NONE,
                Some(KeyAction::Navigate(Navigation::Pane(Pane::Transcript))),
            ),
            (Char('9'), KeyModifiers::NONE, None),
        ] {
            assert_eq!(of(code, modifiers), want, "{code:?} {modifiers:?}");
        }
        for pane in Pane::ALL {
            let want = Some(KeyAction::Navigate(Navigation::Pane(pane)));
            assert_eq!(of(Char(pane.key()), KeyModifiers::NONE), want, "{pane:?}");
        }
    }
}
