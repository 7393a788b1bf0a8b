//! Measures the text matcher on 1 MB of text.
//!
//! `cargo run --release -p soong-bench --no-default-features --bin bench_matcher [CONTENT OLD]`. If
//! two files are given, the second is searched for in the first instead. Prints the best of ten
//! runs; each is stopped after 500 ms, the limit that the product uses.

#![allow(clippy::print_stdout, reason = "a measurement shows its result")]

use std::time::{Duration, Instant};

use soong::artifact::matcher::find;

const SIZE: usize = 1_000_000;
const OLD_CHARS: usize = 2_000;
const LIMIT: Duration = Duration::from_millis(500);
const RUNS: usize = 10;

const ENGLISH: &str = "the of and to in a is that for it as was with be by on not he his but at are this have from or \
    had an they which one you were all her she there would their we him been has when who will no more if out so what \
    up said about than into them can only other new some could time these two may then do first any my now such like \
    our over man me even most made after also did many before must through back years where much your way well down \
    should because each just those people how too little state good very make world still own see men work long get \
    here between both life being under never day same another know while last might us great old year off come since \
    against go came right used take three";
const CHINESE: &str = "的一是了我不人在他有这个上们来到时大地为子中你说生国年着就那和要她出也得里后自以会家可下而过天去能对小多\
    然于心学么之都好看起发当没成只如事把还用第样道想作种开美总从无情己面最女但现前些所同日手又行意动方期它头经长儿回位分爱\
    老因很给名法间斯知世什两次使身者被高已亲其进此话常与活正感，。，。";
const SOURCE: &str = "    let mut value = self.items.get(index); fn pub struct impl for if else match return Ok(()) Err(error) \
    => { } Some(item) None Vec<String> &str -> Result<(), Error> = == != ( ) ; , . :: use std::collections::HashMap; \
    #[derive(Debug, Clone)] // what this does /// Returns the name. name: String, count: usize, assert_eq!(left, right);";

/// A small pseudorandom number generator.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    /// Returns small numbers more often, like the frequent words of a language.
    fn skewed_below(&mut self, end: usize) -> usize {
        self.below(end).min(self.below(end))
    }
}

fn english(seed: u64, bytes: usize) -> String {
    words(ENGLISH, seed, bytes, |dice| {
        if dice.below(12) == 0 { ".\n" } else { " " }
    })
}

fn source(seed: u64, bytes: usize) -> String {
    words(SOURCE, seed, bytes, |dice| {
        if dice.below(7) == 0 {
            "\n        "
        } else {
            " "
        }
    })
}

fn words(
    list: &str,
    seed: u64,
    bytes: usize,
    space: impl Fn(&mut Random) -> &'static str,
) -> String {
    let list: Vec<&str> = list.split_whitespace().collect();
    let mut dice = Random(seed);
    let mut text = String::new();
    while text.len() < bytes {
        text.push_str(list[dice.skewed_below(list.len())]);
        text.push_str(space(&mut dice));
    }
    text
}

fn chinese(seed: u64, bytes: usize) -> String {
    let list: Vec<char> = CHINESE.chars().filter(|ch| !ch.is_whitespace()).collect();
    let mut dice = Random(seed);
    let mut text = String::new();
    while text.len() < bytes {
        text.push(list[dice.skewed_below(list.len())]);
    }
    text
}

fn start(text: &str) -> String {
    text.chars().take(OLD_CHARS).collect()
}

/// Returns characters from the middle of the text.
fn middle(text: &str) -> String {
    text.chars()
        .skip(text.chars().count() / 2)
        .take(OLD_CHARS)
        .collect()
}

/// Replaces every tenth character.
fn edited(text: &str) -> String {
    text.chars()
        .enumerate()
        .map(|(at, ch)| if at % 10 == 5 { '#' } else { ch })
        .collect()
}

fn measure(name: &str, content: &str, old: &str) {
    let mut best = Duration::MAX;
    let mut answer = String::new();
    for _ in 0..RUNS {
        let start = Instant::now();
        let result = find(content, old, &mut || start.elapsed() >= LIMIT);
        best = best.min(start.elapsed());
        answer = match result {
            Ok(found) => format!(
                "{} {:.3} at {:?}",
                found.layer, found.similarity, found.range
            ),
            Err(error) => error.code().to_string(),
        };
    }
    println!("{name:<44} {:>8.2} ms  {answer}", best.as_secs_f64() * 1e3);
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    if let [content, old] = paths.as_slice() {
        measure(
            "files",
            &std::fs::read_to_string(content)?,
            &std::fs::read_to_string(old)?,
        );
        return Ok(());
    }
    let prose = english(1, SIZE);
    let cjk = chinese(1, SIZE);
    let code = source(1, SIZE);
    measure(
        "English, no match",
        &prose,
        &start(&english(2, 4 * OLD_CHARS)),
    );
    measure(
        "Chinese, no match",
        &cjk,
        &start(&chinese(2, 4 * OLD_CHARS)),
    );
    measure(
        "source code, no match",
        &code,
        &start(&source(2, 4 * OLD_CHARS)),
    );
    let half = middle(&prose)
        .replace(['e', 't'], "#")
        .replace(['o', 'a'], "$");
    measure("English, a third of it edited, no match", &prose, &half);
    measure("English, exact", &prose, &middle(&prose));
    measure("Chinese, exact", &cjk, &middle(&cjk));
    let dashed = prose.replace(" the ", "\u{00A0}the ").replace(".\n", "—\n");
    measure(
        "English, normalised",
        &dashed,
        &middle(&prose).replace(".\n", "-\n"),
    );
    let wide = cjk.replace('了', "，");
    measure(
        "Chinese, normalised",
        &wide,
        &middle(&wide).replace('，', ","),
    );
    let greek: String = prose
        .chars()
        .map(|ch| {
            if ch == 't' {
                'τ'
            } else if ch == 'e' {
                'έ'
            } else {
                ch
            }
        })
        .collect();
    measure(
        "Latin and Greek, normalised",
        &greek,
        &middle(&greek).replace(' ', "\u{A0}"),
    );
    measure("English, 10 % edits", &prose, &edited(&middle(&prose)));
    measure("Chinese, 10 % edits", &cjk, &edited(&middle(&cjk)));
    measure("source code, 10 % edits", &code, &edited(&middle(&code)));

    let same = "a".repeat(SIZE);
    measure(
        "aaaa… for aaaa…b, 2 000 characters",
        &same,
        &format!("{}b", "a".repeat(OLD_CHARS - 1)),
    );
    measure(
        "aaaa… for aaaa…b, 20 characters",
        &same,
        &format!("{}b", "a".repeat(19)),
    );
    measure(
        "aaaa… for a tenth of b",
        &same,
        &edited(&"a".repeat(OLD_CHARS)),
    );
    measure(
        "abab… for aabb…",
        &"ab".repeat(SIZE / 2),
        &"aabb".repeat(OLD_CHARS / 4),
    );
    let marks: String = (0..SIZE / 2)
        .map(|at| if at % 3 == 0 { '\u{0323}' } else { '\u{0301}' })
        .collect();
    measure("marks only", &marks, &start(&english(2, 4 * OLD_CHARS)));
    measure(
        "ligatures of 18 characters only",
        &"\u{FDFA}".repeat(SIZE / 3),
        &start(&english(2, 4 * OLD_CHARS)),
    );
    measure(
        "an old text of 100 000 characters",
        &prose,
        &english(2, 50 * OLD_CHARS),
    );
    Ok(())
}
