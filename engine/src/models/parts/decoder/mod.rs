//! Transformer layers shared by thinker, talker, code predictor and code2wav: `*DecoderLayer` and
//! `Qwen3OmniMoeCode2WavTransformerLayer` of the reference, which differ only in their optional parts. Some layers may have a
//! short convolution in place of attention.
//!
//! - [`shape`]: sizes, optional parts and names; [`stack`]: a stack of layers
//! - [`attention`], [`short_conv`]: the two ways in which rows see each other; [`feed_forward`]: what each row passes alone

pub mod attention;
pub mod feed_forward;
pub mod shape;
pub mod short_conv;
pub mod stack;

pub use feed_forward::FeedForward;
pub use shape::{DecoderShape, LayerNames, LayerStyle, LocalLayers, ShortConvLayers};
pub use short_conv::{ConvRows, ConvSections};
pub use stack::Decoder;
