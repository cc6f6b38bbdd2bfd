//! English text to phonemes in the notation of misaki 0.9.4, by its lexicons. They are data beside a voice:
//! `lexicon/us_gold.json`, `us_silver.json`, `gb_gold.json` and `gb_silver.json`.
//!
//! Words have the readings of the lexicon, those with the endings -s, -ed and -ing too. Instead of a tagger, the words before
//! a word tell its verb from its noun. A word that the lexicon does not know is two known words, or its letters' names, or
//! sounded out by rules: it is never left out.
//!
//! - `lexicon`: readings of words and of their inflections
//! - `stress`: marks of stress
//! - `sounds`: words that the lexicon does not know
//! - `reader`: clauses

mod lexicon;
mod reader;
mod sounds;
mod stress;

pub use lexicon::{Accent, Lexicon};
pub use reader::phonemes;
