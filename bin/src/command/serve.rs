//! `soong serve`: owns the home and serves it over HTTP until it is asked to stop.

mod interrupted;

use std::net::SocketAddr;

use soong::{RecoveryPolicy, protocol::RecoveryMode};
use soong_server::{
    http::{self, Api, BodyLimits},
    server::{
        Server,
        token::{self, Tokens},
    },
};
use soong_tui::{format, text};
use tokio::net::TcpListener;

use super::host::builder;
use crate::{
    cli, config,
    context::Context,
    exit::{Exit, Failure},
    interrupt::Interrupt,
    log::{self, LogTarget},
    owner::Owner,
    print,
    service::ServiceNotifier,
};

/// Environment variable under which the home's token is registered as a secret.
const TOKEN_SECRET_NAME: &str = "SOONG_SERVER_TOKEN";

pub(super) async fn serve(context: &Context<'_>, options: &cli::Serve) -> Result<Exit, Failure> {
    let home = context.home()?;
    let mut settings = config::read(&context.global, &home)?;
    log::start(
        context.global.verbose,
        LogTarget::Home {
            home: &home,
            has_picture: false,
        },
    );
    let interrupt = Interrupt::listen();
    let server = &settings.config.server;
    let addr = match options.addr {
        Some(addr) => addr,
        // Reading the configuration has already validated the address.
        None => server
            .addr
            .parse()
            .map_err(|error| Failure::usage(format!("server.addr: {error}"), ""))?,
    };
    let no_token = |error: std::io::Error| {
        let what = format!("the token of the home cannot be read or created: {error}");
        Failure::new(Exit::Failed, what, "Fix the problem and start again.")
    };
    config::make_home(&home).map_err(no_token)?;
    let (token, note) = token::prepare_home_token(&home).map_err(no_token)?;
    let environment = context.environment.with(TOKEN_SECRET_NAME, &token);
    let tokens = Tokens::read(&home, &settings.config, &environment).map_err(|missing| {
        let what = format!(
            "server.tokens: user {} has no token: {}",
            missing.uid, missing.why
        );
        Failure::usage(
            what,
            "Set the variable before starting the server, or remove the user.",
        )
    })?;
    let listener = TcpListener::bind(addr).await.map_err(|error| {
        let what = format!("cannot listen on {addr}: {error}");
        Failure::new(
            Exit::Refused,
            what,
            "Stop the program that uses the address, or choose another one: --addr 127.0.0.1:0.",
        )
    })?;
    let setting = options
        .recovery
        .map(RecoveryMode::from)
        .or(settings.config.runtime.recovery);
    let recovery = tokio::select! {
        recovery = interrupted::decide(context, &home, setting) => recovery?,
        () = interrupt.first() => return Err(Failure::new(Exit::Interrupted, "interrupted before the server started", "")),
    };
    settings.config.runtime.recovery = Some(recovery);
    let server = &settings.config.server;
    let runtime = builder(context, &home, &settings).environment(environment);
    let owner = Owner::open(runtime, RecoveryPolicy::All).await?;
    let api = Api {
        limits: BodyLimits::of(server),
        ..owner.api().clone()
    };
    let served = Server::start(listener, http::router(api), server, tokens).map_err(|error| {
        Failure::new(Exit::Failed, format!("cannot serve on {addr}: {error}"), "")
    })?;
    if let Some(note) = note {
        print::error_line(&format!("warning: {note}"));
    }
    announce(context, served.addr(), &owner)?;
    let notified = ServiceNotifier::ready(owner.runtime());
    interrupt.first().await;
    drop(notified);
    if !context.global.json {
        let parked = match owner.runtime().info().live_user_runs() {
            0 => "no active runs".to_owned(),
            runs => format!(
                "{} when the server restarts",
                format::plural(runs, "run resumes", "runs resume")
            ),
        };
        print::error_line(&format!(
            "shutting down: {parked}; press Ctrl-C again to exit immediately"
        ));
    }
    // Accept no new connections; open requests may finish.
    served.stop_accepting();
    owner.close().await;
    served.stop().await;
    Ok(Exit::Success)
}

/// Prints the address once the server is listening.
fn announce(context: &Context<'_>, addr: SocketAddr, owner: &Owner) -> Result<(), Failure> {
    let url = format!("http://{addr}");
    let home = owner.runtime().info().home().display().to_string();
    if !addr.ip().is_loopback() {
        print::error_line(&format!(
            "warning: {addr} is reachable from other machines without encryption: use a TLS proxy"
        ));
    }
    let soong::InterruptedRuns {
        resumed,
        ended,
        unchanged,
    } = owner.runtime().info().interrupted_runs();
    let resumed = resumed.len();
    if context.global.json {
        let ready = serde_json::json!({ "url": url, "home": home, "pid": std::process::id(), "resumed": resumed });
        return print::json_line(&ready);
    }
    let mut outcomes = String::new();
    for (count, outcome) in [
        (resumed, "resumed"),
        (ended.len(), "ended as failed"),
        (unchanged.len(), "left interrupted"),
    ] {
        if count > 0 {
            outcomes.push_str(&format!(
                "; {} {outcome}",
                format::plural(count, "run", "runs")
            ));
        }
    }
    print::line(&format!(
        "serving {} on {url}{outcomes}",
        text::safe_line(&home)
    ))?;
    print::line(&format!(
        "the token is in {}",
        text::safe_line(&format!("{home}/server.token"))
    ))
}
