//! The line before a gateway: whose call is next (MOD-3).
//!
//! Pure. Sessions take turns, however many calls each has: a round is one call of each session that
//! waits. Within a session the elder call goes first, by its ticket; so a call that comes back, because
//! it was limited or the gateway crashed, is at the front of its session again.
//! Invariants: a session that waits is served once in every round; nobody gains rounds by leaving and
//! coming back; a call that comes back limited gives its session the turn back. So a session with few
//! calls gets as much as one with hundreds, also where most of those that are served come back.
//! Not here: `fair_queue.rs`, which is enough where nobody comes back.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::Hash,
};

/// Calls that wait, by session and ticket.
#[derive(Debug)]
pub(super) struct Line<K, T> {
    sessions: HashMap<K, Queue<T>>,
    /// The round that each session waits for, and the ticket of its first call: the first goes next.
    turns: BTreeSet<(u64, u64, K)>,
    /// Where sessions stand that do not wait: they may have had more turns than those that do, and
    /// what they were served may come back.
    away: HashMap<K, u64>,
    /// The round that was served last.
    round: u64,
    /// How many calls may come back at most.
    most_out: u64,
    length: usize,
}

#[derive(Debug)]
struct Queue<T> {
    round: u64,
    /// Never empty.
    items: BTreeMap<u64, T>,
}

impl<K: Hash + Ord + Clone, T> Line<K, T> {
    /// Makes a line of which no more than `most_out` calls are served at the same time.
    pub(super) fn new(most_out: usize) -> Self {
        let most_out = u64::try_from(most_out).unwrap_or(u64::MAX);
        // From a round on before which there is room for whoever is owed a turn.
        let (sessions, turns, away, round) = (HashMap::new(), BTreeSet::new(), HashMap::new(), most_out);
        Self { sessions, turns, away, round, most_out, length: 0 }
    }

    /// Takes a call in; `again` = it was served, and comes back without having got through.
    pub(super) fn push(&mut self, session: K, ticket: u64, item: T, again: bool) {
        let mut queue = match self.take_queue(&session) {
            Some(queue) => queue,
            None => {
                // Those who wait say where the line stands: what was served last may have come back.
                let now = self.turns.first().map_or(self.round, |(round, _, _)| *round);
                let round = match self.away.remove(&session) {
                    Some(round) if again => round,
                    Some(round) => round.max(now),
                    None => now,
                };
                Queue { round, items: BTreeMap::new() }
            }
        };
        queue.round = queue.round.saturating_sub(u64::from(again));
        self.length += usize::from(queue.items.insert(ticket, item).is_none());
        self.put_queue(session, queue);
    }

    /// Returns the call that is next.
    pub(super) fn head(&self) -> Option<&T> {
        let (_, ticket, session) = self.turns.first()?;
        self.sessions.get(session)?.items.get(ticket)
    }

    /// Takes the call that is next out of the line.
    pub(super) fn pop(&mut self) -> Option<T> {
        let (round, _, session) = self.turns.first()?.clone();
        let mut queue = self.take_queue(&session)?;
        let (_, item) = queue.items.pop_first()?;
        self.length -= 1;
        if round > self.round {
            // Whoever is so far back has nothing to come back for.
            self.away.retain(|_, stands| stands.saturating_add(self.most_out) > round);
        }
        self.round = round;
        queue.round = queue.round.saturating_add(1);
        self.put_queue(session, queue);
        Some(item)
    }

    /// Forgets a call that waits no longer.
    pub(super) fn leave(&mut self, session: &K, ticket: u64) {
        let Some(mut queue) = self.take_queue(session) else { return };
        self.length -= usize::from(queue.items.remove(&ticket).is_some());
        self.put_queue(session.clone(), queue);
    }

    /// Returns how many calls wait.
    pub(super) fn len(&self) -> usize {
        self.length
    }

    fn take_queue(&mut self, session: &K) -> Option<Queue<T>> {
        let queue = self.sessions.remove(session)?;
        if let Some(ticket) = queue.items.keys().next() {
            self.turns.remove(&(queue.round, *ticket, session.clone()));
        }
        Some(queue)
    }

    fn put_queue(&mut self, session: K, queue: Queue<T>) {
        match queue.items.keys().next() {
            Some(ticket) => {
                self.turns.insert((queue.round, *ticket, session.clone()));
                self.sessions.insert(session, queue);
            }
            None => {
                self.away.insert(session, queue.round);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn served(line: &mut Line<&'static str, &'static str>, most: usize) -> Vec<&'static str> {
        std::iter::from_fn(|| line.pop()).take(most).collect()
    }

    #[test]
    fn sessions_take_turns_and_the_elder_call_goes_first() {
        let mut line = Line::new(4);
        for (session, ticket, item) in
            [("a", 3, "a3"), ("a", 1, "a1"), ("a", 2, "a2"), ("b", 4, "b4"), ("a", 5, "a5"), ("b", 6, "b6")]
        {
            line.push(session, ticket, item, false);
        }
        line.leave(&"a", 2);
        line.leave(&"c", 9);
        assert_eq!(line.len(), 5);
        assert_eq!(line.head(), Some(&"a1"));
        assert_eq!(served(&mut line, 9), ["a1", "b4", "a3", "b6", "a5"]);
        assert_eq!((line.len(), line.turns.len(), line.sessions.len()), (0, 0, 0));
    }

    #[test]
    fn nobody_gains_by_coming_one_by_one() {
        let mut line = Line::new(4);
        for ticket in 0..6 {
            line.push("a", ticket, "a", false);
        }
        let mut got = Vec::new();
        for ticket in 6..12 {
            line.push("b", ticket, "b", false);
            got.extend(served(&mut line, 1));
        }
        assert_eq!(got.iter().filter(|session| **session == "b").count(), 3, "{got:?}");
    }

    #[test]
    fn whoever_comes_back_limited_has_its_turn_again() {
        let mut line = Line::new(4);
        for ticket in 1..4 {
            line.push("a", ticket, "a", false);
        }
        line.push("b", 9, "b", false);
        assert_eq!(served(&mut line, 2), ["a", "b"]);
        for _ in 0..3 {
            line.push("b", 9, "b", true);
            assert_eq!(served(&mut line, 1), ["b"], "it was turned away, and is owed a turn");
        }
        line.push("a", 1, "a1", true);
        assert_eq!(served(&mut line, 1), ["a1"], "before its session's younger calls");
    }

    #[test]
    fn whoever_comes_or_is_turned_away_with_its_last_call_does_not_fall_behind() {
        let mut line = Line::new(16);
        let mut ticket = 0;
        let mut fill = |line: &mut Line<_, _>, session, calls| {
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
        assert_eq!((of_b.len(), of_b[0] <= 11, of_b[6] <= 24), (7, true, true), "{of_b:?}");
    }

    proptest! {
        #[test]
        fn sessions_get_the_same_whatever_comes_back(
            sessions in 1_usize..6, waves in vec(vec(any::<bool>(), 1..9), 1..80),
        ) {
            let mut line = Line::new(8);
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
                // No more than a wave apart, and it does not add up.
                let spread = got.iter().max().unwrap() - got.iter().min().unwrap();
                prop_assert!(spread <= 8, "{:?}", got);
            }
            let waiting: usize = line.sessions.values().map(|queue| queue.items.len()).sum();
            prop_assert_eq!(line.len(), waiting);
            prop_assert!(line.away.len() <= sessions);
        }
    }

    #[test]
    fn sessions_that_are_gone_are_forgotten() {
        let mut line = Line::new(4);
        for session in 0..1_000 {
            line.push(session, 0, (), false);
            line.pop();
            line.push(1_000, session, (), false);
            line.pop();
        }
        assert!(line.away.len() < 20, "{}", line.away.len());
    }
}
