//! Callers who come and vanish at any stage leave nothing behind: no socket, no task, no session. In a process of
//! their own, because they count its sockets and tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use repartee::transport::webrtc::{PEER_TIMEOUT, PeerEvent, WebRtcCall, WebRtcSettings, offer};
use repartee_media::opus::FRAME;
use repartee_testkit::scripted::Script;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;

use repartee_gateway_testkit::{PATIENCE, Running};

/// Number of concurrent callers.
const AT_ONCE: usize = 8;
/// Number of stages at which a caller vanishes.
const STAGES: usize = 10;
/// Environment variable of the process that has one test.
const ALONE: &str = "REPARTEE_TEST_ALONE";

fn sockets() -> usize {
    let files = std::fs::read_dir("/proc/self/fd").unwrap();
    let links = files.filter_map(|file| std::fs::read_link(file.unwrap().path()).ok());
    links.filter(|link| link.to_string_lossy().starts_with("socket:")).count()
}

fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

async fn post(server: &Running, path: &str, body: &str) -> (u16, String) {
    let (address, length) = (server.address, body.len());
    let head = format!("POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/sdp\r\n");
    server.request(&format!("{head}content-length: {length}\r\nconnection: close\r\n\r\n{body}")).await
}

/// Dials a call over WebRTC; returns it with its path.
async fn dial(server: &Running) -> (WebRtcCall, String) {
    let (sdp, dialing) = offer(&WebRtcSettings::default()).await.unwrap();
    let (status, answer) = post(server, "/v1/realtime/calls", &sdp).await;
    assert_eq!(status, 201, "{answer}");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let location = head.lines().find_map(|line| line.strip_prefix("location: ")).unwrap().to_owned();
    (dialing.accept(body).await.unwrap(), location)
}

async fn until(call: &mut WebRtcCall, wanted: impl Fn(&PeerEvent) -> bool) {
    let found = async { while !wanted(&call.events.recv().await.expect("the call lives until then")) {} };
    timeout(PATIENCE, found).await.expect("in time");
}

/// Dials, gets as far as `stage`, and vanishes.
async fn visit(server: &Running, stage: usize) {
    let is_open = |event: &PeerEvent| *event == PeerEvent::ChannelOpen;
    match stage {
        // Half a request.
        0 => {
            let mut socket = TcpStream::connect(server.address).await.unwrap();
            socket.write_all(b"GET /v1/realtime HTTP/1.1\r\nhost: x\r\n").await.unwrap();
        }
        1 => drop(server.dial().await),
        2 => drop(server.connect().await),
        // In the middle of an answer.
        3 => {
            let mut client = server.connect().await;
            client.send(json!({"type": "response.create"})).await;
            client.until("response.output_audio.delta").await;
        }
        // An answered offer that never connects.
        4 => {
            let (sdp, dialing) = offer(&WebRtcSettings::default()).await.unwrap();
            let (status, _) = post(server, "/v1/realtime/calls", &sdp).await;
            assert_eq!(status, 201);
            drop(dialing);
        }
        5 => drop(dial(server).await),
        6 => {
            let (mut call, _) = dial(server).await;
            until(&mut call, is_open).await;
        }
        // In the middle of a word.
        7 => {
            let (mut call, _) = dial(server).await;
            until(&mut call, is_open).await;
            for _ in 0..20 {
                call.send_audio(Bytes::from_static(&[0x08, 1, 2, 3]), FRAME).await.unwrap();
            }
            call.send_message(r#"{"type": "response.create"}"#).await.unwrap();
            until(&mut call, |event| matches!(event, PeerEvent::Audio { .. })).await;
        }
        8 => {
            let (mut call, location) = dial(server).await;
            let mut side = server.attach(location.rsplit('/').next().unwrap()).await.unwrap();
            until(&mut call, is_open).await;
            side.expect("session.created").await;
        }
        _ => {
            let (mut call, location) = dial(server).await;
            until(&mut call, is_open).await;
            assert_eq!(post(server, &format!("{location}/hangup"), "").await.0, 200);
            until(&mut call, |event| *event == PeerEvent::Closed).await;
        }
    }
}

async fn churn(visits: usize) {
    // Enough slots that no caller is refused because of earlier calls.
    let script = Script { slots: visits + STAGES + 1, frames: 200, ..Script::default() };
    let server = Running::start_with(script, |config| {
        config.limits.request = Duration::from_secs(1);
        // A vanished caller holds a call for this long. A local caller connects in a fraction of it, even if all
        // connect at once.
        config.webrtc.connect_within = PEER_TIMEOUT;
    })
    .await;
    // Warm-up: creates everything that exists once and stays.
    for stage in 0..STAGES {
        visit(&server, stage).await;
    }
    server.sessions(0).await;
    settle(0, 0).await;
    let (sockets_before, tasks_before) = (sockets(), tasks());
    let server = Arc::new(server);
    let next = Arc::new(AtomicUsize::new(0));
    let callers: Vec<_> = (0..AT_ONCE)
        .map(|_| {
            let (server, next) = (server.clone(), next.clone());
            tokio::spawn(async move {
                loop {
                    let visit_number = next.fetch_add(1, Ordering::Relaxed);
                    if visit_number >= visits {
                        return;
                    }
                    // Visits every stage equally often, in a mixed order.
                    visit(&server, visit_number * 7 % STAGES).await;
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    server.sessions(0).await;
    settle(sockets_before, tasks_before).await;
    println!(
        "{visits} visits: {} sockets, {sockets_before} before; {} tasks, {tasks_before} before",
        sockets(),
        tasks()
    );
    assert_eq!(server.engine.open_sessions().borrow().to_owned(), 0);
    // The next caller is still served.
    let mut client = server.connect().await;
    client.send(json!({"type": "response.create"})).await;
    client.until("response.done").await;
}

/// Waits until at most this many sockets and tasks exist; with 0 for tasks, until the numbers stop changing.
async fn settle(sockets_at_most: usize, tasks_at_most: usize) {
    let settled = async {
        let mut last = (usize::MAX, usize::MAX);
        loop {
            tokio::time::sleep(Duration::from_millis(if tasks_at_most == 0 { 1_500 } else { 50 })).await;
            let present = (sockets(), tasks());
            let unknown = tasks_at_most == 0;
            if (unknown && present == last) || (!unknown && present.0 <= sockets_at_most && present.1 <= tasks_at_most)
            {
                return;
            }
            last = present;
        }
    };
    let late = || panic!("{} sockets, {sockets_at_most} before; {} tasks, {tasks_at_most} before", sockets(), tasks());
    timeout(Duration::from_secs(60), settled).await.unwrap_or_else(|_| late());
}

/// Runs the test of this name in a process of its own, and its visits there: other tests have sockets and tasks too.
async fn alone(test: &str, visits: usize) {
    if std::env::var_os(ALONE).is_some() {
        return churn(visits).await;
    }
    let mut command = tokio::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--include-ignored", "--nocapture"]).env(ALONE, "1").kill_on_drop(true);
    let output = command.output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("visits:"), "{text}{}", String::from_utf8_lossy(&output.stderr));
    println!("{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn vanishing_callers_leave_nothing_behind() {
    alone("churn::vanishing_callers_leave_nothing_behind", 50).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: for the long suite"]
async fn five_hundred_vanishing_callers_leave_nothing_behind() {
    alone("churn::five_hundred_vanishing_callers_leave_nothing_behind", 500).await;
}
