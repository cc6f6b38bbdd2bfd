//! Each class of fault, planted and found, beside the same kernel without it.

use crate::support::{Device, module};
use repartee_simcuda::fault::{Fault, FaultKind};
use repartee_simcuda::kernel::load;
use repartee_simcuda::memory::DeviceMemory;

/// Runs a kernel over 32 initialised bytes of device memory.
fn outcome(body: &str, threads: u32) -> Result<(), Fault> {
    let mut device = Device::kernel(1, &format!("ld.param.u64 %d0, [p0];\nmov.u32 %r0, %tid.x;\n{body}"));
    let place = device.words(&[1, 2, 3, 4]);
    device.test(threads, &[place])
}

fn finds(kind: FaultKind, body: &str, threads: u32) -> String {
    let fault = outcome(body, threads).expect_err(body);
    assert_eq!(fault.kind, kind, "{fault}");
    fault.text
}

#[test]
fn accesses_stay_inside_allocations() {
    outcome("ld.global.u64 %d1, [%d0+24];", 1).unwrap();
    let text = finds(FaultKind::OutOfBounds, "ld.global.u64 %d1, [%d0+32];", 1);
    assert_eq!(
        text,
        "test, PTX line 14, block (0, 0, 0), thread (0, 0, 0): \
         8 bytes at byte 32 of an allocation of 32 bytes at 0x7f0000000000"
    );
    // The third thread is the first outside.
    let text = finds(
        FaultKind::OutOfBounds,
        "mul.wide.u32 %d1, %r0, 16;\nadd.s64 %d1, %d0, %d1;\nst.global.u64 [%d1], %d0;",
        4,
    );
    assert!(text.contains("thread (2, 0, 0)"), "{text}");
    finds(FaultKind::OutOfBounds, "ld.global.u64 %d1, [%d0+-8];", 1);
    finds(FaultKind::OutOfBounds, "ld.global.u32 %r1, [16];", 1);
    finds(FaultKind::OutOfBounds, ".shared .align 8 .b8 s[8];\nst.shared.u32 [s+8], %r0;", 1);
    finds(FaultKind::OutOfBounds, ".local .align 8 .b8 l[8];\nst.local.u32 [l+8], %r0;", 1);
    finds(FaultKind::OutOfBounds, "ld.param.u64 %d1, [p0+8];", 1);
}

#[test]
fn accesses_are_aligned() {
    finds(FaultKind::Misaligned, "ld.global.u64 %d1, [%d0+4];", 1);
    finds(FaultKind::Misaligned, "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d0+8];", 1);
    finds(FaultKind::Misaligned, ".shared .align 8 .b8 s[8];\nst.shared.u32 [s+2], %r0;", 1);
    finds(FaultKind::Misaligned, "atom.global.add.u32 %r1, [%d0+2], 1;", 1);
    let copy = ".shared .align 16 .b8 s[32];\nmov.u32 %r1, s;\ncp.async.cg.shared.global [%r1+8], [%d0], 16;";
    finds(FaultKind::Misaligned, copy, 1);
}

#[test]
fn freed_memory_is_named() {
    let mut device = Device::kernel(1, "ld.param.u64 %d0, [p0];\nld.global.u32 %r0, [%d0];");
    let place = device.words(&[1]);
    device.test(1, &[place]).unwrap();
    assert!(device.memory.free(place) && !device.memory.free(place));
    let fault = device.test(1, &[place]).unwrap_err();
    assert_eq!((fault.kind, fault.kind.code()), (FaultKind::UseAfterFree, 700));
    // No later allocation reuses the address.
    assert_ne!(device.words(&[1]), place);
    assert_eq!(device.test(1, &[place]).unwrap_err().kind, FaultKind::UseAfterFree);
}

#[test]
fn fresh_memory_is_nan_and_reported() {
    let mut device = Device::kernel(1, "ld.param.u64 %d0, [p0];\nld.global.f32 %f0, [%d0+60];");
    let place = device.memory.alloc(200).unwrap();
    assert_eq!(device.test(1, &[place]).unwrap_err().kind, FaultKind::Uninitialised);
    device.memory.write(place, &[0; 63]).unwrap();
    let fault = device.test(1, &[place]).unwrap_err();
    assert!(fault.text.contains("byte 63 of an allocation of 200 bytes"), "{fault}");
    device.memory.write(place + 63, &[0; 70]).unwrap();
    device.test(1, &[place]).unwrap();
    // A copy keeps uninitialised bytes uninitialised.
    let copy = device.memory.alloc(200).unwrap();
    device.memory.copy(copy, place + 73, 100).unwrap();
    assert_eq!(device.test(1, &[copy]).unwrap_err().kind, FaultKind::Uninitialised);
    device.memory.copy(copy, place + 63, 70).unwrap();
    device.test(1, &[copy]).unwrap();
    finds(FaultKind::Uninitialised, ".shared .align 8 .b8 s[8];\nld.shared.u32 %r1, [s];", 1);
    finds(FaultKind::Uninitialised, ".shared .align 8 .b8 s[8];\nred.shared.add.u32 [s], 1;", 1);
    finds(FaultKind::Uninitialised, ".local .align 8 .b8 l[8];\nld.local.u32 %r1, [l];", 1);
}

/// Threads write their own word of shared memory twice, and read their neighbour's after `between`.
fn neighbours(between: &str, distance: u32) -> String {
    format!(
        ".shared .align 4 .b8 s[512];
mov.u32 %r9, s;
mad.lo.u32 %r1, %r0, 4, %r9;
st.shared.u32 [%r1], %r0;
bar.sync 0;
\
         st.shared.u32 [%r1], %r0;
{between}
add.s32 %r2, %r0, {distance};
and.b32 %r2, %r2, 63;
\
         mad.lo.u32 %r3, %r2, 4, %r9;
ld.shared.u32 %r4, [%r3];"
    )
}

#[test]
fn races_between_barriers_are_found() {
    outcome(&neighbours("bar.sync 0;", 32), 64).unwrap();
    let text = finds(FaultKind::Race, &neighbours("bar.warp.sync -1;", 62), 64);
    assert!(text.contains("no barrier between"), "{text}");
    // A read, then a write without a barrier.
    let overwrite = |between| neighbours("bar.sync 0;", 32) + between + "\nst.shared.u32 [%r1], %r4;";
    finds(FaultKind::Race, &overwrite(""), 64);
    outcome(&overwrite("\nbar.sync 0;"), 64).unwrap();
    // The second warp writes the word that the first one has read.
    let after = |between| {
        format!(
            ".shared .align 4 .b8 s[256];\nmov.u32 %r9, s;\nmad.lo.u32 %r1, %r0, 4, %r9;\nst.shared.u32 [%r1], 5;\nbar.sync 0;\n\
             setp.lt.u32 %p0, %r0, 32;\n@%p0 ld.shared.u32 %r2, [%r1+128];\n{between}\n@!%p0 st.shared.u32 [%r1], 6;"
        )
    };
    outcome(&after("bar.sync 0;"), 64).unwrap();
    finds(FaultKind::Race, &after(""), 64);
    // Two threads write different values, or the same one.
    finds(FaultKind::Race, ".shared .align 4 .b8 s[4];\nst.shared.u32 [s], %r0;", 2);
    outcome(".shared .align 4 .b8 s[4];\nmov.u32 %r1, 5;\nst.shared.u32 [s], %r1;", 64).unwrap();
    // A plain write beside atomics.
    let count = |between| {
        format!(
            ".shared .align 4 .b8 s[4];\nsetp.eq.u32 %p0, %r0, 0;\n@%p0 st.shared.u32 [s], 0;\n{between}\nred.shared.add.u32 [s], 1;"
        )
    };
    outcome(&count("bar.sync 0;"), 64).unwrap();
    finds(FaultKind::Race, &count(""), 64);
}

#[test]
fn warp_barriers_order_their_own_warp() {
    let own = |between: &str| {
        format!(
            ".shared .align 4 .b8 s[512];\nmov.u32 %r9, s;\nmad.lo.u32 %r1, %r0, 4, %r9;\nst.shared.u32 [%r1], %r0;\n{between}\n\
             xor.b32 %r2, %r0, 1;\nmad.lo.u32 %r3, %r2, 4, %r9;\nld.shared.u32 %r4, [%r3];\n{between}\nst.shared.u32 [%r1], %r4;"
        )
    };
    outcome(&own("bar.warp.sync -1;"), 64).unwrap();
    finds(FaultKind::Race, &own(""), 64);
}

#[test]
fn several_readers_of_a_byte_are_noted() {
    let written = |between: &str| {
        format!(
            ".shared .align 4 .b8 s[4];\nsetp.eq.u32 %p0, %r0, 0;\n@%p0 st.shared.u32 [s], 5;\nbar.sync 0;\n\
             ld.shared.u32 %r1, [s];\n{between}\n@%p0 st.shared.u32 [s], 6;"
        )
    };
    outcome(&written("bar.warp.sync -1;"), 32).unwrap();
    finds(FaultKind::Race, &written(""), 32);
}

#[test]
fn blocks_share_no_memory() {
    let blocks = |body: &str| {
        let text = format!(
            ".shared .align 4 .b8 s[256];\nmov.u32 %r0, %tid.x;\nmov.u32 %r1, %ctaid.x;\nadd.s32 %r2, %r0, %r1;\n\
             and.b32 %r2, %r2, 63;\nmov.u32 %r3, s;\nmad.lo.u32 %r3, %r2, 4, %r3;\nsetp.eq.u32 %p0, %r1, 0;\n{body}"
        );
        Device::kernel(0, &text).launch("test", [2, 1, 1], [64, 1, 1], 0, &[])
    };
    blocks("st.shared.u32 [%r3], %r0;\nld.shared.u32 %r4, [%r3];").unwrap();
    let fault = blocks("@%p0 st.shared.u32 [%r3], %r0;\nld.shared.u32 %r4, [%r3];").unwrap_err();
    assert!(fault.kind == FaultKind::Uninitialised && fault.text.contains("block (1, 0, 0)"), "{fault}");
}

#[test]
fn divergent_barriers_are_found() {
    let guarded = |bound: u32| format!("setp.lt.u32 %p0, %r0, {bound};\n@%p0 bar.sync 0;");
    outcome(&guarded(64), 64).unwrap();
    finds(FaultKind::DivergentBarrier, &guarded(40), 64);
    // Each whole warp waits at a barrier of its own.
    let apart = "setp.lt.u32 %p0, %r0, 32;\n@%p0 bra A;\nbar.sync 0;\nbra B;\nA:\nbar.sync 0;\nB:\n";
    finds(FaultKind::DivergentBarrier, apart, 64);
    outcome(apart, 32).unwrap();
    // The barrier does not wait for warps that have ended.
    outcome("setp.lt.u32 %p0, %r0, 32;\n@%p0 ret;\nbar.sync 0;", 64).unwrap();
}

#[test]
fn warp_instructions_need_their_lanes() {
    outcome("shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1;", 32).unwrap();
    finds(FaultKind::AbsentLanes, "shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1;", 20);
    let parted = "setp.lt.u32 %p0, %r0, 7;\n@%p0 vote.sync.any.pred %p1, %p0, -1;";
    finds(FaultKind::AbsentLanes, parted, 32);
    outcome("setp.lt.u32 %p0, %r0, 7;\n@%p0 vote.sync.any.pred %p1, %p0, 0x7f;", 32).unwrap();
    finds(FaultKind::AbsentLanes, "setp.lt.u32 %p0, %r0, 7;\n@%p0 shfl.sync.idx.b32 %r1, %r0, 9, 31, 0x7f;", 32);
    finds(FaultKind::AbsentLanes, "setp.lt.u32 %p0, %r0, 7;\n@%p0 bar.warp.sync -1;", 32);
    let matrix =
        ".shared .align 16 .b8 s[128];\nmov.u32 %r1, s;\nldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%r1];";
    finds(FaultKind::AbsentLanes, matrix, 31);
}

#[test]
fn copies_under_way_are_left_alone() {
    let copy = |wait: &str, after: &str| {
        format!(
            ".shared .align 16 .b8 s[16];\nmov.u32 %r1, s;\ncp.async.cg.shared.global [%r1], [%d0], 16;\ncp.async.commit_group;\n\
             {wait}\n{after}"
        )
    };
    let read = "ld.shared.u32 %r2, [s];";
    outcome(&copy("cp.async.wait_group 0;", read), 1).unwrap();
    finds(FaultKind::PendingCopy, &copy("", read), 1);
    finds(FaultKind::PendingCopy, &copy("cp.async.wait_group 1;", read), 1);
    finds(FaultKind::PendingCopy, &copy("", "st.shared.u32 [s], %r0;"), 1);
    // Another thread reads this one's completed copy before a barrier.
    let other = |barrier: &str| {
        format!(
            ".shared .align 16 .b8 s[16];\nmov.u32 %r1, s;\nsetp.eq.u32 %p0, %r0, 0;\n\
             @%p0 cp.async.cg.shared.global [%r1], [%d0], 16;\ncp.async.wait_all;\n{barrier}\nld.shared.u32 %r2, [s];"
        )
    };
    outcome(&other("bar.sync 0;"), 64).unwrap();
    finds(FaultKind::Race, &other(""), 64);
}

#[test]
fn trapped_and_endless_kernels_are_stopped() {
    finds(FaultKind::Trap, "setp.eq.u32 %p0, %r0, 3;\n@%p0 trap;", 4);
    finds(FaultKind::Timeout, "LOOP:\nbra LOOP;", 1);
}

#[test]
fn unknown_text_is_refused_with_its_line() {
    let refused = |body: &str| load(&module(0, body), &mut DeviceMemory::default()).unwrap_err().to_string();
    assert_eq!(refused("add.f16x2 %r0, %r1, %r2;"), "PTX line 12: the opcode `add.f16x2` is not covered");
    assert_eq!(refused("\nadd.s32 %r0, %d1, %r2;"), "PTX line 13: `add.s32`: a register of 64 bits where 32 are due");
    assert_eq!(refused("add.s32 %r0, %r1;"), "PTX line 12: `add.s32`: an operand is missing");
    assert_eq!(refused("add.s32 %r0, %r1, %r2, %r3;"), "PTX line 12: `add.s32`: too many operands");
    assert_eq!(refused("mov.u32 %r0, %clock;"), "PTX line 12: `%clock` is no register that is declared or covered");
    assert_eq!(refused("mov.u32 %r99, 0;"), "PTX line 12: `%r99` is no register that is declared or covered");
    assert_eq!(refused("bra NOWHERE;"), "PTX line 12: `bra`: there is no such label");
    assert_eq!(refused("ld.shared.u32 %r0, [p9];"), "PTX line 12: `ld.shared.u32`: there is no variable `p9`");
    assert_eq!(refused("call f;"), "PTX line 12: the opcode `call` is not covered");
    assert_eq!(refused(".branchtargets a;"), "PTX line 12: `.branchtargets` is not covered in a kernel");
    let function = load(".version 9.0\n.func f() {}", &mut DeviceMemory::default()).unwrap_err();
    assert_eq!(function.to_string(), "PTX line 2: `.func` is not covered outside of a kernel");
}
