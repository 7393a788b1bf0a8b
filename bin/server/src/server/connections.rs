//! Connections of the server: their limits, and which one is closed to make room for a new one
//! (SRV-1).
//!
//! A connection is *known* once a request on it has carried a known token. All other connections
//! share the unreserved slots, and each address has at most `max_connections_per_address` of them.
//! If a limit is reached, the oldest idle connection that counts toward it is closed, but no new
//! one that may just be about to send its first request ([`FRESH`]). If none is idle, the new
//! connection takes a reserved slot, on which only requests with a known token are answered. If the
//! reserved slots are in use too, new connections without a request are closed after all. So
//! neither silent connections nor other users of the same proxy can lock out a client that has a
//! token.
//!
//! A connection that is closed for another one gets 503 if it has sent nothing yet, or if a request
//! arrives within 2 s.

use std::{
    collections::HashMap,
    io::{self, IoSlice},
    net::{IpAddr, Ipv6Addr},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use soong::protocol::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Instant, Sleep},
};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;

/// Maximum time to keep reading after closing: closing with unread bytes would reset the connection
/// and lose the response.
const LINGER: Duration = Duration::from_secs(1);
/// Maximum number of bytes that are read after the last response.
const MAX_LINGER_BYTES: usize = 256 * 1_024;

/// Time in which a new connection is expected to send its first request. It is not closed for
/// another one before that while a reserved slot is free.
const FRESH: Duration = Duration::from_secs(2);

/// All open connections. Cheap to clone.
#[derive(Clone)]
pub(super) struct Connections {
    limits: ConnectionLimits,
    open: Arc<Mutex<ConnectionTable>>,
}

#[derive(Clone, Copy)]
struct ConnectionLimits {
    total: usize,
    reserved: usize,
    per_address: usize,
    head: Duration,
}

#[derive(Default)]
struct ConnectionTable {
    last_id: u64,
    entries: HashMap<u64, ConnectionEntry>,
}

struct ConnectionEntry {
    address: IpAddr,
    is_known: bool,
    /// Whether it was admitted beyond a limit, so that only requests with a known token are
    /// answered.
    is_reserved: bool,
    /// Whether a request has arrived on it.
    has_asked: bool,
    /// Time since which it waits for the head of a request; `None` while a request is in progress.
    idle_since: Option<Instant>,
    closed: CancellationToken,
}

impl Connections {
    pub(super) fn new(config: &ServerConfig) -> Self {
        let total = config.max_connections;
        let limits = ConnectionLimits {
            total,
            reserved: config.reserved_connections.min(total / 2),
            per_address: config.max_connections_per_address,
            head: Duration::from_secs(config.head_timeout_s),
        };
        Self {
            limits,
            open: Arc::default(),
        }
    }

    fn open(&self) -> MutexGuard<'_, ConnectionTable> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a new connection; `None` if all slots that it may have are taken by connections in
    /// use.
    pub(super) fn admit(&self, address: IpAddr) -> Option<Arc<Connection>> {
        let ConnectionLimits {
            total,
            reserved,
            per_address,
            ..
        } = self.limits;
        let address = network(address);
        let mut open = self.open();
        let now = Instant::now();
        let is_unreserved = |entry: &ConnectionEntry| !entry.is_known && !entry.is_reserved;
        let is_from_there =
            |entry: &ConnectionEntry| is_unreserved(entry) && entry.address == address;
        let is_closable = |entry: &ConnectionEntry| !entry.is_fresh(now);
        let mut is_reserved = false;
        if !open.make_room(per_address, is_from_there, is_closable)
            || !open.make_room(total - reserved, is_unreserved, is_closable)
        {
            let is_unknown_reserved =
                |entry: &ConnectionEntry| !entry.is_known && entry.is_reserved;
            is_reserved = open
                .entries
                .values()
                .filter(|entry| is_unknown_reserved(entry))
                .count()
                < reserved;
            if !is_reserved {
                let fits = open.make_room(per_address, is_from_there, |_| true)
                    && open.make_room(total - reserved, is_unreserved, |_| true);
                // Silent connections do not keep the reserved slots from those with a token.
                is_reserved = !fits && open.make_room(reserved, is_unknown_reserved, |_| true);
                if !fits && !is_reserved {
                    return None;
                }
            }
        }
        if !open.make_room(total, |_| true, |_| true) {
            return None;
        }
        open.last_id += 1;
        let id = open.last_id;
        let closed = CancellationToken::new();
        let entry = ConnectionEntry {
            address,
            is_known: false,
            is_reserved,
            has_asked: false,
            idle_since: Some(now),
            closed: closed.clone(),
        };
        open.entries.insert(id, entry);
        drop(open);
        Some(Arc::new(Connection {
            id,
            connections: self.clone(),
            closed,
        }))
    }
}

impl ConnectionEntry {
    /// Returns whether it is new and may just be about to send its first request.
    fn is_fresh(&self, now: Instant) -> bool {
        !self.has_asked && self.idle_since.is_some_and(|since| now < since + FRESH)
    }
}

impl ConnectionTable {
    /// Makes room for one more connection among those that `counts` selects: if there is none,
    /// closes the oldest idle one that `is_closable` selects. Returns whether there is room.
    fn make_room(
        &mut self,
        limit: usize,
        counts: impl Fn(&ConnectionEntry) -> bool,
        is_closable: impl Fn(&ConnectionEntry) -> bool,
    ) -> bool {
        let counted = || self.entries.iter().filter(|(_, entry)| counts(entry));
        if counted().count() < limit {
            return true;
        }
        let closable = counted().filter(|(_, entry)| is_closable(entry));
        let idle =
            closable.filter_map(|(id, entry)| Some((entry.is_known, entry.idle_since?, *id)));
        let oldest = idle.min().and_then(|(_, _, id)| self.entries.remove(&id));
        oldest.is_some_and(|entry| {
            entry.closed.cancel();
            true
        })
    }
}

/// Returns the part of an address that counts as one client: for IPv6 the /64 network, since a
/// client has all its addresses.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
        address => address,
    }
}

/// An open connection. It keeps its slot until it is dropped.
pub(super) struct Connection {
    id: u64,
    connections: Connections,
    closed: CancellationToken,
}

impl Connection {
    /// Records that a request begins; returns `false` if the connection was closed to make room for
    /// another one.
    pub(super) fn begin(&self) -> bool {
        let mut open = self.connections.open();
        let Some(entry) = open.entries.get_mut(&self.id) else {
            return false;
        };
        entry.has_asked = true;
        entry.idle_since = None;
        true
    }

    /// Records that the response was sent.
    pub(super) fn finish(&self) {
        if let Some(entry) = self.connections.open().entries.get_mut(&self.id) {
            entry.idle_since = Some(Instant::now());
        }
    }

    /// Records that a request has carried a known token.
    pub(super) fn set_known(&self) {
        if let Some(entry) = self.connections.open().entries.get_mut(&self.id) {
            entry.is_known = true;
        }
    }

    /// Returns whether only requests with a known token are answered on this connection.
    pub(super) fn is_reserved(&self) -> bool {
        self.connections
            .open()
            .entries
            .get(&self.id)
            .is_none_or(|entry| entry.is_reserved)
    }

    /// Waits until the connection must be closed to make room for another one.
    pub(super) async fn evicted(&self) {
        self.closed.cancelled().await;
    }

    /// Waits until no request has arrived within the head timeout. Never returns for a known
    /// connection, which has only the timeout of the HTTP server.
    pub(super) async fn head_timeout(&self) {
        loop {
            let Some(deadline) = self.deadline() else {
                return std::future::pending().await;
            };
            if Instant::now() >= deadline {
                return;
            }
            tokio::time::sleep_until(deadline).await;
        }
    }

    /// Returns the deadline for the next request head; `None` if the connection is known.
    fn deadline(&self) -> Option<Instant> {
        let open = self.connections.open();
        let entry = open.entries.get(&self.id).filter(|entry| !entry.is_known)?;
        Some(entry.idle_since.unwrap_or_else(Instant::now) + self.connections.limits.head)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.connections.open().entries.remove(&self.id);
    }
}

/// Stream of a connection. It keeps the connection's slot, even as a WebSocket.
pub(super) struct Stream {
    stream: Pin<Box<TimeoutStream<TcpStream>>>,
    _connection: Arc<Connection>,
    closing: Option<Closing>,
}

/// State of a connection that is shut down for writing and still read.
struct Closing {
    deadline: Pin<Box<Sleep>>,
    bytes: usize,
}

impl Stream {
    pub(super) fn new(stream: TimeoutStream<TcpStream>, connection: Arc<Connection>) -> Self {
        Self {
            stream: Box::pin(stream),
            _connection: connection,
            closing: None,
        }
    }

    /// Reads and discards bytes that the client still sends.
    fn poll_drain(
        mut stream: Pin<&mut TimeoutStream<TcpStream>>,
        closing: &mut Closing,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let mut space = [0; 4_096];
        while closing.bytes < MAX_LINGER_BYTES && closing.deadline.as_mut().poll(cx).is_pending() {
            let mut into = ReadBuf::new(&mut space);
            match ready!(stream.as_mut().poll_read(cx, &mut into)) {
                Ok(()) if !into.filled().is_empty() => closing.bytes += into.filled().len(),
                _ => break,
            }
        }
        Poll::Ready(())
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_read(cx, into)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream.as_mut().poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.closing.is_none() {
            ready!(this.stream.as_mut().poll_shutdown(cx))?;
        }
        let new = || Closing {
            deadline: Box::pin(tokio::time::sleep(LINGER)),
            bytes: 0,
        };
        let closing = this.closing.get_or_insert_with(new);
        Self::poll_drain(this.stream.as_mut(), closing, cx).map(Ok)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream.as_mut().poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connections(total: usize, reserved: usize, per_address: usize) -> Connections {
        Connections::new(&ServerConfig {
            max_connections: total,
            reserved_connections: reserved,
            max_connections_per_address: per_address,
            ..ServerConfig::default()
        })
    }

    fn from(number: u8) -> IpAddr {
        [10, 0, 0, number].into()
    }

    /// Admits a connection and advances the time, so that each connection is older than the next.
    async fn admit(connections: &Connections, address: IpAddr) -> Option<Arc<Connection>> {
        let admitted = connections.admit(address);
        tokio::time::advance(FRESH + Duration::from_millis(1)).await;
        admitted
    }

    fn is_open(connection: &Connection) -> bool {
        !connection.closed.is_cancelled()
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_idle_connection_is_closed_for_a_new_one() {
        let all = connections(8, 2, 100);
        let mut open = Vec::new();
        for number in 0..6 {
            open.push(admit(&all, from(number)).await.unwrap());
        }
        assert!(open[0].begin());
        let new = admit(&all, from(9)).await.unwrap();
        assert!(!new.is_reserved() && is_open(&open[0]) && !is_open(&open[1]) && is_open(&open[2]));
        assert!(!open[1].begin(), "a closed connection begins no request");
        open[0].finish();
        admit(&all, from(9)).await.unwrap();
        assert!(
            is_open(&open[0]) && !is_open(&open[2]),
            "its time counts from the last answer"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn reserve_is_kept_for_known_tokens_despite_other_limits() {
        let all = connections(8, 2, 3);
        let mut busy = Vec::new();
        // Three connections of one address, then three of others: both limits of unknown
        // connections are reached.
        for number in [0, 0, 0, 1, 2, 3] {
            let connection = admit(&all, from(number)).await.unwrap();
            assert!(!connection.is_reserved() && connection.begin());
            busy.push(connection);
        }
        for number in [0, 4] {
            let beyond = admit(&all, from(number)).await.unwrap();
            assert!(beyond.is_reserved());
            beyond.set_known();
            assert!(beyond.begin());
            busy.push(beyond);
        }
        assert!(all.admit(from(5)).is_none(), "all places are in use");
        busy[7].finish();
        assert!(all.admit(from(5)).unwrap().is_reserved());
        assert!(
            !is_open(&busy[7]),
            "an idle connection with a known token is closed where nothing else is idle"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn new_connections_are_closed_only_if_no_reserved_slot_is_free() {
        let all = connections(8, 2, 4);
        let mut open = Vec::new();
        for _ in 0..4 {
            open.push(all.admit(from(0)).unwrap());
        }
        for _ in 0..2 {
            let beyond = all.admit(from(0)).unwrap();
            assert!(beyond.is_reserved() && open.iter().all(|connection| is_open(connection)));
            open.push(beyond);
        }
        let next = all.admit(from(0)).unwrap();
        assert!(!next.is_reserved() && !is_open(&open[0]) && is_open(&open[1]));
        for connection in &open[1..] {
            assert!(connection.begin());
        }
        assert!(next.begin());
        assert!(
            all.admit(from(0)).is_none(),
            "its slots and the reserved ones are in use"
        );
        assert!(all.admit(from(1)).is_some(), "others have slots");
    }

    #[tokio::test(start_paused = true)]
    async fn authenticated_connections_do_not_count_per_address() {
        let all = connections(8, 2, 1);
        for _ in 0..6 {
            let connection = admit(&all, from(1)).await.unwrap();
            connection.set_known();
            assert!(connection.begin() && !connection.is_reserved());
            std::mem::forget(connection);
        }
        let a = "2001:db8::1".parse().unwrap();
        let b = "2001:db8::ffff:1".parse().unwrap();
        let first = admit(&all, a).await.unwrap();
        let _second = admit(&all, b).await.unwrap();
        assert!(!is_open(&first), "a network of IPv6 is one address");
    }

    #[tokio::test(start_paused = true)]
    async fn dropped_connection_frees_its_slot() {
        let all = connections(1, 64, 100);
        let only = admit(&all, from(1)).await.unwrap();
        assert!(only.begin() && !only.is_reserved() && all.admit(from(2)).is_none());
        drop(only);
        assert!(all.admit(from(2)).is_some());
    }
}
