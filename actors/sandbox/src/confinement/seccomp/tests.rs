//! Runs the filter like the kernel, on system calls of each table.

use super::*;

const ALLOWED: u32 = SECCOMP_RET_ALLOW;

/// Returns the filter's decision about a call.
fn answer(program: &[sock_filter], architecture: u32, number: u32, first_argument: u32) -> u32 {
    let mut at = 0;
    let mut loaded = 0;
    loop {
        let sock_filter { code, jt, jf, k } = program[at];
        at += 1;
        match u32::from(code) {
            code if code == BPF_LD | BPF_W | BPF_ABS => {
                loaded = match k {
                    NUMBER => number,
                    ARCHITECTURE => architecture,
                    FIRST_ARGUMENT => first_argument,
                    other => panic!("nothing is at {other}"),
                }
            }
            code if code == BPF_RET => return k,
            code => {
                let holds = if code & BPF_JGE == BPF_JGE {
                    loaded >= k
                } else {
                    loaded == k
                };
                at += usize::from(if holds { jt } else { jf });
            }
        }
    }
}

#[test]
fn filter_blocks_keyrings_and_other_processes_limits() {
    let program = filter();
    let missing = SECCOMP_RET_ERRNO | ENOSYS as u32;
    let refused = SECCOMP_RET_ERRNO | EPERM as u32;
    for table in TABLES {
        for (name, number, argument, want) in [
            ("add_key", table.add_key, 0, missing),
            ("request_key", table.request_key, 0, missing),
            ("keyctl", table.keyctl, 0, missing),
            ("own limits", table.prlimit64, 0, ALLOWED),
            ("another's limits", table.prlimit64, 1, refused),
            (
                "limits of a negative id",
                table.prlimit64,
                u32::MAX,
                refused,
            ),
            ("the first call", 0, 0, ALLOWED),
            ("a late call", 460, 9, ALLOWED),
        ] {
            assert_eq!(
                answer(&program, table.architecture, number, argument),
                want,
                "{name} of {:x}",
                table.architecture
            );
        }
        if let Some(from) = table.refused_from {
            assert_eq!(answer(&program, table.architecture, from + 1, 0), missing);
        }
    }
    if !program.is_empty() {
        assert_eq!(answer(&program, 7, 0, 0), missing, "an unknown table");
    }
}
