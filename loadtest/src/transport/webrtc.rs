//! A call over WebRTC, on str0m.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use str0m::change::SdpAnswer;
use str0m::channel::ChannelId;
use str0m::format::Codec;
use str0m::media::{Direction, MediaKind, Mid, Pt};
use str0m::net::{Protocol, Receive};
use str0m::rtp::RtpWrite;
use str0m::{Candidate, Event as RtcEvent, Input, Output, Rtc, RtcConfig};
use tokio::net::UdpSocket;
use tokio::time::sleep_until;

use super::delay_queue::{DelayQueue, LinkDirection};
use super::network::{ImpairedLink, Impairment};
use super::rtp_receiver::{BUFFER, PacketCounts, RtpReceiver};
use super::socket::StampedSocket;
use crate::measure::playback::Playback;
use crate::server_events::{Event, TimedEvent};
use crate::speech::Frame;
use crate::target::Target;

/// RTP clock ticks of a frame.
const FRAME_TICKS: u32 = 960;
/// Longest datagram, in bytes, on any network that WebRTC uses.
const MAX_DATAGRAM: usize = 2_000;
/// Most queued events; beyond that the server floods us.
const MAX_EVENTS: usize = 4_096;
/// Interval of the stack's statistics.
const STATISTICS: Duration = Duration::from_secs(1);

/// RTP and RTCP statistics of a call.
#[derive(Debug, Clone, Copy, Default)]
pub struct RtpReport {
    /// Counts of the server's packets.
    pub counts: PacketCounts,
    /// Interarrival jitter of the server's packets, in seconds.
    pub jitter: Option<f64>,
    /// Round-trip time, in seconds.
    pub round_trip: Option<f64>,
    /// Share of our packets that the server reports as lost, 0 to 1.
    pub loss_reported: Option<f64>,
}

/// A call over WebRTC, on str0m.
pub struct WebRtcTransport {
    rtc: Rtc,
    socket: StampedSocket,
    local: SocketAddr,
    mid: Mid,
    channel: ChannelId,
    open: bool,
    begun: Instant,
    deadline: Instant,
    up: ImpairedLink,
    down: ImpairedLink,
    delayed: DelayQueue,
    receiver: RtpReceiver,
    playback: Playback,
    incoming: VecDeque<TimedEvent>,
    /// Arrival of the datagram being read.
    arrival: Instant,
    pt: Option<Pt>,
    /// Number of frames sent.
    frames: u32,
    report: RtpReport,
}

impl std::fmt::Debug for WebRtcTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebRtcLine").field("local", &self.local).finish_non_exhaustive()
    }
}

impl WebRtcTransport {
    /// Makes a call; returns once the data channel is open. `patience` is the deadline.
    ///
    /// # Errors
    /// The server refuses the call, negotiation fails, or the deadline passes.
    pub async fn call(
        target: &Target,
        caller: usize,
        impairment: &Impairment,
        seed: u64,
        patience: Instant,
    ) -> Result<Self> {
        let begun = Instant::now();
        let socket = StampedSocket::bind((local_address(target, caller).await?, 0).into()).await?;
        let local = socket.local_addr()?;
        let mut rtc = RtcConfig::new()
            .set_rtp_mode(true)
            .clear_codecs()
            .enable_opus(true, false)
            .set_stats_interval(Some(STATISTICS))
            .build(begun);
        rtc.add_local_candidate(Candidate::host(local, "udp")?).context("this address is no ICE candidate")?;
        let mut change = rtc.sdp_api();
        let mid = change.add_media(MediaKind::Audio, Direction::SendRecv, None, None, None);
        let channel = change.add_channel("oai-events".to_owned());
        let (offer, pending) = change.apply().context("the offer is empty")?;
        let answer = target.call(offer.to_sdp_string(), caller).await?;
        let answer = SdpAnswer::from_sdp_string(&answer).context("the answer is not SDP")?;
        rtc.sdp_api().accept_answer(pending, answer).context("the SDP answer")?;
        let mut line = Self {
            rtc,
            socket,
            local,
            mid,
            channel,
            open: false,
            begun,
            deadline: begun,
            up: ImpairedLink::new(impairment.clone(), seed),
            down: ImpairedLink::new(impairment.clone(), !seed),
            delayed: DelayQueue::default(),
            receiver: RtpReceiver::new()?,
            playback: Playback::new(BUFFER),
            incoming: VecDeque::new(),
            arrival: begun,
            pt: None,
            frames: 0,
            report: RtpReport::default(),
        };
        line.drain()?;
        while !line.open {
            if Instant::now() >= patience {
                bail!("the data channel did not open in time");
            }
            line.wait(patience).await?;
        }
        Ok(line)
    }

    /// Returns the next event, or `None` at `until`.
    ///
    /// # Errors
    /// The server hung up, flooded us with events, or sent something malformed.
    pub async fn next(&mut self, until: Instant) -> Result<Option<TimedEvent>> {
        loop {
            if let Some(incoming) = self.incoming.pop_front() {
                return Ok(Some(incoming));
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            self.wait(until).await?;
        }
    }

    /// Sends one 20 ms frame of the microphone.
    ///
    /// # Errors
    /// Opus was not agreed on, or the connection is closed.
    pub fn send_frame(&mut self, frame: &Frame) -> Result<()> {
        let opus = self.rtc.codec_config().find(|params| params.spec().codec == Codec::Opus).map(|params| params.pt());
        let pt = *self.pt.get_or_insert(opus.context("Opus was not agreed on")?);
        let mut api = self.rtc.direct_api();
        let stream = api.stream_tx_by_mid(self.mid, None).context("there is no stream to send on")?;
        let ticks = self.frames.wrapping_mul(FRAME_TICKS);
        // Numbers begin above zero to expose off-by-one errors in a server.
        let number = u64::from(self.frames) + 1_000;
        stream.write_rtp(RtpWrite::new(pt, number.into(), ticks, Instant::now(), &frame.opus[..]));
        self.frames += 1;
        self.drain()?;
        let now = Instant::now();
        if self.deadline <= now { self.step(Input::Timeout(now)) } else { Ok(()) }
    }

    /// Sends a client event over the data channel.
    ///
    /// # Errors
    /// The channel is closed, or its buffer is full.
    pub fn send_event(&mut self, event: &Value) -> Result<()> {
        let mut channel = self.rtc.channel(self.channel).context("the data channel is closed")?;
        if !channel.write(false, event.to_string().as_bytes())? {
            bail!("the server does not read its events");
        }
        self.drain()
    }

    /// Returns the playback of received sound.
    pub fn playback(&mut self) -> &mut Playback {
        &mut self.playback
    }

    /// Returns the current RTP and RTCP statistics.
    pub fn report(&self) -> RtpReport {
        RtpReport { counts: self.receiver.counts(), ..self.report }
    }

    /// Closes the call; errors are ignored.
    pub fn close(&mut self) {
        // The other end may already be gone.
        let _ = self.rtc.close();
        let _ = self.drain();
    }

    /// Waits for a datagram or timer, at most until `until`, and handles it.
    async fn wait(&mut self, until: Instant) -> Result<()> {
        let wake = self.delayed.next_arrival().map_or(until, |arrival| arrival.min(until)).min(self.deadline);
        tokio::select! {
            readable = self.socket.readable() => {
                readable?;
                self.receive()?;
            }
            () = sleep_until(wake.into()) => {}
        }
        self.deliver()?;
        let now = Instant::now();
        if now >= self.deadline {
            self.step(Input::Timeout(now))?;
        }
        self.receiver.play(now, &mut self.playback);
        Ok(())
    }

    /// Reads all datagrams from the socket, through the simulated network.
    fn receive(&mut self) -> Result<()> {
        let mut buffer = [0; MAX_DATAGRAM];
        loop {
            match self.socket.receive(&mut buffer) {
                Ok((length, from, arrival)) => {
                    let sent = arrival.saturating_duration_since(self.begun);
                    for at in self.down.carry(sent).into_iter().flatten() {
                        if at <= sent {
                            self.take(&buffer[..length], from, arrival)?;
                        } else {
                            self.delayed.push(self.begun + at, LinkDirection::Down, from, buffer[..length].to_vec());
                        }
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // An ICMP error of an earlier datagram.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(error).context("receive"),
            }
        }
    }

    /// Delivers datagrams whose simulated delay is over.
    fn deliver(&mut self) -> Result<()> {
        while let Some((at, way, peer, datagram)) = self.delayed.pop(Instant::now()) {
            match way {
                LinkDirection::Up => self.socket.send(&datagram, peer),
                LinkDirection::Down => self.take(&datagram, peer, at)?,
            }
        }
        Ok(())
    }

    /// Passes a datagram to the stack.
    fn take(&mut self, datagram: &[u8], source: SocketAddr, arrival: Instant) -> Result<()> {
        self.arrival = arrival;
        // Ignores anything but STUN, DTLS and RTP.
        let Ok(receive) = Receive::new(Protocol::Udp, source, self.local, datagram) else { return Ok(()) };
        self.step(Input::Receive(arrival, receive))
    }

    fn step(&mut self, input: Input<'_>) -> Result<()> {
        self.rtc.handle_input(input)?;
        self.drain()
    }

    /// Handles all outputs of the stack until its next timeout.
    fn drain(&mut self) -> Result<()> {
        loop {
            match self.rtc.poll_output()? {
                Output::Timeout(at) => {
                    self.deadline = at;
                    return Ok(());
                }
                Output::Transmit(transmit) => {
                    let now = self.begun.elapsed();
                    for at in self.up.carry(now).into_iter().flatten() {
                        if at <= now {
                            self.socket.send(&transmit.contents, transmit.destination);
                        } else {
                            let datagram = transmit.contents.to_vec();
                            self.delayed.push(self.begun + at, LinkDirection::Up, transmit.destination, datagram);
                        }
                    }
                }
                Output::Event(event) => self.event(event)?,
            }
        }
    }

    fn event(&mut self, event: RtcEvent) -> Result<()> {
        match event {
            RtcEvent::ChannelOpen(..) => self.open = true,
            RtcEvent::ChannelData(data) => {
                if self.incoming.len() >= MAX_EVENTS {
                    bail!("the server sent more than {MAX_EVENTS} events at once");
                }
                let event = Event::read(&String::from_utf8_lossy(&data.data))?;
                self.incoming.push_back(TimedEvent { event, at: self.arrival });
            }
            RtcEvent::RtpPacket(packet) => {
                let ticks = packet.time.numer();
                self.receiver.push(*packet.seq_no, ticks, packet.payload, packet.timestamp);
            }
            RtcEvent::PeerStats(stats) => {
                let pair = stats.selected_candidate_pair.and_then(|pair| pair.current_round_trip_time);
                self.report.round_trip = stats.rtt.or(pair).map(|rtt| rtt.as_secs_f64()).or(self.report.round_trip);
            }
            RtcEvent::MediaIngressStats(stats) => {
                self.report.jitter = Some(f64::from(stats.jitter) / f64::from(FRAME_TICKS * 50));
            }
            RtcEvent::MediaEgressStats(stats) => {
                self.report.loss_reported = stats.loss.map(f64::from).or(self.report.loss_reported);
            }
            RtcEvent::Closed | RtcEvent::ChannelClose(_) => bail!("the server hung up"),
            _ => {}
        }
        Ok(())
    }
}

/// Returns the local address of the route to the server.
pub(super) async fn local_address(target: &Target, caller: usize) -> Result<IpAddr> {
    if let Some(source) = target.source(caller) {
        return Ok(source);
    }
    let unspecified: IpAddr =
        if target.address().is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    // Nothing is sent: the system only looks up the route.
    let socket = UdpSocket::bind((unspecified, 0)).await?;
    socket.connect(target.address()).await?;
    Ok(socket.local_addr()?.ip())
}
