//! Driver, kernel module and streams. All driver calls are here, except those that allocate and free memory.

use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::{CudaContext, CudaEvent, CudaFunction, CudaStream, DriverError, result, sys};
use cudarc::nvrtc::Ptx;

use super::CudaError;
use super::graphs::Graph;
use super::kernels::Kernels;
use super::memory::{DeviceMemory, PinnedBuffer};

/// PTX of `kernels/cuda/device.cu` for compute capability 8.0, and NVIDIA's machine code of it for 9.0.
const PTX: &str = include_str!(concat!(env!("OUT_DIR"), "/device.ptx"));
const CUBIN_90: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/device.cubin"));

/// Name and memory of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Name of the device.
    pub name: String,
    /// Bytes that are free.
    pub free: usize,
    /// Bytes of device memory.
    pub total: usize,
}

/// A device with its kernel module.
pub struct Device {
    context: Arc<CudaContext>,
    pub(super) kernels: Kernels,
    frequencies: Mutex<Vec<Frequencies>>,
}

/// Inverse frequencies of rotary embeddings.
struct Frequencies {
    head_dim: usize,
    theta: f32,
    numbers: Arc<DeviceMemory>,
}

pub(super) fn refused(doing: &'static str) -> impl Fn(DriverError) -> CudaError {
    move |error| CudaError::Driver { doing, error: error.to_string() }
}

/// Unwraps a driver result. Panics on an error: the device or its driver is broken, and nothing can continue.
#[track_caller]
pub(super) fn check<T>(result: Result<T, DriverError>, doing: &'static str) -> T {
    result.unwrap_or_else(|error| panic!("{}", refused(doing)(error)))
}

impl Device {
    pub(super) fn open(ordinal: usize) -> Result<Arc<Self>, CudaError> {
        // SAFETY: the library with this name is NVIDIA's driver, or a replacement for it.
        if !unsafe { sys::is_culib_present() } {
            return Err(CudaError::NoDriver);
        }
        result::init().map_err(refused("its start"))?;
        let count = CudaContext::device_count().map_err(refused("counting devices"))? as usize;
        if ordinal >= count {
            return Err(CudaError::NoDevice { ordinal, count });
        }
        let context = CudaContext::new(ordinal).map_err(refused("opening the device"))?;
        let (major, minor) = context.compute_capability().map_err(refused("asking for the capability"))?;
        if major < 8 {
            let name = context.name().map_err(refused("asking for the name"))?;
            return Err(CudaError::TooOld { name, major, minor });
        }
        // SAFETY: work is ordered by streams and explicit waits; `cudarc`'s own slices are not used.
        unsafe { context.disable_event_tracking() };
        // Machine code runs on its own generation only, and a driver may reject it; then the PTX is loaded.
        let assembled = (major == 9).then(|| context.load_module(Ptx::from_binary(CUBIN_90.to_vec())).ok()).flatten();
        let module = match assembled {
            Some(module) => module,
            None => context.load_module(Ptx::from_src(PTX)).map_err(refused("loading the kernels"))?,
        };
        let kernels = Kernels::of(&module).map_err(refused("looking up a kernel"))?;
        Ok(Arc::new(Self { context, kernels, frequencies: Mutex::default() }))
    }

    pub(super) fn info(&self) -> Result<DeviceInfo, CudaError> {
        let name = self.context.name().map_err(refused("asking for the name"))?;
        let (free, total) = self.context.mem_get_info().map_err(refused("asking for free memory"))?;
        Ok(DeviceInfo { name, free, total })
    }

    /// Binds the context to this thread, so that it may call the driver.
    pub(super) fn bind(&self) {
        check(self.context.bind_to_thread(), "binding a thread");
    }

    /// Creates an event without a record.
    pub(super) fn event(&self) -> CudaEvent {
        check(self.context.new_event(None), "making an event")
    }

    /// Waits for the last record of an event; returns at once if there is none.
    pub(super) fn wait(&self, event: &CudaEvent) {
        check(event.synchronize(), "waiting for an event");
    }

    /// Binds the context without a panic; false if that fails.
    pub(super) fn is_bound(&self) -> bool {
        self.context.bind_to_thread().is_ok()
    }
}

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

    /// Returns inverse frequencies of rotary embeddings, `[head_dim / 2]`; the first call with these sizes computes them.
    pub(super) fn frequencies(&self, head_dim: usize, theta: f32) -> Arc<DeviceMemory> {
        let mut known = self.device.frequencies.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(one) = known.iter().find(|one| one.head_dim == head_dim && one.theta == theta) {
            return one.numbers.clone();
        }
        let frequency = |i: usize| 1.0 / theta.powf((2 * i) as f32 / head_dim as f32);
        let numbers: Vec<f32> = (0..head_dim / 2).map(frequency).collect();
        let numbers = Arc::new(DeviceMemory::of(self, &numbers));
        known.push(Frequencies { head_dim, theta, numbers: numbers.clone() });
        numbers
    }
}

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

/// Plain numbers: valid for any bits, with the same layout on host and device.
pub(super) trait Number: Copy {}

impl Number for u8 {}
impl Number for u16 {}
impl Number for u32 {}
impl Number for f32 {}

/// Converts a number of rows, blocks or bytes to a kernel's parameter.
pub(super) fn word(number: usize) -> u32 {
    u32::try_from(number).expect("a device's sizes have 32 bits")
}
