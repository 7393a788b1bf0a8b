//! Numbers in the forms in which servers send them.

use std::fmt;

use serde::{Deserialize, Deserializer, de::Visitor};

/// A count or an index. Also accepts floats and strings; what cannot be read counts as 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LenientNumber(pub(crate) u64);

/// Returns a count that a server may leave out, which then is 0.
pub(crate) fn count(number: Option<LenientNumber>) -> u64 {
    number.map_or(0, |number| number.0)
}

impl<'de> Deserialize<'de> for LenientNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyNumber;
        impl Visitor<'_> for AnyNumber {
            type Value = LenientNumber;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number")
            }
            fn visit_u64<E>(self, value: u64) -> Result<LenientNumber, E> {
                Ok(LenientNumber(value))
            }
            fn visit_i64<E>(self, value: i64) -> Result<LenientNumber, E> {
                Ok(LenientNumber(u64::try_from(value).unwrap_or(0)))
            }
            fn visit_f64<E>(self, value: f64) -> Result<LenientNumber, E> {
                Ok(LenientNumber(value as u64)) // saturates; fractions are dropped
            }
            fn visit_str<E>(self, value: &str) -> Result<LenientNumber, E> {
                let number: Option<f64> = value.trim().parse().ok();
                Ok(LenientNumber(number.map_or(0, |number| number as u64)))
            }
            fn visit_bool<E>(self, _: bool) -> Result<LenientNumber, E> {
                Ok(LenientNumber(0))
            }
        }
        deserializer.deserialize_any(AnyNumber)
    }
}
