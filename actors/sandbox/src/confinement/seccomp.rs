//! Seccomp filter for confined commands: restricts system calls that reach beyond files, which Landlock does not
//! cover.
//!
//! - `keyctl`, `add_key`, `request_key` do not exist (`ENOSYS`): otherwise the user's keys could be linked and read,
//!   even from a new session keyring.
//! - `prlimit64` of another process is denied (`EPERM`): it could limit the owner's CPU time, and so kill it.
//!
//! Everything else is allowed. The filter also covers the second system call table of the architecture (32-bit
//! programs). If the architecture is unknown, there is no filter.

use libc::{
    BPF_ABS, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, ENOSYS, EPERM, SECCOMP_RET_ALLOW,
    SECCOMP_RET_ERRNO, sock_filter,
};

/// Offsets in the data that a filter reads (`struct seccomp_data`).
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
/// Lower half of the first argument, which is enough for a process id.
const FIRST_ARGUMENT: u32 = if cfg!(target_endian = "big") { 20 } else { 16 };

/// A system call table that a process can use.
struct SyscallTable {
    /// The kernel's constant `AUDIT_ARCH_…`.
    architecture: u32,
    add_key: u32,
    request_key: u32,
    keyctl: u32,
    prlimit64: u32,
    /// Numbers from here on belong to a third table, which is denied completely.
    refused_from: Option<u32>,
}

/// Tables of this architecture, the native one first.
const TABLES: &[SyscallTable] = if cfg!(target_arch = "x86_64") {
    &[
        SyscallTable { refused_from: Some(0x4000_0000), ..table(0xc000_003e, [248, 249, 250], 302) },
        table(0x4000_0003, [286, 287, 288], 340),
    ]
} else if cfg!(target_arch = "aarch64") {
    &[table(0xc000_00b7, [217, 218, 219], 261), table(0x4000_0028, [309, 310, 311], 369)]
} else if cfg!(target_arch = "riscv64") {
    &[table(0xc000_00f3, [217, 218, 219], 261)]
} else {
    &[]
};

const fn table(architecture: u32, [add_key, request_key, keyctl]: [u32; 3], prlimit64: u32) -> SyscallTable {
    SyscallTable { architecture, add_key, request_key, keyctl, prlimit64, refused_from: None }
}

/// Returns the filter; empty if the system calls of this architecture are unknown.
pub(crate) fn filter() -> Vec<sock_filter> {
    if TABLES.is_empty() {
        return Vec::new();
    }
    let mut program = vec![load(ARCHITECTURE)];
    for table in TABLES {
        let block = block(table);
        program.push(jump(BPF_JEQ, table.architecture, 0, block.len()));
        program.extend(block);
    }
    // Unreachable for processes of this architecture.
    program.push(refuse(ENOSYS));
    program
}

/// Returns the instructions for the calls of one table; they always return.
fn block(table: &SyscallTable) -> Vec<sock_filter> {
    let mut missing = vec![(BPF_JEQ, table.add_key), (BPF_JEQ, table.request_key), (BPF_JEQ, table.keyctl)];
    missing.extend(table.refused_from.map(|number| (BPF_JGE, number)));
    // Jumps to the end skip the following jumps and the instructions for `prlimit64`.
    let rest = 5;
    let jumps = missing.len();
    let mut block = vec![load(NUMBER)];
    for (at, (test, number)) in missing.into_iter().enumerate() {
        block.push(jump(test, number, jumps - 1 - at + rest, 0));
    }
    block.extend([
        jump(BPF_JEQ, table.prlimit64, 0, 2),
        load(FIRST_ARGUMENT),
        jump(BPF_JEQ, 0, 0, 1),
        statement(BPF_RET, SECCOMP_RET_ALLOW),
        refuse(EPERM),
        refuse(ENOSYS),
    ]);
    block
}

fn load(offset: u32) -> sock_filter {
    statement(BPF_LD | BPF_W | BPF_ABS, offset)
}

fn refuse(error: i32) -> sock_filter {
    statement(BPF_RET, SECCOMP_RET_ERRNO | error.cast_unsigned())
}

fn statement(code: u32, value: u32) -> sock_filter {
    instruction(code | BPF_K, value, [0, 0])
}

/// Compares the loaded value, and skips the given number of instructions.
fn jump(test: u32, value: u32, if_true: usize, if_false: usize) -> sock_filter {
    instruction(BPF_JMP | BPF_K | test, value, [if_true, if_false])
}

fn instruction(code: u32, k: u32, [if_true, if_false]: [usize; 2]) -> sock_filter {
    // Programs have about twenty instructions, so every number fits.
    sock_filter { code: code as u16, jt: if_true as u8, jf: if_false as u8, k }
}

#[cfg(test)]
#[path = "seccomp/tests.rs"]
mod tests;
