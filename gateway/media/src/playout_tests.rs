use repartee_testkit::signal::counted;

use super::*;

const RATE: u32 = 24_000;
const MS: Duration = Duration::from_millis(1);

fn audio(ms: usize) -> Vec<f32> {
    vec![0.25; ms * RATE as usize / 1_000]
}

/// Audible samples that differ from each other.
fn numbered(length: usize) -> Vec<f32> {
    counted(length).iter().map(|sample| sample + 0.5).collect()
}

/// Polls like a driver at each deadline until `until`. Returns the outputs with their times in ms since `start`.
fn run(playout: &mut Playout, start: Instant, from: Instant, until: Instant) -> Vec<(u128, PlayoutOutput)> {
    let mut outputs = Vec::new();
    let mut now = from;
    while now <= until {
        while let Some(output) = playout.poll(now) {
            outputs.push(((now - start).as_millis(), output));
        }
        match playout.next_deadline() {
            Some(deadline) => now = deadline.max(now),
            None => break,
        }
    }
    outputs
}

fn times(outputs: &[(u128, PlayoutOutput)]) -> Vec<u128> {
    outputs.iter().map(|(ms, _)| *ms).collect()
}

#[test]
fn first_frame_leaves_at_once_then_every_20ms() {
    let start = Instant::now();
    let mut playout = Playout::new(RATE);
    playout.push(1, 7, &audio(100)).unwrap();
    playout.end(1);
    let outputs = run(&mut playout, start, start, start + 1_000 * MS);
    assert_eq!(times(&outputs), [0, 20, 40, 60, 80, 100]);
    assert!(matches!(&outputs[0].1, PlayoutOutput::Frame(frame) if frame.first && frame.item == 7));
    assert!(matches!(&outputs[1].1, PlayoutOutput::Frame(frame) if !frame.first && frame.samples.len() == 480));
    assert_eq!(outputs[5].1, PlayoutOutput::Drained { generation: 1 });
    assert_eq!((playout.underruns(), playout.next_deadline()), (0, None));
}

#[test]
fn odd_pieces_become_frames_with_padded_tail() {
    let start = Instant::now();
    let mut playout = Playout::new(RATE);
    let pushed = numbered(1365 + 1920 + 555 + 1);
    let mut rest = &pushed[..];
    for length in [1365, 1920, 555, 1] {
        let (piece, after) = rest.split_at(length);
        playout.push(1, 7, piece).unwrap();
        rest = after;
    }
    playout.end(1);
    let outputs = run(&mut playout, start, start, start + 1_000 * MS);
    let played: Vec<f32> = outputs
        .iter()
        .filter_map(|(_, output)| match output {
            PlayoutOutput::Frame(frame) => Some(frame.samples.clone()),
            PlayoutOutput::Drained { .. } => None,
        })
        .flatten()
        .collect();
    let mut expected = pushed;
    expected.resize(9 * 480, 0.0);
    assert!(played == expected, "samples are lost, added or out of order");
}

#[test]
fn underrun_counts_once_and_resumes_at_once() {
    let start = Instant::now();
    let mut playout = Playout::new(RATE);
    playout.push(1, 7, &audio(40)).unwrap();
    assert_eq!(times(&run(&mut playout, start, start, start + 300 * MS)), [0, 20]);
    for ms in [60, 80, 100] {
        assert_eq!(playout.poll(start + ms * MS), None);
    }
    assert_eq!(playout.underruns(), 1);
    playout.push(1, 7, &audio(40)).unwrap();
    playout.end(1);
    let late = start + 333 * MS;
    assert_eq!(times(&run(&mut playout, start, late, late + 500 * MS)), [333, 353, 373]);
    assert_eq!(playout.underruns(), 1);
}

#[test]
fn waiting_for_first_audio_is_no_underrun() {
    let start = Instant::now();
    let mut playout = Playout::new(RATE);
    assert_eq!(playout.poll(start), None);
    playout.push(1, 7, &audio(5)).unwrap();
    assert_eq!(playout.poll(start + 20 * MS), None);
    playout.push(1, 7, &audio(15)).unwrap();
    playout.end(1);
    assert_eq!(times(&run(&mut playout, start, start + 30 * MS, start + 500 * MS)), [30, 50]);
    assert_eq!(playout.poll(start + 400 * MS), None);
    playout.push(2, 8, &audio(20)).unwrap();
    assert!(matches!(playout.poll(start + 500 * MS), Some(PlayoutOutput::Frame(frame)) if frame.first));
    assert_eq!(playout.underruns(), 0);
}

#[test]
fn late_end_drains_at_once() {
    let start = Instant::now();
    let mut playout = Playout::new(RATE);
    playout.push(1, 7, &audio(20)).unwrap();
    run(&mut playout, start, start, start + 100 * MS);
    playout.end(1);
    assert_eq!(playout.poll(start + 100 * MS), Some(PlayoutOutput::Drained { generation: 1 }));
    assert_eq!(playout.poll(start + 100 * MS), None);
}

#[test]
fn late_poll_catches_up_only_a_short_backlog() {
    let start = Instant::now();
    let mut playout = Playout::new(RATE);
    playout.push(1, 7, &audio(2_000)).unwrap();
    let mut burst_at = |ms: u32| std::iter::from_fn(|| playout.poll(start + ms * MS)).count();
    assert_eq!(burst_at(0), 1);
    assert_eq!(burst_at(100), 5, "frames of 20, 40, 60, 80 and 100 ms");
    assert_eq!(burst_at(1_000), 1, "the grid moved");
    assert_eq!(burst_at(1_020), 1);
}

#[test]
fn clear_reports_played_and_refuses_stale_audio() {
    let start = Instant::now();
    let mut playout = Playout::new(RATE);
    playout.push(3, 7, &audio(100)).unwrap();
    playout.push(3, 8, &audio(50)).unwrap();
    run(&mut playout, start, start, start + 45 * MS);
    assert_eq!(playout.current(), Some((3, 7, 60 * MS)));
    assert_eq!(
        playout.clear(),
        [
            ClearedItem { generation: 3, item: 7, played: 60 * MS, dropped: 40 * MS },
            ClearedItem { generation: 3, item: 8, played: Duration::ZERO, dropped: 50 * MS },
        ]
    );
    assert_eq!(playout.poll(start + 100 * MS), None);
    assert_eq!(playout.push(3, 8, &audio(20)), Err(PushError::Stale));
    assert_eq!(playout.push(2, 6, &audio(20)), Err(PushError::Stale));
    assert_eq!((playout.unsent(), playout.current()), (Duration::ZERO, None));
    playout.push(4, 9, &audio(20)).unwrap();
    assert!(matches!(playout.poll(start + 100 * MS), Some(PlayoutOutput::Frame(frame)) if frame.generation == 4));
}

#[test]
fn clear_while_starving_reports_what_was_played() {
    let start = Instant::now();
    let mut playout = Playout::new(RATE);
    playout.push(1, 7, &audio(20)).unwrap();
    run(&mut playout, start, start, start + 90 * MS);
    assert_eq!(playout.clear(), [ClearedItem { generation: 1, item: 7, played: 20 * MS, dropped: Duration::ZERO }]);
}

#[test]
fn next_response_waits_for_the_previous() {
    let start = Instant::now();
    let mut playout = Playout::new(RATE);
    playout.push(1, 7, &audio(40)).unwrap();
    playout.end(1);
    playout.push(2, 8, &audio(20)).unwrap();
    playout.end(2);
    let outputs = run(&mut playout, start, start, start + 500 * MS);
    assert_eq!(times(&outputs), [0, 20, 40, 40, 60]);
    assert_eq!(outputs[2].1, PlayoutOutput::Drained { generation: 1 });
    assert_eq!(outputs[4].1, PlayoutOutput::Drained { generation: 2 });
}

#[test]
fn cleared_generation_leaves_the_others_playing() {
    let start = Instant::now();
    for cleared in [1, 2] {
        let mut playout = Playout::new(RATE);
        playout.push(1, 7, &audio(60)).unwrap();
        playout.end(1);
        playout.push(2, 8, &audio(40)).unwrap();
        playout.poll(start).unwrap();
        playout.clear_generation(cleared);
        assert_eq!(playout.push(cleared, 7, &audio(20)), Err(PushError::Stale));
        let left = if cleared == 1 { 2 } else { 1 };
        playout.end(left);
        let outputs = run(&mut playout, start, start + 20 * MS, start + 500 * MS);
        assert_eq!(times(&outputs), [20, 40, 60]);
        assert_eq!(outputs[2].1, PlayoutOutput::Drained { generation: left });
        assert_eq!((playout.unsent(), playout.underruns()), (Duration::ZERO, 0));
        playout.push(3, 9, &audio(20)).unwrap();
    }
}

#[test]
fn full_playout_refuses_until_polled() {
    let start = Instant::now();
    let mut playout = Playout::new(RATE);
    playout.push(1, 7, &audio(10_000)).unwrap();
    assert!(!playout.is_full());
    playout.push(1, 7, &audio(20)).unwrap();
    assert!(playout.is_full());
    assert_eq!(playout.push(1, 7, &audio(1)), Err(PushError::Full));
    playout.poll(start).unwrap();
    playout.push(1, 7, &audio(1)).unwrap();
}

#[test]
fn response_without_audio_reports_nothing() {
    let mut playout = Playout::new(RATE);
    playout.end(1);
    assert_eq!(playout.poll(Instant::now()), None);
    assert_eq!(playout.push(1, 7, &audio(20)), Err(PushError::Stale));
}

/// Creates a playout clock that has played 100 of 400 ms.
fn playing(start: Instant) -> (Playout, Vec<f32>) {
    let mut playout = Playout::new(RATE);
    playout.push(1, 7, &numbered(400 * 24)).unwrap();
    playout.end(1);
    let outputs = run(&mut playout, start, start, start + 80 * MS);
    (playout, samples_of(&outputs))
}

fn samples_of(outputs: &[(u128, PlayoutOutput)]) -> Vec<f32> {
    let frames = outputs.iter().filter_map(|(_, output)| match output {
        PlayoutOutput::Frame(frame) => Some(&frame.samples[..]),
        PlayoutOutput::Drained { .. } => None,
    });
    frames.flatten().copied().collect()
}

#[test]
fn pauses_lose_and_repeat_nothing() {
    let start = Instant::now();
    let (mut playout, mut heard) = playing(start);
    assert!(playout.pause(start + 95 * MS));
    assert!(!playout.pause(start + 99 * MS), "it is paused already");
    assert_eq!(run(&mut playout, start, start + 95 * MS, start + 350 * MS), []);
    assert_eq!(playout.current(), Some((1, 7, 100 * MS)));
    assert_eq!(playout.quiet_for(start + 350 * MS), 250 * MS);
    playout.resume();
    let outputs = run(&mut playout, start, start + 355 * MS, start + 2_000 * MS);
    // On a new grid: the frames that were due during the pause do not leave in a burst.
    assert_eq!(times(&outputs)[..3], [355, 375, 395]);
    heard.extend(samples_of(&outputs));
    assert_eq!(heard, numbered(400 * 24));
    assert_eq!(outputs.last().unwrap().1, PlayoutOutput::Drained { generation: 1 });
    assert_eq!(playout.underruns(), 0);
}

#[test]
fn pauses_are_bounded() {
    let start = Instant::now();
    let (mut playout, mut heard) = playing(start);
    playout.pause(start + 90 * MS);
    assert_eq!(playout.next_deadline(), Some(start + 90 * MS + MAX_PAUSE));
    let outputs = run(&mut playout, start, start + 90 * MS, start + 2_000 * MS);
    assert_eq!(times(&outputs)[..2], [590, 610]);
    heard.extend(samples_of(&outputs));
    assert_eq!(heard, numbered(400 * 24));
}

#[test]
fn cleared_playback_is_not_paused() {
    let start = Instant::now();
    let (mut playout, _) = playing(start);
    playout.pause(start + 90 * MS);
    let cleared = playout.clear();
    assert_eq!((cleared[0].played, cleared[0].dropped), (100 * MS, 300 * MS));
    playout.push(2, 8, &audio(40)).unwrap();
    assert!(!playout.pause(start + 110 * MS), "nothing of it has played");
    let outputs = run(&mut playout, start, start + 120 * MS, start + 130 * MS);
    assert_eq!(times(&outputs), [120]);
    playout.pause(start + 130 * MS);
    playout.clear_generation(2);
    playout.push(3, 9, &audio(40)).unwrap();
    assert_eq!(times(&run(&mut playout, start, start + 150 * MS, start + 160 * MS)), [150]);
}

fn silence(ms: usize) -> Vec<f32> {
    vec![0.0005; ms * RATE as usize / 1_000]
}

/// Times and positions in the response of the frames, in ms.
fn positions(playout: &mut Playout, start: Instant, from: Instant, until: Instant) -> Vec<(u128, u128)> {
    let mut found = Vec::new();
    let mut now = from;
    while now <= until {
        while let Some(output) = playout.poll(now) {
            if let PlayoutOutput::Frame(_) = output {
                let (.., sent) = playout.current().unwrap();
                found.push(((now - start).as_millis(), sent.as_millis()));
            }
        }
        match playout.next_deadline() {
            Some(deadline) => now = deadline.max(now),
            None => break,
        }
    }
    found
}

#[test]
fn sound_behind_silence_begins_with_the_next_piece() {
    let start = Instant::now();
    let mut playout = Playout::new(RATE);
    playout.push(1, 7, &[]).unwrap();
    assert_eq!(playout.poll(start - 30 * MS), None);
    playout.push(1, 7, &[silence(60), audio(20)].concat()).unwrap();
    assert_eq!(playout.poll(start), None);
    // 10 ms of it are kept before the sound.
    assert_eq!(playout.next_deadline(), Some(start + 50 * MS));
    playout.push(1, 7, &audio(80)).unwrap();
    let from = start + 12 * MS;
    assert_eq!(
        positions(&mut playout, start, from, start + 60 * MS),
        [(12, 70), (32, 90), (52, 110)],
        "at once, and counted with what was skipped"
    );
    assert_eq!(playout.underruns(), 0);
}

#[test]
fn late_pieces_delay_no_sound_behind_silence() {
    let start = Instant::now();
    let mut playout = Playout::new(RATE);
    playout.push(1, 7, &[silence(40), audio(40)].concat()).unwrap();
    let found = positions(&mut playout, start, start, start + 200 * MS);
    // As the sound would have played behind its silence.
    assert_eq!(found, [(30, 50), (50, 70)]);
    assert_eq!(playout.underruns(), 1, "as with the silence, the next piece is late");
}

#[test]
fn silence_is_skipped_up_to_half_a_second() {
    let start = Instant::now();
    let mut playout = Playout::new(RATE);
    let mut found = Vec::new();
    for piece in 0..10 {
        playout.push(1, 7, &silence(80)).unwrap();
        let now = start + 80 * MS * piece;
        found.extend(positions(&mut playout, start, now, now + 79 * MS));
    }
    assert_eq!((found[0], found.last()), ((500, 520), Some(&(780, 800))), "half a second is skipped");
}

#[test]
fn silence_within_a_response_is_played() {
    let start = Instant::now();
    let mut playout = Playout::new(RATE);
    playout.push(1, 7, &[audio(20), silence(60)].concat()).unwrap();
    playout.push(1, 8, &[silence(60), audio(20)].concat()).unwrap();
    playout.end(1);
    assert_eq!(positions(&mut playout, start, start, start + 1_000 * MS).len(), 8);
}

#[test]
fn silent_responses_end() {
    let start = Instant::now();
    let mut playout = Playout::new(RATE);
    playout.push(1, 7, &silence(80)).unwrap();
    assert_eq!(playout.poll(start), None);
    playout.end(1);
    let outputs = run(&mut playout, start, start, start + 1_000 * MS);
    assert_eq!(times(&outputs), [0, 20]);
    assert!(matches!(&outputs[0].1, PlayoutOutput::Frame(frame) if frame.first));
    assert_eq!(outputs[1].1, PlayoutOutput::Drained { generation: 1 });
}
