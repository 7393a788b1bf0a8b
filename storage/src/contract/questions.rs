//! Questions to users and their answers (SUB-9).

use soong_protocol::{
    Question, QuestionId, QuestionStatus, RunEvent, RunStatus, SessionWrite, SubAgentEvent, Write,
};

use super::world::{TestStore, at, completed, event, run_id, session_id, started};
use crate::store::{QuestionFilter, StoreError};

fn ask(id: &str, second: i64) -> Write {
    let question_asked = SubAgentEvent::QuestionAsked {
        question_id: QuestionId::new(id),
        question: format!("{id}?"),
        to: (id == "q2").then(|| "Ada".to_owned()),
        tool_call_id: "c".into(),
    };
    event("a", Some("a"), second, question_asked)
}

fn answer(id: &str, text: &str) -> Write {
    Write::Answer {
        question_id: QuestionId::new(id),
        answer: text.into(),
        at: at(9),
    }
}

fn pending(world: &TestStore) -> Vec<String> {
    let filter = QuestionFilter {
        status: Some(QuestionStatus::Pending),
        ..QuestionFilter::default()
    };
    world
        .reader
        .questions(&filter)
        .unwrap()
        .into_iter()
        .map(|question| question.question_id.to_string())
        .collect()
}

fn read(world: &TestStore, id: &str) -> Question {
    world
        .reader
        .question(&QuestionId::new(id))
        .unwrap()
        .unwrap()
}

pub(super) fn question_is_answered_once_or_withdrawn_with_its_run(mut world: TestStore) {
    world.start_run("a");
    world.write(vec![
        event("a", Some("a"), 1, started()),
        ask("q1", 2),
        ask("q2", 3),
        ask("q3", 4),
    ]);
    world.write(vec![event(
        "a",
        Some("a"),
        4,
        RunEvent::Waiting {
            r#for: "question".into(),
        },
    )]);
    assert_eq!(
        world.reader.run(&run_id("a")).unwrap().unwrap().status,
        RunStatus::Waiting
    );
    assert_eq!(pending(&world), ["q1", "q2", "q3"]);
    let question = read(&world, "q2");
    assert_eq!(
        (
            question.question.as_str(),
            question.to.as_deref(),
            question.answer
        ),
        ("q2?", Some("Ada"), None)
    );
    assert_eq!(
        (question.run_id, question.session_id, question.created_at),
        (run_id("a"), session_id("a"), at(3))
    );
    // Asking again changes nothing, because a run that is resumed after a crash may do so.
    world.write(vec![answer("q1", "yes"), ask("q1", 5)]);
    let answered = read(&world, "q1");
    assert_eq!(
        (answered.status, answered.answer.as_deref()),
        (QuestionStatus::Answered, Some("yes"))
    );
    assert_eq!(answered.decided_at, Some(at(9)));
    for writes in [
        vec![answer("q1", "no")],
        vec![answer("q2", "a"), answer("q2", "b")],
    ] {
        assert!(matches!(
            world.write_rejected(writes),
            StoreError::AlreadyDecided(_)
        ));
    }
    assert!(matches!(
        world.write_rejected(vec![answer("nobody", "x")]),
        StoreError::NotFound(_)
    ));
    assert_eq!(
        pending(&world),
        ["q2", "q3"],
        "what was refused wrote nothing"
    );
    world.write(vec![event(
        "a",
        Some("a"),
        6,
        RunEvent::Resumed {
            from: "question".into(),
        },
    )]);
    assert_eq!(
        world.reader.run(&run_id("a")).unwrap().unwrap().status,
        RunStatus::Running
    );
    world.write(vec![event("a", Some("a"), 7, completed("done"))]);
    assert_eq!(
        (pending(&world), read(&world, "q3").status),
        (vec![], QuestionStatus::Withdrawn)
    );
    assert_eq!(read(&world, "q1").status, QuestionStatus::Answered);
    assert!(matches!(
        world.write_rejected(vec![answer("q3", "late")]),
        StoreError::AlreadyDecided(_)
    ));
    let of =
        |world: &TestStore, filter: QuestionFilter| world.reader.questions(&filter).unwrap().len();
    assert_eq!(
        of(
            &world,
            QuestionFilter {
                session_id: Some(session_id("b")),
                ..QuestionFilter::default()
            }
        ),
        0
    );
    assert_eq!(
        of(
            &world,
            QuestionFilter {
                run_id: Some(run_id("a")),
                ..QuestionFilter::default()
            }
        ),
        3
    );
    world.write(vec![Write::Session(SessionWrite::BeginRemoval(
        session_id("a"),
    ))]);
    assert_eq!(
        (
            of(&world, QuestionFilter::default()),
            world.reader.question(&QuestionId::new("q1")).unwrap()
        ),
        (0, None)
    );
}
