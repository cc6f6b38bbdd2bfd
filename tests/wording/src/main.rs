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
    for group in &report.copies {
        println!("{group}");
    }
    let count = report.findings.len() + report.unused.len() + report.circles.len() + report.copies.len();
    println!("check-words: {count} findings in {} files", report.files);
    Ok(if count == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
