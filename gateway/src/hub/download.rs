//! The download of a checkpoint into the cache.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hf_hub::api::Progress;
use hf_hub::api::sync::{Api, ApiBuilder, ApiError, ApiRepo};
use hf_hub::{Cache, Repo, RepoType};
use repartee_engine::summary::refused_architecture;
use serde::Deserialize;

use super::choose::{self, ChooseError, HubFile};
use super::error::HubError;
use super::name::{self, HubName};
use super::settings::HubSettings;

/// Number of times that a torn download is resumed before it fails.
const RETRIES: usize = 3;
/// Pause before each. Our own retries, because those of `hf-hub` 0.5 fail after a last one that succeeds.
const RETRY_PAUSE: Duration = Duration::from_millis(300);
/// Maximum size of a repository's list of files, in bytes.
const MAX_LISTING: u64 = 16 << 20;

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
    fetch_chosen(settings, name, &choose::choose, true, tell)
}

/// Downloads what is missing of the files that `choose` takes of all; `served` refuses architectures that no family serves before the
/// weights.
pub(super) fn fetch_chosen(
    settings: &HubSettings,
    name: &HubName,
    choose: &dyn Fn(Vec<HubFile>) -> Result<Vec<HubFile>, ChooseError>,
    served: bool,
    tell: &mut dyn FnMut(&str, f32),
) -> Result<PathBuf, HubError> {
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
                // A hub that is busy says nothing of the name.
                Some(status @ 400..500) if !matches!(status, 408 | 429) => {
                    Err(HubError::Refused { name: name.clone(), status })
                }
                _ => cached().ok_or_else(|| unreachable(error)),
            };
        }
    };
    let files = choose(listing.siblings).map_err(|error| HubError::Files { name: name.clone(), error })?;
    if !name::is_commit(&listing.sha) {
        let error = ApiError::InvalidHeader("commit");
        return Err(HubError::Download {
            name: name.clone(),
            file: "the list of files".to_owned(),
            error: Box::new(error),
        });
    }
    // Of one commit, even if the revision moves on meanwhile.
    let repo = api.repo(repo_of(name, &listing.sha));
    let folder = settings.cache().repo(repo_of(name, &listing.sha)).pointer_path(&listing.sha);
    let total = files.iter().map(|file| file.size).sum::<u64>().max(1);
    let mut before = 0;
    for (i, file) in files.iter().enumerate() {
        // Configurations come before the weights, which may be large.
        if served && i > 0 && choose::is_weights(file) && !choose::is_weights(&files[i - 1]) {
            refuse_unserved(name, &folder)?;
        }
        download(&repo, name, file, &folder, &mut |bytes| {
            tell(&file.path, (before + bytes.min(file.size)) as f32 / total as f32);
        })?;
        before += file.size;
    }
    // Written last: without the hub only a whole checkpoint is taken.
    settings.cache().repo(repo_of(name, name.revision())).create_ref(&listing.sha)?;
    Ok(folder)
}

/// Refuses a checkpoint whose configuration names an architecture that no family serves.
fn refuse_unserved(name: &HubName, folder: &Path) -> Result<(), HubError> {
    let refused = match refused_architecture(folder) {
        Ok(refused) => refused,
        Err(error) => Some(error.to_string()),
    };
    refused.map_or(Ok(()), |reason| Err(HubError::Unserved { name: name.clone(), reason }))
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

fn repo_of(name: &HubName, revision: &str) -> Repo {
    Repo::with_revision(name.repository(), RepoType::Model, revision.to_owned())
}

fn list(api: &Api, name: &HubName) -> Result<Listing, ApiError> {
    let request = api.repo(repo_of(name, name.revision())).info_request().query("blobs", "true");
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
            pause();
            done = attempt();
        }
        done.map_err(|error| HubError::Download {
            name: name.clone(),
            file: file.path.clone(),
            error: Box::new(error),
        })?;
        let found = size(&path).unwrap_or_default();
        if found != file.size {
            remove(&path)?;
            return Err(HubError::Size { name: name.clone(), file: file.path.clone(), expected: file.size, found });
        }
    }
    tell(file.size);
    Ok(())
}

/// Leaves the hub some time.
#[allow(clippy::disallowed_methods, reason = "nothing signals that a hub is well again")]
fn pause() {
    std::thread::sleep(RETRY_PAUSE);
}

/// Removes a file of the cache: the link, and what it names.
pub(super) fn remove(path: &Path) -> std::io::Result<()> {
    if let Ok(blob) = path.canonicalize() {
        std::fs::remove_file(blob)?;
    }
    if path.is_symlink() { std::fs::remove_file(path) } else { Ok(()) }
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
    let repo = repo_of(name, name.revision());
    let reference = cache.path().join(repo.folder_name()).join("refs").join(name.revision());
    let commit = match std::fs::read_to_string(reference) {
        Ok(commit) => commit.trim().to_owned(),
        // A commit is its own reference.
        Err(_) => name.revision().to_owned(),
    };
    let folder = cache.repo(repo).pointer_path(&commit);
    (name::is_commit(&commit) && folder.is_dir()).then_some(folder)
}
