//! Runs a launch: block after block, and the warps of a block in turn from barrier to barrier.
//!
//! - `block`: a launch and what its warps share; `warp`: one warp; `addresses`: state spaces and alignment
//! - `access`, `collective`, `copies`, `matrix`: instructions of a warp; `pending`: copies that have not landed

mod access;
mod addresses;
mod block;
mod collective;
mod copies;
mod matrix;
mod pending;
mod warp;

use crate::fault::{Fault, FaultKind};
use crate::memory::DeviceMemory;
use crate::shared::Shared;

use block::Block;
pub use block::Launch;
use warp::{BarrierWait, Warp};

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
                return Err(self.place(Fault::new(FaultKind::DivergentBarrier, text), &warp.tid, other.pc, 0));
            }
            let sum = waiting.iter().map(|(_, waiting)| waiting.count).sum();
            let of = waiting.iter().map(|(_, waiting)| waiting.lanes).sum();
            self.epoch += 1;
            for warp in &mut warps {
                warp.release(self, sum, of);
            }
        }
    }
}
