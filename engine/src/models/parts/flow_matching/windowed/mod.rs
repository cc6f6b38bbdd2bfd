//! Flow matching over windows of codes, for a transformer whose frames attend to everything, in both directions. After
//! Covo-Audio's `token2latent`, by its description.
//!
//! The reference solves a response as a whole, once it has ended. Here each few new codes are solved on a window of their own: the
//! voice's recording, codes before them, the new ones, and some after them. To the model the recording and the earlier codes are
//! sound that it continues: it gets their latents, as the reference's solve gets those of the recording. So windows join. Both
//! hand-off modes do the same, and no bit depends on the arrival of codes; a test measures the distance from one solve.
//!
//! - [`config`]: sizes of its layers
//! - [`dit`], [`sections`]: one evaluation, and its sections of the row spec
//! - [`window`]: codes of a window
//! - [`stage`]: codes to latents, a window at a time

pub mod config;
pub mod dit;
pub mod sections;
pub mod stage;
pub mod window;
