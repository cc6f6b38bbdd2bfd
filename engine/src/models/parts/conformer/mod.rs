//! FastConformer encoder of NeMo: convolutions that make one row of eight frames, then layers of feed-forward blocks,
//! attention with relative positions, and a convolution over time; and an adapter to the width of a language model.
//!
//! - [`shape`]: sizes; [`encoder`]: the weights, and a step over one window; [`unfinished`]: parts of it, unit by unit
//! - [`subsampling`]: the convolutions in front; [`layer`]: a layer; [`attention`]: relative positions as rotary ones

pub mod attention;
pub mod encoder;
pub mod layer;
pub mod shape;
pub mod subsampling;
pub mod unfinished;
