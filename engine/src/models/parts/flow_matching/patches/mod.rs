//! Flow matching inside a language model's step: from a row of it to a patch of latents, whose slopes are those of a
//! transformer over the row, earlier latents and the noisy ones; and from a patch back to a row.
//!
//! - [`config`]: sizes of the layers and of the solve
//! - [`layers`]: layers in which all rows of a sequence see each other
//! - [`head`]: the solve of patches
//! - [`aggregator`]: patches to rows

pub mod aggregator;
pub mod config;
pub mod head;
pub mod layers;
