//! Opcodes within a lane, against the PTX manual.

use crate::support::apply;
use repartee_simcuda::decode::{decode, form};

/// Checks the results of an opcode for pairs of numbers.
fn pairs(opcode: &str, ty: &str, rows: &[[u64; 3]]) {
    let sources: Vec<&[u64]> = rows.iter().map(|row| &row[..2]).collect();
    let wanted: Vec<u64> = rows.iter().map(|row| row[2]).collect();
    assert_eq!(apply(opcode, ty, &[ty, ty], &sources), wanted, "{opcode}");
}

fn f(value: f32) -> u64 {
    u64::from(value.to_bits())
}

fn g(value: f64) -> u64 {
    value.to_bits()
}

/// Checks an opcode with floats in and out.
fn floats(opcode: &str, rows: &[(&[f32], f32)]) {
    let sources: Vec<Vec<u64>> = rows.iter().map(|(row, _)| row.iter().map(|value| f(*value)).collect()).collect();
    let sources: Vec<&[u64]> = sources.iter().map(Vec::as_slice).collect();
    let found = apply(opcode, "f32", &vec!["f32"; sources[0].len()], &sources);
    for (found, (row, wanted)) in found.iter().zip(rows) {
        let value = f32::from_bits(*found as u32);
        assert!(*found == f(*wanted) || (value.is_nan() && wanted.is_nan()), "{opcode} {row:?}: {value} for {wanted}");
    }
}

/// Checks an opcode with one number in and one out.
fn singles(opcode: &str, to: &str, from: &str, rows: &[(u64, u64)]) {
    let sources: Vec<[u64; 1]> = rows.iter().map(|(row, _)| [*row]).collect();
    let sources: Vec<&[u64]> = sources.iter().map(|row| &row[..]).collect();
    let wanted: Vec<u64> = rows.iter().map(|(_, wanted)| *wanted).collect();
    assert_eq!(apply(opcode, to, &[from], &sources), wanted, "{opcode}");
}

#[test]
fn table_and_dispatcher_agree() {
    let lost: Vec<&String> = form::covered().iter().filter(|opcode| decode(opcode).is_none()).collect();
    assert!(lost.is_empty(), "the table lists what nothing carries out: {lost:?}");
    assert!(form::covered().len() > 900, "{} forms are read", form::covered().len());
    for unknown in
        ["add.f16", "add.ftz.f32", "ld.global.b128", "wgmma.fence", "mul.s32", "ld.nc.global.f32", "cvt.f32.u32"]
    {
        assert!(decode(unknown).is_none(), "{unknown}");
    }
}

#[test]
fn integer_sums_wrap() {
    pairs("add.s32", "s32", &[[0xffff_ffff, 1, 0], [0x7fff_ffff, 1, 0x8000_0000]]);
    pairs("add.u16", "u16", &[[0xffff, 2, 1]]);
    pairs("add.s64", "s64", &[[u64::MAX, 2, 1]]);
    pairs("sub.u32", "u32", &[[1, 2, 0xffff_ffff]]);
    pairs("sub.s16", "s16", &[[0x8000, 1, 0x7fff]]);
}

#[test]
fn products_give_the_named_half() {
    pairs("mul.lo.s32", "s32", &[[0x1_0001, 0x1_0001, 0x2_0001], [0xffff_ffff, 5, 0xffff_fffb]]);
    pairs("mul.hi.u32", "u32", &[[0xffff_ffff, 0xffff_ffff, 0xffff_fffe]]);
    pairs("mul.hi.s32", "s32", &[[0xffff_ffff, 2, 0xffff_ffff]]);
    pairs("mul.hi.u64", "u64", &[[u64::MAX, 2, 1]]);
    pairs("mul.hi.s64", "s64", &[[u64::MAX, 2, u64::MAX], [1 << 62, 12, 3]]);
    pairs("mul.hi.s16", "s16", &[[0x8000, 2, 0xffff]]);
    pairs("mul.lo.u64", "u64", &[[1 << 63 | 3, 2, 6]]);
    assert_eq!(apply("mul.wide.s32", "s64", &["s32", "s32"], &[&[0xffff_fffe, 3]]), [-6i64 as u64]);
    assert_eq!(apply("mul.wide.u32", "u64", &["u32", "u32"], &[&[0xffff_fffe, 3]]), [0x2_ffff_fffa]);
    assert_eq!(apply("mul.wide.s16", "s32", &["s16", "s16"], &[&[0xffff, 3]]), [0xffff_fffd]);
    assert_eq!(apply("mad.lo.s32", "s32", &["s32"; 3], &[&[7, 6, 0xffff_ffff]]), [41]);
    assert_eq!(apply("mad.hi.u32", "u32", &["u32"; 3], &[&[1 << 31, 4, 5]]), [7]);
    assert_eq!(apply("mad.wide.u32", "u64", &["u32", "u32", "u64"], &[&[1 << 31, 4, 5]]), [(1 << 33) + 5]);
}

#[test]
fn quotients_follow_signs() {
    pairs("div.s32", "s32", &[[-7i32 as u32 as u64, 2, -3i32 as u32 as u64], [7, 0, 0xffff_ffff]]);
    pairs("rem.s32", "s32", &[[-7i32 as u32 as u64, 2, -1i32 as u32 as u64], [7, 0, 7]]);
    pairs("div.u32", "u32", &[[0xffff_fff9, 2, 0x7fff_fffc]]);
    pairs("div.s64", "s64", &[[-7i64 as u64, 2, -3i64 as u64]]);
    pairs("rem.u64", "u64", &[[17, 5, 2]]);
    pairs("min.s32", "s32", &[[0xffff_ffff, 1, 0xffff_ffff]]);
    pairs("min.u32", "u32", &[[0xffff_ffff, 1, 1]]);
    pairs("max.s64", "s64", &[[u64::MAX, 1, 1]]);
    pairs("max.u16", "u16", &[[0xffff, 1, 0xffff]]);
    singles("neg.s32", "s32", "s32", &[(1, 0xffff_ffff), (1 << 31, 1 << 31)]);
    singles("abs.s16", "s16", "s16", &[(0xffff, 1)]);
}

#[test]
fn bits_are_moved_and_counted() {
    pairs("xor.b32", "b32", &[[0b1100, 0b1010, 0b0110]]);
    pairs("and.b64", "b64", &[[0b1100, 0b1010, 0b1000]]);
    pairs("or.b16", "b16", &[[0b1100, 0b1010, 0b1110]]);
    singles("not.b16", "b16", "b16", &[(1, 0xfffe)]);
    singles("popc.b64", "u32", "b64", &[(u64::MAX, 64)]);
    singles("clz.b32", "u32", "b32", &[(1, 31), (0, 32)]);
    singles("brev.b32", "b32", "b32", &[(1, 1 << 31)]);
    let shift = |opcode, ty, rows: &[&[u64]]| apply(opcode, ty, &[ty, "u32"], rows);
    assert_eq!(shift("shl.b32", "b32", &[&[1, 31], &[1, 32], &[3, 31]]), [1 << 31, 0, 1 << 31]);
    assert_eq!(shift("shr.s32", "s32", &[&[1 << 31, 31], &[1 << 31, 99], &[8, 2]]), [0xffff_ffff, 0xffff_ffff, 2]);
    assert_eq!(shift("shr.u64", "u64", &[&[1 << 63, 63], &[1 << 63, 64]]), [1, 0]);
    assert_eq!(shift("shr.s16", "s16", &[&[0x8000, 15]]), [0xffff]);
    let funnel = |opcode, row: &[u64]| apply(opcode, "b32", &["b32", "b32", "u32"], &[row])[0];
    assert_eq!(funnel("shf.l.wrap.b32", &[0x8000_0000, 1, 1]), 3);
    assert_eq!(funnel("shf.l.clamp.b32", &[7, 1, 40]), 7);
    assert_eq!(funnel("shf.r.wrap.b32", &[2, 1, 33]), 0x8000_0001);
    assert_eq!(funnel("shf.r.clamp.b32", &[2, 9, 40]), 9);
    // a & b | !c, and the parity of three bits.
    assert_eq!(apply("lop3.b32", "b32", &["b32"; 4], &[&[12, 10, 0xffff_fff9, 0xd5]]), [14]);
    assert_eq!(apply("lop3.b32", "b32", &["b32"; 4], &[&[12, 10, 1, 0x96]]), [7]);
}

#[test]
fn fields_are_cut_and_set() {
    let cut = |opcode, ty, row: &[u64]| apply(opcode, ty, &[ty, "u32", "u32"], &[row])[0];
    assert_eq!(cut("bfe.u32", "u32", &[0xabcd_1234, 8, 8]), 0x12);
    assert_eq!(cut("bfe.u32", "u32", &[0xabcd_1234, 28, 8]), 0xa);
    assert_eq!(cut("bfe.s32", "s32", &[0x0000_0f00, 8, 4]), 0xffff_ffff);
    assert_eq!(cut("bfe.s32", "s32", &[0x8000_0000, 28, 8]), 0xffff_fff8);
    assert_eq!(cut("bfe.s32", "s32", &[0xffff_ffff, 3, 0]), 0);
    assert_eq!(cut("bfe.u64", "u64", &[0xab << 40, 40, 8]), 0xab);
    assert_eq!(cut("bfe.s64", "s64", &[1 << 63, 63, 1]), u64::MAX);
    let set = |row: &[u64]| apply("bfi.b32", "b32", &["b32", "b32", "u32", "u32"], &[row])[0];
    assert_eq!(set(&[0x5, 0xffff_ffff, 4, 4]), 0xffff_ff5f);
    assert_eq!(set(&[0xff, 0, 28, 8]), 0xf000_0000);
    assert_eq!(set(&[0xff, 7, 4, 0]), 7);
    let row: &[u64] = &[0x3, 0, 62, 4];
    assert_eq!(apply("bfi.b64", "b64", &["b64", "b64", "u32", "u32"], &[row]), [3 << 62]);
    // Bytes 7 6 5 4 of b and 3 2 1 0 of a; with the eighth bit a byte's sign.
    let permuted = |chosen| apply("prmt.b32", "b32", &["b32"; 3], &[&[0x3322_9100, 0x7766_5544, chosen]])[0];
    assert_eq!(permuted(0x7210), 0x7722_9100);
    assert_eq!(permuted(0x0123), 0x0091_2233);
    assert_eq!(permuted(0x9999), 0xffff_ffff);
    assert_eq!(permuted(0x4440), 0x4444_4400);
}

#[test]
fn float_arithmetic_rounds_once() {
    let tiny = f32::EPSILON / 2.0;
    floats("add.f32", &[(&[1.0, tiny], 1.0), (&[1.0 + f32::EPSILON, tiny], 1.0 + 2.0 * f32::EPSILON)]);
    floats("sub.rn.f32", &[(&[1.0, 3.0], -2.0)]);
    floats("mul.f32", &[(&[3.0, -0.5], -1.5), (&[f32::INFINITY, 0.0], f32::NAN)]);
    let x = 1.0 + f32::EPSILON;
    // A separate product would lose the square's last bit.
    floats("fma.rn.f32", &[(&[x, x, -(1.0 + 2.0 * f32::EPSILON)], f32::EPSILON * f32::EPSILON)]);
    floats("div.rn.f32", &[(&[1.0, 3.0], 1.0 / 3.0), (&[1.0, 0.0], f32::INFINITY)]);
    floats("sqrt.rn.f32", &[(&[2.0], 2.0_f32.sqrt()), (&[-1.0], f32::NAN)]);
    floats("rcp.rn.f32", &[(&[3.0], 1.0 / 3.0)]);
    assert_eq!(apply("fma.rn.f64", "f64", &["f64"; 3], &[&[g(2.0), g(3.0), g(0.5)]]), [g(6.5)]);
    assert_eq!(apply("add.f64", "f64", &["f64"; 2], &[&[g(2.0), g(3.0)]]), [g(5.0)]);
    assert_eq!(apply("max.f64", "f64", &["f64"; 2], &[&[g(2.0), g(f64::NAN)]]), [g(2.0)]);
}

#[test]
fn extremes_treat_nan_as_named() {
    floats("min.f32", &[(&[1.0, f32::NAN], 1.0), (&[0.0, -0.0], -0.0), (&[f32::NAN, f32::NAN], f32::NAN)]);
    floats("max.f32", &[(&[f32::NAN, 1.0], 1.0), (&[-0.0, 0.0], 0.0), (&[-3.0, -4.0], -3.0)]);
    floats("max.NaN.f32", &[(&[f32::NAN, 1.0], f32::NAN), (&[2.0, 1.0], 2.0)]);
    floats("min.NaN.f32", &[(&[1.0, f32::NAN], f32::NAN), (&[2.0, 1.0], 1.0)]);
    floats("neg.f32", &[(&[0.0], -0.0)]);
    floats("abs.f32", &[(&[-2.5], 2.5)]);
    // The sign of the first operand and the size of the second.
    floats("copysign.f32", &[(&[-1.0, 5.0], -5.0), (&[1.0, -5.0], 5.0)]);
}

#[test]
fn approximations_are_exact_where_the_manual_says() {
    floats("ex2.approx.f32", &[(&[3.0], 8.0), (&[f32::NEG_INFINITY], 0.0), (&[-149.0], f32::from_bits(1))]);
    floats("ex2.approx.ftz.f32", &[(&[-149.0], 0.0), (&[-126.0], f32::MIN_POSITIVE)]);
    floats("lg2.approx.f32", &[(&[8.0], 3.0), (&[0.0], f32::NEG_INFINITY), (&[-1.0], f32::NAN)]);
    floats("rcp.approx.f32", &[(&[0.0], f32::INFINITY), (&[4.0], 0.25)]);
    floats("rsqrt.approx.f32", &[(&[4.0], 0.5), (&[0.0], f32::INFINITY), (&[-1.0], f32::NAN)]);
    floats("sqrt.approx.f32", &[(&[9.0], 3.0)]);
    floats("sin.approx.f32", &[(&[0.0], 0.0), (&[f32::INFINITY], f32::NAN)]);
    floats("cos.approx.f32", &[(&[0.0], 1.0), (&[1.0], 1.0_f64.cos() as f32)]);
    floats("tanh.approx.f32", &[(&[f32::INFINITY], 1.0), (&[0.5], 0.5_f64.tanh() as f32)]);
    floats("div.full.f32", &[(&[1.0, 4.0], 0.25)]);
    floats("div.approx.f32", &[(&[1.0, 4.0], 0.25)]);
}

#[test]
fn comparisons_follow_type_and_nan() {
    let compare = |opcode: &str, ty: &str, a, b| apply(opcode, "pred", &[ty, ty], &[&[a, b]])[0] == 1;
    let minus = 0xffff_ffff;
    assert!(compare("setp.lt.s32", "s32", minus, 1) && !compare("setp.lt.u32", "u32", minus, 1));
    assert!(compare("setp.hi.u32", "u32", minus, 1) && compare("setp.ls.u64", "u64", 4, 4));
    assert!(compare("setp.ge.s64", "s64", 3, 3) && !compare("setp.gt.s64", "s64", 3, 3));
    assert!(compare("setp.eq.b32", "b32", 3, 3) && compare("setp.ne.b16", "b16", 3, 4));
    assert!(compare("setp.le.s16", "s16", 0xffff, 0));
    let (one, two, nan) = (f(1.0), f(2.0), f(f32::NAN));
    // Name, then the results for less, equal, greater, and NaN.
    for (name, answers) in [
        ("eq", [false, true, false, false]),
        ("ne", [true, false, true, false]),
        ("lt", [true, false, false, false]),
        ("le", [true, true, false, false]),
        ("gt", [false, false, true, false]),
        ("ge", [false, true, true, false]),
        ("equ", [false, true, false, true]),
        ("neu", [true, false, true, true]),
        ("ltu", [true, false, false, true]),
        ("leu", [true, true, false, true]),
        ("gtu", [false, false, true, true]),
        ("geu", [false, true, true, true]),
        ("num", [true, true, true, false]),
        ("nan", [false, false, false, true]),
    ] {
        let rows: [&[u64]; 4] = [&[one, two], &[two, two], &[two, one], &[one, nan]];
        let found = apply(&format!("setp.{name}.f32"), "pred", &["f32", "f32"], &rows);
        assert_eq!(found, answers.map(u64::from), "{name}");
    }
    let joined =
        |join: &str, c| apply(&format!("setp.lt.{join}.s32"), "pred", &["s32", "s32", "pred"], &[&[1, 2, c]])[0];
    assert_eq!([joined("and", 0), joined("or", 0), joined("xor", 1)], [0, 1, 0]);
    assert_eq!(apply("selp.b32", "b32", &["b32", "b32", "pred"], &[&[5, 6, 1], &[5, 6, 0]]), [5, 6]);
    assert_eq!(apply("xor.pred", "pred", &["pred", "pred"], &[&[1, 0], &[1, 1]]), [1, 0]);
    assert_eq!(apply("not.pred", "pred", &["pred"], &[&[1], &[0]]), [0, 1]);
}

#[test]
fn conversions_of_integers_cut_or_clamp() {
    singles("cvt.s64.s32", "s64", "s32", &[(0xffff_fffe, u64::MAX - 1)]);
    singles("cvt.u64.u32", "u64", "u32", &[(0xffff_fffe, 0xffff_fffe)]);
    singles("cvt.u32.u64", "u32", "u64", &[(0x1_2345_6789, 0x2345_6789)]);
    singles("cvt.s32.s8", "s32", "s32", &[(0x80, 0xffff_ff80)]);
    singles("cvt.u32.u8", "u32", "u32", &[(0x1ff, 0xff)]);
    singles("cvt.u16.u32", "u16", "u32", &[(0x1_2345, 0x2345)]);
    singles("cvt.sat.u8.s32", "u32", "s32", &[(300, 255), (0xffff_ffff, 0)]);
    singles("cvt.sat.s16.s32", "s16", "s32", &[(40_000, 0x7fff)]);
}

#[test]
fn conversions_between_integers_and_floats_round() {
    singles("cvt.rn.f32.s32", "f32", "s32", &[(0xffff_ffff, f(-1.0)), (16_777_217, f(16_777_216.0))]);
    singles("cvt.rn.f32.u64", "f32", "u64", &[(u64::MAX, f(18_446_744_073_709_551_616.0))]);
    singles("cvt.rn.f64.s64", "f64", "s64", &[(u64::MAX, g(-1.0))]);
    let to = |opcode, value| apply(opcode, "s32", &["f32"], &[&[f(value)]])[0] as i32;
    assert_eq!([to("cvt.rni.s32.f32", 2.5), to("cvt.rni.s32.f32", 3.5)], [2, 4]);
    assert_eq!([to("cvt.rzi.s32.f32", -2.7), to("cvt.rmi.s32.f32", -2.2), to("cvt.rpi.s32.f32", 2.2)], [-2, -3, 3]);
    assert_eq!([to("cvt.rzi.s32.f32", f32::NAN), to("cvt.rzi.s32.f32", 1e20)], [0, i32::MAX]);
    singles("cvt.rzi.u32.f32", "u32", "f32", &[(f(-3.0), 0), (f(4e9), 4_000_000_000)]);
    singles("cvt.rzi.u64.f64", "u64", "f64", &[(g(1e30), u64::MAX)]);
    floats("cvt.rni.f32.f32", &[(&[2.5], 2.0), (&[-3.5], -4.0)]);
    floats("cvt.rzi.f32.f32", &[(&[-2.9], -2.0)]);
    floats("cvt.rmi.f32.f32", &[(&[-2.1], -3.0)]);
    floats("cvt.sat.f32.f32", &[(&[2.0], 1.0), (&[-1.0], 0.0), (&[f32::NAN], 0.0), (&[0.25], 0.25)]);
    singles("cvt.f64.f32", "f64", "f32", &[(f(0.1), g(f64::from(0.1f32)))]);
    singles("cvt.rn.f32.f64", "f32", "f64", &[(g(0.1), f(0.1))]);
}

#[test]
fn halves_round_to_nearest_even() {
    // 1 + 2^-8 lies in the middle of two bf16, 1 + 3 * 2^-8 too.
    let bf16 = [
        (1.0 + 1.0 / 256.0, 0x3f80),
        (1.0 + 3.0 / 256.0, 0x3f82),
        (f32::NAN, 0x7fff),
        (f32::MAX, 0x7f80),
        (-2.0, 0xc000),
    ];
    singles("cvt.rn.bf16.f32", "b16", "f32", &bf16.map(|(value, bits)| (f(value), bits)));
    singles("cvt.rz.bf16.f32", "b16", "f32", &[(f(1.0 + 3.0 / 256.0), 0x3f81)]);
    let f16 = [
        (1.0, 0x3c00),
        (65_504.0, 0x7bff),
        (65_520.0, 0x7c00),
        (65_519.0, 0x7bff),
        (5.960_464_5e-8, 1),
        (2.980_232_2e-8, 0),
        (6.1e-5, 0x03ff),
        (-0.0, 0x8000),
        (f32::INFINITY, 0x7c00),
        (f32::NAN, 0x7fff),
        (1.0 + 1.0 / 2048.0, 0x3c00),
        (1.0 + 3.0 / 2048.0, 0x3c02),
        (2047.9 / 1024.0, 0x4000),
    ];
    singles("cvt.rn.f16.f32", "b16", "f32", &f16.map(|(value, bits)| (f(value), bits)));
    singles("cvt.rz.f16.f32", "b16", "f32", &[(f(65_520.0), 0x7bff), (f(2047.9 / 1024.0), 0x3fff)]);
    singles(
        "cvt.f32.f16",
        "f32",
        "b16",
        &[(0x3c00, f(1.0)), (1, f(2f32.powi(-24))), (0xfc00, f(f32::NEG_INFINITY)), (0x7bff, f(65_504.0))],
    );
    assert_eq!(apply("cvt.rn.bf16x2.f32", "b32", &["f32", "f32"], &[&[f(1.0), f(2.0)]]), [0x3f80_4000]);
    assert_eq!(apply("cvt.rn.f16x2.f32", "b32", &["f32", "f32"], &[&[f(1.0), f(2.0)]]), [0x3c00_4000]);
}

#[test]
fn every_f16_comes_back_from_f32() {
    use repartee_simcuda::decode::half::{f16, of_f16};
    for bits in 0..=u16::MAX {
        let value = of_f16(bits);
        assert!(value.is_nan() || f16(value, true) == bits && f16(value, false) == bits, "{bits:#06x} {value}");
    }
}
