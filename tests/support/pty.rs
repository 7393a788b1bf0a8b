//! Runs the real binary on a pseudo-terminal: what a user would see on the screen, and what the
//! user types.
//!
//! A terminal emulator processes everything that the process writes. Tests wait for its screen
//! content.
#![allow(dead_code, reason = "no suite uses all of it")]

use std::{
    io::{Read, Write},
    num::NonZeroU16,
    path::Path,
    process::Child,
    sync::{Arc, Condvar, Mutex},
    time::{Duration, Instant},
};

use pty_process::{
    Size,
    blocking::{Command, Pty, open},
};

use rustix::{
    process::{Pid, Signal, WaitOptions, kill_process, waitpid},
    termios::{InputModes, LocalModes, Termios},
};

use super::process::{TIMEOUT, TestHome};

/// Number of rows that the emulator keeps after they have scrolled off.
const SCROLLBACK: usize = 2_000;

/// A process on a pseudo-terminal. Killed when dropped.
pub(crate) struct TestTerminal {
    pub(crate) child: Child,
    pty: Arc<Pty>,
    shown: Arc<ScreenState>,
}

struct ScreenState {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    emulator: vt100::Parser,
    /// All bytes written by the process.
    written: Vec<u8>,
    /// Whether the process has closed the terminal.
    closed: bool,
}

impl Drop for TestTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn cells(n: u16) -> NonZeroU16 {
    NonZeroU16::new(n).unwrap()
}

impl TestTerminal {
    /// Starts `soong` on a terminal of this size, in the world's folders and environment.
    pub(crate) fn start(
        world: &TestHome,
        args: &[&str],
        (rows, columns): (u16, u16),
        more: &[(&str, &str)],
    ) -> Self {
        let (pty, pts) = open().unwrap();
        pty.resize(Size::new(rows, columns)).unwrap();
        let folder = |name: &str| world.dir.path().join(name);
        let command = Command::new(Path::new(env!("CARGO_BIN_EXE_soong")))
            .args(args)
            .env_clear()
            .env("HOME", folder("user"))
            .env("TMPDIR", folder("tmp"))
            .env("LANG", "C.UTF-8")
            .env("TERM", "xterm-256color")
            .env("SOONG_AGENT_HOME", world.home())
            .envs(more.iter().copied())
            .current_dir(world.project());
        let child = command.spawn(pts).unwrap();
        let emulator = vt100::Parser::new(cells(rows), cells(columns), SCROLLBACK);
        let state = State {
            emulator,
            written: Vec::new(),
            closed: false,
        };
        let shown = Arc::new(ScreenState {
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let pty = Arc::new(pty);
        let screen = Arc::clone(&shown);
        let from = Arc::clone(&pty);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            loop {
                let read = (&*from).read(&mut buffer).unwrap_or(0);
                let mut state = screen.state.lock().unwrap();
                state.emulator.process(&buffer[..read]);
                state.written.extend_from_slice(&buffer[..read]);
                state.closed = read == 0;
                screen.changed.notify_all();
                if read == 0 {
                    return;
                }
            }
        });
        Self { child, pty, shown }
    }

    /// Types keys.
    pub(crate) fn type_keys(&self, keys: &str) {
        (&*self.pty).write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the screen meets a condition, and returns its rows.
    #[track_caller]
    pub(crate) fn wait_for(&self, what: &str, is_there: impl Fn(&[String]) -> bool) -> Vec<String> {
        self.until(what, |state| is_there(&rows(state)))
    }

    /// Waits until the cursor is visible.
    #[track_caller]
    pub(crate) fn wait_for_cursor(&self) {
        self.until("the cursor", |state| !state.emulator.screen().hide_cursor());
    }

    #[track_caller]
    fn until(&self, what: &str, is_there: impl Fn(&State) -> bool) -> Vec<String> {
        let deadline = Instant::now() + TIMEOUT;
        let mut state = self.shown.state.lock().unwrap();
        while !is_there(&state) {
            let left = deadline.saturating_duration_since(Instant::now());
            let screen = rows(&state).join("\n");
            assert!(
                !left.is_zero() && !state.closed,
                "{what} does not come; there is:\n{screen}"
            );
            state = self.shown.changed.wait_timeout(state, left).unwrap().0;
        }
        rows(&state)
    }

    /// Waits until a row of the screen contains a text.
    #[track_caller]
    pub(crate) fn wait_for_text(&self, text: &str) -> Vec<String> {
        self.wait_for(&format!("{text:?}"), |rows| {
            rows.iter().any(|row| row.contains(text))
        })
    }

    /// Waits until no row of the screen contains a text.
    #[track_caller]
    pub(crate) fn wait_until_gone(&self, text: &str) -> Vec<String> {
        self.wait_for(&format!("the end of {text:?}"), |rows| {
            !rows.iter().any(|row| row.contains(text))
        })
    }

    /// Changes the size of the terminal.
    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        let mut state = self.shown.state.lock().unwrap();
        state.emulator.set_size(cells(rows), cells(columns));
        self.pty.resize(Size::new(rows, columns)).unwrap();
        state.written.clear();
    }

    /// Returns whether the cursor is hidden.
    pub(crate) fn hides_cursor(&self) -> bool {
        self.shown
            .state
            .lock()
            .unwrap()
            .emulator
            .screen()
            .hide_cursor()
    }

    /// Returns whether any cell of the screen has a color.
    pub(crate) fn has_colors(&self) -> bool {
        let state = self.shown.state.lock().unwrap();
        let screen = state.emulator.screen();
        let (rows, columns) = screen.size();
        let is_coloured = |row, column| {
            screen
                .cell(row, column)
                .is_some_and(|cell| cell.fgcolor() != vt100::Color::Default)
        };
        (0..rows.get()).any(|row| (0..columns.get()).any(|column| is_coloured(row, column)))
    }

    /// Returns the number of bytes written so far.
    pub(crate) fn written(&self) -> usize {
        self.shown.state.lock().unwrap().written.len()
    }

    /// Waits until the terminal has its usual modes (echo, line by line, signals) and shows the
    /// cursor.
    #[track_caller]
    pub(crate) fn wait_until_restored(&self) {
        let usual = LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
        self.wait_for_modes(|modes, is_cursor_hidden| {
            modes.local_modes.contains(usual)
                && modes.input_modes.contains(InputModes::ICRNL)
                && !is_cursor_hidden
        });
    }

    /// Waits until an editor has set its modes. Keys that are typed before are translated: Enter
    /// becomes a line feed.
    #[track_caller]
    pub(crate) fn wait_until_edited(&self) {
        self.wait_for_modes(|modes, _| !modes.local_modes.contains(LocalModes::ISIG));
    }

    #[track_caller]
    fn wait_for_modes(&self, are_set: impl Fn(&Termios, bool) -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        // A change of the terminal modes causes no notification, so they are polled.
        let mut state = self.shown.state.lock().unwrap();
        loop {
            let modes = rustix::termios::tcgetattr(&*self.pty).unwrap();
            if are_set(&modes, state.emulator.screen().hide_cursor()) {
                return;
            }
            let screen = rows(&state).join("\n");
            assert!(
                Instant::now() < deadline,
                "the terminal has other modes: {modes:?}; there is:\n{screen}"
            );
            state = self
                .shown
                .changed
                .wait_timeout(state, Duration::from_millis(5))
                .unwrap()
                .0;
        }
    }

    /// Waits until the process has stopped itself, as after Ctrl-Z in a shell.
    #[track_caller]
    pub(crate) fn wait_until_stopped(&self) {
        let deadline = Instant::now() + TIMEOUT;
        let pid = Pid::from_child(&self.child);
        let now = WaitOptions::UNTRACED | WaitOptions::NOHANG;
        let mut state = self.shown.state.lock().unwrap();
        while !waitpid(Some(pid), now)
            .unwrap()
            .is_some_and(|(_, status)| status.stopped())
        {
            assert!(
                Instant::now() < deadline,
                "it does not stop; there is:\n{}",
                rows(&state).join("\n")
            );
            state = self
                .shown
                .changed
                .wait_timeout(state, Duration::from_millis(5))
                .unwrap()
                .0;
        }
    }

    /// Sends a signal to the process.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until the process has ended. Returns the exit code and all rows, also the rows that
    /// scrolled off.
    #[track_caller]
    pub(crate) fn wait_for_exit(mut self) -> (Option<i32>, Vec<String>) {
        let deadline = Instant::now() + TIMEOUT;
        let mut state = self.shown.state.lock().unwrap();
        while !state.closed {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero(),
                "it does not end; there is:\n{}",
                rows(&state).join("\n")
            );
            state = self.shown.changed.wait_timeout(state, left).unwrap().0;
        }
        let screen = state.emulator.screen();
        let left = [
            ("a hidden cursor", screen.hide_cursor()),
            ("marks of pasted text", screen.bracketed_paste()),
            ("the other screen", screen.alternate_screen()),
        ];
        for (what, is_left) in left {
            let rows = rows(&state).join("\n");
            assert!(
                !is_left,
                "the terminal is left with {what}; there is:\n{rows}"
            );
        }
        let all = all_rows(&mut state);
        drop(state);
        let status = self.child.wait().unwrap();
        self.wait_until_restored();
        (status.code(), all)
    }
}

fn rows(state: &State) -> Vec<String> {
    let screen = state.emulator.screen();
    let (_, columns) = screen.size();
    screen
        .rows(0, columns.get())
        .map(|row| row.trim_end().to_owned())
        .collect()
}

/// Returns the rows that scrolled off, then the rows of the screen.
fn all_rows(state: &mut State) -> Vec<String> {
    let mut all = Vec::new();
    state.emulator.screen_mut().set_scrollback(usize::MAX);
    let mut back = state.emulator.screen().scrollback();
    while back > 0 {
        state.emulator.screen_mut().set_scrollback(back);
        all.extend(rows(state).into_iter().take(1));
        back -= 1;
    }
    state.emulator.screen_mut().set_scrollback(0);
    all.extend(rows(state));
    all
}
