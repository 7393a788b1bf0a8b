//! Fair queue: claimants are served in turn, however many items each of them has queued.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
};

/// Queued items, with one queue per claimant, served round-robin.
#[derive(Debug)]
pub(crate) struct FairQueue<K, T> {
    queues: HashMap<K, VecDeque<T>>,
    order: VecDeque<K>,
}

impl<K, T> Default for FairQueue<K, T> {
    fn default() -> Self {
        Self {
            queues: HashMap::new(),
            order: VecDeque::new(),
        }
    }
}

impl<K: Hash + Eq + Clone, T> FairQueue<K, T> {
    pub(crate) fn push(&mut self, claimant: K, item: T) {
        let queue = self.queues.entry(claimant.clone()).or_default();
        if queue.is_empty() {
            self.order.push_back(claimant);
        }
        queue.push_back(item);
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        let claimant = self.order.pop_front()?;
        let queue = self.queues.get_mut(&claimant)?;
        let item = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(&claimant);
        } else {
            self.order.push_back(claimant);
        }
        item
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_served_round_robin() {
        let mut queue = FairQueue::default();
        for n in 0..3 {
            queue.push("a", format!("a{n}"));
        }
        queue.push("b", "b0".to_owned());
        let served: Vec<String> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(served, ["a0", "b0", "a1", "a2"]);
        assert!(queue.queues.is_empty() && queue.order.is_empty());
    }
}
