//! Callers over WebRTC and websockets that reach the nodes through a balancer.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use repartee::transport::webrtc::{PeerEvent, WebRtcCall, WebRtcSettings, offer};
use repartee_gateway_testkit::http::send;
use repartee_gateway_testkit::{Client, PATIENCE};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};
use tokio_tungstenite::connect_async;
use tokio_tungstenite::tungstenite::Message;

use super::processes::SDP;

/// Call of one caller, by its transport; dropping it hangs up.
pub enum Call {
    WebRtc(Box<WebRtcCall>),
    WebSocket(Box<Client>),
}

impl Call {
    /// Calls over WebRTC; `None` if it is refused.
    pub async fn webrtc(address: SocketAddr) -> Option<Self> {
        let (sdp, dialing) = offer(&WebRtcSettings::default()).await.unwrap();
        let answer = send(address, "POST", "/v1/realtime/calls", &SDP, sdp.as_bytes()).await;
        if answer.status != 201 {
            return None;
        }
        let mut call = Self::WebRtc(Box::new(dialing.accept(&answer.body).await.unwrap()));
        call.until("session.created").await.then_some(call)
    }

    /// Calls over a websocket; `None` if it is refused.
    pub async fn websocket(address: SocketAddr) -> Option<Self> {
        let (socket, _) = connect_async(format!("ws://{address}/v1/realtime")).await.ok()?;
        let mut call = Self::WebSocket(Box::new(Client { socket }));
        call.until("session.created").await.then_some(call)
    }

    /// Asks a question; true if it is answered.
    pub async fn ask(&mut self) -> bool {
        let content = json!([{"type": "input_text", "text": "What is three plus four?"}]);
        let item = json!({"type": "message", "role": "user", "content": content});
        let create = json!({"type": "conversation.item.create", "item": item});
        for event in [create, json!({"type": "response.create"})] {
            let sent = match self {
                Self::WebRtc(call) => call.send_message(&event.to_string()).await.is_ok(),
                Self::WebSocket(client) => client.socket.send(Message::text(event.to_string())).await.is_ok(),
            };
            if !sent {
                return false;
            }
        }
        self.until("response.done").await
    }

    /// Reads up to an event of this type; false if the call ends before.
    async fn until(&mut self, kind: &str) -> bool {
        let found = async {
            loop {
                let text = match self {
                    Self::WebRtc(call) => match call.events.recv().await {
                        Some(PeerEvent::Message(text)) => text.to_string(),
                        Some(PeerEvent::Closed) | None => return false,
                        Some(_) => continue,
                    },
                    Self::WebSocket(client) => match client.socket.next().await {
                        Some(Ok(Message::Text(text))) => text.to_string(),
                        Some(Ok(Message::Ping(_))) => continue,
                        _ => return false,
                    },
                };
                let event: Value = serde_json::from_str(&text).unwrap();
                assert_ne!(event["type"], "error", "{event}");
                if event["type"] == kind {
                    return kind != "response.done" || event["response"]["status"] == "completed";
                }
            }
        };
        timeout(2 * PATIENCE, found).await.expect("an event in time")
    }
}

/// Outcomes of many calls.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    pub completed: usize,
    /// Placed, and ended before the answer did.
    pub lost: usize,
    pub refused: usize,
}

/// Lets callers come at this pace, half of them over WebRTC; each takes one turn.
pub async fn callers(address: SocketAddr, count: usize, every: Duration) -> Outcomes {
    callers_around(address, count, every, count, || ()).await
}

/// The same, and does something once the first `before` callers are placed or refused, before the next one dials.
pub async fn callers_around(
    address: SocketAddr,
    count: usize,
    every: Duration,
    before: usize,
    act: impl FnOnce(),
) -> Outcomes {
    let mut calls = JoinSet::new();
    let (dialled, mut so_far) = watch::channel(0);
    let (mut pace, mut act) = (interval(every), Some(act));
    for index in 0..count {
        pace.tick().await;
        if index == before {
            so_far.wait_for(|so_far| *so_far == before).await.unwrap();
            act.take().into_iter().for_each(|act| act());
        }
        let dialled = dialled.clone();
        calls.spawn(async move {
            let call = if index % 2 == 0 { Call::webrtc(address).await } else { Call::websocket(address).await };
            dialled.send_modify(|so_far| *so_far += 1);
            match call {
                Some(mut call) => Some(call.ask().await),
                None => None,
            }
        });
    }
    let mut outcomes = Outcomes::default();
    while let Some(outcome) = calls.join_next().await {
        match outcome.unwrap() {
            Some(true) => outcomes.completed += 1,
            Some(false) => outcomes.lost += 1,
            None => outcomes.refused += 1,
        }
    }
    outcomes
}
