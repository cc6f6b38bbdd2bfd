//! Speech of a given text in place of the model's own, with the demo model, and with Qwen3-TTS, which generates none.

#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

use repartee_engine_api::{Command, Event, FinishReason, Respond, Role, Sampling, SessionHandle};
use repartee_engine_testkit::clause_family::{ClauseCascade, ClauseSpeech};
use repartee_engine_testkit::driven::{Response, submit};
use repartee_engine_testkit::generic::subjects::{Omni, Tts};
use repartee_engine_testkit::generic::{Bed, Subject, assert_same, config, respond};
use repartee_engine_testkit::text_family::Cascade;

const TEXT: &str = "The capital of France is Paris.";
const LONG: u32 = 60;

fn speak_given_text(number: u64) -> Respond {
    Respond { streamed: true, max_tokens: Some(LONG), ..respond(number) }
}

fn stream(session: &SessionHandle, response: u64, text: &str) {
    submit(session, Command::StreamText { response, text: text.to_owned() });
}

/// Tests of one family.
macro_rules! suite {
    ($family:ident, $subject:expr) => {
        mod $family {
            use super::*;

            #[test]
            fn any_cut_of_the_text_sounds_the_same() {
                super::any_cut_of_the_text_sounds_the_same(&$subject);
            }
            #[test]
            fn sound_begins_before_the_text_ends() {
                super::sound_begins_before_the_text_ends(&$subject);
            }
            #[test]
            fn readers_do_not_change_each_other() {
                super::readers_do_not_change_each_other(&$subject);
            }
            #[test]
            fn an_empty_text_has_no_sound() {
                super::an_empty_text_has_no_sound(&$subject);
            }
            #[test]
            fn a_limit_cuts_the_text() {
                super::a_limit_cuts_the_text(&$subject);
            }
            #[test]
            fn a_limited_reader_leaves_nothing() {
                super::a_limited_reader_leaves_nothing(&$subject);
            }
            #[test]
            fn a_cancelled_reader_leaves_nothing() {
                super::a_cancelled_reader_leaves_nothing(&$subject);
            }
        }
    };
}

suite!(demo, Omni::demo());
suite!(tts, Tts::default());

/// Nothing of one response reaches another in voices of clauses and in cascades, in any of their stages.
#[test]
fn nothing_is_left_in_clauses_and_cascades() {
    let clauses = ClauseSpeech { streamed: true };
    a_limited_reader_leaves_nothing(&clauses);
    a_cancelled_reader_leaves_nothing(&clauses);
    a_limited_reader_leaves_nothing(&Cascade);
    a_cancelled_reader_leaves_nothing(&Cascade);
    a_limited_reader_leaves_nothing(&ClauseCascade);
}

/// Speaks a text that arrives in pieces, with ticks of the engine between them.
fn read<S: Subject>(bed: &mut Bed<'_, S>, session: &SessionHandle, respond: Respond, pieces: &[&str]) -> Response {
    let response = respond.response;
    submit(session, Command::Respond(respond));
    for piece in pieces {
        stream(session, response, piece);
        bed.engine.ticks(3);
    }
    submit(session, Command::EndText { response });
    bed.engine.listen(session, response).unwrap()
}

#[test]
fn a_text_sounds_like_the_model_s_own() {
    let demo = Omni::demo();
    let mut bed = Bed::new(&demo, &config());
    let ask = |session: &SessionHandle| submit(session, Command::text(0, Role::User, "What is the capital of France?"));
    let session = bed.engine.open();
    ask(&session);
    let sampling = Some(Sampling::GREEDY);
    let own = bed.respond(&session, Respond { max_tokens: Some(LONG), sampling, ..respond(0) });
    bed.close(session);
    assert!(own.text.len() > 5 && !own.samples.is_empty(), "{}", own.text);
    let session = bed.engine.open();
    ask(&session);
    let read = read(&mut bed, &session, speak_given_text(0), &[&own.text]);
    assert_same(&read, &own, "the same text, given");
    bed.close(session);
}

fn any_cut_of_the_text_sounds_the_same(subject: &impl Subject) {
    let mut bed = Bed::new(subject, &config());
    let mut cut = |pieces: &[&str]| {
        let session = bed.engine.open();
        let response = read(&mut bed, &session, speak_given_text(0), pieces);
        bed.close(session);
        response
    };
    let whole = cut(&[TEXT]);
    assert_eq!(whole.text, TEXT);
    assert!(whole.usage.output_audio_frames > 5, "{:?}", whole.usage);
    let (left, right) = TEXT.split_at(9);
    assert_same(&cut(&[left, right]), &whole, "two pieces");
    let characters: Vec<String> = TEXT.chars().map(String::from).collect();
    let characters: Vec<&str> = characters.iter().map(String::as_str).collect();
    assert_same(&cut(&characters), &whole, "characters");
    assert_same(&cut(&["", TEXT, ""]), &whole, "nothing before and after");
}

fn sound_begins_before_the_text_ends(subject: &impl Subject) {
    let mut bed = Bed::new(subject, &config());
    let session = bed.engine.open();
    submit(&session, Command::Respond(speak_given_text(0)));
    stream(&session, 0, "The capital of France is ");
    bed.engine.settle();
    let events: Vec<Event> = std::iter::from_fn(|| session.try_next_event()).collect();
    assert!(events.iter().any(|event| matches!(event, Event::Audio { .. })), "{events:?}");
    assert!(!events.iter().any(|event| matches!(event, Event::SegmentFinished { .. })), "the text goes on");
    let mut heard = Response::default();
    events.into_iter().for_each(|event| assert!(!heard.take(0, event).unwrap()));
    stream(&session, 0, "Paris.");
    submit(&session, Command::EndText { response: 0 });
    bed.engine.settle();
    let ends = std::iter::from_fn(|| session.try_next_event()).filter(|event| heard.take(0, event.clone()).unwrap());
    assert_eq!(ends.count(), 1);
    assert_eq!(heard.text, TEXT);
    bed.close(session);
}

fn readers_do_not_change_each_other(subject: &impl Subject) {
    const TEXTS: [&str; 3] = [TEXT, "Three plus four is seven.", "A cow says moo."];
    let mut bed = Bed::new(subject, &config());
    let alone = TEXTS.map(|text| {
        let session = bed.engine.open();
        let response = read(&mut bed, &session, speak_given_text(0), &[text]);
        bed.close(session);
        response
    });
    let sessions = TEXTS.map(|_| bed.engine.open());
    for (session, text) in sessions.iter().zip(TEXTS) {
        submit(session, Command::Respond(speak_given_text(0)));
        stream(session, 0, text);
        submit(session, Command::EndText { response: 0 });
    }
    for (session, alone) in sessions.iter().zip(&alone) {
        assert_same(&bed.engine.listen(session, 0).unwrap(), alone, "together");
    }
    drop(sessions);
    assert_eq!(bed.engine.left_behind(), (0, 0));
}

fn an_empty_text_has_no_sound(subject: &impl Subject) {
    let mut bed = Bed::new(subject, &config());
    let session = bed.engine.open();
    let response = read(&mut bed, &session, speak_given_text(0), &[]);
    assert!(response.text.is_empty() && response.samples.is_empty(), "{response:?}");
    assert_eq!(response.reason, Some(FinishReason::Stop));
    // The next response begins anew.
    let next = read(&mut bed, &session, speak_given_text(1), &[TEXT]);
    assert_eq!(next.text, TEXT);
    assert!(!next.samples.is_empty());
    bed.close(session);
}

fn a_limit_cuts_the_text(subject: &impl Subject) {
    let mut bed = Bed::new(subject, &config());
    let session = bed.engine.open();
    let cut = read(&mut bed, &session, Respond { max_tokens: Some(2), ..speak_given_text(0) }, &[TEXT]);
    assert_eq!((cut.usage.output_text_tokens, cut.reason), (2, Some(FinishReason::Length)));
    assert!(TEXT.starts_with(&cut.text) && cut.text.len() < TEXT.len(), "{}", cut.text);
    bed.close(session);
}

/// A response ends at its limit while its text still comes, at any tick; the next one has its own text alone.
fn a_limited_reader_leaves_nothing(subject: &impl Subject) {
    let mut bed = Bed::new(subject, &config());
    let next = |response: u64| Respond { input: Some(Vec::new()), item: 10 + response, ..speak_given_text(response) };
    let whole = {
        let session = bed.engine.open();
        let response = read(&mut bed, &session, Respond { response: 0, ..next(9) }, &[TEXT]);
        bed.close(session);
        response
    };
    for ticks in 0..8 {
        let session = bed.engine.open();
        for response in 0..3 {
            let limited = Respond { max_tokens: Some(1 + response as u32), ..next(response) };
            submit(&session, Command::Respond(limited));
            for piece in ["Three plus ", "four is ", "seven, and more "] {
                stream(&session, response, piece);
                bed.engine.ticks(ticks);
            }
            submit(&session, Command::EndText { response });
            let cut = bed.engine.listen(&session, response).unwrap();
            assert_eq!(cut.reason, Some(FinishReason::Length), "{}", cut.text);
            // Late, for a response that has ended.
            stream(&session, response, "too late ");
        }
        // Random numbers are a function of the response, so the same id gives the same speech.
        bed.engine.settle();
        let again = read(&mut bed, &session, Respond { response: 0, ..next(9) }, &[TEXT]);
        assert_same(&again, &whole, &format!("{ticks} ticks between the pieces"));
        bed.close(session);
    }
}

fn a_cancelled_reader_leaves_nothing(subject: &impl Subject) {
    let mut bed = Bed::new(subject, &config());
    let whole = {
        let session = bed.engine.open();
        let response = read(&mut bed, &session, speak_given_text(0), &[TEXT]);
        bed.close(session);
        response
    };
    for ticks in [0, 2, 5, 9] {
        let session = bed.engine.open();
        submit(&session, Command::Respond(Respond { input: Some(Vec::new()), ..speak_given_text(0) }));
        stream(&session, 0, "Three plus ");
        bed.engine.ticks(ticks);
        submit(&session, Command::Cancel { response: 0 });
        let cancelled = bed.engine.listen(&session, 0).unwrap();
        assert_eq!(cancelled.reason, Some(FinishReason::Cancelled));
        // The next response does not read the rest of the text.
        let again = Respond { input: Some(Vec::new()), item: 1, ..speak_given_text(0) };
        let again = read(&mut bed, &session, again, &[TEXT]);
        assert_same(&again, &whole, &format!("cancelled after {ticks} ticks"));
        bed.close(session);
    }
}
