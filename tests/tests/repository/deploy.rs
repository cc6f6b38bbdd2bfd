//! Checks of `deploy/` without a container runtime. `gateway/tests/http/proxy.rs` runs `docs/nginx.conf`, and
//! `dashboards.rs` the configuration of Prometheus.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use repartee_tests::tools::root;

/// Reads a file of the repository.
fn text(path: &str) -> Result<String> {
    std::fs::read_to_string(root().join(path)).with_context(|| path.to_owned())
}

#[test]
fn systemd_knows_every_line_of_the_unit() -> Result<()> {
    let unit = text("deploy/repartee.service")?;
    let installed = "/usr/local/bin/repartee";
    ensure!(unit.contains(&format!("ExecStart={installed} serve ")), "{unit}");
    let Ok(version) = Command::new("systemd-analyze").arg("--version").output() else {
        println!("SKIPPED: there is no systemd-analyze");
        return Ok(());
    };
    ensure!(version.status.success(), "{version:?}");
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("repartee.service");
    // An existing program replaces the one that is not installed.
    std::fs::write(&path, unit.replace(installed, "/bin/true"))?;
    let verified = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path).output()?;
    // It warns of unknown lines.
    let said = String::from_utf8_lossy(&verified.stderr);
    let about_it: Vec<_> = said.lines().filter(|line| line.contains("repartee.service")).collect();
    ensure!(verified.status.success() && about_it.is_empty(), "{said}");
    Ok(())
}

#[test]
fn mounted_and_copied_files_exist() -> Result<()> {
    let compose = text("deploy/compose.yaml")?;
    let mut mounted = 0;
    for line in compose.lines().filter_map(|line| line.trim().strip_prefix("- .")) {
        let source = line.split(':').next().unwrap_or_default();
        let path = Path::new("deploy").join(format!(".{source}"));
        ensure!(root().join(&path).is_file(), "{} is mounted", path.display());
        mounted += 1;
    }
    ensure!(mounted == 5, "{mounted} files are mounted");
    let image = text("deploy/Containerfile")?;
    let makefile = text("Makefile")?;
    ensure!(compose.contains("dockerfile: deploy/Containerfile") && image.contains("make release"), "{compose}");
    ensure!(makefile.contains("target}/dist/repartee"), "the binary's place");
    ensure!(image.contains("install -D target/dist/repartee"), "{image}");
    Ok(())
}
