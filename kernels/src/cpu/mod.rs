//! [`Ops`](crate::Ops) on the processor, in single precision.
//!
//! - `device`: settings, buffers and threads; `ops`: its operations, out of one file for each family: [`attention`], [`conv`], [`experts`],
//!   [`math`], [`rotary`], [`sample`], `instance_norm`, `integer_conv`, `lstm`,
//!   `one_channel`, `segment_snake`
//! - `tensor`, `index`, `conv_state`, `kv_cache`, `weight`, `table`: what operations take; `shared_weights`: those of several models;
//!   `arena`, `scratch`: reused buffers;
//!   `discard`: memory that goes back to the system; `huge_pages`: memory of weights
//! - [`gemm`]: the matrix product of linear layers and convolutions, over `strided_rows` and weights in `panels`; `float_product`, [`integer`]:
//!   its tiles; `product`, `work_split`, `output_ptr`: on several threads
//! - [`quantised`]: weights of eight-bit and four-bit integers; [`groups`]: activations likewise
//! - [`work`]: bytes and multiply-adds of products; [`hardware_peaks`]: peaks of the hardware
//! - [`simd`]: vector instructions of the processor; [`pool`]: the thread pool
//!
//! Arithmetic is in single precision. Weights are widened to it, exactly for every checkpoint format: matrices, tables and convolutions of
//! bfloat16 on use, all others at load. Products of integer matrices are summed in integers.
//!
//! A device may have a thread pool. Large products, convolutions, norms and activations are then split over it, and each number is computed
//! in the same order as on one thread.

mod arena;
pub mod attention;
pub mod conv;
mod conv_state;
mod device;
mod discard;
pub mod experts;
mod float_product;
pub mod gemm;
pub mod groups;
pub mod hardware_peaks;
mod huge_pages;
mod index;
mod instance_norm;
pub mod integer;
mod integer_conv;
mod kv_cache;
mod lstm;
pub mod math;
mod one_channel;
mod ops;
mod output_ptr;
mod panels;
pub mod pool;
mod product;
pub mod quantised;
pub mod rotary;
pub mod sample;
mod scratch;
mod segment_snake;
mod shared_weights;
pub mod simd;
mod strided_rows;
mod table;
mod tensor;
mod weight;
pub mod work;
mod work_split;

pub use device::Cpu;
pub use index::CpuIndex;
pub use kv_cache::KvFormat;
pub use shared_weights::SharedWeights;
pub use table::Table;
pub use tensor::{CpuState, Tensor};
pub use weight::{Weight, WeightData};
pub use work::ProductWork;
