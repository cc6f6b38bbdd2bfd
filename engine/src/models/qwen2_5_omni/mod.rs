//! The Qwen2.5-Omni family.

pub mod token2wav;
