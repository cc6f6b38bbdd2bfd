//! Spoken text: what a voice says for the text that a language model writes. The text streams in, and so does what is spoken.
//!
//! ```
//! use repartee_spoken::{ClauseSplitter, SpokenText, WrittenMap};
//!
//! let (mut text, mut map, mut clauses) = (SpokenText::default(), WrittenMap::default(), ClauseSplitter::default());
//! let written = "It costs **$3.50** for 2 km.";
//! let mut pieces = text.push(written);
//! pieces.extend(text.finish());
//! pieces.iter().for_each(|piece| map.push(piece));
//! map.finish(written.len());
//! let spoken: String = pieces.iter().map(|piece| piece.text.as_str()).collect();
//! assert_eq!(spoken, "It costs three dollars and fifty cents for two kilometers.");
//! // Somebody interrupts after "three dollars and fifty cents".
//! assert_eq!(&written[..map.written_end(38)], "It costs **$3.50**");
//! let first = pieces.into_iter().flat_map(|piece| clauses.push(piece)).next();
//! assert_eq!(first.unwrap().text, spoken);
//! ```
//!
//! | file | what it does |
//! |---|---|
//! | `reasoning` | keeps reasoning text out: [`ReasoningFilter`] |
//! | `spoken_text` | written text in, spoken pieces out: [`SpokenText`] |
//! | `layout/` | takes Markdown, HTML tags and character references off |
//! | `token`, `affixes`, `characters` | words with the written text that they stand for, punctuation, emoji |
//! | `language` | tells English text from other text |
//! | `rules/` | English rules, a file for each kind: numbers, dates, times, money, units, phones, addresses, abbreviations, signs |
//! | `numbers` | words of numbers |
//! | `piece` | spoken pieces, and the map back to the written text: [`SpokenPiece`], [`WrittenMap`] |
//! | `plain_text` | pieces of text that is spoken as it is written: [`PlainText`] |
//! | `clauses` | clauses for a voice that cannot stream text in: [`ClauseSplitter`] |
//! | `sentences` | sentences for a voice that streams short texts in: [`SentenceSplitter`] |
//!
//! # Streaming
//!
//! Pieces of [`SpokenText::push`] are final, and the same for any split of the text. A word waits for its end,
//! and a number, a date or an abbreviation for as many words as may still change it: usually one, at most five. Marks of
//! emphasis wait for nothing: they are silent whether they are closed or not. At most about 2 KB of written text are held back,
//! whatever it holds: a word of more than 256 bytes, and a number of as many digits, is passed on as it is written; the target
//! of a link, a tag or a reference that does not end within some hundred bytes is text, or silent.
//!
//! # Layout
//!
//! Marks of Markdown are silent in every language; the ends of headings, items, rows and paragraphs are pauses, and so are line
//! breaks behind short lines. Of a link its text is spoken, of a picture its description. A block of code is replaced by a
//! sentence ([`SpokenOptions::code_block`]), unless its fence says that it is text (`text`, `markdown`, `email`). A block that is
//! only indented is text. Formulas of TeX are not read.
//!
//! # Language
//!
//! Only English text has rules for numbers, signs, abbreviations and addresses; all other text is left as it is written. The
//! language is judged word by word: a text has one point at its beginning; each common English word adds one, each common word
//! of another language and each word with other letters than English takes one away, down to -2 and up to 3; a line begins with
//! at least none and at most two. Text is English while it has a point, counted with the words that a rule waits for.
//! [`SpokenLanguage`] fixes the language instead.

mod affixes;
mod characters;
mod clauses;
mod language;
mod layout;
mod numbers;
mod piece;
mod plain_text;
mod reasoning;
mod rules;
mod sentences;
mod spoken_text;
mod token;

pub use clauses::{Clause, ClauseBounds, ClauseSplitter, WordBounds};
pub use language::SpokenLanguage;
pub use piece::{SpokenPiece, WrittenMap};
pub use plain_text::PlainText;
pub use reasoning::{MAX_MARK, ReasoningError, ReasoningFilter, ReasoningMarks};
pub use sentences::{MAX_PIECE, SentenceEnd, SentenceSplitter};
pub use spoken_text::{SpokenOptions, SpokenText};
