//! Published forms of checkpoints, read into plain bytes. It knows no model and no device.
//!
//! - [`onnx`]: parameters of an ONNX file, by the names that torch gave them

pub mod onnx;
