//! Device of the contract tests: the processor, or with the feature `cuda` the CUDA device 0, which `make test-cuda` simulates.

#[cfg(not(feature = "cuda"))]
#[allow(unused_imports, reason = "each test binary uses its part")]
pub use repartee_kernels::cpu::{Cpu, Tensor};
#[cfg(feature = "cuda")]
#[allow(unused_imports, reason = "each test binary uses its part")]
pub use repartee_kernels::cuda::{Cuda, Tensor};

#[cfg(not(feature = "cuda"))]
pub type Device = Cpu;
#[cfg(feature = "cuda")]
pub type Device = Cuda;

/// Opens the device.
pub fn device() -> Device {
    #[cfg(not(feature = "cuda"))]
    return Device::default();
    #[cfg(feature = "cuda")]
    Device::open(0).expect("`make test-cuda` says where the simulated driver is")
}

/// Number of cases of a property test; fewer on a simulated device, which is slow.
#[allow(dead_code, reason = "each test binary uses its part")]
pub const fn cases(of_processor: u32) -> u32 {
    if cfg!(feature = "cuda") { of_processor / 8 } else { of_processor }
}
