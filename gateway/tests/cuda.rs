//! One binary with and without a CUDA driver: `--device` chooses, the answer is that of the processor, and what is missing is said. `make
//! test-cuda` runs it with a simulated driver.
#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

use std::path::Path;
use std::process::{Command, Output};

/// Runs `repartee ask` on a device.
fn ask(device: &str, with_driver: bool) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let question = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/questions/capital-of-france.wav");
    let mut process = Command::new(env!("CARGO_BIN_EXE_repartee"));
    process.args(["ask", "--device", device, "--set", "engine.sessions=1", "--set", "engine.cache_mib=64"]);
    process.args(["--set", "engine.session_tokens=512"]).arg(question).arg(folder.path().join("answer.wav"));
    if !with_driver {
        process.env_remove("LD_LIBRARY_PATH");
    }
    process.output().unwrap()
}

/// The transcript.
fn answer(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().next().unwrap().to_owned()
}

#[test]
fn a_question_is_answered_on_the_chosen_device() {
    let on_processor = answer(&ask("cpu", true));
    assert!(on_processor.contains("Paris"), "{on_processor}");
    assert_eq!(answer(&ask("cuda:0", true)), on_processor);
}

#[test]
fn without_a_driver_the_processor_is_used_or_the_reason_said() {
    let refused = ask("cuda:0", false);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("no NVIDIA driver") && said.contains("`cpu`"), "{said}");
    assert!(answer(&ask("auto", false)).contains("Paris"));
}
