//! Prompt template out of a checkpoint's own chat template, for models of text.
//!
//! Contents keep their ids: those that the session encoded, and those that the model generated. The template decides
//! everything around them. It is rendered anew for each prompt; the session keeps the common prefix.
//!
//! - `repair`: conversations in the form that strict templates ask for
//! - `reasoning`: the marks around reasoning text
//! - `tools`: the texts of tools, of calls and of results, out of the template
//! - `structured`: tools, calls and results that the template is given as such

mod reasoning;
mod repair;
mod structured;
mod tools;

use std::sync::Arc;
use std::time::SystemTime;

use repartee_engine_api::Role;
use repartee_text::template::find::{self, PublishedTemplates, TemplateText};
use repartee_text::template::{ChatInput, ChatMessage, ChatTemplate, ChatValue, CivilTime, Prompt, TemplateError};
use repartee_text::tokenizer::EncodedPiece;

use self::repair::{BETWEEN, PromptMessage, repaired};
use self::structured::{StructuredPrompt, StructuredTools};
use self::tools::JinjaTools;
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::elements::{AudioRows, Element, Message, MessageKind};
use crate::model::{PromptTemplate, ReasoningTokens, ToolTemplate};
use crate::text::Tokenizer;

/// Metadata key of the template in a GGUF file.
const GGUF_KEY: &str = "tokenizer.chat_template";
/// Metadata key of the template for conversations with tools, if it is another one.
const GGUF_TOOL_USE_KEY: &str = "tokenizer.chat_template.tool_use";
/// Files with the variables `bos_token` and the like; the first one counts.
const TOKEN_FILES: [&str; 2] = [find::TOKENIZER_CONFIG, "special_tokens_map.json"];

/// Chat template of a checkpoint, with its tokenizer.
#[derive(Debug)]
pub struct JinjaTemplate {
    template: Arc<ChatTemplate>,
    tokenizer: Tokenizer,
    /// Ids of [`BETWEEN`].
    between: Vec<u32>,
    /// `None` if the template has no tools.
    tools: Option<TemplateTools>,
    /// `None` if the template knows no marks around reasoning text.
    reasoning: Option<ReasoningTokens>,
}

/// Tools of a template.
#[derive(Debug)]
enum TemplateTools {
    /// Texts in the place of messages' contents.
    InTexts(JinjaTools),
    /// The template is given them as such.
    Structured(StructuredTools),
}

impl JinjaTemplate {
    /// Reads the chat template of a checkpoint; `None` if it has none.
    ///
    /// # Errors
    ///
    /// If a file is wrong, the template is not valid, or it writes not even a prompt of one short message.
    pub fn load(checkpoint: &Checkpoint, tokenizer: &Tokenizer) -> Result<Option<Self>, CheckpointError> {
        if let Some(gguf) = checkpoint.gguf() {
            let Some(text) = gguf.text(GGUF_KEY) else { return Ok(None) };
            let vocabulary = checkpoint.gguf_vocabulary()?;
            let variables = vocabulary.map(|vocabulary| vocabulary.template_variables()).unwrap_or_default();
            let key = |key: &str| format!("{}, `{key}`", gguf.file());
            let tool_use = gguf.text(GGUF_TOOL_USE_KEY);
            let tool_use = tool_use.map(|text| TemplateText { file: key(GGUF_TOOL_USE_KEY), text: text.to_owned() });
            let published = PublishedTemplates { tool_use, ..PublishedTemplates::given(key(GGUF_KEY), text) };
            return Self::tried(&published, variables, tokenizer).map(Some).map_err(wrong_template);
        }
        let bytes = |file: &str| match checkpoint.has_file(file) {
            true => checkpoint.bytes(file).map(|bytes| Some(bytes.into_owned())),
            false => Ok(None),
        };
        let mut read = |file: &str| bytes(file).map_err(FindError::Checkpoint);
        let found = find::find(&mut read, &|file| checkpoint.label(file)).map_err(FindError::checkpoint_error)?;
        let Some(published) = found else { return Ok(None) };
        let mut variables = Vec::new();
        for file in TOKEN_FILES {
            if let Some(bytes) = bytes(file)?
                && variables.is_empty()
            {
                variables = find::token_variables(&bytes, &checkpoint.label(file)).map_err(wrong_template)?;
            }
        }
        Self::tried(&published, variables, tokenizer).map(Some).map_err(wrong_template)
    }

    /// Compiles the templates, and renders one short message: a template that never ends, or fails on everything, is
    /// refused before anybody talks to the model.
    fn tried(
        published: &PublishedTemplates,
        variables: Vec<(String, String)>,
        tokenizer: &Tokenizer,
    ) -> Result<Self, TemplateError> {
        let made = Self::new(published, variables, tokenizer)?;
        let (role, kind, text) = (Role::User, MessageKind::User, "Hi.".to_owned());
        let ids = tokenizer.encode(&text).unwrap_or_default();
        made.rendered(vec![PromptMessage { role, kind, text, ids }], true)?;
        Ok(made)
    }

    /// Compiles the templates; `variables` are `bos_token` and the like with the spellings of tokens.
    ///
    /// # Errors
    ///
    /// If a template is not valid.
    pub fn new(
        published: &PublishedTemplates,
        variables: Vec<(String, String)>,
        tokenizer: &Tokenizer,
    ) -> Result<Self, TemplateError> {
        let compiled = |TemplateText { file, text }: &TemplateText| {
            ChatTemplate::new(file, text, tokenizer.template_tokens(variables.clone())).map(Arc::new)
        };
        let template = compiled(&published.default)?;
        let with_tools = published.tool_use.as_ref().map(compiled).transpose()?;
        let in_texts = JinjaTools::new(with_tools.as_ref().unwrap_or(&template), &template, tokenizer);
        let tools = in_texts.map(TemplateTools::InTexts).or_else(|| {
            // Both kinds of conversations need one template.
            let tools = StructuredTools::new(&template).filter(|_| with_tools.is_none())?;
            Some(TemplateTools::Structured(tools))
        });
        let between = tokenizer.encode(BETWEEN).unwrap_or_default();
        let reasoning = reasoning::tokens(&published.default.text, tokenizer);
        Ok(Self { template, tokenizer: tokenizer.clone(), between, tools, reasoning })
    }

    /// Renders messages, and returns the form in which they were rendered. A template that refuses them is given them in
    /// stricter forms, one after the other; the error is that of the first.
    fn rendered(
        &self,
        messages: Vec<PromptMessage>,
        respond: bool,
    ) -> Result<(Prompt, Vec<PromptMessage>), TemplateError> {
        let structured = matches!(self.tools, Some(TemplateTools::Structured(_)));
        let StructuredPrompt { messages, tools } = match structured {
            true => StructuredPrompt::read(messages, &self.tokenizer),
            false => StructuredPrompt { messages: repair::with_calls_joined(messages, &self.between), tools: None },
        };
        let rendered = |form: &[PromptMessage]| {
            let messages = match structured {
                true => structured::chat_messages(form, role_name)?,
                false => form.iter().map(|form| ChatMessage::text(role_name(form.role), form.text.clone())).collect(),
            };
            rendered(&self.template, messages, tools.clone(), respond)
        };
        let [own, with_system, without_system] = repaired(&messages, &self.between, structured);
        rendered(&own).map(|prompt| (prompt, own)).or_else(|error| {
            [with_system, without_system].into_iter().find_map(|form| Some((rendered(&form).ok()?, form))).ok_or(error)
        })
    }

    /// Renders messages as positions.
    fn positions(&self, messages: Vec<PromptMessage>, respond: bool) -> Option<Vec<Element>> {
        match self.rendered(messages, respond) {
            Ok((prompt, messages)) => self.encoded(&prompt, &messages, respond),
            Err(error) => {
                tracing::warn!(%error, "the chat template renders no form of this conversation");
                None
            }
        }
    }

    /// Ids of a content as the template writes it: the message's own, as far as the text is the message's.
    fn known(&self, message: &PromptMessage, text: &str) -> Option<Vec<u32>> {
        if message.text == text {
            return Some(message.ids.clone());
        }
        // A template drops white space at the end.
        let (kept, read) = self.tokenizer.common_prefix(&message.ids, text);
        let mut ids = message.ids[..kept].to_vec();
        ids.extend(self.tokenizer.encode(text.get(read..)?).ok()?);
        message.text.starts_with(text).then_some(ids)
    }

    fn encoded(&self, prompt: &Prompt, messages: &[PromptMessage], respond: bool) -> Option<Vec<Element>> {
        let known = |message: usize, text: &str| self.known(messages.get(message)?, text);
        match self.tokenizer.encode_prompt(prompt, &known) {
            Ok(pieces) => Some(with_roles(&pieces, messages, respond)),
            Err(error) => {
                tracing::warn!(%error, "the prompt cannot be encoded");
                None
            }
        }
    }
}

impl PromptTemplate for JinjaTemplate {
    /// Audio and speech of messages are not rendered, nor are open windows: the template is for models of text.
    fn render(&self, history: &[Message], open: Option<&[Arc<AudioRows>]>, respond: bool) -> Vec<Element> {
        let messages: Vec<PromptMessage> = history
            .iter()
            .map(|message| {
                let ids: Vec<u32> = message.token_ids().collect();
                let role = match message.kind {
                    MessageKind::System => Role::System,
                    MessageKind::User | MessageKind::ToolResult => Role::User,
                    MessageKind::Assistant | MessageKind::ToolCall => Role::Assistant,
                };
                PromptMessage { role, kind: message.kind, text: self.tokenizer.decode(&ids), ids }
            })
            .collect();
        let positions = self.positions(messages.clone(), respond && open.is_none());
        // A conversation that the template renders in no form is given as its contents alone.
        let contents =
            || messages.iter().flat_map(|message| message.ids.iter().map(|id| Element::token(message.role, *id)));
        positions.unwrap_or_else(|| contents().collect())
    }

    /// Text to read aloud has the assistant's role.
    fn streamed(&self, ids: &[u32]) -> Option<Vec<Element>> {
        Some(ids.iter().map(|&id| Element::token(Role::Assistant, id)).collect())
    }

    fn reasoning(&self) -> Option<&ReasoningTokens> {
        self.reasoning.as_ref()
    }

    fn tools(&self) -> Option<&dyn ToolTemplate> {
        self.tools.as_ref().map(|tools| match tools {
            TemplateTools::InTexts(tools) => tools as &dyn ToolTemplate,
            TemplateTools::Structured(tools) => tools,
        })
    }
}

/// Renders a conversation.
fn rendered(
    template: &ChatTemplate,
    messages: Vec<ChatMessage>,
    tools: Option<Vec<ChatValue>>,
    respond: bool,
) -> Result<Prompt, TemplateError> {
    let conversation = ChatInput { messages, tools, add_generation_prompt: respond, ..ChatInput::default() };
    template.render(&conversation, now())
}

/// Name of a role in chat templates.
fn role_name(role: Role) -> &'static str {
    match role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
    }
}

/// Time of the machine, in UTC.
fn now() -> CivilTime {
    let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    CivilTime::from_seconds(i64::try_from(seconds).unwrap_or(i64::MAX))
}

/// Positions of a prompt. The template's text belongs to the content that follows it, but for the first token after a
/// content, which ends its message, and for the header of a response.
fn with_roles(pieces: &[EncodedPiece], messages: &[PromptMessage], respond: bool) -> Vec<Element> {
    let role_of = |piece: &EncodedPiece| piece.message.and_then(|message| messages.get(message)).map(|m| m.role);
    let last = messages.last().map_or(Role::System, |message| message.role);
    let mut next = if respond { Role::Assistant } else { last };
    let mut elements: Vec<Vec<Element>> = Vec::with_capacity(pieces.len());
    for (at, piece) in pieces.iter().enumerate().rev() {
        next = role_of(piece).unwrap_or(next);
        let before = at.checked_sub(1).and_then(|at| role_of(&pieces[at]));
        let role = role_of(piece).or(before).unwrap_or(next);
        elements.push(piece.ids.iter().map(|&id| Element::token(role, id)).collect());
    }
    elements.into_iter().rev().flatten().collect()
}

/// Error of looking for a template.
enum FindError {
    Checkpoint(CheckpointError),
    Template(TemplateError),
}

impl FindError {
    fn checkpoint_error(self) -> CheckpointError {
        match self {
            Self::Checkpoint(error) => error,
            Self::Template(error) => wrong_template(error),
        }
    }
}

impl From<TemplateError> for FindError {
    fn from(error: TemplateError) -> Self {
        Self::Template(error)
    }
}

/// Error of a checkpoint's template. Errors of templates begin with the file's label.
fn wrong_template(error: TemplateError) -> CheckpointError {
    let file = match &error {
        TemplateError::Unreadable { file, .. }
        | TemplateError::TooLarge { file, .. }
        | TemplateError::Syntax { file, .. }
        | TemplateError::Refused { file, .. }
        | TemplateError::Failed { file, .. }
        | TemplateError::TooMuchWork { file, .. }
        | TemplateError::TooLong { file, .. }
        | TemplateError::Ambiguous { file } => file.clone(),
        TemplateError::NotJson { field, .. } => field.clone(),
    };
    let text = error.to_string();
    let message = text.strip_prefix(&file).unwrap_or(&text).trim_start_matches([',', ':', ' ']).to_owned();
    CheckpointError::WrongField { file, field: "chat_template".to_owned(), message }
}

#[cfg(test)]
mod tests;
