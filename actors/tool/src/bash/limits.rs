//! Limits of a command and all its child processes: number of processes, memory, file size.
//!
//! The kernel enforces the file size. No resource limit counts the processes and memory of a whole
//! process tree, so these are measured periodically, and a command that exceeds a limit is killed.

use std::time::Duration;

use soong_protocol::BashConfig;

use soong_sandbox::{ResourceLimits, ResourceUsage, UsageMeter};

/// Time between two measurements.
const INTERVAL: Duration = Duration::from_millis(50);
/// Niceness of commands: a fork bomb must not keep the owner process from measuring.
const NICE: i32 = 10;
/// Number of the signal that a process receives when it exceeds its maximum file size (`SIGXFSZ`).
const FILE_TOO_LARGE: i32 = 25;
const MIB: u64 = 1024 * 1024;

/// Limits of a command.
#[derive(Debug, Clone, Copy)]
pub(super) struct CommandLimits {
    processes: usize,
    /// `None` if no limit is configured and the total memory is unknown.
    memory_bytes: Option<u64>,
    file_mb: u64,
}

impl CommandLimits {
    pub(super) fn new(config: &BashConfig) -> Self {
        Self {
            processes: config.max_processes as usize,
            memory_bytes: config
                .max_memory_mb
                .map(|mb| mb.saturating_mul(MIB))
                .or_else(half_of_memory),
            file_mb: config.max_file_mb,
        }
    }

    /// Returns the limits that the kernel enforces.
    pub(super) fn kernel_limits(self) -> ResourceLimits {
        ResourceLimits {
            file_bytes: Some(self.file_mb.saturating_mul(MIB)),
            // Higher than the measured limit, so that the measurement ends the command first and
            // the result names the limit.
            processes: Some(2 * self.processes as u64),
            nice: Some(NICE),
            no_core: true,
        }
    }

    /// Returns the maximum size of `/dev/shm` for a command, in bytes. This memory is not charged
    /// to any process.
    pub(super) fn shared_memory_bytes(self) -> u64 {
        self.memory_bytes.map_or(64 * MIB, |bytes| bytes / 2)
    }

    /// Waits until a command exceeds a limit, and returns a description of that limit.
    pub(super) async fn wait_until_exceeded(self, meter: UsageMeter) -> String {
        loop {
            tokio::time::sleep(INTERVAL).await;
            let most = self.processes;
            let load = tokio::task::spawn_blocking(move || meter.read(most))
                .await
                .unwrap_or_default();
            if let Some(which) = self.check(load) {
                return which;
            }
        }
    }

    fn check(self, load: ResourceUsage) -> Option<String> {
        if load.processes > self.processes {
            let most = self.processes;
            return Some(format!(
                "it ran more processes at once than tools.bash.max_processes, which is {most}"
            ));
        }
        let most = self.memory_bytes.filter(|most| load.memory_bytes > *most)?;
        let used = load.memory_bytes / MIB;
        let most = most / MIB;
        Some(format!(
            "it used {used} MiB of memory; tools.bash.max_memory_mb is {most}"
        ))
    }

    /// Returns why a command ended with this status, if a kernel limit is the cause.
    pub(super) fn explain_exit_status(self, status: i32) -> Option<String> {
        let most = self.file_mb;
        let text = format!("it wrote a file larger than tools.bash.max_file_mb, which is {most}");
        (status == 128 + FILE_TOO_LARGE).then_some(text)
    }
}

#[cfg(target_os = "linux")]
fn half_of_memory() -> Option<u64> {
    let known = rustix::system::sysinfo();
    // The type of `totalram` differs between architectures.
    #[allow(clippy::useless_conversion, reason = "it is a u32 on some")]
    let units = u64::from(known.totalram);
    Some(units.saturating_mul(u64::from(known.mem_unit)) / 2)
}

#[cfg(not(target_os = "linux"))]
fn half_of_memory() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceeded_limit_is_named_in_message() {
        let limits = CommandLimits {
            processes: 3,
            memory_bytes: Some(2 * MIB),
            file_mb: 7,
        };
        for (processes, memory_bytes, part) in [
            (3, 2 * MIB, None),
            (4, 0, Some("tools.bash.max_processes, which is 3")),
            (
                1,
                3 * MIB,
                Some("3 MiB of memory; tools.bash.max_memory_mb is 2"),
            ),
        ] {
            let message = limits.check(ResourceUsage {
                processes,
                memory_bytes,
            });
            assert_eq!(message.is_some(), part.is_some(), "{message:?}");
            assert!(
                message
                    .unwrap_or_default()
                    .contains(part.unwrap_or_default())
            );
        }
        assert!(
            limits
                .explain_exit_status(153)
                .unwrap()
                .contains("max_file_mb, which is 7")
        );
        assert_eq!(limits.explain_exit_status(137), None);
    }
}
