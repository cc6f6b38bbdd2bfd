//! `make bench-call`: the cost of each part of a WebRTC call, for a packet or a frame of 20 ms, beside the same part of `aiortc`
//! on the same sound. Parts that the gateway does for all of a burst at once are measured so. The largest part is named, and what
//! a whole call takes beside its parts, if `load.json` of the same run has that.

mod efforts;

use std::hint::black_box;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use repartee_engine_api::SpeechEngine as _;
use repartee_media::jitter::{JitterAction, JitterBuffer};
use repartee_media::opus::{FRAME, OpusDecoder, OpusEncoder};
use repartee_media::playout::{Playout, PlayoutOutput};
use repartee_media::vad::{TurnDetector, TurnEvent};
use repartee_media::{sound_file, voice_detector};
use repartee_realtime::{Delivery, RealtimeSession, SessionInput, SessionSetup};
use repartee_report::{Report, ReportRow};
use repartee_testkit::scripted::{Script, ScriptedEngine};
use repartee_tests::side_by_side::{finish, median, reference};
use repartee_tests::{questions, tools};
use rtc_srtp::context::Context;
use rtc_srtp::protection_profile::ProtectionProfile;
use serde::Deserialize;

/// Timed repetitions of each part, after a warm-up.
const REPEATS: usize = 15;
/// Questions whose sound is sent, with their silence: some 25 s.
const QUESTIONS: usize = 8;
/// Rate of the sound in the engine and of what it says, in Hz.
const HEARD: u32 = 16_000;
const SAID: u32 = 24_000;
/// Datagrams that a socket takes before they are read: fewer than its buffer holds.
const BURST: usize = 32;
/// Packets and frames in a second of a call whose caller listens for `SAYING` of the time.
const PACKETS: f64 = 50.0;
const SAYING: f64 = 0.4;

/// Output of `tests/peers/call_parts.py`: microseconds a packet or a frame.
#[derive(Debug, Deserialize)]
struct Peer {
    version: String,
    receive: f64,
    decrypt: f64,
    jitter_buffer: f64,
    decode: f64,
    resample: f64,
    encode: f64,
    encrypt: f64,
    send: f64,
}

/// One part: microseconds of ours, and of the peer's if it has the part.
struct Part {
    name: &'static str,
    is_input: bool,
    ours: f64,
    peer: Option<f64>,
    note: &'static str,
}

fn main() -> Result<()> {
    let paths: Vec<_> = questions::all()?.iter().take(QUESTIONS).map(questions::Question::path).collect();
    let sound = Sound::read(&paths)?;
    println!("ours: {} packets of 20 ms", sound.packets.len());
    let (decrypt, encrypt) = ciphers(&sound)?;
    let (send, receive) = sockets(&sound)?;
    let [jitter_buffer, decode, encode] = codec(&sound)?;
    let (detect, slice) = (detect(&sound), slice(&sound));
    let playout = playout(&sound);
    println!("the peer");
    let peer: Peer = reference("REPARTEE_CLIENT_PYTHON", "tests/peers/call_parts.py", &paths)?;
    let input = |name, ours, peer, note| Part { name, is_input: true, ours, peer, note };
    let output = |name, ours, peer, note| Part { name, is_input: false, ours, peer, note };
    let parts = [
        input("receive", receive, Some(peer.receive), "a datagram of loopback, read one by one"),
        input("decrypt", decrypt, Some(peer.decrypt), "SRTP, AEAD_AES_128_GCM; the peer uses libsrtp"),
        input("jitter_buffer", jitter_buffer, Some(peer.jitter_buffer), ""),
        input("decode", decode, Some(peer.decode), "Opus to 16 kHz; peer: to 48 kHz, stereo"),
        input("resample", 0.0, Some(peer.resample), "ours decodes at the engine's rate; peer: 48 kHz stereo to 16 kHz"),
        input("detect", detect, None, "voice and turn detection; the peer has none"),
        input("slice", slice, None, "session: preroll, slices, commands; the peer has none"),
        output("playout", playout, None, "samples into frames on the clock; the peer has its own clock, a timer"),
        output("encode", encode, Some(peer.encode), "Opus, 32 kbit/s, complexity 6, no FEC, mono"),
        output("encrypt", encrypt, Some(peer.encrypt), "SRTP, AEAD_AES_128_GCM; the peer uses libsrtp"),
        output("send", send, Some(peer.send), "a datagram to loopback"),
    ];
    println!("efforts of the encoder");
    let mut rows = rows(&parts, &peer.version);
    rows.extend(efforts::rows(&sound)?);
    finish("call", rows)
}

/// Rows of the parts and of a second of a call.
fn rows(parts: &[Part], version: &str) -> Vec<ReportRow> {
    let second = |part: &Part| part.ours * PACKETS * if part.is_input { 1.0 } else { SAYING };
    let mut rows: Vec<ReportRow> = parts
        .iter()
        .map(|part| {
            let name = format!("call_{}_{}", if part.is_input { "in" } else { "out" }, part.name);
            match part.peer {
                Some(peer) if part.ours > 0.0 => {
                    let note = [part.note, &format!("aiortc {version}")].join("; ");
                    ReportRow::lower_is_better(name, part.ours, peer, "us", note.trim_start_matches("; "))
                }
                _ => ReportRow::without_peer(name, part.ours, "us", part.note),
            }
        })
        .collect();
    let sum: f64 = parts.iter().map(second).sum();
    if let Some(largest) = parts.iter().max_by(|a, b| second(a).total_cmp(&second(b))) {
        println!("largest part of a call: {}, {:.0} % of the parts", largest.name, 100.0 * second(largest) / sum);
    }
    let note = format!("50 packets in, {:.0} frames out", SAYING * PACKETS);
    rows.push(ReportRow::without_peer("call_parts_a_second", sum / 1e3, "ms", note));
    if let Some(whole) = whole_call() {
        let note = format!(
            "of {:.1} ms a second that a call takes by `repartee-load peer`: runtime, WebRTC's driver, events",
            whole * 1e3
        );
        rows.push(ReportRow::without_peer("call_beside_parts", whole * 1e3 - sum / 1e3, "ms", note));
    }
    rows
}

/// Cores of a whole call, if `repartee-load peer` ran within the last minutes.
fn whole_call() -> Option<f64> {
    let path = tools::root().join("target/report/load.json");
    let age = path.metadata().ok()?.modified().ok()?.elapsed().ok()?;
    let rows = Report::read(&path).ok()?.rows;
    let row = rows.into_iter().find(|row| row.measure == "cpu_per_call_vs_aiortc")?;
    (age < Duration::from_secs(600)).then_some(row.ours)
}

/// Sound of some questions, and its packets.
struct Sound {
    heard: Vec<f32>,
    said: Vec<f32>,
    packets: Vec<Vec<u8>>,
}

impl Sound {
    fn read(paths: &[std::path::PathBuf]) -> Result<Self> {
        let (mut heard, mut said) = (Vec::new(), Vec::new());
        for path in paths {
            let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
            let at = |rate| sound_file::read(&bytes, rate, Duration::from_secs(60));
            heard.extend(at(HEARD)?);
            said.extend(at(SAID)?);
        }
        let mut encoder = OpusEncoder::new(SAID)?;
        let frames = said.chunks_exact(encoder.frame_samples()).collect::<Vec<_>>();
        let packets = frames.iter().map(|frame| Ok(encoder.encode(frame)?.payload.to_vec())).collect::<Result<_>>()?;
        Ok(Self { heard, said, packets })
    }

    /// RTP packets, each with its number.
    fn rtp(&self) -> Vec<Vec<u8>> {
        self.packets
            .iter()
            .enumerate()
            .map(|(at, payload)| {
                let (number, time) = ((at as u16).to_be_bytes(), (960 * at as u32).to_be_bytes());
                // The header without extensions; the last four bytes are the SSRC.
                [&[0x80, 111][..], &number, &time, &[1, 2, 3, 4], payload].concat()
            })
            .collect()
    }

    /// Microseconds of a packet in some runs over all of them.
    fn each(&self, run: impl FnMut()) -> f64 {
        1e3 * median(REPEATS, self.packets.len() as f64, run)
    }
}

/// Times of reading and of writing an SRTP packet.
fn ciphers(sound: &Sound) -> Result<(f64, f64)> {
    let provider = rtc::crypto::default_provider().context("no cryptography is compiled in")?;
    let context = || {
        let profile = ProtectionProfile::AeadAes128Gcm;
        Context::new(&[7; 16], &[8; 12], profile, None, None, provider.crypto()).context("an SRTP context")
    };
    let (rtp, mut sender) = (sound.rtp(), context()?);
    let encrypted = rtp.iter().map(|packet| Ok(sender.encrypt_rtp(packet)?)).collect::<Result<Vec<_>>>()?;
    ensure!(context()?.decrypt_rtp(&encrypted[0])? == rtp[0][..], "a packet is not what it was");
    let mut failed = false;
    let decrypt = sound.each(|| {
        let Ok(mut receiver) = context() else { return failed = true };
        failed |= encrypted.iter().any(|packet| black_box(receiver.decrypt_rtp(packet)).is_err());
    });
    let encrypt = sound.each(|| {
        let Ok(mut sender) = context() else { return failed = true };
        failed |= rtp.iter().any(|packet| black_box(sender.encrypt_rtp(packet)).is_err());
    });
    ensure!(!failed, "a packet was refused");
    Ok((decrypt, encrypt))
}

/// Times of sending and of receiving a datagram.
fn sockets(sound: &Sound) -> Result<(f64, f64)> {
    let (from, to) = (UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?, UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?);
    from.connect(to.local_addr()?)?;
    to.set_read_timeout(Some(Duration::from_secs(1)))?;
    let (mut buffer, mut times) = ([0; 2_048], Vec::new());
    for _ in 0..REPEATS {
        let (mut sent, mut received) = (Duration::ZERO, Duration::ZERO);
        for burst in sound.packets.chunks(BURST) {
            let begun = Instant::now();
            for packet in burst {
                from.send(packet)?;
            }
            sent += begun.elapsed();
            let begun = Instant::now();
            for _ in burst {
                to.recv(&mut buffer)?;
            }
            received += begun.elapsed();
        }
        times.push((sent, received));
    }
    let middle = |of: fn(&(Duration, Duration)) -> Duration| {
        let mut times: Vec<f64> = times.iter().map(|pair| of(pair).as_secs_f64()).collect();
        times.sort_by(f64::total_cmp);
        1e6 * times[REPEATS / 2] / sound.packets.len() as f64
    };
    Ok((middle(|pair| pair.0), middle(|pair| pair.1)))
}

/// Times of the jitter buffer, the decoder and the encoder.
fn codec(sound: &Sound) -> Result<[f64; 3]> {
    let payloads: Vec<bytes::Bytes> = sound.packets.iter().map(|packet| packet.clone().into()).collect();
    let (begun, mut popped) = (Instant::now(), 0);
    let jitter_buffer = sound.each(|| {
        let mut buffer = JitterBuffer::new();
        popped = 0;
        for (at, payload) in payloads.iter().enumerate() {
            let now = begun + FRAME * at as u32;
            buffer.push(at as u16, 960 * at as u32, payload.clone(), now);
            while let JitterAction::Packet { .. } = buffer.pop(now) {
                popped += 1;
            }
        }
    });
    ensure!(popped == payloads.len(), "{popped} packets of {}", payloads.len());
    let mut failed = false;
    let decode = sound.each(|| {
        let Ok(mut decoder) = OpusDecoder::new(HEARD) else { return failed = true };
        failed |= sound.packets.iter().any(|packet| black_box(decoder.decode(packet)).is_err());
    });
    let encode = sound.each(|| {
        let Ok(mut encoder) = OpusEncoder::new(SAID) else { return failed = true };
        let frames = sound.said.chunks_exact(encoder.frame_samples());
        failed |= frames.into_iter().any(|frame| black_box(encoder.encode(frame)).is_err());
    });
    ensure!(!failed, "a frame was refused");
    Ok([jitter_buffer, decode, encode])
}

/// Samples of 20 ms of the caller.
fn pieces(sound: &Sound) -> impl Iterator<Item = &[f32]> {
    sound.heard.chunks((HEARD as f64 * FRAME.as_secs_f64()) as usize)
}

/// Time of turn detection.
fn detect(sound: &Sound) -> f64 {
    assert_eq!(HEARD, voice_detector::RATE, "the detector's rate");
    sound.each(|| {
        let mut detector = TurnDetector::default();
        for piece in pieces(sound) {
            black_box(detector.push(piece));
        }
    })
}

/// Time of the session for the sound of an open turn.
fn slice(sound: &Sound) -> f64 {
    let model = ScriptedEngine::new(Script::default()).info().clone();
    let begun = Instant::now();
    sound.each(|| {
        let (mut session, _) = RealtimeSession::new(SessionSetup {
            session_id: "sess_1".into(),
            stem: "1".into(),
            seed: 1,
            model: model.clone(),
            delivery: Delivery::Paced,
            expires_at: None,
            configuration: None,
            warnings: Vec::new(),
        });
        session.handle(SessionInput::Turn(TurnEvent::SpeechStarted { audio_start_ms: 0 }), begun);
        for (at, piece) in pieces(sound).enumerate() {
            black_box(session.handle(SessionInput::Audio(piece.to_vec()), begun + FRAME * at as u32));
        }
    })
}

/// Time of the playout clock for a frame of 20 ms.
fn playout(sound: &Sound) -> f64 {
    let begun = Instant::now();
    sound.each(|| {
        let mut playout = Playout::new(SAID);
        // An engine's frame has 80 ms.
        for (at, frame) in sound.said.chunks(4 * SAID as usize / 50).enumerate() {
            if playout.push(1, 1, frame).is_err() {
                return;
            }
            for step in 0..4 {
                let now = begun + FRAME * (4 * at as u32 + step);
                while let Some(PlayoutOutput::Frame(frame)) = playout.poll(now) {
                    black_box(frame);
                }
            }
        }
    })
}
