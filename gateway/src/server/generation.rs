//! A response of the engine for one HTTP request.

use std::pin::Pin;
use std::time::Instant;

use axum::http::StatusCode;
use repartee_engine_api::{Command, Event, SessionError, SessionHandle, Stamps};
use repartee_media::level::is_audible;
use repartee_protocol::{ErrorBody, ErrorKind};
use repartee_realtime::engine_error;

use super::App;
use super::api_error::ApiError;
use super::app::CallGuard;
use super::engine_session::EngineSession;
use crate::call::stages_since;
use crate::metrics::Stage;
use crate::telemetry::CallTrace;

/// Responses while they are generated. Dropping it frees the session.
pub(super) struct Generation {
    engine_session: EngineSession,
    /// Completes when every call has to end.
    stop: Pin<Box<dyn Future<Output = ()> + Send>>,
    trace: RequestTrace,
    _guard: CallGuard,
}

/// The spans of a request: a call with one turn.
struct RequestTrace {
    call: CallTrace,
    since: Instant,
    /// The engine's times of the first sound.
    stamps: Option<Stamps>,
    /// Whether nothing audible was read yet.
    unanswered: bool,
    /// How it ends, and whether that is a failure of ours.
    end: (&'static str, bool),
}

impl Generation {
    /// Submits `commands` to a session of its own, for the request `id`.
    pub fn new(app: &App, id: &str, session: SessionHandle, guard: CallGuard, commands: Vec<Command>) -> Self {
        let engine_session = EngineSession::new(session, commands);
        let trace = RequestTrace {
            call: app.traces.call(id, "http"),
            since: Instant::now(),
            stamps: None,
            unanswered: true,
            end: ("hangup", false),
        };
        Self { engine_session, stop: Box::pin(app.stopped()), trace, _guard: guard }
    }

    /// Submits more commands, after those before.
    pub fn submit(&mut self, commands: impl IntoIterator<Item = Command>) {
        self.engine_session.submit(commands);
    }

    /// The next event, or the error that ends the response.
    pub async fn next(&mut self) -> Result<Event, ApiError> {
        let event = tokio::select! {
            event = self.engine_session.next() => event,
            () = &mut self.stop => {
                self.trace.end = ("shutdown", false);
                let error = ErrorBody::server(ErrorKind::ShuttingDown, "the server is shutting down");
                return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, error));
            }
        };
        self.trace.note(event.as_ref());
        match event {
            Some(Event::Failed { error, .. }) => Err(failed(&error)),
            Some(event) => Ok(event),
            None => Err(ApiError::internal("the engine has ended a session")),
        }
    }
}

impl RequestTrace {
    /// Notes what is read for the caller.
    fn note(&mut self, event: Option<&Event>) {
        // Whoever reads no further has hung up.
        self.end = ("hangup", false);
        match event {
            Some(Event::Audio { samples, stamps, .. }) => {
                self.stamps = self.stamps.or(*stamps);
                if is_audible(samples) {
                    self.answered();
                }
            }
            Some(Event::SegmentFinished { .. }) => {
                self.answered();
                self.end = ("completed", false);
            }
            Some(Event::Failed { .. }) | None => self.end = ("failed", true),
            Some(_) => {}
        }
    }

    /// The turn is over; without sound once its text is whole.
    fn answered(&mut self) {
        let now = Instant::now();
        if std::mem::take(&mut self.unanswered) {
            let stages = self.stamps.take().map(|stamps| stages_since(self.since, stamps, [(Stage::Wire, now)]));
            self.call.turn((self.since, now), true, &stages.unwrap_or_default());
        }
    }
}

impl Drop for RequestTrace {
    fn drop(&mut self) {
        if self.unanswered {
            self.call.turn((self.since, Instant::now()), false, &[]);
        }
        let (why, failed) = self.end;
        self.call.end(why, failed);
    }
}

fn failed(error: &SessionError) -> ApiError {
    let body = engine_error(error);
    let ours = body.code.as_deref() == Some(ErrorKind::Internal.code());
    ApiError::new(if ours { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::BAD_REQUEST }, body)
}
