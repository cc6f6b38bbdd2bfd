//! Saved inputs of the fuzz tests.

/// The saved offers.
pub fn offers() -> Vec<Vec<u8>> {
    ["chromium", "aiortc", "smallest", "line-ends"]
        .map(|name| std::fs::read(format!("{}/testdata/fuzz/offers/{name}.sdp", env!("CARGO_MANIFEST_DIR"))).unwrap())
        .to_vec()
}
