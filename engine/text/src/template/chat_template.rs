//! Compiled chat template.

use std::error::Error as _;
use std::io;

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, Value};

use super::chat_input::{ChatContent, ChatInput, ChatMessage, ChatValue, TextChanges};
use super::error::TemplateError;
use super::prompt::{OutputReader, Prompt};
use super::python::{self, Raised};
use super::reserved;
use super::source;
use super::special_tokens::SpecialTokens;
use super::time::CivilTime;

/// Upper bound of a template, in bytes. The longest published ones have 30 KB.
pub const MAX_TEMPLATE: usize = 1 << 20;
/// Upper bound of a prompt, in bytes.
pub const MAX_PROMPT: usize = 16 << 20;
/// Steps of one rendering; a step pays for 64 bytes of new text too. The templates of large families take 50 to 500 for
/// each message.
const FUEL: u64 = 8_000_000;
/// Upper bound of nested calls of macros.
const MAX_RECURSION: usize = 64;
/// Name of the compiled template.
const NAME: &str = "chat_template";

/// Special tokens that a template is given.
#[derive(Debug, Clone, Default)]
pub struct TemplateTokens {
    /// Variables with the spelling of a token, such as `bos_token` and `eos_token`.
    pub variables: Vec<(String, String)>,
    /// Spellings of all special tokens of the vocabulary. What a caller types is never one of them.
    pub special: Vec<String>,
}

/// A published chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    file: String,
    marks: SpecialTokens,
    /// Variables with a token, as the template sees them.
    variables: Vec<(String, Value)>,
    /// True if the template builds marks out of parts.
    builds_special_tokens: bool,
}

impl ChatTemplate {
    /// Compiles a template. `file` names the file, and the field of it, that the text is from.
    ///
    /// # Errors
    ///
    /// If the template is over a mebibyte, or is not valid; the error has its line.
    pub fn new(file: &str, text: &str, tokens: TemplateTokens) -> Result<Self, TemplateError> {
        if text.len() > MAX_TEMPLATE {
            return Err(TemplateError::TooLarge { file: file.to_owned(), bytes: text.len(), limit: MAX_TEMPLATE });
        }
        let variable_tokens: Vec<String> = tokens.variables.iter().map(|(_, token)| token.clone()).collect();
        // The variables' marks come first, so that a vocabulary of very many special tokens has them too.
        let is_special = |token: &String| tokens.special.contains(token);
        let marks =
            SpecialTokens::new(variable_tokens.into_iter().filter(is_special).chain(tokens.special.iter().cloned()));
        let variable = |(name, token): (String, String)| {
            let character = marks.find(&token).and_then(reserved::of_special);
            (name, character.map_or_else(|| Value::from(token), |c| Value::from(c.to_string())))
        };
        let variables = tokens.variables.into_iter().map(variable).collect();
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Lenient);
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment.set_fuel(Some(FUEL));
        environment.set_recursion_limit(MAX_RECURSION);
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|error| failure(file, &error))?);
        python::install(&mut environment);
        let source = source::prepare(&reserved::scrub(text), &marks);
        environment.add_template_owned(NAME, source).map_err(|error| failure(file, &error))?;
        let mut made = Self { environment, file: file.to_owned(), marks, variables, builds_special_tokens: false };
        made.builds_special_tokens = made.found_to_build_special_tokens();
        Ok(made)
    }

    /// File, and field, that the template is from.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// True if the template builds special tokens out of parts, say of a role.
    pub fn builds_special_tokens(&self) -> bool {
        self.builds_special_tokens
    }

    /// Renders a conversation; `now` is the time that the template may write.
    ///
    /// # Errors
    ///
    /// If the template refuses the conversation or fails on it, takes too much work, or writes over 16 MiB.
    pub fn render(&self, conversation: &ChatInput, now: CivilTime) -> Result<Prompt, TemplateError> {
        let reader =
            OutputReader { marks: &self.marks, builds_special_tokens: self.builds_special_tokens, input: conversation };
        let render = |enclose, guard: bool| {
            let changes = TextChanges { enclose, guard: guard.then_some(&self.marks) };
            self.output(conversation, changes, now)
        };
        let output = render(false, false)?;
        let text = reader.plain(&output);
        let same = |output: &String| reader.plain(output) == text;
        // A template that looks at more of a content than white space at its ends may take it for another: then
        // contents are not found.
        let enclosed = render(true, self.builds_special_tokens).ok().filter(same);
        if let Some(enclosed) = enclosed {
            return Ok(reader.read(&enclosed));
        }
        if !self.builds_special_tokens || !reader.spells_special_tokens(&output) {
            return Ok(reader.read(&output));
        }
        let guarded = render(false, true).ok().filter(same);
        guarded.map_or_else(
            || Err(TemplateError::Ambiguous { file: self.file.clone() }),
            |output| Ok(reader.read(&output)),
        )
    }

    /// Output of the template, with reserved characters.
    fn output(
        &self,
        conversation: &ChatInput,
        changes: TextChanges<'_>,
        now: CivilTime,
    ) -> Result<String, TemplateError> {
        let tools = conversation.tools.as_ref().map(|tools| tools.iter().map(|tool| changes.value(tool)).collect());
        let mut variables = self.variables.clone();
        variables.push(("messages".to_owned(), changes.messages(conversation)));
        variables.push(("tools".to_owned(), tools.unwrap_or_else(|| Value::from(()))));
        variables.push(("documents".to_owned(), Value::from(())));
        variables.push(("add_generation_prompt".to_owned(), Value::from(conversation.add_generation_prompt)));
        variables.push((python::NOW.to_owned(), Value::from(now.seconds())));
        variables.extend(conversation.variables.iter().map(|(name, value)| (name.clone(), changes.value(value))));
        let template = self.environment.get_template(NAME).map_err(|error| failure(&self.file, &error))?;
        let mut output = BoundedOutput::default();
        let rendered = template.render_captured_to(Value::from_pairs(variables), &mut output).map(|_| ());
        if output.full {
            return Err(TemplateError::TooLong { file: self.file.clone(), limit: MAX_PROMPT });
        }
        rendered.map_err(|error| failure(&self.file, &error))?;
        // The engine writes whole strings.
        String::from_utf8(output.bytes).map_err(|error| TemplateError::Failed {
            file: self.file.clone(),
            line: 0,
            message: error.to_string(),
        })
    }

    /// Renders conversations of plain words: a special token that still stands in the text is one that the template
    /// builds.
    fn found_to_build_special_tokens(&self) -> bool {
        let said = |roles: &[&str]| -> Vec<ChatMessage> {
            let word = |(at, role): (usize, &&str)| ChatMessage::text(role, ["So", "Why", "Yes", "Oh"][at % 4]);
            roles.iter().enumerate().map(word).collect()
        };
        let tool = r#"{"type": "function", "function": {"name": "f", "description": "F", "parameters": {}}}"#;
        let tools: Option<Vec<ChatValue>> = ChatValue::parse(tool, "tool").ok().map(|tool| vec![tool]);
        let mut with_call = said(&["user"]);
        with_call.extend(ChatMessage::call("abcdefghi", "f", "{}"));
        with_call.push(ChatMessage {
            role: "tool".to_owned(),
            content: ChatContent::Text("1".to_owned()),
            fields: vec![("tool_call_id".to_owned(), "abcdefghi".into()), ("name".to_owned(), "f".into())],
        });
        let tried = [
            (said(&["user", "assistant", "user"]), None),
            (said(&["system", "user", "assistant"]), None),
            (said(&["system", "user"]), tools.clone()),
            (with_call, tools),
        ];
        tried.into_iter().any(|(messages, tools)| {
            let conversation = ChatInput { messages, tools, add_generation_prompt: true, variables: Vec::new() };
            let changes = TextChanges { enclose: false, guard: None };
            let output = self.output(&conversation, changes, CivilTime::from_seconds(0));
            output.is_ok_and(|output| self.marks.any_in(&output))
        })
    }
}

/// Error of the engine, as ours.
fn failure(file: &str, error: &Error) -> TemplateError {
    let (file, line) = (file.to_owned(), error.line().unwrap_or(0));
    let message = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    let mut cause = error.source();
    while let Some(source) = cause {
        if let Some(Raised(message)) = source.downcast_ref::<Raised>() {
            return TemplateError::Refused { file, line, message: message.clone() };
        }
        cause = source.source();
    }
    match error.kind() {
        ErrorKind::SyntaxError => TemplateError::Syntax { file, line, message },
        ErrorKind::OutOfFuel => TemplateError::TooMuchWork { file, line },
        _ => TemplateError::Failed { file, line, message },
    }
}

/// Output that takes up to [`MAX_PROMPT`] bytes.
#[derive(Default)]
struct BoundedOutput {
    bytes: Vec<u8>,
    full: bool,
}

impl io::Write for BoundedOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > MAX_PROMPT {
            self.full = true;
            return Err(io::Error::other("the prompt is too long"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
