//! A response aborted at any tick leaves no trace in the session.

use repartee_engine::{EngineConfig, HandOff};
use repartee_engine_api::{Command, Event, FinishReason, Respond};

use super::{Bed, INSTRUCTIONS, Subject, assert_same, config, respond};
use crate::driven::submit;

/// A short response, so that every tick of it can be tried.
fn short(number: u64) -> Respond {
    Respond { max_tokens: Some(5), ..respond(number) }
}

/// A session with a response cancelled at any tick equals a fresh session.
pub fn cancel_at_any_tick_equals_never<S: Subject>(subject: &S) {
    // With full payload the edges buffer pieces.
    for hand_off in [HandOff::AsyncChunk, HandOff::FullPayload] {
        cancel_at_any_tick(subject, &EngineConfig { hand_off, ..config() });
    }
}

fn cancel_at_any_tick<S: Subject>(subject: &S, config: &EngineConfig) {
    let mut bed = Bed::new(subject, config);
    let fresh = bed.engine.open();
    submit(&fresh, Command::SetInstructions(INSTRUCTIONS.to_owned()));
    bed.input(&fresh, 0, 0);
    bed.engine.settle();
    let held = bed.engine.scheduler.held();
    let plain = bed.respond(&fresh, short(1));
    bed.close(fresh);
    assert!(!plain.text.is_empty() && plain.samples.is_empty() != subject.has_audio_output());

    let mut over = false;
    for ticks in 0.. {
        let session = bed.engine.open();
        submit(&session, Command::SetInstructions(INSTRUCTIONS.to_owned()));
        bed.input(&session, 0, 0);
        // At every second try audio is prefilled as it arrives.
        if ticks % 2 == 1 {
            bed.engine.settle();
        }
        bed.request(&session, short(0));
        bed.engine.ticks(ticks);
        submit(&session, Command::Cancel { response: 0 });
        submit(&session, Command::Delete { item: 1000 });
        bed.engine.settle();
        let events = std::iter::from_fn(|| session.try_next_event());
        let ends: Vec<_> = events.filter(|event| matches!(event, Event::SegmentFinished { .. })).collect();
        assert_eq!(ends.len(), 1, "after {ticks} ticks: {ends:?}");
        let what = format!("after a response cancelled after {ticks} ticks");
        assert_eq!(bed.engine.scheduler.held(), held, "blocks held {what}");
        let next = bed.respond(&session, short(1));
        assert_same(&next, &plain, &what);
        bed.close(session);
        // One more try after the end of the response.
        let done = !matches!(ends[0], Event::SegmentFinished { reason: FinishReason::Cancelled, .. });
        if done && std::mem::replace(&mut over, true) {
            return;
        }
    }
}

/// A response cancelled at any tick and truncated to the spoken text equals one that was never longer.
pub fn barge_in_equals_a_shorter_response<S: Subject>(subject: &S) {
    let mut bed = Bed::new(subject, &config());
    let mut tried = 0;
    for ticks in 0..40 {
        let session = bed.engine.open();
        bed.input(&session, 0, 0);
        bed.request(&session, respond(0));
        bed.engine.ticks(ticks);
        bed.engine.send(&session, Command::Cancel { response: 0 });
        let usage = std::iter::from_fn(|| session.try_next_event()).find_map(|event| match event {
            Event::SegmentFinished { usage, .. } => Some(usage),
            _ => None,
        });
        let tokens = subject.spoken_tokens(usage.unwrap());
        if tokens > 0 {
            tried += 1;
            let fresh = bed.engine.open();
            bed.input(&fresh, 0, 0);
            let shorter = bed.respond(&fresh, Respond { max_tokens: Some(tokens), ..respond(0) });
            let count = shorter.usage.output_text_tokens;
            assert!(!subject.writes() || count <= tokens, "{count} tokens in a response of at most {tokens}");
            submit(&session, Command::Truncate { item: 1000, text: shorter.text });
            for session in [&session, &fresh] {
                bed.input(session, 1, 1);
            }
            let (edited, replayed) = (bed.respond(&session, short(1)), bed.respond(&fresh, short(1)));
            assert_same(&edited, &replayed, &format!("cancelled after {ticks} ticks, {tokens} tokens kept"));
        }
        bed.close(session);
    }
    assert!(tried > 5, "{tried} responses were cancelled while they were spoken");
}

/// Dropping a handle at any tick frees everything, out-of-band and pending responses included.
pub fn drop_at_any_tick_frees_everything<S: Subject>(subject: &S) {
    let mut bed = Bed::new(subject, &config());
    let plain = bed.engine.open();
    bed.input(&plain, 1, 0);
    let response = bed.respond(&plain, short(2));
    bed.close(plain);
    for ticks in 0..60 {
        let session = bed.engine.open();
        bed.input(&session, 0, 0);
        bed.request(&session, short(0));
        bed.request(&session, Respond { out_of_band: true, ..short(1) });
        bed.request(&session, short(2));
        bed.engine.ticks(ticks);
        bed.close(session);
        if ticks % 10 == 9 {
            let next = bed.engine.open();
            bed.input(&next, 1, 0);
            let after = bed.respond(&next, short(2));
            assert_same(&after, &response, &format!("after a session dropped after {ticks} ticks"));
            bed.close(next);
        }
    }
}
