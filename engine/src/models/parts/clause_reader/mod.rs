//! Reader of a voice that speaks a clause at a time: the first stage of its family. It makes the given text speakable and
//! cuts it into clauses; the next stage makes sound of each clause.
//!
//! A family brings one or more stages from [`EdgeKind::Clauses`](crate::stage::EdgeKind) to
//! [`EdgeKind::Samples`](crate::stage::EdgeKind), and is assembled like this:
//!
//! ```text
//! let tokenizer = Tokenizer::of_bytes()?;
//! Pipeline::new(&ops)
//!     .stage(ClauseReaderPart::new(&tokenizer, settings))
//!     .stage(its own part: clauses to samples)
//!     .with(ModelFrame { tokenizer, template: Box::new(ClauseTemplate), voices, codec: Some(..), max_tokens: None })
//! ```
//!
//! [`ClauseTemplate`] declares that the family reads clauses (`PromptTemplate::reads_clauses`). So the text reaches the reader
//! as it is written, one byte a token: as a user message, as text that streams in, or from the language model of a cascade.
//! The family has no tokenizer, no numbers and no sentences of its own.
//!
//! # Contract of the stage after the reader
//!
//! A response is these items, in this order:
//!
//! | item | what the stage does |
//! |---|---|
//! | `Context { .. }`, if the template renders system messages | takes their positions as instructions of the response |
//! | `Begin(params)` | takes voice, seed and response id; passes the item on |
//! | `Clause(text)`, any number | queues the clause, and turns it into sound as an utterance of its own, in order |
//! | `End(end)` | gives `End(end)` once the sound of every queued clause was given |
//! | `Abort` | drops all of it, and passes the item on |
//! | `Token(..)` and all others | ignores them: they are the text for the caller |
//!
//! - The clauses are the same for any split of the text, and the sound of a clause depends on the voice, the seed, the clause
//!   and its number alone. So the sound is the same for any split, batch and thread count.
//! - A clause is spoken as it stands: numbers, dates, signs and Markdown are words already. It is short at first
//!   ([`ClauseBounds`](repartee_spoken::ClauseBounds)) and at most some 2,300 bytes long; a voice with a lower limit cuts it
//!   further, between words.
//! - Silence between clauses is the voice's own: what its model makes at the end of an utterance with this punctuation. Nothing is
//!   added or cut.
//! - Samples leave as they are made, at most `max_items` pieces a step. A clause is synthesised while the one before it plays: the
//!   planner runs the stage by the time at which the sound given so far runs out. [`Stage::buffered_audio`] is the
//!   estimated duration of the queued clauses (some 60 ms a byte); it lets the stages before wait.
//! - A text alone (`params.audio` is false) has no clauses: `Begin`, then `End`.
//! - While text is still coming in, the stage has no rows to run once its queue is empty, and the response goes on.
//!
//! [`Stage::buffered_audio`]: crate::stage::Stage::buffered_audio

mod clause_stream;
mod reader;
mod template;

pub use reader::ClauseReaderPart;
pub use template::ClauseTemplate;
