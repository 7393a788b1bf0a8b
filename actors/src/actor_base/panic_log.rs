//! The last panics of the process with their backtraces, for debug artifacts (ART-13).
//!
//! A supervisor learns of a crash by its message only. The backtrace exists only while the thread
//! unwinds, so a panic hook keeps it.

use std::{
    backtrace::Backtrace,
    collections::VecDeque,
    panic::PanicHookInfo,
    sync::{Mutex, Once, PoisonError},
};

/// Number of panics that are kept.
const MAX_KEPT: usize = 16;

static INSTALL: Once = Once::new();
static PANICS: Mutex<VecDeque<KeptPanic>> = Mutex::new(VecDeque::new());

struct KeptPanic {
    message: String,
    text: String,
}

/// Installs a panic hook that keeps backtraces, and then calls the previous hook. Does nothing the
/// second time.
pub(crate) fn keep_backtraces() {
    INSTALL.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            keep(info);
            previous(info);
        }));
    });
}

/// Returns the place and the backtrace of the newest panic whose message `error` contains. Each
/// panic is returned once.
pub(crate) fn take_backtrace(error: &str) -> Option<String> {
    let mut panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
    let index = panics
        .iter()
        .rposition(|panic| error.contains(&panic.message))?;
    panics.remove(index).map(|panic| panic.text)
}

fn keep(info: &PanicHookInfo<'_>) {
    let Some(message) = info.payload_as_str().filter(|message| !message.is_empty()) else {
        return;
    };
    let location = info
        .location()
        .map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
    let text = format!("at {location}\n\n{}", Backtrace::force_capture());
    // The panicking thread may hold the lock.
    let Ok(mut panics) = PANICS.try_lock() else {
        return;
    };
    if panics.len() == MAX_KEPT {
        panics.pop_front();
    }
    panics.push_back(KeptPanic {
        message: message.to_owned(),
        text,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backtrace_of_a_panic_is_returned_once() {
        keep_backtraces();
        keep_backtraces();
        let _ = std::thread::spawn(|| panic!("a panic that nobody else has")).join();
        let text = take_backtrace("the actor failed: a panic that nobody else has").unwrap();
        assert!(
            text.contains("panic_log.rs") && text.contains("panic_log::tests"),
            "{text}"
        );
        assert_eq!(
            take_backtrace("the actor failed: a panic that nobody else has"),
            None
        );
    }
}
