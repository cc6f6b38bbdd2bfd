//! `GET /v1/models`: the served model.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use repartee_protocol::{ErrorBody, ErrorKind};
use serde::Serialize;

use super::App;
use super::api_error::ApiError;

/// A model on the wire.
#[derive(Debug, Serialize)]
pub(super) struct Model {
    id: String,
    object: &'static str,
    /// When this server was started, in seconds since 1970: checkpoints hold no date.
    created: u64,
    owned_by: &'static str,
}

/// The list of models on the wire.
#[derive(Debug, Serialize)]
pub(super) struct List {
    object: &'static str,
    data: Vec<Model>,
}

fn served(app: &App) -> Model {
    Model { id: app.engine.info().name.clone(), object: "model", created: app.started, owned_by: "repartee" }
}

pub(super) async fn list(State(app): State<Arc<App>>) -> Json<List> {
    Json(List { object: "list", data: vec![served(&app)] })
}

pub(super) async fn show(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<Json<Model>, ApiError> {
    let model = served(&app);
    if id == model.id {
        return Ok(Json(model));
    }
    let message = format!("this server has one model, `{}`; calls that ask for another are answered by it", model.id);
    Err(ApiError::new(StatusCode::NOT_FOUND, ErrorBody::invalid(ErrorKind::UnknownModel, message).at("model")))
}
