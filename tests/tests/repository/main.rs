//! The repository: borders, deployment files, dashboards, the release, promises of security.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

mod borders;
mod dashboards;
mod deploy;
mod release;
mod security;
