//! A panic while the monitor controls the terminal: the terminal is restored before the message is
//! printed.

use std::{
    io::Read,
    process::{Child, Stdio},
};

use pty_process::{
    Size,
    blocking::{Command, open},
};
use soong_tui::tty::{Tty, is_taken};

/// Set for the child process of the test below, which panics.
const PANICS: &str = "SOONG_TEST_PANICS_IN_THE_MONITOR";

#[test]
fn panic_restores_the_terminal_before_reporting() {
    if std::env::var_os(PANICS).is_some() {
        crate::panic::report();
        let _tty = Tty::take().unwrap();
        assert!(is_taken());
        panic!("on purpose");
    }
    let (mut pty, pts) = open().unwrap();
    pty.resize(Size::new(24, 80)).unwrap();
    let name = concat!(
        module_path!(),
        "::panic_restores_the_terminal_before_reporting"
    );
    let name = name.split_once("::").unwrap().1;
    let command = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(PANICS, "1")
        .env("TERM", "xterm-256color")
        .stdout(Stdio::null());
    let mut child: Child = command.spawn(pts).unwrap();
    let mut written = Vec::new();
    // The terminal closes with its process, so an error is expected here.
    let _ = pty.read_to_end(&mut written);
    assert!(!child.wait().unwrap().success());
    let written = String::from_utf8_lossy(&written);
    let position_of = |part: &str| {
        written
            .find(part)
            .unwrap_or_else(|| panic!("{part:?} is missing in {written:?}"))
    };
    let entered = position_of("\u{1b}[?1049h");
    let left = position_of("\u{1b}[?1049l");
    assert!(
        entered < left
            && left < position_of("\u{1b}[?25h")
            && left < position_of("soong crashed: on purpose"),
        "{written:?}"
    );
    assert_eq!(
        written.matches("\u{1b}[?1049l").count(),
        1,
        "it is given back once: {written:?}"
    );
}
