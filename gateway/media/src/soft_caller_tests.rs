//! Soft callers: their turns open, and noise as soft as they are opens none.

use repartee_testkit::signal::level_db;

use super::pcm;
use super::resample::Resampler;
use super::turn_grid_sounds::{Noise, recording};
use super::vad::{RATE, TurnDetector, TurnEvent};

/// Questions in other voices than those of the grid.
const VOICES: [&str; 6] =
    ["capital-of-canada", "favorite-food", "how-deep-ocean", "name-thomas", "sixty-minus-seventeen", "tell-a-joke"];
/// Levels of the callers, in dBFS.
const LEVELS_DB: [f32; 4] = [-40.0, -45.0, -50.0, -55.0];
/// Noise of the room or of the line, in dB below the caller.
const BELOW_DB: [f32; 2] = [20.0, 30.0];
/// Noise before and after a voice, and noise alone, in ms.
const BEFORE_MS: usize = 2_000;
const AFTER_MS: usize = 3_000;
const ALONE_MS: usize = 20_000;
/// Earliest begin of a turn before its voice, and latest end behind it, in ms.
const EARLIEST_MS: u64 = 450;
const STOPS_MS: u64 = 1_500;
/// Callers of the table that are missed: two of -55 dBFS over mu-law, near its steps.
const MISSED: usize = 2;

/// Codecs and rates, in Hz.
#[derive(Debug, Clone, Copy)]
enum Wire {
    Room,
    MuLaw,
}

impl Wire {
    fn rate(self) -> u32 {
        match self {
            Self::Room => RATE,
            Self::MuLaw => 8_000,
        }
    }

    /// Samples at the detector's rate.
    fn received(self, sent: &[f32]) -> Vec<f32> {
        match self {
            Self::Room => pcm::decode_i16le(&pcm::encode_i16le(sent)).unwrap(),
            Self::MuLaw => {
                let decoded = pcm::decode_mulaw(&pcm::encode_mulaw(sent));
                Resampler::new(self.rate(), RATE).unwrap().push(&decoded).unwrap()
            }
        }
    }

    fn samples(self, ms: usize) -> usize {
        ms * self.rate() as usize / 1_000
    }
}

/// Begins and ends of turns, in ms.
fn turns(heard: &[f32]) -> Vec<(u64, Option<u64>)> {
    let (mut detector, mut turns) = (TurnDetector::default(), Vec::new());
    for event in heard.chunks(320).flat_map(|packet| detector.push(packet)) {
        match event {
            TurnEvent::SpeechStarted { audio_start_ms } => turns.push((audio_start_ms, None)),
            TurnEvent::SpeechStopped { audio_end_ms } => turns.last_mut().unwrap().1 = Some(audio_end_ms),
            _ => {}
        }
    }
    turns
}

/// Fault of the turns of a caller of this level, if any.
fn fault(wire: Wire, voice: &str, db: f32, below_db: f32, seed: u64) -> Option<String> {
    let mut voice = recording(voice, wire.rate());
    let gain = 10_f32.powf((db - level_db(&voice)) / 20.0);
    voice.iter_mut().for_each(|sample| *sample *= gain);
    let (before, length) = (wire.samples(BEFORE_MS), voice.len());
    let mut sent = Noise::Pink.samples(wire.rate(), before + length + wire.samples(AFTER_MS), db - below_db, seed);
    sent[before..].iter_mut().zip(&voice).for_each(|(sample, voice)| *sample += voice);
    let (begin, end) = (BEFORE_MS as u64, (BEFORE_MS + length * 1_000 / wire.rate() as usize) as u64);
    let turns = turns(&wire.received(&sent));
    let is_right = !turns.is_empty()
        && turns.iter().all(|(from, _)| (begin - EARLIEST_MS..end).contains(from))
        && turns.last().and_then(|(_, to)| *to).is_some_and(|to| to <= end + STOPS_MS);
    (!is_right).then(|| format!("{wire:?} {db} dBFS, noise {below_db} dB below: {turns:?} for {begin} to {end}"))
}

#[test]
fn soft_callers_open_turns() {
    let mut faults = Vec::new();
    for wire in [Wire::Room, Wire::MuLaw] {
        for (seed, voice) in (0..).zip(VOICES) {
            for db in LEVELS_DB {
                faults.extend(BELOW_DB.into_iter().filter_map(|below| fault(wire, voice, db, below, seed)));
            }
        }
    }
    assert!(faults.len() <= MISSED, "{} of 96:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn soft_noise_alone_opens_no_turn() {
    for wire in [Wire::Room, Wire::MuLaw] {
        for noise in [Noise::White, Noise::Pink, Noise::Line, Noise::Hum50, Noise::Hum100, Noise::Music] {
            for db in [-75.0, -65.0, -55.0, -45.0] {
                let sent = noise.samples(wire.rate(), wire.samples(ALONE_MS), db, 3);
                let turns = turns(&wire.received(&sent));
                assert!(turns.is_empty(), "{wire:?} {noise:?} of {db} dBFS: {turns:?}");
            }
        }
    }
}
