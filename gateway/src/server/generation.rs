//! Responses of the engine for one HTTP request.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use repartee_engine_api::{Command, Event, LatencyStamps, SessionError, SessionHandle};
use repartee_media::level::is_audible;
use repartee_protocol::{ErrorBody, ErrorKind};
use repartee_realtime::engine_error;
use tokio::time::sleep_until;

use super::AppState;
use super::api_error::ApiError;
use super::app::CallGuard;
use super::engine_session::EngineSession;
use super::one_call::OneCall;
use crate::byte_budget::ByteCharge;
use crate::call::stages_since;
use crate::metrics::{Metrics, TtfpStage};
use crate::telemetry::{CallError, CallSpan};

/// Responses in generation. Dropping it frees the session.
pub(super) struct Generation {
    engine_session: EngineSession,
    /// Completes when the server stops all calls.
    stop: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Deadline of this request, so that a slow reader does not hold its session for longer than a call may last.
    expiry: Option<tokio::time::Instant>,
    trace: RequestTrace,
    metrics: Arc<Metrics>,
    /// Bytes of commands that wait.
    charge: Option<ByteCharge>,
    /// Rate of the engine's sound, in Hz.
    rate: u32,
    /// Filter of an answer with one call at most.
    one_call: Option<OneCall>,
    guard: CallGuard,
}

/// Spans of a request: a call with one turn.
struct RequestTrace {
    call: CallSpan,
    since: Instant,
    /// Engine's timestamps of the first audio.
    stamps: Option<LatencyStamps>,
    /// True until audible samples or the end of the response were read.
    unanswered: bool,
    /// End of the request for the trace, and the error that ended it.
    end: (&'static str, Option<CallError>),
}

impl Generation {
    /// Submits `commands` to `session`, for the request `id`.
    pub fn new(app: &AppState, id: &str, session: SessionHandle, guard: CallGuard, commands: Vec<Command>) -> Self {
        let engine_session = EngineSession::new(session, commands);
        let trace = RequestTrace {
            call: app.traces.call(id, "http"),
            since: Instant::now(),
            stamps: None,
            unanswered: true,
            end: ("hangup", None),
        };
        let (stop, metrics) = (Box::pin(app.stopped()), app.metrics.clone());
        let expiry =
            app.call_limits().max_duration.and_then(|longest| tokio::time::Instant::now().checked_add(longest));
        let rate = app.engine.info().output_rate;
        Self { engine_session, stop, expiry, trace, metrics, charge: None, rate, one_call: None, guard }
    }

    /// Holds the charge of the commands until all are submitted.
    pub fn hold(&mut self, charge: ByteCharge) {
        self.charge = Some(charge);
    }

    /// Has the answer end at its second call of a function.
    pub fn keep_one_call(&mut self) {
        self.one_call = Some(OneCall::default());
    }

    /// Submits more commands behind the earlier ones.
    pub fn submit(&mut self, commands: impl IntoIterator<Item = Command>) {
        self.engine_session.submit(commands);
    }

    /// Returns the next event, or the error that ends the response.
    pub async fn next(&mut self) -> Result<Event, ApiError> {
        loop {
            let event = match self.receive().await? {
                Event::Failed { error, .. } => return Err(self.fail(failed(&error))),
                event => event,
            };
            let Some(one_call) = &mut self.one_call else { return Ok(event) };
            let (event, cancel) = one_call.filter(event);
            self.submit(cancel);
            if let Some(event) = event {
                return Ok(event);
            }
        }
    }

    /// As [`Self::next`]; `None` if a request found no free slot in the engine, and may come again.
    pub async fn next_unless_busy(&mut self) -> Result<Option<Event>, ApiError> {
        match self.receive().await? {
            Event::Failed { error: SessionError::OutOfMemory | SessionError::TooManyResponses { .. }, .. } => Ok(None),
            Event::Failed { error, .. } => Err(self.fail(failed(&error))),
            event => Ok(Some(event)),
        }
    }

    /// Error of a request that found no free slot.
    pub fn fail_busy(&mut self) -> ApiError {
        self.fail(failed(&SessionError::OutOfMemory))
    }

    /// Returns the next event, also one of a failure, or the error that ends the request.
    async fn receive(&mut self) -> Result<Event, ApiError> {
        let expiry = self.expiry;
        let expired = async move {
            match expiry {
                Some(expiry) => sleep_until(expiry).await,
                None => std::future::pending().await,
            }
        };
        let event = tokio::select! {
            // The deadline wins over events of a fast engine.
            biased;
            () = expired => {
                let error = ErrorBody::invalid(ErrorKind::SessionExpired, "the request reached the time limit of a call");
                return Err(self.fail(ApiError::new(StatusCode::REQUEST_TIMEOUT, error)));
            }
            event = self.engine_session.next() => {
                if self.engine_session.is_submitted() {
                    self.charge = None;
                }
                event
            }
            () = &mut self.stop => {
                let error = ErrorBody::server(ErrorKind::ShuttingDown, "the server is shutting down");
                let refusal = self.fail(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, error));
                self.trace.end = ("shutdown", None);
                return Err(refusal);
            }
        };
        match event {
            Some(event @ Event::Failed { .. }) => Ok(event),
            Some(event) => {
                self.trace.note(&event);
                self.count(&event);
                Ok(event)
            }
            None => Err(self.fail(ApiError::internal("the engine has ended a session"))),
        }
    }

    /// Counts the usage of a response for the account of the request's key.
    fn count(&self, event: &Event) {
        let account = self.guard.account();
        match event {
            Event::Audio { samples, .. } => {
                account.count_answer_sound(Duration::from_secs_f64(samples.len() as f64 / f64::from(self.rate.max(1))))
            }
            Event::SegmentFinished { usage, .. } => account.count_usage(usage),
            _ => {}
        }
    }

    /// Counts and traces the error that ends the request, and returns it.
    pub fn fail(&mut self, error: ApiError) -> ApiError {
        let (code, ours) = (error.code().to_owned(), error.is_ours());
        self.metrics.errors.with_label_values(&[&code]).inc();
        self.trace.end = (if ours { "failed" } else { "refused" }, Some(CallError { code, is_server_error: ours }));
        error
    }
}

impl RequestTrace {
    /// Records an event that the caller reads.
    fn note(&mut self, event: &Event) {
        // A caller that reads no further has hung up.
        self.end = ("hangup", None);
        match event {
            Event::Audio { samples, stamps, .. } => {
                self.stamps = self.stamps.or(*stamps);
                if is_audible(samples) {
                    self.answered();
                }
            }
            Event::SegmentFinished { .. } => {
                self.answered();
                self.end = ("completed", None);
            }
            _ => {}
        }
    }

    /// Ends the turn's span at the first audible packet, or at the end of a text without audio.
    fn answered(&mut self) {
        let now = Instant::now();
        if std::mem::take(&mut self.unanswered) {
            let stages = self.stamps.take().map(|stamps| stages_since(self.since, stamps, [(TtfpStage::Wire, now)]));
            self.call.turn((self.since, now), true, &stages.unwrap_or_default());
        }
    }
}

impl Drop for RequestTrace {
    fn drop(&mut self) {
        if self.unanswered {
            self.call.turn((self.since, Instant::now()), false, &[]);
        }
        let (why, error) = std::mem::take(&mut self.end);
        self.call.end(why, error);
    }
}

fn failed(error: &SessionError) -> ApiError {
    let body = engine_error(error);
    let status = match error {
        SessionError::Thinker { .. } => StatusCode::BAD_GATEWAY,
        _ if body.is_server_error() => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::BAD_REQUEST,
    };
    ApiError::new(status, body)
}
