//! Options of `artifacts`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand, builder::NonEmptyStringValueParser};

use super::{duration, number_parser};

/// Session whose artifacts a command uses.
#[derive(Debug, Args)]
pub(crate) struct SessionArg {
    /// Session of the artifacts [default: the last session of this project folder]
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) session: Option<String>,
}

/// Options of `artifacts`.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
An artifact is called by its name in its session, one of the user's, seen from all sessions, by
user:NAME, and one without a name by its id.")]
pub(crate) enum Artifacts {
    /// List the artifacts of a session and of its user
    #[command(after_help = "\
A version with * has edits that are no stored version yet.

Examples:
  soong artifacts list
  soong artifacts list --session ID --json")]
    List {
        #[command(flatten)]
        of: SessionArg,
    },
    /// Show an artifact: its record, its stored versions and the beginning of its text
    #[command(after_help = "\
Examples:
  soong artifacts show report")]
    Show {
        /// Artifact: its name, user:NAME, or its id
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
        #[command(flatten)]
        of: SessionArg,
    },
    /// Get the bytes of an artifact: its current content or a stored version
    #[command(disable_version_flag = true)]
    #[command(after_help = "\
The bytes go to standard output; what is no text is not printed on a terminal. With -o, a file that
is there is replaced, once everything has come.

Examples:
  soong artifacts get report > report.md
  soong artifacts get chart.png --version 2 -o chart.png")]
    Get {
        /// Artifact: its name, user:NAME, or its id
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
        /// Stored version [default: the current content, including unsaved edits]
        #[arg(long, value_name = "N", value_parser = number_parser::<u64>(0..=u64::MAX))]
        version: Option<u64>,
        /// Write to this file
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        #[command(flatten)]
        of: SessionArg,
    },
    /// Store a file as the next version of an artifact
    #[command(after_help = "\
The content type is guessed from the file's name, else from the artifact's, unless you say it. It
decides what counts as text: text can be edited, and is shown to agents.

Examples:
  soong artifacts put notes.md notes.md
  git diff | soong artifacts put diff - --content-type text/plain
  soong artifacts put user:style style.md")]
    Put {
        /// Artifact: its name, or user:NAME
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
        /// File to store; `-` reads standard input
        file: PathBuf,
        /// Content type, such as text/markdown [default: by name, else application/octet-stream]
        #[arg(long, value_name = "TYPE")]
        content_type: Option<String>,
        #[command(flatten)]
        of: SessionArg,
    },
    /// Replace a passage of a text and store the next version immediately
    #[command(after_help = "\
The text is looked for as it is given; else but for quotes, dashes and spaces; else the one passage
that is most like it, and it is said how like. Where it is not there, or more than once, nothing is
changed (exit code 4).

Examples:
  soong artifacts edit report --old \"in spring\" --new \"in autumn\"")]
    Edit {
        /// Artifact: its name, or user:NAME
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
        /// Text to replace
        #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
        old: String,
        /// Replacement text; may be empty
        #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
        new: String,
        #[command(flatten)]
        of: SessionArg,
    },
    /// List the stored versions of an artifact and the origin of each
    #[command(after_help = "\
Examples:
  soong artifacts versions report")]
    Versions {
        /// Artifact: its name, user:NAME, or its id
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
        #[command(flatten)]
        of: SessionArg,
    },
    /// Export the last stored version of a text as a Word file (.docx)
    #[command(after_help = "\
Markdown is drawn: headings, lists, tables, code, links. Any other text stands as it is.

Examples:
  soong artifacts export report -o report.docx")]
    Export {
        /// Artifact: its name, user:NAME, or its id
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
        /// File to write; its name must end in .docx
        #[arg(short, long, value_name = "FILE.docx")]
        output: PathBuf,
        #[command(flatten)]
        of: SessionArg,
    },
    /// Delete an artifact and all its versions
    #[command(after_help = "\
Nothing is asked, and nothing brings it back.

Examples:
  soong artifacts delete draft")]
    Delete {
        /// Artifact: its name, user:NAME, or its id
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
        #[command(flatten)]
        of: SessionArg,
    },
    /// List the artifacts of all sessions that can be deleted, and delete them with --yes
    #[command(after_help = "\
Without --all only those may go that help to find defects. An artifact goes where every option that
is given says so. Artifacts of a user (user:NAME) and of sessions at work are never touched.

Examples:
  soong artifacts cleanup
  soong artifacts cleanup --all --older-than 30d --yes")]
    Cleanup {
        /// Delete the listed artifacts
        #[arg(long)]
        yes: bool,
        /// Also include ordinary artifacts
        #[arg(long)]
        all: bool,
        /// Only artifacts that have not changed for this long: 90s, 30m, 2h, 7d
        #[arg(long, value_name = "D", value_parser = duration)]
        older_than: Option<Duration>,
        /// Only the least recently changed artifacts, so that the rest has at most N bytes
        #[arg(long, value_name = "N", value_parser = number_parser::<u64>(0..=u64::MAX))]
        max_bytes: Option<u64>,
        /// Only artifacts of this session
        #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
        session: Option<String>,
    },
}

impl Artifacts {
    /// Returns whether the command changes artifacts and therefore needs an owner of the home.
    pub(crate) const fn writes(&self) -> bool {
        match self {
            Self::Put { .. } | Self::Edit { .. } | Self::Delete { .. } => true,
            Self::Cleanup { yes, .. } => *yes,
            Self::List { .. } | Self::Show { .. } | Self::Get { .. } | Self::Versions { .. } | Self::Export { .. } => {
                false
            }
        }
    }
}
