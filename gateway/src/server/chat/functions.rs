//! Functions of a completion request, and the choice among them.

use repartee_engine_api::{AnswerForm, ModelInfo, Tool};
use repartee_protocol::{ErrorBody, ErrorKind};
use serde_json::Value;

/// Most functions of a request.
const MAX_TOOLS: usize = 128;
/// Longest name of a function, in bytes.
const MAX_NAME: usize = 128;

/// Functions that the model may call.
#[derive(Debug)]
pub(super) struct OfferedTools {
    pub functions: Vec<Tool>,
    /// The call that is demanded, if any.
    pub form: AnswerForm,
    /// True if there were functions, and the model calls none.
    pub is_dropped: bool,
}

/// Reads `tools` and `tool_choice`.
///
/// # Errors
///
/// If a field is wrong, or a call is demanded that the model cannot be held to.
pub(super) fn offered(tools: &[Value], choice: Option<&Value>, model: &ModelInfo) -> Result<OfferedTools, ErrorBody> {
    if tools.len() > MAX_TOOLS {
        return Err(refusal("tools", format!("there are at most {MAX_TOOLS} tools")));
    }
    let mut functions = Vec::with_capacity(tools.len());
    for (at, tool) in tools.iter().enumerate() {
        functions.push(function(tool, &format!("tools[{at}]"))?);
    }
    let form = form(choice.unwrap_or(&Value::Null), &functions, model)?;
    let is_dropped = !model.tools && !functions.is_empty();
    if is_dropped || choice.is_some_and(|choice| choice == "none") {
        functions.clear();
    }
    Ok(OfferedTools { functions, form, is_dropped })
}

fn function(tool: &Value, at: &str) -> Result<Tool, ErrorBody> {
    if tool["type"] != "function" {
        return Err(refusal(&format!("{at}.type"), "a tool is a `function`"));
    }
    let function = &tool["function"];
    let name = function["name"].as_str().filter(|name| (1..=MAX_NAME).contains(&name.len()));
    let Some(name) = name else {
        return Err(refusal(&format!("{at}.function.name"), format!("a function has a name of 1 to {MAX_NAME} bytes")));
    };
    let description = match &function["description"] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        _ => return Err(refusal(&format!("{at}.function.description"), "`description` is a string")),
    };
    let parameters = match &function["parameters"] {
        Value::Null => "{}".to_owned(),
        schema @ Value::Object(_) => schema.to_string(),
        _ => return Err(refusal(&format!("{at}.function.parameters"), "`parameters` is a JSON schema object")),
    };
    Ok(Tool { name: name.to_owned(), description, parameters })
}

/// Form that a choice holds the answer to.
fn form(choice: &Value, functions: &[Tool], model: &ModelInfo) -> Result<AnswerForm, ErrorBody> {
    if choice.is_null() || choice == "auto" || choice == "none" {
        return Ok(AnswerForm::Free);
    }
    let named = choice["function"]["name"].as_str().filter(|_| choice["type"] == "function");
    let message = if choice != "required" && named.is_none() {
        "a `tool_choice` is `auto`, `none`, `required` or a function by its name".to_owned()
    } else if !model.tools || !model.answer_forms {
        format!("`{}` cannot be forced to call a function: `tool_choice` is `auto` or `none`", model.name)
    } else if functions.is_empty() {
        "`tool_choice` demands a function call, and `tools` has no function".to_owned()
    } else if let Some(name) = named.filter(|name| !functions.iter().any(|known| known.name == *name)) {
        let name: String = name.chars().take(MAX_NAME).collect();
        format!("`tool_choice` demands a call of `{name}`, which is no function among the `tools`")
    } else {
        return Ok(named.map_or(AnswerForm::Calls, |name| AnswerForm::Call(name.to_owned())));
    };
    Err(refusal("tool_choice", message))
}

fn refusal(param: &str, message: impl Into<String>) -> ErrorBody {
    ErrorBody::invalid(ErrorKind::InvalidValue, message.into()).with_param(param)
}
