//! Measures the cost of sub-agents: start, memory, cancelling a tree of them, and leaks after many
//! of them.
//!
//! `cargo run --release -p soong-bench --bin bench_sub_agents [SCENARIO=all] [N] [TRIES=20]`, in the
//! current folder (the disk under test; everything written there is removed again).
//!
//! SCENARIO:
//! - `spawn`: N=200 one after the other.
//! - `queued`, `working`, `waiting`, `idle`: memory of N=10000.
//! - `cancel`: cancels a tree of N=1000, TRIES times.
//! - `cancel_queued`: cancels N=10000 that wait for a slot, TRIES=3 times.
//! - `cycles`: N=10000 that start and end.
//! - `all`: every scenario, each in a separate process.
//!
//! The models answer immediately or never. All writes are durable (`full`). Each figure is printed
//! with its goal, and missed goals are marked. A violated invariant is an error.
//!
//! Elsewhere: fan-outs requested by a model (`bench_orchestration`).

#![allow(clippy::print_stdout, reason = "a measurement shows its result")]

#[path = "bench_sub_agents/world.rs"]
mod world;

use std::time::{Duration, Instant};

use futures::future::try_join_all;
use soong::{ChildSpec, RunHandle, protocol::RunStatus};
use world::{BenchRuntime, Failed, percentile, resident_bytes};

const KIB: f64 = 1024.0;
const MIB: f64 = 1024.0 * KIB;
/// Environment variable with the number of arenas of glibc's allocator.
const ARENAS: &str = "MALLOC_ARENA_MAX";
/// Children per run in `cycles`. The data that a run keeps about its children is freed with the
/// run.
const PER_PARENT: usize = 100;
/// Number of children of `idle` that run at the same time, because an allocator keeps the peak
/// memory.
const AT_ONCE: usize = 500;
/// Number of children that run before memory is measured, so that the caches of the store are full.
const WARM: usize = 5_000;

/// Prints a figure, and whether it meets its goal.
fn print(what: &str, value: f64, unit: &str, goal: Option<f64>) {
    let goal = goal.map_or_else(String::new, |goal| {
        let verdict = if value <= goal { "" } else { "  MISSED" };
        format!("goal <= {goal} {unit}{verdict}")
    });
    println!("{what:<58} {value:>9.2} {unit:<4} {goal}");
}

fn print_percentiles(what: &str, times: &mut [Duration], goal: Option<f64>) {
    print(&format!("{what}, p50"), percentile(times, 0.5), "ms", None);
    print(&format!("{what}, p99"), percentile(times, 0.99), "ms", goal);
}

fn ensure(holds: bool, what: impl Into<String>) -> Result<(), Failed> {
    if holds {
        Ok(())
    } else {
        Err(what.into().into())
    }
}

/// Ends a driven run, and checks that no run is still alive.
async fn end(world: &BenchRuntime, parent: &RunHandle) -> Result<(), Failed> {
    parent.finish("all done")?;
    parent.wait().await?;
    ensure(
        world.runtime.info().live_runs() == 0,
        "a run is still alive after its parent ended",
    )
}

/// Measures the time from the program's call to the model call, for one child after the other.
async fn spawn(count: usize) -> Result<(), Failed> {
    let world = BenchRuntime::open(16).await?;
    let parent = world.parent().await?;
    let mut durable = Vec::new();
    let mut first_request_delays = Vec::new();
    for index in 0..count + 10 {
        let start = Instant::now();
        let child = parent.spawn(ChildSpec::new(format!("{index} say"))).await?;
        let is_durable = start.elapsed();
        child.wait().await?;
        // The first children initialize state that is reused.
        if index >= 10 {
            durable.push(is_durable);
            first_request_delays.push(world.model.last_call_after(start));
        }
    }
    end(&world, &parent).await?;
    print_percentiles(
        &format!("{count} spawns: until the child is durable"),
        &mut durable,
        None,
    );
    print_percentiles(
        &format!("{count} spawns: until its first request"),
        &mut first_request_delays,
        None,
    );
    world.close().await
}

async fn warm_up(world: &BenchRuntime) -> Result<(), Failed> {
    for _ in 0..WARM / AT_ONCE {
        let parent = world.parent().await?;
        let children = world.spawn(&parent, AT_ONCE, "say").await?;
        try_join_all(children.iter().map(RunHandle::wait)).await?;
        end(world, &parent).await?;
    }
    Ok(())
}

/// Measures the memory of children that wait for a slot, work, or wait for their own working child.
async fn memory(scenario: &str, count: usize) -> Result<(), Failed> {
    let (slots, task, in_flight, goal) = match scenario {
        "queued" => (1, "hold", 1, 2048.0 * MIB / 100_000.0 / KIB),
        "working" => (count, "hold", count, f64::INFINITY),
        _ => (count, "split", count, f64::INFINITY),
    };
    let world = BenchRuntime::open(slots).await?;
    warm_up(&world).await?;
    let parent = world.parent().await?;
    let before = resident_bytes()?;
    drop(world.spawn(&parent, count, task).await?);
    world.model.until_in_flight(in_flight).await;
    let each = (resident_bytes()? - before) / count as f64 / KIB;
    let goal = goal.is_finite().then_some(goal);
    let what = match scenario {
        "queued" => "a queued child (100000 in 2 GiB)",
        "working" => "a child in a model call",
        _ => "a child that waits for its own child in a model call",
    };
    print(
        &format!("{count} at once: memory of {what}"),
        each,
        "KiB",
        goal,
    );
    world.close().await
}

/// Cancels a tree whose runs are all in a model call. Before that, cancels a single child of it.
async fn cancel(count: usize, tries: usize) -> Result<(), Failed> {
    let world = BenchRuntime::open(count).await?;
    let mut silent = Vec::new();
    let mut durable = Vec::new();
    for _ in 0..tries {
        let parent = world.parent().await?;
        let children = world.spawn(&parent, count, "hold").await?;
        world.model.until_in_flight(count).await;
        children[0].cancel().await?;
        ensure(
            children[0].wait().await?.status == RunStatus::Cancelled,
            "a cancelled child did not end as cancelled",
        )?;
        let others = world.runtime.info().live_runs();
        ensure(
            world.model.in_flight() == count - 1 && others == count,
            "a sibling ended with a cancelled child",
        )?;
        let start = Instant::now();
        let calls = world.model.calls();
        parent.cancel().await?;
        durable.push(start.elapsed());
        silent.push(world.model.last_effect_after(start));
        let rows = parent.children().await?;
        ensure(
            rows.iter().all(|run| run.status == RunStatus::Cancelled),
            "a child's end is not recorded",
        )?;
        ensure(
            world.model.in_flight() == 0 && world.model.calls() == calls,
            "a model request follows a cancel",
        )?;
        ensure(
            world.runtime.info().live_runs() == 0,
            "a run is alive behind a cancel",
        )?;
    }
    print_percentiles(
        &format!("cancel {count} children: until the last effect"),
        &mut silent,
        Some(100.0),
    );
    print_percentiles(
        &format!("cancel {count} children: until all ends are durable"),
        &mut durable,
        Some(500.0),
    );
    world.close().await
}

/// Measures memory growth while children start and end; growth is a leak.
async fn cycles(count: usize) -> Result<(), Failed> {
    let world = BenchRuntime::open(16).await?;
    let some = async |children: usize| -> Result<(), Failed> {
        for _ in 0..children / PER_PARENT {
            let parent = world.parent().await?;
            let spawned = world.spawn(&parent, PER_PARENT, "say").await?;
            try_join_all(spawned.iter().map(RunHandle::wait)).await?;
            end(&world, &parent).await?;
        }
        world.until_idle().await;
        Ok(())
    };
    // The page cache of the writer fills up first (32 MiB).
    some(count).await?;
    let before = resident_bytes()?;
    some(count).await?;
    print(
        &format!("{count} children started and ended: growth"),
        (resident_bytes()? - before) / MIB,
        "MiB",
        Some(1.0),
    );
    let left = world.permits_in_use();
    ensure(
        left.is_empty(),
        format!("permits or slots were not returned: {left:?}"),
    )?;
    world.close().await
}

/// Cancels a tree of children of which few are active while the others wait for a slot.
async fn cancel_queued(count: usize, tries: usize) -> Result<(), Failed> {
    const SLOTS: usize = 16;
    let world = BenchRuntime::open(SLOTS).await?;
    let mut durable = Vec::new();
    for _ in 0..tries {
        let parent = world.parent().await?;
        drop(world.spawn(&parent, count, "hold").await?);
        world.model.until_in_flight(SLOTS).await;
        let start = Instant::now();
        let calls = world.model.calls();
        parent.cancel().await?;
        durable.push(start.elapsed());
        let rows = parent.children().await?;
        ensure(
            rows.iter().all(|run| run.status == RunStatus::Cancelled),
            "a child's end is not recorded",
        )?;
        ensure(
            world.model.in_flight() == 0 && world.model.calls() == calls,
            "a model request follows a cancel",
        )?;
        ensure(
            world.runtime.info().live_runs() == 0,
            "a run is alive behind a cancel",
        )?;
    }
    print_percentiles(
        &format!("cancel {count} children, most of them queued: all durable"),
        &mut durable,
        None,
    );
    world.close().await
}

/// Measures the memory of children that wait for a user and have been passivated.
async fn idle(count: usize) -> Result<(), Failed> {
    let world = BenchRuntime::open(AT_ONCE).await?;
    warm_up(&world).await?;
    let parent = world.parent().await?;
    drop(world.spawn(&parent, AT_ONCE, "ask").await?);
    world.until_passive(AT_ONCE).await;
    let before = resident_bytes()?;
    for index in 1..=count.div_ceil(AT_ONCE) {
        drop(world.spawn(&parent, AT_ONCE, "ask").await?);
        world.until_passive((index + 1) * AT_ONCE).await;
    }
    let count = count.next_multiple_of(AT_ONCE);
    let each = (resident_bytes()? - before) / count as f64 / KIB;
    print(
        &format!("{count} at once: memory of a child that waits for a user"),
        each,
        "KiB",
        Some(16.0),
    );
    world.close().await
}

/// Runs a scenario in a separate process.
fn run_in_process(arguments: &[String]) -> Result<(), Failed> {
    let mut process = std::process::Command::new(std::env::current_exe()?);
    if arguments
        .iter()
        .any(|scenario| ["idle", "cycles"].contains(&scenario.as_str()))
    {
        // For scenarios with many short-lived allocations: with one arena per thread, glibc's heap
        // would grow by the free memory in the other arenas.
        process.env(ARENAS, "1");
    }
    let done = process.args(arguments).status()?;
    ensure(done.success(), format!("{arguments:?}: {done}"))
}

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let scenario = arguments.first().map_or("all", String::as_str);
    let number = |index: usize, default| {
        arguments
            .get(index)
            .map_or(Ok(default), |text| text.parse())
    };
    match scenario {
        "all" => {
            // Separate processes, so that memory kept by the allocator does not affect the next
            // scenario.
            let scenarios = [
                "spawn",
                "queued",
                "working",
                "waiting",
                "idle",
                "cancel",
                "cancel_queued",
                "cycles",
            ];
            scenarios
                .iter()
                .try_for_each(|scenario| run_in_process(&[(*scenario).to_owned()]))
        }
        "idle" | "cycles" if std::env::var_os(ARENAS).is_none() => run_in_process(&arguments),
        "spawn" => spawn(number(1, 200)?).await,
        "queued" | "working" | "waiting" => memory(scenario, number(1, 10_000)?).await,
        "idle" => idle(number(1, 10_000)?).await,
        "cancel" => cancel(number(1, 1_000)?, number(2, 20)?).await,
        "cancel_queued" => cancel_queued(number(1, 10_000)?, number(2, 3)?).await,
        "cycles" => cycles(number(1, 10_000)?).await,
        other => Err(format!("unknown scenario {other:?}: see the header of this program").into()),
    }
}
