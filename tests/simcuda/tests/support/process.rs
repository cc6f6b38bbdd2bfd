//! Tests in processes of their own, with our `libcuda.so` as the driver of the stock `cudarc`.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// Environment variable that names the test of a child process.
const CHILD: &str = "REPARTEE_SIMCUDA_TEST";

/// Runs a test's body in a process of its own, so that a fault affects no other test. `name` is the test's.
pub fn in_own_process(name: &str, body: fn()) {
    if std::env::var(CHILD).is_ok_and(|child| child == name) {
        return body();
    }
    let own = std::env::current_exe().unwrap();
    let done = Command::new(own)
        .args([name, "--exact", "--nocapture"])
        .env(CHILD, name)
        .env("LD_LIBRARY_PATH", library_folder())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    assert!(said.contains("1 passed"), "the test ran in its process: {said}");
}

/// Creates a folder with the library under the name that `cudarc` loads.
fn library_folder() -> &'static PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        // Cargo builds the library beside the tests.
        let built = std::env::current_exe().unwrap().with_file_name("librepartee_simcuda.so");
        assert!(built.exists(), "{} is missing", built.display());
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("simcuda");
        std::fs::create_dir_all(&folder).unwrap();
        // Renamed atomically, because another run may need it at this moment.
        let link = folder.join(format!("libcuda.so.{}", std::process::id()));
        std::os::unix::fs::symlink(built, &link).unwrap();
        std::fs::rename(link, folder.join("libcuda.so")).unwrap();
        folder
    })
}
