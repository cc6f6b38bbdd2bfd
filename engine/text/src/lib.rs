//! Text of published checkpoints: chat templates and tokenizers, as their files have them.
//!
//! - [`template`]: [`ChatTemplate`](template::ChatTemplate) renders a published Jinja template; [`template::find`]
//!   finds it in a checkpoint's files; [`Prompt`](template::Prompt) is the text in segments: marks, text, contents;
//!   [`PromptChange`](template::PromptChange) is the part of a growing conversation's prompt that is new.
//! - [`tokenizer`]: [`TextTokenizer`](tokenizer::TextTokenizer) encodes and decodes, read from tokenizer.json, a
//!   SentencePiece model, a GGUF file's vocabulary, or the files of a known class; it encodes prompts segment by
//!   segment.
//!
//! A *mark* is a special token. Text that a caller types never becomes one: a template's own marks leave the renderer
//! as [`Segment::Special`](template::Segment::Special), everything else as text, which is encoded as its letters.

pub mod template;
pub mod tokenizer;
