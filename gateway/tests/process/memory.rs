//! Memory for weights: the lack of it is named before anything is loaded.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use repartee::cli::memory::{available, left_of_group, resident_memory, shortage};
use repartee_engine::{Source, Synthetic, WeightPolicy};

const GB: u64 = 1_000_000_000;

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path).canonicalize().unwrap()
}

#[test]
fn shortage_names_the_format_that_fits() {
    let folder = root("models/dimensions/qwen3-omni-30b-a3b");
    let source = Source::Synthetic(Synthetic { folder, seed: 0, layers: None, skewed: false });
    let lack = |free| shortage(&[&source], WeightPolicy::Bf16, free);
    assert_eq!(lack(100 * GB), None);
    let named = |free| lack(free).unwrap().fitting.map(|(policy, _)| policy);
    assert_eq!([45 * GB, 23 * GB, 5 * GB].map(named), [Some(WeightPolicy::Int8), Some(WeightPolicy::Mixed), None]);
    let said = lack(23 * GB).unwrap().to_string();
    assert!(
        said.contains("23.00 GB are free: --set engine.weights=mixed needs ") && said.contains("--force"),
        "{said}"
    );
}

#[test]
fn free_memory_is_the_smaller_bound() {
    let meminfo = "MemTotal:       65536 kB\nMemAvailable:   2048 kB\n";
    assert_eq!((available(meminfo), available("MemTotal: 1 kB\n")), (Some(2 << 20), None));
    let stat = "anon 700\nfile 300\nkernel 5\n";
    assert_eq!(left_of_group("1000\n", "900\n", stat), Some(400), "pages of files are free");
    assert_eq!(left_of_group("max\n", "900\n", stat), None);
    assert_eq!(left_of_group("1000\n", "5000\n", "anon 1\n"), Some(0));
    assert!(resident_memory().unwrap() > 1 << 20);
}

/// The demo checkpoint with one more tensor, of two terabytes that no disk block holds.
fn huge_checkpoint() -> tempfile::TempDir {
    let (folder, demo) = (tempfile::tempdir().unwrap(), root("models/demo"));
    for name in
        ["config.json", "generation_config.json", "preprocessor_config.json", "tokenizer.json", "tokenizer_config.json"]
    {
        symlink(demo.join(name), folder.path().join(name)).unwrap();
    }
    symlink(demo.join("model.safetensors"), folder.path().join("model-00001-of-00002.safetensors")).unwrap();
    let elements = 1_u64 << 40;
    let header = format!(
        "{{\"unused.weight\":{{\"dtype\":\"BF16\",\"shape\":[{elements}],\"data_offsets\":[0,{}]}}}}",
        2 * elements
    );
    let mut file = File::create(folder.path().join("model-00002-of-00002.safetensors")).unwrap();
    file.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
    file.write_all(header.as_bytes()).unwrap();
    file.set_len(8 + header.len() as u64 + 2 * elements).unwrap();
    folder
}

#[test]
fn too_large_weights_are_refused_without_force() {
    let huge = huge_checkpoint();
    let repartee = |arguments: &[&str]| {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=1", "60", env!("CARGO_BIN_EXE_repartee")]).args(arguments);
        let output = command.arg("--model").arg(huge.path()).output().unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        (output.status.code(), said)
    };
    for arguments in [&["serve", "--listen", "127.0.0.1:0"][..], &["ask", "--text", "Hello."], &["check"]] {
        let (code, said) = repartee(arguments);
        assert_eq!(code, Some(2), "{said}");
        assert!(
            said.contains("the weights need about 2199.05 GB of memory, and ") && said.contains("--force"),
            "{said}"
        );
    }
    let (code, said) = repartee(&["ask", "--text", "Hello.", "--force"]);
    assert!(code == Some(0) && !said.contains("--force"), "{said}");
}
