//! Chat templates and tokenizers against their references: fixtures of tests/parity/prompts.
//!
//! - `constructs`: small templates of our own, one for each thing that published templates do
//! - `conversations`: conversations of the fixtures
//! - `encoded`: prompts as token ids
//! - `lines`: the generator of the lines
//! - `published`: published templates against the reference
//! - `vocabularies`: tokenizers against the reference

#![expect(clippy::unwrap_used, reason = "a test and its helpers fail by panicking")]

mod constructs;
mod conversations;
mod encoded;
mod lines;
mod published;
mod vocabularies;

use std::path::{Path, PathBuf};

/// Folder of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Reads a file of the fixture.
fn fixture(name: &str) -> Vec<u8> {
    let path = root().join("tests/parity/fixtures/prompts").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Checksum that the fixtures have of texts: CRC-32 in hexadecimal.
fn checksum(bytes: &[u8]) -> String {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 })
    };
    format!("{:08x}", !bytes.iter().fold(u32::MAX, step))
}
