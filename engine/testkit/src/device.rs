//! Device of the models under test: the CPU, or with the feature `cuda` the CUDA device 0, which `make test-cuda`
//! simulates.

/// Device of the models under test: the CPU.
#[cfg(not(feature = "cuda"))]
pub type Device = repartee_kernels::cpu::Cpu;
/// Device of the models under test: a CUDA device.
#[cfg(feature = "cuda")]
pub type Device = repartee_kernels::cuda::Cuda;

/// Opens the device.
pub fn device() -> Device {
    #[cfg(not(feature = "cuda"))]
    return Device::default();
    #[cfg(feature = "cuda")]
    Device::open(0).expect("`make test-cuda` says where the simulated driver is")
}
