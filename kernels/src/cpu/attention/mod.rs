//! Attention over the paged KV cache, and attention within segments.
//!
//! - `attend`: several queries over the same keys and values; `cached`: over the cache; `segments`: within segments

mod attend;
mod cached;
mod segments;

pub(super) use attend::Scratch;
pub(super) use cached::cached;
pub(super) use segments::segments;
