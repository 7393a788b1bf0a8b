//! Order of the idle sessions, so that the one that has been idle longest is passivated first.

use std::collections::{BTreeMap, HashMap};

use soong_protocol::SessionId;

/// Idle sessions, ordered by the time at which they became idle.
#[derive(Debug, Default)]
pub(super) struct IdleSessions {
    by_turn: BTreeMap<u64, SessionId>,
    turns: HashMap<SessionId, u64>,
    next_turn: u64,
}

impl IdleSessions {
    /// Adds a session that has become idle. If it is known already, it becomes the last one.
    pub(super) fn insert(&mut self, id: SessionId) {
        self.remove(&id);
        self.by_turn.insert(self.next_turn, id.clone());
        self.turns.insert(id, self.next_turn);
        self.next_turn += 1;
    }

    pub(super) fn remove(&mut self, id: &SessionId) {
        if let Some(turn) = self.turns.remove(id) {
            self.by_turn.remove(&turn);
        }
    }

    /// Removes and returns the session that has been idle longest, if there are more than `max`.
    pub(super) fn pop_beyond(&mut self, max: usize) -> Option<SessionId> {
        if self.by_turn.len() <= max {
            return None;
        }
        let (_, id) = self.by_turn.pop_first()?;
        self.turns.remove(&id);
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_that_is_idle_longest_is_passivated_first() {
        let mut idle = IdleSessions::default();
        for id in ["a", "b", "c", "a"] {
            idle.insert(SessionId::new(id));
        }
        assert_eq!(idle.pop_beyond(3), None);
        assert_eq!(idle.pop_beyond(2), Some(SessionId::new("b")));
        assert_eq!(idle.pop_beyond(2), None);
        idle.remove(&SessionId::new("c"));
        idle.remove(&SessionId::new("unknown"));
        assert_eq!(idle.pop_beyond(0), Some(SessionId::new("a")));
        assert_eq!(idle.pop_beyond(0), None);
        assert!(idle.turns.is_empty() && idle.by_turn.is_empty());
    }
}
