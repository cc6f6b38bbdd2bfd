//! Load of one call, measured at the start: sessions answer, and sound is encoded and decoded.

use std::time::{Duration, Instant};

use repartee_engine_api::{Command, Event, Respond, Role, SessionHandle, SpeechEngine};
use repartee_media::opus::{FRAME, OpusDecoder, OpusEncoder, OpusError};

use super::call_load::Load;
use super::pressure;
use super::processors::{ProcessorMeter, own_time};

/// Sessions that answer at once. An engine computes many together for less; from here on the gain is small.
const SESSIONS: usize = 8;
/// Text tokens of an answer.
const TOKENS: u32 = 8;
/// Sound of a question.
const QUESTION: Duration = Duration::from_secs(1);
/// Time from one question to the next without the answer: the question itself, and the pauses of a caller.
const LISTENING: Duration = Duration::from_secs(3);
/// Time after which a slow model is measured no longer.
const LONGEST: Duration = Duration::from_secs(1);
/// Time between two looks at the engine's events.
const POLLING: Duration = Duration::from_millis(1);
/// Rate of the sound that is encoded and decoded, in Hz.
const RATE: u32 = 24_000;
/// Packets that are encoded and decoded.
const PACKETS: u32 = 25;
/// Share of a call in which sound is sent.
const SENDING: f64 = 0.4;
/// Work of a call's packets apart from the codec, as a share of the codec's: encryption, sockets, resampling, turn detection.
const AROUND_CODEC: f64 = 0.3;

/// Measures the load of one call of a warmed-up engine; blocks for a second at most. `None` if the engine fails or is in use.
///
/// One session answers alone, then some at once, if there is time for it: of these a call takes less. A measurement that waited
/// for processors is repeated. The least counts: other programs only add to it.
pub fn calibrate(engine: &dyn SpeechEngine) -> Option<Load> {
    let (used, slots) = engine.occupancy();
    let sessions = SESSIONS.min(slots);
    if used > 0 || sessions == 0 || !engine.info().answers {
        return None;
    }
    let end = Instant::now() + LONGEST;
    let alone = answers(engine, 1, end)?;
    let mut load = alone.load();
    let mut expected = alone.took.saturating_mul(sessions as u32) / 2;
    while sessions > 1 && Instant::now() + expected < end {
        let together = answers(engine, sessions, end)?;
        load = load.zip(together.load(), f64::min);
        if !together.waited() {
            break;
        }
        expected = together.took;
    }
    Some(load.zip(transport_load(), |computed, transport| computed + transport))
}

/// Measurement of sessions that answered.
#[derive(Debug, Clone, Copy)]
struct Answers {
    took: Duration,
    ticks: Duration,
    processors: Duration,
    /// Time that their callers would have taken for it.
    talked: Duration,
}

impl Answers {
    /// Load of a call.
    fn load(self) -> Load {
        let share = |time: Duration| time.as_secs_f64() / self.talked.as_secs_f64();
        // On a busy machine a tick waits for a processor too.
        let ticks = share(self.ticks.min(self.processors));
        pressure::load(ticks, share(self.processors) / ProcessorMeter::new().fillable())
    }

    /// True if ticks waited for a processor.
    fn waited(self) -> bool {
        self.ticks > self.processors
    }
}

/// Lets sessions answer a question each, until `end` at most. Of a model that takes longer, only complete answers count, or one
/// if there are none.
#[expect(clippy::disallowed_methods, reason = "events are polled on a thread that may block, for a second at most")]
fn answers(engine: &dyn SpeechEngine, sessions: usize, end: Instant) -> Option<Answers> {
    let (begin, before, processors) = (Instant::now(), engine.load().ticking(), own_time());
    let sessions: Vec<SessionHandle> = (0..sessions).map_while(|_| engine.open().ok()).collect();
    for session in &sessions {
        for command in question(engine) {
            session.submit(command).ok()?;
        }
    }
    let (mut samples, mut complete) = (0, 0);
    'sessions: for session in &sessions {
        loop {
            match session.try_next_event() {
                Some(Event::Audio { samples: some, .. }) => samples += some.len(),
                Some(Event::SegmentFinished { .. }) => break complete += 1,
                Some(Event::Failed { .. }) => return None,
                Some(_) => {}
                None if Instant::now() >= end => break 'sessions,
                None => std::thread::sleep(POLLING),
            }
        }
    }
    let (processors, load) = (own_time().saturating_sub(processors), engine.load());
    let ticks = load.ticking().saturating_sub(before);
    sessions.into_iter().for_each(SessionHandle::close);
    // The next ones find the engine idle.
    while engine.occupancy().0 > 0 && Instant::now() < end {
        std::thread::sleep(POLLING);
    }
    let sound = Duration::from_secs_f64(samples as f64 / f64::from(engine.info().output_rate.max(1)));
    let talked = LISTENING * complete.max(1) + sound;
    Some(Answers { took: begin.elapsed(), ticks, processors, talked })
}

/// Measures the load of one call without an engine: of its packets.
pub fn transport_load() -> Load {
    // A codec that fails takes no time, and no call.
    let (encoded, decoded) = codec_times().unwrap_or_default();
    let sound = FRAME.as_secs_f64() * f64::from(PACKETS);
    let codec = (SENDING * encoded.as_secs_f64() + decoded.as_secs_f64()) / sound;
    pressure::load(0.0, codec * (1.0 + AROUND_CODEC) / ProcessorMeter::new().fillable())
}

/// Commands of a question and its answer.
fn question(engine: &dyn SpeechEngine) -> Vec<Command> {
    let info = engine.info();
    // A recogniser takes long to find no words in noise.
    let input = if info.audio_input && !info.hears_text {
        let samples = QUESTION.as_secs() as usize * info.input_rate as usize;
        vec![Command::Append(noise(samples)), Command::Commit { item: 0 }]
    } else {
        vec![Command::text(0, Role::User, "one two three")]
    };
    let respond = Respond { max_tokens: Some(TOKENS), audio: info.audio_output, ..Respond::new(0, 1) };
    input.into_iter().chain([Command::Respond(respond)]).collect()
}

/// Times in which some packets are encoded and decoded.
fn codec_times() -> Result<(Duration, Duration), OpusError> {
    let (mut encoder, mut decoder) = (OpusEncoder::new(RATE)?, OpusDecoder::new(RATE)?);
    let frame = noise(encoder.frame_samples());
    let begin = own_time();
    let packets: Result<Vec<_>, _> = (0..PACKETS).map(|_| encoder.encode(&frame)).collect();
    let encoded = own_time();
    for packet in packets? {
        decoder.decode(&packet.payload)?;
    }
    Ok((encoded.saturating_sub(begin), own_time().saturating_sub(encoded)))
}

/// Noise of -30 dB.
fn noise(samples: usize) -> Vec<f32> {
    (0..samples).map(|at| ((at * 7_919 % 1_000) as f32 / 1_000.0 - 0.5) * 0.1).collect()
}
