//! Options of `questions`.

use clap::Subcommand;

/// Options of `questions`.
#[derive(Debug, Subcommand)]
pub(crate) enum Questions {
    /// List the questions that are not answered yet, oldest first
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
The first answer counts; a second one is refused (already_decided, exit code 4). Where nobody owns
the home, a process in the background takes the run up and works until it has ended, or asks again.

Examples:
  soong questions answer ID \"The blue one\"
  soong questions answer ID - < answer.txt")]
    Answer {
        /// Id of the question, as `soong questions list` shows it
        id: String,
        /// The answer; - reads it from standard input
        text: String,
    },
}
