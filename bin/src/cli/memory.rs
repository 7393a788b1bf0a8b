//! Options of `skills` and `experiences`.

use std::path::PathBuf;

use clap::Subcommand;

/// Options of `skills`.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
A file skills/*.md of the home is a skill: front matter between two lines `---`, its text below. Of
one name, a file of the home stands in for what is built in. A project may hold further ones, in its
own folder skills/: they are told only where somebody names them, and change nothing else.

What an agent is told from the beginning: the skills that its caller names, else those of its
preset, else all that are built in. The others are listed to it; it loads them with `skill`.

Example, skills/house-style.md:
  ---
  name: house-style
  description: How code looks here.
  ---
  Names are words. Comments say why.")]
pub(crate) enum Skills {
    /// List all skills: built-in, of the home, of the project
    #[command(after_help = "\
Why a file of the project is left out is said on standard error.

Examples:
  soong skills list
  soong skills list --path ../shop")]
    List {
        /// Project folder [default: the current folder]
        #[arg(long, value_name = "DIR")]
        path: Option<PathBuf>,
    },
    /// Print the text of a skill
    #[command(after_help = "\
Examples:
  soong skills show planning")]
    Show {
        /// Name of the skill
        name: String,
        /// Project folder [default: the current folder]
        #[arg(long, value_name = "DIR")]
        path: Option<PathBuf>,
    },
}

/// Options of `experiences`.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
They lie in one file, memory/experiences.md of the home (memory.experiences_path): blocks of front
matter and text. Edit it as you like; what cannot be read is left alone, and named by `list`.

Example of a block:
  ---
  id: ex_001
  tags: {intent: [fix-test], state: [rust]}
  metrics: {helpful: 1, harmful: 0}
  ---
  Run the failing test alone first.")]
pub(crate) enum Experiences {
    /// List experiences in file order; with tags only matching ones, the best first
    #[command(after_help = "\
Examples:
  soong experiences list
  soong experiences list --intent fix-test --state rust")]
    List {
        /// Tag of the intent of a task; can be given several times
        #[arg(long, value_name = "TAG")]
        intent: Vec<String>,
        /// Tag of the situation of a task; can be given several times
        #[arg(long, value_name = "TAG")]
        state: Vec<String>,
    },
    /// Show an experience
    #[command(after_help = "\
Examples:
  soong experiences show ex_001")]
    Show {
        /// Id of the experience, as `soong experiences list` shows it
        id: String,
    },
}
