//! Whole lists, read page by page.

use soong_protocol::{
    ErrorInfo, Session, SessionId, Trace,
    api::{
        SessionQuery, TraceQuery,
        operation::{ListSessions, ListTraces},
    },
};

use crate::Client;

/// Number of items per page.
const PAGE_ITEMS: usize = 100;

impl Client {
    /// Lists all sessions, newest first. `with_calls`: single calls too.
    ///
    /// # Errors
    /// Those of the request for any page.
    pub async fn sessions(&self, with_calls: bool) -> Result<Vec<Session>, ErrorInfo> {
        let mut sessions = Vec::new();
        let mut query = SessionQuery {
            limit: Some(PAGE_ITEMS),
            all: with_calls,
            ..SessionQuery::default()
        };
        loop {
            let request = ListSessions {
                query: query.clone(),
            };
            let page = self.call(request).await?;
            sessions.extend(page.sessions);
            query.cursor = page.next_cursor;
            if query.cursor.is_none() {
                return Ok(sessions);
            }
        }
    }

    /// Lists all traces, or those of a session, newest first. `with_calls`: single calls too.
    ///
    /// # Errors
    /// Those of the request for any page.
    pub async fn traces(
        &self,
        session: Option<&SessionId>,
        with_calls: bool,
    ) -> Result<Vec<Trace>, ErrorInfo> {
        let mut traces = Vec::new();
        let mut query = TraceQuery {
            session_id: session.cloned(),
            limit: Some(PAGE_ITEMS),
            all: with_calls,
            ..TraceQuery::default()
        };
        loop {
            let request = ListTraces {
                query: query.clone(),
            };
            let page = self.call(request).await?;
            traces.extend(page.traces);
            query.cursor = page.next_cursor;
            if query.cursor.is_none() {
                return Ok(traces);
            }
        }
    }
}
