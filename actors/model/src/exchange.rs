//! The HTTP exchanges of a request, for debugging: the bodies that were sent to a service and that
//! it answered, byte for byte, up to 1 MiB each.
//!
//! Only requests with a log are recorded ([`ModelRequest::exchanges`](crate::ModelRequest)).
//! Headers are not: they carry keys.

use std::sync::{Mutex, PoisonError};

/// Maximum number of recorded bytes of a body.
const MAX_BODY_BYTES: usize = 1024 * 1024;

/// One request to a service, and its answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exchange {
    /// URL of the request, without its query.
    pub url: String,
    /// Body of the request, at most 1 MiB.
    pub request: Vec<u8>,
    /// HTTP status of the response. `None` if there was none.
    pub status: Option<u16>,
    /// Body of the response as far as it was read, at most 1 MiB.
    pub response: Vec<u8>,
}

/// Records the exchanges of a request with all its attempts.
#[derive(Debug, Default)]
pub struct ExchangeLog(Mutex<Vec<Exchange>>);

impl ExchangeLog {
    /// Records that a request is sent.
    pub fn begin(&self, url: &str, body: &[u8]) {
        let request = body[..body.len().min(MAX_BODY_BYTES)].to_vec();
        self.exchanges().push(Exchange {
            url: url.to_owned(),
            request,
            ..Exchange::default()
        });
    }

    /// Records the status of the response to the last request.
    pub fn set_status(&self, status: u16) {
        if let Some(exchange) = self.exchanges().last_mut() {
            exchange.status = Some(status);
        }
    }

    /// Records the next bytes of the response to the last request.
    pub fn receive(&self, bytes: &[u8]) {
        if let Some(exchange) = self.exchanges().last_mut() {
            let room = MAX_BODY_BYTES - exchange.response.len();
            exchange
                .response
                .extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
    }

    /// Returns the exchanges so far, and forgets them.
    pub fn take(&self) -> Vec<Exchange> {
        std::mem::take(&mut *self.exchanges())
    }

    fn exchanges(&self) -> std::sync::MutexGuard<'_, Vec<Exchange>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_recorded_up_to_their_limit() {
        let log = ExchangeLog::default();
        log.receive(b"before any request");
        log.begin("http://h/v1", b"one");
        log.set_status(500);
        log.begin("http://h/v1", &vec![b'x'; MAX_BODY_BYTES + 1]);
        log.set_status(200);
        log.receive(b"two ");
        log.receive(&vec![b'y'; MAX_BODY_BYTES]);
        let exchanges = log.take();
        assert_eq!(exchanges.len(), 2);
        assert_eq!(
            (
                exchanges[0].status,
                &*exchanges[0].request,
                &*exchanges[0].response
            ),
            (Some(500), &b"one"[..], &b""[..])
        );
        assert_eq!(
            (exchanges[1].request.len(), exchanges[1].response.len()),
            (MAX_BODY_BYTES, MAX_BODY_BYTES)
        );
        assert_eq!(log.take(), []);
    }
}
