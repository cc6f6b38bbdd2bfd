//! Demands on the form of an answer. Those that the model cannot be held to are refused and not ignored: a program that
//! reads another form would break.

use repartee_engine_api::{AnswerForm, JsonSchema, ModelInfo};
use repartee_protocol::{ErrorBody, ErrorKind};
use serde_json::Value;

/// Most bytes of a schema.
const MAX_SCHEMA: usize = 64 << 10;
/// Most bytes of the name of a schema.
const MAX_NAME: usize = 64;

/// Reads the form that an answer is held to; refuses one that the model is not held to.
pub(super) fn form(response_format: Option<&Value>, model: &ModelInfo) -> Result<AnswerForm, ErrorBody> {
    let Some(format) = response_format.filter(|format| !format.is_null()) else { return Ok(AnswerForm::Free) };
    let message = match format.get("type").and_then(Value::as_str) {
        Some("text") => return Ok(AnswerForm::Free),
        Some(kind @ ("json_object" | "json_schema")) if !model.answer_forms => format!(
            "`{}` cannot be held to JSON: `{kind}` is served by language models that write text, `text` is served here",
            model.name
        ),
        Some("json_object") => return Ok(AnswerForm::JsonObject),
        Some("json_schema") => return schema(format.get("json_schema").unwrap_or(&Value::Null)),
        Some(_) | None => {
            "a response format is an object of the type `text`, `json_object` or `json_schema`".to_owned()
        }
    };
    Err(refusal("response_format.type", message))
}

/// Reads a schema with its name.
fn schema(fields: &Value) -> Result<AnswerForm, ErrorBody> {
    let refuse =
        |field: &str, message: &str| Err(refusal(&format!("response_format.json_schema.{field}"), message.to_owned()));
    let name = match fields.get("name").and_then(Value::as_str) {
        Some(name) if (1..=MAX_NAME).contains(&name.len()) => name.to_owned(),
        _ => return refuse("name", "a schema has a name of 1 to 64 bytes"),
    };
    let description = match fields.get("description") {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) if text.len() <= MAX_SCHEMA => text.clone(),
        Some(_) => return refuse("description", "a description is a text of at most 64 KiB"),
    };
    let strict = match fields.get("strict") {
        None | Some(Value::Null) => None,
        Some(Value::Bool(strict)) => Some(*strict),
        Some(_) => return refuse("strict", "`strict` is true or false"),
    };
    let schema = match fields.get("schema") {
        Some(schema @ Value::Object(_)) => schema.to_string(),
        _ => return refuse("schema", "a schema is a JSON schema object"),
    };
    if schema.len() > MAX_SCHEMA {
        return refuse("schema", "a schema has at most 64 KiB: leave descriptions out, or split it");
    }
    Ok(AnswerForm::JsonSchema(JsonSchema { name, description, schema, strict }))
}

fn refusal(param: &str, message: String) -> ErrorBody {
    ErrorBody::invalid(ErrorKind::InvalidValue, message).with_param(param)
}
