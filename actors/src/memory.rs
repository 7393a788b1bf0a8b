//! Memory: what runs learned, kept for later ones (MEM-2 … MEM-4).
//!
//! `book.rs` reads the file's text and changes it, block by block, without touching what it does not mean; `date.rs` reads
//! dates; `file.rs` keeps the file on disk, safe from other writers; `users.rs` says whose file it is; `rank.rs` says which
//! experiences fit.
//! Not here: skills (`skill.rs`), what the people of a project have written (`project_text.rs`).

mod book;
mod date;
mod file;
mod head;
mod rank;
mod recall;
mod reflect;
mod users;

pub use book::{Book, BookFault, Changes, NewExperience};
pub use file::MemoryFile;
pub use rank::{matching, plain_tag, plain_tags};
pub(crate) use recall::{KNOWN_HEAD, TAGGER, TASK_HEAD, TOLD_HEAD, mend_request, read_tags, tag_request, told};
pub(crate) use reflect::{REFLECTOR, read_reflection, reflect_question, reflection_schema, reflector, told_in};
pub use users::Memories;
