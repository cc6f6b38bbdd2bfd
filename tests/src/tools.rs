//! External programs that drive the server, installed by `make setup-test`.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::process::Command;

/// Returns the root of the repository.
pub fn root() -> &'static Path {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_folder.parent().unwrap_or(crate_folder)
}

/// Returns the turn-detection model smart-turn v3, which the package of a stock client contains
/// (`scripts/setup.sh tests`).
pub fn turn_model() -> Result<PathBuf> {
    let file = "site-packages/pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx";
    let pythons =
        std::fs::read_dir(root().join("target/tools/clients/lib")).context("the stock clients are not installed")?;
    let mut models = pythons.flatten().map(|python| python.path().join(file));
    models.find(|path| path.exists()).context("the stock clients have no smart-turn v3 with them")
}

/// Creates the empty folder `target/recordings/NAME`. Its files stay after the test, for listening.
pub fn recordings(name: &str) -> Result<PathBuf> {
    let folder = root().join("target/recordings").join(name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    }
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    Ok(folder)
}

/// Returns the Python of the tests, with the packages of `tests/requirements.txt`.
pub fn python() -> Result<Command> {
    Ok(Command::new(installed(root().join("target/tools/python/bin/python"))?))
}

/// Returns the Node of the tests, with the packages of `tests/browser`.
pub fn node() -> Result<Command> {
    installed(root().join("tests/browser/node_modules/playwright-core"))?;
    Ok(Command::new(installed(root().join("target/tools/python/bin/node"))?))
}

/// Returns the Python of the stock clients, with the packages of `tests/requirements-clients.txt`.
pub fn clients_python() -> Result<Command> {
    Ok(Command::new(installed(root().join("target/tools/clients/bin/python"))?))
}

/// Returns Debian's own Python, which has the bindings of GStreamer.
pub fn system_python() -> Result<Command> {
    Ok(Command::new(installed(PathBuf::from("/usr/bin/python3"))?))
}

/// Returns the Node of the stock clients, with the packages of `tests/clients/node`.
pub fn clients_node() -> Result<Command> {
    installed(root().join("tests/clients/node/node_modules/openai"))?;
    Ok(Command::new(installed(root().join("target/tools/python/bin/node"))?))
}

/// Runs `command` and returns its standard output. Kills it after `limit`.
///
/// # Errors
/// The command fails (the error contains both outputs), or takes longer than `limit`.
pub async fn output(command: &mut Command, limit: Duration) -> Result<String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let child = command.spawn().with_context(|| format!("{command:?}"))?;
    let Ok(ended) = tokio::time::timeout(limit, child.wait_with_output()).await else {
        bail!("took longer than {limit:?}: {command:?}");
    };
    let ended = ended.with_context(|| format!("{command:?}"))?;
    let (said, complained) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    ensure!(ended.status.success(), "{}: {command:?}\n{said}\n{complained}", ended.status);
    Ok(said.into_owned())
}

fn installed(path: PathBuf) -> Result<PathBuf> {
    ensure!(path.exists(), "{} is missing: run `make setup-test` first", path.display());
    Ok(path)
}
