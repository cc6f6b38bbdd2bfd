//! Spoken text by its rows, its properties and its clauses.

mod answers;
mod bounds;
mod clauses;
mod docs;
mod properties;
mod rows;

use repartee_spoken::{SpokenOptions, SpokenPiece, SpokenText};

/// Returns the pieces of a text that arrives in these parts.
fn pieces<'a>(parts: impl IntoIterator<Item = &'a str>) -> Vec<SpokenPiece> {
    let mut spoken = SpokenText::new(SpokenOptions::default());
    let mut pieces: Vec<SpokenPiece> = parts.into_iter().flat_map(|part| spoken.push(part)).collect();
    pieces.extend(spoken.finish());
    pieces
}

/// Returns the spoken text of a text that arrives at once.
fn spoken(written: &str) -> String {
    pieces([written]).into_iter().map(|piece| piece.text).collect()
}
