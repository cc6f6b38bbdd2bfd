//! Errors of downloads.

use hf_hub::api::sync::ApiError;
use thiserror::Error;

use super::choose::ChooseError;
use super::name::HubName;

/// Error of a download.
#[derive(Debug, Error)]
pub enum HubError {
    /// No hub answers.
    #[error(
        "{name} is not in the cache, and the hub does not answer ({error}): connect this machine, name another hub with \
         HF_ENDPOINT, or copy the checkpoint here and name its folder"
    )]
    Unreachable {
        /// Name of the repository.
        name: HubName,
        /// Error of the request.
        error: Box<ApiError>,
    },
    /// The cache does not have the checkpoint, and no hub is to be asked.
    #[error("{name} is not in the cache, and HF_HUB_OFFLINE forbids to download it: unset it, or name a folder")]
    Offline {
        /// Name of the repository.
        name: HubName,
    },
    /// The hub has no such repository, or does not show it to this account.
    #[error(
        "the hub refuses {name} (status {status}): correct the name and the revision; a gated or private checkpoint needs an \
         accepted licence and HF_TOKEN"
    )]
    Refused {
        /// Name of the repository.
        name: HubName,
        /// HTTP status.
        status: u16,
    },
    /// The repository has no files to load.
    #[error("{name}: {error}")]
    Files {
        /// Name of the repository.
        name: HubName,
        /// Problem of the files.
        error: ChooseError,
    },
    /// No family serves the checkpoint; its weights were not downloaded.
    #[error("{name}: {reason}; its weights were not downloaded")]
    Unserved {
        /// Name of the repository.
        name: HubName,
        /// Reason, with the families.
        reason: String,
    },
    /// A file cannot be downloaded.
    #[error("{name}: {file}: {error}: start again to resume")]
    Download {
        /// Name of the repository.
        name: HubName,
        /// Path in the repository.
        file: String,
        /// Error of the download.
        error: Box<ApiError>,
    },
    /// A file has another size than the hub says.
    #[error("{name}: {file} has {found} bytes in place of {expected}: it was removed, start again")]
    Size {
        /// Name of the repository.
        name: HubName,
        /// Path in the repository.
        file: String,
        /// Size in the hub's list.
        expected: u64,
        /// Size on disk.
        found: u64,
    },
    /// The cache cannot be written.
    #[error("the cache of the hub cannot be written: {0}")]
    Cache(#[from] std::io::Error),
    /// A pinned file has another content than is known.
    #[error("{name}: {file} has another checksum than the known one: it was removed, start again")]
    Checksum {
        /// Name of the repository.
        name: HubName,
        /// Path in the repository.
        file: String,
    },
    /// A name is none of a repository.
    #[error("`{0}` is no name of a repository: write ORG/NAME or ORG/NAME@REV")]
    Name(String),
}
