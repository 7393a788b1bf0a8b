//! The Facts pane: identity, state and usage of an actor, and the load of a gateway.

use soong_protocol::{
    Stats, Timestamp,
    tree::{ActorKind, BudgetShare, GatewayView},
};

use super::{PaneContext, RunFacts, paragraph};
use crate::monitor::{actor::Alert, usage_history::SECONDS};
use crate::{format, spent::Spent, styled_line::StyledLine, terminal::TextStyle, text};

/// Width of a fact's name, in columns.
const NAME: usize = 12;
/// Width of a bar, in columns.
const BAR: usize = 24;

pub(super) fn lines(page: &PaneContext<'_>) -> Vec<StyledLine> {
    let view = &page.actor.view;
    let mut lines = Vec::new();
    if let Some(run) = &view.run {
        lines.extend(fact("task", TextStyle::Plain, &run.task, page));
    }
    state(page, &mut lines);
    let failed = page
        .records
        .facts
        .as_ref()
        .and_then(|facts| facts.run.run.error.as_ref());
    if let Some(error) = failed {
        lines.extend(fact("failed", TextStyle::Red, &error.to_string(), page));
    }
    match &view.last_error {
        Some(error) => lines.extend(fact("last error", TextStyle::Red, error, page)),
        None if view.run.is_some() && failed.is_none() => {
            lines.extend(fact("last error", TextStyle::Dim, "none", page))
        }
        None => {}
    }
    if view.run.is_some() {
        run(page, &mut lines);
    }
    if let Some(gateway) = &view.gateway {
        self::gateway(gateway, page, &mut lines);
    }
    if view.kind == ActorKind::Session {
        session(page, &mut lines);
    }
    supervision(page, &mut lines);
    lines.extend(fact("id", TextStyle::Dim, &view.actor_id, page));
    if let Some(run) = &view.run {
        lines.extend(fact("trace", TextStyle::Dim, run.trace_id.as_str(), page));
    }
    lines
}

/// Renders a fact, on up to three lines.
fn fact(
    name: &str,
    style: TextStyle,
    value: &str,
    page: &PaneContext<'_>,
) -> impl Iterator<Item = StyledLine> {
    named(name, paragraph(style, value, NAME, page, 3))
}

/// Puts a name in front of the first line of a text.
fn named(name: &str, lines: Vec<StyledLine>) -> impl Iterator<Item = StyledLine> {
    let name = name.to_owned();
    lines.into_iter().enumerate().map(move |(at, line)| {
        if at > 0 {
            return line;
        }
        let mut first = StyledLine::of(TextStyle::Dim, text::pad(&name, NAME));
        line.pieces()
            .skip(1)
            .for_each(|(style, text)| first.push(style, text));
        first
    })
}

fn ago(at: Timestamp, now: Timestamp) -> String {
    format::duration(now.millis_since(at))
}

fn state(page: &PaneContext<'_>, lines: &mut Vec<StyledLine>) {
    let view = &page.actor.view;
    let now = page.now;
    let mut line = StyledLine::of(TextStyle::Dim, text::pad("state", NAME))
        .and(page.actor.style(), page.actor.state().to_owned());
    if !page.actor.has_ended {
        if !view.activity.is_empty() {
            line.push(
                TextStyle::Plain,
                &format!(": {}", text::safe_line(&view.activity)),
            );
        }
        line.push(TextStyle::Dim, &format!(" for {}", ago(view.since, now)));
    }
    lines.push(line);
    let progress = view.run.as_ref().and_then(|run| run.last_progress);
    if let (Some(Alert::Stuck), Some(progress)) = (page.actor.alarm(), progress) {
        let text = format!(
            "no progress for {}: see Events and Timeline, press c to cancel",
            ago(progress, now)
        );
        lines.extend(fact("stuck", TextStyle::Red, &text, page));
    }
}

fn run(page: &PaneContext<'_>, lines: &mut Vec<StyledLine>) {
    let view = &page.actor.view;
    let now = page.now;
    let Some(run) = &view.run else { return };
    let spent = page.actor.spent();
    let mut used = format!(
        "{} tokens, {} in {}",
        spent.tokens(),
        spent.usd_or("cost unknown"),
        format::plural(turns(page.actor.turn()), "turn", "turns")
    );
    if let Some(facts) = &page.records.facts {
        used.push_str(&below(facts));
    }
    lines.extend(fact("used", TextStyle::Plain, &used, page));
    if let Some(cached) = page
        .records
        .facts
        .as_ref()
        .and_then(|facts| cached(&facts.run.run.usage))
    {
        lines.extend(fact("cache", TextStyle::Plain, &cached, page));
    }
    lines.extend(run.budget.iter().map(|share| budget(share, page)));
    if let Some(goal) = run.goal.as_ref().filter(|_| !page.actor.has_ended) {
        lines.extend(named(
            "goal",
            paragraph(TextStyle::Plain, goal, NAME, page, 1),
        ));
    }
    if run.asks > 0 && !page.actor.has_ended {
        let asks = format::plural(turns(run.asks), "answer", "answers");
        lines.extend(fact(
            "waits for",
            TextStyle::Yellow,
            &format!("{asks}: press a"),
            page,
        ));
    }
    if let Some(facts) = &page.records.facts {
        let mode = facts.run.run.settings.permissions.mode.unwrap_or_default();
        lines.extend(fact("permissions", TextStyle::Plain, mode.as_str(), page));
    }
    let agent = format!("{} in mode {}", run.agent_type, run.mode.as_str());
    let model = page
        .records
        .facts
        .as_ref()
        .map(|facts| format!(", model {}", facts.run.run.settings.model));
    lines.extend(fact(
        "agent",
        TextStyle::Plain,
        &format!("{agent}{}", model.unwrap_or_default()),
        page,
    ));
    lines.extend(usage_sparkline("tokens/s", page, |(tokens, _)| tokens));
    lines.extend(usage_sparkline("events/s", page, |(_, events)| events));
    if page.actor.has_ended {
        let ended = page
            .actor
            .record
            .as_ref()
            .and_then(|record| record.completed_at);
        let ended = ended.map_or_else(String::new, |at| {
            format!(", ended {} UTC", format::time(at))
        });
        lines.extend(fact(
            "recorded",
            TextStyle::Plain,
            &format!("started {} UTC{ended}", format::time(view.started_at)),
            page,
        ));
        return;
    }
    let mut times = format!(
        "{} events, started {} UTC",
        run.events,
        format::time(view.started_at)
    );
    if let Some(progress) = run.last_progress {
        times.push_str(&format!(", last progress {} ago", ago(progress, now)));
    }
    if run.passive {
        times.push_str(", passivated while it waits");
    }
    lines.extend(fact("recorded", TextStyle::Plain, &times, page));
}

/// Describes the prompt tokens that came from the provider's cache or were written to it. `None` if
/// there are none.
fn cached(usage: &Stats) -> Option<String> {
    let Stats {
        prompt_tokens,
        cached_tokens,
        cache_write_tokens,
        ..
    } = *usage;
    (cached_tokens > 0 || cache_write_tokens > 0).then(|| {
        let read = format::count_and_share(cached_tokens, prompt_tokens);
        format!(
            "{read} of {} prompt tokens read, {} written",
            format::count(prompt_tokens),
            format::count(cache_write_tokens)
        )
    })
}

/// Describes the usage of a run together with its children, including ended ones.
fn below(facts: &RunFacts) -> String {
    let of = match &facts.run.stats {
        Some(stats) if stats.tree != stats.own => "all sub-agents".to_owned(),
        Some(_) => return String::new(),
        None => match facts.children().len() {
            0 => return String::new(),
            children => format::plural(children, "child", "children"),
        },
    };
    let spent = facts.with_sub_agents();
    format!(
        "; with {of}: {} tokens, {}",
        spent.tokens(),
        spent.usd_or("cost unknown")
    )
}

fn turns(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// Returns the used fraction of a limit; 1 if fully used.
pub(crate) fn used_fraction(share: &BudgetShare) -> f64 {
    let number = |text: &str| text.parse::<f64>().unwrap_or(0.0);
    let limit = number(&share.limit);
    if limit > 0.0 {
        number(&share.used) / limit
    } else {
        1.0
    }
}

/// Draws how much of a limit is used.
pub(super) fn budget(budget: &BudgetShare, page: &PaneContext<'_>) -> StyledLine {
    let share = used_fraction(budget);
    let name = budget.dimension.as_str().replace('_', " ");
    let rest = format!(
        " {:>3.0} %  {} of {}",
        share * 100.0,
        budget.used,
        budget.limit
    );
    bar(&name, share, &rest, page)
}

fn bar(name: &str, share: f64, rest: &str, page: &PaneContext<'_>) -> StyledLine {
    let style = match share {
        ..0.8 => TextStyle::Green,
        ..1.0 => TextStyle::Yellow,
        _ => TextStyle::Red,
    };
    let columns = BAR.min(page.columns / 4);
    StyledLine::of(TextStyle::Dim, text::pad(name, NAME))
        .and(style, page.cells.bar(share, columns))
        .and(TextStyle::Plain, rest)
}

/// Draws the usage of the last seconds; `None` if there was none.
fn usage_sparkline(
    name: &str,
    page: &PaneContext<'_>,
    pick: fn((u64, u64)) -> u64,
) -> Option<StyledLine> {
    let room = page.columns.saturating_sub(NAME + 12).min(SECONDS - 1);
    let beats: Vec<u64> = page
        .actor
        .pulse
        .samples(page.now, room)
        .into_iter()
        .map(pick)
        .collect();
    let most = beats.iter().copied().max().filter(|most| *most > 0)?;
    let line = StyledLine::of(TextStyle::Dim, text::pad(name, NAME))
        .and(TextStyle::Cyan, page.cells.spark(&beats));
    Some(line.and(TextStyle::Dim, format!(" peak {}", format::count(most))))
}

fn gateway(view: &GatewayView, page: &PaneContext<'_>, lines: &mut Vec<StyledLine>) {
    #[allow(clippy::cast_precision_loss, reason = "a bar of a few columns")]
    let part = |used: u64, limit: u64| used as f64 / limit.max(1) as f64;
    let until = |at: Option<Timestamp>| {
        at.map_or_else(String::new, |at| {
            format!(
                ", at least {} more",
                format::duration(at.millis_since(page.now))
            )
        })
    };
    let calls = format!(" {} of {} calls", view.in_flight, view.max_concurrency);
    lines.push(bar(
        "in flight",
        part(view.in_flight, view.max_concurrency),
        &calls,
        page,
    ));
    let waiting = match &view.waits_for {
        Some(reason) => format!("{} for {reason}{}", view.waiting, until(view.waits_until)),
        None => view.waiting.to_string(),
    };
    lines.extend(fact(
        "waiting",
        if view.waiting > 0 {
            TextStyle::Yellow
        } else {
            TextStyle::Plain
        },
        &waiting,
        page,
    ));
    for (name, used, limit) in [
        ("requests", view.requests, view.requests_per_minute),
        ("tokens", view.tokens, view.tokens_per_minute),
    ] {
        match limit {
            Some(limit) => lines.push(bar(
                name,
                part(used, limit),
                &format!(" {used} of {limit} per minute"),
                page,
            )),
            None => lines.extend(fact(name, TextStyle::Dim, "no limit per minute", page)),
        }
    }
    let pause = view.retry_after.map(|at| {
        format!(
            "{} remaining, set by the provider",
            format::duration(at.millis_since(page.now))
        )
    });
    let style = if pause.is_some() {
        TextStyle::Yellow
    } else {
        TextStyle::Dim
    };
    lines.extend(fact(
        "Retry-After",
        style,
        pause.as_deref().unwrap_or("none"),
        page,
    ));
    if view.is_down {
        lines.extend(fact(
            "provider",
            TextStyle::Red,
            "down: no call succeeds",
            page,
        ));
    }
    lines.extend(fact(
        "sent",
        TextStyle::Plain,
        &format::plural(
            usize::try_from(view.sent).unwrap_or(usize::MAX),
            "call",
            "calls",
        ),
        page,
    ));
    lines.extend(usage_sparkline("calls/s", page, |(_, sent)| sent));
}

fn session(page: &PaneContext<'_>, lines: &mut Vec<StyledLine>) {
    let Some(id) = page.actor.session() else {
        return;
    };
    let mut at_work = 0;
    let mut ended = 0;
    let mut spent = Spent::NOTHING;
    for actor in page
        .actors
        .iter()
        .filter(|actor| actor.view.run.is_some() && actor.session().as_ref() == Some(&id))
    {
        *(if actor.has_ended {
            &mut ended
        } else {
            &mut at_work
        }) += 1;
        spent = spent.plus(actor.spent());
    }
    let runs = format!(
        "{at_work} active, {ended} ended while watching; {} tokens in total",
        spent.tokens()
    );
    lines.extend(fact("runs", TextStyle::Plain, &runs, page));
    if let Some(session) = &page.actor.session_record {
        lines.extend(fact("folder", TextStyle::Plain, &session.project_dir, page));
    }
}

fn supervision(page: &PaneContext<'_>, lines: &mut Vec<StyledLine>) {
    let view = &page.actor.view;
    let limit = if view.restart_limit.is_empty() {
        "none"
    } else {
        &*view.restart_limit
    };
    let style = if view.restarts > 0 {
        TextStyle::Yellow
    } else {
        TextStyle::Plain
    };
    let text = if page.actor.has_ended {
        format!("{} (limit {limit}); the actor has stopped", view.restarts)
    } else {
        let restarts = view.restarts;
        let handled = view.handled;
        let mailbox = view.mailbox;
        format!("{restarts} (limit {limit}), {handled} messages handled, {mailbox} in the mailbox")
    };
    lines.extend(fact("restarts", style, &text, page));
}
