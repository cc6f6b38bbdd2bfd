use proptest::prelude::*;
use repartee_testkit::network::{NetworkConditions, SimulatedLink};
use repartee_testkit::random::Random;

use super::*;

const MS: Duration = Duration::from_millis(1);

/// Payload of one SILK frame: the configuration sets the duration, the rest identifies the packet.
fn payload(packet_ms: u64, index: u64) -> Bytes {
    let toc = match packet_ms {
        10 => 0x00,
        20 => 0x08,
        40 => 0x10,
        60 => 0x18,
        _ => panic!("{packet_ms} ms"),
    };
    let mut bytes = vec![toc];
    bytes.extend(index.to_be_bytes());
    bytes.into()
}

fn index_of(payload: &Bytes) -> u64 {
    u64::from_be_bytes(payload[1..9].try_into().unwrap())
}

/// Simulated stream of packets.
#[derive(Debug, Clone, Copy)]
struct Stream {
    packet_ms: u64,
    /// Sequence number and timestamp of the first packet.
    sequence: u16,
    timestamp: u32,
}

/// Stream whose sequence number and timestamp wrap around soon.
const STREAM: Stream = Stream { packet_ms: 20, sequence: 65_500, timestamp: u32::MAX - 9_000 };

struct Outcome {
    actions: Vec<(Instant, JitterAction)>,
    /// First arrival of each packet; `None` if lost.
    arrivals: Vec<Option<Instant>>,
    stats: JitterStats,
}

impl Outcome {
    fn duration(&self, packet_ms: u64) -> Duration {
        self.actions.iter().map(|(_, action)| length(action, packet_ms)).sum()
    }
}

fn length(action: &JitterAction, packet_ms: u64) -> Duration {
    match action {
        JitterAction::Packet { .. } => packet_ms as u32 * MS,
        JitterAction::Fec { duration, .. }
        | JitterAction::Conceal { duration, .. }
        | JitterAction::Stall { duration }
        | JitterAction::Silence { duration, .. } => *duration,
        JitterAction::Wait { .. } => panic!("not audio"),
    }
}

/// Pops all actions due at `now`; returns the time of the next pop.
fn drain(buffer: &mut JitterBuffer, now: Instant, actions: &mut Vec<(Instant, JitterAction)>) -> Option<Instant> {
    loop {
        match buffer.pop(now) {
            JitterAction::Wait { until } => return until,
            action => actions.push((now, action)),
        }
    }
}

/// Sends `count` packets of `stream` through `network`; the driver pops after each arrival and at each deadline.
fn simulate(stream: Stream, network: NetworkConditions, count: u64, seed: u64) -> Outcome {
    let start = Instant::now();
    let time = |index: u64| start + (index * stream.packet_ms) as u32 * MS;
    let mut link = SimulatedLink::new(network, seed);
    // The first and the last packet are not lost, so the stream's length is known; the first sets the clock.
    let mut last = SimulatedLink::new(NetworkConditions { loss: 0.0, ..network }, seed);
    for index in 1..count - 1 {
        link.send(index, time(index));
    }
    last.send(count - 1, time(count - 1));
    let mut events = vec![(start, 0)];
    let all = time(count) + network.jitter;
    events.extend(std::iter::from_fn(|| link.receive(all)));
    events.extend(std::iter::from_fn(|| last.receive(all)));
    events.sort();
    let mut arrivals = vec![None; count as usize];
    for (arrival, index) in &events {
        arrivals[*index as usize].get_or_insert(*arrival);
    }
    let (mut buffer, mut actions, mut deadline) = (JitterBuffer::new(), Vec::new(), None::<Instant>);
    for (arrival, index) in events {
        while let Some(until) = deadline.filter(|until| *until <= arrival) {
            deadline = drain(&mut buffer, until, &mut actions);
        }
        let ticks = (index * stream.packet_ms * 48) as u32;
        let sequence = stream.sequence.wrapping_add(index as u16);
        buffer.push(sequence, stream.timestamp.wrapping_add(ticks), payload(stream.packet_ms, index), arrival);
        deadline = drain(&mut buffer, arrival, &mut actions);
    }
    // Until the last gap times out, and no further.
    while let Some(until) = deadline.filter(|_| !buffer.packets.is_empty()) {
        deadline = drain(&mut buffer, until, &mut actions);
    }
    Outcome { actions, arrivals, stats: buffer.stats() }
}

/// Asserts the invariants of any network.
fn check(stream: Stream, outcome: &Outcome) {
    let mut last = 0;
    for (when, action) in &outcome.actions {
        let sequence = match action {
            JitterAction::Packet { sequence, payload } => {
                let index = index_of(payload);
                assert_eq!(*sequence as u16, stream.sequence.wrapping_add(index as u16), "number and content");
                let waited = *when - outcome.arrivals[index as usize].unwrap();
                assert!(waited <= MAX_GAP_TIMEOUT, "packet {index} waited {waited:?}");
                *sequence
            }
            JitterAction::Fec { sequence, next, .. } => {
                let index = index_of(next);
                assert_eq!(*sequence as u16, stream.sequence.wrapping_add(index as u16).wrapping_sub(1));
                *sequence
            }
            JitterAction::Conceal { sequence, .. } => *sequence,
            JitterAction::Silence { .. } | JitterAction::Stall { .. } | JitterAction::Wait { .. } => continue,
        };
        assert!(sequence > last, "{sequence} after {last}");
        last = sequence;
    }
    let stats = outcome.stats;
    let named = stats.released + stats.recovered + stats.concealed + stats.skipped;
    assert_eq!(named, outcome.arrivals.len() as u64, "each packet is released or named as lost: {stats:?}");
}

#[test]
fn perfect_network_passes_through_without_delay() {
    let outcome = simulate(STREAM, NetworkConditions::PERFECT, 3_000, 1);
    check(STREAM, &outcome);
    assert_eq!(outcome.stats, JitterStats { released: 3_000, ..JitterStats::default() });
    for (when, action) in &outcome.actions {
        let JitterAction::Packet { payload, .. } = action else { panic!("{action:?}") };
        assert_eq!(Some(*when), outcome.arrivals[index_of(payload) as usize]);
    }
}

#[test]
fn single_losses_are_recovered_by_fec() {
    let network = NetworkConditions { loss: 0.05, ..NetworkConditions::PERFECT };
    let outcome = simulate(STREAM, network, 5_000, 2);
    check(STREAM, &outcome);
    let lost = outcome.arrivals.iter().filter(|arrival| arrival.is_none()).count() as u64;
    assert_eq!(outcome.stats.recovered + outcome.stats.concealed, lost);
    assert!(outcome.stats.recovered as f64 > 0.85 * lost as f64, "{:?}", outcome.stats);
    assert_eq!(outcome.duration(20), 5_000 * 20 * MS);
}

#[test]
fn reordered_packets_are_put_in_order() {
    let network = NetworkConditions { jitter: 60 * MS, ..NetworkConditions::PERFECT };
    let outcome = simulate(STREAM, network, 5_000, 3);
    check(STREAM, &outcome);
    assert!(outcome.stats.reordered > 500, "{:?}", outcome.stats);
    assert!(outcome.stats.late < 100, "{:?}", outcome.stats);
}

#[test]
fn duplicates_are_dropped() {
    let network = NetworkConditions { duplicates: 0.5, jitter: 30 * MS, ..NetworkConditions::PERFECT };
    let outcome = simulate(STREAM, network, 2_000, 4);
    check(STREAM, &outcome);
    assert!(outcome.stats.duplicate + outcome.stats.late > 800);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn any_network_keeps_order_and_bounds_delay(
        packet_ms in prop::sample::select(vec![10u64, 20, 40, 60]),
        loss in 0.0..0.2,
        burst in 1.0..1.5,
        duplicates in 0.0..0.2,
        jitter_ms in 0.0..100.0,
        sequence: u16,
        timestamp: u32,
        seed: u64,
    ) {
        let stream = Stream { packet_ms, sequence, timestamp };
        let network = NetworkConditions { loss, burst, duplicates, jitter: Duration::from_secs_f64(jitter_ms / 1e3) };
        let outcome = simulate(stream, network, 600, seed);
        check(stream, &outcome);
        // The duration is preserved, except for falsely detected pauses.
        let sent = 600 * packet_ms as u32 * MS;
        let invented = outcome.stats.silence + outcome.stats.stalled;
        let played = outcome.duration(packet_ms) - invented.min(outcome.duration(packet_ms));
        let tolerance = invented + sent / 20;
        prop_assert!(played + tolerance >= sent && played <= sent + tolerance, "{played:?} of {sent:?}");
    }

    #[test]
    fn arbitrary_packets_neither_panic_nor_grow(
        packets in prop::collection::vec((any::<u16>(), any::<u32>(), 0u64..5_000, prop::sample::select(vec![10u64, 20, 40, 60])), 0..600),
        asked in any::<bool>(),
    ) {
        let start = Instant::now();
        let (mut buffer, mut now, mut actions) = (JitterBuffer::new(), start, Vec::new());
        for (sequence, timestamp, later, packet_ms) in packets {
            now += later as u32 * MS / 10;
            buffer.push(sequence, timestamp, payload(packet_ms, 0), now);
            if asked {
                drain(&mut buffer, now, &mut actions);
            }
        }
        prop_assert!(buffer.packets.len() <= CAPACITY);
        drain(&mut buffer, now + 500 * MS, &mut actions);
    }
}

/// Pushes packet `index` of an ordinary stream at `ms`.
fn push(buffer: &mut JitterBuffer, start: Instant, index: u64, timestamp_ms: u64, ms: u32) {
    buffer.push(index as u16, (timestamp_ms * 48) as u32, payload(20, index), start + ms * MS);
}

#[test]
fn stopped_stream_becomes_silence_in_real_time() {
    let start = Instant::now();
    let (mut buffer, mut actions) = (JitterBuffer::new(), Vec::new());
    assert_eq!(buffer.pop(start), JitterAction::Wait { until: None });
    push(&mut buffer, start, 0, 0, 0);
    let mut now = drain(&mut buffer, start, &mut actions).unwrap();
    buffer.mark_silent();
    while now < start + 1_000 * MS {
        now = drain(&mut buffer, now, &mut actions).unwrap();
    }
    assert!(buffer.stats().silence >= 1_000 * MS - 20 * MS - PAUSE - MIN_GAP_TIMEOUT - 20 * MS);
    assert!(buffer.stats().silence <= 1_000 * MS);
    // The sender resumes: the rest of the pause and then its sound are due at once.
    actions.clear();
    push(&mut buffer, start, 1, 1_020, 1_020);
    drain(&mut buffer, start + 1_020 * MS, &mut actions);
    let total = 20 * MS + buffer.stats().silence;
    assert_eq!(total, 1_020 * MS, "silence fills exactly what the sender left out");
    assert!(matches!(actions.last(), Some((_, JitterAction::Packet { .. }))));
}

#[test]
fn stalled_network_loses_nothing() {
    let start = Instant::now();
    let (mut buffer, mut actions) = (JitterBuffer::new(), Vec::new());
    for index in 0..10 {
        push(&mut buffer, start, index, index * 20, index as u32 * 20);
        drain(&mut buffer, start + index as u32 * 20 * MS, &mut actions);
    }
    drain(&mut buffer, start + 700 * MS, &mut actions);
    // All delayed packets arrive at once.
    for index in 10..40 {
        push(&mut buffer, start, index, index * 20, 700);
        drain(&mut buffer, start + 700 * MS, &mut actions);
    }
    assert_eq!(buffer.stats().released, 40);
    assert_eq!(buffer.stats().recovered + buffer.stats().concealed + buffer.stats().late, 0);
    assert_eq!((buffer.stats().silence, buffer.stats().stalled), (Duration::ZERO, STALL_CONCEALMENT));
}

#[test]
fn stream_that_stops_after_dtx_has_paused() {
    let start = Instant::now();
    let (mut buffer, mut actions) = (JitterBuffer::new(), Vec::new());
    push(&mut buffer, start, 0, 0, 0);
    buffer.push(1, 960, Bytes::from_static(&[0x08]), start + 20 * MS);
    drain(&mut buffer, start + 500 * MS, &mut actions);
    assert!(buffer.stats().silence > 300 * MS, "{:?}", buffer.stats());
    assert_eq!(buffer.stats().stalled, Duration::ZERO);
    // Sound after the pause, and then the network stalls.
    push(&mut buffer, start, 2, 500, 500);
    drain(&mut buffer, start + 500 * MS, &mut actions);
    let silence = buffer.stats().silence;
    drain(&mut buffer, start + 1_000 * MS, &mut actions);
    assert_eq!((buffer.stats().silence, buffer.stats().stalled), (silence, STALL_CONCEALMENT));
}

#[test]
fn stall_becomes_a_pause_after_two_seconds() {
    let start = Instant::now();
    let (mut buffer, mut actions) = (JitterBuffer::new(), Vec::new());
    push(&mut buffer, start, 0, 0, 0);
    let mut now = start;
    while now < start + 3_000 * MS {
        now = drain(&mut buffer, now, &mut actions).unwrap();
    }
    let first = actions.iter().find(|(_, action)| matches!(action, JitterAction::Silence { .. })).unwrap().0;
    assert_eq!(first - start, 20 * MS + MAX_STALL);
    // The reported time has caught up with the clock.
    let reported: Duration = actions.iter().map(|(_, action)| length(action, 20)).sum();
    assert!((2_900 * MS..=3_000 * MS).contains(&reported), "{reported:?}");
}

#[test]
fn unannounced_pause_becomes_silence() {
    let start = Instant::now();
    let (mut buffer, mut actions) = (JitterBuffer::new(), Vec::new());
    push(&mut buffer, start, 0, 0, 0);
    drain(&mut buffer, start + 900 * MS, &mut actions);
    assert_eq!(buffer.stats().silence, Duration::ZERO, "it may be a stall");
    push(&mut buffer, start, 1, 1_000, 1_000);
    drain(&mut buffer, start + 1_000 * MS, &mut actions);
    let reported: Duration = actions.iter().map(|(_, action)| length(action, 20)).sum();
    assert_eq!(reported, 1_020 * MS);
}

#[test]
fn long_gap_is_skipped() {
    let start = Instant::now();
    let mut buffer = JitterBuffer::new();
    push(&mut buffer, start, 0, 0, 0);
    push(&mut buffer, start, 500, 10_000, 40);
    let mut actions = Vec::new();
    drain(&mut buffer, start + 60 * MS, &mut actions);
    assert_eq!(actions.len(), 2, "{actions:?}");
    assert_eq!((buffer.stats().skipped, buffer.stats().concealed), (499, 0));
}

#[test]
fn restarted_stream_is_followed_stray_packet_dropped() {
    let start = Instant::now();
    let (mut buffer, mut actions) = (JitterBuffer::new(), Vec::new());
    for index in 0..5 {
        push(&mut buffer, start, index, index * 20, index as u32 * 20);
    }
    push(&mut buffer, start, 40_000, 5, 100);
    push(&mut buffer, start, 5, 100, 100);
    drain(&mut buffer, start + 100 * MS, &mut actions);
    assert_eq!((buffer.stats().released, buffer.stats().invalid), (6, 1));
    for index in 0..5 {
        push(&mut buffer, start, 30_000 + index, 7_000_000 + index * 20, 120 + index as u32 * 20);
        drain(&mut buffer, start + (120 + index as u32 * 20) * MS, &mut actions);
    }
    assert_eq!((buffer.stats().released, buffer.stats().invalid), (10, 2), "the first one is the stray that it seemed");
}

#[test]
fn invalid_opus_is_dropped() {
    let mut buffer = JitterBuffer::new();
    for bad in [&[][..], &[0x03], &[0x1b, 0x3f]] {
        buffer.push(1, 1, Bytes::copy_from_slice(bad), Instant::now());
    }
    assert_eq!((buffer.stats().invalid, buffer.pop(Instant::now())), (3, JitterAction::Wait { until: None }));
}

#[test]
fn gap_timeout_follows_jitter_within_bounds() {
    let start = Instant::now();
    let mut buffer = JitterBuffer::new();
    assert_eq!(buffer.gap_timeout(), MIN_GAP_TIMEOUT);
    let mut random = Random::new(9);
    for index in 0..200 {
        let delay = (random.unit() * 40.0) as u32;
        push(&mut buffer, start, index, index * 20, index as u32 * 20 + delay);
    }
    assert!((20 * MS..80 * MS).contains(&buffer.gap_timeout()), "{:?}", buffer.gap_timeout());
    for index in 200..400 {
        let delay = (random.unit() * 240.0) as u32;
        push(&mut buffer, start, index, index * 20, index as u32 * 20 + delay);
    }
    assert_eq!(buffer.gap_timeout(), MAX_GAP_TIMEOUT);
}

/// Packet of a sender that also sends padding and telephone events: `None` for one of these.
type Sent = Option<u64>;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    /// Nothing that arrives within its delay is dropped, whatever the clumps, the order, the copies and the packets without audio.
    #[test]
    fn nothing_within_its_delay_is_dropped(
        packet_us in prop::sample::select(vec![2_500_u64, 10_000, 20_000, 40_000, 60_000]),
        clumps in prop::collection::vec(0_u64..400, 1..40),
        duplicates in 0.0..0.3,
        empty in 0.0..0.3,
        sequence: u16,
        timestamp: u32,
        seed: u64,
    ) {
        let (start, mut random) = (Instant::now(), Random::new(seed));
        // A packet of a clump arrives at its end, and up to the least delay later, in any order.
        let (mut arrivals, mut end, mut sent) = (Vec::new(), 0, 0_u64);
        let mut content: Vec<Sent> = Vec::new();
        for clump in clumps {
            end += clump * 1_000;
            while sent * packet_us <= end {
                // The first one sets the clock.
                let is_empty = sent > 0 && random.unit() < empty;
                content.push((!is_empty).then_some(sent));
                let spread = if sent == 0 { 0 } else { random.below(10_000) as u64 };
                arrivals.push((end + spread, sent));
                if random.unit() < duplicates {
                    arrivals.push((end + spread + random.below(50_000) as u64, sent));
                }
                sent += 1;
            }
        }
        arrivals.sort_unstable();
        let payload = |index: u64| match packet_us {
            2_500 => Bytes::from([&[0x80][..], &index.to_be_bytes()].concat()),
            _ => payload(packet_us / 1_000, index),
        };
        let (mut buffer, mut actions, mut deadline) = (JitterBuffer::new(), Vec::new(), None::<Instant>);
        for (arrival, index) in arrivals {
            let arrival = start + Duration::from_micros(arrival);
            while let Some(until) = deadline.filter(|until| *until < arrival) {
                deadline = drain(&mut buffer, until, &mut actions);
            }
            let (number, ticks) = (sequence.wrapping_add(index as u16), (index * packet_us * 48 / 1_000) as u32);
            match content[index as usize] {
                Some(index) => buffer.push(number, timestamp.wrapping_add(ticks), payload(index), arrival),
                None => buffer.push_empty(number, arrival),
            }
            deadline = drain(&mut buffer, arrival, &mut actions);
        }
        let released = actions.iter().filter_map(|(_, action)| match action {
            JitterAction::Packet { payload, .. } => Some(index_of(payload)),
            _ => None,
        });
        prop_assert_eq!(released.collect::<Vec<_>>(), content.into_iter().flatten().collect::<Vec<_>>());
        let JitterStats { recovered, concealed, skipped, invalid, .. } = buffer.stats();
        prop_assert_eq!((recovered, concealed, skipped, invalid), (0, 0, 0, 0));
    }
}

#[test]
fn empty_packets_are_not_lost() {
    let start = Instant::now();
    let (mut buffer, mut actions) = (JitterBuffer::new(), Vec::new());
    buffer.push_empty(9, start);
    assert_eq!(buffer.pop(start), JitterAction::Wait { until: None }, "a stream begins with audio");
    push(&mut buffer, start, 0, 0, 0);
    // Padding, and a loss between two of them.
    for number in [1, 2, 4, 5] {
        buffer.push_empty(number, start + 20 * MS);
    }
    push(&mut buffer, start, 6, 40, 40);
    drain(&mut buffer, start + 60 * MS, &mut actions);
    let JitterStats { released, concealed, recovered, invalid, .. } = buffer.stats();
    assert_eq!((released, concealed + recovered, invalid), (2, 1, 0), "{actions:?}");
    assert_eq!(buffer.stats().silence, Duration::ZERO);
}

#[test]
fn stray_numbers_of_empty_packets_are_ignored() {
    let start = Instant::now();
    let (mut buffer, mut actions) = (JitterBuffer::new(), Vec::new());
    push(&mut buffer, start, 0, 0, 0);
    for number in [20_000, 20_001, 20_002] {
        buffer.push_empty(number, start);
    }
    push(&mut buffer, start, 1, 20, 20);
    drain(&mut buffer, start + 20 * MS, &mut actions);
    assert_eq!(buffer.stats(), JitterStats { released: 2, ..JitterStats::default() });
}
