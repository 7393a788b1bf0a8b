//! Measures reading, finding and adding experiences.
//!
//! `cargo run --release -p soong-bench --bin bench_memory [EXPERIENCES]`, by default 10 000, in a
//! temporary folder. Each figure is the median of 31 rounds. "Read" parses the whole file, as after
//! each change. "Found" searches for two intents and two states, each of which about one experience
//! in a hundred has. "Added" writes one more experience, including fsync.

#![allow(clippy::print_stdout, reason = "a measurement shows its result")]

use std::{
    fmt::Write as _,
    hint::black_box,
    time::{Duration, Instant},
};

use soong::{
    Config, Environment,
    memory::{Changes, ExperienceText, MemoryFile, NewExperience, matching, normalize_tags},
    protocol::{Tags, Timestamp},
};

const ROUNDS: usize = 31;

fn median(mut once: impl FnMut(usize)) -> Duration {
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|round| {
            let start = Instant::now();
            once(round);
            start.elapsed()
        })
        .collect();
    times.sort();
    times[ROUNDS / 2]
}

fn book(count: usize) -> String {
    let mut text = String::from("# Experiences\n");
    for n in 0..count {
        let _ = write!(
            text,
            "\n---\nid: ex_{n:05}\ntrace_id: 01a2028f-f566-7716-a136-{n:012}\ncategory: tool_usage\ntags:\n  intent: \
             [intent-{}, intent-{}]\n  state: [state-{}, state-{}]\nmetrics:\n  helpful: {}\n  harmful: {}\ncreated_at: \
             2026-11-22T08:00:00.000Z\n---\nWhat was learned the {n}th time: run the failing test alone before the others.\n",
            n % 100,
            n % 97,
            n % 100,
            n % 89,
            n % 13,
            n % 5
        );
    }
    text
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count: usize = std::env::args()
        .nth(1)
        .map_or(Ok(10_000), |text| text.parse())?;
    let folder = tempfile::tempdir()?;
    let file = MemoryFile::of_home(folder.path(), &Config::default(), &Environment::default());
    std::fs::create_dir_all(folder.path().join("memory"))?;
    let text = book(count);
    std::fs::write(file.path(), &text)?;
    println!("{count} experiences, {} KiB", text.len() / 1024);

    let read = median(|_| drop(black_box(ExperienceText::read(text.clone().into_bytes()))));
    println!("read     {:8.2} ms", read.as_secs_f64() * 1e3);
    let texts = |words: [&str; 2]| words.map(str::to_owned).to_vec();
    let wanted = normalize_tags(
        &texts(["intent-7", "intent-11"]),
        &texts(["state-7", "state-13"]),
    );
    let found = median(|_| {
        let book = file.read().unwrap_or_default();
        black_box(matching(book.experiences(), &wanted, 5).len());
    });
    println!("found    {:8.2} ms", found.as_secs_f64() * 1e3);
    let added = median(|round| {
        let text = format!("Something new, the {round}th.");
        let new = vec![NewExperience {
            category: "other".to_owned(),
            tags: Tags::default(),
            text,
        }];
        let reflection = format!("bench-{round}");
        let at = Timestamp::from_millis(0);
        let changes = Changes {
            reflection,
            trace_id: None,
            at,
            new,
            rated: Vec::new(),
        };
        black_box(
            file.change(&changes)
                .map(|added| added.len())
                .unwrap_or_default(),
        );
    });
    println!("added    {:8.2} ms", added.as_secs_f64() * 1e3);
    Ok(())
}
