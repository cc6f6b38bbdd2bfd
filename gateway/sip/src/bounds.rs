//! Bounds of messages.

/// Largest datagram that is read, in bytes.
pub const MAX_BYTES: usize = 64 << 10;
/// Maximum number of lines before the body.
pub const MAX_LINES: usize = 128;
/// Longest header that a call keeps, in bytes.
const MAX_FIELD: usize = 1_024;
/// Maximum number of proxies on the way (`Via`, `Record-Route`).
pub(crate) const MAX_HOPS: usize = 16;

/// True for a text that fits a kept field.
pub(crate) fn is_short(text: &str) -> bool {
    text.len() <= MAX_FIELD
}
