//! The realtime voice gateway.
