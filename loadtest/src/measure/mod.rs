//! Measurements of calls and processes.
//!
//! | file | what it does |
//! |---|---|
//! | `level` | audibility of sound |
//! | `playback` | simulated playback of an answer: first sound, gaps |
//! | `lateness` | lateness of our own frames |
//! | `log` | log of a scenario's calls |
//! | `machine` | processor time of the whole machine |
//! | `process` | processor time and memory of a process |

pub mod lateness;
pub mod level;
pub mod log;
pub mod machine;
pub mod playback;
pub mod process;
