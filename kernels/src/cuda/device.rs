//! The driver, the module of kernels, a stream, and what is put on it. All calls of the driver but those for memory's life are here.

use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::{CudaContext, CudaEvent, CudaFunction, CudaStream, DriverError, result, sys};
use cudarc::nvrtc::Ptx;

use super::CudaError;
use super::graphs::Graph;
use super::kernels::Kernels;
use super::memory::{DeviceMemory, PinnedBuffer};

/// The PTX of `kernels/cuda/device.cu` for compute capability 8.0, and what NVIDIA's assembler makes of it for 9.0.
const PTX: &str = include_str!(concat!(env!("OUT_DIR"), "/device.ptx"));
const CUBIN_90: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/device.cubin"));

/// What a device says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its name.
    pub name: String,
    /// Bytes that are free.
    pub free: usize,
    /// Bytes of its memory.
    pub total: usize,
}

/// A device with the kernels.
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

/// What the driver gives. A failure here is not the caller's: the device or its driver is broken, and nothing can go on.
#[track_caller]
pub(super) fn check<T>(result: Result<T, DriverError>, doing: &'static str) -> T {
    result.unwrap_or_else(|error| panic!("{}", refused(doing)(error)))
}

impl Device {
    pub(super) fn open(ordinal: usize) -> Result<Arc<Self>, CudaError> {
        // SAFETY: the library with this name is NVIDIA's driver, or one that stands in for it.
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
        // SAFETY: work is ordered by streams and by what is waited for; `cudarc`'s own slices are not used.
        unsafe { context.disable_event_tracking() };
        // Machine code runs on its own generation alone, and a driver may not know it: the PTX is what counts.
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

    /// Makes this thread one that may call the driver.
    pub(super) fn bind(&self) {
        check(self.context.bind_to_thread(), "binding a thread");
    }

    /// An event that nothing is recorded in.
    pub(super) fn event(&self) -> CudaEvent {
        check(self.context.new_event(None), "making an event")
    }

    /// Waits for what an event was recorded behind; for nothing if it was not.
    pub(super) fn wait(&self, event: &CudaEvent) {
        check(event.synchronize(), "waiting for an event");
    }

    /// The same where a failure must not panic; false if this thread may not.
    pub(super) fn is_bound(&self) -> bool {
        self.context.bind_to_thread().is_ok()
    }
}

/// A stream of a device.
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

    /// Puts a kernel on the stream; one without blocks is none. `args` are its parameters in order: addresses, and numbers of 32 bits by
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
        // SAFETY: each kernel's launcher gives as many parameters as it has, each of which has at most the eight bytes of its entry (a shorter
        // one lies in the first bytes: both sides are little-endian); addresses are those of live buffers, which go back to an arena
        // of this same stream, so that nobody else uses them before the kernel is done.
        let launched = unsafe {
            result::launch_kernel(kernel.cu_function(), grid, block, shared, stream, &mut pointers[..args.len()])
        };
        check(launched, "launching a kernel");
    }

    /// Waits for everything on the stream.
    pub(super) fn synchronize(&self) {
        check(self.stream.synchronize(), "waiting for the stream");
    }

    /// The same where a failure must not panic.
    pub(super) fn synchronize_ignoring_errors(&self) {
        // What failed is reported by the next call.
        let _ = self.stream.synchronize();
    }

    /// Numbers to the device, there when this returns.
    pub(super) fn write<N: Number>(&self, to: u64, numbers: &[N]) {
        if numbers.is_empty() {
            return;
        }
        self.device.bind();
        // SAFETY: the caller's buffer has room, and the host's numbers live until the stream is waited for.
        check(unsafe { result::memcpy_htod_async(to, numbers, self.stream.cu_stream()) }, "an upload");
        self.synchronize();
    }

    /// Numbers from the device.
    pub(super) fn read<N: Number>(&self, from: u64, numbers: &mut [N]) {
        if numbers.is_empty() {
            return;
        }
        self.device.bind();
        // SAFETY: the caller's buffer has as many numbers, and the host's live until the stream is waited for.
        check(unsafe { result::memcpy_dtoh_async(numbers, from, self.stream.cu_stream()) }, "a read-back");
        self.synchronize();
    }

    /// Words out of page-locked memory, which stays as it is until the stream is waited for.
    pub(super) fn upload(&self, to: u64, from: &PinnedBuffer, words: usize) {
        self.upload_bytes(to, from, size_of::<u32>() * words);
    }

    /// The same for bytes.
    pub(super) fn upload_bytes(&self, to: u64, from: &PinnedBuffer, bytes: usize) {
        if bytes > 0 {
            self.device.bind();
            // SAFETY: the buffer has room; whoever holds the page-locked memory waits for the stream before it is changed or freed.
            check(
                unsafe { result::memcpy_htod_async(to, &from.bytes()[..bytes], self.stream.cu_stream()) },
                "an upload",
            );
        }
    }

    /// Records an event behind everything on the stream.
    pub(super) fn record(&self, event: &CudaEvent) {
        check(event.record(&self.stream), "recording an event");
    }

    /// Words into page-locked memory, there when the stream has been waited for.
    pub(super) fn download(&self, to: &mut PinnedBuffer, from: u64, words: usize) {
        if words > 0 {
            self.device.bind();
            let stream = self.stream.cu_stream();
            // SAFETY: as for `upload`.
            check(unsafe { result::memcpy_dtoh_async(&mut to.words_mut()[..words], from, stream) }, "a read-back");
        }
    }

    /// Bytes within the device.
    pub(super) fn copy(&self, to: u64, from: u64, bytes: usize) {
        if bytes > 0 {
            self.device.bind();
            // SAFETY: the callers' buffers are live and large enough.
            check(unsafe { result::memcpy_dtod_async(to, from, bytes, self.stream.cu_stream()) }, "a copy");
        }
    }

    /// Zeros.
    pub(super) fn clear(&self, at: u64, bytes: usize) {
        if bytes > 0 {
            self.device.bind();
            // SAFETY: the caller's buffer is live and large enough.
            check(unsafe { result::memset_d8_async(at, 0, bytes, self.stream.cu_stream()) }, "clearing memory");
        }
    }

    /// Inverse frequencies of rotary embeddings, `[head_dim / 2]`, computed at the first call with these sizes.
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

/// A capture under way; one that is dropped before its end leaves the stream as it was.
pub(super) struct Capture<'a> {
    queue: &'a DeviceStream,
    ended: bool,
}

/// Nothing special.
const PLAIN: sys::CUgraphInstantiate_flags = sys::CUgraphInstantiate_flags(0);

impl Capture<'_> {
    /// The graph of what was put on the stream meanwhile.
    pub(super) fn end(mut self) -> Graph {
        self.ended = true;
        let graph = check(self.queue.stream.end_capture(PLAIN), "ending a capture");
        let graph = Graph(graph.expect("a capture without an error gives a graph"));
        // Now, and not at the first launch.
        check(graph.0.upload(), "uploading a graph");
        graph
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        if !self.ended {
            // What panicked is what counts.
            let _ = self.queue.stream.end_capture(PLAIN);
        }
    }
}

impl DeviceStream {
    /// Begins to capture what is put on the stream. This thread may not allocate, free or wait meanwhile; others may.
    pub(super) fn begin_capture(&self) -> Capture<'_> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        check(self.stream.begin_capture(mode), "beginning a capture");
        Capture { queue: self, ended: false }
    }

    /// Puts a graph on the stream.
    pub(super) fn replay(&self, graph: &Graph) {
        check(graph.0.launch(), "launching a graph");
    }
}

/// Numbers that any bits are, and that lie on the device as on the host.
pub(super) trait Number: Copy {}

impl Number for u8 {}
impl Number for u16 {}
impl Number for u32 {}
impl Number for f32 {}

/// A number of rows, blocks or bytes as kernels take it.
pub(super) fn word(number: usize) -> u32 {
    u32::try_from(number).expect("a device's sizes have 32 bits")
}
