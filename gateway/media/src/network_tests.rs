//! Speech over a bad network: encoder, network, jitter buffer and decoder together, without sockets and on a simulated
//! clock. Source of the table in docs/network.md.

use std::time::{Duration, Instant};

use bytes::Bytes;
use repartee_testkit::network::{NetworkConditions, SimulatedLink};
use repartee_testkit::signal::level_db;

use super::adaptation::{LinkAdapter, SendPlan};
use super::jitter::{JitterAction, JitterBuffer, JitterStats};
use super::opus::{FRAME, OpusDecoder, OpusEncoder};
use super::red::{self, PacketCopy, RedPayload, RedWriter};
use super::{testdata, vad};

/// Payload type of the packets.
const OPUS: u8 = 111;

/// Sample rate of sender and receiver.
const RATE: u32 = vad::RATE;
/// Minimum level of a counted frame, in dB.
const AUDIBLE_DB: f32 = -45.0;
/// Drop below the reference, in dB, that counts as a gap.
const GAP_DB: f32 = 12.0;

/// Repair of lost packets.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Repair {
    /// Replacement by silence.
    None,
    /// Concealment without FEC.
    Conceal,
    /// FEC from the next packet, else concealment, as for callers without RED.
    Fec,
    /// RED with this number of copies per packet; then FEC and concealment.
    Red(usize),
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Packet {
    sequence: u16,
    timestamp: u32,
    index: usize,
}

/// Result at the receiver.
#[derive(Debug)]
struct Outcome {
    lost: u64,
    stats: JitterStats,
    /// Frames that should have been audible.
    voiced: usize,
    /// Audible frames that became gaps.
    missing: usize,
    /// Runs of consecutive gaps.
    gaps: usize,
    /// Longest run of gaps.
    longest: Duration,
    /// Power of the deviation from the reference as a share of the reference's.
    error: f64,
    /// Mean and maximum wait of packets in the buffer.
    waited: (Duration, Duration),
}

impl Outcome {
    fn minutes(&self, frames: usize) -> f64 {
        (FRAME * frames as u32).as_secs_f64() / 60.0
    }
}

/// Packets of `seconds` of sentences with short silences, with the default protection.
fn speech(seconds: usize) -> Vec<Bytes> {
    speech_for(seconds, SendPlan::NONE)
}

/// Packets of `seconds` of sentences with short silences, with `protection`.
fn speech_for(seconds: usize, protection: SendPlan) -> Vec<Bytes> {
    let mut samples = Vec::new();
    while samples.len() < seconds * RATE as usize {
        for name in ["sentence", "question"] {
            samples.extend(testdata::speech(name));
        }
    }
    let mut encoder = OpusEncoder::new(RATE).unwrap();
    encoder.expect_loss(0.1).unwrap();
    encoder.set_bitrate(protection.bitrate).unwrap();
    let frames = samples.chunks_exact(encoder.frame_samples()).take(seconds * 50);
    frames.map(|frame| encoder.encode(frame).unwrap().payload).collect()
}

/// Decoded packets without loss.
fn reference(packets: &[Bytes]) -> Vec<Vec<f32>> {
    let mut decoder = OpusDecoder::new(RATE).unwrap();
    packets.iter().map(|packet| decoder.decode(packet).unwrap()).collect()
}

/// Power of a signal, summed over its samples.
fn power(samples: impl IntoIterator<Item = f32>) -> f64 {
    samples.into_iter().map(|sample| f64::from(sample).powi(2)).sum()
}

/// Sends `packets` over `network` and decodes what arrives.
fn receive(packets: &[Bytes], network: NetworkConditions, repair: Repair, seed: u64) -> Outcome {
    const FIRST: u16 = 65_000;
    let reference = reference(packets);
    let start = Instant::now();
    let mut link = SimulatedLink::new(network, seed);
    let (mut jitter, mut decoder) = (JitterBuffer::new(), OpusDecoder::new(RATE).unwrap());
    let mut frames: Vec<Vec<f32>> = vec![vec![0.0; 320]; packets.len()];
    let mut arrived: Vec<Option<Instant>> = vec![None; packets.len()];
    let (mut waited, mut longest_wait) = (Duration::ZERO, Duration::ZERO);
    // Steps of a millisecond are fine enough.
    let until = start + FRAME * packets.len() as u32 + Duration::from_millis(500);
    let copies = if let Repair::Red(copies) = repair { copies } else { 0 };
    let mut writer = RedWriter::new(OPUS);
    let payloads: Vec<_> = packets.iter().map(|packet| writer.write(Duration::ZERO, packet, copies)).collect();
    let mut now = start;
    let mut next = 0;
    while now < until {
        while next < packets.len() && start + FRAME * next as u32 <= now {
            let sequence = FIRST.wrapping_add(next as u16);
            link.send(Packet { sequence, timestamp: (next * 960) as u32, index: next }, now);
            next += 1;
        }
        while let Some((arrival, packet)) = link.receive(now) {
            arrived[packet.index].get_or_insert(arrival);
            jitter.push(packet.sequence, packet.timestamp, packets[packet.index].clone(), arrival);
            let Some(payload) = &payloads[packet.index] else { continue };
            let RedPayload { primary, copies } = red::parse(payload, OPUS).unwrap();
            assert_eq!(primary, packets[packet.index]);
            for PacketCopy { distance, offset, payload } in copies {
                let (sequence, timestamp) =
                    (packet.sequence.wrapping_sub(distance), packet.timestamp.wrapping_sub(offset));
                jitter.push_redundant(sequence, timestamp, payload, arrival);
            }
        }
        loop {
            let (sequence, samples) = match jitter.pop(now) {
                JitterAction::Packet { sequence, payload } => (sequence, decoder.decode(&payload).unwrap()),
                JitterAction::Fec { sequence, next, duration } => match repair {
                    Repair::Fec | Repair::Red(_) => (sequence, decoder.decode_fec(&next, duration).unwrap()),
                    Repair::Conceal => (sequence, decoder.conceal(duration).unwrap()),
                    Repair::None => (sequence, vec![0.0; 320]),
                },
                JitterAction::Conceal { sequence, duration } => match repair {
                    Repair::None => (sequence, vec![0.0; 320]),
                    Repair::Fec | Repair::Red(_) | Repair::Conceal => (sequence, decoder.conceal(duration).unwrap()),
                },
                JitterAction::Silence { .. } | JitterAction::Stall { .. } => continue,
                JitterAction::Wait { .. } => break,
            };
            assert!(samples.iter().all(|sample| sample.is_finite()));
            let place = usize::from((sequence as u16).wrapping_sub(FIRST));
            frames[place] = samples;
            if let Some(arrival) = arrived[place] {
                waited += now - arrival;
                longest_wait = longest_wait.max(now - arrival);
            }
        }
        now += Duration::from_millis(1);
    }
    let mut outcome = Outcome {
        lost: link.lost,
        stats: jitter.stats(),
        voiced: 0,
        missing: 0,
        gaps: 0,
        longest: Duration::ZERO,
        error: 0.0,
        waited: (waited / packets.len() as u32, longest_wait),
    };
    let mut run = 0;
    let (mut deviation, mut total) = (0.0, 0.0);
    for (reference, frame) in reference.iter().zip(&frames) {
        deviation += power(frame.iter().zip(reference).map(|(frame, reference)| frame - reference));
        total += power(reference.iter().copied());
        let voiced = level_db(reference) > AUDIBLE_DB;
        let missing = voiced && level_db(frame) < level_db(reference) - GAP_DB;
        outcome.voiced += usize::from(voiced);
        outcome.missing += usize::from(missing);
        outcome.gaps += usize::from(missing && run == 0);
        run = if missing { run + 1 } else { 0 };
        outcome.longest = outcome.longest.max(FRAME * run);
    }
    outcome.error = deviation / total;
    outcome
}

#[test]
fn perfect_network_adds_no_gap_and_no_delay() {
    let packets = speech(20);
    let outcome = receive(&packets, NetworkConditions::PERFECT, Repair::Fec, 1);
    assert!(outcome.voiced > packets.len() / 2, "{outcome:?}");
    assert_eq!((outcome.lost, outcome.missing), (0, 0), "{outcome:?}");
    assert_eq!(outcome.waited.1, Duration::ZERO, "{outcome:?}");
}

#[test]
fn fec_repairs_more_losses_than_concealment() {
    let packets = speech(60);
    let network = NetworkConditions { loss: 0.1, ..NetworkConditions::PERFECT };
    let [none, conceal, fec] =
        [Repair::None, Repair::Conceal, Repair::Fec].map(|repair| receive(&packets, network, repair, 2));
    assert_eq!(none.lost, fec.lost);
    assert!(none.missing > 100, "{none:?}");
    assert_eq!(fec.stats.recovered + fec.stats.concealed, fec.lost, "{fec:?}");
    assert!(conceal.missing * 3 < none.missing, "{conceal:?} without: {none:?}");
    // Measured: one in six gaps, and a sixth of the error.
    assert!(fec.missing * 3 < conceal.missing, "{fec:?} concealed: {conceal:?}");
    assert!(fec.error * 3.0 < conceal.error, "{fec:?} concealed: {conceal:?}");
}

#[test]
fn protection_keeps_burst_gaps_under_five_a_minute() {
    let network = NetworkConditions { loss: 0.1, burst: 2.0, ..NetworkConditions::PERFECT };
    let protection = LinkAdapter::default().report(network.loss, None, true);
    let [fec, copies] = [(SendPlan::NONE, Repair::Fec), (protection, Repair::Red(protection.copies))]
        .map(|(protection, repair)| receive(&speech_for(300, protection), network, repair, 3));
    assert_eq!((fec.lost, fec.stats.copied), (copies.lost, 0));
    assert!(copies.stats.copied * 2 > copies.lost, "{copies:?}");
    let rate = copies.gaps as f64 / copies.minutes(15_000);
    assert!(rate < 5.0, "{rate} gaps a minute: {copies:?} without: {fec:?}");
    assert!(copies.error < fec.error, "{copies:?} without: {fec:?}");
    assert!(copies.waited.1 <= super::jitter::MAX_GAP_TIMEOUT + Duration::from_millis(1), "{copies:?}");
}

#[test]
fn copies_of_what_came_change_nothing() {
    let packets = speech(20);
    let network =
        NetworkConditions { duplicates: 0.2, jitter: Duration::from_millis(100), ..NetworkConditions::PERFECT };
    let [fec, two] = [Repair::Fec, Repair::Red(2)].map(|repair| receive(&packets, network, repair, 4));
    assert_eq!((fec.lost, two.lost), (0, 0));
    assert!(two.missing <= fec.missing, "{two:?} without: {fec:?}");
    assert!(two.waited.1 <= fec.waited.1, "{two:?} without: {fec:?}");
}

#[test]
fn speech_survives_every_simulated_network() {
    let packets = speech(10);
    // Maximum share of gaps in audible frames: slightly above the measurement.
    let networks = [(0.0, 1.0, 0.005), (0.02, 1.0, 0.005), (0.1, 2.0, 0.02), (0.2, 1.0, 0.02), (0.2, 3.0, 0.12)];
    for (seed, (loss, burst, share)) in networks.into_iter().enumerate() {
        for jitter in [0, 30, 100] {
            let jitter = Duration::from_millis(jitter);
            for duplicates in [0.0, 0.2] {
                let network = NetworkConditions { loss, burst, duplicates, jitter };
                let outcome = receive(&packets, network, Repair::Fec, seed as u64 + 10);
                assert!(outcome.waited.1 <= super::jitter::MAX_GAP_TIMEOUT + Duration::from_millis(1), "{outcome:?}");
                assert!(outcome.missing as f64 <= share * outcome.voiced as f64, "{network:?}: {outcome:?}");
                assert!(outcome.longest <= Duration::from_millis(300), "{network:?}: {outcome:?}");
            }
        }
    }
}

/// Prints the table of docs/network.md.
#[test]
#[ignore = "prints a table"]
fn table_of_loss_against_audible_gaps() {
    // At the bit rates for each number of copies.
    let protection = [0.0, 0.03, 0.06, 0.1].map(|loss| LinkAdapter::default().report(loss, None, true));
    assert_eq!(protection.map(|protection| protection.copies), [0, 1, 2, 3]);
    let speech = protection.map(|protection| speech_for(300, protection));
    println!(
        "| loss | in bursts of | jitter | gaps a minute, no repair | concealment | with FEC | one copy | two copies | three copies | longest gap, FEC / three copies | added delay, mean / most |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for (loss, burst, jitter) in [
        (0.0, 1.0, 0),
        (0.01, 1.0, 0),
        (0.02, 1.0, 0),
        (0.05, 1.0, 0),
        (0.1, 1.0, 0),
        (0.2, 1.0, 0),
        (0.05, 2.0, 0),
        (0.1, 2.0, 0),
        (0.2, 2.0, 0),
        (0.0, 1.0, 30),
        (0.05, 1.0, 30),
        (0.0, 1.0, 100),
        (0.05, 1.0, 100),
        (0.2, 1.0, 100),
    ] {
        let network = NetworkConditions { loss, burst, duplicates: 0.01, jitter: Duration::from_millis(jitter) };
        let [none, conceal, fec] =
            [Repair::None, Repair::Conceal, Repair::Fec].map(|repair| receive(&speech[0], network, repair, 7));
        let [one, two, three] = [1, 2, 3].map(|copies| receive(&speech[copies], network, Repair::Red(copies), 7));
        let rate = |outcome: &Outcome| outcome.gaps as f64 / outcome.minutes(speech[0].len());
        println!(
            "| {:.0} % | {burst:.0} | {jitter} ms | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {} / {} ms | {:.1} / {} ms |",
            loss * 100.0,
            rate(&none),
            rate(&conceal),
            rate(&fec),
            rate(&one),
            rate(&two),
            rate(&three),
            fec.longest.as_millis(),
            three.longest.as_millis(),
            fec.waited.0.as_secs_f64() * 1e3,
            fec.waited.1.as_millis(),
        );
    }
}
