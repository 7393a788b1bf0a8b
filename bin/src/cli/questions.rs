//! Options of `questions`.

use clap::Subcommand;

/// Options of `questions`.
#[derive(Debug, Subcommand)]
pub(crate) enum Questions {
    /// List the open questions, oldest first
    #[command(after_help = "\
Examples:
  soong questions list
  soong questions list --all --json")]
    List {
        /// Also list questions that were answered or withdrawn
        #[arg(long)]
        all: bool,
    },
    /// Answer a question and resume its run
    #[command(after_help = "\
The first answer counts; a second one is refused (already_decided, exit code 4). Without an owner
process, a background process resumes the run until it ends or waits again.

Examples:
  soong questions answer ID \"The blue one\"
  soong questions answer ID - < answer.txt")]
    Answer {
        /// Id of the question, from `soong questions list`
        id: String,
        /// Answer; `-` reads it from standard input
        text: String,
    },
}
