//! Screen snapshots. After an intended change, run with `INSTA_UPDATE=always` and review the
//! difference.

use insta::assert_snapshot;
use proptest::prelude::*;

use super::*;
use crate::{
    monitor::{sample::changed, tree_lines},
    terminal::{Paint, TextStyle},
};

fn sample_monitor(cells: CellWriter) -> TestMonitor {
    let mut test = TestMonitor::begin(cells);
    test.receive(MonitorInput::Tree(sample_tree()));
    test.receive(MonitorInput::PendingRequests(Ok(vec![
        permission(),
        question(),
    ])));
    test
}

#[test]
fn stuck_child_shows_its_last_error_and_cost() {
    let screen = sample_monitor(FINE).screen(140, 32);
    for part in [
        "1 is stuck",
        "Explore the folder `vendor/`",
        "rate_limited: the service",
        "$0.1365",
        "no progress for",
    ] {
        assert!(screen.contains(part), "{part:?} is missing in:\n{screen}");
    }
    assert_snapshot!("overview_140x32", screen);
}

#[test]
fn small_window_shows_tree_and_enter_opens_the_pane() {
    let mut test = sample_monitor(FINE);
    assert_snapshot!("overview_60x15", test.screen(60, 15));
    test.key(KeyCode::Enter);
    assert_snapshot!("facts_60x15", test.screen(60, 15));
    test.key(KeyCode::Esc);
    assert!(test.screen(60, 15).contains("journal"));
}

#[test]
fn only_ascii_is_drawn_without_utf8() {
    let mut test = sample_monitor(PLAIN);
    for keys in ["", "t", "?"] {
        test.types(keys);
        let screen = test.screen(100, 30);
        assert!(screen.is_ascii(), "{screen}");
    }
    test.key(KeyCode::Esc);
    assert_snapshot!("plain_100x30", test.screen(100, 30));
}

#[test]
fn colors_are_omitted_if_disabled() {
    for (cells, is_coloured) in [(FINE, true), (PLAIN, false)] {
        let mut test = sample_monitor(cells);
        let mut terminal = Terminal::new(TestBackend::new(140, 32)).unwrap();
        terminal
            .draw(|frame| draw(&mut test.monitor, frame.buffer_mut(), test.now))
            .unwrap();
        let coloured = terminal
            .backend()
            .buffer()
            .content()
            .iter()
            .any(|cell| cell.fg != ratatui::style::Color::Reset);
        assert_eq!(coloured, is_coloured);
    }
}

#[test]
fn gateway_pane_shows_its_calls() {
    let mut test = sample_monitor(FINE);
    test.types("G");
    for _ in 0..3 {
        if test
            .monitor
            .list
            .selected()
            .is_some_and(|key| key.starts_with("model_gateway"))
        {
            break;
        }
        test.types("k");
    }
    assert_snapshot!("gateway_100x28", test.screen(100, 28));
}

#[test]
fn printed_tree_is_that_of_the_monitor() {
    let TreeEvent::Snapshot { tree, .. } = sample_tree() else {
        unreachable!()
    };
    for (keys, by_supervision) in [("", false), ("t", true)] {
        for (cells, width) in [(FINE, 137), (PLAIN, 90), (FINE, 60)] {
            let mut test = sample_monitor(cells);
            test.receive(MonitorInput::Session(
                SessionId::new("s"),
                Box::new(Ok(session())),
            ));
            test.types(keys);
            let screen = test.screen(width, 60);
            let rows: Vec<&str> = screen
                .lines()
                .skip_while(|row| !row.starts_with("NAME"))
                .skip(1)
                .collect();
            let printed = tree_lines(
                (*tree).clone(),
                vec![session()],
                by_supervision,
                cells,
                width,
                test.now,
            );
            let printed: Vec<String> = printed
                .iter()
                .map(|line| line.to_ansi(Paint { on: false }))
                .collect();
            assert!(
                printed.len() > 8 && printed[0].starts_with("NAME"),
                "{printed:#?}"
            );
            assert_eq!(printed[1..], rows[..printed.len() - 1], "{width} columns");
        }
    }
    let lines = tree_lines(*tree, vec![session()], false, FINE, 137, at(0));
    assert!(lines.iter().any(|line| {
        line.pieces()
            .any(|piece| piece == (TextStyle::Red, "stuck"))
    }));
}

#[test]
fn help_lists_every_key() {
    let mut test = sample_monitor(FINE);
    test.types("?");
    assert_snapshot!("help_100x36", test.screen(100, 36));
    let low = test.screen(80, 15);
    for _ in 0..40 {
        test.key(KeyCode::Down);
    }
    assert!(
        low.contains("previous or next row")
            && test.screen(80, 15).contains("exit; active runs continue"),
        "{low}"
    );
}

#[test]
fn requests_are_shown_with_their_details() {
    let mut test = sample_monitor(FINE);
    test.types("a");
    assert_snapshot!("permission_100x24", test.screen(100, 24));
    test.key(KeyCode::Down);
    test.key(KeyCode::Enter);
    test.types("main, of course");
    assert_snapshot!("question_100x24", test.screen(100, 24));
}

#[test]
fn lost_connection_is_shown_and_last_tree_is_kept() {
    let mut test = sample_monitor(FINE);
    test.receive(MonitorInput::Link(Connection::Lost(
        "lost the connection to the owner process: broken pipe".to_owned(),
    )));
    let screen = test.screen(100, 24);
    for part in [
        "offline, reconnecting",
        "! lost the connection to the owner process",
        "orchestrator Write a report",
    ] {
        assert!(screen.contains(part), "{part:?} is missing in:\n{screen}");
    }
    let empty = TestMonitor::begin(FINE).screen(80, 20);
    assert!(empty.contains("waiting for the actor tree"), "{empty}");
}

#[test]
fn failed_runtime_actor_shows_its_error() {
    let mut test = sample_monitor(FINE);
    let mut journal = actor(ActorKind::Journal, "0", Some("runtime_supervisor:0"));
    journal.state = "failed".into();
    journal.last_error = Some("it crashed 4 times within 60 s".to_owned());
    test.receive(MonitorInput::Tree(changed(vec![journal], &[])));
    test.types("G");
    let screen = test.screen(120, 28);
    assert!(
        screen.contains("journal") && screen.contains("failed"),
        "{screen}"
    );
    assert!(
        screen.contains("it crashed 4 times within 60 s"),
        "{screen}"
    );
}

/// Hostile text.
fn hostile() -> impl Strategy<Value = String> {
    let odd = "(\u{1b}\\[[0-9;]{0,4}[A-Za-z]|\u{9b}31m|\u{202e}|\u{2066}|\u{200d}|\r|\n|\u{7}|\u{8}|[a-z]{1,9}|好|👩‍🔬|\u{301}){0,30}";
    prop_oneof![any::<String>(), odd, "x{0,3000}".prop_map(|text| text)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn hostile_text_cannot_break_the_screen(
        task in hostile(),
        activity in hostile(),
        error in hostile(),
        id in hostile(),
        columns in 1u16..180,
        rows in 1u16..60,
        keys in prop::collection::vec(prop::sample::select("jkGg12345678d$phlztse?aKcx/!fn".chars().collect::<Vec<_>>()), 0..6),
    ) {
        let mut test = sample_monitor(if columns % 2 == 0 { FINE } else { PLAIN });
        let mut view = run("evil", Some("main"));
        view.activity = activity.clone();
        view.last_error = Some(error.clone());
        view.id = id.clone();
        let about = view.run.as_mut().unwrap();
        about.task = task.clone();
        about.agent_type = id;
        about.goal = Some(error);
        let mut asks = permission();
        if let UserRequest::Permission(permission) = &mut asks {
            permission.demand.target = task;
            permission.arguments = activity;
        }
        test.changes(vec![view], &[]);
        test.receive(MonitorInput::PendingRequests(Ok(vec![asks])));
        for key in keys {
            test.key(KeyCode::Char(key));
            test.key(KeyCode::Tab);
        }
        let screen = test.screen(columns, rows);
        for row in screen.split('\n') {
            prop_assert!(!row.chars().any(char::is_control), "{row:?}");
            prop_assert!(!row.chars().any(|c| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200d}')), "{row:?}");
            prop_assert!(crate::text::width(row) <= usize::from(columns), "{row:?}");
        }
    }
}
