//! Creates the pictures of the guide and of the README: runs the binary on a pseudo-terminal, types
//! keys, and writes the screens as SVG files.
//!
//! `cargo build --release && cargo run --release -p soong-bench --bin pictures -- bin/guide/pictures
//! [NAME]`
//!
//! The binary is `target/release/soong`, or the one that `SOONG_BINARY` names. Needs no key: the
//! demo uses the offline model, and a scripted model in this process answers the other runs.

#![allow(clippy::print_stdout, reason = "an example shows its result")]

#[path = "pictures/model.rs"]
mod model;
#[path = "pictures/svg.rs"]
mod svg;
#[path = "pictures/terminal.rs"]
mod terminal;

use std::path::{Path, PathBuf};

use self::{model::ScriptedModel, terminal::Terminal};

type Failed = Box<dyn std::error::Error>;

/// Folders and the model of all pictures. Later pictures show the sessions of earlier ones.
struct Setup {
    folder: PathBuf,
    binary: PathBuf,
    model: ScriptedModel,
}

/// A picture: its name, the number of rows and columns, the arguments of the binary, and the steps
/// that lead to it.
type Picture = (
    &'static str,
    (u16, u16),
    &'static [&'static str],
    fn(&mut Terminal) -> Result<(), Failed>,
);

const PICTURES: [Picture; 10] = [
    (
        "demo",
        (34, 100),
        &["demo", "--home", "demo-home"],
        |terminal| terminal.until(|shown| shown.contains("Next: ")),
    ),
    (
        "demo-kill",
        (48, 100),
        &["demo", "--kill", "--children", "10", "--home", "demo-home"],
        |terminal| terminal.until(|shown| shown.contains("repeated")),
    ),
    ("init", (20, 100), &["init"], |terminal| {
        terminal.until(|shown| shown.contains("number or name [1]:"))?;
        terminal.types("\r")?;
        terminal.until(|shown| shown.contains("wrote "))
    }),
    ("chat", (26, 100), &["chat"], |terminal| {
        ask(terminal, "What does this project do?")?;
        terminal.until(|shown| shown.contains("completed: "))?;
        terminal.types("\u{4}")
    }),
    ("permission", (24, 100), &["chat"], |terminal| {
        ask(terminal, "Add peas to the plan")?;
        terminal.until(|shown| shown.contains("allow"))
    }),
    (
        "transcript",
        (30, 100),
        &["chat", "--permission-mode", "edits"],
        |terminal| {
            ask(terminal, "Add peas to the plan")?;
            terminal.until(|shown| shown.contains("completed: "))
        },
    ),
    ("queue", (20, 100), &["chat"], |terminal| {
        ask(terminal, "Wait for the second message")?;
        terminal.until(|shown| shown.contains("type to queue"))?;
        terminal.types("And what is missing?\r")?;
        terminal.until(|shown| shown.contains("queued: "))
    }),
    ("sessions", (10, 100), &["sessions", "list"], |terminal| {
        terminal.until(|shown| shown.contains("What does"))
    }),
    (
        "traces",
        (34, 100),
        &["--home", "demo-home", "sessions", "show", "last"],
        |terminal| terminal.until(|shown| shown.contains("evaluator")),
    ),
    (
        "monitor",
        (36, 150),
        &[
            "demo",
            "--monitor",
            "--pace",
            "2s",
            "--children",
            "6",
            "--home",
            "demo-home",
        ],
        |terminal| {
            let children = |shown: &str| {
                shown
                    .lines()
                    .filter(|line| line.contains("explore Explore"))
                    .count()
            };
            terminal.until(|shown| children(shown) == 6)?;
            // Selects the second child and crashes its actor, which is restarted.
            terminal.types("\u{1b}[B\u{1b}[BK")?;
            terminal.until(|shown| shown.contains("Are you sure?"))?;
            terminal.types("y")?;
            terminal.until(|shown| shown.contains("was restarted"))
        },
    ),
];

/// Types a message at the prompt of a chat.
fn ask(terminal: &mut Terminal, message: &str) -> Result<(), Failed> {
    terminal.until(|shown| shown.contains("/help lists"))?;
    terminal.types(&format!("{message}\r"))
}

fn main() -> Result<(), Failed> {
    let mut arguments = std::env::args().skip(1);
    let target = PathBuf::from(arguments.next().ok_or("give the folder for the pictures")?);
    let only = arguments.next();
    let binary = std::env::var_os("SOONG_BINARY").unwrap_or_else(|| "target/release/soong".into());
    let binary = std::fs::canonicalize(&binary).map_err(|error| {
        format!(
            "{}: {error}: build it with cargo build --release",
            Path::new(&binary).display()
        )
    })?;
    // The pictures show its name.
    let folder = std::env::temp_dir().join("pictures");
    std::fs::create_dir(&folder)?;
    std::fs::create_dir_all(&target)?;
    let setup = Setup {
        folder,
        binary,
        model: ScriptedModel::start()?,
    };
    let created = PICTURES
        .iter()
        .filter(|(name, ..)| only.as_deref().is_none_or(|only| only == *name))
        .try_for_each(|picture| setup.create(picture, &target));
    std::fs::remove_dir_all(&setup.folder)?;
    created
}

impl Setup {
    /// Creates one picture.
    fn create(
        &self,
        (name, size, arguments, steps): &Picture,
        target: &Path,
    ) -> Result<(), Failed> {
        let project = self.project()?;
        let mut terminal = Terminal::start(
            &self.binary,
            arguments,
            *size,
            &project,
            &self.folder,
            &self.model.address,
        )?;
        steps(&mut terminal).map_err(|error| format!("{name}: {error}"))?;
        std::fs::write(
            target.join(format!("{name}.svg")),
            svg::draw(terminal.screen()),
        )?;
        println!("{name}.svg");
        Ok(())
    }

    /// Creates the project that the pictures show, as it is before each picture.
    fn project(&self) -> Result<PathBuf, Failed> {
        let project = self.folder.join("garden");
        std::fs::create_dir_all(project.join("src"))?;
        std::fs::write(
            project.join("README.md"),
            "# Garden\n\nPlans beds, and counts what grows.\n",
        )?;
        std::fs::write(
            project.join("plan.md"),
            "# Plan\n\n- beans in April\n- kale in May\n",
        )?;
        std::fs::write(
            project.join("src/main.rs"),
            "//! Counts what grows.\nfn main() {}\n",
        )?;
        Ok(project)
    }
}
