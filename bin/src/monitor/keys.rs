//! Key bindings of the monitor. The help is generated from the same table.
//!
//! Pure. Elsewhere: the actions (`state.rs`), text input (`prompt.rs`).

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// Action of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Move(Step),
    /// Unfold the row, or move to its first child.
    In,
    /// Fold the row, or move to its parent.
    Out,
    Open,
    Close,
    Switch,
    Pane(usize),
    NextPane,
    FoldAll,
    Sort,
    Filter,
    OnlyUrgent,
    NextUrgent,
    Arrange,
    Ended,
    Follow,
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

/// A movement through rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
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
    action: Action,
    shown: &'static str,
    help: &'static str,
}

const fn bind(keys: &'static [KeyCode], action: Action, shown: &'static str, help: &'static str) -> Binding {
    Binding { keys, action, shown, help }
}

use KeyCode::{BackTab, Char, Down, End, Enter, Esc, Home, Left, PageDown, PageUp, Right, Tab, Up};

/// All key bindings. A binding without help is described together with the previous one.
const BINDINGS: &[Binding] = &[
    bind(&[Up, Char('k')], Action::Move(Step::Up), "Up Down", "one row up or down (k, j)"),
    bind(&[Down, Char('j')], Action::Move(Step::Down), "", ""),
    bind(&[PageUp], Action::Move(Step::PageUp), "PgUp PgDn", "a page up or down"),
    bind(&[PageDown], Action::Move(Step::PageDown), "", ""),
    bind(&[Home, Char('g')], Action::Move(Step::First), "Home End", "to the first or the last row (g, G)"),
    bind(&[End, Char('G')], Action::Move(Step::Last), "", ""),
    bind(&[Left, Char('h')], Action::Out, "Left Right", "fold and unfold; in a pane: the pane before, the next (h, l)"),
    bind(&[Right, Char('l')], Action::In, "", ""),
    bind(&[Char('z')], Action::FoldAll, "z", "fold or unfold all"),
    bind(&[Enter], Action::Open, "Enter", "to the pane; there: an artifact, or events and messages in full"),
    bind(&[Esc], Action::Close, "Esc", "back to the tree, without a filter"),
    bind(&[Tab], Action::Switch, "Tab", "to the pane, and back to the tree"),
    bind(&[BackTab], Action::NextPane, "Shift-Tab", "the next pane"),
    bind(&[Char('1')], Action::Pane(0), "1 to 7", "Facts, Goals, Team, Events, Messages, Artifacts, Timeline"),
    bind(&[Char('2')], Action::Pane(1), "", ""),
    bind(&[Char('3')], Action::Pane(2), "", ""),
    bind(&[Char('4')], Action::Pane(3), "", ""),
    bind(&[Char('5')], Action::Pane(4), "", ""),
    bind(&[Char('6')], Action::Pane(5), "", ""),
    bind(&[Char('7')], Action::Pane(6), "", ""),
    bind(&[Char('n')], Action::NextUrgent, "n", "to the next that needs a look: stuck, asking, failed, restarted"),
    bind(&[Char('!')], Action::OnlyUrgent, "!", "only what is stuck, asks or has failed"),
    bind(&[Char('/')], Action::Filter, "/", "only what holds a text: an id, a task, a state, an error"),
    bind(&[Char('s')], Action::Sort, "s", "another order: start, urgency, tokens, cost, ..."),
    bind(&[Char('t')], Action::Arrange, "t", "by who works for whom, or by supervision"),
    bind(&[Char('e')], Action::Ended, "e", "with or without runs that have ended"),
    bind(&[Char('f')], Action::Follow, "f", "follow: go where something happens; in a pane: stay at the end"),
    bind(&[Char('a')], Action::Answer, "a", "answer what is asked: permissions and questions"),
    bind(&[Char('c')], Action::Cancel, "c", "cancel a run with all below it, or all runs of a session"),
    bind(&[Char('x')], Action::Export, "x", "export a run's trace with all below it to a folder"),
    bind(&[Char('K')], Action::Kill, "K", "a drill: make a run, session, working set or gateway crash"),
    bind(&[Char('?')], Action::Help, "?", "this help"),
    bind(&[Char('q')], Action::Quit, "q", "leave; what is at work goes on"),
    // Keys with Ctrl are handled in `action`.
    bind(&[], Action::Interrupt, "Ctrl-C", "the same; it first cancels the run that the monitor was started with"),
    bind(&[], Action::Redraw, "Ctrl-L", "draw the screen anew; Ctrl-Z: stop the process, as always"),
];

/// Returns the action of a key.
pub(crate) fn action(key: KeyEvent) -> Option<Action> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            Char('c') => Some(Action::Interrupt),
            Char('l') => Some(Action::Redraw),
            Char('z') => Some(Action::Suspend),
            Char('d') => Some(Action::Move(Step::PageDown)),
            Char('u') => Some(Action::Move(Step::PageUp)),
            _ => None,
        };
    }
    if key.modifiers.contains(KeyModifiers::ALT) {
        return None;
    }
    BINDINGS.iter().find(|binding| binding.keys.contains(&key.code)).map(|binding| binding.action)
}

/// Returns the lines of the help: keys and descriptions.
pub(crate) fn help() -> impl Iterator<Item = (&'static str, &'static str)> {
    BINDINGS.iter().filter(|binding| !binding.help.is_empty()).map(|binding| (binding.shown, binding.help))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_means_one_thing() {
        let keys: Vec<KeyCode> = BINDINGS.iter().flat_map(|binding| binding.keys).copied().collect();
        for (at, key) in keys.iter().enumerate() {
            assert!(!keys[..at].contains(key), "{key:?} is bound twice");
        }
        let of = |code, modifiers| action(KeyEvent::new(code, modifiers));
        for (code, modifiers, want) in [
            (Char('q'), KeyModifiers::NONE, Some(Action::Quit)),
            (Char('K'), KeyModifiers::SHIFT, Some(Action::Kill)),
            (Char('c'), KeyModifiers::CONTROL, Some(Action::Interrupt)),
            (Char('c'), KeyModifiers::NONE, Some(Action::Cancel)),
            (Char('k'), KeyModifiers::ALT, None),
            (Char('ü'), KeyModifiers::NONE, None),
        ] {
            assert_eq!(of(code, modifiers), want, "{code:?} {modifiers:?}");
        }
    }
}
