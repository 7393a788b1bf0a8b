//! Redacting the beginning of a secret whose end was cut off before anybody could know it.
//!
//! Tools and providers shorten what they tell: a long line, a page, an error. Where the cut goes through a secret, its
//! first part stands right before the mark of the cut, or ends the text. Pure. Not here: whole secrets, and ends of
//! secrets whose beginning was cut off.

use aho_corasick::{AhoCorasick, MatchKind};

use super::{Known, Redactor};

/// Shortest beginning that counts, in bytes: shorter ones stand in ordinary words.
const LEAST_BYTES: usize = 12;
/// What stands where a text was cut.
const CUTS: [&str; 3] = ["…", "\n[cut", "\n[left out"];

/// Returns what finds beginnings of these forms; `None` = there are none.
pub(super) fn finder(forms: &[String]) -> Option<AhoCorasick> {
    let beginnings = forms.iter().filter(|form| form.len() > LEAST_BYTES).map(|form| beginning(form));
    AhoCorasick::builder().match_kind(MatchKind::LeftmostFirst).build(beginnings).ok()
}

/// Returns the shortest beginning of a form that counts.
fn beginning(form: &str) -> &str {
    &form[..form.ceil_char_boundary(LEAST_BYTES)]
}

impl Redactor {
    /// Takes out the beginnings of secrets that were cut off. Whole ones are out already.
    pub(crate) fn redact_beginnings(&self, text: &mut String) {
        let Some(known) = &self.known else { return };
        let Some(finder) = &known.beginnings else { return };
        let (mut clean, mut done) = (String::new(), 0);
        for found in finder.find_iter(text.as_str()) {
            if found.start() < done {
                continue;
            }
            let rest = &text[found.start()..];
            if let Some((length, mark)) = known.cut_off(rest) {
                clean.push_str(&text[done..found.start()]);
                clean.push_str(mark);
                done = found.start() + length;
            }
        }
        if done > 0 {
            clean.push_str(&text[done..]);
            *text = clean;
        }
    }
}

impl Known {
    /// Returns how much of a secret a text begins with, and what stands for it; `None` where that is not cut off.
    fn cut_off(&self, text: &str) -> Option<(usize, &str)> {
        let alike = |form: &String| text.bytes().zip(form.bytes()).take_while(|(a, b)| a == b).count();
        let lengths = self.forms.iter().zip(&self.marks).map(|(form, mark)| (alike(form), mark.as_str()));
        let (length, mark) = lengths.max_by_key(|(length, _)| *length)?;
        let length = text.floor_char_boundary(length);
        let behind = &text[length..];
        (behind.is_empty() || CUTS.iter().any(|cut| behind.starts_with(cut))).then_some((length, mark))
    }
}
