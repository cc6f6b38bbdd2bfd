//! The node of each request: a new call goes to a node with a free slot, a request for a call to the call's owner.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequestParts as _, Path, Request, State};
use axum::http::header::UPGRADE;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use repartee_cluster::{
    HOP_HEADER, Hop, Liveness, NodeHome, Owner, Placement, PlacementStep, TableInput, Target, tag_of_id,
};
use repartee_protocol::{ErrorBody, ErrorKind};
use serde_json::Value;

use super::super::api_error::ApiError;
use super::super::app::AppState;
use super::super::caller::Caller;
use super::super::form;
use super::super::offer;
use super::super::uploads::HeldBody;
use super::super::voices::{self, MAX_RENAME};
use super::destination::Destination;
use super::forward::forward;
use super::hops::{FULL, is_full};
use super::voices::serve_change;
use crate::cluster::membership::Membership;

/// `Retry-After` of a request whose node does not answer.
const NODE_RETRY: Duration = Duration::from_secs(1);

/// Request that may be sent several times.
struct Attempts<'a> {
    app: &'a Arc<AppState>,
    cluster: &'a Membership,
    parts: Parts,
    body: Bytes,
    hop: Hop,
}

/// Serves a request here or forwards it. It comes after the check of the caller's key, and before the routes.
pub(in crate::server) async fn route(State(app): State<Arc<AppState>>, request: Request, next: Next) -> Response {
    let Some(cluster) = app.cluster.get() else { return next.run(request).await };
    let hopped = request.extensions().get::<Hop>().copied();
    let (mut parts, body) = request.into_parts();
    // The routes have been matched: this is the name in the path, decoded. One that is no text goes nowhere else.
    let name = Path::<String>::from_request_parts(&mut parts, &()).await.ok().map(|Path(name)| name);
    let request = Request::from_parts(parts, body);
    match Destination::of(request.method(), request.uri(), name) {
        Destination::Own => next.run(request).await,
        Destination::OwnerOf(id) => {
            let owner = tag_of_id(&id).map(|tag| cluster.directory.with(|table, now| table.owner(tag, now)));
            match owner {
                // Another node believed that the call is here: it is not, and nowhere else.
                Some(Owner::Other(target, liveness)) if hopped.is_none() => {
                    ask_owner(&app, cluster, request, &target, liveness).await
                }
                _ => next.run(request).await,
            }
        }
        Destination::NodeWith(model) => {
            let target = cluster.directory.with(|table, now| table.serving(&model, now));
            match target {
                Some(target) if hopped.is_none() => ask_other(&app, cluster, request, &target).await,
                _ => next.run(request).await,
            }
        }
        Destination::HomeOf(id) if hopped.is_none() => {
            ask_home(&app, cluster, request, next, &id).await.unwrap_or_else(|error| error.into_response())
        }
        Destination::HomeOfConsent if hopped.is_none() => {
            enrol_at_home(&app, cluster, request, next).await.unwrap_or_else(|error| error.into_response())
        }
        Destination::HomeOf(_) | Destination::HomeOfConsent | Destination::NewConsent => {
            serve_change(&app, cluster, request, next).await
        }
        Destination::AnyNode(model) => place(&app, cluster, request, next, model, hopped.is_some())
            .await
            .unwrap_or_else(|error| error.into_response()),
    }
}

/// Forwards a question without a body to a node.
async fn ask_other(app: &Arc<AppState>, cluster: &Membership, request: Request, target: &Target) -> Response {
    let (parts, _) = request.into_parts();
    let attempts = match Attempts::new(app, cluster, parts, Bytes::new()) {
        Ok(attempts) => attempts,
        Err(error) => return error.into_response(),
    };
    attempts.ask(target).await.unwrap_or_else(|()| {
        let error = ErrorBody::server(ErrorKind::CallNodeUnreachable, "the node with this model does not answer");
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, error).retry_after(NODE_RETRY).into_response()
    })
}

/// Forwards a request to the node that owns the call.
async fn ask_owner(
    app: &Arc<AppState>,
    cluster: &Membership,
    request: Request,
    target: &Target,
    liveness: Liveness,
) -> Response {
    // None of these requests has a body that its route reads.
    let (parts, _) = request.into_parts();
    let attempts = match Attempts::new(app, cluster, parts, Bytes::new()) {
        Ok(attempts) => attempts,
        Err(error) => return error.into_response(),
    };
    match attempts.ask(target).await {
        Ok(response) => response,
        Err(()) => {
            if liveness == Liveness::Gone {
                let message = "the node of this call is gone, and the call with it";
                let error = ErrorBody::invalid(ErrorKind::CallUnknown, message).with_param("call_id");
                return ApiError::new(StatusCode::NOT_FOUND, error).into_response();
            }
            let message = "the node of this call does not answer: try again soon";
            let error = ErrorBody::server(ErrorKind::CallNodeUnreachable, message).with_param("call_id");
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, error).retry_after(NODE_RETRY).into_response()
        }
    }
}

/// Forwards a request about a voice or a consent to the node that keeps it.
async fn ask_home(
    app: &Arc<AppState>,
    cluster: &Membership,
    request: Request,
    next: Next,
    id: &str,
) -> Result<Response, ApiError> {
    let Some(target) = home(app, cluster, id)? else { return Ok(serve_change(app, cluster, request, next).await) };
    let (parts, body) = request.into_parts();
    let caller = parts.extensions.get::<Caller>().cloned();
    let caller = caller.ok_or_else(|| ApiError::internal("a route without the auth middleware is forwarded"))?;
    let HeldBody { bytes, charge } = app.read_body(&caller, body, MAX_RENAME).await?;
    let answered = Attempts::new(app, cluster, parts, bytes)?.ask(&target).await;
    drop(charge);
    answered.map_err(|()| home_unreachable())
}

/// Sends a request for a new voice to the node that keeps its consent.
async fn enrol_at_home(
    app: &Arc<AppState>,
    cluster: &Membership,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let caller = parts.extensions.get::<Caller>().cloned();
    let caller = caller.ok_or_else(|| ApiError::internal("a route without the auth middleware is forwarded"))?;
    if form::check_type(&parts.headers).is_err() {
        return Ok(next.run(Request::from_parts(parts, body)).await);
    }
    let HeldBody { bytes, charge } = app.read_body(&caller, body, voices::MAX_BODY).await?;
    let headers = parts.headers.clone();
    let read = move |bytes: Bytes| voices::consent_in(&headers, bytes);
    // A form that cannot be read names none: the route says why.
    let consent = app.parse_body(&caller, bytes.clone(), read).await?;
    let target = consent.map(|consent| home(app, cluster, &consent)).transpose()?.flatten();
    let attempts = Attempts::new(app, cluster, parts, bytes)?;
    let answered = match target {
        Some(target) => attempts.ask(&target).await.map_err(|()| home_unreachable()),
        None => {
            // The route counts the bytes again.
            drop(charge);
            return Ok(serve_change(app, cluster, attempts.here(), next).await);
        }
    };
    drop(charge);
    answered
}

/// Other node that keeps a voice or a consent; `None` if this one answers, because it keeps it or because nobody does.
fn home(app: &AppState, cluster: &Membership, id: &str) -> Result<Option<Target>, ApiError> {
    let Some(home) = NodeHome::of_id(id).filter(|_| !app.voices.keeps(id)) else { return Ok(None) };
    match cluster.directory.with(|table, now| table.home(home, now)) {
        Owner::Other(target, _) => Ok(Some(target)),
        Owner::Ended(_) => Err(home_unreachable()),
        Owner::Own | Owner::Unknown => Ok(None),
    }
}

fn home_unreachable() -> ApiError {
    let message =
        "the node that keeps this voice or consent does not answer: nothing was changed, try again once it is back";
    let error = ErrorBody::server(ErrorKind::CallNodeUnreachable, message);
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, error).retry_after(NODE_RETRY)
}

/// Tries the nodes of a new call one after another.
async fn place(
    app: &Arc<AppState>,
    cluster: &Membership,
    request: Request,
    next: Next,
    model: Option<String>,
    hopped: bool,
) -> Result<Response, ApiError> {
    let (mut parts, body) = request.into_parts();
    let caller = parts.extensions.get::<Caller>().cloned();
    let caller = caller.ok_or_else(|| ApiError::internal("a route without the auth middleware is placed"))?;
    let (body, charge) = if parts.headers.contains_key(UPGRADE) {
        (Bytes::new(), None)
    } else {
        let HeldBody { bytes, charge } = app.read_body(&caller, body, offer::MAX_BODY).await?;
        (bytes, Some(charge))
    };
    let mut placement = if hopped {
        Placement::hopped()
    } else {
        let named = model.is_some() || !cluster.directory.with(|table, now| table.has_other_models(now));
        let model = if named { model } else { wanted_model(app, &caller, &parts.headers, &body).await };
        Placement::new(model)
    };
    // It is sent whole, whatever its form was.
    parts.headers.remove(axum::http::header::TRANSFER_ENCODING);
    let attempts = Attempts::new(app, cluster, parts, body)?;
    let mut refusal = None;
    loop {
        cluster.directory.measure();
        let random = random()?;
        match cluster.directory.with(|table, now| placement.next(table, random, now)) {
            PlacementStep::Own => {
                let response = next.clone().run(attempts.here()).await;
                if !is_full(&response) {
                    cluster.directory.note_call();
                    return Ok(response);
                }
                refusal = Some(response);
            }
            PlacementStep::Forward(target) => match attempts.send(&target).await {
                Ok(response) if is_refused_as_full(&response) => {
                    cluster.directory.input(TableInput::Full(target.tag));
                }
                Ok(response) => {
                    let took = response.status().is_success() || response.status() == StatusCode::SWITCHING_PROTOCOLS;
                    cluster.directory.input(TableInput::Answered(target.tag, took));
                    return Ok(response);
                }
                Err(()) => cluster.directory.input(TableInput::Failed(target.tag)),
            },
            PlacementStep::Full => {
                drop(charge);
                let message = "no node of the cluster has a free session: try again soon";
                return Ok(refusal.unwrap_or_else(|| app.full(message).into_response()));
            }
        }
    }
}

impl<'a> Attempts<'a> {
    fn new(app: &'a Arc<AppState>, cluster: &'a Membership, parts: Parts, body: Bytes) -> Result<Self, ApiError> {
        let client = parts.extensions.get::<Caller>().map(|caller| caller.client.address);
        let client = client.ok_or_else(|| ApiError::internal("a route without the auth middleware is forwarded"))?;
        let from = cluster.directory.with(|table, _| table.own().tag);
        Ok(Self { app, cluster, parts, body, hop: Hop { from, client } })
    }

    /// Request for the routes of this node.
    fn here(&self) -> Request {
        Request::from_parts(self.parts.clone(), Body::from(self.body.clone()))
    }

    /// Sends a request that takes no slot.
    async fn ask(&self, target: &Target) -> Result<Response, ()> {
        let answered = self.send(target).await;
        let input =
            if answered.is_ok() { TableInput::Answered(target.tag, true) } else { TableInput::Failed(target.tag) };
        self.cluster.directory.input(input);
        answered
    }

    async fn send(&self, target: &Target) -> Result<Response, ()> {
        let sent = forward(self.app, self.cluster, target, self.hop, &self.parts, self.body.clone()).await;
        let outcome = match &sent {
            Ok(response) if is_refused_as_full(response) => "full",
            Ok(_) => "answered",
            Err(_) => "failed",
        };
        self.cluster.metrics.forwards.with_label_values(&[outcome]).inc();
        sent.map_err(|error| tracing::warn!(node = %target.tag, %error, "a request could not be forwarded"))
    }
}

/// True if another node says that it has no slot.
fn is_refused_as_full(response: &Response) -> bool {
    response.headers().get(HOP_HEADER).is_some_and(|full| full == FULL)
}

/// Model in the session of an offer's form, or else in that of the ephemeral key. An offer that cannot be read names none: the
/// node that gets it says why.
async fn wanted_model(app: &AppState, caller: &Caller, headers: &HeaderMap, body: &Bytes) -> Option<String> {
    let in_session = |session: &Value| session["model"].as_str().map(str::to_owned);
    let headers = headers.clone();
    let read = move |body: Bytes| offer::read_offer(&headers, body).ok().and_then(|offer| in_session(&offer.session?));
    let in_offer = if body.is_empty() { None } else { app.parse_body(caller, body.clone(), read).await.ok().flatten() };
    in_offer.or_else(|| in_session(caller.session.as_deref()?))
}

fn random() -> Result<u64, ApiError> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|error| ApiError::internal(&error.to_string()))?;
    Ok(u64::from_le_bytes(random))
}
