//! Function tools: parses the client's definitions into the engine's.

use repartee_engine_api::{AnswerForm, ModelInfo, Tool};
use repartee_protocol::{ErrorBody, ErrorKind};
use serde_json::Value;

/// Maximum number of tools of a session or a response.
const MAX_TOOLS: usize = 128;
/// Maximum length of a function name, in bytes.
const MAX_NAME: usize = 128;

/// Warning about the functions of a client that a model without functions does not get.
pub(super) const DROPPED: &str = "tools dropped: this model calls no functions";

/// True if a tool is a function, the only supported type and the default if `type` is absent.
pub(super) fn is_function(tool: &Value) -> bool {
    tool.get("type").is_none_or(|kind| kind == "function")
}

/// Parses the functions among `tools`; `root` is the prefix of the path of an invalid field.
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
    let description = match fields.get("description") {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(_) => return Err(refuse(&format!("{at}.description"), "`description` is a string".into())),
    };
    let parameters = match fields.get("parameters") {
        None | Some(Value::Null) => "{}".to_owned(),
        Some(schema @ Value::Object(_)) => schema.to_string(),
        Some(_) => return Err(refuse(&format!("{at}.parameters"), "`parameters` is a JSON schema object".into())),
    };
    // Behind the fields of a wrong type: a missing name says nothing of them.
    let name = fields.get("name").and_then(Value::as_str).filter(|name| (1..=MAX_NAME).contains(&name.len()));
    let Some(name) = name else {
        return Err(refuse(&format!("{at}.name"), format!("a function has a name of 1 to {MAX_NAME} bytes")));
    };
    Ok(Tool { name: name.to_owned(), description, parameters })
}

/// Rejects an unsupported `tool_choice`: not every model can be forced to call a function. `tools` are those that it chooses
/// from, `param` is the path of the field.
pub(super) fn check_choice(choice: &Value, tools: &[Value], model: &ModelInfo, param: &str) -> Result<(), ErrorBody> {
    if choice == "auto" || choice == "none" {
        return Ok(());
    }
    let named = choice.get("name").and_then(Value::as_str).filter(|_| choice["type"] == "function");
    let known = |name: &str| tools.iter().any(|tool| is_function(tool) && tool["name"] == name);
    let message = if choice != "required" && named.is_none() {
        "a `tool_choice` is `auto`, `none`, `required` or a function by its name".to_owned()
    } else if !model.tools {
        format!("`{}` calls no functions: `tool_choice` is `auto` or `none`", model.name)
    } else if !tools.iter().any(is_function) {
        "`tool_choice` demands a function call, and `tools` has no function".to_owned()
    } else if let Some(name) = named.filter(|name| !known(name)) {
        let name: String = name.chars().take(MAX_NAME).collect();
        format!("`tool_choice` demands a call of `{name}`, which is no function among the `tools`")
    } else if model.answer_forms {
        return Ok(());
    } else {
        format!(
            "`{}` cannot be forced to call a function: `tool_choice` is `auto` or `none`; ask for the call in the \
             instructions",
            model.name
        )
    };
    Err(ErrorBody::invalid(ErrorKind::InvalidValue, message).with_param(param))
}

/// Form that a `tool_choice` holds answers to.
pub(super) fn form(choice: &Value) -> AnswerForm {
    match choice["name"].as_str() {
        Some(name) => AnswerForm::Call(name.to_owned()),
        None if choice == "required" => AnswerForm::Calls,
        None => AnswerForm::Free,
    }
}

/// Creates the error for the result of an unknown function call.
pub(super) fn unknown_call(call_id: &str) -> ErrorBody {
    let message = format!("Tool call ID '{call_id}' not found in conversation.");
    ErrorBody::invalid(ErrorKind::ToolCallUnknown, message)
}

/// Returns the functions that `tool_choice` allows.
pub(super) fn allowed(tools: Vec<Tool>, choice: &Value) -> Vec<Tool> {
    if choice == "none" { Vec::new() } else { tools }
}
