//! Memory: experiences of earlier runs, kept for later ones (MEM-2 … MEM-4).
//!
//! - `experience_file.rs` parses the text of the file and changes it block by block, leaving
//!   everything else untouched.
//! - `date.rs` parses dates.
//! - `file.rs` reads and writes the file on disk, safely with other writers.
//! - `users.rs` maps users to files.
//! - `matching.rs` selects matching experiences.
//! - `recall.rs` and `reflect.rs` contain the requests to the model.
//!
//! Elsewhere: skills (`skill.rs`), instructions of a project (`project_instructions.rs`).

mod date;
mod experience_file;
mod file;
mod matching;
mod metadata;
mod recall;
mod reflect;
mod users;

pub use experience_file::{Changes, ExperienceFault, ExperienceText, NewExperience};
pub use file::MemoryFile;
pub use matching::{matching, normalize_tag, normalize_tags};
pub(crate) use recall::{
    EXPERIENCES_HEADING, KNOWN_TAGS_HEADING, TAGGER_PROMPT, TASK_HEADING, correction_request,
    format_experiences, read_tags, tag_request,
};
pub(crate) use reflect::{
    REFLECTION_PROMPT_START, experiences_in, read_reflection, reflection_prompt,
    reflection_question, reflection_schema,
};
pub use users::MemoryFiles;
