//! Checks of the home: its folder, owner, disk and database.
//!
//! Nothing is created or written. Elsewhere: the configuration in the home (`environment.rs`).

use std::{
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use rustix::fs::{Access, access, statvfs};
use soong_client::socket;

use soong_storage::{sqlite::SqliteReader, store::StoreError};
use soong_tui::format;

use super::{Check, Status};
use crate::offline_store;

/// Free disk space in bytes below which a warning is given.
const LOW_SPACE: u64 = 1 << 30;
/// Free disk space in bytes below which the check is broken.
const MIN_SPACE: u64 = 100 << 20;

/// Number of tables whose sizes are shown.
const LISTED_TABLES: usize = 4;

const OTHER_HOME_ADVICE: &str = "Choose another home with --home DIR or SOONG_AGENT_HOME.";

/// Checks the home. Checks that need a part of the home that does not exist are skipped.
pub(super) fn checks(home: &Path) -> Vec<Check> {
    let mut checks = vec![folder(home)];
    if checks[0].status != Status::Broken {
        checks.push(
            match nearest_existing(home).map(|existing| statvfs(&existing)) {
                Some(Ok(disk)) if disk.f_blocks > 0 => {
                    disk_space(disk.f_bavail.saturating_mul(disk.f_frsize))
                }
                _ => Check::ok("disk", "the free space is unknown"),
            },
        );
    }
    if home.is_dir() {
        let owner = offline_store::owner(home);
        checks.push(match owner {
            Some(pid) if socket::is_served(home) => Check::ok(
                "owner",
                format!("process {pid} owns the home; other commands use it"),
            ),
            Some(pid) => Check::partly(
                "owner",
                format!("process {pid} owns the home but has no control socket"),
                "Other commands can only read: start runs and answer requests in that program.",
            ),
            None => Check::ok("owner", "the home has no owner"),
        });
        checks.extend(database(&home.join("sessions.sqlite"), owner.is_some()));
    }
    checks
}

/// Returns the path itself or its nearest existing ancestor.
fn nearest_existing(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    path.ancestors()
        .find(|path| path.exists())
        .map(Path::to_owned)
}

fn folder(home: &Path) -> Check {
    let shown = home.display();
    let broken = |why: String| Check::broken("home", why, OTHER_HOME_ADVICE);
    let can_write = |path: &Path| access(path, Access::WRITE_OK | Access::EXEC_OK);
    match home.metadata() {
        Ok(found) if !found.is_dir() => broken(format!("{shown} is not a folder")),
        Ok(found) => {
            if let Err(error) = can_write(home) {
                return broken(format!("{shown} is not writable: {error}"));
            }
            match found.mode() & 0o022 {
                0 => Check::ok("home", format!("{shown} is writable")),
                _ => Check::warning(
                    "home",
                    format!(
                        "other users can write to {shown} (mode {:o})",
                        found.mode() & 0o7777
                    ),
                    format!("Remove that permission: chmod go-w '{shown}'"),
                ),
            }
        }
        Err(_) if home.is_symlink() => broken(format!("{shown} is a dangling symbolic link")),
        Err(error) => match nearest_existing(home) {
            Some(above) if !above.is_dir() => broken(format!(
                "{shown} cannot be created: {} is not a folder",
                above.display()
            )),
            Some(above) => match can_write(&above) {
                Ok(()) => Check::ok(
                    "home",
                    format!("{shown} does not exist yet; it is created on first use"),
                ),
                Err(error) => broken(format!(
                    "{shown} cannot be created in {}: {error}",
                    above.display()
                )),
            },
            None => broken(format!("{shown} cannot be created: {error}")),
        },
    }
}

fn disk_space(free: u64) -> Check {
    let free_space = format!("{} free", format::bytes(free));
    let advice = "Free some space: runs wait while the disk is full.";
    match free {
        0..MIN_SPACE => Check::broken(
            "disk",
            format!("only {free_space} on the disk of the home"),
            advice,
        ),
        MIN_SPACE..LOW_SPACE => Check::warning(
            "disk",
            format!("only {free_space} on the disk of the home"),
            advice,
        ),
        _ => Check::ok("disk", format!("{free_space} on the disk of the home")),
    }
}

fn database(path: &Path, has_owner: bool) -> Vec<Check> {
    let shown = path.display();
    let reader = match SqliteReader::open(path) {
        Ok(reader) => reader,
        Err(StoreError::NotFound(_)) => {
            return vec![Check::ok(
                "database",
                "does not exist yet; it is created on first use",
            )];
        }
        Err(error) => return vec![unreadable(path, &error)],
    };
    let size = path.metadata().map_or(0, |file| file.len());
    let whole = match reader.check_integrity() {
        Ok(faults) if faults.is_empty() => Check::ok(
            "database",
            format!("{shown} is intact, {}", format::bytes(size)),
        ),
        Ok(faults) => {
            let more = match faults.len() {
                1 => String::new(),
                n => format!(" (and {} more)", n - 1),
            };
            damaged(path, &format!("{}{more}", faults[0]))
        }
        Err(error) => unreadable(path, &error),
    };
    let runs = match offline_store::unfinished(&reader) {
        Ok(found) => unfinished(
            found.interrupted.len(),
            found.awaiting_input.len(),
            has_owner,
        ),
        Err(_) => return vec![whole], // reported above: an unreadable database is not intact
    };
    let mut checks = vec![whole, runs];
    if let Ok(sizes) = reader.table_sizes() {
        checks.push(Check::ok("tables", largest_tables(&sizes)));
    }
    checks
}

/// Describes the sizes of the largest tables, and the sum of the others.
fn largest_tables(sizes: &[(String, u64)]) -> String {
    let (largest, others) = sizes.split_at(sizes.len().min(LISTED_TABLES));
    let mut parts: Vec<String> = largest
        .iter()
        .map(|(name, size)| format!("{name} {}", format::bytes(*size)))
        .collect();
    if !others.is_empty() {
        let rest = others.iter().map(|(_, size)| size).sum();
        parts.push(format!("{} more: {}", others.len(), format::bytes(rest)));
    }
    parts.join(", ")
}

fn unfinished(at_work: usize, parked: usize, has_owner: bool) -> Check {
    let run_count = format::plural(at_work, "run", "runs");
    let waiting = match parked {
        0 => String::new(),
        _ => format!(
            "{} for input: see `soong questions list` and `soong permissions list`",
            format::plural(parked, "run waits", "runs wait")
        ),
    };
    let also = if parked == 0 {
        String::new()
    } else {
        format!("; {waiting}")
    };
    match (at_work, has_owner) {
        (0, _) if parked == 0 => Check::ok("runs", "no unfinished runs"),
        (0, _) => Check::ok("runs", waiting),
        (_, true) => Check::ok("runs", format!("{run_count} active{also}")),
        (_, false) => Check::warning(
            "runs",
            format!("{run_count} left unfinished by a process that has exited{also}"),
            "Their work is saved. Resume them with `soong run --trace SESSION`, or end them with\n\
             `soong traces stop SESSION` (see `soong sessions list`).",
        ),
    }
}

fn unreadable(path: &Path, error: &StoreError) -> Check {
    match error {
        StoreError::OlderFormat { .. } => Check::warning(
            "database",
            error.to_string(),
            "The backup copy is next to the database; the earlier version can read it.",
        ),
        StoreError::NewerFormat { .. } => {
            Check::broken("database", error.to_string(), OTHER_HOME_ADVICE)
        }
        StoreError::Corrupt(why) => damaged(path, why),
        error => Check::broken(
            "database",
            error.to_string(),
            "Check the permissions of the home and its disk.",
        ),
    }
}

fn damaged(path: &Path, why: &str) -> Check {
    Check::broken(
        "database",
        format!("{} is damaged: {why}", path.display()),
        format!(
            "Copy the whole home elsewhere, then restore a backup; without one, recover the readable data:\n\
             sqlite3 '{0}' .recover | sqlite3 rescued.sqlite",
            path.display()
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_disk_space_warns_and_too_little_is_broken() {
        for (free, status) in [
            (0, Status::Broken),
            (MIN_SPACE - 1, Status::Broken),
            (MIN_SPACE, Status::Warning),
            (LOW_SPACE - 1, Status::Warning),
            (LOW_SPACE, Status::Ok),
            (u64::MAX, Status::Ok),
        ] {
            assert_eq!(disk_space(free).status, status, "{free}");
        }
    }

    #[test]
    fn runs_without_an_owner_are_a_warning() {
        for (at_work, parked, has_owner, status) in [
            (0, 0, false, Status::Ok),
            (0, 0, true, Status::Ok),
            (2, 0, true, Status::Ok),
            (1, 0, false, Status::Warning),
            (0, 1, false, Status::Ok),
            (1, 1, false, Status::Warning),
        ] {
            let check = unfinished(at_work, parked, has_owner);
            assert_eq!(check.status, status, "{at_work} {parked} {has_owner}");
            assert_eq!(
                check.finding.contains("wait"),
                parked > 0,
                "{}",
                check.finding
            );
        }
    }

    #[test]
    fn database_errors_give_advice() {
        for (error, status, advice) in [
            (
                StoreError::OlderFormat { found: 1, known: 2 },
                Status::Warning,
                "earlier version can read",
            ),
            (
                StoreError::NewerFormat { found: 2, known: 1 },
                Status::Broken,
                "another home",
            ),
            (StoreError::Corrupt("no".into()), Status::Broken, ".recover"),
            (StoreError::Io("no".into()), Status::Broken, "permissions"),
        ] {
            let check = unreadable(Path::new("x"), &error);
            assert_eq!(check.status, status, "{error}");
            assert!(check.advice.unwrap().contains(advice), "{error}");
        }
    }
}
