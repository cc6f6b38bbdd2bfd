//! Sessions of a running engine: parity with the reference's `generate`, independence of slices and neighbours, history,
//! cancellation, admission.
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use repartee_engine::{Engine, EngineConfig, Source};
use repartee_engine_api::{
    Command, EngineUsage, Event, Eviction, FinishReason, InsertAt, MessageContent, OpenError, Respond, Role, Sampling,
    SessionError, SessionHandle, SpeechEngine,
};

use repartee_engine_testkit::{CONVERSATIONS, Expected, difference, greedy_copy, property, shrink_context};

/// Number of concurrent sessions.
const SESSIONS: usize = 8;

fn modest() -> EngineConfig {
    EngineConfig { sessions: SESSIONS, cache_mib: 512, session_tokens: 4096, ..EngineConfig::default() }
}

/// A fixture served by an engine.
struct Served {
    engine: Engine,
    expected: Expected,
    // Kept because the engine maps its files.
    folder: tempfile::TempDir,
}

fn serve(name: &str, config: &EngineConfig) -> Served {
    let expected = Expected::load(name);
    let folder = greedy_copy(name, &expected);
    let engine = Engine::start(Source::Folder(folder.path().to_path_buf()), config).unwrap();
    Served { engine, expected, folder }
}

/// One complete response.
#[derive(Debug, Clone, PartialEq)]
struct Response {
    text: String,
    samples: Vec<f32>,
    reason: FinishReason,
    usage: EngineUsage,
}

fn respond(number: u64) -> Respond {
    Respond { seed: 1, ..Respond::new(number, 1000 + number) }
}

fn send(session: &SessionHandle, command: Command) {
    session.submit_blocking(command).unwrap();
}

/// Reads a response to its end.
fn listen(session: &SessionHandle, number: u64) -> Result<Response, SessionError> {
    let (mut text, mut samples, mut frames) = (String::new(), Vec::new(), 0);
    loop {
        match session.next_event_blocking().expect("the session goes on") {
            other @ (Event::InputText { .. }
            | Event::InputDetails { .. }
            | Event::ToolCall { .. }
            | Event::ToolArguments { .. }
            | Event::Finished) => panic!("{other:?}"),
            Event::Text { response, text: piece } => {
                assert_eq!(response, number);
                text += &piece;
            }
            Event::Audio { response, frame, samples: piece, stamps } => {
                assert_eq!((response, frame), (number, frames));
                assert_eq!(stamps.is_some(), frame == 0);
                frames += 1;
                samples.extend(piece);
            }
            Event::SegmentFinished { response, reason, usage } => {
                assert_eq!(response, number);
                return Ok(Response { text, samples, reason, usage });
            }
            Event::Failed { error, .. } => return Err(error),
        }
    }
}

/// Runs the fixture's turns in one session, with the audio cut into slices of lengths from `slice`.
fn converse(served: &Served, mut slice: impl FnMut() -> usize) -> Vec<Response> {
    let session = served.engine.open().unwrap();
    if let Some(system) = served.expected.facts["settings"]["system"].as_str() {
        send(&session, Command::SetInstructions(system.to_owned()));
    }
    let voice = served.expected.facts["settings"]["speaker"].as_str().unwrap();
    let responses = (0..served.expected.turns() as u64)
        .map(|turn| {
            let (audio, _) = served.expected.tensor(&format!("turn{turn}.audio"));
            let mut rest = &audio[..];
            while !rest.is_empty() {
                let (now, later) = rest.split_at(slice().clamp(1, rest.len()));
                send(&session, Command::Append(now.to_vec()));
                rest = later;
            }
            send(&session, Command::Commit { item: turn });
            send(&session, Command::Respond(Respond { voice: Some(voice.to_owned()), ..respond(turn) }));
            listen(&session, turn).unwrap()
        })
        .collect();
    session.close();
    responses
}

#[test]
fn both_turns_equal_the_reference() {
    for name in CONVERSATIONS {
        let served = serve(name, &modest());
        for (turn, response) in converse(&served, || 1600).iter().enumerate() {
            let facts = &served.expected.facts["turns"][turn];
            assert_eq!(response.text, facts["text"].as_str().unwrap(), "{name}, turn {turn}");
            let (reference, _) = served.expected.tensor(&format!("turn{turn}.waveform"));
            let off = difference(&response.samples, &reference);
            assert!(off <= 1e-4, "{name}, turn {turn}: the waveform is off by {off}");
            assert_eq!(response.reason, FinishReason::Stop);
            assert_eq!(
                u64::from(response.usage.input_audio_tokens + response.usage.input_text_tokens),
                facts["prompt_tokens"]
            );
            assert_eq!(u64::from(response.usage.output_audio_frames), facts["frames"]);
        }
    }
}

#[test]
fn any_split_of_audio_gives_the_same_response() {
    for name in CONVERSATIONS {
        let served = serve(name, &modest());
        let whole = converse(&served, || usize::MAX);
        let mut runner = TestRunner::new(property(6, file!()));
        runner
            .run(&prop::collection::vec(1usize..9000, 1..40), |lengths| {
                let mut lengths = lengths.into_iter().cycle();
                let split = converse(&served, || lengths.next().unwrap());
                for (a, b) in whole.iter().zip(&split) {
                    prop_assert_eq!(&a.text, &b.text);
                    prop_assert!(a.samples == b.samples, "{}: other samples", name);
                }
                Ok(())
            })
            .unwrap();
    }
}

#[test]
fn neighbours_do_not_change_a_response() {
    for name in CONVERSATIONS {
        let served = serve(name, &modest());
        let alone = converse(&served, || 4000);
        std::thread::scope(|scope| {
            let callers: Vec<_> = (0..SESSIONS)
                .map(|caller| {
                    let served = &served;
                    scope.spawn(move || converse(served, || 500 + 700 * caller))
                })
                .collect();
            for caller in callers {
                for (a, b) in alone.iter().zip(caller.join().unwrap()) {
                    assert_eq!(a.text, b.text);
                    assert!(a.samples == b.samples, "{name}: a neighbour changed the samples");
                }
            }
        });
    }
}

#[test]
fn a_seed_fixes_a_sampled_response() {
    let served = serve("dense", &modest());
    let sampled = |seed| {
        let session = served.engine.open().unwrap();
        send(&session, Command::Append(served.expected.tensor("turn0.audio").0));
        send(&session, Command::Commit { item: 0 });
        let sampling = Sampling { temperature: 1.5, top_k: 0, top_p: 1.0, repetition_penalty: 1.0 };
        let request = Respond { sampling: Some(sampling), seed, max_tokens: Some(20), audio: false, ..respond(0) };
        send(&session, Command::Respond(request));
        listen(&session, 0).unwrap().text
    };
    assert_eq!(sampled(5), sampled(5));
    assert!((0..4).any(|seed| sampled(seed) != sampled(5)));
}

#[test]
fn a_response_without_audio_is_text_alone() {
    let served = serve("dense", &modest());
    let session = served.engine.open().unwrap();
    send(&session, Command::Append(served.expected.tensor("turn0.audio").0));
    send(&session, Command::Commit { item: 0 });
    send(&session, Command::Respond(Respond { audio: false, ..respond(0) }));
    let response = listen(&session, 0).unwrap();
    assert_eq!(response.text, served.expected.facts["turns"][0]["text"].as_str().unwrap());
    assert!(response.samples.is_empty());
}

#[test]
fn a_cancelled_response_leaves_the_session_usable() {
    let served = serve("dense", &modest());
    let session = served.engine.open().unwrap();
    send(&session, Command::Append(served.expected.tensor("turn0.audio").0));
    send(&session, Command::Commit { item: 0 });
    send(&session, Command::Respond(respond(0)));
    send(&session, Command::Respond(respond(1)));
    send(&session, Command::Cancel { response: 0 });
    send(&session, Command::Cancel { response: 1 });
    let mut ended = [listen(&session, 0), listen(&session, 1)].map(|response| response.unwrap().reason).to_vec();
    ended.dedup();
    assert!(ended.contains(&FinishReason::Cancelled), "{ended:?}");
    // The cancelled text stays in the history; without it the response equals that of a fresh session.
    for item in [1000, 1001] {
        send(&session, Command::Delete { item });
    }
    send(&session, Command::Respond(respond(2)));
    let response = listen(&session, 2).unwrap();
    assert_eq!(response.text, served.expected.facts["turns"][0]["text"].as_str().unwrap());
    let (reference, _) = served.expected.tensor("turn0.waveform");
    assert!(difference(&response.samples, &reference) <= 1e-4);
}

#[test]
fn instructions_hold_from_the_request_on() {
    let served = serve("moe", &modest());
    let session = served.engine.open().unwrap();
    send(&session, Command::Append(served.expected.tensor("turn0.audio").0));
    send(&session, Command::Commit { item: 0 });
    let system = served.expected.facts["settings"]["system"].as_str().unwrap();
    send(&session, Command::SetInstructions(system.to_owned()));
    send(&session, Command::Respond(respond(0)));
    send(&session, Command::SetInstructions(String::new()));
    let text = listen(&session, 0).unwrap().text;
    assert_eq!(text, served.expected.facts["turns"][0]["text"].as_str().unwrap());
    // Without instructions the response differs.
    send(&session, Command::Delete { item: 1000 });
    send(&session, Command::Respond(respond(1)));
    assert_ne!(listen(&session, 1).unwrap().text, text);
}

/// The same checkpoint in another engine, with a context of `positions`.
fn shrunk(served: &Served, positions: usize) -> Engine {
    let small = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(served.folder.path()).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), small.path().join(entry.file_name())).unwrap();
    }
    shrink_context(small.path(), positions);
    Engine::start(Source::Folder(small.path().to_path_buf()), &modest()).unwrap()
}

/// Tokens of a response's prompt.
fn read(response: &Response) -> u32 {
    response.usage.input_audio_tokens + response.usage.input_text_tokens
}

#[test]
fn eviction_leaves_later_items_out_of_prompts() {
    let served = serve("dense", &modest());
    let small = shrunk(&served, 320);
    let written = |number| Respond { max_tokens: Some(20), audio: false, ..respond(number) };
    let text = |text| MessageContent::Text { role: Role::User, text };
    let insert = |session: &SessionHandle, item| {
        let content = text(format!("{}words to be forgotten", "so many ".repeat(item as usize % 5)));
        send(session, Command::Insert { item, place: InsertAt::End, content });
    };
    for items in 10..22 {
        // Everything waits behind the first response, so no silent prefill evicts before the second one begins.
        let session = small.open().unwrap();
        send(&session, Command::Append(served.expected.tensor("turn0.audio").0));
        send(&session, Command::Commit { item: 0 });
        send(&session, Command::Respond(written(0)));
        (1..=items).for_each(|item| insert(&session, item));
        send(&session, Command::Respond(written(1)));
        insert(&session, items + 1);
        listen(&session, 0).unwrap();
        let evicted = listen(&session, 1).unwrap();

        let kept = (1..=items).find_map(|first| {
            let session = served.engine.open().unwrap();
            (first..=items).for_each(|item| insert(&session, item));
            send(&session, Command::Respond(written(1)));
            let response = listen(&session, 1).unwrap();
            (read(&response) == read(&evicted)).then_some(response)
        });
        assert_eq!(kept.expect("the prompt is the newest items").text, evicted.text, "of {items}");
    }
}

#[test]
fn a_share_of_a_limit_is_kept() {
    let served = serve("dense", &modest());
    let written = |number| Respond { max_tokens: Some(20), audio: false, ..respond(number) };
    let insert = |session: &SessionHandle, item: u64| {
        let text = format!("{}words to be dropped", "so many ".repeat(item as usize % 5));
        send(session, Command::text(item, Role::User, text));
    };
    let answer = |session: &SessionHandle| {
        send(session, Command::Respond(written(1)));
        listen(session, 1).unwrap()
    };
    let instruct = |session: &SessionHandle| {
        send(session, Command::SetInstructions("You are a patient listener.".repeat(4)));
    };
    let alone = |items: std::ops::RangeInclusive<u64>| {
        let session = served.engine.open().unwrap();
        instruct(&session);
        items.for_each(|item| insert(&session, item));
        answer(&session)
    };
    // Positions of the instructions and of the template around an answer.
    let fixed = read(&alone(1..=1)) - (read(&alone(1..=2)) - read(&alone(2..=2)));
    let all = read(&alone(1..=20));
    for (kept, most) in [(0.5, 100), (0.8, 100), (1.0, 100), (0.0, 100), (0.5, 5_000)] {
        let session = served.engine.open().unwrap();
        instruct(&session);
        send(&session, Command::SetEviction(Eviction::Oldest { kept, most: Some(most) }));
        (1..=20).for_each(|item| insert(&session, item));
        let answered = answer(&session);
        let whole = most > 1_000;
        assert_eq!(read(&answered) == all, whole, "{kept} of {most}");
        if whole {
            continue;
        }
        // The newest items as long as they take no more than the share, and the last one in any case.
        let first = (1..=20).find(|&first| first == 20 || read(&alone(first..=20)) - fixed <= (kept * 100.0) as u32);
        assert_eq!(answered.text, alone(first.unwrap()..=20).text, "{kept} of {most}");
        assert_eq!(read(&answered), read(&alone(first.unwrap()..=20)), "{kept} of {most}");
    }
}

#[test]
fn nothing_is_evicted_where_that_is_refused() {
    let served = serve("dense", &modest());
    let small = shrunk(&served, 320);
    let session = small.open().unwrap();
    let written = |number| Respond { max_tokens: Some(20), audio: false, ..respond(number) };
    let long = |item| Command::text(item, Role::User, "so many words ".repeat(5));
    for share in [f64::NAN, -0.1, 1.1] {
        send(&session, Command::SetEviction(Eviction::Oldest { kept: share, most: None }));
        let event = session.next_event_blocking();
        let Some(Event::Failed { error: SessionError::BadValue { field: "kept", .. }, .. }) = event else {
            panic!("{event:?}")
        };
    }
    send(&session, Command::SetEviction(Eviction::Nothing));
    let mut number = 0;
    let error = loop {
        send(&session, long(number));
        send(&session, Command::Respond(written(number)));
        match listen(&session, number) {
            Ok(_) => number += 1,
            Err(error) => break error,
        }
        assert!(number < 20, "the context never got full");
    };
    assert!(matches!(error, SessionError::ContextFull { tokens, limit } if tokens > limit && limit < 320), "{error}");
    assert!(number >= 1, "{error}");
    // The caller makes space.
    (0..number).for_each(|item| send(&session, Command::Delete { item }));
    send(&session, Command::Respond(written(99)));
    listen(&session, 99).unwrap();
    // The policy holds from the next prompt on.
    send(&session, Command::SetEviction(Eviction::default()));
    (100..110).for_each(|item| send(&session, long(item)));
    send(&session, Command::Respond(written(110)));
    listen(&session, 110).unwrap();
}

#[test]
fn a_full_context_evicts_the_oldest_items() {
    const CONTEXT: usize = 320;
    let served = serve("dense", &modest());
    let small = shrunk(&served, CONTEXT);

    let turn = |session: &SessionHandle, number: u64| {
        send(session, Command::Append(served.expected.tensor(&format!("turn{}.audio", number % 2)).0));
        send(session, Command::Commit { item: number });
        let request = Respond { max_tokens: Some(20), audio: false, ..respond(number) };
        send(session, Command::Respond(request));
        listen(session, number).unwrap()
    };

    // In the large context the prompt grows with every turn; in the small one it shrinks once the context is full.
    let (long, short) = (served.engine.open().unwrap(), small.open().unwrap());
    let mut items = Vec::new();
    let mut number = 0;
    let evicted = loop {
        let (all, some) = (turn(&long, number), turn(&short, number));
        if read(&all) != read(&some) {
            assert!(read(&some) + 20 <= CONTEXT as u32, "{some:?}");
            break some;
        }
        assert_eq!(all.text, some.text);
        items.extend([number, 1000 + number]);
        number += 1;
        assert!(number < 50, "a context of {CONTEXT} never got full");
    };
    // Eviction equals deletion by the caller.
    let replayed = (1..items.len()).find_map(|count| {
        let session = served.engine.open().unwrap();
        for earlier in 0..number {
            turn(&session, earlier);
        }
        for &item in &items[..count] {
            send(&session, Command::Delete { item });
        }
        let response = turn(&session, number);
        (read(&response) == read(&evicted)).then_some(response)
    });
    assert_eq!(replayed.expect("some number of deletions leads to the same prompt").text, evicted.text);
    // The session goes on.
    for later in number + 1..number + 12 {
        turn(&short, later);
    }
}

#[test]
fn deleting_a_pending_response_cancels_it() {
    let served = serve("dense", &modest());
    let session = served.engine.open().unwrap();
    send(&session, Command::Append(served.expected.tensor("turn0.audio").0));
    send(&session, Command::Commit { item: 0 });
    for number in 0..30 {
        send(&session, Command::Respond(respond(number)));
    }
    send(&session, Command::Delete { item: 1029 });
    let mut reasons = std::collections::BTreeMap::new();
    while reasons.len() < 30 {
        if let Event::SegmentFinished { response, reason, .. } = session.next_event_blocking().unwrap() {
            assert_eq!(reasons.insert(response, reason), None, "response {response} ended twice");
        }
    }
    assert_eq!(reasons[&29], FinishReason::Cancelled);
    assert_eq!(reasons[&0], FinishReason::Stop);
}

#[test]
fn a_refused_command_changes_nothing() {
    let served = serve("dense", &modest());
    let session = served.engine.open().unwrap();
    let refusal = |command: Command| {
        send(&session, command);
        match session.next_event_blocking() {
            Some(Event::Failed { error, .. }) => error,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refusal(Command::Commit { item: 7 }), SessionError::NothingToCommit);
    let unknown = Respond { voice: Some("nobody".to_owned()), ..respond(9) };
    let known = served.engine.info().voices.join(", ");
    assert_eq!(refusal(Command::Respond(unknown)), SessionError::UnknownVoice { voice: "nobody".to_owned(), known });
    send(&session, Command::Append(served.expected.tensor("turn0.audio").0));
    send(&session, Command::Commit { item: 0 });
    send(&session, Command::Append(vec![0.0; 100]));
    assert_eq!(refusal(Command::Commit { item: 0 }), SessionError::DuplicateItem(0));
    send(&session, Command::Clear);
    send(&session, Command::Respond(respond(0)));
    assert_eq!(listen(&session, 0).unwrap().text, served.expected.facts["turns"][0]["text"].as_str().unwrap());
}

#[test]
fn a_dropped_session_frees_its_slot() {
    let served = serve("dense", &EngineConfig { sessions: 2, ..modest() });
    for _ in 0..20 {
        let first = served.engine.open().unwrap();
        let second = served.engine.open().unwrap();
        assert!(matches!(served.engine.open(), Err(OpenError::Full { slots: 2 })));
        for session in [&first, &second] {
            send(session, Command::Append(served.expected.tensor("turn0.audio").0));
            send(session, Command::Commit { item: 0 });
            send(session, Command::Respond(respond(0)));
        }
        // The response is active when the handle is dropped.
        first.next_event_blocking().unwrap();
        first.close();
        second.close();
        assert_eq!(served.engine.occupancy(), (0, 2));
    }
}

#[test]
fn an_unread_session_delays_no_other() {
    let served = serve("dense", &modest());
    let unread = served.engine.open().unwrap();
    send(&unread, Command::Append(served.expected.tensor("turn0.audio").0));
    send(&unread, Command::Commit { item: 0 });
    for number in 0..40 {
        send(&unread, Command::Respond(respond(number)));
    }
    let responses = converse(&served, || 1600);
    assert_eq!(responses[0].text, served.expected.facts["turns"][0]["text"].as_str().unwrap());
    // Its own events are all there, in order.
    assert_eq!(listen(&unread, 0).unwrap().text, responses[0].text);
    for number in 1..40 {
        listen(&unread, number).unwrap();
    }
}
