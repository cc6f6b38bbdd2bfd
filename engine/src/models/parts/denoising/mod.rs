//! Masked-diffusion language models: every row sees all rows of prompt and canvas, and a canvas of masks is filled in by
//! refinement steps, block by block.
//!
//! - [`canvas`]: an utterance's canvas, and the places that a step settles
//! - [`denoiser`]: the model as the stage drives it, and a pass over several canvases
//! - [`stage`]: the stage, from clauses to codes

pub mod canvas;
pub mod denoiser;
pub mod stage;
