//! Demands on the form of an answer, which are refused and not ignored: a program that reads another form would break.

use repartee_protocol::{ErrorBody, ErrorKind};
use serde_json::Value;

/// Refuses a demand for a function call, or for JSON.
pub(super) fn check(tool_choice: Option<&Value>, response_format: Option<&Value>) -> Result<(), ErrorBody> {
    if tool_choice.is_some_and(|choice| !choice.is_null() && choice != "auto" && choice != "none") {
        let message =
            "completions call no functions: a tool_choice is `auto` or `none`; use the realtime API for functions";
        return Err(refusal("tool_choice", message.to_owned()));
    }
    let Some(format) = response_format.filter(|format| !format.is_null()) else { return Ok(()) };
    let message = match format.get("type").and_then(Value::as_str) {
        Some("text") => return Ok(()),
        Some(kind @ ("json_object" | "json_schema")) => {
            format!("answers are text and are not held to JSON: `{kind}` is not served, `text` is")
        }
        Some(_) | None => "a response format is an object of the type `text`".to_owned(),
    };
    Err(refusal("response_format.type", message))
}

fn refusal(param: &str, message: String) -> ErrorBody {
    ErrorBody::invalid(ErrorKind::InvalidValue, message).with_param(param)
}
