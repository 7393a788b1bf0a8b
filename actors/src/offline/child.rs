//! The explorer: lists its part of the project, reads the most informative files, searches once,
//! and answers with the result.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    NOTICE, Turn,
    conversation::Conversation,
    count,
    listing::{Listing, languages},
    plain_line,
    plan::{Question, Scope},
    purpose,
};

/// Maximum numbers of folders listed and of files read.
const MAX_LISTED: usize = 20;
const MAX_READ: usize = 24;
const READ_LINES: u64 = 40;

/// Decides the explorer's next turn.
pub(super) fn next(conversation: &Conversation<'_>, scope: &Scope) -> Turn {
    if conversation.offers("list_files") && !conversation.has_called("list_files") {
        return Turn::call_tools(format!("Listing {}.", scope.label), listings(scope));
    }
    let listing = listed(conversation, scope);
    if !conversation.has_called("read") && !conversation.has_called("grep") {
        let calls = detail_calls(conversation, scope, &listing);
        if !calls.is_empty() {
            return Turn::call_tools("Reading what tells most, and searching once.", calls);
        }
    }
    Turn::answer(answer(conversation, scope, &listing))
}

fn listings(scope: &Scope) -> Vec<(&'static str, Value)> {
    let list = |path: &str, recursive: bool| {
        (
            "list_files",
            json!({"path": path, "recursive": recursive, "limit": 1000}),
        )
    };
    let mut flat: Vec<&str> = scope.direct.iter().map(String::as_str).collect();
    flat.extend(
        scope
            .files
            .iter()
            .map(|file| file.rfind('/').map_or("./", |end| &file[..=end])),
    );
    flat.sort_unstable();
    flat.dedup();
    let mut calls: Vec<_> = scope
        .folders
        .iter()
        .map(|folder| list(folder, true))
        .collect();
    calls.extend(flat.into_iter().map(|folder| list(folder, false)));
    calls.truncate(MAX_LISTED);
    calls
}

/// Combines the listings of the scope. Totals cover whole folders, including files that the listing
/// omitted.
fn listed(conversation: &Conversation<'_>, scope: &Scope) -> Listing {
    let mut listing = Listing::default();
    for exchange in conversation.calls("list_files") {
        let listed_path = exchange.text("path").unwrap_or_default();
        let Some(text) = exchange.ok() else {
            let why = exchange
                .error()
                .map_or("it was not listed".to_owned(), |error| {
                    plain_line(error, 160)
                });
            listing.unreadable.push(format!("{listed_path}: {why}"));
            continue;
        };
        let mut one = Listing::parse(text);
        if !scope.folders.iter().any(|folder| folder == listed_path) {
            one.files.retain(|path, _| scope.contains(path));
            let all_shown = !one.is_truncated || !scope.files.is_empty();
            if all_shown {
                one.total_files = one.files.len() as u64;
                one.total_bytes = one.files.values().sum();
            }
            one.folders.clear();
            one.is_truncated = !all_shown;
        }
        listing.merge(one);
    }
    listing
}

/// Returns the second step: reads of the most informative files, and one search.
fn detail_calls(
    conversation: &Conversation<'_>,
    scope: &Scope,
    listing: &Listing,
) -> Vec<(&'static str, Value)> {
    let mut calls = Vec::new();
    if conversation.offers("read") && scope.question == Question::Overview {
        let ranked = listing.files.iter().filter(|(_, size)| **size > 0);
        let mut ranked: Vec<_> = ranked
            .filter_map(|(path, size)| Some((purpose::rank(path)?, path, *size)))
            .collect();
        ranked.sort_by(|a, b| (a.0, b.2, a.1).cmp(&(b.0, a.2, b.1)));
        let telling = ranked.into_iter().take(MAX_READ);
        calls.extend(
            telling.map(|(_, path, _)| ("read", json!({"path": path, "max_lines": READ_LINES}))),
        );
    }
    let searched_path = match (
        scope.folders.as_slice(),
        scope.direct.as_slice(),
        scope.files.as_slice(),
    ) {
        ([one], [], []) => one.as_str(),
        ([], [], [one]) => one.as_str(),
        _ => ".",
    };
    let wanted = listing
        .files
        .keys()
        .any(|path| purpose::rank(path).is_some());
    if conversation.offers("grep") && wanted {
        calls.push((
            "grep",
            json!({"pattern": pattern(scope.question), "path": searched_path, "limit": 200}),
        ));
    }
    calls
}

const fn pattern(question: Question) -> &'static str {
    match question {
        Question::EntryPoints => {
            r"fn main\(|def main\(|func main\(|__main__|public static void main|int main\("
        }
        _ => r"\b(TODO|FIXME)\b",
    }
}

fn answer(conversation: &Conversation<'_>, scope: &Scope, listing: &Listing) -> String {
    let mut text = headline(listing);
    for lost in &listing.unreadable {
        text.push_str(&format!("Could not be read: {}.\n", plain_line(lost, 200)));
    }
    let hits = describe_hits(conversation, scope);
    if !hits.is_empty() {
        text.push_str(&hits);
    }
    let closing = format!("\n({NOTICE}.)");
    let room = scope
        .max_bytes
        .saturating_sub(text.len() + closing.len() + 1);
    text.push('\n');
    text.push_str(&match scope.question {
        Question::Kinds => format!(
            "- Kinds: {}\n",
            languages(listing.files.iter().map(|(p, s)| (p.as_str(), *s)), 8)
        ),
        question => list_files_in_room(conversation, listing, question, room),
    });
    text + &closing
}

fn headline(listing: &Listing) -> String {
    if listing.total_files == 0 && listing.folders.is_empty() {
        return "There are no files here.\n".to_owned();
    }
    let files = count(listing.total_files, "file");
    let bytes = count(listing.total_bytes, "byte");
    let mut text = format!("{files}, {bytes} in all.");
    if listing.is_truncated {
        let seen = listing.files.len();
        text.push_str(&format!(
            " Only {seen} were looked at; the rest was counted and left out."
        ));
    }
    let languages = languages(
        listing
            .files
            .iter()
            .map(|(path, size)| (path.as_str(), *size)),
        3,
    );
    if !languages.is_empty() {
        text.push_str(&format!(" Mainly {languages}."));
    }
    text.push('\n');
    text
}

/// Describes the search results in one line.
fn describe_hits(conversation: &Conversation<'_>, scope: &Scope) -> String {
    let what = match scope.question {
        Question::EntryPoints => "Places where a program begins",
        _ => "Lines marked TODO or FIXME",
    };
    let Some(result) = conversation
        .calls("grep")
        .find_map(|exchange| exchange.ok())
    else {
        return String::new();
    };
    let hit = |line: &str| {
        let (path, rest) = line.split_once(':')?;
        let number = rest.split_once(':')?.0.parse::<u64>().ok()?;
        scope.contains(path).then(|| (path.to_owned(), number))
    };
    let hits: Vec<(String, u64)> = result.lines().filter_map(hit).collect();
    match hits.first() {
        Some((path, line)) => format!(
            "{what}: {}, the first in `{path}`, line {line}.\n",
            hits.len()
        ),
        None if scope.question == Question::EntryPoints => format!("{what}: none seen.\n"),
        None => String::new(),
    }
}

/// Lists the files, as many as fit.
fn list_files_in_room(
    conversation: &Conversation<'_>,
    listing: &Listing,
    question: Question,
    room: usize,
) -> String {
    let reads = conversation
        .calls("read")
        .filter_map(|exchange| Some((exchange.text("path")?, exchange.ok()?)));
    let pages: BTreeMap<&str, &str> = reads.collect();
    let mut order: Vec<(&str, u64)> = listing
        .files
        .iter()
        .map(|(path, size)| (path.as_str(), *size))
        .collect();
    match question {
        Question::Sizes => order.sort_by(|a, b| (b.1, a.0).cmp(&(a.1, b.0))),
        // Files that were read come first: if there is little room, the informative ones are kept.
        _ => order.sort_by_key(|(path, _)| (!pages.contains_key(path), *path)),
    }
    let mut text = String::new();
    let mut shown = 0_u64;
    let mut shown_bytes = 0_u64;
    // Reserve room for the last line about omitted files.
    let room = room.saturating_sub(60);
    for (path, size) in order {
        let purpose = match pages.get(path) {
            Some(page) => purpose::by_content(path, page),
            None => purpose::by_name(path),
        };
        let full = format!("- `{path}` ({}): {purpose}\n", count(size, "byte"));
        let short = format!("- `{path}` ({})\n", count(size, "byte"));
        match [full, short]
            .into_iter()
            .find(|line| text.len() + line.len() <= room)
        {
            Some(line) => text.push_str(&line),
            None => continue,
        }
        shown += 1;
        shown_bytes += size;
    }
    let more = listing.total_files.saturating_sub(shown);
    let bytes = listing.total_bytes.saturating_sub(shown_bytes);
    if more > 0 {
        text.push_str(&format!(
            "- and {} ({}) not named here\n",
            count(more, "more file"),
            count(bytes, "byte")
        ));
    }
    text
}
