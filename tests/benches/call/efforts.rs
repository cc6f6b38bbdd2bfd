//! Efforts of the Opus encoder: time and quality of each complexity, with and without FEC, as `make bench-call` measures them.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use repartee_media::opus::{OpusDecoder, OpusEncoder};
use repartee_media::resample::Resampler;
use repartee_media::wav;
use repartee_report::ReportRow;
use repartee_tests::side_by_side::reference;
use serde::Deserialize;

use super::{SAID, Sound};

/// Complexities that libopus distinguishes.
const COMPLEXITIES: [i32; 7] = [0, 1, 3, 5, 6, 8, 10];
/// Loss that the receiver reports, for FEC.
const LOSS: f64 = 0.1;
/// Rate at which quality is judged, in Hz.
const JUDGED: u32 = 48_000;

/// Output of `tests/peers/opus_quality.py`.
#[derive(Debug, Deserialize)]
struct Quality {
    version: String,
    /// Mean opinion score of each file, 1 to 5.
    mos: Vec<f64>,
}

/// Rows of all efforts.
pub fn rows(sound: &Sound) -> Result<Vec<ReportRow>> {
    let folder = tempfile::tempdir()?;
    let original = folder.path().join("original.wav");
    let mut resampler = Resampler::new(SAID, JUDGED)?;
    std::fs::write(&original, wav::encode(&resampler.push(&sound.said)?, JUDGED)?)?;
    let (mut files, mut efforts): (Vec<PathBuf>, Vec<(i32, f64, f64)>) = (vec![original], Vec::new());
    for loss in [0.0, LOSS] {
        for complexity in COMPLEXITIES {
            let path = folder.path().join(format!("{complexity}-{loss}.wav"));
            std::fs::write(&path, wav::encode(&heard(sound, complexity, loss)?, JUDGED)?)?;
            files.push(path);
            let mut failed = false;
            let time = sound.each(|| match packets(sound, complexity, loss) {
                Ok((packets, _)) => drop(std::hint::black_box(packets)),
                Err(_) => failed = true,
            });
            ensure!(!failed, "a frame was refused");
            efforts.push((complexity, loss, time));
        }
    }
    let quality: Quality = reference("REPARTEE_QUALITY_PYTHON", "tests/peers/opus_quality.py", &files)?;
    ensure!(quality.mos.len() == efforts.len(), "{} scores", quality.mos.len());
    let of = |(complexity, loss, time): &(i32, f64, f64), mos: &f64| {
        let name = if *loss > 0.0 { "opus_fec_complexity" } else { "opus_complexity" };
        let note = format!("zimtohrli {}, sound of several voices, 32 kbit/s", quality.version);
        [
            ReportRow::without_peer(format!("{name}_{complexity}"), *time, "us", "a frame of 20 ms, 32 kbit/s, mono"),
            ReportRow::without_peer(format!("{name}_{complexity}_quality"), *mos, "MOS", note),
        ]
    };
    Ok(efforts.iter().zip(&quality.mos).flat_map(|(effort, mos)| of(effort, mos)).collect())
}

/// Encodes the sound; returns its packets, and the samples that the encoder adds in front.
fn packets(sound: &Sound, complexity: i32, loss: f64) -> Result<(Vec<bytes::Bytes>, u32)> {
    let mut encoder = OpusEncoder::new(SAID)?;
    encoder.set_complexity(complexity)?;
    encoder.expect_loss(loss)?;
    let ahead = encoder.lookahead()?;
    let frames = sound.said.chunks_exact(encoder.frame_samples());
    let packets = frames.map(|frame| Ok(encoder.encode(frame)?.payload)).collect::<Result<_>>()?;
    Ok((packets, ahead))
}

/// Returns what a listener hears, at [`JUDGED`], without the encoder's delay.
fn heard(sound: &Sound, complexity: i32, loss: f64) -> Result<Vec<f32>> {
    let (packets, ahead) = packets(sound, complexity, loss)?;
    let mut decoder = OpusDecoder::new(JUDGED)?;
    let samples = packets.iter().map(|packet| Ok(decoder.decode(packet)?)).collect::<Result<Vec<_>>>()?.concat();
    let ahead = (ahead * (JUDGED / SAID)) as usize;
    Ok(samples.get(ahead..).context("sound shorter than the encoder's delay")?.to_vec())
}
