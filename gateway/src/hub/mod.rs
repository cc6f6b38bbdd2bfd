//! Published checkpoints of the Hugging Face hub: `--model ORG/NAME[@REV]`.
//!
//! Files are kept in the cache of the hub's own tools (`HF_HOME`), so what one of them has downloaded is there. A download
//! resumes where an earlier one ended. Of a repository only the files of one form of its weights are taken, see [`choose`].
//!
//! - `settings`: settings; `error`: errors
//! - `download`: the download
//! - `name`: names of repositories
//! - [`choose`]: the files that are taken
//! - [`pinned`]: named files with known checksums
//! - [`real`]: the models of `--real`

pub mod choose;
mod download;
mod error;
mod name;
pub mod pinned;
pub mod real;
mod settings;

pub use choose::{ChooseError, HubFile};
pub use download::fetch;
pub use error::HubError;
pub use name::HubName;
pub use settings::HubSettings;
