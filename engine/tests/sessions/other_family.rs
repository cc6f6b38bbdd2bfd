//! Properties of the synthetic family alone: text that streams in, look-ahead, solver steps, enrolled voices, and its
//! own speech in the prompt.

#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use repartee_engine::internals::{
    AudioFrontEnd, AudioRows, BatchEntry, EdgeKind, Encoder, EncodingProgress, Hearing, Model, Outbox, RowKind,
    RunnableRows, Stage, StageItem, WindowInput,
};
use repartee_engine::{EngineConfig, StageConfig, Timeouts};
use repartee_engine_api::{Command, EnrolError, Event, Recording, Respond, Role, SessionError, SessionHandle};
use repartee_engine_testkit::driven::{Driven, Response, Time, drive, submit};
use repartee_engine_testkit::generic::subjects::Other;
use repartee_engine_testkit::generic::{Bed, Subject, assert_same, config, respond};
use repartee_engine_testkit::other_family::{FRAMES, Form, PIECE_FRAMES, RATE, SAMPLES, front_end, model, refiner};

const GIVEN_TEXT: Other = Other(Form::GivenText);
const HEARING: Other = Other(Form::Hearing);

fn stream(session: &SessionHandle, response: u64, text: &str) {
    submit(session, Command::StreamText { response, text: text.to_owned() });
}

fn events(session: &SessionHandle) -> Vec<Event> {
    std::iter::from_fn(|| session.try_next_event()).collect()
}

#[test]
fn speech_begins_before_the_text_ends() {
    let mut bed = Bed::new(&GIVEN_TEXT, &config());
    let session = bed.engine.open();
    submit(&session, Command::Respond(Respond { streamed: true, max_tokens: Some(40), ..respond(0) }));
    stream(&session, 0, "once upon a time there was a small house ");
    bed.engine.settle();
    let before = events(&session);
    assert!(before.iter().any(|event| matches!(event, Event::Audio { .. })), "{before:?}");
    assert!(!before.iter().any(|event| matches!(event, Event::SegmentFinished { .. })), "the text goes on");
    let mut streamed = Response::default();
    before.into_iter().for_each(|event| assert!(!streamed.take(0, event).unwrap()));
    stream(&session, 0, "by the sea");
    submit(&session, Command::EndText { response: 0 });
    bed.engine.settle();
    let ends = events(&session).into_iter().filter(|event| streamed.take(0, event.clone()).unwrap()).count();
    assert_eq!(ends, 1);
    bed.close(session);
    // The same text in one piece.
    let session = bed.engine.open();
    let whole = bed.respond(&session, Respond { max_tokens: Some(40), ..respond(0) });
    assert_same(&streamed, &whole, "text that streams in");
    assert_eq!(whole.usage.output_audio_frames, PIECE_FRAMES as u32 * whole.usage.output_text_tokens);
    assert_eq!(whole.samples.len(), SAMPLES * whole.usage.output_audio_frames as usize);
    bed.close(session);
}

#[test]
fn audio_is_refused_without_audio_input() {
    let mut bed = Bed::new(&GIVEN_TEXT, &config());
    let session = bed.engine.open();
    bed.engine.send(&session, Command::Append(vec![0.0; 100]));
    assert_eq!(events(&session), [Event::Failed { response: None, error: SessionError::NoAudioInput }]);
    bed.close(session);
}

#[test]
fn streamed_text_is_refused_with_audio_input() {
    let mut bed = Bed::new(&HEARING, &config());
    let session = bed.engine.open();
    bed.engine.send(&session, Command::Respond(Respond { streamed: true, ..respond(0) }));
    let refused = events(&session);
    let bad = SessionError::BadValue { field: "streamed", value: String::new(), allowed: String::new() };
    let [Event::Failed { error, .. }] = &refused[..] else { panic!("{refused:?}") };
    assert_eq!(std::mem::discriminant(error), std::mem::discriminant(&bad), "{error}");
    bed.close(session);
}

#[test]
fn a_caller_who_sends_no_text_times_out() {
    let timeouts = Timeouts { stage_s: 9, ..Timeouts::default() };
    let mut bed = Bed::new(&GIVEN_TEXT, &EngineConfig { timeouts, ..config() });
    let session = bed.engine.open();
    submit(&session, Command::Respond(Respond { streamed: true, max_tokens: Some(40), ..respond(0) }));
    bed.engine.settle();
    for _ in 0..3 {
        // Text in time resets the timeout.
        bed.engine.time.pass(Duration::from_secs(8));
        stream(&session, 0, "word ");
        bed.engine.settle();
    }
    assert_eq!(bed.engine.scheduler.sessions(), 1);
    bed.engine.time.pass(Duration::from_secs(9));
    assert_eq!(bed.engine.left_behind(), (0, 0));
    let error = SessionError::TimedOut { what: "the next step of a response", limit_s: 9 };
    assert_eq!(events(&session).pop(), Some(Event::Failed { response: Some(0), error }));
}

/// A stage that panics once, in a step of several slots.
struct Panicking(Box<dyn Stage>, u32);

impl Stage for Panicking {
    fn name(&self) -> &'static str {
        self.0.name()
    }
    fn input_kind(&self) -> EdgeKind {
        self.0.input_kind()
    }
    fn output_kind(&self) -> EdgeKind {
        self.0.output_kind()
    }
    fn accept(&mut self, slot: usize, item: StageItem, out: &mut Outbox) {
        self.0.accept(slot, item, out);
    }
    fn runnable_rows(&self, slot: usize) -> RunnableRows {
        self.0.runnable_rows(slot)
    }
    fn max_rows(&self) -> usize {
        self.0.max_rows()
    }
    fn max_items(&self) -> usize {
        self.0.max_items()
    }
    fn launch(&mut self, work: &[BatchEntry], out: &mut Outbox) {
        self.1 -= u32::from(work.len() > 1 && self.1 > 0);
        assert!(self.1 != 1 || work.len() == 1, "planted");
        self.0.step(work, out);
    }
    fn free(&mut self, slot: usize) {
        self.0.free(slot);
    }
    fn held(&self, slot: usize) -> usize {
        self.0.held(slot)
    }
    fn blocks(&self) -> usize {
        self.0.blocks()
    }
}

#[test]
fn a_replay_reads_the_text_again() {
    let run = |panics: Option<(usize, u32)>| {
        let mut model: Model = GIVEN_TEXT.model(&config());
        if let Some((at, steps)) = panics {
            let stage = model.stages.remove(at);
            model.stages.insert(at, Box::new(Panicking(stage, steps)));
        }
        let mut engine: Driven = drive(model, &config());
        let sessions = [engine.open(), engine.open()];
        for session in &sessions {
            submit(session, Command::Respond(Respond { streamed: true, max_tokens: Some(40), ..respond(0) }));
            stream(session, 0, "once upon a time there was a small house ");
        }
        engine.ticks(12);
        for session in &sessions {
            stream(session, 0, "by the sea");
            submit(session, Command::EndText { response: 0 });
        }
        let responses = [0, 1].map(|at| engine.listen(&sessions[at], 0).unwrap());
        drop(sessions);
        assert_eq!(engine.left_behind(), (0, 0));
        responses
    };
    let plain = run(None);
    // The stage that reads the text, early and late, and a later stage.
    for panics in [(0, 2), (0, 8), (3, 2)] {
        for (replayed, plain) in run(Some(panics)).iter().zip(&plain) {
            assert_same(replayed, plain, "replayed");
        }
    }
}

#[test]
fn a_window_waits_for_the_frames_after_it() {
    let mut model = HEARING.model(&config());
    let mut stage = model.stages.remove(2);
    let frame = |n: u32| StageItem::Codes(vec![n % 32, (7 * n) % 32]);
    let mut out = Vec::new();
    for n in 0..(refiner::WINDOW + refiner::AFTER) as u32 {
        assert_eq!(stage.runnable_rows(0).rows, 0, "{n} frames");
        stage.accept(0, frame(n), &mut out);
    }
    let need = RunnableRows::rows(refiner::EVALUATIONS, RowKind::SolverStep);
    assert_eq!(stage.runnable_rows(0), need);
    // The planner may stop between two evaluations: the last one gives the window.
    for left in (0..refiner::EVALUATIONS).rev() {
        assert!(out.is_empty(), "{out:?}");
        stage.step(&[BatchEntry { slot: 0, rows: 1 }], &mut out);
        assert_eq!(stage.runnable_rows(0).rows, left);
    }
    assert!(matches!(&out[..], [(0, StageItem::Latents { count: refiner::WINDOW, .. })]), "{out:?}");
}

#[test]
fn a_step_may_end_between_two_evaluations() {
    let whole = spoken(&config());
    for rows in 1..refiner::EVALUATIONS {
        let setting = StageConfig { prefill_chunk: Some(rows), ..StageConfig::default() };
        let cut = spoken(&EngineConfig { stages: [("refiner".to_owned(), setting)].into(), ..config() });
        assert_same(&cut, &whole, &format!("{rows} evaluations a step"));
    }
}

/// Runs one spoken response.
fn spoken(config: &EngineConfig) -> Response {
    let mut bed = Bed::new(&HEARING, config);
    let session = bed.engine.open();
    bed.input(&session, 0, 0);
    let response = bed.respond(&session, respond(0));
    bed.close(session);
    response
}

#[test]
fn frames_have_the_codec_s_duration() {
    let response = spoken(&config());
    let codec = model(Form::Hearing, &config()).codec.unwrap();
    assert_eq!(codec.frame(), Duration::from_millis(40));
    assert_eq!(codec.duration(SAMPLES * FRAMES as usize), Duration::from_secs(1));
    assert_eq!(response.samples.len(), response.usage.output_audio_frames as usize * SAMPLES);
    assert_eq!(SAMPLES as u32 * FRAMES, RATE);
}

#[test]
fn own_speech_is_part_of_the_next_prompt() {
    let mut bed = Bed::new(&HEARING, &config());
    // Two sessions with the same words spoken, one of them without audio.
    let mut after = |audio: bool| {
        let session = bed.engine.open();
        bed.input(&session, 0, 0);
        let said = bed.respond(&session, Respond { audio, ..respond(0) });
        bed.input(&session, 1, 1);
        let next = bed.respond(&session, respond(1));
        bed.close(session);
        (said, next)
    };
    let ((said, next), (silent, after_silent)) = (after(true), after(false));
    assert_eq!(said.text, silent.text);
    let prompt = |response: &Response| response.usage.input_text_tokens;
    assert_eq!(prompt(&next) - prompt(&after_silent), said.usage.output_audio_frames);
    assert_ne!(next.samples, after_silent.samples, "the model has heard itself");
}

#[test]
fn a_recorded_voice_is_usable_at_once() {
    let mut bed = Bed::new(&HEARING, &config());
    let session = bed.engine.open();
    let ask = |number, voice: &str| Respond { voice: Some(voice.to_owned()), ..respond(number) };
    bed.input(&session, 0, 0);
    let unknown = |bed: &mut Bed<Other>| {
        bed.engine.send(&session, Command::Respond(ask(0, "mine")));
        let refused = events(&session);
        assert!(
            matches!(&refused[..], [Event::Failed { error: SessionError::UnknownVoice { .. }, .. }]),
            "{refused:?}"
        );
    };
    unknown(&mut bed);

    let samples = HEARING.audio(1).unwrap();
    let recording = |samples: &[f32]| Recording { samples: samples.to_vec(), text: "what I said".to_owned() };
    // From the caller's thread, as in a real engine.
    let voices = bed.engine.scheduler.voices();
    let short = voices.enrol("mine", &recording(&samples[..100]));
    assert!(matches!(short, Err(EnrolError::Recording { .. })), "{short:?}");
    voices.enrol("mine", &recording(&samples)).unwrap();
    let again = voices.enrol("mine", &recording(&samples));
    assert!(matches!(again, Err(EnrolError::Taken { .. })), "{again:?}");
    let mut say = |voice| {
        let response = bed.respond(&session, ask(1, voice));
        submit(&session, Command::Delete { item: 1001 });
        response
    };
    let (recorded, own) = (say("mine"), say("low"));
    assert_eq!(recorded.text, own.text, "a voice changes the sound alone");
    assert_ne!(recorded.samples, own.samples);
    assert_same(&say("mine"), &recorded, "the same voice");
    assert!(voices.remove_voice("mine") && !voices.remove_voice("mine"));
    unknown(&mut bed);
    bed.close(session);
}

#[test]
fn an_engine_of_a_reading_family_answers_text() {
    // Plain text, nothing that streams in, as in the engine's warm-up.
    let mut bed = Bed::new(&GIVEN_TEXT, &config());
    let session = bed.engine.open();
    submit(&session, Command::text(0, Role::User, "one two three"));
    let response = bed.engine.respond(&session, respond(0)).unwrap();
    assert!(!response.samples.is_empty());
    bed.close(session);
}

/// An encoder that records the level of each window, batch by batch.
struct Noting {
    encoder: Box<dyn Encoder>,
    batches: Arc<Mutex<Vec<Vec<i32>>>>,
}

impl Encoder for Noting {
    fn encode(&mut self, windows: &[WindowInput<'_>]) -> Vec<AudioRows> {
        // The first number of a frame is ten times its level: in hundredths.
        let levels = windows.iter().map(|window| (window.data[0] * 10.0).round() as i32).collect();
        self.batches.lock().unwrap().push(levels);
        self.encoder.encode(windows)
    }
}

/// An encoder whose windows take many units of work, 12 ms each on the test's clock.
struct LongWindows {
    encoder: Box<dyn Encoder>,
    time: Arc<OnceLock<Time>>,
    /// Units of each tick, the current one last.
    units: Arc<Mutex<Vec<usize>>>,
}

/// Units of a window: half a second of work.
const UNITS: usize = 40;

impl Encoder for LongWindows {
    fn encode(&mut self, windows: &[WindowInput<'_>]) -> Vec<AudioRows> {
        self.encoder.encode(windows)
    }

    fn units(&self, _: &WindowInput<'_>) -> usize {
        UNITS
    }

    fn advance(
        &mut self,
        window: &WindowInput<'_>,
        progress: &mut EncodingProgress,
        units: usize,
    ) -> Option<AudioRows> {
        self.time.get().unwrap().pass(Duration::from_millis(12) * units as u32);
        *self.units.lock().unwrap().last_mut().unwrap() += units;
        progress.units += units;
        (progress.units == UNITS).then(|| self.encode(std::slice::from_ref(window)).remove(0))
    }
}

#[test]
fn long_windows_take_little_of_a_tick() {
    let (time, units) = (Arc::<OnceLock<Time>>::default(), Arc::new(Mutex::new(vec![0])));
    let mut subject = model(Form::Hearing, &config());
    let Some(Hearing::Rows(ears)) = subject.hearing.take() else { panic!("no audio input") };
    let encoder = Box::new(LongWindows { encoder: ears.encoder, time: time.clone(), units: units.clone() });
    subject.hearing = Some(Hearing::Rows(AudioFrontEnd { encoder, ..ears }));
    let mut engine = drive(subject, &config());
    assert!(time.set(engine.time.clone()).is_ok());
    let (upload, neighbour) = (engine.open(), engine.open());
    submit(&upload, Command::Append(vec![0.2; 3 * front_end::RATE as usize]));
    let windows = 3 * front_end::RATE as usize / (front_end::FRAME * front_end::WINDOW);
    // The neighbour is answered again and again.
    let mut answers = 0_u64;
    let ask = |number: u64| {
        submit(&neighbour, Command::text(2 * number, Role::User, "once upon a time"));
        submit(&neighbour, Command::Respond(Respond { item: 2 * number + 1, ..respond(number) }));
    };
    ask(0);
    while units.lock().unwrap().iter().sum::<usize>() < windows * UNITS {
        units.lock().unwrap().push(0);
        assert!(units.lock().unwrap().len() < 100_000, "the upload is heard");
        engine.ticks(1);
        engine.time.pass(Duration::from_millis(1));
        for event in events(&neighbour) {
            match event {
                Event::SegmentFinished { .. } => {
                    answers += 1;
                    ask(answers);
                }
                Event::Failed { error, .. } => panic!("{error}"),
                _ => {}
            }
        }
    }
    // Three are 36 ms.
    let most = units.lock().unwrap().iter().copied().max().unwrap();
    assert!(most <= 3 && answers > 3, "{most} units in a tick, {answers} answers");
}

#[test]
fn audio_faster_than_time_is_encoded_last() {
    const HASTY: i32 = 50;
    const LIVE: i32 = 10;
    let batches = Arc::<Mutex<Vec<Vec<i32>>>>::default();
    let mut subject = model(Form::Hearing, &config());
    let Some(Hearing::Rows(ears)) = subject.hearing.take() else { panic!("no audio input") };
    let encoder = Box::new(Noting { encoder: ears.encoder, batches: batches.clone() });
    subject.hearing = Some(Hearing::Rows(AudioFrontEnd { encoder, ..ears }));
    let mut engine = drive(subject, &config());
    let (hasty, live) = (engine.open(), engine.open());
    let audio = |level: i32| Command::Append(vec![level as f32 / 100.0; front_end::RATE as usize]);
    // The planner learns what a window takes.
    let before = engine.open();
    submit(&before, audio(LIVE));
    engine.settle();
    batches.lock().unwrap().clear();
    // Five seconds at once; each tick takes one second of them.
    (0..5).for_each(|_| submit(&hasty, audio(HASTY)));
    engine.ticks(1);
    assert!(batches.lock().unwrap().concat().iter().all(|level| *level == HASTY), "alone nobody waits");
    submit(&live, audio(LIVE));
    engine.ticks(1);
    let mixed = batches.lock().unwrap().last().unwrap().clone();
    assert!(mixed.contains(&LIVE) && mixed.contains(&HASTY), "{mixed:?}");
    assert!(mixed.is_sorted_by(|before, after| before <= after), "the live one comes first: {mixed:?}");
    // All of it is encoded in the end, and later audio in time has normal priority.
    engine.settle();
    engine.time.pass(Duration::from_secs(2));
    submit(&hasty, audio(HASTY));
    submit(&live, audio(LIVE));
    engine.ticks(1);
    let mixed = batches.lock().unwrap().last().unwrap().clone();
    assert_eq!(mixed[0], HASTY, "by slot: {mixed:?}");
    engine.settle();
    let (samples, windows) = (front_end::RATE as usize, batches.lock().unwrap().concat().len());
    let expected =
        6 * samples / (front_end::FRAME * front_end::WINDOW) + 2 * samples / (front_end::FRAME * front_end::WINDOW);
    assert_eq!(windows, expected);
}
