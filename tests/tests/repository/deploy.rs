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
    for (folder, count) in [("deploy", 5), ("deploy/cluster", 8)] {
        let mut mounted = 0;
        for text in text(&format!("{folder}/compose.yaml"))?.split([' ', '"', '[']).filter(|text| text.starts_with('.'))
        {
            let Some((source, _)) = text.split_once(":/") else { continue };
            let path = Path::new(folder).join(source);
            ensure!(root().join(&path).is_file(), "{} is mounted", path.display());
            mounted += 1;
        }
        ensure!(mounted == count, "{mounted} files are mounted by {folder}");
    }
    let image = text("deploy/Containerfile")?;
    let makefile = text("Makefile")?;
    ensure!(compose.contains("dockerfile: deploy/Containerfile") && image.contains("make release"), "{compose}");
    ensure!(makefile.contains("target}/dist/repartee"), "the binary's place");
    ensure!(image.contains("install -D target/dist/repartee"), "{image}");
    Ok(())
}

#[test]
fn nodes_have_time_for_their_calls() -> Result<()> {
    // Seconds of the drain, and of the supervisor, which has to wait for three more.
    let number = |file: &str, before: &str| -> Result<u64> {
        let text = text(file)?;
        let (_, rest) = text.split_once(before).with_context(|| format!("{before} in {file}"))?;
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        Ok(digits.parse()?)
    };
    let call = 3_600;
    let manifest = "deploy/cluster/kubernetes/nodes.yaml";
    let drain = number(manifest, "REPARTEE_DRAIN_S, value: \"")?;
    ensure!(drain >= call && number(manifest, "terminationGracePeriodSeconds: ")? > drain + 3);
    let compose = "deploy/cluster/compose.yaml";
    let drain = number(compose, "REPARTEE_DRAIN_S: \"")?;
    ensure!(drain >= call && number(compose, "stop_grace_period: ")? * 60 > drain + 3);
    ensure!(number("deploy/cluster/repartee-node.conf", "TimeoutStopSec=")? * 60 > call + 3);
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
