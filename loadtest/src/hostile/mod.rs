//! Hostile trial: innocent callers over both transports ask questions while attacks run.
//!
//! | file | what it does |
//! |---|---|
//! | `table` | the rows: attacks, and what the server promises |
//! | `attack` | the attackers |
//! | `trial` | the run of the rows |
//! | `watch` | health checks and memory of the server |
//! | `verdict` | bounds, failures and rows of the report |

pub mod attack;
pub mod table;
pub mod trial;
pub mod verdict;
mod watch;
