//! Checks of `deploy/` without a container runtime. `gateway/tests/http/proxy.rs` runs `docs/nginx.conf`,
//! `gateway/tests/process/sandbox.rs` the server in the unit's sandbox, and `dashboards.rs` the configuration of Prometheus.

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
    // What the binary does: it tells its start, and exits with 2 after a user's error.
    for line in ["Type=notify", "RestartPreventExitStatus=2"] {
        ensure!(unit.lines().any(|of_unit| of_unit == line), "{line}");
    }
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

#[test]
fn container_runs_without_privileges_where_it_is_published() -> Result<()> {
    let image = text("deploy/Containerfile")?;
    let (_, runtime) = image.rsplit_once("\nFROM ").context("a stage that runs")?;
    let line = |word: &str| runtime.lines().find_map(|line| line.strip_prefix(word)).with_context(|| word.to_owned());
    ensure!(line("USER ")?.parse::<u32>()? > 0, "a user by number, other than root");
    // It listens on the ports that it exposes, on every address of the container.
    let exposed: Vec<_> = line("EXPOSE ")?.split(' ').collect();
    ensure!(exposed == ["8080/tcp", "7000/udp"], "{exposed:?}");
    ensure!(line("ENV ")? == "REPARTEE_LISTEN=0.0.0.0:8080 REPARTEE_WEBRTC_UDP=0.0.0.0:7000", "{runtime}");
    line("HEALTHCHECK ")?;
    let compose = text("deploy/compose.yaml")?;
    let (_, server) = compose.split_once("\n  repartee:\n").context("the server")?;
    let (server, _) = server.split_once("\n  prometheus:\n").context("the next service")?;
    for setting in ["read_only: true", "cap_drop: [ALL]", "no-new-privileges:true"] {
        ensure!(server.contains(setting), "{setting} in\n{server}");
    }
    Ok(())
}
