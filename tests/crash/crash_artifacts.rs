//! Repeatedly kills a process that writes artifacts, and checks that nothing acknowledged is lost.
//!
//! The program runs itself as a child on a home (`load.rs`), reads the child's reports of durable
//! writes, and kills it: right after its start, under load, or right after an operation has
//! started. Then it opens the home itself, so that startup repairs it, and compares database and
//! files with each other and with the reports (`check.rs`). Every violation is printed with the
//! seed and the number of the kill.
//!
//! `cargo run --release -p soong-drills --bin crash_artifacts -- [KILLS=25] [SEED]`

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example shows its result"
)]

#[path = "crash_artifacts/check.rs"]
mod check;
#[path = "crash_artifacts/load.rs"]
mod load;
#[path = "shared/process.rs"]
mod process;
#[path = "shared/random.rs"]
mod random;
#[path = "crash_artifacts/report.rs"]
mod report;
#[path = "shared/run_timeline.rs"]
mod run_timeline;
#[path = "crash_artifacts/scene.rs"]
mod scene;

use std::{
    path::Path,
    process::{Command, ExitCode},
    sync::mpsc::RecvTimeoutError,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use check::Counts;
use process::Running;
use report::{Random, Report, ReportLedger};
use soong_storage::sqlite::SqliteReader;

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Number of kills after which a new home is used, since the time for the checks grows with the
/// home.
const KILLS_PER_HOME: u64 = 12;
/// Maximum wait for the report that triggers a kill.
const TIMEOUT: Duration = Duration::from_millis(600);

/// Time of a kill.
#[derive(Debug, Clone, Copy)]
enum KillMoment {
    /// This long after the start of the child.
    AfterStart(Duration),
    /// This long after the home was opened.
    AfterOpening(Duration),
    /// This long after the nth report of a kind.
    After(&'static str, u64, Duration),
}

impl KillMoment {
    fn choose(random: &mut Random) -> Self {
        let with_timeout = Duration::from_micros(random.below(2_500));
        let nth = 1 + random.below(12);
        match random.below(10) {
            0 => Self::AfterStart(Duration::from_micros(random.below(25_000))),
            1 => Self::AfterOpening(Duration::from_micros(random.below(5_000))),
            2 | 3 => Self::AfterOpening(Duration::from_millis(random.below(300))),
            4 | 5 => Self::After("flushing", nth.div_ceil(3), with_timeout),
            6 => Self::After("saving", nth, with_timeout),
            7 => Self::After("saved", nth, with_timeout),
            8 => Self::After("deleting", nth.div_ceil(4), with_timeout),
            _ => Self::After("artifact_edited", nth, with_timeout),
        }
    }

    /// Returns whether the home stays unrepaired, so that the next child must repair it at startup.
    fn wants_dirty_home(random: &mut Random) -> bool {
        random.below(4) == 0
    }
}

/// Starts a child that writes artifacts.
fn start(home: &Path, seed: u64) -> Result<Running, Failed> {
    let mut command = Command::new(std::env::current_exe()?);
    Running::start(command.args([
        "--child".as_ref(),
        home.as_os_str(),
        seed.to_string().as_ref(),
    ]))
}

/// Kills the child at the given moment. Returns all reports that the child had written.
fn kill_at(mut running: Running, moment: KillMoment) -> Result<Vec<Report>, Failed> {
    let mut reports = Vec::new();
    let (kind, nth, then) = match moment {
        KillMoment::AfterStart(then) => ("", 0, then),
        KillMoment::AfterOpening(then) => ("opened", 1, then),
        KillMoment::After(kind, nth, then) => (kind, nth, then),
    };
    let until = Instant::now() + TIMEOUT;
    let mut seen = 0;
    while seen < nth {
        match running
            .lines
            .recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            Ok(line) => {
                let one = Report::read(&line)?;
                seen += u64::from(one.kind() == kind);
                reports.push(one);
            }
            Err(RecvTimeoutError::Timeout) => break,
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    std::thread::sleep(then);
    if let Some(status) = running.child.try_wait()? {
        return Err(format!("the child exited before it was killed: {status}").into());
    }
    for line in running.kill()?.1 {
        reports.push(Report::read(&line)?);
    }
    Ok(reports)
}

/// Opens the home as its next owner, and checks everything in it.
async fn open_and_check(
    home: &Path,
    ledger: &ReportLedger,
    counts: &mut Counts,
) -> Result<Vec<String>, Failed> {
    let database = home.join("sessions.sqlite");
    // A child that was killed early may have created no database.
    if let Ok(before) = SqliteReader::open(&database) {
        counts.take_before(&before)?;
    }
    let runtime = scene::builder(home, scene::busy_model(0)).build().await?;
    let violations = check::all(&runtime, &SqliteReader::open(&database)?, ledger, counts).await;
    runtime.close().await;
    violations
}

/// Starts a child and kills it. Returns the violations.
fn kill_once(
    home: &Path,
    moment: KillMoment,
    seed: u64,
    drill: &mut State,
    is_checked: bool,
) -> Result<Vec<String>, Failed> {
    drill.ledger.take(kill_at(start(home, seed)?, moment)?);
    drill.counts.kills += 1;
    if !is_checked {
        return Ok(Vec::new());
    }
    drill
        .tokio
        .block_on(open_and_check(home, &drill.ledger, &mut drill.counts))
}

/// State that is kept across kills.
struct State {
    tokio: tokio::runtime::Runtime,
    counts: Counts,
    ledger: ReportLedger,
}

fn drill(kills: u64, seed: u64) -> Result<(Counts, Vec<String>), Failed> {
    let mut random = Random::new(seed);
    let tokio = tokio::runtime::Runtime::new()?;
    let mut drill = State {
        tokio,
        counts: Counts::default(),
        ledger: ReportLedger::default(),
    };
    let mut home = tempfile::tempdir()?;
    for kill in 1..=kills {
        if kill % KILLS_PER_HOME == 0 {
            drill.counts.close(&std::mem::take(&mut drill.ledger));
            home = tempfile::tempdir()?;
        }
        let is_new = kill % KILLS_PER_HOME < 2;
        let moment = if is_new && random.below(2) == 0 {
            KillMoment::AfterStart(Duration::from_micros(random.below(25_000)))
        } else {
            KillMoment::choose(&mut random)
        };
        let is_checked = kill == kills || !KillMoment::wants_dirty_home(&mut random);
        let child_seed = seed.wrapping_mul(1_000_003).wrapping_add(kill);
        // A home that cannot be opened, or a child that ends without being killed, counts as a
        // violation.
        let violations = kill_once(home.path(), moment, child_seed, &mut drill, is_checked);
        let violations = violations.unwrap_or_else(|error| vec![error.to_string()]);
        if !violations.is_empty() {
            let home_path = home.keep();
            let head = format!(
                "seed {seed}, kill {kill} ({moment:?}), home kept in {}",
                home_path.display()
            );
            drill.counts.close(&drill.ledger);
            return Ok((drill.counts, [head].into_iter().chain(violations).collect()));
        }
        if kill % 100 == 0 {
            println!("{kill} kills …");
        }
    }
    drill.counts.close(&drill.ledger);
    Ok((drill.counts, Vec::new()))
}

fn main() -> Result<ExitCode, Failed> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, home, seed] = arguments.as_slice()
        && flag == "--child"
    {
        let tokio = tokio::runtime::Runtime::new()?;
        return tokio
            .block_on(load::work(Path::new(home), seed.parse()?))
            .map(|()| ExitCode::SUCCESS);
    }
    let kills = arguments.first().map_or(Ok(25), |text| text.parse())?;
    let by_clock = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(1, |since| u64::from(since.subsec_nanos()))
    };
    let seed = arguments
        .get(1)
        .map_or_else(|| Ok(by_clock()), |text| text.parse())?;
    let start = Instant::now();
    let (counts, violations) = drill(kills, seed)?;
    let found = violations.len().saturating_sub(1); // the first line describes the kill
    println!(
        "seed {seed}, {:.1} s: {counts}; violations: {found}",
        start.elapsed().as_secs_f64()
    );
    for violation in &violations {
        println!("VIOLATION: {violation}");
    }
    Ok(if violations.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
