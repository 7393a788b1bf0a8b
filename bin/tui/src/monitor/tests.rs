//! Long sessions at the monitor, without a terminal: input and keys in, screens and requests out.

mod acts;
mod panes;
mod screens;

use ratatui::{
    Terminal,
    backend::TestBackend,
    crossterm::event::{KeyCode, KeyEvent, KeyModifiers},
};
use soong_protocol::{
    BudgetDimension, Permission, PermissionId, Question, QuestionId, QuestionStatus, RunId,
    Session, SessionId, SessionKind, Timestamp, TraceId, Usd,
    tree::{ActorKind, ActorView, BudgetShare, GatewayView, TreeEvent},
};

use super::{
    cells::CellWriter,
    draw::draw,
    sample::{self, actor, run, tree},
    state::{Connection, Monitor, MonitorInput, MonitorRequest},
};
use crate::request::UserRequest;

/// Start time of a session: 2026-11-22 18:00:00 UTC.
const BEGIN: i64 = 1_795_370_400_000;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(BEGIN + seconds * 1_000)
}

/// A monitor with its clock.
struct TestMonitor {
    monitor: Monitor,
    now: Timestamp,
}

impl TestMonitor {
    fn begin(cells: CellWriter) -> Self {
        let mut test = Self {
            monitor: Monitor::new("/home/user/.soong-agent".to_owned(), None, cells),
            now: at(0),
        };
        test.receive(MonitorInput::Link(Connection::Connected {
            pid: 4_242,
            version: "0.1.0".to_owned(),
        }));
        test
    }

    fn receive(&mut self, input: MonitorInput) -> Vec<MonitorRequest> {
        let request = self.monitor.handle(input, self.now);
        request
            .into_iter()
            .chain(self.monitor.due_reads(self.now))
            .collect()
    }

    /// Types keys, one per character.
    fn types(&mut self, keys: &str) -> Vec<MonitorRequest> {
        keys.chars()
            .flat_map(|c| self.key(KeyCode::Char(c)))
            .collect()
    }

    fn key(&mut self, code: KeyCode) -> Vec<MonitorRequest> {
        self.receive(MonitorInput::Key(KeyEvent::new(code, KeyModifiers::NONE)))
    }

    fn changes(&mut self, changed: Vec<ActorView>, gone: &[&str]) -> Vec<MonitorRequest> {
        self.receive(MonitorInput::Tree(sample::changed(changed, gone)))
    }

    fn screen(&mut self, columns: u16, rows: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        terminal
            .draw(|frame| draw(&mut self.monitor, frame.buffer_mut(), self.now))
            .unwrap();
        let buffer = terminal.backend().buffer().clone();
        let row = |y: u16| {
            let mut row = String::new();
            let mut under = 0;
            for x in 0..columns {
                // A wide character also covers the next cell.
                if under > 0 {
                    under -= 1;
                    continue;
                }
                let symbol = buffer[(x, y)].symbol();
                under = crate::text::width(symbol).saturating_sub(1);
                row.push_str(symbol);
            }
            row.trim_end().to_owned()
        };
        (0..rows).map(row).collect::<Vec<_>>().join("\n")
    }
}

const FINE: CellWriter = CellWriter {
    color: true,
    unicode: true,
};
const PLAIN: CellWriter = CellWriter {
    color: false,
    unicode: false,
};

/// An orchestrator with children, of which one is stuck, one has a pending request and one was
/// restarted.
fn sample_tree() -> TreeEvent {
    let child = |id: &str, task: &str, tokens: u64, since: i64| {
        let mut view = run(id, Some("main"));
        view.started_at = at(-300);
        view.since = at(since);
        view.handled = 40;
        let about = view.run.as_mut().unwrap();
        about.task = task.to_owned();
        about.tokens = tokens;
        about.turn = 4;
        about.events = 31;
        about.cost = Some(Usd::from_nanos(tokens * 15_000));
        about.last_progress = Some(at(since));
        view
    };
    let mut main = run("main", None);
    main.started_at = at(-420);
    main.since = at(-300);
    main.activity = "3 of 4 children".to_owned();
    let about = main.run.as_mut().unwrap();
    about.task = "Write a report about the project".to_owned();
    about.tokens = 18_250;
    about.turn = 3;
    about.events = 57;
    about.cost = Some(Usd::from_nanos(273_750_000));
    about.goal = Some("1.2 Explore the folders".to_owned());
    about.last_progress = Some(at(-2));
    about.budget = vec![
        BudgetShare {
            dimension: BudgetDimension::Tokens,
            used: "43250".to_owned(),
            limit: "50000".to_owned(),
        },
        BudgetShare {
            dimension: BudgetDimension::Usd,
            used: "0.64".to_owned(),
            limit: "2.00".to_owned(),
        },
    ];
    let mut stuck = child("stuck", "Explore the folder `vendor/`", 9_100, -290);
    stuck.activity = "tool bash".to_owned();
    stuck.last_error = Some(
        "model call, attempt 1: rate_limited: the service is busy (429), try again in 20 s"
            .to_owned(),
    );
    stuck.run.as_mut().unwrap().stuck = true;
    let mut asks = child("asks", "Explore the folder `docs/`", 7_000, -65);
    asks.state = "waiting".into();
    asks.activity = "a permission".to_owned();
    asks.run.as_mut().unwrap().asks = 1;
    let mut back = child("back", "Explore the folder `src/`", 8_900, -3);
    back.restarts = 1;
    back.last_error = Some("crashed on request".to_owned());
    back.mailbox = 2;
    let TreeEvent::Snapshot { mut tree, dropped } = tree(vec![main, stuck, asks, back]) else {
        unreachable!()
    };
    let mut gateway = actor(
        ActorKind::ModelGateway,
        "default",
        Some("runtime_supervisor:0"),
    );
    gateway.activity = "2 in flight, 3 waiting (requests_per_minute, 12 s)".to_owned();
    gateway.since = at(-4);
    gateway.gateway = Some(GatewayView {
        in_flight: 2,
        max_concurrency: 8,
        waiting: 3,
        waits_for: Some("requests_per_minute".to_owned()),
        waits_until: Some(at(12)),
        sent: 61,
        requests: 60,
        requests_per_minute: Some(60),
        retry_after: Some(at(20)),
        ..GatewayView::default()
    });
    tree.children.push(gateway);
    let mut open = vec![&mut *tree];
    while let Some(view) = open.pop() {
        if view.started_at == Timestamp::default() {
            view.started_at = at(-600);
            view.since = at(-600);
        }
        open.extend(view.children.iter_mut());
    }
    TreeEvent::Snapshot { tree, dropped }
}

/// Returns a request for permission that was made 65 seconds before the session starts.
pub(super) fn permission() -> UserRequest {
    UserRequest::Permission(Box::new(Permission {
        created_at: at(-65),
        ..crate::sample::permission()
    }))
}

/// Returns the record of the sample tree's session.
fn session() -> Session {
    Session {
        session_id: SessionId::new("s"),
        slug: Some("write-a-report-3f".to_owned()),
        name: Some("Report about the project".to_owned()),
        kind: SessionKind::Conversation,
        uid: "user".to_owned(),
        project_dir: "/home/user/project".to_owned(),
        incarnation: 1,
        first_session_seq: 1,
        last_session_seq: 57,
        live_runs: 4,
        created_at: at(-600),
        updated_at: at(-2),
        last_run_at: Some(at(-420)),
    }
}

fn question() -> UserRequest {
    UserRequest::Question(Question {
        question_id: QuestionId::new("q1"),
        run_id: RunId::new("main"),
        trace_id: TraceId::new("s"),
        session_id: SessionId::new("s"),
        question: "Which branch is the report about?".to_owned(),
        to: None,
        status: QuestionStatus::Pending,
        answer: None,
        created_at: at(-20),
        decided_at: None,
    })
}
