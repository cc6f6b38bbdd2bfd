//! [`Ops`](crate::Ops) on a CUDA device, over `cudarc` and the kernels of `kernels/cuda`.
//!
//! - `device`: stream, buffers and graphs of one device; `ops`: its operations; `attention`, `conv`, `experts`, `product`, `segments`: the
//!   larger ones
//! - `step`: whole steps; `graphs`: their captures
//! - `driver`: the driver and the kernel module; `kernels`: their names; `stream`: launches, copies and capture; `launch`: their sizes
//! - `memory`: device memory and page-locked host memory; `arena`: pools of them
//! - `tensor`: activations, lists, batches and state
//! - `weight`, `matrix`: layouts of weights; `weight_order`: their reordering; `loading`: their upload
//!
//! Activations, keys and values are in single precision. Matrices are bf16 if the checkpoint's are, else f32 or integers. Products are
//! summed in f32, in an order that the weight's shape alone decides, so a row gets the same bits with any neighbouring rows.
//!
//! The driver library is loaded when a device is opened, so one binary runs with and without it. Work goes to the device's own stream, and
//! read-backs wait for it. After a failed launch no result can be trusted: it panics, and so does every later call.

mod arena;
mod attention;
mod conv;
mod device;
mod driver;
mod error;
mod experts;
mod graphs;
mod kernels;
mod launch;
mod loading;
mod matrix;
mod memory;
mod ops;
mod product;
mod segments;
mod step;
mod stream;
mod tensor;
mod weight;
mod weight_order;

pub use device::Cuda;
pub use driver::DeviceInfo;
pub use error::CudaError;
pub use step::LaunchedStep;
pub use tensor::{CudaBatch, CudaIndex, CudaState, Tensor};
pub use weight::Weight;
