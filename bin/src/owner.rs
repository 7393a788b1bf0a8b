//! Owning a home: the runtime, and the control socket on which others reach it (DUR-3).
//!
//! A command that works in a home first asks whether somebody owns it already; if so it works
//! there, as a client. An owner does not leave while somebody else's run is at work in it.
//! Not here: the routes (`http.rs`).

use std::{sync::Once, time::Duration};

use axum::Extension;
use soong::{ErrorCode, ErrorInfo, Recover, Runtime, RuntimeBuilder};
use soong_server::{
    ControlSocket,
    http::{self, Api, Caller, Gate, Ready},
};
use tokio::time::Instant;

use crate::{
    client::{self, Address, Client, Found},
    print, text,
};

/// How long an owner that is about to come or to leave is waited for.
const HANDOVER: Duration = Duration::from_secs(3);
/// How often is asked meanwhile.
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// How long clients may take to read the last that they were sent.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Whether it was said that faults are on purpose.
static SAID: Once = Once::new();

/// Who owns the home that a command works in.
pub(crate) enum Reached {
    /// This process, from now on.
    Own(Owner),
    /// Another one, which answers.
    Other(Client, Ready),
}

impl Reached {
    /// Finds the owner of a home, or becomes it; `build` says with what.
    pub(crate) async fn find(address: &Address, build: &impl Fn() -> RuntimeBuilder) -> Result<Self, ErrorInfo> {
        let deadline = Instant::now() + HANDOVER;
        loop {
            match Client::find(address).await {
                Found::Owner(client, ready) => return Ok(Self::Other(client, ready)),
                Found::Silent => return Err(client::silent()),
                Found::Away(error) => return Err(error),
                Found::Nobody => {}
            }
            match Owner::open(build(), Recover::Nothing).await {
                Ok(owner) => return Ok(Self::Own(owner)),
                Err(error) if error.code == ErrorCode::HomeLocked && Instant::now() < deadline => {
                    tokio::time::sleep(ASK_AGAIN).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    pub(crate) fn client(&self) -> &Client {
        match self {
            Self::Own(owner) => &owner.client,
            Self::Other(client, _) => client,
        }
    }

    /// Returns the owner, if it is this process.
    pub(crate) fn own(self) -> Option<Owner> {
        match self {
            Self::Own(owner) => Some(owner),
            Self::Other(..) => None,
        }
    }
}

/// The home is ours.
pub(crate) struct Owner {
    runtime: Runtime,
    api: Api,
    client: Client,
    control: Option<ControlSocket>,
}

impl Owner {
    /// Takes the home, and answers on its socket; `recover` says which runs go on that others have left behind.
    pub(crate) async fn open(builder: RuntimeBuilder, recover: Recover) -> Result<Self, ErrorInfo> {
        if let Some(plan) = builder.fault_plan()? {
            // Said before anything can go wrong, and once: opening is tried again where another owner leaves.
            SAID.call_once(|| {
                print::error_line(&format!("note: faults are on purpose: {}", text::line(&plan.to_string())))
            });
        }
        let runtime = builder.recover(recover).build().await?;
        let api = Api::new(runtime.clone(), Gate::open());
        // Who can open the socket can open the home.
        let router = http::router(api.clone()).layer(Extension(Caller::Operator));
        let control = match ControlSocket::serve(api.clone(), router.clone()) {
            Ok(control) => Some(control),
            Err(error) => {
                print::error_line(&format!(
                    "warning: other terminals cannot reach this one: no control socket: {error}"
                ));
                None
            }
        };
        let client = Client::here(router, runtime.clone());
        Ok(Self { runtime, api, client, control })
    }

    /// Returns whether nothing is at work.
    pub(crate) fn is_idle(&self) -> bool {
        self.runtime.live_runs() == 0 || self.runtime.user_runs_at_work() == 0
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Returns what handlers work with, for whoever serves the routes elsewhere as well.
    pub(crate) fn api(&self) -> &Api {
        &self.api
    }

    /// Shuts the gate if no run is at work; returns whether it is shut. Runs that wait for people need no process.
    pub(crate) fn shut_if_idle(&self) -> bool {
        self.api.gate.shut_if(|| self.is_idle())
    }

    /// Cancels every run that is at work, and takes none in any more.
    pub(crate) async fn cancel_all(&self) {
        self.api.gate.shut();
        if let Err(error) = self.runtime.cancel_all().await {
            print::error_line(&format!("note: {error}"));
        }
    }

    /// Leaves the home: its clients have read what they came for, everything is on disk, and the next
    /// owner may come.
    pub(crate) async fn close(self) {
        self.api.gate.leave();
        let _ = tokio::time::timeout(LAST_WORDS, self.api.gate.passed()).await;
        if let Some(control) = &self.control {
            control.drain().await;
        }
        self.runtime.close().await;
        self.api.watching.close();
        let _ = tokio::time::timeout(LAST_WORDS, self.api.watching.wait()).await;
        if let Some(control) = self.control {
            control.stop().await;
        }
    }
}
