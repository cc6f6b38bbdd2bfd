//! The programs of docs/clients.md and docs/tools.md, each run as it stands against a server with a scripted engine. The
//! second one of docs/tools.md needs a model: `gateway/tests/http/held_answers.rs` runs it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use repartee::config::Config;
use repartee_testkit::scripted::{Script, ScriptedEngine};
use repartee_tests::server::TestServer;
use repartee_tests::tools;
use tokio::process::Command;
use tokio::task::JoinSet;

/// Timeout of a program on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
/// Address in the programs.
const ADDRESS: &str = "127.0.0.1:8080";

/// Returns the blocks of a page: language and text.
fn blocks(page: &str) -> Result<Vec<(String, String)>> {
    let text = std::fs::read_to_string(tools::root().join("docs").join(page))?;
    let fenced = text.split("```").skip(1).step_by(2);
    Ok(fenced
        .filter_map(|block| block.split_once('\n'))
        .map(|(kind, text)| (kind.to_owned(), text.to_owned()))
        .collect())
}

/// Runs a program against the server in a folder of its own; returns its output.
async fn run(kind: &str, program: &str, server: &TestServer) -> Result<String> {
    ensure!(program.contains(ADDRESS), "the program names no {ADDRESS}: {program}");
    let folder = tempfile::tempdir()?;
    let mut command = match kind {
        "python" => tools::clients_python()?,
        "js" => tools::node()?,
        "sh" => Command::new("bash"),
        other => anyhow::bail!("no test runs {other}"),
    };
    let file = folder.path().join(format!("program.{}", if kind == "js" { "mjs" } else { kind }));
    std::fs::write(&file, program.replace(ADDRESS, &server.address().to_string()))?;
    command.arg(&file).current_dir(folder.path()).env_remove("OPENAI_API_KEY");
    let output = tools::output(&mut command, LIMIT).await?;
    if kind == "sh" {
        for (file, start) in [("morning.wav", b"RIFF"), ("quick.flac", b"fLaC")] {
            ensure!(std::fs::read(folder.path().join(file))?.starts_with(start), "{file} was not written");
        }
    }
    Ok(output)
}

#[tokio::test(flavor = "multi_thread")]
async fn documented_clients_are_answered() -> Result<()> {
    let server = TestServer::start(Config::default(), ScriptedEngine::new(Script::default())).await?;
    let (server, programs) = (Arc::new(server), blocks("clients.md")?);
    ensure!(programs.len() == 7, "{} programs", programs.len());
    // At the same time, because most of it is their start.
    let mut running = JoinSet::new();
    for (kind, program) in programs {
        let server = server.clone();
        running.spawn(async move { run(&kind, &program, &server).await.map(|output| (program, output)) });
    }
    while let Some(ended) = running.join_next().await {
        let (program, output) = ended??;
        // Pipecat's lines are a part of a program: the conformance tests take a conversation through it.
        let whole = !program.contains("pipecat");
        ensure!(!whole || output.contains("You wrote: What is three plus four?"), "{program}\n{output}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn documented_function_is_called() -> Result<()> {
    let call = Some(("weather".to_owned(), vec!["{\"city\": ".to_owned(), "\"Oslo\"}".to_owned()]));
    let engine = ScriptedEngine::new(Script { call, ..Script::default() });
    let server = TestServer::start(Config::default(), engine).await?;
    let (kind, program) = blocks("tools.md")?.into_iter().next().context("no program")?;
    let output = run(&kind, &program, &server).await?;
    ensure!(output.contains("The tool says: Rain in Oslo."), "{output}");
    Ok(())
}
