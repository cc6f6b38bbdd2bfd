//! A response of the engine for one HTTP request.

use std::pin::Pin;

use axum::http::StatusCode;
use repartee_engine_api::{Command, Event, SessionError, SessionHandle};
use repartee_protocol::{ErrorBody, ErrorKind};
use repartee_realtime::engine_error;

use super::App;
use super::api_error::ApiError;
use super::app::CallGuard;
use super::engine_session::EngineSession;

/// Responses while they are generated. Dropping it frees the session.
pub(super) struct Generation {
    engine_session: EngineSession,
    /// Completes when every call has to end.
    stop: Pin<Box<dyn Future<Output = ()> + Send>>,
    _guard: CallGuard,
}

impl Generation {
    /// Submits `commands` to a session of its own.
    pub fn new(app: &App, session: SessionHandle, guard: CallGuard, commands: Vec<Command>) -> Self {
        let engine_session = EngineSession::new(session, commands);
        Self { engine_session, stop: Box::pin(app.stopped()), _guard: guard }
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
                let error = ErrorBody::server(ErrorKind::ShuttingDown, "the server is shutting down");
                return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, error));
            }
        };
        match event {
            Some(Event::Failed { error, .. }) => Err(failed(&error)),
            Some(event) => Ok(event),
            None => Err(ApiError::internal("the engine has ended a session")),
        }
    }
}

fn failed(error: &SessionError) -> ApiError {
    let body = engine_error(error);
    let ours = body.code.as_deref() == Some(ErrorKind::Internal.code());
    ApiError::new(if ours { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::BAD_REQUEST }, body)
}
