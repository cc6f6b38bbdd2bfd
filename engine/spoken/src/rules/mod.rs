//! Rules that write English text out as it is spoken.

mod abbreviations;
mod addresses;
mod dates;
mod english;
mod fallback;
mod money;
mod number;
mod outcome;
mod phones;
mod quantities;
mod signs;
mod times;
mod units;

pub use english::{apply, needs_rule};
pub use outcome::{PreviousWord, RuleOutcome, SpokenWord, TokenWindow};
