//! Files that are no weights, or not where they should be: each is refused in one sentence that names the file.

use std::fmt::Debug;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use repartee_engine::internals::{Checkpoint, load_model};
use repartee_engine::{EngineConfig, Source};
use repartee_engine_testkit::forms::checkpoint;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use tempfile::TempDir;
use tracing::field::Field;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

const LFS: &str = "version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 17179869184\n";
const INDEX: &str = "pytorch_model.bin.index.json";

/// Error of a changed checkpoint in pickles, without the temporary folder's name.
fn refusal(change: impl Fn(&Path)) -> String {
    let copy = checkpoint("pickles");
    change(copy.path());
    message(&copy)
}

fn message(folder: &TempDir) -> String {
    let source = Source::Folder(folder.path().to_owned());
    let error = match Checkpoint::open(source) {
        Ok(opened) => load_model(&opened, &EngineConfig::default()).err().expect("refused").to_string(),
        Err(error) => error.to_string(),
    };
    error.replace(&format!("{}/", folder.path().display()), "")
}

fn part(number: usize) -> String {
    format!("pytorch_model-{number:05}-of-00006.bin")
}

#[test]
fn pipes_and_devices_block_nobody() {
    for name in ["config.json", "tokenizer.json", INDEX, &part(2)] {
        let pipe = refusal(|folder| {
            let path = folder.join(name);
            fs::remove_file(&path).unwrap();
            assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
        });
        assert!(pipe.starts_with(&format!("{name}: is a pipe, not a file: copy the checkpoint's own file")), "{pipe}");
        let device = refusal(|folder| {
            let path = folder.join(name);
            fs::remove_file(&path).unwrap();
            symlink("/dev/zero", path).unwrap();
        });
        assert!(device.starts_with(&format!("{name}: is a device, not a file")), "{device}");
    }
}

#[test]
fn large_json_is_refused_before_it_is_read() {
    const MOST: usize = 16 << 20;
    for name in ["config.json", INDEX] {
        let large =
            refusal(|folder| fs::write(folder.join(name), format!("{{\"a\":[{}0]}}", "0,".repeat(MOST / 2))).unwrap());
        assert!(large.starts_with(&format!("{name}: has ")), "{large}");
        assert!(large.ends_with(" bytes, and at most 16777216 are read: copy the file again"), "{large}");
    }
}

#[test]
fn endless_headers_are_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("model.safetensors");
    // Names of tensors without numbers, each of which is valid.
    let tensors: Vec<_> =
        (0..300_000).map(|name| format!(r#""t{name}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}"#)).collect();
    let header = format!("{{{}}}", tensors.join(","));
    assert!(header.len() > 16 << 20);
    fs::write(folder.path().join("config.json"), r#"{"architectures": ["Any"]}"#).unwrap();
    fs::write(path, [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat()).unwrap();
    let refused = message(&folder);
    let expected = format!("(its header has {} bytes, and at most 16777216 are read)", header.len());
    assert!(refused.starts_with("model.safetensors: ") && refused.contains(&expected), "{refused}");
}

#[test]
fn lfs_pointers_name_the_remedy() {
    for name in ["config.json", "tokenizer.json", INDEX, &part(1)] {
        let pointer = refusal(|folder| fs::write(folder.join(name), LFS).unwrap());
        assert_eq!(pointer, format!("{name}: this is a Git LFS pointer: run `git lfs pull` in its folder"));
    }
}

#[test]
fn torn_pickles_are_named() {
    for length in [0, 1, 100, 5_000, 100_000] {
        let torn = refusal(|folder| {
            let path = folder.join(part(3));
            let whole = fs::read(&path).unwrap();
            fs::write(path, &whole[..length]).unwrap();
        });
        assert!(torn.starts_with(&format!("{}: its archive: ", part(3))), "{torn}");
    }
}

#[test]
fn missing_parts_are_named() {
    let with_index = refusal(|folder| fs::remove_file(folder.join(part(2))).unwrap());
    assert!(with_index.starts_with(&format!("{INDEX}: weight_map: shard `{}`", part(2))), "{with_index}");
    let without = refusal(|folder| {
        fs::remove_file(folder.join(INDEX)).unwrap();
        fs::remove_file(folder.join(part(2))).unwrap();
    });
    assert!(without.starts_with(&format!("{}: file missing: without an index", part(2))), "{without}");
}

/// A safetensors file with one tensor of zeros.
fn zeros(name: &str, dtype: Dtype) -> Vec<u8> {
    let bytes = vec![0; 4 * dtype.bitsize() / 8];
    safetensors::serialize([(name, TensorView::new(dtype, vec![4], &bytes).unwrap())], None).unwrap()
}

/// Lines of the log while `run` runs.
fn logged<R>(run: impl FnOnce() -> R) -> (String, R) {
    let lines = Arc::new(Mutex::new(String::new()));
    let result = tracing::subscriber::with_default(LogLines(lines.clone()), run);
    let lines = lines.lock().unwrap().clone();
    (lines, result)
}

/// Subscriber that keeps level and fields of each event.
struct LogLines(Arc<Mutex<String>>);

impl Subscriber for LogLines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = format!("{}", event.metadata().level());
        let mut write = |field: &Field, value: &dyn Debug| line += &format!(" {field}={value:?}");
        event.record(&mut write);
        *self.0.lock().unwrap() += &(line + "\n");
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn an_index_wins_over_a_stray_file() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    write("model.safetensors", &zeros("stray", Dtype::F32));
    write("one.safetensors", &zeros("whole", Dtype::F32));
    write("model.safetensors.index.json", br#"{"weight_map": {"whole": "one.safetensors"}}"#);
    let (logs, opened) = logged(|| Checkpoint::open(Source::Folder(folder.path().to_owned())).unwrap());
    assert_eq!(opened.tensor_names().collect::<Vec<_>>(), ["whole"]);
    assert!(logs.contains("WARN") && logs.contains("the index does not name this file"), "{logs}");
    assert!(logs.contains("model.safetensors"), "{logs}");
}

#[test]
fn unknown_number_formats_are_named() {
    let folder = tempfile::tempdir().unwrap();
    for (dtype, name) in [(Dtype::F64, "F64"), (Dtype::F8_E5M2, "F8_E5M2"), (Dtype::U16, "U16")] {
        fs::write(folder.path().join("model.safetensors"), zeros("w", dtype)).unwrap();
        let opened = Checkpoint::open(Source::Folder(folder.path().to_owned())).unwrap();
        let error = opened.numbers("w", &[4]).unwrap_err().to_string();
        assert!(error.contains(&format!("model.safetensors: tensor w has dtype {name}")), "{error}");
    }
}

#[test]
fn gguf_files_name_their_architecture() {
    let gguf = repartee_engine_testkit::root().join("engine/checkpoint/tests/data/blocks.gguf");
    let folder = tempfile::tempdir().unwrap();
    let whole = fs::read(&gguf).unwrap();
    // The value of general.architecture follows its length.
    let mut other = whole.clone();
    let at = other.windows(5).position(|bytes| bytes == b"llama").unwrap();
    other[at..at + 5].copy_from_slice(b"mamba");
    fs::write(folder.path().join("model.gguf"), other).unwrap();
    let expected = "model.gguf: general.architecture: `mamba` is not served from GGUF: choose a file of llama, qwen2, ";
    assert!(message(&folder).starts_with(expected), "{}", message(&folder));
    let alone = Checkpoint::open(Source::Folder(gguf)).unwrap_err().to_string();
    assert!(alone.contains("blocks.gguf: tensor BF16.weight: is unknown in files of `llama`"), "{alone}");
    fs::write(folder.path().join("model.gguf"), &whole[..whole.len() - 1000]).unwrap();
    let torn = message(&folder);
    assert!(torn.starts_with("model.gguf: tensor ") && torn.contains("is not whole in the file"), "{torn}");
}
