//! Forms that a generated text is held to.
//!
//! A [`Grammar`] is JSON of a schema, or a choice of texts with JSON behind each, between literals. A [`Matcher`] follows a
//! text of it and tells the tokens of a [`Vocabulary`] that may follow. Whatever is chosen among them, the text can be
//! completed, and within the tokens that are left.
//!
//! - `error`: typed errors
//! - `schema`: JSON schemas: what their keywords mean
//! - `keywords`: keywords of schemas, and their values
//! - `node`: compiled schemas, and the lowest value of each
//! - `number`: numbers in a range, digit by digit
//! - `states`: places in the text of a form
//! - `string`: strings, byte by byte
//! - `span`: sorted texts, byte by byte
//! - `grammar`: forms
//! - `automaton`: the texts of a form, byte by byte
//! - `remaining`: fewest bytes that complete a text
//! - `vocabulary`: tokens by their bytes
//! - `mask`: sets of tokens
//! - `matcher`: a text that is held to a form

mod automaton;
mod error;
mod grammar;
mod keywords;
mod mask;
mod matcher;
mod node;
mod number;
mod remaining;
mod schema;
mod span;
mod states;
mod string;
mod vocabulary;

pub use error::FormError;
pub use grammar::{Grammar, Literal};
pub use mask::Mask;
pub use matcher::Matcher;
pub use schema::MAX_SCHEMA;
pub use vocabulary::Vocabulary;
