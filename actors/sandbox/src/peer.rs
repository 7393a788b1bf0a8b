//! Whether the process at the other end of a socket is one that a tool started (TOOL-5).
//!
//! A command must not give itself the leave that it needs. The user's own programs carry none of the signs that are
//! looked for here; where Soong itself was started by such a command, its own signs do not count.

use super::table;

/// How far up the parents are looked at.
const MOST_PARENTS: usize = 20;

/// Returns whether a process is, or descends from, a command that a tool started; also where it cannot be looked at.
///
/// Always `false` where the system shows no process at all: other systems than Linux.
pub fn is_confined_peer(pid: u32) -> bool {
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    let Some(own_signs) = Signs::of(own) else { return false };
    // 0 is a process that cannot be seen from here.
    let Some(mut pid) = i32::try_from(pid).ok().filter(|pid| *pid > 0) else { return true };
    for _ in 0..=MOST_PARENTS {
        if pid <= 1 || pid == own {
            return false;
        }
        let (Some(signs), Some(process)) = (Signs::of(pid), table::read_one(pid)) else { return true };
        if signs.differ_from(&own_signs) {
            return true;
        }
        pid = process.parent;
    }
    false
}

/// What tells a command that a tool started.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Signs {
    is_without_new_privileges: bool,
    number: Option<u64>,
    text: Option<String>,
}

impl Signs {
    fn of(pid: i32) -> Option<Self> {
        let flag = table::status_line(pid, "NoNewPrivs:")?;
        Some(Self { is_without_new_privileges: flag == "1", number: table::number_of(pid), text: table::text_of(pid) })
    }

    /// Whether it has a sign that `own` lacks.
    fn differ_from(&self, own: &Self) -> bool {
        (self.is_without_new_privileges && !own.is_without_new_privileges)
            || (self.number.is_some() && self.number != own.number)
            || (self.text.is_some() && self.text != own.text)
    }
}
