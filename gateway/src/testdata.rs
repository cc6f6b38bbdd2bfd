//! Saved inputs of tests.

use std::time::Duration;

use repartee_media::wav;

/// Reads the saved SDP offers.
pub fn offers() -> Vec<Vec<u8>> {
    ["chromium", "aiortc", "smallest", "line-ends"]
        .map(|name| std::fs::read(format!("{}/testdata/fuzz/offers/{name}.sdp", env!("CARGO_MANIFEST_DIR"))).unwrap())
        .to_vec()
}

/// Reads a spoken question, 16 kHz mono.
pub fn question() -> Vec<f32> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/question.wav");
    wav::read(&std::fs::read(file).unwrap()[..], 16_000, Duration::from_secs(30)).unwrap()
}
