//! Keyboard while the live display is drawn: typed keys are not echoed. They wait for the next
//! prompt, unless they are read by a [`KeyReader`].
//!
//! Ctrl-C and Ctrl-Z keep their meaning. Elsewhere: reading lines (`bin/src/input.rs`).

use std::{
    io::{IsTerminal, Write, stderr, stdin, stdout},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::read,
    termios::{self, InputModes, LocalModes, OptionalActions, QueueSelector, Termios},
};

use crate::typed_keys::{KeyParser, TypedKey};

/// Terminal mode before echo was first turned off, and the number of live [`EchoOff`] guards.
///
/// This mode is the one that is restored, even if a line editor has meanwhile saved a different
/// one.
static ECHO_STATE: Mutex<(Option<Termios>, usize)> = Mutex::new((None, 0));

/// Guard that turns off echo while it exists.
pub struct EchoOff(());

impl EchoOff {
    /// Turns off echo until the guard is dropped. Guards may be nested.
    pub fn begin() -> Self {
        let mut echo = echo_state();
        echo.1 += 1;
        turn_off_echo(&mut echo.0);
        Self(())
    }
}

impl Drop for EchoOff {
    fn drop(&mut self) {
        let mut echo = echo_state();
        echo.1 -= 1;
        if echo.1 == 0 {
            restore(&echo.0);
        }
    }
}

fn echo_state() -> MutexGuard<'static, (Option<Termios>, usize)> {
    ECHO_STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether the process is in the foreground of its terminal. Only then may it change the
/// terminal.
pub fn is_foreground() -> bool {
    // If the call fails, standard error is not a terminal.
    termios::tcgetpgrp(std::io::stderr()).is_ok_and(|group| group == rustix::process::getpgrp())
}

/// Restores the terminal mode, before the process ends or is stopped.
pub fn restore_mode() {
    if PROMPT_ACTIVE.load(Ordering::Acquire) || READS_KEYS.load(Ordering::Acquire) {
        set_bracketed_paste(false);
    }
    restore(&echo_state().0);
}

/// Whether a [`KeyReader`] reads keys.
static READS_KEYS: AtomicBool = AtomicBool::new(false);

/// Whether the editor of an abandoned prompt still reads the terminal.
static PROMPT_ABANDONED: AtomicBool = AtomicBool::new(false);

/// Sets whether the editor of an abandoned prompt still reads the terminal. No keys are read
/// meanwhile.
pub fn set_prompt_abandoned(is_abandoned: bool) {
    PROMPT_ABANDONED.store(is_abandoned, Ordering::Release);
}

/// Reads keys and pasted texts while echo is off. It must be dropped before a prompt is shown.
#[derive(Debug)]
pub struct KeyReader {
    parser: KeyParser,
}

impl KeyReader {
    /// Starts to read. Returns `None` if standard input is not a terminal or another reader exists.
    pub fn start() -> Option<Self> {
        let can_read = stdin().is_terminal()
            && !is_dumb()
            && is_foreground()
            && !PROMPT_ABANDONED.load(Ordering::Acquire)
            && !READS_KEYS.swap(true, Ordering::AcqRel);
        can_read.then(|| {
            set_bracketed_paste(true);
            Self {
                parser: KeyParser::default(),
            }
        })
    }

    /// Returns the keys since the last call. Does not wait.
    pub fn keys(&mut self) -> Vec<TypedKey> {
        let mut bytes = [0; 4096];
        let terminal = stdin();
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut polled = [PollFd::new(&terminal, PollFlags::IN)];
        // A background process that reads from the terminal would be stopped.
        let is_ready =
            is_foreground() && poll(&mut polled, Some(&now)).is_ok_and(|ready| ready > 0);
        // An error means that the terminal is gone.
        let length = if is_ready {
            read(&terminal, &mut bytes).unwrap_or(0)
        } else {
            0
        };
        self.parser.parse(&bytes[..length])
    }
}

impl Drop for KeyReader {
    fn drop(&mut self) {
        READS_KEYS.store(false, Ordering::Release);
        if is_foreground() {
            set_bracketed_paste(false);
        }
    }
}

/// Whether the terminal was asked to mark pasted text.
static HAS_MARKED_PASTES: AtomicBool = AtomicBool::new(false);

/// Ends the marks of pasted text once more, if there were any: see [`screen::restore_at_exit`].
///
/// [`screen::restore_at_exit`]: crate::screen::restore_at_exit
pub(crate) fn end_paste_marks_at_exit() {
    if HAS_MARKED_PASTES.load(Ordering::Acquire) && is_foreground() {
        set_bracketed_paste(false);
    }
}

/// Sets whether the terminal marks pasted text. The editor of a prompt requests it while it reads a
/// line.
fn set_bracketed_paste(is_on: bool) {
    if is_dumb() {
        return;
    }
    HAS_MARKED_PASTES.fetch_or(is_on, Ordering::AcqRel);
    let code = if is_on {
        "\u{1b}[?2004h"
    } else {
        "\u{1b}[?2004l"
    };
    let mut out = stdout();
    let mut err = stderr();
    let terminal: &mut dyn Write = if out.is_terminal() {
        &mut out
    } else {
        &mut err
    };
    // An error means that the terminal is gone.
    let _ = terminal
        .write_all(code.as_bytes())
        .and_then(|()| terminal.flush());
}

/// Returns whether the terminal cannot move its cursor, by `TERM`.
pub fn is_dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb")
}

/// Discards the keys that were pressed and not read yet.
pub fn discard_typed() {
    // An error means that there is no terminal.
    let _ = termios::tcflush(stdin(), QueueSelector::IFlush);
}

/// Whether a prompt is reading a line. Its editor sets a separate terminal mode.
static PROMPT_ACTIVE: AtomicBool = AtomicBool::new(false);

/// Sets whether a prompt is reading a line.
pub fn set_prompt_active(prompts: bool) {
    PROMPT_ACTIVE.store(prompts, Ordering::Release);
}

/// Returns the terminal mode while a prompt is reading a line, or `None` if no prompt is.
///
/// When an editor receives Ctrl-Z, it sends the signal with its own mode turned off and turns it on
/// again right after. This function waits up to one second for that.
pub async fn prompt_mode() -> Option<Termios> {
    if !PROMPT_ACTIVE.load(Ordering::Acquire) {
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

/// Turns off echo while an abandoned editor still waits for its line. Returns the terminal mode of
/// the editor.
pub fn suspend_prompt() -> Option<Termios> {
    let mode = termios::tcgetattr(stdin()).ok();
    // Start from the original mode: with the editor's mode, Ctrl-C sends no signal.
    restore_mode();
    set_prompt_active(false);
    reapply_echo_off();
    mode
}

/// Restores the terminal mode of a prompt that is reading a line.
pub fn resume_prompt(mode: &Termios) {
    // The editor restores the mode that it found at its start, which has echo turned off.
    reapply_echo_off();
    if is_foreground() {
        let _ = termios::tcsetattr(stdin(), OptionalActions::Now, mode);
        set_bracketed_paste(true);
    }
}

/// Turns off echo again if a guard exists, after the process was continued.
pub fn reapply_echo_off() {
    let mut echo = echo_state();
    if echo.1 > 0 {
        turn_off_echo(&mut echo.0);
    }
    if READS_KEYS.load(Ordering::Acquire) && is_foreground() {
        set_bracketed_paste(true);
    }
}

fn turn_off_echo(original: &mut Option<Termios>) {
    // A background process that changes the terminal mode would be stopped.
    if !is_foreground() {
        return;
    }
    let Ok(mode) = termios::tcgetattr(stdin()) else {
        return;
    };
    let mut changed = mode.clone();
    changed
        .local_modes
        .remove(LocalModes::ECHO | LocalModes::ICANON);
    // Otherwise an editor would read Enter, typed before its prompt, as Ctrl-J.
    changed.input_modes.remove(InputModes::ICRNL);
    original.get_or_insert(mode);
    let _ = termios::tcsetattr(stdin(), OptionalActions::Now, &changed);
}

fn restore(original: &Option<Termios>) {
    if let Some(mode) = original
        && is_foreground()
    {
        let _ = termios::tcsetattr(stdin(), OptionalActions::Now, mode);
    }
}
