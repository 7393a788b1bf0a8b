//! Checks whether the process at the other end of a socket was started by a tool (TOOL-5).
//!
//! A command must not approve its own request. The user's own programs carry none of the signs that
//! are checked here. If Soong itself was started by such a command, its own signs do not count.

use super::process_table;

/// Maximum number of ancestors that are checked.
const MAX_ANCESTORS: usize = 20;

/// Returns whether a process is a command that a tool started, or descends from one. Returns true
/// if the process cannot be inspected.
///
/// Always `false` on systems other than Linux, where processes cannot be inspected.
pub fn is_tool_process(pid: u32) -> bool {
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    let Some(own_signs) = ToolSigns::of(own) else {
        return false;
    };
    // 0 is a process that is not visible from here.
    let Some(mut pid) = i32::try_from(pid).ok().filter(|pid| *pid > 0) else {
        return true;
    };
    for _ in 0..=MAX_ANCESTORS {
        if pid <= 1 || pid == own {
            return false;
        }
        let (Some(signs), Some(process)) = (ToolSigns::of(pid), process_table::read_one(pid))
        else {
            return true;
        };
        if signs.differ_from(&own_signs) {
            return true;
        }
        pid = process.parent;
    }
    false
}

/// Signs of a command that a tool started.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ToolSigns {
    is_without_new_privileges: bool,
    number: Option<u64>,
    text: Option<String>,
}

impl ToolSigns {
    fn of(pid: i32) -> Option<Self> {
        let flag = process_table::status_line(pid, "NoNewPrivs:")?;
        Some(Self {
            is_without_new_privileges: flag == "1",
            number: process_table::number_of(pid),
            text: process_table::text_of(pid),
        })
    }

    /// Whether it has a sign that `own` lacks.
    fn differ_from(&self, own: &Self) -> bool {
        (self.is_without_new_privileges && !own.is_without_new_privileges)
            || (self.number.is_some() && self.number != own.number)
            || (self.text.is_some() && self.text != own.text)
    }
}
