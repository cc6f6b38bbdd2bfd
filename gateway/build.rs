//! Embeds every file of `web/`: writes a table of (name, contents) that `src/server/page.rs` includes.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let web = manifest.join("../web");
    println!("cargo::rerun-if-changed={}", web.display());
    let mut names = Vec::new();
    if web.is_dir() {
        for entry in fs::read_dir(&web)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let served = ["html", "js", "css", "svg"].iter().any(|kind| name.ends_with(&format!(".{kind}")));
            if served && entry.file_type()?.is_file() {
                names.push(name);
            }
        }
    }
    names.sort();
    let mut table = String::from("&[\n");
    for name in names {
        let path = web.join(&name);
        println!("cargo::rerun-if-changed={}", path.display());
        // Writing to a string cannot fail.
        let _ = writeln!(table, "    ({name:?}, include_str!({:?})),", path.display().to_string());
    }
    table.push(']');
    fs::write(PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("page.rs"), table)
}
