//! Runs whose task journal is not complete (TASK-1).

use soong_protocol::{GoalEvent, GoalTree, RunEvent, RunMode, RunSettings, RunWrite, Write};

use super::world::{
    TestStore, at, child_run, completed, event, new_run_record, new_session, new_trace, run_id,
    started, trace_id,
};

fn listed(world: &TestStore) -> Vec<String> {
    world
        .reader
        .runs_with_pending_task_journal()
        .unwrap()
        .into_iter()
        .map(|run| run.run_id.to_string())
        .collect()
}

pub(super) fn journal_starts_with_its_run_and_is_listed_until_completed(mut world: TestStore) {
    world.start_run("a");
    assert_eq!(
        (
            world.reader.pending_task_journal(&run_id("a")).unwrap(),
            listed(&world)
        ),
        (None, vec![]),
        "it waits"
    );
    world.write(vec![event("a", Some("a"), 1, started())]);
    let journal = world
        .reader
        .pending_task_journal(&run_id("a"))
        .unwrap()
        .unwrap();
    assert_eq!(
        (journal.run.run_id.as_str(), journal.project_dir.as_str()),
        ("a", "project")
    );
    assert_eq!(
        (journal.first_event_id, journal.goals),
        (1, GoalTree::new("task of a"))
    );
    // A run that is resumed after a crash does not start again, and an ended run keeps its row.
    world.write(vec![
        event("a", Some("a"), 2, started()),
        event("a", Some("a"), 3, completed("x")),
    ]);
    assert_eq!(
        world
            .reader
            .pending_task_journal(&run_id("a"))
            .unwrap()
            .unwrap()
            .first_event_id,
        1
    );
    assert_eq!(listed(&world), ["a"]);
    for _ in 0..2 {
        world.write(vec![Write::Run(RunWrite::TaskJournalCompleted(run_id(
            "a",
        )))]);
        assert_eq!(
            (
                world.reader.pending_task_journal(&run_id("a")).unwrap(),
                listed(&world)
            ),
            (None, vec![])
        );
    }
    world.write(vec![Write::Run(RunWrite::TaskJournalCompleted(run_id(
        "nobody",
    )))]);
}

pub(super) fn journal_has_the_goals_at_the_start_of_its_run(mut world: TestStore) {
    world.start_run("a");
    let add = |world: &mut TestStore, what: &str| {
        let tree = world.reader.goal_tree(&trace_id("a")).unwrap().unwrap();
        let plan = tree
            .plan_add(&[what.to_owned()], "", None, None, 0, at(1))
            .unwrap();
        plan.into_iter()
            .map(|goal: GoalEvent| event("a", Some("a"), 1, goal))
            .collect::<Vec<Write>>()
    };
    let first = add(&mut world, "older");
    world.write(first);
    // The journal has the goals that were written earlier in the same append, but not the later
    // ones.
    let mut writes = vec![Write::Run(RunWrite::Create(Box::new(new_run_record(
        "b", "a", "a", None,
    ))))];
    writes.extend(add(&mut world, "just before"));
    writes.push(event("a", Some("b"), 2, started()));
    writes.push(event(
        "a",
        Some("b"),
        2,
        GoalEvent::Focused {
            goal_id: super::world::goal_id("1"),
        },
    ));
    world.write(writes);
    let journal = world
        .reader
        .pending_task_journal(&run_id("b"))
        .unwrap()
        .unwrap();
    let goals: Vec<&str> = journal
        .goals
        .goals
        .iter()
        .map(|goal| goal.description.as_str())
        .collect();
    assert_eq!(
        (goals, journal.goals.current_id),
        (vec!["older", "just before"], None)
    );
    assert_eq!(journal.first_event_id, 3);
}

pub(super) fn only_model_driven_orchestrator_runs_of_users_have_journal(mut world: TestStore) {
    world.start_run("a");
    let driven = RunSettings {
        driven: true,
        ..RunSettings::default()
    };
    let normal = RunEvent::LoopStarted {
        mode: RunMode::Normal,
        agent_type: "default".into(),
        model: "m".into(),
    };
    world.write(vec![
        new_session("s"),
        new_trace("s", "s"),
        Write::Run(RunWrite::Create(Box::new(soong_protocol::Run {
            settings: driven,
            ..new_run_record("driven", "s", "s", None)
        }))),
        event("s", Some("driven"), 1, started()),
        child_run("child", "s", "s", "driven"),
        event("s", Some("child"), 1, started()),
        event("a", Some("a"), 1, normal),
    ]);
    assert_eq!(listed(&world), Vec::<String>::new());
}
