//! Telephone calls over SIP against the real server: a telephone of the test's own.

mod calls;
mod calls_out;
mod connections;
mod control;
mod exchange;
mod hostile;
mod peers;
pub mod recorded;
mod registration;
mod telephone;
mod usage;
