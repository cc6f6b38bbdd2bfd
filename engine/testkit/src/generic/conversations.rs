//! A conversation gives equal output for any cut of its input, any settings, and any other sessions.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use repartee_engine::{EngineConfig, HandOff, StageConfig};
use repartee_engine_api::{Command, FinishReason, Respond, Sampling, SessionHandle};

use super::{Bed, INSTRUCTIONS, Splitter, Subject, assert_same, config, respond, submit_all, whole};
use crate::driven::{Response, submit};
use crate::property;

/// Runs three turns; the first response is truncated before the third turn.
fn converse<S: Subject>(subject: &S, config: &EngineConfig, cut: Splitter<'_>) -> Vec<Response> {
    let mut bed = Bed::new(subject, config);
    let session = bed.engine.open();
    submit(&session, Command::SetInstructions(INSTRUCTIONS.to_owned()));
    let mut responses = Vec::<Response>::new();
    for turn in 0..3 {
        if turn == 2 {
            let text = &responses[0].text;
            let heard = text.chars().take(text.chars().count() / 2).collect();
            submit(&session, Command::Truncate { item: 1000, text: heard });
        }
        let number = turn as u64;
        let input = subject.input(turn, number, cut);
        submit_ticking(&mut bed, &session, input);
        let request = subject.request(respond(number), cut);
        submit_ticking(&mut bed, &session, request);
        responses.push(bed.engine.listen(&session, number).unwrap());
    }
    bed.close(session);
    responses
}

/// Submits commands with ticks in between, so that cuts meet a running engine.
fn submit_ticking<S: Subject>(bed: &mut Bed<'_, S>, session: &SessionHandle, commands: Vec<Command>) {
    for (number, command) in commands.into_iter().enumerate() {
        submit(session, command);
        if number % 3 == 2 {
            bed.engine.ticks(1);
        }
    }
}

#[track_caller]
fn assert_all_same(a: &[Response], b: &[Response], what: &str) {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).for_each(|(a, b)| assert_same(a, b, what));
}

/// An answer that ends at its limit of tokens says so.
pub fn a_cut_answer_ends_in_length<S: Subject>(subject: &S) {
    const MOST: u32 = 2;
    let mut bed = Bed::new(subject, &config());
    let session = bed.engine.open();
    let mut ends = Vec::new();
    for turn in 0..3 {
        let number = turn as u64;
        bed.input(&session, turn, number);
        let response = bed.respond(&session, Respond { max_tokens: Some(MOST), ..respond(number) });
        ends.push((response.usage.output_text_tokens, response.reason));
    }
    bed.close(session);
    let cut = |(tokens, reason)| match tokens {
        0..MOST => reason == Some(FinishReason::Stop),
        _ => tokens == MOST && reason == Some(FinishReason::Length),
    };
    assert!(ends.iter().copied().all(cut) && ends.iter().any(|(tokens, _)| *tokens == MOST), "{ends:?}");
}

/// Any cut of the input gives equal output.
pub fn any_cut_equals_the_whole<S: Subject>(subject: &S) {
    let plain = converse(subject, &config(), &mut whole());
    let audio = subject.has_audio_output();
    assert!(
        plain.iter().all(|response| response.samples.is_empty() != audio && !response.text.is_empty()),
        "{plain:?}"
    );
    assert_ne!(plain[0].output(), plain[1].output(), "turns differ");
    let cuts = prop::collection::vec(1usize..6000, 1..30);
    let mut runner = TestRunner::new(property(6, file!()));
    runner
        .run(&cuts, |lengths| {
            let mut lengths = lengths.into_iter().cycle();
            // Text is cut finer than sound.
            let scale = if subject.audio(0).is_some() { 1 } else { 500 };
            let cut = converse(subject, &config(), &mut || lengths.next().unwrap().div_ceil(scale));
            assert_all_same(&plain, &cut, "another cut");
            Ok(())
        })
        .unwrap();
}

fn stages<S: Subject>(subject: &S, setting: impl Fn(usize) -> StageConfig) -> BTreeMap<String, StageConfig> {
    subject.stages().iter().enumerate().map(|(at, stage)| ((*stage).to_owned(), setting(at))).collect()
}

/// Any number of threads gives equal output.
pub fn any_thread_count_gives_the_same<S: Subject>(subject: &S) {
    let plain = converse(subject, &config(), &mut whole());
    for threads in [1, 2, 3, 7] {
        let other = converse(subject, &EngineConfig { threads: Some(threads), ..config() }, &mut whole());
        assert_all_same(&plain, &other, &format!("{threads} threads"));
    }
}

/// Every hand-off, chunk and batch setting gives equal output.
pub fn every_setting_gives_the_same<S: Subject>(subject: &S) {
    let plain = converse(subject, &config(), &mut whole());
    let check = |other: &EngineConfig| {
        assert_all_same(&plain, &converse(subject, other, &mut whole()), &format!("{other:?}"));
    };
    let chunk = |initial, steady| EngineConfig {
        stages: stages(subject, |_| StageConfig {
            initial_chunk: Some(initial),
            steady_chunk: Some(steady),
            ..StageConfig::default()
        }),
        ..config()
    };
    check(&EngineConfig { hand_off: HandOff::FullPayload, ..config() });
    check(&EngineConfig { batch: false, deadlines: false, ..config() });
    for (initial, steady) in [(1, 2), (2, 1), (4, 25), (9, 9)] {
        check(&chunk(initial, steady));
    }
    let random =
        (any::<[bool; 3]>(), prop::collection::vec((1usize..20, 1usize..20, 1usize..40), subject.stages().len()));
    let mut runner = TestRunner::new(property(6, file!()));
    runner
        .run(&random, |([full, batch, deadlines], sizes)| {
            let setting = |at: usize| {
                let (initial, steady, prefill) = sizes[at];
                StageConfig {
                    initial_chunk: Some(initial),
                    steady_chunk: Some(steady),
                    prefill_chunk: Some(prefill),
                    ..StageConfig::default()
                }
            };
            let hand_off = if full { HandOff::FullPayload } else { HandOff::AsyncChunk };
            check(&EngineConfig { hand_off, batch, deadlines, stages: stages(subject, setting), ..config() });
            Ok(())
        })
        .unwrap();
}

/// Any prefill chunk gives equal output.
pub fn any_prefill_chunk_gives_the_same<S: Subject>(subject: &S) {
    let plain = converse(subject, &config(), &mut whole());
    for rows in [1, 3, 16, 17] {
        let setting = |_| StageConfig { prefill_chunk: Some(rows), ..StageConfig::default() };
        let other = EngineConfig { stages: stages(subject, setting), ..config() };
        assert_all_same(&plain, &converse(subject, &other, &mut whole()), &format!("prefill in chunks of {rows}"));
    }
}

/// Each of several concurrent sessions gives its output alone. They begin one after another, so that a later one finds
/// the instructions in the cache.
pub fn together_equals_alone<S: Subject>(subject: &S) {
    let begin = |session: &SessionHandle, turn: usize| {
        submit(session, Command::SetInstructions(INSTRUCTIONS.to_owned()));
        submit_all(session, subject.input(turn, 0, &mut whole()));
        submit_all(session, subject.request(respond(turn as u64), &mut whole()));
    };
    let alone: Vec<Response> = (0..3)
        .map(|turn| {
            let mut bed = Bed::new(subject, &config());
            let session = bed.engine.open();
            begin(&session, turn);
            let response = bed.engine.listen(&session, turn as u64).unwrap();
            bed.close(session);
            response
        })
        .collect();
    for apart in [0, 1, 4, 9, 200] {
        let mut bed = Bed::new(subject, &config());
        let sessions: Vec<SessionHandle> = (0..3)
            .map(|turn| {
                let session = bed.engine.open();
                begin(&session, turn);
                bed.engine.ticks(apart);
                session
            })
            .collect();
        for (turn, session) in sessions.iter().enumerate() {
            let response = bed.engine.listen(session, turn as u64).unwrap();
            assert_same(&response, &alone[turn], &format!("session {turn}, {apart} ticks after the one before"));
        }
        drop(sessions);
        assert_eq!(bed.engine.left_behind(), (0, 0));
    }
}

/// A seed fixes a response, and another seed changes it.
pub fn a_seed_fixes_the_response<S: Subject>(subject: &S) {
    let sampled = |seed| {
        let sampling = Sampling { temperature: 1.5, top_k: 0, top_p: 1.0, repetition_penalty: 1.0 };
        let mut bed = Bed::new(subject, &config());
        let session = bed.engine.open();
        bed.input(&session, 0, 0);
        let response = bed.respond(&session, Respond { sampling: Some(sampling), seed, ..respond(0) });
        bed.close(session);
        response
    };
    let first = sampled(5);
    assert_same(&sampled(5), &first, "the same seed");
    let differ = |seed| {
        let other = sampled(seed);
        (other.text != first.text || !subject.writes())
            && (other.samples != first.samples || !subject.has_audio_output())
    };
    assert!((0..4).any(differ), "no other seed gives another response");
}
