//! Scenes of an echo: a client that plays our answer beside its microphone, alone or with a caller. They were frozen before the echo
//! canceller was written.

use repartee_testkit::random::Random;

use super::testdata;
use super::vad::RATE;

/// Samples per millisecond.
const PER_MS: usize = RATE as usize / 1_000;
/// Samples of a packet.
pub(crate) const PACKET: usize = 20 * PER_MS;
/// Start of the caller's speech, in ms.
pub(crate) const CALLER_MS: usize = 2_540;
/// Level of the playback (root mean square).
const PLAYED: f32 = 0.1;
/// Level of the room's noise, -66 dBFS.
const NOISE: f32 = 5e-4;
/// Sound paths of the room: delay in ms and gain.
const ROOM: [(f64, f32); 5] = [(0.0, 0.7), (9.0, 0.5), (34.0, 0.35), (83.0, 0.25), (140.0, 0.15)];
/// Levels of the echo relative to the playback, in dB.
const ECHOES_DB: [f32; 4] = [-30.0, -20.0, -10.0, 0.0];
/// Levels of the caller relative to the playback, in dB.
const CALLERS_DB: [f32; 3] = [0.0, -10.0, -20.0];

/// A client that plays our answer beside its microphone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EchoScene {
    /// Level of the echo relative to the playback, in dB.
    pub echo_db: f32,
    /// Time from our playout clock to the arrival of the echo: network, buffers and room.
    pub delay_ms: usize,
    /// Lead of the client's clock over ours, in millionths.
    pub drift_ppm: f64,
    /// Lost packets of each direction, in percent.
    pub lost_percent: u32,
    /// True for a loudspeaker that distorts.
    pub is_distorted: bool,
    /// Level of the caller relative to the playback, in dB; `None` for a caller who listens.
    pub caller_db: Option<f32>,
}

impl EchoScene {
    const NONE: Self =
        Self { echo_db: 0.0, delay_ms: 0, drift_ppm: 0.0, lost_percent: 0, is_distorted: false, caller_db: None };

    /// Echoes without a caller.
    pub fn alone() -> impl Iterator<Item = Self> {
        let paths = [
            Self { delay_ms: 60, ..Self::NONE },
            Self { delay_ms: 120, drift_ppm: 500.0, ..Self::NONE },
            Self { delay_ms: 320, drift_ppm: -500.0, lost_percent: 2, ..Self::NONE },
            Self { delay_ms: 600, ..Self::NONE },
            Self { delay_ms: 600, drift_ppm: 500.0, lost_percent: 2, is_distorted: true, ..Self::NONE },
            Self { delay_ms: 700, is_distorted: true, ..Self::NONE },
        ];
        ECHOES_DB.into_iter().flat_map(move |echo_db| paths.map(|path| Self { echo_db, ..path }))
    }

    /// Callers beside an echo.
    pub fn double_talk() -> impl Iterator<Item = Self> {
        let paths = [Self { delay_ms: 120, ..Self::NONE }, Self { delay_ms: 600, drift_ppm: 500.0, ..Self::NONE }];
        ECHOES_DB.into_iter().flat_map(move |echo_db| {
            CALLERS_DB.into_iter().flat_map(move |db| paths.map(|path| Self { echo_db, caller_db: Some(db), ..path }))
        })
    }

    /// Input of the server while the client plays `played`.
    pub fn input(&self, played: &[f32]) -> Vec<f32> {
        let mut random = Random::new(self.delay_ms as u64);
        let mut is_lost = {
            let share = f64::from(self.lost_percent) / 100.0;
            move || random.unit() < share
        };
        let mut aired = played.to_vec();
        aired.chunks_mut(PACKET).filter(|_| is_lost()).for_each(|packet| packet.fill(0.0));
        if self.is_distorted {
            aired.iter_mut().for_each(|sample| *sample = (4.0 * *sample).tanh() / 4.0);
        }
        let energy: f32 = ROOM.iter().map(|(_, gain)| gain * gain).sum();
        let gain = 10_f32.powf(self.echo_db / 20.0) / energy.sqrt();
        let mut noise = Random::new(7);
        let mut input: Vec<f32> = (0..played.len())
            .map(|at| {
                // The client's clock runs for both of its directions.
                let at = at as f64 * (1.0 + self.drift_ppm / 1e6);
                let path = |(delay, gain): &(f64, f32)| {
                    gain * sample_at(&aired, at - (self.delay_ms as f64 + delay) * PER_MS as f64)
                };
                gain * ROOM.iter().map(path).sum::<f32>() + 3.46 * NOISE * (noise.unit() as f32 - 0.5)
            })
            .collect();
        if let Some(db) = self.caller_db {
            let gain = 10_f32.powf(db / 20.0);
            input[CALLER_MS * PER_MS..].iter_mut().zip(caller()).for_each(|(sample, voice)| *sample += gain * voice);
        }
        input.iter_mut().for_each(|sample| *sample = sample.clamp(-1.0, 1.0));
        input.chunks_mut(PACKET).filter(|_| is_lost()).for_each(|packet| packet.fill(0.0));
        input
    }
}

/// The answer, with 1.5 s of silence behind it.
pub(crate) fn playback() -> Vec<f32> {
    [recording("answer-planets"), vec![0.0; 1_500 * PER_MS]].concat()
}

/// The caller, as loud as the playback.
pub(crate) fn caller() -> Vec<f32> {
    recording("caller-excuse")
}

/// A recording of `tests/interruptions` at the level of the playback.
fn recording(name: &str) -> Vec<f32> {
    let mut samples = testdata::interruption(name, RATE);
    let level = super::level::rms(&samples);
    samples.iter_mut().for_each(|sample| *sample *= PLAYED / level);
    samples
}

/// Sample between two, by a straight line.
fn sample_at(samples: &[f32], at: f64) -> f32 {
    if at < 0.0 {
        return 0.0;
    }
    let (before, share) = (at as usize, at.fract() as f32);
    let get = |at: usize| samples.get(at).copied().unwrap_or(0.0);
    get(before) * (1.0 - share) + get(before + 1) * share
}
