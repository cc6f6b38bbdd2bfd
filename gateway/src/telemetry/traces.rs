//! Spans of calls, turns and stages, sent to a collector over OTLP (HTTP, protobuf).
//!
//! - `call`: the whole call
//! - `turn`, in the call: from the end of the caller's voice, or the request, to the first audible packet of the answer
//! - a span for each stage, in the turn, named as in the metrics
//!
//! A turn's spans are made when it is over, from the times of its stages, so a running turn costs nothing. The queue to
//! the collector is bounded; a slow collector loses spans and delays no call.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use opentelemetry::trace::{
    Span as _, SpanContext, SpanKind, Status, TraceContextExt as _, Tracer as _, TracerProvider as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, Span};

use super::collector::OtlpHttpClient;
use crate::metrics::TtfpStage;

/// Path appended to the endpoint, as OTLP specifies.
const PATH: &str = "/v1/traces";

/// Exporter of spans; by default none.
#[derive(Debug, Clone, Default)]
pub struct TraceExporter(Option<Arc<Exporter>>);

#[derive(Debug)]
struct Exporter {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

impl TraceExporter {
    /// Exports to the collector at `endpoint`, such as `http://127.0.0.1:4318`. Needs a Tokio runtime.
    pub fn otlp(endpoint: &str) -> Result<Self, ExporterBuildError> {
        let endpoint = format!("{}{PATH}", endpoint.trim_end_matches('/'));
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(OtlpHttpClient::new())
            .with_endpoint(endpoint)
            .build()?;
        let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
        let resource = Resource::builder().with_service_name("repartee").with_attribute(version).build();
        let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build();
        let tracer = provider.tracer("repartee");
        Ok(Self(Some(Arc::new(Exporter { provider, tracer }))))
    }

    /// Starts the span of a call.
    pub fn call(&self, id: &str, transport: &'static str) -> CallSpan {
        let Some(exporter) = self.0.clone() else { return CallSpan::default() };
        let attributes =
            [KeyValue::new("repartee.call.id", id.to_owned()), KeyValue::new("repartee.call.transport", transport)];
        let clock = (now(), SystemTime::now());
        let span = exporter
            .tracer
            .span_builder("call")
            .with_kind(SpanKind::Server)
            .with_start_time(clock.1)
            .with_attributes(attributes)
            .start_with_context(&exporter.tracer, &Context::new());
        CallSpan(Some(RunningCall { exporter, span, clock }))
    }

    /// Sends the queued spans and ends. Blocks for a few seconds at most.
    pub fn shut_down(&self) {
        if let Some(exporter) = &self.0
            && let Err(error) = exporter.provider.shutdown()
        {
            tracing::warn!(%error, "cannot send the last spans");
        }
    }
}

/// Error that ended a call.
#[derive(Debug)]
pub struct CallError {
    /// Error code on the wire.
    pub code: String,
    /// True for a fault of the server. An error that the caller's request caused leaves the span's status unset, as the
    /// semantic conventions for server spans say.
    pub is_server_error: bool,
}

/// Span of a call; by default none.
#[derive(Debug, Default)]
pub struct CallSpan(Option<RunningCall>);

#[derive(Debug)]
struct RunningCall {
    exporter: Arc<Exporter>,
    span: Span,
    /// The start of the call on the monotonic clock and on the wall clock.
    clock: (Instant, SystemTime),
}

impl RunningCall {
    fn wall(&self, at: Instant) -> SystemTime {
        let (instant, wall) = self.clock;
        match at.checked_duration_since(instant) {
            Some(later) => wall + later,
            None => wall - instant.saturating_duration_since(at),
        }
    }

    /// Records a finished span within `parent`.
    fn finished(
        &self,
        name: &'static str,
        parent: &SpanContext,
        (from, to): (Instant, Instant),
        attributes: Vec<KeyValue>,
    ) -> SpanContext {
        // Audio that arrives faster than real time can date a voice before the call.
        let from = from.max(self.clock.0);
        let to = to.max(from);
        let context = Context::new().with_remote_span_context(parent.clone());
        let builder = self.exporter.tracer.span_builder(name).with_start_time(self.wall(from));
        let mut span = builder.with_attributes(attributes).start_with_context(&self.exporter.tracer, &context);
        span.end_with_timestamp(self.wall(to));
        span.span_context().clone()
    }
}

impl CallSpan {
    /// Records a finished turn: `over` is its start and end; `answered` is false if no answer came.
    pub fn turn(&self, over: (Instant, Instant), answered: bool, stages: &[(TtfpStage, Instant, Instant)]) {
        let Some(call) = &self.0 else { return };
        let answered = vec![KeyValue::new("repartee.turn.answered", answered)];
        let turn = call.finished("turn", call.span.span_context(), over, answered);
        for &(stage, from, to) in stages {
            call.finished(stage.label(), &turn, (from, to), Vec::new());
        }
    }

    /// Ends the call's span with the reason `why`, and the error if one ended the call.
    pub fn end(&mut self, why: &'static str, error: Option<CallError>) {
        let Some(mut call) = self.0.take() else { return };
        call.span.set_attribute(KeyValue::new("repartee.call.end", why));
        if let Some(CallError { code, is_server_error: ours }) = error {
            call.span.set_attribute(KeyValue::new("error.type", code));
            if ours {
                call.span.set_status(Status::error(why));
            }
        }
        let end = call.wall(now());
        call.span.end_with_timestamp(end);
    }
}

/// Reads the runtime's clock, which a test may pause.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
