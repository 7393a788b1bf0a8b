//! After each append, the state of a run that is rebuilt from the store equals its live state
//! (ACT-3), in random families of runs: with sub-agents, questions, permissions, summaries, failing
//! calls, crashes and cancels.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering::SeqCst},
};

use soong::{
    ChildSpec, FaultPoint, PermissionFilter, QuestionFilter, RunHandle, RunRequest, Runtime,
    RuntimeBuilder,
    protocol::{Budget, Decision, PermissionStatus, QuestionStatus, RunMode, TraceId},
    testing::respond,
};

use crate::support::{
    family::Family,
    world::{TIMEOUT, TestRuntime, quick_non_durable_config, run_until_false},
};

/// Number of families.
const SEEDS: u64 = 200;

/// Fields in which a rebuilt state differs, each with the run.
type Differences = Arc<Mutex<Vec<String>>>;

/// Number of comparisons, and of crashes of actors.
static COMPARISONS: AtomicU64 = AtomicU64::new(0);
static CRASHES: AtomicU64 = AtomicU64::new(0);

fn builder(builder: RuntimeBuilder, seed: u64, differences: &Differences) -> RuntimeBuilder {
    let mut config = quick_non_durable_config();
    config.model.context_window = Some(6_000);
    config.model.max_output_tokens = Some(400);
    config.context.keep_recent_messages = 4;
    config.runtime.max_turns = 8;
    config.runtime.idle_session_s = if seed.is_multiple_of(3) { 0 } else { 300 };
    config.memory.reflect_before_summary = seed.is_multiple_of(2);
    let found = Arc::clone(differences);
    let builder = builder
        .config(config)
        .difference_hook(Arc::new(move |run, lines| {
            COMPARISONS.fetch_add(1, SeqCst);
            let mut found = found.lock().unwrap();
            found.extend(lines.iter().map(|line| format!("{run}: {line}")));
        }));
    // In every fourth family, every 17th append crashes its actor.
    let points = AtomicU64::new(0);
    builder.fault_hook(Arc::new(move |_, point| {
        let is_crash_point = matches!(point, FaultPoint::BeforeAppend | FaultPoint::AfterAppend);
        if is_crash_point && seed % 4 == 1 && points.fetch_add(1, SeqCst) % 17 == 16 {
            CRASHES.fetch_add(1, SeqCst);
            std::panic::resume_unwind(Box::new("a crash of the drill"));
        }
    }))
}

/// Answers all questions, and decides about all permissions, by the seed.
async fn answer_people(runtime: &Runtime, seed: u64) {
    let filter = QuestionFilter {
        status: Some(QuestionStatus::Pending),
        ..QuestionFilter::default()
    };
    for question in runtime.questions().list(filter).await.unwrap() {
        let _ = runtime
            .questions()
            .answer(&question.question_id, "the first one")
            .await;
    }
    let filter = PermissionFilter {
        status: Some(PermissionStatus::Pending),
        ..PermissionFilter::default()
    };
    for permission in runtime.permissions().list(filter).await.unwrap() {
        let decision = if seed.is_multiple_of(2) {
            Decision::AllowOnce
        } else {
            Decision::Deny
        };
        let _ = runtime
            .permissions()
            .decide(&permission.permission_id, decision, None)
            .await;
    }
}

async fn wait_and_answer(runtime: &Runtime, run: &RunHandle, seed: u64) {
    let mut end = std::pin::pin!(run.wait());
    let answered = tokio::time::timeout(TIMEOUT, async {
        loop {
            tokio::select! {
                _ = &mut end => return,
                () = tokio::time::sleep(std::time::Duration::from_millis(2)) => answer_people(runtime, seed).await,
            }
        }
    });
    if answered.await.is_err() {
        panic!(
            "seed {seed}: the run does not end\n{}",
            family_state(runtime, run.trace_id()).await
        );
    }
}

/// Describes the runs of a family and their last events.
async fn family_state(runtime: &Runtime, root: &TraceId) -> String {
    let mut text = String::new();
    let mut open = vec![root.clone()];
    while let Some(trace_id) = open.pop() {
        let events = runtime
            .traces()
            .replay(&trace_id, 0, 10_000)
            .await
            .unwrap_or_default();
        let last = events.iter().rev().take(12).rev();
        text.push_str(&format!(
            "{trace_id}, {} events, the last ones:\n",
            events.len()
        ));
        for event in last {
            let line = serde_json::to_string(event).unwrap_or_default();
            text.extend(line.chars().take(300));
            text.push('\n');
        }
        let sub_traces = runtime
            .traces()
            .sub_traces(&trace_id)
            .await
            .unwrap_or_default();
        open.extend(sub_traces.into_iter().map(|trace| trace.trace_id));
    }
    text
}

/// Runs a family; returns the differences.
async fn family(seed: u64) -> Vec<String> {
    let differences = Differences::default();
    let choices = Family::new(seed);
    let model = Arc::new(respond(move |request| choices.step(request)));
    let world = TestRuntime::with(model, |runtime| {
        let asks = seed.is_multiple_of(5);
        let runtime = builder(runtime, seed, &differences);
        if asks {
            runtime.permissions_by_users()
        } else {
            runtime
        }
    })
    .await;
    std::fs::write(world.project().join("long.txt"), "word ".repeat(900)).unwrap();
    let runtime = world.runtime();
    for round in 0..3 {
        let budget = Budget {
            tool_calls: (seed % 7 == 3).then_some(6),
            children: (seed % 7 == 4).then_some(2),
            tokens: (seed % 7 == 5).then_some(40_000),
            ..Budget::default()
        };
        let mut request = RunRequest::new(format!("job {seed} {round}"))
            .session("s")
            .mode(RunMode::Orchestrator);
        if seed % 7 > 2 {
            request = request.budget(budget);
        }
        let Ok(run) = runtime.start(request).await else {
            continue;
        };
        if (seed + round).is_multiple_of(3) {
            let child = ChildSpec::new(format!("program {round}")).deliver();
            let _ = run.spawn(child).await;
        }
        if (seed + round).is_multiple_of(11) {
            let _ = run.request_cancel().await;
        }
        wait_and_answer(runtime, &run, seed).await;
    }
    world.finish().await;
    let found = differences.lock().unwrap();
    found.clone()
}

#[test]
fn rebuilt_states_equal_live_states() {
    let wrong = Mutex::new(Vec::new());
    run_until_false(async |seed| {
        let found = family(seed).await;
        if !found.is_empty() {
            wrong
                .lock()
                .unwrap()
                .push(format!("seed {seed}:\n{}", found.join("\n")));
        }
        seed < SEEDS
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let comparisons = COMPARISONS.load(SeqCst);
    let crashes = CRASHES.load(SeqCst);
    assert!(
        comparisons > 20 * SEEDS && crashes > SEEDS / 4,
        "{comparisons} comparisons, {crashes} crashes: too few"
    );
}
