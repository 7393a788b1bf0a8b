//! Options of `backup`, `init` and `doctor`.

use std::path::PathBuf;

use clap::Args;

/// Options of `backup`.
#[derive(Debug, Args)]
#[command(after_help = "\
The copy can be used as a home. It contains the database at one moment, the files of all artifact
versions, config.toml, hooks.json, models.json, skills/, agents/, commands/, memory/ and tasks/.
Tokens, locks, sockets, logs, caches and artifacts in a bucket are not copied. DIR appears when the
copy is complete.

If the file of an artifact is missing in the home, everything else is copied, and the command names
the file (exit code 1). DIR must be empty or missing (otherwise exit code 4).

Examples:
  soong backup ~/backups/today
  soong --home ~/backups/today sessions list")]
pub(crate) struct Backup {
    /// Folder for the copy
    pub(crate) dir: PathBuf,
}

/// Options of `init`.
#[derive(Debug, Args)]
#[command(after_help = "\
Looks for the API keys of the environment and for servers on this machine (Ollama, LM Studio,
llama.cpp, vLLM), lets you choose a model, calls it with a task and a tool, and writes a short
config.toml to the home, or to the file of --config. Nothing is written if the model does not work.

Exit codes: 1 the model rejects the call, or the file cannot be written, 2 no model was found or
chosen, 4 the file exists, 5 the model does not answer or rejects the key, 130 Ctrl-C.

Examples:
  soong init
  soong init --yes
  soong init --full --config example.toml")]
pub(crate) struct Init {
    /// Ask no questions: use the first model that is found
    #[arg(long)]
    pub(crate) yes: bool,
    /// Write a file with every setting, its default and its meaning, and call no model
    #[arg(long, conflicts_with = "yes")]
    pub(crate) full: bool,
    /// Overwrite an existing file
    #[arg(long)]
    pub(crate) force: bool,
}

/// Options of `doctor`.
#[derive(Debug, Args)]
#[command(after_help = "\
The checks change nothing. Exit codes: 0 nothing is broken (warnings are allowed), 2 the
configuration is broken, 5 only the model call failed, 130 the model call was interrupted, else 1.

Examples:
  soong doctor
  soong doctor --call")]
pub(crate) struct Doctor {
    /// Also call the default model with a tool; may cost a little, takes at most 120 s
    #[arg(long)]
    pub(crate) call: bool,
}
