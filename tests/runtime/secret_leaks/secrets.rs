//! Canaries: the secrets of the environment, and the search for them.
//!
//! A canary counts as found in each of its forms: plain, in JSON, in JSON nested in JSON, and
//! percent-encoded in a URL. Any piece of a form with `PIECE_BYTES` bytes also counts, because a
//! text that is cut in the middle of a secret still discloses a part of it.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use soong::Environment;

/// Length of the shortest piece of a secret that counts as a leak, in bytes.
const PIECE_BYTES: usize = 12;

/// Secrets by variable name. `TICKETS_AUTHORIZATION` and `SEARCH_WORD` are secrets only because the
/// configuration names them.
pub const SECRETS: [(&str, &str); 6] = [
    ("SERVICE_TOKEN", "tok\"en\\canary/00%41+x'y z"),
    ("DB_PASSWORD", "pässwörd-канарейка-9f8e7d"),
    ("OPENAI_API_KEY", "sk-canary-0123456789abcdef"),
    ("TICKETS_AUTHORIZATION", "Basic Y2FuYXJ5OnRpY2tldHM="),
    ("SEARCH_WORD", "search-canary-5e5e5e5e5e5e"),
    (
        "SIGNING_KEY",
        "-----BEGIN-----\nCANARYLINEONE0123456789\nCANARYLINETWO9876543210\n-----END-----",
    ),
];
/// Value that is not secret, according to the name of its variable. A search that does not find it
/// has searched nothing.
pub const CONTROL: (&str, &str) = ("PLAIN_NOTE", "control-canary-4242424242");

/// Returns a text with all secrets, in several forms, and the control value.
pub fn blurt() -> String {
    let sentences = SECRETS
        .iter()
        .chain([&CONTROL])
        .map(|(name, value)| format!("{name} is <{value}>."));
    // The form for JSON nested in JSON is left out: in tool arguments, it would be nested deeper
    // than redaction and this search look.
    let [_, once, _, others @ ..] = [0, 1, 2, 3, 4, 5, 6];
    let ways = [once].into_iter().chain(others);
    let written = ways
        .flat_map(|way| SECRETS.map(|(_, value)| forms(value)[way].clone()))
        .collect::<Vec<_>>()
        .join(" ");
    sentences.collect::<Vec<_>>().join(" ") + " Or: " + &written
}

/// Returns an environment with all secrets, the control value and `more`.
pub fn environment(more: &[(&str, &str)]) -> Environment {
    Environment::of(SECRETS.iter().chain([&CONTROL]).chain(more).copied())
}

/// Search for canaries. It also counts the searched bytes.
#[derive(Default)]
pub struct Search {
    /// Pieces of secrets, each with the variable name of its secret.
    pieces: HashMap<Vec<u8>, &'static str>,
    /// Whether any piece begins with a pair of bytes, indexed by the pair. Rules out most positions
    /// quickly.
    first_pairs: Vec<bool>,
    places: Vec<(String, usize)>,
    /// Matches: variable name, place and surrounding text.
    found: Vec<String>,
    controls: usize,
}

impl Search {
    pub fn new() -> Self {
        let mut pieces = HashMap::new();
        for (name, value) in SECRETS {
            // The delimiter lines of a key are public.
            let texts = value.lines().filter(|line| !line.starts_with("-----"));
            for form in texts.flat_map(forms) {
                for piece in form.as_bytes().windows(PIECE_BYTES) {
                    pieces.insert(piece.to_vec(), name);
                }
            }
        }
        let mut first_pairs = vec![false; 256 * 256];
        pieces.keys().for_each(|piece: &Vec<u8>| {
            first_pairs[usize::from(piece[0]) * 256 + usize::from(piece[1])] = true
        });
        Self {
            pieces,
            first_pairs,
            ..Self::default()
        }
    }

    /// Searches a text.
    pub fn look(&mut self, location: &str, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        match self.places.iter_mut().find(|(known, _)| known == location) {
            Some((_, size)) => *size += bytes.len(),
            None => self.places.push((location.to_owned(), bytes.len())),
        }
        let control = CONTROL.1.as_bytes();
        let mut at = 0;
        while at + PIECE_BYTES <= bytes.len() {
            self.controls +=
                usize::from(bytes[at] == control[0] && bytes[at..].starts_with(control));
            let may_begin =
                self.first_pairs[usize::from(bytes[at]) * 256 + usize::from(bytes[at + 1])];
            let Some(name) = may_begin
                .then(|| self.pieces.get(&bytes[at..at + PIECE_BYTES]))
                .flatten()
            else {
                at += 1;
                continue;
            };
            let around = &bytes[at.saturating_sub(80)..bytes.len().min(at + 60)];
            self.found.push(format!(
                "{name} in {location}: …{}…",
                String::from_utf8_lossy(around).escape_debug()
            ));
            at += 200;
        }
    }

    /// Searches every file below a folder.
    pub fn look_below(&mut self, location: &str, folder: &Path) {
        for path in files_below(folder) {
            let kind = path
                .extension()
                .map_or("", |ending| ending.to_str().unwrap_or(""));
            self.look(&format!("{location} (.{kind})"), fs::read(&path).unwrap());
        }
    }

    /// Checks that the search found the control value and no secret, in at least `least_places`
    /// places.
    #[track_caller]
    pub fn end(self, least_places: usize) {
        let bytes: usize = self.places.iter().map(|(_, size)| size).sum();
        let places: Vec<String> = self
            .places
            .iter()
            .map(|(location, size)| format!("{location}: {size}"))
            .collect();
        let looked = format!(
            "{bytes} bytes in {} places: {}",
            places.len(),
            places.join(", ")
        );
        assert!(
            self.found.is_empty(),
            "{} pieces of secrets in {looked}\n{}",
            self.found.len(),
            self.found.join("\n")
        );
        assert!(self.controls > 0, "the control was not found: {looked}");
        assert!(places.len() >= least_places, "{looked}");
        println!("no canary in {looked}; the control {} times", self.controls);
    }
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.symlink_metadata().unwrap() {
            metadata if metadata.is_dir() => files.extend(files_below(&path)),
            metadata if metadata.is_file() => files.push(path),
            _ => {}
        }
    }
    files
}

/// Returns the forms of a text.
fn forms(text: &str) -> [String; 7] {
    let in_json = |text: &str| {
        let json = serde_json::to_string(text).unwrap();
        json[1..json.len() - 1].to_owned()
    };
    let all = percent_encoding::NON_ALPHANUMERIC;
    let once = in_json(text);
    let twice = in_json(&once);
    let address = percent_encoding::utf8_percent_encode(text, all).to_string();
    let address = address.replace("%2D", "-");
    let in_code =
        |at: usize| address[..at].ends_with('%') || address[..at.saturating_sub(1)].ends_with('%');
    let lower = address
        .char_indices()
        .map(|(at, c)| {
            if in_code(at) {
                c.to_ascii_lowercase()
            } else {
                c
            }
        })
        .collect();
    let ascii = |c: char| {
        if c.is_ascii() {
            c.to_string()
        } else {
            format!("\\u{:04x}", u32::from(c))
        }
    };
    let ascii = once.chars().map(ascii).collect();
    let with_slashes = once.replace('/', "\\/");
    [
        text.to_owned(),
        once,
        twice,
        address,
        lower,
        ascii,
        with_slashes,
    ]
}
