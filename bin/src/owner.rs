//! Ownership of a home: the runtime, and the control socket on which other processes reach it
//! (DUR-3).
//!
//! A command first looks for an existing owner of the home. If there is one, the command is its
//! client. An owner does not exit while runs of other processes are active in it.
//!
//! Elsewhere: the routes (`soong_server::http`).

use std::{
    sync::{Arc, Once},
    time::Duration,
};

use axum::Extension;
use soong::{
    ErrorCode, ErrorInfo, RecoveryPolicy, Runtime, RuntimeBuilder,
    protocol::{SessionId, api::Ready},
};
use soong_client::{self as client, Address, Client, Discovery};
use soong_server::{
    ControlSocket,
    http::{self, Api, Caller, LocalHome, ShutdownGate},
};
use soong_tui::text;
use tokio::time::Instant;

use crate::{print, slow_step::with_note};

/// Maximum time to wait for another owner that is starting or exiting.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(3);
/// Interval between attempts during that time.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum time for clients to read their last responses.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Ensures that the note about fault injection is printed once.
static FAULT_NOTE: Once = Once::new();

/// Owner of the home that a command uses.
pub(crate) enum HomeConnection {
    /// This process.
    Own(Owner),
    /// Another process, which answers requests.
    Other(Client, Ready),
}

impl HomeConnection {
    /// Connects to the owner of a home, or becomes the owner with a runtime from `build`.
    pub(crate) async fn connect_or_own(
        address: &Address,
        build: &impl Fn() -> RuntimeBuilder,
    ) -> Result<Self, ErrorInfo> {
        let deadline = Instant::now() + HANDOVER_TIMEOUT;
        loop {
            match Client::find(address).await {
                Discovery::Owner(client, ready) => return Ok(Self::Other(client, ready)),
                Discovery::Unresponsive => return Err(client::unresponsive()),
                Discovery::Unreachable(error) => return Err(error),
                Discovery::None => {}
            }
            let opened = with_note(
                "opening the home",
                Owner::open(build(), RecoveryPolicy::Nothing),
            );
            match opened.await {
                Ok(owner) => return Ok(Self::Own(owner)),
                Err(error) if error.code == ErrorCode::HomeLocked && Instant::now() < deadline => {
                    tokio::time::sleep(RETRY_INTERVAL).await;
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

    /// Returns the owner if it is this process.
    pub(crate) fn into_owner(self) -> Option<Owner> {
        match self {
            Self::Own(owner) => Some(owner),
            Self::Other(..) => None,
        }
    }
}

/// A home that this process owns.
pub(crate) struct Owner {
    runtime: Runtime,
    api: Api,
    client: Client,
    control: Option<ControlSocket>,
}

impl Owner {
    /// Opens the home and serves its control socket. `recover` selects the interrupted runs to
    /// resume.
    pub(crate) async fn open(
        builder: RuntimeBuilder,
        recover: RecoveryPolicy,
    ) -> Result<Self, ErrorInfo> {
        if let Some(plan) = builder.fault_plan()? {
            // Printed before anything can fail, and only once, since opening is retried while
            // another owner exits.
            FAULT_NOTE.call_once(|| {
                print::note(&format!(
                    "fault injection enabled: {}",
                    text::safe_line(&plan.to_string())
                ))
            });
        }
        let runtime = builder.recover(recover).build().await?;
        let api = Api::new(runtime.clone(), ShutdownGate::open());
        // A process that can open the socket can also open the home, so it is trusted as the
        // operator.
        let router = http::router(api.clone()).layer(Extension(Caller::Operator));
        let control = match ControlSocket::serve(api.clone(), router) {
            Ok(control) => Some(control),
            Err(error) => {
                print::error_line(&format!(
                    "warning: the control socket is not available, other terminals cannot connect: {error}"
                ));
                None
            }
        };
        let client = Client::new(Arc::new(LocalHome::new(api.clone())));
        Ok(Self {
            runtime,
            api,
            client,
            control,
        })
    }

    /// Returns whether no user run is active.
    pub(crate) fn is_idle(&self) -> bool {
        self.runtime.info().live_runs() == 0 || self.runtime.info().active_user_runs() == 0
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Returns the state of the HTTP handlers, for a server that also serves the routes elsewhere.
    pub(crate) fn api(&self) -> &Api {
        &self.api
    }

    /// Closes the gate for new runs if none is active. Returns whether it is closed. Runs that wait
    /// for user input need no process.
    pub(crate) fn shut_if_idle(&self) -> bool {
        self.api.gate.close_if(|| self.is_idle())
    }

    /// Like [`Owner::shut_if_idle`], but runs of this session may be active.
    pub(crate) fn shut_if_only(&self, session: &SessionId) -> bool {
        self.api.gate.close_if(|| !self.has_runs_besides(session))
    }

    /// Returns whether runs of other sessions are active.
    pub(crate) fn has_runs_besides(&self, session: &SessionId) -> bool {
        self.runtime
            .info()
            .active_sessions()
            .iter()
            .any(|active| active != session)
    }

    /// Cancels every active run and accepts no new ones.
    pub(crate) async fn cancel_all(&self) {
        self.api.gate.close();
        if let Err(error) = self.runtime.sessions().cancel_all().await {
            print::note(&error.to_string());
        }
    }

    /// Releases the home: waits until clients have read their responses and all data is on disk,
    /// then another process can own the home.
    pub(crate) async fn close(self) {
        self.api.gate.begin_shutdown();
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, self.api.gate.wait_until_empty()).await;
        if let Some(control) = &self.control {
            control.drain().await;
        }
        self.runtime.close().await;
        self.api.websockets.close();
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, self.api.websockets.wait()).await;
        if let Some(control) = self.control {
            control.stop().await;
        }
    }
}
