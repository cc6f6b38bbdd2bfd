//! Loads and launches kernels without a driver.
#![allow(dead_code, reason = "each test uses its part")]

use repartee_simcuda::fault::Fault;
use repartee_simcuda::kernel::{LoadedModule, load};
use repartee_simcuda::memory::DeviceMemory;
use repartee_simcuda::run::{Launch, run};

/// A device with a module.
pub struct Device {
    pub memory: DeviceMemory,
    pub module: LoadedModule,
}

impl Device {
    /// Loads a whole PTX text.
    pub fn load(text: &str) -> Self {
        let mut memory = DeviceMemory::default();
        let module = load(text, &mut memory).unwrap_or_else(|error| panic!("{error}\n{}", numbered(text)));
        Self { memory, module }
    }

    /// Loads a kernel `test` with a body and parameters of 64 bits, `p0` and so on.
    pub fn kernel(params: usize, body: &str) -> Self {
        Self::load(&module(params, body))
    }

    /// Allocates device memory with these bytes.
    pub fn bytes(&mut self, bytes: &[u8]) -> u64 {
        let address = self.memory.alloc(bytes.len()).unwrap();
        self.memory.write(address, bytes).unwrap();
        address
    }

    /// Allocates device memory with these words.
    pub fn words(&mut self, words: &[u64]) -> u64 {
        self.bytes(&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>())
    }

    /// Reads words of device memory.
    pub fn read(&mut self, address: u64, count: usize) -> Vec<u64> {
        let mut bytes = vec![0; count * 8];
        self.memory.read(address, &mut bytes).unwrap();
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
    }

    /// Launches a kernel of the module.
    pub fn launch(
        &mut self,
        name: &str,
        grid: [u32; 3],
        block: [u32; 3],
        shared: usize,
        params: &[u64],
    ) -> Result<(), Fault> {
        let kernel = self.module.kernels[name].clone();
        let mut bytes = vec![0; kernel.param_bytes];
        for ((at, size), value) in kernel.params.iter().zip(params) {
            bytes[*at..at + size].copy_from_slice(&value.to_le_bytes()[..*size]);
        }
        run(&Launch { kernel, grid, block, shared, params: bytes }, &mut self.memory)
    }

    /// Launches `test` with one block of `threads` threads.
    pub fn test(&mut self, threads: u32, params: &[u64]) -> Result<(), Fault> {
        self.launch("test", [1; 3], [threads, 1, 1], 0, params)
    }
}

/// PTX of a module with the kernel `test`.
pub fn module(params: usize, body: &str) -> String {
    let list: Vec<String> = (0..params).map(|index| format!(".param .u64 p{index}")).collect();
    format!(
        ".version 9.0\n.target sm_80\n.address_size 64\n.visible .entry test({})\n{{\n\
         .reg .pred %p<16>;\n.reg .b16 %h<16>;\n.reg .b32 %r<32>;\n.reg .f32 %f<16>;\n.reg .b64 %d<32>;\n.reg .f64 %g<16>;\n\
         {body}\nret;\n}}\n",
        list.join(", ")
    )
}

/// Letter and width of a register's declaration.
fn register(ty: &str) -> (&'static str, u32) {
    match ty {
        "pred" => ("p", 1),
        _ if ty.ends_with("16") => ("h", 16),
        "f32" => ("f", 32),
        "f64" => ("g", 64),
        _ if ty.ends_with("64") => ("d", 64),
        _ => ("r", 32),
    }
}

/// Applies an opcode to each row of sources, all in one warp; returns the results. Types name the registers' widths.
pub fn apply(opcode: &str, to: &str, from: &[&str], rows: &[&[u64]]) -> Vec<u64> {
    assert!(rows.len() <= 32, "one warp");
    let mut body = String::from("ld.param.u64 %d20, [p0];\nld.param.u64 %d21, [p1];\nmov.u32 %r20, %tid.x;\n");
    let count = from.len();
    body += &format!("mul.wide.u32 %d22, %r20, {};\nadd.s64 %d22, %d20, %d22;\n", 8 * count);
    body += "mul.wide.u32 %d23, %r20, 8;\nadd.s64 %d23, %d21, %d23;\n";
    let mut operands = vec![format!("%{}0", register(to).0)];
    for (index, ty) in from.iter().enumerate() {
        let (letter, bits) = register(ty);
        let name = format!("%{letter}{}", index + 1);
        if bits == 1 {
            body += &format!("ld.global.u32 %r21, [%d22+{}];\nsetp.ne.u32 {name}, %r21, 0;\n", 8 * index);
        } else {
            body += &format!("ld.global.b{bits} {name}, [%d22+{}];\n", 8 * index);
        }
        operands.push(name);
    }
    body += &format!("{opcode} {};\n", operands.join(", "));
    let (letter, bits) = register(to);
    match bits {
        1 => body += "selp.u32 %r22, 1, 0, %p0;\ncvt.u64.u32 %d24, %r22;\n",
        16 => body += "cvt.u64.u16 %d24, %h0;\n",
        32 => body += &format!("mov.b32 %r22, %{letter}0;\ncvt.u64.u32 %d24, %r22;\n"),
        _ => body += &format!("mov.b64 %d24, %{letter}0;\n"),
    }
    body += "st.global.u64 [%d23], %d24;\n";
    let mut device = Device::kernel(2, &body);
    let sources = device.words(&rows.concat());
    let out = device.memory.alloc(rows.len() * 8).unwrap();
    device.test(rows.len() as u32, &[sources, out]).unwrap();
    device.read(out, rows.len())
}

fn numbered(text: &str) -> String {
    text.lines().enumerate().map(|(index, line)| format!("{:4} {line}\n", index + 1)).collect()
}
