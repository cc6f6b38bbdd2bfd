//! Reports of all benchmarks: measures beside those of a peer, from one run on one machine.
//!
//! The gateway and the load generator both write reports with this crate, and share no other code. So it knows nothing of
//! either: no audio, no events, no network. A bug in it cannot hide a bug of a call.
//!
//! | file | what it does |
//! |---|---|
//! | `report` | the report, its rows, and its JSON file |
//! | `machine` | description of the machine |
//! | `table` | rows as a table on the terminal |

mod machine;
mod report;
mod table;

pub use report::{Report, ReportError, ReportRow};
pub use table::{print, table};
