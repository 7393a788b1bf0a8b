//! Fair queue of model calls: round-robin over sessions (MOD-3).
//!
//! Pure. One round serves one call of every waiting session, however many calls each session has.
//! Within a session, calls are served in ticket order, so a call that is requeued (rate limited, or
//! after a gateway crash) comes first again.
//!
//! Invariants: a waiting session is served once per round; a session gains nothing by leaving the
//! queue and returning; a rate-limited call that is requeued gives its session the turn back. So a
//! session with few calls gets the same share as one with hundreds, even if most of the served
//! calls are requeued.
//!
//! Elsewhere: `fair_queue.rs`, which is sufficient if items are never requeued.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::Hash,
};

/// Waiting calls, by session and ticket.
#[derive(Debug)]
pub(super) struct CallQueue<K, T> {
    sessions: HashMap<K, SessionQueue<T>>,
    /// The next round of each session with the ticket of its first call. The smallest entry is
    /// served next.
    turns: BTreeSet<(u64, u64, K)>,
    /// The next round of sessions that have no waiting call. They may have had more turns than the
    /// waiting sessions, and their served calls may be requeued.
    idle_sessions: HashMap<K, u64>,
    /// The round that was served last.
    round: u64,
    /// Maximum number of calls that can be requeued.
    max_in_flight: u64,
    len: usize,
}

#[derive(Debug)]
struct SessionQueue<T> {
    round: u64,
    /// Never empty.
    items: BTreeMap<u64, T>,
}

impl<K: Hash + Ord + Clone, T> CallQueue<K, T> {
    /// Creates a queue of which at most `most_out` calls are served at the same time.
    pub(super) fn new(most_out: usize) -> Self {
        let most_out = u64::try_from(most_out).unwrap_or(u64::MAX);
        // Start at round `most_out`, so that a session that is owed a turn can be placed before it.
        let sessions = HashMap::new();
        let turns = BTreeSet::new();
        let away = HashMap::new();
        let round = most_out;
        Self {
            sessions,
            turns,
            idle_sessions: away,
            round,
            max_in_flight: most_out,
            len: 0,
        }
    }

    /// Adds a call. `again` if the call was served without success and is requeued.
    pub(super) fn push(&mut self, session: K, ticket: u64, item: T, is_requeued: bool) {
        let mut queue = match self.take_queue(&session) {
            Some(queue) => queue,
            None => {
                // Start at the round of the waiting sessions, not at the last served one: its calls
                // may have been requeued.
                let now = self
                    .turns
                    .first()
                    .map_or(self.round, |(round, _, _)| *round);
                let round = match self.idle_sessions.remove(&session) {
                    Some(round) if is_requeued => round,
                    Some(round) => round.max(now),
                    None => now,
                };
                SessionQueue {
                    round,
                    items: BTreeMap::new(),
                }
            }
        };
        queue.round = queue.round.saturating_sub(u64::from(is_requeued));
        self.len += usize::from(queue.items.insert(ticket, item).is_none());
        self.put_queue(session, queue);
    }

    /// Returns the next call.
    pub(super) fn head(&self) -> Option<&T> {
        let (_, ticket, session) = self.turns.first()?;
        self.sessions.get(session)?.items.get(ticket)
    }

    /// Removes and returns the next call.
    pub(super) fn pop(&mut self) -> Option<T> {
        let (round, _, session) = self.turns.first()?.clone();
        let mut queue = self.take_queue(&session)?;
        let (_, item) = queue.items.pop_first()?;
        self.len -= 1;
        if round > self.round {
            // Forget sessions so many rounds back that none of their calls can still be requeued.
            self.idle_sessions
                .retain(|_, stands| stands.saturating_add(self.max_in_flight) > round);
        }
        self.round = round;
        queue.round = queue.round.saturating_add(1);
        self.put_queue(session, queue);
        Some(item)
    }

    /// Removes a call that stops waiting.
    pub(super) fn remove(&mut self, session: &K, ticket: u64) {
        let Some(mut queue) = self.take_queue(session) else {
            return;
        };
        self.len -= usize::from(queue.items.remove(&ticket).is_some());
        self.put_queue(session.clone(), queue);
    }

    /// Returns the number of waiting calls.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn take_queue(&mut self, session: &K) -> Option<SessionQueue<T>> {
        let queue = self.sessions.remove(session)?;
        if let Some(ticket) = queue.items.keys().next() {
            self.turns.remove(&(queue.round, *ticket, session.clone()));
        }
        Some(queue)
    }

    fn put_queue(&mut self, session: K, queue: SessionQueue<T>) {
        match queue.items.keys().next() {
            Some(ticket) => {
                self.turns.insert((queue.round, *ticket, session.clone()));
                self.sessions.insert(session, queue);
            }
            None => {
                self.idle_sessions.insert(session, queue.round);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn served(line: &mut CallQueue<&'static str, &'static str>, most: usize) -> Vec<&'static str> {
        std::iter::from_fn(|| line.pop()).take(most).collect()
    }

    #[test]
    fn sessions_take_turns_and_oldest_call_is_served_first() {
        let mut line = CallQueue::new(4);
        for (session, ticket, item) in [
            ("a", 3, "a3"),
            ("a", 1, "a1"),
            ("a", 2, "a2"),
            ("b", 4, "b4"),
            ("a", 5, "a5"),
            ("b", 6, "b6"),
        ] {
            line.push(session, ticket, item, false);
        }
        line.remove(&"a", 2);
        line.remove(&"c", 9);
        assert_eq!(line.len(), 5);
        assert_eq!(line.head(), Some(&"a1"));
        assert_eq!(served(&mut line, 9), ["a1", "b4", "a3", "b6", "a5"]);
        assert_eq!(
            (line.len(), line.turns.len(), line.sessions.len()),
            (0, 0, 0)
        );
    }

    #[test]
    fn submitting_calls_one_by_one_gives_no_advantage() {
        let mut line = CallQueue::new(4);
        for ticket in 0..6 {
            line.push("a", ticket, "a", false);
        }
        let mut got = Vec::new();
        for ticket in 6..12 {
            line.push("b", ticket, "b", false);
            got.extend(served(&mut line, 1));
        }
        assert_eq!(
            got.iter().filter(|session| **session == "b").count(),
            3,
            "{got:?}"
        );
    }

    #[test]
    fn rate_limited_call_keeps_its_turn() {
        let mut line = CallQueue::new(4);
        for ticket in 1..4 {
            line.push("a", ticket, "a", false);
        }
        line.push("b", 9, "b", false);
        assert_eq!(served(&mut line, 2), ["a", "b"]);
        for _ in 0..3 {
            line.push("b", 9, "b", true);
            assert_eq!(
                served(&mut line, 1),
                ["b"],
                "it was turned away, and is owed a turn"
            );
        }
        line.push("a", 1, "a1", true);
        assert_eq!(
            served(&mut line, 1),
            ["a1"],
            "before its session's younger calls"
        );
    }

    #[test]
    fn new_or_requeued_session_keeps_its_fair_share() {
        let mut line = CallQueue::new(16);
        let mut ticket = 0;
        let mut fill = |line: &mut CallQueue<_, _>, session, calls| {
            for _ in 0..calls {
                ticket += 1;
                line.push(session, ticket, (session, ticket), false);
            }
        };
        fill(&mut line, "a", 400);
        let mut got = Vec::new();
        for wave in 0..20 {
            if wave == 5 {
                fill(&mut line, "b", 7);
            }
            let served: Vec<(&str, u64)> = std::iter::from_fn(|| line.pop()).take(16).collect();
            got.extend(served[..2].iter().map(|(session, _)| *session));
            for (session, ticket) in &served[2..] {
                line.push(*session, *ticket, (*session, *ticket), true);
            }
        }
        let of_b: Vec<usize> = (0..got.len()).filter(|at| got[*at] == "b").collect();
        assert_eq!(
            (of_b.len(), of_b[0] <= 11, of_b[6] <= 24),
            (7, true, true),
            "{of_b:?}"
        );
    }

    proptest! {
        #[test]
        fn sessions_get_equal_share_for_any_requeues(
            sessions in 1_usize..6, waves in vec(vec(any::<bool>(), 1..9), 1..80),
        ) {
            let mut line = CallQueue::new(8);
            let mut got = vec![0_u32; sessions];
            let mut ticket = 0;
            for session in 0..sessions {
                for _ in 0..8 + session {
                    ticket += 1;
                    line.push(session, ticket, (session, ticket), false);
                }
            }
            for wave in waves {
                let served: Vec<(usize, u64)> = wave.iter().map(|_| line.pop().unwrap()).collect();
                for ((session, old), is_through) in served.into_iter().zip(wave) {
                    if is_through {
                        got[session] += 1;
                        ticket += 1;
                        line.push(session, ticket, (session, ticket), false);
                    } else {
                        line.push(session, old, (session, old), true);
                    }
                }
                // The sessions differ by no more than one wave, and the difference does not
                // accumulate.
                let spread = got.iter().max().unwrap() - got.iter().min().unwrap();
                prop_assert!(spread <= 8, "{:?}", got);
            }
            let waiting: usize = line.sessions.values().map(|queue| queue.items.len()).sum();
            prop_assert_eq!(line.len(), waiting);
            prop_assert!(line.idle_sessions.len() <= sessions);
        }
    }

    #[test]
    fn idle_sessions_are_dropped() {
        let mut line = CallQueue::new(4);
        for session in 0..1_000 {
            line.push(session, 0, (), false);
            line.pop();
            line.push(1_000, session, (), false);
            line.pop();
        }
        assert!(
            line.idle_sessions.len() < 20,
            "{}",
            line.idle_sessions.len()
        );
    }
}
