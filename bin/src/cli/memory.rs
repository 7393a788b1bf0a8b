//! Options of `skills` and `experiences`.

use std::path::PathBuf;

use clap::Subcommand;

/// Options of `skills`.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
Each file skills/NAME.md or skills/NAME/SKILL.md in the home is a skill: front matter between two
lines `---`, then its text. It replaces a built-in skill of the same name. A project can add skills
in its own folder skills/. They replace no other skill, and are used only if a caller, a preset or
the agent names them.

The system prompt of an agent lists the skills; the agent loads their text with the tool `skill`.
It loads the skills that its caller names, else the skills of its preset, before it starts. An agent
without the tool has the text of these skills in its system prompt.

Example, skills/house-style.md:
  ---
  name: house-style
  description: How code looks here.
  ---
  Names are words. Comments say why.")]
pub(crate) enum Skills {
    /// List the skills: built-in, of the home and of the project
    #[command(after_help = "\
Files of the project that are ignored are listed on standard error, with the reason.

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
Experiences are lessons for later runs. They are stored in one file, memory/experiences.md in the
home (setting memory.experiences_path), as blocks of front matter and text. You can edit the file.
Blocks with errors are kept, and `list` reports them.

Example of a block:
  ---
  id: ex_001
  tags: {intent: [fix-test], state: [rust]}
  metrics: {helpful: 1, harmful: 0}
  ---
  Run the failing test alone first.")]
pub(crate) enum Experiences {
    /// List the experiences; with tags, only the matching ones, best first
    #[command(after_help = "\
Examples:
  soong experiences list
  soong experiences list --intent fix-test --state rust")]
    List {
        /// Tag for the intent of a task; can be given several times
        #[arg(long, value_name = "TAG")]
        intent: Vec<String>,
        /// Tag for the environment of a task; can be given several times
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
