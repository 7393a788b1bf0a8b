//! The keyboard while a picture is drawn: what is typed does not show, and waits for the next prompt.
//!
//! Ctrl-C and Ctrl-Z keep their meaning. Not here: reading lines (`input.rs`).

use std::{
    io::stdin,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rustix::termios::{self, LocalModes, OptionalActions, Termios};

/// How the terminal was before it was hushed for the first time, and how many want it hushed.
///
/// It is brought back to that, whatever an editor in between took for its usual state.
static HUSHED: Mutex<(Option<Termios>, usize)> = Mutex::new((None, 0));

/// Keeps what is typed from showing for as long as it lives.
pub(crate) struct Hush(());

impl Hush {
    pub(crate) fn begin() -> Self {
        let mut hushed = hushed();
        hushed.1 += 1;
        hush(&mut hushed.0);
        Self(())
    }
}

impl Drop for Hush {
    fn drop(&mut self) {
        let mut hushed = hushed();
        hushed.1 -= 1;
        if hushed.1 == 0 {
            restore(&hushed.0);
        }
    }
}

fn hushed() -> MutexGuard<'static, (Option<Termios>, usize)> {
    HUSHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether the process is in the foreground of its terminal: only then the terminal is ours.
pub(crate) fn is_foreground() -> bool {
    // Who cannot be asked is no terminal, and has no background.
    termios::tcgetpgrp(std::io::stderr()).is_ok_and(|group| group == rustix::process::getpgrp())
}

/// Brings the terminal back to how it was: the process is about to end, or to be stopped.
pub(crate) fn give_back() {
    restore(&hushed().0);
}

/// Whether a line is being typed at a prompt, whose editor has a terminal mode of its own.
static PROMPTS: AtomicBool = AtomicBool::new(false);

/// Says whether a line is being typed from now on.
pub(crate) fn prompts(prompts: bool) {
    PROMPTS.store(prompts, Ordering::Release);
}

/// Returns how the terminal is while a line is being typed; `None` where none is.
///
/// An editor that hears Ctrl-Z sends the signal with its own mode off, and puts it on again at once:
/// that is waited for, a second at most.
pub(crate) async fn mode_of_prompt() -> Option<Termios> {
    if !PROMPTS.load(Ordering::Acquire) {
        return None;
    }
    let mut mode = termios::tcgetattr(stdin()).ok()?;
    for _ in 0..200 {
        if !mode.local_modes.contains(LocalModes::ISIG) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        mode = termios::tcgetattr(stdin()).ok()?;
    }
    Some(mode)
}

/// Hushes the terminal while an editor still waits for its line; returns how it was for that.
pub(crate) fn leave_prompt() -> Option<Termios> {
    prompts(false);
    let mode = termios::tcgetattr(stdin()).ok();
    // From how it was at first: an editor's mode makes no signal of Ctrl-C.
    give_back();
    take_again();
    mode
}

/// Brings the terminal back to how it was while a line was being typed.
pub(crate) fn prompt_again(mode: &Termios) {
    // The editor leaves it as it found it, and that was hushed.
    take_again();
    if is_foreground() {
        let _ = termios::tcsetattr(stdin(), OptionalActions::Now, mode);
    }
}

/// Hushes the terminal again if somebody wants that: the process goes on.
pub(crate) fn take_again() {
    let mut hushed = hushed();
    if hushed.1 > 0 {
        hush(&mut hushed.0);
    }
}

fn hush(original: &mut Option<Termios>) {
    // A background process that changes its terminal is stopped by it.
    if !is_foreground() {
        return;
    }
    let Ok(mode) = termios::tcgetattr(stdin()) else { return };
    let mut quiet = mode.clone();
    quiet.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON);
    original.get_or_insert(mode);
    let _ = termios::tcsetattr(stdin(), OptionalActions::Now, &quiet);
}

fn restore(original: &Option<Termios>) {
    if let Some(mode) = original
        && is_foreground()
    {
        let _ = termios::tcsetattr(stdin(), OptionalActions::Now, mode);
    }
}
