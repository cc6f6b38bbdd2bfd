//! Speech over a bad network: encoder, network, jitter buffer and decoder together, without sockets and on a clock that
//! the tests move. The table in docs/network.md comes from here.

use std::time::{Duration, Instant};

use bytes::Bytes;
use repartee_testkit::network::{Link, Network};
use repartee_testkit::signal::level_db;

use super::jitter::{JitterBuffer, JitterStats, Play};
use super::opus::{FRAME, OpusDecoder, OpusEncoder};
use super::resample::Resampler;

/// The rate of speaker and listener.
const RATE: u32 = 16_000;
/// What is quieter than this is not missed.
const AUDIBLE_DB: f32 = -45.0;
/// A frame that is so much quieter than it should be is a gap.
const GAP_DB: f32 = 12.0;

/// What is done about a lost packet.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Repair {
    /// Nothing: silence takes its place.
    None,
    /// Concealment alone.
    Conceal,
    /// As we do it: from the copy in the next packet, else concealment.
    Full,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Packet {
    sequence: u16,
    timestamp: u32,
    index: usize,
}

/// What a listener made of it.
#[derive(Debug)]
struct Outcome {
    lost: u64,
    stats: JitterStats,
    /// Frames that should have been audible.
    voiced: usize,
    /// Those that were not.
    missing: usize,
    /// Runs of them.
    gaps: usize,
    /// The longest run.
    longest: Duration,
    /// How long packets waited in the buffer, the average and the longest.
    waited: (Duration, Duration),
}

impl Outcome {
    fn minutes(&self, frames: usize) -> f64 {
        (FRAME * frames as u32).as_secs_f64() / 60.0
    }
}

/// So many seconds of sentences with little silence between, as packets.
fn speech(seconds: usize) -> Vec<Bytes> {
    let mut samples = Vec::new();
    while samples.len() < seconds * RATE as usize {
        for name in ["sentence", "question"] {
            let path = format!("{}/testdata/{name}.wav", env!("CARGO_MANIFEST_DIR"));
            let mut reader = hound::WavReader::open(path).unwrap();
            let rate = reader.spec().sample_rate;
            let voice: Vec<f32> = reader.samples::<i16>().map(|sample| f32::from(sample.unwrap()) / 32_768.0).collect();
            let mut filter = Resampler::new(rate, RATE).unwrap();
            samples.extend(filter.push(&voice).unwrap());
            samples.extend(filter.flush().unwrap());
        }
    }
    let mut encoder = OpusEncoder::new(RATE).unwrap();
    let frames = samples.chunks_exact(encoder.frame_samples()).take(seconds * 50);
    frames.map(|frame| encoder.encode(frame).unwrap().payload).collect()
}

/// What each packet sounds like if none is lost.
fn undisturbed(packets: &[Bytes]) -> Vec<f32> {
    let mut decoder = OpusDecoder::new(RATE).unwrap();
    packets.iter().map(|packet| level_db(&decoder.decode(packet).unwrap())).collect()
}

/// Sends `packets` and listens.
fn listen(packets: &[Bytes], network: Network, repair: Repair, seed: u64) -> Outcome {
    const FIRST: u16 = 65_000;
    let wanted = undisturbed(packets);
    let start = Instant::now();
    let mut link = Link::new(network, seed);
    let (mut jitter, mut decoder) = (JitterBuffer::new(), OpusDecoder::new(RATE).unwrap());
    let mut heard: Vec<Option<f32>> = vec![None; packets.len()];
    let mut arrived: Vec<Option<Instant>> = vec![None; packets.len()];
    let (mut waited, mut longest_wait) = (Duration::ZERO, Duration::ZERO);
    // A millisecond is finer than anything here.
    let until = start + FRAME * packets.len() as u32 + Duration::from_millis(500);
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
        }
        loop {
            let (sequence, samples) = match jitter.pop(now) {
                Play::Packet { sequence, payload } => (sequence, decoder.decode(&payload).unwrap()),
                Play::Fec { sequence, next, duration } => match repair {
                    Repair::Full => (sequence, decoder.decode_fec(&next, duration).unwrap()),
                    Repair::Conceal => (sequence, decoder.conceal(duration).unwrap()),
                    Repair::None => (sequence, vec![0.0; 320]),
                },
                Play::Conceal { sequence, duration } => match repair {
                    Repair::None => (sequence, vec![0.0; 320]),
                    Repair::Full | Repair::Conceal => (sequence, decoder.conceal(duration).unwrap()),
                },
                Play::Silence { .. } => continue,
                Play::Wait { .. } => break,
            };
            assert!(samples.iter().all(|sample| sample.is_finite()));
            let place = usize::from((sequence as u16).wrapping_sub(FIRST));
            heard[place] = Some(level_db(&samples));
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
        waited: (waited / packets.len() as u32, longest_wait),
    };
    let mut run = 0;
    for (wanted, heard) in wanted.iter().zip(&heard) {
        let voiced = *wanted > AUDIBLE_DB;
        let missing = voiced && heard.is_none_or(|heard| heard < wanted - GAP_DB);
        outcome.voiced += usize::from(voiced);
        outcome.missing += usize::from(missing);
        outcome.gaps += usize::from(missing && run == 0);
        run = if missing { run + 1 } else { 0 };
        outcome.longest = outcome.longest.max(FRAME * run);
    }
    outcome
}

#[test]
fn a_perfect_network_leaves_no_gap_and_adds_no_delay() {
    let packets = speech(20);
    let outcome = listen(&packets, Network::PERFECT, Repair::Full, 1);
    assert!(outcome.voiced > packets.len() / 2, "{outcome:?}");
    assert_eq!((outcome.lost, outcome.missing), (0, 0), "{outcome:?}");
    assert_eq!(outcome.waited.1, Duration::ZERO, "{outcome:?}");
}

#[test]
fn what_is_lost_is_mostly_repaired_and_more_so_than_by_concealment() {
    let packets = speech(60);
    let network = Network { loss: 0.1, ..Network::PERFECT };
    let [nothing, conceal, full] =
        [Repair::None, Repair::Conceal, Repair::Full].map(|repair| listen(&packets, network, repair, 2));
    assert_eq!(nothing.lost, full.lost);
    assert!(nothing.missing > 100, "{nothing:?}");
    assert_eq!(full.stats.recovered + full.stats.concealed, full.lost, "{full:?}");
    assert!(conceal.missing < nothing.missing, "{conceal:?}");
    assert!(full.missing * 5 < nothing.missing, "{full:?} without: {nothing:?}");
    assert!(full.missing <= conceal.missing, "{full:?} concealed: {conceal:?}");
}

#[test]
fn speech_survives_every_network_of_the_table() {
    let packets = speech(10);
    for (seed, (loss, burst)) in [(0.0, 1.0), (0.02, 1.0), (0.1, 2.0), (0.2, 1.0), (0.2, 3.0)].into_iter().enumerate() {
        for jitter in [0, 30, 100] {
            let jitter = Duration::from_millis(jitter);
            for duplicates in [0.0, 0.2] {
                let network = Network { loss, burst, duplicates, jitter };
                let outcome = listen(&packets, network, Repair::Full, seed as u64 + 10);
                assert!(outcome.waited.1 <= super::jitter::MAX_PATIENCE + Duration::from_millis(1), "{outcome:?}");
                assert!(outcome.missing * 2 < outcome.voiced, "{network:?}: {outcome:?}");
            }
        }
    }
}

/// The table of docs/network.md.
#[test]
#[ignore = "prints a table"]
fn table_of_loss_against_audible_gaps() {
    let packets = speech(300);
    println!(
        "| loss | in bursts of | jitter | gaps a minute, no repair | concealment | with FEC | longest gap | added delay, mean / most |"
    );
    println!("|---|---|---|---|---|---|---|---|");
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
        let network = Network { loss, burst, duplicates: 0.01, jitter: Duration::from_millis(jitter) };
        let [nothing, conceal, full] =
            [Repair::None, Repair::Conceal, Repair::Full].map(|repair| listen(&packets, network, repair, 7));
        let rate = |outcome: &Outcome| outcome.gaps as f64 / outcome.minutes(packets.len());
        println!(
            "| {:.0} % | {burst:.0} | {jitter} ms | {:.1} | {:.1} | {:.1} | {} ms | {:.1} / {} ms |",
            loss * 100.0,
            rate(&nothing),
            rate(&conceal),
            rate(&full),
            full.longest.as_millis(),
            full.waited.0.as_secs_f64() * 1e3,
            full.waited.1.as_millis(),
        );
    }
}
