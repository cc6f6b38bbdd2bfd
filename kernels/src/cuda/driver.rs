//! Driver and kernel module of a device.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaEvent, DriverError, result, sys};
use cudarc::nvrtc::Ptx;

use super::error::CudaError;
use super::kernels::Kernels;

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
    pub(super) context: Arc<CudaContext>,
    pub(super) kernels: Kernels,
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
        Ok(Arc::new(Self { context, kernels }))
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
