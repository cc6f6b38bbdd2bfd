//! Calls that the server makes: a trunk of the test's own, sipp and baresip.

use std::net::SocketAddr;
use std::time::Duration;

use repartee::auth::KeySet;
use repartee::config::{Config, SipAddress, SipScheme};
use repartee_gateway_testkit::{PATIENCE, Running, find, http, own_address, question};
use repartee_media::pcm;
use repartee_media::resample::Resampler;
use repartee_testkit::scripted::Script;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::peers::{root, run, telephone, wav_file};
use super::telephone::{listen_by, serve_with};

const KEY: &str = "the-key-of-the-operator-of-calls";
const PATH: &str = "/v1/realtime/calls/out";

/// A trunk: writes its own messages.
pub struct Trunk {
    pub signalling: UdpSocket,
    sound: UdpSocket,
}

impl Trunk {
    pub async fn new() -> Self {
        let bind = async || UdpSocket::bind("127.0.0.1:0").await.unwrap();
        Self { signalling: bind().await, sound: bind().await }
    }

    /// Takes the next message of the server, with its address.
    async fn message(&self) -> (String, SocketAddr) {
        let mut buffer = vec![0; 65_536];
        let received = timeout(PATIENCE, self.signalling.recv_from(&mut buffer)).await.expect("no message in time");
        let (length, from) = received.unwrap();
        (String::from_utf8(buffer[..length].to_vec()).unwrap(), from)
    }

    /// Takes messages until one of this method comes.
    pub async fn request(&self, method: &str) -> (String, SocketAddr) {
        loop {
            let (message, from) = self.message().await;
            if message.starts_with(&format!("{method} ")) {
                return (message, from);
            }
        }
    }

    async fn respond(&self, (request, from): &(String, SocketAddr), status: &str, more: &str, body: &str) {
        let is_copied =
            |line: &&str| ["Via:", "From:", "To:", "Call-ID:", "CSeq:"].iter().any(|name| line.starts_with(name));
        let tagged = |line: &str| {
            if line.starts_with("To:") && !line.contains(";tag=") {
                format!("{line};tag=b9\r\n")
            } else {
                format!("{line}\r\n")
            }
        };
        let copied: String = request.lines().filter(is_copied).map(tagged).collect();
        let own = self.signalling.local_addr().unwrap();
        let text = format!(
            "SIP/2.0 {status}\r\n{copied}Contact: <sip:line@{own}>\r\n{more}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.signalling.send_to(text.as_bytes(), from).await.unwrap();
    }

    /// Answers a call with mu-law.
    pub async fn answer(&self, invite: &(String, SocketAddr)) {
        let port = self.sound.local_addr().unwrap().port();
        let answer = format!(
            "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio {port} RTP/AVP 0\r\n"
        );
        self.respond(invite, "200 OK", "Content-Type: application/sdp\r\n", &answer).await;
    }
}

/// Server that may call German numbers at this trunk.
async fn serve(trunk: SocketAddr, change: impl FnOnce(&mut Config)) -> Running {
    serve_by(SipAddress::udp(trunk), change).await
}

/// Server that may call German numbers at a trunk by any transport.
async fn serve_by(trunk: SipAddress, change: impl FnOnce(&mut Config)) -> Running {
    serve_with(Script { frames: 10, ..Script::default() }, |config| {
        config.api_keys = KeySet::parse(KEY).unwrap();
        config.sip.peers.clear();
        config.sip.trunk = Some(trunk);
        config.sip.listen = vec![listen_by(trunk.scheme)];
        config.tls.development = trunk.scheme == SipScheme::Tls;
        config.sip.destinations = vec!["+49".to_owned()];
        change(config);
    })
    .await
}

/// Asks for a call.
pub async fn call(address: SocketAddr, key: &str, body: Value) -> http::Reply {
    let authorization = format!("Bearer {key}");
    let headers = [("authorization", &*authorization), ("content-type", "application/json")];
    http::send(address, "POST", PATH, &headers, body.to_string().as_bytes()).await
}

/// Request for a call of this number.
pub fn to(destination: &str) -> Value {
    json!({"destination": destination, "session": {"type": "realtime", "instructions": "Be brief."}})
}

#[tokio::test(flavor = "multi_thread")]
async fn answered_calls_out_are_realtime_calls() {
    let trunk = Trunk::new().await;
    let server = serve(trunk.signalling.local_addr().unwrap(), |_| {}).await;
    let asked = tokio::spawn(call(server.address, KEY, to("+4930123456")));
    let invite = trunk.request("INVITE").await;
    assert!(invite.0.starts_with("INVITE sip:+4930123456@127.0.0.1 SIP/2.0\r\n"), "{}", invite.0);
    trunk.respond(&invite, "180 Ringing", "", "").await;
    trunk.answer(&invite).await;
    let reply = asked.await.unwrap();
    assert_eq!(reply.status, 201, "{reply:?}");
    let id = reply.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(reply.header("location"), Some(&*format!("/v1/realtime/calls/{id}")));
    trunk.request("ACK").await;
    let bearer = format!("Bearer {KEY}");
    let mut controller = server.attach_with(&id, &[("authorization", &*bearer)]).await.unwrap();
    assert_eq!(controller.expect("session.created").await["session"]["instructions"], "Be brief.");
    // The other side speaks, and hears an answer.
    let sdp = invite.0.split_once("\r\n\r\n").unwrap().1;
    let port =
        sdp.lines().find_map(|line| line.strip_prefix("m=audio ")?.split(' ').next()?.parse::<u16>().ok()).unwrap();
    let narrow = Resampler::new(24_000, 8_000).unwrap().convert(&question()).unwrap().to_vec();
    let mut clock = tokio::time::interval(Duration::from_millis(20));
    for (number, piece) in narrow.chunks_exact(160).enumerate() {
        clock.tick().await;
        let mut packet = vec![0x80, 0];
        packet.extend((number as u16).to_be_bytes());
        packet.extend((number as u32 * 160).to_be_bytes());
        packet.extend(7_u32.to_be_bytes());
        packet.extend(pcm::encode_mulaw(piece));
        trunk.sound.send_to(&packet, ("127.0.0.1", port)).await.unwrap();
    }
    let events = controller.until("output_audio_buffer.stopped").await;
    assert_eq!(find(&events, "response.done")["response"]["status"], "completed");
    let (_, calls) = server
        .request(&format!(
            "GET /v1/realtime/calls HTTP/1.1\r\nhost: x\r\nauthorization: {bearer}\r\nconnection: close\r\n\r\n"
        ))
        .await;
    assert!(calls.contains(&id) && calls.contains("\"transport\":\"sip\""), "{calls}");
    let hangup = format!("/v1/realtime/calls/{id}/hangup");
    assert_eq!(http::send(server.address, "POST", &hangup, &[("authorization", &*bearer)], b"").await.status, 200);
    let bye = trunk.request("BYE").await;
    trunk.respond(&bye, "200 OK", "", "").await;
    server.sessions(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_out_need_key_and_destination() {
    let trunk = Trunk::new().await;
    let address = trunk.signalling.local_addr().unwrap();
    let server = serve(address, |_| {}).await;
    for destination in
        ["110", "0049301", "+1555", "sip:+49@127.0.0.1", "+49 30", "+49\u{661}\u{ff13}", "+49;a=b", "+49\r\nX: y"]
    {
        let reply = call(server.address, KEY, to(destination)).await;
        assert_eq!((reply.status, &*reply.code()), (400, "invalid_value"), "{destination}: {reply:?}");
    }
    let wrong = json!({"destination": "+4930", "session": {"type": "realtime", "instructions": 7}});
    assert_eq!(call(server.address, KEY, wrong).await.status, 400);
    assert_eq!(call(server.address, "another-key-of-nobody-at-all", to("+4930")).await.status, 401);
    let bearer = format!("Bearer {KEY}");
    let secret =
        http::send(server.address, "POST", "/v1/realtime/client_secrets", &[("authorization", &*bearer)], b"{}").await;
    let ephemeral = secret.json()["value"].as_str().unwrap().to_owned();
    let reply = call(server.address, &ephemeral, to("+4930")).await;
    assert_eq!(reply.status, 404, "an ephemeral key is given to strangers: {reply:?}");
    let keyless = serve(address, |config| config.api_keys = KeySet::default()).await;
    let reply = http::send(keyless.address, "POST", PATH, &[], to("+4930").to_string().as_bytes()).await;
    assert_eq!((reply.status, &*reply.code()), (403, "insufficient_permissions"), "{reply:?}");
    let without = serve(address, |config| config.sip.trunk = None).await;
    assert_eq!(call(without.address, KEY, to("+4930")).await.status, 404);
    let mut nothing = [0; 1];
    assert!(trunk.signalling.try_recv(&mut nothing).is_err(), "nobody was called");
}

#[tokio::test(flavor = "multi_thread")]
async fn busy_and_silent_numbers_are_told() {
    let trunk = Trunk::new().await;
    let server = serve(trunk.signalling.local_addr().unwrap(), |config| {
        config.sip.ring = Duration::from_millis(200);
        config.sip.trunk_calls = 1;
    })
    .await;
    for (status, message) in [("486 Busy Here", "busy"), ("603 Decline", "603")] {
        let asked = tokio::spawn(call(server.address, KEY, to("+4930")));
        let invite = trunk.request("INVITE").await;
        // There may be one at once.
        let second = call(server.address, KEY, to("+4931")).await;
        assert_eq!((second.status, &*second.code()), (429, "call_limit_reached"), "{second:?}");
        trunk.respond(&invite, status, "", "").await;
        trunk.request("ACK").await;
        let reply = asked.await.unwrap();
        assert_eq!((reply.status, &*reply.code()), (422, "call_not_answered"), "{reply:?}");
        assert!(reply.json()["error"]["message"].as_str().unwrap().contains(message), "{reply:?}");
    }
    let asked = tokio::spawn(call(server.address, KEY, to("+4930")));
    let invite = trunk.request("INVITE").await;
    trunk.respond(&invite, "180 Ringing", "", "").await;
    trunk.request("CANCEL").await;
    let reply = asked.await.unwrap();
    assert!(reply.json()["error"]["message"].as_str().unwrap().contains("nobody answers"), "{reply:?}");
    server.sessions(0).await;
    let bearer = format!("Bearer {KEY}");
    let metrics = http::send(server.address, "GET", "/metrics", &[("authorization", &*bearer)], b"").await;
    let text = metrics.body;
    for line in ["busy\"} 1", "failed\"} 1", "unanswered\"} 1"] {
        assert!(text.contains(&format!("repartee_calls_out_total{{result=\"{line}")), "{line}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn call_out_without_its_client_is_cancelled() {
    let trunk = Trunk::new().await;
    let server = serve(trunk.signalling.local_addr().unwrap(), |_| {}).await;
    let body = to("+4930").to_string();
    let mut client = TcpStream::connect(server.address).await.unwrap();
    let request = format!(
        "POST {PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    client.write_all(request.as_bytes()).await.unwrap();
    let invite = trunk.request("INVITE").await;
    trunk.respond(&invite, "180 Ringing", "", "").await;
    drop(client);
    let cancel = trunk.request("CANCEL").await;
    trunk.respond(&cancel, "200 OK", "", "").await;
    trunk.respond(&invite, "487 Request Terminated", "", "").await;
    trunk.request("ACK").await;
    server.sessions(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn trunk_challenges_are_answered() {
    let trunk = Trunk::new().await;
    let server = serve(trunk.signalling.local_addr().unwrap(), |config| {
        config.sip.user = Some("account".to_owned());
        config.sip.password = Some(repartee::config::Secret::new("secret of the account"));
        config.sip.domain = Some("trunk.example".to_owned());
        config.sip.caller = Some("+4930999".to_owned());
    })
    .await;
    let asked = tokio::spawn(call(server.address, KEY, to("+4930")));
    let first = trunk.request("INVITE").await;
    assert!(first.0.contains("\r\nFrom: <sip:+4930999@trunk.example>;tag="), "{}", first.0);
    let challenge = "WWW-Authenticate: Digest realm=\"trunk\", nonce=\"n1\", algorithm=MD5, qop=\"auth\"\r\n";
    trunk.respond(&first, "401 Unauthorized", challenge, "").await;
    let second = trunk.request("INVITE").await;
    assert!(second.0.contains("\r\nAuthorization: Digest username=\"account\""), "{}", second.0);
    assert!(!second.0.contains("secret of the account"), "{}", second.0);
    trunk.answer(&second).await;
    assert_eq!(asked.await.unwrap().status, 201);
    trunk.request("ACK").await;
}

/// Calls a telephone of others; returns the server, and the call's id.
async fn answered_by(trunk: SipAddress, change: impl FnOnce(&mut Config)) -> (Running, String) {
    let server = serve_by(trunk, change).await;
    if trunk.scheme != SipScheme::Udp {
        accepting(trunk.address).await;
    }
    // A telephone on UDP may still start: a request without an answer is repeated.
    let reply = call(server.address, KEY, to("+4930123456")).await;
    assert_eq!(reply.status, 201, "{reply:?}");
    let id = reply.json()["id"].as_str().unwrap().to_owned();
    (server, id)
}

/// Waits until a telephone accepts connections.
pub async fn accepting(address: SocketAddr) {
    let mut clock = tokio::time::interval(Duration::from_millis(20));
    let connected = async {
        while TcpStream::connect(address).await.is_err() {
            clock.tick().await;
        }
    };
    timeout(PATIENCE, connected).await.expect("the telephone listens in time");
}

async fn sipp_is_called(scheme: SipScheme, mode: &str) {
    let Some(mut sipp) = telephone("sipp") else { return };
    let folder = tempfile::tempdir().unwrap();
    let address = own_address();
    sipp.current_dir(folder.path()).args(["-sn", "uas", "-m", "1", "-i", "127.0.0.1", "-mi", "127.0.0.1", "-p"]);
    sipp.arg(address.port().to_string()).args(["-nostdin", "-timeout", "50s", "-t", mode]);
    let ran = tokio::spawn(run(sipp));
    let (server, id) = answered_by(SipAddress { scheme, address }, |_| {}).await;
    let bearer = format!("Bearer {KEY}");
    let hangup = format!("/v1/realtime/calls/{id}/hangup");
    assert_eq!(http::send(server.address, "POST", &hangup, &[("authorization", &*bearer)], b"").await.status, 200);
    let output = ran.await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    server.sessions(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sipp_is_called_and_hung_up() {
    sipp_is_called(SipScheme::Udp, "u1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sipp_is_called_over_tcp() {
    sipp_is_called(SipScheme::Tcp, "t1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_trunks_are_told_at_once() {
    let nobody = SipAddress { scheme: SipScheme::Tcp, address: ([127, 0, 0, 1], 9).into() };
    let server = serve_by(nobody, |_| {}).await;
    let reply = call(server.address, KEY, to("+4930")).await;
    assert_eq!((reply.status, &*reply.code()), (422, "call_not_answered"), "{reply:?}");
    assert!(reply.json()["error"]["message"].as_str().unwrap().contains("503"), "{reply:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn baresip_is_called_and_asks() {
    baresip_is_called(SipScheme::Udp, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn baresip_is_called_over_tcp_and_encrypted() {
    baresip_is_called(SipScheme::Tcp, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn baresip_is_called_over_tls() {
    baresip_is_called(SipScheme::Tls, true).await;
}

/// A call to baresip, which asks the question; with encrypted sound, if `srtp` says so.
async fn baresip_is_called(scheme: SipScheme, srtp: bool) {
    let Some(mut baresip) = telephone("baresip") else { return };
    let (folder, mut address) = (tempfile::tempdir().unwrap(), own_address());
    let mut sound = question();
    // baresip hangs up where its sound ends.
    sound.extend(vec![0.0; 24_000 * 4]);
    let spoken = folder.path().join("question.wav");
    std::fs::write(&spoken, wav_file(&sound, 8_000, 1)).unwrap();
    // Its certificate is for its address.
    let made = rcgen::generate_simple_self_signed([address.ip().to_string()]).unwrap();
    let pem = folder.path().join("baresip.pem");
    std::fs::write(&pem, format!("{}{}", made.signing_key.serialize_pem(), made.cert.pem())).unwrap();
    let modules = root().join("target/tools/phone/usr/lib/baresip/modules").canonicalize().unwrap();
    let config = format!(
        "module_path {}\nmodule g711.so\nmodule srtp.so\nmodule aufile.so\nmodule sndfile.so\nmodule account.so\nmodule_app menu.so\n\
         sip_listen {address}\nsip_certificate {pem}\naudio_source aufile,{}\nsnd_path {}\nausrc_srate 8000\n",
        modules.display(),
        spoken.display(),
        folder.path().display(),
        pem = pem.display(),
    );
    std::fs::write(folder.path().join("config"), config).unwrap();
    std::fs::write(folder.path().join("contacts"), "").unwrap();
    let encryption = if srtp { ";mediaenc=srtp-mand" } else { "" };
    let account = format!("<sip:+4930123456@127.0.0.1>;regint=0;answermode=auto;audio_codecs=pcma{encryption}\n");
    std::fs::write(folder.path().join("accounts"), account).unwrap();
    baresip.arg("-f").arg(folder.path()).args(["-t", "20"]);
    let ran = tokio::spawn(run(baresip));
    // It takes the next port for TLS.
    if scheme == SipScheme::Tls {
        address.set_port(address.port() + 1);
    }
    let trunk = SipAddress { scheme, address };
    let (server, id) = answered_by(trunk, |config| {
        config.sip.trunk_srtp = srtp;
        config.sip.certificates = (scheme == SipScheme::Tls).then_some(pem);
    })
    .await;
    let bearer = format!("Bearer {KEY}");
    let mut controller = server.attach_with(&id, &[("authorization", &*bearer)]).await.unwrap();
    let events = controller.until("output_audio_buffer.stopped").await;
    assert_eq!(find(&events, "response.done")["response"]["status"], "completed");
    server.sessions(0).await;
    ran.abort();
}
