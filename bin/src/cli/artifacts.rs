//! Options of `artifacts`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand, builder::NonEmptyStringValueParser};

use super::{ColumnsArg, duration, number_parser};

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
NAME is the name of an artifact of the session, user:NAME for an artifact of the user (available in
all sessions), or the id of an artifact without a name.")]
pub(crate) enum Artifacts {
    /// List the artifacts of a session and of its user
    #[command(after_help = "\
A version with * has edits that are not stored as a version yet.

Examples:
  soong artifacts list
  soong artifacts list --session ID --json")]
    List {
        #[command(flatten)]
        of: SessionArg,
        #[command(flatten)]
        columns: ColumnsArg,
    },
    /// Show an artifact: its properties, its stored versions and the beginning of its text
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
    /// Write the content of an artifact to standard output or a file
    #[command(disable_version_flag = true)]
    #[command(after_help = "\
Content that is not text is not printed on a terminal. With -o, an existing file is replaced when
all bytes have arrived.

Examples:
  soong artifacts get report > report.md
  soong artifacts get chart.png --version 2 -o chart.png")]
    Get {
        /// Artifact: its name, user:NAME, or its id
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
        /// Stored version [default: the current content, including edits that are not a version
        /// yet]
        #[arg(long, value_name = "N", value_parser = number_parser::<u64>(0..=u64::MAX))]
        version: Option<u64>,
        /// File to write [default: standard output]
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        #[command(flatten)]
        of: SessionArg,
    },
    /// Store a file as the next version of an artifact
    #[command(after_help = "\
Without --content-type, the type is derived from the name of the file, else from the name of the
artifact, else from the beginning of the file. Agents can read and edit only text.

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
        /// Content type, such as text/markdown [default: by name or content, else
        /// application/octet-stream]
        #[arg(long, value_name = "TYPE")]
        content_type: Option<String>,
        #[command(flatten)]
        of: SessionArg,
    },
    /// Replace one passage of a text and store the result as the next version
    #[command(after_help = "\
Searches for the exact text, then for the text with other quotes, dashes or spaces, then for the
most similar passage, and prints how the passage was found. If it is not found, or found more than
once, nothing changes (exit code 4).

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
    /// List the stored versions of an artifact with the origin of each
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
    /// Print the difference between two versions of a text
    #[command(after_help = "\
Without numbers, compares the last stored version with the one before it, or, if the artifact has
edits that are not a version yet, with those edits. With one number, compares that version with the
current content.

Examples:
  soong artifacts diff report
  soong artifacts diff report 1
  soong artifacts diff report 1 3")]
    Diff {
        /// Artifact: its name, user:NAME, or its id
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
        /// Older version [default: see above]
        #[arg(value_name = "FROM", value_parser = number_parser::<u64>(1..=u64::MAX))]
        from: Option<u64>,
        /// Newer version [default: the current content]
        #[arg(value_name = "TO", value_parser = number_parser::<u64>(1..=u64::MAX))]
        to: Option<u64>,
        #[command(flatten)]
        of: SessionArg,
    },
    /// Export the last stored version of a text as a Word file (.docx)
    #[command(after_help = "\
Markdown becomes headings, lists, tables, code and links. Other text is included unchanged.

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
There is no confirmation, and a deleted artifact cannot be restored.

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
Without --all, only debug artifacts are listed: stored requests and answers of models. If several
options are given, an artifact must match all of them. Artifacts of a user (user:NAME) and of
sessions with an unfinished run are skipped.

Examples:
  soong artifacts cleanup
  soong artifacts cleanup --all --older-than 30d --yes")]
    Cleanup {
        /// Delete the listed artifacts
        #[arg(long)]
        yes: bool,
        /// Also list ordinary artifacts
        #[arg(long)]
        all: bool,
        /// Only artifacts that have not changed for this long, such as 90s, 30m, 2h or 7d
        #[arg(long, value_name = "D", value_parser = duration)]
        older_than: Option<Duration>,
        /// Only the least recently changed artifacts, until the remaining ones take at most N bytes
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
            Self::List { .. }
            | Self::Show { .. }
            | Self::Get { .. }
            | Self::Versions { .. }
            | Self::Diff { .. }
            | Self::Export { .. } => false,
        }
    }

    /// Returns whether the command only prints.
    pub(crate) const fn only_prints(&self) -> bool {
        matches!(
            self,
            Self::List { .. } | Self::Show { .. } | Self::Versions { .. } | Self::Diff { .. }
        )
    }
}
