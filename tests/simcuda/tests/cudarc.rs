//! The library under the stock `cudarc`.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

#[path = "support/process.rs"]
mod process;

use std::ffi::{CStr, c_char};
use std::sync::Arc;

use cudarc::driver::sys::{
    CUfunction_attribute, CUgraphInstantiate_flags, CUresult, CUstreamCaptureMode, CUstreamCaptureStatus,
};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaGraph, CudaSlice, CudaStream, DriverError, LaunchConfig, PushKernelArg, result, sys,
};
use cudarc::nvrtc::Ptx;
use process::in_own_process;

const MODULE: &str = include_str!("cudarc.ptx");
const MODE: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;

/// A device with the module, and without `cudarc`'s event tracking between streams.
struct Gpu {
    context: Arc<CudaContext>,
    module: Arc<cudarc::driver::CudaModule>,
}

impl Gpu {
    fn new() -> Self {
        let context = CudaContext::new(0).unwrap();
        // SAFETY: the tests are about unordered work.
        unsafe { context.disable_event_tracking() };
        let module = context.load_module(Ptx::from_src(MODULE)).unwrap();
        Self { context, module }
    }

    fn stream(&self) -> Arc<CudaStream> {
        self.context.new_stream().unwrap()
    }

    fn kernel(&self, name: &str) -> CudaFunction {
        self.module.load_function(name).unwrap()
    }

    /// Enqueues `to[i] = from[i] * 2 + 1` for the first `n` numbers.
    fn double(
        &self,
        stream: &Arc<CudaStream>,
        to: &mut CudaSlice<f32>,
        from: &CudaSlice<f32>,
        n: u32,
    ) -> Result<(), DriverError> {
        let kernel = self.kernel("double");
        let config =
            LaunchConfig { grid_dim: (n.div_ceil(32).max(1), 1, 1), block_dim: (32, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: the kernel's parameters are these.
        unsafe { stream.launch_builder(&kernel).arg(to).arg(from).arg(&n).launch(config) }.map(drop)
    }

    /// Enqueues `to[i] = i` for the first `n` numbers.
    fn count(&self, stream: &Arc<CudaStream>, to: &mut CudaSlice<f32>, n: u32) -> Result<(), DriverError> {
        let kernel = self.kernel("count");
        let config =
            LaunchConfig { grid_dim: (n.div_ceil(32).max(1), 1, 1), block_dim: (32, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: the kernel's parameters are these.
        unsafe { stream.launch_builder(&kernel).arg(to).arg(&n).launch(config) }.map(drop)
    }
}

/// Allocates uninitialised memory.
fn fresh(stream: &Arc<CudaStream>, n: usize) -> CudaSlice<f32> {
    // SAFETY: any bits are a float.
    unsafe { stream.alloc(n) }.unwrap()
}

fn code<T>(result: Result<T, DriverError>) -> CUresult {
    match result {
        Ok(_) => CUresult::CUDA_SUCCESS,
        Err(error) => error.0,
    }
}

/// Returns the library's text of the last failure.
fn last_fault() -> String {
    // SAFETY: the library has this function with this type, and its string ends with NUL.
    unsafe {
        let function = sys::culib().get::<unsafe extern "C" fn() -> *const c_char>(b"simcuda_last_fault\0").unwrap();
        let text = function();
        if text.is_null() { String::new() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
    }
}

fn end_capture(stream: &Arc<CudaStream>) -> Result<CudaGraph, DriverError> {
    Ok(stream.end_capture(CUgraphInstantiate_flags(0))?.unwrap())
}

fn found(code_found: CUresult, code_wanted: CUresult, words: &str) {
    let text = last_fault();
    assert_eq!(code_found, code_wanted, "{text}");
    assert!(text.contains(words), "{text}");
}

#[test]
fn module_is_loaded_launched_and_read_back() {
    in_own_process("module_is_loaded_launched_and_read_back", || {
        let gpu = Gpu::new();
        assert_eq!((CudaContext::device_count().unwrap(), gpu.context.name().unwrap().as_str()), (1, "simcuda"));
        assert_eq!(gpu.context.compute_capability().unwrap(), (9, 0));
        assert!(gpu.context.has_async_alloc());
        let before = gpu.context.mem_get_info().unwrap();
        let stream = gpu.stream();
        let from = stream.clone_htod(&(0..100).map(|i| i as f32).collect::<Vec<_>>()).unwrap();
        let mut to = stream.alloc_zeros::<f32>(100).unwrap();
        gpu.double(&stream, &mut to, &from, 70).unwrap();
        let wanted: Vec<f32> = (0..100).map(|i| if i < 70 { 2.0 * i as f32 + 1.0 } else { 0.0 }).collect();
        assert_eq!(stream.clone_dtoh(&to).unwrap(), wanted);
        let mut copy = stream.alloc_zeros::<f32>(100).unwrap();
        stream.memcpy_dtod(&to, &mut copy).unwrap();
        assert_eq!(stream.clone_dtoh(&copy).unwrap(), wanted);
        assert_eq!(before.0 - gpu.context.mem_get_info().unwrap().0, 3 * 400);
        drop((from, to, copy));
        gpu.context.synchronize().unwrap();
        assert_eq!(gpu.context.mem_get_info().unwrap(), before);
        assert_eq!(code(gpu.module.load_function("nothing")), CUresult::CUDA_ERROR_NOT_FOUND);
        let global = gpu.module.get_global("limit", &stream).unwrap();
        assert_eq!(global.len(), 4);
    });
}

#[test]
fn bad_modules_are_refused_with_the_line() {
    in_own_process("bad_modules_are_refused_with_the_line", || {
        let context = CudaContext::new(0).unwrap();
        let bad = MODULE.replace("mul.wide.u32", "mul.wise.u32");
        let refused = code(context.load_module(Ptx::from_src(bad)));
        found(refused, CUresult::CUDA_ERROR_INVALID_PTX, "the opcode `mul.wise.u32` is not covered");
        assert!(last_fault().contains("PTX line "), "{}", last_fault());
        let machine_code = Ptx::from_binary(b"\x7fELF\0".to_vec());
        found(code(context.load_module(machine_code)), CUresult::CUDA_ERROR_INVALID_PTX, "no machine code");
    });
}

#[test]
fn events_order_streams() {
    in_own_process("events_order_streams", || {
        let gpu = Gpu::new();
        let (first, second) = (gpu.stream(), gpu.stream());
        let (mut numbers, mut to) = (fresh(&first, 64), fresh(&second, 64));
        gpu.count(&first, &mut numbers, 64).unwrap();
        let event = first.record_event(None).unwrap();
        second.wait(&event).unwrap();
        // A later record does not affect an earlier wait.
        gpu.count(&first, &mut numbers, 64).unwrap();
        event.record(&first).unwrap();
        gpu.double(&second, &mut to, &numbers, 64).unwrap();
        assert_eq!(second.clone_dtoh(&to).unwrap()[63], 127.0);
        assert!(!event.is_complete());
        event.synchronize().unwrap();
        assert!(event.is_complete());
    });
}

#[test]
fn missing_wait_between_streams_is_found() {
    in_own_process("missing_wait_between_streams_is_found", || {
        let gpu = Gpu::new();
        let (first, second) = (gpu.stream(), gpu.stream());
        let (mut numbers, mut to) = (fresh(&first, 64), fresh(&second, 64));
        gpu.count(&first, &mut numbers, 64).unwrap();
        gpu.double(&second, &mut to, &numbers, 64).unwrap();
        found(code(second.synchronize()), CUresult::CUDA_ERROR_LAUNCH_FAILED, "Uninitialised: double, PTX line ");
        // A fault persists.
        assert_eq!(code(first.synchronize()), CUresult::CUDA_ERROR_LAUNCH_FAILED);
    });
}

#[test]
fn default_stream_keeps_order_with_blocking_streams() {
    in_own_process("default_stream_keeps_order_with_blocking_streams", || {
        let gpu = Gpu::new();
        let default = gpu.context.default_stream();
        let to = fresh(&default, 4);
        let address = sys_address(&default, &to);
        let blocking = result::stream::create(result::stream::StreamKind::Default).unwrap();
        let mut host = [0.0f32; 4];
        // SAFETY: the address has 16 bytes, and so has `host`.
        unsafe {
            result::memset_d8_async(address, 0, 16, blocking).unwrap();
            assert_eq!(default.clone_dtoh(&to).unwrap(), [0.0; 4]);
            result::memset_d8_async(address, 0x40, 16, default.cu_stream()).unwrap();
            result::memcpy_dtoh_async(&mut host, address, blocking).unwrap();
            result::stream::synchronize(blocking).unwrap();
            result::stream::destroy(blocking).unwrap();
        }
        assert_eq!(host, [f32::from_bits(0x4040_4040); 4]);
    });
}

#[test]
fn page_locked_memory_is_read_late() {
    in_own_process("page_locked_memory_is_read_late", || {
        let gpu = Gpu::new();
        let stream = gpu.stream();
        let to = fresh(&stream, 4);
        let address = sys_address(&stream, &to);
        // SAFETY: the memory is ours, of 16 bytes, and freed below.
        unsafe {
            let host = result::malloc_host(16, 0).unwrap().cast::<f32>();
            let numbers = std::slice::from_raw_parts_mut(host, 4);
            numbers.fill(1.0);
            result::memcpy_htod_async(address, numbers, stream.cu_stream()).unwrap();
            numbers.fill(2.0);
            stream.synchronize().unwrap();
            assert_eq!(stream.clone_dtoh(&to).unwrap(), [2.0; 4]);
            result::memcpy_dtoh_async(numbers, address, stream.cu_stream()).unwrap();
            result::free_host(host.cast()).unwrap();
        }
        found(code(stream.synchronize()), CUresult::CUDA_ERROR_LAUNCH_FAILED, "HostMemory");
    });
}

fn sys_address(stream: &Arc<CudaStream>, of: &CudaSlice<f32>) -> sys::CUdeviceptr {
    use cudarc::driver::DevicePtr;
    of.device_ptr(stream).0
}

#[test]
fn captured_graph_replays_at_its_addresses() {
    in_own_process("captured_graph_replays_at_its_addresses", || {
        let gpu = Gpu::new();
        let stream = gpu.stream();
        let mut from = stream.clone_htod(&[1.0f32; 32]).unwrap();
        let mut to = stream.alloc_zeros::<f32>(32).unwrap();
        stream.synchronize().unwrap();
        stream.begin_capture(MODE).unwrap();
        assert_eq!(stream.capture_status().unwrap(), CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE);
        gpu.double(&stream, &mut to, &from, 32).unwrap();
        gpu.double(&stream, &mut from, &to, 32).unwrap();
        let graph = end_capture(&stream).unwrap();
        assert_eq!(stream.capture_status().unwrap(), CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE);
        // Nothing has run yet; each replay reads the numbers of its own time.
        assert_eq!(stream.clone_dtoh(&to).unwrap(), [0.0; 32]);
        graph.upload().unwrap();
        graph.launch().unwrap();
        graph.launch().unwrap();
        assert_eq!((stream.clone_dtoh(&to).unwrap()[0], stream.clone_dtoh(&from).unwrap()[31]), (15.0, 31.0));
        stream.memcpy_htod(&[0.0; 32], &mut from).unwrap();
        graph.launch().unwrap();
        assert_eq!(stream.clone_dtoh(&to).unwrap(), [1.0; 32]);
    });
}

/// Captures a count on one stream and a doubling on another, which joins by events.
fn forked(gpu: &Gpu, waits: bool, joins: bool) -> (Arc<CudaStream>, CudaSlice<f32>, Result<CudaGraph, DriverError>) {
    let (stream, side) = (gpu.stream(), gpu.stream());
    let (mut numbers, mut to) = (fresh(&stream, 32), fresh(&stream, 32));
    stream.begin_capture(MODE).unwrap();
    side.join(&stream).unwrap();
    gpu.count(&stream, &mut numbers, 32).unwrap();
    if waits {
        side.join(&stream).unwrap();
    }
    gpu.double(&side, &mut to, &numbers, 32).unwrap();
    if joins {
        stream.join(&side).unwrap();
    }
    let graph = end_capture(&stream);
    std::mem::forget(numbers);
    (stream, to, graph)
}

#[test]
fn branches_of_a_graph_follow_their_events() {
    in_own_process("branches_of_a_graph_follow_their_events", || {
        let gpu = Gpu::new();
        let (stream, to, graph) = forked(&gpu, true, true);
        graph.unwrap().launch().unwrap();
        assert_eq!(stream.clone_dtoh(&to).unwrap()[31], 63.0);
        let (_, _, graph) = forked(&gpu, true, false);
        found(code(graph), CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "is not waited for");
        let (stream, _, graph) = forked(&gpu, false, true);
        graph.unwrap().launch().unwrap();
        found(
            code(stream.synchronize()),
            CUresult::CUDA_ERROR_LAUNCH_FAILED,
            "Uninitialised: replay of a graph: double",
        );
    });
}

#[test]
fn captures_refuse_what_cannot_be_replayed() {
    in_own_process("captures_refuse_what_cannot_be_replayed", || {
        let gpu = Gpu::new();
        let (stream, other) = (gpu.stream(), gpu.stream());
        let mut buffer = stream.alloc_zeros::<f32>(4).unwrap();
        let event = other.record_event(None).unwrap();
        gpu.context.synchronize().unwrap();
        type Forbidden<'a> = (&'a str, CUresult, Box<dyn FnOnce() -> CUresult + 'a>);
        let unsupported = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        let forbidden: [Forbidden; 7] = [
            ("an allocation in a stream", unsupported, Box::new(|| code(stream.alloc_zeros::<f32>(4)))),
            // SAFETY: the call is refused.
            ("an allocation inside", unsupported, Box::new(|| code(unsafe { result::malloc_sync(4) }))),
            ("waiting for a stream that is captured", unsupported, Box::new(|| code(stream.synchronize()))),
            ("waiting for a stream inside", unsupported, Box::new(|| code(other.synchronize()))),
            ("waiting for the device", unsupported, Box::new(|| code(gpu.context.synchronize()))),
            ("not page-locked", unsupported, Box::new(|| code(stream.memcpy_htod(&[1.0], &mut buffer)))),
            ("recorded outside", CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION, Box::new(|| code(stream.wait(&event)))),
        ];
        for (words, wanted, call) in forbidden {
            stream.begin_capture(MODE).unwrap();
            found(call(), wanted, words);
            assert_eq!(stream.capture_status().unwrap(), CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_INVALIDATED);
            found(code(end_capture(&stream)), CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, words);
        }
        stream.begin_capture(MODE).unwrap();
        let inside = stream.record_event(None).unwrap();
        assert_eq!(code(inside.synchronize()), CUresult::CUDA_ERROR_CAPTURED_EVENT);
        assert_eq!(code(end_capture(&other)), CUresult::CUDA_ERROR_ILLEGAL_STATE);
        end_capture(&stream).unwrap();
        // None of this is a fault.
        gpu.context.synchronize().unwrap();
    });
}

#[test]
fn replay_with_freed_memory_is_found() {
    in_own_process("replay_with_freed_memory_is_found", || {
        let gpu = Gpu::new();
        let stream = gpu.stream();
        let from = stream.clone_htod(&[1.0f32; 32]).unwrap();
        let mut to = fresh(&stream, 32);
        stream.begin_capture(MODE).unwrap();
        gpu.double(&stream, &mut to, &from, 32).unwrap();
        let graph = end_capture(&stream).unwrap();
        graph.launch().unwrap();
        stream.synchronize().unwrap();
        drop(from);
        graph.launch().unwrap();
        found(
            code(stream.synchronize()),
            CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
            "UseAfterFree: replay of a graph: double",
        );
    });
}

#[test]
fn out_of_bounds_is_an_illegal_address() {
    in_own_process("out_of_bounds_is_an_illegal_address", || {
        let gpu = Gpu::new();
        let stream = gpu.stream();
        let mut numbers = fresh(&stream, 40);
        gpu.count(&stream, &mut numbers, 41).unwrap();
        found(code(stream.synchronize()), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, "block (1, 0, 0), thread (8, 0, 0)");
        assert!(last_fault().starts_with("700: OutOfBounds: count, PTX line "), "{}", last_fault());
        assert_eq!(code(stream.alloc_zeros::<f32>(4)), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    });
}

/// Runs a kernel of one parameter, with 32 threads.
fn fault_of(kernel: &str) -> CUresult {
    let gpu = Gpu::new();
    let stream = gpu.stream();
    let mut numbers = stream.alloc_zeros::<f32>(64).unwrap();
    let kernel = gpu.kernel(kernel);
    let config = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (64, 1, 1), shared_mem_bytes: 0 };
    // SAFETY: the kernel has this one parameter.
    unsafe { stream.launch_builder(&kernel).arg(&mut numbers).launch(config) }.unwrap();
    code(stream.synchronize())
}

#[test]
fn misaligned_access_has_its_code() {
    in_own_process("misaligned_access_has_its_code", || {
        found(fault_of("misaligned"), CUresult::CUDA_ERROR_MISALIGNED_ADDRESS, "Misaligned");
    });
}

#[test]
fn shared_memory_race_fails_the_launch() {
    in_own_process("shared_memory_race_fails_the_launch", || {
        found(fault_of("race"), CUresult::CUDA_ERROR_LAUNCH_FAILED, "Race");
    });
}

#[test]
fn divergent_barrier_fails_the_launch() {
    in_own_process("divergent_barrier_fails_the_launch", || {
        found(fault_of("divergent"), CUresult::CUDA_ERROR_LAUNCH_FAILED, "DivergentBarrier");
    });
}

#[test]
fn launches_keep_within_limits() {
    in_own_process("launches_keep_within_limits", || {
        let gpu = Gpu::new();
        let stream = gpu.stream();
        let mut numbers = fresh(&stream, 32);
        let kernel = gpu.kernel("count");
        let mut launch = |threads: u32, shared: u32| {
            let config = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (threads, 1, 1), shared_mem_bytes: shared };
            // SAFETY: the kernel's parameters are these.
            code(unsafe { stream.launch_builder(&kernel).arg(&mut numbers).arg(&32u32).launch(config) })
        };
        found(launch(1025, 0), CUresult::CUDA_ERROR_INVALID_VALUE, "a block of [1025, 1, 1]");
        found(launch(32, 50_000), CUresult::CUDA_ERROR_INVALID_VALUE, "50000 bytes of dynamic shared memory");
        let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        assert_eq!(code(kernel.set_attribute(attribute, 240_000)), CUresult::CUDA_ERROR_INVALID_VALUE);
        kernel.set_attribute(attribute, 60_000).unwrap();
        // The attribute belongs to the kernel's handle.
        assert_eq!(launch(32, 50_000), CUresult::CUDA_SUCCESS);
        stream.synchronize().unwrap();
        // SAFETY: the call is refused.
        let managed = code(unsafe { result::malloc_managed(4, sys::CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL) });
        found(managed, CUresult::CUDA_ERROR_NOT_SUPPORTED, "cuMemAllocManaged is not covered");
    });
}
