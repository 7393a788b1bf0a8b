//! Repetition: identical tool calls with identical results in a row, identical texts written with
//! calls, and identical answers after a denial of a Stop hook.

/// Text that begins a note to the model about a repetition. The note is no part of the result.
const NOTE_MARK: &str = "\n[note: You have ";
/// Minimum length of a text written with calls that counts, in characters. Models introduce
/// different calls with the same few words.
const MIN_TEXT_CHARS: usize = 80;

/// Calls and answers that the run repeats.
#[derive(Debug, Default, Clone, PartialEq)]
pub(in crate::run::machine) struct Repetition {
    /// Name, arguments and result of the last call.
    last_call: Option<RepeatedCall>,
    /// Turn of the last call: identical calls of one answer count once.
    last_turn: u32,
    /// Number of identical calls in a row, with the last one.
    pub(in crate::run::machine) calls: u32,
    /// Number of those that did not wait.
    pub(in crate::run::machine) fast_calls: u32,
    /// Text of the last answer with calls. Empty if it was short.
    last_text: String,
    /// Number of identical texts written with calls in a row, with the last one.
    pub(in crate::run::machine) texts: u32,
    /// Number of those since a call waited.
    pub(in crate::run::machine) fast_texts: u32,
    /// Text of the last answer without calls.
    last_answer: Option<String>,
    /// Number of identical answers in a row, with the last one.
    pub(in crate::run::machine) answers: u32,
}

/// A tool call with its result.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::run::machine) struct RepeatedCall {
    pub(in crate::run::machine) name: String,
    pub(in crate::run::machine) arguments: String,
    pub(in crate::run::machine) result: String,
}

impl RepeatedCall {
    /// Creates a call from the text of its message, which may end in a note.
    pub(in crate::run::machine) fn new(name: &str, arguments: &str, message: &str) -> Self {
        let result = message
            .rfind(NOTE_MARK)
            .map_or(message, |end| &message[..end]);
        Self {
            name: name.to_owned(),
            arguments: arguments.to_owned(),
            result: result.to_owned(),
        }
    }
}

impl Repetition {
    /// Returns how often a call will have been made in a row, if it is recorded next.
    pub(in crate::run::machine) fn calls_with(&self, call: &RepeatedCall, turn: u32) -> u32 {
        if self.last_call.as_ref() == Some(call) {
            self.calls + u32::from(turn != self.last_turn)
        } else {
            1
        }
    }

    /// Records a call that has ended. `has_waited`: it took long, or waited for a person or a
    /// child, as polling does.
    pub(in crate::run::machine) fn record_call(
        &mut self,
        call: RepeatedCall,
        turn: u32,
        has_waited: bool,
    ) {
        let is_repeated = self.last_call.as_ref() == Some(&call);
        if is_repeated && turn == self.last_turn {
            return;
        }
        self.last_turn = turn;
        if !is_repeated {
            self.calls = 0;
            self.fast_calls = 0;
            self.last_call = Some(call);
        }
        self.calls += 1;
        self.fast_calls += u32::from(!has_waited);
        if has_waited {
            self.fast_texts = 0;
        }
        self.last_answer = None;
        self.answers = 0;
    }

    /// Records the text of an answer with calls.
    pub(in crate::run::machine) fn record_text(&mut self, text: &str) {
        let text = text.trim();
        let is_long = text.chars().nth(MIN_TEXT_CHARS - 1).is_some();
        if !is_long || text != self.last_text {
            self.texts = 0;
            self.fast_texts = 0;
            self.last_text = if is_long {
                text.to_owned()
            } else {
                String::new()
            };
        }
        self.texts += u32::from(is_long);
        self.fast_texts += u32::from(is_long);
    }

    /// Records an answer without calls.
    pub(in crate::run::machine) fn record_answer(&mut self, text: &str) {
        if self.last_answer.as_deref() != Some(text) {
            self.answers = 0;
            self.last_answer = Some(text.to_owned());
        }
        self.answers += 1;
        self.last_call = None;
        self.calls = 0;
        self.fast_calls = 0;
        self.last_text.clear();
        self.texts = 0;
        self.fast_texts = 0;
    }
}

/// Returns the note to the model about a call that it repeats.
pub(in crate::run::machine) fn note(calls: u32) -> String {
    format!(
        "{NOTE_MARK}made this call {calls} times in a row, with the same arguments and the same result. Do something else, or answer with what \
         you know.]"
    )
}

/// Returns the note to the model about a text that it repeats with its calls.
pub(in crate::run::machine) fn text_note(texts: u32) -> String {
    format!(
        "{NOTE_MARK}written the same text {texts} times in a row. Do something else, or answer with what you know.]"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_identical_texts_in_a_row_count() {
        let long = "I will look at the file once more, from its first line, because I may have missed something in it.";
        let mut repetition = Repetition::default();
        for (text, texts) in [
            (long, 1),
            (long, 2),
            ("Next.", 0),
            ("Next.", 0),
            (long, 1),
            ("", 0),
            (long, 1),
            (long, 2),
        ] {
            repetition.record_text(text);
            assert_eq!(
                (repetition.texts, repetition.fast_texts),
                (texts, texts),
                "{text}"
            );
        }
        repetition.record_call(RepeatedCall::new("bash", "{}", "x"), 1, true);
        assert_eq!((repetition.texts, repetition.fast_texts), (2, 0));
        repetition.record_answer("done");
        assert_eq!(repetition.texts, 0);
    }

    #[test]
    fn only_identical_calls_in_a_row_count() {
        let call = |arguments: &str, result: &str| RepeatedCall::new("read", arguments, result);
        let mut repetition = Repetition::default();
        let mut turn = 0;
        for (call, has_waited, calls, fast_calls) in [
            (call("{}", "a"), false, 1, 1),
            (call("{}", "a"), false, 2, 2),
            // A note is no part of the result.
            (call("{}", &format!("a{}", note(3))), false, 3, 3),
            (call("{}", "a"), true, 4, 3),
            (call("{}", "b"), false, 1, 1),
            (call("{\"x\":1}", "b"), false, 1, 1),
            (call("{}", "b"), false, 1, 1),
        ] {
            turn += 1;
            assert_eq!(repetition.calls_with(&call, turn), calls);
            repetition.record_call(call.clone(), turn, has_waited);
            // Another one of the same answer.
            assert_eq!(repetition.calls_with(&call, turn), calls);
            repetition.record_call(call, turn, has_waited);
            assert_eq!(
                (repetition.calls, repetition.fast_calls),
                (calls, fast_calls)
            );
        }
        repetition.record_answer("done");
        repetition.record_answer("done");
        assert_eq!((repetition.answers, repetition.calls), (2, 0));
        repetition.record_answer("finished");
        assert_eq!(repetition.answers, 1);
    }
}
