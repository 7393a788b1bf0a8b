//! Context of a run that the runtime sends after the newest message when it has changed: artifacts,
//! goals, collaborators, the date, the permission mode, budgets.
//!
//! An update is recorded with the answer to its request, and later prompts contain it at the same
//! place. So the beginning of a prompt never changes: services cache it, and reject reasoning whose
//! beginning has changed.

use std::sync::Arc;

use chrono::{DateTime, Local};
use soong_protocol::{Message, Timestamp};

/// First line of an update.
const MARK: &str = "[Context of this run, added by the runtime]";

/// The context at one call.
#[derive(Default)]
pub(super) struct RunContext {
    /// Sent if it has changed.
    pub(super) inventory: Option<String>,
    /// Sent always.
    pub(super) reminder: Option<String>,
    /// The date, the permission mode and the rest of a budget. Sent if they have changed.
    pub(super) notes: [Option<String>; 3],
}

impl RunContext {
    /// Returns the update to send after these messages. `None` if nothing has changed.
    pub(super) fn update(&self, messages: &[Arc<Message>]) -> Option<String> {
        let is_new = |section: &&String| {
            // Only the latest update that contains this heading counts.
            let heading = section
                .lines()
                .find(|line| !line.is_empty())
                .unwrap_or_default();
            let earlier = messages
                .iter()
                .rev()
                .filter_map(|message| message.context_update.as_deref());
            let latest = earlier
                .into_iter()
                .find(|update| update.lines().any(|line| line == heading));
            latest.is_none_or(|update| !contains_section(update, section.trim()))
        };
        let changed = self.inventory.iter().filter(is_new);
        let sections: Vec<&str> = changed
            .chain(&self.reminder)
            .chain(self.notes.iter().flatten().filter(is_new))
            .map(|section| section.trim())
            .filter(|section| !section.is_empty())
            .collect();
        (!sections.is_empty()).then(|| format!("{MARK}\n\n{}", sections.join("\n\n")))
    }
}

/// Returns the section about the date: that of this machine's time zone, such as `2026-11-29
/// (Sunday, UTC+01:00)`.
pub(super) fn date_note(at: Timestamp) -> String {
    let local = DateTime::from_timestamp_millis(at.as_millis())
        .unwrap_or_default()
        .with_timezone(&Local);
    format!("## Date\n{}\n", local.format("%Y-%m-%d (%A, UTC%:z)"))
}

/// Returns whether an update contains a whole section.
fn contains_section(update: &str, section: &str) -> bool {
    let found = update
        .match_indices(section)
        .map(|(start, _)| &update[start + section.len()..]);
    found
        .into_iter()
        .any(|rest| rest.is_empty() || rest.starts_with("\n\n## "))
}

#[cfg(test)]
mod tests {
    use soong_protocol::{Role, TraceId};

    use super::*;

    fn answer(update: Option<&str>) -> Arc<Message> {
        let message = Message::new(
            TraceId::new("t"),
            1,
            None,
            Role::Assistant,
            "x",
            Timestamp::default(),
        );
        Arc::new(Message {
            context_update: update.map(str::to_owned),
            ..message
        })
    }

    #[test]
    fn only_changed_sections_are_sent() {
        let artifacts = |text: &str| Some(format!("## Artifacts\n{text}\n"));
        let context = |inventory: Option<String>, reminder: Option<&str>| RunContext {
            inventory,
            reminder: reminder.map(str::to_owned),
            notes: [None, None, None],
        };
        let first = context(artifacts("- a"), None).update(&[]).unwrap();
        assert_eq!(first, format!("{MARK}\n\n## Artifacts\n- a"));
        let sent = [answer(Some(&first)), answer(None)];
        for (inventory, reminder, expected) in [
            (artifacts("- a"), None, None),
            (artifacts("- b"), None, Some("## Artifacts\n- b")),
            (Some("## Artifacts".to_owned()), None, Some("## Artifacts")),
            (artifacts("- a"), Some("## Goals\n1"), Some("## Goals\n1")),
            (None, None, None),
        ] {
            let update = context(inventory, reminder).update(&sent);
            assert_eq!(update, expected.map(|text| format!("{MARK}\n\n{text}")));
        }
        let newer = [answer(Some(&first)), answer(Some("x\n## Artifacts\n- b"))];
        assert!(
            context(artifacts("- a"), None).update(&newer).is_some(),
            "an older update is out of date"
        );
    }
}
