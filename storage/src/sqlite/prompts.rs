//! Texts that many rows of a session have in common, stored once per session and addressed by their
//! hash: system messages, and the names of the tools that a run offers.
//!
//! Messages and runs refer to them. They belong to one session: a copy of a conversation gets rows
//! of its own, and the deletion of a session deletes its rows. The texts are hashed as they are
//! stored, without secrets.

use rusqlite::{Connection, OptionalExtension};
use sha2::{Digest, Sha256};
use soong_protocol::{Message, Role};

/// Minimum size of a shared text, in bytes. A row for a shorter text would take more space than it
/// saves.
const MIN_BYTES: usize = 128;

/// Returns whether the text of a message is stored as a prompt.
pub(super) fn is_shared(message: &Message) -> bool {
    message.role == Role::System && message.content.len() >= MIN_BYTES
}

/// Returns the key of a text in a session; inserts the text if the session does not have it.
pub(super) fn key(conn: &Connection, session_key: i64, content: &str) -> rusqlite::Result<i64> {
    let hash = Sha256::digest(content);
    let mut query =
        conn.prepare_cached("SELECT prompt_key FROM prompt WHERE session_key = ?1 AND hash = ?2")?;
    if let Some(key) = query
        .query_row((session_key, hash.as_slice()), |row| row.get(0))
        .optional()?
    {
        return Ok(key);
    }
    conn.prepare_cached("INSERT INTO prompt (session_key, hash, content) VALUES (?1, ?2, ?3)")?
        .insert((session_key, hash.as_slice(), content))
}

/// Copies the prompts of the messages of a trace into a session, and changes the messages to refer
/// to the copies.
pub(super) fn copy_to(conn: &Connection, session_key: i64, trace_key: i64) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "INSERT OR IGNORE INTO prompt (session_key, hash, content)
         SELECT DISTINCT ?1, hash, prompt.content FROM message JOIN prompt USING (prompt_key) WHERE trace_key = ?2",
    )?
    .execute((session_key, trace_key))?;
    conn.prepare_cached(
        "UPDATE message SET prompt_key = (
             SELECT copy.prompt_key FROM prompt JOIN prompt AS copy USING (hash)
             WHERE prompt.prompt_key = message.prompt_key AND copy.session_key = ?1)
         WHERE trace_key = ?2 AND prompt_key IS NOT NULL",
    )?
    .execute((session_key, trace_key))?;
    Ok(())
}
