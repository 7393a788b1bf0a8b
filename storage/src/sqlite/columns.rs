//! Representation of the protocol's values in columns: counts as integers, enums as the strings
//! that clients see, other values as JSON.

use std::sync::Arc;

use rusqlite::{
    Row,
    types::{FromSql, FromSqlError, Type},
};
use serde::{Deserialize, Serialize, de::IntoDeserializer, de::value::StrDeserializer};
use soong_protocol::{Stats, Timestamp, Usd};

/// Converts a count to a column value; clamps it to `i64::MAX`.
pub(super) fn clamp_to_i64(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Converts an enum value to its string.
pub(super) fn word<T: Serialize>(value: T) -> String {
    serde_json::to_string(&value)
        .unwrap_or_default()
        .trim_matches('"')
        .to_owned()
}

/// Converts a value to JSON. The protocol's records can always be represented as JSON.
pub(super) fn json<T: Serialize>(value: T) -> String {
    serde_json::to_string(&value).unwrap_or_default()
}

/// The columns of [`Stats`], in the order of [`Columns::stats`].
macro_rules! stats_columns {
    () => {
        "messages, prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens, estimated, cost_nanos,
         model_calls, tool_calls, duration_ms, cache_write_tokens"
    };
}
pub(super) use stats_columns;

/// Reads the columns of a row in order.
pub(super) struct Columns<'a, 'row> {
    row: &'a Row<'row>,
    index: usize,
}

impl<'a, 'row> Columns<'a, 'row> {
    pub(super) fn of(row: &'a Row<'row>) -> Self {
        Self { row, index: 0 }
    }

    pub(super) fn next<T: FromSql>(&mut self) -> rusqlite::Result<T> {
        self.index += 1;
        self.row.get(self.index - 1)
    }

    pub(super) fn count(&mut self) -> rusqlite::Result<u64> {
        let count: i64 = self.next()?;
        u64::try_from(count).map_err(|_| self.conversion_error(FromSqlError::OutOfRange(count)))
    }

    pub(super) fn maybe_count(&mut self) -> rusqlite::Result<Option<u64>> {
        let Some(count) = self.next::<Option<i64>>()? else {
            return Ok(None);
        };
        u64::try_from(count)
            .map(Some)
            .map_err(|_| self.conversion_error(FromSqlError::OutOfRange(count)))
    }

    pub(super) fn id<T>(&mut self, make: impl FnOnce(Arc<str>) -> T) -> rusqlite::Result<T> {
        self.next::<Arc<str>>().map(make)
    }

    pub(super) fn maybe_id<T>(
        &mut self,
        make: impl FnOnce(Arc<str>) -> T,
    ) -> rusqlite::Result<Option<T>> {
        Ok(self.next::<Option<Arc<str>>>()?.map(make))
    }

    pub(super) fn time(&mut self) -> rusqlite::Result<Timestamp> {
        self.next().map(Timestamp::from_millis)
    }

    pub(super) fn maybe_time(&mut self) -> rusqlite::Result<Option<Timestamp>> {
        Ok(self.next::<Option<i64>>()?.map(Timestamp::from_millis))
    }

    pub(super) fn maybe_usd(&mut self) -> rusqlite::Result<Option<Usd>> {
        Ok(self.maybe_count()?.map(Usd::from_nanos))
    }

    pub(super) fn enum_value<T: for<'de> Deserialize<'de>>(&mut self) -> rusqlite::Result<T> {
        let text: String = self.next()?;
        self.parse_enum(&text)
    }

    pub(super) fn maybe_enum<T: for<'de> Deserialize<'de>>(
        &mut self,
    ) -> rusqlite::Result<Option<T>> {
        let text: Option<String> = self.next()?;
        text.map(|text| self.parse_enum(&text)).transpose()
    }

    pub(super) fn json<T: for<'de> Deserialize<'de>>(&mut self) -> rusqlite::Result<T> {
        let text: String = self.next()?;
        serde_json::from_str(&text).map_err(|error| self.conversion_error(error))
    }

    pub(super) fn maybe_json<T: for<'de> Deserialize<'de>>(
        &mut self,
    ) -> rusqlite::Result<Option<T>> {
        let text: Option<String> = self.next()?;
        text.map(|text| serde_json::from_str(&text))
            .transpose()
            .map_err(|error| self.conversion_error(error))
    }

    /// Reads the columns of [`stats_columns`].
    pub(super) fn stats(&mut self) -> rusqlite::Result<Stats> {
        let messages = self.count()?;
        let prompt_tokens = self.count()?;
        let completion_tokens = self.count()?;
        Ok(Stats {
            messages,
            total_tokens: prompt_tokens + completion_tokens,
            prompt_tokens,
            completion_tokens,
            cached_tokens: self.count()?,
            reasoning_tokens: self.count()?,
            estimated: self.next()?,
            cost: self.maybe_usd()?,
            model_calls: self.count()?,
            tool_calls: self.count()?,
            duration_ms: self.count()?,
            cache_write_tokens: self.count()?,
        })
    }

    fn parse_enum<T: for<'de> Deserialize<'de>>(&self, text: &str) -> rusqlite::Result<T> {
        let word: StrDeserializer<'_, serde::de::value::Error> = text.into_deserializer();
        T::deserialize(word).map_err(|error| self.conversion_error(error))
    }

    fn conversion_error(
        &self,
        why: impl std::error::Error + Send + Sync + 'static,
    ) -> rusqlite::Error {
        rusqlite::Error::FromSqlConversionFailure(self.index - 1, Type::Text, Box::new(why))
    }
}

/// Collects the rows of a statement.
pub(super) fn collect_rows<T>(
    rows: impl Iterator<Item = rusqlite::Result<T>>,
) -> rusqlite::Result<Vec<T>> {
    rows.collect()
}
