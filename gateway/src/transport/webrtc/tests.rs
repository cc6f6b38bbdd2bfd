//! Two real peers on loopback: a caller with its own socket, and the server's mux.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use repartee_media::jitter::{JitterAction, JitterBuffer};
use repartee_media::opus::{FRAME, OpusDecoder, OpusEncoder};
use repartee_sdp::{OfferError, OfferFault};
use repartee_testkit::signal::{dominant_frequency, level_db, sine};
use webrtc::data_channel::{DataChannel, DataChannelEvent, RTCDataChannelInit};
use webrtc::peer_connection::PeerConnection;

use super::connection::Connection;
use super::negotiation::set_local_and_gather;
use super::peer_connection::LossRecovery;
use super::*;

/// Longest wait of these tests: only a defect runs into it.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

pub(super) fn bind_mux() -> UdpMux {
    UdpMux::bind(WebRtcSettings::default()).unwrap()
}

/// Connects a new call; returns the caller's and the server's end.
async fn connect(udp_mux: &UdpMux) -> (WebRtcCall, WebRtcCall) {
    let (sdp, dialing) = offer(&WebRtcSettings::default()).await.unwrap();
    let (sdp, server) = answer(&sdp, udp_mux, None).await.unwrap();
    (dialing.accept(&sdp).await.unwrap(), server)
}

pub(super) async fn next(call: &mut WebRtcCall) -> PeerEvent {
    tokio::time::timeout(PATIENCE, call.events.recv()).await.expect("nothing happens").expect("no end was reported")
}

/// Reads events until the channel is open; asserts that the call was reported as connected by then.
pub(super) async fn until_open(call: &mut WebRtcCall) {
    let mut connected = false;
    loop {
        match next(call).await {
            PeerEvent::Connected => connected = true,
            PeerEvent::ChannelOpen => return assert!(connected),
            PeerEvent::Audio { .. } => {}
            event => panic!("{event:?}"),
        }
    }
}

async fn until_closed(call: &mut WebRtcCall) {
    while next(call).await != PeerEvent::Closed {}
}

async fn open_at(udp_mux: &UdpMux) -> (WebRtcCall, WebRtcCall) {
    let (mut caller, mut server) = connect(udp_mux).await;
    tokio::join!(until_open(&mut caller), until_open(&mut server));
    (caller, server)
}

/// Opens a call at its own mux, which must outlive it.
pub(super) async fn open() -> (WebRtcCall, WebRtcCall, UdpMux) {
    let udp_mux = bind_mux();
    let (caller, server) = open_at(&udp_mux).await;
    (caller, server, udp_mux)
}

/// Sends a second of a tone in real time.
async fn send_tone(call: &WebRtcCall, frequency: f64) {
    let mut encoder = OpusEncoder::new(24_000).unwrap();
    let mut tick = tokio::time::interval(FRAME);
    for frame in sine(frequency, 24_000, 24_000).chunks_exact(480) {
        tick.tick().await;
        call.send_audio(encoder.encode(frame).unwrap().payload, FRAME).await.unwrap();
    }
}

/// Receives audio for most of a second.
async fn listen(call: &mut WebRtcCall) -> Vec<f32> {
    let (mut jitter, mut decoder, mut heard) = (JitterBuffer::new(), OpusDecoder::new(16_000).unwrap(), Vec::new());
    while heard.len() < 14_000 {
        let PeerEvent::Audio { sequence, timestamp, payload, arrival, .. } = next(call).await else { continue };
        jitter.push(sequence, timestamp, payload, arrival);
        loop {
            heard.extend(match jitter.pop(Instant::now()) {
                JitterAction::Packet { payload, .. } => decoder.decode(&payload).unwrap(),
                JitterAction::Fec { next, duration, .. } => decoder.decode_fec(&next, duration).unwrap(),
                JitterAction::Conceal { duration, .. } => decoder.conceal(duration).unwrap(),
                JitterAction::Silence { .. } | JitterAction::Stall { .. } => continue,
                JitterAction::Wait { .. } => break,
            });
        }
    }
    heard
}

#[tokio::test]
async fn audio_goes_both_ways() {
    let (mut caller, mut server, _port) = open().await;
    for (frequency, from_server) in [(440.0, false), (700.0, true)] {
        let (speaker, listener) = if from_server { (&server, &mut caller) } else { (&caller, &mut server) };
        let ((), heard) = tokio::join!(send_tone(speaker, frequency), listen(listener));
        let settled = &heard[3_200..];
        assert!(
            (dominant_frequency(settled, 16_000) - frequency).abs() < 4.0,
            "{}",
            dominant_frequency(settled, 16_000)
        );
        assert!(level_db(settled) > -12.0);
    }
    assert_eq!((caller.dropped_audio(), server.dropped_audio()), (0, 0));
}

#[tokio::test]
async fn skipped_silence_advances_timestamps_alone() {
    let (caller, mut server, _port) = open().await;
    let packet = Bytes::from_static(&[0x08, 0, 0]);
    caller.send_audio(packet.clone(), FRAME).await.unwrap();
    caller.skip_audio(Duration::from_millis(400));
    caller.send_audio(packet, FRAME).await.unwrap();
    let mut seen = Vec::new();
    while seen.len() < 2 {
        if let PeerEvent::Audio { sequence, timestamp, marker, .. } = next(&mut server).await {
            seen.push((sequence, timestamp, marker));
        }
    }
    assert_eq!(seen[1].0, seen[0].0.wrapping_add(1));
    assert_eq!(seen[1].1, seen[0].1.wrapping_add(420 * 48));
    assert!(seen[0].2 && seen[1].2, "each is the first after silence");
}

#[tokio::test]
async fn messages_of_any_size_arrive_in_order() {
    let (mut caller, mut server, _port) = open().await;
    let messages: Vec<String> =
        [0, 1, 1_000, 60_000, 200_000, 256 * 1024].iter().map(|&length| "ü".repeat(length / 2)).collect();
    for back in [false, true] {
        let (from, to) = if back { (&server, &mut caller) } else { (&caller, &mut server) };
        let send = async {
            for message in &messages {
                from.send_message(message).await.unwrap();
            }
        };
        let receive = async {
            for message in &messages {
                assert_eq!(next(to).await, PeerEvent::Message(message.clone()));
            }
        };
        tokio::join!(send, receive);
    }
}

#[tokio::test]
async fn a_message_too_large_is_a_typed_error() {
    let (caller, mut server, _port) = open().await;
    let size = caller.max_message_size() + 1;
    let error = caller.send_message(&"x".repeat(size)).await.unwrap_err();
    assert_eq!(error, SendError::TooLarge { size, limit: size - 1 });
    caller.send_message("still here").await.unwrap();
    assert_eq!(next(&mut server).await, PeerEvent::Message("still here".to_owned()));
}

#[tokio::test]
async fn a_stalled_reader_blocks_messages_without_loss() {
    let (caller, mut server, _port) = open().await;
    let message = "x".repeat(50_000);
    let mut sent = 0;
    // Sends until the windows and queues between both ends are full.
    while tokio::time::timeout(Duration::from_millis(300), caller.send_message(&message)).await.is_ok() {
        sent += 1;
        assert!(sent < 2_000, "nothing holds the sender up");
    }
    for _ in 0..sent {
        assert_eq!(next(&mut server).await, PeerEvent::Message(message.clone()));
    }
    caller.send_message("and on").await.unwrap();
    assert_eq!(next(&mut server).await, PeerEvent::Message("and on".to_owned()));
}

#[tokio::test]
async fn a_stalled_reader_drops_and_counts_audio() {
    let (caller, mut server, _port) = open().await;
    let mut sent = 0;
    // The network may lose any number of packets on the way to our queue.
    while server.dropped_audio() == 0 {
        caller.send_audio(Bytes::from_static(&[0x08, 0, 0]), FRAME).await.unwrap();
        sent += 1;
        assert!(sent < 100_000, "nothing is dropped");
    }
    caller.send_message("after").await.unwrap();
    let mut heard = 0;
    loop {
        match next(&mut server).await {
            PeerEvent::Audio { .. } => heard += 1,
            PeerEvent::Message(text) => break assert_eq!(text, "after"),
            event => panic!("{event:?}"),
        }
    }
    // Our queue and the library's hold 192 and 256.
    assert!((1..450).contains(&heard), "{heard} of {sent} packets waited");
}

#[tokio::test]
async fn the_round_trip_is_known_once_connected() {
    let since = Instant::now();
    let (_caller, server, _port) = open().await;
    let measured = server.quality().round_trip.expect("connecting measures it");
    assert!(Duration::ZERO < measured && measured < since.elapsed(), "{measured:?}");
}

#[tokio::test]
async fn hanging_up_closes_the_other_side() {
    for by_dropping in [false, true] {
        let (caller, mut server, _port) = open().await;
        if by_dropping {
            drop(caller);
        } else {
            caller.close().await;
        }
        let since = Instant::now();
        until_closed(&mut server).await;
        assert!(since.elapsed() < PEER_TIMEOUT, "only the timeout noticed it");
        assert_eq!(server.send_message("too late").await, Err(SendError::Closed));
        assert_eq!(server.send_audio(Bytes::from_static(&[8, 0]), FRAME).await, Err(SendError::Closed));
    }
}

#[tokio::test]
async fn the_last_messages_arrive_before_the_end() {
    for by_server in [false, true] {
        let (caller, server, _port) = open().await;
        let (speaker, mut listener) = if by_server { (server, caller) } else { (caller, server) };
        let words = "x".repeat(60_000);
        for _ in 0..5 {
            speaker.send_message(&words).await.unwrap();
        }
        let freed = speaker.freed();
        drop(speaker);
        for _ in 0..5 {
            match next(&mut listener).await {
                PeerEvent::Message(text) => assert_eq!(text.len(), words.len()),
                event => panic!("{event:?}, by server: {by_server}"),
            }
        }
        assert_eq!(next(&mut listener).await, PeerEvent::Closed);
        tokio::time::timeout(PATIENCE, freed).await.expect("everything is freed");
    }
}

#[test]
fn a_vanished_peer_closes_the_call() {
    // The caller runs in its own runtime, which is dropped during the call.
    let [theirs, ours] = [(); 2].map(|()| tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap());
    let settings = WebRtcSettings::default();
    let (sdp, dialing) = theirs.block_on(offer(&settings)).unwrap();
    let udp_mux = ours.block_on(async { bind_mux() });
    let (sdp, mut server) = ours.block_on(answer(&sdp, &udp_mux, None)).unwrap();
    let mut caller = theirs.block_on(dialing.accept(&sdp)).unwrap();
    ours.block_on(async { tokio::join!(until_open(&mut caller), until_open(&mut server)) });
    theirs.shutdown_background();
    ours.block_on(until_closed(&mut server));
}

#[tokio::test]
async fn an_offered_camera_is_declined() {
    let (sdp, dialing) = offer(&WebRtcSettings::default()).await.unwrap();
    // The camera shares the microphone's transport attributes.
    let audio = &sdp[sdp.find("m=audio").unwrap()..sdp.find("m=application").unwrap()];
    let transport = ["a=ice-", "a=fingerprint", "a=setup", "a=rtcp-mux", "a=sendrecv", "c="];
    let shared: String = audio
        .lines()
        .filter(|line| transport.iter().any(|start| line.starts_with(start)))
        .fold(String::new(), |all, line| all + line + "\r\n");
    let video = format!("m=video 9 UDP/TLS/RTP/SAVPF 96\r\n{shared}a=mid:9\r\na=rtpmap:96 VP8/90000\r\n");
    let with_video = sdp.replace("a=group:BUNDLE 0 1", "a=group:BUNDLE 0 1 9") + &video;
    let udp_mux = bind_mux();
    let (sdp, _server) = answer(&with_video, &udp_mux, None).await.unwrap();
    assert!(sdp.contains("m=video 0 "), "{sdp}");
    drop(dialing);
}

#[tokio::test]
async fn other_channels_are_closed() {
    let udp_mux = bind_mux();
    let (sdp, dialing) = offer(&WebRtcSettings::default()).await.unwrap();
    let pc = Arc::clone(&dialing.connection.pc);
    let (sdp, mut server) = answer(&sdp, &udp_mux, None).await.unwrap();
    let mut caller = dialing.accept(&sdp).await.unwrap();
    tokio::join!(until_open(&mut caller), until_open(&mut server));
    // The second channel has the right name: a call has one channel.
    for label in ["another", DATA_CHANNEL_LABEL] {
        let channel = pc.create_data_channel(label, None).await.unwrap();
        let closed = async {
            loop {
                match channel.poll().await.expect("it is not gone yet") {
                    DataChannelEvent::OnOpen => drop(channel.send_text("lost").await),
                    DataChannelEvent::OnClose => break,
                    _ => {}
                }
            }
        };
        tokio::time::timeout(PATIENCE, closed).await.unwrap_or_else(|_| panic!("`{label}` stays open"));
    }
    caller.send_message("kept").await.unwrap();
    assert_eq!(next(&mut server).await, PeerEvent::Message("kept".into()));
    server.send_message("back").await.unwrap();
    assert_eq!(next(&mut caller).await, PeerEvent::Message("back".into()));
}

/// A call whose caller has opened one channel: the channel, the caller's connection, both ends.
async fn dial_with_channel(
    udp_mux: &UdpMux,
    label: &str,
    options: Option<RTCDataChannelInit>,
) -> (Arc<dyn DataChannel>, Arc<dyn PeerConnection>, WebRtcCall, WebRtcCall) {
    let connection = Connection::new(&WebRtcSettings::default(), None, LossRecovery::default(), None).await.unwrap();
    connection.add_track().await.unwrap();
    let pc = Arc::clone(&connection.pc);
    let channel = pc.create_data_channel(label, options).await.unwrap();
    let description = pc.create_offer(None).await.unwrap();
    let sdp = set_local_and_gather(&connection, description).await.unwrap();
    let (sdp, server) = answer(&sdp, udp_mux, None).await.unwrap();
    let caller = PendingOffer { connection }.accept(&sdp).await.unwrap();
    (channel, pc, caller, server)
}

/// Next message that comes over a channel.
async fn received(channel: &Arc<dyn DataChannel>) -> String {
    loop {
        let event = tokio::time::timeout(PATIENCE, channel.poll()).await.expect("nothing comes");
        if let DataChannelEvent::OnMessage(message) = event.expect("the channel is gone") {
            return String::from_utf8(message.data.to_vec()).unwrap();
        }
    }
}

#[tokio::test]
async fn channels_of_any_label_carry_events() {
    let udp_mux = bind_mux();
    let (channel, _pc, caller, mut server) = dial_with_channel(&udp_mux, "events", None).await;
    until_open(&mut server).await;
    server.send_message("to it").await.unwrap();
    assert_eq!(received(&channel).await, "to it");
    channel.send_text("from it").await.unwrap();
    assert_eq!(next(&mut server).await, PeerEvent::Message("from it".into()));
    // Its end is not that of the call.
    channel.close().await.unwrap();
    let closed = async {
        while server.send_message("nobody").await != Err(SendError::NotOpen) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, closed).await.expect("its end is noticed");
    caller.send_audio(Bytes::from_static(&[0x08, 0, 0]), FRAME).await.unwrap();
    assert!(matches!(next(&mut server).await, PeerEvent::Audio { .. }));
}

#[tokio::test]
async fn our_label_takes_the_events_over() {
    let udp_mux = bind_mux();
    let (first, pc, _caller, mut server) = dial_with_channel(&udp_mux, "first", None).await;
    until_open(&mut server).await;
    let ours = pc.create_data_channel(DATA_CHANNEL_LABEL, None).await.unwrap();
    assert_eq!(next(&mut server).await, PeerEvent::ChannelOpen);
    server.send_message("to ours").await.unwrap();
    assert_eq!(received(&ours).await, "to ours");
    first.send_text("lost").await.unwrap();
    ours.send_text("kept").await.unwrap();
    assert_eq!(next(&mut server).await, PeerEvent::Message("kept".into()));
    // Now its end is that of the call.
    ours.close().await.unwrap();
    until_closed(&mut server).await;
}

#[tokio::test]
async fn negotiated_channels_leave_the_call_alone() {
    let udp_mux = bind_mux();
    let options = RTCDataChannelInit { negotiated: Some(0), ..RTCDataChannelInit::default() };
    let (channel, _pc, mut caller, mut server) = dial_with_channel(&udp_mux, DATA_CHANNEL_LABEL, Some(options)).await;
    assert_eq!(next(&mut server).await, PeerEvent::Connected);
    assert_eq!(next(&mut caller).await, PeerEvent::Connected);
    let opened = tokio::time::timeout(PATIENCE, channel.poll()).await.expect("the channel opens");
    assert!(matches!(opened, Some(DataChannelEvent::OnOpen)));
    for _ in 0..3 {
        channel.send_text("nobody knows this channel").await.unwrap();
        caller.send_audio(Bytes::from_static(&[0x08, 0, 0]), FRAME).await.unwrap();
        assert!(matches!(next(&mut server).await, PeerEvent::Audio { .. }));
    }
    assert_eq!(server.send_message("no channel").await, Err(SendError::NotOpen));
}

#[tokio::test]
async fn messages_before_the_channel_opens_are_refused() {
    let (sdp, _dialing) = offer(&WebRtcSettings::default()).await.unwrap();
    let udp_mux = bind_mux();
    let (_, server) = answer(&sdp, &udp_mux, None).await.unwrap();
    assert_eq!(server.send_message("early").await, Err(SendError::NotOpen));
}

#[tokio::test]
async fn calls_leave_no_task_and_no_socket() {
    let udp_mux = bind_mux();
    // The mux's own task has begun.
    tokio::task::yield_now().await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    for round in 0..50 {
        match round % 5 {
            // Answered but never connected.
            0 => {
                let (sdp, dialing) = offer(&WebRtcSettings::default()).await.unwrap();
                let (_, server) = answer(&sdp, &udp_mux, None).await.unwrap();
                server.close().await;
                drop(dialing);
            }
            // Never answered.
            1 => drop(offer(&WebRtcSettings::default()).await.unwrap()),
            2 => {
                let (caller, server) = open_at(&udp_mux).await;
                caller.send_message("hello").await.unwrap();
                server.close().await;
                caller.close().await;
            }
            _ => {
                let (mut caller, server) = connect(&udp_mux).await;
                assert_eq!(next(&mut caller).await, PeerEvent::Connected);
                drop((caller, server));
            }
        }
    }
    // Dropped calls end in the background.
    let ended = async {
        while tasks() > before || udp_mux.calls() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let late = || panic!("{} tasks, {before} before; {} calls", tasks(), udp_mux.calls());
    tokio::time::timeout(PATIENCE, ended).await.unwrap_or_else(|_| late());
    assert_eq!(udp_mux.routes(), (0, 0));
}

#[tokio::test]
async fn a_call_that_never_connects_is_freed() {
    let connect_within = Duration::from_millis(300);
    let udp_mux = UdpMux::bind(WebRtcSettings { connect_within, ..WebRtcSettings::default() }).unwrap();
    let (sdp, _dialing) = offer(&WebRtcSettings::default()).await.unwrap();
    let (_, mut server) = answer(&sdp, &udp_mux, None).await.unwrap();
    let since = Instant::now();
    assert_eq!(next(&mut server).await, PeerEvent::Closed);
    assert!(since.elapsed() >= connect_within - Duration::from_millis(50));
    server.close().await;
    assert_eq!(udp_mux.calls(), 0);
}

#[tokio::test]
async fn unusable_offers_are_typed_errors() {
    let udp_mux = bind_mux();
    let (sdp, _dialing) = offer(&WebRtcSettings::default()).await.unwrap();
    let error = async |sdp: String| answer(&sdp, &udp_mux, None).await.unwrap_err();
    let line = |text: &str| sdp.lines().position(|line| line.starts_with(text)).unwrap() + 1;
    let audio = line("m=audio");
    for (bad, line, fault) in [
        (String::new(), 1, OfferFault::NotSdp),
        ("hello".to_owned(), 1, OfferFault::NotSdp),
        (sdp.replace("m=audio 9 ", "m=audio 0 "), audio, OfferFault::NoAudio),
        (sdp.replace("opus/48000/2", "PCMU/8000"), audio, OfferFault::NoOpus),
        (sdp.replace("a=fingerprint", "a=x"), audio, OfferFault::MissingAttribute("fingerprint")),
        (sdp.replace("a=ice-ufrag", "a=x"), audio, OfferFault::MissingAttribute("ice-ufrag")),
        (sdp.replace("t=0 0", "t=0 0\r\na=ice-lite"), line("t=0 0") + 1, OfferFault::IceLite),
    ] {
        assert_eq!(error(bad).await, AnswerError::Offer(OfferError { line, fault }));
    }
}

/// A connection whose certificate is another than its offer says.
#[tokio::test]
async fn foreign_certificates_never_connect() {
    let udp_mux = bind_mux();
    let (sdp, dialing) = offer(&WebRtcSettings::default()).await.unwrap();
    let at = sdp.find("a=fingerprint:sha-256 ").unwrap() + "a=fingerprint:sha-256 ".len();
    let digest = &sdp[at..at + 95];
    let foreign = sdp.replace(digest, &["00"; 32].join(":"));
    assert_ne!(sdp, foreign);
    let (answer_sdp, mut server) = answer(&foreign, &udp_mux, None).await.unwrap();
    let caller = dialing.accept(&answer_sdp).await.unwrap();
    assert_eq!(next(&mut server).await, PeerEvent::Closed, "it was never connected");
    drop(caller);
    server.close().await;
    // The true certificate may be one of several.
    let (sdp, dialing) = offer(&WebRtcSettings::default()).await.unwrap();
    let more =
        format!("a=fingerprint:sha-256 {}\r\na=fingerprint:sha-1 {}", ["00"; 32].join(":"), ["00"; 20].join(":"));
    let line = sdp.lines().find(|line| line.starts_with("a=fingerprint:")).unwrap();
    let (answer_sdp, mut server) =
        answer(&sdp.replace(line, &format!("{more}\r\n{line}")), &udp_mux, None).await.unwrap();
    let mut caller = dialing.accept(&answer_sdp).await.unwrap();
    tokio::join!(until_open(&mut caller), until_open(&mut server));
}

#[tokio::test]
async fn an_unusable_address_is_an_error() {
    // TEST-NET-1 is nobody's address.
    let settings = WebRtcSettings { udp: "192.0.2.1:0".parse().unwrap(), ..WebRtcSettings::default() };
    assert!(UdpMux::bind(settings).is_err());
}
