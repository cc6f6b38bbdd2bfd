//! A server that the load generator builds and starts, if `--target` names none.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// Longest start of a server, including the load of its model.
const START: Duration = Duration::from_secs(120);
/// Ports that are tried for an address of both protocols.
const FREE_PORTS: u16 = 20;

/// A running server; dropping it kills the process.
#[derive(Debug)]
pub struct OwnServer {
    child: Child,
    url: String,
}

impl OwnServer {
    /// Starts `program` with `arguments` and waits until it prints its URL.
    ///
    /// # Errors
    /// The program does not start, ends early, or prints no URL within two minutes.
    pub async fn start(program: &Path, arguments: &[&str]) -> Result<Self> {
        Self::start_with(program, arguments, &[]).await
    }

    /// As [`Self::start`], with these variables in its environment.
    ///
    /// # Errors
    /// The program does not start, ends early, or prints no URL within two minutes.
    pub async fn start_with(program: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Result<Self> {
        let mut command = Command::new(program);
        command.envs(environment.iter().copied());
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).kill_on_drop(true);
        // Hides the server's log lines for each call.
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
        // The pipe must be drained, or the server would block.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Self { child, url })
    }

    /// Returns the server's URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// True if the process has not ended.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Returns the process id; `None` once the server has ended.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }
}

/// Returns an address of this machine for calls over SIP, over UDP and TCP, which the server does not print. Its port is free,
/// and below those that the system gives to sockets that ask for any.
///
/// # Errors
/// None of the ports that are tried is free for both.
pub fn free_sip_address() -> Result<SocketAddr> {
    let free = |port: u16| -> io::Result<SocketAddr> {
        let address = UdpSocket::bind((Ipv4Addr::LOCALHOST, port))?.local_addr()?;
        // A port that is free for UDP may have a connection.
        TcpListener::bind(address)?.local_addr()
    };
    // Another generator begins elsewhere.
    let begin = std::process::id() as u16 % (32_768 - 10_000 - FREE_PORTS);
    (0..FREE_PORTS)
        .find_map(|number| free(10_000 + begin + number).ok())
        .context("no port of this machine is free for UDP and TCP")
}

/// Returns the path of a server binary: `given`, or `name` beside our own binary. It is built first in a checkout.
///
/// # Errors
/// The build fails, or the file is missing.
pub async fn binary(given: Option<&Path>, target: &[&str], name: &str) -> Result<PathBuf> {
    if let Some(given) = given {
        return Ok(given.to_owned());
    }
    let own = std::env::current_exe()?;
    let folder = own.parent().context("this program has no folder")?;
    // An up-to-date build takes a second; a stale binary would give wrong figures.
    if Path::new("Cargo.toml").exists() {
        eprintln!("repartee-load: building {name}");
        let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        let built = build.args(["build", "--release"]).args(target).status().await.context("cargo")?;
        ensure!(built.success(), "{name} could not be built");
    }
    let path = folder.join(name);
    ensure!(path.exists(), "{} is missing: name a server with --target or --server", path.display());
    Ok(path)
}
