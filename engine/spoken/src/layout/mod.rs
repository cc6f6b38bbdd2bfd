//! Layout: takes Markdown, HTML tags and character references off a text that streams in.

mod blocks;
mod bracket;
mod fence;
mod item;
mod line_start;
mod link_target;
mod output;
mod parser;
mod run;
mod state;
mod tag;

pub use item::{LayoutItem, Pause};
pub use parser::Layout;
