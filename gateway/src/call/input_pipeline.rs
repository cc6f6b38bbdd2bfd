//! Input audio on its way to the realtime session: resampled to the model's rate, with turn detection.

use std::time::Duration;

use repartee_media::echo_guard::EchoLevel;
use repartee_media::endpointing::{PauseModel, TurnQuery};
use repartee_media::level::audible_end;
use repartee_media::resample::{ResampleError, Resampler};
use repartee_media::vad::{self, TurnDetector, TurnEvent, TurnSettings};
use repartee_realtime::audio::EncodedAudio;
use repartee_realtime::{PIECE_MS, SessionInput};

/// Resampling and turn detection of one call's input audio. [`Self::push`] any number of samples, then [`Self::load`]
/// and [`Self::process`] while it [has more](Self::has_more).
#[derive(Debug)]
pub(super) struct InputPipeline {
    model_rate: u32,
    /// Unprocessed samples, and the index of the next piece.
    pending: Vec<f32>,
    at: usize,
    /// Audio behind them that is not decoded yet.
    encoded: Option<EncodedAudio>,
    rate: u32,
    resamplers: Option<Resamplers>,
    detector: TurnDetector,
    /// True if turn detection is on; otherwise the detector only counts samples.
    detecting: bool,
    /// Start of the open turn, and end of its voice by the detector, in samples of the detector.
    begin: u64,
    voice_end: Option<u64>,
    /// Number of samples that the detector got, and position of the last audible one.
    received: u64,
    audible_end: u64,
    endpointing: Option<Duration>,
}

/// Resamplers from one input rate.
#[derive(Debug)]
struct Resamplers {
    model: Resampler,
    /// `None` if the model's input rate is the detector's.
    detector: Option<Resampler>,
}

impl Resamplers {
    fn new(rate: u32, model_rate: u32) -> Result<Self, ResampleError> {
        let detector = (model_rate != vad::RATE).then(|| Resampler::new(rate, vad::RATE)).transpose()?;
        Ok(Self { model: Resampler::new(rate, model_rate)?, detector })
    }
}

impl InputPipeline {
    /// Creates the pipeline of a new call; `turn_model` if one judges pauses. Turns end after `longest_turn`.
    pub fn new(model_rate: u32, turn_model: Option<PauseModel>, longest_turn: Option<Duration>) -> Self {
        let detector = TurnDetector::default();
        let detector = longest_turn.into_iter().fold(detector, TurnDetector::with_longest_turn);
        Self {
            model_rate,
            pending: Vec::new(),
            at: 0,
            encoded: None,
            rate: model_rate,
            resamplers: None,
            detector: match turn_model {
                Some(model) => detector.with_turn_model(model),
                None => detector,
            },
            detecting: false,
            begin: 0,
            voice_end: None,
            received: 0,
            audible_end: 0,
            endpointing: None,
        }
    }

    /// Sets the turn detection; `None` for push-to-talk.
    pub fn configure(&mut self, turns: Option<TurnSettings>) {
        if turns.is_some() != self.detecting {
            self.detector.end_turn();
        }
        self.detecting = turns.is_some();
        if let Some(turns) = turns {
            self.detector.configure(turns);
        }
    }

    /// Ends the open turn, which was committed by other means.
    pub fn end_turn(&mut self) {
        self.detector.end_turn();
        self.voice_end = None;
    }

    /// Queues samples at `rate`. A change of the rate flushes the resamplers and returns their output.
    pub fn push(&mut self, samples: Vec<f32>, rate: u32) -> Result<Vec<SessionInput>, ResampleError> {
        let mut inputs = Vec::new();
        if rate != self.rate || self.resamplers.is_none() {
            inputs = self.flush()?;
            self.resamplers = Some(Resamplers::new(rate, self.model_rate)?);
            self.rate = rate;
        }
        // The caller pushes nothing while encoded audio waits; otherwise that comes first.
        if let Some(mut encoded) = self.encoded.take() {
            self.pending.extend(encoded.next(usize::MAX));
        }
        if self.has_more() {
            self.pending.extend(samples);
        } else {
            (self.pending, self.at) = (samples, 0);
        }
        Ok(inputs)
    }

    /// Queues audio that came at once. [`Self::load`] decodes it piece by piece.
    pub fn push_encoded(&mut self, audio: EncodedAudio) -> Result<Vec<SessionInput>, ResampleError> {
        let inputs = self.push(Vec::new(), audio.rate())?;
        self.encoded = Some(audio);
        Ok(inputs)
    }

    /// Decodes the next second of encoded audio once the samples before it are processed; returns its samples and their
    /// rate.
    pub fn load(&mut self) -> Option<(&[f32], u32)> {
        if self.at < self.pending.len() {
            return None;
        }
        let audio = self.encoded.as_mut()?;
        let samples = audio.next(self.rate as usize);
        if samples.is_empty() {
            self.encoded = None;
            return None;
        }
        (self.pending, self.at) = (samples, 0);
        Some((&self.pending, self.rate))
    }

    /// True if samples wait to be processed.
    pub fn has_more(&self) -> bool {
        self.at < self.pending.len() || self.encoded.is_some()
    }

    /// Duration of the samples that wait to be processed.
    pub fn waiting(&self) -> Duration {
        let samples = self.pending.len().saturating_sub(self.at);
        let encoded = self.encoded.as_ref().map_or(Duration::ZERO, EncodedAudio::duration);
        Duration::from_secs_f64(samples as f64 / f64::from(self.rate.max(1))) + encoded
    }

    /// Sets the echo level of the next samples, and whether the playback can be paused; see
    /// [`TurnDetector::set_echo_level`] and [`TurnDetector::set_pausable`].
    pub fn set_playback(&mut self, level: Option<EchoLevel>, pausable: bool) {
        self.detector.set_echo_level(level);
        self.detector.set_pausable(pausable);
    }

    /// Processes one piece of the queued samples, and appends the results to `inputs`.
    pub fn process(&mut self, inputs: &mut Vec<SessionInput>) -> Result<(), ResampleError> {
        let end = self.pending.len().min(self.at + (self.rate * PIECE_MS / 1_000) as usize);
        let Some(resamplers) = &mut self.resamplers else { return Ok(()) };
        let piece = &self.pending[self.at..end];
        let whole = piece.len() == self.pending.len();
        let for_detector = resamplers.detector.as_mut().map(|filter| filter.push(piece)).transpose()?;
        // A packet at the model's rate is one piece and passes without a copy.
        let for_model = match resamplers.model.is_identity() && whole {
            true => std::mem::take(&mut self.pending),
            false => resamplers.model.push(piece)?,
        };
        self.at = end;
        if self.at >= self.pending.len() {
            (self.pending, self.at) = (Vec::new(), 0);
        }
        self.detect(for_model, for_detector, inputs);
        Ok(())
    }

    /// Processes all queued samples, and flushes the resamplers.
    pub fn flush(&mut self) -> Result<Vec<SessionInput>, ResampleError> {
        let mut inputs = Vec::new();
        while self.has_more() {
            self.load();
            self.process(&mut inputs)?;
        }
        if let Some(resamplers) = &mut self.resamplers {
            let for_model = resamplers.model.flush()?;
            let for_detector = resamplers.detector.as_mut().map(Resampler::flush).transpose()?;
            self.detect(for_model, for_detector, &mut inputs);
        }
        Ok(inputs)
    }

    /// Returns the endpointing delay of the last turn, counted from its last sound above -45 dBFS; only once.
    pub fn endpointing(&mut self) -> Option<Duration> {
        self.endpointing.take()
    }

    /// Duration of voice in the last turn before the turn was detected.
    pub fn onset(&self) -> Duration {
        self.detector.onset()
    }

    /// Returns the next question for the model that judges pauses, if any; see [`TurnDetector::next_query`].
    pub fn question(&mut self) -> Option<TurnQuery> {
        self.detecting.then(|| self.detector.next_query()).flatten()
    }

    /// Handles the model's answer to a question; see [`TurnDetector::on_prediction`]. Returns the turn's end if it is over, or its
    /// pause if it may be.
    pub fn judged(&mut self, id: u64, probability: Option<f32>) -> Option<SessionInput> {
        let event = self.detector.on_prediction(id, probability)?;
        let mut inputs = Vec::new();
        self.report(event, &mut inputs);
        self.voice_end = self.detector.voice_end();
        inputs.pop()
    }

    fn detect(&mut self, for_model: Vec<f32>, for_detector: Option<Vec<f32>>, inputs: &mut Vec<SessionInput>) {
        let heard = for_detector.as_deref().unwrap_or(&for_model);
        if let Some(end) = audible_end(heard) {
            self.audible_end = self.received + end as u64;
        }
        self.received += heard.len() as u64;
        let events = self.detector.push(heard);
        inputs.push(SessionInput::Audio(for_model));
        for event in events {
            self.report(event, inputs);
        }
        self.voice_end = self.detector.voice_end();
    }

    fn report(&mut self, event: TurnEvent, inputs: &mut Vec<SessionInput>) {
        if let TurnEvent::SpeechStarted { .. } = event {
            self.begin = event.sample();
        }
        if let (TurnEvent::SpeechStopped { .. }, Some(voice_end)) = (event, self.voice_end) {
            // The delay counts from the last audible sample: the detector's voice ends later. In steady noise or with a
            // faint voice only the detector knows the end.
            let spoken =
                Some(self.audible_end).filter(|end| *end > self.begin).map_or(voice_end, |end| end.min(voice_end));
            let waited = event.sample().saturating_sub(spoken);
            self.endpointing = Some(Duration::from_secs_f64(waited as f64 / f64::from(vad::RATE)));
        }
        let is_cut = self.detector.take_cut();
        if self.detecting {
            if is_cut {
                let turn_s = event.sample().saturating_sub(self.begin) / u64::from(vad::RATE);
                tracing::warn!(
                    turn_s,
                    "a turn reached turns.longest_s and was committed; its input may be music or noise"
                );
            }
            inputs.push(SessionInput::Turn(event));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use repartee_media::sound_file;
    use repartee_protocol::session::AudioFormat;

    use super::*;

    const MS: u64 = vad::RATE as u64 / 1_000;

    /// Returns the endpointing delay of `speech` by the detector's own clock and by the metric, in samples.
    fn ended(speech: &[f32]) -> (u64, u64) {
        let mut pipeline = InputPipeline::new(vad::RATE, None, None);
        pipeline.configure(Some(TurnSettings::default()));
        let mut stopped = None;
        for chunk in [speech, &[0.0; vad::RATE as usize]].concat().chunks(320) {
            let mut inputs = pipeline.push(chunk.to_vec(), vad::RATE).unwrap();
            while pipeline.has_more() {
                pipeline.process(&mut inputs).unwrap();
            }
            for input in inputs {
                if let SessionInput::Turn(event @ TurnEvent::SpeechStopped { .. }) = input {
                    stopped = Some(event.sample());
                }
            }
        }
        let counted = pipeline.endpointing().unwrap().as_secs_f64() * f64::from(vad::RATE);
        (stopped.unwrap() - audible_end(speech).unwrap() as u64, counted.round() as u64)
    }

    fn question() -> Vec<f32> {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/questions/capital-of-france.wav");
        sound_file::read(&std::fs::read(file).unwrap(), vad::RATE, Duration::from_secs(30)).unwrap()
    }

    #[test]
    fn endpointing_counts_from_last_audible_sound() {
        let (waited, counted) = ended(&question());
        assert!(waited.abs_diff(counted) <= 20 * MS, "{waited} and {counted}");
        assert!(counted > TurnSettings::default().silence_duration_ms * MS, "{counted}");
    }

    #[test]
    fn faint_or_noisy_turns_count_by_the_detector() {
        // The last audible sample lies before the turn; then at the end of noise.
        for audible_end in [50, 1_390] {
            let mut pipeline = InputPipeline::new(vad::RATE, None, None);
            (pipeline.begin, pipeline.voice_end, pipeline.audible_end) = (100 * MS, Some(900 * MS), audible_end * MS);
            pipeline.report(TurnEvent::SpeechStopped { audio_end_ms: 1_400 }, &mut Vec::new());
            assert_eq!(pipeline.endpointing(), Some(Duration::from_millis(500)));
        }
    }

    fn samples(inputs: &[SessionInput]) -> usize {
        inputs.iter().map(|input| if let SessionInput::Audio(samples) = input { samples.len() } else { 0 }).sum()
    }

    #[test]
    fn turns_of_the_longest_duration_end() {
        let mut pipeline = InputPipeline::new(vad::RATE, None, Some(Duration::from_secs(3)));
        pipeline.configure(Some(TurnSettings { silence_duration_ms: 2_000, ..TurnSettings::default() }));
        let speech = question().repeat(4);
        let mut inputs = pipeline.push(speech, vad::RATE).unwrap();
        while pipeline.has_more() {
            pipeline.process(&mut inputs).unwrap();
        }
        let turns: Vec<_> = inputs
            .iter()
            .filter_map(|input| if let SessionInput::Turn(turn) = input { Some(turn.sample()) } else { None })
            .collect();
        let [begin, end, again, ..] = turns[..] else { panic!("{turns:?}") };
        assert!((end - begin).abs_diff(3_000 * MS) < 16 * MS, "{turns:?}");
        assert!(again >= end, "the next turn begins after it");
    }

    #[test]
    fn any_input_rate_and_split_keeps_all_samples() {
        for (rate, model_rate) in [(24_000, 16_000), (8_000, 16_000), (48_000, 24_000), (16_000, 16_000)] {
            for piece in [1, 37, 480, 24_000] {
                let mut pipeline = InputPipeline::new(model_rate, None, None);
                let mut count = 0;
                for chunk in vec![0.1; rate as usize].chunks(piece) {
                    count += samples(&pipeline.push(chunk.to_vec(), rate).unwrap());
                    while pipeline.has_more() {
                        let mut inputs = Vec::new();
                        pipeline.process(&mut inputs).unwrap();
                        count += samples(&inputs);
                    }
                }
                count += samples(&pipeline.flush().unwrap());
                assert_eq!(count, model_rate as usize, "{rate} to {model_rate} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn encoded_audio_is_decoded_by_the_second() {
        for flushed in [false, true] {
            let mut pipeline = InputPipeline::new(16_000, None, None);
            // 10.5 s of mu-law.
            let audio = EncodedAudio::new(&"AAAA".repeat(28_000), AudioFormat::Pcmu).unwrap();
            let mut inputs = pipeline.push_encoded(audio).unwrap();
            let mut loads = Vec::new();
            while !flushed && pipeline.has_more() {
                loads.extend(pipeline.load().map(|(samples, rate)| (samples.len(), rate)));
                assert!(pipeline.pending.len() <= 8_000, "no more is held as samples");
                pipeline.process(&mut inputs).unwrap();
            }
            inputs.extend(pipeline.flush().unwrap());
            assert_eq!(samples(&inputs), 168_000);
            let expected = [vec![(8_000, 8_000); 10], vec![(4_000, 8_000)]].concat();
            assert_eq!(loads, if flushed { Vec::new() } else { expected });
        }
    }

    #[test]
    fn samples_follow_encoded_audio() {
        let mut pipeline = InputPipeline::new(16_000, None, None);
        pipeline.push_encoded(EncodedAudio::new(&"AAAA".repeat(8_000), AudioFormat::Pcmu).unwrap()).unwrap();
        let mut count = samples(&pipeline.push(vec![0.1; 8_000], 8_000).unwrap());
        count += samples(&pipeline.flush().unwrap());
        assert_eq!(count, 64_000);
    }

    #[test]
    fn changing_the_input_rate_loses_no_samples() {
        let mut pipeline = InputPipeline::new(16_000, None, None);
        let mut count = samples(&pipeline.push(vec![0.1; 24_000], 24_000).unwrap());
        count += samples(&pipeline.push(vec![0.1; 8_000], 8_000).unwrap());
        count += samples(&pipeline.flush().unwrap());
        assert_eq!(count, 32_000);
    }
}
