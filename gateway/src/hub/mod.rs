//! Published checkpoints of the Hugging Face hub: `--model ORG/NAME[@REV]`.
//!
//! Files are kept in the cache of the hub's own tools (`HF_HOME`), so what one of them has downloaded is there. A download
//! resumes where an earlier one ended. Of a repository only the files of one form of its weights are taken, see [`choose`].
//!
//! - this file: settings, the download, its errors
//! - `name`: names of repositories
//! - [`choose`]: the files that are taken

pub mod choose;
mod name;

use std::path::{Path, PathBuf};
use std::time::Duration;

use hf_hub::api::Progress;
use hf_hub::api::sync::{Api, ApiBuilder, ApiError, ApiRepo};
use hf_hub::{Cache, Repo, RepoType};
use serde::Deserialize;
use thiserror::Error;

pub use choose::{ChooseError, HubFile};
pub use name::HubName;

/// Number of times that a torn download is resumed before it fails.
const RETRIES: usize = 3;
/// Pause before each. Our own retries, because those of `hf-hub` 0.5 fail after a last one that succeeds.
const RETRY_PAUSE: Duration = Duration::from_millis(300);
/// Maximum size of a repository's list of files, in bytes.
const MAX_LISTING: u64 = 16 << 20;

/// Settings of the hub; [`HubSettings::from_env`] reads those of its own tools.
#[derive(Debug, Clone, Default)]
pub struct HubSettings {
    /// URL of the hub; `None` for the public one.
    pub endpoint: Option<String>,
    /// Folder of the cache; `None` for the default one.
    pub cache: Option<PathBuf>,
    /// Token of an account; `None` for the stored one, if there is one.
    pub token: Option<String>,
    /// True to take what the cache has, and to ask no hub.
    pub offline: bool,
}

impl HubSettings {
    /// Reads `HF_ENDPOINT`, `HF_TOKEN` and `HF_HUB_OFFLINE`. `HF_HOME` moves the default cache.
    pub fn from_env(var: impl Fn(&str) -> Option<String>) -> Self {
        let var = |name| var(name).filter(|value| !value.is_empty());
        let offline =
            var("HF_HUB_OFFLINE").is_some_and(|value| !matches!(&*value.to_lowercase(), "0" | "false" | "no"));
        Self { endpoint: var("HF_ENDPOINT"), cache: None, token: var("HF_TOKEN"), offline }
    }

    fn cache(&self) -> Cache {
        self.cache.clone().map_or_else(Cache::from_env, Cache::new)
    }
}

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
}

/// List of a repository's files.
#[derive(Debug, Deserialize)]
struct Listing {
    /// Commit of the revision.
    sha: String,
    siblings: Vec<HubFile>,
}

/// Downloads what is missing of a checkpoint and returns its folder. `tell` gets the name of each file and the share of all
/// bytes, 0 to 1.
///
/// # Errors
///
/// The cache does not have it, and the hub does not answer, refuses it, has no weights in a known form, or sends another file
/// than it lists.
pub fn fetch(settings: &HubSettings, name: &HubName, tell: &mut dyn FnMut(&str, f32)) -> Result<PathBuf, HubError> {
    let cached = || cached(&settings.cache(), name);
    if settings.offline {
        return cached().ok_or_else(|| HubError::Offline { name: name.clone() });
    }
    let unreachable = |error| HubError::Unreachable { name: name.clone(), error: Box::new(error) };
    let api = api(settings).map_err(unreachable)?;
    let listing = match list(&api, name) {
        Ok(listing) => listing,
        Err(error) => {
            return match status(&error) {
                Some(status @ 400..500) => Err(HubError::Refused { name: name.clone(), status }),
                _ => cached().ok_or_else(|| unreachable(error)),
            };
        }
    };
    let files = choose::choose(listing.siblings).map_err(|error| HubError::Files { name: name.clone(), error })?;
    if !name::is_commit(&listing.sha) {
        let error = ApiError::InvalidHeader("commit");
        return Err(HubError::Download {
            name: name.clone(),
            file: "the list of files".to_owned(),
            error: Box::new(error),
        });
    }
    // Of one commit, even if the revision moves on meanwhile.
    let repo = api.repo(repo(name, &listing.sha));
    let folder = settings.cache().repo(self::repo(name, &listing.sha)).pointer_path(&listing.sha);
    let total = files.iter().map(|file| file.size).sum::<u64>().max(1);
    let mut before = 0;
    for file in &files {
        download(&repo, name, file, &folder, &mut |bytes| {
            tell(&file.path, (before + bytes.min(file.size)) as f32 / total as f32);
        })?;
        before += file.size;
    }
    // Written last: without the hub only a whole checkpoint is taken.
    settings.cache().repo(self::repo(name, name.revision())).create_ref(&listing.sha)?;
    Ok(folder)
}

fn api(settings: &HubSettings) -> Result<Api, ApiError> {
    let mut builder = ApiBuilder::from_cache(settings.cache()).with_progress(false);
    if let Some(endpoint) = &settings.endpoint {
        builder = builder.with_endpoint(endpoint.trim_end_matches('/').to_owned());
    }
    if settings.token.is_some() {
        builder = builder.with_token(settings.token.clone());
    }
    builder.build()
}

fn repo(name: &HubName, revision: &str) -> Repo {
    Repo::with_revision(name.repository(), RepoType::Model, revision.to_owned())
}

fn list(api: &Api, name: &HubName) -> Result<Listing, ApiError> {
    let request = api.repo(repo(name, name.revision())).info_request().query("blobs", "true");
    let mut reply = request.call().map_err(Box::new)?;
    Ok(reply.body_mut().with_config().limit(MAX_LISTING).read_json().map_err(Box::new)?)
}

/// Returns the HTTP status of a refused request.
fn status(error: &ApiError) -> Option<u16> {
    match error {
        ApiError::RequestError(error) => match **error {
            ureq::Error::StatusCode(status) => Some(status),
            _ => None,
        },
        _ => None,
    }
}

/// Downloads a file, unless the cache has it; `tell` gets the number of its bytes that are there.
fn download(
    repo: &ApiRepo,
    name: &HubName,
    file: &HubFile,
    folder: &Path,
    tell: &mut dyn FnMut(u64),
) -> Result<(), HubError> {
    let path = folder.join(&file.path);
    let size = |path: &Path| std::fs::metadata(path).map(|found| found.len()).ok();
    if size(&path) != Some(file.size) {
        let mut attempt = || repo.download_with_progress(&file.path, Meter { tell: &mut *tell, bytes: 0 });
        let mut done = attempt();
        for _ in 0..RETRIES {
            if done.is_ok() {
                break;
            }
            std::thread::sleep(RETRY_PAUSE);
            done = attempt();
        }
        done.map_err(|error| HubError::Download {
            name: name.clone(),
            file: file.path.clone(),
            error: Box::new(error),
        })?;
        let found = size(&path).unwrap_or_default();
        if found != file.size {
            // The link and what it names.
            if let Ok(blob) = path.canonicalize() {
                std::fs::remove_file(blob)?;
            }
            std::fs::remove_file(&path)?;
            return Err(HubError::Size { name: name.clone(), file: file.path.clone(), expected: file.size, found });
        }
    }
    tell(file.size);
    Ok(())
}

/// Progress of a file.
struct Meter<'a> {
    tell: &'a mut dyn FnMut(u64),
    bytes: u64,
}

impl Progress for Meter<'_> {
    fn init(&mut self, _: usize, _: &str) {
        self.bytes = 0;
    }

    fn update(&mut self, size: usize) {
        self.bytes += size as u64;
        (self.tell)(self.bytes);
    }

    fn finish(&mut self) {}
}

/// Returns the folder of a checkpoint that an earlier download has finished; `None` if there is none.
fn cached(cache: &Cache, name: &HubName) -> Option<PathBuf> {
    let repo = repo(name, name.revision());
    let reference = cache.path().join(repo.folder_name()).join("refs").join(name.revision());
    let commit = match std::fs::read_to_string(reference) {
        Ok(commit) => commit.trim().to_owned(),
        // A commit is its own reference.
        Err(_) => name.revision().to_owned(),
    };
    let folder = cache.repo(repo).pointer_path(&commit);
    (name::is_commit(&commit) && folder.is_dir()).then_some(folder)
}
