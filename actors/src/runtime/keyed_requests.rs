//! Requests that are executed once, although a client that has lost the answer repeats them.
//!
//! The request is recorded in the append that creates its run or session, so that also a request
//! that is repeated after a crash creates nothing. Elsewhere: the header `Idempotency-Key` (the
//! server).

use soong_protocol::{
    ErrorInfo, KeyedRequest, RequestAnswer, RequestKey, RequestWrite, SessionId, Write,
};
use soong_storage::store::Append;

use super::Runtime;
use crate::clock::now;

impl Runtime {
    /// Reads the request that a user has sent with a key in the last 24 hours; `None` if there is
    /// none. It may be another request: compare the fingerprints.
    pub async fn keyed_request(&self, key: &RequestKey) -> Result<Option<KeyedRequest>, ErrorInfo> {
        let uid = key.uid.clone();
        let key_hash = key.key_hash.clone();
        let found = self
            .inner
            .services
            .core
            .reader
            .read(move |reader| reader.keyed_request(&uid, &key_hash))
            .await?;
        let now = now();
        Ok(found.filter(|request| now.millis_since(request.at) < KeyedRequest::LIFETIME_MS))
    }

    /// Records a keyed request whose effect does not record it, before it is executed. If the
    /// process ends before the answer is recorded, a repeated request is known and not executed
    /// again.
    ///
    /// # Errors
    /// `storage_error`.
    pub async fn begin_keyed_request(&self, key: RequestKey) -> Result<(), ErrorInfo> {
        self.write_request(RequestWrite::Begin { key, at: now() })
            .await
    }

    /// Forgets a request that has begun and failed, so that it can be sent again.
    ///
    /// # Errors
    /// `storage_error`.
    pub async fn withdraw_keyed_request(&self, key: RequestKey) -> Result<(), ErrorInfo> {
        self.write_request(RequestWrite::Withdraw { key, at: now() })
            .await
    }

    /// Records the answer to a keyed request. `session_id`: the session that it concerns, with
    /// which it is deleted.
    pub async fn record_answer(
        &self,
        key: RequestKey,
        answer: RequestAnswer,
        session_id: Option<SessionId>,
    ) -> Result<(), ErrorInfo> {
        self.write_request(RequestWrite::Answer {
            key,
            answer,
            session_id,
            at: now(),
        })
        .await
    }

    pub(super) async fn write_request(&self, write: RequestWrite) -> Result<(), ErrorInfo> {
        let write = Write::Request(write);
        let appended = self
            .inner
            .services
            .core
            .journal
            .append_and_wait(Append {
                fence: None,
                writes: vec![write],
            })
            .await;
        appended.map(drop).map_err(|error| ErrorInfo::from(&error))
    }
}
