//! Experiences of earlier runs (MEM-2).

use std::sync::Arc;

use super::Runtime;
use crate::memory::MemoryFile;

/// Experiences of a home: see [`Runtime::memory`].
#[derive(Debug, Clone, Copy)]
pub struct Memory<'a> {
    pub(super) runtime: &'a Runtime,
}

impl Memory<'_> {
    /// Returns the experience file of a user (MEM-2).
    pub fn file(self, uid: &str) -> Arc<MemoryFile> {
        self.runtime.inner.services.resolver.memory.of(uid)
    }
}
