//! `soong usage`: prints tokens, calls and cost of past runs.

use std::time::Duration;

use soong::protocol::{
    Session, Timestamp, UsageReport, UsageSum,
    api::{UsageQuery, operation::ReadUsage},
};
use soong_tui::{
    format,
    screen::now,
    spent::{Spent, marked},
    table::Column,
    terminal::TextStyle,
    text,
};

use crate::{
    cli,
    context::Context,
    exit::{Exit, Failure},
    print,
};

pub(super) async fn usage(context: &Context<'_>, options: &cli::Usage) -> Result<Exit, Failure> {
    if context.print_if_unused(&UsageReport::default())? {
        return Ok(Exit::Success);
    }
    let since = options.since.map(time_before);
    let source = context.source().await?;
    let by = if options.session.is_some() {
        cli::UsageBy::Session
    } else {
        options.by
    };
    let request = ReadUsage {
        query: UsageQuery {
            by: by.into(),
            since,
        },
    };
    let mut report = source.client().call(request).await?;
    if let Some(reference) = &options.session {
        let session = source.session(reference).await?.session_id;
        report
            .usage
            .retain(|row| row.of.as_str() == session.as_str());
        report = UsageReport::from_rows(report.usage);
    }
    if context.global.json {
        print::json(&report)?;
        return Ok(Exit::Success);
    }
    let sessions = if by == cli::UsageBy::Session {
        source.client().sessions(true).await?
    } else {
        Vec::new()
    };
    show(context, by, &report, &sessions)?;
    Ok(Exit::Success)
}

/// Returns the time at which a span ending now started.
fn time_before(span: Duration) -> Timestamp {
    let millis = i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(now().as_millis().saturating_sub(millis))
}

/// Prints a report. `sessions` contains the sessions of a report by session, for their short names;
/// else it is empty.
fn show(
    context: &Context<'_>,
    by: cli::UsageBy,
    report: &UsageReport,
    sessions: &[Session],
) -> Result<(), Failure> {
    if report.usage.is_empty() {
        return print::line("no usage");
    }
    let head = match by {
        cli::UsageBy::Day => "DAY (UTC)",
        cli::UsageBy::Model => "MODEL",
        cli::UsageBy::Session => "SESSION",
    };
    let unicode = context.terminal.unicode;
    let label = |id: &str| {
        let session = sessions
            .iter()
            .find(|session| session.session_id.as_str() == id);
        session.map_or_else(
            || id.to_owned(),
            |session| text::safe_line(session.short_name()),
        )
    };
    let mut rows: Vec<Vec<String>> = report
        .usage
        .iter()
        .map(|row| cells(&label(row.of.as_str()), &row.sum, unicode))
        .collect();
    if rows.len() > 1 || by != cli::UsageBy::Session {
        rows.push(cells("total", &report.total, unicode));
    }
    print::table(
        context.terminal,
        &[
            Column::text(head, 12),
            Column::whole("RUNS").drops(3),
            Column::whole("CALLS").drops(4),
            Column::whole("PROMPT").drops(5),
            Column::whole("CACHED").drops(1),
            Column::whole("WRITTEN").drops(6),
            Column::whole("COMPLETION").drops(2),
            Column::whole("TOKENS"),
            Column::text("COST", 8),
        ],
        &rows,
    )?;
    if report.total.runs_without_price > 0 {
        let hint = "a cost is known only if the model had a price when it was called: see `soong models list`, or add \
                    [prices.\"MODEL\"] to config.toml";
        print::line_or_stderr(context.terminal, TextStyle::Dim, hint)?;
    }
    // A server has its own table.
    if let (None, Ok(settings)) = (&context.remote, context.settings()) {
        let date = &settings.models(&context.environment).catalog.date;
        print::line_or_stderr(
            context.terminal,
            TextStyle::Dim,
            &format!("prices of {date}"),
        )?;
    }
    Ok(())
}

fn cells(of: &str, sum: &UsageSum, unicode: bool) -> Vec<String> {
    let cached = format::count_and_share(sum.cached_tokens, sum.prompt_tokens);
    vec![
        of.to_owned(),
        sum.runs.to_string(),
        format::count(sum.model_calls),
        marked(sum.estimated, format::count(sum.prompt_tokens)),
        cached,
        format::count(sum.cache_write_tokens),
        marked(sum.estimated, format::count(sum.completion_tokens)),
        Spent::from(sum).tokens(),
        cost(sum, unicode),
    ]
}

/// Formats a cost; if it is only partly known, as a lower bound.
fn cost(sum: &UsageSum, unicode: bool) -> String {
    let known = marked(sum.estimated, format!("${}", sum.known_cost));
    if sum.cost.is_some() {
        return known;
    }
    let without = usize::try_from(sum.runs_without_price).unwrap_or(usize::MAX);
    let without = format::plural(without, "run without a price", "runs without a price");
    match (sum.known_cost.as_nanos(), unicode) {
        (0, _) => format!("unknown ({without})"),
        (_, true) => format!("≥ {known} ({without})"),
        (_, false) => format!(">= {known} ({without})"),
    }
}

#[cfg(test)]
mod tests {
    use soong::protocol::Usd;

    use super::*;

    #[test]
    fn cost_shows_number_of_runs_without_price() {
        for (nanos, without, unicode, want) in [
            (4_200_000, 0, true, "$0.0042"),
            (0, 0, true, "$0.00"),
            (4_200_000, 2, true, "≥ $0.0042 (2 runs without a price)"),
            (4_200_000, 1, false, ">= $0.0042 (1 run without a price)"),
            (0, 3, true, "unknown (3 runs without a price)"),
        ] {
            let sum = UsageSum {
                known_cost: Usd::from_nanos(nanos),
                runs_without_price: without,
                ..UsageSum::default()
            };
            assert_eq!(cost(&sum.with_cost(), unicode), want);
        }
    }
}
