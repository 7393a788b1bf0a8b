//! The options of `artifacts`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand, builder::NonEmptyStringValueParser};

use super::{duration, number};

/// Whose artifacts are meant.
#[derive(Debug, Args)]
pub(crate) struct InSession {
    /// The session [default: the last one of this project folder]
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) session: Option<String>,
}

/// Options of `artifacts`.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
An artifact is called by its name in its session, one of the user's, seen from all sessions, by
user:NAME, and one without a name by its id.")]
pub(crate) enum Artifacts {
    /// List the artifacts of a session, and of its user
    #[command(after_help = "\
A version with * has edits that are no stored version yet.

Examples:
  soong artifacts list
  soong artifacts list --session ID --json")]
    List {
        #[command(flatten)]
        of: InSession,
    },
    /// Show one: its record, its stored versions, and how its text begins
    #[command(after_help = "\
Examples:
  soong artifacts show report")]
    Show {
        /// The artifact: its name, user:NAME, or its id
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
        #[command(flatten)]
        of: InSession,
    },
    /// Get the bytes of one, as it is now or in a stored version
    #[command(disable_version_flag = true)]
    #[command(after_help = "\
The bytes go to standard output; what is no text is not printed on a terminal. With -o, a file that
is there is replaced, once everything has come.

Examples:
  soong artifacts get report > report.md
  soong artifacts get chart.png --version 2 -o chart.png")]
    Get {
        /// The artifact: its name, user:NAME, or its id
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
        /// A stored version [default: what it holds now, edits included]
        #[arg(long, value_name = "N", value_parser = number::<u64>(0..=u64::MAX))]
        version: Option<u64>,
        /// Write to this file
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        #[command(flatten)]
        of: InSession,
    },
    /// Store a file as the next version of one
    #[command(after_help = "\
The content type is guessed from the file's name, else from the artifact's, unless you say it. It
decides what counts as text: text can be edited, and is shown to agents.

Examples:
  soong artifacts put notes.md notes.md
  git diff | soong artifacts put diff - --content-type text/plain
  soong artifacts put user:style style.md")]
    Put {
        /// The artifact: its name, or user:NAME
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
        /// The file; `-` reads standard input
        file: PathBuf,
        /// Its content type, such as text/markdown [default: by name, else application/octet-stream]
        #[arg(long, value_name = "TYPE")]
        content_type: Option<String>,
        #[command(flatten)]
        of: InSession,
    },
    /// Replace a part of a text; the next version is stored at once
    #[command(after_help = "\
The text is looked for as it is given; else but for quotes, dashes and spaces; else the one passage
that is most like it, and it is said how like. Where it is not there, or more than once, nothing is
changed (exit code 4).

Examples:
  soong artifacts edit report --old \"in spring\" --new \"in autumn\"")]
    Edit {
        /// The artifact: its name, or user:NAME
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
        /// The text to be replaced
        #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
        old: String,
        /// The text in its place; may be empty
        #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
        new: String,
        #[command(flatten)]
        of: InSession,
    },
    /// List the stored versions of one, each with how it came about
    #[command(after_help = "\
Examples:
  soong artifacts versions report")]
    Versions {
        /// The artifact: its name, user:NAME, or its id
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
        #[command(flatten)]
        of: InSession,
    },
    /// Write the last stored version of a text as a word processor's file
    #[command(after_help = "\
Markdown is drawn: headings, lists, tables, code, links. Any other text stands as it is.

Examples:
  soong artifacts export report -o report.docx")]
    Export {
        /// The artifact: its name, user:NAME, or its id
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
        /// The file to be written; its name ends in .docx
        #[arg(short, long, value_name = "FILE.docx")]
        output: PathBuf,
        #[command(flatten)]
        of: InSession,
    },
    /// Delete one with all its versions
    #[command(after_help = "\
Nothing is asked, and nothing brings it back.

Examples:
  soong artifacts delete draft")]
    Delete {
        /// The artifact: its name, user:NAME, or its id
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
        #[command(flatten)]
        of: InSession,
    },
    /// List which artifacts may go, of all sessions, and delete them with --yes
    #[command(after_help = "\
Without --all only those may go that help to find defects. An artifact goes where every option that
is given says so. Artifacts of a user (user:NAME) and of sessions at work are never touched.

Examples:
  soong artifacts cleanup
  soong artifacts cleanup --all --older-than 30d --yes")]
    Cleanup {
        /// Delete what is listed
        #[arg(long)]
        yes: bool,
        /// Also ordinary artifacts
        #[arg(long)]
        all: bool,
        /// Only what was not changed for so long: 90s, 30m, 2h, 7d
        #[arg(long, value_name = "D", value_parser = duration)]
        older_than: Option<Duration>,
        /// Only what was changed longest ago, so that the rest has at most so many bytes
        #[arg(long, value_name = "N", value_parser = number::<u64>(0..=u64::MAX))]
        max_bytes: Option<u64>,
        /// Only of this session
        #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
        session: Option<String>,
    },
}

impl Artifacts {
    /// Returns whether it changes something, and so needs an owner of the home.
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
