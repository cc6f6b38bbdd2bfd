//! Whole conversations over simulated networks: caller, network, transport, realtime session and a scripted engine,
//! without sockets and on a clock that stands still while any task is busy.

use bytes::Bytes;
use repartee_engine_api::{Command, SpeechEngine as _};
use repartee_media::jitter::{JitterAction, JitterBuffer};
use repartee_media::level::is_audible;
use repartee_media::opus::{OpusDecoder, OpusEncoder};
use repartee_media::red::{self, PacketCopy, RedPayload, RedWriter};
use repartee_media::sound_file;
use repartee_realtime::{PlayoutReport, SessionSetup};
use repartee_testkit::network::{NetworkConditions, SimulatedLink};
use repartee_testkit::scripted::{INPUT_RATE, OUTPUT_RATE, Script, ScriptedEngine};
use repartee_testkit::signal::{level_db, sine};
use serde_json::Value;

use super::super::packet_encoder::{LEAD_PACKETS, TAIL_PACKETS};
use super::*;
use crate::call::CallServices;

/// Longest wait of these tests, in virtual time.
const PATIENCE: Duration = Duration::from_secs(60);

/// A packet with its sequence number and timestamp.
#[derive(Debug, Clone)]
struct Numbered {
    sequence: u16,
    timestamp: u32,
    payload_type: u8,
    payload: Bytes,
}

/// Payload types of a caller without redundancy.
const PLAIN: PayloadTypes = PayloadTypes { opus: 111, red: None, telephone_event: Some(110) };

/// Audio that a caller sent and received.
#[derive(Debug, Default)]
struct Report {
    events: Vec<Value>,
    /// Audio of each turn that the engine received.
    turns: Vec<Vec<f32>>,
    /// 20 ms frames of the responses that were audible at the caller.
    heard: usize,
    /// Frames of the responses that were sent to the caller.
    sent: usize,
    lost: u64,
}

impl Report {
    fn count(&self, kind: &str) -> usize {
        self.events.iter().filter(|event| event["type"] == kind).count()
    }
}

/// A frame of the question counts as missing if it reached the engine quieter by this, in dB.
const MISSING_DB: f32 = 12.0;

/// Share of the question's audible frames that `turn` has, at the offset in the question where it fits best.
fn received(turn: &[f32], question: &[f32]) -> f64 {
    // Half a packet each, so that a single missing packet counts at any offset.
    const FRAME: usize = 160;
    // A turn begins anywhere within the silence before the question; half a frame is precise enough.
    let share = |begin: usize| {
        let audible = question.chunks_exact(FRAME).enumerate().filter(|(_, frame)| is_audible(frame));
        let (mut kept, mut count) = (0_u32, 0_u32);
        for (index, frame) in audible {
            let ours = (index * FRAME).checked_sub(begin).and_then(|from| turn.get(from..from + FRAME));
            kept += u32::from(ours.is_some_and(|ours| level_db(ours) > level_db(frame) - MISSING_DB));
            count += 1;
        }
        f64::from(kept) / f64::from(count)
    };
    (0..8_000).step_by(80).map(share).fold(0.0, f64::max)
}

/// A spoken question with silence after it, in frames of 20 ms.
fn question() -> Vec<Vec<f32>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/question.wav");
    let file = std::fs::read(path).unwrap();
    let mut samples = vec![0.0; 8_000];
    samples.extend(sound_file::read(&file, 16_000, Duration::from_secs(60)).unwrap());
    samples.resize(samples.len() + 16_000, 0.0);
    samples.chunks_exact(320).map(<[f32]>::to_vec).collect()
}

/// Transport settings of these tests.
const SETTINGS: TransportSettings = TransportSettings {
    input_rate: INPUT_RATE,
    output_rate: OUTPUT_RATE,
    stalled_after: Duration::from_secs(10),
    receiver_buffer: Duration::from_millis(60),
};

/// Asks two questions over `network`, both ways, and hangs up. `pauses`: the caller does not send silence; `red`: both
/// sides send copies of earlier packets.
async fn converse(network: NetworkConditions, pauses: bool, red: bool, seed: u64) -> Report {
    let engine = ScriptedEngine::new(Script { frames: 25, ..Script::default() });
    let metrics = Arc::new(Metrics::new(Duration::from_millis(80)).unwrap());
    let setup = SessionSetup {
        session_id: "sess_simulated".into(),
        stem: "simulated".into(),
        seed,
        model: engine.info().clone(),
        delivery: Delivery::Paced,
        expires_at: None,
        configuration: None,
        warnings: Vec::new(),
    };
    let (to_transport, events) = mpsc::channel(256);
    let (outgoing, from_transport) = mpsc::channel(FRAME_QUEUE);
    let types = PayloadTypes { red: red.then_some(63), ..PLAIN };
    let mut packets = PacketSource::new(PacketEncoder::new(OUTPUT_RATE, types).unwrap(), from_transport);
    // Loss as the caller would report it after some seconds.
    let reported = LinkQuality { loss: Some(network.loss), reports: 1, ..LinkQuality::default() };
    let (sent_events, mut told) = mpsc::channel(1_024);
    let transport =
        WebRtcTransport::with_queues(events, outgoing, types, SETTINGS, metrics.clone(), |mut queue, _, publisher| {
            tokio::spawn(async move {
                while let Some(OutboundMessage::Event(kind, text)) = queue.recv().await {
                    publisher.publish(kind, &text);
                    sent_events.send(serde_json::from_str::<Value>(&text).unwrap()).await.unwrap();
                }
            });
        })
        .unwrap();
    let session = engine.open().unwrap();
    let never = std::future::pending::<()>();
    let call = tokio::spawn(crate::call::run(
        transport,
        session,
        setup,
        CallServices::new(metrics, None),
        never,
        std::future::pending(),
    ));

    let mut report = Report::default();
    let (mut up, mut down) = (SimulatedLink::new(network, seed), SimulatedLink::new(network, seed + 1));
    let mut encoder = OpusEncoder::new(INPUT_RATE).unwrap();
    encoder.expect_loss(network.loss).unwrap();
    let (mut jitter, mut decoder) = (JitterBuffer::new(), OpusDecoder::new(INPUT_RATE).unwrap());
    let frames = question();
    let silence = vec![0.0; 320];
    let (mut number, mut tick_count, mut position) = (60_000_u16, 0_u32, 0_usize);
    let (mut down_number, mut down_ticks) = (0_u16, 0_u32);
    let (mut writer, mut up_until) = (RedWriter::new(types.opus), 0_u32);
    let mut questions = 0;
    let mut clock = tokio::time::interval(FRAME);
    let begin = now();
    // Two questions and their answers; then a while for the last packets.
    let mut rest = None::<Instant>;
    while rest.is_none_or(|until| now() < until) {
        assert!(now() - begin < PATIENCE, "{:?}", report.events.iter().map(|event| &event["type"]).collect::<Vec<_>>());
        let next_arrival = up.next_arrival().into_iter().chain(down.next_arrival()).min();
        let arrival = async {
            match next_arrival {
                Some(at) => sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            Some(event) = told.recv() => {
                assert_ne!(event["type"], "error", "{event}");
                if event["type"] == "output_audio_buffer.stopped" {
                    questions += 1;
                    position = 0;
                    if questions == 2 {
                        rest = Some(now() + Duration::from_millis(500));
                    }
                }
                report.events.push(event);
            }
            Some(OutputPacket { payload_type, payload, gap, .. }) = packets.next(|| reported) => {
                down_ticks = down_ticks.wrapping_add((gap.as_micros() * 48 / 1_000) as u32);
                down.send(Numbered { sequence: down_number, timestamp: down_ticks, payload_type, payload }, now());
                (down_number, down_ticks) = (down_number.wrapping_add(1), down_ticks.wrapping_add(960));
                report.sent += 1;
            }
            () = arrival => {
                while let Some((arrival, packet)) = up.receive(now()) {
                    let Numbered { sequence, timestamp, payload_type, payload } = packet;
                    let (ssrc, marker) = (1, false);
                    let audio = PeerEvent::Audio { ssrc, sequence, timestamp, marker, payload_type, payload, arrival };
                    to_transport.try_send(audio).unwrap();
                }
                while let Some((arrival, packet)) = down.receive(now()) {
                    let Numbered { sequence, timestamp, payload_type, payload } = packet;
                    if payload_type == types.opus {
                        jitter.push(sequence, timestamp, payload, arrival);
                        continue;
                    }
                    let RedPayload { primary, copies } = red::parse(&payload, types.opus).unwrap();
                    jitter.push(sequence, timestamp, primary, arrival);
                    for PacketCopy { distance, offset, payload } in copies {
                        let (sequence, timestamp) = (sequence.wrapping_sub(distance), timestamp.wrapping_sub(offset));
                        jitter.push_redundant(sequence, timestamp, payload, arrival);
                    }
                }
            }
            _ = clock.tick() => {
                let frame = frames.get(position).unwrap_or(&silence);
                // The next question starts only once the answer to the last one has been played.
                position += 1;
                let packet = encoder.encode(frame).unwrap();
                if !(pauses && packet.silent) {
                    let gap = Duration::from_micros(u64::from(tick_count.wrapping_sub(up_until)) * 1_000 / 48);
                    up_until = tick_count.wrapping_add(960);
                    // A browser sends one copy.
                    let copied = types.red.and_then(|red| Some((red, writer.write(gap, &packet.payload, 1)?)));
                    let (payload_type, payload) = copied.unwrap_or((types.opus, packet.payload));
                    up.send(Numbered { sequence: number, timestamp: tick_count, payload_type, payload }, now());
                    number = number.wrapping_add(1);
                }
                tick_count = tick_count.wrapping_add(960);
            }
        }
        loop {
            let samples = match jitter.pop(now()) {
                JitterAction::Packet { payload, .. } => decoder.decode(&payload).unwrap(),
                JitterAction::Fec { next, duration, .. } => decoder.decode_fec(&next, duration).unwrap(),
                JitterAction::Conceal { duration, .. } => decoder.conceal(duration).unwrap(),
                JitterAction::Silence { .. } | JitterAction::Stall { .. } => continue,
                JitterAction::Wait { .. } => break,
            };
            report.heard += samples.chunks(320).filter(|frame| is_audible(frame)).count();
        }
    }
    report.lost = up.lost + down.lost;
    report.sent -= report.count("output_audio_buffer.stopped") * TAIL_PACKETS as usize;
    let mut turn = Vec::new();
    for command in engine.commands() {
        match command {
            Command::Append(samples) => turn.extend(samples),
            Command::Commit { .. } | Command::BeginSpeculation { .. } => report.turns.push(std::mem::take(&mut turn)),
            // The caller goes on: the speech so far is the beginning of the turn.
            Command::AbortSpeculation { .. } => turn = report.turns.pop().unwrap_or_default(),
            _ => {}
        }
    }
    drop(to_transport);
    assert_eq!(call.await.unwrap(), crate::call::CallEnd::Hangup);
    let mut open = engine.open_sessions();
    tokio::time::timeout(PATIENCE, open.wait_for(|open| *open == 0)).await.expect("the session is freed").unwrap();
    report
}

#[tokio::test(start_paused = true)]
async fn a_perfect_network_delivers_every_frame() {
    let report = converse(NetworkConditions::PERFECT, false, false, 1).await;
    assert_eq!(report.count("response.done"), 2);
    assert_eq!(report.count("input_audio_buffer.speech_started"), 2);
    // Twenty-five frames of 80 ms each.
    assert!((198..=204).contains(&report.heard), "{} of {}", report.heard, report.sent);
}

#[tokio::test(start_paused = true)]
async fn a_caller_with_dtx_is_answered() {
    let report = converse(NetworkConditions::PERFECT, true, true, 2).await;
    assert_eq!(report.count("response.done"), 2);
    assert!((198..=204).contains(&report.heard), "{} of {}", report.heard, report.sent);
}

#[tokio::test(start_paused = true)]
async fn conversations_survive_loss_reordering_jitter_and_duplicates() {
    let question = question().concat();
    for (seed, (loss, burst)) in [(0.0, 1.0), (0.05, 1.0), (0.1, 2.0), (0.2, 1.0), (0.2, 3.0)].into_iter().enumerate() {
        for jitter in [0, 40, 100] {
            let network = NetworkConditions { loss, burst, duplicates: 0.05, jitter: Duration::from_millis(jitter) };
            let report = converse(network, seed % 2 == 0, false, seed as u64 * 10 + jitter).await;
            let continuity = report.heard as f64 / report.sent as f64;
            let kept = report.turns.iter().map(|turn| received(turn, &question)).fold(f64::INFINITY, f64::min);
            println!(
                "loss {:>2.0} % in bursts of {burst}, jitter {jitter:>3} ms: {} packets lost, {:.1} % of the answers heard, \
                 {:.1} % of the questions received, in {} turns",
                loss * 100.0,
                report.lost,
                continuity * 100.0,
                kept * 100.0,
                report.turns.len()
            );
            assert!(report.count("response.done") >= 2);
            // Concealment cannot fill everything: at a packet loss of a fifth, a fifth of the sound may be missing.
            assert!(continuity > 0.95 - loss, "{network:?}: {continuity}");
            assert_eq!(report.turns.len(), 2, "{network:?}");
            assert!(kept > 0.95 - loss, "{network:?}: {kept}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn copies_keep_conversations_whole_over_bursts_of_loss() {
    let network = NetworkConditions { loss: 0.1, burst: 2.0, duplicates: 0.05, jitter: Duration::from_millis(20) };
    let question = question().concat();
    let (mut heard, mut kept) = ([0.0_f64; 2], [0.0_f64; 2]);
    for seed in 0..5 {
        for red in [false, true] {
            let report = converse(network, false, red, 1_000 + seed * 10).await;
            assert_eq!(report.turns.len(), 2);
            heard[usize::from(red)] += report.heard as f64 / report.sent as f64 / 5.0;
            let turns = report.turns.iter().map(|turn| received(turn, &question));
            kept[usize::from(red)] += turns.sum::<f64>() / 10.0;
        }
    }
    println!("of the answers {heard:?} heard, of the questions {kept:?} received, without copies and with them");
    // The copies restore more than half of the answers' missing audio. The missing part of the questions also contains
    // audio that the turn detector leaves out.
    assert!((1.0 - heard[1]) * 2.0 < 1.0 - heard[0], "{heard:?}");
    assert!(kept[1] > kept[0], "{kept:?}");
}

/// Plays `samples`, polled only at these milliseconds. Returns the gaps before the packets, in milliseconds.
async fn gaps(samples: &[f32], polled: impl IntoIterator<Item = u64>) -> Vec<u128> {
    let (frames, mut sent) = mpsc::channel(FRAME_QUEUE);
    let mut encoder = PacketEncoder::new(OUTPUT_RATE, PLAIN).unwrap();
    let metrics = Arc::new(Metrics::new(Duration::from_millis(80)).unwrap());
    let mut transport =
        WebRtcTransport::with_queues(mpsc::channel(1).1, frames, PLAIN, SETTINGS, metrics, |_, _, _| {}).unwrap();
    transport.plays_from = Some(now());
    transport.push_audio(1, samples).unwrap();
    transport.end_audio(1).unwrap();
    let begin = now();
    let mut gaps = Vec::new();
    for ms in polled {
        transport.play(begin + Duration::from_millis(ms));
        while let Ok(PlayoutCommand::Frame(frame, _)) = sent.try_recv() {
            gaps.extend(encoder.encode(&frame, frame.due).map(|packet| packet.gap.as_millis()));
        }
    }
    gaps
}

#[tokio::test]
async fn late_packets_leave_no_gap_in_timestamps() {
    let sound = sine(440.0, OUTPUT_RATE, OUTPUT_RATE as usize);
    // The machine was busy for 57, 90 and 199 ms, and then for longer than is made up for.
    let timely = (0..200).step_by(20);
    let gaps = gaps(&sound, timely.chain([257, 277, 367, 566, 586, 986, 1_006])).await;
    let torn: Vec<_> = gaps.iter().enumerate().filter(|(_, gap)| **gap > 0).collect();
    assert_eq!(torn, [(30, &386)], "{gaps:?}");
}

#[tokio::test]
async fn pauses_keep_their_length() {
    let tone = sine(440.0, OUTPUT_RATE, OUTPUT_RATE as usize / 5);
    let sound = [&tone[..], &vec![0.0; OUTPUT_RATE as usize], &tone].concat();
    // Timers are some milliseconds late, each time differently.
    let gaps = gaps(&sound, (0..80).map(|frame| frame * 20 + frame * frame % 7)).await;
    let pauses: Vec<_> = gaps.iter().filter(|gap| **gap > 0).collect();
    assert!(!pauses.is_empty() && pauses.iter().all(|gap| *gap % 20 == 0), "{gaps:?}");
    let said = gaps.len() as u128 * 20 + gaps.iter().sum::<u128>();
    assert!((1_400..=1_440).contains(&said), "{said} ms: {gaps:?}");
}

#[tokio::test]
async fn stalled_encoder_delays_no_event() {
    let (frames, mut waiting) = mpsc::channel(FRAME_QUEUE);
    let metrics = Arc::new(Metrics::new(Duration::from_millis(80)).unwrap());
    let mut transport =
        WebRtcTransport::with_queues(mpsc::channel(1).1, frames, PLAIN, SETTINGS, metrics.clone(), |_, _, _| {})
            .unwrap();
    // Each frame has its own level; nobody takes any of them.
    let frame = OUTPUT_RATE as usize / 50;
    let samples: Vec<f32> = (0..2 * FRAME_QUEUE).flat_map(|number| vec![0.01 * (number + 1) as f32; frame]).collect();
    transport.plays_from = Some(now());
    transport.push_audio(1, &samples).unwrap();
    transport.end_audio(1).unwrap();
    let begin = now();
    for number in 0..=2 * FRAME_QUEUE as u32 {
        transport.play(begin + number * FRAME);
    }
    let kinds: Vec<_> = transport.ready.iter().map(std::mem::discriminant).collect();
    let counted = metrics.render().unwrap();
    let dropped = format!("repartee_audio_dropped_total{{cause=\"stalled\"}} {FRAME_QUEUE}\n");
    assert!(counted.contains(&dropped), "{counted}");
    assert_eq!(kinds.len(), 2, "begun, over: {:?}", transport.ready);
    assert!(matches!(transport.ready.back(), Some(TransportEvent::Playout(PlayoutReport::Drained { response: 1 }))));
    let taken = std::iter::from_fn(|| waiting.try_recv().ok());
    let kept: Vec<_> = taken
        .map(|playing| if let PlayoutCommand::Frame(frame, _) = playing { frame.samples[0] } else { 0.0 })
        .collect();
    assert_eq!(
        kept,
        samples.iter().copied().step_by(frame).take(FRAME_QUEUE).collect::<Vec<_>>(),
        "bounded and in order"
    );
}

#[tokio::test]
async fn first_audible_packet_is_the_callers() {
    let frame = OUTPUT_RATE as usize / 50;
    let mut found = Vec::new();
    for silent_ms in [0, 10, 18] {
        let metrics = Arc::new(Metrics::new(Duration::from_millis(80)).unwrap());
        let (frames, mut sent) = mpsc::channel(FRAME_QUEUE);
        let mut transport =
            WebRtcTransport::with_queues(mpsc::channel(1).1, frames, PLAIN, SETTINGS, metrics, |_, _, _| {}).unwrap();
        let silence = vec![0.0; OUTPUT_RATE as usize * silent_ms / 1_000];
        let samples = [silence, sine(440.0, OUTPUT_RATE, 3 * frame)].concat();
        transport.plays_from = Some(now());
        transport.push_audio(1, &samples).unwrap();
        transport.end_audio(1).unwrap();
        let begin = now();
        (0..4).for_each(|number| transport.play(begin + number * FRAME));
        let (mut encoder, mut decoder) =
            (OpusEncoder::new(OUTPUT_RATE).unwrap(), OpusDecoder::new(OUTPUT_RATE).unwrap());
        let frames = std::iter::from_fn(|| sent.try_recv().ok());
        let packets = frames.filter_map(|playing| match playing {
            PlayoutCommand::Frame(frame, report) => {
                let decoded = decoder.decode(&encoder.encode(&frame.samples).unwrap().payload).unwrap();
                Some((report.is_some(), is_audible(&decoded)))
            }
            PlayoutCommand::Open(_) | PlayoutCommand::End => None,
        });
        let packets: Vec<(bool, bool)> = packets.collect();
        let reported: Vec<usize> = (0..packets.len()).filter(|&at| packets[at].0).collect();
        found.push((reported, packets.iter().position(|(_, audible)| *audible)));
    }
    assert_eq!(found, [(vec![0], Some(0)), (vec![0], Some(0)), (vec![1], Some(1))]);
}

/// Transport without a connection, and the queue of its packets.
fn transport(metrics: &Arc<Metrics>) -> (WebRtcTransport, mpsc::Sender<PeerEvent>) {
    let (to_transport, events) = mpsc::channel(256);
    let (outgoing, _) = mpsc::channel(FRAME_QUEUE);
    let transport = WebRtcTransport::with_queues(events, outgoing, PLAIN, SETTINGS, metrics.clone(), |_, _, _| {});
    (transport.unwrap(), to_transport)
}

/// Packet of a caller.
fn packet(sequence: u16, payload_type: u8, payload: &'static [u8], arrival: Instant) -> PeerEvent {
    let timestamp = u32::from(sequence) * 960;
    let payload = Bytes::from_static(payload);
    PeerEvent::Audio { ssrc: 1, sequence, timestamp, marker: false, payload_type, payload, arrival }
}

#[tokio::test(start_paused = true)]
async fn waiting_packets_are_in_time() {
    let metrics = Arc::new(Metrics::new(Duration::from_millis(80)).unwrap());
    let (mut transport, to_transport) = transport(&metrics);
    let start = now();
    // Two packets overtake each other by 2 ms, and the task reads them a quarter of a second later.
    for (sequence, ms) in [(0, 0), (2, 40), (1, 42), (3, 60)] {
        let arrival = start + Duration::from_millis(ms);
        to_transport.send(packet(sequence, PLAIN.opus, &[0x08, 0, 0], arrival)).await.unwrap();
    }
    tokio::time::advance(Duration::from_millis(250)).await;
    drop(to_transport);
    let mut samples = 0;
    loop {
        match transport.next(true).await {
            TransportEvent::Audio { samples: more, .. } => samples += more.len(),
            TransportEvent::Closed => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(samples >= 4 * 320, "{samples}");
    drop(transport);
    let text = metrics.render().unwrap();
    assert!(text.contains("fate=\"played\"} 4") && text.contains("fate=\"reordered\"} 1"), "{text}");
    assert!(!text.contains("fate=\"late\"} 1") && !text.contains("fate=\"recovered\"} 1"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn keys_of_a_caller_are_events() {
    let metrics = Arc::new(Metrics::new(Duration::from_millis(80)).unwrap());
    let (mut transport, to_transport) = transport(&metrics);
    for (sequence, payload) in [(5, &[10, 0x0a, 0, 160]), (6, &[10, 0x8a, 3, 0xc0])] {
        let PeerEvent::Audio { ssrc, marker, payload_type, payload, arrival, .. } =
            packet(sequence, 110, payload, now())
        else {
            unreachable!("a packet is audio")
        };
        // Both have the timestamp of the press.
        let event = PeerEvent::Audio { ssrc, sequence, timestamp: 7, marker, payload_type, payload, arrival };
        to_transport.send(event).await.unwrap();
    }
    drop(to_transport);
    // Also while the call takes no sound.
    assert!(matches!(transport.next(false).await, TransportEvent::Key { key: '*' }));
    assert!(matches!(transport.next(false).await, TransportEvent::Closed));
}

#[tokio::test(start_paused = true)]
async fn nothing_plays_before_the_caller_connects() {
    let (frames, mut sent) = mpsc::channel(FRAME_QUEUE);
    let metrics = Arc::new(Metrics::new(Duration::from_millis(80)).unwrap());
    let mut transport =
        WebRtcTransport::with_queues(mpsc::channel(1).1, frames, PLAIN, SETTINGS, metrics, |_, _, _| {}).unwrap();
    let sound = sine(440.0, OUTPUT_RATE, OUTPUT_RATE as usize / 10);
    transport.push_audio(1, &sound).unwrap();
    let begin = now();
    transport.play(begin + FRAME * 10);
    assert!(sent.try_recv().is_err() && transport.ready.is_empty());
    // Then all of it plays, from its beginning, behind the first packets, which may get lost.
    assert!(transport.on_peer_event(Some(PeerEvent::Connected)).is_none());
    assert!(matches!(sent.try_recv(), Ok(PlayoutCommand::Open(at)) if at == begin));
    (0..LEAD_PACKETS).for_each(|number| transport.play(begin + number * FRAME));
    assert!(sent.try_recv().is_err() && transport.ready.is_empty());
    (LEAD_PACKETS..20).for_each(|number| transport.play(begin + number * FRAME));
    let first = sent.try_recv().unwrap();
    let PlayoutCommand::Frame(first, _) = first else { panic!("{first:?}") };
    assert!(first.first && first.samples == sound[..first.samples.len()]);
    assert!(matches!(transport.ready[0], TransportEvent::Playout(PlayoutReport::Started { response: 1 })));
}
