//! The scripted voice after a codec and a network: a steady tone, whose length and pitch can be told, but not its samples.

use anyhow::{Result, ensure};
use repartee_media::pcm;
use repartee_testkit::scripted::TONE;

use super::scenario::RATE;

/// Samples of one stretch of 20 ms that is judged.
const STRETCH: usize = RATE as usize / 50;
/// Above this root mean square it is the voice: it speaks at half of full scale.
const LOUD: f32 = 0.1;
/// How far the measured length may lie from the true one, in parts of it: a codec's delay, a clock's first packet, and a receiver
/// that stretches or compresses sound because packets come late or all at once on a busy machine.
const TOLERANCE: u64 = 4;
/// How far a stretch's pitch may be off, in Hz: one zero crossing more or less.
const PITCH_TOLERANCE: f32 = 30.0;

/// Fails unless `sound` (mono 16 bit little endian at [`RATE`]) holds the voice alone: `whole` ms of it, or some of at most
/// `most` ms.
pub fn judge(sound: &[u8], whole: Option<u64>, most: u64) -> Result<()> {
    let samples = pcm::decode_i16le(sound)?;
    let loud: Vec<_> = samples.chunks_exact(STRETCH).filter(|stretch| loudness(stretch) > LOUD).collect();
    let length = loud.len() as u64 * 20;
    match whole {
        Some(whole) => ensure!(length.abs_diff(whole) <= whole / TOLERANCE, "{length} ms of the voice, not {whole} ms"),
        None => ensure!(length > 0 && length <= most + most / TOLERANCE, "{length} ms of the voice, at most {most} ms"),
    }
    let pure = loud.iter().filter(|stretch| (pitch(stretch) - TONE).abs() < PITCH_TOLERANCE).count();
    // The voice fades in and out in some stretches.
    ensure!(pure * 10 >= loud.len() * 8, "{pure} of {} stretches have the voice's pitch", loud.len());
    Ok(())
}

fn loudness(stretch: &[f32]) -> f32 {
    (stretch.iter().map(|sample| sample * sample).sum::<f32>() / stretch.len() as f32).sqrt()
}

/// From the distance between the first and the last upward zero crossing.
fn pitch(stretch: &[f32]) -> f32 {
    let rises: Vec<_> = (1..stretch.len()).filter(|&i| stretch[i - 1] < 0.0 && stretch[i] >= 0.0).collect();
    match rises[..] {
        [first, .., last] => (rises.len() - 1) as f32 * RATE as f32 / (last - first) as f32,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use repartee_testkit::scripted::tone;

    use super::*;

    fn voice(frames: u64) -> Vec<u8> {
        (0..frames).flat_map(|frame| pcm::encode_i16le(&tone(frame))).collect()
    }

    #[test]
    fn voice_is_judged_by_length_and_pitch() {
        let mut sound = vec![0; 9_600];
        sound.extend(voice(10));
        sound.extend(vec![0; 9_600]);
        judge(&sound, Some(800), 800).unwrap();
        judge(&sound, None, 800).unwrap();
        judge(&sound, Some(1_200), 1_200).unwrap_err();
        judge(&sound, None, 600).unwrap_err();
        judge(&vec![0; 9_600], None, 800).unwrap_err();
    }

    #[test]
    fn another_pitch_is_refused() {
        // Every second sample: an octave higher, half as long.
        let sound: Vec<u8> = voice(10).chunks_exact(4).flat_map(|pair| pair[..2].to_vec()).collect();
        judge(&sound, Some(400), 400).unwrap_err();
    }
}
