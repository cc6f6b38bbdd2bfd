//! Our endpointing policies, driven as a call drives them.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use repartee_engine::TurnModel;
use repartee_media::acoustics::Acoustics;
use repartee_media::endpointing::{Eagerness, PauseModel};
use repartee_media::vad::{TurnDetector, TurnEvent, TurnSettings, VoiceDetector};
use repartee_report::ReportRow;
use repartee_tests::tools;

use super::set::{FRAME, JudgedSound, PER_MS};

/// Duration of audio until a judgement of smart-turn is available, and one of our own network.
const SMART_TURN_MS: usize = 100;
const EMBEDDED_MS: usize = 5;

/// Endpointing by fixed silence or by a model, with its name in the report.
#[derive(Debug)]
pub struct Policy {
    pub name: &'static str,
    /// Fixed silence; `None` for judged pauses.
    pub silence_ms: Option<u64>,
    /// Model that judges pauses.
    pub model: Option<PauseModel>,
    settings: TurnSettings,
}

/// The policies; the published default is first.
pub const POLICIES: [Policy; 11] = [
    Policy::silence("silence of 500 ms", 500),
    Policy::silence("silence of 200 ms", 200),
    Policy::silence("silence of 300 ms", 300),
    Policy::silence("silence of 400 ms", 400),
    Policy::silence("silence of 600 ms", 600),
    Policy::silence("silence of 700 ms", 700),
    Policy::judged("our network, eagerness high", PauseModel::Embedded, Eagerness::High),
    Policy::judged("our network, eagerness medium", PauseModel::Embedded, Eagerness::Medium),
    Policy::judged("our network, eagerness low", PauseModel::Embedded, Eagerness::Low),
    Policy::judged("smart-turn, eagerness medium", PauseModel::SmartTurn, Eagerness::Medium),
    Policy::judged("smart-turn, eagerness high", PauseModel::SmartTurn, Eagerness::High),
];

impl Policy {
    const fn silence(name: &'static str, silence_ms: u64) -> Self {
        Self { name, silence_ms: Some(silence_ms), model: None, settings: settings(silence_ms, None) }
    }

    const fn judged(name: &'static str, model: PauseModel, eagerness: Eagerness) -> Self {
        Self { name, silence_ms: None, model: Some(model), settings: settings(500, Some(eagerness)) }
    }

    /// Returns the ends of the turns in `sound`, in samples.
    pub fn ends(&self, sound: &JudgedSound, judges: &mut Judges) -> Result<Vec<usize>> {
        let mut turns = TurnDetector::new(ReplayedVoice { frames: sound.voice.iter(), acoustics: None }, self.settings);
        if let Some(model) = self.model {
            turns = turns.with_turn_model(model);
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
            if let (Some(model), None) = (self.model, &answer)
                && let Some(question) = turns.next_query()
            {
                let probability = judges.of(model)?.probability(&question.turn);
                let answer_ms = if model == PauseModel::Embedded { EMBEDDED_MS } else { SMART_TURN_MS };
                answer = Some((position + FRAME + answer_ms * PER_MS, question.id, probability));
            }
        }
        Ok(ends)
    }
}

const fn settings(silence_duration_ms: u64, eagerness: Option<Eagerness>) -> TurnSettings {
    TurnSettings { threshold: 0.5, prefix_padding_ms: 300, silence_duration_ms, eagerness, pause_ms: None }
}

/// Detector that returns what the call's own one returned for the same frames.
struct ReplayedVoice<'a> {
    frames: std::slice::Iter<'a, (f32, Option<Acoustics>)>,
    acoustics: Option<Acoustics>,
}

impl VoiceDetector for ReplayedVoice<'_> {
    fn frame_len(&self) -> usize {
        FRAME
    }

    fn probability(&mut self, _: &[f32]) -> f32 {
        let (probability, acoustics) = self.frames.next().copied().unwrap_or_default();
        self.acoustics = acoustics;
        probability
    }

    fn acoustics(&self) -> Option<Acoustics> {
        self.acoustics
    }
}

/// The turn-detection models, loaded at their first question.
#[derive(Debug, Default)]
pub struct Judges {
    embedded: Option<Judge>,
    smart_turn: Option<Judge>,
}

impl Judges {
    fn of(&mut self, model: PauseModel) -> Result<&mut Judge> {
        let (slot, load): (_, fn() -> Result<TurnModel>) = match model {
            PauseModel::Embedded => (&mut self.embedded, || Ok(TurnModel::embedded()?)),
            PauseModel::SmartTurn => (&mut self.smart_turn, || Ok(TurnModel::load(&tools::turn_model()?)?)),
        };
        Ok(match slot {
            Some(judge) => judge,
            slot => slot.insert(Judge { model: load()?, answers: HashMap::new(), times: Vec::new() }),
        })
    }

    /// Returns the rows of the report: duration of a judgement.
    pub fn rows(&self) -> Vec<ReportRow> {
        let judges = [("our network", &self.embedded), ("smart-turn", &self.smart_turn)];
        judges.into_iter().filter_map(|(name, judge)| judge.as_ref()?.row(name)).collect()
    }
}

/// A turn-detection model with a cache of its judgements.
#[derive(Debug)]
struct Judge {
    model: TurnModel,
    answers: HashMap<Vec<u32>, f32>,
    times: Vec<Duration>,
}

impl Judge {
    fn probability(&mut self, turn: &[f32]) -> f32 {
        let key = turn.iter().map(|sample| sample.to_bits()).collect();
        *self.answers.entry(key).or_insert_with(|| {
            let begun = Instant::now();
            let probability = self.model.probability(turn);
            self.times.push(begun.elapsed());
            probability
        })
    }

    fn row(&self, name: &str) -> Option<ReportRow> {
        let mut times = self.times.clone();
        times.sort_unstable();
        let median = times.get(times.len() / 2)?.as_secs_f64() * 1_000.0;
        println!("{name}: one judgement {median:.1} ms, median of {}", times.len());
        let note = format!("one thread, median of {}", times.len());
        Some(ReportRow::without_peer(format!("{name}: one judgement"), median, "ms", note))
    }
}
