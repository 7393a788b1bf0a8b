//! Reports of a supervisor process: exit status of its program, and the number of processes it had
//! to kill.

use std::{io, os::fd::AsFd};

/// Size of a report, in bytes. The kernel reads and writes so few bytes atomically.
pub(super) const REPORT_BYTES: usize = 12;

/// A message from the supervisor to the owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Report {
    /// The program has ended, with this status as returned by `waitpid`. Processes that it started
    /// may still run.
    Exited { status: i32 },
    /// All other processes were killed. The supervisor ends.
    Ended { killed: u32, left: u32 },
}

impl Report {
    /// Sends the report; a closed reader is not an error. Makes one system call and allocates
    /// nothing.
    pub(super) fn send(self, to: impl AsFd) {
        let _ = rustix::io::write(to, &self.encode());
    }

    /// Reads the next report. `None`: the supervisor has ended, and there are no more reports.
    ///
    /// # Errors
    /// `WouldBlock` if no report is available and the descriptor is nonblocking.
    pub(super) fn receive(from: impl AsFd) -> io::Result<Option<Self>> {
        let mut bytes = [0; REPORT_BYTES];
        match rustix::io::read(from, &mut bytes)? {
            REPORT_BYTES => Ok(Self::decode(bytes)),
            _ => Ok(None),
        }
    }

    fn encode(self) -> [u8; REPORT_BYTES] {
        let (kind, first, second) = match self {
            Self::Exited { status } => (1_u32, status.cast_unsigned(), 0),
            Self::Ended { killed, left } => (2, killed, left),
        };
        let mut bytes = [0; REPORT_BYTES];
        for (slot, number) in bytes.chunks_exact_mut(4).zip([kind, first, second]) {
            slot.copy_from_slice(&number.to_ne_bytes());
        }
        bytes
    }

    fn decode(bytes: [u8; REPORT_BYTES]) -> Option<Self> {
        let number = |at: usize| {
            u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        match number(0) {
            1 => Some(Self::Exited {
                status: number(4).cast_signed(),
            }),
            2 => Some(Self::Ended {
                killed: number(4),
                left: number(8),
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_round_trip_through_pipe() {
        let (read, write) = io::pipe().unwrap();
        let sent = [
            Report::Exited { status: 0x1234 },
            Report::Exited { status: -1 },
            Report::Ended { killed: 3, left: 1 },
        ];
        sent.iter().for_each(|report| report.send(&write));
        for report in sent {
            assert_eq!(Report::receive(&read).unwrap(), Some(report));
        }
        drop(write);
        assert_eq!(Report::receive(&read).unwrap(), None);
    }
}
