//! A language model that writes and speaks at once: beside each text token of a response a second stack of layers, with a
//! cache of its own, draws a group of codes.
//!
//! | file | content |
//! |---|---|
//! | [`head`] | the second stack: a group of codes of a position |
//! | [`stage`] | both as one stage |

pub mod head;
pub mod stage;
