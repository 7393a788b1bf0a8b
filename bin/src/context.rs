//! Context of a command: global options, environment, terminal, and the server given by `--url`.

use std::sync::Arc;

use serde::Serialize;
use soong::{Environment, protocol::PermissionMode};
use soong_client::{Address, Client, Discovery, Remote};
use soong_tui::{terminal::Terminal, typed_messages::SharedMessages};

use crate::{
    cli::Global,
    config,
    exit::Failure,
    log::{self, LogTarget},
    offline_store::{self, OfflineStore},
    panic, print,
    source::Source,
};

/// Context of a command.
pub(crate) struct Context<'a> {
    pub(crate) global: Global,
    pub(crate) environment: Environment,
    pub(crate) terminal: &'a Terminal,
    /// Server given by `--url`.
    pub(crate) remote: Option<Remote>,
}

/// Presentation of a run.
#[derive(Debug, Clone)]
pub(crate) enum RunDisplay {
    /// Prints the answer at the end.
    Once,
    /// Prints nothing but the answer.
    Quiet,
    /// Shows the monitor first, then prints the answer.
    Monitored,
    /// Streams the answer and prints little else. The user can type the next messages.
    Chat {
        /// Permission mode of the run.
        mode: PermissionMode,
        /// Messages that the user has typed, and those that follow.
        typed: SharedMessages,
    },
}

impl Context<'_> {
    /// Returns the address of the owner of a home.
    pub(crate) fn address(&self, home: &std::path::Path) -> Address {
        self.remote
            .clone()
            .map_or_else(|| Address::Home(home.to_owned()), Address::Server)
    }

    /// Prepares a read-only command. A configuration file given with `--config` must be valid; none
    /// is required.
    pub(crate) fn for_reading(&self) -> Result<&Self, Failure> {
        log::start(self.global.verbose, LogTarget::StandardError);
        if self.global.config.is_some() {
            config::read(&self.global, std::path::Path::new(""))?;
        }
        Ok(self)
    }

    /// Prints "No sessions yet" if nothing has ever run in the default home. Returns whether it
    /// did; always `false` if a home or server is given.
    pub(crate) fn print_if_unused(&self, empty: &impl Serialize) -> Result<bool, Failure> {
        // A missing home that was given explicitly is an error.
        let is_default = self.remote.is_none() && self.global.home.is_none();
        let is_unused = is_default && offline_store::is_unused(&self.home()?);
        match (is_unused, self.global.json) {
            (true, true) => print::json(empty)?,
            (true, false) => print::line(
                "No sessions yet. Start one with `soong`, or try `soong demo`, which needs no key.",
            )?,
            (false, _) => {}
        }
        Ok(is_unused)
    }

    /// Returns the source of the home's records: its owner or the disk.
    pub(crate) async fn source(&self) -> Result<Source, Failure> {
        let read_from_disk = || {
            print::note("the owner process of the home does not respond; reading from disk");
            Ok(())
        };
        self.find_source(read_from_disk).await
    }

    /// Same as [`source`](Self::source), for a command that changes what it reads: an owner that
    /// does not respond is an error, because the change needs it.
    pub(crate) async fn source_to_change(&self) -> Result<Source, Failure> {
        self.find_source(|| Err(soong_client::unresponsive().into()))
            .await
    }

    /// Returns the source of the home's records. `if_unresponsive` decides whether they are read
    /// from disk if the owner does not respond.
    async fn find_source(
        &self,
        if_unresponsive: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<Source, Failure> {
        let home = self.home()?;
        match Client::find(&self.address(&home)).await {
            Discovery::Owner(client, ready) => return Ok(Source::Owner(client, ready)),
            Discovery::Unreachable(error) => return Err(error.into()),
            Discovery::Unresponsive => if_unresponsive()?,
            Discovery::None => {}
        }
        Ok(Source::Disk(Arc::new(OfflineStore::open(&home)?)))
    }

    /// Reads the configuration for a command that needs nothing else.
    pub(crate) fn settings(&self) -> Result<config::Settings, Failure> {
        log::start(self.global.verbose, LogTarget::StandardError);
        config::read(&self.global, &self.home()?)
    }

    /// Returns the home and directs panic reports to it.
    pub(crate) fn home(&self) -> Result<std::path::PathBuf, Failure> {
        let home = config::home(&self.global, &self.environment)?;
        if home.exists() && !home.is_dir() {
            let what = format!("the home {} is a file, not a folder", home.display());
            return Err(Failure::usage(
                what,
                "Use another home with --home DIR or SOONG_AGENT_HOME.",
            ));
        }
        panic::set_home(&home);
        Ok(home)
    }
}
