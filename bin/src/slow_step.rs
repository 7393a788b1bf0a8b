//! Notes about steps before a run that take unexpectedly long.

use std::time::Duration;

use crate::print;

/// Time after which a step is reported.
const NOTE_AFTER: Duration = Duration::from_secs(3);

/// Awaits a step. If it takes longer than [`NOTE_AFTER`], prints once what the command waits for.
pub(crate) async fn with_note<T>(step: &str, future: impl Future<Output = T>) -> T {
    note_if_slow(future, || print::note(&format!("still {step}"))).await
}

async fn note_if_slow<T>(future: impl Future<Output = T>, note: impl FnOnce()) -> T {
    let mut future = std::pin::pin!(future);
    if let Ok(output) = tokio::time::timeout(NOTE_AFTER, &mut future).await {
        return output;
    }
    note();
    future.await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_slow_step_is_reported() {
        for (seconds, notes) in [(0, 0), (2, 0), (4, 1), (60, 1)] {
            let mut printed = 0;
            let output = note_if_slow(
                async {
                    tokio::time::sleep(Duration::from_secs(seconds)).await;
                    seconds
                },
                || printed += 1,
            )
            .await;
            assert_eq!((output, printed), (seconds, notes));
        }
    }
}
