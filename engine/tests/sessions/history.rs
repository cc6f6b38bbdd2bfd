//! Every edited history equals a fresh session with the resulting history.

#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

use repartee_engine::EngineConfig;
use repartee_engine_api::{
    Command, Event, FinishReason, InsertAt, MessageContent, Respond, ResponseInput, Role, Sampling, SessionError,
    SessionHandle, SlicePolicy, Tenant, Transcribe,
};

use repartee_engine_testkit::driven::{Driven, Response, serve, submit};
use repartee_engine_testkit::{Expected, greedy_copy};

struct Bed {
    engine: Driven,
    expected: Expected,
    _folder: tempfile::TempDir,
}

fn config() -> EngineConfig {
    EngineConfig { sessions: 6, out_of_band: 3, session_tokens: 2048, ..EngineConfig::default() }
}

fn bed() -> Bed {
    bed_of(config())
}

fn bed_of(config: EngineConfig) -> Bed {
    let expected = Expected::load("dense");
    let folder = greedy_copy("dense", &expected);
    Bed { engine: serve(folder.path(), &config), expected, _folder: folder }
}

impl Bed {
    fn audio(&self, turn: u64) -> Vec<f32> {
        self.expected.tensor(&format!("turn{turn}.audio")).0
    }

    /// Opens a session with turn 0 as item 0 and its response as item 1000.
    fn after_a_turn(&mut self) -> SessionHandle {
        let session = self.engine.open();
        self.speak(&session, 0, 0);
        self.engine.respond(&session, respond(0)).unwrap();
        session
    }

    fn speak(&mut self, session: &SessionHandle, turn: u64, item: u64) {
        submit(session, Command::Append(self.audio(turn)));
        self.engine.send(session, Command::Commit { item });
    }

    fn insert_audio(&self, turn: u64, item: u64, place: InsertAt) -> Command {
        Command::Insert { item, place, content: MessageContent::Audio(self.audio(turn)) }
    }
}

fn respond(number: u64) -> Respond {
    Respond { max_tokens: Some(12), ..Respond::new(number, 1000 + number) }
}

fn text(item: u64, place: InsertAt, role: Role, text: &str) -> Command {
    Command::Insert { item, place, content: MessageContent::Text { role, text: text.to_owned() } }
}

#[track_caller]
fn assert_same(a: &Response, b: &Response) {
    assert_eq!(a.text, b.text);
    assert!(a.output() == b.output(), "the same text, but other samples or another prompt");
}

/// Steps of the talker so far.
fn talker_steps(bed: &Bed) -> u64 {
    bed.engine.scheduler.times().iter().find(|(stage, ..)| *stage == "talker").map(|(_, _, steps)| *steps).unwrap()
}

#[test]
fn text_alone_leaves_the_talker_idle() {
    let mut bed = bed();
    let (written, spoken) = (bed.engine.open(), bed.engine.open());
    let ask = || text(0, InsertAt::End, Role::User, "what is three plus four");
    submit(&written, ask());
    let first = bed.engine.respond(&written, Respond { audio: false, ..respond(0) }).unwrap();
    // Later input is not prefilled for speech either.
    bed.engine.send(&written, text(1, InsertAt::End, Role::User, "and two plus one"));
    bed.engine.time.pass(std::time::Duration::from_secs(5));
    bed.engine.settle();
    assert_eq!(talker_steps(&bed), 0);
    submit(&spoken, ask());
    let said = bed.engine.respond(&spoken, respond(0)).unwrap();
    assert_eq!(first.text, said.text);
    bed.engine.send(&spoken, text(1, InsertAt::End, Role::User, "and two plus one"));
    // A spoken response reads all that was left.
    let [ours, theirs] = [&written, &spoken].map(|session| bed.engine.respond(session, respond(1)).unwrap());
    assert_same(&ours, &theirs);
}

#[test]
fn computed_rows_are_counted_by_tenant() {
    let mut bed = bed();
    let [one, other] = [1, 2].map(|id| Tenant { id, ..Tenant::default() });
    let (ours, theirs) = (bed.engine.open_for(&one), bed.engine.open_for(&other));
    submit(&ours, text(0, InsertAt::End, Role::User, "what is three plus four"));
    let answer = bed.engine.respond(&ours, Respond { audio: false, ..respond(0) }).unwrap();
    let prompt = u64::from(answer.usage.input_text_tokens);
    // The first token comes from the prompt; after the last one a stop may have been sampled.
    let decoded = u64::from(answer.usage.output_text_tokens);
    assert_eq!(one.work.prefill(), prompt);
    assert!((decoded - 1..=decoded).contains(&one.work.decode()), "{} of {decoded}", one.work.decode());
    assert_eq!((other.work.prefill(), other.work.decode()), (0, 0));
    drop(theirs);
}

#[test]
fn inserted_audio_equals_spoken_audio() {
    let mut bed = bed();
    let (spoken, inserted) = (bed.engine.open(), bed.engine.open());
    bed.speak(&spoken, 0, 0);
    let insert = bed.insert_audio(0, 0, InsertAt::End);
    bed.engine.send(&inserted, insert);
    let (a, b) = (bed.engine.respond(&spoken, respond(0)).unwrap(), bed.engine.respond(&inserted, respond(0)).unwrap());
    assert_same(&a, &b);
}

#[test]
fn an_unknown_neighbour_is_refused() {
    let mut bed = bed();
    let session = bed.engine.open();
    bed.engine.send(&session, text(7, InsertAt::After(99), Role::User, "so"));
    let refused = Event::Failed { response: None, error: SessionError::UnknownItem(99) };
    assert_eq!(session.try_next_event(), Some(refused));
}

#[test]
fn new_instructions_equal_fresh_history() {
    let mut bed = bed();
    let session = bed.after_a_turn();
    submit(&session, Command::Delete { item: 1000 });
    submit(&session, Command::SetInstructions("be short".to_owned()));
    let edited = bed.engine.respond(&session, respond(1)).unwrap();
    let fresh = bed.engine.open();
    submit(&fresh, Command::SetInstructions("be short".to_owned()));
    bed.speak(&fresh, 0, 0);
    assert_same(&edited, &bed.engine.respond(&fresh, respond(1)).unwrap());
    // A response's own instructions apply to it alone.
    let own = Respond { instructions: Some(String::new()), ..respond(2) };
    submit(&session, Command::Delete { item: 1001 });
    let without = bed.engine.respond(&session, own).unwrap();
    let plain = bed.engine.open();
    bed.speak(&plain, 0, 0);
    assert_same(&without, &bed.engine.respond(&plain, respond(2)).unwrap());
    submit(&session, Command::Delete { item: 1002 });
    assert_same(&bed.engine.respond(&session, respond(1)).unwrap(), &edited);
}

#[test]
fn commit_equals_fresh_commit() {
    let mut bed = bed();
    let (early, late) = (bed.engine.open(), bed.engine.open());
    submit(&early, Command::Append(bed.audio(0)));
    submit(&early, Command::BeginSpeculation { item: 0, respond: respond(0) });
    let next = bed.audio(1);
    submit(&early, Command::Append(next[..2000].to_vec()));
    let first = bed.engine.listen(&early, 0).unwrap();
    submit(&early, Command::CommitSpeculation { response: 0 });
    submit(&early, Command::Append(next[2000..].to_vec()));
    submit(&early, Command::Commit { item: 1 });

    bed.speak(&late, 0, 0);
    assert_same(&first, &bed.engine.respond(&late, respond(0)).unwrap());
    bed.speak(&late, 1, 1);
    let (a, b) = (bed.engine.respond(&early, respond(1)).unwrap(), bed.engine.respond(&late, respond(1)).unwrap());
    assert_same(&a, &b);
}

#[test]
fn audio_commit_aborts_the_speculation() {
    let mut bed = bed();
    let (session, fresh) = (bed.engine.open(), bed.engine.open());
    let audio = bed.audio(0);
    submit(&session, Command::Append(audio[..3000].to_vec()));
    bed.engine.send(&session, Command::BeginSpeculation { item: 0, respond: respond(0) });
    submit(&session, Command::Append(audio[3000..].to_vec()));
    bed.engine.send(&session, Command::Commit { item: 0 });
    while session.try_next_event().is_some() {}
    bed.speak(&fresh, 0, 0);
    assert_same(&bed.engine.respond(&session, respond(1)).unwrap(), &bed.engine.respond(&fresh, respond(1)).unwrap());
}

#[test]
fn out_of_band_response_leaves_no_trace() {
    let mut bed = bed();
    let (with, without) = (bed.after_a_turn(), bed.after_a_turn());
    let out_of_band = Respond { out_of_band: true, ..respond(5) };
    let out_of_band = bed.engine.respond(&with, out_of_band).unwrap();
    assert!(!out_of_band.text.is_empty() && !out_of_band.samples.is_empty());
    bed.speak(&with, 1, 1);
    bed.speak(&without, 1, 1);
    assert_same(&bed.engine.respond(&with, respond(1)).unwrap(), &bed.engine.respond(&without, respond(1)).unwrap());
}

#[test]
fn own_input_equals_fresh_history() {
    let mut bed = bed();
    for out_of_band in [true, false] {
        let session = bed.after_a_turn();
        let input = vec![
            ResponseInput::Content(MessageContent::Text { role: Role::User, text: "so".to_owned() }),
            ResponseInput::Item(0),
            ResponseInput::Content(MessageContent::Audio(bed.audio(1))),
        ];
        let request = Respond { out_of_band, input: Some(input), ..respond(5) };
        let own = bed.engine.respond(&session, request).unwrap();
        let fresh = bed.engine.open();
        submit(&fresh, text(7, InsertAt::End, Role::User, "so"));
        bed.speak(&fresh, 0, 0);
        bed.speak(&fresh, 1, 1);
        assert_same(&own, &bed.engine.respond(&fresh, respond(5)).unwrap());
        session.close_with(&mut bed.engine);
        fresh.close_with(&mut bed.engine);
    }
}

#[test]
fn out_of_band_responses_overlap_the_active_one() {
    let mut bed = bed();
    let session = bed.engine.open();
    bed.speak(&session, 0, 0);
    let alone = bed.engine.respond(&session, respond(0)).unwrap();
    bed.engine.send(&session, Command::Delete { item: 1000 });
    for number in [1, 2, 3] {
        submit(&session, Command::Respond(Respond { out_of_band: number > 1, ..respond(number) }));
    }
    let mut responses = vec![Response::default(); 4];
    let mut order = Vec::new();
    while order.len() < 3 {
        let Some(event) = session.try_next_event() else {
            bed.engine.ticks(1);
            continue;
        };
        let number = match &event {
            Event::Text { response, .. } | Event::Audio { response, .. } | Event::SegmentFinished { response, .. } => {
                *response
            }
            other => panic!("{other:?}"),
        };
        if responses[number as usize].take(number, event).unwrap() {
            order.push(number);
        }
    }
    // The talker's random numbers depend on the response's id; greedy text does not.
    for response in &responses[1..] {
        assert_eq!(response.text, alone.text);
        assert_eq!(response.samples.len(), alone.samples.len());
    }
    drop(session);
    assert_eq!(bed.engine.left_behind(), (0, 0));
}

#[test]
fn too_many_out_of_band_responses_are_refused() {
    let mut bed = bed();
    let sessions = [bed.after_a_turn(), bed.after_a_turn()];
    let ask = |number| Command::Respond(Respond { out_of_band: true, ..respond(number) });
    for number in 1..=3 {
        submit(&sessions[0], ask(number));
    }
    submit(&sessions[1], ask(1));
    submit(&sessions[1], ask(2));
    bed.engine.settle();
    let refusals = |session: &SessionHandle| {
        let events = std::iter::from_fn(|| session.try_next_event());
        let failed = |event| match event {
            Event::Failed { error, .. } => Some(error),
            _ => None,
        };
        events.filter_map(failed).collect::<Vec<_>>()
    };
    assert_eq!(refusals(&sessions[0]), [SessionError::TooManyResponses { limit: 2 }]);
    assert_eq!(refusals(&sessions[1]), [SessionError::OutOfMemory]);
}

/// Asks for the transcript of an item.
fn transcribe(response: u64, item: u64) -> Command {
    let (language, prompt) = (Some("en".to_owned()), "Names: Ada.".to_owned());
    Command::Transcribe(Transcribe { language, prompt, ..Transcribe::new(response, item) })
}

#[test]
fn transcripts_equal_responses_to_their_instruction() {
    let mut bed = bed_of(EngineConfig { transcribes: true, ..config() });
    let session = bed.after_a_turn();
    submit(&session, transcribe(7, 0));
    let transcript = bed.engine.listen(&session, 7).unwrap();
    assert!(!transcript.text.is_empty() && transcript.samples.is_empty(), "{transcript:?}");
    let text = "Write down what is said in this recording, word for word, and nothing else. The language is en. \
        Names: Ada.";
    let content = MessageContent::Text { role: Role::User, text: text.to_owned() };
    let request = Respond {
        audio: false,
        input: Some(vec![ResponseInput::Item(0), ResponseInput::Content(content)]),
        out_of_band: true,
        instructions: Some(String::new()),
        max_tokens: Some(1_024),
        sampling: Some(Sampling::GREEDY),
        ..Respond::new(8, 8)
    };
    assert_same(&bed.engine.respond(&session, request).unwrap(), &transcript);
}

#[test]
fn transcripts_need_audio_and_a_model_that_writes() {
    let error = |bed: &mut Bed, session: &SessionHandle, item| {
        bed.engine.send(session, transcribe(9, item));
        match session.try_next_event() {
            Some(Event::Failed { response: Some(9), error }) => error,
            other => panic!("{other:?}"),
        }
    };
    let mut bed = bed_of(EngineConfig { transcribes: true, ..config() });
    let session = bed.after_a_turn();
    assert_eq!(error(&mut bed, &session, 5), SessionError::UnknownItem(5));
    submit(&session, Command::text(6, Role::User, "words"));
    assert!(matches!(error(&mut bed, &session, 6), SessionError::BadValue { field: "item", .. }));
    submit(&session, transcribe(9, 0));
    bed.engine.send(&session, Command::Cancel { response: 9 });
    let ends: Vec<_> = std::iter::from_fn(|| session.try_next_event()).collect();
    assert!(
        matches!(ends.last(), Some(Event::SegmentFinished { response: 9, reason: FinishReason::Cancelled, .. })),
        "{ends:?}"
    );
    let mut bed = bed_of(config());
    let session = bed.after_a_turn();
    assert_eq!(error(&mut bed, &session, 0), SessionError::NoTranscription);
}

#[test]
fn background_responses_are_equal_and_leave_a_slot() {
    let mut bed = bed();
    let session = bed.after_a_turn();
    let usual = bed.engine.respond(&session, Respond { out_of_band: true, ..respond(5) }).unwrap();
    let background = |number| Respond { out_of_band: true, background: true, ..respond(number) };
    assert_same(&bed.engine.respond(&session, background(5)).unwrap(), &usual);
    let in_band = bed.engine.respond(&session, Respond { out_of_band: false, ..background(6) }).unwrap_err();
    assert!(matches!(in_band, SessionError::BadValue { field: "background", .. }), "{in_band}");
    // One background response for each session; the last slot is reserved for other responses.
    let other = bed.after_a_turn();
    let ask = |session: &SessionHandle, request| submit(session, Command::Respond(request));
    ask(&session, background(7));
    ask(&session, background(8));
    ask(&session, Respond { out_of_band: true, ..respond(9) });
    ask(&other, background(7));
    ask(&other, Respond { out_of_band: true, ..respond(8) });
    bed.engine.settle();
    let failures = |session: &SessionHandle| {
        let events = std::iter::from_fn(|| session.try_next_event());
        let failed = |event| match event {
            Event::Failed { response, error } => Some((response, error)),
            _ => None,
        };
        events.filter_map(failed).collect()
    };
    let (first, second): (Vec<_>, Vec<_>) = (failures(&session), failures(&other));
    assert_eq!(first, [(Some(8), SessionError::TooManyResponses { limit: 1 })]);
    assert_eq!(second, [(Some(7), SessionError::OutOfMemory)], "the background one alone");
}

#[test]
fn each_slice_is_answered_in_order() {
    let mut bed = bed();
    let rate = 16_000;
    let audio = bed.audio(0);
    for slice in [rate * 80 / 1000, 3000, audio.len() / 2 - 300] {
        let session = bed.engine.open();
        submit(
            &session,
            Command::SetSlicePolicy(SlicePolicy::EachSlice { samples: slice, respond: Box::new(respond(0)) }),
        );
        for piece in audio[..slice * 2 + 500].chunks(700) {
            submit(&session, Command::Append(piece.to_vec()));
        }
        submit(&session, Command::Finish);
        let streamed: Vec<Response> = (0..3).map(|k| bed.engine.listen(&session, k).unwrap()).collect();
        bed.engine.settle();
        assert_eq!(session.try_next_event(), Some(Event::Finished), "once, after the last segment");
        assert_eq!(session.try_next_event(), None);

        let fresh = bed.engine.open();
        let slices = [&audio[..slice], &audio[slice..2 * slice], &audio[2 * slice..2 * slice + 500]];
        for (k, (samples, streamed)) in (0..).zip(slices.into_iter().zip(&streamed)) {
            submit(&fresh, Command::Append(samples.to_vec()));
            submit(&fresh, Command::Commit { item: 2 * k });
            let replayed = bed.engine.respond(&fresh, Respond { item: 1001 + 2 * k, ..respond(k) }).unwrap();
            assert_same(streamed, &replayed);
        }
        session.close_with(&mut bed.engine);
        fresh.close_with(&mut bed.engine);
    }
}

#[test]
fn too_short_slices_are_refused() {
    let mut bed = bed();
    let session = bed.engine.open();
    let policy = SlicePolicy::EachSlice { samples: 1279, respond: Box::new(respond(0)) };
    bed.engine.send(&session, Command::SetSlicePolicy(policy));
    let error = SessionError::bad("samples", 1279, "1280 to 9600000");
    assert_eq!(session.try_next_event(), Some(Event::Failed { response: None, error }));
}

#[test]
fn finished_follows_the_last_response() {
    let mut bed = bed();
    let session = bed.engine.open();
    bed.speak(&session, 0, 0);
    submit(&session, Command::Respond(respond(0)));
    submit(&session, Command::Finish);
    submit(&session, Command::Append(vec![0.0; 100]));
    bed.engine.ticks(1);
    let refused = Event::Failed { response: None, error: SessionError::AfterFinish };
    assert_eq!(session.try_next_event(), Some(refused));
    assert_eq!(bed.engine.listen(&session, 0).unwrap().reason, Some(FinishReason::Length));
    bed.engine.settle();
    assert_eq!(session.try_next_event(), Some(Event::Finished));
    assert_eq!(session.try_next_event(), None);
}

#[test]
fn sessions_share_a_common_instruction_prefix() {
    let mut bed = bed();
    let instructions = "a ".repeat(200);
    let first = bed.engine.open();
    bed.engine.send(&first, Command::SetInstructions(instructions.clone()));
    bed.speak(&first, 0, 0);
    let alone = bed.engine.respond(&first, respond(0)).unwrap();
    let before = bed.engine.scheduler.held();
    let second = bed.engine.open();
    submit(&second, Command::SetInstructions(instructions));
    bed.speak(&second, 0, 0);
    let shared = bed.engine.respond(&second, respond(0)).unwrap();
    let added = bed.engine.scheduler.held() - before;
    assert!(added + 10 < before, "a second session took {added} blocks, the first {before}");
    assert_same(&alone, &shared);
    // The shared prefix outlives the first session.
    first.close_with(&mut bed.engine);
    bed.engine.send(&second, Command::Delete { item: 1000 });
    assert_same(&alone, &bed.engine.respond(&second, respond(0)).unwrap());
}

#[test]
fn an_ended_session_leaves_its_instruction_prefix() {
    let mut bed = bed();
    // Submitted together, so that nothing is prefilled before the response begins.
    let answer = |bed: &mut Bed, instructions: &str| {
        let session = bed.engine.open();
        submit(&session, Command::SetInstructions(instructions.to_owned()));
        submit(&session, text(0, InsertAt::End, Role::User, "so"));
        let response = bed.engine.respond(&session, respond(0)).unwrap();
        session.close_with(&mut bed.engine);
        assert_eq!(bed.engine.left_behind(), (0, 0), "a kept prefix counts as free");
        response
    };
    let first = answer(&mut bed, &"a ".repeat(200));
    assert_eq!(first.usage.cached_tokens, 0);
    let second = answer(&mut bed, &"a ".repeat(200));
    assert!(second.usage.cached_tokens >= 192, "{:?}", second.usage);
    assert_same(&first, &second);
    // Other prefixes evict it one after the other.
    for other in 0..8 {
        assert!(answer(&mut bed, &format!("{other} ").repeat(200)).usage.cached_tokens < 192);
    }
    assert!(answer(&mut bed, &"a ".repeat(200)).usage.cached_tokens < 192, "kept prefixes are bounded");
}

#[test]
fn out_of_band_responses_share_the_conversation() {
    let mut bed = bed();
    let session = bed.after_a_turn();
    bed.speak(&session, 1, 1);
    bed.engine.settle();
    let response = bed.engine.respond(&session, Respond { out_of_band: true, ..respond(5) }).unwrap();
    let prompt = response.usage.input_text_tokens + response.usage.input_audio_tokens;
    // Not shared: the end of the turn and the header of the response.
    assert!(response.usage.cached_tokens + 8 > prompt, "{} of {prompt} are shared", response.usage.cached_tokens);
    let fresh = bed.after_a_turn();
    bed.speak(&fresh, 1, 1);
    assert_same(&response, &bed.engine.respond(&fresh, respond(5)).unwrap());
    // The session's own cache is unchanged.
    assert_same(&bed.engine.respond(&session, respond(6)).unwrap(), &{
        let other = bed.after_a_turn();
        bed.speak(&other, 1, 1);
        bed.engine.respond(&other, respond(6)).unwrap()
    });
}

#[test]
fn a_long_prompt_cuts_no_speech() {
    let (roomy, narrow) = (bed(), bed_of(EngineConfig { session_tokens: 76, ..config() }));
    let mut responses = Vec::new();
    for mut bed in [roomy, narrow] {
        let session = bed.engine.open();
        submit(&session, text(7, InsertAt::End, Role::User, &"a ".repeat(35)));
        bed.speak(&session, 0, 0);
        let request = Respond { max_tokens: Some(16), ..respond(0) };
        responses.push(bed.engine.respond(&session, request).unwrap());
    }
    let usage = responses[0].usage;
    let positions = usage.input_text_tokens + usage.input_audio_tokens + usage.output_audio_frames;
    assert!(positions > 76, "the response is too short to show anything: {usage:?}");
    assert_same(&responses[0], &responses[1]);
}

#[test]
fn tools_are_refused_without_a_tool_template() {
    let mut bed = bed();
    let session = bed.engine.open();
    let content = MessageContent::ToolResult("1".to_owned());
    bed.engine.send(&session, Command::Insert { item: 0, place: InsertAt::End, content });
    assert_eq!(session.try_next_event(), Some(Event::Failed { response: None, error: SessionError::NoTools }));
}

/// Closes a session of an engine that the test ticks.
trait CloseWith {
    fn close_with(self, engine: &mut Driven);
}

impl CloseWith for SessionHandle {
    fn close_with(self, engine: &mut Driven) {
        drop(self);
        engine.settle();
    }
}
