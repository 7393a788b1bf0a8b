//! The context of a command: global options, environment, terminal, and the server that was named.

use serde::Serialize;
use soong::Environment;

use crate::{
    cli::Global,
    client::{Address, Client, Found, Remote},
    config,
    exit::Failure,
    log::{self, Place},
    panic, print,
    records::{self, Records},
    source::Source,
    terminal::Terminal,
};

/// The context of a command.
pub(crate) struct Context<'a> {
    pub(crate) global: Global,
    pub(crate) environment: Environment,
    pub(crate) terminal: &'a Terminal,
    /// The server that was named.
    pub(crate) remote: Option<Remote>,
}

/// How a run is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    /// By itself: the answer stands at the end.
    Once,
    /// The same, behind the monitor.
    Monitored,
    /// As part of a conversation: the answer streams in, and little is said about the rest.
    Talk,
}

impl Context<'_> {
    /// Says where the owner of a home is looked for.
    pub(crate) fn address(&self, home: &std::path::Path) -> Address {
        self.remote.clone().map_or_else(|| Address::Home(home.to_owned()), Address::Server)
    }

    /// Prepares a command that only reads: a named configuration must hold, though none is needed.
    pub(crate) fn reading(&self) -> Result<&Self, Failure> {
        log::start(self.global.verbose, Place::StandardError);
        if self.global.config.is_some() {
            config::read(&self.global, std::path::Path::new(""))?;
        }
        Ok(self)
    }

    /// Says that there are no sessions yet, where nothing has ever run in the default home; `false` = something has.
    pub(crate) fn says_no_sessions(&self, empty: &impl Serialize) -> Result<bool, Failure> {
        // A home that was named and is not there is a mistake.
        let is_default = self.remote.is_none() && self.global.home.is_none();
        let is_unused = is_default && records::is_unused(&self.home()?);
        match (is_unused, self.global.json) {
            (true, true) => print::json(empty)?,
            (true, false) => print::line("No sessions yet. Start one: soong chat")?,
            (false, _) => {}
        }
        Ok(is_unused)
    }

    /// Finds where the records of the home are read.
    pub(crate) async fn source(&self) -> Result<Source, Failure> {
        let home = self.home()?;
        match Client::find(&self.address(&home)).await {
            Found::Owner(client, ready) => return Ok(Source::Owner(client, ready)),
            Found::Away(error) => return Err(error.into()),
            Found::Silent => print::error_line("note: the process that owns the home does not answer; read from disk"),
            Found::Nobody => {}
        }
        Ok(Source::Disk(Records::open(&home)?))
    }

    /// Reads the configuration for a command that looks at nothing else.
    pub(crate) fn settings(&self) -> Result<config::Settings, Failure> {
        log::start(self.global.verbose, Place::StandardError);
        config::read(&self.global, &self.home()?)
    }

    /// Finds the home, and has panics reported to it.
    pub(crate) fn home(&self) -> Result<std::path::PathBuf, Failure> {
        let home = config::home(&self.global, &self.environment)?;
        if home.exists() && !home.is_dir() {
            let what = format!("the home {} is a file: a home is a folder", home.display());
            return Err(Failure::usage(what, "Name another one with --home DIR or SOONG_AGENT_HOME."));
        }
        panic::report_to(&home);
        Ok(home)
    }
}
