//! One telephone call over SIP: decision, admission, session, end.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::http::StatusCode;
use repartee_engine_api::SessionHandle;
use repartee_realtime::Delivery;
use repartee_sdp::phone::SrtpKey;
use repartee_sip::{CallKey, Invitation, LocalSound, Refusal};
use serde_json::Value;
use tokio::sync::{Notify, oneshot};
use tokio::time::sleep;
use tracing::Instrument as _;

use super::ringing::CallDecision;
use super::service::SipService;
use super::webhook;
use crate::admission::ClientIdentity;
use crate::call::{self, CallEnd};
use crate::server::api_error::ApiError;
use crate::server::app::{AppState, CallGuard};
use crate::server::call_registry::{ActiveCall, CallOwner, ListedCall};
use crate::server::caller::Caller;
use crate::server::calls::{Registration, ended_by_server};
use crate::server::request_log::RequestId;
use crate::server::telephony::greeting_event;
use crate::telemetry::log;
use crate::transport::sip::{Line, NAME, SipTransport, SoundSocket};

/// Serves a call from its invitation to its end. `gone` ends if the caller gives up first.
pub(super) async fn serve(app: Arc<AppState>, key: CallKey, invitation: Invitation, gone: oneshot::Receiver<()>) {
    let Some(sip) = app.sip.clone() else { return };
    let id = match app.ids.call() {
        Ok(id) => id,
        Err(error) => {
            tracing::error!(%error, "a telephone call has no id");
            return sip.reject(key, Refusal::new(500, "the server failed")).await;
        }
    };
    let span = log::call_span(&id, NAME);
    let call = async {
        if let Some(accepted) = decide(&app, &sip, (key, &id), &invitation, gone).await {
            admit(&app, &sip, (key, &id), caller(&invitation), accepted).await;
        }
        sip.named.remove(&id);
    };
    call.instrument(span).await;
}

/// Session of a call that is accepted, and where to tell of the outcome.
#[derive(Debug, Default)]
struct AcceptedCall {
    session: Option<Value>,
    outcome: Option<oneshot::Sender<Result<(), ApiError>>>,
}

/// Waits for the decision of the operator's program; without one every call is accepted. `None` for a call that was
/// refused, or whose caller gave up.
async fn decide(
    app: &AppState,
    sip: &SipService,
    (key, id): (CallKey, &str),
    invitation: &Invitation,
    gone: oneshot::Receiver<()>,
) -> Option<AcceptedCall> {
    let config = &app.config.sip;
    let Some(url) = &config.webhook else { return Some(AcceptedCall::default()) };
    let decided = sip.named.ring(id);
    let decision = async {
        // The decision may come before the webhook is answered.
        let announced = async {
            if webhook::announce(config, url, id, invitation).await {
                sleep(config.decide_within).await;
            }
        };
        tokio::select! {
            decision = decided => decision.ok(),
            () = announced => None,
        }
    };
    let decision = tokio::select! {
        decision = decision => decision,
        // The line is dropped with the call.
        _ = gone => return None,
    };
    match decision {
        Some(CallDecision::Accept(session, outcome)) => {
            return Some(AcceptedCall { session: Some(session), outcome: Some(outcome) });
        }
        Some(CallDecision::Reject(status)) => sip.reject(key, Refusal::new(status, "")).await,
        None => sip.reject(key, Refusal::new(480, "nobody has accepted the call")).await,
    }
    None
}

/// Admits a call, accepts it and runs it to its end.
async fn admit(
    app: &Arc<AppState>,
    sip: &SipService,
    (key, id): (CallKey, &str),
    mut caller: Caller,
    accepted: AcceptedCall,
) {
    caller.session = accepted.session.map(Arc::new);
    let tell = |outcome| {
        if let Some(sender) = accepted.outcome {
            // The program's request may have ended meanwhile.
            let _ = sender.send(outcome);
        }
    };
    let (session, guard) = match app.admit_call(&caller) {
        Ok(admitted) => admitted,
        Err(error) => {
            let refusal = refusal(&error);
            tell(Err(error));
            return sip.reject(key, refusal).await;
        }
    };
    let (socket, sound) = match local_sound(sip) {
        Ok(sound) => sound,
        Err((error, refusal)) => {
            tell(Err(error));
            return sip.reject(key, refusal).await;
        }
    };
    // Dropping the outcome tells that the caller gave up.
    let Ok((media, line)) = sip.accept(key, sound).await else { return };
    sip.named.run(id, key);
    if media.remote == sound.address {
        tell(Ok(()));
        tracing::warn!("a telephone call to itself is ended");
    } else {
        let side = PhoneSide {
            id: id.to_owned(),
            address: caller.client.address,
            owner: CallOwner::of_stream(&caller),
            greeting: app.config.telephony.greeting.clone(),
        };
        let begun = move || {
            tell(Ok(()));
            true
        };
        if let Err(error) = run(app.clone(), (socket, line), side, caller, session, begun).await {
            tracing::error!(?error, "a telephone call could not begin");
        }
    }
    sip.hang_up(key).await;
    drop::<CallGuard>(guard);
}

/// Takes a port and a key for a call's sound. An error is for a request and for the other side.
pub(super) fn local_sound(sip: &SipService) -> Result<(SoundSocket, LocalSound), (ApiError, Refusal)> {
    let socket = sip.ports.bind(sip.bind).map_err(|error| {
        tracing::error!(%error, "no UDP port is free for a telephone call (sip.first_port)");
        (ApiError::internal("no UDP port is free"), Refusal::new(503, "no port is free"))
    })?;
    let mut key = [0; 30];
    getrandom::fill(&mut key)
        .map_err(|error| (ApiError::internal(&error.to_string()), Refusal::new(500, "the server failed")))?;
    let address = SocketAddr::new(sip.announced, socket.port());
    Ok((socket, LocalSound { address, key: SrtpKey(key) }))
}

/// A call as requests see it: its id, the other side's address, and who may control it.
pub(super) struct PhoneSide {
    pub id: String,
    pub address: IpAddr,
    pub owner: CallOwner,
    /// Instructions of a first answer; `None` to wait for the other side.
    pub greeting: Option<String>,
}

/// Runs a call to its end. `begun` is called once requests can name it; if it returns false, the call ends at once.
pub(super) async fn run(
    app: Arc<AppState>,
    (socket, line): (SoundSocket, Line),
    PhoneSide { id, address, owner, greeting }: PhoneSide,
    caller: Caller,
    session: SessionHandle,
    begun: impl FnOnce() -> bool + Send,
) -> Result<(), ApiError> {
    let internal = |error: String| ApiError::internal(&error);
    let setup = app.setup(Delivery::Paced, &caller)?;
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|error| internal(error.to_string()))?;
    let rates = (setup.model.input_rate, setup.model.output_rate);
    let (random, metrics) = (u64::from_le_bytes(random), app.metrics.clone());
    let transport = SipTransport::new(socket, line, address, rates, random, metrics);
    let mut transport = transport.map_err(|error| internal(error.to_string()))?;
    if let Some(recordings) = &app.recordings {
        transport.record(recordings.begin(&id));
    }
    if let Some(greeting) = greeting {
        transport.push_event(greeting_event(&greeting));
    }
    let hang_up = Arc::new(Notify::new());
    let listed = ListedCall::new(NAME, app.key_name(&caller), address);
    let running =
        ActiveCall { owner, hang_up: hang_up.clone(), sidebands: Some(transport.sidebands()), listed: listed.clone() };
    let services = app.call_services(&id, &caller, &listed);
    let registration = Registration::new(app.clone(), None, id, running);
    if !begun() {
        registration.end(CallEnd::HungUp);
        return Ok(());
    }
    let stop = ended_by_server(&app, hang_up);
    registration.end(call::run(transport, session, setup, services, app.draining(), stop).await);
    Ok(())
}

/// Returns the caller of an invitation: its address, without a key.
fn caller(invitation: &Invitation) -> Caller {
    let of_sip = invitation.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("call-id"));
    Caller {
        client: ClientIdentity { address: invitation.from.address.ip().to_canonical(), key: None },
        ephemeral: None,
        session: None,
        request_id: RequestId(of_sip.map_or("", |(_, id)| id).into()),
    }
}

/// Converts a refusal of the API to one of SIP.
pub(super) fn refusal(error: &ApiError) -> Refusal {
    let retry_after = error.retry_time();
    let status = match (error.status(), error.code()) {
        // Others may call, this one has to end a call first.
        (StatusCode::TOO_MANY_REQUESTS, "call_limit_reached") => 486,
        (StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE, _) => 503,
        _ => 500,
    };
    Refusal::new(status, error.message()).retry_after(retry_after)
}
