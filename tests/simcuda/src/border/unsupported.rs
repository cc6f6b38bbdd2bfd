//! Unsupported functions: the stock `cudarc` may look them up, and nothing here needs them. They return "not supported" and ignore their
//! arguments, as C allows.

use super::calls::{Status, with};
use crate::driver::{CuResult, Failure};

macro_rules! unsupported {
    ($($name:ident),+ $(,)?) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> Status {
            with(|_| Err(Failure::new(CuResult::NotSupported, concat!(stringify!($name), " is not covered"))))
        }
    )+};
}

unsupported!(
    cuCtxCreate_v3,
    cuCtxCreate_v4,
    cuCtxDestroy_v2,
    cuCtxGetCacheConfig,
    cuCtxGetLimit,
    cuCtxSetCacheConfig,
    cuCtxSetFlags,
    cuCtxSetLimit,
    cuDestroyExternalMemory,
    cuDeviceGetDefaultMemPool,
    cuDeviceGetMemPool,
    cuDeviceGetUuid,
    cuDeviceSetMemPool,
    cuEventElapsedTime,
    cuEventElapsedTime_v2,
    cuExternalMemoryGetMappedBuffer,
    cuFuncSetCacheConfig,
    cuImportExternalMemory,
    cuLaunchCooperativeKernel,
    cuLaunchHostFunc,
    cuMemAdvise_v2,
    cuMemAllocFromPoolAsync,
    cuMemAllocManaged,
    cuMemPoolCreate,
    cuMemPoolDestroy,
    cuMemPoolGetAttribute,
    cuMemPoolSetAttribute,
    cuMemPoolTrimTo,
    cuMemPrefetchAsync_v2,
    cuMemcpyPeerAsync,
    cuModuleLoad,
    cuOccupancyAvailableDynamicSMemPerBlock,
    cuOccupancyMaxActiveBlocksPerMultiprocessor,
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
    cuOccupancyMaxActiveClusters,
    cuOccupancyMaxPotentialBlockSize,
    cuOccupancyMaxPotentialBlockSizeWithFlags,
    cuOccupancyMaxPotentialClusterSize,
    cuProfilerStart,
    cuProfilerStop,
    cuStreamAttachMemAsync,
);
