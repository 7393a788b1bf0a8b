//! The host: a background process that owns a home while runs are active in it.
//!
//! `run --detach` starts one if the home has no owner, and then uses it like any other client.

use std::{
    fs::File,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use soong::{Runtime, RuntimeBuilder};
use soong_client::{Client, Discovery, unresponsive};
use tokio::time::Instant;

use crate::{
    config::{self, Settings},
    context::Context,
    exit::{Exit, Failure},
    interrupt::Interrupt,
    log::{self, LogTarget},
    owner::HomeConnection,
};

/// Time without active runs after which the host exits.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum time for the host to start.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Interval between checks.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Owns the home until no run is active in it. Returns immediately if another process owns the
/// home.
pub(super) async fn host(context: &Context<'_>) -> Result<Exit, Failure> {
    // Detach from the terminal: its end and its Ctrl-C must not reach this process.
    if let Err(error) = rustix::process::setsid() {
        tracing::warn!(%error, "the background process could not detach from its terminal");
    }
    let home = context.home()?;
    let settings = config::read(&context.global, &home)?;
    log::start(
        context.global.verbose,
        LogTarget::Home {
            home: &home,
            has_picture: false,
        },
    );
    let interrupt = Interrupt::listen();
    let reached = HomeConnection::connect_or_own(&context.address(&home), &|| {
        builder(context, &home, &settings)
    })
    .await?;
    let Some(owner) = reached.into_owner() else {
        return Ok(Exit::Success);
    };
    let mut busy = Instant::now();
    loop {
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {
                if !owner.is_idle() || owner.runtime().info().pending_names() > 0 {
                    busy = Instant::now();
                } else if busy.elapsed() > IDLE_TIMEOUT && owner.shut_if_idle() {
                    break;
                }
            }
            () = interrupt.first() => {
                owner.cancel_all().await;
                break;
            }
        }
    }
    owner.close().await;
    Ok(Exit::Success)
}

/// Connects to the owner of the home, or starts a host if there is none.
pub(super) async fn connect_or_spawn(
    context: &Context<'_>,
    home: &Path,
) -> Result<Client, Failure> {
    let mut host = None;
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        match Client::find(&context.address(home)).await {
            Discovery::Owner(client, _) => return Ok(client),
            Discovery::Unresponsive => return Err(unresponsive().into()),
            Discovery::Unreachable(error) => return Err(error.into()),
            Discovery::None => {}
        }
        match &mut host {
            None => host = Some(spawn(context, home)?),
            // If the host exited because another process owns the home, that owner will answer
            // soon.
            Some(host) => match host.try_wait() {
                Ok(Some(status)) if !status.success() => break,
                _ if Instant::now() > deadline => break,
                _ => {}
            },
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    let log = std::fs::read_to_string(log_file(home)).unwrap_or_default();
    let last = log
        .lines()
        .rfind(|line| line.starts_with("error:"))
        .unwrap_or("error: it printed no error message");
    let what = format!(
        "the background process did not start: {}",
        last.trim_start_matches("error:").trim()
    );
    Err(Failure::new(
        Exit::Failed,
        what,
        format!("See its output in {}.", log_file(home).display()),
    ))
}

fn log_file(home: &Path) -> std::path::PathBuf {
    crate::panic::log_folder(home).join("host.log")
}

fn spawn(context: &Context<'_>, home: &Path) -> Result<Child, Failure> {
    let failed = |error: std::io::Error| {
        let what = format!("cannot start a background process: {error}");
        Failure::new(Exit::Failed, what, "Omit --detach to run in this terminal.")
    };
    let log_file = log_file(home);
    config::make_home(home)
        .and_then(|()| std::fs::create_dir_all(crate::panic::log_folder(home)))
        .map_err(failed)?;
    let log = File::options()
        .create(true)
        .append(true)
        .open(&log_file)
        .map_err(failed)?;
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command
        .arg("host")
        .arg("--home")
        .arg(home)
        .args(["--color", "never"]);
    if let Some(config) = &context.global.config {
        command.arg("--config").arg(config);
    }
    command.args((0..context.global.verbose).map(|_| "-v"));
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    command.spawn().map_err(failed)
}

/// Returns the runtime builder for the user's own configuration.
pub(super) fn builder(context: &Context<'_>, home: &Path, settings: &Settings) -> RuntimeBuilder {
    let builder = Runtime::builder()
        .home(home)
        .config(settings.config.clone())
        .load_config()
        .reject_home_projects()
        .faults_from_env();
    // Permissions are decided by the user at a terminal or with `soong permissions`. A run that has
    // neither is started as unattended.
    builder
        .environment(context.environment.clone())
        .permissions_by_users()
}
