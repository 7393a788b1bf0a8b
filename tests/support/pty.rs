//! The real binary on a terminal: what a person would see on the screen, and what they type.
//!
//! The screen is that of a terminal emulator, fed with everything that the process writes. Tests
//! wait for what it shows.
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
    termios::LocalModes,
};

use super::process::{PATIENCE, World};

/// How many rows that scrolled away are remembered.
const SCROLLBACK: usize = 2_000;

/// A process on a terminal; killed if the test leaves it behind.
pub(crate) struct Seat {
    pub(crate) child: Child,
    pty: Arc<Pty>,
    shown: Arc<Shown>,
}

struct Shown {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    emulator: vt100::Parser,
    /// Everything that was written.
    written: Vec<u8>,
    /// Whether the process has closed its end.
    closed: bool,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn cells(n: u16) -> NonZeroU16 {
    NonZeroU16::new(n).unwrap()
}

impl Seat {
    /// Starts `soong` on a terminal of this size, in the world's folders and environment.
    pub(crate) fn take(world: &World, args: &[&str], (rows, columns): (u16, u16), more: &[(&str, &str)]) -> Self {
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
        let state = State { emulator, written: Vec::new(), closed: false };
        let shown = Arc::new(Shown { state: Mutex::new(state), changed: Condvar::new() });
        let pty = Arc::new(pty);
        let (screen, from) = (Arc::clone(&shown), Arc::clone(&pty));
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

    /// Types.
    pub(crate) fn types(&self, keys: &str) {
        (&*self.pty).write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the screen shows something, and returns its rows.
    #[track_caller]
    pub(crate) fn waits(&self, what: &str, is_there: impl Fn(&[String]) -> bool) -> Vec<String> {
        self.until(what, |state| is_there(&rows(state)))
    }

    /// Waits until the cursor shows.
    #[track_caller]
    pub(crate) fn shows_cursor(&self) {
        self.until("the cursor", |state| !state.emulator.screen().hide_cursor());
    }

    #[track_caller]
    fn until(&self, what: &str, is_there: impl Fn(&State) -> bool) -> Vec<String> {
        let deadline = Instant::now() + PATIENCE;
        let mut state = self.shown.state.lock().unwrap();
        while !is_there(&state) {
            let left = deadline.saturating_duration_since(Instant::now());
            let there = rows(&state).join("\n");
            assert!(!left.is_zero() && !state.closed, "{what} does not come; there is:\n{there}");
            state = self.shown.changed.wait_timeout(state, left).unwrap().0;
        }
        rows(&state)
    }

    /// Waits until a row of the screen holds a text.
    #[track_caller]
    pub(crate) fn sees(&self, text: &str) -> Vec<String> {
        self.waits(&format!("{text:?}"), |rows| rows.iter().any(|row| row.contains(text)))
    }

    /// Waits until no row of the screen holds a text.
    #[track_caller]
    pub(crate) fn misses(&self, text: &str) -> Vec<String> {
        self.waits(&format!("the end of {text:?}"), |rows| !rows.iter().any(|row| row.contains(text)))
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
        self.shown.state.lock().unwrap().emulator.screen().hide_cursor()
    }

    /// Returns whether anything on the screen has a colour.
    pub(crate) fn colours(&self) -> bool {
        let state = self.shown.state.lock().unwrap();
        let screen = state.emulator.screen();
        let (rows, columns) = screen.size();
        let is_coloured =
            |row, column| screen.cell(row, column).is_some_and(|cell| cell.fgcolor() != vt100::Color::Default);
        (0..rows.get()).any(|row| (0..columns.get()).any(|column| is_coloured(row, column)))
    }

    /// Returns how many bytes were written so far.
    pub(crate) fn written(&self) -> usize {
        self.shown.state.lock().unwrap().written.len()
    }

    /// Waits until the terminal is as a shell leaves it: what is typed shows, a line at a time.
    #[track_caller]
    pub(crate) fn is_given_back(&self) {
        let deadline = Instant::now() + PATIENCE;
        let usual = LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
        // Nobody tells of a change of modes: they are looked at again and again.
        let mut state = self.shown.state.lock().unwrap();
        loop {
            let modes = rustix::termios::tcgetattr(&*self.pty).unwrap().local_modes;
            if modes.contains(usual) && !state.emulator.screen().hide_cursor() {
                return;
            }
            let there = rows(&state).join("\n");
            assert!(Instant::now() < deadline, "the terminal is not given back: {modes:?}; there is:\n{there}");
            state = self.shown.changed.wait_timeout(state, Duration::from_millis(5)).unwrap().0;
        }
    }

    /// Waits until the process has stopped itself, as a shell does before it has it go on.
    #[track_caller]
    pub(crate) fn is_stopped(&self) {
        let deadline = Instant::now() + PATIENCE;
        let (pid, now) = (Pid::from_child(&self.child), WaitOptions::UNTRACED | WaitOptions::NOHANG);
        let mut state = self.shown.state.lock().unwrap();
        while !waitpid(Some(pid), now).unwrap().is_some_and(|(_, status)| status.stopped()) {
            assert!(Instant::now() < deadline, "it does not stop; there is:\n{}", rows(&state).join("\n"));
            state = self.shown.changed.wait_timeout(state, Duration::from_millis(5)).unwrap().0;
        }
    }

    /// Sends a signal to the process.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for the end; returns the exit code and all rows, those that scrolled away too.
    #[track_caller]
    pub(crate) fn leaves(mut self) -> (Option<i32>, Vec<String>) {
        let deadline = Instant::now() + PATIENCE;
        let mut state = self.shown.state.lock().unwrap();
        while !state.closed {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "it does not end; there is:\n{}", rows(&state).join("\n"));
            state = self.shown.changed.wait_timeout(state, left).unwrap().0;
        }
        assert!(!state.emulator.screen().hide_cursor(), "the cursor stays hidden");
        let all = all_rows(&mut state);
        drop(state);
        let status = self.child.wait().unwrap();
        self.is_given_back();
        (status.code(), all)
    }
}

fn rows(state: &State) -> Vec<String> {
    let screen = state.emulator.screen();
    let (_, columns) = screen.size();
    screen.rows(0, columns.get()).map(|row| row.trim_end().to_owned()).collect()
}

/// Returns what scrolled away and then what is on the screen.
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
