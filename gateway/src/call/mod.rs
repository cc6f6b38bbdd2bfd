//! Task of one call: connects a [`Transport`] to the caller, the realtime session, and the engine.
//!
//! Every queue is bounded. While a message waits to be sent, the call takes no input and reads no engine event, so a
//! caller that reads nothing stops only its own session; the transport ends the call if nothing moves. Dropping the
//! task at any moment frees the session, because that drops the engine's handle.
//!
//! - this file: the loop, which chooses the next event
//! - `running`: the handling of events
//! - `end`: reasons for the end of a call
//! - `transport`: the connection to the caller
//! - `limits`: time limits of a call
//! - `services`: services that calls share
//! - `large_events`: parsing of events, and decoding of their audio, off the runtime's threads where it takes long
//! - `input_pipeline`: the caller's audio: turn detection; `input_sound`: its rates, and its echo
//! - `echo`, `played_frames`: what was played, for the canceller of its echo
//! - `packet_decoder`: Opus packets of a websocket
//! - `response_timing`: time to first packet and its parts; `summary`: figures for the log and the list of calls

mod echo;
mod end;
mod input_pipeline;
mod input_sound;
mod large_events;
mod limits;
mod packet_decoder;
mod played_frames;
mod response_timing;
mod running;
mod services;
mod summary;
mod transport;

use std::future::Future;
use std::pin::pin;
use std::time::Instant;

use futures_util::FutureExt as _;
use futures_util::future::{Fuse, FusedFuture as _};
use repartee_engine_api::{SessionHandle, SubmitError};
use repartee_realtime::{SessionInput, SessionSetup};

pub use end::CallEnd;
use large_events::{ParsedMessage, PendingMessage};
pub use limits::CallLimits;
pub use played_frames::PlayedFrames;
pub use response_timing::stages_since;
use running::{CallTask, PendingJudgement, now};
pub use services::CallServices;
pub use summary::{CallCounts, CallSummary};
pub use transport::{OpusFrame, OutboundMessage, Transport, TransportError, TransportEvent};

/// Events that may wait for the transport's queue before the call stops reading the engine.
const BACKLOG: usize = 8;
/// Pieces of input that are processed before other calls have a turn: less than a millisecond of work. A turn of a busy
/// runtime takes some 10 ms, so a call that waited for one with each piece of 20 ms would fall behind its caller.
const PIECES_AT_ONCE: u32 = 8;

/// Runs one call to its end, or until `stop`, which gives the reason. After `drain` (the server begins to shut down) the call ends once its
/// turn is over. Dropping the future frees everything.
pub async fn run<T: Transport>(
    mut transport: T,
    session: SessionHandle,
    setup: SessionSetup,
    services: CallServices,
    drain: impl Future<Output = ()> + Send,
    stop: impl Future<Output = CallEnd> + Send,
) -> CallEnd {
    let mut drain = pin!(drain.fuse());
    let mut stop = pin!(stop);
    let outbound = transport.outbound();
    let begun = now();
    let limits = services.limits;
    let (mut call, effects) = CallTask::new(setup, services);
    call.apply(effects, &mut transport);
    let expiry = limits.max_duration.and_then(|longest| now().checked_add(longest));
    // Time of the last activity besides the caller's silence, and whether the session was idle in the last round.
    let (mut busy, mut was_idle) = (now(), false);
    // Pieces processed since others had a turn.
    let mut pieces = 0;
    // A command that waits for room in the engine's queue.
    let mut submitting = pin!(Fuse::terminated());
    let ended = loop {
        while submitting.is_terminated()
            && let Some(command) = call.commands.pop_front()
        {
            if let Err(SubmitError::Full(command)) = session.submit(command) {
                submitting.set(session.submit_async(*command).fuse());
            }
        }
        if let Some(ended) = call.closing.filter(|_| call.outbound.is_empty()) {
            break ended;
        }
        let delivered = call.outbound.is_empty() && submitting.is_terminated();
        if drain.is_terminated() && delivered && call.core.is_idle() {
            break CallEnd::Shutdown;
        }
        let is_idle = call.core.is_idle();
        if !(is_idle && was_idle) {
            busy = now();
        }
        was_idle = is_idle;
        let silent_since = busy.max(transport.last_input().unwrap_or(busy));
        let hang_up = limits.idle_timeout.filter(|_| is_idle).and_then(|idle| silent_since.checked_add(idle));
        let input_pending = call.input_pipeline.has_more();
        let open = call.closing.is_none();
        let wants_input = call.core.wants_input();
        let accept_input = open && !input_pending && wants_input && delivered && call.parsing.is_none();
        call.timing.note_reading(call.outbound.len() < BACKLOG && transport.has_capacity());
        let room = open && call.outbound.len() < BACKLOG && transport.has_capacity();
        let places = call.outbound.front().map_or(1, |outgoing| outgoing.queue_permits(outbound.max_capacity()));
        tokio::select! {
            permits = outbound.reserve_many(places), if !call.outbound.is_empty() => match permits {
                Ok(mut permits) => if let (Some(permit), Some(outgoing)) = (permits.next(), call.outbound.pop_front()) {
                    permit.send(outgoing);
                },
                Err(_) => break CallEnd::Unreachable,
            },
            () = outbound.closed() => break CallEnd::Unreachable,
            _ = &mut submitting, if !submitting.is_terminated() => {}
            event = session.next_event(), if room && call.core.wants_engine_events() => {
                let news = event.map_or(SessionInput::EngineEnded, SessionInput::Engine);
                call.input(news, &mut transport);
            }
            () = std::future::ready(()), if room && call.core.has_pending_event() => call.input(SessionInput::PendingEvent, &mut transport),
            () = until(call.core.deadline()), if open => call.input(SessionInput::DeadlineReached, &mut transport),
            () = until(expiry), if open => call.end(CallEnd::Expired, &mut transport),
            () = until(hang_up), if open => call.end(CallEnd::Idle, &mut transport),
            event = transport.next(accept_input) => {
                if let TransportEvent::Broken(ended) = event {
                    break ended;
                }
                if matches!(event, TransportEvent::Closed) {
                    break if transport.was_connected() { CallEnd::Hangup } else { CallEnd::Unconnected };
                }
                call.on_event(event, &mut transport);
            }
            // A few pieces at a time, so that a long append does not delay other calls.
            () = others_turn(pieces), if input_pending && wants_input && call.outbound.is_empty() && submitting.is_terminated() => {
                pieces = pieces % PIECES_AT_ONCE + 1;
                call.process_input(&mut transport);
            }
            message = parsed(&mut call.parsing), if open => call.on_message(message, &mut transport),
            answer = judged(&mut call.judging), if open => call.judged(answer, &mut transport),
            () = &mut drain, if !drain.is_terminated() => {}
            end = &mut stop => break end,
        }
    };
    let close_message = match ended {
        CallEnd::Hangup | CallEnd::Unconnected | CallEnd::Unreachable => None,
        CallEnd::Expired => Some(OutboundMessage::Close(1000, "the call reached its maximum duration")),
        CallEnd::Idle => Some(OutboundMessage::Close(1000, "nothing was said for too long")),
        CallEnd::HungUp => Some(OutboundMessage::Close(1000, "the call was hung up")),
        CallEnd::Shutdown => Some(OutboundMessage::Close(1001, "the server is shutting down")),
        CallEnd::Failed => Some(OutboundMessage::Close(1011, "the session has failed")),
        CallEnd::Overflow => Some(OutboundMessage::Close(1009, "the message is too large")),
        CallEnd::NoRoom => {
            Some(OutboundMessage::Close(1013, "a large message had no room or was too slow: try again later"))
        }
        CallEnd::BadFrame => Some(OutboundMessage::Close(1002, "the frame breaks the websocket protocol")),
        CallEnd::BadText => Some(OutboundMessage::Close(1007, "a text message is not UTF-8")),
    };
    if let Some(close_message) = close_message {
        // A full queue means that the caller reads nothing anyway.
        let _ = outbound.try_send(close_message);
    }
    let lasted = now().saturating_duration_since(begun);
    call.metrics.observe_call(T::NAME, ended.label(), lasted);
    call.timing.ended(ended, now());
    let (summary, seconds) = (&call.summary, lasted.as_secs());
    let CallCounts { answers, cancelled, errors } = summary.counts();
    let first_sound_p95_ms = summary.wait_p95().map(|wait| wait.as_millis() as u64);
    let ended_as = ended.label();
    tracing::info!(
        transport = T::NAME,
        ended = ended_as,
        seconds,
        answers,
        cancelled,
        errors,
        first_sound_p95_ms,
        "a call ended"
    );
    ended
}

/// Lets other calls run if this one has processed [`PIECES_AT_ONCE`] pieces.
async fn others_turn(pieces: u32) {
    if pieces >= PIECES_AT_ONCE {
        tokio::task::yield_now().await;
    }
}

/// Waits for the message that is being parsed; for ever without one.
async fn parsed(parsing: &mut Option<PendingMessage>) -> ParsedMessage {
    let Some(pending) = parsing else { return std::future::pending().await };
    let message = pending.await;
    *parsing = None;
    message
}

/// Waits for the answer to the open question; for ever without one.
async fn judged(judging: &mut Option<PendingJudgement>) -> Option<f32> {
    match judging {
        Some((_, answer)) => answer.await.ok().flatten(),
        None => std::future::pending().await,
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}
