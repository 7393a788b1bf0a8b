//! Whole lists, read page by page.

use serde::de::DeserializeOwned;
use soong_protocol::{
    ErrorInfo, Session, SessionId, Trace,
    api::{SessionPage, TracePage},
};

use crate::{Client, path_segment};

/// Number of items per page.
const PAGE_ITEMS: usize = 100;

impl Client {
    /// Lists all sessions, newest first. `with_calls`: single calls too.
    ///
    /// # Errors
    /// Those of the request for any page.
    pub async fn sessions(&self, with_calls: bool) -> Result<Vec<Session>, ErrorInfo> {
        let filter = if with_calls { "&all=true" } else { "" };
        self.all_pages("/api/sessions", filter, |page: SessionPage| {
            (page.sessions, page.next_cursor)
        })
        .await
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
        let mut filter = session.map_or_else(String::new, |id| {
            format!("&session_id={}", path_segment(id))
        });
        if with_calls {
            filter.push_str("&all=true");
        }
        self.all_pages("/api/traces", &filter, |page: TracePage| {
            (page.traces, page.next_cursor)
        })
        .await
    }

    /// Reads pages until one has no cursor. `split` returns the items of a page and its cursor.
    async fn all_pages<P: DeserializeOwned, T>(
        &self,
        path: &str,
        filter: &str,
        split: impl Fn(P) -> (Vec<T>, Option<String>),
    ) -> Result<Vec<T>, ErrorInfo> {
        let mut all = Vec::new();
        let mut at = String::new();
        loop {
            let page = self
                .get(&format!("{path}?limit={PAGE_ITEMS}{at}{filter}"))
                .await?;
            let (mut items, cursor) = split(page);
            all.append(&mut items);
            let Some(cursor) = cursor else { return Ok(all) };
            at = format!("&cursor={}", path_segment(cursor));
        }
    }
}
