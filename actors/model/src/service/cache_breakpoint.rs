//! Cache breakpoints for models of OpenAI. From GPT 5.6 on, a model caches a prompt only up to a
//! breakpoint, in both APIs.

use serde::Serialize;

use super::Call;

/// Marks the end of a part of the prompt that is cached.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct CacheBreakpoint {
    mode: &'static str,
}

impl CacheBreakpoint {
    pub(crate) const EXPLICIT: Self = Self { mode: "explicit" };
}

impl Call<'_> {
    /// Returns whether the model caches at breakpoints only: `gpt-5.6` and later.
    pub(crate) fn caches_at_breakpoints(&self) -> bool {
        let name = self.model.rsplit('/').next().unwrap_or(self.model);
        let version = name
            .strip_prefix("gpt-")
            .and_then(|rest| rest.split('-').next());
        let (major, minor) = version
            .map(|version| version.split_once('.').unwrap_or((version, "0")))
            .unwrap_or_default();
        let version = major.parse::<u32>().ok().zip(minor.parse::<u32>().ok());
        // `gpt-35-turbo` is another service's name of version 3.5.
        !self.adaptation.no_cache_control
            && version.is_some_and(|version| ((5, 6)..(35, 0)).contains(&version))
    }
}
