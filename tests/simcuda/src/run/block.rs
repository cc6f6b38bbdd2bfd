//! A launch, and the state that the warps of a block share.

use std::sync::Arc;

use crate::decode::lanes::Lanes;
use crate::fault::Fault;
use crate::kernel::Kernel;
use crate::memory::DeviceMemory;
use crate::shared::Shared;

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
pub(super) struct Block<'a> {
    pub(super) launch: &'a Launch,
    pub(super) memory: &'a mut DeviceMemory,
    pub(super) shared: Shared,
    pub(super) index: [u32; 3],
    pub(super) epoch: u32,
}

impl Block<'_> {
    /// Adds the location to a fault; `tid` has the threads of the warp by axis.
    pub(super) fn place(&self, fault: Fault, tid: &[Lanes; 3], pc: usize, lane: usize) -> Fault {
        let kernel = &self.launch.kernel;
        let line = kernel.code.get(pc).map_or(0, |inst| inst.line);
        let [x, y, z] = self.index;
        let [tx, ty, tz] = [0, 1, 2].map(|axis| tid[axis][lane]);
        fault.at(format_args!("{}, PTX line {line}, block ({x}, {y}, {z}), thread ({tx}, {ty}, {tz})", kernel.name))
    }
}
