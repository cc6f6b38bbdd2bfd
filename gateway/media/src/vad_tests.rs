// Scripts of one range are intended.
#![allow(clippy::single_range_in_vec_init)]

use repartee_testkit::random::Random;
use repartee_testkit::signal::level_db;

use super::*;
use crate::testdata::speech;

/// Voice detector with scripted probabilities, one per frame of 16 ms.
struct Scripted(Box<dyn FnMut(usize) -> f32>, usize);

impl VoiceDetector for Scripted {
    fn frame_len(&self) -> usize {
        256
    }

    fn probability(&mut self, frame: &[f32]) -> f32 {
        assert_eq!(frame.len(), 256);
        self.1 += 1;
        (self.0)(self.1 - 1)
    }
}

/// Creates a turn detector with voice in the given ranges of frames.
fn scripted<const N: usize>(voice: [std::ops::Range<usize>; N]) -> TurnDetector<Scripted> {
    let probability = move |frame| if voice.iter().any(|range| range.contains(&frame)) { 0.9 } else { 0.1 };
    TurnDetector::new(Scripted(Box::new(probability), 0), TurnSettings::default())
}

fn silence(ms: usize) -> Vec<f32> {
    vec![0.0; ms * 16]
}

fn started(event: TurnEvent) -> u64 {
    match event {
        TurnEvent::SpeechStarted { audio_start_ms } => audio_start_ms,
        _ => panic!("{event:?}"),
    }
}

fn stopped(event: TurnEvent) -> u64 {
    match event {
        TurnEvent::SpeechStopped { audio_end_ms } => audio_end_ms,
        _ => panic!("{event:?}"),
    }
}

#[test]
fn turn_includes_prefix_padding_and_trailing_silence() {
    let mut turns = scripted([50..100]);
    let events = turns.push(&silence(3_000));
    let voice_end = 100 * 16;
    assert_eq!(
        events,
        [
            TurnEvent::SpeechStarted { audio_start_ms: 50 * 16 - 300 },
            // The first frame boundary at which 500 ms of silence are complete.
            TurnEvent::SpeechStopped { audio_end_ms: voice_end + 512 },
        ]
    );
    assert_eq!(events[0].sample(), 500 * 16);
}

#[test]
fn prefix_padding_stops_at_the_previous_turn() {
    let mut turns = scripted([5..40, 75..120]);
    let events = turns.push(&silence(4_000));
    assert_eq!(started(events[0]), 0);
    let end = stopped(events[1]);
    assert_eq!(started(events[2]), end, "the padding would begin at {} ms", 75 * 16 - 300);
}

#[test]
fn clicks_open_no_turn() {
    let mut turns = scripted([10..12, 30..33, 50..51]);
    assert_eq!(turns.push(&silence(2_000)), []);
}

#[test]
fn short_pause_stays_within_the_turn() {
    let mut turns = scripted([10..40, 65..80]);
    let events = turns.push(&silence(3_000));
    assert_eq!(events.len(), 2, "{events:?}");
    assert_eq!(stopped(events[1]), 80 * 16 + 512);
}

#[test]
fn each_pause_is_reported_once() {
    let mut turns = scripted([10..40, 60..80]);
    turns.configure(TurnSettings { pause_ms: Some(200), ..TurnSettings::default() });
    let events = turns.push(&silence(3_000));
    assert_eq!(
        events[1..],
        [
            TurnEvent::Paused { audio_end_ms: 40 * 16 + 208 },
            TurnEvent::Resumed { audio_ms: 60 * 16 },
            TurnEvent::Paused { audio_end_ms: 80 * 16 + 208 },
            TurnEvent::SpeechStopped { audio_end_ms: 80 * 16 + 512 },
        ]
    );
    // Without a pause event if the turn ends at the same silence.
    let mut turns = scripted([10..40]);
    turns.configure(TurnSettings { pause_ms: Some(200), silence_duration_ms: 200, ..TurnSettings::default() });
    assert_eq!(turns.push(&silence(1_000)).len(), 2);
}

/// Creates a turn detector with smart-turn and voice in the given ranges of frames.
fn judged<const N: usize>(eagerness: Eagerness, voice: [std::ops::Range<usize>; N]) -> TurnDetector<Scripted> {
    judged_by(PauseModel::SmartTurn, eagerness, voice)
}

/// Creates a turn detector with a turn-detection model and voice in the given ranges of frames.
fn judged_by<const N: usize>(
    model: PauseModel,
    eagerness: Eagerness,
    voice: [std::ops::Range<usize>; N],
) -> TurnDetector<Scripted> {
    let mut turns = scripted(voice).with_turn_model(model);
    turns.configure(TurnSettings { eagerness: Some(eagerness), ..TurnSettings::default() });
    turns
}

/// Pushes `frames` frames one by one; `answer` gets each question and the number of frames so far, and its answers apply at once.
/// Returns the boundaries.
fn ask(
    turns: &mut TurnDetector<Scripted>,
    frames: usize,
    mut answer: impl FnMut(&TurnQuery, usize) -> Option<Option<f32>>,
) -> Vec<TurnEvent> {
    let mut events = Vec::new();
    for frame in 1..=frames {
        events.extend(turns.push(&[0.0; 256]));
        if let Some(question) = turns.next_query()
            && let Some(probability) = answer(&question, frame)
        {
            events.extend(turns.on_prediction(question.id, probability));
        }
    }
    events
}

const EAGERNESS: [(Eagerness, u64, u64, f32); 3] =
    [(Eagerness::Low, 1_200, 8_000, 0.7), (Eagerness::Medium, 700, 4_000, 0.5), (Eagerness::High, 400, 2_000, 0.3)];

/// The first frame boundary at or after `ms`.
fn frames_of(ms: u64) -> u64 {
    ms.next_multiple_of(16)
}

#[test]
fn finished_turn_ends_at_the_first_question() {
    let mut turns = judged(Eagerness::Low, [10..40]);
    let events = ask(&mut turns, 400, |_, _| Some(Some(0.9)));
    assert_eq!(events[1..], [TurnEvent::SpeechStopped { audio_end_ms: 40 * 16 + 208 }]);
}

#[test]
fn eagerness_sets_threshold_and_longest_wait() {
    for (eagerness, _, longest_ms, threshold) in EAGERNESS {
        let end = |probability: f32| {
            let events = ask(&mut judged(eagerness, [10..40]), 600, |_, _| Some(Some(probability)));
            stopped(events[1]) - 40 * 16
        };
        assert_eq!(end(threshold), 208, "{eagerness:?}");
        assert_eq!(end(threshold - 0.01), frames_of(longest_ms), "{eagerness:?}");
    }
}

#[test]
fn unanswered_question_leaves_the_fixed_silence() {
    for (eagerness, fixed_ms, ..) in EAGERNESS {
        for answer in [None, Some(None), Some(Some(f32::NAN))] {
            let events = ask(&mut judged(eagerness, [10..40]), 600, |_, _| answer);
            assert_eq!(stopped(events[1]), 40 * 16 + frames_of(fixed_ms), "{eagerness:?} {answer:?}");
        }
    }
}

#[test]
fn questions_repeat_as_silence_goes_on() {
    let mut asked = Vec::new();
    let events = ask(&mut judged(Eagerness::Medium, [10..40]), 600, |question, frame| {
        asked.push((frame as u64 - 40) * 16);
        Some(Some(if question.id == 4 { 0.5 } else { 0.0 }))
    });
    assert_eq!(asked, [208, 720, 1_232, 1_744]);
    assert_eq!(stopped(events[1]), 40 * 16 + 1_744);
}

#[test]
fn open_question_is_not_asked_again() {
    let mut count = 0;
    ask(&mut judged(Eagerness::Low, [10..40]), 110, |_, _| {
        count += 1;
        None
    });
    assert_eq!(count, 1);
}

#[test]
fn voice_after_a_question_voids_its_answer() {
    let mut turns = judged(Eagerness::Medium, [10..40, 60..80]);
    let mut questions = Vec::new();
    ask(&mut turns, 70, |question, _| {
        questions.push(question.id);
        None
    });
    assert_eq!(questions.len(), 1);
    assert_eq!(turns.on_prediction(questions[0], Some(1.0)), None);
    assert!(turns.voice_end().is_some(), "the turn goes on");
    // The next pause has its own question, and the old answer does not affect it.
    let mut second = Vec::new();
    ask(&mut turns, 30, |question, _| {
        second.push(question.id);
        None
    });
    assert_eq!((second.len(), second[0]), (1, questions[0] + 1));
    assert_eq!(turns.on_prediction(questions[0], Some(1.0)), None);
    assert!(matches!(turns.on_prediction(second[0], Some(1.0)), Some(TurnEvent::SpeechStopped { .. })));
    assert_eq!(turns.on_prediction(second[0], Some(1.0)), None);
}

#[test]
fn question_holds_at_most_8_s_of_turn() {
    for (voice, samples) in [(50..100, (50 * 16 + 208 + 300) * 16), (50..900, 8_000 * 16)] {
        let last = voice.end;
        let mut turns = judged(Eagerness::Medium, [voice]);
        let audio: Vec<f32> = (0..(last + 13) * 256).map(|sample| sample as f32).collect();
        turns.push(&audio);
        let turn = turns.next_query().unwrap().turn;
        assert_eq!(turn, audio[audio.len() - samples..]);
    }
}

#[test]
fn silence_ends_turns_without_a_judge() {
    for (eagerness, fixed_ms, ..) in EAGERNESS {
        let mut turns = scripted([10..40]);
        turns.configure(TurnSettings { eagerness: Some(eagerness), ..TurnSettings::default() });
        let events = ask(&mut turns, 200, |question, _| panic!("{question:?}"));
        assert_eq!(stopped(events[1]), 40 * 16 + frames_of(fixed_ms));
    }
}

#[test]
fn probability_of_the_network_sets_the_silence() {
    for (eagerness, ..) in EAGERNESS {
        let silence_ms = |probability| PauseModel::Embedded.silence_ms(eagerness, probability);
        for probability in [0.0, 0.04, 0.3, 0.5, 0.8, 0.95, 1.0] {
            let mut turns = judged_by(PauseModel::Embedded, eagerness, [10..40]);
            let events = ask(&mut turns, 600, |_, _| Some(Some(probability)));
            let expected = frames_of(silence_ms(probability).max(32));
            assert_eq!(stopped(events[1]) - 40 * 16, expected, "{eagerness:?} {probability}");
        }
        let silences: Vec<u64> = (0..=100).map(|percent| silence_ms(percent as f32 / 100.0)).collect();
        assert!(silences.is_sorted_by(|less, more| less >= more), "{eagerness:?} {silences:?}");
        // Earlier than by the fixed silence where the network is sure, later where it is sure of the opposite.
        let fixed = eagerness.fixed_ms();
        assert!(silences[100] < fixed && fixed < silences[0], "{eagerness:?} {silences:?}");
    }
}

#[test]
fn last_judgement_of_the_network_counts() {
    let mut turns = judged_by(PauseModel::Embedded, Eagerness::Medium, [10..40]);
    let events = ask(&mut turns, 600, |question, _| Some(Some(if question.id == 3 { 1.0 } else { 0.0 })));
    assert_eq!(stopped(events[1]), 40 * 16 + 32 + 2 * 80);
}

#[test]
fn likely_end_is_a_pause_first() {
    let mut turns = judged_by(PauseModel::Embedded, Eagerness::Low, [10..40]);
    let settings = TurnSettings { pause_ms: Some(200), eagerness: Some(Eagerness::Low), ..TurnSettings::default() };
    turns.configure(settings);
    let events = ask(&mut turns, 600, |_, _| Some(Some(1.0)));
    assert_eq!(events[1], TurnEvent::Paused { audio_end_ms: 40 * 16 + 32 });
    assert!(matches!(events[2..], [TurnEvent::SpeechStopped { .. }]), "{events:?}");
    // An unlikely one is a pause after the usual silence.
    let mut turns = judged_by(PauseModel::Embedded, Eagerness::Low, [10..40]);
    turns.configure(settings);
    let events = ask(&mut turns, 600, |_, _| Some(Some(0.1)));
    assert_eq!(events[1], TurnEvent::Paused { audio_end_ms: 40 * 16 + 208 });
}

#[test]
fn fixed_silence_asks_no_judge() {
    let events =
        ask(&mut scripted([10..40]).with_turn_model(PauseModel::SmartTurn), 200, |question, _| panic!("{question:?}"));
    assert_eq!(stopped(events[1]), 40 * 16 + 512);
}

#[test]
fn an_interruption_takes_120_ms_of_voice() {
    for (frames, begins) in [(7, false), (8, true)] {
        let mut turns = scripted([10..10 + frames]);
        turns.set_echo_level(Some(EchoLevel::NONE));
        assert_eq!(!turns.push(&silence(400)).is_empty(), begins, "{frames} frames");
    }
}

/// Turn events of a voice of `voice` frames during pausable playback.
fn over_playback(voice: usize) -> Vec<TurnEvent> {
    let probability = move |frame| if (10..10 + voice).contains(&frame) { 0.9 } else { 0.1 };
    let mut turns = TurnDetector::new(Scripted(Box::new(probability), 0), TurnSettings::default());
    turns.set_echo_level(Some(EchoLevel::NONE));
    turns.set_pausable(true);
    turns.push(&vec![0.1; 16_000])
}

#[test]
fn first_voice_pauses_playback() {
    let paused = TurnEvent::PossibleBargeIn { audio_ms: 11 * 16 };
    assert_eq!(over_playback(20), [paused, TurnEvent::BargeInDismissed { audio_ms: 36 * 16 }], "a backchannel");
    assert_eq!(over_playback(3), [paused, TurnEvent::BargeInDismissed { audio_ms: 22 * 16 }], "a cough");
    assert_eq!(over_playback(40)[..2], [paused, TurnEvent::SpeechStarted { audio_start_ms: 0 }]);
}

#[test]
fn cleared_playback_is_not_paused_any_more() {
    let mut turns = scripted([10..60]);
    turns.set_echo_level(Some(EchoLevel::NONE));
    turns.set_pausable(true);
    let sound = vec![0.1; 256 * 100];
    assert_eq!(turns.push(&sound[..256 * 14]).len(), 1);
    // The client has cleared the playback: the voice is judged as during silence.
    turns.set_echo_level(None);
    turns.set_pausable(false);
    let events = turns.push(&sound[..256 * 86]);
    assert!(matches!(events[..], [TurnEvent::SpeechStarted { .. }, TurnEvent::SpeechStopped { .. }]), "{events:?}");
}

#[test]
fn later_playback_pauses_anew() {
    let mut turns = scripted([10..13, 60..100]);
    let sound = vec![0.1; 256 * 100];
    let mut begun = Vec::new();
    for (frames, plays) in [(14, true), (30, false), (20, true)] {
        turns.set_echo_level(plays.then_some(EchoLevel::NONE));
        turns.set_pausable(plays);
        begun.extend(turns.push(&sound[..256 * frames]));
    }
    let paused = |frames: u64| TurnEvent::PossibleBargeIn { audio_ms: frames * 16 };
    assert_eq!(begun, [paused(11), paused(61)], "what was cleared is not judged any more");
}

#[test]
fn settings_change_while_a_turn_is_open() {
    let mut turns = scripted([10..40]);
    assert_eq!(turns.push(&silence(40 * 16)).len(), 1);
    turns.configure(TurnSettings { silence_duration_ms: 200, ..TurnSettings::default() });
    assert_eq!(turns.push(&silence(1_000)), [TurnEvent::SpeechStopped { audio_end_ms: 40 * 16 + 208 }]);
}

#[test]
fn longest_turn_ends_while_voice_goes_on() {
    let mut turns = scripted([50..400]).with_longest_turn(Duration::from_secs(3));
    let events = turns.push(&silence(8_000));
    let [first, cut, second, rest] = events[..] else { panic!("{events:?}") };
    assert!((3_000..3_016).contains(&(stopped(cut) - started(first))), "{events:?}");
    assert_eq!(started(second), stopped(cut), "the next turn begins where it was cut");
    assert!(turns.take_cut() && !turns.take_cut());
    assert!(stopped(rest) > stopped(cut));
}

#[test]
fn next_turn_starts_after_a_client_ended_turn() {
    let mut turns = scripted([10..60, 60..100]);
    turns.push(&silence(60 * 16));
    assert!(turns.voice_end().is_some());
    turns.end_turn();
    assert_eq!(turns.voice_end(), None);
    let events = turns.push(&silence(1_500));
    assert_eq!(started(events[0]), 60 * 16);
    assert_eq!(events.len(), 2);
}

#[test]
fn any_split_gives_the_same_turns() {
    let mut audio = silence(700);
    audio.extend(speech("question"));
    audio.extend(silence(900));
    let whole = TurnDetector::default().push(&audio);
    assert_eq!(whole.len(), 2);
    for piece in [1, 160, 320, 777, 16_000] {
        let mut turns = TurnDetector::default();
        let events: Vec<_> = audio.chunks(piece).flat_map(|chunk| turns.push(chunk)).collect();
        assert_eq!(events, whole, "pieces of {piece}");
    }
}

#[test]
fn turn_boundaries_fit_spoken_sentences() {
    for name in ["question", "sentence"] {
        let voice = speech(name);
        let voice_ms = voice.len() as u64 / 16;
        let mut turns = TurnDetector::default();
        let mut audio = silence(1_000);
        audio.extend(&voice);
        audio.extend(silence(1_500));
        audio.extend(&voice);
        audio.extend(silence(1_500));
        let events = turns.push(&audio);
        assert_eq!(events.len(), 4, "{name}: {events:?}");
        for (turn, begin) in [(0, 1_000), (1, 2_500 + voice_ms)] {
            let (start, end) = (started(events[2 * turn]), stopped(events[2 * turn + 1]));
            let voice_start = start + 300;
            assert!((begin - 100..=begin + 150).contains(&voice_start), "{name}: {voice_start}, said at {begin}");
            let said = begin + voice_ms;
            assert!((said - 250 + 500..=said + 150 + 500).contains(&end), "{name}: {end}, ended at {said}");
        }
    }
}

#[test]
fn quiet_and_noisy_voices_are_detected() {
    let mut random = Random::new(1);
    for (gain, noise) in [(0.05, 0.0), (0.5, 0.01)] {
        let mut audio = silence(1_000);
        audio.extend(speech("question").iter().map(|sample| sample * gain));
        audio.extend(silence(1_500));
        for sample in &mut audio {
            *sample += noise * (random.unit() as f32 * 2.0 - 1.0);
        }
        let events = TurnDetector::default().push(&audio);
        assert_eq!(events.len(), 2, "gain {gain}, noise {noise}: {events:?}");
    }
}

#[test]
fn noise_hum_and_clicks_open_no_turn() {
    let mut random = Random::new(2);
    let noise: Vec<f32> = (0..160_000).map(|_| 0.1 * (random.unit() as f32 * 2.0 - 1.0)).collect();
    assert!(level_db(&noise) > -30.0);
    assert_eq!(TurnDetector::default().push(&noise), []);
    let hum: Vec<f32> =
        (0..160_000).map(|i| 0.1 * (std::f32::consts::TAU * 50.0 * i as f32 / 16_000.0).sin()).collect();
    assert_eq!(TurnDetector::default().push(&hum), []);
    let clicks: Vec<f32> = (0..160_000).map(|i| if i % 8_000 < 16 { 0.8 } else { 0.0 }).collect();
    assert_eq!(TurnDetector::default().push(&clicks), []);
}

#[test]
fn non_finite_samples_leave_the_detector_working() {
    let mut turns = TurnDetector::default();
    turns.push(&[f32::NAN, f32::INFINITY, -1e30].repeat(2_000));
    turns.push(&silence(1_000));
    turns.end_turn();
    let mut audio = speech("question");
    audio.extend(silence(1_000));
    assert_eq!(turns.push(&audio).len(), 2);
}
