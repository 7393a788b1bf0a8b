//! Seccomp filter for confined commands: blocks system calls that Landlock does not cover, because
//! they do not access files.
//!
//! - `keyctl`, `add_key` and `request_key` fail with `ENOSYS`. Otherwise a command could link and
//!   read the user's keys, even from a new session keyring.
//! - `prlimit64` with a process id other than 0 fails with `EPERM`. Otherwise a command could set
//!   the CPU time limit of the process that runs Soong, which would kill it.
//!
//! All other system calls are allowed. The filter also covers the system calls of 32-bit programs
//! on x86-64 and ARM64. On other architectures than x86-64, ARM64 and 64-bit RISC-V, there is no
//! filter.

use libc::{
    BPF_ABS, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, ENOSYS, EPERM,
    SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO, sock_filter,
};

/// Offset of the system call number in the input of the filter (`struct seccomp_data`).
const NUMBER: u32 = 0;
/// Offset of the architecture in the input of the filter.
const ARCHITECTURE: u32 = 4;
/// Offset of the lower 32 bits of the first argument. A process id needs no more bits.
const FIRST_ARGUMENT: u32 = if cfg!(target_endian = "big") { 20 } else { 16 };

/// Numbers of the filtered system calls in one system call table of the kernel.
struct SyscallTable {
    /// Value of the kernel constant `AUDIT_ARCH_…` that identifies the table.
    architecture: u32,
    add_key: u32,
    request_key: u32,
    keyctl: u32,
    prlimit64: u32,
    /// First number of a further table with the same `architecture` value (x32 on x86-64). All
    /// calls with this or a higher number fail with `ENOSYS`.
    refused_from: Option<u32>,
}

/// Tables of this architecture, the native one first.
const TABLES: &[SyscallTable] = if cfg!(target_arch = "x86_64") {
    &[
        SyscallTable {
            refused_from: Some(0x4000_0000),
            ..table(0xc000_003e, [248, 249, 250], 302)
        },
        table(0x4000_0003, [286, 287, 288], 340),
    ]
} else if cfg!(target_arch = "aarch64") {
    &[
        table(0xc000_00b7, [217, 218, 219], 261),
        table(0x4000_0028, [309, 310, 311], 369),
    ]
} else if cfg!(target_arch = "riscv64") {
    &[table(0xc000_00f3, [217, 218, 219], 261)]
} else {
    &[]
};

const fn table(
    architecture: u32,
    [add_key, request_key, keyctl]: [u32; 3],
    prlimit64: u32,
) -> SyscallTable {
    SyscallTable {
        architecture,
        add_key,
        request_key,
        keyctl,
        prlimit64,
        refused_from: None,
    }
}

/// Returns the instructions of the filter. Empty if [`TABLES`] is empty for this architecture.
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
    // Reached only if no table has the architecture of the call.
    program.push(refuse(ENOSYS));
    program
}

/// Returns the instructions that decide about a call of one table. Every path through them ends
/// with a return.
fn block(table: &SyscallTable) -> Vec<sock_filter> {
    let mut missing = vec![
        (BPF_JEQ, table.add_key),
        (BPF_JEQ, table.request_key),
        (BPF_JEQ, table.keyctl),
    ];
    missing.extend(table.refused_from.map(|number| (BPF_JGE, number)));
    // Number of instructions between the last of these jumps and the final `ENOSYS`, which is the
    // target of them all.
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

/// Compares the loaded value with `value`, and then skips `if_true` or `if_false` instructions.
fn jump(test: u32, value: u32, if_true: usize, if_false: usize) -> sock_filter {
    instruction(BPF_JMP | BPF_K | test, value, [if_true, if_false])
}

fn instruction(code: u32, k: u32, [if_true, if_false]: [usize; 2]) -> sock_filter {
    // The program has fewer than 30 instructions, so the jump distances fit into `u8`, and the
    // codes fit into `u16`.
    sock_filter {
        code: code as u16,
        jt: if_true as u8,
        jf: if_false as u8,
        k,
    }
}

#[cfg(test)]
#[path = "seccomp/tests.rs"]
mod tests;
