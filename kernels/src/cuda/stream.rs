//! Streams of a device: launches, copies, and capture. All driver calls are here and in `driver`, except those that allocate and free
//! memory.

use std::sync::Arc;

use cudarc::driver::{CudaEvent, CudaFunction, CudaGraph, CudaStream, result, sys};

use super::driver::{Device, Number, check, refused, word};
use super::error::CudaError;
use super::kernels::Kernels;
use super::memory::{DeviceMemory, PinnedBuffer};

/// A CUDA stream of a device.
pub struct DeviceStream {
    device: Arc<Device>,
    stream: Arc<CudaStream>,
}

impl DeviceStream {
    pub(super) fn new(device: Arc<Device>) -> Result<Self, CudaError> {
        let stream = device.context.new_stream().map_err(refused("making a stream"))?;
        Ok(Self { device, stream })
    }

    pub(super) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub(super) fn kernels(&self) -> &Kernels {
        &self.device.kernels
    }

    /// Launches a kernel; a grid without blocks launches nothing. `args` are its parameters in order: addresses, and 32-bit numbers by
    /// their bits.
    pub(super) fn launch(
        &self,
        kernel: &CudaFunction,
        grid: (usize, usize),
        threads: usize,
        shared: usize,
        args: &mut [u64],
    ) {
        const MOST: usize = 20;
        if grid.0 == 0 || grid.1 == 0 {
            return;
        }
        self.device.bind();
        let mut pointers = [std::ptr::null_mut(); MOST];
        for (pointer, arg) in pointers.iter_mut().zip(args.iter_mut()) {
            *pointer = std::ptr::from_mut(arg).cast();
        }
        let grid = (word(grid.0), word(grid.1), 1);
        let (block, shared) = ((word(threads), 1, 1), word(shared));
        let stream = self.stream.cu_stream();
        // SAFETY: each kernel's launcher passes exactly its parameters, each of at most eight bytes (a shorter one lies in the first bytes:
        // both sides are little-endian). Addresses are those of live buffers. Buffers return to an arena of this same stream, so later
        // users come after the kernel.
        let launched = unsafe {
            result::launch_kernel(kernel.cu_function(), grid, block, shared, stream, &mut pointers[..args.len()])
        };
        check(launched, "launching a kernel");
    }

    /// Waits for all work on the stream.
    pub(super) fn synchronize(&self) {
        check(self.stream.synchronize(), "waiting for the stream");
    }

    /// Waits for all work on the stream and ignores errors.
    pub(super) fn synchronize_ignoring_errors(&self) {
        // The next call reports the error.
        let _ = self.stream.synchronize();
    }

    /// Copies numbers to the device and waits.
    pub(super) fn write<N: Number>(&self, to: u64, numbers: &[N]) {
        if numbers.is_empty() {
            return;
        }
        self.device.bind();
        // SAFETY: the caller's buffer has room, and the host's numbers live until the stream was waited for.
        check(unsafe { result::memcpy_htod_async(to, numbers, self.stream.cu_stream()) }, "an upload");
        self.synchronize();
    }

    /// Copies numbers from the device and waits.
    pub(super) fn read<N: Number>(&self, from: u64, numbers: &mut [N]) {
        if numbers.is_empty() {
            return;
        }
        self.device.bind();
        // SAFETY: the caller's buffer has as many numbers, and the host's live until the stream was waited for.
        check(unsafe { result::memcpy_dtoh_async(numbers, from, self.stream.cu_stream()) }, "a read-back");
        self.synchronize();
    }

    /// Enqueues a copy of words from page-locked memory, which must not change until the stream was waited for.
    pub(super) fn upload(&self, to: u64, from: &PinnedBuffer, words: usize) {
        self.upload_bytes(to, from, size_of::<u32>() * words);
    }

    /// Enqueues a copy of bytes from page-locked memory, which must not change until the stream was waited for.
    pub(super) fn upload_bytes(&self, to: u64, from: &PinnedBuffer, bytes: usize) {
        if bytes > 0 {
            self.device.bind();
            // SAFETY: the buffer has room; the owner of the page-locked memory waits for the stream before it changes or frees it.
            check(
                unsafe { result::memcpy_htod_async(to, &from.bytes()[..bytes], self.stream.cu_stream()) },
                "an upload",
            );
        }
    }

    /// Records an event behind all work on the stream.
    pub(super) fn record(&self, event: &CudaEvent) {
        check(event.record(&self.stream), "recording an event");
    }

    /// Enqueues a copy of words to page-locked memory; they are valid once the stream was waited for.
    pub(super) fn download(&self, to: &mut PinnedBuffer, from: u64, words: usize) {
        if words > 0 {
            self.device.bind();
            let stream = self.stream.cu_stream();
            // SAFETY: as for `upload`.
            check(unsafe { result::memcpy_dtoh_async(&mut to.words_mut()[..words], from, stream) }, "a read-back");
        }
    }

    /// Allocates zeroed memory.
    pub(super) fn zeroed_memory(&self, bytes: usize) -> DeviceMemory {
        let memory = DeviceMemory::new(&self.device, bytes);
        self.clear(memory.at, bytes);
        // Another stream may use it next.
        self.synchronize();
        memory
    }

    /// Enqueues a copy of bytes within the device.
    pub(super) fn copy(&self, to: u64, from: u64, bytes: usize) {
        if bytes > 0 {
            self.device.bind();
            // SAFETY: the callers' buffers are live and large enough.
            check(unsafe { result::memcpy_dtod_async(to, from, bytes, self.stream.cu_stream()) }, "a copy");
        }
    }

    /// Enqueues a fill with zeros.
    pub(super) fn clear(&self, at: u64, bytes: usize) {
        if bytes > 0 {
            self.device.bind();
            // SAFETY: the caller's buffer is live and large enough.
            check(unsafe { result::memset_d8_async(at, 0, bytes, self.stream.cu_stream()) }, "clearing memory");
        }
    }
}

/// An executable graph.
pub struct Graph(CudaGraph);

// SAFETY: a graph must not be used by two threads at once, and only the lock of the captured graphs gives access to it.
unsafe impl Send for Graph {}

/// A capture in progress; dropping it before its end aborts it and leaves the stream usable.
pub(super) struct Capture<'a> {
    queue: &'a DeviceStream,
    ended: bool,
}

/// No flags for the instantiation of a graph.
const PLAIN: sys::CUgraphInstantiate_flags = sys::CUgraphInstantiate_flags(0);

impl Capture<'_> {
    /// Ends the capture and returns its graph.
    pub(super) fn end(mut self) -> Graph {
        self.ended = true;
        let graph = check(self.queue.stream.end_capture(PLAIN), "ending a capture");
        let graph = Graph(graph.expect("a capture without an error gives a graph"));
        // Uploads now, not at the first launch.
        check(graph.0.upload(), "uploading a graph");
        graph
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        if !self.ended {
            // A panic is unwinding and matters more than this error.
            let _ = self.queue.stream.end_capture(PLAIN);
        }
    }
}

impl DeviceStream {
    /// Begins a capture of the stream. Until its end this thread must not allocate, free or wait; other threads may.
    pub(super) fn begin_capture(&self) -> Capture<'_> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        check(self.stream.begin_capture(mode), "beginning a capture");
        Capture { queue: self, ended: false }
    }

    /// Launches a graph on the stream.
    pub(super) fn replay(&self, graph: &Graph) {
        check(graph.0.launch(), "launching a graph");
    }
}
