//! `GET /v1/usage`, and the same by its published path: tokens and sound of each key and model, by day; and the writing of
//! the ledger's file.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::State;
use repartee_protocol::{ErrorBody, ErrorKind};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::AppState;
use super::api_error::ApiError;
use super::caller::Caller;
use super::extract::UrlQuery;
use crate::usage::file;
use crate::usage::ledger::{DAY_S, UsageRow};

/// Time between two writes of the file.
const WRITE_EVERY: Duration = Duration::from_secs(60);
/// Days of a request without `start_time`.
const DAYS: u64 = 30;

/// Query of a request.
#[derive(Debug, Deserialize)]
pub(super) struct UsageQuery {
    /// Time within the first day, in seconds since 1970.
    start_time: Option<String>,
    /// Time after the last day, in seconds since 1970.
    end_time: Option<String>,
    /// Width of a bucket; `1d` is the only one.
    bucket_width: Option<String>,
}

/// Returns the usage of the caller's key; of all requests on a server without keys.
pub(super) async fn show(
    State(app): State<Arc<AppState>>,
    caller: Caller,
    UrlQuery(query): UrlQuery<UsageQuery>,
) -> Result<Json<Value>, ApiError> {
    page(&app, query, Some(&app.key_name(&caller)))
}

/// Returns the usage of all keys, on the operator's listener.
pub(super) async fn show_all(
    State(app): State<Arc<AppState>>,
    UrlQuery(query): UrlQuery<UsageQuery>,
) -> Result<Json<Value>, ApiError> {
    page(&app, query, None)
}

fn page(app: &AppState, query: UsageQuery, key: Option<&str>) -> Result<Json<Value>, ApiError> {
    let UsageQuery { start_time, end_time, bucket_width } = query;
    if bucket_width.is_some_and(|width| width != "1d") {
        return Err(invalid("bucket_width", "usage is kept by day: leave `bucket_width` out, or send 1d"));
    }
    let (start_time, end_time) = (seconds("start_time", start_time)?, seconds("end_time", end_time)?);
    let today = today();
    let end = end_time.map_or(today + 1, |end| end.div_ceil(DAY_S).min(today + 1));
    let first = start_time.map_or(end.saturating_sub(DAYS), |start| start / DAY_S);
    if first >= end && start_time.is_some() && end_time.is_some() {
        return Err(invalid("end_time", "`end_time` has to be after `start_time`"));
    }
    let ledger = app.budgets.settle();
    ledger.begin_day(today);
    let rows = ledger.rows(first, end, key);
    let buckets: Vec<Value> = rows.chunk_by(|one, next| one.day == next.day).map(bucket).collect();
    Ok(Json(json!({"object": "page", "data": buckets, "has_more": false, "next_page": null})))
}

/// Parses a time of the query.
fn seconds(name: &'static str, value: Option<String>) -> Result<Option<u64>, ApiError> {
    let parse =
        |text: String| text.parse().map_err(|_| invalid(name, &format!("`{name}` is whole seconds since 1970")));
    value.map(parse).transpose()
}

/// Bucket of the rows of one day.
fn bucket(rows: &[UsageRow]) -> Value {
    let start = rows.first().map_or(0, |row| row.day * DAY_S);
    let sound_s = |microseconds: u64| Duration::from_micros(microseconds).as_secs_f64();
    let result = |UsageRow { key, model, totals, .. }: &UsageRow| {
        json!({
            "object": "organization.usage.completions.result",
            "api_key_id": key,
            "model": model,
            "num_model_requests": totals.requests,
            "input_tokens": totals.input_text_tokens + totals.input_audio_tokens,
            "input_cached_tokens": totals.input_cached_tokens,
            "input_audio_tokens": totals.input_audio_tokens,
            "output_tokens": totals.output_text_tokens + totals.output_audio_tokens,
            "output_audio_tokens": totals.output_audio_tokens,
            "input_audio_seconds": sound_s(totals.input_sound_us),
            "output_audio_seconds": sound_s(totals.output_sound_us),
        })
    };
    let results: Vec<Value> = rows.iter().map(result).collect();
    json!({"object": "bucket", "start_time": start, "end_time": start + DAY_S, "results": results})
}

/// Writes the ledger's file each minute in which it has changed.
pub(super) async fn keep(app: Arc<AppState>) {
    let mut ticks = interval_at(Instant::now() + WRITE_EVERY, WRITE_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let app = app.clone();
        // A panic there is reported where it happens; the next minute tries again.
        let _ = tokio::task::spawn_blocking(move || save(&app)).await;
    }
}

/// Writes the ledger's file if it has changed.
pub(super) fn save(app: &AppState) {
    let ledger = app.budgets.settle();
    ledger.begin_day(today());
    let Some(path) = app.config.usage.file.as_deref() else { return };
    if let Err(error) = ledger.write_changes(|rows| file::write(path, rows)) {
        tracing::error!(path = %path.display(), %error, "usage.file cannot be written; the next minute tries again");
    }
}

/// The present day, in days since 1970.
pub(super) fn today() -> u64 {
    // Before 1970 a clock is wrong anyway.
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / DAY_S
}

fn invalid(name: &'static str, message: &str) -> ApiError {
    ApiError::bad_request(ErrorBody::invalid(ErrorKind::InvalidValue, message).with_param(name))
}
