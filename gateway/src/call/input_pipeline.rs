//! Input audio on its way to the realtime session: resampled to the model's rate, with turn detection.

use std::borrow::Cow;
use std::time::Duration;

use repartee_media::call_echo::CallEcho;
use repartee_media::echo_guard::EchoLevel;
use repartee_media::endpointing::{PauseModel, TurnQuery};
use repartee_media::level::audible_end;
use repartee_media::resample::ResampleError;
use repartee_media::vad::{self, BargeInPolicy, TurnDetector, TurnEvent, TurnSettings};
use repartee_protocol::noise_reduction::NoiseReductionKind;
use repartee_realtime::audio::EncodedAudio;
use repartee_realtime::{PIECE_MS, SessionInput};

use super::input_sound::{ConvertedSound, InputSound};

/// Resampling, echo cancelling and turn detection of one call's input audio. [`Self::push`] any number of samples, then [`Self::load`],
/// [`Self::convert`] and [`Self::detect`] while it [has more](Self::has_more).
#[derive(Debug)]
pub(super) struct InputPipeline {
    sound: InputSound,
    /// Unprocessed samples, and the index of the next piece.
    pending: Vec<f32>,
    at: usize,
    /// Audio behind them that is not decoded yet.
    encoded: Option<EncodedAudio>,
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

impl InputPipeline {
    /// Creates the pipeline of a new call around `sound`; `turn_model` if one judges pauses. Turns end after `longest_turn`.
    pub fn new(sound: InputSound, turn_model: Option<PauseModel>, longest_turn: Option<Duration>) -> Self {
        let detector = TurnDetector::default();
        let detector = longest_turn.into_iter().fold(detector, TurnDetector::with_longest_turn);
        Self {
            sound,
            pending: Vec::new(),
            at: 0,
            encoded: None,
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

    /// Judges voices over an answer by `policy`.
    pub fn with_barge_in(mut self, policy: BargeInPolicy) -> Self {
        self.detector = self.detector.with_barge_in(policy);
        self
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

    /// Sets the noise reduction of the pieces that follow; `None` for the sound as it is.
    pub fn reduce_noise(&mut self, kind: Option<NoiseReductionKind>) {
        self.sound.noise_reduction = kind;
    }

    /// Ends the open turn, which was committed by other means.
    pub fn end_turn(&mut self) {
        self.detector.end_turn();
        self.voice_end = None;
    }

    /// Queues samples at `rate`. A change of the rate flushes the resamplers and returns their output.
    pub fn push(&mut self, samples: Vec<f32>, rate: u32) -> Result<Vec<SessionInput>, ResampleError> {
        let mut inputs = Vec::new();
        if self.sound.is_new(rate) {
            inputs = self.flush()?;
            self.sound.set_rate(rate)?;
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

    /// Decodes the next second of encoded audio once the samples before it are processed.
    pub fn load(&mut self) {
        if self.at < self.pending.len() {
            return;
        }
        let Some(audio) = &mut self.encoded else { return };
        let samples = audio.next(self.sound.rate() as usize);
        if samples.is_empty() {
            self.encoded = None;
            return;
        }
        (self.pending, self.at) = (samples, 0);
    }

    /// The echo canceller; `None` if the server cancels no echo.
    pub fn echo(&mut self) -> Option<&mut CallEcho> {
        self.sound.echo.as_mut()
    }

    /// True if samples wait to be processed.
    pub fn has_more(&self) -> bool {
        self.at < self.pending.len() || self.encoded.is_some()
    }

    /// Duration of the samples that wait to be processed.
    pub fn waiting(&self) -> Duration {
        self.decoded() + self.encoded.as_ref().map_or(Duration::ZERO, EncodedAudio::duration)
    }

    /// Duration of those of them that are decoded.
    pub fn decoded(&self) -> Duration {
        let samples = self.pending.len().saturating_sub(self.at);
        Duration::from_secs_f64(samples as f64 / f64::from(self.sound.rate().max(1)))
    }

    /// Sets the echo level of the next samples, and whether the playback can be paused or plays at a client that cannot; see
    /// [`TurnDetector::set_echo_level`], [`TurnDetector::set_pausable`] and [`TurnDetector::set_unpausable`].
    pub fn set_playback(&mut self, level: Option<EchoLevel>, pausable: bool, unpausable: bool) {
        self.detector.set_echo_level(level);
        self.detector.set_pausable(pausable);
        self.detector.set_unpausable(unpausable);
    }

    /// Takes one piece of the queued samples, without the echo of our playback, with reduced noise and at the rates of model and detector. `is_recorded`: true
    /// if it was recorded before and has no echo.
    pub fn convert(&mut self, is_recorded: bool) -> Result<ConvertedSound, ResampleError> {
        let end = self.pending.len().min(self.at + (self.sound.rate() * PIECE_MS / 1_000) as usize);
        let whole = self.at == 0 && end == self.pending.len();
        let piece = match whole {
            true => Cow::Owned(std::mem::take(&mut self.pending)),
            false => Cow::Borrowed(&self.pending[self.at..end]),
        };
        let converted = self.sound.convert(piece, is_recorded)?;
        self.at = end;
        if self.at >= self.pending.len() {
            (self.pending, self.at) = (Vec::new(), 0);
        }
        Ok(converted)
    }

    /// Processes all queued samples, and flushes the resamplers.
    pub fn flush(&mut self) -> Result<Vec<SessionInput>, ResampleError> {
        let mut inputs = Vec::new();
        while self.has_more() {
            self.load();
            let converted = self.convert(false)?;
            self.detect(converted, &mut inputs);
        }
        let rest = self.sound.flush()?;
        self.detect(rest, &mut inputs);
        Ok(inputs)
    }

    /// Audio that the detector got, in ms.
    pub fn received_ms(&self) -> u64 {
        self.received * 1_000 / u64::from(vad::RATE)
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
    /// pause if it may be, behind its decision.
    pub fn judged(&mut self, id: u64, probability: Option<f32>) -> Vec<SessionInput> {
        let mut inputs = Vec::new();
        if let Some(event) = self.detector.on_prediction(id, probability) {
            self.report_decisions(&mut inputs);
            self.report(event, &mut inputs);
            self.voice_end = self.detector.voice_end();
        }
        inputs
    }

    /// Passes a converted piece through the detector, and appends the results to `inputs`.
    pub fn detect(&mut self, sound: ConvertedSound, inputs: &mut Vec<SessionInput>) {
        let heard = sound.heard();
        if let Some(end) = audible_end(heard) {
            self.audible_end = self.received + end as u64;
        }
        self.received += heard.len() as u64;
        let events = self.detector.push(heard);
        inputs.push(SessionInput::Audio(sound.for_model));
        self.report_decisions(inputs);
        for event in events {
            self.report(event, inputs);
        }
        self.voice_end = self.detector.voice_end();
    }

    /// Appends the decisions so far to `inputs`.
    fn report_decisions(&mut self, inputs: &mut Vec<SessionInput>) {
        if let Some(decision) = self.sound.noise_decision(self.received_ms()) {
            inputs.push(SessionInput::Decision(decision));
        }
        let decisions = self.detector.take_decisions().filter(|_| self.detecting);
        inputs.extend(decisions.map(SessionInput::Decision));
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

    fn pipeline(model_rate: u32, longest_turn: Option<Duration>) -> InputPipeline {
        InputPipeline::new(InputSound::new(model_rate, true), None, longest_turn)
    }

    impl InputPipeline {
        /// Processes one piece, and appends its results to `inputs`.
        fn process(&mut self, inputs: &mut Vec<SessionInput>) {
            let converted = self.convert(false).unwrap();
            self.detect(converted, inputs);
        }
    }

    /// Returns the endpointing delay of `speech` by the detector's own clock and by the metric, in samples.
    fn ended(speech: &[f32]) -> (u64, u64) {
        let mut pipeline = pipeline(vad::RATE, None);
        pipeline.configure(Some(TurnSettings::default()));
        let mut stopped = None;
        for chunk in [speech, &[0.0; vad::RATE as usize]].concat().chunks(320) {
            let mut inputs = pipeline.push(chunk.to_vec(), vad::RATE).unwrap();
            while pipeline.has_more() {
                pipeline.process(&mut inputs);
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
            let mut pipeline = pipeline(vad::RATE, None);
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
        let mut pipeline = pipeline(vad::RATE, Some(Duration::from_secs(3)));
        pipeline.configure(Some(TurnSettings { silence_duration_ms: 2_000, ..TurnSettings::default() }));
        let speech = question().repeat(4);
        let mut inputs = pipeline.push(speech, vad::RATE).unwrap();
        while pipeline.has_more() {
            pipeline.process(&mut inputs);
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
                let mut pipeline = pipeline(model_rate, None);
                let mut count = 0;
                for chunk in vec![0.1; rate as usize].chunks(piece) {
                    count += samples(&pipeline.push(chunk.to_vec(), rate).unwrap());
                    while pipeline.has_more() {
                        let mut inputs = Vec::new();
                        pipeline.process(&mut inputs);
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
            let mut pipeline = pipeline(16_000, None);
            // 10.5 s of mu-law.
            let audio = EncodedAudio::new(&"AAAA".repeat(28_000), AudioFormat::Pcmu).unwrap();
            let mut inputs = pipeline.push_encoded(audio).unwrap();
            let mut loads = Vec::new();
            while !flushed && pipeline.has_more() {
                let before = pipeline.pending.len() - pipeline.at;
                pipeline.load();
                if before == 0 && !pipeline.pending.is_empty() {
                    loads.push(pipeline.pending.len());
                }
                assert!(pipeline.pending.len() <= 8_000, "no more is held as samples");
                pipeline.process(&mut inputs);
            }
            inputs.extend(pipeline.flush().unwrap());
            assert_eq!(samples(&inputs), 168_000);
            let expected = [vec![8_000; 10], vec![4_000]].concat();
            assert_eq!(loads, if flushed { Vec::new() } else { expected });
        }
    }

    #[test]
    fn samples_follow_encoded_audio() {
        let mut pipeline = pipeline(16_000, None);
        pipeline.push_encoded(EncodedAudio::new(&"AAAA".repeat(8_000), AudioFormat::Pcmu).unwrap()).unwrap();
        let mut count = samples(&pipeline.push(vec![0.1; 8_000], 8_000).unwrap());
        count += samples(&pipeline.flush().unwrap());
        assert_eq!(count, 64_000);
    }

    #[test]
    fn changing_the_input_rate_loses_no_samples() {
        let mut pipeline = pipeline(16_000, None);
        let mut count = samples(&pipeline.push(vec![0.1; 24_000], 24_000).unwrap());
        count += samples(&pipeline.push(vec![0.1; 8_000], 8_000).unwrap());
        count += samples(&pipeline.flush().unwrap());
        assert_eq!(count, 32_000);
    }
}
