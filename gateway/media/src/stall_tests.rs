//! Network stalls during speech, and muted tracks: encoder, jitter buffer, decoder and turn detector together, on a simulated clock.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::jitter::{JitterAction, JitterBuffer, MAX_STALL};
use super::level::is_audible;
use super::opus::{FRAME, OpusDecoder, OpusEncoder};
use super::vad::{TurnDetector, TurnEvent, TurnSettings};
use super::{testdata, vad};

const MS: Duration = Duration::from_millis(1);
/// Silence that ends a turn.
const SILENCE: Duration = Duration::from_millis(500);

/// Packets of a sentence and one second of silence; true for a loud packet.
fn sentence() -> Vec<(Bytes, bool)> {
    let mut samples = testdata::speech("sentence");
    samples.extend(vec![0.0; vad::RATE as usize]);
    let mut encoder = OpusEncoder::new(vad::RATE).unwrap();
    let frames = samples.chunks_exact(encoder.frame_samples());
    frames
        .map(|frame| (encoder.encode(frame).unwrap().payload, frame.iter().any(|sample| sample.abs() > 0.2)))
        .collect()
}

/// Sends a packet every 20 ms with `delay` by index, `None` for a lost packet; returns the turn boundaries and the times of their
/// detection.
fn turns(packets: &[(Bytes, bool)], delay: impl Fn(usize) -> Option<Duration>) -> Vec<(TurnEvent, Duration)> {
    let start = Instant::now();
    let mut on_their_way: Vec<_> = packets
        .iter()
        .enumerate()
        .filter_map(|(index, (payload, _))| delay(index).map(|delay| (FRAME * index as u32 + delay, index, payload)))
        .collect();
    on_their_way.sort();
    let (mut jitter, mut decoder) = (JitterBuffer::new(), OpusDecoder::new(vad::RATE).unwrap());
    let mut detector = TurnDetector::default();
    detector.configure(TurnSettings { silence_duration_ms: SILENCE.as_millis() as u64, ..TurnSettings::default() });
    let (mut found, mut arriving) = (Vec::new(), on_their_way.into_iter().peekable());
    for now in (0..packets.len() as u32 * 20 + 4_000).map(|ms| ms * MS) {
        while let Some((arrival, index, payload)) = arriving.next_if(|(arrival, ..)| *arrival <= now) {
            jitter.push(index as u16, index as u32 * 960, payload.clone(), start + arrival);
        }
        loop {
            let samples = match jitter.pop(start + now) {
                JitterAction::Packet { payload, .. } => {
                    let samples = decoder.decode(&payload).unwrap();
                    if !is_audible(&samples) {
                        jitter.mark_silent();
                    }
                    samples
                }
                JitterAction::Fec { next, duration, .. } => decoder.decode_fec(&next, duration).unwrap(),
                JitterAction::Conceal { duration, .. } | JitterAction::Stall { duration } => {
                    decoder.conceal(duration).unwrap()
                }
                JitterAction::Silence { duration, .. } => {
                    vec![0.0; (duration.as_millis() as u32 * vad::RATE / 1_000) as usize]
                }
                JitterAction::Wait { .. } => break,
            };
            found.extend(detector.push(&samples).into_iter().map(|event| (event, now)));
        }
    }
    found
}

/// Number of ended turns.
fn ends(turns: &[(TurnEvent, Duration)]) -> usize {
    turns.iter().filter(|(event, _)| matches!(event, TurnEvent::SpeechStopped { .. })).count()
}

#[test]
fn stall_in_mid_word_ends_no_turn() {
    let packets = sentence();
    let undisturbed = turns(&packets, |_| Some(Duration::ZERO));
    assert!(ends(&undisturbed) >= 1, "{undisturbed:?}");
    let loud: Vec<usize> = (10..packets.len()).filter(|index| packets[index - 1].1).step_by(7).collect();
    assert!(loud.len() >= 5, "{loud:?}");
    for from in loud {
        // No packet arrives for 700 ms, then all delayed packets arrive at once.
        let until = FRAME * from as u32 + 700 * MS;
        let stalled = turns(&packets, |index| {
            Some(if index < from { Duration::ZERO } else { until.saturating_sub(FRAME * index as u32) })
        });
        assert_eq!(ends(&stalled), ends(&undisturbed), "a stall at packet {from}: {stalled:?}");
    }
}

#[test]
fn muted_track_ends_the_turn() {
    let packets = sentence();
    let loud = (40..packets.len()).find(|index| packets[index - 1].1).unwrap();
    let muted = turns(&packets, |index| (index < loud).then_some(Duration::ZERO));
    let (_, at) = *muted.iter().rfind(|(event, _)| matches!(event, TurnEvent::SpeechStopped { .. })).unwrap();
    let waited = at - FRAME * loud as u32;
    assert!((MAX_STALL..MAX_STALL + SILENCE).contains(&waited), "{waited:?}");
}
