//! Tool names in the form that OpenAI accepts: ASCII letters, digits, `_` and `-`, at most 64
//! characters.
//!
//! Soong's names may contain dots (`mcp.files.search`). In each request, a name that does not fit
//! is replaced, and the calls of the answer get the original name back. Pure.
//!
//! Invariants: different names of a request stay different; a name that fits is kept; the same
//! request always gets the same names.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
};

use soong_protocol::ToolCall;
use soong_text::{is_json_object, unwrap_json_string};

use super::surrogates::without_lone_surrogates;
use crate::ModelRequest;

/// Maximum length of a name, in bytes.
const MAX_BYTES: usize = 64;

/// Replaced names of a request.
#[derive(Debug, Default)]
pub(crate) struct ToolNames {
    /// Soong's names to the service's. Names that are kept are not included.
    outgoing: HashMap<String, String>,
    incoming: HashMap<String, String>,
}

impl ToolNames {
    /// Reads the names of the offered tools and of the calls in the conversation.
    pub(crate) fn of(request: &ModelRequest) -> Self {
        let offered = request.tools.iter().map(|tool| tool.name.as_str());
        let called = request
            .messages
            .iter()
            .flat_map(|message| &message.tool_calls)
            .map(|call| call.name.as_str());
        let all = || offered.clone().chain(called.clone());
        if all().all(is_valid) {
            return Self::default();
        }
        // Collect names that are kept first, so that no generated name equals one of them.
        let mut used_names: HashSet<String> = all()
            .filter(|name| is_valid(name))
            .map(str::to_owned)
            .collect();
        let mut names = Self::default();
        for name in all().filter(|name| !is_valid(name)) {
            if names.outgoing.contains_key(name) {
                continue;
            }
            let made = make_name(name, &used_names);
            used_names.insert(made.clone());
            names.incoming.insert(made.clone(), name.to_owned());
            names.outgoing.insert(name.to_owned(), made);
        }
        names
    }

    /// Returns the name to send to the service.
    pub(crate) fn outgoing_name<'a>(&'a self, name: &'a str) -> &'a str {
        self.outgoing.get(name).map_or(name, String::as_str)
    }

    /// Returns calls with the names to send, and with arguments that are JSON objects: services
    /// parse the arguments of earlier calls, and reject a request in which they are not objects.
    pub(crate) fn outgoing_calls<'a>(&self, calls: &'a [ToolCall]) -> Cow<'a, [ToolCall]> {
        let is_kept = |call: &ToolCall| {
            let has_whole_characters =
                matches!(without_lone_surrogates(&call.arguments), Cow::Borrowed(_));
            !self.outgoing.contains_key(&call.name)
                && has_whole_characters
                && is_json_object(&call.arguments)
        };
        if calls.iter().all(is_kept) {
            return Cow::Borrowed(calls);
        }
        let renamed = |call: &ToolCall| ToolCall {
            id: call.id.clone(),
            name: self.outgoing_name(&call.name).to_owned(),
            arguments: if is_json_object(&call.arguments) {
                without_lone_surrogates(&call.arguments).into_owned()
            } else {
                unwrap_json_string(&call.arguments).unwrap_or_else(|| "{}".to_owned())
            },
        };
        Cow::Owned(calls.iter().map(renamed).collect())
    }

    /// Restores Soong's names in the calls of an answer. A name that was not sent is kept; the run
    /// rejects it.
    pub(crate) fn restore(&self, calls: &mut [ToolCall]) {
        for call in calls {
            if let Some(ours) = self.incoming.get(&call.name) {
                call.name.clone_from(ours);
            }
        }
    }
}

fn is_valid(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    !name.is_empty() && name.len() <= MAX_BYTES && name.bytes().all(allowed)
}

/// Returns a name that fits and is not taken: `.` becomes `__`, any other invalid character becomes
/// `_`.
fn make_name(name: &str, used_names: &HashSet<String>) -> String {
    let mut stem = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '.' => stem.push_str("__"),
            c if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') => stem.push(c),
            _ => stem.push('_'),
        }
    }
    // ASCII only, so it can be cut anywhere.
    stem.truncate(MAX_BYTES);
    if is_valid(&stem) && !used_names.contains(&stem) {
        return stem;
    }
    let mut number = 2_u64;
    loop {
        let ending = format!("_{number}");
        let stem_length = stem.len().min(MAX_BYTES - ending.len());
        let candidate = format!("{}{ending}", &stem[..stem_length]);
        if !used_names.contains(&candidate) {
            return candidate;
        }
        number += 1;
    }
}

#[cfg(test)]
#[path = "names/tests.rs"]
mod tests;
