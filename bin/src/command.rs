//! Implementation of the commands, one file each.

mod artifacts;
mod attach;
mod backup;
mod call;
mod chat;
mod cleanup;
mod completions;
mod continued;
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
mod pasted_files;
mod permissions;
mod piped_input;
mod presets;
mod questions;
mod run;
mod runtime_session;
mod serve;
mod sessions;
mod settings;
mod skills;
mod tasks;
mod tools;
mod traces;
mod tree;
mod usage;

use clap::Parser;
use futures::future::LocalBoxFuture;
use soong::{Environment, protocol::Decision};
use soong_client::Remote;
use soong_server::server::token;
use soong_tui::terminal::Terminal;

use crate::{
    cli::{self, CatalogCommand, Cli, Command, Global, RecordCommand, SetupCommand},
    config,
    context::Context,
    exit::{Exit, Failure},
    pager,
};

/// Environment variable with the token of the server given by `--url`.
const TOKEN_VARIABLE: &str = "SOONG_TOKEN";

/// Executes the command line.
pub(crate) fn run(cli: Cli, terminal: &Terminal) -> Result<Exit, Failure> {
    let environment = Environment::from_process();
    let global = cli.global;
    let command = cli.command.unwrap_or_default();
    let remote = remote(&global, &command, &environment)?;
    let context = Context {
        global,
        environment,
        terminal,
        remote,
    };
    match command {
        Command::Demo(options) => block_on_multi_thread(demo::demo(&context, &options)),
        Command::Run(options) => block_on_multi_thread(run::run(&context, *options)),
        Command::Call(options) => block_on_multi_thread(call::call(&context, options)),
        Command::Chat(options) => block_on_multi_thread(chat::chat(&context, options)),
        Command::Serve(options) => block_on_multi_thread(serve::serve(&context, &options)),
        Command::Host => block_on_multi_thread(host::host(&context)),
        Command::Records(command) => run_record_command(&context, command),
        Command::Backup(options) => {
            block_on_current_thread(backup::backup(context.for_reading()?, &options))
        }
        Command::Tree { supervision } => paged(&context, || {
            block_on_current_thread(tree::tree(context.for_reading()?, supervision))
        }),
        Command::Monitor => block_on_current_thread(monitor::monitor(&context)),
        Command::Setup(SetupCommand::Init(options)) => init::init(&context, &options),
        Command::Setup(SetupCommand::Doctor(options)) => doctor::doctor(&context, &options),
        Command::Setup(SetupCommand::Guide(options)) => {
            paged(&context, || guide::guide(&options, terminal))
        }
        Command::Setup(SetupCommand::Completions(options)) => completions::completions(&options),
        Command::Setup(SetupCommand::Man(options)) => completions::man(&options),
        Command::Catalog(command) => paged(&context, || run_catalog_command(&context, &command)),
    }
}

/// Runs a command that asks nothing. A pager shows long output.
fn paged<T>(context: &Context<'_>, command: impl FnOnce() -> T) -> T {
    pager::with_pager(context.terminal, &context.environment, command)
}

fn run_record_command(context: &Context<'_>, command: RecordCommand) -> Result<Exit, Failure> {
    if command.only_prints() {
        paged(context, || execute_record_command(context, command))
    } else {
        execute_record_command(context, command)
    }
}

fn execute_record_command(context: &Context<'_>, command: RecordCommand) -> Result<Exit, Failure> {
    match command {
        RecordCommand::Sessions(options) => {
            block_on_current_thread(sessions::sessions(context.for_reading()?, &options))
        }
        RecordCommand::Artifacts(options) if options.writes() => {
            block_on_multi_thread(artifacts::write_command(context, &options))
        }
        RecordCommand::Artifacts(options) => {
            block_on_current_thread(artifacts::read_command(context.for_reading()?, &options))
        }
        RecordCommand::Tasks(options) => {
            block_on_current_thread(tasks::tasks(context.for_reading()?, &options))
        }
        RecordCommand::Permissions(cli::Permissions::List { all }) => {
            block_on_current_thread(permissions::list(context.for_reading()?, all))
        }
        RecordCommand::Permissions(cli::Permissions::Allow { id, session }) => {
            let decision = if session {
                Decision::AllowForSession
            } else {
                Decision::AllowOnce
            };
            block_on_current_thread(permissions::decide(
                context.for_reading()?,
                &id,
                decision,
                None,
            ))
        }
        RecordCommand::Permissions(cli::Permissions::Deny { id, reason }) => {
            block_on_current_thread(permissions::decide(
                context.for_reading()?,
                &id,
                Decision::Deny,
                reason,
            ))
        }
        RecordCommand::Permissions(cli::Permissions::Mode { mode, session }) => {
            block_on_current_thread(permissions::set_mode(
                context.for_reading()?,
                mode,
                &session,
            ))
        }
        RecordCommand::Questions(cli::Questions::List { all }) => {
            block_on_current_thread(questions::list(context.for_reading()?, all))
        }
        RecordCommand::Questions(cli::Questions::Answer { id, text }) => {
            block_on_current_thread(questions::answer(context.for_reading()?, &id, &text))
        }
        RecordCommand::Traces(cli::Traces::Reflect { id, focus }) => {
            block_on_multi_thread(traces::reflect(context, &id, focus.as_deref()))
        }
        RecordCommand::Traces(options) => {
            block_on_current_thread(traces::traces(context.for_reading()?, &options))
        }
        RecordCommand::Usage(options) => {
            block_on_current_thread(usage::usage(context.for_reading()?, &options))
        }
    }
}

/// Runs a command that shows something, given by its words, within another command. No pager is
/// used, because its end would end the other command too.
async fn run_query(context: &Context<'_>, words: &[String]) -> Result<Exit, Failure> {
    let words = std::iter::once("soong").chain(words.iter().map(String::as_str));
    let usage = |error: clap::Error| {
        let error = error.to_string();
        let what = error.lines().next().unwrap_or_default();
        Failure::usage(
            what.strip_prefix("error: ").unwrap_or(what),
            "/help lists the commands.",
        )
    };
    let command = Cli::try_parse_from(words)
        .map_err(usage)?
        .command
        .unwrap_or_default();
    tokio::task::block_in_place(|| match command {
        Command::Catalog(_) if context.remote.is_some() => {
            let what = "this would show the configuration of this machine, not that of the server";
            Err(Failure::usage(what, "Use it without --url."))
        }
        Command::Records(command) => execute_record_command(context, command),
        Command::Tree { supervision } => {
            block_on_current_thread(tree::tree(context.for_reading()?, supervision))
        }
        Command::Catalog(command) => run_catalog_command(context, &command),
        _ => Err(Failure::usage(
            "this command cannot be used here",
            "Use it in another terminal.",
        )),
    })
}

fn run_catalog_command(context: &Context<'_>, command: &CatalogCommand) -> Result<Exit, Failure> {
    match command {
        CatalogCommand::Config(options) => settings::settings(context, options),
        CatalogCommand::Presets(options) => presets::presets(context, options),
        CatalogCommand::Skills(options) => skills::skills(context, options),
        CatalogCommand::Experiences(options) => experiences::experiences(context, options),
        CatalogCommand::Tools(options) => tools::tools(context, options),
        CatalogCommand::Models(options) => models::models(context, options),
        CatalogCommand::Mcp(options) => mcp::mcp(context, options),
    }
}

/// Returns the server of `--url`, if given, with its token. Fails if the command cannot use a
/// server.
fn remote(
    global: &Global,
    command: &Command,
    environment: &Environment,
) -> Result<Option<Remote>, Failure> {
    let Some(url) = &global.url else {
        return Ok(None);
    };
    if !command.uses_owner() {
        let what = "--url: this command uses the home on this machine, not a server";
        return Err(Failure::usage(
            what,
            "Omit --url, or run the command on the server's machine.",
        ));
    }
    let of_home = || {
        config::home(global, environment)
            .ok()
            .and_then(|home| token::read_home_token(&home).ok().flatten())
    };
    let token = environment.get(TOKEN_VARIABLE).map(str::to_owned).or_else(of_home).ok_or_else(|| {
        let what = format!("--url {url}: no token for this server");
        Failure::usage(
            what,
            format!("Set {TOKEN_VARIABLE}, or give the home of the server with --home DIR; the token is in its server.token."),
        )
    })?;
    let remote = Remote::new(url, &token)
        .map_err(|what| Failure::usage(what, "Correct the command line."))?;
    Ok(Some(remote))
}

/// Runs a command on a single-threaded runtime. For commands that mostly send requests and read.
fn block_on_current_thread<T>(
    command: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let thread = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    // Boxed, so that the executor is compiled once, and not for each command.
    let command: LocalBoxFuture<'_, _> = Box::pin(command);
    thread
        .map_err(|error| runtime_error(&error))?
        .block_on(command)
}

fn runtime_error(error: &std::io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("cannot start threads: {error}"), "")
}

/// Runs a command on a multi-threaded runtime. For commands that may own a home.
fn block_on_multi_thread<T>(
    command: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let threads = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let threads = threads.map_err(|error| runtime_error(&error))?;
    let command: LocalBoxFuture<'_, _> = Box::pin(command);
    let ended = threads.block_on(command);
    // Do not wait for blocking tasks that are still running (a tool that ignores cancellation, a
    // slow disk).
    threads.shutdown_background();
    ended
}
