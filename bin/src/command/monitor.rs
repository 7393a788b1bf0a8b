//! `soong monitor`: the live actor tree of the home's owner or of a server.

use soong_client::{Address, Client, Discovery};

use crate::{
    context::Context,
    exit::{Exit, Failure},
    interrupt::Interrupt,
    log::{self, LogTarget},
    monitor::{self, TreeSource},
    offline_store::OfflineStore,
};

pub(super) async fn monitor(context: &Context<'_>) -> Result<Exit, Failure> {
    if context.global.json {
        let what = "--json: the monitor is interactive";
        return Err(Failure::usage(
            what,
            "Use `soong tree --json` to print the tree once, or `GET /api/tree/watch` to stream its changes.",
        ));
    }
    monitor::check(context.terminal)?;
    log::start(context.global.verbose, LogTarget::Nowhere);
    let home = context.home()?;
    let address = context.address(&home);
    let title = match &address {
        Address::Server(remote) => remote.url().to_owned(),
        Address::Home(home) => home.display().to_string(),
    };
    // Report permanent errors immediately instead of waiting in the monitor.
    match (Client::find(&address).await, &address) {
        (Discovery::Unreachable(error), _) => return Err(error.into()),
        (Discovery::None, Address::Home(_)) if context.print_if_unused(&[(); 0])? => {
            return Ok(Exit::Success);
        }
        (Discovery::None, Address::Home(home)) => drop(OfflineStore::open(home)?),
        _ => {}
    }
    let interrupt = Interrupt::listen();
    monitor::show(
        TreeSource::Address(address),
        title,
        None,
        context.terminal,
        &interrupt,
    )
    .await?;
    Ok(Exit::Success)
}
