//! Task of the signalling: owns the sockets and the user agent.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use repartee_sip::{
    AgentCounts, AgentSettings, CallKey, Hop, MAX_BYTES, RegistrarSettings, RegistrationNews, SipEvent, SipOutput,
    TrunkSettings, UserAgent,
};
use tokio::net::UdpSocket;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep_until;

use super::phone_call;
use super::service::{DialOutcome, SipCommand};
use super::sockets::{SipSockets, transport};
use super::stream_task::StreamEvent;
use super::streams::Streams;
use crate::config::{SipAddress, SipConfig};
use crate::server::allowance::{Allowance, thread_time};
use crate::server::app::AppState;
use crate::server::start_error::ServerStartError;
use crate::telemetry::log;
use crate::transport::sip::{LineControl, line};

/// Calls beside the engine's sessions: those that ring, and those that end.
const SPARE_CALLS: usize = 64;
/// Messages that are read at once. Where more wait, they wait for [`BURST_PAUSE`], and what the socket does not hold meanwhile is
/// sent again.
const BURST: usize = 16;
/// Pause after a burst.
const BURST_PAUSE: Duration = Duration::from_millis(4);
/// Share of a processor that messages may take, in percent, and seconds of it that are saved up: a flood of large ones leaves the
/// rest to calls. A message of a call takes some 30 µs.
const SHARE: u32 = 10;
/// The same while the processors are full: a thousand messages a second.
const SHARE_OF_FULL: u32 = 3;
const SAVED: f64 = 0.02;
/// Interval of the search for connections that nobody uses.
const IDLE_SEARCH: Duration = Duration::from_secs(30);

/// Runs the signalling until the task is aborted. Must be called within a runtime.
pub(in crate::server) fn spawn(
    app: Arc<AppState>,
    sockets: SipSockets,
    commands: mpsc::Receiver<SipCommand>,
) -> Result<tokio::task::JoinHandle<()>, ServerStartError> {
    let mut secret = [0; 16];
    getrandom::fill(&mut secret)?;
    let settings = AgentSettings {
        local: sockets.addresses.clone(),
        peers: app.config.sip.peers.clone(),
        calls: 2 * app.engine.occupancy().1 + SPARE_CALLS,
        secret: u128::from_le_bytes(secret),
        registrar: registrar(&app.config.sip),
        trunk: trunk(&app.config.sip),
    };
    let agent = UserAgent::new(settings, now());
    let (socket, streams) = sockets.open().map_err(ServerStartError::SipSockets)?;
    let signalling = Signalling {
        app,
        socket,
        streams,
        agent,
        lines: HashMap::new(),
        dials: HashMap::new(),
        withdrawing: None,
        counted: AgentCounts::default(),
    };
    Ok(log::spawn(signalling.run(commands)))
}

/// Ends of a call's line. Dropping them ends the call's task.
#[derive(Debug)]
struct CallLine {
    /// Tells that the call is gone before it was accepted; `None` for a call out.
    _gone: Option<oneshot::Sender<()>>,
    control: Option<LineControl>,
}

/// Sockets, user agent and lines.
struct Signalling {
    app: Arc<AppState>,
    /// Socket of datagrams; `None` if there are connections alone.
    socket: Option<UdpSocket>,
    streams: Streams,
    agent: UserAgent,
    lines: HashMap<CallKey, CallLine>,
    /// Calls out that are not answered.
    dials: HashMap<CallKey, oneshot::Sender<DialOutcome>>,
    /// Waits for the end of the registration.
    withdrawing: Option<oneshot::Sender<()>>,
    /// Numbers that the metrics already have.
    counted: AgentCounts,
}

impl Signalling {
    async fn run(mut self, mut commands: mpsc::Receiver<SipCommand>) {
        // Of a larger datagram the rest is cut off, and the message with it.
        let mut buffer = vec![0; MAX_BYTES + 1];
        let mut read_from = now();
        let (mut streams_from, mut unread) = (now(), BURST);
        let mut allowance = Allowance::full(SAVED, 0.0);
        let mut search = tokio::time::interval(IDLE_SEARCH);
        loop {
            let deadline = self.agent.deadline();
            let timer = async {
                match deadline {
                    Some(deadline) => sleep_until(deadline.into()).await,
                    None => std::future::pending().await,
                }
            };
            // Processor time before a message was read.
            let mut begun = None;
            tokio::select! {
                command = commands.recv() => match command {
                    Some(command) => self.obey(command),
                    None => return,
                },
                ready = readable(self.socket.as_ref(), read_from) => {
                    begun = Some(thread_time());
                    if ready.is_ok() && self.read(&mut buffer) {
                        read_from = now() + BURST_PAUSE;
                    }
                }
                event = self.streams.next(streams_from.into()) => {
                    begun = Some(thread_time());
                    self.on_stream(event);
                    unread -= 1;
                    if unread == 0 {
                        (streams_from, unread) = (now() + BURST_PAUSE, BURST);
                    }
                }
                _ = search.tick() => self.streams.close_idle(|hop| self.agent.needs(hop)),
                () = timer => self.agent.advance(now()),
            }
            self.flush();
            self.count();
            if let Some(begun) = begun {
                let share = if self.app.readiness.headroom().has_full_processors() { SHARE_OF_FULL } else { SHARE };
                allowance.share = f64::from(share) / 100.0;
                let from = now() + allowance.pause_after(thread_time().saturating_sub(begun));
                (read_from, streams_from) = (read_from.max(from), streams_from.max(from));
            }
        }
    }

    fn on_stream(&mut self, event: StreamEvent) {
        match event {
            // Before anything of it is read.
            StreamEvent::Accepted(_, from) if !self.agent.may_connect(from.address) => self.agent.forbid(),
            StreamEvent::Accepted(socket, from) => {
                if !self.streams.admit(socket, from) {
                    // A flood of them has a metric, and no flood of lines.
                    tracing::debug!(%from, "there are too many connections of the signalling");
                    self.app.metrics.requests.refused.with_label_values(&["connections"]).inc();
                }
            }
            StreamEvent::Message(from, bytes) => self.agent.receive(&bytes, from, now()),
            StreamEvent::Ended(end) => {
                if let Some(reason) = end.reason {
                    tracing::info!(hop = %end.hop, reason, "a connection of the signalling has ended");
                }
                self.agent.closed(end.hop, now());
            }
        }
    }

    /// Reads a burst of datagrams; true if more may wait.
    fn read(&mut self, buffer: &mut [u8]) -> bool {
        for _ in 0..BURST {
            // An error is the network's news of an earlier datagram, or the end of what waits.
            let Some(Ok((length, from))) = self.socket.as_ref().map(|socket| socket.try_recv_from(buffer)) else {
                return false;
            };
            let datagram = Bytes::copy_from_slice(buffer.get(..length).unwrap_or_default());
            self.agent.receive(&datagram, Hop::udp(from), now());
            self.flush();
        }
        true
    }

    fn obey(&mut self, command: SipCommand) {
        match command {
            SipCommand::Accept(key, sound, reply) => {
                let accepted = self.agent.accept(key, sound, now()).map(|media| {
                    let (control, line) = line(media);
                    if let Some(entry) = self.lines.get_mut(&key) {
                        entry.control = Some(control);
                    }
                    (media, line)
                });
                // A call whose task ended meanwhile hangs up by itself.
                let _ = reply.send(accepted);
            }
            SipCommand::Call(number, sound, reply) => {
                let called = self.agent.call(&number, sound, now()).map(|key| {
                    let (outcome, receiver) = oneshot::channel();
                    self.dials.insert(key, outcome);
                    (key, receiver)
                });
                if let Err(Ok((key, _))) = reply.send(called) {
                    self.dials.remove(&key);
                    self.agent.hang_up(key, now());
                }
            }
            SipCommand::Reject(key, refusal) => {
                // A call that was cancelled needs no refusal.
                let _ = self.agent.reject(key, &refusal, now());
                self.lines.remove(&key);
            }
            SipCommand::Refer(key, target, reply) => {
                let _ = reply.send(self.agent.transfer(key, &target, now()));
            }
            SipCommand::Withdraw(reply) => {
                if self.agent.withdraw(now()) {
                    self.withdrawing = Some(reply);
                } else {
                    let _ = reply.send(());
                }
            }
            SipCommand::HangUp(key, reply) => {
                self.agent.hang_up(key, now());
                self.lines.remove(&key);
                self.dials.remove(&key);
                self.flush();
                let _ = reply.send(());
            }
        }
    }

    /// Sends the user agent's messages, and handles its events.
    fn flush(&mut self) {
        while let Some(output) = self.agent.poll() {
            match output {
                SipOutput::Message(to, bytes) if to.transport.is_reliable() => {
                    if !self.streams.send(to, bytes) {
                        self.agent.closed(to, now());
                    }
                }
                SipOutput::Message(to, bytes) => {
                    // What the socket does not take is sent again.
                    let _ = self.socket.as_ref().map(|socket| socket.try_send_to(&bytes, to.address));
                }
                SipOutput::Event(key, event) => self.on_event(key, event),
                SipOutput::Registration(RegistrationNews::Registered(lasts)) => {
                    tracing::info!(?lasts, "registered at sip.registrar");
                }
                SipOutput::Registration(RegistrationNews::Withdrawn) => {
                    if let Some(reply) = self.withdrawing.take() {
                        // The server has waited long enough.
                        let _ = reply.send(());
                    }
                }
                SipOutput::Registration(RegistrationNews::Refused(status)) => {
                    tracing::warn!(status, "sip.registrar refuses the registration, or does not answer (408)");
                }
            }
        }
    }

    fn on_event(&mut self, key: CallKey, event: SipEvent) {
        let control = || self.lines.get(&key).and_then(|line| line.control.as_ref());
        match event {
            SipEvent::Incoming(invitation) => {
                // The task's own command could never be taken here.
                if let Err(error) = self.app.check_capacity(None) {
                    let _ = self.agent.reject(key, &phone_call::refusal(&error), now());
                    return;
                }
                let (gone, ended) = oneshot::channel();
                self.lines.insert(key, CallLine { _gone: Some(gone), control: None });
                log::spawn(phone_call::serve(self.app.clone(), key, *invitation, ended));
            }
            SipEvent::Media(media) => control().into_iter().for_each(|control| control.change(media)),
            SipEvent::Key(pressed) => control().into_iter().for_each(|control| control.press(pressed)),
            SipEvent::Ended(_) => drop(self.lines.remove(&key)),
            SipEvent::Transferred(status @ 200..300) => {
                tracing::info!(status, "a telephone call was transferred");
                self.agent.hang_up(key, now());
                self.lines.remove(&key);
            }
            SipEvent::Transferred(status) => tracing::warn!(status, "a telephone call could not be transferred"),
            SipEvent::Answered(media) => {
                let (control, line) = line(media);
                self.lines.insert(key, CallLine { _gone: None, control: Some(control) });
                let waits = self.dials.remove(&key).is_some_and(|outcome| outcome.send(Ok((media, line))).is_ok());
                if !waits {
                    self.agent.hang_up(key, now());
                    self.lines.remove(&key);
                }
            }
            SipEvent::Failed(status) => {
                if let Some(outcome) = self.dials.remove(&key) {
                    // Whoever does not wait any more needs no reason.
                    let _ = outcome.send(Err(status));
                }
            }
            SipEvent::Confirmed | SipEvent::Ringing => {}
        }
    }

    /// Adds the numbers since the last call to the metrics.
    fn count(&mut self) {
        let counts = self.agent.counts();
        let refused = |reason, before: u64, now: u64| {
            let counter = &self.app.metrics.requests.refused;
            counter.with_label_values(&[reason]).inc_by(now.saturating_sub(before));
        };
        refused("sip_peer", self.counted.forbidden, counts.forbidden);
        refused("sip_unreadable", self.counted.unreadable, counts.unreadable);
        refused("full", self.counted.full, counts.full);
        self.counted = counts;
    }
}

/// Exchange to register at; `None` without `sip.registrar`.
fn registrar(config: &SipConfig) -> Option<RegistrarSettings> {
    let address = config.registrar?;
    Some(RegistrarSettings {
        address: hop(address),
        domain: config.domain.clone().unwrap_or_else(|| address.address.ip().to_string()),
        user: config.user.clone()?,
        password: config.password.as_ref().map_or("", |password| password.expose()).to_owned(),
    })
}

/// Trunk of calls out; `None` without `sip.trunk`.
fn trunk(config: &SipConfig) -> Option<TrunkSettings> {
    let address = config.trunk?;
    let account = config.user.clone().map(|user| {
        let password = config.password.as_ref().map_or("", |password| password.expose());
        (user, password.to_owned())
    });
    Some(TrunkSettings {
        address: hop(address),
        domain: config.domain.clone().unwrap_or_else(|| address.address.ip().to_string()),
        caller: config.caller.clone().or_else(|| config.user.clone()).unwrap_or_else(|| "repartee".to_owned()),
        account,
        is_encrypted: config.trunk_srtp,
        ring: config.ring,
        calls: config.trunk_calls as usize,
    })
}

fn hop(SipAddress { scheme, address }: SipAddress) -> Hop {
    Hop::new(transport(scheme), address)
}

/// Waits until datagrams may be read, and there are some; for ever without a socket.
async fn readable(socket: Option<&UdpSocket>, read_from: Instant) -> io::Result<()> {
    let Some(socket) = socket else { return std::future::pending().await };
    sleep_until(read_from.into()).await;
    socket.readable().await
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
