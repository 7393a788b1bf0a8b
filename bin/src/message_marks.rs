//! Position of each message of a trace: on the main path, off it, or replaced by a summary (MSG-2,
//! MSG-5).
//!
//! Pure. Elsewhere: printing the messages.

use std::collections::{HashMap, HashSet};

use soong::protocol::Message;

/// Returns the mark of each message: head, off the main path, reflection, or replaced by a summary.
pub(crate) fn marks(messages: &[Message], path: &[Message]) -> Vec<String> {
    let head = path.last().map(|message| message.sequence);
    let on_path: HashSet<u64> = path.iter().map(|message| message.sequence).collect();
    let parents: HashMap<u64, Option<u64>> = messages
        .iter()
        .map(|message| (message.sequence, message.parent_sequence))
        .collect();
    // Only smaller sequences are followed, so that the iteration ends.
    let above = |at: &u64| {
        parents
            .get(at)
            .copied()
            .flatten()
            .filter(|above| above < at)
    };
    let lineage: HashSet<u64> = std::iter::successors(head, above).collect();
    let mark = |message: &Message| {
        let sequence = message.sequence;
        let stands_for = message
            .covers
            .as_ref()
            .map(|covers| format!(" (summary of {} to {})", covers.first, covers.last));
        let position = match () {
            () if head == Some(sequence) => " (head)",
            () if on_path.contains(&sequence) => "",
            () if message.side_branch => " (reflection)",
            () if lineage.contains(&sequence) => " (summarized)",
            () => " (off the path)",
        };
        format!("{}{position}", stands_for.unwrap_or_default())
    };
    messages.iter().map(mark).collect()
}

#[cfg(test)]
mod tests {
    use soong::protocol::{Covers, Role, Timestamp, TraceId};

    use super::*;

    #[test]
    fn messages_are_marked_by_their_position_on_the_path() {
        let message = |sequence, parent, covers: Option<Covers>| Message {
            covers,
            ..Message::new(
                TraceId::new("s"),
                sequence,
                parent,
                Role::User,
                "text".to_owned(),
                Timestamp::default(),
            )
        };
        // Message 8 summarizes 1 to 3. Messages 4 and 5 are off the path after a rewind.
        let covers = Covers {
            first: 1,
            last: 3,
            next: 6,
            system: None,
            request: None,
        };
        let summary = message(8, None, Some(covers));
        let links = [
            (1, None),
            (2, Some(1)),
            (3, Some(2)),
            (4, Some(3)),
            (5, Some(4)),
            (6, Some(3)),
            (7, Some(6)),
        ];
        let mut all: Vec<Message> = links
            .map(|(sequence, parent)| message(sequence, parent, None))
            .into();
        all.push(summary.clone());
        let path = [summary, all[5].clone(), all[6].clone()];
        let behind = " (summarized)";
        let off = " (off the path)";
        assert_eq!(
            marks(&all, &path),
            [
                behind,
                behind,
                behind,
                off,
                off,
                "",
                " (head)",
                " (summary of 1 to 3)"
            ]
        );
        assert_eq!(marks(&path, &path), [" (summary of 1 to 3)", "", " (head)"]);
        assert!(marks(&[], &[]).is_empty());
    }
}
