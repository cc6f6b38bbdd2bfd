//! Checks the covered PTX, and that of the tests, with NVIDIA's assembler.
//!
//! It comes with the CUDA compiler, so `make test-cuda` runs these tests and `make test` lists them as ignored.

use repartee_simcuda::decode::form::covered;
use repartee_simcuda::decode::kind::{Operation, Vote};
use repartee_simcuda::decode::{decode, kind::Reduce};
use repartee_simcuda::ptx::{Space, Ty};

/// Name of a register with this number and a type's width.
fn register(ty: Ty, number: usize) -> String {
    let letter = match ty {
        Ty::Pred => 'p',
        Ty::F(32) => 'f',
        Ty::F(64) => 'g',
        _ if ty.bits() <= 16 => 'h',
        _ if ty.bits() == 64 => 'd',
        _ => 'r',
    };
    format!("%{letter}{number}")
}

fn list(to: Ty, from: &[Ty]) -> String {
    let sources = from.iter().enumerate().map(|(index, ty)| register(*ty, index + 1));
    std::iter::once(register(to, 0)).chain(sources).collect::<Vec<_>>().join(", ")
}

fn vector(ty: Ty, count: usize) -> String {
    let parts: Vec<String> = (0..count).map(|number| register(ty, number)).collect();
    if count == 1 { parts[0].clone() } else { format!("{{{}}}", parts.join(", ")) }
}

/// Operands that fit an operation, in the manual's syntax.
fn operands(kind: Operation) -> String {
    let word = Ty::B(32);
    match kind {
        Operation::Map1(_, to, from) => list(to, &from),
        Operation::Map2(_, to, from) => list(to, &from),
        Operation::Map3(_, to, from) => list(to, &from),
        // The last operand of `lop3` is a constant.
        Operation::Map4(_, to, [a, b, Ty::B(_), _]) => format!("{}, %r3, 150", list(to, &[a, b])),
        Operation::Map4(_, to, from) => list(to, &from),
        Operation::Compare(_, ty, join) => {
            let joined = if join.is_some() { ", !%p3" } else { "" };
            format!("%p0|%p1, {}, {}{joined}", register(ty, 1), register(ty, 2))
        }
        Operation::Move(ty) => list(ty, &[ty]),
        Operation::Convert(convert) => list(convert.to, &[convert.from]),
        Operation::Window(..) => list(Ty::U(64), &[Ty::U(64)]),
        Operation::Load(Space::Param, ty, count) => format!("{}, [p0]", vector(ty, count)),
        Operation::Load(_, ty, count) => format!("{}, [%d8+-32]", vector(ty, count)),
        Operation::Store(_, ty, count) => format!("[%d8], {}", vector(ty, count)),
        Operation::Atomic { ty, compares, returns, .. } => {
            let old = if returns { register(ty, 0) + ", " } else { String::new() };
            let second = if compares { format!(", {}", register(ty, 2)) } else { String::new() };
            format!("{old}[%d8], {}{second}", register(ty, 1))
        }
        Operation::Branch => "END".to_owned(),
        Operation::Exit | Operation::Trap | Operation::Fence | Operation::CopyCommit | Operation::CopyWait(true) => {
            String::new()
        }
        Operation::Barrier => "0".to_owned(),
        Operation::BarrierReduce(Reduce::Count) => "%r0, 0, %p1".to_owned(),
        Operation::BarrierReduce(_) => "%p0, 0, !%p1".to_owned(),
        Operation::WarpBarrier => "-1".to_owned(),
        Operation::Shuffle(_) => "%r0|%p0, %r1, %r2, 31, -1".to_owned(),
        Operation::Vote(Vote::Ballot) => "%r0, %p1, -1".to_owned(),
        Operation::Vote(_) => "%p0, %p1, -1".to_owned(),
        Operation::Redux(..) => "%r0, %r1, -1".to_owned(),
        Operation::ActiveMask => "%r0".to_owned(),
        Operation::LoadMatrix(count, _) => {
            format!("{}, [%r8]", if count == 1 { "{%r0}".to_owned() } else { vector(word, count) })
        }
        Operation::Mma => "{%f0, %f1, %f2, %f3}, {%r0, %r1, %r2, %r3}, {%r4, %r5}, {%f4, %f5, %f6, %f7}".to_owned(),
        Operation::CopyAsync(_) => "[%r8], [%d8], 16, %r1".to_owned(),
        Operation::CopyWait(false) => "1".to_owned(),
    }
}

const HEAD: &str = ".version 9.0\n.target sm_80\n.address_size 64\n.visible .entry test(.param .align 16 .b8 p0[64])\n{\n\
     .reg .pred %p<9>;\n.reg .b16 %h<9>;\n.reg .b32 %r<9>;\n.reg .f32 %f<9>;\n.reg .b64 %d<9>;\n.reg .f64 %g<9>;\n";

#[test]
#[ignore = "needs the CUDA compiler: make test-cuda"]
fn covered_forms_are_ptx() {
    let mut forms: Vec<&String> = covered().iter().collect();
    forms.sort();
    let lines: Vec<String> = forms.iter().map(|form| format!("{form} {};", operands(decode(form).unwrap()))).collect();
    let text = format!("{HEAD}{}\nEND: ret;\n}}\n", lines.join("\n"));
    let said = crate::nvcc::assemble(&text).err().unwrap_or_default();
    assert_eq!(said, "");
    // Our own parser accepts the same text.
    repartee_simcuda::kernel::load(&text, &mut repartee_simcuda::memory::DeviceMemory::default()).unwrap();
    // The assembler does reject a wrong instruction.
    let wrong = format!("{HEAD}add.s32 %r0, %r1, %d2;\nret;\n}}\n");
    assert!(crate::nvcc::assemble(&wrong).unwrap_err().contains("Arguments mismatch"));
}

#[test]
#[ignore = "needs the CUDA compiler: make test-cuda"]
fn test_module_is_ptx() {
    assert_eq!(crate::nvcc::assemble(include_str!("../cudarc.ptx")), Ok(()));
}
