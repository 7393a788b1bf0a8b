//! Shows the progress of a run: a live display, plain lines, or events as JSON.
//!
//! Elsewhere: following the run (`watch.rs`).

mod live_display;

use soong::{
    StreamItem,
    protocol::{PermissionMode, RunId, api::Accepted},
};
use soong_client::Client;
use soong_tui::{screen, terminal::Paint, transcript::Step, typed_messages::KeyRequest};

use self::live_display::LiveDisplay;
use crate::{
    context::{Context, RunDisplay},
    exit::Failure,
    line_progress::LineProgress,
    print, prompts,
};

/// Result of a display.
#[derive(Default)]
pub(crate) struct ProgressEnd {
    /// Whether the complete answer has been printed.
    pub(crate) has_printed_answer: bool,
    /// The last step of the transcript of which not all rows were shown.
    pub(crate) folded_step: Option<Step>,
}

/// Progress display.
pub(crate) enum Progress {
    /// Live display that is redrawn in place.
    Live(Box<LiveDisplay>),
    /// One line per notable event, on standard error.
    Plain(Box<LineProgress>),
    /// Every event as JSON, on standard output.
    Json,
    /// No display.
    Quiet,
    /// No display: the reader of the output is gone.
    Closed,
}

impl Progress {
    /// Chooses the display for the terminal and options.
    pub(crate) fn choose(
        context: &Context<'_>,
        shown: RunDisplay,
        run: &Accepted,
        kind: &str,
        task: &str,
    ) -> Self {
        if context.global.json {
            return Self::Json;
        }
        if matches!(shown, RunDisplay::Quiet) {
            return Self::Quiet;
        }
        if !context.terminal.can_redraw {
            return Self::Plain(Box::new(LineProgress::of(run.run_id.clone())));
        }
        Self::Live(Box::new(LiveDisplay::open(context, shown, run, kind, task)))
    }

    /// Shows one item of the stream. Fails if the output cannot be written.
    pub(crate) fn show(&mut self, item: &StreamItem) -> Result<(), Failure> {
        match (self, item) {
            (Self::Json, StreamItem::Event(record)) => print::json_line(&**record),
            (Self::Json, StreamItem::Delta(delta)) => print::json_line(&**delta),
            (Self::Json, StreamItem::Lost(lost)) => print::json_line(&**lost),
            (Self::Plain(plain), StreamItem::Event(record)) => {
                plain
                    .lines(record)
                    .iter()
                    .for_each(|line| print::error_line(line));
                Ok(())
            }
            (Self::Live(picture), item) => {
                picture.apply(item);
                Ok(())
            }
            (Self::Plain(_) | Self::Quiet | Self::Closed, _) => Ok(()),
        }
    }

    /// Redraws the live display, if there is one.
    pub(crate) fn draw(&mut self, client: &Client) {
        if let Self::Live(picture) = self {
            picture.poll_tree(client);
            picture.draw();
        }
    }

    /// Shows that the run is being cancelled. `by_key`: by Esc, after which Ctrl-C does not exit
    /// immediately.
    pub(crate) fn cancelling(&mut self, by_key: bool) {
        let note = if by_key {
            "cancelling; Esc goes back to a message"
        } else {
            "cancelling; press Ctrl-C again to exit immediately"
        };
        match self {
            Self::Live(picture) => picture.set_hint(note.to_owned()),
            _ => print::error_line(note),
        }
    }

    /// Prints a note for the user, above the live display if there is one.
    pub(crate) fn note(&mut self, text: &str) {
        match self {
            Self::Live(picture) => picture.note(text),
            _ => print::error_line(text),
        }
    }

    /// Returns the paint for prompts.
    pub(crate) fn paint(&self) -> Paint {
        match self {
            Self::Live(picture) => picture.paint(),
            _ => Paint { on: false },
        }
    }

    /// Returns whether the user at the terminal can be prompted.
    pub(crate) fn can_ask(&self) -> bool {
        matches!(self, Self::Live(_) | Self::Plain(_) | Self::Quiet) && prompts::is_interactive()
    }

    /// Returns the label of a child run, or `None` if `run` is not a known child.
    pub(crate) fn child_label(&self, run: &RunId) -> Option<String> {
        match self {
            Self::Live(picture) => picture.child_label(run),
            Self::Plain(plain) => plain.child(run).map(str::to_owned),
            Self::Quiet | Self::Json | Self::Closed => None,
        }
    }

    /// Records that a prompt has shown the change that a call makes.
    pub(crate) fn mark_change_seen(&mut self, tool_call_id: &str) {
        if let Self::Live(picture) = self {
            picture.mark_change_seen(tool_call_id);
        }
    }

    /// Suspends the live display, for example for a prompt. Its last frame stays on the screen.
    pub(crate) fn pause(&mut self) {
        if let Self::Live(picture) = self {
            picture.pause();
        }
    }

    /// Resumes the display below the current screen content.
    pub(crate) fn resume(&mut self) {
        if let Self::Live(picture) = self {
            screen::mark_suspended();
            picture.resume();
        }
    }

    /// Returns whether keys are read while the run is active.
    pub(crate) fn reads_keys(&self) -> bool {
        matches!(self, Self::Live(picture) if picture.reads_keys())
    }

    /// Returns the permission mode of the run, if the user can change it here.
    pub(crate) fn permission_mode(&self) -> Option<PermissionMode> {
        match self {
            Self::Live(picture) => picture.permission_mode(),
            _ => None,
        }
    }

    /// Reads the keys since the last call. Returns what they request.
    pub(crate) fn read_keys(&mut self) -> Vec<KeyRequest> {
        match self {
            Self::Live(picture) => picture.read_keys(),
            _ => Vec::new(),
        }
    }

    /// Returns whether the user is typing a message.
    pub(crate) fn is_typing(&self) -> bool {
        matches!(self, Self::Live(picture) if picture.is_typing())
    }

    /// Shows this permission mode.
    pub(crate) fn set_permission_mode(&mut self, mode: PermissionMode) {
        if let Self::Live(picture) = self {
            picture.set_permission_mode(mode);
        }
    }

    /// Shows the last output completely that was shown in part.
    pub(crate) fn unfold(&mut self) {
        if let Self::Live(picture) = self {
            picture.unfold();
        }
    }

    /// Ends the display.
    pub(crate) fn finish(self) -> ProgressEnd {
        let Self::Live(mut picture) = self else {
            return ProgressEnd::default();
        };
        picture.finish();
        ProgressEnd {
            has_printed_answer: picture.has_printed_answer(),
            folded_step: picture.take_folded_step(),
        }
    }
}
