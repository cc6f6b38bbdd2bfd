//! Writes 20 s of a caller's microphone beside a loudspeaker, before and after echo cancelling, as Opus files: `echo-before.opus` and
//! `echo-after.opus` in the folder of the first argument. The echo is 10 dB below the answer, 120 ms after it, in a room that rings; the
//! caller, as loud as the answer, interrupts the first answer, which ends as soon as the turn detector hears the caller behind the canceller.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use repartee_media::echo_canceller::{EchoCanceller, RATE};
use repartee_media::echo_guard::EchoLevel;
use repartee_media::ogg::OggOpusWriter;
use repartee_media::sound_file;
use repartee_media::vad::{TurnDetector, TurnEvent};

/// Samples of a millisecond and of a packet.
const MS: usize = RATE as usize / 1_000;
const PACKET: usize = 20 * MS;
/// Length of the sample, and begins of the first answer, of the caller and of the second answer, in ms.
const LENGTH_MS: usize = 20_000;
const FIRST_MS: usize = 500;
const CALLER_MS: usize = 7_000;
const SECOND_MS: usize = 12_000;
/// Level of answers and caller (root mean square).
const LEVEL: f32 = 0.08;
/// Gain of the echo, -10 dB, and its paths: delays in ms and gains, whose squares sum to 1.
const ECHO: f32 = 0.316;
const PATHS: [(usize, f32); 5] = [(120, 0.7), (129, 0.5), (154, 0.35), (203, 0.25), (260, 0.27)];
/// Noise of the room, -62 dBFS.
const NOISE: f32 = 8e-4;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args().nth(1).ok_or("usage: echo_sample FOLDER")?);
    let mut played = vec![0.0; LENGTH_MS * MS];
    let (first, second) = (FIRST_MS * MS, SECOND_MS * MS);
    let answer = [recording("answer-planets")?, vec![0.0; 400 * MS], recording("answer-harbour")?].concat();
    played[first..second - 500 * MS].iter_mut().zip(answer).for_each(|(to, from)| *to = from);
    played[second..].iter_mut().zip(recording("answer-train")?).for_each(|(to, from)| *to = from);
    let (caller, mut seed) = (recording("caller-excuse")?, 1_u32);
    let (mut canceller, mut turns) = (EchoCanceller::new(), TurnDetector::default());
    turns.set_echo_level(Some(EchoLevel::NONE));
    let (mut before, mut after) = (Vec::new(), Vec::new());
    let mut interrupted = false;
    for from in (0..played.len()).step_by(PACKET) {
        let input: Vec<f32> = (from..from + PACKET)
            .map(|at| {
                let echo: f32 =
                    PATHS.iter().map(|(ms, gain)| at.checked_sub(ms * MS).map_or(0.0, |at| gain * played[at])).sum();
                let voice = at.checked_sub(CALLER_MS * MS).and_then(|at| caller.get(at)).copied().unwrap_or(0.0);
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let noise = 1.73 * NOISE * ((seed >> 8) as f32 / 8_388_608.0 - 1.0);
                ECHO * echo + voice + noise
            })
            .collect();
        canceller.push_playback(&played[from..from + PACKET], from as i64);
        let mut heard = Vec::new();
        canceller.process(&input, &mut heard, &mut Vec::new());
        let starts = turns.push(&heard).into_iter().any(|event| matches!(event, TurnEvent::SpeechStarted { .. }));
        if starts && !interrupted && from < second {
            interrupted = true;
            played[from + PACKET..second].fill(0.0);
        }
        before.extend(input);
        after.extend(heard);
    }
    write(&folder.join("echo-before.opus"), &before)?;
    write(&folder.join("echo-after.opus"), &after)
}

/// A recording of `tests/interruptions` at [`LEVEL`].
fn recording(name: &str) -> Result<Vec<f32>, Box<dyn Error>> {
    let path = format!("{}/../../tests/interruptions/{name}.wav", env!("CARGO_MANIFEST_DIR"));
    let mut samples = sound_file::read(&std::fs::read(path)?, RATE, Duration::from_secs(60))?;
    let power = samples.iter().map(|sample| sample * sample).sum::<f32>() / samples.len() as f32;
    samples.iter_mut().for_each(|sample| *sample *= LEVEL / power.sqrt());
    Ok(samples)
}

fn write(path: &Path, samples: &[f32]) -> Result<(), Box<dyn Error>> {
    let mut writer = OggOpusWriter::new(RATE, 1)?;
    let mut file = Vec::new();
    for second in samples.chunks(RATE as usize) {
        file.extend(writer.push(second)?);
    }
    file.extend(writer.finish()?);
    Ok(std::fs::write(path, file)?)
}
