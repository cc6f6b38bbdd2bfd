//! What is measured of calls.
//!
//! | file | what it does |
//! |---|---|
//! | `level` | what is audible |
//! | `playback` | an answer as the caller hears it: first sound, gaps |
//! | `lateness` | how late our own frames leave |
//! | `log` | what happened in a scenario's calls |
//! | `process` | processor time and memory of a process |

pub mod lateness;
pub mod level;
pub mod log;
pub mod playback;
pub mod process;
