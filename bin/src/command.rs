//! Implementation of the commands, one file each.

mod artifacts;
mod attach;
mod backup;
mod chat;
mod cleanup;
mod completions;
mod demo;
mod doctor;
mod experiences;
mod export;
mod guide;
mod host;
mod init;
mod mcp;
mod models;
mod monitor;
mod permissions;
mod presets;
mod questions;
mod run;
mod serve;
mod sessions;
mod settings;
mod skills;
mod tasks;
mod tools;
mod traces;
mod tree;
mod usage;
mod work;

use soong::{Environment, protocol::Decision};

use crate::{
    cli::{self, Cli, Command},
    client::Remote,
    config,
    context::Context,
    exit::{Exit, Failure},
    terminal::Terminal,
};
use soong_server::server::token;

/// Environment variable with the token of the server given by `--url`.
const TOKEN_VARIABLE: &str = "SOONG_TOKEN";

/// Executes the command line.
pub(crate) fn run(cli: Cli, terminal: &Terminal) -> Result<Exit, Failure> {
    let environment = Environment::process();
    let remote = remote(&cli, &environment)?;
    let context = Context { global: cli.global, environment, terminal, remote };
    match cli.command {
        Command::Demo(options) => at_work(demo::demo(&context, &options)),
        Command::Run(options) => at_work(run::run(&context, *options)),
        Command::Chat(options) => at_work(chat::chat(&context, options)),
        Command::Serve(options) => at_work(serve::serve(&context, &options)),
        Command::Host => at_work(host::host(&context)),
        Command::Init(options) => init::init(&context, &options),
        Command::Doctor(options) => doctor::doctor(&context, &options),
        Command::Guide(options) => guide::guide(&options, terminal),
        Command::Sessions(options) => reading(sessions::sessions(context.reading()?, &options)),
        Command::Artifacts(options) if options.writes() => at_work(artifacts::change(&context, &options)),
        Command::Artifacts(options) => reading(artifacts::look(context.reading()?, &options)),
        Command::Tasks(options) => reading(tasks::tasks(context.reading()?, &options)),
        Command::Permissions(cli::Permissions::List { all }) => reading(permissions::list(context.reading()?, all)),
        Command::Permissions(cli::Permissions::Allow { id, session }) => {
            let decision = if session { Decision::AllowForSession } else { Decision::AllowOnce };
            reading(permissions::decide(context.reading()?, &id, decision, None))
        }
        Command::Permissions(cli::Permissions::Deny { id, reason }) => {
            reading(permissions::decide(context.reading()?, &id, Decision::Deny, reason))
        }
        Command::Questions(cli::Questions::List { all }) => reading(questions::list(context.reading()?, all)),
        Command::Questions(cli::Questions::Answer { id, text }) => {
            reading(questions::answer(context.reading()?, &id, &text))
        }
        Command::Traces(cli::Traces::Reflect { id, focus }) => {
            at_work(traces::reflect(&context, &id, focus.as_deref()))
        }
        Command::Traces(options) => reading(traces::traces(context.reading()?, &options)),
        Command::Usage(options) => reading(usage::usage(context.reading()?, &options)),
        Command::Backup(options) => reading(backup::backup(context.reading()?, &options)),
        Command::Tree => reading(tree::tree(context.reading()?)),
        Command::Monitor => reading(monitor::monitor(&context)),
        Command::Completions(options) => completions::completions(&options),
        Command::Man(options) => completions::man(&options),
        Command::Config(options) => settings::settings(&context, &options),
        Command::Presets(options) => presets::presets(&context, &options),
        Command::Skills(options) => skills::skills(&context, &options),
        Command::Experiences(options) => experiences::experiences(&context, &options),
        Command::Tools(options) => tools::tools(&context, &options),
        Command::Models(options) => models::models(&context, &options),
        Command::Mcp(options) => mcp::mcp(&context, &options),
    }
}

/// Returns the server of `--url`, if given, with its token. Fails if the command cannot use a server.
fn remote(cli: &Cli, environment: &Environment) -> Result<Option<Remote>, Failure> {
    let Some(url) = &cli.global.url else { return Ok(None) };
    if !cli.command.asks_an_owner() {
        let what = "--url: this command looks at the home on this machine, and asks no server";
        return Err(Failure::usage(what, "Leave --url out, or run it where the server is."));
    }
    let of_home = || config::home(&cli.global, environment).ok().and_then(|home| token::of_home(&home).ok().flatten());
    let token = environment.get(TOKEN_VARIABLE).map(str::to_owned).or_else(of_home).ok_or_else(|| {
        let what = format!("--url {url}: there is no token for it");
        Failure::usage(
            what,
            format!("Set {TOKEN_VARIABLE}, or name the home of the server with --home DIR: it is in server.token."),
        )
    })?;
    let remote = Remote::new(url, &token).map_err(|what| Failure::usage(what, "Correct the command line."))?;
    Ok(Some(remote))
}

/// Runs a command on a single-threaded runtime. For commands that mostly send requests and read.
fn reading<T>(command: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let thread = tokio::runtime::Builder::new_current_thread().enable_all().build();
    thread.map_err(|error| no_threads(&error))?.block_on(command)
}

fn no_threads(error: &std::io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("no threads: {error}"), "")
}

/// Runs a command on a multi-threaded runtime. For commands that may own a home.
fn at_work<T>(command: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let threads = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let threads = threads.map_err(|error| no_threads(&error))?;
    let ended = threads.block_on(command);
    // Do not wait for blocking tasks that are still running (a tool that ignores cancellation, a slow disk).
    threads.shutdown_background();
    ended
}
