//! Function tools: what clients offer, as the engine wants it.

use repartee_engine_api::Tool;
use repartee_protocol::{ErrorBody, ErrorKind};
use serde_json::Value;

/// Most functions that a session or a response may offer.
const MAX_TOOLS: usize = 128;
/// The longest name of a function, in bytes.
const MAX_NAME: usize = 128;

/// Whether a tool is a function: the only kind that is served, and the default where `type` is absent.
pub(super) fn is_function(tool: &Value) -> bool {
    tool.get("type").is_none_or(|kind| kind == "function")
}

/// The functions among `tools` for the engine; `root` is put before the path of a wrong field.
pub(super) fn functions(tools: &[Value], root: &str) -> Result<Vec<Tool>, ErrorBody> {
    if tools.len() > MAX_TOOLS {
        let message = format!("there are at most {MAX_TOOLS} tools");
        return Err(ErrorBody::invalid(ErrorKind::InvalidValue, message).with_param(root));
    }
    let functions = tools.iter().enumerate().filter(|(_, tool)| is_function(tool));
    functions.map(|(index, tool)| function(tool, &format!("{root}[{index}]"))).collect()
}

fn function(tool: &Value, at: &str) -> Result<Tool, ErrorBody> {
    let refuse = |field: &str, message: String| ErrorBody::invalid(ErrorKind::InvalidValue, message).with_param(field);
    let fields = tool.as_object().ok_or_else(|| refuse(at, "a tool is an object".into()))?;
    let name = fields.get("name").and_then(Value::as_str).filter(|name| (1..=MAX_NAME).contains(&name.len()));
    let Some(name) = name else {
        return Err(refuse(&format!("{at}.name"), format!("a function has a name of 1 to {MAX_NAME} bytes")));
    };
    let description = match fields.get("description") {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(_) => return Err(refuse(&format!("{at}.description"), "a description is a text".into())),
    };
    let parameters = match fields.get("parameters") {
        None | Some(Value::Null) => "{}".to_owned(),
        Some(schema @ Value::Object(_)) => schema.to_string(),
        Some(_) => return Err(refuse(&format!("{at}.parameters"), "parameters are a JSON schema".into())),
    };
    Ok(Tool { name: name.to_owned(), description, parameters })
}

/// Refuses a `tool_choice` that is not served: a model cannot be made to call a function. `param` is the field's path.
pub(super) fn check_choice(choice: &Value, param: &str) -> Result<(), ErrorBody> {
    if choice == "auto" || choice == "none" {
        return Ok(());
    }
    let message = "this model cannot be made to call a function: a tool_choice is `auto` or `none`; ask for the call in the \
                   instructions";
    Err(ErrorBody::invalid(ErrorKind::InvalidValue, message).with_param(param))
}

/// The error for the result of a function call that is not there.
pub(super) fn unknown_call(call_id: &str) -> ErrorBody {
    let message = format!("Tool call ID '{call_id}' not found in conversation.");
    ErrorBody::invalid(ErrorKind::ToolCallUnknown, message)
}

/// The functions that `tool_choice` allows.
pub(super) fn allowed(tools: Vec<Tool>, choice: &Value) -> Vec<Tool> {
    if choice == "none" { Vec::new() } else { tools }
}
