//! Model input of a request that replaces the conversation, in the model's reading order.

use repartee_engine_api::ResponseInput;
use repartee_protocol::ErrorBody;
use repartee_protocol::item::Item;
use repartee_protocol::response::InputItem;

use super::RealtimeSession;
use super::create_response::refuse;
use super::tools::unknown_call;

/// Maximum number of items in a request's input.
const MAX_INPUT: usize = 1_024;

/// Input item in its engine form.
#[derive(Debug, Default)]
struct Part {
    inputs: Vec<ResponseInput>,
    /// Id of the call; set for a function call only.
    call_id: Option<String>,
    /// Results of the call. The model reads them directly after it, independent of their position in the request.
    results: Vec<ResponseInput>,
}

impl RealtimeSession {
    /// Converts `items` to the engine's form. Adds a warning for each part that the model cannot read.
    pub(super) fn request_input(
        &mut self,
        items: &[InputItem],
        warnings: &mut Vec<String>,
    ) -> Result<Vec<ResponseInput>, ErrorBody> {
        if items.len() > MAX_INPUT {
            return refuse("input", format!("a response's input has at most {MAX_INPUT} items"));
        }
        let mut parts: Vec<Part> = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let at = format!("response.input[{index}]");
            let unknown = || refuse(&format!("input[{index}].id"), "there is no item with this id");
            let own = match item {
                InputItem::ItemReference { .. } => None,
                InputItem::Message(message) => Some(Item::Message(message.clone())),
                InputItem::FunctionCall(call) => Some(Item::FunctionCall(call.clone())),
                InputItem::FunctionCallOutput(output) => Some(Item::FunctionCallOutput(output.clone())),
            };
            let (item, inputs) = match (&own, item) {
                (Some(item), _) => {
                    let contents = self.engine_content(item, &at, warnings)?;
                    (item, contents.into_iter().map(ResponseInput::Content).collect())
                }
                (None, InputItem::ItemReference { id }) => {
                    let Some(entry) = self.history.find(id) else { return unknown() };
                    (&entry.item, entry.engine.iter().copied().map(ResponseInput::Item).collect())
                }
                (None, _) => return unknown(),
            };
            match item {
                Item::FunctionCallOutput(output) => {
                    let call = parts.iter_mut().rev().find(|part| part.call_id.as_ref() == Some(&output.call_id));
                    match call {
                        Some(call) => call.results.extend::<Vec<_>>(inputs),
                        // The call is in the conversation.
                        None if own.is_none() => parts.push(Part { inputs, ..Part::default() }),
                        None => return Err(unknown_call(&output.call_id).with_param(format!("{at}.call_id"))),
                    }
                }
                Item::FunctionCall(call) => {
                    parts.push(Part { inputs, call_id: call.call_id.clone(), ..Part::default() });
                }
                Item::Message(_) => parts.push(Part { inputs, ..Part::default() }),
            }
        }
        Ok(parts.into_iter().flat_map(|part| part.inputs.into_iter().chain(part.results)).collect())
    }
}
