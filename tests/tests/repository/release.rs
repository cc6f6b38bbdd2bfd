//! The release: contents of the archive, and the systemd unit.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repartee_tests::tools;
use tokio::process::Command;

const PATIENCE: Duration = Duration::from_secs(60);

/// Writes a script in place of the binary; the archive does not depend on its behaviour.
fn binary(folder: &Path) -> Result<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let path = folder.join("repartee");
    std::fs::write(&path, "#!/bin/sh\necho repartee 1.2.3\n")?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

/// Packs an archive into `folder`.
async fn pack(binary: &Path, folder: &Path) -> Result<PathBuf> {
    let mut pack = Command::new(tools::root().join("scripts/archive.sh"));
    Ok(tools::output(pack.arg(binary).arg(folder), PATIENCE).await?.trim().into())
}

#[tokio::test]
async fn the_archive_holds_what_a_server_needs() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let binary = binary(folder.path())?;
    let archive = pack(&binary, &folder.path().join("out")).await?;
    let name = archive.file_name().and_then(|name| name.to_str()).context("a name")?;
    let top = name.strip_suffix(".tar.gz").context("a compressed archive")?;
    ensure!(top == format!("repartee-1.2.3-linux-{}", std::env::consts::ARCH), "{top}");
    let list = tools::output(Command::new("tar").arg("-tvzf").arg(&archive), PATIENCE).await?;
    for (mode, file) in [
        ("-rwxr-xr-x 0/0", "repartee"),
        ("-rw-r--r-- 0/0", "repartee.example.toml"),
        ("-rw-r--r-- 0/0", "LICENSE"),
        ("-rw-r--r-- 0/0", "THIRD-PARTY"),
        ("-rw-r--r-- 0/0", "docs/serving.md"),
        ("-rw-r--r-- 0/0", "deploy/repartee.service"),
        ("-rw-r--r-- 0/0", "web/grafana/repartee.json"),
    ] {
        let path = format!(" {top}/{file}");
        ensure!(list.lines().any(|line| line.starts_with(mode) && line.ends_with(&path)), "{mode} {path} in\n{list}");
    }
    // The archive has every page of docs/ to which the README links.
    let readme = std::fs::read_to_string(tools::root().join("README.md"))?;
    let links = readme.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link);
    for link in links.filter(|link| link.starts_with("docs/") && link.ends_with(".md")) {
        ensure!(list.contains(&format!("{top}/{link}\n")), "{link} in\n{list}");
    }
    let mut check = Command::new("sha256sum");
    check.arg("--check").arg(format!("{name}.sha256")).current_dir(archive.parent().context("a folder")?);
    tools::output(&mut check, PATIENCE).await?;
    let again = pack(&binary, &folder.path().join("again")).await?;
    ensure!(std::fs::read(&archive)? == std::fs::read(&again)?, "the same files give the same bytes");
    Ok(())
}

#[tokio::test]
async fn the_archive_holds_all_linked_licences() -> Result<()> {
    let text = tools::output(&mut Command::new(tools::root().join("scripts/third-party")), PATIENCE).await?;
    let (list, texts) = text.split_once("\n====").context("texts after the list")?;
    // What the binary links, as cargo knows it; procedural macros run at compile time.
    let mut tree = Command::new("cargo");
    tree.args([
        "tree",
        "--locked",
        "--package=repartee",
        "--edges=normal,no-proc-macro",
        "--prefix=none",
        "--format={p}",
    ]);
    let tree = tools::output(tree.current_dir(tools::root()), PATIENCE).await?;
    let mut linked = 0;
    for line in tree.lines().filter(|line| !line.contains('(')) {
        let (name, version) = line.split_once(" v").context("a name and a version")?;
        let label = format!("{name} {version}");
        ensure!(list.lines().any(|line| line.starts_with(&format!("{label}: "))), "{label} in the list");
        // The heads of the texts name the crates, one after another.
        let is_holder = |line: &str| line.split(", ").any(|holder| holder == label);
        ensure!(texts.lines().any(is_holder), "{label} has a licence");
        linked += 1;
    }
    ensure!(linked > 200, "{linked} crates are linked");
    // The C sources that crates bundle.
    for holder in ["Xiph.Org Foundation", "fiat-crypto"] {
        ensure!(texts.contains(holder), "{holder}");
    }
    Ok(())
}

#[tokio::test]
async fn systemd_accepts_the_unit() -> Result<()> {
    if Command::new("systemd-analyze").arg("--version").output().await.is_err() {
        println!("skipped: there is no systemd-analyze");
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let shipped = std::fs::read_to_string(tools::root().join("deploy/repartee.service"))?;
    let installed = "/usr/local/bin/repartee";
    ensure!(shipped.contains(&format!("ExecStart={installed} ")), "{shipped}");
    // systemd rejects a unit without its program.
    let unit = folder.path().join("repartee.service");
    std::fs::write(&unit, shipped.replace(installed, binary(folder.path())?.to_str().context("text")?))?;
    let mut verify = Command::new("systemd-analyze");
    let verified = verify.arg("verify").arg(&unit).output().await?;
    let said = String::from_utf8_lossy(&verified.stderr);
    // Unknown names cause only warnings.
    ensure!(verified.status.success() && said.is_empty(), "{said}");
    Ok(())
}
