//! Repeatedly kills a process during an orchestrator run, and checks that nothing is lost or done
//! twice.
//!
//! The program runs itself as a child (`child.rs`), which does a job (`scene.rs`) with a scripted
//! model served by the parent (`server.rs`). The child is killed at randomly chosen fault points,
//! also while it recovers, and is started again until the job is done. Then everything is checked
//! (`check.rs`): reported events are stored, effects were made once, no run is left over, and every
//! conversation that was sent is valid for the providers. Every violation is printed with the seed
//! and the cycle; the third argument repeats only that cycle.
//!
//! `cargo run --release -p soong-drills --bin crash_runs -- [CYCLES=10] [SEED] [ONLY_CYCLE]`

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example shows its result"
)]

#[path = "crash_runs/check.rs"]
mod check;
#[path = "crash_runs/child.rs"]
mod child;
#[path = "shared/drill_dir.rs"]
mod drill_dir;
#[path = "shared/effect.rs"]
mod effect;
#[path = "crash_runs/incarnation.rs"]
mod incarnation;
#[path = "shared/invariants.rs"]
mod invariants;
#[path = "../support/pairing.rs"]
#[allow(unreachable_pub, reason = "tests use it as well")]
mod pairing;
#[path = "shared/process.rs"]
mod process;
#[path = "shared/random.rs"]
mod random;
#[path = "crash_runs/report.rs"]
mod report;
#[path = "shared/run_timeline.rs"]
mod run_timeline;
#[path = "crash_runs/scene.rs"]
mod scene;
#[path = "../support/scripted.rs"]
mod scripted;
#[path = "crash_runs/server.rs"]
mod server;

use std::{
    collections::BTreeMap,
    path::Path,
    process::ExitCode,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use drill_dir::DrillDir;
use incarnation::{ChildEnd, PlannedEnd};
use invariants::Violation;
use random::Random;
use report::ReportLedger;
use server::Server;
use soong::{FaultComponent, FaultPoint};

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Maximum number of children per cycle. If the job is not done by then, it makes no progress.
const MAX_CHILDREN: usize = 12;
/// Fault points that a child reaches while it resumes the work of an earlier child.
const RECOVERY_POINTS: [FaultPoint; 5] = [
    FaultPoint::BeforeCommit,
    FaultPoint::AfterCommit,
    FaultPoint::BeforeAppend,
    FaultPoint::AfterAppend,
    FaultPoint::CallModel,
];

/// Counters over all cycles.
#[derive(Debug, Default)]
struct Counts {
    cycles: u64,
    starts: u64,
    /// Number of kills by fault point, or `any time`.
    kills: BTreeMap<&'static str, u64>,
    reported: usize,
    effects: usize,
    histories: u64,
    violations: BTreeMap<&'static str, u64>,
}

impl Counts {
    fn print(&self, seed: u64, took: Duration) {
        let Self {
            cycles,
            starts,
            reported,
            effects,
            histories,
            ..
        } = self;
        let kills: u64 = self.kills.values().sum();
        println!(
            "seed {seed}, {:.1} s: {cycles} cycles, {kills} kills, {} restarts",
            took.as_secs_f64(),
            starts - cycles
        );
        println!(
            "events reported {reported}, effects made {effects}, histories checked {histories}"
        );
        let shown = |of: &BTreeMap<&str, u64>| {
            of.iter()
                .map(|(name, count)| format!("{name} {count}"))
                .collect::<Vec<_>>()
                .join(", ")
        };
        println!("kills by point: {}", shown(&self.kills));
        println!(
            "violations: {} {}",
            self.violations.values().sum::<u64>(),
            shown(&self.violations)
        );
    }
}

/// Chooses how the children of a cycle end.
struct KillPlanner<'a> {
    random: Random,
    /// Number of times that a job without faults reaches each point.
    met: &'a BTreeMap<String, u64>,
}

impl KillPlanner<'_> {
    /// Returns how the next child ends, after `life` earlier children.
    fn next(&mut self, life: usize) -> PlannedEnd {
        let random = &mut self.random;
        // Half of the cycles have one kill, a quarter have two, and so on.
        if life > 0 && random.below(2) == 0 || life + 2 >= MAX_CHILDREN {
            return PlannedEnd::Natural;
        }
        if random.below(5) == 0 {
            let then = Duration::from_micros(random.below(8_000));
            return PlannedEnd::Killed {
                after_events: random.below(250),
                then,
            };
        }
        let recovers = life > 0 && random.below(2) == 0;
        let points: Vec<(FaultPoint, u64)> = if recovers {
            RECOVERY_POINTS
                .into_iter()
                .map(|point| (point, 4))
                .collect()
        } else {
            FaultPoint::ALL
                .into_iter()
                .filter_map(|point| Some((point, *self.met.get(point.as_str())?)))
                .collect()
        };
        let points: Vec<_> = points.into_iter().filter(|(_, times)| *times > 0).collect();
        let (point, times) = points[random.below(points.len() as u64) as usize];
        let mut plan = format!("{point}@{}=kill", 1 + random.below(times));
        // Sometimes an operation also fails before the kill and is retried. Skips the first
        // commits, which belong to opening the home: if they fail, the child ends.
        if random.below(4) == 0 {
            let (point, times) = points[random.below(points.len() as u64) as usize];
            let first = if point.place() == FaultComponent::Writer {
                12
            } else {
                1
            };
            plan = format!("{point}@{}=fail,{plan}", first + random.below(times));
        }
        PlannedEnd::Planned {
            point: point.as_str(),
            plan,
        }
    }
}

/// Result of one cycle.
struct CycleResult {
    deaths: Vec<PlannedEnd>,
    violations: Vec<Violation>,
    ledger: ReportLedger,
}

/// Starts children until the job is done, and checks the result.
fn cycle(
    folder: &Path,
    slots: usize,
    mut fate: impl FnMut(usize) -> PlannedEnd,
    counts: &mut Counts,
) -> Result<CycleResult, Failed> {
    let dir = DrillDir(folder);
    let server = Server::start();
    std::fs::create_dir_all(dir.project())?;
    std::fs::write(dir.project().join("readme.txt"), "A project.\n")?;
    counts.cycles += 1;
    let mut cycle = CycleResult {
        deaths: Vec::new(),
        violations: Vec::new(),
        ledger: ReportLedger::default(),
    };
    loop {
        let death = fate(cycle.deaths.len());
        cycle.deaths.push(death.clone());
        counts.starts += 1;
        let (reports, end) = incarnation::run_child(folder, &server.base_url(), slots, &death)?;
        let changed: Vec<Violation> = reports
            .into_iter()
            .filter_map(|one| cycle.ledger.take(one))
            .collect();
        cycle.violations.extend(changed);
        match (end, death) {
            (ChildEnd::Done, _) => break,
            (ChildEnd::Killed, PlannedEnd::Planned { point, .. }) => {
                *counts.kills.entry(point).or_default() += 1
            }
            (ChildEnd::Killed, _) => *counts.kills.entry("any time").or_default() += 1,
            (ChildEnd::Other(how), _) => {
                cycle
                    .violations
                    .push(Violation::new("child exited by itself", how));
                break;
            }
        }
        if cycle.deaths.len() >= MAX_CHILDREN {
            cycle.violations.push(Violation::new(
                "job not done",
                format!("after {MAX_CHILDREN} children"),
            ));
            break;
        }
    }
    let judged = server.take();
    counts.histories += judged.histories;
    cycle.violations.extend(judged.wrong);
    let made = effect::effects(&dir.effects())?;
    counts.effects += made.len();
    counts.reported += cycle.ledger.events.len();
    cycle
        .violations
        .extend(check::all(&dir, &cycle.ledger, &made)?);
    for violation in &cycle.violations {
        *counts.violations.entry(violation.kind).or_default() += 1;
    }
    Ok(cycle)
}

/// Runs a cycle in its own folder. If there are violations, the folder is kept and its path is
/// printed.
fn drill_once(
    number: u64,
    seed: u64,
    met: &BTreeMap<String, u64>,
    counts: &mut Counts,
) -> Result<CycleResult, Failed> {
    let folder = tempfile::tempdir()?;
    let mut random = Random::new(seed.wrapping_mul(1_000_003).wrapping_add(number));
    let slots = [3, 8, 16][random.below(3) as usize];
    let mut fate = KillPlanner { random, met };
    let choose = |life: usize| {
        if number == 0 {
            PlannedEnd::Counted
        } else {
            fate.next(life)
        }
    };
    let cycle = cycle(folder.path(), slots, choose, counts)?;
    if !cycle.violations.is_empty() {
        let deaths: Vec<String> = cycle.deaths.iter().map(ToString::to_string).collect();
        println!(
            "seed {seed}, cycle {number}, {slots} slots, kept in {}: {}",
            folder.keep().display(),
            deaths.join("; ")
        );
        for Violation { kind, what } in &cycle.violations {
            println!("VIOLATION {kind}: {what}");
        }
    }
    Ok(cycle)
}

fn drill(cycles: u64, seed: u64, only: Option<u64>) -> Result<bool, Failed> {
    let start = Instant::now();
    let mut counts = Counts::default();
    // The cycle without faults must hold too, and counts how often each point is reached.
    let calm = drill_once(0, seed, &BTreeMap::new(), &mut counts)?;
    if calm.violations.is_empty() {
        for number in only.map_or(1..=cycles, |only| only..=only) {
            drill_once(number, seed, &calm.ledger.met, &mut counts)?;
            if number % 100 == 0 {
                println!("{number} cycles …");
            }
        }
    }
    counts.print(seed, start.elapsed());
    Ok(counts.violations.is_empty())
}

fn main() -> Result<ExitCode, Failed> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, folder, base_url, slots, counts] = arguments.as_slice()
        && flag == "--child"
    {
        let tokio = tokio::runtime::Runtime::new()?;
        let work = child::work(
            Path::new(folder),
            base_url,
            slots.parse()?,
            counts == "true",
        );
        return tokio.block_on(work).map(|()| ExitCode::SUCCESS);
    }
    let number = |index: usize| {
        arguments
            .get(index)
            .map(|text| text.parse::<u64>())
            .transpose()
    };
    let by_clock = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(1, |since| u64::from(since.subsec_nanos()))
    };
    let cycles = number(0)?.unwrap_or(10);
    let seed = number(1)?.unwrap_or_else(by_clock);
    let holds = drill(cycles, seed, number(2)?)?;
    Ok(if holds {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
