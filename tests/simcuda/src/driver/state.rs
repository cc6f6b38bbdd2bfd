//! State of the library, its memory and its copies.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::code::{CuResult, Failure};
use super::host::{HostRange, Pinned};
use super::objects::{Capture, DEFAULT_STREAM, Event, Function, Graph, Stream, StreamWork, UploadSource};
use crate::fault::Fault;
use crate::kernel::LoadedModule;
use crate::memory::{CAPACITY, DeviceMemory};

/// State of the library.
#[derive(Default)]
pub struct Driver {
    pub(super) memory: DeviceMemory,
    pub(super) modules: HashMap<u64, LoadedModule>,
    pub(super) functions: HashMap<u64, Function>,
    pub(super) streams: BTreeMap<u64, Stream>,
    pub(super) events: HashMap<u64, Event>,
    /// Captures in progress.
    pub(super) captures: HashMap<u64, Capture>,
    pub(super) graphs: HashMap<u64, Arc<Graph>>,
    pub(super) executables: HashMap<u64, Arc<Graph>>,
    /// Page-locked host memory by address; its copies stay asynchronous.
    pub(super) pinned: BTreeMap<usize, Pinned>,
    pub(super) last_handle: u64,
    /// First fault of a launch. Like a corrupt context, it fails every later call.
    pub(super) fault: Option<Fault>,
}

impl Driver {
    pub(super) fn handle(&mut self) -> u64 {
        // Far from 0, 1 and 2, which CUDA reserves.
        self.last_handle = self.last_handle.max(0x1000) + 16;
        self.last_handle
    }

    /// Fails after a fault.
    pub fn check_fault(&self) -> Result<(), Failure> {
        match &self.fault {
            Some(fault) => Err(Failure::of_fault(fault)),
            None => Ok(()),
        }
    }

    /// Stores a fault and drops all work.
    pub(super) fn record_fault(&mut self, fault: Fault) -> Failure {
        let failure = Failure::of_fault(&fault);
        self.fault.get_or_insert(fault);
        self.streams.values_mut().for_each(|stream| stream.queue.clear());
        failure
    }

    /// Returns free and total bytes.
    pub fn memory_info(&self) -> (usize, usize) {
        (self.memory.free_bytes(), CAPACITY)
    }

    /// Allocates device memory at once.
    pub fn alloc(&mut self, size: usize, thread: u64) -> Result<u64, Failure> {
        self.outside_capture("an allocation", thread)?;
        self.new_memory(size)
    }

    /// Allocates device memory in stream order.
    pub fn alloc_async(&mut self, size: usize, stream: u64) -> Result<u64, Failure> {
        self.stream(stream)?;
        if self.capture_of(stream).is_some() {
            return Err(self.invalidate(stream, "an allocation in a stream that is captured"));
        }
        self.new_memory(size)
    }

    fn new_memory(&mut self, size: usize) -> Result<u64, Failure> {
        if size == 0 {
            return Err(Failure::new(CuResult::InvalidValue, "an allocation of no bytes"));
        }
        let full = || Failure::new(CuResult::OutOfMemory, format!("{size} bytes are not free"));
        self.memory.alloc(size).ok_or_else(full)
    }

    /// Frees device memory after all work is done.
    pub fn free(&mut self, address: u64, thread: u64) -> Result<(), Failure> {
        self.outside_capture("freeing memory", thread)?;
        self.synchronize_all()?;
        if self.memory.free(address) {
            return Ok(());
        }
        Err(Failure::new(CuResult::InvalidValue, format!("{address:#x} is no allocation to be freed")))
    }

    /// Frees device memory in stream order.
    pub fn free_async(&mut self, address: u64, stream: u64) -> Result<(), Failure> {
        if self.capture_of(stream).is_some() {
            return Err(self.invalidate(stream, "freeing memory in a stream that is captured"));
        }
        self.submit(stream, StreamWork::Free(address))
    }

    /// Allocates page-locked host memory; returns its address.
    pub fn alloc_pinned(&mut self, size: usize) -> usize {
        let pinned = Pinned::new(size);
        let address = pinned.address();
        self.pinned.insert(address, pinned);
        address
    }

    /// Frees page-locked host memory; pending copies with it become faults.
    pub fn free_pinned(&mut self, address: usize) -> Result<(), Failure> {
        match self.pinned.remove(&address) {
            Some(_) => Ok(()),
            None => Err(Failure::new(CuResult::InvalidValue, format!("{address:#x} is no page-locked memory"))),
        }
    }

    /// True if a range of host memory is page-locked.
    pub(super) fn is_pinned(&self, range: HostRange) -> bool {
        let before = self.pinned.range(..=range.address()).next_back();
        before.is_some_and(|(start, pinned)| range.address() + range.length() <= start + pinned.length())
    }

    /// Copies from the host. Pageable memory is read now, page-locked memory when the copy runs.
    pub fn upload(&mut self, to: u64, from: HostRange, stream: u64) -> Result<(), Failure> {
        let source = if self.is_pinned(from) {
            UploadSource::Pinned(from)
        } else if self.capture_of(stream).is_some() {
            return Err(self.invalidate(stream, "a copy from host memory that is not page-locked, inside of a capture"));
        } else {
            UploadSource::Bytes(from.read())
        };
        self.submit(stream, StreamWork::Upload { to, from: source })
    }

    /// Copies to the host. Pageable memory is written before this returns, as CUDA specifies.
    pub fn download(&mut self, to: HostRange, from: u64, stream: u64) -> Result<(), Failure> {
        let pinned = self.is_pinned(to);
        if !pinned && self.capture_of(stream).is_some() {
            return Err(self.invalidate(stream, "a copy to host memory that is not page-locked, inside of a capture"));
        }
        self.submit(stream, StreamWork::Download { to, from, pinned })?;
        if pinned { Ok(()) } else { self.drain(stream) }
    }

    /// Does work on the default stream and waits for it.
    pub fn run_synchronously(&mut self, work: StreamWork, thread: u64) -> Result<(), Failure> {
        self.outside_capture("a copy that waits", thread)?;
        self.submit(DEFAULT_STREAM, work)?;
        self.drain(DEFAULT_STREAM)
    }
}
