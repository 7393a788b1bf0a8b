//! The command line `soong`: parses it, runs one command and reports its result.
//!
//! A library, so that it is compiled while the crates that it uses are still being optimized: cargo
//! begins to compile a binary only after all its libraries are complete. It has one public
//! function.
//!
//! Architecture invariant: only this crate prints, and only it reads the command line and the
//! terminal.
//!
//! Not in this module: the runtime itself, which is the library `soong`.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the one crate whose job is to print"
)]

mod builtin_tools;
mod cli;
mod command;
mod complete;
mod config;
mod context;
mod disk_home;
mod event_sentences;
mod exit;
mod export;
mod file;
mod guide;
mod input;
mod interrupt;
mod line_progress;
mod log;
mod message_marks;
mod monitor;
mod offline_store;
mod owner;
mod pager;
mod panic;
mod print;
mod progress;
mod prompts;
mod reference;
mod report;
mod secret;
mod service;
mod slow_step;
mod source;
mod staged_dir;
#[cfg(feature = "otlp")]
mod telemetry;
mod watch;

/// Runs the command of this process's arguments.
pub fn main() -> std::process::ExitCode {
    panic::report();
    complete::answer();
    // Called before any secret is read. If it fails, everything works, but programs of the same
    // user can read the memory.
    if let Err(error) = soong_sandbox::protect_owner() {
        eprintln!("warning: the memory of this process is not protected: {error}");
    }
    let cli = cli::Cli::of_process();
    let terminal = soong_tui::terminal::Terminal::detect(
        &soong::Environment::from_process(),
        cli.global.color,
    );
    let ended = command::run(cli, &terminal);
    #[cfg(feature = "otlp")]
    telemetry::finish();
    let code = match ended {
        Ok(exit) => exit.into(),
        Err(failure) => print::failure(&failure, &terminal),
    };
    soong_tui::screen::restore_at_exit();
    code
}
