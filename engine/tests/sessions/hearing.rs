//! A recogniser before a language model: text that grows while the caller speaks, transcripts, speculation, faults, and
//! a recogniser alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use repartee_engine::internals::{
    BatchEntry, Hearing, HearingOptions, HypothesisOutbox, Model, Recogniser, RunnableRows,
};
use repartee_engine_api::{
    Command, Event, FinishReason, InsertAt, Listen, MessageContent, Respond, ResponseInput, Role, SessionError,
    SessionHandle, SlicePolicy, Transcribe,
};
use repartee_engine_testkit::driven::{Driven, drive, submit};
use repartee_engine_testkit::generic::{Bed, Subject as _, assert_same, config, respond};
use repartee_engine_testkit::text_family::{HearingCascade, TextOnly, recogniser_alone};
use repartee_engine_testkit::tone_recogniser::{WINDOW, words};

const HEARS: HearingCascade = HearingCascade { audio_output: false };

fn events(session: &SessionHandle) -> Vec<Event> {
    std::iter::from_fn(|| session.try_next_event()).collect()
}

fn transcribe(response: u64, item: u64) -> Command {
    Command::Transcribe(Transcribe::new(response, item))
}

fn listen(item: u64) -> Command {
    Command::Listen(Listen::new(item))
}

fn written(number: u64) -> Respond {
    Respond { audio: false, ..respond(number) }
}

/// Text and stable part of each report about the open audio `item`.
fn reports(events: &[Event], item: u64) -> Vec<(String, usize)> {
    let report = |event: &Event| match event {
        Event::InputText { response: None, item: about, text, stable } if *about == item => {
            Some((text.clone(), *stable))
        }
        _ => None,
    };
    events.iter().filter_map(report).collect()
}

/// Checks that text that was stable stays, in every report and in the end.
fn assert_grows(reports: &[(String, usize)], whole: &str) {
    let mut stays = "";
    for (text, stable) in reports {
        assert!(text.starts_with(stays) && *stable >= stays.len(), "{reports:?}");
        stays = &text[..*stable];
    }
    assert!(whole.starts_with(stays), "{whole:?} after {reports:?}");
}

#[test]
fn a_spoken_turn_equals_its_text() {
    let text_only = TextOnly::default();
    let (mut heard, mut read) = (Bed::new(&HEARS, &config()), Bed::new(&text_only, &config()));
    let (caller, writer) = (heard.engine.open(), read.engine.open());
    for turn in 0..2 {
        heard.input(&caller, turn, turn as u64);
        submit(&writer, Command::text(turn as u64, Role::User, words(&HEARS.audio(turn).unwrap())));
        let (spoken, typed) =
            (heard.respond(&caller, written(turn as u64)), read.respond(&writer, written(turn as u64)));
        assert_same(&spoken, &typed, "spoken and typed");
    }
    heard.close(caller);
    read.close(writer);
}

#[test]
fn each_heard_slice_equals_its_text() {
    let text_only = TextOnly::default();
    let (mut heard, mut read) = (Bed::new(&HEARS, &config()), Bed::new(&text_only, &config()));
    let (caller, writer) = (heard.engine.open(), read.engine.open());
    let audio = HEARS.audio(2).unwrap();
    let slice = 2 * WINDOW + 300;
    submit(&caller, Command::SetSlicePolicy(SlicePolicy::EachSlice { samples: slice, respond: Box::new(written(0)) }));
    for piece in audio.chunks(700) {
        submit(&caller, Command::Append(piece.to_vec()));
    }
    submit(&caller, Command::Finish);
    for (slice, number) in audio.chunks(slice).zip(0..) {
        let spoken = heard.engine.listen(&caller, number).unwrap();
        submit(&writer, Command::text(2 * number, Role::User, words(slice)));
        let typed = read.respond(&writer, Respond { item: 1001 + 2 * number, ..written(number) });
        assert_same(&spoken, &typed, "spoken and typed");
    }
    heard.close(caller);
    read.close(writer);
}

#[test]
fn text_grows_while_the_caller_speaks() {
    let mut bed = Bed::new(&HEARS, &config());
    let session = bed.engine.open();
    let audio = HEARS.audio(2).unwrap();
    let mut all = Vec::new();
    submit(&session, listen(7));
    for piece in audio.chunks(700) {
        bed.engine.send(&session, Command::Append(piece.to_vec()));
        all.extend(reports(&events(&session), 7));
    }
    let whole = words(&audio);
    assert_grows(&all, &whole);
    assert!(all.len() >= audio.len() / WINDOW, "{all:?}");
    assert!(all.iter().any(|(text, _)| !whole.starts_with(&**text)), "no guess was wrong: {all:?}");
    // The rest comes with the commit, and nobody listens to the next audio.
    submit(&session, Command::Commit { item: 7 });
    submit(&session, transcribe(1, 7));
    submit(&session, Command::Append(audio.clone()));
    assert_eq!(bed.engine.listen(&session, 1).unwrap().text, whole);
    bed.engine.settle();
    assert_eq!(events(&session), []);
    bed.close(session);
}

#[test]
fn stable_words_are_prefilled() {
    let mut bed = Bed::new(&HEARS, &config());
    let mut cached = |settles: bool| {
        let session = bed.engine.open();
        for piece in HEARS.audio(2).unwrap().chunks(2_000) {
            submit(&session, Command::Append(piece.to_vec()));
            if settles {
                bed.engine.settle();
            }
        }
        submit(&session, Command::Commit { item: 0 });
        let response = bed.respond(&session, written(0));
        bed.close(session);
        (response.usage.cached_tokens, response.usage.input_text_tokens)
    };
    let (at_once, prompt) = cached(false);
    let (growing, same) = cached(true);
    assert_eq!(prompt, same);
    assert_eq!(at_once, 0, "nothing of it was known before the request");
    // All but the last two words and the marks of the prompt.
    assert!(growing * 2 > prompt, "{growing} of {prompt} positions");
}

#[test]
fn transcripts_follow_and_repeat() {
    let mut bed = Bed::new(&HEARS, &config());
    let session = bed.engine.open();
    let audio = HEARS.audio(1).unwrap();
    let content = MessageContent::Audio(audio.clone());
    submit(&session, Command::Insert { item: 0, place: InsertAt::End, content });
    submit(&session, transcribe(1, 0));
    bed.engine.ticks(4);
    let early = events(&session);
    assert!(early.iter().all(|event| matches!(event, Event::InputText { response: Some(1), item: 0, .. })));
    assert!(!early.is_empty(), "it follows the text");
    submit(&session, transcribe(2, 0));
    bed.engine.ticks(1);
    let refused = SessionError::TooManyResponses { limit: 1 };
    assert!(events(&session).contains(&Event::Failed { response: Some(2), error: refused }), "one at a time");
    assert_eq!(bed.engine.listen(&session, 1).unwrap().text, words(&audio));
    let again = |bed: &mut Bed<'_, HearingCascade>, number| {
        bed.engine.send(&session, transcribe(number, 0));
        events(&session)
    };
    let text = words(&audio);
    let stable = text.len();
    let told = again(&mut bed, 3);
    assert_eq!(told[0], Event::InputText { response: Some(3), item: 0, text, stable });
    assert!(matches!(told[1..], [Event::SegmentFinished { response: 3, reason: FinishReason::Stop, .. }]), "{told:?}");
    submit(&session, Command::text(5, Role::User, "words"));
    for (item, number) in [(5, 4), (6, 5)] {
        submit(&session, transcribe(number, item));
    }
    bed.engine.settle();
    let refused = events(&session);
    assert!(matches!(
        &refused[0],
        Event::Failed { response: Some(4), error: SessionError::BadValue { field: "item", .. } }
    ));
    assert_eq!(refused[1], Event::Failed { response: Some(5), error: SessionError::UnknownItem(6) });
    // A deleted item takes its transcript along.
    let content = MessageContent::Audio(audio);
    submit(&session, Command::Insert { item: 8, place: InsertAt::End, content });
    submit(&session, transcribe(6, 8));
    bed.engine.ticks(3);
    bed.engine.send(&session, Command::Delete { item: 8 });
    let cancelled = events(&session).pop();
    let reason = FinishReason::Cancelled;
    assert!(
        matches!(cancelled, Some(Event::SegmentFinished { response: 6, reason: r, .. }) if r == reason),
        "{cancelled:?}"
    );
    assert_eq!(bed.engine.scheduler.held(), held_without_hearing(&mut bed, &session));
    bed.close(session);
}

/// Resources that a session holds whose audio is all heard.
fn held_without_hearing(bed: &mut Bed<'_, HearingCascade>, session: &SessionHandle) -> usize {
    bed.engine.send(session, Command::Clear);
    bed.engine.scheduler.held()
}

#[test]
fn a_speculation_withholds_the_end() {
    let audio = HEARS.audio(2).unwrap();
    for (cut, commits) in [(3_000, false), (5_000, true), (6_400, false), (8_000, true)] {
        let mut bed = Bed::new(&HEARS, &config());
        let session = bed.engine.open();
        submit(&session, listen(1));
        bed.engine.send(&session, Command::Append(audio[..cut].to_vec()));
        let mut all = reports(&events(&session), 1);
        submit(&session, Command::BeginSpeculation { item: 1, respond: written(2) });
        submit(&session, transcribe(3, 1));
        bed.engine.settle();
        let during = events(&session);
        all.extend(reports(&during, 1));
        assert!(during.iter().any(|event| matches!(event, Event::SegmentFinished { response: 2, .. })), "it answers");
        assert!(!during.iter().any(|event| matches!(event, Event::SegmentFinished { response: 3, .. })), "too early");
        submit(&session, Command::Append(audio[cut..].to_vec()));
        let end = if commits {
            Command::CommitSpeculation { response: 2 }
        } else {
            Command::AbortSpeculation { response: 2 }
        };
        bed.engine.send(&session, end);
        let after = events(&session);
        let reason = after.iter().find_map(|event| match event {
            Event::SegmentFinished { response: 3, reason, .. } => Some(*reason),
            _ => None,
        });
        let heard = if commits { &audio[..cut] } else { &audio[..] };
        assert_eq!(reason, Some(if commits { FinishReason::Stop } else { FinishReason::Cancelled }));
        if !commits {
            all.extend(reports(&after, 1));
            bed.engine.send(&session, Command::Commit { item: 1 });
        }
        assert_grows(&all, &words(heard));
        let now = events(&session);
        assert_eq!(now, [], "nobody asked");
        submit(&session, transcribe(4, 1));
        assert_eq!(bed.engine.listen(&session, 4).unwrap().text, words(heard));
        bed.close(session);
    }
}

#[test]
fn responses_own_audio_is_heard() {
    let mut bed = Bed::new(&HEARS, &config());
    let session = bed.engine.open();
    let audio = HEARS.audio(0).unwrap();
    let own = |content| Respond { input: Some(vec![ResponseInput::Content(content)]), out_of_band: true, ..written(3) };
    let spoken = bed.respond(&session, own(MessageContent::Audio(audio.clone())));
    let typed = bed.respond(&session, own(MessageContent::Text { role: Role::User, text: words(&audio) }));
    assert_same(&spoken, &typed, "spoken and typed");
    // A cancelled one leaves the recogniser to the next audio.
    bed.request(&session, own(MessageContent::Audio(vec![0.1; 16_000 * 60])));
    bed.engine.ticks(2);
    submit(&session, Command::Cancel { response: 3 });
    submit(&session, Command::Append(audio));
    submit(&session, Command::Commit { item: 9 });
    bed.engine.ticks(60);
    submit(&session, transcribe(5, 9));
    bed.engine.ticks(1);
    let done = events(&session).pop();
    assert!(matches!(done, Some(Event::SegmentFinished { response: 5, .. })), "{done:?}");
    bed.close(session);
}

#[test]
fn complete_audio_passes_the_open_one() {
    let mut bed = Bed::new(&HEARS, &config());
    let sessions = [bed.engine.open(), bed.engine.open(), bed.engine.open(), bed.engine.open()];
    let audio = HEARS.audio(0).unwrap();
    for session in &sessions {
        submit(session, Command::Append(audio.clone()));
        for item in 0..2 {
            let content = MessageContent::Audio(audio.clone());
            submit(session, Command::Insert { item, place: InsertAt::End, content });
        }
    }
    // More of it than the recogniser has slots for, and more sessions.
    bed.engine.settle();
    for session in &sessions {
        for item in 0..2 {
            submit(session, transcribe(item, item));
            assert_eq!(bed.engine.listen(session, item).unwrap().text, words(&audio));
        }
    }
    drop(sessions);
    assert_eq!(bed.engine.left_behind(), (0, 0));
}

#[test]
fn a_recogniser_alone_transcribes() {
    let model = recogniser_alone(&config());
    assert!(model.stages.is_empty() && model.check().is_ok());
    let mut engine = drive(model, &config());
    let session = engine.open();
    let audio = HEARS.audio(0).unwrap();
    for item in 0..300 {
        submit(&session, Command::Append(audio[..4_000].to_vec()));
        submit(&session, Command::Commit { item });
        submit(&session, transcribe(item, item));
        assert_eq!(engine.listen(&session, item).unwrap().text, words(&audio[..4_000]));
    }
    engine.send(&session, transcribe(300, 0));
    assert_eq!(
        events(&session),
        [Event::Failed { response: Some(300), error: SessionError::UnknownItem(0) }],
        "evicted"
    );
    engine.send(&session, Command::Respond(written(301)));
    engine.send(&session, Command::text(302, Role::User, "words"));
    submit(&session, Command::Append(audio));
    engine.send(&session, Command::BeginSpeculation { item: 303, respond: written(304) });
    let error = SessionError::NoResponses;
    let refused = [Some(301), None, Some(304)].map(|response| Event::Failed { response, error: error.clone() });
    assert_eq!(events(&session), refused);
    drop(session);
    assert_eq!(engine.left_behind(), (0, 0));
}

/// A fault of a recogniser.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// It panics in a step with this slot.
    Panic(usize),
    /// Its stable text changes in this slot.
    TakesBack(usize),
}

/// Counts of a recogniser.
#[derive(Default)]
struct Counts {
    steps: AtomicUsize,
    /// Recognitions of growing sound, and of complete sound.
    opened: [AtomicUsize; 2],
}

/// A recogniser with a fault, or without one. It counts.
struct Faulty {
    inner: Box<dyn Recogniser>,
    fault: Fault,
    counts: Arc<Counts>,
}

impl Recogniser for Faulty {
    fn name(&self) -> &'static str {
        self.inner.name()
    }
    fn rate(&self) -> u32 {
        self.inner.rate()
    }
    fn slots(&self) -> usize {
        self.inner.slots()
    }
    fn open(&mut self, slot: usize, options: &HearingOptions) {
        self.counts.opened[usize::from(options.complete)].fetch_add(1, Ordering::Relaxed);
        self.inner.open(slot, options);
    }
    fn push(&mut self, slot: usize, samples: &[f32]) -> usize {
        self.inner.push(slot, samples)
    }
    fn end(&mut self, slot: usize) {
        self.inner.end(slot);
    }
    fn resume(&mut self, slot: usize) {
        self.inner.resume(slot);
    }
    fn free(&mut self, slot: usize) {
        self.inner.free(slot);
    }
    fn runnable_rows(&self, slot: usize) -> RunnableRows {
        self.inner.runnable_rows(slot)
    }
    fn max_rows(&self) -> usize {
        self.inner.max_rows()
    }
    fn launch(&mut self, work: &[BatchEntry]) {
        self.counts.steps.fetch_add(1, Ordering::Relaxed);
        self.inner.launch(work);
        assert!(!work.iter().any(|entry| self.fault == Fault::Panic(entry.slot)), "planted");
    }
    fn collect(&mut self, out: &mut HypothesisOutbox) {
        self.inner.collect(out);
        for (slot, hypothesis) in out {
            if let (true, Ok(hypothesis)) = (self.fault == Fault::TakesBack(*slot), hypothesis)
                && hypothesis.is_final
            {
                hypothesis.text = format!("x{}", hypothesis.text);
            }
        }
    }
    fn held(&self) -> usize {
        self.inner.held()
    }
}

/// An engine whose recogniser has a fault, and the recogniser's counts.
fn faulty(fault: Fault) -> (Driven, Arc<Counts>) {
    let mut model: Model = HEARS.model(&config());
    let Some(Hearing::Text(inner)) = model.hearing.take() else { panic!("no recogniser") };
    let counts = Arc::<Counts>::default();
    model.hearing = Some(Hearing::Text(Box::new(Faulty { inner, fault, counts: counts.clone() })));
    (drive(model, &config()), counts)
}

#[test]
fn a_fault_of_the_recogniser_ends_one_session() {
    let audio = HEARS.audio(1).unwrap();
    for fault in [Fault::Panic(1), Fault::TakesBack(1)] {
        let (mut engine, counts) = faulty(fault);
        // Slots are given out from the first on.
        let sessions = [engine.open(), engine.open(), engine.open()];
        for session in &sessions {
            submit(session, Command::Append(audio.clone()));
            submit(session, Command::Commit { item: 0 });
        }
        engine.settle();
        assert!(counts.steps.load(Ordering::Relaxed) > 0);
        let failed = events(&sessions[1]).pop();
        let named = |stage: &str| stage == "recogniser";
        assert!(
            matches!(failed, Some(Event::Failed { error: SessionError::Internal { stage, .. }, .. }) if named(stage)),
            "{failed:?}"
        );
        assert_eq!(sessions[1].next_event_blocking(), None, "it goes on");
        for session in [&sessions[0], &sessions[2]] {
            submit(session, transcribe(1, 0));
            assert_eq!(engine.listen(session, 1).unwrap().text, words(&audio), "a neighbour's fault reached it");
        }
        drop(sessions);
        assert_eq!(engine.left_behind(), (0, 0));
    }
}

#[test]
fn inserted_audio_is_heard_as_complete_sound() {
    let (mut engine, counts) = faulty(Fault::None);
    let session = engine.open();
    let audio = HEARS.audio(0).unwrap();
    submit(&session, Command::Append(audio.clone()));
    submit(&session, Command::Commit { item: 0 });
    let content = MessageContent::Audio(audio.clone());
    submit(&session, Command::Insert { item: 1, place: InsertAt::End, content });
    engine.settle();
    assert_eq!(counts.opened.each_ref().map(|count| count.load(Ordering::Relaxed)), [1, 1]);
}

#[test]
fn a_backlog_holds_commands_back() {
    let mut bed = Bed::new(&HEARS, &config());
    let (hasty, live) = (bed.engine.open(), bed.engine.open());
    for _ in 0..60 {
        submit(&hasty, Command::Append(vec![0.1; 16_000]));
    }
    submit(&hasty, Command::Commit { item: 0 });
    bed.engine.ticks(40);
    // A live caller does not wait for the backlog.
    let audio = HEARS.audio(0).unwrap();
    submit(&live, Command::Append(audio.clone()));
    submit(&live, Command::Commit { item: 0 });
    submit(&live, transcribe(1, 0));
    bed.engine.ticks(40);
    let text = events(&live).into_iter().rev().find_map(|event| match event {
        Event::InputText { text, .. } => Some(text),
        _ => None,
    });
    assert_eq!(text, Some(words(&audio)));
    submit(&hasty, transcribe(1, 0));
    let whole = bed.engine.listen(&hasty, 1).unwrap().text;
    assert_eq!(whole, words(&vec![0.1; 60 * 16_000]));
    drop(live);
    bed.close(hasty);
}
