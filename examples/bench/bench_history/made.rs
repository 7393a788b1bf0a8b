//! Creates histories directly in the store: many sessions, and one long trace.

use std::{path::Path, sync::Arc};

use soong::protocol::{
    Durability, Event, EventDraft, Message, MessageEvent, ModelEvent, Role, RunEvent, RunId,
    RunMode, SessionId, StatsPair, Timestamp, TraceId, Usage, Usd, Write,
};
use soong_storage::{
    sqlite::SqliteStore,
    store::{Append, Store},
};

use super::{Failed, rows};

/// Session of the long trace.
pub(crate) const LONG_SESSION: &str = "long";
/// Size of the text of each message in bytes.
pub(crate) const TEXT_BYTES: usize = 256;
/// Number of messages per transaction; for sessions a fifth of it.
const BATCH: u64 = 500;

struct Author {
    session: SessionId,
    trace: TraceId,
    run: RunId,
    at: Timestamp,
}

impl Author {
    fn new(session: &str) -> Self {
        let session = SessionId::new(session);
        let trace = TraceId::root(&session);
        let run = RunId::generate();
        Self {
            session,
            trace,
            run,
            at: Timestamp::from_millis(1_760_000_000_000),
        }
    }

    fn rows(&self) -> Vec<Write> {
        let begun = RunEvent::LoopStarted {
            mode: RunMode::Normal,
            agent_type: "default".to_owned(),
            model: "mock".to_owned(),
        };
        vec![
            rows::session(&self.session, self.at),
            rows::trace(&self.trace, &self.session, self.at),
            rows::run(&self.run, &self.trace, &self.session, self.at),
            self.event(begun),
        ]
    }

    fn event(&self, event: impl Into<Event>) -> Write {
        Write::Event(EventDraft::new(
            self.trace.clone(),
            Some(self.run.clone()),
            self.at,
            event,
        ))
    }

    fn message(&self, sequence: u64) -> [Write; 2] {
        let role = if sequence.is_multiple_of(2) {
            Role::User
        } else {
            Role::Assistant
        };
        let parent = sequence.checked_sub(1).filter(|parent| *parent > 0);
        let text = format!("{sequence:08} {}", "what it is for, and why. ".repeat(10))
            .chars()
            .take(TEXT_BYTES)
            .collect::<String>();
        let message = Message::new(self.trace.clone(), sequence, parent, role, text, self.at);
        let event = self.event(MessageEvent::added(&message));
        [Write::Message(Arc::new(message)), event]
    }

    fn answered(&self) -> Write {
        let usage = Usage {
            prompt_tokens: 1_800,
            completion_tokens: 90,
            ..Usage::default()
        };
        self.event(ModelEvent::Completed {
            finish_reason: "stop".to_owned(),
            tool_calls: 0,
            usage,
            cost: Some(Usd::default()),
            duration_ms: 740,
            waited_ms: 0,
            answer_check: None,
        })
    }

    fn ended(&self) -> Write {
        self.event(RunEvent::Completed {
            summary: "It is done.".to_owned(),
            stats: StatsPair::zero(),
        })
    }
}

fn open(home: &Path) -> Result<SqliteStore, Failed> {
    std::fs::create_dir_all(home)?;
    Ok(SqliteStore::open(
        home.join("sessions.sqlite"),
        Durability::Normal,
    )?)
}

fn commit(store: &mut SqliteStore, batch: &[Append]) -> Result<(), Failed> {
    store
        .commit(batch)?
        .into_iter()
        .try_for_each(|answer| answer.map(drop))
        .map_err(Failed::from)
}

/// Writes completed sessions with `events` events each, of which a tenth belong to messages.
pub(crate) fn sessions(home: &Path, count: u64, events: u64) -> Result<(), Failed> {
    let mut store = open(home)?;
    let mut batch = Vec::new();
    for number in 0..count {
        let author = Author::new(&format!("session-{number:06}"));
        let mut writes = author.rows();
        let messages = events / 10;
        writes.extend((1..=messages).flat_map(|sequence| author.message(sequence)));
        writes.extend((messages + 2..events).map(|_| author.answered()));
        writes.push(author.ended());
        batch.push(Append {
            fence: None,
            writes,
        });
        if batch.len() as u64 == BATCH / 5 || number + 1 == count {
            commit(&mut store, &std::mem::take(&mut batch))?;
        }
    }
    Ok(())
}

/// Writes one trace with `messages` messages. Returns the size of its database in bytes.
pub(crate) fn long_trace(home: &Path, messages: u64) -> Result<u64, Failed> {
    let mut store = open(home)?;
    let author = Author::new(LONG_SESSION);
    commit(
        &mut store,
        &[Append {
            fence: None,
            writes: author.rows(),
        }],
    )?;
    for first in (1..=messages).step_by(BATCH as usize) {
        let last = (first + BATCH - 1).min(messages);
        let writes = (first..=last)
            .flat_map(|sequence| author.message(sequence))
            .collect();
        commit(
            &mut store,
            &[Append {
                fence: None,
                writes,
            }],
        )?;
    }
    commit(
        &mut store,
        &[Append {
            fence: None,
            writes: vec![author.ended()],
        }],
    )?;
    drop(store);
    Ok(std::fs::metadata(home.join("sessions.sqlite"))?.len())
}
