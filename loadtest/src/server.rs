//! A server of our own, when none is named.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// How long it may take to load its model.
const START: Duration = Duration::from_secs(120);

/// A running server; dropping it ends it.
#[derive(Debug)]
pub struct OwnServer {
    child: Child,
    url: String,
}

impl OwnServer {
    /// Starts `program` with `arguments` and returns when it says where it listens.
    pub async fn start(program: &Path, arguments: &[&str]) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).kill_on_drop(true);
        // What the server logs of each call is not wanted here.
        command.env("REPARTEE_LOG", "warn");
        let mut child = command.spawn().with_context(|| program.display().to_string())?;
        let stdout = child.stdout.take().context("the server has no standard output")?;
        let mut lines = BufReader::new(stdout).lines();
        let found = async {
            while let Some(line) = lines.next_line().await? {
                if let Some(url) = line.split_whitespace().find(|word| word.starts_with("http")) {
                    return Ok(url.trim_end_matches('/').to_owned());
                }
            }
            bail!("the server ended before it was ready")
        };
        let url = timeout(START, found).await.context("the server took too long to start")??;
        // Whoever reads no more of its output would stop it.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Self { child, url })
    }

    /// Where it listens.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its process.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }
}

/// The gateway's binary: `given`, or the one beside our own, or built.
pub async fn binary(given: Option<&Path>, package: &[&str], name: &str) -> Result<PathBuf> {
    if let Some(given) = given {
        return Ok(given.to_owned());
    }
    let own = std::env::current_exe()?;
    let folder = own.parent().context("this program lies nowhere")?;
    // A build that is fresh takes a second; one that is not would be measured in place of today's code.
    if Path::new("Cargo.toml").exists() {
        eprintln!("repartee-load: building {name}");
        let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        let built = build.args(["build", "--release"]).args(package).status().await.context("cargo")?;
        ensure!(built.success(), "{name} could not be built");
    }
    let path = folder.join(name);
    ensure!(path.exists(), "{} is missing: name a server with --target or --server", path.display());
    Ok(path)
}
