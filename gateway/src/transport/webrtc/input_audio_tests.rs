//! Tests of the input audio of a call.

use repartee_media::opus::OpusEncoder;
use repartee_testkit::signal::{dominant_frequency, sine};

use super::*;
use crate::transport::rtp_time_limit::MAX_AHEAD;

const MS: Duration = Duration::from_millis(1);

fn input() -> (InputAudio, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::new(80 * MS).unwrap());
    (InputAudio::new(16_000, metrics.clone()).unwrap(), metrics)
}

const TYPES: PayloadTypes = PayloadTypes { opus: 111, red: Some(63), telephone_event: Some(110) };

fn packet(ssrc: u32, sequence: u16, timestamp: u32, payload: &Bytes, arrival: Instant) -> RtpPacket {
    RtpPacket { ssrc, sequence, timestamp, payload_type: TYPES.opus, payload: payload.clone(), arrival }
}

/// Decodes all output due by `now`, and returns its duration.
fn decoded(input: &mut InputAudio, now: Instant) -> Duration {
    let mut events = VecDeque::new();
    input.decode(now, &mut events);
    Duration::from_secs(events.iter().flat_map(samples).count() as u64) / 16_000
}

fn samples(event: &TransportEvent) -> Vec<f32> {
    if let TransportEvent::Audio { samples, .. } = event { samples.clone() } else { Vec::new() }
}

#[test]
fn packets_claim_no_more_than_wall_time() {
    let (mut input, metrics) = input();
    let (start, mut sound) = (Instant::now(), Duration::ZERO);
    // Six frames of 20 ms in two bytes, every 5 ms: 24 times as much as time passes.
    for number in 0..1_000_u32 {
        let now = start + number * 5 * MS;
        input.push(packet(1, number as u16, number * 5_760, &Bytes::from_static(&[0x0b, 0x06]), now), TYPES);
        sound += decoded(&mut input, now);
    }
    assert!(sound <= 5_000 * MS + 5 * MS + MAX_AHEAD, "{sound:?} in five seconds");
    assert!(sound >= 5_000 * MS, "{sound:?}: what is believable is taken");
    input.count();
    let text = metrics.render().unwrap();
    let early = text.lines().find_map(|line| line.strip_prefix("repartee_rtp_packets_total{fate=\"early\"} "));
    assert!(early.unwrap().parse::<u32>().unwrap() > 900, "{text}");
}

#[test]
fn bursts_after_a_stall_are_taken_whole() {
    let (mut input, _) = input();
    let (start, mut sound) = (Instant::now(), Duration::ZERO);
    for number in 0..300_u32 {
        // After two seconds nothing arrives for 380 ms, and then all of it at once.
        let ms = if (100..119).contains(&number) { 119 * 20 } else { number * 20 };
        input.push(packet(1, number as u16, number * 960, &Bytes::from_static(&[0x08, 0, 0]), start + ms * MS), TYPES);
        sound += decoded(&mut input, start + ms * MS);
    }
    assert_eq!((sound, input.over_limit), (6_000 * MS, 0));
}

#[test]
fn clumps_are_taken_whole_for_hours() {
    for clump_ms in [200, 300, 400] {
        let (mut input, _) = input();
        let (start, mut sound, mut pushed) = (Instant::now(), Duration::ZERO, 0);
        for now_ms in (0..600_000_u32).step_by(10) {
            let now = start + now_ms * MS;
            // All packets since the last clump come at once, in order. Every other second is silent.
            if now_ms % clump_ms == 0 {
                for number in now_ms.saturating_sub(clump_ms) / 20..now_ms / 20 {
                    let payload = if number / 50 % 2 == 0 { &[0x08, 0, 0][..] } else { &[0x08] };
                    let payload = Bytes::copy_from_slice(payload);
                    input.push(packet(1, number as u16, number * 960, &payload, now), TYPES);
                    pushed += 1;
                }
            }
            sound += decoded(&mut input, now);
        }
        assert_eq!(input.over_limit, 0, "clumps of {clump_ms} ms");
        let stats = input.active.as_ref().unwrap().jitter.stats();
        let invented = stats.silence + stats.stalled;
        assert_eq!((stats.released, sound), (u64::from(pushed), pushed * 20 * MS + invented));
        // Once the clumps are known, none is taken for a pause.
        assert!(invented < 700 * MS, "{invented:?}");
    }
}

#[test]
fn a_track_replaces_another_without_loss() {
    let (mut input, _) = input();
    let (start, mut sound) = (Instant::now(), Duration::ZERO);
    let payload = Bytes::from_static(&[0x08, 0, 0]);
    for number in 0..100_u32 {
        let (ssrc, sequence) = if number < 50 { (1, number) } else { (2, 40_000 + number) };
        input.push(packet(ssrc, sequence as u16, number * 960, &payload, start + number * 20 * MS), TYPES);
        sound += decoded(&mut input, start + number * 20 * MS);
    }
    let stats = input.active.as_ref().unwrap().jitter.stats();
    assert_eq!((stats.released, stats.late, input.over_limit), (50, 0, 0));
    assert!(sound >= 2_000 * MS, "{sound:?}");
}

#[test]
fn odd_steps_of_timestamps_become_no_silence() {
    for step in [0, 1, 160, 320, 480, 960, 1_920, 2_880] {
        let (mut input, _) = input();
        let (start, mut sound) = (Instant::now(), Duration::ZERO);
        for number in 0..500_u32 {
            let payload = Bytes::from_static(&[0x08, 0, 0]);
            input.push(packet(1, number as u16, number * step, &payload, start + number * 20 * MS), TYPES);
            sound += decoded(&mut input, start + number * 20 * MS);
        }
        assert_eq!(input.over_limit, 0, "{step}");
        assert!((10_000 * MS..10_130 * MS).contains(&sound), "{step}: {sound:?}");
    }
}

#[test]
fn foreign_packets_are_neither_heard_nor_missed() {
    let tone = tone(440.0);
    let plain = {
        let (mut input, _) = input();
        let at = |index: usize| Instant::now() + index as u32 * 20 * MS;
        let heard: Vec<f32> = (0..50).flat_map(|index| hear(&mut input, 1, index, &tone[index], at(index))).collect();
        heard
    };
    // Comfort noise, PCMU, an unknown type, and padding alone between the packets of the tone.
    for (payload_type, payload) in [(13, vec![0x40]), (0, vec![0xff; 160]), (127, vec![0x78; 40]), (111, vec![])] {
        let (mut input, _) = input();
        let (start, mut events) = (Instant::now(), VecDeque::new());
        for (index, opus) in tone.iter().enumerate() {
            let (at, sequence) = (start + index as u32 * 20 * MS, 2 * index as u16);
            let ticks = index as u32 * 960;
            input.push(packet(1, sequence, ticks, opus, at), TYPES);
            let foreign = packet(1, sequence + 1, ticks, &Bytes::from(payload.clone()), at);
            assert_eq!(input.push(RtpPacket { payload_type, ..foreign }, TYPES), None);
            // Nor do those of another SSRC replace the track.
            let other = packet(9, sequence, ticks, &Bytes::from(payload.clone()), at);
            input.push(RtpPacket { payload_type, ..other }, TYPES);
            input.decode(at, &mut events);
        }
        let heard: Vec<f32> = events.iter().flat_map(samples).collect();
        assert_eq!(heard, plain, "type {payload_type}");
        let stats = input.active.as_ref().unwrap().jitter.stats();
        assert_eq!((stats.released, stats.concealed + stats.recovered + stats.invalid), (50, 0));
    }
}

#[test]
fn keys_are_reported_once_and_never_heard() {
    let (mut input, _) = input();
    let (start, payload) = (Instant::now(), Bytes::from_static(&[0x08, 0, 0]));
    let (mut keys, mut sound, mut sequence) = (String::new(), Duration::ZERO, 0);
    for number in 0..200_u32 {
        let (at, ticks) = (start + number * 20 * MS, number * 960);
        // Four presses of 100 ms.
        let pressed = number % 50 >= 45;
        let event = Bytes::from(vec![8 + (number / 50) as u8, if number % 50 == 49 { 0x8a } else { 10 }, 3, 0xc0]);
        let packet = if pressed {
            RtpPacket { payload_type: 110, ..packet(1, sequence, number / 50 * 48_000 + 43_200, &event, at) }
        } else {
            packet(1, sequence, ticks, &payload, at)
        };
        sequence += 1;
        // Every third packet of a press is lost.
        if !pressed || number % 3 > 0 {
            keys.extend(input.push(packet, TYPES));
        }
        sound += decoded(&mut input, at);
    }
    assert_eq!(keys, "89*#");
    assert_eq!(input.active.as_ref().unwrap().jitter.stats().invalid, 0);
    assert!((3_900 * MS..4_100 * MS).contains(&sound), "{sound:?}");
}

#[test]
fn copies_take_the_place_of_lost_packets() {
    let (mut input, metrics) = input();
    let (start, mut writer, mut sound) = (Instant::now(), red::RedWriter::new(TYPES.opus), Duration::ZERO);
    for (number, payload) in tone(440.0).into_iter().enumerate() {
        let (number, red) = (number as u32, writer.write(Duration::ZERO, &payload, 2));
        let (payload, payload_type) = red.map_or((payload, 111), |red| (red, 63));
        // Every second packet is lost.
        if number % 2 == 0 {
            let packet = packet(1, number as u16, number * 960, &payload, start + number * 20 * MS);
            input.push(RtpPacket { payload_type, ..packet }, TYPES);
            sound += decoded(&mut input, start + number * 20 * MS);
        }
    }
    assert_eq!(sound, 980 * MS, "the last one is lost, too");
    let broken = packet(1, 50, 50 * 960, &Bytes::from_static(&[0x80]), start + 1_000 * MS);
    input.push(RtpPacket { payload_type: 63, ..broken }, TYPES);
    assert_eq!(decoded(&mut input, start + 1_000 * MS), Duration::ZERO, "a broken packet is nothing");
    input.count();
    let text = metrics.render().unwrap();
    assert!(text.contains("repartee_rtp_packets_total{fate=\"copied\"} 24"), "{text}");
    assert!(!text.contains("fate=\"concealed\"} 1"), "{text}");
}

/// Packets of a second of a tone.
fn tone(frequency: f64) -> Vec<Bytes> {
    let mut encoder = OpusEncoder::new(16_000).unwrap();
    let samples = sine(frequency, 16_000, 16_000);
    samples.chunks_exact(320).map(|frame| encoder.encode(frame).unwrap().payload).collect()
}

/// Pushes packet `index` of a track at `at`, and returns the decoded samples.
fn hear(input: &mut InputAudio, ssrc: u32, index: usize, payload: &Bytes, at: Instant) -> Vec<f32> {
    input.push(packet(ssrc, index as u16, index as u32 * 960, payload, at), TYPES);
    let mut events = VecDeque::new();
    input.decode(at, &mut events);
    events.iter().flat_map(samples).collect()
}

#[test]
fn second_track_is_not_interleaved() {
    let metrics = Arc::new(Metrics::new(80 * MS).unwrap());
    let mut input = InputAudio::new(16_000, metrics.clone()).unwrap();
    let (first, second, start) = (tone(440.0), tone(1_000.0), Instant::now());
    let mut heard = Vec::new();
    for index in 0..first.len() {
        let at = start + index as u32 * 20 * MS;
        heard.extend(hear(&mut input, 1, index, &first[index], at));
        heard.extend(hear(&mut input, 2, index + 7, &second[index], at));
    }
    assert_eq!(heard.len(), 16_000);
    assert!((dominant_frequency(&heard[3_200..], 16_000) - 440.0).abs() < 4.0);
    // Once the first track is silent, the second becomes active.
    heard.clear();
    for (index, packet) in second.iter().enumerate() {
        heard.extend(hear(&mut input, 2, index + 100, packet, start + 2_100 * MS + index as u32 * 20 * MS));
    }
    assert!(heard.len() >= 16_000 - 320, "{}", heard.len());
    assert!((dominant_frequency(&heard[3_200..], 16_000) - 1_000.0).abs() < 4.0);
    // The first track's statistics are not lost.
    input.count();
    let text = metrics.render().unwrap();
    assert!(text.contains("repartee_rtp_packets_total{fate=\"played\"} 100"), "{text}");
}
