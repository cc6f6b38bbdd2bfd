//! The release: contents of the archive, and the systemd unit.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repartee_tests::tools;
use serde_json::Value;
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

/// Writes a release of scripts in place of the binaries.
async fn release(folder: &Path) -> Result<PathBuf> {
    let (binary, out) = (binary(folder)?, folder.join("dist"));
    let load = folder.join("repartee-load");
    std::fs::copy(&binary, &load)?;
    let mut release = Command::new(tools::root().join("scripts/release.py"));
    tools::output(release.args([&binary, &load, &out]), PATIENCE).await?;
    Ok(out)
}

#[tokio::test]
async fn a_release_has_checked_files_and_materials() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let out = release(folder.path()).await?;
    let mut check = Command::new("sha256sum");
    let checked = tools::output(check.args(["--check", "SHA256SUMS"]).current_dir(&out), PATIENCE).await?;
    for ending in [".tar.gz: OK", ".deb: OK", ".oci.tar: OK", ".cdx.json: OK"] {
        ensure!(checked.lines().any(|line| line.ends_with(ending)), "{ending} in {checked}");
    }
    let bill: Value = serde_json::from_slice(&std::fs::read(out.join("repartee-1.2.3.cdx.json"))?)?;
    let crates = bill["components"].as_array().context("components")?;
    ensure!(crates.len() > 200, "{} crates", crates.len());
    for component in crates {
        let (name, version) = (component["name"].as_str().context("a name")?, component["version"].as_str());
        let purl = format!("pkg:cargo/{name}@{}", version.context("a version")?);
        ensure!(component["purl"] == purl && component["licenses"][0]["expression"].is_string(), "{component}");
    }
    let archive = out.join(format!("repartee-1.2.3-linux-{}.tar.gz", std::env::consts::ARCH));
    let list = tools::output(Command::new("tar").arg("-tzf").arg(archive), PATIENCE).await?;
    ensure!(list.contains("/repartee-load\n"), "no load generator in {list}");
    Ok(())
}

#[tokio::test]
async fn the_debian_package_is_installed() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let out = release(folder.path()).await?;
    let package = std::fs::read_dir(&out)?.filter_map(Result::ok).map(|entry| entry.path());
    let package =
        package.into_iter().find(|path| path.extension().is_some_and(|kind| kind == "deb")).context("a package")?;
    let root = folder.path().join("root");
    for empty in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "var/log"] {
        std::fs::create_dir_all(root.join(empty))?;
    }
    std::fs::write(root.join("var/lib/dpkg/status"), "")?;
    let dpkg = |arguments: &[&str]| {
        let mut command = Command::new("dpkg");
        command.arg(format!("--root={}", root.display()));
        command.args(["--force-depends", "--force-script-chrootless", "--force-not-root"]).args(arguments);
        command
    };
    tools::output(&mut dpkg(&["--install", package.to_str().context("text")?]), PATIENCE).await?;
    for file in
        ["usr/bin/repartee", "usr/bin/repartee-load", "etc/repartee/repartee.toml", "usr/share/doc/repartee/serving.md"]
    {
        ensure!(root.join(file).is_file(), "{file} is not installed");
    }
    let unit = std::fs::read_to_string(root.join("usr/lib/systemd/system/repartee.service"))?;
    ensure!(unit.contains("ExecStart=/usr/bin/repartee serve --config /etc/repartee/repartee.toml"), "{unit}");
    ensure!(!unit.contains("/usr/local"), "{unit}");
    // Settings of a person stay.
    std::fs::write(root.join("etc/repartee/repartee.toml"), "drain_s = 5\n")?;
    tools::output(&mut dpkg(&["--remove", "repartee"]), PATIENCE).await?;
    ensure!(!root.join("usr/bin/repartee").exists() && root.join("etc/repartee/repartee.toml").exists());
    Ok(())
}

#[tokio::test]
async fn the_image_runs_by_its_own_libraries() -> Result<()> {
    let folder = tempfile::tempdir()?;
    // A shell in place of the binary: it links the C library, as the binary does.
    let script = "import sys; sys.dont_write_bytecode = True; sys.path.insert(0, 'scripts'); import pathlib, release; \
                  release.image(pathlib.Path(sys.argv[1]), pathlib.Path('/bin/sh'), '1.2.3', pathlib.Path(sys.argv[1]))";
    let mut image = tools::system_python()?;
    tools::output(image.args(["-c", script]).arg(folder.path()).current_dir(tools::root()), PATIENCE).await?;
    let layout = folder.path().join("unpacked");
    std::fs::create_dir(&layout)?;
    let archive = folder.path().join(format!("repartee-1.2.3-linux-{}.oci.tar", std::env::consts::ARCH));
    tools::output(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(&layout), PATIENCE).await?;
    let blob = |named: &Value| -> Result<Vec<u8>> {
        let digest = named["digest"].as_str().and_then(|digest| digest.strip_prefix("sha256:")).context("a digest")?;
        let bytes = std::fs::read(layout.join("blobs/sha256").join(digest))?;
        ensure!(named["size"] == bytes.len(), "{named}: {} bytes", bytes.len());
        Ok(bytes)
    };
    let index: Value = serde_json::from_slice(&std::fs::read(layout.join("index.json"))?)?;
    let manifest: Value = serde_json::from_slice(&blob(&index["manifests"][0])?)?;
    let config: Value = serde_json::from_slice(&blob(&manifest["config"])?)?;
    ensure!(
        config["config"]["User"] == "999" && config["config"]["Entrypoint"][0] == "/usr/local/bin/repartee",
        "{config}"
    );
    let root = folder.path().join("root");
    std::fs::create_dir(&root)?;
    let layer = folder.path().join("layer.tar.gz");
    std::fs::write(&layer, blob(&manifest["layers"][0])?)?;
    tools::output(Command::new("tar").arg("-xzf").arg(&layer).arg("-C").arg(&root), PATIENCE).await?;
    let mut search = Command::new("find");
    search.arg(&root).args(["-name", "ld-linux*", "-o", "-name", "libc.so.6"]);
    let files = tools::output(&mut search, PATIENCE).await?;
    let find =
        |name: &str| files.lines().find(|line| line.contains(name)).map(PathBuf::from).context(format!("no {name}"));
    let (loader, libc) = (find("ld-linux")?, find("libc.so.6")?);
    let mut run = Command::new(loader);
    run.arg("--library-path").arg(libc.parent().context("a folder")?);
    run.arg(root.join("usr/local/bin/repartee")).args(["-c", "echo works"]);
    ensure!(tools::output(&mut run, PATIENCE).await? == "works\n");
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
