//! Saved inputs of tests.

use std::time::Duration;

use repartee_media::sound_file;

/// Reads the saved SDP offers.
pub fn offers() -> Vec<Vec<u8>> {
    let folders = ["testdata/fuzz/offers", "sdp/tests/offers/recorded", "sdp/tests/offers/rebuilt"];
    let folders = folders.map(|folder| format!("{}/{folder}", env!("CARGO_MANIFEST_DIR")));
    let files = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// Reads a spoken question, 16 kHz mono.
pub fn question() -> Vec<f32> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/question.wav");
    sound_file::read(&std::fs::read(file).unwrap()[..], 16_000, Duration::from_secs(30)).unwrap()
}
