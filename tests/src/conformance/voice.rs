//! Check of the scripted voice after codec, network and receiver: samples differ, but their order must be kept.

use anyhow::{Context, Result, ensure};
use repartee_media::pcm;
use repartee_testkit::scripted::VoiceTrace;

use super::scenario::RATE;

/// Tolerance of the first and the last position: less than a packet. A codec withholds its look-ahead of 6.5 ms, and a
/// stretch that is half silent may count or not.
const EDGE_MS: f64 = 15.0;
/// Longest pause in an interrupted answer: over WebRTC a possible barge-in pauses the playback until it is decided.
const PAUSED_MS: f64 = 500.0;
/// Samples above this magnitude are not silence.
const LOUD: f32 = 0.02;

/// Tolerances of a receiver that gets every packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiverTolerance {
    /// Most sound that it may skip, in ms.
    pub skips_ms: u32,
    /// Most sound that it may add, in ms.
    pub adds_ms: u32,
    /// Longest cross-fade into a new answer, in ms.
    pub fades_ms: u32,
}

impl ReceiverTolerance {
    /// aiortc: plays sound four packets late, in an interpreter that may stall. Both tolerances are shorter than a
    /// frame, so a missing or doubled frame is noticed.
    pub const AIORTC: Self = Self { skips_ms: 60, adds_ms: 60, fades_ms: 0 };
    /// GStreamer: a fixed jitter buffer, whose decoder fills pauses with silence.
    pub const GSTREAMER: Self = Self { skips_ms: 60, adds_ms: 60, fades_ms: 0 };
    /// A browser: stretches sound after a silence by 70 to 160 ms while its jitter buffer adapts, and compresses some
    /// of it again. `skips_ms` is shorter than a frame, so a missing frame is noticed.
    pub const BROWSER: Self = Self { skips_ms: 60, adds_ms: 300, fades_ms: 60 };
}

/// Fails unless `sound` (mono, 16 bit, little endian, at the voice's rate) is the voice from its beginning without a
/// gap: `whole` ms of it, or, for an interrupted answer, at most `most` ms, which may contain a pause.
pub fn judge(sound: &[u8], whole: Option<u64>, most: u64, receiver: ReceiverTolerance) -> Result<()> {
    let samples = pcm::decode_i16le(sound)?;
    let begin = samples.iter().position(|sample| sample.abs() > LOUD).context("there is no sound")?;
    let faded = begin + (receiver.fades_ms * RATE / 1_000) as usize;
    let trace = VoiceTrace::of(samples.get(faded..).unwrap_or_default()).context("there is no voice")?;
    let VoiceTrace { first_ms, last_ms, missing_ms, added_ms } = trace;
    ensure!(
        first_ms > -EDGE_MS && first_ms < f64::from(receiver.fades_ms) + EDGE_MS,
        "the beginning is missing: {trace:?}"
    );
    let least = whole.unwrap_or_default() as f64;
    ensure!(last_ms > least - EDGE_MS && last_ms < most as f64 + EDGE_MS, "not to the end of {most} ms: {trace:?}");
    ensure!(missing_ms <= receiver.skips_ms.into(), "something is missing: {trace:?}");
    let paused = if whole.is_none() { PAUSED_MS } else { 0.0 };
    ensure!(added_ms <= f64::from(receiver.adds_ms) + paused, "something was added: {trace:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use repartee_testkit::scripted::voice;

    use super::*;

    const PLAIN: ReceiverTolerance = ReceiverTolerance { skips_ms: 0, adds_ms: 0, fades_ms: 0 };

    /// Returns frames with silence around them.
    fn sound(frames: impl Iterator<Item = u64>) -> Vec<u8> {
        let silence = vec![0; 9_600];
        let voice = frames.flat_map(|frame| pcm::encode_i16le(&voice(frame))).collect();
        [silence.clone(), voice, silence].concat()
    }

    fn plain(sound: &[u8], whole: Option<u64>, most: u64) -> Result<()> {
        judge(sound, whole, most, PLAIN)
    }

    #[test]
    fn whole_voice_passes_at_exact_length() {
        plain(&sound(0..10), Some(800), 800).unwrap();
        plain(&sound(0..10), None, 1_200).unwrap();
        for (sound, whole, most) in [
            (sound(0..9), Some(800), 800),
            (sound(0..11), Some(800), 800),
            (sound(0..10), None, 720),
            (sound(1..10), Some(800), 800),
            (sound(0..0), None, 800),
        ] {
            plain(&sound, whole, most).unwrap_err();
        }
    }

    #[test]
    fn only_an_interrupted_answer_is_paused() {
        let paused = |ms: usize| {
            let mut sound = sound(0..10);
            // After 200 ms of silence and five frames of 80 ms; two bytes per sample.
            let at = 9_600 + 5 * 80 * 48;
            sound.splice(at..at, vec![0; ms * 48]);
            sound
        };
        plain(&paused(400), None, 800).unwrap();
        plain(&paused(600), None, 800).unwrap_err();
        plain(&paused(400), Some(800), 800).unwrap_err();
    }

    #[test]
    fn missing_doubled_or_swapped_frames_fail() {
        for frames in [[0, 1, 2, 3, 5, 6, 7, 8, 9, 9], [0, 1, 2, 2, 3, 4, 5, 6, 7, 9], [0, 1, 3, 2, 4, 5, 6, 7, 8, 9]] {
            plain(&sound(frames.into_iter()), Some(800), 800).unwrap_err();
        }
    }

    #[test]
    fn another_pitch_is_refused() {
        // Keeps every second sample: an octave higher, half as long.
        let octave: Vec<u8> = sound(0..10).chunks_exact(4).flat_map(|pair| pair[..2].to_vec()).collect();
        plain(&octave, Some(400), 400).unwrap_err();
    }
}
