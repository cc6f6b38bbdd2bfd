//! `conversation.item.*`: creation, deletion, retrieval and truncation of items.

use repartee_engine_api::{Command, InsertAt, ItemId, MessageContent, Role};
use repartee_media::tempo::heard;
use repartee_protocol::extension::EventExtension;
use repartee_protocol::item::{
    Item, ItemAdded, ItemContent, ItemCreate, ItemRef, ItemRetrieved, ItemRole, ItemStatus, ItemTruncate,
    ItemTruncated, Message,
};
use repartee_protocol::response::StatusReason;
use repartee_protocol::session::{AudioFormat, Modality};
use repartee_protocol::{ErrorBody, ErrorKind, ServerEvent};

use super::encodable::check_text;
use super::history::{DetachedCall, HistoryEntry, held_bytes};
use super::item_audio::ItemAudio;
use super::tools::unknown_call;
use super::{Effect, RealtimeSession, audio};

/// Maximum length of an item id that a client chooses, in bytes.
const MAX_ID: usize = 128;
/// Maximum position in an item whose duration is unknown, in ms.
const MAX_UNKNOWN_MS: u64 = 3_600_000;
/// Maximum number of warnings about one item.
const MAX_WARNINGS: usize = 32;

impl RealtimeSession {
    /// Announces a complete item to the client, with `warnings`.
    pub(super) fn announce_item(&mut self, id: &str, warnings: Vec<String>) {
        if let Some(done) = self.history.added(id) {
            let warnings = [warnings, done.repartee.warnings.clone()].concat();
            self.send(ServerEvent::ItemAdded(ItemAdded { repartee: EventExtension { warnings }, ..done.clone() }));
            self.send(ServerEvent::ItemDone(done));
        }
    }

    /// Adds an item of a turn or response after `previous`, or at the end. Deletes the oldest items while the conversation
    /// exceeds its size limit.
    pub(super) fn add_item(&mut self, entry: HistoryEntry, previous: Option<&str>) {
        while !self.history.has_capacity(held_bytes(&entry.item))
            && let Some(oldest) = self.history.first_id().map(str::to_owned)
            && let Some(oldest) = self.history.remove(&oldest)
        {
            self.delete(oldest);
        }
        let index = previous.and_then(|previous| self.history.index_after(Some(previous)));
        match index {
            Some(index) => self.history.insert(index, entry),
            None => self.history.push(entry),
        }
    }

    fn delete(&mut self, entry: HistoryEntry) {
        self.cancel_transcript(&entry.id);
        if let Some(item) = entry.within {
            self.delete_call_within(item);
        } else {
            for item in entry.engine {
                self.delete_in_engine(item);
            }
        }
        self.send(ServerEvent::ItemDeleted(ItemRef { item_id: entry.id }));
    }

    /// Deletes an item from the engine; function calls of the same response stay.
    pub(super) fn delete_in_engine(&mut self, item: ItemId) {
        self.command(Command::Delete { item });
        self.keep_calls(item, None);
    }

    /// Deletes a function call from the engine item `item` of its response, after its removal from the history; the response's
    /// message and other calls stay.
    fn delete_call_within(&mut self, item: ItemId) {
        match self.history.text_of(item).filter(|text| !text.is_empty()) {
            Some(text) => self.truncate_in_engine(item, text),
            None => self.delete_in_engine(item),
        }
    }

    /// Replaces the text of an engine item; function calls of the same response stay.
    pub(super) fn truncate_in_engine(&mut self, item: ItemId, text: String) {
        let left = (!text.is_empty()).then_some(item);
        self.command(Command::Truncate { item, text });
        self.keep_calls(item, left);
    }

    /// Reinserts the function calls of the engine item `item` as separate engine items, after `left` if that remains. On the wire
    /// they are separate items that outlive the message, and their results may already exist.
    fn keep_calls(&mut self, item: ItemId, left: Option<ItemId>) {
        let (calls, instead) = self.history.take_calls_within(item);
        let mut place = left.map_or(instead, InsertAt::After);
        for DetachedCall { id, name, arguments } in calls {
            let item = self.number();
            self.command(Command::Insert { item, place, content: MessageContent::ToolCall { name, arguments } });
            self.history.change(&id, |entry| entry.engine = vec![item]);
            if place != InsertAt::End {
                place = InsertAt::After(item);
            }
        }
    }

    pub(super) fn create_item(&mut self, create: ItemCreate) -> Result<(), ErrorBody> {
        let mut item = create.item;
        let mut warnings = Vec::new();
        let contents = self.engine_content(&item, "item", &mut warnings)?;
        let Some(index) = self.history.index_after(create.previous_item_id.as_deref()) else {
            let message = "there is no item with this id to insert after";
            return Err(ErrorBody::invalid(ErrorKind::PreviousUnknown, message).with_param("previous_item_id"));
        };
        if !self.history.has_capacity(held_bytes(&item)) {
            let message = "the conversation is full: delete items first";
            return Err(ErrorBody::invalid(ErrorKind::ConversationTooLarge, message));
        }
        if let Item::FunctionCallOutput(output) = &item
            && self.history.call(&output.call_id).is_none()
        {
            return Err(unknown_call(&output.call_id).with_param("item.call_id"));
        }
        let id = self.item_id(&mut item)?;
        if !warnings.is_empty() {
            self.effects.push(Effect::Unsupported("an input_image"));
        }
        remove_media(&mut item);
        *item.status_mut() = ItemStatus::Completed;
        if let Item::FunctionCall(call) = &mut item
            && call.call_id.is_none()
        {
            call.call_id = Some(self.new_call_id());
        }
        // The model reads a result directly after its call, independent of its position on the wire.
        let after = match &item {
            Item::FunctionCallOutput(output) => self.history.result_position(&output.call_id),
            Item::Message(_) | Item::FunctionCall(_) => None,
        };
        let (mut place, mut engine) = (after.unwrap_or_else(|| self.history.insert_position(index)), Vec::new());
        for content in contents {
            let item = self.number();
            self.command(Command::Insert { item, place, content });
            if place != InsertAt::End {
                place = InsertAt::After(item);
            }
            engine.push(item);
        }
        self.history.insert(index, HistoryEntry::new(id.clone(), item, engine));
        self.announce_item(&id, warnings);
        Ok(())
    }

    /// Converts an item's content to the engine's form. `at` is the prefix of the path of an invalid field. Adds a warning for
    /// each part that the model cannot read.
    pub(super) fn engine_content(
        &mut self,
        item: &Item,
        at: &str,
        warnings: &mut Vec<String>,
    ) -> Result<Vec<MessageContent>, ErrorBody> {
        let (format, rate) = (self.config.audio.input.format, self.setup.model.input_rate);
        if let Some(index) = first_audio_part(item).filter(|_| !self.setup.model.audio_input) {
            let message = "this model takes no audio: send text";
            return Err(
                ErrorBody::invalid(ErrorKind::InvalidValue, message).with_param(format!("{at}.content[{index}].audio"))
            );
        }
        Ok(match item {
            Item::Message(message) => {
                let contents = parts(message, (format, rate), &mut self.item_audio, at, warnings)?;
                for content in &contents {
                    if let MessageContent::Text { text, .. } = content {
                        check_text(text, &self.setup.model, || format!("{at}.content"))?;
                    }
                }
                contents
            }
            // A model without tool support cannot read them.
            Item::FunctionCall(_) | Item::FunctionCallOutput(_) if !self.setup.model.tools => Vec::new(),
            Item::FunctionCall(call) => {
                check_text(&call.arguments, &self.setup.model, || format!("{at}.arguments"))?;
                vec![MessageContent::ToolCall { name: call.name.clone(), arguments: call.arguments.clone() }]
            }
            Item::FunctionCallOutput(output) => {
                check_text(&output.output, &self.setup.model, || format!("{at}.output"))?;
                vec![MessageContent::ToolResult(output.output.clone())]
            }
        })
    }

    /// Takes the item's id from the client, or generates one.
    fn item_id(&mut self, item: &mut Item) -> Result<String, ErrorBody> {
        let Some(id) = item.id_mut().take() else { return Ok(self.new_item_id()) };
        if id.is_empty() || id.len() > MAX_ID || id == "root" {
            let message = format!("an item's id has 1 to {MAX_ID} bytes, and is not `root`");
            return Err(ErrorBody::invalid(ErrorKind::InvalidValue, message).with_param("item.id"));
        }
        let announced = self.input.turn().is_some_and(|turn| turn.item_id == id);
        if announced || self.history.find(&id).is_some() {
            let message = format!("an item with the id `{id}` exists already");
            return Err(ErrorBody::invalid(ErrorKind::DuplicateItem, message).with_param("item.id"));
        }
        Ok(id)
    }

    pub(super) fn delete_item(&mut self, item: ItemRef) -> Result<(), ErrorBody> {
        let unknown =
            || ErrorBody::invalid(ErrorKind::DeleteUnknown, "there is no item with this id").with_param("item_id");
        let entry = self.history.remove(&item.item_id).ok_or_else(unknown)?;
        let response = self.responses.iter_mut().find(|response| response.owns(&item.item_id));
        match response {
            // The engine's item is deleted at the end of the response.
            Some(response) => {
                let engine_id = response.engine_id;
                response.deleted = true;
                // The item ends here: what was asked of it before is answered first.
                let is_message = response.message().is_some_and(|(_, message)| message.id == item.item_id);
                let asked = if is_message { std::mem::take(&mut response.truncations) } else { Vec::new() };
                let kept_ms = response.truncate_at.unwrap_or(0);
                asked.into_iter().for_each(|asked| self.announce_truncation(&item.item_id, kept_ms, Some(asked)));
                self.stop_response(engine_id, StatusReason::ClientCancelled);
                self.send(ServerEvent::ItemDeleted(item));
            }
            None => self.delete(entry),
        }
        Ok(())
    }

    pub(super) fn retrieve_item(&mut self, item: &ItemRef) -> Result<(), ErrorBody> {
        let entry = self.history.find(&item.item_id).ok_or_else(|| {
            ErrorBody::invalid(ErrorKind::RetrieveUnknown, "there is no item with this id").with_param("item_id")
        })?;
        let (item, repartee) = entry.repeated();
        self.send(ServerEvent::ItemRetrieved(ItemRetrieved { item, repartee }));
        Ok(())
    }

    /// Truncates an item to the heard part that the client reports. Positions beyond the end are clamped, with a warning.
    pub(super) fn truncate_item(&mut self, truncate: &ItemTruncate) -> Result<(), ErrorBody> {
        let entry = self.history.find(&truncate.item_id);
        let spoken = entry.is_some_and(|entry| {
            let making =
                self.responses.iter().any(|response| response.owns(&entry.id) && response.modality == Modality::Audio);
            (making && matches!(entry.item, Item::Message(_))) || entry.transcript().is_some()
        });
        if !spoken {
            let message = "there is no item with audio of this id";
            return Err(ErrorBody::invalid(ErrorKind::TruncateUnknown, message).with_param("item_id"));
        }
        if truncate.content_index != 0 {
            let message = "an item has one content part, with the index 0";
            return Err(ErrorBody::invalid(ErrorKind::InvalidValue, message).with_param("content_index"));
        }
        let rate = self.setup.model.output_rate;
        // With a playout clock, playback of the item stops now.
        let heard_ms = self.stop_playing(&truncate.item_id);
        let kept_ms = truncate.audio_end_ms.min(heard_ms.unwrap_or(u64::MAX));
        match self.responses.iter_mut().find(|response| response.owns(&truncate.item_id)) {
            // An active response is stopped now, and truncated when the engine has stopped.
            Some(response) => {
                let engine_id = response.engine_id;
                let earlier = response.truncate_at.unwrap_or_else(|| response.audio_ms(rate));
                response.truncate_at = Some(kept_ms.min(earlier));
                response.truncations.push(truncate.audio_end_ms);
                self.stop_response(engine_id, StatusReason::ClientCancelled);
            }
            None => {
                let complete = self.history.find(&truncate.item_id).is_some_and(HistoryEntry::has_all_audio);
                self.truncate_to_heard(&truncate.item_id, kept_ms, &[truncate.audio_end_ms], complete);
            }
        }
        self.clear_client_playback();
        Ok(())
    }

    /// Truncates a spoken item to the words heard in `heard_ms`. `complete`: all audio of the item was generated. `requested`:
    /// the positions of the client, each of which gets an event.
    pub(super) fn truncate_to_heard(&mut self, id: &str, heard_ms: u64, requested: &[u64], complete: bool) {
        let Some(entry) = self.history.find(id) else { return };
        let Some(text) = entry.transcript() else { return };
        // The duration of an item from an earlier conversation is unknown: the speech rate decides.
        let known = entry.audio_ms > 0 || entry.truncated;
        let heard_ms = heard_ms.min(if known { entry.audio_ms } else { MAX_UNKNOWN_MS });
        let kept = match heard_ms {
            0 => String::new(),
            _ => {
                let [position, whole] = [heard_ms, entry.audio_ms].map(|ms| heard(entry.speed, ms));
                self.estimator.heard_prefix(text, position, whole, complete && known).to_owned()
            }
        };
        let engine = entry.engine.clone();
        self.history.change(id, |entry| {
            if let Item::Message(message) = &mut entry.item {
                message.content = vec![ItemContent::OutputAudio { transcript: Some(kept.clone()) }];
            }
            (entry.audio_ms, entry.truncated) = (heard_ms, true);
            if kept.is_empty() {
                // The engine drops an item without text.
                entry.engine.clear();
            }
        });
        for item in engine {
            self.truncate_in_engine(item, kept.clone());
        }
        if requested.is_empty() {
            self.announce_truncation(id, heard_ms, None);
        }
        requested.iter().for_each(|requested| self.announce_truncation(id, heard_ms, Some(*requested)));
    }

    /// Sends `conversation.item.truncated`, with a warning if the client asked for more than is kept.
    fn announce_truncation(&mut self, id: &str, heard_ms: u64, requested: Option<u64>) {
        let mut repartee = EventExtension::default();
        if let Some(requested) = requested.filter(|requested| *requested > heard_ms) {
            repartee.warnings.push(format!("audio_end_ms: {requested} is beyond what was played, {heard_ms} is kept"));
        }
        let item_id = id.to_owned();
        self.send(ServerEvent::ItemTruncated(ItemTruncated {
            item_id,
            content_index: 0,
            audio_end_ms: heard_ms,
            repartee,
        }));
    }
}

/// Returns the index of the first audio part of an item.
fn first_audio_part(item: &Item) -> Option<usize> {
    let Item::Message(message) = item else { return None };
    message.content.iter().position(|part| matches!(part, ItemContent::InputAudio { audio: Some(_), .. }))
}

/// Converts a message's parts to the engine's form, its audio from `format` to `rate` unless it is decoded. Adjacent texts are joined; empty ones are dropped.
fn parts(
    message: &Message,
    (format, rate): (AudioFormat, u32),
    decoded: &mut ItemAudio,
    at: &str,
    warnings: &mut Vec<String>,
) -> Result<Vec<MessageContent>, ErrorBody> {
    let role = match message.role {
        ItemRole::System => Role::System,
        ItemRole::User => Role::User,
        ItemRole::Assistant => Role::Assistant,
    };
    let mut contents = Vec::new();
    for (index, part) in message.content.iter().enumerate() {
        let at = format!("{at}.content[{index}]");
        let text = match (message.role, part) {
            (ItemRole::System | ItemRole::User, ItemContent::InputText { text }) => text,
            (ItemRole::Assistant, ItemContent::OutputText { text }) => text,
            // A spoken response from an earlier conversation.
            (ItemRole::Assistant, ItemContent::OutputAudio { transcript: Some(text) }) => text,
            (ItemRole::User, ItemContent::InputAudio { audio: Some(audio), .. }) => {
                let samples = decoded.next().unwrap_or_else(|| audio::item_audio(audio, format, rate, &mut || true));
                let samples = samples.map_err(|error| error.with_param(format!("{at}.audio")))?;
                contents.push(MessageContent::Audio(samples));
                continue;
            }
            (ItemRole::User, ItemContent::InputImage { .. }) => {
                if warnings.len() < MAX_WARNINGS {
                    warnings.push(format!("{at}: this model does not see images, and answers without this one"));
                }
                continue;
            }
            // Without audio, the transcript replaces it.
            (ItemRole::User, ItemContent::InputAudio { transcript: Some(text), .. }) => text,
            _ => {
                let message = "a message of this role cannot hold this kind of content, or it is empty";
                return Err(ErrorBody::invalid(ErrorKind::InvalidValue, message).with_param(format!("{at}.type")));
            }
        };
        match contents.last_mut() {
            Some(MessageContent::Text { text: before, .. }) => before.push_str(text),
            _ if text.is_empty() => {}
            _ => contents.push(MessageContent::Text { role, text: text.clone() }),
        }
    }
    Ok(contents)
}

/// Removes the bytes of audio and images: the server never sends them back.
fn remove_media(item: &mut Item) {
    let Item::Message(message) = item else { return };
    for part in &mut message.content {
        match part {
            ItemContent::InputAudio { audio: bytes, .. } | ItemContent::InputImage { image_url: bytes, .. } => {
                *bytes = None
            }
            ItemContent::InputText { .. } | ItemContent::OutputText { .. } | ItemContent::OutputAudio { .. } => {}
        }
    }
}
