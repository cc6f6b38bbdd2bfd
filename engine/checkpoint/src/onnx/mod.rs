//! Parameters of a published ONNX file, by the names that torch gave them. The graph is not executed.
//!
//! Exporters keep the names of biases, norms and tables, and number the other weights. So a layer's weight is found by its
//! use: it is the factor of the product to which the layer's bias is added. 8-bit numbers are widened with their scales.
//!
//! | file | contents |
//! |---|---|
//! | `graph` | [`OnnxGraph`]: nodes and constants, and the tensors by name |
//! | `layers` | [`OnnxLayer`]s in the order of their computation, for files whose names tell nothing |
//! | `protobuf` | fields of a message |

mod graph;
mod layers;
mod protobuf;
#[cfg(test)]
mod tests;

pub use graph::{OnnxGraph, OnnxInitializer, OnnxTensor};
pub use layers::{OnnxLayer, OnnxLayerKind};
