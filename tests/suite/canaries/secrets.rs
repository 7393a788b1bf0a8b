//! The canaries: secrets of an environment, and where they are looked for.
//!
//! A canary counts as found in each of its forms: as it is, as it stands in JSON and in JSON within JSON, and as it
//! stands in an address; and as found is counted any piece of a form of so many bytes, for a text that is cut in the
//! middle of a secret still tells a part of it.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use soong::Environment;

/// Longest piece of a secret that may be told, in bytes.
const PIECE_BYTES: usize = 12;

/// The secrets by the names of their variables. The last but one and the one before it are secrets only since the
/// configuration names them.
pub const SECRETS: [(&str, &str); 6] = [
    ("SERVICE_TOKEN", "tok\"en\\canary/00%41+x'y z"),
    ("DB_PASSWORD", "pässwörd-канарейка-9f8e7d"),
    ("OPENAI_API_KEY", "sk-canary-0123456789abcdef"),
    ("TICKETS_AUTHORIZATION", "Basic Y2FuYXJ5OnRpY2tldHM="),
    ("SEARCH_WORD", "search-canary-5e5e5e5e5e5e"),
    ("SIGNING_KEY", "-----BEGIN-----\nCANARYLINEONE0123456789\nCANARYLINETWO9876543210\n-----END-----"),
];
/// No secret by its name: it must be found, or nothing was looked at.
pub const CONTROL: (&str, &str) = ("PLAIN_NOTE", "control-canary-4242424242");

/// All of them in a text, the control too.
pub fn blurt() -> String {
    let said = SECRETS.iter().chain([&CONTROL]).map(|(name, value)| format!("{name} is <{value}>."));
    // Not what stands in JSON within JSON: in arguments that would nest deeper than anybody looks.
    let [_, once, _, others @ ..] = [0, 1, 2, 3, 4, 5, 6];
    let ways = [once].into_iter().chain(others);
    let written =
        ways.flat_map(|way| SECRETS.map(|(_, value)| forms(value)[way].clone())).collect::<Vec<_>>().join(" ");
    said.collect::<Vec<_>>().join(" ") + " Or: " + &written
}

/// An environment that holds them.
pub fn environment(more: &[(&str, &str)]) -> Environment {
    Environment::of(SECRETS.iter().chain([&CONTROL]).chain(more).copied())
}

/// Looks for canaries, and counts what was looked at.
#[derive(Default)]
pub struct Search {
    /// Pieces of secrets, and whose they are.
    pieces: HashMap<Vec<u8>, &'static str>,
    /// Their first two bytes: most of what is looked at begins in another way.
    begins: Vec<bool>,
    places: Vec<(String, usize)>,
    /// What was found: where, whose, and what stands around it.
    found: Vec<String>,
    controls: usize,
}

impl Search {
    pub fn new() -> Self {
        let mut pieces = HashMap::new();
        for (name, value) in SECRETS {
            // What stands around a key is known to everybody.
            let texts = value.lines().filter(|line| !line.starts_with("-----"));
            for form in texts.flat_map(forms) {
                for piece in form.as_bytes().windows(PIECE_BYTES) {
                    pieces.insert(piece.to_vec(), name);
                }
            }
        }
        let mut begins = vec![false; 256 * 256];
        pieces.keys().for_each(|piece: &Vec<u8>| begins[usize::from(piece[0]) * 256 + usize::from(piece[1])] = true);
        Self { pieces, begins, ..Self::default() }
    }

    /// Looks at a text.
    pub fn look(&mut self, place: &str, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        match self.places.iter_mut().find(|(known, _)| known == place) {
            Some((_, size)) => *size += bytes.len(),
            None => self.places.push((place.to_owned(), bytes.len())),
        }
        let control = CONTROL.1.as_bytes();
        let mut at = 0;
        while at + PIECE_BYTES <= bytes.len() {
            self.controls += usize::from(bytes[at] == control[0] && bytes[at..].starts_with(control));
            let may_begin = self.begins[usize::from(bytes[at]) * 256 + usize::from(bytes[at + 1])];
            let Some(name) = may_begin.then(|| self.pieces.get(&bytes[at..at + PIECE_BYTES])).flatten() else {
                at += 1;
                continue;
            };
            let around = &bytes[at.saturating_sub(80)..bytes.len().min(at + 60)];
            self.found.push(format!("{name} in {place}: …{}…", String::from_utf8_lossy(around).escape_debug()));
            at += 200;
        }
    }

    /// Looks at every file below a folder.
    pub fn look_below(&mut self, place: &str, folder: &Path) {
        for path in files_below(folder) {
            let kind = path.extension().map_or("", |ending| ending.to_str().unwrap_or(""));
            self.look(&format!("{place} (.{kind})"), fs::read(&path).unwrap());
        }
    }

    /// Ends the search: nothing was found but the control.
    #[track_caller]
    pub fn end(self, least_places: usize) {
        let bytes: usize = self.places.iter().map(|(_, size)| size).sum();
        let places: Vec<String> = self.places.iter().map(|(place, size)| format!("{place}: {size}")).collect();
        let looked = format!("{bytes} bytes in {} places: {}", places.len(), places.join(", "));
        assert!(self.found.is_empty(), "{} pieces of secrets in {looked}\n{}", self.found.len(), self.found.join("\n"));
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

/// The forms of a text.
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
    let in_code = |at: usize| address[..at].ends_with('%') || address[..at.saturating_sub(1)].ends_with('%');
    let lower = address.char_indices().map(|(at, c)| if in_code(at) { c.to_ascii_lowercase() } else { c }).collect();
    let ascii = |c: char| match c.is_ascii() {
        true => c.to_string(),
        false => format!("\\u{:04x}", u32::from(c)),
    };
    let ascii = once.chars().map(ascii).collect();
    let with_slashes = once.replace('/', "\\/");
    [text.to_owned(), once, twice, address, lower, ascii, with_slashes]
}
