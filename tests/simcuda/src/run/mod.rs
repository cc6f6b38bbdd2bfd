//! Runs a launch: block after block, and the warps of a block in turn from barrier to barrier.

mod access;
mod collective;
mod copies;
mod matrix;
mod warp;

use std::sync::Arc;

use crate::fault::{Fault, FaultKind};
use crate::kernel::Kernel;
use crate::memory::DeviceMemory;
use crate::shared::Shared;

use warp::{BarrierWait, Warp};

/// Instruction budget of a warp in one block; beyond it the kernel counts as endless.
const BUDGET: u64 = 1 << 26;

/// A kernel with its launch parameters.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Kernel to run.
    pub kernel: Arc<Kernel>,
    /// Blocks by axis.
    pub grid: [u32; 3],
    /// Threads of a block by axis.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared: usize,
    /// Bytes of the parameter space.
    pub params: Vec<u8>,
}

/// Shared state of the warps of a block.
struct Block<'a> {
    launch: &'a Launch,
    memory: &'a mut DeviceMemory,
    shared: Shared,
    index: [u32; 3],
    epoch: u32,
}

/// Runs a launch.
///
/// # Errors
/// The first fault, with the kernel, the line, the block and the thread.
pub fn run(launch: &Launch, memory: &mut DeviceMemory) -> Result<(), Fault> {
    let shared = Shared::new(launch.kernel.static_shared + launch.shared);
    let mut block = Block { launch, memory, shared, index: [0; 3], epoch: 0 };
    let threads = launch.block.iter().product::<u32>();
    for z in 0..launch.grid[2] {
        for y in 0..launch.grid[1] {
            for x in 0..launch.grid[0] {
                block.index = [x, y, z];
                block.shared.reset();
                block.epoch += 1;
                let warps = (0..threads.div_ceil(32)).map(|index| Warp::new(index, launch)).collect();
                block.run(warps)?;
            }
        }
    }
    Ok(())
}

impl Block<'_> {
    fn run(&mut self, mut warps: Vec<Warp>) -> Result<(), Fault> {
        loop {
            for warp in &mut warps {
                warp.run(self)?;
            }
            let waiting: Vec<(&Warp, BarrierWait)> =
                warps.iter().filter_map(|warp| warp.waiting.map(|waiting| (warp, waiting))).collect();
            let Some((_, first)) = waiting.first() else { return Ok(()) };
            if let Some((warp, other)) = waiting.iter().find(|(_, other)| other.pc != first.pc) {
                let line = |pc: usize| self.launch.kernel.code[pc].line;
                let text = format!(
                    "its warp waits at the barrier in line {}, another one in line {}",
                    line(other.pc),
                    line(first.pc)
                );
                return Err(self.place(Fault::new(FaultKind::DivergentBarrier, text), warp, other.pc, 0));
            }
            let sum = waiting.iter().map(|(_, waiting)| waiting.count).sum();
            let of = waiting.iter().map(|(_, waiting)| waiting.lanes).sum();
            self.epoch += 1;
            for warp in &mut warps {
                warp.release(self, sum, of);
            }
        }
    }

    /// Adds the location to a fault.
    fn place(&self, fault: Fault, warp: &Warp, pc: usize, lane: usize) -> Fault {
        let kernel = &self.launch.kernel;
        let line = kernel.code.get(pc).map_or(0, |inst| inst.line);
        let [x, y, z] = self.index;
        let [tx, ty, tz] = [0, 1, 2].map(|axis| warp.tid[axis][lane]);
        fault.at(format_args!("{}, PTX line {line}, block ({x}, {y}, {z}), thread ({tx}, {ty}, {tz})", kernel.name))
    }
}
