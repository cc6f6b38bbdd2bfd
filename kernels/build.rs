//! Compiles `cuda/device.cu` under the feature `cuda`: PTX for compute capability 8.0, and machine code for 9.0 from the same PTX. The
//! compiler comes from `scripts/setup.sh cuda`, or from `REPARTEE_CUDA_HOME`.

use std::path::{Path, PathBuf};
use std::process::{Command, exit};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_FEATURE_CUDA").is_none() {
        return;
    }
    println!("cargo:rerun-if-changed=cuda");
    println!("cargo:rerun-if-env-changed=REPARTEE_CUDA_HOME");
    let folder = |name| PathBuf::from(std::env::var_os(name).unwrap_or_default());
    let (own, out) = (folder("CARGO_MANIFEST_DIR"), folder("OUT_DIR"));
    let home = std::env::var_os("REPARTEE_CUDA_HOME").map_or_else(|| own.join("../target/tools/cuda"), PathBuf::from);
    println!("cargo:rerun-if-changed={}", home.join("installed.txt").display());
    if !home.join("bin/nvcc").exists() {
        stop(&format!(
            "the feature `cuda` needs the CUDA compiler, and {} has none. Install it with `scripts/setup.sh cuda` (210 MB, no GPU, no \
             driver), or name one with REPARTEE_CUDA_HOME.",
            home.display()
        ));
    }
    let ptx = out.join("device.ptx");
    let source = own.join("cuda/device.cu");
    run(&home, "nvcc", &[Path::new("-ptx"), Path::new("-arch=compute_80"), Path::new("-o"), &ptx, &source]);
    let cubin = out.join("device.cubin");
    run(&home, "ptxas", &[Path::new("-arch=sm_90"), Path::new("-o"), &cubin, &ptx]);
}

fn run(home: &Path, tool: &str, args: &[&Path]) {
    let bin = home.join("bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path =
        std::env::join_paths(std::iter::once(bin.clone()).chain(std::env::split_paths(&path))).unwrap_or_default();
    match Command::new(bin.join(tool)).args(args).env("PATH", path).output() {
        Ok(done) if done.status.success() => {}
        Ok(done) => stop(&format!("{tool}: {}", String::from_utf8_lossy(&done.stderr))),
        Err(error) => stop(&format!("{}: {error}", bin.join(tool).display())),
    }
}

fn stop(message: &str) -> ! {
    eprintln!("{message}");
    exit(1);
}
