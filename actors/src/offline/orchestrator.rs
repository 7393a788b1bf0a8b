//! The orchestrator: lists the project, sets goals, starts explorers, and has a report written and
//! evaluated.
//!
//! Each step checks whether the conversation since the task contains its calls; the first step that
//! lacks them provides the next turn. The number of attempts of each step is bounded, whatever the
//! results. So the run always ends with a truthful answer, even if every tool fails.

use serde_json::{Value, json};

use super::{
    NOTICE, Turn,
    conversation::{Conversation, Exchange},
    count, evaluator,
    listing::Listing,
    outcome::{self, Outcome},
    plain_line,
    plan::{self, Scope},
    report,
};

const GOALS: [&str; 3] = [
    "Understand the project",
    "Write a report",
    "Check the report",
];
const PLAN: &str = "task_plan";
/// Maximum number of `goal` calls per task: three closings, three focuses, and some failures.
const MAX_GOAL_CALLS: usize = 12;
/// Maximum number of names tried for a report.
const MAX_STORE_ATTEMPTS: usize = 4;
/// Maximum number of reports: the first, and one more if its evaluation did not pass.
const MAX_REPORTS: usize = 2;

/// Returns whether the run is instructed to orchestrate. Having the `agent` tool is not enough.
pub(super) fn is_asked(conversation: &Conversation<'_>) -> bool {
    conversation.system_contains("You orchestrate")
}

/// Decides the orchestrator's next turn.
pub(super) fn next(conversation: &Conversation<'_>) -> Turn {
    let work = Progress { conversation };
    let steps = [
        Progress::list_project,
        Progress::plan,
        Progress::focus_first_goal,
        Progress::explore,
        Progress::report,
        Progress::evaluate,
        Progress::close,
    ];
    let turn = steps
        .iter()
        .find_map(|step| step(&work))
        .unwrap_or_else(|| work.finish());
    work.check_off_plan(turn)
}

/// Progress of the work, read from the conversation.
struct Progress<'c, 'a> {
    conversation: &'c Conversation<'a>,
}

impl Progress<'_, '_> {
    fn list_project(&self) -> Option<Turn> {
        let wanted =
            self.conversation.offers("list_files") && !self.conversation.has_called("list_files");
        let list = |recursive: bool| {
            (
                "list_files",
                json!({"path": ".", "recursive": recursive, "limit": 1000}),
            )
        };
        wanted.then(|| Turn::call_tools("I look at what there is.", vec![list(false), list(true)]))
    }

    fn plan(&self) -> Option<Turn> {
        let mut calls = Vec::new();
        if self.conversation.offers("goal") && self.added_goals().is_none() {
            let mut goals = json!({"add": GOALS, "reason": "the task, step by step"});
            // If the trace already has goals, the first new one has a different number: see
            // `begin`.
            if !self
                .conversation
                .earlier
                .iter()
                .any(|exchange| exchange.name == "goal")
            {
                goals["focus"] = json!("1");
            }
            calls.push(("goal", goals));
        }
        if self.conversation.offers("create_artifact") && self.stored(PLAN).next().is_none() {
            calls.push((
                "create_artifact",
                json!({"name": PLAN, "title": "Plan", "content": self.checklist()}),
            ));
        }
        (!calls.is_empty()).then(|| Turn::call_tools("I set goals and write down the plan.", calls))
    }

    /// Writes the plan. Explored parts are checked off.
    fn checklist(&self) -> String {
        let found = self.findings();
        let is_done = |scope: &Scope| {
            let of = found.iter().find(|(other, _)| other.label == scope.label);
            of.is_some_and(|(_, outcome)| outcome.as_ref().is_some_and(Outcome::is_complete))
        };
        let cut = self.parts();
        let mark = |done| if done { "[x]" } else { "[ ]" };
        let all_done = !found.is_empty() && cut.iter().all(is_done);
        let mut text = format!("# Plan\n\n- {} {}\n", mark(all_done), GOALS[0]);
        for scope in &cut {
            text.push_str(&format!("  - {} {}\n", mark(is_done(scope)), scope.label));
        }
        text + &format!("- [ ] {}\n- [ ] {}\n", GOALS[1], GOALS[2])
    }

    /// Adds the call that checks off the plan after a result (ART-8): to a turn whose calls it
    /// cannot affect, else as a separate turn.
    fn check_off_plan(&self, mut turn: Turn) -> Turn {
        let Some(call) = self.next_check_off() else {
            return turn;
        };
        let is_harmless = |name: &str| matches!(name, "goal" | "create_artifact");
        if turn.calls.is_empty() || !turn.calls.iter().all(|(name, _)| is_harmless(name)) {
            return Turn::call_tools("I tick off the plan.", vec![call]);
        }
        // Last in the turn: if it fails, no other call is skipped.
        turn.calls.push(call);
        turn
    }

    /// Returns the next call that checks off the plan. Each is made once, whatever its result.
    fn next_check_off(&self) -> Option<(&'static str, Value)> {
        let offers = |name| self.conversation.offers(name);
        if !offers("update_artifact") || !offers("rewrite_artifact") || !offers("create_artifact") {
            return None;
        }
        self.stored(PLAN).next()?;
        if self.explored().is_some() && !self.conversation.has_called("rewrite_artifact") {
            return Some((
                "rewrite_artifact",
                json!({"name": PLAN, "content": self.checklist()}),
            ));
        }
        let is_ticked = |goal: &str| {
            let of_goal = |exchange: &Exchange<'_>| {
                exchange.text("old").is_some_and(|old| old.ends_with(goal))
            };
            self.conversation.calls("update_artifact").any(of_goal)
        };
        let passed = || {
            self.verdict()
                .is_some_and(|verdict| verdict.passed == Some(true))
        };
        let done = [
            (GOALS[1], self.latest_report().is_some()),
            (GOALS[2], passed()),
        ];
        let (goal, _) = done
            .into_iter()
            .find(|(goal, is_done)| *is_done && !is_ticked(goal))?;
        let old = format!("- [ ] {goal}");
        let new = format!("- [x] {goal}");
        Some((
            "update_artifact",
            json!({"name": PLAN, "old": old, "new": new}),
        ))
    }

    /// Focuses the first goal, if its number differs from the expected one.
    fn focus_first_goal(&self) -> Option<Turn> {
        if self.conversation.has_called("agent") {
            return None;
        }
        let first = self.number(0)?;
        self.focus(&first, None, "I begin.")
    }

    fn explore(&self) -> Option<Turn> {
        if self.explored().is_some() {
            return None;
        }
        let tasks: Vec<String> = self.parts().iter().map(Scope::task).collect();
        let text = format!(
            "I let {} explore the project in parallel.",
            count(tasks.len() as u64, "sub-agent")
        );
        Some(Turn::call_tools(
            text,
            vec![("agent", json!({"task": tasks}))],
        ))
    }

    /// Delegates the report and stores it; once more if the evaluation did not pass.
    fn report(&self) -> Option<Turn> {
        let found = self.findings();
        if self.reports().next().is_none() {
            let complete = found
                .iter()
                .filter(|(_, outcome)| outcome.as_ref().is_some_and(Outcome::is_complete))
                .count();
            let summary = format!("{complete} of {} parts explored", found.len());
            let focus = self
                .number(1)
                .and_then(|second| self.focus(&second, Some(&summary), "I turn to the report."));
            return focus.or_else(|| Some(self.delegate(&found, &[])));
        }
        if let Some(turn) = self.store() {
            return Some(turn);
        }
        let objections = self
            .verdict()
            .filter(|verdict| verdict.passed == Some(false))?;
        let may_retry = self.reports().count() < MAX_REPORTS
            && self.evaluations().count() == self.reports().count();
        may_retry.then(|| self.delegate(&found, &objections.findings))
    }

    fn delegate(&self, found: &[(Scope, Option<Outcome>)], objections: &[String]) -> Turn {
        let text = if objections.is_empty() {
            "I have the report written."
        } else {
            "I send the report back once."
        };
        Turn::call_tools(
            text,
            vec![(
                "agent",
                json!({"task": report::task(self.conversation.task, objections, found)}),
            )],
        )
    }

    /// Stores the latest report under a free name.
    fn store(&self) -> Option<Turn> {
        if !self.conversation.offers("create_artifact") {
            return None;
        }
        let text = self.latest_report()?;
        let tries: Vec<&Exchange<'_>> = self.since_latest_report("create_artifact").collect();
        let is_taken = |exchange: &&Exchange<'_>| {
            exchange
                .error()
                .is_some_and(|error| error.contains("exist"))
        };
        let wanted = tries.last().is_none_or(is_taken) && tries.len() < MAX_STORE_ATTEMPTS;
        let content =
            json!({"name": self.free_name(), "title": "Report on the project", "content": text});
        wanted.then(|| Turn::call_tools("I store the report.", vec![("create_artifact", content)]))
    }

    /// Requests an evaluation of the stored report, once per report.
    fn evaluate(&self) -> Option<Turn> {
        let stored = self
            .since_latest_report("create_artifact")
            .filter(|exchange| exchange.ok().is_some())
            .last()?;
        let artifact = stored.text("name")?.to_owned();
        if !self.conversation.offers("evaluate")
            || self.evaluations().count() >= self.reports().count()
        {
            return None;
        }
        let summary = format!("The report is stored as artifact {artifact}.");
        let focus = self
            .number(2)
            .and_then(|third| self.focus(&third, Some(&summary), "I turn to the check."));
        if focus.is_some() {
            return focus;
        }
        let scopes: Vec<Scope> = self
            .findings()
            .into_iter()
            .map(|(scope, _)| scope)
            .collect();
        let mut arguments = json!({"context": evaluator::context(&artifact, &scopes)});
        if let Some(goal) = self.number(1) {
            arguments["target_goal_id"] = json!(goal);
        }
        Some(Turn::call_tools(
            "I have the report judged.",
            vec![("evaluate", arguments)],
        ))
    }

    /// Closes the last goal.
    fn close(&self) -> Option<Turn> {
        self.added_goals()?;
        let goals: Vec<&Exchange<'_>> = self.conversation.calls("goal").collect();
        let closes = |exchange: &&&Exchange<'_>| {
            exchange.text("done").is_some() && exchange.text("focus").is_none()
        };
        let is_closed = goals.iter().any(|exchange| closes(&exchange));
        if is_closed || goals.len() >= MAX_GOAL_CALLS {
            return None;
        }
        Some(Turn::call_tools(
            "I close the last goal.",
            vec![("goal", json!({"done": self.describe_verdict()}))],
        ))
    }

    fn finish(&self) -> Turn {
        let found = self.findings();
        let complete = found
            .iter()
            .filter(|(_, outcome)| outcome.as_ref().is_some_and(Outcome::is_complete))
            .count();
        let mut text = match (self.artifact(), self.latest_report()) {
            (Some(name), _) => format!("The report is stored as artifact `{name}`."),
            (None, Some(report)) => {
                format!("The report could not be stored; here it is.\n\n{report}\n")
            }
            (None, None) => "There is no report: nobody could write it.".to_owned(),
        };
        let totals = self.listings().1;
        text.push_str(&format!(
            "\n\n- The project: {}, {}.\n- Explored: {complete} of {}.\n- {}\n",
            count(totals.total_files, "file"),
            count(totals.total_bytes, "byte"),
            count(found.len() as u64, "part"),
            self.describe_verdict()
        ));
        for (scope, outcome) in found
            .iter()
            .filter(|(_, outcome)| !outcome.as_ref().is_some_and(Outcome::is_complete))
        {
            let why = outcome.as_ref().map_or("no result came back", |outcome| {
                outcome.error.as_deref().unwrap_or(&outcome.status)
            });
            text.push_str(&format!(
                "- Missing: {} ({}).\n",
                scope.label,
                plain_line(why, 200)
            ));
        }
        text.push_str(&format!("\nNo language model was used ({NOTICE})."));
        Turn::answer(text)
    }

    /// Describes the result of the last evaluation in one sentence.
    fn describe_verdict(&self) -> String {
        match self.verdict() {
            Some(Outcome {
                passed: Some(true), ..
            }) => "The check of the report passed.".to_owned(),
            Some(Outcome {
                passed: Some(false),
                findings,
                summary,
                ..
            }) => {
                let first = findings.first().cloned().unwrap_or(summary);
                format!(
                    "The check of the report did not pass: {}.",
                    plain_line(&first, 200)
                )
            }
            Some(verdict) => {
                let why = verdict.error.unwrap_or(verdict.status);
                format!(
                    "The check of the report brought no verdict: {}.",
                    plain_line(&why, 200)
                )
            }
            None => "The report was not checked.".to_owned(),
        }
    }

    /// Focuses a goal, unless this was requested before. If `done` is set, also closes the previous
    /// goal with that summary.
    fn focus(&self, number: &str, done: Option<&str>, text: &str) -> Option<Turn> {
        let goals: Vec<&Exchange<'_>> = self.conversation.calls("goal").collect();
        if goals.len() >= MAX_GOAL_CALLS
            || goals
                .iter()
                .any(|exchange| exchange.text("focus") == Some(number))
        {
            return None;
        }
        let arguments = match done {
            Some(done) => json!({"done": done, "focus": number}),
            None => json!({"focus": number}),
        };
        Some(Turn::call_tools(text, vec![("goal", arguments)]))
    }

    fn added_goals(&self) -> Option<&Exchange<'_>> {
        self.conversation
            .calls("goal")
            .find(|exchange| exchange.arguments.get("add").is_some())
    }

    /// Returns the display number of a goal: from the latest result, else its position.
    fn number(&self, index: usize) -> Option<String> {
        self.added_goals()
            .filter(|exchange| exchange.ok().is_some())?;
        let results: Vec<&str> = self
            .conversation
            .calls("goal")
            .filter_map(|exchange| exchange.ok())
            .collect();
        let shown = results.iter().rev().find_map(|text| {
            // The last goal with that name: earlier tasks of the trace had the same goals.
            text.lines()
                .rev()
                .find_map(|line| number_before(line, GOALS[index]))
        });
        Some(shown.unwrap_or_else(|| (index + 1).to_string()))
    }

    fn listings(&self) -> (Listing, Listing) {
        let mut complete = self
            .conversation
            .calls("list_files")
            .map(|exchange| exchange.ok());
        let mut next = || {
            complete
                .next()
                .flatten()
                .map(Listing::parse)
                .unwrap_or_default()
        };
        (next(), next())
    }

    fn parts(&self) -> Vec<Scope> {
        let (top, deep) = self.listings();
        plan::parts(&top, &deep, plan::asked_count(self.conversation.task))
    }

    fn explored(&self) -> Option<&Exchange<'_>> {
        self.conversation
            .calls("agent")
            .find(|exchange| exchange.arguments.get("task").is_some_and(Value::is_array))
    }

    /// Returns the explored parts in the order of the tasks, each with its outcome.
    fn findings(&self) -> Vec<(Scope, Option<Outcome>)> {
        let Some(explored) = self.explored() else {
            return Vec::new();
        };
        let tasks = explored
            .arguments
            .get("task")
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let scopes: Vec<Scope> = tasks
            .iter()
            .filter_map(|task| Scope::parse(task.as_str()?))
            .collect();
        let outcomes = match (explored.ok(), explored.error()) {
            (Some(result), _) => outcome::of_tasks(result, scopes.len()),
            (None, error) => vec![Some(Outcome::failed(error)); scopes.len()],
        };
        scopes.into_iter().zip(outcomes).collect()
    }

    fn reports(&self) -> impl Iterator<Item = &Exchange<'_>> {
        self.conversation
            .calls("agent")
            .filter(|exchange| exchange.text("task").is_some())
    }

    /// Returns the calls of a tool after the latest report was requested.
    fn since_latest_report<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'s Exchange<'s>> {
        let all = &self.conversation.exchanges;
        let latest = all
            .iter()
            .rposition(|exchange| exchange.name == "agent" && exchange.text("task").is_some());
        let from = latest.map_or(all.len(), |at| at + 1);
        all[from..]
            .iter()
            .filter(move |exchange| exchange.name == name)
    }

    fn latest_report(&self) -> Option<String> {
        let outcome = self
            .reports()
            .last()
            .and_then(|exchange| outcome::single(exchange.ok()?))?;
        (outcome.is_complete() && !outcome.summary.trim().is_empty()).then_some(outcome.summary)
    }

    /// Returns the calls that create an artifact whose name starts with `prefix`.
    fn stored<'s>(&'s self, prefix: &'s str) -> impl Iterator<Item = &'s Exchange<'s>> {
        let is_named = move |exchange: &&Exchange<'_>| {
            exchange
                .text("name")
                .is_some_and(|name| name.starts_with(prefix))
        };
        self.conversation.calls("create_artifact").filter(is_named)
    }

    /// Returns the name of the latest stored report.
    fn artifact(&self) -> Option<String> {
        let stored = self
            .stored("report")
            .filter(|exchange| exchange.ok().is_some())
            .last()?;
        stored.text("name").map(str::to_owned)
    }

    /// Returns `report`, or `report-2` and so on if the name was used in this conversation.
    fn free_name(&self) -> String {
        let all = self
            .conversation
            .earlier
            .iter()
            .chain(&self.conversation.exchanges);
        let used: Vec<&str> = all
            .filter(|exchange| exchange.name == "create_artifact")
            .filter_map(|exchange| exchange.text("name"))
            .collect();
        let name = |number: usize| {
            if number == 1 {
                "report".to_owned()
            } else {
                format!("report-{number}")
            }
        };
        (1..)
            .map(name)
            .find(|name| !used.contains(&name.as_str()))
            .unwrap_or_default()
    }

    fn evaluations(&self) -> impl Iterator<Item = &Exchange<'_>> {
        self.conversation.calls("evaluate")
    }

    /// Returns the outcome of the latest evaluation. A failed call counts as an evaluation without
    /// a verdict.
    fn verdict(&self) -> Option<Outcome> {
        let judged = self.evaluations().last()?;
        Some(
            judged
                .ok()
                .and_then(outcome::single)
                .unwrap_or_else(|| Outcome::failed(judged.error())),
        )
    }
}

/// Parses the display number before a goal: `[→] 1.2. Write a report`.
fn number_before(line: &str, goal: &str) -> Option<String> {
    let (before, _) = line.split_once(goal)?;
    let number = before
        .split_whitespace()
        .last()?
        .trim_end_matches(['.', ':', ')']);
    let is_number = number.starts_with(|c: char| c.is_ascii_digit())
        && number.chars().all(|c| c.is_ascii_digit() || c == '.');
    is_number.then(|| number.to_owned())
}
