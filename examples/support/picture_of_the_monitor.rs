//! Creates the README's picture of the monitor: runs a demo on a pseudo-terminal, crashes the actor of a child run so
//! that it is restarted, and prints the screen as SVG.
//!
//! `cargo build --release && cargo run --release -p soong --example picture_of_the_monitor > examples/monitor.svg`
//!
//! The binary is `target/release/soong`, or the one that `SOONG_BINARY` names. Needs no key.

#![allow(clippy::print_stdout, reason = "an example shows its result")]

use std::{
    fmt::Write as _,
    io::{Read, Write},
    num::NonZeroU16,
    path::{Path, PathBuf},
    process::Child,
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

use pty_process::{
    Size,
    blocking::{Command, Pty, open},
};
use vt100::{Cell, Color, Parser};

type Failed = Box<dyn std::error::Error>;

const ROWS: u16 = 32;
const COLUMNS: u16 = 128;
/// Size of a cell in the picture, in pixels.
const CELL: (f64, f64) = (8.4, 17.0);
/// Maximum wait for anything.
const PATIENCE: Duration = Duration::from_secs(60);
/// The sixteen colors of a terminal.
const COLORS: [&str; 16] = [
    "#1c1f26", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#d7dae0", "#5c6370", "#e06c75",
    "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#ffffff",
];
const PAPER: &str = "#1c1f26";
const INK: &str = "#d7dae0";

/// The demo with its monitor, and its screen. Killed when dropped.
struct DemoTerminal {
    child: Child,
    pty: std::sync::Arc<Pty>,
    written: Receiver<Vec<u8>>,
    screen: Parser,
}

impl Drop for DemoTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl DemoTerminal {
    fn take(project: &Path, home: &Path) -> Result<Self, Failed> {
        let binary = std::env::var_os("SOONG_BINARY").unwrap_or_else(|| "target/release/soong".into());
        let binary = std::fs::canonicalize(PathBuf::from(&binary))
            .map_err(|error| format!("{}: {error}: build it with cargo build --release", binary.display()))?;
        let (pty, pts) = open()?;
        pty.resize(Size::new(ROWS, COLUMNS))?;
        let command = Command::new(binary)
            .args(["demo", "--monitor", "--pace", "3s", "--children", "6", "--home", "soong-home"])
            .arg(project)
            .env_clear()
            .env("HOME", home)
            .env("LANG", "C.UTF-8")
            .env("TERM", "xterm-256color")
            // Relative paths, so that the picture shows no folders of this machine.
            .current_dir(home);
        let child = command.spawn(pts)?;
        let pty = std::sync::Arc::new(pty);
        let (tell, written) = mpsc::channel();
        let from = std::sync::Arc::clone(&pty);
        std::thread::spawn(move || {
            let mut buffer = [0; 65_536];
            while let Ok(read @ 1..) = (&*from).read(&mut buffer) {
                if tell.send(buffer[..read].to_vec()).is_err() {
                    return;
                }
            }
        });
        let cells = |n: u16| NonZeroU16::new(n).ok_or("a screen has cells");
        Ok(Self { child, pty, written, screen: Parser::new(cells(ROWS)?, cells(COLUMNS)?, 0) })
    }

    fn shows(&self) -> String {
        self.screen.screen().contents()
    }

    /// Waits until the screen meets a condition.
    fn until(&mut self, what: impl Fn(&str) -> bool) -> Result<(), Failed> {
        let begun = Instant::now();
        while !what(&self.shows()) {
            match self.written.recv_timeout(Duration::from_millis(100)) {
                Ok(bytes) => self.screen.process(&bytes),
                Err(RecvTimeoutError::Timeout) if begun.elapsed() < PATIENCE => {}
                Err(_) => return Err(format!("timed out; the screen shows:\n{}", self.shows()).into()),
            }
        }
        Ok(())
    }

    fn types(&self, keys: &str) -> Result<(), Failed> {
        Ok((&*self.pty).write_all(keys.as_bytes())?)
    }
}

fn main() -> Result<(), Failed> {
    let dir = std::env::temp_dir().join(format!("soong-picture-{}", std::process::id()));
    let project = std::env::current_dir()?;
    std::fs::create_dir_all(&dir)?;
    let picture = capture(&project, &dir);
    std::fs::remove_dir_all(&dir)?;
    println!("{}", picture?);
    Ok(())
}

fn capture(project: &Path, home: &Path) -> Result<String, Failed> {
    let mut seat = DemoTerminal::take(project, home)?;
    let children = |shown: &str| shown.lines().filter(|line| line.contains("explore Explore")).count();
    seat.until(|shown| children(shown) == 6 && shown.contains("6 of 6 children"))?;
    // Selects the second child and crashes its actor, which is restarted.
    seat.types("\u{1b}[B\u{1b}[BK")?;
    seat.until(|shown| shown.contains("to see it come back?"))?;
    seat.types("y")?;
    seat.until(|shown| shown.contains("crashed and came back") && !shown.contains("was made to crash"))?;
    let picture = svg(&seat.screen);
    seat.types("\u{3}")?;
    seat.until(|shown| shown.contains("The run has ended"))?;
    Ok(picture)
}

/// Draws the screen. Adjacent cells of the same style form one text element.
fn svg(screen: &Parser) -> String {
    let screen = screen.screen();
    let (width, height) = (f64::from(COLUMNS) * CELL.0 + 24.0, f64::from(ROWS) * CELL.1 + 24.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" font-size=\"14\" \
         font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{PAPER}\"/>\n"
    );
    for row in 0..ROWS {
        let mut column = 0;
        while column < COLUMNS {
            let begin = column;
            let looks = screen.cell(row, column).map(look).unwrap_or_default();
            let mut text = String::new();
            while let Some(cell) = screen.cell(row, column).filter(|cell| look(cell) == looks) {
                text.push_str(if cell.has_contents() { cell.contents() } else { " " });
                column += 1 + u16::from(cell.is_wide());
            }
            draw(&mut svg, (begin, row), column - begin, &text, &looks);
        }
    }
    svg.push_str("</svg>");
    svg
}

/// Style of a cell.
#[derive(Debug, Default, PartialEq)]
struct CellStyle {
    color: &'static str,
    bold: bool,
    dim: bool,
    underlined: bool,
    inverse: bool,
}

fn look(cell: &Cell) -> CellStyle {
    let color = match cell.fgcolor() {
        Color::Idx(color) => COLORS[usize::from(color) % COLORS.len()],
        Color::Default | Color::Rgb(..) => INK,
    };
    CellStyle { color, bold: cell.bold(), dim: cell.dim(), underlined: cell.underline(), inverse: cell.inverse() }
}

fn draw(svg: &mut String, (column, row): (u16, u16), columns: u16, text: &str, look: &CellStyle) {
    let (x, y) = (f64::from(column) * CELL.0 + 12.0, f64::from(row) * CELL.1 + 12.0);
    let wide = f64::from(columns) * CELL.0;
    if look.inverse {
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{wide:.1}\" height=\"{}\" fill=\"{}\"/>",
            CELL.1, look.color
        );
    }
    if text.trim().is_empty() {
        return;
    }
    let color = if look.inverse { PAPER } else { look.color };
    let weight = if look.bold { " font-weight=\"bold\"" } else { "" };
    let dim = if look.dim && !look.inverse { " opacity=\"0.6\"" } else { "" };
    let line = if look.underlined { " text-decoration=\"underline\"" } else { "" };
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let base = y + CELL.1 * 0.76;
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{base:.1}\" fill=\"{color}\" textLength=\"{wide:.1}\" xml:space=\"preserve\"{weight}{dim}{line}>{text}</text>"
    );
}
