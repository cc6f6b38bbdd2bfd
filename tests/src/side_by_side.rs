//! Benchmarks beside a reference implementation. The reference runs in its own process, not at the same time as ours,
//! with the same number of threads.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use repartee_report::{Report, ReportRow, table};
use serde::de::DeserializeOwned;

use crate::tools::root;

/// Runs a script and parses its last line of output as JSON. `python` is the environment variable with the path of the
/// reference's Python; `script` is a file of this repository.
pub fn reference<T: DeserializeOwned>(
    python: &str,
    script: &str,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> Result<T> {
    let python = std::env::var_os(python)
        .map(PathBuf::from)
        .with_context(|| format!("{python} is not set: run this by its command in the Makefile"))?;
    let output = Command::new(&python)
        .arg(root().join(script))
        .args(arguments)
        .output()
        .with_context(|| python.display().to_string())?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Libraries of the script may print other lines.
    let last = output.stdout.trim_ascii_end().rsplit(|&byte| byte == b'\n').next().unwrap_or_default();
    serde_json::from_slice(last).with_context(|| format!("the figures of {script}"))
}

/// Returns the median time of `repeats` runs after a warm-up run, in ms per part (of `parts`).
pub fn median(repeats: usize, parts: f64, mut run: impl FnMut()) -> f64 {
    run();
    let mut times: Vec<f64> = (0..repeats)
        .map(|_| {
            let begun = Instant::now();
            run();
            begun.elapsed().as_secs_f64() * 1e3 / parts
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[repeats / 2]
}

/// Prints a table of the rows and writes them to `target/report/NAME.json`.
pub fn finish(name: &str, rows: Vec<ReportRow>) -> Result<()> {
    println!("\n{}", table(&rows));
    let path = root().join("target/report").join(name).with_extension("json");
    Report::new(name, rows).write(&path)?;
    println!("{}", path.display());
    Ok(())
}
