//! Our endpointing policies, driven as a call drives them.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use repartee_engine::TurnModel;
use repartee_media::endpointing::Eagerness;
use repartee_media::vad::{TurnDetector, TurnEvent, TurnSettings, VoiceDetector};
use repartee_report::ReportRow;
use repartee_tests::tools;

use super::set::{FRAME, JudgedSound, PER_MS};

/// Duration of audio until a judgement of smart-turn is available.
const ANSWER_MS: usize = 100;

/// Endpointing by fixed silence or by a model, with its name in the report.
#[derive(Debug)]
pub struct Policy {
    pub name: &'static str,
    /// Fixed silence; `None` for judged pauses.
    pub silence_ms: Option<u64>,
    settings: TurnSettings,
}

/// The policies; the published default is first.
pub const POLICIES: [Policy; 8] = [
    Policy::silence("silence of 500 ms", 500),
    Policy::silence("silence of 200 ms", 200),
    Policy::silence("silence of 300 ms", 300),
    Policy::silence("silence of 400 ms", 400),
    Policy::silence("silence of 600 ms", 600),
    Policy::silence("silence of 700 ms", 700),
    Policy::smart_turn("smart-turn, eagerness medium", Eagerness::Medium),
    Policy::smart_turn("smart-turn, eagerness high", Eagerness::High),
];

impl Policy {
    const fn silence(name: &'static str, silence_ms: u64) -> Self {
        Self { name, silence_ms: Some(silence_ms), settings: settings(silence_ms, None) }
    }

    const fn smart_turn(name: &'static str, eagerness: Eagerness) -> Self {
        Self { name, silence_ms: None, settings: settings(500, Some(eagerness)) }
    }

    /// Returns the ends of the turns in `sound`, in samples.
    pub fn ends(&self, sound: &JudgedSound, judges: &mut Judges) -> Result<Vec<usize>> {
        let mut turns = TurnDetector::new(ReplayedVoice(sound.voice.iter()), self.settings);
        if self.silence_ms.is_none() {
            turns = turns.with_turn_model();
        }
        let mut ends = Vec::new();
        let mut answer: Option<(usize, u64, f32)> = None;
        for (index, frame) in sound.samples.as_chunks::<FRAME>().0.iter().enumerate() {
            let position = index * FRAME;
            if let Some((_, id, probability)) = answer.take_if(|(due, ..)| *due <= position)
                && let Some(TurnEvent::SpeechStopped { .. }) = turns.on_prediction(id, Some(probability))
            {
                ends.push(position);
            }
            let events = turns.push(frame).into_iter();
            let stopped = events.filter(|event| matches!(event, TurnEvent::SpeechStopped { .. }));
            ends.extend(stopped.map(|event| event.sample() as usize));
            if answer.is_none()
                && let Some(question) = turns.next_query()
            {
                let probability = judges.probability(&question.turn)?;
                answer = Some((position + FRAME + ANSWER_MS * PER_MS, question.id, probability));
            }
        }
        Ok(ends)
    }
}

const fn settings(silence_duration_ms: u64, eagerness: Option<Eagerness>) -> TurnSettings {
    TurnSettings { threshold: 0.5, prefix_padding_ms: 300, silence_duration_ms, eagerness, pause_ms: None }
}

/// Detector that returns what the call's own one returned for the same frames.
struct ReplayedVoice<'a>(std::slice::Iter<'a, f32>);

impl VoiceDetector for ReplayedVoice<'_> {
    fn frame_len(&self) -> usize {
        FRAME
    }

    fn probability(&mut self, _: &[f32]) -> f32 {
        self.0.next().copied().unwrap_or_default()
    }
}

/// The turn-detection model with a cache of its judgements.
#[derive(Debug, Default)]
pub struct Judges {
    /// Loaded at the first question.
    model: Option<TurnModel>,
    answers: HashMap<Vec<u32>, f32>,
    times: Vec<Duration>,
}

impl Judges {
    fn probability(&mut self, turn: &[f32]) -> Result<f32> {
        let model = match &mut self.model {
            Some(model) => model,
            model => model.insert(TurnModel::load(&tools::turn_model()?)?),
        };
        let key = turn.iter().map(|sample| sample.to_bits()).collect();
        Ok(*self.answers.entry(key).or_insert_with(|| {
            let begun = Instant::now();
            let probability = model.probability(turn);
            self.times.push(begun.elapsed());
            probability
        }))
    }

    /// Returns the rows of the report: duration of a judgement.
    pub fn rows(&self) -> Vec<ReportRow> {
        let mut times = self.times.clone();
        times.sort_unstable();
        let Some(median) = times.get(times.len() / 2) else { return Vec::new() };
        let note = format!("one thread, median of {}", times.len());
        vec![ReportRow::without_peer("smart-turn: one judgement", median.as_secs_f64() * 1_000.0, "ms", note)]
    }
}
