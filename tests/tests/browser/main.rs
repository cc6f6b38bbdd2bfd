//! The pages in a browser.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

mod browser;
mod lan;
