//! Calls: playback by a playout clock or queued, answers with and without an echo, and input that stops or jumps.

use std::time::{Duration, Instant};

use repartee_testkit::memory::{CountScope, counts};

use super::{CallEcho, CancelledAnswer, EchoFinding, Phase, RATE};
use crate::echo_canceller::tests::{echo, levelled};
use crate::level::rms;

/// Samples of a packet.
const PACKET: usize = 320;
const MS: Duration = Duration::from_millis(1);

/// A call whose packets come each 20 ms.
struct TestCall {
    echo: CallEcho,
    start: Instant,
    packets: u32,
    out: Vec<f32>,
    /// Sound for a listener.
    plain: Vec<f32>,
    answers: Vec<CancelledAnswer>,
}

impl TestCall {
    fn new() -> Self {
        Self {
            echo: CallEcho::new(),
            start: Instant::now(),
            packets: 0,
            out: Vec::new(),
            plain: Vec::new(),
            answers: Vec::new(),
        }
    }

    fn now(&self) -> Instant {
        self.start + 20 * MS * self.packets
    }

    /// Takes input that arrives now.
    fn hear(&mut self, input: &[f32]) {
        self.echo.note_input(Duration::from_secs_f64(input.len() as f64 / f64::from(RATE)), self.now());
        let mut samples = input.to_vec();
        if self.echo.begin_piece() {
            self.echo.cancel(&mut samples, &mut self.plain);
        } else {
            self.echo.flush(&mut self.out, &mut self.plain);
            self.echo.hear(&samples);
            self.plain.extend_from_slice(&samples);
        }
        self.answers.extend(self.echo.take_answer());
        self.out.extend(samples);
    }

    /// Plays `played` on the playout clock, beside `input`.
    fn play(&mut self, played: &[f32], input: &[f32]) {
        for (played, input) in played.chunks(PACKET).zip(input.chunks(PACKET)) {
            self.echo.push_playback(played, RATE, self.now()).unwrap();
            self.packets += 1;
            self.hear(input);
        }
    }

    /// Hears `input` while nothing plays.
    fn pause(&mut self, input: &[f32]) {
        for input in input.chunks(PACKET) {
            self.packets += 1;
            self.hear(input);
        }
    }

    /// Decibels by which the latest output is softer than `input` from the second `from` to `to` of it.
    fn removed(&self, input: &[f32], from: f32, to: f32) -> f32 {
        let range = (from * RATE as f32) as usize..(to * RATE as f32) as usize;
        let end = self.out.len() + self.echo.inside;
        let out = &self.out[end - input.len()..][range.clone()];
        20.0 * (rms(&input[range]) / rms(out).max(1e-6)).log10()
    }
}

fn speech(name: &str) -> Vec<f32> {
    let mut samples = levelled(name, 1.0);
    samples.truncate(samples.len() / PACKET * PACKET);
    samples
}

fn silence(ms: usize) -> Vec<f32> {
    vec![0.0; ms * 16]
}

#[test]
fn next_answer_loses_its_echo_at_once() {
    let mut call = TestCall::new();
    let first = speech("answer-harbour");
    call.play(&first, &echo(&first, 2_400, 0.5, 0.0));
    call.pause(&silence(2_500));
    assert!(!call.echo.is_running(), "nothing plays");
    let second = speech("answer-bread");
    let input = echo(&second, 2_400, 0.5, 0.0);
    call.play(&second, &input);
    let removed = call.removed(&input, 0.3, 1.0);
    assert!(removed > 20.0, "{removed} dB");
    let [CancelledAnswer { removed_db: Some(removed) }] = call.answers[..] else { panic!("{:?}", call.answers) };
    assert!(removed > 15.0, "{removed} dB");
}

#[test]
fn frames_of_any_rate_are_a_reference() {
    for rate in [8_000, 24_000, 48_000] {
        let played = speech("answer-harbour");
        let mut up = crate::resample::Resampler::new(RATE, rate).unwrap();
        let frames = up.push(&played).unwrap();
        let input = echo(&played, 2_400, 0.5, 0.0);
        let mut call = TestCall::new();
        for (frame, input) in frames.chunks(rate as usize / 50).zip(input.chunks(PACKET)) {
            call.echo.push_playback(frame, rate, call.now()).unwrap();
            call.packets += 1;
            call.hear(input);
        }
        let input = &input[..call.packets as usize * PACKET];
        let removed = call.removed(input, 2.0, 4.0);
        assert!(removed > 15.0, "{removed} dB at {rate} Hz");
    }
}

#[test]
fn playback_ahead_of_time_is_a_reference() {
    let played = speech("answer-harbour");
    let input = echo(&played, 4_000, 0.5, 0.0);
    let mut call = TestCall::new();
    // Generated five times as fast as it plays.
    let mut generated = played.chunks(5 * PACKET);
    for input in input.chunks(PACKET) {
        if let Some(samples) = generated.next() {
            call.echo.queue_playback(samples, RATE, call.now()).unwrap();
        }
        call.packets += 1;
        call.hear(input);
    }
    let removed = call.removed(&input, 2.0, 4.0);
    assert!(removed > 20.0, "{removed} dB");
}

#[test]
fn dropped_playback_suppresses_nothing() {
    let mut call = TestCall::new();
    let played = speech("answer-harbour");
    call.echo.queue_playback(&played, RATE, call.now()).unwrap();
    let input = echo(&played, 2_000, 0.5, 0.0);
    call.pause(&input[..100 * PACKET]);
    call.echo.clear_playback(call.now());
    call.pause(&silence(1_500));
    let caller = speech("caller-wait");
    call.pause(&caller);
    let changed = call.removed(&caller, 0.0, 1.0);
    assert!(changed.abs() < 0.1, "{changed} dB");
}

#[test]
fn answers_without_echo_end_it() {
    let mut call = TestCall::new();
    for name in ["answer-harbour", "answer-bread"] {
        assert!(!call.echo.has_ended());
        let played = speech(name);
        call.play(&played, &echo(&played, 0, 0.0, 0.0));
        call.pause(&silence(2_000));
    }
    assert!(call.echo.has_ended() && call.echo.canceller.is_none(), "its memory is free");
    assert_eq!(call.echo.finding(), EchoFinding::Ended);
    assert_eq!(call.answers, [CancelledAnswer { removed_db: None }; 2]);
    let played = speech("answer-harbour");
    let input = echo(&played, 2_400, 0.5, 0.0);
    call.play(&played, &input);
    assert_eq!(call.out[call.out.len() - input.len()..], input, "it is not used again");
}

#[test]
fn callers_who_answer_at_once_are_no_echo() {
    for gap in [100, 400, 700] {
        let mut call = TestCall::new();
        for (answer, caller) in [("answer-harbour", "caller-else"), ("answer-bread", "caller-sorry")] {
            let played = speech(answer);
            call.play(&played, &echo(&played, 0, 0.0, 0.0));
            call.pause(&silence(gap));
            let voice = speech(caller);
            call.pause(&voice);
            call.pause(&silence(2_500));
        }
        assert_eq!(call.answers, [CancelledAnswer { removed_db: None }; 2], "{gap} ms after the answers");
        assert!(call.echo.has_ended(), "{gap} ms after the answers");
    }
}

#[test]
fn soft_echoes_keep_it() {
    let mut call = TestCall::new();
    for answer in ["answer-harbour", "answer-bread", "answer-harbour"] {
        let played = speech(answer);
        call.play(&played, &echo(&played, 2_400, 0.01, 0.0));
        call.pause(&silence(2_500));
    }
    let found = call.answers.iter().filter(|answer| answer.removed_db.is_some()).count();
    assert_eq!((found, call.echo.has_ended()), (3, false), "{:?}", call.answers);
}

#[test]
fn input_passes_where_no_echo_is_found() {
    let mut call = TestCall::new();
    let played = speech("answer-harbour");
    let caller = speech("caller-wait");
    let headphones = echo(&played, 0, 0.0, 0.0);
    // Two seconds of playback, then a voice over it.
    let (before, after) = headphones.split_at(100 * PACKET);
    call.play(&played, before);
    assert!(!call.echo.is_running() && call.echo.phase == Phase::Seeking);
    assert_eq!(call.echo.finding(), EchoFinding::NoEcho);
    let over: Vec<f32> = after.iter().zip(caller.iter().cycle()).map(|(noise, voice)| noise + voice).collect();
    call.play(&played[before.len()..], &over[..50 * PACKET]);
    assert_eq!(call.out[call.out.len() - 50 * PACKET..], over[..50 * PACKET], "neither softer nor later");
}

#[test]
fn echo_that_comes_later_is_found() {
    for piece in [37, 320, 500] {
        let mut call = TestCall::new();
        let played = speech("answer-harbour");
        let quiet = echo(&played, 0, 0.0, 0.0);
        call.play(&played, &quiet);
        call.pause(&silence(2_500));
        // The headphones are off now.
        let input = echo(&played, 2_400, 0.5, 0.0);
        let (before, mut given) = (call.out.len(), 0);
        call.echo.queue_playback(&played, RATE, call.now()).unwrap();
        let begun = call.packets;
        for input in input.chunks(piece) {
            given += input.len();
            call.packets = begun + (given / PACKET) as u32;
            call.hear(input);
        }
        assert!(call.echo.is_running() && call.echo.is_aligned(), "in pieces of {piece}");
        assert_eq!(call.echo.finding(), EchoFinding::Echo);
        let removed = call.removed(&input, 3.0, 5.0);
        assert!(removed > 15.0, "{removed} dB in pieces of {piece}");
        // Behind the answer it still passes the canceller, which changes nothing.
        let caller = &speech("caller-wait")[..70 * PACKET];
        call.pause(caller);
        assert!(call.echo.is_running());
        call.echo.flush(&mut call.out, &mut call.plain);
        assert_eq!(call.out.len() - before, input.len() + caller.len(), "in pieces of {piece}");
        let (end, heard) = (&caller[65 * PACKET..], &call.out[call.out.len() - 5 * PACKET..]);
        let apart = end.iter().zip(heard).map(|(end, heard)| (end - heard).abs()).fold(0.0, f32::max);
        assert!(apart < 1e-4, "no sample is lost or added in pieces of {piece}: {apart}");
    }
}

#[test]
fn lost_input_keeps_the_delay() {
    let played = speech("answer-harbour");
    let input = echo(&played, 2_400, 0.5, 0.0);
    let mut call = TestCall::new();
    for (number, (played, input)) in played.chunks(PACKET).zip(input.chunks(PACKET)).enumerate() {
        call.echo.push_playback(played, RATE, call.now()).unwrap();
        call.packets += 1;
        // Ten packets never come.
        if !(100..110).contains(&number) {
            call.hear(input);
        }
    }
    let known = call.echo.canceller.as_ref().unwrap().delay().unwrap();
    assert!(known.abs_diff(2_400 - PACKET) < 320, "{known}");
    let removed = call.removed(&input[10 * PACKET..], 5.0, 6.0);
    assert!(removed > 15.0, "{removed} dB");
}

#[test]
fn no_sample_is_lost_or_added() {
    let played = speech("caller-wait");
    for piece in [37, 160, 500, 4_000] {
        let mut call = TestCall::new();
        let input = echo(&played, 2_000, 0.5, 0.0);
        let (mut given, mut queued) = (0, false);
        for input in [&silence(300)[..], &input, &silence(2_500), &input].concat().chunks(piece) {
            if given >= 4_800 && !queued {
                queued = true;
                call.echo.queue_playback(&played, RATE, call.now()).unwrap();
            }
            given += input.len();
            call.packets = (given / PACKET) as u32;
            call.hear(input);
        }
        assert!(!call.echo.is_running());
        assert_eq!(call.out.len(), given, "in pieces of {piece}");
        let end = call.out.len() - input.len();
        assert_eq!(call.out[end..], input, "what follows is at its place");
        call.echo.queue_playback(&played, RATE, call.now()).unwrap();
        call.hear(&input[..5_000]);
        call.echo.flush(&mut call.out, &mut call.plain);
        assert_eq!(call.out.len(), given + 5_000);
    }
}

#[test]
fn steady_packets_allocate_nothing() {
    let played = speech("answer-harbour").repeat(2);
    let input = echo(&played, 2_400, 0.5, 2e-4);
    let mut call = TestCall::new();
    let (mut before, mut heard, mut plain) = (0, Vec::with_capacity(PACKET), Vec::with_capacity(2 * PACKET));
    for (number, (played, input)) in played.chunks(PACKET).zip(input.chunks(PACKET)).enumerate() {
        if number == 250 {
            before = counts(CountScope::Thread).allocations;
        }
        call.echo.push_playback(played, RATE, call.now()).unwrap();
        call.packets += 1;
        call.echo.note_input(20 * MS, call.now());
        assert!(call.echo.begin_piece());
        heard.clear();
        plain.clear();
        heard.extend_from_slice(input);
        call.echo.cancel(&mut heard, &mut plain);
    }
    assert!(call.echo.is_aligned() && call.packets > 500);
    assert_eq!(counts(CountScope::Thread).allocations, before);
}

#[test]
fn listener_gets_input_untouched_until_an_echo() {
    // A caller without an echo speaks from the 200th ms of an answer on.
    let (played, caller) = (speech("answer-bread"), speech("caller-sorry"));
    let mut input = echo(&played, 0, 0.0, 0.0);
    input[3_200..].iter_mut().zip(&caller).for_each(|(sample, voice)| *sample += 0.5 * voice);
    let (played, input) = (&played[..RATE as usize], &input[..RATE as usize]);
    let mut call = TestCall::new();
    call.play(played, input);
    call.echo.flush(&mut call.out, &mut call.plain);
    assert_eq!((call.echo.is_aligned(), call.echo.finding()), (false, EchoFinding::Unknown));
    assert_eq!(call.plain, input);
    let removed = call.removed(input, 0.2, 1.0);
    assert!(removed > 5.0, "the detector gets {removed} dB less of this caller");
}

#[test]
fn listener_gets_no_known_echo() {
    let played = speech("answer-harbour");
    let input = echo(&played, 2_400, 0.5, 0.0);
    let mut call = TestCall::new();
    call.play(&played, &input);
    call.echo.flush(&mut call.out, &mut call.plain);
    assert_eq!(call.plain.len(), call.out.len());
    let known = call.plain.iter().zip(&call.out).rposition(|(plain, out)| plain != out).unwrap();
    assert!(known < 2 * RATE as usize, "the echo is known after {known} samples");
    assert!(call.removed(&input, 3.0, 5.0) > 15.0);
    // The change from one to the other is no click: it is no steeper than the sound itself.
    let steepest = |sound: &[f32]| sound.windows(2).map(|pair| (pair[1] - pair[0]).abs()).fold(0.0, f32::max);
    let around = known.saturating_sub(PACKET)..known + 2;
    assert!(steepest(&call.plain[around.clone()]) <= 1.2 * steepest(&input[around]) + 1e-3);
}
