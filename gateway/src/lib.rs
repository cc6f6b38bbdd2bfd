//! The realtime voice gateway.

pub mod media;
pub mod transport;
