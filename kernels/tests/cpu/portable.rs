//! The crate without vector instructions, as on an architecture without any: it builds, and passes the same tests.
#![cfg(feature = "simd")] // The tests that this runs do not run it again.
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn tests_pass_with_simd_switched_off() {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let output = Command::new(env!("CARGO"))
        .args(["test", "--release", "--no-default-features", "--lib", "--test", "levels", "--manifest-path", manifest])
        .output()
        .unwrap();
    let printed = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains("vector instructions are switched off"), "{printed}");
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

/// A misplaced intrinsic compiles on its own architecture even with `simd` off; on others it does not.
#[test]
fn intrinsics_stay_in_their_modules() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut naming: Vec<_> = sources(&folder)
        .into_iter()
        .filter(|path| fs::read_to_string(path).unwrap().contains("std::arch"))
        .map(|path| path.strip_prefix(&folder).unwrap().to_owned())
        .collect();
    naming.sort();
    let modules = [
        "cpu/simd/aarch64/dots.rs",
        "cpu/simd/aarch64/lanes.rs",
        "cpu/simd/aarch64/matrices.rs",
        "cpu/simd/aarch64/peak.rs",
        "cpu/simd/aarch64.rs",
        "cpu/simd/x86/peak.rs",
        "cpu/simd/x86.rs",
    ];
    assert_eq!(naming, modules.map(PathBuf::from));
}
