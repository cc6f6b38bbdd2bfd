//! Task of the signalling: owns the socket and the user agent.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use repartee_sip::{
    AgentCounts, AgentSettings, CallKey, MAX_BYTES, RegistrarSettings, RegistrationNews, SipEvent, SipOutput,
    TrunkSettings, UserAgent,
};
use tokio::net::UdpSocket;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep_until;

use super::phone_call;
use super::service::{DialOutcome, SipCommand, SipService};
use crate::config::SipConfig;
use crate::server::app::AppState;
use crate::telemetry::log;
use crate::transport::sip::{LineControl, PortRange, line};

/// Calls beside the engine's sessions: those that ring, and those that end.
const SPARE_CALLS: usize = 64;
/// Datagrams that are read at once. Where more wait, they wait for [`BURST_PAUSE`]: 4,000 a second are a tenth of a processor,
/// and what the socket does not hold meanwhile is sent again.
const BURST: usize = 16;
/// Pause after a burst.
const BURST_PAUSE: Duration = Duration::from_millis(4);

/// Socket of the signalling, before the server serves.
#[derive(Debug)]
pub(in crate::server) struct SipSocket {
    socket: std::net::UdpSocket,
    /// Address as others reach it.
    address: SocketAddr,
}

/// Binds the signalling's socket; `None` without `sip.listen`.
pub(in crate::server) fn bind(config: &SipConfig) -> io::Result<Option<SipSocket>> {
    let (Some(listen), Some(announced)) = (config.listen, config.announced()) else { return Ok(None) };
    let socket = std::net::UdpSocket::bind(listen)?;
    socket.set_nonblocking(true)?;
    let address = SocketAddr::new(announced, socket.local_addr()?.port());
    Ok(Some(SipSocket { socket, address }))
}

impl SipSocket {
    /// Creates the service of the server's state, and the commands' other end for [`spawn`].
    pub fn service(&self, config: &SipConfig) -> io::Result<(SipService, mpsc::Receiver<SipCommand>)> {
        let ports = PortRange::new((config.first_port, config.last_port));
        Ok(SipService::new(self.address, self.socket.local_addr()?.ip(), ports))
    }
}

/// Runs the signalling until the task is aborted. Must be called within a runtime.
pub(in crate::server) fn spawn(
    app: Arc<AppState>,
    socket: SipSocket,
    commands: mpsc::Receiver<SipCommand>,
) -> io::Result<tokio::task::JoinHandle<()>> {
    let SipSocket { socket, address } = socket;
    let socket = UdpSocket::from_std(socket)?;
    let mut secret = [0; 16];
    getrandom::fill(&mut secret).map_err(|error| io::Error::other(error.to_string()))?;
    let settings = AgentSettings {
        local: address,
        peers: app.config.sip.peers.clone(),
        calls: 2 * app.engine.occupancy().1 + SPARE_CALLS,
        secret: u128::from_le_bytes(secret),
        registrar: registrar(&app.config.sip),
        trunk: trunk(&app.config.sip),
    };
    let agent = UserAgent::new(settings, now());
    let signalling = Signalling {
        app,
        socket,
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

/// Socket, user agent and lines.
struct Signalling {
    app: Arc<AppState>,
    socket: UdpSocket,
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
        loop {
            let deadline = self.agent.deadline();
            let timer = async {
                match deadline {
                    Some(deadline) => sleep_until(deadline.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                command = commands.recv() => match command {
                    Some(command) => self.obey(command),
                    None => return,
                },
                ready = self.readable(read_from) => if ready.is_ok() && self.read(&mut buffer) {
                    read_from = now() + BURST_PAUSE;
                },
                () = timer => self.agent.advance(now()),
            }
            self.flush();
            self.count();
        }
    }

    /// Waits until datagrams may be read, and there are some.
    async fn readable(&self, read_from: Instant) -> io::Result<()> {
        sleep_until(read_from.into()).await;
        self.socket.readable().await
    }

    /// Reads a burst of datagrams; true if more may wait.
    fn read(&mut self, buffer: &mut [u8]) -> bool {
        for _ in 0..BURST {
            // An error is the network's news of an earlier datagram, or the end of what waits.
            let Ok((length, from)) = self.socket.try_recv_from(buffer) else { return false };
            let datagram = Bytes::copy_from_slice(buffer.get(..length).unwrap_or_default());
            self.agent.receive(&datagram, from, now());
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

    /// Sends the user agent's datagrams, and handles its events.
    fn flush(&mut self) {
        while let Some(output) = self.agent.poll() {
            match output {
                // What the socket does not take is sent again.
                SipOutput::Datagram(to, bytes) => drop(self.socket.try_send_to(&bytes, to)),
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
        address,
        domain: config.domain.clone().unwrap_or_else(|| address.ip().to_string()),
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
        address,
        domain: config.domain.clone().unwrap_or_else(|| address.ip().to_string()),
        caller: config.caller.clone().or_else(|| config.user.clone()).unwrap_or_else(|| "repartee".to_owned()),
        account,
        is_encrypted: config.trunk_srtp,
        ring: config.ring,
        calls: config.trunk_calls as usize,
    })
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
