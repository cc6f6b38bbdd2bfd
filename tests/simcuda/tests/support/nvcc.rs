//! Compiles the kernels of `kernels/cuda` with the toolkit of `scripts/setup.sh cuda`.

#![allow(dead_code, reason = "each test uses its part")]

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Reads a file of `kernels/cuda` with its headers inlined, each at its first include.
fn whole(name: &str, seen: &mut Vec<String>) -> String {
    let text = std::fs::read_to_string(root().join("kernels/cuda").join(name)).unwrap();
    let mut line = |line: &str| match line.strip_prefix("#include \"").and_then(|rest| rest.strip_suffix(".cuh\"")) {
        Some(header) if seen.iter().any(|seen| seen == header) => String::new(),
        Some(header) => {
            seen.push(header.to_owned());
            whole(&format!("{header}.cuh"), seen)
        }
        None if line == "#pragma once" => String::new(),
        None => format!("{line}\n"),
    };
    text.lines().map(&mut line).collect()
}

/// Compiles a file of `kernels/cuda` to PTX, after applying `change` to its text and its headers'.
pub fn compile(name: &str, change: impl Fn(String) -> String) -> String {
    let home = root().join("target/tools/cuda");
    assert!(home.join("bin/nvcc").exists(), "the CUDA compiler is missing: `make test-cuda` installs it");
    let kernels = root().join("kernels/cuda");
    let folder = own_folder();
    let source = folder.join(name);
    std::fs::write(&source, change(whole(name, &mut Vec::new()))).unwrap();
    let done = Command::new(home.join("bin/nvcc"))
        .args(["-ptx", "-arch=compute_80", "-o"])
        .arg(folder.join("out.ptx"))
        .arg("-I")
        .arg(kernels)
        .arg(&source)
        .env("PATH", format!("{}:{}", home.join("bin").display(), std::env::var("PATH").unwrap()))
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let ptx = std::fs::read_to_string(folder.join("out.ptx")).unwrap();
    std::fs::remove_dir_all(folder).unwrap();
    ptx
}

/// Assembles PTX for compute capability 9.0; returns the assembler's report, or its errors.
fn assembled(ptx: &str) -> Result<String, String> {
    let folder = own_folder();
    let source = folder.join("in.ptx");
    std::fs::write(&source, ptx).unwrap();
    let mut ptxas = Command::new(root().join("target/tools/cuda/bin/ptxas"));
    let done = ptxas.args(["-v", "-arch=sm_90", "-o", "/dev/null"]).arg(&source).output().unwrap();
    std::fs::remove_dir_all(folder).unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    if done.status.success() { Ok(said) } else { Err(said) }
}

/// Checks PTX; `Err` has the assembler's errors.
pub fn assemble(ptx: &str) -> Result<(), String> {
    assembled(ptx).map(drop)
}

/// Reports registers, spills and shared memory of PTX's kernels.
pub fn resources(ptx: &str) -> String {
    assembled(ptx).unwrap()
}

/// Assembles machine code for compute capability 9.0.
pub fn machine_code(ptx: &str) -> Vec<u8> {
    let folder = own_folder();
    let (source, to) = (folder.join("in.ptx"), folder.join("out.cubin"));
    std::fs::write(&source, ptx).unwrap();
    let mut ptxas = Command::new(root().join("target/tools/cuda/bin/ptxas"));
    let done = ptxas.args(["-arch=sm_90", "-o"]).args([&to, &source]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let code = std::fs::read(to).unwrap();
    std::fs::remove_dir_all(folder).unwrap();
    code
}

/// Computes a SHA-256, as `sha256sum` prints it.
pub fn sha256(bytes: &[u8]) -> String {
    let folder = own_folder();
    std::fs::write(folder.join("bytes"), bytes).unwrap();
    let done = Command::new("sha256sum").arg(folder.join("bytes")).output().unwrap();
    std::fs::remove_dir_all(folder).unwrap();
    String::from_utf8(done.stdout).unwrap().split_whitespace().next().unwrap().to_owned()
}

/// Reads the committed hashes of the device's module.
pub fn committed_hashes() -> String {
    std::fs::read_to_string(root().join("kernels/cuda/device.sha256")).unwrap()
}

/// Creates a folder that no other test uses.
fn own_folder() -> PathBuf {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let own = format!("kernels-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(own);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Replaces one piece of a text; panics if it is missing.
pub fn replace(from: &'static str, to: &'static str) -> impl Fn(String) -> String {
    move |text| {
        assert!(text.contains(from), "`{from}` is no longer in the kernel");
        text.replacen(from, to, 1)
    }
}
