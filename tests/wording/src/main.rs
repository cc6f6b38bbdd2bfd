//! `make check-words`: prints each finding and fails if there is one.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use repartee_wording::check::check_repository;

fn main() -> Result<ExitCode> {
    let report = check_repository(Path::new("."))?;
    for finding in &report.findings {
        println!("{finding}");
    }
    for entry in &report.unused {
        println!(
            "tests/wording/allow.toml: {} `{}` in {} is not needed: remove it",
            entry.rule, entry.item, entry.path
        );
    }
    for circle in &report.circles {
        println!("{circle}");
    }
    let clean = report.findings.is_empty() && report.unused.is_empty() && report.circles.is_empty();
    let count = report.findings.len() + report.unused.len() + report.circles.len();
    println!("check-words: {count} findings in {} files", report.files);
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
