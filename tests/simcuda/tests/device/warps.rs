//! Control flow, memory, and warp-wide instructions.

use crate::support::Device;

/// Runs a body that leaves a result in `%r0`; returns each thread's.
fn per_thread(body: &str, threads: u32) -> Vec<u32> {
    let mut device = Device::kernel(
        1,
        &format!(
            "ld.param.u64 %d20, [p0];\nmov.u32 %r20, %tid.x;\nmul.wide.u32 %d21, %r20, 8;\nadd.s64 %d20, %d20, %d21;\n\
             {body}\ncvt.u64.u32 %d22, %r0;\nst.global.u64 [%d20], %d22;"
        ),
    );
    let out = device.memory.alloc(threads as usize * 8).unwrap();
    device.test(threads, &[out]).unwrap();
    device.read(out, threads as usize).into_iter().map(|word| word as u32).collect()
}

fn lanes(of: impl FnMut(u32) -> u32) -> Vec<u32> {
    (0..32).map(of).collect()
}

#[test]
fn parted_lanes_meet_again() {
    let found = per_thread(
        "mov.u32 %r0, 0;\nand.b32 %r1, %r20, 1;\nsetp.eq.s32 %p0, %r1, 0;\n@%p0 bra EVEN;\n\
         add.s32 %r0, %r0, 10;\nbra JOIN;\nEVEN:\nadd.s32 %r0, %r0, 20;\nJOIN:\nactivemask.b32 %r2;\n\
         setp.eq.u32 %p1, %r2, -1;\n@!%p1 mov.u32 %r0, 999;",
        32,
    );
    assert_eq!(found, lanes(|lane| if lane % 2 == 0 { 20 } else { 10 }));
}

#[test]
fn loops_end_lane_by_lane() {
    let body = "mov.u32 %r0, 0;\nmov.u32 %r1, 0;\nLOOP:\nadd.s32 %r0, %r0, %r1;\nadd.s32 %r1, %r1, 1;\n\
         setp.le.u32 %p0, %r1, %r20;\n@%p0 bra LOOP;\nmov.u32 %r2, %r0;\nshfl.sync.bfly.b32 %r3, %r2, 0, 31, -1;\n";
    assert_eq!(per_thread(body, 32), lanes(|lane| lane * (lane + 1) / 2));
}

#[test]
fn ended_lanes_write_nothing_more() {
    let body =
        "mov.u32 %r0, 7;\nsetp.gt.u32 %p0, %r20, 3;\ncvt.u64.u32 %d3, %r20;\nst.global.u64 [%d20], %d3;\n@%p0 ret;";
    assert_eq!(per_thread(body, 8), [7, 7, 7, 7, 4, 5, 6, 7]);
}

#[test]
fn shuffles_follow_the_manual() {
    let shuffle = |mode: &str, b: u32, c: u32| {
        per_thread(
            &format!(
                "add.s32 %r1, %r20, 100;\nshfl.sync.{mode}.b32 %r2|%p0, %r1, {b}, {c}, -1;\nselp.u32 %r3, 1000, 0, %p0;\n\
                 add.s32 %r0, %r2, %r3;"
            ),
            32,
        )
    };
    assert_eq!(shuffle("bfly", 5, 31), lanes(|lane| 1100 + (lane ^ 5)));
    assert_eq!(shuffle("up", 3, 0), lanes(|lane| if lane >= 3 { 1100 + lane - 3 } else { 100 + lane }));
    assert_eq!(shuffle("down", 3, 31), lanes(|lane| if lane + 3 < 32 { 1100 + lane + 3 } else { 100 + lane }));
    assert_eq!(shuffle("idx", 9, 31), lanes(|_| 1109));
    // Segments of eight lanes: the mask 11000 in the upper half of c.
    let segment = 0b11000 << 8;
    assert_eq!(shuffle("idx", 2, segment | 31), lanes(|lane| 1100 + lane / 8 * 8 + 2));
    assert_eq!(shuffle("down", 6, segment | 31), lanes(|lane| if lane % 8 < 2 { 1100 + lane + 6 } else { 100 + lane }));
    assert_eq!(shuffle("up", 6, segment), lanes(|lane| if lane % 8 >= 6 { 1100 + lane - 6 } else { 100 + lane }));
}

#[test]
fn votes_and_reductions_count_all_lanes() {
    let vote = |form: &str, below: u32| {
        per_thread(
            &format!("setp.lt.u32 %p0, %r20, {below};\nvote.sync.{form}.pred %p1, %p0, -1;\nselp.u32 %r0, 1, 0, %p1;"),
            32,
        )[9]
    };
    assert_eq!([vote("all", 32), vote("all", 31), vote("any", 1), vote("any", 0)], [1, 0, 1, 0]);
    assert_eq!([vote("uni", 32), vote("uni", 0), vote("uni", 5)], [1, 1, 0]);
    let ballot = per_thread("setp.lt.u32 %p0, %r20, 5;\nvote.sync.ballot.b32 %r0, %p0, -1;", 32);
    assert_eq!(ballot, [31; 32]);
    let redux = |form: &str| per_thread(&format!("sub.s32 %r1, %r20, 3;\nredux.sync.{form} %r0, %r1, -1;"), 32)[4];
    assert_eq!(redux("add.s32"), (0..32).sum::<u32>() - 96);
    assert_eq!(
        [redux("max.s32"), redux("max.u32"), redux("min.s32"), redux("min.u32")],
        [28, u32::MAX, u32::MAX - 2, 0]
    );
    assert_eq!(
        [redux("or.b32"), redux("and.b32"), redux("xor.b32")],
        [u32::MAX, 0, (0..32).fold(0, |x, l: u32| x ^ l.wrapping_sub(3))]
    );
}

#[test]
fn special_registers_tell_the_place() {
    let mut device = Device::kernel(
        1,
        "ld.param.u64 %d0, [p0];\nmov.u32 %r0, %ctaid.y;\nmov.u32 %r1, %nctaid.x;\nmov.u32 %r2, %ctaid.x;\n\
         mad.lo.u32 %r3, %r0, %r1, %r2;\nmov.u32 %r4, %ntid.x;\nmov.u32 %r5, %ntid.y;\nmul.lo.u32 %r6, %r4, %r5;\n\
         mov.u32 %r7, %tid.y;\nmov.u32 %r8, %tid.x;\nmad.lo.u32 %r9, %r7, %r4, %r8;\nmad.lo.u32 %r10, %r3, %r6, %r9;\n\
         mul.wide.u32 %d1, %r10, 8;\nadd.s64 %d2, %d0, %d1;\nmov.u32 %r11, %laneid;\nmov.u32 %r12, %warpid;\n\
         mov.u32 %r13, %lanemask_lt;\nmad.lo.u32 %r14, %r12, 100, %r11;\ncvt.u64.u32 %d3, %r13;\nshl.b64 %d4, %d3, 32;\n\
         cvt.u64.u32 %d5, %r14;\nor.b64 %d6, %d4, %d5;\nst.global.u64 [%d2], %d6;",
    );
    let out = device.memory.alloc(6 * 40 * 8).unwrap();
    device.launch("test", [3, 2, 1], [8, 5, 1], 0, &[out]).unwrap();
    let place = |thread: u64| (thread % 32 + thread / 32 * 100) | ((1 << (thread % 32)) - 1) << 32;
    assert_eq!(device.read(out, 240), (0..240).map(|index| place(index % 40)).collect::<Vec<_>>());
}

#[test]
fn parameters_lie_by_size_and_alignment() {
    let mut device = Device::load(
        ".version 9.0\n.target sm_80\n.address_size 64\n.visible .entry test(.param .u8 a, .param .u64 b, .param .u16 c, \
         .param .align 8 .b8 d[12], .param .u64 .ptr .global .align 16 e)\n{\n.reg .b32 %r<9>;\n.reg .b64 %d<9>;\n\
         ld.param.u8 %r0, [a];\nld.param.u64 %d0, [b];\nld.param.u16 %r1, [c];\nld.param.u32 %r2, [d+8];\nld.param.u64 %d1, [e];\n\
         cvt.u64.u32 %d2, %r0;\ncvt.u64.u32 %d3, %r1;\ncvt.u64.u32 %d4, %r2;\nst.global.v2.u64 [%d1], {%d2, %d0};\n\
         st.global.v2.u64 [%d1+16], {%d3, %d4};\nret;\n}",
    );
    let kernel = device.module.kernels["test"].clone();
    assert_eq!(kernel.params, [(0, 1), (8, 8), (16, 2), (24, 12), (40, 8)]);
    let out = device.memory.alloc(32).unwrap();
    let mut params = vec![0xee; 48];
    params[8..16].copy_from_slice(&7u64.to_le_bytes());
    params[32..36].copy_from_slice(&9u32.to_le_bytes());
    params[40..].copy_from_slice(&out.to_le_bytes());
    let launch = repartee_simcuda::run::Launch { kernel, grid: [1; 3], block: [1; 3], shared: 0, params };
    repartee_simcuda::run::run(&launch, &mut device.memory).unwrap();
    assert_eq!(device.read(out, 4), [0xee, 7, 0xeeee, 9]);
}

#[test]
fn loads_extend_and_vectors_keep_order() {
    let mut device = Device::kernel(
        2,
        "ld.param.u64 %d0, [p0];\nld.param.u64 %d1, [p1];\nld.global.s8 %r0, [%d0+7];\nld.global.u8 %r1, [%d0+7];\n\
         cvt.u64.u32 %d2, %r0;\ncvt.u64.u32 %d3, %r1;\nld.global.nc.v4.u32 {%r2, %r3, %r4, %r5}, [%d0+16];\n\
         mov.b64 %d4, {%r2, %r5};\nmov.b64 {%r6, %r7}, %d4;\nmov.b64 %d5, {%r7, %r6};\n\
         st.global.v2.u64 [%d1], {%d2, %d3};\nst.global.v2.b64 [%d1+16], {%d4, %d5};",
    );
    let source = device.words(&[0x8000_0000_0000_0000, 0, 2 << 32 | 1, 4 << 32 | 3]);
    let out = device.memory.alloc(32).unwrap();
    device.test(1, &[source, out]).unwrap();
    assert_eq!(device.read(out, 4), [0xffff_ff80, 0x80, 4 << 32 | 1, 1 << 32 | 4]);
}

#[test]
fn variables_have_places_and_values() {
    let mut device = Device::load(
        ".version 9.0\n.target sm_80\n.address_size 64\n.const .align 4 .b32 table[3] = {5, 6, 7};\n\
         .global .align 8 .u64 count;\n.extern .shared .align 16 .b8 dynamic[];\n\
         .visible .entry test(.param .u64 p0)\n{\n.local .align 8 .b8 depot[16];\n.shared .align 4 .b8 fixed[20];\n\
         .reg .b32 %r<9>;\n.reg .b64 %d<19>;\nld.param.u64 %d0, [p0];\nld.const.u32 %r0, [table+8];\n\
         mov.u64 %d1, count;\natom.global.add.u64 %d2, [%d1], 3;\nld.global.u64 %d3, [count];\n\
         mov.u64 %d4, depot;\ncvta.local.u64 %d5, %d4;\nst.u32 [%d5+8], %r0;\nld.local.u32 %r1, [%d4+8];\n\
         mov.u32 %r2, dynamic;\nst.shared.u32 [%r2+4], %r1;\nmov.u64 %d6, dynamic;\ncvta.shared.u64 %d7, %d6;\n\
         ld.u32 %r3, [%d7+4];\nst.shared.u32 [fixed+16], %r3;\nld.shared.u32 %r4, [fixed+16];\n\
         mul.lo.u32 %r5, %r4, 100;\nadd.s32 %r6, %r5, %r2;\ncvt.u64.u32 %d8, %r6;\nst.global.v2.u64 [%d0], {%d3, %d8};\nret;\n}",
    );
    let out = device.memory.alloc(16).unwrap();
    device.launch("test", [1; 3], [1; 3], 8, &[out]).unwrap();
    // Dynamic shared memory lies behind the 20 fixed bytes, aligned.
    assert_eq!(device.read(out, 2), [3, 732]);
    assert_eq!(device.module.globals["count"].1, 8);
}

#[test]
fn atomics_see_every_lane() {
    let atomic = |form: &str, start: u64, operand: &str| {
        let mut device = Device::kernel(
            1,
            &format!(
                "ld.param.u64 %d0, [p0];\nmov.u32 %r0, %tid.x;\ncvt.rn.f32.u32 %f0, %r0;\nred.global.{form} [%d0], {operand};"
            ),
        );
        let place = device.words(&[start]);
        device.test(40, &[place]).unwrap();
        device.read(place, 1)[0]
    };
    assert_eq!(atomic("add.u32", 5, "%r0"), 5 + 39 * 40 / 2);
    assert_eq!(atomic("max.s32", 0xffff_ffff, "%r0"), 39);
    assert_eq!(atomic("min.u32", 0xffff_ffff, "%r0"), 0);
    assert_eq!(atomic("or.b32", 0, "%r0"), 63);
    assert_eq!(atomic("add.f32", 0, "%f0"), u64::from(780f32.to_bits()));
    let mut device = Device::kernel(
        2,
        "ld.param.u64 %d0, [p0];\nld.param.u64 %d1, [p1];\nmov.u32 %r0, %tid.x;\natom.global.cas.b32 %r1, [%d0], 7, %r0;\n\
         mul.wide.u32 %d2, %r0, 8;\nadd.s64 %d3, %d1, %d2;\ncvt.u64.u32 %d4, %r1;\nst.global.u64 [%d3], %d4;",
    );
    let (place, out) = (device.words(&[7]), device.memory.alloc(3 * 8).unwrap());
    device.test(3, &[place, out]).unwrap();
    // The first lane finds 7 and writes 0.
    assert_eq!(device.read(out, 3), [7, 0, 0]);
}

#[test]
fn barriers_order_shared_memory() {
    // Each thread writes its number; after the barrier each reads that of the thread on the other side of the block.
    let mut device = Device::kernel(
        1,
        ".shared .align 4 .b8 tile[256];\nld.param.u64 %d0, [p0];\nmov.u32 %r0, %tid.x;\nshl.b32 %r1, %r0, 2;\nmov.u32 %r2, tile;\n\
         add.s32 %r3, %r2, %r1;\nst.shared.u32 [%r3], %r0;\nbar.sync 0;\nsub.s32 %r4, 252, %r1;\nadd.s32 %r5, %r2, %r4;\n\
         ld.shared.u32 %r6, [%r5];\nsetp.lt.u32 %p0, %r6, 10;\nbar.red.or.pred %p1, 0, %p0;\nbar.red.and.pred %p2, 0, %p0;\n\
         bar.red.popc.u32 %r7, 0, %p0;\nselp.u32 %r8, 1000, 0, %p1;\nselp.u32 %r9, 5000, 0, %p2;\nadd.s32 %r6, %r6, %r8;\n\
         add.s32 %r6, %r6, %r9;\nmad.lo.u32 %r6, %r7, 10000, %r6;\nmul.wide.u32 %d1, %r0, 8;\nadd.s64 %d2, %d0, %d1;\n\
         cvt.u64.u32 %d3, %r6;\nst.global.u64 [%d2], %d3;",
    );
    let out = device.memory.alloc(64 * 8).unwrap();
    device.test(64, &[out]).unwrap();
    assert_eq!(device.read(out, 64), (0..64).map(|thread| 101_000 + 63 - thread).collect::<Vec<_>>());
}

#[test]
fn asynchronous_copies_land_when_waited_for() {
    let mut device = Device::kernel(
        2,
        ".shared .align 16 .b8 tile[64];\nld.param.u64 %d0, [p0];\nld.param.u64 %d1, [p1];\nmov.u32 %r0, tile;\n\
         cp.async.cg.shared.global [%r0], [%d0], 16;\ncp.async.commit_group;\n\
         cp.async.ca.shared.global [%r0+16], [%d0+8], 8, 4;\ncp.async.commit_group;\n\
         cp.async.wait_group 1;\nld.shared.u64 %d2, [tile+8];\ncp.async.wait_all;\nld.shared.u64 %d3, [tile+16];\n\
         st.global.v2.u64 [%d1], {%d2, %d3};",
    );
    let source = device.words(&[1, 0x2222_2222_3333_3333]);
    let out = device.memory.alloc(16).unwrap();
    device.test(1, &[source, out]).unwrap();
    // The second copy reads four bytes; the others are zeros.
    assert_eq!(device.read(out, 2), [0x2222_2222_3333_3333, 0x3333_3333]);
}

/// A bf16 of a small whole number.
fn bf16(value: i32) -> u16 {
    (((value as f32).to_bits()) >> 16) as u16
}

#[test]
fn matrices_are_loaded_and_multiplied() {
    // a is 16 by 16, b is given as 8 columns of 16; both through shared memory, as in a kernel.
    let a = |row: i32, k: i32| (row * 3 + k * 5) % 7 - 3;
    let b = |k: i32, column: i32| (k * 2 + column * 3) % 5 - 2;
    for transposed in [false, true] {
        // In the second layout b is in rows of 8, and ldmatrix transposes it.
        let (load, place) = if transposed {
            ("x2.trans", "and.b32 %r4, %r0, 15;\nmad.lo.u32 %r5, %r4, 16, %r3;")
        } else {
            (
                "x2",
                "and.b32 %r4, %r0, 7;\nshr.u32 %r5, %r0, 3;\nand.b32 %r5, %r5, 1;\nmad.lo.u32 %r5, %r5, 16, %r3;\nmad.lo.u32 %r5, %r4, 32, %r5;",
            )
        };
        let mut device = Device::kernel(
            3,
            &format!(
                ".shared .align 16 .b8 at[512];\n.shared .align 16 .b8 bt[256];\nld.param.u64 %d0, [p0];\nld.param.u64 %d1, [p1];\n\
                 ld.param.u64 %d2, [p2];\nmov.u32 %r0, %tid.x;\nmul.wide.u32 %d3, %r0, 16;\nadd.s64 %d4, %d0, %d3;\n\
                 mul.wide.u32 %d5, %r0, 8;\nadd.s64 %d6, %d1, %d5;\nmov.u32 %r2, at;\nmov.u32 %r3, bt;\n\
                 mad.lo.u32 %r6, %r0, 16, %r2;\nld.global.v2.b64 {{%d7, %d8}}, [%d4];\nst.shared.v2.b64 [%r6], {{%d7, %d8}};\n\
                 mad.lo.u32 %r7, %r0, 8, %r3;\nld.global.b64 %d9, [%d6];\nst.shared.b64 [%r7], %d9;\nbar.sync 0;\n\
                 and.b32 %r8, %r0, 15;\nshr.u32 %r9, %r0, 4;\nmad.lo.u32 %r10, %r8, 32, %r2;\nmad.lo.u32 %r10, %r9, 16, %r10;\n\
                 ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r11, %r12, %r13, %r14}}, [%r10];\n{place}\n\
                 ldmatrix.sync.aligned.m8n8.{load}.shared.b16 {{%r15, %r16}}, [%r5];\nmov.f32 %f4, 0f3F000000;\n\
                 mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {{%f0, %f1, %f2, %f3}}, {{%r11, %r12, %r13, %r14}}, \
                 {{%r15, %r16}}, {{%f4, %f4, %f4, %f4}};\nmul.wide.u32 %d10, %r0, 16;\nadd.s64 %d11, %d2, %d10;\n\
                 st.global.v4.f32 [%d11], {{%f0, %f1, %f2, %f3}};"
            ),
        );
        let bytes = |values: Vec<u16>| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        let left = bytes((0..256).map(|i| bf16(a(i / 16, i % 16))).collect());
        let right =
            bytes((0..128).map(|i| if transposed { bf16(b(i / 8, i % 8)) } else { bf16(b(i % 16, i / 16)) }).collect());
        let (left, right) = (device.bytes(&left), device.bytes(&right));
        let out = device.memory.alloc(512).unwrap();
        device.test(32, &[left, right, out]).unwrap();
        for lane in 0..32 {
            let words = device.read(out + lane * 16, 2);
            for part in 0..4 {
                let found = f32::from_bits((words[part as usize / 2] >> (32 * (part % 2))) as u32);
                let (row, column) = (lane as i32 / 4 + part / 2 * 8, lane as i32 % 4 * 2 + part % 2);
                let wanted = (0..16).map(|k| a(row, k) * b(k, column)).sum::<i32>() as f32 + 0.5;
                assert_eq!(found, wanted, "row {row} column {column}");
            }
        }
    }
}
