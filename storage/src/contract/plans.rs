//! Goals, collaborators and results of children.

use soong_protocol::{
    ChildMode, ChildResult, Collaborator, CollaboratorKind, CollaboratorStatus, GoalEvent,
    GoalStatus, GoalTree, Role, RunStatus, RunWrite, SubAgentEvent, Usd, Write,
};

use super::world::{
    TestStore, add_message, answered, at, child_run, completed, event, goal_id, message, new_run,
    run_id, stats_with_duration, sub_trace, trace_id,
};
use crate::store::StoreError;

fn goals(world: &TestStore, trace: &str) -> GoalTree {
    world.reader.goal_tree(&trace_id(trace)).unwrap().unwrap()
}

/// Writes the events of a plan to the timeline of trace and run `a`.
fn plan(world: &mut TestStore, events: Vec<GoalEvent>) {
    world.write(
        events
            .into_iter()
            .map(|goal| event("a", Some("a"), 1, goal))
            .collect(),
    );
}

/// Adds two goals, and one below the first, which is focused.
fn start_with_three_goals(world: &mut TestStore) {
    world.start_run("a");
    let tree = goals(world, "a");
    plan(
        world,
        tree.plan_add(
            &["first".into(), "second".into()],
            "why",
            None,
            None,
            0,
            at(1),
        )
        .unwrap(),
    );
    let tree = goals(world, "a");
    plan(
        world,
        tree.plan_add(&["below".into()], "", Some("1"), None, 0, at(1))
            .unwrap(),
    );
    let tree = goals(world, "a");
    plan(world, tree.plan_focus("1.1").unwrap());
}

pub(super) fn goals_follow_their_events(mut world: TestStore) {
    start_with_three_goals(&mut world);
    let tree = goals(&world, "a");
    let mut shown: Vec<_> = tree
        .goals
        .iter()
        .map(|goal| format!("{} {}", goal.number, goal.description))
        .collect();
    shown.sort();
    assert_eq!(shown, ["1 first", "1.1 below", "2 second"]);
    assert_eq!(tree.current_id, Some(goal_id("3")));
    assert_eq!(world.trace("a").current_goal_id, Some(goal_id("3")));

    let closing = tree
        .plan_close(None, GoalStatus::Completed, "did it")
        .unwrap();
    plan(&mut world, closing);
    let tree = goals(&world, "a");
    let statuses = ["1", "2", "3"].map(|id| tree.get(&goal_id(id)).unwrap().status);
    assert_eq!(
        statuses,
        [
            GoalStatus::Completed,
            GoalStatus::Pending,
            GoalStatus::Completed
        ]
    );
    assert_eq!(
        (tree.current_id.clone(), world.trace("a").current_goal_id),
        (None, None)
    );
    assert_eq!(
        tree.get(&goal_id("3")).unwrap().summary.as_deref(),
        Some("did it")
    );

    // The tree is kept after the end of its run, and a later run changes the same tree.
    world.write(vec![
        event("a", Some("a"), 9, completed("done")),
        new_run("b", "a", "a"),
    ]);
    let tree = goals(&world, "a");
    let more = tree
        .plan_add(&["third".into()], "", None, None, 0, at(9))
        .unwrap();
    world.write(
        more.into_iter()
            .map(|goal| event("a", Some("b"), 9, goal))
            .collect(),
    );
    assert_eq!(goals(&world, "a").goals.len(), 4);
}

pub(super) fn trace_without_goals_has_its_task_as_mission(mut world: TestStore) {
    world.start_run("a");
    assert_eq!(goals(&world, "a"), GoalTree::new("task of a"));
    plan(
        &mut world,
        GoalTree::new("task of a").plan_mission_goal("task of a", 0, at(1)),
    );
    assert_eq!(goals(&world, "a").mission, "task of a");
}

pub(super) fn goal_stats_sum_messages_children_and_sub_traces(mut world: TestStore) {
    start_with_three_goals(&mut world);
    // A sub-trace for "below", and one below that, with 10 and 100 tokens.
    world.write(vec![
        sub_trace("a@1", "a", Some("a"), Some("3")),
        child_run("c", "a@1", "a", "a"),
        sub_trace("a@1@1", "a", Some("a@1"), Some("1")),
        child_run("cc", "a@1@1", "a", "c"),
        event("a@1", Some("c"), 2, answered(8, 2, Some(5))),
        event("a@1@1", Some("cc"), 2, answered(90, 10, Some(50))),
        event("a@1@1", Some("cc"), 3, completed("looked")),
        event("a@1", Some("c"), 3, completed("found")),
        add_message(message("a@1", 1, None, Role::User)),
    ]);
    let mut answer = message("a", 1, None, Role::Assistant);
    answer.goal_id = Some(goal_id("3"));
    answer.prompt_tokens = Some(700);
    answer.completion_tokens = Some(300);
    answer.cost = Some(Usd::from_nanos(500));
    answer.duration_ms = Some(40);
    let mut result = message("a", 2, Some(1), Role::Tool);
    result.goal_id = Some(goal_id("3"));
    result.duration_ms = Some(9_000);
    let mut other = message("a", 3, Some(2), Role::Assistant);
    other.goal_id = Some(goal_id("2"));
    other.completion_tokens = Some(1);
    world.write(vec![
        add_message(answer),
        add_message(result),
        add_message(other),
    ]);

    let tree = goals(&world, "a");
    let find = |id: &str| tree.get(&goal_id(id)).unwrap().clone();
    let below = find("3");
    assert_eq!(below.sub_trace_ids, [trace_id("a@1")]);
    let own = below.self_stats.unwrap();
    assert_eq!(
        (own.messages, own.total_tokens, own.duration_ms),
        (2, 1_000, 40)
    );
    assert_eq!((own.model_calls, own.tool_calls), (1, 1));
    assert_eq!(own.cost, Some(Usd::from_nanos(500)));
    let whole = below.cumulative_stats.unwrap();
    assert_eq!(
        (whole.messages, whole.total_tokens, whole.cost),
        (3, 1_110, Some(Usd::from_nanos(555)))
    );
    assert_eq!(
        (whole.model_calls, whole.tool_calls, whole.duration_ms),
        (3, 1, 40 + 2 * 1_500)
    );
    let child = &below.sub_trace_metadata[&trace_id("a@1")];
    assert_eq!(
        (child.task.as_str(), child.summary.as_deref()),
        ("task of a@1", Some("found"))
    );
    assert_eq!(child.run_ids, [run_id("c")]);
    assert_eq!(
        (
            child.self_stats.total_tokens,
            child.cumulative_stats.total_tokens
        ),
        (10, 110)
    );
    assert_eq!(
        (
            child.self_stats.duration_ms,
            child.cumulative_stats.duration_ms
        ),
        (1_500, 3_000)
    );
    let first = find("1");
    assert_eq!(first.self_stats.unwrap().messages, 0);
    assert_eq!(
        first.cumulative_stats.unwrap().total_tokens,
        1_110,
        "a goal holds those below it"
    );
    assert_eq!(
        find("2").cumulative_stats.unwrap().cost,
        None,
        "an unpriced answer"
    );
}

pub(super) fn collaborators_are_ordered_by_first_appearance(mut world: TestStore) {
    world.start_run("a");
    let update = |name: &str, status, summary: &str| {
        let collaborator = Collaborator {
            name: name.into(),
            kind: CollaboratorKind::Agent,
            trace_id: Some(trace_id("a@1")),
            status,
            summary: summary.into(),
        };
        event(
            "a",
            Some("a"),
            1,
            SubAgentEvent::CollaboratorUpdated { collaborator },
        )
    };
    world.write(vec![
        update("z", CollaboratorStatus::Running, "looks"),
        update("b", CollaboratorStatus::Running, "b"),
    ]);
    world.write(vec![
        update("z", CollaboratorStatus::Completed, "found"),
        update("a", CollaboratorStatus::Failed, "a"),
    ]);
    let lines: Vec<_> = world
        .trace("a")
        .context
        .collaborators
        .iter()
        .map(Collaborator::line)
        .collect();
    assert_eq!(
        lines,
        [
            "- z [agent, completed]: found",
            "- b [agent, running]: b",
            "- a [agent, failed]: a"
        ]
    );
    world.start_run("other");
    assert!(world.trace("other").context.collaborators.is_empty());
}

pub(super) fn child_results_are_ordered_by_start(mut world: TestStore) {
    world.start_run("a");
    let result = |number: u64| ChildResult {
        mode: ChildMode::Explore,
        sub_trace_id: trace_id(&format!("a@{number}")),
        run_id: run_id(&format!("c{number}")),
        status: RunStatus::Completed,
        summary: format!("found {number}"),
        findings: vec!["x".into()],
        passed: None,
        artifacts: Vec::new(),
        stats: stats_with_duration(3),
        error: None,
    };
    for number in 1..=3 {
        let trace = format!("a@{number}");
        let run = format!("c{number}");
        world.write(vec![
            sub_trace(&trace, "a", Some("a"), None),
            child_run(&run, &trace, "a", "a"),
        ]);
    }
    for number in [3, 1] {
        let end = event(
            &format!("a@{number}"),
            Some(&format!("c{number}")),
            1,
            completed("found"),
        );
        world.write(vec![
            end,
            Write::Run(RunWrite::ChildResult(Box::new(result(number)))),
        ]);
    }
    assert_eq!(
        world.reader.child_results(&run_id("a")).unwrap(),
        [result(1), result(3)]
    );
    assert!(
        world
            .reader
            .child_results(&run_id("c1"))
            .unwrap()
            .is_empty()
    );
    assert_eq!(
        world.reader.child_result(&run_id("c1")).unwrap(),
        Some(result(1))
    );
    assert_eq!(world.reader.child_result(&run_id("c2")).unwrap(), None);
    let error = world.write_rejected(vec![Write::Run(RunWrite::ChildResult(Box::new(result(3))))]);
    assert_eq!(
        error,
        StoreError::AlreadyExists("the result of run c3".into())
    );
    let nobody = world.write_rejected(vec![Write::Run(RunWrite::ChildResult(Box::new(result(4))))]);
    assert_eq!(nobody, StoreError::NotFound("run c4".into()));
}
