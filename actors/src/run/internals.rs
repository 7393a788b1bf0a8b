//! How the runtime works inside: one page for each process that involves several modules.

#[doc = include_str!("../../guide/internals/cancel.md")]
mod cancel {}

#[doc = include_str!("../../guide/internals/permissions.md")]
mod permissions {}

#[doc = include_str!("../../guide/internals/recovery.md")]
mod recovery {}
