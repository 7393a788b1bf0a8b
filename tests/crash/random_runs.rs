//! Random actions on a home whose processes are killed at any time, by seeds.
//!
//! The program runs itself as a child (`child.rs`), which carries out actions (`action.rs`):
//! starts, children, cancels, decisions, answers, forks, heads, regenerates, deletions with ids
//! that are used again, crashes of actors, budgets. A model in the child chooses what the runs do
//! (`../support/family.rs`). The parent kills the child a few times, also while it recovers; the
//! next child continues. The last one waits for all runs. After each append, every run compares its
//! live state with the state rebuilt from the store. Then everything is checked (`check.rs`):
//! nothing hangs, each call has one outcome, no event is missing, no effect is repeated, every
//! conversation is valid for the services, and no more is charged than the model reports for the
//! calls that were made.
//!
//! `cargo run --release -p soong-drills --bin random_runs -- [SEEDS=100] [FIRST_SEED=1]`

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example shows its result"
)]

#[path = "random_runs/action.rs"]
mod action;
#[path = "random_runs/check.rs"]
mod check;
#[path = "random_runs/child.rs"]
mod child;
#[path = "shared/drill_dir.rs"]
mod drill_dir;
#[path = "shared/effect.rs"]
mod effect;
#[path = "../support/family.rs"]
#[allow(unreachable_pub, reason = "tests use it as well")]
mod family;
#[path = "shared/invariants.rs"]
mod invariants;
#[path = "../support/pairing.rs"]
#[allow(unreachable_pub, reason = "tests use it as well")]
mod pairing;
#[path = "shared/process.rs"]
mod process;
#[path = "shared/random.rs"]
mod random;
#[path = "shared/run_timeline.rs"]
mod run_timeline;
#[path = "random_runs/scene.rs"]
mod scene;

use std::{
    collections::BTreeMap,
    path::Path,
    process::{Command, ExitCode},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::SeqCst},
        mpsc::RecvTimeoutError,
    },
    time::{Duration, Instant},
};

use action::ACTIONS;
use drill_dir::DrillDir;
use invariants::Violation;
use process::Running;
use random::Random;
use scene::create_project;

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Maximum time without a report of the child; a child that is silent for longer is stuck.
const SILENCE: Duration = Duration::from_secs(90);
/// Number of histories that run at the same time: they mostly wait.
const PARALLEL: usize = 4;

/// A planned kill.
#[derive(Debug)]
struct Kill {
    /// Number of actions that the child carries out first.
    after_actions: u64,
    /// Time between the last of these actions, or the start of the child, and the kill.
    delay: Duration,
}

/// How a child ended.
struct ChildEnd {
    /// Number of actions that it has carried out.
    actions: u64,
    /// Whether it has waited for all runs, or is stuck.
    is_last: bool,
}

/// Result of one history.
#[derive(Default)]
struct History {
    kills: u64,
    violations: Vec<Violation>,
    counts: check::Counts,
}

/// Returns the kills of a history: up to three, each at a random moment. Half of them strike while
/// the home is opened, or soon after.
fn random_kills(random: &mut Random) -> Vec<Kill> {
    let count = random.below(4);
    let kill = |_| {
        let is_early = random.below(2) == 0;
        Kill {
            after_actions: if is_early {
                0
            } else {
                1 + random.below(ACTIONS / 2)
            },
            delay: Duration::from_micros(random.below(if is_early { 150_000 } else { 15_000 })),
        }
    };
    (0..count).map(kill).collect()
}

/// Runs one child.
fn run_child(
    folder: &Path,
    seed: u64,
    first_action: u64,
    kill: Option<&Kill>,
    history: &mut History,
) -> Result<ChildEnd, Failed> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg("--child")
        .arg(folder)
        .arg(seed.to_string())
        .arg(first_action.to_string());
    let mut running = Running::start(&mut command)?;
    let mut actions = 0;
    let mut kill_at = kill
        .filter(|kill| kill.after_actions == 0)
        .map(|kill| Instant::now() + kill.delay);
    loop {
        let wait = kill_at.map_or(SILENCE, |at| at.saturating_duration_since(Instant::now()));
        match running.lines.recv_timeout(wait) {
            Ok(line) if line.trim_end() == child::COMPARED => history.counts.comparisons += 1,
            Ok(line) if line.trim_end() == child::ACTION_DONE => {
                actions += 1;
                if let Some(kill) = kill.filter(|kill| kill.after_actions == actions) {
                    kill_at = Some(Instant::now() + kill.delay);
                }
            }
            Ok(line) => {
                let (kind, what) = line
                    .trim_end()
                    .split_once(": ")
                    .unwrap_or(("child", line.trim_end()));
                history
                    .violations
                    .push(Violation::new(child::violation_kind(kind), what));
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = running.child.wait()?;
                if !status.success() {
                    history
                        .violations
                        .push(Violation::new("child exited by itself", status.to_string()));
                }
                return Ok(ChildEnd {
                    actions,
                    is_last: true,
                });
            }
            Err(RecvTimeoutError::Timeout) => {
                let is_stuck = kill_at.is_none();
                running.kill()?;
                if is_stuck {
                    let what = format!("silent for {SILENCE:?} after {actions} actions");
                    history
                        .violations
                        .push(Violation::new("child is stuck", what));
                    return Ok(ChildEnd {
                        actions,
                        is_last: true,
                    });
                }
                history.kills += 1;
                return Ok(ChildEnd {
                    actions,
                    is_last: false,
                });
            }
        }
    }
}

/// Runs the history of a seed in its own folder. If there are violations, the folder is kept.
fn run_history(seed: u64) -> Result<History, Failed> {
    let folder = tempfile::tempdir()?;
    let dir = DrillDir(folder.path());
    create_project(&dir)?;
    let mut random = Random::new(seed.wrapping_mul(1_000_003));
    let mut history = History::default();
    let kills = random_kills(&mut random);
    let mut next_kill = kills.iter();
    let mut next_action = 0;
    loop {
        let end = run_child(
            folder.path(),
            seed,
            next_action,
            next_kill.next(),
            &mut history,
        )?;
        if end.is_last {
            break;
        }
        // An action that was cut off is sometimes repeated.
        next_action += end.actions + random.below(2);
    }
    let (violations, counts) = check::all(&dir)?;
    history.violations.extend(violations);
    history.counts.add(&counts);
    if !history.violations.is_empty() {
        println!(
            "seed {seed}, kept in {}: {kills:?}",
            folder.keep().display()
        );
        for Violation { kind, what } in &history.violations {
            println!("VIOLATION {kind}: {what}");
        }
    }
    Ok(history)
}

/// Runs the histories of these seeds, several at a time. Returns whether all invariants hold.
fn drill(first_seed: u64, seeds: u64) -> Result<bool, Failed> {
    let start = Instant::now();
    let next = AtomicU64::new(first_seed);
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..PARALLEL {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, SeqCst);
                    if seed >= first_seed + seeds {
                        return;
                    }
                    let result = run_history(seed);
                    results
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(result);
                }
            });
        }
    });
    let mut kills = 0;
    let mut counts = check::Counts::default();
    let mut violations: BTreeMap<&str, u64> = BTreeMap::new();
    for result in results.into_inner().unwrap_or_else(PoisonError::into_inner) {
        let history = result?;
        kills += history.kills;
        counts.add(&history.counts);
        for violation in &history.violations {
            *violations.entry(violation.kind).or_default() += 1;
        }
    }
    println!(
        "seeds {first_seed} to {}, {:.1} s: {kills} kills, {counts}",
        first_seed + seeds - 1,
        start.elapsed().as_secs_f64()
    );
    let total: u64 = violations.values().sum();
    let kinds: Vec<String> = violations
        .iter()
        .map(|(kind, count)| format!("{kind} {count}"))
        .collect();
    println!("violations: {total} {}", kinds.join(", "));
    if counts.comparisons < seeds {
        println!("too few states were compared");
        return Ok(false);
    }
    Ok(total == 0)
}

fn main() -> Result<ExitCode, Failed> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, folder, seed, first_action] = arguments.as_slice()
        && flag == "--child"
    {
        let tokio = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        let work = child::work(Path::new(folder), seed.parse()?, first_action.parse()?);
        return tokio.block_on(work).map(|()| ExitCode::SUCCESS);
    }
    let number = |index: usize| {
        arguments
            .get(index)
            .map(|text| text.parse::<u64>())
            .transpose()
    };
    let seeds = number(0)?.unwrap_or(100);
    let first_seed = number(1)?.unwrap_or(1);
    let holds = drill(first_seed, seeds)?;
    Ok(if holds {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
