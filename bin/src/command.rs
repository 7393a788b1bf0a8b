//! The commands: one file each.

mod demo;
mod init;
mod run;
mod sessions;
mod traces;
mod tree;

use soong::Environment;

use crate::{
    cli::{Cli, Command, Global},
    config,
    exit::{Exit, Failure},
    log,
    terminal::Terminal,
};

/// What every command works with.
pub(crate) struct Context<'a> {
    pub(crate) global: Global,
    pub(crate) environment: Environment,
    pub(crate) terminal: &'a Terminal,
}

/// Does what the command line asks for.
pub(crate) fn run(cli: Cli, terminal: &Terminal) -> Result<Exit, Failure> {
    let context = Context { global: cli.global, environment: Environment::process(), terminal };
    match cli.command {
        Command::Demo(options) => at_work(demo::demo(&context, &options)),
        Command::Run(options) => at_work(run::run(&context, options)),
        Command::Init(options) => init::init(&context, &options),
        Command::Sessions(options) => sessions::sessions(context.reading()?, &options),
        Command::Traces(options) => traces::traces(context.reading()?, &options),
        Command::Tree => tree::tree(context.reading()?),
    }
}

impl Context<'_> {
    /// Prepares a command that only reads: a named configuration must hold, though none is needed.
    fn reading(&self) -> Result<&Self, Failure> {
        log::start(self.global.verbose, None);
        if self.global.config.is_some() {
            config::read(&self.global, std::path::Path::new(""))?;
        }
        Ok(self)
    }

    pub(crate) fn records(&self) -> Result<crate::records::Records, Failure> {
        crate::records::Records::open(&config::home(&self.global, &self.environment)?)
    }
}

/// Runs a command that owns a home.
fn at_work(command: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    let threads = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let threads = threads.map_err(|error| Failure::new(Exit::Failed, format!("no threads: {error}"), ""))?;
    let ended = threads.block_on(command);
    // What still blocks (a tool that does not hear, a slow disk) does not hold up the end.
    threads.shutdown_background();
    ended
}
