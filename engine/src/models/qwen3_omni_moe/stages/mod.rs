//! The family's language models as [`Autoregressive`](crate::models::parts::autoregressive::Autoregressive) stages drive them.

mod speaking;
pub mod talker;
